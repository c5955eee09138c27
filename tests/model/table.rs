//! The rows of a family in the model, and the effect of each write on them. Must not use a store or
//! a clock: the time is always an argument.

use std::collections::BTreeMap;
use std::time::Duration;

use kvstore::{ErrorKind, Expiry, ExpiryCondition, Ttl};

use crate::history::{End, How, Range};

/// Expected result of a call.
pub type Answer<T> = Result<T, ErrorKind>;

/// All families by name.
pub type State = BTreeMap<&'static str, Table>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub value: Vec<u8>,
    pub expire_ms: Option<i64>,
    pub written_ms: Option<i64>,
}

impl Entry {
    pub fn is_live(&self, now_ms: i64) -> bool {
        self.expire_ms.is_none_or(|at| at > now_ms)
    }

    pub fn expiry(&self) -> Expiry {
        self.expire_ms.map_or(Expiry::Never, Expiry::At)
    }

    pub fn ttl(&self, now_ms: i64) -> Ttl {
        self.expire_ms.map_or(Ttl::None, |at| {
            Ttl::Remaining(Duration::from_millis(at.saturating_sub(now_ms).max(0).unsigned_abs()))
        })
    }
}

/// Write of a batch: family, key, and value with expiry time unless it deletes.
#[derive(Debug, Clone)]
pub struct BatchWrite {
    pub family: &'static str,
    pub key: Vec<u8>,
    pub put: Option<(Vec<u8>, Expiry)>,
}

/// A family: its rows, including expired ones, and its settings.
#[derive(Debug, Clone, Default)]
pub struct Table {
    pub rows: BTreeMap<Vec<u8>, Entry>,
    pub default_ttl_ms: i64,
    pub tracks: bool,
}

impl Table {
    pub fn get(&self, key: &[u8], now_ms: i64) -> Option<&Entry> {
        self.rows.get(key).filter(|entry| entry.is_live(now_ms))
    }

    pub fn default_end(&self, now_ms: i64) -> Option<i64> {
        (self.default_ttl_ms > 0).then(|| now_ms + self.default_ttl_ms)
    }

    pub fn write(&mut self, key: &[u8], value: Vec<u8>, expire_ms: Option<i64>, now_ms: i64) {
        let written_ms = self.tracks.then_some(now_ms);
        self.rows.insert(key.to_vec(), Entry { value, expire_ms, written_ms });
    }

    /// Returns `true` if the key was live.
    pub fn delete(&mut self, key: &[u8], now_ms: i64) -> bool {
        self.rows.remove(key).is_some_and(|entry| entry.is_live(now_ms))
    }

    /// `given` and `written_ms` are the expiry time and the write time in the options.
    pub fn put_with_options(
        &mut self,
        key: &[u8],
        value: Vec<u8>,
        how: How,
        (given, written_ms): (Option<i64>, Option<i64>),
        now_ms: i64,
    ) -> bool {
        let old = self.get(key, now_ms).map(|entry| entry.expire_ms);
        if how.if_absent && old.is_some() || how.if_present && old.is_none() {
            return false;
        }
        let end = match (old, how.end) {
            (Some(end), _) if how.keep_ttl => end,
            (_, End::Default) => self.default_end(now_ms),
            (_, End::Given(_)) => given,
        };
        self.write(key, value, end, now_ms);
        if let (Some(entry), Some(_), true) = (self.rows.get_mut(key), written_ms, self.tracks) {
            entry.written_ms = written_ms;
        }
        true
    }

    pub fn holds(&self, key: &[u8], value: &[u8], now_ms: i64) -> bool {
        self.get(key, now_ms).is_some_and(|entry| entry.value == value)
    }

    pub fn increment(&mut self, key: &[u8], delta: i64, expiry: Expiry, now_ms: i64) -> Answer<i64> {
        let (before, end) = match self.get(key, now_ms) {
            Some(entry) => (number(&entry.value).ok_or(ErrorKind::Error)?, entry.expire_ms),
            None => (0, expiry.millis()),
        };
        let sum = i64::try_from(i128::from(before) + i128::from(delta)).map_err(|_| ErrorKind::Error)?;
        self.write(key, sum.to_string().into_bytes(), end, now_ms);
        Ok(sum)
    }

    pub fn set_expiry(
        &mut self,
        key: &[u8],
        new: Option<i64>,
        condition: ExpiryCondition,
        now_ms: i64,
    ) -> Option<bool> {
        let old = self.get(key, now_ms)?.expire_ms;
        let holds = match condition {
            ExpiryCondition::Always => true,
            ExpiryCondition::NoTtl => old.is_none(),
            ExpiryCondition::HasTtl => old.is_some(),
            ExpiryCondition::Later => old.is_some_and(|old| new.is_none_or(|new| new > old)),
            ExpiryCondition::Earlier => new.is_some_and(|new| old.is_none_or(|old| new < old)),
            other => unreachable!("{other:?} is a condition the model does not know"),
        };
        if holds {
            if new.is_some_and(|new| new <= now_ms) {
                self.rows.remove(key);
            } else if let Some(entry) = self.rows.get_mut(key) {
                entry.expire_ms = new;
            }
        }
        Some(holds)
    }

