//! C handles that are closed during a call with them, and whose memory is then reused. The call
//! must affect only the object it was called with, and return `KVSTORE_OK` or `KVSTORE_MISUSE`.
//!
//! The program is `tests/c/abuse_reuse.c`. Each test here is one of its scenarios; all run again
//! under valgrind. `KVSTORE_TORTURE_SECONDS` lengthens the random scenario.

use crate::scenarios::{run_scenario, run_under_valgrind};

const PROGRAM: &str = "tests/c/abuse_reuse.c";

#[test]
fn put_waiting_for_thread_keeps_family_after_handle_reuse() {
    run_scenario(PROGRAM, "put_waits_for_a_thread");
}

#[test]
fn put_waiting_for_writer_keeps_family_after_handle_reuse() {
    run_scenario(PROGRAM, "put_waits_for_a_writer");
}

#[test]
fn purge_keeps_its_family_after_handle_is_closed() {
    run_scenario(PROGRAM, "purge");
}

#[test]
fn sweep_keeps_its_family_after_handle_is_closed() {
    run_scenario(PROGRAM, "sweep");
}

#[test]
fn iterator_can_be_closed_while_another_thread_moves_it() {
    run_scenario(PROGRAM, "iterator");
}

#[test]
fn batch_can_be_freed_while_another_thread_commits_it() {
    run_scenario(PROGRAM, "batch_commit");
}

#[test]
fn nested_call_in_callback_keeps_its_handle() {
    run_scenario(PROGRAM, "nested");
}

#[test]
fn backup_of_closed_store_stops_without_affecting_others() {
    run_scenario(PROGRAM, "backup");
}

#[test]
fn backup_of_exclusive_store_stops_on_close() {
    run_scenario(PROGRAM, "backup_of_an_exclusive_store");
}

#[test]
fn close_waits_for_one_sweep_step_and_blocks_no_other_call() {
    run_scenario(PROGRAM, "closed_between_steps");
}

#[test]
fn close_does_not_wait_for_blocked_checkpoint() {
    run_scenario(PROGRAM, "checkpoint");
}

#[test]
fn cleaner_can_start_and_stop_during_close() {
    run_scenario(PROGRAM, "cleaner");
}

#[test]
fn calls_keep_handles_without_membarrier() {
    run_scenario(PROGRAM, "without_membarrier");
}

#[test]
fn closed_handles_are_not_reused_if_membarrier_is_revoked() {
    run_scenario(PROGRAM, "membarrier_is_revoked");
}

#[test]
fn thread_may_call_and_close_during_its_exit() {
    run_scenario(PROGRAM, "ending_threads");
}

#[test]
fn random_concurrent_closes_never_mix_families() {
    run_scenario(PROGRAM, "random_closes");
}

// ---- valgrind ---------------------------------------------------------------------------------------

#[test]
fn abuse_reuse_is_clean_under_valgrind() {
    // These two change the process permanently.
    run_under_valgrind(PROGRAM, &["without_membarrier", "membarrier_is_revoked"]);
}
