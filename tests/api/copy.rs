//! Copies from one store to another: the copy is complete, or nothing is copied.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::common::{self, Scratch, TestClock, keys, kind, memory_at, numbered};
use kvstore::{Config, ErrorKind, Eviction, Expiry, Family, JournalMode, PutOptions, SizeLimit, Store};

/// Value, expiry time, write time (-1: not tracked).
type Row = (Vec<u8>, Option<i64>, i64);

fn rows(family: &Family) -> BTreeMap<Vec<u8>, Row> {
    let row = |key: &[u8], value| {
        let expire_ms = family.expiry(key).unwrap().unwrap().millis();
        (value, expire_ms, family.write_time(key).map_or(-1, Option::unwrap))
    };
    family.iter().map(Result::unwrap).map(|(key, value)| (key.clone(), row(&key, value))).collect()
}

/// Rows of every sort in three families with settings of their own.
fn fill(store: &Store, clock: &TestClock) {
    let (aged, odd) = (store.create_family("aged").unwrap(), store.create_family("O'dd \"näme\"\n").unwrap());
    aged.set_write_tracking(true).unwrap();
    odd.set_default_ttl(Some(Duration::from_secs(7))).unwrap();
    store
        .transaction(|tx| {
            for n in 0..1500 {
                let size = [0, 10, 700, 20_000][n % 4];
                let end = if n % 3 == 0 { Expiry::Never } else { Expiry::At(clock.now() + 1000 + n as i64) };
                let end = if n % 7 == 0 { Expiry::At(clock.now() + 1) } else { end };
                tx.put_with_expiry(numbered(n), vec![n as u8; size], end)?;
                let options = PutOptions::new().written_at(n as i64).expiry(end);
                aged.put_with_options(numbered(n), b"\xff\0".repeat(n % 9), &options)?;
            }
            odd.put(b"\0\xff\xfe", "binary key")
        })
        .unwrap();
    clock.set(clock.now() + 10);
}

/// The pairs of configurations that are copied between: engines, journal modes, page sizes, memory.
fn configs() -> [Config; 4] {
    [
        Config::new(),
        Config::new().sql_engine(true).page_size(1024),
        Config::new().journal_mode(JournalMode::Delete),
        Config::new().exclusive(true).page_size(16_384),
    ]
}

fn same(from: &Store, to: &Store) {
    assert_eq!(from.family_names().unwrap(), to.family_names().unwrap());
    for name in from.family_names().unwrap().iter().map(String::as_str).chain(["default"]) {
        let (from, to) = (from.family(name).unwrap(), to.family(name).unwrap());
        assert_eq!(from.default_ttl().unwrap(), to.default_ttl().unwrap());
        assert_eq!(from.tracks_writes().unwrap(), to.tracks_writes().unwrap());
        assert!(rows(&from) == rows(&to), "{name}");
    }
    to.integrity_check().unwrap();
}

#[test]
fn copy_keeps_rows_times_and_settings() {
    for (at, from_config) in configs().into_iter().enumerate() {
        for to_config in configs().into_iter().skip(at).take(if at == 0 { 4 } else { 1 }) {
            let (here, there) = (Scratch::new(), Scratch::new());
            let clock = TestClock::at(1_000_000);
            let (from, to) = (here.open_with(&from_config), there.open_with(&to_config));
            clock.drive(&from);
            clock.drive(&to);
            fill(&from, &clock);
            let mut calls = Vec::new();
            let done = from.copy_to(&to, |done, total| {
                calls.push((done, total));
                true
            });
            let live = from.count_live().unwrap() + from.family("aged").unwrap().count_live().unwrap() + 1;
            assert_eq!(done.unwrap(), live);
            assert_eq!((calls[0], *calls.last().unwrap()), ((0, live), (live, live)));
            assert!(calls.is_sorted() && calls.len() > 3);
            same(&from, &to);
            assert_eq!(to.count().unwrap(), to.count_live().unwrap(), "expired rows are not copied");
        }
    }
}

#[test]
fn memory_stores_are_copied() {
    let ((from, clock), (to, _)) = (memory_at(1_000_000), memory_at(1_000_000));
    fill(&from, &clock);
    clock.drive(&to);
    from.copy_to(&to, |_, _| true).unwrap();
    same(&from, &to);
    from.put("k", "1").unwrap(); // no transaction is left
    to.put("k", "1").unwrap();
}

