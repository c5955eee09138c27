//! Basic functions of the C API: keys and values, TTLs, families, iterators, transactions, stores. Each test is a
//! scenario of a `tests/c/api_*.c` program; all run again under valgrind. Other files test damaged files, misuse,
//! several processes, and the remaining functions.

use crate::scenarios::{run_scenario, run_under_valgrind};

// ---- keys and values ----------------------------------------------------------------------------

#[test]
fn a_get_gives_what_was_put_with_a_nul_one_past_it() {
    run_scenario("tests/c/api_data.c", "put_and_get");
}

#[test]
fn a_put_keeps_no_pointer_to_its_arguments() {
    run_scenario("tests/c/api_data.c", "arguments_are_copied");
}

#[test]
fn a_missing_key_is_notfound_and_gives_null_and_0() {
    run_scenario("tests/c/api_data.c", "missing_keys");
}

#[test]
fn an_empty_value_is_a_value_and_no_null() {
    run_scenario("tests/c/api_data.c", "empty_values");
}

#[test]
fn keys_and_values_of_a_bad_length_are_refused_before_they_are_read() {
    run_scenario("tests/c/api_data.c", "lengths");
}

#[test]
fn a_delete_takes_the_key_and_its_ttl_and_finds_no_dead_key() {
    run_scenario("tests/c/api_data.c", "delete");
}

#[test]
fn exists_is_1_for_live_keys_only() {
    run_scenario("tests/c/api_data.c", "exists");
}

#[test]
fn put_if_absent_writes_over_missing_and_expired_keys_only() {
    run_scenario("tests/c/api_data.c", "put_if_absent");
}

#[test]
fn count_counts_rows_and_expired_ones_until_they_are_purged() {
    run_scenario("tests/c/api_data.c", "count");
}

#[test]
fn clear_empties_one_family_and_leaves_nothing_behind() {
    run_scenario("tests/c/api_data.c", "clear");
}

#[test]
fn values_of_all_sizes_replace_each_other() {
    run_scenario("tests/c/api_data.c", "values_of_all_sizes");
}

#[test]
fn the_functions_of_the_store_are_those_of_its_default_family() {
    run_scenario("tests/c/api_data.c", "default_family");
}

// ---- keys that expire ---------------------------------------------------------------------------

#[test]
fn a_key_is_gone_exactly_from_its_expiry_time_on() {
    run_scenario("tests/c/api_ttl.c", "put_ttl");
}

#[test]
fn a_key_that_expires_in_the_past_is_invisible_at_once() {
    run_scenario("tests/c/api_ttl.c", "put_ttl_in_the_past");
}

#[test]
fn a_negative_expiry_time_is_an_error_and_changes_nothing() {
    run_scenario("tests/c/api_ttl.c", "put_ttl_negative");
}

#[test]
fn a_put_clears_the_ttl() {
    run_scenario("tests/c/api_ttl.c", "put_clears_a_ttl");
}

#[test]
fn get_ttl_gives_the_value_and_what_is_left() {
    run_scenario("tests/c/api_ttl.c", "get_ttl");
}

#[test]
fn ttl_remaining_is_0_once_for_a_dead_key_and_then_notfound() {
    run_scenario("tests/c/api_ttl.c", "ttl_remaining");
}

#[test]
fn ttl_remaining_is_0_for_as_long_as_the_dead_row_stays() {
    run_scenario("tests/c/api_ttl.c", "ttl_remaining_while_the_row_stays");
}

#[test]
fn dead_rows_that_were_met_are_gone_for_their_handle_and_removed_many_at_a_time() {
    run_scenario("tests/c/api_ttl.c", "dead_rows_that_were_met");
}

#[test]
fn a_purge_removes_and_counts_exactly_the_dead_keys_of_its_family() {
    run_scenario("tests/c/api_ttl.c", "purge_expired");
}

#[test]
fn a_purge_in_a_transaction_is_part_of_it() {
    run_scenario("tests/c/api_ttl.c", "purge_in_a_transaction");
}

