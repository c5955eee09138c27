//! Statistics, checkpoints, sync, vacuum; callbacks and threads on one handle.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{Scratch, keys, kind, memory, memory_at, numbered, python};
use kvstore::{
    CheckpointMode, Config, ErrorKind, Eviction, Expiry, JournalMode, SizeLimit, Stats, Store, SyncLevel,
};

const MODES: [CheckpointMode; 4] =
    [CheckpointMode::Passive, CheckpointMode::Full, CheckpointMode::Restart, CheckpointMode::Truncate];

fn size(path: &Path) -> u64 {
    fs::metadata(path).unwrap().len()
}

/// Returns the statistics without the two current values.
fn counters(mut stats: Stats) -> Stats {
    (stats.db_pages, stats.wal_frames, stats.size_bytes) = (0, 0, 0);
    stats
}

// ---- statistics ----------------------------------------------------------------------------------

#[test]
fn stats_count_only_successful_calls() {
    let (store, clock) = memory_at(1_000);
    assert_eq!(counters(store.stats().unwrap()), Stats::default());
    store.put("abc", "12345").unwrap();
    store.put_with_expiry("t", "1", Expiry::At(2_000)).unwrap();
    assert!(!store.put_if_absent("abc", "1", Expiry::Never).unwrap());
    assert!(store.put_if_absent("new", [1; 2_000], Expiry::Never).unwrap());
    store.get("abc").unwrap();
    store.get_with_ttl("abc").unwrap();
    store.get("missing").unwrap();
    store.exists("abc").unwrap();
    store.delete("new").unwrap();
    store.delete("missing").unwrap();
    drop((store.iter(), store.prefix("a")));
    let stats = store.stats().unwrap();
    assert_eq!((stats.puts, stats.gets, stats.deletes, stats.iterations), (3, 2, 1, 2));
    assert_eq!((stats.bytes_written, stats.bytes_read), (8 + 2 + 2_003, 10));
    assert_eq!((stats.errors, stats.ttl_expired, stats.ttl_purged, stats.misses), (0, 0, 0, 1));
    assert!(stats.db_pages >= 4);
    clock.set(2_000);
    assert_eq!(store.get("t").unwrap(), None);
    assert_eq!(store.stats().unwrap().ttl_expired, 1);
    assert_eq!(store.get("t").unwrap(), None);
    assert_eq!(store.stats().unwrap().ttl_expired, 1);
}

#[test]
fn misses_count_lookups_without_live_key_only() {
    let (store, clock) = memory_at(1_000);
    for key in ["a", "b", "c", "d", "e"] {
        store.put_with_expiry(key, "1", Expiry::At(2_000)).unwrap();
    }
    clock.set(2_000);
    store.put("live", "1").unwrap();
    let misses = || store.stats().unwrap().misses;
    assert_eq!(store.get("a").unwrap(), None);
    assert_eq!(store.get("a").unwrap(), None);
    assert_eq!(misses(), 2);
    assert_eq!(store.get_with_ttl("b").unwrap(), None);
    assert!(!store.exists("c").unwrap());
    assert_eq!(store.get_and_set_expiry("d", Expiry::At(9_000)).unwrap(), None);
    assert_eq!(misses(), 5);
    store.get_many(["none", "live", "e"]).unwrap();
    assert_eq!(misses(), 7);
    // These calls change no such counter: they find something, fail, or do not read a value.
    store.get("live").unwrap();
    store.exists("live").unwrap();
    store.get_and_set_expiry("live", Expiry::At(9_000)).unwrap();
    assert_eq!(kind(store.get("")), ErrorKind::Error);
    store.ttl("none").unwrap();
    store.expiry("none").unwrap();
    store.delete("none").unwrap();
    store.put_if_absent("new", "1", Expiry::Never).unwrap();
    store.compare_and_delete("none", "1").unwrap();
    assert!(store.iter().count() > 0);
    assert_eq!(misses(), 7);
    store.reset_stats().unwrap();
    assert_eq!(misses(), 0);
}

