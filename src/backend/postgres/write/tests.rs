//! Tests of each operation on a family, compared with the file backend, and of concurrent clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use super::sql::clock;
use super::*;
use crate::backend::postgres::sql_text::PLANNER;
use crate::backend::postgres::tests::server::Server;
use crate::backend::{BatchWrite, Chunk, Found, Limits, Tables, Times};
use crate::clock::Clock;
use crate::config::Config;
use crate::error::ErrorKind;

mod histories;
mod late;

/// An expiry time that has passed, and one that is far in the future.
const PAST: i64 = 1_000;
const FAR: i64 = 4_000_000_000_000;

/// Creates a store with these families on the server that the tests share.
fn store(schema: &str, families: &[&str]) -> Db {
    let db = open(schema);
    for family in families {
        let sql = "INSERT INTO kvstore_family (name, created_ms) VALUES ($1, 1) ON CONFLICT DO NOTHING";
        db.query(Again::No, sql, &[&family.as_bytes()]).unwrap();
    }
    db
}

fn open(schema: &str) -> Db {
    let config = Config::new().busy_timeout(std::time::Duration::from_secs(30));
    Db::open(&Server::shared().url(schema), &config, Arc::new(Clock::default())).unwrap()
}

fn set(db: &Db, family: &str, setting: &str) {
    let sql = format!("UPDATE kvstore_family SET {setting} WHERE name = $1 RETURNING 1");
    assert_eq!(db.query(Again::No, &sql, &[&family.as_bytes()]).unwrap().len(), 1);
}

fn server_now(db: &Db) -> i64 {
    let rows = db.query(Again::Yes, concat!("SELECT ", clock!()), &[]).unwrap();
    column(&rows[0], 0).unwrap()
}

fn until(expire_ms: i64) -> PutOptions {
    PutOptions::new().expiry(Expiry::At(expire_ms))
}

fn value(family: Contents<'_>, key: &[u8]) -> Option<Vec<u8>> {
    family.get(key, |value, _| value.to_vec()).unwrap().live()
}

/// Runs `work` in `clients` threads, each with a connection of its own.
fn together(schema: &str, clients: u64, work: impl Fn(u64, &mut Db) + Sync) {
    thread::scope(|scope| {
        for number in 0..clients {
            let work = &work;
            scope.spawn(move || work(number, &mut open(schema)));
        }
    });
}

#[test]
fn dropped_family_fails_and_is_not_unmet_condition() {
    let db = store("gone", &["here"]);
    let gone = db.contents("gone");
    let scan = Scan { lower: Bound::Unbounded, upper: Bound::Unbounded, reverse: false };
    let options = PutOptions::new();
    let mut chunk = Chunk::default();
    chunk.set_limits(Limits { rows: 9, bytes: 99, skipped: 9, keys_only: false });
    let (is_here, is_gone) = (Tables::of("here"), Tables::of("gone"));
    let batch = [
        BatchWrite { family: &is_here, key: b"a", put: Some((b"1", &options)) },
        BatchWrite { family: &is_gone, key: b"a", put: None },
    ];
    let failures = [
        gone.put(b"a", b"1", &options).map(drop),
        gone.put(b"a", b"1", &options.if_absent()).map(drop),
        gone.put(b"a", b"1", &options.if_present()).map(drop),
        gone.delete(b"a").map(drop),
        gone.clear(),
        gone.delete_range(scan).map(drop),
        gone.compare_and_swap(b"a", b"1", b"2", Some(Expiry::Never)).map(drop),
        gone.compare_and_delete(b"a", b"1").map(drop),
        gone.increment(b"a", 1, None).map(drop),
        gone.expire(b"a", Expiry::Never, ExpiryCondition::Always).map(drop),
        gone.get_and_expire(b"a", Expiry::Never, |_| Ok(())).map(drop),
        gone.purge(i64::MAX, 256).map(drop),
        gone.sweep(i64::MAX, 256).map(drop),
        gone.get(b"a", |_, _| ()).map(drop),
        gone.times(b"a").map(drop),
        gone.get_many(&[b"a"], |_, _| ()),
        gone.count().map(drop),
        gone.count_live().map(drop),
        gone.count_ttl().map(drop),
        gone.next_expiry().map(drop),
        gone.has_expired(i64::MAX).map(drop),
        gone.has_written_by(i64::MAX).map(drop),
        gone.next_rows(scan, &mut chunk).map(drop),
        gone.next_expiring((0, &[]), None, &mut chunk).map(drop),
        db.write_batch(&batch).map(drop),
    ];
    let mut file = crate::backend::file::Db::open(None, &Config::new(), 1).unwrap();
    let expected = file.write(|db| db.contents(&is_gone, &Clock::default()).put(b"a", b"1", &options));
    for (number, failure) in failures.into_iter().enumerate() {
        assert_eq!(failure.unwrap_err(), *expected.as_ref().unwrap_err(), "call {number}");
    }
    assert_eq!(db.contents("here").count().unwrap(), 0); // nothing of the batch was done
}