#[test]
fn copy_sets_size_limit_only_in_new_store() {
    if common::is_of_a_file("a store on a server has no limit") {
        return;
    }
    let limit = SizeLimit::new(10_000_000, Eviction::Soonest);
    let (from, clock) = memory_at(1_000);
    fill(&from, &clock);
    from.set_size_limit(Some(limit)).unwrap();
    let (new, _) = memory_at(1_000);
    from.copy_to(&new, |_, _| true).unwrap();
    assert_eq!(new.size_limit().unwrap(), Some(limit));
    let (used, _) = memory_at(1_000);
    used.create_family("own").unwrap().put("k", "1").unwrap();
    from.copy_to(&used, |_, _| true).unwrap();
    assert_eq!(used.size_limit().unwrap(), None);
    let (bounded, _) = memory_at(1_000);
    let own = SizeLimit::new(20_000_000, Eviction::None);
    bounded.set_size_limit(Some(own)).unwrap();
    from.copy_to(&bounded, |_, _| true).unwrap();
    assert_eq!(bounded.size_limit().unwrap(), Some(own));
}

/// The copy may need more space than the source: other page sizes, or rows inserted in another
/// order.
#[test]
fn copy_refuses_limit_that_would_evict_copied_rows() {
    if common::is_of_a_file("a store on a server has no limit") {
        return;
    }
    let (mut copied, mut refused) = (0, 0);
    for eviction in [Eviction::Soonest, Eviction::Oldest] {
        let (scratch, clock) = (Scratch::new(), TestClock::at(1_000));
        let from = scratch.open_at(&clock);
        let limit = SizeLimit::new(1 << 20, eviction);
        from.set_size_limit(Some(limit)).unwrap();
        for n in 0..6_000 {
            from.put_with_expiry(numbered(n * 7_919 % 6_000), [7; 300], Expiry::At(5_000 + n as i64))
                .unwrap();
        }
        assert!(from.stats().unwrap().evicted > 0);
        for page_size in [512, 1_024, 4_096, 16_384, 65_536] {
            for resumable in [false, true] {
                let there = Scratch::new();
                let to = there.open_with(&Config::new().page_size(page_size));
                clock.drive(&to);
                let done = match resumable {
                    false => from.copy_to(&to, |_, _| true).map(drop),
                    true => from.copy_resumable(&to, |_, _| true).map(drop),
                };
                match done {
                    Ok(()) => {
                        copied += 1;
                        same(&from, &to);
                    }
                    Err(e) => {
                        refused += 1;
                        let is_too_small = e.to_string().contains("is out of bounds");
                        assert_eq!(e.kind() == ErrorKind::Error, is_too_small, "{e}");
                        assert!(is_too_small || e.kind() == ErrorKind::Full, "{e}");
                        assert!(e.to_string().contains("cannot be copied to the new store"), "{e}");
                        assert_eq!(to.size_limit().unwrap(), None);
                        // As the text says.
                        to.set_size_limit(Some(SizeLimit::new(4 << 20, Eviction::None))).unwrap();
                        match resumable {
                            false => from.copy_to(&to, |_, _| true).map(drop).unwrap(),
                            true => drop(from.copy_resumable(&to, |_, _| true).unwrap()),
                        }
                        assert_eq!(to.count().unwrap(), from.count().unwrap());
                    }
                }
            }
        }
    }
    assert!(copied > 0 && refused > 0, "{copied}, {refused}");
}

#[test]
fn copy_beyond_target_limit_fails_without_partial_data() {
    if common::is_of_a_file("a store on a server has no limit") {
        return;
    }
    for eviction in [Eviction::None, Eviction::Soonest, Eviction::Oldest] {
        let (scratch, clock) = (Scratch::new(), TestClock::at(1_000));
        let (to, (from, _)) = (scratch.open_at(&clock), memory_at(1_000));
        fill(&from, &clock);
        to.set_size_limit(Some(SizeLimit::new(500_000, eviction))).unwrap();
        assert_eq!(kind(from.copy_to(&to, |_, _| true)), ErrorKind::Full);
        assert_eq!((to.count().unwrap(), to.family_names().unwrap()), (0, vec![]));
        to.integrity_check().unwrap();
    }
}

