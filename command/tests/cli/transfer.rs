//! `dump`, `load` and `copy`: everything arrives, or the command reports what is missing.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use crate::common::{NOT_THERE, Place, code, command, err, fails, json, kvstore, kvstore_fed, ok, out};
use kvstore::{Config, Eviction, Expiry, Family, PutOptions, SizeLimit, Store};

const V1: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/dump-v1.jsonl");
const ODD: &str = "O'dd \"näme\"\n\t\u{1f}";
const LATER: i64 = 9_000_000_000_000;

/// Value, expiry time, write time (-1: not tracked).
type Row = (Vec<u8>, Option<i64>, i64);
type Settings = (Option<Duration>, bool);

fn rows(family: &Family) -> BTreeMap<Vec<u8>, Row> {
    let row = |key: &[u8], value| {
        let expire_ms = family.expiry(key).unwrap().unwrap().millis();
        (value, expire_ms, family.write_time(key).map_or(-1, Option::unwrap))
    };
    family.iter().map(Result::unwrap).map(|(key, value)| (key.clone(), row(&key, value))).collect()
}

fn contents(path: impl AsRef<Path>) -> BTreeMap<String, (Settings, BTreeMap<Vec<u8>, Row>)> {
    let store = Store::open(path).unwrap();
    store.integrity_check().unwrap();
    let names = store.family_names().unwrap().into_iter().chain(["default".to_owned()]);
    names
        .map(|name| {
            let family = store.family(&name).unwrap();
            let settings = (family.default_ttl().unwrap(), family.tracks_writes().unwrap());
            (name, (settings, rows(&family)))
        })
        .collect()
}

/// Fills a store with every kind of data.
fn fill(path: impl AsRef<Path>) {
    let store = Store::open(path).unwrap();
    let (aged, odd) = (store.create_family("aged").unwrap(), store.create_family(ODD).unwrap());
    aged.set_write_tracking(true).unwrap();
    odd.set_default_ttl(Some(Duration::from_millis(7_001))).unwrap();
    store.create_family("empty").unwrap();
    store
        .transaction(|tx| -> kvstore::Result<()> {
            for n in 0..=255_u8 {
                let end = if n % 3 == 0 { Expiry::Never } else { Expiry::At(LATER + i64::from(n)) };
                tx.put_with_expiry([n], [255 - n].repeat(usize::from(n) * 9), end)?;
                let written = PutOptions::new().expiry(end).written_at(i64::from(n) * 1000);
                aged.put_with_options([b'k', n, n ^ 0x55], format!("ä{n}\u{0}\"\\"), &written)?;
            }
            tx.put("large", vec![0xfe; 1 << 20])?;
            tx.put("large text", "ß\n".repeat(400_000))?;
            tx.put("empty", "")?;
            tx.put_with_expiry("dead", "1", Expiry::At(1))?;
            odd.put_with_expiry("k".repeat(65_536), "the longest key", Expiry::Never)
        })
        .unwrap();
}

fn set_limit(path: impl AsRef<Path>, limit: SizeLimit) {
    Store::open(path).unwrap().set_size_limit(Some(limit)).unwrap();
}

/// Creates a store with `n` keys in key order; returns its dump.
fn numbered(place: &Place, n: usize) -> Vec<u8> {
    let store = Store::open(place.path("numbered.db")).unwrap();
    store
        .transaction(|tx| (0..n).try_for_each(|n| tx.put(format!("key {n:06}"), format!("value {n}"))))
        .unwrap();
    drop(store);
    ok(&["dump", &place.word("numbered.db")]).into_bytes()
}

// ---- there and back ------------------------------------------------------------------------------

#[test]
fn loaded_dump_equals_the_store() {
    let place = Place::new();
    let from = place.word("from.db");
    fill(&from);
    let limit = SizeLimit::new(50_000_000, Eviction::Soonest);
    set_limit(&from, limit);
    ok(&["dump", &from, "-o", &place.word("dump")]);
    let dump = ok(&["dump", &from]);
    let lines = |text: &str| text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
    assert!(lines(&dump) == lines(&fs::read_to_string(place.path("dump")).unwrap()));
    for (to, options) in [
        ("one.db", &[][..]),
        ("batches.db", &["--batch", "100"]),
        ("resume.db", &["--batch", "1", "--resume"]),
    ] {
        let to = place.word(to);
        let done = json(&[&["load", &to, &place.word("dump")], options].concat());
        assert_eq!(done[0]["loaded"], 516);
        assert_eq!(done[0]["families"], 4);
        assert!(contents(&from) == contents(&to), "{to}");
        assert_eq!(Store::open(&to).unwrap().size_limit().unwrap(), Some(limit));
    }
    let piped = kvstore_fed(&["load", &place.word("piped.db")], dump.as_bytes());
    assert_eq!((code(&piped), out(&piped).lines().next()), (0, Some("loaded\t516")));
    assert!(contents(&from) == contents(place.path("piped.db")));
}

