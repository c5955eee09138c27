//! `watch` and `shell`.

use crate::common::{Place, code, err, fails, kvstore_fed, out};
#[cfg(unix)]
use crate::common::{Terminal, command, ok};
use kvstore::{Expiry, Store};

fn example(place: &Place) -> String {
    let path = place.word("app.db");
    let store = Store::open(&path).unwrap();
    let sessions = store.create_family("sessions").unwrap();
    store.put("user:1", "Ada").unwrap();
    store.put("user:2", "Bob").unwrap();
    store.put("a b", "space").unwrap();
    sessions.put_with_expiry("token", "1", Expiry::At(kvstore::now_ms() + 3_000_000)).unwrap();
    path
}

// ---- watch ---------------------------------------------------------------------------------------

#[cfg(unix)]
const ENTER: &str = "\x1b[?1049h";
#[cfg(unix)]
const LEAVE: &str = "\x1b[?1049l";

#[test]
#[cfg(unix)] // a terminal
fn watch_shows_the_store_and_restores_the_screen() {
    let place = Place::new();
    let path = example(&place);
    for end in ["q", "\x1b", "\x03"] {
        let mut terminal = Terminal::start(&["watch", &path, "--interval", "100ms"]);
        terminal.wait_for(ENTER);
        for text in ["next", "token", "sessions", "WAL", "commits"] {
            terminal.wait_for(text);
        }
        terminal.type_in(end);
        terminal.wait_for(LEAVE);
        assert_eq!(terminal.end().0.code(), Some(0));
    }
}

#[test]
#[cfg(unix)] // a terminal
fn watch_ends_at_a_signal_and_when_its_file_is_moved() {
    let place = Place::new();
    let path = example(&place);
    let mut terminal = Terminal::start(&["watch", &path, "--interval", "50ms"]);
    terminal.wait_for("token");
    terminal.interrupt();
    terminal.wait_for(LEAVE);
    assert_eq!(terminal.end().0.code(), Some(0));
    let mut terminal = Terminal::start(&["watch", &path, "--interval", "50ms"]);
    terminal.wait_for("token");
    std::fs::rename(&path, place.path("moved.db")).unwrap();
    terminal.wait_for(LEAVE);
    let (status, shown) = terminal.end();
    assert_eq!(status.code(), Some(3));
    assert!(shown.contains("deleted, moved or replaced"), "{shown}");
}

#[test]
fn watch_without_a_terminal_names_another_command() {
    let place = Place::new();
    let path = example(&place);
    fails(&["watch", &path], 2, "--json\" prints similar data once");
    #[cfg(unix)] // a terminal
    {
        let mut terminal = Terminal::start(&["watch", &path, "--json"]);
        terminal.wait_for("watch needs a terminal");
        assert_eq!(terminal.end().0.code(), Some(2));
        let missing = place.word("missing.db");
        let (code, shown) = crate::common::on_terminal(&["watch", &missing]);
        assert!(code == 3 && shown.contains("there is no file") && !shown.contains("1049"), "{shown}");
    }
}

// ---- shell: piped --------------------------------------------------------------------------------

#[test]
fn lines_are_run_without_a_prompt() {
    let place = Place::new();
    let path = example(&place);
    let run = kvstore_fed(
        &["shell", &path],
        b"# a comment\n\nget user:1\nget 'a b'\nuse sessions\nnext --json\nexists token\nuse\nquit\nget user:2\n",
    );
    assert_eq!((code(&run), err(&run)), (0, String::new()));
    let shown = out(&run);
    assert!(shown.starts_with("Adaspace{\"key\":\"token\",\"family\":\"sessions\""), "{shown}");
    assert!(!shown.contains("Bob"), "{shown}");
}

#[test]
fn shell_stops_at_first_failing_line() {
    let place = Place::new();
    let path = example(&place);
    for (line, exit_code, text) in [
        ("get missing", 1, ""),
        ("exists missing", 1, ""),
        ("next -f missing", 1, "there is no family"),
        ("get", 2, "<KEY>"),
        ("nonsense", 2, "nonsense"),
        ("get 'open", 2, "a quote is not closed"),
        ("shell", 2, "shell"),
        ("use missing", 1, "there is no family"),
        ("watch", 2, "watch needs a terminal"),
    ] {
        let run = kvstore_fed(&["shell", &path], format!("get user:1\n{line}\nget user:2\n").as_bytes());
        assert_eq!((code(&run), out(&run).as_str()), (exit_code, "Ada"), "{line}");
        assert!(err(&run).contains(text), "{line}: {}", err(&run));
        assert!(err(&run).contains(&format!("line 2 failed with exit status {exit_code}")), "{}", err(&run));
    }
}

#[test]
fn shell_passes_its_options_to_lines_and_creates_no_file() {
    let place = Place::new();
    let path = example(&place);
    let run = kvstore_fed(&["shell", &path, "--hex"], b"get 757365723a31\nget user:1 --json\n");
    assert_eq!(code(&run), 2); // not hex
    assert!(out(&run).starts_with("416461\n"), "{}", out(&run));
    let run = kvstore_fed(&["shell", &path, "--json"], b"exists user:1\n");
    assert_eq!(out(&run), "{\"key\":\"user:1\",\"exists\":true}\n");
    let missing = place.word("missing.db");
    let run = kvstore_fed(&["shell", &missing], b"get user:1\n");
    assert_eq!(code(&run), 3);
    assert_eq!(place.files(), ["app.db"]);
    let run = kvstore_fed(&["shell", &path], b"help get\nhelp\n");
    assert_eq!(code(&run), 0, "{}", err(&run));
    assert!(out(&run).contains("Usage: get [OPTIONS] <KEY>"), "{}", out(&run));
}

