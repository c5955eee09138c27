//! Reads of many entries at once: `Cursor::fetch` returns the entries that a loop of `next` would,
//! and then the cursor continues after them.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::common::{
    self, Random, Scratch, TestClock, fill, forward, kind, memory, memory_at, numbered, pair_in_delete_mode,
    rest, reverse, shut_out,
};
use kvstore::{Config, Cursor, Direction, ErrorKind, Expiry, KeyRange, Store, row_key};

/// Far in the future, for the wall clock, too.
const LATER: i64 = 4_000_000_000_000;

type Row = (Vec<u8>, Option<Vec<u8>>, Expiry);

/// Entries of one fetch.
#[track_caller]
fn fetched(cursor: &mut Cursor, max: usize) -> Vec<Row> {
    let fetched = cursor.fetch(max).unwrap();
    let said = fetched.len();
    let rows: Vec<_> =
        fetched.map(|entry| (entry.key.to_vec(), entry.value.map(<[u8]>::to_vec), entry.expiry)).collect();
    assert_eq!((rows.len(), rows.len() <= max), (said, true));
    rows
}

/// Entries of all fetches until the end, with the given sizes.
#[track_caller]
fn all(cursor: &mut Cursor, mut max: impl FnMut() -> usize) -> Vec<Row> {
    let mut rows = Vec::new();
    loop {
        let is_valid = cursor.is_valid();
        let more = fetched(cursor, max());
        assert_eq!(more.is_empty(), !is_valid, "a cursor is at an entry until its last one was shown");
        if more.is_empty() {
            return rows;
        }
        rows.extend(more);
    }
}

/// Entries of a loop of `next`.
#[track_caller]
fn one_by_one(cursor: &mut Cursor) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut there = cursor.first().unwrap();
    while there {
        let part = |bytes: &[u8]| bytes.to_vec();
        rows.push((part(cursor.key().unwrap()), cursor.value().map(part), cursor.expiry().unwrap()));
        there = cursor.next().unwrap();
    }
    rows
}

fn keys(rows: &[Row]) -> Vec<Vec<u8>> {
    rows.iter().map(|row| row.0.clone()).collect()
}

/// Cursors of every kind.
fn cursors(store: &Store) -> Vec<Cursor> {
    let mut cursors = Vec::new();
    for direction in [Direction::Forward, Direction::Reverse] {
        let range =
            KeyRange::new(std::ops::Bound::Excluded(numbered(40)), std::ops::Bound::Included(numbered(700)));
        cursors.extend([
            store.cursor(KeyRange::all(), direction),
            store.cursor(KeyRange::all(), direction).keys_only(),
            store.cursor(KeyRange::prefix(b"key 0001"), direction),
            store.cursor(range, direction),
            store.row_cursor(b"partition", &KeyRange::all(), direction).unwrap(),
        ]);
    }
    cursors.extend([store.expiry_cursor(0, i64::MAX), store.expiry_cursor(1_500, 40_000).keys_only()]);
    cursors
}

#[test]
fn fetch_of_any_size_equals_single_steps() {
    for n in [0, 1, 31, 33, 160, 161, 900] {
        let (store, clock) = memory_at(1_000);
        store
            .transaction(|tx| {
                (0..n).try_for_each(|i| {
                    let key = match i % 7 {
                        6 => row_key(b"partition", &numbered(i))?,
                        _ => numbered(i),
                    };
                    let value = vec![i as u8; if i % 50 == 7 { 3_000 } else { i % 90 }];
                    match i % 3 {
                        0 => tx.put(key, value),
                        _ => tx.put_with_expiry(key, value, Expiry::At(1_001 + (i * 37 % 5_000) as i64)),
                    }
                })
            })
            .unwrap();
        for now in [1_000, 2_500, 10_000] {
            clock.set(now);
            for (which, cursor) in cursors(&store).iter_mut().enumerate() {
                let expected = one_by_one(cursor);
                for max in [1, 7, 33, usize::MAX] {
                    cursor.first().unwrap();
                    assert_eq!(all(cursor, || max), expected, "{n} keys at {now}, cursor {which} by {max}");
                }
                let mut random = Random(1 + n as u64);
                cursor.first().unwrap();
                assert_eq!(all(cursor, || 1 + random.below(300) as usize), expected, "{n} keys at {now}");
            }
        }
    }
}

