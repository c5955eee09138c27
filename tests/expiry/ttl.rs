//! TTLs without values: expire and its conditions, persist, sliding expiry, default TTLs, the next
//! expiry, the number of live keys, iteration in expiry order.

use std::time::Duration;

use crate::common::cases::{each_case, values};
use crate::common::{self, Scratch, TestClock, keys, kind, memory, memory_at, numbered, python, scan};
use kvstore::{
    Cursor, Direction, Error, ErrorKind, Expiry, ExpiryCondition, KeyRange, MAX_KEY_SIZE, PutOptions,
};

const MS: Duration = Duration::from_millis(1);

const CONDITIONS: [ExpiryCondition; 5] = [
    ExpiryCondition::Always,
    ExpiryCondition::NoTtl,
    ExpiryCondition::HasTtl,
    ExpiryCondition::Later,
    ExpiryCondition::Earlier,
];

/// Keys and expiry times of the entries of a cursor.
fn scan_with_expiry(cursor: &mut Cursor) -> Vec<(Vec<u8>, Expiry)> {
    let mut met = Vec::new();
    let mut at_entry = cursor.first().unwrap();
    while at_entry {
        met.push((cursor.key().unwrap().to_vec(), cursor.expiry().unwrap()));
        at_entry = cursor.next().unwrap();
    }
    met
}

// ---- expire, persist -----------------------------------------------------------------------------

#[test]
fn set_expiry_follows_condition_and_never_counts_as_latest() {
    use ExpiryCondition::{Always, Earlier, HasTtl, Later, NoTtl};
    const NEVER: Expiry = Expiry::Never;
    let at = Expiry::At;
    // Old and new expiry, and the conditions that hold.
    let table = [
        ("never to 5 s", (NEVER, at(5_000), vec![Always, NoTtl, Earlier])),
        ("never to never", (NEVER, NEVER, vec![Always, NoTtl])),
        ("5 s to 6 s", (at(5_000), at(6_000), vec![Always, HasTtl, Later])),
        ("5 s to 4 s", (at(5_000), at(4_000), vec![Always, HasTtl, Earlier])),
        ("5 s to 5 s", (at(5_000), at(5_000), vec![Always, HasTtl])),
        ("5 s to never", (at(5_000), NEVER, vec![Always, HasTtl, Later])),
        ("5 s to the last moment", (at(5_000), at(i64::MAX), vec![Always, HasTtl, Later])),
        ("the last moment to never", (at(i64::MAX), NEVER, vec![Always, HasTtl, Later])),
    ];
    each_case(table, |(old, new, holding)| {
        each_case(values(), |value| {
            for condition in CONDITIONS {
                let (store, _clock) = memory_at(1_000);
                store.put_with_expiry("k", &value, old).unwrap();
                let holds = holding.contains(&condition);
                assert_eq!(store.set_expiry("k", new, condition).unwrap(), Some(holds), "{condition:?}");
                let end = if holds { new } else { old };
                assert_eq!(store.expiry("k").unwrap(), Some(end), "{condition:?}");
                assert_eq!(store.get("k").unwrap().as_ref(), Some(&value));
                store.integrity_check().unwrap();
            }
        });
    });
}

#[test]
fn set_expiry_of_missing_or_expired_key_returns_none() {
    each_case(CONDITIONS.map(|condition| (format!("{condition:?}"), condition)), |condition| {
        let (store, clock) = memory_at(1_000);
        assert_eq!(store.set_expiry("k", Expiry::At(5_000), condition).unwrap(), None);
        assert_eq!(store.persist("k").unwrap(), None);
        assert_eq!(store.count().unwrap(), 0);
        store.put_with_expiry("k", "1", Expiry::At(2_000)).unwrap();
        clock.set(2_000);
        assert_eq!(store.set_expiry("k", Expiry::At(5_000), condition).unwrap(), None);
        assert_eq!(store.persist("k").unwrap(), None);
        assert_eq!(store.get("k").unwrap(), None);
        store.integrity_check().unwrap();
    });
}

