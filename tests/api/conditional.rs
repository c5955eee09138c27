//! Conditional writes: put_with_options, compare_and_swap, compare_and_delete, increment. Their
//! effect on TTL and write time is tested in `tests/expiry/ttl_table.rs`.

use std::time::Duration;

use crate::common::{self, Scratch, TestClock, kind, memory, memory_at};
use kvstore::{Config, Error, ErrorKind, Expiry, MAX_KEY_SIZE, PutOptions, Store};

/// Values that are stored in their row, values that are not, and values just around the limit.
fn values() -> [Vec<u8>; 6] {
    [vec![], b"1".to_vec(), vec![3; 255], vec![4; 256], vec![5; 257], vec![6; 70_000]]
}

/// Runs `test` on a store outside and inside a transaction, which is committed.
fn in_and_outside(test: impl Fn(&Store, &TestClock)) {
    for in_transaction in [false, true] {
        let (store, clock) = memory_at(1_000);
        if in_transaction {
            store.begin_write().unwrap();
        }
        test(&store, &clock);
        if in_transaction {
            store.commit().unwrap();
        }
        store.integrity_check().unwrap();
    }
}

// ---- put_with ------------------------------------------------------------------------------------

#[test]
fn put_if_absent_writes_once_for_all_value_sizes() {
    in_and_outside(|store, _| {
        for (n, first) in values().iter().enumerate() {
            for (m, second) in values().iter().enumerate() {
                let key = format!("{n} {m}");
                assert!(store.put_if_absent(&key, first, Expiry::Never).unwrap());
                assert!(!store.put_if_absent(&key, second, Expiry::At(5_000)).unwrap());
                assert_eq!(store.get(&key).unwrap().as_ref(), Some(first));
            }
        }
    });
}

#[test]
fn expired_key_is_absent_for_conditional_puts() {
    in_and_outside(|store, clock| {
        for (n, old) in values().iter().enumerate() {
            for (m, new) in values().iter().enumerate() {
                let key = format!("{n} {m}");
                let end = clock.now() + 10;
                store.put_with_expiry(&key, old, Expiry::At(end)).unwrap();
                clock.set(end - 1);
                assert!(!store.put_with_options(&key, new, &PutOptions::new().if_absent()).unwrap());
                clock.set(end);
                assert!(!store.put_with_options(&key, new, &PutOptions::new().if_present()).unwrap());
                assert_eq!(store.count_live().unwrap(), (n * values().len() + m) as u64);
                assert!(store.put_with_options(&key, new, &PutOptions::new().if_absent()).unwrap());
                assert_eq!(store.get(&key).unwrap().as_ref(), Some(new));
            }
        }
    });
}

#[test]
fn put_if_present_replaces_live_value_and_creates_no_key() {
    in_and_outside(|store, _| {
        let options = PutOptions::new().if_present();
        assert!(!store.put_with_options("k", "1", &options).unwrap());
        assert_eq!(store.count().unwrap(), 0);
        store.put("k", "0").unwrap();
        for value in values() {
            assert!(store.put_with_options("k", &value, &options).unwrap());
            assert_eq!(store.get("k").unwrap(), Some(value));
        }
    });
}

#[test]
fn keep_ttl_keeps_expiry_of_live_key_for_all_value_sizes() {
    in_and_outside(|store, clock| {
        store.put_with_expiry("k", "0", Expiry::At(2_000)).unwrap();
        store.put("permanent", "0").unwrap();
        let options = PutOptions::new().expiry(Expiry::At(9_000)).keep_ttl();
        for value in values() {
            assert!(store.put_with_options("k", &value, &options).unwrap());
            assert_eq!(store.expiry("k").unwrap(), Some(Expiry::At(2_000)));
            assert!(store.put_with_options("permanent", &value, &options).unwrap());
            assert_eq!(store.expiry("permanent").unwrap(), Some(Expiry::Never));
        }
        clock.set(2_000);
        assert_eq!(store.get("k").unwrap(), None);
        assert!(store.put_with_options("k", "1", &options).unwrap());
        assert_eq!(store.expiry("k").unwrap(), Some(Expiry::At(9_000)));
    });
}