#[test]
fn cursor_continues_after_fetched_rows() {
    let store = memory();
    fill(&store, 1_000);
    for already in (0..700).step_by(3) {
        let mut cursor = forward(&store);
        cursor.first().unwrap();
        let shown = fetched(&mut cursor, already).len();
        assert!(shown <= already && (shown > 0) == (already > 0));
        assert_eq!(cursor.key(), Some(&numbered(shown)[..]));
        assert_eq!(cursor.value(), Some(&shown.to_be_bytes()[..]));
        assert!(cursor.next().unwrap());
        assert_eq!(cursor.key(), Some(&numbered(shown + 1)[..]));
        assert_eq!(keys(&fetched(&mut cursor, 1)), [numbered(shown + 1)]);
        assert_eq!(rest(&mut cursor).len(), 1_000 - shown - 3);
    }
    let mut cursor = reverse(&store);
    assert!(cursor.seek(numbered(10)).unwrap());
    assert_eq!(keys(&all(&mut cursor, || 4)), (0..=10).rev().map(numbered).collect::<Vec<_>>());
}

#[test]
fn empty_fetch_returns_nothing_and_keeps_position() {
    let store = memory();
    let mut cursor = forward(&store);
    assert!(fetched(&mut cursor, 5).is_empty(), "it was at no entry yet");
    fill(&store, 3);
    assert!(fetched(&mut cursor, 5).is_empty(), "nor is it now");
    assert!(cursor.first().unwrap());
    assert!(fetched(&mut cursor, 0).is_empty());
    assert_eq!(cursor.key(), Some(&numbered(0)[..]));
    assert_eq!(fetched(&mut cursor, 5).len(), 3);
    assert!(!cursor.is_valid() && !cursor.next().unwrap());
    store.put("z", "1").unwrap();
    assert!(fetched(&mut cursor, 5).is_empty(), "at the end it stays");
    assert!(!cursor.seek("zz").unwrap());
    assert!(fetched(&mut cursor, 5).is_empty());
}

#[test]
fn values_larger_than_read_ahead_are_fetched_singly() {
    let store = memory();
    for n in 0..5 {
        store.put(numbered(n), vec![n as u8; 200_000]).unwrap();
    }
    let mut cursor = forward(&store);
    cursor.first().unwrap();
    for n in 0..5 {
        let rows = fetched(&mut cursor, 100);
        assert_eq!(rows, [(numbered(n), Some(vec![n as u8; 200_000]), Expiry::Never)]);
    }
    assert!(!cursor.is_valid());
}

#[test]
fn fetch_hides_rows_expired_after_read_ahead() {
    for dead in [0..1, 0..40, 30..34, 5..700, 0..699, 0..700] {
        let (store, clock) = memory_at(1_000);
        fill(&store, 700);
        for n in dead.clone() {
            store.put_with_expiry(numbered(n), "mortal", Expiry::At(2_000)).unwrap();
        }
        for max in [1, 10, 1_000] {
            clock.drive(&store); // the clock may then be set back
            clock.set(1_000);
            let (mut up, mut down) = (forward(&store), reverse(&store));
            assert!(up.first().unwrap() && down.first().unwrap());
            clock.set(2_000);
            let mut alive: Vec<_> = (0..700).filter(|n| !dead.contains(n)).map(numbered).collect();
            let mut shown = Vec::new();
            // The entry at which the cursor stands has expired.
            while let rows @ [_, ..] = &fetched(&mut up, max)[..] {
                shown.extend(keys(rows));
            }
            assert_eq!(shown, alive, "{dead:?} by {max}");
            assert!(!up.is_valid());
            alive.reverse();
            let mut shown = Vec::new();
            while let rows @ [_, ..] = &fetched(&mut down, max)[..] {
                shown.extend(keys(rows));
            }
            assert_eq!(shown, alive, "{dead:?} by {max}");
        }
    }
}

