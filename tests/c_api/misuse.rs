//! Misuse of the C API: no crash, no damage, and for each mistake the code and text that the header documents.
//!
//! The programs are `tests/c/abuse_*.c`. Each test here is a scenario of one of them; all run again under valgrind.

use std::collections::BTreeSet;
use std::fs::read_to_string;

use crate::c_programs::root;
use crate::scenarios::{run_scenario, run_under_valgrind};

/// Returns the functions whose names occur in a C source.
fn functions(file: &str) -> BTreeSet<String> {
    let text = read_to_string(root().join(file)).unwrap();
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("kvstore_") && !word.ends_with('_')).map(str::to_owned).collect()
}

#[test]
fn every_function_of_the_header_is_abused() {
    let mut abused = functions("tests/c/abuse_arguments.c");
    abused.extend(functions("tests/c/abuse_sample.h"));
    abused.extend(functions("tests/c/abuse_advanced.c"));
    let all = functions("include/kvstore.h");
    let left: Vec<_> = all.difference(&abused).collect();
    assert!(all.len() > 60 && left.is_empty(), "add these to the sweeps of tests/c/abuse_*.c: {left:?}");
}

#[test]
fn null_for_any_pointer_is_refused_and_changes_nothing() {
    run_scenario("tests/c/abuse_arguments.c", "null_pointers");
}

#[test]
fn a_missing_key_writes_only_the_outputs_it_should() {
    run_scenario("tests/c/abuse_arguments.c", "missing_keys");
}

#[test]
fn keys_of_bad_lengths_are_refused_before_they_are_read() {
    run_scenario("tests/c/abuse_arguments.c", "key_lengths");
}

#[test]
fn values_of_bad_lengths_are_refused_before_they_are_read() {
    run_scenario("tests/c/abuse_arguments.c", "value_lengths");
}

#[test]
fn family_names_that_cannot_be_are_refused() {
    run_scenario("tests/c/abuse_arguments.c", "family_names");
}

#[test]
fn numbers_out_of_bounds_are_refused() {
    run_scenario("tests/c/abuse_arguments.c", "numbers");
}

#[test]
fn a_closed_store_and_what_is_left_of_it_refuse_everything() {
    run_scenario("tests/c/abuse_handles.c", "closed_store");
}

#[test]
fn closing_twice_does_nothing() {
    run_scenario("tests/c/abuse_handles.c", "closed_twice");
}

#[test]
fn closing_a_family_twice_does_not_close_its_other_handle() {
    run_scenario("tests/c/abuse_handles.c", "closed_twice_counts_once");
}

#[test]
fn a_handle_of_the_wrong_kind_is_refused() {
    run_scenario("tests/c/abuse_handles.c", "wrong_kinds");
}

#[test]
fn opening_and_closing_thousands_of_times_needs_no_more_memory() {
    run_scenario("tests/c/abuse_handles.c", "cycles");
}

#[test]
fn after_a_failure_everything_can_be_tried_again() {
    run_scenario("tests/c/abuse_handles.c", "after_failures");
}

#[test]
fn the_error_text_is_set_by_failures_only_and_on_their_store_only() {
    run_scenario("tests/c/abuse_errmsg.c", "no_error");
}

#[test]
fn the_error_text_says_that_a_key_is_missing_until_another_call_fails() {
    run_scenario("tests/c/abuse_errmsg.c", "not_found");
}

#[test]
fn the_error_text_stays_readable_while_other_calls_fail() {
    run_scenario("tests/c/abuse_errmsg.c", "stays_readable");
}

#[test]
fn failures_without_a_handle_are_told_to_the_thread_that_made_them() {
    run_scenario("tests/c/abuse_errmsg.c", "per_thread");
}

#[test]
fn every_wrong_call_has_a_text_and_none_shows_keys_or_values() {
    run_scenario("tests/c/abuse_errmsg.c", "texts");
}

#[test]
fn eight_threads_share_a_handle_and_lose_nothing() {
    run_scenario("tests/c/abuse_threads.c", "one_handle");
}

