//! Failing system calls and exhausted memory: the call in progress returns an error, nothing is half
//! done, the store remains usable, and no acknowledged write is lost.
//!
//! A scenario runs many times; each time another of its calls to the VFS fails, once or from then
//! on. `KVSTORE_TORTURE_SECONDS` makes the tests try all of them (for at most that long each);
//! without it they try a sample. With `--nocapture` they print the number.

#![allow(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::ffi::{c_int, c_void};
use std::fs;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Command;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::common::other::child_arguments;
use crate::shim::disk::Random;
use crate::shim::scenario::{
    BOUNDED_LOOKED_AT, Contents, DEFAULT, Step, World, bounded_steps, many_steps, steps,
};
use crate::shim::{Call, Fault, Plan, Watch, torture_time};
use kvstore::{Config, Error, ErrorKind, Expiry, Family, Hint, JournalMode, KeyRange, Store, SyncLevel};
use rusqlite::ffi;

/// Number of faults that a test injects if no duration is set.
const SAMPLE: usize = 150;

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

// ---- calls to the VFS ----------------------------------------------------------------------------

struct VfsFault {
    plan: Plan,
    watch: Option<Watch>,
    hit: bool,
}

impl Faulty for VfsFault {
    fn begin(&mut self, dir: &Path) {
        let watch = Watch::on(dir, false);
        watch.fail(self.plan);
        self.watch = Some(watch);
    }

    fn end(&mut self) {
        self.hit = self.hit();
        if let Some(watch) = &self.watch {
            watch.heal();
        }
    }

    fn hit(&self) -> bool {
        self.hit || self.watch.as_ref().is_some_and(|watch| watch.injected() > 0)
    }

    fn is_over(&self) -> bool {
        self.hit || self.hit() && !self.plan.from_then_on
    }

    fn hits_commits(&self) -> bool {
        self.plan.call == Call::Sync
    }

    fn explains(&self, kind: ErrorKind) -> bool {
        let Fault::Code(code) = self.plan.fault else {
            return match self.plan.fault {
                Fault::Half => kind == ErrorKind::Full,
                Fault::Short => matches!(kind, ErrorKind::Corrupt | ErrorKind::Io | ErrorKind::NotADatabase),
                _ => false,
            };
        };
        match (self.plan.call, code) {
            (_, ffi::SQLITE_FULL) => kind == ErrorKind::Full,
            (Call::ShmLock, ffi::SQLITE_BUSY) => matches!(kind, ErrorKind::Busy | ErrorKind::Protocol),
            (_, ffi::SQLITE_BUSY) => kind == ErrorKind::Busy,
            (_, ffi::SQLITE_CANTOPEN) => kind == ErrorKind::CantOpen,
            (_, ffi::SQLITE_IOERR_NOMEM) => matches!(kind, ErrorKind::NoMemory | ErrorKind::Io),
            _ => kind == ErrorKind::Io,
        }
    }

    fn name(&self) -> String {
        format!("{:?} {:?}", self.plan.call, self.plan.fault)
    }
}

/// Returns how many calls of each kind the scenario makes.
fn calls(config: &Config, steps: &[Step]) -> BTreeMap<Call, u64> {
    let dir = tempfile::tempdir().unwrap();
    let watch = Watch::on(dir.path(), false);
    let mut world = World::new(dir.path(), config.clone());
    world.open().unwrap();
    for step in steps {
        step.call(&mut world).unwrap();
    }
    world.close().unwrap();
    Call::ALL.iter().map(|call| (*call, watch.calls(*call))).collect()
}

/// Makes each call fail. `alone`: the store is opened exclusively.
fn fail_everywhere(name: &str, config: Config, alone: bool) {
    fail_everywhere_in(&steps(), name, config, alone);
}

