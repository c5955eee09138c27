//! The commands that run cargo: their flags and their environment.

use std::process::Command;

use crate::settings::Settings;
use crate::{Result, apple, words};

impl Settings {
    /// Returns the command that builds both libraries in one run.
    pub fn library_command(&self) -> Result<Command> {
        let mut command = self.cargo("rustc")?;
        self.allow_shared_library(&mut command);
        self.add_features(&mut command);
        command.args(["--lib", "--crate-type", "cdylib,staticlib", "--target-dir"]).arg(&self.cargo_dir);
        command.arg("--").args(self.name_flags()).args(self.link_flags()?);
        Ok(command)
    }

    /// Returns the command that builds the command `kvstore`.
    pub fn program_command(&self) -> Result<Command> {
        let mut command = self.cargo("rustc")?;
        self.add_features(&mut command);
        command.args(["--package", "kvstore-cli", "--bin", "kvstore", "--target-dir"]).arg(&self.cargo_dir);
        let flags = self.link_flags()?;
        if !flags.is_empty() {
            command.arg("--").args(flags);
        }
        Ok(command)
    }

    /// Returns `cargo SUBCOMMAND --release` with `CARGOFLAGS`, in the environment for our C code.
    pub fn cargo(&self, subcommand: &str) -> Result<Command> {
        self.refuse_sqlite_of_the_system()?;
        let words = words::split(self.vars.get_or("CARGO", "cargo"))?;
        let mut command = self.command_of("CARGO", &words)?;
        command.args([subcommand, "--release"]);
        command.args(words::split(self.vars.get_or("CARGOFLAGS", "--locked"))?);
        self.set_c_flags(&mut command);
        self.set_cross_compiler(&mut command);
        self.hide_make(&mut command);
        Ok(command)
    }

    pub fn add_features(&self, command: &mut Command) {
        command.args(self.features.iter().map(|name| format!("--features={name}")));
    }

    /// The crate libsqlite3-sys takes the system's SQLite if this variable is set, whatever else is
    /// requested.
    fn refuse_sqlite_of_the_system(&self) -> Result<()> {
        const NAME: &str = "LIBSQLITE3_SYS_USE_PKG_CONFIG";
        match self.vars.get(NAME) {
            None | Some("0") => Ok(()),
            Some(value) => Err(format!(
                "{NAME}={value}: it has to be 0, or not to be set: with the SQLite of the system only the \
                 slower engine can be built, and libkvstore.a would lack it"
            )),
        }
    }

    /// Makes cargo compile C to machine code, whatever the `CFLAGS` of a distribution are: bytecode
    /// of GCC's LTO is unreadable for `ld -r` and for LLVM's linker. The crate cc takes flags from
    /// all of these variables, but not from `CPPFLAGS`. Those come before `CFLAGS`, as in make.
    fn set_c_flags(&self, command: &mut Command) {
        let before = self.vars.get("CPPFLAGS").map(|flags| format!("{flags} ")).unwrap_or_default();
        let given = self.vars.get("CFLAGS").map(|flags| format!("{flags} ")).unwrap_or_default();
        command.env("CFLAGS", format!("{before}{given}-fno-lto"));
        for name in self.vars.names() {
            if ["TARGET_CFLAGS", "HOST_CFLAGS"].contains(&name) || name.starts_with("CFLAGS_") {
                command.env(name, format!("{} -fno-lto", self.vars.get_or(name, "")));
            }
        }
    }

    /// Names the compiler, which is also the linker, with the prefix `CROSS`. A variable that is
    /// set stays as it is.
    fn set_cross_compiler(&self, command: &mut Command) {
        let Some(target) = self.target.as_ref().filter(|_| !self.cross().is_empty()) else { return };
        let lower = target.replace('-', "_");
        let upper = lower.to_uppercase();
        for (name, tool) in [
            (format!("CC_{lower}"), "gcc"),
            (format!("AR_{lower}"), "ar"),
            (format!("CARGO_TARGET_{upper}_LINKER"), "gcc"),
        ] {
            if self.vars.get(&name).is_none() {
                command.env(name, format!("{}{tool}", self.cross()));
            }
        }
    }

