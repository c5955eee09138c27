//! The guarantees of a size limit, one test each.

use std::time::Duration;

use kvstore::{CheckpointMode, Config, ErrorKind, Eviction, Expiry, Hint, JournalMode, SizeLimit, Store};

use super::engines;
use crate::common::{Random, Scratch, TestClock, kind, memory_at, numbered, python};

const NOW: i64 = 1_800_000_000_000;
const EVICTING: [Eviction; 3] = [Eviction::Soonest, Eviction::Oldest, Eviction::LeastUsed];
const POLICIES: [Eviction; 4] = [Eviction::None, Eviction::Soonest, Eviction::Oldest, Eviction::LeastUsed];

/// Puts keys of some hundred bytes, with TTLs, until `n` keys are put or a put is refused. Returns
/// the number of keys put and the kind of the error.
fn pour(store: &Store, from: usize, n: usize) -> (usize, Option<ErrorKind>) {
    for at in from..from + n {
        let ttl = Expiry::At(NOW + 1_000_000 + at as i64);
        if let Err(e) = store.put_with_expiry(numbered(at), [7; 200], ttl) {
            return (at - from, Some(e.kind()));
        }
    }
    (n, None)
}

fn size(store: &Store) -> u64 {
    store.stats().unwrap().size_bytes
}

#[test]
fn limit_is_stored_and_returned_by_every_handle() {
    for config in engines() {
        let scratch = Scratch::new();
        let (one, other) = (scratch.open_with(&config), scratch.open());
        assert_eq!((one.size_limit().unwrap(), other.size_limit().unwrap()), (None, None));
        for eviction in POLICIES {
            let limit = SizeLimit::new(1 << 20, eviction);
            one.set_size_limit(Some(limit)).unwrap();
            assert_eq!((one.size_limit().unwrap(), other.size_limit().unwrap()), (Some(limit), Some(limit)));
            let reader = scratch.open_with(&config.clone().read_only(true));
            assert_eq!(reader.size_limit().unwrap(), Some(limit));
            assert_eq!(kind(reader.set_size_limit(None)), ErrorKind::ReadOnly);
        }
        other.set_size_limit(None).unwrap();
        assert_eq!(one.size_limit().unwrap(), None);
        one.integrity_check().unwrap();
        assert_eq!(one.repair().unwrap(), 0);
    }
}

#[test]
fn limit_below_minimum_is_refused() {
    for (page_size, least) in [(512, 16_384), (4096, 131_072), (65_536, 2_097_152)] {
        let store = Store::open_in_memory(&Config::new().page_size(page_size)).unwrap();
        for bytes in [0, 1, least - 1, u64::MAX, 1 << 63] {
            let error = store.set_size_limit(Some(SizeLimit::new(bytes, Eviction::None))).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Error);
            assert!(error.to_string().contains(&least.to_string()), "{error}");
        }
        assert_eq!(store.size_limit().unwrap(), None);
        store.set_size_limit(Some(SizeLimit::new(least, Eviction::None))).unwrap();
        store.put("key", "value").unwrap();
    }
}