fn fail_everywhere_in(steps: &[Step], name: &str, config: Config, alone: bool) {
    let config = config.exclusive(alone);
    let started = Instant::now();
    let ends = torture_time().map(|time| started + time);
    let calls = calls(&config, steps);
    let mut plans = Vec::new();
    for (call, count) in &calls {
        for fault in call.faults() {
            for from_then_on in [false, true] {
                for nth in 1..=*count {
                    plans.push(Plan { call: *call, nth, fault: *fault, from_then_on });
                }
            }
        }
    }
    let all = plans.len();
    let mut random = Random(name.len() as u64);
    for at in (1..plans.len()).rev() {
        plans.swap(at, random.below(at + 1));
    }
    if ends.is_none() {
        // Each kind of call gets the same number of faults, however often it occurs.
        let most = SAMPLE / calls.values().filter(|count| **count > 0).count();
        let mut taken: BTreeMap<Call, usize> = BTreeMap::new();
        plans.retain(|plan| {
            let taken = taken.entry(plan.call).or_insert(0);
            *taken += 1;
            *taken <= most
        });
    }
    let mut tally = Tally::default();
    let mut wrong = Vec::new();
    for plan in plans {
        if ends.is_some_and(|ends| Instant::now() >= ends) {
            break;
        }
        let mut fault = VfsFault { plan, watch: None, hit: false };
        let begun = Instant::now();
        let done = catch_unwind(AssertUnwindSafe(|| run(&config, alone, steps, &mut fault, &mut tally)))
            .unwrap_or_else(|_| Err("panic".into()));
        if let Err(e) = done {
            wrong.push(format!("{plan:?}: {e}"));
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{plan:?}: a call does not come to an end");
    }
    println!(
        "faults: {name}: {} of {all} faults tried, {} hit, {} calls failed, {:.1} s; \
         done all the same: {:?}; closed: {}; calls: {calls:?}",
        tally.runs,
        tally.injected,
        tally.failed,
        started.elapsed().as_secs_f64(),
        tally.done_all_the_same,
        tally.reopened,
    );
    if env::var_os("KVSTORE_FAULT_TEXTS").is_some() {
        println!("{:#?}", tally.kinds);
    }
    let first: Vec<String> = wrong.iter().take(12).cloned().collect();
    assert!(
        wrong.is_empty(),
        "{name}: {} of {} runs went wrong:\n{}",
        wrong.len(),
        tally.runs,
        first.join("\n\n")
    );
}

// ---- memory --------------------------------------------------------------------------------------
// SQLite accepts another allocator only before its first use, so these tests run in another
// process: this program again, running only [`child`].

const ROLE: &str = "KVSTORE_TEST_ROLE";
/// Number of failing allocations per test if no duration is set.
const MEMORY_SAMPLE: u64 = 60;
/// A prime number that is not close to a fraction of the number of allocations.
const FAR: u64 = 7919;

/// SQLite's own allocator.
static MALLOC: OnceLock<unsafe extern "C" fn(c_int) -> *mut c_void> = OnceLock::new();
static REALLOC: OnceLock<unsafe extern "C" fn(*mut c_void, c_int) -> *mut c_void> = OnceLock::new();
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
/// The allocations from the first number up to, not including, the second fail.
static FAIL_FROM: AtomicU64 = AtomicU64::new(u64::MAX);
static FAIL_TO: AtomicU64 = AtomicU64::new(u64::MAX);
static FAILED: AtomicU64 = AtomicU64::new(0);

fn fails() -> bool {
    let n = ALLOCATIONS.fetch_add(1, Ordering::SeqCst) + 1;
    let fails = n >= FAIL_FROM.load(Ordering::SeqCst) && n < FAIL_TO.load(Ordering::SeqCst);
    FAILED.fetch_add(fails.into(), Ordering::SeqCst);
    fails
}

unsafe extern "C" fn malloc(size: c_int) -> *mut c_void {
    // SAFETY: SQLite's own function with its own argument.
    if fails() { ptr::null_mut() } else { unsafe { MALLOC.get().unwrap()(size) } }
}

unsafe extern "C" fn realloc(old: *mut c_void, size: c_int) -> *mut c_void {
    // SAFETY: as above; after a failure the old one is still there, as SQLite expects.
    if fails() { ptr::null_mut() } else { unsafe { REALLOC.get().unwrap()(old, size) } }
}

/// Installs the allocator.
fn use_own_allocator() {
    // SAFETY: before SQLite is used for the first time, with the arguments these options have.
    unsafe {
        let mut methods: ffi::sqlite3_mem_methods = std::mem::zeroed();
        assert_eq!(ffi::sqlite3_config(ffi::SQLITE_CONFIG_GETMALLOC, &raw mut methods), ffi::SQLITE_OK);
        assert!(
            MALLOC.set(methods.xMalloc.unwrap()).is_ok() && REALLOC.set(methods.xRealloc.unwrap()).is_ok()
        );
        methods.xMalloc = Some(malloc);
        methods.xRealloc = Some(realloc);
        assert_eq!(ffi::sqlite3_config(ffi::SQLITE_CONFIG_MALLOC, &raw mut methods), ffi::SQLITE_OK);
        assert_eq!(ffi::sqlite3_config(ffi::SQLITE_CONFIG_LOOKASIDE, 0, 0), ffi::SQLITE_OK);
    }
}

struct NoMemory {
    nth: u64,
    from_then_on: bool,
}

impl Faulty for NoMemory {
    fn begin(&mut self, _: &Path) {
        FAILED.store(0, Ordering::SeqCst);
        let from = ALLOCATIONS.load(Ordering::SeqCst) + self.nth;
        FAIL_TO.store(if self.from_then_on { u64::MAX } else { from + 1 }, Ordering::SeqCst);
        FAIL_FROM.store(from, Ordering::SeqCst);
    }

    fn end(&mut self) {
        FAIL_FROM.store(u64::MAX, Ordering::SeqCst);
    }

    fn hit(&self) -> bool {
        FAILED.load(Ordering::SeqCst) > 0
    }

    fn is_over(&self) -> bool {
        self.hit() && (!self.from_then_on || FAIL_FROM.load(Ordering::SeqCst) == u64::MAX)
    }

    fn hits_commits(&self) -> bool {
        false
    }

    fn explains(&self, kind: ErrorKind) -> bool {
        kind == ErrorKind::NoMemory
    }

    fn name(&self) -> String {
        format!("memory, {}", if self.from_then_on { "from then on" } else { "once" })
    }
}

fn config_of(role: &str) -> Config {
    match role {
        "wal btree" => Config::new(),
        "wal sql" => Config::new().sql_engine(true),
        "delete btree" => delete_full(),
        "delete sql" => delete_full().sql_engine(true),
        "bounded btree" => Config::new().page_size(1024),
        "bounded sql" => Config::new().page_size(1024).sql_engine(true),
        other => panic!("no role {other}"),
    }
}

/// In a role "configuration/first/number/seconds": lets `number` allocations fail, starting with
/// the allocation `first`.
#[test]
#[ignore = "no test, but the other process of the tests in this file"]
fn child() {
    let Ok(role) = env::var(ROLE) else { return };
    match role.as_str() {
        REMAINS => return fail_a_rollback(),
        READS => return fail_reads(),
        REASONS => return lose_reasons(),
        _ => {}
    }
    let parts: Vec<&str> = role.split('/').collect();
    let config = config_of(parts[0]);
    let (first, most): (u64, u64) = (parts[1].parse().unwrap(), parts[2].parse().unwrap());
    let ends = Instant::now() + Duration::from_secs_f64(parts[3].parse().unwrap());
    use_own_allocator();
    let steps = if parts[0].starts_with("bounded") { bounded_steps() } else { steps() };
    let mut tally = Tally::default();
    // The number of allocations without a failure.
    let mut none = NoMemory { nth: 1 << 40, from_then_on: false };
    let before = ALLOCATIONS.load(Ordering::SeqCst);
    run(&config, false, &steps, &mut none, &mut tally).unwrap();
    let all = ALLOCATIONS.load(Ordering::SeqCst) - before;
    println!("> all {all}");
    let mut tally = Tally::default();
    // Each allocation fails once, and once from then on. The order moves through the whole scenario
    // again and again.
    let far = if all.is_multiple_of(FAR) { FAR + 2 } else { FAR };
    for at in first..most.min(2 * all) {
        if Instant::now() >= ends {
            break;
        }
        println!("> try {at}");
        let mut fault = NoMemory { nth: at * far % all + 1, from_then_on: (at + at / all).is_multiple_of(2) };
        let done = catch_unwind(AssertUnwindSafe(|| run(&config, false, &steps, &mut fault, &mut tally)))
            .unwrap_or_else(|_| Err("panic".into()));
        fault.end();
        if let Err(e) = done {
            println!("> wrong allocation {}, {}: {}", fault.nth, fault.name(), e.replace('\n', " | "));
        }
    }
    let Tally { runs, injected, failed, .. } = &tally;
    println!("> tally {runs} {injected} {failed}");
    println!(
        "> said done all the same: {:?}; closed: {}; errors: {:?}",
        tally.done_all_the_same, tally.reopened, tally.kinds
    );
    println!("> end");
}

const REMAINS: &str = "remains";

fn fail_a_rollback() {
    use_own_allocator();
    for config in [Config::new(), Config::new().sql_engine(true), delete_full()] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store.db");
        let store = Store::open_with(&path, &config).unwrap();
        store.put("a", "1").unwrap();
        store.begin_write().unwrap();
        store.put("a", "2").unwrap();
        FAIL_TO.store(u64::MAX, Ordering::SeqCst);
        FAIL_FROM.store(0, Ordering::SeqCst);
        let put = store.put_with_expiry("b", vec![1; 400_000], Expiry::At(4_000_000_000_000));
        let _ = store.rollback(); // may say that there is no memory
        FAIL_FROM.store(u64::MAX, Ordering::SeqCst);
        assert_eq!(put.unwrap_err().kind(), ErrorKind::NoMemory);
        assert_eq!(store.get("a").unwrap().as_deref(), Some(&b"1"[..]), "{config:?}");
        Store::open_with(&path, &config).unwrap().put("c", "1").unwrap(); // there is no lock left
        store.put("d", "1").unwrap();
        store.close().unwrap();
        let store = Store::open_with(&path, &config).unwrap();
        assert_eq!(store.get("a").unwrap().as_deref(), Some(&b"1"[..]), "{config:?}");
        assert_eq!(store.count().unwrap(), 3);
        store.integrity_check().unwrap();
    }
}

