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

/// Name of the family that contains the progress record of a copy, in the target store, while the
/// copy is unfinished.
pub(super) const FAMILY: &str = "copy in progress";

/// Key of the progress record whose value identifies the source store of the copy, even if its file
/// was moved.
const SOURCE: &str = "source";
/// Key of the progress record whose value is the path of the source store, for error messages.
const PATH: &str = "path";
/// Key of the progress record whose value identifies the run (call of [`Store::copy_resumable`])
/// that owns the copy.
const RUN: &str = "run";
/// Key of the progress record whose value is the position of the last copied row, as encoded by
/// [`Place::to_bytes`].
const AT: &str = "at";
/// Key of the progress record that exists until the copy has reached the last row of the source for
/// the first time. Until then, the target has no rows after the position of the copy. The value is
/// empty.
const FIRST_ROUND: &str = "first round";
/// Key of the progress record that exists if the target gets the size limit of the source at the
/// end of the copy. The value is empty.
const GETS_LIMIT: &str = "gets the limit";
/// Prefix of those keys of the progress record that list the copied families. The name of the
/// family follows the prefix.
const TAKEN: &str = "family ";

/// Position of a copy in the rows of the source, which are ordered by family name and key: directly
/// after the row with this family and key.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) family: String,
    /// Key of the last row before the position; `None`: the position is before the first row of the
    /// family.
    pub(super) key: Option<Vec<u8>>,
}

impl Place {
    /// Encodes the position for the progress record: the family name, then, unless `key` is `None`,
    /// a NUL and the key. A family name has no NUL.
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

/// Source store of a copy, as stored in the progress record: its identity, which stays the same
/// when its file is moved, and its path for error messages.
pub(super) struct Source {
    id: String,
    path: String,
}

impl Source {
    pub(super) fn of(store: &Store) -> Result<Source> {
        let path = store.session().with(|db| Ok(db.path()))?;
        Ok(Source {
            id: store.unregistered_family(DEFAULT_FAMILY).created_ms()?.to_string(),
            path: path.map_or_else(|| "in memory".to_owned(), crate::location::path_without_password),
        })
    }
}

/// Progress of a copy, as read from the progress record in the target store.
pub(super) struct Record {
    /// Position up to which the rows of the source have been copied.
    pub(super) at: Place,
    /// `true` until the copy has reached the last row of the source for the first time. Until then,
    /// the copied families of the target have no rows after the position `at`.
    pub(super) is_first_round: bool,
}

/// Access to the progress record in the target store, for one run of a copy (one call of
/// [`Store::copy_resumable`]), inside a transaction of that run.
pub(super) struct Held<'s> {
    store: &'s Store,
    family: Family,
    run: &'s str,
}

impl<'s> Held<'s> {
    pub(super) fn by(store: &'s Store, run: &'s str) -> Held<'s> {
        Held { store, family: store.unregistered_family(FAMILY), run }
    }

    /// Reads the progress record, or creates it if there is none, and makes this run its owner.
    /// Fails with `Error` if the record belongs to the copy of a source store other than `source`.
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

    /// Returns `true` if the target store has a progress record, so that a copy into it is
    /// unfinished.
    pub(super) fn is_there(&self) -> Result<bool> {
        self.store.session().with(|db| db.family_exists(FAMILY))
    }

    /// Returns `true` if the progress record exists and this run owns it. Returns `false` if the
    /// copy is finished, or if another run has continued it.
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
        let session = self.store.session();
        session.write(|db| db.write_batch(&[write])).map(drop)
    }

    pub(super) fn end_first_round(&self) -> Result<()> {
        self.family.delete(FIRST_ROUND).map(drop)
    }

    /// Returns `true` if the progress record lists the family `name` as one of the copied families.
    pub(super) fn has_taken(&self, name: &str) -> Result<bool> {
        self.family.exists(format!("{TAKEN}{name}"))
    }

    pub(super) fn note_taken(&self, name: &str) -> Result<()> {
        self.put(&format!("{TAKEN}{name}"), "")
    }

    /// Returns the names of the copied families that the progress record lists.
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
