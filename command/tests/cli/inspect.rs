//! Commands that only read: `ls scan count families info`.

use std::time::Duration;

use crate::common::{Place, code, fails, json, kvstore, ok, out};
#[cfg(unix)]
use crate::common::{Terminal, copy_to_run, err, on_terminal};
use kvstore::{Config, Expiry, JournalMode, Store};

/// Creates a store with live and expired keys.
fn store() -> (Place, String) {
    let place = Place::new();
    let path = place.word("store.db");
    let db = Store::open(&path).unwrap();
    db.transaction(|_| {
        for (key, value) in [("a1", "one"), ("a2", "two"), ("b", "tab\there"), ("ä", "umlaut")] {
            db.put(key, value)?;
        }
        db.put(b"c\xff", b"\0\xfe")?;
        db.put_with_expiry("dead2", "x", Expiry::At(2000))?;
        db.put_with_expiry("dead1", "xx", Expiry::At(3000))?;
        db.put_with_ttl("soon", "later", Duration::from_secs(3600))
    })
    .unwrap();
    (place, path)
}

#[test]
fn ls_lists_keys_and_ranges_in_order() {
    let (_place, s) = store();
    assert_eq!(ok(&["ls", &s]), "a1\na2\nb\nc\\xff\nsoon\nä\n");
    for (range, keys) in [
        (&["--prefix", "a"][..], "a1\na2\n"),
        (&["--from", "a2", "--to", "soon"], "a2\nb\nc\\xff\n"),
        (&["--from", "c\\xff", "--limit", "1"], "c\\xff\n"),
        (&["--reverse", "-n", "2"], "ä\nsoon\n"),
        (&["--prefix", "a", "--reverse"], "a2\na1\n"),
        (&["--prefix", "x"], ""),
        (&["--limit", "0"], ""),
        (&["--expired"], "dead2\ndead1\n"),
        (&["--expired", "--from", "dead1", "--to", "dead2"], "dead1\n"),
        (&["--hex", "--prefix", "63"], "63ff\n"),
    ] {
        assert_eq!(ok(&[&["ls", &s], range].concat()), keys, "{range:?}");
        assert_eq!(ok(&[&["scan", &s, "--keys"], range].concat()), keys, "{range:?}");
    }
    fails(&["ls", &s, "--expired", "--reverse"], 2, "cannot be used with");
    fails(&["ls", &s, "-f", "none"], 1, "there is no family \"none\"");
    let keys = json(&["ls", &s, "--prefix", "c"]);
    assert_eq!(keys, [serde_json::json!({"key_base64": "Y/8="})]);
}

#[test]
fn scan_prints_each_value_on_one_line() {
    let (_place, s) = store();
    assert_eq!(ok(&["scan", &s, "--to", "soon"]), "a1\tone\na2\ttwo\nb\ttab\\there\nc\\xff\t\\x00\\xfe\n");
    assert_eq!(ok(&["scan", &s, "--base64", "--prefix", "Yw=="]), "Y/8=\tAP4=\n");
    let rows = json(&["scan", &s]);
    assert_eq!(rows[2], serde_json::json!({"key": "b", "value": "tab\there", "expire_ms": null}));
    assert_eq!(rows[3]["value_base64"], "AP4=");
    assert!(rows[4]["expire_ms"].as_i64().unwrap() > 1_700_000_000_000);
    // The values of expired keys are never printed.
    assert_eq!(ok(&["scan", &s, "--expired"]), "dead2\ndead1\n");
}

