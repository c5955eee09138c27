//! Changes to the bytes of a file. They are numbered, so that each can be repeated.

use super::files::Pages;

/// A change of a file: these bytes at these places, and this length.
#[derive(Debug, Default, Clone)]
pub struct Edit {
    bytes: Vec<(usize, Vec<u8>)>,
    cut: Option<usize>,
}

impl Edit {
    pub fn apply(&self, file: &mut Vec<u8>) {
        for (at, bytes) in &self.bytes {
            // An edit of the last bytes of a file can be longer than what is there.
            let end = (at + bytes.len()).min(file.len());
            if let Some(there) = file.get_mut(*at..end) {
                there.copy_from_slice(&bytes[..there.len()]);
            }
        }
        file.truncate(self.cut.unwrap_or(usize::MAX));
    }
}

/// Text for failure messages: the positions and the bytes.
impl std::fmt::Display for Edit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (at, bytes) in self.bytes.iter().take(4) {
            write!(
                f,
                "[{at}] = {:02x?}{} ",
                &bytes[..bytes.len().min(8)],
                if bytes.len() > 8 { ".." } else { "" }
            )?;
        }
        self.cut.map_or(Ok(()), |cut| write!(f, "cut to {cut}"))
    }
}

fn at(place: usize, bytes: impl Into<Vec<u8>>) -> Edit {
    Edit { bytes: vec![(place, bytes.into())], cut: None }
}

fn cut(length: usize) -> Edit {
    Edit { bytes: Vec::new(), cut: Some(length) }
}

/// Up to this offset every byte is changed; after it, one byte in `STRIDE`.
const EVERY_BYTE: usize = 64 * 1024;
const STRIDE: usize = 211;
/// Number of changes per byte: each bit, and some boundary values.
const VALUES: usize = 12;

/// Number of changes to single bytes.
pub fn flips(file: &[u8]) -> usize {
    let after = file.len().saturating_sub(EVERY_BYTE) / STRIDE;
    (file.len().min(EVERY_BYTE) + after) * VALUES
}

pub fn flip(file: &[u8], n: usize) -> Edit {
    let byte = n / VALUES;
    let place = if byte < EVERY_BYTE { byte } else { EVERY_BYTE + (byte - EVERY_BYTE) * STRIDE };
    let new = match n % VALUES {
        bit @ ..8 => file[place] ^ 1 << bit,
        other => [0, 0xFF, 0x7F, 0x80][other - 8],
    };
    at(place, [new])
}

/// Truncation at each page boundary, and in the middle of pages.
pub fn cuts(file: &[u8]) -> Vec<Edit> {
    let pages = Pages::of(file);
    let edges = (0..=pages.count).map(|page| page * pages.size);
    let near =
        edges.flat_map(|edge| [edge, edge + 1, edge + pages.size / 2, (edge + pages.size).saturating_sub(1)]);
    near.chain([1, 15, 16, 99, 100, 107, 108]).filter(|length| *length < file.len()).map(cut).collect()
}

/// Pages copied over other pages, which makes cycles, shared children, and trees of other tables.
pub fn moved_pages(file: &[u8]) -> Vec<Edit> {
    let pages = Pages::of(file);
    let page = |n: usize| file[n * pages.size..][..pages.size].to_vec();
    let mut edits = Vec::new();
    // The distance from page to page grows, so that each kind of page replaces each other kind.
    for from in 0..pages.count {
        for step in [1, 2, 3, 5, 8, 13, 21, 34, 55, 89].into_iter().filter(|step| *step < pages.count) {
            let to = (from + step) % pages.count;
            edits.push(at(to * pages.size, page(from)));
            if from > 0 && to > 0 {
                edits.push(Edit {
                    bytes: vec![(to * pages.size, page(from)), (from * pages.size, page(to))],
                    cut: None,
                });
            }
        }
        edits.push(at(from * pages.size, vec![0; pages.size]));
        edits.push(at(from * pages.size, vec![0xFF; pages.size]));
    }
    edits
}

