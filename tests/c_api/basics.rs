//! Basic functions of the C API: keys and values, TTLs, families, iterators, transactions, stores. Each test is a
//! scenario of a `tests/c/api_*.c` program; all run again under valgrind. Other files test damaged files, misuse,
//! several processes, and the remaining functions.

use crate::scenarios::{run_scenario, run_under_valgrind};

// ---- keys and values ----------------------------------------------------------------------------

#[test]
fn get_returns_put_value_followed_by_nul() {
    run_scenario("tests/c/api_data.c", "put_and_get");
}

#[test]
fn put_copies_its_arguments() {
    run_scenario("tests/c/api_data.c", "arguments_are_copied");
}

#[test]
fn missing_key_is_notfound_with_null_and_0() {
    run_scenario("tests/c/api_data.c", "missing_keys");
}

#[test]
fn empty_value_is_returned_as_non_null() {
    run_scenario("tests/c/api_data.c", "empty_values");
}

#[test]
fn invalid_lengths_are_refused_before_reading() {
    run_scenario("tests/c/api_data.c", "lengths");
}

#[test]
fn delete_removes_key_with_ttl_and_ignores_expired_key() {
    run_scenario("tests/c/api_data.c", "delete");
}

#[test]
fn exists_is_1_for_live_keys_only() {
    run_scenario("tests/c/api_data.c", "exists");
}

#[test]
fn put_if_absent_writes_only_missing_or_expired_keys() {
    run_scenario("tests/c/api_data.c", "put_if_absent");
}

#[test]
fn count_includes_expired_rows_until_purge() {
    run_scenario("tests/c/api_data.c", "count");
}

#[test]
fn clear_removes_all_rows_of_one_family() {
    run_scenario("tests/c/api_data.c", "clear");
}

#[test]
fn values_of_all_sizes_replace_each_other() {
    run_scenario("tests/c/api_data.c", "values_of_all_sizes");
}

#[test]
fn store_functions_act_on_default_family() {
    run_scenario("tests/c/api_data.c", "default_family");
}

// ---- keys that expire ---------------------------------------------------------------------------

#[test]
fn key_is_invisible_exactly_from_its_expiry_time() {
    run_scenario("tests/c/api_ttl.c", "put_ttl");
}

#[test]
fn key_with_past_expiry_is_invisible_at_once() {
    run_scenario("tests/c/api_ttl.c", "put_ttl_in_the_past");
}

#[test]
fn negative_expiry_time_is_refused_without_effect() {
    run_scenario("tests/c/api_ttl.c", "put_ttl_negative");
}

#[test]
fn put_ttl_with_no_ttl_removes_ttl() {
    run_scenario("tests/c/api_ttl.c", "put_ttl_never");
}

#[test]
fn put_clears_the_ttl() {
    run_scenario("tests/c/api_ttl.c", "put_clears_a_ttl");
}

#[test]
fn get_ttl_returns_value_and_remaining_ttl() {
    run_scenario("tests/c/api_ttl.c", "get_ttl");
}

#[test]
fn ttl_remaining_is_0_once_for_expired_key_then_notfound() {
    run_scenario("tests/c/api_ttl.c", "ttl_remaining");
}

#[test]
fn ttl_remaining_is_0_while_expired_row_remains() {
    run_scenario("tests/c/api_ttl.c", "ttl_remaining_while_the_row_stays");
}

#[test]
fn expired_rows_that_were_read_are_hidden_and_batch_removed() {
    run_scenario("tests/c/api_ttl.c", "rows_pending_removal");
}

#[test]
fn purge_removes_and_counts_expired_keys_of_family() {
    run_scenario("tests/c/api_ttl.c", "purge_expired");
}

#[test]
fn purge_in_a_transaction_is_part_of_it() {
    run_scenario("tests/c/api_ttl.c", "purge_in_a_transaction");
}

#[test]
fn ttl_applies_to_every_handle_on_file() {
    run_scenario("tests/c/api_ttl.c", "two_handles");
}

#[test]
fn store_uses_injected_clock() {
    run_scenario("tests/c/api_ttl.c", "clocks");
}

#[test]
fn duration_as_moment_is_refused() {
    run_scenario("tests/c/api_ttl.c", "duration_as_moment_is_refused");
}

// ---- families -----------------------------------------------------------------------------------

#[test]
fn family_is_created_once_with_separate_keys() {
    run_scenario("tests/c/api_families.c", "create_and_open");
}

#[test]
fn default_family_always_exists() {
    run_scenario("tests/c/api_families.c", "the_default_family");
}

#[test]
fn reserved_and_invalid_family_names_are_refused() {
    run_scenario("tests/c/api_families.c", "names");
}

