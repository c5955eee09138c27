//! `import`: CSV, JSON, and the formats that the Python package reads.

use std::fs;

use crate::common::{Place, code, err, fails, json, kvstore, kvstore_fed, ok, out};
use kvstore::{Expiry, Store};

/// Creates a file with this text; returns its path as an argument.
fn file(place: &Place, name: &str, text: &str) -> String {
    fs::write(place.path(name), text).unwrap();
    place.word(name)
}

fn value(store: &Store, key: &str) -> Option<String> {
    store.get(key).unwrap().map(|value| String::from_utf8_lossy(&value).into_owned())
}

/// Returns about how many seconds a key has left; -1 without a TTL.
fn seconds_left(store: &Store, key: &str) -> i64 {
    match store.expiry(key).unwrap().unwrap() {
        Expiry::At(ms) => (ms - kvstore::now_ms() + 59_000) / 1000 / 60 * 60,
        Expiry::Never => -1,
    }
}

#[test]
fn csv_is_imported_by_column_names() {
    let place = Place::new();
    let to = place.word("to.db");
    let csv = file(
        &place,
        "users.csv",
        "\u{feff}id,email,left,note\n1,a@x,60,\"with, comma\"\n2,\"two\nlines\",2h,\n3,c@x,,\n4,d@x,-5,\n5,e@x,soon,\n,f@x,,\n",
    );
    fails(&["import", &to, &csv], 2, "no column \"key\", but id, email, left, note: name the columns");
    let words = ["import", &to, &csv, "--key-column", "id", "--value-column", "2", "--ttl-column", "left"];
    let output = kvstore(&[&words[..], &["--json"]].concat());
    let report: serde_json::Value = serde_json::from_str(&out(&output)).unwrap();
    assert_eq!(
        report,
        serde_json::json!({"kind": "csv", "imported": {"default": 3}, "with_ttl": 2, "complete": false, "skipped": {
            "expired in the source": 1, "its TTL is not a duration": 1, "a key is empty or longer than 65536 bytes": 1}})
    );
    assert_eq!(code(&output), 1);
    let store = Store::open(&to).unwrap();
    assert_eq!(value(&store, "2").as_deref(), Some("two\nlines"));
    assert_eq!(["1", "2", "3"].map(|key| seconds_left(&store, key)), [60, 7200, -1]);
    assert_eq!(store.count().unwrap(), 3);
    fails(&words, 3, "has keys already");
    let again = kvstore(&[&words[..], &["--skip-existing"]].concat());
    assert_eq!(out(&again).lines().next(), Some("0\timported from csv into family \"default\""));
    assert!(out(&again).contains("3\tskipped: already in the target\n"), "{}", out(&again));
}

#[test]
fn csv_without_header_with_other_delimiters_and_forms() {
    let place = Place::new();
    let to = place.word("to.db");
    let csv = file(&place, "a.csv", "x;6162;6b\n");
    let words = ["import", &to, &csv, "--no-header", "--delimiter", ";", "--key-column", "3", "--hex"];
    assert_eq!(ok(&words), "1\timported from csv into family \"default\"\n0\tof them with a TTL\n");
    let tsv = file(&place, "b.tsv", "value\tkey\n1\ttab\n");
    assert_eq!(json(&["import", &to, &tsv, "-f", "f", "--ttl", "2h"])[0]["with_ttl"], 1);
    let store = Store::open(&to).unwrap();
    assert_eq!(value(&store, "k").as_deref(), Some("ab"));
    assert_eq!(store.family("f").unwrap().get("tab").unwrap().unwrap(), b"1");
    fails(
        &["import", &to, &csv, "-f", "h", "--no-header", "--key-column", "x"],
        2,
        "not the number of a column",
    );
    let torn = file(&place, "torn.csv", "key,value\na,1\nb\n");
    fails(&["import", &to, &torn, "-f", "g"], 3, "\n  nothing was imported\n");
    assert!(store.family("g").is_err());
}

