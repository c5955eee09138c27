//! What the shared library shows to the programs that load it.

mod c_common;

use std::process::Command;

use c_common::{library_dir, run};

#[test]
fn the_shared_library_exports_only_names_of_its_own() {
    let library = library_dir().join("libkvstore.so");
    let listed = run(Command::new("nm").args(["-D", "--defined-only"]).arg(library)).stdout;
    let listed = String::from_utf8(listed).unwrap();
    let names: Vec<_> = listed.lines().filter_map(|line| line.split(' ').next_back()).collect();
    let foreign: Vec<_> = names.iter().filter(|name| !name.starts_with("kvstore_")).collect();
    assert!(foreign.is_empty(), "exported, too: {foreign:?}");
    assert!(names.contains(&"kvstore_open"), "{names:?}");
}
