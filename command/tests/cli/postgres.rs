//! The command with stores on a PostgreSQL server: copies between files and servers, `info`, and
//! the server's clock.

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Place, code, command, err, fails, json, kvstore, kvstore_fed, ok};
use crate::server::Server;
use kvstore::{Config, Direction, Eviction, Expiry, Family, KeyRange, PutOptions, SizeLimit, Store};

const ODD: &str = "O'dd \"näme\"\n";
const LATER: i64 = 9_000_000_000_000;

/// Number of rows of the copy tests; KVSTORE_COPY_ROWS sets it for long runs.
fn rows_wanted(few: usize) -> usize {
    std::env::var("KVSTORE_COPY_ROWS").map_or(few, |rows| rows.parse().unwrap())
}

fn open(path: impl AsRef<Path>) -> Store {
    Store::open_with(path, &Config::new().keep_journal_mode(true)).unwrap()
}

/// Keys with expiry times in three families (one tracks write times, one has a default TTL), and an
/// empty family.
fn fill(path: impl AsRef<Path>, rows: usize) {
    let store = open(path);
    let (aged, odd) = (store.create_family("aged").unwrap(), store.create_family(ODD).unwrap());
    store.create_family("empty").unwrap();
    aged.set_write_tracking(true).unwrap();
    odd.set_default_ttl(Some(Duration::from_millis(7_001))).unwrap();
    for from in (0..rows).step_by(10_000) {
        store
            .transaction(|tx| -> kvstore::Result<()> {
                for n in from..rows.min(from + 10_000) {
                    let end = if n % 8 == 0 { Expiry::Never } else { Expiry::At(LATER + n as i64) };
                    let value = format!("value {n} ").repeat(1 + n % 9);
                    match n % 3 {
                        0 => tx.put_with_expiry(format!("key {n:09}"), value, end)?,
                        1 => {
                            let options = PutOptions::new().expiry(end).written_at(1_000 + n as i64);
                            aged.put_with_options(format!("key {n:09}"), value, &options)?;
                        }
                        _ => odd.put_with_expiry([&[0xff, 0][..], &n.to_be_bytes()].concat(), value, end)?,
                    }
                }
                Ok(())
            })
            .unwrap();
    }
    store.put("large", vec![0xfe; 1 << 20]).unwrap();
    store.put_with_expiry("dead", "1", Expiry::At(1)).unwrap();
}

/// Asserts that both stores have the same families, settings and rows (key, value, expiry time,
/// write time); returns the number of rows.
fn same(one: impl AsRef<Path>, other: impl AsRef<Path>) -> u64 {
    let (one, other) = (open(one), open(other));
    assert_eq!(one.family_names().unwrap(), other.family_names().unwrap());
    let mut rows = 0;
    for name in one.family_names().unwrap().iter().map(String::as_str).chain(["default"]) {
        let (one, other) = (one.family(name).unwrap(), other.family(name).unwrap());
        assert_eq!(one.default_ttl().unwrap(), other.default_ttl().unwrap(), "{name}");
        let tracks = one.tracks_writes().unwrap();
        assert_eq!(tracks, other.tracks_writes().unwrap(), "{name}");
        let cursor = |family: &Family| {
            let mut cursor = family.cursor(KeyRange::all(), Direction::Forward);
            cursor.first().unwrap();
            cursor
        };
        let (mut left, mut right) = (cursor(&one), cursor(&other));
        loop {
            let entry = |cursor: &kvstore::Cursor| {
                let key = cursor.key()?.to_vec();
                Some((key, cursor.value().unwrap().to_vec(), cursor.expiry().unwrap()))
            };
            let (a, b) = (entry(&left), entry(&right));
            assert!(a == b, "{name}: row {rows}: {:?}, {:?}", a.map(|a| a.0), b.map(|b| b.0));
            let Some((key, ..)) = a else { break };
            // In a long run only for some rows: each is a round trip.
            if tracks && (rows < 20_000 || rows % 10 == 0) {
                assert_eq!(one.write_time(&key).unwrap(), other.write_time(&key).unwrap(), "{name} {key:?}");
            }
            rows += 1;
            left.next().unwrap();
            right.next().unwrap();
        }
    }
    other.integrity_check().unwrap();
    rows
}

