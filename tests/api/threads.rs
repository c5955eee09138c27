//! Callbacks and threads on one handle.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{Scratch, keys, kind, memory, numbered};
use kvstore::{Config, ErrorKind, Expiry, Store};

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
fn close_does_not_wait_for_calls_that_have_not_begun() {
    const TIMEOUT: Duration = Duration::from_millis(400);
    let scratch = Scratch::new();
    let other = scratch.open();
    let store = scratch.open_with(&Config::new().busy_timeout(TIMEOUT));
    other.begin_write().unwrap();
    other.put("a", "1").unwrap();
    thread::scope(|scope| {
        for n in 0..16 {
            let store = &store;
            scope.spawn(move || {
                let kind = kind(store.put(format!("{n}"), "1"));
                assert!([ErrorKind::Busy, ErrorKind::Misuse].contains(&kind), "{kind:?}");
            });
        }
        thread::sleep(TIMEOUT / 4); // one thread waits for the other handle, the rest for this thread
        let begin = Instant::now();
        store.close().unwrap();
        assert!(begin.elapsed() < TIMEOUT * 4, "{:?}", begin.elapsed());
    });
    other.rollback().unwrap();
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