/// Page numbers for a pointer: zero, the first page, the page itself, the lock page, pages past the
/// end, and one page of each kind.
fn targets(pages: &Pages, own: usize) -> Vec<u32> {
    let lock = (1 << 30) / pages.size + 1;
    let sorts = [&pages.interior, &pages.leaves, &pages.others];
    let of_sorts =
        sorts.iter().flat_map(|sort| [0, 1, 3, 7, 11].map(|n| sort.get(n * sort.len() / 12).copied()));
    [0, 1, own + 1, lock, pages.count + 1, pages.count, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFE, 0xFFFF_FFFF]
        .into_iter()
        .chain(of_sorts.flatten().map(|page| page + 1))
        .map(|number| u32::try_from(number).unwrap())
        .collect()
}

/// Interior pages that point to other pages.
pub fn children(file: &[u8]) -> Vec<Edit> {
    let pages = Pages::of(file);
    let mut edits = Vec::new();
    for page in pages.interior.iter().copied() {
        let start = page * pages.size;
        let pointers: Vec<usize> = pages
            .cells(file, page)
            .iter()
            .map(|(_, cell)| start + cell)
            .chain([pages.header(page) + 8])
            .collect();
        for target in targets(&pages, page) {
            edits.extend(pointers.iter().map(|pointer| at(*pointer, target.to_be_bytes())));
            // All children the same: as many paths to one page as there are pointers, on each
            // level.
            edits.push(Edit {
                bytes: pointers.iter().map(|pointer| (*pointer, target.to_be_bytes().to_vec())).collect(),
                cut: None,
            });
        }
    }
    edits
}

/// Content of B-tree pages: the fields of the header, the pointers to cells, and the start of each
/// cell.
pub fn cells(file: &[u8]) -> Vec<Edit> {
    let pages = Pages::of(file);
    let mut edits = Vec::new();
    for page in pages.leaves.iter().chain(&pages.interior).copied() {
        let start = pages.header(page);
        let cells = pages.cells(file, page);
        let count = cells.len() as u16;
        edits.extend([0, 2, 5, 10, 13, 0xFF].map(|kind| at(start, [kind])));
        for number in [0, 1, count.wrapping_sub(1), count + 1, count + 9, (pages.size / 6) as u16, 0xFFFF] {
            edits.push(at(start + 3, number.to_be_bytes()));
        }
        for number in [1, 4, 8, 0x7F, 0xFFFF, (pages.size - 1) as u16, (pages.size - 4) as u16] {
            edits.push(at(start + 1, number.to_be_bytes()));
            edits.push(at(start + 5, number.to_be_bytes()));
        }
        edits.push(at(start + 7, [0xFF]));

        // Keys out of order, and duplicate keys.
        let pointers = |order: &dyn Fn(usize) -> usize| Edit {
            bytes: (0..cells.len())
                .map(|n| (cells[n].0, (cells[order(n)].1 as u16).to_be_bytes().to_vec()))
                .collect(),
            cut: None,
        };
        if cells.len() > 1 {
            edits.push(pointers(&|n| cells.len() - 1 - n));
            edits.push(pointers(&|n| (n + 1) % cells.len()));
            edits.push(pointers(&|n| n / 2));
            edits.push(pointers(&|_| 0));
        }
        let head = if pages.interior.contains(&page) { 4 } else { 0 };
        for (n, (pointer, cell)) in cells.iter().copied().enumerate() {
            let near = [0, 1, 7, pages.size - 1, pages.size - 3, 0xFFFF, cell + 1, cell.wrapping_sub(1)];
            edits.extend(near.map(|offset| at(pointer, (offset as u16).to_be_bytes())));
            // All cells of a page are alike, so a part of them is enough for long pages.
            if n > 8 && n % 8 != 0 {
                continue;
            }
            let cell = page * pages.size + cell + head;
            for byte in 0..8 {
                edits.extend(
                    [0, 1, 3, 5, 7, 11, 12, 13, 0x7F, 0x80, 0xFF].map(|value| at(cell + byte, [value])),
                );
            }
            for size in
                [&[0x83, 0x00][..], &[0xFF, 0x7F], &[0xFF, 0xFF, 0x7F], &[0x87, 0xFF, 0xFF, 0xFF, 0x7F]]
            {
                edits.push(at(cell, size));
            }
            edits.push(at(cell, [0xFF; 9]));
            // The start of the key, after the usual lengths.
            edits.extend([0, 0xFF].map(|value| at(cell + 5, [value; 6])));
        }
    }
    edits
}