#[test]
fn full_store_refuses_only_growing_writes() {
    for config in engines() {
        let scratch = Scratch::new();
        let store = scratch.open_with(&config);
        let family = store.create_family("family").unwrap();
        store.set_size_limit(Some(SizeLimit::new(256 << 10, Eviction::None))).unwrap();
        let (put, refused) = pour(&store, 0, 10_000);
        assert_eq!(refused, Some(ErrorKind::Full));
        assert!(put > 500, "{put} keys");
        assert_eq!(store.count().unwrap(), put as u64);
        assert!(size(&store) <= 256 << 10);
        let text = store.put("large", [0; 10_000]).unwrap_err().to_string();
        assert!(text.contains("262144") && text.contains("limit"), "{text}");
        // Existing keys can be changed and removed.
        store.put_with_expiry(numbered(3), [8; 200], Expiry::At(NOW + 5)).unwrap();
        assert!(
            store.set_expiry(numbered(4), Expiry::Never, kvstore::ExpiryCondition::Always).unwrap()
                == Some(true)
        );
        assert!(store.delete(numbered(5)).unwrap());
        store
            .delete_range(&kvstore::KeyRange::new(
                std::ops::Bound::Included(numbered(100)),
                std::ops::Bound::Excluded(numbered(300)),
            ))
            .unwrap();
        // A transaction can continue after a refused write.
        store
            .transaction(|tx| {
                tx.put("a", "1")?;
                assert_eq!(kind(family.put("b", vec![0; 300_000])), ErrorKind::Full);
                assert_eq!(kind(tx.put("b", vec![0; 230_000])), ErrorKind::Full);
                tx.put("c", "3")
            })
            .unwrap();
        assert_eq!((store.get("a").unwrap(), store.get("b").unwrap()), (Some(b"1".to_vec()), None));
        assert_eq!((store.get("c").unwrap(), family.get("b").unwrap()), (Some(b"3".to_vec()), None));
        assert_eq!(store.stats().unwrap().evicted, 0);
        store.clear().unwrap();
        pour(&store, 0, 100);
        store.integrity_check().unwrap();
    }
}

#[test]
fn expired_keys_are_removed_first_and_not_counted_evicted() {
    for eviction in EVICTING {
        let (store, clock) = memory_at(NOW);
        store.set_size_limit(Some(SizeLimit::new(256 << 10, eviction))).unwrap();
        let family = store.create_family("other").unwrap();
        for n in 0..150 {
            store.put_with_expiry(numbered(n), [1; 200], Expiry::At(NOW + 10)).unwrap();
            family.put_with_expiry(numbered(n), [2; 200], Expiry::At(NOW + 1000)).unwrap();
        }
        clock.set(NOW + 10);
        let before = store.stats().unwrap();
        let mut n = 1000;
        while store.stats().unwrap().ttl_purged < 100 {
            family.put_with_expiry(numbered(n), [3; 200], Expiry::At(NOW + 5000)).unwrap();
            n += 1;
        }
        let after = store.stats().unwrap();
        assert_eq!((before.evicted, after.evicted), (0, 0), "{eviction:?}");
        assert_eq!(family.count().unwrap(), 150 + n as u64 - 1000);
    }
}

#[test]
fn soonest_eviction_never_removes_keys_without_ttl() {
    let (store, _) = memory_at(NOW);
    store.set_size_limit(Some(SizeLimit::new(256 << 10, Eviction::Soonest))).unwrap();
    for n in 0..300 {
        store.put(numbered(n), [1; 200]).unwrap();
    }
    let (put, refused) = pour(&store, 1000, 2000);
    assert_eq!((put, refused), (2000, None));
    for n in 0..300 {
        assert!(store.exists(numbered(n)).unwrap());
    }
    // Fills the store with keys that have no TTL.
    let mut n = 300;
    let refused = loop {
        match store.put(numbered(n), [1; 200]) {
            Ok(()) => n += 1,
            Err(e) => break e,
        }
    };
    assert_eq!(refused.kind(), ErrorKind::Full);
    assert!(refused.to_string().contains("no other key with a TTL"), "{refused}");
    // A write that is refused changes nothing: the keys with a TTL are not evicted either.
    let left = store.count().unwrap();
    assert_eq!(kind(store.put(numbered(n), [1; 60_000])), ErrorKind::Full);
    assert_eq!(store.count().unwrap(), left);
    store.integrity_check().unwrap();
}

