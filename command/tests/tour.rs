//! The tour of docs/reference/command.md, as it is written there.

#![cfg(unix)] // lines of sh

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use common::Place;

#[test]
fn every_command_of_the_tour_can_be_typed_as_it_is_written() {
    let page =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/command.md")).unwrap();
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
    // What the text around says of it.
    for text in [
        "s:40002\ns:40005\ns:40008\n6666\n0\t0\t0\tdefault\n20000\t",
        "family\tsessions\tdead\t40000",
        "family\tsessions\twith_ttl\t13334",
        "40000\n",
        "60000\n",
    ] {
        assert!(said.contains(text), "{text:?}: {said}");
    }
}
