//! The commands that the Makefile would run for other machines, and the combinations that it
//! rejects. Nothing of the library is built.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

const MUSL: &str = "CARGO_BUILD_TARGET=armv7-unknown-linux-musleabihf";

/// Runs `make` with `variables`, and without any other variable that it reads.
fn make(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut make = Command::new("make");
    // In a folder where nothing is built, because make does not print commands for existing files.
    make.current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["--no-print-directory", "TARGET_DIR=target/nowhere"])
        .args(arguments);
    without_settings(&mut make).envs(variables.iter().copied()).output().unwrap()
}

fn without_settings(command: &mut Command) -> &mut Command {
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        let of_cargo = name.starts_with("CARGO") && name != "CARGO_HOME";
        let of_c = [
            "CFLAGS",
            "CPPFLAGS",
            "LDFLAGS",
            "TARGET_CFLAGS",
            "HOST_CFLAGS",
            "KVSTORE_ENGINE",
            "LIBSQLITE3_FLAGS",
        ]
        .contains(&&*name)
            || name.starts_with("CFLAGS_");
        if of_cargo
            || of_c
            || [
                "MAKEFLAGS",
                "MAKELEVEL",
                "docdir",
                "DOCDIR",
                "COMMAND",
                "MFLAGS",
                "RUSTC",
                "RUSTFLAGS",
                "DESTDIR",
                "LIBSQLITE3_SYS_USE_PKG_CONFIG",
            ]
            .contains(&&*name)
        {
            command.env_remove(name);
        }
    }
    command
}

