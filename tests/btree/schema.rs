//! Schema changes while handles, iterators and transactions are open.

use kvstore::{Config, ErrorKind, Expiry, Result, Ttl};

use super::{LATER, Random, content, is_sound, kinds_of_handles, opened, sql};
use crate::common::{Scratch, kind, numbered, python};

#[test]
fn families_recreated_by_other_handle_are_not_confused() {
    for (name, config) in kinds_of_handles() {
        for other in [Config::new(), sql()] {
            let scratch = Scratch::new();
            let (store, other) = (scratch.open_with(&config), scratch.open_with(&other));
            let names = ["f0", "f1", "f2", "f3"];
            let mine = names.map(|name| store.create_family(name).unwrap());
            let mut random = Random(7);
            let mut there = [true; 4];
            for round in 0..40u32 {
                let n = random.below(4) as usize;
                if there[n] {
                    other.drop_family(names[n]).unwrap();
                } else {
                    let family = other.create_family(names[n]).unwrap();
                    family.put("whose", names[n]).unwrap();
                    if round % 3 == 0 {
                        family.put_with_expiry("ttl", vec![round as u8; 5_000], Expiry::At(LATER)).unwrap();
                    }
                }
                there[n] = !there[n];
                if round % 7 == 0 {
                    other.incremental_vacuum(None).unwrap();
                }
                for (n, family) in mine.iter().enumerate() {
                    // Twice: the second read uses the snapshot that the first has taken.
                    for _ in 0..2 {
                        let found = family.get("whose");
                        if there[n] {
                            let value = found.unwrap();
                            assert!(value.is_none_or(|value| value == names[n].as_bytes()), "{name}");
                            assert!(family.count().unwrap() <= 3);
                        } else {
                            assert_eq!(kind(found), ErrorKind::Error, "{name}");
                            assert_eq!(kind(family.count()), ErrorKind::Error, "{name}");
                            assert_eq!(kind(family.put("whose", "nobody")), ErrorKind::Error, "{name}");
                            assert!(family.iter().next().unwrap().is_err());
                        }
                    }
                    if there[n] {
                        family.put("mine", "1").unwrap();
                    }
                }
            }
            is_sound(&scratch);
        }
    }
}

#[test]
fn next_call_sees_family_changes_of_other_process() {
    for (name, config) in kinds_of_handles() {
        let scratch = Scratch::new();
        let store = scratch.open_with(&config);
        let (first, second) = (store.create_family("first").unwrap(), store.create_family("second").unwrap());
        second.put("a", "second").unwrap();
        let mut other = opened(&scratch.path(), "");
        for round in 0..20 {
            first.put("a", "first").unwrap();
            assert_eq!(first.get("a").unwrap().as_deref(), Some(&b"first"[..]));
            other.run("drop first"); // its pages are reused by the next family
            assert_eq!(kind(first.get("a")), ErrorKind::Error, "{name}");
            other.run(&format!("put-in third{round} a third"));
            assert_eq!(second.get("a").unwrap().as_deref(), Some(&b"second"[..]), "{name}");
            assert_eq!(kind(first.get("a")), ErrorKind::Error, "{name}");
            other.run("create first");
            assert_eq!(first.get("a").unwrap(), None, "{name}");
            second.put(numbered(round), "second").unwrap();
        }
        assert_eq!(second.count().unwrap(), 21);
        other.finish();
        is_sound(&scratch);
    }
}

#[test]
fn rollback_with_reused_schema_cookie_finds_new_tables() {
    for (name, config) in kinds_of_handles() {
        let scratch = Scratch::new();
        let (store, other) = (scratch.open_with(&config), scratch.open());
        for round in 0..10 {
            store.begin_write().unwrap();
            let family = store.create_family(&format!("mine{round}")).unwrap();
            family.put_with_expiry("a", "mine", Expiry::At(LATER)).unwrap();
            assert_eq!(family.get("a").unwrap().as_deref(), Some(&b"mine"[..]));
            store.rollback().unwrap();
            // The next family has the same pages and schema cookie as the previous one.
            let theirs = if round % 2 == 0 { &other } else { &store };
            theirs.begin_write().unwrap();
            let new = theirs.create_family(&format!("theirs{round}")).unwrap();
            new.put_with_expiry("a", "theirs", Expiry::At(LATER)).unwrap();
            if round % 2 == 1 {
                assert_eq!(kind(family.get("a")), ErrorKind::Error, "{name}");
                assert_eq!(kind(family.put("b", "mine")), ErrorKind::Error, "{name}");
            }
            theirs.commit().unwrap();
            assert_eq!(kind(family.get("a")), ErrorKind::Error, "{name}");
            assert_eq!(kind(family.count()), ErrorKind::Error, "{name}");
            assert_eq!(kind(family.put("a", "mine")), ErrorKind::Error, "{name}");
            assert_eq!(new.count().unwrap(), 1);
            assert_eq!(new.get("a").unwrap().as_deref(), Some(&b"theirs"[..]));
        }
        is_sound(&scratch);
    }
}

