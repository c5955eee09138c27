//! Power cuts: whatever the disk had written by then, a plain open of the store succeeds, the store
//! is sound, and it has everything that was promised to be durable.
//!
//! A scenario runs once on a simulated disk that logs every change (`shim`). For points in this
//! log, the test creates the files that a power cut could have left, and opens them. With
//! `KVSTORE_TORTURE_SECONDS` each test tries all points, with new seeds until the time is over;
//! otherwise it tries a sample. With `--nocapture` the tests print the number of cuts.
#![allow(unsafe_code)] // the shim

mod scenarios;
mod single_changes;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Instant;

use crate::shim::disk::{Cut, Disk, Random};
use crate::shim::scenario::{BOUNDED_LOOKED_AT, Contents, DEFAULT, Step, World, steps};
use crate::shim::{Event, Plan, Watch, torture_time};
use kvstore::{Config, JournalMode, Store, SyncLevel};
use rusqlite::Connection;

/// Number of power cuts per test if no duration is set.
const SAMPLE: usize = 450;

/// Number of first power cuts in tests with two, if no duration is set.
const SECOND_SAMPLE: usize = 25;

/// A recorded run of a scenario: the log of the disk, and the content that the store had to have
/// after each step.
struct Recording {
    config: Config,
    is_encrypted: bool,
    /// Whether a commit is on the disk when it is acknowledged.
    full: bool,
    log: Vec<Event>,
    /// Content at mark n. The first one is that of a new store.
    states: Vec<Contents>,
    /// Whether everything before mark n is on the disk.
    durable: Vec<bool>,
    steps: Vec<String>,
    /// The backups, with the mark before each.
    backups: Vec<(&'static str, usize)>,
    /// Time at which contents are compared. Keys that have expired by then may be present or not.
    looked_at: i64,
}

fn record(config: &Config, level: SyncLevel, steps: &[Step]) -> Recording {
    record_with(config, level, steps, None)
}

/// Like `record`, with a failing call. Ends at the first step that fails because of it.
fn record_with(config: &Config, level: SyncLevel, steps: &[Step], plan: Option<Plan>) -> Recording {
    let config = &config.clone().sync(level);
    let dir = tempfile::tempdir().unwrap();
    let watch = Watch::on(dir.path(), true);
    let mut world = World::new(dir.path(), config.clone());
    let mut contents = Contents::of_a_new_store();
    let mut recording = Recording {
        // Without secure_delete after the cut: files that are not watched lack the methods that our
        // VFS uses here.
        config: config.clone().secure_delete(false),
        is_encrypted: format!("{config:?}").contains("Secret"), // a configuration has no method for this
        full: level == SyncLevel::Full,
        log: Vec::new(),
        states: vec![contents.clone()],
        durable: vec![true],
        steps: vec!["the first open".into()],
        backups: Vec::new(),
        looked_at: world.looked_at,
    };
    if steps.iter().any(|step| matches!(step, Step::SizeLimit(_))) {
        recording.looked_at = BOUNDED_LOOKED_AT;
    }
    world.open().unwrap();
    watch.mark(0);
    plan.into_iter().for_each(|plan| watch.fail(plan));
    for step in steps {
        if let Step::Backup(name) = step {
            recording.backups.push((name, recording.states.len() - 1));
        }
        match step.call(&mut world) {
            Err(_) if plan.is_some() => break,
            done => done.unwrap_or_else(|e| panic!("{step:?}: {e}")),
        }
        step.happens(&mut contents, world.now());
        watch.mark(recording.states.len());
        recording.states.push(contents.clone());
        recording.durable.push(step.makes_durable());
        recording.steps.push(format!("{step:?}").chars().take(80).collect());
    }
    recording.log = watch.take_log();
    if plan.is_none() {
        // Checks the model itself; this is not part of the log.
        assert_eq!(Contents::of(world.store()).unwrap(), contents.live(world.now()));
        world.close().unwrap();
    }
    recording
}

/// Promises that hold at a point of the log.
#[derive(Clone, Copy, Default)]
struct Promise {
    /// The last mark.
    acknowledged: Option<usize>,
    /// Oldest state that may be found.
    oldest: usize,
    /// Whether the store was opened after a first power cut, [`SECOND`] was written, and that write
    /// was acknowledged.
    second: Option<bool>,
}

/// Key that is written between two power cuts.
const SECOND: &str = "after the first cut";

impl Recording {
    /// Promises that hold after an event.
    fn promise(&self, before: Promise, event: &Event) -> Promise {
        let Event::Mark(mark, _) = event else { return before };
        let oldest = if self.full || self.durable[*mark] { *mark } else { before.oldest };
        Promise { acknowledged: Some(*mark), oldest, second: None }
    }

