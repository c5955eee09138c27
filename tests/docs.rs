//! `docs/build c`: the C and C++ reference comes out of Doxygen without a warning, and has what it is for.

mod c_common;

use std::fs;
use std::process::Command;

use c_common::{has_tool, root, run};

#[test]
fn the_reference_is_made_without_a_warning_and_has_every_function_in_a_section() {
    if !["doxygen", "python3"].map(has_tool).iter().all(|there| *there) {
        return;
    }
    let target = tempfile::tempdir().unwrap();
    run(Command::new("docs/build")
        .current_dir(root())
        .arg("c")
        .env_remove("DOCS")
        .env("TARGET_DIR", target.path()));
    let pages = target.path().join("docs/api/c");
    let mut sections = String::new();
    for entry in fs::read_dir(&pages).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy();
        if name.starts_with("group__") && name.ends_with(".html") {
            sections += &fs::read_to_string(&path).unwrap();
        }
    }
    let list = fs::read_to_string(root().join("packaging/libkvstore0.symbols")).unwrap();
    for name in list.lines().filter_map(|line| Some(line.strip_prefix(' ')?.split_once('@')?.0)) {
        assert!(sections.contains(&format!("{name}()</h2>")), "{name} is in no section");
    }
    let conventions = fs::read_to_string(pages.join("conventions.html")).unwrap();
    assert!(conventions.contains("<th>Forks</th>"), "{conventions}");
}
