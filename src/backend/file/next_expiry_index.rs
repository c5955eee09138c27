//! Lower bounds on the earliest expiry time, or the earliest write time, of each family, as known
//! to a connection.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::schema::Tables;
use crate::expiry;

/// Maximum number of dropped families that stay in `families`, in addition to one for each existing
/// family.
const DROPPED: usize = 32;

/// Lower bound on the earliest expiry time, or the earliest write time, of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum When {
    /// Not known, because another connection has committed. The number is that of the last lookup
    /// of the family, or 0 if there was none. So the family with the oldest lookup comes first.
    Unknown(u64),
    At(i64),
    /// No key of the family has a time in this index.
    Never,
}

impl When {
    /// Returns `true` if the family may have an entry at `now_ms` or earlier.
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
    /// Index of each family in `families`. A dropped family is removed here only.
    pub(super) places: HashMap<Arc<str>, usize>,
    /// Indexes of the families, ordered by their bound.
    pub(super) order: BTreeSet<(When, usize)>,
    /// Number of lookups of families so far.
    pub(super) looks: u64,
    /// Whether a rollback would make bounds wrong, because they depend on uncommitted changes.
    pub(super) tentative: bool,
}

/// Family with its bound.
pub(super) struct FamilyBound {
    name: Arc<str>,
    pub(super) tables: Arc<Tables>,
    pub(super) bound: When,
    /// Number of the last lookup of the family; 0 if there was none.
    pub(super) last_look: u64,
}

impl NextExpiryIndex {
    /// Sets the bound of a family.
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
    /// the data version of which the names were read.
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

    /// Adds a family that was created (`made`), or removes one that was dropped.
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

    /// Returns the bound and the index of the first family after `last` in the order of the bounds;
    /// `None` if there is none.
    pub(super) fn after(&self, last: Option<(When, usize)>) -> Option<(When, usize)> {
        use std::ops::Bound::{Excluded, Unbounded};
        self.order.range((last.map_or(Unbounded, Excluded), Unbounded)).next().copied()
    }
}