#[test]
fn tables_of_failed_batch_are_recreated_in_other_order() {
    for (name, config) in kinds_of_handles() {
        let scratch = Scratch::new();
        let (store, other) = (scratch.open_with(&config), scratch.open());
        let family = store.create_family("f").unwrap();
        let gone = store.create_family("gone").unwrap();
        other.drop_family("gone").unwrap();
        family.put("old", "1").unwrap();
        store.begin_write().unwrap();
        family.put("before", "1").unwrap();
        let mut batch = store.batch();
        batch.put(&family, "old", "2", Expiry::At(LATER)).unwrap(); // makes the indexes
        batch.put(&family, "large", vec![1; 9_000], Expiry::Never).unwrap(); // makes the blob table
        batch.delete(&family, "before").unwrap();
        batch.put(&gone, "a", "1", Expiry::Never).unwrap();
        assert_eq!(kind(batch.commit()), ErrorKind::Error, "{name}");
        assert_eq!(family.get("old").unwrap().as_deref(), Some(&b"1"[..]), "{name}");
        assert_eq!(family.ttl("old").unwrap(), Some(Ttl::None), "{name}");
        assert_eq!(family.get("large").unwrap(), None);
        assert!(family.exists("before").unwrap());
        // In the opposite order: pages and cookies are reused for different tables.
        family.put("large", vec![2; 9_000]).unwrap();
        family.put_with_expiry("old", "3", Expiry::At(LATER)).unwrap();
        store.commit().unwrap();
        assert_eq!(family.get("large").unwrap(), Some(vec![2; 9_000]), "{name}");
        assert_eq!(family.iter().count(), 3);
        assert_eq!(family.next_expiry().unwrap(), Some(LATER));
        is_sound(&scratch);
    }
}

#[test]
fn vacuum_by_other_process_moves_tables_under_snapshot() {
    for (name, config) in kinds_of_handles() {
        let scratch = Scratch::new();
        let store = scratch.open_with(&config);
        drop(store.create_family("low").unwrap());
        let family = store.create_family("high").unwrap();
        store
            .transaction(|tx| -> Result<()> {
                (0..300).try_for_each(|n| {
                    family.put_with_expiry(numbered(n), vec![n as u8; 700], Expiry::At(LATER))?;
                    tx.put(numbered(n), "default")
                })
            })
            .unwrap();
        let mut iter = family.iter();
        assert_eq!(iter.next().unwrap().unwrap().0, numbered(0));
        store.begin_read().unwrap();
        assert_eq!(family.count().unwrap(), 300);
        python(
            &scratch.path(),
            "con.execute('drop view \"live:low\"'); con.execute('drop table \"data:low\"')
con.execute('delete from kvstore_family where name = ?', ('low',)); con.execute('vacuum')",
        );
        assert_eq!(family.get(numbered(7)).unwrap(), Some(vec![7; 700]), "{name}");
        assert_eq!(store.family_names().unwrap(), ["high", "low"]);
        store.commit().unwrap();
        assert_eq!(store.family_names().unwrap(), ["high"]);
        for n in 1..300 {
            assert_eq!(iter.next().unwrap().unwrap(), (numbered(n), vec![n as u8; 700]), "{name}");
            assert_eq!(store.get(numbered(n)).unwrap().as_deref(), Some(&b"default"[..]), "{name}");
        }
        assert!(iter.next().is_none());
        family.put("after", "1").unwrap();
        is_sound(&scratch);
    }
}

#[test]
fn family_drop_moves_roots_under_open_iterators() {
    for (name, config) in kinds_of_handles() {
        let scratch = Scratch::new();
        let (store, other) = (scratch.open_with(&config), scratch.open());
        for n in 0..6 {
            drop(store.create_family(&format!("low{n}")).unwrap());
        }
        let family = store.create_family("high").unwrap();
        store
            .transaction(|_| {
                (0..1_500)
                    .try_for_each(|n| family.put_with_expiry(numbered(n), numbered(n), Expiry::At(LATER)))
            })
            .unwrap();
        let mut iter = family.iter();
        let mut backwards = family.iter().rev();
        for n in 0..6 {
            for m in n * 200..(n + 1) * 200 {
                assert_eq!(iter.next().unwrap().unwrap(), (numbered(m), numbered(m)), "{name}");
                assert_eq!(backwards.next().unwrap().unwrap().0, numbered(1_499 - m), "{name}");
            }
            let dropper = if n % 2 == 0 { &store } else { &other };
            dropper.drop_family(&format!("low{n}")).unwrap();
            dropper.incremental_vacuum(Some(3)).unwrap();
        }
        assert_eq!((iter.count(), backwards.count()), (300, 300));
        assert_eq!(family.count().unwrap(), 1_500);
        assert_eq!(family.purge_expired().unwrap(), 0);
        is_sound(&scratch);
    }
}

#[test]
fn family_is_created_and_recreated_in_one_transaction() {
    for (name, config) in kinds_of_handles() {
        let scratch = Scratch::new();
        let store = scratch.open_with(&config);
        store
            .transaction(|tx| -> Result<()> {
                for round in 0..5u8 {
                    let family = tx.create_family("f")?;
                    assert_eq!(family.count()?, 0, "{name}");
                    family.put_with_expiry("a", [round], Expiry::At(LATER))?;
                    family.put("large", vec![round; 7_000])?;
                    tx.create_family(&format!("other{round}"))?.put("a", "other")?;
                    assert_eq!(family.get("a")?.as_deref(), Some(&[round][..]), "{name}");
                    assert_eq!(family.get("large")?, Some(vec![round; 7_000]), "{name}");
                    drop(family);
                    tx.drop_family("f")?;
                }
                tx.create_family("f")?.put("a", "last")
            })
            .unwrap();
        let family = store.family("f").unwrap();
        assert_eq!(content(&family), [(b"a".to_vec(), b"last".to_vec(), Expiry::Never)], "{name}");
        is_sound(&scratch);
    }
}
