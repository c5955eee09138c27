//! Part B of the C API: every function through C, by what it does and by its exact result codes.
//!
//! The programs are `tests/c/b_*.c`; each test here is one scenario of one of them, run plainly and under
//! valgrind.

mod c_common;

use std::process::Command;

use c_common::{build, compiler, run, run_scenario};

#[test]
fn put_with_without_a_condition_always_writes() {
    run_scenario("tests/c/b_conditional.c", "put_with_always");
}

#[test]
fn put_with_if_absent_leaves_a_live_key_alone() {
    run_scenario("tests/c/b_conditional.c", "put_with_if_absent");
}

#[test]
fn put_with_if_present_makes_no_key() {
    run_scenario("tests/c/b_conditional.c", "put_with_if_present");
}

#[test]
fn put_with_keep_ttl_keeps_what_a_live_key_has() {
    run_scenario("tests/c/b_conditional.c", "put_with_keep_ttl");
}

#[test]
fn put_with_takes_the_default_ttl_only_when_told_to() {
    run_scenario("tests/c/b_conditional.c", "put_with_default_ttl");
}

#[test]
fn put_with_refuses_flags_and_times_that_make_no_sense() {
    run_scenario("tests/c/b_conditional.c", "put_with_refuses");
}

#[test]
fn compare_and_swap_writes_over_the_expected_value_only() {
    run_scenario("tests/c/b_conditional.c", "compare_and_swap");
}

#[test]
fn compare_and_delete_deletes_the_expected_value_only() {
    run_scenario("tests/c/b_conditional.c", "compare_and_delete");
}

#[test]
fn large_values_are_compared_to_their_last_byte() {
    run_scenario("tests/c/b_conditional.c", "compare_large");
}

#[test]
fn increment_adds_to_decimal_text_and_keeps_the_ttl() {
    run_scenario("tests/c/b_conditional.c", "increment");
}

#[test]
fn increment_does_not_overflow() {
    run_scenario("tests/c/b_conditional.c", "increment_limits");
}

#[test]
fn increment_of_what_is_no_number_changes_nothing() {
    run_scenario("tests/c/b_conditional.c", "increment_not_a_number");
}

#[test]
fn an_increment_that_creates_a_key_takes_the_default_ttl() {
    run_scenario("tests/c/b_conditional.c", "increment_default_ttl");
}

#[test]
fn the_default_ttl_is_for_plain_puts() {
    run_scenario("tests/c/b_conditional.c", "default_ttl_is_for_plain_puts");
}

#[test]
fn conditional_writes_are_part_of_a_transaction() {
    run_scenario("tests/c/b_conditional.c", "in_transactions");
}

#[test]
fn a_conditional_write_is_busy_while_another_handle_writes() {
    run_scenario("tests/c/b_conditional.c", "busy");
}

#[test]
fn only_writes_that_happened_are_counted() {
    run_scenario("tests/c/b_conditional.c", "statistics");
}

#[test]
fn expire_obeys_each_condition() {
    run_scenario("tests/c/b_lifetime.c", "expire_conditions");
}

#[test]
fn expire_brings_nothing_back_to_life() {
    run_scenario("tests/c/b_lifetime.c", "expire_missing");
}

#[test]
fn expire_with_a_past_time_ends_a_key_at_once() {
    run_scenario("tests/c/b_lifetime.c", "expire_in_the_past");
}

#[test]
fn expire_refuses_unknown_flags_and_negative_times() {
    run_scenario("tests/c/b_lifetime.c", "expire_refuses");
}

#[test]
fn a_change_of_the_ttl_leaves_a_large_value_as_it_is() {
    run_scenario("tests/c/b_lifetime.c", "expire_large");
}

#[test]
fn persist_takes_the_ttl_away() {
    run_scenario("tests/c/b_lifetime.c", "persist");
}

#[test]
fn expire_time_says_when_a_key_expires() {
    run_scenario("tests/c/b_lifetime.c", "expire_time");
}

#[test]
fn get_and_expire_slides_the_end_of_life() {
    run_scenario("tests/c/b_lifetime.c", "get_and_expire");
}

#[test]
fn plain_puts_take_the_default_ttl() {
    run_scenario("tests/c/b_lifetime.c", "default_ttl");
}

#[test]
fn the_default_ttl_is_kept_in_the_file_and_obeyed_by_every_handle() {
    run_scenario("tests/c/b_lifetime.c", "default_ttl_is_stored");
}

#[test]
fn next_expiry_is_the_earliest_of_all_families() {
    run_scenario("tests/c/b_lifetime.c", "next_expiry");
}

#[test]
fn the_expiring_iterator_walks_in_the_order_of_expiry() {
    run_scenario("tests/c/b_lifetime.c", "expiring_iterator");
}

#[test]
fn the_expiring_iterator_keeps_its_order_over_thousands_of_keys() {
    run_scenario("tests/c/b_lifetime.c", "expiring_iterator_is_in_order");
}

#[test]
fn every_iterator_shows_expiry_times() {
    run_scenario("tests/c/b_lifetime.c", "expire_ms_on_every_iterator");
}