#[test]
fn drop_removes_all_data_and_is_busy_with_open_handles() {
    run_scenario("tests/c/api_families.c", "drop");
}

#[test]
fn create_and_drop_are_part_of_a_transaction() {
    run_scenario("tests/c/api_families.c", "drop_in_a_transaction");
}

#[test]
fn family_list_is_caller_owned_and_null_terminated() {
    run_scenario("tests/c/api_families.c", "list");
}

#[test]
fn family_count_may_exceed_documented_number() {
    run_scenario("tests/c/api_families.c", "many_families");
}

#[test]
fn families_of_closed_store_return_misuse() {
    run_scenario("tests/c/api_families.c", "close_of_the_store");
}

// ---- iterators ----------------------------------------------------------------------------------

#[test]
fn iterator_is_at_eof_until_positioned_then_ascends() {
    run_scenario("tests/c/api_iterators.c", "plain");
}

#[test]
fn reverse_iterator_descends_with_next_and_prev() {
    run_scenario("tests/c/api_iterators.c", "plain_reverse");
}

#[test]
fn prefix_iterator_starts_at_first_match() {
    run_scenario("tests/c/api_iterators.c", "prefix_forward");
}

#[test]
fn reverse_prefix_iterator_starts_at_greatest_match() {
    run_scenario("tests/c/api_iterators.c", "prefix_reverse");
}

#[test]
fn prefix_of_0xff_bytes_has_no_upper_bound() {
    run_scenario("tests/c/api_iterators.c", "prefixes_of_the_highest_byte");
}

#[test]
fn null_empty_or_too_long_prefix_is_refused() {
    run_scenario("tests/c/api_iterators.c", "bad_prefixes");
}

#[test]
fn iterator_of_empty_family_stays_at_eof() {
    run_scenario("tests/c/api_iterators.c", "of_an_empty_family");
}

#[test]
fn next_does_not_position_an_iterator() {
    run_scenario("tests/c/api_iterators.c", "next_before_first");
}

#[test]
fn seek_finds_nearest_key_in_direction_repeatedly() {
    run_scenario("tests/c/api_iterators.c", "seek");
}

#[test]
fn seek_outside_of_the_prefix_is_ok_and_eof() {
    run_scenario("tests/c/api_iterators.c", "seek_with_a_prefix");
}

#[test]
fn iterator_owns_memory_of_its_keys_and_values() {
    run_scenario("tests/c/api_iterators.c", "bytes_and_empty_values");
}

#[test]
fn iterators_skip_expired_rows_and_delete_none() {
    run_scenario("tests/c/api_iterators.c", "expired_rows");
}

#[test]
fn iterator_returns_thousands_of_entries_in_order() {
    run_scenario("tests/c/api_iterators.c", "many_entries");
}

#[test]
fn iterator_sees_writes_ahead_of_its_position() {
    run_scenario("tests/c/api_iterators.c", "writes_during_iteration");
}

#[test]
fn iterator_outlives_its_store() {
    run_scenario("tests/c/api_iterators.c", "after_the_store_is_closed");
}

#[test]
fn iterator_outlives_its_family_handle() {
    run_scenario("tests/c/api_iterators.c", "after_the_family_is_closed");
}

// ---- transactions -------------------------------------------------------------------------------

#[test]
fn transaction_sees_its_writes_and_commit_keeps_them() {
    run_scenario("tests/c/api_transactions.c", "commit");
}

#[test]
fn rollback_undoes_all_writes_and_ttls() {
    run_scenario("tests/c/api_transactions.c", "rollback");
}

#[test]
fn second_begin_fails_and_first_transaction_continues() {
    run_scenario("tests/c/api_transactions.c", "one_at_a_time");
}

#[test]
fn put_in_a_read_transaction_is_readonly() {
    run_scenario("tests/c/api_transactions.c", "read_transaction");
}

#[test]
fn begin_treats_any_nonzero_flag_as_write() {
    run_scenario("tests/c/api_transactions.c", "write_flag");
}

#[test]
fn invalid_argument_does_not_end_transaction() {
    run_scenario("tests/c/api_transactions.c", "errors_inside");
}

#[test]
fn transaction_is_atomic_over_all_families() {
    run_scenario("tests/c/api_transactions.c", "atomic_over_families");
}

#[test]
fn second_handle_reads_but_is_busy_to_write_meanwhile() {
    run_scenario("tests/c/api_transactions.c", "a_second_handle");
}

#[test]
fn read_transaction_keeps_its_snapshot() {
    run_scenario("tests/c/api_transactions.c", "a_snapshot_stays");
}

#[test]
fn write_waits_for_the_busy_timeout() {
    run_scenario("tests/c/api_transactions.c", "busy_timeout");
}

#[test]
fn default_busy_timeout_is_five_seconds() {
    run_scenario("tests/c/api_transactions.c", "default_busy_timeout_is_five_seconds");
}