#[test]
fn past_expiry_removes_key_and_its_entries_at_once() {
    each_case(values(), |value| {
        for past in [1, 999, 1_000] {
            for old in [Expiry::Never, Expiry::At(5_000)] {
                let what = format!("from {old:?} to {past}");
                let (store, _clock) = memory_at(1_000);
                store.put_with_expiry("k", &value, old).unwrap();
                let set = store.set_expiry("k", Expiry::At(past), ExpiryCondition::Earlier);
                assert_eq!(set.unwrap(), Some(true), "{what}");
                assert_eq!(store.count().unwrap(), 0, "{what}");
                assert_eq!(store.next_expiry().unwrap(), None, "{what}");
                store.put_with_expiry("k", &value, old).unwrap();
                let read = store.get_and_set_expiry("k", Expiry::At(past));
                assert_eq!(read.unwrap().as_ref(), Some(&value), "{what}");
                assert_eq!(store.count().unwrap(), 0, "{what}");
                store.integrity_check().unwrap();
            }
        }
    });
}

#[test]
fn persist_returns_whether_key_had_ttl() {
    let (store, clock) = memory_at(1_000);
    each_case(values(), |value| {
        store.put_with_expiry("k", &value, Expiry::At(clock.now() + 100)).unwrap();
        assert_eq!(store.persist("k").unwrap(), Some(true));
        assert_eq!(store.persist("k").unwrap(), Some(false));
        clock.set(clock.now() + 100);
        assert_eq!(store.purge_expired().unwrap(), 0);
        assert_eq!(store.get("k").unwrap(), Some(value));
    });
    store.integrity_check().unwrap();
}

#[test]
fn ttl_change_does_not_read_or_rewrite_value() {
    if common::are_closed_to_other_programs() {
        return;
    }
    let scratch = Scratch::new();
    let clock = TestClock::at(1_000);
    let store = scratch.open_at(&clock);
    store.put_with_expiry("k", vec![7; 5_000], Expiry::At(5_000)).unwrap();
    // Delete the value without the store: a call that reads it fails.
    python(&scratch.path(), "con.execute('CREATE TABLE kept AS SELECT * FROM \"blob:default\"')");
    python(&scratch.path(), "con.execute('DELETE FROM \"blob:default\"')");
    assert_eq!(kind(store.get("k")), ErrorKind::Corrupt);
    assert_eq!(store.set_expiry("k", Expiry::At(6_000), ExpiryCondition::Later).unwrap(), Some(true));
    assert_eq!(store.persist("k").unwrap(), Some(true));
    assert_eq!(store.set_expiry("k", Expiry::At(7_000), ExpiryCondition::NoTtl).unwrap(), Some(true));
    assert_eq!(store.expiry("k").unwrap(), Some(Expiry::At(7_000)));
    assert_eq!(kind(store.get_and_set_expiry("k", Expiry::At(8_000))), ErrorKind::Corrupt);
    assert_eq!(store.expiry("k").unwrap(), Some(Expiry::At(7_000)));
    python(&scratch.path(), "con.execute('INSERT INTO \"blob:default\" SELECT * FROM kept')");
    python(&scratch.path(), "con.execute('DROP TABLE kept')");
    assert_eq!(store.get("k").unwrap(), Some(vec![7; 5_000]));
    store.integrity_check().unwrap();
}

#[test]
fn expiry_returns_expiry_time_and_removes_expired_key() {
    let (store, clock) = memory_at(1_000);
    store.put("permanent", "1").unwrap();
    store.put_with_expiry("k", "1", Expiry::At(2_000)).unwrap();
    assert_eq!(store.expiry("missing").unwrap(), None);
    assert_eq!(store.expiry("permanent").unwrap(), Some(Expiry::Never));
    assert_eq!(store.expiry("k").unwrap(), Some(Expiry::At(2_000)));
    clock.set(1_999);
    assert_eq!(store.expiry("k").unwrap(), Some(Expiry::At(2_000)));
    clock.set(2_000);
    assert_eq!(store.expiry("k").unwrap(), None);
    assert_eq!(store.count().unwrap(), if common::are_on_a_server() { 2 } else { 1 }); // reads there remove nothing
}

// ---- sliding expiry ------------------------------------------------------------------------------

#[test]
fn get_and_set_expiry_extends_session_only_before_expiry() {
    each_case(values(), |value| {
        let (store, clock) = memory_at(0);
        store.put_with_ttl("session", &value, 100 * MS).unwrap();
        for now in [50, 149, 248, 300] {
            clock.set(now);
            assert_eq!(
                store.get_and_set_expiry("session", store.expiry_after(100 * MS)).unwrap().as_ref(),
                Some(&value)
            );
            assert_eq!(store.next_expiry().unwrap(), Some(now + 100));
        }
        clock.set(400);
        assert_eq!(store.get_and_set_expiry("session", store.expiry_after(100 * MS)).unwrap(), None);
        assert_eq!(store.get_and_set_expiry("missing", Expiry::Never).unwrap(), None);
        store.integrity_check().unwrap();
    });
}

