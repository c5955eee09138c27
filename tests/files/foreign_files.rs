//! Files that are not stores, above all those of other programs: every open is refused, and no byte
//! changes.

use std::fs;
use std::process::Command;

use crate::common::{Scratch, delete_mode, keys, kind, python};
use kvstore::{Config, ErrorKind, Store};

/// Opens what is at the store's path in every way, and demands that each fails and no byte of any
/// file changes.
#[track_caller]
fn assert_refused_unchanged(scratch: &Scratch, expected: ErrorKind) {
    let before = scratch.bytes();
    for config in [Config::new(), delete_mode(), Config::new().read_only(true), Config::new().exclusive(true)]
    {
        let refused = Store::open_with(scratch.path(), &config).expect_err("this is no store");
        assert_eq!(refused.kind(), expected, "{refused}");
        let after = scratch.bytes();
        assert_eq!(before.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>(), "{config:?}");
        for (name, bytes) in &before {
            assert!(after[name] == *bytes, "{name} was changed by opening with {config:?}");
        }
    }
}

#[test]
fn text_file_is_refused_and_unchanged() {
    let long = "not a database, but a text of more than a hundred bytes\n".repeat(200);
    for text in ["xy", "short", long.as_str()] {
        let scratch = Scratch::new();
        fs::write(scratch.path(), text).unwrap();
        assert_refused_unchanged(&scratch, ErrorKind::NotADatabase);
    }
}

#[test]
fn one_byte_file_is_refused_and_unchanged() {
    let scratch = Scratch::new();
    fs::write(scratch.path(), "x").unwrap();
    assert_refused_unchanged(&scratch, ErrorKind::NotADatabase);
}

/// Header of a rollback journal (SQLite's fileformat2.html, chapter 3) of a database with this
/// number of pages.
fn journal(pages: u32) -> Vec<u8> {
    let mut journal = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7".to_vec();
    for number in [0, 7, pages, 512, 4096] {
        journal.extend(u32::to_be_bytes(number));
    }
    journal.resize(1024, 0);
    journal
}

/// Otherwise, SQLite would delete the other file, or write the first pages of a store over this
/// one.
#[test]
fn file_with_stray_journal_is_refused_and_both_are_unchanged() {
    let text = b"my notes\n".repeat(1000);
    let mut begun = vec![0; 2000];
    begun[511] = 1;
    for (file, journal) in [
        (&text[..1], &text[..20]),
        (&text[..10], &journal(0)),
        (&text[..107], &text),
        (&text, &journal(0)),
        (&text, &journal(3)),
        (&[0; 1], &text),
        (&[0; 4096], &text),
        (&[0; 4096], &journal(3)),
        (&[0; 4096], &journal(0)[..19]),
        (&begun, &journal(0)),
    ] {
        let scratch = Scratch::new();
        fs::write(scratch.path(), file).unwrap();
        fs::write(scratch.file("store.db-journal"), journal).unwrap();
        assert_refused_unchanged(&scratch, ErrorKind::NotADatabase);
    }
}

#[test]
fn creation_interrupted_before_first_sector_is_restarted() {
    let mut late = vec![0; 4096];
    late[512] = 1;
    for file in [&[0; 512][..], &[0; 8192], &late] {
        let scratch = Scratch::new();
        fs::write(scratch.path(), file).unwrap();
        fs::write(scratch.file("store.db-journal"), journal(0)).unwrap();
        scratch.open().put("a", "1").unwrap();
        assert_eq!(keys(scratch.open().iter()), [b"a"]);
        assert!(!scratch.file("store.db-journal").exists());
    }
}

#[test]
fn foreign_sqlite_file_is_refused_and_unchanged() {
    for program in [
        "con.execute('create table t(a)')",
        "con.execute('pragma application_id = 7')",
        "con.execute('pragma application_id = 7'); con.execute('create table t(a)')",
        "con.execute('pragma journal_mode = wal'); con.execute('create table t(a)')",
    ] {
        let scratch = Scratch::new();
        python(&scratch.path(), program);
        assert_refused_unchanged(&scratch, ErrorKind::NotADatabase);
    }
}

#[test]
fn foreign_file_with_leftover_wal_is_refused_and_unchanged() {
    let scratch = Scratch::new();
    python(
        &scratch.path(),
        "con.execute('create table t(a)'); con.execute('pragma journal_mode = wal')
con.execute('insert into t values(1)'); os._exit(0)",
    );
    assert!(fs::metadata(scratch.wal()).unwrap().len() > 0);
    assert_refused_unchanged(&scratch, ErrorKind::NotADatabase);
}

