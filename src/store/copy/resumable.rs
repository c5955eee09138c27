//! Copy in many transactions. If it was interrupted, another call continues it.
//!
//! The rows of all families, ordered by family name and key, are processed as a ring. Each call
//! starts at the recorded position, continues from the last row with the first one, and ends when
//! it is at that position again. So the call that finishes the copy compares every row, wherever
//! earlier calls were interrupted. Where rows may have been copied before, both stores are read and
//! only differences are written.
//!
//! A call reads the source in one snapshot. If the connection breaks and the snapshot is lost, the
//! call continues in a new snapshot. If it started again instead, it could never finish over a
//! connection that breaks repeatedly.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::ops::Bound;
use std::time::{Duration, Instant};

use super::batch::{Batch, Write};
use super::record::{FAMILY, Held, Place, Record, Source};
use super::rows::{Reader, Row};
use super::{ROWS, Store, between, does_not_fit, goes_on, has_keys};
use crate::backend::TransactionState;
use crate::error::{Error, ErrorKind, Result};
use crate::family::{Direction, Family, KeyRange};
use crate::hint::Hint;
use crate::options::SizeLimit;
use crate::wait;

/// Pauses of a copy between an operation that failed, perhaps temporarily, and its retry. After the
/// last pause, the next failure ends the copy. Each committed batch starts the list again.
const PAUSES: [Duration; 6] = [
    Duration::from_millis(100),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
];

/// Result of [`Store::copy_resumable`]: what was copied, and what changed in the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct CopyReport {
    /// Number of keys in the copied families of the target, after the copy.
    pub keys: u64,
    /// Number of families copied, including the default one.
    pub families: u64,
    /// Number of keys that this call wrote. The other keys were in the target already.
    pub written: u64,
    /// Number of keys that this call removed from the target, because they are no longer in the
    /// source.
    pub removed: u64,
    /// Number of snapshots of the source that this call read; more than one if a connection to the
    /// source broke.
    pub snapshots: u64,
}

impl Store {
    /// Copies all families into another store like [`copy_to`](Store::copy_to), but in many
    /// transactions, so that an interrupted copy can continue. To continue it, call this method
    /// again for the same two stores.
    ///
    /// Failures that may be temporary, such as a broken connection to a server, are retried six
    /// times within 16 seconds. The count starts again each time something was copied.
    ///
    /// When the call returns, the copied families in `to` equal those of this store at the time the
    /// call began. Rows that earlier calls copied are compared, and differences are written or
    /// removed. If a connection to this store broke during the call, its snapshot was lost
    /// ([`CopyReport::snapshots`]): then each key has the state of some time during this call, not
    /// all of the same time. Until the copy is finished, no other connection should write to these
    /// families of `to`. Other families of `to` are not changed.
    ///
    /// The progress is recorded in `to`, in a family named `copy in progress`, which the last
    /// transaction drops. The record identifies this store also under another path. If there is no
    /// record but all data is in place, as after a call that was killed at its very end, nothing is
    /// written and the call succeeds.
    ///
    /// # Errors
    /// As [`copy_to`](Store::copy_to), but rows that were copied stay in `to`, and the next call
    /// continues after them. [`Error`](ErrorKind::Error) also if `to` has the unfinished copy of
    /// another store, if this store is itself the target of an unfinished copy, or if another call
    /// has continued this copy.
    pub fn copy_resumable(
        &self,
        to: &Store,
        mut progress: impl FnMut(u64, u64) -> bool,
    ) -> Result<CopyReport> {
        let mut go_on = |done, total| match goes_on(self, to, &mut progress, done, total)? {
            true => Ok(()),
            false => Err(Error::invalid(
                "the copy was stopped by its progress callback; the part copied so far is kept",
            )),
        };
        let copied = between(self, to, |from, to| {
            let id = RandomState::new().build_hasher().finish();
            let run = Run {
                from,
                to,
                id: format!("{id:016x}"),
                record: None,
                start: Place::default(),
                is_past_end: false,
                batch: Batch::new(),
                failures: 0,
                may_be_done: false,
                has_ended: false,
                copied: CopyReport::default(),
                total: 0,
                go_on: &mut go_on,
            };
            run.run_to_the_end()
        });
        self.session().count_failure(copied)
    }
}

