//! Size limit of a store, and eviction of keys by the write that exceeds it (ADR 16).
//!
//! The size is the number of pages of the file without the free ones. A write first makes its own
//! changes. Then, in the same transaction, it evicts other keys until the limit holds again. If
//! that is impossible, the whole write is undone. Keys that the write itself has put are never
//! evicted for it. Writes that only remove keys are never refused.
//!
//! Correctness depends on no state in memory: the limit is stored in the file, SQLite counts the
//! pages, and the indexes by time give the order of eviction.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

use super::connection::Db;
use super::engine::{Engine, Step, TimeIndex, from_time};
use super::expiry_schedule::FamiliesBy;
use super::quota::{Quota, Removed};
use super::schema::{self, Tables};
use super::write::Contents;
use crate::backend::TransactionState;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::expiry;
use crate::hint::Hint;
use crate::options::{Eviction, SizeLimit};

/// Name of the size limit, in bytes, in the table kvstore_meta.
const MAX_BYTES: &str = "max_bytes";
/// Name of the eviction policy in the table kvstore_meta.
const EVICTION: &str = "eviction";
/// Smallest size limit that can be set, in pages: space for the tables of a store, those of some
/// families, and some data.
const LEAST_PAGES: u64 = 32;

/// Maximum number of ids of evicted large values that are remembered for one family, so that new
/// large values can use them.
const MOST_HOLES: usize = 1024;
/// Maximum number of families for which ids of evicted large values are remembered, so that new
/// large values can use them.
const MOST_FAMILIES: usize = 64;

/// Maximum number of keys that a write evicts to keep a reserve of free pages below the size limit.
/// If the limit itself is exceeded, the write evicts as many keys as necessary.
const KEYS_AHEAD: u32 = 16;
/// State of the current write in a store that has a size limit.
struct Watch {
    /// Number of pages that were in use before the write.
    before: u32,
    /// Whether the write is part of the caller's transaction, and so runs in a savepoint.
    savepoint: bool,
}

impl Db {
    // ---- the limit ---------------------------------------------------------------------------

    /// Reads the size limit from the file, in the open transaction or in one of its own; `None` if
    /// there is none. An invalid size is read as no limit, and an invalid eviction policy as
    /// `Eviction::None`.
    pub(super) fn read_limit(&self) -> Result<Option<Quota>> {
        let bound = self.read_bound()?;
        self.quota.pages.set(bound.map_or(0, |bound| bound.pages));
        self.quota.notes_uses.set(bound.is_some_and(|bound| bound.limit.eviction == Eviction::LeastUsed));
        Ok(bound)
    }

    fn read_bound(&self) -> Result<Option<Quota>> {
        let [max_bytes, eviction] = self.read_meta([MAX_BYTES, EVICTION])?;
        let Some(max_bytes) =
            max_bytes.and_then(|bytes| u64::try_from(bytes).ok()).filter(|bytes| *bytes > 0)
        else {
            return Ok(None);
        };
        self.bound(SizeLimit { max_bytes, eviction: Eviction::from_stored(eviction) }).map(Some)
    }

    fn bound(&self, limit: SizeLimit) -> Result<Quota> {
        let pages = limit.max_bytes / self.page_size()?.max(1);
        Ok(Quota { limit, pages: u32::try_from(pages).unwrap_or(u32::MAX) })
    }

    /// Returns the size limit that was last read from the file, in pages; `None` if there is none.
    #[inline]
    pub(super) fn limit_in_pages(&self) -> Option<u32> {
        Some(self.quota.pages.get()).filter(|pages| *pages > 0)
    }

    /// Reads the size limit from the file; `None` if there is none.
    pub(crate) fn limit_now(&self) -> Result<Option<SizeLimit>> {
        Ok(self.read_limit()?.map(|bound| bound.limit))
    }

