//! Encrypted stores: with the feature `encryption`, how passwords are given and used; without it,
//! the error messages.

use std::fs;
#[cfg(unix)]
use std::os::unix::fs::PermissionsExt as _;

use crate::common::{Place, code, err, fails, kvstore, ok};

const PASSWORD: &str = "correct horse";

/// Creates a file that only its owner can read; returns its path as an argument.
fn secret_file(place: &Place, name: &str, bytes: impl AsRef<[u8]>) -> String {
    fs::write(place.path(name), bytes).unwrap();
    #[cfg(unix)]
    fs::set_permissions(place.path(name), fs::Permissions::from_mode(0o600)).unwrap();
    place.word(name)
}

#[cfg(not(feature = "encryption"))]
mod without {
    use super::*;

    const HOW: &str = "this build of kvstore does not support encryption: build it from its sources with \"make install \
                       ENCRYPTION=1\" or \"cargo install --path command --features encryption\"";

    /// Pseudo-random bytes, like an encrypted store.
    fn encrypted(place: &Place) -> String {
        let mut state = 1u64;
        let bytes = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state.to_be_bytes()[0]
        });
        secret_file(place, "encrypted.db", bytes.take(8192).collect::<Vec<u8>>())
    }

    #[test]
    fn encrypted_store_is_refused_and_the_needed_build_named() {
        let place = Place::new();
        let path = encrypted(&place);
        let before = fs::read(&path).unwrap();
        for args in [&["get", &path, "k"][..], &["put", &path, "k", "v"], &["info", &path], &["check", &path]]
        {
            fails(args, 3, HOW);
        }
        fails(&["recover", &path, &place.word("new.db")], 3, "cannot read encrypted files");
        assert!(fs::read(&path).unwrap() == before);
        assert_eq!(place.files(), ["encrypted.db"]);
    }

    #[test]
    fn password_options_name_the_needed_build() {
        let place = Place::new();
        let path = place.word("app.db");
        ok(&["put", &path, "k", "v"]);
        let file = secret_file(&place, "password", PASSWORD);
        for args in [
            &["encrypt", &path][..],
            &["decrypt", &path, "--yes"],
            &["rekey", &path, "--new-password-file", &file],
            &["get", &path, "k", "--password"],
            &["get", &path, "k", "--password-file", &file],
            &["put", &place.word("new.db"), "k", "v", "--password-env", "HOME"],
            &["copy", &path, &place.word("new.db"), "--to-password-file", &file],
        ] {
            fails(args, 3, HOW);
        }
        // For plain stores the variable changes nothing; but a store that should be encrypted is
        // not created in plain text.
        let run = |args: &[&str]| {
            crate::common::command(args)
                .env("KVSTORE_PASSWORD_FILE", &file)
                .output()
                .map(|run| (code(&run), err(&run)))
                .unwrap()
        };
        assert_eq!(run(&["get", &path, "k"]), (0, String::new()));
        let (exit_code, said) = run(&["put", &place.word("new.db"), "k", "v"]);
        assert!(exit_code == 3 && said.contains(HOW), "{said}");
        assert_eq!(place.files(), ["app.db", "password"]);
        let help = kvstore(&["copy", "--help"]);
        assert!(!crate::common::out(&help).contains("password-file"), "{}", crate::common::out(&help));
    }
}

#[cfg(feature = "encryption")]
mod with {
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    use crate::common::{Terminal, command, json, kvstore_fed, out};
    use kvstore::{Config, JournalMode, Store};

    use super::*;

    /// A password file, and a store that is encrypted with a raw key: deriving keys from passwords
    /// would slow down the tests.
    struct Example {
        place: Place,
        path: String,
        file: String,
    }

    fn example() -> Example {
        let place = Place::new();
        let (path, file) = (place.word("app.db"), secret_file(&place, "password", format!("{PASSWORD}\n")));
        Store::open_with(&path, &Config::new().password(PASSWORD)).unwrap().put("k", "sentinel").unwrap();
        Example { place, path, file }
    }