#[test]
fn longest_indexable_key_is_stored_and_longer_is_refused() {
    let db = store("long_keys", &["f"]);
    let family = db.contents("f");
    set(&db, "f", "track_writes = true");
    let mut random = histories::Random(7);
    // Bytes that cannot be compressed. PostgreSQL tries to compress large keys.
    let longest: Vec<u8> = (0..MAX_KEY_SIZE).map(|_| random.below(256) as u8).collect();
    assert!(family.put(&longest, b"1", &until(FAR)).unwrap());
    assert_eq!(value(family, &longest).unwrap(), b"1");
    let error = family.put(&[&longest[..], b"x"].concat(), b"1", &until(FAR)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Error);
    assert!(error.to_string().contains("2501"), "{error}");
}

#[test]
fn default_ttl_counts_from_server_time_for_new_and_old_keys() {
    let db = store("default_ttl", &["f"]);
    let family = db.contents("f");
    set(&db, "f", "default_ttl_ms = 60000");
    let options = PutOptions::new();
    type Write<'w> = &'w dyn Fn(&[u8]);
    let writes: [Write<'_>; 4] = [
        &|key| assert!(family.put(key, b"1", &options).unwrap()),
        &|key| assert!(family.put(key, b"1", &options.if_absent()).unwrap()),
        &|key| assert!(family.increment(key, 1, None).is_ok()),
        &|key| assert!(family.put(key, b"1", &options.if_present()).unwrap()),
    ];
    for (number, write) in writes.into_iter().enumerate() {
        for old in [None, Some(PAST), Some(FAR)] {
            match (number, old) {
                // The write keeps the expiry time, or does not happen.
                (1 | 2, Some(FAR)) | (3, None | Some(PAST)) => continue,
                _ => {}
            }
            family.clear().unwrap();
            old.map(|old| family.put(b"key", b"1", &until(old)).unwrap());
            let before = server_now(&db);
            write(b"key");
            let after = server_now(&db);
            let Expiry::At(end) = family.times(b"key").unwrap().live().unwrap().expiry else { panic!() };
            assert!((before + 60_000..=after + 60_000).contains(&end), "write {number} over {old:?}");
        }
    }
    assert!(db.clock.now_ms() >= server_now(&db) - 1_000);
}

