//! Bounded stores (`Store::set_size_limit`): which keys are evicted, and that the file stays within
//! the limit.

mod bursts;
#[path = "../common/mod.rs"]
mod common;
mod flash;
mod lengths;
mod model;
mod processes;
mod rules;
