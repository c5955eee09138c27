//! Stores on a server, as programs see them; and the table of docs/remote.md. (What a store promises wherever it is, the
//! other suites show with `KVSTORE_TEST_REMOTE=1`; the home itself has its tests in `src/db/remote`.)

mod c_common;

use std::fs;

/// Each function of the C API is in the table once, and nothing else.
#[test]
fn the_table_of_what_differs_has_every_function() {
    let list = fs::read_to_string(c_common::root().join("packaging/libkvstore0.symbols")).unwrap();
    let mut exported: Vec<_> =
        list.lines().filter_map(|line| Some(line.strip_prefix(' ')?.split_once('@')?.0)).collect();
    let page = fs::read_to_string(c_common::root().join("docs/remote.md")).unwrap();
    let table = page.split_once("## What differs, function by function").unwrap().1;
    let named = table.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    let mut named: Vec<_> =
        named.flat_map(|cell| cell.split(", ")).map(|name| name.trim_matches('`')).collect();
    exported.sort_unstable();
    named.sort_unstable();
    assert_eq!(named, exported);
}

#[cfg(not(feature = "remote"))]
#[test]
fn a_build_without_servers_says_so_and_makes_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let error = kvstore::Store::open(dir.path().join("postgresql:").join("x")).unwrap_err();
    assert_eq!(error.kind(), kvstore::ErrorKind::CantOpen);
    for url in ["postgresql://user:secret@host/db", "postgres://host"] {
        let error = kvstore::Store::open(url).unwrap_err();
        assert_eq!(error.kind(), kvstore::ErrorKind::CantOpen);
        let text = error.to_string();
        assert!(text.contains("remote") && !text.contains("secret"), "{text}");
        assert!(!std::path::Path::new("postgresql:").exists() && !std::path::Path::new("postgres:").exists());
    }
}

#[cfg(feature = "remote")]
mod on_a_server {
    use std::io::{BufRead, BufReader, Write};
    use std::path::Path;
    use std::process::{Command, Stdio};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    use kvstore::{Config, ErrorKind, Expiry, Store};

    use super::c_common::server::Server;
    use super::c_common::{build, compiler, run};

    fn open(schema: &str) -> Store {
        Store::open(Server::shared().url(schema)).unwrap()
    }

    fn in_c(scenario: &str) {
        let dir = tempfile::tempdir().unwrap();
        run(&mut c_program(Server::shared(), scenario, dir.path()));
    }

    fn c_program(server: &Server, scenario: &str, dir: &Path) -> Command {
        let program = build(&mut compiler("cc", "c11"), "tests/c/api_remote.c", dir);
        let mut command = Command::new(program);
        command.arg(scenario).current_dir(dir).env_remove("LD_LIBRARY_PATH");
        command.env("KVSTORE_TEST_URL", server.url(&format!("c_{scenario}")));
        command
    }

    #[test]
    fn a_c_program_uses_it_by_its_url_alone() {
        in_c("life");
    }

    #[test]
    fn of_two_transactions_that_cannot_both_be_one_is_told_to_run_again() {
        in_c("conflicts");
    }

    #[test]
    fn what_is_not_here_says_so() {
        in_c("not_here");
    }

    #[test]
    fn a_client_that_was_stopped_past_its_locks_ttl_has_lost_it_and_its_writes_are_refused() {
        in_c("stopped_past_its_ttl");
    }

    #[test]
    fn a_server_that_crashes_and_comes_back_costs_iterators_and_batches_nothing_and_transactions_their_work()
    {
        let (server, dir) = (Server::start(&[]), tempfile::tempdir().unwrap());
        let mut program = c_program(&server, "server_stopped_and_started", dir.path());
        let mut program = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut answers = program.stdin.take().unwrap();
        let mut asked = 0;
        for wish in BufReader::new(program.stdout.take().unwrap()).lines() {
            match wish.unwrap().as_str() {
                "stop" => server.stop("immediate"),
                "start" => server.start_again(),
                other => panic!("{other}"),
            }
            asked += 1;
            writeln!(answers, "done").unwrap();
        }
        assert!(program.wait().unwrap().success() && asked == 4);
    }

