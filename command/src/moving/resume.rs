//! How far a load in batches has come: a record in the store itself, written in the transaction of each batch, so that
//! the two always agree. It is the only key of a family of its own, which the last batch drops.

use kvstore::{ErrorKind, Store};
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Result, refused};

/// The family that is there while a load is not finished.
pub const FAMILY: &str = "load in progress";
const KEY: &str = "how far";

/// The same of a copy with `--resume`, by the library.
pub const COPY: &str = "copy in progress";

/// What was not finished into this store, if anything: a `load` or a `copy`.
pub fn unfinished(store: &Store) -> Result<Option<&'static str>> {
    let names = store.family_names()?;
    let known = [(FAMILY, "load"), (COPY, "copy")];
    Ok(known.into_iter().find(|(family, _)| names.iter().any(|name| name == family)).map(|(_, what)| what))
}

/// How far a load has come.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Record {
    /// Lines of the dump that are done, and what their bytes come to.
    pub lines: u64,
    pub hash: u64,
    /// The family of the dump that the next key belongs to.
    pub family: String,
    /// How it was begun, and goes on; `None`: by a version that did not say.
    pub way: Option<Way>,
    /// Whether the store had nothing in it before, so that it gets the limit of the dump.
    pub into_new: bool,
    pub counts: Counts,
}

/// Where keys go, and what becomes of those that are there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Way {
    /// Under which name a family is loaded; `None`: its own.
    pub family: Option<String>,
    pub if_absent: bool,
    pub replace: bool,
}

impl Way {
    /// For a text: "begun ...".
    pub fn said(&self) -> String {
        let mut words = Vec::new();
        if let Some(family) = &self.family {
            words.push(format!("--family {family}"));
        }
        for (is, word) in [(self.if_absent, "--if-absent"), (self.replace, "--replace")] {
            if is {
                words.push(word.to_owned());
            }
        }
        if words.is_empty() {
            "without --family, --if-absent and --replace".to_owned()
        } else {
            format!("with {}", words.join(" "))
        }
    }
}

/// What became of the lines.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Counts {
    pub families: u64,
    /// Keys that were written.
    pub loaded: u64,
    /// Keys that had expired.
    pub expired: u64,
    /// Keys that were there, and were kept as they were.
    pub present: u64,
    /// Keys that were removed to make room.
    pub evicted: u64,
}

impl Counts {
    /// Keys of the dump.
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
                "the family \"{FAMILY}\" does not say how far a load has come: drop it if it is not needed, then load"
            )),
        }
    }

    /// In the transaction of a batch.
    pub fn write(&self, store: &Store) -> Result<()> {
        let json = serde_json::to_vec(self).map_err(|e| Failure::Refused(e.to_string()))?;
        let never = kvstore::Expiry::Never;
        Ok(store.get_or_create_family(FAMILY)?.put_with_expiry(KEY, json, never)?)
    }

    /// In the transaction of the last batch.
    pub fn remove(store: &Store) -> Result<()> {
        match store.drop_family(FAMILY) {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
            done => Ok(done?),
        }
    }
}