#[test]
fn dump_of_version_1_loads() {
    let place = Place::new();
    let to = place.word("to.db");
    let done = json(&["load", &to, V1]);
    assert_eq!(
        done[0],
        serde_json::json!({"loaded": 7, "families": 4, "expired": 1, "present": 0, "evicted": 0})
    );
    let row = |value: &[u8], expire_ms, written_ms| (value.to_vec(), expire_ms, written_ms);
    let expected = BTreeMap::from([
        (
            "default".to_owned(),
            (
                (None, false),
                BTreeMap::from([
                    (b" \"quoted\" \\ \n".to_vec(), row("Käse 😀 \0\u{2028}".as_bytes(), None, -1)),
                    (b"empty".to_vec(), row(b"", None, -1)),
                    (b"mortal".to_vec(), row(b"until 2255", Some(LATER), -1)),
                    (b"\0\xff".to_vec(), row(b"\xff\xfe\0", None, -1)),
                ]),
            ),
        ),
        (
            "O'dd \"näme\"\n".to_owned(),
            (
                (Some(Duration::from_secs(3600)), true),
                BTreeMap::from([
                    (b"a".to_vec(), row(b"1", None, 0)),
                    (b"b".to_vec(), row(b"2", Some(LATER + 1), 1_795_398_285_500)),
                ]),
            ),
        ),
        ("without keys".to_owned(), ((Some(Duration::from_millis(1)), false), BTreeMap::new())),
        ("short".to_owned(), ((None, false), BTreeMap::from([(b"k".to_vec(), row(b"v", None, -1))]))),
    ]);
    assert_eq!(contents(&to), expected);
    assert_eq!(
        Store::open(&to).unwrap().size_limit().unwrap(),
        Some(SizeLimit::new(64_000_000, Eviction::Soonest))
    );
}

/// Returns `true` if the fields of a line match one alternative of docs/reference/dump.schema.json.
#[test]
fn every_dump_line_matches_schema() {
    let schema = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/dump.schema.json");
    let schema: serde_json::Value = serde_json::from_slice(&fs::read(schema).unwrap()).unwrap();
    let place = Place::new();
    fill(place.path("from.db"));
    set_limit(place.path("from.db"), SizeLimit::new(50_000_000, Eviction::None));
    let dump = ok(&["dump", &place.word("from.db")]);
    let old = fs::read_to_string(V1).unwrap();
    for line in dump.lines().chain(old.lines()) {
        let line: serde_json::Map<String, serde_json::Value> = serde_json::from_str(line).unwrap();
        let has_type = |value: &serde_json::Value, kind: &serde_json::Value| match kind.as_str().unwrap() {
            "null" => value.is_null(),
            "integer" => value.is_i64(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "object" => value.is_object(),
            other => panic!("{other}"),
        };
        let fits = |definition: &serde_json::Value| {
            let required = definition["required"].as_array().cloned().unwrap_or_default();
            required.iter().all(|name| line.contains_key(name.as_str().unwrap()))
                && line.iter().all(|(name, value)| match &definition["properties"][name] {
                    serde_json::Value::Null => false,
                    property => match &property["type"] {
                        serde_json::Value::Null => property["const"] == *value,
                        serde_json::Value::Array(kinds) => kinds.iter().any(|kind| has_type(value, kind)),
                        kind => has_type(value, kind),
                    },
                })
        };
        let fitting = schema["$defs"].as_object().unwrap().iter().filter(|(_, definition)| fits(definition));
        assert_eq!(fitting.count(), 1, "{line:?}");
    }
}

#[test]
fn dump_of_some_families_and_of_a_prefix() {
    let place = Place::new();
    let from = place.word("from.db");
    fill(&from);
    let dump = ok(&["dump", &from, "-f", "aged", "-f", "empty", "-f", "aged", "--prefix", "k\\x01"]);
    let lines: Vec<serde_json::Value> =
        dump.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[1]["family"], &lines[3]["family"]), (&"aged".into(), &"empty".into()));
    assert_eq!((lines.len(), &lines[2]["written_ms"]), (5, &1000.into()));
    assert_eq!(lines[4], serde_json::json!({"end": true, "families": 2, "keys": 1}));
    fails(&["dump", &from, "-f", "missing"], 1, "there is no family \"missing\"");
    fails(&["dump", &from, "--prefix", "\\q"], 2, "backslash");
}

#[test]
fn dump_creates_no_store_and_works_on_a_busy_one() {
    let place = Place::new();
    fails(&["dump", &place.word("missing.db")], 3, "there is no file");
    assert!(place.files().is_empty());
    let store = Store::open(place.path("store.db")).unwrap();
    store.put("committed", "1").unwrap();
    store.begin_write().unwrap();
    store.put("open", "1").unwrap();
    let dump = ok(&["dump", &place.word("store.db")]);
    assert!(dump.contains("committed") && !dump.contains("open"));
    fails(&["load", &place.word("store.db"), V1, "--timeout", "1ms"], 3, "try again");
    store.rollback().unwrap();
    drop(store);
    let path = place.path("store.db");
    let mut permissions = fs::metadata(&path).unwrap().permissions();
    permissions.set_readonly(true);
    fs::set_permissions(&path, permissions).unwrap();
    assert_eq!(ok(&["dump", &place.word("store.db")]).lines().count(), 4);
}

