//! Mach-O: names, the static library, strip, signatures. Only tools of Xcode and of BSD are used.
//! On another system, set `CARGO_BUILD_TARGET=aarch64-apple-darwin`, and name LLVM's tools by the
//! variables `LIPO`, `LIBTOOL` and `INSTALL_NAME_TOOL`.

use std::path::Path;
use std::process::Command;

use crate::settings::{Settings, Version};
use crate::{Result, run, static_library, template, words};

/// Linker flags that name the shared library.
pub fn name_flags(version: &Version) -> Vec<String> {
    let Version { number, major, minor, .. } = version;
    [
        format!("-install_name,@rpath/libkvstore.{major}.dylib"),
        format!("-current_version,{number}"),
        // Versions with one major number only add functions: a program needs the minor version it
        // was linked with, or a later one.
        format!("-compatibility_version,{major}.{minor}"),
        "-headerpad_max_install_names".to_owned(),
    ]
    .map(|flag| format!("-Clink-arg=-Wl,{flag}"))
    .to_vec()
}

/// Makes one object with everything the C functions need, in which only these functions are global:
/// `ld -r` makes all other symbols local. It cannot remove unused code; the linker of a program
/// does, with `-dead_strip`.
pub fn static_library(settings: &Settings) -> Result<()> {
    let shared = settings.cargo_out().join(settings.link_name());
    let [symbols, object] = ["symbols", "kvstore.o"].map(|name| settings.stage.join(name));
    let made = settings.static_library();
    let exported = global_symbols(settings, &shared)?;
    run::write(&symbols, exported.join("\n") + "\n")?;
    let processor = run::output(tool(settings, "LIPO", "lipo")?.arg("-archs").arg(&shared))?;

    let mut ld = settings.tool_command("LD")?;
    ld.args(["-r", "-arch", processor.trim(), "-exported_symbols_list"]).arg(&symbols);
    ld.args(exported.iter().flat_map(|name| ["-u", name]));
    run::run(ld.arg("-o").arg(&object).arg(settings.cargo_out().join("libkvstore.a")))?;

    // A global symbol of SQLite would be confused with that of another SQLite in the program.
    let found = global_symbols(settings, &object)?;
    if found != exported {
        let further: Vec<_> =
            found.iter().filter(|name| !exported.contains(name)).map(|name| &**name).collect();
        let missing: Vec<_> =
            exported.iter().filter(|name| !found.contains(name)).map(|name| &**name).collect();
        let [further, missing] = [further, missing].map(|names| names.join(" "));
        return Err(format!(
            "{}: its global symbols are not those of {}; further: {further}; missing: {missing}",
            object.display(),
            shared.display()
        ));
    }
    let temporary = run::with_suffix(&made, ".tmp");
    run::remove(&[&temporary]);
    let mut libtool = tool(settings, "LIBTOOL", "libtool")?;
    run::run(libtool.args(["-static", "-D", "-o"]).arg(&temporary).arg(&object))?;
    run::rename(&temporary, &made)
}

/// Returns the names of the defined global symbols, sorted.
fn global_symbols(settings: &Settings, file: &Path) -> Result<Vec<String>> {
    let listed = run::output(settings.tool_command("NM")?.arg("-gU").arg(file))?;
    let mut names: Vec<_> = static_library::last_words(&listed).lines().map(str::to_owned).collect();
    names.sort();
    Ok(names)
}

fn tool(settings: &Settings, variable: &str, default: &str) -> Result<Command> {
    settings.command_of(variable, &words::split(settings.vars.get_or(variable, default))?)
}

/// Path under which programs look for the library; their linker copies it into them. For a tree
/// that will be moved, or an application that contains the library, set `INSTALL_NAME_DIR=@rpath`.
pub fn install_name(settings: &Settings) -> String {
    let folder = settings.vars.get_or("INSTALL_NAME_DIR", &settings.folders.libdir);
    format!("{folder}/{}", settings.soname())
}

/// Writes its install name into the installed library. A changed library needs a new signature, or
/// arm64 refuses it. Apple's own tools renew it; after other tools codesign does.
pub fn name_installed(settings: &Settings, library: &Path) -> Result<()> {
    if settings.vars.get("INSTALL_NAME_DIR") != Some("@rpath") {
        let mut command = tool(settings, "INSTALL_NAME_TOOL", "install_name_tool")?;
        run::run(command.arg("-id").arg(install_name(settings)).arg(library))?;
    }
    let default = if settings.system() == "Darwin" { "codesign" } else { "" };
    if !settings.vars.get_or("CODESIGN", default).is_empty() {
        run::run(tool(settings, "CODESIGN", default)?.args(["--force", "--sign", "-"]).arg(library))?;
    }
    Ok(())
}

