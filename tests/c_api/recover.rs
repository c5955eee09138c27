//! Recovery through the C API. Each test is a scenario of `tests/c/api_recover.c`, run with and
//! without valgrind.

use crate::scenarios::{run_scenario, run_under_valgrind};

#[test]
fn intact_file_is_recovered_completely() {
    run_scenario("tests/c/api_recover.c", "sound");
}

#[test]
fn losses_of_damaged_file_are_reported_one_by_one() {
    run_scenario("tests/c/api_recover.c", "damaged");
}

#[test]
fn recover_works_without_callback_and_outputs() {
    run_scenario("tests/c/api_recover.c", "without_outputs");
}

#[test]
fn cancelled_recovery_leaves_no_file() {
    run_scenario("tests/c/api_recover.c", "stopped");
}

#[test]
fn invalid_recovery_arguments_are_refused() {
    run_scenario("tests/c/api_recover.c", "refuses");
}

#[test]
fn api_recover_is_clean_under_valgrind() {
    run_under_valgrind("tests/c/api_recover.c", &[]);
}
