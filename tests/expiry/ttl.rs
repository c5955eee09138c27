//! TTLs without values: expire and its conditions, persist, sliding expiry, default TTLs.

use std::time::Duration;

use crate::common::cases::{each_case, values};
use crate::common::{self, Scratch, TestClock, keys, kind, memory, memory_at, python};
use kvstore::{Error, ErrorKind, Expiry, ExpiryCondition, MAX_KEY_SIZE, PutOptions};

const MS: Duration = Duration::from_millis(1);

const CONDITIONS: [ExpiryCondition; 5] = [
    ExpiryCondition::Always,
    ExpiryCondition::NoTtl,
    ExpiryCondition::HasTtl,
    ExpiryCondition::Later,
    ExpiryCondition::Earlier,
];

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
