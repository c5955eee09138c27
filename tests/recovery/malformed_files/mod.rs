//! Stores with malicious or random content: no call may crash, hang or use unlimited memory. It
//! returns data, or an error that describes the problem.
//!
//! Another process (this test program again, running only [`child`]) processes a batch of damages
//! with little memory. The parent ends it if a damage takes too long. Each damage has a number.
//! `KVSTORE_TORTURE_SECONDS=n` tests all damages, or as many as fit into n seconds. A failure
//! message states how to repeat its damage.

#![allow(unsafe_code)] // limits the memory of the other process

mod edits;
mod exercise;
mod files;
mod repair;
mod special_files;
mod statements;

use std::collections::HashMap;
use std::env;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::other::{Other, role, say};
use crate::common::{Scratch, with_suffix};
use edits::Edit;
use exercise::{Answer, Answers, MISSING};
use files::{PAGE_SIZES, WithWal, page_size_of};
use kvstore::Store;

const SECONDS: &str = "KVSTORE_TORTURE_SECONDS";
/// Time limit for one damage, on a slow machine.
const DEADLINE: Duration = Duration::from_secs(60);
/// Address space of the other process, far more than a small file needs.
const MEMORY: u64 = 1 << 30;

/// Kinds of damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sort {
    Flips,
    Cuts,
    Pages,
    Children,
    Cells,
    Chains,
    Header,
    Wal,
    OtherWal,
    Sql,
}

const SORTS: [Sort; 10] = [
    Sort::Flips,
    Sort::Cuts,
    Sort::Pages,
    Sort::Children,
    Sort::Cells,
    Sort::Chains,
    Sort::Header,
    Sort::Wal,
    Sort::OtherWal,
    Sort::Sql,
];

/// Sound files, and all damages of one kind.
struct Damages {
    sort: Sort,
    file: Vec<u8>,
    wal: Vec<u8>,
    wals: Vec<Vec<u8>>,
    edits: Vec<Edit>,
    statements: Vec<String>,
}

impl Damages {
    /// Reads the sound files from a directory, in which `prepare` has put them.
    fn of(sort: Sort, directory: &Path) -> Damages {
        let read = |name: &str| fs::read(directory.join(name)).unwrap_or_default();
        let (file, wal) = (read("sound"), read("sound.wal"));
        let edits = match sort {
            Sort::Flips | Sort::Sql | Sort::OtherWal => Vec::new(),
            Sort::Cuts => edits::cuts(&file),
            Sort::Pages => edits::moved_pages(&file),
            Sort::Children => edits::children(&file),
            Sort::Cells => edits::cells(&file),
            Sort::Chains => edits::chains(&file),
            Sort::Header => edits::header(&file),
            Sort::Wal => edits::wal(&wal, page_size_of(&file)),
        };
        let wals = ["older.wal", "other.wal", "both.wal"].map(read).to_vec();
        let statements = if sort == Sort::Sql { statements::all() } else { Vec::new() };
        Damages { sort, file, wal, wals, edits, statements }
    }

    fn prepare(sort: Sort, page_size: u32, directory: &Path) {
        let write = |name: &str, bytes: &[u8]| fs::write(directory.join(name), bytes).unwrap();
        if matches!(sort, Sort::Wal | Sort::OtherWal) {
            let WithWal { file, wal, older } = files::with_wal(page_size, 0);
            let other = files::with_wal(page_size, 9).wal;
            write("sound", &file);
            write("sound.wal", &wal);
            write("both.wal", &[&wal[..wal.len() / 2], &older[wal.len() / 2..]].concat());
            write("older.wal", &older);
            write("other.wal", &other);
        } else {
            write("sound", &files::sound(page_size));
        }
    }

    fn count(&self) -> usize {
        match self.sort {
            Sort::Flips => edits::flips(&self.file),
            Sort::Sql => self.statements.len(),
            Sort::OtherWal => self.wals.len(),
            _ => self.edits.len(),
        }
    }

