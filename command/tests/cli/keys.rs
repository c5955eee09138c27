//! Commands on single keys: `get put del exists incr cas`, `ttl expire persist touch`.

use std::time::Duration;

use crate::common::{Place, code, err, fails, json, kvstore, kvstore_fed, ok, out};
#[cfg(unix)]
use crate::common::{Terminal, on_terminal};
use kvstore::{Config, ErrorKind, Expiry, Store};

/// Creates a directory with a store; returns the path of the store as `s`.
fn store() -> (Place, String) {
    let place = Place::new();
    let path = place.word("store.db");
    Store::open(&path).unwrap();
    (place, path)
}

/// Asserts that a run ends with exit status 1 and prints only this.
#[track_caller]
fn says_no(args: &[&str], said: &str) {
    let output = kvstore(args);
    assert_eq!((code(&output), out(&output), err(&output)), (1, said.to_owned(), String::new()), "{args:?}");
}

/// Returns the time left of a key in seconds.
fn seconds_left(s: &str, key: &str) -> i64 {
    let ms: i64 = ok(&["ttl", s, key]).trim().parse().unwrap();
    (ms + 999) / 1000
}

#[test]
fn only_writes_create_a_missing_store() {
    let place = Place::new();
    let s = place.word("no.db");
    for args in [
        &["get", &s, "a"][..],
        &["exists", &s, "a"],
        &["ttl", &s, "a"],
        &["del", &s, "a"],
        &["expire", &s, "a", "1s"],
        &["persist", &s, "a"],
        &["touch", &s, "a", "--ttl", "1s"],
        &["cas", &s, "a", "b", "c"],
        &["put", &s, "a", "b", "-f", "family"],
    ] {
        fails(args, 3, "there is no file");
    }
    assert_eq!(place.files(), [""; 0]);
    ok(&["put", &s, "a", "b"]);
    assert_eq!(ok(&["get", &s, "a"]), "b");
    assert_eq!(place.files(), ["no.db"]);
}

#[test]
fn dash_stands_for_the_store_of_the_environment() {
    let (_place, s) = store();
    ok(&["put", &s, "a", "b"]);
    let output = crate::common::command(&["get", "-", "a"]).env("KVSTORE", &s).output().unwrap();
    assert_eq!(out(&output), "b");
    fails(&["get", "-", "a"], 2, "set $KVSTORE");
}

#[test]
fn values_are_read_and_printed_unchanged() {
    let (_place, s) = store();
    let all: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    assert_eq!(code(&kvstore_fed(&["put", &s, "all", "-"], &all)), 0);
    assert_eq!(kvstore(&["get", &s, "all"]).stdout, all);
    // Printed keys can be typed in again.
    ok(&["put", &s, "k\\xff\\n", "v\\x00\\\\"]);
    assert_eq!(kvstore(&["get", &s, "k\\xff\\n"]).stdout, b"v\0\\");
    assert_eq!(json(&["get", &s, "k\\xff\\n"])[0]["key_base64"], "a/8K");
    assert_eq!(ok(&["get", &s, "6bff0a", "--hex"]), "76005c\n");
    assert_eq!(ok(&["get", &s, "a/8K", "--base64"]), "dgBc\n");
    ok(&["put", &s, "6bff0a", "00", "--hex"]);
    assert_eq!(kvstore(&["get", &s, "k\\xff\\n"]).stdout, b"\0");
    fails(&["put", &s, "a\\q", "b"], 2, "backslash");
    fails(&["put", &s, "", "b"], 2, "key");
    // A value may look like an option.
    ok(&["put", &s, "a", "-5"]);
    assert_eq!(ok(&["get", &s, "a"]), "-5");
}

