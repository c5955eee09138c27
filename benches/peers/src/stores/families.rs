//! A store with many families, for kvstore and SNKV, which have the same functions for families.

use std::ffi::{CString, c_int};
use std::path::Path;
use std::ptr::null_mut;

use super::c_api::{KVSTORE, SNKV, check, pointer};
use crate::api::{self, Api, KVColumnFamily, KVStore};

pub struct Families {
    snkv: bool,
    api: &'static Api,
    kv: *mut KVStore,
    families: Vec<*mut KVColumnFamily>,
    buffer: Vec<u8>,
}

/// Returns the library of SNKV if `snkv` is set, otherwise that of kvstore.
fn library(snkv: bool) -> &'static Api {
    if snkv { SNKV.get().expect("SNKV is loaded") } else { KVSTORE.get().expect("libkvstore.so is loaded") }
}

fn name(i: usize) -> CString {
    CString::new(format!("family {i}")).expect("a name without NUL")
}

// SAFETY of all blocks: the handles are open, slices are given with their lengths, outputs are valid.
impl Families {
    /// Opens a store without opening its families.
    pub fn open(snkv: bool, path: &Path) -> Families {
        let api = library(snkv);
        let path = CString::new(path.as_os_str().as_encoded_bytes()).expect("a path without NUL");
        let mut kv = null_mut();
        check(unsafe { (api.kvstore_open)(path.as_ptr(), &mut kv, api::KVSTORE_JOURNAL_WAL) });
        Families { snkv, api, kv, families: Vec::new(), buffer: vec![0; 1 << 16] }
    }

    /// Creates families. Returns `false` if the store cannot hold this number.
    pub fn make(&mut self, count: usize) -> bool {
        for i in 0..count {
            let mut family = null_mut();
            if unsafe { (self.api.kvstore_cf_create)(self.kv, name(i).as_ptr(), &mut family) }
                != api::KVSTORE_OK
            {
                return false;
            }
            unsafe { (self.api.kvstore_cf_close)(family) };
        }
        true
    }

    /// Opens a handle on each of the families.
    pub fn open_families(&mut self, count: usize) {
        self.families = (0..count).map(|i| self.open_family(i)).collect();
    }

    fn open_family(&self, i: usize) -> *mut KVColumnFamily {
        let mut family = null_mut();
        check(unsafe { (self.api.kvstore_cf_open)(self.kv, name(i).as_ptr(), &mut family) });
        family
    }

    pub fn open_and_close_family(&self, i: usize) {
        let family = self.open_family(i);
        unsafe { (self.api.kvstore_cf_close)(family) };
    }

    pub fn transaction(&mut self, f: impl FnOnce(&mut Families) -> bool) -> bool {
        check(unsafe { (self.api.kvstore_begin)(self.kv, 1) });
        let done = f(self);
        check(unsafe { (self.api.kvstore_commit)(self.kv) });
        done
    }

    /// Returns the length of the value.
    pub fn get(&mut self, family: usize, key: &[u8]) -> c_int {
        let ((k, n), family, mut length) = (pointer(key), self.families[family], 0);
        unsafe {
            if !self.snkv {
                let (buffer, capacity) = (self.buffer.as_mut_ptr().cast(), self.buffer.len() as c_int);
                check((self.api.kvstore_cf_get_into)(family, k, n, buffer, capacity, &mut length));
            } else {
                let mut value = null_mut();
                check((self.api.kvstore_cf_get)(family, k, n, &mut value, &mut length));
                (self.api.free)(value);
            }
        }
        length
    }

    /// Returns `false` if the store accepts no more keys.
    pub fn put_ttl(&mut self, family: usize, key: &[u8], value: &[u8], expire_ms: i64) -> bool {
        let ((k, n), (v, m), family) = (pointer(key), pointer(value), self.families[family]);
        unsafe { (self.api.kvstore_cf_put_ttl)(family, k, n, v, m, expire_ms) == api::KVSTORE_OK }
    }

    pub fn purge(&mut self, family: usize) {
        let mut purged = 0;
        check(unsafe { (self.api.kvstore_cf_purge_expired)(self.families[family], &mut purged) });
        assert_eq!(purged, 0);
    }

    /// Purges expired keys of the whole store, as a periodic task would.
    pub fn purge_all(&mut self) {
        if !self.snkv {
            let (mut purged, mut more) = (0, 0);
            check(unsafe { (self.api.kvstore_purge_step)(self.kv, 0, 0, &mut purged, &mut more) });
            assert_eq!((purged, more), (0, 0));
        } else {
            (0..self.families.len()).for_each(|i| self.purge(i));
        }
    }

    /// kvstore only, like all functions below.
    pub fn next_expiry(&mut self) -> i64 {
        let mut next = 0;
        check(unsafe { (self.api.kvstore_next_expiry)(self.kv, &mut next) });
        next
    }

    pub fn start_cleaner(&mut self, interval_ms: i64) {
        check(unsafe { (self.api.kvstore_cleaner_start)(self.kv, interval_ms, 0) });
    }

    pub fn stop_cleaner(&mut self) {
        check(unsafe { (self.api.kvstore_cleaner_stop)(self.kv) });
    }
}

impl Drop for Families {
    fn drop(&mut self) {
        // After a failure the handle is leaked, because SNKV can crash while it closes.
        if std::thread::panicking() {
            return;
        }
        unsafe {
            for family in self.families.drain(..) {
                (self.api.kvstore_cf_close)(family);
            }
            check((self.api.kvstore_close)(self.kv));
        }
    }
}
