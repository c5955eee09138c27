//! Stores on a PostgreSQL server.
//!
//! With `KVSTORE_TEST_REMOTE=1`, other themes check the promises that hold for every store. The unit
//! tests of the backend are in its own folder in `src`.

#[path = "../common/c_programs.rs"]
mod c_programs;
#[path = "../common/mod.rs"]
mod common;
#[cfg(feature = "remote")]
mod connection_loss;
mod stores;
