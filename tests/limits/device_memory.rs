//! A small device runs for a week without a restart, and its memory use stays at that of the first
//! day.
//!
//! The test counts the allocations of a whole process. So it runs in a process of its own: this test
//! program again, running only [`child`].

use std::time::Duration;

use crate::common::other::{child_in_role, role};
use crate::common::{Random, Scratch, TestClock};
use kvstore::{Config, Eviction, Expiry, SizeLimit};

const MINUTE: i64 = 60_000;
const DAY: i64 = 24 * 60;
const LIMIT: u64 = 512 * 1024;

/// Number of bytes allocated by SQLite and by Rust.
fn allocated() -> usize {
    // SAFETY: it takes nothing, and only reads what the allocator has counted.
    let found = unsafe { libc::mallinfo2() };
    found.uordblks + found.hblkhd // the large ones are mapped
}

#[test]
fn small_device_memory_does_not_grow_over_one_week() {
    let scratch = Scratch::new();
    let done = child_in_role(module_path!(), scratch.dir(), "week").output().unwrap();
    let said = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
    assert!(done.status.success() && said.contains("test result: ok. 1 passed"), "{said}");
}

#[test]
#[ignore = "no test, but the other process of the test in this file"]
fn child() {
    if role().is_none() {
        return;
    }
    for sql in [false, true] {
        let scratch = Scratch::new();
        let clock = TestClock::at(1_000); // the device sets its clock after a day
        let store = scratch.open_with(&Config::small().sql_engine(sql));
        clock.drive(&store);
        store.set_size_limit(Some(SizeLimit::new(LIMIT, Eviction::Soonest))).unwrap();
        let (samples, leases) =
            (store.create_family("samples").unwrap(), store.create_family("leases").unwrap());
        samples.set_default_ttl(Some(Duration::from_secs(3600))).unwrap();
        let (mut random, mut start, mut first_day, mut most) = (Random(7), 1_000, 0, 0);
        let length = |path: &std::path::Path| std::fs::metadata(path).map_or(0, |found| found.len());
        for minute in 0..7 * DAY {
            if minute == DAY {
                start = 1_800_000_000_000;
            }
            clock.set(start + minute * MINUTE);
            samples.put(minute.to_be_bytes(), vec![minute as u8; 40]).unwrap();
            let lease = format!("{:x}", random.below(500));
            let end = clock.now() + 12 * 60 * MINUTE;
            leases
                .put_with_expiry(&lease, vec![1; 60 + random.below(100) as usize], Expiry::At(end))
                .unwrap();
            assert!(leases.get(&lease).unwrap().is_some());
            drop(samples.get(random.below(minute as u64 + 1).to_be_bytes()).unwrap());
            if minute % 10 == 0 {
                store.purge_step(Some(100), None).unwrap();
                assert!(samples.iter().count() <= 71);
                store.transaction(|store| store.put("state", minute.to_be_bytes())).unwrap();
            }
            let (file, wal) = (length(&scratch.path()), length(&scratch.wal()));
            assert!(file <= LIMIT && wal <= 128 * 4120 + 32, "{file} and {wal} bytes in minute {minute}");
            match minute / DAY {
                0 => first_day = first_day.max(allocated()),
                _ => most = most.max(allocated()),
            }
        }
        assert!(most <= first_day + 16 * 1024, "{first_day} bytes on the first day, {most} later");
        store.integrity_check().unwrap();
    }
}
