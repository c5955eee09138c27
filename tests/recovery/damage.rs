//! Damaged stores: the integrity check describes the damage, a purge never makes it worse, and
//! nothing panics. Another process does the damage with Python's SQLite while the store is closed.

use std::fs;
use std::time::Duration;

use crate::common::{self, Scratch, TestClock, keys, kind, python};
use kvstore::{Config, ErrorKind, Expiry, Hint, Result, Store};

/// Far in the future, for the wall clock, too.
const LATER: i64 = 4_000_000_000_000;

/// Creates a closed, sound store with rows of every kind in a family other than the default one.
fn sound() -> Scratch {
    let scratch = Scratch::new();
    let store = scratch.open();
    let family = store.create_family("It's").unwrap();
    family.put("plain", "1").unwrap();
    family.put_with_expiry("ttl", "1", Expiry::At(LATER)).unwrap();
    family.put("large", vec![1; 5_000]).unwrap();
    family.put_with_expiry("large ttl", vec![2; 5_000], Expiry::At(LATER + 1)).unwrap();
    store.integrity_check().unwrap();
    store.close().unwrap();
    scratch
}

/// Runs SQL on the closed store. `{T:x}` in it is table x of the family.
fn damage(scratch: &Scratch, sql: &str) {
    let mut program = String::new();
    for statement in sql.split(';') {
        let statement = ["data", "blob", "ttl_key", "ttl_expiry", "live"]
            .iter()
            .fold(statement.trim().to_owned(), |statement, kind| {
                statement.replace(&format!("{{{kind}}}"), &format!("\"{kind}:^It's\""))
            });
        program += &format!("con.execute({statement:?})\n");
    }
    python(&scratch.path(), &program);
}

/// Asserts that the check of a store with this damage fails, and that its message contains all of
/// `words` and the family's name.
#[track_caller]
fn finds(sql: &str, words: &str) {
    let scratch = sound();
    damage(&scratch, sql);
    let found = scratch.open().integrity_check().expect_err("the damage was not found");
    assert_eq!(found.kind(), ErrorKind::Corrupt);
    let text = found.to_string();
    assert!(text.contains(words) && text.contains("It's"), "found instead: {text}");
}

// ---- what the integrity check finds --------------------------------------------------------------

#[test]
fn check_finds_expiry_entry_without_row() {
    finds("insert into {ttl_expiry} values(5, x'00')", "the expiry index has an entry without a data row");
}

#[test]
fn check_finds_key_index_entry_without_row() {
    finds("insert into {ttl_key} values(x'00', 5)", "the key index has an entry without a data row");
}

#[test]
fn check_finds_index_entries_of_deleted_row() {
    finds("delete from {data} where key = x'74746c'", "index has an entry without a data row");
}

#[test]
fn check_finds_row_time_differing_from_key_index() {
    finds("update {ttl_key} set expire_ms = 7", "the key index has another expire_ms than the data row");
}

#[test]
fn check_finds_row_time_differing_from_expiry_index() {
    finds(
        "update {ttl_expiry} set expire_ms = expire_ms + 7",
        "the expiry index has another expire_ms than the data row",
    );
}

#[test]
fn check_finds_second_expiry_entry_of_key() {
    finds(
        "insert into {ttl_expiry} select 5, key from {ttl_key}",
        "the expiry index has another expire_ms than the data row",
    );
}

#[test]
fn check_finds_changed_time_in_row() {
    finds(
        "update {data} set expire_ms = 7 where key = x'74746c'",
        "index has another expire_ms than the data row",
    );
}

#[test]
fn check_finds_index_entries_of_row_without_ttl() {
    finds(
        "update {data} set expire_ms = null where key = x'74746c'",
        "index has another expire_ms than the data row",
    );
}

#[test]
fn check_finds_row_missing_in_one_or_both_indexes() {
    finds("delete from {ttl_key}", "a data row has an expire_ms, but the key index has no entry for it");
    finds(
        "delete from {ttl_expiry}",
        "a data row has an expire_ms, but the expiry index has no entry for it",
    );
    finds("delete from {ttl_key}; delete from {ttl_expiry}", "index has no entry for it");
    finds("update {data} set expire_ms = 9 where key = x'706c61696e'", "index has no entry for it");
}

