//! Recovery of randomly damaged stores, with damage in the file, in its WAL or in its rollback
//! journal. No row may be saved that never existed, and `is_whole` may be true only if all rows are
//! present.
//!
//! `KVSTORE_RECOVER_ROUNDS` is the number of damaged stores, `KVSTORE_RECOVER_SEED` selects them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::common::recovered::{Done, LATER, Rows, number32, quick, recover, rows_of};
use crate::common::{Random, Scratch};
use kvstore::{CheckpointMode, Config, ErrorKind, Expiry, Family, JournalMode, Store};

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().expect("a number"))
}

/// A family, and a key in it.
type Place = (String, Vec<u8>);
/// A value, and the expiry time of its row.
type Row = (Vec<u8>, Option<i64>);

/// Log files next to the file of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Log {
    None,
    Wal,
    Journal,
}

/// A store as it is on disk, and its content.
struct Model {
    page: usize,
    log: Log,
    file: Vec<u8>,
    beside: Vec<u8>,
    rows: Rows,
    /// Everything that the store ever contained, including data of an unfinished transaction.
    ever: BTreeMap<Place, BTreeSet<Row>>,
}

fn value(random: &mut Random) -> Vec<u8> {
    let size = match random.below(20) {
        0..=13 => random.below(40),
        14..=16 => 70 + random.below(250),
        17 | 18 => 400 + random.below(1500),
        _ => 3000 + random.below(6000),
    };
    (0..size).map(|_| random.below(256) as u8).collect()
}

fn write(family: &Family, at: usize, random: &mut Random) {
    // Each family has its own keys, so that a row in the wrong family is detected.
    let key = format!("{at} key {:04}", random.below(160));
    match random.below(8) {
        0 => drop(family.delete(key).unwrap()),
        1..=3 => {
            let end = Expiry::At(LATER + random.below(1000) as i64);
            family.put_with_expiry(key, value(random), end).unwrap();
        }
        _ => family.put(key, value(random)).unwrap(),
    }
}

impl Model {
    fn new(log: Log, page: usize, seed: u64) -> Model {
        let mut random = Random(seed);
        let scratch = Scratch::new();
        let mode = if log == Log::Journal { JournalMode::Delete } else { JournalMode::Wal };
        let config = Config::new().page_size(page as u32).journal_mode(mode).cache_pages(4);
        let store = scratch.open_with(&config);
        let mut model = Model {
            page,
            log,
            file: Vec::new(),
            beside: Vec::new(),
            rows: Rows::new(),
            ever: BTreeMap::new(),
        };
        let dropped = store.create_family("dropped").unwrap();
        (0..60).for_each(|_| write(&dropped, 8, &mut random));
        drop(dropped);
        store.create_family("few").unwrap().put("7 few", "few").unwrap();
        let tracked = store.create_family("Tracked").unwrap();
        tracked.set_write_tracking(true).unwrap();
        let families = [store.default_family().clone(), tracked, store.create_family("third").unwrap()];
        let mut commits = |store: &Store, count: usize, model: &mut Model| {
            for _ in 0..count {
                let changes = 1 + random.below(12);
                store
                    .transaction(|_| -> kvstore::Result<()> {
                        for _ in 0..changes {
                            let at = random.below(3) as usize;
                            write(&families[at], at, &mut random);
                        }
                        Ok(())
                    })
                    .unwrap();
                model.note(store);
            }
        };
        commits(&store, 60, &mut model);
        store.drop_family("dropped").unwrap();
        commits(&store, 2, &mut model);
        match log {
            Log::None => {}
            Log::Wal => {
                store.checkpoint(CheckpointMode::Restart).unwrap();
                commits(&store, 8, &mut model);
            }
            Log::Journal => {
                store.begin_write().unwrap();
                for _ in 0..60 {
                    let at = random.below(3) as usize;
                    write(&families[at], at, &mut random);
                    let key = format!("{at} new {:04}", random.below(1000));
                    families[at].put(key, value(&mut random)).unwrap();
                    model.note(&store);
                }
            }
        }
        let read = |path: &Path| fs::read(path).unwrap_or_default();
        if log == Log::None {
            store.close().unwrap();
            model.rows = rows_of(&scratch.open());
        }
        model.file = read(&scratch.path());
        model.beside = match log {
            Log::None => Vec::new(),
            Log::Wal => read(&scratch.wal()),
            Log::Journal => read(&scratch.file("store.db-journal")),
        };
        if log == Log::Journal {
            store.rollback().unwrap();
        }
        if log != Log::None {
            model.rows = rows_of(&store);
            assert!(model.beside.len() > 3000, "{log:?}: {} bytes", model.beside.len());
        }
        model
    }

    fn note(&mut self, store: &Store) {
        for (place, row) in rows_of(store) {
            self.ever.entry(place).or_default().insert(row);
        }
    }

