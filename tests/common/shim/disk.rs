//! State of a disk after a power cut, computed from the log of changes and the syncs in it.
//!
//! - Data covered by a sync of the file (or, for names, of the directory) is present.
//! - Of unsynced writes, each sector of 512 bytes has any of the contents it had since the last
//!   sync, and the file has any of its sizes. Bytes that were never written, or were cut off, are
//!   zeros.
//! - A new name lasts from the first sync of its file or of the directory. Unsynced changes of
//!   names reach the disk in order, up to some point.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::{Event, Id};

const SECTOR: usize = 512;

/// Pseudo-random numbers, always the same for a seed (splitmix64).
#[derive(Debug, Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    pub fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(n.max(1)).unwrap()).unwrap()
    }
}

/// Which unsynced changes are on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Nothing.
    Synced,
    /// Everything.
    Written,
    /// Everything, but writes are torn at a sector boundary: of the last one and of some earlier
    /// ones, only the first part is written.
    TornFirst(u64),
    /// Like `TornFirst`, but only the last part is written.
    TornLast(u64),
    /// A random choice for each sector.
    Random(u64),
}

#[derive(Clone)]
enum Change {
    Write(u64, Vec<u8>),
    Truncate(u64),
}

#[derive(Clone, Default)]
struct Content {
    synced: Vec<u8>,
    unsynced: Vec<Change>,
}

#[derive(Clone)]
enum Naming {
    Give(Id, String),
    Take(String),
}

/// State of the disk up to some point of the log.
#[derive(Clone, Default)]
pub struct Disk {
    contents: BTreeMap<Id, Content>,
    names: BTreeMap<String, Id>,
    unsynced_names: Vec<Naming>,
    /// The wal-index at the last mark.
    pub index: Vec<u8>,
}

impl Disk {
    /// Creates a disk with the files of a directory.
    pub fn holding(dir: &Path) -> Disk {
        let mut disk = Disk::default();
        for (id, name) in super::names(dir).into_iter().enumerate() {
            let synced = fs::read(dir.join(&name)).unwrap();
            disk.contents.insert(id, Content { synced, unsynced: Vec::new() });
            disk.names.insert(name, id);
        }
        disk
    }

    pub fn happens(&mut self, event: &Event) {
        match event {
            Event::Create(id, name) => {
                self.contents.insert(*id, Content::default());
                self.unsynced_names.push(Naming::Give(*id, name.clone()));
            }
            Event::Link(id, name) => self.unsynced_names.push(Naming::Give(*id, name.clone())),
            Event::Unlink(name) => self.unsynced_names.push(Naming::Take(name.clone())),
            Event::Write(id, at, bytes) => self.change(*id, Change::Write(*at, bytes.clone())),
            Event::Truncate(id, size) => self.change(*id, Change::Truncate(*size)),
            Event::Sync(id) => {
                let content = self.contents.get_mut(id).unwrap();
                for change in std::mem::take(&mut content.unsynced) {
                    change.apply(&mut content.synced);
                }
                // The name under which the file was created, and its changes before that.
                let created =
                    self.unsynced_names.iter().position(|n| matches!(n, Naming::Give(i, _) if i == id));
                if let Some(at) = created
                    && let Naming::Give(id, name) = self.unsynced_names.remove(at)
                {
                    let mut n = 0;
                    self.unsynced_names.retain(|naming| {
                        n += 1;
                        n > at || !matches!(naming, Naming::Give(_, old) | Naming::Take(old) if *old == name)
                    });
                    self.names.insert(name, id);
                }
            }
            Event::Forget(id) => self.contents.get_mut(id).unwrap().unsynced.clear(),
            Event::SyncDirectory => {
                for naming in std::mem::take(&mut self.unsynced_names) {
                    naming.apply(&mut self.names);
                }
            }
            Event::Mark(_, index) => self.index.clone_from(index),
        }
    }

    fn change(&mut self, id: Id, change: Change) {
        self.contents.get_mut(&id).unwrap().unsynced.push(change);
    }

    /// Whether all cuts give the same result.
    pub fn is_synced(&self) -> bool {
        self.unsynced_names.is_empty() && self.contents.values().all(|content| content.unsynced.is_empty())
    }

    /// Creates the files that a power cut at this point leaves, in an empty directory.
    pub fn cut(&self, cut: Cut, dir: &Path) {
        let mut random = Random(match cut {
            Cut::Synced | Cut::Written => 0,
            Cut::TornFirst(seed) | Cut::TornLast(seed) | Cut::Random(seed) => seed,
        });
        let mut names = self.names.clone();
        let renamed = match cut {
            Cut::Synced => 0,
            Cut::Written | Cut::TornFirst(_) | Cut::TornLast(_) => self.unsynced_names.len(),
            Cut::Random(_) => random.below(self.unsynced_names.len() + 1),
        };
        for naming in self.unsynced_names.iter().take(renamed) {
            naming.clone().apply(&mut names);
        }
        for (name, id) in names {
            fs::write(dir.join(name), self.contents[&id].cut(cut, &mut random)).unwrap();
        }
    }
}

