//! Module layers of `src` (`docs/contributing/adr/0009-layers.md`): which layer may use which other
//! one, and where `unsafe` is permitted. `rings.rs` has the rings of files.
//!
//! Reads the sources as text, without comments, string literals and tests. A failure lists each
//! violation with its line.

mod rings;

use std::fs;
use std::path::Path;

/// The layers from the lowest to the highest, each with the other layers that it may use. A file
/// directly in `src` that is not listed is a layer by itself.
const LAYERS: &[(&str, &[&str])] = &[
    ("common", &[]),
    ("backend/file/os", &["common"]),
    ("backend", &["common", "backend/file/os"]),
    ("session", &["common", "backend"]),
    ("family", &["common", "backend", "session"]),
    ("store", &["common", "backend", "session", "family"]),
    ("recovery", &["common", "backend", "family", "store"]),
    ("ffi", &["lib"]),
    ("lib", &["common", "backend", "session", "family", "store", "recovery", "ffi"]),
];

/// Modules that every layer may use. They may use only each other.
const COMMON: &[&str] = &[
    "atomic", "clock", "config", "error", "expiry", "fork", "hint", "info", "memory", "options", "location",
    "stats", "secret", "unwind", "wait",
];

/// Folders and files in which `unsafe` is permitted.
const UNSAFE: &[&str] = &[
    "clock/beyond_2038.rs",
    "ffi",
    "backend/file/cipher.rs",
    "backend/file/engine/btree/cursor.rs",
    "backend/file/engine/btree/pager.rs",
    "backend/file/engine/btree/raw.rs",
    "backend/file/engine/btree/tree.rs",
    "backend/file/os",
];

/// Words that may occur in certain folders and files only.
const ONLY_IN: &[(&[&str], &[&str])] = &[
    (&["rusqlite", "libsqlite3_sys"], &["backend/file"]),
    (&["tokio_postgres", "rustls", "socket2"], &["backend/postgres"]),
    (&["SystemTime::now"], &["clock.rs", "clock/beyond_2038.rs"]),
    (&["RawFd", "OwnedFd", "std::os::fd"], &["backend/file/os"]),
    (&["no_mangle"], &["ffi"]),
];

/// A file of `src`: its path there, and its code.
struct Source {
    path: String,
    code: String,
}

impl Source {
    fn of(path: &str, text: &str) -> Source {
        Source { path: path.to_owned(), code: without_tests(&code_of(text)) }
    }

    fn is_in(&self, places: &[&str]) -> bool {
        places.iter().any(|place| {
            self.path == *place || self.path.strip_prefix(place).is_some_and(|rest| rest.starts_with('/'))
        })
    }

    /// The path of the module, from the root of the crate.
    fn module(&self) -> Vec<String> {
        let path = self.path.trim_end_matches(".rs").trim_end_matches("/mod");
        if path == "lib" { Vec::new() } else { path.split('/').map(str::to_owned).collect() }
    }

    fn line_of(&self, at: usize) -> usize {
        self.code[..at].matches('\n').count() + 1
    }

    /// Returns all items of the crate that the file names, as paths from the root, with their
    /// lines.
    fn names(&self) -> Vec<(usize, Vec<String>)> {
        let mut names = Vec::new();
        for (at, _) in self.code.match_indices("crate::").chain(self.code.match_indices("super::")) {
            let before = self.code[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '$')
                || self.code[..at].ends_with("super::")
                || self.code[..at].ends_with("pub(in ")
            {
                continue;
            }
            let mut base = self.module();
            let mut rest = &self.code[at..];
            if let Some(after) = rest.strip_prefix("crate::") {
                (base, rest) = (Vec::new(), after);
            }
            while let Some(after) = rest.strip_prefix("super::") {
                base.pop();
                rest = after;
            }
            let mut found = Vec::new();
            spread(base, rest, &mut found);
            names.extend(found.into_iter().map(|name| (at, name)));
        }
        names
    }
}

