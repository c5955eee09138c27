//! The quickstarts in the README are working programs, in each language.
//! (`bindings/python/tests/test_docs.py` runs the Python one, and `tests/c_api/cpp.rs` also the C++ one.)

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::c_programs::{build, compiler, root, run};

const QUICKSTARTS: [(&str, &str); 4] = [
    ("c", "examples/quickstart.c"),
    ("cpp", "examples/quickstart.cpp"),
    ("python", "examples/quickstart.py"),
    ("rust", "examples/quickstart.rs"),
];

/// Runs the program twice in an empty folder. The second run finds the store of the first.
fn assert_expected_output(program: &mut Command, directory: &Path) {
    for _ in 0..2 {
        let output = run(program.current_dir(directory));
        assert_eq!(
            String::from_utf8_lossy(&output.stdout).trim_start_matches("\nrunning 1 test\n"),
            "user:1 is Ada\nuser:1 = Ada\nuser:2 = Bob\n",
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

#[test]
fn quickstart_compiles_as_c99_and_runs() {
    let directory = tempfile::tempdir().unwrap();
    let program = build(&mut compiler("cc", "c99"), "examples/quickstart.c", directory.path());
    assert_expected_output(&mut Command::new(program), directory.path());
}

#[test]
fn quickstart_compiles_as_cpp17_and_runs() {
    let directory = tempfile::tempdir().unwrap();
    let mut compiler = compiler("c++", "c++17");
    let program = build(
        compiler.arg("-I").arg(root().join("bindings/cpp/include")),
        "examples/quickstart.cpp",
        directory.path(),
    );
    assert_expected_output(&mut Command::new(program), directory.path());
}

mod quickstart_in_rust {
    include!("../../examples/quickstart.rs");

    pub fn run() -> kvstore::Result<()> {
        main()
    }
}

/// Compiled in, because `cargo run` would replace the library that other tests are loading.
#[test]
fn quickstart_in_rust_runs() {
    let directory = tempfile::tempdir().unwrap();
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args(["--quiet", "--ignored", "--nocapture", "--exact", "quickstarts::child"]);
    program.env("KVSTORE_TEST_ROLE", "quickstart");
    assert_expected_output(&mut program, directory.path());
}

/// The process of `quickstart_in_rust_runs`. Ends it before the test framework prints a summary.
#[test]
#[ignore = "a part of quickstart_in_rust_runs"]
fn child() {
    if std::env::var_os("KVSTORE_TEST_ROLE").is_none() {
        return; // started by --ignored alone
    }
    let result = quickstart_in_rust::run();
    std::process::exit(result.map_or_else(|error| panic!("{error}"), |()| 0));
}

#[test]
fn readme_shows_the_quickstarts_verbatim() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    for (language, path) in QUICKSTARTS {
        let quickstart = fs::read_to_string(root().join(path)).unwrap();
        assert!(
            readme.contains(&format!("```{language}\n{quickstart}```\n")),
            "README.md has no ```{language} block that is {path}, byte for byte"
        );
    }
}
