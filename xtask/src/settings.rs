//! Settings of a build: what is built, for which machine, with which tools, and where.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};

use crate::folders::Folders;
use crate::vars::{Vars, is_on};
use crate::{Result, run, words};

pub struct Settings {
    pub vars: Vars,
    /// The target as Rust calls it, unless the build is for this machine.
    pub target: Option<String>,
    /// Features of the crates: `encryption` or `encryption-vendored-openssl`, and `remote`.
    pub features: Vec<&'static str>,
    pub with_command: bool,
    pub version: Version,
    pub folders: Folders,
    /// Folder of cargo, one for each set of features.
    pub cargo_dir: PathBuf,
    /// Folder of the files to install, one for each target in `cargo_dir`.
    pub stage: PathBuf,
    system: OnceCell<String>,
}

/// The version in Cargo.toml. The header repeats it; a test compares them.
pub struct Version {
    pub full: String,
    /// The version without a suffix such as `-beta`.
    pub number: String,
    /// The number of the SONAME (docs/reference/abi.md).
    pub major: String,
    pub minor: String,
}

impl Settings {
    pub fn new(vars: Vars) -> Result<Settings> {
        // With the OpenSSL of the system, or one of which only the necessary parts are compiled in.
        let encryption = vars.one_of("ENCRYPTION", "no", "0 no 1 yes vendored")?;
        let remote = vars.one_of("REMOTE", "no", "0 no 1 yes")?;
        vars.one_of("STD", "prebuilt", "prebuilt small")?;
        // In the environment, other programs use this name for other things.
        if vars.get("COMMAND_ORIGIN") == Some("command line") {
            vars.one_of("COMMAND", "yes", "0 no 1 yes")?;
        }
        let mut features = Vec::new();
        if is_on(encryption) {
            let is_vendored = encryption == "vendored";
            features.push(if is_vendored { "encryption-vendored-openssl" } else { "encryption" });
        }
        if is_on(remote) {
            features.push("remote");
        }
        // A target can be a file with its description.
        let target = vars.get("CARGO_BUILD_TARGET").filter(|name| !name.is_empty());
        let target = target.map(|name| name.rsplit('/').next().unwrap_or(name).trim_end_matches(".json"));
        let target = target.map(str::to_owned);
        let suffix: String = features.iter().map(|name| format!("-{name}")).collect();
        let target_dir = match vars.get_or("TARGET_DIR", "") {
            "" => "target",
            folder => folder,
        };
        let cargo_dir = Path::new(target_dir).join(format!("install{suffix}"));
        Ok(Settings {
            with_command: is_on(vars.get_or("COMMAND", "yes")),
            version: Version::of(&run::read_text("Cargo.toml")?)?,
            folders: Folders::of(&vars)?,
            stage: target.as_ref().map_or(cargo_dir.clone(), |target| cargo_dir.join(target)),
            cargo_dir,
            features,
            target,
            vars,
            system: OnceCell::new(),
        })
    }

    pub fn has_feature(&self, name: &str) -> bool {
        self.features.contains(&name)
    }

    /// Returns the folder where cargo puts the libraries and the command.
    pub fn cargo_out(&self) -> PathBuf {
        self.stage.join("release")
    }

    /// Returns the name of a tool of binutils, with its own options. A variable that names the tool
    /// is taken as it is. Without one, `CROSS` is put before the tool's usual name.
    pub fn tool(&self, variable: &str) -> Result<Vec<String>> {
        match self.vars.get(variable) {
            Some(given) => words::split(given),
            None => Ok(vec![format!("{}{}", self.cross(), variable.to_lowercase())]),
        }
    }

    /// Returns a command with a tool of binutils.
    pub fn tool_command(&self, variable: &str) -> Result<std::process::Command> {
        self.command_of(variable, &self.tool(variable)?)
    }

    /// Returns a command from the words of a variable.
    pub fn command_of(&self, variable: &str, words: &[String]) -> Result<std::process::Command> {
        let (program, options) = words.split_first().ok_or_else(|| format!("{variable} is empty"))?;
        let mut command = self.vars.command(program);
        command.args(options);
        Ok(command)
    }

