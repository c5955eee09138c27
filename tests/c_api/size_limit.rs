//! Bounded stores through the C API. Each test is a scenario of `tests/c/api_limit.c`, run with and
//! without valgrind.

use crate::scenarios::{run_scenario, run_under_valgrind};

#[test]
fn a_limit_is_kept_in_the_file_and_bad_ones_are_refused() {
    run_scenario("tests/c/api_limit.c", "arguments");
}

#[test]
fn keys_make_room_in_their_order() {
    run_scenario("tests/c/api_limit.c", "makes_room");
}

#[test]
fn a_store_that_is_full_says_so_and_changes_nothing() {
    run_scenario("tests/c/api_limit.c", "is_full");
}

#[test]
fn a_backup_keeps_the_limit() {
    run_scenario("tests/c/api_limit.c", "a_copy_keeps_it");
}

// ---- valgrind ---------------------------------------------------------------------------------------

#[test]
fn api_limit_is_clean_under_valgrind() {
    run_under_valgrind("tests/c/api_limit.c", &[]);
}
