//! Power cuts and failing calls while a store is encrypted, decrypted or given another secret:
//! afterwards it is the complete old or the complete new one. `shim` simulates the disk.

use std::fs;
use std::path::Path;
use std::time::Instant;

use kvstore::{Config, ErrorKind, Eviction, Expiry, JournalMode, Secret, SizeLimit, Store};
use rusqlite::Connection;

use crate::sentinels::{FAMILY, KEY, VALUE, contents, has, leaked};
use crate::shim::disk::{Cut, Disk, Random};
use crate::shim::{Call, Plan, Watch, torture_time};

/// Number of power cuts per test if no duration is set.
const SAMPLE: usize = 250;

fn filled(path: &Path, config: &Config) -> Store {
    let store = Store::open_with(path, config).unwrap();
    let family = store.create_family("family").unwrap();
    for n in 0..40 {
        store.put(format!("{KEY} {n}"), VALUE.repeat(1 + n % 5 * 20)).unwrap();
        family.put_with_expiry(format!("{KEY} {n}"), VALUE, Expiry::At(4_000_000_000_000)).unwrap();
    }
    family.put("large", VALUE.repeat(2_000)).unwrap();
    store.set_size_limit(Some(SizeLimit::new(8 << 20, Eviction::Soonest))).unwrap();
    store
}

/// Conversion of a store from one configuration to another.
struct Conversion {
    name: &'static str,
    before: Config,
    after: Config,
    run: fn(&Store) -> kvstore::Result<()>,
}

fn first() -> Secret {
    Secret::raw_key(&[1; 32])
}

fn second() -> Secret {
    Secret::raw_key(&[2; 32])
}

fn conversions() -> Vec<Conversion> {
    let wal = Config::new();
    let delete = Config::new().journal_mode(JournalMode::Delete);
    vec![
        Conversion {
            name: "encrypt",
            before: wal.clone(),
            after: wal.clone().secret(&first()),
            run: |store| store.encrypt(&first()),
        },
        Conversion {
            name: "encrypt pages of 512 bytes",
            before: delete.clone().page_size(512),
            after: delete.clone().secret(&first()),
            run: |store| store.encrypt(&first()),
        },
        Conversion {
            name: "rekey",
            before: wal.clone().secret(&first()),
            after: wal.clone().secret(&second()),
            run: |store| store.rekey(&second()),
        },
        Conversion {
            name: "decrypt",
            before: wal.clone().secret(&first()),
            after: wal,
            run: |store| store.decrypt(),
        },
    ]
}