#[test]
fn a_store_closed_under_its_threads_answers_misuse() {
    run_scenario("tests/c/abuse_threads.c", "closed_under_them");
}

#[test]
fn of_two_threads_that_close_a_handle_one_succeeds() {
    run_scenario("tests/c/abuse_threads.c", "closed_at_once");
}

#[test]
fn two_handles_on_one_file_lose_nothing() {
    run_scenario("tests/c/abuse_threads.c", "two_handles");
}

#[test]
fn a_forked_child_cannot_use_the_data_of_its_parents_handles() {
    run_scenario("tests/c/abuse_fork.c", "data");
}

#[test]
fn a_forked_child_can_call_nothing_on_its_parents_store() {
    run_scenario("tests/c/abuse_fork.c", "store");
}

#[test]
fn a_forked_child_can_call_nothing_on_its_parents_family() {
    run_scenario("tests/c/abuse_fork.c", "family");
}

#[test]
fn a_forked_child_can_call_nothing_on_its_parents_iterators() {
    run_scenario("tests/c/abuse_fork.c", "iterator");
}

#[test]
fn a_forked_child_does_not_disturb_its_parents_transaction() {
    run_scenario("tests/c/abuse_fork.c", "transaction");
}

#[test]
fn a_forked_child_that_closes_its_parents_handles_or_exits_does_no_harm() {
    run_scenario("tests/c/abuse_fork.c", "closing");
}

#[test]
fn a_forked_child_opens_what_its_parent_has_open() {
    run_scenario("tests/c/abuse_fork.c", "same_path");
}

#[test]
fn a_forked_child_may_open_another_store() {
    run_scenario("tests/c/abuse_fork.c", "other_path");
}

#[test]
fn a_child_forked_after_the_close_may_open_the_file() {
    run_scenario("tests/c/abuse_fork.c", "after_the_close");
}

#[test]
fn a_child_forked_by_a_clock_is_refused_by_the_call_it_is_in() {
    run_scenario("tests/c/abuse_fork.c", "clock_forks");
}

#[test]
fn a_child_forked_by_the_progress_of_a_backup_leaves_the_backup_to_its_parent() {
    run_scenario("tests/c/abuse_fork.c", "backup_forks");
}

#[test]
fn a_child_of_a_program_that_has_closed_all_descriptors_gets_no_copies_of_its_own() {
    run_scenario("tests/c/abuse_fork.c", "daemon_forks");
}

#[test]
fn a_call_after_the_thread_has_ended_its_own_data_is_answered() {
    run_scenario("tests/c/abuse_fork.c", "exits");
}

#[test]
fn a_child_forked_while_other_threads_are_in_calls_does_not_get_stuck() {
    run_scenario("tests/c/abuse_fork.c", "threads");
}

#[test]
fn a_clock_that_calls_its_store_gets_misuse() {
    run_scenario("tests/c/abuse_clock.c", "is_called_back");
}

#[test]
fn a_clock_that_calls_its_store_gets_misuse_whichever_call_read_it() {
    run_scenario("tests/c/abuse_clock.c", "is_called_back_anywhere");
}

#[test]
fn a_clock_that_closes_its_store_closes_nothing() {
    run_scenario("tests/c/abuse_clock.c", "closes");
}

#[test]
fn a_clock_cannot_meddle_with_the_iterator_that_reads_it() {
    run_scenario("tests/c/abuse_clock.c", "meddles_with_the_iterator");
}

#[test]
fn a_clock_may_replace_itself() {
    run_scenario("tests/c/abuse_clock.c", "replaces_itself");
}

#[test]
fn a_clock_may_use_another_store() {
    run_scenario("tests/c/abuse_clock.c", "uses_another_store");
}

#[test]
fn a_clock_may_jump_to_either_end_of_time() {
    run_scenario("tests/c/abuse_clock.c", "jumps");
}

#[test]
fn a_transaction_that_meets_a_full_disk_can_only_be_rolled_back() {
    run_scenario("tests/c/abuse_full.c", "transaction");
}