    fn describe(&self, n: usize) -> String {
        match self.sort {
            Sort::Flips => edits::flip(&self.file, n).to_string(),
            Sort::Sql => self.statements[n].clone(),
            Sort::OtherWal => format!("WAL {n}"),
            _ => self.edits[n].to_string(),
        }
    }

    /// Writes the damaged file and its log files to `path`, and removes other log files.
    fn make(&self, n: usize, path: &Path) {
        for suffix in ["-wal", "-shm", "-journal"] {
            let _ = fs::remove_file(with_suffix(path, suffix));
        }
        let (mut file, mut wal) = (self.file.clone(), self.wal.clone());
        match self.sort {
            Sort::Flips => edits::flip(&self.file, n).apply(&mut file),
            Sort::Sql => {}
            Sort::Wal => self.edits[n].apply(&mut wal),
            Sort::OtherWal => wal.clone_from(&self.wals[n]),
            _ => self.edits[n].apply(&mut file),
        }
        fs::write(path, file).unwrap();
        if !self.wal.is_empty() {
            fs::write(with_suffix(path, "-wal"), wal).unwrap();
        }
        if self.sort == Sort::Sql {
            let con = rusqlite::Connection::open(path).unwrap();
            // SQLite refuses some statements after part of the work. What they have changed is
            // damage, too.
            let _ = con.execute_batch(&self.statements[n]);
        }
    }
}

// ---- the other process ---------------------------------------------------------------------------

#[test]
#[ignore = "no test, but the other process of the tests in this file"]
fn child() {
    let Some((role, directory)) = role() else { return };
    limit_memory();
    match role.split_once(' ') {
        Some(("damages", numbers)) => do_damages(numbers, &directory),
        Some(("place", place)) => special_files::child(place, &directory),
        Some(("vacuum", sql)) => special_files::vacuum(sql, &directory),
        _ => panic!("no role {role}"),
    }
    say("done");
}

fn do_damages(numbers: &str, directory: &Path) {
    let numbers: Vec<usize> = numbers.split(' ').map(|number| number.parse().unwrap()).collect();
    let [sort, first, step, many] = numbers[..] else { panic!("four numbers: {numbers:?}") };
    let damages = Damages::of(SORTS[sort], directory);
    let path = directory.join("store.db");
    let sound = reads_of_sound(&damages, &path);
    for n in (0..many).map(|k| (first + k * step) % damages.count()) {
        say(format_args!("at {n}"));
        let by_sql = answers(&damages, n, &path, true);
        let direct = answers(&damages, n, &path, false);
        for wrong in all_wrong(&by_sql, &direct, &sound) {
            say(format_args!("wrong {wrong}"));
        }
        say(format_args!("did {} {}", by_sql.calls + direct.calls, by_sql.errors + direct.errors));
    }
}

fn answers(damages: &Damages, n: usize, path: &Path, sql: bool) -> Answers {
    damages.make(n, path);
    // Syncs are slow, so only some damages use them.
    let syncs = n.is_multiple_of(8);
    exercise::everything(path, sql, page_size_of(&damages.file), syncs)
}

/// Returns the answers of all reads of the undamaged file.
fn reads_of_sound(damages: &Damages, path: &Path) -> HashMap<String, Answer> {
    fs::write(path, &damages.file).unwrap();
    if !damages.wal.is_empty() {
        fs::write(with_suffix(path, "-wal"), &damages.wal).unwrap();
    }
    let answers = exercise::everything(path, true, page_size_of(&damages.file), true);
    assert!(answers.wrong.is_empty(), "{:?}", answers.wrong);
    answers.reads.into_iter().collect()
}