#[test]
fn long_listing_has_sizes_and_times() {
    let (_place, s) = store();
    let lines = ok(&["ls", &s, "-l"]);
    let lines: Vec<Vec<&str>> = lines.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!(lines[0], ["a1", "3", "never"]);
    assert_eq!(lines[4][..2], ["soon", "5"]);
    assert!((3_000_000..=3_600_000).contains(&lines[4][2].parse().unwrap()));
    assert_eq!(ok(&["ls", &s, "-l", "--expired"]), "dead2\t1\t0\ndead1\t2\t0\n");
    let soon = &json(&["ls", &s, "-l", "--prefix", "s"])[0];
    assert!(soon["size_bytes"] == 5 && soon["ttl_ms"].as_i64() <= Some(3_600_000), "{soon}");
    assert!(soon.get("written_ms").is_none());
    ok(&["families", &s, "set", "default", "--track", "on"]);
    let age: i64 = ok(&["ls", &s, "-l", "-n", "1"]).trim().split('\t').nth(3).unwrap().parse().unwrap();
    assert!((0..100_000).contains(&age));
    assert!(json(&["ls", &s, "-l"])[0]["written_ms"].as_i64().unwrap() > 1_700_000_000_000);
    #[cfg(unix)] // a terminal
    {
        let (code, shown) = on_terminal(&["ls", &s, "-l", "-n", "1"]);
        let (head, row) = shown.split_once('\n').unwrap();
        assert_eq!(head.split_whitespace().collect::<Vec<_>>(), ["SIZE", "LEFT", "AGE", "KEY"]);
        assert_eq!(head.find("AGE").unwrap() + 5, head.find("KEY").unwrap());
        assert_eq!(head.find("KEY"), row.find("a1"), "{shown}");
        let words: Vec<&str> = row.split_whitespace().collect();
        assert!(code == 0 && words.len() >= 5 && words[..3] == ["3", "B", "never"], "{shown}");
        assert!(on_terminal(&["ls", &s, "-l", "--expired"]).1.contains("ago"));
    }
}

#[test]
#[cfg(unix)] // a terminal
fn long_values_are_truncated_and_escapes_are_inert() {
    let (_place, s) = store();
    let db = Store::open(&s).unwrap();
    db.put("long", "ä".repeat(5000)).unwrap();
    db.put("rude", "\x1b[2J\u{9b}").unwrap();
    let (_, shown) = on_terminal(&["scan", &s, "--from", "l", "--to", "s"]);
    assert!(shown.contains("ää… 10.0 kB\n"), "{shown}");
    assert!(shown.contains("rude\t\\x1b[2J\\xc2\\x9b\n"), "{shown}");
    assert_eq!(ok(&["scan", &s, "--prefix", "long"]).len(), 10_006);
}

#[test]
fn all_rows_are_listed_and_the_reader_may_stop() {
    let place = Place::new();
    let s = place.word("store.db");
    let db = Store::open(&s).unwrap();
    db.transaction(|_| (0..100_000).try_for_each(|n| db.put(format!("{n:06}"), [b'v'; 20]))).unwrap();
    let shown = ok(&["ls", &s]);
    assert!(shown.lines().enumerate().all(|(n, line)| line == format!("{n:06}")) && shown.len() == 700_000);
    let last = ok(&["ls", &s, "--reverse", "--limit", "99999"]);
    assert!(last.lines().count() == 99_999 && last.ends_with("000001\n"));
    assert_eq!(json(&["scan", &s]).len(), 100_000);
    #[cfg(unix)] // bash
    {
        let pipe = "\"$0\" scan \"$1\" | head -n 1; echo ${PIPESTATUS[0]}";
        let args = ["-c", pipe, env!("CARGO_BIN_EXE_kvstore"), &s];
        let output = std::process::Command::new("bash").args(args).output().unwrap();
        assert_eq!(out(&output), format!("000000\t{}\n0\n", "v".repeat(20)));
        assert_eq!(err(&output), "");
    }
}

#[test]
fn keys_are_counted() {
    let (_place, s) = store();
    assert_eq!(ok(&["count", &s]), "6\t2\t8\n");
    assert_eq!(ok(&["count", &s, "--prefix", "a"]), "2\t0\t2\n");
    assert_eq!(ok(&["count", &s, "--from", "b", "--to", "dead2"]), "2\t1\t3\n");
    assert_eq!(
        json(&["count", &s]),
        [serde_json::json!({"family": "default", "live": 6, "expired": 2, "total": 8})]
    );
    #[cfg(unix)] // a terminal
    assert_eq!(on_terminal(&["count", &s]), (0, "6 keys live, 2 expired, 8 total\n".to_owned()));
}