fn said(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Returns the command that builds the libraries, on one line.
fn cargo_of(plan: &str) -> String {
    let plan = plan.replace("\\\n", " ");
    plan.lines().find(|line| line.contains("cargo rustc")).unwrap_or_else(|| panic!("{plan}")).to_owned()
}

/// Runs a cargo command in an empty package. Returns `true` if cargo warns that it drops the shared
/// library. (The command fails in any case if there is no standard library for the target.)
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
fn musl_build_sets_flag_for_shared_library() {
    let plan =
        |variables: &[(&str, &str)]| cargo_of(&said(&make(&["-n", "lib", "CARGOFLAGS=", MUSL], variables)));
    let plain = plan(&[]);
    assert!(drops_the_shared_library("cargo rustc --release --lib --crate-type cdylib,staticlib", &[]));
    assert!(!drops_the_shared_library(&plain, &[]), "{plain}");
    // cargo reads its flags from one variable, to which ours are added.
    for name in
        ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_TARGET_ARMV7_UNKNOWN_LINUX_MUSLEABIHF_RUSTFLAGS"]
    {
        for flags in ["", "-Copt-level=1"] {
            let variables = [(name, flags)];
            let command = plan(&variables);
            assert!(!drops_the_shared_library(&command, &variables), "{name}={flags}: {command}");
        }
        // If the caller passes this flag already, it is not added, so nothing is compiled again.
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
        let alone = "env -u MFLAGS -u MAKEOVERRIDES MAKEFLAGS='' cargo rustc ";
        assert!(command.starts_with(alone) && !command.contains("rustflags"), "{command}");
    }
}

#[test]
fn cross_prefix_sets_tools_and_compiler() {
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
    // Explicitly named tools are used.
    let given = [("CC_armv7_unknown_linux_musleabihf", "clang"), ("NM", "my-nm")];
    let text = environment(&["CROSS=arm-x-", "LD=my-ld"], &given);
    has(&text, "TOOLS=my-ld arm-x-ar my-nm arm-x-objcopy arm-x-strip");
    has(&text, "CC_armv7_unknown_linux_musleabihf=clang");
    // Without CROSS, nothing is set.
    let text = environment(&[], &[]);
    has(&text, "TOOLS=ld ar nm objcopy strip");
    assert!(!text.contains("_LINKER=") && !text.contains("CC_armv7"), "{text}");
}

#[test]
fn mips_uses_static_library_of_cargo() {
    let plan = said(&make(&["-n", "lib", "CARGO_BUILD_TARGET=mipsel-unknown-linux-musl"], &[]));
    assert!(
        plan.contains("cp 'target/nowhere/install/mipsel-unknown-linux-musl/release/libkvstore.a'"),
        "{plan}"
    );
    assert!(!plan.contains("-r --gc-sections"), "{plan}");
}

/// Like a Raspberry Pi, which may have a 32-bit system with a 64-bit kernel.
#[test]
fn static_library_targets_compiler_host_not_kernel_machine() {
    let tools = tempfile::tempdir().unwrap();
    let tool = |name: &str, text: &str| {
        let path = tools.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    let is_for_arm = |kernel: &str, rustc: &str, named: &str| {
        tool("uname", &format!("case $1 in -m) echo {kernel} ;; *) echo Linux ;; esac"));
        tool("rustc", rustc);
        let path = format!("{}:{}", tools.path().display(), std::env::var("PATH").unwrap());
        said(&make(&["-n", "lib", named], &[("PATH", &path)])).contains("--unique='.ARM.ex*'")
    };
    let of =
        |host: &str| format!("[ \"$1\" = -vV ] && printf 'rustc 1.96.0\\nhost: {host}\\nrelease: 1.96.0\\n'");
    let [arm, aarch64] = [of("armv7-unknown-linux-gnueabihf"), of("aarch64-unknown-linux-gnu")];
    assert!(is_for_arm("aarch64", &arm, "CROSS="));
    assert!(!is_for_arm("armv7l", &aarch64, "CROSS="));
    assert!(is_for_arm("armv7l", "exit 1", "CROSS="), "who has no compiler has a kernel");
    assert!(!is_for_arm("aarch64", "exit 1", "CROSS="));
    assert!(is_for_arm("aarch64", &aarch64, MUSL), "another machine is asked for");
    tool("another", &arm);
    assert!(is_for_arm("aarch64", &aarch64, &format!("RUSTC={}", tools.path().join("another").display())));
}

#[test]
fn invalid_setting_is_refused_with_allowed_values() {
    for (value, allowed) in [
        ("ENCRYPTION=foo", "0 no 1 yes vendored"),
        ("REMOTE=off", "0 no 1 yes"),
        ("STD=tiny", "prebuilt small"),
        ("COMMAND=false", "0 no 1 yes"),
        ("COMMAND=NO", "0 no 1 yes"),
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
    for (value, is_built) in
        [("COMMAND=1", true), ("COMMAND=yes", true), ("COMMAND=0", false), ("COMMAND=", false)]
    {
        assert_eq!(said(&make(&["-n", "all", value], &[])).contains("--bin kvstore"), is_built, "{value}");
    }
    let windows = make(&["-n", "install-windows", "REMOTE=1"], &[]);
    assert!(String::from_utf8_lossy(&windows.stderr).contains("no stores on servers on Windows"));
    assert!(!windows.status.success());
}

#[test]
fn system_sqlite_is_refused_before_compiling() {
    let name = "LIBSQLITE3_SYS_USE_PKG_CONFIG";
    for goal in ["lib", "command", "windows-lib"] {
        for value in ["1", ""] {
            let refused = make(&["-n", goal], &[(name, value)]);
            let text = String::from_utf8_lossy(&refused.stderr);
            assert!(
                !refused.status.success() && text.contains(&format!("{name}={value}: it has to be 0")),
                "{text}"
            );
            assert!(!String::from_utf8_lossy(&refused.stdout).contains("cargo"));
        }
        said(&make(&["-n", goal], &[(name, "0")]));
    }
}

/// Returns the files that `make uninstall` would remove.
fn removed(arguments: &[&str], variables: &[(&str, &str)]) -> Vec<String> {
    let plan = said(&make(&[&["-n", "uninstall", "PREFIX=/usr"], arguments].concat(), variables));
    let names = plan.replace("\\\n", " ");
    let names = names.lines().next().unwrap().strip_prefix("rm -f ").unwrap().split_whitespace();
    names.map(|name| name.trim_matches('\'').to_owned()).collect()
}

#[test]
fn uninstall_removes_exactly_the_command_manual_pages() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("command/src/cli.rs");
    let source = fs::read_to_string(source).unwrap();
    let commands = source.lines().skip_while(|line| *line != "pub enum Command {").skip(1);
    let commands = commands.take_while(|line| *line != "}").filter(|line| line.ends_with("),"));
    let commands = commands.map(|line| line.trim().split('(').next().unwrap().to_lowercase());
    let commands = commands.filter(|name| name != "man" && name != "complete"); // hidden, and without a page
    let mut pages: Vec<_> = commands.map(|name| format!("/usr/share/man/man1/kvstore-{name}.1")).collect();
    pages.push("/usr/share/man/man1/kvstore.1".to_owned());
    pages.sort();
    assert!(pages.len() > 30);
    // tests/packaging/install.rs checks the pages of subcommands such as "families create".
    let is_of_command = |name: &String| name.contains("/man1/") && name.matches('-').count() < 2;
    let mut found: Vec<_> = removed(&[], &[]).into_iter().filter(is_of_command).collect();
    found.sort();
    assert_eq!(found, pages);

    let without = removed(&["COMMAND=no"], &[]);
    let of_command = ["/usr/bin/", "/man1/", "completion", "/zsh/"];
    assert!(!without.iter().any(|name| of_command.iter().any(|part| name.contains(part))), "{without:?}");
    assert!(without.contains(&"/usr/lib/libkvstore.a".to_owned()));
}

#[test]
fn shared_documentation_folder_gets_kvstore_subfolder() {
    for (arguments, variables, folder) in [
        (vec![], vec![], "/usr/share/doc/kvstore"),
        (vec![], vec![("docdir", "/usr/share/doc")], "/usr/share/doc/kvstore"),
        (vec![], vec![("DOCDIR", "/usr/share/doc/")], "/usr/share/doc/kvstore"),
        (vec!["docdir=/opt/doc"], vec![], "/opt/doc/kvstore"),
        (vec![], vec![("docdir", "/usr/share/doc/kvstore-0.1")], "/usr/share/doc/kvstore-0.1"),
        (vec!["DOCDIR=/usr/share/doc/libkvstore-dev"], vec![], "/usr/share/doc/libkvstore-dev"),
    ] {
        let names = removed(&arguments, &variables);
        let name = names.iter().find(|name| name.ends_with("/LICENSE-MIT"));
        assert_eq!(name, Some(&format!("{folder}/LICENSE-MIT")));
    }
}

#[test]
fn folder_with_space_in_name_is_refused() {
    for (arguments, variables, text) in [
        (vec!["TARGET_DIR=/tmp/a b"], vec![], "CARGO_TARGET_DIR is /tmp/a b"),
        (vec!["DESTDIR=/tmp/a b"], vec![], "without spaces"),
    ] {
        let refused = make(&[&["-n", "lib"], &*arguments].concat(), &variables);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && said.contains(text) && said.lines().count() == 1, "{said}");
    }
}

#[test]
fn make_help_lists_existing_goals() {
    let help = said(&make(&["help"], &[]));
    let makefile = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Makefile")).unwrap();
    for goal in
        ["install", "install-strip", "install-windows", "uninstall", "firmware", "cross", "windows", "dist"]
    {
        assert!(help.contains(&format!("make {goal} ")), "{goal}");
        assert!(makefile.contains(&format!("\n{goal}:")), "{goal}");
    }
}

/// From the commands that create folders, below a root whose folders have their own modes.
#[test]
fn install_keeps_modes_of_existing_folders() {
    for goal in ["install", "install-windows"] {
        let root = tempfile::tempdir().unwrap();
        let theirs = ["usr", "usr/bin", "usr/lib", "usr/include", "usr/share/man/man3", "usr/share/man/man1"];
        for (name, mode) in theirs.iter().zip([0o700, 0o750, 0o2775, 0o711, 0o1777, 0o700]) {
            let folder = root.path().join(name);
            fs::create_dir_all(&folder).unwrap();
            fs::set_permissions(folder, fs::Permissions::from_mode(mode)).unwrap();
        }
        let modes = || theirs.map(|name| fs::metadata(root.path().join(name)).unwrap().permissions().mode());
        let before = modes();
        let destination = format!("DESTDIR={}", root.path().display());
        let plan = said(&make(&["-n", goal, "PREFIX=/usr", &destination], &[]));
        let plan = plan.replace("\\\n", " ");
        let steps: Vec<_> =
            plan.lines().filter(|line| line.contains("install -d") && !line.contains("install -m")).collect();
        assert!(steps.len() >= 2, "{plan}");
        for step in steps {
            said(&Command::new("sh").args(["-c", step]).output().unwrap());
        }
        assert_eq!(modes(), before, "{goal}");
        for made in ["usr/lib/cmake/kvstore", "usr/include"] {
            assert!(root.path().join(made).is_dir(), "{goal}: {made}");
        }
    }
}

/// Returns the environment of cargo, without its arguments.
fn passed_to_cargo(goal: &str, arguments: &[&str], variables: &[(&str, &str)]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let cargo = folder.path().join("cargo");
    fs::write(
        &cargo,
        "#!/usr/bin/env python3\nimport os\nfor pair in os.environ.items(): print('%s=%s' % pair)\nexit(1)\n",
    )
    .unwrap();
    fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755)).unwrap();
    let cargo = format!("CARGO={}", cargo.display());
    let target = format!("TARGET_DIR={}", folder.path().join("target").display());
    let goal = goal.replace("target/nowhere", folder.path().join("target").to_str().unwrap());
    let output = make(&[&[&*cargo, &*target, &*goal], arguments].concat(), variables);
    assert!(!output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

fn flags_of_cargo(goal: &str, arguments: &[&str], variables: &[(&str, &str)]) -> String {
    let text = passed_to_cargo(goal, arguments, variables);
    let flags = text.lines().filter(|line| line.split('=').next().unwrap().contains("CFLAGS"));
    flags.fold(String::new(), |all, line| all + line + "\n")
}

#[test]
fn c_is_compiled_without_lto_despite_distribution_flags() {
    for goal in ["lib", "target/nowhere/install/kvstore"] {
        assert_eq!(flags_of_cargo(goal, &[], &[]), "CFLAGS=-fno-lto\n", "those of Cargo.toml are left");
    }
    let flags = "-O2 -flto=auto -DA='$x y'";
    for (arguments, variables) in [(vec![], vec![("CFLAGS", flags)]), (vec!["CFLAGS=-Os -flto"], vec![])] {
        let told = flags_of_cargo("lib", &arguments, &variables);
        let given = if arguments.is_empty() { flags } else { "-Os -flto" };
        assert_eq!(told, format!("CFLAGS={given} -fno-lto\n"));
    }
    // Flags for one target follow the general ones, or replace them.
    for name in
        ["TARGET_CFLAGS", "HOST_CFLAGS", "CFLAGS_x86_64_unknown_linux_gnu", "CFLAGS_x86_64-unknown-linux-gnu"]
    {
        let told = flags_of_cargo("lib", &[], &[(name, "-flto")]);
        assert!(told.lines().any(|line| line == format!("{name}=-flto -fno-lto")), "{told}");
    }
}

/// Returns the feature in a line of the Makefile that requires a version after GNU make 3.81, which
/// is Apple's. The line comes without a leading tab.
fn asks_for_a_later_make(line: &str) -> Option<String> {
    const LATER: [&str; 12] = [
        "::=",
        "!=",
        "&:",
        ".ONESHELL",
        ".RECIPEPREFIX",
        ".SHELLSTATUS",
        ".EXTRA_PREREQS",
        ".WAIT",
        "$(file ",
        "$(let ",
        "$(intcmp ",
        "$(guile ",
    ];
    if let Some(later) = LATER.into_iter().find(|later| line.contains(later)) {
        return Some(later.to_owned());
    }
    let words: Vec<_> = line.split_whitespace().take_while(|word| !word.ends_with('=')).collect();
    let modifiers = words.iter().filter(|word| ["override", "export", "unexport"].contains(word));
    if modifiers.count() > 1 {
        return Some("several modifiers".to_owned());
    }
    // In GNU make 3.81, "define NAME" takes no assignment operator.
    let of_define = words.contains(&"define") && words.len() > 1 && line.trim_end().ends_with('=');
    let later = words.iter().find(|word| ["private", "undefine"].contains(word));
    later.map(|word| (*word).to_owned()).or(of_define.then(|| "define with a sign".to_owned()))
}

#[test]
fn makefile_uses_only_make_3_81_syntax() {
    let refused = [
        "all: override export CFLAGS := -O2",
        "$(GOALS): export override $(1) = x",
        "lib: private A := b",
        "undefine A",
        "define A =",
        "A ::= b",
        "A != uname",
        "a b &: c",
        "A := $(file <b)",
        "override define A :=",
    ];
    for line in refused {
        assert!(asks_for_a_later_make(line).is_some(), "{line}");
    }
    for name in ["Makefile", "packaging/apple/macho.mk"] {
        let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap();
        for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.starts_with(['\t', '#'])) {
            assert_eq!(asks_for_a_later_make(line), None, "{name}:{}: {line}", at + 1);
        }
    }
}

