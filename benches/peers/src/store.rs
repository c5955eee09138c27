//! Interface that every measured store implements. Code for a particular store belongs in
//! `stores/`.

use std::path::Path;

pub type Key = [u8; 16];

/// Totals of the rows that a scan visited.
#[derive(Default, Debug, Clone, Copy, PartialEq)]
pub struct Seen {
    pub rows: u64,
    /// Total length of the values, in bytes.
    pub bytes: u64,
    /// Sum over all values and the ends of all keys. Every byte is read, whether the store returns
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

/// Returns the sum of a value, taken eight bytes at a time.
#[inline]
pub fn sum(value: &[u8]) -> u64 {
    let (words, rest) = value.as_chunks::<8>();
    let last: u64 = rest.iter().map(|byte| u64::from(*byte)).sum();
    words.iter().fold(last, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)))
}

/// A handle on a store with one family, used as a typical program would use it. Panics on errors.
pub trait Store: Send {
    /// Passes the live value of a key to `f`. This is the usual way to read outside transactions.
    fn get_with(&mut self, key: &[u8], f: &mut dyn FnMut(&[u8])) -> bool;
    fn exists(&mut self, key: &[u8]) -> bool;
    fn scan(&mut self) -> Seen;
    fn prefix(&mut self, prefix: &[u8]) -> Seen;
    /// Puts one key in a transaction of its own, without fsync unless the mode asks for it.
    /// `delete` does the same.
    fn put(&mut self, key: &[u8], value: &[u8]);
    fn delete(&mut self, key: &[u8]);
    /// Writes `count` entries in one transaction. `write` returns key, value and expire_ms (0:
    /// never) for each index.
    fn write_all<'a>(&mut self, count: usize, write: &mut dyn FnMut(usize) -> (Key, &'a [u8], i64));
    /// Deletes all keys in one transaction.
    fn delete_all(&mut self, keys: &[Key]);
    /// Opens a handle for another thread.
    fn another(&self) -> Box<dyn Store>;

    /// Completes the work that earlier writes have postponed: a checkpoint, a sync or a durable
    /// commit. A power cut then loses none of them.
    fn settle(&mut self);

    fn put_ttl(&mut self, _key: &[u8], _value: &[u8], _expire_ms: i64) {
        panic!("no TTLs")
    }
    /// Moves an iterator to the first live entry. Returns `false` if there is none.
    fn first(&mut self) -> bool {
        panic!("not to be asked")
    }
    /// Removes expired keys, and returns their number.
    fn purge(&mut self) -> u64 {
        panic!("no TTLs")
    }
    /// Like `purge`, but uses the call that a periodic task would use, if that is a different one.
    fn purge_step(&mut self) -> u64 {
        self.purge()
    }
    /// Returns the earliest expiry time of all keys.
    fn next_expiry(&mut self) -> Option<i64> {
        panic!("not to be asked")
    }
    /// Starts the store's own cleaner. Returns `false` if it has none.
    fn start_cleaner(&mut self, _interval_ms: i64) -> bool {
        false
    }
    fn stop_cleaner(&mut self) {}
    /// Reads a value, changes it with `f` and writes it back, as one atomic operation. A store
    /// without such an operation does a get and a put.
    fn modify(&mut self, key: &[u8], f: &mut dyn FnMut(&mut [u8])) -> bool {
        let mut copy = Vec::new();
        let found = self.get_with(key, &mut |value| copy.extend_from_slice(value));
        if found {
            f(&mut copy);
            self.put(key, &copy);
        }
        found
    }
    /// Reads a value and extends its expiry time. A store without TTLs writes the value back
    /// unchanged.
    fn touch(&mut self, key: &[u8], _expire_ms: i64, f: &mut dyn FnMut(&[u8])) -> bool {
        self.modify(key, &mut |value| f(value))
    }
    /// Scans with calls that return many rows at a time.
    fn fetch(&mut self) -> Seen {
        panic!("rows come one by one")
    }
    /// Like `write_all`, with the store's own batch type.
    fn write_batch<'a>(&mut self, _count: usize, _write: &mut dyn FnMut(usize) -> (Key, &'a [u8], i64)) {
        panic!("no batches beside transactions")
    }
    /// Gets a value with a call that allocates memory for it, where that is not the usual call.
    fn get_allocated(&mut self, _key: &[u8], _f: &mut dyn FnMut(&[u8])) -> bool {
        panic!("no other way to read")
    }
    /// Returns the number of checkpoints so far, if the store counts them.
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
    /// Whether keys have TTLs. A store without native TTLs uses an indexed column.
    pub ttl: bool,
    /// Whether each commit ends with an fsync.
    pub sync: bool,
    /// kvstore only: no read snapshot is kept between calls.
    pub unheld: bool,
}

/// A store to measure.
#[derive(Clone, Copy)]
pub struct Kind {
    pub name: &'static str,
    pub ttl: bool,
    /// Whether several processes may have the store open.
    pub processes: bool,
    /// Whether only writes are measured. Set for variants of another store.
    pub writes_only: bool,
    /// Effect of a power cut on the store; printed in the report.
    pub promise: &'static str,
    /// Whether `promise` is at least that of kvstore: the file is never damaged, and at most the
    /// last commits are lost.
    pub keeps: bool,
    pub open: fn(&Path, Mode) -> Box<dyn Store>,
}

pub fn now_ms() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.expect("a time after 1970").as_millis() as i64
}