fn timed(what: &str, rows: u64, run: impl FnOnce()) {
    let began = Instant::now();
    run();
    let took = began.elapsed().as_secs_f64();
    println!("{what}: {took:.1} s, {:.0} rows/s", rows as f64 / took);
}

// ---- copy -----------------------------------------------------------------------------------------

#[test]
fn copy_to_a_server_and_back_keeps_rows_times_and_settings() {
    let (place, server, rows) = (Place::new(), Server::shared(), rows_wanted(3_000));
    let file = place.word("app.db");
    fill(&file, rows);
    for (how, options) in [("at once", &[][..]), ("in steps", &["--resume"])] {
        let name = how.replace(' ', "_");
        let (url, back) = (server.url(&format!("there_{name}")), place.word(&format!("{name}.db")));
        let copied =
            |from: &str, to: &str| json(&[&["copy", from, to], options].concat())[0]["keys"].as_u64();
        timed(&format!("to the server, {how}"), rows as u64, || {
            assert_eq!(copied(&file, &url), Some(rows as u64 + 1));
        });
        timed("compared", rows as u64, || assert_eq!(same(&file, &url), rows as u64 + 1));
        timed(&format!("back to a file, {how}"), rows as u64, || {
            assert_eq!(copied(&url, &back), Some(rows as u64 + 1));
        });
        assert_eq!(same(&file, &back), rows as u64 + 1);
    }
}

/// Returns the position of a copy, as recorded in the target; `None` without a record.
fn how_far(to: &str) -> Option<Vec<u8>> {
    // Opened read-only, so that it is not created.
    let store = Store::open_with(to, &Config::new().read_only(true).keep_journal_mode(true)).ok()?;
    store.family("copy in progress").ok()?.get("at").ok()?
}

