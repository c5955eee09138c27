//! Files changed by other programs: added indexes, different table definitions, wrong types,
//! flipped bytes.

use std::fs;
use std::thread;
use std::time::Duration;

use crate::common::cases::{ENGINES, each_case};
use kvstore::{Config, Expiry, ExpiryCondition, KeyRange, Result, Store, SyncLevel};

use super::{LATER, kinds_of_handles};
use crate::common::{Scratch, TestClock, keys, numbered, python, sqlite_check};

#[test]
fn foreign_index_on_data_table_is_updated_by_writes() {
    for (name, config) in kinds_of_handles() {
        let scratch = Scratch::new();
        let store = scratch.open_with(&config);
        let (plain, ttl) = (store.create_family("plain").unwrap(), store.create_family("ttl").unwrap());
        let change = |n: usize| {
            for family in [&plain, &ttl] {
                family.put(numbered(n), n.to_string()).unwrap();
                family
                    .put_with_expiry(numbered(n + 1), vec![n as u8; 40 * n], Expiry::At(LATER + n as i64))
                    .unwrap();
                assert_eq!(family.get(numbered(n)).unwrap(), Some(n.to_string().into_bytes()), "{name}");
                assert_eq!(family.iter().rev().count() as u64, family.count().unwrap());
                family.delete(numbered(n / 2)).unwrap();
                let _ = family.set_expiry(numbered(n), Expiry::At(LATER), ExpiryCondition::Always).unwrap();
            }
        };
        let sound = || sqlite_check(&scratch.path());
        (0..10).for_each(change);
        // While the handle holds a snapshot, cursors and root pages.
        python(
            &scratch.path(),
            "con.execute('create index by_value on \"data:plain\"(value, expire_ms)')
con.execute('create index by_key on \"ttl_expiry:ttl\"(key)')
con.execute('create unique index unique_end on \"ttl_key:plain\"(key, expire_ms)')",
        );
        (10..20).for_each(change);
        assert_eq!(sound(), "ok", "{name}");
        store.begin_write().unwrap();
        (20..30).for_each(change);
        store.commit().unwrap();
        assert_eq!(sound(), "ok", "{name}");
        let mut batch = store.batch();
        batch.put(&plain, "x", vec![1; 9_000], Expiry::At(1)).unwrap();
        batch.put(&ttl, "x", "1", Expiry::At(1)).unwrap();
        batch.commit().unwrap();
        assert_eq!(plain.purge_expired().unwrap() + ttl.purge_expired().unwrap(), 2);
        assert_eq!(sound(), "ok", "{name}");
        python(&scratch.path(), "con.execute('drop index by_value'); con.execute('drop index by_key')");
        (30..40).for_each(change);
        plain.clear().unwrap();
        store.integrity_check().unwrap();
        assert_eq!(sound(), "ok", "{name}");
    }
}

/// Answers of the calls on a store: the data, or the kind of the failure.
fn answers(store: &Store) -> Vec<String> {
    fn shown<T: std::fmt::Debug>(answer: Result<T>) -> String {
        answer.map_or_else(|e| format!("{:?}", e.kind()), |answer| format!("{answer:?}"))
    }
    let walked = |backwards: bool| {
        let iter = if backwards { store.iter().rev() } else { store.iter() };
        let mut seen = Vec::new();
        for entry in iter.take(2_000) {
            match entry {
                Ok((key, value)) => seen.push(format!("{} {}", key.len(), value.len())),
                Err(e) => {
                    seen.push(format!("{:?}", e.kind()));
                    break;
                }
            }
        }
        assert!(seen.len() < 2_000, "the iteration does not end");
        seen.join(",")
    };
    let mut all = vec![walked(false), walked(true)];
    for key in ["k05", "k20", "k39", "large", "ttl3", "missing"] {
        all.push(shown(store.get(key).map(|value| value.map(|value| value.len()))));
        all.push(shown(store.ttl(key)));
    }
    all.push(shown(store.get_many(["k01", "large"]).map(|values| values.len())));
    all.push(shown(store.count()));
    all.push(shown(store.count_live()));
    all.push(shown(store.next_expiry()));
    let mut by_time = store.expiry_cursor(i64::MIN, i64::MAX);
    let mut steps = 0;
    let mut there = by_time.first();
    while matches!(there, Ok(true)) && steps < 2_000 {
        steps += 1;
        there = by_time.next();
    }
    assert!(steps < 2_000, "the walk does not end");
    all.push(format!("{steps} {}", shown(there)));
    all.push(shown(store.integrity_check()));
    all
}

