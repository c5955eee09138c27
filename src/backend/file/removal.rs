//! Removal of keys in the order of a time index, by purges and sweeps.
//!
//! A removal first lists the keys with the earliest times, sorts the list by key, and removes the
//! keys in several transactions (ADR 36). So each page of the data table and of the key index is changed once
//! per list, although the transactions are short.
//!
//! Between two transactions, other connections can change the listed keys. So each removal of a row
//! checks the times of the row itself.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::sync::Arc;

use super::connection::Db;
use super::engine::{Engine, Step, TimeIndex, from_time};
use super::schema::Tables;
use super::write::Contents;
use crate::backend::{Removals, StepLimits};
use crate::error::Result;
use crate::expiry;
use crate::memory::{copy_of, reserve};

/// Number of keys that are listed between two checks whether the list should end.
const KEYS_PER_LIST_LOOK: usize = 256;
/// Least and greatest number of keys that one transaction removes at most. In between, it is the
/// target length of the WAL in pages, so that one transaction does not make the WAL many times
/// longer.
const KEYS_PER_STEP: [usize; 2] = [256, 4096];
/// Maximum size of a list. A longer list has more keys on each page of the tables. While a list is
/// made from several families, it can need two and a half times this memory.
const LIST: ListSize = ListSize { keys: 131_072, bytes: 8 << 20 };
/// Maximum size of a list if a transaction removes only the least number of keys, because memory and
/// disk are small, or if the removal has a time limit.
const SMALL_LIST: ListSize = ListSize { keys: KEYS_PER_STEP[0], bytes: 128 << 10 };
/// Memory that an allocation needs in addition to its length, in bytes.
const PER_ALLOCATION: usize = 16;

/// List of keys that the next transactions of a purge or a sweep remove.
#[derive(Default)]
pub(crate) struct RemovalList {
    /// The keys that are left, in descending order of family and key; of time if the removal has a
    /// time limit. They are removed from the end.
    keys: Vec<ListedKey>,
}

/// Entry of a time index, in a [`RemovalList`].
struct ListedKey {
    family: Arc<Tables>,
    time_ms: i64,
    key: Box<[u8]>,
}

/// What a removal removes.
#[derive(Clone, Copy)]
pub(super) struct RemovalAim<'a> {
    /// Time index whose entries are removed: that of expiry times for a purge, that of write times
    /// for a sweep.
    pub(super) index: TimeIndex,
    /// The families, each with the earliest time that may be in its index, ordered by that time.
    pub(super) families: &'a [(i64, Arc<Tables>)],
    /// Latest time of the entries that are removed, in milliseconds since the Unix epoch.
    pub(super) last_ms: i64,
    /// Current time, in milliseconds since the Unix epoch.
    pub(super) now_ms: i64,
}

impl RemovalList {
    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

impl Db {
    /// Runs one step of a purge or sweep, in one transaction: makes the list if it is empty, and
    /// removes keys of the list. Returns the number of removed keys.
    ///
    /// The step ends when it has removed `limits.max` keys or as many as a transaction should, when
    /// a writer waits, or when `limits.in_time` returns `false`; but it removes a key in any case.
    /// The transaction also removes all rows that reads have noted. These are not counted.
    pub(super) fn remove_step(
        &mut self,
        aim: &RemovalAim<'_>,
        list: &mut RemovalList,
        limits: &StepLimits<'_>,
    ) -> Result<Removals> {
        let per_step = limits.max.min(self.keys_per_step());
        let shared = RefCell::new(&mut *list);
        let (removals, removed) = self.write_removals(per_step, limits.has_time_limit, |db, max| {
            if aim.index == TimeIndex::Expiry {
                db.remove_pending_in_transaction(aim.now_ms)?;
            }
            db.remove_listed(aim, &mut shared.borrow_mut(), max, limits)
        })?;
        // Only now: before the commit, the removal may be rolled back and run again.
        list.keys.truncate(list.keys.len().saturating_sub(removed));
        Ok(removals)
    }

