//! Packaging for macOS and iOS, as far as it can be tested without a Mac.
//!
//! `make` and the scripts of packaging/apple run with stand-ins for the tools of a Mac
//! (tests/packaging/apple/stand-in), and with no other tools. The commands that they run are compared. CMake
//! and clang read the files that are made for them.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::c_programs::{found, has_tool, root, run, tree};
use crate::install::xtask;
use tempfile::TempDir;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Commands that the stand-ins provide: those of Xcode, macOS and rustup, and the BSD commands
/// that are needed.
const TOOLS: [&str; 20] = [
    "cargo",
    "rustup",
    "nm",
    "lipo",
    "ld",
    "libtool",
    "strip",
    "install_name_tool",
    "codesign",
    "xcodebuild",
    "sw_vers",
    "cp",
    "dirname",
    "install",
    "ls",
    "make",
    "mkdir",
    "rm",
    "sed",
    "uname",
];

/// A folder with the stand-ins, and a folder for their output.
struct Mac {
    folder: TempDir,
}

impl Mac {
    fn new() -> Option<Mac> {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("tools")).unwrap();
        for tool in TOOLS {
            symlink(root().join("tests/packaging/apple/stand-in"), folder.path().join("tools").join(tool))
                .unwrap();
        }
        has_tool("make").then_some(Mac { folder })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A command that finds only the stand-ins and inherits no environment variables.
    fn command(&self, name: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("/usr/bin/env");
        command.current_dir(root()).arg("-i");
        for (name, value) in [
            ("PATH", self.path("tools").display().to_string()),
            ("REAL_PATH", std::env::var("PATH").unwrap()),
            ("CALLS", self.path("calls").display().to_string()),
            ("CARGO_TARGET_DIR", self.path("target").display().to_string()),
            ("TMPDIR", self.path("").display().to_string()),
            ("XTASK", xtask().display().to_string()),
        ] {
            command.arg(format!("{name}={value}"));
        }
        command.arg(name).args(arguments);
        command
    }

    fn make(&self, arguments: &[&str]) -> Output {
        let stage = format!("DESTDIR={}", self.path("stage").display());
        run(&mut self.command("make", &[&[stage.as_str()], arguments].concat()))
    }

    /// Commands that were run, with the paths of this test removed.
    fn calls(&self) -> String {
        let calls = fs::read_to_string(self.path("calls")).unwrap_or_default();
        calls.replace(&self.folder.path().display().to_string(), "")
    }

    fn staged(&self, name: &str) -> String {
        fs::read_to_string(self.path("stage").join(name)).unwrap()
    }
}