/// Like `answers`, for calls that write. One engine may detect damage earlier than the other.
fn writes(store: &Store) -> Vec<String> {
    let shown = |done: Result<()>| done.map_or_else(|e| format!("{:?}", e.kind()), |()| "ok".into());
    let mut all = Vec::new();
    for key in ["k05", "k20", "k39", "large", "ttl3", "new"] {
        all.push(shown(store.put_with_expiry(key, vec![1; 30], Expiry::At(LATER)).map(drop)));
        all.push(shown(store.put(key, vec![1; 3_000]).map(drop)));
        all.push(shown(store.increment(key, 1, Expiry::Never).map(drop)));
        all.push(shown(store.delete(key).map(drop)));
    }
    all.push(shown(store.purge_expired().map(drop)));
    all.push(shown(store.purge_step(Some(10), None).map(drop)));
    all.push(shown(store.delete_range(&KeyRange::prefix(b"k1")).map(drop)));
    all.push(shown(store.clear().map(drop)));
    all.push(shown(store.put("k05", "1").map(drop)));
    all
}

/// Creates a closed store with rows of every kind, and returns its bytes.
fn sorts_of_rows(scratch: &Scratch, page_size: u32) -> Vec<u8> {
    let store = scratch.open_with(&Config::new().page_size(page_size));
    store
        .transaction(|tx| -> Result<()> {
            (0..40).try_for_each(|n| tx.put(format!("k{n:02}"), vec![n; 20]))?;
            (0..8).try_for_each(|n| {
                tx.put_with_expiry(format!("ttl{n}"), [n; 9], Expiry::At(LATER + i64::from(n)))
            })?;
            tx.put_with_expiry("dead", "1", Expiry::At(1))?;
            tx.put("large", vec![9; 2_000])
        })
        .unwrap();
    store.close().unwrap();
    fs::read(scratch.path()).unwrap()
}

/// Opens these bytes with each engine and returns the answers; `None` if the store does not open.
fn opinions(scratch: &Scratch, bytes: &[u8], ask: fn(&Store) -> Vec<String>) -> [Option<Vec<String>>; 2] {
    [false, true].map(|sql_engine| {
        let _ = (fs::remove_file(scratch.wal()), fs::remove_file(scratch.shm()));
        fs::write(scratch.path(), bytes).unwrap();
        let config = Config::new().sql_engine(sql_engine).sync(SyncLevel::Off);
        let store = Store::open_with(scratch.path(), &config).ok()?;
        TestClock::at(1_000_000).drive(&store);
        let said = ask(&store);
        let _ = store.close(); // the file may be beyond a checkpoint
        Some(said)
    })
}

#[test]
fn malformed_rows_fail_or_read_equally_in_both_engines() {
    let scratch = Scratch::new();
    let sound = sorts_of_rows(&scratch, 4_096);
    let mut changes: Vec<String> = Vec::new();
    for value in ["null", "'text'", "1.5", "0", "x''", "zeroblob(70000)", "-9223372036854775808", "1e300"] {
        for column in ["value", "expire_ms", "blob_id", "written_ms"] {
            changes.push(format!("update \"data:default\" set {column} = {value} where key = x'6b3035'"));
        }
        changes.push(format!("insert or replace into \"data:default\"(key) values({value})"));
        changes.push(format!("insert or replace into \"data:default\"(key, value) values({value}, x'01')"));
        changes.push(format!("update \"blob:default\" set value = {value}"));
        changes.push(format!("insert or ignore into \"ttl_expiry:default\" values({value}, x'6b3035')"));
        changes.push(format!("insert or ignore into \"ttl_expiry:default\" values(5, {value})"));
        changes.push(format!("insert or ignore into \"ttl_key:default\" values({value}, 7)"));
        changes.push(format!("insert or ignore into \"ttl_key:default\" values(x'6b3035', {value})"));
    }
    for id in ["-1", "9223372036854775807", "-9223372036854775808", "2"] {
        changes.push(format!("update \"data:default\" set blob_id = {id} where key = x'6c61726765'"));
        changes.push(format!("update \"blob:default\" set id = {id}"));
        changes.push(format!("insert or replace into \"blob:default\" values({id}, x'01')"));
    }
    changes.push("update \"data:default\" set expire_ms = 1 where key < x'6b32'".into());
    changes.push("update \"ttl_expiry:default\" set expire_ms = expire_ms - 4000000000000".into());
    // One Python process creates all files, because starting one for each is slow.
    let list = scratch.file("changes");
    fs::write(&list, changes.join("\n")).unwrap();
    python(
        &scratch.path(),
        "import shutil
for n, change in enumerate(open(sys.argv[1][:-8] + 'changes').read().split('\\n')):
    copy = sys.argv[1] + '.%d' % n
    shutil.copy(sys.argv[1], copy)
    other = sqlite3.connect(copy, isolation_level=None)
    try:
        other.execute(change)
    except sqlite3.IntegrityError:
        pass # then this copy is sound
    other.execute('pragma wal_checkpoint(truncate)')
    other.close()",
    );
    assert_eq!(fs::read(scratch.path()).unwrap(), sound);
    for (n, change) in changes.iter().enumerate() {
        let bytes = fs::read(scratch.file(&format!("store.db.{n}"))).unwrap();
        for ask in [answers, writes] {
            let [mine, sql] = opinions(&scratch, &bytes, ask);
            let (mine, sql) = (mine.expect(change), sql.expect(change));
            // One engine may read more of a row than the other, and so notice damage in it.
            let fails = |answer: &str| answer.contains("Corrupt") || answer == "Error";
            for (mine, sql) in mine.iter().zip(&sql) {
                assert!(mine == sql || fails(mine) || fails(sql), "{change}: {mine} here, {sql} with SQL");
            }
        }
    }
}

