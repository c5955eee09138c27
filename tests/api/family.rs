//! Families and the basic data calls on them: names, sizes, and values that move between their rows
//! and the table of large values.

use std::time::Duration;

use crate::common::cases::{ENGINES, each_case};
use crate::common::{self, Scratch, TestClock, keys, kind, memory, memory_at, numbered, python};
use kvstore::{Config, Direction, ErrorKind, Expiry, KeyRange, Store, Ttl};

const ODD_NAMES: [&str; 22] = [
    "users",
    "Users",
    "USERS",
    "^users",
    "^Users",
    "a b",
    " ",
    "it's",
    "say \"hi\"",
    "\"\"",
    "back`tick",
    "[x]",
    "100%",
    "a:b",
    "data:users",
    "semi;colon--",
    "new\nline",
    "zażółć",
    "ZAŻÓŁĆ",
    "🔑",
    "default ",
    "Default",
];

// ---- families ------------------------------------------------------------------------------------

#[test]
fn families_with_odd_and_similar_names_are_separate() {
    let scratch = Scratch::new();
    let store = scratch.open();
    let long = "x".repeat(255);
    let names: Vec<&str> = ODD_NAMES.into_iter().chain([long.as_str()]).collect();
    for name in &names {
        let family = store.create_family(name).unwrap();
        assert_eq!(family.name(), *name);
        family.put("name", name).unwrap();
        family.put_with_ttl("large", name.repeat(500), Duration::from_secs(1000)).unwrap();
    }
    let mut sorted: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    sorted.sort();
    assert_eq!(store.family_names().unwrap(), sorted);
    store.integrity_check().unwrap();
    store.close().unwrap();

    let store = scratch.open();
    for name in &names {
        let family = store.family(name).unwrap();
        assert_eq!(family.get("name").unwrap().as_deref(), Some(name.as_bytes()));
        assert_eq!(family.get("large").unwrap(), Some(name.repeat(500).into_bytes()));
    }
    for (at, name) in names.iter().enumerate() {
        store.drop_family(name).unwrap();
        assert_eq!(store.family_names().unwrap().len(), names.len() - at - 1);
    }
    store.integrity_check().unwrap();
    assert_eq!(store.count().unwrap(), 0);
}

#[test]
fn creating_existing_family_fails_and_keeps_it() {
    let store = memory();
    store.create_family("f").unwrap().put("a", "1").unwrap();
    assert_eq!(kind(store.create_family("f")), ErrorKind::Error);
    assert_eq!(kind(store.create_family("default")), ErrorKind::Error);
    assert_eq!(keys(store.family("f").unwrap().iter()), [b"a"]);
}

#[test]
fn opening_missing_family_is_not_found() {
    let store = memory();
    assert_eq!(kind(store.family("f")), ErrorKind::NotFound);
    assert!(store.family_names().unwrap().is_empty());
}

#[test]
fn get_or_create_returns_same_family() {
    let store = memory();
    store.get_or_create_family("f").unwrap().put("a", "1").unwrap();
    assert_eq!(keys(store.get_or_create_family("f").unwrap().iter()), [b"a"]);
    assert_eq!(kind(store.get_or_create_family("__f")), ErrorKind::Error);
}

#[test]
fn default_family_opens_by_name_and_is_not_listed() {
    let store = memory();
    store.put("a", "1").unwrap();
    assert_eq!(keys(store.family("default").unwrap().iter()), [b"a"]);
    assert_eq!(keys(store.default_family().iter()), [b"a"]);
    assert_eq!(store.name(), "default");
    assert!(store.family_names().unwrap().is_empty());
}

#[test]
fn reserved_and_invalid_names_are_refused() {
    let store = memory();
    let long = "x".repeat(256);
    let wide = "é".repeat(128);
    for name in ["", "__", "__x", "_snkv_", "_snkv_x", "kvstore", "kvstore_meta", "a\0b", &long, &wide] {
        assert_eq!(kind(store.create_family(name)), ErrorKind::Error, "{name:?}");
        assert_eq!(kind(store.family(name)), ErrorKind::Error, "{name:?}");
        assert_eq!(kind(store.drop_family(name)), ErrorKind::Error, "{name:?}");
    }
    for name in ["_x", "_snkv", "kvstor", "Kvstore", "a__"] {
        store.create_family(name).unwrap();
    }
}

