//! The C examples on expiry: each compiles as C11 without warnings, by the command line in its comment too, and
//! prints the expected lines. They run in real time, with wide tolerances.

use std::path::Path;
use std::process::Command;

use crate::c_programs::{build, compiler, library_dir, root, run};

/// Returns the output of an example: in memory, and twice on the same file, where the second run finds the data.
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

/// Asserts that the output has lines with these endings, in this order; other lines may come between them.
fn has_lines(output: &str, wanted: &[&str]) {
    let mut lines = output.lines();
    for line in wanted {
        assert!(lines.any(|printed| printed.ends_with(line)), "no {line:?} in its place in\n{output}");
    }
}

/// Runs the `cc` line of the comment at the top of an example, with the library of this build.
fn compile_as_documented(example: &str) {
    let source = std::fs::read_to_string(root().join(format!("examples/{example}.c"))).expect("the source");
    let line = source.lines().find_map(|line| line.strip_prefix(" *     cc ")).expect("a cc line");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let program = directory.path().join(example);
    let line = line.strip_suffix(&format!(" -o {example}")).expect("-o with the name of the example");
    let line = line.replace("target/release", &library_dir().display().to_string());
    run(Command::new("sh").current_dir(root()).arg("-c").arg(format!("cc {line} -o {}", program.display())));
    assert!(program.exists(), "cc {line}");
}

#[test]
fn examples_compile_with_command_in_their_comment() {
    for example in ["otp_service", "renewed_cache", "secrets_sweep", "sliding_sessions"] {
        compile_as_documented(example);
    }
}

#[test]
fn otp_service_accepts_each_code_once() {
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
fn renewed_cache_has_one_renewer_at_a_time() {
    for output in output_of("renewed_cache") {
        has_lines(
            &output,
            &[
                "  0 s  ada: no value, and renews it",
                "  0 s  bob: no value, and waits",
                "  0 s  bob: sunny",
                " 60 s  bob: sunny, and renews it",
                " 60 s  ada: sunny",
                " 60 s  ada: rainy",
                "120 s  ada: rainy, and renews it",
                "130 s  bob: rainy, and renews it",
                "790 s  eve: no value, and renews it",
            ],
        );
    }
}

#[test]
fn sliding_sessions_stay_live_while_used() {
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
fn secrets_sweep_removes_old_and_keeps_rotated_keys() {
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
