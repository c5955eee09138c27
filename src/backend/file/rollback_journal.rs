//! Rollback journal of a whole file, written before the whole content of the file is replaced.
//! After a crash during the replacement, the next program that opens the file, with any SQLite,
//! restores the old content (SQLite's fileformat2.html, chapter 3).
//!
//! In the padding after the header fields of SQLite, this journal has a mark. When a store is
//! opened, the mark shows that the rollback will replace the first bytes of the file by those in
//! the journal.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use rusqlite::Connection;

use super::error::translate;
use super::os::{self, Journal, Opened};
use super::probe::{JOURNAL_MAGIC, JOURNAL_MARK, JOURNAL_MARK_AT, SECTOR};
use crate::error::{Error, Result};
use crate::hint::Hint;

/// Offset, in the database file, of the byte that SQLite locks (os.h, "PENDING_BYTE"). The page
/// with this byte, the lock page, never has content. SQLite takes a record of it for the end of a
/// journal.
const LOCK_BYTE: u64 = 0x4000_0000;
/// Distance, in bytes, between two bytes that are added to the checksum of a page in the journal.
/// It is counted from the end of the page.
const EVERY: usize = 200;
/// Size, in bytes, of the pieces in which a conversion reads, writes and overwrites the database,
/// the temporary file and the journal.
pub(super) const CHUNK: usize = 1 << 20;

/// Old content of a file, kept in a journal while the file is rewritten.
pub(super) struct Undo {
    journal: Journal,
    /// Length of the journal, in bytes.
    length: u64,
}

impl Undo {
    /// Writes the content of the database of a connection to a journal. The connection must have
    /// locked the database exclusively. The journal is synced when this returns. After a failure it
    /// is not valid.
    ///
    /// # Errors
    /// `Io`, `Full`; `Corrupt` if the size of the file is not a multiple of the page size.
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
            // The header is written last, because it makes the journal valid.
            journal.sync()?;
            journal.write(&header(pages - u32::from(locks <= pages), nonce, pages, page_size), 0)?;
            journal.sync().map(|()| length)
        });
        match written {
            Ok(length) => Ok(Undo { journal, length }),
            Err(e) => {
                let _ = journal.write(&[0; SECTOR], 0); // in case it cannot be removed
                let _ = journal.remove();
                Err(e)
            }
        }
    }

    /// Makes the new content of the database final, by making the journal invalid.
    ///
    /// # Errors
    /// `Io`: it is not known whether the database keeps the new content, or the journal will
    /// restore the old content.
    pub(super) fn commit(&mut self) -> Result<()> {
        // The mark stays. Without it, the journal could be one that SQLite keeps for its next
        // transaction.
        self.journal.write(&[0; JOURNAL_MARK_AT], 0)?;
        self.journal.sync()
    }

    /// Returns `true` if a journal with the mark of this library exists at the path and is no
    /// longer valid.
    ///
    /// The first byte decides, as it does for SQLite: `commit` has overwritten it, even if a crash
    /// kept it from overwriting the rest of the header.
    pub(super) fn is_ended(journal: &Path) -> bool {
        let mut start = [1; SECTOR];
        let read = File::open(journal).and_then(|mut file| file.read_exact(&mut start));
        let (header, rest) = start.split_at(JOURNAL_MARK_AT);
        read.is_ok() && header.starts_with(&[0]) && rest.starts_with(JOURNAL_MARK)
    }

    /// Overwrites and removes the journal. Call this after [`commit`](Undo::commit), when its
    /// content is no longer needed.
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

/// Writes the records of all pages after the space for the header. `locks` is the number of the
/// lock page, which is left out; `nonce` is the start value of the checksum of each page. Returns
/// the length of the journal, in bytes.
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
    // The header stays zero, so that the journal is not yet valid.
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
    journal.write(&records, at)?; // the rest, if the last page is the lock page
    Ok(at + records.len() as u64)
}

/// Returns the checksum of a page in a rollback journal, as SQLite computes it. `nonce` is its
/// start value, which the header of the journal contains.
fn checksum(page: &[u8], nonce: u32) -> u32 {
    // From the end of the page, without its first byte.
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
