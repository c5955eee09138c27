//! Helper of the recovery tests: recovers into a new store and compares its rows.

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use kvstore::{RecoverEvent, RecoverReport, Store};

/// Far in the future.
pub const LATER: i64 = 4_000_000_000_000;

/// Rows of all families by family and key, each with its value and expiry time.
pub type Rows = BTreeMap<(String, Vec<u8>), (Vec<u8>, Option<i64>)>;

pub fn rows_of(store: &Store) -> Rows {
    let mut rows = Rows::new();
    let mut names = store.family_names().unwrap();
    names.push("default".to_owned());
    for name in names {
        let family = if name == "default" { None } else { Some(store.family(&name).unwrap()) };
        let family = family.as_ref().unwrap_or(store.default_family());
        let mut cursor = family.cursor(kvstore::KeyRange::all(), kvstore::Direction::Forward);
        let mut there = cursor.first().unwrap();
        while there {
            let end = cursor.expiry().unwrap().millis();
            let row = (cursor.value().unwrap().to_vec(), end);
            rows.insert((name.clone(), cursor.key().unwrap().to_vec()), row);
            there = cursor.next().unwrap();
        }
    }
    rows
}

pub struct Done {
    pub recovered: RecoverReport,
    pub told: Vec<String>,
    pub rows: Rows,
}

/// Returns the number of four bytes at this place of a page.
pub fn number32(bytes: &[u8], at: usize) -> usize {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()) as usize
}

/// Returns a directory in memory if there is one, because some tests create hundreds of stores.
pub fn quick() -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    if memory.is_dir() { memory } else { std::env::temp_dir() }
}

/// Recovers a file into a new one, which must be sound.
#[track_caller]
pub fn recover(from: &Path) -> kvstore::Result<Done> {
    let dir = tempfile::tempdir_in(quick()).unwrap();
    let to = dir.path().join("new.db");
    let mut told = Vec::new();
    let recovered = kvstore::recover(from, &to, |event| {
        if let RecoverEvent::Lost(loss) = event {
            told.push(loss.to_string());
        }
        ControlFlow::Continue(())
    });
    let Ok(recovered) = recovered else {
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "a file is left");
        return Err(recovered.unwrap_err());
    };
    let store = Store::open(&to).unwrap();
    store.integrity_check().unwrap();
    let rows = rows_of(&store);
    assert_eq!(rows.len() as u64, recovered.rows);
    Ok(Done { recovered, told, rows })
}