#[test]
fn dropping_default_family_fails_and_missing_is_not_found() {
    let store = memory();
    store.put("a", "1").unwrap();
    assert_eq!(kind(store.drop_family("default")), ErrorKind::Error);
    assert_eq!(keys(store.iter()), [b"a"]);
    assert_eq!(kind(store.drop_family("f")), ErrorKind::NotFound);
}

#[test]
fn dropping_family_is_busy_until_last_handle_closes() {
    let store = memory();
    let one = store.create_family("f").unwrap();
    let two = one.clone();
    let three = store.family("f").unwrap();
    one.put("a", "1").unwrap();
    for handle in [one, two, three] {
        assert_eq!(kind(store.drop_family("f")), ErrorKind::Busy);
        assert_eq!(handle.get("a").unwrap().as_deref(), Some(&b"1"[..]));
    }
    store.drop_family("f").unwrap();
    assert_eq!(kind(store.family("f")), ErrorKind::NotFound);
}

#[test]
fn busy_drop_keeps_transaction_usable() {
    let store = memory();
    let family = store.create_family("f").unwrap();
    store.begin_write().unwrap();
    assert_eq!(kind(store.drop_family("f")), ErrorKind::Busy);
    assert_eq!(kind(store.create_family("f")), ErrorKind::Error);
    assert_eq!(kind(store.drop_family("g")), ErrorKind::NotFound);
    family.put("a", "1").unwrap();
    store.commit().unwrap();
    assert_eq!(keys(family.iter()), [b"a"]);
}

#[test]
fn iterator_reports_drop_of_its_family() {
    let store = memory();
    let family = store.create_family("f").unwrap();
    for n in 0..100 {
        family.put(numbered(n), "1").unwrap();
    }
    let mut cursor = family.cursor(KeyRange::all(), Direction::Forward);
    assert!(cursor.first().unwrap());
    drop(family);
    store.drop_family("f").unwrap();
    assert_eq!(kind(cursor.next()), ErrorKind::Error);
    assert!(!cursor.is_valid());
    assert_eq!(kind(cursor.first()), ErrorKind::Error);
    store.put("others", "go on").unwrap();
}

#[test]
fn drop_removes_all_tables_of_family() {
    if common::is_of_a_file("another program looks at the file") {
        return;
    }
    let scratch = Scratch::new();
    let store = scratch.open();
    let list = "print(sorted(x[0] for x in con.execute('select name from sqlite_schema')))";
    let before = python(&scratch.path(), list);
    let family = store.create_family("f").unwrap();
    family.put_with_ttl("a", vec![1; 10_000], Duration::from_secs(1000)).unwrap();
    assert_ne!(python(&scratch.path(), list), before);
    drop(family);
    store.drop_family("f").unwrap();
    assert_eq!(python(&scratch.path(), list), before);
    let family = store.create_family("f").unwrap();
    assert_eq!(family.count().unwrap(), 0);
    assert_eq!(family.ttl("a").unwrap(), None);
    store.integrity_check().unwrap();
}

#[test]
fn handle_reports_dropped_family_and_uses_recreated_one() {
    let scratch = Scratch::new();
    let (one, two) = (scratch.open(), scratch.open());
    let family = one.create_family("f").unwrap();
    family.put_with_ttl("a", vec![1; 5_000], Duration::from_secs(1000)).unwrap();
    two.drop_family("f").unwrap();
    let failures = [
        kind(family.get("a")),
        kind(family.put("a", "1")),
        kind(family.delete("a")),
        kind(family.count()),
        kind(family.clear()),
        kind(family.iter().next().unwrap()),
    ];
    assert!(failures.iter().all(|kind| *kind == ErrorKind::Error), "{failures:?}");
    two.create_family("f").unwrap();
    assert_eq!(family.get("a").unwrap(), None);
    family.put("b", vec![2; 5_000]).unwrap();
    family.put_with_ttl("c", "1", Duration::from_secs(1000)).unwrap();
    assert_eq!(keys(two.family("f").unwrap().iter()), [b"b", b"c"]);
    two.integrity_check().unwrap();
}

