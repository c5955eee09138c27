//! Scans that begin with many expired keys. A handle remembers such a range until the next write.

use crate::common::{Scratch, TestClock, numbered};
use kvstore::{Config, Expiry, Store};

/// Number of expired keys, several times the number that one read skips.
const EXPIRED: usize = 20_000;

/// Returns the first and the last live key of the store, and the first one from key 10 000 on.
fn ends(store: &Store) -> [Option<Vec<u8>>; 3] {
    let first = |entries: kvstore::Iter| entries.map(|entry| entry.unwrap().0).next();
    [first(store.iter()), first(store.iter().rev()), first(store.range(numbered(10_000)..))]
}

/// Looks twice with each handle. The second look uses what the first one has noted. All must see what
/// a new handle sees.
fn all_see(stores: &[&Store], scratch: &Scratch, clock: &TestClock, what: &str) -> [Option<Vec<u8>>; 3] {
    let expected = ends(&scratch.open_at(clock));
    for (at, store) in stores.iter().enumerate() {
        for look in 1..=3 {
            assert_eq!(ends(store), expected, "{what}: handle {at}, look {look}");
        }
    }
    expected
}

#[test]
fn scan_over_many_expired_keys_sees_every_later_change() {
    for config in [Config::new(), Config::new().sql_engine(true)] {
        let scratch = Scratch::new();
        let clock = TestClock::at(0);
        let [a, b] = [(); 2].map(|()| scratch.open_with(&config));
        [&a, &b].into_iter().for_each(|store| clock.drive(store));
        let see = |what: &str| all_see(&[&a, &b], &scratch, &clock, what);
        let key = |n: usize| Some(numbered(n).to_vec());
        a.begin_write().unwrap();
        for n in 0..EXPIRED {
            a.put_with_expiry(numbered(n), "1", Expiry::At(1_000)).unwrap();
        }
        a.commit().unwrap();
        assert_eq!(see("all live"), [key(0), key(EXPIRED - 1), key(10_000)]);
        clock.set(2_000);
        assert_eq!(see("all expired"), [None, None, None]);
        a.put(numbered(15_000), "2").unwrap();
        assert_eq!(see("one live"), [key(15_000), key(15_000), key(15_000)]);
        b.put(numbered(9_000), "2").unwrap();
        assert_eq!(see("two live"), [key(9_000), key(15_000), key(15_000)]);
        b.delete(numbered(15_000)).unwrap();
        assert_eq!(see("one live again"), [key(9_000), key(9_000), None]);
        a.begin_write().unwrap();
        a.put(numbered(100), "2").unwrap();
        a.delete(numbered(9_000)).unwrap();
        for _ in 0..3 {
            assert_eq!(ends(&a), [key(100), key(100), None]);
        }
        a.rollback().unwrap();
        assert_eq!(see("rolled back"), [key(9_000), key(9_000), None]);
        b.begin_read().unwrap();
        let before = ends(&b);
        a.put(numbered(7), "2").unwrap();
        assert_eq!([ends(&b), ends(&b)], [before.clone(), before]);
        b.rollback().unwrap();
        assert_eq!(see("snapshot ended"), [key(7), key(9_000), None]);
        // A clock never runs backwards, but it can be replaced by an earlier one.
        let earlier = TestClock::at(500);
        [&a, &b].into_iter().for_each(|store| earlier.drive(store));
        let seen = all_see(&[&a, &b], &scratch, &earlier, "clock set back");
        assert_eq!(seen, [key(0), key(EXPIRED - 1), key(10_000)]);
        [&a, &b].into_iter().for_each(|store| clock.drive(store));
        assert_eq!(see("clock set forward"), [key(7), key(9_000), None]);
        assert_eq!(a.purge_expired().unwrap(), EXPIRED as u64 - 3); // three were written again
        assert_eq!(see("purged"), [key(7), key(9_000), None]);
        a.put_with_expiry(numbered(12_000), "3", Expiry::At(3_000)).unwrap();
        assert_eq!(see("live until 3000"), [key(7), key(12_000), key(12_000)]);
        a.integrity_check().unwrap();
    }
}
