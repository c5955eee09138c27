//! The files beside a database whose pages count instead of its own: the WAL, up to its last whole commit, and a
//! rollback journal that nobody has played back (SQLite's fileformat2.html, chapters 3 and 4).

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use super::page::number32;

/// Pages of another file.
pub(super) struct Overlay {
    pub(super) file: File,
    pub(super) page_size: usize,
    /// Where each page is.
    pub(super) at: HashMap<u32, u64>,
    /// How many pages the database has.
    pub(super) pages: u32,
    /// What is wrong with what follows.
    pub(super) cut_off: Option<String>,
}

const WAL_HEADER: usize = 32;
const FRAME_HEADER: usize = 24;
const WAL_MAGIC: u32 = 0x377f_0682;
const WAL_VERSION: u32 = 3_007_000;
const JOURNAL_MAGIC: &[u8] = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7";
const JOURNAL_HEADER: usize = 28;

/// Whether pages can have that size.
pub(super) fn is_page_size(bytes: u32) -> bool {
    bytes.is_power_of_two() && (512..=65_536).contains(&bytes)
}

/// Opens a regular file: a FIFO of that name would be waited for.
fn open(path: &Path) -> Option<File> {
    std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    File::open(path).ok()
}

/// Fills `to`; says whether there was as much.
fn fill(from: &mut impl Read, to: &mut [u8]) -> bool {
    from.read_exact(to).is_ok()
}

/// The running checksum of a WAL.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Checksum {
    sums: [u32; 2],
    is_big_endian: bool,
}

impl Checksum {
    fn add(&mut self, bytes: &[u8]) {
        let [mut s0, mut s1] = self.sums;
        let (words, _) = bytes.as_chunks::<4>();
        let (pairs, _) = words.as_chunks::<2>();
        for [first, second] in pairs {
            let number = |word: &[u8; 4]| {
                if self.is_big_endian { u32::from_be_bytes(*word) } else { u32::from_le_bytes(*word) }
            };
            s0 = s0.wrapping_add(number(first)).wrapping_add(s1);
            s1 = s1.wrapping_add(number(second)).wrapping_add(s0);
        }
        self.sums = [s0, s1];
    }

    fn is(&self, bytes: &[u8], at: usize) -> bool {
        [number32(bytes, at), number32(bytes, at + 4)] == self.sums.map(Some)
    }
}

/// What counts of a WAL. `Ok(None)`: nothing does. `Err`: nothing can, and why.
pub(super) fn wal(path: &Path) -> Result<Option<Overlay>, String> {
    let Some(file) = open(path) else { return Ok(None) };
    let mut from = BufReader::with_capacity(1 << 20, &file);
    let mut header = [0; WAL_HEADER];
    if !fill(&mut from, &mut header) {
        return Ok(None);
    }
    if header.iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    let number = |at| number32(&header, at).unwrap_or(0);
    let damaged = || Err("the header of the -wal is damaged: no commit in it counts".to_owned());
    if number(0) & !1 != WAL_MAGIC || number(4) != WAL_VERSION || !is_page_size(number(8)) {
        return damaged();
    }
    let mut sum = Checksum { sums: [0; 2], is_big_endian: number(0) & 1 == 1 };
    sum.add(header.get(..24).unwrap_or_default());
    if !sum.is(&header, 24) {
        return damaged();
    }
    let page_size = number(8) as usize;
    let salts = header.get(16..24).unwrap_or_default();

    let mut frame = vec![0; FRAME_HEADER + page_size];
    let (mut at, mut pages) = (HashMap::new(), 0);
    let mut pending = Vec::new();
    let mut cut_off = None;
    let mut place = WAL_HEADER as u64;
    let mut count = 0u64;
    while fill(&mut from, &mut frame) {
        let (head, content) = frame.split_at(FRAME_HEADER);
        // A frame with other salts is of an earlier round.
        if head.get(8..16) != Some(salts) {
            break;
        }
        count += 1;
        sum.add(head.get(..8).unwrap_or_default());
        sum.add(content);
        let page = number32(head, 0).unwrap_or(0);
        if page == 0 || !sum.is(head, 16) {
            cut_off = Some(format!("frame {count} of the -wal is damaged: it and all after it do not count"));
            break;
        }
        pending.push((page, place + FRAME_HEADER as u64));
        place += frame.len() as u64;
        if let Some(size @ 1..) = number32(head, 4) {
            pages = size;
            at.extend(pending.drain(..));
        }
    }
    drop(from);
    if at.is_empty() {
        return cut_off.map_or(Ok(None), Err);
    }
    Ok(Some(Overlay { file, page_size, at, pages, cut_off }))
}

/// What a rollback journal would put back. `None`: nothing.
pub(super) fn journal(path: &Path) -> Option<Overlay> {
    let file = open(path)?;
    let size = file.metadata().ok()?.len();
    let mut at = HashMap::new();
    let (mut pages, mut page_size, mut place) = (None, 0, 0u64);
    while let Some(header) = read_at(&file, place, JOURNAL_HEADER)
        && header.starts_with(JOURNAL_MAGIC)
    {
        let number = |at| number32(&header, at).unwrap_or(0);
        let (records, nonce, sector) = (number(8), number(12), u64::from(number(20)));
        if pages.is_none() {
            pages = Some(number(16));
            page_size = number(24);
        }
        if !is_page_size(page_size) || !(32..=65_536).contains(&sector) {
            return None;
        }
        place += sector;
        let length = u64::from(page_size) + 8;
        let there = size.saturating_sub(place) / length;
        let records = if records == u32::MAX { there } else { u64::from(records).min(there) };
        for _ in 0..records {
            let record = read_at(&file, place, length as usize)?;
            let page = number32(&record, 0).unwrap_or(0);
            let (content, sum) = record.get(4..)?.split_at_checked(page_size as usize)?;
            let tested =
                (1..).map(|n| content.len().checked_sub(200 * n)).map_while(|at| at.filter(|at| *at > 0));
            let expected = tested
                .filter_map(|at| content.get(at))
                .fold(nonce, |sum, byte| sum.wrapping_add(u32::from(*byte)));
            if page == 0 || number32(sum, 0) != Some(expected) {
                return finished(file, page_size, at, pages);
            }
            at.entry(page).or_insert(place + 4);
            place += length;
        }
        if records == 0 {
            break;
        }
        place = place.next_multiple_of(sector);
    }
    finished(file, page_size, at, pages)
}

fn finished(file: File, page_size: u32, at: HashMap<u32, u64>, pages: Option<u32>) -> Option<Overlay> {
    let pages = pages.filter(|_| !at.is_empty())?;
    Some(Overlay { file, page_size: page_size as usize, at, pages, cut_off: None })
}

/// So many bytes of a file; `None` if they are not there, or cannot be read.
pub(super) fn read_at(file: &File, at: u64, length: usize) -> Option<Vec<u8>> {
    use std::os::unix::fs::FileExt;
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, at).ok()?;
    Some(bytes)
}
