//! `make install` and `make uninstall`. The programs `INSTALL`, `INSTALL_PROGRAM` and
//! `INSTALL_DATA` copy the files, as packagers expect.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::installed_files::{C_HEADERS, CPP_INCLUDE, Completions, cpp_headers, documents, own_folders};
use crate::settings::Settings;
use crate::vars::is_on;
use crate::{Result, apple, build, installed_files, run, template, words};

/// Installs the libraries with all that belongs to them and, unless it is declined, the command.
pub fn install(settings: &Settings) -> Result<()> {
    build::libraries(settings)?;
    if settings.with_command {
        install_command(settings)?;
    }
    let folders = &settings.folders;
    let libdir = settings.staged(&folders.libdir);
    settings.make_folder(&libdir)?;
    let [shared, archive] = [settings.shared(), "libkvstore.a".to_owned()].map(|name| libdir.join(name));
    settings.install_program(&settings.stage.join(settings.shared()), &shared)?;
    link(&settings.shared(), &libdir.join(settings.soname()))?;
    link(&settings.soname(), &libdir.join(settings.link_name()))?;
    settings.install_data(&settings.static_library(), &archive)?;
    if is_on(settings.vars.one_of("INSTALL_STRIP", "no", "0 no 1 yes")?) {
        let [of_shared, of_static] =
            if settings.is_apple() { ["-x", "-S"] } else { ["--strip-unneeded", "--strip-debug"] };
        run::run(settings.tool_command("STRIP")?.arg(of_shared).arg(&shared))?;
        run::run(settings.tool_command("STRIP")?.arg(of_static).arg(&archive))?;
    }
    if settings.is_apple() {
        apple::name_installed(settings, &shared)?;
    }
    let values = template::values(settings)?;
    for (template, folder, name) in [
        ("packaging/kvstore.pc.in", &folders.pkgconfigdir, "kvstore.pc"),
        ("packaging/kvstoreConfig.cmake.in", &folders.cmakedir, "kvstoreConfig.cmake"),
        ("packaging/kvstoreConfigVersion.cmake.in", &folders.cmakedir, "kvstoreConfigVersion.cmake"),
    ] {
        settings.write(&settings.staged(folder).join(name), &template::fill(template, &values)?)?;
    }
    settings.install_headers(&settings.staged(&folders.includedir))?;
    let page = run::read_text("docs/man/kvstore.3")?.replace("@version@", &settings.version.full);
    settings.write(&settings.staged(&folders.mandir).join("man3/kvstore.3"), &page)?;
    let documents = documents()?;
    println!("{} documents: {}", documents.len(), settings.staged(&folders.docdir).display());
    settings.install_tree(&documents, Path::new(""), &settings.staged(&folders.docdir))
}

/// Installs the command with its manual pages and completions.
pub fn install_command(settings: &Settings) -> Result<()> {
    build::command(settings)?;
    let folders = &settings.folders;
    let bindir = settings.staged(&folders.bindir);
    settings.make_folder(&bindir)?;
    settings.install_program(&settings.stage.join("kvstore"), &bindir.join("kvstore"))?;
    let man1 = settings.staged(&folders.mandir).join("man1");
    settings.make_folder(&man1)?;
    let manual = settings.manual();
    let pages = build::files_below(&manual)?.into_iter().filter(|path| build::has_end(path, "1"));
    for page in pages {
        settings.install_data(&page, &man1.join(page.file_name().unwrap_or_default()))?;
    }
    let Completions { bash, zsh, fish } = Completions::below(&folders.datarootdir);
    for (shell, to) in [("bash", bash), ("zsh", zsh), ("fish", fish)] {
        let to = settings.staged(&to);
        settings.make_folder_of(&to)?;
        settings.install_data(&manual.join(format!("completions.{shell}")), &to)?;
    }
    Ok(())
}

