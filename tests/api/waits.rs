//! The function that ends waits for locks.

use std::cell::Cell;
use std::time::Duration;

use crate::common::{Scratch, fill, kind, numbered, pair_in_delete_mode, shut_out};
use kvstore::{CheckpointMode, Config, ErrorKind, Expiry, Store, set_wait_hook};

thread_local! {
    /// Calls of the hook on this thread until it ends the wait; `None`: it does not.
    static LEFT: Cell<Option<u32>> = const { Cell::new(None) };
}

/// Ends the wait of `f` at call number `calls` of the hook. Returns the number of calls that were
/// left. Other tests of this process use the same hook, without an effect.
fn ending_at(calls: u32, f: impl FnOnce()) -> u32 {
    LEFT.set(Some(calls));
    f();
    LEFT.replace(None).unwrap()
}

fn hook() {
    set_wait_hook(|| match LEFT.get() {
        Some(left) => {
            LEFT.set(Some(left.saturating_sub(1)));
            left <= 1
        }
        None => false,
    });
}

fn patient() -> Config {
    Config::new().busy_timeout(Duration::from_secs(20))
}

#[test]
fn writes_end_their_wait_when_the_hook_says_so() {
    hook();
    let scratch = Scratch::new();
    let (store, writer) = (scratch.open_with(&patient()), scratch.open());
    store.put("k", "1").unwrap();
    writer.begin_write().unwrap();
    writer.put("k", "2").unwrap();
    type Call = fn(&Store) -> kvstore::Result<()>;
    let calls: [Call; 4] = [
        |store| store.put("k", "3"),
        |store| store.begin_write(),
        |store| store.delete("k").map(drop),
        |store| {
            let mut batch = store.batch();
            batch.put(store, "k", "3", Expiry::Never)?;
            batch.commit()
        },
    ];
    for call in calls {
        let left = ending_at(2, || assert_eq!(kind(call(&store)), ErrorKind::Busy));
        assert_eq!(left, 0);
    }
    writer.commit().unwrap();
    assert_eq!(store.get("k").unwrap().as_deref(), Some(&b"2"[..]));
    store.put("k", "4").unwrap();
}

#[test]
fn wait_goes_on_while_the_hook_allows_it() {
    hook();
    let scratch = Scratch::new();
    let store = scratch.open_with(&Config::new().busy_timeout(Duration::from_millis(150)));
    let writer = scratch.open();
    writer.begin_write().unwrap();
    let left = ending_at(1000, || assert_eq!(kind(store.put("k", "1")), ErrorKind::Busy));
    assert!((1..1000).contains(&left), "{left}"); // the busy timeout has ended it
    writer.rollback().unwrap();
    assert_eq!(ending_at(1000, || store.put("k", "1").unwrap()), 1000); // nothing to wait for
}

#[test]
fn reads_and_checkpoint_end_their_wait() {
    hook();
    let scratch = Scratch::new();
    let store = scratch.open_with(&patient());
    store.put("k", "1").unwrap();
    let reader = scratch.open();
    reader.begin_read().unwrap();
    reader.get("k").unwrap();
    store.put("k", "2").unwrap();
    let left = ending_at(2, || assert_eq!(kind(store.checkpoint(CheckpointMode::Truncate)), ErrorKind::Busy));
    assert_eq!(left, 0);
    reader.rollback().unwrap();
    store.checkpoint(CheckpointMode::Truncate).unwrap();

    let config = patient().cache_pages(10);
    let Some((_scratch, store, other)) = pair_in_delete_mode(&config) else { return };
    fill(&store, 100);
    assert_eq!(store.iter().count(), 100);
    shut_out(&other);
    assert_eq!(ending_at(2, || assert_eq!(kind(store.get(numbered(5))), ErrorKind::Busy)), 0);
    assert_eq!(ending_at(2, || assert_eq!(kind(store.iter().next().unwrap()), ErrorKind::Busy)), 0);
    other.rollback().unwrap();
    assert_eq!(store.iter().count(), 100);
}
