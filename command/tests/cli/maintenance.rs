//! Maintenance commands: `check`, `repair`, `recover`, `backup`, `compact`, `limit`, `checkpoint`,
//! `sync`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
#[cfg(unix)]
use std::process::{Command, Stdio};

#[cfg(unix)]
use crate::common::command;
use crate::common::{Place, code, err, json_lines, kvstore, out};
use kvstore::{Config, Expiry, Store};

const LATER: i64 = 4_000_000_000_000;

struct Scratch(Place);

impl Scratch {
    /// A directory with a closed store in it.
    fn new(rows: usize) -> Scratch {
        let scratch = Scratch(Place::new());
        let store = Store::open(scratch.path()).unwrap();
        store
            .transaction(|tx| {
                for n in 0..rows {
                    let value = vec![b'v'; if n % 50 == 3 { 9000 } else { 40 }];
                    tx.put_with_expiry(format!("key {n:06}"), value, Expiry::At(LATER + n as i64))?;
                }
                Ok::<(), kvstore::Error>(())
            })
            .unwrap();
        store.close().unwrap();
        scratch
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path(name)
    }

    fn path(&self) -> PathBuf {
        self.file("store.db")
    }

    fn names(&self) -> Vec<String> {
        self.0.files()
    }

    /// Runs SQL in another process, with Python's SQLite.
    #[cfg(unix)]
    fn sql(&self, sql: &str) {
        let program = "import sqlite3, sys\nsqlite3.connect(sys.argv[1], isolation_level=None).executescript(sys.argv[2])";
        let done = Command::new("python3").arg("-c").arg(program).arg(self.path()).arg(sql).status().unwrap();
        assert!(done.success());
    }

    /// Overwrites the page of this row, and returns its number.
    fn damage(&self, key: &str) -> usize {
        let mut bytes = fs::read(self.path()).unwrap();
        let row = format!("{key}vvvv");
        let at = bytes.windows(row.len()).position(|bytes| bytes == row.as_bytes()).unwrap();
        bytes[at / 4096 * 4096..][..4096].fill(0);
        fs::write(self.path(), bytes).unwrap();
        at / 4096 + 1
    }
}

fn run(command: &str, path: &Path, more: &[&str]) -> Output {
    let mut args = vec![command, path.to_str().unwrap()];
    args.extend(more);
    kvstore(&args)
}

// ---- check ---------------------------------------------------------------------------------------

#[test]
fn sound_store_passes_check() {
    let scratch = Scratch::new(100);
    let before = fs::read(scratch.path()).unwrap();
    let done = run("check", &scratch.path(), &[]);
    assert_eq!((code(&done), out(&done).as_str()), (0, "ok: no inconsistencies\n"));
    let done = run("check", &scratch.path(), &["--json"]);
    let lines = json_lines(&done);
    let last =
        serde_json::json!({"ok": true, "file_errors": 0, "table_errors": 0, "remedy": null, "stopped": null});
    assert_eq!(lines, [last]);
    assert_eq!(fs::read(scratch.path()).unwrap(), before);
    assert_eq!(scratch.names(), ["store.db"]);
}

#[test]
#[cfg(unix)] // Python's sqlite3
fn check_names_inconsistencies_and_repair_fixes_them() {
    let scratch = Scratch::new(300);
    scratch.sql("DELETE FROM \"ttl_key:default\" WHERE key < CAST('key 000150' AS BLOB)");
    let done = run("check", &scratch.path(), &["--max", "10"]);
    let text = out(&done);
    assert_eq!((code(&done), text.lines().count()), (3, 11), "{text}");
    assert!(text.contains("the key index has no entry for it (a key of 10 bytes): key 000003"), "{text}");
    assert!(text.ends_with("... and 140 more: use --max 0 to print all\n"), "{text}");
    assert!(err(&done).contains("150 inconsistencies") && err(&done).contains("kvstore repair"));
    let done = run("check", &scratch.path(), &["--json", "--max", "0"]);
    let lines = json_lines(&done);
    assert_eq!((code(&done), lines.len()), (3, 151));
    assert_eq!(lines[0]["key"], "key 000000");
    assert_eq!(
        lines[150],
        serde_json::json!({"ok": false, "file_errors": 0, "table_errors": 150, "remedy": "repair", "stopped": null})
    );

    let done = run("repair", &scratch.path(), &[]);
    assert_eq!((code(&done), out(&done).as_str()), (0, "150\n"));
    assert_eq!(code(&run("check", &scratch.path(), &[])), 0);
    assert_eq!(
        json_lines(&run("repair", &scratch.path(), &["--json"])),
        [serde_json::json!({"repaired": 0})]
    );
}