#[test]
fn check_finds_missing_index_tables() {
    finds("drop table {ttl_key}", "only one of its two index tables");
    finds("drop table {ttl_expiry}", "only one of its two index tables");
    finds("drop table {ttl_key}; drop table {ttl_expiry}", "index has no entry for it");
}

#[test]
fn check_finds_dangling_blob_id() {
    finds("update {data} set blob_id = 99 where blob_id = 1", "a blob_id points nowhere");
    finds("delete from {blob} where id = 1", "a blob_id points nowhere");
    finds("drop table {blob}; drop view {live}; create view {live} as select 1", "a blob_id points nowhere");
}

#[test]
fn check_finds_unreferenced_blob() {
    finds("insert into {blob} values(99, x'00')", "a blob has no data row that points to it");
    finds("update {data} set blob_id = null, value = x'' where blob_id = 1", "a blob has no data row");
}

#[test]
fn check_finds_blob_shared_by_two_rows() {
    finds("delete from {blob} where id = 2; update {data} set blob_id = 1 where blob_id = 2", "share a blob");
}

#[test]
fn check_finds_row_with_no_value_or_two_values() {
    finds(
        "update {data} set value = null where key = x'706c61696e'",
        "neither a value nor a blob_id, or both",
    );
    finds("update {data} set value = x'00' where blob_id = 1", "neither a value nor a blob_id, or both");
}

#[test]
fn check_finds_columns_of_wrong_type() {
    for change in [
        "update {data} set value = 'text' where key = x'706c61696e'",
        "update {data} set value = 7 where key = x'706c61696e'",
        "update {data} set expire_ms = 'soon' where key = x'706c61696e'",
        "update {data} set expire_ms = 1.5 where key = x'706c61696e'",
        "update {data} set expire_ms = 0 where key = x'706c61696e'",
        "update {data} set blob_id = x'01' where key = x'706c61696e'",
        "update {data} set written_ms = 'never' where key = x'706c61696e'",
        "update {data} set key = 'plain' where key = x'706c61696e'",
        "update {data} set key = x'' where key = x'706c61696e'",
    ] {
        finds(change, "a data row has a column of the wrong type");
    }
    finds("update {blob} set value = 'text' where id = 1", "a blob has the wrong type");
}

#[test]
fn check_finds_missing_data_table_and_view() {
    finds("drop view {live}; drop table {data}", "has no table \"data:^It's\"");
    finds("drop view {live}", "has no view \"live:^It's\"");
    let scratch = sound();
    python(&scratch.path(), "con.execute(\"insert into kvstore_family values('ghost', 1, 0, 0)\")");
    let found = scratch.open().integrity_check().unwrap_err();
    assert!(found.to_string().contains("family \"ghost\" has no table \"data:ghost\""), "{found}");
}

#[test]
fn check_finds_tables_without_family() {
    for kind in ["data", "blob", "ttl_key", "ttl_expiry", "written"] {
        let scratch = sound();
        damage(&scratch, &format!("create table \"{kind}:ghost\"(a)"));
        let found = scratch.open().integrity_check().unwrap_err();
        let text = format!("table \"{kind}:ghost\" belongs to no family");
        assert_eq!((found.kind(), found.message()), (ErrorKind::Corrupt, &*text));
        assert_eq!(found.hint(), Some(Hint::Repair));
    }
    let scratch = sound();
    damage(&scratch, "delete from kvstore_family where name like 'It%'");
    let found = scratch.open().integrity_check().unwrap_err();
    assert!(found.to_string().contains(":^It's\" belongs to no family"), "{found}");
}

#[test]
fn check_finds_malformed_schema_rows() {
    if common::are_closed_to_other_programs() {
        return;
    }
    for change in [
        "tbl_name = cast(tbl_name as blob) where name = 'ttl_expiry:^It''s'",
        "tbl_name = 'data:default' where name = 'live:^It''s'",
        "name = cast(name as blob) where name = 'blob:^It''s'",
    ] {
        let scratch = sound();
        damage(&scratch, &format!("pragma writable_schema = on; update sqlite_schema set {change}"));
        // SQLite itself detects some of the damages when the file is opened.
        let found = Store::open(scratch.path()).and_then(|store| store.integrity_check());
        assert_eq!(kind(found), ErrorKind::Corrupt, "{change}");
    }
}

