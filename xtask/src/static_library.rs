//! The static library on ELF systems.
//!
//! Cargo's static library shows all of SQLite and of Rust's library to the linker. Here its members
//! become one object with what the C functions need, and only those functions stay global. So a
//! program can have its own SQLite, or another library written in Rust.

use std::path::Path;

use crate::settings::Settings;
use crate::{Result, run};

/// Adjustments of the sections, for `ld -r`.
pub const LINKER_SCRIPT: &str = "packaging/localise.ld";

pub fn make(settings: &Settings) -> Result<()> {
    let of_cargo = settings.cargo_out().join("libkvstore.a");
    let made = settings.static_library();
    let processor = settings.processor();
    if processor.starts_with("mips") {
        // On MIPS the linker takes calls of functions that were made local for calls of global
        // ones. There it is cargo's own library.
        return run::copy(&of_cargo, &made);
    }
    let in_stage = |name: &str| settings.stage.join(name);
    let [symbols, roots, undefined] = ["symbols", "roots", "undefined"].map(in_stage);
    let [members, object] = ["members.o", "kvstore.o"].map(in_stage);

    let mut nm = settings.tool_command("NM")?;
    let exported =
        run::output(nm.args(["-D", "--defined-only"]).arg(settings.cargo_out().join("libkvstore.so")))?;
    run::write(&symbols, last_words(&exported))?;
    run::write(&roots, linker_roots(&exported))?;

    let mut ld = settings.tool_command("LD")?;
    ld.args(["-r", "-d"]).args(options(&processor));
    // Without --force-group-allocation, the linker of the program would merge COMDAT groups of
    // another Rust library with ours, whose symbols are local.
    ld.args(["--force-group-allocation", "-T", LINKER_SCRIPT]).arg(at(&roots));
    run::run(ld.arg("-o").arg(&members).arg(&of_cargo))?;

    let mut nm = settings.tool_command("NM")?;
    let needed = last_words(&run::output(nm.arg("-u").arg(&members))?);
    run::write(&undefined, &needed)?;
    refuse_missing_sqlite(&needed)?;

    // Symbols that only removed parts needed are still in ld's list, and no longer weak. They are
    // removed, or another library in Rust could not be linked as well.
    let mut objcopy = settings.tool_command("OBJCOPY")?;
    objcopy.arg(with_file("--keep-global-symbols=", &symbols));
    objcopy.arg(with_file("--strip-unneeded-symbols=", &undefined));
    run::run(objcopy.arg(&members).arg(&object))?;

    let temporary = run::with_suffix(&made, ".tmp");
    run::remove(&[&members, &temporary]);
    run::run(settings.tool_command("AR")?.arg("rcsD").arg(&temporary).arg(&object))?;
    run::rename(&temporary, &made)
}

/// Options of `ld -r` that depend on the processor.
fn options(processor: &str) -> Vec<&'static str> {
    let mut options = Vec::new();
    // On RISC-V, ld would damage .eh_frame while it removes unused code, and a panic would end the
    // program. There -Wl,--gc-sections removes it from the program.
    if !processor.contains("riscv") {
        options.push("--gc-sections");
    }
    // On ARM, functions of one name stay in sections of their own. After removing one of them from
    // a common section, ld would write unwinding entries with offsets before the section's
    // beginning. The linker of the program crashes at such an entry.
    if processor.starts_with("arm") || processor.starts_with("thumb") {
        options.extend(["--unique=.text.*", "--unique=.ARM.ex*"]);
    }
    options
}

/// Returns the names in the output of nm, one on each line.
pub fn last_words(listed: &str) -> String {
    let names = listed.lines().filter_map(|line| line.split(' ').next_back());
    names.filter(|name| !name.is_empty()).map(|name| format!("{name}\n")).collect()
}

/// Returns options that make the linker keep the functions in the output of nm.
pub fn linker_roots(listed: &str) -> String {
    last_words(listed).lines().map(|name| format!("-u {name}\n")).collect()
}

/// Fails if functions of SQLite are undefined. The linker silently skips an object that it cannot
/// read, such as one with the bytecode of a compiler.
pub fn refuse_missing_sqlite(undefined: &str) -> Result<()> {
    let is_of_sqlite = |name: &&str| name.starts_with("sqlite3") || name.starts_with("sqlcipher");
    let missing: Vec<_> = undefined.lines().filter(is_of_sqlite).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(format!(
        "{}\nlibkvstore.a would lack these functions of SQLite: was it compiled to bytecode (-flto in CC or in a \
         wrapper of it)?",
        missing.join("\n")
    ))
}

