//! Failing system calls and exhausted memory: the call in progress returns an error, nothing is half
//! done, the store remains usable, and no acknowledged write is lost.
//!
//! A scenario runs many times; each time another of its calls to the VFS fails, once or from then
//! on. `KVSTORE_TORTURE_SECONDS` makes the tests try all of them (for at most that long each);
//! without it they try a sample. With `--nocapture` they print the number.
#![allow(unsafe_code)]

mod failed_calls;
mod memory;
mod system_calls;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::shim::scenario::{BOUNDED_LOOKED_AT, Contents, DEFAULT, Step, World};
use kvstore::{Config, Error, ErrorKind, JournalMode, Store, SyncLevel};

/// Number of steps after the end of a fault.
const STEPS_AFTER: usize = 8;

/// Outcomes of the faults.
#[derive(Debug, Default)]
struct Tally {
    runs: usize,
    /// Faults that occurred.
    injected: usize,
    /// Calls of the library that failed.
    failed: usize,
    /// Failed calls that had their effect nevertheless.
    done_all_the_same: BTreeMap<String, usize>,
    /// Failed calls that had closed the store.
    reopened: usize,
    /// The kinds of error for each kind of fault.
    kinds: BTreeMap<String, BTreeSet<String>>,
}

/// Runs the scenario with a fault, and returns what is wrong.
fn run(
    config: &Config,
    alone: bool,
    steps: &[Step],
    fault: &mut dyn Faulty,
    tally: &mut Tally,
) -> Result<(), String> {
    let dir = tempfile::tempdir().unwrap();
    fault.begin(dir.path());
    let mut world = World::new(dir.path(), config.clone());
    world.alone = alone;
    if steps.iter().any(|step| matches!(step, Step::SizeLimit(_))) {
        world.looked_at = BOUNDED_LOOKED_AT; // expired keys make room for new ones
    }
    let looked_at = world.looked_at;
    let mut contents = Contents::of_a_new_store();
    tally.runs += 1;
    if let Err(e) = world.open() {
        blame("the first open", &e, fault, tally)?;
        fault.end();
        world.open().map_err(|e| format!("the first open fails after the fault is over, too: {e}"))?;
    }
    let mut left = usize::MAX;
    for (number, step) in steps.iter().enumerate() {
        // The effect of a fault shows in the next steps.
        if fault.is_over() && left == usize::MAX {
            left = STEPS_AFTER;
        }
        if left == 0 {
            break;
        }
        left -= 1;
        let name = format!("step {number}, {}", format!("{step:?}").chars().take(60).collect::<String>());
        let mut after = contents.clone();
        step.happens(&mut after, world.now());
        let done = step.call(&mut world);
        if let Some(complaint) = world.complaints.take().first() {
            return Err(format!("{name}: {complaint}"));
        }
        let Err(e) = done else {
            contents = after;
            continue;
        };
        blame(&name, &e, fault, tally)?;
        tally.failed += 1;
        // Only every other time, so that the state left by the failed call is also tested as it is.
        if tally.runs.is_multiple_of(2) {
            while_it_lasts(&world);
        }
        fault.end();
        let failed = |what: &str| {
            let (name, what, e) = (name.clone(), what.to_owned(), e.to_string());
            move |next: Error| format!("{name} failed ({e}); then {what}: {:?}: {next}", next.kind())
        };
        // As if the process had been killed now.
        as_left(&world, &[&contents, &after]).map_err(|wrong| format!("{name} failed ({e}); {wrong}"))?;
        if world.store.is_none() {
            tally.reopened += 1;
            world.open().map_err(failed("the store does not open again"))?;
        }
        let (then, now) = (contents.live(world.now()), after.live(world.now()));
        let mut found = Contents::default();
        for when in ["left", "left, once something was written,"] {
            found = Contents::of(world.store()).map_err(failed("a read"))?;
            found.0.get_mut(DEFAULT).unwrap().remove(&b"probe"[..]);
            if found != then && found != now {
                return Err(format!(
                    "{name} failed ({e}), and {when}\n{}\ninstead of\n{}\nor\n{}",
                    found.sketch(),
                    then.sketch(),
                    now.sketch()
                ));
            }
            use_on(&world).map_err(failed("the use of the store"))?;
        }
        if then != now && found == now {
            // These steps use several transactions, of which the first may have been committed.
            let several = matches!(step, Step::Sweep(..) | Step::Purge);
            if !several && !fault.hits_commits() {
                return Err(format!("{name} failed ({e}), but has done what it was to do"));
            }
            *tally.done_all_the_same.entry(step_kind(step)).or_insert(0) += 1;
        } else {
            if let Step::Backup(backup) = step {
                let _ = fs::remove_file(dir.path().join(backup));
            }
            step.call(&mut world).map_err(failed("the same step"))?;
        }
        contents = after;
        world.complaints.take();
    }
    fault.end();
    tally.injected += usize::from(fault.hit());
    world.close().map_err(|e| format!("closing: {e}"))?;
    let path = dir.path().join("store.db");
    let store = Store::open_with(&path, config).map_err(|e| format!("it does not open again: {e}"))?;
    store.set_clock(move || looked_at);
    store.integrity_check().map_err(|e| format!("the integrity check at the end: {e}"))?;
    let found = Contents::of(&store).map_err(|e| format!("reading at the end: {e}"))?;
    let contents = contents.live(looked_at);
    if found != contents {
        return Err(format!("at the end there is\n{}\ninstead of\n{}", found.sketch(), contents.sketch()));
    }
    store.close().map_err(|e| format!("closing at the end: {e}"))
}