#[test]
fn write_never_evicts_its_own_keys() {
    for eviction in EVICTING {
        for config in engines() {
            let store = Store::open_in_memory(&config).unwrap();
            store.set_size_limit(Some(SizeLimit::new(512 << 10, eviction))).unwrap();
            let clock = TestClock::at(NOW);
            clock.drive(&store);
            assert_eq!(pour(&store, 0, 3000).1, None);
            // Each of these keys would be the first to be evicted.
            for n in 0..200 {
                store.put_with_expiry(format!("first {n}"), [1; 200], Expiry::At(NOW + 1)).unwrap();
                assert!(store.exists(format!("first {n}")).unwrap(), "{eviction:?} {n}");
            }
            let mut batch = store.batch();
            for n in 0..800 {
                batch.put(&store, format!("batch {n}"), [1; 200], Expiry::At(NOW + 1)).unwrap();
            }
            batch.commit().unwrap();
            for n in 0..800 {
                assert!(store.exists(format!("batch {n}")).unwrap(), "{eviction:?} {n}");
            }
            // More than fits into the store even when it is empty.
            let before = store.count().unwrap();
            for n in 0..4000 {
                batch.put(&store, format!("batch {n}"), [1; 200], Expiry::At(NOW + 1)).unwrap();
            }
            assert_eq!(kind(batch.commit()), ErrorKind::Full);
            assert_eq!(kind(store.put("large", vec![0; 600_000])), ErrorKind::Full);
            assert_eq!(store.count().unwrap(), before);
            store.transaction(|tx| tx.increment("n", 1, Expiry::Never).map(drop)).unwrap();
            store.integrity_check().unwrap();
        }
    }
}

#[test]
fn lowering_limit_evicts_or_changes_nothing() {
    for config in engines() {
        for mode in [JournalMode::Wal, JournalMode::Delete] {
            let scratch = Scratch::new();
            let store = scratch.open_with(&config.clone().journal_mode(mode));
            store
                .transaction(|tx| {
                    for n in 0..4000 {
                        let end = Expiry::At(NOW * 2 + n as i64);
                        tx.put_with_expiry(numbered(n * 7919 % 4000), [1; 200], end)?;
                    }
                    tx.put("large", vec![1; 300_000])
                })
                .unwrap();
            assert!(size(&store) > 1 << 20);
            let before = (store.count().unwrap(), store.stats().unwrap().db_pages);
            assert_eq!(
                kind(store.set_size_limit(Some(SizeLimit::new(1 << 20, Eviction::None)))),
                ErrorKind::Full
            );
            assert_eq!(
                kind(store.set_size_limit(Some(SizeLimit::new(256 << 10, Eviction::Soonest)))),
                ErrorKind::Full
            );
            store
                .transaction(|tx| {
                    tx.put("in it", "1")?;
                    assert_eq!(
                        kind(tx.set_size_limit(Some(SizeLimit::new(256 << 10, Eviction::Soonest)))),
                        ErrorKind::Full
                    );
                    assert_eq!(tx.size_limit()?, None);
                    tx.delete("in it").map(drop)
                })
                .unwrap();
            assert_eq!(store.size_limit().unwrap(), None);
            assert_eq!((store.count().unwrap(), store.stats().unwrap().db_pages), before);
            store.set_size_limit(Some(SizeLimit::new(1 << 20, Eviction::Soonest))).unwrap();
            assert!(size(&store) <= 1 << 20 && size(&store) > 900 << 10);
            let stats = store.stats().unwrap();
            assert_eq!(stats.evicted, before.0 - store.count().unwrap());
            assert!(store.exists("large").unwrap() && store.exists(numbered(3999 * 7919 % 4000)).unwrap());
            store.checkpoint(CheckpointMode::Truncate).unwrap();
            assert!(std::fs::metadata(scratch.path()).unwrap().len() <= 1 << 20);
            store.integrity_check().unwrap();
        }
    }
}

#[test]
fn limit_set_in_transaction_is_rolled_back_with_it() {
    for config in engines() {
        let scratch = Scratch::new();
        let store = scratch.open_with(&config);
        store.begin_write().unwrap();
        store.set_size_limit(Some(SizeLimit::new(256 << 10, Eviction::None))).unwrap();
        assert_eq!(kind(store.put("large", vec![0; 300_000])), ErrorKind::Full);
        store.rollback().unwrap();
        assert_eq!(store.size_limit().unwrap(), None);
        store.put("large", vec![0; 300_000]).unwrap();
        store.delete("large").unwrap();
        store.transaction(|tx| tx.set_size_limit(Some(SizeLimit::new(256 << 10, Eviction::None)))).unwrap();
        assert_eq!(kind(store.put("large", vec![0; 300_000])), ErrorKind::Full);
    }
}

