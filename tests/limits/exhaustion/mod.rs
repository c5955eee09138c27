//! Exhausted resources and maximum sizes: very many families, iterators and handles, the longest
//! values, no file descriptors, a full disk, no memory. Each time a call must return a clear error
//! and change nothing, and everything must work again once the resource is available.
//!
//! Each test runs in a separate process: this test program again, running only [`child`] in a role.
//! `KVSTORE_LIMITS=long` uses sizes that take minutes, and prints what was done.
#![allow(unsafe_code)]

mod disk;
mod many;
mod without_descriptors;
mod without_memory;

use std::env;
use std::fs;
use std::time::Instant;

use crate::common::Scratch;
use crate::common::other::{Role, child_in_role, play_role};
use kvstore::{ErrorKind, Result};

const SIZE: &str = "KVSTORE_LIMITS";
/// A child prints this line if something could not be tested.
const SKIPPED: &str = "> skipped: ";

fn is_long() -> bool {
    env::var(SIZE).is_ok_and(|size| size == "long")
}

// ---- the other process ---------------------------------------------------------------------------

const ROLES: &[Role] = &[
    ("families", many::families),
    ("iterators", many::iterators),
    ("longest-values", many::longest_values),
    ("handles", many::handles),
    ("descriptors", many::descriptors_of_a_handle),
    ("openers", many::openers),
    ("leaks", many::leaks),
    ("no-descriptors-to-open", without_descriptors::no_descriptors_to_open),
    ("no-descriptors-to-work", without_descriptors::no_descriptors_to_work),
    ("full-disk", disk::full_disk),
    ("file-size", disk::file_size),
    ("file-size-in-memory", disk::file_size_in_memory),
    ("expired-disk", disk::expired_disk),
    ("deletes-on-full-disk", disk::deletes_on_full_disk),
    ("purge-on-full-disk", disk::purge_on_full_disk),
    ("transaction-on-full-disk", disk::transaction_on_full_disk),
    ("filled-while-closed", disk::filled_while_closed),
    ("no-memory", without_memory::no_memory),
    ("many-keys", many::many_keys),
];

/// Runs a role in a separate process.
#[track_caller]
fn play(role: &str) {
    let scratch = Scratch::new();
    let started = Instant::now();
    let done = child_in_role(module_path!(), scratch.dir(), role).output().unwrap();
    let (said, errors) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{role}: {}\n{said}\n{errors}", done.status);
    assert!(said.contains("test result: ok. 1 passed"), "{role} did not run:\n{said}");
    for line in said.lines() {
        if let Some((_, why)) = line.split_once(SKIPPED) {
            eprintln!("SKIPPED {role}: {why}");
        }
        if let Some((_, what)) = line.split_once("> did ") {
            println!("{role}: {what}, {:.1} s", started.elapsed().as_secs_f64());
        }
    }
}

#[test]
#[ignore = "no test, but the other processes of the tests in this file"]
fn child() {
    play_role(ROLES);
}

fn did(what: impl std::fmt::Display) {
    println!("> did {what}");
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count() - 1 // one is the directory itself
}

/// Maximum number of descriptors that stay open when everything is closed: those kept for the next
/// open (src/backend/file/os/unix/parked_files.rs), and one that replaces inherited ones in a forked child.
const PARKED: usize = 64 + 1;

/// Asserts that no more descriptors are open than before, except those that are kept.
#[track_caller]
fn assert_only_parked(before: usize, what: &str) {
    let now = descriptors();
    assert!(now <= before + PARKED, "{what}: {now} descriptors, {before} before");
}

/// Memory in use, in bytes.
fn memory() -> usize {
    memory_of(1)
}

/// A field of the system's `statm` for this process, which counts pages, in bytes.
fn memory_of(field: usize) -> usize {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(field).unwrap().parse::<usize>().unwrap() * 4096
}

fn limit(resource: libc::__rlimit_resource_t, soft: Option<u64>) {
    let mut now = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: reads and writes a limit of this process through a value that is valid for both calls.
    unsafe {
        assert_eq!(libc::getrlimit(resource, &raw mut now), 0);
        now.rlim_cur = soft.map_or(now.rlim_max, |soft| soft.min(now.rlim_max));
        assert_eq!(libc::setrlimit(resource, &raw const now), 0);
    }
}

/// Asserts that an error, if any, is of a kind that a missing resource can cause, and has a text.
#[track_caller]
fn assert_clear<R>(what: &str, done: &Result<R>) {
    if let Err(e) = done {
        use ErrorKind::{Busy, CantOpen, Full, Io, NoMemory};
        let kinds = [Busy, CantOpen, Full, Io, NoMemory];
        assert!(kinds.contains(&e.kind()), "{what}: {e:?}");
        assert!(e.to_string().len() > 10, "{what}: {e:?}");
    }
}

/// Number of calls that failed because of a missing resource, and number of calls that succeeded.
#[derive(Default)]
struct Tally {
    failed: usize,
    done: usize,
}

impl Tally {
    /// Returns `true` if the call succeeded.
    #[track_caller]
    fn ran(&mut self, what: &str, result: Result<()>) -> bool {
        assert_clear(what, &result);
        if result.is_ok() {
            self.done += 1;
        } else {
            self.failed += 1;
        }
        result.is_ok()
    }
}
