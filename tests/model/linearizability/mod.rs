//! Every history of calls is linearizable. Threads that share handles, threads with their own
//! handles, and other processes use a store at the same time, with both engines. Meanwhile other
//! workers purge, checkpoint, vacuum, back up, create and drop families, and reopen the store.
//! `workers.rs` makes the calls, `checker.rs` checks them.
//!
//! `KVSTORE_TORTURE_SECONDS` is the duration of each test (default 1.5). With `--nocapture`, the
//! tests print their counts. The other processes are this test program again, running only
//! [`child`].

mod checker;
mod values;
mod workers;

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Write, stdin};
use std::path::PathBuf;
use std::process::Stdio;

use crate::common::{self, Scratch, other};
use checker::{Home, Op};
use kvstore::JournalMode;
use workers::{Engines, Harvest, Run, last_reads, monotonic};

const RUN: &str = "KVSTORE_TEST_RUN";
const FILE: &str = "KVSTORE_TEST_FILE";
const FOLDER: &str = "KVSTORE_TEST_FOLDER";
const OFFSET: &str = "KVSTORE_TEST_CLOCK_OFFSET";
const SECONDS: &str = "KVSTORE_TORTURE_SECONDS";
/// Number of operations that a run must exceed. On a busy machine a run is repeated with more time.
const TOO_FEW: usize = 100;
/// Time for the processes to open their handles before the run begins, in nanoseconds.
const SETTING_UP: i64 = 50_000_000;

fn nanoseconds() -> i64 {
    let seconds = env::var(SECONDS).map_or(1.5, |text| text.parse().expect("a number of seconds"));
    (seconds * 1e9) as i64
}

/// Runs a number of processes, including this one. Each number in `handles` is a handle with this
/// number of threads.
fn run(name: &str, engines: Engines, journal_mode: JournalMode, processes: usize, handles: &[usize]) {
    run_with(name, engines, journal_mode, &vec![Vec::new(); processes - 1], handles);
}