/// SQLite's own check compares this number only if the first entry of its schema is no view, which
/// depends on the names of the families.
#[test]
fn check_finds_wrong_greatest_root_page_in_header() {
    if common::are_closed_to_other_programs() || kvstore::engine() != "btree" {
        return;
    }
    for count in 0..8 {
        let scratch = Scratch::new();
        let store = scratch.open();
        (0..count).for_each(|n| drop(store.create_family(&format!("family {n}")).unwrap()));
        store.put_with_expiry("a", "1", Expiry::At(i64::MAX)).unwrap();
        store.integrity_check().unwrap();
        store.close().unwrap();
        let mut bytes = fs::read(scratch.path()).unwrap();
        bytes[52] = 0x77; // its first byte
        fs::write(scratch.path(), bytes).unwrap();
        for sql in [false, true] {
            let found = scratch.open_with(&Config::new().sql_engine(sql)).integrity_check();
            assert_eq!(kind(found), ErrorKind::Corrupt, "{count} {sql}");
        }
    }
}

/// A table whose name is damaged must not count as missing: a write would create a second one, and
/// the ids of large values would refer to the values of other keys.
#[test]
fn store_with_damaged_table_name_is_not_opened() {
    if common::are_closed_to_other_programs() {
        return;
    }
    for table in ["data", "blob", "ttl_key", "ttl_expiry", "live"] {
        for column in ["name", "tbl_name", "type"] {
            let scratch = sound();
            let change = format!(
                "pragma writable_schema = on; update sqlite_schema set {column} = 'x' || substr({column}, 2) \
                 where name = '{table}:^It''s'"
            );
            damage(&scratch, &change);
            let opened = Store::open(scratch.path()).map(drop);
            assert_eq!(kind(opened), ErrorKind::Corrupt, "{table}, {column}");
        }
    }
}

/// Reads and writes of one table would change another one.
#[test]
fn store_with_two_tables_on_one_root_page_is_not_opened() {
    if common::are_closed_to_other_programs() {
        return;
    }
    let root = |table: &str| format!("(select rootpage from sqlite_schema where name = '{table}')");
    for (table, other) in [
        ("data:^It''s", root("data:default")),
        ("data:default", root("kvstore_family")),
        ("blob:^It''s", root("data:^It''s")),
        ("data:^It''s", "1".to_owned()),
    ] {
        for config in [Config::new(), Config::new().sql_engine(true)] {
            let scratch = sound();
            let change = format!(
                "pragma writable_schema = on; update sqlite_schema set rootpage = {other} where name = '{table}'"
            );
            damage(&scratch, &change);
            let opened = Store::open_with(scratch.path(), &config).map(drop);
            assert_eq!(kind(opened), ErrorKind::Corrupt, "{table}: {other}");
        }
    }
}

/// Tables of other programs in the file, with all the ways to write a name.
#[test]
fn tables_of_other_programs_do_not_prevent_open() {
    if common::are_closed_to_other_programs() {
        return;
    }
    let scratch = sound();
    for name in
        ["plain", "'single'", "[brackets]", "`grave`", "\"double \"\"\"", "/* comment */ after", "a\n"]
    {
        damage(&scratch, &format!("create table {name}(a primary key, b unique) /* end */"));
    }
    let more = "con.executescript('create view seen as select a from plain; create index fast on plain(b); \
                create table made as select 1 x; create virtual table words using fts5(text); \
                create trigger t after insert on plain begin select 1; end; \
                alter table plain rename to \"new name\"')";
    python(&scratch.path(), more);
    let store = Store::open(scratch.path()).unwrap();
    assert_eq!(store.family("It's").unwrap().get("plain").unwrap().as_deref(), Some(&b"1"[..]));
    store.integrity_check().unwrap();
}

#[test]
fn check_finds_live_view_with_other_definition() {
    for other in [
        "drop view {live}; create view {live} as select key, value, expire_ms from {data}",
        "drop view {live}; create table {live}(key, value, expire_ms)",
    ] {
        finds(other, "\"live:^It's\" is not the view it should be");
    }
    // This needs a join with the table of large values, if there is one.
    let scratch = Scratch::new();
    scratch.open().put("a", "1").unwrap();
    python(
        &scratch.path(),
        "con.execute('create table \"blob:default\"(id integer primary key, value blob)')",
    );
    let found = scratch.open().integrity_check().unwrap_err();
    assert!(
        found.to_string().contains("\"blob:default\" does not have the form that this library creates"),
        "{found}"
    );
    let same = "con.execute('drop table \"blob:default\"'); \
                con.execute('CREATE TABLE \"blob:default\"(id INTEGER PRIMARY KEY, value BLOB)')";
    python(&scratch.path(), same);
    let found = scratch.open().integrity_check().unwrap_err();
    assert!(found.to_string().contains("\"live:default\" is not the view"), "{found}");
}

