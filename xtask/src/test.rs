//! `make test` and `make test-full`: format, lints, and the tests in each variant of the build.
//! tests/variant lists the tests of each variant.

use std::process::{Command, Stdio};

use crate::vars::Vars;
use crate::{Result, run, words};

/// The steps of `make test`, in this order. In a step, `{target}` is the folder to build in, and
/// `{complete}` stands for `COMPLETE`.
const TEST: &[&str] = &[
    "cargo fmt --all --check",
    "cargo clippy --workspace --all-targets --locked -- -D warnings",
    "cargo clippy --package kvstore-ttl --all-targets --locked --features remote -- -D warnings",
    // The fuzz targets are a workspace of their own.
    "cargo check --locked --manifest-path fuzz/Cargo.toml --target-dir {target}",
    "cargo test --locked --workspace --no-fail-fast",
    "KVSTORE_ENGINE=sql cargo test --locked --target-dir {target}/sql-engine --lib",
    "KVSTORE_ENGINE=sql tests/variant sql -- cargo test --locked --no-fail-fast --target-dir {target}/sql-engine",
    "cargo test {complete} --lib",
    "tests/variant complete -- cargo test {complete}",
    "KVSTORE_TEST_ENCRYPTED=1 tests/variant encrypted -- cargo test {complete}",
    "KVSTORE_TEST_REMOTE=1 tests/variant remote -- cargo test {complete}",
    "cargo test {complete} --package kvstore-cli --bin kvstore --test encryption --test json --test on_a_server",
    // Encryption compiles without stores on a server.
    "cargo check --locked --features encryption --target-dir {target}/complete --lib",
    "bindings/python/run-tests",
];

/// The further steps of `make test-full`.
const FULL: &[&str] = &[
    "KVSTORE_TEST_REMOTE=1 tests/variant remote-full -- cargo test {complete}",
    "KVSTORE_CONNECTION_LOSS=all cargo test {complete} --test postgres connection_loss::",
    "KVSTORE_COPY_ROWS=200000 cargo test {complete} -p kvstore-cli --test on_a_server copy_to_a_server_and_back",
    "KVSTORE_TEST_ENCRYPTED=1 tests/variant encrypted-full -- cargo test {complete}",
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
    // Link-time optimisation of the libraries that tests install takes minutes. "make dist-test"
    // tries the libraries that have it.
    vars.set("CARGO_PROFILE_RELEASE_LTO", "off");
    vars.set("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
    TEST.iter().try_for_each(|step| run_step(step, &vars))
}

pub fn run_full(vars: &Vars) -> Result<()> {
    FULL.iter().try_for_each(|step| run_step(step, vars))
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
    println!("{}", run::line(command, &["KVSTORE_ENGINE", "KVSTORE_TEST_ENCRYPTED", "KVSTORE_TEST_REMOTE"]));
    run::run_quietly(command)
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
    fn each_step_names_a_program_of_the_tree_or_cargo() {
        crate::testing::enter_root();
        for step in TEST.iter().chain(FULL) {
            let command = command(step, &Vars::default()).unwrap();
            let program = command.get_program().to_str().unwrap();
            assert!(program == "cargo" || std::path::Path::new(program).is_file(), "{step}");
        }
    }
}
