//! C handles that are closed during a call with them, and whose memory is then reused. The call
//! must affect only the object it was called with, and return `KVSTORE_OK` or `KVSTORE_MISUSE`.
//!
//! The program is `tests/c/abuse_reuse.c`. Each test here is one of its scenarios; all run again
//! under valgrind. `KVSTORE_TORTURE_SECONDS` lengthens the random scenario.

use crate::scenarios::{run_scenario, run_under_valgrind};

const PROGRAM: &str = "tests/c/abuse_reuse.c";

#[test]
fn a_put_that_waits_for_a_thread_goes_to_its_family_though_its_handle_is_closed_and_used_again() {
    run_scenario(PROGRAM, "put_waits_for_a_thread");
}

#[test]
fn a_put_that_waits_for_a_writer_goes_to_its_family_though_its_handle_is_closed_and_used_again() {
    run_scenario(PROGRAM, "put_waits_for_a_writer");
}

#[test]
fn a_purge_stays_in_its_family_and_its_file_though_its_handle_is_closed() {
    run_scenario(PROGRAM, "purge");
}

#[test]
fn a_sweep_stays_in_its_family_and_its_file_though_its_handle_is_closed() {
    run_scenario(PROGRAM, "sweep");
}

#[test]
fn an_iterator_can_be_closed_while_another_thread_moves_it() {
    run_scenario(PROGRAM, "iterator");
}

#[test]
fn a_batch_can_be_freed_while_another_thread_commits_it() {
    run_scenario(PROGRAM, "batch_commit");
}

#[test]
fn a_call_from_a_callback_keeps_its_handle_as_any_other() {
    run_scenario(PROGRAM, "nested");
}

#[test]
fn a_backup_whose_store_is_closed_stops_and_is_no_other_stores_affair() {
    run_scenario(PROGRAM, "backup");
}

#[test]
fn a_backup_of_an_exclusive_store_stops_when_the_store_is_closed() {
    run_scenario(PROGRAM, "backup_of_an_exclusive_store");
}

#[test]
fn a_close_waits_for_one_step_of_a_sweep_and_nobody_waits_for_a_store_that_is_being_closed() {
    run_scenario(PROGRAM, "closed_between_steps");
}

#[test]
fn a_close_does_not_wait_for_a_checkpoint_that_waits_for_a_reader() {
    run_scenario(PROGRAM, "checkpoint");
}

#[test]
fn a_cleaner_may_be_started_and_stopped_while_its_store_is_closed() {
    run_scenario(PROGRAM, "cleaner");
}

#[test]
fn where_the_system_has_no_barrier_for_all_threads_calls_keep_their_handles_too() {
    run_scenario(PROGRAM, "without_membarrier");
}

#[test]
fn where_the_barrier_is_forbidden_later_no_closed_handle_is_used_again() {
    run_scenario(PROGRAM, "membarrier_is_taken_away");
}

#[test]
fn a_thread_may_call_and_close_until_its_very_end() {
    run_scenario(PROGRAM, "ending_threads");
}

#[test]
fn whatever_handles_are_closed_under_their_users_each_family_holds_its_own_values_only() {
    run_scenario(PROGRAM, "anybody_at_any_time");
}

// ---- valgrind ---------------------------------------------------------------------------------------

#[test]
fn abuse_reuse_is_clean_under_valgrind() {
    // These two change the process permanently.
    run_under_valgrind(PROGRAM, &["without_membarrier", "membarrier_is_taken_away"]);
}
