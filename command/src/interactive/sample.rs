//! Sampling for `watch`. A thread samples for at most a twentieth of the time, whatever the size of
//! the store.
//!
//! Two threads sample, each with its own handle. One samples file sizes, the number of keys that
//! expire soon (up to a bound), and the next keys to expire. The other counts keys, for which
//! SQLite reads all pages of a family.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use kvstore::internal::is_url;
use kvstore::{Config, ErrorKind, Family, ServerSizes, Store};

use crate::expiry::expiring_keys;
use crate::failure::{Failure, Result};
use crate::secret::Secrets;
use crate::store_arg::{self, OpenArgs, Purpose};

/// Maximum number of expired keys that `watch` counts in each family, and of keys that expire
/// later.
pub const BOUND: u64 = 10_000;
/// Limit on the work of a sampling thread of `watch`: it reads the store for at most 1/`SHARE` of
/// the time.
const SHARE: u32 = 20;
/// Number of keys that `watch` shows in its list of the keys that expire next.
const NEXT: usize = 10;
/// Maximum number of commit rates that are kept for the sparkline of `watch`.
const RATES: usize = 120;
const SECOND_MS: i64 = 1000;

/// A number of keys, of which at most [`BOUND`] are counted in each family.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bounded {
    pub count: u64,
    /// Whether the counting stopped at the bound in a family, so that there may be more keys.
    pub more: bool,
}

impl Bounded {
    pub fn plus(self, other: Bounded) -> Bounded {
        Bounded { count: self.count + other.count, more: self.more || other.more }
    }
}

/// Numbers of keys that expire within a minute, an hour and a day, in one family or in all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Soon {
    pub minute: Bounded,
    pub hour: Bounded,
    pub day: Bounded,
    /// Keys that have expired but have not been purged.
    pub expired: Bounded,
}

impl Soon {
    fn plus(self, other: Soon) -> Soon {
        Soon {
            minute: self.minute.plus(other.minute),
            hour: self.hour.plus(other.hour),
            day: self.day.plus(other.day),
            expired: self.expired.plus(other.expired),
        }
    }
}

/// One of the keys that expire next.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Next {
    pub expire_ms: i64,
    pub family: String,
    pub key: Vec<u8>,
}

/// The number of live keys of a family.
#[derive(Debug, Clone, Copy)]
pub struct Counted {
    pub keys: u64,
    /// The time of the count.
    pub at: Instant,
    /// Change of the number of keys per second since the previous count; `None` for the first
    /// count.
    pub per_second: Option<f64>,
}

/// The state of a store on a server: table sizes, and whether the server is a standby.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OnServer {
    /// Sizes of the tables; `None` if the server does not report them.
    pub tables: Option<Tables>,
    pub is_standby: bool,
}

/// Sizes of the tables of a store on a server, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tables {
    pub rows: u64,
    pub indexes: u64,
    pub total: u64,
}

/// One sample of the state of a store: sizes, rates, and keys that expire soon. (Key counts are in
/// [`Latest`].)
#[derive(Debug, Clone, Default)]
pub struct Sample {
    /// Time of the store's clock, in milliseconds since 1970.
    pub now_ms: i64,
    /// State of a store on a server; `None` for a store in a file. On a server, `file_bytes`,
    /// `wal_bytes` and `free_bytes` are 0.
    pub server: Option<OnServer>,
    pub file_bytes: u64,
    pub wal_bytes: u64,
    /// Size of the pages in use; on a server, total size of the tables.
    pub used_bytes: u64,
    pub free_bytes: u64,
    /// Change of `used_bytes` per second since the previous sample; `None` in the first sample.
    pub used_per_second: Option<f64>,
    /// Commits per second since the previous sample; `None` in the first sample, and if commits are
    /// not counted: on a server, and outside WAL mode.
    pub commits_per_second: Option<f64>,
    /// Commits per second of the last samples, up to this one, in order of time.
    pub commit_rates: Vec<u64>,
    pub families: Vec<(String, Soon)>,
    pub soon: Soon,
    pub next: Vec<Next>,
}

/// The latest results of the sampling threads.
#[derive(Default)]
pub struct Latest {
    pub sample: Option<(Sample, Instant)>,
    pub counts: HashMap<String, Counted>,
    /// The error message, if the last sample failed because of a lock. The next sample tries again.
    pub trouble: Option<String>,
    failed: Option<Failure>,
}