#[test]
fn cflags_for_cargo_are_not_exported_to_other_tools() {
    let show = "--eval=show: ; @env";
    let own = |variables: &[(&str, &str)]| {
        let text = said(&make(&[show, "show"], variables));
        text.lines().find_map(|line| line.strip_prefix("CFLAGS=").map(str::to_owned))
    };
    assert_eq!(own(&[]), None);
    assert_eq!(own(&[("CFLAGS", "-Os")]), Some("-Os".to_owned()));
}

#[test]
fn preprocessor_flags_precede_compiler_flags() {
    let flags = ("CPPFLAGS", "-D_TIME_BITS=64 -DA='$x y'");
    let told = |arguments: &[&str], variables: &[(&str, &str)]| flags_of_cargo("lib", arguments, variables);
    let of_c = |text: &str| text.lines().find(|line| line.starts_with("CFLAGS=")).unwrap().to_owned();
    assert_eq!(of_c(&told(&[], &[flags])), format!("CFLAGS={} -fno-lto", flags.1));
    assert_eq!(of_c(&told(&[], &[flags, ("CFLAGS", "-Os")])), format!("CFLAGS={} -Os -fno-lto", flags.1));
    assert_eq!(of_c(&told(&["CPPFLAGS=-DB", "CFLAGS=-g"], &[])), "CFLAGS=-DB -g -fno-lto");
    // The crate cc uses CFLAGS, and then those for one target.
    let both = told(&[], &[flags, ("TARGET_CFLAGS", "-Os")]);
    assert!(both.lines().any(|line| line == "TARGET_CFLAGS=-Os -fno-lto"), "{both}");
    assert_eq!(of_c(&flags_of_cargo("windows-lib", &["CPPFLAGS=-DB"], &[])), "CFLAGS=-DB -fno-lto");
}

