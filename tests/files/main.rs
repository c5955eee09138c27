//! The files of a store: paths, permissions, what they reveal, and files that are no stores.

#[path = "../common/mod.rs"]
mod common;
mod confidentiality;
mod file_paths;
mod foreign_files;
mod secure_delete;
#[path = "../common/sqlite.rs"]
mod sqlite;
