//! Tests of writes that must wait for another client's transaction.

use std::time::Instant;

use super::*;

const LIFE: i64 = 30_000;
/// Time for which the other transaction stays open while the write waits.
const WAIT: Duration = Duration::from_millis(300);

/// Statement of the other transaction on the key, and whether the transaction commits.
const OTHERS: [(&str, bool); 5] = [
    ("DELETE FROM kvstore_row WHERE key = 'k'", true),
    ("DELETE FROM kvstore_row WHERE key = 'k'", false),
    (
        "INSERT INTO kvstore_row (family, key, value) SELECT id, 'k', '5' FROM kvstore_family WHERE name = 'f'",
        false,
    ),
    ("UPDATE kvstore_row SET value = '7' WHERE key = 'k'", true),
    ("UPDATE kvstore_row SET value = '7' WHERE key = 'k'", false),
];

type Write = (&'static str, fn(&Db) -> Result<bool>);

fn put(db: &Db, options: &PutOptions) -> Result<bool> {
    db.contents("f").put(b"k", b"1", options)
}

fn ttl() -> PutOptions {
    PutOptions::new().ttl(Duration::from_millis(LIFE as u64))
}

/// Writes that give the key a TTL of [`LIFE`], if they do anything.
const WRITES: [Write; 7] = [
    ("put", |db| put(db, &ttl())),
    ("put by default", |db| put(db, &PutOptions::new())),
    ("put that keeps the end", |db| put(db, &ttl().keep_ttl())),
    ("put if absent", |db| put(db, &ttl().if_absent())),
    ("put if present", |db| put(db, &ttl().if_present())),
    ("increment", |db| db.contents("f").increment(b"k", 1, None).map(|_| true)),
    ("batch", |db| {
        let (family, options) = (Tables::of("f"), ttl());
        let put = Some((b"1".as_slice(), &options));
        let deletion = BatchWrite { family: &family, key: b"other", put: None };
        db.write_batch(&[deletion, BatchWrite { family: &family, key: b"k", put }]).map(|_| true)
    }),
];

/// Runs a write while another transaction, which is open, has changed the key. Returns the result
/// of the write, the server's time when the other transaction ended, and how long the write waited.
fn wait_for(db: &mut Db, schema: &str, other: (&str, bool), write: Write) -> (bool, i64, Duration) {
    db.begin_write().unwrap();
    db.query(Again::No, other.0, &[]).unwrap();
    let pid: i32 = db.query(Again::No, "SELECT pg_backend_pid()", &[]).unwrap()[0].get(0);
    let blocked = format!("SELECT count(*) FROM pg_stat_activity WHERE {pid} = ANY (pg_blocking_pids(pid))");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let (client, began) = (open(schema), Instant::now());
            let done = write.1(&client);
            (done, began.elapsed())
        });
        // A refused write does not wait.
        while Server::shared().sql(&blocked) == "0" && !waiting.is_finished() {}
        thread::sleep(WAIT);
        let before = server_now(db);
        match other.1 {
            true => db.commit().unwrap(),
            false => db.rollback().unwrap(),
        }
        let (done, waited) = waiting.join().unwrap();
        (done.unwrap_or_else(|e| panic!("{write:?} after {other:?}: {e}")), before, waited)
    })
}

#[test]
fn ttl_starts_after_wait_for_row_lock() {
    let schema = "late";
    let mut db = store(schema, &["f"]);
    set(&db, "f", "default_ttl_ms = 30000, track_writes = true");
    for write in WRITES {
        for other in OTHERS {
            // The key is expired, so that a put-if-absent writes it, or live. It is missing if the
            // other transaction inserts it.
            for old_end in [Some(PAST), None] {
                db.contents("f").clear().unwrap();
                if !other.0.starts_with("INSERT") {
                    db.contents("f").put(b"k", b"1", &until(old_end.unwrap_or(FAR))).unwrap();
                }
                let (done, before, waited) = wait_for(&mut db, schema, other, write);
                let what = format!("{write:?} after {other:?}, {old_end:?}: {done}");
                assert!(waited >= WAIT || !done, "{what}: {waited:?}");
                let Some(times) = db.contents("f").times(b"k").unwrap().live() else {
                    assert!(!done || write.0 == "put if present", "{what}: nothing is there");
                    continue;
                };
                let keeps = matches!(times.expiry, Expiry::At(FAR));
                let is_new = done && !keeps;
                if is_new {
                    let end = times.expiry.millis().unwrap_or_else(|| panic!("{what}: no end"));
                    assert!(
                        end >= before + LIFE,
                        "{what}: its life began {} ms too early",
                        before + LIFE - end
                    );
                }
                if done {
                    assert!(
                        times.written_ms >= Some(before),
                        "{what}: written {:?}, {before}",
                        times.written_ms
                    );
                }
            }
        }
    }
}