#[test]
#[cfg(unix)] // Python's sqlite3
fn check_passes_after_repair_where_sqlites_check_does() {
    for damage in [
        "DELETE FROM \"ttl_expiry:default\"",
        "UPDATE \"ttl_key:default\" SET expire_ms = 7",
        "DELETE FROM \"blob:default\" WHERE id = 1",
        "DROP TABLE \"ttl_key:default\"",
        "DROP VIEW \"live:default\"",
        "UPDATE \"data:default\" SET value = 'text' WHERE value IS NOT NULL",
        "INSERT INTO kvstore_family VALUES('ghost', 1, 0, 0)",
        "CREATE TABLE \"data:ghost\"(a)",
        "DELETE FROM kvstore_family",
        "DROP TABLE kvstore_family",
        "DROP TABLE kvstore_family; CREATE TABLE kvstore_family(name)",
        "UPDATE kvstore_family SET default_ttl_ms = -5, created_ms = NULL, track_writes = 'x'",
        "INSERT INTO \"data:default\"(key, value) VALUES(zeroblob(70000), x'00')",
        "DROP VIEW \"live:default\"; CREATE VIEW \"live:default\" AS SELECT 1",
        "DROP VIEW \"live:default\"; CREATE TABLE \"live:default\"(a)",
        "DROP TABLE \"ttl_expiry:default\"; CREATE TABLE \"ttl_expiry:default\"(expire_ms, key, PRIMARY KEY(expire_ms, key))",
        "PRAGMA user_version = 0",
    ] {
        let scratch = Scratch::new(100);
        scratch.sql(damage);
        assert_eq!(code(&run("check", &scratch.path(), &[])), 3, "{damage}");
        assert_eq!(code(&run("repair", &scratch.path(), &[])), 0, "{damage}");
        let done = run("check", &scratch.path(), &[]);
        assert_eq!(code(&done), 0, "{damage}: {}", out(&done));
    }
}

#[test]
#[cfg(unix)] // Python's sqlite3
fn repair_lists_removed_rows() {
    let damage = "DELETE FROM \"blob:default\" WHERE id = 1; DROP TABLE kvstore_family";
    let scratch = Scratch::new(100);
    scratch.sql(damage);
    let done = run("ls", &scratch.path(), &[]);
    let said = err(&done);
    assert_eq!(code(&done), 3);
    assert!(said.contains("kvstore check") && said.contains("kvstore repair"), "{said}");
    let done = run("repair", &scratch.path(), &[]);
    let said = err(&done);
    assert_eq!((code(&done), out(&done).lines().count()), (0, 1), "{said}");
    assert!(
        said.contains("a row with a key of 10 bytes was removed: its value is lost: key 000003"),
        "{said}"
    );
    assert!(said.contains("family \"default\" was entered in the catalogue again"), "{said}");
    assert_eq!(code(&run("check", &scratch.path(), &[])), 0);

    let scratch = Scratch::new(100);
    scratch.sql(damage);
    let done = run("repair", &scratch.path(), &["--json"]);
    let lines = json_lines(&done);
    assert_eq!((code(&done), err(&done).as_str(), lines.len()), (0, "", 4));
    assert!(lines[..3].iter().all(|line| line["lost"].is_string()));
    assert_eq!(lines[2]["key"], "key 000003");
    assert!(lines[3]["repaired"].as_u64().unwrap() > 3);
}