#[test]
fn a_doomed_transaction_stays_doomed_when_there_is_space_again() {
    run_scenario("tests/c/abuse_full.c", "transaction_and_space_again");
}

#[test]
fn a_commit_that_meets_a_full_disk_commits_nothing() {
    run_scenario("tests/c/abuse_full.c", "commit");
}

#[test]
fn a_write_that_meets_a_full_disk_changes_nothing() {
    run_scenario("tests/c/abuse_full.c", "alone");
}

#[test]
fn what_was_written_before_the_disk_was_full_is_there() {
    run_scenario("tests/c/abuse_full.c", "until_nothing_fits");
}

#[test]
fn a_checkpoint_that_meets_a_full_disk_loses_nothing() {
    run_scenario("tests/c/abuse_full.c", "checkpoint");
}

#[test]
fn a_store_that_cannot_be_made_on_a_full_disk_can_be_made_later() {
    run_scenario("tests/c/abuse_full.c", "opening");
}

// ---- the advanced functions -----------------------------------------------------------------------

#[test]
fn null_for_any_pointer_of_an_advanced_function_is_refused_and_changes_nothing() {
    run_scenario("tests/c/abuse_advanced.c", "null_pointers");
}

#[test]
fn bad_lengths_are_refused_before_anything_is_read() {
    run_scenario("tests/c/abuse_advanced.c", "lengths");
}

#[test]
fn an_expected_value_of_another_length_is_not_read() {
    run_scenario("tests/c/abuse_advanced.c", "expected_lengths");
}

#[test]
fn unknown_flags_and_reserved_fields_are_refused() {
    run_scenario("tests/c/abuse_advanced.c", "flags");
}

#[test]
fn everything_of_a_closed_store_is_refused() {
    run_scenario("tests/c/abuse_advanced.c", "closed_store");
}

#[test]
fn a_batch_of_a_closed_store_answers_misuse() {
    run_scenario("tests/c/abuse_advanced.c", "closed_store_batch");
}

#[test]
fn closed_and_freed_handles_are_refused() {
    run_scenario("tests/c/abuse_advanced.c", "closed_handles");
}

#[test]
fn an_advanced_function_refuses_a_handle_of_the_wrong_kind() {
    run_scenario("tests/c/abuse_advanced.c", "wrong_kinds");
}

#[test]
fn handles_come_and_go_thousands_of_times() {
    run_scenario("tests/c/abuse_advanced.c", "cycles");
}

#[test]
fn the_library_names_itself_and_its_codes() {
    run_scenario("tests/c/abuse_advanced.c", "library");
}

#[test]
fn the_constants_are_those_of_the_contract() {
    run_scenario("tests/c/abuse_advanced.c", "constants");
}

#[test]
fn clocks_at_the_edges_of_time_break_nothing() {
    run_scenario("tests/c/abuse_advanced.c", "clock_edges");
}

// ---- valgrind ---------------------------------------------------------------------------------------

#[test]
fn abuse_arguments_is_clean_under_valgrind() {
    run_under_valgrind("tests/c/abuse_arguments.c", &[]);
}

#[test]
fn abuse_advanced_is_clean_under_valgrind() {
    run_under_valgrind("tests/c/abuse_advanced.c", &[]);
}

#[test]
fn abuse_handles_is_clean_under_valgrind() {
    run_under_valgrind("tests/c/abuse_handles.c", &[]);
}

#[test]
fn abuse_errmsg_is_clean_under_valgrind() {
    run_under_valgrind("tests/c/abuse_errmsg.c", &[]);
}

#[test]
fn abuse_threads_is_clean_under_valgrind() {
    run_under_valgrind("tests/c/abuse_threads.c", &[]);
}

#[test]
fn abuse_fork_is_clean_under_valgrind() {
    run_under_valgrind("tests/c/abuse_fork.c", &[]);
}

#[test]
fn abuse_clock_is_clean_under_valgrind() {
    run_under_valgrind("tests/c/abuse_clock.c", &[]);
}

#[test]
fn abuse_full_is_clean_under_valgrind() {
    run_under_valgrind("tests/c/abuse_full.c", &[]);
}
