//! Compiles and runs C and C++ programs with the shared library of the current build. Code for a
//! particular test belongs in that test's file.
#![allow(dead_code)] // each test file uses what it needs

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

/// The root of the repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the directory of the shared library `libkvstore.so`. The first call in a process builds it
/// with the profile, target and features of the test binary.
pub fn library_dir() -> PathBuf {
    static DIRECTORY: LazyLock<PathBuf> = LazyLock::new(build_library);
    DIRECTORY.clone()
}

fn build_library() -> PathBuf {
    // Half of the tests run under valgrind, where optimised code takes less than half of the time.
    let optimised = ["--config", "profile.dev.package.kvstore-ttl.opt-level=1"];
    cargo_build("rustc", ["--crate-type", "cdylib"].into_iter().chain(optimised)).join("deps")
}

/// Returns the crate `libkvstore.rlib`, built with the profile, target and features of the test binary.
/// The crates it depends on are in the folder `deps` next to it.
pub fn rust_crate() -> PathBuf {
    cargo_build("build", []).join("libkvstore.rlib")
}

/// Builds the library with the profile, target and features of the test binary, and returns the folder
/// of its artefacts.
fn cargo_build<'a>(subcommand: &str, options: impl IntoIterator<Item = &'a str>) -> PathBuf {
    let test = std::env::current_exe().expect("the path of the test binary");
    // TARGET_DIR/[TARGET/]PROFILE/deps/TEST
    let mut folders = test.ancestors().skip(2);
    let (artefacts, above) = (folders.next().unwrap(), folders.next().unwrap());
    let profile = match artefacts.file_name().and_then(|name| name.to_str()) {
        Some("debug") => "dev",
        Some(name) => name,
        None => panic!("the profile of {test:?}"),
    };
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args([subcommand, "--quiet", "--locked", "--lib", "--profile", profile]).args(options);
    if above.join(".rustc_info.json").exists() {
        cargo.arg("--target-dir").arg(above);
    } else {
        let target = above.file_name().expect("the name of the target");
        cargo.arg("--target-dir").arg(folders.next().unwrap()).arg("--target").arg(target);
    }
    for (feature, is_on) in [
        ("encryption", cfg!(feature = "encryption")),
        ("encryption-vendored-openssl", cfg!(feature = "encryption-vendored-openssl")),
        ("remote", cfg!(feature = "remote")),
    ] {
        if is_on {
            cargo.args(["--features", feature]);
        }
    }
    run(cargo.current_dir(root()));
    artefacts.to_owned()
}

/// Runs a command; its output is part of the message when it fails.
pub fn run(command: &mut Command) -> Output {
    // cargo puts the folder above first, which may contain the library of an older build.
    command.env_remove("LD_LIBRARY_PATH");
    let output = command.output().unwrap_or_else(|e| panic!("cannot start {command:?}: {e}"));
    assert!(
        output.status.success(),
        "{command:?}\nended with {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// Returns a C or C++ compiler with the include path of the headers and all warnings as errors.
pub fn compiler(name: &str, standard: &str) -> Command {
    let mut command = Command::new(name);
    command.arg(format!("-std={standard}")).args([
        "-Wall",
        "-Wextra",
        "-Wpedantic",
        "-Werror",
        "-g",
        "-pthread",
    ]);
    command.arg("-D_GNU_SOURCE").arg("-I").arg(root().join("include"));
    command
}

/// Compiles `source` (a path from the root) with the shared library into `directory`.
pub fn build(compiler: &mut Command, source: &str, directory: &Path) -> PathBuf {
    let program = directory.join(Path::new(source).file_stem().expect("a file name"));
    let library = library_dir();
    run(compiler
        .arg("-o")
        .arg(&program)
        .arg(root().join(source))
        .arg("-L")
        .arg(&library)
        .arg("-lkvstore")
        // Before LD_LIBRARY_PATH, where cargo puts a folder that an older `cargo build` may have filled.
        .arg("-Wl,--disable-new-dtags")
        .arg(format!("-Wl,-rpath,{}", library.display())));
    program
}

/// Returns all files and links below a folder, links with their targets; on request, folders too.
pub fn tree(folder: &Path, folders_too: bool) -> BTreeSet<String> {
    let mut tree = BTreeSet::new();
    let mut waiting = vec![folder.to_owned()];
    while let Some(next) = waiting.pop() {
        for entry in fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(folder).unwrap().display().to_string();
            if let Ok(target) = fs::read_link(&path) {
                tree.insert(format!("{name} -> {}", target.display()));
            } else if path.is_dir() {
                if folders_too {
                    tree.insert(format!("{name}/"));
                }
                waiting.push(path);
            } else {
                tree.insert(name);
            }
        }
    }
    tree
}

/// Returns whether a tool is installed. In CI a missing tool is a failure.
pub fn has_tool(name: &str) -> bool {
    found(name, Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success()))
}

/// Like `has_tool`, for a tool that the test has located itself.
pub fn found(name: &str, there: bool) -> bool {
    assert!(there || std::env::var_os("CI").is_none(), "{name} is missing: .ci/setup installs it");
    if !there {
        println!("skipped: {name} is missing");
    }
    there
}