#[test]
fn check_that_sqlite_aborts_prints_summary_and_advice() {
    let scratch = Scratch::new(3000);
    scratch.damage("key 001500");
    let done = run("check", &scratch.path(), &["--json"]);
    let last = json_lines(&done).pop().unwrap();
    assert_eq!((code(&done), &last["ok"], &last["remedy"]), (3, &false.into(), &"recover".into()), "{last}");
    assert!(last["stopped"].as_str().unwrap().contains("malformed"), "{last}");
    let done = run("check", &scratch.path(), &[]);
    assert!(out(&done).contains("SQLite's integrity check came to no end"), "{}", out(&done));
    let said = err(&done);
    assert!(said.contains("before the check ended early") && said.contains("kvstore recover"), "{said}");
}

#[test]
fn check_of_unopenable_store_prints_a_summary() {
    let (scratch, other) = (Scratch::new(300), Scratch::new(300));
    let sound = fs::read(scratch.path()).unwrap();
    let other_format = |at: usize, byte: u8| {
        let mut bytes = sound.clone();
        bytes[at] = byte;
        bytes
    };
    let stranger = other_format(68, b'X');
    for (bytes, remedy) in [
        (sound[..8192].to_vec(), Some("recover")),
        (other_format(47, 9), Some("recover")), // a schema format that SQLite does not know
        (other_format(63, 2), None),            // a newer version
        (stranger, None),
        (b"just some text, and no store at all".repeat(20), None),
    ] {
        fs::write(other.path(), &bytes).unwrap();
        let output = run("check", &other.path(), &["--json"]);
        let last = json_lines(&output).pop().unwrap();
        assert_eq!((code(&output), &last["ok"]), (3, &serde_json::json!(false)), "{output:?}");
        assert_eq!(last["remedy"].as_str(), remedy, "{output:?}");
        assert!(last["stopped"].as_str().is_some_and(|why| !why.is_empty()), "{output:?}");
        assert!(remedy.is_none() || err(&output).contains("kvstore recover"), "{output:?}");
        assert!(fs::read(other.path()).unwrap() == bytes);
    }
    let missing = run("check", &other.file("missing.db"), &["--json"]);
    assert_eq!((code(&missing), out(&missing).as_str()), (3, ""));
}

#[test]
#[cfg(unix)] // Python's sqlite3
fn unreadable_schema_is_a_store_error() {
    let scratch = Scratch::new(50);
    scratch.sql("PRAGMA writable_schema = 1; UPDATE sqlite_schema SET sql = CAST(x'435245415445205456ff' AS TEXT) WHERE name = 'data:default'");
    for command in ["check", "repair"] {
        let output = run(command, &scratch.path(), &["--yes"]);
        assert_eq!(code(&output), 3, "{command}: {output:?}");
        assert!(err(&output).contains("kvstore recover"), "{command}: {output:?}");
    }
}

#[test]
#[cfg(unix)] // Python's sqlite3
fn recovery_of_a_newer_version_warns_of_misreading() {
    let scratch = Scratch::new(50);
    scratch.sql("PRAGMA user_version = 2");
    let new = scratch.file("new.db");
    let output = run("recover", &scratch.path(), &[new.to_str().unwrap()]);
    assert_ne!(code(&output), 0, "{output:?}");
    assert!(out(&output).contains("format version 2"), "{output:?}");
    assert_eq!(Store::open(new).unwrap().count().unwrap(), 50);
}

