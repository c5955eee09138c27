//! The C API: check, convert, call, convert. It knows nothing of the crate but its public API.
//!
//! Conventions, each with one home:
//! - `handle`: what a `KVStore *` points to. Memory of a handle is never given back to the allocator,
//!   so that a closed handle is told apart (`KVSTORE_MISUSE`) instead of read after free.
//! - `under_way`: which handles calls are under way with, so that one can be closed meanwhile.
//! - `call`: the panic guard, the result code and the error text of every call; `errmsg` keeps the texts.
//! - `args`: pointer and length to slice; output pointers; malloc'd copies.
//! - `codes`, `types`: the constants and structs of the header.
//! - the rest: the exported functions, in the order of the header.
//!
//! Each `extern "C"` function is written out, has the whole contract of its C documentation as its
//! safety condition (pointers are NULL, or valid for what the documentation says), and is only
//! glue. The header is made from these files by cbindgen, in the order build.rs names them.

#![allow(unsafe_code)] // the boundary: raw pointers come in here, and go no further
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
mod iterators;
mod library;
mod limit;
mod maintenance;
mod many;
mod ranges;
mod recover;
mod store;
mod transactions;
mod ttl;
mod types;
mod under_way;