#[test]
fn last_of_expiry_and_ttl_decides() {
    let (store, _clock) = memory_at(1_000);
    store.set_default_ttl(Some(Duration::from_millis(500))).unwrap();
    let (at, ttl) = (Expiry::At(9_000), Duration::from_millis(200));
    for (options, expiry) in [
        (PutOptions::new(), Expiry::At(1_500)),
        (PutOptions::new().expiry(at).expiry(None), Expiry::At(1_500)),
        (PutOptions::new().ttl(ttl).expiry(None), Expiry::At(1_500)),
        (PutOptions::new().expiry(at).ttl(ttl), Expiry::At(1_200)),
        (PutOptions::new().expiry(Expiry::Never).ttl(ttl), Expiry::At(1_200)),
        (PutOptions::new().ttl(ttl).expiry(at), at),
        (PutOptions::new().ttl(ttl).expiry(Expiry::Never), Expiry::Never),
    ] {
        store.put_with_options("k", "1", &options).unwrap();
        assert_eq!(store.expiry("k").unwrap(), Some(expiry), "{options:?}");
    }
}

#[test]
fn conditional_put_with_past_expiry_writes_invisible_key() {
    let (store, _clock) = memory_at(1_000);
    assert!(store.put_if_absent("k", "1", Expiry::At(1_000)).unwrap());
    assert_eq!(store.get("k").unwrap(), None);
    assert!(store.put_if_absent("k", "2", Expiry::At(1)).unwrap());
    assert!(store.put_if_absent("k", "3", Expiry::At(2_000)).unwrap());
    assert_eq!(store.get("k").unwrap().as_deref(), Some(&b"3"[..]));
    store.integrity_check().unwrap();
}

// ---- compare_and_swap, compare_and_delete --------------------------------------------------------

#[test]
fn swap_needs_live_value_equal_to_last_byte() {
    in_and_outside(|store, _| {
        for old in values() {
            for new in values() {
                store.put("k", &old).unwrap();
                let mut shorter = old.clone();
                let mut changed = old.clone();
                if let Some(last) = changed.last_mut() {
                    *last ^= 1;
                    shorter.pop();
                    assert!(!store.compare_and_swap("k", &shorter, &new, Expiry::Never).unwrap());
                    assert!(!store.compare_and_swap("k", &changed, &new, Expiry::Never).unwrap());
                }
                let longer = [&old[..], &[0]].concat();
                assert!(!store.compare_and_swap("k", &longer, &new, Expiry::Never).unwrap());
                assert_eq!(store.get("k").unwrap().as_ref(), Some(&old));
                assert!(store.compare_and_swap("k", &old, &new, Expiry::Never).unwrap());
                assert_eq!(store.get("k").unwrap().as_ref(), Some(&new));
            }
        }
    });
}

#[test]
fn compare_calls_skip_missing_and_expired_keys() {
    in_and_outside(|store, clock| {
        for (n, value) in values().iter().enumerate() {
            let key = n.to_string();
            assert!(!store.compare_and_swap(&key, value, "new", Expiry::Never).unwrap());
            assert!(!store.compare_and_delete(&key, value).unwrap());
            let end = clock.now() + 10;
            store.put_with_expiry(&key, value, Expiry::At(end)).unwrap();
            clock.set(end);
            assert!(!store.compare_and_swap(&key, value, "new", Expiry::Never).unwrap());
            assert!(!store.compare_and_delete(&key, value).unwrap());
            assert_eq!(store.get(&key).unwrap(), None);
        }
    });
}