/// Environment variables of a process.
type Variables = Vec<(&'static str, OsString)>;

/// Like `run`, with these variables for the other processes.
fn run_with(
    name: &str,
    engines: Engines,
    journal_mode: JournalMode,
    others: &[Variables],
    handles: &[usize],
) {
    with_enough_time(|nanoseconds| run_for(nanoseconds, name, engines, journal_mode, others, handles));
}

/// Calls `run` with a duration, which returns the number of operations that it has checked; again
/// and with more time if they are too few.
fn with_enough_time(mut run: impl FnMut(i64) -> usize) {
    let mut nanoseconds = nanoseconds();
    while run(nanoseconds) <= TOO_FEW {
        nanoseconds *= 4;
        assert!(nanoseconds < 100_000_000_000, "so little work shows nothing");
    }
}

/// Runs the processes for this time. Returns the number of operations that were checked.
fn run_for(
    nanoseconds: i64,
    name: &str,
    engines: Engines,
    journal_mode: JournalMode,
    others: &[Variables],
    handles: &[usize],
) -> usize {
    let scratch = Scratch::new();
    let path = Some(scratch.path());
    let folder = scratch.dir().to_path_buf();
    let mut run = Run { path, folder, begins: 0, ends: 0, engines, journal_mode, handles: handles.to_vec() };
    scratch.open_with(&run.config(0)).close().unwrap();
    let numbered = others.iter().zip(1..);
    let mut children: Vec<Child> =
        numbered.map(|(variables, number)| Child::start(&run, number * 8, variables)).collect();
    run.begins = monotonic() + SETTING_UP;
    run.ends = run.begins + nanoseconds;
    children.iter_mut().for_each(|child| child.go(&run));
    let mut harvest = run.work(0);
    for child in children {
        let (busy, chores, operations) = child.finish();
        harvest.busy += busy;
        harvest.chores += chores;
        harvest.operations.extend(operations);
    }
    let store = scratch.open_with(&run.config(0));
    harvest.operations.extend(last_reads(&store, &harvest.operations));
    store.integrity_check().unwrap();
    store.close().unwrap();
    let operations = judge(name, harvest);
    let left: Vec<String> = scratch.bytes().into_keys().filter(|file| file.contains("copy")).collect();
    assert!(left.is_empty(), "backups left files: {left:?}");
    operations
}

/// Checks a history, and returns its number of operations.
fn judge(name: &str, harvest: Harvest) -> usize {
    let Harvest { operations, busy, chores } = harvest;
    let home = if common::are_on_a_server() { Home::Server } else { Home::File };
    let checked = checker::check(operations, home).unwrap_or_else(|why| panic!("{name}: {why}"));
    println!("{name}: {chores} chores, {busy} busy, {checked:?}");
    checked.operations
}

// ---- the other process ---------------------------------------------------------------------------

struct Child {
    process: std::process::Child,
    report: PathBuf,
}

impl Child {
    fn start(run: &Run, number: usize, variables: &Variables) -> Child {
        let report = run.folder.join(format!("report {number}"));
        let engines = match run.engines {
            Engines::Sql => "sql",
            Engines::Btree => "btree",
            Engines::Mixed => "mixed",
        };
        let mode = if run.journal_mode == JournalMode::Wal { "wal" } else { "delete" };
        let handles: Vec<String> = run.handles.iter().map(usize::to_string).collect();
        let mut process = other::child(module_path!())
            .env(RUN, format!("{number} {engines} {mode} {}", handles.join(" ")))
            .env(FILE, run.path.as_ref().unwrap())
            .env(FOLDER, &run.folder)
            .envs(variables.iter().cloned())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains("> ready") {
            line.clear();
            assert!(said.read_line(&mut line).unwrap() > 0, "a process has ended before it began");
        }
        process.stdout = Some(said.into_inner());
        Child { process, report }
    }

    fn go(&mut self, run: &Run) {
        writeln!(self.process.stdin.as_mut().unwrap(), "{} {}", run.begins, run.ends).unwrap();
    }

    fn finish(self) -> (u64, u64, Vec<Op>) {
        let done = self.process.wait_with_output().unwrap();
        assert!(done.status.success(), "a process failed: {}", String::from_utf8_lossy(&done.stdout));
        let report = fs::read_to_string(self.report).unwrap();
        let mut lines = report.lines();
        let (busy, chores) = lines.next().unwrap().split_once(' ').unwrap();
        (busy.parse().unwrap(), chores.parse().unwrap(), lines.map(Op::of_line).collect())
    }
}

#[test]
#[ignore = "no test, but the other processes of the tests in this file"]
fn child() {
    let (Ok(described), Ok(path), Ok(folder)) = (env::var(RUN), env::var(FILE), env::var(FOLDER)) else {
        return;
    };
    if let Ok(offset) = env::var(OFFSET) {
        let off = kvstore::now_ms() - workers::now_ms() - offset.parse::<i64>().unwrap() * 1000;
        assert!(off.abs() < 60_000, "the clock of this process is not the one it was given: {off} ms");
    }
    let words: Vec<&str> = described.split(' ').collect();
    let number: usize = words[0].parse().unwrap();
    let folder = PathBuf::from(folder);
    println!("> ready");
    let mut line = String::new();
    stdin().read_line(&mut line).unwrap();
    let (begins, ends) = line.trim_end().split_once(' ').unwrap();
    let run = Run {
        path: Some(path.into()),
        folder: folder.clone(),
        begins: begins.parse().unwrap(),
        ends: ends.parse().unwrap(),
        engines: match words[1] {
            "sql" => Engines::Sql,
            "btree" => Engines::Btree,
            _ => Engines::Mixed,
        },
        journal_mode: if words[2] == "wal" { JournalMode::Wal } else { JournalMode::Delete },
        handles: words[3..].iter().map(|users| users.parse().unwrap()).collect(),
    };
    let harvest = run.work(number);
    let operations: String = harvest.operations.into_iter().map(Op::to_line).collect();
    let report = folder.join(format!("report {number}"));
    fs::write(report, format!("{} {}\n{operations}", harvest.busy, harvest.chores)).unwrap();
}

// ---- the runs ------------------------------------------------------------------------------------

#[test]
fn threads_with_shared_handle_are_linearizable_btree() {
    run("shared, btree", Engines::Btree, JournalMode::Wal, 1, &[6]);
}

#[test]
fn threads_with_shared_handle_are_linearizable_sql() {
    run("shared, sql", Engines::Sql, JournalMode::Wal, 1, &[6]);
}

#[test]
fn threads_with_shared_memory_store_are_linearizable() {
    if common::is_of_a_file("it is in memory") {
        return;
    }
    for engines in [Engines::Btree, Engines::Sql] {
        with_enough_time(|nanoseconds| {
            let begins = monotonic();
            let (path, ends) = (None, begins + nanoseconds / 2);
            let (folder, journal_mode) = (PathBuf::new(), JournalMode::Wal);
            let run = Run { path, folder, begins, ends, engines, journal_mode, handles: vec![6] };
            judge("in memory", run.work(0))
        });
    }
}

#[test]
fn threads_with_own_handles_are_linearizable_btree() {
    run("own handles, btree", Engines::Btree, JournalMode::Wal, 1, &[1; 6]);
}

#[test]
fn threads_with_own_handles_are_linearizable_sql() {
    run("own handles, sql", Engines::Sql, JournalMode::Wal, 1, &[1; 6]);
}

#[test]
fn handles_of_both_engines_are_linearizable() {
    run("own handles, both engines", Engines::Mixed, JournalMode::Wal, 1, &[1; 6]);
}

#[test]
fn processes_are_linearizable() {
    run("processes, btree", Engines::Btree, JournalMode::Wal, 4, &[1]);
}

/// The clock of this process is right, that of another one is an hour behind, that of a third one
/// an hour ahead.
#[cfg(feature = "remote")]
#[test]
fn processes_with_clocks_an_hour_apart_are_linearizable() {
    if !common::are_on_a_server() {
        println!("SKIPPED in a file: whose processes have one clock");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("other_clock.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/c/other_clock.c");
    let mut compiler = std::process::Command::new("cc");
    compiler.args(["-std=c11", "-D_GNU_SOURCE", "-shared", "-fPIC", source, "-o"]).arg(&library);
    assert!(compiler.status().unwrap().success());
    let off = |seconds: &str| vec![("LD_PRELOAD", library.clone().into()), (OFFSET, seconds.into())];
    let others = [off("-3600"), off("3600")];
    run_with("clocks an hour apart", Engines::Mixed, JournalMode::Wal, &others, &[1, 2]);
}

#[test]
fn mixed_threads_processes_and_engines_are_linearizable() {
    run("all mixed", Engines::Mixed, JournalMode::Wal, 3, &[2, 1, 1]);
}

#[test]
fn threads_and_processes_are_linearizable_in_delete_mode() {
    run("DELETE mode", Engines::Mixed, JournalMode::Delete, 2, &[2, 1]);
}