#[test]
fn read_commands_create_no_file_and_wrong_calls_fail() {
    let scratch = Scratch(Place::new());
    for command in ["check", "repair", "compact", "checkpoint", "sync"] {
        assert_eq!(code(&run(command, &scratch.path(), &[])), 3, "{command}");
    }
    assert_eq!(code(&run("backup", &scratch.path(), &["x"])), 3);
    assert_eq!(code(&run("recover", &scratch.path(), &[scratch.file("x").to_str().unwrap()])), 3);
    let done = run("recover", &scratch.path(), &[scratch.file("x").to_str().unwrap()]);
    assert!(err(&done).contains("store.db: check the path"), "{}", err(&done));
    assert_eq!(code(&run("backup", &scratch.path(), &[])), 2);
    assert_eq!(code(&run("check", &scratch.path(), &["--max", "-1"])), 2);
    assert_eq!(code(&run("checkpoint", &scratch.path(), &["--mode", "half"])), 2);
    assert_eq!(scratch.names(), Vec::<String>::new());
}

// ---- damage --------------------------------------------------------------------------------------

#[test]
fn recover_saves_readable_rows_and_lists_losses() {
    let scratch = Scratch::new(3000);
    let page = scratch.damage("key 001500");
    let done = run("check", &scratch.path(), &[]);
    assert_eq!(code(&done), 3);
    assert!(out(&done).contains("SQLite's integrity check: "), "{}", out(&done));
    assert!(err(&done).contains("kvstore recover"), "{}", err(&done));
    let done = run("repair", &scratch.path(), &[]);
    assert_eq!(code(&done), 3);
    assert!(err(&done).contains("kvstore recover"), "{}", err(&done));

    let before = fs::read(scratch.path()).unwrap();
    let new = scratch.file("new.db");
    let done = run("recover", &scratch.path(), &[new.to_str().unwrap()]);
    assert_eq!(code(&done), 1, "{}", err(&done));
    assert!(out(&done).contains(&format!("(page {page})")), "{}", out(&done));
    assert_eq!(fs::read(scratch.path()).unwrap(), before);
    assert_eq!(code(&run("check", &new, &[])), 0);
    let rows = Store::open(&new).unwrap().count().unwrap();
    assert!((2800..=3000).contains(&rows), "{rows}");
    assert!(err(&done).contains("in 1 family saved to"), "{}", err(&done));

    let again = scratch.file("again.db");
    let lines = json_lines(&run("recover", &scratch.path(), &[again.to_str().unwrap(), "--json"]));
    let last = lines.last().unwrap();
    assert_eq!(last["rows"], rows);
    let lost = ["rows_lost", "pages_lost", "other_losses"].map(|name| last[name].as_u64().unwrap());
    assert_eq!(lost.iter().sum::<u64>() as usize, lines.len() - 1);
    assert_eq!(code(&run("recover", &scratch.path(), &[new.to_str().unwrap()])), 2); // it exists
}

#[test]
fn unopenable_file_gives_the_advice_to_recover() {
    let scratch = Scratch::new(3000);
    let file = fs::OpenOptions::new().write(true).open(scratch.path()).unwrap();
    file.set_len(20_000).unwrap();
    for command in ["check", "repair", "info", "compact"] {
        let done = run(command, &scratch.path(), &[]);
        let said = err(&done);
        assert_eq!(code(&done), 3, "{said}");
        let advice =
            format!("save the readable rows with \"kvstore recover {} NEW\"", scratch.path().display());
        assert!(said.contains(&advice), "{said}");
        assert!(
            !said.contains("kvstore_") && !said.contains("kvstore repair") && !said.contains("kvstore check"),
            "{said}"
        );
    }
}

#[test]
fn only_creating_commands_turn_an_empty_file_into_a_store() {
    let scratch = Scratch(Place::new());
    fs::write(scratch.path(), "").unwrap();
    for command in ["check", "repair", "compact", "purge", "sync", "checkpoint", "clean", "info", "ls"] {
        let done = run(command, &scratch.path(), &[]);
        assert_eq!(code(&done), 3, "{command}");
        assert!(err(&done).contains("is empty, so it has no store"), "{}", err(&done));
    }
    for (command, more) in [("del", &["k"][..]), ("touch", &["k", "--ttl", "1s"]), ("limit", &["1MB"])] {
        assert_eq!(code(&run(command, &scratch.path(), more)), 3, "{command}");
    }
    assert_eq!(fs::read(scratch.path()).unwrap(), b"");
    assert_eq!(scratch.names(), ["store.db"]);
    assert_eq!(code(&run("put", &scratch.path(), &["k", "v"])), 0);
}

