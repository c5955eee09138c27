//! Where should a value live: in its row, or in a rowid table of its own? Measures both layouts of the
//! file format in plain SQL, by value size. The result is `INLINE_PAGE_FRACTION` in `src/backend/file/mod.rs`.
//!
//! `cargo bench --bench blob_threshold [-- KEYS]`

use std::time::Instant;

use rusqlite::{Connection, params};

const SIZES: [usize; 9] = [100, 150, 250, 350, 500, 800, 1000, 4000, 16_000];

fn main() -> rusqlite::Result<()> {
    let keys: u64 = std::env::args().filter_map(|arg| arg.parse().ok()).next().unwrap_or(100_000);
    println!(
        "{keys} keys of 16 bytes in random order, 4096-byte pages, WAL, one transaction per 1000 writes; ns per operation"
    );
    println!(
        "{:>6} {:>10} {:>9} {:>9} {:>9} {:>9} {:>10}",
        "value", "layout", "load", "update", "get", "scan", "file/data"
    );
    for size in SIZES {
        let keys = keys.min(400_000_000 / size as u64);
        for out_of_line in [false, true] {
            measure(keys, size, out_of_line)?;
        }
    }
    Ok(())
}

fn measure(keys: u64, size: usize, out_of_line: bool) -> rusqlite::Result<()> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("t.db");
    let conn = Connection::open(&path)?;
    conn.execute_batch(
        "PRAGMA auto_vacuum = 2; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA cache_size = 2000;
         PRAGMA mmap_size = 268435456; PRAGMA wal_autocheckpoint = 4000;
         CREATE TABLE d(key BLOB PRIMARY KEY, value BLOB, expire_ms INTEGER, blob_id INTEGER, written_ms INTEGER)
             WITHOUT ROWID;
         CREATE TABLE b(id INTEGER PRIMARY KEY, value BLOB);",
    )?;
    let put = |n: u64, round: u8| -> rusqlite::Result<()> {
        let (key, value) = (key(n), vec![round; size]);
        if !out_of_line {
            conn.prepare_cached("REPLACE INTO d(key, value) VALUES(?1, ?2)")?.execute(params![key, value])?;
            return Ok(());
        }
        let id: Option<i64> = conn
            .prepare_cached("SELECT blob_id FROM d WHERE key = ?1")?
            .query_map([&key], |row| row.get(0))?
            .next()
            .transpose()?;
        match id {
            Some(id) => {
                conn.prepare_cached("UPDATE b SET value = ?2 WHERE id = ?1")?.execute(params![id, value])?
            }
            None => {
                conn.prepare_cached("INSERT INTO b(value) VALUES(?1)")?.execute([value])?;
                let id = conn.last_insert_rowid();
                conn.prepare_cached("REPLACE INTO d(key, blob_id) VALUES(?1, ?2)")?
                    .execute(params![key, id])?
            }
        };
        Ok(())
    };
    let write_all = |round: u8| -> rusqlite::Result<f64> {
        let start = Instant::now();
        for chunk in 0..keys.div_ceil(1000) {
            conn.execute_batch("BEGIN IMMEDIATE")?;
            for n in chunk * 1000..keys.min((chunk + 1) * 1000) {
                put(shuffled(n), round)?;
            }
            conn.execute_batch("COMMIT")?;
        }
        Ok(start.elapsed().as_nanos() as f64 / keys as f64)
    };
    let load = write_all(1)?;
    let update = write_all(2)?;

    conn.execute_batch("PRAGMA wal_checkpoint(TRUNCATE); BEGIN")?;
    let start = Instant::now();
    let mut bytes = 0;
    for n in 0..keys {
        let sql = "SELECT value, blob_id FROM d WHERE key = ?1";
        bytes += conn.prepare_cached(sql)?.query_row([key(shuffled(n))], |row| match row.get_ref(0)? {
            rusqlite::types::ValueRef::Blob(value) => Ok(value.len()),
            _ => conn
                .prepare_cached("SELECT value FROM b WHERE id = ?1")?
                .query_row([row.get::<_, i64>(1)?], |row| {
                    row.get_ref(0)?.as_blob().map(<[u8]>::len).map_err(Into::into)
                }),
        })?;
    }
    let get = start.elapsed().as_nanos() as f64 / keys as f64;
    assert_eq!(bytes as u64, keys * size as u64);
    let start = Instant::now();
    let sql =
        "SELECT d.key, coalesce(d.value, b.value) FROM d LEFT JOIN b ON b.id = d.blob_id ORDER BY d.key";
    let mut scan = conn.prepare(if out_of_line { sql } else { "SELECT key, value FROM d ORDER BY key" })?;
    let mut rows = scan.query([])?;
    let mut seen = 0;
    while let Some(row) = rows.next()? {
        seen += row.get_ref(1)?.as_blob().map_or(0, <[u8]>::len);
    }
    let scan = start.elapsed().as_nanos() as f64 / keys as f64;
    assert_eq!(seen, bytes);
    let file = std::fs::metadata(&path).expect("the file").len() as f64;
    println!(
        "{size:>6} {:>10} {load:>9.0} {update:>9.0} {get:>9.0} {scan:>9.0} {:>10.2}",
        if out_of_line { "own table" } else { "inline" },
        file / (keys as f64 * (size + 16) as f64),
    );
    Ok(())
}

/// A bijection of the 64-bit numbers, so that keys come in random order.
fn shuffled(n: u64) -> u64 {
    let mut x = n.wrapping_add(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

fn key(n: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&n.to_be_bytes());
    key[8..].copy_from_slice(&shuffled(n).to_le_bytes());
    key
}