#[test]
fn count_live_leaves_out_what_has_expired() {
    run_scenario("tests/c/b_lifetime.c", "count_live");
}

#[test]
fn purge_step_takes_the_earliest_of_all_families_first() {
    run_scenario("tests/c/b_lifetime.c", "purge_step_earliest_first");
}

#[test]
fn purge_step_stops_at_its_budget() {
    run_scenario("tests/c/b_lifetime.c", "purge_step_budgets");
}

#[test]
fn purge_step_makes_progress_however_little_time_it_has() {
    run_scenario("tests/c/b_lifetime.c", "purge_step_makes_progress");
}

#[test]
fn purges_are_part_of_a_transaction() {
    run_scenario("tests/c/b_lifetime.c", "purge_step_in_transactions");
}

#[test]
fn purge_before_removes_what_expired_before_the_cutoff() {
    run_scenario("tests/c/b_lifetime.c", "purge_before");
}

#[test]
fn changes_of_lifetimes_are_part_of_a_transaction() {
    run_scenario("tests/c/b_lifetime.c", "in_transactions");
}

#[test]
fn without_write_tracking_there_are_no_ages() {
    run_scenario("tests/c/b_age.c", "without_tracking");
}

#[test]
fn every_write_sets_the_write_time_and_a_change_of_the_ttl_does_not() {
    run_scenario("tests/c/b_age.c", "write_time");
}

#[test]
fn write_tracking_can_be_switched_off_and_on() {
    run_scenario("tests/c/b_age.c", "switched_off_and_on");
}

#[test]
fn write_tracking_is_kept_in_the_file_and_obeyed_by_every_handle() {
    run_scenario("tests/c/b_age.c", "tracking_is_stored");
}

#[test]
fn sweep_removes_what_was_written_longer_ago() {
    run_scenario("tests/c/b_age.c", "sweep");
}

#[test]
fn a_sweep_of_many_steps_is_complete() {
    run_scenario("tests/c/b_age.c", "sweep_in_steps");
}

#[test]
fn a_range_has_the_bounds_its_flags_say() {
    run_scenario("tests/c/b_ranges.c", "bounds");
}

#[test]
fn bounds_are_compared_as_unsigned_bytes() {
    run_scenario("tests/c/b_ranges.c", "bounds_are_bytes");
}

#[test]
fn a_range_iterator_moves_and_seeks_inside_its_range() {
    run_scenario("tests/c/b_ranges.c", "moves");
}

#[test]
fn a_keys_only_iterator_shows_no_values() {
    run_scenario("tests/c/b_ranges.c", "keys_only");
}

#[test]
fn delete_range_deletes_the_range_only() {
    run_scenario("tests/c/b_ranges.c", "delete_range");
}

#[test]
fn delete_range_of_thousands_is_one_transaction() {
    run_scenario("tests/c/b_ranges.c", "delete_range_large");
}

#[test]
fn row_keys_have_the_documented_bytes() {
    run_scenario("tests/c/b_ranges.c", "row_key_format");
}

#[test]
fn row_key_tells_how_much_room_it_needs() {
    run_scenario("tests/c/b_ranges.c", "row_key_sizes");
}

#[test]
fn row_keys_are_ordered_by_partition_and_clustering() {
    run_scenario("tests/c/b_ranges.c", "row_key_order");
}

#[test]
fn the_row_iterator_walks_one_partition() {
    run_scenario("tests/c/b_ranges.c", "row_iterator");
}

#[test]
fn a_closed_range_of_rows_from_one_to_itself_has_that_one() {
    run_scenario("tests/c/b_ranges.c", "row_iterator_one_row");
}

#[test]
fn the_row_iterator_seeks_clustering_parts() {
    run_scenario("tests/c/b_ranges.c", "row_iterator_moves");
}

#[test]
fn a_row_is_gone_when_its_last_column_is() {
    run_scenario("tests/c/b_ranges.c", "row_lifetimes");
}

#[test]
fn get_into_copies_what_there_is_room_for() {
    run_scenario("tests/c/b_many.c", "get_into");
}

#[test]
fn get_into_reads_the_beginning_of_large_values() {
    run_scenario("tests/c/b_many.c", "get_into_large");
}

#[test]
fn get_many_gives_a_copy_or_nothing_for_each_key() {
    run_scenario("tests/c/b_many.c", "get_many");
}

#[test]
fn get_many_hands_out_nothing_when_it_fails() {
    run_scenario("tests/c/b_many.c", "get_many_refuses");
}

#[test]
fn get_many_reads_a_thousand_keys() {
    run_scenario("tests/c/b_many.c", "get_many_many");
}

#[test]
fn a_batch_is_committed_in_the_order_of_its_writes() {
    run_scenario("tests/c/b_many.c", "batch");
}

#[test]
fn a_batch_refuses_what_is_wrong_when_it_is_added() {
    run_scenario("tests/c/b_many.c", "batch_refuses");
}

#[test]
fn a_batch_is_full_as_long_as_its_commit_fails() {
    run_scenario("tests/c/b_many.c", "batch_of_another_handle");
}

