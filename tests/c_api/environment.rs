//! Signals, users and restricted system calls while stores are open: the scenarios of
//! `tests/c/environment.c`.

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
