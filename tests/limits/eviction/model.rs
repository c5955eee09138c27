//! Random histories of a store with a size limit, against an exact model of the eviction order.
//!
//! The model cannot know how many pages a key takes. So after each write it reads which keys are
//! missing. These must be the first ones in eviction order: none that comes after a key that is
//! still there, none that the write itself has put, and none at all if there was space.

use std::collections::{BTreeMap, BTreeSet};

use kvstore::{Config, ErrorKind, Eviction, Expiry, Family, SizeLimit, Store};

use crate::common::{Random, Scratch, TestClock};

const START: i64 = 1_800_000_000_000;
const FAMILIES: [&str; 3] = ["default", "a", "b"];
const PAGE: u64 = 1024;
const PAGES: u64 = 128;

/// A key of a family.
type Key = (usize, Vec<u8>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Row {
    end: Option<i64>,
    written: i64,
}

#[derive(Clone, Default)]
struct Model {
    rows: BTreeMap<Key, Row>,
    exists: [bool; 3],
}

impl Model {
    /// Position of a row in the eviction order; `None`: it is never evicted.
    fn place(row: Row, eviction: Eviction, now: i64) -> Option<(u8, i64)> {
        match (eviction, row.end) {
            (Eviction::None, _) => None,
            (_, Some(end)) if end <= now => Some((0, end)),
            (Eviction::Soonest, end) => end.map(|end| (1, end)),
            _ => Some((1, row.written)),
        }
    }
}

struct World {
    scratch: Scratch,
    config: Config,
    store: Store,
    clock: TestClock,
    random: Random,
    eviction: Eviction,
    model: Model,
    /// State of the model at the start of the open transaction.
    begun: Option<Model>,
    evicted: u64,
    refused: u64,
}

/// Keys that are in the store, live or expired: all keys with a TTL from the expiry index, and the
/// live keys without one.
fn keys_of(store: &Store, family: usize) -> Vec<Vec<u8>> {
    let family = open(store, family);
    let mut all = Vec::new();
    let mut cursor = family.expiry_cursor(0, i64::MAX);
    let mut there = cursor.first().unwrap();
    while there {
        all.push(cursor.key().unwrap().to_vec());
        there = cursor.next().unwrap();
    }
    all.extend(family.iter().map(|entry| entry.unwrap().0).filter(|key| key[0] == b'p'));
    all
}

fn open(store: &Store, family: usize) -> Family {
    match FAMILIES[family] {
        "default" => store.default_family().clone(),
        name => store.family(name).unwrap(),
    }
}

impl World {
    fn new(config: Config, eviction: Eviction, seed: u64) -> World {
        let scratch = Scratch::new();
        let store = scratch.open_with(&config);
        let clock = TestClock::at(START);
        clock.drive(&store);
        store.set_size_limit(Some(SizeLimit::new(PAGE * PAGES, eviction))).unwrap();
        let model = Model { exists: [true, false, false], ..Model::default() };
        World {
            scratch,
            config,
            store,
            clock,
            random: Random(seed),
            eviction,
            model,
            begun: None,
            evicted: 0,
            refused: 0,
        }
    }

    /// Checks which keys a write has evicted, in addition to its own effect, which the model
    /// already has. `put`: the keys that the write has put.
    fn check(&mut self, done: kvstore::Result<()>, wanted: Model, put: &[Key], may_grow: bool) {
        let now = self.clock.now();
        let refused = done.is_err();
        if let Err(e) = done {
            assert_eq!(e.kind(), ErrorKind::Full, "{e}");
            assert!(may_grow, "what only removes is never refused");
            self.refused += 1;
        } else {
            self.model = wanted;
        }
        let mut there = BTreeSet::new();
        for family in 0..FAMILIES.len() {
            if self.model.exists[family] {
                there.extend(keys_of(&self.store, family).into_iter().map(|key| (family, key)));
            }
        }
        let (mut gone, mut last_gone, mut first_left) = (Vec::new(), None, None);
        for (key, row) in &self.model.rows {
            let place = Model::place(*row, self.eviction, now).filter(|_| !put.contains(key));
            let place = place.map(|place| (place, key.clone()));
            if there.remove(key) {
                first_left = first_left.into_iter().chain(place).min();
            } else {
                let place = place.unwrap_or_else(|| panic!("{key:?}, {row:?} is gone"));
                last_gone = last_gone.max(Some(place));
                gone.push(key.clone());
            }
        }
        assert!(there.is_empty(), "keys that were never put: {there:?}");
        if let (Some((last, last_key)), Some((first, first_key))) = (&last_gone, &first_left) {
            // Within a family the order is that of the index. Between families, keys with the same
            // expiry time have no order.
            let in_order =
                last < first || last == first && (last_key.0 != first_key.0 || last_key < first_key);
            assert!(in_order, "{last_key:?} of {last:?} went before {first_key:?} of {first:?}");
        }
        assert!(gone.is_empty() || may_grow && !refused, "{gone:?} went for nothing");
        for key in &gone {
            self.model.rows.remove(key);
        }
        self.evicted += gone.len() as u64;
        let size = self.store.stats().unwrap().size_bytes;
        assert!(size <= PAGE * PAGES, "{size}");
        assert!(
            gone.is_empty() || size >= PAGE * (PAGES - PAGES / 32 - 24),
            "{} keys went down to {size}",
            gone.len()
        );
        assert!(std::fs::metadata(self.scratch.path()).unwrap().len() <= PAGE * PAGES);
    }

    fn some_key(&mut self, mortal: bool) -> Vec<u8> {
        // The name shows whether the key has a TTL, so that `keys_of` can list all keys.
        format!("{}{:03}", if mortal { 'm' } else { 'p' }, self.random.below(400)).into_bytes()
    }

    fn some_family(&mut self) -> usize {
        loop {
            let family = self.random.below(3) as usize;
            if self.model.exists[family] {
                return family;
            }
        }
    }

    fn some_put(&mut self) -> (Key, Option<i64>, usize) {
        let mortal = self.random.below(if self.eviction == Eviction::Soonest { 40 } else { 3 }) > 0;
        let key = (self.some_family(), self.some_key(mortal));
        let end = mortal.then(|| self.clock.now() + self.random.below(3000) as i64 - 100);
        let bytes = match self.random.below(20) {
            0 => self.random.below(6000),
            1..5 => self.random.below(600),
            _ => self.random.below(60),
        };
        (key, end, bytes as usize)
    }

    fn act(&mut self) {
        self.clock.set(self.clock.now() + self.random.below(4) as i64);
        let now = self.clock.now();
        let mut wanted = self.model.clone();
        match self.random.below(100) {
            0..60 => {
                let (key, end, bytes) = self.some_put();
                wanted.rows.insert(key.clone(), Row { end, written: now });
                let expiry = end.map_or(Expiry::Never, Expiry::At);
                let done = open(&self.store, key.0).put_with_expiry(&key.1, vec![7; bytes], expiry);
                self.check(done, wanted, &[key], true);
            }
            60..72 => {
                let mut batch = self.store.batch();
                let mut put = Vec::new();
                for _ in 0..self.random.below(40) {
                    let (key, end, bytes) = self.some_put();
                    let expiry = end.map_or(Expiry::Never, Expiry::At);
                    batch.put(&open(&self.store, key.0), &key.1, vec![8; bytes], expiry).unwrap();
                    wanted.rows.insert(key.clone(), Row { end, written: now });
                    put.push(key);
                }
                let done = batch.commit();
                self.check(done, wanted, &put, true);
            }
            72..78 => {
                let key = (self.some_family(), self.some_key(true));
                let end = now + 1 + self.random.below(3000) as i64;
                let live = wanted.rows.get_mut(&key).filter(|row| row.end.is_none_or(|at| at > now));
                if let Some(row) = live {
                    row.end = Some(end);
                }
                let done = open(&self.store, key.0)
                    .set_expiry(&key.1, Expiry::At(end), kvstore::ExpiryCondition::Always)
                    .map(drop);
                self.check(done, wanted, &[key], true);
            }
            78..84 => {
                let mortal = self.random.below(2) == 0;
                let key = (self.some_family(), self.some_key(mortal));
                wanted.rows.remove(&key);
                let done = open(&self.store, key.0).delete(&key.1).map(drop);
                self.check(done, wanted, &[], false);
            }
            84..87 => {
                let family = self.some_family();
                wanted.rows.retain(|key, row| key.0 != family || row.end.is_none_or(|end| end > now));
                let done = open(&self.store, family).purge_expired().map(drop);
                self.check(done, wanted, &[], false);
            }
            87..89 => {
                let family = 1 + self.random.below(2) as usize;
                let done = if wanted.exists[family] {
                    wanted.exists[family] = false;
                    wanted.rows.retain(|key, _| key.0 != family);
                    self.store.drop_family(FAMILIES[family])
                } else {
                    wanted.exists[family] = true;
                    self.store.create_family(FAMILIES[family]).map(drop)
                };
                self.check(done, wanted, &[], true);
            }
            89..94 if self.begun.is_none() => {
                self.store.begin_write().unwrap();
                self.begun = Some(self.model.clone());
            }
            89..94 => {
                if self.random.below(3) == 0 {
                    self.store.rollback().unwrap();
                    self.model = self.begun.take().unwrap();
                } else {
                    self.store.commit().unwrap();
                    self.begun = None;
                }
                let same = self.model.clone();
                self.check(Ok(()), same, &[], false);
            }
            94 if self.begun.is_none() => {
                // After reopening, and through a second handle, the content is the same.
                self.store.close().unwrap();
                self.store = self.scratch.open_with(&self.config);
                self.clock.drive(&self.store);
                self.store.integrity_check().unwrap();
                let same = self.model.clone();
                self.check(Ok(()), same, &[], false);
            }
            95 if self.begun.is_none() => {
                // Another handle writes, so that what this handle has cached about the families is
                // out of date.
                let other = self.scratch.open();
                self.clock.drive(&other);
                let (key, end, bytes) = self.some_put();
                let expiry = end.map_or(Expiry::Never, Expiry::At);
                wanted.rows.insert(key.clone(), Row { end, written: now });
                let done = open(&other, key.0).put_with_expiry(&key.1, vec![9; bytes], expiry);
                self.check(done, wanted, &[key], true);
            }
            _ => self.clock.set(now + self.random.below(200) as i64),
        }
    }
}

fn histories(eviction: Eviction, seeds: u64, acts: usize) {
    for seed in 1..=seeds {
        for sql in [false, true] {
            let config = Config::new().page_size(PAGE as u32).sql_engine(sql);
            let mut world = World::new(config, eviction, seed * 7919 + u64::from(sql));
            for _ in 0..acts {
                world.act();
            }
            if world.begun.take().is_some() {
                world.store.commit().unwrap();
            }
            world.store.integrity_check().unwrap();
            match eviction {
                Eviction::None => assert!(world.refused > 0 && world.evicted == 0),
                _ => assert!(world.evicted > 50, "{eviction:?} {seed}: {} went", world.evicted),
            }
        }
    }
}

#[test]
fn soonest_expiry_eviction_matches_model() {
    histories(Eviction::Soonest, 2, 1200);
}

#[test]
fn oldest_write_eviction_matches_model() {
    histories(Eviction::Oldest, 2, 1200);
}

#[test]
fn store_without_eviction_matches_model() {
    histories(Eviction::None, 1, 1000);
}