    /// Opens the disk that a power cut has left in `dir`, and returns what is wrong.
    fn examine(&self, dir: &Path, promise: Promise) -> Result<(), String> {
        let said = |what: &'static str| move |e: kvstore::Error| format!("{what}: {:?}: {e}", e.kind());
        let path = dir.join("store.db");
        let store = Store::open_with(&path, &self.config).map_err(said("the store does not open"))?;
        let now = self.looked_at;
        store.set_clock(move || now);
        store.integrity_check().map_err(said("the integrity check"))?;
        let mut found = Contents::of(&store).map_err(said("reading"))?;
        let second = found.0.get_mut(DEFAULT).unwrap().remove(SECOND.as_bytes());
        if promise.second == Some(true) && second.is_none() {
            return Err("what was acknowledged after the first power cut is not there".into());
        }
        let newest = promise.acknowledged.map_or(0, |mark| mark + 1).min(self.states.len() - 1);
        let is_it = |state: &Contents| state.live(now) == found;
        if !self.states[promise.oldest..=newest].iter().any(is_it) {
            let old = self.states.iter().rposition(is_it);
            return Err(format!(
                "the contents are those of mark {old:?} instead of one from {} to {newest}:\n{}\ninstead of\n{}",
                promise.oldest,
                found.sketch(),
                self.states[newest].live(now).sketch()
            ));
        }
        for (name, mark) in &self.backups {
            let path = dir.join(name);
            let finished = promise.acknowledged.is_some_and(|acknowledged| acknowledged > *mark);
            if !path.exists() {
                if finished {
                    return Err(format!("the backup {name} is not there"));
                }
                continue;
            }
            let backup = Store::open_with(&path, &self.config).map_err(said("the backup does not open"))?;
            backup.set_clock(|| 1);
            backup.integrity_check().map_err(said("the backup's integrity check"))?;
            if Contents::of(&backup).map_err(said("reading the backup"))? != self.states[*mark] {
                return Err(format!("the backup {name} has other contents"));
            }
        }
        store.delete(SECOND).map_err(said("a deletion"))?;
        self.go_on(&store, found).map_err(said("going on"))?;
        store.close().map_err(said("closing"))?;
        if self.is_encrypted {
            return Ok(()); // the store's own check includes SQLite's
        }
        let conn = Connection::open(&path).unwrap();
        let check: String = conn
            .query_row("PRAGMA integrity_check", [], |row| row.get(0))
            .map_err(|e| format!("SQLite's integrity check: {e}"))?;
        if check == "ok" { Ok(()) } else { Err(format!("SQLite's integrity check: {check}")) }
    }

