//! RocksDB, tuned for point reads: bloom filters and a block cache that holds everything.

use std::path::Path;
use std::sync::Arc;

use rocksdb::{BlockBasedOptions, Cache, DB, Options, ReadOptions, WriteBatch, WriteOptions};

use crate::store::{Key, Mode, Seen, Store};

struct Rocks {
    db: Arc<DB>,
    sync: bool,
}

pub fn open(path: &Path, mode: Mode) -> Box<dyn Store> {
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(&Cache::new_lru_cache(512 << 20));
    blocks.set_bloom_filter(10.0, false);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&blocks);
    Box::new(Rocks { db: Arc::new(DB::open(&options, path).expect("RocksDB opens")), sync: mode.sync })
}

impl Rocks {
    fn options(&self) -> WriteOptions {
        let mut options = WriteOptions::default();
        options.set_sync(self.sync);
        options
    }

    fn walk(&self, options: ReadOptions) -> Seen {
        let (mut seen, mut rows) = (Seen::default(), self.db.raw_iterator_opt(options));
        rows.seek_to_first();
        while let (Some(key), Some(value)) = (rows.key(), rows.value()) {
            seen.row(key, value);
            rows.next();
        }
        rows.status().expect("a scan");
        seen
    }
}

impl Store for Rocks {
    fn get_with(&mut self, key: &[u8], f: &mut dyn FnMut(&[u8])) -> bool {
        self.db.get_pinned(key).expect("get").map(|value| f(&value)).is_some()
    }

    fn exists(&mut self, key: &[u8]) -> bool {
        self.db.get_pinned(key).expect("get").is_some()
    }

    fn scan(&mut self) -> Seen {
        self.walk(ReadOptions::default())
    }

    fn prefix(&mut self, prefix: &[u8]) -> Seen {
        let mut options = ReadOptions::default();
        options.set_iterate_range(prefix.to_vec()..super::after(prefix));
        self.walk(options)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) {
        self.db.put_opt(key, value, &self.options()).expect("put");
    }

    fn delete(&mut self, key: &[u8]) {
        self.db.delete_opt(key, &self.options()).expect("delete");
    }

    fn write_all<'a>(&mut self, count: usize, write: &mut dyn FnMut(usize) -> (Key, &'a [u8], i64)) {
        let mut batch = WriteBatch::default();
        for i in 0..count {
            let (key, value, _) = write(i);
            batch.put(key, value);
        }
        self.db.write_opt(batch, &self.options()).expect("commit");
    }

    fn delete_all(&mut self, keys: &[Key]) {
        let mut batch = WriteBatch::default();
        for key in keys {
            batch.delete(key);
        }
        self.db.write_opt(batch, &self.options()).expect("commit");
    }

    fn settle(&mut self) {
        self.db.flush_wal(true).expect("a sync");
    }

    fn another(&self) -> Box<dyn Store> {
        Box::new(Rocks { db: self.db.clone(), sync: self.sync })
    }
}
