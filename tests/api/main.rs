//! The Rust API: stores, families, reads, writes, iteration, transactions, copies. Expiry is tested in
//! `tests/expiry`.

mod backup;
mod batch;
mod checkpoints;
#[path = "../common/mod.rs"]
mod common;
mod conditional;
mod copy;
mod family;
mod fetch;
mod info;
mod iteration;
mod iteration_during_writes;
mod panics;
mod ranges;
mod statistics;
mod store;
mod threads;
mod transactions;
mod vacuum;
mod waits;
