//! Completion in bash, zsh and fish: the scripts of `kvstore completions`, run by these shells.

#![cfg(unix)]

use std::path::Path;
use std::process::{Command, Output};

use crate::common::{Place, code, command, err, kvstore, ok, out};
use kvstore::{Expiry, Store};

fn example(place: &Place) -> String {
    let path = place.word("app.db");
    let store = Store::open(&path).unwrap();
    for key in ["user:1", "user:2", "a b", "it's", "$HOME", "back\\slash"] {
        store.put(key, "").unwrap();
    }
    store.put(b"odd\xff", "").unwrap();
    store.put_with_expiry("user:expired", "", Expiry::At(1)).unwrap();
    store.create_family("web site").unwrap().put("page", "").unwrap();
    path
}

/// Runs a script of a shell with the command in its PATH; `None` if the shell is not installed.
fn run(shell: &str, args: &[&str], place: &Place) -> Option<Output> {
    let folder = Path::new(env!("CARGO_BIN_EXE_kvstore")).parent().unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new(shell);
    command.args(args).env("PATH", path).env("HOME", place.path("")).env_remove("KVSTORE");
    command.current_dir(place.path("")).output().ok()
}

/// Returns the COMPREPLY of bash for a line.
fn bash(place: &Place, line: &str) -> Vec<String> {
    let script = r#"
        eval "$(kvstore completions bash)"
        COMP_LINE=$1 COMP_POINT=${#1} COMP_WORDS=(kvstore) COMP_CWORD=0
        _kvstore kvstore
        for word in "${COMPREPLY[@]}"; do printf '%s\n' "$word"; done
    "#;
    let output = run("bash", &["--norc", "-c", script, "bash", line], place).unwrap();
    assert_eq!((code(&output), err(&output)), (0, String::new()), "{line}");
    out(&output).lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_options_families_and_keys() {
    if run("bash", &["-c", "true"], &Place::new()).is_none() {
        return;
    }
    let place = Place::new();
    example(&place);
    assert_eq!(bash(&place, "kvstore pu"), ["put", "purge"]);
    assert_eq!(bash(&place, "kvstore get app.db --fam"), ["--family"]);
    assert_eq!(bash(&place, "kvstore get app.db --family "), ["default", "web\\ site"]);
    assert_eq!(bash(&place, "kvstore get app.db us"), ["user:1", "user:2"]);
    assert_eq!(bash(&place, "kvstore get app.db user:"), ["1", "2"]);
    assert_eq!(bash(&place, "kvstore get app.db -f 'web site' "), ["page"]);
    // For a missing store and for words that bash completes itself: nothing, and no message.
    for line in
        ["kvstore get missing.db ", "kvstore get ", "kvstore get app.db --timeout ", "kvstore get 'app.db"]
    {
        assert_eq!(bash(&place, line), [""; 0], "{line}");
    }
    assert_eq!(place.files(), ["app.db"]);
}

#[test]
fn bash_reads_completed_keys_as_the_keys_they_are() {
    if run("bash", &["-c", "true"], &Place::new()).is_none() {
        return;
    }
    let place = Place::new();
    example(&place);
    for (typed, key) in [
        ("a", "a b"),
        ("it", "it's"),
        ("\\$", "$HOME"),
        ("ba", "back\\\\slash"),
        ("od", "odd\\xff"),
        ("'a", "a b"),
        ("\"it", "it's"),
        ("'od", "odd\\xff"),
    ] {
        let completed = bash(&place, &format!("kvstore exists app.db {typed}"));
        assert_eq!(completed.len(), 1, "{typed}");
        let quote = typed.strip_prefix(['\'', '"']).map_or("", |_| &typed[..1]);
        let word = format!("{quote}{}{quote}", completed[0]);
        let script = format!("printf %s {word}; kvstore exists app.db {word}");
        let output = run("bash", &["-c", &script], &place).unwrap();
        assert_eq!((code(&output), out(&output)), (0, key.to_owned()), "{typed}: {}", err(&output));
    }
}

#[test]
fn fish_completes_families_and_keys() {
    let place = Place::new();
    example(&place);
    let script = "kvstore completions fish | source; complete -C $argv[1]";
    for (line, completed) in [
        ("kvstore get app.db us", "user:1\nuser:2\n"),
        ("kvstore get app.db --family ", "default\nweb site\n"),
        ("kvstore get app.db 'a ", "a b\n"),
        ("kvstore get app.db od", "odd\\xff\n"),
        ("kvstore get missing.db u", ""),
    ] {
        let Some(output) = run("fish", &["--no-config", "-c", script, line], &place) else { return };
        assert_eq!((out(&output).as_str(), err(&output).as_str()), (completed, ""), "{line}");
    }
}

#[test]
fn zsh_loads_the_script() {
    let place = Place::new();
    let script = "autoload -Uz compinit && compinit -u -D && eval \"$(kvstore completions zsh)\" && print $_comps[kvstore]";
    let Some(output) = run("zsh", &["-f", "-c", script], &place) else { return };
    assert_eq!((code(&output), out(&output), err(&output)), (0, "_kvstore\n".to_owned(), String::new()));
}

#[test]
fn words_are_printed_for_zsh_and_fish_with_their_help() {
    let place = Place::new();
    let path = example(&place);
    let listed = ok(&["complete", "zsh", "--", "get", &path, "us"]);
    assert_eq!(listed, "words\nuser:1\nuser:2\n");
    assert!(ok(&["complete", "fish", "--", "dum"]).starts_with("words\ndump\tWrite "));
    assert_eq!(ok(&["complete", "zsh", "--", "get", ""]), "files\n");
    let from_environment =
        command(&["complete", "zsh", "--", "get", "-", "us"]).env("KVSTORE", &path).output();
    assert_eq!(out(&from_environment.unwrap()), "words\nuser:1\nuser:2\n");
    // Errors are silent.
    for words in
        [&["get", "/nowhere/a.db", ""][..], &["get", &path, "-f", "none", "u"], &["nonsense", ""], &[]]
    {
        let output = kvstore(&[&["complete", "zsh", "--"], words].concat());
        assert_eq!((code(&output), err(&output)), (0, String::new()), "{words:?}");
    }
}
