//! Rings of files: files that use each other, directly or through further files. A reader of one of
//! them has to know all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::{Source, sources, spread};

/// Largest ring that a crate may have, in files.
const LARGEST: [(&str, usize); 2] = [("src", 3), ("command/src", 3)];

/// Files of a crate by the path of their module, and what each file uses.
struct Crate {
    files: BTreeMap<Vec<String>, Source>,
    /// Items that a module exports under its own path although another module defines them.
    exports: BTreeMap<Vec<String>, Vec<String>>,
}

impl Crate {
    fn of(files: Vec<Source>) -> Crate {
        let files: BTreeMap<_, _> = files.into_iter().map(|file| (module(&file), file)).collect();
        let mut exports = BTreeMap::new();
        for (path, file) in &files {
            for (is_export, name) in uses(path, file, &files) {
                if is_export && let Some(item) = name.last() {
                    exports.insert([&path[..], std::slice::from_ref(item)].concat(), name.clone());
                }
            }
        }
        Crate { files, exports }
    }

    /// Returns the file that defines an item.
    fn file_of(&self, name: &[String]) -> Option<&[String]> {
        let mut name = name;
        let mut seen = BTreeSet::new();
        loop {
            // The part of the path that an export replaces: a module, or the item.
            let exported = (1..=name.len()).rev().find_map(|end| self.exports.get(&name[..end]));
            match exported {
                Some(defined) if seen.insert(defined) => name = defined,
                _ => break,
            }
        }
        (0..=name.len())
            .rev()
            .find_map(|end| self.files.get_key_value(&name[..end]))
            .map(|(path, _)| &path[..])
    }

    /// Returns the files that each file uses.
    fn edges(&self) -> BTreeMap<&[String], BTreeSet<&[String]>> {
        let edges = self.files.iter().map(|(path, file)| {
            let used = uses(path, file, &self.files);
            let used = used.iter().filter(|(is_export, _)| !is_export);
            let to = used.filter_map(|(_, name)| self.file_of(name)).filter(|to| *to != &path[..]).collect();
            (&path[..], to)
        });
        edges.collect()
    }

    /// Returns the largest set of files each of which leads to each other one.
    fn largest_ring(&self) -> Vec<String> {
        let edges = self.edges();
        let reachable: BTreeMap<_, BTreeSet<_>> = edges
            .keys()
            .map(|from| {
                let (mut found, mut waiting) = (BTreeSet::new(), vec![*from]);
                while let Some(next) = waiting.pop() {
                    waiting.extend(edges[next].iter().copied().filter(|to| found.insert(*to)));
                }
                (*from, found)
            })
            .collect();
        let rings = reachable.iter().map(|(from, found)| {
            found.iter().filter(|to| reachable[*to].contains(from)).map(|to| to.join("/")).collect()
        });
        rings.max_by_key(Vec::len).unwrap_or_default()
    }
}

fn module(file: &Source) -> Vec<String> {
    if file.path == "main.rs" { Vec::new() } else { file.module() }
}

/// Returns the items that a file names, as paths from the root, and for each whether the file only
/// exports it.
fn uses(path: &[String], file: &Source, files: &BTreeMap<Vec<String>, Source>) -> Vec<(bool, Vec<String>)> {
    let exports = |at: usize| {
        let line = &file.code[file.code[..at].rfind('\n').map_or(0, |end| end + 1)..at];
        line.trim_start().starts_with("pub") && line.trim_end().ends_with("use")
    };
    let mut used: Vec<_> = file.names().into_iter().map(|(at, name)| (exports(at), name)).collect();
    let children = files.keys().filter(|child| child.len() == path.len() + 1 && child.starts_with(path));
    for child in children.filter_map(|child| child.last()) {
        for (at, _) in file.code.match_indices(&format!("{child}::")) {
            let before = file.code[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | ':' | '.')) {
                continue;
            }
            let mut names = Vec::new();
            spread(path.to_owned(), &file.code[at..], &mut names);
            used.extend(names.into_iter().map(|name| (exports(at), name)));
        }
    }
    used
}

#[test]
fn rings_of_files_are_small() {
    for (folder, most) in LARGEST {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        let mut files = Vec::new();
        sources(&root, &root, &mut files);
        let ring = Crate::of(files).largest_ring();
        assert!(ring.len() <= most, "{folder}: {} files use each other:\n{}", ring.len(), ring.join("\n"));
    }
}

#[test]
fn ring_is_found_through_exports_and_child_modules() {
    let files = |list: &[(&str, &str)]| list.iter().map(|(path, text)| Source::of(path, text)).collect();
    let ring = Crate::of(files(&[
        ("lib.rs", "mod a;\nmod b;"),
        ("a/mod.rs", "mod child;\npub(crate) use child::Item;\nfn f() { crate::b::g() }"),
        ("a/child.rs", "use crate::b::h;"),
        ("b.rs", "use crate::a::Item;"),
        ("c.rs", "use crate::a::f;"),
    ]))
    .largest_ring();
    assert_eq!(ring, ["a/child", "b"]);
}
