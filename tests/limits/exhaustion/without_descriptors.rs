//! No file descriptors are available.

use std::fs;
use std::path::Path;
use std::time::Duration;

use kvstore::{CheckpointMode, Config, Expiry, JournalMode, Result, Store};

use super::{Tally, assert_clear, assert_only_parked, descriptors, did, limit, play};

/// Leaves exactly `count` descriptors free.
fn leave_descriptors(count: usize) {
    let free: Vec<fs::File> = (0..=count).map(|_| fs::File::open("/dev/null").unwrap()).collect();
    let last = std::os::fd::AsRawFd::as_raw_fd(free.last().unwrap());
    drop(free);
    limit(libc::RLIMIT_NOFILE, Some(u64::from(last.unsigned_abs())));
}

#[test]
fn open_without_descriptors_fails_and_leaves_no_partial_file() {
    play("no-descriptors-to-open");
}

pub fn no_descriptors_to_open(dir: &Path) {
    let mut failed = 0;
    let before = descriptors();
    // Done first, while no descriptor of an earlier store is parked: the library would close a
    // parked one to open another file.
    for count in 0.. {
        let path = dir.join(format!("new {count}"));
        leave_descriptors(count);
        let opened = Store::open(&path);
        limit(libc::RLIMIT_NOFILE, None);
        if opened.is_ok() {
            break;
        }
        // It may be complete before its journal mode is set.
        let length = fs::metadata(&path).map(|file| file.len()).ok();
        assert!(length.is_none_or(|length| length > 0), "an empty file is left, with {count} descriptors");
    }
    for (mode, exists) in [(JournalMode::Wal, false), (JournalMode::Wal, true), (JournalMode::Delete, false)]
    {
        for count in 0.. {
            assert!(count < 30, "an open needs more than 30 descriptors");
            let path = dir.join(format!("store {mode:?} {exists} {count}"));
            let config = Config::new().journal_mode(mode);
            if exists {
                Store::open_with(&path, &config).unwrap().put("k", "1").unwrap();
            }
            leave_descriptors(count);
            let opened = Store::open_with(&path, &config);
            limit(libc::RLIMIT_NOFILE, None);
            assert_clear("open", &opened);
            let is_open = opened.is_ok();
            drop(opened);
            assert_only_parked(before, "an open that failed keeps descriptors");
            let store = Store::open_with(&path, &config).unwrap();
            assert_eq!(store.exists("k").unwrap(), exists);
            store.put("k", "2").unwrap();
            store.integrity_check().unwrap();
            store.close().unwrap();
            if is_open {
                break;
            }
            failed += 1;
        }
    }
    assert!(failed >= 6);
    did(format!("{failed} opens failed for descriptors"));
}

#[test]
fn calls_without_descriptors_work_or_fail_without_effect() {
    play("no-descriptors-to-work");
}

pub fn no_descriptors_to_work(dir: &Path) {
    let mut tally = Tally::default();
    let before = descriptors();
    for mode in [JournalMode::Wal, JournalMode::Delete] {
        for count in 0..10 {
            for sql in [false, true] {
                let path = dir.join(format!("store {mode:?} {count} {sql}"));
                let config = Config::new().journal_mode(mode).sql_engine(sql);
                let store = Store::open_with(&path, &config).unwrap();
                store.put("old", "1").unwrap();
                leave_descriptors(count);
                let copy = path.with_extension("copy");
                let mut ran = |what: &str, result: Result<()>| tally.ran(what, result);
                let read = store.get("old");
                assert_eq!(read.unwrap().as_deref(), Some(&b"1"[..]), "a read needs no descriptor");
                let put = ran("put", store.put("new", "1"));
                let long =
                    ran("long put", store.put_with_expiry("long", vec![7; 100_000], Expiry::At(i64::MAX)));
                let family = ran("family", store.create_family("f").map(drop));
                for mode in [CheckpointMode::Passive, CheckpointMode::Full, CheckpointMode::Truncate] {
                    ran("checkpoint", store.checkpoint(mode).map(drop));
                }
                ran("sync", store.sync());
                ran("vacuum", store.incremental_vacuum(None));
                ran("integrity", store.integrity_check());
                ran("cleaner", store.start_cleaner(Duration::from_secs(60), None));
                let copied = ran("backup", store.backup(&copy, |_, _| true));
                ran("second open", Store::open_with(&path, &config).map(drop));
                limit(libc::RLIMIT_NOFILE, None);
                store.stop_cleaner().unwrap();
                assert_eq!(copy.exists(), copied);
                if copied {
                    Store::open(&copy).unwrap().integrity_check().unwrap();
                }
                let partial = |entry: fs::DirEntry| entry.file_name().to_string_lossy().contains("partial");
                assert!(!fs::read_dir(dir).unwrap().map(|entry| entry.unwrap()).any(partial));
                // Everything works again on the same handle, and the content matches the results of
                // the calls.
                assert_eq!((store.exists("new").unwrap(), store.exists("long").unwrap()), (put, long));
                assert_eq!(store.family("f").is_ok(), family);
                store.put("then", "1").unwrap();
                store.checkpoint(CheckpointMode::Truncate).unwrap();
                store.integrity_check().unwrap();
                store.close().unwrap();
                assert_only_parked(before, "a call that failed keeps descriptors");
                let store = Store::open_with(&path, &config).unwrap();
                assert_eq!((store.exists("new").unwrap(), store.exists("long").unwrap()), (put, long));
                store.integrity_check().unwrap();
            }
        }
    }
    let Tally { failed, done } = tally;
    assert!(failed > 10 && done > 10);
    did(format!("{failed} calls failed for descriptors, {done} did not"));
}