#[test]
fn batch_ttl_counts_from_server_time_after_row_lock() {
    let db = store("batch_lives", &["f", "g"]);
    set(&db, "g", "default_ttl_ms = 60000");
    let (f, g) = (Tables::of("f"), Tables::of("g"));
    let plain = PutOptions::new();
    let (ttl, long, none) =
        (plain.ttl(Duration::from_secs(30)), plain.ttl(Duration::MAX), plain.ttl(Duration::ZERO));
    let (by_default, moment, never) = (plain, until(FAR), plain.expiry(Expiry::Never));
    let puts: [(&Tables, &[u8], &PutOptions); 7] = [
        (&f, b"ttl", &ttl),
        (&f, b"long", &long),
        (&f, b"none", &none),
        (&f, b"default", &by_default),
        (&g, b"default", &by_default),
        (&g, b"moment", &moment),
        (&g, b"never", &never),
    ];
    let put =
        |(family, key, options): (_, _, _)| BatchWrite { family, key, put: Some((b"1".as_slice(), options)) };
    let mut writes: Vec<_> = puts.map(put).to_vec();
    // A key that is put and deleted in the same batch counts if it was live in between.
    for options in [&none, &ttl, &by_default] {
        let key = b"gone".as_slice();
        writes.extend([put((&f, key, options)), BatchWrite { family: &f, key, put: None }]);
    }
    let end =
        |db: &Db, family, key: &[u8]| Some(db.contents(family).times(key).unwrap().live()?.expiry.millis());
    for _ in 0..2 {
        let before = server_now(&db);
        assert_eq!(db.write_batch(&writes).unwrap(), 2);
        let after = server_now(&db);
        let within = |ttl_ms, found: Option<Option<i64>>| {
            assert!(
                (before + ttl_ms..=after + ttl_ms).contains(&found.unwrap().unwrap()),
                "{ttl_ms} {found:?}"
            );
        };
        within(30_000, end(&db, "f", b"ttl"));
        within(60_000, end(&db, "g", b"default"));
        let rest =
            [("f", "long"), ("f", "none"), ("f", "default"), ("g", "moment"), ("g", "never"), ("f", "gone")];
        let ends = [Some(Some(i64::MAX)), None, Some(None), Some(Some(FAR)), Some(None), None];
        assert_eq!(rest.map(|(family, key)| end(&db, family, key.as_bytes())), ends);
    }
}

#[test]
fn key_expires_by_server_clock_without_any_write() {
    let db = store("dies", &["f"]);
    let family = db.contents("f");
    let end = server_now(&db) + 20;
    family.put(b"key", b"1", &until(end)).unwrap();
    loop {
        let before = server_now(&db);
        let found = family.get(b"key", |_, _| ()).unwrap();
        let after = server_now(&db);
        match found {
            Found::Live(()) => assert!(before < end),
            Found::Expired(at) => {
                assert!(at == end && after >= end);
                break;
            }
            Found::Missing => panic!("nobody has removed it"),
        }
    }
    assert_eq!(family.purge(i64::MAX, 256).unwrap().counted, 1);
}

/// Without its constraint, the table can contain two families with one name. Each row is returned
/// twice then. The C API writes its results by the numbers of the rows.
#[test]
fn get_many_returns_all_rows_or_fails() {
    let db = store("lost_constraint", &["f"]);
    let family = db.contents("f");
    family.put(b"a", b"1", &PutOptions::new()).unwrap();
    let keys: [&[u8]; 2] = [b"a", b"b"];
    let look = || {
        let mut seen = Vec::new();
        let done = family.get_many(&keys, |number, found| seen.push((number, found.live().is_some())));
        done.map(|()| seen)
    };
    assert_eq!(look().unwrap(), [(0, true), (1, false)]);
    assert_eq!(family.write_times(&keys).unwrap(), [None, None]);
    Server::shared().sql(
        "ALTER TABLE lost_constraint.kvstore_family DROP CONSTRAINT kvstore_family_name_key; \
         INSERT INTO lost_constraint.kvstore_family (name, created_ms) VALUES ('f', 1)",
    );
    for e in [look().map(drop).unwrap_err(), family.write_times(&keys).map(drop).unwrap_err()] {
        assert!(
            e.kind() == ErrorKind::Error
                && e.to_string().contains("another form than a PostgreSQL server gives"),
            "{e}"
        );
    }
}

#[test]
fn get_and_expire_with_failing_visitor_keeps_expiry() {
    let db = store("visit_fails", &["f"]);
    let family = db.contents("f");
    for (old, new) in [(FAR, FAR + 1), (FAR, PAST)] {
        family.put(b"key", b"1", &until(old)).unwrap();
        let fail = |_: &[u8]| -> Result<()> { Err(Error::no_memory("no")) };
        let error = family.get_and_expire(b"key", Expiry::At(new), fail).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoMemory);
        assert_eq!(family.times(b"key").unwrap().live().unwrap().expiry, Expiry::At(old));
    }
    let panics = || family.get_and_expire(b"key", Expiry::At(FAR + 9), |_| -> Result<()> { panic!("on") });
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
    assert_eq!(family.times(b"key").unwrap().live().unwrap().expiry, Expiry::At(FAR));
}