#[test]
fn linker_flags_apply_to_shared_library_and_command() {
    let flags = "-Wl,-z,now -static-libgcc -static -pie -L/opt/lib";
    let plan = said(&make(&["-n", "all"], &[("LDFLAGS", flags)])).replace("\\\n", " ");
    let of = |what: &str| {
        let line = plan.lines().find(|line| line.contains(" rustc ") && line.contains(what)).unwrap();
        line.split_once(" -- ").unwrap().1.trim().to_owned()
    };
    let linked = "-Clink-arg=-Wl,-z,now -Clink-arg=-static-libgcc -Clink-arg=-L/opt/lib";
    assert_eq!(of("--lib"), format!("-Clink-arg=-Wl,-soname,libkvstore.so.0 {linked}"));
    assert_eq!(of("--bin kvstore"), linked);
    assert_eq!(plan.matches("/opt/lib").count(), 4, "and in what is kept of the settings: {plan}");
    // Flags of this machine are not passed to mingw-w64.
    assert!(!said(&make(&["-n", "windows-lib"], &[("LDFLAGS", flags)])).contains("/opt/lib"));
}

/// A folder to build in, with a stand-in for cargo that creates empty files and counts its runs, or
/// fails.
struct Builds(tempfile::TempDir);

impl Builds {
    fn new() -> Builds {
        let builds = Builds(tempfile::tempdir().unwrap());
        let cargo = builds.0.path().join("cargo");
        let out = builds.0.path().join("install/release");
        fs::create_dir_all(&out).unwrap();
        fs::write(out.join("kvstore"), "").unwrap();
        fs::write(&cargo, "#!/bin/sh\necho run >>\"${0%/*}/runs\"\n[ \"${FAILS:-}\" = \"\" ]\n").unwrap();
        fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755)).unwrap();
        builds
    }

    /// Returns how often `make install/FILE` runs cargo.
    fn runs(&self, file: &str, arguments: &[&str], variables: &[(&str, &str)]) -> usize {
        let _ = fs::remove_file(self.0.path().join("runs"));
        let folder = self.0.path().display();
        let cargo = format!("CARGO={folder}/cargo");
        let [target, goal] = [format!("TARGET_DIR={folder}"), format!("{folder}/install/{file}")];
        let done = make(&[&[&*cargo, &*target, &*goal], arguments].concat(), variables);
        let fails = variables.iter().any(|(name, _)| *name == "FAILS");
        assert_eq!(done.status.success(), !fails, "{}", String::from_utf8_lossy(&done.stderr));
        fs::read_to_string(self.0.path().join("runs")).map_or(0, |runs| runs.lines().count())
    }
}

