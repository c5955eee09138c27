//! The libraries and the command for Windows, by mingw-w64 (docs/how-to/cross-compile.md).

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::settings::Settings;
use crate::{Result, run, static_library, template, words};

const TARGET: &str = "x86_64-pc-windows-gnu";

/// Largest number of files that one run of ar removes from an archive.
const FILES_AT_ONCE: usize = 500;

pub struct Build<'a> {
    settings: &'a Settings,
    /// Folder where cargo puts the libraries and the command.
    out: PathBuf,
    /// Folder in which the static library is made.
    work: PathBuf,
}

impl Build<'_> {
    pub fn new(settings: &Settings) -> Result<Build<'_>> {
        if settings.has_feature("remote") {
            let value = settings.vars.get_or("REMOTE", "");
            return Err(format!("REMOTE={value}: there are no stores on servers on Windows"));
        }
        let folder = settings.cargo_dir.join(TARGET);
        Ok(Build { settings, out: folder.join("release"), work: folder.join("static") })
    }

    /// Installs the DLL with its import library, the static library, the headers and the CMake
    /// package and, unless it is declined, the command.
    pub fn install(&self) -> Result<()> {
        self.libraries()?;
        if self.settings.with_command {
            self.install_command()?;
        }
        let settings = self.settings;
        let prefix = &settings.folders.prefix;
        let [bin, lib, cmake, include] = ["bin", "lib", "lib/cmake/kvstore", "include"]
            .map(|name| settings.staged(&format!("{prefix}/{name}")));
        for folder in [&bin, &lib] {
            settings.make_folder(folder)?;
        }
        settings.install_program(&self.out.join("kvstore.dll"), &bin.join("kvstore.dll"))?;
        settings.install_data(&self.out.join("libkvstore.dll.a"), &lib.join("libkvstore.dll.a"))?;
        settings.install_data(&self.work.join("libkvstore.a"), &lib.join("libkvstore.a"))?;
        let mut values = template::version_values(settings, 8);
        values.push(("native", self.native()?.join(";")));
        for (template, name) in [
            ("packaging/kvstoreConfig.windows.cmake.in", "kvstoreConfig.cmake"),
            ("packaging/kvstoreConfigVersion.cmake.in", "kvstoreConfigVersion.cmake"),
        ] {
            settings.write(&cmake.join(name), &template::fill(template, &values)?)?;
        }
        settings.install_headers(&include)
    }

    pub fn install_command(&self) -> Result<()> {
        self.run_cargo("build", &["--package", "kvstore-cli", "--bin", "kvstore"])?;
        let bin = self.settings.staged(&format!("{}/bin", self.settings.folders.prefix));
        self.settings.make_folder(&bin)?;
        self.settings.install_program(&self.out.join("kvstore.exe"), &bin.join("kvstore.exe"))
    }

    /// System libraries that the static library needs.
    fn native(&self) -> Result<Vec<String>> {
        let mut names = template::native_libraries("windows")?;
        if self.settings.features.iter().any(|name| name.starts_with("encryption")) {
            names.extend(template::native_libraries("windows-encryption")?);
        }
        Ok(names)
    }

    fn run_cargo(&self, subcommand: &str, what: &[&str]) -> Result<()> {
        run::run_with(&mut self.cargo(subcommand, what)?, &["CFLAGS"])
    }

    /// (`LDFLAGS` are for this machine's linker.)
    fn cargo(&self, subcommand: &str, what: &[&str]) -> Result<Command> {
        let mut command = self.settings.cargo(subcommand)?;
        self.settings.add_features(&mut command);
        command.args(["--target", TARGET, "--target-dir"]).arg(&self.settings.cargo_dir).args(what);
        let default = format!("{}gcc", self.tools());
        let compiler = self.settings.vars.get_or("WINDOWS_CC", &default);
        command.env("CC_x86_64_pc_windows_gnu", compiler);
        command.env("CARGO_TARGET_X86_64_PC_WINDOWS_GNU_LINKER", compiler);
        Ok(command)
    }

    /// Prefix of mingw-w64's tools.
    fn tools(&self) -> &str {
        self.settings.vars.get_or("WINDOWS_TOOLS", "x86_64-w64-mingw32-")
    }

    fn tool(&self, name: &str) -> Result<Command> {
        let words = words::split(&format!("{}{name}", self.tools()))?;
        self.settings.command_of("WINDOWS_TOOLS", &words)
    }

    /// Makes the libraries. As for ELF, only the C functions stay global in the static library.
    /// There are differences:
    ///
    /// - Members that import functions of DLLs stay members, because the linker sorts their
    ///   sections by member.
    /// - `--gc-sections` would leave names without sections, so it is not used.
    /// - `_tls_used`, of the C library, must be defined for `ld -r`. It has another name meanwhile.
    /// - A COMDAT section of one symbol keeps its flag.
    pub fn libraries(&self) -> Result<()> {
        self.run_cargo("rustc", &["--lib", "--crate-type", "cdylib,staticlib"])?;
        let _ = fs::remove_dir_all(&self.work);
        let in_work = |name: &str| self.work.join(name);
        let [symbols, roots, undefined] = ["symbols", "roots", "undefined"].map(in_work);
        let [code, imports, members, object] = ["code.a", "imports.a", "members.o", "kvstore.o"].map(in_work);

        let exported = run::output(self.tool("nm")?.arg(self.out.join("libkvstore.dll.a")))?;
        let exported: String = imported_names(&exported).map(|name| format!("I {name}\n")).collect();
        run::write(&symbols, static_library::last_words(&exported))?;
        run::write(&roots, static_library::linker_roots(&exported))?;
        for archive in [&code, &imports] {
            run::copy(&self.out.join("libkvstore.a"), archive)?;
        }
        let listed = run::output(self.tool("ar")?.arg("t").arg(&code))?;
        self.remove_members(&code, listed.lines().filter(|name| is_import(name) || name.ends_with(".dwo")))?;
        self.remove_members(&imports, listed.lines().filter(|name| !is_import(name)))?;

        let mut ld = self.tool("ld")?;
        ld.args(["-r", "--force-group-allocation", "--wrap=_tls_used", "-T", static_library::LINKER_SCRIPT]);
        run::run(ld.arg(static_library::at(&roots)).arg("-o").arg(&members).arg(&code))?;
        let needed = static_library::last_words(&run::output(self.tool("nm")?.arg("-u").arg(&members))?);
        run::write(&undefined, &needed)?;
        static_library::refuse_missing_sqlite(&needed)?;

        let mut objcopy = self.tool("objcopy")?;
        objcopy.args(["--redefine-sym", "__wrap__tls_used=_tls_used"]);
        objcopy.arg(static_library::with_file("--keep-global-symbols=", &symbols));
        objcopy.args(["--set-section-flags", ".rdata$.refptr*=alloc,load,readonly,data,contents"]);
        run::run(objcopy.arg(&members).arg(&object))?;
        run::run(self.tool("ar")?.args(["--plugin=/dev/null", "q"]).arg(&imports).arg(&object))?;
        run::rename(&imports, &in_work("libkvstore.a"))?;
        run::remove(&[&code, &members, &object]);
        Ok(())
    }

    /// Removes members from an archive. `--plugin`: a plugin of an LLVM cannot read the bitcode of
    /// Rust's.
    fn remove_members<'m>(&self, archive: &PathBuf, members: impl Iterator<Item = &'m str>) -> Result<()> {
        for members in members.collect::<Vec<_>>().chunks(FILES_AT_ONCE) {
            println!("ar d {} (members: {})", archive.display(), members.len());
            let mut ar = self.tool("ar")?;
            run::run_quietly(ar.args(["--plugin=/dev/null", "d"]).arg(archive).args(members))?;
        }
        Ok(())
    }
}

