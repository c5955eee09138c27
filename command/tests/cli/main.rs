//! The command `kvstore`, run as a program: one file for each group of commands, and for what several
//! groups share.

mod common;
mod completion;
mod encryption;
mod import;
mod inspect;
mod interactive;
mod json;
mod keys;
mod maintenance;
#[cfg(feature = "remote")]
mod postgres;
#[cfg(feature = "remote")]
#[path = "../../../tests/common/server.rs"]
mod server;
mod time;
mod tour;
mod transfer;
#[cfg(unix)]
#[path = "../../../tests/common/tutorial.rs"]
mod tutorial;
