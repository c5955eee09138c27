//! The check that names every disagreement.

mod common;

use std::ops::ControlFlow;

use common::{Scratch, python};
use kvstore::{Checked, Checking, Expiry, Store};

const LATER: i64 = 4_000_000_000_000;

fn damaged(sql: &str) -> Scratch {
    let scratch = Scratch::new();
    let store = scratch.open();
    for n in 0..50_u8 {
        store.put_until([n], vec![n; if n < 5 { 5000 } else { 5 }], Expiry::At(LATER)).unwrap();
    }
    store.close().unwrap();
    python(&scratch.path(), &format!("con.executescript({sql:?})"));
    scratch
}

/// What is told: a text, and a key.
type Told = Vec<(String, Option<Vec<u8>>)>;

fn check(store: &Store, most: usize) -> (Checked, Told) {
    let mut told = Told::new();
    let checked = store
        .check(|what| {
            if let Checking::Disagreement { text, key } = what {
                told.push((text.to_owned(), key.map(<[u8]>::to_vec)));
            }
            if told.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })
        .unwrap();
    (checked, told)
}

#[test]
fn every_disagreement_is_told_with_its_key_and_the_first_is_the_one_of_the_integrity_check() {
    let scratch = damaged(
        "delete from \"ttl_key:default\" where key < x'0a'; delete from \"blob:default\" where id = 2; drop view \"live:default\"",
    );
    let store = scratch.open();
    let (checked, told) = check(&store, usize::MAX);
    assert_eq!((checked.in_file, checked.in_tables, told.len()), (0, 12, 12), "{told:?}");
    assert!(!checked.is_sound());
    assert!(store.integrity_check().unwrap_err().to_string().starts_with(&told[0].0));
    let of = |words: &str| told.iter().filter(|(text, _)| text.contains(words)).count();
    assert_eq!(
        (of("has no view"), of("a blob_id points nowhere"), of("the key index has no entry")),
        (1, 1, 10)
    );
    let keys: Vec<_> =
        told.iter().filter(|(text, _)| text.contains("key index")).map(|(_, key)| key.clone()).collect();
    assert_eq!(keys, (0..10).map(|n| Some(vec![n])).collect::<Vec<_>>());
    // Whoever has enough says so; then there is nothing more, and the store goes on.
    let (checked, told) = check(&store, 3);
    assert_eq!((checked.in_tables, told.len()), (3, 3));
    store.repair().unwrap();
    assert!(check(&store, usize::MAX).0.is_sound());
    store.integrity_check().unwrap();
}

#[test]
fn what_sqlite_finds_is_told_line_by_line_and_the_rest_is_checked_all_the_same() {
    let scratch = damaged("delete from \"ttl_key:default\" where key < x'0a'");
    let mut bytes = std::fs::read(scratch.path()).unwrap();
    let pages = bytes.len() / 4096;
    // The last page of a large value points to somewhere else now.
    let at = (0..pages)
        .rev()
        .find(|page| bytes[page * 4096..][..4] == [0; 4] && bytes[page * 4096 + 8] == 4)
        .unwrap();
    bytes[at * 4096 + 3] = 3;
    std::fs::write(scratch.path(), bytes).unwrap();
    let (checked, told) = check(&scratch.open(), usize::MAX);
    assert!(checked.in_file > 0 && told[0].0.starts_with("SQLite's integrity check: "), "{told:?}");
    assert_eq!(
        told.iter().filter(|(text, _)| text.contains("key index has no entry")).count(),
        10,
        "{told:?}"
    );
}
