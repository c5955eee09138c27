//! The address space is exhausted.

use std::path::Path;

use kvstore::{CheckpointMode, Config, Direction, Expiry, KeyRange, Result, Store};

use super::{Tally, did, is_long, limit, memory_of, play};

#[test]
fn call_without_memory_fails_without_effect() {
    play("no-memory");
}

pub fn no_memory(dir: &Path) {
    // Larger than the blocks that glibc keeps for reuse after they are freed.
    const LONG: usize = 33 << 20;
    let mut tally = Tally::default();
    for sql in [false, true] {
        let path = dir.join(format!("store {sql}"));
        let config = Config::new().sql_engine(sql).cache_pages(100).mmap_size(0).max_value_size(LONG);
        let store = Store::open_with(&path, &config).unwrap();
        let value = vec![7; LONG];
        store.put("old", &value).unwrap();
        for room in (0..110).step_by(if is_long() { 2 } else { 22 }) {
            // Remaining address space, in addition to what the allocator still has.
            limit(libc::RLIMIT_AS, Some(address_space() + (room << 20)));
            let mut ran = |what: &str, result: Result<()>| tally.ran(what, result);
            let read = store.get_with("old", |found, _| assert!(found == value));
            ran("get", read.map(|found| assert!(found.is_some())));
            // Calls that copy a value in Rust.
            ran("get a copy", store.get("old").map(|found| assert!(found.unwrap() == value)));
            let copies = store.get_many([&b"old"[..]]);
            ran("get copies", copies.map(|found| assert!(found[0].as_ref() == Some(&value))));
            ran("walk", store.iter().try_for_each(|entry| entry.map(|(_, found)| assert!(found == value))));
            let mut cursor = store.cursor(KeyRange::all(), Direction::Forward);
            ran("move", cursor.first().map(|moved| assert!(moved && cursor.value().unwrap() == value)));
            drop(cursor);
            let mut batch = store.batch();
            let added =
                ran("add to a batch", batch.put(store.default_family(), "batch", &value, Expiry::Never));
            assert_eq!(batch.len(), usize::from(added));
            drop(batch);
            let put = ran("put", store.put_with_expiry("new", &value, Expiry::At(i64::MAX)));
            store.begin_write().unwrap();
            let other = ran("put", store.put("other", &value));
            let committed = ran("commit", store.commit());
            assert!(other || !committed, "half a transaction is committed");
            if !committed {
                store.rollback().unwrap();
            }
            ran("checkpoint", store.checkpoint(CheckpointMode::Passive).map(drop));
            ran("open", Store::open_with(&path, &config).map(drop));
            limit(libc::RLIMIT_AS, None);
            let is_whole = |key: &str| store.get_with(key, |found, _| found == value).unwrap();
            assert_eq!(is_whole("old"), Some(true));
            assert_eq!(is_whole("new"), put.then_some(true));
            assert_eq!(is_whole("other"), committed.then_some(true));
            store.integrity_check().unwrap();
            store.delete("new").unwrap();
            store.delete("other").unwrap();
        }
        store.close().unwrap();
    }
    let Tally { failed, done } = tally;
    assert!(failed >= 4 && done > 10, "{failed} failed, {done} did not");
    did(format!("{failed} calls failed for memory, {done} did not"));
}

/// Address space in use, in bytes.
fn address_space() -> u64 {
    memory_of(0) as u64
}
