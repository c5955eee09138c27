//! What ends when, and its removal.

mod buckets;
mod chart;
pub mod clean;
pub mod ends;
pub mod expiring;
pub mod next;
pub mod purge;
mod steps;
pub mod sweep;