#[test]
fn failing_visitor_keeps_expiry_unchanged() {
    let (store, _clock) = memory_at(1_000);
    each_case(values(), |value| {
        store.put_with_expiry("k", &value, Expiry::At(2_000)).unwrap();
        let refused = store.get_and_set_expiry_with("k", Expiry::At(5_000), |shown| {
            assert_eq!(shown, value);
            Err::<(), _>(Error::new(ErrorKind::Error, "refused"))
        });
        assert_eq!(refused, Err(Error::new(ErrorKind::Error, "refused")));
        assert_eq!(store.expiry("k").unwrap(), Some(Expiry::At(2_000)));
        let length = store.get_and_set_expiry_with("k", Expiry::Never, |shown| Ok(shown.len())).unwrap();
        assert_eq!(length, Some(value.len()));
        assert_eq!(store.expiry("k").unwrap(), Some(Expiry::Never));
    });
}

#[test]
fn rollback_undoes_expiry_changes() {
    each_case(values(), |value| {
        let (store, _clock) = memory_at(1_000);
        for key in ["later", "sooner", "gone", "read", "for ever"] {
            store.put_with_expiry(key, &value, Expiry::At(5_000)).unwrap();
        }
        store.put("permanent", &value).unwrap();
        store.begin_write().unwrap();
        for (key, end) in [("later", 9_000), ("sooner", 2_000), ("gone", 1), ("permanent", 2_000)] {
            let set = store.set_expiry(key, Expiry::At(end), ExpiryCondition::Always);
            assert_eq!(set.unwrap(), Some(true), "{key}");
        }
        assert_eq!(store.get_and_set_expiry("read", Expiry::Never).unwrap().as_ref(), Some(&value));
        assert_eq!(store.persist("for ever").unwrap(), Some(true));
        assert_eq!(store.get("gone").unwrap(), None);
        assert_eq!(store.next_expiry().unwrap(), Some(2_000));
        store.rollback().unwrap();
        for key in ["later", "sooner", "gone", "read", "for ever"] {
            assert_eq!(store.get(key).unwrap().as_ref(), Some(&value));
            assert_eq!(store.expiry(key).unwrap(), Some(Expiry::At(5_000)));
        }
        assert_eq!(store.expiry("permanent").unwrap(), Some(Expiry::Never));
        assert_eq!(store.next_expiry().unwrap(), Some(5_000));
        store.integrity_check().unwrap();
    });
}

#[test]
fn invalid_keys_and_times_are_refused_without_effect() {
    let (store, _clock) = memory_at(1_000);
    store.put_with_expiry("k", "1", Expiry::At(5_000)).unwrap();
    for key in [vec![], vec![1; MAX_KEY_SIZE + 1]] {
        assert_eq!(kind(store.set_expiry(&key, Expiry::Never, ExpiryCondition::Always)), ErrorKind::Error);
        assert_eq!(kind(store.persist(&key)), ErrorKind::Error);
        assert_eq!(kind(store.expiry(&key)), ErrorKind::Error);
        assert_eq!(kind(store.get_and_set_expiry(&key, Expiry::Never)), ErrorKind::Error);
    }
    for bad in [Expiry::At(-1), Expiry::At(i64::MIN)] {
        assert_eq!(kind(store.set_expiry("k", bad, ExpiryCondition::Always)), ErrorKind::Error);
        assert_eq!(kind(store.get_and_set_expiry("k", bad)), ErrorKind::Error);
    }
    assert_eq!(store.expiry("k").unwrap(), Some(Expiry::At(5_000)));
}

#[test]
fn read_only_context_reads_but_does_not_change_expiry() {
    let scratch = Scratch::new();
    let clock = TestClock::at(1_000);
    let store = scratch.open_at(&clock);
    store.put_with_expiry("k", "1", Expiry::At(5_000)).unwrap();
    scratch.each_reader(&clock, |store| {
        assert_eq!(kind(store.set_expiry("k", Expiry::Never, ExpiryCondition::Always)), ErrorKind::ReadOnly);
        assert_eq!(kind(store.persist("k")), ErrorKind::ReadOnly);
        assert_eq!(kind(store.get_and_set_expiry("k", Expiry::Never)), ErrorKind::ReadOnly);
        assert_eq!(kind(store.set_default_ttl(Some(MS))), ErrorKind::ReadOnly);
        assert_eq!(store.expiry("k").unwrap(), Some(Expiry::At(5_000)));
        assert_eq!(store.next_expiry().unwrap(), Some(5_000));
        assert_eq!(store.count_live().unwrap(), 1);
        assert_eq!(store.default_ttl().unwrap(), None);
    });
}

