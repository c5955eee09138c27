//! The detailed check, which reports every problem of a store to a callback.

use std::ops::ControlFlow;

use crate::common::{self, Scratch, kind, python};
use crate::sqlite;
use kvstore::{CheckEvent, CheckReport, Config, ErrorKind, Expiry, Store};

const LATER: i64 = 4_000_000_000_000;

fn damaged(sql: &str) -> Scratch {
    let scratch = Scratch::new();
    let store = scratch.open();
    for n in 0..50_u8 {
        store.put_with_expiry([n], vec![n; if n < 5 { 5000 } else { 5 }], Expiry::At(LATER)).unwrap();
    }
    store.close().unwrap();
    python(&scratch.path(), &format!("con.executescript({sql:?})"));
    scratch
}

/// Reported problems: message and key.
type Told = Vec<(String, Option<Vec<u8>>)>;

fn check(store: &Store, most: usize) -> (CheckReport, Told) {
    let mut told = Told::new();
    let checked = store
        .check(|what| {
            if let CheckEvent::Problem { message, key } = what {
                told.push((message.to_owned(), key.map(<[u8]>::to_vec)));
            }
            if told.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })
        .unwrap();
    (checked, told)
}

#[test]
fn check_reports_every_inconsistency_with_its_key() {
    if common::is_of_a_file("another program looks at the file") {
        return;
    }
    let scratch = damaged(
        "delete from \"ttl_key:default\" where key < x'0a'; delete from \"blob:default\" where id = 2; drop view \"live:default\"",
    );
    let store = scratch.open();
    let (checked, told) = check(&store, usize::MAX);
    assert_eq!((checked.file_errors, checked.table_errors, told.len()), (0, 12, 12), "{told:?}");
    assert!(!checked.is_ok());
    assert!(store.integrity_check().unwrap_err().to_string().starts_with(&told[0].0));
    let of = |words: &str| told.iter().filter(|(text, _)| text.contains(words)).count();
    assert_eq!(
        (of("has no view"), of("a blob_id points nowhere"), of("the key index has no entry")),
        (1, 1, 10)
    );
    let keys: Vec<_> =
        told.iter().filter(|(text, _)| text.contains("key index")).map(|(_, key)| key.clone()).collect();
    assert_eq!(keys, (0..10).map(|n| Some(vec![n])).collect::<Vec<_>>());
    // The callback may end the check: then no more is reported, and the store remains usable.
    let (checked, told) = check(&store, 3);
    assert_eq!((checked.table_errors, told.len()), (3, 3));
    store.repair().unwrap();
    assert!(check(&store, usize::MAX).0.is_ok());
    store.integrity_check().unwrap();
}

#[test]
fn check_reports_sqlite_findings_and_checks_the_rest() {
    if common::are_closed_to_other_programs() {
        return;
    }
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
    assert!(checked.file_errors > 0 && told[0].0.starts_with("SQLite's integrity check: "), "{told:?}");
    assert_eq!(
        told.iter().filter(|(text, _)| text.contains("key index has no entry")).count(),
        10,
        "{told:?}"
    );
}

#[test]
fn check_aborted_by_sqlite_returns_findings_and_says_so() {
    if common::are_closed_to_other_programs() {
        return;
    }
    let scratch = damaged("delete from \"ttl_key:default\" where key < x'0a'");
    let mut bytes = std::fs::read(scratch.path()).unwrap();
    // A page of the catalogue: SQLite first reports its damage, and then cannot read it.
    let of_catalogue = (1..bytes.len() / 4096)
        .find(|page| {
            let page = &bytes[page * 4096..][..4096];
            page[0] == 10
                && page.windows(7).any(|bytes| bytes == b"default")
                && !page.windows(6).any(|b| b == b"CREATE")
        })
        .unwrap();
    bytes[of_catalogue * 4096..][..4096].fill(0);
    std::fs::write(scratch.path(), bytes).unwrap();
    for sql in [true, false] {
        let store = scratch.open_with(&Config::new().allow_damaged(true).sql_engine(sql));
        let (checked, told) = check(&store, usize::MAX);
        assert!(checked.file_errors > 1 && !checked.is_ok(), "{told:?}");
        assert_eq!(kind(Err::<(), _>(checked.stopped_by.unwrap())), ErrorKind::Corrupt);
        assert!(told[0].0.starts_with("SQLite's integrity check: "), "{told:?}");
        for whose in ["SQLite's integrity check came to no end", "the check of the tables came to no end"] {
            assert!(told.iter().any(|(text, _)| text.starts_with(whose)), "{told:?}");
        }
        assert_eq!(kind(store.repair()), ErrorKind::Corrupt);
    }
}

/// Two stores. In the first, SQLite's schema cache begins with a view, which makes SQLite check the
/// B-trees only; in the second it does not.
fn with_the_view_first_and_last() -> [Scratch; 2] {
    let last = damaged("select 1");
    let first = Scratch::new();
    let store = first.open();
    store.put("a", vec![1; 100_000]).unwrap();
    store.delete("a").unwrap();
    store.put("b", "1").unwrap();
    store.close().unwrap();
    let con = sqlite::open(&first.path());
    let program: Vec<String> = con
        .prepare("EXPLAIN PRAGMA integrity_check")
        .and_then(|mut s| s.query_map([], |row| row.get(5))?.collect::<Result<Vec<Option<String>>, _>>())
        .unwrap()
        .into_iter()
        .flatten()
        .collect();
    assert!(program.iter().any(|roots| roots.starts_with("[0,")), "{program:?}");
    con.close().unwrap();
    [first, last]
}

#[test]
fn check_finds_orphan_page_and_bad_freelist_in_any_order() {
    if common::are_closed_to_other_programs() {
        return;
    }
    fn number(bytes: &mut [u8], at: usize) -> &mut [u8; 4] {
        (&mut bytes[at..at + 4]).try_into().unwrap()
    }
    for (scratch, has_free_pages) in with_the_view_first_and_last().into_iter().zip([true, false]) {
        let sound = std::fs::read(scratch.path()).unwrap();
        for sql in [true, false] {
            let config = Config::new().sql_engine(sql);
            assert!(check(&scratch.open_with(&config), usize::MAX).0.is_ok());
            let find = |bytes: &[u8], words: &str| {
                std::fs::write(scratch.path(), bytes).unwrap();
                let store = scratch.open_with(&config);
                let (checked, told) = check(&store, usize::MAX);
                assert!(checked.file_errors > 0 && checked.stopped_by.is_none(), "{words}");
                assert!(told.iter().any(|(text, _)| text.contains(words)), "{told:?}");
                assert_eq!(kind(store.integrity_check()), ErrorKind::Corrupt);
                assert_eq!(kind(store.repair()), ErrorKind::Corrupt);
            };
            // A page more at the end (SQLite's header has their number at 28).
            let mut more = sound.clone();
            more.resize(sound.len() + 4096, 0);
            let pages = u32::try_from(more.len() / 4096).unwrap();
            *number(&mut more, 28) = pages.to_be_bytes();
            find(
                &more,
                if has_free_pages { "pages in no use, neither free nor of a table: 1" } else { "never used" },
            );
            if has_free_pages {
                // One free page less than the list has (at 36).
                let mut fewer = sound.clone();
                let free = number(&mut fewer, 36);
                *free = (u32::from_be_bytes(*free) - 1).to_be_bytes();
                find(&fewer, "reelist");
            }
            std::fs::write(scratch.path(), &sound).unwrap();
        }
    }
}