    /// Checks that the store can be written and read.
    fn go_on(&self, store: &Store, found: Contents) -> kvstore::Result<()> {
        let mut expected = found;
        store.put("after the cut", "1")?;
        store.put_with_expiry("large after the cut", vec![2; 5_000], kvstore::Expiry::At(200_000))?;
        let entries = expected.0.get_mut(DEFAULT).unwrap();
        entries.insert(b"after the cut".to_vec(), (b"1".to_vec(), None));
        entries.insert(b"large after the cut".to_vec(), (vec![2; 5_000], Some(200_000)));
        assert_eq!(Contents::of(store)?, expected);
        if let Some(limit) = store.size_limit()? {
            assert!(store.stats()?.size_bytes <= limit.max_bytes);
        }
        store.integrity_check()
    }
}

/// Cuts the power at points of the log. Prints the number of cuts, and how many left the disk as
/// written.
fn cut_everywhere(name: &str, config: &Config, level: SyncLevel) {
    cut_everywhere_in(&steps(), name, config, level);
}

fn cut_everywhere_in(steps: &[Step], name: &str, config: &Config, level: SyncLevel) {
    let started = Instant::now();
    let recording = record(config, level, steps);
    let ends = torture_time().map(|time| started + time);
    let points = recording.log.len();
    let kinds = 8;
    let mut random = Random(name.len() as u64 * 7 + points as u64);
    let (mut tried, mut rounds) = (0, 0);
    let mut by_cut: BTreeMap<&str, usize> = BTreeMap::new();
    loop {
        let mut disk = Disk::default();
        let mut promise = Promise::default();
        for (point, event) in recording.log.iter().enumerate() {
            disk.happens(event);
            promise = recording.promise(promise, event);
            let seed = random.next();
            for (cut, kind) in [
                (Cut::Synced, "synced"),
                (Cut::Written, "written"),
                (Cut::TornFirst(seed), "torn"),
                (Cut::TornLast(seed), "torn"),
                (Cut::Random(seed), "random"),
                (Cut::Random(seed + 1), "random"),
                (Cut::Random(seed + 2), "random"),
                (Cut::Random(seed + 3), "random"),
            ] {
                // These two cuts do not depend on the seed. A fully synced disk has only one state.
                if rounds > 0 && matches!(cut, Cut::Synced | Cut::Written)
                    || cut != Cut::Synced && disk.is_synced()
                    || ends.is_none() && random.below(points * kinds) >= SAMPLE
                    || ends.is_some_and(|ends| rounds > 0 && Instant::now() >= ends)
                {
                    continue;
                }
                let dir = tempfile::tempdir().unwrap();
                disk.cut(cut, dir.path());
                let shm = dir.path().join("store.db-shm");
                let wal = dir.path().join("store.db-wal").exists();
                let shm_is = match random.below(3) {
                    0 if wal => {
                        fs::write(shm, &disk.index).unwrap();
                        "old"
                    }
                    1 if wal => {
                        let garbage: Vec<u8> = (0..4096).flat_map(|_| random.next().to_ne_bytes()).collect();
                        fs::write(shm, garbage).unwrap();
                        "garbage"
                    }
                    _ => "missing",
                };
                if let Err(wrong) = recording.examine(dir.path(), promise) {
                    let mark = promise.acknowledged.map_or(0, |mark| mark + 1);
                    panic!(
                        "{name}: {cut:?} after event {point} of {points} ({}), -shm {shm_is}, in step {mark} ({}): {wrong}",
                        brief(event),
                        recording.steps.get(mark).map_or("the end", String::as_str),
                    );
                }
                tried += 1;
                *by_cut.entry(kind).or_insert(0) += 1;
            }
        }
        rounds += 1;
        if ends.is_none_or(|ends| Instant::now() >= ends) {
            break;
        }
    }
    println!(
        "power: {name}: {points} points, {tried} cuts {by_cut:?}, {} steps, {rounds} rounds, {:.1} s",
        recording.steps.len(),
        started.elapsed().as_secs_f64()
    );
}

/// Cuts the power, opens the store, writes to it, and cuts the power again, at points of this
/// second run.
fn cut_twice(name: &str, config: &Config, level: SyncLevel) {
    let started = Instant::now();
    let ends = torture_time().map(|time| started + time);
    let recording = record(config, level, &steps());
    let points = recording.log.len();
    let mut random = Random(points as u64);
    let (mut first_cuts, mut second_cuts) = (0, 0);
    loop {
        let mut disk = Disk::default();
        let mut promise = Promise::default();
        for (point, event) in recording.log.iter().enumerate() {
            disk.happens(event);
            promise = recording.promise(promise, event);
            if random.below(points) >= if ends.is_some() { points / 4 } else { SECOND_SAMPLE }
                || ends.is_some_and(|ends| Instant::now() >= ends)
            {
                continue;
            }
            let dir = tempfile::tempdir().unwrap();
            let first = Cut::Random(random.next());
            disk.cut(first, dir.path());
            first_cuts += 1;
            let mut second_disk = Disk::holding(dir.path());
            let watch = Watch::on(dir.path(), true);
            let store = Store::open_with(dir.path().join("store.db"), &recording.config).unwrap();
            store.put(SECOND, vec![1; 2_000]).unwrap();
            watch.mark(0);
            let log = watch.take_log();
            store.close().unwrap();
            drop(watch);
            for (number, event) in log.iter().enumerate() {
                second_disk.happens(event);
                // The end, where the write was acknowledged, and some points before it.
                let ended = matches!(event, Event::Mark(..));
                if !ended && random.below(log.len()) >= 3 {
                    continue;
                }
                let promise = Promise { second: Some(ended && recording.full), ..promise };
                let left = tempfile::tempdir().unwrap();
                let second = if ended { Cut::Synced } else { Cut::Random(random.next()) };
                second_disk.cut(second, left.path());
                if let Err(wrong) = recording.examine(left.path(), promise) {
                    panic!(
                        "{name}: {first:?} after event {point} of {points} ({}), then {second:?} after event \
                         {number} of {} ({}): {wrong}",
                        brief(&recording.log[point]),
                        log.len(),
                        brief(event)
                    );
                }
                second_cuts += 1;
            }
        }
        if ends.is_none_or(|ends| Instant::now() >= ends) {
            break;
        }
    }
    println!(
        "power: {name}: {first_cuts} cuts, and {second_cuts} second ones after them, {:.1} s",
        started.elapsed().as_secs_f64()
    );
}

/// Runs the steps, and cuts the power in every way directly after each sync. Everything present at
/// the sync must be there.
fn cut_after_each_sync(name: &str, config: &Config, level: SyncLevel) {
    let recording = record(config, level, &steps_with_syncs());
    let mut disk = Disk::default();
    let mut random = Random(5);
    let mut tried = 0;
    for event in &recording.log {
        disk.happens(event);
        let Event::Mark(mark, _) = event else { continue };
        if recording.steps[*mark] != "Sync" {
            continue;
        }
        let promise = Promise { acknowledged: Some(*mark), oldest: *mark, second: None };
        for cut in [Cut::Synced, Cut::Random(random.next())] {
            let dir = tempfile::tempdir().unwrap();
            disk.cut(cut, dir.path());
            if let Err(wrong) = recording.examine(dir.path(), promise) {
                panic!("{name}: {cut:?} after the sync that is step {mark}: {wrong}");
            }
            tried += 1;
        }
    }
    println!("power: {name}: {tried} cuts after syncs");
    assert!(tried >= 20, "{tried}");
}

/// The scenario with more syncs.
fn steps_with_syncs() -> Vec<Step> {
    let mut with_syncs = Vec::new();
    for (n, step) in steps().into_iter().enumerate() {
        with_syncs.push(step);
        if n % 6 == 0 {
            with_syncs.push(Step::Sync);
        }
    }
    with_syncs
}

fn brief(event: &Event) -> String {
    match event {
        Event::Write(id, at, bytes) => format!("write of {} bytes at {at} of file {id}", bytes.len()),
        Event::Mark(mark, _) => format!("mark {mark}"),
        other => format!("{other:?}"),
    }
}

fn with_journal() -> Config {
    Config::new().journal_mode(JournalMode::Delete)
}

/// A WAL so short that it is constantly written back and started over.
fn short_wal() -> Config {
    Config::new().page_size(1024).wal_pages(80)
}