// ---- the default TTL -----------------------------------------------------------------------------

#[test]
fn default_ttl_applies_only_to_later_puts() {
    let (store, clock) = memory_at(1_000);
    store.put("before", "1").unwrap();
    assert_eq!(store.default_ttl().unwrap(), None);
    store.set_default_ttl(Some(500 * MS)).unwrap();
    assert_eq!(store.default_ttl().unwrap(), Some(500 * MS));
    store.put("with", "1").unwrap();
    store.put("large", vec![7; 5_000]).unwrap();
    store.set_default_ttl(None).unwrap();
    assert_eq!(store.default_ttl().unwrap(), None);
    store.put("after", "1").unwrap();
    assert_eq!(store.expiry("before").unwrap(), Some(Expiry::Never));
    assert_eq!(store.expiry("with").unwrap(), Some(Expiry::At(1_500)));
    assert_eq!(store.expiry("large").unwrap(), Some(Expiry::At(1_500)));
    assert_eq!(store.expiry("after").unwrap(), Some(Expiry::Never));
    clock.set(1_500);
    assert_eq!(keys(store.iter()), [b"after".to_vec(), b"before".to_vec()]);
    store.integrity_check().unwrap();
}

#[test]
fn default_ttl_is_between_one_millisecond_and_twenty_years() {
    let store = memory();
    let longest = Duration::from_secs(630_720_000);
    store.set_default_ttl(Some(longest)).unwrap();
    assert_eq!(store.default_ttl().unwrap(), Some(longest));
    for too_long in [longest + MS, longest + Duration::from_nanos(1), Duration::MAX] {
        assert_eq!(kind(store.set_default_ttl(Some(too_long))), ErrorKind::Error);
        assert_eq!(store.default_ttl().unwrap(), Some(longest));
    }
    store.set_default_ttl(Some(Duration::from_nanos(1))).unwrap();
    assert_eq!(store.default_ttl().unwrap(), Some(MS));
    store.set_default_ttl(Some(Duration::ZERO)).unwrap();
    assert_eq!(store.default_ttl().unwrap(), None);
}

#[test]
fn default_ttl_set_by_one_handle_applies_to_open_handles() {
    let scratch = Scratch::new();
    let clock = TestClock::at(1_000);
    let (a, b) = (scratch.open_at(&clock), scratch.open_at(&clock));
    let (of_a, of_b) = (a.create_family("f").unwrap(), b.family("f").unwrap());
    of_b.put("k", "1").unwrap(); // b has seen that there is none
    for ms in [500, 0, 700] {
        of_a.set_default_ttl(Some(Duration::from_millis(ms))).unwrap();
        each_case(values(), |value| {
            of_b.put("k", &value).unwrap();
            let end = if ms == 0 { Expiry::Never } else { Expiry::At(1_000 + ms as i64) };
            assert_eq!(of_b.expiry("k").unwrap(), Some(end));
            b.begin_write().unwrap();
            of_b.put("in a transaction", &value).unwrap();
            b.commit().unwrap();
            assert_eq!(of_a.expiry("in a transaction").unwrap(), Some(end));
        });
    }
    // It belongs to that family only.
    b.put("k", "1").unwrap();
    assert_eq!(b.expiry("k").unwrap(), Some(Expiry::Never));
    assert_eq!(b.default_ttl().unwrap(), None);
    b.integrity_check().unwrap();
}