#[test]
fn output_file_is_complete_or_unchanged() {
    let place = Place::new();
    let from = place.word("from.db");
    fill(&from);
    let before = ok(&["dump", &from, "-f", "default", "--prefix", "none"]);
    fs::write(place.path("dump"), &before).unwrap();
    // (On Windows a symbolic link needs a privilege.)
    let link = if cfg!(unix) { "link" } else { "dump" };
    #[cfg(unix)]
    std::os::unix::fs::symlink(place.path("dump"), place.path(link)).unwrap();
    for own in ["from.db", "from.db-wal"] {
        if place.path(own).exists() {
            fails(&["dump", &from, "-o", &place.word(own)], 2, "is a file of the store itself");
        }
    }
    fails(&["dump", &from, "-f", "missing", "-o", &place.word("dump")], 1, "no family");
    assert_eq!(fs::read_to_string(place.path("dump")).unwrap(), before);
    fails(&["dump", &from, "-o", &place.word("no/dump")], 3, "there is no directory");
    let done = json(&["dump", &from, "-o", &place.word(link)]);
    let bytes = fs::metadata(place.path("dump")).unwrap().len();
    assert_eq!(done[0], serde_json::json!({"keys": 516, "families": 4, "bytes": bytes}));
    #[cfg(unix)]
    {
        assert!(fs::symlink_metadata(place.path("link")).unwrap().is_symlink());
        fs::remove_file(place.path("link")).unwrap();
    }
    assert_eq!(place.files(), ["dump", "from.db"]);
    let nowhere = if cfg!(windows) { "NUL" } else { "/dev/null" };
    assert_eq!(ok(&["dump", &from, "-o", nowhere]), format!("keys\t516\nfamilies\t4\nbytes\t{bytes}\n"));
}

#[test]
fn dump_writes_to_standard_output_and_backup_does_not() {
    let place = Place::new();
    let path = place.word("app.db");
    ok(&["put", &path, "k", "v"]);
    let run = |words: &[&str]| command(words).current_dir(place.path("")).output().unwrap();
    let dump = run(&["dump", &path, "-o", "-"]);
    assert_eq!(ok(&["dump", &path]).lines().nth(2), out(&dump).lines().nth(2));
    for words in [["backup", &path, "-"], ["recover", &path, "-"]] {
        let output = run(&words);
        assert_eq!(code(&output), 2);
        assert!(err(&output).contains("not standard output"), "{}", err(&output));
    }
    assert_eq!(place.files(), ["app.db"]);
}

#[test]
fn dump_replaces_only_a_dump_or_an_empty_file() {
    let place = Place::new();
    let (from, other) = (place.word("from.db"), place.word("other.db"));
    fill(&from);
    ok(&["put", &other, "k", "v"]);
    fs::write(place.path("notes"), "{\"kvstore\": 1}").unwrap();
    for (name, file) in [("other.db", &other), ("notes", &place.word("notes"))] {
        let before = fs::read(place.path(name)).unwrap();
        fails(&["dump", &from, "-o", file], 2, "exists and is not a dump");
        assert_eq!(fs::read(place.path(name)).unwrap(), before);
    }
    assert_eq!(ok(&["get", &other, "k"]), "v");
    fs::write(place.path("empty"), "").unwrap();
    for _ in 0..2 {
        ok(&["dump", &from, "-o", &place.word("empty")]);
    }
    assert!(fs::read_to_string(place.path("empty")).unwrap().starts_with("{\"kvstore_dump\":"));
}

#[test]
fn closed_pipe_ends_a_dump_without_error() {
    let place = Place::new();
    fill(place.path("from.db"));
    let mut child = command(&["dump", &place.word("from.db")])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 10];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap(); // then closes the pipe
    let output = child.wait_with_output().unwrap();
    assert_eq!((code(&output), err(&output)), (0, String::new()));
}

// ---- what is not loaded --------------------------------------------------------------------------

#[test]
fn truncated_dump_loads_nothing() {
    let place = Place::new();
    let dump = fs::read(V1).unwrap();
    let to = place.word("to.db");
    for length in
        (0..dump.len() - 1).filter(|at| at.is_multiple_of(23) || dump[*at] == b'\n').collect::<Vec<_>>()
    {
        let output = kvstore_fed(&["load", &to], &dump[..length]);
        assert_eq!(code(&output), 3, "{length}: {}", err(&output));
        let said = err(&output);
        assert!(
            said.contains("othing")
                && (said.contains("truncated") || said.contains("line 1:") || said.contains("empty")),
            "{said}"
        );
    }
    assert_eq!(contents(&to), BTreeMap::from([("default".to_owned(), ((None, false), BTreeMap::new()))]));
    // The newline of the last line may be missing.
    assert_eq!(code(&kvstore_fed(&["load", &to], &dump[..dump.len() - 1])), 0);
}