    fn is_encrypted(place: &Place, name: &str) -> bool {
        !fs::read(place.path(name)).unwrap().starts_with(b"SQLite format 3")
    }

    /// The command in a session of its own, without the terminal of the test run; optionally with a
    /// new one.
    fn apart(args: &[&str], with_terminal: bool) -> Command {
        let inner = command(args);
        let mut command = Command::new("setsid");
        command.args(with_terminal.then_some("--ctty")).arg(inner.get_program()).args(inner.get_args());
        for (name, value) in inner.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
    }

    /// Starts it on a terminal.
    fn terminal(args: &[&str]) -> Terminal {
        Terminal::start_command(apart(args, true))
    }

    /// Waits for a question, and types the answer after echo is turned off.
    #[track_caller]
    fn answer(terminal: &mut Terminal, question: &str, answer: &str) {
        terminal.wait_for(question);
        let deadline = Instant::now() + Duration::from_secs(60);
        while terminal.echoes() {
            assert!(Instant::now() < deadline, "what is typed is shown");
            std::thread::sleep(Duration::from_millis(1));
        }
        terminal.type_in(answer);
    }

    #[test]
    fn password_comes_from_file_stdin_or_environment() {
        let Example { place, path, file } = example();
        let get = |options: &[&str]| command(&[&["get", &path, "k"], options].concat());
        let bare = secret_file(&place, "bare", PASSWORD);
        for mut run in [get(&["--password-file", &file]), get(&["--password-file", &bare])] {
            assert_eq!(out(&run.output().unwrap()), "sentinel");
        }
        assert_eq!(
            out(&get(&["--password-env", "SECRET"]).env("SECRET", PASSWORD).output().unwrap()),
            "sentinel"
        );
        assert_eq!(out(&get(&[]).env("KVSTORE_PASSWORD_FILE", &file).output().unwrap()), "sentinel");
        let fed =
            kvstore_fed(&["--password-file", "-", "get", &path, "k"], format!("{PASSWORD}\n").as_bytes());
        assert_eq!((out(&fed), err(&fed)), ("sentinel".to_owned(), String::new()));
        // One final newline is removed, a second one is part of the password.
        let two = secret_file(&place, "two", format!("{PASSWORD}\n\n"));
        fails(&["get", &path, "k", "--password-file", &two], 3, "is wrong for this file");
    }

    #[test]
    fn key_file_has_32_bytes_or_64_hex_digits() {
        let place = Place::new();
        let path = place.word("app.db");
        Store::open_with(&path, &Config::new().raw_key(&[0xa5; 32])).unwrap().put("k", "v").unwrap();
        let bytes = secret_file(&place, "bytes", [0xa5; 32]);
        let digits = secret_file(&place, "digits", format!("{}\n", "A5".repeat(32)));
        for file in [&bytes, &digits] {
            assert_eq!(ok(&["get", &path, "k", "--raw-key-file", file]), "v");
        }
        fails(
            &["get", &path, "k", "--raw-key-file", &secret_file(&place, "short", "a5")],
            3,
            "has no valid key",
        );
        fails(
            &["get", &path, "k", "--raw-key-file", &secret_file(&place, "other", [1; 32])],
            3,
            "is wrong for this file",
        );
    }