#[test]
fn rolled_back_default_ttl_applies_to_no_handle() {
    let scratch = Scratch::new();
    let clock = TestClock::at(1_000);
    let (a, b) = (scratch.open_at(&clock), scratch.open_at(&clock));
    a.set_default_ttl(Some(300 * MS)).unwrap();
    b.put("k", "1").unwrap();
    assert_eq!(b.expiry("k").unwrap(), Some(Expiry::At(1_300)));
    a.begin_write().unwrap();
    a.set_default_ttl(Some(500 * MS)).unwrap();
    a.put("inside", "1").unwrap();
    assert_eq!(a.expiry("inside").unwrap(), Some(Expiry::At(1_500)));
    assert_eq!(b.default_ttl().unwrap(), Some(300 * MS));
    a.rollback().unwrap();
    for store in [&a, &b] {
        store.put("k", "2").unwrap();
        assert_eq!(store.expiry("k").unwrap(), Some(Expiry::At(1_300)));
        assert_eq!(store.default_ttl().unwrap(), Some(300 * MS));
    }
    let undone: Result<(), Error> = b.transaction(|tx| {
        tx.set_default_ttl(None)?;
        tx.put("k", "3")?;
        assert_eq!(tx.expiry("k")?, Some(Expiry::Never));
        Err(Error::new(ErrorKind::Error, "rolled back"))
    });
    assert!(undone.is_err());
    b.put("k", "4").unwrap();
    assert_eq!(b.expiry("k").unwrap(), Some(Expiry::At(1_300)));
    b.integrity_check().unwrap();
}

#[test]
fn default_ttl_is_stored_and_changeable_by_other_programs() {
    if common::are_closed_to_other_programs() {
        return;
    }
    let scratch = Scratch::new();
    let clock = TestClock::at(1_000);
    scratch.open().set_default_ttl(Some(500 * MS)).unwrap();
    let store = scratch.open_at(&clock);
    assert_eq!(store.default_ttl().unwrap(), Some(500 * MS));
    store.put("k", "1").unwrap();
    assert_eq!(store.expiry("k").unwrap(), Some(Expiry::At(1_500)));
    python(&scratch.path(), "con.execute('UPDATE kvstore_family SET default_ttl_ms = 900')");
    store.put("k", "2").unwrap();
    assert_eq!(store.expiry("k").unwrap(), Some(Expiry::At(1_900)));
}

#[test]
fn recreated_family_has_no_default_ttl() {
    let scratch = Scratch::new();
    let clock = TestClock::at(1_000);
    let (a, b) = (scratch.open_at(&clock), scratch.open_at(&clock));
    let of_a = a.create_family("f").unwrap();
    of_a.set_default_ttl(Some(500 * MS)).unwrap();
    let of_b = b.family("f").unwrap();
    of_b.put("k", "1").unwrap();
    of_a.put("k", "1").unwrap();
    drop(of_a);
    a.drop_family("f").unwrap();
    assert_eq!(kind(of_b.default_ttl()), ErrorKind::Error);
    assert_eq!(kind(of_b.set_default_ttl(None)), ErrorKind::Error);
    let of_a = a.create_family("f").unwrap();
    for family in [&of_a, &of_b] {
        assert_eq!(family.default_ttl().unwrap(), None);
        family.put("k", "2").unwrap();
        assert_eq!(family.expiry("k").unwrap(), Some(Expiry::Never));
    }
    b.integrity_check().unwrap();
}

#[test]
fn default_ttl_near_i64_max_does_not_overflow() {
    if common::is_of_a_file("no server knows a time so far in the future") {
        return;
    }
    let (store, _clock) = memory_at(i64::MAX - 5);
    store.set_default_ttl(Some(Duration::from_secs(630_720_000))).unwrap();
    store.put("k", "1").unwrap();
    assert_eq!(store.expiry("k").unwrap(), Some(Expiry::At(i64::MAX)));
    assert!(store.exists("k").unwrap());
}

// ---- next_expiry, count_live ---------------------------------------------------------------------

#[test]
fn next_expiry_is_earliest_including_expired_rows() {
    let (store, clock) = memory_at(1_000);
    assert_eq!(store.next_expiry().unwrap(), None);
    store.put("permanent", "1").unwrap();
    assert_eq!(store.next_expiry().unwrap(), None);
    for (key, end) in [("b", 3_000), ("a", 5_000), ("c", 2_000), ("d", 2_000)] {
        store.put_with_expiry(key, "1", Expiry::At(end)).unwrap();
    }
    assert_eq!(store.next_expiry().unwrap(), Some(2_000));
    clock.set(2_500);
    assert_eq!(store.next_expiry().unwrap(), Some(2_000));
    store.delete("c").unwrap();
    assert_eq!(store.next_expiry().unwrap(), Some(2_000));
    store.purge_expired().unwrap();
    assert_eq!(store.next_expiry().unwrap(), Some(3_000));
    store.persist("b").unwrap();
    assert_eq!(store.next_expiry().unwrap(), Some(5_000));
    store.put("a", "1").unwrap();
    assert_eq!(store.next_expiry().unwrap(), None);
}