#[test]
fn check_finds_tables_with_other_definition() {
    for (kind, other) in [
        ("ttl_expiry", "(expire_ms INTEGER NOT NULL, key BLOB NOT NULL, PRIMARY KEY(expire_ms, key))"),
        ("ttl_expiry", "(a)"),
        ("ttl_key", "(key BLOB PRIMARY KEY, expire_ms INTEGER NOT NULL)"),
        ("ttl_key", "(a)"),
        ("written", "(written_ms INTEGER, key BLOB, PRIMARY KEY(written_ms, key))"),
        ("blob", "(id INTEGER, value BLOB)"),
        ("blob", "(a)"),
        ("data", "(a)"),
        ("data", "(key BLOB, value BLOB, expire_ms INTEGER, blob_id INTEGER, written_ms INTEGER)"),
    ] {
        let scratch = sound();
        python(&scratch.path(), &format!("con.execute('drop table if exists \"{kind}:^It\\'s\"')"));
        python(&scratch.path(), &format!("con.execute('create table \"{kind}:^It\\'s\"{other}')"));
        let found = scratch.open().integrity_check().unwrap_err();
        let words = format!(
            "family \"It's\": the table \"{kind}:^It's\" does not have the form that this library creates"
        );
        assert!(found.to_string().contains(&words), "{kind} {other}: {found}");
        assert_eq!(found.kind(), ErrorKind::Corrupt);
    }
    for (table, rest) in [("kvstore_meta", "(name, value)"), ("kvstore_family", FAMILY_WITH_ROWIDS)] {
        let scratch = sound();
        python(&scratch.path(), &copied_into(table, rest));
        let found = scratch.open().integrity_check().unwrap_err();
        assert!(
            found.to_string().contains("does not have the form that this library creates"),
            "{table}: {found}"
        );
    }
}

/// The columns of the catalogue, in a table with rowids.
const FAMILY_WITH_ROWIDS: &str =
    "(name TEXT PRIMARY KEY, created_ms INTEGER, default_ttl_ms INTEGER, track_writes INTEGER)";

/// Returns a program that replaces a table by one with the same rows and another definition.
fn copied_into(table: &str, definition: &str) -> String {
    format!(
        "con.executescript('create table copied{definition}; insert into copied select * from {table}; \
         drop table {table}; alter table copied rename to {table}')"
    )
}

#[test]
fn check_finds_key_longer_than_limit() {
    finds(
        "insert into {data}(key, value) values(zeroblob(65537), x'00')",
        "a data row has a key that is too long (a key of 65537 bytes)",
    );
    let scratch = sound();
    damage(&scratch, "insert into {data}(key, value) values(zeroblob(65536), x'00')");
    scratch.open().integrity_check().unwrap();
}

#[test]
fn check_finds_invalid_settings_which_count_as_unset() {
    for (column, value) in [
        ("default_ttl_ms", "-5"),
        ("default_ttl_ms", "9223372036854775807"),
        ("default_ttl_ms", "630720000001"),
        ("default_ttl_ms", "''soon''"),
        ("default_ttl_ms", "7.5"),
        ("default_ttl_ms", "null"),
        ("created_ms", "null"),
        ("created_ms", "''once''"),
        ("track_writes", "null"),
        ("track_writes", "''yes''"),
        ("track_writes", "x''01''"),
    ] {
        for sql in [true, false] {
            let scratch = sound();
            let change = format!("update kvstore_family set {column} = {} where name like ''It%''", value);
            damage(&scratch, &change.replace("''", "'"));
            let store = scratch.open_with(&Config::new().sql_engine(sql));
            let found = store.integrity_check().unwrap_err();
            assert_eq!(found.kind(), ErrorKind::Corrupt);
            let words = format!("family \"It's\": its {column} in the catalogue is not");
            assert!(found.to_string().contains(&words), "{value}: {found}");
            let family = store.family("It's").unwrap();
            assert_eq!(family.default_ttl().unwrap(), None, "{value}");
            assert!(!family.tracks_writes().unwrap(), "{value}");
            family.put("new", "1").unwrap();
            assert_eq!(family.ttl("new").unwrap(), Some(kvstore::Ttl::None), "{value}");
            let info = store.info().unwrap();
            let told = info.families.iter().find(|family| family.name == "It's").unwrap();
            assert_eq!((told.default_ttl, told.created_ms.is_none()), (None, column == "created_ms"));
        }
    }
}

