//! Log files whose pages replace those of the database, and the reader of the WAL up to its last
//! complete commit (SQLite's fileformat2.html, chapter 4). [`super::journal`] reads the rollback
//! journal.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use super::page::number32;
use crate::backend;

/// Pages in a log file (a WAL or a rollback journal), which replace those in the database file.
pub(super) struct Overlay {
    pub(super) file: File,
    pub(super) page_size: usize,
    /// Offset of the content of each page in the log file, in bytes.
    pub(super) at: HashMap<u32, u64>,
    /// Number of pages of the database, according to the log file.
    pub(super) pages: u32,
    /// Pages that the log file should contain, but that cannot be read.
    pub(super) lost: HashSet<u32>,
    /// Descriptions of the damage of the log file.
    pub(super) notes: Vec<String>,
}

const WAL_HEADER: usize = 32;
const FRAME_HEADER: usize = 24;
const WAL_MAGIC: u32 = 0x377f_0682;
const WAL_VERSION: u32 = 3_007_000;

/// Returns `true` if SQLite allows this page size.
pub(super) fn is_page_size(bytes: u32) -> bool {
    bytes.is_power_of_two() && (512..=65_536).contains(&bytes)
}

/// Opens a file for reading; `None` if it cannot be opened or is not a regular file. Opening a FIFO
/// would wait for a writer.
pub(super) fn open(path: &Path) -> Option<File> {
    std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    File::open(path).ok()
}

/// Fills `to` from the input. Returns `false` if the input has fewer bytes, or if reading fails.
fn fill(from: &mut impl Read, to: &mut [u8]) -> bool {
    from.read_exact(to).is_ok()
}

/// Running checksum over the frames of a WAL.
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

/// Frame of a WAL whose checksum has not been confirmed yet, by itself or by a later frame.
struct Frame {
    page: u32,
    place: u64,
    /// Number of pages of the database after the commit that this frame ends; 0 if it ends none.
    size: u32,
}

/// Returns the valid pages of a WAL. `Ok(None)` means that the WAL has no valid pages and nothing
/// is lost. `Err` means that it has none and something is lost; the text describes the loss.
///
/// Each checksum covers everything before it in the WAL. So a correct checksum proves that all
/// frames up to it are complete, even those whose own checksum or salts are damaged. Nothing is
/// known about the frames after the last correct checksum. Frames with other salts are left from
/// before the last restart of the WAL. Frames after the last commit belong to an unfinished
/// transaction. But a frame after the last correct checksum that has the current salts and ends a
/// commit shows that a commit is lost.
pub(super) fn wal(path: &Path) -> Result<Option<Overlay>, String> {
    let Some(file) = open(path) else { return Ok(None) };
    let mut from = BufReader::with_capacity(1 << 20, &file);
    let mut header = [0; WAL_HEADER];
    let damaged = || Err("the header of the -wal is damaged: what was committed in it is lost".to_owned());
    if !fill(&mut from, &mut header) {
        // The file is too short to contain a commit, but a longer file may have been truncated.
        return if file.metadata().is_ok_and(|found| found.len() == 0) { Ok(None) } else { damaged() };
    }
    if header.iter().all(|byte| *byte == 0) {
        // A file with only zeros is space that was reserved for a WAL.
        return if is_zero(&mut from) { Ok(None) } else { damaged() };
    }
    let number = |at| number32(&header, at).unwrap_or(0);
    if number(0) & !1 != WAL_MAGIC || number(4) != WAL_VERSION || !is_page_size(number(8)) {
        return damaged();
    }
    let mut sum = Checksum { sums: [0; 2], is_big_endian: number(0) & 1 == 1 };
    sum.add(header.get(..24).unwrap_or_default());
    let is_header_sound = sum.is(&header, 24);
    let page_size = number(8) as usize;
    let salts = header.get(16..24).unwrap_or_default();

    let mut frame = vec![0; FRAME_HEADER + page_size];
    let (mut at, mut pages) = (HashMap::new(), 0);
    let (mut unproven, mut pending) = (Vec::new(), Vec::new());
    let (mut count, mut proven, mut last_lost) = (0u64, 0u64, None);
    loop {
        // Only the header of a truncated frame is used.
        let there = fill_up(&mut from, &mut frame);
        let Some((head, content)) = frame.split_at_checked(FRAME_HEADER).filter(|_| there >= FRAME_HEADER)
        else {
            break;
        };
        let place = WAL_HEADER as u64 + count * frame.len() as u64 + FRAME_HEADER as u64;
        count += 1;
        let number = |at| number32(head, at).unwrap_or(0);
        let size = number(4);
        sum.add(head.get(..8).unwrap_or_default());
        sum.add(content);
        unproven.push(Frame { page: number(0), place, size });
        if there == frame.len() && sum.is(head, 16) {
            proven = count;
            last_lost = None;
            for frame in unproven.drain(..) {
                pending.push((frame.page, frame.place));
                if frame.size > 0 {
                    pages = frame.size;
                    at.extend(pending.drain(..));
                }
            }
        } else if head.get(8..16) == Some(salts) && size > 0 {
            last_lost = Some(count);
        }
        if there < frame.len() {
            break;
        }
    }
    drop(from);
    if !is_header_sound && proven == 0 {
        return damaged();
    }
    let note = last_lost.map(|last| {
        format!(
            "the -wal is damaged after frame {proven}: what was committed in the {} frames up to frame {last} is lost",
            last - proven
        )
    });
    if at.is_empty() {
        return note.map_or(Ok(None), Err);
    }
    Ok(Some(Overlay { file, page_size, at, pages, lost: HashSet::new(), notes: note.into_iter().collect() }))
}

/// Fills `to` from the input, until the input ends or reading fails. Returns the number of bytes
/// read.
fn fill_up(from: &mut impl Read, to: &mut [u8]) -> usize {
    let mut filled = 0;
    while let Some(rest) = to.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match from.read(rest) {
            Ok(0) => break,
            Ok(more) => filled += more,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    filled
}

/// Returns `true` if all remaining bytes of the file are zeros.
fn is_zero(from: &mut impl Read) -> bool {
    let mut bytes = vec![0; 1 << 16];
    loop {
        match fill_up(from, &mut bytes) {
            0 => return true,
            there if bytes.iter().take(there).any(|byte| *byte != 0) => return false,
            _ => {}
        }
    }
}

/// Reads `length` bytes of a file from the offset `at`. Returns `None` if the file has fewer bytes,
/// or if reading fails.
pub(super) fn read_at(file: &File, at: u64, length: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; length];
    backend::read_exact_at(file, &mut bytes, at).ok()?;
    Some(bytes)
}
