//! Uses every feature of a store that may be damaged, and checks the results.

use std::fs;
use std::path::Path;
use std::time::Duration;

use kvstore::{
    CheckpointMode, Config, Cursor, Direction, Error, ErrorKind, Expiry, ExpiryCondition, Family, KeyRange,
    MAX_KEY_SIZE, Result, Store, SyncLevel,
};

use crate::common::TestClock;

/// Families of the files in addition to the default one.
pub const FAMILIES: [&str; 4] = ["Tracked", "deep", "large", "ttl"];

/// Clock reading when the files are opened.
pub const NOW: i64 = 1_000_000;

/// A scan with more entries than this would not end: no file of these tests has as many rows.
const MANY: usize = 20_000;

/// Result of a read: a checksum of what was read, or the kind of its error.
pub type Answer = Result<u64, ErrorKind>;

/// The checksum of a missing entry.
pub const MISSING: u64 = 0;

/// Results of the calls.
#[derive(Default)]
pub struct Answers {
    /// Results of the reads, in which both engines must agree.
    pub reads: Vec<(String, Answer)>,
    pub calls: u64,
    pub errors: u64,
    sql: bool,
    /// Results that a call must never return.
    pub wrong: Vec<String>,
}

impl Answers {
    fn take<T>(&mut self, call: &str, answer: Result<T>) -> Option<T> {
        self.calls += 1;
        answer
            .inspect_err(|e| {
                self.errors += 1;
                self.judge(call, e);
            })
            .ok()
    }

    fn read<T>(&mut self, call: &str, answer: Result<T>, sum: impl FnOnce(&T) -> u64) -> Option<T> {
        let noted = answer.as_ref().map(sum).map_err(Error::kind);
        self.reads.push((call.to_owned(), noted));
        self.take(call, answer)
    }

    /// Checks that the kind of the error can be caused by damage, and that its text says more than
    /// the kind.
    fn judge(&mut self, call: &str, error: &Error) {
        let text = error.to_string();
        let clear = match error.kind() {
            ErrorKind::Corrupt | ErrorKind::NotADatabase | ErrorKind::CantOpen | ErrorKind::ReadOnly => true,
            // A truncated file causes a read error. A name in the catalogue can be anything.
            ErrorKind::Io | ErrorKind::NotFound => true,
            // Caused by an earlier step: a family is missing from a damaged catalogue, or a table
            // is a view.
            ErrorKind::Error => true,
            // SQLite returns this for a page number that is too large for any file.
            ErrorKind::Full => text.contains("the file is damaged"),
            // SQLite returns this for a record with a length of 2 GiB.
            ErrorKind::NoMemory => self.sql,
            // No other handle exists, memory and disk are sufficient, and no handle is misused.
            _ => false,
        };
        if !clear || text.len() < 8 || text.contains("internal") || text.contains("panic") {
            self.wrong.push(format!("{call}: {:?}: {text}", error.kind()));
        }
    }
}

/// FNV-1a.
fn sum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// Configuration for the store at `path` with one engine, without syncs.
pub fn config(sql: bool) -> Config {
    Config::new().sql_engine(sql).sync(SyncLevel::Off)
}

/// Opens the store, makes all calls, closes it, and reads it again.
pub fn everything(path: &Path, sql: bool, page_size: usize, syncs: bool) -> Answers {
    let config = &config(sql);
    let mut answers = Answers { sql, ..Answers::default() };
    if let Some(store) = answers.read("open", Store::open_with(path, config), |_| 1) {
        TestClock::at(NOW).drive(&store);
        read(&mut answers, &store, page_size);
        let sound = answers.read("integrity_check", store.integrity_check(), |()| 1).is_some();
        write(&mut answers, &store, page_size);
        maintain(&mut answers, &store, path, syncs);
        // A store that was undamaged before must be undamaged now.
        if sound && let Err(e) = store.integrity_check() {
            answers.wrong.push(format!("a store that was sound is damaged by its use: {e}"));
        }
        // A repaired store must be undamaged, too.
        if answers.take("repair", store.repair()).is_some()
            && let Err(e) = store.integrity_check()
        {
            answers.wrong.push(format!("a store that was repaired is still damaged: {e}"));
        }
        answers.take("close", store.close());
    }
    if let Some(store) = answers.take("open again", Store::open_with(path, config)) {
        answers.take("iterate again", store.iter().take(MANY).try_for_each(|entry| entry.map(drop)));
        answers.take("check again", store.integrity_check());
    }
    answers
}

