//! The documentation: Doxygen generates the C and C++ reference without a warning (`docs/build c`),
//! the tutorials work as written, and no link is broken.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::c_programs::{has_tool, library_dir, root, run, rust_crate};
use crate::tutorial::Tutorial;

#[test]
fn c_reference_builds_without_warning_and_lists_functions() {
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

/// Executes the steps of a tutorial in an empty folder, with `tools` first in `$PATH`.
fn follow(page: &str, tools: &Path, variables: &[(&str, &Path)]) {
    let tutorial = Tutorial::read(root(), page);
    let folder = tempfile::tempdir().unwrap();
    let files = tempfile::tempdir().unwrap();
    let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("sh");
    shell.args(["-c", &tutorial.script(files.path())]).current_dir(folder.path()).env("PATH", path);
    shell.envs(variables.iter().copied()).env_remove("LD_LIBRARY_PATH");
    let output = shell.output().unwrap();
    tutorial.assert_printed(&String::from_utf8(output.stdout).unwrap());
}

/// Creates a folder with a kvstore.pc for the library of this build, like that of an installed one.
fn pkg_config() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let library = library_dir();
    let text = format!(
        "Name: kvstore\nDescription: of this build\nVersion: 0\nCflags: -I{0}/include -I{0}/bindings/cpp/include\n\
         Libs: -L{1} -lkvstore -Wl,--disable-new-dtags -Wl,-rpath,{1}\n",
        root().display(),
        library.display()
    );
    fs::write(folder.path().join("kvstore.pc"), text).unwrap();
    folder
}

#[test]
fn c_and_cpp_pages_with_programs_work_as_written() {
    if !["cc", "c++", "pkg-config"].map(has_tool).iter().all(|there| *there) {
        return;
    }
    let description = pkg_config();
    for page in ["tutorial/c.md", "tutorial/cpp.md", "how-to/no-exceptions.md"] {
        follow(page, description.path(), &[("PKG_CONFIG_PATH", description.path())]);
    }
}

/// Stand-in for `cargo new`, `cargo add` and `cargo run` in the tutorial, which uses the crate
/// compiled by this build. The real cargo would compile everything again, or need a network.
const CARGO: &str = r#"#!/bin/sh
set -e
case "$1" in
new) mkdir -p "$3/src" ;;
add) ;;
run) rustc --edition 2024 -L "dependency=$KVSTORE_DEPS" --extern "kvstore=$KVSTORE_CRATE" src/main.rs -o main && ./main ;;
*) exit 2 ;;
esac
"#;

#[test]
fn rust_tutorial_works_as_written() {
    let library = rust_crate();
    let deps = library.with_file_name("deps");
    let tools = tempfile::tempdir().unwrap();
    let cargo = tools.path().join("cargo");
    fs::write(&cargo, CARGO).unwrap();
    run(Command::new("chmod").arg("+x").arg(&cargo));
    follow(
        "tutorial/rust.md",
        tools.path(),
        &[("KVSTORE_DEPS", deps.as_path()), ("KVSTORE_CRATE", library.as_path())],
    );
}

#[test]
fn messages_page_lists_messages_of_sources() {
    if !has_tool("python3") {
        return;
    }
    let output = Command::new("python3").arg(root().join("docs/messages")).arg("--check").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn documents_have_no_broken_links() {
    if !has_tool("python3") {
        return;
    }
    let output = Command::new("python3").arg(root().join("tests/check-links")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