#[test]
fn lookups_of_expired_keys_are_counted() {
    let (store, clock) = memory_at(1_000);
    for key in ["a", "b", "c", "d"] {
        store.put_with_expiry(key, "1", Expiry::At(2_000)).unwrap();
    }
    clock.set(2_000);
    store.begin_read().unwrap();
    store.get("a").unwrap();
    store.get_with_ttl("a").unwrap();
    store.exists("b").unwrap();
    store.ttl("c").unwrap();
    store.ttl("c").unwrap();
    store.commit().unwrap();
    let stats = store.stats().unwrap();
    assert_eq!((stats.ttl_expired, stats.ttl_purged, stats.gets), (5, 0, 0));
    assert_eq!(store.purge_expired().unwrap(), 4);
    let stats = store.stats().unwrap();
    assert_eq!((stats.ttl_expired, stats.ttl_purged, stats.deletes), (5, 4, 0));
}

#[test]
fn errors_count_failed_calls_but_not_missing_keys() {
    let store = memory();
    assert!(store.put("", "1").is_err());
    assert!(store.get("").is_err());
    assert!(store.commit().is_err());
    assert!(store.create_family("__x").is_err());
    assert!(store.drop_family("default").is_err());
    assert_eq!(store.stats().unwrap().errors, 5);
    store.get("missing").unwrap();
    store.delete("missing").unwrap();
    assert_eq!(store.stats().unwrap().errors, 5);
    assert_eq!(store.stats().unwrap().puts, 0);
}

#[test]
fn commits_are_counted_by_transaction() {
    let scratch = Scratch::new();
    let store = scratch.open();
    let commits = || store.stats().unwrap().wal_commits;
    store.put("a", "1").unwrap();
    store.put("b", "1").unwrap();
    assert_eq!(commits(), 2);
    store.transaction(|tx| (0..10).try_for_each(|n| tx.put(numbered(n), "1"))).unwrap();
    assert_eq!(commits(), 3);
    store.begin_write().unwrap();
    store.put("c", "1").unwrap();
    store.rollback().unwrap();
    store.begin_read().unwrap();
    store.commit().unwrap();
    assert!(store.put("", "1").is_err());
    assert_eq!(commits(), 3);
}

#[test]
fn reset_zeroes_counters_and_keeps_live_figures() {
    let scratch = Scratch::new();
    let store = scratch.open();
    store.put("a", vec![1; 100_000]).unwrap();
    store.get("a").unwrap();
    store.checkpoint(CheckpointMode::Passive).unwrap();
    let before = store.stats().unwrap();
    assert_eq!(before.checkpoints, 1);
    store.reset_stats().unwrap();
    let after = store.stats().unwrap();
    assert_eq!(after.db_pages, before.db_pages);
    assert_eq!(counters(after), Stats::default());
    let pages = python(&scratch.path(), "print(*con.execute('pragma page_count').fetchone())");
    assert_eq!(after.db_pages.to_string(), pages);
    assert!(after.db_pages > 25);
    let free = python(&scratch.path(), "print(*con.execute('pragma freelist_count').fetchone())");
    assert_eq!(after.size_bytes, (after.db_pages - free.parse::<u64>().unwrap()) * 4096);
}

// ---- checkpoints ---------------------------------------------------------------------------------

#[test]
fn every_checkpoint_mode_writes_whole_wal_if_unblocked() {
    for mode in MODES {
        let scratch = Scratch::new();
        let store = scratch.open();
        let (_other, before) = (scratch.open(), size(&scratch.path()));
        store.put("a", vec![1; 100_000]).unwrap();
        assert!(store.stats().unwrap().wal_frames > 24);
        assert_eq!(size(&scratch.path()), before);
        let (log, done) = store.checkpoint(mode).unwrap();
        assert_eq!(log, done, "{mode:?}");
        assert!(if mode == CheckpointMode::Truncate { log == 0 } else { log > 24 }, "{mode:?} {log}");
        assert!(size(&scratch.path()) > before + 100_000);
        assert_eq!(store.stats().unwrap().wal_frames, 0);
        assert_eq!(store.get("a").unwrap(), Some(vec![1; 100_000]));
    }
}