const READS: &str = "reads";

/// SQLite rolls a transaction back by itself when a read in it has no memory.
fn fail_reads() {
    use_own_allocator();
    let reads: [fn(&Store) -> kvstore::Result<()>; 3] = [
        |store| store.get("b").map(drop),
        |store| store.family_names().map(drop),
        |store| store.iter().try_for_each(|entry| entry.map(drop)),
    ];
    let mut hits = 0;
    for config in [Config::new(), Config::new().sql_engine(true), delete_full().sql_engine(true)] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store.db");
        let other = Store::open_with(&path, &config).unwrap();
        for (number, read) in reads.into_iter().enumerate() {
            for (nth, write) in (1..200).flat_map(|nth| [(nth, true), (nth, false)]) {
                let what = format!("read {number}, allocation {nth}, {config:?}");
                other.put("a", "old").unwrap();
                // Uses a new handle, because prepared statements need less memory.
                let store = Store::open_with(&path, &config).unwrap();
                if write { store.begin_write() } else { store.begin_read() }.unwrap();
                if write {
                    store.put("a", "changed").unwrap();
                }
                let mut fault = NoMemory { nth, from_then_on: false };
                fault.begin(&path);
                let done = read(&store);
                fault.end();
                hits += u64::from(fault.hit());
                if write {
                    // The transaction either continues as a whole or accepts nothing more.
                    let more = store.put("later", "1");
                    if let Err(why) = &more {
                        assert!(why.hint() == Some(Hint::RollBack), "{what}: {why}");
                    }
                    store.rollback().unwrap();
                } else {
                    // In DELETE mode a reader keeps writers out.
                    let changed = other.put("a", "new").is_ok();
                    match store.get("a") {
                        Ok(seen) => assert_eq!(seen.as_deref(), Some(&b"old"[..]), "{what}: {done:?}"),
                        Err(why) => {
                            assert!(why.to_string().contains("lost its snapshot"), "{what}: {why}");
                            assert!(store.commit().unwrap_err().hint() == Some(Hint::RollBack));
                        }
                    }
                    if store.rollback().is_ok() && changed {
                        assert_eq!(store.get("a").unwrap().as_deref(), Some(&b"new"[..]));
                    }
                }
                assert_eq!(other.get("later").unwrap(), None, "{what}");
                assert_eq!(store.get("later").unwrap(), None, "{what}");
                store.close().unwrap();
                if !fault.hit() {
                    break;
                }
            }
        }
    }
    assert!(hits > 30, "{hits} allocations failed");
}

