//! Backups through the C API. Each test is a scenario of `tests/c/api_backup.c`, run with and
//! without valgrind.

use crate::scenarios::{run_scenario, run_under_valgrind};

#[test]
fn a_backup_has_everything_with_its_ttls() {
    run_scenario("tests/c/api_backup.c", "copies");
}

#[test]
fn an_empty_store_can_be_backed_up() {
    run_scenario("tests/c/api_backup.c", "empty_store");
}

#[test]
fn the_progress_of_a_backup_counts_down_to_zero() {
    run_scenario("tests/c/api_backup.c", "progress");
}

#[test]
fn a_backup_that_is_stopped_leaves_no_file() {
    run_scenario("tests/c/api_backup.c", "stopped");
}

#[test]
fn a_backup_that_is_stopped_at_the_last_call_leaves_no_file() {
    run_scenario("tests/c/api_backup.c", "stopped_at_the_last_call");
}

#[test]
fn the_progress_callback_may_use_the_store() {
    run_scenario("tests/c/api_backup.c", "calls_back");
}

#[test]
fn the_progress_callback_of_a_store_in_memory_is_refused() {
    run_scenario("tests/c/api_backup.c", "calls_back_in_memory");
}

#[test]
fn a_store_may_be_closed_while_it_is_backed_up() {
    run_scenario("tests/c/api_backup.c", "closed_meanwhile");
}

#[test]
fn a_backup_has_nothing_of_an_open_transaction() {
    run_scenario("tests/c/api_backup.c", "beside_a_transaction");
}

#[test]
fn a_backup_overwrites_nothing() {
    run_scenario("tests/c/api_backup.c", "refuses");
}

#[test]
fn a_copy_to_another_store_has_everything_with_its_times() {
    run_scenario("tests/c/api_backup.c", "to_another_store");
}

#[test]
fn a_copy_that_is_stopped_has_copied_nothing() {
    run_scenario("tests/c/api_backup.c", "to_another_store_and_stopped");
}

#[test]
fn a_store_may_be_closed_while_it_is_copied_or_copied_to() {
    run_scenario("tests/c/api_backup.c", "to_another_store_that_is_closed_meanwhile");
}

// ---- valgrind ---------------------------------------------------------------------------------------

#[test]
fn api_backup_is_clean_under_valgrind() {
    run_under_valgrind("tests/c/api_backup.c", &[]);
}
