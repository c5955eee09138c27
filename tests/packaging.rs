//! The recipes of packaging/ that nobody can run here: their syntax, and the facts they repeat.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

fn packaging(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("packaging").join(path)
}

fn output(command: &mut Command) -> String {
    let done = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

/// As Buildroot reads it, with stand-ins for what it brings: `generic-package` shows what is asked for.
#[test]
fn the_package_for_buildroot_is_a_makefile_that_builds_and_installs() {
    let around = "MAKE = the-make\nUPPERCASE = $(shell echo '$(1)' | tr a-z A-Z)\nRUSTC_TARGET_NAME = armv7-unknown-linux-musleabihf\n\
                  TARGET_CC = the-cc\nTARGET_AR = the-ar\nSTAGING_DIR = the-staging\nTARGET_DIR = the-target\n\
                  BR2_EXTERNAL_KVSTORE_PATH = the-tree\ngeneric-package = $(eval all: ; @:)\n";
    let shown = "$(info $(KVSTORE_VERSION)|$(KVSTORE_SITE)/$(KVSTORE_SOURCE))$(info $(KVSTORE_BUILD_CMDS))\
                 $(info $(KVSTORE_INSTALL_STAGING_CMDS))$(info $(KVSTORE_INSTALL_TARGET_CMDS))\n";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("Makefile");
    let recipe = packaging("buildroot/kvstore/kvstore.mk");
    fs::write(&file, format!("{around}include {}\n{shown}", recipe.display())).unwrap();
    let mut make = Command::new("make");
    make.arg("-f").arg(&file).args(["-n", "--no-print-directory", "all"]).current_dir(&folder);
    // The tests may be run by another one.
    let said = output(make.env_remove("MAKEFLAGS").env_remove("MAKELEVEL"));
    let version = env!("CARGO_PKG_VERSION");
    assert!(said.starts_with(&format!("{version}|the-tree/dist/kvstore-{version}.tar.gz\n")), "{said}");
    for part in [
        "CC_armv7_unknown_linux_musleabihf=\"the-cc\"",
        "CARGO_TARGET_ARMV7_UNKNOWN_LINUX_MUSLEABIHF_RUSTFLAGS=",
        "--config packaging/firmware/profile.toml",
        " lib\n",
        "DESTDIR=the-staging install",
        "DESTDIR=the-target install",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(packaging("firmware/profile.toml").exists());
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
fn the_recipe_for_yocto_names_this_version_its_licences_and_functions_of_a_shell() {
    let name = format!("yocto/kvstore_{}.bb", env!("CARGO_PKG_VERSION"));
    let recipe = fs::read_to_string(packaging(&name)).unwrap();
    for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
        let sum = output(Command::new("md5sum").arg(packaging("..").join(licence)));
        let sum = sum.split_whitespace().next().unwrap();
        assert!(recipe.contains(&format!("file://{licence};md5={sum}")), "{licence}: {sum}");
    }
    // What is no function is an assignment, a comment or an `inherit`.
    let (mut functions, mut rest) = (String::new(), String::new());
    let mut is_inside = false;
    for line in recipe.replace("\\\n", " ").lines() {
        is_inside |= line.ends_with("() {");
        let text = if is_inside { &mut functions } else { &mut rest };
        text.push_str(line);
        text.push('\n');
        is_inside &= line != "}";
    }
    assert_eq!(functions.matches("() {").count(), 3, "{functions}");
    // A shell is given the names as bitbake has put them in.
    let functions = functions.replace("${TRIPLE}", "triple");
    output(Command::new("sh").arg("-n").arg("-c").arg(&functions));
    for line in rest.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let is_assignment = line.contains(" = \"") || line.contains(" += \"");
        assert!((is_assignment && line.ends_with('"')) || line.starts_with("inherit "), "{line}");
    }
}
