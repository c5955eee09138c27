//! A helper process of a test: this test program again, running only the test `child` of the same
//! module. The test sends it lines; it answers each with a line that starts with `> `.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Write, stdin};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

const ROLE: &str = "KVSTORE_TEST_ROLE";
const FILE: &str = "KVSTORE_TEST_FILE";

pub struct Other {
    pub process: std::process::Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

/// Unprivileged user and group of the system.
const NOBODY: u32 = 65_534;

/// Returns a command for this program as the unprivileged user, if the tests run as root. If that
/// user cannot read the program, it runs a copy in `folder`.
#[cfg(unix)]
pub fn as_unprivileged(folder: &Path) -> Command {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::os::unix::process::CommandExt;
    let exe = env::current_exe().unwrap();
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        return Command::new(exe);
    }
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
    let mut it = Command::new(&exe);
    it.arg("--list").uid(NOBODY).gid(NOBODY).stdout(Stdio::null()).current_dir("/");
    let exe = if it.status().is_ok_and(|status| status.success()) {
        exe
    } else {
        let copy = folder.join("program");
        // Another process copies the file. A file that this process has open for writing cannot be
        // executed, and the child of a fork in a concurrent test may have inherited the descriptor.
        let mut install = Command::new("install");
        assert!(install.args(["-m", "755", "--"]).args([&exe, &copy]).status().unwrap().success());
        copy
    };
    let mut program = Command::new(exe);
    program.uid(NOBODY).gid(NOBODY).current_dir("/");
    program
}

impl Other {
    /// This program in a role of the module (`module_path!()`), with the store at `path`.
    pub fn start(module: &str, path: &Path, role: &str) -> Other {
        Other::spawn(child_in_role(module, path, role))
    }

    /// Another program in a role, such as a shell that sets limits and then becomes this one.
    pub fn launch(program: Command, module: &str, path: &Path, role: &str) -> Other {
        Other::spawn(in_role(program, module, path, role))
    }

    pub fn spawn(mut program: Command) -> Other {
        let mut process = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (stdin, stdout) = (process.stdin.take(), process.stdout.take().unwrap());
        Other { process, stdin, stdout: BufReader::new(stdout) }
    }

    /// Returns the next line of its answers; `None` when it has ended.
    pub fn hear(&mut self) -> Option<String> {
        loop {
            let mut line = String::new();
            if self.stdout.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            // The test harness may have written to the same line before.
            if let Some((_, said)) = line.split_once("> ")
                && line.ends_with('\n')
            {
                return Some(said.trim_end().to_owned());
            }
        }
    }

    #[track_caller]
    pub fn expect(&mut self, what: &str) {
        assert_eq!(self.hear().as_deref(), Some(what));
    }

    pub fn tell(&mut self, what: &str) {
        writeln!(self.stdin.as_mut().unwrap(), "{what}").unwrap();
    }

    pub fn go_on(&mut self) {
        self.tell("");
    }

    #[track_caller]
    pub fn ask(&mut self, what: &str) -> String {
        self.tell(what);
        self.hear().expect("the other process is gone")
    }

    #[track_caller]
    pub fn run(&mut self, what: &str) {
        assert_eq!(self.ask(what), "ok", "{what}");
    }

    /// Kills the process like `kill -9`. Returns the lines that were not read yet.
    pub fn kill(mut self) -> Vec<String> {
        self.process.kill().unwrap();
        let said = std::iter::from_fn(|| self.hear()).collect();
        self.process.wait().unwrap();
        said
    }

    #[track_caller]
    pub fn finish(mut self) {
        self.stdin = None;
        while self.hear().is_some() {}
        assert!(self.process.wait().unwrap().success(), "the other process failed");
    }
}

/// Sends a line to the test.
pub fn say(what: impl std::fmt::Display) {
    println!("> {what}");
}

/// Returns the next line from the test; `None` when there are no more.
pub fn heard() -> Option<String> {
    let mut line = String::new();
    (stdin().read_line(&mut line).unwrap() > 0).then(|| line.trim_end().to_owned())
}

/// Returns the arguments with which this program runs only the test `child` of a module. `module`
/// is the module's `module_path!()`.
fn child_arguments(module: &str) -> [String; 5] {
    let child = module.split_once("::").map_or("child".to_owned(), |(_, inner)| format!("{inner}::child"));
    ["--exact", &child, "--ignored", "--nocapture", "--test-threads=1"].map(str::to_owned)
}

/// Returns a command that runs only the test `child` of the module, in another process.
pub fn child(module: &str) -> Command {
    let mut program = Command::new(env::current_exe().unwrap());
    program.args(child_arguments(module));
    program
}

/// Like `child`, in this role, with this path.
pub fn child_in_role(module: &str, path: &Path, role: &str) -> Command {
    in_role(Command::new(env::current_exe().unwrap()), module, path, role)
}

/// Makes a program run the test `child` of the module in this role, with this path.
fn in_role(mut program: Command, module: &str, path: &Path, role: &str) -> Command {
    program.args(child_arguments(module)).env(ROLE, role).env(FILE, path);
    program
}

/// In the test `child`: returns the role and the path; `None` if all tests are being run, in which
/// case `child` does nothing.
pub fn role() -> Option<(String, PathBuf)> {
    Some((env::var(ROLE).ok()?, env::var_os(FILE)?.into()))
}

/// Name of a role, and the function that plays it in a directory.
pub type Role = (&'static str, fn(&Path));

/// In the test `child`: plays the role that the test has chosen, if a test runs it.
pub fn play_role(roles: &[Role]) {
    let Some((name, dir)) = role() else { return };
    let (_, play) = roles.iter().find(|(role, _)| *role == name).expect("a role");
    play(&dir);
}