    /// Prefix of the tools for another machine, such as `aarch64-linux-gnu-`.
    pub fn cross(&self) -> &str {
        self.vars.get_or("CROSS", "")
    }

    /// Returns `true` if the libraries are Mach-O files, `false` for ELF. The target decides, or
    /// else the system that builds.
    pub fn is_apple(&self) -> bool {
        match &self.target {
            Some(target) => target.contains("-apple-"),
            None => self.system() == "Darwin",
        }
    }

    /// Name of the system that builds.
    pub fn system(&self) -> &str {
        self.system.get_or_init(|| self.uname("-s"))
    }

    /// Processor of the kernel that runs here.
    pub fn kernel(&self) -> String {
        self.uname("-m")
    }

    fn uname(&self, option: &str) -> String {
        let name = run::output_quietly(self.vars.command("uname").arg(option));
        name.map(|name| name.trim().to_owned()).unwrap_or_default()
    }

    /// Processor that is compiled for: that of the target, or else of the compiler, and without a
    /// compiler that of the kernel. (A 64-bit kernel can run a 32-bit system.)
    pub fn processor(&self) -> String {
        if let Some(target) = &self.target {
            return target.clone();
        }
        let rustc = self.vars.get("RUSTC").filter(|name| !name.is_empty()).unwrap_or("rustc");
        let mut command = self.vars.command(rustc);
        command.arg("-vV").stderr(std::process::Stdio::null());
        let said = command.output().map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        let host = said.ok().and_then(|text| {
            text.lines().find_map(|line| line.strip_prefix("host: ").map(|host| host.trim().to_owned()))
        });
        host.unwrap_or_else(|| self.kernel())
    }
}

