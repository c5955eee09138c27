//! A second copy of SQLite in the process (Debian's library, linked or loaded; Python's module)
//! opens, reads, writes and closes the file of an open store. Neither copy may release the other's
//! locks, as a third process checks, and no commit may be lost.
//!
//! This cannot be guaranteed on kernels without open file description locks. There, the tests use
//! one copy only, which must keep its locks.

use std::process::Command;

use crate::c_programs::{self, library_dir};
use crate::programs::{MODES, Program, is_long, linked_program, program, seed};

fn commits() -> String {
    if is_long() { "100000" } else { "10000" }.to_owned()
}

fn with_python(mode: &str, commits: Option<&str>) {
    let program = program("two_sqlites");
    program.finish(
        Command::new("python3")
            .arg(c_programs::root().join("tests/multiprocess/two_sqlites.py"))
            .arg(library_dir().join("libkvstore.so"))
            .arg(program.path())
            .arg(mode)
            .args(commits)
            .env("KVSTORE_SEED", seed()),
    );
}

fn write_at_once(program: &Program) {
    for mode in MODES {
        program.run(&["commits", mode, &commits(), &seed()]);
    }
}

#[test]
fn close_in_system_sqlite_or_kvstore_keeps_all_locks() {
    for mode in MODES {
        program("two_sqlites").run(&["holds", mode]);
    }
}

#[test]
fn close_in_linked_sqlite_or_kvstore_keeps_all_locks() {
    for mode in MODES {
        linked_program("two_sqlites").run(&["holds", mode]);
    }
}

#[test]
fn close_in_python_sqlite3_or_kvstore_keeps_all_locks() {
    for mode in MODES {
        with_python(mode, None);
    }
}

#[test]
fn concurrent_writes_with_system_sqlite_lose_no_data() {
    write_at_once(program("two_sqlites"));
}

#[test]
fn concurrent_writes_with_linked_sqlite_lose_no_data() {
    if is_long() {
        write_at_once(linked_program("two_sqlites"));
    } else {
        linked_program("two_sqlites").run(&["commits", "wal", "2000", &seed()]);
    }
}

#[test]
fn concurrent_writes_with_python_sqlite3_lose_no_data() {
    for mode in MODES {
        with_python(mode, Some(if is_long() { "20000" } else { "1000" }));
    }
}

#[test]
fn one_sqlite_copy_without_ofd_locks_keeps_locks_and_data() {
    println!("skipped: two copies of SQLite in one process, which POSIX locks cannot keep apart");
    for mode in MODES {
        program("two_sqlites").run_without_ofd(&["holds", mode, "alone"]);
        program("two_sqlites").run_without_ofd(&["commits", mode, "3000", &seed(), "alone"]);
    }
}
