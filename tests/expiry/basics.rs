//! TTLs: expiry is exact in every read, whichever handle has set the TTL; expired keys are removed
//! lazily or by a purge; a live key is never removed.

use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use crate::common::{self, Scratch, TestClock, keys, kind, memory, memory_at, numbered};
use kvstore::{Config, Direction, ErrorKind, Expiry, JournalMode, KeyRange, Store, Ttl};

const MS: Duration = Duration::from_millis(1);

fn left(ms: u64) -> Ttl {
    Ttl::Remaining(Duration::from_millis(ms))
}

/// Returns whether the key is visible; all reads must agree.
fn is_visible(store: &Store, key: &str) -> bool {
    // First the reads that do not remove an expired row.
    let forward = keys(store.iter()).contains(&key.as_bytes().to_vec());
    let reverse = keys(store.iter().rev()).contains(&key.as_bytes().to_vec());
    let prefix = !keys(store.prefix(key)).is_empty();
    let mut cursor = store.cursor(KeyRange::all(), Direction::Forward);
    let sought = cursor.seek(key).unwrap() && cursor.key() == Some(key.as_bytes());
    let got = store.get(key).unwrap().is_some();
    let with_ttl = store.get_with_ttl(key).unwrap().is_some();
    let exists = store.exists(key).unwrap();
    let answers = [forward, reverse, prefix, sought, got, with_ttl, exists];
    assert!(answers.iter().all(|answer| *answer == got), "{answers:?}");
    got
}

// ---- what a TTL means ----------------------------------------------------------------------------

#[test]
fn every_read_hides_key_exactly_at_expiry_time() {
    for value in [&b"small"[..], &[7; 5_000]] {
        let (store, clock) = memory_at(1_000);
        store.put_with_expiry("a", value, Expiry::At(2_000)).unwrap();
        clock.set(1_999);
        assert!(is_visible(&store, "a"));
        clock.set(2_000);
        assert!(!is_visible(&store, "a"));
    }
}

#[test]
fn ttl_counts_from_now_and_rounds_up_to_milliseconds() {
    let (store, clock) = memory_at(1_000);
    store.put_with_ttl("a", "1", Duration::from_micros(4_001)).unwrap();
    assert_eq!(store.ttl("a").unwrap(), Some(left(5)));
    store.put_with_ttl("zero", "1", Duration::ZERO).unwrap();
    assert!(!store.exists("zero").unwrap());
    store.put_with_ttl("max", "1", Duration::MAX).unwrap();
    assert_eq!(store.ttl("max").unwrap(), Some(left((i64::MAX - 1_000).unsigned_abs())));
    clock.set(1_005);
    assert!(!store.exists("a").unwrap());
    if common::is_of_a_file("no server knows a time so far in the future") {
        return;
    }
    clock.set(i64::MAX - 1);
    assert!(store.exists("max").unwrap());
}

#[test]
fn plain_put_clears_the_ttl() {
    let (store, clock) = memory_at(1_000);
    store.put_with_expiry("a", "1", Expiry::At(2_000)).unwrap();
    store.put("a", "2").unwrap();
    assert_eq!(store.get_with_ttl("a").unwrap(), Some((b"2".to_vec(), Ttl::None)));
    clock.set(9_000);
    assert_eq!(store.purge_expired().unwrap(), 0);
    assert!(is_visible(&store, "a"));
    store.integrity_check().unwrap();
}

#[test]
fn zero_or_negative_expiry_is_refused() {
    let (store, clock) = memory_at(1_000);
    store.put_with_expiry("a", "1", Expiry::At(2_000)).unwrap();
    for bad in [0, -1, i64::MIN] {
        assert_eq!(kind(store.put_with_expiry("a", "3", Expiry::At(bad))), ErrorKind::Error);
    }
    clock.set(1_999);
    assert_eq!(store.get("a").unwrap().as_deref(), Some(&b"1"[..]));
}

#[test]
fn past_expiry_is_accepted_and_hides_key_at_once() {
    let (store, _clock) = memory_at(1_000);
    store.put("a", "1").unwrap();
    for past in [1, 999, 1_000] {
        store.put_with_expiry("a", "2", Expiry::At(past)).unwrap();
        assert!(!is_visible(&store, "a"));
        store.put_with_expiry("a", "2", Expiry::At(past)).unwrap();
        assert_eq!(store.purge_expired().unwrap(), 1);
    }
}

