//! Follows a tutorial of `docs/tutorial` like a reader: saves its files, executes its commands, and
//! compares their output with the page. Used by `tests/packaging/docs.rs` and by the tests of the command.
//!
//! A block ```` ```c title="sessions.c" ```` is a file. A block ```` ```console ```` has commands,
//! each after `$ ` and followed by its complete output. In a page, `…` stands for any text in a
//! line, and a line with only `…` stands for any lines. Durations ("9m 58s"), dates and times of
//! day may differ.

#![allow(dead_code)] // each test file uses its own part

use std::fs;
use std::path::Path;

enum Step {
    File { name: String, text: String },
    Command { line: String, shown: Vec<String> },
}

pub struct Tutorial {
    page: String,
    steps: Vec<Step>,
}

/// Printed by the script before each command, to separate the outputs of the commands.
const MARK: &str = "=== step";

impl Tutorial {
    /// Reads a page. `page` is a path below docs/.
    pub fn read(root: &Path, page: &str) -> Tutorial {
        let text = fs::read_to_string(root.join("docs").join(page)).unwrap();
        let mut steps = Vec::new();
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            let Some(info) = line.strip_prefix("```") else { continue };
            let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            if let Some((_, title)) = info.split_once("title=\"") {
                let name = title.trim_end_matches('"').to_owned();
                steps.push(Step::File { name, text: block.join("\n") + "\n" });
            } else if info == "console" {
                for line in block {
                    if let Some(line) = line.strip_prefix("$ ") {
                        steps.push(Step::Command { line: line.to_owned(), shown: Vec::new() });
                    } else if let Some(Step::Command { shown, .. }) = steps.last_mut() {
                        shown.push(line.to_owned());
                    } else {
                        panic!("{page}: {line:?} is below no command");
                    }
                }
            }
        }
        assert!(steps.len() >= 3, "{page} has hardly a step");
        Tutorial { page: page.to_owned(), steps }
    }

    /// Returns a shell script for all steps, to be run in an empty folder. `folder` contains the
    /// files of the tutorial.
    pub fn script(&self, folder: &Path) -> String {
        let mut script = String::from("exec 2>&1\n");
        for (number, step) in self.steps.iter().enumerate() {
            match step {
                Step::File { name, text } => {
                    let file = folder.join(format!("file-{number}"));
                    fs::write(&file, text).unwrap();
                    script += &format!("cp '{}' '{name}' || exit\n", file.display());
                }
                Step::Command { line, .. } => script += &format!("echo '{MARK} {number}'\n{line}\n"),
            }
        }
        script
    }

    /// Compares the output of the script with the page.
    #[track_caller]
    pub fn assert_printed(&self, output: &str) {
        let mut printed = output.split(MARK).skip(1);
        for (number, step) in self.steps.iter().enumerate() {
            let Step::Command { line, shown } = step else { continue };
            let (got, text) =
                printed.next().and_then(|text| text.trim_start().split_once('\n')).unwrap_or_default();
            assert_eq!(got.trim(), number.to_string(), "{}: no output of {line:?}: {output}", self.page);
            let printed: Vec<String> = text.trim_end().lines().map(plain).collect();
            let expected: Vec<String> = shown.iter().map(|line| plain(line)).collect();
            assert!(
                all_match(&expected, &printed),
                "{}: $ {line}\nshows\n{}\nand prints\n{}",
                self.page,
                shown.join("\n"),
                text
            );
        }
    }
}

/// Returns a line with single spaces, and with every duration, date and time of day replaced by the
/// same word.
fn plain(line: &str) -> String {
    let mut words: Vec<&str> = Vec::new();
    for word in line.split_whitespace() {
        let is_digits = |part: &str| part.len() >= 2 && part.bytes().all(|byte| byte.is_ascii_digit());
        if ["-", ":"]
            .iter()
            .any(|separator| word.split(separator).filter(|part| is_digits(part)).count() == 3)
        {
            words.push("<time>");
            continue;
        }
        let unit = word.trim_start_matches(|c: char| c.is_ascii_digit());
        let is_duration = unit.len() < word.len() && ["ms", "s", "m", "h", "d"].contains(&unit);
        if !is_duration {
            words.push(word);
        } else if words.last() != Some(&"<duration>") {
            words.push("<duration>");
        }
    }
    words.join(" ")
}

/// Returns whether the lines match, where a line `…` stands for any number of lines.
fn all_match(expected: &[String], lines: &[String]) -> bool {
    match (expected.split_first(), lines.split_first()) {
        (None, _) => lines.is_empty(),
        (Some((first, rest)), _) if first == "…" => {
            (0..=lines.len()).any(|skipped| all_match(rest, &lines[skipped..]))
        }
        (Some((first, rest)), Some((line, other_lines))) => {
            matches(first, line) && all_match(rest, other_lines)
        }
        (Some(_), None) => false,
    }
}

/// Returns whether a line matches, where `…` stands for any text.
fn matches(expected: &str, line: &str) -> bool {
    let mut parts = expected.split('…');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = line.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}
