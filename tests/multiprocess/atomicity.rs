//! Conditional writes are atomic. 12 workers use the same keys of one file at the same time: 8
//! threads, each with its own handle, and 4 other processes. Expiry follows the wall clock.
//!
//! `KVSTORE_ATOMICITY_SECONDS` is the duration of each test (default 1). With `--nocapture`, the
//! tests print their totals. The other processes are this test program again, running only
//! [`child`].

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write, stdin};
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{Scratch, are_on_a_server, other};
use kvstore::{Config, Error, ErrorKind, Expiry, ExpiryCondition, Store, now_ms};

const THREADS: usize = 8;
const PROCESSES: usize = 4;
const WORKERS: usize = THREADS + PROCESSES;

const JOB: &str = "KVSTORE_TEST_JOB";
const WORKER: &str = "KVSTORE_TEST_WORKER";
const FILE: &str = "KVSTORE_TEST_FILE";
const FOLDER: &str = "KVSTORE_TEST_FOLDER";
const SECONDS: &str = "KVSTORE_ATOMICITY_SECONDS";

/// Longer than any of these tests.
const LONG: Duration = Duration::from_secs(3_600);

// ---- the workers ---------------------------------------------------------------------------------

/// Report of a worker: lines of numbers, each under the name of its kind.
type Report = Vec<(String, Vec<i64>)>;

/// One of the twelve workers, and the data it works with.
struct Worker<'a> {
    store: Store,
    /// Folder for files next to the store.
    folder: &'a Path,
    number: usize,
    ends: Instant,
    report: Report,
}

impl Worker<'_> {
    fn continues(&self) -> bool {
        Instant::now() < self.ends
    }

    fn report(&mut self, kind: &str, numbers: &[i64]) {
        self.report.push((kind.to_owned(), numbers.to_vec()));
    }

    fn in_ms(&self, ms: u64) -> Expiry {
        self.store.expiry_after(Duration::from_millis(ms))
    }
}

fn seconds() -> Duration {
    let seconds = env::var(SECONDS).map_or(1.0, |text| text.parse().expect("a number of seconds"));
    Duration::from_secs_f64(seconds)
}

/// Does a job until its time is over.
fn work(job: &str, path: &Path, folder: &Path, number: usize) -> Report {
    // With twelve workers on few processors, a call may wait long for its lock. No call may fail
    // because of that.
    let store = Store::open_with(path, &Config::new().busy_timeout(Duration::from_secs(300))).unwrap();
    let mut worker = Worker { store, folder, number, ends: Instant::now() + seconds(), report: Vec::new() };
    match job {
        "increment" => increment(&mut worker),
        "lock" => lock(&mut worker),
        "lease" => lease(&mut worker),
        "swap" => swap(&mut worker),
        "baton" => baton(&mut worker),
        other => panic!("no job {other}"),
    }
    worker.report
}

#[test]
#[ignore = "no test, but the other processes of the tests in this file"]
fn child() {
    let variables = [JOB, FILE, FOLDER, WORKER].map(env::var);
    let [Ok(job), Ok(path), Ok(folder), Ok(number)] = variables else { return };
    println!("> ready");
    stdin().read_line(&mut String::new()).unwrap();
    let report = work(&job, Path::new(&path), Path::new(&folder), number.parse().unwrap());
    let lines = report.iter().map(|(kind, numbers)| {
        let numbers: Vec<String> = numbers.iter().map(i64::to_string).collect();
        format!("{kind} {}\n", numbers.join(" "))
    });
    fs::write(report_file(Path::new(&folder), &number), lines.collect::<String>()).unwrap();
}

fn report_file(folder: &Path, number: &str) -> std::path::PathBuf {
    folder.join(format!("report {number}"))
}