#[test]
fn next_expiry_all_families_is_earliest_of_file() {
    let scratch = Scratch::new();
    let clock = TestClock::at(1_000);
    let (store, other) = (scratch.open_at(&clock), scratch.open_at(&clock));
    assert_eq!(store.next_expiry_all_families().unwrap(), None);
    let a = store.create_family("a").unwrap();
    let b = other.create_family("b").unwrap();
    assert_eq!(store.next_expiry_all_families().unwrap(), None);
    store.put_with_expiry("k", "1", Expiry::At(4_000)).unwrap();
    assert_eq!(store.next_expiry_all_families().unwrap(), Some(4_000));
    b.put_with_expiry("k", "1", Expiry::At(3_000)).unwrap(); // a family this handle has not opened
    assert_eq!(store.next_expiry_all_families().unwrap(), Some(3_000));
    a.put_with_expiry("k", "1", Expiry::At(2_000)).unwrap();
    assert_eq!(store.next_expiry_all_families().unwrap(), Some(2_000));
    assert_eq!(store.next_expiry().unwrap(), Some(4_000));
    assert_eq!(b.next_expiry().unwrap(), Some(3_000));
    drop(a);
    store.drop_family("a").unwrap();
    assert_eq!(store.next_expiry_all_families().unwrap(), Some(3_000));
    store.begin_write().unwrap();
    store.put_with_expiry("k", "1", Expiry::At(1_500)).unwrap();
    assert_eq!(store.next_expiry_all_families().unwrap(), Some(1_500));
    assert_eq!(other.next_expiry_all_families().unwrap(), Some(3_000));
    store.rollback().unwrap();
    assert_eq!(store.next_expiry_all_families().unwrap(), Some(3_000));
}

#[test]
fn count_live_counts_visible_keys() {
    let (store, clock) = memory_at(0);
    assert_eq!(store.count_live().unwrap(), 0);
    for n in 0..600 {
        let value = if n % 7 == 0 { vec![7; 1_000] } else { vec![1] };
        match n % 3 {
            0 => store.put(numbered(n), value).unwrap(),
            _ => store.put_with_expiry(numbered(n), value, Expiry::At(n as i64)).unwrap(),
        }
    }
    for now in [0, 1, 2, 3, 100, 599, 600] {
        clock.set(now);
        let shown = store.iter().count() as u64;
        assert_eq!(store.count_live().unwrap(), shown, "at {now}");
        assert_eq!(store.count().unwrap(), 600);
    }
    assert_eq!(store.count_live().unwrap(), 200);
    store.begin_write().unwrap();
    store.delete(numbered(0)).unwrap(); // live
    store.delete(numbered(1)).unwrap(); // expired
    assert_eq!(store.count_live().unwrap(), 199);
    store.rollback().unwrap();
    store.purge_expired().unwrap();
    assert_eq!((store.count().unwrap(), store.count_live().unwrap()), (200, 200));
}

// ---- the walk in the order of expiry -------------------------------------------------------------

#[test]
fn expiry_cursor_returns_keys_in_order_of_half_open_range() {
    let (store, clock) = memory_at(1_000);
    store.put("permanent", "1").unwrap();
    for (key, end) in [("d", 2_000), ("a", 3_000), ("c", 2_000), ("b", 4_000), ("e", 5_000)] {
        store.put_with_expiry(key, format!("value of {key}"), Expiry::At(end)).unwrap();
    }
    let met = |from, to| {
        let met = scan(&mut store.expiry_cursor(from, to));
        String::from_utf8(met.concat()).unwrap()
    };
    assert_eq!(met(i64::MIN, i64::MAX), "cdabe");
    assert_eq!(met(0, i64::MAX), "cdabe");
    assert_eq!(met(2_000, 5_000), "cdab");
    assert_eq!(met(2_001, 5_001), "abe");
    assert_eq!(met(3_000, 3_001), "a");
    assert_eq!(met(3_000, 3_000), "");
    assert_eq!(met(4_000, 2_000), "");
    assert_eq!(met(5_001, i64::MAX), "");
    clock.set(4_000); // expired rows are shown until they are removed
    assert_eq!(met(0, i64::MAX), "cdabe");
    store.purge_expired().unwrap();
    assert_eq!(met(0, i64::MAX), "e");
}

