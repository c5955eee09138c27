//! Many keys in one call through the C API: ranges, row keys, reads of several keys, batches. Each
//! test is a scenario of `tests/c/api_ranges.c` or `api_many.c`; all run again under valgrind.

use crate::scenarios::{run_scenario, run_under_valgrind};

#[test]
fn fetch_returns_entries_from_current_position() {
    run_scenario("tests/c/api_many.c", "fetch");
}

#[test]
fn fetch_returns_thousands_of_rows_with_any_batch_size() {
    run_scenario("tests/c/api_many.c", "fetch_many");
}

#[test]
fn null_bound_with_length_is_not_unbounded() {
    run_scenario("tests/c/api_ranges.c", "null_with_a_length");
}

#[test]
fn range_flags_select_inclusive_or_exclusive_bounds() {
    run_scenario("tests/c/api_ranges.c", "bounds");
}

#[test]
fn bounds_are_compared_as_unsigned_bytes() {
    run_scenario("tests/c/api_ranges.c", "bounds_are_bytes");
}

#[test]
fn range_iterator_stays_in_range() {
    run_scenario("tests/c/api_ranges.c", "moves");
}

#[test]
fn keys_only_iterator_returns_no_values() {
    run_scenario("tests/c/api_ranges.c", "keys_only");
}

#[test]
fn delete_many_deletes_all_keys_or_none() {
    run_scenario("tests/c/api_many.c", "delete_many");
}

#[test]
fn delete_range_deletes_only_its_range() {
    run_scenario("tests/c/api_ranges.c", "delete_range");
}

#[test]
fn delete_range_of_thousands_is_one_transaction() {
    run_scenario("tests/c/api_ranges.c", "delete_range_large");
}

#[test]
fn row_keys_have_the_documented_bytes() {
    run_scenario("tests/c/api_ranges.c", "row_key_format");
}

#[test]
fn row_key_returns_required_size() {
    run_scenario("tests/c/api_ranges.c", "row_key_sizes");
}

#[test]
fn row_keys_are_ordered_by_partition_and_clustering() {
    run_scenario("tests/c/api_ranges.c", "row_key_order");
}

#[test]
fn row_iterator_returns_rows_of_one_partition() {
    run_scenario("tests/c/api_ranges.c", "row_iterator");
}

#[test]
fn closed_row_range_of_one_key_returns_one_row() {
    run_scenario("tests/c/api_ranges.c", "row_iterator_one_row");
}

#[test]
fn row_iterator_seeks_clustering_parts() {
    run_scenario("tests/c/api_ranges.c", "row_iterator_moves");
}

#[test]
fn row_disappears_with_its_last_column() {
    run_scenario("tests/c/api_ranges.c", "row_lifetimes");
}

#[test]
fn get_into_copies_as_much_as_buffer_holds() {
    run_scenario("tests/c/api_many.c", "get_into");
}

#[test]
fn get_into_reads_the_beginning_of_large_values() {
    run_scenario("tests/c/api_many.c", "get_into_large");
}

#[test]
fn damaged_large_value_is_reported_as_corrupt() {
    run_scenario("tests/c/api_many.c", "get_into_damaged");
}

#[test]
fn get_many_returns_copy_or_null_per_key() {
    run_scenario("tests/c/api_many.c", "get_many");
}

#[test]
fn failed_get_many_returns_no_values() {
    run_scenario("tests/c/api_many.c", "get_many_refuses");
}

#[test]
fn get_many_reads_a_thousand_keys() {
    run_scenario("tests/c/api_many.c", "get_many_many");
}

#[test]
fn batch_commits_writes_in_order() {
    run_scenario("tests/c/api_many.c", "batch");
}

#[test]
fn batch_refuses_invalid_writes_when_added() {
    run_scenario("tests/c/api_many.c", "batch_refuses");
}

#[test]
fn batch_keeps_its_writes_until_commit_succeeds() {
    run_scenario("tests/c/api_many.c", "batch_of_another_handle");
}

#[test]
fn batch_is_part_of_the_open_transaction() {
    run_scenario("tests/c/api_many.c", "batch_in_transactions");
}

#[test]
fn batch_with_dropped_family_writes_nothing() {
    run_scenario("tests/c/api_many.c", "batch_of_a_dropped_family");
}

#[test]
fn batch_of_ten_thousand_writes_is_one_transaction() {
    run_scenario("tests/c/api_many.c", "batch_large");
}

// ---- valgrind ---------------------------------------------------------------------------------------

#[test]
fn api_ranges_is_clean_under_valgrind() {
    run_under_valgrind("tests/c/api_ranges.c", &[]);
}

#[test]
fn api_many_is_clean_under_valgrind() {
    run_under_valgrind("tests/c/api_many.c", &[]);
}
