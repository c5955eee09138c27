//! Commands on expiry: `expiring`, `next`, `purge`, `sweep`, `clean`.

#[cfg(unix)]
use std::time::Duration;

use crate::common::{Place, code, err, fails, json, kvstore, ok, out};
#[cfg(unix)]
use crate::common::{Terminal, command, on_terminal};
use kvstore::{Expiry, Store};
use serde_json::json;

const HOUR: i64 = 3_600_000;

/// A store with two families: keys `a0`.. that expire in the following hours, `dead0`.. that have
/// expired, and one without a TTL.
fn example(place: &Place) -> String {
    let path = place.word("app.db");
    let store = Store::open(&path).unwrap();
    let sessions = store.create_family("sessions").unwrap();
    let now_ms = kvstore::now_ms();
    for n in 0..4 {
        let family = if n % 2 == 0 { &*store } else { &sessions };
        family.put_with_expiry(format!("a{n}"), "1", Expiry::At(now_ms + (n + 1) * HOUR)).unwrap();
        family.put_with_expiry(format!("dead{n}"), "1", Expiry::At(now_ms - (n + 1) * HOUR)).unwrap();
    }
    store.put("for ever", "1").unwrap();
    path
}

fn columns(text: &str, column: usize) -> Vec<&str> {
    text.lines().map(|line| line.split('\t').nth(column).unwrap()).collect()
}

// ---- expiring ------------------------------------------------------------------------------------

#[test]
fn expiring_merges_families_in_order_of_expiry() {
    let place = Place::new();
    let path = example(&place);
    let listed = ok(&["expiring", &path]);
    assert_eq!(columns(&listed, 0), ["a0", "a1", "a2", "a3"]);
    assert_eq!(columns(&listed, 1), ["default", "sessions", "default", "sessions"]);
    assert!(columns(&listed, 2).iter().all(|time| time.ends_with('Z') && time.len() == 24), "{listed}");
    let left: i64 = columns(&listed, 3)[0].parse().unwrap();
    assert!((HOUR - 600_000..=HOUR).contains(&left));
    assert_eq!(columns(&ok(&["expiring", &path, "-f", "sessions"]), 0), ["a1", "a3"]);
    assert_eq!(columns(&ok(&["expiring", &path, "--limit", "2"]), 0), ["a0", "a1"]);
    assert_eq!(columns(&ok(&["expiring", &path, "--from", "+90m", "--to", "+210m"]), 0), ["a1", "a2"]);
    assert_eq!(ok(&["expiring", &path, "--from", "+1d"]), "");
}

#[test]
fn expiring_lists_expired_keys_only_if_asked() {
    let place = Place::new();
    let path = example(&place);
    assert_eq!(ok(&["expiring", &path, "--to", "now"]), "");
    let dead = ok(&["expiring", &path, "--to", "now", "--expired"]);
    assert_eq!(columns(&dead, 0), ["dead3", "dead2", "dead1", "dead0"]);
    assert_eq!(columns(&dead, 3), ["0"; 4]);
    assert_eq!(ok(&["expiring", &path, "--expired"]).lines().count(), 8);
    let lately = ok(&["expiring", &path, "--expired", "--from", "-90m", "--to", "now"]);
    assert_eq!(columns(&lately, 0), ["dead0"]);
    let objects = json(&["expiring", &path, "--expired", "--limit", "1"]);
    assert_eq!(objects[0]["key"], "dead3");
    assert_eq!((&objects[0]["expired"], &objects[0]["ttl_ms"]), (&json!(true), &json!(0)));
    assert!(objects[0]["expire_ms"].is_i64());
}

#[test]
#[cfg(unix)] // a terminal
fn expiring_prints_a_table_on_a_terminal() {
    let place = Place::new();
    let path = example(&place);
    let (code, shown) = on_terminal(&["expiring", &path, "--expired"]);
    assert_eq!(code, 0);
    let lines: Vec<_> = shown.lines().collect();
    assert!(lines[0].starts_with("EXPIRES") && lines[0].ends_with("FAMILY    KEY"), "{shown}");
    assert!(lines[1].contains("4h 00m ago") && lines[1].ends_with("sessions  dead3"), "{shown}");
    assert!(lines[5].contains("in 59m 5") && lines[5].ends_with("default   a0"), "{shown}");
    assert_eq!(on_terminal(&["expiring", &path, "--from", "+9d"]).1, "nothing expires\n");
}

