//! `make test` and `make test-full`: format, lints, and the tests in each variant of the build.
//! tests/variant lists the tests of each variant.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::vars::Vars;
use crate::{Result, run, words};

/// The first steps of `make test`: quick checks. The first one that fails ends the run. In a step,
/// `{target}` is the folder to build in, and `{complete}` stands for `COMPLETE`.
const CHECKS: &[&str] = &[
    "cargo fmt --all --check",
    "cargo clippy --workspace --all-targets --locked -- -D warnings",
    "cargo clippy --package kvstore-ttl --all-targets --locked --features remote -- -D warnings",
    // As for a program that depends on this crate and does not set the flags of .cargo/config.toml; and as for a processor
    // without 64-bit atomics.
    "KVSTORE_ENGINE=sql cargo clippy --package kvstore-ttl --lib --locked --target-dir {target}/sql-engine -- -D warnings \
     --cfg kvstore_split_atomics",
    // The fuzz targets are a workspace of their own.
    "cargo check --locked --manifest-path fuzz/Cargo.toml --target-dir {target}",
];

/// The further steps of `make test`. All of them run, also after one has failed.
const TESTS: &[&str] = &[
    "cargo test --locked --workspace --no-fail-fast",
    "KVSTORE_ENGINE=sql cargo test --locked --target-dir {target}/sql-engine --lib",
    "tests/variant sql -- cargo test --locked --no-fail-fast --target-dir {target}/sql-engine",
    "cargo test {complete} --lib",
    "tests/variant complete -- cargo test {complete}",
    "tests/variant encrypted -- cargo test {complete}",
    "tests/variant remote -- cargo test {complete}",
    "cargo test {complete} --package kvstore-cli --bin kvstore",
    "cargo test {complete} --package kvstore-cli --test cli -- encryption:: json:: postgres::",
    // Encryption compiles without stores on a server.
    "cargo check --locked --features encryption --target-dir {target}/complete --lib",
    "bindings/python/run-tests",
];

/// The further steps of `make test-full`.
const FULL: &[&str] = &[
    "tests/variant remote-full -- cargo test {complete}",
    "KVSTORE_CONNECTION_LOSS=all cargo test {complete} --test postgres connection_loss::",
    "KVSTORE_COPY_ROWS=200000 cargo test {complete} -p kvstore-cli --test cli copy_to_a_server_and_back",
    "tests/variant encrypted-full -- cargo test {complete}",
    "bindings/python/run-tests --full",
    "bindings/python/run-contrib-tests",
    "tests/asan",
    "fuzz/run 60",
    "tests/soak/run 600",
];

/// One build for encrypted stores and for stores on a server, as releases have it.
const COMPLETE: &str = "--locked --no-fail-fast --features encryption,remote --target-dir {target}/complete";

/// Parts of cargo that a Rust installation may lack.
const OPTIONAL: [&str; 2] = ["fmt", "clippy"];

pub fn run(vars: &Vars) -> Result<()> {
    let mut vars = vars.clone();
    // For the libraries and the command that tests install. "make dist-test" tries those of a release.
    vars.set_quick_release();
    vars.set("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1");
    if vars.get("RUST_TEST_THREADS").is_none() {
        // Many tests wait for the disk, for a lock or for a process.
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        vars.set("RUST_TEST_THREADS", (2 * processors).to_string());
    }
    let begin = Instant::now();
    CHECKS.iter().try_for_each(|step| run_step(step, &vars))?;
    run_all(TESTS, &vars, vec![Done { step: "format, lints", time: begin.elapsed(), is_ok: true }])
}

pub fn run_full(vars: &Vars) -> Result<()> {
    run_all(FULL, vars, Vec::new())
}

/// A step that has ended.
struct Done<'a> {
    step: &'a str,
    time: Duration,
    is_ok: bool,
}

