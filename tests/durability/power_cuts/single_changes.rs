//! Power cuts at particular changes: failed syncs, torn writes, the first commit, removed data.

use std::collections::BTreeMap;
use std::path::Path;

use super::{Promise, brief, record, record_with, short_wal, with_journal};
use crate::shim::disk::{Cut, Disk, Random};
use crate::shim::scenario::many_steps;
use crate::shim::{Call, Event, Fault, Plan, Watch};
use kvstore::{Config, JournalMode, Store, SyncLevel};

/// A failed sync may lose what it was to write to the database; it is written again before it
/// counts.
#[test]
fn pages_of_failed_database_sync_are_written_again() {
    let level = SyncLevel::Normal;
    let steps = many_steps();
    let (mut failed, mut tried) = (0, 0);
    let syncs = record(&short_wal(), level, &steps).log.into_iter();
    for nth in 1..=syncs.filter(|event| matches!(event, Event::Sync(_) | Event::SyncDirectory)).count() as u64
    {
        let plan = Plan {
            call: Call::Sync,
            nth,
            fault: Fault::Code(rusqlite::ffi::SQLITE_IOERR),
            from_then_on: false,
        };
        let recording = record_with(&short_wal(), level, &steps, Some(plan));
        let is_database = |id: usize| {
            recording.log.iter().any(
                |event| matches!(event, Event::Create(created, name) if *created == id && name == "store.db"),
            )
        };
        let forgotten = recording.log.iter().position(|event| matches!(event, Event::Forget(_)));
        let Some(forgotten) = forgotten else { continue };
        if !matches!(recording.log[forgotten], Event::Forget(id) if is_database(id)) {
            continue;
        }
        failed += 1;
        let last = recording.log.iter().rposition(|event| matches!(event, Event::Mark(..))).unwrap();
        let (mut disk, mut promise) = (Disk::default(), Promise::default());
        for (point, event) in recording.log.iter().enumerate().take(last + 1) {
            disk.happens(event);
            promise = recording.promise(promise, event);
            if point > forgotten && (point == last || point % 12 == 0) {
                let dir = tempfile::tempdir().unwrap();
                disk.cut(Cut::Synced, dir.path());
                recording.examine(dir.path(), promise).unwrap_or_else(|wrong| {
                    panic!("sync {nth} failed, cut after event {point} ({}): {wrong}", brief(event))
                });
                tried += 1;
            }
        }
    }
    println!("power: {failed} syncs failed, {tried} cuts");
    assert!(failed >= 5 && tried >= 100, "{failed} failed, {tried} cuts");
}

/// A torn journal must not be rolled back at any sync level, because its checksum covers only every
/// 200th byte of a page (fileformat2.html, chapter 3).
/// byte only (fileformat2.html, chapter 3).
#[test]
fn torn_write_in_creation_or_conversion_damages_no_store() {
    let normal = Config::new().page_size(1024).sync(SyncLevel::Normal);
    let mut tried = 0;
    for from in [None, Some(JournalMode::Delete), Some(JournalMode::Wal)] {
        for to in [JournalMode::Delete, JournalMode::Wal] {
            let dir = tempfile::tempdir().unwrap();
            let path = |dir: &Path| dir.join("store.db");
            if let Some(from) = from {
                let store = Store::open_with(path(dir.path()), &normal.clone().journal_mode(from)).unwrap();
                store.put("before", vec![7; 300]).unwrap();
                store.close().unwrap();
            }
            let mut disk = Disk::holding(dir.path());
            let watch = Watch::on(dir.path(), true);
            let config = normal.clone().journal_mode(to);
            let store = Store::open_with(path(dir.path()), &config).unwrap();
            store.put("a", vec![1; 300]).unwrap();
            store.put("a", vec![2; 300]).unwrap();
            store.close().unwrap();
            let log = watch.take_log();
            drop(watch);
            let mut random = Random(99);
            for (point, event) in log.iter().enumerate() {
                disk.happens(event);
                for _ in 0..if disk.is_synced() { 0 } else { 40 } {
                    let seed = random.next();
                    let cut = if random.below(2) == 0 { Cut::TornFirst(seed) } else { Cut::Random(seed) };
                    let left = tempfile::tempdir().unwrap();
                    disk.cut(cut, left.path());
                    tried += 1;
                    let said =
                        || format!("{from:?} to {to:?}: {cut:?} after event {point} ({})", brief(event));
                    let store = Store::open_with(path(left.path()), &config)
                        .unwrap_or_else(|e| panic!("{}: {e}", said()));
                    store.integrity_check().unwrap_or_else(|e| panic!("{}: {e}", said()));
                    let before = from.map(|_| vec![7; 300]);
                    assert_eq!(store.get("before").unwrap(), before, "{}", said());
                }
            }
        }
    }
    println!("power: {tried} cuts of openings");
}

