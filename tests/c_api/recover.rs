//! Recovery through the C API. Each test is a scenario of `tests/c/api_recover.c`, run with and
//! without valgrind.

use crate::scenarios::{run_scenario, run_under_valgrind};

#[test]
fn a_sound_file_is_recovered_whole() {
    run_scenario("tests/c/api_recover.c", "sound");
}

#[test]
fn what_is_lost_of_a_damaged_file_is_told_line_by_line() {
    run_scenario("tests/c/api_recover.c", "damaged");
}

#[test]
fn nobody_has_to_listen() {
    run_scenario("tests/c/api_recover.c", "without_outputs");
}

#[test]
fn a_recovery_that_is_stopped_leaves_no_file() {
    run_scenario("tests/c/api_recover.c", "stopped");
}

#[test]
fn what_cannot_be_is_refused() {
    run_scenario("tests/c/api_recover.c", "refuses");
}

#[test]
fn api_recover_is_clean_under_valgrind() {
    run_under_valgrind("tests/c/api_recover.c", &[]);
}
