//! What a handle has done since it was opened (or since the counters were reset).

use std::sync::atomic::Ordering::Relaxed;

use crate::atomic::AtomicU64;

/// Counters of one handle. Only calls that succeeded count, except in `errors`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Keys written.
    pub puts: u64,
    /// Values read.
    pub gets: u64,
    /// Keys deleted.
    pub deletes: u64,
    /// Iterators made.
    pub iterations: u64,
    /// Calls that failed ("not found" is not a failure).
    pub errors: u64,
    /// Bytes of values read by gets.
    pub bytes_read: u64,
    /// Bytes of keys and values written.
    pub bytes_written: u64,
    /// Write transactions committed.
    pub wal_commits: u64,
    /// Checkpoints run, automatic ones included.
    pub checkpoints: u64,
    /// Times a get, exists or ttl met an expired key: a row that is noted for its removal only once, by a
    /// `get_many` each time.
    pub ttl_expired: u64,
    /// Expired keys removed by purges, or to make room.
    pub ttl_purged: u64,
    /// Pages of the database, now (not a counter).
    pub db_pages: u64,
    /// Frames in the WAL after this handle's last commit or checkpoint (not a counter).
    pub wal_frames: u64,
    /// Gets and exists that found no live key; of many keys, each.
    pub misses: u64,
    /// Keys removed to make room ([`Store::set_size_limit`](crate::Store::set_size_limit)) that were alive; the expired ones
    /// count as purged.
    pub evicted: u64,
    /// What the data takes in the file, in bytes, now: its pages without the free ones, which is what a limit bounds
    /// (not a counter).
    pub size_bytes: u64,
}

#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) puts: Counter,
    pub(crate) gets: Counter,
    pub(crate) deletes: Counter,
    pub(crate) iterations: Counter,
    pub(crate) errors: Counter,
    pub(crate) bytes_read: Counter,
    pub(crate) bytes_written: Counter,
    pub(crate) commits: Counter,
    pub(crate) checkpoints: Counter,
    pub(crate) ttl_expired: Counter,
    pub(crate) ttl_purged: Counter,
    pub(crate) misses: Counter,
    pub(crate) evicted: Counter,
}

#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

impl Counters {
    /// The counters, with the live figures beside them.
    pub(crate) fn read(&self, db_pages: u64, wal_frames: u64, size_bytes: u64) -> Stats {
        Stats {
            puts: self.puts.get(),
            gets: self.gets.get(),
            deletes: self.deletes.get(),
            iterations: self.iterations.get(),
            errors: self.errors.get(),
            bytes_read: self.bytes_read.get(),
            bytes_written: self.bytes_written.get(),
            wal_commits: self.commits.get(),
            checkpoints: self.checkpoints.get(),
            ttl_expired: self.ttl_expired.get(),
            ttl_purged: self.ttl_purged.get(),
            db_pages,
            wal_frames,
            misses: self.misses.get(),
            evicted: self.evicted.get(),
            size_bytes,
        }
    }

    pub(crate) fn reset(&self) {
        for counter in [
            &self.puts,
            &self.gets,
            &self.deletes,
            &self.iterations,
            &self.errors,
            &self.bytes_read,
            &self.bytes_written,
            &self.commits,
            &self.checkpoints,
            &self.ttl_expired,
            &self.ttl_purged,
            &self.misses,
            &self.evicted,
        ] {
            counter.0.store(0, Relaxed);
        }
    }
}
