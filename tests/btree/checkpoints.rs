//! Checkpoints while other handles and processes use the store, and the length of the WAL.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use kvstore::{CheckpointMode, Config, ErrorKind, Store, SyncLevel};

use super::{MODES, Random, WAL_BOUND, is_sound, kinds_of_handles, opened, patient, wal_size};
use crate::common::{Scratch, kind, memory, numbered};

#[test]
fn truncate_is_complete_from_any_of_ten_used_handles() {
    let scratch = Scratch::new();
    let config = |n: usize| Config::new().sql_engine(n % 5 == 4).hold_reads(!n.is_multiple_of(3));
    let handles: Vec<Store> = (0..10).map(|n| scratch.open_with(&config(n))).collect();
    // Stores that are opened and closed elsewhere in the process make no difference.
    let finished = std::sync::Arc::new(AtomicBool::new(false));
    let elsewhere = thread::spawn({
        let finished = std::sync::Arc::clone(&finished);
        move || {
            while !finished.load(Ordering::SeqCst) {
                drop(memory());
            }
        }
    });
    for (n, handle) in handles.iter().enumerate() {
        for (m, other) in handles.iter().enumerate() {
            other.put(numbered(m), n.to_string()).unwrap(); // the last operation of some handles is a write
            if (n + m) % 2 == 0 {
                assert!(other.exists(numbered(0)).unwrap());
            }
        }
        assert!(wal_size(&scratch) > 0);
        handle.checkpoint(CheckpointMode::Truncate).unwrap();
        assert_eq!(wal_size(&scratch), 0, "handle {n}");
        assert_eq!(handle.stats().unwrap().wal_frames, 0);
    }
    finished.store(true, Ordering::SeqCst);
    elsewhere.join().unwrap();
    is_sound(&scratch);
}

#[test]
fn dropped_store_closes_during_other_checkpoints() {
    let (scratch, elsewhere) = (Scratch::new(), Scratch::new());
    let finished = AtomicBool::new(false);
    let busy = elsewhere.open();
    let mut left_open = 0;
    thread::scope(|scope| {
        scope.spawn(|| {
            while !finished.load(Ordering::SeqCst) {
                busy.checkpoint(CheckpointMode::Passive).unwrap();
            }
        });
        for n in 0..200 {
            let store = scratch.open_with(&Config::new().sync(SyncLevel::Off));
            store.put(numbered(n), "1").unwrap();
            drop(store);
            left_open += u32::from(scratch.wal().exists());
        }
        finished.store(true, Ordering::SeqCst);
    });
    assert_eq!(left_open, 0, "times that the WAL was not removed");
}

#[test]
fn truncate_succeeds_in_timeout_among_continuous_readers() {
    let scratch = Scratch::new();
    let store = scratch.open_with(&Config::new().busy_timeout(Duration::from_secs(5)));
    let readers = kinds_of_handles().map(|(_, config)| scratch.open_with(&config));
    let finished = AtomicBool::new(false);
    let mut failed = None;
    thread::scope(|scope| {
        for (n, reader) in readers.iter().enumerate() {
            let finished = &finished;
            scope.spawn(move || {
                while !finished.load(Ordering::SeqCst) {
                    let _ = (reader.get(numbered(n)).unwrap(), reader.iter().count());
                }
            });
        }
        for round in 0..20 {
            (0..5).for_each(|n| store.put(numbered(n), vec![round; 500]).unwrap());
            let done = store.checkpoint(CheckpointMode::Truncate);
            if done.is_err() || wal_size(&scratch) > 0 {
                failed = Some((round, done));
                break;
            }
        }
        finished.store(true, Ordering::SeqCst);
    });
    assert_eq!(failed, None);
    is_sound(&scratch);
}

#[test]
fn wal_stays_short_with_idle_handles() {
    let scratch = Scratch::new();
    let store = scratch.open_with(&Config::new().sync(SyncLevel::Off));
    let idle: Vec<Store> = (0..5).map(|n| scratch.open_with(&Config::new().sql_engine(n == 4))).collect();
    let mut other = opened(&scratch.path(), "loose");
    other.run("put other 1");
    for (n, handle) in idle.iter().enumerate() {
        handle.put(numbered(n), "idle").unwrap();
        assert!(handle.exists(numbered(0)).unwrap());
    }
    assert_eq!(other.ask("get other"), "1");
    let mut random = Random(3);
    let mut longest = 0;
    let mut put = |handle: &Store, n: usize| {
        handle.put(numbered(random.below(50_000) as usize), [1; 40]).unwrap();
        if n.is_multiple_of(500) {
            longest = longest.max(wal_size(&scratch));
        }
    };
    (0..100_000).for_each(|n| put(&store, n));
    // Alternates between the handles. Each still keeps the lock of its last commit.
    (0..15_000).for_each(|n| put(&idle[n % 2], n));
    assert!(longest <= WAL_BOUND, "{longest}");
    other.finish();
    is_sound(&scratch);
}

#[test]
fn wal_stays_short_with_two_writing_processes() {
    for how in ["default", "loose", "sql"] {
        let scratch = Scratch::new();
        let config = patient().hold_reads(how != "loose").sql_engine(how == "sql").sync(SyncLevel::Off);
        let store = scratch.open_with(&config);
        let mut other = opened(&scratch.path(), &format!("patient {how}"));
        let mut longest = [0; 2];
        for at_once in [0, 1] {
            for round in 0..60usize {
                let from = (round * 7_919) % 5_000 * 100;
                other.tell(&format!("fill {from} {} 200", from + 150));
                if at_once == 0 {
                    other.expect("ok");
                }
                (0..150).for_each(|n| store.put(numbered(n * 3_331 % 500_000 + round), [1; 200]).unwrap());
                if at_once == 1 {
                    other.expect("ok");
                }
                longest[at_once] = longest[at_once].max(wal_size(&scratch));
            }
        }
        println!("{how}: the longest WAL had {longest:?} bytes in turn and at once");
        assert!(longest.iter().all(|size| *size <= WAL_BOUND), "{how}: the WAL had {longest:?} bytes");
        other.finish();
        is_sound(&scratch);
    }
}

#[test]
fn checkpoint_in_transaction_is_busy_despite_timeout() {
    let scratch = Scratch::new();
    let store = scratch.open_with(&Config::new().busy_timeout(Duration::from_secs(1)));
    let started = Instant::now();
    for write in [false, true] {
        crate::common::begin(&store, write).unwrap();
        for mode in MODES {
            assert_eq!(kind(store.checkpoint(mode)), ErrorKind::Busy);
        }
        store.rollback().unwrap();
    }
    assert!(started.elapsed() < Duration::from_secs(4), "it waited for itself");
}
