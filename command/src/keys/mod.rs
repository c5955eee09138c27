//! Commands on single keys.

pub mod del;
pub mod get;
pub mod put;
pub mod ttl;