#[test]
fn invalid_line_is_named_and_nothing_is_loaded() {
    let place = Place::new();
    let to = place.word("to.db");
    let head = "{\"kvstore_dump\":1}\n{\"family\":\"default\"}\n{\"key\":\"a\",\"value\":\"1\"}\n";
    let end = "{\"end\":true,\"families\":1,\"keys\":2}\n";
    let long = format!("{{\"key\":\"{}\",\"value\":\"\"}}", "k".repeat(65_537));
    for (line, said) in [
        ("not JSON", "line 4: expected"),
        ("{\"key\":\"b\",\"valu\":\"1\"}", "line 4: unknown field `valu`"),
        ("{\"key\":\"b\"}", "line 4: it has neither \"value\""),
        ("{\"key\":\"\",\"value\":\"1\"}", "line 4: the key has 0 bytes"),
        (&long, "line 4: the key has 65537 bytes"),
        ("{\"key\":\"b\",\"value\":\"1\",\"expire_ms\":0}", "line 4: the expiry time 0 is not"),
        ("{\"key\":\"b\",\"value\":\"1\",\"written_ms\":-5}", "line 4: the write time -5 is negative"),
        ("{\"family\":\"__mine\"}", "line 4: family names that begin with"),
        ("{\"family\":\"default\"}", "line 4: the family \"default\" occurs twice"),
        ("{\"family\":\"f\",\"default_ttl_ms\":999999999999999}", "line 4: the default TTL is longer than"),
        ("{\"kvstore_dump\":1}", "line 4: a second header"),
        ("", "line 5: the dump should have 2 keys in 1 families and has 1 in 1"),
        (
            "{\"key\":\"b\",\"value\":\"1\"}\n{\"key\":\"c\",\"value\":\"1\"}",
            "line 6: the dump should have 2 keys",
        ),
        ("{\"end\":true,\"families\":1,\"keys\":1}", "line 5: text after the end"),
    ] {
        for batch in [&[][..], &["--batch", "100"]] {
            let output =
                kvstore_fed(&[&["load", &to], batch].concat(), format!("{head}{line}\n{end}").as_bytes());
            assert_eq!(code(&output), 3);
            assert!(
                err(&output).contains(said) && err(&output).contains("nothing was loaded"),
                "{}",
                err(&output)
            );
        }
    }
    assert_eq!(contents(&to), BTreeMap::from([("default".to_owned(), ((None, false), BTreeMap::new()))]));
    let new = place.word("new.db");
    for (text, said) in [
        ("{\"kvstore_dump\":2,\"shiny\":[]}\n", "version 2"),
        ("{\"family\":\"default\"}\n", "not the header of a dump"),
        ("SQLite format 3\0", "check that the file is a dump"),
    ] {
        let output = kvstore_fed(&["load", &new], text.as_bytes());
        assert!(code(&output) == 3 && err(&output).contains(said), "{}", err(&output));
    }
    let orphan = kvstore_fed(&["load", &new], b"{\"kvstore_dump\":1}\n{\"key\":\"a\",\"value\":\"\"}\n");
    assert!(err(&orphan).contains("line 2: a key before the first family line"), "{}", err(&orphan));
    for said in ["missing: ", NOT_THERE] {
        fails(&["load", &new, &place.word("missing")], 3, said);
    }
    fails(&["load", &new, V1, "--resume"], 2, "--batch");
    fails(&["load", &new, V1, "--if-absent", "--replace"], 2, "cannot be used with");
}

// ---- into a store with keys ----------------------------------------------------------------------

#[test]
fn existing_keys_are_kept_or_replaced_as_asked() {
    let place = Place::new();
    let to = place.word("to.db");
    let store = Store::open(&to).unwrap();
    store.set_default_ttl(Some(Duration::from_secs(60))).unwrap();
    for key in ["empty", "own"] {
        store.put_with_expiry(key, "mine", Expiry::Never).unwrap();
    }
    fails(&["load", &to, V1], 3, "the family \"default\" has keys already");
    assert_eq!(store.family_names().unwrap(), [""; 0]);
    let done = json(&["load", &to, V1, "--if-absent"]);
    assert_eq!((&done[0]["loaded"], &done[0]["present"]), (&6.into(), &1.into()));
    assert_eq!(store.get("empty").unwrap().unwrap(), b"mine");
    assert_eq!(
        store.default_ttl().unwrap(),
        Some(Duration::from_secs(60)),
        "settings of a family with keys stay"
    );
    assert_eq!(store.size_limit().unwrap(), None, "and so does the limit of a store with keys");
    let done = json(&["load", &to, V1, "--replace"]);
    assert_eq!((&done[0]["loaded"], &done[0]["present"]), (&7.into(), &0.into()));
    assert_eq!(store.get("empty").unwrap().unwrap(), b"");
    assert_eq!(store.get("own").unwrap().unwrap(), b"mine");
    assert_eq!(store.family("O'dd \"näme\"\n").unwrap().write_time("a").unwrap(), Some(0));
}

