//! Callbacks that panic: a visitor, a clock, the progress function of a backup. Only the call in
//! progress fails. It leaves no lock, transaction or file behind, and the handle remains usable.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::common::{self, Scratch, TestClock, kind, numbered, python};
use kvstore::{CheckpointMode, Config, Direction, ErrorKind, Expiry, JournalMode, KeyRange, Store};

/// Runs `f`, which must panic, without printing the panic message.
#[track_caller]
fn panicking<R>(f: impl FnOnce() -> R) {
    let done = catch_unwind(AssertUnwindSafe(f));
    let panic = done.err().expect("the callback should have panicked");
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"of the test"));
}

/// Configurations that differ in how a handle holds locks.
fn configs() -> Vec<Config> {
    let mut configs = Vec::new();
    for mode in [JournalMode::Wal, JournalMode::Delete] {
        for sql_engine in [false, true] {
            configs.push(Config::new().journal_mode(mode).sql_engine(sql_engine));
        }
    }
    configs
}

/// Creates a store with its clock at 1000, live keys, an expired key, and a key whose expiry will
/// be extended.
fn sample(scratch: &Scratch, config: &Config) -> (Store, TestClock) {
    let (store, clock) = (scratch.open_with(config), TestClock::at(500));
    clock.drive(&store);
    store
        .transaction(|tx| {
            (0..100).try_for_each(|n| tx.put(numbered(n), vec![7; 3 + n * 40]))?;
            tx.put_with_expiry("dead", "1", Expiry::At(900))?;
            tx.put_with_expiry("prolonged", "1", Expiry::At(2_000))
        })
        .unwrap();
    clock.set(1_000);
    (store, clock)
}

/// Checks that a call that panicked holds nothing: other handles and this one write and checkpoint
/// at once.
#[track_caller]
fn nothing_is_held(scratch: &Scratch, store: &Store, config: &Config) {
    let program = "con.execute('pragma busy_timeout = 0')
con.execute('begin immediate')
con.execute('commit')
print(con.execute('pragma journal_mode').fetchone()[0])";
    let wal = if common::are_on_a_server() { String::new() } else { python(&scratch.path(), program) };
    let other = scratch.open_with(config);
    other.put("other", "1").unwrap();
    if wal == "wal" {
        let (log, done) = other.checkpoint(CheckpointMode::Truncate).unwrap();
        assert_eq!((log, done), (0, 0));
    }
    drop(other);
    assert_eq!(kind(store.commit()), ErrorKind::Error, "a transaction is open");
    store.put("own", "1").unwrap();
    assert_eq!(store.get("other").unwrap().as_deref(), Some(&b"1"[..]));
    store.integrity_check().unwrap();
}

#[test]
fn panicking_visitor_leaves_no_lock_and_usable_handle() {
    type Call = fn(&Store);
    let calls: [(&str, Call); 6] = [
        ("get_with", |store| drop(store.get_with(numbered(1), |_, _| panic!("of the test")))),
        ("get_with of a large value", |store| {
            drop(store.get_with(numbered(99), |_, _| panic!("of the test")));
        }),
        ("get_many_with", |store| {
            drop(store.get_many_with([numbered(1), numbered(2)], |n, _| {
                if n == 1 {
                    panic!("of the test")
                }
            }));
        }),
        ("get_and_expire_with", |store| {
            let visit = |_: &[u8]| -> kvstore::Result<()> { panic!("of the test") };
            drop(store.get_and_set_expiry_with("prolonged", Expiry::At(3_000), visit));
        }),
        ("backup", |store| {
            let to = std::env::temp_dir().join("kvstore-panic-of-a-backup.db");
            drop(store.backup(to, |_, _| panic!("of the test")));
        }),
        ("copy_to", |store| {
            let to = Store::open_in_memory(&Config::new()).unwrap();
            drop(store.copy_to(&to, |done, _| done == 0 || panic!("of the test")));
        }),
    ];
    for config in configs() {
        for (name, call) in calls {
            let scratch = Scratch::new();
            let (store, _clock) = sample(&scratch, &config);
            panicking(|| call(&store));
            println!("{name}, {config:?}");
            nothing_is_held(&scratch, &store, &config);
            assert_eq!(store.expiry("prolonged").unwrap(), Some(Expiry::At(2_000)));
            assert_eq!(store.get(numbered(1)).unwrap(), Some(vec![7; 43]));
        }
    }
}

#[test]
fn panicking_clock_leaves_no_lock_and_usable_handle() {
    if common::is_of_a_file("no clock is called back there") {
        return;
    }
    type Call = fn(&Store);
    let calls: [(&str, Call); 9] = [
        ("put_ttl", |store| drop(store.put_with_ttl("new", "1", Duration::from_secs(1)))),
        ("put_if_absent", |store| drop(store.put_if_absent("dead", "1", Expiry::Never))),
        ("get", |store| drop(store.get("prolonged"))),
        ("get of an expired key", |store| drop(store.get("dead"))),
        ("delete", |store| drop(store.delete("prolonged"))),
        ("persist", |store| drop(store.persist("prolonged"))),
        ("purge", |store| drop(store.purge_expired())),
        ("count", |store| drop(store.count_live())),
        ("iterate", |store| assert!(store.iter().count() < 1_000)),
    ];
    for config in configs() {
        for (name, call) in calls {
            let scratch = Scratch::new();
            let (store, clock) = sample(&scratch, &config);
            store.set_clock(|| panic!("of the test"));
            panicking(|| call(&store));
            clock.drive(&store);
            println!("{name}, {config:?}");
            nothing_is_held(&scratch, &store, &config);
            assert_eq!(store.get_with_ttl("prolonged").unwrap().unwrap().0, b"1");
            assert_eq!(store.get("dead").unwrap(), None);
        }
    }
}

