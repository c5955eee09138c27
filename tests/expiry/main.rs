//! TTLs and expiry: exact reads, purges, lazy removal, the cleaner, clocks, write times and sweeps.

mod basics;
mod cleaner;
mod clocks;
#[path = "../common/mod.rs"]
mod common;
mod expired_ranges;
mod expiry_cursor;
mod lazy_removal;
mod many_families;
mod purge;
mod purge_per_write;
#[path = "../common/shim/mod.rs"]
mod shim;
#[path = "../common/sqlite.rs"]
mod sqlite;
mod ttl;
mod ttl_table;
mod write_times;
