//! Conditional writes through the C API: their effect and their exact result codes. Each test is a
//! scenario of `tests/c/api_conditional.c`; all run again under valgrind.

use crate::scenarios::{run_scenario, run_under_valgrind};

#[test]
fn put_with_without_a_condition_always_writes() {
    run_scenario("tests/c/api_conditional.c", "put_with_always");
}

#[test]
fn put_with_if_absent_leaves_a_live_key_alone() {
    run_scenario("tests/c/api_conditional.c", "put_with_if_absent");
}

#[test]
fn put_with_if_present_makes_no_key() {
    run_scenario("tests/c/api_conditional.c", "put_with_if_present");
}

#[test]
fn put_with_keep_ttl_keeps_what_a_live_key_has() {
    run_scenario("tests/c/api_conditional.c", "put_with_keep_ttl");
}

#[test]
fn put_with_takes_the_default_ttl_only_when_told_to() {
    run_scenario("tests/c/api_conditional.c", "put_with_default_ttl");
}

#[test]
fn a_put_with_options_takes_a_ttl_instead_of_a_moment() {
    run_scenario("tests/c/api_conditional.c", "put_with_a_ttl");
}

#[test]
fn put_with_refuses_flags_and_times_that_make_no_sense() {
    run_scenario("tests/c/api_conditional.c", "put_with_refuses");
}

#[test]
fn compare_and_swap_writes_over_the_expected_value_only() {
    run_scenario("tests/c/api_conditional.c", "compare_and_swap");
}

#[test]
fn compare_and_delete_deletes_the_expected_value_only() {
    run_scenario("tests/c/api_conditional.c", "compare_and_delete");
}

#[test]
fn large_values_are_compared_to_their_last_byte() {
    run_scenario("tests/c/api_conditional.c", "compare_large");
}

#[test]
fn increment_adds_to_decimal_text_and_keeps_the_ttl() {
    run_scenario("tests/c/api_conditional.c", "increment");
}

#[test]
fn increment_does_not_overflow() {
    run_scenario("tests/c/api_conditional.c", "increment_limits");
}

#[test]
fn increment_of_what_is_no_number_changes_nothing() {
    run_scenario("tests/c/api_conditional.c", "increment_not_a_number");
}

#[test]
fn an_increment_that_creates_a_key_takes_the_default_ttl() {
    run_scenario("tests/c/api_conditional.c", "increment_default_ttl");
}

#[test]
fn the_default_ttl_is_for_plain_puts() {
    run_scenario("tests/c/api_conditional.c", "default_ttl_is_for_plain_puts");
}

#[test]
fn conditional_writes_are_part_of_a_transaction() {
    run_scenario("tests/c/api_conditional.c", "in_transactions");
}

#[test]
fn a_conditional_write_is_busy_while_another_handle_writes() {
    run_scenario("tests/c/api_conditional.c", "busy");
}

#[test]
fn only_writes_that_happened_are_counted() {
    run_scenario("tests/c/api_conditional.c", "statistics");
}

// ---- valgrind ---------------------------------------------------------------------------------------

#[test]
fn api_conditional_is_clean_under_valgrind() {
    run_under_valgrind("tests/c/api_conditional.c", &[]);
}