#[test]
fn fetch_sees_own_writes_from_current_entry() {
    let mut random = Random(77);
    for round in 0..30 {
        let (store, clock) = memory_at(1_000);
        let mut model: BTreeMap<Vec<u8>, (Vec<u8>, i64)> = BTreeMap::new();
        let write = |random: &mut Random, model: &mut BTreeMap<_, _>| {
            let key = numbered(random.below(800) as usize);
            let value = vec![random.below(256) as u8; random.below(200) as usize];
            match random.below(4) {
                0 => {
                    store.delete(&key).unwrap();
                    model.remove(&key);
                }
                n => {
                    let end = if n == 1 { clock.now() + 1 + random.below(9) as i64 } else { i64::MAX };
                    let expiry = if n == 1 { Expiry::At(end) } else { Expiry::Never };
                    store.put_with_expiry(&key, &value, expiry).unwrap();
                    model.insert(key, (value, end));
                }
            }
        };
        (0..1_500).for_each(|_| write(&mut random, &mut model));
        let reversed = round % 2 == 1;
        let mut cursor = if reversed { reverse(&store) } else { forward(&store) };
        cursor.first().unwrap();
        fetched(&mut cursor, 1); // from here on, no move reaches an entry
        while let Some(at) = cursor.key().map(<[u8]>::to_vec) {
            for _ in 0..random.of(&[0, 0, 1, 20]) {
                write(&mut random, &mut model);
            }
            clock.set(clock.now() + random.below(3) as i64);
            let max = 1 + random.below(200) as usize;
            let shown = fetched(&mut cursor, max);
            let alive = |(key, (value, end)): (&Vec<u8>, &(Vec<u8>, i64))| {
                let expiry = if *end == i64::MAX { Expiry::Never } else { Expiry::At(*end) };
                (*end > clock.now()).then(|| (key.clone(), Some(value.clone()), expiry))
            };
            let expected: Vec<Row> = match reversed {
                false => model.range(at..).filter_map(alive).take(shown.len()).collect(),
                true => model.range(..=at).rev().filter_map(alive).take(shown.len()).collect(),
            };
            assert_eq!(shown, expected, "round {round}");
            if shown.is_empty() {
                break;
            }
        }
    }
}

#[test]
fn fetch_returns_current_entry_as_rewritten_by_own_handle() {
    let (store, clock) = memory_at(1_000);
    fill(&store, 100);
    let mut cursor = forward(&store);
    assert!(cursor.seek(numbered(10)).unwrap());
    store.put(numbered(10), "new").unwrap();
    store.delete(numbered(11)).unwrap();
    assert_eq!(
        cursor.value(),
        Some(&10_usize.to_be_bytes()[..]),
        "what a move has come to stays until the next call that moves"
    );
    let rows = fetched(&mut cursor, 50);
    assert_eq!(rows[0], (numbered(10), Some(b"new".to_vec()), Expiry::Never));
    assert_eq!(rows.get(1).map_or(cursor.key().unwrap(), |row| &row.0), numbered(12));

    for (which, come) in [
        (|cursor, n| Cursor::seek(cursor, numbered(n))) as fn(&mut Cursor, usize) -> kvstore::Result<bool>,
        |cursor, n| {
            cursor.seek(numbered(n - 1))?;
            cursor.next()
        },
        |cursor, n| {
            cursor.seek(numbered(n - 2))?;
            cursor.fetch(1).map(drop)?;
            cursor.next()
        },
    ]
    .into_iter()
    .enumerate()
    {
        let n = 20 + 10 * which;
        assert!(come(&mut cursor, n).unwrap());
        assert_eq!(cursor.key(), Some(&numbered(n)[..]));
        store.delete(numbered(n)).unwrap();
        assert_eq!(fetched(&mut cursor, 1)[0].0, numbered(n + 1), "{which}: deleted");

        assert!(come(&mut cursor, n + 5).unwrap());
        store.put_with_expiry(numbered(n + 5), "mortal", Expiry::At(clock.now() + 10)).unwrap();
        clock.set(clock.now() + 10);
        assert_eq!(fetched(&mut cursor, 1)[0].0, numbered(n + 6), "{which}: it got a TTL, and expired");
        store.put_with_expiry(numbered(n + 5), "mortal", Expiry::At(clock.now() + 10)).unwrap();
        assert!(come(&mut cursor, n + 5).unwrap());
        store.put_with_expiry(numbered(n + 5), "longer", Expiry::Never).unwrap();
        clock.set(clock.now() + 10);
        let expected = (numbered(n + 5), Some(b"longer".to_vec()), Expiry::Never);
        assert_eq!(fetched(&mut cursor, 1), [expected], "{which}: its life was made longer");

        store.begin_write().unwrap();
        store.put(numbered(n + 7), "undone").unwrap();
        assert!(come(&mut cursor, n + 7).unwrap());
        store.rollback().unwrap();
        let expected = (numbered(n + 7), Some((n + 7).to_be_bytes().to_vec()), Expiry::Never);
        assert_eq!(fetched(&mut cursor, 1), [expected], "{which}: rolled back");
    }

    store.put_with_expiry(numbered(60), "1", Expiry::At(clock.now() + 10)).unwrap();
    assert!(cursor.seek(numbered(60)).unwrap());
    clock.set(clock.now() + 10);
    store.put("another", "1").unwrap();
    assert_eq!(fetched(&mut cursor, 1)[0].0, numbered(61), "it has died under it");
}

