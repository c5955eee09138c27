//! Concurrent writers: the very next read sees what they have committed.

use std::env;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::cases::{ENGINES, each_case};
use kvstore::{CheckpointMode, Config, ErrorKind, Expiry, JournalMode, Store, SyncLevel, Ttl};

use super::{
    LATER, MODES, MODULE, Random, is_sound, kinds_of_handles, opened, patient, text, value_of, wal_size,
};
use crate::common::other::Other;
use crate::common::{Scratch, keys, kind, numbered};

// ---- other writers -------------------------------------------------------------------------------

#[test]
fn concurrent_write_without_timeout_is_busy_and_reads_work() {
    for (name, config) in kinds_of_handles() {
        let scratch = Scratch::new();
        let config = config.busy_timeout(Duration::ZERO);
        let (store, other) = (scratch.open_with(&config), scratch.open());
        store.put("a", "1").unwrap();
        for round in 0..20 {
            assert!(store.exists("a").unwrap()); // a snapshot is held
            other.begin_write().unwrap();
            other.put("a", round.to_string()).unwrap();
            assert_eq!(kind(store.put("b", "1")), ErrorKind::Busy, "{name}");
            assert_eq!(kind(store.begin_write()), ErrorKind::Busy, "{name}");
            assert_eq!(kind(store.create_family("f")), ErrorKind::Busy, "{name}");
            assert_ne!(value_of(&store, "a"), round.to_string(), "{name}");
            other.commit().unwrap();
            // The snapshot is stale, but no other handle is writing: nothing may be refused.
            store.put("b", round.to_string()).unwrap();
            assert_eq!(value_of(&store, "a"), round.to_string(), "{name}");
            other.put("a", "between").unwrap();
            store.begin_write().unwrap();
            assert_eq!(value_of(&store, "a"), "between", "{name}");
            store.commit().unwrap();
        }
        is_sound(&scratch);
    }
}

#[test]
fn write_waits_for_busy_timeout_or_end_of_other_writer() {
    for (name, config) in kinds_of_handles() {
        let scratch = Scratch::new();
        let wait = Duration::from_millis(150);
        let (store, other) = (scratch.open_with(&config.clone().busy_timeout(wait)), scratch.open());
        let willing = scratch.open_with(&config.busy_timeout(Duration::from_secs(60)));
        store.put("a", "1").unwrap();
        other.begin_write().unwrap();
        assert!(store.exists("a").unwrap() && willing.exists("a").unwrap());
        let started = Instant::now();
        assert_eq!(kind(store.put("a", "2")), ErrorKind::Busy, "{name}");
        assert!(started.elapsed() >= wait, "{name}");
        thread::scope(|scope| {
            let waiting = scope.spawn(|| willing.put("a", "3"));
            other.put("a", "2").unwrap();
            other.commit().unwrap();
            waiting.join().unwrap().unwrap();
        });
        assert_eq!(value_of(&store, "a"), "3", "{name}");
    }
}

#[test]
fn read_in_delete_mode_waits_for_busy_timeout_once() {
    each_case(ENGINES, |sql_engine| {
        let scratch = Scratch::new();
        let wait = Duration::from_millis(400);
        let mode = Config::new().journal_mode(JournalMode::Delete).sql_engine(sql_engine);
        let store = scratch.open_with(&mode.busy_timeout(wait));
        store.put("a", "1").unwrap();
        let mut python = Command::new("python3");
        python.arg("-c").arg(
            "import sqlite3, sys
con = sqlite3.connect(sys.argv[1], isolation_level=None)
con.execute('begin exclusive'); print('> locked', flush=True); sys.stdin.readline()
con.execute('commit'); print('> free', flush=True); sys.stdin.readline()",
        );
        python.arg(scratch.path());
        let mut other = Other::spawn(python);
        other.expect("locked");
        for read in [|store: &Store| store.get("a").map(drop), |store: &Store| store.count().map(drop)] {
            let started = Instant::now();
            assert_eq!(kind(read(&store)), ErrorKind::Busy);
            let waited = started.elapsed();
            assert!(waited >= wait, "sql {sql_engine}: only {waited:?}");
            assert!(waited < wait * 9 / 5, "sql {sql_engine}: waited twice, {waited:?}");
        }
        assert_eq!(other.ask(""), "free");
        assert!(store.exists("a").unwrap());
        other.finish();
    });
}

#[test]
fn increments_of_handles_and_processes_add_up() {
    let scratch = Scratch::new();
    let (first, second) = (scratch.open_with(&patient()), scratch.open_with(&patient().hold_reads(false)));
    let mut others = ["patient", "patient sql"].map(|how| opened(&scratch.path(), how));
    others.iter_mut().for_each(|other| other.tell("increment 300 2"));
    thread::scope(|scope| {
        for store in [&first, &first, &second] {
            scope.spawn(|| {
                for n in 0..300 {
                    store.increment("n", 1, Expiry::Never).unwrap();
                    if n % 50 == 0 {
                        let _ = store.checkpoint(CheckpointMode::Passive); // two at once: one is busy
                    }
                }
            });
        }
    });
    others.iter_mut().for_each(|other| other.expect("ok"));
    assert_eq!((value_of(&first, "n"), value_of(&second, "n")), ("2100".into(), "2100".into()));
    others.into_iter().for_each(Other::finish);
    is_sound(&scratch);
}