#[test]
fn two_hundred_families_work_together() {
    let scratch = Scratch::new();
    let store = scratch.open();
    store
        .transaction(|tx| {
            (0..200)
                .try_for_each(|n| tx.create_family(&format!("f{n}")).and_then(|f| f.put("n", numbered(n))))
        })
        .unwrap();
    assert_eq!(store.family_names().unwrap().len(), 200);
    let families: Vec<_> = (0..200).map(|n| store.family(&format!("f{n}")).unwrap()).collect();
    for (n, family) in families.iter().enumerate() {
        family.put_with_ttl("m", numbered(n), Duration::from_secs(1000)).unwrap();
    }
    for (n, family) in families.iter().enumerate() {
        assert_eq!(family.get("n").unwrap(), Some(numbered(n)));
        assert_eq!(family.get("m").unwrap(), Some(numbered(n)));
    }
    store.integrity_check().unwrap();
}

// ---- data ----------------------------------------------------------------------------------------

#[test]
fn put_value_can_be_read_replaced_and_deleted() {
    let store = memory();
    assert_eq!(store.get("a").unwrap(), None);
    assert!(!store.exists("a").unwrap());
    store.put("a", "1").unwrap();
    store.put("a", "22").unwrap();
    assert_eq!(store.get("a").unwrap().as_deref(), Some(&b"22"[..]));
    assert!(store.exists("a").unwrap());
    assert!(store.delete("a").unwrap());
    assert!(!store.delete("a").unwrap());
    assert_eq!(store.get("a").unwrap(), None);
}

#[test]
fn keys_and_values_may_be_any_bytes() {
    let store = memory();
    for a in [0_u8, 1, 39, 127, 128, 255] {
        for key in [vec![a], vec![a, 0], vec![0, a, 0], vec![a; 300]] {
            store.put(&key, [&key[..], b"\0\xff"].concat()).unwrap();
        }
    }
    for (key, value) in store.iter().map(Result::unwrap) {
        assert_eq!(value, [&key[..], b"\0\xff"].concat());
    }
    assert!(keys(store.iter()).is_sorted());
    assert_eq!(store.count().unwrap(), 24);
}

#[test]
fn key_length_limits_are_enforced() {
    let store = memory();
    let longest = vec![7; common::max_key_size()];
    store.put(&longest, "1").unwrap();
    store.put_with_ttl(&longest, vec![1; 100_000], Duration::from_secs(9)).unwrap();
    assert_eq!(store.get(&longest).unwrap(), Some(vec![1; 100_000]));
    let mut cursor = store.cursor(KeyRange::all(), Direction::Reverse);
    assert!(cursor.seek(&longest).unwrap());
    store.integrity_check().unwrap();
    assert!(store.delete(&longest).unwrap());
    for bad in [vec![], vec![7; longest.len() + 1], vec![7; 65_537]] {
        let failures = [
            kind(store.put(&bad, "1")),
            kind(store.put_with_ttl(&bad, "1", Duration::from_secs(1))),
            kind(store.put_if_absent(&bad, "1", Expiry::Never)),
            kind(store.get(&bad)),
            kind(store.get_with_ttl(&bad)),
            kind(store.exists(&bad)),
            kind(store.ttl(&bad)),
            kind(store.delete(&bad)),
        ];
        assert!(failures.iter().all(|kind| *kind == ErrorKind::Error), "{failures:?}");
    }
    for bad in [vec![], vec![7; 65_537]] {
        assert_eq!(kind(cursor.seek(&bad)), ErrorKind::Error);
    }
    assert_eq!(store.count().unwrap(), 0);
}

#[test]
fn value_size_limit_is_10_mib_unless_configured() {
    let store = memory();
    let longest = vec![3; 10 * 1024 * 1024];
    store.put("a", &longest).unwrap();
    assert_eq!(store.get("a").unwrap(), Some(longest));
    assert_eq!(kind(store.put("a", vec![4; 10 * 1024 * 1024 + 1])), ErrorKind::Error);
    assert_eq!(store.get("a").unwrap().unwrap()[0], 3);
    let small = Store::open_in_memory(&Config::new().max_value_size(10)).unwrap();
    small.put("a", [1; 10]).unwrap();
    assert_eq!(kind(small.put("a", [2; 11])), ErrorKind::Error);
    assert_eq!(kind(small.put_if_absent("b", [2; 11], Expiry::Never)), ErrorKind::Error);
    assert_eq!(small.get("a").unwrap(), Some(vec![1; 10]));
    let large = Store::open_in_memory(&Config::new().max_value_size(20 * 1024 * 1024)).unwrap();
    large.put("a", vec![5; 20 * 1024 * 1024]).unwrap();
    assert_eq!(large.get_with("a", |value, _| value.len()).unwrap(), Some(20 * 1024 * 1024));
}

