//! A copy from store to store: everything is there, or nothing is.

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use common::{Scratch, TestClock, keys, kind, memory_at, numbered};
use kvstore::{Config, ErrorKind, Eviction, Expiry, Family, JournalMode, Limit, PutOptions, Store};

/// Value, end of life, write time (-1: not tracked).
type Row = (Vec<u8>, Option<i64>, i64);

fn rows(family: &Family) -> BTreeMap<Vec<u8>, Row> {
    let row = |key: &[u8], value| {
        let expire_ms = family.expire_time(key).unwrap().unwrap().millis();
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
                tx.put_until(numbered(n), vec![n as u8; size], end)?;
                let options = PutOptions::new().written_at(n as i64).expiry(end);
                aged.put_with(numbered(n), b"\xff\0".repeat(n % 9), &options)?;
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
    assert_eq!(from.families().unwrap(), to.families().unwrap());
    for name in from.families().unwrap().iter().map(String::as_str).chain(["default"]) {
        let (from, to) = (from.family(name).unwrap(), to.family(name).unwrap());
        assert_eq!(from.default_ttl().unwrap(), to.default_ttl().unwrap());
        assert_eq!(from.tracks_writes().unwrap(), to.tracks_writes().unwrap());
        assert!(rows(&from) == rows(&to), "{name}");
    }
    to.integrity_check().unwrap();
}

#[test]
fn a_copy_has_every_row_with_its_times_and_every_setting() {
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
            assert_eq!(to.count().unwrap(), to.count_live().unwrap(), "dead rows stay behind");
        }
    }
}

#[test]
fn stores_in_memory_are_copied_too() {
    let ((from, clock), (to, _)) = (memory_at(1_000_000), memory_at(1_000_000));
    fill(&from, &clock);
    clock.drive(&to);
    from.copy_to(&to, |_, _| true).unwrap();
    same(&from, &to);
    from.put("k", "1").unwrap(); // no transaction is left
    to.put("k", "1").unwrap();
}

#[test]
fn the_limit_goes_into_a_store_that_is_new_and_into_no_other() {
    if common::is_of_a_file("a store on a server has no limit") {
        return;
    }
    let limit = Limit::new(10_000_000, Eviction::Soonest);
    let (from, clock) = memory_at(1_000);
    fill(&from, &clock);
    from.set_limit(Some(limit)).unwrap();
    let (new, _) = memory_at(1_000);
    from.copy_to(&new, |_, _| true).unwrap();
    assert_eq!(new.limit().unwrap(), Some(limit));
    let (used, _) = memory_at(1_000);
    used.create_family("own").unwrap().put("k", "1").unwrap();
    from.copy_to(&used, |_, _| true).unwrap();
    assert_eq!(used.limit().unwrap(), None);
    let (bounded, _) = memory_at(1_000);
    let own = Limit::new(20_000_000, Eviction::None);
    bounded.set_limit(Some(own)).unwrap();
    from.copy_to(&bounded, |_, _| true).unwrap();
    assert_eq!(bounded.limit().unwrap(), Some(own));
}

#[test]
fn what_does_not_fit_into_the_limit_of_the_target_is_not_copied_in_part() {
    if common::is_of_a_file("a store on a server has no limit") {
        return;
    }
    for eviction in [Eviction::None, Eviction::Soonest, Eviction::Oldest] {
        let (scratch, clock) = (Scratch::new(), TestClock::at(1_000));
        let (to, (from, _)) = (scratch.open_at(&clock), memory_at(1_000));
        fill(&from, &clock);
        to.set_limit(Some(Limit::new(500_000, eviction))).unwrap();
        assert_eq!(kind(from.copy_to(&to, |_, _| true)), ErrorKind::Full);
        assert_eq!((to.count().unwrap(), to.families().unwrap()), (0, vec![]));
        to.integrity_check().unwrap();
    }
}

#[test]
fn a_family_with_keys_is_refused_before_anything_is_written() {
    let (scratch, clock) = (Scratch::new(), TestClock::at(1_000_000));
    let (from, _) = memory_at(1_000_000);
    clock.drive(&from);
    fill(&from, &clock);
    let to = scratch.open_at(&clock);
    to.create_family("aged").unwrap().put("k", "mine").unwrap();
    let before = scratch.bytes(); // on a server it has none
    let refused = from.copy_to(&to, |_, _| panic!("nothing is to be copied")).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Error);
    assert!(refused.to_string().contains("family \"aged\" of the store to copy to has keys"), "{refused}");
    let after = scratch.bytes();
    assert!(["store.db", "store.db-wal"].iter().all(|file| before.get(*file) == after.get(*file)));
    assert_eq!(before.is_empty(), common::are_on_a_server());
    assert_eq!(to.families().unwrap(), ["aged"]);
    // Dead keys are none.
    to.family("aged").unwrap().put_until("k", "mine", Expiry::At(5)).unwrap();
    from.copy_to(&to, |_, _| true).unwrap();
    assert_eq!(
        to.family("aged").unwrap().count_live().unwrap(),
        from.family("aged").unwrap().count_live().unwrap()
    );
}

