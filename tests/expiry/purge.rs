//! Purges: over all families, earliest expiry first, within a budget. A live key is never removed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{env, thread};

use crate::common::{self, Scratch, TestClock, keys, kind, memory_at, numbered, other, python};
use kvstore::{CheckpointMode, Config, Error, ErrorKind, Expiry, ExpiryCondition, Family, PurgeStep, Store};

const FILE: &str = "KVSTORE_TEST_FILE";

fn step(deleted: u64, more: bool) -> PurgeStep {
    PurgeStep { deleted, more }
}

/// Puts keys that expire at 1 000 + their number; some have large values.
fn fill(store: &Store, family: &Family, count: usize) {
    store.begin_write().unwrap();
    for n in 0..count {
        let value = vec![7; if n % 5 == 0 { 600 } else { 6 }];
        family.put_with_expiry(numbered(n), value, Expiry::At(1_000 + n as i64)).unwrap();
    }
    store.commit().unwrap();
}

// ---- one family ------------------------------------------------------------------------------------

#[test]
fn purge_at_most_removes_earliest_keys_of_its_family_first() {
    let (store, clock) = memory_at(0);
    let other = store.create_family("other").unwrap();
    fill(&store, &store, 700);
    fill(&store, &other, 10);
    clock.set(1_599); // 600 have expired
    assert_eq!(store.purge_at_most(0).unwrap(), step(0, true));
    assert_eq!(store.purge_at_most(1).unwrap(), step(1, true));
    assert_eq!(store.next_expiry().unwrap(), Some(1_001));
    assert_eq!(store.purge_at_most(300).unwrap(), step(300, true));
    assert_eq!(store.count().unwrap(), 399);
    assert_eq!(store.purge_at_most(299).unwrap(), step(299, false));
    assert_eq!(store.purge_at_most(u64::MAX).unwrap(), step(0, false));
    assert_eq!((store.count().unwrap(), other.count().unwrap()), (100, 10));
    assert_eq!(store.stats().unwrap().ttl_purged, 600);
    store.integrity_check().unwrap();
}

// ---- purge_before --------------------------------------------------------------------------------

#[test]
fn purge_before_removes_only_keys_expired_before_cutoff() {
    let (store, clock) = memory_at(0);
    fill(&store, &store, 100);
    clock.set(1_049);
    assert_eq!(store.purge_before(i64::MIN).unwrap(), 0);
    assert_eq!(store.purge_before(0).unwrap(), 0);
    assert_eq!(store.purge_before(1_000).unwrap(), 0);
    assert_eq!(store.purge_before(1_001).unwrap(), 1);
    assert_eq!(store.purge_before(1_020).unwrap(), 19);
    assert_eq!(store.count().unwrap(), 80);
    assert_eq!(store.next_expiry().unwrap(), Some(1_020));
    store.integrity_check().unwrap();
}

#[test]
fn purge_before_keeps_live_keys_even_with_future_cutoff() {
    let (store, clock) = memory_at(0);
    fill(&store, &store, 100);
    store.put("permanent", "1").unwrap();
    clock.set(1_049);
    for cutoff in [1_050, 1_051, 9_000, i64::MAX] {
        store.begin_write().unwrap();
        assert_eq!(store.purge_before(cutoff).unwrap(), 50);
        assert_eq!(store.count().unwrap(), 51);
        assert_eq!(store.count_live().unwrap(), 51);
        store.rollback().unwrap();
    }
    assert_eq!(store.purge_before(i64::MAX).unwrap(), 50);
    assert_eq!(keys(store.iter()).len(), 51);
    assert_eq!(store.next_expiry().unwrap(), Some(1_050));
    store.integrity_check().unwrap();
}