fn start(from: &str, to: &str) -> Child {
    let mut command = command(&["copy", "--resume", from, to, "--timeout", "500ms"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits until a copy has advanced; returns `false` if it has ended.
fn gets_on(copy: &mut Child, to: &str, from: Option<&[u8]>) -> bool {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        if copy.try_wait().unwrap().is_some() {
            return false;
        }
        if how_far(to).is_some_and(|at| Some(at.as_slice()) != from) {
            return true;
        }
        assert!(Instant::now() < deadline, "the copy does not get on");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn killed_copy_continues_to_the_end_in_both_directions() {
    let (place, server) = (Place::new(), Server::shared());
    let (file, url, back) = (place.word("app.db"), server.url("killed"), place.word("back.db"));
    fill(&file, rows_wanted(60_000));
    for (from, to) in [(&file, &url), (&url, &back)] {
        let mut kills = 0;
        while kills < 3 {
            let before = how_far(to);
            let mut copy = start(from, to);
            if !gets_on(&mut copy, to, before.as_deref()) {
                break;
            }
            copy.kill().unwrap(); // SIGKILL
            copy.wait().unwrap();
            kills += 1;
            let store = open(from);
            let (aged, n) = (store.family("aged").unwrap(), kills * 300);
            aged.delete(format!("key {:09}", n + 1)).unwrap();
            let changed = PutOptions::new().expiry(Expiry::At(LATER - 1)).written_at(5);
            aged.put_with_options(format!("key {:09}", n + 4), "changed", &changed).unwrap();
            store.put(format!("a new key {kills}"), "1").unwrap();
        }
        assert!(kills >= 2, "{kills}: it was done before it could be killed");
        let at = how_far(to);
        assert!(at.is_some(), "what was copied stays");
        fails(&["copy", from, to], 3, "holds an unfinished copy");
        let done = &json(&["copy", "--resume", from, to])[0];
        assert_eq!(how_far(to), None);
        let keys = same(from, to);
        assert_eq!(done["keys"], keys);
        assert!(done["written"].as_u64() < Some(keys), "{done}");
    }
}

#[test]
fn copy_waits_for_a_restarted_server_and_names_the_next_step() {
    let (place, server) = (Place::new(), Server::start(&[]));
    let (file, url, back) = (place.word("app.db"), server.url("restarted"), place.word("back.db"));
    fill(&file, rows_wanted(40_000));
    for (from, to) in [(&file, &url), (&url, &back)] {
        let mut copy = start(from, to);
        assert!(gets_on(&mut copy, to, None));
        server.stop("immediate");
        server.start_again();
        let done = copy.wait_with_output().unwrap();
        assert_eq!(code(&done), 0, "{}", err(&done));
        // The snapshot of a file survives a lost connection.
        let warns = err(&done).contains("the copy is not one snapshot");
        assert_eq!((warns, err(&done).is_empty()), (from == &url, from == &file), "{}", err(&done));
        same(from, to);
    }
    let third = place.word("third.db");
    let mut copy = start(&url, &third);
    assert!(gets_on(&mut copy, &third, None));
    server.stop("immediate");
    let given_up = copy.wait_with_output().unwrap();
    assert_eq!(code(&given_up), 3);
    let text = err(&given_up);
    assert!(
        text.contains("cannot reach the server") && text.contains("the next run continues where it stopped"),
        "{text}"
    );
    server.start_again();
    ok(&["copy", "--resume", &url, &third]);
    same(&url, &third);
}

#[test]
fn ctrl_c_stops_a_resumable_copy() {
    let (place, server) = (Place::new(), Server::shared());
    let (file, url) = (place.word("app.db"), server.url("stopped"));
    fill(&file, rows_wanted(300_000));
    let mut terminal = crate::common::Terminal::start(&["copy", "--resume", &file, &url]);
    terminal.wait_for("copying keys"); // the progress bar
    terminal.interrupt();
    let (status, shown) = terminal.end();
    assert_eq!(status.code(), Some(3), "{shown}");
    assert!(shown.contains("stopped: run the same command again to continue"), "{shown}");
    assert!(how_far(&url).is_some());
    ok(&["copy", "--resume", &file, &url]);
    same(&file, &url);
}

#[test]
fn copy_to_a_server_leaves_the_limit_out() {
    let (place, server) = (Place::new(), Server::shared());
    let file = place.word("app.db");
    let store = open(&file);
    store.set_size_limit(Some(SizeLimit::new(1 << 20, Eviction::Soonest))).unwrap();
    store.put("k", "1").unwrap();
    for (name, words) in [("limited_1", &["copy"][..]), ("limited_2", &["copy", "--resume"])] {
        ok(&[words, &[&file, &server.url(name)]].concat());
        assert_eq!(ok(&["get", &server.url(name), "k"]), "1");
    }
    let dump = ok(&["dump", &file]);
    let loaded = kvstore_fed(&["load", &server.url("limited_3")], dump.as_bytes());
    assert_eq!(code(&loaded), 0, "{}", err(&loaded));
    assert_eq!(ok(&["get", &server.url("limited_3"), "k"]), "1");
}

#[test]
fn impossible_copies_are_refused_with_a_reason() {
    let (place, server) = (Place::new(), Server::shared());
    let (file, other, url) = (place.word("app.db"), place.word("other.db"), server.url("refusing"));
    for (store, key) in [(&file, "1"), (&other, "2")] {
        ok(&["put", store, key, "v"]);
    }
    fails(&["copy", "--resume", &file], 2, "the following required arguments were not provided");
    fails(
        &["copy", "--resume", &file, "postgresql://u@h/d?nonsense=1"],
        2,
        "the URL has an unknown parameter",
    );
    fails(&["copy", "--resume", &place.word("none.db"), &url], 3, "there is no file");
    fails(&["copy", "--resume", &file, &file], 3, "cannot be copied into itself");
    let nowhere = format!("postgresql://u:secret@/d?host={}", place.word(""));
    let refused = kvstore(&["copy", "--resume", &file, &nowhere, "--timeout", "10ms"]);
    assert_eq!(code(&refused), 3);
    assert!(err(&refused).contains("cannot reach the server") && !err(&refused).contains("secret"));
    // A target with the interrupted copy of another store.
    let store = open(&file);
    store.copy_resumable(&open(&url), |done, _| done == 0).unwrap_err();
    fails(&["copy", "--resume", &other, &url], 3, "holds the unfinished copy of another store");
    fails(&["copy", "--resume", &other, &url], 3, &file);
    fails(
        &["copy", "--resume", &url, &place.word("third.db")],
        3,
        "the source store itself holds an unfinished copy",
    );
    let dumped = kvstore(&["dump", &url]);
    assert_eq!((code(&dumped), err(&dumped).contains("a copy to it was not finished")), (0, true));
    ok(&["copy", "--resume", &file, &url]);
    ok(&["copy", "--resume", &file, &url]); // everything is copied already
    ok(&["put", &url, "1", "w"]);
    fails(&["copy", "--resume", &file, &url], 3, "has keys: clear it, or copy to another store");
    // The same schema through another URL, and without the conflicting key.
    ok(&["del", &url, "1"]);
    let same_by_another_name = url.replace("postgresql://", "postgres://");
    for options in [&[][..], &["--resume"]] {
        fails(&[&["copy", &url, &same_by_another_name], options].concat(), 3, "cannot be copied into itself");
    }
}

#[test]
fn too_long_key_is_named_and_copy_continues_without_it() {
    let (place, server) = (Place::new(), Server::shared());
    let (file, url) = (place.word("app.db"), server.url("too_long"));
    ok(&["put", &file, "short", "v"]);
    let store = open(&file);
    let family = store.create_family("pages").unwrap();
    let long = |first: &str| format!("{first}{}", "x".repeat(2500));
    let keys = ["a\u{1b}[2J/", "b"].map(long);
    for key in &keys {
        family.put(key, "v").unwrap();
    }
    for (options, rest) in [(&["--resume"][..], "the same command continues"), (&[], "nothing was copied")] {
        let options = [&["copy", &file, &url], options].concat();
        let refused = kvstore(&options);
        let text = err(&refused);
        assert_eq!(code(&refused), 3, "{text}");
        for said in [
            "family \"pages\" has a key of 2506 bytes that starts with a\\x1b[2J/xxxx",
            "one of 2 keys that are too long: the maximum on a server is 2500 bytes",
            "rename or delete such keys",
            rest,
        ] {
            assert!(text.contains(said), "{said}: {text}");
        }
        assert!(!text.contains(&"x".repeat(100)) && !text.contains("continues where it stopped"), "{text}");
        kvstore(&["families", &url, "drop", "copy in progress", "--yes"]); // if it exists
        kvstore(&["del", &url, "short"]);
    }
    fails(&["copy", "--resume", &file, &url], 3, "starts with a");
    for key in &keys {
        family.delete(key).unwrap();
    }
    ok(&["copy", "--resume", &file, &url]);
    same(&file, &url);
}

#[test]
fn url_in_place_of_a_new_file_names_the_copy_command() {
    let place = Place::new();
    let file = place.word("app.db");
    ok(&["put", &file, "k", "v"]);
    let url = "postgresql://u:secret@nowhere/d";
    let from = "postgresql://u:hidden@nowhere/e";
    for (command, what) in [
        (&["backup", &file, url][..], format!("\"kvstore copy {file} URL\"")),
        (&["backup", from, url], "\"kvstore copy postgresql://u@nowhere/e URL\"".to_owned()),
        (&["recover", &file, url], "\"kvstore copy FILE URL\"".to_owned()),
        (&["dump", &file, "-o", url], format!("\"kvstore copy {file} URL\"")),
    ] {
        fails(command, 2, &what);
        let text = err(&kvstore(command));
        assert!(text.contains("postgresql://u@nowhere/d is a store on a server"), "{text}");
        assert!(!text.contains("secret") && !text.contains("hidden"), "{text}");
    }
}

#[test]
fn advice_about_files_is_not_given_for_a_server() {
    let server = Server::start(&[]);
    let url = server.url("advice");
    ok(&["put", &url, "k", "v"]);
    let advised = |args: &[&str]| {
        let refused = kvstore(args);
        let text = err(&refused);
        assert_eq!(code(&refused), 3, "{text}");
        for wrong in
            ["kvstore repair", "kvstore recover", "\"file PATH\"", "\"df\"", "another handle or process"]
        {
            assert!(!text.contains(wrong), "{wrong}: {text}");
        }
        text
    };
    let holder = open(&url);
    holder.begin_write().unwrap();
    holder.put("k", "held").unwrap();
    assert!(advised(&["put", &url, "k", "v", "--timeout", "100ms"]).contains("--timeout 60s"));
    holder.rollback().unwrap();
    server.sql("INSERT INTO advice.kvstore_row VALUES (99, 'lost', '', NULL, NULL)");
    let text = advised(&["check", &url]);
    assert!(text.contains("restore a backup of the server"), "{text}");
    let last = kvstore(&["check", &url, "--json"]);
    assert!(crate::common::out(&last).contains("\"remedy\":\"backup\""), "{}", crate::common::out(&last));
    server.sql("DROP TABLE advice.kvstore_row");
    advised(&["get", &url, "k"]);
    // Any other failure of the server.
    server.sql(
        "CREATE SCHEMA broken; CREATE VIEW broken.kvstore_meta AS SELECT 1 / 0 AS one, 1 AS format; \
                CREATE VIEW broken.kvstore_unsettled AS SELECT 1 AS one",
    );
    advised(&["get", &server.url("broken"), "k"]);
}

#[test]
fn user_that_url_and_environment_do_not_name_is_that_of_the_process() {
    // No server listens on this port: the connection is refused, not the URL.
    let mut get = command(&["get", "postgresql://127.0.0.1:1/app", "k", "--timeout", "1ms"]);
    let done = get.env_remove("PGUSER").env_remove("USER").env_remove("LOGNAME").output().unwrap();
    let text = err(&done);
    assert!(code(&done) == 3 && !text.contains("names no user") && text.contains("refused"), "{text}");
}

#[test]
fn shell_reports_once_that_a_server_cannot_be_reached() {
    let url = "postgresql://nobody:secret@127.0.0.1:1/app";
    let done = kvstore_fed(&["shell", url, "--timeout", "1ms"], b"get a\nget b\n");
    let text = err(&done);
    assert!(code(&done) == 3 && text.matches("refused").count() == 1, "{text}");
    assert!(!text.contains("secret") && !text.contains("does not exist"), "{text}");
}

#[test]
fn watch_shows_table_sizes_of_a_server() {
    let server = Server::shared();
    let url = server.url("watched");
    ok(&["put", &url, "k", "v"]);
    let mut terminal = crate::common::Terminal::start(&["watch", &url]);
    terminal.wait_for("primary");
    terminal.wait_for("indexes");
    terminal.interrupt();
    let (_, shown) = terminal.end();
    assert!(!shown.contains("WAL") && !shown.contains("commits"), "{shown}");
}

#[test]
fn help_mentions_stores_on_a_server() {
    let place = Place::new();
    ok(&["man", &place.word("")]);
    let page = std::fs::read_to_string(place.path("kvstore.1")).unwrap();
    let texts = [&["--help"][..], &["get", "--help"], &["info", "--help"], &["copy", "--help"]].map(ok);
    for text in texts.iter().chain([&page]) {
        assert!(text.contains("postgresql://"), "{text}");
    }
}

// ---- info -----------------------------------------------------------------------------------------

#[test]
fn info_of_a_server_store_has_no_pages() {
    let server = Server::shared();
    let url = server.url("info");
    ok(&["put", &url, "k", "v", "--ttl", "1h"]);
    let info = &json(&["info", &url])[0];
    let version = server.sql("SHOW server_version");
    assert_eq!(info["server"]["version"].as_str(), Some(version.as_str()));
    assert_eq!((info["server"]["schema"].as_str(), info["server"]["tls"].as_str()), (Some("info"), None));
    let total = server.sql("SELECT sum(pg_total_relation_size(('info.kvstore_' || t)::regclass)) FROM unnest(ARRAY['row', 'family', 'meta', 'unsettled']) t");
    assert_eq!(info["server"]["total_bytes"].to_string(), total);
    assert!(
        info["server"]["rows_bytes"].as_u64() > Some(0) && info["server"]["indexes_bytes"].as_u64() > Some(0)
    );
    assert_eq!(info["families"][0]["live"], 1);
    for meaningless in
        ["engine", "sqlite_version", "journal_mode", "page_size_bytes", "file_bytes", "wal_bytes"]
    {
        assert!(info.get(meaningless).is_none(), "{meaningless}");
    }
    let lines = ok(&["info", &url]);
    assert!(lines.contains(&format!("server\tversion\t{version}\n")) && !lines.contains("page"), "{lines}");
    let (_, shown) = crate::common::on_terminal(&["info", &url]);
    assert!(shown.contains(&format!("PostgreSQL {version}")) && shown.contains("no TLS"), "{shown}");
    assert!(!shown.contains("pages") && !shown.contains("btree"), "{shown}");
    // A role with read access only.
    server.sql("CREATE ROLE looker LOGIN; GRANT USAGE ON SCHEMA info TO looker; GRANT SELECT ON ALL TABLES IN SCHEMA info TO looker");
    let looked = &json(&["info", &server.url_as("looker", "info")])[0];
    assert_eq!(looked["server"]["total_bytes"], info["server"]["total_bytes"]);
}

// ---- the clock ------------------------------------------------------------------------------------

/// A server whose clock is one hour ahead.
fn ahead() -> &'static Server {
    static AHEAD: std::sync::OnceLock<Server> = std::sync::OnceLock::new();
    AHEAD.get_or_init(|| {
        let server = Server::start(&["allow_system_table_mods=on"]);
        for (name, volatility) in [("clock_timestamp", "VOLATILE"), ("statement_timestamp", "STABLE"), ("now", "STABLE")] {
            server.sql(&format!(
                "ALTER FUNCTION pg_catalog.{name}() RENAME TO real_{name};
                 CREATE FUNCTION pg_catalog.{name}() RETURNS timestamptz LANGUAGE sql {volatility} PARALLEL SAFE AS
                 $$ SELECT pg_catalog.real_{name}() + interval '1 hour' $$"
            ));
        }
        server
    })
}

#[test]
fn every_command_uses_the_servers_clock() {
    let url = ahead().url("clock");
    let hour_ms = 3_600_000;
    let about = |ms: &serde_json::Value, wanted: i64| {
        assert!((ms.as_i64().unwrap() - wanted).abs() < 60_000, "{ms}, not about {wanted}");
    };
    let now_ms = || kvstore::now_ms() + hour_ms;
    ok(&["put", &url, "ttl", "1", "--ttl", "30m"]);
    ok(&["put", &url, "at", "1", "--at", "+30m"]);
    ok(&["put", &url, "expired", "1"]);
    ok(&["expire", &url, "expired", "--at", "+30m"]);
    for key in ["ttl", "at", "expired"] {
        about(&json(&["ttl", &url, key])[0]["ttl_ms"], hour_ms / 2);
        about(&json(&["ttl", &url, key])[0]["expire_ms"], now_ms() + hour_ms / 2);
    }
    for line in json(&["ls", &url, "-l"]) {
        about(&line["ttl_ms"], hour_ms / 2);
    }
    // By the clock of this machine, these keys would be live for another half hour.
    let (_, shown) =
        crate::common::on_terminal(&["put", &url, "gone", "1", "--at", &at(now_ms() - hour_ms / 2)]);
    assert!(shown.contains("warning: expiry is in the past; the key is already expired"), "{shown}");
    assert_eq!(json(&["expiring", &url, "--from", "now"]).len(), 3);
    assert_eq!(json(&["expiring", &url, "--expired", "--to", "now"]).len(), 1);
    assert_eq!(json(&["next", &url])[0]["key"].as_str().map(str::len), Some("ttl".len()));
    assert_eq!(json(&["ls", &url, "--expired"]).len(), 1);
    assert_eq!(json(&["count", &url, "--prefix", "g"])[0]["expired"], 1);
    about(&json(&["dump", &url])[0]["dumped_ms"], now_ms());
    let place = Place::new();
    let dump = place.word("dump");
    std::fs::write(
        &dump,
        format!(
            "{{\"kvstore_dump\":1}}\n{{\"family\":\"default\",\"track_writes\":false,\"created_ms\":1}}\n\
             {{\"key\":\"a\",\"value\":\"1\",\"expire_ms\":{}}}\n{{\"end\":true,\"families\":1,\"keys\":1}}\n",
            now_ms() - hour_ms / 2
        ),
    )
    .unwrap();
    assert_eq!(json(&["load", &ahead().url("clock_load"), &dump])[0]["expired"], 1);
    std::fs::write(place.path("in.csv"), "key,value,ttl\na,1,1800\n").unwrap();
    let imported = ahead().url("clock_import");
    ok(&["import", &imported, &place.word("in.csv"), "--ttl-column", "ttl"]);
    about(&json(&["ttl", &imported, "a"])[0]["ttl_ms"], hour_ms / 2);
    assert_eq!(json(&["purge", &url, "--yes"])[0]["removed"], 1);
}

/// Formats a time as an argument.
fn at(ms: i64) -> String {
    format!("@{}", ms / 1000)
}

/// Commands may read the clock of this machine only where no store gives the time.
#[test]
fn commands_use_the_clock_of_the_store() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut folders = vec![sources.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap();
            let is_home = path == sources.join("times.rs");
            assert_eq!(code.contains("kvstore::now_ms"), is_home, "{}", path.display());
        }
    }
}