fn step_kind(step: &Step) -> String {
    format!("{step:?}").split(['(', ' ']).next().unwrap_or_default().to_owned()
}

/// Kind of failure in a run.
trait Faulty {
    fn begin(&mut self, dir: &Path);
    /// Ends the fault: everything works again.
    fn end(&mut self);
    fn hit(&self) -> bool;
    /// Returns whether the fault has occurred and will not occur again.
    fn is_over(&self) -> bool;
    /// Returns whether the fault can affect a commit that has happened but is not yet certain to be
    /// on disk.
    fn hits_commits(&self) -> bool;
    /// Returns whether it can cause errors of this kind.
    fn explains(&self, kind: ErrorKind) -> bool;
    fn name(&self) -> String;
}

/// Returns an error unless the fault is the reason of `e`, and the text of `e` names it.
fn blame(name: &str, e: &Error, fault: &dyn Faulty, tally: &mut Tally) -> Result<(), String> {
    let text = e.to_string();
    if !fault.hit() {
        return Err(format!("{name} failed without a fault: {:?}: {text}", e.kind()));
    }
    let said = text.rsplit_once("store.db: ").map_or(&*text, |(_, said)| said);
    tally.kinds.entry(fault.name()).or_default().insert(format!("{:?}: {said}", e.kind()));
    if !fault.explains(e.kind()) {
        return Err(format!("{name} failed with an error of another kind: {:?}: {text}", e.kind()));
    }
    let word = match e.kind() {
        ErrorKind::NoMemory => "memory",
        ErrorKind::Full => "full",
        ErrorKind::Busy | ErrorKind::Protocol => "lock",
        ErrorKind::CantOpen => "open",
        _ => "",
    };
    if text.len() < 12 || text.contains("not an error") || !text.contains(word) {
        return Err(format!("{name} failed with a text that says nothing: {:?}: {text}", e.kind()));
    }
    Ok(())
}

/// Calls made while the fault may last. They may fail, but must return.
fn while_it_lasts(world: &World) {
    let Some(store) = &world.store else { return };
    let _ = store.get("large");
    let _ = store.count();
    let _ = store.put("probe", "1");
}

/// The store can be written, is sound, and holds no lock.
fn use_on(world: &World) -> kvstore::Result<()> {
    let store = world.store();
    // A write first: if something of the failed one is left, this must not commit it.
    let _ = store.delete("probe")?;
    store.put("probe", vec![1; 3_000])?;
    store.integrity_check()?;
    assert_eq!(store.get("probe")?.map(|value| value.len()), Some(3_000));
    store.transaction(|tx| tx.delete("probe"))?;
    if !world.alone {
        // No lock was left behind.
        let other = Store::open_with(&world.path, &world.config)?;
        other.put("probe", "2")?;
        other.close()?;
        assert!(store.delete("probe")?);
    }
    Ok(())
}

/// The files, as they are now, open as a store with one of these contents, possibly with the probe
/// key.
fn as_left(world: &World, contents: &[&Contents]) -> Result<(), String> {
    let copy = tempfile::tempdir().unwrap();
    for suffix in ["", "-wal", "-journal"] {
        let name = format!("store.db{suffix}");
        let from = world.path.with_file_name(&name);
        if from.exists() {
            fs::copy(from, copy.path().join(name)).unwrap();
        }
    }
    let said = |what: &'static str| move |e: Error| format!("a process killed then would find: {what}: {e}");
    // Without secure_delete here: files that are not watched lack the methods that our VFS uses in
    // these tests.
    let config = world.config.clone().secure_delete(false);
    let store = Store::open_with(copy.path().join("store.db"), &config).map_err(said("no store"))?;
    let looked_at = world.looked_at;
    store.set_clock(move || looked_at);
    store.integrity_check().map_err(said("the integrity check fails"))?;
    let mut found = Contents::of(&store).map_err(said("it cannot be read"))?;
    found.0.get_mut(DEFAULT).unwrap().remove(&b"probe"[..]);
    let contents: Vec<_> = contents.iter().map(|contents| contents.live(looked_at)).collect();
    if contents.contains(&found) {
        return Ok(());
    }
    Err(format!("a process killed then would find\n{}\ninstead of\n{}", found.sketch(), contents[0].sketch()))
}

fn delete_full() -> Config {
    Config::new().journal_mode(JournalMode::Delete).sync(SyncLevel::Full)
}
