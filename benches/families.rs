//! Cost of a large number of families: creating them, asking for expired keys when there are none,
//! and a round of the cleaner.
//!
//!     cargo bench --bench families                     all measurements
//!     cargo bench --bench families -- make FILE COUNT  creates a store with COUNT families
//!     cargo bench --bench families -- look FILE        measures on that file
//!
//! With the last two commands, two builds of the library can be measured on the same file.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kvstore::{Config, Expiry, Result, Store};

/// Nothing in these stores is due while they are measured.
const LONG: Duration = Duration::from_secs(3600);

fn name(n: usize) -> String {
    format!("family {n}")
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["make", file, count] => make(Path::new(file), count.parse().expect("a number")),
        ["look", file] => look(Path::new(file)),
        _ => {
            for count in [250, 260, 500, 2000, 10_000] {
                let dir = tempfile::tempdir().expect("a directory");
                let file = dir.path().join("store.db");
                make(&file, count)?;
                look(&file)?;
            }
            Ok(())
        }
    }
}

/// Makes a store of `count` families with one key each that has a TTL, in one transaction.
fn make(file: &Path, count: usize) -> Result<()> {
    let store = Store::open(file)?;
    let started = Instant::now();
    store.transaction(|tx| {
        (0..count).try_for_each(|n| tx.create_family(&name(n))?.put_with_ttl("key", "value", LONG))
    })?;
    println!("{count:>6} families made in one transaction: {}", shown(started.elapsed()));
    store.close()
}

fn look(file: &Path) -> Result<()> {
    let opening = Instant::now();
    let store = Store::open_with(file, &Config::new().busy_timeout(LONG))?;
    let opened = opening.elapsed();
    let count = store.family_names()?.len();
    store.close()?;
    let line = |what: &str, time: Duration| println!("{count:>6} families: {what:<52} {:>10}", shown(time));
    line("opening the store", opened);

    let fresh = |f: &dyn Fn(&Store) -> Result<()>| -> Result<Duration> {
        let store = Store::open(file)?;
        let (first, done) = timed(|| f(&store));
        done?;
        store.close()?;
        Ok(first)
    };
    let step = |store: &Store| store.purge_step(None, None).map(drop);
    let next = |store: &Store| store.next_expiry_all_families().map(drop);
    line("purge_step, nothing due, on a handle just opened", fresh(&step)?);
    line("next_expiry, on a handle just opened", fresh(&next)?);

    let store = Store::open_with(file, &Config::new().busy_timeout(LONG))?;
    step(&store)?;
    line("purge_step, nothing due", median(|| step(&store))?);
    line("next_expiry", median(|| next(&store))?);
    line("opening a family", median(|| store.family(&name(count / 2)).map(drop))?);
    let family = store.family(&name(count / 3))?;
    line("purge_expired of a family", median(|| family.purge_expired().map(drop))?);
    let after_own_put = median(|| {
        family.put_with_ttl("key", "value", LONG)?;
        step(&store)
    })?;
    line("put with TTL, then purge_step", after_own_put);
    let due = median(|| {
        for n in 0..10.min(count) {
            store.family(&name(n))?.put_with_expiry("due", "value", Expiry::At(1))?;
        }
        step(&store)
    })?;
    line("ten puts of what is due in ten families, then purge_step", due);

    let other = Store::open_with(file, &Config::new().busy_timeout(LONG))?;
    let mut steps = Vec::new();
    for n in 0..20 {
        other.put("other", n.to_string())?;
        let (time, done) = timed(|| step(&store));
        done?;
        steps.push(time);
    }
    steps.sort();
    line("purge_step after a commit of another handle", steps[steps.len() / 2]);
    line("... of 1 ms at most", {
        other.put("other", "last")?;
        let (time, done) = timed(|| store.purge_step(None, Some(Duration::from_millis(1))));
        done?;
        time
    });
    other.close()?;

    let (with, without) = (worst_put(&store, true)?, worst_put(&store, false)?);
    line("worst put without a cleaner", without);
    line("worst put beside a cleaner with nothing to do", with);
    store.close()
}

/// Returns the duration of the slowest put within two seconds.
fn worst_put(store: &Store, cleaner: bool) -> Result<Duration> {
    if cleaner {
        store.start_cleaner(Duration::from_millis(10), None)?;
    }
    let stop = AtomicBool::new(false);
    let worst = std::thread::scope(|scope| {
        let puts = scope.spawn(|| -> Result<Duration> {
            let mut worst = Duration::ZERO;
            while !stop.load(Ordering::Relaxed) {
                let (time, done) = timed(|| store.put("key", "value"));
                done?;
                worst = worst.max(time);
                std::thread::sleep(Duration::from_micros(200));
            }
            Ok(worst)
        });
        std::thread::sleep(Duration::from_secs(2));
        stop.store(true, Ordering::Relaxed);
        puts.join().expect("no panic")
    })?;
    store.stop_cleaner()?;
    Ok(worst)
}

fn timed<R>(f: impl FnOnce() -> R) -> (Duration, R) {
    let started = Instant::now();
    let done = f();
    (started.elapsed(), done)
}

/// Returns the median duration of several runs, which together take at most a few seconds.
fn median(mut f: impl FnMut() -> Result<()>) -> Result<Duration> {
    let begun = Instant::now();
    let mut times = Vec::new();
    while times.len() < 3 || times.len() < 100 && begun.elapsed() < Duration::from_secs(2) {
        let (time, done) = timed(&mut f);
        done?;
        times.push(time);
    }
    times.sort();
    Ok(times[times.len() / 2])
}

fn shown(time: Duration) -> String {
    match time.as_secs_f64() * 1e6 {
        micros if micros < 1000.0 => format!("{micros:.1} µs"),
        micros if micros < 1e6 => format!("{:.2} ms", micros / 1e3),
        micros => format!("{:.2} s", micros / 1e6),
    }
}