#[test]
fn make_installs_and_uninstalls_dylib_with_apple_tools() {
    let Some(mac) = Mac::new() else { return };
    mac.make(&["install", "PREFIX=/opt/kv", "INSTALL_STRIP=1"]);
    let calls = mac.calls();
    for call in [
        "-- -Clink-arg=-Wl,-install_name,@rpath/libkvstore.0.dylib -Clink-arg=-Wl,-current_version,0.1.0 \
         -Clink-arg=-Wl,-compatibility_version,0.1 -Clink-arg=-Wl,-headerpad_max_install_names\n",
        "\nnm -gU /target/install/release/libkvstore.dylib\n",
        "\nld -r -arch arm64 -exported_symbols_list /target/install/symbols -u _kvstore_close -u _kvstore_open \
         -o /target/install/kvstore.o /target/install/release/libkvstore.a\n",
        "\nlibtool -static -D -o /target/install/libkvstore.a.tmp /target/install/kvstore.o\n",
        "\nstrip -x /stage/opt/kv/lib/libkvstore.0.1.0.dylib\n",
        "\nstrip -S /stage/opt/kv/lib/libkvstore.a\n",
        "\ninstall_name_tool -id /opt/kv/lib/libkvstore.0.dylib /stage/opt/kv/lib/libkvstore.0.1.0.dylib\n\
         codesign --force --sign - /stage/opt/kv/lib/libkvstore.0.1.0.dylib\n",
    ] {
        assert!(calls.contains(call), "{call}\n{calls}");
    }
    let tree_of_libraries: Vec<_> = tree(&mac.path("stage/opt/kv/lib"), false).into_iter().collect();
    assert_eq!(
        tree_of_libraries,
        [
            "cmake/kvstore/kvstoreConfig.cmake",
            "cmake/kvstore/kvstoreConfigVersion.cmake",
            "libkvstore.0.1.0.dylib",
            "libkvstore.0.dylib -> libkvstore.0.1.0.dylib",
            "libkvstore.a",
            "libkvstore.dylib -> libkvstore.0.dylib",
            "pkgconfig/kvstore.pc",
        ]
    );
    for file in
        ["include/kvstore/batch.hpp", "share/doc/kvstore/docs/contributing/adr/0009-layers.md", "bin/kvstore"]
    {
        assert!(mac.path("stage/opt/kv").join(file).is_file(), "{file}");
    }
    let pc = mac.staged("opt/kv/lib/pkgconfig/kvstore.pc");
    assert!(pc.contains("\nLibs.private: -liconv -lSystem -lc -lm\n"), "{pc}");
    let version = mac.staged("opt/kv/lib/cmake/kvstore/kvstoreConfigVersion.cmake");
    assert!(version.contains("CMAKE_SIZEOF_VOID_P STREQUAL \"8\""), "{version}");

    mac.make(&["uninstall", "PREFIX=/opt/kv"]);
    assert_eq!(tree(&mac.path("stage"), false), BTreeSet::new());
}

#[test]
fn relocatable_install_keeps_linked_install_name() {
    let Some(mac) = Mac::new() else { return };
    mac.make(&["install", "PREFIX=/opt/kv", "COMMAND=no", "INSTALL_NAME_DIR=@rpath", "REMOTE=1"]);
    assert!(!mac.calls().contains("install_name_tool"), "{}", mac.calls());
    assert!(mac.calls().contains("\ncodesign --force --sign - "), "{}", mac.calls());
    let config = mac.staged("opt/kv/lib/cmake/kvstore/kvstoreConfig.cmake");
    assert!(config.contains("IMPORTED_SONAME \"@rpath/libkvstore.0.dylib\""), "{config}");
    let native = "Threads::Threads;iconv;m;-framework Security;-framework CoreFoundation\"";
    assert!(config.contains(native), "{config}");
    let pc = mac.staged("opt/kv/lib/pkgconfig/kvstore.pc");
    assert!(pc.contains(" -lm -framework Security -framework CoreFoundation\n"), "{pc}");
}

/// libsqlite3-sys decides from the same variables.
#[test]
fn encryption_links_system_frameworks_or_given_openssl() {
    let own = " -framework Security -framework CoreFoundation";
    for (variables, with_openssl) in [
        (&[][..], false),
        (&["OPENSSL_LIB_DIR=/opt/ssl/lib"], false),
        (&["OPENSSL_DIR=/opt/ssl"], true),
        (&["OPENSSL_LIB_DIR=/opt/ssl/lib", "OPENSSL_INCLUDE_DIR=/opt/ssl/include"], true),
    ] {
        let Some(mac) = Mac::new() else { return };
        let install = ["install", "PREFIX=/opt/kv", "COMMAND=no", "ENCRYPTION=1"];
        // The second run, without the variables, is like one under sudo: the settings of the build
        // are still used.
        for variables in [variables, &[]] {
            mac.make(&[&install[..], variables].concat());
            let pc = mac.staged("opt/kv/lib/pkgconfig/kvstore.pc");
            let config = mac.staged("opt/kv/lib/cmake/kvstore/kvstoreConfig.cmake");
            assert_eq!(pc.contains("-lcrypto"), with_openssl, "{pc}");
            assert_eq!(pc.contains(own), !with_openssl, "{pc}");
            assert_eq!(config.contains(";crypto"), with_openssl, "{config}");
            assert_eq!(
                config.contains(";-framework Security;-framework CoreFoundation"),
                !with_openssl,
                "{config}"
            );
        }
        assert_eq!(mac.calls().matches("\ncargo ").count(), 1, "{}", mac.calls());
    }
    // A compiled-in OpenSSL needs neither libcrypto nor the frameworks.
    let Some(mac) = Mac::new() else { return };
    mac.make(&["install", "PREFIX=/opt/kv", "COMMAND=no", "ENCRYPTION=vendored"]);
    let pc = mac.staged("opt/kv/lib/pkgconfig/kvstore.pc");
    assert!(!pc.contains("-lcrypto") && !pc.contains("-framework"), "{pc}");
}

