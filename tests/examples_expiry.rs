//! The examples of expiry as a tool: each compiles without warnings as C11, runs to its end, and shows what
//! it says it shows. Their times are real ones, with much room.

mod c_common;

use std::path::Path;
use std::process::Command;

use c_common::{build, compiler, run};

/// What an example prints, in memory and then twice on the same file: the second run finds the first one's.
fn output_of(example: &str) -> [String; 3] {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let program = build(&mut compiler("cc", "c11"), &format!("examples/{example}.c"), directory.path());
    let printed = |arguments: &[&Path]| {
        let output = run(Command::new(&program).args(arguments).current_dir(directory.path()));
        String::from_utf8(output.stdout).expect("text")
    };
    let file = directory.path().join("example.db");
    [printed(&[]), printed(&[&file]), printed(&[&file])]
}

/// The lines are there, in this order, perhaps with others between them. A line is known by its end.
fn has_lines(output: &str, wanted: &[&str]) {
    let mut lines = output.lines();
    for line in wanted {
        assert!(lines.any(|printed| printed.ends_with(line)), "no {line:?} in its place in\n{output}");
    }
}

#[test]
fn the_otp_service_lets_each_code_in_once() {
    for output in output_of("otp_service") {
        has_lines(
            &output,
            &[
                "ada asks:           a code is sent",
                "ada asks again:     wait",
                "ada mistypes:       wrong, or too late",
                "ada gets it right:  welcome",
                "the code, again:    wrong, or too late",
                "bob asks:           a code is sent",
                "bob is late:        wrong, or too late",
                "eve asks:           a code is sent",
                "eve has it now:     too many tries",
                "codes left:         0",
            ],
        );
    }
}

#[test]
fn sliding_sessions_live_as_long_as_they_are_used() {
    for output in output_of("sliding_sessions") {
        has_lines(
            &output,
            &[
                "s1 logs in as ada",
                "s2 logs in as bob",
                "s1: ada",
                "s1: ada",
                "s1: ada",
                "s2: please log in",
                "2 sessions are kept",
                "purged: 1",
                "purged: 1",
                "woke up 2 time(s) to purge",
                "s1: please log in",
                "0 sessions are kept",
            ],
        );
    }
}

#[test]
fn the_secrets_sweep_takes_the_old_and_leaves_the_rotated() {
    for output in output_of("secrets_sweep") {
        has_lines(
            &output,
            &[
                "written          : api-key (fresh) db-password (fresh) forgotten (fresh)",
                "some time later  : api-key (old) db-password (old) forgotten (old)",
                "two are rotated  : api-key (fresh) db-password (fresh) forgotten (old)",
                "swept            : 1",
                "left             : api-key (fresh) db-password (fresh)",
                "swept again      : 0",
                "swept, much later: 2",
                "integrity check  : ok",
            ],
        );
    }
}