#[test]
fn missing_key_does_not_equal_empty_value() {
    let store = memory();
    assert!(!store.compare_and_swap("k", "", "1", Expiry::Never).unwrap());
    assert!(!store.compare_and_delete("k", "").unwrap());
    store.put("k", "").unwrap();
    assert!(store.compare_and_swap("k", "", "1", Expiry::Never).unwrap());
    store.put("k", "").unwrap();
    assert!(store.compare_and_delete("k", "").unwrap());
    assert!(!store.exists("k").unwrap());
}

#[test]
fn compare_and_delete_of_equal_value_removes_row_and_expiry() {
    in_and_outside(|store, _| {
        for value in values() {
            store.put_with_expiry("k", &value, Expiry::At(5_000)).unwrap();
            assert!(!store.compare_and_delete("k", [&value[..], b"."].concat()).unwrap());
            assert!(store.exists("k").unwrap());
            assert!(store.compare_and_delete("k", &value).unwrap());
            assert_eq!(store.count().unwrap(), 0);
            assert_eq!(store.next_expiry().unwrap(), None);
        }
    });
}

#[test]
fn swap_sets_new_expiry_even_for_equal_value() {
    let (store, clock) = memory_at(1_000);
    for value in values() {
        store.put_with_expiry("k", &value, Expiry::At(5_000)).unwrap();
        assert!(store.compare_and_swap("k", &value, &value, Expiry::At(3_000)).unwrap());
        assert_eq!(store.expiry("k").unwrap(), Some(Expiry::At(3_000)));
        assert!(store.compare_and_swap("k", &value, &value, Expiry::Never).unwrap());
        assert_eq!(store.expiry("k").unwrap(), Some(Expiry::Never));
        store.integrity_check().unwrap();
    }
    clock.set(9_000);
    assert!(store.exists("k").unwrap());
    assert_eq!(store.next_expiry().unwrap(), None);
}

// ---- increment -----------------------------------------------------------------------------------

#[test]
fn increment_stores_sum_as_decimal_text() {
    in_and_outside(|store, _| {
        for (delta, sum) in [(5, 5), (-7, -2), (0, -2), (1_000_000, 999_998), (-999_998, 0)] {
            assert_eq!(store.increment("k", delta, Expiry::Never).unwrap(), sum);
            assert_eq!(store.get("k").unwrap(), Some(sum.to_string().into_bytes()));
        }
    });
}

#[test]
fn increment_reaches_i64_limits_and_refuses_overflow() {
    in_and_outside(|store, _| {
        for (end, over) in [(i64::MAX, 1), (i64::MIN, -1)] {
            store.put_with_expiry("k", (end - over).to_string(), Expiry::At(5_000)).unwrap();
            assert_eq!(store.increment("k", over, Expiry::Never).unwrap(), end);
            assert_eq!(kind(store.increment("k", over, Expiry::Never)), ErrorKind::Error);
            assert_eq!(kind(store.increment("k", end, Expiry::Never)), ErrorKind::Error);
            assert_eq!(store.get("k").unwrap(), Some(end.to_string().into_bytes()));
            assert_eq!(store.expiry("k").unwrap(), Some(Expiry::At(5_000)));
        }
        assert_eq!(store.increment("new", i64::MIN, Expiry::Never).unwrap(), i64::MIN);
        assert_eq!(store.increment("new", i64::MAX, Expiry::Never).unwrap(), -1);
    });
}

#[test]
fn increment_of_non_integer_fails_without_effect() {
    in_and_outside(|store, _| {
        let huge = "1".repeat(20_000);
        let bad: [&[u8]; 17] = [
            b"",
            b" ",
            b" 1",
            b"1 ",
            b"1\n",
            b"1\0",
            b"1.0",
            b"1e3",
            b"0x10",
            b"one",
            b"-",
            b"+",
            b"--1",
            b"9223372036854775808",
            b"-9223372036854775809",
            b"\xFF\xFE",
            huge.as_bytes(),
        ];
        for value in bad {
            store.put_with_expiry("k", value, Expiry::At(5_000)).unwrap();
            assert_eq!(kind(store.increment("k", 1, Expiry::Never)), ErrorKind::Error, "{value:?}");
            assert_eq!(store.get("k").unwrap().as_deref(), Some(value));
            assert_eq!(store.expiry("k").unwrap(), Some(Expiry::At(5_000)));
        }
    });
}