/// Returns wrong results: answers that are never permitted, and keys that the `btree` engine
/// reports as missing although `sql` returns an error for them. (Changed bytes within a key or
/// value cannot be detected.)
fn all_wrong(by_sql: &Answers, direct: &Answers, sound: &HashMap<String, Answer>) -> Vec<String> {
    let seen: HashMap<_, _> = by_sql.reads.iter().cloned().collect();
    let missed = |(call, answer): &&(String, Answer)| {
        *answer == Ok(MISSING)
            && matches!(seen.get(call), Some(Err(_)))
            && matches!(sound.get(call), Some(Ok(there)) if *there != MISSING)
    };
    let missed = direct.reads.iter().filter(missed);
    let missed = missed.map(|(call, _)| format!("{call}: an error by SQL, and silently missing directly"));
    let wrong = |engine: &str, answers: &Answers| -> Vec<String> {
        answers.wrong.iter().map(|wrong| format!("{engine}: {wrong}")).collect()
    };
    wrong("sql", by_sql).into_iter().chain(wrong("btree", direct)).chain(missed).collect()
}

fn limit_memory() {
    let limit = libc::rlimit { rlim_cur: MEMORY, rlim_max: MEMORY };
    // SAFETY: reads a struct that lives as long as the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) }, 0);
}

// ---- this process --------------------------------------------------------------------------------

/// Result of a batch.
#[derive(Default)]
struct Outcome {
    /// Number of damages of this kind.
    all: usize,
    damages: u64,
    calls: u64,
    errors: u64,
    failures: Vec<String>,
}

/// Runs another process in a role, and passes its output to `line` until the process ends or `line`
/// returns `false`. Ends the process if it prints nothing for too long.
fn run_child(role: &str, directory: &Path, mut line: impl FnMut(&str) -> bool) -> Result<(), String> {
    let stderr = directory.join("stderr");
    let mut program = Command::new(env::current_exe().unwrap());
    program.stderr(File::create(&stderr).unwrap());
    let mut other = Other::launch(program, module_path!(), directory, role);
    let process = i32::try_from(other.process.id()).unwrap();
    let (spoke, silent) = channel();
    let watch = thread::spawn(move || {
        loop {
            match silent.recv_timeout(DEADLINE) {
                Ok(()) => {}
                Err(RecvTimeoutError::Disconnected) => return false,
                Err(RecvTimeoutError::Timeout) => {
                    // SAFETY: a child of this process that has not been waited for, so its number
                    // is still its own.
                    unsafe { libc::kill(process, libc::SIGKILL) };
                    return true;
                }
            }
        }
    });
    let ended = loop {
        let Some(said) = other.hear() else { break false };
        spoke.send(()).unwrap();
        if said == "done" || !line(&said) {
            break true;
        }
    };
    drop(spoke);
    let hangs = watch.join().unwrap();
    let _ = other.process.kill(); // it may be gone
    let status = other.process.wait().unwrap();
    match (ended, hangs) {
        (true, _) => Ok(()),
        (false, true) => Err("does not end".to_owned()),
        (false, false) => {
            let text = fs::read_to_string(&stderr).unwrap_or_default();
            Err(format!("the process died ({status}): {}", text.lines().take(3).collect::<String>()))
        }
    }
}

