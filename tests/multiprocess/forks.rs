//! A forked child can open its parent's store itself and use it, whatever the parent is doing.
//! Calls on inherited handles fail at once, and inherited handles keep no lock. Each child has a
//! time limit.
//!
//! On kernels without open file description locks, the child's open may be refused instead; it
//! never waits.

use crate::programs::{MODES, Program, program, seconds, seed};

fn forks() -> &'static Program {
    program("forks")
}

/// Forks in a state of the parent, in both journal modes, with and without open file description
/// locks.
fn rounds(state: &str, count: u32) {
    let few = (count / 4).max(1).to_string();
    for mode in MODES {
        forks().run(&["rounds", state, mode, &count.to_string(), &seconds(), &seed()]);
        forks().run_without_ofd(&["rounds", state, mode, &few, &seconds(), &seed()]);
    }
}

#[test]
fn forked_child_reopens_store_of_idle_parent() {
    rounds("idle", 40);
}

#[test]
fn forked_child_reopens_store_during_parent_read_transaction() {
    rounds("reading", 40);
}

#[test]
fn forked_child_reopens_store_locked_by_parent_transaction() {
    rounds("writing", 40);
}

#[test]
fn forked_child_opens_store_closed_by_parent() {
    rounds("closed", 40);
}

#[test]
fn forked_child_reopens_store_with_fifty_parent_handles() {
    rounds("many", 20);
}

#[test]
fn forked_child_reopens_store_while_parent_threads_write() {
    rounds("threads", 40);
}

#[test]
fn forked_child_reopens_store_while_parent_threads_open_it() {
    rounds("opening", 60);
}

#[test]
fn forked_child_reopens_store_while_parent_cleaner_runs() {
    rounds("cleaner", 40);
}

#[test]
fn forked_child_reopens_store_during_parent_backup() {
    rounds("backup", 30);
}

#[test]
fn forked_child_reopens_store_during_parent_checkpoint() {
    rounds("checkpoint", 30);
}

#[test]
fn child_forked_in_callback_reopens_store() {
    rounds("callback", 20);
}

#[test]
fn forked_child_is_busy_on_exclusive_store_of_parent() {
    for mode in MODES {
        forks().run(&["rounds", "exclusive", mode, "1", "0", &seed()]);
    }
    forks().run_without_ofd(&["rounds", "exclusive", "wal", "1", "0", &seed()]);
}

#[test]
fn killed_parent_leaves_no_lock_while_child_runs() {
    for mode in MODES {
        forks().run(&["killed", mode, "40", &seconds(), &seed()]);
        forks().run_without_ofd(&["killed", mode, "10", &seconds(), &seed()]);
    }
}

#[test]
fn exec_vfork_and_spawn_leak_nothing_and_keep_parent_locks() {
    for mode in MODES {
        forks().run(&["exec", mode]);
        forks().run_without_ofd(&["exec", mode]);
    }
}

#[test]
fn child_sets_wait_hook_while_threads_of_parent_wait() {
    forks().run(&["waiting", "wal", "300"]);
}
