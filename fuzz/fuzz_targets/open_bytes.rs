//! Opens arbitrary bytes as a store's file with a WAL or rollback journal. Nothing may crash or
//! hang; an expired key is never returned; a file that is rejected as not a store stays unchanged.
//! A store that passes the integrity check must work, give the same answers with both engines, and
//! stay sound.

#![no_main]

use std::cell::RefCell;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kvstore::{
    CheckpointMode, Config, Cursor, Direction, Error, ErrorKind, Expiry, ExpiryCondition, Family,
    JournalMode, KeyRange, Store, SyncLevel,
};
use libfuzzer_sys::fuzz_target;

#[path = "open_bytes/container.rs"]
mod container;

use container::{Beside, JOURNAL, MAPPED, NOW_MS, READ_ONLY, REPAIR_WAL};

/// Maximum number of entries of a scan. A damaged tree can lead to one page in many ways, so a scan
/// over it could be very long.
const MAX_ENTRIES: usize = 3000;
const MAX_FAMILIES: usize = 6;

/// Log of the calls and their results, and the first failure.
#[derive(Default)]
struct Report {
    text: String,
    failure: Option<String>,
}

impl Report {
    fn note<T: std::fmt::Debug>(&mut self, what: &str, answer: kvstore::Result<T>) -> Option<T> {
        match answer {
            Ok(answer) => {
                writeln!(self.text, "{what}: {answer:?}").unwrap();
                Some(answer)
            }
            Err(e) => {
                assert_ne!(e.kind(), ErrorKind::Misuse, "{what}: {e}");
                writeln!(self.text, "{what}: {:?}", e.kind()).unwrap();
                self.failure.get_or_insert_with(|| format!("{what}: {e}"));
                None
            }
        }
    }
}

/// Makes the checksums of a WAL right (SQLite's fileformat2.html, chapter 4.2).
fn repair_wal(wal: &mut [u8]) {
    let number = |bytes: &[u8], at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
    if wal.len() < 32 {
        return;
    }
    let magic = 0x377f_0682 | number(wal, 0) & 1;
    wal[..4].copy_from_slice(&magic.to_be_bytes());
    wal[4..8].copy_from_slice(&3_007_000_u32.to_be_bytes());
    let add = |(mut a, mut b): (u32, u32), bytes: &[u8]| {
        for pair in bytes.chunks_exact(8) {
            let word = |at: usize| match magic & 1 {
                0 => u32::from_le_bytes(pair[at..at + 4].try_into().unwrap()),
                _ => number(pair, at),
            };
            a = a.wrapping_add(word(0)).wrapping_add(b);
            b = b.wrapping_add(word(4)).wrapping_add(a);
        }
        (a, b)
    };
    let put = |wal: &mut [u8], at: usize, sum: (u32, u32)| {
        wal[at..at + 4].copy_from_slice(&sum.0.to_be_bytes());
        wal[at + 4..at + 8].copy_from_slice(&sum.1.to_be_bytes());
    };
    let page_size = number(wal, 8) as usize;
    let mut sum = add((0, 0), &wal[..24]);
    put(wal, 24, sum);
    if !(512..=65_536).contains(&page_size) || !page_size.is_power_of_two() {
        return;
    }
    let salts: [u8; 8] = wal[16..24].try_into().unwrap();
    for frame in wal[32..].chunks_exact_mut(24 + page_size) {
        frame[8..16].copy_from_slice(&salts);
        sum = add(add(sum, &frame[..8]), &frame[24..]);
        put(frame, 16, sum);
    }
}

/// Returns the entries that a cursor visits.
fn walk(
    report: &mut Report,
    what: &str,
    mut cursor: Cursor,
    dead_too: bool,
) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
    let mut entries = Vec::new();
    let mut moved = cursor.first();
    while let Ok(true) = moved {
        let expiry = cursor.expiry().unwrap();
        let dead = expiry.millis().is_some_and(|at| at <= NOW_MS);
        assert!(dead_too || !dead, "{what} shows a row that is dead: {expiry:?}");
        writeln!(report.text, "{what}: {:?} {:?} {expiry:?}", cursor.key(), cursor.value()).unwrap();
        entries.push((cursor.key().unwrap().to_vec(), cursor.value().map(<[u8]>::to_vec)));
        if entries.len() == MAX_ENTRIES {
            break;
        }
        moved = cursor.next();
    }
    report.note(what, moved);
    entries
}

