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
fn a_child_opens_the_store_anew_and_reads_while_its_parent_writes() {
    rounds("idle", 40);
}

#[test]
fn a_child_opens_the_store_anew_while_its_parent_is_inside_a_read_transaction() {
    rounds("reading", 40);
}

#[test]
fn a_child_opens_the_store_anew_and_finds_it_locked_while_its_parent_is_inside_a_write_transaction() {
    rounds("writing", 40);
}

#[test]
fn a_child_opens_a_store_that_its_parent_has_closed() {
    rounds("closed", 40);
}

#[test]
fn a_child_opens_the_store_anew_of_which_its_parent_has_fifty_handles() {
    rounds("many", 20);
}

#[test]
fn a_child_opens_the_store_anew_while_threads_of_its_parent_get_and_put() {
    rounds("threads", 40);
}

#[test]
fn a_child_opens_the_store_anew_while_threads_of_its_parent_open_and_close_handles() {
    rounds("opening", 60);
}

#[test]
fn a_child_opens_the_store_anew_while_a_cleaner_of_its_parent_runs() {
    rounds("cleaner", 40);
}

#[test]
fn a_child_opens_the_store_anew_while_its_parent_backs_it_up() {
    rounds("backup", 30);
}

#[test]
fn a_child_opens_the_store_anew_while_its_parent_checkpoints() {
    rounds("checkpoint", 30);
}

#[test]
fn a_child_that_was_forked_inside_a_callback_opens_the_store_anew() {
    rounds("callback", 20);
}

#[test]
fn a_child_finds_a_store_busy_that_its_parent_has_for_itself() {
    for mode in MODES {
        forks().run(&["rounds", "exclusive", mode, "1", "0", &seed()]);
    }
    forks().run_without_ofd(&["rounds", "exclusive", "wal", "1", "0", &seed()]);
}

#[test]
fn a_parent_killed_in_a_write_transaction_leaves_nothing_locked_while_its_child_lives() {
    for mode in MODES {
        forks().run(&["killed", mode, "40", &seconds(), &seed()]);
        forks().run_without_ofd(&["killed", mode, "10", &seconds(), &seed()]);
    }
}

#[test]
fn nothing_leaks_through_exec_vfork_or_spawn_and_the_parent_keeps_its_locks() {
    for mode in MODES {
        forks().run(&["exec", mode]);
        forks().run_without_ofd(&["exec", mode]);
    }
}
