//! Recovery of files in which a page was overwritten with a copy of another page. Every page is
//! valid by itself, but some have the wrong content.

use std::collections::BTreeSet;
use std::fs;

use crate::common::recovered::{Done, LATER, Rows, number32, recover, rows_of};
use crate::common::{self, Random, Scratch};
use kvstore::{Config, Expiry};

const PAGE: usize = 512;

/// A file, and the kind of each of its pages.
struct File {
    scratch: Scratch,
    bytes: Vec<u8>,
    rows: Rows,
}

impl File {
    /// Creates two families of the same structure whose large values have the same numbers, and one
    /// with a few rows.
    fn new() -> File {
        let scratch = Scratch::new();
        let store = scratch.open_with(&Config::new().page_size(PAGE as u32));
        let other = store.create_family("other").unwrap();
        store.create_family("few").unwrap().put_with_expiry("1 key 00002", "few", Expiry::At(LATER)).unwrap();
        for (at, family) in [store.default_family(), &other].into_iter().enumerate() {
            for n in 0..100 {
                let size = match n % 10 {
                    3 => 90 + n,
                    7 => 900 + n,
                    _ => n % 40,
                };
                let value: Vec<u8> = (0..size).map(|byte| (byte * 7 + n + 100 * at) as u8).collect();
                let expiry = if n % 4 == 0 { Expiry::At(LATER + n as i64) } else { Expiry::Never };
                family.put_with_expiry(format!("{at} key {n:05}"), value, expiry).unwrap();
            }
        }
        let rows = rows_of(&store);
        store.close().unwrap();
        let bytes = fs::read(scratch.path()).unwrap();
        File { scratch, bytes, rows }
    }

    fn root(&self, table: &str) -> usize {
        let program = format!(
            "print(con.execute('select rootpage from sqlite_schema where name = ?', ('{table}',)).fetchone()[0])"
        );
        common::python(&self.scratch.path(), &program).parse().unwrap()
    }

    fn page(&self, page: usize) -> &[u8] {
        &self.bytes[(page - 1) * PAGE..page * PAGE]
    }

    fn pages(&self) -> usize {
        self.bytes.len() / PAGE
    }

    /// Returns the child pages of an interior page.
    fn below(&self, page: usize) -> Vec<usize> {
        let bytes = self.page(page);
        assert!(matches!(bytes[0], 2 | 5), "page {page} is a leaf");
        let count = usize::from(u16::from_be_bytes([bytes[3], bytes[4]]));
        let cell = |at: usize| usize::from(u16::from_be_bytes([bytes[12 + 2 * at], bytes[13 + 2 * at]]));
        (0..count).map(|at| number32(bytes, cell(at))).chain([number32(bytes, 8)]).collect()
    }

    fn is_leaf(&self, page: usize) -> bool {
        matches!(self.page(page)[0], 10 | 13)
    }

    /// Copies pages over other pages, and recovers the result.
    #[track_caller]
    fn copied(&self, copies: &[(usize, usize)]) -> Done {
        let mut bytes = self.bytes.clone();
        for (from, to) in copies {
            bytes[(to - 1) * PAGE..to * PAGE].copy_from_slice(self.page(*from));
        }
        fs::write(self.scratch.path(), bytes).unwrap();
        let done = recover(&self.scratch.path()).unwrap_or_else(|e| panic!("{copies:?}: {e}"));
        fs::write(self.scratch.path(), &self.bytes).unwrap();
        done
    }

    /// Checks that no row has the content of another one, and that losses are reported if rows are
    /// missing. Returns the number of missing rows.
    #[track_caller]
    fn is_honest(&self, done: &Done, what: &str) -> usize {
        for (place @ (family, key), row) in &done.rows {
            let found = self.rows.get(place).or_else(|| {
                let of_any = |(_, other): &&(String, Vec<u8>)| other == key;
                let place = self.rows.keys().find(of_any).filter(|_| family.starts_with("recovered-"));
                place.and_then(|place| self.rows.get(place))
            });
            assert!(found == Some(row), "{what}: {family} {}: {:?}", key.escape_ascii(), done.told);
        }
        let missing = self.rows.keys().filter(|place| !done.rows.contains_key(*place)).count();
        assert!(missing == 0 || !done.recovered.is_complete(), "{what}: {missing} rows are missing");
        missing
    }
}

#[test]
fn root_overwritten_with_own_leaf_loses_few_rows() {
    let file = File::new();
    for table in ["data:default", "data:other"] {
        let root = file.root(table);
        let mut leaf = root;
        while !file.is_leaf(leaf) {
            leaf = *file.below(leaf).last().unwrap();
        }
        for page in file.below(root).into_iter().chain([leaf]) {
            let done = file.copied(&[(page, root)]);
            let what = format!("{table}: {page} over {root}");
            let missing = file.is_honest(&done, &what);
            assert!((1..=10).contains(&missing), "{what}: {missing} rows are missing: {:?}", done.told);
        }
    }
}