#[test]
fn truncating_checkpoint_empties_wal_even_after_reads() {
    let scratch = Scratch::new();
    let (store, other) = (scratch.open(), scratch.open());
    for n in 0..20 {
        store.put(numbered(n), vec![1; 5_000]).unwrap();
    }
    for handle in [&store, &other] {
        handle.get(numbered(1)).unwrap();
        handle.exists(numbered(2)).unwrap();
        assert_eq!(handle.iter().count(), 20);
    }
    assert!(size(&scratch.wal()) > 0);
    store.checkpoint(CheckpointMode::Truncate).unwrap();
    assert_eq!(size(&scratch.wal()), 0);
    other.put("a", "1").unwrap();
    other.get("a").unwrap();
    store.get("a").unwrap();
    other.checkpoint(CheckpointMode::Truncate).unwrap();
    assert_eq!(size(&scratch.wal()), 0);
}

#[test]
fn checkpoint_in_transaction_is_busy_and_keeps_transaction() {
    let scratch = Scratch::new();
    let store = scratch.open();
    store.begin_write().unwrap();
    store.put("a", "1").unwrap();
    for mode in MODES {
        assert_eq!(kind(store.checkpoint(mode)), ErrorKind::Busy);
    }
    store.rollback().unwrap();
    assert_eq!(store.count().unwrap(), 0);
    store.begin_read().unwrap();
    assert_eq!(kind(store.checkpoint(CheckpointMode::Passive)), ErrorKind::Busy);
    store.commit().unwrap();
    store.checkpoint(CheckpointMode::Passive).unwrap();
}

#[test]
fn every_checkpoint_mode_respects_snapshot_of_other_handle() {
    let scratch = Scratch::new();
    let (store, reader) = (scratch.open(), scratch.open());
    store.put("a", "1").unwrap();
    reader.begin_read().unwrap();
    store.put("a", "2").unwrap();
    let (log, done) = store.checkpoint(CheckpointMode::Passive).unwrap();
    assert!(done < log, "{done} of {log}");
    for mode in [CheckpointMode::Full, CheckpointMode::Restart, CheckpointMode::Truncate] {
        assert_eq!(kind(store.checkpoint(mode)), ErrorKind::Busy, "{mode:?}");
    }
    assert_eq!(reader.get("a").unwrap().as_deref(), Some(&b"1"[..]));
    reader.commit().unwrap();
    let (log, done) = store.checkpoint(CheckpointMode::Full).unwrap();
    assert_eq!(log, done);
}

#[test]
fn checkpoint_without_wal_does_nothing() {
    let scratch = Scratch::new();
    let delete = scratch.open_with(&Config::new().journal_mode(JournalMode::Delete));
    for store in [&delete, &memory()] {
        store.put("a", "1").unwrap();
        for mode in MODES {
            assert_eq!(store.checkpoint(mode).unwrap(), (0, 0));
        }
    }
}

#[test]
fn wal_is_bounded_by_default() {
    let scratch = Scratch::new();
    let (store, _other) = (scratch.open(), scratch.open());
    let mut largest = 0;
    for round in 0..150_u8 {
        for n in 0..100 {
            store.put(numbered(n), vec![round; 4_000]).unwrap(); // 60 MB in all
        }
        largest = largest.max(size(&scratch.wal()));
    }
    assert!(largest < 2 * 4_000 * 4_096, "the WAL grew to {largest} bytes");
    assert!(size(&scratch.path()) < 4_000_000);
    assert!(store.stats().unwrap().checkpoints >= 2);
    store.integrity_check().unwrap();
}