/// Returns the functions that an import library offers, from the output of nm.
fn imported_names(listed: &str) -> impl Iterator<Item = &str> {
    listed.lines().filter_map(|line| line.split_once(" I __imp_").map(|(_, name)| name))
}

/// Returns `true` for a member that imports from a DLL, such as `kernel32.dllh00001.o`.
fn is_import(member: &str) -> bool {
    let Some((before, _)) = member.rsplit_once(".o") else { return false };
    let before = before.trim_end_matches(|letter: char| letter.is_ascii_digit());
    member.ends_with(".o") && [".dllh", ".dlls", ".dllt"].iter().any(|end| before.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::settings;

    #[test]
    fn stores_on_servers_are_refused() {
        let refused = Build::new(&settings([("REMOTE", "1")]).unwrap()).err().unwrap();
        assert_eq!(refused, "REMOTE=1: there are no stores on servers on Windows");
    }

    #[test]
    fn members_that_import_are_recognized() {
        for name in ["kernel32.dllh00001.o", "a.dlls2.o", "a.dllt.o"] {
            assert!(is_import(name), "{name}");
        }
        for name in ["kvstore.a1b2.o", "dllh.o", "a.dllx1.o", "x.dwo", "a.dllh1.o.d"] {
            assert!(!is_import(name), "{name}");
        }
        let listed = "0000 I __imp_kvstore_open\n0000 T kvstore_open\n\n0000 I _head\n";
        assert_eq!(imported_names(listed).collect::<Vec<_>>(), ["kvstore_open"]);
    }

    #[test]
    fn flags_for_this_machine_are_not_given_to_mingw() {
        let settings =
            settings([("LDFLAGS", "-L/opt/lib"), ("CPPFLAGS", "-DB"), ("WINDOWS_CC", "my-gcc")]).unwrap();
        let command = Build::new(&settings).unwrap().cargo("rustc", &["--lib"]).unwrap();
        let arguments: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
        assert_eq!(
            arguments.join(" "),
            format!("rustc --release --locked --target {TARGET} --target-dir target/install --lib")
        );
        let variable =
            |name: &str| command.get_envs().find(|(found, _)| *found == name).unwrap().1.unwrap().to_owned();
        assert_eq!(variable("CFLAGS"), "-DB -fno-lto");
        assert_eq!(variable("CC_x86_64_pc_windows_gnu"), "my-gcc");
        assert_eq!(variable("CARGO_TARGET_X86_64_PC_WINDOWS_GNU_LINKER"), "my-gcc");
    }

    #[test]
    fn encryption_needs_further_system_libraries() {
        let native = |pair| Build::new(&settings([pair]).unwrap()).unwrap().native().unwrap().join(";");
        assert_eq!(native(("A", "")), "kernel32;ntdll;userenv;ws2_32;dbghelp;advapi32");
        for value in ["1", "vendored"] {
            assert!(native(("ENCRYPTION", value)).ends_with(";advapi32;crypt32;user32"));
        }
    }
}
