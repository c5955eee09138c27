//! The position of a load in batches. It is stored in the store itself, in the transaction of each
//! batch, so that it always matches the loaded keys. It is the only key of a separate family, which
//! the last batch drops.

use kvstore::{ErrorKind, Store};
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Result, refused};

/// Name of the family that stores the position of a load in batches. It exists while the load is
/// unfinished.
pub const FAMILY: &str = "load in progress";
const KEY: &str = "how far";

/// Name of the family that the library uses for an unfinished copy with `--resume`.
pub const COPY: &str = "copy in progress";

/// Returns the command that has not finished writing to this store: `load` or `copy`. Returns
/// `None` if there is none.
pub fn unfinished(store: &Store) -> Result<Option<&'static str>> {
    let names = store.family_names()?;
    let known = [(FAMILY, "load"), (COPY, "copy")];
    Ok(known.into_iter().find(|(family, _)| names.iter().any(|name| name == family)).map(|(_, what)| what))
}

/// The position and state of a load after a committed batch.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Record {
    /// Number of lines of the dump that have been loaded.
    pub lines: u64,
    /// FNV-1a hash of the bytes of these lines, by which `load --resume` checks that it reads the
    /// same dump.
    pub hash: u64,
    /// Name in the dump of the family of the last loaded key. The following keys of the dump belong
    /// to it, too, until the next family line.
    pub family: String,
    /// The options of the load; `None` if the load was started by an earlier version of this
    /// command, which did not store them.
    pub way: Option<Way>,
    /// Whether the store had no keys and no size limit before the load, so that it gets the size
    /// limit of the dump.
    pub into_new: bool,
    pub counts: Counts,
}

/// The options of `load` that must stay the same when an interrupted load continues with
/// `--resume`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Way {
    /// The target family; `None` to keep the names of the dump.
    pub family: Option<String>,
    pub if_absent: bool,
    pub replace: bool,
    #[serde(default)]
    pub expired: bool,
}

impl Way {
    /// Formats the options for an error message, to follow "was started".
    pub fn said(&self) -> String {
        let mut words = Vec::new();
        if let Some(family) = &self.family {
            words.push(format!("--family {family}"));
        }
        for (is, word) in
            [(self.if_absent, "--if-absent"), (self.replace, "--replace"), (self.expired, "--expired")]
        {
            if is {
                words.push(word.to_owned());
            }
        }
        if words.is_empty() {
            "without --family, --if-absent, --replace and --expired".to_owned()
        } else {
            format!("with {}", words.join(" "))
        }
    }
}

/// The numbers of families and keys that a load has processed so far.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Counts {
    pub families: u64,
    /// Keys that were written.
    pub loaded: u64,
    /// Keys of the dump that had expired and were not written.
    pub expired: u64,
    /// Keys of the dump that were not written, because they existed in the store.
    pub present: u64,
    /// Keys that were evicted from the store during the load, because of its size limit.
    pub evicted: u64,
}

impl Counts {
    /// Returns the number of keys of the dump that have been processed.
    pub fn keys(&self) -> u64 {
        self.loaded + self.expired + self.present
    }
}

impl Record {
    pub fn read(store: &Store) -> Result<Option<Record>> {
        let family = match store.family(FAMILY) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            family => family?,
        };
        match family.get(KEY)?.map(|json| serde_json::from_slice(&json)) {
            Some(Ok(record)) => Ok(Some(record)),
            _ => refused(format!(
                "the family \"{FAMILY}\" has no valid position of a load: drop it if you do not need it, then load again"
            )),
        }
    }

    /// Writes the position to the store, within the open transaction of a batch.
    pub fn write(&self, store: &Store) -> Result<()> {
        let json = serde_json::to_vec(self).map_err(|e| Failure::Refused(e.to_string()))?;
        let never = kvstore::Expiry::Never;
        Ok(store.get_or_create_family(FAMILY)?.put_with_expiry(KEY, json, never)?)
    }

    /// Removes the position from the store, within the open transaction of the last batch.
    pub fn remove(store: &Store) -> Result<()> {
        match store.drop_family(FAMILY) {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
            done => Ok(done?),
        }
    }
}