#[test]
fn first_commit_survives_power_cut_journal_full() {
    let config = with_journal().sync(SyncLevel::Full);
    let dir = tempfile::tempdir().unwrap();
    let watch = Watch::on(dir.path(), true);
    let store = Store::open_with(dir.path().join("store.db"), &config).unwrap();
    store.put("a", "1").unwrap();
    let mut disk = Disk::default();
    watch.take_log().iter().for_each(|event| disk.happens(event));
    let left = tempfile::tempdir().unwrap();
    disk.cut(Cut::Synced, left.path());
    let store = Store::open_with(left.path().join("store.db"), &config).unwrap();
    assert_eq!(store.get("a").unwrap().as_deref(), Some(&b"1"[..]));
}

/// Space that is cut off a file, or removed with the WAL, returns to the file system as zeros on
/// the disk.
#[test]
fn secure_delete_zeroes_truncated_and_removed_space_on_disk() {
    for (mode, sync) in [
        (JournalMode::Wal, SyncLevel::Normal),
        (JournalMode::Wal, SyncLevel::Full),
        (JournalMode::Delete, SyncLevel::Normal),
    ] {
        let config = Config::new().page_size(1024).wal_pages(40).journal_mode(mode).sync(sync);
        let cut = [false, true].map(|secure| cut_off(&config.clone().secure_delete(secure)));
        assert!(cut[0].1 > 0, "{mode:?}: without it all is overwritten as well");
        assert!(cut[1].0 > 100_000 && cut[1].1 == 0, "{mode:?}, {sync:?}: {cut:?}");
    }
}

/// Returns the number of bytes cut off or removed from the database and its WAL, and how many of
/// these are not zero, or may not be zero on the disk.
fn cut_off(config: &Config) -> (usize, usize) {
    let dir = tempfile::tempdir().unwrap();
    let watch = Watch::on(dir.path(), true);
    let store = Store::open_with(dir.path().join("store.db"), config).unwrap();
    store.put("a", vec![1; 200_000]).unwrap();
    store.put("b", vec![2; 200_000]).unwrap();
    for n in 0..200 {
        store.put(format!("{n}"), vec![3; 100]).unwrap();
    }
    store.delete("a").unwrap();
    store.incremental_vacuum(None).unwrap();
    store.put("c", vec![4; 3_000]).unwrap();
    store.close().unwrap();
    let mut files: BTreeMap<usize, (Vec<u8>, bool)> = BTreeMap::new();
    let mut names = BTreeMap::new();
    let (mut all, mut left) = (0, 0);
    let mut goes = |bytes: &[u8], synced: bool| {
        all += bytes.len();
        left += bytes.iter().filter(|byte| **byte != 0 || !synced).count();
    };
    for event in watch.take_log() {
        match event {
            Event::Create(id, name) => {
                names.insert(name, id);
                files.insert(id, (Vec::new(), true));
            }
            Event::Write(id, at, bytes) => {
                let (content, synced) = files.get_mut(&id).unwrap();
                let end = at as usize + bytes.len();
                content.resize(content.len().max(end), 0);
                content[at as usize..end].copy_from_slice(&bytes);
                *synced = false;
            }
            Event::Sync(id) => files.get_mut(&id).unwrap().1 = true,
            Event::Truncate(id, length) => {
                let (content, synced) = files.get_mut(&id).unwrap();
                let is_a_journal = names.iter().any(|(name, of)| *of == id && name.ends_with("-journal"));
                if let (Some(cut), false) = (content.get(length as usize..), is_a_journal) {
                    goes(cut, *synced);
                }
                content.resize(length as usize, 0);
            }
            Event::Unlink(name) if name.ends_with("-wal") => {
                let (content, synced) = &files[&names[&name]];
                goes(content, *synced);
            }
            _ => {}
        }
    }
    (all, left)
}
