//! The quickstart of the README is a program that works.

mod c_common;

use std::fs;
use std::process::Command;

use c_common::{build, compiler, root, run};

const QUICKSTART: &str = "examples/quickstart.c";

#[test]
fn the_quickstart_compiles_as_c99_and_runs() {
    let directory = tempfile::tempdir().unwrap();
    let program = build(&mut compiler("cc", "c99"), QUICKSTART, directory.path());
    for _ in 0..2 {
        // A second run finds the store of the first.
        let output = run(Command::new(&program).current_dir(&directory));
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            "user:1 is Ada\nuser:1 = Ada\nuser:2 = Bob\n",
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

#[test]
fn the_readme_shows_the_quickstart_verbatim() {
    let quickstart = fs::read_to_string(root().join(QUICKSTART)).unwrap();
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    assert!(
        readme.contains(&format!("```c\n{quickstart}```\n")),
        "README.md has no ```c block that is {QUICKSTART}, byte for byte"
    );
}
