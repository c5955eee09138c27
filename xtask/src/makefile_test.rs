//! Tests of the Makefile: it stays small, and Apple's GNU make 3.81 can read it.

use std::fs;

use crate::testing::enter_root;

fn makefile() -> String {
    enter_root();
    fs::read_to_string("Makefile").unwrap()
}

/// Returns the feature in a line of a Makefile that requires a version after GNU make 3.81. The
/// line is not one of a recipe.
fn later_feature(line: &str) -> Option<String> {
    const LATER: [&str; 12] = [
        "::=",
        "!=",
        "&:",
        ".ONESHELL",
        ".RECIPEPREFIX",
        ".SHELLSTATUS",
        ".EXTRA_PREREQS",
        ".WAIT",
        "$(file ",
        "$(let ",
        "$(intcmp ",
        "$(guile ",
    ];
    if let Some(later) = LATER.into_iter().find(|later| line.contains(later)) {
        return Some(later.to_owned());
    }
    let words: Vec<_> = line.split_whitespace().take_while(|word| !word.ends_with('=')).collect();
    let modifiers = words.iter().filter(|word| ["override", "export", "unexport"].contains(word));
    if modifiers.count() > 1 {
        return Some("several modifiers".to_owned());
    }
    // In GNU make 3.81, "define NAME" takes no assignment operator.
    let of_define = words.contains(&"define") && words.len() > 1 && line.trim_end().ends_with('=');
    let later = words.iter().find(|word| ["private", "undefine"].contains(word));
    later.map(|word| (*word).to_owned()).or(of_define.then(|| "define with a sign".to_owned()))
}

#[test]
fn makefile_is_readable_by_gnu_make_3_81() {
    for line in [
        "all: override export CFLAGS := -O2",
        "$(GOALS): export override $(1) = x",
        "lib: private A := b",
        "undefine A",
        "define A =",
        "A ::= b",
        "A != uname",
        "a b &: c",
        "A := $(file <b)",
        "override define A :=",
    ] {
        assert!(later_feature(line).is_some(), "{line}");
    }
    for line in makefile().lines().filter(|line| !line.starts_with(['\t', '#'])) {
        assert_eq!(later_feature(line), None, "{line}");
    }
}

#[test]
fn makefile_has_at_most_120_lines() {
    assert!(makefile().lines().count() <= 120);
}

#[test]
fn help_fits_on_a_screen_and_names_only_goals() {
    let makefile = makefile();
    let lines = makefile.replace("\\\n", " ");
    let list =
        |start: &str| lines.lines().find_map(|line| line.strip_prefix(start)).unwrap().split_whitespace();
    let goals: Vec<_> = list(".PHONY:").chain(list("BUILD :=")).collect();
    let help = fs::read_to_string("xtask/help.txt").unwrap();
    assert!(help.lines().count() <= 40 && help.lines().all(|line| line.len() <= 100), "{help}");
    let named = help.lines().filter_map(|line| line.trim_start().strip_prefix("make "));
    let named: Vec<_> = named.map(|line| line.split([' ', ',']).next().unwrap()).collect();
    assert!(named.len() > 20, "{named:?}");
    for goal in named {
        assert!(goals.contains(&goal), "{goal}");
    }
    for goal in
        ["demo", "test", "install", "install-windows", "uninstall", "firmware", "cross", "windows", "dist"]
    {
        assert!(help.contains(&format!("make {goal} ")), "{goal}");
    }
}