#[test]
fn non_empty_target_family_is_refused_before_writing() {
    let (scratch, clock) = (Scratch::new(), TestClock::at(1_000_000));
    let (from, _) = memory_at(1_000_000);
    clock.drive(&from);
    fill(&from, &clock);
    let to = scratch.open_at(&clock);
    to.create_family("aged").unwrap().put("k", "mine").unwrap();
    let before = scratch.bytes(); // on a server it has none
    let refused = from.copy_to(&to, |_, _| panic!("nothing is to be copied")).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Error);
    assert!(refused.to_string().contains("family \"aged\" of the target store has keys"), "{refused}");
    let after = scratch.bytes();
    assert!(["store.db", "store.db-wal"].iter().all(|file| before.get(*file) == after.get(*file)));
    assert_eq!(before.is_empty(), common::are_on_a_server());
    assert_eq!(to.family_names().unwrap(), ["aged"]);
    // An expired key in the target does not count.
    to.family("aged").unwrap().put_with_expiry("k", "mine", Expiry::At(5)).unwrap();
    from.copy_to(&to, |_, _| true).unwrap();
    assert_eq!(
        to.family("aged").unwrap().count_live().unwrap(),
        from.family("aged").unwrap().count_live().unwrap()
    );
}

#[test]
fn cancelled_copy_writes_nothing_and_can_be_rerun() {
    let (scratch, clock) = (Scratch::new(), TestClock::at(1_000_000));
    let (from, _) = memory_at(1_000_000);
    clock.drive(&from);
    fill(&from, &clock);
    let to = scratch.open_at(&clock);
    for stop_at in [0, 600, 2000] {
        assert_eq!(kind(from.copy_to(&to, |done, _| done < stop_at)), ErrorKind::Error);
        assert_eq!((to.count().unwrap(), to.family_names().unwrap()), (0, vec![]));
    }
    from.copy_to(&to, |_, _| true).unwrap();
    same(&from, &to);
}

#[test]
fn copy_into_itself_is_refused_under_any_name() {
    let scratch = Scratch::new();
    let (one, other) = (scratch.open(), scratch.open());
    if common::are_on_a_server() {
        // The refusal is not about keys of the target.
        for refused in [one.copy_to(&other, |_, _| true), one.copy_resumable(&other, |_, _| true).map(|_| 0)]
        {
            assert!(refused.unwrap_err().to_string().contains("into itself"));
        }
        return;
    }
    std::os::unix::fs::symlink(scratch.path(), scratch.file("link")).unwrap();
    let link = Store::open(scratch.file("link")).unwrap();
    let memory = Store::open_in_memory(&Config::new()).unwrap();
    for (from, to) in [(&one, &one), (&one, &other), (&one, &link), (&memory, &memory)] {
        for refused in [from.copy_to(to, |_, _| true), from.copy_resumable(to, |_, _| true).map(|_| 0)] {
            assert!(refused.unwrap_err().to_string().contains("into itself"));
        }
    }
}

#[test]
fn copy_excludes_writes_made_by_callback_to_source() {
    let (here, there) = (Scratch::new(), Scratch::new());
    let clock = TestClock::at(1_000_000);
    let (from, to) = (here.open_at(&clock), there.open_at(&clock));
    fill(&from, &clock);
    let expected = rows(&from);
    from.copy_to(&to, |done, _| {
        from.put(format!("later {done}"), "1").unwrap();
        assert_eq!(to.count().unwrap(), 0);
        if !common::are_on_a_server() {
            assert_eq!(kind(to.put("k", "1")), ErrorKind::Busy);
        }
        assert_eq!(kind(to.commit()), ErrorKind::Error);
        true
    })
    .unwrap();
    assert!(rows(&to) == expected);
    assert!(!keys(from.prefix("later")).is_empty());
}

#[test]
fn callback_ending_transaction_or_store_aborts_copy() {
    if common::is_of_a_file("only a store in memory is copied through its own handle") {
        return;
    }
    type Spoil = fn(&Store, &Store);
    let spoils: [Spoil; 4] = [
        |from, _| from.commit().unwrap(),
        |_, to| to.rollback().unwrap(),
        |from, _| from.close().unwrap(),
        |_, to| to.close().unwrap(),
    ];
    for spoil in spoils {
        let ((from, clock), (to, _)) = (memory_at(1_000), memory_at(1_000));
        fill(&from, &clock);
        let done = from.copy_to(&to, |done, _| {
            if done > 0 {
                spoil(&from, &to);
            }
            true
        });
        assert_eq!(kind(done), ErrorKind::Misuse);
        assert!(to.count().is_err() || to.count().unwrap() == 0);
    }
}