    #[test]
    fn password_errors_do_not_print_the_password() {
        let Example { place, path, file } = example();
        let before = fs::read(&path).unwrap();
        let empty = secret_file(&place, "empty", "\n");
        let wrong = secret_file(&place, "wrong", "horse battery");
        ok(&["put", &place.word("plain.db"), "k", "v"]);
        for (args, exit_code, text) in [
            (&["get", &path, "k"][..], 3, "give its password with --password "),
            (&["put", &path, "k", "v"], 3, "give its password with --password "),
            (&["check", &path], 3, "give its password with --password "),
            (
                &["get", &path, "k", "--password-file", &wrong],
                3,
                "the password or key is wrong for this file",
            ),
            (&["get", &path, "k", "--password-file", &empty], 3, "empty is empty: write the password to it"),
            (&["get", &path, "k", "--password-file", &place.word("none")], 3, "No such file"),
            (
                &["get", &path, "k", "--password-env", "NOT_SET"],
                2,
                "NOT_SET is not set: set it to the password",
            ),
            (
                &["get", &place.word("plain.db"), "k", "--password-file", &file],
                3,
                "is not encrypted\n  leave out the password options",
            ),
            (
                &["put", &path, "k", "-", "--password-file", "-"],
                2,
                "standard input is used for the value: give the password with",
            ),
            (
                &["load", &path, "--password-file", "-"],
                2,
                "standard input is used for the dump: give the password with",
            ),
            (
                &["shell", &path, "--password-file", "-"],
                2,
                "standard input is used for the lines of the shell",
            ),
            (&["get", &path, "k", "--password-env", "A", "--password-file", &file], 2, "cannot be used with"),
            (&["get", &path, "k", "--password=battery"], 2, "other users can see the arguments of a process"),
            (
                &["copy", &path, "x.db", "--to-password=battery"],
                2,
                "other users can see the arguments of a process",
            ),
            (&["recover", &path, &place.word("new.db")], 3, "cannot read encrypted files"),
            (
                &["recover", &path, &place.word("new.db"), "--password-file", &file],
                3,
                "cannot read encrypted files",
            ),
        ] {
            fails(args, exit_code, text);
            let said = err(&kvstore(args));
            assert!(!said.contains("battery") && !said.contains(PASSWORD), "{said}");
        }
        let unset =
            command(&["get", &path, "k", "--password-env", "EMPTY"]).env("EMPTY", "").output().unwrap();
        assert!(code(&unset) == 2 && err(&unset).contains("EMPTY is empty"), "{}", err(&unset));
        assert!(fs::read(&path).unwrap() == before);
        assert!(!place.path("new.db").exists());
    }

    #[test]
    fn readable_password_file_is_reported_once() {
        let Example { place: _place, path, file } = example();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        let run = kvstore_fed(&["shell", &path, "--password-file", &file], b"get k\nget k\n");
        assert_eq!((code(&run), out(&run)), (0, "sentinelsentinel".to_owned()));
        let said = err(&run);
        for text in ["warning: other users can read ", "\"chmod 600"] {
            assert_eq!(said.matches(text).count(), 1, "{said}");
        }
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(ok(&["get", &path, "k", "--password-file", &file]), "sentinel");
    }

    #[test]
    fn password_is_not_in_the_process_list() {
        let Example { place: _place, path, file } = example();
        let mut cleaner = command(&["clean", &path, "--password-file", &file, "--json"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        ok(&["put", &path, "dead", "v", "--ttl", "1ms", "--password-file", &file]);
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(cleaner.stdout.take().unwrap()), &mut line)
            .unwrap();
        let process = format!("/proc/{}", cleaner.id());
        let seen = [fs::read(format!("{process}/cmdline")), fs::read(format!("{process}/environ"))]
            .map(Result::unwrap);
        cleaner.kill().unwrap();
        cleaner.wait().unwrap();
        assert!(line.contains("\"removed\":1"), "{line}");
        for seen in seen.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()) {
            assert!(seen.len() > 3 && !seen.contains(PASSWORD), "{seen}");
        }
    }

