//! The files for pkg-config and CMake, with the placeholders of packaging/*.in filled in.

use std::path::{Component, Path, PathBuf};

use crate::settings::Settings;
use crate::{Result, apple, run};

/// Placeholders with their values.
pub type Values = Vec<(&'static str, String)>;

/// Returns a template with its placeholders (`@name@`) replaced. Fails if one has no value.
pub fn fill(template: &str, values: &Values) -> Result<String> {
    let text = run::read_text(template)?;
    let mut filled = String::new();
    // Every second part is the name of a placeholder.
    for (index, part) in text.split('@').enumerate() {
        if index % 2 == 0 {
            filled.push_str(part);
            continue;
        }
        let value = values.iter().find(|(name, _)| *name == part);
        let (_, value) = value.ok_or_else(|| format!("{template}: @{part}@ has no value"))?;
        filled.push_str(value);
    }
    Ok(filled)
}

/// Returns the system libraries of packaging/native-libraries in the line that begins with `name`.
pub fn native_libraries(name: &str) -> Result<Vec<String>> {
    let text = run::read_text("packaging/native-libraries")?;
    let lines = text.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let line = lines.into_iter().find(|words| words.first() == Some(&name));
    let line = line.ok_or_else(|| format!("packaging/native-libraries: {name} is missing"))?;
    Ok(line.into_iter().skip(1).map(str::to_owned).collect())
}

/// Values that the templates for all systems have in common.
pub fn version_values(settings: &Settings, pointer_size: u8) -> Values {
    let version = &settings.version;
    vec![
        ("version", version.full.clone()),
        ("version_number", version.number.clone()),
        ("major", version.major.clone()),
        ("pointer_size", pointer_size.to_string()),
    ]
}

/// Values for the libraries of a Unix system. In the file of pkg-config, a folder below another
/// variable is written with that variable: packagers expect it, and `pkg-config --define-prefix`
/// needs it.
pub fn values(settings: &Settings) -> Result<Values> {
    let folders = &settings.folders;
    let library = run::read(&settings.stage.join(settings.shared()))?;
    let [native, native_targets] = native(settings)?;
    let needs_libcrypto = settings.has_feature("encryption") && !apple::has_own_crypto(settings);
    let crypto = |text: &str| if needs_libcrypto { text.to_owned() } else { String::new() };
    let is_apple = settings.is_apple();
    let soname = if is_apple { apple::install_name(settings) } else { settings.soname() };
    let size = if is_apple { apple::pointer_size(&library) } else { elf_pointer_size(&library) };
    // pkg-config prints a space in a folder as part of a word only with a backslash before it.
    let for_pkg_config = |folder: &str| folder.replace(' ', "\\ ");
    let below_prefix = |folder: &str| for_pkg_config(&below(folder, &folders.prefix, "${prefix}"));
    let exec_prefix = &folders.exec_prefix;
    let mut values = version_values(settings, size);
    values.extend([
        ("prefix", for_pkg_config(&folders.prefix)),
        (
            "exec_prefix",
            for_pkg_config(if *exec_prefix == folders.prefix { "${prefix}" } else { exec_prefix }),
        ),
        ("libdir", below_prefix(&below(&folders.libdir, exec_prefix, "${exec_prefix}"))),
        ("includedir", below_prefix(&folders.includedir)),
        ("includedir_from_here", relative_path(&folders.cmakedir, &folders.includedir)?),
        ("libdir_from_here", relative_path(&folders.cmakedir, &folders.libdir)?),
        ("native", native),
        ("native_targets", native_targets),
        ("crypto", crypto(" -lcrypto")),
        ("crypto_target", crypto(";crypto")),
        ("soname", soname),
        ("shared_library", settings.shared()),
    ]);
    Ok(values)
}

/// System libraries that the static library needs, for pkg-config and for CMake.
fn native(settings: &Settings) -> Result<[String; 2]> {
    if settings.is_apple() {
        return apple::native(settings);
    }
    let names = native_libraries("elf")?;
    let flags: Vec<_> = names.iter().map(|name| format!("-l{name}")).collect();
    let targets: Vec<_> = names.iter().map(|name| cmake_name(name)).collect();
    Ok([flags.join(" "), targets.join(";")])
}

/// CMake has its own names for these libraries.
fn cmake_name(library: &str) -> &str {
    match library {
        "pthread" => "Threads::Threads",
        "dl" => "${CMAKE_DL_LIBS}",
        other => other,
    }
}

/// Replaces the beginning of a folder by a variable.
fn below(folder: &str, start: &str, variable: &str) -> String {
    match folder.strip_prefix(&format!("{start}/")) {
        Some(rest) => format!("{variable}/{rest}"),
        None => folder.to_owned(),
    }
}

/// Size of a pointer, by the class of an ELF file.
fn elf_pointer_size(library: &[u8]) -> u8 {
    if library.get(4) == Some(&1) { 4 } else { 8 }
}

/// Returns the path of a folder relative to another one. Neither needs to exist.
fn relative_path(from: &str, to: &str) -> Result<String> {
    let here = std::env::current_dir().map_err(|error| error.to_string())?;
    let [from, to] = [from, to].map(|path| normal(&here.join(path)));
    let (mut from, mut to) = (from.components().peekable(), to.components().peekable());
    while from.peek().is_some() && from.peek() == to.peek() {
        from.next();
        to.next();
    }
    let path: PathBuf = from.map(|_| Component::ParentDir).chain(to).collect();
    if path.as_os_str().is_empty() { Ok(".".to_owned()) } else { Ok(path.display().to_string()) }
}

/// Resolves `.` and `..` without a look at the file system.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(normal.pop()),
            Component::CurDir => {}
            other => normal.push(other),
        }
    }
    normal
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Folder, enter_root, settings};

    #[test]
    fn path_is_relative_to_another_folder() {
        for (from, to, path) in [
            ("/usr/lib/cmake/kvstore", "/usr/lib", "../.."),
            ("/usr/lib64/cmake/kvstore", "/usr/include/kv", "../../../include/kv"),
            ("/a", "/a", "."),
            ("/a/./b/../c/", "/a//d", "../d"),
            ("/", "/usr", "usr"),
            ("/../x", "/y", "../y"),
            ("stage/lib/cmake", "stage/include", "../../include"),
        ] {
            assert_eq!(relative_path(from, to).unwrap(), path, "{from} {to}");
        }
    }

    #[test]
    fn folders_in_the_pc_file_are_below_its_variables() {
        let folder = Folder::new();
        folder.write(&format!("install/{}", settings([]).unwrap().shared()), "\x7fELF\x01");
        let target_dir = folder.text("");
        let pc = |pairs: [(&str, &str); 3]| {
            let [a, b, c] = pairs;
            let settings = settings([("TARGET_DIR", &*target_dir), a, b, c]).unwrap();
            fill("packaging/kvstore.pc.in", &values(&settings).unwrap()).unwrap()
        };
        let none = ("A", "");
        let text = pc([("PREFIX", "/usr"), ("LIBDIR", "/usr/lib/x"), none]);
        let expected =
            "prefix=/usr\nexec_prefix=${prefix}\nlibdir=${exec_prefix}/lib/x\nincludedir=${prefix}/include\n";
        assert!(text.contains(expected), "{text}");
        let text = pc([("prefix", "/opt"), ("exec_prefix", "/e"), ("includedir", "/i")]);
        assert!(
            text.contains("prefix=/opt\nexec_prefix=/e\nlibdir=${exec_prefix}/lib\nincludedir=/i\n"),
            "{text}"
        );
        let text = pc([("libdir", "/usr/local/lib64"), ("exec_prefix", "/e"), none]);
        assert!(text.contains("libdir=${prefix}/lib64\n"), "{text}");
        let text = pc([("PREFIX", "/opt/my apps"), ("includedir", "/i j"), none]);
        assert!(text.starts_with("# For pkg-config.") && text.contains("prefix=/opt/my\\ apps\n"), "{text}");
        assert!(text.contains("libdir=${exec_prefix}/lib\nincludedir=/i\\ j\n"), "{text}");
    }

    #[test]
    fn placeholder_without_a_value_is_refused() {
        enter_root();
        let refused = fill("packaging/kvstore.pc.in", &vec![("prefix", "/usr".to_owned())]).unwrap_err();
        assert_eq!(refused, "packaging/kvstore.pc.in: @exec_prefix@ has no value");
    }

    #[test]
    fn pointer_size_is_read_from_the_class_of_an_elf_file() {
        assert_eq!([elf_pointer_size(b"\x7fELF\x01"), elf_pointer_size(b"\x7fELF\x02")], [4, 8]);
    }
}
