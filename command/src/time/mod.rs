//! Commands on expiry: listing, purging, sweeping.

mod buckets;
mod chart;
pub mod clean;
pub mod ends;
pub mod expiring;
pub mod next;
pub mod purge;
mod steps;
pub mod sweep;
