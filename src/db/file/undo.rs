//! A rollback journal of a whole file, written before the file is given another content as a whole: if that is cut off,
//! whoever opens the file next, with whatever SQLite, puts the old content back (SQLite's fileformat2.html, chapter 3).
//!
//! Where the header of SQLite's journals is filled up, ours has a mark. By it an open knows that what the file begins
//! with is not what it is going to be.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use rusqlite::Connection;

use super::failure::translate;
use super::os::{self, Journal, Opened};
use super::probe::{JOURNAL_MAGIC, JOURNAL_MARK, JOURNAL_MARK_AT, SECTOR};
use crate::error::{Error, Result};
use crate::hint::Hint;

/// Nothing is ever on the page with this byte (os.h, "PENDING_BYTE"); a journal that has it ends there.
const LOCK_BYTE: u64 = 0x4000_0000;
/// The checksum of a page adds each byte of this distance, from its end on.
const EVERY: usize = 200;
/// Maximum number of bytes that are read, written or overwritten at once.
pub(super) const CHUNK: usize = 1 << 20;

/// Old content of a file, kept in a journal while the file is rewritten.
pub(super) struct Undo {
    journal: Journal,
    length: u64,
}

impl Undo {
    /// Writes down what is in the database of a connection that has locked it for itself, with pages of so many bytes.
    /// When this returns, it is on the disk; after a failure it counts for nothing.
    ///
    /// # Errors
    /// `Io`, `Full`, `Corrupt` if the file has no whole number of pages.
    pub(super) fn of(conn: &Connection, path: &Path, page_size: usize) -> Result<Undo> {
        let size = os::length(conn, Opened::Main)?;
        let page_bytes = page_size as u64;
        let pages = match u32::try_from(size / page_bytes) {
            Ok(pages) if pages > 0 && size % page_bytes == 0 => pages,
            _ => {
                return Err(Error::corrupt("the size of the file is not a multiple of its page size")
                    .with_hint(Hint::CheckIntegrity));
            }
        };
        let locks = u32::try_from(LOCK_BYTE / page_bytes + 1).unwrap_or(u32::MAX);
        let nonce: i64 = conn.query_row("SELECT random()", [], |row| row.get(0)).map_err(translate)?;
        let nonce = nonce as u32;
        let mut journal = Journal::make(path)?;
        let written = write_records(conn, &mut journal, page_size, pages, locks, nonce).and_then(|length| {
            // The header comes when all else is there: a journal counts from then on.
            journal.sync()?;
            journal.write(&header(pages - u32::from(locks <= pages), nonce, pages, page_size), 0)?;
            journal.sync().map(|()| length)
        });
        match written {
            Ok(length) => Ok(Undo { journal, length }),
            Err(e) => {
                let _ = journal.write(&[0; SECTOR], 0); // if it cannot be removed
                let _ = journal.remove();
                Err(e)
            }
        }
    }

    /// Makes the new content final.
    ///
    /// # Errors
    /// `Io`: which of the two contents stays is not known.
    pub(super) fn commit(&mut self) -> Result<()> {
        // The mark stays: without it the journal could be one that SQLite keeps open for the next transaction.
        self.journal.write(&[0; JOURNAL_MARK_AT], 0)?;
        self.journal.sync()
    }

    /// Whether there is a journal of ours that counts no more: SQLite looks at its first byte, which is overwritten, if
    /// nothing else is.
    pub(super) fn is_ended(journal: &Path) -> bool {
        let mut start = [1; SECTOR];
        let read = File::open(journal).and_then(|mut file| file.read_exact(&mut start));
        let (header, rest) = start.split_at(JOURNAL_MARK_AT);
        read.is_ok() && header.starts_with(&[0]) && rest.starts_with(JOURNAL_MARK)
    }

    /// Overwrites the old content, which counts no more, and removes it.
    ///
    /// # Errors
    /// `Io`, `Full`.
    pub(super) fn wipe(mut self) -> Result<()> {
        let zeros = vec![0; CHUNK];
        let mut at = 0;
        while at < self.length {
            let part = (self.length - at).min(CHUNK as u64);
            self.journal.write(zeros.get(..part as usize).unwrap_or_default(), at)?;
            at += part;
        }
        self.journal.sync()?;
        self.journal.remove()
    }
}

/// Writes the records of all pages behind the place of the header; the length of the journal.
fn write_records(
    conn: &Connection,
    journal: &mut Journal,
    page_size: usize,
    pages: u32,
    locks: u32,
    nonce: u32,
) -> Result<u64> {
    let mut page = vec![0; page_size];
    let mut records = Vec::with_capacity(CHUNK + page_size);
    let mut at = SECTOR as u64;
    // The place of the header stays empty.
    journal.write(&[0; SECTOR], 0)?;
    for number in (1..=pages).filter(|number| *number != locks) {
        os::read(conn, Opened::Main, &mut page, u64::from(number - 1) * page_size as u64)?;
        records.extend_from_slice(&number.to_be_bytes());
        records.extend_from_slice(&page);
        records.extend_from_slice(&checksum(&page, nonce).to_be_bytes());
        if records.len() >= CHUNK || number == pages {
            journal.write(&records, at)?;
            at += records.len() as u64;
            records.clear();
        }
    }
    journal.write(&records, at)?; // the last page may be the one that is left out
    Ok(at + records.len() as u64)
}

fn checksum(page: &[u8], nonce: u32) -> u32 {
    // From the end on, and never the first byte.
    let bytes = page.iter().rev().skip(EVERY - 1).step_by(EVERY).take((page.len() - 1) / EVERY);
    bytes.fold(nonce, |sum, byte| sum.wrapping_add(u32::from(*byte)))
}

fn header(records: u32, nonce: u32, pages: u32, page_size: usize) -> [u8; SECTOR] {
    let mut header = [0; SECTOR];
    let numbers = [records, nonce, pages, SECTOR as u32, page_size as u32].map(u32::to_be_bytes);
    let start = JOURNAL_MAGIC.iter().chain(numbers.as_flattened());
    header.iter_mut().zip(start).for_each(|(to, from)| *to = *from);
    header.iter_mut().skip(JOURNAL_MARK_AT).zip(JOURNAL_MARK).for_each(|(to, from)| *to = *from);
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn journal_checksum_matches_sqlite() {
        // pager.c, pager_cksum: `i = pageSize - 200; while( i>0 ){ cksum += aData[i]; i -= 200; }`
        for size in [512_usize, 1000, 4096, 65_536] {
            let page: Vec<u8> = (0..size).map(|at| (at * 7 % 251) as u8).collect();
            let mut sum = 4_000_000_000_u32;
            let mut at = size as i64 - 200;
            while at > 0 {
                sum = sum.wrapping_add(u32::from(page[at as usize]));
                at -= 200;
            }
            assert_eq!(checksum(&page, 4_000_000_000), sum, "{size}");
        }
    }
}
