//! An input of `open_bytes`: a byte of flags, the length of the store's file in four bytes, the file, and what lies
//! beside it, its WAL or its journal.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// What the clock says when the seeds are opened: some of their rows are dead then.
#[allow(dead_code)] // what is recovered is recovered now
pub const NOW_MS: i64 = 1_700_000_000_000;

/// Flag: the checksums of the WAL are made right, so that SQLite takes its frames whatever is in them.
#[allow(dead_code)] // a recovery takes them as they are
pub const REPAIR_WAL: u8 = 1;
/// Flag: what lies beside the file is its journal, and the store is opened in that mode.
pub const JOURNAL: u8 = 2;
/// Flag: the first open is read-only.
#[allow(dead_code)] // no seed has it
pub const READ_ONLY: u8 = 4;
/// Flag: pages are read through a memory map.
#[allow(dead_code)]
pub const MAPPED: u8 = 8;

const HEAD: usize = 5;

/// The file beside the store's.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Beside {
    Wal,
    Journal,
}

impl Beside {
    pub fn path(self, store: &Path) -> PathBuf {
        let mut name = OsString::from(store);
        name.push(match self {
            Beside::Wal => "-wal",
            Beside::Journal => "-journal",
        });
        name.into()
    }
}

#[allow(dead_code)] // the seeds are packed, the target unpacks
pub fn pack(flags: u8, main: &[u8], beside: &[u8]) -> Vec<u8> {
    let length = u32::try_from(main.len()).expect("a small store");
    [&[flags], &length.to_le_bytes()[..], main, beside].concat()
}

#[allow(dead_code)]
pub fn unpack(input: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (head, rest) = input.split_at_checked(HEAD)?;
    let length = u32::from_le_bytes(head[1..].try_into().ok()?) as usize;
    let (main, beside) = rest.split_at(length.min(rest.len()));
    Some((head[0], main, beside))
}