#[test]
fn expiry_cursor_keeps_its_entry_after_own_write() {
    let (store, _clock) = memory_at(0);
    for n in 0..200 {
        store.put_with_expiry(numbered(n), "1", Expiry::At(1_000 + n as i64 / 10)).unwrap();
    }
    for step in [1, 9, 33] {
        let mut cursor = store.expiry_cursor(0, i64::MAX);
        cursor.first().unwrap();
        let mut shown = Vec::new();
        while cursor.is_valid() {
            store.put("another", "1").unwrap();
            shown.extend(keys(&fetched(&mut cursor, step)));
        }
        assert_eq!(shown, (0..200).map(numbered).collect::<Vec<_>>(), "by {step}");
    }
}

#[test]
fn expiry_cursor_skips_rows_inserted_before_its_entry() {
    for rows in [4, 100, 700] {
        let (store, _clock) = memory_at(0);
        let end = |n: usize| Expiry::At(1_000 + 10 * n as i64);
        for n in 0..rows {
            store.put_with_expiry(numbered(n), "1", end(n)).unwrap();
        }
        for left in [1, 2, rows / 2, rows - 1] {
            let mut cursor = store.expiry_cursor(0, i64::MAX);
            cursor.first().unwrap();
            let mut shown = 0;
            while shown < left {
                shown += fetched(&mut cursor, left - shown).len();
            }
            // Between the last entry returned and the cursor's position, and after that.
            store.put_with_expiry("between", "1", Expiry::At(1_000 + 10 * left as i64 - 5)).unwrap();
            store.put_with_expiry("behind", "1", Expiry::At(1_000 + 10 * left as i64 + 5)).unwrap();
            let mut expected = vec![numbered(left), b"behind".to_vec()];
            expected.extend((left + 1..rows).map(numbered));
            assert_eq!(keys(&all(&mut cursor, || 64)), expected, "{rows} rows, left at {left}");
            store.delete("between").unwrap();
            store.delete("behind").unwrap();
        }
    }
}

#[test]
fn fetch_skips_deleted_current_entry_even_if_last() {
    let store = memory();
    fill(&store, 4);
    let mut cursor = forward(&store);
    cursor.first().unwrap();
    assert_eq!(fetched(&mut cursor, 3).len(), 3);
    store.delete(numbered(3)).unwrap();
    assert!(fetched(&mut cursor, 3).is_empty());
    assert!(!cursor.is_valid());
}

#[test]
fn failed_fetch_returns_nothing_and_keeps_position() {
    let small_cache = common::without_wait().cache_pages(10);
    let Some((_scratch, store, other)) = pair_in_delete_mode(&small_cache) else { return };
    store
        .transaction(|tx| {
            (0..600).try_for_each(|n| {
                tx.put_with_expiry(row_key(b"partition", &numbered(n))?, "1", Expiry::At(LATER + n as i64))?;
                tx.put(numbered(n), "1")
            })
        })
        .unwrap();
    for mut cursor in cursors(&store) {
        let expected = one_by_one(&mut cursor);
        for max in [31, 33, 500] {
            cursor.first().unwrap();
            let mut shown = Vec::new();
            let mut failures = 0;
            while cursor.is_valid() {
                shut_out(&other);
                match cursor.fetch(max) {
                    Ok(fetched) => {
                        shown
                            .extend(fetched.map(|e| (e.key.to_vec(), e.value.map(<[u8]>::to_vec), e.expiry)));
                    }
                    Err(e) => {
                        assert_eq!(e.kind(), ErrorKind::Busy);
                        failures += 1;
                        let at = expected.get(shown.len()).unwrap();
                        assert_eq!(cursor.key(), Some(&at.0[..]), "it stays at its entry");
                        assert_eq!(kind(cursor.fetch(max).map(drop)), ErrorKind::Busy);
                        other.rollback().unwrap();
                        shown.extend(fetched(&mut cursor, max));
                        continue;
                    }
                }
                other.rollback().unwrap();
            }
            assert_eq!(shown, expected, "{cursor:?} by {max}");
            assert!(failures > 0 || expected.len() < 160, "{} rows, and no failure", expected.len());
        }
    }
}

