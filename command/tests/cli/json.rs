//! The output with `--json` of every command, compared with docs/reference/command.schema.json.

#![cfg(unix)] // a signal, and Python's sqlite3

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crate::common::{Place, command, kvstore, out};
use serde_json::Value;

/// Returns why a value does not match a part of the schema. Supports the keywords of JSON Schema
/// that it uses.
fn fault(value: &Value, schema: &Value) -> Option<String> {
    let kinds = match &schema["type"] {
        Value::Array(kinds) => kinds.clone(),
        Value::Null => Vec::new(),
        kind => vec![kind.clone()],
    };
    let is = |kind: &Value| match kind.as_str().unwrap() {
        "null" => value.is_null(),
        "integer" => value.is_i64() || value.is_u64(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "object" => value.is_object(),
        "array" => value.is_array(),
        other => panic!("{other}"),
    };
    if !kinds.is_empty() && !kinds.iter().any(is) {
        return Some(format!("{value} is no {kinds:?}"));
    }
    if let Some(fields) = value.as_object() {
        let names = |list: &Value| -> Vec<String> {
            list.as_array().into_iter().flatten().map(|name| name.as_str().unwrap().to_owned()).collect()
        };
        if let Some(missing) = names(&schema["required"]).iter().find(|name| !fields.contains_key(*name)) {
            return Some(format!("{value} has no {missing}"));
        }
        for all in schema["allOf"].as_array().into_iter().flatten() {
            let has = |one: &&Value| names(&one["required"]).iter().all(|name| fields.contains_key(name));
            if all["oneOf"].as_array().unwrap().iter().filter(has).count() != 1 {
                return Some(format!("{value} has not one of {all}"));
            }
        }
        if schema["additionalProperties"] == false {
            for (name, value) in fields {
                let Some(property) = schema["properties"].get(name) else {
                    return Some(format!("{name} is not in the schema"));
                };
                if let Some(fault) = fault(value, property) {
                    return Some(format!("{name}: {fault}"));
                }
            }
        }
    }
    value.as_array().into_iter().flatten().find_map(|item| fault(item, &schema["items"]))
}

/// Runs the lines in a directory of their own; returns the output of each.
fn run(place: &Place, lines: &[&str]) -> Vec<(String, Vec<Value>)> {
    let mut printed = Vec::new();
    for line in lines {
        let words = words(line, place);
        let output = kvstore(&[&words[..], &["--json".to_owned(), "--yes".to_owned()]].concat());
        let lines = out(&output);
        let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(!lines.is_empty(), "{line}: {output:?}");
        printed.push((words[0].clone(), lines));
    }
    printed
}

/// Splits a line into words, and prefixes those that name a file with the directory.
fn words(line: &str, place: &Place) -> Vec<String> {
    let is_file = |word: &str| [".db", ".csv", ".jsonl"].iter().any(|end| word.ends_with(end));
    line.split(' ').map(|word| if is_file(word) { place.word(word) } else { word.to_owned() }).collect()
}

#[test]
fn json_output_matches_the_schema() {
    let schema =
        fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/command.schema.json")).unwrap();
    let schema: Value = serde_json::from_slice(&schema).unwrap();
    let place = Place::new();
    fs::write(place.path("t.csv"), "key,value\na,1\n,2\n").unwrap();
    let mut printed = run(
        &place,
        &[
            r"put a.db k v --ttl 1h",
            r"put a.db \xff \xfe",
            r"put a.db k v --if-absent",
            "put a.db n 5",
            "put a.db s sentinel",
            "get a.db k",
            r"get a.db \xff",
            "exists a.db nope",
            "incr a.db n",
            "cas a.db k v w --ttl 1h",
            "ttl a.db k",
            "ttl a.db n",
            "expire a.db n 1h",
            "expire a.db nope 1h",
            "persist a.db n",
            "touch a.db k n --ttl 1d",
            "ls a.db",
            "ls a.db -l",
            "scan a.db",
            "scan a.db --keys",
            "count a.db",
            "families a.db create f --ttl 1h --track",
            "families a.db set f --ttl none",
            "put a.db x y -f f",
            "ls a.db -l -f f",
            "scan a.db -f f",
            "families a.db",
            "info a.db",
            "info a.db --quick",
            "expiring a.db",
            "expiring a.db --chart",
            "next a.db",
            "put a.db soon 1 --ttl 1ms",
        ],
    );
    sleep(Duration::from_millis(20));
    let dump = command(&["dump", &place.word("a.db"), "-o", &place.word("d.jsonl")]).status().unwrap();
    assert!(dump.success());
    fs::copy(place.path("a.db"), place.path("damaged.db")).unwrap();
    damage(&place);
    printed.extend(run(
        &place,
        &[
            "expiring a.db --expired",
            "ls a.db --expired",
            "scan a.db --expired",
            "purge a.db --dry-run",
            "purge a.db",
            "sweep a.db --older-than 1ms -f f",
            "families a.db drop f",
            "check a.db",
            "check damaged.db",
            "repair damaged.db",
            "recover torn.db new.db",
            "backup a.db b.db",
            "compact a.db",
            "limit a.db",
            "limit a.db 1MB --evict soonest",
            "checkpoint a.db",
            "sync a.db",
            "load c.db d.jsonl",
            "copy a.db e.db",
            "copy a.db in-steps.db --resume",
            "import i.db t.csv",
            "del a.db k nope",
            "del a.db --prefix n",
        ],
    ));
    printed.push(("clean".to_owned(), cleaned(&place)));
    if cfg!(feature = "encryption") {
        fs::write(place.path("pw.csv"), "a").unwrap();
        printed.extend(run(
            &place,
            &[
                "encrypt a.db --new-password-file pw.csv",
                "rekey a.db --password-file pw.csv --new-password-file pw.csv",
                "info a.db --password-file pw.csv",
                "decrypt a.db --password-file pw.csv",
            ],
        ));
    }
    for (command, lines) in &printed {
        for line in lines {
            if let Some(fault) = fault(line, &schema["$defs"][command]) {
                panic!("{command}: {line}: {fault}");
            }
        }
    }
    // All commands were run, except those with other output: dump has its own schema.
    let seen: BTreeSet<&str> = printed.iter().map(|(command, _)| &**command).collect();
    let mut described: BTreeSet<&str> =
        schema["$defs"].as_object().unwrap().keys().map(|name| &**name).collect();
    let not_built_in = BTreeSet::from(["encrypt", "decrypt", "rekey"]);
    if !cfg!(feature = "encryption") {
        described.retain(|name| !not_built_in.contains(name));
    }
    assert_eq!(seen, described);
    let help = out(&kvstore(&["--help"]));
    let listed = help.lines().skip_while(|line| *line != "Keys:").take_while(|line| *line != "Options:");
    let listed: BTreeSet<&str> =
        listed.filter_map(|line| line.strip_prefix("  ")?.split([' ', ',']).next()).collect();
    let others = BTreeSet::from(["completions", "dump", "help", "shell", "watch"]);
    let unseen = listed.difference(&seen).copied().filter(|name| !not_built_in.contains(name));
    assert_eq!(unseen.collect::<BTreeSet<_>>(), others);
}

/// Removes the indexes of one store, and overwrites a page of another.
fn damage(place: &Place) {
    let program = "import sqlite3, sys\n\
         db = sqlite3.connect(sys.argv[1])\n\
         db.execute('DELETE FROM \"ttl_key:default\"')\n\
         db.commit()\n";
    let done = Command::new("python3").args(["-c", program, &place.word("damaged.db")]).status().unwrap();
    assert!(done.success());
    let mut bytes = fs::read(place.path("a.db")).unwrap();
    // The page with rows.
    let at = bytes.windows(8).position(|window| window == b"sentinel").unwrap();
    let page = at / 4096 * 4096;
    bytes[page..page + 4096].fill(0x55);
    fs::write(place.path("torn.db"), bytes).unwrap();
}

/// Returns the output of `clean`, which has keys to remove and is then stopped.
fn cleaned(place: &Place) -> Vec<Value> {
    run(place, &["put a.db gone 1 --ttl 300ms"]);
    let child = command(&["clean", &place.word("a.db"), "--interval", "50ms", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    sleep(Duration::from_secs(2));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let lines: Vec<Value> = out(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.len() >= 2, "{lines:?}");
    lines
}
