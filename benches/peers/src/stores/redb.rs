//! redb with Durability::None, which means no fsync per commit. redb reuses freed pages only after
//! a durable commit, so every 1000th commit is durable. This corresponds to the checkpoints of
//! other stores.

use std::path::Path;
use std::sync::Arc;

use redb::{Database, Durability, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction};

use crate::store::{Key, Mode, Seen, Store};

const TABLE: TableDefinition<&[u8], &[u8]> = TableDefinition::new("t");
const DURABLE_EVERY: u32 = 1000;

struct Redb {
    db: Arc<Database>,
    sync: bool,
    commits: u32,
}

pub fn open(path: &Path, mode: Mode) -> Box<dyn Store> {
    let new = !path.exists();
    let db = Arc::new(Database::create(path).expect("redb opens"));
    let mut store = Redb { db, sync: mode.sync, commits: 0 };
    if new {
        store.write(|txn| drop(txn.open_table(TABLE).expect("a table")));
    }
    Box::new(store)
}

impl Redb {
    fn write<R>(&mut self, f: impl FnOnce(&WriteTransaction) -> R) -> R {
        let mut txn = self.db.begin_write().expect("a transaction");
        self.commits += 1;
        if !self.sync && !self.commits.is_multiple_of(DURABLE_EVERY) {
            txn.set_durability(Durability::None).expect("a durability");
        }
        let result = f(&txn);
        txn.commit().expect("commit");
        result
    }

    fn read(&self) -> redb::ReadOnlyTable<&'static [u8], &'static [u8]> {
        self.db.begin_read().expect("a transaction").open_table(TABLE).expect("the table")
    }
}

impl Store for Redb {
    fn get_with(&mut self, key: &[u8], f: &mut dyn FnMut(&[u8])) -> bool {
        self.read().get(key).expect("get").map(|value| f(value.value())).is_some()
    }

    fn exists(&mut self, key: &[u8]) -> bool {
        self.read().get(key).expect("get").is_some()
    }

    fn scan(&mut self) -> Seen {
        let mut seen = Seen::default();
        for row in self.read().iter().expect("a cursor") {
            let (key, value) = row.expect("a row");
            seen.row(key.value(), value.value());
        }
        seen
    }

    fn prefix(&mut self, prefix: &[u8]) -> Seen {
        let (mut seen, end) = (Seen::default(), super::after(prefix));
        for row in self.read().range::<&[u8]>(prefix..&end[..]).expect("a cursor") {
            let (key, value) = row.expect("a row");
            seen.row(key.value(), value.value());
        }
        seen
    }

    fn put(&mut self, key: &[u8], value: &[u8]) {
        self.write(|txn| drop(txn.open_table(TABLE).expect("the table").insert(key, value).expect("put")));
    }

    fn delete(&mut self, key: &[u8]) {
        self.write(|txn| drop(txn.open_table(TABLE).expect("the table").remove(key).expect("delete")));
    }

    fn write_all<'a>(&mut self, count: usize, write: &mut dyn FnMut(usize) -> (Key, &'a [u8], i64)) {
        self.write(|txn| {
            let mut table = txn.open_table(TABLE).expect("the table");
            for i in 0..count {
                let (key, value, _) = write(i);
                table.insert(&key[..], value).expect("put");
            }
        });
    }

    fn delete_all(&mut self, keys: &[Key]) {
        self.write(|txn| {
            let mut table = txn.open_table(TABLE).expect("the table");
            for key in keys {
                table.remove(&key[..]).expect("delete");
            }
        });
    }

    fn modify(&mut self, key: &[u8], f: &mut dyn FnMut(&mut [u8])) -> bool {
        self.write(|txn| {
            let mut table = txn.open_table(TABLE).expect("the table");
            let value = table.get(key).expect("get").map(|value| value.value().to_vec());
            let Some(mut value) = value else { return false };
            f(&mut value);
            table.insert(key, &value[..]).expect("put");
            true
        })
    }

    fn settle(&mut self) {
        self.db.begin_write().expect("a transaction").commit().expect("a durable commit");
    }

    fn another(&self) -> Box<dyn Store> {
        Box::new(Redb { db: self.db.clone(), sync: self.sync, commits: 0 })
    }
}