const REASONS: &str = "reasons";

/// SQLite reports a missing table with an error text, for which there may be no memory.
fn lose_reasons() {
    use_own_allocator();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.db");
    let store = Store::open_with(&path, &Config::new().sql_engine(true)).unwrap();
    let (mut done, mut failed) = (0, 0);
    for nth in 1.. {
        // The statement is cached, but the table it was prepared for no longer exists.
        let put =
            |family: &kvstore::Family| family.put_with_expiry("large", vec![7; 9_000], Expiry::At(i64::MAX));
        put(&store.create_family("passing").unwrap()).unwrap();
        store.drop_family("passing").unwrap();
        let family = store.create_family("passing").unwrap();
        let mut fault = NoMemory { nth, from_then_on: false };
        fault.begin(&path);
        let result = put(&family);
        fault.end();
        assert_eq!(family.exists("large").unwrap(), result.is_ok(), "allocation {nth}");
        match result {
            Ok(()) => done += 1,
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::NoMemory, "allocation {nth}: {e}");
                failed += 1;
            }
        }
        drop(family);
        store.drop_family("passing").unwrap();
        if !fault.hit() {
            break;
        }
    }
    assert!(done >= 2 && failed > 20, "{done} done, {failed} failed");
}

/// Runs another process in a role.
fn play(role: &str) {
    let done = Command::new(env::current_exe().unwrap())
        .args(child_arguments(module_path!()))
        .env(ROLE, role)
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn rollback_without_memory_still_ends_transaction() {
    play(REMAINS);
}

#[test]
fn table_creation_survives_lack_of_memory() {
    play(REASONS);
}

/// A call that creates the tables of a family.
type Making = fn(&Store, &Family) -> Result<(), Error>;

/// Makes every read that may use the tables. Their results are compared elsewhere, by `Contents`.
fn read_everything(store: &Store, families: &[Family]) {
    let _ = (store.family_names(), store.size_limit(), store.next_expiry());
    for family in families {
        let _ = (family.count(), family.get("large"), family.ttl("large"), family.next_expiry());
        let _ = (family.default_ttl(), family.count_live(), family.iter().next().transpose());
    }
}

#[test]
fn partially_created_tables_are_never_visible() {
    const LATER: i64 = 4_000_000_000_000;
    let makings: [Making; 3] = [
        |_, family| family.put_with_expiry("k", [1; 3000], Expiry::At(LATER)),
        |_, family| family.put("k", [1; 9000]),
        |store, _| store.create_family("made").map(drop),
    ];
    let mut failed = 0;
    for (journal, call, code) in [
        (JournalMode::Wal, Call::Read, ffi::SQLITE_IOERR_READ),
        (JournalMode::Delete, Call::Read, ffi::SQLITE_IOERR_READ),
        (JournalMode::Delete, Call::Write, ffi::SQLITE_FULL),
    ] {
        for (making, count) in makings.iter().flat_map(|making| [(making, 1), (making, 12)]) {
            for nth in 1.. {
                let dir = tempfile::tempdir().unwrap();
                let path = dir.path().join("store.db");
                let watch = Watch::on(dir.path(), false);
                let config = Config::new().journal_mode(journal).sync(SyncLevel::Off).mmap_size(0);
                let store = Store::open_with(&path, &config).unwrap();
                let families: Vec<_> =
                    (0..count).map(|n| store.create_family(&format!("f{n}")).unwrap()).collect();
                families.iter().for_each(|family| family.put("b0", [0; 2000]).unwrap());
                store.begin_write().unwrap();
                watch.fail(Plan { call, nth, fault: Fault::Code(code), from_then_on: false });
                let made = making(&store, &families[0]);
                let is_over = watch.injected() == 0;
                watch.heal();
                if made.is_err() {
                    failed += 1;
                    assert_eq!(
                        families[0].count().unwrap(),
                        1,
                        "what the call did before it failed is shown"
                    );
                    read_everything(&store, &families);
                }
                store.rollback().unwrap();
                read_everything(&store, &families);
                for family in families.iter().rev() {
                    family.put("large", [1; 3000]).unwrap();
                    family.put_with_expiry("l", "v", Expiry::At(LATER)).unwrap();
                    assert_eq!((family.count().unwrap(), family.next_expiry().unwrap()), (3, Some(LATER)));
                }
                store.integrity_check().unwrap();
                store.close().unwrap();
                let store = Store::open_with(&path, &config).unwrap();
                assert_eq!(store.family_names().unwrap().len(), count);
                store.integrity_check().unwrap();
                if is_over {
                    break;
                }
            }
        }
    }
    assert!(failed > 20, "{failed}");
}

/// The rollback of the call cannot read either. SQLite reports that as damage.
#[test]
fn permanent_read_error_is_reported_as_io_not_corruption() {
    let mut failed = 0;
    for nth in 1.. {
        let dir = tempfile::tempdir().unwrap();
        let watch = Watch::on(dir.path(), false);
        let config = Config::new().journal_mode(JournalMode::Delete).sync(SyncLevel::Off);
        let config = config.mmap_size(0).cache_pages(10).page_size(1024);
        let store = Store::open_with(dir.path().join("store.db"), &config).unwrap();
        for n in 0..40_u8 {
            store.put_with_expiry([n], [n; 1500], Expiry::At(4_000_000_000_000)).unwrap();
        }
        store.begin_write().unwrap();
        let mut batch = store.batch();
        for n in 0..40_u8 {
            batch.put(store.default_family(), [n], "new", Expiry::Never).unwrap();
        }
        watch.fail(Plan {
            call: Call::Read,
            nth,
            fault: Fault::Code(ffi::SQLITE_IOERR_READ),
            from_then_on: true,
        });
        let done = batch.commit();
        let is_over = watch.injected() == 0;
        watch.heal();
        if let Err(e) = done {
            failed += 1;
            assert_eq!(e.kind(), ErrorKind::Io, "read {nth}: {e}");
        }
        store.rollback().unwrap();
        assert!((0..40_u8).all(|n| store.get([n]).unwrap() == Some(vec![n; 1500])), "read {nth}");
        if is_over {
            break;
        }
    }
    assert!(failed > 10, "{failed}");
}

/// The system reports a failed write once. Here an automatic checkpoint gets the report.
#[test]
fn failed_auto_checkpoint_sync_fails_next_sync_once() {
    let dir = tempfile::tempdir().unwrap();
    let watch = Watch::on(dir.path(), false);
    let store = Store::open_with(dir.path().join("store.db"), &Config::new().checkpoint_every(2)).unwrap();
    store.put("a", "1").unwrap();
    let fault = Fault::Code(ffi::SQLITE_IOERR);
    watch.fail(Plan { call: Call::Sync, nth: 1, fault, from_then_on: false });
    store.put("b", "2").unwrap();
    assert_eq!(watch.injected(), 1, "no checkpoint");
    assert_eq!(store.sync().unwrap_err().kind(), ErrorKind::Io);
    store.sync().unwrap();
}

#[test]
fn failed_blocking_checkpoint_sync_fails_next_sync_once() {
    for sql in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let watch = Watch::on(dir.path(), false);
        let config = Config::new().wal_pages(16).sql_engine(sql);
        let store = Store::open_with(dir.path().join("store.db"), &config).unwrap();
        store.put("short", "1").unwrap(); // the beginning of a WAL is synced
        let fault = Fault::Code(ffi::SQLITE_IOERR);
        watch.fail(Plan { call: Call::Sync, nth: 1, fault, from_then_on: false });
        store.put("long", [7; 200_000]).unwrap(); // more pages than the WAL is to have
        assert_eq!(watch.injected(), 1, "no checkpoint");
        assert_eq!(store.sync().unwrap_err().kind(), ErrorKind::Io);
        store.sync().unwrap();
    }
}