#[test]
fn chart_counts_keys_per_bar() {
    let place = Place::new();
    let path = place.word("app.db");
    let store = Store::open(&path).unwrap();
    let begin = 4_102_444_800_000; // 2100-01-01
    for (n, minutes) in [0, 1, 1, 59, 60, 200].into_iter().enumerate() {
        store.put_with_expiry([n as u8], "1", Expiry::At(begin + minutes * 60_000)).unwrap();
    }
    let chart = ["expiring", &path, "--chart"];
    let hours = [&chart[..], &["--bucket", "1h"]].concat();
    assert_eq!(
        ok(&hours),
        "2100-01-01T00:00:00.000Z\t4\n2100-01-01T01:00:00.000Z\t1\n2100-01-01T02:00:00.000Z\t0\n\
         2100-01-01T03:00:00.000Z\t1\n"
    );
    assert_eq!(json(&hours)[3], json!({"from_ms": begin + 3 * HOUR, "to_ms": begin + 4 * HOUR, "count": 1}));
    assert_eq!(ok(&chart).lines().count(), 14); // bars of 15 minutes
    #[cfg(unix)] // a terminal
    {
        let (_, shown) = on_terminal(&hours);
        let lines: Vec<_> = shown.lines().collect();
        assert!(lines[0].ends_with("6 keys in bars of 1h"), "{shown}");
        assert!(lines[1].starts_with("now ▸ 20"), "{shown}");
        assert!(lines[2].contains("2100-01-01 00:00 │████") && lines[2].ends_with("  4"), "{shown}");
        assert!(lines[3].contains('█') && !lines[4].contains('█'), "{shown}");
        assert!(lines.iter().all(|line| line.chars().count() <= 100), "{shown}");
    }
    fails(&["expiring", &path, "--chart", "--bucket", "1ms"], 2, "choose a longer --bucket");
    fails(&["expiring", &path, "--chart", "--bucket", "36h"], 2, "whole days");
    fails(&["expiring", &path, "--bucket", "1h"], 2, "--chart");
    assert_eq!(ok(&["expiring", &path, "--chart", "--to", "+1d"]), "");
}

#[test]
#[cfg(unix)] // a terminal
fn chart_marks_now_between_expired_and_live_keys() {
    let place = Place::new();
    let path = example(&place);
    let (_, shown) = on_terminal(&["expiring", &path, "--chart", "--expired", "--bucket", "1h"]);
    let marked: Vec<_> = shown.lines().filter(|line| line.starts_with("now ▸ ")).collect();
    assert_eq!(marked.len(), 1, "{shown}");
    assert_eq!(shown.lines().count(), 10, "{shown}");
}

// ---- next ----------------------------------------------------------------------------------------

#[test]
fn next_is_the_first_live_key() {
    let place = Place::new();
    let path = example(&place);
    assert_eq!(columns(&ok(&["next", &path]), 0), ["a0"]);
    assert_eq!(json(&["next", &path, "-f", "sessions"])[0]["key"], "a1");
    #[cfg(unix)] // a terminal
    {
        let (code, shown) = on_terminal(&["next", &path]);
        assert!(code == 0 && shown.contains("in 59m") && shown.contains("a0"), "{shown}");
    }
    Store::open(&path).unwrap().create_family("empty").unwrap();
    let none = kvstore(&["next", &path, "-f", "empty"]);
    assert_eq!((self::code(&none), out(&none), err(&none)), (1, String::new(), String::new()));
    fails(&["next", &path, "-f", "missing"], 1, "there is no family \"missing\"");
}

// ---- purge ---------------------------------------------------------------------------------------

