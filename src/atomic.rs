//! Atomic numbers of 64 bits, which some processors of 32 bits do not have (mips, ARMv5): there they are behind locks.

#[cfg(not(target_has_atomic = "64"))]
pub(crate) use portable_atomic::{AtomicI64, AtomicU64};
#[cfg(target_has_atomic = "64")]
pub(crate) use std::sync::atomic::{AtomicI64, AtomicU64};
