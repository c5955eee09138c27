//! Sampling for `watch`. Samples take at most a twentieth of the time, whatever the size of the
//! store.
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

use crate::failure::{Failure, Result};
use crate::place::{self, For, OpenArgs};
use crate::secret::Secrets;
use crate::time::ends;

/// Maximum number of expiry times counted per family.
pub const BOUND: u64 = 10_000;
/// Sampling takes at most one part in this number of the time.
const SHARE: u32 = 20;
/// Number of next keys to expire that are shown.
const NEXT: usize = 10;
/// Number of commit rates kept for the sparkline.
const RATES: usize = 120;
const SECOND_MS: i64 = 1000;

/// A count that stops at a bound.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bounded {
    pub count: u64,
    /// The bound was reached; there may be more.
    pub more: bool,
}

impl Bounded {
    pub fn plus(self, other: Bounded) -> Bounded {
        Bounded { count: self.count + other.count, more: self.more || other.more }
    }
}

/// Number of keys that expire soon.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Soon {
    pub minute: Bounded,
    pub hour: Bounded,
    pub day: Bounded,
    /// Expired, not purged.
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

/// A key that expires next.
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
    pub at: Instant,
    /// Change per second since the count before.
    pub per_second: Option<f64>,
}

/// State of a store on a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OnServer {
    /// `None` if the server does not report table sizes.
    pub tables: Option<Tables>,
    pub is_standby: bool,
}

/// Sizes of the tables in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tables {
    pub rows: u64,
    pub indexes: u64,
    pub total: u64,
}

/// One sample.
#[derive(Debug, Clone, Default)]
pub struct Look {
    /// The store's clock.
    pub now_ms: i64,
    /// Set for a store on a server; the sizes of files are 0 then.
    pub server: Option<OnServer>,
    pub file_bytes: u64,
    pub wal_bytes: u64,
    /// Size of the pages in use.
    pub used_bytes: u64,
    pub free_bytes: u64,
    pub used_per_second: Option<f64>,
    /// `None` if commits are not counted.
    pub commits_per_second: Option<f64>,
    /// Earlier rates, the latest last.
    pub commit_rates: Vec<u64>,
    pub families: Vec<(String, Soon)>,
    pub soon: Soon,
    pub next: Vec<Next>,
}

/// The latest results of both threads.
#[derive(Default)]
pub struct Seen {
    pub look: Option<(Look, Instant)>,
    pub counts: HashMap<String, Counted>,
    /// Why the last sample failed.
    pub trouble: Option<String>,
    failed: Option<Failure>,
}

/// The sampling threads.
pub struct Looking {
    seen: Arc<Mutex<Seen>>,
    ended: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Looking {
    /// Opens the store and starts the threads.
    pub fn start(path: &Path, open: &OpenArgs, secrets: &Secrets, interval: Duration) -> Result<Looking> {
        let page_size = place::page_size(path);
        // No read snapshot is held between samples, because it would block checkpoints of other
        // processes.
        let config = || Config::new().hold_reads(false);
        let looker = place::open_with(path, For::Looking, open, secrets, config())?;
        let counter = place::open_with(path, For::Looking, open, secrets, config())?;
        let mut looker = Looker::new(looker, path, page_size);
        let mut looking = Looking { seen: Arc::default(), ended: Arc::default(), threads: Vec::new() };
        looking.spawn(interval, move |seen| {
            let look = looker.look()?;
            lock(seen).look = Some((look, Instant::now()));
            Ok(())
        })?;
        looking.spawn(interval, move |seen| count(&counter, seen))?;
        Ok(looking)
    }

    fn spawn(
        &mut self,
        interval: Duration,
        mut look: impl FnMut(&Mutex<Seen>) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let (seen, ended) = (Arc::clone(&self.seen), Arc::clone(&self.ended));
        self.threads.push(thread::Builder::new().spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                let began = Instant::now();
                match look(&seen) {
                    Ok(()) => lock(&seen).trouble = None,
                    Err(Failure::Busy(text)) => lock(&seen).trouble = Some(text),
                    Err(failure) => {
                        lock(&seen).failed = Some(failure);
                        return;
                    }
                }
                let took = began.elapsed();
                thread::park_timeout(interval.max(took * SHARE).saturating_sub(took));
            }
        })?);
        Ok(())
    }

    pub fn seen(&self) -> MutexGuard<'_, Seen> {
        lock(&self.seen)
    }

    /// Fails with the error of a thread that has ended.
    pub fn check(&self) -> Result<()> {
        if let Some(failure) = self.seen().failed.take() {
            return Err(failure);
        }
        if self.threads.iter().any(JoinHandle::is_finished) {
            return Err(Failure::Refused("a thread panicked: please report the message above".to_owned()));
        }
        Ok(())
    }
}

