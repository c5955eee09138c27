//! Programs that end while a store is open: `tests/c/exits.c` and `tests/cpp/static_store.cpp`, with
//! plain and encrypted stores. `KVSTORE_EXITS` sets the number of runs of each kind.

use std::path::Path;
use std::process::Command;

use kvstore::{Config, Store};

use crate::c_programs::{build, compiler, library_dir, root, run};
use crate::scenarios::program;

/// A raw key, as C and C++ programs give it.
#[cfg(feature = "encryption")]
const KEY: &str = "x'0707070707070707070707070707070707070707070707070707070707070707'";

fn runs() -> u32 {
    std::env::var("KVSTORE_EXITS").map_or(10, |number| number.parse().expect("a number"))
}

/// A plain store, and an encrypted one if this build has encryption: the password for the programs,
/// and how to open the store.
fn kinds() -> Vec<(&'static str, Config)> {
    vec![
        ("", Config::new()),
        #[cfg(feature = "encryption")]
        (KEY, Config::new().raw_key(&[7; 32])),
    ]
}

/// Runs a program that ends with the store open, and checks the store.
fn end(program: &Path, before: &[&str], after: &[&str]) {
    for (password, config) in kinds() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        for _ in 0..runs() {
            run(Command::new(program).args(before).arg(&path).arg(password).args(after));
            Store::open_with(&path, &config).unwrap().integrity_check().unwrap();
        }
    }
}

fn end_c(how: &str, after: &[&str]) {
    end(&program("tests/c/exits.c"), &[how], after);
}

#[test]
fn exit_handler_closes_store() {
    end_c("closed_by_handler", &[]);
}

#[test]
fn store_left_open_is_whole() {
    end_c("left_open", &[]);
}

#[test]
fn store_with_running_cleaner_is_whole_after_exit() {
    end_c("cleaner", &[]);
}

#[test]
fn store_in_use_by_threads_is_whole_after_exit() {
    end_c("threads", &[]);
}

#[test]
fn exit_handler_closes_store_in_use_by_threads() {
    end_c("used_by_handler", &[]);
}

#[test]
fn program_that_uses_openssl_itself_ends_well() {
    end_c("openssl_first", &[]);
}

#[test]
fn dlclose_with_running_cleaner_is_harmless() {
    // The program is linked with the library itself, so it loads a copy.
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy.so");
    std::fs::copy(library_dir().join("libkvstore.so"), &copy).unwrap();
    end_c("unloaded", &[copy.to_str().unwrap()]);
}

#[test]
fn static_cpp_object_closes_store() {
    let folder = tempfile::tempdir().unwrap();
    let mut compiler = compiler("c++", "c++17");
    compiler.arg("-I").arg(root().join("bindings/cpp/include"));
    let program = build(&mut compiler, "tests/cpp/static_store.cpp", folder.path());
    end(&program, &[], &[]);
}
