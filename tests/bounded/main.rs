//! Bounded stores: `Store::set_size_limit`, what goes to make room, and that the file stays within it.

mod bursts;
#[path = "../common/mod.rs"]
mod common;
mod flash;
mod lengths;
mod model;
mod processes;
mod rules;