    #[test]
    fn password_question_does_not_echo() {
        let Example { place, path, .. } = example();
        // With --password, and because the store needs it.
        for args in [&["get", &path, "k", "--password"][..], &["get", &path, "k"]] {
            let mut screen = terminal(args);
            answer(&mut screen, "Password of ", &format!("{PASSWORD}\r"));
            let (status, shown) = screen.end();
            assert!(status.success() && shown.contains("sentinel") && !shown.contains("horse"), "{shown}");
        }
        let mut screen = terminal(&["get", &path, "k"]);
        answer(&mut screen, "Password of ", "horse battery\r");
        let (status, shown) = screen.end();
        assert!(status.code() == Some(3) && shown.contains("is wrong for this file"), "{shown}");
        assert!(!shown.contains("horse"), "{shown}");
        // A plain store needs no password.
        ok(&["put", &place.word("plain.db"), "k", "in the clear"]);
        let (status, shown) = terminal(&["get", &place.word("plain.db"), "k"]).end();
        assert!(status.success() && shown == "in the clear\n", "{shown}");
        // The value comes from standard input, the password from the terminal.
        let line = format!("echo -n new | {} put {path} k - --password", env!("CARGO_BIN_EXE_kvstore"));
        let mut shell = Command::new("setsid");
        shell.args(["--ctty", "sh", "-c", &line]);
        let mut screen = Terminal::start_command(shell);
        answer(&mut screen, "Password of ", &format!("{PASSWORD}\r"));
        assert!(screen.end().0.success());
        assert_eq!(
            Store::open_with(&path, &Config::new().password(PASSWORD)).unwrap().get("k").unwrap().unwrap(),
            b"new"
        );
    }

    #[test]
    fn password_of_a_new_store_is_typed_twice() {
        let place = Place::new();
        let new = place.word("new.db");
        let mut screen = terminal(&["put", &new, "k", "v", "--password"]);
        answer(&mut screen, "New password of ", "one\r");
        answer(&mut screen, "Repeat the password: ", "another\r");
        let (status, shown) = screen.end();
        assert!(status.code() == Some(3) && shown.contains("the two passwords differ"), "{shown}");
        assert_eq!(place.files(), Vec::<String>::new());
        let mut screen = terminal(&["put", &new, "k", "v", "--password"]);
        answer(&mut screen, "New password of ", &format!("{PASSWORD}\r"));
        answer(&mut screen, "Repeat the password: ", &format!("{PASSWORD}\r"));
        assert!(screen.end().0.success());
        assert!(is_encrypted(&place, "new.db"));
        let file = secret_file(&place, "password", PASSWORD);
        assert_eq!(ok(&["get", &new, "k", "--password-file", &file]), "v");
    }

    #[test]
    fn stopped_password_question_restores_echo() {
        let Example { place: _place, path, .. } = example();
        for (typed, text) in [
            ("\u{3}", "stopped; nothing changed"),
            ("half\u{3}", "stopped; nothing changed"),
            ("\u{4}", "no password was given"),
            ("\r", "the password is empty"),
        ] {
            let mut screen = terminal(&["get", &path, "k"]);
            answer(&mut screen, "Password of ", typed);
            screen.wait_for(text);
            assert!(screen.echoes(), "{typed:?}");
            assert_eq!(screen.end().0.code(), Some(3));
        }
    }

    #[test]
    fn missing_password_without_a_terminal_is_an_error() {
        let Example { place: _place, path, .. } = example();
        let run = |args: &[&str]| apart(args, false).stdin(Stdio::null()).output().unwrap();
        let asked = run(&["get", &path, "k", "--password"]);
        assert_eq!(code(&asked), 2);
        assert!(err(&asked).contains("there is no terminal to ask for the password"), "{}", err(&asked));
        let rekeyed = run(&["rekey", &path, "--password-env", "PASSWORD"]);
        assert_eq!(code(&rekeyed), 2, "{}", err(&rekeyed));
        assert_eq!(code(&run(&["get", &path, "k"])), 3);
    }

