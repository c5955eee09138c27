//! `Config::secure_delete`: data that is deleted, overwritten, expired, dropped or evicted is in no
//! file of the store any more. Each scenario also runs without the setting and must then leave data
//! behind; otherwise the test would prove nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::common::{Random, Scratch, TestClock, maybe_encrypted};
use kvstore::{
    CheckpointMode, Config, Eviction, Expiry, ExpiryCondition, JournalMode, KeyRange, SizeLimit, Store,
    SyncLevel,
};

/// Prefix of the data that must disappear. Nothing else in a store begins with it.
const SENTINEL: &str = "Sentinel";

/// Whether the tests run on encrypted stores, in which nothing is ever readable.
fn is_encrypted() -> bool {
    format!("{:?}", maybe_encrypted(&Config::new())) != format!("{:?}", Config::new())
}

/// Returns the files of the store that contain the bytes, and how often.
fn found(scratch: &Scratch, wanted: &[u8]) -> BTreeMap<String, usize> {
    scratch
        .bytes()
        .into_iter()
        .map(|(name, bytes)| (name, count_of(&bytes, wanted)))
        .filter(|(_, times)| *times > 0)
        .collect()
}

fn count_of(bytes: &[u8], wanted: &[u8]) -> usize {
    positions(bytes, wanted).len()
}

/// Returns the positions of the bytes. (A search in Rust takes minutes in an unoptimised build.)
fn positions(bytes: &[u8], wanted: &[u8]) -> Vec<usize> {
    let (mut all, mut from) = (Vec::new(), 0);
    while let Some(left) = bytes.get(from..) {
        // SAFETY: both pointers are valid for the lengths given.
        let place =
            unsafe { libc::memmem(left.as_ptr().cast(), left.len(), wanted.as_ptr().cast(), wanted.len()) };
        if place.is_null() {
            break;
        }
        let at = place.addr() - bytes.as_ptr().addr();
        all.push(at);
        from = at + 1;
    }
    all
}

/// Both engines, all journal modes, and the smallest, the default and the largest page size.
fn configs() -> Vec<Config> {
    let mut all = Vec::new();
    for page_size in [512, 4096, 65_536] {
        if is_encrypted() && page_size != 4096 {
            continue;
        }
        for mode in [JournalMode::Wal, JournalMode::Delete] {
            for sql in [false, true] {
                // A small cache, so that transactions write pages before they commit.
                let config = Config::new().page_size(page_size).cache_pages(20);
                all.push(config.journal_mode(mode).sql_engine(sql).sync(SyncLevel::Off));
            }
        }
    }
    all
}

/// Runs a scenario in each configuration, without and with the setting. At the end everything that
/// begins with the sentinel is deleted. With the setting it must be in no file; without, it must be
/// in at least one.
#[track_caller]
fn check_erased(story: fn(&Scratch, &Config, &Store)) {
    let mut left = 0;
    for config in configs() {
        for secure in [false, true] {
            let config = config.clone().secure_delete(secure);
            let scratch = Scratch::new();
            let store = scratch.open_with(&config);
            story(&scratch, &config, &store);
            if secure {
                store.checkpoint(CheckpointMode::Truncate).unwrap();
                assert_eq!(found(&scratch, SENTINEL.as_bytes()), BTreeMap::new(), "{config:?}");
                store.integrity_check().unwrap();
            } else {
                left += found(&scratch, SENTINEL.as_bytes()).len();
            }
            store.close().unwrap();
            if secure {
                assert_eq!(found(&scratch, SENTINEL.as_bytes()), BTreeMap::new(), "closed, {config:?}");
            }
        }
    }
    assert!(left > 0 || is_encrypted(), "nothing is left without the setting either");
}

fn key(n: usize) -> String {
    format!("{SENTINEL} key {n:04}")
}

/// Values of three sizes: those of small rows, of rows that fill a page, and of large values.
fn value(n: usize) -> String {
    SENTINEL.repeat([1, 9, 40, 700][n % 4])
}

/// Puts entries that stay, so that their pages stay in use.
fn neighbours(store: &Store, n: usize) {
    store.put(format!("{n:04} neighbour"), "n".repeat(60)).unwrap();
    store.put(format!("{} {n}", SENTINEL.to_lowercase()), "n".repeat(60)).unwrap();
}

#[test]
fn deleted_keys_and_values_are_erased() {
    check_erased(|_, _, store| {
        for n in 0..60 {
            neighbours(store, n);
            store.put(key(n), value(n)).unwrap();
        }
        for n in 0..30 {
            assert!(store.delete(key(n)).unwrap());
        }
        assert_eq!(store.delete_range(&KeyRange::prefix(SENTINEL.as_bytes())).unwrap(), 30);
    });
}