#[test]
fn check_accepts_unrelated_tables() {
    let scratch = sound();
    damage(
        &scratch,
        "create table notes(a); create index notes_a on notes(a); create view v as select 1; analyze",
    );
    scratch.open().integrity_check().unwrap();
}

#[test]
fn check_message_never_contains_key_or_value() {
    let scratch = sound();
    damage(&scratch, "delete from {data} where key = x'74746c'");
    let found = scratch.open().integrity_check().unwrap_err().to_string();
    assert!(found.contains("a key of 3 bytes") && !found.contains("ttl\""), "{found}");
}

// ---- damage below SQL ----------------------------------------------------------------------------

/// Creates a closed store with some hundred pages of all kinds. Returns its bytes.
fn many_pages(scratch: &Scratch) -> Vec<u8> {
    let store = scratch.open();
    store
        .transaction(|tx| -> Result<()> {
            for n in 0..400_u32 {
                tx.put_with_expiry(n.to_be_bytes(), vec![n as u8; 300], Expiry::At(LATER + i64::from(n)))?;
            }
            (0..10_u8).try_for_each(|n| tx.put([n], vec![n; 10_000]))
        })
        .unwrap();
    store.close().unwrap();
    fs::read(scratch.path()).unwrap()
}

#[test]
fn check_finds_overwritten_pages_and_no_call_panics() {
    let scratch = Scratch::new();
    let sound = many_pages(&scratch);
    let pages = sound.len() / 4096;
    assert!(pages > 60, "{pages}");
    for page in (1..pages).step_by(3) {
        let mut damaged = sound.clone();
        damaged[page * 4096..][..100].fill(0xA5);
        fs::write(scratch.path(), damaged).unwrap();
        let Ok(store) = Store::open(scratch.path()) else { continue };
        let found = store.integrity_check().expect_err("the damage was not found");
        assert_eq!(found.kind(), ErrorKind::Corrupt, "page {page}: {found}");
        // These calls may fail, but must return.
        let _ = store.iter().chain(store.iter().rev()).count();
        for n in 0..400_u32 {
            let _ = store.get(n.to_be_bytes());
        }
        let _ = store.purge_expired();
        let _ = store.put(7_u32.to_be_bytes(), vec![1; 9_000]);
        let _ = store.delete([7]);
        let _ = store.clear();
    }
}

#[test]
fn check_finds_truncated_file_and_no_call_panics() {
    let scratch = Scratch::new();
    let sound = many_pages(&scratch);
    for keep in [100, 512, 4_096, 5_000, 40_960, sound.len() / 2, sound.len() - 4_096] {
        fs::write(scratch.path(), &sound[..keep]).unwrap();
        let Ok(store) = Store::open(scratch.path()) else { continue };
        assert_eq!(kind(store.integrity_check()), ErrorKind::Corrupt, "{keep} bytes");
        let _ = store.iter().count();
        let _ = store.put("a", "1");
    }
}

#[test]
fn store_without_its_catalogue_is_corrupt_when_opened() {
    for sql in [
        "delete from kvstore_family where name = 'default'",
        "drop table kvstore_family",
        "pragma user_version = 0",
    ] {
        let scratch = sound();
        damage(&scratch, sql);
        let refused = Store::open_with(scratch.path(), &common::maybe_encrypted(&Config::new())).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Corrupt, "{sql}");
        assert_eq!(refused.hint(), Some(Hint::RepairFile), "{refused}");
        // But an open for a repair succeeds, and the check names the damage.
        let store = scratch.open_with(&Config::new().allow_damaged(true).read_only(true));
        let found = store.integrity_check().unwrap_err();
        assert_eq!(found.kind(), ErrorKind::Corrupt, "{sql}");
        assert!(
            ["no line for the family \"default\"", "(kvstore_family) is missing", "format version 0"]
                .iter()
                .any(|words| found.to_string().contains(words)),
            "{found}"
        );
    }
}