#[test]
fn wal_shrinks_after_blocking_reader_ends() {
    let scratch = Scratch::new();
    let (store, reader) = (scratch.open(), scratch.open());
    store.put("a", "1").unwrap();
    reader.begin_read().unwrap();
    let overwrite = || (0..2_000).for_each(|n| store.put(numbered(n % 10), vec![n as u8; 20_000]).unwrap());
    overwrite();
    assert!(size(&scratch.wal()) > 30_000_000);
    assert_eq!(reader.count().unwrap(), 1);
    reader.commit().unwrap();
    overwrite();
    assert!(size(&scratch.wal()) < 2 * 4_000 * 4_096, "{} bytes", size(&scratch.wal()));
}

#[cfg(target_os = "linux")]
#[test]
fn growing_wal_is_backfilled_without_checkpoint() {
    let scratch = Scratch::new();
    let store = scratch.open_with(&Config::new().wal_pages(2_000).sync(SyncLevel::Normal));
    let overwrite = |from: usize| {
        for n in from..from + 100 {
            store.put(numbered(n), [7; 3_000]).unwrap();
        }
    };
    overwrite(0);
    store.checkpoint(CheckpointMode::Truncate).unwrap();
    let (before, checkpoints) = (fs::read(scratch.path()).unwrap(), store.stats().unwrap().checkpoints);
    for n in 1.. {
        overwrite(n * 100);
        if fs::read(scratch.path()).unwrap() != before {
            break;
        }
        // The kernel does the syncs asynchronously.
        std::thread::sleep(Duration::from_millis(20));
        assert!(store.stats().unwrap().wal_frames < 1_500, "a checkpoint was due before");
    }
    assert_eq!(store.stats().unwrap().checkpoints, checkpoints);
}

/// After a crash the shared memory of SQLite looks as if a checkpoint were in progress.
#[test]
fn store_of_killed_process_is_checkpointed_normally() {
    for (config, most) in [
        (Config::new().checkpoint_every(10), 30),
        (Config::new().wal_pages(40), 80),
        (Config::new().wal_pages(40).sql_engine(true), 80),
    ] {
        let (scratch, killed) = (Scratch::new(), Scratch::new());
        let store = scratch.open();
        (0..3).for_each(|n| store.put(numbered(n), "1").unwrap());
        // The files that a killed process leaves, without its memory.
        std::fs::copy(scratch.path(), killed.path()).unwrap();
        std::fs::copy(scratch.wal(), killed.wal()).unwrap();
        let store = killed.open_with(&config);
        assert_eq!(store.count().unwrap(), 3);
        let mut longest = 0;
        for n in 0..400 {
            store.put(numbered(n % 10), n.to_be_bytes()).unwrap();
            longest = longest.max(store.stats().unwrap().wal_frames);
        }
        assert!(longest <= most, "{longest} frames");
        let checkpoints = store.stats().unwrap().checkpoints;
        assert!(checkpoints >= 3, "{checkpoints} checkpoints, at most {longest} frames");
    }
}

#[test]
fn small_config_bounds_wal_and_size_limit_shortens_it() {
    let longest = |config: &Config, limit: Option<u64>| {
        let scratch = Scratch::new();
        let store = scratch.open_with(config);
        store.set_size_limit(limit.map(|bytes| SizeLimit::new(bytes, Eviction::Soonest))).unwrap();
        let frames = (0..400).map(|n| {
            store.put(numbered(n % 50), vec![n as u8; 2000]).unwrap();
            store.stats().unwrap().wal_frames
        });
        frames.max().unwrap()
    };
    for sql in [false, true] {
        let small = Config::small().sql_engine(sql);
        let (plain, limited) = (longest(&small, None), longest(&small, Some(200 * 4096)));
        assert!((32..=128).contains(&plain) && limited <= 60, "{plain}, {limited}");
        assert!(longest(&small.clone().wal_pages(200), None) > 128); // the configured value counts
        let default = longest(&Config::new().sql_engine(sql), None);
        assert!(default > 380, "{default}");
    }
}

