//! Backups through the C API. Each test is a scenario of `tests/c/api_backup.c`, run with and
//! without valgrind.

use crate::scenarios::{run_scenario, run_under_valgrind};

#[test]
fn backup_contains_all_data_with_ttls() {
    run_scenario("tests/c/api_backup.c", "copies");
}

#[test]
fn empty_store_can_be_backed_up() {
    run_scenario("tests/c/api_backup.c", "empty_store");
}

#[test]
fn progress_of_a_backup_counts_down_to_zero() {
    run_scenario("tests/c/api_backup.c", "progress");
}

#[test]
fn cancelled_backup_leaves_no_file() {
    run_scenario("tests/c/api_backup.c", "stopped");
}

#[test]
fn backup_cancelled_at_last_callback_leaves_no_file() {
    run_scenario("tests/c/api_backup.c", "stopped_at_the_last_call");
}

#[test]
fn progress_callback_may_use_the_store() {
    run_scenario("tests/c/api_backup.c", "calls_back");
}

#[test]
fn progress_callback_cannot_use_memory_store() {
    run_scenario("tests/c/api_backup.c", "calls_back_in_memory");
}

#[test]
fn store_may_be_closed_during_backup() {
    run_scenario("tests/c/api_backup.c", "closed_during_backup");
}

#[test]
fn backup_excludes_uncommitted_writes() {
    run_scenario("tests/c/api_backup.c", "during_a_transaction");
}

#[test]
fn backup_refuses_existing_target() {
    run_scenario("tests/c/api_backup.c", "refuses");
}

#[test]
fn copy_to_other_store_keeps_data_and_times() {
    run_scenario("tests/c/api_backup.c", "to_another_store");
}

#[test]
fn cancelled_copy_changes_no_target_data() {
    run_scenario("tests/c/api_backup.c", "to_another_store_and_stopped");
}

#[test]
fn source_or_target_may_be_closed_during_copy() {
    run_scenario("tests/c/api_backup.c", "to_another_store_that_is_closed_meanwhile");
}

// ---- valgrind ---------------------------------------------------------------------------------------

#[test]
fn api_backup_is_clean_under_valgrind() {
    run_under_valgrind("tests/c/api_backup.c", &[]);
}
