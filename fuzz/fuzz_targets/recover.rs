//! Recovers two kinds of damaged stores: arbitrary bytes as a store's file with a WAL or rollback
//! journal, and a sound store of which pages are zeroed, replaced by other pages, or changed. A
//! recovery must end without a crash, leave the damaged files unchanged, and create a sound store.
//! If one page was zeroed or replaced, no row may be invented, and missing rows must be reported.

#![no_main]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use kvstore::{
    Config, Direction, ErrorKind, Expiry, KeyRange, RecoverEvent, RecoverReport, Store, SyncLevel,
};
use libfuzzer_sys::fuzz_target;

#[path = "open_bytes/container.rs"]
mod container;

use container::{Beside, JOURNAL};

/// Flag: the rest of the input is a list of changes to a sound store, four bytes each.
const CHANGES: u8 = 16;
const PAGE: usize = 512;
/// Far in the future.
const LATER: i64 = 4_000_000_000_000;

/// Rows of a store by family and key, each with its value and expiry time.
type Rows = BTreeMap<(String, Vec<u8>), (Vec<u8>, Option<i64>)>;

fn rows_of(store: &Store) -> Rows {
    let mut rows = Rows::new();
    let mut names = store.family_names().unwrap();
    names.push("default".to_owned());
    for name in names {
        let family = store.family(&name).unwrap();
        let mut cursor = family.cursor(KeyRange::all(), Direction::Forward);
        let mut there = cursor.first().unwrap();
        while there {
            let row = (cursor.value().unwrap().to_vec(), cursor.expiry().unwrap().millis());
            rows.insert((name.clone(), cursor.key().unwrap().to_vec()), row);
            there = cursor.next().unwrap();
        }
    }
    rows
}

/// Recovers a file. Returns the report and the rows of the new store; `None` if nothing could be
/// recovered.
fn recover(dir: &Path, from: &Path) -> Option<(RecoverReport, Rows)> {
    let to = dir.join("new");
    let mut losses = 0;
    let recovered = kvstore::recover(from, &to, |event| {
        if let RecoverEvent::Lost(loss) = event {
            losses += 1;
            assert!(!loss.to_string().is_empty());
        }
        ControlFlow::Continue(())
    });
    let recovered = match recovered {
        Ok(recovered) => recovered,
        Err(e) => {
            assert_eq!(e.kind(), ErrorKind::NotADatabase, "{e}");
            assert!(!to.exists(), "a file is left");
            return None;
        }
    };
    assert_eq!(recovered.is_complete(), losses == 0);
    let store = Store::open_with(&to, &Config::new().sync(SyncLevel::Off)).unwrap();
    store.integrity_check().expect("the new store is not sound");
    let rows = rows_of(&store);
    assert!(rows.len() as u64 <= recovered.rows, "rows were counted that are not there");
    Some((recovered, rows))
}

/// A sound store and its rows.
struct Sound {
    bytes: Vec<u8>,
    rows: Rows,
}

thread_local!(static SOUND: Sound = Sound::new());

impl Sound {
    /// Creates families with pages of every kind. No key occurs in two families.
    fn new() -> Sound {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let store = Store::open_with(&path, &Config::new().page_size(PAGE as u32)).unwrap();
        let other = store.create_family("other").unwrap();
        for (at, family) in [store.default_family(), &other].into_iter().enumerate() {
            for n in 0..80_usize {
                let size = [n % 40, n, 90 + n, n % 20, 900 + n][n % 5];
                let value: Vec<u8> = (0..size).map(|byte| (byte * 7 + n + 100 * at) as u8).collect();
                let expiry = if n % 4 == 0 { Expiry::At(LATER + n as i64) } else { Expiry::Never };
                family.put_with_expiry(format!("{at} key {n:05}"), value, expiry).unwrap();
            }
        }
        let rows = rows_of(&store);
        store.close().unwrap();
        Sound { bytes: fs::read(&path).unwrap(), rows }
    }

    /// Returns `true` for page 1 and for a page that looks like part of a B-tree. The kind of any
    /// other page is recorded only in the pointer map.
    fn has_form(&self, page: usize) -> bool {
        page == 0 || matches!(self.bytes[page * PAGE], 2 | 5 | 10 | 13)
    }

    /// Applies the changes. Returns the bytes, and whether a recovery must be able to tell that
    /// rows are missing.
    fn change(&self, changes: &[u8]) -> (Vec<u8>, bool) {
        let mut bytes = self.bytes.clone();
        let pages = bytes.len() / PAGE;
        let changes = changes.as_chunks::<4>().0;
        let mut is_honest = changes.len() == 1;
        for [kind, page, from, byte] in changes {
            let (page, from) = (usize::from(*page) % pages, usize::from(*from) % pages);
            let range = page * PAGE..(page + 1) * PAGE;
            match kind % 4 {
                0 => bytes[range].fill(0),
                1 => bytes[range].fill(*byte),
                2 => bytes.copy_within(from * PAGE..(from + 1) * PAGE, range.start),
                _ => bytes[range.start + 2 * usize::from(*byte) + (from & 1)] ^= 1 << (kind >> 5),
            }
            is_honest &= kind % 4 < 3 && self.has_form(page);
        }
        (bytes, is_honest)
    }

    fn check(&self, changes: &[u8], recovered: &RecoverReport, rows: &Rows) {
        for ((family, key), row) in rows {
            let known = self
                .rows
                .iter()
                .find(|((of, other), _)| other == key && (of == family || family.starts_with("recovered-")));
            assert_eq!(known.map(|(_, row)| row), Some(row), "{changes:?}: {family} {}", key.escape_ascii());
        }
        assert!(!recovered.is_complete() || rows.len() == self.rows.len(), "{changes:?}: rows are missing");
    }
}

thread_local!(static DIR: RefCell<tempfile::TempDir> = RefCell::new(tempfile::tempdir().unwrap()));

fuzz_target!(|input: &[u8]| {
    DIR.with_borrow(|dir| {
        let dir = dir.path();
        for entry in fs::read_dir(dir).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
        let path = dir.join("store");
        if let Some((_, changes)) = input.split_first().filter(|(flags, _)| **flags & CHANGES != 0) {
            SOUND.with(|sound| {
                let (bytes, is_honest) = sound.change(changes);
                fs::write(&path, bytes).unwrap();
                if let Some((recovered, rows)) = recover(dir, &path)
                    && is_honest
                {
                    sound.check(changes, &recovered, &rows);
                }
            });
            return;
        }
        let Some((flags, main, beside)) = container::unpack(input) else { return };
        let kind = if flags & JOURNAL != 0 { Beside::Journal } else { Beside::Wal };
        fs::write(&path, main).unwrap();
        if !beside.is_empty() {
            fs::write(kind.path(&path), beside).unwrap();
        }
        recover(dir, &path);
        assert_eq!(fs::read(&path).unwrap(), main, "the damaged file was written to");
        if !beside.is_empty() {
            assert_eq!(fs::read(kind.path(&path)).unwrap(), beside, "what lies beside it was written to");
        }
    });
});
