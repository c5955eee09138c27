//! Length of the files of a bounded store, after each commit and directly after the limit was set.

use kvstore::{ErrorKind, Eviction, Expiry, JournalMode, SizeLimit, Store};

use super::engines;
use crate::common::{Random, Scratch, numbered};

const NOW: i64 = 1_800_000_000_000;

fn length(path: &std::path::Path) -> u64 {
    std::fs::metadata(path).map_or(0, |found| found.len())
}

/// Puts `n` keys of 800 bytes in one write.
fn put_together(store: &Store, first: usize, n: usize) {
    let mut batch = store.batch();
    for at in first..first + n {
        let end = Expiry::At(NOW * 2 + at as i64);
        batch.put(store, numbered(at), [1; 800], end).unwrap();
    }
    batch.commit().unwrap();
}

#[test]
fn file_spilled_before_commit_is_truncated_in_delete_mode() {
    for config in engines() {
        // When this write evicts keys, nearly all pages that it changes are in the cache.
        for n in [1900, 2000, 2100] {
            let scratch = Scratch::new();
            let store = scratch.open_with(&config.clone().journal_mode(JournalMode::Delete).cache_pages(100));
            store.set_size_limit(Some(SizeLimit::new(2 << 20, Eviction::Soonest))).unwrap();
            put_together(&store, 0, 600);
            put_together(&store, 1000, n);
            assert!(store.stats().unwrap().evicted > 0);
            assert!(length(&scratch.path()) <= 2 << 20, "{} bytes", length(&scratch.path()));
            store.integrity_check().unwrap();
        }
    }
}

#[test]
fn removals_leave_no_free_page_over_limit() {
    let (page, pages) = (512, 64);
    for seed in 1..=3 {
        for config in engines() {
            let scratch = Scratch::new();
            let store = scratch.open_with(&config.page_size(page));
            let limit = u64::from(page) * pages;
            store.set_size_limit(Some(SizeLimit::new(limit, Eviction::None))).unwrap();
            let mut random = Random(seed);
            for n in 0..1500 {
                let key = format!("{:03}{}", random.below(300), "x".repeat(random.below(3) as usize * 50));
                let end = Expiry::At(NOW * 2 + random.below(1_000_000) as i64);
                let done = match random.below(8) {
                    0..4 => store.put_with_expiry(&key, vec![1; random.below(120) as usize], end),
                    4..6 => store.set_expiry(&key, Expiry::Never, kvstore::ExpiryCondition::Always).map(drop),
                    6 => store.set_expiry(&key, Expiry::At(1), kvstore::ExpiryCondition::Always).map(drop),
                    _ => store.delete(&key).map(drop),
                };
                assert!(done.is_ok() || done.is_err_and(|e| e.kind() == ErrorKind::Full));
                let stats = store.stats().unwrap();
                let used = stats.size_bytes / u64::from(page);
                assert!(
                    stats.db_pages <= used.max(pages),
                    "{} pages in step {n}, {used} used",
                    stats.db_pages
                );
                assert!(used <= pages + 4, "{used} pages in step {n}");
            }
            store.integrity_check().unwrap();
        }
    }
}

#[test]
fn disabling_write_tracking_in_full_store_needs_no_page() {
    for seed in 1..=20 {
        for config in engines() {
            let scratch = Scratch::new();
            let store = scratch.open_with(&config.page_size(512));
            store.set_write_tracking(true).unwrap();
            store.set_size_limit(Some(SizeLimit::new(64 * 512, Eviction::None))).unwrap();
            let mut random = Random(seed);
            let mut refused = 0;
            while refused < 100 {
                let key =
                    format!("{:05}{}", random.below(100_000), "x".repeat(random.below(3) as usize * 50));
                refused += u32::from(store.put(key, vec![1; random.below(60) as usize]).is_err());
            }
            let before = store.stats().unwrap().db_pages;
            store.set_write_tracking(false).unwrap();
            let after = store.stats().unwrap();
            assert!(after.db_pages <= before && after.size_bytes < before * 512, "seed {seed}");
            store.integrity_check().unwrap();
        }
    }
}