    /// Removes up to `max` keys inside a write transaction: those of the list, and those of further
    /// lists if it ends before. Returns the number of removed keys, and how many keys at the end of
    /// the list are done.
    pub(super) fn remove_listed(
        &self,
        aim: &RemovalAim<'_>,
        list: &mut RemovalList,
        max: usize,
        limits: &StepLimits<'_>,
    ) -> Result<(Removals, usize)> {
        let turn = self.begin_turn();
        let mut removals = Removals::default();
        let (mut seen, mut done, mut is_fresh) = (0, 0, false);
        let mut exists: Option<&Tables> = None;
        while seen < max {
            if done == list.keys.len() {
                let size = self.list_size(limits);
                let most = ListSize { keys: size.keys.min(limits.max - seen), ..size };
                let ends = || turn.list_is_over(limits.waited_for);
                // The time limit can end the removal at any key, and the earliest keys go first.
                list.keys = self.list_keys(aim, most, limits.has_time_limit, &ends)?;
                (done, is_fresh, exists) = (0, true, None);
            }
            let Some(listed) = list.keys.iter().rev().nth(done) else { break };
            done += 1;
            seen += 1;
            if exists.is_none_or(|tables| !std::ptr::eq(tables, &*listed.family)) {
                exists = self.family_exists(listed.family.family())?.then_some(&listed.family);
            }
            if exists.is_some() {
                let removed = self.on(&listed.family).remove_listed_key(aim, listed)?;
                removals.entries += u64::from(removed.is_some());
                removals.counted += u64::from(removed == Some(true));
            }
            // After each key, because the removal of a large value can take milliseconds.
            if turn.is_over(limits.waited_for) || !(limits.in_time)() {
                break;
            }
        }
        if let (true, 0, Some(last)) = (is_fresh, removals.entries, list.keys.last()) {
            return Err(last.family.index_out_of_order()); // no lookup finds what the list has found
        }
        removals.others_wait = turn.others_wait(limits.waited_for);
        Ok((removals, done))
    }

    /// Returns the maximum number of keys that one transaction removes.
    fn keys_per_step(&self) -> usize {
        let [least, greatest] = KEYS_PER_STEP;
        usize::try_from(self.checkpoints.limit.0).unwrap_or(greatest).clamp(least, greatest)
    }

    /// Returns the maximum size of a list.
    fn list_size(&self, limits: &StepLimits<'_>) -> ListSize {
        let is_small = limits.has_time_limit || self.keys_per_step() == KEYS_PER_STEP[0];
        if is_small { SMALL_LIST } else { LIST }
    }

    /// Returns the keys with the earliest times, as many as fit in a list, in descending order of
    /// time (`by_time`) or of family and key. The list has fewer keys if `ends` returns `true`
    /// meanwhile.
    fn list_keys(
        &self,
        aim: &RemovalAim<'_>,
        most: ListSize,
        by_time: bool,
        ends: &dyn Fn() -> bool,
    ) -> Result<Vec<ListedKey>> {
        let mut keys = Vec::new();
        let mut last_ms = aim.last_ms;
        for (first_ms, family) in aim.families {
            if *first_ms > last_ms {
                break; // and so the families after it
            }
            if !self.family_exists(family.family())? {
                continue; // dropped since it was found
            }
            let ended_ms = self.list_family(&mut keys, aim.index, family, last_ms, most, ends)?;
            if let Some(ended_ms) = ended_ms {
                keys.retain(|listed| listed.time_ms <= ended_ms);
            }
            if let Some(cut_ms) = keep_earliest(&mut keys, most).or(ended_ms) {
                last_ms = cut_ms.saturating_sub(1); // the list needs no more keys with this time
            }
        }
        if by_time {
            keys.sort_unstable_by_key(|listed| Reverse(listed.time_ms));
            return Ok(keys);
        }
        keys.sort_unstable_by(|a, b| match Arc::ptr_eq(&a.family, &b.family) {
            true => b.key.cmp(&a.key),
            false => (b.family.family(), &b.key).cmp(&(a.family.family(), &a.key)),
        });
        Ok(keys)
    }

    /// Adds the keys of a family with the earliest times up to `last_ms`, at most as many as fit in a
    /// list. If `ends` returned `true` before, returns the time of the last key that was added.
    fn list_family(
        &self,
        keys: &mut Vec<ListedKey>,
        index: TimeIndex,
        family: &Arc<Tables>,
        last_ms: i64,
        most: ListSize,
        ends: &dyn Fn() -> bool,
    ) -> Result<Option<i64>> {
        let (mut size, mut ended_ms) = (ListSize::default(), None);
        self.rows().by_time(family, index, from_time(i64::MIN), |time_ms, key| {
            if time_ms > last_ms {
                return Ok(Step::Stop);
            }
            reserve(keys, 1)?;
            let key = copy_of(key)?.into_boxed_slice();
            let listed = ListedKey { family: Arc::clone(family), time_ms, key };
            size.add(&listed);
            keys.push(listed);
            if keys.len().is_multiple_of(KEYS_PER_LIST_LOOK) && ends() {
                ended_ms = Some(time_ms);
            }
            Ok(if size.is_full(most) || ended_ms.is_some() { Step::Stop } else { Step::Continue })
        })?;
        Ok(ended_ms)
    }
}

/// Number and total size of listed keys.
#[derive(Clone, Copy, Default)]
struct ListSize {
    keys: usize,
    bytes: usize,
}

impl ListSize {
    fn add(&mut self, listed: &ListedKey) {
        self.keys += 1;
        self.bytes += size_of::<ListedKey>() + PER_ALLOCATION + listed.key.len();
    }