impl Naming {
    fn apply(self, names: &mut BTreeMap<String, Id>) {
        match self {
            Naming::Give(id, name) => {
                names.insert(name, id);
            }
            Naming::Take(name) => {
                names.remove(&name);
            }
        }
    }
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Change::Write(at, new) => {
                let at = usize::try_from(*at).unwrap();
                if bytes.len() < at + new.len() {
                    bytes.resize(at + new.len(), 0);
                }
                bytes[at..at + new.len()].copy_from_slice(new);
            }
            Change::Truncate(size) => bytes.resize(usize::try_from(*size).unwrap(), 0),
        }
    }

    /// Returns a write with only the part before or after a sector boundary; other changes
    /// unmodified.
    fn torn(&self, first: bool, random: &mut Random) -> Change {
        let Change::Write(at, bytes) = self else { return self.clone() };
        let start = usize::try_from(*at).unwrap();
        let boundaries: Vec<usize> =
            (1..bytes.len()).filter(|offset| (start + offset).is_multiple_of(SECTOR)).collect();
        if boundaries.is_empty() {
            // Within one sector, a write happens as a whole or not at all.
            return if first { self.clone() } else { Change::Write(*at, Vec::new()) };
        }
        let boundary = boundaries[random.below(boundaries.len())];
        match first {
            true => Change::Write(*at, bytes[..boundary].to_vec()),
            false => Change::Write(at + boundary as u64, bytes[boundary..].to_vec()),
        }
    }
}

impl Content {
    fn cut(&self, cut: Cut, random: &mut Random) -> Vec<u8> {
        let mut bytes = self.synced.clone();
        match cut {
            Cut::Synced => {}
            Cut::Written => self.unsynced.iter().for_each(|change| change.apply(&mut bytes)),
            Cut::TornFirst(_) | Cut::TornLast(_) => {
                let first = matches!(cut, Cut::TornFirst(_));
                for (n, change) in self.unsynced.iter().enumerate() {
                    if n + 1 == self.unsynced.len() || random.below(4) == 0 {
                        change.torn(first, random).apply(&mut bytes);
                    } else {
                        change.apply(&mut bytes);
                    }
                }
            }
            Cut::Random(_) => return self.any(random),
        }
        bytes
    }

    /// Returns content in which each sector has one of the versions that it had.
    fn any(&self, random: &mut Random) -> Vec<u8> {
        let n = self.unsynced.len();
        let mut sizes = vec![self.synced.len()];
        for change in &self.unsynced {
            let size = *sizes.last().unwrap();
            sizes.push(match change {
                Change::Write(at, bytes) => size.max(usize::try_from(*at).unwrap() + bytes.len()),
                Change::Truncate(size) => usize::try_from(*size).unwrap(),
            });
        }
        let longest = *sizes.iter().max().unwrap();
        // A size belongs to the truncation that set it: both have happened, or neither.
        let resized = random.below(n + 1);
        // Mostly new, mostly old, or mixed.
        let bias = random.below(3);
        let changes: Vec<usize> = (0..longest.div_ceil(SECTOR))
            .map(|_| match bias {
                0 if random.below(8) > 0 => n,
                1 if random.below(8) > 0 => 0,
                _ => random.below(n + 1),
            })
            .collect();
        let mut bytes = self.synced.clone();
        bytes.resize(longest, 0);
        for (number, change) in self.unsynced.iter().enumerate() {
            let (start, end) = match change {
                Change::Write(at, new) => {
                    (usize::try_from(*at).unwrap(), usize::try_from(*at).unwrap() + new.len())
                }
                Change::Truncate(size) => (usize::try_from(*size).unwrap(), longest),
            };
            let mut at = start;
            while at < end {
                let next = end.min((at / SECTOR + 1) * SECTOR);
                let there = match change {
                    Change::Write(..) => changes[at / SECTOR] > number,
                    Change::Truncate(_) => resized > number,
                };
                if there {
                    match change {
                        Change::Write(_, new) => {
                            bytes[at..next].copy_from_slice(&new[at - start..next - start])
                        }
                        Change::Truncate(_) => bytes[at..next].fill(0),
                    }
                }
                at = next;
            }
        }
        bytes.truncate(sizes[resized]);
        bytes
    }
}
