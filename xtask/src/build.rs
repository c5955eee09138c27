//! The libraries and the command that `make install` installs.
//!
//! They are built apart from target/release. That library has no SONAME: a program linked with it
//! runs with the library of its rpath, not with one of the system.
//!
//! A file is built if it is older than its sources, so that `sudo make install` after `make all`
//! runs neither cargo nor a compiler. Root may not even have them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::kept_settings::Given;
use crate::settings::Settings;
use crate::{Result, apple, run, static_library, words};

/// Sources of the libraries, next to those in src/.
const SOURCES: [&str; 4] = ["build.rs", "Cargo.toml", "Cargo.lock", ".cargo/config.toml"];

pub fn all(settings: &Settings) -> Result<()> {
    libraries(settings)?;
    if settings.with_command { command(settings) } else { Ok(()) }
}

/// Builds both libraries.
pub fn libraries(settings: &Settings) -> Result<()> {
    shared_library(settings)?;
    let library = settings.static_library();
    let makes = ["packaging/localise.ld", "xtask/src/static_library.rs", "xtask/src/apple.rs"];
    let mut sources = makes.map(PathBuf::from).to_vec();
    sources.push(settings.built());
    if !is_outdated(&library, &sources) {
        return Ok(());
    }
    match settings.is_apple() {
        true => apple::static_library(settings),
        false => static_library::make(settings),
    }
}

/// Builds the shared library. Cargo makes the static one in the same run.
pub fn shared_library(settings: &Settings) -> Result<()> {
    let built = settings.built();
    let given = Given::of(&settings.vars);
    if is_outdated(&built, &sources(&[])?) || given.differ_from(&kept(&built)) {
        let shown = ["CFLAGS", "RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS"];
        run::run_with(&mut settings.library_command()?, &shown)?;
        // Cargo leaves a library alone that would not change. So the time of this file counts.
        run::write(&built, given.to_text())?;
    }
    let library = settings.stage.join(settings.shared());
    if is_outdated(&library, &[built]) {
        run::copy(&settings.cargo_out().join(settings.link_name()), &library)?;
    }
    Ok(())
}

/// Builds the command without its manual.
pub fn program(settings: &Settings) -> Result<()> {
    let program = settings.stage.join("kvstore");
    let kept_file = settings.stage.join("kvstore.settings");
    let given = Given::of(&settings.vars);
    let sources = sources(&["command/src", "command/Cargo.toml"])?;
    if is_outdated(&program, &sources) || given.differ_from(&kept(&kept_file)) {
        run::run_with(&mut settings.program_command()?, &["CFLAGS"])?;
        run::copy(&settings.cargo_out().join("kvstore"), &program)?;
        run::write(&kept_file, given.to_text())?;
    }
    Ok(())
}

/// Builds the command, its manual pages, and its completions for the shells. In a build for
/// another machine, `RUN_COMMAND` is a `kvstore` that runs on this one and writes them.
pub fn command(settings: &Settings) -> Result<()> {
    program(settings)?;
    let program = settings.stage.join("kvstore");
    let manual = settings.manual();
    if !is_outdated(&manual.join("kvstore.1"), std::slice::from_ref(&program)) {
        return Ok(());
    }
    let default = words::quote(&program.to_string_lossy());
    let words = words::split(settings.vars.get_or("RUN_COMMAND", &default))?;
    let runs = || settings.command_of("RUN_COMMAND", &words);
    let temporary = run::with_suffix(&manual, ".tmp");
    for folder in [&manual, &temporary] {
        let _ = fs::remove_dir_all(folder);
    }
    fs::create_dir_all(&temporary).map_err(|error| format!("{}: {error}", temporary.display()))?;
    run::run(runs()?.arg("man").arg(&temporary))?;
    for shell in ["bash", "zsh", "fish"] {
        let text = run::output(runs()?.args(["completions", shell]))?;
        run::write(&temporary.join(format!("completions.{shell}")), text)?;
    }
    run::rename(&temporary, &manual)
}

impl Settings {
    /// File that has the time and the settings of the build of the libraries.
    fn built(&self) -> PathBuf {
        self.stage.join("built")
    }

    /// Returns the settings of the previous build of the libraries.
    pub fn kept(&self) -> String {
        kept(&self.built())
    }

    /// Returns the static library to install.
    pub fn static_library(&self) -> PathBuf {
        self.stage.join("libkvstore.a")
    }

    /// Folder of the manual pages and completions.
    pub fn manual(&self) -> PathBuf {
        self.stage.join("manual")
    }

    /// Name of the shared library for `-lkvstore`.
    pub fn link_name(&self) -> String {
        let end = if self.is_apple() { "dylib" } else { "so" };
        format!("libkvstore.{end}")
    }

    /// Name of the shared library that programs are linked to.
    pub fn soname(&self) -> String {
        self.name_with(&self.version.major)
    }

    /// Name of the file of the shared library.
    pub fn shared(&self) -> String {
        self.name_with(&self.version.number)
    }

