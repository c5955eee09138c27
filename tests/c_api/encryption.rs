//! Encrypted stores through the C API, in builds with and without the feature. Each test is a
//! scenario of `tests/c/api_encryption.c`, run with and without valgrind.

use crate::scenarios::{run_scenario, run_under_valgrind};

#[test]
fn encrypted_store_changes_and_drops_its_password() {
    run_scenario("tests/c/api_encryption.c", "life");
}

#[test]
fn plain_store_opened_with_password_is_encrypted() {
    run_scenario("tests/c/api_encryption.c", "in_place");
}

#[test]
fn invalid_key_settings_are_refused() {
    run_scenario("tests/c/api_encryption.c", "refuses");
}

#[test]
fn build_without_encryption_refuses_password() {
    run_scenario("tests/c/api_encryption.c", "not_in_this_build");
}

#[test]
fn api_encryption_is_clean_under_valgrind() {
    run_under_valgrind("tests/c/api_encryption.c", &[]);
}
