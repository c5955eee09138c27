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
fn three_idle_readers_do_not_let_wal_grow() {
    writes("0", "before", "once", ("300000", "10000000"));
}

#[test]
fn idle_readers_started_after_writer_do_not_let_wal_grow() {
    writes("0", "after", "once", ("60000", "1000000"));
}

#[test]
fn occasional_readers_do_not_let_wal_grow() {
    writes("0", "before", "now-and-then", ("60000", "1000000"));
    writes("-1", "before", "now-and-then", ("60000", "1000000"));
}

#[test]
fn sole_handle_keeps_snapshot_unless_hold_reads_is_set() {
    idle().run(&["matrix"]);
}

#[test]
fn joined_sole_handle_releases_snapshot_with_next_call() {
    idle().run(&["joined", "0"]);
}

#[test]
fn idle_handle_without_snapshot_may_be_joined() {
    idle().run(&["joined", "-1"]);
    idle().run_without_ofd(&["joined", "-1"]);
    idle().run(&["joined", "small"]);
}