#[test]
fn rewriting_key_moves_expiry_forward_and_backward() {
    let (store, clock) = memory_at(1_000);
    store.put_with_expiry("later", "1", Expiry::At(2_000)).unwrap();
    store.put_with_expiry("later", "1", Expiry::At(3_000)).unwrap();
    store.put_with_expiry("sooner", "1", Expiry::At(3_000)).unwrap();
    store.put_with_expiry("sooner", "1", Expiry::At(2_000)).unwrap();
    store.integrity_check().unwrap();
    clock.set(2_500);
    assert!(is_visible(&store, "later"));
    assert!(!is_visible(&store, "sooner"));
}

#[test]
fn ttl_is_none_for_permanent_and_zero_once_for_expired() {
    let (store, clock) = memory_at(1_000);
    store.put("permanent", "1").unwrap();
    store.put_with_expiry("a", "1", Expiry::At(2_000)).unwrap();
    store.put_with_expiry("b", "1", Expiry::At(2_000)).unwrap();
    assert_eq!(store.ttl("permanent").unwrap(), Some(Ttl::None));
    assert_eq!(store.get_with_ttl("permanent").unwrap(), Some((b"1".to_vec(), Ttl::None)));
    assert_eq!(store.ttl("missing").unwrap(), None);
    assert_eq!(store.get_with_ttl("missing").unwrap(), None);
    clock.set(1_999);
    assert_eq!(store.ttl("a").unwrap(), Some(left(1)));
    assert_eq!(store.get_with_ttl("a").unwrap(), Some((b"1".to_vec(), left(1))));
    clock.set(2_000);
    assert_eq!(store.ttl("a").unwrap(), Some(left(0)));
    // The first read has removed the row, but on a server reads remove nothing.
    assert_eq!(store.ttl("a").unwrap(), common::are_on_a_server().then(|| left(0)));
    assert_eq!(store.get_with_ttl("b").unwrap(), None);
}

#[test]
fn system_time_is_accepted_as_expiry() {
    let store = memory();
    store.put_with_expiry("a", "1", Expiry::from(SystemTime::now() + Duration::from_secs(100))).unwrap();
    store.put_with_expiry("b", "1", Expiry::from(SystemTime::now() - Duration::from_secs(100))).unwrap();
    assert_eq!(keys(store.iter()), [b"a"]);
}

#[test]
fn store_clock_never_runs_backwards() {
    if common::is_of_a_file("a server has the clock") {
        return;
    }
    let (store, clock) = memory_at(1_000);
    store.put_with_expiry("a", "1", Expiry::At(2_000)).unwrap();
    store.put_with_expiry("b", "1", Expiry::At(2_000)).unwrap();
    clock.set(2_000);
    assert!(!store.exists("a").unwrap());
    clock.set(500);
    assert!(!is_visible(&store, "b"));
    store.put_with_ttl("c", "1", MS).unwrap();
    assert_eq!(store.ttl("c").unwrap(), Some(left(1)));
    clock.set(-5);
    assert_eq!(store.ttl("c").unwrap(), Some(left(1)));
}

#[test]
fn store_can_return_to_system_clock() {
    if common::is_of_a_file("a server has the clock") {
        return;
    }
    let (store, _clock) = memory_at(1_000);
    store.put_with_expiry("a", "1", Expiry::At(2_000)).unwrap();
    assert!(store.exists("a").unwrap());
    assert!(kvstore::now_ms() > 1_600_000_000_000);
    store.use_system_clock();
    assert!(!store.exists("a").unwrap());
}

#[test]
fn key_expires_by_wall_clock() {
    let store = memory();
    let put_at = Instant::now();
    store.put_with_ttl("a", "1", 60 * MS).unwrap();
    let mut seen_alive = 0;
    while store.exists("a").unwrap() {
        seen_alive += 1;
        assert!(put_at.elapsed() < Duration::from_secs(20), "the key never expired");
        sleep(MS);
    }
    // One millisecond for the rounding between the two clocks.
    assert!(put_at.elapsed() >= 59 * MS && seen_alive > 0);
    assert_eq!(store.get("a").unwrap(), None);
}