#[test]
fn sound_file_is_recovered_completely() {
    let scratch = Scratch::new(500);
    let new = scratch.file("new.db");
    let done = run("recover", &scratch.path(), &[new.to_str().unwrap()]);
    assert_eq!((code(&done), out(&done).as_str()), (0, ""));
    assert!(err(&done).contains("500 keys in 1 family saved"), "{}", err(&done));
    assert!(err(&done).contains("nothing is lost"));
}

#[test]
fn recover_refuses_a_file_that_is_not_a_store() {
    let scratch = Scratch(Place::new());
    fs::write(scratch.path(), "text").unwrap();
    let done = run("recover", &scratch.path(), &[scratch.file("new.db").to_str().unwrap()]);
    assert_eq!(code(&done), 3);
    assert_eq!(scratch.names(), ["store.db"]);
}

// ---- the small ones ------------------------------------------------------------------------------

#[test]
fn backup_has_everything() {
    let scratch = Scratch::new(200);
    let copy = scratch.file("copy.db");
    let done = run("backup", &scratch.path(), &[copy.to_str().unwrap(), "--json"]);
    assert_eq!(json_lines(&done)[0]["size_bytes"], fs::metadata(&copy).unwrap().len());
    assert_eq!(Store::open(&copy).unwrap().count().unwrap(), 200);
    let done = run("backup", &scratch.path(), &[copy.to_str().unwrap()]);
    assert_eq!(code(&done), 2);
    assert!(err(&done).contains("already exists"));
}

#[test]
#[cfg(unix)] // a signal
fn stopped_command_leaves_no_file() {
    use std::time::{Duration, Instant};

    let scratch = Scratch::new(60_000);
    let new = scratch.file("new.db");
    for command in ["backup", "recover"] {
        let child = crate::common::command(&[Path::new(command), &scratch.path(), &new])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // After it has started to write.
        let until = Instant::now() + Duration::from_secs(30);
        while scratch.names().iter().all(|name| !name.contains(".partial")) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        let pid = child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        let done = child.wait_with_output().unwrap();
        // It may have completed just before the signal.
        if new.exists() {
            fs::remove_file(&new).unwrap();
        } else {
            assert_eq!(code(&done), 3);
            assert!(err(&done).contains("stopped"), "{}", err(&done));
        }
        assert!(scratch.names().iter().all(|name| name.starts_with("store.db")), "{:?}", scratch.names());
    }
}

#[test]
fn compact_shrinks_the_file() {
    let scratch = Scratch::new(20_000);
    let store = Store::open(scratch.path()).unwrap();
    store.clear().unwrap();
    store.put("left", "1").unwrap();
    store.close().unwrap();
    let before = fs::metadata(scratch.path()).unwrap().len();
    let done = run("compact", &scratch.path(), &[]);
    let after = fs::metadata(scratch.path()).unwrap().len();
    assert_eq!((code(&done), out(&done)), (0, format!("{before}\t{after}\n")), "{}", err(&done));
    assert!(after < before / 10, "{before} {after}");
    let lines = json_lines(&run("compact", &scratch.path(), &["--json"]));
    assert_eq!(lines, [serde_json::json!({"before_bytes": after, "after_bytes": after, "free_bytes": 0})]);
    assert_eq!(Store::open(scratch.path()).unwrap().get("left").unwrap().unwrap(), b"1");
}