#[test]
fn failed_get_and_expire_restores_expiry_of_other_client() {
    let (db, mut other) = (store("waited_for_end", &["f"]), open("waited_for_end"));
    db.contents("f").put(b"key", b"1", &until(FAR)).unwrap();
    other.begin_write().unwrap();
    other.contents("f").expire(b"key", Expiry::At(FAR + 1), ExpiryCondition::Always).unwrap();
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%waited_for_end%'";
    thread::scope(|scope| {
        let getting = scope.spawn(|| {
            let db = db;
            let fail = |_: &[u8]| -> Result<()> { Err(Error::no_memory("no")) };
            db.contents("f").get_and_expire(b"key", Expiry::At(FAR + 2), fail).unwrap_err()
        });
        while Server::shared().sql(waits) != "1" {}
        other.commit().unwrap();
        assert_eq!(getting.join().unwrap().kind(), ErrorKind::NoMemory);
    });
    let found = other.contents("f").times(b"key").unwrap().live().unwrap();
    assert_eq!(found.expiry, Expiry::At(FAR + 1));
}

#[test]
fn failed_get_and_expire_restores_removed_key_write_time() {
    let db = store("removed_and_back", &["f"]);
    set(&db, "f", "track_writes = true");
    let family = db.contents("f");
    family.put(b"key", b"1", &until(FAR).written_at(5)).unwrap();
    let fail = |_: &[u8]| -> Result<()> { Err(Error::no_memory("no")) };
    family.get_and_expire(b"key", Expiry::At(PAST), fail).unwrap_err();
    assert_eq!(family.write_times(&[b"key"]).unwrap(), [Some(5)]);
}

#[test]
fn failed_get_and_expire_keeps_delete_by_other_client() {
    let (db, other) = (store("deleted_meanwhile", &["f"]), open("deleted_meanwhile"));
    let family = db.contents("f");
    for (new, comes_back) in [(Expiry::At(FAR + 1), false), (Expiry::Never, false), (Expiry::At(PAST), true)]
    {
        family.put(b"key", b"1", &until(FAR)).unwrap();
        let fail = |_: &[u8]| -> Result<()> {
            // Other clients do not find a key that the call itself has removed.
            assert_eq!(other.contents("f").delete(b"key").unwrap(), !comes_back);
            Err(Error::no_memory("no"))
        };
        assert_eq!(family.get_and_expire(b"key", new, fail).unwrap_err().kind(), ErrorKind::NoMemory);
        assert_eq!(value(family, b"key").is_some(), comes_back, "{new:?}");
    }
}

/// All puts share one value, so that the test takes little memory.
#[test]
fn oversized_request_is_refused_and_transaction_continues() {
    let mut db = store("too_much", &["f"]);
    let (value, tables) = (vec![0; 2 << 20], Tables::of("f"));
    let keys: Vec<_> = (0..600_u64).map(u64::to_be_bytes).collect();
    let options = PutOptions::new();
    let write = |key| BatchWrite { family: &tables, key, put: Some((&value[..], &options)) };
    let writes: Vec<_> = keys.iter().map(|key| write(&key[..])).collect();
    let key: &[u8] = &[b'k'; MAX_KEY_SIZE];
    let many = vec![key; 1 << 19];
    let refusals = |db: &Db| {
        for e in [
            db.write_batch(&writes).unwrap_err(),
            db.contents("f").get_many(&many, |_, _| ()).unwrap_err(),
            db.contents("f").write_times(&many).unwrap_err(),
        ] {
            assert!(e.kind() == ErrorKind::Error && e.to_string().contains("split the request"), "{e}");
        }
    };
    refusals(&db);
    db.begin_write().unwrap();
    db.write_batch(&writes[..2]).unwrap();
    refusals(&db);
    db.commit().unwrap();
    assert_eq!(db.contents("f").count().unwrap(), 2);
}