/// The threads that sample a store for `watch`.
pub struct Sampler {
    latest: Arc<Mutex<Latest>>,
    ended: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Sampler {
    /// Opens the store once for each thread, and starts the threads.
    pub fn start(path: &Path, open: &OpenArgs, secrets: &Secrets, interval: Duration) -> Result<Sampler> {
        let page_size = store_arg::page_size(path);
        // No read snapshot is held between samples, because it would block checkpoints of other
        // processes.
        let config = || Config::new().hold_reads(false);
        let source = store_arg::open_with(path, Purpose::Read, open, secrets, config())?;
        let counter = store_arg::open_with(path, Purpose::Read, open, secrets, config())?;
        let mut source = Source::new(source, path, page_size);
        let mut sampler = Sampler { latest: Arc::default(), ended: Arc::default(), threads: Vec::new() };
        sampler.spawn(interval, move |latest| {
            let sample = source.sample()?;
            lock(latest).sample = Some((sample, Instant::now()));
            Ok(())
        })?;
        sampler.spawn(interval, move |latest| count(&counter, latest))?;
        Ok(sampler)
    }

    fn spawn(
        &mut self,
        interval: Duration,
        mut sample: impl FnMut(&Mutex<Latest>) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let (latest, ended) = (Arc::clone(&self.latest), Arc::clone(&self.ended));
        self.threads.push(thread::Builder::new().spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                let began = Instant::now();
                match sample(&latest) {
                    Ok(()) => lock(&latest).trouble = None,
                    Err(Failure::Busy(text)) => lock(&latest).trouble = Some(text),
                    Err(failure) => {
                        lock(&latest).failed = Some(failure);
                        return;
                    }
                }
                let took = began.elapsed();
                thread::park_timeout(interval.max(took * SHARE).saturating_sub(took));
            }
        })?);
        Ok(())
    }

    pub fn latest(&self) -> MutexGuard<'_, Latest> {
        lock(&self.latest)
    }

    /// Fails if a thread has ended: with the error of the thread, or because it panicked.
    pub fn check(&self) -> Result<()> {
        if let Some(failure) = self.latest().failed.take() {
            return Err(failure);
        }
        if self.threads.iter().any(JoinHandle::is_finished) {
            return Err(Failure::Refused("a thread panicked: please report the message above".to_owned()));
        }
        Ok(())
    }
}

impl Drop for Sampler {
    /// Asks the threads that count keys to end, without waiting for them, because a count can take
    /// long.
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        self.threads.iter().for_each(|thread| thread.thread().unpark());
    }
}

fn lock(latest: &Mutex<Latest>) -> MutexGuard<'_, Latest> {
    latest.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the change per second from `before` to `after`, two values that were taken at times
/// `within` apart.
fn rate(before: u64, after: u64, within: Duration) -> f64 {
    #[allow(clippy::cast_precision_loss)] // approximate output
    let change = after as f64 - before as f64;
    change / within.as_secs_f64().max(0.001)
}

/// Counts the live keys of all families, and stores the counts in `latest`.
fn count(store: &Store, latest: &Mutex<Latest>) -> Result<()> {
    let families = expiring_keys::families(store, None)?;
    lock(latest).counts.retain(|name, _| families.iter().any(|family| family.name() == name));
    for family in families {
        let keys = match family.count_live() {
            Err(e) if e.kind() == ErrorKind::NotFound => continue, // dropped since it was listed
            keys => keys?,
        };
        let at = Instant::now();
        let mut latest = lock(latest);
        let before = latest.counts.get(family.name());
        let per_second = before.map(|before| rate(before.keys, keys, at - before.at));
        latest.counts.insert(family.name().to_owned(), Counted { keys, at, per_second });
    }
    Ok(())
}

/// The state of the thread that samples everything but key counts.
struct Source {
    store: Store,
    path: PathBuf,
    wal: PathBuf,
    page_size: u64,
    /// Time, bytes in use and commit counter of the previous sample; `None` before the first.
    before: Option<(Instant, u64, Option<u32>)>,
    commit_rates: Vec<u64>,
}

impl Source {
    fn new(store: Store, path: &Path, page_size: u64) -> Source {
        let mut wal = path.as_os_str().to_owned();
        wal.push("-wal");
        Source {
            store,
            path: path.to_owned(),
            wal: wal.into(),
            page_size,
            before: None,
            commit_rates: Vec::new(),
        }
    }

    fn sample(&mut self) -> Result<Sample> {
        if is_url(&self.path) {
            return self.sample_server();
        }
        // Only metadata: opening and closing the file would drop the POSIX locks SQLite holds on
        // it.
        let length = |path: &Path| fs::metadata(path).map_or(0, |metadata| metadata.len());
        let mut sample =
            Sample { file_bytes: length(&self.path), wal_bytes: length(&self.wal), ..Sample::default() };
        let stats = self.store.stats()?;
        sample.used_bytes = stats.size_bytes;
        sample.free_bytes = (stats.db_pages * self.page_size).saturating_sub(stats.size_bytes);
        let (at, commits) = (Instant::now(), self.store.commit_counter()?);
        if let Some((before, used, committed)) = self.before.replace((at, sample.used_bytes, commits)) {
            let within = at - before;
            sample.used_per_second = Some(rate(used, sample.used_bytes, within));
            if let (Some(before), Some(after)) = (committed, commits) {
                let commits = after.wrapping_sub(before);
                let per_second = rate(0, u64::from(commits), within);
                sample.commits_per_second = Some(per_second);
                if self.commit_rates.len() == RATES {
                    self.commit_rates.remove(0);
                }
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                // not negative, less than 2^32
                self.commit_rates.push(per_second.round() as u64);
            }
        }
        sample.commit_rates.clone_from(&self.commit_rates);
        self.sample_families(sample)
    }

