//! Damaged files: what the check reports, what repair and recovery save, and that nothing crashes.

mod check;
#[path = "../common/mod.rs"]
mod common;
mod damage;
mod malformed_files;
mod recover;
mod recover_logs;
mod recover_page_copies;
mod recover_random;
mod repair;
#[path = "../common/sqlite.rs"]
mod sqlite;
