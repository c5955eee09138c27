//! Stores on a PostgreSQL server as programs use them, and the table of
//! docs/reference/postgresql.md.

use std::fs;

use crate::c_programs::root;

/// Each function of the C API is in the table exactly once, and nothing else is.
#[test]
fn differences_table_lists_every_c_function() {
    let list = fs::read_to_string(root().join("packaging/libkvstore0.symbols")).unwrap();
    let mut exported: Vec<_> =
        list.lines().filter_map(|line| Some(line.strip_prefix(' ')?.split_once('@')?.0)).collect();
    let page = fs::read_to_string(root().join("docs/reference/postgresql.md")).unwrap();
    let table = page.split_once("## Differences by function").unwrap().1;
    let named = table.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    let mut named: Vec<_> =
        named.flat_map(|cell| cell.split(", ")).map(|name| name.trim_matches('`')).collect();
    exported.sort_unstable();
    named.sort_unstable();
    assert_eq!(named, exported);
}

#[cfg(not(feature = "remote"))]
#[test]
fn build_without_server_support_refuses_url_and_creates_no_file() {
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

    use crate::c_programs::{build, compiler, run};
    use crate::common::server::Server;

    fn open(schema: &str) -> Store {
        Store::open(Server::shared().url(schema)).unwrap()
    }

    /// Key, value, expiry time, write time.
    type Row = (Vec<u8>, Vec<u8>, Option<Expiry>, Option<i64>);

    /// Returns all rows of a family, with its settings.
    fn rows(store: &Store, name: &str) -> (Vec<Row>, Option<Duration>, bool) {
        let family = store.family(name).unwrap();
        let tracks = family.tracks_writes().unwrap();
        let mut rows = Vec::new();
        for entry in family.iter() {
            let (key, value) = entry.unwrap();
            let written = if tracks { family.write_time(&key).unwrap() } else { None };
            let end = family.expiry(&key).unwrap();
            rows.push((key, value, end, written));
        }
        (rows, family.default_ttl().unwrap(), tracks)
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
    fn c_program_uses_server_by_url_alone() {
        in_c("life");
    }

    #[test]
    fn conflicting_transaction_error_advises_retry() {
        in_c("conflicts");
    }

    #[test]
    fn unsupported_calls_on_server_say_so() {
        in_c("not_here");
    }

    /// Blocks writers of a schema's rows until it is dropped.
    struct Locked(String);

    impl Locked {
        fn rows_of(schema: &str) -> Locked {
            let server = Server::shared();
            server.sql(&format!("CREATE TABLE {schema}.let_go (n int)"));
            let sql = format!(
                "DO $$ BEGIN LOCK TABLE {schema}.kvstore_row IN SHARE MODE; \
                 WHILE NOT EXISTS (SELECT FROM {schema}.let_go) LOOP PERFORM pg_sleep(0.01); END LOOP; END $$"
            );
            std::thread::spawn(move || Server::shared().sql(&sql));
            let held = format!(
                "SELECT count(*) FROM pg_locks WHERE relation = '{schema}.kvstore_row'::regclass AND mode = 'ShareLock'"
            );
            while server.sql(&held) == "0" {}
            Locked(schema.to_owned())
        }
    }

    impl Drop for Locked {
        fn drop(&mut self) {
            Server::shared().sql(&format!("INSERT INTO {}.let_go VALUES (1)", self.0));
        }
    }

    #[test]
    fn calls_run_during_cleaning_and_begin_waits_for_its_step() {
        let store = open("beside_the_cleaner");
        store.put_with_expiry("dead", "1", Expiry::At(1)).unwrap();
        store.put("key", "1").unwrap();
        let locked = Locked::rows_of("beside_the_cleaner");
        store.start_cleaner(Duration::from_millis(1), None).unwrap();
        // The purge that waits now.
        let waiting = "SELECT coalesce(max(query_start)::text, '') FROM pg_stat_activity \
                       WHERE wait_event_type = 'Lock' AND query LIKE '%4096%' AND query LIKE '%kvstore_row%'";
        let end = Instant::now() + Duration::from_secs(60);
        let turn = || loop {
            assert!(Instant::now() < end, "the cleaner never waited, or every call for it");
            let turn = Server::shared().sql(waiting);
            if !turn.is_empty() {
                break turn;
            }
        };
        loop {
            let before = turn();
            assert_eq!(store.get("key").unwrap().as_deref(), Some(b"1".as_slice()));
            if Server::shared().sql(waiting) == before {
                break; // the call fell between two checks
            }
        }
        for write in [false, true] {
            let before = turn();
            if write { store.begin_write() } else { store.begin_read() }
                .unwrap_or_else(|e| assert_eq!(e.kind(), ErrorKind::Busy, "{e}"));
            assert_ne!(Server::shared().sql(waiting), before);
            let _ = store.rollback();
        }
        drop(locked);
        while store.count().unwrap() > 1 {
            assert!(Instant::now() < end, "the cleaner has given up");
        }
    }

    #[test]
    fn client_paused_past_lock_ttl_loses_lock_and_writes() {
        in_c("paused_past_ttl");
    }

    #[test]
    fn server_restart_loses_only_open_transactions() {
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
    fn errors_never_contain_password() {
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
    fn backup_is_file_store_and_copy_works_both_ways() {
        let store = open("moved");
        let family = store.create_family("f").unwrap();
        family.set_write_tracking(true).unwrap();
        family.set_default_ttl(Some(Duration::from_secs(3600))).unwrap();
        for n in 0..1500 {
            let expiry = if n % 2 == 0 { Expiry::Never } else { Expiry::At(4_000_000_000_000 + n) };
            family.put_with_expiry(format!("k{n:05}"), vec![7; (n % 50) as usize * 100], expiry).unwrap();
        }
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

    /// Terminates the connections of a copy, but not those of the handles.
    fn break_connections(name: &str) {
        let sql = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name";
        Server::shared().sql(&format!("{sql} = '{name}'"));
    }

    #[test]
    fn resumable_copy_reconnects_and_continues() {
        let here = Store::open_in_memory(&Config::new()).unwrap();
        let aged = here.create_family("aged").unwrap();
        aged.set_write_tracking(true).unwrap();
        here.transaction(|tx| {
            for n in 0..2_000 {
                tx.put_with_expiry(
                    format!("{n:05}"),
                    "v".repeat(n % 50),
                    Expiry::At(9_000_000_000_000 + n as i64),
                )?;
                aged.put(format!("{n:05}"), "v")?;
            }
            Ok::<(), kvstore::Error>(())
        })
        .unwrap();
        let url = format!("{}&application_name=breaks_in_a_copy", Server::shared().url("breaks_in_a_copy"));
        let there = Store::open(&url).unwrap();
        let broken = |from: &Store, to: &Store| {
            let mut breaks = 0;
            let done = from.copy_resumable(to, |done, _| {
                if done > 700 * breaks {
                    breaks += 1;
                    break_connections("breaks_in_a_copy");
                }
                true
            });
            assert!(breaks >= 5, "{breaks}");
            done.unwrap()
        };
        // The snapshot of the source stays open if only the target breaks, so the copy still has
        // the state of one moment.
        let done = broken(&here, &there);
        assert_eq!((done.keys, done.written, done.removed, done.snapshots), (4_000, 4_000, 0, 1));
        let back = Store::open_in_memory(&Config::new()).unwrap();
        let done = broken(&there, &back);
        assert_eq!((done.keys, done.removed), (4_000, 0));
        assert!(done.snapshots > 1, "{done:?}");
        for family in ["default", "aged"] {
            assert!(
                rows(&here, family) == rows(&there, family) && rows(&here, family) == rows(&back, family)
            );
        }
        assert_eq!(back.family_names().unwrap(), ["aged"]);
    }

    #[test]
    fn repeated_copy_counts_keys_once_despite_disconnect() {
        let url = format!("{}&application_name=breaks_at_its_end", Server::shared().url("breaks_at_its_end"));
        let (there, here) = (Store::open(&url).unwrap(), Store::open_in_memory(&Config::new()).unwrap());
        there.transaction(|tx| (0..2_000).try_for_each(|n| tx.put(format!("{n:05}"), "v"))).unwrap();
        there.copy_resumable(&here, |_, _| true).unwrap();
        let mut is_broken = false;
        let done = there.copy_resumable(&here, |done, _| {
            if done > 1_000 && !is_broken {
                is_broken = true;
                break_connections("breaks_at_its_end");
            }
            true
        });
        let done = done.unwrap();
        assert_eq!((done.keys, done.written, done.snapshots), (2_000, 0, 2));
    }

    #[test]
    fn abandoned_copy_keeps_copied_rows() {
        let server = Server::start(&[]);
        let here = Store::open_in_memory(&Config::new()).unwrap();
        here.transaction(|tx| (0..3_000).try_for_each(|n| tx.put(format!("{n:05}"), "v".repeat(100))))
            .unwrap();
        let there =
            Store::open_with(server.url("given_up"), &Config::new().busy_timeout(Duration::from_millis(1)))
                .unwrap();
        here.copy_resumable(&there, |done, _| done < 1_000).unwrap_err();
        let copied = there.count().unwrap();
        assert!((1_000..3_000).contains(&copied), "{copied}");
        let mut is_down = false;
        let began = Instant::now();
        let given_up = here.copy_resumable(&there, |done, _| {
            if done > 0 && !is_down {
                server.stop("immediate");
                is_down = true;
            }
            true
        });
        let given_up = given_up.unwrap_err();
        assert_eq!(given_up.kind(), ErrorKind::Io);
        assert!(given_up.to_string().ends_with("the next run continues where it stopped"), "{given_up}");
        assert!(began.elapsed() > Duration::from_secs(15), "it has waited");
        server.start_again();
        let done = here.copy_resumable(&there, |_, _| true).unwrap();
        assert_eq!((done.keys, there.count().unwrap()), (3_000, 3_000));
        assert!(done.written <= 3_000 - copied, "{done:?}");
    }

    #[test]
    fn clone_of_server_files_is_different_store() {
        let server = Server::start(&[]);
        let original = Store::open(server.url("twins")).unwrap();
        original.put("k", "of the original").unwrap();
        let twin = server.standby();
        twin.promote();
        let of_twin = Store::open(twin.url("twins")).unwrap();
        of_twin.clear().unwrap();
        assert_eq!(original.copy_to(&of_twin, |_, _| true).unwrap(), 1);
        let again = Store::open(server.url("twins").replace("postgresql:", "postgres:")).unwrap();
        original.delete("k").unwrap();
        assert_eq!(kind(original.copy_to(&again, |_, _| true)), ErrorKind::Error);
    }

    #[test]
    fn cleaner_purges_through_own_connection() {
        let store = open("cleaned");
        for n in 0..600 {
            store.put_with_expiry(format!("{n}"), "v", Expiry::At(1 + n)).unwrap();
        }
        store.put("stays", "v").unwrap();
        store.start_cleaner(Duration::from_millis(1), None).unwrap();
        while store.count().unwrap() > 1 {
            std::thread::sleep(Duration::from_millis(5));
        }
        store.close().unwrap();
    }

    #[test]
    fn read_only_handle_creates_and_writes_nothing() {
        let config = Config::new().read_only(true);
        let url = Server::shared().url("read_only");
        assert_eq!(kind(Store::open_with(&url, &config)), ErrorKind::CantOpen);
        open("read_only").put("a", "1").unwrap();
        let reader = Store::open_with(&url, &config).unwrap();
        assert_eq!(reader.get("a").unwrap().unwrap(), b"1");
        assert_eq!(kind(reader.put("a", "2")), ErrorKind::ReadOnly);
    }

    /// Answers that a writer got for its keys.
    #[derive(Default)]
    struct Told {
        done: Vec<String>,
        failed: Vec<String>,
        unknown: usize,
        /// Increments of its counter.
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

    /// The primary fails while 16 writers work, and its synchronous standby takes over.
    /// Acknowledged writes are present, failed ones are not, and none was applied twice.
    /// (`KVSTORE_FAILOVERS=10`: ten times.)
    #[test]
    fn failover_to_standby_keeps_acknowledged_writes() {
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