#[test]
fn expiry_cursor_lists_keys_expiring_at_i64_max() {
    let (store, _clock) = memory_at(1_000);
    store.put_with_ttl("longest", "1", Duration::MAX).unwrap();
    store.put_with_expiry("last", "2", Expiry::At(i64::MAX)).unwrap();
    store.put_with_expiry("before", "3", Expiry::At(i64::MAX - 1)).unwrap();
    store.put("permanent", "4").unwrap();
    let ends = |from, to| scan_with_expiry(&mut store.expiry_cursor(from, to));
    let all = [("before", i64::MAX - 1), ("last", i64::MAX), ("longest", i64::MAX)]
        .map(|(key, end)| (key.as_bytes().to_vec(), Expiry::At(end)));
    assert_eq!(ends(0, i64::MAX), all);
    assert_eq!(ends(i64::MAX, i64::MAX), all[1..]);
    assert_eq!(ends(0, i64::MAX - 1), []);
}

#[test]
fn expiry_cursor_returns_keys_values_and_expiry_times() {
    let (store, _clock) = memory_at(1_000);
    for (key, value, end) in [
        ("a", vec![], 4_000),
        ("b", vec![7; 5_000], 2_000),
        ("c", vec![1; 256], 3_000),
        ("d", vec![2], 2_000),
    ] {
        store.put_with_expiry(key, value, Expiry::At(end)).unwrap();
    }
    let mut cursor = store.expiry_cursor(0, i64::MAX);
    assert!(!cursor.is_valid());
    let mut met = Vec::new();
    let mut at_entry = cursor.first().unwrap();
    while at_entry {
        assert!(cursor.is_valid());
        met.push((cursor.key().unwrap().to_vec(), cursor.value().unwrap().len(), cursor.expiry().unwrap()));
        at_entry = cursor.next().unwrap();
    }
    let expected = [("b", 5_000, 2_000), ("d", 1, 2_000), ("c", 256, 3_000), ("a", 0, 4_000)];
    assert_eq!(met, expected.map(|(key, len, end)| (key.into(), len, Expiry::At(end))));
    assert!(!cursor.is_valid());
    assert!(!cursor.next().unwrap());
    assert_eq!((cursor.key(), cursor.value(), cursor.expiry()), (None, None, None));
    assert_eq!(kind(cursor.seek("a")), ErrorKind::Error);
    assert!(cursor.first().unwrap());
}

#[test]
fn expiry_cursor_skips_and_repeats_nothing_between_chunks() {
    // Many keys may have the same expiry time, so that a boundary can fall between them.
    for ends in [1, 3, 5_000] {
        for size in [1, 300] {
            let what = format!("{ends} expiry times, values of {size} bytes");
            let (store, _clock) = memory_at(0);
            store.begin_write().unwrap();
            let mut expected = Vec::new();
            for n in 0..2_500 {
                let (key, end) = (numbered(n), 10 + (n as i64 * 7_919) % ends);
                store.put_with_expiry(&key, vec![1; size], Expiry::At(end)).unwrap();
                expected.push((end, key));
            }
            store.commit().unwrap();
            expected.sort();
            let expected: Vec<_> = expected.into_iter().map(|(end, key)| (key, Expiry::At(end))).collect();
            let cursor = || store.expiry_cursor(0, i64::MAX);
            assert!(scan_with_expiry(&mut cursor()) == expected, "{what}");
            assert!(scan_with_expiry(&mut cursor().keys_only()) == expected, "{what}, keys only");
        }
    }
}

#[test]
fn expiry_cursor_continues_while_keys_are_removed_or_extended() {
    let (store, _clock) = memory_at(0);
    for n in 0..1_200 {
        store.put_with_expiry(numbered(n), "1", Expiry::At(1_000 + n as i64)).unwrap();
    }
    let mut cursor = store.expiry_cursor(0, 10_000);
    let mut met = 0;
    let mut at_entry = cursor.first().unwrap();
    while at_entry {
        let key = cursor.key().unwrap().to_vec();
        assert_eq!(key, numbered(met));
        match met % 3 {
            0 => assert!(store.delete(&key).unwrap()),
            1 => assert_eq!(
                store.set_expiry(&key, Expiry::At(20_000), ExpiryCondition::Later).unwrap(),
                Some(true)
            ),
            _ => assert_eq!(store.persist(&key).unwrap(), Some(true)),
        }
        met += 1;
        at_entry = cursor.next().unwrap();
    }
    assert_eq!(met, 1_200);
    assert_eq!(scan(&mut store.expiry_cursor(0, 10_000)).len(), 0);
    assert_eq!(scan(&mut store.expiry_cursor(0, 20_001)).len(), 400);
    store.integrity_check().unwrap();
}