#[test]
fn panicking_clock_in_fetch_keeps_cursor_position() {
    if common::is_of_a_file("a server has the clock") {
        return;
    }
    let store = memory();
    let panics = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&panics);
    store.set_clock(move || if asked.load(Ordering::Relaxed) { panic!("the clock") } else { 1_000 });
    for n in 0..400 {
        store.put_with_expiry(numbered(n), "1", Expiry::At(2_000)).unwrap();
    }
    let mut cursor = forward(&store);
    cursor.first().unwrap();
    let mut shown = Vec::new();
    while cursor.is_valid() {
        panics.store(true, Ordering::Relaxed);
        assert!(catch_unwind(AssertUnwindSafe(|| drop(cursor.fetch(30)))).is_err());
        panics.store(false, Ordering::Relaxed);
        shown.extend(keys(&fetched(&mut cursor, 30)));
    }
    assert_eq!(shown, (0..400).map(numbered).collect::<Vec<_>>());
}

#[test]
fn prefetched_entry_is_rechecked_after_failed_fetches() {
    if common::is_of_a_file("a server has the clock") {
        return;
    }
    let store = memory();
    // Number of clock readings before the clock panics; 0: never.
    let left = Arc::new(AtomicUsize::new(0));
    let asked = Arc::clone(&left);
    store.set_clock(move || {
        let last = asked.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if last == Ok(1) { panic!("the clock") } else { 1_000 }
    });
    let put = |n| store.put_with_expiry(numbered(n), "1", Expiry::At(2_000)).unwrap();
    (0..400).for_each(put);
    for writes in [false, true] {
        let mut panics = 0;
        for nth in 1.. {
            let mut cursor = forward(&store);
            cursor.first().unwrap();
            assert_eq!(fetched(&mut cursor, 10).len(), 10);
            if writes {
                put(300);
            }
            left.store(nth, Ordering::Relaxed);
            let done = catch_unwind(AssertUnwindSafe(|| cursor.fetch(1_000).map(drop).unwrap()));
            if left.swap(0, Ordering::Relaxed) > 0 {
                done.unwrap();
                break;
            }
            done.unwrap_err();
            panics += 1;
            store.delete(numbered(10)).unwrap();
            assert_eq!(keys(&fetched(&mut cursor, 1)), [numbered(11)], "{nth}, {writes}");
            put(10);
        }
        assert!(panics > 1, "{panics}");
    }
}

#[test]
fn fetch_sees_transaction_and_fails_on_closed_store() {
    let store = memory();
    fill(&store, 100);
    store.begin_write().unwrap();
    store.delete(numbered(1)).unwrap();
    let mut cursor = forward(&store);
    cursor.first().unwrap();
    assert_eq!(keys(&all(&mut cursor, || 64)).len(), 99);
    cursor.first().unwrap();
    store.rollback().unwrap();
    assert_eq!(keys(&all(&mut cursor, || 64)).len(), 100);
    cursor.first().unwrap();
    store.close().unwrap();
    assert_eq!(kind(cursor.fetch(1).map(drop)), ErrorKind::Misuse);
    assert_eq!(kind(cursor.fetch(0).map(drop)), ErrorKind::Misuse);
}

/// Keys of all lengths with long common prefixes.
fn alike(random: &mut Random) -> Vec<u8> {
    let length = 1 + random.below(24) as usize;
    (0..length).map(|at| if at < 12 { b'a' } else { random.of(&[0, b'a', 0xff]) }).collect()
}