#[test]
fn a_copy_that_is_stopped_has_copied_nothing_and_may_be_run_again() {
    let (scratch, clock) = (Scratch::new(), TestClock::at(1_000_000));
    let (from, _) = memory_at(1_000_000);
    clock.drive(&from);
    fill(&from, &clock);
    let to = scratch.open_at(&clock);
    for stop_at in [0, 600, 2000] {
        assert_eq!(kind(from.copy_to(&to, |done, _| done < stop_at)), ErrorKind::Error);
        assert_eq!((to.count().unwrap(), to.families().unwrap()), (0, vec![]));
    }
    from.copy_to(&to, |_, _| true).unwrap();
    same(&from, &to);
}

#[test]
fn a_store_is_not_copied_into_itself_under_any_name() {
    let scratch = Scratch::new();
    let (one, other) = (scratch.open(), scratch.open());
    if common::are_on_a_server() {
        // A server is not asked whether it is the same by two names: there its own keys are in the way.
        one.put("k", "1").unwrap();
        assert_eq!(kind(one.copy_to(&other, |_, _| true)), ErrorKind::Error);
        return;
    }
    std::os::unix::fs::symlink(scratch.path(), scratch.file("link")).unwrap();
    let link = Store::open(scratch.file("link")).unwrap();
    let memory = Store::open_in_memory(&Config::new()).unwrap();
    for (from, to) in [(&one, &one), (&one, &other), (&one, &link), (&memory, &memory)] {
        let refused = from.copy_to(to, |_, _| true).unwrap_err();
        assert!(refused.to_string().contains("into itself"), "{refused}");
    }
}

#[test]
fn the_callback_may_use_both_files_and_what_it_writes_to_the_source_is_not_in_the_copy() {
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
fn a_callback_that_ends_the_transaction_or_closes_a_store_ends_the_copy() {
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
fn an_open_transaction_of_the_target_and_another_writer_are_in_the_way() {
    let (here, there) = (Scratch::new(), Scratch::new());
    let (from, to, other) = (here.open(), there.open(), there.open());
    from.put("committed", "1").unwrap();
    from.begin(true).unwrap();
    from.put("open", "1").unwrap();
    to.begin(true).unwrap();
    assert_eq!(kind(from.copy_to(&to, |_, _| true)), ErrorKind::Busy);
    to.rollback().unwrap();
    if !common::are_on_a_server() {
        other.begin(true).unwrap();
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
    memory.begin(false).unwrap();
    let empty = Store::open_in_memory(&Config::new()).unwrap();
    assert_eq!(kind(memory.copy_to(&empty, |_, _| true)), ErrorKind::Busy);
}

#[test]
fn a_value_that_the_target_does_not_take_is_refused() {
    let (from, (to, _)) = (Store::open_in_memory(&Config::new()).unwrap(), memory_at(1));
    let small = Store::open_in_memory(&Config::new().max_value_size(100)).unwrap();
    from.put("a", "1").unwrap();
    from.put("k", [0; 101]).unwrap();
    let refused = from.copy_to(&small, |_, _| true).unwrap_err();
    assert!(refused.to_string().contains("this store takes up to 100"), "{refused}");
    assert_eq!(small.count().unwrap(), 0);
    from.copy_to(&to, |_, _| true).unwrap();
}

#[test]
fn a_callback_that_panics_leaves_both_stores_as_they_were() {
    for file in [false, true] {
        let (scratch, clock) = (Scratch::new(), TestClock::at(1_000));
        let (from, _) = memory_at(1_000);
        clock.drive(&from);
        fill(&from, &clock);
        let to = if file { scratch.open() } else { common::memory() };
        clock.drive(&to);
        let panicking = || from.copy_to(&to, |done, _| done < 600 || panic!("of the test"));
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(panicking)).unwrap_err();
        assert_eq!((to.count().unwrap(), to.families().unwrap()), (0, vec![]));
        from.put("k", "1").unwrap(); // no transaction is left
        to.put("k", "1").unwrap();
        to.delete("k").unwrap();
        from.copy_to(&to, |_, _| true).unwrap();
        same(&from, &to);
    }
}