impl Version {
    fn of(manifest: &str) -> Result<Version> {
        let line = manifest.lines().find_map(|line| line.strip_prefix("version = \""));
        let full = line.and_then(|rest| rest.strip_suffix('"')).ok_or("Cargo.toml names no version")?;
        let number = full.split(['-', '+']).next().unwrap_or(full);
        let mut parts = number.split('.');
        let mut part = || parts.next().unwrap_or("0").to_owned();
        Ok(Version { full: full.to_owned(), number: number.to_owned(), major: part(), minor: part() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Folder, settings};

    #[test]
    fn invalid_setting_is_refused_with_allowed_values() {
        for (name, value, allowed) in [
            ("ENCRYPTION", "foo", "0 no 1 yes vendored"),
            ("REMOTE", "off", "0 no 1 yes"),
            ("STD", "tiny", "prebuilt small"),
            ("COMMAND", "false", "0 no 1 yes"),
            ("COMMAND", "NO", "0 no 1 yes"),
        ] {
            let refused = settings([(name, value), ("COMMAND_ORIGIN", "command line")]).err().unwrap();
            assert_eq!(refused, format!("{name}={value}: it has to be one of {allowed}"));
        }
        for (name, value) in [
            ("ENCRYPTION", ""),
            ("ENCRYPTION", "vendored"),
            ("ENCRYPTION", "no"),
            ("REMOTE", "0"),
            ("REMOTE", "yes"),
            ("STD", "small"),
        ] {
            assert!(settings([(name, value)]).is_ok(), "{name}={value}");
        }
    }

    #[test]
    fn command_is_built_unless_it_is_declined() {
        for (value, is_built) in [("1", true), ("yes", true), ("0", false), ("no", false), ("", false)] {
            let settings = settings([("COMMAND", value), ("COMMAND_ORIGIN", "command line")]).unwrap();
            assert_eq!(settings.with_command, is_built, "{value}");
        }
        // In the environment, the variable may belong to another program.
        assert!(settings([("COMMAND", "ls"), ("COMMAND_ORIGIN", "environment")]).unwrap().with_command);
        assert!(settings([]).unwrap().with_command);
    }

    #[test]
    fn builds_with_other_features_or_targets_use_own_folder() {
        let stage = |pairs: [(&str, &str); 3]| settings(pairs).unwrap().stage.display().to_string();
        let none = ("A", "");
        assert_eq!(stage([none; 3]), "target/install");
        assert_eq!(stage([("TARGET_DIR", "/tmp/a b"), ("REMOTE", "1"), none]), "/tmp/a b/install-remote");
        assert_eq!(
            stage([
                ("ENCRYPTION", "vendored"),
                ("REMOTE", "1"),
                ("CARGO_BUILD_TARGET", "one-unknown-linux-gnu")
            ]),
            "target/install-encryption-vendored-openssl-remote/one-unknown-linux-gnu"
        );
        let described = ("CARGO_BUILD_TARGET", "targets/another-linux-gnu.json");
        assert_eq!(
            stage([described, ("ENCRYPTION", "1"), none]),
            "target/install-encryption/another-linux-gnu"
        );
    }

    #[test]
    fn cross_prefix_sets_tools_unless_given() {
        let tools = |settings: &Settings| {
            let tool = |name| settings.tool(name).unwrap().join(" ");
            ["LD", "AR", "NM", "OBJCOPY", "STRIP"].map(tool).join(" ")
        };
        let cross = settings([("CROSS", "arm-x-")]).unwrap();
        assert_eq!(tools(&cross), "arm-x-ld arm-x-ar arm-x-nm arm-x-objcopy arm-x-strip");
        let named = settings([("CROSS", "arm-x-"), ("LD", "my-ld --sysroot=/s"), ("NM", "my-nm")]).unwrap();
        assert_eq!(tools(&named), "my-ld --sysroot=/s arm-x-ar my-nm arm-x-objcopy arm-x-strip");
        assert_eq!(tools(&settings([]).unwrap()), "ld ar nm objcopy strip");
    }

    #[test]
    fn target_decides_whether_libraries_are_mach_o() {
        for (target, is_apple) in [("aarch64-apple-ios", true), ("aarch64-unknown-linux-gnu", false)] {
            assert_eq!(settings([("CARGO_BUILD_TARGET", target)]).unwrap().is_apple(), is_apple);
        }
        assert_eq!(settings([]).unwrap().is_apple(), cfg!(target_vendor = "apple"));
    }

    /// Like a Raspberry Pi, which may have a 32-bit system with a 64-bit kernel.
    #[test]
    fn processor_is_that_of_compiler_host_not_of_kernel() {
        let tools = Folder::new();
        let path = format!("{}:{}", tools.text(""), std::env::var("PATH").unwrap());
        let processor = |kernel: &str, rustc: &str, pair: (&str, &str)| {
            tools.write_program("uname", &format!("echo {kernel}"));
            tools.write_program("rustc", rustc);
            settings([("PATH", &*path), pair]).unwrap().processor()
        };
        let of = |host: &str| {
            format!("[ \"$1\" = -vV ] && printf 'rustc 1.96.0\\nhost: {host}\\nrelease: 1.96.0\\n'")
        };
        let [arm, aarch64] = ["armv7-unknown-linux-gnueabihf", "aarch64-unknown-linux-gnu"];
        let none = ("A", "");
        assert_eq!(processor("aarch64", &of(arm), none), arm);
        assert_eq!(processor("armv7l", &of(aarch64), none), aarch64);
        assert_eq!(processor("armv7l", "exit 1", none), "armv7l", "without a compiler");
        assert_eq!(processor("aarch64", &of(aarch64), ("CARGO_BUILD_TARGET", arm)), arm);
        tools.write_program("another", &of(arm));
        assert_eq!(processor("aarch64", &of(aarch64), ("RUSTC", &tools.text("another"))), arm);
    }

    #[test]
    fn version_has_number_and_major() {
        let version = Version::of("[package]\nversion = \"1.20.3-beta+x\"\n").unwrap();
        assert_eq!((&*version.full, &*version.number), ("1.20.3-beta+x", "1.20.3"));
        assert_eq!((&*version.major, &*version.minor), ("1", "20"));
    }
}