#[test]
fn checkpoint_copies_the_log() {
    let scratch = Scratch::new(1);
    // A snapshot in another process would block the checkpoint.
    let store = Store::open_with(scratch.path(), &Config::new().hold_reads(false)).unwrap();
    store.put("a", vec![1; 100_000]).unwrap();
    assert!(fs::metadata(scratch.file("store.db-wal")).unwrap().len() > 0);
    assert_eq!(code(&run("sync", &scratch.path(), &[])), 0);
    let done = run("checkpoint", &scratch.path(), &["--mode", "passive", "--json"]);
    let line = &json_lines(&done)[0];
    assert!(line["log_pages"].as_u64().unwrap() > 0);
    assert_eq!(line["log_pages"], line["written_pages"]);
    let done = run("checkpoint", &scratch.path(), &[]);
    assert_eq!(code(&done), 0, "{}", err(&done));
    assert_eq!(fs::metadata(scratch.file("store.db-wal")).unwrap().len(), 0);
}

#[test]
fn busy_store_can_be_checked_and_copied_but_not_repaired() {
    let scratch = Scratch::new(100);
    let store = Store::open(scratch.path()).unwrap();
    store.begin_write().unwrap();
    store.put("uncommitted", "1").unwrap();
    let copy = scratch.file("copy.db");
    assert_eq!(code(&run("check", &scratch.path(), &["--timeout", "1ms"])), 0);
    assert_eq!(code(&run("backup", &scratch.path(), &[copy.to_str().unwrap(), "--timeout", "1ms"])), 0);
    let done = run("repair", &scratch.path(), &["--timeout", "1ms"]);
    assert_eq!(code(&done), 3);
    assert!(err(&done).contains("another"), "{}", err(&done));
    store.rollback().unwrap();
    assert_eq!(Store::open(&copy).unwrap().count().unwrap(), 100);
}

#[test]
#[cfg(unix)] // a terminal
fn compact_on_terminal_shows_freed_size_and_asks() {
    // Python provides the terminal.
    const PROGRAM: &str = "
import os, pty, sys
pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], ['kvstore', 'compact', sys.argv[2]])
shown = b''
while b'[y/N]' not in shown:
    shown += os.read(terminal, 1000)
os.write(terminal, sys.argv[3].encode() + b'\\n')
try:
    while True:
        more = os.read(terminal, 1000)
        if not more:
            break
        shown += more
except OSError:
    pass
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown.decode())
";
    let scratch = Scratch::new(5000);
    let store = Store::open(scratch.path()).unwrap();
    store.clear().unwrap();
    store.close().unwrap();
    let before = fs::metadata(scratch.path()).unwrap().len();
    let answer = |answer: &str| {
        let args =
            [env!("CARGO_BIN_EXE_kvstore"), scratch.path().to_str().unwrap(), answer].map(str::to_owned);
        out(&Command::new("python3").arg("-c").arg(PROGRAM).args(args).output().unwrap())
    };
    let shown = answer("n");
    assert!(
        shown.starts_with("1 ") && shown.contains("are free. This returns them to the file system"),
        "{shown}"
    );
    assert_eq!(fs::metadata(scratch.path()).unwrap().len(), before);
    let shown = answer("y");
    assert!(shown.starts_with("0 ") && shown.contains("freed)"), "{shown}");
    assert!(fs::metadata(scratch.path()).unwrap().len() < before / 2);
}

#[test]
fn limit_keeps_the_part_that_is_not_given() {
    let scratch = Scratch::new(10);
    let limit = |words: &[&str]| out(&run("limit", &scratch.path(), words));
    let refused = run("limit", &scratch.path(), &["--evict", "oldest"]);
    assert_eq!(code(&refused), 3);
    assert!(err(&refused).contains("has no limit: also give a size"), "{}", err(&refused));
    assert_eq!(limit(&["2MB"]), "2000000\tnone\n");
    assert_eq!(limit(&["--evict", "soonest"]), "2000000\tsoonest\n");
    assert_eq!(limit(&["3MB"]), "3000000\tsoonest\n");
    assert_eq!(limit(&["4MB", "--evict", "none"]), "4000000\tnone\n");
    assert_eq!(limit(&[]), "4000000\tnone\n");
}