// ---- working on damaged stores -------------------------------------------------------------------

#[test]
fn purge_with_stale_expiry_entries_keeps_live_rows() {
    let scratch = Scratch::new();
    let store = scratch.open();
    store.put("plain", "1").unwrap();
    store.put_with_expiry("later", vec![1; 5_000], Expiry::At(LATER)).unwrap();
    store.close().unwrap();
    python(
        &scratch.path(),
        "for n in range(1, 700):
    for key in (b'plain', b'later', b'missing'):
        con.execute('insert into \"ttl_expiry:default\" values(?, ?)', (n, key))",
    );
    let store = scratch.open();
    assert_eq!(store.purge_expired().unwrap(), 0);
    assert_eq!(keys(store.iter()), [b"later", b"plain"]);
    assert_eq!(store.get("later").unwrap(), Some(vec![1; 5_000]));
    store.integrity_check().unwrap();
}

#[test]
fn purge_deletes_expired_row_once_despite_wrong_index_entry() {
    let scratch = Scratch::new();
    let store = scratch.open_at(&TestClock::at(500));
    store.put_with_expiry("dead", "1", Expiry::At(1_000)).unwrap();
    store.close().unwrap();
    python(&scratch.path(), "con.execute('update \"ttl_expiry:default\" set expire_ms = 700')");
    let store = scratch.open();
    assert_eq!(store.purge_expired().unwrap(), 1);
    assert_eq!(store.count().unwrap(), 0);
    assert_eq!(store.purge_expired().unwrap(), 0);
    store.integrity_check().unwrap();
}

#[test]
fn purge_reports_index_of_wrong_type() {
    let scratch = Scratch::new();
    let store = scratch.open();
    store.put_with_expiry("a", "1", Expiry::At(LATER)).unwrap();
    store.close().unwrap();
    python(&scratch.path(), "con.execute('insert into \"ttl_expiry:default\" values(?, ?)', (5, 'text'))");
    let store = scratch.open();
    assert_eq!(kind(store.purge_expired()), ErrorKind::Corrupt);
    assert!(store.exists("a").unwrap());
}

#[test]
fn damaged_rows_are_corrupt_and_other_rows_readable() {
    let scratch = sound();
    damage(&scratch, "delete from {blob} where id = 1");
    let store = scratch.open();
    let family = store.family("It's").unwrap();
    assert_eq!(kind(family.get("large")), ErrorKind::Corrupt);
    assert_eq!(family.get("large ttl").unwrap(), Some(vec![2; 5_000]));
    assert_eq!(family.get("plain").unwrap().as_deref(), Some(&b"1"[..]));
    assert!(family.iter().any(|entry| entry.is_err()));
    assert!(family.delete("large").unwrap());
    store.integrity_check().unwrap();
}

#[test]
fn partially_failed_write_fails_its_transaction() {
    let scratch = sound();
    damage(&scratch, "delete from {blob} where id = 1");
    let store = scratch.open();
    let family = store.family("It's").unwrap();
    store.begin_write().unwrap();
    store.put("a", "1").unwrap();
    assert_eq!(kind(family.put("large", vec![3; 6_000])), ErrorKind::Corrupt);
    assert_eq!(kind(store.put("b", "1")), ErrorKind::Corrupt);
    assert!(store.commit().unwrap_err().hint() == Some(Hint::RollBack));
    assert_eq!(kind(store.commit()), ErrorKind::Corrupt);
    assert_eq!(kind(store.begin_write()), ErrorKind::Error);
    assert!(!store.exists("a").unwrap()); // undone already
    store.rollback().unwrap();
    assert_eq!(store.count().unwrap(), 0);
    store.put("b", "1").unwrap();
    // Outside a transaction the failed call is rolled back whole.
    assert_eq!(
        kind(family.put_with_ttl("large", vec![3; 6_000], Duration::from_secs(9))),
        ErrorKind::Corrupt
    );
    assert_eq!(family.ttl("large").unwrap(), Some(kvstore::Ttl::None));
}

