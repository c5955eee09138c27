//! Format of an input of `open_bytes`: one byte of flags, four bytes with the length of the store's
//! file, that file, and then its WAL or rollback journal.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Clock reading when the seeds are opened. Some of their rows have expired by then.
#[allow(dead_code)] // what is recovered is recovered now
pub const NOW_MS: i64 = 1_700_000_000_000;

/// Flag: the checksums of the WAL are made right, so that SQLite takes its frames whatever is in them.
#[allow(dead_code)] // a recovery takes them as they are
pub const REPAIR_WAL: u8 = 1;
/// Flag: the second file is a rollback journal, and the store is opened in that journal mode.
pub const JOURNAL: u8 = 2;
/// Flag: the first open is read-only.
#[allow(dead_code)] // no seed has it
pub const READ_ONLY: u8 = 4;
/// Flag: pages are read through a memory map.
#[allow(dead_code)]
pub const MAPPED: u8 = 8;

const HEAD: usize = 5;

/// Kind of the second file.
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
