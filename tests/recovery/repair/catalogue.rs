//! Repair of the catalogue of families, and of tables that are missing or of another form.

use std::time::Duration;

use super::{FAMILIES, NOW, damage, loses_nothing, open, repaired, sound, swept_after};
use crate::common::{self, TestClock, kind, python};
use kvstore::{ErrorKind, RepairEvent};

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
    let text = "the table \"data:ghost\" was renamed to \"lost:data:ghost\"";
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

#[test]
fn case_of_letters_in_schema_loses_nothing() {
    let columns = [
        ("data", ["key", "value", "expire_ms", "blob_id", "written_ms"].as_slice()),
        ("blob", &["id", "value"]),
        ("ttl_key", &["key", "expire_ms"]),
        ("ttl_expiry", &["key", "expire_ms"]),
        ("kvstore_family", &["name", "created_ms", "default_ttl_ms", "track_writes"]),
        ("kvstore_meta", &["name", "value"]),
    ];
    for (kind, columns) in columns {
        for table in ["It's", "Tracked"] {
            let name = if kind.starts_with("kvstore") { kind.to_owned() } else { format!("{kind}:^{table}") };
            let quoted = name.replace('\'', "''");
            for column in columns {
                let upper = column.to_uppercase();
                for (from, to) in [
                    (format!("({column} "), format!("({upper} ")),
                    (format!(" {column} "), format!(" {upper} ")),
                ] {
                    keeps_all(&format!("sql = replace(sql, '{from}', '{to}') where name = '{quoted}'"));
                }
            }
            let upper = quoted.to_uppercase();
            keeps_all(&format!("name = '{upper}', tbl_name = '{upper}' where name = '{quoted}'"));
        }
    }
}

/// Changes `sqlite_schema`, then checks that a check and a repair keep every row.
#[track_caller]
fn keeps_all(change: &str) {
    let expected = super::all(&super::open(&sound(), false));
    let scratch = sound();
    damage(
        &scratch.path(),
        &format!(
            "pragma writable_schema = on; update sqlite_schema set {change}; pragma writable_schema = reset"
        ),
    );
    let store = open(&scratch, false);
    let _ = store.integrity_check();
    store.repair().unwrap_or_else(|e| panic!("{change}: {e}"));
    store.integrity_check().unwrap_or_else(|e| panic!("{change}: {e}"));
    assert_eq!(super::all(&store), expected, "{change}");
    store.close().unwrap();
    let aside =
        "print(con.execute('select count(*) from sqlite_schema where name like \"lost:%\"').fetchone()[0])";
    assert_eq!(python(&scratch.path(), aside), "0", "{change}");
}
