//! The care of a file.

pub mod backup;
pub mod check;
pub mod checkpoint;
pub mod compact;
pub mod limit;
pub mod recover;
pub mod repair;
