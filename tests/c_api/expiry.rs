//! Expiry, write times and the cleaner through the C API: their effect and their exact result
//! codes. Each test except the last two is a scenario of `tests/c/api_expiry.c`,
//! `api_write_times.c` or `api_cleaner.c`; all run again under valgrind.

use std::process::Command;

use crate::c_programs::{build, compiler, run};
use crate::scenarios::{run_scenario, run_under_valgrind};

#[test]
fn put_for_accepts_ttl_of_at_least_one_millisecond() {
    run_scenario("tests/c/api_expiry.c", "put_for");
}

#[test]
fn expire_respects_each_condition() {
    run_scenario("tests/c/api_expiry.c", "expire_conditions");
}

#[test]
fn expire_does_not_revive_missing_or_expired_key() {
    run_scenario("tests/c/api_expiry.c", "expire_missing");
}

#[test]
fn expire_with_past_time_expires_key_at_once() {
    run_scenario("tests/c/api_expiry.c", "expire_in_the_past");
}

#[test]
fn expire_refuses_unknown_flags_and_negative_times() {
    run_scenario("tests/c/api_expiry.c", "expire_refuses");
}

#[test]
fn ttl_change_keeps_large_value() {
    run_scenario("tests/c/api_expiry.c", "expire_large");
}

#[test]
fn persist_removes_ttl() {
    run_scenario("tests/c/api_expiry.c", "persist");
}

#[test]
fn expire_time_returns_expiry_time() {
    run_scenario("tests/c/api_expiry.c", "expire_time");
}

#[test]
fn get_and_expire_extends_expiry() {
    run_scenario("tests/c/api_expiry.c", "get_and_expire");
}

#[test]
fn plain_puts_use_default_ttl() {
    run_scenario("tests/c/api_expiry.c", "default_ttl");
}

#[test]
fn default_ttl_is_stored_and_applies_to_every_handle() {
    run_scenario("tests/c/api_expiry.c", "default_ttl_is_stored");
}

#[test]
fn next_expiry_is_earliest_of_all_families() {
    run_scenario("tests/c/api_expiry.c", "next_expiry");
}

#[test]
fn expiring_iterator_is_ordered_by_expiry() {
    run_scenario("tests/c/api_expiry.c", "expiring_iterator");
}

#[test]
fn expiring_iterator_orders_thousands_of_keys() {
    run_scenario("tests/c/api_expiry.c", "expiring_iterator_is_in_order");
}

#[test]
fn every_iterator_returns_expiry_times() {
    run_scenario("tests/c/api_expiry.c", "expire_ms_on_every_iterator");
}

#[test]
fn count_live_excludes_expired_keys() {
    run_scenario("tests/c/api_expiry.c", "count_live");
}

#[test]
fn purge_step_removes_earliest_of_all_families_first() {
    run_scenario("tests/c/api_expiry.c", "purge_step_earliest_first");
}

#[test]
fn purge_step_stops_at_its_budget() {
    run_scenario("tests/c/api_expiry.c", "purge_step_budgets");
}

#[test]
fn purge_step_progresses_with_minimal_time_budget() {
    run_scenario("tests/c/api_expiry.c", "purge_step_makes_progress");
}

#[test]
fn purges_are_part_of_a_transaction() {
    run_scenario("tests/c/api_expiry.c", "purge_step_in_transactions");
}

#[test]
fn purge_before_removes_keys_expired_before_cutoff() {
    run_scenario("tests/c/api_expiry.c", "purge_before");
}

#[test]
fn changes_of_ttls_are_part_of_a_transaction() {
    run_scenario("tests/c/api_expiry.c", "in_transactions");
}

#[test]
fn age_is_unavailable_without_write_tracking() {
    run_scenario("tests/c/api_write_times.c", "without_tracking");
}

#[test]
fn writes_set_write_time_and_ttl_changes_do_not() {
    run_scenario("tests/c/api_write_times.c", "write_time");
}

#[test]
fn write_tracking_can_be_switched_off_and_on() {
    run_scenario("tests/c/api_write_times.c", "switched_off_and_on");
}

#[test]
fn write_tracking_is_stored_and_applies_to_every_handle() {
    run_scenario("tests/c/api_write_times.c", "tracking_is_stored");
}

#[test]
fn sweep_removes_keys_older_than_age() {
    run_scenario("tests/c/api_write_times.c", "sweep");
}

#[test]
fn sweep_in_many_steps_is_complete() {
    run_scenario("tests/c/api_write_times.c", "sweep_in_steps");
}

#[test]
fn cleaner_removes_expired_keys() {
    run_scenario("tests/c/api_cleaner.c", "purges");
}

#[test]
fn cleaner_starts_and_stops_on_request() {
    run_scenario("tests/c/api_cleaner.c", "starts_and_stops");
}

#[test]
fn cleaner_refuses_stores_that_allow_one_handle() {
    run_scenario("tests/c/api_cleaner.c", "unsupported_stores");
}

#[test]
fn cleaner_does_not_affect_open_transaction() {
    run_scenario("tests/c/api_cleaner.c", "during_a_transaction");
}

#[test]
fn puts_succeed_while_the_cleaner_works() {
    run_scenario("tests/c/api_cleaner.c", "puts_during_cleaning");
}

#[test]
fn cleaner_retries_after_busy_lock() {
    run_scenario("tests/c/api_cleaner.c", "another_handle_writes");
}

#[test]
fn concurrent_starts_run_one_cleaner() {
    run_scenario("tests/c/api_cleaner.c", "started_by_many");
}

#[test]
fn cleaner_started_during_close_stops_with_store() {
    run_scenario("tests/c/api_cleaner.c", "started_while_closing");
}

/// Compiles a program of `tests/c` and runs it once.
fn run_program(name: &str, argument: &str) {
    if std::env::var_os("KVSTORE_TEST_REMOTE").is_some() {
        println!("SKIPPED on a server: it is about files, for which writers wait for each other");
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary folder");
    let program = build(&mut compiler("cc", "c11"), &format!("tests/c/{name}.c"), directory.path());
    run(Command::new(program).arg(argument).current_dir(directory.path()));
}

#[test]
fn cleaner_starts_and_stops_under_load() {
    run_program("cleaner_soak", "50");
}

#[test]
fn no_put_fails_while_the_cleaner_works() {
    run_program("cleaner_latency", "3000");
}

// ---- valgrind ---------------------------------------------------------------------------------------

#[test]
fn api_expiry_is_clean_under_valgrind() {
    run_under_valgrind("tests/c/api_expiry.c", &[]);
}

#[test]
fn api_write_times_is_clean_under_valgrind() {
    run_under_valgrind("tests/c/api_write_times.c", &[]);
}

#[test]
fn api_cleaner_is_clean_under_valgrind() {
    run_under_valgrind("tests/c/api_cleaner.c", &[]);
}
