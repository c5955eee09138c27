//! Another process of a test: this test program again, run for its test `child`. It is asked in lines and answers
//! each with a line that starts with `> `.

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

/// User and group "nobody".
const NOBODY: u32 = 65_534;

/// This program as the user who may do least, if the one it is run by may choose that. A copy of it in `folder` is
/// started where that user may not come to the program itself.
#[cfg(unix)]
pub fn as_nobody(folder: &Path) -> Command {
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
        // By another process: what this one has open for writing can be run by nobody, and a child that a test beside this one
        // has just forked has it open, too.
        let mut install = Command::new("install");
        assert!(install.args(["-m", "755", "--"]).args([&exe, &copy]).status().unwrap().success());
        copy
    };
    let mut program = Command::new(exe);
    program.uid(NOBODY).gid(NOBODY).current_dir("/");
    program
}

impl Other {
    /// This program in a role, with the store at `path`.
    pub fn start(path: &Path, role: &str) -> Other {
        Other::launch(Command::new(env::current_exe().unwrap()), path, role)
    }

    /// Another program in a role, such as a shell that sets limits and then becomes this one.
    pub fn launch(program: Command, path: &Path, role: &str) -> Other {
        Other::spawn(in_role(program, path, role))
    }

    pub fn spawn(mut program: Command) -> Other {
        let mut process = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (stdin, stdout) = (process.stdin.take(), process.stdout.take().unwrap());
        Other { process, stdin, stdout: BufReader::new(stdout) }
    }

    /// The next line it says; `None` when it is gone.
    pub fn hear(&mut self) -> Option<String> {
        loop {
            let mut line = String::new();
            if self.stdout.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            // The test harness may have left its own words on the line.
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

    /// Kills it as `kill -9` does, and gives what it had still said.
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

/// Says a line to the test.
pub fn say(what: impl std::fmt::Display) {
    println!("> {what}");
}

/// The next line from the test; `None` when it says no more.
pub fn heard() -> Option<String> {
    let mut line = String::new();
    (stdin().read_line(&mut line).unwrap() > 0).then(|| line.trim_end().to_owned())
}

/// A program that is to run the test `child`, which then finds this role and path.
pub fn in_role(mut program: Command, path: &Path, role: &str) -> Command {
    program
        .args(["--exact", "child", "--ignored", "--nocapture", "--test-threads=1"])
        .env(ROLE, role)
        .env(FILE, path);
    program
}

/// In the test `child`: the role, and the path. `None`: somebody runs all tests, those that are none included.
pub fn role() -> Option<(String, PathBuf)> {
    Some((env::var(ROLE).ok()?, env::var_os(FILE)?.into()))
}