#[test]
fn a_ttl_holds_for_every_handle_on_the_file() {
    run_scenario("tests/c/api_ttl.c", "two_handles");
}

#[test]
fn a_store_uses_the_clock_it_was_given() {
    run_scenario("tests/c/api_ttl.c", "clocks");
}

// ---- families -----------------------------------------------------------------------------------

#[test]
fn a_family_is_created_once_and_has_keys_of_its_own() {
    run_scenario("tests/c/api_families.c", "create_and_open");
}

#[test]
fn the_default_family_is_always_there() {
    run_scenario("tests/c/api_families.c", "the_default_family");
}

#[test]
fn reserved_and_bad_names_are_refused_and_all_others_work() {
    run_scenario("tests/c/api_families.c", "names");
}

#[test]
fn a_drop_takes_everything_and_waits_for_the_handles_of_its_store() {
    run_scenario("tests/c/api_families.c", "drop");
}

#[test]
fn create_and_drop_are_part_of_a_transaction() {
    run_scenario("tests/c/api_families.c", "drop_in_a_transaction");
}

#[test]
fn the_list_of_families_belongs_to_the_caller_and_ends_with_null() {
    run_scenario("tests/c/api_families.c", "list");
}

#[test]
fn there_may_be_more_families_than_the_documented_number() {
    run_scenario("tests/c/api_families.c", "as_many_as_wanted");
}

#[test]
fn families_answer_misuse_after_their_store_is_closed() {
    run_scenario("tests/c/api_families.c", "close_of_the_store");
}

// ---- iterators ----------------------------------------------------------------------------------

#[test]
fn a_plain_iterator_is_at_eof_until_it_is_positioned_and_goes_forward() {
    run_scenario("tests/c/api_iterators.c", "plain");
}

#[test]
fn a_reverse_iterator_goes_back_with_next_as_with_prev() {
    run_scenario("tests/c/api_iterators.c", "plain_reverse");
}

#[test]
fn a_prefix_iterator_is_positioned_from_the_start() {
    run_scenario("tests/c/api_iterators.c", "prefix_forward");
}

#[test]
fn a_reverse_prefix_iterator_is_at_the_greatest_key_from_the_start() {
    run_scenario("tests/c/api_iterators.c", "prefix_reverse");
}

#[test]
fn prefixes_of_0xff_have_no_end_above_them() {
    run_scenario("tests/c/api_iterators.c", "prefixes_of_the_highest_byte");
}

#[test]
fn a_prefix_that_is_null_empty_or_too_long_is_an_error() {
    run_scenario("tests/c/api_iterators.c", "bad_prefixes");
}

#[test]
fn iterators_of_an_empty_family_stay_at_eof() {
    run_scenario("tests/c/api_iterators.c", "of_an_empty_family");
}

#[test]
fn next_does_not_position_an_iterator() {
    run_scenario("tests/c/api_iterators.c", "next_before_first");
}

#[test]
fn a_seek_goes_to_the_nearest_key_in_its_direction_any_number_of_times() {
    run_scenario("tests/c/api_iterators.c", "seek");
}

#[test]
fn a_seek_outside_of_the_prefix_is_ok_and_eof() {
    run_scenario("tests/c/api_iterators.c", "seek_with_a_prefix");
}

#[test]
fn keys_and_values_of_an_iterator_are_its_own_memory() {
    run_scenario("tests/c/api_iterators.c", "bytes_and_empty_values");
}

#[test]
fn iterators_skip_expired_rows_and_delete_none() {
    run_scenario("tests/c/api_iterators.c", "expired_rows");
}

#[test]
fn an_iterator_shows_thousands_of_entries_in_order() {
    run_scenario("tests/c/api_iterators.c", "many_entries");
}

#[test]
fn an_iterator_sees_the_writes_ahead_of_it() {
    run_scenario("tests/c/api_iterators.c", "writes_meanwhile");
}

#[test]
fn an_iterator_outlives_its_store() {
    run_scenario("tests/c/api_iterators.c", "after_the_store_is_closed");
}

