//! Bounded stores: `Store::set_limit`, what goes to make room, and that the file stays within it.

#[path = "../common/mod.rs"]
mod common;
mod rules;