#[test]
fn put_sets_the_requested_expiry() {
    let (_place, s) = store();
    let db = Store::open(&s).unwrap();
    db.set_default_ttl(Some(Duration::from_secs(100))).unwrap();
    ok(&["put", &s, "default", "v"]);
    ok(&["put", &s, "ttl", "v", "--ttl", "1h"]);
    ok(&["put", &s, "at", "v", "--at", "+2h"]);
    ok(&["put", &s, "never", "v", "--no-ttl"]);
    ok(&["put", &s, "ttl", "w", "--keep-ttl"]);
    ok(&["put", &s, "new", "w", "--keep-ttl"]);
    ok(&["put", &s, "newer", "w", "--keep-ttl", "--ttl", "500s"]);
    for (key, seconds) in [("default", 100), ("ttl", 3600), ("at", 7200), ("new", 100), ("newer", 500)] {
        let left = seconds_left(&s, key);
        assert!((seconds - 60..=seconds).contains(&left), "{key}: {left}");
    }
    assert_eq!(ok(&["ttl", &s, "never"]), "never\n");
    assert_eq!(ok(&["get", &s, "ttl"]), "w");
    fails(&["put", &s, "a", "b", "--ttl", "1h", "--at", "+2h"], 2, "cannot be used with");
    fails(&["put", &s, "a", "b", "--ttl", "5"], 2, "is not a duration");
    fails(&["put", &s, "a", "b", "--at", "1960-01-01T00:00Z"], 2, "milliseconds since 1970");
    ok(&["put", &s, "past", "b", "--at", "-1h"]);
    says_no(&["get", &s, "past"], "");
}

#[test]
fn unmet_condition_is_exit_status_1() {
    let (_place, s) = store();
    says_no(&["put", &s, "a", "1", "--if-present"], "");
    ok(&["put", &s, "a", "1", "--if-absent"]);
    says_no(&["put", &s, "a", "2", "--if-absent"], "");
    says_no(&["put", &s, "a", "2", "--if-absent", "--json"], "{\"key\":\"a\",\"written\":false}\n");
    assert_eq!(ok(&["get", &s, "a"]), "1");
    assert_eq!(json(&["put", &s, "a", "2", "--if-present"])[0]["written"], true);
    assert_eq!(ok(&["get", &s, "a"]), "2");
    fails(&["put", &s, "a", "2", "--if-absent", "--if-present"], 2, "cannot be used with");
}

#[test]
fn create_family_option_creates_the_family() {
    let (_place, s) = store();
    fails(&["put", &s, "a", "1", "-f", "f"], 1, "--create-family creates it");
    fails(&["get", &s, "a", "-f", "f"], 1, "there is no family \"f\"");
    ok(&["put", &s, "a", "1", "-f", "f", "--create-family"]);
    ok(&["put", &s, "a", "2", "-f", "f", "--create-family"]);
    ok(&["put", &s, "b", "3", "-f", "f"]);
    assert_eq!(ok(&["get", &s, "a", "--family", "f"]), "2");
    says_no(&["get", &s, "a"], "");
    fails(&["put", &s, "a", "1", "-f", "kvstore_x", "--create-family"], 2, "reserved");
}

#[test]
fn exists_answers_by_its_exit_status() {
    let (_place, s) = store();
    ok(&["put", &s, "a", "1"]);
    assert_eq!(ok(&["exists", &s, "a"]), "");
    says_no(&["exists", &s, "b"], "");
    assert_eq!(json(&["exists", &s, "a"])[0]["exists"], true);
    #[cfg(unix)] // a terminal
    assert_eq!(on_terminal(&["exists", &s, "b"]), (1, "no\n".to_owned()));
}

#[test]
fn incr_adds_numbers() {
    let place = Place::new();
    let s = place.word("new.db");
    assert_eq!(ok(&["incr", &s, "n"]), "1\n");
    assert_eq!(ok(&["incr", &s, "n", "41"]), "42\n");
    assert_eq!(ok(&["incr", &s, "n", "-50"]), "-8\n");
    assert_eq!(json(&["incr", &s, "n"])[0]["value"], -7);
    assert_eq!(ok(&["get", &s, "n"]), "-7");
    assert_eq!(ok(&["incr", &s, "rate", "--ttl", "1m"]), "1\n");
    assert_eq!(ok(&["incr", &s, "rate", "--ttl", "10m"]), "2\n");
    assert!(seconds_left(&s, "rate") <= 60);
    ok(&["families", &s, "set", "default", "--ttl", "1h"]);
    ok(&["incr", &s, "default"]);
    assert!(seconds_left(&s, "default") > 3000);
    ok(&["incr", &s, "permanent", "--no-ttl"]);
    assert_eq!(ok(&["ttl", &s, "permanent"]), "never\n");
    ok(&["incr", &s, "moment", "--at", "+2h"]);
    assert!(seconds_left(&s, "moment") > 4000);
    ok(&["families", &s, "set", "default", "--ttl", "none"]);
    ok(&["put", &s, "text", "x"]);
    fails(&["incr", &s, "text"], 2, "not a decimal integer");
    ok(&["put", &s, "n", "9223372036854775807"]);
    fails(&["incr", &s, "n"], 2, "64 bits");
    fails(&["incr", &s, "n", "x"], 2, "invalid value");
}