#[test]
fn an_iterator_outlives_its_familys_handle() {
    run_scenario("tests/c/api_iterators.c", "after_the_family_is_closed");
}

// ---- transactions -------------------------------------------------------------------------------

#[test]
fn a_transaction_sees_its_own_writes_and_keeps_them_by_a_commit() {
    run_scenario("tests/c/api_transactions.c", "commit");
}

#[test]
fn a_rollback_undoes_everything_ttls_included() {
    run_scenario("tests/c/api_transactions.c", "rollback");
}

#[test]
fn a_second_begin_is_an_error_and_the_first_goes_on() {
    run_scenario("tests/c/api_transactions.c", "one_at_a_time");
}

#[test]
fn a_put_in_a_read_transaction_is_readonly() {
    run_scenario("tests/c/api_transactions.c", "read_transaction");
}

#[test]
fn begin_takes_anything_but_0_for_a_write_transaction() {
    run_scenario("tests/c/api_transactions.c", "what_write_means");
}

#[test]
fn a_bad_argument_does_not_end_a_transaction() {
    run_scenario("tests/c/api_transactions.c", "errors_inside");
}

#[test]
fn a_transaction_is_atomic_over_all_families() {
    run_scenario("tests/c/api_transactions.c", "atomic_over_families");
}

#[test]
fn a_second_handle_reads_while_the_first_writes_and_its_writes_are_busy() {
    run_scenario("tests/c/api_transactions.c", "a_second_handle");
}

#[test]
fn a_read_transaction_keeps_seeing_the_moment_it_began() {
    run_scenario("tests/c/api_transactions.c", "a_snapshot_stays");
}

#[test]
fn a_write_waits_for_the_busy_timeout() {
    run_scenario("tests/c/api_transactions.c", "busy_timeout");
}

#[test]
fn an_iterator_sees_the_transaction_it_is_in_and_outlives_it() {
    run_scenario("tests/c/api_transactions.c", "iterators");
}

#[test]
fn a_transaction_that_is_longer_than_a_part_of_shared_memory_loses_nothing() {
    run_scenario("tests/c/api_transactions.c", "a_long_one");
}

// ---- maintenance --------------------------------------------------------------------------------

#[test]
fn each_counter_counts_what_it_says_and_a_reset_zeroes_it() {
    run_scenario("tests/c/api_maintenance.c", "counters");
}

#[test]
fn commits_checkpoints_and_pages_are_counted() {
    run_scenario("tests/c/api_maintenance.c", "counters_of_the_file");
}

#[test]
fn the_wal_is_checkpointed_every_n_commits_or_by_its_pages() {
    run_scenario("tests/c/api_maintenance.c", "wal_size_limit");
}

#[test]
fn a_repair_counts_what_it_changes_and_the_integrity_check_passes_after_it() {
    run_scenario("tests/c/api_maintenance.c", "repair");
}

#[test]
fn the_integrity_check_gives_no_message_or_one_that_names_the_damage() {
    run_scenario("tests/c/api_maintenance.c", "integrity");
}

#[test]
fn a_sync_never_commits_or_ends_a_transaction() {
    run_scenario("tests/c/api_maintenance.c", "sync_commits_nothing");
}

#[test]
fn an_incremental_vacuum_gives_back_as_many_pages_as_asked_for() {
    run_scenario("tests/c/api_maintenance.c", "vacuum");
}

#[test]
fn what_is_deleted_is_overwritten_where_the_configuration_says_so() {
    run_scenario("tests/c/api_maintenance.c", "secure_delete");
}

#[test]
fn a_checkpoint_of_each_mode_says_how_much_it_did() {
    run_scenario("tests/c/api_maintenance.c", "checkpoint");
}

#[test]
fn a_truncating_checkpoint_leaves_a_wal_of_0_bytes_after_reads() {
    run_scenario("tests/c/api_maintenance.c", "checkpoint_after_reads");
}

#[test]
fn a_checkpoint_in_a_write_transaction_is_busy() {
    run_scenario("tests/c/api_maintenance.c", "checkpoint_in_a_transaction");
}

