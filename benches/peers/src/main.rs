//! Compares kvstore with other stores (`make bench`, or benches/run with options). Prints a table
//! and the targets, and writes CSV files.

mod api;
mod child;
mod measure;
mod report;
mod spec;
mod store;
mod stores;
mod targets;
mod workloads;
mod zipf;

use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use measure::{Data, PROCESSOR_TIME, Results};
use report::Report;
use store::Kind;

const USAGE: &str = "
--lib PATH         libkvstore.so
--snkv PATH        SNKV's shared library, with python_stub.so beside it (benches/peers/snkv.sh makes both)
--out FOLDER       where the CSV files go, and while it runs the stores (default: target/bench)
--n N              keys (default 1000000)
--rounds N         rounds, of which medians are shown (default 3; 1 with --quick)
--minutes N        no round is begun that would end later (default 25)
--quick            20000 keys, shorter runs
--cpu              processor time instead of wall time: for comparisons while the machine is busy
--only TEXT[,...]  only workloads and groups whose name has this in it
--stores A[,...]   only these stores (and kvstore)
--list             names of workloads and stores";

struct Options {
    lib: PathBuf,
    snkv: Option<PathBuf>,
    out: PathBuf,
    n: u64,
    rounds: usize,
    minutes: u64,
    quick: bool,
    list: bool,
    only: Vec<String>,
    stores: Vec<String>,
    child: Option<[String; 5]>,
}

fn options() -> Result<Options, String> {
    let mut options = Options {
        lib: PathBuf::from("target/release/libkvstore.so"),
        snkv: None,
        out: PathBuf::from("target/bench"),
        n: 0,
        rounds: 0,
        minutes: 25,
        quick: false,
        list: false,
        only: Vec::new(),
        stores: Vec::new(),
        child: None,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut next = || arguments.next().ok_or(format!("{argument} needs a value"));
        let list = |text: String| text.split(',').map(str::to_string).collect::<Vec<_>>();
        let number = |text: String| text.replace('_', "").parse::<u64>().map_err(|e| format!("{text}: {e}"));
        match argument.as_str() {
            "--lib" => options.lib = next()?.into(),
            "--snkv" => options.snkv = Some(next()?.into()),
            "--out" => options.out = next()?.into(),
            "--n" => options.n = number(next()?)?,
            "--rounds" => options.rounds = number(next()?)?.max(1) as usize,
            "--minutes" => options.minutes = number(next()?)?,
            "--quick" => options.quick = true,
            "--cpu" => PROCESSOR_TIME.store(true, Ordering::Relaxed),
            "--list" => options.list = true,
            "--only" => options.only.extend(list(next()?)),
            "--stores" => options.stores.extend(list(next()?)),
            "--child" => options.child = Some([next()?, next()?, next()?, next()?, next()?]),
            _ => return Err(format!("unknown option {argument}; there are{USAGE}")),
        }
    }
    if options.n == 0 {
        options.n = if options.quick { 20_000 } else { 1_000_000 };
    }
    if options.rounds == 0 {
        options.rounds = if options.quick { 1 } else { 3 };
    }
    if options.n < 1000 {
        return Err("at least 1000 keys".into());
    }
    Ok(options)
}

