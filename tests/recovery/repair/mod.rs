//! Repair: after any damage with which SQLite itself can still work, the integrity check passes
//! again, and every row that could be read before still can. damage.rs tests the messages of the
//! check; malformed_files/repair.rs repairs the damages of malformed_files/statements.rs.

mod catalogue;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;

use crate::common::{self, Scratch, TestClock, kind};
use crate::sqlite;
use kvstore::{Config, ErrorKind, Expiry, Result, Store, SyncLevel};

/// Present time of the stores here, and a time far later.
const NOW: i64 = 1_000_000;

const LATER: i64 = 4_000_000_000_000;

const FAMILIES: [&str; 3] = ["default", "It's", "Tracked"];

/// Returns a value that is stored outside its row.
fn large(byte: u8) -> Vec<u8> {
    vec![byte; 5_000]
}

/// Bytes of a sound store with rows of every kind.
static SOUND: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let scratch = Scratch::new();
    let store = scratch.open_at(&TestClock::at(NOW));
    store.put("a", "1").unwrap();
    let family = store.create_family("It's").unwrap();
    let tracked = store.create_family("Tracked").unwrap();
    tracked.set_write_tracking(true).unwrap();
    for family in [family, tracked] {
        family.put("plain", "1").unwrap();
        family.put("other", "2").unwrap();
        family.put_with_expiry("ttl", "3", Expiry::At(LATER)).unwrap();
        family.put_with_expiry("dead", "4", Expiry::At(NOW - 1)).unwrap();
        family.put("large", large(1)).unwrap();
        family.put_with_expiry("large ttl", large(2), Expiry::At(LATER + 1)).unwrap();
    }
    store.integrity_check().unwrap();
    store.close().unwrap();
    fs::read(scratch.path()).unwrap()
});

fn sound() -> Scratch {
    let scratch = Scratch::new();
    fs::write(scratch.path(), &*SOUND).unwrap();
    scratch
}

/// Runs SQL on a store that no handle has open. `{data}` and so on are the tables of "It's", `{T
/// data}` those of "Tracked".
fn damage(path: &Path, sql: &str) {
    let con = sqlite::open(path);
    con.execute_batch(&format!("pragma synchronous = off; {}", with_tables(sql))).unwrap();
    con.close().unwrap();
}

fn with_tables(sql: &str) -> String {
    let mut sql = sql.to_owned();
    for kind in ["data", "blob", "ttl_key", "ttl_expiry", "written", "live"] {
        sql = sql.replace(&format!("{{{kind}}}"), &format!("\"{kind}:^It's\""));
        sql = sql.replace(&format!("{{T {kind}}}"), &format!("\"{kind}:^Tracked\""));
    }
    sql
}

/// Opens the store without syncs.
fn open(scratch: &Scratch, sql_engine: bool) -> Store {
    let store =
        scratch.open_with(&Config::new().sync(SyncLevel::Off).sql_engine(sql_engine).allow_damaged(true));
    TestClock::at(NOW).drive(&store);
    store
}

/// Readable rows: each key with its value and expiry time.
type Rows = BTreeMap<(String, Vec<u8>), (Vec<u8>, Expiry)>;

/// Returns every key that a single read returns.
fn readable(store: &Store) -> Rows {
    let mut rows = Rows::new();
    for name in FAMILIES {
        let Ok(family) = store.family(name) else { continue };
        for key in ["a", "plain", "other", "ttl", "dead", "large", "large ttl"] {
            if let Ok(Some(found)) = family.get_with(key, |value, expiry| (value.to_vec(), expiry)) {
                rows.insert((name.to_owned(), key.into()), found);
            }
        }
    }
    rows
}

/// Returns every key that an iterator returns.
fn all(store: &Store) -> Rows {
    let mut rows = Rows::new();
    for name in FAMILIES {
        let family = store.family(name).unwrap();
        for entry in family.iter() {
            let (key, value) = entry.unwrap();
            let expiry = family.expiry(&key).unwrap().unwrap();
            rows.insert((name.to_owned(), key), (value, expiry));
        }
    }
    rows
}

fn at(family: &str, key: &str) -> (String, Vec<u8>) {
    (family.to_owned(), key.into())
}

