//! Lower bounds on the earliest expiry time, or the earliest write time, of each family, as known
//! to a connection.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::schema::Tables;
use crate::expiry;

/// Number of dropped families whose entries may stay in `NextExpiryIndex::families`, in addition to
/// one for each existing family. If there are more, the whole index becomes invalid.
const DROPPED: usize = 32;

/// Lower bound on the earliest expiry time, or the earliest write time, of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum When {
    /// The earliest time is not known, for example because another connection has committed since
    /// the last lookup. The number is `FamilyBound::last_look`, so that the family with the oldest
    /// lookup comes first.
    Unknown(u64),
    /// No key of the family has an earlier time than this one, in milliseconds since the Unix
    /// epoch.
    At(i64),
    /// The time index of the family has no entry.
    Never,
}

impl When {
    /// Returns `true` if the time index of the family may have an entry with a time of `now_ms` or
    /// earlier.
    pub(super) fn may_be_by(self, now_ms: i64) -> bool {
        match self {
            When::Unknown(_) => true,
            When::At(expire_ms) => expiry::is_expired(expire_ms, now_ms),
            When::Never => false,
        }
    }
}

/// Lower bounds on the earliest expiry time, or the earliest write time, of each family, as known
/// to a connection.
#[derive(Default)]
pub(super) struct NextExpiryIndex {
    /// Data version for which the bounds are valid; `None` if the bounds are not valid.
    pub(super) version: Option<u32>,
    pub(super) families: Vec<FamilyBound>,
    /// Index in `families` of each existing family, by name. The entry of a dropped family stays in
    /// `families` until `reset`.
    pub(super) places: HashMap<Arc<str>, usize>,
    /// Bound of each existing family and its index in `families`, the lowest bound first.
    pub(super) order: BTreeSet<(When, usize)>,
    /// Number of times that the earliest entry in the time index of a family was read from the file.
    pub(super) looks: u64,
    /// Whether bounds depend on uncommitted changes, so that a rollback would make them wrong.
    pub(super) tentative: bool,
}

/// Family, with the lower bound on its earliest time.
pub(super) struct FamilyBound {
    name: Arc<str>,
    pub(super) tables: Arc<Tables>,
    pub(super) bound: When,
    /// Value of `NextExpiryIndex::looks` at the last lookup of the family; 0 if there was none.
    pub(super) last_look: u64,
}

impl NextExpiryIndex {
    /// Sets the bound of the family with the index `place` in `families`.
    pub(super) fn set(&mut self, place: usize, bound: When) {
        let Some(entry) = self.families.get_mut(place) else { return };
        self.order.remove(&(entry.bound, place));
        entry.bound = bound;
        self.order.insert((bound, place));
    }

    fn add(&mut self, name: String) {
        let (place, tables) = (self.families.len(), Arc::new(Tables::of(&name)));
        let name: Arc<str> = name.into();
        self.places.insert(Arc::clone(&name), place);
        self.families.push(FamilyBound { name, tables, bound: When::Unknown(0), last_look: 0 });
        self.order.insert((When::Unknown(0), place));
    }

    /// Discards all bounds, and replaces the families by those with the given names. `version` is
    /// the data version of the file from which the names were read.
    pub(super) fn reset(&mut self, names: Vec<String>, version: u32) {
        self.version = Some(version);
        // A dropped family is still in `families`, but not in `places`.
        let is_whole = self.places.len() == self.families.len();
        if !is_whole || self.families.iter().map(|entry| &*entry.name).ne(names.iter().map(String::as_str)) {
            let before = std::mem::take(&mut self.families);
            let places = std::mem::take(&mut self.places);
            self.order.clear();
            for (place, name) in names.into_iter().enumerate() {
                let last_look = places.get(name.as_str()).and_then(|at| before.get(*at));
                let last_look = last_look.map_or(0, |entry| entry.last_look);
                self.add(name);
                if let Some(entry) = self.families.get_mut(place) {
                    entry.last_look = last_look;
                }
            }
        }
        for entry in &mut self.families {
            entry.bound = When::Unknown(entry.last_look);
        }
        self.order = self.families.iter().enumerate().map(|(place, entry)| (entry.bound, place)).collect();
    }

    /// Adds a family that was created (`made` is `true`), or removes a family that was dropped.
    pub(super) fn family_changed(&mut self, family: &str, made: bool) {
        if self.version.is_none() {
            return;
        }
        self.tentative = true;
        if made {
            self.add(family.to_owned());
        } else if let Some(place) = self.places.remove(family) {
            // Its entry in `families` stays until `reset`, which is enforced below if too many
            // of these entries are left.
            let bound = self.families.get(place).map(|entry| entry.bound);
            bound.map(|bound| self.order.remove(&(bound, place)));
            if self.families.len() > 2 * self.places.len() + DROPPED {
                self.version = None;
            }
        }
    }

    /// Returns the bound of a family and its index in `families`: of the family that follows `last`
    /// in the order of the bounds, or of the first one if `last` is `None`. Returns `None` if no
    /// family follows.
    pub(super) fn after(&self, last: Option<(When, usize)>) -> Option<(When, usize)> {
        use std::ops::Bound::{Excluded, Unbounded};
        self.order.range((last.map_or(Unbounded, Excluded), Unbounded)).next().copied()
    }
}