#[test]
fn cas_replaces_only_the_expected_value() {
    let (_place, s) = store();
    says_no(&["cas", &s, "a", "1", "2"], "");
    ok(&["cas", &s, "a", "--absent", "1", "--ttl", "1h"]);
    says_no(&["cas", &s, "a", "--absent", "2"], "");
    says_no(&["cas", &s, "a", "0", "2"], "");
    ok(&["cas", &s, "a", "1", "2", "--keep-ttl"]);
    assert!(seconds_left(&s, "a") > 3000);
    assert_eq!(code(&kvstore_fed(&["cas", &s, "a", "2", "-"], b"three")), 0);
    assert_eq!((ok(&["get", &s, "a"]), ok(&["ttl", &s, "a"])), ("three".into(), "never\n".into()));
    assert_eq!(json(&["cas", &s, "a", "three", "4"])[0]["written"], true);
    fails(&["cas", &s, "a", "1"], 2, "two values are required");
    fails(&["cas", &s, "a", "--absent", "1", "2"], 2, "one value");
}

#[test]
fn del_removes_several_keys() {
    let (_place, s) = store();
    for key in ["a", "b", "c", "d1", "d2", "d3", "e"] {
        ok(&["put", &s, key, "v"]);
    }
    assert_eq!(ok(&["del", &s, "a", "b", "x"]), "2\n");
    says_no(&["del", &s, "a", "b"], "0\n");
    assert_eq!(json(&["del", &s, "c"])[0]["deleted"], 1);
    assert_eq!(ok(&["del", &s, "--prefix", "d", "--to", "d3"]), "2\n");
    assert_eq!(ok(&["ls", &s]), "d3\ne\n");
    says_no(&["del", &s, "--from", "x"], "0\n");
    assert_eq!(ok(&["del", &s, "--from", "a"]), "2\n");
    fails(&["del", &s], 2, "  <KEY|--prefix <PREFIX>|--from <KEY>|--to <KEY>|--all>\n");
    fails(
        &["del", &s],
        2,
        "del [OPTIONS] <STORE> <KEY...|--prefix <PREFIX>|--from <KEY>|--to <KEY>|--all>\n",
    );
    fails(&["del", &s, "a", "--prefix", "b"], 2, "cannot be used with");
    fails(&["del", &s, "--from", "b", "--to", "a"], 2, "--from is after --to");
    // None is removed if one argument is invalid.
    ok(&["put", &s, "a", "v"]);
    fails(&["del", &s, "a", "b\\q"], 2, "backslash");
    ok(&["exists", &s, "a"]);
}

#[test]
fn range_with_expired_rows_is_removed_in_steps() {
    let (_place, s) = store();
    let db = Store::open(&s).unwrap();
    db.transaction(|_| {
        for n in 0..20_000 {
            let expiry = if n % 3 == 0 { Expiry::At(1000) } else { Expiry::Never };
            db.put_with_expiry(format!("k{n:05}"), "v", expiry)?;
        }
        db.put("j", "v")?;
        db.put("l", "v")
    })
    .unwrap();
    assert_eq!(ok(&["del", &s, "--prefix", "k"]), "13333\n");
    assert_eq!(db.count().unwrap(), 2);
    db.integrity_check().unwrap();
}