#[test]
fn iterator_sees_open_transaction_and_outlives_it() {
    run_scenario("tests/c/api_transactions.c", "iterators");
}

#[test]
fn transaction_over_one_wal_index_segment_loses_no_data() {
    run_scenario("tests/c/api_transactions.c", "long_transaction");
}

// ---- maintenance --------------------------------------------------------------------------------

#[test]
fn counters_match_their_names_and_reset_to_zero() {
    run_scenario("tests/c/api_maintenance.c", "counters");
}

#[test]
fn commits_checkpoints_and_pages_are_counted() {
    run_scenario("tests/c/api_maintenance.c", "counters_of_the_file");
}

#[test]
fn wal_is_checkpointed_by_commit_count_or_page_count() {
    run_scenario("tests/c/api_maintenance.c", "wal_size_limit");
}

#[test]
fn repair_counts_changes_and_then_check_passes() {
    run_scenario("tests/c/api_maintenance.c", "repair");
}

#[test]
fn integrity_check_message_names_damage_or_is_null() {
    run_scenario("tests/c/api_maintenance.c", "integrity");
}

#[test]
fn sync_does_not_end_transaction() {
    run_scenario("tests/c/api_maintenance.c", "sync_commits_nothing");
}

#[test]
fn incremental_vacuum_frees_requested_number_of_pages() {
    run_scenario("tests/c/api_maintenance.c", "vacuum");
}

#[test]
fn deleted_data_is_overwritten_if_configured() {
    run_scenario("tests/c/api_maintenance.c", "secure_delete");
}

#[test]
fn checkpoint_reports_frames_in_each_mode() {
    run_scenario("tests/c/api_maintenance.c", "checkpoint");
}

#[test]
fn truncating_checkpoint_after_reads_empties_wal() {
    run_scenario("tests/c/api_maintenance.c", "checkpoint_after_reads");
}

#[test]
fn checkpoint_in_a_write_transaction_is_busy() {
    run_scenario("tests/c/api_maintenance.c", "checkpoint_in_a_transaction");
}

#[test]
fn checkpoint_blocked_by_other_handles_is_busy_or_partial() {
    run_scenario("tests/c/api_maintenance.c", "checkpoint_with_others");
}

#[test]
fn checkpoint_without_a_wal_is_ok_and_0() {
    run_scenario("tests/c/api_maintenance.c", "checkpoint_without_a_wal");
}

// ---- the store and the library ------------------------------------------------------------------

#[test]
fn null_empty_and_memory_names_open_memory_stores() {
    run_scenario("tests/c/api_store.c", "in_memory");
}

#[test]
fn store_is_one_file_in_each_journal_mode() {
    run_scenario("tests/c/api_store.c", "in_a_file");
}

#[test]
fn wal_files_exist_from_open_to_last_close() {
    run_scenario("tests/c/api_store.c", "files_of_wal_mode");
}

#[test]
fn open_with_other_journal_mode_converts_file() {
    run_scenario("tests/c/api_store.c", "journal_modes_are_converted");
}

#[test]
fn non_store_file_is_refused_and_unchanged() {
    run_scenario("tests/c/api_store.c", "other_files");
}

#[test]
fn read_only_handle_reads_and_never_writes() {
    run_scenario("tests/c/api_store.c", "read_only");
}

#[test]
fn store_can_be_opened_and_read_while_another_handle_writes() {
    run_scenario("tests/c/api_store.c", "open_while_another_writes");
}

#[test]
fn open_and_close_do_not_change_file() {
    run_scenario("tests/c/api_store.c", "open_changes_nothing");
}

#[test]
fn settings_have_bounds_and_reserved_fields_must_be_zero() {
    run_scenario("tests/c/api_store.c", "config_bounds");
}

#[test]
fn all_settings_work_together_and_the_file_keeps_its_page_size() {
    run_scenario("tests/c/api_store.c", "every_setting_in_a_file");
}

#[test]
fn zeroed_configuration_equals_default() {
    run_scenario("tests/c/api_store.c", "zero_is_the_default");
}

#[test]
fn values_are_limited_by_the_configuration() {
    run_scenario("tests/c/api_store.c", "max_value_size");
}

#[test]
fn exclusive_handle_excludes_other_handles() {
    run_scenario("tests/c/api_store.c", "exclusive");
}

#[test]
fn close_rolls_back_and_later_calls_return_misuse() {
    run_scenario("tests/c/api_store.c", "close_rolls_back");
}

#[test]
fn error_text_is_that_of_last_failure() {
    run_scenario("tests/c/api_store.c", "error_texts");
}

#[test]
fn returned_memory_is_zeroed_and_version_matches_header() {
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