    fn is_full(self, most: ListSize) -> bool {
        self.keys >= most.keys || self.bytes >= most.bytes
    }
}

/// Drops all keys but those with the earliest times that fit in a list. Returns the latest time that
/// is left if the list is full; otherwise `None`.
fn keep_earliest(keys: &mut Vec<ListedKey>, most: ListSize) -> Option<i64> {
    let mut size = ListSize::default();
    keys.sort_unstable_by_key(|listed| listed.time_ms);
    let fits = keys.iter().position(|listed| {
        size.add(listed);
        size.is_full(most)
    })?;
    keys.truncate(fits + 1);
    keys.last().map(|listed| listed.time_ms)
}

impl Contents<'_> {
    /// Removes the row of a listed key, with its index entries. Returns `Some(true)` if the row is to
    /// be counted, and `None` if nothing was removed.
    fn remove_listed_key(self, aim: &RemovalAim<'_>, listed: &ListedKey) -> Result<Option<bool>> {
        let ListedKey { time_ms, key, .. } = listed;
        if *time_ms > aim.last_ms {
            return Ok(None); // the clock was set back since the key was listed
        }
        let head = self.rows().head(self.tables, key)?;
        if let Some(head) = head
            && aim.index.time_of(head) == Some(*time_ms)
        {
            let counts = match aim.index {
                TimeIndex::Expiry => !self.was_met(key, *time_ms),
                TimeIndex::Written => !self.is_expired(head),
            };
            self.delete_row(key, head)?;
            return Ok(Some(counts));
        }
        // The row was written again or removed since, and this entry with it. In a damaged store the
        // entry is still there: without this, every removal would find it again.
        if !self.rows().drop_time_entry(self.tables, aim.index, *time_ms, key)? {
            return Ok(None);
        }
        let expired_at =
            head.and_then(|head| head.expire_ms).filter(|at| expiry::is_expired(*at, aim.now_ms));
        let (Some(head), Some(expired_at), TimeIndex::Expiry) = (head, expired_at, aim.index) else {
            return Ok(Some(false));
        };
        // The row decides, whatever the index says.
        self.delete_row(key, head)?;
        Ok(Some(!self.was_met(key, expired_at)))
    }
}