#[test]
fn increment_normalizes_sign_and_leading_zeros() {
    for (text, sum) in [("+5", 6), ("-5", -4), ("-0", 1), ("007", 8), ("0", 1)] {
        let store = memory();
        store.put("k", text).unwrap();
        assert_eq!(store.increment("k", 1, Expiry::Never).unwrap(), sum, "{text}");
        assert_eq!(store.get("k").unwrap(), Some(sum.to_string().into_bytes()));
    }
    // A number may be stored outside its row. The sum is short again.
    let store = memory();
    store.put("k", format!("{}41", "0".repeat(5_000))).unwrap();
    assert_eq!(store.increment("k", 1, Expiry::Never).unwrap(), 42);
    assert_eq!(store.get("k").unwrap().as_deref(), Some(&b"42"[..]));
    store.integrity_check().unwrap();
}

#[test]
fn increment_of_missing_or_expired_key_starts_at_zero() {
    in_and_outside(|store, clock| {
        for old in [&b"41"[..], b"no number", &[7; 5_000]] {
            let end = clock.now() + 10;
            store.put_with_expiry("k", old, Expiry::At(end)).unwrap();
            clock.set(end);
            assert_eq!(store.increment("k", 3, Expiry::At(end + 10)).unwrap(), 3);
            assert_eq!(store.increment("k", 4, Expiry::At(end + 99)).unwrap(), 7);
            assert_eq!(store.expiry("k").unwrap(), Some(Expiry::At(end + 10)));
            clock.set(end + 10);
            assert_eq!(store.get("k").unwrap(), None);
        }
    });
}

#[test]
fn increment_uses_default_ttl_for_new_keys_only() {
    in_and_outside(|store, clock| {
        store.put("old", "1").unwrap();
        store.set_default_ttl(Some(Duration::from_millis(500))).unwrap();
        let now = clock.now();
        assert_eq!(store.increment("new", 1, None).unwrap(), 1);
        assert_eq!(store.expiry("new").unwrap(), Some(Expiry::At(now + 500)));
        assert_eq!(store.increment("never", 1, Expiry::Never).unwrap(), 1);
        assert_eq!(store.expiry("never").unwrap(), Some(Expiry::Never));
        assert_eq!(store.increment("given", 1, Expiry::At(now + 9)).unwrap(), 1);
        assert_eq!(store.expiry("given").unwrap(), Some(Expiry::At(now + 9)));
        assert_eq!(store.increment("old", 1, None).unwrap(), 2);
        assert_eq!(store.expiry("old").unwrap(), Some(Expiry::Never));
        clock.set(now + 500);
        assert_eq!(store.increment("new", 1, None).unwrap(), 1);
        assert_eq!(store.expiry("new").unwrap(), Some(Expiry::At(now + 1_000)));
    });
}

// ---- all of them ---------------------------------------------------------------------------------