    /// Sets the size limit (`None` removes it) inside a write transaction, and evicts keys if the
    /// data exceeds the new limit. If this fails, nothing is changed.
    pub(crate) fn set_limit(&self, limit: Option<SizeLimit>, clock: &Clock) -> Result<()> {
        if let Some(limit) = limit {
            let least = LEAST_PAGES * self.page_size()?;
            if limit.max_bytes < least || i64::try_from(limit.max_bytes).is_err() {
                return Err(Error::invalid(format!(
                    "the size limit of {} bytes is out of bounds: set at least {least} ({LEAST_PAGES} pages of \
                    this store) and at most 8 EiB, or no limit",
                    limit.max_bytes
                )));
            }
        }
        let eviction = limit.and_then(|limit| limit.eviction.stored());
        let max_bytes = limit.and_then(|limit| i64::try_from(limit.max_bytes).ok());
        self.in_savepoint(|db| {
            db.forget_settings();
            let conn = db.switch_to_sql()?;
            schema::set_meta(conn, MAX_BYTES, max_bytes)?;
            schema::set_meta(conn, EVICTION, eviction)?;
            db.track_all_if_needed(clock.now_ms())?;
            db.hold(clock, None)
        })
    }

    /// Turns on write tracking in every family if the eviction policy needs it.
    pub(super) fn track_all_if_needed(&self, now_ms: i64) -> Result<()> {
        if self.limit()?.is_some_and(|bound| bound.limit.eviction.needs_write_times()) {
            let families = self.families()?;
            // SQL for all families: the `btree` engine would read the list of tables again after
            // each of them.
            let conn = self.switch_to_sql()?;
            for family in families {
                if schema::settings(conn, &family)?.is_some_and(|settings| !settings.track_writes) {
                    schema::track_writes(conn, &Tables::of(&family), now_ms)?;
                }
            }
            self.forget_settings();
            self.forget_all_bounds();
        }
        Ok(())
    }

    // ---- writes ------------------------------------------------------------------------------

    /// Runs the write `f` inside a write transaction, then evicts other keys until the size limit
    /// of the store holds. Fails if that is impossible; the changes of `f` are then undone.
    #[inline]
    pub(crate) fn within_limit(&self, clock: &Clock, f: &dyn Fn(&Db) -> Result<()>) -> Result<()> {
        if self.is_known_unlimited() && !self.quota.watched.get() {
            return f(self);
        }
        let Some(watch) = self.begin_watch()? else { return f(self) };
        let done = self.store_uses(clock).and_then(|()| f(self));
        self.end_watch(clock, &watch, done)
    }

    #[cold]
    #[inline(never)]
    fn begin_watch(&self) -> Result<Option<Watch>> {
        if self.limit()?.is_none() {
            self.quota.begin(false);
            return Ok(None);
        }
        let watch =
            Watch { before: self.used_pages()?, savepoint: self.transaction != TransactionState::None };
        if watch.savepoint {
            self.begin_savepoint()?; // a separate transaction is rolled back as a whole instead
        }
        self.quota.begin(true);
        Ok(Some(watch))
    }

    #[cold]
    #[inline(never)]
    fn end_watch(&self, clock: &Clock, watch: &Watch, done: Result<()>) -> Result<()> {
        let done = done.and_then(|()| self.hold(clock, Some(watch.before)));
        if watch.savepoint { self.end_savepoint(done) } else { done }
    }

    /// Records that the current write may make the store larger. Call this for each write of a row
    /// or a table, but not for removals.
    #[inline]
    pub(super) fn note_growth(&self) {
        self.quota.grown.set(true);
    }

    /// Returns the number of keys that the last write removed to stay within the size limit, and
    /// resets it; `None` if it removed none.
    #[inline]
    pub(crate) fn take_removed(&self) -> Option<Removed> {
        self.quota.removed.take()
    }

    /// Returns the number of pages in use: those that the file would have without its free pages.
    fn used_pages(&self) -> Result<u32> {
        let (all, free) = self.size_in_pages()?;
        Ok(used(all, free, self.page_size()?))
    }

    /// Returns the number of pages of the file, and the number of its free pages. The `sql` engine
    /// reads the whole schema for that, if it has not done so before.
    pub(super) fn size_in_pages(&self) -> Result<(u32, u32)> {
        if let Some(btree) = &self.btree {
            return btree.size(self);
        }
        let number = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        Ok((number(self.page_count()?), number(self.free_pages()?)))
    }