/// Adds what a path, or the tree of a `use`, names.
fn spread(base: Vec<String>, path: &str, names: &mut Vec<Vec<String>>) {
    let path = path.trim_start();
    if let Some(tree) = path.strip_prefix('{') {
        let (mut depth, mut start) = (0, 0);
        for (at, c) in tree.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth > 0 => depth -= 1,
                ',' | '}' if depth == 0 => {
                    if !tree[start..at].trim().is_empty() {
                        spread(base.clone(), &tree[start..at], names);
                    }
                    start = at + 1;
                    if c == '}' {
                        break;
                    }
                }
                _ => {}
            }
        }
        return;
    }
    let end = path.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(path.len());
    let mut name = base;
    if !matches!(&path[..end], "self" | "") {
        name.push(path[..end].to_owned());
    }
    match path[end..].strip_prefix("::") {
        Some(rest) => spread(name, rest, names),
        None => names.push(name),
    }
}

/// Replaces comments and string literals, and keeps the number of lines.
fn code_of(text: &str) -> String {
    let mut code = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let Some(raw) = rest.strip_prefix("r#\"") {
            raw.find("\"#").map_or(rest.len(), |end| end + 5)
        } else if c == '"' {
            end_of_text(rest)
        } else if c == '\'' {
            end_of_char(rest)
        } else {
            0
        };
        if skipped == 0 {
            code.push(c);
            rest = &rest[c.len_utf8()..];
        } else {
            code.extend(rest[..skipped].chars().filter(|c| *c == '\n'));
            rest = &rest[skipped..];
        }
    }
    code
}

fn end_of_text(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Returns 0 for a lifetime.
fn end_of_char(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        (Some((_, '\\')), Some((at, escaped))) => {
            let from = at + escaped.len_utf8();
            text[from..].find('\'').map_or(0, |end| from + end + 1)
        }
        (Some(_), Some((at, '\''))) => at + 1,
        _ => 0,
    }
}

/// Removes the tests, which are at the end of a file and may use any layer.
fn without_tests(code: &str) -> String {
    code.split("#[cfg(test)]\nmod tests").next().unwrap_or_default().to_owned()
}

/// Returns the layer of a module or of an item in it. Items at the root of the crate belong to
/// `lib`.
fn layer(path: &[String]) -> String {
    let first = path.first().map_or("", String::as_str);
    if COMMON.contains(&first) {
        return "common".to_owned();
    }
    let path = path.join("/");
    let layers = LAYERS
        .iter()
        .map(|(layer, _)| *layer)
        .filter(|layer| path == *layer || path.strip_prefix(layer).is_some_and(|rest| rest.starts_with('/')));
    layers.max_by_key(|layer| layer.len()).unwrap_or("lib").to_owned()
}

/// Returns all violations, one line each.
fn breaches(sources: &[Source]) -> Vec<String> {
    let mut breaches = Vec::new();
    for source in sources {
        let path = &source.path;
        let own = layer(&source.module());
        if own == "lib" && path != "lib.rs" {
            breaches
                .push(format!("src/{path}: belongs to no layer; see docs/contributing/adr/0009-layers.md"));
            continue;
        }
        let may = LAYERS.iter().find(|(layer, _)| *layer == own).map_or(&[][..], |(_, may)| may);
        for (at, name) in source.names() {
            let theirs = layer(&name);
            if theirs != own && !may.contains(&theirs.as_str()) {
                let line = source.line_of(at);
                breaches.push(format!(
                    "src/{path}:{line}: layer \"{own}\" may not look at layer \"{theirs}\" ({})",
                    name.join("::")
                ));
            }
        }
        let says = |word: &str| source.code.find(word).map(|at| source.line_of(at));
        if let Some(line) =
            says("unsafe ").or_else(|| says("allow(unsafe_code")).filter(|_| !source.is_in(UNSAFE))
        {
            breaches
                .push(format!("src/{path}:{line}: unsafe may not be here: move it to where it is allowed"));
        }
        for (words, places) in ONLY_IN {
            if let Some((word, line)) = words.iter().find_map(|word| Some((word, says(word)?)))
                && !source.is_in(places)
            {
                breaches.push(format!("src/{path}:{line}: {word} may only be in {places:?}"));
            }
        }
    }
    breaches
}

/// Adds the files of a folder of the crate in `root`.
fn sources(root: &Path, folder: &Path, into: &mut Vec<Source>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(root, &path, into);
        } else if path.extension().is_some_and(|e| e == "rs") && path.file_stem() != Some("tests".as_ref()) {
            let name = path.strip_prefix(root).unwrap().to_str().unwrap();
            into.push(Source::of(name, &fs::read_to_string(&path).unwrap()));
        }
    }
}