/// Returns an argument that names a file with further arguments.
pub fn at(file: &Path) -> std::ffi::OsString {
    with_file("@", file)
}

pub fn with_file(option: &str, file: &Path) -> std::ffi::OsString {
    let mut argument = std::ffi::OsString::from(option);
    argument.push(file);
    argument
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::testing::{Folder, settings};

    #[test]
    fn processors_have_their_own_options() {
        assert_eq!(options("x86_64-unknown-linux-gnu"), ["--gc-sections"]);
        assert_eq!(options("aarch64-unknown-linux-gnu"), ["--gc-sections"]);
        assert!(options("riscv64gc-unknown-linux-gnu").is_empty());
        for arm in ["armv7-unknown-linux-musleabihf", "armv7l", "thumbv7neon-unknown-linux-gnueabihf"] {
            assert_eq!(options(arm), ["--gc-sections", "--unique=.text.*", "--unique=.ARM.ex*"]);
        }
    }

    #[test]
    fn mips_uses_static_library_of_cargo() {
        let folder = Folder::new();
        folder.write("install/mipsel-unknown-linux-musl/release/libkvstore.a", "of cargo");
        let target = ("CARGO_BUILD_TARGET", "mipsel-unknown-linux-musl");
        let settings = settings([("TARGET_DIR", &*folder.text("")), target, ("LD", "false")]).unwrap();
        make(&settings).unwrap();
        assert_eq!(std::fs::read(settings.static_library()).unwrap(), b"of cargo");
    }

    #[test]
    fn names_are_read_from_the_output_of_nm() {
        let listed = "0000000000001040 T kvstore_open\n                 U malloc\n                 w __cxa\n";
        assert_eq!(last_words(listed), "kvstore_open\nmalloc\n__cxa\n");
        assert_eq!(linker_roots("0 T kvstore_open\n0 T kvstore_put\n"), "-u kvstore_open\n-u kvstore_put\n");
    }

    /// Makes the library of two objects. One stands for SQLite and is compiled with `flags`.
    #[cfg(target_os = "linux")]
    fn library_of(folder: &Folder, flags: &[&str]) -> Result<()> {
        let run = |name: &str, arguments: &[&str]| {
            let mut command = Command::new(name);
            run::run(command.args(arguments).current_dir(folder.path("install/release"))).unwrap();
        };
        let api = "int sqlite3_two(int);\n__attribute__((visibility(\"default\")))\n\
                   int kvstore_two(int a) { return sqlite3_two(a); }\n";
        let sqlite = "#include <stdlib.h>\nint sqlite3_two(int a) { return 2 * a + 0 * rand(); }\n";
        for (name, text, flags) in [("api.c", api, &[][..]), ("sqlite.c", sqlite, flags)] {
            folder.write(&format!("install/release/{name}"), text);
            let all = ["-O2", "-g", "-fPIC", "-ffunction-sections", "-fvisibility=hidden", "-c", name];
            run("gcc", &[&all, flags].concat());
        }
        run("gcc", &["-shared", "api.o", "-o", "libkvstore.so"]);
        run("ar", &["rcs", "libkvstore.a", "api.o", "sqlite.o"]);
        make(&settings([("TARGET_DIR", &*folder.text(""))]).unwrap())
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn static_library_without_sqlite_machine_code_is_refused() {
        let folder = Folder::new();
        let [source, program, library] =
            ["program.c", "program", "install/libkvstore.a"].map(|name| folder.text(name));
        folder.write("program.c", "int kvstore_two(int); int main(void) { return kvstore_two(2) != 4; }\n");
        for flags in [&[][..], &["-flto=auto", "-ffat-lto-objects"]] {
            library_of(&folder, flags).unwrap();
            for flags in [&[][..], &["-flto=auto"]] {
                run::run(Command::new("gcc").args(flags).args([&source, &library, "-o", &program])).unwrap();
                run::run(&mut Command::new(&program)).unwrap();
            }
            std::fs::remove_file(&library).unwrap();
        }
        let refused = library_of(&folder, &["-flto=auto", "-fno-fat-lto-objects"]).unwrap_err();
        assert!(
            refused.starts_with("sqlite3_two\nlibkvstore.a would lack these functions of SQLite"),
            "{refused}"
        );
        assert!(!Path::new(&library).exists());
    }
}