#[test]
fn empty_value_is_stored() {
    let store = memory();
    store.put("a", "").unwrap();
    store.put_with_ttl("b", "", Duration::from_secs(1000)).unwrap();
    for key in ["a", "b"] {
        assert_eq!(store.get(key).unwrap(), Some(Vec::new()));
        assert!(store.exists(key).unwrap());
        assert!(!store.put_if_absent(key, "1", Expiry::Never).unwrap());
    }
    assert_eq!(store.iter().map(|entry| entry.unwrap().1.len()).sum::<usize>(), 0);
    store.put("a", vec![1; 5_000]).unwrap();
    store.put("a", "").unwrap();
    assert_eq!(store.get("a").unwrap(), Some(Vec::new()));
    store.integrity_check().unwrap();
}

#[test]
fn put_if_absent_writes_only_without_live_key() {
    let (store, clock) = memory_at(1_000);
    assert!(store.put_if_absent("a", "1", Expiry::At(2_000)).unwrap());
    assert!(!store.put_if_absent("a", "2", Expiry::Never).unwrap());
    assert_eq!(
        store.get_with_ttl("a").unwrap(),
        Some((b"1".to_vec(), Ttl::Remaining(Duration::from_millis(1_000))))
    );
    clock.set(2_000);
    assert!(store.put_if_absent("a", "3", Expiry::Never).unwrap());
    assert_eq!(store.get_with_ttl("a").unwrap(), Some((b"3".to_vec(), Ttl::None)));
    assert!(store.put_if_absent("past", "1", Expiry::At(500)).unwrap());
    assert!(!store.exists("past").unwrap());
    assert_eq!(kind(store.put_if_absent("b", "1", Expiry::At(-1))), ErrorKind::Error);
    store.integrity_check().unwrap();
}

#[test]
fn count_includes_expired_rows_until_purge() {
    let (store, clock) = memory_at(1_000);
    for n in 0..10 {
        store.put_with_expiry(numbered(n), "1", Expiry::At(2_000 + n as i64)).unwrap();
    }
    store.put("plain", "1").unwrap();
    clock.set(2_004);
    assert_eq!(store.count().unwrap(), 11);
    assert_eq!(store.purge_expired().unwrap(), 5);
    assert_eq!(store.count().unwrap(), 6);
}

#[test]
fn clear_empties_one_family_only() {
    let scratch = Scratch::new();
    let store = scratch.open();
    let family = store.create_family("f").unwrap();
    for at in [store.default_family(), &family] {
        at.put("a", "1").unwrap();
        at.put("b", vec![1; 5_000]).unwrap();
        at.put_with_ttl("c", vec![1; 5_000], Duration::from_secs(1000)).unwrap();
        at.put_with_ttl("d", "1", Duration::from_secs(1000)).unwrap();
    }
    family.clear().unwrap();
    assert_eq!(family.count().unwrap(), 0);
    assert_eq!(store.count().unwrap(), 4);
    store.integrity_check().unwrap();
    if !common::are_on_a_server() {
        let rows = python(
            &scratch.path(),
            "print(sum(con.execute('select count(*) from \"%s:f\"' % t).fetchone()[0]
for t in ('data', 'blob', 'ttl_key', 'ttl_expiry')))",
        );
        assert_eq!(rows, "0");
    }
    family.put_with_ttl("e", vec![2; 5_000], Duration::from_secs(1000)).unwrap();
    assert_eq!(keys(family.iter()), [b"e"]);
    family.clear().unwrap();
    family.clear().unwrap();
    store.integrity_check().unwrap();
}

// ---- values in their rows and out of them --------------------------------------------------------

#[test]
fn values_around_inline_limit_are_read_back() {
    let store = memory();
    let value = |len: usize| (0..len).map(|at| (at * 7 + len) as u8).collect::<Vec<u8>>();
    for key_len in [1, 12, 184, 192, 240, 248, 255, 256, 900, 2_000] {
        let key = |len: usize| [vec![b'k'; key_len], len.to_be_bytes().to_vec()].concat();
        let lens = || (0..=270).chain((900..1_100).step_by(9)).chain([3_000, 70_000]);
        store.begin_write().unwrap();
        lens().for_each(|len| store.put(key(len), value(len)).unwrap());
        store.commit().unwrap();
        for len in lens() {
            assert_eq!(store.get(key(len)).unwrap(), Some(value(len)), "key {key_len} value {len}");
        }
        assert!(store.iter().map(Result::unwrap).all(|(_, bytes)| bytes == value(bytes.len())));
        store.integrity_check().unwrap();
        store.clear().unwrap();
    }
}