/// Uses every function that depends on the indexes of a family.
fn use_it(store: &Store) -> Result<()> {
    for name in FAMILIES {
        let family = store.family(name)?;
        for key in ["plain", "large", "ttl", "new"] {
            family.put(key, large(7))?;
            family.put_with_ttl(key, "7", Duration::from_secs(9))?;
            family.persist(key)?;
        }
        family.purge_expired()?;
        if family.tracks_writes()? {
            family.sweep(Duration::from_secs(9))?;
        }
        family.delete("plain")?;
        family.clear()?;
    }
    Ok(())
}

/// Opens copies of the damaged store with both engines. Asserts that the check fails before and
/// passes after the repair, that no readable row is lost, and that the store works. Returns the
/// rows that can be read then.
#[track_caller]
fn repaired(sql: &str) -> Rows {
    let mut rows = Vec::new();
    for engine in [true, false] {
        let scratch = sound();
        damage(&scratch.path(), sql);
        let store = open(&scratch, engine);
        assert!(store.integrity_check().is_err(), "{sql}");
        // In a read transaction, which does not remove expired rows.
        store.begin_read().unwrap();
        let before = readable(&store);
        store.rollback().unwrap();
        let fixed = store.repair().unwrap_or_else(|e| panic!("{sql}: {e}"));
        assert!(fixed > 0, "{sql}");
        store.integrity_check().unwrap_or_else(|e| panic!("{sql}: {e}"));
        assert_eq!(store.repair().unwrap(), 0, "a second repair: {sql}");
        let after = all(&store);
        for (key, found) in &before {
            assert_eq!(after.get(key), Some(found), "{sql}: {key:?}");
        }
        assert_eq!(readable(&store), after, "{sql}");
        rows.push(after);
        use_it(&store).unwrap_or_else(|e| panic!("{sql}: {e}"));
        store.integrity_check().unwrap_or_else(|e| panic!("after use: {sql}: {e}"));
        store.close().unwrap();
    }
    let by_sql = rows.swap_remove(0);
    assert_eq!(rows, std::slice::from_ref(&by_sql), "the engines differ: {sql}");
    by_sql
}

/// Checks a damage after which every row must be as before.
#[track_caller]
fn loses_nothing(sql: &str) {
    let sound = sound();
    let store = open(&sound, false);
    let expected = all(&store);
    assert_eq!(expected.len(), 11);
    assert_eq!(repaired(sql), expected, "{sql}");
}

/// Checks a damage after which one row of "It's" must be removed, and no other.
#[track_caller]
fn loses_only(key: &str, sql: &str) {
    let sound = sound();
    let store = open(&sound, false);
    let mut expected = all(&store);
    expected.remove(&at("It's", key)).unwrap();
    assert_eq!(repaired(sql), expected, "{sql}");
}

// ---- the indexes ---------------------------------------------------------------------------------

#[test]
fn index_entries_without_row_are_removed() {
    loses_nothing("insert into {ttl_expiry} values(5, x'00')");
    loses_nothing("insert into {ttl_key} values(x'00', 5)");
    loses_nothing("insert into {ttl_key} values('ttl', 5); insert into {ttl_expiry} values('soon', 'ttl')");
    loses_only("ttl", "delete from {data} where key = x'74746c'");
}

#[test]
fn index_entries_get_expiry_of_their_row() {
    loses_nothing("update {ttl_key} set expire_ms = 7");
    loses_nothing("update {ttl_expiry} set expire_ms = expire_ms + 7");
    loses_nothing("insert into {ttl_expiry} select 5, key from {ttl_key}");
    loses_nothing("delete from {ttl_key}");
    loses_nothing("delete from {ttl_expiry}");
    loses_nothing("delete from {ttl_key}; delete from {ttl_expiry}");
}

#[test]
fn expiry_in_row_overrides_indexes() {
    let rows = repaired("update {data} set expire_ms = 1000007 where key = x'74746c'");
    assert_eq!(rows[&at("It's", "ttl")].1, Expiry::At(1_000_007));
    let rows = repaired("update {data} set expire_ms = null where key = x'74746c'");
    assert_eq!(rows[&at("It's", "ttl")].1, Expiry::Never);
    let rows = repaired("update {data} set expire_ms = 1000009 where key = x'706c61696e'");
    assert_eq!(rows[&at("It's", "plain")].1, Expiry::At(1_000_009));
    // The row has expired, whatever the index states.
    loses_only("ttl", "update {data} set expire_ms = 0 where key = x'74746c'");
    loses_only("ttl", "update {data} set expire_ms = -5 where key = x'74746c'");
    loses_only("ttl", "update {data} set expire_ms = 7 where key = x'74746c'");
}