#[test]
fn configured_number_of_commits_triggers_checkpoint() {
    let scratch = Scratch::new();
    let store = scratch.open_with(&Config::new().checkpoint_every(5));
    let base = store.stats().unwrap().checkpoints;
    for commits in 1..=17_u64 {
        store.put("a", commits.to_be_bytes()).unwrap();
        let stats = store.stats().unwrap();
        assert_eq!(stats.checkpoints - base, commits / 5, "after {commits} commits");
        assert_eq!(stats.wal_frames == 0, commits % 5 == 0, "after {commits} commits");
    }
    store.begin_write().unwrap();
    for n in 0..100 {
        store.put(numbered(n), "1").unwrap();
    }
    store.commit().unwrap();
    assert_eq!(store.stats().unwrap().checkpoints - base, 3);
}

// ---- sync, vacuum --------------------------------------------------------------------------------

#[test]
fn sync_does_not_commit_open_transaction() {
    for mode in [JournalMode::Wal, JournalMode::Delete] {
        for level in [SyncLevel::Normal, SyncLevel::Full, SyncLevel::Off] {
            let scratch = Scratch::new();
            let config = Config::new().journal_mode(mode).sync(level);
            let store = scratch.open_with(&config);
            store.put("before", "1").unwrap();
            store.sync().unwrap();
            store.begin_write().unwrap();
            store.put("inside", "1").unwrap();
            store.sync().unwrap();
            assert_eq!(keys(scratch.open_with(&config).iter()), [b"before"]);
            store.rollback().unwrap();
            assert_eq!(keys(store.iter()), [b"before"], "{mode:?} {level:?}");
            store.begin_read().unwrap();
            store.sync().unwrap();
            store.commit().unwrap();
            store.sync().unwrap();
            store.integrity_check().unwrap();
        }
    }
}

#[test]
fn incremental_vacuum_frees_space_of_deleted_entries() {
    let scratch = Scratch::new();
    let store = scratch.open();
    store.put("kept", "1").unwrap();
    for n in 0..200 {
        store.put(numbered(n), vec![1; 20_000]).unwrap();
    }
    store.checkpoint(CheckpointMode::Truncate).unwrap();
    let full = size(&scratch.path());
    assert!(full > 4_000_000);
    for n in 0..200 {
        store.delete(numbered(n)).unwrap();
    }
    let pages = || store.stats().unwrap().db_pages;
    let before = pages();
    store.incremental_vacuum(Some(10)).unwrap();
    assert_eq!(pages(), before - 10);
    store.incremental_vacuum(None).unwrap();
    assert!(pages() < 20, "{} pages", pages());
    store.checkpoint(CheckpointMode::Truncate).unwrap();
    assert!(size(&scratch.path()) < full / 50);
    store.integrity_check().unwrap();
    assert_eq!(keys(store.iter()), [b"kept"]);
    store.incremental_vacuum(None).unwrap();
}

#[test]
fn incremental_vacuum_of_zero_pages_frees_none() {
    let store = memory();
    store.put("a", vec![1; 500_000]).unwrap();
    store.delete("a").unwrap();
    let before = store.stats().unwrap().db_pages;
    store.incremental_vacuum(Some(0)).unwrap();
    assert_eq!(store.stats().unwrap().db_pages, before);
}

#[test]
fn incremental_vacuum_is_part_of_transaction() {
    let store = memory();
    store.put("a", vec![1; 500_000]).unwrap();
    store.delete("a").unwrap();
    let before = store.stats().unwrap().db_pages;
    store.begin_write().unwrap();
    store.incremental_vacuum(None).unwrap();
    assert!(store.stats().unwrap().db_pages < before);
    store.rollback().unwrap();
    assert_eq!(store.stats().unwrap().db_pages, before);
    store.integrity_check().unwrap();
}

// ---- callbacks and threads -----------------------------------------------------------------------