/// Runs a job in all twelve workers at once. Returns their reports by kind.
fn run(job: &str, scratch: &Scratch) -> BTreeMap<String, Vec<Vec<i64>>> {
    let (path, folder) = (&scratch.path(), scratch.dir());
    let mut children: Vec<_> = (THREADS..WORKERS)
        .map(|number| {
            let mut process = other::child(module_path!())
                .env(JOB, job)
                .env(FILE, path)
                .env(FOLDER, folder)
                .env(WORKER, number.to_string())
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let said = BufReader::new(process.stdout.take().unwrap());
            (process, said)
        })
        .collect();
    for (_, said) in &mut children {
        let mut line = String::new();
        while !line.contains("> ready") {
            line.clear();
            assert!(said.read_line(&mut line).unwrap() > 0, "a process has ended before it began");
        }
    }
    let mut reports: Vec<Report> = thread::scope(|scope| {
        for (process, _) in &mut children {
            writeln!(process.stdin.as_mut().unwrap()).unwrap();
        }
        let threads: Vec<_> =
            (0..THREADS).map(|number| scope.spawn(move || work(job, path, folder, number))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for (n, (mut process, mut said)) in children.into_iter().enumerate() {
        std::io::copy(&mut said, &mut std::io::sink()).unwrap();
        assert!(process.wait().unwrap().success(), "a process failed");
        let text = fs::read_to_string(report_file(folder, &(THREADS + n).to_string())).unwrap();
        reports.push(
            text.lines()
                .map(|line| {
                    let mut words = line.split_ascii_whitespace();
                    let kind = words.next().unwrap().to_owned();
                    (kind, words.map(|number| number.parse().unwrap()).collect())
                })
                .collect(),
        );
    }
    let mut all: BTreeMap<String, Vec<Vec<i64>>> = BTreeMap::new();
    for (worker, report) in reports.into_iter().enumerate() {
        assert!(!report.is_empty(), "worker {worker} never got its turn");
        for (kind, numbers) in report {
            all.entry(kind).or_default().push(numbers);
        }
    }
    all
}

/// Increments a counter in a file. The file has no lock of its own: it is protected only by the
/// lock that the caller holds in the store.
fn count_unprotected(folder: &Path, inside: &str) {
    // No other worker is inside …
    let marker = folder.join(format!("{inside} is inside"));
    OpenOptions::new().write(true).create_new(true).open(&marker).expect("two hold the lock at once");
    // … so no other worker writes between this read and this write.
    let counter = folder.join(format!("{inside} counter"));
    let before: u64 = fs::read_to_string(&counter).map_or(0, |text| text.parse().unwrap());
    thread::yield_now();
    fs::write(&counter, (before + 1).to_string()).unwrap();
    fs::remove_file(&marker).unwrap();
}

fn unprotected_count(folder: &Path, inside: &str) -> u64 {
    fs::read_to_string(folder.join(format!("{inside} counter"))).unwrap().parse().unwrap()
}

/// Asserts that the values are 1, 2, 3 … without a gap, each once.
#[track_caller]
fn assert_consecutive(mut values: Vec<i64>, what: &str) {
    values.sort_unstable();
    let expected: Vec<i64> = (1..=values.len() as i64).collect();
    assert_eq!(values, expected, "{what}");
}

// ---- increment -----------------------------------------------------------------------------------

fn increment(worker: &mut Worker<'_>) {
    let mut n = worker.number as i64;
    while worker.continues() {
        n += 1;
        // A counter without TTL, incremented and decremented.
        let delta = n % 7 - 2;
        let value = worker.store.increment("total", delta, Expiry::Never).unwrap();
        worker.report("delta", &[delta, value]);
        // Each number is drawn only once.
        let ticket = worker.store.increment("ticket", 1, Expiry::Never).unwrap();
        worker.report("ticket", &[ticket]);
        // A counter with a short TTL, as used for a rate limit. After each expiry it must start at
        // 1 again.
        let store = &worker.store;
        let counted: Result<(i64, i64), Error> = store.transaction(|tx| {
            let value = tx.increment("rate", 1, store.expiry_after(Duration::from_millis(20)))?;
            match tx.expiry("rate")? {
                Some(Expiry::At(end)) => Ok((end, value)),
                // The counter has expired since. It cannot be determined which of its periods this
                // was, so the increment must not count.
                _ => Err(Error::new(ErrorKind::Error, "too late")),
            }
        });
        match counted {
            Ok((end, value)) => worker.report("rate", &[end, value]),
            Err(e) if e.kind() == ErrorKind::Locked && are_on_a_server() => {} // what a transaction there has to expect
            Err(e) => assert_eq!(e, Error::new(ErrorKind::Error, "too late")),
        }
    }
}

#[test]
fn no_increment_is_lost_between_threads_and_processes() {
    let scratch = Scratch::new();
    let store = scratch.open();
    let told = run("increment", &scratch);
    let number =
        |key: &str| -> i64 { String::from_utf8(store.get(key).unwrap().unwrap()).unwrap().parse().unwrap() };
    let sum: i64 = told["delta"].iter().map(|delta| delta[0]).sum();
    assert_eq!(number("total"), sum);
    let tickets: Vec<i64> = told["ticket"].iter().map(|ticket| ticket[0]).collect();
    let drawn = tickets.len();
    assert_eq!(number("ticket"), drawn as i64);
    assert_consecutive(tickets, "tickets");
    let mut lives: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    for rate in &told["rate"] {
        lives.entry(rate[0]).or_default().push(rate[1]);
    }
    let (count, longest) = (lives.len(), lives.values().map(Vec::len).max().unwrap());
    assert!(count > 1, "the short-lived counter never expired");
    for (end, values) in lives {
        assert_consecutive(values, &format!("the life that ended at {end}"));
    }
    println!(
        "increment: total {sum} after {} increments; {drawn} tickets, each once; a counter of 20 ms lived {count} times, at most {longest} increments long",
        told["delta"].len()
    );
    store.integrity_check().unwrap();
}

// ---- put_if_absent and compare_and_delete --------------------------------------------------------

fn lock(worker: &mut Worker<'_>) {
    let (mut taken, mut abandoned, mut missed) = (0, 0, 0);
    while worker.continues() {
        let token = format!("{} {taken} {abandoned}", worker.number);
        // The TTL is only a safeguard against holders that crash. No holder here crashes or is that
        // slow.
        if !worker.store.put_if_absent("lock", &token, worker.store.expiry_after(LONG)).unwrap() {
            missed += 1;
            thread::yield_now();
            continue;
        }
        count_unprotected(worker.folder, "lock");
        if (taken + abandoned) % 4 == 3 {
            // The lock is not released but left to expire, as if the holder had forgotten it.
            let end = worker.in_ms(5);
            assert_eq!(worker.store.set_expiry("lock", end, ExpiryCondition::Earlier).unwrap(), Some(true));
            abandoned += 1;
        } else {
            assert!(worker.store.compare_and_delete("lock", &token).unwrap(), "the lock was lost");
            // The present owner does not lose the lock to an old token.
            assert!(!worker.store.compare_and_delete("lock", &token).unwrap());
            taken += 1;
        }
    }
    worker.report("lock", &[taken, abandoned, missed]);
}

#[test]
fn put_if_absent_lock_has_one_holder_if_released_or_expired() {
    let scratch = Scratch::new();
    let store = scratch.open();
    let told = run("lock", &scratch);
    let sum = |column: usize| told["lock"].iter().map(|numbers| numbers[column]).sum::<i64>();
    let (taken, abandoned) = (sum(0), sum(1));
    assert_eq!(unprotected_count(scratch.dir(), "lock"), (taken + abandoned).unsigned_abs());
    assert!(taken > 0 && sum(2) > 0, "no two workers ever conflicted");
    let fewest = told["lock"].iter().map(|numbers| numbers[0] + numbers[1]).min().unwrap();
    println!(
        "put_if_absent: {} acquisitions, each alone ({taken} released, {abandoned} left to expire; {fewest} by the worker with the fewest), {} attempts in vain",
        taken + abandoned,
        sum(2)
    );
    store.integrity_check().unwrap();
}

fn lease(worker: &mut Worker<'_>) {
    let mut n = 0;
    while worker.continues() {
        n += 1;
        let end = worker.in_ms(10);
        let token = format!("{} {n}", worker.number);
        let taken = worker.store.put_if_absent("lease", token, end).unwrap();
        let after = now_ms();
        let end = end.millis().unwrap();
        // A lock that had expired when the call returned was never held.
        if taken && after < end {
            worker.report("lease", &[end, after]);
        }
        worker.report("attempt", &[]);
        thread::yield_now();
    }
}

#[test]
fn lease_has_one_holder_until_it_expires() {
    let scratch = Scratch::new();
    let told = run("lease", &scratch);
    let mut leases: Vec<(i64, i64)> = told["lease"].iter().map(|lease| (lease[0], lease[1])).collect();
    leases.sort_unstable();
    for pair in leases.windows(2) {
        let [(end, _), (next_end, taken_by)] = pair else { unreachable!() };
        assert!(
            taken_by >= end && next_end > end,
            "a lease to {end} was given again at {taken_by} at the latest"
        );
    }
    // Twelve workers wait for each expiry, so the lock is held most of the time.
    assert!(leases.len() > 3, "only {} leases", leases.len());
    println!(
        "put_if_absent: {} leases of 10 ms, none overlapping, in {} attempts",
        leases.len(),
        told["attempt"].len()
    );
    scratch.open().integrity_check().unwrap();
}

// ---- compare_and_swap ----------------------------------------------------------------------------

fn swap(worker: &mut Worker<'_>) {
    let me = worker.number;
    let mut lost = 0;
    while worker.continues() {
        // All workers read this number and try to raise it. Only one succeeds for each value.
        let seen = worker.store.get("number").unwrap().unwrap();
        let number: i64 = String::from_utf8(seen.clone()).unwrap().parse().unwrap();
        let end = worker.store.expiry_after(LONG);
        match worker.store.compare_and_swap("number", &seen, (number + 1).to_string(), end).unwrap() {
            true => worker.report("raised", &[number + 1]),
            false => lost += 1,
        }
        // A lock that is either free or held. The free state has a short TTL, too.
        let held = format!("held by {me}");
        let got = worker.store.compare_and_swap("door", "free", &held, end).unwrap();
        if got {
            count_unprotected(worker.folder, "door");
            let swapped = worker.store.compare_and_swap("door", &held, "free", worker.in_ms(100)).unwrap();
            assert!(swapped, "the door was lost");
            worker.report("door", &[]);
        } else if worker.store.put_if_absent("door", &held, end).unwrap() {
            // The free state had expired, so the key did not exist and this worker created it.
            count_unprotected(worker.folder, "door");
            assert!(worker.store.compare_and_swap("door", &held, "free", worker.in_ms(100)).unwrap());
            worker.report("door", &[]);
            worker.report("made", &[]);
        }
    }
    worker.report("swap", &[lost]);
}

#[test]
fn one_swap_succeeds_per_observed_value() {
    let scratch = Scratch::new();
    let store = scratch.open();
    store.put("number", "0").unwrap();
    let told = run("swap", &scratch);
    let raised: Vec<i64> = told["raised"].iter().map(|raised| raised[0]).collect();
    let count = raised.len();
    assert_eq!(store.get("number").unwrap(), Some(count.to_string().into_bytes()));
    assert_consecutive(raised, "raised numbers");
    let lost: i64 = told["swap"].iter().map(|numbers| numbers[0]).sum();
    let (doors, made) = (told["door"].len(), told["made"].len());
    assert_eq!(unprotected_count(scratch.dir(), "door"), doors as u64);
    assert!(lost > 0, "no two workers ever conflicted");
    println!(
        "compare_and_swap: {count} numbers, each raised once ({lost} swaps lost); {doors} times through the door, {made} times after it had expired"
    );
    store.integrity_check().unwrap();
}

fn baton(worker: &mut Worker<'_>) {
    let me = worker.number;
    let mine = format!("with {me}");
    let next = format!("with {}", (me + 1) % WORKERS);
    let mut passed = 0;
    while worker.continues() {
        if worker.store.get("baton").unwrap().unwrap() != mine.as_bytes() {
            thread::yield_now();
            continue;
        }
        count_unprotected(worker.folder, "baton");
        let end = worker.store.expiry_after(LONG);
        assert!(worker.store.compare_and_swap("baton", &mine, &next, end).unwrap(), "the baton was lost");
        // The present owner does not lose the baton to an earlier one.
        assert!(!worker.store.compare_and_swap("baton", &mine, &mine, end).unwrap());
        passed += 1;
    }
    worker.report("baton", &[passed]);
}

#[test]
fn token_passed_by_compare_and_swap_has_one_holder() {
    let scratch = Scratch::new();
    let store = scratch.open();
    store.put("baton", "with 0").unwrap();
    let told = run("baton", &scratch);
    let passed: Vec<i64> = told["baton"].iter().map(|numbers| numbers[0]).collect();
    let total: i64 = passed.iter().sum();
    assert_eq!(unprotected_count(scratch.dir(), "baton"), total.unsigned_abs());
    assert_eq!(store.get("baton").unwrap(), Some(format!("with {}", total % WORKERS as i64).into_bytes()));
    // Each worker has had the baton equally often, except for the last round.
    for (worker, count) in passed.iter().enumerate() {
        let expected = (total + WORKERS as i64 - 1 - worker as i64) / WORKERS as i64;
        assert_eq!(*count, expected, "worker {worker} of {passed:?}");
    }
    assert!(total > 1, "the baton was never handed on");
    println!("compare_and_swap: the baton was handed on {total} times, in turn");
    store.integrity_check().unwrap();
}