#[test]
fn concurrent_put_if_absent_has_one_winner() {
    let db = store("if_absent", &["f"]);
    let won = AtomicU64::new(0);
    for n in 0..50_u64 {
        db.contents("f").put(&n.to_be_bytes(), b"dead", &until(PAST)).unwrap();
    }
    together("if_absent", 4, |number, db| {
        for n in 0..100_u64 {
            let value = number.to_be_bytes();
            let options = PutOptions::new().if_absent();
            if db.contents("f").put(&n.to_be_bytes(), &value, &options).unwrap() {
                won.fetch_add(1, Ordering::Relaxed);
                assert_eq!(self::value(db.contents("f"), &n.to_be_bytes()).unwrap(), value);
            }
        }
    });
    assert_eq!(won.into_inner(), 100);
}

#[test]
fn concurrent_increments_and_swaps_are_not_lost() {
    let db = store("increments", &["f"]);
    db.contents("f").put(b"swapped", b"0", &PutOptions::new()).unwrap();
    together("increments", 4, |_, db| {
        let family = db.contents("f");
        for _ in 0..50 {
            family.increment(b"sum", 1, None).unwrap();
            loop {
                let old = value(family, b"swapped").unwrap();
                let new = (String::from_utf8(old.clone()).unwrap().parse::<u64>().unwrap() + 1).to_string();
                if family.compare_and_swap(b"swapped", &old, new.as_bytes(), Some(Expiry::Never)).unwrap() {
                    break;
                }
            }
        }
    });
    assert_eq!(value(db.contents("f"), b"sum").unwrap(), b"200");
    assert_eq!(value(db.contents("f"), b"swapped").unwrap(), b"200");
}

/// Another client deletes the key and inserts it again, repeatedly, each time in one transaction.
#[test]
fn key_replaced_concurrently_is_never_missing() {
    let db = store("anew", &["f"]);
    db.contents("f").put(b"key", b"1", &until(FAR)).unwrap();
    struct Ended<'a>(&'a AtomicBool);
    impl Drop for Ended<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed); // also if an assertion fails
        }
    }
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let other = open("anew");
            let row = "(SELECT id FROM kvstore_family WHERE name = 'f'), 'key'::bytea";
            let sql = format!(
                "BEGIN; DELETE FROM kvstore_row WHERE (family, key) = ({row}); \
                 INSERT INTO kvstore_row VALUES ({row}, '1', {FAR}, NULL) ON CONFLICT DO NOTHING; COMMIT"
            );
            while !done.load(Ordering::Relaxed) {
                other.session.borrow_mut().execute(Again::No, &sql).unwrap();
            }
        });
        let (_ended, family) = (Ended(&done), db.contents("f"));
        for _ in 0..300 {
            assert!(family.put(b"key", b"1", &until(FAR).if_present()).unwrap());
            assert!(family.compare_and_swap(b"key", b"1", b"1", Some(Expiry::At(FAR))).unwrap());
            assert_eq!(family.expire(b"key", Expiry::At(FAR), ExpiryCondition::HasTtl).unwrap(), Some(true));
            assert_eq!(family.get_and_expire(b"key", Expiry::At(FAR), |_| Ok(())).unwrap(), Some(()));
            assert!(!family.put(b"key", b"2", &PutOptions::new().if_absent()).unwrap());
        }
    });
}