#[test]
fn rollback_undoes_conditional_writes() {
    for value in values() {
        let (store, clock) = memory_at(1_000);
        store.put_with_expiry("swapped", &value, Expiry::At(5_000)).unwrap();
        store.put_with_expiry("deleted", &value, Expiry::At(6_000)).unwrap();
        store.put_with_expiry("expired", &value, Expiry::At(1_500)).unwrap();
        store.put_with_expiry("kept", &value, Expiry::At(7_000)).unwrap();
        store.put("number", "41").unwrap();
        clock.set(2_000);
        let undone: Result<(), Error> = store.transaction(|tx| {
            assert!(tx.compare_and_swap("swapped", &value, vec![9; 3_000], Expiry::At(8_000))?);
            assert!(tx.compare_and_delete("deleted", &value)?);
            assert!(tx.put_if_absent("expired", vec![8; 3_000], Expiry::Never)?);
            assert!(tx.put_if_absent("new", &value, Expiry::At(9_000))?);
            assert!(tx.put_with_options("kept", "", &PutOptions::new().keep_ttl().if_present())?);
            assert_eq!(tx.increment("number", 1, Expiry::Never)?, 42);
            assert_eq!(tx.increment("counter", 1, Expiry::At(3_000))?, 1);
            Err(tx.increment("swapped", 1, Expiry::Never).unwrap_err())
        });
        assert_eq!(kind(undone), ErrorKind::Error);
        for (key, end) in [("swapped", 5_000), ("deleted", 6_000), ("kept", 7_000)] {
            assert_eq!(store.get(key).unwrap().as_ref(), Some(&value));
            assert_eq!(store.expiry(key).unwrap(), Some(Expiry::At(end)));
        }
        assert_eq!(store.get("number").unwrap().as_deref(), Some(&b"41"[..]));
        assert_eq!(store.count().unwrap(), 5);
        assert_eq!(store.count_live().unwrap(), 4);
        assert_eq!(store.next_expiry().unwrap(), Some(1_500));
        store.integrity_check().unwrap();
    }
}