#[test]
fn callback_using_own_store_gets_misuse_without_deadlock() {
    let store = memory();
    let family = store.create_family("f").unwrap();
    store.put("a", "1").unwrap();
    let other = memory();
    let kinds = store
        .get_with("a", |_, _| {
            other.put("another store", "is fine").unwrap();
            [
                kind(store.get("a")),
                kind(store.put("b", "1")),
                kind(family.count()),
                kind(store.begin_write()),
                kind(store.iter().next().unwrap()),
                kind(store.drop_family("f")),
                kind(store.close()),
            ]
        })
        .unwrap()
        .unwrap();
    assert!(kinds.iter().all(|kind| *kind == ErrorKind::Misuse), "{kinds:?}");
    assert_eq!(keys(store.iter()), [b"a"]);
    store.close().unwrap();
}

#[test]
fn clock_using_own_store_gets_misuse_without_deadlock() {
    let store = Arc::new(memory());
    store.put_with_expiry("a", "1", Expiry::At(i64::MAX)).unwrap();
    let answers = Arc::new(Mutex::new(Vec::new()));
    let (inner, told) = (Arc::downgrade(&store), Arc::clone(&answers));
    store.set_clock(move || {
        let store = inner.upgrade().unwrap();
        told.lock().unwrap().push(store.count().map_err(|e| e.kind()));
        1_000
    });
    assert!(store.exists("a").unwrap());
    assert_eq!(store.iter().count(), 1);
    let answers = answers.lock().unwrap();
    assert!(answers.contains(&Err(ErrorKind::Misuse)), "{answers:?}");
}

#[test]
fn threads_share_one_handle() {
    let scratch = Scratch::new();
    let store = scratch.open();
    let family = store.create_family("f").unwrap();
    thread::scope(|scope| {
        for thread in 0..4_usize {
            let (store, family) = (&store, family.clone());
            scope.spawn(move || {
                for n in 0..250 {
                    let key = numbered(thread * 1_000 + n);
                    store.put(&key, &key).unwrap();
                    family.put_with_ttl(&key, vec![thread as u8; 1_500], Duration::from_secs(1000)).unwrap();
                    assert_eq!(store.get(&key).unwrap().as_ref(), Some(&key));
                    if n % 50 == 0 {
                        assert!(keys(family.iter()).is_sorted());
                        family.purge_expired().unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(store.count().unwrap(), 1_000);
    assert_eq!(family.count().unwrap(), 1_000);
    store.integrity_check().unwrap();
}

#[test]
fn close_during_calls_of_threads_gives_them_misuse() {
    let store = memory();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..3_usize)
            .map(|thread| {
                let store = &store;
                scope.spawn(move || {
                    (0..).find_map(|n| store.put(numbered(thread * 1_000_000 + n), "1").err()).unwrap().kind()
                })
            })
            .collect();
        while store.stats().unwrap().puts < 100 {
            thread::yield_now();
        }
        store.close().unwrap();
        for worker in workers {
            assert_eq!(worker.join().unwrap(), ErrorKind::Misuse);
        }
    });
}

#[test]
fn handles_are_send_and_sync() {
    fn shared<T: Send + Sync>() {}
    fn sent<T: Send>() {}
    shared::<Store>();
    shared::<kvstore::Family>();
    sent::<kvstore::Cursor>();
    sent::<kvstore::Iter>();
}

#[test]
fn continuous_writers_do_not_prevent_wal_restart() {
    for sql in [false, true] {
        let scratch = Scratch::new();
        let config = Config::new()
            .wal_pages(16)
            .sync(SyncLevel::Normal)
            .sql_engine(sql)
            .busy_timeout(Duration::from_secs(20));
        let stores: Vec<_> = (0..3).map(|_| scratch.open_with(&config)).collect();
        let value = vec![b'v'; 20_000];
        let until = Instant::now() + Duration::from_secs(2);
        let most = thread::scope(|scope| {
            for (n, store) in stores.iter().enumerate() {
                let value = &value;
                scope.spawn(move || {
                    for at in 0u32.. {
                        if Instant::now() > until {
                            break;
                        }
                        store.put(format!("{n} {}", at % 100), value).unwrap();
                    }
                });
            }
            let mut most = 0;
            while Instant::now() < until {
                most = most.max(fs::metadata(scratch.wal()).map_or(0, |wal| wal.len()));
                thread::sleep(Duration::from_millis(1));
            }
            most
        });
        // Each commit has 6 to 10 pages. On a busy machine, a writer is sometimes interrupted at
        // the worst moment.
        assert!(most < 2000 * 4120, "sql: {sql}: the WAL had {} frames", most / 4120);
    }
}

/// A writer with a short WAL has to wait for the checkpoint of another connection.
#[test]
fn writer_with_long_wal_waits_for_other_checkpoint() {
    for sql in [false, true] {
        let scratch = Scratch::new();
        let config = Config::new().wal_pages(16).sql_engine(sql).busy_timeout(Duration::from_secs(20));
        let store = scratch.open_with(&config);
        store.put("k", "v").unwrap();
        // A checkpoint holds this lock of the `-shm` file: WAL_CKPT_LOCK, wal.c.
        let mut holder = Command::new("python3")
            .args(["-c", HOLD_THE_LOCK_OF_CHECKPOINTS])
            .arg(scratch.shm())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "held\n");
        let written = thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for n in 0..200 {
                    store.put("k", vec![b'v'; n]).unwrap();
                }
                Instant::now()
            });
            thread::sleep(Duration::from_millis(300));
            assert!(!writer.is_finished(), "sql: {sql}: it did not wait");
            assert!(fs::metadata(scratch.wal()).unwrap().len() < 40 * 4120);
            let let_go = Instant::now();
            drop(holder.stdin.take());
            holder.wait().unwrap();
            writer.join().unwrap() - let_go
        });
        assert!(written < Duration::from_secs(15), "sql: {sql}: {written:?}");
        assert!(fs::metadata(scratch.wal()).unwrap().len() < 40 * 4120);
    }
}