#[test]
fn a_batch_is_part_of_the_open_transaction() {
    run_scenario("tests/c/b_many.c", "batch_in_transactions");
}

#[test]
fn a_batch_for_a_dropped_family_does_nothing() {
    run_scenario("tests/c/b_many.c", "batch_of_a_dropped_family");
}

#[test]
fn a_batch_of_ten_thousand_writes_is_one_transaction() {
    run_scenario("tests/c/b_many.c", "batch_large");
}

#[test]
fn a_backup_has_everything_with_its_ttls() {
    run_scenario("tests/c/b_backup.c", "copies");
}

#[test]
fn an_empty_store_can_be_backed_up() {
    run_scenario("tests/c/b_backup.c", "empty_store");
}

#[test]
fn the_progress_of_a_backup_counts_down_to_zero() {
    run_scenario("tests/c/b_backup.c", "progress");
}

#[test]
fn a_backup_that_is_stopped_leaves_no_file() {
    run_scenario("tests/c/b_backup.c", "stopped");
}

#[test]
fn a_backup_that_is_stopped_at_the_last_call_leaves_no_file() {
    run_scenario("tests/c/b_backup.c", "stopped_at_the_last_call");
}

#[test]
fn the_progress_callback_may_use_the_store() {
    run_scenario("tests/c/b_backup.c", "calls_back");
}

#[test]
fn the_progress_callback_of_a_store_in_memory_is_refused() {
    run_scenario("tests/c/b_backup.c", "calls_back_in_memory");
}

#[test]
fn a_store_may_be_closed_while_it_is_backed_up() {
    run_scenario("tests/c/b_backup.c", "closed_meanwhile");
}

#[test]
fn a_backup_has_nothing_of_an_open_transaction() {
    run_scenario("tests/c/b_backup.c", "beside_a_transaction");
}

#[test]
fn a_backup_overwrites_nothing() {
    run_scenario("tests/c/b_backup.c", "refuses");
}

#[test]
fn the_cleaner_removes_what_has_expired() {
    run_scenario("tests/c/b_cleaner.c", "purges");
}

#[test]
fn the_cleaner_starts_and_stops_as_it_is_told() {
    run_scenario("tests/c/b_cleaner.c", "starts_and_stops");
}

#[test]
fn the_cleaner_refuses_stores_it_cannot_open_a_second_time() {
    run_scenario("tests/c/b_cleaner.c", "where_it_cannot_run");
}

#[test]
fn the_cleaner_leaves_an_open_transaction_alone() {
    run_scenario("tests/c/b_cleaner.c", "beside_a_transaction");
}

#[test]
fn puts_succeed_while_the_cleaner_works() {
    run_scenario("tests/c/b_cleaner.c", "puts_meanwhile");
}

#[test]
fn the_cleaner_tries_again_after_a_busy_lock() {
    run_scenario("tests/c/b_cleaner.c", "another_handle_writes");
}

#[test]
fn several_threads_start_one_cleaner() {
    run_scenario("tests/c/b_cleaner.c", "started_by_many");
}

#[test]
fn a_cleaner_started_while_the_store_is_closed_ends_with_it() {
    run_scenario("tests/c/b_cleaner.c", "started_while_closing");
}

#[test]
fn null_for_any_pointer_is_refused_and_changes_nothing() {
    run_scenario("tests/c/b_abuse.c", "null_pointers");
}

#[test]
fn bad_lengths_are_refused_before_anything_is_read() {
    run_scenario("tests/c/b_abuse.c", "lengths");
}

#[test]
fn an_expected_value_of_another_length_is_not_read() {
    run_scenario("tests/c/b_abuse.c", "expected_lengths");
}

#[test]
fn unknown_flags_and_reserved_fields_are_refused() {
    run_scenario("tests/c/b_abuse.c", "flags");
}

#[test]
fn everything_of_a_closed_store_is_refused() {
    run_scenario("tests/c/b_abuse.c", "closed_store");
}

#[test]
fn a_batch_of_a_closed_store_answers_misuse() {
    run_scenario("tests/c/b_abuse.c", "closed_store_batch");
}

#[test]
fn closed_and_freed_handles_are_refused() {
    run_scenario("tests/c/b_abuse.c", "closed_handles");
}

#[test]
fn a_handle_of_the_wrong_kind_is_refused() {
    run_scenario("tests/c/b_abuse.c", "wrong_kinds");
}

#[test]
fn handles_come_and_go_thousands_of_times() {
    run_scenario("tests/c/b_abuse.c", "cycles");
}

#[test]
fn the_library_names_itself_and_its_codes() {
    run_scenario("tests/c/b_abuse.c", "library");
}

#[test]
fn the_constants_are_those_of_the_contract() {
    run_scenario("tests/c/b_abuse.c", "constants");
}

#[test]
fn clocks_at_the_edges_of_time_break_nothing() {
    run_scenario("tests/c/b_abuse.c", "clock_edges");
}

/// Compiles a program of `tests/c` and runs it once.
fn run_program(name: &str, argument: &str) {
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