#[test]
fn copy_is_busy_with_target_transaction_or_other_writer() {
    let (here, there) = (Scratch::new(), Scratch::new());
    let (from, to, other) = (here.open(), there.open(), there.open());
    from.put("committed", "1").unwrap();
    from.begin_write().unwrap();
    from.put("open", "1").unwrap();
    to.begin_write().unwrap();
    assert_eq!(kind(from.copy_to(&to, |_, _| true)), ErrorKind::Busy);
    to.rollback().unwrap();
    if !common::are_on_a_server() {
        other.begin_write().unwrap();
        assert_eq!(kind(from.copy_to(&to, |_, _| true)), ErrorKind::Busy);
        other.rollback().unwrap();
    }
    assert_eq!(from.copy_to(&to, |_, _| true).unwrap(), 1); // what is committed
    assert_eq!(keys(to.iter()), [b"committed"]);
    let read_only = here.open_with(&Config::new().read_only(true));
    from.rollback().unwrap();
    assert_eq!(kind(to.copy_to(&read_only, |_, _| true)), ErrorKind::ReadOnly);
    let memory = Store::open_in_memory(&Config::new()).unwrap();
    assert_eq!(read_only.copy_to(&memory, |_, _| true).unwrap(), 1);
    memory.begin_read().unwrap();
    let empty = Store::open_in_memory(&Config::new()).unwrap();
    assert_eq!(kind(memory.copy_to(&empty, |_, _| true)), ErrorKind::Busy);
}

#[test]
fn value_over_target_limit_is_refused() {
    let (from, (to, _)) = (Store::open_in_memory(&Config::new()).unwrap(), memory_at(1));
    let small = Store::open_in_memory(&Config::new().max_value_size(100)).unwrap();
    from.put("a", "1").unwrap();
    from.put("k", [0; 101]).unwrap();
    let refused = from.copy_to(&small, |_, _| true).unwrap_err();
    assert!(refused.to_string().contains("the maximum of this store is 100"), "{refused}");
    assert_eq!(small.count().unwrap(), 0);
    from.copy_to(&to, |_, _| true).unwrap();
}

#[test]
fn panicking_callback_leaves_both_stores_unchanged() {
    for file in [false, true] {
        let (scratch, clock) = (Scratch::new(), TestClock::at(1_000));
        let (from, _) = memory_at(1_000);
        clock.drive(&from);
        fill(&from, &clock);
        let to = if file { scratch.open() } else { common::memory() };
        clock.drive(&to);
        let panicking = || from.copy_to(&to, |done, _| done < 600 || panic!("of the test"));
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(panicking)).unwrap_err();
        assert_eq!((to.count().unwrap(), to.family_names().unwrap()), (0, vec![]));
        from.put("k", "1").unwrap(); // no transaction is left
        to.put("k", "1").unwrap();
        to.delete("k").unwrap();
        from.copy_to(&to, |_, _| true).unwrap();
        same(&from, &to);
    }
}

// ---- resumable -----------------------------------------------------------------------------------

/// A store that is filled, and one to copy it to.
fn pair() -> ((Scratch, Store), (Scratch, Store), TestClock) {
    let (here, there, clock) = (Scratch::new(), Scratch::new(), TestClock::at(1_000_000));
    let (from, to) = (here.open_at(&clock), there.open_at(&clock));
    fill(&from, &clock);
    ((here, from), (there, to), clock)
}

#[test]
fn resumable_copy_keeps_rows_times_and_settings_only() {
    let ((_here, from), (_there, to), _) = pair();
    let own = to.create_family("own").unwrap();
    own.put("k", "1").unwrap();
    let done = from.copy_resumable(&to, |_, _| true).unwrap();
    let live = from.count_live().unwrap() + from.family("aged").unwrap().count_live().unwrap() + 1;
    assert_eq!((done.keys, done.families, done.written, done.removed), (live, 3, live, 0));
    assert_eq!(own.get("k").unwrap(), Some(b"1".to_vec()));
    drop(own);
    to.drop_family("own").unwrap();
    same(&from, &to);
}