/// Removes the files that `install` installs with the same variables, and the folders that belong
/// to kvstore alone if they are empty then.
pub fn uninstall(settings: &Settings) -> Result<()> {
    for file in installed_files::all(settings)? {
        let file = settings.staged(&file);
        match fs::remove_file(&file) {
            Ok(()) => println!("rm {}", file.display()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(format!("{}: {error}", file.display())),
        }
    }
    for folder in own_folders(settings)? {
        let folder = settings.staged(&folder);
        let is_empty = fs::read_dir(&folder).is_ok_and(|mut entries| entries.next().is_none());
        if is_empty {
            println!("rmdir {}", folder.display());
            fs::remove_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        }
    }
    Ok(())
}

/// Makes a symbolic link, in place of a file or link of that name.
fn link(target: &str, path: &Path) -> Result<()> {
    println!("ln -sf {} {}", words::quote(target), words::quote(&path.to_string_lossy()));
    run::remove(&[path]);
    symlink(target, path).map_err(|error| format!("{}: {error}", path.display()))
}

impl Settings {
    /// Returns a path with `DESTDIR` before it.
    pub fn staged(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("{}{path}", self.folders.destdir))
    }

    /// Makes a folder. An existing one keeps its mode, which `install -d` would change.
    pub fn make_folder(&self, folder: &Path) -> Result<()> {
        if folder.is_dir() { Ok(()) } else { run::run(self.install_words()?.arg("-d").arg(folder)) }
    }

    /// Makes the folder of a file: BSD's install has no `-D`.
    pub fn make_folder_of(&self, file: &Path) -> Result<()> {
        file.parent().map_or(Ok(()), |folder| self.make_folder(folder))
    }

    fn install_words(&self) -> Result<std::process::Command> {
        self.command_of("INSTALL", &words::split(self.vars.get_or("INSTALL", "install"))?)
    }

    fn install_with(&self, variable: &str, options: &[&str], from: &Path, to: &Path) -> Result<()> {
        let mut command = match self.vars.get(variable) {
            Some(given) => self.command_of(variable, &words::split(given)?)?,
            None => self.install_words()?,
        };
        if self.vars.get(variable).is_none() {
            command.args(options);
        }
        command.arg(from).arg(to);
        run::run_quietly(&mut command)
    }

    pub fn install_program(&self, from: &Path, to: &Path) -> Result<()> {
        println!("install {}", to.display());
        self.install_with("INSTALL_PROGRAM", &[], from, to)
    }

    pub fn install_data(&self, from: &Path, to: &Path) -> Result<()> {
        println!("install {}", to.display());
        self.install_with("INSTALL_DATA", &["-m", "644"], from, to)
    }

    /// Installs the headers for C and C++.
    pub fn install_headers(&self, folder: &Path) -> Result<()> {
        println!("headers: {}", folder.display());
        self.install_tree(&C_HEADERS.map(str::to_owned), Path::new("include"), folder)?;
        self.install_tree(&cpp_headers()?, Path::new(CPP_INCLUDE), folder)
    }

    /// Installs files of one folder, with their relative names, below another one.
    fn install_tree(&self, names: &[String], from: &Path, to: &Path) -> Result<()> {
        for name in names {
            let to = to.join(name);
            self.make_folder_of(&to)?;
            self.install_with("INSTALL_DATA", &["-m", "644"], &from.join(name), &to)?;
        }
        Ok(())
    }

    /// Writes a file that is readable by all.
    pub fn write(&self, file: &Path, text: &str) -> Result<()> {
        println!("write {}", file.display());
        self.make_folder_of(file)?;
        run::write(file, text)?;
        let mode = fs::Permissions::from_mode(0o644);
        fs::set_permissions(file, mode).map_err(|error| format!("{}: {error}", file.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Folder, settings};

    #[test]
    fn existing_folder_keeps_its_mode() {
        let root = Folder::new();
        let settings = settings([("DESTDIR", &*root.text("a b")), ("PREFIX", "/usr")]).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        for (name, given) in [("/usr", 0o700), ("/usr/lib", 0o2775), ("/usr/include", 0o711)] {
            let folder = settings.staged(name);
            fs::create_dir_all(&folder).unwrap();
            fs::set_permissions(&folder, fs::Permissions::from_mode(given)).unwrap();
            settings.make_folder(&folder).unwrap();
            assert_eq!(mode(&folder), given, "{name}");
        }
        let new = settings.staged("/usr/lib/cmake/kvstore");
        settings.make_folder(&new).unwrap();
        assert_eq!([mode(&new), mode(&settings.staged("/usr/lib"))], [0o755, 0o2775]);
    }

    #[test]
    fn tools_of_the_packager_install_the_files() {
        let folder = Folder::new();
        folder.write_program("my install", &format!("echo \"$@\" >>'{}'", folder.text("calls")));
        let tool = format!("'{}' -p", folder.text("my install"));
        let settings =
            settings([("INSTALL", &*tool), ("INSTALL_PROGRAM", &format!("{tool} --program"))]).unwrap();
        settings.install_program(Path::new("a"), Path::new("b")).unwrap();
        settings.install_data(Path::new("a"), Path::new("b")).unwrap();
        settings.make_folder(Path::new("c")).unwrap();
        assert_eq!(
            fs::read_to_string(folder.path("calls")).unwrap(),
            "-p --program a b\n-p -m 644 a b\n-p -d c\n"
        );
    }

    #[test]
    fn uninstall_removes_no_foreign_file() {
        let root = Folder::new();
        let settings = settings([("DESTDIR", &*root.text("")), ("PREFIX", "/usr")]).unwrap();
        root.write("usr/lib/libkvstore.a", "");
        root.write("usr/lib/cmake/kvstore/kvstoreConfig.cmake", "");
        root.write("usr/share/doc/kvstore/their.md", "");
        uninstall(&settings).unwrap();
        assert!(!root.path("usr/lib/libkvstore.a").exists() && !root.path("usr/lib/cmake/kvstore").exists());
        assert!(root.path("usr/share/doc/kvstore/their.md").exists() && root.path("usr/lib/cmake").exists());
    }
}