#[test]
fn value_moves_between_row_and_blob_with_and_without_ttl() {
    let scratch = Scratch::new();
    let store = scratch.open_at(&TestClock::at(1_000));
    let blobs = |store: &Store, expected: &str| {
        store.integrity_check().unwrap();
        if common::are_on_a_server() {
            return; // on a server, PostgreSQL decides where a value is stored
        }
        let blobs = python(
            &scratch.path(),
            "print(*con.execute('select count(*) from \"blob:default\"').fetchone())",
        );
        assert_eq!(blobs, expected);
    };
    let (small, large) = (vec![1; 20], vec![2; 5_000]);
    let expiries = [Expiry::Never, Expiry::At(9_000), Expiry::At(8_000)];
    store.put("other", &large).unwrap();
    for from in expiries {
        for to in expiries {
            store.put_with_expiry("a", &small, from).unwrap();
            blobs(&store, "1");
            store.put_with_expiry("a", &large, to).unwrap();
            assert_eq!(store.get("a").unwrap().as_ref(), Some(&large));
            blobs(&store, "2");
            store.put_with_expiry("a", vec![3; 6_000], from).unwrap();
            assert_eq!(store.get("a").unwrap(), Some(vec![3; 6_000]));
            blobs(&store, "2");
            store.put_with_expiry("a", &small, to).unwrap();
            assert_eq!(store.get("a").unwrap().as_ref(), Some(&small));
            blobs(&store, "1");
            store.put_with_expiry("a", &large, from).unwrap();
            assert!(store.delete("a").unwrap());
            blobs(&store, "1");
        }
    }
    assert_eq!(store.get("other").unwrap(), Some(large));
}

#[test]
fn removing_expired_large_value_leaves_no_orphan() {
    let (store, clock) = memory_at(1_000);
    for key in ["get", "purge", "delete", "absent", "put"] {
        store.put_with_expiry(key, vec![1; 5_000], Expiry::At(2_000)).unwrap();
    }
    clock.set(2_000);
    assert_eq!(store.get("get").unwrap(), None);
    store.integrity_check().unwrap();
    assert!(!store.delete("delete").unwrap());
    store.integrity_check().unwrap();
    assert!(store.put_if_absent("absent", "1", Expiry::Never).unwrap());
    store.integrity_check().unwrap();
    store.put("put", "1").unwrap();
    store.integrity_check().unwrap();
    // On a server a get removes nothing.
    assert_eq!(store.purge_expired().unwrap(), if common::are_on_a_server() { 2 } else { 1 });
    store.integrity_check().unwrap();
    assert_eq!(keys(store.iter()), [&b"absent"[..], b"put"]);
}

#[test]
fn get_with_passes_value_and_expiry_without_copy() {
    let store = memory();
    store.put_with_expiry("a", "123", Expiry::At(i64::MAX)).unwrap();
    assert_eq!(
        store.get_with("a", |value, expiry| (value.len(), expiry)).unwrap(),
        Some((3, Expiry::At(i64::MAX)))
    );
    assert_eq!(store.get_with("b", |_, _| ()).unwrap(), None);
}

#[test]
fn family_returns_its_creation_time() {
    each_case(ENGINES, |sql_engine| {
        let store = common::memory_with(&Config::new().sql_engine(sql_engine));
        let clock = TestClock::at(5_000);
        clock.drive(&store);
        let family = store.create_family("f").unwrap();
        clock.set(6_000);
        family.put("k", "1").unwrap();
        assert_eq!(family.created_ms().unwrap(), 5_000);
        assert!(store.created_ms().unwrap() > 5_000); // made by the system's clock
        let of_a_snapshot = store.snapshot(|_| family.created_ms()).unwrap();
        assert_eq!(of_a_snapshot, 5_000);
        let other = store.family("f").unwrap();
        drop(family);
        store.begin_write().unwrap();
        assert_eq!(other.created_ms().unwrap(), 5_000);
        store.rollback().unwrap();
    });
}