    #[test]
    fn every_command_works_on_an_encrypted_store() {
        let Example { place, path, file } = example();
        let store = Store::open_with(&path, &Config::new().password(PASSWORD)).unwrap();
        for n in 0..300 {
            store.put(format!("n{n}"), "v".repeat(200)).unwrap();
        }
        store.close().unwrap();
        let given = ["--password-file", file.as_str()];
        let run = |args: &[&str]| ok(&[args, &given].concat());
        let info = json(&[&["info", &path][..], &given].concat());
        assert_eq!((&info[0]["encrypted"], &info[0]["page_size_bytes"]), (&true.into(), &4096.into()));
        assert!(run(&["info", &path]).contains("\nencrypted\tyes\n"));
        run(&["families", &path, "create", "f", "--ttl", "1h"]);
        run(&["put", &path, "dead", "v", "--ttl", "1ms", "-f", "f"]);
        fs::write(place.path("t.csv"), "key,value\na,1\n").unwrap();
        run(&["import", &path, &place.word("t.csv"), "--skip-existing"]);
        std::thread::sleep(Duration::from_millis(2));
        assert!(run(&["purge", &path]).contains('1'));
        for args in [
            &["check", &path][..],
            &["repair", &path],
            &["del", &path, "--prefix", "n"],
            &["checkpoint", &path],
            &["ls", &path],
        ] {
            run(args);
        }
        let sizes = run(&["compact", &path]);
        let sizes: Vec<u64> = sizes.split_whitespace().map(|size| size.parse().unwrap()).collect();
        assert!(sizes[1] < sizes[0] && sizes[1].is_multiple_of(4096), "{sizes:?}");
        // Into an encrypted store, with each option.
        run(&["dump", &path, "-o", &place.word("d.jsonl")]);
        run(&["load", &place.word("loaded.db"), &place.word("d.jsonl")]);
        run(&["backup", &path, &place.word("backup.db")]);
        for name in ["loaded.db", "backup.db"] {
            assert!(is_encrypted(&place, name), "{name}");
            assert_eq!(run(&["get", &place.word(name), "k"]), "sentinel");
        }
        let piped = kvstore_fed(&[&["shell", &path][..], &given].concat(), b"get k\nput k2 v\nget k2\n");
        assert_eq!((code(&piped), out(&piped)), (0, "sentinelv".to_owned()));
        // `watch` opens the store twice, and asks once.
        let mut screen = terminal(&["watch", &path]);
        answer(&mut screen, "Password of ", &format!("{PASSWORD}\r"));
        screen.wait_for("commits");
        screen.type_in("q");
        let (status, shown) = screen.end();
        assert!(status.success() && shown.matches("Password of ").count() == 1, "{shown}");
        let (status, shown) = terminal(&[&["info", &path][..], &given].concat()).end();
        assert!(status.success() && shown.contains("journal mode wal, encrypted"), "{shown}");
    }

    #[test]
    fn shell_asks_once_for_all_its_lines() {
        let Example { place, path, .. } = example();
        let mut command = apart(&["shell", &path], true);
        command.env("XDG_STATE_HOME", place.path("state"));
        let mut screen = Terminal::start_command(command);
        answer(&mut screen, "Password of ", &format!("{PASSWORD}\r"));
        screen.wait_for("app.db> ");
        screen.type_in("put k2 second\r");
        screen.type_in("get k2\r");
        screen.wait_for("second\r\n");
        // Keys are completed without a question.
        screen.type_in("get k\t\t");
        screen.wait_for("k   k2");
        screen.type_in("\u{15}quit\r");
        let (status, shown) = screen.end();
        assert!(status.success() && shown.matches("Password of ").count() == 1, "{shown}");
    }

    #[test]
    fn default_password_file_applies_to_encrypted_and_new_stores() {
        let Example { place, path, file } = example();
        let plain = place.word("plain.db");
        ok(&["put", &plain, "k", "in the clear"]);
        let run = |args: &[&str]| {
            let run = command(args).env("KVSTORE_PASSWORD_FILE", &file).output().unwrap();
            assert_eq!((code(&run), err(&run)), (0, String::new()), "{args:?}");
            out(&run)
        };
        assert_eq!(run(&["get", &plain, "k"]), "in the clear");
        assert_eq!(run(&["get", &path, "k"]), "sentinel");
        run(&["put", &place.word("new.db"), "k", "v"]);
        run(&["copy", &plain, &place.word("copy.db")]);
        assert!(
            is_encrypted(&place, "new.db")
                && is_encrypted(&place, "copy.db")
                && !is_encrypted(&place, "plain.db")
        );
    }

