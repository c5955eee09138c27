//! Trees of several levels, with rows on one page and on several pages. Lookups and scans of the
//! `btree` engine must give the same results as SQL. (In a build without that engine, SQL is
//! compared with itself.)

use std::ops::Bound;

use crate::common::Scratch;
use crate::common::cases::{ENGINES, each_case};
use kvstore::{Config, Direction, ErrorKind, Family, KeyRange, Store};

/// Numbers that look random, the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }

    /// Returns a key: most are short, many share a prefix, and some continue on overflow pages.
    fn key(&mut self, longest: usize) -> Vec<u8> {
        const BEGINNINGS: [&[u8]; 6] = [b"", b"a", b"sixteen bytes...", b"user:", &[0], &[0xff; 20]];
        let mut key = BEGINNINGS[self.below(6)].to_vec();
        let length = match self.below(20) {
            0 => self.below(longest),
            1..6 => self.below(3),
            _ => 1 + self.below(30),
        };
        key.extend((0..length).map(|_| [0, 1, b'a', b'b', 0x7f, 0x80, 0xff][self.below(7)]));
        key.resize(key.len().max(1), b'k');
        key
    }

    fn bound(&mut self, keys: &[Vec<u8>], longest: usize) -> Bound<Vec<u8>> {
        let key = if self.below(3) == 0 { self.key(longest) } else { keys[self.below(keys.len())].clone() };
        match self.below(5) {
            0 => Bound::Unbounded,
            1..3 => Bound::Included(key),
            _ => Bound::Excluded(key),
        }
    }
}

/// Returns the first entries of a range, in one direction.
fn scan(family: &Family, range: &KeyRange, direction: Direction, most: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut cursor = family.cursor(range.clone(), direction);
    let mut entries = Vec::new();
    let mut there = cursor.first().unwrap();
    while there && entries.len() < most {
        entries.push((cursor.key().unwrap().to_vec(), cursor.value().unwrap().to_vec()));
        there = cursor.next().unwrap();
    }
    entries
}

fn all_answers_are_the_same(one: &Store, other: &Store, keys: &[Vec<u8>], random: &mut Random) {
    let [one, other] = [one, other].map(Store::default_family);
    for direction in [Direction::Forward, Direction::Reverse] {
        let all = scan(one, &KeyRange::all(), direction, usize::MAX);
        assert_eq!(all, scan(other, &KeyRange::all(), direction, usize::MAX));
        assert!(direction == Direction::Reverse || all.is_sorted());
    }
    for _ in 0..150 {
        let range = KeyRange::new(random.bound(keys, 900), random.bound(keys, 900));
        let most = [1, 40, 700, usize::MAX][random.below(4)];
        for direction in [Direction::Forward, Direction::Reverse] {
            let found = scan(one, &range, direction, most);
            assert_eq!(found, scan(other, &range, direction, most), "{range:?} {direction:?}");
        }
    }
    for _ in 0..1500 {
        let key = if random.below(2) == 0 { random.key(900) } else { keys[random.below(keys.len())].clone() };
        assert_eq!(one.get(&key).unwrap(), other.get(&key).unwrap(), "{key:?}");
        assert_eq!(one.exists(&key).unwrap(), other.exists(&key).unwrap(), "{key:?}");
    }
}

#[test]
fn btree_engine_finds_same_rows_as_sql() {
    for (page_size, count) in [(512, 2500), (4096, 4000)] {
        let scratch = Scratch::new();
        let direct = Store::open_with(scratch.path(), &Config::new().page_size(page_size)).unwrap();
        let sql = Store::open_with(scratch.path(), &Config::new().sql_engine(true)).unwrap();
        let mut random = Random(page_size.into());
        let mut keys: Vec<Vec<u8>> = (0..count).map(|_| random.key(900)).collect();
        keys.sort();
        keys.dedup();
        let family = direct.default_family();
        direct.begin_write().unwrap();
        for key in &keys {
            family.put(key, vec![b'v'; random.below(90)]).unwrap();
        }
        // Before the commit, the pages are those of the transaction.
        let [forward, mut reverse] = [Direction::Forward, Direction::Reverse]
            .map(|direction| scan(family, &KeyRange::all(), direction, usize::MAX));
        reverse.reverse();
        assert_eq!(forward.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>(), keys);
        assert_eq!(forward, reverse);
        direct.commit().unwrap();
        all_answers_are_the_same(&direct, &sql, &keys, &mut random);

        // Pages that lost rows, rows that moved to other pages, and values that became large.
        for key in &keys {
            match random.below(4) {
                0 => assert!(family.delete(key).unwrap()),
                1 => family.put(key, vec![b'w'; random.below(700)]).unwrap(),
                _ => {}
            }
        }
        all_answers_are_the_same(&direct, &sql, &keys, &mut random);
        direct.integrity_check().unwrap();
    }
}

