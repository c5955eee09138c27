//! Programs that use the C API wrongly: nothing crashes, nothing is damaged, and each mistake gets
//! the code and the text the header promises.
//!
//! The programs are `tests/c/abuse_*.c`; each test here is one scenario of one of them, run plainly and
//! under valgrind.

mod c_common;

use c_common::run_scenario;

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