    #[test]
    fn copy_uses_the_first_password_unless_another_is_given() {
        let Example { place, path, file } = example();
        let key = secret_file(&place, "key", [7; 32]);
        let copy = |from: &str, to: &str, options: &[&str]| {
            ok(&[&["copy", &place.word(from), &place.word(to)], options].concat());
        };
        let of = ["--password-file", file.as_str()];
        copy("app.db", "same.db", &of);
        assert_eq!(ok(&["get", &place.word("same.db"), "k", of[0], of[1]]), "sentinel");
        copy("app.db", "key.db", &[of[0], of[1], "--to-raw-key-file", &key]);
        assert_eq!(ok(&["get", &place.word("key.db"), "k", "--raw-key-file", &key]), "sentinel");
        copy("app.db", "plain.db", &[of[0], of[1], "--to-plain"]);
        assert_eq!(ok(&["get", &place.word("plain.db"), "k"]), "sentinel");
        copy("plain.db", "again.db", &["--to-password-file", &file]);
        assert!(is_encrypted(&place, "again.db"));
        // Into an existing store.
        Store::open_with(place.path("there.db"), &Config::new().raw_key(&[7; 32])).unwrap();
        fails(
            &["copy", &path, &place.word("there.db"), of[0], of[1]],
            3,
            "there.db: the password or key is wrong",
        );
        fails(
            &["copy", &place.word("plain.db"), &place.word("there.db")],
            3,
            "--to-password-file or --to-password-env",
        );
        copy("app.db", "there.db", &[of[0], of[1], "--to-raw-key-file", &key]);
        fails(
            &["copy", &path, "x.db", "--password-file", "-", "--to-password-file", "-"],
            2,
            "is used for the password of TO",
        );
        // On a terminal, the command asks before it writes plain text.
        Store::open(place.path("open.db")).unwrap();
        let mut screen = terminal(&["copy", &path, &place.word("open.db"), of[0], of[1]]);
        screen.wait_for("there in plain text. Continue? [y/N]");
        screen.type_in("n\n");
        assert_eq!(screen.end().0.code(), Some(1));
        assert_eq!(Store::open(place.path("open.db")).unwrap().count().unwrap(), 0);
    }

    #[test]
    #[cfg(unix)] // a script of sh
    fn python_import_is_encrypted() {
        let place = Place::new();
        let file = secret_file(&place, "password", PASSWORD);
        let lines = "{\"source\":\"shelve\"}\n\
             {\"entry\":{\"key\":\"YQ==\",\"value\":\"MQ==\",\"family\":null,\"expire_ms\":null}}\n{\"end\":null}";
        fs::write(place.path("script"), format!("#!/bin/sh\n[ \"$1\" = -c ] || cat <<'END'\n{lines}\nEND\n"))
            .unwrap();
        crate::common::copy_to_run(place.path("script"), place.path("python"));
        let path = place.word("new.db");
        let args = ["import", &path, &place.word("shelf"), "--from", "shelve", "--password-file", &file];
        let done =
            crate::common::command(&args).env("KVSTORE_PYTHON", place.word("python")).output().unwrap();
        assert!(done.status.success(), "{done:?}");
        assert!(!fs::read(&path).unwrap().starts_with(b"SQLite format 3"));
        assert_eq!(ok(&["get", &path, "a", "--password-file", &file]), "1");
    }

    #[test]
    fn encrypted_store_keeps_its_journal_mode() {
        let place = Place::new();
        let path = place.word("app.db");
        let config = Config::new().raw_key(&[7; 32]).journal_mode(JournalMode::Delete);
        Store::open_with(&path, &config).unwrap().put("k", "v").unwrap();
        let key = secret_file(&place, "key", [7; 32]);
        ok(&["put", &path, "k", "w", "--raw-key-file", &key]);
        assert_eq!(json(&["info", &path, "--raw-key-file", &key])[0]["journal_mode"], "delete");
    }

