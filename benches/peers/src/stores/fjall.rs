//! fjall with its defaults: writes go to the operating system, not to the disk.

use std::path::Path;

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use crate::store::{Key, Mode, Seen, Store};

struct Fjall {
    db: Database,
    rows: Keyspace,
    sync: bool,
}

pub fn open(path: &Path, mode: Mode) -> Box<dyn Store> {
    let db = Database::builder(path).open().expect("fjall opens");
    let rows = db.keyspace("t", KeyspaceCreateOptions::default).expect("a keyspace");
    Box::new(Fjall { db, rows, sync: mode.sync })
}

impl Fjall {
    fn written(&self) {
        if self.sync {
            self.db.persist(PersistMode::SyncData).expect("a sync");
        }
    }
}

fn walk(rows: fjall::Iter) -> Seen {
    let mut seen = Seen::default();
    for row in rows {
        let (key, value) = row.into_inner().expect("a row");
        seen.row(&key, &value);
    }
    seen
}

impl Store for Fjall {
    fn get_with(&mut self, key: &[u8], f: &mut dyn FnMut(&[u8])) -> bool {
        self.rows.get(key).expect("get").map(|value| f(&value)).is_some()
    }

    fn exists(&mut self, key: &[u8]) -> bool {
        self.rows.contains_key(key).expect("contains_key")
    }

    fn scan(&mut self) -> Seen {
        walk(self.rows.iter())
    }

    fn prefix(&mut self, prefix: &[u8]) -> Seen {
        walk(self.rows.prefix(prefix))
    }

    fn put(&mut self, key: &[u8], value: &[u8]) {
        self.rows.insert(key, value).expect("insert");
        self.written();
    }

    fn delete(&mut self, key: &[u8]) {
        self.rows.remove(key).expect("remove");
        self.written();
    }

    fn write_all<'a>(&mut self, count: usize, write: &mut dyn FnMut(usize) -> (Key, &'a [u8], i64)) {
        let mut batch = self.db.batch();
        for i in 0..count {
            let (key, value, _) = write(i);
            batch.insert(&self.rows, &key[..], value);
        }
        batch.commit().expect("commit");
        self.written();
    }

    fn delete_all(&mut self, keys: &[Key]) {
        let mut batch = self.db.batch();
        for key in keys {
            batch.remove(&self.rows, &key[..]);
        }
        batch.commit().expect("commit");
        self.written();
    }

    fn settle(&mut self) {
        self.db.persist(PersistMode::SyncData).expect("a sync");
    }

    fn another(&self) -> Box<dyn Store> {
        Box::new(Fjall { db: self.db.clone(), rows: self.rows.clone(), sync: self.sync })
    }
}