#[test]
fn resumable_copy_cancelled_at_every_step_completes() {
    let ((_here, from), (_there, to), _) = pair();
    let (mut stops, mut written) = (0, 0);
    let done = loop {
        let mut looked = 0;
        // Each run is cancelled a little later than the one before. The last one completes.
        let run = from.copy_resumable(&to, |_, _| {
            looked += 1;
            looked < 4 + stops
        });
        match run {
            Ok(done) => break done,
            Err(why) => {
                assert_eq!(why.kind(), ErrorKind::Error);
                assert!(why.to_string().contains("stopped"), "{why}");
            }
        }
        stops += 1;
        assert!(stops < 500, "it does not get on");
        let now = to.count().unwrap();
        assert!(now >= written || stops > 10, "what was copied stays");
        written = now;
        if stops % 10 == 0 {
            // The copy has the final state of a key, wherever the copy was when it changed.
            from.put(format!("key {stops}"), "new").unwrap();
            from.put(numbered(stops), "changed").unwrap();
            from.delete(numbered(stops + 1)).unwrap();
            from.delete(numbered(1400 - stops)).unwrap();
        }
    };
    assert!(stops > 10, "{stops}");
    assert!(done.written < done.keys, "what was there is not written again");
    same(&from, &to);
}

#[test]
fn resumed_copy_includes_source_changes_since_interruption() {
    let ((_here, from), (_there, to), clock) = pair();
    let aged = from.family("aged").unwrap();
    // Stops near the end, and then makes changes of every kind before the position of the copy.
    let all = from.count_live().unwrap() + aged.count_live().unwrap();
    from.copy_resumable(&to, |done, _| done < all).unwrap_err();
    assert!(to.family_names().unwrap().contains(&"copy in progress".to_owned()));
    clock.set(clock.now() + 20);
    aged.put_with_options(numbered(3), "other", &PutOptions::new().written_at(77)).unwrap(); // another value
    let value = aged.get(numbered(5)).unwrap().unwrap();
    aged.put_with_options(numbered(5), value, &PutOptions::new().written_at(78)).unwrap(); // only its times
    from.set_expiry(numbered(4), Expiry::At(clock.now() + 9_000), kvstore::ExpiryCondition::Always).unwrap();
    from.delete(numbered(8)).unwrap();
    aged.delete(numbered(1499)).unwrap(); // the last one
    from.put("a", "before all").unwrap();
    from.create_family("Another").unwrap().put("k", "1").unwrap();
    from.family("O'dd \"näme\"\n").unwrap().set_default_ttl(None).unwrap();
    let done = from.copy_resumable(&to, |_, _| true).unwrap();
    assert_eq!((done.written, done.removed), (5, 2));
    same(&from, &to);
}

#[test]
fn resumed_copy_follows_family_drop_and_tracking_change() {
    let ((_here, from), (_there, to), _) = pair();
    from.copy_resumable(&to, |done, total| done < total).unwrap_err();
    from.drop_family("O'dd \"näme\"\n").unwrap();
    from.family("aged").unwrap().set_write_tracking(false).unwrap();
    from.copy_resumable(&to, |_, _| true).unwrap();
    same(&from, &to);
}

#[test]
fn target_accepts_only_its_unfinished_copy() {
    let ((_here, from), (_there, to), _) = pair();
    from.copy_resumable(&to, |done, _| done < 600).unwrap_err();
    let before = rows(&to);
    let (elsewhere, third) = (Scratch::new(), Scratch::new());
    let (other, third) = (elsewhere.open(), third.open());
    other.put("k", "1").unwrap();
    let created_ms = |store: &Store| store.family("default").unwrap().created_ms().unwrap();
    assert_ne!(created_ms(&other), created_ms(&from));
    let text = |refused: kvstore::Result<_>| refused.unwrap_err().to_string();
    assert!(
        text(other.copy_resumable(&to, |_, _| true).map(drop))
            .contains("the unfinished copy of another store")
    );
    for store in [&other, &from] {
        assert!(text(store.copy_to(&to, |_, _| true).map(drop)).contains("an unfinished copy"));
    }
    assert!(
        text(to.copy_resumable(&third, |_, _| true).map(drop))
            .contains("source store itself holds an unfinished copy")
    );
    assert!(rows(&to) == before);
    assert_eq!((third.count().unwrap(), third.family_names().unwrap()), (0, vec![]));
    from.copy_resumable(&to, |_, _| true).unwrap();
    same(&from, &to);
}

#[test]
fn family_with_keys_is_refused_before_a_resumable_copy_begins() {
    let ((_here, from), (_there, to), _) = pair();
    to.create_family("aged").unwrap().put("k", "1").unwrap();
    let refused = from.copy_resumable(&to, |_, _| true).unwrap_err();
    assert!(refused.to_string().starts_with("family \"aged\" of the target store has keys"), "{refused}");
    assert!(!refused.to_string().contains("the next run continues"), "{refused}");
    assert_eq!((to.count().unwrap(), to.family_names().unwrap()), (0, vec!["aged".to_owned()]));
}