/// Returns `true` if encrypted stores use the system's CommonCrypto. That is so on a Mac, unless an
/// OpenSSL is named, now or when the library was built. The crate libsqlite3-sys decides by the
/// same variables.
pub fn has_own_crypto(settings: &Settings) -> bool {
    if !settings.has_feature("encryption") || settings.system() != "Darwin" {
        return false;
    }
    let stay = settings.vars.get("SETTINGS_STAY") != Some("no");
    let kept = if stay { settings.kept() } else { String::new() };
    let prefix = settings.target.as_ref().map(|target| target.replace('-', "_").to_uppercase());
    let is_named = |name: &str| {
        let names = [prefix.as_ref().map(|prefix| format!("{prefix}_{name}")), Some(name.to_owned())];
        names.into_iter().flatten().any(|name| {
            settings.vars.get(&name).is_some_and(|value| !value.is_empty())
                || kept.lines().any(|line| line.starts_with(&format!("{name}=")))
        })
    };
    !(is_named("OPENSSL_DIR") || (is_named("OPENSSL_LIB_DIR") && is_named("OPENSSL_INCLUDE_DIR")))
}

/// System libraries and frameworks that the static library needs, for pkg-config and for CMake.
pub fn native(settings: &Settings) -> Result<[String; 2]> {
    let libraries = template::native_libraries("apple")?;
    let needs_frameworks = settings.has_feature("remote") || has_own_crypto(settings);
    let frameworks =
        if needs_frameworks { template::native_libraries("apple-frameworks")? } else { Vec::new() };
    let frameworks: Vec<_> = frameworks.iter().map(|name| format!("-framework {name}")).collect();
    let flags = libraries.iter().map(|name| format!("-l{name}")).chain(frameworks.iter().cloned());
    let flags = flags.collect::<Vec<_>>().join(" ");
    // CMake knows the C library by itself.
    let mut targets = vec!["Threads::Threads".to_owned()];
    targets.extend(libraries.into_iter().filter(|name| !["System", "c"].contains(&&**name)));
    targets.extend(frameworks);
    Ok([flags, targets.join(";")])
}

/// Size of a pointer, by the first byte of the magic number: 0xcefaedfe with 32 bits, 0xcffaedfe
/// with 64.
pub fn pointer_size(library: &[u8]) -> u8 {
    if library.first() == Some(&0xce) { 4 } else { 8 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::settings;

    const IOS: (&str, &str) = ("CARGO_BUILD_TARGET", "aarch64-apple-ios");

    #[test]
    fn shared_library_is_named_for_the_linker() {
        let version = settings([]).unwrap().version;
        let flags = name_flags(&version).join(" ");
        let Version { number, major, minor, .. } = version;
        assert_eq!(
            flags,
            format!(
                "-Clink-arg=-Wl,-install_name,@rpath/libkvstore.{major}.dylib -Clink-arg=-Wl,-current_version,{number} \
                 -Clink-arg=-Wl,-compatibility_version,{major}.{minor} -Clink-arg=-Wl,-headerpad_max_install_names"
            )
        );
        let command = settings([IOS]).unwrap().library_command().unwrap();
        assert!(command.get_args().any(|flag| flag.to_string_lossy().contains("-install_name,@rpath/")));
    }

    #[test]
    fn install_name_follows_libdir_unless_it_is_given() {
        let name = |pair| install_name(&settings([IOS, pair]).unwrap());
        assert_eq!(name(("PREFIX", "/opt/kv")), "/opt/kv/lib/libkvstore.0.dylib");
        assert_eq!(name(("INSTALL_NAME_DIR", "@rpath")), "@rpath/libkvstore.0.dylib");
    }

    #[test]
    fn frameworks_are_for_stores_on_a_server() {
        let native = |pair| native(&settings([IOS, pair]).unwrap()).unwrap();
        assert_eq!(native(("A", "")), ["-liconv -lSystem -lc -lm", "Threads::Threads;iconv;m"]);
        let [flags, targets] = native(("REMOTE", "1"));
        assert_eq!(flags, "-liconv -lSystem -lc -lm -framework Security -framework CoreFoundation");
        assert_eq!(targets, "Threads::Threads;iconv;m;-framework Security;-framework CoreFoundation");
    }

    #[test]
    fn pointer_size_is_read_from_the_magic_number() {
        assert_eq!(
            [pointer_size(&[0xce, 0xfa, 0xed, 0xfe]), pointer_size(&[0xcf, 0xfa, 0xed, 0xfe])],
            [4, 8]
        );
    }
}