#[test]
fn too_low_limit_names_the_word_that_removes_it() {
    let scratch = Scratch::new(10);
    for size in ["0", "1kB"] {
        let done = run("limit", &scratch.path(), &[size]);
        assert_eq!(code(&done), 2);
        assert!(err(&done).contains("\"none\" removes the limit"), "{}", err(&done));
        assert!(!err(&done).contains("0 is no limit"), "{}", err(&done));
    }
}

/// Runs the command while the reader of its output has closed the pipe; returns the exit status.
#[cfg(unix)]
fn read_by_nobody(args: &[&str]) -> i32 {
    let mut child = command(args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    drop(child.stdout.take());
    child.wait().unwrap().code().unwrap()
}

#[test]
#[cfg(unix)] // Python's sqlite3
fn closed_output_pipe_keeps_the_exit_status() {
    let scratch = Scratch::new(4_000);
    let path = scratch.path();
    let path = path.to_str().unwrap();
    assert_eq!(read_by_nobody(&["check", path]), 0);
    scratch.sql("delete from \"blob:default\"; delete from \"ttl_key:default\"");
    for options in [&[][..], &["--json"], &["--max", "0"]] {
        assert_eq!(read_by_nobody(&[&["check", path], options].concat()), 3, "{options:?}");
    }
    let new = scratch.file("new.db");
    let recovered = read_by_nobody(&["recover", path, new.to_str().unwrap()]);
    assert_eq!(recovered, 1);
    assert_eq!(Store::open(&new).unwrap().count().unwrap(), 4_000 - 80);
    let csv = scratch.file("skipped.csv");
    fs::write(&csv, "key,value\na,1\n,2\n").unwrap();
    assert_eq!(read_by_nobody(&["import", "--overwrite", new.to_str().unwrap(), csv.to_str().unwrap()]), 1);
    let mut bytes = fs::read(path).unwrap();
    bytes[100..200].fill(0xA5);
    fs::write(path, bytes).unwrap();
    assert_eq!(read_by_nobody(&["check", "--json", path]), 3);
}

// ---- a killed process ------------------------------------------------------------------------------

#[cfg(unix)]
#[test]
fn reading_commands_roll_back_transaction_of_killed_process() {
    let scratch = Scratch::new(300);
    let config = Config::new().journal_mode(kvstore::JournalMode::Delete);
    Store::open_with(scratch.path(), &config).unwrap().close().unwrap();
    let program = "import os, sqlite3, sys
con = sqlite3.connect(sys.argv[1], isolation_level=None)
con.execute('pragma cache_size = 5')
con.execute('begin immediate')
con.execute('update \"data:default\" set value = x\\'00\\' where value is not null')
os._exit(0)";
    let done = Command::new("python3").arg("-c").arg(program).arg(scratch.path()).status().unwrap();
    assert!(done.success());
    let journal = scratch.file("store.db-journal");
    let (file, log) = (fs::read(scratch.path()).unwrap(), fs::read(&journal).unwrap());
    let (backup, copy) = (scratch.file("backup.db"), scratch.file("copy.db"));
    let (backup, copy) = (backup.to_str().unwrap(), copy.to_str().unwrap());
    for (command, more) in [
        ("get", &["key 000000"][..]),
        ("ls", &[]),
        ("check", &[]),
        ("info", &[]),
        ("dump", &[]),
        ("backup", &[backup]),
        ("copy", &[copy]),
    ] {
        fs::write(scratch.path(), &file).unwrap();
        fs::write(&journal, &log).unwrap();
        let done = run(command, &scratch.path(), more);
        assert_eq!(code(&done), 0, "{command}: {}", err(&done));
        assert!(!journal.exists(), "{command}");
        assert!(command != "get" || out(&done).contains("vvvv"), "{}", out(&done));
    }
    let copied = Store::open_with(copy, &Config::new().keep_journal_mode(true)).unwrap();
    assert_eq!(copied.get("key 000299").unwrap(), Some(vec![b'v'; 40]));
}
