//! What is measured of every store. Knows no store.

use std::path::Path;

pub type Key = [u8; 16];

/// What a walk over rows has seen.
#[derive(Default, Debug, Clone, Copy, PartialEq)]
pub struct Seen {
    pub rows: u64,
    /// Bytes of values.
    pub bytes: u64,
    /// Of all values and the ends of keys: everything that is read is looked at, whether the store hands out
    /// copies or pointers.
    pub sum: u64,
}

impl Seen {
    #[inline]
    pub fn row(&mut self, key: &[u8], value: &[u8]) {
        self.rows += 1;
        self.bytes += value.len() as u64;
        self.sum = self.sum.wrapping_add(sum(value)).wrapping_add(u64::from(key[key.len() - 1]));
    }
}

/// Of all bytes of a value, eight at a time.
#[inline]
pub fn sum(value: &[u8]) -> u64 {
    let (words, rest) = value.as_chunks::<8>();
    let last: u64 = rest.iter().map(|byte| u64::from(*byte)).sum();
    words.iter().fold(last, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)))
}

/// A handle on a store with one family, as its users would write it. Failures panic.
pub trait Store: Send {
    /// Shows the value, if there is a live one. The default way to read, outside transactions.
    fn get_with(&mut self, key: &[u8], f: &mut dyn FnMut(&[u8])) -> bool;
    fn exists(&mut self, key: &[u8]) -> bool;
    fn scan(&mut self) -> Seen;
    fn prefix(&mut self, prefix: &[u8]) -> Seen;
    /// One transaction, as `delete`; without fsync, unless the mode says so.
    fn put(&mut self, key: &[u8], value: &[u8]);
    fn delete(&mut self, key: &[u8]);
    /// All in one transaction; what `write` gives for each number: key, value, expire_ms (0: never).
    fn write_all<'a>(&mut self, count: usize, write: &mut dyn FnMut(usize) -> (Key, &'a [u8], i64));
    /// All in one transaction.
    fn delete_all(&mut self, keys: &[Key]);
    /// A handle for another thread.
    fn another(&self) -> Box<dyn Store>;

    fn put_ttl(&mut self, _key: &[u8], _value: &[u8], _expire_ms: i64) {
        panic!("no TTLs")
    }
    /// Removes what has expired; the count.
    fn purge(&mut self) -> u64 {
        panic!("no TTLs")
    }
    /// Removes what has expired as the store's timer would, where that is another call than `purge`; the count.
    fn purge_step(&mut self) -> u64 {
        self.purge()
    }
    /// When the next key expires.
    fn next_expiry(&mut self) -> Option<i64> {
        panic!("not to be asked")
    }
    /// Starts the store's own cleaner; false if it has none.
    fn start_cleaner(&mut self, _interval_ms: i64) -> bool {
        false
    }
    fn stop_cleaner(&mut self) {}
    /// Reads a value and writes what `f` makes of it, so that nobody writes between the two; where the store has
    /// no way to say that, as two operations.
    fn modify(&mut self, key: &[u8], f: &mut dyn FnMut(&mut [u8])) -> bool {
        let mut copy = Vec::new();
        let found = self.get_with(key, &mut |value| copy.extend_from_slice(value));
        if found {
            f(&mut copy);
            self.put(key, &copy);
        }
        found
    }
    /// Shows a value and moves its expiry. Without TTLs the value is written back as it is.
    fn touch(&mut self, key: &[u8], _expire_ms: i64, f: &mut dyn FnMut(&[u8])) -> bool {
        self.modify(key, &mut |value| f(value))
    }
    /// A scan that takes many rows at a time.
    fn fetch(&mut self) -> Seen {
        panic!("rows come one by one")
    }
    /// As `write_all`, but given as one batch.
    fn write_batch<'a>(&mut self, _count: usize, _write: &mut dyn FnMut(usize) -> (Key, &'a [u8], i64)) {
        panic!("no batches beside transactions")
    }
    /// A get that allocates, where that is not the default way.
    fn get_allocated(&mut self, _key: &[u8], _f: &mut dyn FnMut(&[u8])) -> bool {
        panic!("no other way to read")
    }
    /// Checkpoints so far, where they are counted.
    fn checkpoints(&mut self) -> Option<u64> {
        None
    }

    fn get(&mut self, key: &[u8]) -> Option<usize> {
        let (mut length, mut total) = (0, 0);
        let found = self.get_with(key, &mut |value| (length, total) = (value.len(), sum(value)));
        std::hint::black_box(total);
        found.then_some(length)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Mode {
    /// Keys have TTLs: where TTLs are not native, with a column and an index for them.
    pub ttl: bool,
    /// An fsync for each commit.
    pub sync: bool,
    /// kvstore: no read snapshot is kept between calls.
    pub unheld: bool,
}

/// A store to be measured.
#[derive(Clone, Copy)]
pub struct Kind {
    pub name: &'static str,
    pub ttl: bool,
    /// Other processes may have it open.
    pub processes: bool,
    /// Only writes are measured (a variant of another kind).
    pub writes_only: bool,
    /// What its writes promise about power cuts.
    pub promise: &'static str,
    /// That is at least what kvstore promises: never a damaged file, at most the last moments lost.
    pub keeps: bool,
    pub open: fn(&Path, Mode) -> Box<dyn Store>,
}

pub fn now_ms() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.expect("a time after 1970").as_millis() as i64
}
