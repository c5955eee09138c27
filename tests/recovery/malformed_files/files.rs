//! Creates the files to damage: small stores with every feature. Finds out the kind of each of
//! their pages.

use std::fs;
use std::path::Path;
use std::time::Duration;

use kvstore::{CheckpointMode, Config, Expiry, Result, Store};

use super::exercise::{FAMILIES, LONGEST, NOW, long_key};
use crate::common::{Scratch, TestClock};

/// Page sizes. With the first one, the file fits into 64 KiB.
pub const PAGE_SIZES: [u32; 3] = [512, 4096, 65_536];

/// The bytes of a closed store with pages of this size.
pub fn sound(page_size: u32) -> Vec<u8> {
    let scratch = Scratch::new();
    let config = Config::new().page_size(page_size);
    fill(&scratch.path(), &config, 0);
    fs::read(scratch.path()).unwrap()
}

/// A store, the WAL with its last changes, and a WAL of an earlier moment, which the store has
/// discarded.
pub struct WithWal {
    pub file: Vec<u8>,
    pub wal: Vec<u8>,
    pub older: Vec<u8>,
}

pub fn with_wal(page_size: u32, seed: u8) -> WithWal {
    let scratch = Scratch::new();
    let config = Config::new().page_size(page_size);
    fill(&scratch.path(), &config, seed);
    let store = scratch.open_with(&config);
    TestClock::at(NOW - 1).drive(&store);
    let touch = |round: u8| {
        for n in 0..30_u8 {
            store.put([b"in the WAL ", &[n, seed][..]].concat(), [round; 40]).unwrap();
        }
        store.put_with_expiry(b"wal ttl", vec![round; 900], Expiry::At(NOW + 9)).unwrap();
    };
    touch(1);
    let older = fs::read(scratch.wal()).unwrap();
    store.checkpoint(CheckpointMode::Truncate).unwrap();
    touch(2);
    // Read before the handle is closed, because closing writes the WAL back.
    WithWal { file: fs::read(scratch.path()).unwrap(), wal: fs::read(scratch.wal()).unwrap(), older }
}

/// Makes a store with every sort of row, and trees of one to four levels.
fn fill(path: &Path, config: &Config, seed: u8) {
    let store = Store::open_with(path, config).unwrap();
    TestClock::at(1_000).drive(&store);
    let page = config_page(path);
    store
        .transaction(|tx| -> Result<()> {
            let [tracked, deep, large, ttl] = FAMILIES.map(|name| tx.create_family(name).unwrap());
            tracked.set_write_tracking(true)?;
            for n in 0..12_u8 {
                tracked.put([n, seed], [n; 9])?;
                // Some of these have expired when the store is opened.
                ttl.put_with_expiry([n, seed], [n; 5], Expiry::At(NOW - 3 + i64::from(n)))?;
                tx.put([b'd', n, seed], [n; 20])?;
            }
            // Four entries per interior page, for three levels of them.
            let long = long_key(page);
            for n in 0..if page > 4096 { 20_u8 } else { 50 } {
                deep.put([&[n / 9, n, seed][..], &vec![n; long]].concat(), [n; 3])?;
            }
            for n in 0..4_u8 {
                large.put([n, seed], vec![n; page + 700])?;
            }
            large.put_with_expiry(b"large and mortal", vec![1; 700], Expiry::At(NOW + 5))?;
            // Longer than any page: each has overflow pages, and is a separate chunk of an
            // iterator.
            for n in 0..2_u8 {
                deep.put(vec![0xF0 + n; LONGEST], "long")?;
            }
            Ok(())
        })
        .unwrap();
    // Free pages.
    store.create_family("gone").unwrap().put("a", vec![1; 3 * page]).unwrap();
    store.drop_family("gone").unwrap();
    let ttl = store.family(FAMILIES[3]).unwrap();
    ttl.set_default_ttl(Some(Duration::from_secs(60))).unwrap();
    store.integrity_check().unwrap();
    store.close().unwrap();
}

fn config_page(path: &Path) -> usize {
    page_size_of(&fs::read(path).unwrap())
}

/// The page size a file names in its header.
pub fn page_size_of(file: &[u8]) -> usize {
    match u16::from_be_bytes([file[16], file[17]]) {
        1 => 65_536,
        size => size.into(),
    }
}

/// The pages of a sound file.
pub struct Pages {
    pub size: usize,
    pub count: usize,
    pub interior: Vec<usize>,
    pub leaves: Vec<usize>,
    /// All other pages: overflow pages, free pages, pointer map.
    pub others: Vec<usize>,
}

/// Where the header of a page's B-tree is.
fn header(page: usize) -> usize {
    if page == 0 { 100 } else { 0 }
}

impl Pages {
    /// Pages are counted from 0 here. A page that looks like a B-tree page may be of another kind,
    /// which does no harm.
    pub fn of(file: &[u8]) -> Pages {
        let size = page_size_of(file);
        let count = file.len() / size;
        let kind = |page: &usize| file[page * size + header(*page)];
        let of_kind = |kinds: &[u8]| (0..count).filter(|page| kinds.contains(&kind(page))).collect();
        Pages {
            size,
            count,
            interior: of_kind(&[2, 5]),
            leaves: of_kind(&[10, 13]),
            others: (1..count).filter(|page| ![2, 5, 10, 13].contains(&kind(page))).collect(),
        }
    }

    /// Where in the file a page's B-tree header is.
    pub fn header(&self, page: usize) -> usize {
        page * self.size + header(page)
    }

    /// Where in the file the pointers to a page's cells are, and to which offset of the page each points.
    pub fn cells(&self, file: &[u8], page: usize) -> Vec<(usize, usize)> {
        let start = self.header(page);
        let pointers = start + if [2, 5].contains(&file[start]) { 12 } else { 8 };
        let count = usize::from(u16::from_be_bytes([file[start + 3], file[start + 4]]));
        (0..count)
            .map(|n| pointers + 2 * n)
            .map(|at| (at, usize::from(u16::from_be_bytes([file[at], file[at + 1]]))))
            .collect()
    }
}
