//! Counters of a handle since it was opened or since the counters were reset.

use std::sync::atomic::Ordering::Relaxed;

use crate::atomic::AtomicU64;

/// Counters of a store handle, since it was opened or since
/// [`reset_stats`](crate::Store::reset_stats). Only successful calls count, except in `errors`.
///
/// Fields marked "current" are measured when the counters are read; a reset does not change them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Number of keys written.
    pub puts: u64,
    /// Number of values read.
    pub gets: u64,
    /// Number of live keys deleted.
    pub deletes: u64,
    /// Number of iterators and cursors created.
    pub iterations: u64,
    /// Number of calls that failed. A key that is not found is not a failure.
    pub errors: u64,
    /// Total length of the values read by gets, in bytes.
    pub bytes_read: u64,
    /// Total length of the keys and values written, in bytes.
    pub bytes_written: u64,
    /// Number of write transactions committed, in any journal mode.
    pub wal_commits: u64,
    /// Number of checkpoints run, including automatic ones.
    pub checkpoints: u64,
    /// Number of lookups that found an expired row. After the first one, the handle treats the row
    /// as missing, except in `get_many`.
    pub ttl_expired: u64,
    /// Number of expired keys removed by purges, or to enforce the size limit.
    pub ttl_purged: u64,
    /// Current number of pages of the database.
    pub db_pages: u64,
    /// Current number of frames (page versions) in the WAL, as of the last commit or checkpoint of
    /// this handle.
    pub wal_frames: u64,
    /// Number of lookups that found no live key: gets, each key of a `get_many`, and `exists`.
    pub misses: u64,
    /// Number of live keys removed to enforce the size limit
    /// ([`Store::set_size_limit`](crate::Store::set_size_limit)).
    pub evicted: u64,
    /// Current size of the pages in use, in bytes. This is the size that the size limit of the
    /// store limits.
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
    /// Returns the counters, together with sizes that the caller has just measured: pages of the
    /// database, frames in the WAL, and bytes of the pages in use.
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
