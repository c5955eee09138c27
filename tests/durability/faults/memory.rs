//! Every allocation of a scenario fails once, or from then on.
//!
//! SQLite accepts another allocator only before its first use, so these tests run in another
//! process: this program again, running only [`child`].

use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{env, ptr};

use super::{Faulty, Tally, delete_full, run};
use crate::common::other;
use crate::shim::scenario::{bounded_steps, steps};
use crate::shim::torture_time;
use kvstore::{Config, ErrorKind, Expiry, Hint, Store};
use rusqlite::ffi;

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
        // In DELETE mode a reader keeps writers out.
        let other = Store::open_with(&path, &config.clone().busy_timeout(Duration::ZERO)).unwrap();
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
    let done = other::child(module_path!()).env(ROLE, role).output().unwrap();
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
        let done =
            other::child(module_path!()).env(ROLE, format!("{role}/{first}/{most}/{left}")).output().unwrap();
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