#[test]
fn a_checkpoint_that_others_stand_in_the_way_of_is_busy_or_partial() {
    run_scenario("tests/c/api_maintenance.c", "checkpoint_with_others");
}

#[test]
fn a_checkpoint_without_a_wal_is_ok_and_0() {
    run_scenario("tests/c/api_maintenance.c", "checkpoint_without_a_wal");
}

// ---- the store and the library ------------------------------------------------------------------

#[test]
fn null_empty_and_memory_are_new_stores_in_memory() {
    run_scenario("tests/c/api_store.c", "in_memory");
}

#[test]
fn a_store_is_in_its_file_and_opens_in_each_journal_mode() {
    run_scenario("tests/c/api_store.c", "in_a_file");
}

#[test]
fn the_wal_files_are_there_from_the_open_to_the_last_close() {
    run_scenario("tests/c/api_store.c", "files_of_wal_mode");
}

#[test]
fn an_open_with_the_other_journal_mode_converts_the_file() {
    run_scenario("tests/c/api_store.c", "journal_modes_are_converted");
}

#[test]
fn what_is_no_store_is_refused_and_left_as_it_is() {
    run_scenario("tests/c/api_store.c", "other_files");
}

#[test]
fn a_read_only_handle_reads_and_never_writes() {
    run_scenario("tests/c/api_store.c", "read_only");
}

#[test]
fn a_store_can_be_opened_and_read_while_another_handle_writes() {
    run_scenario("tests/c/api_store.c", "open_while_another_writes");
}

#[test]
fn to_open_and_close_a_store_changes_nothing() {
    run_scenario("tests/c/api_store.c", "open_changes_nothing");
}

#[test]
fn each_setting_has_its_bounds_and_reserved_ones_are_zero() {
    run_scenario("tests/c/api_store.c", "config_bounds");
}

#[test]
fn all_settings_work_together_and_the_file_keeps_its_page_size() {
    run_scenario("tests/c/api_store.c", "every_setting_in_a_file");
}

#[test]
fn a_zeroed_configuration_is_the_default_one() {
    run_scenario("tests/c/api_store.c", "zero_is_the_default");
}

#[test]
fn values_are_limited_by_the_configuration() {
    run_scenario("tests/c/api_store.c", "max_value_size");
}

#[test]
fn an_exclusive_handle_is_alone() {
    run_scenario("tests/c/api_store.c", "exclusive");
}

#[test]
fn a_close_rolls_back_and_makes_everything_answer_misuse() {
    run_scenario("tests/c/api_store.c", "close_rolls_back");
}

#[test]
fn error_texts_are_those_of_the_last_failure() {
    run_scenario("tests/c/api_store.c", "error_texts");
}

#[test]
fn memory_is_zeroed_and_the_version_is_that_of_the_header() {
    run_scenario("tests/c/api_store.c", "library");
}

#[test]
fn every_code_has_its_number_and_its_text() {
    run_scenario("tests/c/api_store.c", "codes");
}

// ---- valgrind ---------------------------------------------------------------------------------------

#[test]
fn api_data_is_clean_under_valgrind() {
    run_under_valgrind("tests/c/api_data.c", &[]);
}

#[test]
fn api_ttl_is_clean_under_valgrind() {
    run_under_valgrind("tests/c/api_ttl.c", &[]);
}

#[test]
fn api_families_is_clean_under_valgrind() {
    run_under_valgrind("tests/c/api_families.c", &[]);
}

#[test]
fn api_iterators_is_clean_under_valgrind() {
    run_under_valgrind("tests/c/api_iterators.c", &[]);
}

#[test]
fn api_transactions_is_clean_under_valgrind() {
    run_under_valgrind("tests/c/api_transactions.c", &[]);
}

#[test]
fn api_maintenance_is_clean_under_valgrind() {
    run_under_valgrind("tests/c/api_maintenance.c", &[]);
}

#[test]
fn api_store_is_clean_under_valgrind() {
    run_under_valgrind("tests/c/api_store.c", &["error_texts"]);
}