#[test]
fn overwritten_values_are_erased() {
    check_erased(|_, _, store| {
        for n in 0..60 {
            neighbours(store, n);
            store.put(format!("key {n}"), value(n)).unwrap();
        }
        for n in 0..60 {
            store.put(format!("key {n}"), "x".repeat([0, 10, 300, 3000, 9000][n % 5])).unwrap();
        }
    });
}

#[test]
fn purged_keys_are_erased_from_all_tables() {
    check_erased(|_, _, store| {
        let clock = TestClock::at(1_000_000);
        clock.drive(store);
        store.set_write_tracking(true).unwrap();
        for n in 0..60 {
            neighbours(store, n);
            store.put_with_expiry(key(n), value(n), Expiry::At(2_000_000 + n as i64)).unwrap();
        }
        // A new expiry time moves the entries of the indexes.
        for n in 0..30 {
            store.set_expiry(key(n), Expiry::At(1_500_000), ExpiryCondition::Always).unwrap();
        }
        clock.set(3_000_000);
        assert_eq!(store.purge_expired().unwrap(), 60);
    });
}

#[test]
fn dropped_and_cleared_families_are_erased() {
    check_erased(|_, _, store| {
        let kept = store.create_family("kept").unwrap();
        for n in 0..10 {
            store.create_family(&format!("{SENTINEL} family {n}")).unwrap();
        }
        for n in 0..40 {
            let family = store.family(&format!("{SENTINEL} family {}", n % 10)).unwrap();
            family.put_with_ttl(key(n), value(n), Duration::from_secs(1000)).unwrap();
            kept.put(key(n), value(n)).unwrap();
        }
        for n in 0..10 {
            store.drop_family(&format!("{SENTINEL} family {n}")).unwrap();
        }
        kept.clear().unwrap();
    });
}

#[test]
fn evicted_keys_are_erased() {
    check_erased(|_, config, store| {
        let page = if format!("{config:?}").contains("page_size: 65536") { 65_536 } else { 4096 };
        store.set_size_limit(Some(SizeLimit::new(40 * page, Eviction::Oldest))).unwrap();
        for n in 0..60 {
            store.put(key(n), value(n)).unwrap();
        }
        let mut n = 0;
        while store.prefix(SENTINEL).next().is_some() {
            store.put(format!("{n:06} filler"), "f".repeat(900)).unwrap();
            n += 1;
        }
    });
}

#[test]
fn space_freed_by_vacuum_is_erased() {
    check_erased(|_, _, store| {
        for n in 0..60 {
            neighbours(store, n);
            store.put(key(n), value(n)).unwrap();
        }
        store.delete_range(&KeyRange::prefix(SENTINEL.as_bytes())).unwrap();
        store.incremental_vacuum(None).unwrap();
    });
}

#[test]
fn rolled_back_transaction_leaves_no_data() {
    check_erased(|_, _, store| {
        for n in 0..60 {
            neighbours(store, n);
        }
        let rolled_back = store.transaction(|tx| {
            for n in 0..400 {
                tx.put(key(n), value(3)).unwrap();
            }
            Err::<(), _>(tx.get("").unwrap_err())
        });
        assert!(rolled_back.is_err());
    });
}

/// SQLite zeroes what it deletes, but not copies of rows left behind where it rebuilds a page. It
/// rebuilds pages with rows of many lengths, when none of the free places is large enough.
#[test]
fn row_copies_in_unused_page_space_are_erased() {
    for config in configs() {
        let config = config.secure_delete(true);
        let page = if format!("{config:?}").contains("page_size: 65536") { 65_536 } else { 4096 };
        for seed in 1..=3 {
            let scratch = Scratch::new();
            let store = scratch.open_with(&config);
            let mut random = Random(seed * 0x9e37_79b9);
            // Text of each row, which is unique.
            let mut live = BTreeMap::new();
            for _ in 0..60 {
                store
                    .transaction(|tx| {
                        for _ in 0..60 {
                            let key = random.below(300);
                            if random.below(3) == 0 {
                                tx.delete(key.to_string())?;
                                live.remove(&key);
                            } else {
                                let text = format!("{:012x}{SENTINEL}", random.below(1 << 40));
                                let length = random.below(if page > 4096 { 3000 } else { 150 }) as usize;
                                tx.put(key.to_string(), text.repeat(1 + length / text.len()))?;
                                live.insert(key, text);
                            }
                        }
                        Ok::<_, kvstore::Error>(())
                    })
                    .unwrap();
            }
            store.checkpoint(CheckpointMode::Truncate).unwrap();
            store.integrity_check().unwrap();
            let live: BTreeSet<&str> = live.values().map(String::as_str).collect();
            for (name, bytes) in scratch.bytes() {
                for at in positions(&bytes, SENTINEL.as_bytes()) {
                    let text = String::from_utf8_lossy(&bytes[at - 12..at + SENTINEL.len()]).into_owned();
                    // A page of a large value may begin in the middle of a unit, whose digits are
                    // on another page.
                    if text.bytes().take(12).all(|byte| byte.is_ascii_hexdigit()) {
                        assert!(live.contains(&*text), "{text} is left in {name} at {at}, {config:?}");
                    }
                }
            }
        }
    }
}

