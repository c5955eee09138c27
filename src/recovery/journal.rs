//! Reader of the rollback journal, which contains the former content of pages that an unfinished
//! transaction may have changed (SQLite's fileformat2.html, chapter 3). Pages whose record in the
//! journal is damaged are lost.
//!
//! SQLite stops at the first damaged record. This reader examines each record: a valid record
//! contains the former content of its page, even if records before it are damaged.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::path::Path;

use super::logs::{Overlay, is_page_size, open, read_at};
use super::page::{number16, number32};

const MAGIC: &[u8] = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7";
const HEADER: usize = 28;
/// Number of bytes at the beginning of a journal's header that are zeros until SQLite has synced
/// the journal: the magic number and the number of records.
const UNSYNCED: usize = 12;
/// Value for the number of records of a journal whose header does not contain it: all records up to
/// the end of the journal are used.
const UNKNOWN: u32 = u32::MAX;

/// Returns the pages that a rollback journal would restore in `database`, and descriptions of the
/// damage of the journal. The first result is `None` if the journal would restore nothing.
pub(super) fn journal(path: &Path, database: &File) -> (Option<Overlay>, Vec<String>) {
    let Some(file) = open(path) else { return (None, Vec::new()) };
    let size = file.metadata().map_or(0, |found| found.len());
    let header = read_at(&file, 0, size.min(HEADER as u64) as usize).unwrap_or_default();
    // Only zeros: the transaction has ended, or has not begun.
    if header.iter().all(|byte| *byte == 0) {
        return (None, Vec::new());
    }
    let mut reading = Reading::new(&file, database, &header);
    reading.all(&header);
    if !is_begun(&header) && header.len() == HEADER {
        // The header has not been synced, so SQLite has not written to the database yet. If the
        // database differs from the journal nevertheless, the header is damaged.
        if !reading.has_differences() {
            return (None, Vec::new());
        }
        reading.is_header_damaged = true;
    }
    let notes = reading.notes();
    let Reading { at, lost, pages, page_size, .. } = reading;
    if at.is_empty() && lost.is_empty() || !is_page_size(page_size) {
        return (None, notes);
    }
    (Some(Overlay { file, page_size: page_size as usize, at, pages, lost, notes: Vec::new() }), notes)
}

/// Returns `true` if this header of a journal has been synced. Before that, its magic number and
/// its number of records are zeros.
fn is_begun(header: &[u8]) -> bool {
    header.iter().take(UNSYNCED).any(|byte| *byte != 0)
}

struct Reading<'j> {
    file: &'j File,
    database: &'j File,
    page_size: u32,
    sector: u64,
    /// Number of pages of the database before the transaction.
    pages: u32,
    at: HashMap<u32, u64>,
    /// Pages whose record in the journal is damaged.
    lost: HashSet<u32>,
    /// Number of damaged records for which it is not known which page they restore.
    nameless: u64,
    is_header_damaged: bool,
}

/// Record of a journal: the number of a page, the initial value from which its checksum results,
/// and the former content of the page.
struct Record {
    page: u32,
    nonce: u32,
    content: Vec<u8>,
}