impl Conversion {
    /// Checks what a power cut has left, and returns what is wrong. `done`: the conversion was
    /// acknowledged.
    fn examine(&self, dir: &Path, done: bool, expected: &[String], seed: u64) -> Result<(), String> {
        let path = dir.join("store.db");
        // Depending on the seed, other programs read the file first.
        match seed % 4 {
            0 => {
                // Another copy of SQLite, without the secret.
                let stranger = Connection::open(&path).unwrap();
                let _ =
                    stranger.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, i64>(0));
            }
            1 => drop(Store::open_with(&path, &Config::new().raw_key(&[9; 32])).map(|_| panic!("opened"))),
            _ => {}
        }
        let mut opened = None;
        let tries = if seed % 8 < 4 {
            [(&self.before, false), (&self.after, true)]
        } else {
            [(&self.after, true), (&self.before, false)]
        };
        for (config, is_new) in tries {
            match Store::open_with(&path, config) {
                Ok(store) if opened.is_none() => opened = Some((store, is_new)),
                Ok(_) => return Err("it opens as the old one and as the new one".into()),
                Err(e) if e.kind() == ErrorKind::AuthFailed => {}
                // The other one is open, with another secret.
                Err(e) if e.kind() == ErrorKind::Busy && opened.is_some() => {}
                Err(e) => return Err(format!("new: {is_new}: {:?} {e}", e.kind())),
            }
        }
        let Some((store, is_new)) = opened else { return Err("it opens with neither secret".into()) };
        if done && !is_new {
            return Err("it was acknowledged, and is the old one".into());
        }
        store.integrity_check().map_err(|e| format!("the integrity check: {e}"))?;
        if contents(&store) != expected {
            return Err("it has other contents".into());
        }
        store.put("afterwards", "1").map_err(|e| e.to_string())?;
        store.close().map_err(|e| e.to_string())?;
        if is_new && store_is_encrypted(&path) {
            let leaks = leaked(dir);
            if !leaks.is_empty() {
                return Err(format!("the old content is in {leaks:?}"));
            }
        }
        Ok(())
    }

    fn prepared(&self, path: &Path) -> (Store, Vec<String>) {
        filled(path, &self.before).close().unwrap();
        let store = Store::open_with(path, &self.before).unwrap();
        // Fills the log with more pages than the file has. Its remains must not count afterwards.
        (0..40).for_each(|n| store.put(format!("{KEY} {n}"), VALUE.repeat(n % 9 * 10)).unwrap());
        let expected = contents(&store);
        (store, expected)
    }

    fn cut_everywhere(&self) {
        let started = Instant::now();
        let ends = torture_time().map(|time| started + time);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store.db");
        filled(&path, &self.before).close().unwrap();
        let begin = Disk::holding(dir.path());
        let watch = Watch::on(dir.path(), true);
        let store = Store::open_with(&path, &self.before).unwrap();
        let expected = contents(&store);
        (self.run)(&store).unwrap();
        watch.mark(0);
        assert_eq!(contents(&store), expected);
        let log = watch.take_log();
        drop(store);
        drop(watch);
        let (mut tried, mut old) = (0, 0);
        let mut random = Random(log.len() as u64);
        loop {
            let mut disk = begin.clone();
            let mut done = false;
            for (point, event) in log.iter().enumerate() {
                disk.happens(event);
                done |= matches!(event, crate::shim::Event::Mark(..));
                let seed = random.next();
                for cut in [
                    Cut::Synced,
                    Cut::Written,
                    Cut::TornFirst(seed),
                    Cut::TornLast(seed),
                    Cut::Random(seed),
                    Cut::Random(seed + 1),
                    Cut::Random(seed + 2),
                ] {
                    if cut != Cut::Synced && disk.is_synced()
                        || ends.is_none() && random.below(log.len() * 7) >= SAMPLE
                        || ends.is_some_and(|ends| Instant::now() >= ends)
                    {
                        continue;
                    }
                    let left = tempfile::tempdir().unwrap();
                    disk.cut(cut, left.path());
                    if let Err(wrong) = self.examine(left.path(), done, &expected, random.next()) {
                        panic!("{}: {cut:?} after event {point} of {}: {wrong}", self.name, log.len());
                    }
                    tried += 1;
                    old += usize::from(!done);
                }
            }
            if ends.is_none_or(|ends| Instant::now() >= ends) {
                break;
            }
        }
        println!("power: {}: {} points, {tried} cuts, {old} of them before the end", self.name, log.len());
    }

    /// Makes each call fail, once, or from then on.
    fn fail_everywhere(&self) {
        let mut tried = 0;
        let count = {
            let dir = tempfile::tempdir().unwrap();
            let (store, _) = self.prepared(&dir.path().join("store.db"));
            let watch = Watch::on(dir.path(), false);
            watch.count();
            (self.run)(&store).unwrap();
            Call::ALL.map(|call| watch.calls(call))
        };
        let long = torture_time().is_some();
        for (call, calls) in Call::ALL.into_iter().zip(count) {
            let step = if long { 1 } else { (calls / 5).max(1) };
            let plans = (1..=calls).step_by(step as usize).flat_map(|nth| {
                call.faults().iter().flat_map(move |fault| {
                    [false, true].map(|from_then_on| Plan { call, nth, fault: *fault, from_then_on })
                })
            });
            for plan in plans {
                {
                    let dir = tempfile::tempdir().unwrap();
                    let path = dir.path().join("store.db");
                    let (store, expected) = self.prepared(&path);
                    let watch = Watch::on(dir.path(), false);
                    watch.fail(plan);
                    let done = (self.run)(&store);
                    watch.heal();
                    // The handle still works, whatever has happened.
                    store
                        .integrity_check()
                        .unwrap_or_else(|e| panic!("{} {plan:?} {done:?}: {e:?}", self.name));
                    assert_eq!(contents(&store), expected, "{} {plan:?} {done:?}", self.name);
                    let is_new = store.is_encrypted().unwrap() == self.after_is_encrypted()
                        && Store::open_with(&path, &self.before).is_err();
                    assert!(done.is_err() || is_new, "{} {plan:?}", self.name);
                    store.close().unwrap();
                    self.examine(dir.path(), done.is_ok(), &expected, tried)
                        .unwrap_or_else(|e| panic!("{} {plan:?} {done:?}: {e}", self.name));
                    tried += 1;
                }
            }
        }
        println!("faults: {}: {tried}", self.name);
    }

    fn after_is_encrypted(&self) -> bool {
        self.name != "decrypt"
    }
}

