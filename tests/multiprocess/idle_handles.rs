//! Idle handles that have read do not make the WAL of other processes grow. Also tests which
//! handles keep a snapshot between calls (`holdReads`).
//!
//! The limit is that of docs/explanation/durability.md: 4 × 4000 pages.

use crate::programs::{Program, is_long, program, seed};

fn idle() -> &'static Program {
    program("idle")
}

/// Three readers and a writer, which puts `short` keys, or `long` keys in the long form of the
/// tests.
fn writes(hold: &str, opened: &str, how: &str, (short, long): (&str, &str)) {
    let puts = if is_long() { long } else { short };
    idle().run(&["writes", puts, hold, opened, how, &seed()]);
}

#[test]
fn three_processes_that_read_once_and_sit_idle_do_not_let_the_wal_grow() {
    writes("0", "before", "once", ("300000", "10000000"));
}

#[test]
fn processes_that_come_after_the_writer_read_once_and_sit_idle_do_not_let_the_wal_grow() {
    writes("0", "after", "once", ("60000", "1000000"));
}

#[test]
fn processes_that_read_now_and_then_do_not_let_the_wal_grow() {
    writes("0", "before", "now-and-then", ("60000", "1000000"));
    writes("-1", "before", "now-and-then", ("60000", "1000000"));
}

#[test]
fn by_default_a_snapshot_is_kept_by_who_is_alone_and_hold_reads_forces_or_forbids_it() {
    idle().run(&["matrix"]);
}

#[test]
fn who_was_alone_and_is_joined_lets_go_with_its_next_call() {
    idle().run(&["joined", "0"]);
}

#[test]
fn who_never_keeps_a_snapshot_may_be_joined_while_it_sits_idle() {
    idle().run(&["joined", "-1"]);
    idle().run_without_ofd(&["joined", "-1"]);
    idle().run(&["joined", "small"]);
}
