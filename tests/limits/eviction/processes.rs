//! Several processes write to one bounded store, and some are killed.

use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use kvstore::{CheckpointMode, Config, ErrorKind, Eviction, Expiry, SizeLimit, Store};

use crate::common::{Random, Scratch, numbered, other};

const LIMIT: u64 = 512 << 10;
const WRITER: &str = "KVSTORE_BOUNDED_WRITER";

/// A process of its own that writes until it is killed.
fn writer(path: &Path, number: usize) -> Child {
    other::child(module_path!())
        .env(WRITER, path)
        .env("KVSTORE_BOUNDED_NUMBER", number.to_string())
        .spawn()
        .unwrap()
}

#[test]
#[ignore = "no test, but the process that is killed in the one below"]
fn child() {
    let Some(path) = std::env::var_os(WRITER) else { return };
    let number: u64 = std::env::var("KVSTORE_BOUNDED_NUMBER").unwrap().parse().unwrap();
    let config = Config::new().busy_timeout(Duration::from_secs(20)).sql_engine(number % 3 == 2);
    let store = Store::open_with(path, &config).unwrap();
    let family = store.get_or_create_family(&format!("of {number}")).unwrap();
    let mut random = Random(number * 77 + u64::from(std::process::id()));
    loop {
        let key = numbered(random.below(5000) as usize);
        let value = vec![number as u8; random.below(700) as usize];
        let expiry = Expiry::At(kvstore::now_ms() + 60_000 + random.below(60_000) as i64);
        if random.below(10) > 0 {
            family.put_with_expiry(&key, &value, expiry).unwrap();
            continue;
        }
        store
            .transaction(|tx| {
                for n in 0..20 {
                    tx.put_with_expiry([&key, &[n][..]].concat(), &value, expiry)?;
                }
                family.put_with_expiry(&key, &value, expiry)?;
                assert!(family.exists(&key)?, "what a write has put does not go for it");
                Ok::<(), kvstore::Error>(())
            })
            .unwrap();
    }
}

#[test]
fn limit_holds_while_processes_write_and_are_killed() {
    for eviction in [Eviction::Soonest, Eviction::Oldest, Eviction::LeastUsed] {
        let scratch = Scratch::new();
        let store = scratch.open_with(&Config::new().busy_timeout(Duration::from_secs(20)));
        store.set_size_limit(Some(SizeLimit::new(LIMIT, eviction))).unwrap();
        let mut writers: Vec<_> = (0..3).map(|n| writer(&scratch.path(), n)).collect();
        let mut random = Random(3);
        let begun = Instant::now();
        let mut kills = 0;
        while kills < 12 {
            // Waits until keys had to be evicted.
            let mut at_least = 100;
            let mut size = 0;
            while at_least > 0 || size < LIMIT * 2 / 5 {
                let file = std::fs::metadata(scratch.path()).unwrap().len();
                size = store.stats().unwrap().size_bytes;
                assert!(file <= LIMIT && size <= LIMIT, "{size} bytes in a file of {file}");
                assert!(begun.elapsed() < Duration::from_secs(100), "no process writes");
                at_least = i32::max(at_least - 1, 0);
            }
            let at = random.below(3) as usize;
            writers[at].kill().unwrap();
            writers[at].wait().unwrap();
            kills += 1;
            writers[at] = writer(&scratch.path(), at);
            // A process that does not know the new limit yet obeys it with its next write.
            let other = if kills % 2 == 0 {
                Some(SizeLimit::new(LIMIT, eviction))
            } else {
                Some(SizeLimit::new(LIMIT / 2, eviction))
            };
            store.set_size_limit(other).unwrap();
            assert!(store.stats().unwrap().size_bytes <= other.unwrap().max_bytes);
        }
        for writer in &mut writers {
            assert!(writer.try_wait().unwrap().is_none(), "a writer has failed");
            writer.kill().unwrap();
            writer.wait().unwrap();
        }
        store.integrity_check().unwrap();
        store.put("one more", "value").unwrap();
        store.checkpoint(CheckpointMode::Truncate).unwrap();
        assert!(std::fs::metadata(scratch.path()).unwrap().len() <= LIMIT);
        assert!(store.family_names().unwrap().len() == 3);
        // The remaining content can still be used.
        store.set_size_limit(Some(SizeLimit::new(LIMIT, Eviction::None))).unwrap();
        assert_eq!(store.put("large", vec![0; 600_000]).unwrap_err().kind(), ErrorKind::Full);
    }
}