    /// Returns the size of the data in the file, in bytes.
    pub(crate) fn used_bytes(&self) -> Result<u64> {
        self.in_snapshot(|db| Ok(u64::from(db.used_pages()?) * db.page_size()?))
    }

    // ---- eviction ----------------------------------------------------------------------------

    /// Evicts keys after a write until the size limit of the store holds. Fails if the write has
    /// increased the number of pages in use and the limit still does not hold. `before` is the
    /// number of pages in use before the write. `None`: the limit was set, and must hold whatever
    /// was in use before.
    fn hold(&self, clock: &Clock, before: Option<u32>) -> Result<()> {
        let Some(bound) = self.limit()? else { return Ok(()) };
        let mut used = self.used_pages()?;
        let has_grown = |used| before.is_none_or(|before| used > before);
        // A write that only removes keys may still need a page, because another key takes the place
        // of a removed one that separates two pages of the B-tree. It evicts keys for that page
        // only.
        let only_removes = before.is_some() && !self.quota.grown.get();
        let is_much = match before {
            None => used > bound.pages, // a new limit that already holds evicts nothing
            Some(_) if only_removes => used > bound.pages && has_grown(used),
            Some(_) => used > bound.comfortable(),
        };
        let mut removed = self.quota.removed.get().unwrap_or_default();
        if is_much {
            used = self.make_room(bound, used, clock, &mut removed)?;
        }
        if !only_removes && used > bound.pages && has_grown(used) {
            return Err(full(bound.limit, before.is_none()));
        }
        self.quota.removed.set(Some(removed).filter(|removed| *removed != Removed::default()));
        if self.transaction == TransactionState::None {
            self.shrink_to_limit()?; // the commit does that for a transaction of the caller
        }
        Ok(())
    }

    /// Evicts keys until the size limit `bound` holds or no further key may be evicted. `used` is
    /// the number of pages in use. Adds the numbers of evicted keys to `removed`. Returns the
    /// number of pages that are then in use.
    fn make_room(&self, bound: Quota, mut used: u32, clock: &Clock, removed: &mut Removed) -> Result<u32> {
        let now_ms = clock.now_ms();
        let order = match bound.limit.eviction {
            Eviction::None => return Ok(used),
            Eviction::Soonest => [Some((TimeIndex::Expiry, i64::MAX)), None],
            Eviction::Oldest | Eviction::LeastUsed => {
                [Some((TimeIndex::Expiry, now_ms)), Some((TimeIndex::Written, i64::MAX))]
            }
        };
        let mut keys = 0;
        for (index, last_ms) in order.into_iter().flatten() {
            let mut candidates = Candidates::begin(self, index, last_ms)?;
            while used > bound.pages || used > bound.comfortable() && keys < KEYS_AHEAD {
                let Some(candidate) = candidates.next()? else { break };
                let contents = self.contents(&candidate.tables, clock);
                let can_be_spared = self.quota.notes_uses.get() && index == TimeIndex::Written;
                if can_be_spared && contents.spare_if_used(&candidate.key)? {
                    used = self.used_pages()?;
                    continue;
                }
                if let Some(is_live) = contents.evict(index, candidate.time_ms, &candidate.key, now_ms)? {
                    removed.live += u64::from(is_live);
                    removed.expired += u64::from(!is_live);
                }
                keys += 1;
                used = self.used_pages()?;
            }
        }
        Ok(used)
    }

    /// Removes free pages from the file as long as the file exceeds the size limit of the store,
    /// inside a write transaction.
    pub(super) fn shrink_to_limit(&self) -> Result<()> {
        let Some(bound) = self.limit()? else { return Ok(()) };
        let (all, free) = self.size_in_pages()?;
        match all.saturating_sub(bound.pages).min(free) {
            0 => Ok(()),
            pages => self.take_pages_off(pages),
        }
    }

    /// Removes up to `pages` free pages from the file, which becomes shorter by them.
    #[cold]
    fn take_pages_off(&self, pages: u32) -> Result<()> {
        if let Some(btree) = &self.btree {
            return btree.take_pages_off(pages);
        }
        self.incremental_vacuum(u64::from(pages))
    }
}