#[test]
fn purge_trusts_row_when_index_is_wrong() {
    if common::is_of_a_file("another program looks at the file") {
        return;
    }
    let scratch = Scratch::new();
    let clock = TestClock::at(0);
    let store = scratch.open_at(&clock);
    for key in ["alive", "prolonged", "permanent"] {
        store.put_with_expiry(key, "1", Expiry::At(1_000)).unwrap();
    }
    // In the index all keys expire at 1 000, but not in the rows.
    python(
        &scratch.path(),
        "con.execute('UPDATE \"data:default\" SET expire_ms = 9000 WHERE key = CAST(\\'prolonged\\' AS BLOB)')\n\
         con.execute('UPDATE \"data:default\" SET expire_ms = NULL WHERE key = CAST(\\'permanent\\' AS BLOB)')\n\
         con.execute('INSERT INTO \"ttl_expiry:default\" VALUES(500, CAST(\\'no such key\\' AS BLOB))')",
    );
    clock.set(2_000);
    assert_eq!(store.purge_expired().unwrap(), 1);
    assert_eq!(keys(store.iter()), [&b"permanent"[..], b"prolonged"]);
    assert_eq!(store.purge_expired().unwrap(), 0);
    assert_eq!(store.purge_step(None, None).unwrap(), step(0, false));
}

// ---- purge_step ----------------------------------------------------------------------------------

#[test]
fn purge_step_without_budget_removes_all_expired_keys() {
    let scratch = Scratch::new();
    let clock = TestClock::at(0);
    let (store, other) = (scratch.open_at(&clock), scratch.open_at(&clock));
    assert_eq!(store.purge_step(None, None).unwrap(), step(0, false));
    fill(&store, &store, 600);
    let names = ["a", "b", "never opened by this handle"];
    for name in names {
        fill(&other, &other.create_family(name).unwrap(), 600);
    }
    store.create_family("without a TTL").unwrap().put("k", "1").unwrap();
    assert_eq!(store.purge_step(None, None).unwrap(), step(0, false));
    clock.set(1_399);
    store.reset_stats().unwrap();
    assert_eq!(store.purge_step(None, None).unwrap(), step(4 * 400, false));
    let stats = store.stats().unwrap();
    assert_eq!(stats.ttl_purged, 1_600);
    assert_eq!((store.count().unwrap(), store.count_live().unwrap()), (200, 200));
    for name in names {
        assert_eq!(other.family(name).unwrap().count().unwrap(), 200);
    }
    assert_eq!(store.next_expiry_all_families().unwrap(), Some(1_400));
    store.integrity_check().unwrap();
}

#[test]
fn purge_step_stops_at_key_budget_and_reports_more() {
    let (store, clock) = memory_at(0);
    fill(&store, &store, 700);
    clock.set(1_599); // 600 have expired
    assert_eq!(store.purge_step(Some(0), None).unwrap(), step(0, true));
    assert_eq!(store.purge_step(Some(1), None).unwrap(), step(1, true));
    assert_eq!(store.purge_step(Some(299), None).unwrap(), step(299, true));
    assert_eq!(store.count().unwrap(), 400);
    store.integrity_check().unwrap();
    assert_eq!(store.purge_step(Some(300), None).unwrap(), step(300, false));
    assert_eq!(store.purge_step(Some(300), None).unwrap(), step(0, false));
    assert_eq!(store.purge_step(Some(0), None).unwrap(), step(0, false));
    assert_eq!(store.count().unwrap(), 100);
    clock.set(1_699);
    assert_eq!(store.purge_step(Some(u64::MAX), None).unwrap(), step(100, false));
    store.integrity_check().unwrap();
}