#[test]
fn count_covers_all_families_and_ls_names_other_families() {
    let place = Place::new();
    let s = place.word("store.db");
    let db = Store::open(&s).unwrap();
    let web = db.create_family("web").unwrap();
    for key in ["a1", "a2", "b"] {
        web.put(key, "1").unwrap();
    }
    web.put_with_expiry("a3", "1", Expiry::At(1000)).unwrap();
    assert_eq!(ok(&["count", &s]), "0\t0\t0\tdefault\n3\t1\t4\tweb\n3\t1\t4\n");
    assert_eq!(ok(&["count", &s, "--prefix", "a"]), "0\t0\t0\tdefault\n2\t1\t3\tweb\n2\t1\t3\n");
    assert_eq!(ok(&["count", &s, "-f", "web"]), "3\t1\t4\n");
    assert_eq!(ok(&["count", &s, "-f", "default"]), "0\t0\t0\n");
    assert_eq!(
        json(&["count", &s])[1],
        serde_json::json!({"family": "web", "live": 3, "expired": 1, "total": 4})
    );
    #[cfg(unix)] // a terminal
    {
        let (_, shown) = on_terminal(&["count", &s]);
        let lines: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["FAMILY", "KEYS", "EXPIRED", "TOTAL"]);
        assert_eq!(lines[3], ["total", "3", "1", "4"], "{shown}");
    }
    fails(&["count", &s, "-f", "none"], 1, "there is no family");
    #[cfg(unix)]
    let hint = "kvstore: family \"default\" is empty, but the store has one more family: select one with -f; \"kvstore \
                families\" lists them\n";
    for args in [&["ls", &s][..], &["scan", &s, "--prefix", "a"]] {
        #[cfg(unix)] // a terminal
        assert_eq!(on_terminal(args), (0, hint.to_owned()));
        assert_eq!(ok(args), "");
    }
    #[cfg(unix)]
    assert_eq!(on_terminal(&["ls", &s, "-f", "web", "--prefix", "x"]).1, "");
    db.put("k", "1").unwrap();
    #[cfg(unix)]
    assert_eq!(on_terminal(&["ls", &s, "--prefix", "x"]).1, "");
}

#[test]
fn families_are_created_set_listed_and_dropped() {
    let place = Place::new();
    let s = place.word("new.db");
    fails(&["families", &s], 3, "there is no file");
    ok(&["families", &s, "create", "sessions", "--ttl", "30m", "--track"]);
    ok(&["families", &s, "create", "Odd\"\tname"]);
    fails(&["families", &s, "create", "sessions"], 1, "exists already");
    fails(&["families", &s, "create", "kvstore"], 2, "reserved");
    ok(&["put", &s, "a", "1", "-f", "sessions"]);
    let listed = ok(&["families", &s]);
    let lines: Vec<Vec<&str>> = listed.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!(lines[1][..4], ["Odd\"\\tname", "0", "none", "off"]);
    assert_eq!(lines[2][..4], ["sessions", "1", "1800000", "on"]);
    assert!(lines[0][0] == "default" && lines[0][4].parse::<i64>().unwrap() > 1_700_000_000_000);
    let told = &json(&["families", &s])[2];
    assert!(told["default_ttl_ms"] == 1_800_000 && told["track_writes"] == true && told["live"] == 1);
    ok(&["families", &s, "set", "sessions", "--ttl", "none", "--track", "off"]);
    let told = json(&["families", &s, "set", "default", "--ttl", "1h"]);
    assert_eq!(told[0]["default_ttl_ms"], 3_600_000);
    assert!(json(&["families", &s])[2]["default_ttl_ms"].is_null());
    fails(&["families", &s, "set", "sessions"], 2, "<--ttl <DURATION>|--track <on|off>>");
    for action in ["create", "set", "drop"] {
        let help = ok(&["families", &s, action, "--help"]);
        assert!(
            help.contains(&format!("Usage: kvstore families [STORE] {action} [OPTIONS] <NAME>")),
            "{help}"
        );
    }
    ok(&["families", &s, "create", "behind", "--timeout", "1s"]);
    ok(&["families", &s, "--timeout", "1s", "drop", "behind"]);
    let busy = Store::open(&s).unwrap();
    busy.begin_write().unwrap();
    fails(
        &["families", &s, "create", "behind", "--timeout", "1ms"],
        3,
        "holds the lock (busy timeout: 1 ms)\n  try again, or wait longer with --timeout",
    );
    busy.rollback().unwrap();
    drop(busy);
    fails(&["families", &s, "set", "none", "--ttl", "1h"], 1, "there is no family");
    fails(&["families", &s, "set", "default", "--ttl", "2000w"], 2, "20 years");
    #[cfg(unix)] // a terminal
    {
        let (_, shown) = on_terminal(&["families", &s]);
        assert!(shown.starts_with("FAMILY ") && shown.contains("1h 00m"), "{shown}");
        let mut terminal = Terminal::start(&["families", &s, "drop", "sessions"]);
        terminal.wait_for("This drops family \"sessions\" with 1 key. Continue? [y/N]");
        terminal.type_in("n\n");
        assert_eq!(terminal.end().0.code(), Some(1));
        let mut terminal = Terminal::start(&["families", &s, "drop", "sessions"]);
        terminal.wait_for("[y/N]");
        terminal.type_in("y\n");
        assert_eq!(terminal.end().0.code(), Some(0));
    }
    #[cfg(windows)]
    ok(&["families", &s, "drop", "sessions"]);
    fails(&["families", &s, "drop", "sessions"], 1, "there is no family");
    fails(&["families", &s, "drop", "default"], 2, &format!("\"kvstore del {s} --all\" removes its keys"));
    assert_eq!(json(&["families", &s, "drop", "Odd\"\tname"])[0]["dropped"], true);
    assert_eq!(ok(&["families", &s]).lines().count(), 1);
}

