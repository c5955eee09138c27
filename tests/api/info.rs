//! Tests of `Store::info` and `Family::count_with_ttl`.

use std::time::Duration;

use crate::common::{self, Scratch, TestClock, memory, numbered, python};
use kvstore::{Config, Eviction, Expiry, FamilySizes, JournalMode, SizeLimit, Store, StoreInfo};

/// Creates several families with keys with and without TTLs, small and large values, and keys that
/// are too long for their row.
fn fill(store: &Store) {
    let families = [store.get_or_create_family("a").unwrap(), store.get_or_create_family("Up\"per").unwrap()];
    store
        .transaction(|_| {
            for n in 0..6000 {
                store.put_with_expiry(
                    numbered(n),
                    [7; 90],
                    if n % 3 == 0 { Expiry::At(5000) } else { Expiry::Never },
                )?;
            }
            for (n, size) in [200, 5000, 70_000, 1_000_000].into_iter().enumerate() {
                families[0].put(numbered(n), vec![1; size])?;
            }
            families[1].put_with_expiry([2; 2400], [1; 10], Expiry::At(70_000))?;
            families[1].put_with_expiry(
                vec![3; common::max_key_size().min(60_000)],
                [1; 10_000],
                Expiry::At(80_000),
            )?;
            Ok::<_, kvstore::Error>(())
        })
        .unwrap();
}

/// Size of each table in bytes, which another copy of SQLite determines by reading every page.
fn counted(scratch: &Scratch) -> impl Fn(&str) -> u64 {
    let shown = python(
        &scratch.path(),
        "for name, size in con.execute('SELECT name, sum(pgsize) FROM dbstat GROUP BY name'): print(name, size)",
    );
    move |table| {
        let line = shown.lines().find_map(|line| line.strip_prefix(table)?.strip_prefix(' '));
        line.map_or(0, |size| size.parse().unwrap())
    }
}

fn sizes(info: &StoreInfo, family: &str) -> FamilySizes {
    info.families.iter().find(|known| known.name == family).unwrap().sizes.unwrap()
}

#[test]
fn table_sizes_match_dbstat_of_other_sqlite() {
    if common::is_of_a_file("sizes and modes are of a file") {
        return;
    }
    for page_size in [512, 4096, 65_536] {
        let scratch = Scratch::new();
        let store = scratch.open_with(&Config::new().page_size(page_size));
        fill(&store);
        // Free pages and tables of other programs count for no family.
        store.create_family("gone").unwrap().put("k", vec![0; 300_000]).unwrap();
        store.drop_family("gone").unwrap();
        python(&scratch.path(), "con.execute('CREATE TABLE theirs AS SELECT zeroblob(9000)'); con.commit()");
        let info = store.info().unwrap();
        let of = counted(&scratch);
        let mut all = info.free_bytes + info.other_bytes.unwrap();
        for (name, suffix) in [("default", "default"), ("a", "a"), ("Up\"per", "^Up\"per")] {
            let found = sizes(&info, name);
            assert_eq!(found.rows, of(&format!("data:{suffix}")), "{name} {page_size}");
            assert_eq!(found.large_values, of(&format!("blob:{suffix}")), "{name} {page_size}");
            let [keys, times] = ["ttl_key", "ttl_expiry"].map(|kind| of(&format!("{kind}:{suffix}")));
            assert_eq!(found.expiry_indexes, keys + times, "{name} {page_size}");
            all += found.total();
        }
        assert_eq!(all, info.file_bytes);
        assert!(info.free_bytes >= 200_000 && info.page_size == u64::from(page_size));
        store.checkpoint(kvstore::CheckpointMode::Truncate).unwrap();
        assert_eq!(std::fs::metadata(scratch.path()).unwrap().len(), store.info().unwrap().file_bytes);
    }
}