#[test]
fn check_with_read_error_never_reports_success() {
    for (sql, from_then_on) in [(false, false), (false, true), (true, false), (true, true)] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store.db");
        let watch = Watch::on(dir.path(), false);
        let config = Config::new().mmap_size(0).cache_pages(10).sql_engine(sql);
        let store = Store::open_with(&path, &config).unwrap();
        for n in 0..200_u8 {
            store.put_with_expiry([n], [n; 200], Expiry::At(4_000_000_000_000)).unwrap();
        }
        store.put("large", [7; 20_000]).unwrap();
        store.close().unwrap();
        let (mut stopped, mut nth) = (0, 0);
        loop {
            nth += 1;
            let store = Store::open_with(&path, &config).unwrap();
            let fault = Fault::Code(ffi::SQLITE_IOERR_READ);
            watch.fail(Plan { call: Call::Read, nth, fault, from_then_on });
            let checked = store.check(|_| ControlFlow::Continue(())).unwrap();
            let is_over = watch.injected() == 0;
            watch.heal();
            if is_over {
                assert!(checked.is_ok(), "read {nth}: {checked:?}");
                break;
            }
            assert!(checked.file_errors > 0 && !checked.is_ok(), "read {nth}: {checked:?}");
            stopped += u32::from(checked.stopped_by.is_some_and(|why| why.kind() == ErrorKind::Io));
            assert!(store.check(|_| ControlFlow::Continue(())).unwrap().is_ok(), "read {nth}");
        }
        assert!(nth > 20 && stopped > 0, "{stopped} of {nth}");
    }
}