#[test]
fn purge_step_orders_removal_by_expiry_across_families() {
    // The order is interleaved: 0 in the first family, 1 in the second, 2 in the third, 3 in the first …
    // On a server 900 steps take a minute.
    for budget in [1, 7, 256, 300, 512].into_iter().skip(usize::from(common::are_on_a_server())) {
        let (store, clock) = memory_at(0);
        let families = [
            store.default_family().clone(),
            store.create_family("a").unwrap(),
            store.create_family("Z").unwrap(),
        ];
        store.begin_write().unwrap();
        for n in 0..900 {
            families[n % 3].put_with_expiry(numbered(n), "1", Expiry::At(1_000 + n as i64)).unwrap();
        }
        store.commit().unwrap();
        clock.set(5_000);
        let mut left = 900;
        while left > 0 {
            let now = budget.min(left);
            assert_eq!(store.purge_step(Some(now), None).unwrap(), step(now, left > now));
            left -= now;
            let next = (left > 0).then(|| 1_900 - left as i64);
            assert_eq!(store.next_expiry_all_families().unwrap(), next, "budget {budget}");
            assert_eq!(families.iter().map(|family| family.count().unwrap()).sum::<u64>(), left);
        }
        store.integrity_check().unwrap();
    }
}

#[test]
fn purge_step_handles_equal_expiry_family_by_family() {
    let (store, clock) = memory_at(0);
    for name in ["a", "b", "c"] {
        let family = store.create_family(name).unwrap();
        for n in 0..100 {
            family.put_with_expiry(numbered(n), "1", Expiry::At(1_000)).unwrap();
        }
    }
    clock.set(1_000);
    assert_eq!(store.purge_step(Some(150), None).unwrap(), step(150, true));
    assert_eq!(store.purge_step(Some(150), None).unwrap(), step(150, false));
    assert_eq!(store.next_expiry_all_families().unwrap(), None);
    store.integrity_check().unwrap();
}

#[test]
fn purge_step_stops_at_time_budget() {
    let (store, clock) = memory_at(0);
    fill(&store, &store, 20_000);
    clock.set(50_000);
    assert_eq!(store.purge_step(None, Some(Duration::ZERO)).unwrap(), step(0, true));
    assert_eq!(store.count().unwrap(), 20_000);
    let done = store.purge_step(None, Some(Duration::from_millis(1))).unwrap();
    assert!(done.more && done.deleted < 20_000, "{done:?}");
    assert_eq!(store.count().unwrap(), 20_000 - done.deleted);
    store.integrity_check().unwrap();
    // The first budget to be exhausted ends it.
    let left = 20_000 - done.deleted;
    assert_eq!(store.purge_step(Some(100), Some(Duration::MAX)).unwrap(), step(100, true));
    assert_eq!(store.purge_step(None, Some(Duration::MAX)).unwrap(), step(left - 100, false));
    assert_eq!(store.purge_step(None, Some(Duration::ZERO)).unwrap(), step(0, false));
}

#[test]
fn purge_is_part_of_open_transaction() {
    let scratch = Scratch::new();
    let clock = TestClock::at(0);
    let (store, other) = (scratch.open_at(&clock), scratch.open_at(&clock));
    let family = store.create_family("f").unwrap();
    fill(&store, &store, 300);
    fill(&store, &family, 300);
    clock.set(5_000);
    store.begin_write().unwrap();
    assert_eq!(store.purge_step(Some(500), None).unwrap(), step(500, true));
    assert_eq!(store.purge_expired().unwrap() + family.purge_before(i64::MAX).unwrap(), 100);
    assert_eq!((store.count().unwrap(), family.count().unwrap()), (0, 0));
    assert_eq!(other.count().unwrap(), 300);
    store.rollback().unwrap();
    assert_eq!((store.count().unwrap(), family.count().unwrap()), (300, 300));
    store.integrity_check().unwrap();
    store.transaction(|tx| tx.purge_step(None, None)).unwrap();
    assert_eq!(other.count().unwrap(), 0);
    store.integrity_check().unwrap();
}

