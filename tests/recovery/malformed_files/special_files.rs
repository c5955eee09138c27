//! Unusual objects at the paths of a store and of its log files, such as directories and FIFOs, and
//! files that other programs change while they are open. The store is opened by another process,
//! because opening a FIFO could block for ever, and without privileges where permissions matter.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use kvstore::{ErrorKind, Result, Store};

use super::exercise::config;
use super::{run_child, with_suffix};
use crate::common::other::say;
use crate::common::{Scratch, kind};

/// An unprivileged user.
const NOBODY: u32 = 65_534;

/// How the other process opens the store.
const WAYS: [&str; 4] = ["sql", "btree", "sql read-only", "btree read-only"];

/// Opens the store as the given user, uses it, and reports the number of rows or the error.
pub fn child(place: &str, directory: &Path) {
    let (user, way) = place.split_once(' ').unwrap();
    if user == "nobody" {
        // SAFETY: this process has one test to run, and gives its rights up for good.
        assert_eq!(unsafe { libc::setgid(NOBODY) } | unsafe { libc::setuid(NOBODY) }, 0);
    }
    let config = config(way.starts_with("sql")).read_only(way.ends_with("read-only"));
    let answer = Store::open_with(directory.join("store.db"), &config).and_then(|store| {
        let rows = store.iter().collect::<Result<Vec<_>>>()?.len();
        if !way.ends_with("read-only") {
            store.put("new", "1")?;
            store.sync()?;
            store.close()?;
        }
        Ok(rows)
    });
    match answer {
        Ok(rows) => say(format_args!("rows {rows}")),
        Err(e) => say(format_args!("{:?} {e}", e.kind())),
    }
}

/// Opens the store in all ways. Returns, for each, the number of rows or the error.
fn opened(scratch: &Scratch, place: &str, user: &str, prepare: impl Fn()) -> Vec<String> {
    WAYS.iter()
        .map(|way| {
            prepare();
            let mut said = String::new();
            let ended = run_child(&format!("place {user} {way}"), scratch.dir(), |line| {
                line.clone_into(&mut said);
                true
            });
            ended.unwrap_or_else(|what| panic!("{place}, {way}: {what}"));
            said
        })
        .collect()
}

/// Asserts that each answer is the row, or an error of one of these kinds.
#[track_caller]
fn is_clear(place: &str, answers: &[String], kinds: &[ErrorKind]) {
    for (answer, way) in answers.iter().zip(WAYS) {
        let (kind, text) = answer.split_once(' ').unwrap();
        let allowed = kinds.iter().any(|allowed| format!("{allowed:?}") == kind);
        assert!(answer == "rows 1" || allowed && text.len() > 20, "{place}, {way}: {answer}");
    }
}

fn fifo(path: &Path) {
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: a C string that lives as long as the call.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o666) }, 0);
}

/// A closed store with one row, in a directory that is readable for every user.
fn one_row() -> Scratch {
    let scratch = Scratch::new();
    scratch.open().put("a", "1").unwrap();
    fs::set_permissions(scratch.dir(), fs::Permissions::from_mode(0o777)).unwrap();
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o666)).unwrap();
    scratch
}

fn remove(path: &Path) {
    if path.symlink_metadata().is_ok_and(|found| found.is_dir()) {
        fs::remove_dir(path).unwrap();
    } else {
        let _ = fs::remove_file(path);
    }
}

type Maker = fn(&Path);

/// Objects that are not regular files, or are not readable.
const NO_FILES: [(&str, Maker); 5] = [
    ("a directory", |path| fs::create_dir(path).unwrap()),
    ("a FIFO", fifo),
    ("a link to itself", |path| symlink(path, path).unwrap()),
    ("a link to nowhere", |path| symlink("nowhere/at/all", path).unwrap()),
    ("a file without read permission", |path| {
        fs::write(path, [7; 40]).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o0)).unwrap();
    }),
];

fn check_path_with_suffix(suffix: &str) {
    let sound = one_row();
    let bytes = fs::read(sound.path()).unwrap();
    for (what, make) in NO_FILES {
        for user in ["root", "nobody"] {
            let answers = opened(&sound, what, user, || {
                for suffix in ["-wal", "-shm", "-journal"] {
                    remove(&with_suffix(&sound.path(), suffix));
                }
                fs::write(sound.path(), &bytes).unwrap();
                make(&with_suffix(&sound.path(), suffix));
            });
            use ErrorKind::{CantOpen, Corrupt, Io, NotADatabase, ReadOnly};
            is_clear(
                &format!("{suffix} is {what}, as {user}"),
                &answers,
                &[CantOpen, Io, ReadOnly, Corrupt, NotADatabase],
            );
        }
        remove(&with_suffix(&sound.path(), suffix));
    }
}