#[test]
#[cfg(unix)] // a terminal
fn del_of_a_range_on_a_terminal_asks() {
    let (_place, s) = store();
    for key in ["a1", "a2", "b"] {
        ok(&["put", &s, key, "v"]);
    }
    let mut terminal = Terminal::start(&["del", &s, "--prefix", "a"]);
    terminal.wait_for("This removes 2 keys of family \"default\". Continue? [y/N]");
    terminal.type_in("\n");
    let (status, shown) = terminal.end();
    assert!(status.code() == Some(1) && shown.contains("nothing changed"), "{shown}");
    assert_eq!(ok(&["count", &s]), "3\t0\t3\n");
    let mut terminal = Terminal::start(&["del", &s, "--prefix", "a"]);
    terminal.wait_for("[y/N]");
    terminal.type_in("y\n");
    let (status, shown) = terminal.end();
    assert!(status.success() && shown.ends_with("2 keys removed\n"), "{shown}");
    // A named key needs no confirmation.
    assert_eq!(on_terminal(&["del", &s, "b"]), (0, "1 key removed\n".to_owned()));
    ok(&["put", &s, "a", "v"]);
    assert_eq!(on_terminal(&["del", &s, "--prefix", "a", "--yes"]), (0, "1 key removed\n".to_owned()));
}

#[test]
fn ttl_prints_the_time_left() {
    let (_place, s) = store();
    ok(&["put", &s, "never", "v"]);
    ok(&["put", &s, "soon", "v", "--ttl", "90m"]);
    says_no(&["ttl", &s, "none"], "");
    assert!((5000..=5400).contains(&seconds_left(&s, "soon")));
    let told = &json(&["ttl", &s, "soon"])[0];
    let db = Store::open(&s).unwrap();
    assert_eq!(told["expire_ms"].as_i64(), db.expiry("soon").unwrap().unwrap().millis());
    assert!(told["ttl_ms"].as_i64().unwrap() <= 5_400_000);
    assert!(json(&["ttl", &s, "never"])[0]["ttl_ms"].is_null());
    #[cfg(unix)] // a terminal
    {
        let (_, shown) = on_terminal(&["ttl", &s, "soon"]);
        assert!(shown.starts_with("1h ") && shown.contains("m  until 20"), "{shown}");
        assert_eq!(on_terminal(&["ttl", &s, "never"]).1, "never\n");
    }
}

#[test]
fn expire_and_persist_change_the_ttl() {
    let (_place, s) = store();
    ok(&["put", &s, "a", "v"]);
    says_no(&["expire", &s, "none", "1h"], "");
    ok(&["expire", &s, "a", "1h"]);
    assert!(seconds_left(&s, "a") > 3000);
    says_no(&["expire", &s, "a", "2h", "--only-if", "no-ttl"], "");
    says_no(&["expire", &s, "a", "2h", "--only-if", "earlier"], "");
    ok(&["expire", &s, "a", "2h", "--only-if", "later"]);
    assert_eq!(
        json(&["expire", &s, "a", "--at", "2100-01-01T00:00Z"])[0]["expire_ms"],
        4_102_444_800_000_i64
    );
    fails(&["expire", &s, "a"], 2, "  <DURATION|--ttl <DURATION>|--at <TIME>>\n");
    fails(&["expire", &s, "a", "1h", "--at", "+1h"], 2, "cannot be used with");
    assert_eq!(json(&["persist", &s, "a"])[0]["had_ttl"], true);
    assert_eq!(json(&["persist", &s, "a"])[0]["had_ttl"], false);
    assert_eq!(ok(&["ttl", &s, "a"]), "never\n");
    says_no(&["persist", &s, "none"], "");
    ok(&["expire", &s, "a", "--at", "-1s"]);
    says_no(&["get", &s, "a"], "");
}