/// Returns the value of a line of `info`.
fn line<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('\t'))
}

#[test]
fn info_fits_on_one_screen() {
    let (_place, s) = store();
    let db = Store::open(&s).unwrap();
    db.put("large", vec![1; 1_000_000]).unwrap();
    db.create_family("other").unwrap();
    let path = if cfg!(windows) { s.clone().into() } else { std::fs::canonicalize(&s).unwrap() };
    #[cfg(unix)] // a terminal
    {
        let (code, shown) = on_terminal(&["info", &s]);
        assert_eq!(code, 0, "{shown}");
        for text in [
            &format!("{}\n", path.display()),
            "version 1, created by kvstore",
            "4096 bytes, journal mode wal",
            "large values     1.0 MB",
            "to be checkpointed",
            "FAMILY ",
            "\"kvstore purge\" removes 2 expired keys\n",
        ] {
            assert!(shown.contains(text), "{text}: {shown}");
        }
        assert!(shown.lines().count() <= 30);
    }
    let piped = ok(&["info", &s]);
    assert_eq!(line(&piped, "path"), path.to_str());
    assert_eq!(line(&piped, "family\tdefault\tlive"), Some("7"));
    assert_eq!(line(&piped, "family\tdefault\texpired"), Some("2"));
    assert_eq!(line(&piped, "family\tdefault\twith_ttl"), Some("1"));
    assert_eq!(line(&piped, "family\tother\tlive"), Some("0"));
    let told = &json(&["info", &s])[0];
    assert_eq!(told["families"][0]["next_expiry_ms"], 2000);
    assert!(told["wal_pending_bytes"].as_u64() > Some(1_000_000) && told["eviction"].is_null(), "{told}");
    // Unknown sizes are left out.
    assert!(told.get("purge_frees_bytes").is_none());
    let sizes = ["rows_bytes", "large_values_bytes", "indexes_bytes", "other_bytes", "free_bytes"];
    let sum: u64 = sizes.iter().map(|name| told[*name].as_u64().unwrap()).sum();
    assert_eq!(Some(sum), told["file_bytes"].as_u64());
    let quick = ok(&["info", &s, "--quick"]);
    assert!(line(&quick, "family\tdefault\tlive").is_none() && line(&quick, "file_bytes").is_some());
}

#[test]
#[cfg(unix)] // a terminal
fn info_shows_the_largest_of_many_families() {
    let (_place, s) = store();
    let db = Store::open(&s).unwrap();
    for n in 0..30 {
        db.create_family(&format!("f{n}")).unwrap().put("k", vec![1; n * 5000]).unwrap();
    }
    let (_, shown) = on_terminal(&["info", &s]);
    assert!(shown.contains("f29 ") && shown.contains("f20 ") && !shown.contains("f9 "), "{shown}");
    assert!(shown.contains("and 19 more: \"kvstore families\" lists all"), "{shown}");
    assert_eq!(json(&["info", &s])[0]["families"].as_array().unwrap().len(), 31);
}