#[test]
fn purge_removes_expired_keys_and_prints_their_number() {
    let place = Place::new();
    let path = example(&place);
    assert_eq!(ok(&["purge", &path, "--dry-run"]), "default\t2\nsessions\t2\n");
    assert_eq!(json(&["purge", &path, "--dry-run"])[1], json!({"family": "sessions", "expired": 2}));
    assert_eq!(ok(&["purge", &path, "-f", "sessions", "--max-keys", "1"]), "1\n");
    assert_eq!(ok(&["purge", &path, "-f", "sessions"]), "1\n");
    assert_eq!(ok(&["purge", &path, "--max-time", "0s"]), "0\n");
    assert_eq!(
        json(&["purge", &path, "--max-keys", "1"])[0],
        json!({"removed": 1, "more": true, "stopped": false})
    );
    assert_eq!(json(&["purge", &path])[0], json!({"removed": 1, "more": false, "stopped": false}));
    assert_eq!(ok(&["purge", &path]), "0\n");
    let store = Store::open(&path).unwrap();
    assert_eq!(store.count().unwrap() + store.family("sessions").unwrap().count().unwrap(), 5);
}

#[test]
#[cfg(unix)] // a terminal
fn purge_on_a_terminal_asks() {
    let place = Place::new();
    let path = example(&place);
    let mut terminal = Terminal::start(&["purge", &path]);
    terminal.wait_for("This removes 4 keys that have expired from ");
    terminal.wait_for("Continue? [y/N] ");
    terminal.type_in("n\n");
    let (status, shown) = terminal.end();
    assert_eq!(status.code(), Some(1));
    assert!(shown.contains("nothing changed"), "{shown}");
    assert_eq!(ok(&["purge", &path, "--dry-run"]).lines().count(), 2);
    let mut terminal = Terminal::start(&["purge", &path, "--max-keys", "3"]);
    terminal.wait_for("This removes 3 of 4 keys");
    terminal.type_in("y\n");
    let (status, shown) = terminal.end();
    assert_eq!(status.code(), Some(0));
    assert!(shown.contains("removed 3 keys that had expired; limit reached"), "{shown}");
    let (code, shown) = on_terminal(&["purge", &path, "--yes"]);
    assert_eq!((code, shown.as_str()), (0, "removed 1 key that had expired\n"));
    assert_eq!(on_terminal(&["purge", &path]).1, "removed 0 keys that had expired\n");
}

#[test]
#[cfg(unix)] // a terminal
fn question_is_asked_even_if_output_is_piped() {
    let place = Place::new();
    let path = example(&place);
    let store = Store::open(&path).unwrap();
    store.set_write_tracking(true).unwrap();
    store.put("large", vec![1; 1_000_000]).unwrap();
    store.delete("large").unwrap();
    for words in [&["purge", &path][..], &["sweep", &path, "--older-than", "0s"], &["compact", &path]] {
        for json in [&[][..], &["--json"]] {
            let mut terminal = Terminal::start_piped(&[words, json].concat());
            terminal.wait_for("Continue? [y/N] ");
            terminal.type_in("n\n");
            let (status, shown) = terminal.end();
            assert!(status.code() == Some(1) && shown.contains("nothing changed"), "{words:?}: {shown}");
        }
    }
    assert_eq!(ok(&["purge", &path, "--dry-run"]), "default\t2\nsessions\t2\n");
}

#[test]
fn purge_during_write_transaction_is_busy() {
    let place = Place::new();
    let path = example(&place);
    let store = Store::open(&path).unwrap();
    store.begin_write().unwrap();
    fails(
        &["purge", &path, "--timeout", "50ms"],
        3,
        "holds the lock (busy timeout: 50 ms)\n  try again, or wait longer with --timeout",
    );
    assert_eq!(ok(&["purge", &path, "--dry-run"]), "default\t2\nsessions\t2\n");
    store.rollback().unwrap();
    drop(store);
    let missing = place.word("missing.db");
    for words in [&["purge"][..], &["expiring"], &["next"], &["clean"], &["sweep", "--older-than", "1d"]] {
        let mut words = words.to_vec();
        words.insert(1, &missing);
        fails(&words, 3, "there is no file");
    }
    assert_eq!(place.files(), ["app.db"]);
}

