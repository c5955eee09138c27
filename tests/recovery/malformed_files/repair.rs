//! Repairs every damage that SQL can do. If SQLite's own check passes, the store is sound
//! afterwards, and everything that could be read before is unchanged.

use std::collections::BTreeMap;
use std::env;
use std::path::Path;

use kvstore::{Config, Eviction, Expiry, PutOptions, SizeLimit, Store};

use super::exercise::{FAMILIES, NOW, config, keys};
use super::{Damages, SECONDS, Sort};
use crate::common::{Scratch, TestClock};

const PAGE_SIZE: u32 = 512;

/// Returns `true` if the integrity check of SQLite passes. SQLite may refuse to open the file.
fn sqlite_is_content(path: &Path) -> bool {
    rusqlite::Connection::open(path)
        .and_then(|con| con.query_row("PRAGMA integrity_check(1)", [], |row| row.get::<_, String>(0)))
        .is_ok_and(|answer| answer == "ok")
}

type Rows = BTreeMap<(String, Vec<u8>), (Vec<u8>, Expiry)>;

/// Returns all keys that can be read.
fn readable(store: &Store) -> Rows {
    let mut rows = Rows::new();
    // Read transactions do not remove expired rows.
    if store.begin_read().is_ok() {
        for name in FAMILIES.into_iter().chain(["default"]) {
            let Ok(family) = store.family(name) else { continue };
            for key in keys(name, PAGE_SIZE as usize) {
                if let Ok(Some(row)) = family.get_with(&key, |value, expiry| (value.to_vec(), expiry)) {
                    rows.insert((name.to_owned(), key), row);
                }
            }
        }
        let _ = store.rollback();
    }
    rows
}

/// Problems after the repair of a damaged store; `None`: the store cannot be opened.
fn wrong(path: &Path, sql: bool, content: bool) -> Option<Vec<String>> {
    let mut wrong = Vec::new();
    let store = Store::open_with(path, &config(sql).allow_damaged(true)).ok()?;
    TestClock::at(NOW).drive(&store);
    let found = store.integrity_check();
    let before = readable(&store);
    match store.repair() {
        Err(e) if content => wrong.push(format!("not repaired: {e}")),
        Err(_) => {}
        Ok(0) => {
            if let Err(e) = found {
                wrong.push(format!("nothing was repaired, but the check had found: {e}"));
            }
        }
        Ok(_) => {
            if let Err(e) = store.integrity_check() {
                wrong.push(format!("still wrong after the repair: {e}"));
            }
            if store.repair() != Ok(0) {
                wrong.push("a second repair finds more".to_owned());
            }
        }
    }
    let after = readable(&store);
    for ((family, key), row) in &before {
        if after.get(&(family.clone(), key.clone())) != Some(row) {
            wrong.push(format!("a key of {} bytes of {family} could be read", key.len()));
        }
    }
    if let Err(e) = store.close() {
        wrong.push(format!("close: {e}"));
    }
    if content && !sqlite_is_content(path) {
        wrong.push("SQLite's own check finds something after the repair".to_owned());
    }
    Some(wrong)
}

/// Repairs damages with one engine: all of them in the long form, every third one in the short.
#[track_caller]
fn repair_all(sql: bool) {
    let (first, step) = if env::var(SECONDS).is_ok() { (0, 1) } else { (usize::from(sql), 3) };
    let scratch = Scratch::new();
    Damages::prepare(Sort::Sql, PAGE_SIZE, scratch.dir());
    let damages = Damages::of(Sort::Sql, scratch.dir());
    let path = scratch.file("damaged.db");
    let (mut failures, mut repaired) = (Vec::new(), 0);
    let numbers = (first..damages.count()).step_by(step);
    let many = numbers.len();
    for n in numbers {
        damages.make(n, &path);
        let content = sqlite_is_content(&path);
        let Some(wrong) = wrong(&path, sql, content) else { continue };
        repaired += usize::from(content);
        failures.extend(wrong.iter().map(|wrong| format!("{}\n    {wrong}", damages.describe(n))));
    }
    assert!(failures.is_empty(), "{} of {repaired}:\n{}", failures.len(), failures.join("\n"));
    assert!(repaired > many / 2, "{repaired} of {many} could be opened");
}

#[test]
fn repair_by_sql_engine_keeps_all_readable_rows() {
    repair_all(true);
}

#[test]
fn repair_by_btree_engine_keeps_all_readable_rows() {
    repair_all(false);
}

#[test]
fn store_without_meta_table_is_writable_and_repairable() {
    for sql in [true, false] {
        for damage in ["DROP TABLE kvstore_meta", "ALTER TABLE kvstore_meta RENAME COLUMN value TO other"] {
            let scratch = Scratch::new();
            let path = scratch.file("damaged.db");
            Store::open(&path).unwrap().put("before", "1").unwrap();
            rusqlite::Connection::open(&path).unwrap().execute_batch(damage).unwrap();
            let store = Store::open_with(&path, &Config::new().sql_engine(sql)).unwrap();
            if damage.starts_with("DROP") {
                store
                    .put_with_options("key", "value", &PutOptions::new().expiry(Expiry::At(i64::MAX)))
                    .unwrap();
                assert!(
                    store.integrity_check().unwrap_err().to_string().contains("kvstore_meta"),
                    "sql: {sql}"
                );
            }
            assert!(store.repair().unwrap() > 0, "{damage}, sql: {sql}");
            store.integrity_check().unwrap();
            assert_eq!(store.repair().unwrap(), 0);
            store.set_size_limit(Some(SizeLimit::new(1 << 20, Eviction::Soonest))).unwrap();
            assert_eq!(store.get("before").unwrap().as_deref(), Some(&b"1"[..]));
        }
    }
}