#[test]
fn fetch_orders_all_row_shapes_for_any_bounds_and_page_size() {
    let mut random = Random(4_711);
    for (page_size, sql_engine) in
        [(512, false), (1_024, false), (4_096, false), (65_536, false), (4_096, true)]
    {
        let (scratch, clock) = (Scratch::new(), TestClock::at(1_000_000_000_000));
        let store = scratch.open_with(&Config::new().page_size(page_size).sql_engine(sql_engine));
        clock.drive(&store);
        let mut model: BTreeMap<Vec<u8>, (Vec<u8>, Expiry)> = BTreeMap::new();
        store
            .transaction(|tx| {
                for n in 0..1_200 {
                    let key =
                        if n % 4 == 0 { numbered(random.below(900) as usize) } else { alike(&mut random) };
                    let length = random.of(&[0, 1, 20, 20, 20, 57, 58, 150, 1_500, 9_000]);
                    let value = vec![n as u8; length];
                    let expiry = match random.below(6) {
                        0 => Expiry::At(1), // expired, and stored in another width
                        1 => Expiry::At(clock.now() + random.below(5_000) as i64),
                        2 => Expiry::At(i64::MAX),
                        _ => Expiry::Never,
                    };
                    tx.put_with_expiry(&key, &value, expiry)?;
                    model.insert(key, (value, expiry));
                }
                Ok::<_, kvstore::Error>(())
            })
            .unwrap();
        for round in 0..150 {
            clock.set(clock.now() + random.below(60) as i64);
            let mut bound = || match random.below(5) {
                0 => std::ops::Bound::Unbounded,
                1 => std::ops::Bound::Included(alike(&mut random)),
                2 => std::ops::Bound::Excluded(numbered(random.below(900) as usize)),
                _ => std::ops::Bound::Excluded(alike(&mut random)),
            };
            let range = KeyRange::new(bound(), bound());
            let keys_only = round % 7 == 0;
            for direction in [Direction::Forward, Direction::Reverse] {
                let alive = |(key, (value, expiry)): (&Vec<u8>, &(Vec<u8>, Expiry))| {
                    let is_alive = expiry.millis().is_none_or(|end| end > clock.now());
                    let value = (!keys_only).then(|| value.clone());
                    (is_alive && range.contains(key)).then(|| (key.clone(), value, *expiry))
                };
                let mut expected: Vec<Row> = model.iter().filter_map(alive).collect();
                if direction == Direction::Reverse {
                    expected.reverse();
                }
                let mut cursor = store.cursor(range.clone(), direction);
                if keys_only {
                    cursor = cursor.keys_only();
                }
                cursor.first().unwrap();
                let shown = all(&mut cursor, || 1 + random.below(400) as usize);
                assert!(shown == expected, "{page_size}, sql {sql_engine}, {range:?}, {direction:?}");
                assert_eq!(one_by_one(&mut cursor), expected);
            }
        }
    }
}

#[test]
fn fetch_returns_no_expired_row_if_clock_jumps() {
    for n in [30, 2_000] {
        for step in [1, 7, 300] {
            let (store, clock) = memory_at(1_000);
            store
                .transaction(|tx| {
                    (0..n).try_for_each(|i| {
                        // In no particular order; some without an expiry time.
                        let end = 1_001 + (i * 7_919 % 3_000) as i64;
                        let expiry = if i % 5 == 0 { Expiry::Never } else { Expiry::At(end) };
                        tx.put_with_expiry(numbered(i), "1", expiry)
                    })
                })
                .unwrap();
            // The clock advances at each reading, also within a call.
            let now = clock.clone();
            store.set_clock(move || {
                now.set(now.now() + step);
                now.now()
            });
            for mut cursor in [forward(&store), reverse(&store)] {
                cursor.first().unwrap();
                let (mut shown, mut steps) = (0, 0);
                while cursor.is_valid() {
                    let before = clock.now();
                    for (key, _, expiry) in fetched(&mut cursor, 100) {
                        let is_alive = expiry.millis().is_none_or(|end| end > before);
                        assert!(is_alive, "{key:?} was expired by {before}: {expiry:?}");
                        shown += 1;
                    }
                    steps += 1;
                    let before = clock.now();
                    if cursor.next().unwrap() {
                        let end = cursor.expiry().unwrap().millis();
                        assert!(end.is_none_or(|end| end > before), "a step returned an expired entry");
                    }
                }
                assert!(shown + steps >= n / 5, "{shown} shown and {steps} passed of {n}");
            }
        }
    }
}