#[test]
fn touch_changes_several_keys() {
    let (_place, s) = store();
    ok(&["put", &s, "a", "v"]);
    ok(&["put", &s, "b", "v", "--ttl", "1m"]);
    fails(&["touch", &s, "a"], 2, "has no default TTL");
    assert_eq!(ok(&["touch", &s, "a", "b", "none", "--ttl", "1h"]), "2\n");
    assert!(seconds_left(&s, "a") > 3000 && seconds_left(&s, "b") > 3000);
    ok(&["families", &s, "set", "default", "--ttl", "2h"]);
    assert_eq!(json(&["touch", &s, "a"])[0]["touched"], 1);
    assert!(seconds_left(&s, "a") > 7000);
    ok(&["touch", &s, "a", "--no-ttl"]);
    assert_eq!(ok(&["ttl", &s, "a"]), "never\n");
    says_no(&["touch", &s, "none", "--ttl", "1h"], "0\n");
}

#[test]
#[cfg(unix)] // a terminal
fn terminal_explains_exit_status() {
    let (_place, s) = store();
    for command in ["get", "ttl"] {
        assert_eq!(on_terminal(&[command, &s, "k"]), (1, "kvstore: key not found\n".to_owned()));
        says_no(&[command, &s, "k"], "");
    }
    let (code, shown) = on_terminal(&["put", &s, "k", "v", "--at", "-1h"]);
    assert!(
        code == 0 && shown.contains("warning: expiry is in the past; the key is already expired"),
        "{shown}"
    );
    assert_eq!(on_terminal(&["put", &s, "k", "v", "--at", "+1h"]), (0, String::new()));
    let (_, shown) = on_terminal(&["compact", &s]);
    assert!(shown.contains(": no free space in "), "{shown}");
    assert_eq!(ok(&["expiring", &s, "-n", "1"]).lines().count(), 1);
}

#[test]
fn wrong_command_lines_get_fitting_advice() {
    #[cfg(unix)]
    let no_text = <std::ffi::OsString as std::os::unix::ffi::OsStringExt>::from_vec(b"k\xff".to_vec());
    #[cfg(windows)]
    let no_text = <std::ffi::OsString as std::os::windows::ffi::OsStringExt>::from_wide(&[0xd800]);
    let (_place, s) = store();
    let output = kvstore(&["get".as_ref(), s.as_ref(), no_text.as_os_str()]);
    assert_eq!(code(&output), 2);
    assert!(err(&output).contains("write a byte that is not UTF-8 as \\xff"), "{}", err(&output));
    let output = kvstore(&["get", &s, "k", "--foo"]);
    assert!(code(&output) == 2 && !err(&output).contains("tip:"), "{}", err(&output));
    // A misspelled option is still suggested.
    fails(&["ls", &s, "--prefi", "k"], 2, "'--prefix'");
    fails(&["del", &s, "-x"], 2, "after '--'");
    fails(&["ls", &s, "--prefix", "-x"], 2, "--prefix=-x");
    for words in [&["put", &s, "k", "v", "--ttl", "-5s"][..], &["ls", &s, "--limit", "-1"]] {
        fails(words, 2, "numbers and durations cannot be negative here");
    }
    assert_eq!(ok(&["ls", &s, "--prefix=-x"]), "");
    // JSON has its own fields for bytes that are not text.
    fails(&["ls", &s, "--json", "--hex"], 2, "cannot be used with");
    fails(&["ls", &s, "--json", "--base64"], 2, "cannot be used with");
}

#[test]
fn range_is_touched_in_steps() {
    let (_place, s) = store();
    let db = Store::open(&s).unwrap();
    db.transaction(|_| {
        for n in 0..3000u32 {
            let end = if n % 3 == 0 { Expiry::Never } else { Expiry::At(kvstore::now_ms() + 60_000) };
            db.put_with_expiry(format!("k{n:04}"), "v", end)?;
        }
        db.put("-odd", "v")?;
        db.put_with_expiry("dead", "v", Expiry::At(1000))
    })
    .unwrap();
    assert_eq!(ok(&["ls", &s, "--no-ttl", "-n", "3"]), "-odd\nk0000\nk0003\n");
    assert_eq!(ok(&["scan", &s, "--no-ttl", "--prefix", "k"]).lines().count(), 1000);
    assert_eq!(ok(&["ls", &s, "--no-ttl", "--reverse", "-l", "-n", "1"]), "k2997\t1\tnever\n");
    fails(&["ls", &s, "--no-ttl", "--expired"], 2, "cannot be used with");
    assert_eq!(ok(&["touch", &s, "--prefix", "k", "--ttl", "1h", "--only-if", "no-ttl"]), "1000\n");
    assert_eq!(ok(&["ls", &s, "--no-ttl"]), "-odd\n");
    assert!(seconds_left(&s, "k0003") > 3000 && seconds_left(&s, "k0001") <= 60);
    assert_eq!(json(&["touch", &s, "--from", "k1", "--to", "k2", "--ttl", "2h"])[0]["touched"], 1000);
    assert_eq!(ok(&["touch", &s, "--ttl", "3h", "--", "-odd"]), "1\n");
    says_no(&["touch", &s, "--all", "--ttl", "4h", "--only-if", "earlier"], "0\n");
}