// ---- freshness -----------------------------------------------------------------------------------

/// Asserts that "a" has this value, or that there are `count` keys. Each round uses a different
/// kind of read.
#[track_caller]
fn a_read_sees(store: &Store, value: &str, count: usize, round: usize) {
    let value = value.as_bytes();
    match round % 9 {
        0 => assert_eq!(store.get("a").unwrap().as_deref(), Some(value)),
        1 => assert_eq!(store.count().unwrap(), count as u64),
        2 => assert_eq!(store.iter().next().unwrap().unwrap().1, value),
        3 => assert_eq!(store.get_many(["a", "zz"]).unwrap(), [Some(value.to_vec()), None]),
        4 => assert_eq!(store.get_with("a", |v, _| v == value).unwrap(), Some(true)),
        5 => assert_eq!(store.get_with_ttl("a").unwrap(), Some((value.to_vec(), Ttl::None))),
        6 => assert_eq!(keys(store.iter().rev()).len(), count),
        7 => assert!(store.exists(numbered(count - 2)).unwrap()),
        _ => assert_eq!(store.compare_and_swap("a", value, value, Expiry::Never), Ok(true)),
    }
    assert_eq!(store.get("a").unwrap().as_deref(), Some(value));
    assert!(!store.exists(numbered(count - 1)).unwrap());
}

#[test]
fn next_read_sees_commit_of_other_process() {
    for (_, config) in kinds_of_handles() {
        let scratch = Scratch::new();
        let store = scratch.open_with(&config);
        for how in ["default", "sql", "loose"] {
            store.clear().unwrap();
            let mut other = opened(&scratch.path(), how);
            for round in 0..350usize {
                other.run(&format!("put a {round}"));
                assert_eq!(value_of(&store, "a"), round.to_string());
                other.run(&format!("fill {round} {} 10", round + 1));
                if round % 9 == 0 {
                    // Busy is permitted, because this process may hold a snapshot that is not the
                    // newest.
                    let done = other.ask(&format!("checkpoint {}", round / 9 % 4));
                    assert!(done == "ok" || done.starts_with("error Busy"), "{done}");
                }
                a_read_sees(&store, &round.to_string(), round + 2, round);
                if round % 5 == 0 {
                    store.put("a", "mine").unwrap();
                    assert_eq!(other.ask("get a"), "mine");
                }
            }
            other.finish();
        }
        is_sound(&scratch);
    }
}

#[test]
fn held_snapshot_notices_wal_reset_by_other_process() {
    for (name, config) in kinds_of_handles() {
        let scratch = Scratch::new();
        let store = scratch.open_with(&config);
        let mut other = opened(&scratch.path(), "patient");
        let mut resets = 0;
        for round in 0..120 {
            other.run(&format!("put a {round}"));
            assert_eq!(value_of(&store, "a"), round.to_string(), "{name}");
            let before = wal_size(&scratch);
            if round % 3 == 0 {
                // So that the WAL can start over: the other process cannot ask this one to release
                // its snapshot.
                store.checkpoint(CheckpointMode::Passive).unwrap();
                other.run("checkpoint 3");
                resets += u32::from(wal_size(&scratch) < before);
                // Identical frames as the last time, except for the salt.
                other.run("put a same");
                assert_eq!(value_of(&store, "a"), "same", "{name}");
            }
        }
        assert!(resets >= 30, "{resets}");
        other.finish();
        is_sound(&scratch);
    }
}

#[test]
fn reader_sees_whole_commits_of_killed_writer() {
    for (name, config) in kinds_of_handles() {
        let scratch = Scratch::new();
        let store = scratch.open_with(&config);
        let mut random = Random(5);
        for round in 0..6 {
            let program = Command::new(env::current_exe().unwrap());
            let mut writer = Other::launch(program, MODULE, &scratch.path(), "pairs small patient");
            let mut acknowledged: u64 = 0;
            for _ in 0..5 + random.below(20) {
                acknowledged = writer.hear().unwrap().parse().unwrap();
                let a: u64 = value_of(&store, "a").parse().unwrap();
                assert!(a >= acknowledged, "{name}: {a} after {acknowledged}");
                let both = store.get_many(["a", "b"]).unwrap();
                let [Some(a), Some(b)] = &both[..] else { panic!("half a commit") };
                assert_eq!(format!("{:0>900}", text(a)), text(b), "{name}");
            }
            if let Some(last) = writer.kill().last() {
                acknowledged = last.parse().unwrap();
            }
            if round % 2 == 0 {
                // Another process recovers the WAL, if there is anything to recover.
                let mut third = opened(&scratch.path(), "default");
                assert!(third.ask("get a").parse::<u64>().unwrap() >= acknowledged);
                third.finish();
            }
            let a: u64 = value_of(&store, "a").parse().unwrap();
            assert!((acknowledged..=acknowledged + 1).contains(&a), "{name}: {a} of {acknowledged}");
            store.put("mine", a.to_string()).unwrap();
            store.integrity_check().unwrap();
        }
        is_sound(&scratch);
    }
}

