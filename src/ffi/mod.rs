//! The C API: check, convert, call, convert. It uses the public API of the crate only.
//!
//! - `handle`: the objects that C pointers refer to. The memory of a handle is never returned to
//!   the allocator, so that a call with a closed handle is detected (`KVSTORE_MISUSE`) instead of
//!   reading freed memory.
//! - `hazard`: tracks the handles that calls are using, so that a handle can be closed during a
//!   call.
//! - `call`: panic guard, result code and error text of every call; `errmsg` stores the texts.
//! - `args`: pointer and length to slice; output pointers; malloc'd copies.
//! - `codes`, `types`: constants and structs of the header.
//! - the other files: the exported functions. Each file is a section of the header; its first line is the title.
//!
//! The safety condition of each `extern "C"` function is its C documentation: pointers are NULL, or valid as
//! documented. cbindgen generates the header from these files, in the order given in
//! tests/c_api/header_generator.rs.

#![allow(unsafe_code)] // raw pointers are confined to this module
#![allow(non_snake_case, unreachable_pub)] // names and visibility are the header's

mod args;
mod call;
mod coarse;
mod codes;
mod conditional;
mod data;
mod encryption;
mod errmsg;
mod expiry;
mod families;
mod handle;
mod hazard;
mod hint;
mod iterators;
mod library;
mod limit;
mod maintenance;
mod many;
mod purge;
mod ranges;
mod recover;
mod store;
mod transactions;
mod ttl;
mod types;
mod write_times;