#[test]
fn static_library_with_extra_exported_symbols_is_not_built() {
    let Some(mac) = Mac::new() else { return };
    let mut make = mac.command("SHOWS_TOO_MUCH=1", &["make", "lib"]);
    let failed = make.output().unwrap();
    assert!(!failed.status.success(), "{}", mac.calls());
    assert!(!mac.calls().contains("\nlibtool "), "{}", mac.calls());
    assert!(!mac.path("target/install/libkvstore.a").exists());
}

/// The target decides, also when the build runs on another system.
#[test]
fn target_decides_whether_libraries_are_mach_o() {
    let Some(mac) = Mac::new() else { return };
    run(&mut mac.command("CARGO_BUILD_TARGET=aarch64-apple-ios", &["make", "lib"]));
    let library = format!("target/install/aarch64-apple-ios/libkvstore.{VERSION}.dylib");
    assert!(mac.path(&library).is_file() && mac.calls().contains("\nlibtool -static "), "{}", mac.calls());
    let firmware = format!("FIRMWARE={}", mac.path("firmware").display());
    mac.make(&["firmware", "TARGET=aarch64-apple-ios", &firmware]);
    let usr = mac.path("firmware/aarch64-apple-ios/usr");
    assert!(usr.join(format!("lib/libkvstore.{VERSION}.dylib")).is_file(), "{}", mac.calls());
    assert!(usr.join("lib/libkvstore.a").is_file() && !usr.join("bin").exists(), "{}", mac.calls());
}

/// Runs CMake as far as possible without Apple's compiler: it writes build files, which name what
/// would be linked.
#[test]
fn cmake_project_for_darwin_finds_both_libraries() {
    let Some(mac) = Mac::new() else { return };
    if !has_tool("cmake") {
        return;
    }
    for (name_dir, with_rpath) in [("/opt/kv/lib", false), ("@rpath", true)] {
        mac.make(&["install", "PREFIX=/opt/kv", "COMMAND=no", &format!("INSTALL_NAME_DIR={name_dir}")]);
        let build = tempfile::tempdir().unwrap();
        let path = std::env::var("PATH").unwrap();
        let prefix = mac.path("stage/opt/kv");
        run(Command::new("cmake")
            .args(["-G", "Unix Makefiles", "-S"])
            .arg(root().join("tests/packaging/install"))
            .arg("-B")
            .arg(build.path())
            .arg(format!(
                "-DCMAKE_TOOLCHAIN_FILE={}",
                root().join("tests/packaging/apple/darwin.cmake").display()
            ))
            .arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.display()))
            .arg("-DWITH_CPP=ON")
            .env("PATH", format!("{path}:{}", mac.path("tools").display()))
            .env("REAL_PATH", &path)
            .env("CALLS", mac.path("calls")));
        let link = |target: &str| {
            let file = build.path().join("CMakeFiles").join(format!("{target}.dir/link.txt"));
            fs::read_to_string(file).unwrap()
        };
        let shared = link("c_kvstore");
        assert!(shared.contains(&format!("/opt/kv/lib/libkvstore.{VERSION}.dylib")), "{shared}");
        let rpath = format!("-Wl,-rpath,{}/lib", prefix.display());
        assert_eq!(shared.contains(&rpath), with_rpath, "{shared}");
        let alone = link("cpp_kvstore_static");
        assert!(alone.contains("/opt/kv/lib/libkvstore.a") && alone.contains(" -liconv -lm"), "{alone}");
    }
}