#[test]
fn changed_settings_rebuild_and_missing_settings_keep_build() {
    let settings = [
        ("LIBSQLITE3_FLAGS", "-DSQLITE_PRIVATE= -D_TIME_BITS=64"),
        ("CFLAGS", "-Os -DA='$x\\ y'\t%"),
        ("KVSTORE_ENGINE", "sql"),
        ("CFLAGS_x86_64-unknown-linux-gnu", "-Os"),
        ("RUSTFLAGS", "-Copt-level=1\n-g"),
    ];
    for (file, settings) in [("built", &settings[..]), ("kvstore", &settings[..1])] {
        let builds = Builds::new();
        let runs = |variables: &[(&str, &str)]| builds.runs(file, &[], variables);
        assert_eq!([runs(&[]), runs(&[])], [1, 0]);
        for &(name, value) in settings {
            assert_eq!(
                [runs(&[(name, value)]), runs(&[(name, value)]), runs(&[])],
                [1, 0, 0],
                "{file}: {name}"
            );
            let longer = [value, "x"].concat();
            assert_eq!(
                [runs(&[(name, &longer)]), runs(&[(name, value)]), runs(&[(name, value)])],
                [1, 1, 0],
                "{name}"
            );
            assert_eq!([runs(&[(name, "")]), runs(&[(name, "")]), runs(&[])], [1, 0, 0], "{file}: {name}");
        }
        let flags = |flags: &str, variables: &[(&str, &str)]| {
            builds.runs(file, &[&format!("CARGOFLAGS={flags}")], variables)
        };
        assert_eq!(
            [flags("--locked -Zx", &[]), flags("--locked -Zx", &[]), flags("--locked", &[])],
            [1, 0, 1]
        );
        // A failed build does not count as built.
        let [engine, fails] = [("KVSTORE_ENGINE", "sql"), ("FAILS", "1")];
        assert_eq!([runs(&[engine, fails]), runs(&[engine]), runs(&[engine])], [1, 1, 0]);
    }
}