fn main() {
    let options = options().unwrap_or_else(|why| {
        eprintln!("{why}");
        std::process::exit(2);
    });
    let api = api::load(&options.lib);
    let _ = stores::c_api::KVSTORE.set(api);
    if let Some(snkv) = &options.snkv {
        let _ = stores::c_api::SNKV.set(api::load_snkv(snkv));
    }
    let kinds = stores::all();
    if let Some([what, name, path, n, operations]) = &options.child {
        let kind = kinds.iter().find(|kind| kind.name == name.as_str()).expect("a store of that name");
        let number = |text: &String| text.parse().expect("a number");
        return child::run(what, kind, Path::new(path), number(n), number(operations));
    }
    if options.list {
        spec::WORKLOADS.iter().for_each(|workload| println!("{}", workload.name));
        spec::GROWTH.iter().chain(spec::FAMILIES).for_each(|(name, _)| println!("{name}"));
        println!("\nstores: {}", kinds.iter().map(|kind| kind.name).collect::<Vec<_>>().join(" "));
        println!(
            "groups: {}",
            workloads::GROUPS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
        );
        return;
    }
    let chosen = |kind: &Kind| {
        options.stores.is_empty()
            || kind.name == stores::KVSTORE
            || options.stores.iter().any(|name| name.eq_ignore_ascii_case(kind.name))
    };
    let kinds: Vec<Kind> = kinds.into_iter().filter(chosen).collect();
    println!("{}", conditions(&options, api));
    let folder = options.out.join(format!("stores-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for the stores");
    // Results are written after each round, so that a run can be stopped early.
    let (results, failed) = measure_all(&options, &kinds, &folder, &|results| {
        Report { results, kinds: &kinds }.csv(&options.out).expect("the CSV files");
    });
    let _ = std::fs::remove_dir_all(&folder);

    let report = Report { results: &results, kinds: &kinds };
    if PROCESSOR_TIME.load(Ordering::Relaxed) {
        println!(
            "\nPROCESSOR TIME, not wall time: no waiting for the disk or for others; threads and p50 to max are wall time."
        );
    }
    println!("\nWhat a power cut may do to writes without fsync\n{}", report.promises());
    for (title, table) in [
        (
            "Medians. In brackets: kvstore's value divided by that store's, less is better for kvstore.",
            report.table(),
        ),
        ("The writes again, beside stores that promise at least what kvstore does", report.table_of_equals()),
        (
            "The writes until a power cut loses none of them: with a checkpoint, sync or durable commit at the end",
            report.table_of_settled(),
        ),
        ("Percentiles of single operations", report.percentiles()),
        ("How costs grow", report.growth()),
    ] {
        // A table with one line has only its heading.
        if table.lines().count() > 1 {
            println!("{title}\n{table}");
        }
    }
    println!("Targets\n{}", targets::targets(&report));
    println!("{} and rounds.csv are written", options.out.join("summary.csv").display());
    if !failed.is_empty() {
        let list: Vec<String> = failed.iter().map(|(group, store)| format!("{store} in {group}")).collect();
        eprintln!("bench: FAILED and missing in the tables: {}", list.join(", "));
        std::process::exit(1);
    }
}

/// Measures all workloads. Returns the results, and the workload group and store of each failure.
fn measure_all(
    options: &Options,
    kinds: &[Kind],
    folder: &Path,
    after_round: &dyn Fn(&Results),
) -> (Results, Vec<(&'static str, &'static str)>) {
    let mut results = Results {
        limit: Duration::from_millis(if options.quick { 700 } else { 3000 }),
        ..Results::default()
    };
    // `--only` may also name a group, which is then measured as a whole.
    let is_group = |only: &String| workloads::GROUPS.iter().any(|(name, _)| name == only);
    let (whole_groups, texts): (Vec<String>, Vec<String>) = options.only.iter().cloned().partition(is_group);
    results.only.clone_from(&texts);
    if (whole_groups.is_empty() || !texts.is_empty())
        && results.wants(spec::LIBRARY)
        && let Some(bytes) = stripped_size(&options.lib, folder)
    {
        results.set(stores::KVSTORE, spec::LIBRARY, bytes as f64 / 1e6);
    }
    let data = Data::new(options.n);
    let begin = Instant::now();
    let mut broken = Vec::new();
    let mut longest = Duration::ZERO;
    for round in 0..options.rounds {
        if begin.elapsed() + longest > Duration::from_secs(60 * options.minutes) {
            eprintln!("no time for more than {round} rounds");
            break;
        }
        let start_of_round = Instant::now();
        let mut once = Duration::ZERO;
        for (group, run) in workloads::GROUPS {
            let whole = whole_groups.iter().any(|whole| whole == group);
            if !whole && !whole_groups.is_empty() && texts.is_empty() {
                continue;
            }
            results.only = if whole { Vec::new() } else { texts.clone() };
            // Each round starts with a different store.
            for kind in kinds.iter().cycle().skip(round % kinds.len()).take(kinds.len()) {
                if broken.contains(&(*group, kind.name)) {
                    continue;
                }
                let start = Instant::now();
                let mut bench = workloads::Bench { data: &data, results: &mut results, folder, round };
                // If a workload fails for one store, that store is skipped in this group. The run
                // continues.
                if std::panic::catch_unwind(AssertUnwindSafe(|| run(&mut bench, kind))).is_err() {
                    eprintln!("{} FAILED in {group}", kind.name);
                    broken.push((*group, kind.name));
                }
                if workloads::ONCE.contains(group) {
                    once += start.elapsed();
                }
                if start.elapsed() > Duration::from_millis(20) {
                    eprintln!(
                        "[{:>4.0} s] round {} of {}, {group}: {} {:.1} s",
                        begin.elapsed().as_secs_f64(),
                        round + 1,
                        options.rounds,
                        kind.name,
                        start.elapsed().as_secs_f64()
                    );
                }
            }
        }
        longest = longest.max(start_of_round.elapsed() - once);
        after_round(&results);
    }
    (results, broken)
}

/// Returns the conditions of the run that the numbers depend on.
fn conditions(options: &Options, api: &api::Api) -> String {
    // SAFETY: all three give static C strings.
    let [version, engine, sqlite] = unsafe {
        [(api.kvstore_version)(), (api.kvstore_engine)(), (api.kvstore_sqlite_version)()]
            .map(|text| std::ffi::CStr::from_ptr(text).to_string_lossy())
    };
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpu = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("");
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    format!(
        "kvstore {version}, engine {engine}, SQLite {sqlite} (plain SQLite: {}); {} keys of 16 bytes, random order, {} rounds\n{}, {} processors, load before the start {}",
        rusqlite::version(),
        options.n,
        options.rounds,
        cpu.trim_matches([' ', ':', '\t']),
        std::thread::available_parallelism().map_or(0, usize::from),
        load.split(' ').next().unwrap_or("?")
    )
}

fn stripped_size(library: &Path, folder: &Path) -> Option<u64> {
    let stripped = folder.join("stripped.so");
    let status = std::process::Command::new("strip").arg("-o").arg(&stripped).arg(library).status();
    if !status.is_ok_and(|status| status.success()) {
        eprintln!("strip does not work: the size of the library is not measured");
        return None;
    }
    std::fs::metadata(&stripped).ok().map(|file| file.len())
}