#[test]
fn oldest_eviction_makes_every_family_track_writes() {
    for config in engines() {
        let scratch = Scratch::new();
        let store = scratch.open_with(&config);
        let before = store.create_family("before").unwrap();
        before.put("key", "value").unwrap();
        store.set_size_limit(Some(SizeLimit::new(256 << 10, Eviction::Oldest))).unwrap();
        let after = store.create_family("after").unwrap();
        let other = scratch.open();
        let theirs = other.create_family("theirs").unwrap();
        for family in [&before, &after, store.default_family(), &theirs] {
            assert!(family.tracks_writes().unwrap());
            let refused = family.set_write_tracking(false).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Error);
            assert_eq!(refused.hint(), Some(Hint::ChangeEviction), "{refused}");
            family.set_write_tracking(true).unwrap();
        }
        assert!(before.write_time("key").unwrap().is_some());
        store.set_size_limit(Some(SizeLimit::new(256 << 10, Eviction::Soonest))).unwrap();
        assert!(before.tracks_writes().unwrap());
        before.set_write_tracking(false).unwrap();
        store.integrity_check().unwrap();
    }
}

#[test]
fn wal_is_bounded_by_limit_despite_checkpoint_every() {
    for config in engines() {
        let scratch = Scratch::new();
        let store = scratch.open_with(&config.checkpoint_every(100_000));
        store.set_size_limit(Some(SizeLimit::new(96 * 4096, Eviction::Soonest))).unwrap();
        for n in 0..1000 {
            store.put_with_expiry(numbered(n), [1; 100], Expiry::At(NOW * 2)).unwrap();
        }
        let most = 32 + (2 * 16 + 200) * (4096 + 24);
        let wal = std::fs::metadata(scratch.wal()).unwrap().len();
        assert!(wal <= most, "{wal}");
    }
}

#[test]
fn file_and_wal_stay_within_documented_size() {
    for page_size in [512, 1024, 4096, 16_384, 65_536] {
        for (eviction, config) in EVICTING.into_iter().zip(engines()) {
            let scratch = Scratch::new();
            let store = scratch.open_with(&config.page_size(page_size));
            let pages = 96;
            let limit = u64::from(page_size) * pages;
            store.set_size_limit(Some(SizeLimit::new(limit, eviction))).unwrap();
            let wal_pages = (pages / 8).clamp(16, 4000);
            let mut random = Random(7);
            let length = |path: &std::path::Path| std::fs::metadata(path).map_or(0, |found| found.len());
            for n in 0..400 {
                let key = numbered(random.below(100_000) as usize);
                let value = vec![1; random.below(u64::from(page_size) * 2) as usize];
                store.put_with_expiry(key, &value, Expiry::At(NOW * 2 + n)).unwrap();
                assert!(
                    length(&scratch.path()) <= limit,
                    "{page_size}: {} in put {n}",
                    length(&scratch.path())
                );
                // A put changes a few dozen pages at most, and the rows evicted for it are on as
                // many.
                let most = 32 + (2 * wal_pages + 200) * (u64::from(page_size) + 24);
                assert!(length(&scratch.wal()) <= most, "{page_size}: {} in put {n}", length(&scratch.wal()));
            }
            assert!(size(&store) <= limit && size(&store) > limit / 2, "{page_size}: {}", size(&store));
            assert!(store.stats().unwrap().evicted > 100);
            store.integrity_check().unwrap();
        }
    }
}

#[test]
fn backup_keeps_limit_and_next_write_of_handle_obeys_it() {
    let scratch = Scratch::new();
    let (one, other) = (scratch.open(), scratch.open());
    other.put("known", "before").unwrap();
    one.set_size_limit(Some(SizeLimit::new(256 << 10, Eviction::None))).unwrap();
    assert_eq!(kind(other.put("large", vec![0; 300_000])), ErrorKind::Full);
    let copy = scratch.file("copy.db");
    one.backup(&copy, |_, _| true).unwrap();
    let copy = Store::open(copy).unwrap();
    assert_eq!(copy.size_limit().unwrap(), one.size_limit().unwrap());
    assert_eq!(kind(copy.put("large", vec![0; 300_000])), ErrorKind::Full);
    one.set_size_limit(None).unwrap();
    other.put("large", vec![0; 300_000]).unwrap();
}

