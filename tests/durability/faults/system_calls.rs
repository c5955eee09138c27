//! Every call of a scenario to the VFS fails once, or from then on.

use std::collections::BTreeMap;
use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use super::{Faulty, Tally, delete_full, run};
use crate::shim::disk::Random;
use crate::shim::scenario::{Step, World, bounded_steps, many_steps, steps};
use crate::shim::{Call, Fault, Plan, Watch, torture_time};
use kvstore::{Config, ErrorKind, SyncLevel};
use rusqlite::ffi;

/// Number of faults that a test injects if no duration is set.
const SAMPLE: usize = 150;

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
    let config = without_waiting(config, alone);
    let calls = calls(&config, steps);
    let mut plans = every_plan(&calls);
    let all = plans.len();
    let mut random = Random(name.len() as u64);
    for at in (1..plans.len()).rev() {
        plans.swap(at, random.below(at + 1));
    }
    if torture_time().is_none() {
        // Each kind of call gets the same number of faults, however often it occurs.
        let most = SAMPLE / calls.values().filter(|count| **count > 0).count();
        let mut taken: BTreeMap<Call, usize> = BTreeMap::new();
        plans.retain(|plan| {
            let taken = taken.entry(plan.call).or_insert(0);
            *taken += 1;
            *taken <= most
        });
    }
    println!("faults: {name}: {} of {all} faults; calls: {calls:?}", plans.len());
    try_plans(plans, steps, name, &config, alone);
}

/// Returns the configuration for a test. Calls do not wait for a lock that cannot be taken because
/// of a fault.
fn without_waiting(config: Config, alone: bool) -> Config {
    config.exclusive(alone).busy_timeout(Duration::ZERO)
}

/// Returns all faults for a scenario that makes these calls.
fn every_plan(calls: &BTreeMap<Call, u64>) -> Vec<Plan> {
    let mut plans = Vec::new();
    for (call, count) in calls {
        for fault in call.faults() {
            for from_then_on in [false, true] {
                for nth in 1..=*count {
                    plans.push(Plan { call: *call, nth, fault: *fault, from_then_on });
                }
            }
        }
    }
    plans
}

/// Runs the scenario once for each fault, for at most `torture_time`.
fn try_plans(plans: Vec<Plan>, steps: &[Step], name: &str, config: &Config, alone: bool) {
    let started = Instant::now();
    let ends = torture_time().map(|time| started + time);
    let mut tally = Tally::default();
    let mut wrong = Vec::new();
    for plan in plans {
        if ends.is_some_and(|ends| Instant::now() >= ends) {
            break;
        }
        let mut fault = VfsFault { plan, watch: None, hit: false };
        let begun = Instant::now();
        let done = catch_unwind(AssertUnwindSafe(|| run(config, alone, steps, &mut fault, &mut tally)))
            .unwrap_or_else(|_| Err("panic".into()));
        if let Err(e) = done {
            wrong.push(format!("{plan:?}: {e}"));
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{plan:?}: a call does not come to an end");
    }
    println!(
        "faults: {name}: {} faults tried, {} hit, {} calls failed, {:.1} s; done all the same: {:?}; closed: {}",
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

/// A write that has failed on a full disk is tried again. Without the `btree` engine, SQLite then
/// looks up the tables, which it does not find on a closed connection.
#[cfg(feature = "encryption")]
#[test]
fn full_disk_is_safe_in_encrypted_store_with_sql_engine() {
    let config = without_waiting(Config::new().raw_key(&[7; 32]).sql_engine(true), false);
    let mut plans = every_plan(&calls(&config, &steps()));
    plans.retain(|plan| {
        plan.call == Call::Write && plan.fault == Fault::Code(ffi::SQLITE_FULL) && plan.from_then_on
    });
    try_plans(plans, &steps(), "wal encrypted sql, full", &config, false);
}