/// State of one call of [`Store::copy_resumable`].
struct Run<'r> {
    from: &'r Store,
    to: &'r Store,
    /// Identity of this call, by which it notices that another call has continued the copy.
    id: String,
    /// Progress of the copy as committed in the target; `None`: not read yet.
    record: Option<Record>,
    /// Position at which this call began. The call ends when it has processed all rows and is at
    /// this position again.
    start: Place,
    /// Whether this call has passed the last row of the source and continued with the first one.
    is_past_end: bool,
    batch: Batch,
    /// Number of retried failures since a batch was last committed: the index of the next pause in
    /// [`PAUSES`].
    failures: usize,
    /// Whether the last transaction of the copy failed in such a way that it may have been
    /// committed.
    may_be_done: bool,
    /// Whether the copy is finished.
    has_ended: bool,
    copied: CopyReport,
    /// Number of live keys of the source, for the progress callback.
    total: u64,
    go_on: &'r mut dyn FnMut(u64, u64) -> Result<()>,
}

/// One copied family: its handle in the source (`from`), its handle in the target (`to`), and its
/// settings in the source.
struct Pair {
    name: String,
    from: Family,
    to: Family,
    default_ttl: Option<Duration>,
    tracks: bool,
}

impl Pair {
    /// Returns `true` if the target has the family with the default TTL of the source, and with
    /// write tracking if the source has it.
    fn is_alike(&self) -> Result<bool> {
        let is_there = self.to.session().with(|db| db.family_exists(&self.name))?;
        Ok(is_there && self.to.default_ttl()? == self.default_ttl && self.to.tracks_writes()? >= self.tracks)
    }
}