/// SQLite has rolled back the transaction. Until the caller ends it, reads see the last committed
/// state.
#[test]
fn failed_commit_is_invisible_even_before_rollback() {
    for sql in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store.db");
        let watch = Watch::on(dir.path(), false);
        let config = Config::new().sql_engine(sql);
        let (store, other) =
            (Store::open_with(&path, &config).unwrap(), Store::open_with(&path, &config).unwrap());
        store.put_with_expiry("k", "1", Expiry::At(4_000_000_000_000)).unwrap();
        store.begin_write().unwrap();
        store.delete("k").unwrap();
        let lost = store.create_family("lost").unwrap();
        (0..100_u8).for_each(|n| lost.put([n], "lost").unwrap());
        assert_eq!(store.next_expiry_all_families().unwrap(), None);
        let mut cursor = lost.cursor(KeyRange::all(), kvstore::Direction::Forward);
        assert!(cursor.first().unwrap());
        let full = Fault::Code(ffi::SQLITE_FULL);
        watch.fail(Plan { call: Call::Write, nth: 1, fault: full, from_then_on: true });
        assert_eq!(store.commit().unwrap_err().kind(), ErrorKind::Full);
        watch.heal();
        assert_eq!(store.next_expiry_all_families().unwrap(), Some(4_000_000_000_000));
        assert!(!matches!(cursor.next(), Ok(true)), "{:?}", cursor.key());
        let kept = other.create_family("kept").unwrap();
        (0..100_u8).for_each(|n| kept.put([n], "secret").unwrap());
        assert!(!matches!(lost.get([7]), Ok(Some(_))), "{:?}", lost.get([7]));
        assert_eq!(store.family("kept").unwrap().get([7]).unwrap().as_deref(), Some(&b"secret"[..]));
        assert_eq!(store.count_live().unwrap(), 1);
        store.rollback().unwrap();
        assert!(store.family("lost").is_err() && store.exists("k").unwrap());
        store.integrity_check().unwrap();
    }
}

/// A commit that fails may have happened, so the write is not run again. It is run again without
/// the noted expired rows only if these are the cause of the failure.
#[test]
fn write_with_lazy_removal_happens_at_most_once_on_failure() {
    let (mut hits, mut happened) = (0, 0);
    for exclusive in [false, true] {
        for (call, fault) in [
            (Call::Sync, Fault::Code(ffi::SQLITE_IOERR)),
            (Call::Delete, Fault::Code(ffi::SQLITE_IOERR_DELETE)),
            (Call::Write, Fault::Code(ffi::SQLITE_FULL)),
        ] {
            for nth in 1.. {
                let dir = tempfile::tempdir().unwrap();
                let watch = Watch::on(dir.path(), false);
                let config = delete_full().exclusive(exclusive);
                let store = Store::open_with(dir.path().join("store.db"), &config).unwrap();
                store.put_with_expiry("dead", "1", Expiry::At(1)).unwrap();
                store.increment("count", 1, Expiry::Never).unwrap();
                assert_eq!(store.get("dead").unwrap(), None); // is noted
                watch.fail(Plan { call, nth, fault, from_then_on: false });
                let sum = store.increment("count", 1, Expiry::Never);
                let is_over = watch.injected() == 0;
                watch.heal();
                let count = store.increment("count", 0, Expiry::Never).unwrap();
                let what = format!("{call:?} {nth}, exclusive {exclusive}: {sum:?}, and it is {count}");
                match sum {
                    Ok(sum) => assert!(sum == 2 && count == 2, "{what}"),
                    Err(_) => assert!(count == 1 || count == 2, "{what}"),
                }
                if is_over {
                    break;
                }
                hits += 1;
                happened += u32::from(sum.is_err() && count == 2);
                store.integrity_check().unwrap();
            }
        }
    }
    assert!(hits > 10 && happened > 0, "{hits}, {happened}");
}

/// An exclusive handle keeps its lock after a failed write. Otherwise the release of the lock shows
/// that the frames of the write are no longer needed.
#[test]
fn exclusive_store_is_readable_on_full_disk() {
    for (sql, exclusive) in [(false, true), (true, true), (false, false)] {
        let dir = tempfile::tempdir().unwrap();
        let watch = Watch::on(dir.path(), false);
        let config = Config::new().mmap_size(0).cache_pages(10).exclusive(exclusive).sql_engine(sql);
        let store = Store::open_with(dir.path().join("store.db"), &config).unwrap();
        for n in 0..200_u8 {
            store.put_with_expiry([n], [n; 200], Expiry::At(4_000_000_000_000)).unwrap();
        }
        let full = Fault::Code(ffi::SQLITE_FULL);
        watch.fail(Plan { call: Call::Write, nth: 1, fault: full, from_then_on: true });
        for n in 0..200_u8 {
            let put = store.put_with_expiry([n], [1; 300], Expiry::At(4_000_000_000_000 - i64::from(n)));
            assert_eq!(put.unwrap_err().kind(), ErrorKind::Full, "put {n}");
            assert_eq!(store.get([n]).unwrap().as_deref(), Some(&[n; 200][..]), "get {n}");
        }
        assert_eq!(store.count().unwrap(), 200);
        store.integrity_check().unwrap();
        store.stats().unwrap();
        assert!(watch.injected() > 0);
        watch.heal();
        store.put("room", "again").unwrap();
        store.integrity_check().unwrap();
        assert_eq!(store.count().unwrap(), 201);
    }
}