#[test]
fn write_is_done_once_if_connection_ends_during_lock_wait() {
    let schema = "late_ended";
    let mut db = store(schema, &["f"]);
    for write in WRITES {
        db.contents("f").put(b"k", b"1", &until(FAR)).unwrap();
        db.begin_write().unwrap();
        db.query(Again::No, "UPDATE kvstore_row SET value = '7' WHERE key = 'k'", &[]).unwrap();
        let pid: i32 = db.query(Again::No, "SELECT pg_backend_pid()", &[]).unwrap()[0].get(0);
        let others = format!("FROM pg_stat_activity WHERE {pid} = ANY (pg_blocking_pids(pid))");
        thread::scope(|scope| {
            let waiting = scope.spawn(|| write.1(&open(schema)));
            // The write now waits in its transaction, after the first attempt.
            let query =
                format!("SELECT count(*) {others} AND xact_start < clock_timestamp() - interval '60 ms'");
            while Server::shared().sql(&query) == "0" && !waiting.is_finished() {}
            Server::shared().sql(&format!("SELECT pg_terminate_backend(pid, 10000) {others}"));
            db.commit().unwrap();
            let done = waiting.join().unwrap();
            let done = done.unwrap_or_else(|e| panic!("{write:?}: {e}"));
            assert_eq!(done, write.0 != "put if absent", "{write:?}");
        });
        let expected = if write.0 == "increment" {
            "8"
        } else if write.0 == "put if absent" {
            "7"
        } else {
            "1"
        };
        assert_eq!(value(db.contents("f"), b"k").unwrap(), expected.as_bytes(), "{write:?}");
    }
}

#[test]
fn busy_timeout_limits_wait_for_table_lock() {
    let schema = "late_table";
    let mut db = store(schema, &["f"]);
    let calls: [Write; 5] = [
        ("delete", |db| db.contents("f").delete(b"k")),
        ("swap", |db| db.contents("f").compare_and_swap(b"k", b"1", b"2", Some(Expiry::Never))),
        ("delete if equal", |db| db.contents("f").compare_and_delete(b"k", b"1")),
        ("expire", |db| {
            db.contents("f").expire(b"k", Expiry::At(FAR), ExpiryCondition::Always).map(|done| done.is_some())
        }),
        ("clear", |db| db.contents("f").clear().map(|()| true)),
    ];
    db.begin_write().unwrap();
    db.query(Again::No, "LOCK TABLE kvstore_row IN ACCESS EXCLUSIVE MODE", &[]).unwrap();
    for busy_ms in [0, 700] {
        let config = Config::new().busy_timeout(Duration::from_millis(busy_ms));
        for call in WRITES.into_iter().chain(calls) {
            let client = Db::open(&Server::shared().url(schema), &config, Arc::default()).unwrap();
            let began = Instant::now();
            let e = call.1(&client).unwrap_err();
            let took = began.elapsed().as_millis() as u64;
            assert_eq!(e.kind(), ErrorKind::Busy, "{call:?}: {e}");
            assert!(!e.to_string().contains("roll"), "{call:?}: {e}");
            let least = busy_ms.max(100);
            assert!((least..least + 400).contains(&took), "{call:?}, busy {busy_ms}: {took} ms");
        }
    }
}

