//! `make install` from the view of a packager and of a user: the installed files, programs compiled
//! with only these files, and `make uninstall`. The libraries are built once, in the folder that
//! `make install` uses.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::c_programs::{found, has_tool, root, run, tree};
use tempfile::TempDir;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Runs `make` with a target and variables, without cargo's environment. Returns its output.
fn make(target: &str, variables: &[(&str, &Path)]) -> String {
    let mut make = Command::new("make");
    make.current_dir(root()).arg(target);
    for (name, value) in variables {
        make.arg(format!("{name}={}", value.display()));
    }
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        let is_asked =
            ["CARGO_HOME", "CARGO_TARGET_DIR"].contains(&&*name) || name.starts_with("CARGO_PROFILE_");
        let of_cargo = name.starts_with("CARGO_") && !is_asked;
        // (LIBSQLITE3_FLAGS are those of .cargo/config.toml, which it asks itself.)
        let of_make = ["MAKEFLAGS", "MAKELEVEL", "MFLAGS", "DESTDIR", "PREFIX", "prefix", "LIBSQLITE3_FLAGS"]
            .contains(&&*name);
        if of_cargo || of_make {
            make.env_remove(name);
        }
    }
    String::from_utf8(run(&mut make).stdout).unwrap()
}

/// Returns the path of xtask, which make builds before any other goal.
pub fn xtask() -> &'static Path {
    static XTASK: OnceLock<PathBuf> = OnceLock::new();
    XTASK.get_or_init(|| {
        let folder = std::env::var_os("CARGO_TARGET_DIR").map_or(root().join("target"), PathBuf::from);
        let path = folder.join("xtask/debug/xtask");
        make(path.to_str().unwrap(), &[("XTASK", &path)]);
        path
    })
}

/// Returns `true` if the necessary tools exist and the libraries are built.
fn is_built() -> bool {
    static BUILT: OnceLock<bool> = OnceLock::new();
    *BUILT.get_or_init(|| {
        let tools = ["make", "ld", "objcopy", "readelf", "pkg-config", "cmake"];
        let there = tools.map(has_tool).iter().all(|there| *there);
        if there {
            make("all", &[]);
        }
        there
    })
}

/// An installation below its own prefix.
struct Installed {
    prefix: TempDir,
    /// Folder for programs built with the installation.
    work: TempDir,
}

impl Installed {
    fn new() -> Option<Installed> {
        is_built().then(|| {
            let installed =
                Installed { prefix: tempfile::tempdir().unwrap(), work: tempfile::tempdir().unwrap() };
            // Nothing is compiled after "make all": root may have no cargo.
            make("install", &[("PREFIX", installed.prefix.path()), ("CARGO", Path::new("/no-cargo"))]);
            installed
        })
    }

    fn lib(&self) -> PathBuf {
        self.prefix.path().join("lib")
    }

    fn pkg_config(&self, arguments: &[&str]) -> Vec<String> {
        let mut command = Command::new("pkg-config");
        command.args(arguments).arg("kvstore").env("PKG_CONFIG_PATH", self.lib().join("pkgconfig"));
        let output = String::from_utf8(run(&mut command).stdout).unwrap();
        output.split_whitespace().map(str::to_owned).collect()
    }

    /// Compiles a program of tests/packaging/install, away from the tree.
    fn compile(&self, source: &str, arguments: &[String]) -> PathBuf {
        let program = self.work.path().join("program");
        run(Command::new("cc")
            .current_dir(&self.work)
            .args(["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-o"])
            .arg(&program)
            .arg(root().join("tests/packaging/install").join(source))
            .args(arguments));
        program
    }

    /// Runs a program in an empty folder, with names of new files as arguments. It finds the shared
    /// library.
    fn run(&self, program: &Path, files: &[&str]) -> String {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("env");
        command.arg(format!("LD_LIBRARY_PATH={}", self.lib().display())).arg(program).args(files);
        String::from_utf8(run(command.current_dir(&folder)).stdout).unwrap()
    }