    pub fn set_tracking(&mut self, on: bool, now_ms: i64) {
        if self.tracks != on {
            self.tracks = on;
            for entry in self.rows.values_mut() {
                entry.written_ms = on.then_some(now_ms);
            }
        }
    }

    /// Removes rows. Returns their number, and how many of them were live.
    pub fn remove(&mut self, now_ms: i64, doomed: impl Fn(&[u8], &Entry) -> bool) -> (u64, u64) {
        let (mut removed, mut alive) = (0, 0);
        self.rows.retain(|key, entry| {
            let goes = doomed(key, entry);
            removed += u64::from(goes);
            alive += u64::from(goes && entry.is_live(now_ms));
            !goes
        });
        (removed, alive)
    }

    pub fn next_expiry(&self) -> Option<i64> {
        self.rows.values().filter_map(|entry| entry.expire_ms).min()
    }

    pub fn count_live(&self, now_ms: i64) -> u64 {
        self.rows.values().filter(|entry| entry.is_live(now_ms)).count() as u64
    }

    /// Returns all entries of a cursor over `span`, in its order.
    pub fn walk(&self, span: &Span, reverse: bool, now_ms: i64) -> Vec<Shown<'_>> {
        let mut shown: Vec<_> = self.rows.iter().filter_map(|row| span.show(row, now_ms)).collect();
        if let Span::Expiring(..) = span {
            shown.sort_by_key(|shown| shown.place);
        } else if reverse {
            shown.reverse();
        }
        shown
    }
}

/// Decimal text of 64 bits, with an optional sign.
fn number(value: &[u8]) -> Option<i64> {
    let (negative, digits) = match value {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] | digits => (false, digits),
    };
    if digits.is_empty() {
        return None;
    }
    let number = digits.iter().try_fold(0_i128, |number, digit| {
        digit.is_ascii_digit().then(|| (number * 10 + i128::from(digit - b'0')).min(1 << 64))
    })?;
    i64::try_from(if negative { -number } else { number }).ok()
}

/// Applies a batch as a whole, or not at all.
pub fn apply(state: &mut State, writes: &[BatchWrite], now_ms: i64) -> Answer<()> {
    if writes.iter().any(|write| !state.contains_key(write.family)) {
        return Err(ErrorKind::Error);
    }
    for write in writes {
        let table = state.get_mut(write.family).ok_or(ErrorKind::Error)?;
        match &write.put {
            Some((value, expiry)) => table.write(&write.key, value.clone(), expiry.millis(), now_ms),
            None => drop(table.delete(&write.key, now_ms)),
        }
    }
    Ok(())
}

/// Rows that a cursor moves over, with fixed times.
pub enum Span<'a> {
    Keys(&'a Range),
    Rows(&'a [u8], &'a Range),
    Expiring(i64, i64),
}

/// Position of an entry in the order of its cursor. The time counts only in expiry order.
pub type Place<'a> = (i64, &'a [u8]);

/// An entry as a cursor shows it.
#[derive(Clone, Copy)]
pub struct Shown<'a> {
    pub place: Place<'a>,
    pub key: &'a [u8],
    pub entry: &'a Entry,
}

impl Span<'_> {
    fn show<'r>(&self, (key, entry): (&'r Vec<u8>, &'r Entry), now_ms: i64) -> Option<Shown<'r>> {
        match self {
            Span::Keys(range) => {
                let shown = entry.is_live(now_ms) && range.contains(key);
                shown.then_some(Shown { place: (0, key), key, entry })
            }
            Span::Rows(partition, range) => {
                let (of, clustering) = parts(key)?;
                let shown = entry.is_live(now_ms) && of == *partition && range.contains(clustering);
                shown.then_some(Shown { place: (0, key), key: clustering, entry })
            }
            Span::Expiring(from, to) => {
                let at = entry.expire_ms?;
                // A range up to the last representable time includes that time.
                (*from <= at && (at < *to || *to == i64::MAX)).then_some(Shown {
                    place: (at, key),
                    key,
                    entry,
                })
            }
        }
    }

    /// Returns whether a seek to this key is valid in the range.
    pub fn contains(&self, key: &[u8]) -> bool {
        match self {
            Span::Keys(range) | Span::Rows(_, range) => range.contains(key),
            Span::Expiring(..) => false,
        }
    }
}

/// Splits a row key into its partition and clustering part. In the partition, each zero byte is
/// followed by 0xFF; its terminator is 0x00 0x01.
pub fn parts(key: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let (mut partition, mut rest) = (Vec::new(), key);
    loop {
        match rest {
            [0, 1, clustering @ ..] => return Some((partition, clustering)),
            [0, 0xFF, others @ ..] => (partition.push(0), rest = others).1,
            [0, ..] | [] => return None,
            [byte, others @ ..] => (partition.push(*byte), rest = others).1,
        }
    }
}