#[test]
fn non_file_at_wal_path_is_error() {
    check_path_with_suffix("-wal");
}

#[test]
fn non_file_at_wal_index_path_is_error() {
    check_path_with_suffix("-shm");
}

#[test]
fn non_file_at_journal_path_is_error() {
    check_path_with_suffix("-journal");
}

#[test]
fn non_file_at_store_path_is_error() {
    let scratch = one_row();
    for (what, make) in NO_FILES {
        for user in ["root", "nobody"] {
            let answers = opened(&scratch, what, user, || {
                remove(&scratch.path());
                make(&scratch.path());
            });
            for answer in &answers {
                let (kind, text) = answer.split_once(' ').unwrap();
                let refused = ["CantOpen", "NotADatabase"].contains(&kind) && text.len() > 20;
                assert!(refused, "the store is {what}, as {user}: {answer}");
            }
        }
    }
}

#[test]
fn store_without_write_permission_is_read_or_refused() {
    for (file, directory) in [(0o444, 0o777), (0o666, 0o555), (0o444, 0o555), (0, 0o777)] {
        for with_wal in [false, true] {
            let scratch = one_row();
            if with_wal {
                let store = scratch.open();
                store.put("b", "2").unwrap();
                store.delete("b").unwrap();
                let copies: Vec<_> = [scratch.path(), scratch.wal()]
                    .map(|path| (path.clone(), fs::read(&path).unwrap()))
                    .into();
                store.close().unwrap();
                copies.iter().for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
            }
            fs::set_permissions(scratch.path(), fs::Permissions::from_mode(file)).unwrap();
            fs::set_permissions(scratch.dir(), fs::Permissions::from_mode(directory)).unwrap();
            // This process, which has all permissions, captures the stderr of the other one.
            let answers = opened(&scratch, "rights", "nobody", || {});
            fs::set_permissions(scratch.dir(), fs::Permissions::from_mode(0o777)).unwrap();
            is_clear(
                &format!("file {file:o}, directory {directory:o}, WAL {with_wal}"),
                &answers,
                &[ErrorKind::CantOpen, ErrorKind::ReadOnly, ErrorKind::Io],
            );
        }
    }
}

#[test]
fn file_removed_or_replaced_while_open_is_safe() {
    for sql in [true, false] {
        for replace in [false, true] {
            let scratch = one_row();
            let store = Store::open_with(scratch.path(), &config(sql)).unwrap();
            store.put("b", "2").unwrap();
            let other = one_row();
            if replace {
                fs::rename(other.path(), scratch.path()).unwrap();
            } else {
                fs::remove_file(scratch.path()).unwrap();
            }
            // Either result is fine until the change is noticed (`tests/files/file_paths`).
            for answer in [store.get("b").map(drop), store.put("c", "3"), store.close()] {
                assert!(answer.is_ok() || kind(answer) == ErrorKind::Io);
            }
            if replace {
                for suffix in ["-wal", "-shm"] {
                    remove(&with_suffix(&scratch.path(), suffix));
                }
                let store = scratch.open();
                assert_eq!(store.count().unwrap(), 1);
                store.integrity_check().unwrap();
            }
        }
    }
}

#[test]
fn incremental_vacuum_without_auto_vacuum_terminates() {
    for sql in [true, false] {
        let scratch = one_row();
        let con = rusqlite::Connection::open(scratch.path()).unwrap();
        con.execute_batch("PRAGMA journal_mode = DELETE; PRAGMA auto_vacuum = NONE; VACUUM").unwrap();
        con.close().unwrap();
        let store = Store::open_with(scratch.path(), &config(sql)).unwrap();
        // More pages than one transaction returns.
        store.put("large", vec![0; 5 << 20]).unwrap();
        store.delete("large").unwrap();
        store.close().unwrap();
        let mut said = String::new();
        let ended = run_child(&format!("vacuum {sql}"), scratch.dir(), |line| {
            line.clone_into(&mut said);
            true
        });
        assert_eq!((ended, said.as_str()), (Ok(()), "vacuumed"));
    }
}

/// Main function of the other process in the test above.
pub fn vacuum(sql: &str, directory: &Path) {
    let store = Store::open_with(directory.join("store.db"), &config(sql == "true")).unwrap();
    store.incremental_vacuum(None).unwrap();
    say("vacuumed");
}