/// Writes sentinels and deletes them. The WAL contains them afterwards.
fn put_and_delete(store: &Store) {
    for n in 0..30 {
        neighbours(store, n);
        store.put(key(n), value(n)).unwrap();
    }
    assert_eq!(store.delete_range(&KeyRange::prefix(SENTINEL.as_bytes())).unwrap(), 30);
}

fn secure() -> Config {
    Config::new().secure_delete(true)
}

fn nothing() -> BTreeMap<String, usize> {
    BTreeMap::new()
}

#[track_caller]
fn assert_erased(scratch: &Scratch) {
    assert_eq!(found(scratch, SENTINEL.as_bytes()), nothing());
}

/// Asserts that the data is at most in the WAL.
#[track_caller]
fn is_in_the_wal(scratch: &Scratch) {
    let names: Vec<String> = found(scratch, SENTINEL.as_bytes()).into_keys().collect();
    if !is_encrypted() {
        assert_eq!(names, ["store.db-wal"]);
    }
}

#[test]
fn checkpoint_of_any_mode_erases_wal() {
    use CheckpointMode::{Full, Passive, Restart, Truncate};
    for sync in [SyncLevel::Off, SyncLevel::Normal, SyncLevel::Full] {
        for mode in [Passive, Full, Restart, Truncate] {
            let scratch = Scratch::new();
            let store = scratch.open_with(&secure().sync(sync));
            put_and_delete(&store);
            is_in_the_wal(&scratch);
            let (log, done) = store.checkpoint(mode).unwrap();
            assert_eq!(log, done);
            assert_erased(&scratch);
            assert_eq!(std::fs::read(scratch.wal()).unwrap().len(), 0);
            store.put("again", "1").unwrap();
            assert_eq!(store.get("again").unwrap().as_deref(), Some(&b"1"[..]));
        }
    }
}

#[test]
fn automatic_checkpoints_erase_wal() {
    for config in
        [secure().wal_pages(64), secure().checkpoint_every(200), secure().wal_pages(64).sync(SyncLevel::Off)]
    {
        let scratch = Scratch::new();
        let store = scratch.open_with(&config);
        put_and_delete(&store);
        for n in 0..1000 {
            store.put(format!("{n}"), "n".repeat(500)).unwrap();
        }
        assert!(store.stats().unwrap().checkpoints > 0);
        assert_erased(&scratch);
    }
}

#[test]
fn last_close_erases_wal_before_removing_it() {
    for config in [secure(), secure().sql_engine(true), secure().exclusive(true)] {
        let scratch = Scratch::new();
        let store = scratch.open_with(&config);
        put_and_delete(&store);
        // A hard link, through which removed data can be read.
        let kept = scratch.file("kept");
        std::fs::hard_link(scratch.wal(), &kept).unwrap();
        is_in(&scratch, &["kept", "store.db-wal"]);
        store.close().unwrap();
        assert!(!scratch.wal().exists());
        assert_erased(&scratch);
        assert!(std::fs::read(&kept).unwrap().iter().all(|byte| *byte == 0), "{config:?}");
    }
}

#[track_caller]
fn is_in(scratch: &Scratch, names: &[&str]) {
    if !is_encrypted() {
        assert_eq!(found(scratch, SENTINEL.as_bytes()).into_keys().collect::<Vec<_>>(), names);
    }
}

#[test]
fn truncated_file_space_is_overwritten_first() {
    for mode in [JournalMode::Wal, JournalMode::Delete] {
        let scratch = Scratch::new();
        let store = scratch.open_with(&secure().journal_mode(mode));
        // The vacuum moves the large value; the space that it cuts off held it. A hole in a file
        // looks like zeros, so a mapping keeps the file as it was.
        store.put("a", "n".repeat(500_000)).unwrap();
        store.put("b", SENTINEL.repeat(10_000)).unwrap();
        store.checkpoint(CheckpointMode::Truncate).unwrap();
        let before = std::fs::metadata(scratch.path()).unwrap().len();
        store.delete("a").unwrap();
        store.incremental_vacuum(None).unwrap();
        store.checkpoint(CheckpointMode::Truncate).unwrap();
        assert!(std::fs::metadata(scratch.path()).unwrap().len() < before - 400_000);
        assert_eq!(store.get("b").unwrap().map(|value| value.len()), Some(SENTINEL.len() * 10_000));
        store.integrity_check().unwrap();
    }
}