    /// Returns the content of the file after its log was applied.
    fn whole(&self) -> Vec<u8> {
        let mut file = self.file.clone();
        for part in parts(self) {
            let (head, bytes) = self.beside[part].split_at(if self.log == Log::Wal { 24 } else { 4 });
            let at = (number32(head, 0) - 1) * self.page;
            file.resize(file.len().max(at + self.page), 0);
            file[at..at + self.page].copy_from_slice(&bytes[..self.page]);
        }
        if self.log == Log::Journal {
            file.truncate(number32(&self.beside, 16) * self.page);
        }
        file
    }

    /// Returns the pages on the free list.
    fn free(&self) -> BTreeSet<usize> {
        let file = self.whole();
        let mut free = BTreeSet::new();
        let mut trunk = number32(&file, 32);
        while trunk != 0 {
            free.insert(trunk);
            let page = &file[(trunk - 1) * self.page..][..self.page];
            free.extend((0..number32(page, 4)).map(|at| number32(page, 8 + 4 * at)));
            trunk = number32(page, 0);
        }
        free
    }
}

/// Damage done to a store.
#[derive(Debug, Default)]
struct Damage {
    told: Vec<String>,
    /// Number of rows that may have changed bytes undetected.
    changed: usize,
    /// Earlier rows may be present, if a loss is reported.
    is_of_log: bool,
}

/// Returns the ranges of the valid frames of a WAL, or of the records of a journal.
fn parts(model: &Model) -> Vec<std::ops::Range<usize>> {
    let (bytes, page) = (&model.beside, model.page);
    match model.log {
        Log::None => Vec::new(),
        Log::Wal => {
            let frames = (32..bytes.len()).step_by(page + 24).map(|at| at..at + page + 24);
            frames
                .take_while(|frame| bytes.get(frame.start + 8..frame.start + 16) == Some(&bytes[16..24]))
                .collect()
        }
        Log::Journal => {
            let (sector, mut parts, mut at) = (number32(bytes, 20), Vec::new(), 0);
            while bytes.len() >= at + 28 && bytes[at..].starts_with(b"\xd9\xd5\x05\xf9") {
                let begin = at + sector;
                let count = number32(bytes, at + 8);
                parts.extend((0..count).map(|n| begin + n * (page + 8)..begin + (n + 1) * (page + 8)));
                at = (begin + count * (page + 8)).next_multiple_of(sector);
            }
            parts.retain(|part| part.end <= bytes.len());
            parts
        }
    }
}

fn damage_file(model: &Model, file: &mut [u8], random: &mut Random, damage: &mut Damage) {
    let page = model.page;
    let any = |random: &mut Random| 1 + random.below(file.len() as u64 / page as u64) as usize;
    let at = any(random);
    let range = (at - 1) * page..at * page;
    // Pages with parts of values have no structure.
    let has_form = |page: &[u8]| matches!(page[0], 2 | 5 | 10 | 13) || page.starts_with(b"SQLite");
    match random.below(5) {
        0 => {
            damage.told.push(format!("page {at} zeroed"));
            damage.changed += usize::from(!has_form(&file[range.clone()]));
            file[range].fill(0);
        }
        1 => {
            let byte = range.start + random.below(page as u64) as usize;
            file[byte] ^= 1 << random.below(8);
            damage.told.push(format!("a bit of byte {} of page {at}", byte % page));
            damage.changed += 1;
        }
        _ => {
            let from = any(random);
            // An older version of a page, if it equals no other page, cannot be distinguished from
            // the current one.
            let bytes = &model.file[(from - 1) * page..from * page];
            if model.free().contains(&from)
                || model.whole().get((from - 1) * page..from * page) != Some(bytes)
            {
                return;
            }
            damage.told.push(format!("page {from} over page {at}"));
            let both = [from, at].map(|number| has_form(&file[(number - 1) * page..number * page]));
            damage.changed += usize::from(both == [false, false]);
            file.copy_within((from - 1) * page..from * page, range.start);
        }
    }
}

fn damage_log(model: &Model, log: &mut Vec<u8>, random: &mut Random, damage: &mut Damage) {
    damage.is_of_log = true;
    let parts = parts(model);
    // If the last frame is missing, nothing shows that there was a commit.
    let part = parts[random.below(parts.len() as u64 - 1) as usize].clone();
    match random.below(5) {
        0 => {
            damage.told.push(format!("the bytes {part:?} of the {:?} zeroed", model.log));
            log[part].fill(0);
        }
        1 => {
            let from = parts[random.below(parts.len() as u64) as usize].clone();
            damage.told.push(format!("the bytes {from:?} of the {:?} over {part:?}", model.log));
            log.copy_within(from, part.start);
        }
        2 if model.log == Log::Journal => {
            log.truncate(part.start + 5 + random.below(part.len() as u64 - 6) as usize);
            damage.told.push(format!("the {:?} cut to {}", model.log, log.len()));
        }
        _ => {
            let header = if model.log == Log::Wal { 0..32 } else { 0..28 };
            let within = if random.below(4) == 0 { header } else { part.clone() };
            let mut byte = within.start + random.below(within.len() as u64) as usize;
            // Only a record of a journal itself states which page it belongs to.
            if model.log == Log::Journal && within == part {
                byte = byte.max(part.start + 4);
            }
            log[byte] ^= 1 << random.below(8);
            damage.told.push(format!("a bit of byte {byte} of the {:?}, in {within:?}", model.log));
            damage.changed += usize::from(model.log == Log::Journal);
        }
    }
}

