//! Progress record of a resumable copy.
//!
//! The record is a family in the target store. Each batch of copied rows changes it in its own
//! transaction, so the record always agrees with the data. The last transaction of the copy drops
//! it.

use super::Store;
use crate::backend::{BatchWrite, DEFAULT_FAMILY};
use crate::error::{Error, Result};
use crate::expiry::Expiry;
use crate::family::Family;
use crate::hint::Hint;
use crate::options::PutOptions;

/// Name of the family in the target store that contains the record while a copy is unfinished.
pub(super) const FAMILY: &str = "copy in progress";

/// Keys of the record: identity and path of the source, the run that owns the copy, the last row
/// copied, whether nothing has been copied beyond that row yet, and whether the target gets the
/// size limit of the source.
const SOURCE: &str = "source";
const PATH: &str = "path";
const RUN: &str = "run";
const AT: &str = "at";
const FIRST_ROUND: &str = "first round";
const GETS_LIMIT: &str = "gets the limit";
/// Prefix of the keys of the record that name the families of the target that belong to the copy.
const TAKEN: &str = "family ";

/// Position in the rows of all families, which are ordered by family name and key: directly after
/// the row with this family and key.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) family: String,
    /// Key of the last row before the position; `None`: the position is before the first row of the
    /// family.
    pub(super) key: Option<Vec<u8>>,
}

impl Place {
    /// Encodes the position: the family name, then a NUL and the key. A family name has no NUL.
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.family.clone().into_bytes();
        if let Some(key) = &self.key {
            bytes.push(0);
            bytes.extend_from_slice(key);
        }
        bytes
    }

    fn of(bytes: &[u8]) -> Option<Place> {
        let end = bytes.iter().position(|byte| *byte == 0);
        let (family, key) = match end {
            Some(end) => (bytes.get(..end)?, bytes.get(end + 1..).map(<[u8]>::to_vec)),
            None => (bytes, None),
        };
        Some(Place { family: String::from_utf8(family.to_vec()).ok()?, key })
    }
}

/// Identity of the source store, which stays the same when its file is moved, and its path for
/// error messages.
pub(super) struct Source {
    id: String,
    path: String,
}

impl Source {
    pub(super) fn of(store: &Store) -> Result<Source> {
        let path = store.shared().with(|db| Ok(db.path()))?;
        Ok(Source {
            id: store.unregistered_family(DEFAULT_FAMILY).created_ms()?.to_string(),
            path: path.map_or_else(|| "in memory".to_owned(), crate::place::path_without_password),
        })
    }
}

/// Progress of a copy as recorded in the target.
pub(super) struct Record {
    pub(super) at: Place,
    /// Whether the copy has never reached the end of the source. Then the copied families of the
    /// target have no rows after `at`.
    pub(super) is_first_round: bool,
}

/// Access of one run of a copy to the record in the target store, inside a transaction of the run.
pub(super) struct Held<'s> {
    store: &'s Store,
    family: Family,
    run: &'s str,
}

impl<'s> Held<'s> {
    pub(super) fn by(store: &'s Store, run: &'s str) -> Held<'s> {
        Held { store, family: store.unregistered_family(FAMILY), run }
    }

    /// Reads the record, or creates it, and makes this run its owner. Fails with `Error` if the
    /// record is that of another source store.
    pub(super) fn take(&self, source: &Source) -> Result<Record> {
        if !self.is_there()? {
            let gets_limit = self.store.size_limit()?.is_none() && super::is_empty(self.store)?;
            self.store.create_family(FAMILY)?.release();
            self.put(SOURCE, &source.id)?;
            self.put(FIRST_ROUND, "")?;
            if gets_limit {
                self.put(GETS_LIMIT, "")?;
            }
        } else if self.family.get(SOURCE)?.as_deref() != Some(source.id.as_bytes()) {
            let other = self.family.get(PATH)?.unwrap_or_default();
            return Err(Error::invalid(format!(
                "the target store holds the unfinished copy of another store ({}; its progress is in \
                the family \"{FAMILY}\")",
                String::from_utf8_lossy(&other)
            ))
            .with_hint(Hint::ResumeCopy));
        }
        self.put(PATH, &source.path)?;
        self.put(RUN, self.run)?;
        let at = match self.family.get(AT)? {
            Some(bytes) => Place::of(&bytes).ok_or_else(|| {
                Error::corrupt(format!("the family \"{FAMILY}\" does not contain the progress of the copy"))
            })?,
            None => Place::default(),
        };
        Ok(Record { at, is_first_round: self.family.exists(FIRST_ROUND)? })
    }

    /// Returns `true` if the store has a record.
    pub(super) fn is_there(&self) -> Result<bool> {
        self.store.shared().with(|db| db.family_exists(FAMILY))
    }

    /// Returns `true` if the record exists and this run owns it. Returns `false` after the last
    /// transaction of the run, or if another run has continued the copy.
    pub(super) fn is_held(&self) -> Result<bool> {
        Ok(self.is_there()? && self.family.get(RUN)?.as_deref() == Some(self.run.as_bytes()))
    }

    pub(super) fn check(&self) -> Result<()> {
        match self.is_held()? {
            true => Ok(()),
            false => Err(Error::invalid(
                "another run has continued or finished this copy; only one run at a time can work on \
                it",
            )),
        }
    }

    pub(super) fn move_to(&self, at: &Place) -> Result<()> {
        let options = PutOptions::new().expiry(Expiry::Never);
        let bytes = at.to_bytes();
        // A key and its family name together may exceed the maximum value size of the handle.
        let write =
            BatchWrite { family: self.family.tables(), key: AT.as_bytes(), put: Some((&bytes, &options)) };
        let shared = self.store.shared();
        shared.write(|db| db.write_batch(&[write])).map(drop)
    }

    pub(super) fn end_first_round(&self) -> Result<()> {
        self.family.delete(FIRST_ROUND).map(drop)
    }

    /// Returns `true` if a family is recorded as belonging to the copy.
    pub(super) fn has_taken(&self, name: &str) -> Result<bool> {
        self.family.exists(format!("{TAKEN}{name}"))
    }

    pub(super) fn note_taken(&self, name: &str) -> Result<()> {
        self.put(&format!("{TAKEN}{name}"), "")
    }

    /// Returns the names of the families that are recorded as belonging to the copy.
    pub(super) fn taken(&self) -> Result<Vec<String>> {
        let name = |entry: Result<(Vec<u8>, Vec<u8>)>| {
            let (key, _) = entry?;
            let name = key.get(TAKEN.len()..).unwrap_or_default().to_vec();
            String::from_utf8(name).map_err(|_| {
                Error::corrupt("the name of a family is not UTF-8").with_hint(Hint::CheckIntegrity)
            })
        };
        self.family.prefix(TAKEN).map(name).collect()
    }

    pub(super) fn gets_limit(&self) -> Result<bool> {
        self.family.exists(GETS_LIMIT)
    }

    pub(super) fn remove(&self) -> Result<()> {
        self.store.drop_family(FAMILY)
    }

    fn put(&self, key: &str, value: &str) -> Result<()> {
        self.family.put_with_expiry(key, value, Expiry::Never)
    }
}
