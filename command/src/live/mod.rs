//! For a person who stays.

mod complete;
mod history;
mod look;
mod screen;
pub mod shell;
pub mod watch;
