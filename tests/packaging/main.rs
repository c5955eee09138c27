//! What is installed and published: `make install`, packages, mobile platforms, documentation.

mod android;
mod apple;
#[path = "../common/c_programs.rs"]
mod c_programs;
mod docs;
mod install;
mod recipes;
#[path = "../common/tutorial.rs"]
mod tutorial;