    /// Arguments that link the static library by its path, with the system libraries that it needs.
    fn static_library(&self) -> Vec<String> {
        let others = self.pkg_config(&["--static", "--libs"]);
        let others = others.into_iter().filter(|word| word != "-lkvstore");
        [self.lib().join("libkvstore.a").display().to_string()].into_iter().chain(others).collect()
    }

    fn shared_library(&self) -> Vec<String> {
        self.pkg_config(&["--libs"])
    }
}

/// Returns the files of a folder of the repository as they are named when installed below another
/// one.
fn copied(from: &str, to: &str, wanted: impl Fn(&str) -> bool) -> Vec<String> {
    if !root().join(from).is_dir() {
        return Vec::new();
    }
    let names = tree(&root().join(from), false).into_iter().filter(|name| wanted(name));
    names.map(|name| format!("{to}/{name}")).collect()
}

/// Files that `make install` has to install with `PREFIX=/usr` and a `libdir`.
fn expected(libdir: &str) -> BTreeSet<String> {
    let soname = format!("libkvstore.so.{}", env!("CARGO_PKG_VERSION_MAJOR"));
    let mut expected = BTreeSet::from([
        format!("{libdir}/libkvstore.so.{VERSION}"),
        format!("{libdir}/{soname} -> libkvstore.so.{VERSION}"),
        format!("{libdir}/libkvstore.so -> {soname}"),
    ]);
    for name in [
        "libkvstore.a",
        "pkgconfig/kvstore.pc",
        "cmake/kvstore/kvstoreConfig.cmake",
        "cmake/kvstore/kvstoreConfigVersion.cmake",
    ] {
        expected.insert(format!("{libdir}/{name}"));
    }
    for name in [
        "bin/kvstore",
        "include/kvstore.h",
        "include/snkv.h",
        "share/bash-completion/completions/kvstore",
        "share/fish/vendor_completions.d/kvstore.fish",
        "share/man/man1/kvstore.1",
        "share/man/man3/kvstore.3",
        "share/zsh/site-functions/_kvstore",
    ] {
        expected.insert(format!("usr/{name}"));
    }
    let documents = "usr/share/doc/kvstore";
    for name in [
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "bindings/python/CONTRIBUTING.md",
        "LICENSE",
        "LICENSE-APACHE",
        "LICENSE-MIT",
    ] {
        expected.insert(format!("{documents}/{name}"));
    }
    for name in ["bindings/python", "benches/peers", "tests/vm"] {
        expected.insert(format!("{documents}/{name}/README.md"));
    }
    let is_page = |name: &str| [".md", ".json", ".svg", ".png"].iter().any(|end| name.ends_with(end));
    expected.extend(copied("docs", &format!("{documents}/docs"), is_page));
    let is_program = |name: &str| [".c", ".h", ".cpp", ".hpp", ".py"].iter().any(|end| name.ends_with(end));
    expected.extend(copied("examples", &format!("{documents}/examples"), is_program));
    let is_header = |name: &str| name.ends_with(".h") || name.ends_with(".hpp");
    expected.extend(copied("bindings/cpp/include", "usr/include", is_header));
    expected
}

/// Returns the link targets in Markdown files below a folder that exist neither there nor in the
/// repository.
fn broken_links(folder: &Path) -> Vec<String> {
    let of_source =
        ["include", "bindings/cpp/include", "src", "tests", ".cargo"].map(|name| root().join(name));
    let mut dead = Vec::new();
    for page in tree(folder, false).into_iter().filter(|name| name.ends_with(".md")) {
        let text = fs::read_to_string(folder.join(&page)).unwrap();
        let links = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
        for link in links.map(|(link, _)| link.split('#').next().unwrap_or_default()) {
            if link.is_empty() || link.contains(':') || link.contains(' ') {
                continue; // of this page, of the web, or none at all
            }
            if link.starts_with("../api/") {
                continue; // references that docs/build generates
            }
            let source = root().join(&page).parent().unwrap().join(link).canonicalize();
            let is_source = source.is_ok_and(|path| of_source.iter().any(|of| path.starts_with(of)));
            if !is_source && !folder.join(&page).parent().unwrap().join(link).exists() {
                dead.push(format!("{page}: {link}"));
            }
        }
    }
    dead
}