#[test]
fn setting_limit_truncates_file_and_wal_unless_read() {
    for config in engines() {
        for mode in [JournalMode::Wal, JournalMode::Delete] {
            let config = config.clone().journal_mode(mode);
            let scratch = Scratch::new();
            let store = scratch.open_with(&config);
            for first in (0..5000).step_by(500) {
                put_together(&store, first, 500);
            }
            store.clear().unwrap();
            store.put("key", "value").unwrap();
            assert!(length(&scratch.path()) + length(&scratch.wal()) > 1 << 20);
            let limit = SizeLimit::new(1 << 20, Eviction::Soonest);
            let reader = scratch.open_with(&config);
            if mode == JournalMode::Wal {
                reader.begin_read().unwrap();
                store.set_size_limit(Some(limit)).unwrap();
                assert!(length(&scratch.wal()) > 1 << 20);
                reader.rollback().unwrap();
            }
            // A different limit. Setting the same limit again does nothing.
            let checkpoints = store.stats().unwrap().checkpoints;
            store.set_size_limit(Some(SizeLimit::new((1 << 20) - 4096, Eviction::Soonest))).unwrap();
            assert!(length(&scratch.path()) <= 1 << 20, "{} bytes", length(&scratch.path()));
            assert_eq!(length(&scratch.wal()), 0);
            assert_eq!(reader.get("key").unwrap().as_deref(), Some(&b"value"[..]));
            let cut = store.stats().unwrap().checkpoints;
            assert_eq!(cut > checkpoints, mode == JournalMode::Wal);
            store.set_size_limit(Some(SizeLimit::new((1 << 20) - 4096, Eviction::Soonest))).unwrap();
            assert_eq!(store.stats().unwrap().checkpoints, cut);
            store.integrity_check().unwrap();
        }
    }
}

#[test]
fn limiting_large_file_evicts_no_more_than_needed() {
    for config in engines() {
        let scratch = Scratch::new();
        // With small pages, SQLite needs many pages for bookkeeping.
        let store = scratch.open_with(&config.page_size(512));
        for n in 0..200 {
            store.put_with_expiry(numbered(n), [1; 100], Expiry::At(NOW * 2 + n as i64)).unwrap();
        }
        let before = store.stats().unwrap().size_bytes;
        store.put_with_expiry("large", vec![1; 4_000_000], Expiry::At(NOW * 2 - 1)).unwrap();
        // Creates the table of large values, so that a page is kept free.
        store
            .set_size_limit(Some(SizeLimit::new(before + before / 31 + 4 * 512, Eviction::Soonest)))
            .unwrap();
        assert_eq!((store.count().unwrap(), store.exists("large").unwrap()), (200, false));
        let stats = store.stats().unwrap();
        assert!(stats.size_bytes <= before + 4 * 512 && stats.evicted == 1);
        assert!(length(&scratch.path()) <= before + before / 31 + 4 * 512);
        store.integrity_check().unwrap();
    }
}

#[test]
fn write_larger_than_limit_is_full_without_eviction() {
    for config in engines() {
        for eviction in [Eviction::None, Eviction::Soonest, Eviction::Oldest] {
            let store = Store::open_in_memory(&config).unwrap();
            store.set_size_limit(Some(SizeLimit::new(1 << 20, eviction))).unwrap();
            put_together(&store, 0, 600);
            let refused = store.put("large", vec![0; 2 << 20]).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Full);
            assert!(
                refused.to_string().contains("alone") && refused.to_string().contains("1048576"),
                "{refused}"
            );
            assert_eq!((store.count().unwrap(), store.stats().unwrap().evicted), (600, 0));
        }
    }
}
