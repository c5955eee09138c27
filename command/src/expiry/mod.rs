//! Commands on expiry: listing, purging, sweeping.

mod buckets;
mod chart;
pub mod clean;
pub mod expiring;
pub mod expiring_keys;
pub mod next;
pub mod purge;
mod steps;
pub mod sweep;