#[test]
fn purge_when_read_only_or_busy_changes_nothing() {
    let scratch = Scratch::new();
    let clock = TestClock::at(0);
    let (store, other) = (scratch.open_at(&clock), scratch.open_at(&clock));
    fill(&store, &store, 10);
    assert_eq!(store.purge_step(None, None).unwrap(), step(0, false));
    clock.set(5_000);
    other.begin_write().unwrap();
    if common::are_on_a_server() {
        // Rows that another client has locked are skipped.
        assert_eq!(other.purge_expired().unwrap(), 10);
        assert_eq!(store.purge_step(None, None).unwrap(), step(0, true));
        assert_eq!(store.purge_before(i64::MAX).unwrap(), 0);
    } else {
        assert_eq!(kind(store.purge_step(None, None)), ErrorKind::Busy);
        assert_eq!(kind(store.purge_before(i64::MAX)), ErrorKind::Busy);
    }
    other.rollback().unwrap();
    store.begin_read().unwrap();
    assert_eq!(kind(store.purge_step(None, None)), ErrorKind::ReadOnly);
    assert_eq!(kind(store.purge_before(i64::MAX)), ErrorKind::ReadOnly);
    store.commit().unwrap();
    assert_eq!(store.count().unwrap(), 10);
    drop((store, other));
    let reader = scratch.open_with(&Config::new().read_only(true));
    clock.drive(&reader);
    assert_eq!(kind(reader.purge_step(None, None)), ErrorKind::ReadOnly);
    assert_eq!(reader.count().unwrap(), 10);
    reader.close().unwrap();
    assert_eq!(kind(reader.purge_step(None, None)), ErrorKind::Misuse);
}