#[test]
#[cfg(unix)] // a signal
fn interrupted_purge_ends_after_its_step() {
    let place = Place::new();
    let path = place.word("app.db");
    let store = Store::open(&path).unwrap();
    store.begin_write().unwrap();
    let now_ms = kvstore::now_ms();
    for n in 0..60_000u32 {
        store.put_with_expiry(n.to_be_bytes(), "1", Expiry::At(now_ms - 1)).unwrap();
    }
    store.commit().unwrap();
    drop(store);
    let child = command(&["purge", &path, "--json"]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let looking = Store::open(&path).unwrap();
    while looking.count().unwrap() == 60_000 {
        std::thread::sleep(Duration::from_millis(1));
    }
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT)
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let object: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((code(&output), &object["stopped"], &object["more"]), (1, &json!(true), &json!(true)));
    assert_eq!(looking.count().unwrap(), 60_000 - object["removed"].as_u64().unwrap());
    looking.integrity_check().unwrap();
}

// ---- sweep ---------------------------------------------------------------------------------------

#[test]
fn sweep_removes_keys_by_age_of_the_last_write() {
    let place = Place::new();
    let path = place.word("app.db");
    let store = Store::open(&path).unwrap();
    let logs = store.create_family("logs").unwrap();
    fails(
        &["sweep", &path, "--older-than", "1d", "-f", "logs"],
        3,
        "family \"logs\" does not track write times",
    );
    fails(&["sweep", &path], 2, "--older-than");
    logs.set_write_tracking(true).unwrap();
    for n in 0..300u32 {
        logs.put(n.to_be_bytes(), "1").unwrap();
    }
    while kvstore::now_ms() <= logs.write_time(299u32.to_be_bytes()).unwrap().unwrap() {}
    assert_eq!(ok(&["sweep", &path, "--older-than", "1d", "-f", "logs"]), "0\n");
    let some = json(&["sweep", &path, "--older-than", "0s", "-f", "logs", "--max-keys", "10"]);
    assert_eq!(some[0], json!({"removed": 10, "more": true, "stopped": false}));
    #[cfg(unix)] // a terminal
    {
        let mut terminal = Terminal::start(&["sweep", &path, "--older-than", "0s", "-f", "logs"]);
        terminal.wait_for("This removes the keys of family \"logs\" in ");
        terminal.type_in("y\n");
        let (status, shown) = terminal.end();
        assert_eq!(status.code(), Some(0));
        assert!(shown.contains("removed 290 keys written before"), "{shown}");
        assert_eq!(logs.count().unwrap(), 0);
    }
}

// ---- clean ---------------------------------------------------------------------------------------

#[test]
#[cfg(unix)] // a terminal
fn clean_purges_during_writes_until_interrupted() {
    let place = Place::new();
    let path = example(&place);
    let store = Store::open(&path).unwrap();
    let mut terminal = Terminal::start(&["clean", &path, "--interval", "20ms"]);
    terminal.wait_for("removed 4 keys");
    store.put_with_expiry("soon", "1", Expiry::At(kvstore::now_ms() + 30)).unwrap();
    terminal.wait_for("removed 1 key\r\n");
    terminal.interrupt();
    let (status, shown) = terminal.end();
    assert_eq!(status.code(), Some(0));
    assert!(shown.contains("removed 5 keys in 2 rounds, in "), "{shown}");
    assert_eq!(store.count().unwrap(), 3);
    fails(&["clean", &path, "--interval", "0s"], 2, "longer than 0");
}

#[test]
#[cfg(unix)] // a terminal
fn clean_continues_while_another_process_holds_a_lock() {
    let place = Place::new();
    let path = example(&place);
    let store = Store::open(&path).unwrap();
    store.begin_write().unwrap();
    let mut terminal = Terminal::start(&[
        "clean",
        &path,
        "--interval",
        "20ms",
        "--timeout",
        "20ms",
        "--json",
        "--max-keys",
        "3",
    ]);
    terminal.wait_for("the store is locked by another process");
    store.rollback().unwrap();
    terminal.wait_for("\"removed\":3}");
    terminal.wait_for("\"removed\":1}");
    terminal.interrupt();
    let (status, shown) = terminal.end();
    assert_eq!(status.code(), Some(0));
    assert!(shown.contains("{\"removed_total\":4,\"rounds\":2,\"elapsed_ms\":"), "{shown}");
}
