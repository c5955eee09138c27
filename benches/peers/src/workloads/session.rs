//! A store of sessions that expire half an hour after their last use. Of 100 operations, 90 read a
//! session and extend its expiry time, 8 write a session, 1 deletes a session, and 1 writes a token
//! that expires at once and is never read. Sessions are chosen with YCSB's distribution.
//!
//! kvstore's cleaner removes the tokens. SNKV and SQLite call their purge as often, on the working
//! thread; the time counts for the operation that it delays. Stores without TTLs write the value
//! back instead, and never remove a token.

use std::time::{Duration, Instant};

use super::{Bench, IN_ORDER, Place, VALUE, load, warm};
use crate::measure::{key, mix};
use crate::spec::SESSION;
use crate::store::{Key, Kind, Mode, Store, now_ms, sum};
use crate::zipf::Zipfian;

const LIFE_MS: i64 = 1_800_000;
const TOKEN_MS: i64 = 20;
const CLEAN_EVERY_MS: i64 = 100;

#[derive(Clone, Copy)]
enum What {
    /// The flag is whether the session exists.
    Touch(bool),
    Put,
    Token,
    Delete,
}

struct Operation {
    what: What,
    key: Key,
}

/// Returns operations on `n` sessions, all of which exist at first.
fn operations(n: u64, round: u64) -> Vec<Operation> {
    let (mut zipfian, mut there) = (Zipfian::new(100 + round), vec![true; n as usize]);
    let operation = |i: u64| {
        let session = zipfian.below(n);
        let is_there = &mut there[session as usize];
        let (what, key) = match mix(i ^ 0x5E55) % 100 {
            0..90 => (What::Touch(*is_there), key(session)),
            90..98 => (What::Put, key(session)),
            98 => (What::Token, key(n + i)),
            _ => (What::Delete, key(session)),
        };
        match what {
            What::Put => *is_there = true,
            What::Delete => *is_there = false,
            What::Touch(_) | What::Token => {}
        }
        Operation { what, key }
    };
    (0..n.clamp(20_000, 100_000)).map(operation).collect()
}

/// Returns the number of sessions that exist after the operations.
fn left(n: u64, operations: &[Operation]) -> u64 {
    let mut last = std::collections::HashMap::new();
    for Operation { what, key } in operations {
        match what {
            What::Put => drop(last.insert(key, true)),
            What::Delete => drop(last.insert(key, false)),
            What::Touch(_) | What::Token => {}
        }
    }
    n - last.values().filter(|is_there| !**is_there).count() as u64
}

pub(super) fn session(bench: &mut Bench, kind: &Kind) {
    if !bench.results.wants(SESSION) {
        return;
    }
    let (data, n, place) = (bench.data, bench.data.n, Place::new(bench, kind));
    let mode = Mode { ttl: kind.ttl, ..Mode::default() };
    // Expiry times follow key order: each session was last used within the last third of its TTL.
    let earliest = now_ms() + LIFE_MS / 3 * 2;
    let expire_ms = |i: usize| earliest + i as i64 * (LIFE_MS / 3) / n as i64;
    load(&mut *(kind.open)(&place.store(), mode), data, IN_ORDER, n as usize, VALUE, &expire_ms);
    let mut store = (kind.open)(&place.store(), mode);
    warm(&mut *store, data, IN_ORDER, VALUE);

    let operations = operations(n, bench.round as u64);
    let cleans_itself = store.start_cleaner(CLEAN_EVERY_MS);
    let (mut cleaned, mut done) = (Instant::now(), 0);
    let put = |store: &mut dyn Store, key: &Key, i: usize, life_ms: i64| {
        let value = data.value(i + 17, VALUE);
        if kind.ttl { store.put_ttl(key, value, now_ms() + life_ms) } else { store.put(key, value) }
    };
    let counted = bench.results.each(kind.name, SESSION, operations.len(), |i| {
        let Operation { what, key } = &operations[i];
        match what {
            What::Touch(is_there) => {
                let (mut length, mut total) = (0, 0);
                let seen = store.touch(key, now_ms() + LIFE_MS, &mut |value| {
                    (length, total) = (value.len(), sum(value));
                });
                std::hint::black_box(total);
                assert_eq!((seen, length), (*is_there, if *is_there { VALUE } else { 0 }));
            }
            What::Put => put(&mut *store, key, i, LIFE_MS),
            What::Token => put(&mut *store, key, i, TOKEN_MS),
            What::Delete => store.delete(key),
        }
        if kind.ttl
            && !cleans_itself
            && i.is_multiple_of(16)
            && cleaned.elapsed() >= Duration::from_millis(CLEAN_EVERY_MS as u64)
        {
            store.purge();
            cleaned = Instant::now();
        }
        done = i + 1;
    });
    store.stop_cleaner();
    bench.results.settle(kind.name, SESSION, counted, || store.settle());
    if kind.ttl {
        std::thread::sleep(Duration::from_millis(TOKEN_MS as u64 + 1));
        store.purge();
        assert_eq!(store.scan().rows, left(n, &operations[..done]), "not the sessions that should be there");
    }
}