#[test]
fn json_is_imported_in_its_three_shapes() {
    let place = Place::new();
    let to = place.word("to.db");
    let store = Store::open(&to).unwrap();
    let map = file(
        &place,
        "map.json",
        " {\"a\":\"1\",\"b\":{\"z\":1, \"a\":[2.50]},\"c\":12345678901234567890123,\"d\":null}\n",
    );
    let output = kvstore(&["import", &to, &map]);
    assert_eq!(code(&output), 1);
    assert!(out(&output).contains("1\tskipped: its key or value is null\n"), "{}", out(&output));
    assert_eq!(value(&store, "a").as_deref(), Some("1"));
    assert_eq!(value(&store, "b").as_deref(), Some("{\"z\":1, \"a\":[2.50]}"));
    assert_eq!(value(&store, "c").as_deref(), Some("12345678901234567890123"));
    let array = file(
        &place,
        "array.json",
        "[{\"id\":7,\"v\":\"\\u00e4\",\"end_ms\":9000000000000},{\"id\":\"k\",\"v\":true,\"end_ms\":null,\"more\":1}]",
    );
    let columns = ["--key-column", "id", "--value-column", "v", "--expire-column", "end_ms"];
    ok(&[&["import", &to, &array, "-f", "array"], &columns[..]].concat());
    let family = store.family("array").unwrap();
    assert_eq!(family.get("7").unwrap().unwrap(), "ä".as_bytes());
    assert_eq!(family.expiry("7").unwrap().unwrap(), Expiry::At(9_000_000_000_000));
    assert_eq!(family.get("k").unwrap().unwrap(), b"true");
    let lines = b"{\"key\":\"a\",\"value\":\"1\",\"at\":\"2255-01-01T00:00Z\"}\n\n{\"key_base64\":\"/w==\",\"value_base64\":\"AA==\",\"at\":8000000000}\n{\"value\":\"1\"}\n";
    let output =
        kvstore_fed(&["import", &to, "-", "--from", "jsonl", "-f", "lines", "--expire-column", "at"], lines);
    assert!(
        code(&output) == 1 && out(&output).contains("1\tskipped: it has no field for its key or value"),
        "{}{}",
        out(&output),
        err(&output)
    );
    let family = store.family("lines").unwrap();
    assert_eq!(family.get(b"\xff").unwrap().unwrap(), b"\0");
    assert_eq!(family.expiry(b"\xff").unwrap().unwrap(), Expiry::At(8_000_000_000_000));
    for (text, said) in
        [("[1]", "invalid JSON"), ("[{}] x", "trailing"), ("{\"a\":", "EOF"), ("5", "an array of objects")]
    {
        let wrong = file(&place, "wrong.json", text);
        fails(&["import", &to, &wrong, "-f", "wrong"], 3, said);
    }
    fails(&["import", &to, &map, "-f", "columns", "--key-column", "a"], 3, "the column options do not apply");
    fails(&["import", &to, "-"], 2, "--from csv");
    fails(&["import", &to, &place.word("missing.json")], 3, "there is no file");
    fails(&["import", &to, &map, "--unpickle"], 2, "do not apply to CSV and JSON");
}