impl<'j> Reading<'j> {
    fn new(file: &'j File, database: &'j File, header: &[u8]) -> Reading<'j> {
        let number = |at| number32(header, at).unwrap_or(0);
        let mut reading = Reading {
            file,
            database,
            page_size: number(24),
            sector: u64::from(number(20)),
            pages: number(16),
            at: HashMap::new(),
            lost: HashSet::new(),
            nameless: 0,
            is_header_damaged: is_begun(header) && !header.starts_with(MAGIC) || header.len() < HEADER,
        };
        // An invalid page size shows that the header is damaged. The page size of the database is
        // used instead.
        if !is_page_size(reading.page_size) {
            reading.is_header_damaged = true;
            let start = read_at(database, 0, 18).unwrap_or_default();
            reading.page_size = match number16(&start, 16) {
                Some(1) => 65_536,
                bytes => bytes.map_or(0, u32::from),
            };
        }
        if !reading.sector.is_power_of_two() || !(32..=65_536).contains(&reading.sector) {
            reading.is_header_damaged = true;
            reading.sector = 512;
        }
        if reading.is_header_damaged && reading.pages == 0 && is_page_size(reading.page_size) {
            let length = database.metadata().map_or(0, |found| found.len());
            reading.pages = u32::try_from(length / u64::from(reading.page_size)).unwrap_or(u32::MAX);
        }
        reading
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.is_header_damaged {
            notes.push(
                "the header of the -journal is damaged: changes of a transaction that was not ended may stay"
                    .to_owned(),
            );
        }
        let lost = self.lost.len() as u64 + self.nameless;
        if lost > 0 {
            notes.push(format!(
                "the -journal is damaged: {lost} pages that a transaction has changed, which was not ended, cannot be \
                 put back"
            ));
        }
        if self.nameless > 0 {
            notes.push(format!(
                "of {} of these pages it is not known which they are: what is on them counts as it is, rows of that \
                 transaction and parts of large values",
                self.nameless
            ));
        }
        notes
    }

    /// Reads the whole journal. It consists of parts, each of which begins with a header. `first`
    /// is the first header.
    fn all(&mut self, first: &[u8]) {
        if !is_page_size(self.page_size) {
            return;
        }
        let mut header = first.to_vec();
        let mut place = 0;
        loop {
            let has_header = header.starts_with(MAGIC);
            let number = |at| number32(&header, at).unwrap_or(0);
            let (records, nonce) = (number(8), number(12));
            let begin = place + self.sector;
            let Some(nonce) = self.nonce_of(begin, nonce, has_header || !is_begun(&header)) else {
                // This part has no header, and its records do not agree on an initial value, so
                // they cannot be verified. If the first of them is for a page that no other record
                // restores, and the database has another version of that page, the page is lost.
                if place > 0
                    && let Some(record) = self.record(begin)
                    && self.differs(&record)
                {
                    self.lose(record.page);
                }
                return;
            };
            let count = self.part(begin, if has_header { records } else { UNKNOWN }, nonce);
            place = (begin + count * self.length()).next_multiple_of(self.sector);
            match read_at(self.file, place, HEADER) {
                Some(next) if count > 0 => header = next,
                _ => return,
            }
        }
    }

    fn length(&self) -> u64 {
        u64::from(self.page_size) + 8
    }

    fn record(&self, place: u64) -> Option<Record> {
        let bytes = read_at(self.file, place, self.length() as usize)?;
        let page = number32(&bytes, 0)?;
        let (content, sum) = bytes.get(4..)?.split_at_checked(self.page_size as usize)?;
        let tested =
            (1..).map(|n| content.len().checked_sub(200 * n)).map_while(|at| at.filter(|at| *at > 0));
        let bytes = tested.filter_map(|at| content.get(at)).map(|byte| u32::from(*byte));
        let nonce = bytes.fold(number32(sum, 0)?, u32::wrapping_sub);
        Some(Record { page, nonce, content: content.to_vec() })
    }

    /// Returns the initial value of the checksums in the part of the journal that begins at the
    /// offset `begin`. It is the value on which the first two records agree, otherwise the value
    /// `said` of the header. Returns `None` if the records do not agree and the part has no header.
    fn nonce_of(&self, begin: u64, said: u32, has_header: bool) -> Option<u32> {
        let [first, second] = [0, 1].map(|n| self.record(begin + n * self.length()));
        let agreed = first.zip(second).filter(|(first, second)| {
            first.nonce == second.nonce && self.is_possible(first.page) && self.is_possible(second.page)
        });
        agreed.map(|(first, _)| first.nonce).or(has_header.then_some(said))
    }

    fn is_possible(&self, page: u32) -> bool {
        (1..=self.pages).contains(&page)
    }

    /// Reads the records of the part of the journal that begins at the offset `begin`. `must_be` is
    /// the number of its records, or [`UNKNOWN`]. `nonce` is the initial value of their checksums.
    /// Returns the number of records found.
    fn part(&mut self, begin: u64, must_be: u32, nonce: u32) -> u64 {
        let mut wrong = Vec::new();
        let mut count = 0;
        loop {
            let record = self.record(begin + count * self.length());
            let is_due = must_be != UNKNOWN && count < u64::from(must_be);
            match record {
                Some(record) if record.nonce == nonce => {
                    // A valid record shows that the records before it were written too, so they are
                    // damaged.
                    wrong.drain(..).for_each(|page| self.lose(page));
                    // If a damaged record had the number of this page, that number was wrong, too.
                    self.nameless += u64::from(self.lost.remove(&record.page));
                    if self.is_possible(record.page) && !self.at.contains_key(&record.page) {
                        self.at.insert(record.page, begin + count * self.length() + 4);
                    } else {
                        self.nameless += 1;
                    }
                }
                Some(record) if is_due => self.lose(record.page),
                Some(record) if must_be == UNKNOWN => wrong.push(record.page),
                None if is_due => {
                    self.nameless += u64::from(must_be) - count;
                    return count;
                }
                _ => return count - wrong.len() as u64,
            }
            count += 1;
        }
    }

    fn lose(&mut self, page: u32) {
        if !self.is_possible(page) || self.at.contains_key(&page) || !self.lost.insert(page) {
            self.nameless += 1;
        }
    }

    /// Returns `true` if the database now has another version of the page than the record, and no
    /// valid record restores the page.
    fn differs(&self, record: &Record) -> bool {
        self.is_possible(record.page)
            && !self.at.contains_key(&record.page)
            && self.in_database(record.page).is_some_and(|page| page != record.content)
    }

    /// Returns `true` if the database now has another version of any page than the journal.
    fn has_differences(&self) -> bool {
        let size = self.page_size as usize;
        self.at.iter().any(|(page, place)| {
            self.in_database(*page).is_some_and(|now| read_at(self.file, *place, size) != Some(now))
        })
    }

    fn in_database(&self, page: u32) -> Option<Vec<u8>> {
        let at = u64::from(page.checked_sub(1)?) * u64::from(self.page_size);
        read_at(self.database, at, self.page_size as usize)
    }
}
