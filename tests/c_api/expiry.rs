//! Expiry, write times and the cleaner through the C API: their effect and their exact result
//! codes. Each test except the last two is a scenario of `tests/c/api_expiry.c`,
//! `api_write_times.c` or `api_cleaner.c`; all run again under valgrind.

use std::process::Command;

use crate::c_programs::{build, compiler, run};
use crate::scenarios::{run_scenario, run_under_valgrind};

#[test]
fn put_for_takes_a_duration_of_a_millisecond_or_more() {
    run_scenario("tests/c/api_expiry.c", "put_for");
}

#[test]
fn expire_obeys_each_condition() {
    run_scenario("tests/c/api_expiry.c", "expire_conditions");
}

#[test]
fn expire_brings_nothing_back_to_life() {
    run_scenario("tests/c/api_expiry.c", "expire_missing");
}

#[test]
fn expire_with_a_past_time_ends_a_key_at_once() {
    run_scenario("tests/c/api_expiry.c", "expire_in_the_past");
}

#[test]
fn expire_refuses_unknown_flags_and_negative_times() {
    run_scenario("tests/c/api_expiry.c", "expire_refuses");
}

#[test]
fn a_change_of_the_ttl_leaves_a_large_value_as_it_is() {
    run_scenario("tests/c/api_expiry.c", "expire_large");
}

#[test]
fn persist_takes_the_ttl_away() {
    run_scenario("tests/c/api_expiry.c", "persist");
}

#[test]
fn expire_time_says_when_a_key_expires() {
    run_scenario("tests/c/api_expiry.c", "expire_time");
}

#[test]
fn get_and_expire_slides_the_end_of_life() {
    run_scenario("tests/c/api_expiry.c", "get_and_expire");
}

#[test]
fn plain_puts_take_the_default_ttl() {
    run_scenario("tests/c/api_expiry.c", "default_ttl");
}

#[test]
fn the_default_ttl_is_kept_in_the_file_and_obeyed_by_every_handle() {
    run_scenario("tests/c/api_expiry.c", "default_ttl_is_stored");
}

#[test]
fn next_expiry_is_the_earliest_of_all_families() {
    run_scenario("tests/c/api_expiry.c", "next_expiry");
}

#[test]
fn the_expiring_iterator_walks_in_the_order_of_expiry() {
    run_scenario("tests/c/api_expiry.c", "expiring_iterator");
}

#[test]
fn the_expiring_iterator_keeps_its_order_over_thousands_of_keys() {
    run_scenario("tests/c/api_expiry.c", "expiring_iterator_is_in_order");
}

#[test]
fn every_iterator_shows_expiry_times() {
    run_scenario("tests/c/api_expiry.c", "expire_ms_on_every_iterator");
}

#[test]
fn count_live_leaves_out_what_has_expired() {
    run_scenario("tests/c/api_expiry.c", "count_live");
}

#[test]
fn purge_step_takes_the_earliest_of_all_families_first() {
    run_scenario("tests/c/api_expiry.c", "purge_step_earliest_first");
}

#[test]
fn purge_step_stops_at_its_budget() {
    run_scenario("tests/c/api_expiry.c", "purge_step_budgets");
}

#[test]
fn purge_step_makes_progress_however_little_time_it_has() {
    run_scenario("tests/c/api_expiry.c", "purge_step_makes_progress");
}

#[test]
fn purges_are_part_of_a_transaction() {
    run_scenario("tests/c/api_expiry.c", "purge_step_in_transactions");
}

#[test]
fn purge_before_removes_what_expired_before_the_cutoff() {
    run_scenario("tests/c/api_expiry.c", "purge_before");
}

#[test]
fn changes_of_ttls_are_part_of_a_transaction() {
    run_scenario("tests/c/api_expiry.c", "in_transactions");
}

#[test]
fn without_write_tracking_there_are_no_ages() {
    run_scenario("tests/c/api_write_times.c", "without_tracking");
}

#[test]
fn every_write_sets_the_write_time_and_a_change_of_the_ttl_does_not() {
    run_scenario("tests/c/api_write_times.c", "write_time");
}

#[test]
fn write_tracking_can_be_switched_off_and_on() {
    run_scenario("tests/c/api_write_times.c", "switched_off_and_on");
}

#[test]
fn write_tracking_is_kept_in_the_file_and_obeyed_by_every_handle() {
    run_scenario("tests/c/api_write_times.c", "tracking_is_stored");
}

#[test]
fn sweep_removes_what_was_written_longer_ago() {
    run_scenario("tests/c/api_write_times.c", "sweep");
}

#[test]
fn a_sweep_of_many_steps_is_complete() {
    run_scenario("tests/c/api_write_times.c", "sweep_in_steps");
}

#[test]
fn the_cleaner_removes_what_has_expired() {
    run_scenario("tests/c/api_cleaner.c", "purges");
}

#[test]
fn the_cleaner_starts_and_stops_as_it_is_told() {
    run_scenario("tests/c/api_cleaner.c", "starts_and_stops");
}

#[test]
fn the_cleaner_refuses_stores_it_cannot_open_a_second_time() {
    run_scenario("tests/c/api_cleaner.c", "where_it_cannot_run");
}

#[test]
fn the_cleaner_leaves_an_open_transaction_alone() {
    run_scenario("tests/c/api_cleaner.c", "beside_a_transaction");
}

#[test]
fn puts_succeed_while_the_cleaner_works() {
    run_scenario("tests/c/api_cleaner.c", "puts_meanwhile");
}

#[test]
fn the_cleaner_tries_again_after_a_busy_lock() {
    run_scenario("tests/c/api_cleaner.c", "another_handle_writes");
}

#[test]
fn several_threads_start_one_cleaner() {
    run_scenario("tests/c/api_cleaner.c", "started_by_many");
}

#[test]
fn a_cleaner_started_while_the_store_is_closed_ends_with_it() {
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
fn the_cleaner_is_started_and_stopped_under_load() {
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