#[test]
fn concurrent_purges_share_rows_and_skip_locked_ones() {
    let families = ["a", "b", "c"];
    let mut db = store("purgers", &families);
    for family in families {
        let tables = Tables::of(family);
        let end = |n| until(if n % 10 == 0 { FAR } else { PAST + n as i64 });
        let rows: Vec<_> = (0..1000_u64).map(|n| (n.to_be_bytes(), end(n))).collect();
        let put = |(key, options)| BatchWrite { family: &tables, key, put: Some((b"v".as_slice(), options)) };
        let writes: Vec<_> = rows.iter().map(|(key, options)| put((key.as_slice(), options))).collect();
        assert_eq!(db.write_batch(&writes).unwrap(), 0);
        assert_eq!(db.contents(family).count().unwrap(), 1000);
    }
    assert_eq!(db.next_expiry().unwrap(), Some(PAST + 1));
    // Removes the keys that expired first, over all families.
    assert_eq!(db.purge_all(9).unwrap().entries, 9);
    assert_eq!(db.next_expiry().unwrap(), Some(PAST + 4));
    // One of the expired keys is being overwritten.
    db.begin_write().unwrap();
    db.contents("a").put(&5_u64.to_be_bytes(), b"new", &until(FAR)).unwrap();
    let removed = AtomicU64::new(9);
    together("purgers", 4, |number, db| {
        loop {
            let step = match number {
                0 => db.contents("a").purge(i64::MAX, 256).unwrap().counted,
                _ => db.purge_all(256).unwrap().entries,
            };
            removed.fetch_add(step, Ordering::Relaxed);
            if step == 0 {
                break;
            }
        }
    });
    db.commit().unwrap();
    // A thread stops if all expired rows that it finds are locked by other threads. So it may leave
    // rows that those threads then remove.
    let removed = removed.into_inner() + db.purge_all(256).unwrap().entries;
    assert_eq!(removed, 3 * 900 - 1);
    assert_eq!(families.map(|family| db.contents(family).count().unwrap()), [101, 100, 100]);
    assert_eq!(db.next_expiry().unwrap(), Some(FAR));
}

#[test]
fn transaction_writes_are_visible_outside_only_after_commit() {
    let mut db = store("in_transaction", &["f"]);
    let other = open("in_transaction");
    db.begin_write().unwrap();
    let family = db.contents("f");
    family.put(b"a", b"1", &until(FAR)).unwrap();
    assert!(family.compare_and_swap(b"a", b"1", b"2", Some(Expiry::Never)).unwrap());
    assert!(family.put(b"dead", b"1", &until(PAST)).unwrap());
    assert_eq!(value(family, b"a").unwrap(), b"2");
    assert!(matches!(family.get(b"dead", |_, _| ()).unwrap(), Found::Expired(PAST)));
    assert_eq!((family.count().unwrap(), family.count_live().unwrap()), (2, 1));
    assert_eq!(other.contents("f").count().unwrap(), 0);
    // A refused call does not end the transaction.
    assert!(db.contents("gone").put(b"a", b"1", &PutOptions::new()).is_err());
    assert!(db.contents("f").increment(b"a", i64::MAX, None).is_err());
    db.commit().unwrap();
    assert_eq!(other.contents("f").count().unwrap(), 2);
}

