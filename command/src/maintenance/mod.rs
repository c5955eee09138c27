//! Commands that maintain a store: integrity, backup, space.

pub mod backup;
pub mod check;
pub mod checkpoint;
pub mod compact;
pub mod limit;
pub mod recover;
pub mod repair;