#[test]
fn blob_pages_of_other_family_are_not_mixed_in() {
    let file = File::new();
    let (own, other) = (file.root("blob:default"), file.root("blob:other"));
    let leaves = |root| file.below(root).into_iter().filter(|page| file.is_leaf(*page));
    for from in leaves(other).chain([other]) {
        for to in leaves(own).chain([own]) {
            let what = format!("{from} over {to}");
            let done = file.copied(&[(from, to)]);
            let missing = file.is_honest(&done, &what);
            assert!(missing <= 10, "{what}: {missing} rows are missing: {:?}", done.told);
        }
    }
}

#[test]
fn leaf_overwritten_with_foreign_root_loses_only_its_rows() {
    let file = File::new();
    let (own, other) = (file.root("data:default"), file.root("data:other"));
    for leaf in file.below(own) {
        let done = file.copied(&[(other, leaf)]);
        let missing = file.is_honest(&done, &format!("{other} over {leaf}"));
        assert!((1..=20).contains(&missing), "{missing} rows are missing: {:?}", done.told);
    }
}

#[test]
fn copied_page_invents_no_row_and_hides_no_loss() {
    let file = File::new();
    let pages = file.pages();
    let mut random = Random(11);
    let trees: Vec<usize> = ["data:default", "data:other", "blob:default", "blob:other"]
        .into_iter()
        .flat_map(|table| {
            let mut found = vec![file.root(table)];
            let mut at = 0;
            while let Some(page) = found.get(at).copied() {
                found.extend(if file.is_leaf(page) { Vec::new() } else { file.below(page) });
                at += 1;
            }
            found
        })
        .collect();
    let mut seen = BTreeSet::new();
    for round in 0..150 {
        // Most copies are of B-tree pages over each other, of which there are few.
        let mut any = |kind: u64| match kind {
            0 => 1 + random.below(pages as u64) as usize,
            _ => random.of(&trees),
        };
        let copy = (any(round % 3), any(round % 4));
        if copy.0 != copy.1 && seen.insert(copy) && !is_last_part(&file, copy) {
            let done = file.copied(&[copy]);
            file.is_honest(&done, &format!("{} over {}", copy.0, copy.1));
        }
    }
}

/// Returns `true` if the end of a value is overwritten with that of another one, which cannot be
/// detected.
fn is_last_part(file: &File, (from, to): (usize, usize)) -> bool {
    let is_part = |page: usize| !matches!(file.page(page)[0], 2 | 5 | 10 | 13) && page > 1;
    [from, to].iter().all(|page| is_part(*page) && number32(file.page(*page), 0) == 0)
}

#[test]
fn overwritten_settings_are_reported() {
    let file = File::new();
    let (catalogue, settings) = (file.root("kvstore_family"), file.root("kvstore_meta"));
    for (from, to) in [
        (settings, catalogue),
        (catalogue, settings),
        (file.root("data:few"), catalogue),
        (file.root("data:few"), settings),
    ] {
        let done = file.copied(&[(from, to)]);
        assert_eq!(file.is_honest(&done, "settings"), 0, "{:?}", done.told);
        assert!(!done.recovered.is_complete(), "{from} over {to}");
    }
}

#[test]
fn families_with_common_rows_are_not_treated_as_copies() {
    for page_size in [512, 1024] {
        let scratch = Scratch::new();
        let store = scratch.open_with(&Config::new().page_size(page_size));
        let families = ["yesterday", "today"].map(|name| store.create_family(name).unwrap());
        for family in &families {
            for n in 0..300_usize {
                // Each large value fills a page of its own; the other values are in their rows.
                let size = if n % 2 == 0 { page_size as usize * 2 / 3 } else { 20 };
                family.put(format!("key {n:04}"), vec![n as u8; size]).unwrap();
            }
        }
        let mut random = Random(3);
        for changes in [0, 1, 30, 60, 60] {
            for _ in 0..changes {
                let key = format!("key {:04}", random.below(300));
                let size = families[0].get(&key).unwrap().unwrap().len();
                families[1].put(key, vec![random.below(256) as u8; size]).unwrap();
            }
            store.checkpoint(kvstore::CheckpointMode::Truncate).unwrap();
            let done = recover(&scratch.path()).unwrap();
            assert_eq!(done.told, Vec::<String>::new(), "{page_size}, {changes}");
            assert!(done.rows == rows_of(&store));
        }
        store.close().unwrap();
    }
}
