//! The C API and the C++ headers, used by C and C++ programs: the scenarios of `tests/c` and
//! `tests/cpp`, the headers, the exported symbols and the examples.

mod backup;
mod basics;
#[path = "../common/c_programs.rs"]
mod c_programs;
#[cfg(feature = "remote")]
#[path = "../common/mod.rs"]
mod common;
mod conditional;
mod cpp;
mod encryption;
mod environment;
mod exits;
mod expiry;
mod expiry_examples;
mod handle_reuse;
mod header;
mod header_generator;
mod many_keys;
mod misuse;
mod quickstarts;
mod recover;
mod scenarios;
mod size_limit;
mod symbols;