    /// Keeps variables of our make from the make that builds OpenSSL (`ENCRYPTION=vendored`): with
    /// our `DESTDIR`, OpenSSL would be installed there. The job server of `make -j` is kept if it
    /// is a named pipe. Before make 4.4 it has pipes that only another make inherits.
    fn hide_make(&self, command: &mut Command) {
        let flags = self.vars.get_or("MAKEFLAGS", "").split(' ');
        let jobs: Vec<_> = flags.filter(|flag| flag.starts_with("--jobserver-auth=fifo:")).collect();
        command.env("MAKEFLAGS", jobs.join(" ")).env_remove("MFLAGS").env_remove("MAKEOVERRIDES");
    }

    /// Lets rustc make a shared library for musl, which it does only with this flag. The flag has
    /// to be among those of the whole build, because cargo asks rustc with them what it can make.
    /// Cargo takes the flags of the first of these variables that is set, and of no other.
    fn allow_shared_library(&self, command: &mut Command) {
        const FLAG: &str = "-Ctarget-feature=-crt-static";
        let Some(target) = self.target.as_ref().filter(|target| target.contains("-musl")) else { return };
        let of_target = format!("CARGO_TARGET_{}_RUSTFLAGS", target.replace('-', "_").to_uppercase());
        let names = ["CARGO_ENCODED_RUSTFLAGS", "RUSTFLAGS", &of_target];
        let given = names.into_iter().find_map(|name| Some((name, self.vars.get(name)?)));
        match given {
            Some((_, flags)) if flags.contains("-crt-static") => {}
            Some((name @ "CARGO_ENCODED_RUSTFLAGS", "")) => drop(command.env(name, FLAG)),
            Some((name @ "CARGO_ENCODED_RUSTFLAGS", flags)) => {
                command.env(name, format!("{flags}\x1f{FLAG}"));
            }
            Some((name @ "RUSTFLAGS", flags)) => drop(command.env(name, format!("{flags} {FLAG}"))),
            // Cargo joins these flags with those of the variable for the target.
            _ => drop(command.args(["--config", &format!("target.{target}.rustflags=[\"{FLAG}\"]")])),
        }
    }

    fn name_flags(&self) -> Vec<String> {
        if self.is_apple() {
            return apple::name_flags(&self.version);
        }
        vec![format!("-Clink-arg=-Wl,-soname,{}", self.soname())]
    }

    /// Flags for the linker of the shared library and of the command, and of no program that runs
    /// during the build. Cargo selects the kind of file.
    fn link_flags(&self) -> Result<Vec<String>> {
        const KINDS: [&str; 6] = ["-static", "--static", "-static-pie", "-pie", "-no-pie", "-shared"];
        let mut flags = words::split(self.vars.get_or("LDFLAGS", ""))?;
        flags.retain(|flag| !KINDS.contains(&&**flag));
        Ok(flags.iter().map(|flag| format!("-Clink-arg={flag}")).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Folder, settings};

    const MUSL: (&str, &str) = ("CARGO_BUILD_TARGET", "armv7-unknown-linux-musleabihf");
    const OF_TARGET: &str = "CARGO_TARGET_ARMV7_UNKNOWN_LINUX_MUSLEABIHF_RUSTFLAGS";

    fn arguments(command: &Command) -> String {
        command.get_args().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    }

    /// Returns a variable of a command's environment.
    fn variable(command: &Command, name: &str) -> Option<String> {
        let found = command.get_envs().find(|(found, _)| *found == name)?.1?;
        Some(found.to_str().unwrap().to_owned())
    }

    fn library<const N: usize>(pairs: [(&str, &str); N]) -> Command {
        settings(pairs).unwrap().library_command().unwrap()
    }

    #[test]
    fn shared_library_for_musl_is_allowed_once() {
        let config =
            "--config target.armv7-unknown-linux-musleabihf.rustflags=[\"-Ctarget-feature=-crt-static\"]";
        assert!(arguments(&library([MUSL])).contains(config));
        for flags in ["", "-Copt-level=1"] {
            assert!(arguments(&library([MUSL, (OF_TARGET, flags)])).contains(config));
        }
        for (name, given, made) in [
            ("RUSTFLAGS", "-g", "-g -Ctarget-feature=-crt-static"),
            ("CARGO_ENCODED_RUSTFLAGS", "", "-Ctarget-feature=-crt-static"),
            ("CARGO_ENCODED_RUSTFLAGS", "-g", "-g\x1f-Ctarget-feature=-crt-static"),
        ] {
            // A flag that cargo ignores makes no difference.
            let command = library([MUSL, (name, given), (OF_TARGET, "-Ctarget-feature=-crt-static")]);
            assert_eq!(variable(&command, name).unwrap(), made);
            assert!(!arguments(&command).contains("crt-static"));
        }
        // A caller's own flag stays alone, so nothing is compiled again.
        for name in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", OF_TARGET] {
            let command = library([MUSL, (name, "-Ctarget-feature=-crt-static")]);
            assert_eq!(variable(&command, name).unwrap(), "-Ctarget-feature=-crt-static");
            assert!(!arguments(&command).contains("crt-static"), "{name}");
        }
        for elsewhere in [("A", ""), ("CARGO_BUILD_TARGET", "aarch64-unknown-linux-gnu")] {
            assert!(!arguments(&library([elsewhere])).contains("rustflags"));
        }
    }