impl Contents<'_> {
    /// Records that the current write is about to put a key or change its expiry time, so that the
    /// write does not evict the key. `bytes` is the length of the value. Fails if the write alone
    /// is larger than the size limit.
    #[inline]
    pub(super) fn note_put(self, key: &[u8], bytes: usize) -> Result<()> {
        self.db.note_growth();
        if self.db.quota.watched.get() { self.note_put_of(key, bytes) } else { Ok(()) }
    }

    /// Records that the current write is about to remove the expiry time of a key, so that the
    /// write does not evict the key.
    #[inline]
    pub(super) fn note_persisted(self, key: &[u8]) {
        let quota = &self.db.quota;
        if quota.watched.get() {
            let mut put = quota.put.borrow_mut();
            put.entry(self.tables.family().to_owned()).or_default().insert(key.to_vec(), 0);
        }
    }

    #[cold]
    fn note_put_of(self, key: &[u8], bytes: usize) -> Result<()> {
        let quota = &self.db.quota;
        let mut put = quota.put.borrow_mut();
        let family = self.tables.family();
        if !put.contains_key(family) {
            put.insert(family.to_owned(), HashMap::new());
        }
        let Some(keys) = put.get_mut(family) else { return Ok(()) };
        let new = (key.len() + bytes) as u64;
        let old = match keys.get_mut(key) {
            Some(noted) => key.len() + std::mem::replace(noted, bytes),
            None => {
                keys.insert(key.to_vec(), bytes);
                0
            }
        };
        quota.bytes.set(quota.bytes.get().saturating_sub(old as u64).saturating_add(new));
        // This check is before the write, which could be many times larger than the limit.
        match self.db.limit()? {
            Some(bound) if quota.bytes.get() > bound.limit.max_bytes => Err(too_much(bound.limit)),
            _ => Ok(()),
        }
    }

    /// Evicts the row that an entry of a time index describes by its time and key. Returns
    /// `Some(true)` if the row was live, and `Some(false)` if it was expired. If there is no such
    /// row, removes the entry and returns `None`.
    fn evict(self, index: TimeIndex, time_ms: i64, key: &[u8], now_ms: i64) -> Result<Option<bool>> {
        // The row decides, whatever the index says.
        match self.rows().head(self.tables, key)? {
            Some(head) if index.time_of(head) == Some(time_ms) => {
                self.delete_row(key, head)?;
                // Only in the order of expiry: values that were written longest ago leave whole
                // pages free.
                if let (Some(id), TimeIndex::Expiry) = (head.blob_id, index) {
                    self.note_hole(id);
                }
                Ok(Some(!head.expire_ms.is_some_and(|at| expiry::is_expired(at, now_ms))))
            }
            // Only in a damaged store: without this, every eviction would find this entry again.
            _ => match self.rows().drop_time_entry(self.tables, index, time_ms, key)? {
                true => Ok(None),
                false => Err(self.tables.index_out_of_order()),
            },
        }
    }
}

impl Contents<'_> {
    /// Remembers the id of a large value that was evicted, so that a new large value can use the id
    /// (`take_hole`).
    fn note_hole(self, id: i64) {
        let mut holes = self.db.quota.holes.borrow_mut();
        let family = self.tables.family();
        if holes.len() >= MOST_FAMILIES && !holes.contains_key(family) {
            holes.clear();
        }
        let of_family = holes.entry(family.to_owned()).or_default();
        if of_family.len() >= MOST_HOLES {
            of_family.pop_front();
        }
        of_family.push_back(id);
    }

    /// Returns the id of an evicted large value, for a new large value to use; `None` if none is
    /// remembered. Another connection may have used the id already.
    #[inline]
    pub(super) fn take_hole(self) -> Option<i64> {
        if !self.db.quota.watched.get() {
            return None;
        }
        self.db.quota.holes.borrow_mut().get_mut(self.tables.family())?.pop_front()
    }
}