/// Returns the names of the manual pages for the commands that the help lists.
fn pages_of_commands(kvstore: &Path) -> BTreeSet<String> {
    let help = String::from_utf8(run(Command::new(kvstore).arg("--help")).stdout).unwrap();
    // The groups of commands come before the options; aliases follow a name after a comma.
    let groups =
        help.lines().skip_while(|line| !line.starts_with("Usage:")).take_while(|line| *line != "Options:");
    let names = groups.filter_map(|line| {
        line.strip_prefix("  ")?.split([' ', ',']).next().filter(|name| !["", "help"].contains(name))
    });
    let pages: BTreeSet<_> = names.map(|name| format!("usr/share/man/man1/kvstore-{name}.1")).collect();
    assert!(pages.len() > 30, "{help}");
    pages
}

/// Returns the entries of a kind in the dynamic section, such as SONAME.
fn dynamic(file: &Path, kind: &str) -> Vec<String> {
    let output = run(Command::new("readelf").arg("-dW").arg(file).env("LC_ALL", "C")).stdout;
    let output = String::from_utf8(output).unwrap();
    let lines = output.lines().filter(|line| line.contains(&format!("({kind})")));
    lines.filter_map(|line| Some(line.split_once('[')?.1.trim_end_matches(']').to_owned())).collect()
}

#[test]
fn staged_install_has_expected_files_and_uninstall_removes_all() {
    if !is_built() {
        return;
    }
    let stage = tempfile::tempdir().unwrap();
    let usr = Path::new("/usr");
    let libdir = Path::new("/usr/lib/x86_64-linux-gnu");
    let variables = [("DESTDIR", stage.path()), ("PREFIX", usr), ("LIBDIR", libdir)];
    // Folders that exist keep their modes.
    let theirs = [("usr", 0o700), ("usr/bin", 0o750), ("usr/include", 0o711), ("usr/share/man/man1", 0o1777)];
    for (name, mode) in theirs {
        let folder = stage.path().join(name);
        fs::create_dir_all(&folder).unwrap();
        fs::set_permissions(folder, fs::Permissions::from_mode(mode)).unwrap();
    }
    make("install", &variables);
    for (name, mode) in theirs {
        let found = fs::metadata(stage.path().join(name)).unwrap().permissions().mode();
        assert_eq!(found & 0o7777, mode, "{name}");
    }
    let is_page = |name: &String| name.starts_with("usr/share/man/man1/kvstore-");
    let (pages, files): (BTreeSet<_>, BTreeSet<_>) = tree(stage.path(), false).into_iter().partition(is_page);
    assert_eq!(files, expected("usr/lib/x86_64-linux-gnu"));
    let of_commands = pages_of_commands(&stage.path().join("usr/bin/kvstore"));
    assert!(pages.is_superset(&of_commands), "{:?}", of_commands.difference(&pages));
    assert_eq!(broken_links(&stage.path().join("usr/share/doc/kvstore")), Vec::<String>::new());

    // No file contains the path of the staging folder.
    for name in ["pkgconfig/kvstore.pc", "cmake/kvstore/kvstoreConfig.cmake"] {
        let path = stage.path().join("usr/lib/x86_64-linux-gnu").join(name);
        let text = fs::read_to_string(path).unwrap();
        assert!(!text.contains(stage.path().to_str().unwrap()), "{text}");
        assert!(!text.contains('@'), "not filled in: {text}");
    }

    make("uninstall", &variables);
    let folders_of_all = [
        "",
        "bin/",
        "include/",
        "lib/",
        "share/",
        "share/doc/",
        "share/man/",
        "share/man/man1/",
        "share/man/man3/",
    ];
    let mut left: BTreeSet<_> = folders_of_all.map(|name| format!("usr/{name}")).into();
    for name in [
        "bash-completion/",
        "bash-completion/completions/",
        "fish/",
        "fish/vendor_completions.d/",
        "zsh/",
        "zsh/site-functions/",
    ] {
        left.insert(format!("usr/share/{name}"));
    }
    for name in ["", "cmake/", "pkgconfig/"] {
        left.insert(format!("usr/lib/x86_64-linux-gnu/{name}"));
    }
    assert_eq!(tree(stage.path(), true), left);
}

