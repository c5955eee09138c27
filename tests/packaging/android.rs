//! The scripts of packaging/android, tested without the NDK, which is not available here. They run
//! with a stand-in for cargo, and with this machine's compiler under the names of the NDK's, so
//! that the libraries they inspect are real ones.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::{Command, Output};

use crate::c_programs::{has_tool, root, run};
use tempfile::TempDir;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A folder with the parts of an NDK that the scripts use, and the stand-in for cargo.
struct Ndk {
    folder: TempDir,
}

impl Ndk {
    fn new() -> Option<Ndk> {
        let tools = ["readelf", "strip", "python3", "cc"];
        if !cfg!(target_arch = "x86_64") || !tools.map(has_tool).iter().all(|there| *there) {
            return None;
        }
        let ndk = Ndk { folder: tempfile::tempdir().unwrap() };
        let bin = ndk.path("toolchains/llvm/prebuilt/linux-x86_64/bin");
        fs::create_dir_all(&bin).unwrap();
        fs::create_dir(ndk.path("path")).unwrap();
        symlink(root().join("tests/packaging/android/stand-in"), ndk.path("path/cargo")).unwrap();
        fs::write(ndk.path("source.properties"), "Pkg.Desc = Android NDK\nPkg.Revision = 27.2.12479018\n")
            .unwrap();
        for (name, command) in [
            ("x86_64-linux-android24-clang", "cc"),
            ("i686-linux-android24-clang", "cc -m32"),
            ("aarch64-linux-android24-clang", "false"),
            ("armv7a-linux-androideabi21-clang", "false"),
            ("llvm-readelf", "readelf"),
            ("llvm-strip", "strip"),
        ] {
            fs::write(bin.join(name), format!("#!/bin/sh\nexec {command} \"$@\"\n")).unwrap();
            fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        Some(ndk)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, script: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(root().join("packaging/android").join(script));
        let path = format!("{}:{}", self.path("path").display(), std::env::var("PATH").unwrap());
        command.args(arguments).env("PATH", path).env("ANDROID_NDK_HOME", self.folder.path());
        command.env("OUT", self.path("out")).env("CALLS", self.path("calls"));
        for name in ["ANDROID_API", "CARGOFLAGS", "RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS"] {
            command.env_remove(name);
        }
        command
    }
}

fn said(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn ndk_script_sets_compiler_and_linker_for_cargo() {
    let Some(ndk) = Ndk::new() else { return };
    let bin = ndk.path("toolchains/llvm/prebuilt/linux-x86_64/bin");
    let bin = bin.display();
    let output = said(&run(&mut ndk.command("ndk", &["aarch64-linux-android", "env"])));
    for line in [
        "CARGO_BUILD_TARGET=aarch64-linux-android".to_owned(),
        format!("CC_aarch64_linux_android={bin}/aarch64-linux-android24-clang"),
        format!("AR_aarch64_linux_android={bin}/llvm-ar"),
        format!("CARGO_TARGET_AARCH64_LINUX_ANDROID_LINKER={bin}/aarch64-linux-android24-clang"),
        "CARGO_TARGET_AARCH64_LINUX_ANDROID_RUSTFLAGS=-Clink-arg=-Wl,-z,max-page-size=16384".to_owned(),
    ] {
        assert!(output.lines().any(|found| found == line), "{line}\n{output}");
    }
    // cargo reads its flags from one variable. The script must add ours to those already in it.
    for (name, given, between) in [
        ("RUSTFLAGS", "-Copt-level=1", " "),
        ("RUSTFLAGS", "", " "),
        ("CARGO_ENCODED_RUSTFLAGS", "-Copt-level=1", "\x1f"),
        ("CARGO_ENCODED_RUSTFLAGS", "", ""),
        ("CARGO_TARGET_AARCH64_LINUX_ANDROID_RUSTFLAGS", "-Copt-level=1", " "),
    ] {
        let mut with_flags = ndk.command("ndk", &["aarch64-linux-android", "env"]);
        let output = said(&run(with_flags.env(name, given)));
        let line = format!("{name}={given}{between}-Clink-arg=-Wl,-z,max-page-size=16384");
        assert!(output.lines().any(|found| found == line), "{line}\n{output}");
    }
    // Rust and clang use different names for this target. 32-bit targets get no flag for 16 KiB
    // pages.
    let mut old = ndk.command("ndk", &["armv7-linux-androideabi", "env"]);
    let output = said(&run(old.env("ANDROID_API", "21")));
    let line = format!("CC_armv7_linux_androideabi={bin}/armv7a-linux-androideabi21-clang");
    assert!(output.contains(&line) && output.contains("_ANDROIDEABI_RUSTFLAGS=\n"), "{output}");

    for arguments in [["mips-linux-android", "env"], ["i686-linux-android24", "env"]] {
        assert!(!ndk.command("ndk", &arguments).output().unwrap().status.success(), "{arguments:?}");
    }
    let mut elsewhere = ndk.command("ndk", &["aarch64-linux-android", "env"]);
    let failed = elsewhere.env("ANDROID_API", "19").output().unwrap();
    assert!(String::from_utf8_lossy(&failed.stderr).contains("aarch64-linux-android19-clang is missing"));
}

#[test]
fn aar_has_layout_for_prefab_and_gradle_plugin() {
    let Some(ndk) = Ndk::new() else { return };
    run(&mut ndk.command("aar", &["x86_64", "x86"]));
    let aar = ndk.path(&format!("out/kvstore-{VERSION}.aar"));
    let read =
        said(&run(Command::new("python3").arg(root().join("tests/packaging/android/look.py")).arg(&aar)));
    let abi = |name: &str| {
        format!("[('abi', '{name}'), ('api', 24), ('ndk', 27), ('static', False), ('stl', 'none')]")
    };
    assert_eq!(
        read,
        format!(
            "api 24 kvstore.library\nclasses 0\npackage 2 kvstore {VERSION} []\nmodule [] libkvstore\n\
             android.x86 {} ELF of 32 bits\nandroid.x86_64 {} ELF of 64 bits\n\
             headers kvstore.h kvstore/time.hpp snkv.h\n",
            abi("x86"),
            abi("x86_64")
        )
    );
    let calls = fs::read_to_string(ndk.path("calls")).unwrap();
    assert!(
        calls.starts_with("cargo rustc --release --locked --lib --crate-type cdylib --target-dir "),
        "{calls}"
    );

    let first = fs::read(&aar).unwrap();
    run(&mut ndk.command("aar", &["x86", "x86_64"]));
    assert!(fs::read(&aar).unwrap() == first, "the same libraries make another file");
}

#[test]
fn wrong_ndk_folder_or_api_level_gives_one_line_error() {
    let Some(ndk) = Ndk::new() else { return };
    let nowhere = ndk.path("nowhere");
    let nowhere = nowhere.to_str().unwrap();
    let tools = ndk.path("toolchains/llvm/prebuilt/linux-x86_64/bin");
    let said = |variable: &str, value: &str| {
        let failed = ndk.command("aar", &["x86_64"]).env(variable, value).output().unwrap();
        let said = String::from_utf8_lossy(&failed.stderr).into_owned();
        assert!(!failed.status.success() && said.lines().count() == 1, "{said}");
        said
    };
    assert!(said("ANDROID_API", "android-24").contains("ANDROID_API=android-24: it is a number"));
    assert!(said("ANDROID_NDK_HOME", nowhere).contains("nowhere is no NDK"));
    fs::rename(&tools, ndk.path("elsewhere")).unwrap();
    let found = said("ANDROID_NDK_ROOT", "");
    assert!(found.contains(&format!("it has no {}", tools.display())), "{found}");
}

#[test]
fn library_that_devices_cannot_load_is_refused() {
    let Some(ndk) = Ndk::new() else { return };
    let other = ndk.path("libother.so");
    run(Command::new("cc")
        .args(["-shared", "-nostdlib", "-Wl,-soname,libother.so", "-x", "c", "/dev/null", "-o"])
        .arg(&other));
    for (flags, fault) in [
        ("-Wl,-z,max-page-size=4096".to_owned(), "not aligned to pages of 16 KiB"),
        ("-Wl,-z,execstack".to_owned(), "its stack is executable"),
        ("-Wl,-soname,libkvstore.so.0".to_owned(), "it is not called libkvstore.so"),
        (format!("-Wl,--no-as-needed {}", other.display()), "it needs ['libother.so']"),
    ] {
        let failed = ndk.command("aar", &["x86_64"]).env("MORE_FLAGS", flags).output().unwrap();
        let said = String::from_utf8_lossy(&failed.stderr);
        assert!(!failed.status.success() && said.contains(fault), "{fault}: {said}");
        assert!(!ndk.path(&format!("out/kvstore-{VERSION}.aar")).exists(), "{fault}");
    }
}

#[test]
fn cmake_project_without_gradle_finds_the_library_of_its_abi() {
    let Some(ndk) = Ndk::new() else { return };
    if !has_tool("cmake") {
        return;
    }
    run(&mut ndk.command("aar", &["x86_64"]));
    let project = "cmake_minimum_required(VERSION 3.20)\nproject(p C)\nfind_package(kvstore CONFIG)\n\
                   find_package(kvstore CONFIG)\nif(kvstore_FOUND)\nadd_executable(p p.c)\n\
                   target_link_libraries(p kvstore::kvstore)\nendif()\n";
    fs::write(ndk.path("CMakeLists.txt"), project).unwrap();
    fs::write(ndk.path("p.c"), "#include <kvstore.h>\nint main(void) { return KVSTORE_OK; }\n").unwrap();
    let configure = |abi: &str| {
        let build = ndk.path(abi);
        let mut cmake = Command::new("cmake");
        cmake.arg("-S").arg(ndk.folder.path()).arg("-B").arg(&build).arg(format!("-DANDROID_ABI={abi}"));
        run(cmake.arg(format!("-Dkvstore_DIR={}", ndk.path("out/prefab").display())));
        build
    };
    run(Command::new("cmake").arg("--build").arg(configure("x86_64")));
    let link = fs::read_to_string(ndk.path("x86_64/CMakeFiles/p.dir/link.txt")).unwrap();
    assert!(link.contains("/libs/android.x86_64/libkvstore.so"), "{link}");
    assert!(!configure("arm64-v8a").join("CMakeFiles/p.dir").exists());
}