/// Tests `many` damages of a kind, spread over all of them.
fn run(sort: Sort, page_size: u32, many: usize, until: Instant) -> Outcome {
    let scratch = Scratch::new();
    Damages::prepare(sort, page_size, scratch.dir());
    let damages = Damages::of(sort, scratch.dir());
    let count = damages.count();
    assert!(count > 0);
    let many = many.min(count);
    // The step has no common divisor with the number of damages, so each is tested at most once.
    let divides = |step: usize| (2..=step).any(|d| step.is_multiple_of(d) && count.is_multiple_of(d));
    let step = (count * 21 / 34..).find(|step| *step > 0 && !divides(*step)).unwrap();
    let mut outcome = Outcome { all: count, ..Outcome::default() };
    let number = SORTS.iter().position(|s| *s == sort).unwrap();
    let mut done = 0;
    while done < many && Instant::now() < until && outcome.failures.len() < 12 {
        let first = done * step % count;
        let mut at = first;
        let mut wrong = Vec::new();
        let ended =
            run_child(&format!("damages {number} {first} {step} {}", many - done), scratch.dir(), |line| {
                match line.split_once(' ') {
                    Some(("at", n)) => {
                        at = n.parse().unwrap();
                        done += 1;
                    }
                    Some(("wrong", what)) => {
                        if wrong.iter().filter(|(n, _)| *n == at).count() < 3 {
                            wrong.push((at, what.to_owned()));
                        }
                    }
                    Some(("did", counts)) => {
                        let (calls, errors) = counts.split_once(' ').unwrap();
                        outcome.calls += calls.parse::<u64>().unwrap();
                        outcome.errors += errors.parse::<u64>().unwrap();
                        outcome.damages += 1;
                    }
                    _ => panic!("the other process says {line:?}"),
                }
                wrong.len() < 12 && Instant::now() < until
            });
        if let Err(what) = ended {
            wrong.push((at, what));
        }
        for (n, what) in wrong {
            outcome.failures.push(format!(
                "{what}\n    ({sort:?} {n} of pages of {page_size}: {}; KVSTORE_HOSTILE_ONE='{sort:?} {page_size} {n}')",
                damages.describe(n)
            ));
        }
    }
    outcome
}