#[test]
fn install_folders_can_be_set_separately_in_lower_case() {
    if !is_built() {
        return;
    }
    let stage = tempfile::tempdir().unwrap();
    make(
        "install",
        &[
            ("DESTDIR", stage.path()),
            ("prefix", Path::new("/opt/kv")),
            ("libdir", Path::new("/opt/kv/lib64")),
            ("includedir", Path::new("/usr/include/kv")),
            ("INSTALL_STRIP", Path::new("1")),
        ],
    );
    for name in ["opt/kv/lib64/libkvstore.a", "usr/include/kv/kvstore.h", "opt/kv/share/man/man3/kvstore.3"] {
        assert!(stage.path().join(name).is_file(), "{name}");
    }
    let pc = fs::read_to_string(stage.path().join("opt/kv/lib64/pkgconfig/kvstore.pc")).unwrap();
    assert!(pc.contains("libdir=${exec_prefix}/lib64\nincludedir=/usr/include/kv\n"), "{pc}");
    let config = stage.path().join("opt/kv/lib64/cmake/kvstore/kvstoreConfig.cmake");
    assert!(fs::read_to_string(config).unwrap().contains("/../../../../../usr/include/kv\""));
}

#[test]
fn c_program_links_shared_library_by_pkg_config() {
    let Some(installed) = Installed::new() else { return };
    assert_eq!(installed.pkg_config(&["--modversion"]), [VERSION]);
    let program = installed.compile("store.c", &installed.pkg_config(&["--cflags", "--libs"]));
    assert_eq!(installed.run(&program, &["a.db"]), format!("kvstore {VERSION}\n"));
    let soname = format!("libkvstore.so.{}", env!("CARGO_PKG_VERSION_MAJOR"));
    assert_eq!(dynamic(&installed.lib().join("libkvstore.so"), "SONAME"), [soname.as_str()]);
    assert!(dynamic(&program, "NEEDED").contains(&soname));
}

#[test]
fn c_program_links_static_library_by_pkg_config() {
    let Some(installed) = Installed::new() else { return };
    let flags = installed.pkg_config(&["--static", "--cflags", "--libs"]);
    let whole = [flags, vec!["-static".to_owned(), "-Wl,--no-warnings".to_owned()]].concat();
    for program in [
        installed.compile("store.c", &whole), // glibc is in it, too
        installed
            .compile("store.c", &[installed.pkg_config(&["--cflags"]), installed.static_library()].concat()),
    ] {
        assert_eq!(installed.run(&program, &["a.db"]), format!("kvstore {VERSION}\n"));
        assert!(!dynamic(&program, "NEEDED").iter().any(|name| name.contains("kvstore")));
    }
}

#[test]
fn static_library_exports_same_symbols_as_shared_one() {
    let Some(installed) = Installed::new() else { return };
    let names = |arguments: &[&str], file: &str| {
        let output = run(Command::new("nm").args(arguments).arg(installed.lib().join(file))).stdout;
        let output = String::from_utf8(output).unwrap();
        let names = output.lines().filter_map(|line| line.split(' ').nth(2)).map(str::to_owned);
        names.collect::<BTreeSet<_>>()
    };
    let shared = names(&["-D", "--defined-only"], "libkvstore.so");
    assert!(shared.contains("kvstore_open"));
    assert_eq!(names(&["-g", "--defined-only"], "libkvstore.a"), shared);
}

