//! Sync and incremental vacuum.

use std::fs;
use std::path::Path;

use crate::common::{Scratch, keys, memory, numbered};
use kvstore::{CheckpointMode, Config, JournalMode, SyncLevel};

fn size(path: &Path) -> u64 {
    fs::metadata(path).unwrap().len()
}

#[test]
fn sync_does_not_commit_open_transaction() {
    for mode in [JournalMode::Wal, JournalMode::Delete] {
        for level in [SyncLevel::Normal, SyncLevel::Full, SyncLevel::Off] {
            let scratch = Scratch::new();
            let config = Config::new().journal_mode(mode).sync(level);
            let store = scratch.open_with(&config);
            store.put("before", "1").unwrap();
            store.sync().unwrap();
            store.begin_write().unwrap();
            store.put("inside", "1").unwrap();
            store.sync().unwrap();
            assert_eq!(keys(scratch.open_with(&config).iter()), [b"before"]);
            store.rollback().unwrap();
            assert_eq!(keys(store.iter()), [b"before"], "{mode:?} {level:?}");
            store.begin_read().unwrap();
            store.sync().unwrap();
            store.commit().unwrap();
            store.sync().unwrap();
            store.integrity_check().unwrap();
        }
    }
}

#[test]
fn incremental_vacuum_frees_space_of_deleted_entries() {
    let scratch = Scratch::new();
    let store = scratch.open();
    store.put("kept", "1").unwrap();
    for n in 0..200 {
        store.put(numbered(n), vec![1; 20_000]).unwrap();
    }
    store.checkpoint(CheckpointMode::Truncate).unwrap();
    let full = size(&scratch.path());
    assert!(full > 4_000_000);
    for n in 0..200 {
        store.delete(numbered(n)).unwrap();
    }
    let pages = || store.stats().unwrap().db_pages;
    let before = pages();
    store.incremental_vacuum(Some(10)).unwrap();
    assert_eq!(pages(), before - 10);
    store.incremental_vacuum(None).unwrap();
    assert!(pages() < 20, "{} pages", pages());
    store.checkpoint(CheckpointMode::Truncate).unwrap();
    assert!(size(&scratch.path()) < full / 50);
    store.integrity_check().unwrap();
    assert_eq!(keys(store.iter()), [b"kept"]);
    store.incremental_vacuum(None).unwrap();
}

#[test]
fn incremental_vacuum_of_zero_pages_frees_none() {
    let store = memory();
    store.put("a", vec![1; 500_000]).unwrap();
    store.delete("a").unwrap();
    let before = store.stats().unwrap().db_pages;
    store.incremental_vacuum(Some(0)).unwrap();
    assert_eq!(store.stats().unwrap().db_pages, before);
}

#[test]
fn incremental_vacuum_is_part_of_transaction() {
    let store = memory();
    store.put("a", vec![1; 500_000]).unwrap();
    store.delete("a").unwrap();
    let before = store.stats().unwrap().db_pages;
    store.begin_write().unwrap();
    store.incremental_vacuum(None).unwrap();
    assert!(store.stats().unwrap().db_pages < before);
    store.rollback().unwrap();
    assert_eq!(store.stats().unwrap().db_pages, before);
    store.integrity_check().unwrap();
}