#[test]
fn first_ttl_set_by_other_handle_applies_at_once() {
    let scratch = Scratch::new();
    for mode in [JournalMode::Wal, JournalMode::Delete] {
        let clock = TestClock::at(1_000);
        let config = Config::new().journal_mode(mode);
        let (one, two) = (scratch.open_with(&config), scratch.open_with(&config));
        clock.drive(&one);
        clock.drive(&two);
        one.put("a", "1").unwrap();
        assert!(is_visible(&one, "a"));
        two.put_with_expiry("a", "1", Expiry::At(2_000)).unwrap();
        assert_eq!(one.ttl("a").unwrap(), Some(left(1_000)));
        clock.set(2_000);
        assert!(!is_visible(&one, "a"));
        assert!(!is_visible(&two, "a"));
        one.clear().unwrap();
    }
}

#[test]
fn families_have_independent_ttls() {
    let (store, clock) = memory_at(1_000);
    let (one, two) = (store.create_family("one").unwrap(), store.create_family("two").unwrap());
    for (family, at) in [(&one, 2_000), (&two, 3_000)] {
        family.put_with_expiry("a", "1", Expiry::At(at)).unwrap();
        family.put_with_expiry("b", "1", Expiry::At(at)).unwrap();
    }
    clock.set(2_500);
    assert!(keys(one.iter()).is_empty());
    assert_eq!(keys(two.iter()).len(), 2);
    assert_eq!(two.purge_expired().unwrap(), 0);
    assert_eq!(store.purge_expired().unwrap(), 0);
    assert_eq!(one.count().unwrap(), 2);
    assert_eq!(one.purge_expired().unwrap(), 2);
}

#[test]
fn ttl_survives_reopening() {
    let scratch = Scratch::new();
    let clock = TestClock::at(1_000);
    let store = scratch.open_at(&clock);
    store.put_with_expiry("a", "1", Expiry::At(2_000)).unwrap();
    store.close().unwrap();
    let store = scratch.open_at(&clock);
    assert_eq!(store.ttl("a").unwrap(), Some(left(1_000)));
    clock.set(2_000);
    assert!(!is_visible(&store, "a"));
}

// ---- lazy removal --------------------------------------------------------------------------------

/// A store in a file, with keys that have just expired.
fn with_expired_keys(scratch: &Scratch) -> (Store, TestClock) {
    let clock = TestClock::at(1_000);
    let store = scratch.open_at(&clock);
    for key in ["get", "get_ttl", "exists", "ttl", "delete", "iter"] {
        store.put_with_expiry(key, key, Expiry::At(2_000)).unwrap();
    }
    clock.set(2_000);
    (store, clock)
}

fn read_all(store: &Store) {
    assert_eq!(store.get("get").unwrap(), None);
    assert_eq!(store.get_with_ttl("get_ttl").unwrap(), None);
    assert!(!store.exists("exists").unwrap());
    assert_eq!(store.ttl("ttl").unwrap(), Some(left(0)));
    assert_eq!(store.iter().count(), 0);
}

#[test]
fn lookups_remove_expired_rows_and_iterators_do_not() {
    if common::is_of_a_file("on a server a read removes nothing") {
        return;
    }
    let scratch = Scratch::new();
    let (store, _clock) = with_expired_keys(&scratch);
    assert_eq!(store.iter().count(), 0);
    assert_eq!(store.count().unwrap(), 6);
    read_all(&store);
    assert_eq!(store.count().unwrap(), 2);
    assert!(!store.delete("delete").unwrap());
    assert_eq!(store.count().unwrap(), 1);
    assert_eq!(store.stats().unwrap().ttl_purged, 0);
    store.integrity_check().unwrap();
}

#[test]
fn lazy_removal_skips_silently_while_other_handle_writes() {
    if common::is_of_a_file("on a server a read removes nothing") {
        return;
    }
    let scratch = Scratch::new();
    // A lazy removal does not wait for the lock either, whatever the configured timeout.
    drop(with_expired_keys(&scratch));
    let store = scratch.open_with(&Config::new().busy_timeout(Duration::from_secs(3_600)));
    TestClock::at(2_000).drive(&store);
    let other = scratch.open();
    other.begin_write().unwrap();
    read_all(&store);
    assert_eq!((store.count().unwrap(), other.count().unwrap()), (2, 6));
    assert_eq!(store.stats().unwrap().errors, 0);
    assert_eq!(store.ttl("ttl").unwrap(), None, "it is pending removal");
    other.rollback().unwrap();
    assert_eq!((store.count().unwrap(), other.count().unwrap()), (2, 6));
    store.put("next", "1").unwrap();
    assert_eq!((store.count().unwrap(), other.count().unwrap()), (3, 3));
}

