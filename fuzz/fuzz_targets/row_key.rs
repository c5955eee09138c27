//! Row keys: keys sort like the tuples `(partition, clustering)`, a key can be split into the parts
//! it was made of, the C function agrees with the Rust one, and a scan over a partition returns
//! exactly its rows, also among keys that are not row keys.
//!
//! The store stays open between inputs; its family is cleared.

#![no_main]
#![allow(unsafe_code)] // the C function

use std::ffi::{c_int, c_void};
use std::ops::Bound;

use arbitrary::Arbitrary;
use kvstore::{Config, Direction, KeyRange, MAX_KEY_SIZE, Store, row_key};
use libfuzzer_sys::fuzz_target;

#[path = "../../tests/common/mod.rs"]
mod common;
#[allow(dead_code, unused_imports)] // the strategies
#[path = "../../tests/model/history.rs"]
mod history;
#[allow(dead_code)]
#[path = "../../tests/model/table.rs"]
mod table;

unsafe extern "C" {
    fn kvstore_row_key(
        pkey: *const c_void,
        npkey: c_int,
        ccols: *const c_void,
        nccols: c_int,
        buf: *mut c_void,
        cap: c_int,
        pn: *mut c_int,
    ) -> c_int;
}

#[derive(Debug, Arbitrary)]
struct Input {
    rows: Vec<(Vec<u8>, Vec<u8>)>,
    /// Arbitrary keys in the same family, which need not be row keys.
    garbage: Vec<Vec<u8>>,
    from: Option<Vec<u8>>,
    to: Option<Vec<u8>>,
    closed: bool,
    reverse: bool,
    /// Number of bytes by which the buffer given to the C function is too small.
    missing: u8,
}

/// Calls the C function. Returns the key, or its error code if nothing was written.
fn through_c(partition: &[u8], clustering: &[u8], missing: usize) -> Result<Vec<u8>, c_int> {
    let length = |bytes: &[u8]| c_int::try_from(bytes.len()).unwrap();
    let call = |buffer: &mut [u8]| {
        let mut written = -7;
        // SAFETY: the lengths are those of the slices. (NULL is what a length of 0 is given.)
        let code = unsafe {
            kvstore_row_key(
                partition.as_ptr().cast(),
                length(partition),
                clustering.as_ptr().cast(),
                length(clustering),
                if buffer.is_empty() { std::ptr::null_mut() } else { buffer.as_mut_ptr().cast() },
                length(buffer),
                &raw mut written,
            )
        };
        (code, written)
    };
    let (code, needed) = call(&mut []);
    if code != 0 {
        assert_eq!(needed, -7, "a call that failed wrote its output");
        return Err(code);
    }
    let mut key = vec![0xEE; usize::try_from(needed).unwrap().saturating_sub(missing)];
    let (code, written) = call(&mut key);
    if missing > 0 && needed > 0 && !key.is_empty() {
        assert!(code != 0 && written == -7 && key.iter().all(|byte| *byte == 0xEE));
        return through_c(partition, clustering, 0);
    }
    if missing == 0 {
        assert_eq!((code, written), (0, needed));
        return Ok(key);
    }
    through_c(partition, clustering, 0)
}

thread_local! {
    static STORE: Store = {
        assert_eq!(kvstore::engine(), "btree", "the flags of .cargo/config.toml are not in use");
        Store::open_in_memory(&Config::new()).unwrap()
    };
}

fuzz_target!(|input: Input| {
    let longest = |parts: &(Vec<u8>, Vec<u8>)| 2 * parts.0.len() + 2 + parts.1.len();
    let mut keys = Vec::new();
    for parts in &input.rows {
        let (partition, clustering) = parts;
        let key = row_key(partition, clustering);
        assert_eq!(
            through_c(partition, clustering, usize::from(input.missing)).ok(),
            key.as_ref().ok().cloned()
        );
        match key {
            Ok(key) => {
                assert_eq!(table::parts(&key), Some((partition.clone(), clustering.as_slice())));
                assert!(key.starts_with(&row_key(partition, b"").unwrap()));
                keys.push((parts, key));
            }
            Err(_) => assert!(longest(parts) > MAX_KEY_SIZE),
        }
    }
    for (a, x) in &keys {
        for (b, y) in &keys {
            assert_eq!(x.cmp(y), a.cmp(b));
            assert_eq!(y.starts_with(&row_key(&a.0, b"").unwrap()), a.0 == b.0);
        }
    }
    for garbage in &input.garbage {
        if let Some((partition, clustering)) = table::parts(garbage) {
            assert_eq!(row_key(&partition, clustering).ok().as_ref(), Some(garbage));
        }
    }
    walk(&input, keys.into_iter().map(|(_, key)| key).collect());
});

/// Scans one partition in a store with other keys.
fn walk(input: &Input, mut all: Vec<Vec<u8>>) {
    let Some((partition, _)) = input.rows.first() else { return };
    all.extend(input.garbage.iter().filter(|key| !key.is_empty() && key.len() <= MAX_KEY_SIZE).cloned());
    all.sort();
    all.dedup();
    if all.iter().map(Vec::len).sum::<usize>() > 20_000 {
        return;
    }
    let lower = input.from.clone().map_or(Bound::Unbounded, Bound::Included);
    let upper = input.to.clone().map_or(Bound::Unbounded, |to| match input.closed {
        true => Bound::Included(to),
        false => Bound::Excluded(to),
    });
    let range = history::Range::Between(lower.clone(), upper.clone());
    let mut expected: Vec<_> = (all.iter())
        .filter_map(|key| table::parts(key))
        .filter(|(of, clustering)| of == partition && range.contains(clustering))
        .map(|(_, clustering)| clustering.to_vec())
        .collect();
    let direction = if input.reverse { Direction::Reverse } else { Direction::Forward };
    if input.reverse {
        expected.reverse();
    }
    STORE.with(|store| {
        store.clear().unwrap();
        store
            .transaction(|_| -> kvstore::Result<()> { all.iter().try_for_each(|key| store.put(key, b"")) })
            .unwrap();
        let cursor = store.row_cursor(partition, &KeyRange::new(lower, upper), direction);
        // A bound may be too long for a key with this partition.
        let Ok(mut cursor) = cursor else {
            assert!(partition.len() * 2 + 2 + 20_000 > MAX_KEY_SIZE || input.rows.len() < 2);
            return;
        };
        assert_eq!(common::scan(&mut cursor), expected);
    });
}