    /// Cargo has to agree: it warns if it drops a library.
    #[test]
    fn musl_build_sets_flag_for_shared_library() {
        let folder = Folder::new();
        folder.write("src/lib.rs", "#![no_std]\n");
        let package = "[package]\nname = \"empty\"\nversion = \"0.1.0\"\nedition = \"2024\"\n";
        folder.write("Cargo.toml", &format!("{package}[lib]\ncrate-type = [\"rlib\"]\n[workspace]\n"));
        let drops = |command: &mut Command| {
            let output = command.current_dir(folder.path("")).output().unwrap();
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            // (The command fails afterwards if Rust has no standard library for the target.)
            assert!(text.contains("Compiling empty"), "{text}");
            text.contains("dropping unsupported crate type `cdylib`")
        };
        let target_dir = folder.text("target");
        let of = |pair| library([MUSL, pair, ("CARGOFLAGS", ""), ("TARGET_DIR", &target_dir)]);
        let mut plain = settings([MUSL]).unwrap().vars.command("cargo");
        assert!(drops(plain.args(["rustc", "--release", "--lib", "--crate-type", "cdylib,staticlib"])));
        for pair in [("A", ""), ("RUSTFLAGS", "-g"), ("CARGO_ENCODED_RUSTFLAGS", "-g"), (OF_TARGET, "-g")] {
            assert!(!drops(&mut of(pair)), "{pair:?}");
        }
    }

    #[test]
    fn cross_prefix_sets_compiler() {
        let names = [
            ("CC_armv7_unknown_linux_musleabihf", "arm-x-gcc"),
            ("AR_armv7_unknown_linux_musleabihf", "arm-x-ar"),
            ("CARGO_TARGET_ARMV7_UNKNOWN_LINUX_MUSLEABIHF_LINKER", "arm-x-gcc"),
        ];
        let command = library([MUSL, ("CROSS", "arm-x-")]);
        for (name, value) in names {
            assert_eq!(variable(&command, name).unwrap(), value);
        }
        let command = library([MUSL, ("CROSS", "arm-x-"), (names[0].0, "clang")]);
        assert_eq!(variable(&command, names[0].0).unwrap(), "clang");
        let command = library([MUSL]);
        assert!(names.iter().all(|(name, _)| variable(&command, name).is_none()));
    }

    #[test]
    fn c_is_compiled_without_lto_despite_given_flags() {
        let flags = "-O2 -flto=auto -DA='$x y'";
        for (given, made) in [
            (("A", ""), "-fno-lto".to_owned()), // the flags of Cargo.toml's profile are kept
            (("CFLAGS", flags), format!("{flags} -fno-lto")),
        ] {
            for command in [library([given]), settings([given]).unwrap().program_command().unwrap()] {
                assert_eq!(variable(&command, "CFLAGS").unwrap(), made);
            }
        }
        // Flags for one target follow the general ones, or replace them.
        for name in [
            "TARGET_CFLAGS",
            "HOST_CFLAGS",
            "CFLAGS_x86_64_unknown_linux_gnu",
            "CFLAGS_x86_64-unknown-linux-gnu",
        ] {
            assert_eq!(variable(&library([(name, "-flto")]), name).unwrap(), "-flto -fno-lto");
        }
    }