#[test]
fn repeated_resumable_copy_rewrites_nothing() {
    let ((_here, from), (_there, to), clock) = pair();
    let first = from.copy_resumable(&to, |_, _| true).unwrap();
    let before = to.commit_counter().unwrap();
    // As after a kill between the last transaction and the end of the process.
    let again = from.copy_resumable(&to, |_, _| true).unwrap();
    assert_eq!((again.keys, again.written, again.removed), (first.keys, 0, 0));
    assert_eq!(to.commit_counter().unwrap(), before);
    // A key that expires meanwhile may be in one of the two stores only.
    let soon = from.now_ms() + 40;
    from.put_with_expiry("a", "dies", Expiry::At(soon)).unwrap();
    to.put_with_expiry("z", "dies", Expiry::At(soon)).unwrap();
    clock.set(soon);
    assert_eq!(from.copy_resumable(&to, |_, _| true).unwrap().written, 0);
    // A single different row, setting or family means that the target is not this copy.
    let refused = || {
        let refused = from.copy_resumable(&to, |_, _| true).unwrap_err().to_string();
        assert!(refused.contains("its content differs from the source"), "{refused}");
    };
    let rows_before = rows(&to);
    to.put("another", "1").unwrap();
    refused();
    to.delete("another").unwrap();
    from.put("new", "1").unwrap();
    refused();
    from.delete("new").unwrap();
    to.family("aged").unwrap().set_default_ttl(Some(Duration::from_secs(7))).unwrap();
    refused();
    assert!(rows(&to) == rows_before);
}

#[test]
fn concurrent_runs_of_copy_leave_one_running() {
    let ((_here, from), (_there, to), _) = pair();
    let mut is_second = false;
    let first = from.copy_resumable(&to, |done, _| {
        if done > 0 && !is_second {
            is_second = true;
            from.copy_resumable(&to, |_, _| true).unwrap();
        }
        true
    });
    assert!(first.unwrap_err().to_string().contains("another run has continued or finished this copy"));
    same(&from, &to);
}

/// The last transaction of the first run fails. Before it is retried, another run continues the
/// copy.
#[test]
fn copy_taken_over_by_other_run_is_not_reported_finished() {
    let ((_here, from), (there, to), _) = pair();
    let other = there.open();
    let is_at_end =
        || to.family("copy in progress").is_ok_and(|record| !record.exists("first round").unwrap());
    let mut stage = 0;
    let first = from.copy_resumable(&to, |_, _| {
        if stage == 0 && is_at_end() {
            stage = 1;
            other.begin_write().unwrap();
            other.put("k", "").unwrap();
        } else if stage == 1 {
            stage = 2; // the pause after the failure
            other.rollback().unwrap();
            let mut looked = 0;
            let second = from.copy_resumable(&to, |_, _| {
                looked += 1;
                looked < 3
            });
            assert!(second.unwrap_err().to_string().contains("stopped"));
        }
        true
    });
    assert!(
        stage == 2
            && first.unwrap_err().to_string().contains("another run has continued or finished this copy")
    );
    from.copy_resumable(&to, |_, _| true).unwrap();
    same(&from, &to);
}

#[test]
fn resumable_copy_sets_size_limit_at_end() {
    if common::is_of_a_file("a store on a server has no limit") {
        return;
    }
    let ((_here, from), (_there, to), _) = pair();
    let limit = SizeLimit::new(50_000_000, Eviction::Soonest);
    from.set_size_limit(Some(limit)).unwrap();
    from.copy_resumable(&to, |done, _| done < 600).unwrap_err();
    assert_eq!(to.size_limit().unwrap(), None);
    from.copy_resumable(&to, |_, _| true).unwrap();
    assert_eq!(to.size_limit().unwrap(), Some(limit));
    let there = Scratch::new();
    let to = there.open();
    to.set_size_limit(Some(SizeLimit::new(500_000, Eviction::Oldest))).unwrap();
    let refused = from.copy_resumable(&to, |_, _| true).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Full, "{refused}");
}

#[test]
fn memory_stores_can_be_copied_resumably() {
    let ((from, clock), (to, _)) = (memory_at(1_000_000), memory_at(1_000_000));
    fill(&from, &clock);
    clock.drive(&to);
    from.copy_resumable(&to, |done, _| done < 600).unwrap_err();
    from.put(numbered(1), "changed").unwrap(); // no transaction is left
    from.copy_resumable(&to, |_, _| true).unwrap();
    same(&from, &to);
}