    #[test]
    fn rekey_keeps_the_journal_mode() {
        let place = Place::new();
        let [old, new] = ["old", "new"].map(|name| secret_file(&place, name, name));
        for (mode, name) in [(JournalMode::Wal, "wal"), (JournalMode::Delete, "delete")] {
            let path = place.word(name);
            let store = Store::open_with(&path, &Config::new().journal_mode(mode)).unwrap();
            store.put("k", "v").unwrap();
            store.close().unwrap();
            let has = |words: &[&str]| {
                assert_eq!(json(&[&["info", &path], words].concat())[0]["journal_mode"], name);
            };
            ok(&["encrypt", &path, "--new-password-file", &old]);
            has(&["--password-file", &old]);
            ok(&["rekey", &path, "--password-file", &old, "--new-password-file", &new]);
            has(&["--password-file", &new]);
            ok(&["decrypt", &path, "--password-file", &new, "--yes"]);
            has(&[]);
        }
        assert_eq!(place.files(), ["delete", "new", "old", "wal"]);
    }

    #[test]
    fn damaged_encrypted_store_is_not_sent_to_recover() {
        let place = Place::new();
        let path = place.word("app.db");
        let store = Store::open_with(&path, &Config::new().raw_key(&[7; 32])).unwrap();
        for n in 0..200 {
            store.put(format!("k{n}"), "v".repeat(200)).unwrap();
        }
        store.close().unwrap();
        let key = secret_file(&place, "key", [7; 32]);
        let mut bytes = fs::read(&path).unwrap();
        let page = bytes.len() / 4096 - 2;
        bytes[page * 4096 + 100] ^= 1;
        fs::write(&path, bytes).unwrap();
        let run = kvstore(&["check", &path, "--raw-key-file", &key, "--json"]);
        assert_eq!(code(&run), 3, "{run:?}");
        let last: serde_json::Value = serde_json::from_str(out(&run).lines().last().unwrap()).unwrap();
        assert_eq!(last["remedy"], "backup", "{last}");
        assert!(err(&run).contains("cannot read encrypted files: restore a backup"), "{}", err(&run));
    }

    #[test]
    fn encrypt_rekey_and_decrypt_work_in_place() {
        let place = Place::new();
        let path = place.word("app.db");
        ok(&["put", &path, "k", "sentinel"]);
        let (one, two) = (secret_file(&place, "one", "one\n"), secret_file(&place, "two", "two\n"));
        let key = secret_file(&place, "key", [7; 32]);
        let get = |option: &str, file: &str| ok(&["get", &path, "k", option, file]);
        fails(&["decrypt", &path, "--yes"], 3, "is not encrypted: use \"kvstore encrypt\" to encrypt it");
        fails(&["rekey", &path, "--new-password-file", &one], 3, "is not encrypted: use \"kvstore encrypt\"");
        ok(&["encrypt", &path, "--new-password-file", &one]);
        assert!(is_encrypted(&place, "app.db"));
        assert!(!fs::read(&path).unwrap().windows(8).any(|bytes| bytes == b"sentinel"));
        assert_eq!(get("--password-file", &one), "sentinel");
        let again = ["encrypt", &path, "--new-password-file", &two];
        fails(&again, 3, "give its password with --password ");
        let default = command(&again).env("KVSTORE_PASSWORD_FILE", &one).output().unwrap();
        assert!(
            code(&default) == 3 && err(&default).contains("is encrypted already: use \"kvstore rekey\""),
            "{}",
            err(&default)
        );
        let given = ["--password-file", &one, "--new-password-file", &two];
        fails(&[&["encrypt", &path], &given[..]].concat(), 3, "is encrypted already: use \"kvstore rekey\"");
        ok(&["put", &place.word("plain.db"), "k", "v"]);
        let said = "leave out --password, --password-file,";
        fails(&[&["encrypt", &place.word("plain.db")], &given[..]].concat(), 2, said);
        fails(
            &["rekey", &path, "--password-file", &two, "--new-password-file", &two],
            3,
            "is wrong for this file",
        );
        ok(&["rekey", &path, "--password-file", &one, "--new-password-file", &two]);
        fails(&["get", &path, "k", "--password-file", &one], 3, "is wrong for this file");
        ok(&["rekey", &path, "--password-file", &two, "--new-raw-key-file", &key]);
        assert_eq!(get("--raw-key-file", &key), "sentinel");
        let run = command(&["rekey", &path, "--raw-key-file", &key, "--new-password-env", "NEW"])
            .env("NEW", "one")
            .output()
            .unwrap();
        assert_eq!((code(&run), err(&run)), (0, String::new()));
        let fed = ["rekey", &path, "--password-file", "-", "--new-password-file", "-"];
        assert_eq!(code(&kvstore_fed(&fed, b"one")), 2);
        let fed = ["rekey", &path, "--password-file", &one, "--new-password-file", "-"];
        assert_eq!(code(&kvstore_fed(&fed, b"two\n")), 0);
        ok(&["decrypt", &path, "--password-file", &two, "--yes"]);
        assert!(!is_encrypted(&place, "app.db"));
        assert_eq!(ok(&["get", &path, "k"]), "sentinel");
    }