#[test]
fn write_after_concurrent_delete_prevents_commit() {
    let schema = "deleted_meanwhile";
    let mut db = store(schema, &["f"]);
    let other = open(schema);
    let put = |db: &Db, options: &PutOptions| db.contents("f").put(b"k", b"2", options);
    let ttl = PutOptions::new().ttl(Duration::from_secs(100));
    let batch = |db: &Db, options: &PutOptions, more: bool| {
        let family = Tables::of("f");
        let mut writes =
            vec![BatchWrite { family: &family, key: b"k", put: Some((b"2".as_slice(), options)) }];
        let more = more.then_some(BatchWrite { family: &family, key: b"other", put: None });
        writes.extend(more);
        db.write_batch(&writes).map(|_| true)
    };
    type Write<'w> = (&'static str, Box<dyn Fn(&Db) -> Result<bool> + 'w>);
    let writes: [Write<'_>; 10] = [
        ("put", Box::new(|db| put(db, &PutOptions::new()))),
        ("put with an end", Box::new(|db| put(db, &until(FAR)))),
        ("put for", Box::new(|db| put(db, &ttl))),
        ("put by default", Box::new(|db| put(db, &PutOptions::new()))),
        ("put that keeps the end", Box::new(|db| put(db, &PutOptions::new().keep_ttl()))),
        ("put if absent", Box::new(|db| put(db, &PutOptions::new().if_absent()))),
        ("increment", Box::new(|db| db.contents("f").increment(b"k", 1, None).map(|_| true))),
        ("batch", Box::new(|db| batch(db, &PutOptions::new(), false))),
        ("batch of lives", Box::new(|db| batch(db, &ttl, false))),
        ("batch with a deletion", Box::new(|db| batch(db, &PutOptions::new(), true))),
    ];
    for (name, write) in writes {
        // The row is expired and the other client purges it, or it is live and the other client
        // deletes it. Then the other client inserts a new row, or does not.
        for (end, is_new) in [(PAST, false), (FAR, false), (PAST, true), (FAR, true)] {
            let what = format!("{name}, {end}, {is_new}");
            db.contents("f").clear().unwrap();
            db.contents("f").put(b"k", b"1", &until(end)).unwrap();
            db.begin_write().unwrap();
            let read = value(db.contents("f"), b"k");
            assert_eq!(read.is_some(), end == FAR, "{what}");
            match end {
                PAST => assert_eq!(other.contents("f").purge(i64::MAX, 9).unwrap().entries, 1, "{what}"),
                _ => assert!(other.contents("f").delete(b"k").unwrap(), "{what}"),
            }
            if is_new {
                other.contents("f").put(b"k", b"7", &PutOptions::new()).unwrap();
            }
            let done = write(&db);
            if name == "put if absent" && end == FAR {
                assert!(!done.unwrap(), "{what}"); // the call has only read
                db.rollback().unwrap();
                continue;
            }
            let e = done.and_then(|_| db.commit().map(|()| true)).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::Locked, "{what}: {e}");
            db.rollback().unwrap();
            let left = value(db.contents("f"), b"k");
            assert_eq!(left.as_deref(), is_new.then_some(b"7".as_slice()), "{what}");
        }
        // The transaction sees what it has written itself, whether or not its snapshot has a row.
        for is_there in [true, false] {
            db.contents("f").clear().unwrap();
            if is_there {
                db.contents("f").put(b"k", b"1", &until(PAST)).unwrap();
            }
            db.begin_write().unwrap();
            assert!(write(&db).unwrap(), "{name}");
            let own = value(db.contents("f"), b"k").unwrap();
            assert!(own == b"2" || name == "increment" && own == b"1", "{name}: {own:?}");
            db.commit().unwrap();
        }
    }
}

/// Returns the statements that write, read and purge, to check their query plans.
fn statements() -> Vec<String> {
    let texts = [PUT, PUT_BY_DEFAULT, PUT_FOR, PUT_WITH, PUT_IF_ABSENT, INCREMENT, batch::PUTS, batch::MIXED];
    let one = [
        PUT_IF_PRESENT,
        DELETE,
        DELETE_BETWEEN,
        DELETE_FROM,
        SWAP,
        DELETE_IF_EQUAL,
        EXPIRE,
        GET_AND_EXPIRE,
        UNDO_EXPIRE,
        PURGE,
        SWEEP,
        batch::DELETIONS,
        super::late::LOCK,
    ];
    let all = texts.iter().flat_map(|text| [text.alone, text.inside]).chain(one).map(str::to_owned);
    all.chain(crate::backend::postgres::read::statements())
        .chain(crate::backend::postgres::expiry_schedule::statements())
        .collect()
}

