//! Durability on a simulated disk (`common/shim`): power cuts, failing system calls, exhausted memory.
//!
//! `syscalls.rs` replaces functions of the C library in this whole program, in which nothing is ever
//! synced.

#[path = "../common/mod.rs"]
mod common;
#[cfg(feature = "encryption")]
mod encrypted_power_cuts;
mod faults;
mod power_cuts;
#[cfg(feature = "encryption")]
#[path = "../common/sentinels.rs"]
mod sentinels;
#[path = "../common/shim/mod.rs"]
mod shim;
mod syscalls;