#[test]
fn expiry_cursor_returns_key_again_if_moved_ahead() {
    let (store, _clock) = memory_at(0);
    for (key, end) in [("a", 10), ("b", 20), ("c", 30)] {
        store.put_with_expiry(key, "1", Expiry::At(end)).unwrap();
    }
    let mut cursor = store.expiry_cursor(0, 100);
    assert!(cursor.first().unwrap());
    store.set_expiry("a", Expiry::At(25), ExpiryCondition::Always).unwrap();
    let mut met = vec![];
    while cursor.next().unwrap() {
        met.extend_from_slice(cursor.key().unwrap());
    }
    assert_eq!(met, b"bac");
}

#[test]
fn expiry_cursor_sees_own_transaction_or_its_snapshot() {
    let scratch = Scratch::new();
    let clock = TestClock::at(0);
    let (a, b) = (scratch.open_at(&clock), scratch.open_at(&clock));
    a.put_with_expiry("a", "1", Expiry::At(100)).unwrap();
    a.begin_write().unwrap();
    a.put_with_expiry("b", "1", Expiry::At(50)).unwrap();
    assert_eq!(scan(&mut a.expiry_cursor(0, 1_000)), [b"b", b"a"]);
    assert_eq!(scan(&mut b.expiry_cursor(0, 1_000)), [b"a"]);
    a.rollback().unwrap();
    b.begin_read().unwrap();
    a.put_with_expiry("c", "1", Expiry::At(50)).unwrap();
    assert_eq!(scan(&mut a.expiry_cursor(0, 1_000)), [b"c", b"a"]);
    assert_eq!(scan(&mut b.expiry_cursor(0, 1_000)), [b"a"]);
    b.commit().unwrap();
    assert_eq!(scan(&mut b.expiry_cursor(0, 1_000)), [b"c", b"a"]);
}

#[test]
fn every_cursor_returns_expiry_of_its_entry() {
    let (store, _clock) = memory_at(0);
    store.put("a", "1").unwrap();
    store.put_with_expiry("b", "1", Expiry::At(100)).unwrap();
    store.put_with_expiry("c", vec![7; 5_000], Expiry::At(50)).unwrap();
    let expected: Vec<(Vec<u8>, Expiry)> =
        vec![(b"a".into(), Expiry::Never), (b"b".into(), Expiry::At(100)), (b"c".into(), Expiry::At(50))];
    let cursor = |direction| store.cursor(KeyRange::all(), direction);
    assert_eq!(scan_with_expiry(&mut cursor(Direction::Forward)), expected);
    assert_eq!(scan_with_expiry(&mut cursor(Direction::Forward).keys_only()), expected);
    let reverse: Vec<_> = expected.into_iter().rev().collect();
    assert_eq!(scan_with_expiry(&mut cursor(Direction::Reverse)), reverse);
}

#[test]
fn closed_store_returns_misuse() {
    let (store, _clock) = memory_at(0);
    store.put_with_expiry("k", "1", Expiry::At(100)).unwrap();
    let mut cursor = store.expiry_cursor(0, 1_000);
    assert!(cursor.first().unwrap());
    store.close().unwrap();
    assert_eq!(cursor.key(), None);
    assert_eq!(kind(cursor.next()), ErrorKind::Misuse);
    assert_eq!(kind(store.set_expiry("k", Expiry::Never, ExpiryCondition::Always)), ErrorKind::Misuse);
    assert_eq!(kind(store.persist("k")), ErrorKind::Misuse);
    assert_eq!(kind(store.expiry("k")), ErrorKind::Misuse);
    assert_eq!(kind(store.get_and_set_expiry("k", Expiry::Never)), ErrorKind::Misuse);
    assert_eq!(kind(store.set_default_ttl(None)), ErrorKind::Misuse);
    assert_eq!(kind(store.default_ttl()), ErrorKind::Misuse);
    assert_eq!(kind(store.next_expiry()), ErrorKind::Misuse);
    assert_eq!(kind(store.next_expiry_all_families()), ErrorKind::Misuse);
    assert_eq!(kind(store.count_live()), ErrorKind::Misuse);
    assert_eq!(kind(store.put_with_options("k", "1", &PutOptions::new())), ErrorKind::Misuse);
}
