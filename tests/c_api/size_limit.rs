//! Bounded stores through the C API. Each test is a scenario of `tests/c/api_limit.c`, run with and
//! without valgrind.

use crate::scenarios::{run_scenario, run_under_valgrind};

#[test]
fn size_limit_is_stored_and_invalid_one_refused() {
    run_scenario("tests/c/api_limit.c", "arguments");
}

#[test]
fn keys_are_evicted_in_policy_order() {
    run_scenario("tests/c/api_limit.c", "evicts_keys");
}

#[test]
fn put_into_full_store_fails_without_effect() {
    run_scenario("tests/c/api_limit.c", "is_full");
}

#[test]
fn backup_keeps_size_limit() {
    run_scenario("tests/c/api_limit.c", "copy_keeps_limit");
}

// ---- valgrind ---------------------------------------------------------------------------------------

#[test]
fn api_limit_is_clean_under_valgrind() {
    run_under_valgrind("tests/c/api_limit.c", &[]);
}