/// Users try several settings one after another.
#[test]
fn firmware_build_ignores_settings_of_earlier_builds() {
    let builds = Builds::new();
    let runs = |variables: &[(&str, &str)]| builds.runs("built", &["SETTINGS_STAY=no"], variables);
    let engine = [("KVSTORE_ENGINE", "sql")];
    assert_eq!(
        [runs(&[]), runs(&[]), runs(&engine), runs(&engine), runs(&[]), runs(&[])],
        [1, 0, 1, 0, 1, 0]
    );
    let plan = |std: &str| said(&make(&["-n", "firmware", &MUSL.replace("CARGO_BUILD_", ""), std], &[]));
    assert!(plan("STD=prebuilt").contains(" SETTINGS_STAY=no "));
    let settings = |std: &str| plan(std).lines().find(|line| line.contains("printf")).unwrap().to_owned();
    assert_ne!(settings("STD=prebuilt"), settings("STD=small"));
}

/// OpenSSL, which cargo builds with make, would otherwise be installed into our DESTDIR.
#[test]
fn make_variables_are_not_passed_to_make_run_by_cargo() {
    let given = ["ENCRYPTION=vendored", "DESTDIR=/nowhere", "LIBDIR=/usr/lib64"];
    for goal in [
        "lib",
        "target/nowhere/install-encryption-vendored-openssl/kvstore",
        "windows-lib",
        "install-windows-command",
    ] {
        for jobs in [&[][..], &["-j2"]] {
            let text = passed_to_cargo(goal, &[&given, jobs].concat(), &[]);
            let of = |name: &str| text.lines().find_map(|line| line.strip_prefix(&format!("{name}=")));
            let flags = of("MAKEFLAGS").unwrap_or_else(|| panic!("{text}"));
            // With "-j", make 4.4 and later provide a jobserver that cargo can use.
            assert!(flags.is_empty() || flags.starts_with("--jobserver-auth=fifo:"), "{goal}: {flags}");
            assert!(!flags.contains(' '), "{goal}: {flags}");
            assert_eq!((of("MFLAGS"), of("MAKEOVERRIDES")), (None, None), "{goal}");
        }
    }
}