/// Runs all steps, then prints how long each of them took, and fails if one of them did.
fn run_all<'a>(steps: &[&'a str], vars: &Vars, mut done: Vec<Done<'a>>) -> Result<()> {
    for step in steps {
        let begin = Instant::now();
        let result = run_step(step, vars);
        if let Err(reason) = &result {
            println!("xtask: FAILED: {reason}");
        }
        done.push(Done { step, time: begin.elapsed(), is_ok: result.is_ok() });
    }
    println!("{}", summary(&done));
    match done.iter().filter(|done| !done.is_ok).count() {
        0 => Ok(()),
        failed => Err(format!("xtask: {failed} of {} steps failed", done.len())),
    }
}

/// Returns a line for each step: its time and its result.
fn summary(done: &[Done]) -> String {
    let lines = done.iter().map(|Done { step, time, is_ok }| {
        let result = if *is_ok { "ok" } else { "FAILED" };
        format!("{:>6} s  {result:<6}  {step}", time.as_secs())
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn run_step(step: &str, vars: &Vars) -> Result<()> {
    let command = &mut command(step, vars)?;
    if let Some(part) = OPTIONAL.into_iter().find(|part| step.starts_with(&format!("cargo {part} "))) {
        let mut version = vars.command("cargo");
        version.args([part, "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
        if !version.status().is_ok_and(|status| status.success()) {
            println!("SKIPPED: {step} (cargo {part} is not installed)");
            return Ok(());
        }
    }
    run::run_with(command, &["KVSTORE_ENGINE"])
}

/// Returns the command of a step. Words with `=` before the program are variables.
fn command(step: &str, vars: &Vars) -> Result<Command> {
    let target = words::quote(vars.get_or("TARGET_DIR", "target"));
    let step = step.replace("{complete}", COMPLETE).replace("{target}", &target);
    let words = words::split(&step)?;
    let begin =
        words.iter().position(|word| !word.contains('=')).ok_or_else(|| format!("no program: {step}"))?;
    let (variables, words) = words.split_at(begin);
    let mut command = vars.command(&words[0]);
    command.args(&words[1..]).envs(variables.iter().filter_map(|pair| pair.split_once('=')));
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn step_is_a_command_with_variables() {
        let vars = Vars::from([("TARGET_DIR", "/tmp/a b")]);
        let command = command("A=1 cargo test {complete} --lib", &vars).unwrap();
        let complete =
            "--locked --no-fail-fast --features encryption,remote --target-dir '/tmp/a b/complete'";
        assert_eq!(run::line(&command, &["A"]), format!("A=1 cargo test {complete} --lib"));
    }

    #[test]
    fn summary_has_time_and_result_of_each_step() {
        let second = Duration::from_secs(1);
        let done = [("lints", second, true), ("tests", 90 * second, false)].map(|(step, time, is_ok)| Done {
            step,
            time,
            is_ok,
        });
        assert_eq!(summary(&done), "     1 s  ok      lints\n    90 s  FAILED  tests");
    }

    #[test]
    fn steps_run_to_the_end_and_a_failure_is_reported() {
        let folder = crate::testing::Folder::new();
        let mark = folder.text("mark");
        let steps = [&*format!("touch {mark}-1"), "false", &*format!("touch {mark}-2")];
        let failure = run_all(&steps, &Vars::from_environment(), Vec::new()).unwrap_err();
        assert_eq!(failure, "xtask: 1 of 3 steps failed");
        assert!(std::path::Path::new(&format!("{mark}-2")).exists());
        assert!(run_all(&steps[..1], &Vars::from_environment(), Vec::new()).is_ok());
    }

    #[test]
    fn each_step_names_a_program_of_the_tree_or_cargo() {
        crate::testing::enter_root();
        for step in CHECKS.iter().chain(TESTS).chain(FULL) {
            let command = command(step, &Vars::default()).unwrap();
            let program = command.get_program().to_str().unwrap();
            assert!(program == "cargo" || std::path::Path::new(program).is_file(), "{step}");
        }
    }
}