impl Run<'_> {
    fn run_to_the_end(mut self) -> Result<CopyReport> {
        loop {
            let from = self.from;
            let Err(why) = from.snapshot(|_| self.go_around()) else { return Ok(self.copied) };
            if self.has_ended {
                return Ok(self.copied); // the copy was finished before the source was lost
            }
            if let Err(why) = self.pause(why) {
                return Err(match self.record {
                    None => why,
                    Some(_) => why.with_message(format!(
                        "{}; the copy is unfinished, and the next run continues where it stopped",
                        why.message()
                    )),
                });
            }
        }
    }

    /// Copies the rows that this call has not copied yet, in the open snapshot of the source: from
    /// the recorded position to the last row, then from the first row to the position at which the
    /// call began. Then finishes the copy.
    fn go_around(&mut self) -> Result<()> {
        self.batch = Batch::new();
        let (names, source, limit) = (names(self.from)?, Source::of(self.from)?, self.from.size_limit()?);
        let mut pairs = Vec::new();
        self.total = 0;
        for name in names {
            let from = self.from.unregistered_family(&name);
            self.total += from.count_live()?;
            let (default_ttl, tracks) = (from.default_ttl()?, from.tracks_writes()?);
            pairs.push(Pair { to: self.to.unregistered_family(&name), name, from, default_ttl, tracks });
        }
        self.copied.families = pairs.len() as u64;
        self.copied.snapshots += 1;
        self.tell()?;
        if self.record.is_none() && self.is_done_already(&pairs)? {
            self.has_ended = true;
            return Ok(());
        }
        let record = self.again(|run| run.prepare(&pairs, &source))?;
        let at = record.at.clone();
        if self.record.is_none() {
            self.start = at.clone();
        }
        self.record = Some(record);
        if !self.is_past_end {
            self.walk(&pairs, &at, None)?;
            self.batch.at = Some(Place::default());
            self.apply(true)?;
            self.is_past_end = true;
        }
        let (at, start) = (self.at(), self.start.clone());
        self.walk(&pairs, &at, Some(&start))?;
        self.apply(false)?;
        self.again(|run| run.finish(&pairs, limit))?;
        self.has_ended = true;
        Ok(())
    }

    /// Returns `true` if the target has no record of a copy, but all rows and settings of the
    /// source: an earlier call was killed directly after it had finished the copy. Writes nothing.
    fn is_done_already(&mut self, pairs: &[Pair]) -> Result<bool> {
        if self.again(|run| Held::by(run.to, &run.id).is_there())? {
            return Ok(false);
        }
        self.copied.keys = 0; // the rows are counted again: this may be another snapshot
        for pair in pairs {
            let is_alike = self.again(|_| pair.is_alike())?;
            if !is_alike || !self.has_the_same_rows(pair)? {
                self.copied.keys = 0;
                return Ok(false);
            }
        }
        Ok(self.copied.keys > 0)
    }

    fn has_the_same_rows(&mut self, pair: &Pair) -> Result<bool> {
        let mut source = Reader::new(&pair.from, KeyRange::all(), pair.tracks);
        let mut target = Reader::new(&pair.to, KeyRange::all(), pair.tracks);
        let (from, to) = (self.from, self.to);
        // A row that expires during the comparison need not be in both stores.
        let is_dead = |row: &Row| !row.expiry.is_live(from.now_ms()) || !row.expiry.is_live(to.now_ms());
        loop {
            source.read()?;
            while let Some(row) = source.rows.pop_front() {
                loop {
                    self.fill(&mut target)?;
                    match target.rows.front() {
                        Some(found) if *found == row => {
                            target.rows.pop_front();
                            break;
                        }
                        Some(found) if found.key < row.key && is_dead(found) => {
                            target.rows.pop_front();
                        }
                        _ if is_dead(&row) => break,
                        _ => return Ok(false),
                    }
                }
                self.copied.keys += 1;
            }
            if source.is_at_end {
                break;
            }
            self.tell()?;
            super::is_in_transaction(self.from, TransactionState::Read)?;
        }
        while self.fill(&mut target)? {
            while let Some(found) = target.rows.pop_front() {
                if !is_dead(&found) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Makes this call the owner of the copy, and creates the families in the target with the
    /// settings of the source. Returns the progress of earlier calls.
    fn prepare(&self, pairs: &[Pair], source: &Source) -> Result<Record> {
        self.to.transaction(|to| {
            let held = Held::by(to, &self.id);
            if self.record.is_some() {
                held.check()?;
            }
            let record = held.take(source)?;
            let needs_times = to.size_limit()?.is_some_and(|limit| limit.eviction.needs_write_times());
            for Pair { name, to: family, default_ttl, tracks, .. } in pairs {
                if !held.has_taken(name)? {
                    let is_there = to.session().with(|db| db.family_exists(name))?;
                    if is_there && family.cursor(KeyRange::all(), Direction::Forward).keys_only().first()? {
                        let e = has_keys(name);
                        return Err(e.with_message(format!(
                            "{}; the target has no record of an unfinished copy, and its content \
                            differs from the source",
                            e.message()
                        )));
                    }
                    held.note_taken(name)?;
                }
                if !to.session().with(|db| db.family_exists(name))? {
                    to.create_family(name)?.release();
                }
                if family.default_ttl()? != *default_ttl {
                    family.set_default_ttl(*default_ttl)?;
                }
                // The eviction policy of the target may need the write times.
                if *tracks || !needs_times {
                    family.set_write_tracking(*tracks)?;
                }
            }
            Ok(record)
        })
    }

    /// Copies the rows of the source after the position `after`, up to the position `up_to`; if
    /// that is `None`, up to the last row.
    fn walk(&mut self, pairs: &[Pair], after: &Place, up_to: Option<&Place>) -> Result<()> {
        for pair in pairs.iter().filter(|pair| pair.name >= after.family) {
            let lower = match &after.key {
                Some(key) if pair.name == after.family => Bound::Excluded(key.clone()),
                _ => Bound::Unbounded,
            };
            let upper = match up_to {
                Some(place) if pair.name > place.family => return Ok(()),
                Some(Place { family, key }) if pair.name == *family => match key {
                    Some(key) => Bound::Included(key.clone()),
                    None => return Ok(()),
                },
                _ => Bound::Unbounded,
            };
            self.walk_family(pair, &KeyRange::new(lower, upper))?;
        }
        Ok(())
    }

    fn walk_family(&mut self, pair: &Pair, range: &KeyRange) -> Result<()> {
        let mut source = Reader::new(&pair.from, range.clone(), pair.tracks);
        let is_first_round = self.record.as_ref().is_some_and(|record| record.is_first_round);
        let mut target = (!is_first_round).then(|| Reader::new(&pair.to, range.clone(), pair.tracks));
        loop {
            source.read()?;
            while let Some(row) = source.rows.pop_front() {
                self.batch.met += 1;
                self.batch.at = Some(Place { family: pair.name.clone(), key: Some(row.key.clone()) });
                let is_there = match &mut target {
                    Some(target) => self.compare(pair, target, &row)?,
                    None => false,
                };
                if !is_there {
                    self.batch.put(&pair.to, row)?;
                }
            }
            if source.is_at_end {
                break;
            }
            if let Err(why) = self.tell() {
                self.apply(false)?; // so that a later call need not copy these rows again
                return Err(why);
            }
            super::is_in_transaction(self.from, TransactionState::Read)?;
            if self.batch.is_full() {
                self.apply(false)?;
            }
        }
        // Rows of the target after the last row of the source.
        if let Some(target) = &mut target {
            while self.fill(target)? {
                while let Some(row) = target.rows.pop_front() {
                    self.batch.delete(&pair.to, row.key);
                }
                if self.batch.is_full() {
                    self.apply(false)?;
                }
            }
        }
        Ok(())
    }

    /// Removes the next rows of the target whose keys are less than that of `row`, a row of the
    /// source. Returns `true` if the target has a row equal to `row`.
    fn compare(&mut self, pair: &Pair, target: &mut Reader, row: &Row) -> Result<bool> {
        while self.fill(target)? {
            match target.rows.front() {
                Some(found) if found.key > row.key => return Ok(false),
                _ => {}
            }
            let Some(found) = target.rows.pop_front() else { continue };
            if found.key == row.key {
                return Ok(found == *row);
            }
            self.batch.delete(&pair.to, found.key);
        }
        Ok(false)
    }

    /// Reads the next chunk of rows of the target into `target.rows` if that is empty. Returns
    /// `false` if the target has no more rows.
    fn fill(&mut self, target: &mut Reader) -> Result<bool> {
        while target.rows.is_empty() && !target.is_at_end {
            self.again(|_| target.read())?;
        }
        Ok(!target.rows.is_empty())
    }

    /// Commits the current batch of changes in the target. With `ends_first_round`, also records
    /// that the copy has reached the end of the source, so that from now on the target may have
    /// rows after every position.
    fn apply(&mut self, ends_first_round: bool) -> Result<()> {
        let batch = std::mem::replace(&mut self.batch, Batch::new());
        if batch.at.is_none() && batch.writes.is_empty() {
            return Ok(());
        }
        let at = batch.at.unwrap_or_else(|| self.at());
        self.again(|run| run.write(&batch.writes, &at, ends_first_round))?;
        self.failures = 0;
        self.copied.keys += batch.met;
        for write in &batch.writes {
            let count = if write.put.is_some() { &mut self.copied.written } else { &mut self.copied.removed };
            *count += 1;
        }
        if let Some(record) = &mut self.record {
            record.at = at;
            record.is_first_round &= !ends_first_round;
        }
        self.tell()
    }

    fn write(&self, writes: &[Write], at: &Place, ends_first_round: bool) -> Result<()> {
        self.to.transaction(|to| {
            let held = Held::by(to, &self.id);
            held.check()?;
            let (session, evicted) = (to.session(), to.stats()?.evicted);
            for some in writes.chunks(ROWS) {
                let some: Vec<_> = some.iter().map(Write::of_batch).collect();
                session.write(|db| db.write_batch(&some))?;
            }
            if ends_first_round {
                held.end_first_round()?;
            }
            held.move_to(at)?;
            match to.stats()?.evicted > evicted {
                true => Err(does_not_fit()),
                false => Ok(()),
            }
        })
    }

    /// Runs the last transaction of the copy: drops the copied families that are no longer in the
    /// source, drops the progress record, and sets the size limit of the target to `limit`, that of
    /// the source, if the target had none.
    fn finish(&mut self, pairs: &[Pair], limit: Option<SizeLimit>) -> Result<()> {
        let (id, may_be_done) = (&self.id, self.may_be_done);
        let done = self.to.transaction(|to| {
            let held = Held::by(to, id);
            if may_be_done && !held.is_there()? {
                return Ok(()); // it was committed, but the answer was lost
            }
            held.check()?;
            for name in held.taken()? {
                let is_gone = !pairs.iter().any(|pair| pair.name == name);
                if is_gone && to.session().with(|db| db.family_exists(&name))? {
                    to.drop_family(&name)?;
                }
            }
            let gets_limit = held.gets_limit()? && to.size_limit()?.is_none();
            held.remove()?; // the record takes space, too
            match limit.filter(|_| gets_limit) {
                Some(limit) => to.take_limit(limit),
                None => Ok(()),
            }
        });
        self.may_be_done |= done.as_ref().is_err_and(|why| why.kind() == ErrorKind::Io);
        done
    }

    /// Returns the position up to which the copied rows are committed in the target.
    fn at(&self) -> Place {
        self.record.as_ref().map(|record| record.at.clone()).unwrap_or_default()
    }

    fn tell(&mut self) -> Result<()> {
        (self.go_on)(self.copied.keys + self.batch.met, self.total)
    }

    /// Runs `f`, and after a temporary failure waits and runs it again, until it succeeds. Fails if
    /// an error of `f` is permanent, or when all [`PAUSES`] are used up.
    fn again<R>(&mut self, mut f: impl FnMut(&mut Self) -> Result<R>) -> Result<R> {
        loop {
            match f(self) {
                Ok(done) => return Ok(done),
                Err(why) => self.pause(why)?,
            }
        }
    }

    /// Waits after the failure `why`, so that the caller can try again. Returns `why` as an error
    /// instead if it is permanent, if all [`PAUSES`] are used up, or if the wait hook requests the
    /// end.
    fn pause(&mut self, why: Error) -> Result<()> {
        let may_pass = matches!(why.kind(), ErrorKind::Io | ErrorKind::Busy | ErrorKind::Locked);
        let Some(pause) = PAUSES.get(self.failures).filter(|_| may_pass && !wait::is_ended()) else {
            return Err(why);
        };
        self.failures += 1;
        let end = Instant::now() + *pause;
        loop {
            self.tell()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(Duration::from_millis(100)));
        }
    }
}

/// Returns the names of all families of the source, in byte order. Fails if the source is itself
/// the target of an unfinished copy.
fn names(store: &Store) -> Result<Vec<String>> {
    let names = store.session().with(|db| db.families())?;
    if names.iter().any(|name| name == FAMILY) {
        return Err(Error::invalid(format!(
            "the source store itself holds an unfinished copy (its progress is in the family \
            \"{FAMILY}\")"
        ))
        .with_hint(Hint::ResumeCopy));
    }
    Ok(names)
}
