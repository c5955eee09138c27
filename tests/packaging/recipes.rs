//! Packaging recipes of packaging/ that cannot be run here: their syntax, and the facts that they
//! repeat.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn packaging(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("packaging").join(path)
}

fn output(command: &mut Command) -> String {
    let done = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

#[test]
fn scripts_called_wrongly_print_usage() {
    let called = |script: &str, arguments: &[&str]| {
        let done = Command::new(packaging(script)).args(arguments).output().unwrap();
        (done.status.code(), String::from_utf8(done.stdout).unwrap(), String::from_utf8(done.stderr).unwrap())
    };
    for (script, arguments) in [
        ("sqlite-flags", vec!["--help"]),
        ("sqlite-flags", vec!["-DSQLITE_OMIT_TRACE", "SQLITE_OMIT_UTF16"]),
        ("dist/try", vec![]),
    ] {
        let (code, out, err) = called(script, &arguments);
        assert!(code == Some(2) && out.is_empty(), "{script}: {code:?} {out}");
        assert!(err.contains(&format!("usage: packaging/{script} ")), "{script}: {err}");
    }
    let (code, out, _) = called("sqlite-flags", &["-DA=1", "-UB"]);
    assert!(
        code == Some(0) && out.starts_with("-DSQLITE_PRIVATE= ") && out.ends_with(" -DA=1 -UB\n"),
        "{out}"
    );
    // The script is copied out of the source, so it has no file to read.
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("sqlite-flags");
    fs::copy(packaging("sqlite-flags"), &copy).unwrap();
    let done = Command::new("sh").arg(&copy).output().unwrap();
    assert!(String::from_utf8_lossy(&done.stderr).contains("config.toml is not there"));
    assert_eq!(done.status.code(), Some(1));
}

#[test]
fn make_cross_refuses_unknown_target() {
    let setup = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(".ci/setup");
    let done = Command::new(setup).args(["cross", "nonsense"]).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(!done.status.success() && done.stdout.is_empty(), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("no such target: nonsense; there are aarch64 "), "{said}");
}

/// Reads the recipe like Buildroot, with stand-ins for Buildroot's parts. `generic-package` prints
/// the variables.
#[test]
fn buildroot_recipe_builds_and_installs() {
    let around = "MAKE = the-make\nUPPERCASE = $(shell echo '$(1)' | tr a-z A-Z)\nRUSTC_TARGET_NAME = armv7-unknown-linux-musleabihf\n\
                  TARGET_CC = the-cc\nTARGET_AR = the-ar\nSTAGING_DIR = the-staging\nTARGET_DIR = the-target\n\
                  PKG_CARGO_ENV = CARGO_TARGET_OF_BUILDROOT_RUSTFLAGS=its\n\
                  BR2_EXTERNAL_KVSTORE_PATH = the-tree\ngeneric-package = $(eval all: ; @:)\n";
    let shown = "$(info $(KVSTORE_VERSION)|$(KVSTORE_SITE)/$(KVSTORE_SOURCE))$(info $(KVSTORE_BUILD_CMDS))\
                 $(info $(KVSTORE_INSTALL_STAGING_CMDS))$(info $(KVSTORE_INSTALL_TARGET_CMDS))\n";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("Makefile");
    let recipe = packaging("buildroot/kvstore/kvstore.mk");
    fs::write(&file, format!("{around}include {}\n{shown}", recipe.display())).unwrap();
    let mut make = Command::new("make");
    make.arg("-f").arg(&file).args(["-n", "--no-print-directory", "all"]).current_dir(&folder);
    // The tests may themselves be run by make.
    let said = output(make.env_remove("MAKEFLAGS").env_remove("MAKELEVEL"));
    let version = env!("CARGO_PKG_VERSION");
    assert!(said.starts_with(&format!("{version}|the-tree/dist/kvstore-{version}.tar.gz\n")), "{said}");
    for part in [
        "CC_armv7_unknown_linux_musleabihf=\"the-cc\"",
        " CARGO_TARGET_OF_BUILDROOT_RUSTFLAGS=its ",
        "--config packaging/firmware/profile.toml",
        " lib\n",
        "DESTDIR=the-staging install",
        "DESTDIR=the-target install",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    // Setting the variable would override Buildroot's value.
    assert_eq!(said.matches("RUSTFLAGS").count(), 3, "{said}");
    // Variables that it sets in the environment (CARGO_PROFILE_RELEASE_...) override Cargo.toml,
    // but not this file.
    let profile = fs::read_to_string(packaging("firmware/profile.toml")).unwrap();
    let cargo = fs::read_to_string(packaging("../Cargo.toml")).unwrap();
    for line in ["lto = \"fat\"\n", "codegen-units = 1\n"] {
        assert!(profile.contains(line) && cargo.contains(line), "{line}");
    }
    let choice = fs::read_to_string(packaging("buildroot/kvstore/Config.in")).unwrap();
    let ways = ["config ", "\tbool ", "\tdepends on ", "\tselect ", "\thelp", "\t  ", "comment ", ""];
    for line in choice.lines() {
        assert!(
            ways.iter().any(|way| if way.is_empty() { line.is_empty() } else { line.starts_with(way) }),
            "{line}"
        );
    }
}

#[test]
fn yocto_recipe_has_version_licences_and_valid_functions() {
    let name = format!("yocto/kvstore_{}.bb", env!("CARGO_PKG_VERSION"));
    let recipe = fs::read_to_string(packaging(&name)).unwrap();
    for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
        let sum = output(Command::new("md5sum").arg(packaging("..").join(licence)));
        let sum = sum.split_whitespace().next().unwrap();
        assert!(recipe.contains(&format!("file://{licence};md5={sum}")), "{licence}: {sum}");
    }
    // Lines outside of functions are assignments, comments or `inherit`.
    let (mut functions, mut rest) = (String::new(), String::new());
    let mut is_inside = false;
    for line in recipe.replace("\\\n", " ").lines() {
        is_inside |= line.ends_with("() {");
        let text = if is_inside { &mut functions } else { &mut rest };
        text.push_str(line);
        text.push('\n');
        is_inside &= line != "}";
    }
    assert_eq!(functions.matches("() {").count(), 2, "{functions}");
    assert_eq!(functions.matches("export RUSTFLAGS=").count(), 2, "{functions}");
    // Without this, the class would use the system's SQLite. bitbake exports a docdir for all
    // recipes.
    assert_eq!(functions.matches("export LIBSQLITE3_SYS_USE_PKG_CONFIG=0\n").count(), 2, "{functions}");
    assert!(rest.contains(" docdir=${docdir}/${BPN} "), "{rest}");
    output(Command::new("sh").arg("-n").arg("-c").arg(&functions));
    for line in rest.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let is_assignment = line.contains(" = \"") || line.contains(" += \"");
        assert!((is_assignment && line.ends_with('"')) || line.starts_with("inherit "), "{line}");
    }
    // The class provides the compilers. That the crates are in the source must be stated.
    for wrong in ["HOMEPAGE", "DEPENDS", "WORKDIR"] {
        assert!(!rest.contains(wrong), "{wrong}");
    }
    assert!(rest.contains("CARGO_DISABLE_BITBAKE_VENDORING = \"1\""));
}