#[test]
fn touch_of_a_range_asks_and_an_empty_bound_is_refused() {
    let (_place, s) = store();
    for key in ["a1", "a2", "b"] {
        ok(&["put", &s, key, "v"]);
    }
    #[cfg(unix)] // a terminal
    {
        let mut terminal = Terminal::start(&["touch", &s, "--all", "--only-if", "no-ttl", "--ttl", "1h"]);
        terminal.wait_for("This sets the expiry of all keys of family \"default\" that meet --only-if to 20");
        terminal.wait_for("Continue? [y/N]");
        terminal.type_in("n\n");
        assert_eq!(terminal.end().0.code(), Some(1));
    }
    assert_eq!(ok(&["ls", &s, "--no-ttl"]).lines().count(), 3);
    // As written by an unset shell variable.
    for word in ["--prefix", "--from", "--to"] {
        fails(&["del", &s, word, ""], 2, &format!("{word} is empty"));
        fails(&["touch", &s, word, "", "--ttl", "1s"], 2, "use --all");
    }
    fails(&["del", &s, "--prefix", "", "--hex"], 2, "--prefix is empty");
    fails(&["del", &s, "--all", "--prefix", "a"], 2, "cannot be used with");
    fails(&["del", &s, "--all", "a"], 2, "cannot be used with");
    assert_eq!(ok(&["ls", &s, "--prefix", ""]).lines().count(), 3);
    #[cfg(unix)] // a terminal
    assert_eq!(on_terminal(&["touch", &s, "--all", "--ttl", "1h", "--yes"]).1, "3 keys changed\n");
    assert_eq!(ok(&["del", &s, "--all"]), "3\n");
}

#[test]
fn busy_store_is_exit_status_3_and_reads_work() {
    let (_place, s) = store();
    let db = Store::open(&s).unwrap();
    db.put("a", "1").unwrap();
    db.transaction(|tx| {
        tx.put("a", "2")?;
        for args in [&["put", &s, "a", "3"][..], &["del", &s, "a"], &["incr", &s, "a"], &["persist", &s, "a"]]
        {
            let args = [args, &["--timeout", "10ms"]].concat();
            fails(&args, 3, "wait longer with --timeout");
        }
        assert_eq!(ok(&["get", &s, "a"]), "1");
        Ok::<_, kvstore::Error>(())
    })
    .unwrap();
    assert_eq!(ok(&["get", &s, "a"]), "2");
}

#[test]
fn reads_write_nothing_even_without_permission() {
    let (place, s) = store();
    ok(&["put", &s, "dead", "v", "--at", "-1h"]);
    ok(&["put", &s, "a", "v"]);
    let before = std::fs::read(&s).unwrap();
    for args in [&["get", &s, "dead"][..], &["exists", &s, "dead"], &["ttl", &s, "dead"]] {
        says_no(args, "");
    }
    assert_eq!((std::fs::read(&s).unwrap() == before, place.files()), (true, vec!["store.db".to_owned()]));
    let mut permissions = std::fs::metadata(&s).unwrap().permissions();
    permissions.set_readonly(true);
    std::fs::set_permissions(&s, permissions).unwrap();
    assert_eq!(ok(&["get", &s, "a"]), "v");
    // (Root may write anyway.)
    let output = kvstore(&["put", &s, "a", "w"]);
    assert!(
        code(&output) == 0 || code(&output) == 3 && err(&output).contains("may not be written"),
        "{output:?}"
    );
}