#[test]
fn data_is_erased_at_wal_restart_if_reader_stays() {
    let scratch = Scratch::new();
    let (store, reader) = (scratch.open_with(&secure()), scratch.open_with(&secure()));
    put_and_delete(&store);
    reader
        .snapshot(|_| {
            // The reader uses the newest state, so everything is written back, but it reads from
            // the WAL.
            assert!(store.checkpoint(CheckpointMode::Truncate).is_err());
            is_in_the_wal(&scratch);
            Ok::<_, kvstore::Error>(())
        })
        .unwrap();
    // The next commit starts the WAL over, and is shorter than before.
    store.put("a", "1").unwrap();
    assert_erased(&scratch);
    assert!(std::fs::metadata(scratch.wal()).unwrap().len() > 0);
}

#[test]
fn data_left_by_killed_process_is_erased_by_next_handle() {
    let scratch = Scratch::new();
    let store = scratch.open_with(&secure());
    put_and_delete(&store);
    let died = Scratch::new();
    std::fs::copy(scratch.path(), died.path()).unwrap();
    std::fs::copy(scratch.wal(), died.wal()).unwrap();
    is_in_the_wal(&died);
    for mode in [JournalMode::Wal, JournalMode::Delete] {
        let again = Scratch::new();
        std::fs::copy(died.path(), again.path()).unwrap();
        std::fs::copy(died.wal(), again.wal()).unwrap();
        let kept = again.file("kept");
        std::fs::hard_link(again.wal(), &kept).unwrap();
        let store = again.open_with(&secure().journal_mode(mode));
        assert_eq!(store.count().unwrap(), 60);
        store.close().unwrap();
        assert_erased(&again);
    }
}

#[test]
fn exclusive_store_keeps_empty_journal() {
    let exclusive = Config::new().journal_mode(JournalMode::Delete).exclusive(true);
    for (config, is_left) in [(exclusive.clone(), true), (exclusive.secure_delete(true), false)] {
        let scratch = Scratch::new();
        let store = scratch.open_with(&config);
        put_and_delete(&store);
        assert_eq!(!found(&scratch, SENTINEL.as_bytes()).is_empty(), is_left && !is_encrypted());
        let journal = std::fs::metadata(scratch.file("store.db-journal")).map_or(0, |found| found.len());
        assert_eq!(journal > 0, is_left);
        store.close().unwrap();
    }
}

#[test]
fn backup_contains_no_deleted_data() {
    let scratch = Scratch::new();
    let store = scratch.open_with(&secure());
    put_and_delete(&store);
    store.backup(scratch.file("backup.db"), |_, _| true).unwrap();
    is_in_the_wal(&scratch);
    let backup = Store::open_with(scratch.file("backup.db"), &maybe_encrypted(&secure())).unwrap();
    assert_eq!(backup.count().unwrap(), 60);
    backup.integrity_check().unwrap();
}

#[test]
fn copy_contains_no_deleted_data() {
    let (scratch, copied) = (Scratch::new(), Scratch::new());
    let store = scratch.open();
    put_and_delete(&store);
    store.copy_to(&copied.open_with(&secure()), |_, _| true).unwrap();
    assert_erased(&copied);
}

#[test]
fn memory_and_read_only_stores_accept_secure_delete() {
    let scratch = Scratch::new();
    scratch.open().put("a", "1").unwrap();
    let before = scratch.bytes();
    let store = scratch.open_with(&secure().read_only(true));
    assert_eq!(store.get("a").unwrap().as_deref(), Some(&b"1"[..]));
    store.close().unwrap();
    assert!(scratch.bytes() == before);
    let memory = Store::open_in_memory(&secure()).unwrap();
    put_and_delete(&memory);
    assert_eq!(memory.count().unwrap(), 60);
}

#[cfg(feature = "encryption")]
#[test]
fn secure_delete_continues_after_encrypt_and_decrypt() {
    use kvstore::Secret;
    if is_encrypted() {
        return;
    }
    for mode in [JournalMode::Wal, JournalMode::Delete] {
        let scratch = Scratch::new();
        let store = scratch.open_with(&secure().journal_mode(mode));
        for n in 0..60 {
            store.put(key(n), value(n)).unwrap();
        }
        store.encrypt(&Secret::raw_key(&[7; 32])).unwrap();
        assert_erased(&scratch);
        assert_eq!(store.get(key(59)).unwrap().unwrap(), value(59).into_bytes());
        store.integrity_check().unwrap();
        store.put("more", SENTINEL).unwrap();
        store.decrypt().unwrap();
        store.integrity_check().unwrap();
        is_in(&scratch, &["store.db"]);
        store.delete("more").unwrap();
        assert_eq!(store.delete_range(&KeyRange::prefix(SENTINEL.as_bytes())).unwrap(), 60);
        store.checkpoint(CheckpointMode::Truncate).unwrap();
        assert_erased(&scratch);
    }
}
