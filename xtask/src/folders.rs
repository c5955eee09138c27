//! Folders to install into, by the conventions of GNU.

use crate::Result;
use crate::vars::Vars;

/// Folders as programs see them after the installation: without `DESTDIR`.
#[derive(Debug)]
pub struct Folders {
    /// Put before all folders while files are installed.
    pub destdir: String,
    pub prefix: String,
    pub exec_prefix: String,
    pub bindir: String,
    pub libdir: String,
    pub includedir: String,
    pub datarootdir: String,
    pub mandir: String,
    pub docdir: String,
    pub pkgconfigdir: String,
    pub cmakedir: String,
}

impl Folders {
    /// Each folder can be given by its name in lower or in upper case. The former wins.
    pub fn of(vars: &Vars) -> Result<Folders> {
        let given = |lower: &str, upper: &str, default: String| {
            vars.get(lower).or_else(|| vars.get(upper)).map_or(default, str::to_owned)
        };
        let prefix = given("prefix", "PREFIX", "/usr/local".to_owned());
        let exec_prefix = vars.get_or("exec_prefix", &prefix).to_owned();
        let libdir = given("libdir", "LIBDIR", format!("{exec_prefix}/lib"));
        let datarootdir = given("datarootdir", "DATADIR", format!("{prefix}/share"));
        // bitbake exports the folder that all packages share. Files below ours are ours, also for
        // uninstall.
        let mut docdir = given("docdir", "DOCDIR", format!("{datarootdir}/doc/kvstore"));
        let without_slash = docdir.strip_suffix('/').unwrap_or(&docdir);
        if without_slash.rsplit('/').next() == Some("doc") {
            docdir = format!("{without_slash}/kvstore");
        }
        let folders = Folders {
            destdir: vars.get_or("DESTDIR", "").to_owned(),
            bindir: given("bindir", "BINDIR", format!("{exec_prefix}/bin")),
            includedir: given("includedir", "INCLUDEDIR", format!("{prefix}/include")),
            mandir: given("mandir", "MANDIR", format!("{datarootdir}/man")),
            pkgconfigdir: given("pkgconfigdir", "PKGCONFIGDIR", format!("{libdir}/pkgconfig")),
            cmakedir: given("cmakedir", "CMAKEDIR", format!("{libdir}/cmake/kvstore")),
            prefix,
            exec_prefix,
            libdir,
            datarootdir,
            docdir,
        };
        if !folders.prefix.is_empty() {
            check("PREFIX", &folders.prefix)?;
        }
        for (name, folder) in [
            ("bindir", &folders.bindir),
            ("libdir", &folders.libdir),
            ("includedir", &folders.includedir),
            ("datarootdir", &folders.datarootdir),
            ("mandir", &folders.mandir),
            ("docdir", &folders.docdir),
            ("pkgconfigdir", &folders.pkgconfigdir),
            ("cmakedir", &folders.cmakedir),
        ] {
            check(name, folder)?;
        }
        Ok(folders)
    }
}

/// Checks the value of a variable that names a folder.
fn check(name: &str, folder: &str) -> Result<()> {
    if folder.is_empty() {
        return Err(format!("{name} is empty: give a folder, or do not set it"));
    }
    if !folder.starts_with('/') {
        return Err(format!("{name}={folder}: give an absolute path, such as /usr/local"));
    }
    if folder.contains('\'') {
        return Err(format!("{name}={folder}: give a folder without a quote; pkg-config cannot name it"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folders<const N: usize>(pairs: [(&str, &str); N]) -> Folders {
        Folders::of(&Vars::from(pairs)).unwrap()
    }

    #[test]
    fn folders_follow_the_prefix_unless_they_are_given() {
        let found = folders([("PREFIX", "/usr"), ("LIBDIR", "/usr/lib64"), ("exec_prefix", "/e")]);
        assert_eq!(
            [&*found.bindir, &found.libdir, &found.includedir],
            ["/e/bin", "/usr/lib64", "/usr/include"]
        );
        assert_eq!([&*found.mandir, &found.docdir], ["/usr/share/man", "/usr/share/doc/kvstore"]);
        assert_eq!(
            [&*found.pkgconfigdir, &found.cmakedir],
            ["/usr/lib64/pkgconfig", "/usr/lib64/cmake/kvstore"]
        );
        let found = folders([("prefix", "/opt/a b"), ("PREFIX", "/usr"), ("DATADIR", "/d")]);
        assert_eq!([&*found.bindir, &found.mandir], ["/opt/a b/bin", "/d/man"]);
        assert_eq!(folders([]).libdir, "/usr/local/lib");
        assert_eq!(folders([("PREFIX", "")]).libdir, "/lib");
    }

    #[test]
    fn empty_folder_is_refused() {
        let refused = Folders::of(&Vars::from([("LIBDIR", "")])).unwrap_err();
        assert_eq!(refused, "libdir is empty: give a folder, or do not set it");
    }

    #[test]
    fn folder_that_is_relative_or_has_a_quote_is_refused() {
        for (name, value, reason) in [
            ("PREFIX", "usr", "PREFIX=usr: give an absolute path, such as /usr/local"),
            ("exec_prefix", "e", "bindir=e/bin: give an absolute path, such as /usr/local"),
            ("LIBDIR", "lib", "libdir=lib: give an absolute path, such as /usr/local"),
            ("MANDIR", "/it's", "mandir=/it's: give a folder without a quote; pkg-config cannot name it"),
        ] {
            assert_eq!(Folders::of(&Vars::from([(name, value)])).unwrap_err(), reason);
        }
    }

    #[test]
    fn shared_documentation_folder_gets_kvstore_subfolder() {
        for (name, given, found) in [
            ("docdir", "/usr/share/doc", "/usr/share/doc/kvstore"),
            ("DOCDIR", "/usr/share/doc/", "/usr/share/doc/kvstore"),
            ("docdir", "/usr/share/doc/kvstore-0.1", "/usr/share/doc/kvstore-0.1"),
            ("DOCDIR", "/usr/share/doc/libkvstore-dev", "/usr/share/doc/libkvstore-dev"),
        ] {
            assert_eq!(folders([(name, given)]).docdir, found);
        }
    }
}