#[test]
fn table_with_other_definition_works_or_fails_cleanly() {
    const DATA: &str =
        "key BLOB PRIMARY KEY, value BLOB, expire_ms INTEGER, blob_id INTEGER, written_ms INTEGER";
    for (what, change) in [
        ("a view of a family", "create view \"data:f\" as select * from \"data:default\"".to_owned()),
        ("a view of the catalogue", "create view \"data:f\" as select * from kvstore_family".into()),
        ("a view of the schema", "create view \"data:f\" as select * from sqlite_schema".into()),
        ("a rowid table", format!("create table \"data:f\"({DATA})")),
        (
            "descending keys",
            format!("create table \"data:f\"({}, primary key(key desc)) without rowid", DATA.replace(" PRIMARY KEY", "")),
        ),
        ("one more column", format!("create table \"data:f\"({DATA}, more default 7) without rowid")),
        (
            "other columns",
            "create table \"data:f\"(value BLOB, key BLOB PRIMARY KEY, expire_ms, blob_id, written_ms) without rowid".into(),
        ),
        (
            "a longer key",
            format!("create table \"data:f\"({}, primary key(key, value)) without rowid", DATA.replace(" PRIMARY KEY", "")),
        ),
        (
            "keys without case",
            format!("create table \"data:f\"({}) without rowid", DATA.replace("key BLOB", "key TEXT COLLATE NOCASE")),
        ),
        ("a generated column", format!("create table \"data:f\"({DATA}, g AS (length(key)) STORED) without rowid")),
    ] {
        each_case(ENGINES, |sql_engine| {
            let scratch = Scratch::new();
            let store = scratch.open();
            store.put("default", "1").unwrap();
            drop(store.create_family("f").unwrap());
            store.close().unwrap();
            python(
                &scratch.path(),
                &format!("con.execute('drop view \"live:f\"'); con.execute('drop table \"data:f\"'); con.execute({change:?})"),
            );
            let store = scratch.open_with(&Config::new().sql_engine(sql_engine));
            let family = store.family("f").unwrap();
            for key in ["b", "a", "c", "B", "a"] {
                let written = family.put(key, key.repeat(20)).is_ok();
                let found = family.get(key);
                assert!(!written || found.is_err() || found.unwrap().is_some(), "{what}, sql {sql_engine}");
            }
            let _ = (family.iter().count(), family.delete("a"), family.put_with_expiry("t", "1", Expiry::At(LATER)));
            assert_eq!(keys(store.iter()), [b"default"], "{what}, sql {sql_engine}");
            assert_eq!(store.family_names().unwrap(), ["f"], "{what}, sql {sql_engine}");
            let check = sqlite_check(&scratch.path());
            assert_eq!(check, "ok", "{what}, sql {sql_engine}");
        });
    }
}

#[test]
fn flipped_page_bytes_never_cause_panic_or_hang() {
    let scratch = Scratch::new();
    let sound = sorts_of_rows(&scratch, 512);
    let pages: Vec<usize> = (1..sound.len() / 512)
        .filter(|page| sound[page * 512] == 10) // leaves of WITHOUT ROWID tables
        .filter(|page| {
            let page = &sound[page * 512..][..512];
            [&b"k05"[..], b"ttl3", b"large"]
                .iter()
                .any(|key| page.windows(key.len()).any(|part| part == *key))
        })
        .collect();
    assert!(pages.len() >= 3, "{pages:?}");
    let (report, progress) = std::sync::mpsc::channel();
    let flips = sound.len();
    thread::spawn(move || {
        // All bytes of the headers at the start of a page, and every third byte of the rows after
        // them.
        let bytes = pages.iter().flat_map(|page| page * 512..(page + 1) * 512);
        for (n, at) in bytes.filter(|at| at % 512 < 100 || at % 3 == 0).enumerate() {
            let mut bytes = sound.clone();
            bytes[at] = [bytes[at] ^ 0xff, bytes[at].wrapping_add(1), bytes[at] ^ 0x80][n % 3];
            for ask in [answers, writes] {
                let [mine, sql] = opinions(&scratch, &bytes, ask);
                assert_eq!(mine.is_some(), sql.is_some());
            }
            report.send(at).unwrap();
        }
        report.send(flips).unwrap();
    });
    let mut last = 0;
    while last != flips {
        last = progress
            .recv_timeout(Duration::from_secs(60))
            .unwrap_or_else(|_| panic!("no answer, or a panic, with a byte changed that is after {last}"));
    }
}
