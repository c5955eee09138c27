//! The files that `make install` installs, and `make uninstall` removes.

use std::collections::BTreeSet;
use std::path::Path;

use crate::Result;
use crate::build::{files_below, has_end};
use crate::settings::Settings;

/// Headers in include/.
pub const C_HEADERS: [&str; 2] = ["kvstore.h", "snkv.h"];

/// Folder of the headers for C++.
pub const CPP_INCLUDE: &str = "bindings/cpp/include";

/// Commands with a manual page: those of command/src/cli.rs, and their subcommands.
#[rustfmt::skip]
const PAGES: [&str; 41] = [
    "backup", "cas", "check", "checkpoint", "clean", "compact", "completions", "copy", "count", "decrypt", "del",
    "dump", "encrypt", "exists", "expire", "expiring", "families", "families-create", "families-drop", "families-set",
    "get", "import", "incr", "info", "limit", "load", "ls", "next", "persist", "purge", "put", "recover", "rekey",
    "repair", "scan", "shell", "sweep", "sync", "touch", "ttl", "watch",
];

/// Returns the headers for C++, as they are named below `CPP_INCLUDE`.
pub fn cpp_headers() -> Result<Vec<String>> {
    let folder = Path::new(CPP_INCLUDE);
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let files = files_below(folder)?.into_iter().filter(|path| has_end(path, "h") || has_end(path, "hpp"));
    Ok(files.filter_map(|path| Some(path.strip_prefix(folder).ok()?.display().to_string())).collect())
}

/// Returns the documents, as they are named below `docdir` and in the repository.
pub fn documents() -> Result<Vec<String>> {
    let named = [
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "LICENSE",
        "LICENSE-APACHE",
        "LICENSE-MIT",
    ];
    let further = [
        "bindings/python/README.md",
        "bindings/python/CONTRIBUTING.md",
        "benches/peers/README.md",
        "tests/vm/README.md",
    ];
    let mut names: Vec<String> = named.map(str::to_owned).to_vec();
    names.extend(further.into_iter().filter(|name| Path::new(name).exists()).map(str::to_owned));
    for (folder, ends) in
        [("docs", &["md", "json", "svg", "png"][..]), ("examples", &["c", "h", "cpp", "hpp", "py"])]
    {
        let files = files_below(Path::new(folder))?;
        let files = files.iter().filter(|path| ends.iter().any(|end| has_end(path, end)));
        names.extend(files.map(|path| path.display().to_string()));
    }
    Ok(names)
}

/// Folders where the shells look for the completions of installed programs.
pub struct Completions {
    pub bash: String,
    pub zsh: String,
    pub fish: String,
}

impl Completions {
    pub fn below(datarootdir: &str) -> Completions {
        Completions {
            bash: format!("{datarootdir}/bash-completion/completions/kvstore"),
            zsh: format!("{datarootdir}/zsh/site-functions/_kvstore"),
            fish: format!("{datarootdir}/fish/vendor_completions.d/kvstore.fish"),
        }
    }
}

/// Returns the paths of all installed files, without `DESTDIR`.
pub fn all(settings: &Settings) -> Result<Vec<String>> {
    let folders = &settings.folders;
    let mut files = Vec::new();
    let mut add = |folder: &str, name: &str| files.push(format!("{folder}/{name}"));
    for name in [&settings.shared(), &settings.soname(), &settings.link_name(), "libkvstore.a"] {
        add(&folders.libdir, name);
    }
    add(&folders.pkgconfigdir, "kvstore.pc");
    add(&folders.cmakedir, "kvstoreConfig.cmake");
    add(&folders.cmakedir, "kvstoreConfigVersion.cmake");
    C_HEADERS.iter().for_each(|name| add(&folders.includedir, name));
    cpp_headers()?.iter().for_each(|name| add(&folders.includedir, name));
    add(&folders.mandir, "man3/kvstore.3");
    documents()?.iter().for_each(|name| add(&folders.docdir, name));
    if settings.with_command {
        add(&folders.bindir, "kvstore");
        add(&folders.mandir, "man1/kvstore.1");
        PAGES.iter().for_each(|page| add(&folders.mandir, &format!("man1/kvstore-{page}.1")));
        let Completions { bash, zsh, fish } = Completions::below(&folders.datarootdir);
        files.extend([bash, zsh, fish]);
    }
    Ok(files)
}

