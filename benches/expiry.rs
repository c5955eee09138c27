//! How the cost of expiry grows: a purge by expired keys only, the next expiry by the depth of a tree.
//!
//! `cargo bench --bench expiry`

use std::hint::black_box;
use std::time::Instant;

use kvstore::{Error, Expiry, Store};

/// Expired keys in each store, whatever its size.
const EXPIRED: u64 = 5000;
const ROUNDS: usize = 5;

fn main() -> Result<(), Error> {
    println!("{EXPIRED} expired keys of n, 16-byte keys, 100-byte values; medians of {ROUNDS} rounds, in ns");
    println!("together: the expired keys are neighbours in key order; scattered: each is in another place");
    println!(
        "{:>9} {:>10} {:>15} {:>15} {:>12}",
        "n", "keys", "purge, per key", "purge nothing", "next_expiry"
    );
    for scattered in [false, true] {
        for n in [10_000u64, 100_000, 1_000_000] {
            measure(n, scattered)?;
        }
    }
    Ok(())
}

fn measure(n: u64, scattered: bool) -> Result<(), Error> {
    let key = if scattered { random_key } else { ordered_key };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let store = Store::open(directory.path().join("a.db"))?;
    let base = 1_000_000;
    store.set_clock(move || base);
    for start in (0..n).step_by(1000) {
        store.transaction(|tx| {
            (start..start + 1000)
                .try_for_each(|i| tx.put_with_expiry(key(i), [7; 100], Expiry::At(base * 10 + i as i64)))
        })?;
    }
    let (mut purge, mut nothing, mut next) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS as u64 {
        let first = round * n / (2 * ROUNDS as u64);
        store.transaction(|tx| {
            (0..EXPIRED)
                .try_for_each(|i| tx.put_with_expiry(key(first + i), [8; 100], Expiry::At(1 + i as i64)))
        })?;
        let start = Instant::now();
        assert_eq!(store.purge_expired()?, EXPIRED);
        purge.push(start.elapsed().as_nanos() / u128::from(EXPIRED));
        let start = Instant::now();
        (0..1000).try_for_each(|_| store.purge_expired().map(|purged| assert_eq!(purged, 0)))?;
        nothing.push(start.elapsed().as_nanos() / 1000);
        let start = Instant::now();
        for _ in 0..1000 {
            black_box(store.default_family().next_expiry()?);
        }
        next.push(start.elapsed().as_nanos() / 1000);
    }
    for all in [&mut purge, &mut nothing, &mut next] {
        all.sort_unstable();
    }
    let median = ROUNDS / 2;
    println!(
        "{n:>9} {:>10} {:>15} {:>15} {:>12}",
        if scattered { "scattered" } else { "together" },
        purge[median],
        nothing[median],
        next[median]
    );
    Ok(())
}

fn ordered_key(n: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[8..].copy_from_slice(&n.to_be_bytes());
    key
}

/// Random-looking keys, each number its own.
fn random_key(n: u64) -> [u8; 16] {
    let mut x = n.wrapping_add(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^= x >> 31;
    let mut key = [0; 16];
    key[..8].copy_from_slice(&x.to_be_bytes());
    key[8..].copy_from_slice(&n.to_be_bytes());
    key
}
