//! The model test: random histories of operations run against a store and against a `BTreeMap` with
//! expiry. Every answer must be the same.
//!
//! Two handles share a file. Each has its own transactions, families, batch and clock. The model
//! tracks every row of the file, including expired ones, so counts are compared too. For each
//! handle it also tracks the noted rows: expired rows that its reads have found and not removed
//! yet. They do not count for this handle, but they do for the other one.
//!
//! A new operation needs a variant of [`history::Op`] or [`history::FamilyOp`], its strategy, and
//! an arm in [`world::World`]; its effect on the rows is a method of [`table::Table`]. A new engine
//! is an entry in [`ENGINES`]. `KVSTORE_MODEL_CASES` is the number of histories (default 2000).
//!
//! On a server (`KVSTORE_TEST_REMOTE=1`) there is one handle, because two would write concurrently.
//! There, a read removes nothing, and time does not go backwards.

#[path = "../common/mod.rs"]
mod common;
mod cursors;
mod history;
mod linearizability;
mod on_family;
mod pending_removals;
mod table;
mod world;

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use kvstore::{Config, Store};
use proptest::strategy::BoxedStrategy;
use proptest::test_runner::{Config as Proptest, TestRunner};

use history::Act;
use world::World;

/// Opens a store with a certain engine; in memory if there is no path.
type Opener = fn(Option<&Path>, &Config) -> kvstore::Result<Store>;

/// The engines, and both on one file: each handle that is opened gets the engine that the previous
/// one did not have. A build without the `btree` engine tests `sql` three times.
const ENGINES: [(&str, Opener); 3] = [
    ("sql", |path, config| open(path, &config.clone().sql_engine(true))),
    ("btree", |path, config| open(path, config)),
    ("both", |path, config| {
        static OPENS: AtomicUsize = AtomicUsize::new(0);
        let sql = OPENS.fetch_add(1, Ordering::Relaxed).is_multiple_of(2);
        open(path, &config.clone().sql_engine(sql))
    }),
];

fn open(path: Option<&Path>, config: &Config) -> kvstore::Result<Store> {
    match path {
        Some(path) => Store::open_with(path, config),
        None => Store::open_in_memory(config),
    }
}

/// Number of histories over all tests.
fn cases() -> u32 {
    std::env::var("KVSTORE_MODEL_CASES").map_or(2000, |cases| cases.parse().expect("KVSTORE_MODEL_CASES"))
}

/// Runs histories with each engine, in parallel. On failure, prints the shortest failing history, and
/// writes no files.
fn run_histories(
    cases: u32,
    sides: usize,
    history: fn() -> BoxedStrategy<(u32, Vec<Act>)>,
    place: fn() -> Option<tempfile::TempDir>,
) {
    thread::scope(|scope| {
        for (engine, opener) in ENGINES {
            scope.spawn(move || run_with_engine(engine, opener, cases, sides, history, place));
        }
    });
}

fn run_with_engine(
    engine: &str,
    opener: Opener,
    cases: u32,
    sides: usize,
    history: fn() -> BoxedStrategy<(u32, Vec<Act>)>,
    place: fn() -> Option<tempfile::TempDir>,
) {
    let config = Proptest {
        cases: (cases / ENGINES.len() as u32).max(1),
        failure_persistence: None,
        max_shrink_iters: 3000,
        source_file: Some(file!()),
        ..Proptest::default()
    };
    let outcome = TestRunner::new(config).run(&history(), |(page_size, acts)| {
        let dir = place();
        let path = dir.as_ref().map(|dir| dir.path().join("store.db"));
        let mut world = World::new(opener, path, page_size, sides);
        for act in &acts {
            world.run(act);
        }
        world.finish();
        Ok(())
    });
    if let Err(e) = outcome {
        panic!("engine {engine}: {e}");
    }
}

#[cfg(feature = "remote")]
#[test]
fn store_on_server_matches_model() {
    use common::on_a_server::{new_url, opened};

    if !common::are_on_a_server() {
        return;
    }
    let config = Proptest { failure_persistence: None, max_shrink_iters: 300, ..Proptest::default() };
    let config = Proptest { cases: (cases() / 20).max(1), source_file: Some(file!()), ..config };
    let outcome = TestRunner::new(config).run(&history::history(), |(page_size, acts)| {
        let opener: Opener = |path, config| {
            let url = path.and_then(Path::to_str).filter(|url| url.starts_with("postgresql:"));
            url.inspect(|url| opened(url));
            open(path, config)
        };
        let mut world = World::new(opener, Some(new_url().into()), page_size, 1);
        acts.iter().for_each(|act| world.run(act));
        world.finish();
        Ok(())
    });
    outcome.unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn memory_store_matches_model() {
    if common::is_of_a_file("it is about memory") {
        return;
    }
    run_histories(cases() / 4, 1, history::history, || None);
}

#[test]
fn two_handles_on_one_file_match_model() {
    if common::is_of_a_file("a writer keeps no other one out there") {
        return;
    }
    run_histories(cases() - cases() / 4, 2, history::history, || Some(tempfile::tempdir().unwrap()));
}

#[test]
fn lazy_removal_by_two_handles_matches_model() {
    if common::is_of_a_file("a read removes nothing there") {
        return;
    }
    run_histories(cases() / 4, 2, history::history_of_expired_rows, || Some(tempfile::tempdir().unwrap()));
}
