//! Interactive commands: `shell` and `watch`.

pub mod complete;
mod history;
mod sample;
mod screen;
pub mod shell;
pub mod watch;