#[test]
fn exclusive_commit_with_failed_sync_stays_lost_after_crash() {
    for (sql, rolls_back) in [(false, false), (false, true), (true, false), (true, true)] {
        let dir = tempfile::tempdir().unwrap();
        let watch = Watch::on(dir.path(), false);
        let config = Config::new().sync(SyncLevel::Full).cache_pages(10).exclusive(true).sql_engine(sql);
        let path = dir.path().join("store.db");
        let store = Store::open_with(&path, &config).unwrap();
        store.put("before", "1").unwrap();
        if rolls_back {
            // More than fits into the cache, so that some of it is written to the log.
            store.begin_write().unwrap();
            for n in 0..3000_u32 {
                store.put(n.to_be_bytes(), [7; 100]).unwrap();
            }
            store.rollback().unwrap();
        } else {
            let fault = Fault::Code(ffi::SQLITE_FULL);
            watch.fail(Plan { call: Call::Write, nth: 1, fault, from_then_on: true });
            let put = store.put_with_expiry("never", "1", Expiry::At(4_000_000_000_000));
            assert_eq!(put.unwrap_err().kind(), ErrorKind::Full);
            watch.heal();
        }
        let fault = Fault::Code(ffi::SQLITE_IOERR);
        watch.fail(Plan { call: Call::Sync, nth: 1, fault, from_then_on: false });
        assert_eq!(store.put("unsynced", "1").unwrap_err().kind(), ErrorKind::Io);
        assert_eq!(watch.injected(), 1);
        watch.heal();
        assert_eq!(store.get("unsynced").unwrap(), None);
        let crashed = tempfile::tempdir().unwrap();
        for suffix in ["", "-wal"] {
            let name = format!("store.db{suffix}");
            fs::copy(dir.path().join(&name), crashed.path().join(&name)).unwrap();
        }
        let after = Store::open(crashed.path().join("store.db")).unwrap();
        assert_eq!(after.get("unsynced").unwrap(), None, "sql {sql}, rolled back {rolls_back}");
        assert_eq!(after.get("before").unwrap().as_deref(), Some(&b"1"[..]));
        assert_eq!(after.count().unwrap(), 1);
    }
}

/// SQLite's VFS reports EIO as a damaged file system, which SQLite treats as a damaged database.
#[test]
fn read_error_is_not_reported_as_damage() {
    let dir = tempfile::tempdir().unwrap();
    let watch = Watch::on(dir.path(), false);
    for (mode, sql) in [(JournalMode::Wal, false), (JournalMode::Wal, true), (JournalMode::Delete, false)] {
        let path = dir.path().join(format!("{mode:?}-{sql}.db"));
        let config = Config::new().mmap_size(0).cache_pages(10).journal_mode(mode).sql_engine(sql);
        let store = Store::open_with(&path, &config).unwrap();
        for n in 0..2000_u32 {
            store.put(n.to_be_bytes(), [7; 100]).unwrap();
        }
        store.close().unwrap();
        let mut failed = 0;
        for nth in 1..40 {
            for what in 0..5 {
                let store = Store::open_with(&path, &config).unwrap();
                let fault = Fault::Code(ffi::SQLITE_IOERR_CORRUPTFS);
                watch.fail(Plan { call: Call::Read, nth, fault, from_then_on: false });
                let done = match what {
                    0 => store.integrity_check(),
                    1 => store.get(nth.to_be_bytes()).map(drop),
                    2 => store.put("a", "1"),
                    3 => store.delete_range(&KeyRange::prefix(&[0, 0, 0])).map(drop),
                    _ => store.incremental_vacuum(None),
                };
                let injected = watch.injected() > 0;
                watch.heal();
                if let Err(e) = done {
                    assert!(injected && e.kind() == ErrorKind::Io, "{mode:?}, {what}, read {nth}: {e:?}");
                    failed += 1;
                }
            }
        }
        assert!(failed > 20, "{failed}");
    }
}

/// After a successful open, the store has all its settings.
#[test]
fn failed_sync_in_creation_never_leaves_wrong_journal_mode() {
    let (mut failed, mut nth) = (0, 0);
    loop {
        nth += 1;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store.db");
        let watch = Watch::on(dir.path(), false);
        let fault = Fault::Code(ffi::SQLITE_IOERR);
        watch.fail(Plan { call: Call::Sync, nth, fault, from_then_on: false });
        let opened = Store::open_with(&path, &Config::new());
        let is_over = watch.injected() == 0;
        watch.heal();
        match opened {
            Ok(store) => {
                assert_eq!(std::fs::read(&path).unwrap()[18], 2, "sync {nth}: not in WAL mode");
                store.put("a", "1").unwrap();
            }
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::Io, "sync {nth}: {e}");
                failed += 1;
            }
        }
        if is_over {
            break;
        }
    }
    assert!(failed >= 3, "{failed} opens failed");
}

#[test]
fn failed_read_keeps_later_writes_in_transaction() {
    play(READS);
}

