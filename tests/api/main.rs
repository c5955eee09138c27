//! The Rust API: stores, families, reads, writes, iteration, transactions, copies. Expiry is tested in
//! `tests/expiry`.

mod backup;
mod batch;
#[path = "../common/mod.rs"]
mod common;
mod conditional;
mod copy;
mod family;
mod fetch;
mod info;
mod iteration;
mod iteration_during_writes;
mod maintenance;
mod panics;
mod ranges;
mod store;
mod transactions;