#[test]
fn invalid_expiry_is_restored_from_key_index_or_row_removed() {
    loses_nothing("update {data} set expire_ms = 'soon' where key = x'74746c'");
    loses_nothing("update {data} set expire_ms = 1.5 where key = x'74746c'; delete from {ttl_expiry}");
    loses_nothing("update {data} set expire_ms = x'05' where key = x'6c617267652074746c'");
    // The expiry time of this row is lost. Its large value is removed with it.
    loses_only("large", "update {data} set expire_ms = 'soon' where key = x'6c61726765'");
    loses_only("plain", "update {data} set expire_ms = 'soon' where key = x'706c61696e'");
    loses_only("ttl", "update {data} set expire_ms = 'soon' where key = x'74746c'; delete from {ttl_key}");
    loses_only(
        "ttl",
        "update {data} set expire_ms = 'x' where key = x'74746c'; update {ttl_key} set expire_ms = -1",
    );
}

#[test]
fn missing_or_malformed_index_tables_are_rebuilt() {
    loses_nothing("drop table {ttl_key}");
    loses_nothing("drop table {ttl_expiry}");
    loses_nothing("drop table {ttl_key}; drop table {ttl_expiry}");
    loses_nothing(
        "drop table {ttl_expiry}; create table {ttl_expiry}(expire_ms integer primary key, key blob)",
    );
    loses_nothing("drop table {ttl_key}; create table {ttl_key}(key blob, expire_ms integer)");
    loses_nothing("drop table {ttl_key}; create table {ttl_key}(a)");
    loses_nothing("drop table {ttl_expiry}; create view {ttl_expiry} as select 1 as expire_ms, x'00' as key");
}

// ---- large values --------------------------------------------------------------------------------

#[test]
fn row_with_lost_large_value_is_removed() {
    loses_only("large", "update {data} set blob_id = 99 where blob_id = 1");
    loses_only("large", "delete from {blob} where id = 1");
    loses_only("large", "update {data} set blob_id = x'01' where blob_id = 1");
    let rows = repaired("drop table {blob}; drop view {live}; create view {live} as select 1");
    assert!(!rows.contains_key(&at("It's", "large")) && !rows.contains_key(&at("It's", "large ttl")));
    assert_eq!(rows.len(), 9);
}

#[test]
fn unreferenced_large_values_are_removed() {
    loses_nothing("insert into {blob} values(99, x'00')");
    let rows = repaired("update {data} set blob_id = null, value = x'' where blob_id = 1");
    assert_eq!(rows[&at("It's", "large")].0, b"");
}

#[test]
fn rows_sharing_large_value_get_own_copies() {
    let rows = repaired("delete from {blob} where id = 2; update {data} set blob_id = 1 where blob_id = 2");
    assert_eq!(rows[&at("It's", "large")].0, large(1));
    assert_eq!(rows[&at("It's", "large ttl")].0, large(1));
    let rows = repaired("update {data} set blob_id = 1, value = null");
    assert!(["plain", "other", "ttl", "large"].iter().all(|key| rows[&at("It's", key)].0 == large(1)));
    // SQLite must choose another number if the greatest one is in use.
    let greatest = "9223372036854775807";
    let rows = repaired(&format!(
        "update {{blob}} set id = {greatest} where id = 1; update {{data}} set blob_id = {greatest} where blob_id = 1; \
         update {{data}} set blob_id = {greatest} where blob_id = 2"
    ));
    assert_eq!(rows[&at("It's", "large ttl")].0, large(1));
}

#[test]
fn row_keeps_readable_value_or_is_removed() {
    loses_only("plain", "update {data} set value = null where key = x'706c61696e'");
    let rows = repaired("update {data} set value = x'00' where blob_id = 1");
    assert_eq!(rows[&at("It's", "large")].0, [0]);
    loses_nothing("update {data} set blob_id = x'01' where key = x'706c61696e'");
    loses_nothing("update {data} set value = 7 where blob_id = 1");
}