    #[test]
    fn new_password_is_typed_twice_and_decrypt_asks() {
        let place = Place::new();
        let path = place.word("app.db");
        ok(&["put", &path, "k", "v"]);
        let mut screen = terminal(&["encrypt", &path]);
        answer(&mut screen, "New password of ", &format!("{PASSWORD}\r"));
        answer(&mut screen, "Repeat the password: ", "another\r");
        let (status, shown) = screen.end();
        assert!(status.code() == Some(3) && shown.contains("the two passwords differ"), "{shown}");
        assert!(!is_encrypted(&place, "app.db"));
        let mut screen = terminal(&["encrypt", &path]);
        answer(&mut screen, "New password of ", &format!("{PASSWORD}\r"));
        answer(&mut screen, "Repeat the password: ", &format!("{PASSWORD}\r"));
        let (status, shown) = screen.end();
        assert!(
            status.success() && shown.contains("is now encrypted") && !shown.contains("horse"),
            "{shown}"
        );
        assert!(is_encrypted(&place, "app.db"));
        let mut screen = terminal(&["rekey", &path]);
        answer(&mut screen, "Password of ", &format!("{PASSWORD}\r"));
        answer(&mut screen, "New password of ", "new\r");
        answer(&mut screen, "Repeat the password: ", "new\r");
        assert!(screen.end().0.success());
        for (typed, exit_code) in [("n\n", 1), ("y\n", 0)] {
            let mut screen = terminal(&["decrypt", &path]);
            answer(&mut screen, "Password of ", "new\r");
            screen.wait_for("all users who can read the file can then read its contents. Continue? [y/N]");
            screen.type_in(typed);
            assert_eq!(screen.end().0.code(), Some(exit_code));
            assert_eq!(is_encrypted(&place, "app.db"), exit_code == 1);
        }
    }

    #[test]
    fn open_store_is_not_rewritten() {
        let place = Place::new();
        let path = place.word("app.db");
        let store = Store::open(&path).unwrap();
        store.put("k", "v").unwrap();
        let one = secret_file(&place, "one", "one");
        fails(&["encrypt", &path, "--new-password-file", &one, "--timeout", "10ms"], 3, "try again");
        assert!(!is_encrypted(&place, "app.db"));
        store.close().unwrap();
        ok(&["encrypt", &path, "--new-password-file", &one]);
        let store = Store::open_with(&path, &Config::new().password("one")).unwrap();
        for args in [&["rekey", &path, "--new-password-file", &one][..], &["decrypt", &path, "--yes"]] {
            fails(&[args, &["--password-file", &one, "--timeout", "10ms"]].concat(), 3, "try again");
        }
        assert_eq!(store.get("k").unwrap().unwrap(), b"v");
    }
}