fn store_is_encrypted(path: &Path) -> bool {
    !fs::read(path).unwrap().starts_with(b"SQLite format 3\0")
}

#[test]
fn power_cut_during_conversion_loses_no_data() {
    conversions().iter().for_each(Conversion::cut_everywhere);
}

#[test]
fn failing_system_call_during_conversion_loses_no_data() {
    conversions().iter().for_each(Conversion::fail_everywhere);
}

/// A time in the year 3001, whose bytes occur nowhere by chance.
const TIME: i64 = 0x1D_A5_5A_A7_5A_C3;

/// Inspects everything that is ever written to any file.
#[test]
fn no_file_write_during_conversion_contains_plain_text() {
    let configs = [
        Config::new(),
        Config::new().sql_engine(true).cache_pages(10),
        Config::new().journal_mode(JournalMode::Delete).cache_pages(10),
    ];
    for (config, encrypted) in configs.iter().flat_map(|config| [(config, true), (config, false)]) {
        let config = if encrypted { config.clone().secret(&first()) } else { config.clone() };
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store.db");
        let watch = Watch::on(dir.path(), true);
        let store = Store::open_with(&path, &config).unwrap();
        let family = store.create_family(FAMILY).unwrap();
        family.set_write_tracking(true).unwrap();
        for n in 0..200 {
            family
                .put_with_expiry(format!("{KEY} {n}"), VALUE.repeat(1 + n % 9 * 30), Expiry::At(TIME))
                .unwrap();
            store.put(format!("{KEY} {n}"), VALUE).unwrap();
        }
        store.put("large", VALUE.repeat(30_000)).unwrap();
        let rolled_back: kvstore::Result<()> = store.transaction(|tx| {
            (0..500).try_for_each(|n| tx.put(format!("{KEY} {n}"), VALUE.repeat(40)))?;
            Err(kvstore::Error::new(ErrorKind::Busy, "enough"))
        });
        rolled_back.unwrap_err();
        store.backup(dir.path().join("backup.db"), |_, _| true).unwrap();
        store.checkpoint(kvstore::CheckpointMode::Truncate).unwrap();
        family.delete_range(&kvstore::KeyRange::prefix(format!("{KEY} 1").as_bytes())).unwrap();
        family.sweep(std::time::Duration::ZERO).unwrap();
        store.incremental_vacuum(None).unwrap();
        store.start_cleaner(std::time::Duration::from_millis(1), None).unwrap();
        family.put_with_expiry(KEY, VALUE, Expiry::At(1)).unwrap();
        store.put("later", VALUE).unwrap();
        if encrypted {
            store.stop_cleaner().unwrap();
            store.rekey(&second()).unwrap();
        }
        // The files that a crash would leave at this point.
        let crashed: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        let mut seen: Vec<Vec<u8>> = crashed.into_iter().filter_map(|path| fs::read(path).ok()).collect();
        store.close().unwrap();
        let log = watch.take_log();
        drop(watch);
        seen.extend(log.into_iter().filter_map(|event| match event {
            crate::shim::Event::Write(_, _, bytes) => Some(bytes),
            _ => None,
        }));
        assert!(seen.len() > 200);
        let time = TIME.to_be_bytes()[2..].to_vec();
        let mut reversed = time.clone();
        reversed.reverse();
        let words = [
            KEY.into(),
            VALUE.into(),
            FAMILY.into(),
            "ttl_key".into(),
            "SQLite format".into(),
            time,
            reversed,
        ];
        let shown = |word: &Vec<u8>| seen.iter().any(|bytes| has(bytes, word));
        let shown = words.iter().filter(|word| shown(word)).count();
        // The last form is not how SQLite stores numbers.
        assert_eq!(shown, if encrypted { 0 } else { words.len() - 1 }, "{config:?}");
    }
}