/// Returns the folders that belong to kvstore alone, inner ones first.
pub fn own_folders(settings: &Settings) -> Result<Vec<String>> {
    let folders = &settings.folders;
    let mut own = vec![folders.cmakedir.clone()];
    for (folder, names) in [(&folders.includedir, cpp_headers()?), (&folders.docdir, documents()?)] {
        own.extend(inner_first(&names).iter().map(|inner| format!("{folder}/{inner}")));
    }
    own.push(folders.docdir.clone());
    Ok(own)
}

/// Returns the folders of files with relative names, inner ones first.
fn inner_first(names: &[String]) -> Vec<&str> {
    let folders = names.iter().flat_map(|name| name.match_indices('/').map(|(end, _)| name.split_at(end).0));
    folders.collect::<BTreeSet<_>>().into_iter().rev().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{enter_root, settings};

    fn files<const N: usize>(pairs: [(&str, &str); N]) -> Vec<String> {
        all(&settings(pairs).unwrap()).unwrap()
    }

    /// Pages of subcommands such as "families create" are compared by tests of the installation.
    #[test]
    fn pages_are_those_of_the_commands() {
        enter_root();
        let source = std::fs::read_to_string("command/src/cli.rs").unwrap();
        let commands = source.lines().skip_while(|line| *line != "pub enum Command {").skip(1);
        let commands = commands.take_while(|line| *line != "}").filter(|line| line.ends_with("),"));
        let commands = commands.map(|line| line.trim().split('(').next().unwrap().to_lowercase());
        let commands = commands.filter(|name| name != "man" && name != "complete"); // hidden, without a page
        let commands: BTreeSet<_> = commands.collect();
        assert!(commands.len() > 30);
        let pages = PAGES.iter().filter(|page| !page.contains('-'));
        assert_eq!(pages.map(|page| (*page).to_owned()).collect::<BTreeSet<_>>(), commands);
    }

    #[test]
    fn files_of_the_command_are_removed_only_with_the_command() {
        let prefix = ("PREFIX", "/usr");
        let without = files([prefix, ("COMMAND", "no")]);
        let of_command = ["/usr/bin/", "/man1/", "completion", "/zsh/"];
        assert!(!without.iter().any(|name| of_command.iter().any(|part| name.contains(part))), "{without:?}");
        assert!(without.contains(&"/usr/lib/libkvstore.a".to_owned()));
        let with = files([prefix]);
        for name in [
            "/usr/bin/kvstore",
            "/usr/share/man/man1/kvstore.1",
            "/usr/share/man/man1/kvstore-ttl.1",
            "/usr/share/man/man1/kvstore-families-set.1",
            "/usr/share/zsh/site-functions/_kvstore",
        ] {
            assert!(with.contains(&name.to_owned()), "{name}");
        }
    }

    #[test]
    fn shared_folder_is_not_removed() {
        let own =
            own_folders(&settings([("PREFIX", "/usr"), ("docdir", "/usr/share/doc")]).unwrap()).unwrap();
        assert_eq!(own.last().unwrap(), "/usr/share/doc/kvstore");
        for folder in ["/usr/share/doc", "/usr/include", "/usr/lib"] {
            assert!(!own.contains(&folder.to_owned()), "{folder}");
        }
        assert!(own.contains(&"/usr/include/kvstore".to_owned()));
    }

    #[test]
    fn inner_folders_come_first() {
        let names = ["a/b/c.md", "a/d.md", "e.md", "f/g"].map(str::to_owned);
        assert_eq!(inner_first(&names), ["f", "a/b", "a"]);
    }
}
