//! Checkpoints and the length of the WAL, also with several handles.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use crate::common::cases::{ENGINES, each_case};
use crate::common::{Scratch, kind, memory, numbered};
use kvstore::{CheckpointMode, Config, ErrorKind, Eviction, JournalMode, SizeLimit, SyncLevel};

fn size(path: &Path) -> u64 {
    fs::metadata(path).unwrap().len()
}

const MODES: [CheckpointMode; 4] =
    [CheckpointMode::Passive, CheckpointMode::Full, CheckpointMode::Restart, CheckpointMode::Truncate];

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
fn read_only_handle_runs_no_checkpoint() {
    let scratch = Scratch::new();
    let writer = scratch.open();
    writer.put("a", "1").unwrap();
    let reader = scratch.open_with(&Config::new().read_only(true));
    for mode in MODES {
        assert_eq!(kind(reader.checkpoint(mode)), ErrorKind::ReadOnly);
    }
    writer.close().unwrap();
    assert_eq!(kind(reader.checkpoint(CheckpointMode::Passive)), ErrorKind::ReadOnly);
    assert_eq!(reader.get("a").unwrap().unwrap(), b"1");
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
    each_case(ENGINES, |sql| {
        let small = Config::small().sql_engine(sql);
        let (plain, limited) = (longest(&small, None), longest(&small, Some(200 * 4096)));
        assert!((32..=128).contains(&plain) && limited <= 60, "{plain}, {limited}");
        assert!(longest(&small.clone().wal_pages(200), None) > 128); // the configured value counts
        let default = longest(&Config::new().sql_engine(sql), None);
        assert!(default > 380, "{default}");
    });
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

#[test]
fn continuous_writers_do_not_prevent_wal_restart() {
    each_case(ENGINES, |sql| {
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
        assert!(most < 2000 * 4120, "the WAL had {} frames", most / 4120);
    });
}

/// A writer with a short WAL has to wait for the checkpoint of another connection.
#[test]
fn writer_with_long_wal_waits_for_other_checkpoint() {
    each_case(ENGINES, |sql| {
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
            assert!(!writer.is_finished(), "it did not wait");
            assert!(fs::metadata(scratch.wal()).unwrap().len() < 40 * 4120);
            let let_go = Instant::now();
            drop(holder.stdin.take());
            holder.wait().unwrap();
            writer.join().unwrap() - let_go
        });
        assert!(written < Duration::from_secs(15), "{written:?}");
        assert!(fs::metadata(scratch.wal()).unwrap().len() < 40 * 4120);
    });
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
    each_case(ENGINES, |sql| {
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
        assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
        reader.rollback().unwrap();
        for n in 0u32..1000 {
            store.put("k", n.to_le_bytes()).unwrap();
        }
        store.put("k", "w").unwrap();
        let frames = store.stats().unwrap().wal_frames;
        assert!(frames < 40, "{frames} frames");
    });
}

#[test]
fn oversized_transactions_do_not_accumulate_in_wal() {
    each_case(ENGINES, |sql| {
        let scratch = Scratch::new();
        let store = scratch.open_with(&Config::new().wal_pages(16).sql_engine(sql));
        let mut most = 0;
        for round in 0..40_u8 {
            store.put("k", vec![round; 250_000]).unwrap(); // some 64 pages, more than twice the 16
            let frames = size(&scratch.wal()) / 4120;
            most = most.max(frames);
        }
        assert!((60..110).contains(&most), "{most} frames");
    });
}

#[test]
fn checkpoint_without_wal_is_not_counted() {
    let scratch = Scratch::new();
    let store = scratch.open_with(&Config::new().journal_mode(JournalMode::Delete));
    store.put("a", "1").unwrap();
    assert_eq!(store.checkpoint(CheckpointMode::Truncate), Ok((0, 0)));
    store.set_size_limit(Some(SizeLimit::new(1 << 20, Eviction::None))).unwrap();
    assert_eq!(store.stats().unwrap().checkpoints, 0);
}