#[test]
fn failed_increment_keeps_transaction_usable() {
    let store = memory();
    store
        .transaction(|tx| {
            tx.put("text", "no number")?;
            assert_eq!(kind(tx.increment("text", 1, Expiry::Never)), ErrorKind::Error);
            tx.increment("number", 1, Expiry::Never).map(drop)
        })
        .unwrap();
    assert_eq!(store.get("number").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(store.get("text").unwrap().as_deref(), Some(&b"no number"[..]));
}

#[test]
fn invalid_arguments_are_refused_before_any_read() {
    let store = Store::open_in_memory(&Config::new().max_value_size(1_000)).unwrap();
    store.put("k", "1").unwrap();
    let long_key = vec![1; MAX_KEY_SIZE + 1];
    let long_value = vec![1; 1_001];
    for key in [&[][..], &long_key] {
        assert_eq!(kind(store.put_with_options(key, "1", &PutOptions::new())), ErrorKind::Error);
        assert_eq!(kind(store.compare_and_swap(key, "1", "2", Expiry::Never)), ErrorKind::Error);
        assert_eq!(kind(store.compare_and_delete(key, "1")), ErrorKind::Error);
        assert_eq!(kind(store.increment(key, 1, Expiry::Never)), ErrorKind::Error);
    }
    assert_eq!(kind(store.put_with_options("k", &long_value, &PutOptions::new())), ErrorKind::Error);
    assert_eq!(kind(store.compare_and_swap("k", "1", &long_value, Expiry::Never)), ErrorKind::Error);
    // A value longer than the limit cannot exist, so it is just unequal.
    assert!(!store.compare_and_swap("k", &long_value, "2", Expiry::Never).unwrap());
    assert!(!store.compare_and_delete("k", &long_value).unwrap());
    for bad in [Expiry::At(-1), Expiry::At(i64::MIN)] {
        assert_eq!(kind(store.put_with_options("k", "2", &PutOptions::new().expiry(bad))), ErrorKind::Error);
        assert_eq!(kind(store.put_if_absent("new", "2", bad)), ErrorKind::Error);
        assert_eq!(kind(store.compare_and_swap("k", "1", "2", bad)), ErrorKind::Error);
        assert_eq!(kind(store.increment("k", 1, bad)), ErrorKind::Error);
    }
    assert_eq!(store.get("k").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(store.count().unwrap(), 1);
}

#[test]
fn conditional_writes_are_refused_in_read_only_context() {
    let scratch = Scratch::new();
    scratch.open().put("k", "1").unwrap();
    let refused = |store: &Store| {
        assert_eq!(kind(store.put_if_absent("new", "1", Expiry::Never)), ErrorKind::ReadOnly);
        assert_eq!(kind(store.compare_and_swap("k", "1", "2", Expiry::Never)), ErrorKind::ReadOnly);
        assert_eq!(kind(store.compare_and_delete("k", "1")), ErrorKind::ReadOnly);
        assert_eq!(kind(store.increment("k", 1, Expiry::Never)), ErrorKind::ReadOnly);
        assert_eq!(store.get("k").unwrap().as_deref(), Some(&b"1"[..]));
    };
    let store = scratch.open();
    store.begin_read().unwrap();
    refused(&store);
    store.commit().unwrap();
    drop(store);
    refused(&scratch.open_with(&Config::new().read_only(true)));
}

#[test]
fn conditional_writes_are_busy_at_once_by_default() {
    let scratch = Scratch::new();
    let (a, b) = (scratch.open(), scratch.open());
    a.put("k", "1").unwrap();
    a.begin_write().unwrap();
    if common::are_on_a_server() {
        // On a server, rows are locked, and a call waits at least 0.1 s for a lock on a row.
        a.put("k", "3").unwrap();
        assert!(b.put_if_absent("new", "1", Expiry::Never).unwrap());
    } else {
        assert_eq!(kind(b.put_if_absent("new", "1", Expiry::Never)), ErrorKind::Busy);
    }
    assert_eq!(kind(b.compare_and_swap("k", "1", "2", Expiry::Never)), ErrorKind::Busy);
    assert_eq!(kind(b.compare_and_delete("k", "1")), ErrorKind::Busy);
    assert_eq!(kind(b.increment("k", 1, Expiry::Never)), ErrorKind::Busy);
    a.rollback().unwrap();
    assert_eq!(b.increment("k", 1, Expiry::Never).unwrap(), 2);
    assert_eq!(a.get("k").unwrap().as_deref(), Some(&b"2"[..]));
}

#[test]
fn conditions_see_commits_of_other_handles() {
    let scratch = Scratch::new();
    let (a, b) = (scratch.open(), scratch.open());
    assert_eq!(b.get("k").unwrap(), None);
    assert!(a.put_if_absent("k", "1", Expiry::Never).unwrap());
    assert!(!b.put_if_absent("k", "2", Expiry::Never).unwrap());
    assert!(b.compare_and_swap("k", "1", "3", Expiry::Never).unwrap());
    assert!(!a.compare_and_swap("k", "1", "4", Expiry::Never).unwrap());
    assert!(a.compare_and_delete("k", "3").unwrap());
    assert_eq!(b.increment("k", 1, Expiry::Never).unwrap(), 1);
    b.integrity_check().unwrap();
}

#[test]
fn stats_count_only_performed_writes() {
    let store = memory();
    let counted = |f: &dyn Fn()| {
        store.reset_stats().unwrap();
        f();
        let stats = store.stats().unwrap();
        (stats.puts, stats.deletes, stats.bytes_written, stats.errors)
    };
    let put_if_absent = || {
        store.put_if_absent("key", "value", Expiry::Never).unwrap();
    };
    assert_eq!(counted(&put_if_absent), (1, 0, 8, 0));
    assert_eq!(counted(&put_if_absent), (0, 0, 0, 0));
    let swap = || {
        store.compare_and_swap("key", "value", "new", Expiry::Never).unwrap();
    };
    assert_eq!(counted(&swap), (1, 0, 6, 0));
    assert_eq!(counted(&swap), (0, 0, 0, 0));
    let fail = || assert_eq!(kind(store.increment("key", 1, Expiry::Never)), ErrorKind::Error);
    assert_eq!(counted(&fail), (0, 0, 0, 1));
    let increment = || assert_eq!(store.increment("n", 99, Expiry::Never).unwrap(), 99);
    assert_eq!(counted(&increment), (1, 0, 3, 0));
    let delete = || {
        store.compare_and_delete("key", "new").unwrap();
    };
    assert_eq!(counted(&delete), (0, 1, 0, 0));
    assert_eq!(counted(&delete), (0, 0, 0, 0));
}