#[test]
fn lazy_removal_does_not_wait_for_a_reader_in_delete_mode() {
    if common::is_of_a_file("on a server a read removes nothing") {
        return;
    }
    let scratch = Scratch::new();
    let wait = Duration::from_secs(4);
    let config = Config::new().journal_mode(JournalMode::Delete);
    let (store, reader) = (scratch.open_with(&config.clone().busy_timeout(wait)), scratch.open_with(&config));
    store.put_with_expiry("a", "1", Expiry::At(1)).unwrap();
    reader.begin_read().unwrap();
    let asked_at = Instant::now();
    assert_eq!(store.get("a").unwrap(), None);
    assert_eq!(store.count().unwrap(), 0);
    store.close().unwrap(); // which would remove it
    assert!(asked_at.elapsed() < wait, "a get, count or close waited for the busy timeout");
    reader.commit().unwrap();
    assert_eq!(reader.count().unwrap(), 1);
    assert_eq!(reader.get("a").unwrap(), None);
    reader.put("b", "1").unwrap();
    assert_eq!(reader.count().unwrap(), 1);
}

#[test]
fn read_transaction_removes_no_expired_rows() {
    let scratch = Scratch::new();
    let (store, _clock) = with_expired_keys(&scratch);
    store.begin_read().unwrap();
    read_all(&store);
    read_all(&store);
    assert_eq!(store.count().unwrap(), 6);
    store.commit().unwrap();
    assert_eq!(store.count().unwrap(), 6);
}

#[test]
fn lookup_of_expired_row_keeps_transaction_open() {
    let scratch = Scratch::new();
    let (store, _clock) = with_expired_keys(&scratch);
    store.begin_write().unwrap();
    store.put("mine", "1").unwrap();
    assert_eq!(store.get("get").unwrap(), None);
    assert!(!store.exists("exists").unwrap());
    assert_eq!(store.ttl("ttl").unwrap(), Some(left(0)));
    store.rollback().unwrap();
    assert!(!store.exists("mine").unwrap());
}

// ---- purge ---------------------------------------------------------------------------------------

#[test]
fn purge_removes_and_counts_all_expired_keys() {
    let (store, clock) = memory_at(1_000);
    for n in 0..1_000 {
        store.put_with_expiry(numbered(n), "1", Expiry::At(2_000 + n as i64)).unwrap();
    }
    store.put("permanent", "1").unwrap();
    for (now, dead) in
        [(1_999, 0), (2_000, 1), (2_255, 255), (2_511, 256), (2_768, 257), (2_998, 230), (9_000, 1)]
    {
        clock.set(now);
        assert_eq!(store.purge_expired().unwrap(), dead, "at {now}");
        store.integrity_check().unwrap();
    }
    assert_eq!(store.stats().unwrap().ttl_purged, 1_000);
    assert_eq!(keys(store.iter()), [b"permanent"]);
    assert_eq!(store.count().unwrap(), 1);
}

#[test]
fn purge_uses_transactions_of_at_most_wal_pages_keys() {
    let (store, clock) =
        (Store::open_in_memory(&Config::new().wal_pages(300)).unwrap(), TestClock::at(1_000));
    clock.drive(&store);
    store.begin_write().unwrap();
    for n in 0..1_000 {
        store.put_with_expiry(numbered(n), "1", Expiry::At(2_000)).unwrap();
    }
    store.commit().unwrap();
    clock.set(2_000);
    let before = store.stats().unwrap().wal_commits;
    assert_eq!(store.purge_expired().unwrap(), 1_000);
    let commits = store.stats().unwrap().wal_commits - before;
    assert!((4..100).contains(&commits), "{commits}"); // more on a slow machine
}