#[test]
fn info_describes_file_and_families() {
    let (scratch, clock) = (Scratch::new(), TestClock::at(1000));
    let store = scratch.open_at(&clock);
    fill(&store);
    let a = store.family("a").unwrap();
    a.set_default_ttl(Some(Duration::from_secs(60))).unwrap();
    a.set_write_tracking(true).unwrap();
    let in_a_file = !common::are_on_a_server();
    let limit = in_a_file.then(|| SizeLimit::new(50_000_000, Eviction::Soonest));
    if limit.is_some() {
        store.set_size_limit(limit).unwrap(); // setting it truncates the WAL
    }
    store.put("one", "1").unwrap();
    let info = store.info().unwrap();
    assert_eq!((info.format_version, info.size_limit), (1, limit));
    if in_a_file {
        assert_eq!(info.path, Some(std::fs::canonicalize(scratch.path()).unwrap()));
        assert_eq!(info.journal_mode, Some(JournalMode::Wal));
        assert_eq!(info.created_by.clone().unwrap(), format!("kvstore {}", kvstore::VERSION));
    }
    let [upper, a, default] = &info.families[..] else { panic!("{:?}", info.families) };
    assert_eq!([&*upper.name, &*a.name, &*default.name], ["Up\"per", "a", "default"]);
    assert_eq!((a.default_ttl, a.tracks_writes), (Some(Duration::from_secs(60)), true));
    let write_index = |sizes: Option<FamilySizes>| sizes.map(|sizes| sizes.write_index > 0);
    if in_a_file {
        assert_eq!([a, default].map(|family| write_index(family.sizes)), [Some(true), Some(false)]);
    }
    assert_eq!(
        [upper.next_expiry_ms, a.next_expiry_ms, default.next_expiry_ms],
        [Some(70_000), None, Some(5000)]
    );
    assert_eq!(a.created_ms, Some(1000));
    assert_eq!(
        [store.count_with_ttl().unwrap(), store.family("a").unwrap().count_with_ttl().unwrap()],
        [2000, 0]
    );
    if common::is_of_a_file("the rest is about the WAL") {
        return;
    }
    // All of the WAL is in the file after a checkpoint, and its length stays.
    assert!(info.wal_bytes > info.wal_pending_bytes, "{info:?}");
    store.checkpoint(kvstore::CheckpointMode::Passive).unwrap();
    let after = store.info().unwrap();
    assert!(after.wal_bytes > 0 && after.wal_pending_bytes == 0, "{after:?}");
    store.put("one", "more").unwrap();
    let after = store.info().unwrap();
    assert!((1..100_000).contains(&after.wal_pending_bytes), "{after:?}");
}

#[test]
fn info_works_read_only_in_memory_and_in_transactions() {
    if common::is_of_a_file("sizes and modes are of a file") {
        return;
    }
    for mode in [JournalMode::Wal, JournalMode::Delete] {
        let scratch = Scratch::new();
        let store = scratch.open_with(&Config::new().journal_mode(mode));
        fill(&store);
        let info = store.info().unwrap();
        let reader = scratch.open_with(&Config::new().journal_mode(mode).read_only(true));
        assert_eq!(reader.info().unwrap(), info);
        assert_eq!(info.journal_mode, Some(mode));
        if mode == JournalMode::Wal {
            // The state of one moment, although another handle writes meanwhile.
            let before = reader.snapshot(|seen| {
                store.put("large", vec![1; 3_000_000])?;
                seen.info()
            });
            assert_eq!(before.unwrap().file_bytes, info.file_bytes);
            let inside = store.transaction(|tx| {
                tx.delete("large")?;
                tx.info()
            });
            assert!(inside.unwrap().free_bytes >= 3_000_000);
        }
    }
    let store = memory();
    fill(&store);
    let info = store.info().unwrap();
    assert_eq!((info.path, info.journal_mode, info.wal_bytes), (None, None, 0));
    assert!(info.families.iter().all(|family| family.sizes.is_some_and(|sizes| sizes.total() > 0)));
}

#[test]
fn info_without_table_sizes_has_all_other_fields() {
    if common::is_of_a_file("sizes and modes are of a file") {
        return;
    }
    let scratch = Scratch::new();
    fill(&scratch.open());
    python(&scratch.path(), "con.execute('pragma auto_vacuum = 0'); con.execute('vacuum')");
    for sql in [true, false] {
        let info = scratch.open_with(&Config::new().sql_engine(sql)).info().unwrap();
        // Without a pointer map only `dbstat` has these figures, and it reads all pages.
        let told = sql || kvstore::engine() == "sql";
        assert!(info.families.len() == 3 && info.file_bytes > 1_000_000);
        assert_eq!(info.other_bytes.is_some(), told);
        assert!(info.families.iter().all(|family| family.sizes.is_some() == told));
    }
}
