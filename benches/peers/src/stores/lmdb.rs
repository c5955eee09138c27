//! LMDB with NOSYNC writes, through heed. Values are looked at where they are, in the map.

use std::path::{Path, PathBuf};

use heed::types::Bytes;
use heed::{Database, Env, EnvFlags, EnvOpenOptions};

use crate::store::{Key, Mode, Seen, Store};

/// Address space only: more than any file here needs.
const MAP_SIZE: usize = 16 << 30;

struct Lmdb {
    env: Option<Env>,
    db: Database<Bytes, Bytes>,
    /// The one that closes the environment.
    first: bool,
}

pub fn open(path: &Path, mode: Mode) -> Box<dyn Store> {
    std::fs::create_dir_all(path).expect("a folder");
    let mut options = EnvOpenOptions::new();
    options.map_size(MAP_SIZE);
    // SAFETY: nothing here depends on what a power cut leaves; nobody else changes the file.
    let env = unsafe {
        if !mode.sync {
            options.flags(EnvFlags::NO_SYNC);
        }
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
    Box::new(Lmdb { env: Some(env), db, first: true })
}

impl Lmdb {
    fn env(&self) -> &Env {
        self.env.as_ref().expect("open until dropped")
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
        let mut txn = self.env().write_txn().expect("a transaction");
        self.db.put(&mut txn, key, value).expect("put");
        txn.commit().expect("commit");
    }

    fn delete(&mut self, key: &[u8]) {
        let mut txn = self.env().write_txn().expect("a transaction");
        self.db.delete(&mut txn, key).expect("delete");
        txn.commit().expect("commit");
    }

    fn write_all<'a>(&mut self, count: usize, write: &mut dyn FnMut(usize) -> (Key, &'a [u8], i64)) {
        let mut txn = self.env().write_txn().expect("a transaction");
        for i in 0..count {
            let (key, value, _) = write(i);
            self.db.put(&mut txn, &key, value).expect("put");
        }
        txn.commit().expect("commit");
    }

    fn another(&self) -> Box<dyn Store> {
        // A process may open it once only; read transactions belong to threads.
        Box::new(Lmdb { env: self.env.clone(), db: self.db, first: false })
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