    fn name_with(&self, version: &str) -> String {
        if self.is_apple() {
            format!("libkvstore.{version}.dylib")
        } else {
            format!("libkvstore.so.{version}")
        }
    }
}

fn kept(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_default()
}

/// Returns the sources of the libraries, and those in further files and folders.
fn sources(further: &[&str]) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for path in ["src"].iter().chain(&SOURCES).chain(further) {
        let path = Path::new(path);
        match path.is_dir() {
            true => found.extend(files_below(path)?.into_iter().filter(|path| has_end(path, "rs"))),
            false => found.push(path.to_owned()),
        }
    }
    Ok(found)
}

/// Returns all files below a folder, sorted by their paths.
pub fn files_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        let failed = |error: std::io::Error| format!("{}: {error}", next.display());
        for entry in fs::read_dir(&next).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files.sort();
    Ok(files)
}

pub fn has_end(path: &Path, end: &str) -> bool {
    path.extension().is_some_and(|found| found == end)
}

/// Returns `true` if a file is missing, or older than one of its sources.
fn is_outdated(file: &Path, sources: &[PathBuf]) -> bool {
    let time = |path: &Path| fs::metadata(path).and_then(|found| found.modified());
    let Ok(built) = time(file) else { return true };
    sources.iter().any(|source| time(source).unwrap_or(SystemTime::UNIX_EPOCH) > built)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Folder, settings};

    /// A folder to build in, with a stand-in for cargo that counts its runs.
    struct Builds(Folder);

    impl Builds {
        fn new() -> Builds {
            let folder = Folder::new();
            folder.write("install/release/kvstore", "");
            folder.write("install/release/libkvstore.so", "");
            folder.write_program("cargo", "echo run >>\"$RUNS\"; [ \"${FAILS:-}\" = '' ]");
            Builds(folder)
        }

        /// Returns how often a step runs cargo.
        fn runs(&self, step: fn(&Settings) -> Result<()>, pair: (&str, &str)) -> usize {
            let [runs, cargo, target] = ["runs", "cargo", ""].map(|name| self.0.text(name));
            let _ = fs::remove_file(&runs);
            let machine = [("RUNS", &*runs), ("CARGO", &cargo), ("TARGET_DIR", &target)];
            let fails = ("FAILS", if pair.0 == "FAILS" { pair.1 } else { "" });
            let settings = settings([machine[0], machine[1], machine[2], pair, fails]).unwrap();
            assert_eq!(step(&settings).is_ok(), fails.1.is_empty());
            fs::read_to_string(runs).map_or(0, |text| text.lines().count())
        }
    }

    #[test]
    fn build_is_repeated_with_other_settings_only() {
        for step in [shared_library, program] {
            let builds = Builds::new();
            let [none, engine] = [("A", ""), ("KVSTORE_ENGINE", "sql")];
            assert_eq!([builds.runs(step, none), builds.runs(step, none)], [1, 0]);
            assert_eq!(
                [builds.runs(step, engine), builds.runs(step, engine), builds.runs(step, none)],
                [1, 0, 0]
            );
        }
    }

    #[test]
    fn failed_build_does_not_count_as_built() {
        for step in [shared_library, program] {
            let builds = Builds::new();
            let none = ("A", "");
            assert_eq!(builds.runs(step, ("FAILS", "1")), 1);
            assert_eq!([builds.runs(step, none), builds.runs(step, none)], [1, 0]);
        }
    }

    #[test]
    fn build_is_repeated_after_a_change_of_a_source() {
        let folder = Folder::new();
        folder.write("built", "");
        assert!(!is_outdated(&folder.path("built"), &[folder.path("no such file")]));
        folder.write("source", "");
        let later = SystemTime::now() + std::time::Duration::from_secs(10);
        fs::File::open(folder.path("source")).unwrap().set_modified(later).unwrap();
        assert!(is_outdated(&folder.path("built"), &[folder.path("source")]));
        assert!(is_outdated(&folder.path("not built"), &[]));
        crate::testing::enter_root();
        let found = sources(&["command/src", "command/Cargo.toml"]).unwrap();
        for name in
            ["src/lib.rs", "build.rs", ".cargo/config.toml", "command/src/cli.rs", "command/Cargo.toml"]
        {
            assert!(found.contains(&PathBuf::from(name)), "{name}");
        }
    }

    #[test]
    fn files_have_the_names_of_the_target_system() {
        let names = |target: &str| {
            let settings = settings([("CARGO_BUILD_TARGET", target)]).unwrap();
            [settings.link_name(), settings.soname(), settings.shared()]
        };
        let version = &*settings([]).unwrap().version.number;
        let [so, dylib] = [format!("libkvstore.so.{version}"), format!("libkvstore.{version}.dylib")];
        let major = version.split('.').next().unwrap();
        let soname = format!("libkvstore.so.{major}");
        assert_eq!(names("aarch64-unknown-linux-gnu"), ["libkvstore.so", &soname, &so]);
        assert_eq!(
            names("aarch64-apple-ios"),
            ["libkvstore.dylib", &format!("libkvstore.{major}.dylib"), &dylib]
        );
    }
}