#[test]
fn program_can_link_own_sqlite_in_any_library_order() {
    let Some(installed) = Installed::new() else { return };
    if !has_sqlite() {
        return;
    }
    let pkg_config = |arguments: &[&str]| {
        let output = run(Command::new("pkg-config").args(arguments).arg("sqlite3")).stdout;
        String::from_utf8(output).unwrap().split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let dynamic_sqlite = pkg_config(&["--libs"]);
    let mut static_sqlite = pkg_config(&["--static", "--libs"]);
    static_sqlite.retain(|word| word != "-lsqlite3");
    let libdir = pkg_config(&["--variable=libdir"]).concat();
    static_sqlite.insert(0, format!("{libdir}/libsqlite3.a"));
    let cflags = installed.pkg_config(&["--cflags"]);
    for ours in [installed.static_library(), installed.shared_library()] {
        for theirs in [&static_sqlite, &dynamic_sqlite] {
            for libraries in [[&ours[..], theirs].concat(), [&theirs[..], &ours].concat()] {
                let program = installed.compile("two_sqlites.c", &[&cflags[..], &libraries].concat());
                let output = installed.run(&program, &["a.db", "b.db"]);
                assert!(output.contains(" beside "), "{libraries:?}: {output}");
            }
        }
    }
}

/// Returns `true` if the system's SQLite can be compiled with.
fn has_sqlite() -> bool {
    let mut look = Command::new("pkg-config");
    found("libsqlite3-dev", look.args(["--exists", "sqlite3"]).status().is_ok_and(|status| status.success()))
}

#[test]
fn unwinding_works_through_static_and_shared_library() {
    let Some(installed) = Installed::new() else { return };
    make("install-strip", &[("PREFIX", installed.prefix.path())]);
    let cflags = [installed.pkg_config(&["--cflags"]), vec!["-D_GNU_SOURCE".to_owned()]].concat();
    for ours in [installed.static_library(), installed.shared_library()] {
        let program = installed.compile("unwinding.c", &[&cflags[..], &ours].concat());
        assert_eq!(installed.run(&program, &["a.db", "b.db"]), "unwound\n");
    }
}

#[test]
fn install_strip_keeps_linker_symbols_and_drops_debug_info() {
    let Some(installed) = Installed::new() else { return };
    let [shared, archive] = ["libkvstore.so", "libkvstore.a"].map(|name| installed.lib().join(name));
    let sections =
        |file: &Path| String::from_utf8(run(Command::new("readelf").arg("-SW").arg(file)).stdout).unwrap();
    for library in [&shared, &archive] {
        assert!(sections(library).contains(" .debug_"), "{} has no debug information", library.display());
    }
    let whole = fs::metadata(&shared).unwrap().len();
    make("install-strip", &[("PREFIX", installed.prefix.path())]);
    let left = sections(&shared);
    assert!(
        left.contains(" .dynsym ") && !left.contains(" .symtab ") && !left.contains(" .debug_"),
        "{left}"
    );
    let left = sections(&archive);
    assert!(left.contains(" .symtab ") && !left.contains(" .debug_"), "{left}");
    assert!(fs::metadata(&shared).unwrap().len() < whole);
}

#[test]
fn program_can_link_other_rust_static_library() {
    let Some(installed) = Installed::new() else { return };
    let other = installed.work.path().join("libother.a");
    run(Command::new("rustc")
        .args(["--edition=2024", "-O", "--crate-type=staticlib", "-o"])
        .arg(&other)
        .arg(root().join("tests/packaging/install/other_rust.rs")));
    let cflags = installed.pkg_config(&["--cflags"]);
    let (ours, other) = (installed.static_library(), [other.display().to_string()]);
    for libraries in [[&ours[..], &other].concat(), [&other[..], &ours].concat()] {
        let program = installed.compile("two_rusts.c", &[&cflags[..], &libraries].concat());
        assert_eq!(installed.run(&program, &["a.db"]), "both\n");
    }
}

#[test]
fn cmake_project_finds_relocated_package() {
    let Some(installed) = Installed::new() else { return };
    let moved = tempfile::tempdir().unwrap();
    let prefix = moved.path().join("moved");
    run(Command::new("cp").arg("-a").arg(installed.prefix.path()).arg(&prefix));
    drop(installed.prefix);
    let build = installed.work.path().join("build");
    let with_cpp = prefix.join("include/kvstore.hpp").exists();
    run(Command::new("cmake")
        .arg("-S")
        .arg(root().join("tests/packaging/install"))
        .arg("-B")
        .arg(&build)
        .arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.display()))
        .arg(format!("-DWITH_CPP={}", if with_cpp { "ON" } else { "OFF" })));
    run(Command::new("cmake").arg("--build").arg(&build));
    run(Command::new("ctest").current_dir(&build).arg("--output-on-failure"));
    assert!(dynamic(&build.join("c_kvstore"), "NEEDED").iter().any(|name| name.contains("libkvstore.so.")));
    assert!(!dynamic(&build.join("c_kvstore_static"), "NEEDED").iter().any(|name| name.contains("kvstore")));
}

