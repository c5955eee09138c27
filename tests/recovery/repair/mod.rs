//! Repair: after any damage with which SQLite itself can still work, the integrity check passes
//! again, and every row that could be read before still can. damage.rs tests the messages of the
//! check; malformed_files/repair.rs repairs the damages of malformed_files/statements.rs.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;

use crate::common::{self, Scratch, TestClock, kind, python};
use crate::sqlite;
use kvstore::{Config, ErrorKind, Expiry, RepairEvent, Result, Store, SyncLevel};

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

// ---- the catalogue and the tables ----------------------------------------------------------------

#[test]
fn missing_live_view_is_recreated() {
    loses_nothing("drop view {live}");
    // The check looks only for the name.
    for (other, fixed) in [("view {live} as select 1", 1), ("table {live}(a)", 2)] {
        let scratch = sound();
        damage(&scratch.path(), &format!("drop view {{live}}; create {other}"));
        let store = scratch.open_at(&TestClock::at(NOW));
        assert_eq!(store.repair().unwrap(), fixed);
        let count = "print(*con.execute('select count(*) from \"live:^It\\'s\"').fetchone())";
        assert_eq!(python(&scratch.path(), count), "5"); // by the system's clock
    }
}

#[test]
fn family_without_data_table_becomes_empty() {
    let rows = repaired("drop view {live}; drop table {data}");
    assert_eq!(rows.len(), 6);
    loses_nothing("insert into kvstore_family values('ghost', 1, 0, 0)");
}

#[test]
fn family_missing_from_catalogue_is_restored() {
    for name in ["It''s", "Tracked"] {
        loses_nothing(&format!("delete from kvstore_family where name = '{name}'"));
    }
    loses_nothing("update kvstore_family set name = 'ghost' where name = 'Tracked'");
    loses_nothing("update kvstore_family set name = cast(name as blob) where name = 'Tracked'");
    let sql = "delete from kvstore_family where name = 'Tracked'";
    assert_eq!(swept_after(sql).len(), 5);
}

#[test]
fn invalid_family_names_are_removed_from_catalogue() {
    for name in ["''", "'__x'", "x'fffe'", "cast(x'fffe' as text)", "'a' || char(0)", "printf('%300s', 'n')"]
    {
        loses_nothing(&format!("insert into kvstore_family values({name}, 1, 0, 0)"));
    }
}

#[test]
fn default_family_is_restored_in_open_store() {
    if common::are_closed_to_other_programs() {
        return;
    }
    let scratch = sound();
    for (sql, left) in [
        ("delete from kvstore_family where name = 'default'", 1),
        ("delete from kvstore_family; drop view \"live:default\"; drop table \"data:default\"", 0),
    ] {
        let store = scratch.open_at(&TestClock::at(NOW));
        let statements = sql.split(';').map(|sql| format!("con.execute({:?})\n", sql.trim()));
        python(&scratch.path(), &statements.collect::<String>());
        assert_eq!(kind(store.integrity_check()), ErrorKind::Corrupt);
        assert!(store.repair().unwrap() > 0);
        store.integrity_check().unwrap();
        assert_eq!(store.count().unwrap(), left);
        store.close().unwrap();
        scratch.open().integrity_check().unwrap();
    }
}

#[test]
fn orphan_tables_are_dropped_or_renamed_if_not_empty() {
    for kind in ["data", "blob", "ttl_key", "ttl_expiry", "written", "live"] {
        loses_nothing(&format!("create table \"{kind}:ghost\"(a)"));
        loses_nothing(&format!("create view \"{kind}:ghost\" as select 1"));
    }
    for table in ["data:ghost", "blob:ghost", "data:Ghost", "live:ghost", "kvstore_ghost", "data:__x"] {
        let sql = format!("create table \"{table}\"(a); insert into \"{table}\" values('theirs')");
        loses_nothing(&sql);
        let scratch = sound();
        damage(&scratch.path(), &format!("{sql}; create table \"lost:{table}\"(a); drop view {{live}}"));
        scratch.open().repair().unwrap();
        let program = format!("print(*con.execute('select a from \"lost:{table}:2\"').fetchone())");
        assert_eq!(python(&scratch.path(), &program), "theirs");
    }
}

#[test]
fn malformed_data_table_is_kept_under_other_name() {
    let scratch = sound();
    damage(
        &scratch.path(),
        "drop table {data}; create table {data}(key blob primary key, value blob) without rowid; \
         insert into {data} values(x'61', x'62')",
    );
    let store = scratch.open_at(&TestClock::at(NOW));
    assert!(store.integrity_check().is_err());
    store.repair().unwrap();
    store.integrity_check().unwrap();
    assert_eq!(store.family("It's").unwrap().count().unwrap(), 0);
    let program = "print(con.execute('select value from \"lost:data:^It\\'s\"').fetchone()[0].decode())";
    assert_eq!(python(&scratch.path(), program), "b");
}