#[test]
fn foreign_file_with_tables_only_in_wal_is_refused() {
    let scratch = Scratch::new();
    python(
        &scratch.path(),
        "con.execute('pragma journal_mode = wal'); con.execute('create table t(a)')
con.execute('insert into t values(1)'); os._exit(0)",
    );
    assert!(fs::metadata(scratch.wal()).unwrap().len() > 0);
    assert_refused_unchanged(&scratch, ErrorKind::NotADatabase);
}

#[test]
fn foreign_file_with_hot_journal_is_refused_and_unchanged() {
    let scratch = Scratch::new();
    python(
        &scratch.path(),
        "con.execute('create table t(a)'); con.execute('insert into t values(zeroblob(100000))')
con.execute('pragma cache_size = 1'); con.execute('begin')
con.execute('update t set a = randomblob(100000)'); con.execute('insert into t values(randomblob(900000))')
os._exit(0)",
    );
    assert!(scratch.file("store.db-journal").exists());
    assert_refused_unchanged(&scratch, ErrorKind::NotADatabase);
}

#[test]
fn empty_utf16_sqlite_file_is_refused_and_unchanged() {
    for encoding in ["UTF-16le", "UTF-16be"] {
        let scratch = Scratch::new();
        python(
            &scratch.path(),
            &format!(
                "con.execute('pragma encoding = \"{encoding}\"'); con.execute('create table t(a)'); con.execute('drop table t')"
            ),
        );
        let before = scratch.bytes();
        for config in [Config::new(), delete_mode(), Config::new().exclusive(true)] {
            let refused = Store::open_with(scratch.path(), &config).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::NotADatabase, "{refused}");
            assert!(refused.to_string().contains(encoding), "{refused}");
            assert!(scratch.bytes() == before, "{config:?}");
        }
    }
}

#[test]
fn empty_file_and_empty_sqlite_file_become_stores() {
    for program in
        ["pass", "con.execute('pragma journal_mode = wal')", "con.execute('pragma user_version = 0')"]
    {
        let scratch = Scratch::new();
        python(&scratch.path(), program);
        scratch.open().put("a", "1").unwrap();
        assert_eq!(keys(scratch.open().iter()), [b"a"]);
        // New stores use incremental vacuum.
        assert_eq!(python(&scratch.path(), "print(*con.execute('pragma auto_vacuum').fetchone())"), "2");
    }
}

#[test]
fn store_of_newer_format_is_refused_and_unchanged() {
    for mode in ["wal", "delete"] {
        let scratch = Scratch::new();
        scratch.open().put("a", "1").unwrap();
        python(
            &scratch.path(),
            &format!("con.execute('pragma user_version = 2'); con.execute('pragma journal_mode = {mode}')"),
        );
        let before = scratch.bytes();
        for config in [Config::new(), delete_mode()] {
            let refused = Store::open_with(scratch.path(), &config).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::CantOpen);
            assert!(refused.to_string().contains("version 2"), "{refused}");
            assert!(scratch.bytes() == before, "a {mode} file was changed by {config:?}");
        }
    }
}

#[test]
fn directory_fifo_and_missing_directory_cannot_be_opened() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.file("dir")).unwrap();
    assert!(Command::new("mkfifo").arg(scratch.file("fifo")).status().unwrap().success());
    for read_only in [false, true] {
        let config = Config::new().read_only(read_only);
        for path in [scratch.file("dir"), scratch.file("fifo"), scratch.file("missing/store.db")] {
            assert_eq!(kind(Store::open_with(&path, &config)), ErrorKind::CantOpen, "{path:?}");
        }
    }
    let said = Store::open(scratch.file("missing/store.db")).unwrap_err().to_string();
    assert!(
        said.ends_with("missing/store.db: the directory of the file does not exist: create it first"),
        "{said}"
    );
    assert_eq!(kind(Store::open("")), ErrorKind::CantOpen);
    assert_eq!(fs::read_dir(scratch.dir()).unwrap().count(), 2);
    assert_eq!(fs::read_dir(scratch.file("dir")).unwrap().count(), 0);
}

#[test]
fn new_store_spares_database_with_the_name_of_its_log() {
    for suffix in ["-journal", "-wal", "-shm"] {
        let scratch = Scratch::new();
        let path = scratch.file("new.db");
        let beside = scratch.file(&format!("new.db{suffix}"));
        let store = scratch.open();
        store.put("a", "1").unwrap();
        store.backup(&beside, |_, _| true).unwrap();
        let before = fs::read(&beside).unwrap();
        for _ in 0..2 {
            let why = Store::open(&path).unwrap_err();
            assert_eq!(why.kind(), ErrorKind::CantOpen);
            assert!(why.message().contains(&format!("\"{suffix}\" appended is a database")), "{why}");
            assert!(!path.exists());
        }
        assert_eq!(fs::read(&beside).unwrap(), before);
    }
}