    fn sample_server(&mut self) -> Result<Sample> {
        let info = self.store.info()?.server;
        let tables = |of: ServerSizes| Tables { rows: of.rows, indexes: of.indexes, total: of.total };
        let server =
            info.map(|server| OnServer { tables: server.sizes.map(tables), is_standby: server.is_standby });
        let server = server.unwrap_or_default();
        let total = server.tables.map_or(0, |tables| tables.total);
        let mut sample = Sample { used_bytes: total, server: Some(server), ..Sample::default() };
        let at = Instant::now();
        if let Some((before, used, _)) = self.before.replace((at, total, None)) {
            sample.used_per_second = Some(rate(used, total, at - before));
        }
        self.sample_families(sample)
    }

    fn sample_families(&self, mut sample: Sample) -> Result<Sample> {
        let now_ms = self.store.now_ms();
        sample.now_ms = now_ms;
        for family in expiring_keys::families(&self.store, None)? {
            let soon = sample_family(&family, now_ms, &mut sample.next)?;
            sample.soon = sample.soon.plus(soon);
            sample.families.push((family.name().to_owned(), soon));
        }
        Ok(sample)
    }
}

/// Counts the keys of a family that have expired and those that expire soon. Merges the keys of the
/// family that expire next into `next`, which keeps the first [`NEXT`] keys of all families.
fn sample_family(family: &Family, now_ms: i64, next: &mut Vec<Next>) -> Result<Soon> {
    let mut soon = Soon::default();
    expiring_keys::each(family, i64::MIN, now_ms.saturating_add(1), |_, _| {
        soon.expired.count += 1;
        soon.expired.more = soon.expired.count == BOUND;
        !soon.expired.more
    })?;
    let within = |seconds: i64| now_ms.saturating_add(seconds * SECOND_MS);
    let (minute_ms, hour_ms, day_ms) = (within(60), within(3600), within(86_400));
    let mut latest = 0;
    expiring_keys::each(family, now_ms.saturating_add(1), i64::MAX, |expire_ms, key| {
        latest += 1;
        let at_bound = latest == BOUND;
        for (within, until_ms) in
            [(&mut soon.minute, minute_ms), (&mut soon.hour, hour_ms), (&mut soon.day, day_ms)]
        {
            let is_within = expire_ms <= until_ms;
            within.count += u64::from(is_within);
            within.more |= is_within && at_bound;
        }
        let is_next = latest <= NEXT as u64;
        if is_next {
            next.push(Next { expire_ms, family: family.name().to_owned(), key: key.to_owned() });
        }
        !at_bound && (is_next || expire_ms <= day_ms)
    })?;
    next.sort();
    next.truncate(NEXT);
    Ok(soon)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvstore::Expiry;

    #[test]
    fn soon_counts_stop_at_limit_and_next_merges_families() {
        let store = Store::open_in_memory(&Config::new()).unwrap();
        let now_ms = kvstore::now_ms();
        let many = store.create_family("many").unwrap();
        store.begin_write().unwrap();
        for n in 0..3 {
            store.put_with_expiry(format!("dead{n}"), "1", Expiry::At(now_ms - n)).unwrap();
            store.put_with_expiry(format!("minute{n}"), "1", Expiry::At(now_ms + 1 + n)).unwrap();
            store.put_with_expiry(format!("hour{n}"), "1", Expiry::At(now_ms + 60_001 + n)).unwrap();
            store.put_with_expiry(format!("later{n}"), "1", Expiry::At(now_ms + 90_000_000 + n)).unwrap();
        }
        store.put("for ever", "1").unwrap();
        for n in 0..i64::try_from(BOUND).unwrap() + 10 {
            many.put_with_expiry(n.to_be_bytes(), "1", Expiry::At(now_ms + 100_000 + n)).unwrap();
        }
        store.commit().unwrap();
        let mut next = Vec::new();
        let exactly = |count| Bounded { count, more: false };
        let soon = sample_family(&store, now_ms, &mut next).unwrap();
        assert_eq!(soon, Soon { minute: exactly(3), hour: exactly(6), day: exactly(6), expired: exactly(3) });
        let bound = Bounded { count: BOUND, more: true };
        assert_eq!(
            sample_family(&many, now_ms, &mut next).unwrap(),
            Soon { minute: exactly(0), hour: bound, day: bound, expired: exactly(0) }
        );
        assert_eq!(next.len(), NEXT);
        assert_eq!(next.iter().filter(|next| next.family == "many").count(), 4);
        assert!(next.is_sorted());
    }

    #[test]
    fn counts_give_the_rate_of_change() {
        let store = Store::open_in_memory(&Config::new()).unwrap();
        store.put("a", "1").unwrap();
        let latest = Mutex::default();
        count(&store, &latest).unwrap();
        assert_eq!(lock(&latest).counts["default"].per_second, None);
        store.put("b", "1").unwrap();
        store.put_with_expiry("dead", "1", Expiry::At(1000)).unwrap();
        count(&store, &latest).unwrap();
        let counted = lock(&latest).counts["default"];
        assert_eq!(counted.keys, 2);
        assert!(counted.per_second.unwrap() > 0.0);
    }
}
