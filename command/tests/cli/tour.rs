//! The tutorials and the how-to of the command are run as they are written. All commands in the
//! documents exist, and the reference names all commands and options.

#![cfg(unix)] // lines of sh

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::{Place, Terminal, code, kvstore};
use crate::tutorial::Tutorial;

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Returns `$PATH`, with `tools` and the directory of the command before it.
fn path_with(tools: &Path) -> String {
    let folder = Path::new(env!("CARGO_BIN_EXE_kvstore")).parent().unwrap();
    format!("{}:{}:{}", tools.display(), folder.display(), std::env::var("PATH").unwrap())
}

/// Follows a tutorial on a terminal, in an empty directory. `shell` is the command that runs the
/// script.
fn follow(page: &str, shell: &[&str]) {
    let tutorial = Tutorial::read(root(), page);
    let (place, files) = (Place::new(), Place::new());
    // A container has no sudo, and the test should not use it.
    fs::write(files.path("sudo"), "#!/bin/sh\nexec \"$@\"\n").unwrap();
    assert!(Command::new("chmod").arg("+x").arg(files.path("sudo")).status().unwrap().success());
    fs::write(files.path("script"), tutorial.script(&files.path(""))).unwrap();
    let mut command = Command::new(shell[0]);
    command.args(&shell[1..]).arg(files.path("script")).current_dir(place.path(""));
    command
        .env("PATH", path_with(&files.path("")))
        .env("TZ", "UTC")
        .env("TERM", "xterm")
        .env("NO_COLOR", "1");
    command.env("LC_ALL", "C").env_remove("KVSTORE").env_remove("KVSTORE_PASSWORD_FILE");
    let (_, output) = Terminal::start_command(command).end();
    tutorial.assert_printed(&output);
}

#[test]
fn command_tutorial_works_as_written() {
    follow("tutorial/command.md", &["sh"]);
}

#[test]
fn full_disk_tutorial_works_as_written() {
    // With permission to mount, in a mount namespace that ends with the test.
    let unshare = ["unshare", "--user", "--map-root-user", "--mount"];
    let may =
        Command::new(unshare[0]).args(&unshare[1..]).args(["mount", "-t", "tmpfs", "tmpfs", "/mnt"]).output();
    if !may.is_ok_and(|output| output.status.success()) {
        println!("skipped: no right to mount a file system");
        return;
    }
    follow("tutorial/full-disk.md", &[&unshare[..], &["sh"]].concat());
}

/// Returns the words after "kvstore" in the commands of console blocks.
fn commands_of(text: &str) -> BTreeSet<String> {
    let words = |line: &str| {
        let mut words = Vec::new();
        for part in line.split(['|', ';', '&', '(']) {
            let mut part = part.split_whitespace();
            if part.next() == Some("kvstore") {
                words.extend(part.next().map(str::to_owned));
            }
        }
        words
    };
    let mut is_console = false;
    let mut found = BTreeSet::new();
    for line in text.lines() {
        if line.starts_with("```") {
            is_console = line == "```console";
        } else if let Some(line) = line.strip_prefix("$ ").filter(|_| is_console) {
            found.extend(words(line));
        }
    }
    found.retain(|word| word.bytes().all(|byte| byte.is_ascii_lowercase()));
    found
}

#[test]
fn every_command_shown_in_documents_exists() {
    let mut pages = vec![root().join("README.md"), root().join("bindings/python/README.md")];
    let mut folders = vec![root().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    let mut seen = BTreeSet::new();
    for page in pages {
        for name in commands_of(&fs::read_to_string(&page).unwrap()) {
            assert_eq!(code(&kvstore(&["help", &name])), 0, "{}: there is no kvstore {name}", page.display());
            seen.insert(name);
        }
    }
    assert!(seen.len() > 15, "{seen:?}");
}

/// Returns the options named in the help of a command.
fn options_of(help: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let lines = help.lines().filter(|line| line.starts_with("  ") && line.trim_start().starts_with('-'));
    let words = lines.flat_map(|line| line.split(|c: char| !is_part(c)));
    words.filter(|word| word.starts_with("--") && word.len() > 2).map(str::to_owned).collect()
}

#[test]
fn reference_lists_every_command_and_option() {
    let page = fs::read_to_string(root().join("docs/reference/command.md")).unwrap();
    let help = crate::common::out(&kvstore(&["--help"]));
    let listed = help.lines().skip_while(|line| *line != "Keys:").take_while(|line| *line != "Options:");
    let names: Vec<&str> = listed.filter_map(|line| line.strip_prefix("  ")?.split("  ").next()).collect();
    assert!(names.len() > 30, "{names:?}");
    for name in names.iter().flat_map(|names| names.split(", ")) {
        let is_named = [format!("`{name} "), format!("`{name}`")].iter().any(|name| page.contains(name));
        assert!(is_named, "{name}");
        for option in options_of(&crate::common::out(&kvstore(&["help", name]))) {
            let ends = ["`", " ", ","].map(|end| format!("{option}{end}"));
            assert!(ends.iter().any(|option| page.contains(option)), "{name} {option}");
        }
    }
}

#[test]
fn every_command_of_how_to_works_as_written() {
    let page =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/how-to/clean-up.md")).unwrap();
    let lines: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("$ ")).collect();
    assert!(lines.len() > 15, "{lines:?}");
    let place = Place::new();
    let folder = Path::new(env!("CARGO_BIN_EXE_kvstore")).parent().unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let mut said = String::new();
    for line in lines {
        let output = Command::new("sh")
            .args(["-c", &format!("set -e; {line}")])
            .current_dir(place.path(""))
            .env("PATH", &path)
            .output()
            .unwrap();
        assert!(output.status.success(), "{line}: {output:?}");
        said.push_str(&String::from_utf8(output.stdout).unwrap());
    }
    // The numbers in the text.
    for text in [
        "s:40002\ns:40005\ns:40008\n6666\n0\t0\t0\tdefault\n20000\t",
        "family\tsessions\texpired\t40000",
        "family\tsessions\twith_ttl\t13334",
        "40000\n",
        "60000\n",
    ] {
        assert!(said.contains(text), "{text:?}: {said}");
    }
}