/// Runs another process in which memory allocation fails again and again.
fn without_memory(role: &str) {
    let started = Instant::now();
    let (most, seconds) =
        torture_time().map_or((MEMORY_SAMPLE, 600.0), |time| (u64::MAX, time.as_secs_f64()));
    let (mut first, mut all) = (0, 0);
    let mut wrong = Vec::new();
    let mut tally = [0u64; 3];
    let mut said = Vec::new();
    loop {
        let left = (seconds - started.elapsed().as_secs_f64()).max(0.0);
        let done = Command::new(env::current_exe().unwrap())
            .args(child_arguments(module_path!()))
            .env(ROLE, format!("{role}/{first}/{most}/{left}"))
            .output()
            .unwrap();
        let out = String::from_utf8_lossy(&done.stdout).into_owned();
        let (mut tried, mut ended) = (first, false);
        for line in out.lines().filter_map(|line| line.split_once("> ").map(|(_, said)| said)) {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            let numbers = || rest.split(' ').map(|number| number.parse::<u64>().unwrap());
            match word {
                "all" => all = numbers().next().unwrap(),
                "try" => tried = numbers().next().unwrap(),
                "wrong" => wrong.push(rest.to_owned()),
                "tally" => tally.iter_mut().zip(numbers()).for_each(|(sum, n)| *sum += n),
                "said" => said.push(rest.to_owned()),
                "end" => ended = true,
                _ => {}
            }
        }
        if ended {
            break;
        }
        wrong.push(format!(
            "try {tried}: the process died: {}: {}",
            done.status,
            String::from_utf8_lossy(&done.stderr).lines().last().unwrap_or_default()
        ));
        first = tried + 1;
        if wrong.len() > 20 {
            break;
        }
    }
    let [runs, injected, failed] = tally;
    println!(
        "memory: {role}: {runs} runs with a failure among {all} allocations, {injected} hit, {failed} calls failed, \
         {:.1} s; {}",
        started.elapsed().as_secs_f64(),
        said.join("; ")
    );
    let first: Vec<String> = wrong.iter().take(12).cloned().collect();
    assert!(wrong.is_empty(), "{role}: {} failures went wrong:\n{}", wrong.len(), first.join("\n\n"));
}

#[test]
fn allocation_failures_are_safe() {
    without_memory("wal btree");
}

#[test]
fn allocation_failures_are_safe_with_sql_engine() {
    without_memory("wal sql");
}

#[test]
fn allocation_failures_are_safe_with_rollback_journal() {
    without_memory("delete btree");
}

#[test]
fn allocation_failures_are_safe_during_eviction() {
    without_memory("bounded btree");
    without_memory("bounded sql");
}

// ---- the calls that fail -------------------------------------------------------------------------

fn delete_full() -> Config {
    Config::new().journal_mode(JournalMode::Delete).sync(SyncLevel::Full)
}

#[test]
fn failing_system_calls_are_safe_with_wal() {
    // With such a small cache, pages are written and read again within a transaction.
    fail_everywhere("wal normal btree", Config::new().page_size(1024).cache_pages(8), false);
}

#[test]
fn failing_system_calls_are_safe_with_wal_and_sql_engine() {
    fail_everywhere("wal full sql", Config::new().sync(SyncLevel::Full).sql_engine(true), false);
}

#[test]
fn failing_system_calls_are_safe_during_wal_backfill() {
    fail_everywhere_in(&many_steps(), "written back", Config::new().page_size(1024).wal_pages(80), false);
}

#[test]
fn failing_system_calls_are_safe_with_secure_delete() {
    let config = Config::new().page_size(1024).wal_pages(80).secure_delete(true);
    fail_everywhere_in(&many_steps(), "overwritten", config, false);
    fail_everywhere("overwritten, delete full", delete_full().secure_delete(true), false);
}

#[test]
fn failing_system_calls_are_safe_during_eviction() {
    for sql in [false, true] {
        // The scenario must evict or remove something.
        let dir = tempfile::tempdir().unwrap();
        let config = Config::new().page_size(1024).sql_engine(sql);
        let mut world = World::new(dir.path(), config.clone());
        world.open().unwrap();
        let mut removed = 0;
        for step in &bounded_steps()[..bounded_steps().len() - 2] {
            step.call(&mut world).unwrap();
            removed = world.store().stats().unwrap().ttl_purged;
        }
        assert!(removed > 20 && world.store().stats().unwrap().evicted == 0, "{removed} rows have made room");
        drop(world);
        let config = config.cache_pages(8);
        fail_everywhere_in(
            &bounded_steps(),
            if sql { "bounded sql" } else { "bounded btree" },
            config,
            false,
        );
    }
}

#[test]
fn failing_system_calls_are_safe_with_exclusive_wal() {
    fail_everywhere("wal normal alone", Config::new(), true);
}

#[test]
fn failing_system_calls_are_safe_with_rollback_journal() {
    fail_everywhere("delete full btree", delete_full(), false);
}

#[test]
fn failing_system_calls_are_safe_with_journal_and_sql_engine() {
    let config = delete_full().sql_engine(true).page_size(1024).cache_pages(8).mmap_size(0);
    fail_everywhere("delete full sql", config, false);
}

#[cfg(feature = "encryption")]
#[test]
fn failing_system_calls_are_safe_in_encrypted_store() {
    fail_everywhere("wal encrypted", Config::new().raw_key(&[7; 32]), false);
}