#[test]
fn malformed_schema_rows_are_corrected() {
    for change in [
        "tbl_name = cast(tbl_name as blob) where name = 'ttl_expiry:^It''s'",
        "name = cast(name as blob) where name = 'blob:^It''s'",
        "type = cast(type as blob) where name = 'blob:^It''s'",
    ] {
        loses_nothing(&format!("pragma writable_schema = on; update sqlite_schema set {change}"));
    }
}

#[test]
fn malformed_catalogue_is_rebuilt() {
    loses_nothing(
        "drop table kvstore_family; create table kvstore_family(name, default_ttl_ms, track_writes);
         insert into kvstore_family values('default', 'x', 'y'), ('default', 1, 2), (null, 0, 0), ('Tracked', 5, 5)",
    );
}

/// Returns what the repair of this damage reports: message and key.
fn reported(sql: &str) -> Vec<(String, Option<Vec<u8>>)> {
    let mut all = Vec::new();
    for engine in [true, false] {
        let scratch = sound();
        damage(&scratch.path(), sql);
        let store = open(&scratch, engine);
        let mut told = Vec::new();
        let tell = |what: RepairEvent<'_>| told.push((what.message.to_owned(), what.key.map(<[u8]>::to_vec)));
        let fixed = store.repair_with(tell).unwrap_or_else(|e| panic!("{sql}: {e}"));
        assert!(fixed > 0 && store.integrity_check().is_ok(), "{sql}");
        all.push(told);
    }
    assert_eq!(all[0], all[1], "the engines differ: {sql}");
    all.swap_remove(0)
}

#[test]
fn missing_catalogue_is_rebuilt_from_tables() {
    for sql in ["drop table kvstore_family", "delete from kvstore_family"] {
        loses_nothing(sql);
        let told = reported(sql);
        for family in FAMILIES {
            let words =
                format!("family \"{family}\" was entered in the catalogue again: it has no default TTL");
            assert!(told.iter().any(|(text, _)| text.starts_with(&words)), "{told:?}");
        }
        assert_eq!(
            told.iter().any(|(text, _)| text.contains("kvstore_family was made anew")),
            sql.starts_with("drop")
        );
    }
    loses_nothing("drop table kvstore_family; create view kvstore_family as select 1");
    loses_nothing("drop table kvstore_family; create table kvstore_family(a)");
    loses_nothing("alter table kvstore_family rename column track_writes to other");
    loses_nothing("delete from kvstore_family where name = 'default'");
    loses_nothing("pragma user_version = 0");
    loses_nothing("pragma user_version = -1");
}

#[test]
fn catalogue_with_other_definition_keeps_its_settings() {
    for other in ["", ", more DEFAULT 7"] {
        let scratch = sound();
        damage(
            &scratch.path(),
            &format!(
                "update kvstore_family set default_ttl_ms = 77000 where name = 'Tracked'; \
                 update kvstore_meta set value = 'x';
                 create table c(name TEXT, created_ms, default_ttl_ms, track_writes{other});
                 insert into c(name, created_ms, default_ttl_ms, track_writes) select * from kvstore_family;
                 drop table kvstore_family; alter table c rename to kvstore_family;
                 create table m(name TEXT, value); insert into m select * from kvstore_meta;
                 drop table kvstore_meta; alter table m rename to kvstore_meta"
            ),
        );
        let store = open(&scratch, false);
        assert_eq!(store.info().unwrap().created_by.as_deref(), Some("x"));
        assert!(store.integrity_check().is_err());
        store.repair().unwrap();
        store.integrity_check().unwrap();
        assert_eq!(store.info().unwrap().created_by.as_deref(), Some("x"));
        let tracked = store.family("Tracked").unwrap();
        assert_eq!(tracked.default_ttl().unwrap(), Some(Duration::from_secs(77)));
        assert_eq!((tracked.created_ms().unwrap(), tracked.tracks_writes().unwrap()), (NOW, true));
        store.close().unwrap();
        let aside = "print(con.execute('select count(*) from sqlite_schema where name like \"lost:%\"').fetchone()[0])";
        assert_eq!(python(&scratch.path(), aside), if other.is_empty() { "0" } else { "1" });
    }
}