/// Length of a key of which four fit on a page.
pub fn long_key(page_size: usize) -> usize {
    page_size / 5
}

/// The length of the longest keys of the files.
pub const LONGEST: usize = MAX_KEY_SIZE;

/// Keys that are in the files, and some that are not.
pub fn keys(family: &str, page_size: usize) -> Vec<Vec<u8>> {
    match family {
        "deep" => (0..50_u8)
            .map(|n| [&[n / 9, n, 0][..], &vec![n; long_key(page_size)]].concat())
            .chain([vec![0xF0; LONGEST], vec![0xF1; LONGEST], b"none".to_vec()])
            .collect(),
        "large" => (0..4).map(|n| vec![n, 0]).chain([b"large and mortal".to_vec()]).collect(),
        "default" => (0..12).map(|n| vec![b'd', n, 0]).chain([vec![b'd']]).collect(),
        _ => (0..12).map(|n| vec![n, 0]).collect(),
    }
}

fn scan_to_end(answers: &mut Answers, call: &str, cursor: &mut Cursor) {
    let mut seen = MISSING;
    let mut rows = 0;
    let walked = (|| {
        let mut there = cursor.first()?;
        while there && rows <= MANY {
            rows += 1;
            seen = seen.rotate_left(5) ^ sum(cursor.key().unwrap_or_default());
            seen = seen.rotate_left(5) ^ sum(cursor.value().unwrap_or_default());
            there = cursor.next()?;
        }
        Ok(())
    })();
    if rows > MANY {
        answers.wrong.push(format!("{call}: an iterator does not end"));
    }
    answers.read(call, walked, |()| seen);
}

fn read(answers: &mut Answers, store: &Store, page_size: usize) {
    answers.take("families", store.family_names());
    answers.take("stats", store.stats());
    answers.take("info", store.info());
    answers.read("next_expiry_of_all", store.next_expiry_all_families(), |next| {
        sum(format!("{next:?}").as_bytes())
    });
    for name in ["default"].into_iter().chain(FAMILIES) {
        if let Some(family) = answers.read(&format!("family {name}"), store.family(name), |_| 1) {
            read_family(answers, name, &family, page_size);
        }
    }
}

fn read_family(answers: &mut Answers, name: &str, family: &Family, page_size: usize) {
    for (n, key) in keys(name, page_size).iter().enumerate() {
        let call = format!("get {name} {n}");
        answers.read(&call, family.get(key), |value| value.as_ref().map_or(MISSING, |value| sum(value)));
        if n % 4 == 0 {
            answers.read(&format!("exists {name} {n}"), family.exists(key), |there| u64::from(*there));
            answers
                .read(&format!("ttl {name} {n}"), family.ttl(key), |ttl| sum(format!("{ttl:?}").as_bytes()));
        }
    }
    for direction in [Direction::Forward, Direction::Reverse] {
        let mut all = family.cursor(KeyRange::all(), direction);
        scan_to_end(answers, &format!("walk {name} {direction:?}"), &mut all);
        answers.take("seek", all.seek([3, 0]));
    }
    scan_to_end(
        answers,
        &format!("prefix {name}"),
        &mut family.cursor(KeyRange::prefix(&[2]), Direction::Forward),
    );
    scan_to_end(
        answers,
        &format!("keys {name}"),
        &mut family.cursor(KeyRange::all(), Direction::Forward).keys_only(),
    );
    scan_to_end(answers, &format!("expiring {name}"), &mut family.expiry_cursor(i64::MIN, i64::MAX));
    answers.read(&format!("count {name}"), family.count(), |count| *count);
    answers.take("count_live", family.count_live());
    answers.take("count_ttl", family.count_with_ttl());
    answers.read(&format!("next_expiry {name}"), family.next_expiry(), |next| {
        next.unwrap_or(-1).cast_unsigned()
    });
    answers.take("default_ttl", family.default_ttl());
    answers.take("tracks_writes", family.tracks_writes());
    answers.take("write_time", family.write_time([3, 0]));
}

