//! Runs the soak test for a few seconds: four processes use one store, one of them is repeatedly
//! killed and restarted, and everything that is read is checked. `tests/soak/run` runs it for any
//! duration.

use std::process::Command;

use crate::c_programs::{build, compiler, run};

#[test]
fn store_matches_acknowledged_writes_of_killed_processes() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let program = build(compiler("cc", "c11").arg("-O1"), "tests/soak/soak.c", directory.path());
    run(Command::new(program).args(["6", "1"]).env("TMPDIR", directory.path()));
}