#[test]
fn invalid_settings_are_reset_to_defaults_and_reported() {
    for (column, values) in [
        ("default_ttl_ms", &["-5", "'soon'", "null", "x'05'", "1.5", "9223372036854775807"][..]),
        ("created_ms", &["null", "'once'", "1.5"]),
        ("track_writes", &["null", "'yes'", "2", "-1"]),
    ] {
        for value in values {
            let sql = format!("update kvstore_family set {column} = {value} where name = 'It''s'");
            if column == "track_writes" && matches!(*value, "2" | "-1") {
                continue; // it counts as tracked
            }
            loses_nothing(&sql);
            let now = if column == "created_ms" { NOW } else { 0 };
            let told = reported(&sql);
            assert_eq!(told.len(), 1, "{told:?}");
            assert!(told[0].0.starts_with(&format!("family \"It's\": its {column} was not ")), "{told:?}");
            assert!(told[0].0.ends_with(&format!(", and is {now} now")), "{told:?}");
        }
    }
    loses_nothing("update kvstore_family set track_writes = 5 where name = 'Tracked'");
    loses_nothing("update kvstore_family set track_writes = 'yes' where name = 'Tracked'");
    loses_nothing("update kvstore_family set created_ms = null, default_ttl_ms = 'x', track_writes = -1");
}

#[test]
fn rows_with_invalid_keys_are_removed_and_reported() {
    loses_nothing("insert into {data}(key, value) values(zeroblob(65537), x'00')");
    loses_nothing("insert into {data}(key, value) values(cast(zeroblob(65537) as text), x'00')");
    let text = "family \"It's\": a row with a key of 65537 bytes was removed: its key is too long";
    let long = reported("insert into {data}(key, value) values(zeroblob(65537), x'00')");
    assert_eq!(long, [(text.to_owned(), Some(vec![0; 65_537]))]);
    for (damage, why) in [
        ("delete from {blob} where id = 1", "its value is lost"),
        ("update {data} set value = 7, blob_id = null where blob_id = 1", "its value is lost"),
        ("update {data} set expire_ms = 'x' where blob_id = 1", "nobody knows how long it may be shown"),
    ] {
        let text = format!("family \"It's\": a row with a key of 5 bytes was removed: {why}");
        assert_eq!(reported(damage), [(text, Some(b"large".to_vec()))], "{damage}");
    }
    let text = "the table \"data:ghost\" is \"lost:data:ghost\" now";
    let aside = reported("create table \"data:ghost\"(a); insert into \"data:ghost\" values(1)");
    assert_eq!(aside, [(text.to_owned(), None)]);
    // With an index, no data is lost.
    assert_eq!(reported("drop table {ttl_key}; drop view {live}; update {T written} set written_ms = 5"), []);
}

#[test]
fn tables_with_other_definition_are_rebuilt_with_content() {
    for other in ["{live} as select 1", "{live} as select * from {data}"] {
        loses_nothing(&format!("drop view {{live}}; create view {other}"));
    }
    loses_nothing("drop view {live}; create table {live}(a); insert into {live} values(1)");
    loses_nothing(
        "create table c(expire_ms INTEGER NOT NULL, key BLOB NOT NULL, PRIMARY KEY(expire_ms, key)); \
         insert into c select * from {ttl_expiry}; drop table {ttl_expiry}; alter table c rename to {ttl_expiry}",
    );
    loses_nothing(
        "create table c(written_ms INTEGER, key BLOB, PRIMARY KEY(written_ms, key)); \
         insert into c select * from {T written}; drop table {T written}; alter table c rename to {T written}",
    );
    loses_nothing(
        "drop view {live}; create table c(id INTEGER, value BLOB); insert into c select * from {blob}; \
         drop table {blob}; alter table c rename to {blob}",
    );
    loses_nothing("create table \"blob:default\"(a)");
    loses_nothing("create table \"blob:default\"(id INTEGER PRIMARY KEY, value BLOB)");
    for definition in ["", ", PRIMARY KEY(key, value)"] {
        loses_nothing(&format!(
            "drop view {{live}}; \
             create table c(key BLOB, value BLOB, expire_ms INTEGER, blob_id INTEGER, written_ms INTEGER{definition}); \
             insert into c select * from {{data}}; drop table {{data}}; alter table c rename to {{data}}"
        ));
    }
}

#[test]
fn usable_data_table_with_extra_column_is_kept() {
    let scratch = sound();
    damage(&scratch.path(), "alter table {data} add column more default 7");
    for engine in [true, false] {
        let store = open(&scratch, engine);
        store.integrity_check().unwrap();
        assert_eq!(store.repair().unwrap(), 0);
    }
}

#[test]
fn combined_damages_are_repaired() {
    let rows = repaired(
        "delete from kvstore_family where name like 'It%'; drop view {live}; drop table {ttl_key}; \
         update {data} set key = 'plain' where key = x'706c61696e'; delete from {blob} where id = 1; \
         update {T data} set written_ms = null; delete from {T ttl_expiry}; update {T data} set blob_id = 1 \
         where blob_id = 2; create table \"blob:ghost\"(a)",
    );
    assert_eq!(rows.len(), 10);
}

// ---- when a repair is impossible or unnecessary
// ---------------------------------------------------

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