impl Drop for Looking {
    /// Asks the threads to end, without waiting for them: a count may take long.
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        self.threads.iter().for_each(|thread| thread.thread().unpark());
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Change per second.
fn rate(before: u64, after: u64, within: Duration) -> f64 {
    #[allow(clippy::cast_precision_loss)] // approximate output
    let change = after as f64 - before as f64;
    change / within.as_secs_f64().max(0.001)
}

/// Counts the live keys of all families.
fn count(store: &Store, seen: &Mutex<Seen>) -> Result<()> {
    let families = ends::families(store, None)?;
    lock(seen).counts.retain(|name, _| families.iter().any(|family| family.name() == name));
    for family in families {
        let keys = match family.count_live() {
            Err(e) if e.kind() == ErrorKind::NotFound => continue, // dropped since it was listed
            keys => keys?,
        };
        let at = Instant::now();
        let mut seen = lock(seen);
        let before = seen.counts.get(family.name());
        let per_second = before.map(|before| rate(before.keys, keys, at - before.at));
        seen.counts.insert(family.name().to_owned(), Counted { keys, at, per_second });
    }
    Ok(())
}

/// Samples everything but the number of keys.
struct Looker {
    store: Store,
    path: PathBuf,
    wal: PathBuf,
    page_size: u64,
    /// Time, bytes in use and commit counter of the sample before.
    before: Option<(Instant, u64, Option<u32>)>,
    commit_rates: Vec<u64>,
}

impl Looker {
    fn new(store: Store, path: &Path, page_size: u64) -> Looker {
        let mut wal = path.as_os_str().to_owned();
        wal.push("-wal");
        Looker {
            store,
            path: path.to_owned(),
            wal: wal.into(),
            page_size,
            before: None,
            commit_rates: Vec::new(),
        }
    }

    fn look(&mut self) -> Result<Look> {
        if is_url(&self.path) {
            return self.look_on_a_server();
        }
        // Only metadata: opening and closing the file would drop the POSIX locks SQLite holds on
        // it.
        let length = |path: &Path| fs::metadata(path).map_or(0, |metadata| metadata.len());
        let mut look =
            Look { file_bytes: length(&self.path), wal_bytes: length(&self.wal), ..Look::default() };
        let stats = self.store.stats()?;
        look.used_bytes = stats.size_bytes;
        look.free_bytes = (stats.db_pages * self.page_size).saturating_sub(stats.size_bytes);
        let (at, commits) = (Instant::now(), self.store.commit_counter()?);
        if let Some((before, used, committed)) = self.before.replace((at, look.used_bytes, commits)) {
            let within = at - before;
            look.used_per_second = Some(rate(used, look.used_bytes, within));
            if let (Some(before), Some(after)) = (committed, commits) {
                let commits = after.wrapping_sub(before);
                let per_second = rate(0, u64::from(commits), within);
                look.commits_per_second = Some(per_second);
                if self.commit_rates.len() == RATES {
                    self.commit_rates.remove(0);
                }
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                // not negative, less than 2^32
                self.commit_rates.push(per_second.round() as u64);
            }
        }
        look.commit_rates.clone_from(&self.commit_rates);
        self.look_at_families(look)
    }

    fn look_on_a_server(&mut self) -> Result<Look> {
        let info = self.store.info()?.server;
        let tables = |of: ServerSizes| Tables { rows: of.rows, indexes: of.indexes, total: of.total };
        let server =
            info.map(|server| OnServer { tables: server.sizes.map(tables), is_standby: server.is_standby });
        let server = server.unwrap_or_default();
        let total = server.tables.map_or(0, |tables| tables.total);
        let mut look = Look { used_bytes: total, server: Some(server), ..Look::default() };
        let at = Instant::now();
        if let Some((before, used, _)) = self.before.replace((at, total, None)) {
            look.used_per_second = Some(rate(used, total, at - before));
        }
        self.look_at_families(look)
    }

    fn look_at_families(&self, mut look: Look) -> Result<Look> {
        let now_ms = self.store.now_ms();
        look.now_ms = now_ms;
        for family in ends::families(&self.store, None)? {
            let soon = look_at(&family, now_ms, &mut look.next)?;
            look.soon = look.soon.plus(soon);
            look.families.push((family.name().to_owned(), soon));
        }
        Ok(look)
    }
}

/// Counts the keys of a family that expire soon, and merges the first of them into `next`.
fn look_at(family: &Family, now_ms: i64, next: &mut Vec<Next>) -> Result<Soon> {
    let mut soon = Soon::default();
    ends::each(family, i64::MIN, now_ms.saturating_add(1), |_, _| {
        soon.expired.count += 1;
        soon.expired.more = soon.expired.count == BOUND;
        !soon.expired.more
    })?;
    let within = |seconds: i64| now_ms.saturating_add(seconds * SECOND_MS);
    let (minute_ms, hour_ms, day_ms) = (within(60), within(3600), within(86_400));
    let mut seen = 0;
    ends::each(family, now_ms.saturating_add(1), i64::MAX, |expire_ms, key| {
        seen += 1;
        let at_bound = seen == BOUND;
        for (within, until_ms) in
            [(&mut soon.minute, minute_ms), (&mut soon.hour, hour_ms), (&mut soon.day, day_ms)]
        {
            let is_within = expire_ms <= until_ms;
            within.count += u64::from(is_within);
            within.more |= is_within && at_bound;
        }
        let is_next = seen <= NEXT as u64;
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
        let soon = look_at(&store, now_ms, &mut next).unwrap();
        assert_eq!(soon, Soon { minute: exactly(3), hour: exactly(6), day: exactly(6), expired: exactly(3) });
        let bound = Bounded { count: BOUND, more: true };
        assert_eq!(
            look_at(&many, now_ms, &mut next).unwrap(),
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
        let seen = Mutex::default();
        count(&store, &seen).unwrap();
        assert_eq!(lock(&seen).counts["default"].per_second, None);
        store.put("b", "1").unwrap();
        store.put_with_expiry("dead", "1", Expiry::At(1000)).unwrap();
        count(&store, &seen).unwrap();
        let counted = lock(&seen).counts["default"];
        assert_eq!(counted.keys, 2);
        assert!(counted.per_second.unwrap() > 0.0);
    }
}
