//! The ABI of the shared library: functions, layout of structs, values of constants. None changes within a SONAME;
//! docs/reference/abi.md states the guarantee. header.rs tests that the header declares what is exported.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use crate::c_programs::{build, compiler, library_dir, root, run};

/// Returns the functions of the symbol list for packagers, each with the version that introduced
/// it.
fn listed() -> Vec<(String, String)> {
    let list = fs::read_to_string(root().join("packaging/libkvstore0.symbols")).unwrap();
    let lines = list.lines().filter_map(|line| line.strip_prefix(' ')?.split_once("@Base "));
    lines.map(|(name, version)| (name.to_owned(), version.to_owned())).collect()
}

fn numbers(version: &str) -> Vec<u64> {
    version.split('.').map(|part| part.parse().unwrap()).collect()
}

#[test]
fn shared_library_exports_exactly_listed_functions() {
    let library = library_dir().join("libkvstore.so");
    let output = run(Command::new("nm").args(["-D", "--defined-only"]).arg(library)).stdout;
    let output = String::from_utf8(output).unwrap();
    let exported: BTreeSet<_> = output.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    let listed = listed();
    let listed: BTreeSet<_> = listed.iter().map(|(name, _)| name.as_str()).collect();
    let gone: Vec<_> = listed.difference(&exported).collect();
    assert!(gone.is_empty(), "programs need these, and the library has lost them: {gone:?}");
    let new: Vec<_> = exported.difference(&listed).collect();
    assert!(new.is_empty(), "add to packaging/libkvstore0.symbols, with the next version: {new:?}");
}

#[test]
fn listed_functions_are_not_newer_than_crate_version() {
    let crate_version = numbers(env!("CARGO_PKG_VERSION"));
    for (name, version) in listed() {
        assert!(numbers(&version) <= crate_version, "{name} is from {version}");
    }
}

#[test]
fn struct_layouts_and_constants_are_unchanged() {
    let directory = tempfile::tempdir().unwrap();
    build(&mut compiler("cc", "c11"), "tests/c/abi_layout.c", directory.path());
}