const HOLD_THE_LOCK_OF_CHECKPOINTS: &str = "
import fcntl, os, struct, sys
shm = os.open(sys.argv[1], os.O_RDWR)
fcntl.fcntl(shm, fcntl.F_SETLK, struct.pack('hhqqi', fcntl.F_WRLCK, 0, 121, 1, 0))
print('held', flush=True)
sys.stdin.read()
";

/// While a reader keeps its snapshot, checkpoints are tried less often the longer the WAL is.
#[test]
fn blocked_checkpoints_are_retried_rarely() {
    for sql in [false, true] {
        let scratch = Scratch::new();
        let config = Config::new().wal_pages(16).sql_engine(sql);
        let store = scratch.open_with(&config);
        store.put("k", "v").unwrap();
        let reader = scratch.open_with(&config);
        reader.begin_read().unwrap();
        reader.get("k").unwrap();
        let begun = Instant::now();
        for n in 0u32..2000 {
            store.put("k", n.to_le_bytes()).unwrap();
        }
        // Waiting for the reader after every 4 frames would take 100 ms each time, in vain.
        assert!(begun.elapsed() < Duration::from_secs(15), "sql: {sql}: {:?}", begun.elapsed());
        reader.rollback().unwrap();
        for n in 0u32..1000 {
            store.put("k", n.to_le_bytes()).unwrap();
        }
        store.put("k", "w").unwrap();
        let frames = store.stats().unwrap().wal_frames;
        assert!(frames < 40, "sql: {sql}: {frames} frames");
    }
}

#[test]
fn oversized_transactions_do_not_accumulate_in_wal() {
    for sql in [false, true] {
        let scratch = Scratch::new();
        let store = scratch.open_with(&Config::new().wal_pages(16).sql_engine(sql));
        let mut most = 0;
        for round in 0..40_u8 {
            store.put("k", vec![round; 250_000]).unwrap(); // some 64 pages, more than twice the 16
            let frames = size(&scratch.wal()) / 4120;
            most = most.max(frames);
        }
        assert!((60..110).contains(&most), "sql: {sql}: {most} frames");
    }
}
