//! A rough comparison with plain rusqlite on the same machine in the same run. The rusqlite side
//! uses prepared statements on a WITHOUT ROWID table with an indexed `expire_ms` column, which is
//! the usual hand-written solution.
//!
//! `cargo bench --bench rough [-- KEYS]`

use std::hint::black_box;
use std::time::{Duration, Instant};

use kvstore::{Expiry, Store};
use rusqlite::{Connection, params};

const VALUE: usize = 100;
const ROUNDS: usize = 3;

fn main() {
    let keys: u64 = std::env::args().filter_map(|arg| arg.parse().ok()).next().unwrap_or(100_000);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.push(kvstore_round(keys));
        theirs.push(rusqlite_round(keys).expect("plain SQLite works"));
    }
    println!(
        "{keys} keys of 16 bytes, values of {VALUE} bytes, random order; ns per operation, medians of {ROUNDS} rounds"
    );
    println!("{:<34} {:>10} {:>10} {:>7}", "workload", "kvstore", "rusqlite", "ratio");
    for (i, (name, _)) in ours[0].iter().enumerate() {
        let (a, b) = (median(&ours, i), median(&theirs, i));
        println!("{name:<34} {a:>10.0} {b:>10.0} {:>7.2}", a / b);
    }
}

type Round = Vec<(&'static str, f64)>;

fn median(rounds: &[Round], i: usize) -> f64 {
    let mut all: Vec<f64> = rounds.iter().map(|round| round[i].1).collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn timed(round: &mut Round, name: &'static str, operations: u64, f: impl FnOnce()) {
    let start = Instant::now();
    f();
    round.push((name, start.elapsed().as_nanos() as f64 / operations as f64));
}

fn kvstore_round(keys: u64) -> Round {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let store = Store::open(directory.path().join("a.db")).expect("a store");
    let mut round = Round::new();
    let value = [7u8; VALUE];
    let in_batches = |write: &dyn Fn(u64)| {
        for start in (0..keys).step_by(1000) {
            store
                .transaction(|_| {
                    (start..keys.min(start + 1000)).for_each(write);
                    Ok::<(), kvstore::Error>(())
                })
                .expect("a commit");
        }
    };
    let far = Expiry::At(kvstore::now_ms() + 3_600_000);
    timed(&mut round, "load, 1000 per transaction", keys, || {
        in_batches(&|n| store.put(key(n), value).expect("put"))
    });
    let ttl = store.create_family("ttl").expect("a family");
    timed(&mut round, "load with TTL", keys, || {
        in_batches(&|n| ttl.put_with_expiry(key(n), value, far).expect("put"));
    });
    timed(&mut round, "get", keys, || {
        for n in 0..keys {
            black_box(store.get(key(n)).expect("get").expect("a value"));
        }
    });
    timed(&mut round, "get, every key has a TTL", keys, || {
        for n in 0..keys {
            black_box(ttl.get(key(n)).expect("get").expect("a value"));
        }
    });
    timed(&mut round, "get, miss", keys, || {
        for n in keys..2 * keys {
            assert!(store.get(key(n)).expect("get").is_none());
        }
    });
    timed(&mut round, "get in a snapshot", keys, || {
        store.begin_read().expect("begin");
        for n in 0..keys {
            black_box(store.get(key(n)).expect("get").expect("a value"));
        }
        store.rollback().expect("rollback");
    });
    timed(&mut round, "scan, per row", keys, || {
        let mut cursor = store.cursor(kvstore::KeyRange::all(), kvstore::Direction::Forward);
        let mut more = cursor.first().expect("first");
        let mut rows = 0;
        while more {
            black_box((cursor.key(), cursor.value()));
            rows += 1;
            more = cursor.next().expect("next");
        }
        assert_eq!(rows, keys);
    });
    timed(&mut round, "overwrite, auto", keys / 4, || {
        (0..keys / 4).for_each(|n| store.put(key(n), value).expect("put"));
    });
    timed(&mut round, "put_ttl, auto", keys / 4, || {
        (0..keys / 4).for_each(|n| ttl.put_with_expiry(key(n), value, far).expect("put"));
    });
    timed(&mut round, "delete, auto", keys / 4, || {
        (0..keys / 4).for_each(|n| assert!(store.delete(key(n)).expect("delete")));
    });
    timed(&mut round, "purge, nothing expired, per call", 1000, || {
        (0..1000).for_each(|_| assert_eq!(ttl.purge_expired().expect("purge"), 0));
    });
    store.set_clock(|| i64::MAX);
    timed(&mut round, "purge, per expired key", keys, || {
        assert_eq!(ttl.purge_expired().expect("purge"), keys);
    });
    round
}

fn rusqlite_round(keys: u64) -> rusqlite::Result<Round> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let conn = Connection::open(directory.path().join("b.db"))?;
    conn.busy_timeout(Duration::ZERO)?;
    conn.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 4000;
         PRAGMA mmap_size = 268435456;
         CREATE TABLE plain(key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID;
         CREATE TABLE ttl(key BLOB PRIMARY KEY, value BLOB, expire_ms INTEGER) WITHOUT ROWID;
         CREATE INDEX ttl_expire ON ttl(expire_ms);",
    )?;
    let mut round = Round::new();
    let value = [7u8; VALUE];
    let far = kvstore::now_ms() + 3_600_000;
    let put = |n| {
        conn.prepare_cached("REPLACE INTO plain VALUES(?1, ?2)")
            .and_then(|mut s| s.execute(params![key(n), value]))
    };
    let put_ttl = |n| {
        conn.prepare_cached("REPLACE INTO ttl VALUES(?1, ?2, ?3)")
            .and_then(|mut s| s.execute(params![key(n), value, far]))
    };
    let in_batches = |write: &dyn Fn(u64) -> rusqlite::Result<usize>| {
        for start in (0..keys).step_by(1000) {
            conn.execute_batch("BEGIN IMMEDIATE").expect("begin");
            for n in start..keys.min(start + 1000) {
                write(n).expect("write");
            }
            conn.execute_batch("COMMIT").expect("commit");
        }
    };
    let get = |sql: &str, n: u64| -> Option<Vec<u8>> {
        let mut statement = conn.prepare_cached(sql).expect("prepare");
        let mut rows = statement.query([key(n)]).expect("query");
        rows.next().expect("step").map(|row| row.get(0).expect("a value"))
    };
    let get_ttl = |n: u64| -> Option<Vec<u8>> {
        let mut statement = conn
            .prepare_cached("SELECT value FROM ttl WHERE key = ?1 AND (expire_ms IS NULL OR expire_ms > ?2)")
            .expect("prepare");
        let mut rows = statement.query(params![key(n), kvstore::now_ms()]).expect("query");
        rows.next().expect("step").map(|row| row.get(0).expect("a value"))
    };
    const GET: &str = "SELECT value FROM plain WHERE key = ?1";
    timed(&mut round, "load", keys, || in_batches(&put));
    timed(&mut round, "load with TTL", keys, || in_batches(&put_ttl));
    timed(&mut round, "get", keys, || {
        for n in 0..keys {
            black_box(get(GET, n).expect("a value"));
        }
    });
    timed(&mut round, "get ttl", keys, || {
        for n in 0..keys {
            black_box(get_ttl(n).expect("a value"));
        }
    });
    timed(&mut round, "miss", keys, || {
        for n in keys..2 * keys {
            assert!(get(GET, n).is_none());
        }
    });
    timed(&mut round, "get in a snapshot", keys, || {
        conn.execute_batch("BEGIN").expect("begin");
        for n in 0..keys {
            black_box(get(GET, n).expect("a value"));
        }
        conn.execute_batch("ROLLBACK").expect("rollback");
    });
    timed(&mut round, "scan", keys, || {
        let mut statement =
            conn.prepare_cached("SELECT key, value FROM plain ORDER BY key").expect("prepare");
        let mut rows = statement.query([]).expect("query");
        while let Some(row) = rows.next().expect("step") {
            black_box((row.get_ref(0).expect("key"), row.get_ref(1).expect("value")));
        }
    });
    timed(&mut round, "overwrite", keys / 4, || {
        for n in 0..keys / 4 {
            put(n).expect("put");
        }
    });
    timed(&mut round, "put_ttl", keys / 4, || {
        for n in 0..keys / 4 {
            put_ttl(n).expect("put");
        }
    });
    timed(&mut round, "delete", keys / 4, || {
        for n in 0..keys / 4 {
            let delete = "DELETE FROM plain WHERE key = ?1";
            conn.prepare_cached(delete).and_then(|mut s| s.execute([key(n)])).expect("delete");
        }
    });
    let purge = |now: i64| {
        conn.prepare_cached("DELETE FROM ttl WHERE expire_ms <= ?1")
            .and_then(|mut s| s.execute([now]))
            .expect("purge")
    };
    timed(&mut round, "purge nothing", 1000, || (0..1000).for_each(|_| assert_eq!(purge(1), 0)));
    timed(&mut round, "purge", keys, || assert_eq!(purge(i64::MAX) as u64, keys));
    Ok(round)
}

/// Random-looking keys, each number its own.
fn key(n: u64) -> [u8; 16] {
    let mut x = n.wrapping_add(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^= x >> 31;
    let mut key = [0; 16];
    key[..8].copy_from_slice(&x.to_be_bytes());
    key[8..].copy_from_slice(&n.to_be_bytes());
    key
}
