//! kvstore and SNKV, each with its default configuration, through the same C functions.

use std::ffi::{CString, c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr::{null, null_mut};
use std::sync::OnceLock;

use crate::api::{
    self, Api, KVBatch, KVColumnFamily, KVEntry, KVIterator, KVStore, KVStoreConfig, KVStoreStats,
};
use crate::store::{Key, Mode, Seen, Store};

pub static KVSTORE: OnceLock<&'static Api> = OnceLock::new();
pub static SNKV: OnceLock<&'static Api> = OnceLock::new();
/// Number of commits between checkpoints in the variant "SNKV+ck". SNKV itself never checkpoints.
const SNKV_CHECKPOINT: u32 = 1000;

struct CStore {
    api: &'static Api,
    path: PathBuf,
    mode: Mode,
    kv: *mut KVStore,
    /// For kvstore_cf_get_into; NULL for SNKV, which has kvstore_get only.
    cf: *mut KVColumnFamily,
    checkpoint_every: Option<u32>,
    commits: u32,
    buffer: Vec<u8>,
    /// Made by the first `write_batch`.
    batch: *mut KVBatch,
    cleaner: bool,
    /// The old and the new value while `modify` works.
    copies: [Vec<u8>; 2],
}

// SAFETY: handles of both may be used from any thread.
unsafe impl Send for CStore {}

pub fn kvstore(path: &Path, mode: Mode) -> Box<dyn Store> {
    let api = KVSTORE.get().expect("libkvstore.so is loaded");
    let mut store = open(api, path, mode);
    // SAFETY: an open store.
    check(unsafe { (api.kvstore_cf_get_default)(store.kv, &mut store.cf) });
    store.buffer = vec![0; 1 << 16];
    Box::new(store)
}

pub fn snkv(path: &Path, mode: Mode) -> Box<dyn Store> {
    Box::new(open(SNKV.get().expect("SNKV is loaded"), path, mode))
}

pub fn snkv_checkpointed(path: &Path, mode: Mode) -> Box<dyn Store> {
    let mut store = open(SNKV.get().expect("SNKV is loaded"), path, mode);
    store.checkpoint_every = Some(SNKV_CHECKPOINT);
    Box::new(store)
}

fn open(api: &'static Api, path: &Path, mode: Mode) -> CStore {
    let name = CString::new(path.as_os_str().as_encoded_bytes()).expect("a path without NUL");
    let mut kv = null_mut();
    // SNKV's struct is the beginning of kvstore's.
    let config = KVStoreConfig {
        journalMode: api::KVSTORE_JOURNAL_WAL,
        syncLevel: if mode.sync { api::KVSTORE_SYNC_FULL } else { api::KVSTORE_SYNC_NORMAL },
        holdReads: if mode.unheld { -1 } else { 0 },
        ..KVStoreConfig::default()
    };
    // SAFETY: a C string, an output, a configuration.
    check(unsafe {
        if mode.sync || mode.unheld {
            (api.kvstore_open_v2)(name.as_ptr(), &mut kv, &config)
        } else {
            (api.kvstore_open)(name.as_ptr(), &mut kv, api::KVSTORE_JOURNAL_WAL)
        }
    });
    let (path, cf) = (path.to_path_buf(), null_mut());
    CStore {
        api,
        path,
        mode,
        kv,
        cf,
        checkpoint_every: None,
        commits: 0,
        buffer: Vec::new(),
        batch: null_mut(),
        cleaner: false,
        copies: [Vec::new(), Vec::new()],
    }
}

#[inline]
#[track_caller]
pub(super) fn check(code: c_int) {
    assert_eq!(code, api::KVSTORE_OK, "kvstore or SNKV failed");
}

pub(super) fn pointer(bytes: &[u8]) -> (*const c_void, c_int) {
    (bytes.as_ptr().cast(), bytes.len() as c_int)
}

// SAFETY of all blocks: the handles are open, slices are given with their lengths, outputs are valid.
impl CStore {
    fn committed(&mut self) {
        let Some(every) = self.checkpoint_every else { return };
        self.commits += 1;
        if self.commits.is_multiple_of(every) {
            let mode = api::KVSTORE_CHECKPOINT_PASSIVE;
            check(unsafe { (self.api.kvstore_checkpoint)(self.kv, mode, null_mut(), null_mut()) });
        }
    }

    fn allocated(&mut self, key: &[u8], f: &mut dyn FnMut(&[u8])) -> bool {
        let ((k, n), mut value, mut length) = (pointer(key), null_mut(), 0);
        match unsafe { (self.api.kvstore_get)(self.kv, k, n, &mut value, &mut length) } {
            api::KVSTORE_NOTFOUND => return false,
            code => check(code),
        }
        unsafe {
            f(std::slice::from_raw_parts(value.cast(), length as usize));
            (self.api.free)(value);
        }
        true
    }

    fn walk(&mut self, it: *mut KVIterator) -> Seen {
        let (api, mut seen) = (&self.api.functions, Seen::default());
        unsafe {
            while (api.kvstore_iterator_eof)(it) == 0 {
                let (mut key, mut key_length, mut value, mut length) = (null_mut(), 0, null_mut(), 0);
                check((api.kvstore_iterator_key)(it, &mut key, &mut key_length));
                check((api.kvstore_iterator_value)(it, &mut value, &mut length));
                seen.row(
                    std::slice::from_raw_parts(key.cast(), key_length as usize),
                    std::slice::from_raw_parts(value.cast(), length as usize),
                );
                check((api.kvstore_iterator_next)(it));
            }
            (api.kvstore_iterator_close)(it);
        }
        seen
    }
}

impl Store for CStore {
    fn get_with(&mut self, key: &[u8], f: &mut dyn FnMut(&[u8])) -> bool {
        if self.cf.is_null() {
            return self.allocated(key, f);
        }
        let ((k, n), mut length) = (pointer(key), 0);
        let (buffer, capacity) = (self.buffer.as_mut_ptr().cast(), self.buffer.len() as c_int);
        match unsafe { (self.api.kvstore_cf_get_into)(self.cf, k, n, buffer, capacity, &mut length) } {
            api::KVSTORE_NOTFOUND => return false,
            code => check(code),
        }
        f(&self.buffer[..length as usize]);
        true
    }

    fn get_allocated(&mut self, key: &[u8], f: &mut dyn FnMut(&[u8])) -> bool {
        self.allocated(key, f)
    }

    fn exists(&mut self, key: &[u8]) -> bool {
        let ((k, n), mut exists) = (pointer(key), 0);
        check(unsafe { (self.api.kvstore_exists)(self.kv, k, n, &mut exists) });
        exists == 1
    }

    fn scan(&mut self) -> Seen {
        let mut it = null_mut();
        check(unsafe { (self.api.kvstore_iterator_create)(self.kv, &mut it) });
        check(unsafe { (self.api.kvstore_iterator_first)(it) });
        self.walk(it)
    }

    fn first(&mut self) -> bool {
        let mut it = null_mut();
        check(unsafe { (self.api.kvstore_iterator_create)(self.kv, &mut it) });
        check(unsafe { (self.api.kvstore_iterator_first)(it) });
        let found = unsafe { (self.api.kvstore_iterator_eof)(it) } == 0;
        unsafe { (self.api.kvstore_iterator_close)(it) };
        found
    }

    fn prefix(&mut self, prefix: &[u8]) -> Seen {
        let ((p, n), mut it) = (pointer(prefix), null_mut());
        check(unsafe { (self.api.kvstore_prefix_iterator_create)(self.kv, p, n, &mut it) });
        self.walk(it)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) {
        let ((k, n), (v, m)) = (pointer(key), pointer(value));
        check(unsafe { (self.api.kvstore_put)(self.kv, k, n, v, m) });
        self.committed();
    }

    fn put_ttl(&mut self, key: &[u8], value: &[u8], expire_ms: i64) {
        let ((k, n), (v, m)) = (pointer(key), pointer(value));
        check(unsafe { (self.api.kvstore_put_ttl)(self.kv, k, n, v, m, expire_ms) });
        self.committed();
    }

    fn delete(&mut self, key: &[u8]) {
        let (k, n) = pointer(key);
        match unsafe { (self.api.kvstore_delete)(self.kv, k, n) } {
            api::KVSTORE_NOTFOUND => {}
            code => check(code),
        }
        self.committed();
    }

    fn write_all<'a>(&mut self, count: usize, write: &mut dyn FnMut(usize) -> (Key, &'a [u8], i64)) {
        check(unsafe { (self.api.kvstore_begin)(self.kv, 1) });
        for i in 0..count {
            let (key, value, expire_ms) = write(i);
            let ((k, n), (v, m)) = (pointer(&key), pointer(value));
            check(unsafe {
                if expire_ms == 0 {
                    (self.api.kvstore_put)(self.kv, k, n, v, m)
                } else {
                    (self.api.kvstore_put_ttl)(self.kv, k, n, v, m, expire_ms)
                }
            });
        }
        check(unsafe { (self.api.kvstore_commit)(self.kv) });
        self.committed();
    }

    fn delete_all(&mut self, keys: &[Key]) {
        check(unsafe { (self.api.kvstore_begin)(self.kv, 1) });
        for key in keys {
            let (k, n) = pointer(key);
            match unsafe { (self.api.kvstore_delete)(self.kv, k, n) } {
                api::KVSTORE_NOTFOUND => {}
                code => check(code),
            }
        }
        check(unsafe { (self.api.kvstore_commit)(self.kv) });
        self.committed();
    }

    fn write_batch<'a>(&mut self, count: usize, write: &mut dyn FnMut(usize) -> (Key, &'a [u8], i64)) {
        if self.batch.is_null() {
            check(unsafe { (self.api.kvstore_batch_new)(self.kv, &mut self.batch) });
        }
        for i in 0..count {
            let (key, value, expire_ms) = write(i);
            let ((k, n), (v, m)) = (pointer(&key), pointer(value));
            check(unsafe { (self.api.kvstore_batch_put)(self.batch, self.cf, k, n, v, m, expire_ms) });
        }
        check(unsafe { (self.api.kvstore_batch_commit)(self.batch) });
    }

    fn settle(&mut self) {
        let mode = api::KVSTORE_CHECKPOINT_FULL;
        check(unsafe { (self.api.kvstore_checkpoint)(self.kv, mode, null_mut(), null_mut()) });
    }

    fn fetch(&mut self) -> Seen {
        const ROWS: usize = 256;
        let nothing = KVEntry { pKey: null(), pValue: null(), nKey: 0, nValue: 0, expireMs: 0 };
        let (mut entries, mut it, mut n, mut seen) = ([nothing; ROWS], null_mut(), 0, Seen::default());
        let api = &self.api.functions;
        check(unsafe { (api.kvstore_iterator_create)(self.kv, &mut it) });
        check(unsafe { (api.kvstore_iterator_first)(it) });
        loop {
            check(unsafe { (api.kvstore_iterator_fetch)(it, entries.as_mut_ptr(), ROWS as c_int, &mut n) });
            if n == 0 {
                break;
            }
            for entry in &entries[..n as usize] {
                let [key, value] = [(entry.pKey, entry.nKey), (entry.pValue, entry.nValue)]
                    .map(|(start, n)| unsafe { std::slice::from_raw_parts(start.cast(), n as usize) });
                seen.row(key, value);
            }
        }
        unsafe { (api.kvstore_iterator_close)(it) };
        seen
    }

    fn modify(&mut self, key: &[u8], f: &mut dyn FnMut(&mut [u8])) -> bool {
        let [mut old, mut new] = std::mem::take(&mut self.copies);
        // kvstore swaps the value if it is still the one that was read; SNKV needs a transaction.
        let transaction = self.cf.is_null();
        if transaction {
            check(unsafe { (self.api.kvstore_begin)(self.kv, 1) });
        }
        let found = loop {
            old.clear();
            if !self.get_with(key, &mut |value| old.extend_from_slice(value)) {
                break false;
            }
            new.clone_from(&old);
            f(&mut new);
            let ((k, n), (o, l), (v, m), mut swapped) = (pointer(key), pointer(&old), pointer(&new), 0);
            if transaction {
                check(unsafe { (self.api.kvstore_put)(self.kv, k, n, v, m) });
                break true;
            }
            check(unsafe {
                (self.api.kvstore_cf_compare_and_swap)(self.cf, k, n, o, l, v, m, 0, &mut swapped)
            });
            if swapped == 1 {
                break true;
            }
        };
        if transaction {
            check(unsafe { (self.api.kvstore_commit)(self.kv) });
        }
        self.copies = [old, new];
        self.committed();
        found
    }

    fn touch(&mut self, key: &[u8], expire_ms: i64, f: &mut dyn FnMut(&[u8])) -> bool {
        let ((k, n), mut value, mut length) = (pointer(key), null_mut(), 0);
        let code = unsafe {
            if self.cf.is_null() {
                (self.api.kvstore_get)(self.kv, k, n, &mut value, &mut length)
            } else {
                (self.api.kvstore_cf_get_and_expire)(self.cf, k, n, expire_ms, &mut value, &mut length)
            }
        };
        match code {
            api::KVSTORE_NOTFOUND => return false,
            code => check(code),
        }
        let bytes = unsafe { std::slice::from_raw_parts(value.cast(), length as usize) };
        f(bytes);
        if self.cf.is_null() {
            // SNKV has no call for this: the value is written again.
            self.put_ttl(key, bytes, expire_ms);
        }
        unsafe { (self.api.free)(value) };
        true
    }

    fn purge(&mut self) -> u64 {
        let mut purged = 0;
        check(unsafe { (self.api.kvstore_purge_expired)(self.kv, &mut purged) });
        if purged > 0 {
            self.committed();
        }
        purged as u64
    }

    fn purge_step(&mut self) -> u64 {
        let (mut purged, mut more) = (0, 0);
        check(unsafe { (self.api.kvstore_purge_step)(self.kv, 0, 0, &mut purged, &mut more) });
        purged as u64
    }

    fn next_expiry(&mut self) -> Option<i64> {
        let mut next = 0;
        match unsafe { (self.api.kvstore_next_expiry)(self.kv, &mut next) } {
            api::KVSTORE_NOTFOUND => return None,
            code => check(code),
        }
        Some(next)
    }

    fn start_cleaner(&mut self, interval_ms: i64) -> bool {
        self.cleaner = !self.cf.is_null();
        if self.cleaner {
            check(unsafe { (self.api.kvstore_cleaner_start)(self.kv, interval_ms, 0) });
        }
        self.cleaner
    }

    fn stop_cleaner(&mut self) {
        if std::mem::take(&mut self.cleaner) {
            check(unsafe { (self.api.kvstore_cleaner_stop)(self.kv) });
        }
    }

    fn another(&self) -> Box<dyn Store> {
        if self.cf.is_null() { snkv(&self.path, self.mode) } else { kvstore(&self.path, self.mode) }
    }

    fn checkpoints(&mut self) -> Option<u64> {
        if self.cf.is_null() {
            return None;
        }
        let mut stats = KVStoreStats::default();
        check(unsafe { (self.api.kvstore_stats)(self.kv, &mut stats) });
        Some(stats.nCheckpoints)
    }
}

impl Drop for CStore {
    fn drop(&mut self) {
        // After a failure the handle is leaked, because SNKV can crash while it closes.
        if std::thread::panicking() {
            return;
        }
        unsafe {
            if !self.batch.is_null() {
                (self.api.kvstore_batch_free)(self.batch);
            }
            if !self.cf.is_null() {
                (self.api.kvstore_cf_close)(self.cf);
            }
            check((self.api.kvstore_close)(self.kv));
        }
    }
}