#[test]
fn no_op_write_after_lock_wait_changes_no_row() {
    let schema = "late_nothing";
    let mut db = store(schema, &["f"]);
    let deletion = OTHERS[0];
    let rows = |db: &Db| {
        let rows = db.query(Again::No, "SELECT count(*) FROM kvstore_row", &[]).unwrap();
        column::<i64>(&rows[0], 0).unwrap()
    };
    db.contents("f").put(b"k", b"1", &PutOptions::new()).unwrap();
    let if_present = WRITES[4];
    assert!(!wait_for(&mut db, schema, deletion, if_present).0);
    assert_eq!(rows(&db), 0);
    db.contents("f").put(b"k", b"a", &PutOptions::new()).unwrap();
    let increment: Write = ("increment of no number", |db| {
        let refused = db.contents("f").increment(b"k", 1, None);
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Error);
        Ok(false)
    });
    wait_for(&mut db, schema, ("UPDATE kvstore_row SET value = 'b' WHERE key = 'k'", false), increment);
    assert_eq!((rows(&db), value(db.contents("f"), b"k")), (1, Some(b"a".to_vec())));
}

#[test]
fn write_without_ttl_waits_full_timeout_each_call() {
    let schema = "late_patient";
    let mut db = store(schema, &["f"]);
    let delete: Write = ("delete", |db| {
        let lock_timeout = || -> String {
            db.query(Again::Yes, "SELECT current_setting('lock_timeout')", &[]).unwrap()[0].get(0)
        };
        let before = lock_timeout();
        let done = db.contents("f").delete(b"k");
        assert_eq!(lock_timeout(), before);
        done
    });
    for _ in 0..2 {
        db.contents("f").put(b"k", b"1", &PutOptions::new()).unwrap();
        let (done, _, waited) = wait_for(&mut db, schema, OTHERS[4], delete);
        assert!(done && waited >= WAIT, "{done} {waited:?}");
    }
}

/// Extends the TTL of the key, and lets its old expiry time pass before the commit.
const PROLONG: &str = "WITH w AS (UPDATE kvstore_row SET expire_ms = 4000000000000 WHERE key = 'k' RETURNING 1) \
    SELECT pg_sleep(0.06) FROM w";

fn put_for_50_ms(db: &Db) {
    assert!(db.contents("f").put(b"k", b"1", &PutOptions::new().ttl(Duration::from_millis(50))).unwrap());
}

#[test]
fn only_writing_calls_wait_for_concurrent_ttl_extension() {
    let schema = "prolonged";
    let mut db = store(schema, &["f"]);
    let client = open(schema);
    let other = client.contents("f");
    put_for_50_ms(&db);
    db.begin_write().unwrap();
    db.query(Again::No, PROLONG, &[]).unwrap();
    assert!(value(other, b"k").is_none());
    assert!(!other.put(b"k", b"2", &PutOptions::new().if_present()).unwrap());
    assert!(!other.compare_and_swap(b"k", b"1", b"2", Some(Expiry::Never)).unwrap());
    assert!(!other.compare_and_delete(b"k", b"1").unwrap());
    assert!(other.expire(b"k", Expiry::Never, ExpiryCondition::Always).unwrap().is_none());
    assert!(other.get_and_expire(b"k", Expiry::Never, |_| Ok(())).unwrap().is_none());
    db.commit().unwrap();
    assert_eq!(value(other, b"k").unwrap(), b"1");

    let writes: [(Write, &[u8]); 3] = [
        (("put if absent", |db| put(db, &PutOptions::new().if_absent()).map(|is_done| !is_done)), b"1"),
        (("increment", |db| db.contents("f").increment(b"k", 1, None).map(|(sum, _)| sum == 2)), b"2"),
        (("delete", |db| db.contents("f").delete(b"k")), b""),
    ];
    for (write, left) in writes {
        put_for_50_ms(&db);
        let (has_found_it_alive, _, waited) = wait_for(&mut db, schema, (PROLONG, true), write);
        assert!(has_found_it_alive && waited >= WAIT, "{}: {waited:?}", write.0);
        assert_eq!(value(other, b"k").unwrap_or_default(), left, "{}", write.0);
    }
}