/// Returns the number of pages in use: those that the file would have without its free pages. `all`
/// is the number of pages of the file, and `free` the number of free pages among them.
///
/// Without them the file would also have fewer pointer map pages (fileformat2.html, chapter 1.8).
/// In a file that was once large these are many.
fn used(all: u32, free: u32, page_size: u64) -> u32 {
    let noted = u32::try_from(page_size / 5).unwrap_or(u32::MAX).max(1);
    let last_note = 2 + all.saturating_sub(2) / (noted + 1) * (noted + 1);
    let after_it = all.saturating_sub(last_note);
    let fewer = if free > 0 && free >= after_it { (free - after_it) / noted + 1 } else { 0 };
    all.saturating_sub(free).saturating_sub(fewer)
}

/// Iterator over the rows that may be evicted, of all families together, in the order of a time
/// index.
struct Candidates<'d> {
    db: &'d Db,
    index: TimeIndex,
    last_ms: i64,
    /// Walk over the families that are not yet in `families`, in the order of their earliest
    /// entries in the time index.
    unopened: FamiliesBy,
    /// Next row that may be evicted of each family in `families`, earliest time first: the time,
    /// the index of the family in `families`, and the key.
    next: BinaryHeap<Reverse<(i64, usize, Vec<u8>)>>,
    /// Families whose rows the walk has begun to visit.
    families: Vec<Arc<Tables>>,
}

/// Row that may be evicted, as described by an entry of a time index.
struct Candidate {
    tables: Arc<Tables>,
    time_ms: i64,
    key: Vec<u8>,
}

impl<'d> Candidates<'d> {
    /// Begins a walk over the rows whose time is `last_ms` or earlier.
    fn begin(db: &'d Db, index: TimeIndex, last_ms: i64) -> Result<Candidates<'d>> {
        let unopened = db.families_by(index)?;
        Ok(Candidates { db, index, last_ms, unopened, next: BinaryHeap::new(), families: Vec::new() })
    }

    fn next(&mut self) -> Result<Option<Candidate>> {
        loop {
            let first_ms = self.next.peek().map_or(i64::MAX, |Reverse((time_ms, ..))| *time_ms);
            let Some(tables) = self.db.next_family(&mut self.unopened, first_ms.min(self.last_ms))? else {
                break;
            };
            self.families.push(tables);
            self.add_next(self.families.len() - 1, from_time(i64::MIN))?;
        }
        let Some(Reverse((time_ms, at, key))) = self.next.pop() else { return Ok(None) };
        let Some(tables) = self.families.get(at).map(Arc::clone) else { return Ok(None) };
        self.add_next(at, (time_ms, &key))?;
        Ok(Some(Candidate { tables, time_ms, key }))
    }

    /// Adds the next row that may be evicted to `next`. It is taken from the family at index `at`
    /// of `families`, after the entry `after` of the time index of that family.
    fn add_next(&mut self, at: usize, after: (i64, &[u8])) -> Result<()> {
        let Some(tables) = self.families.get(at) else { return Ok(()) };
        let mut found = None;
        self.db.rows().by_time(tables, self.index, after, |time_ms, key| {
            if time_ms > self.last_ms {
                return Ok(Step::Stop);
            }
            if self.db.quota.has_put(tables.family(), key) {
                return Ok(Step::Continue);
            }
            found = Some((time_ms, at, key.to_vec()));
            Ok(Step::Stop)
        })?;
        self.next.extend(found.map(Reverse));
        Ok(())
    }
}

/// Returns the error for a write that alone is larger than the size limit.
#[cold]
fn too_much(limit: SizeLimit) -> Error {
    Error::over_limit(format!(
        "this write alone is larger than the size limit of {} bytes; write less in one transaction",
        limit.max_bytes
    ))
    .with_hint(Hint::RaiseSizeLimit)
}

/// Returns the error for a write that exceeds the size limit when no further key can be evicted.
/// `set`: the write sets the limit to less than the size of the data.
#[cold]
fn full(limit: SizeLimit, set: bool) -> Error {
    let why = match limit.eviction {
        Eviction::None => "its policy evicts nothing",
        Eviction::Soonest => "no other key with a TTL is left to evict",
        Eviction::Oldest | Eviction::LeastUsed => "no other key is left to evict",
    };
    let what = if set { "the data is larger than" } else { "the store has reached" };
    Error::over_limit(format!("{what} the size limit of {} bytes, and {why}", limit.max_bytes))
        .with_hint(Hint::RaiseSizeLimit)
}
