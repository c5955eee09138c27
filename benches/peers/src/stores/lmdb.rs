//! LMDB through heed, with NOSYNC writes. A variant uses the weakest setting with which a power cut
//! cannot damage the file. Values are read in place, in the memory map.

use std::path::{Path, PathBuf};

use heed::types::Bytes;
use heed::{Database, Env, EnvFlags, EnvOpenOptions, RwTxn};

use crate::store::{Key, Mode, Seen, Store};

/// Address space only: more than any file here needs.
const MAP_SIZE: usize = 16 << 30;
const SYNC_EVERY: u32 = 1000;

struct Lmdb {
    env: Option<Env>,
    db: Database<Bytes, Bytes>,
    /// Whether this handle closes the environment.
    first: bool,
    sync_every: Option<u32>,
    commits: u32,
}

pub fn open(path: &Path, mode: Mode) -> Box<dyn Store> {
    let flags = if mode.sync { EnvFlags::empty() } else { EnvFlags::NO_SYNC };
    Box::new(open_with(path, flags))
}

/// Opens the variant "LMDB+sync". Each commit syncs its pages, but not the page that points to
/// them, so a power cut can lose the last commit.
pub fn open_synced(path: &Path, _: Mode) -> Box<dyn Store> {
    let mut store = open_with(path, EnvFlags::NO_META_SYNC);
    store.sync_every = Some(SYNC_EVERY);
    Box::new(store)
}

fn open_with(path: &Path, flags: EnvFlags) -> Lmdb {
    std::fs::create_dir_all(path).expect("a folder");
    let mut options = EnvOpenOptions::new();
    options.map_size(MAP_SIZE);
    // SAFETY: no other process changes the file, and no code here depends on its state after a
    // power cut.
    let env = unsafe {
        options.flags(flags);
        options.open(PathBuf::from(path)).expect("LMDB opens")
    };
    // An existing database is opened without a write transaction, as a user would.
    let read = env.read_txn().expect("a transaction");
    let existing = env.open_database(&read, None).expect("the database");
    read.commit().expect("commit");
    let db = existing.unwrap_or_else(|| {
        let mut txn = env.write_txn().expect("a transaction");
        let db = env.create_database(&mut txn, None).expect("a database");
        txn.commit().expect("commit");
        db
    });
    Lmdb { env: Some(env), db, first: true, sync_every: None, commits: 0 }
}

impl Lmdb {
    fn env(&self) -> &Env {
        self.env.as_ref().expect("open until dropped")
    }

    /// One write transaction.
    fn write<R>(&mut self, f: impl FnOnce(&Database<Bytes, Bytes>, &mut RwTxn) -> R) -> R {
        let mut txn = self.env().write_txn().expect("a transaction");
        let result = f(&self.db, &mut txn);
        txn.commit().expect("commit");
        self.commits += 1;
        if self.sync_every.is_some_and(|every| self.commits.is_multiple_of(every)) {
            self.env().force_sync().expect("a sync");
        }
        result
    }
}

impl Store for Lmdb {
    fn get_with(&mut self, key: &[u8], f: &mut dyn FnMut(&[u8])) -> bool {
        let txn = self.env().read_txn().expect("a transaction");
        self.db.get(&txn, key).expect("get").map(f).is_some()
    }

    fn exists(&mut self, key: &[u8]) -> bool {
        let txn = self.env().read_txn().expect("a transaction");
        self.db.get(&txn, key).expect("get").is_some()
    }

    fn scan(&mut self) -> Seen {
        let (txn, mut seen) = (self.env().read_txn().expect("a transaction"), Seen::default());
        for row in self.db.iter(&txn).expect("a cursor") {
            let (key, value) = row.expect("a row");
            seen.row(key, value);
        }
        seen
    }

    fn prefix(&mut self, prefix: &[u8]) -> Seen {
        let (txn, mut seen) = (self.env().read_txn().expect("a transaction"), Seen::default());
        for row in self.db.prefix_iter(&txn, prefix).expect("a cursor") {
            let (key, value) = row.expect("a row");
            seen.row(key, value);
        }
        seen
    }

    fn put(&mut self, key: &[u8], value: &[u8]) {
        self.write(|db, txn| db.put(txn, key, value).expect("put"));
    }

    fn delete(&mut self, key: &[u8]) {
        self.write(|db, txn| db.delete(txn, key).expect("delete"));
    }

    fn modify(&mut self, key: &[u8], f: &mut dyn FnMut(&mut [u8])) -> bool {
        self.write(|db, txn| {
            let Some(value) = db.get(txn, key).expect("get") else { return false };
            let mut value = value.to_vec();
            f(&mut value);
            db.put(txn, key, &value).expect("put");
            true
        })
    }

    fn write_all<'a>(&mut self, count: usize, write: &mut dyn FnMut(usize) -> (Key, &'a [u8], i64)) {
        self.write(|db, txn| {
            for i in 0..count {
                let (key, value, _) = write(i);
                db.put(txn, &key, value).expect("put");
            }
        });
    }

    fn delete_all(&mut self, keys: &[Key]) {
        self.write(|db, txn| {
            for key in keys {
                db.delete(txn, key).expect("delete");
            }
        });
    }

    fn settle(&mut self) {
        self.env().force_sync().expect("a sync");
    }

    fn another(&self) -> Box<dyn Store> {
        // A process may open an environment only once, and read transactions belong to threads.
        Box::new(Lmdb {
            env: self.env.clone(),
            db: self.db,
            first: false,
            sync_every: self.sync_every,
            commits: 0,
        })
    }
}

impl Drop for Lmdb {
    fn drop(&mut self) {
        let env = self.env.take().expect("dropped once");
        if self.first {
            env.prepare_for_closing().wait();
        }
    }
}