#[test]
fn other_files_are_left_unchanged() {
    let place = Place::new();
    let s = place.word("text");
    std::fs::write(&s, "hello").unwrap();
    for args in [&["get", &s, "a"][..], &["put", &s, "a", "b"]] {
        fails(args, 3, "not a SQLite database");
    }
    assert_eq!(std::fs::read(&s).unwrap(), b"hello");
    let config = Config::new().read_only(true);
    assert_eq!(Store::open_with(&s, &config).unwrap_err().kind(), ErrorKind::NotADatabase);
}

#[test]
#[cfg(unix)] // a FIFO
fn devices_and_pipes_are_refused_without_waiting() {
    let place = Place::new();
    let pipe = place.word("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for args in [&["get", &pipe, "a"][..], &["put", &pipe, "a", "b"], &["info", &pipe], &["load", &pipe, "-"]]
    {
        let output = kvstore_fed(args, b"{\"kvstore_dump\":1}\n");
        assert_eq!(code(&output), 3, "{output:?}");
        assert!(err(&output).contains("is not a regular file"), "{output:?}");
    }
    fails(&["check", "/dev/null"], 3, "is not a regular file");
    fails(&["get", &place.word(""), "a"], 3, "is a directory");
}

#[test]
#[cfg(windows)]
fn device_is_refused() {
    let place = Place::new();
    for args in [&["get", "nul", "a"][..], &["put", "NUL", "a", "b"], &["info", r"\\.\pipe\none"]] {
        fails(args, 3, "is not a regular file");
    }
    let output = kvstore(&["get", &place.word(""), "a"]);
    assert_eq!(code(&output), 3, "{output:?}");
}

#[test]
fn killed_removal_leaves_whole_steps() {
    let (_place, s) = store();
    let db = Store::open(&s).unwrap();
    db.transaction(|_| (0..60_000).try_for_each(|n| db.put(format!("k{n:05}"), [7; 400]))).unwrap();
    let before = db.count().unwrap();
    let mut child = crate::common::command(&["del", &s, "--prefix", "k"]).spawn().unwrap();
    while db.count().unwrap() == before {
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let left = db.count().unwrap();
    assert!(left == 0 || (60_000 - left).is_multiple_of(4096), "{left}");
    db.integrity_check().unwrap();
}

#[test]
#[cfg(unix)] // a terminal
fn ctrl_c_stops_a_removal_between_steps() {
    let (_place, s) = store();
    let db = Store::open(&s).unwrap();
    db.transaction(|_| (0..200_000).try_for_each(|n| db.put(format!("k{n:06}"), [7; 300]))).unwrap();
    let terminal = Terminal::start(&["del", &s, "--prefix", "k", "--yes"]);
    while db.count().unwrap() == 200_000 {
        std::thread::yield_now();
    }
    terminal.interrupt();
    let (status, shown) = terminal.end();
    let left = db.count().unwrap();
    if left > 0 {
        assert_eq!(status.code(), Some(3), "{shown}");
        assert!(shown.contains("run the same command again to continue"), "{shown}");
    }
}

#[test]
fn zero_ttl_is_refused_and_changes_nothing() {
    let place = Place::new();
    let path = place.word("a.db");
    ok(&["put", &path, "k", "v"]);
    ok(&["families", &path, "create", "f", "--ttl", "1h"]);
    for call in [
        &["put", &path, "k", "w", "--ttl", "0s"][..],
        &["cas", &path, "k", "v", "w", "--ttl", "0ms"],
        &["touch", &path, "k", "--ttl", "0s"],
        &["incr", &path, "n", "--ttl", "0m"],
        &["families", &path, "set", "f", "--ttl", "0s"],
        &["families", &path, "create", "g", "--ttl", "0s"],
    ] {
        fails(call, 2, "a TTL must be longer than 0");
    }
    assert_eq!(ok(&["get", &path, "k"]), "v");
    fails(&["get", &path, "n"], 1, "");
}