#[test]
fn eviction_works_across_two_thousand_families() {
    for eviction in EVICTING {
        let scratch = Scratch::new();
        let store = scratch.open();
        let clock = TestClock::at(NOW);
        clock.drive(&store);
        let families: Vec<_> =
            (0..2000).map(|n| store.create_family(&format!("family {n}")).unwrap()).collect();
        store.begin_write().unwrap();
        for (n, family) in families.iter().enumerate() {
            clock.set(NOW + n as i64);
            family.put_with_expiry("first", [1; 100], Expiry::At(NOW * 2 + n as i64)).unwrap();
        }
        store.commit().unwrap();
        store.set_size_limit(Some(SizeLimit::new(100 << 20, eviction))).unwrap();
        // The present size, and a little more.
        let limit = size(&store) / 31 * 32 + (64 << 10);
        store.set_size_limit(Some(SizeLimit::new(limit, eviction))).unwrap();
        clock.set(NOW + 10_000);
        let mut put = 0;
        while store.stats().unwrap().evicted < 50 {
            families[put % 2000]
                .put_with_expiry(format!("key {put}"), [1; 1000], Expiry::At(NOW * 3))
                .unwrap();
            put += 1;
            assert!(put < 10_000);
        }
        let evicted = store.stats().unwrap().evicted as usize;
        let gone = families.iter().filter(|family| !family.exists("first").unwrap()).count();
        assert_eq!(gone, evicted, "{eviction:?}");
        if eviction == Eviction::Soonest {
            assert!(families.iter().take(gone).all(|family| !family.exists("first").unwrap()));
        }
        assert!(size(&store) <= limit);
    }
}

#[test]
fn dropped_families_free_space_and_leave_eviction_order() {
    for eviction in EVICTING {
        let (store, clock) = memory_at(NOW);
        store.set_size_limit(Some(SizeLimit::new(300 << 10, eviction))).unwrap();
        for round in 0..20 {
            let family = store.create_family("for a while").unwrap();
            for n in 0..400 {
                clock.set(NOW + round * 1000 + n);
                let end = Expiry::At(NOW + 1_000_000 - n);
                family.put_with_expiry(numbered(n as usize), [1; 300], end).unwrap();
                store.put_with_expiry(numbered(n as usize), [1; 300], end).unwrap();
            }
            drop(family);
            store.drop_family("for a while").unwrap();
        }
        assert!(store.stats().unwrap().evicted > 0);
        store.integrity_check().unwrap();
    }
}

#[test]
fn vacuum_purge_and_cleaner_work_in_full_store() {
    let scratch = Scratch::new();
    let store = scratch.open();
    store.set_size_limit(Some(SizeLimit::new(256 << 10, Eviction::None))).unwrap();
    let mut n = 0;
    while store.put_with_ttl(numbered(n), [1; 200], Duration::from_millis(1)).is_ok() {
        n += 1;
    }
    let now = kvstore::now_ms() + 1000;
    store.set_clock(move || now);
    assert!(store.purge_step(Some(10), None).unwrap().deleted == 10);
    store.incremental_vacuum(None).unwrap();
    store.start_cleaner(Duration::from_millis(1), None).unwrap();
    while store.next_expiry_all_families().unwrap().is_some() {
        std::thread::yield_now();
    }
    store.stop_cleaner().unwrap();
    store.put("again", [1; 200]).unwrap();
}