#[test]
fn family_without_keys_in_the_dump_is_created_or_unchanged() {
    let place = Place::new();
    let dump = place.word("dump.jsonl");
    let head = r#"{"kvstore_dump":1}
{"family":"default","default_ttl_ms":5000}
{"family":"new","default_ttl_ms":6000,"track_writes":true}
{"family":"there","default_ttl_ms":7000}
{"family":"rows"}
{"key":"k","value":"1"}
"#;
    fs::write(&dump, format!("{head}{}\n", r#"{"end":true,"families":4,"keys":1}"#)).unwrap();
    let ttl = |family: &Family| family.default_ttl().unwrap().map(|ttl| ttl.as_secs());
    let fresh = place.word("fresh.db");
    ok(&["load", &fresh, &dump]);
    assert_eq!(ttl(&Store::open(&fresh).unwrap().family("default").unwrap()), Some(5));
    // Existing settings stay, with or without keys.
    let to = place.word("to.db");
    let store = Store::open(&to).unwrap();
    store.put("k", "mine").unwrap();
    store.create_family("there").unwrap().set_default_ttl(Some(Duration::from_secs(60))).unwrap();
    drop(store);
    let loaded = "loaded\t1\nfamilies\t4\nexpired\t0\npresent\t0\nevicted\t0\n";
    assert_eq!(ok(&["load", &to, &dump]), loaded);
    let store = Store::open(&to).unwrap();
    let [default, new, there] = ["default", "new", "there"].map(|name| store.family(name).unwrap());
    assert_eq!([ttl(&default), ttl(&new), ttl(&there)], [None, Some(6), Some(60)]);
    assert!(new.tracks_writes().unwrap() && default.get("k").unwrap().unwrap() == b"mine");
    // Also a configured store without keys in any family.
    let set_up = place.word("set up.db");
    ok(&["families", &set_up, "create", "there", "--ttl", "1m"]);
    ok(&["load", &set_up, &dump]);
    assert_eq!(ttl(&Store::open(&set_up).unwrap().family("there").unwrap()), Some(60));
    // A refused load changes nothing.
    let before = contents(&to);
    fails(&["load", &to, &dump], 3, "the family \"rows\" has keys already");
    let more = r#"{"family":"default","default_ttl_ms":5000}
{"key":"k","value":"2"}
{"end":true,"families":1,"keys":1}"#;
    fs::write(&dump, format!("{{\"kvstore_dump\":1}}\n{{\"family\":\"other\"}}\n{more}\n")).unwrap();
    fails(&["load", &to, &dump], 3, "the family \"default\" has keys already");
    assert!(contents(&to) == before);
}

#[test]
fn impossible_limit_is_an_error_and_the_new_store_is_named() {
    let (place, from) = (Place::new(), Place::new());
    fill(from.path("from.db"));
    let dump = ok(&["dump", &from.word("from.db")]);
    let wrong =
        dump.replacen("\"dumped_ms\"", "\"limit\":{\"max_bytes\":1,\"eviction\":\"none\"},\"dumped_ms\"", 1);
    let output = kvstore_fed(&["load", &place.word("to.db")], wrong.as_bytes());
    assert_eq!(code(&output), 3);
    assert!(err(&output).contains("line 1: "), "{}", err(&output));
    assert!(err(&output).contains("to.db was created and is empty"), "{}", err(&output));
    let output = kvstore_fed(&["load", &place.word("to.db")], wrong.as_bytes());
    assert!(err(&output).ends_with("nothing was loaded\n"), "{}", err(&output));
    assert_eq!(ok(&["count", &place.word("to.db")]), "0\t0\t0\n");
}

#[test]
fn limit_below_the_loaded_size_is_refused() {
    let (place, from) = (Place::new(), Place::new());
    let store = Store::open(from.path("from.db")).unwrap();
    let limit = SizeLimit::new(400_000, Eviction::Soonest);
    store.set_size_limit(Some(limit)).unwrap();
    for n in 0..4_000_i64 {
        store.put_with_expiry(n.to_be_bytes(), [7; 100], Expiry::At(4_000_000_000_000 + n)).unwrap();
    }
    let dump = ok(&["dump", &from.word("from.db")]).replacen(":400000,", ":200000,", 1);
    for batch in [&["--batch", "500"][..], &[]] {
        let to = place.word(&format!("{}.db", batch.len()));
        let output = kvstore_fed(&[&["load", &to], batch].concat(), dump.as_bytes());
        assert!(
            code(&output) == 3 && err(&output).contains("cannot be copied to the new store"),
            "{}",
            err(&output)
        );
        let there = Store::open(&to).unwrap();
        assert_eq!(there.size_limit().unwrap(), None);
        there.set_size_limit(Some(SizeLimit::new(1 << 20, Eviction::None))).unwrap();
        let again = if batch.is_empty() { vec![] } else { vec!["--resume"] };
        let output = kvstore_fed(&[&["load", &to], batch, &again].concat(), dump.as_bytes());
        assert_eq!(code(&output), 0, "{}", err(&output));
        assert_eq!(there.count().unwrap(), store.count().unwrap());
        assert_eq!(there.size_limit().unwrap(), Some(SizeLimit::new(1 << 20, Eviction::None)));
    }
}

#[test]
fn one_family_loads_under_another_name() {
    let place = Place::new();
    let (from, to) = (place.word("from.db"), place.word("to.db"));
    fill(&from);
    fails(&["load", &to, V1, "--family", "x"], 3, "the dump has keys of several families");
    fs::write(place.path("dump"), ok(&["dump", &from, "-f", "empty", "-f", "aged"])).unwrap();
    assert_eq!(json(&["load", &to, &place.word("dump"), "--family", "x"])[0]["loaded"], 256);
    let loaded = contents(&to);
    assert_eq!(loaded.keys().collect::<Vec<_>>(), ["default", "x"]);
    assert!(loaded["x"] == contents(&from)["aged"]);
}

#[test]
fn limit_of_the_target_stays_and_evictions_are_counted() {
    let place = Place::new();
    let to = place.word("to.db");
    let dump = numbered(&place, 20_000);
    fs::write(place.path("dump"), &dump).unwrap();
    drop(Store::open(&to).unwrap());
    set_limit(&to, SizeLimit::new(400_000, Eviction::None));
    let output = kvstore(&["load", &to, &place.word("dump")]);
    assert!(
        code(&output) == 3 && err(&output).contains("limit") && err(&output).contains("nothing was loaded"),
        "{}",
        err(&output)
    );
    set_limit(&to, SizeLimit::new(400_000, Eviction::Oldest));
    let done = json(&["load", &to, &place.word("dump"), "--batch", "1000"]);
    let left = Store::open(&to).unwrap().count().unwrap();
    assert!(left > 0 && done[0]["evicted"].as_u64().unwrap() + left == 20_000, "{done:?}, {left} left");
}

// ---- batches -------------------------------------------------------------------------------------

#[test]
fn interrupted_load_continues_after_the_last_batch() {
    let place = Place::new();
    let from = place.word("from.db");
    fill(&from);
    let dump = ok(&["dump", &from]).into_bytes();
    let lines: Vec<usize> =
        dump.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1).collect();
    for cut in [5, 104, 203, 204, 260, 400, 520] {
        let to = place.word(&format!("{cut}.db"));
        let output = kvstore_fed(&["load", &to, "--batch", "99"], &dump[..lines[cut]]);
        assert!(code(&output) == 3 && err(&output).contains("is truncated"), "{}", err(&output));
        let there = contents(&to);
        let keys =
            there.iter().filter(|(name, _)| *name != "load in progress").map(|(_, (_, rows))| rows.len());
        let keys: usize = keys.sum();
        assert_eq!(keys % 99, 0);
        if keys == 0 {
            assert!(err(&output).contains("nothing was loaded"), "{}", err(&output));
        } else {
            assert!(err(&output).contains(&format!("{keys} keys were loaded")), "{}", err(&output));
            let again = kvstore_fed(&["load", &to, "--batch", "99"], &dump);
            assert!(code(&again) == 3 && err(&again).contains("was interrupted"), "{}", err(&again));
            let mut other = dump.clone();
            other[lines[1] + 30] ^= 1; // in the first key
            let other = kvstore_fed(&["load", &to, "--batch", "99", "--resume"], &other);
            assert!(code(&other) == 3 && err(&other).contains("not the dump"), "{}", err(&other));
            let partial = kvstore(&["dump", &to]);
            assert!(err(&partial).contains("not finished") && !out(&partial).contains("load in progress"));
            assert!(contents(&to) == there);
        }
        let output = kvstore_fed(&["load", &to, "--batch", "50", "--resume"], &dump);
        assert_eq!((code(&output), err(&output)), (0, String::new()));
        assert!(out(&output).starts_with("loaded\t516\nfamilies\t4\n"), "{}", out(&output));
        assert!(contents(&to) == contents(&from), "{cut}");
    }
}

#[test]
fn resumed_load_must_have_the_same_options() {
    let place = Place::new();
    let (from, to) = (place.word("from.db"), place.word("to.db"));
    let (source, target) = (Store::open(&from).unwrap(), Store::open(&to).unwrap());
    for n in 0..300_u32 {
        source.put(n.to_be_bytes(), "of the dump").unwrap();
        target.put(n.to_be_bytes(), "of the store").unwrap();
    }
    let dump = ok(&["dump", &from]).into_bytes();
    let half = &dump[..dump.len() / 2];
    for (options, other) in [
        (&["--if-absent"][..], &["--replace"][..]),
        (&["--family", "restored"], &["--family", "default"]),
        (&["--family", "with it", "--if-absent"], &["--replace"]),
    ] {
        let words = |more: &[&'static str]| [&["load", &to, "--batch", "50"], more].concat().join("\t");
        let run = |more: &[&'static str], dump: &[u8]| {
            let words = words(more);
            kvstore_fed(&words.split('\t').collect::<Vec<_>>(), dump)
        };
        assert_eq!(code(&run(options, half)), 3);
        let refused = run(&[&["--resume"], other].concat(), &dump);
        let said = format!("started with {}", options.join(" "));
        assert!(code(&refused) == 3 && err(&refused).contains(&said), "{}", err(&refused));
        let done = run(&["--resume"], &dump);
        assert_eq!((code(&done), err(&done)), (0, String::new()));
        assert_eq!(target.get(299_u32.to_be_bytes()).unwrap().as_deref(), Some(&b"of the store"[..]));
    }
    assert_eq!(target.family("restored").unwrap().count().unwrap(), 300);
    assert_eq!(target.family("with it").unwrap().count().unwrap(), 300);
}

/// Kills a load after this part of the dump has been written to its input.
fn killed(to: &str, options: &[&str], dump: &[u8]) {
    let mut child = command(&[&["load", to], options].concat())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(dump).unwrap(); // longer than the pipe buffer, so most of it was read
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn killed_load_leaves_nothing_or_whole_batches() {
    let place = Place::new();
    let dump = numbered(&place, 30_000);
    for (at, part) in [300_000, 700_000, 1_000_000].into_iter().enumerate() {
        let one = place.word(&format!("one {at}.db"));
        killed(&one, &[], &dump[..part]);
        let none = BTreeMap::from([("default".to_owned(), ((None, false), BTreeMap::new()))]);
        assert_eq!(contents(&one), none);
        assert_eq!(code(&kvstore_fed(&["load", &one], &dump)), 0);
        assert!(contents(&one) == contents(place.path("numbered.db")));

        let batches = place.word(&format!("batches {at}.db"));
        killed(&batches, &["--batch", "1000"], &dump[..part]);
        let keys = contents(&batches)["default"].1.len();
        assert!(keys > 0 && keys < 30_000 && keys.is_multiple_of(1000), "{keys}");
        let output = kvstore_fed(&["load", &batches, "--batch", "1000", "--resume"], &dump);
        assert_eq!((code(&output), err(&output)), (0, String::new()));
        assert!(contents(&batches) == contents(place.path("numbered.db")));
    }
}

#[test]
#[cfg(unix)] // a signal
fn stopped_load_reports_loaded_rows() {
    let place = Place::new();
    let dump = numbered(&place, 30_000);
    for (name, options, said) in [
        ("one.db", &[][..], "nothing was loaded"),
        ("batches.db", &["--batch", "1000"], "--resume continues"),
    ] {
        let to = place.word(name);
        let mut child = command(&[&["load", &to], options].concat())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(&dump[..700_000]).unwrap();
        rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT)
            .unwrap();
        drop(stdin.write_all(&dump[700_000..])); // the command may have ended
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        assert!(err(&output).contains("stopped\n  ") && err(&output).contains(said), "{}", err(&output));
        assert_eq!(code(&output), 3);
        let keys = contents(&to)["default"].1.len();
        assert!(keys.is_multiple_of(1000) && (keys > 0) == (name == "batches.db"), "{keys}");
        let output = kvstore_fed(
            &[&["load", &to, "--resume"], options, &["--batch", "1000"][options.len()..]].concat(),
            &dump,
        );
        assert_eq!((code(&output), err(&output)), (0, String::new()));
        assert!(contents(&to) == contents(place.path("numbered.db")));
    }
}

// ---- copy ----------------------------------------------------------------------------------------

#[test]
fn copy_equals_the_store() {
    let place = Place::new();
    let (from, to) = (place.word("from.db"), place.word("to.db"));
    fill(&from);
    let limit = SizeLimit::new(50_000_000, Eviction::Soonest);
    set_limit(&from, limit);
    assert_eq!(ok(&["copy", &from, &to]), "keys\t516\nfamilies\t4\n");
    assert!(contents(&from) == contents(&to));
    assert_eq!(Store::open(&to).unwrap().size_limit().unwrap(), Some(limit));
    fails(&["copy", &from, &to], 3, "has keys: clear it");
    fails(&["copy", &from, &from], 3, "into itself");
    fails(&["copy", &place.word("missing.db"), &place.word("new.db")], 3, "there is no file");
    assert!(!place.path("new.db").exists() && !place.path("missing.db").exists());
    let config = Config::new().journal_mode(kvstore::JournalMode::Delete).page_size(512);
    drop(Store::open_with(place.path("other.db"), &config).unwrap());
    assert_eq!(json(&["copy", &from, &place.word("other.db")])[0]["keys"], 516);
    assert!(contents(&from) == contents(place.path("other.db")));
}

#[test]
#[cfg(unix)] // mounts
fn full_disk_is_reported_and_loses_nothing() {
    let place = Place::new();
    let (store, dump) = (Store::open(place.path("large.db")).unwrap(), place.path("large.jsonl"));
    for n in 0..4000 {
        store.put(format!("key {n:05}"), vec![b'x'; 500]).unwrap();
    }
    store.close().unwrap();
    fs::write(&dump, out(&kvstore(&["dump", &place.word("large.db")]))).unwrap();
    fs::create_dir(place.path("small")).unwrap();
    // A file system of its own for this shell; requires root.
    let script = r#"
        cd "$1" && mount -t tmpfs -o size=1m tmpfs small 2>/dev/null || exit 99
        cd small
        say() { "$K" "$@" >/dev/null; echo "$1: $?"; }
        say put a.db first kept
        say load a.db ../large.jsonl --if-absent
        "$K" count a.db | cut -f 1
        say load a.db ../large.jsonl --if-absent --batch 100
        dd if=/dev/zero of=ballast bs=4k 2>/dev/null
        head -c 90000 /dev/zero | "$K" put a.db second - 2>/dev/full; echo "put: $?"
        "$K" backup a.db b.db; echo "backup: $?"
        "$K" recover ../large.db r.db; echo "recover: $?"
        "$K" compact a.db --yes >/dev/null; echo "compact: $?"
        "$K" dump a.db -o a.jsonl; echo "dump: $?"
        "$K" get a.db first; echo; "$K" check a.db; rm -f out err ballast; ls
        mount -o remount,size=20m . && say load a.db ../large.jsonl --if-absent --batch 100 --resume
        "$K" count a.db | cut -f 1
    "#;
    let output = std::process::Command::new("unshare")
        .args(["-m", "sh", "-c", script, "sh", &place.word("")])
        .env("K", env!("CARGO_BIN_EXE_kvstore"))
        .env_remove("KVSTORE")
        .output();
    let Ok(output) = output else { return println!("SKIPPED: unshare is not installed") };
    if code(&output) == 99 || err(&output).contains("unshare failed") {
        return println!("SKIPPED: a small file system cannot be mounted");
    }
    assert_eq!(
        out(&output).lines().filter(|line| !line.starts_with("  ")).collect::<Vec<_>>(),
        [
            "put: 0",
            "load: 3",
            "1", // nothing was loaded
            "load: 3",
            "put: 3",
            "backup: 3",
            "recover: 3",
            "compact: 0",
            "dump: 3",
            "kept",
            "ok: no inconsistencies",
            "a.db", // no part of a backup or dump
            "a.db-shm",
            "a.db-wal",
            "load: 0",
            "4001",
        ],
        "{}",
        err(&output)
    );
    for message in ["b.db: the disk is full", "r.db: the disk is full", "a.jsonl: No space left"] {
        assert!(err(&output).contains(message), "{message}: {}", err(&output));
    }
}

#[test]
fn expired_keys_are_dumped_and_loaded_on_request() {
    let place = Place::new();
    let (from, to, dump) = (place.word("from.db"), place.word("to.db"), place.word("dump.jsonl"));
    let store = Store::open(&from).unwrap();
    store.create_family("tracked").unwrap().set_write_tracking(true).unwrap();
    let past = store.now_ms() - 60_000;
    store.set_clock(move || past - 1);
    for name in ["default", "tracked"] {
        let family = store.family(name).unwrap();
        family.put_with_expiry("expired", "1", kvstore::Expiry::At(past)).unwrap();
        family.put("live", "2").unwrap();
    }
    store.close().unwrap();

    let rows = |text: &str| text.lines().filter(|line| line.starts_with("{\"key")).count();
    assert_eq!(rows(&ok(&["dump", &from])), 2);
    ok(&["dump", &from, "--expired", "-o", &dump]);
    let text = fs::read_to_string(&dump).unwrap();
    assert_eq!(rows(&text), 4, "{text}");
    assert_eq!(text.matches(&format!("\"expire_ms\":{past}")).count(), 2, "{text}");

    assert_eq!(json(&["load", &to, &dump])[0]["expired"], 2);
    fs::remove_file(&to).unwrap();
    for (arguments, loaded) in
        [(&["--expired"][..], 4), (&["--replace"], 2), (&["--expired", "--replace", "--batch", "1"], 4)]
    {
        let arguments = [&["load", &to, &dump], arguments].concat();
        assert_eq!(json(&arguments)[0]["loaded"], loaded);
        let store = Store::open(&to).unwrap();
        for name in ["default", "tracked"] {
            let family = store.family(name).unwrap();
            assert_eq!((family.count().unwrap(), family.count_live().unwrap()), (2, 1), "{name}");
        }
        store.close().unwrap();
    }
    assert_eq!(
        ok(&["dump", &to, "--expired"]).lines().skip(1).filter(|line| line.contains("expired")).count(),
        2
    );
    assert!(json(&["check", &to])[0]["ok"].as_bool().unwrap_or(true));
    assert_eq!(Store::open(&to).unwrap().purge_step(None, None).unwrap().deleted, 2);
    fails(&["dump", "postgresql://h/d", "--expired"], 2, "");
}

#[test]
#[cfg(unix)]
fn failed_standard_output_is_named_and_is_an_error() {
    let place = Place::new();
    let store = place.word("a.db");
    ok(&["put", &store, "key", "value"]);
    let script = r#"
        say() { "$K" "$@" >/dev/full; echo "$1: $?" >&2; }
        say --help; say --version; say help; say put --help
        say get "$1" key; say dump "$1"; say scan "$1" --json
        "$K" >/dev/full; echo "usage: $?" >&2
        trap '' XFSZ; trap - XFSZ
        ulimit -f 0
        "$K" get "$1" key > out; echo "limit: $?" >&2
    "#;
    let output = std::process::Command::new("sh")
        .args(["-c", script, "sh", &store])
        .current_dir(place.path(""))
        .env("K", env!("CARGO_BIN_EXE_kvstore"))
        .env_remove("KVSTORE")
        .output()
        .unwrap();
    let text = err(&output);
    for what in ["--help", "--version", "help", "put", "get", "dump", "scan", "limit"] {
        assert!(text.contains(&format!("{what}: 3\n")), "{what}: {text}");
    }
    assert!(text.contains("usage: 2\n"), "{text}");
    let named = text.matches("kvstore: cannot write to standard output: ").count();
    assert_eq!(named, 8, "{text}");
}

#[test]
#[cfg(unix)]
fn new_store_has_mode_whatever_umask_is() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = Place::new();
    let script = r#"
        umask 077
        "$K" put put.db a b --mode 660 && "$K" dump put.db > dump.jsonl
        "$K" incr incr.db a --mode 0640
        "$K" load load.db dump.jsonl --mode 0o666
        "$K" copy put.db copy.db --mode 770
        "$K" families families.db create f --mode 606
        echo '{"a":"b"}' | "$K" import import.db - --from json --mode 644
        "$K" backup put.db backup.db
        "$K" put put.db a c --mode 600
        "$K" put plain.db a b
    "#;
    let output = std::process::Command::new("sh")
        .args(["-c", script])
        .current_dir(place.path(""))
        .env("K", env!("CARGO_BIN_EXE_kvstore"))
        .env_remove("KVSTORE")
        .output()
        .unwrap();
    for (name, mode) in [
        ("put", 0o660),
        ("incr", 0o640),
        ("load", 0o666),
        ("copy", 0o770),
        ("families", 0o606),
        ("import", 0o644),
        ("backup", 0o660),
        ("plain", 0o600),
    ] {
        let found =
            fs::metadata(place.path(&format!("{name}.db"))).map(|found| found.permissions().mode() & 0o7777);
        assert_eq!(found.ok(), Some(mode), "{name}: {}", err(&output));
    }
    for mode in ["400", "1660", "8", "rw", ""] {
        fails(&["put", &place.word("new.db"), "a", "b", "--mode", mode], 2, "three octal digits");
    }
}

#[test]
fn unknown_scheme_is_usage_error_of_every_command() {
    let place = Place::new();
    let store = place.word("a.db");
    ok(&["put", &store, "key", "value"]);
    let dump = place.word("dump.jsonl");
    ok(&["dump", &store, "-o", &dump]);
    for path in ["redis://h/0", "postgresql+psycopg://u:secret@h/d", "file:x.db?mode=ro"] {
        for arguments in [
            &["put", path, "key", "value"][..],
            &["get", path, "key"],
            &["load", path, &dump],
            &["backup", &store, path],
            &["copy", &store, path],
            &["dump", &store, "-o", path],
            &["recover", &store, path],
            &["recover", path, &place.word("new.db")],
        ] {
            let output = kvstore(arguments);
            let text = err(&output);
            assert_eq!(code(&output), 2, "{arguments:?}: {text}");
            assert!(text.contains("postgresql://") && !text.contains("secret"), "{arguments:?}: {text}");
        }
    }
}