#[test]
fn panicking_clock_during_read_ahead_keeps_cursor_position() {
    if common::is_of_a_file("no clock is called back there") {
        return;
    }
    for direction in [Direction::Forward, Direction::Reverse] {
        let scratch = Scratch::new();
        let (store, clock) = sample(&scratch, &Config::new());
        store
            .transaction(|tx| {
                (0..100).try_for_each(|n| tx.put_with_expiry(numbered(n), "1", Expiry::At(5_000)))
            })
            .unwrap();
        let mut cursor = store.cursor(KeyRange::prefix(b"key"), direction);
        assert!(cursor.first().unwrap());
        let mut seen = vec![cursor.key().unwrap().to_vec()];
        store.set_clock(|| panic!("of the test"));
        let panicked = loop {
            match catch_unwind(AssertUnwindSafe(|| cursor.next())) {
                Ok(moved) => assert!(moved.unwrap()),
                Err(_) => break true,
            }
            seen.push(cursor.key().unwrap().to_vec());
        };
        clock.drive(&store);
        assert!(panicked);
        while cursor.next().unwrap() {
            seen.push(cursor.key().unwrap().to_vec());
        }
        if direction == Direction::Reverse {
            seen.reverse();
        }
        assert_eq!(seen, (0..100).map(numbered).collect::<Vec<_>>());
    }
}

#[test]
fn panic_in_transactional_write_requires_rollback() {
    for config in configs() {
        let scratch = Scratch::new();
        let (store, clock) = sample(&scratch, &config);
        store.begin_write().unwrap();
        store.put("in it", "1").unwrap();
        panicking(|| {
            let visit = |_: &[u8]| -> kvstore::Result<()> { panic!("of the test") };
            store.get_and_set_expiry_with("prolonged", Expiry::At(3_000), visit)
        });
        assert!(store.put("late", "1").is_err());
        assert!(store.commit().unwrap_err().to_string().contains("panicked"));
        store.rollback().unwrap();
        nothing_is_held(&scratch, &store, &config);
        assert_eq!(store.get("in it").unwrap(), None);
        // A read changes nothing, so what was written before it can be committed.
        store.begin_write().unwrap();
        store.put("in it", "1").unwrap();
        panicking(|| store.get_with(numbered(1), |_, _| panic!("of the test")));
        store.commit().unwrap();
        assert!(store.exists("in it").unwrap());
        // It does not end a snapshot either.
        store.begin_read().unwrap();
        panicking(|| store.get_with(numbered(1), |_, _| panic!("of the test")));
        assert!(store.exists("in it").unwrap());
        store.commit().unwrap();
        // A panic within a transaction of the library makes the library roll it back.
        panicking(|| {
            store.transaction(|tx| -> kvstore::Result<()> {
                tx.put("lost", "1")?;
                tx.get_with(numbered(1), |_, _| panic!("of the test")).map(drop)
            })
        });
        nothing_is_held(&scratch, &store, &config);
        assert!(!store.exists("lost").unwrap());
        drop(clock);
    }
}

#[test]
fn backup_with_panicking_callback_leaves_no_file() {
    for exclusive in [false, true] {
        let scratch = Scratch::new();
        let config = Config::new().exclusive(exclusive);
        let (store, _clock) = sample(&scratch, &config);
        panicking(|| store.backup(scratch.file("copy.db"), |_, _| panic!("of the test")));
        let others: Vec<_> =
            scratch.bytes().into_keys().filter(|name| !name.starts_with("store.db")).collect();
        assert_eq!(others, [""; 0]);
        store.put("own", "1").unwrap();
        assert!(store.get("own").unwrap().is_some());
        store.integrity_check().unwrap();
    }
}

#[test]
fn wal_request_of_other_handle_is_served_after_panic() {
    if common::is_of_a_file("it is about files") {
        return;
    }
    let scratch = Scratch::new();
    let (store, _clock) = sample(&scratch, &Config::new());
    let other = scratch.open();
    panicking(|| {
        store.get_with(numbered(1), |_, _| {
            other.put("while it reads", "1").unwrap();
            // The reader is in a call, and is asked to release its snapshot when the call ends.
            assert_eq!(kind(other.checkpoint(CheckpointMode::Truncate)), ErrorKind::Busy);
            panic!("of the test")
        })
    });
    assert_eq!(other.checkpoint(CheckpointMode::Truncate).unwrap(), (0, 0));
}
