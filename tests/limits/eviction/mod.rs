//! Bounded stores (`Store::set_size_limit`): which keys are evicted, and that the file stays within
//! the limit.

mod bursts;
mod flash;
mod lengths;
mod model;
mod processes;
mod rules;