#[test]
fn failed_purge_keeps_committed_steps() {
    if common::is_of_a_file("another program looks at the file") {
        return;
    }
    // One row of the second step is damaged.
    for all_families in [false, true] {
        let scratch = Scratch::new();
        let clock = TestClock::at(0);
        let store = scratch.open_with(&Config::new().wal_pages(64)); // 256 keys in a transaction
        clock.drive(&store);
        fill(&store, &store, 600);
        clock.set(5_000);
        let set = |to: &str| {
            let sql =
                format!(r#"UPDATE "data:default" SET blob_id = {to} WHERE key = CAST('key 000301' AS BLOB)"#);
            python(&scratch.path(), &format!("print(con.execute({sql:?}).rowcount)"))
        };
        assert_eq!(set("'damaged'"), "1");
        let purged = if all_families {
            store.purge_step(None, None).map(drop)
        } else {
            store.purge_expired().map(drop)
        };
        assert_eq!(kind(purged), ErrorKind::Corrupt);
        // On a slow machine the first step can end before its 256 keys.
        let left = store.count().unwrap();
        assert!((600 - 300..600).contains(&left), "{left}");
        assert_eq!(store.next_expiry().unwrap(), Some(1_600 - left as i64));
        assert_eq!(set("NULL"), "1");
        store.integrity_check().unwrap();
        assert_eq!(store.purge_step(None, None).unwrap(), step(left, false));
        store.integrity_check().unwrap();
    }
}

#[test]
fn purge_keeps_keys_extended_or_persisted_before_expiry() {
    let (store, clock) = memory_at(0);
    fill(&store, &store, 400);
    store.set_expiry(numbered(1), Expiry::At(9_000), ExpiryCondition::Always).unwrap();
    store.persist(numbered(2)).unwrap();
    store.put(numbered(3), "1").unwrap();
    store.get_and_set_expiry(numbered(4), Expiry::At(9_000)).unwrap();
    assert!(store.compare_and_swap(numbered(5), vec![7; 600], "1", Expiry::Never).unwrap());
    clock.set(5_000);
    assert_eq!(store.purge_step(None, None).unwrap(), step(395, false));
    assert_eq!(keys(store.iter()), (1..=5).map(numbered).collect::<Vec<_>>());
    store.integrity_check().unwrap();
}

#[test]
fn purge_step_continues_after_family_drop() {
    let scratch = Scratch::new();
    let clock = TestClock::at(0);
    let (store, other) = (scratch.open_at(&clock), scratch.open_at(&clock));
    fill(&other, &other.create_family("dropped").unwrap(), 300);
    fill(&store, &store, 300);
    clock.set(5_000);
    assert_eq!(store.purge_step(Some(100), None).unwrap(), step(100, true));
    other.drop_family("dropped").unwrap();
    let deleted = store.purge_step(None, None).unwrap();
    assert!(!deleted.more);
    assert_eq!((store.count().unwrap(), store.next_expiry_all_families().unwrap()), (0, None));
    store.integrity_check().unwrap();
}

#[test]
fn key_expiring_at_i64_max_can_be_purged() {
    if common::is_of_a_file("no server knows a time so far in the future") {
        return;
    }
    let (store, clock) = memory_at(1_000);
    store.put_with_ttl("k", "1", Duration::MAX).unwrap();
    assert_eq!(store.expiry("k").unwrap(), Some(Expiry::At(i64::MAX)));
    clock.set(i64::MAX);
    assert_eq!(store.count_live().unwrap(), 0);
    // The time budget is only a safeguard against a call that never ends.
    assert_eq!(store.purge_step(None, Some(Duration::from_secs(1))).unwrap(), step(1, false));
    assert_eq!(store.count().unwrap(), 0);
}

// ---- a crash in the middle -----------------------------------------------------------------------

#[test]
#[ignore = "no test, but the process that dies in the one below"]
fn child() {
    let Ok(path) = env::var(FILE) else { return };
    let store = Store::open(path).unwrap();
    TestClock::at(5_000).drive(&store);
    let done: Result<(), Error> = store.transaction(|tx| {
        assert_eq!(tx.purge_step(Some(300), None)?.deleted, 300);
        std::process::abort();
    });
    done.unwrap();
}

#[test]
fn uncommitted_purge_of_killed_process_has_no_effect() {
    let scratch = Scratch::new();
    let clock = TestClock::at(0);
    let store = scratch.open_at(&clock);
    fill(&store, &store, 400);
    let output = other::child(module_path!()).env(FILE, scratch.path()).output().unwrap();
    assert!(!output.status.success(), "the process should have died");
    store.integrity_check().unwrap();
    assert_eq!(store.count().unwrap(), 400);
    assert_eq!(store.next_expiry().unwrap(), Some(1_000));
    clock.set(5_000);
    assert_eq!(store.purge_step(None, None).unwrap(), step(400, false));
    store.integrity_check().unwrap();
}

// ---- concurrent purges
// ---------------------------------------------------------------------------

#[test]
fn concurrent_purges_remove_each_key_once() {
    let scratch = Scratch::new();
    let clock = TestClock::at(0);
    let config = Config::new().busy_timeout(Duration::from_secs(120));
    let stores = [scratch.open_with(&config), scratch.open_with(&config)];
    stores.iter().for_each(|store| clock.drive(store));
    fill(&stores[0], &stores[0], 5_000);
    clock.set(50_000);
    std::thread::scope(|scope| {
        for store in &stores {
            scope.spawn(|| while store.purge_step(Some(100), None).unwrap().more {});
        }
    });
    assert_eq!(stores[0].count().unwrap(), 0);
    let purged = stores.iter().map(|store| store.stats().unwrap().ttl_purged);
    assert_eq!(purged.sum::<u64>(), 5_000);
    stores[0].integrity_check().unwrap();
}

#[test]
fn time_limited_purge_step_defers_checkpoint_to_next_write() {
    let dir = tempfile::tempdir().unwrap();
    let config = Config::new().checkpoint_every(3);
    let store = Store::open_with(dir.path().join("store.db"), &config).unwrap();
    let clock = TestClock::at(1_000);
    clock.drive(&store);
    store
        .transaction(|tx| (0..9u8).try_for_each(|n| tx.put_with_expiry([n], "1", Expiry::At(2_000))))
        .unwrap();
    store.checkpoint(CheckpointMode::Truncate).unwrap();
    clock.set(2_000);
    let checkpoints = || store.stats().unwrap().checkpoints;
    let before = checkpoints();
    let limit = Some(Duration::from_secs(3600));
    for _ in 0..5 {
        assert_eq!(store.purge_step(Some(1), limit).unwrap().deleted, 1);
    }
    assert_eq!(checkpoints(), before);
    store.put("next", "1").unwrap();
    assert_eq!(checkpoints(), before + 1);
    // Without other writes, the purge itself must do the checkpoint eventually.
    store
        .transaction(|tx| (0..9u8).try_for_each(|n| tx.put_with_expiry([n], "1", Expiry::At(1_500))))
        .unwrap();
    let before = checkpoints();
    for _ in 0..9 {
        assert_eq!(store.purge_step(Some(1), limit).unwrap().deleted, 1);
    }
    assert_eq!(checkpoints(), before + 1);
}

// ---- in a read transaction -------------------------------------------------------------------------

type Call<'c> = (&'static str, &'c dyn Fn() -> Result<u64, Error>);

#[test]
fn purge_in_read_transaction_reports_zero_or_read_only() {
    for has_dead in [false, true] {
        let (store, clock) = memory_at(0);
        let family = store.create_family("f").unwrap();
        family.set_write_tracking(true).unwrap();
        fill(&store, &family, 3);
        let calls: [Call<'_>; 6] = [
            ("purge_expired", &|| family.purge_expired()),
            ("purge_before", &|| family.purge_before(1_002)),
            ("purge_at_most", &|| family.purge_at_most(10).map(|step| step.deleted)),
            ("purge_step", &|| store.purge_step(None, None).map(|step| step.deleted)),
            ("purge_step in time", &|| {
                store.purge_step(Some(5), Some(Duration::from_secs(1))).map(|step| step.deleted)
            }),
            ("sweep", &|| family.sweep_at_most(if has_dead { 500 } else { -1 }, 10).map(|step| step.deleted)),
        ];
        store.begin_read().unwrap();
        assert_eq!(family.count().unwrap(), 3);
        if has_dead {
            clock.set(5_000);
        }
        for (name, call) in calls {
            match call() {
                Ok(deleted) => assert!(!has_dead && deleted == 0, "{name}"),
                Err(e) => {
                    assert!(has_dead && e.kind() == ErrorKind::ReadOnly, "{name}: {e}");
                    assert!(e.to_string().contains("a read transaction is open"), "{name}: {e}");
                }
            }
        }
        // The transaction continues, and nothing was removed.
        assert_eq!(family.count().unwrap(), 3);
        store.commit().unwrap();
        assert_eq!(family.purge_expired().unwrap(), if has_dead { 3 } else { 0 });
    }
}

// ---- a transaction that fails
// ------------------------------------------------------------------------

#[test]
fn expiry_bounds_of_failed_transaction_are_reread() {
    let scratch = Scratch::new();
    let clock = TestClock::at(1_000);
    let store = scratch.open_at(&clock);
    store.put_with_expiry("k", "1", Expiry::At(2_000)).unwrap();
    store.put("damaged", vec![1; 20_000]).unwrap();
    store.close().unwrap();
    python(&scratch.path(), "con.execute('delete from \"blob:default\"')");
    let store = scratch.open_at(&clock);
    store.begin_write().unwrap();
    store.delete("k").unwrap();
    assert_eq!(kind(store.put("damaged", vec![2; 20_000])), ErrorKind::Corrupt);
    let _ = (store.next_expiry_all_families(), store.purge_step(None, None));
    store.rollback().unwrap();
    assert_eq!(store.next_expiry_all_families().unwrap(), Some(2_000));
    clock.set(2_000);
    assert_eq!(store.purge_step(None, None).unwrap(), step(1, false));
}

// ---- other writers -------------------------------------------------------------------------------

/// Time after which a write fails if it cannot get the lock. A purge of all keys takes much longer.
const PATIENCE: Duration = Duration::from_millis(300);

/// Puts keys with `writer` while `long` runs in another thread. Returns the number of keys, and the
/// time of the longest put.
fn puts_during(writer: &Store, long: impl FnOnce() + Send) -> (u64, Duration) {
    let done = AtomicBool::new(false);
    let (mut puts, mut longest) = (0, Duration::ZERO);
    thread::scope(|scope| {
        let long = scope.spawn(|| {
            long();
            done.store(true, Ordering::Relaxed);
        });
        while !done.load(Ordering::Relaxed) && !long.is_finished() {
            let began = Instant::now();
            writer.put(format!("other {puts}"), "1").unwrap(); // Busy after PATIENCE
            longest = longest.max(began.elapsed());
            puts += 1;
        }
    });
    (puts, longest)
}

#[test]
fn long_purge_lets_other_handles_write() {
    if common::is_of_a_file("on a server writers do not wait for each other") {
        return;
    }
    let scratch = Scratch::new();
    let clock = TestClock::at(0);
    let config = Config::new().busy_timeout(PATIENCE);
    let [purger, sweeper, writer] = [(); 3].map(|()| scratch.open_with(&config));
    [&purger, &sweeper, &writer].into_iter().for_each(|store| clock.drive(store));
    purger.set_write_tracking(true).unwrap();
    let count = 40_000_u32;
    purger.begin_write().unwrap();
    for n in 0..count {
        // The order of expiry is not that of the keys.
        let key = n.wrapping_mul(2_654_435_761).to_be_bytes();
        purger.put_with_expiry(key, vec![0; 100], Expiry::At(1_000 + i64::from(n % 7))).unwrap();
    }
    purger.commit().unwrap();
    clock.set(5_000);
    let (puts, longest) = puts_during(&writer, || {
        assert_eq!(purger.purge_expired().unwrap(), u64::from(count));
    });
    assert!(puts >= 5, "{puts} puts, the longest took {longest:?}");
    assert_eq!(writer.count().unwrap(), puts);
    clock.set(9_000);
    assert_eq!(sweeper.sweep(Duration::ZERO).unwrap(), puts);
    writer.integrity_check().unwrap();
}

#[test]
fn long_transactions_in_a_loop_let_other_handles_write() {
    if common::is_of_a_file("on a server writers do not wait for each other") {
        return;
    }
    let scratch = Scratch::new();
    let clock = TestClock::at(0);
    let config = Config::new().busy_timeout(PATIENCE);
    let [store, writer] = [(); 2].map(|()| scratch.open_with(&config));
    [&store, &writer].into_iter().for_each(|store| clock.drive(store));
    let keys: Vec<_> = (0..2_000_u32).map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()).collect();
    let rounds = 30;
    let fill = |expiry: Expiry| {
        store.begin_write().unwrap();
        for key in &keys {
            store.put_with_expiry(key, vec![0; 100], expiry).unwrap();
        }
        store.commit().unwrap();
    };
    // Without pauses the writer would get the lock between few of the transactions.
    let check = |what: &str, least: u64, (puts, longest): (u64, Duration)| {
        assert!(puts >= least, "{what}: {puts} puts, the longest took {longest:?}");
        writer.integrity_check().unwrap();
    };
    check("transactions", rounds / 2, puts_during(&writer, || (0..rounds).for_each(|_| fill(Expiry::Never))));
    check(
        "batches",
        rounds / 2,
        puts_during(&writer, || {
            for _ in 0..rounds {
                let mut batch = store.batch();
                keys.iter().for_each(|key| batch.put(&store, key, "value", Expiry::At(1_000)).unwrap());
                batch.commit().unwrap();
            }
        }),
    );
    let mut steps = 0;
    let mut purged = (0, Duration::ZERO);
    for _ in 0..5 {
        fill(Expiry::At(1_000));
        clock.set(2_000);
        let (puts, longest) = puts_during(&writer, || {
            while store.purge_step(Some(256), None).unwrap().more {
                steps += 1;
            }
        });
        purged = (purged.0 + puts, purged.1.max(longest));
        clock.set(0);
    }
    check("purges in steps", steps / 2, purged);
}