#[test]
fn shell_lines_may_end_in_system_newline() {
    let place = Place::new();
    let path = example(&place);
    let run = kvstore_fed(&["shell", &path], b"put k 1\r\nget k --json\r\n");
    if cfg!(windows) {
        assert_eq!(out(&run), "{\"key\":\"k\",\"value\":\"1\",\"ttl_ms\":null}\n");
    } else {
        assert!(code(&run) == 2 && err(&run).contains("'--json\r'"), "{}", err(&run));
    }
}

// ---- shell: on a terminal ------------------------------------------------------------------------

#[cfg(unix)]
/// The escape sequences after a line: bracketed paste off, a new line, bracketed paste on.
const NEXT_PROMPT_AFTER_HALF_A_LINE: &str = "half a line\x1b[?2004l\r\n\x1b[?2004h";

#[cfg(unix)]
fn shell(place: &Place, args: &[&str]) -> Terminal {
    let mut command = command(&[&["shell"], args].concat());
    command.env("XDG_STATE_HOME", place.path("state")).env("HOME", place.path("home"));
    Terminal::start_command(command)
}

#[test]
#[cfg(unix)] // a terminal
fn errors_do_not_end_the_shell_and_show_their_status() {
    let place = Place::new();
    let path = example(&place);
    let mut terminal = shell(&place, &[&path]);
    terminal.wait_for("app.db> ");
    terminal.type_in("get missing\r");
    terminal.wait_for("(exit status 1)");
    terminal.type_in("get\r");
    terminal.wait_for("(exit status 2)");
    terminal.type_in("use sessions\r");
    terminal.wait_for("app.db:sessions> ");
    terminal.type_in("half a line\x03");
    terminal.wait_for(NEXT_PROMPT_AFTER_HALF_A_LINE);
    terminal.type_in("\x04");
    let (status, shown) = terminal.end();
    assert_eq!(status.code(), Some(0), "{shown}");
    assert!(!shown.contains("unrecognized subcommand"), "{shown}");
}

#[test]
#[cfg(unix)] // a terminal
fn tab_completes_commands_options_families_and_keys() {
    let place = Place::new();
    let path = example(&place);
    let mut terminal = shell(&place, &[&path, "--no-history"]);
    terminal.wait_for("app.db> ");
    terminal.type_in("exi\t");
    terminal.wait_for("exists ");
    terminal.type_in("a\t"); // quoted, because of its space
    terminal.wait_for("'a b' ");
    terminal.type_in("--js\t");
    terminal.wait_for("--json ");
    terminal.type_in("\r");
    terminal.wait_for("{\"key\":\"a b\",\"exists\":true}");
    terminal.type_in("use se\t\r");
    terminal.wait_for("app.db:sessions> ");
    terminal.type_in("exists t\t--json\r");
    terminal.wait_for("{\"key\":\"token\",\"exists\":true}");
    terminal.type_in("quit\r");
    assert_eq!(terminal.end().0.code(), Some(0));
    assert!(!place.path("state").exists(), "--no-history keeps none");
}

#[test]
#[cfg(unix)] // a terminal
fn history_is_readable_by_its_owner_only() {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    let place = Place::new();
    let path = example(&place);
    let mut terminal = shell(&place, &[&path]);
    terminal.wait_for("app.db> ");
    terminal.type_in("exists user:1\r");
    terminal.wait_for("yes");
    terminal.type_in(" exists user:2\r");
    terminal.type_in("quit\r");
    assert_eq!(terminal.end().0.code(), Some(0));
    let history = place.path("state/kvstore/history");
    let kept = fs::read_to_string(&history).unwrap();
    assert!(kept.contains("exists user:1") && !kept.contains("user:2"), "{kept}");
    assert_eq!(fs::metadata(&history).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(place.path("state/kvstore")).unwrap().permissions().mode() & 0o777, 0o700);
    // The history is in the next shell, and its permissions are restored.
    fs::set_permissions(&history, fs::Permissions::from_mode(0o644)).unwrap();
    let mut terminal = shell(&place, &[&path]);
    terminal.wait_for("app.db> ");
    terminal.type_in("\x1b[A\x1b[A"); // "quit", and the one before it
    terminal.wait_for("exists user:1");
    terminal.type_in("\r");
    terminal.wait_for("yes");
    terminal.type_in("quit\r"); // input between two prompts is kept, except control characters
    assert_eq!(terminal.end().0.code(), Some(0));
    assert_eq!(fs::metadata(&history).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
#[cfg(unix)] // a terminal
fn ctrl_c_stops_a_printing_line_and_not_the_shell() {
    let place = Place::new();
    let path = place.word("app.db");
    let store = Store::open(&path).unwrap();
    store.begin_write().unwrap();
    let end = Expiry::At(kvstore::now_ms() + 3_000_000);
    for n in 0..200_000u32 {
        store.put_with_expiry(n.to_be_bytes(), "1", end).unwrap();
    }
    store.commit().unwrap();
    drop(store);
    let mut terminal = shell(&place, &[&path]);
    terminal.wait_for("app.db> ");
    terminal.type_in("expiring\r");
    terminal.wait_for("in 4");
    terminal.interrupt();
    terminal.wait_for("(stopped)");
    terminal.type_in("next --json\r");
    terminal.wait_for("\"ttl_ms\"");
    terminal.type_in("quit\r");
    let (status, shown) = terminal.end();
    assert_eq!(status.code(), Some(0));
    assert!(shown.lines().count() < 190_000);
    ok(&["next", &path]);
}