/// C libraries are built by `cargo rustc --crate-type`, and the header by a test.
#[test]
fn crate_builds_no_c_library_and_no_header_for_its_users() {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--locked", "--offline", "--no-deps", "--format-version", "1"]);
    let metadata = output(cargo.current_dir(env!("CARGO_MANIFEST_DIR")));
    let package = &metadata[metadata.find(r#""name":"kvstore-ttl""#).unwrap()..];
    assert!(package.contains(r#""kind":["lib"],"crate_types":["lib"],"name":"kvstore""#), "{package}");
    let cbindgen = &package[package.find(r#""name":"cbindgen""#).unwrap()..];
    let kind = &cbindgen[..cbindgen.find(r#""optional""#).unwrap()];
    assert!(kind.contains(r#""kind":"dev""#), "{kind}");
}

#[test]
fn recipes_and_docs_name_minimum_rust_version() {
    let rust = env!("CARGO_PKG_RUST_VERSION");
    let yocto = packaging(&format!("yocto/kvstore_{}.bb", env!("CARGO_PKG_VERSION")));
    for (file, times) in [
        (packaging("buildroot/kvstore/Config.in"), 1),
        (yocto, 1),
        (packaging("../docs/how-to/firmware.md"), 3),
    ] {
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.matches(rust).count() >= times, "{rust} in {}", file.display());
    }
}

#[test]
fn readme_badges_show_version_and_minimum_rust() {
    let readme = fs::read_to_string(packaging("../README.md")).unwrap();
    for (badge, value) in
        [("version", env!("CARGO_PKG_VERSION")), ("rust", concat!(env!("CARGO_PKG_RUST_VERSION"), "+"))]
    {
        let path = format!("docs/badges/{badge}.svg");
        let picture = fs::read_to_string(packaging("..").join(&path)).unwrap();
        assert!(picture.contains(&format!(">{value}</text>")), "{path} does not show {value}");
        assert!(readme.contains(&path), "README.md does not show {path}");
    }
}

/// `packaging/dist/try` runs these lines of the page, so they must name the files of this version.
#[test]
fn install_page_names_release_files_of_this_version() {
    let page = fs::read_to_string(packaging("../docs/how-to/install.md")).unwrap();
    let code: Vec<&str> = page.split("\n```").skip(1).step_by(2).flat_map(str::lines).collect();
    let version = env!("CARGO_PKG_VERSION");
    for begin in [
        "sha256sum --check".to_owned(),
        "apt install ./libkvstore0".to_owned(),
        format!("tar -C /usr/local --strip-components=1 -xzf kvstore-{version}-x86_64-linux-gnu.tar.gz"),
        format!("pip install kvstore_ttl-{version}-"),
        format!("tar -xzf kvstore-{version}.tar.gz"),
    ] {
        assert!(code.iter().any(|line| line.starts_with(&begin)), "no command begins with {begin}");
    }
}

#[test]
fn debian_packages_for_other_architecture_are_refused() {
    if !PathBuf::from("/usr/share/dpkg/architecture.mk").exists() {
        return;
    }
    let rules = |host: &str| {
        let mut make = Command::new("make");
        make.arg("-f").arg(packaging("debian/rules")).args(["-n", "build", "DEB_BUILD_ARCH=amd64"]);
        make.arg(format!("DEB_HOST_ARCH={host}"))
            .env_remove("MAKEFLAGS")
            .env_remove("MAKELEVEL")
            .output()
            .unwrap()
    };
    assert_eq!(String::from_utf8_lossy(&rules("amd64").stdout), "dh build\n");
    let refused = rules("arm64");
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && text.contains("this one is amd64"), "{text}");
}

/// Creates the files that packaging/dist/crates.py reads of the compilers of a release. Only their
/// names are real.
fn made_up_toolchain(folder: &Path) {
    let write = |path: &str, text: &str| {
        let path = folder.join("rustc-web/root/usr").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let package = |licence: &str| format!("[package]\nname = 'a'\n{licence}\n");
    write("src/rustc-1/library/std/Cargo.toml", &package("license = 'MIT OR Apache-2.0'"));
    write("src/rustc-1/library/compiler-builtins/compiler-builtins/Cargo.toml", &package("license = 'MIT'"));
    write("src/rustc-1/library/vendor/inside-1.0.0/Cargo.toml", &package("license = 'Zlib OR MIT'"));
    write(
        "src/rustc-1/library/Cargo.lock",
        "[[package]]\nname = 'std'\nversion = '0.0.0'\ndependencies = ['inside', 'elsewhere']\n\
         [[package]]\nname = 'inside'\nversion = '1.0.0'\nsource = 'crates.io'\n\
         [[package]]\nname = 'elsewhere'\nversion = '1.0.0'\nsource = 'crates.io'\n",
    );
    for name in ["std", "inside", "compiler_builtins"] {
        write(&format!("lib/rustlib/here/lib/lib{name}-0a.rlib"), "");
    }
    write(
        "share/doc/libstd-rust-web-dev/copyright",
        "Files: library/*\nCopyright: 2012 Rust\nLicense: MIT or Apache-2.0\n\n\
         Files: vendor/inside-1.0.0/*\nCopyright: 2013 Inside\nLicense: Zlib OR MIT\n\nLicense: MIT\n The text of MIT.\n .\n End.\n",
    );
}

#[test]
fn release_lists_exactly_linked_crates_with_licence_texts() {
    let folder = tempfile::tempdir().unwrap();
    made_up_toolchain(folder.path());
    let crates = |what: &str, surroundings: &[(&str, &str)]| {
        let mut command = Command::new("python3");
        command
            .arg("-B")
            .arg(packaging("dist/crates.py"))
            .arg(what)
            .arg("remote,encryption")
            .arg(folder.path());
        command.args(["--rust", "1.90.0", "x86_64-unknown-linux-gnu", "armv7-unknown-linux-gnueabihf"]);
        command.envs(surroundings.iter().copied()).output().unwrap()
    };
    let made = |what: &str| {
        let done = crates(what, &[]);
        assert!(done.status.success(), "{what}: {}", String::from_utf8_lossy(&done.stderr));
        let again = crates(what, &[("LC_ALL", "C"), ("TZ", "Pacific/Auckland"), ("PYTHONHASHSEED", "1")]);
        assert!(done.stdout == again.stdout, "{what}: twice, two contents");
        String::from_utf8(done.stdout).unwrap()
    };

    let texts = made("licences");
    let (list, texts) = texts.split_once("\n====").unwrap();
    let names: Vec<_> = list.lines().filter_map(|line| line.split_once(": ")).map(|(name, _)| name).collect();
    for inside in
        ["ring 0.", "rusqlite 0.", "clap 4.", "sqlcipher 4.", "sqlite 3.", "rust-std 1.90.0", "inside 1.0.0"]
    {
        assert!(names.iter().any(|name| name.starts_with(inside)), "{inside}: {names:?}");
    }
    // Excluded: crates for other platforms, crates that run in the compiler or in tests only,
    // crates that std contains in another form, this crate, and the system's OpenSSL.
    for outside in [
        "windows",
        "wasi",
        "serde_derive",
        "thiserror-impl",
        "syn",
        "proptest",
        "tempfile",
        "elsewhere",
        "kvstore",
        "openssl ",
    ] {
        assert!(!names.iter().any(|name| name.starts_with(outside)), "{outside}: {names:?}");
    }
    assert!(!list.contains("is at that address"), "{list}");
    // Each text occurs once, however many components have it.
    for text in [
        "ZETETIC LLC BE LIABLE",
        "In place of\na legal notice",
        "The text of MIT.\n\nEnd.",
        "Copyright (c) Individual contributors",
    ] {
        assert_eq!(texts.matches(text).count(), 1, "{text}");
    }

    let sbom = made("sbom");
    assert!(sbom.contains("\"id\": \"blessing\"") && sbom.contains("cpe:2.3:a:sqlite:sqlite:3."), "{sbom}");
    assert!(sbom.contains("pkg:cargo/kvstore-cli@") && !sbom.contains("xtask"), "{sbom}");
    assert_eq!(sbom.matches("\"bom-ref\"").count(), sbom.matches("\"dependsOn\"").count());
    assert!(made("expression").starts_with("(MIT OR Apache-2.0) AND Apache-2.0 AND "));

    // Debian has common licence texts, and does not want copies of them.
    let copyright = made("copyright");
    assert!(
        copyright.contains("SQLCipher") && copyright.contains("common-licenses/Apache-2.0"),
        "{copyright}"
    );
    assert!(!copyright.contains("TERMS AND CONDITIONS FOR USE, REPRODUCTION"), "{copyright}");

    let inside = folder.path().join("rustc-web/root/usr/src/rustc-1/library/vendor/inside-1.0.0/Cargo.toml");
    fs::write(inside, "[package]\nname = 'inside'\n").unwrap();
    let refused = crates("licences", &[]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && refused.stdout.is_empty(), "{said}");
    assert_eq!(said, "crates.py: inside 1.0.0 names no licence\n");
}
