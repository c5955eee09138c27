//! Signals, users, restricted system calls, deleted files and clocks that are set while stores are
//! open: the scenarios of `tests/c/environment.c` and `tests/c/system_clock.c`.

use crate::scenarios::run_scenario;

#[test]
fn busy_timeout_is_not_shortened_by_signals() {
    run_scenario("tests/c/environment.c", "busy_timeout_with_timer");
}

#[test]
fn cleaner_leaves_signals_to_the_program() {
    run_scenario("tests/c/environment.c", "signal_with_cleaner");
}

#[test]
fn store_works_after_setuid_away_from_its_directory() {
    run_scenario("tests/c/environment.c", "setuid_after_open");
}

#[test]
fn store_works_where_faccessat2_is_refused() {
    run_scenario("tests/c/environment.c", "faccessat2_refused");
}

#[test]
fn deleted_shm_stops_both_processes() {
    run_scenario("tests/c/environment.c", "shm_deleted");
}

#[test]
fn deleted_wal_stops_both_processes() {
    run_scenario("tests/c/environment.c", "wal_deleted");
}

#[test]
fn open_handle_stops_if_wal_and_shm_are_deleted() {
    run_scenario("tests/c/environment.c", "wal_and_shm_deleted");
}

#[test]
fn clock_ahead_by_ten_years_is_corrected() {
    run_scenario("tests/c/system_clock.c", "clock_ahead_by_ten_years_is_corrected");
}

#[test]
fn clock_in_1970_is_followed_when_set() {
    run_scenario("tests/c/system_clock.c", "clock_in_1970_is_followed_when_set");
}

#[test]
fn small_step_back_stands_still() {
    run_scenario("tests/c/system_clock.c", "small_step_back_stands_still");
}

#[test]
fn file_size_limit_fails_writes_and_process_lives() {
    run_scenario("tests/c/environment.c", "file_size_limit");
}

#[test]
fn descriptors_that_program_opens_are_not_used_or_closed() {
    run_scenario("tests/c/environment.c", "descriptors_closed");
}

#[test]
fn delete_mode_is_way_out_without_shared_maps() {
    run_scenario("tests/c/environment.c", "shared_maps_refused");
}

#[test]
fn file_of_another_user_is_opened_where_o_creat_is_refused() {
    run_scenario("tests/c/environment.c", "o_creat_refused");
}

#[test]
fn used_up_quota_is_reported_as_full() {
    run_scenario("tests/c/environment.c", "quota_used_up");
}

#[test]
fn store_works_where_files_cannot_be_removed() {
    run_scenario("tests/c/environment.c", "removal_refused");
}

#[test]
fn store_works_where_landlock_forbids_removal() {
    run_scenario("tests/c/environment.c", "removal_refused_by_landlock");
}

#[test]
fn new_files_have_given_mode_whatever_umask_is() {
    run_scenario("tests/c/environment.c", "file_mode");
}

#[test]
fn open_that_failed_once_leaves_no_read_only_handle() {
    run_scenario("tests/c/failing_opens.c", "open_fails_once");
}

#[test]
fn store_opens_after_failures_of_fstat_during_open() {
    run_scenario("tests/c/failing_opens.c", "fstat_fails_from_then_on");
}