/// Tests `many` damages of each of these kinds, in each page size.
fn torture(sorts: &[Sort], page_sizes: &[(u32, usize)]) {
    let long = env::var(SECONDS).ok().map(|seconds| seconds.parse::<u64>().unwrap());
    let started = Instant::now();
    let mut batches: Vec<(Sort, u32, usize)> = Vec::new();
    for &sort in sorts {
        batches.extend(page_sizes.iter().map(|&(page_size, many)| (sort, page_size, many)));
    }
    let mut failures = Vec::new();
    let share = |left: usize| match long {
        // Time that a batch does not use is available to later ones.
        Some(seconds) => {
            let left_of_all = Duration::from_secs(seconds).saturating_sub(started.elapsed());
            Instant::now() + left_of_all / u32::try_from(left).unwrap()
        }
        None => Instant::now() + Duration::from_secs(600),
    };
    for (n, &(sort, page_size, many)) in batches.iter().enumerate() {
        let many = if long.is_some() { usize::MAX } else { many };
        let began = Instant::now();
        let outcome = run(sort, page_size, many, share(batches.len() - n));
        println!(
            "malformed files: {sort:?}, pages of {page_size}: {} of {} files mutated, {} calls, {} errors, {} failures, {:.1} s",
            outcome.damages,
            outcome.all,
            outcome.calls,
            outcome.errors,
            outcome.failures.len(),
            began.elapsed().as_secs_f64()
        );
        failures.extend(outcome.failures);
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

const fn few(many: [usize; 3]) -> [(u32, usize); 3] {
    [(PAGE_SIZES[0], many[0]), (PAGE_SIZES[1], many[1]), (PAGE_SIZES[2], many[2])]
}

#[test]
fn changed_bytes_never_crash_or_hang_a_call() {
    torture(&[Sort::Flips], &few([150, 60, 10]));
}

#[test]
fn truncated_files_never_crash_or_hang_a_call() {
    torture(&[Sort::Cuts], &few([30, 20, 10]));
}

#[test]
fn swapped_pages_never_crash_or_hang_a_call() {
    torture(&[Sort::Pages], &few([60, 30, 10]));
}

#[test]
fn changed_page_pointers_never_crash_or_hang_a_call() {
    torture(&[Sort::Children, Sort::Chains], &few([60, 30, 10]));
}

#[test]
fn changed_cells_never_crash_or_hang_a_call() {
    torture(&[Sort::Cells], &few([150, 60, 10]));
}

#[test]
fn changed_headers_never_crash_or_hang_a_call() {
    torture(&[Sort::Header], &few([60, 30, 5]));
}

#[test]
fn changed_wal_never_crashes_or_hangs_a_call() {
    torture(&[Sort::Wal, Sort::OtherWal], &few([40, 20, 5]));
}

#[test]
fn changed_rows_or_schema_never_crash_or_hang_a_call() {
    torture(&[Sort::Sql], &[(PAGE_SIZES[0], 250)]);
}

#[test]
fn scan_of_unordered_keys_ends_despite_writes_between_steps() {
    for sql in [true, false] {
        let scratch = Scratch::new();
        let config = exercise::config(sql);
        let store = Store::open_with(scratch.path(), &config).unwrap();
        (1..6_u8).for_each(|n| store.put(format!("key {n}"), "1").unwrap());
        store.close().unwrap();
        let mut file = fs::read(scratch.path()).unwrap();
        let at = file.windows(5).position(|bytes| bytes == b"key 4").unwrap();
        file[at..at + 5].copy_from_slice(b"key 0");
        fs::write(scratch.path(), file).unwrap();

        // However the walk handles that key, it visits it once.
        let store = Store::open_with(scratch.path(), &config).unwrap();
        let other = store.create_family("other").unwrap();
        for always in [true, false] {
            let mut met = 0;
            let walked = store.iter().take(1000).try_for_each(|entry| {
                let (key, _) = entry?;
                met += u64::from(key == b"key 0");
                if always || key == b"key 0" { other.put("seen", key) } else { Ok(()) }
            });
            assert!(met <= 2, "sql {sql}, always {always}: met {met} times");
            assert!(walked.is_ok() || walked.unwrap_err().kind() == kvstore::ErrorKind::Corrupt);
        }
    }
}

#[test]
fn rows_of_page_marked_empty_are_not_silently_lost() {
    let page_size = PAGE_SIZES[0] as usize;
    let sound = files::sound(PAGE_SIZES[0]);
    let pages = files::Pages::of(&sound);
    let keys = exercise::keys("deep", page_size);
    for page in &pages.leaves {
        let scratch = Scratch::new();
        let mut file = sound.clone();
        let count = pages.header(*page) + 3;
        file[count..count + 2].fill(0);
        fs::write(scratch.path(), file).unwrap();
        for sql in [true, false] {
            let Ok(store) = Store::open_with(scratch.path(), &exercise::config(sql)) else { continue };
            let Ok(deep) = store.family("deep") else { continue };
            // The last key never existed.
            for key in &keys[..keys.len() - 1] {
                assert_ne!(deep.get(key), Ok(None), "sql {sql}, page {page}");
            }
            assert!(
                deep.count().is_err() || deep.count() == Ok(keys.len() as u64 - 1),
                "sql {sql}, page {page}"
            );
        }
    }
}

/// Repeats one damage: `KVSTORE_HOSTILE_ONE='Flips 512 1234'`.
#[test]
#[ignore = "repeats one damage that another test has named"]
fn repeats_damage_named_in_environment() {
    let Ok(one) = env::var("KVSTORE_HOSTILE_ONE") else { return };
    let [sort, page_size, n] = one.split(' ').collect::<Vec<_>>()[..] else {
        panic!("sort, page size, number")
    };
    let sort = SORTS.into_iter().find(|s| format!("{s:?}") == sort).unwrap();
    let n: usize = n.parse().unwrap();
    let scratch = Scratch::new();
    Damages::prepare(sort, page_size.parse().unwrap(), scratch.dir());
    let damages = Damages::of(sort, scratch.dir());
    println!("{}", damages.describe(n));
    let sound = reads_of_sound(&damages, &scratch.path());
    let [by_sql, direct] = [true, false].map(|sql| answers(&damages, n, &scratch.path(), sql));
    let wrong = all_wrong(&by_sql, &direct, &sound);
    assert!(wrong.is_empty(), "{wrong:#?}");
}
