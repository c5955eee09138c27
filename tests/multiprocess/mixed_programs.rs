//! Processes that use this library, stock SQLite or both, and processes that fork, share one store
//! and are killed at random (`kill -9`). No acknowledged commit may be lost, and nothing may stay
//! locked.

use crate::programs::{self, program, seconds, seed};

const KILLS: &str = "25";

#[test]
fn randomly_killed_processes_lose_no_data_in_wal_mode() {
    program("mix").run(&["mix", "wal", KILLS, &seconds(), &seed()]);
}

#[test]
fn randomly_killed_processes_lose_no_data_in_delete_mode() {
    program("mix").run(&["mix", "delete", KILLS, &seconds(), &seed()]);
}

#[test]
fn killed_processes_lose_no_data_without_ofd_locks() {
    for mode in programs::MODES {
        program("mix").run_without_ofd(&["mix", mode, "10", &seconds(), &seed(), "alone"]);
    }
}
