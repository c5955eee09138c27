//! What the Makefile would run for other machines, and what it refuses. Nothing is built.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const MUSL: &str = "CARGO_BUILD_TARGET=armv7-unknown-linux-musleabihf";

/// `make` with nothing in the environment that it reads, but for `variables`.
fn make(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut make = Command::new("make");
    // In a folder where nothing is built: make says nothing of what is there already.
    make.current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["--no-print-directory", "TARGET_DIR=target/nowhere"])
        .args(arguments);
    without_settings(&mut make).envs(variables.iter().copied()).output().unwrap()
}

fn without_settings(command: &mut Command) -> &mut Command {
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        let of_cargo = name.starts_with("CARGO") && name != "CARGO_HOME";
        if of_cargo || ["MAKEFLAGS", "MAKELEVEL", "MFLAGS", "RUSTFLAGS", "DESTDIR"].contains(&&*name) {
            command.env_remove(name);
        }
    }
    command
}

fn said(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The command that makes the libraries, on one line.
fn cargo_of(plan: &str) -> String {
    let plan = plan.replace("\\\n", " ");
    plan.lines().find(|line| line.contains("cargo rustc")).unwrap_or_else(|| panic!("{plan}")).to_owned()
}

/// Carries a command of cargo out in an empty package: whether it is told that no shared library can be made. (It fails in any
/// case where there is no standard library for the target.)
fn drops_the_shared_library(command: &str, variables: &[(&str, &str)]) -> bool {
    let package = tempfile::tempdir().unwrap();
    fs::create_dir(package.path().join("src")).unwrap();
    fs::write(package.path().join("src/lib.rs"), "#![no_std]\n").unwrap();
    fs::write(
        package.path().join("Cargo.toml"),
        "[package]\nname = \"empty\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n",
    )
    .unwrap();
    let mut shell = Command::new("sh");
    shell.current_dir(&package).arg("-c").arg(format!("export {MUSL} && {command}"));
    let done = without_settings(&mut shell).envs(variables.iter().copied()).output().unwrap();
    let text = String::from_utf8_lossy(&done.stderr);
    assert!(text.contains("Compiling empty"), "{command}: {text}");
    text.contains("dropping unsupported crate type `cdylib`")
}

#[test]
fn a_library_for_musl_is_asked_for_with_the_flag_that_makes_it_shared() {
    let plan =
        |variables: &[(&str, &str)]| cargo_of(&said(&make(&["-n", "lib", "CARGOFLAGS=", MUSL], variables)));
    let plain = plan(&[]);
    assert!(drops_the_shared_library("cargo rustc --release --lib --crate-type cdylib,staticlib", &[]));
    assert!(!drops_the_shared_library(&plain, &[]), "{plain}");
    // cargo takes the flags of one variable; ours come to it.
    for name in
        ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_TARGET_ARMV7_UNKNOWN_LINUX_MUSLEABIHF_RUSTFLAGS"]
    {
        for flags in ["", "-Copt-level=1"] {
            let variables = [(name, flags)];
            let command = plan(&variables);
            assert!(!drops_the_shared_library(&command, &variables), "{name}={flags}: {command}");
        }
        // Who gives it already gets it once, and nothing is compiled again.
        let command = plan(&[(name, "-Ctarget-feature=-crt-static")]);
        assert!(!command.contains("crt-static"), "{command}");
    }
    let both = [
        ("RUSTFLAGS", "-Copt-level=1"),
        ("CARGO_TARGET_ARMV7_UNKNOWN_LINUX_MUSLEABIHF_RUSTFLAGS", "-Ctarget-feature=-crt-static"),
    ];
    assert!(!drops_the_shared_library(&plan(&both), &both));
    let firmware = said(&make(&["-n", "firmware", &MUSL.replace("CARGO_BUILD_", "")], &[]));
    assert!(cargo_of(&firmware).contains("-crt-static"), "{firmware}");
    for elsewhere in [vec!["-n", "lib"], vec!["-n", "lib", "CARGO_BUILD_TARGET=aarch64-unknown-linux-gnu"]] {
        let command = cargo_of(&said(&make(&elsewhere, &[])));
        assert!(command.starts_with("cargo rustc ") && !command.contains("rustflags"), "{command}");
    }
}

#[test]
fn one_prefix_names_the_tools_and_the_compiler_of_another_machine() {
    let environment = |arguments: &[&str], variables: &[(&str, &str)]| {
        let show = "--eval=show: ; @env && echo 'TOOLS=$(LD) $(AR) $(NM) $(OBJCOPY) $(STRIP)'";
        said(&make(&[&[show, "show", MUSL], arguments].concat(), variables))
    };
    let has = |text: &str, line: &str| assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    let text = environment(&["CROSS=arm-x-"], &[]);
    for line in [
        "TOOLS=arm-x-ld arm-x-ar arm-x-nm arm-x-objcopy arm-x-strip",
        "CC_armv7_unknown_linux_musleabihf=arm-x-gcc",
        "AR_armv7_unknown_linux_musleabihf=arm-x-ar",
        "CARGO_TARGET_ARMV7_UNKNOWN_LINUX_MUSLEABIHF_LINKER=arm-x-gcc",
    ] {
        has(&text, line);
    }
    // What is named by itself is taken.
    let given = [("CC_armv7_unknown_linux_musleabihf", "clang"), ("NM", "my-nm")];
    let text = environment(&["CROSS=arm-x-", "LD=my-ld"], &given);
    has(&text, "TOOLS=my-ld arm-x-ar my-nm arm-x-objcopy arm-x-strip");
    has(&text, "CC_armv7_unknown_linux_musleabihf=clang");
    // Without it nothing is set.
    let text = environment(&[], &[]);
    has(&text, "TOOLS=ld ar nm objcopy strip");
    assert!(!text.contains("_LINKER=") && !text.contains("CC_armv7"), "{text}");
}

#[test]
fn on_mips_the_static_library_is_that_of_cargo() {
    let plan = said(&make(&["-n", "lib", "CARGO_BUILD_TARGET=mipsel-unknown-linux-musl"], &[]));
    assert!(
        plan.contains("cp 'target/nowhere/install/mipsel-unknown-linux-musl/release/libkvstore.a'"),
        "{plan}"
    );
    assert!(!plan.contains("-r --gc-sections"), "{plan}");
}

#[test]
fn a_value_that_means_nothing_is_refused_and_the_others_are_named() {
    for (value, allowed) in [
        ("ENCRYPTION=foo", "0 no 1 yes vendored"),
        ("REMOTE=off", "0 no 1 yes"),
        ("STD=tiny", "prebuilt small"),
    ] {
        let refused = make(&["-n", "lib", value], &[]);
        let text = String::from_utf8_lossy(&refused.stderr);
        assert!(
            !refused.status.success() && text.contains(&format!("{value}: it has to be one of {allowed}")),
            "{text}"
        );
    }
    for value in
        ["ENCRYPTION=", "ENCRYPTION=vendored", "ENCRYPTION=no", "REMOTE=0", "REMOTE=yes", "STD=small"]
    {
        said(&make(&["-n", "lib", value], &[]));
    }
    let windows = make(&["-n", "install-windows", "REMOTE=1"], &[]);
    assert!(String::from_utf8_lossy(&windows.stderr).contains("no stores on servers on Windows"));
    assert!(!windows.status.success());
}

#[test]
fn each_command_that_make_help_names_is_one() {
    let help = said(&make(&["help"], &[]));
    let makefile = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Makefile")).unwrap();
    for goal in
        ["install", "install-strip", "install-windows", "uninstall", "firmware", "cross", "windows", "dist"]
    {
        assert!(help.contains(&format!("make {goal} ")), "{goal}");
        assert!(makefile.contains(&format!("\n{goal}:")), "{goal}");
    }
}