#[test]
fn concurrent_batches_lock_keys_in_one_order() {
    let server = Server::start(&[]); // its count of deadlocks includes no other test
    let open = || {
        let config = Config::new().busy_timeout(Duration::from_secs(30));
        Db::open(&server.url("deadlocks"), &config, Arc::default()).unwrap()
    };
    drop(open());
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        // Transactions that write one key each, for which the batches must wait.
        let mut other = open();
        let is_over = &is_over;
        scope.spawn(move || {
            for round in 0.. {
                other.begin_write().unwrap();
                let done = other.contents("default").put(&[round % 8], b"held", &PutOptions::new());
                thread::sleep(Duration::from_millis(70));
                let _ = done.and_then(|_| other.commit()); // may conflict with other transactions
                if *other.transaction() != TransactionState::None {
                    other.rollback().unwrap();
                }
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        let clients: Vec<_> = (0..4_u64)
            .map(|client| {
                let db = open();
                scope.spawn(move || {
                    let family = Tables::of("default");
                    let (plain, life) = (PutOptions::new(), PutOptions::new().ttl(Duration::from_secs(1000)));
                    let mut chance = 0x9e37_79b9_7f4a_7c15_u64 ^ client;
                    for round in 0..100_u64 {
                        let value = round.to_be_bytes();
                        let keys: Vec<_> = (0..8_u8).rev().map(|key| [key]).collect();
                        let writes: Vec<_> = keys
                            .iter()
                            .map(|key| {
                                chance ^= chance << 13;
                                chance ^= chance >> 7;
                                chance ^= chance << 17;
                                let put = match chance % 5 {
                                    0 | 1 => None,
                                    2 | 3 => Some((&value[..], &plain)),
                                    _ => Some((&value[..], &life)),
                                };
                                BatchWrite { family: &family, key, put }
                            })
                            .collect();
                        db.write_batch(&writes).unwrap();
                    }
                })
            })
            .collect();
        clients.into_iter().for_each(|client| client.join().unwrap());
        is_over.store(true, Ordering::Relaxed);
    });
    // Server processes report their counts each second, and at their end.
    thread::sleep(Duration::from_millis(1200));
    assert_eq!(server.sql("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"), "0");
}

#[test]
fn batch_delete_then_put_counts_key_only_if_it_existed() {
    let schema = "counted";
    let db = store(schema, &["f"]);
    let (made, removed) = (AtomicU64::new(0), AtomicU64::new(0));
    together(schema, 4, |number, db| {
        let (family, plain) = (Tables::of("f"), PutOptions::new());
        for round in 0..200_u64 {
            let value = (round << 8 | number).to_be_bytes();
            match (round + number) % 4 {
                0 => {
                    let done = db.contents("f").put(b"k", &value, &PutOptions::new().if_absent()).unwrap();
                    made.fetch_add(u64::from(done), Ordering::Relaxed);
                }
                1 => {
                    let done = db.contents("f").delete(b"k").unwrap();
                    removed.fetch_add(u64::from(done), Ordering::Relaxed);
                }
                _ => {
                    let of = |put| BatchWrite { family: &family, key: b"k", put };
                    let counted = db.write_batch(&[of(None), of(Some((&value, &plain)))]).unwrap();
                    made.fetch_add(1 - counted, Ordering::Relaxed);
                }
            }
        }
    });
    let left = u64::from(value(db.contents("f"), b"k").is_some());
    assert_eq!(made.into_inner() - removed.into_inner(), left);
}

#[test]
fn concurrent_batches_are_ordered_equally_for_all_keys() {
    let schema = "later";
    let db = store(schema, &["f"]);
    for _ in 0..150 {
        db.contents("f").clear().unwrap();
        together(schema, 2, |number, db| {
            let (family, plain) = (Tables::of("f"), PutOptions::new());
            let of = |key, put| BatchWrite { family: &family, key, put };
            let done = match number {
                0 => db.write_batch(&[of(b"y", Some((b"A", &plain))), of(b"z", Some((b"A", &plain)))]),
                _ => db.write_batch(&[of(b"y", None), of(b"z", Some((b"B", &plain)))]),
            };
            done.unwrap();
        });
        let left = [b"y", b"z"].map(|key| value(db.contents("f"), key));
        let both = [Some(b"A".to_vec()), Some(b"A".to_vec())];
        assert!(left == both || left == [None, Some(b"B".to_vec())], "{left:?}");
    }
}

#[test]
fn every_statement_uses_an_index() {
    let _db = store("plans", &["f"]);
    let mut sql = format!("SET search_path = plans; {PLANNER};");
    for (number, text) in statements().iter().enumerate() {
        let params = (1..20).take_while(|n| text.contains(&format!("${n}"))).count();
        let values = match params {
            0 => String::new(),
            _ => format!("({})", vec!["NULL"; params].join(", ")),
        };
        sql.push_str(&format!("PREPARE s{number} AS {text}; EXPLAIN EXECUTE s{number}{values};"));
    }
    let plans = Server::shared().sql(&sql);
    for bad in ["Seq Scan", "Bitmap", "Hash Join", "Merge Join", "JIT"] {
        assert!(!plans.contains(bad), "{bad} in {plans}");
    }
    assert!(plans.matches("Index").count() > 60, "{plans}");
}
