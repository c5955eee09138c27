//! Disk space that a WAL keeps when it is truncated on a nearly full disk (ADR 31).

use std::ffi::{CStr, OsStr, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rusqlite::ffi;

use super::super::file::{File, note, system, table};
use super::Wal;
use crate::backend::file::os::system::{self, OsFile};
use crate::backend::file::os::wal_write_buffer::reserve_least_wal;

/// Divisor that determines the size of a *share* of disk space. A share is the sum of the
/// database's length, the WAL's disk space and the free disk space, divided by this number, but at
/// most `MAX_SHARE` bytes. A WAL that is overwritten with zeros and truncated on a nearly full disk
/// keeps at least one share.
const PART_OF_SPACE: u64 = 16;
/// Maximum size of a share of disk space (see [`PART_OF_SPACE`]), in bytes.
const MAX_SHARE: u64 = 16 << 20;
/// Maximum disk space that a truncated WAL keeps, in shares (see [`PART_OF_SPACE`]). A disk with
/// less free space than this is nearly full.
const LONGEST_IN_SHARES: u64 = 4;

/// Truncates a WAL to `length` bytes, and then reserves disk space for the frames that removals of
/// keys write while the disk is full. Returns SQLite's result code of the truncation. `page_size`
/// is in bytes.
///
/// A truncation frees the blocks of the file. SQLite calls this while it holds the writer's lock,
/// so no other connection uses the blocks for the database before they are reserved again.
pub(super) fn truncate_and_reserve(file: *mut File, length: i64, page_size: u64) -> c_int {
    // SAFETY: the file is an open WAL with the library's methods, so its name is a C string. The
    // database's file is open as long as its WAL.
    let (name, database) = unsafe {
        let Wal { name, database, .. } = &*note::<Wal>(file);
        (CStr::from_ptr(*name), *database)
    };
    let path = Path::new(OsStr::from_bytes(name.to_bytes()));
    let Ok(wal) = OsFile::open(path, true, false) else { return system!(xTruncate(file, length)) };
    let mut database_length = 0;
    let code = system!(xFileSize(database, &raw mut database_length));
    let kept = match (code, wal.allocated(), system::free_space(path)) {
        (ffi::SQLITE_OK, Ok(allocated), Some(free)) => {
            kept_space(u64::try_from(database_length).unwrap_or(0), allocated, free)
        }
        _ => 0,
    };
    let pages = u64::try_from(database_length).unwrap_or(0) / page_size.max(1);
    let code = system!(xTruncate(file, length));
    if code == ffi::SQLITE_OK {
        let _ = wal.reserve(kept); // without it, only small removals are possible
        reserve_least_wal(&wal, page_size, pages);
    }
    code
}

/// Returns the number of bytes of disk space that a truncated WAL keeps; 0 unless the disk is
/// nearly full. `database` is the length of the database, `allocated` the disk space of the WAL
/// before its truncation, and `free` the free disk space, all in bytes.
///
/// The removal of a value overwrites all its pages, and each page takes a frame in the WAL. So the
/// kept space is a share ([`PART_OF_SPACE`]) of the space that the store can use. A WAL that
/// occupied more, because of a long value, keeps more, up to [`LONGEST_IN_SHARES`].
fn kept_space(database: u64, allocated: u64, free: u64) -> u64 {
    let total = database.saturating_add(allocated).saturating_add(free);
    let share = (total / PART_OF_SPACE).min(MAX_SHARE);
    if free < LONGEST_IN_SHARES * share { allocated.clamp(share, LONGEST_IN_SHARES * share) } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::kept_space;

    #[test]
    fn wal_keeps_space_only_on_nearly_full_disk() {
        const MB: u64 = 1 << 20;
        for (database, allocated, free, kept) in [
            (0, 0, 16 * MB, 0),
            (10 * MB, 2 * MB, 4 * MB, 0),
            (14 * MB, MB / 2, 3 * MB / 2, MB),
            (13 * MB, 2 * MB, MB, 2 * MB),
            (7 * MB, 9 * MB, 0, 4 * MB),
            (1 << 40, 32 * MB, 64 * MB, 0),
            (1 << 40, 8 * MB, 63 * MB, 16 * MB),
            (1 << 40, 1 << 30, 0, 64 * MB),
            (u64::MAX, u64::MAX, 0, 64 * MB),
            (0, 0, 0, 0),
        ] {
            assert_eq!(kept_space(database, allocated, free), kept, "{database}, {allocated}, {free}");
        }
    }
}