    #[test]
    fn preprocessor_flags_come_before_compiler_flags() {
        let before = ("CPPFLAGS", "-D_TIME_BITS=64 -DA='$x y'");
        let of_c = |command: Command| variable(&command, "CFLAGS").unwrap();
        assert_eq!(of_c(library([before])), format!("{} -fno-lto", before.1));
        assert_eq!(of_c(library([before, ("CFLAGS", "-Os")])), format!("{} -Os -fno-lto", before.1));
        // The crate cc uses CFLAGS, and then those for one target.
        let command = library([before, ("TARGET_CFLAGS", "-Os")]);
        assert_eq!(variable(&command, "TARGET_CFLAGS").unwrap(), "-Os -fno-lto");
    }

    #[test]
    fn linker_flags_are_for_the_shared_library_and_the_command() {
        let flags = ("LDFLAGS", "-Wl,-z,now -static-libgcc -static -pie -L/opt/lib");
        let linked = "-Clink-arg=-Wl,-z,now -Clink-arg=-static-libgcc -Clink-arg=-L/opt/lib";
        let after_dashes = |command: Command| arguments(&command).split_once(" -- ").unwrap().1.to_owned();
        let target = ("CARGO_BUILD_TARGET", "aarch64-unknown-linux-gnu");
        assert_eq!(
            after_dashes(library([flags, target])),
            format!("-Clink-arg=-Wl,-soname,libkvstore.so.0 {linked}")
        );
        assert_eq!(after_dashes(settings([flags]).unwrap().program_command().unwrap()), linked);
        assert!(!arguments(&settings([]).unwrap().program_command().unwrap()).contains(" -- "));
    }

    #[test]
    fn system_sqlite_is_refused_before_anything_is_compiled() {
        let name = "LIBSQLITE3_SYS_USE_PKG_CONFIG";
        for value in ["1", ""] {
            let settings = settings([(name, value)]).unwrap();
            for refused in [settings.library_command(), settings.program_command(), settings.cargo("build")] {
                assert!(refused.unwrap_err().starts_with(&format!("{name}={value}: it has to be 0")));
            }
        }
        assert!(settings([(name, "0")]).unwrap().library_command().is_ok());
    }

    /// OpenSSL, which cargo builds with make, would otherwise be installed into our `DESTDIR`.
    #[test]
    fn make_variables_are_not_passed_to_make_run_by_cargo() {
        for (flags, left) in [
            ("w -- DESTDIR=/nowhere LIBDIR=/usr/lib64", ""),
            (" -j2 --jobserver-auth=3,4 -- DESTDIR=/nowhere", ""),
            (" -j2 --jobserver-auth=fifo:/tmp/G1 -- DESTDIR=/nowhere", "--jobserver-auth=fifo:/tmp/G1"),
        ] {
            let command = library([("MAKEFLAGS", flags), ("MFLAGS", "-w"), ("MAKEOVERRIDES", "A=b")]);
            assert_eq!(variable(&command, "MAKEFLAGS").unwrap(), left);
            assert_eq!(variable(&command, "MFLAGS"), None);
            assert_eq!(variable(&command, "MAKEOVERRIDES"), None);
        }
    }

    #[test]
    fn features_and_flags_of_the_caller_are_given_to_cargo() {
        let flags = ("CARGOFLAGS", "--locked --config 'a.b = \"c d\"'");
        let command = library([flags, ("ENCRYPTION", "1"), ("REMOTE", "yes"), ("CARGO", "cargo +nightly")]);
        assert_eq!(command.get_program(), "cargo");
        let said = arguments(&command);
        assert!(said.starts_with("+nightly rustc --release --locked --config a.b = \"c d\" "), "{said}");
        let features = " --features=encryption --features=remote --lib --crate-type cdylib,staticlib ";
        assert!(said.contains(features), "{said}");
    }
}
