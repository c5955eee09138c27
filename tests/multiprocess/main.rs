//! Several processes on one file: locks, forks, `kill -9`, other copies of SQLite.

mod atomicity;
#[path = "../common/c_programs.rs"]
mod c_programs;
#[path = "../common/mod.rs"]
mod common;
mod forks;
mod idle_handles;
mod mixed_programs;
mod processes;
mod programs;
mod soak;
mod two_sqlites;