fn all_sources() -> Vec<Source> {
    let mut all = Vec::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    sources(&root, &root, &mut all);
    assert!(all.len() > 50, "only {} files were found", all.len());
    all
}

#[test]
fn layers_use_only_lower_layers_and_unsafe_stays_listed() {
    let breaches = breaches(&all_sources());
    assert!(breaches.is_empty(), "\n{}\n", breaches.join("\n"));
}

#[test]
fn each_file_listed_for_unsafe_has_unsafe() {
    let all = all_sources();
    for place in UNSAFE {
        let used = all.iter().any(|source| source.is_in(&[place]) && source.code.contains("unsafe "));
        assert!(used, "{place} has no unsafe any more: strike it off the list");
    }
}

#[test]
fn each_listed_layer_and_common_module_exists() {
    let all = all_sources();
    for (wanted, _) in LAYERS {
        assert!(all.iter().any(|source| layer(&source.module()) == *wanted), "layer {wanted} is empty");
    }
    for module in COMMON {
        assert!(
            all.iter().any(|source| source.module().first().is_some_and(|name| name == module)),
            "{module}"
        );
    }
}

#[test]
fn use_of_higher_layer_is_found_in_any_syntax() {
    for (path, text) in [
        ("backend/file/write.rs", "use crate::family::Family;"),
        ("backend/file/write.rs", "use crate::{error::Error, family::{self, Family}};"),
        ("backend/file/write.rs", "fn f() -> super::super::super::store::Store {}"),
        ("backend/mod.rs", "use super::session::Session;"),
        ("session.rs", "fn f() { crate::store::Store::open(); }"),
        ("family/mod.rs", "use crate::Store;"),
        ("expiry.rs", "use crate::backend::Db;"),
        ("ffi/call.rs", "use crate::session::Session;"),
        ("backend/file/os/locks.rs", "use crate::backend::file::connection::Db;"),
        ("backend/file/os/locks.rs", "use super::super::connection::Db;"),
    ] {
        let found = breaches(&[Source::of(path, text)]);
        let found = found.iter().filter(|breach| breach.contains("may not look at")).count();
        assert!(found > 0, "{path} {text}");
    }
}

#[test]
fn use_of_same_or_lower_layer_is_allowed() {
    for (path, text) in [
        (
            "family/mod.rs",
            "use crate::backend::{Db, Found}; use crate::session::Session; use super::error::Error;",
        ),
        ("family/ttl.rs", "use super::Family; use crate::family::iter::Cursor;"),
        (
            "backend/file/write.rs",
            "pub(in crate::backend) use super::os::Presence; use crate::backend::Scan; // crate::family\n",
        ),
        ("backend/file/os/locks.rs", "pub(in crate::backend) fn f() { super::files::open(); }"),
        ("ffi/call.rs", "use crate::{Store, Family}; use super::args; fn f() { crate::now_ms() }"),
        ("config.rs", "const A: &str = \"crate::store\"; const B: char = '\"'; use crate::error::Error;"),
        ("clock.rs", "#[cfg(test)]\nmod tests { use crate::store::Store; }"),
        ("lib.rs", "use crate::store::Store;"),
    ] {
        let found = breaches(&[Source::of(path, text)]);
        assert!(found.is_empty(), "{path} {text}: {found:?}");
    }
}

#[test]
fn code_restricted_to_one_layer_is_found_in_others() {
    for (path, text, expected) in [
        ("family/mod.rs", "\nlet a = unsafe { b() };", "src/family/mod.rs:2: unsafe"),
        ("backend/file/write.rs", "#![allow(unsafe_code)]", "unsafe"),
        ("session.rs", "use rusqlite::Connection;", "rusqlite may only be in"),
        ("store/purge.rs", "let now = SystemTime::now();", "SystemTime::now may only be in"),
        ("lib.rs", "#[unsafe(no_mangle)] pub extern \"C\" fn f() {}", "no_mangle may only be in"),
        ("helpers.rs", "fn f() {}", "belongs to no layer"),
    ] {
        let found = breaches(&[Source::of(path, text)]);
        assert!(found.len() == 1 && found[0].contains(expected), "{path} {text}: {found:?}");
    }
}
