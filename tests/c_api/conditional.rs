//! Conditional writes through the C API: their effect and their exact result codes. Each test is a
//! scenario of `tests/c/api_conditional.c`; all run again under valgrind.

use crate::scenarios::{run_scenario, run_under_valgrind};

#[test]
fn put_with_without_a_condition_always_writes() {
    run_scenario("tests/c/api_conditional.c", "put_with_always");
}

#[test]
fn put_with_if_absent_keeps_live_key() {
    run_scenario("tests/c/api_conditional.c", "put_with_if_absent");
}

#[test]
fn put_with_if_present_creates_no_key() {
    run_scenario("tests/c/api_conditional.c", "put_with_if_present");
}

#[test]
fn put_with_keep_ttl_keeps_ttl_of_live_key() {
    run_scenario("tests/c/api_conditional.c", "put_with_keep_ttl");
}

#[test]
fn put_with_uses_default_ttl_only_with_flag() {
    run_scenario("tests/c/api_conditional.c", "put_with_default_ttl");
}

#[test]
fn put_with_accepts_ttl_instead_of_expiry_time() {
    run_scenario("tests/c/api_conditional.c", "put_with_a_ttl");
}

#[test]
fn put_with_refuses_invalid_flags_and_times() {
    run_scenario("tests/c/api_conditional.c", "put_with_refuses");
}

#[test]
fn compare_and_swap_replaces_only_expected_value() {
    run_scenario("tests/c/api_conditional.c", "compare_and_swap");
}

#[test]
fn compare_and_delete_deletes_only_expected_value() {
    run_scenario("tests/c/api_conditional.c", "compare_and_delete");
}

#[test]
fn large_values_are_compared_up_to_last_byte() {
    run_scenario("tests/c/api_conditional.c", "compare_large");
}

#[test]
fn increment_adds_to_decimal_text_and_keeps_ttl() {
    run_scenario("tests/c/api_conditional.c", "increment");
}

#[test]
fn increment_does_not_overflow() {
    run_scenario("tests/c/api_conditional.c", "increment_limits");
}

#[test]
fn increment_of_non_number_changes_nothing() {
    run_scenario("tests/c/api_conditional.c", "increment_not_a_number");
}

#[test]
fn increment_of_missing_key_uses_default_ttl() {
    run_scenario("tests/c/api_conditional.c", "increment_default_ttl");
}

#[test]
fn default_ttl_applies_to_writes_without_expiry() {
    run_scenario("tests/c/api_conditional.c", "default_ttl_is_for_writes_without_expiry");
}

#[test]
fn conditional_writes_are_part_of_a_transaction() {
    run_scenario("tests/c/api_conditional.c", "in_transactions");
}

#[test]
fn conditional_write_is_busy_while_another_handle_writes() {
    run_scenario("tests/c/api_conditional.c", "busy");
}

#[test]
fn statistics_count_only_performed_writes() {
    run_scenario("tests/c/api_conditional.c", "statistics");
}

// ---- valgrind ---------------------------------------------------------------------------------------

#[test]
fn api_conditional_is_clean_under_valgrind() {
    run_under_valgrind("tests/c/api_conditional.c", &[]);
}