#[test]
fn purge_inside_a_write_transaction_is_part_of_it() {
    let (store, clock) = memory_at(1_000);
    for n in 0..600 {
        store.put_with_expiry(numbered(n), "1", Expiry::At(2_000)).unwrap();
    }
    clock.set(2_000);
    store.begin_write().unwrap();
    assert_eq!(store.purge_expired().unwrap(), 600);
    assert_eq!(store.count().unwrap(), 0);
    store.rollback().unwrap();
    assert_eq!(store.count().unwrap(), 600);
    store.begin_write().unwrap();
    assert_eq!(store.purge_expired().unwrap(), 600);
    store.commit().unwrap();
    assert_eq!(store.count().unwrap(), 0);
    store.integrity_check().unwrap();
}

#[test]
fn purge_keeps_key_refreshed_or_persisted_before_expiry() {
    let (store, clock) = memory_at(1_000);
    for key in ["dead", "refreshed", "permanent", "replaced"] {
        store.put_with_expiry(key, "1", Expiry::At(2_000)).unwrap();
    }
    clock.set(1_500);
    store.put_with_expiry("refreshed", "2", Expiry::At(3_000)).unwrap();
    store.put("permanent", "2").unwrap();
    clock.set(2_000);
    assert!(store.put_if_absent("replaced", "2", Expiry::At(2_001)).unwrap());
    assert_eq!(store.purge_expired().unwrap(), 1);
    assert_eq!(keys(store.iter()), [&b"permanent"[..], b"refreshed", b"replaced"]);
    store.integrity_check().unwrap();
}

#[test]
fn purge_keeps_key_overwritten_by_other_handle() {
    let scratch = Scratch::new();
    let clock = TestClock::at(1_000);
    let (one, two) = (scratch.open_at(&clock), scratch.open_at(&clock));
    one.put_with_expiry("plain", "1", Expiry::At(2_000)).unwrap();
    one.put_with_expiry("longer", "1", Expiry::At(2_000)).unwrap();
    two.put("plain", "2").unwrap();
    two.put_with_expiry("longer", "2", Expiry::At(3_000)).unwrap();
    clock.set(2_000);
    assert_eq!(one.purge_expired().unwrap(), 0);
    assert_eq!(keys(one.iter()), [&b"longer"[..], b"plain"]);
    assert_eq!(keys(two.iter()), [&b"longer"[..], b"plain"]);
}

#[test]
fn purge_needs_write_lock_only_for_expired_keys() {
    let scratch = Scratch::new();
    let clock = TestClock::at(1_000);
    let (store, other) = (scratch.open_at(&clock), scratch.open_at(&clock));
    store.put_with_expiry("a", "1", Expiry::At(2_000)).unwrap();
    other.begin_write().unwrap();
    assert_eq!(store.purge_expired().unwrap(), 0);
    clock.set(2_000);
    if common::are_on_a_server() {
        assert_eq!(other.purge_expired().unwrap(), 1);
        assert_eq!(store.purge_expired().unwrap(), 0); // on a server, locked rows are left
    } else {
        assert_eq!(kind(store.purge_expired()), ErrorKind::Busy);
    }
    other.rollback().unwrap();
    assert_eq!(store.purge_expired().unwrap(), 1);
    store.begin_read().unwrap();
    assert_eq!(store.purge_expired().unwrap(), 0);
    store.commit().unwrap();
}

#[test]
fn purge_of_expired_keys_in_read_transaction_is_refused() {
    let (store, clock) = memory_at(1_000);
    store.put_with_expiry("a", "1", Expiry::At(2_000)).unwrap();
    clock.set(2_000);
    store.begin_read().unwrap();
    assert_eq!(kind(store.purge_expired()), ErrorKind::ReadOnly);
    store.rollback().unwrap();
    assert_eq!(store.count().unwrap(), 1);
}

#[test]
fn returned_value_has_nonzero_remaining_ttl() {
    if common::is_of_a_file("a server has the clock") {
        return;
    }
    let scratch = Scratch::new();
    let store = scratch.open();
    let now = std::sync::atomic::AtomicI64::new(1_000);
    // The key expires between the lookup and the computation of the remaining time.
    store.set_clock(move || now.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
    store.put_with_expiry("key", "value", Expiry::At(1_010)).unwrap();
    let mut given = 0;
    while let Some((_, ttl)) = store.get_with_ttl("key").unwrap() {
        assert!(matches!(ttl, kvstore::Ttl::Remaining(left) if !left.is_zero()), "{ttl:?}");
        given += 1;
    }
    assert!(given > 2);
}