#[test]
fn help_of_each_command_fits_and_is_plain() {
    // (Backslashes in the shell programs of examples are intended.)
    for command in ["watch", "shell", "purge", "check", "recover", "backup", "load", "import", "expiring"] {
        assert!(!ok(&[command, "--help"]).contains("\\\""), "{command}");
    }
    for command in [
        "put", "del", "exists", "incr", "cas", "ttl", "expire", "persist", "touch", "ls", "scan", "count",
        "families", "info",
    ] {
        let help = ok(&[command, "--help"]);
        assert!(!help.contains('\\') || ["ls", "scan"].contains(&command), "{help}");
        let first = help.lines().next().unwrap();
        assert!(first.len() <= 60 && !first.ends_with('.'), "{first}");
        assert!(
            !help.contains("\\\"")
                && help.contains("Exit status") | help.contains("Examples") | help.contains("0 or 1"),
            "{help}"
        );
    }
}

#[test]
#[cfg(unix)] // a terminal
fn info_gives_hints() {
    use kvstore::{Eviction, SizeLimit};

    let (_place, s) = store();
    let db = Store::open(&s).unwrap();
    db.put("large", vec![1; 1_000_000]).unwrap();
    db.delete("large").unwrap();
    db.set_size_limit(Some(SizeLimit::new(200_000, Eviction::Oldest))).unwrap();
    db.checkpoint(kvstore::CheckpointMode::Truncate).unwrap();
    let (_, shown) = on_terminal(&["info", &s]);
    assert!(shown.contains("eviction oldest"), "{shown}");
    assert!(json(&["info", &s])[0]["limit_bytes"] == 200_000);
    db.set_size_limit(None).unwrap();
    db.put("large", vec![1; 1_000_000]).unwrap();
    db.delete("large").unwrap();
    let (_, shown) = on_terminal(&["info", &s]);
    assert!(shown.contains("\"kvstore compact\" returns 999.4 kB"), "{shown}");
}

#[test]
fn reads_work_during_writes_and_change_nothing() {
    for mode in [JournalMode::Wal, JournalMode::Delete] {
        let place = Place::new();
        let s = place.word("store.db");
        let db = Store::open_with(&s, &Config::new().journal_mode(mode)).unwrap();
        db.put("a", "1").unwrap();
        db.put_with_expiry("dead", "1", Expiry::At(1000)).unwrap();
        let looks = [
            &["ls", &s, "-l"][..],
            &["scan", &s],
            &["count", &s],
            &["families", &s],
            &["info", &s],
            &["info", &s, "--json"],
        ];
        db.begin_write().unwrap();
        db.put("b", "2").unwrap();
        for args in looks {
            let shown = ok(args);
            assert!(!shown.is_empty() && !shown.contains("b\t2"), "{args:?}");
        }
        db.commit().unwrap();
        db.close().unwrap();
        let before = std::fs::read(&s).unwrap();
        for args in looks {
            ok(args);
        }
        assert!(std::fs::read(&s).unwrap() == before && place.files() == ["store.db"], "{mode:?}");
    }
}

#[test]
#[cfg(unix)] // modes of files
fn store_of_another_user_can_be_read() {
    use std::fs::Permissions;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    use std::os::unix::process::CommandExt as _;

    let (place, s) = store();
    let open =
        |path: &std::path::Path| std::fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    open(place.path("store.db").parent().unwrap());
    open(&place.path("store.db"));
    // As an unprivileged user, if possible.
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    let copy = place.path("kvstore");
    copy_to_run(env!("CARGO_BIN_EXE_kvstore"), &copy);
    for args in [&["ls", &s][..], &["count", &s], &["info", &s]] {
        let mut command = std::process::Command::new(&copy);
        if is_root {
            command.uid(65_534).gid(65_534);
        }
        let output = command.args(args).current_dir("/").output().unwrap();
        assert_eq!((code(&output), err(&output)), (0, String::new()), "{args:?}");
        assert_eq!(out(&output).contains("journal_mode\twal\n"), args[0] == "info");
    }
    assert_eq!(place.files(), ["kvstore", "store.db"]);
}

#[test]
fn reads_create_nothing() {
    let place = Place::new();
    let s = place.word("no.db");
    for command in ["ls", "scan", "count", "families", "info"] {
        fails(&[command, &s], 3, "there is no file");
    }
    fails(&["families", &s, "set", "default", "--ttl", "1h"], 3, "there is no file");
    fails(&["families", &s, "drop", "a"], 3, "there is no file");
    assert_eq!(place.files(), [""; 0]);
    std::fs::write(&s, "no store").unwrap();
    for command in ["ls", "scan", "count", "families", "info"] {
        let output = kvstore(&[command, &s]);
        assert_eq!((code(&output), out(&output)), (3, String::new()));
    }
}