#[test]
fn invalid_stored_limits_cause_no_failure() {
    let hostile = [
        ("1", "1", Some(SizeLimit::new(1, Eviction::Soonest))),
        ("1", "'2'", Some(SizeLimit::new(1, Eviction::None))),
        ("4096", "2", Some(SizeLimit::new(4096, Eviction::Oldest))),
        ("300000", "7", Some(SizeLimit::new(300_000, Eviction::None))),
        ("9223372036854775807", "1", Some(SizeLimit::new(i64::MAX as u64, Eviction::Soonest))),
        ("-1", "1", None),
        ("0", "2", None),
        ("'300000'", "2", None),
        ("x'00'", "x'00'", None),
        ("NULL", "NULL", None),
        ("1.5", "1", None),
    ];
    for (at, (max_bytes, eviction, limit)) in hostile.into_iter().enumerate() {
        for config in engines().iter().skip(at % 2).take(1) {
            let scratch = Scratch::new();
            let store = scratch.open_with(config);
            store.put("key", "value").unwrap();
            store.close().unwrap();
            python(
                &scratch.path(),
                &format!(
                    "con.execute(\"INSERT INTO kvstore_meta VALUES('max_bytes', {max_bytes}), ('eviction', {eviction})\")"
                ),
            );
            let store = scratch.open_with(config);
            assert_eq!(store.size_limit().unwrap(), limit);
            let done = store.put_with_expiry("new", vec![1; 20_000], Expiry::At(NOW * 2));
            let small = limit.is_some_and(|limit| limit.max_bytes < 10_000);
            assert_eq!(
                done.map_err(|e| e.kind()),
                if small { Err(ErrorKind::Full) } else { Ok(()) },
                "{max_bytes}"
            );
            assert_eq!(store.get("key").unwrap().as_deref(), Some(&b"value"[..]));
            assert!(store.delete("key").unwrap());
            store.set_size_limit(None).unwrap();
            store.put("key", vec![1; 500_000]).unwrap();
            store.integrity_check().unwrap();
        }
    }
}

#[test]
fn repaired_family_tracks_writes_under_oldest_eviction() {
    for config in engines() {
        let scratch = Scratch::new();
        let store = scratch.open_with(&config);
        store.create_family("lost").unwrap().put("key", "value").unwrap();
        store.close().unwrap();
        python(
            &scratch.path(),
            "con.execute(\"DELETE FROM kvstore_family WHERE name = 'lost'\")\ncon.execute(\"INSERT INTO kvstore_meta VALUES('max_bytes', 300000), ('eviction', 2)\")",
        );
        let store = scratch.open_with(&config);
        assert!(store.repair().unwrap() > 0);
        let family = store.family("lost").unwrap();
        assert!(family.tracks_writes().unwrap() && store.tracks_writes().unwrap());
        assert!(family.exists("key").unwrap());
        for n in 0..1000 {
            store.put(numbered(n), [1; 500]).unwrap();
        }
        assert!(!family.exists("key").unwrap());
        store.integrity_check().unwrap();
    }
}

#[test]
fn rollback_restores_evicted_keys() {
    for eviction in EVICTING {
        for config in engines() {
            let store = Store::open_in_memory(&config).unwrap();
            let clock = TestClock::at(NOW);
            clock.drive(&store);
            store.set_size_limit(Some(SizeLimit::new(256 << 10, eviction))).unwrap();
            assert_eq!(pour(&store, 0, 2000).1, None);
            let before: Vec<_> = store.iter().map(|entry| entry.unwrap().0).collect();
            store.begin_write().unwrap();
            assert_eq!(pour(&store, 5000, 3000).1, None);
            assert!(!store.exists(&before[0]).unwrap() && !store.exists(before.last().unwrap()).unwrap());
            store.rollback().unwrap();
            assert_eq!(store.iter().map(|entry| entry.unwrap().0).collect::<Vec<_>>(), before);
            // The next key to be evicted is the first of these.
            while store.exists(&before[0]).unwrap() {
                store
                    .put_with_expiry(
                        format!("more {}", store.stats().unwrap().puts),
                        [1; 200],
                        Expiry::At(NOW * 2),
                    )
                    .unwrap();
            }
            assert!(store.exists(&before[40]).unwrap());
            store.integrity_check().unwrap();
        }
    }
}