#[test]
fn xcframework_has_each_system_once_with_all_processors() {
    let Some(mac) = Mac::new() else { return };
    let out = mac.path("out").display().to_string();
    for _ in 0..2 {
        run(&mut mac.command("packaging/apple/xcframework", &[&out])); // a second time over the first
    }
    let calls = mac.calls();
    assert_eq!(calls.matches("\nxcodebuild ").count(), 2, "{calls}");
    for call in [
        "\nrustup target add aarch64-apple-ios-sim\n",
        "\nld -r -arch x86_64 -exported_symbols_list /target/install/x86_64-apple-ios/symbols ",
        "\nlipo -create /target/install/aarch64-apple-darwin/libkvstore.a /target/install/x86_64-apple-darwin/libkvstore.a \
         -output /out/parts/macos/libkvstore.a\n",
        "\nlipo -create /target/install/aarch64-apple-ios/libkvstore.a -output /out/parts/ios/libkvstore.a\n",
        "\nlipo -create /target/install/aarch64-apple-ios-sim/libkvstore.a /target/install/x86_64-apple-ios/libkvstore.a \
         -output /out/parts/ios-simulator/libkvstore.a\n",
        "\nxcodebuild -create-xcframework -library /out/parts/macos/libkvstore.a -headers /out/parts/headers \
         -library /out/parts/ios/libkvstore.a -headers /out/parts/headers \
         -library /out/parts/ios-simulator/libkvstore.a -headers /out/parts/headers -output /out/CKVStore.xcframework\n",
    ] {
        assert!(calls.contains(call), "{call}\n{calls}");
    }
    let files = tree(&mac.path("out"), false);
    let headers = "CKVStore.xcframework/Headers/CKVStore";
    let expected =
        [format!("{headers}/kvstore.h"), format!("{headers}/module.modulemap"), "Package.swift".to_owned()];
    assert_eq!(files, BTreeSet::from(expected));
    the_module_can_be_imported(&mac.path("out/CKVStore.xcframework/Headers"));
}

/// Imports the module as Swift would, through clang.
fn the_module_can_be_imported(headers: &Path) {
    let clang = Command::new(root().join(".ci/clang")).output().unwrap();
    if !found("clang", clang.status.success()) {
        return;
    }
    let clang = String::from_utf8(clang.stdout).unwrap().trim().replace("++", "");
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("import.c");
    let text = "#pragma clang module import CKVStore\n\
                int main(void) { return kvstore_close((KVStore *)0) == KVSTORE_OK ? 0 : (int)sizeof(KVStoreConfig); }\n";
    fs::write(&source, text).unwrap();
    for target in ["arm64-apple-macos11", "arm64-apple-ios12", "x86_64-apple-ios12-simulator"] {
        // Freestanding, so that clang uses its own stdint.h; there are no system headers for the
        // target.
        run(Command::new(&clang)
            .arg(format!("--target={target}"))
            .args(["-ffreestanding", "-fmodules", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I"])
            .arg(headers)
            .arg(format!("-fmodules-cache-path={}", folder.path().join(target).display()))
            .arg(&source));
    }
}

/// The files repeat facts about each other and about the crate, which must agree.
#[test]
fn swift_package_names_framework_and_built_systems() {
    let read = |name: &str| fs::read_to_string(root().join("packaging/apple").join(name)).unwrap();
    let (package, script) = (read("Package.swift"), read("xcframework"));
    assert!(package.starts_with("// swift-tools-version:"), "SwiftPM looks for it in the first line");
    assert!(
        package.contains(".binaryTarget(name: \"CKVStore\", path: \"CKVStore.xcframework\")"),
        "{package}"
    );
    assert!(package.contains("[.macOS(.v11), .iOS(.v12)]"), "{package}");
    assert!(script.contains("MACOSX_DEPLOYMENT_TARGET=11.0 IPHONEOS_DEPLOYMENT_TARGET=12.0"), "{script}");
    assert!(read("module.modulemap").contains("\nmodule CKVStore {"));
    assert_eq!(package.matches(['(', '[']).count(), package.matches([')', ']']).count(), "{package}");
}