#[test]
fn foreign_unique_index_refuses_only_conflicting_rows() {
    let scratch = sound();
    damage(
        &scratch,
        "update {data} set value = x'30' where key = x'706c61696e'; create unique index i on {data}(value)",
    );
    for sql in [true, false] {
        let store = scratch.open_with(&Config::new().sql_engine(sql));
        let family = store.family("It's").unwrap();
        family.put("plain", "2").unwrap();
        for refused in [
            family.put("ttl", "2"),
            family.put("new", "2"),
            family.put_with_expiry("new", "2", Expiry::At(LATER)),
        ] {
            let refused = refused.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Error);
            assert!(refused.to_string().contains("another program"), "{refused}");
        }
        assert_eq!(family.count().unwrap(), 4);
        family.put("plain", "3").unwrap();
        store.integrity_check().unwrap();
    }
}

#[test]
fn foreign_triggers_do_not_run() {
    let scratch = sound();
    python(
        &scratch.path(),
        "con.execute('create trigger t before insert on \"data:default\" begin select raise(abort, \"x\"); end')",
    );
    let store = scratch.open();
    store.put("a", "1").unwrap();
    store.integrity_check().unwrap();
}

// ---- what other tools see ------------------------------------------------------------------------

#[test]
fn live_view_shows_live_rows_and_values_to_other_programs() {
    if common::are_closed_to_other_programs() {
        return;
    }
    let scratch = Scratch::new();
    let store = scratch.open();
    let view = "select count(*) from \"live:default\"";
    let counted = || python(&scratch.path(), &format!("print(*con.execute('{view}').fetchone())"));
    store.put("small", "1").unwrap();
    assert_eq!(counted(), "1");
    for n in 0..50_u8 {
        store
            .put_with_expiry([b'd', n], vec![n; 100 * usize::from(n)], Expiry::At(1_000 + i64::from(n)))
            .unwrap();
        store
            .put_with_expiry([b'l', n], vec![n; 100 * usize::from(n)], Expiry::At(LATER + i64::from(n)))
            .unwrap();
    }
    assert_eq!(store.iter().count(), 51);
    assert_eq!(counted(), "51");
    assert_eq!(store.count().unwrap(), 101);
    let values = python(
        &scratch.path(),
        "print(all(bytes(v) == bytes([k[1]]) * (100 * k[1]) and e == 4000000000000 + k[1]
for k, v, e in con.execute('select key, value, expire_ms from \"live:default\" where key <> ?', (b'small',))))",
    );
    assert_eq!(values, "True");
    assert_eq!(store.purge_expired().unwrap(), 50);
    assert_eq!(counted(), "51");
}

#[test]
fn other_programs_find_documented_file_format() {
    if common::are_encrypted() {
        return; // they see it by SQLCipher
    }
    let scratch = sound();
    let seen = python(
        &scratch.path(),
        "one = lambda sql: con.execute(sql).fetchone()[0]
print(hex(one('pragma application_id')), one('pragma user_version'), one('pragma auto_vacuum'),
      one('pragma journal_mode'), one('pragma integrity_check'))
print(*sorted(x[0] for x in con.execute('select name from sqlite_schema where name not like \"sqlite%\"')), sep=' | ')
print(*sorted(x[0] for x in con.execute('select name from kvstore_family')))",
    );
    assert_eq!(
        seen,
        "0x4b565331 1 2 wal ok\n\
         blob:^It's | data:^It's | data:default | kvstore_family | kvstore_meta | live:^It's | live:default | \
         ttl_expiry:^It's | ttl_key:^It's\n\
         It's default"
    );
}

#[test]
fn small_values_are_inline_and_large_values_in_blob_table() {
    let scratch = Scratch::new();
    let store = scratch.open();
    for n in 0..100_u8 {
        store.put([n], vec![n; 40 * usize::from(n)]).unwrap();
    }
    store.put_with_expiry("t", "1", Expiry::At(LATER)).unwrap();
    let counts = python(
        &scratch.path(),
        "one = lambda sql: con.execute(sql).fetchone()[0]
print(one('select max(length(key) + length(value)) < 300 from \"data:default\"'),
      one('select min(length(value)) > 200 from \"blob:default\"'),
      one('select count(*) from \"ttl_key:default\"'), one('select count(*) from \"ttl_expiry:default\"'))",
    );
    assert_eq!(counts, "1 1 1 1");
}
