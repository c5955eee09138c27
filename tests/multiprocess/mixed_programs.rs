//! Processes that use this library, stock SQLite or both, and processes that fork, share one store
//! and are killed at random (`kill -9`). No acknowledged commit may be lost, and nothing may stay
//! locked.

use crate::programs::{self, program, seconds, seed};

const KILLS: &str = "25";

#[test]
fn processes_of_all_kinds_killed_at_random_lose_nothing_in_wal_mode() {
    program("mix").run(&["mix", "wal", KILLS, &seconds(), &seed()]);
}

#[test]
fn processes_of_all_kinds_killed_at_random_lose_nothing_in_delete_mode() {
    program("mix").run(&["mix", "delete", KILLS, &seconds(), &seed()]);
}

#[test]
fn processes_with_one_copy_of_sqlite_each_lose_nothing_without_locks_of_a_descriptors_own() {
    for mode in programs::MODES {
        program("mix").run_without_ofd(&["mix", mode, "10", &seconds(), &seed(), "alone"]);
    }
}
