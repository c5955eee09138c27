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
fn what_debians_sqlite_closes_beside_ours_takes_nobodys_locks_and_the_other_way_round() {
    for mode in MODES {
        program("two_sqlites").run(&["holds", mode]);
    }
}

#[test]
fn what_a_linked_sqlite_closes_beside_ours_takes_nobodys_locks_and_the_other_way_round() {
    for mode in MODES {
        linked_program("two_sqlites").run(&["holds", mode]);
    }
}

#[test]
fn what_pythons_sqlite3_closes_beside_ours_takes_nobodys_locks_and_the_other_way_round() {
    for mode in MODES {
        with_python(mode, None);
    }
}

#[test]
fn ours_and_debians_sqlite_write_at_once_in_one_process_and_in_a_third_one_and_lose_nothing() {
    write_at_once(program("two_sqlites"));
}

#[test]
fn ours_and_a_linked_sqlite_write_at_once_in_one_process_and_in_a_third_one_and_lose_nothing() {
    if is_long() {
        write_at_once(linked_program("two_sqlites"));
    } else {
        linked_program("two_sqlites").run(&["commits", "wal", "2000", &seed()]);
    }
}

#[test]
fn ours_and_pythons_sqlite3_write_in_one_process_beside_a_third_one_and_lose_nothing() {
    for mode in MODES {
        with_python(mode, Some(if is_long() { "20000" } else { "1000" }));
    }
}

#[test]
fn without_locks_of_a_descriptors_own_one_copy_of_sqlite_keeps_its_locks_and_loses_nothing() {
    println!("skipped: two copies of SQLite in one process, which POSIX locks cannot keep apart");
    for mode in MODES {
        program("two_sqlites").run_without_ofd(&["holds", mode, "alone"]);
        program("two_sqlites").run_without_ofd(&["commits", mode, "3000", &seed(), "alone"]);
    }
}