/// Runs the Makefile's steps from cargo's static library to the installed one. The library here
/// consists of two objects. One of them stands for SQLite and is compiled with `flags`.
fn static_library_of(folder: &Path, flags: &[&str]) -> Output {
    let out = folder.join("install/release");
    fs::create_dir_all(&out).unwrap();
    let run = |name: &str, arguments: &[&str]| {
        said(&Command::new(name).args(arguments).current_dir(&out).output().unwrap());
    };
    let api = "int sqlite3_two(int);\n__attribute__((visibility(\"default\")))\n\
               int kvstore_two(int a) { return sqlite3_two(a); }\n";
    let sqlite = "#include <stdlib.h>\nint sqlite3_two(int a) { return 2 * a + 0 * rand(); }\n";
    for (name, text, flags) in [("api.c", api, &[][..]), ("sqlite.c", sqlite, flags)] {
        fs::write(out.join(name), text).unwrap();
        run(
            "gcc",
            &[&["-O2", "-g", "-fPIC", "-ffunction-sections", "-fvisibility=hidden", "-c", name], flags]
                .concat(),
        );
    }
    run("gcc", &["-shared", "api.o", "-o", "libkvstore.so"]);
    run("ar", &["rcs", "libkvstore.a", "api.o", "sqlite.o"]);
    fs::write(folder.join("install/built"), "").unwrap();
    let target = format!("TARGET_DIR={}", folder.display());
    make(&[&target, &format!("{}/install/libkvstore.a", folder.display())], &[])
}

#[test]
fn static_library_without_sqlite_machine_code_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let [source, program, library] =
        ["program.c", "program", "install/libkvstore.a"].map(|name| folder.path().join(name));
    fs::write(&source, "int kvstore_two(int); int main(void) { return kvstore_two(2) != 4; }\n").unwrap();
    for flags in [&[][..], &["-flto=auto", "-ffat-lto-objects"]] {
        said(&static_library_of(folder.path(), flags));
        for flags in [&[][..], &["-flto=auto"]] {
            let files = [&*source, &library, Path::new("-o"), &program];
            said(&Command::new("gcc").args(flags).args(files).output().unwrap());
            assert!(Command::new(&program).status().unwrap().success());
        }
        fs::remove_file(&library).unwrap();
    }
    let refused = static_library_of(folder.path(), &["-flto=auto", "-fno-fat-lto-objects"]);
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && text.contains("would lack these functions of SQLite"), "{text}");
    assert!(String::from_utf8_lossy(&refused.stdout).contains("\nsqlite3_two\n"));
    assert!(!library.exists());
}