fn read(report: &mut Report, family: &Family, sound: bool) {
    let forward = walk(report, "forward", family.cursor(KeyRange::all(), Direction::Forward), false);
    let mut reverse = walk(report, "reverse", family.cursor(KeyRange::all(), Direction::Reverse), false);
    let expiring = walk(report, "expiring", family.expiry_cursor(i64::MIN, i64::MAX).keys_only(), true);
    let counts = (report.note("count", family.count()), report.note("count_live", family.count_live()));
    if sound && forward.len() < MAX_ENTRIES {
        reverse.reverse();
        assert_eq!(forward, reverse);
        assert!(forward.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert_eq!(counts.1, Some(forward.len() as u64));
        assert!(counts.0 >= counts.1);
    }
    report.note("next_expiry", family.next_expiry());
    for (key, value) in forward.iter().take(40) {
        let got = report.note("get", family.get(key));
        if sound && got.as_ref() != Some(value) {
            panic!("a get of {key:?} gives {got:?}, a cursor {value:?}");
        }
        report.note("ttl", family.ttl(key));
    }
    for (key, _) in expiring.iter().take(10) {
        report.note("exists", family.exists(key));
    }
    let keys: Vec<_> = forward.iter().rev().take(5).map(|(key, _)| key).collect();
    report.note("get_many", family.get_many(&keys));
    report.note("missing", family.get("no such key"));
    report.note("prefix", family.prefix("lar").take(MAX_ENTRIES).collect::<kvstore::Result<Vec<_>>>());
    match family.row_cursor(b"p\0", &KeyRange::all(), Direction::Reverse) {
        Ok(cursor) => drop(walk(report, "rows", cursor, false)),
        Err(e) => drop(report.note::<()>("rows", Err(e))),
    }
    report.note("default_ttl", family.default_ttl());
    report.note(
        "write_time",
        family.tracks_writes().and_then(|tracks| match tracks {
            true => family.write_time("plain"),
            false => Ok(None),
        }),
    );
}

fn write(report: &mut Report, store: &Store, family: &Family) {
    let later = Expiry::At(NOW_MS + 60_000);
    report.note("put", family.put("plain", "other"));
    report.note("put large", family.put("large", vec![b'z'; 2000]));
    report.note("put small", family.put("large later", "small"));
    report.note("put_with_expiry", family.put_with_expiry("number", "7", later));
    report.note("delete", family.delete("later"));
    report.note("expire", family.set_expiry("plain", later, ExpiryCondition::Always));
    report.note("persist", family.persist("row 0033"));
    report.note("increment", family.increment("number", 5, Expiry::Never));
    report.note("touch", family.get_and_set_expiry("large", later));
    report.note("purge", family.purge_expired());
    report.note(
        "transaction",
        store.transaction(|_| -> Result<(), Error> {
            for n in 0..30 {
                family.put_with_expiry(format!("new {n}"), vec![b'n'; n * 9], later)?;
            }
            Ok(())
        }),
    );
    let undone = store.transaction(|_| -> Result<(), Error> {
        family.delete_range(&KeyRange::prefix(b"new"))?;
        Err(Error::new(ErrorKind::Busy, "undone"))
    });
    assert!(undone.is_err());
    report.note("delete_range", family.delete_range(&KeyRange::prefix(b"row 00")));
    if let Some(true) = report.note("tracks", family.tracks_writes()) {
        report.note("sweep", family.sweep(Duration::from_millis(500)));
    }
    report.note("tracking", family.set_write_tracking(family.name() != "Tracked"));
}

/// Reads and writes the store. Returns `true` if the integrity check passed at the start.
fn use_store(report: &mut Report, store: &Store, read_only: bool) -> bool {
    store.set_clock(|| NOW_MS);
    let sound = match store.integrity_check() {
        Ok(()) => true,
        Err(e) => {
            assert_ne!(e.kind(), ErrorKind::Misuse, "{e}");
            false
        }
    };
    let mut names = report.note("families", store.family_names()).unwrap_or_default();
    names.truncate(MAX_FAMILIES);
    names.push("default".into());
    for name in &names {
        match store.family(name) {
            Ok(family) => {
                read(report, &family, sound);
                if !read_only {
                    write(report, store, &family);
                    read(report, &family, sound);
                }
            }
            // A damaged catalogue may have names that no call accepts.
            Err(e) => assert!(!sound || e.kind() == ErrorKind::Error, "{name}: {e}"),
        }
    }
    if read_only {
        assert_eq!(store.put("a", "b").map_err(|e| e.kind()), Err(ErrorKind::ReadOnly));
        return sound;
    }
    report.note("next_expiry_all_families", store.next_expiry_all_families());
    report.note("purge_step", store.purge_step(Some(3), None));
    report.note(
        "create_family",
        store.create_family("fresh").and_then(|family| family.put_with_expiry("a", "b", Expiry::At(9))),
    );
    report.note("drop_family", store.drop_family("Tracked").or_else(not_there));
    report.note("vacuum", store.incremental_vacuum(None));
    report.note("checkpoint", store.checkpoint(CheckpointMode::Truncate).map(drop));
    if sound {
        if let Some(failure) = &report.failure {
            panic!("the check found the store sound, but {failure}");
        }
        check_again(store);
    }
    sound
}

/// Asserts that a store that was sound is still sound.
fn check_again(store: &Store) {
    let Err(e) = store.integrity_check() else { return };
    // SQLite checks the pointer map's entries of root pages only if its schema cache does not begin
    // with a view, which the calls above may have changed. Nothing depends on the second number of
    // such an entry.
    let is_of_roots =
        |line: &str| line.starts_with("Bad ptr map entry") && line.contains("expected=(1,0) got=(1,");
    let text = e.to_string();
    let (found, _) = text.rsplit_once(": go back").unwrap_or((&text, ""));
    assert!(
        found.lines().skip(1).all(is_of_roots),
        "a store was sound, and what was done with it damaged it: {e:?}"
    );
}

fn not_there(e: Error) -> kvstore::Result<()> {
    if e.kind() == ErrorKind::NotFound { Ok(()) } else { Err(e) }
}

/// Directory with the files of one input, created for each input.
struct Files {
    dir: tempfile::TempDir,
}

impl Files {
    fn path(&self) -> PathBuf {
        self.dir.path().join("store")
    }

    fn make(&self, main: &[u8], beside: &[u8], kind: Beside) {
        for entry in fs::read_dir(self.dir.path()).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
        let path = self.path();
        fs::write(&path, main).unwrap();
        if !beside.is_empty() {
            fs::write(kind.path(&path), beside).unwrap();
        }
    }
}

thread_local!(static FILES: RefCell<Files> = RefCell::new(Files { dir: tempfile::tempdir().unwrap() }));

/// Opens the files with one engine and makes all calls. Returns the log and whether the store was
/// sound; `None` if it did not open.
fn run(path: &Path, config: &Config, flags: u8, main: &[u8], has_log: bool) -> Option<(String, bool)> {
    let mut report = Report::default();
    if flags & READ_ONLY != 0 {
        match Store::open_with(path, &config.clone().read_only(true)) {
            Ok(store) => {
                use_store(&mut report, &store, true);
                assert_eq!(fs::read(path).unwrap(), main, "a read-only handle wrote to the file");
                drop(store);
            }
            Err(e) => writeln!(report.text, "read-only: {:?}", e.kind()).unwrap(),
        }
        report.failure = None;
    }
    let store = match Store::open_with(path, config) {
        Ok(store) => store,
        Err(e) => {
            assert_ne!(e.kind(), ErrorKind::Misuse, "{e}");
            // A file with the application id of a store is opened as one, together with its log.
            // Replaying the log may change it.
            let is_marked = main.get(68..72) == Some(b"KVS1") && has_log;
            if matches!(e.kind(), ErrorKind::NotADatabase | ErrorKind::AuthFailed) && !is_marked {
                assert_eq!(fs::read(path).unwrap(), main, "refused, but written to: {e}");
            }
            return None;
        }
    };
    let sound = use_store(&mut report, &store, false);
    let closed = store.close();
    drop(store);
    if sound {
        closed.expect("a sound store could not be closed");
        let store = Store::open_with(path, config).expect("a sound store could not be opened again");
        store.set_clock(|| NOW_MS);
        check_again(&store);
    }
    Some((report.text, sound))
}

fuzz_target!(|input: &[u8]| {
    assert_eq!(kvstore::engine(), "btree", "the flags of .cargo/config.toml are not in use");
    let Some((flags, main, beside)) = container::unpack(input) else { return };
    let kind = if flags & JOURNAL != 0 { Beside::Journal } else { Beside::Wal };
    let mut beside = beside.to_vec();
    if kind == Beside::Wal && flags & REPAIR_WAL != 0 {
        repair_wal(&mut beside);
    }
    let config = Config::new()
        .sync(SyncLevel::Off)
        .mmap_size(if flags & MAPPED != 0 { 1 << 20 } else { 0 })
        .journal_mode(if kind == Beside::Journal { JournalMode::Delete } else { JournalMode::Wal });
    FILES.with_borrow(|files| {
        let [direct, sql] = [false, true].map(|sql| {
            files.make(main, &beside, kind);
            run(&files.path(), &config.clone().sql_engine(sql), flags, main, !beside.is_empty())
        });
        if let (Some(direct), Some(sql)) = (direct, sql) {
            assert_eq!(direct.1, sql.1, "the engines do not agree whether the store is sound");
            if direct.1 && direct.0 != sql.0 {
                let (a, b) = (direct.0.lines(), sql.0.lines());
                let differs = a.zip(b).find(|(a, b)| a != b);
                panic!("the engines do not agree: {differs:?}");
            }
        }
    });
});