#[test]
fn duplicate_keys_count_once_and_invalid_text_is_named() {
    let place = Place::new();
    let csv = file(&place, "twice.csv", "key,value,left\na,1,60\nb,2,\na,3,\nb,4,7200\n");
    let output = kvstore(&["import", &place.word("to.db"), &csv, "--ttl-column", "left", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&out(&output)).unwrap();
    let again = "the source has its key again: the last value is used";
    let expected = serde_json::json!({"kind": "csv", "imported": {"default": 2}, "with_ttl": 1, "complete": false,
        "skipped": {again: 2}});
    assert_eq!((report, code(&output)), (expected, 1));
    assert!(err(&output).contains("first at line 4"), "{}", err(&output));
    let store = Store::open(place.path("to.db")).unwrap();
    assert_eq!(["a", "b"].map(|key| seconds_left(&store, key)), [-1, 7200]);
    assert_eq!(value(&store, "a").as_deref(), Some("3"));
    // An unpaired surrogate is not text, but the line is valid JSON.
    let json = file(
        &place,
        "half.jsonl",
        "{\"key\":\"\\ud800\",\"value\":1}\n{\"key\":\"x\",\"value\":\"\\ud83d\\ude00\"}\n",
    );
    let output = kvstore(&["import", &place.word("half.db"), &json]);
    assert!(
        out(&output).contains("1\tskipped: its key or value has an unpaired surrogate"),
        "{}",
        out(&output)
    );
    assert_eq!(value(&Store::open(place.path("half.db")).unwrap(), "x").as_deref(), Some("\u{1f600}"));
    let json = file(
        &place,
        "end.jsonl",
        "{\"key\":\"a\",\"value\":1,\"ttl\":\"\\ud800\"}\n{\"key\":\"b\",\"value\":1,\"ttl\":null}\n",
    );
    let output = kvstore(&["import", &place.word("end.db"), &json, "--ttl-column", "ttl"]);
    assert!(out(&output).contains("1\tskipped: its TTL is not a duration"), "{}", out(&output));
    assert_eq!(code(&output), 1);
    let store = Store::open(place.path("end.db")).unwrap();
    assert_eq!(["a", "b"].map(|key| value(&store, key).is_some()), [false, true]);
}

#[test]
fn last_day_with_a_four_digit_year_is_a_time() {
    let place = Place::new();
    let csv = file(&place, "never.csv", "key,value,until\na,1,9999-12-31T23:59:59Z\n");
    ok(&["import", &place.word("to.db"), &csv, "--expire-column", "until"]);
    ok(&["put", &place.word("to.db"), "b", "1", "--at", "9999-12-31 23:59:59"]);
    let ends = ok(&["expiring", &place.word("to.db"), "--json"]);
    assert_eq!(ends.matches("253402300799000").count(), 2, "{ends}");
}

#[test]
fn failed_import_reports_the_batches_before_the_error() {
    let place = Place::new();
    let to = place.word("to.db");
    let mut lines: String = (0..2500).map(|n| format!("{{\"key\":\"{n}\",\"value\":\"{n}\"}}\n")).collect();
    lines.push_str("torn");
    let torn = file(&place, "torn.jsonl", &lines);
    fails(&["import", &to, &torn], 3, "2 000 entries before it were imported");
    let store = Store::open(&to).unwrap();
    assert_eq!(store.count().unwrap(), 2000);
    let whole = file(&place, "whole.jsonl", lines.strip_suffix("torn").unwrap());
    assert_eq!(json(&["import", &to, &whole, "--overwrite"])[0]["imported"]["default"], 2500);
    assert_eq!(store.count().unwrap(), 2500);
    let new = place.word("new.db");
    let said = ok(&["import", &new, &whole, "--dry-run", "--ttl", "1h"]);
    assert_eq!(
        said,
        "2500\twould be imported from jsonl into family \"default\"\n2500\tof them with a TTL\n"
    );
    assert!(!place.path("new.db").exists());
}

#[test]
#[cfg(unix)] // a signal
fn stopped_import_keeps_whole_batches_and_continues() {
    use std::io::Write as _;
    use std::process::Stdio;

    let place = Place::new();
    let to = place.word("to.db");
    let lines: String = (0..30_000).map(|n| format!("{{\"key\":\"{n}\",\"value\":\"{n:020}\"}}\n")).collect();
    let (first, rest) = lines.as_bytes().split_at(lines.len() / 2);
    let mut child = crate::common::command(&["import", &to, "-", "--from", "jsonl"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(first).unwrap(); // all but the contents of the pipe buffer is read
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT)
        .unwrap();
    drop(stdin.write_all(rest)); // the command may have ended
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert!(err(&output).contains("use --skip-existing to continue"), "{}", err(&output));
    assert_eq!(code(&output), 3);
    assert_eq!(place.files(), ["to.db"]);
    let imported = Store::open(&to).unwrap().count().unwrap();
    assert!(imported > 0 && imported < 30_000 && imported.is_multiple_of(1000), "{imported}");
    let said = format!("stopped\n  {} 000 entries were imported", imported / 1000);
    assert!(err(&output).contains(&said), "{}", err(&output));
    let output =
        kvstore_fed(&["import", &to, "-", "--from", "jsonl", "--skip-existing", "--json"], lines.as_bytes());
    let report: serde_json::Value = serde_json::from_str(&out(&output)).unwrap();
    assert_eq!((code(&output), &report["imported"]["default"]), (0, &(30_000 - imported).into()));
}

#[test]
fn scan_output_is_imported_with_expiry() {
    let place = Place::new();
    let [from, to] = ["from.db", "to.db"].map(|name| place.word(name));
    ok(&["put", &from, "never", "1"]);
    ok(&["put", &from, "\\xff", "\\x00", "--at", "2255-01-01T00:00Z"]);
    let scanned = ok(&["scan", &from, "--json"]);
    let words = ["import", &to, "-", "--from", "jsonl", "--expire-column", "expire_ms"];
    let output = kvstore_fed(&words, scanned.as_bytes());
    assert_eq!((code(&output), err(&output)), (0, String::new()));
    assert_eq!(ok(&["scan", &to, "--json"]), scanned);
}

#[test]
fn unreadable_source_creates_no_store() {
    let place = Place::new();
    let to = place.word("to.db");
    let csv = file(&place, "a.csv", "key,value\na,1\n");
    fails(&["import", &to, &csv, "--key-column", "id"], 2, "the CSV has no column \"id\", but key, value:");
    fails(&["import", &to, &file(&place, "empty.csv", "")], 3, "the CSV is empty");
    fails(&["import", &to, &file(&place, "wrong.json", "5")], 3, "an array of objects");
    let json = file(&place, "a.json", "[{\"key\":\"a\",\"value\":\"1\"}]");
    assert_eq!(code(&kvstore(&["import", &to, &json, "--key-column", "id"])), 1);
    assert!(!place.path("to.db").exists());
    let torn = file(&place, "torn.csv", "key,value\na,1\nb\n");
    let said = format!(
        "kvstore: invalid CSV: record 2 (line: 3, byte: 14): found record with 1 fields, but the previous \
                        record has 2 fields\n  nothing was imported; {to} was created and is empty\n"
    );
    let output = kvstore(&["import", &to, &torn]);
    assert_eq!((code(&output), err(&output)), (3, said));
    ok(&["import", &place.word("none.db"), &file(&place, "none.csv", "key,value\n")]);
    assert!(place.path("none.db").exists());
}

/// Creates an interpreter that has the package and prints these lines.
#[cfg(unix)]
fn python(place: &Place, name: &str, lines: &str) -> String {
    let text = format!(
        "#!/bin/sh\n[ \"$1\" = -c ] && exit 0\nprintf '%s|' \"$@\" >'{0}.args'\ncat <<'END'\n{lines}\nEND\n",
        place.word(name)
    );
    crate::common::copy_to_run(file(place, &format!("{name}.sh"), &text), place.path(name));
    place.word(name)
}

#[test]
#[cfg(unix)] // scripts of sh
fn other_formats_are_read_by_the_python_package() {
    use crate::common::{command, copy_to_run};

    let place = Place::new();
    let to = place.word("to.db");
    let run = |python: &str, words: &[&str]| {
        command(&[&["import", &to], words].concat()).env("KVSTORE_PYTHON", python).output().unwrap()
    };
    let [cache, folder] = [&file(&place, "cache", ""), &file(&place, "cache dir", "")];
    file(&place, "of dbm.dat", "");
    let missing = run("/no/python", &[cache, "--from", "diskcache"]);
    assert_eq!(code(&missing), 3);
    assert!(err(&missing).contains("needs the Python package kvstore-ttl, but"), "{}", err(&missing));
    copy_to_run(file(&place, "without.sh", "#!/bin/sh\nexit 1\n"), place.path("without"));
    let without = place.word("without");
    let said = run(&without, &[cache]);
    assert!(code(&said) == 3 && err(&said).contains("-m pip install"), "{}", err(&said));
    let with = python(
        &place,
        "with",
        "{\"source\":\"snkv\"}\n\
         {\"entry\":{\"key\":\"YQ==\",\"value\":\"MQ==\",\"family\":null,\"expire_ms\":32503680000000}}\n\
         {\"entry\":{\"key\":\"/w==\",\"value\":\"\",\"family\":\"f\",\"expire_ms\":null}}\n\
         {\"skipped\":\"odd\"}\n{\"skipped\":\"expired in the source\"}\n\
         {\"entry\":{\"key\":\"\",\"value\":\"MQ==\",\"family\":\"f\",\"expire_ms\":null}}\n\
         {\"end\":\"some advice\"}",
    );
    let words = [folder, "--from", "snkv", "--table", "t", "--values", "json", "--unpickle", "--ttl", "1h"];
    let done = run(&with, &words);
    assert_eq!((code(&done), err(&done).as_str()), (1, "kvstore: some advice\n"));
    assert_eq!(
        out(&done),
        "1\timported from snkv into family \"default\"\n1\timported from snkv into family \"f\"\n2\tof them with a TTL\n\
         1\tskipped: a key is empty or longer than 65536 bytes\n1\tskipped: expired in the source\n1\tskipped: odd\n"
    );
    assert_eq!(
        fs::read_to_string(place.path("with.args")).unwrap(),
        format!(
            "-m|kvstore._import|--from|snkv|--table|t|--values|json|--unpickle|--target|{to}|--|{folder}|"
        )
    );
    let store = Store::open(&to).unwrap();
    assert_eq!(store.expiry("a").unwrap(), Some(Expiry::At(32_503_680_000_000)));
    let family = store.family("f").unwrap();
    assert_eq!(family.get(b"\xff").unwrap().as_deref(), Some(&b""[..]));
    assert!(matches!(family.expiry(b"\xff").unwrap(), Some(Expiry::At(_))));
    drop((family, store));
    let again = run(&with, &[&words[..], &["--skip-existing", "--json"]].concat());
    let report: serde_json::Value = serde_json::from_str(&out(&again)).unwrap();
    assert_eq!(err(&again), "");
    assert_eq!(report["imported"], serde_json::json!({}));
    assert_eq!(report["skipped"]["already in the target"], 2);
    let refused = run(&with, &words);
    assert!(
        code(&refused) == 3 && err(&refused).contains("family \"default\" has keys already"),
        "{}",
        err(&refused)
    );
    for (python, word) in [(&with, "none"), (&with, "of dbm"), (&without, "of dbm")] {
        let said = run(python, &[&place.word(word), "--from", "dbm"]); // Python reports a missing file itself
        assert!(!err(&said).contains("there is no file"), "{}", err(&said));
    }
    let said = run(&with, &["-", "--from", "diskcache"]);
    assert!(
        code(&said) == 2 && err(&said).contains("the format of standard input is not known"),
        "{}",
        err(&said)
    );
    for missing in ["of", "none", "none.json"] {
        let said = run(&without, &[&place.word(missing)]);
        assert_eq!(code(&said), 3);
        let text = err(&said);
        assert!(
            text.contains("there is no file") && text.contains(missing) && !text.contains("Python"),
            "{text}"
        );
    }
    let refused = run(&with, &[cache, "--no-header"]);
    assert!(code(&refused) == 2 && err(&refused).contains("apply to CSV and JSON only"), "{}", err(&refused));
    let refused = run(&with, &[cache, "-f", "g"]);
    assert!(code(&refused) == 2 && err(&refused).contains("leave out --family"), "{}", err(&refused));
}

#[test]
#[cfg(unix)] // scripts of sh
fn failure_of_the_python_package_is_reported_with_what_was_imported() {
    let place = Place::new();
    let entry = |n: u32| {
        let key = data_encoding::BASE64.encode(format!("{n:04}").as_bytes());
        format!("{{\"entry\":{{\"key\":\"{key}\",\"value\":\"\",\"family\":null,\"expire_ms\":null}}}}\n")
    };
    let entries: String = (0..1500).map(entry).collect();
    let cache = file(&place, "cache", "");
    for (n, (last, said)) in [
        ("{\"failed\":\"it is damaged\"}", "kvstore: it is damaged\n"),
        ("", "kvstore: the Python package ended before it had read the whole source\n"),
        ("{\"entry\":{\"key\":\"?\"}}", "kvstore: the Python package ended before"),
    ]
    .into_iter()
    .enumerate()
    {
        let python =
            python(&place, &format!("python{n}"), &format!("{{\"source\":\"dbm\"}}\n{entries}{last}"));
        let to = place.word(&format!("{n}.db"));
        let done = crate::common::command(&["import", &to, &cache, "--from", "dbm"])
            .env("KVSTORE_PYTHON", &python)
            .output()
            .unwrap();
        assert_eq!((code(&done), out(&done).as_str()), (3, ""));
        assert!(err(&done).starts_with(said), "{}", err(&done));
        assert!(err(&done).contains("1 000 entries before it were imported"), "{}", err(&done));
        assert_eq!(Store::open(&to).unwrap().count().unwrap(), 1000);
    }
    let python = python(&place, "failing", "{\"failed\":\"no cache here\"}");
    let to = place.word("none.db");
    let words = ["import", &to, &cache, "--from", "dbm"];
    let done = crate::common::command(&words).env("KVSTORE_PYTHON", &python).output().unwrap();
    assert_eq!((code(&done), err(&done).as_str()), (3, "kvstore: no cache here\n"));
    assert!(!place.path("none.db").exists());
}

#[test]
#[cfg(unix)] // scripts of sh
fn python_next_to_command_is_tried_before_path() {
    use std::process::Command;

    use crate::common::copy_to_run;

    let place = Place::new();
    let cache = file(&place, "cache", "");
    let script = |folder: &str, has: i32| {
        fs::create_dir(place.path(folder)).unwrap();
        let text = format!("#!/bin/sh\n[ \"$1\" = -c ] && exit {has}\necho '{{\"failed\":\"{folder}\"}}'\n");
        copy_to_run(file(&place, "script.sh", &text), place.path(folder).join("python3"));
    };
    let run = |named: &str, name: &str| {
        let path = format!("{}:/usr/bin:/bin", place.word("path"));
        let mut command = Command::new(place.path(name));
        command.args(["import", &place.word("to.db"), &cache, "--from", "diskcache"]);
        err(&command.env("PATH", path).env("KVSTORE_PYTHON", named).output().unwrap())
    };
    script("path", 0);
    script("venv", 0);
    copy_to_run(env!("CARGO_BIN_EXE_kvstore"), place.path("venv/kvstore"));
    std::os::unix::fs::symlink(place.path("venv/kvstore"), place.path("link")).unwrap();
    assert_eq!(run("", "venv/kvstore"), "kvstore: venv\n");
    assert_eq!(run("", "link"), "kvstore: venv\n");
    assert_eq!(run(&place.word("path/python3"), "venv/kvstore"), "kvstore: path\n");
    // An interpreter without the package is skipped.
    script("other", 1);
    copy_to_run(env!("CARGO_BIN_EXE_kvstore"), place.path("other/kvstore"));
    assert_eq!(run("", "other/kvstore"), "kvstore: path\n");
}

#[test]
fn unused_expiry_column_and_first_bad_row_are_named() {
    let place = Place::new();
    let csv = file(&place, "a.csv", "key,value,ttl\na,1,60\n,2,60\n,3,60\nb,4,soon\n");
    let run = |to: &str, words: &[&str]| kvstore(&[&["import", &place.word(to)], words].concat());
    let hint = "warning: the field \"ttl\" of the source was not used: import it with --ttl-column ttl\n";
    let empty = "kvstore: warning: skipped, first at line 3: a key is empty or longer than 65536 bytes\n";
    let done = run("1.db", &[&csv]);
    assert_eq!(err(&done), format!("{empty}kvstore: {hint}"));
    let done = run("2.db", &[&csv, "--ttl-column", "ttl"]);
    assert_eq!(
        err(&done),
        format!("{empty}kvstore: warning: skipped, first at line 5: its TTL is not a duration\n")
    );
    let lines = file(
        &place,
        "a.jsonl",
        "{\"key\":\"a\",\"value\":\"1\",\"expires_at\":\"2255-01-01T00:00Z\"}\n{\"key\":\"b\"}\n",
    );
    let done = run("3.db", &[&lines]);
    assert!(err(&done).contains("import it with --expire-column expires_at"), "{}", err(&done));
    assert!(err(&done).contains("first at entry 2"), "{}", err(&done));
    let array = file(&place, "a.json", "[{\"key\":\"a\",\"value\":\"1\",\"expire_ms\":null}]");
    assert!(err(&run("4.db", &[&array])).contains("import it with --expire-column expire_ms"));
    assert!(!err(&run("5.db", &[&csv, "--value-column", "ttl"])).contains("was not used"));
}

#[test]
fn unclosed_quote_is_reported_and_inner_quotes_are_text() {
    let place = Place::new();
    for (n, (name, text, line)) in [
        ("open.tsv", "key\tvalue\na\t\"5 inch\nb\t2\nc\t3\n", 2),
        ("cut off.csv", "key,value\r\na,1\r\nb,\"two", 3),
        ("header.csv", "key,\"value\na,1\n", 1),
        ("twice.csv", "key,value\na,\"5\"\" wide\nb,2\n", 2),
        ("within.csv", "key,value,more\na,\"5 inch,1\nb,2,1\n", 2),
        ("even.tsv", "key\tvalue\na\t\"5 inch\nb\t2\nc\t\"6 inch\nd\t4\n", 2),
    ]
    .into_iter()
    .enumerate()
    {
        let output = kvstore(&["import", &place.word(&format!("{n}.db")), &file(&place, name, text)]);
        let said = format!("the quote in line {line} is not closed");
        assert!(code(&output) == 3 && err(&output).contains(&said), "{name}: {}", err(&output));
    }
    let fine = "\u{feff}\"key\",value\na,5\" wide\nb,\"5\"\" wide\"\nc,\"two\nlines\"\n\"d\",\"\"\ne,\"x\"y\nf,\"end\"";
    let to = place.word("to.db");
    ok(&["import", &to, &file(&place, "fine.csv", fine)]);
    let store = Store::open(&to).unwrap();
    for (key, value) in
        [("a", "5\" wide"), ("b", "5\" wide"), ("c", "two\nlines"), ("d", ""), ("e", "xy"), ("f", "end")]
    {
        assert_eq!(store.get(key).unwrap().as_deref(), Some(value.as_bytes()), "{key}");
    }
}

#[test]
fn missing_expiry_column_of_a_line_is_reported() {
    let place = Place::new();
    let csv = file(&place, "a.csv", "a,1,60\nb,2,60\n");
    for option in ["--ttl-column", "--expire-column"] {
        fails(
            &["import", &place.word("to.db"), &csv, "--no-header", option, "4"],
            3,
            "a line with 3 columns only",
        );
    }
    fs::write(place.path("b.csv"), b"key,value,ttl\na,1,\xff\n").unwrap();
    let output = kvstore(&["import", &place.word("b.db"), &place.word("b.csv"), "--ttl-column", "ttl"]);
    assert!(code(&output) == 1 && err(&output).contains("its TTL is not a duration"), "{}", err(&output));
}