/// Pages outside of trees: overflow chains, the free list, the pointer map.
pub fn chains(file: &[u8]) -> Vec<Edit> {
    let pages = Pages::of(file);
    let mut edits = Vec::new();
    for page in pages.others.iter().copied() {
        for target in targets(&pages, page) {
            // The next page; the number of free pages on this one, and the first of them.
            edits.extend([0, 4, 8].map(|place| at(page * pages.size + place, target.to_be_bytes())));
        }
    }
    // The pointer map begins on the second page: a type and a page for each page after it.
    for entry in 0..pages.count.min(pages.size / 5) {
        edits.extend([0, 1, 2, 3, 4, 5, 6, 0xFF].map(|kind| at(pages.size + 5 * entry, [kind])));
        edits.push(at(pages.size + 5 * entry + 1, [0xFF; 4]));
        edits.push(at(pages.size + 5 * entry + 1, ((entry % pages.count) as u32 + 3).to_be_bytes()));
    }
    edits
}

/// The header of the file.
pub fn header(file: &[u8]) -> Vec<Edit> {
    let pages = Pages::of(file);
    let mut edits = Vec::new();
    for size in [0_u16, 1, 2, 3, 256, 511, 512, 513, 1024, 4096, 8192, 32_768, 65_535] {
        edits.push(at(16, size.to_be_bytes()));
    }
    for place in [18, 19] {
        edits.extend([0, 1, 2, 3, 0x7F, 0xFF].map(|version| at(place, [version])));
    }
    edits.extend([1_u8, 8, 12, 16, 31, 32, 33, 64, 128, 255].map(|reserved| at(20, [reserved])));
    edits.extend([21, 22, 23].into_iter().flat_map(|place| [0, 1, 0xFF].map(|value| at(place, [value]))));
    let numbers = targets(&pages, 0).into_iter().chain([2, 3, 4, 5000, 100_000]);
    for number in numbers {
        // Changes, pages, free list and its length, cookie, format, cache, greatest root, encoding, version,
        // incremental vacuum, application, valid for, SQLite's version.
        for place in [24, 28, 32, 36, 40, 44, 48, 52, 56, 60, 64, 68, 92, 96] {
            edits.push(at(place, number.to_be_bytes()));
            // The field that makes SQLite trust the stored number of pages.
            edits.push(Edit {
                bytes: vec![(place, number.to_be_bytes().to_vec()), (92, file[24..28].to_vec())],
                cut: None,
            });
        }
    }
    // No auto-vacuum, with any number of free pages.
    for free in [3_u32, 1_500, 100_000, 0xFFFF_FFFF] {
        edits.push(Edit { bytes: vec![(52, vec![0; 4]), (36, free.to_be_bytes().to_vec())], cut: None });
    }
    edits
}

/// A WAL: its header, the headers of its frames, some bytes of their pages, and its length.
pub fn wal(wal: &[u8], page_size: usize) -> Vec<Edit> {
    const HEADER: usize = 32;
    const FRAME: usize = 24;
    let mut edits = Vec::new();
    let change = |place: usize| [0x01, 0x80, 0xFF].map(|bits| at(place, [wal[place] ^ bits]));
    edits.extend((0..HEADER).flat_map(change));
    let frames = (wal.len() - HEADER) / (FRAME + page_size);
    for frame in 0..frames {
        let start = HEADER + frame * (FRAME + page_size);
        edits.extend((start..start + FRAME).flat_map(change));
        edits.extend((start + FRAME..start + FRAME + page_size).step_by(page_size / 5).flat_map(change));
        edits.extend([0, 1, 23, 24, 25, FRAME + page_size / 2].map(|length| cut(start + length)));
    }
    edits.extend([0, 1, 31, 32].map(cut));
    edits
}