/// Writes between the steps of a walk, which then continues after its current key.
fn scan_and_write(answers: &mut Answers, store: &Store) {
    let Some(other) = answers.take("create other", store.get_or_create_family("other")) else { return };
    for name in ["default", "ttl"] {
        let Ok(family) = store.family(name) else { continue };
        let mut rows = 0;
        let walked = family.iter().take(MANY).try_for_each(|entry| {
            rows += 1;
            let (key, _) = entry?;
            if key.get(1).is_some_and(|byte| byte % 2 == 0) { other.put("seen", "1") } else { Ok(()) }
        });
        if rows == MANY {
            answers.wrong.push(format!("an iterator over {name} does not end while other keys are written"));
        }
        answers.take("scan and write", walked);
    }
}

fn write(answers: &mut Answers, store: &Store, page_size: usize) {
    scan_and_write(answers, store);
    for name in ["default"].into_iter().chain(FAMILIES) {
        let Ok(family) = store.family(name) else { continue };
        for (n, key) in keys(name, page_size).iter().enumerate() {
            write_one(answers, &family, key, n);
        }
        answers.take("put between", family.put(b"\x02between", vec![1; 90]));
    }
    let in_one = store.transaction(|tx| {
        tx.put("a", "1")?;
        tx.put_with_ttl("b", vec![2; 2_000], Duration::from_secs(1))?;
        tx.delete([b'd', 2, 0]).map(drop)
    });
    answers.take("transaction", in_one);
}

/// Makes one of several kinds of writes.
fn write_one(answers: &mut Answers, family: &Family, key: &[u8], n: usize) {
    match n % 8 {
        0 => answers.take("put", family.put(key, "new")).is_some(),
        1 => answers.take("put large", family.put(key, vec![7; 1_500])).is_some(),
        2 => answers.take("put_ttl", family.put_with_ttl(key, "new", Duration::from_secs(5))).is_some(),
        3 => answers.take("delete", family.delete(key)).is_some(),
        4 => answers
            .take("expire", family.set_expiry(key, Expiry::At(NOW + 77), ExpiryCondition::Always))
            .is_some(),
        5 => answers.take("persist", family.persist(key)).is_some(),
        6 => answers.take("cas", family.compare_and_swap(key, [n as u8; 20], "x", Expiry::Never)).is_some(),
        _ => answers.take("increment", family.increment(key, 1, Expiry::Never)).is_some(),
    };
}

fn maintain(answers: &mut Answers, store: &Store, path: &Path, syncs: bool) {
    answers.take("purge_step", store.purge_step(Some(4), None));
    for name in FAMILIES {
        let Ok(family) = store.family(name) else { continue };
        answers.take("purge", family.purge_expired());
        if name == "Tracked" {
            answers.take("sweep", family.sweep(Duration::from_millis(1)));
        }
        if name == "large" {
            answers.take("clear", family.clear());
        }
        if name == "ttl" {
            answers.take("track", family.set_write_tracking(true));
        }
    }
    answers.take("checkpoint", store.checkpoint(CheckpointMode::Truncate));
    if syncs {
        let backup = path.with_extension("backup");
        answers.take("backup", store.backup(&backup, |_, _| true));
        let _ = fs::remove_file(&backup);
        answers.take("sync", store.sync());
    }
    answers.take("drop_family", store.drop_family("deep"));
    answers.take("create_family", store.create_family("new").and_then(|new| new.put("a", "1")));
    answers.take("vacuum", store.incremental_vacuum(None));
    answers.take("clear default", store.clear());
}
