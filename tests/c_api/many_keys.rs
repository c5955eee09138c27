//! Many keys in one call through the C API: ranges, row keys, reads of several keys, batches. Each
//! test is a scenario of `tests/c/api_ranges.c` or `api_many.c`; all run again under valgrind.

use crate::scenarios::{run_scenario, run_under_valgrind};

#[test]
fn entries_are_fetched_many_at_a_time_from_the_current_one_on() {
    run_scenario("tests/c/api_many.c", "fetch");
}

#[test]
fn thousands_of_rows_are_fetched_whatever_is_asked_for_at_a_time() {
    run_scenario("tests/c/api_many.c", "fetch_many");
}

#[test]
fn null_with_a_length_is_no_open_end_of_a_range() {
    run_scenario("tests/c/api_ranges.c", "null_with_a_length");
}

#[test]
fn a_range_has_the_bounds_its_flags_say() {
    run_scenario("tests/c/api_ranges.c", "bounds");
}

#[test]
fn bounds_are_compared_as_unsigned_bytes() {
    run_scenario("tests/c/api_ranges.c", "bounds_are_bytes");
}

#[test]
fn a_range_iterator_moves_and_seeks_inside_its_range() {
    run_scenario("tests/c/api_ranges.c", "moves");
}

#[test]
fn a_keys_only_iterator_shows_no_values() {
    run_scenario("tests/c/api_ranges.c", "keys_only");
}

#[test]
fn delete_many_deletes_all_of_its_keys_or_none() {
    run_scenario("tests/c/api_many.c", "delete_many");
}

#[test]
fn delete_range_deletes_the_range_only() {
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
fn row_key_tells_how_much_room_it_needs() {
    run_scenario("tests/c/api_ranges.c", "row_key_sizes");
}

#[test]
fn row_keys_are_ordered_by_partition_and_clustering() {
    run_scenario("tests/c/api_ranges.c", "row_key_order");
}

#[test]
fn the_row_iterator_walks_one_partition() {
    run_scenario("tests/c/api_ranges.c", "row_iterator");
}

#[test]
fn a_closed_range_of_rows_from_one_to_itself_has_that_one() {
    run_scenario("tests/c/api_ranges.c", "row_iterator_one_row");
}

#[test]
fn the_row_iterator_seeks_clustering_parts() {
    run_scenario("tests/c/api_ranges.c", "row_iterator_moves");
}

#[test]
fn a_row_is_gone_when_its_last_column_is() {
    run_scenario("tests/c/api_ranges.c", "row_lifetimes");
}

#[test]
fn get_into_copies_what_there_is_room_for() {
    run_scenario("tests/c/api_many.c", "get_into");
}

#[test]
fn get_into_reads_the_beginning_of_large_values() {
    run_scenario("tests/c/api_many.c", "get_into_large");
}

#[test]
fn get_many_gives_a_copy_or_nothing_for_each_key() {
    run_scenario("tests/c/api_many.c", "get_many");
}

#[test]
fn get_many_hands_out_nothing_when_it_fails() {
    run_scenario("tests/c/api_many.c", "get_many_refuses");
}

#[test]
fn get_many_reads_a_thousand_keys() {
    run_scenario("tests/c/api_many.c", "get_many_many");
}

#[test]
fn a_batch_is_committed_in_the_order_of_its_writes() {
    run_scenario("tests/c/api_many.c", "batch");
}

#[test]
fn a_batch_refuses_what_is_wrong_when_it_is_added() {
    run_scenario("tests/c/api_many.c", "batch_refuses");
}

#[test]
fn a_batch_is_full_as_long_as_its_commit_fails() {
    run_scenario("tests/c/api_many.c", "batch_of_another_handle");
}

#[test]
fn a_batch_is_part_of_the_open_transaction() {
    run_scenario("tests/c/api_many.c", "batch_in_transactions");
}

#[test]
fn a_batch_for_a_dropped_family_does_nothing() {
    run_scenario("tests/c/api_many.c", "batch_of_a_dropped_family");
}

#[test]
fn a_batch_of_ten_thousand_writes_is_one_transaction() {
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
