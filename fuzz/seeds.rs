//! Creates the seeds (`fuzz/run seeds`): small stores with every feature for `open_bytes`, and
//! random bytes for the targets that draw their choices from the input.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kvstore::{CheckpointMode, Config, Expiry, JournalMode, Store, row_key};

#[path = "fuzz_targets/open_bytes/container.rs"]
mod container;

use container::{Beside, NOW_MS};

/// Every sort of row, table and setting, in few pages.
fn fill(store: &Store, large: usize, families: usize) -> kvstore::Result<()> {
    store.set_clock(|| NOW_MS - 1000);
    let tracked = store.create_family("Tracked")?;
    tracked.set_write_tracking(true)?;
    tracked.set_default_ttl(Some(Duration::from_secs(600)))?;
    for family in [&tracked, store.default_family()].into_iter().take(families) {
        family.put("plain", "value")?;
        family.put("number", "41")?;
        family.put_with_expiry("later", "1", Expiry::At(NOW_MS + 5_000))?;
        family.put_with_expiry("dead", "2", Expiry::At(NOW_MS - 500))?;
        family.put("large", vec![b'x'; large])?;
        family.put_with_expiry("large later", vec![b'y'; large + 7], Expiry::At(NOW_MS + 9_000))?;
        for n in 0..6_u8 {
            family.put_with_expiry(
                row_key(b"p\0", &[n])?,
                [n; 20],
                Expiry::At(NOW_MS + i64::from(n) * 500 - 1_000),
            )?;
        }
        family.put(vec![b'k'; large / 2], "a long key")?;
    }
    store.create_family("empty").map(drop)
}

/// Returns the bytes of the store's file and of its WAL or journal, as they are on disk now.
fn files(path: &Path, beside: Beside) -> (Vec<u8>, Vec<u8>) {
    (fs::read(path).unwrap(), fs::read(beside.path(path)).unwrap_or_default())
}

/// Returns pseudo-random bytes of a linear congruential generator (Knuth's MMIX), always the same
/// for a seed.
fn by_chance(seed: u64) -> Vec<u8> {
    let next = |state: &u64| {
        Some(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407))
    };
    std::iter::successors(Some(seed), next).skip(1).map(|state| (state >> 56) as u8).take(600).collect()
}

fn main() {
    let seeds = PathBuf::from(std::env::args().nth(1).expect("the folder of the seeds"));
    for target in ["ops_vs_model", "ffi_calls"] {
        fs::create_dir_all(seeds.join(target)).unwrap();
        for n in 0..8_u64 {
            fs::write(seeds.join(target).join(format!("chance-{n}")), by_chance(n + 1)).unwrap();
        }
    }
    // Seeds of `recover` that change pages of a sound store. It also uses the seeds of
    // `open_bytes`.
    fs::create_dir_all(seeds.join("recover")).unwrap();
    for (kind, name) in [(0, "zeroed"), (2, "copied"), (3, "changed")] {
        fs::write(seeds.join("recover").join(name), [16, kind, 4, 7, 9]).unwrap();
    }
    let target = seeds.join("open_bytes");
    fs::create_dir_all(&target).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let save = |name: &str, flags: u8, (main, beside): (Vec<u8>, Vec<u8>)| {
        let seed = container::pack(flags, &main, &beside);
        println!("{name}: {} bytes", seed.len());
        fs::write(target.join(name), seed).unwrap();
    };

    for (page_size, large) in [(512, 1300), (4096, 5000)] {
        let config = Config::new().page_size(page_size).mmap_size(0);
        let path = dir.path().join(format!("{page_size}"));
        let store = Store::open_with(&path, &config).unwrap();
        fill(&store, large, if page_size == 512 { 2 } else { 1 }).unwrap(); // keeps the seed small
        store.checkpoint(CheckpointMode::Truncate).unwrap();
        let whole = files(&path, Beside::Wal);
        if page_size == 512 {
            save("checkpointed-512", 0, whole.clone());
            // One store has many rows, so that it has interior pages, and free pages.
            store.set_clock(|| NOW_MS - 1000);
            store
                .transaction(|tx| -> kvstore::Result<()> {
                    for n in 0..120_u32 {
                        let expiry =
                            if n % 3 == 0 { Expiry::At(NOW_MS + i64::from(n) - 20) } else { Expiry::Never };
                        tx.put_with_expiry(format!("row {n:04}"), [b'v'; 30], expiry)?;
                    }
                    Ok(())
                })
                .unwrap();
            store.delete("large").unwrap();
            store.checkpoint(CheckpointMode::Truncate).unwrap();
            save("deep-512", 0, files(&path, Beside::Wal));
        } else {
            save("checkpointed-4096", 0, whole);
        }
        if page_size == 512 {
            // Two commits that are only in the WAL.
            store.put("after", "the checkpoint").unwrap();
            store.delete("plain").unwrap();
            save("wal-512", container::REPAIR_WAL, files(&path, Beside::Wal));
        }
        store.close().unwrap();
    }

    // A hot journal: a transaction that a crash interrupted after it had written pages to the file.
    let path = dir.path().join("journal");
    let config = Config::new().page_size(512).cache_pages(1).mmap_size(0).journal_mode(JournalMode::Delete);
    let store = Store::open_with(&path, &config).unwrap();
    fill(&store, 600, 2).unwrap();
    store.begin_write().unwrap();
    for n in 0..40 {
        store.put(format!("new {n}"), [b'n'; 40]).unwrap();
    }
    let torn = files(&path, Beside::Journal);
    assert!(!torn.1.is_empty());
    save("journal-512", container::JOURNAL, torn);
    store.rollback().unwrap();
    store.close().unwrap();
}