/// Checks everything that must hold for a recovered store, whatever was damaged.
#[track_caller]
fn check(model: &Model, damage: &Damage, done: &Done, what: &str) {
    let is_whole = done.recovered.is_complete();
    let is_page_unknown = done.told.iter().any(|line| line.contains("it is not known which"));
    let place_of = |(family, key): &Place| {
        // The name of the family may be lost.
        let names = [("0", "default"), ("1", "Tracked"), ("2", "third"), ("7", "few")];
        let known = key.get(..1).and_then(|digit| names.iter().find(|(of, _)| of.as_bytes() == digit));
        let is_named = !family.starts_with("recovered-");
        (known.filter(|_| !is_named).map_or(family.clone(), |(_, name)| (*name).to_owned()), key.clone())
    };
    let mut other = Vec::new();
    let mut found = BTreeSet::new();
    for (place, row) in &done.rows {
        let place = place_of(place);
        let was_there = if damage.is_of_log && !is_whole {
            let ever = |place: &Place| model.ever.get(place).is_some_and(|rows| rows.contains(row));
            // If it is unknown which page was not rolled back, that may be a page with a large
            // value or a part of one, or rows of another family that reused the page.
            let is_of_any = || {
                let mut families = ["default", "Tracked", "third"].into_iter();
                row.0.len() > 64 || families.any(|family| ever(&(family.to_owned(), place.1.clone())))
            };
            ever(&place) || is_page_unknown && is_of_any()
        } else {
            model.rows.get(&place) == Some(row)
        };
        if was_there {
            found.insert(place);
        } else {
            other.push(format!("{} {} of {} bytes", place.0, place.1.escape_ascii(), row.0.len()));
        }
    }
    assert!(other.len() <= damage.changed, "{what}: {other:?} were not there: {:?}", done.told);
    let missing = model.rows.keys().filter(|place| !found.contains(*place)).count();
    assert!(!is_whole || missing <= other.len(), "{what}: {missing} rows are missing, and nothing is said");
}

#[test]
fn random_damage_invents_no_row_and_hides_no_loss() {
    let (rounds, seed) = (number("KVSTORE_RECOVER_ROUNDS", 300), number("KVSTORE_RECOVER_SEED", 1));
    let mut models = Vec::new();
    for (at, log) in [Log::None, Log::Wal, Log::Journal].into_iter().enumerate() {
        for page in [512, 1024] {
            models.push(Model::new(log, page, seed * 100 + at as u64 + page as u64));
        }
    }
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let dir = tempfile::tempdir_in(quick()).unwrap();
    for (n, model) in models.iter().enumerate() {
        for (name, suffix) in [(Log::Wal, "-wal"), (Log::Journal, "-journal")] {
            if name == model.log {
                fs::write(dir.path().join(format!("{n}{suffix}")), &model.beside).unwrap();
            }
        }
        fs::write(dir.path().join(n.to_string()), &model.file).unwrap();
        let done = recover(&dir.path().join(n.to_string())).unwrap();
        assert!(done.recovered.is_complete() && done.rows == model.rows, "{:?}: {:?}", model.log, done.told);
    }
    for round in 0..rounds {
        let model = &models[random.below(models.len() as u64) as usize];
        let (mut file, mut log, mut damage) = (model.file.clone(), model.beside.clone(), Damage::default());
        if model.log != Log::None && random.below(3) > 0 {
            damage_log(model, &mut log, &mut random, &mut damage);
        } else {
            damage_file(model, &mut file, &mut random, &mut damage);
        }
        let path = dir.path().join("damaged");
        fs::write(&path, &file).unwrap();
        for (of, suffix) in [(Log::Wal, "-wal"), (Log::Journal, "-journal")] {
            let beside = dir.path().join(format!("damaged{suffix}"));
            if of == model.log { fs::write(beside, &log).unwrap() } else { drop(fs::remove_file(beside)) }
        }
        let what =
            format!("seed {seed}, round {round}: {:?} pages of {}: {:?}", model.log, model.page, damage.told);
        match recover(&path) {
            Ok(done) => check(model, &damage, &done, &what),
            Err(e) => assert_eq!(e.kind(), ErrorKind::NotADatabase, "{what}: {e}"),
        }
    }
}