#[test]
fn text_value_is_kept_as_bytes_and_number_is_dropped() {
    loses_nothing("update {data} set value = '1' where key = x'706c61696e'");
    loses_nothing("update {data} set key = 'plain' where key = x'706c61696e'");
    loses_nothing("insert into {data} values('plain', x'99', null, null, null)"); // the correct row stays
    loses_nothing("update {blob} set value = cast(value as text) where id = 1");
    loses_only("plain", "update {data} set value = 7 where key = x'706c61696e'");
    loses_only("plain", "update {data} set key = 7 where key = x'706c61696e'");
    loses_only("plain", "update {data} set key = x'' where key = x'706c61696e'");
    loses_only("large", "update {blob} set value = 1.5 where id = 1");
}

// ---- write times ---------------------------------------------------------------------------------

/// Returns the keys of "Tracked" that a sweep of keys older than half a second removes, in a store
/// that is repaired an hour after it was written.
fn swept_after(sql: &str) -> Vec<Vec<u8>> {
    let scratch = sound();
    damage(&scratch.path(), sql);
    let store = scratch.open_at(&TestClock::at(NOW + 3_600_000));
    assert!(store.repair().unwrap() > 0, "{sql}");
    store.integrity_check().unwrap();
    let tracked = store.family("Tracked").unwrap();
    let before = common::keys(tracked.iter());
    tracked.sweep(Duration::from_millis(500)).unwrap();
    store.integrity_check().unwrap();
    let after = common::keys(tracked.iter());
    before.into_iter().filter(|key| !after.contains(key)).collect()
}

#[test]
fn write_time_index_is_rebuilt_from_rows() {
    for sql in [
        "delete from {T written}",
        "update {T written} set written_ms = written_ms + 1",
        "insert into {T written} values(5, x'00')",
        "insert into {T written} select 5, key from {T data}",
        "drop table {T written}",
        "drop table {T written}; create table {T written}(written_ms integer primary key, key blob)",
    ] {
        loses_nothing(sql);
        assert_eq!(swept_after(sql).len(), 5, "{sql}");
    }
    loses_nothing("update {data} set written_ms = 5");
    loses_nothing("update {data} set written_ms = 'never' where key = x'706c61696e'");
    loses_nothing(
        "create table {written}(written_ms integer, key blob, primary key(written_ms, key)) without rowid",
    );
}

#[test]
fn lost_write_time_is_taken_from_index_or_clock() {
    for lost in ["null", "'never'", "1.5"] {
        let sql = format!("update {{T data}} set written_ms = {lost} where key = x'706c61696e'");
        loses_nothing(&sql);
        assert_eq!(swept_after(&sql).len(), 5, "{sql}");
        let sql = format!("{sql}; delete from {{T written}}");
        loses_nothing(&sql);
        let swept = swept_after(&sql);
        assert!(swept.len() == 4 && !swept.contains(&b"plain".to_vec()), "{sql}");
    }
}

#[test]
fn family_with_write_times_gets_write_tracking() {
    let sql = "update kvstore_family set track_writes = 0 where name = 'Tracked'";
    loses_nothing(sql);
    assert_eq!(swept_after(sql).len(), 5);
    loses_nothing(
        "update kvstore_family set track_writes = 0 where name = 'Tracked'; update {T data} set written_ms = null",
    );
    loses_nothing("update kvstore_family set track_writes = 1 where name like 'It%'");
}

// ---- when a repair is impossible or unnecessary ------------------------------------------------

#[test]
fn intact_store_is_unchanged() {
    let scratch = sound();
    damage(
        &scratch.path(),
        "create table notes(a); create index notes_a on notes(a); create view v as select 1",
    );
    for engine in [true, false] {
        let before = scratch.bytes();
        let store = open(&scratch, engine);
        assert_eq!(store.repair().unwrap(), 0);
        assert_eq!(store.stats().unwrap().wal_frames, 0);
        store.close().unwrap();
        assert_eq!(scratch.bytes(), before);
    }
    assert_eq!(common::memory().repair().unwrap(), 0);
}