/// Stops the other threads, also if this one panics.
struct Finish<'a>(&'a AtomicBool);

impl Drop for Finish<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn all_handles_and_threads_see_commit_in_next_read() {
    let scratch = Scratch::new();
    // A reader that finds a half-written header in the wal-index takes the writer's lock for a
    // moment.
    let writer = scratch.open_with(&Config::new().busy_timeout(Duration::from_secs(30)));
    writer.put("a", "0").unwrap();
    let readers = kinds_of_handles().map(|(_, config)| scratch.open_with(&config));
    let (committed, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let number = |store: &Store| value_of(store, "a").parse::<u64>().unwrap();
    thread::scope(|scope| {
        let _finish = Finish(&done);
        for reader in readers.iter().chain(&readers) {
            scope.spawn(|| {
                let mut last = 0;
                while !done.load(Ordering::SeqCst) {
                    let before = committed.load(Ordering::SeqCst);
                    let found = number(reader);
                    assert!(found >= before && found >= last, "{found} after {before} and {last}");
                    last = found;
                }
            });
        }
        for n in 1..=1_200 {
            writer.put("a", n.to_string()).unwrap();
            committed.store(n, Ordering::SeqCst);
            if n % 200 == 0 {
                let _ = writer.checkpoint(MODES[(n / 200) as usize % 4]);
            }
        }
        done.store(true, Ordering::SeqCst);
    });
    // One thread that alternates between the handles.
    for n in 0..900 {
        let (from, to) = (&readers[n % 3], &readers[(n + 1) % 3]);
        from.put("a", n.to_string()).unwrap();
        assert_eq!((number(to), number(&writer)), (n as u64, n as u64));
    }
    is_sound(&scratch);
}

// ---- threads -------------------------------------------------------------------------------------

#[test]
fn mixed_calls_of_threads_and_handles_keep_store_intact() {
    let scratch = Scratch::new();
    let config = patient().sync(SyncLevel::Off);
    let shared = scratch.open_with(&config);
    let own: Vec<Store> = (0..4).map(|n| scratch.open_with(&config.clone().sql_engine(n == 3))).collect();
    let committed = AtomicU64::new(0);
    let handles = std::iter::repeat_n(&shared, 8).chain(&own);
    thread::scope(|scope| {
        for (who, store) in handles.enumerate() {
            let committed = &committed;
            scope.spawn(move || {
                let mut random = Random(who as u64 + 1);
                for step in 0..150 {
                    let key = numbered(random.below(60) as usize);
                    match random.below(12) {
                        0 => drop(store.delete(&key).unwrap()),
                        1 => store
                            .put_with_expiry(&key, vec![1; 6_000], Expiry::At(kvstore::now_ms() + 5))
                            .unwrap(),
                        2 => store.put(&key, vec![step; 300]).unwrap(),
                        3 => assert!(store.iter().all(|entry| entry.is_ok())),
                        4 => drop(store.purge_expired().unwrap()),
                        5 => drop(store.checkpoint(random.of(&MODES[..1]))),
                        6 => drop(store.get_many([&key, &numbered(1)]).unwrap()),
                        7 => {
                            let mut batch = store.batch();
                            batch.put(store, &key, "1", Expiry::At(LATER)).unwrap();
                            batch.delete(store, numbered(3)).unwrap();
                            batch.commit().unwrap();
                        }
                        8 => {
                            let name = format!("own {who}");
                            store.get_or_create_family(&name).unwrap().put(&key, "1").unwrap();
                            store.drop_family(&name).unwrap();
                        }
                        _ => {
                            store.increment("n", 1, Expiry::Never).unwrap();
                            committed.fetch_add(1, Ordering::SeqCst);
                        }
                    }
                    let _ = (store.get(&key).unwrap(), store.exists("n").unwrap(), store.count().unwrap());
                }
            });
        }
    });
    for store in own.iter().chain([&shared]) {
        assert_eq!(value_of(store, "n"), committed.load(Ordering::SeqCst).to_string());
    }
    assert!(shared.family_names().unwrap().is_empty());
    shared.checkpoint(CheckpointMode::Truncate).unwrap();
    assert_eq!(wal_size(&scratch), 0);
    is_sound(&scratch);
}
