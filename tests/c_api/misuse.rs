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
fn every_header_function_has_misuse_test() {
    let mut abused = functions("tests/c/abuse_arguments.c");
    abused.extend(functions("tests/c/abuse_sample.h"));
    abused.extend(functions("tests/c/abuse_advanced.c"));
    let all = functions("include/kvstore.h");
    let left: Vec<_> = all.difference(&abused).collect();
    assert!(all.len() > 60 && left.is_empty(), "add these to the sweeps of tests/c/abuse_*.c: {left:?}");
}

#[test]
fn null_pointers_are_refused_without_effect() {
    run_scenario("tests/c/abuse_arguments.c", "null_pointers");
}

#[test]
fn missing_key_writes_only_documented_outputs() {
    run_scenario("tests/c/abuse_arguments.c", "missing_keys");
}

#[test]
fn invalid_key_lengths_are_refused_before_reading() {
    run_scenario("tests/c/abuse_arguments.c", "key_lengths");
}

#[test]
fn invalid_value_lengths_are_refused_before_reading() {
    run_scenario("tests/c/abuse_arguments.c", "value_lengths");
}

#[test]
fn invalid_family_names_are_refused() {
    run_scenario("tests/c/abuse_arguments.c", "family_names");
}

#[test]
fn out_of_range_numbers_are_refused() {
    run_scenario("tests/c/abuse_arguments.c", "numbers");
}

#[test]
fn closed_store_and_its_handles_refuse_all_calls() {
    run_scenario("tests/c/abuse_handles.c", "closed_store");
}

#[test]
fn second_close_has_no_effect() {
    run_scenario("tests/c/abuse_handles.c", "closed_twice");
}

#[test]
fn closing_family_twice_keeps_other_handle_open() {
    run_scenario("tests/c/abuse_handles.c", "closed_twice_counts_once");
}

#[test]
fn handle_of_the_wrong_kind_is_refused() {
    run_scenario("tests/c/abuse_handles.c", "wrong_kinds");
}

#[test]
fn thousands_of_open_close_cycles_do_not_leak() {
    run_scenario("tests/c/abuse_handles.c", "cycles");
}

#[test]
fn failed_calls_can_be_retried() {
    run_scenario("tests/c/abuse_handles.c", "retry_after_failures");
}

#[test]
fn error_text_is_set_only_by_failures_of_same_store() {
    run_scenario("tests/c/abuse_errmsg.c", "no_error");
}

#[test]
fn error_text_reports_missing_key_until_next_failure() {
    run_scenario("tests/c/abuse_errmsg.c", "not_found");
}

#[test]
fn error_text_stays_readable_while_other_calls_fail() {
    run_scenario("tests/c/abuse_errmsg.c", "stays_readable");
}

#[test]
fn failure_without_handle_is_reported_per_thread() {
    run_scenario("tests/c/abuse_errmsg.c", "per_thread");
}

#[test]
fn every_misuse_has_error_text_without_keys_or_values() {
    run_scenario("tests/c/abuse_errmsg.c", "texts");
}

#[test]
fn eight_threads_sharing_handle_lose_no_write() {
    run_scenario("tests/c/abuse_threads.c", "one_handle");
}

#[test]
fn store_closed_during_calls_returns_misuse() {
    run_scenario("tests/c/abuse_threads.c", "closed_during_calls");
}

#[test]
fn concurrent_close_succeeds_in_one_thread() {
    run_scenario("tests/c/abuse_threads.c", "closed_concurrently");
}

#[test]
fn two_handles_on_one_file_lose_no_write() {
    run_scenario("tests/c/abuse_threads.c", "two_handles");
}

#[test]
fn forked_child_cannot_read_parent_handle_data() {
    run_scenario("tests/c/abuse_fork.c", "data");
}

#[test]
fn forked_child_cannot_use_parent_store() {
    run_scenario("tests/c/abuse_fork.c", "store");
}

#[test]
fn forked_child_cannot_use_parent_family() {
    run_scenario("tests/c/abuse_fork.c", "family");
}

#[test]
fn forked_child_cannot_use_parent_iterators() {
    run_scenario("tests/c/abuse_fork.c", "iterator");
}

#[test]
fn forked_child_does_not_affect_parent_transaction() {
    run_scenario("tests/c/abuse_fork.c", "transaction");
}

#[test]
fn forked_child_may_close_inherited_handles_or_exit() {
    run_scenario("tests/c/abuse_fork.c", "closing");
}

#[test]
fn forked_child_can_open_store_open_in_parent() {
    run_scenario("tests/c/abuse_fork.c", "same_path");
}

#[test]
fn forked_child_can_open_other_store() {
    run_scenario("tests/c/abuse_fork.c", "other_path");
}