#[test]
fn lookup_sees_newest_pages_after_tree_changes() {
    let scratch = Scratch::new();
    let reader = Store::open_with(scratch.path(), &Config::new().page_size(512)).unwrap();
    let writer = Store::open(scratch.path()).unwrap();
    let mut random = Random(7);
    let mut keys: Vec<Vec<u8>> = Vec::new();
    for round in 0..300u32 {
        // The reader keeps the upper pages of its snapshot. Each write may split or merge them.
        let by = if round % 2 == 0 { &writer } else { &reader };
        for _ in 0..10 {
            if keys.len() > 400 {
                let key = keys.swap_remove(random.below(keys.len()));
                assert!(reader.exists(&key).unwrap());
                assert!(by.delete(&key).unwrap());
                assert!(!reader.exists(&key).unwrap());
            }
            let key = [&random.key(60)[..], &round.to_be_bytes()].concat();
            by.put(&key, round.to_be_bytes()).unwrap();
            assert_eq!(reader.get(&key).unwrap().as_deref(), Some(&round.to_be_bytes()[..]));
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        if round % 50 == 0 {
            writer.incremental_vacuum(None).unwrap();
        }
    }
    assert_eq!(reader.count().unwrap(), keys.len() as u64);
}

/// Changes the file of a closed store.
fn patch(scratch: &Scratch, change: impl FnOnce(&mut Vec<u8>)) {
    let mut file = std::fs::read(scratch.path()).unwrap();
    change(&mut file);
    std::fs::write(scratch.path(), file).unwrap();
}

#[test]
fn iteration_over_unordered_rows_fails() {
    each_case(ENGINES, |sql| {
        let scratch = Scratch::new();
        let config = Config::new().sql_engine(sql);
        let store = Store::open_with(scratch.path(), &config).unwrap();
        for key in ["key-1", "key-2", "key-3"] {
            // So long that an iterator reads only one of them ahead.
            store.put(key, vec![b'v'; 70_000]).unwrap();
        }
        store.close().unwrap();
        patch(&scratch, |file| {
            let places: Vec<usize> =
                (0..file.len() - 5).filter(|&at| file[at..].starts_with(b"key-2")).collect();
            for at in places {
                file[at + 4] = b'0';
            }
        });
        let store = Store::open_with(scratch.path(), &config).unwrap();
        for direction in [Direction::Forward, Direction::Reverse] {
            let mut cursor = store.default_family().cursor(KeyRange::all(), direction);
            let mut moved = cursor.first();
            for _ in 0..100 {
                if !matches!(moved, Ok(true)) {
                    break;
                }
                moved = cursor.next();
            }
            let found = moved.map_err(|e| e.kind());
            assert!(matches!(found, Ok(false) | Err(ErrorKind::Corrupt)), "{direction:?}: {found:?}");
        }
        assert_eq!(store.integrity_check().unwrap_err().kind(), ErrorKind::Corrupt);
    });
}

#[test]
fn delete_range_over_unordered_rows_terminates() {
    each_case(ENGINES, |sql| {
        let scratch = Scratch::new();
        let config = Config::new().sql_engine(sql);
        let store = Store::open_with(scratch.path(), &config).unwrap();
        for n in 0..2000 {
            store.put(format!("key-{n:05}"), "v").unwrap();
        }
        store.close().unwrap();
        patch(&scratch, |file| {
            let from = b"key-00000";
            let places: Vec<usize> = (0..file.len() - 9).filter(|&at| file[at..].starts_with(from)).collect();
            for at in places {
                file[at] = b'z'; // the key of the first row is out of order now
            }
        });
        let store = Store::open_with(scratch.path(), &config).unwrap();
        let done = store.default_family().delete_range(&KeyRange::all()).map_err(|e| e.kind());
        assert!(matches!(done, Ok(_) | Err(ErrorKind::Corrupt)), "{done:?}");
    });
}

/// Makes every pointer of an interior page lead to the next interior page. A scan would take as
/// many steps as there are paths.
fn tangle(file: &mut [u8], page_size: usize) -> usize {
    let tree: Vec<usize> =
        (1..file.len() / page_size).map(|page| page * page_size).filter(|&start| file[start] == 2).collect();
    for (at, &start) in tree.iter().enumerate() {
        let next = ((tree.get(at + 1).copied().unwrap_or(start) / page_size) + 1) as u32;
        file[start + 8..start + 12].copy_from_slice(&next.to_be_bytes());
        let cells = usize::from(u16::from_be_bytes([file[start + 3], file[start + 4]]));
        for cell in 0..cells {
            let pointer = start + 12 + 2 * cell;
            let cell = start + usize::from(u16::from_be_bytes([file[pointer], file[pointer + 1]]));
            file[cell..cell + 4].copy_from_slice(&next.to_be_bytes());
        }
    }
    tree.len()
}

#[test]
fn scan_of_cyclic_pages_ends() {
    let scratch = Scratch::new();
    let store = Store::open_with(scratch.path(), &Config::new().page_size(512)).unwrap();
    store.begin_write().unwrap();
    for n in 0..1000u32 {
        store.put(n.to_be_bytes(), [b'v'; 60]).unwrap();
    }
    store.commit().unwrap();
    store.close().unwrap();
    patch(&scratch, |file| assert!(tangle(file, 512) > 8));
    let store = Store::open(scratch.path()).unwrap();
    if kvstore::engine() == "btree" {
        assert_eq!(store.count().unwrap_err().kind(), ErrorKind::Corrupt);
        assert_eq!(store.count_live().unwrap_err().kind(), ErrorKind::Corrupt);
    }
    let mut cursor = store.default_family().cursor(KeyRange::all(), Direction::Forward);
    let mut moved = cursor.first();
    let mut rows = 0;
    while matches!(moved, Ok(true)) {
        rows += 1;
        assert!(rows < 100_000, "it does not end");
        moved = cursor.next();
    }
    assert!(moved.is_err());
}
