//! Limits: the size limit of a store and its evictions, exhausted resources, and memory use.

#[path = "../common/mod.rs"]
mod common;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod device_memory;
mod eviction;
mod exhaustion;