#[test]
fn file_that_sqlite_finds_damaged_is_refused_and_unchanged() {
    let scratch = sound();
    let mut bytes = fs::read(scratch.path()).unwrap();
    let page = bytes.len() - 4096;
    bytes[page..page + 100].fill(0xA5);
    fs::write(scratch.path(), &bytes).unwrap();
    damage(&scratch.path(), "select 1");
    let store = scratch.open();
    let refused = store.repair().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Corrupt);
    assert!(refused.to_string().contains("nothing was changed"), "{refused}");
    store.close().unwrap();
    assert!(fs::read(scratch.path()).unwrap() == bytes);
}

#[test]
fn repair_is_refused_in_transaction_and_read_only() {
    let scratch = sound();
    damage(&scratch.path(), "delete from {ttl_key}");
    let store = scratch.open();
    for write in [true, false] {
        common::begin(&store, write).unwrap();
        let refused = store.repair().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Busy);
        assert!(refused.to_string().contains("commit or roll back"), "{refused}");
        store.commit().unwrap(); // it is as good as before
    }
    let other = scratch.open();
    other.begin_write().unwrap();
    assert_eq!(kind(store.repair()), ErrorKind::Busy);
    other.rollback().unwrap();
    let reader = scratch.open_with(&Config::new().read_only(true));
    assert_eq!(kind(reader.repair()), ErrorKind::ReadOnly);
    assert_eq!(kind(store.integrity_check()), ErrorKind::Corrupt);
    assert!(store.repair().unwrap() > 0);
    reader.integrity_check().unwrap();
    store.close().unwrap();
    assert_eq!(kind(store.repair()), ErrorKind::Misuse);
}

#[test]
fn failed_repair_changes_nothing() {
    let scratch = sound();
    // This unique index forbids what a repair adds to the key index.
    damage(
        &scratch.path(),
        "delete from {ttl_key}; create unique index i on {ttl_key}((1)); drop view {live}",
    );
    for engine in [true, false] {
        let store = open(&scratch, engine);
        let before = store.integrity_check().unwrap_err();
        assert_eq!(kind(store.repair()), ErrorKind::Error);
        assert_eq!(store.integrity_check().unwrap_err(), before);
        store.put("b", "1").unwrap();
        store.close().unwrap();
    }
}

#[test]
fn open_handles_and_iterators_see_repaired_store() {
    let scratch = sound();
    damage(&scratch.path(), "delete from {ttl_key}; delete from kvstore_family where name = 'Tracked'");
    let (one, two) = (scratch.open_at(&TestClock::at(NOW)), scratch.open_at(&TestClock::at(NOW)));
    let (one_family, two_family) = (one.family("It's").unwrap(), two.family("It's").unwrap());
    let mut walk = one_family.iter();
    assert_eq!(two_family.get("plain").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(walk.next().unwrap().unwrap().0, b"large");
    assert!(one.repair().unwrap() > 0);
    assert_eq!(walk.count(), 4);
    for (store, family) in [(&one, &one_family), (&two, &two_family)] {
        family.put_with_expiry("ttl", "5", Expiry::At(LATER + 5)).unwrap();
        family.put("large", "small").unwrap();
        store.family("Tracked").unwrap().put("a", "1").unwrap();
        store.integrity_check().unwrap();
    }
}

#[test]
fn repairing_handle_rereads_expiry_bounds() {
    for sql_engine in [false, true] {
        let scratch = Scratch::new();
        let clock = TestClock::at(NOW);
        let store = scratch.open_with(&Config::new().sql_engine(sql_engine));
        clock.drive(&store);
        store.put_with_expiry("dead", "1", Expiry::At(NOW + 1)).unwrap();
        store.put("alive", "2").unwrap();
        damage(&scratch.path(), "delete from \"ttl_key:default\"; delete from \"ttl_expiry:default\"");
        assert_eq!(store.next_expiry_all_families().unwrap(), None);
        clock.set(NOW + 2);
        assert_eq!(store.purge_step(None, None).unwrap().deleted, 0);
        assert_eq!(store.repair().unwrap(), 2);
        assert_eq!(store.next_expiry_all_families().unwrap(), Some(NOW + 1));
        assert_eq!(store.purge_step(None, None).unwrap().deleted, 1);
        store.integrity_check().unwrap();
    }
}