#[test]
fn child_forked_after_close_can_open_file() {
    run_scenario("tests/c/abuse_fork.c", "after_the_close");
}

#[test]
fn child_forked_in_clock_callback_is_refused() {
    run_scenario("tests/c/abuse_fork.c", "clock_forks");
}

#[test]
fn child_forked_in_progress_callback_spares_parent_backup() {
    run_scenario("tests/c/abuse_fork.c", "backup_forks");
}

#[test]
fn child_forked_after_closing_all_descriptors_gets_no_copies() {
    run_scenario("tests/c/abuse_fork.c", "daemon_forks");
}

#[test]
fn call_after_thread_local_destruction_returns() {
    run_scenario("tests/c/abuse_fork.c", "exits");
}

#[test]
fn child_forked_during_calls_of_threads_does_not_deadlock() {
    run_scenario("tests/c/abuse_fork.c", "threads");
}

#[test]
fn clock_calling_its_store_gets_misuse() {
    run_scenario("tests/c/abuse_clock.c", "is_called_back");
}

#[test]
fn clock_calling_its_store_gets_misuse_from_every_call() {
    run_scenario("tests/c/abuse_clock.c", "is_called_back_by_every_call");
}

#[test]
fn clock_cannot_close_its_store() {
    run_scenario("tests/c/abuse_clock.c", "closes");
}

#[test]
fn clock_cannot_change_iterator_that_reads_it() {
    run_scenario("tests/c/abuse_clock.c", "changes_the_iterator");
}

#[test]
fn clock_may_replace_itself() {
    run_scenario("tests/c/abuse_clock.c", "replaces_itself");
}

#[test]
fn clock_may_use_another_store() {
    run_scenario("tests/c/abuse_clock.c", "uses_another_store");
}

#[test]
fn clock_may_jump_to_minimum_or_maximum_time() {
    run_scenario("tests/c/abuse_clock.c", "jumps");
}

#[test]
fn transaction_on_full_disk_can_only_be_rolled_back() {
    run_scenario("tests/c/abuse_full.c", "transaction");
}

#[test]
fn failed_transaction_stays_failed_after_space_is_freed() {
    run_scenario("tests/c/abuse_full.c", "transaction_and_space_again");
}

#[test]
fn commit_on_full_disk_commits_nothing() {
    run_scenario("tests/c/abuse_full.c", "commit");
}

#[test]
fn write_on_full_disk_changes_nothing() {
    run_scenario("tests/c/abuse_full.c", "alone");
}

#[test]
fn writes_before_full_disk_are_readable() {
    run_scenario("tests/c/abuse_full.c", "until_full");
}

#[test]
fn checkpoint_on_full_disk_loses_no_data() {
    run_scenario("tests/c/abuse_full.c", "checkpoint");
}

#[test]
fn store_creation_failed_by_full_disk_can_be_retried() {
    run_scenario("tests/c/abuse_full.c", "opening");
}

#[test]
fn store_that_filled_its_file_size_limit_frees_itself() {
    run_scenario("tests/c/abuse_full.c", "limit_from_the_start");
}

// ---- the advanced functions -----------------------------------------------------------------------

#[test]
fn null_pointers_in_advanced_calls_are_refused() {
    run_scenario("tests/c/abuse_advanced.c", "null_pointers");
}

#[test]
fn invalid_lengths_are_refused_before_reading() {
    run_scenario("tests/c/abuse_advanced.c", "lengths");
}

#[test]
fn expected_value_of_different_length_is_not_read() {
    run_scenario("tests/c/abuse_advanced.c", "expected_lengths");
}

#[test]
fn unknown_flags_and_reserved_fields_are_refused() {
    run_scenario("tests/c/abuse_advanced.c", "flags");
}

#[test]
fn advanced_calls_on_closed_store_are_refused() {
    run_scenario("tests/c/abuse_advanced.c", "closed_store");
}

#[test]
fn batch_of_closed_store_returns_misuse() {
    run_scenario("tests/c/abuse_advanced.c", "closed_store_batch");
}

#[test]
fn closed_and_freed_handles_are_refused() {
    run_scenario("tests/c/abuse_advanced.c", "closed_handles");
}

#[test]
fn advanced_function_refuses_a_handle_of_the_wrong_kind() {
    run_scenario("tests/c/abuse_advanced.c", "wrong_kinds");
}

#[test]
fn thousands_of_handle_cycles_do_not_leak() {
    run_scenario("tests/c/abuse_advanced.c", "cycles");
}

#[test]
fn library_reports_version_and_code_names() {
    run_scenario("tests/c/abuse_advanced.c", "library");
}

#[test]
fn constants_have_documented_values() {
    run_scenario("tests/c/abuse_advanced.c", "constants");
}

#[test]
fn extreme_clock_values_cause_no_failure() {
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