    #[test]
    fn an_error_never_shows_a_password() {
        for url in [
            "postgresql://user:sEcRet@127.0.0.1:1/db?connect_timeout=1".to_owned(),
            "postgresql://user@127.0.0.1:1/db?password=sEcRet&connect_timeout=1".to_owned(),
            "postgresql://user:sEcRet@h/db?nonsense=1".to_owned(),
            Server::shared().url("x").replace("postgres@", "nobody:sEcRet@"),
        ] {
            let error = Store::open(&url).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("sEcRet"), "{error:?}");
        }
    }

    #[test]
    fn a_backup_is_a_store_in_a_file_and_a_copy_goes_both_ways() {
        let store = open("moved");
        let family = store.create_family("f").unwrap();
        family.set_write_tracking(true).unwrap();
        family.set_default_ttl(Some(Duration::from_secs(3600))).unwrap();
        for n in 0..1500 {
            let expiry = if n % 2 == 0 { Expiry::Never } else { Expiry::At(4_000_000_000_000 + n) };
            family.put_until(format!("k{n:05}"), vec![7; (n % 50) as usize * 100], expiry).unwrap();
        }
        let rows = |store: &Store, name: &str| {
            let family = store.family(name).unwrap();
            let mut rows = Vec::new();
            for entry in family.iter() {
                let (key, value) = entry.unwrap();
                let times = (family.expire_time(&key).unwrap(), family.write_time(&key).unwrap());
                rows.push((key, value, times));
            }
            (rows, family.default_ttl().unwrap(), family.tracks_writes().unwrap())
        };
        let expected = rows(&store, "f");
        assert_eq!(expected.0.len(), 1500);
        let dir = tempfile::tempdir().unwrap();
        let mut told = 0;
        store
            .backup(dir.path().join("backup.db"), |_, _| {
                told += 1;
                true
            })
            .unwrap();
        assert!(told > 2);
        let backup = Store::open(dir.path().join("backup.db")).unwrap();
        backup.integrity_check().unwrap();
        assert!(rows(&backup, "f") == expected);
        assert_eq!(kind(store.backup(dir.path().join("stopped.db"), |_, _| false)), ErrorKind::Error);
        assert!(!dir.path().join("stopped.db").exists());
        let other = open("moved_back");
        assert_eq!(backup.copy_to(&other, |_, _| true).unwrap(), 1500);
        assert!(rows(&other, "f") == expected);
    }

    #[test]
    fn the_cleaner_purges_through_a_connection_of_its_own() {
        let store = open("cleaned");
        for n in 0..600 {
            store.put_until(format!("{n}"), "v", Expiry::At(1 + n)).unwrap();
        }
        store.put("stays", "v").unwrap();
        store.start_cleaner(Duration::from_millis(1), None).unwrap();
        while store.count().unwrap() > 1 {
            std::thread::sleep(Duration::from_millis(5));
        }
        store.close().unwrap();
    }

    #[test]
    fn a_read_only_handle_makes_nothing_and_writes_nothing() {
        let config = Config::new().read_only(true);
        let url = Server::shared().url("read_only");
        assert_eq!(kind(Store::open_with(&url, &config)), ErrorKind::CantOpen);
        open("read_only").put("a", "1").unwrap();
        let reader = Store::open_with(&url, &config).unwrap();
        assert_eq!(reader.get("a").unwrap().unwrap(), b"1");
        assert_eq!(kind(reader.put("a", "2")), ErrorKind::ReadOnly);
    }

    /// What a writer was told of its keys.
    #[derive(Default)]
    struct Told {
        done: Vec<String>,
        failed: Vec<String>,
        unknown: usize,
        /// Of its counter.
        increments: i64,
        unknown_increments: i64,
        longest_gap: Duration,
    }

    fn write_until(url: &str, writer: usize, stop: &AtomicBool) -> Told {
        let mut told = Told::default();
        let config = Config::new().busy_timeout(Duration::from_millis(200));
        let store = Store::open_with(url, &config).unwrap();
        let mut last = Instant::now();
        for n in 0.. {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let key = format!("{writer} {n}");
            let is_unknown = |e: &kvstore::Error| e.to_string().contains("unknown");
            match store.put_if_absent(&key, "1", Expiry::Never) {
                Ok(true) => {
                    told.longest_gap = told.longest_gap.max(last.elapsed());
                    last = Instant::now();
                    told.done.push(key);
                }
                Ok(false) => panic!("{key} was there"),
                Err(e) if is_unknown(&e) => told.unknown += 1,
                Err(_) => told.failed.push(key),
            }
            match store.increment(format!("counter {writer}"), 1, Expiry::Never) {
                Ok(_) => told.increments += 1,
                Err(e) if is_unknown(&e) => told.unknown_increments += 1,
                Err(_) => {}
            }
        }
        told
    }

    /// The primary dies under 16 writers, and its synchronous standby takes over: what was acknowledged is there, what failed
    /// is not, and nothing was done twice. (`KVSTORE_FAILOVERS=10`: ten times.)
    #[test]
    fn nothing_acknowledged_is_lost_when_a_standby_takes_over() {
        let times = std::env::var("KVSTORE_FAILOVERS").map_or(1, |times| times.parse().unwrap());
        for time in 0..times {
            let primary = Server::start(&["max_connections=60"]);
            let standby = primary.standby();
            primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'");
            primary.reload();
            let hosts = format!("{},{}", primary.folder().display(), standby.folder().display());
            let url = format!(
                "postgresql://postgres@/postgres?host={hosts}&port=5432,5432&schema=app&target_session_attrs=read-write"
            );
            drop(Store::open(&url).unwrap());
            let stop = AtomicBool::new(false);
            let told: Vec<Told> = std::thread::scope(|scope| {
                let writers: Vec<_> = (0..16)
                    .map(|writer| {
                        let (url, stop) = (&url, &stop);
                        scope.spawn(move || write_until(url, writer, stop))
                    })
                    .collect();
                std::thread::sleep(Duration::from_secs(2));
                primary.stop("immediate");
                standby.promote();
                std::thread::sleep(Duration::from_secs(2));
                stop.store(true, Ordering::Relaxed);
                writers.into_iter().map(|writer| writer.join().unwrap()).collect()
            });
            let store = Store::open(&url).unwrap();
            let (mut done, mut unknown) = (0, 0);
            for (writer, told) in told.iter().enumerate() {
                let is_there = |key: &String| store.exists(key).unwrap();
                let lost: Vec<_> = told.done.iter().filter(|key| !is_there(key)).collect();
                let applied: Vec<_> = told.failed.iter().filter(|key| is_there(key)).collect();
                assert!(lost.is_empty() && applied.is_empty(), "lost {lost:?}, applied {applied:?}");
                let counter = store.increment(format!("counter {writer}"), 0, Expiry::Never).unwrap();
                assert!(
                    (told.increments..=told.increments + told.unknown_increments).contains(&counter),
                    "{counter}: {} acknowledged, {} unknown",
                    told.increments,
                    told.unknown_increments
                );
                done += told.done.len() as i64 + told.increments;
                unknown += told.unknown as i64 + told.unknown_increments;
            }
            store.integrity_check().unwrap();
            let gap = told.iter().map(|told| told.longest_gap).max().unwrap();
            println!("failover {time}: {done} acknowledged, {unknown} unknown, longest gap {gap:?}");
            assert!(done > 100, "only {done} writes");
            assert!(told.iter().any(|told| told.longest_gap > Duration::from_millis(1)));
        }
    }

    fn kind<T: std::fmt::Debug>(done: kvstore::Result<T>) -> ErrorKind {
        done.unwrap_err().kind()
    }
}