/// Removals in the open transaction, which a test compares with those on a server.
#[cfg(all(test, feature = "remote"))]
impl Contents<'_> {
    pub(crate) fn purge(self, last_ms: i64, now_ms: i64, max: usize) -> Result<Removals> {
        self.remove(TimeIndex::Expiry, last_ms.min(now_ms), now_ms, max)
    }

    pub(crate) fn sweep(self, last_ms: i64, max: usize) -> Result<Removals> {
        self.remove(TimeIndex::Written, last_ms, self.clock.now_ms(), max)
    }

    fn remove(self, index: TimeIndex, last_ms: i64, now_ms: i64, max: usize) -> Result<Removals> {
        let families = &[(i64::MIN, Arc::new(Tables::of(self.tables.family())))];
        let limits = StepLimits { max, has_time_limit: false, in_time: &|| true, waited_for: &|| false };
        let aim = RemovalAim { index, families, last_ms, now_ms };
        Ok(self.db.remove_listed(&aim, &mut RemovalList::default(), max, &limits)?.0)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::config::Config;
    use crate::expiry::Expiry;
    use crate::options::PutOptions;

    const NOW_MS: i64 = 5_000;

    fn put(db: &mut Db, tables: &Arc<Tables>, key: u32, expire_ms: i64) {
        let options = PutOptions::new().expiry(Expiry::At(expire_ms));
        db.write(|db| db.on(tables).put(&key.to_be_bytes(), b"value", &options)).unwrap();
    }

    /// Returns the size of a list with these numbers of keys and bytes.
    fn size(keys: usize, bytes: usize) -> ListSize {
        ListSize { keys, bytes }
    }

    #[test]
    fn steps_keep_listed_keys_that_were_changed_since() {
        let (tables, mut db) = (Arc::new(Tables::of("default")), Db::open(None, &Config::new(), 1).unwrap());
        let count = 2_000;
        db.begin_write_call().unwrap();
        for key in 0..count {
            put(&mut db, &tables, key, 1_000 + i64::from(key % 100));
        }
        db.commit_call().unwrap();
        // A waiting thread ends each step after 2 ms. It comes when the list is complete.
        let looks = Cell::new(0);
        let waited_for = || looks.replace(looks.get() + 1) > count as usize / KEYS_PER_LIST_LOOK;
        let limits =
            StepLimits { max: usize::MAX, has_time_limit: false, in_time: &|| true, waited_for: &waited_for };
        let families = [(1_000, Arc::clone(&tables))];
        let mut list = RemovalList::default();
        let first = db.purge(&families, NOW_MS, NOW_MS, &mut list, &limits).unwrap();
        assert!(first.others_wait && !list.is_empty() && first.counted == first.entries, "{first:?}");
        // The last keys of the list, in the order in which they are removed.
        put(&mut db, &tables, count - 1, NOW_MS + 1);
        put(&mut db, &tables, count - 2, NOW_MS - 1); // expired, but at another time
        db.write(|db| db.on(&tables).delete(&(count - 3).to_be_bytes())).unwrap();
        let mut removed = first.counted;
        while db.on(&tables).has_expired(NOW_MS, NOW_MS).unwrap() || !list.is_empty() {
            removed += db.purge(&families, NOW_MS, NOW_MS, &mut list, &limits).unwrap().counted;
        }
        // The key that expired at another time was in a second list.
        assert_eq!((removed, db.on(&tables).count().unwrap()), (u64::from(count) - 2, 1));
        db.integrity_check().unwrap();
    }

    /// In a damaged store, entries without rows and several entries of one row must neither stop a
    /// purge nor be listed again and again.
    #[test]
    fn damaged_entries_are_removed_once_in_short_steps() {
        for config in [Config::new(), Config::new().sql_engine(true)] {
            let (tables, mut db) = (Arc::new(Tables::of("default")), Db::open(None, &config, 1).unwrap());
            let add = |db: &Db, key: u32, expire_ms| {
                db.rows().index(&tables, &key.to_be_bytes(), None, Some(expire_ms)).unwrap()
            };
            db.begin_write_call().unwrap();
            put(&mut db, &tables, 7, 1_000);
            put(&mut db, &tables, 8, NOW_MS + 1);
            for key in 0..3_000 {
                assert!(key == 8 || add(&db, key, 900));
            }
            assert!(add(&db, 7, 1_100) && add(&db, 8, 1_100));
            db.commit_call().unwrap();
            let limits = StepLimits {
                max: usize::MAX,
                has_time_limit: false,
                in_time: &|| true,
                waited_for: &|| true,
            };
            let families = [(0, Arc::clone(&tables))];
            let (mut list, mut listed, mut entries) = (RemovalList::default(), 0, 0_u64);
            while db.on(&tables).has_expired(NOW_MS, NOW_MS).unwrap() || !list.is_empty() {
                listed += usize::from(list.is_empty());
                entries += db.purge(&families, NOW_MS, NOW_MS, &mut list, &limits).unwrap().entries;
            }
            // The row of key 7 went with one of its entries. A slow machine makes shorter lists.
            let most_lists = 3_002_usize.div_ceil(KEYS_PER_LIST_LOOK);
            assert!(listed <= most_lists, "{listed} lists");
            assert!((3_000..=3_002).contains(&entries), "{entries} entries");
            assert_eq!(db.on(&tables).count().unwrap(), 1);
        }
    }

    #[test]
    fn list_has_the_earliest_keys_of_all_families() {
        let mut db = Db::open(None, &Config::new(), 1).unwrap();
        let names = ["default", "b", "a"];
        let families: Vec<_> = names.iter().map(|name| Arc::new(Tables::of(name))).collect();
        for (at, tables) in families.iter().enumerate() {
            if at > 0 {
                db.write(|db| db.create_family(tables, 1)).unwrap();
            }
            for key in 0..50 {
                put(&mut db, tables, key, 1_000 + 3 * i64::from(key) + at as i64);
            }
        }
        let due: Vec<_> = (1_000..).zip(families.iter().cloned()).collect();
        let aim = |last_ms| RemovalAim { index: TimeIndex::Expiry, families: &due, last_ms, now_ms: NOW_MS };
        for (last_ms, max, expected) in [(NOW_MS, 10, 10), (NOW_MS, 500, 150), (1_005, 500, 6), (999, 9, 0)] {
            let listed = db.list_keys(&aim(last_ms), size(max, usize::MAX), false, &|| false).unwrap();
            let mut times: Vec<_> = listed.iter().map(|listed| listed.time_ms).collect();
            times.sort_unstable();
            assert_eq!(times, (1_000..1_000 + expected).collect::<Vec<_>>());
            let order = |listed: &ListedKey| (listed.family.family().to_owned(), listed.key.clone());
            assert!(listed.iter().map(order).rev().is_sorted());
        }
    }

    #[test]
    fn step_without_time_removes_one_key() {
        let (tables, mut db) = (Arc::new(Tables::of("default")), Db::open(None, &Config::new(), 1).unwrap());
        (0..20).for_each(|key| put(&mut db, &tables, key, 1_000));
        let limits = StepLimits { max: 20, has_time_limit: true, in_time: &|| false, waited_for: &|| false };
        let mut list = RemovalList::default();
        assert_eq!(db.purge(&[(1_000, tables)], NOW_MS, NOW_MS, &mut list, &limits).unwrap().entries, 1);
    }

    #[test]
    fn keys_listed_before_clock_was_set_back_stay() {
        let (tables, mut db) = (Arc::new(Tables::of("default")), Db::open(None, &Config::new(), 1).unwrap());
        (0..20).for_each(|key| put(&mut db, &tables, key, 1_000 + i64::from(key)));
        let families = [(1_000, Arc::clone(&tables))];
        let mut list = RemovalList::default();
        let one = StepLimits { max: 20, has_time_limit: true, in_time: &|| false, waited_for: &|| false };
        db.purge(&families, NOW_MS, NOW_MS, &mut list, &one).unwrap();
        let all = StepLimits { in_time: &|| true, ..one };
        let removals = db.purge(&families, NOW_MS, 1_004, &mut list, &all).unwrap();
        assert_eq!((removals.entries, db.on(&tables).count().unwrap()), (4, 15));
    }

    #[test]
    fn list_that_ends_early_has_the_earliest_keys_of_all_families() {
        let mut db = Db::open(None, &Config::new(), 1).unwrap();
        let families: Vec<_> = ["default", "b"].map(|name| Arc::new(Tables::of(name))).into();
        db.write(|db| db.create_family(&families[1], 1)).unwrap();
        db.begin_write_call().unwrap();
        for key in 0..2_000 {
            let tables = &families[usize::from(key % 3 == 0)];
            put(&mut db, tables, key, 1_000 + i64::from(key));
        }
        db.commit_call().unwrap();
        let due: Vec<_> = [1_000, 1_001].into_iter().zip(families.iter().cloned()).collect();
        let aim = RemovalAim { index: TimeIndex::Expiry, families: &due, last_ms: NOW_MS, now_ms: NOW_MS };
        let listed = db.list_keys(&aim, LIST, false, &|| true).unwrap();
        let mut times: Vec<_> = listed.iter().map(|listed| listed.time_ms).collect();
        times.sort_unstable();
        // The 256th key of the first family has the time 1383.
        assert_eq!(times, (1_000..=1_383).collect::<Vec<_>>());
    }

    #[test]
    fn list_keeps_the_earliest_keys_that_fit() {
        let family = Arc::new(Tables::of("default"));
        let listed =
            |time_ms, length| ListedKey { family: Arc::clone(&family), time_ms, key: vec![0; length].into() };
        let entry = size_of::<ListedKey>() + PER_ALLOCATION;
        for (most, kept, cut_ms) in [
            (size(4, 9999), vec![1, 2, 3], None),
            (size(3, 9999), vec![1, 2, 3], Some(3)),
            (size(2, 9999), vec![1, 2], Some(2)),
            (size(9, 1), vec![1], Some(1)),
            (size(9, entry + 11), vec![1, 2], Some(2)),
        ] {
            let mut keys = vec![listed(2, 10), listed(3, 10), listed(1, 10)];
            assert_eq!(keep_earliest(&mut keys, most), cut_ms);
            assert_eq!(keys.iter().map(|listed| listed.time_ms).collect::<Vec<_>>(), kept);
        }
    }
}