#[test]
fn cmake_project_without_language_finds_shared_library() {
    let Some(installed) = Installed::new() else { return };
    let folder = installed.work.path();
    for (language, components, targets) in [
        ("NONE", "", "shared"),
        ("NONE", "COMPONENTS shared", "shared"),
        ("C", "COMPONENTS shared", "shared"),
        ("C", "COMPONENTS static", "shared static"),
        ("C", "OPTIONAL_COMPONENTS static", "shared static"),
        ("CXX", "", "shared static"),
    ] {
        let project = format!(
            "cmake_minimum_required(VERSION 3.20)\nproject(p {language})\n\
             find_package(kvstore CONFIG REQUIRED {components})\nset(targets shared)\n\
             if(NOT TARGET kvstore::kvstore)\nset(targets none)\nendif()\n\
             if(TARGET kvstore::kvstore_static)\nset(targets \"${{targets}} static\")\nendif()\n\
             if(Threads_FOUND AND NOT TARGET kvstore::kvstore_static)\nset(targets \"and threads\")\nendif()\n\
             message(STATUS \"there is: ${{targets}}.\")\n"
        );
        fs::write(folder.join("CMakeLists.txt"), project).unwrap();
        let mut cmake = Command::new("cmake");
        cmake.arg("-S").arg(folder).arg("-B").arg(folder.join(format!("in-{language}")));
        cmake.arg(format!("-DCMAKE_PREFIX_PATH={}", installed.prefix.path().display()));
        let output = String::from_utf8(run(&mut cmake).stdout).unwrap();
        assert!(output.contains(&format!("there is: {targets}.")), "{language} {components}: {output}");
        assert!(!output.contains("Threads"), "{output}");
    }
}

#[test]
fn cmake_refuses_other_major_or_older_version() {
    let Some(installed) = Installed::new() else { return };
    let folder = installed.work.path();
    for (wanted, found) in [
        ("", true),
        (VERSION, true),
        (&format!("{VERSION} EXACT"), true),
        ("0.0.1", true),
        ("0.0...0.99", true),
        ("0.0...<0.1", false),
        ("0.99", false),
        ("1.0", false),
        ("0.0.1 EXACT", false),
    ] {
        let project = format!(
            "cmake_minimum_required(VERSION 3.20)\nproject(p C)\nfind_package(kvstore {wanted} CONFIG QUIET)\n\
             message(STATUS \"found: ${{kvstore_FOUND}}\")\n"
        );
        fs::write(folder.join("CMakeLists.txt"), project).unwrap();
        let mut cmake = Command::new("cmake");
        cmake.arg("-S").arg(folder).arg("-B").arg(folder.join("versions"));
        cmake.arg(format!("-DCMAKE_PREFIX_PATH={}", installed.prefix.path().display()));
        let output = String::from_utf8(run(&mut cmake).stdout).unwrap();
        assert!(output.contains(if found { "found: 1" } else { "found: 0" }), "{wanted}: {output}");
    }
}

#[test]
fn manual_page_has_no_groff_warnings() {
    if !has_tool("groff") {
        return;
    }
    let output =
        run(Command::new("groff").args(["-ww", "-man", "-z"]).arg(root().join("docs/man/kvstore.3")));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}
