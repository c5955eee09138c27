//! Encrypted stores through the C API, in builds with and without the feature. Each test is a
//! scenario of `tests/c/api_encryption.c`, run with and without valgrind.

use crate::scenarios::{run_scenario, run_under_valgrind};

#[test]
fn a_store_is_made_with_a_password_gets_another_and_none() {
    run_scenario("tests/c/api_encryption.c", "life");
}

#[test]
fn a_plain_store_is_encrypted_by_opening_it_with_a_password() {
    run_scenario("tests/c/api_encryption.c", "in_place");
}

#[test]
fn what_cannot_be_is_refused() {
    run_scenario("tests/c/api_encryption.c", "refuses");
}

#[test]
fn a_build_without_encryption_says_so() {
    run_scenario("tests/c/api_encryption.c", "not_in_this_build");
}

#[test]
fn api_encryption_is_clean_under_valgrind() {
    run_under_valgrind("tests/c/api_encryption.c", &[]);
}
