//! Starts a PostgreSQL server for the tests, in a temporary folder and on a Unix socket. It is
//! stopped however the test process ends.
//!
//! The library's unit tests include this file too. It must not use the library.

#![allow(dead_code)] // each crate of tests uses its part

use std::fs;
use std::io::Write;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// The port in the name of the socket.
const PORT: u16 = 5432;

pub struct Server {
    folder: PathBuf,
    options: Vec<String>,
    /// Process that stops the server at the end of its input, which is when this process drops the
    /// pipe or ends.
    watchdog: Child,
}

/// Returns the user that the server runs as if the tests run as root, which the server refuses.
fn owner() -> Option<(u32, u32)> {
    let number = |args: &[&str]| {
        let out = Command::new("id").args(args).output().unwrap();
        assert!(out.status.success(), "id {args:?}: who is to run the server?");
        String::from_utf8(out.stdout).unwrap().trim().parse::<u32>().unwrap()
    };
    (number(&["-u"]) == 0).then(|| (number(&["-u", "postgres"]), number(&["-g", "postgres"])))
}

/// Returns a program of the newest installed server: from KVSTORE_POSTGRES_BIN, Debian's folder, or
/// the PATH.
fn program(name: &str) -> PathBuf {
    if let Some(folder) = std::env::var_os("KVSTORE_POSTGRES_BIN") {
        return PathBuf::from(folder).join(name);
    }
    let installed = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let version = |path: &Path| path.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok());
    let newest = installed.map(|entry| entry.path()).max_by_key(|path| version(path));
    newest.map_or_else(|| PathBuf::from(name), |path| path.join("bin").join(name))
}

fn command(name: &str) -> Command {
    let mut command = Command::new(program(name));
    if let Some((user, group)) = owner() {
        command.uid(user).gid(group);
    }
    command.current_dir("/").env_remove("PGOPTIONS").stdin(Stdio::null());
    command
}

fn run(command: &mut Command) -> String {
    let out = command.output().unwrap_or_else(|e| panic!("{command:?}: {e} (apt-get install postgresql)"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(out.status.success(), "{command:?}: {}{}", text(&out.stdout), text(&out.stderr));
    text(&out.stdout)
}

impl Server {
    /// Returns the server that all tests of this process share.
    pub fn shared() -> &'static Server {
        static SHARED: OnceLock<Server> = OnceLock::new();
        SHARED.get_or_init(|| Server::start(&[]))
    }

    /// Starts a new server with these settings, such as `max_connections=20`.
    pub fn start(options: &[&str]) -> Server {
        Server::make(options, |data| {
            let mut initdb = command("initdb");
            initdb.args(["-A", "trust", "-U", "postgres", "--no-sync", "-E", "UTF8", "--locale", "C", "-D"]);
            run(initdb.arg(data));
        })
    }

    /// Starts a standby that follows this server.
    pub fn standby(&self) -> Server {
        Server::make(&[], |data| {
            let mut copy = command("pg_basebackup");
            copy.args(["-R", "-X", "stream", "-c", "fast", "--no-sync", "-U", "postgres", "-h"])
                .arg(&self.folder);
            run(copy.arg("-D").arg(data));
        })
    }

    /// Makes a standby a primary.
    pub fn promote(&self) {
        run(command("pg_ctl").arg("-D").arg(self.folder.join("data")).args(["-w", "-s", "promote"]));
    }

    fn make(options: &[&str], fill: impl FnOnce(&Path)) -> Server {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("kvpg{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        fs::create_dir(&folder).unwrap();
        if let Some((user, group)) = owner() {
            chown(&folder, Some(user), Some(group)).unwrap();
        }
        let data = folder.join("data");
        fill(&data);
        let script = format!(
            "trap '' INT TERM HUP; read -r line; '{}' -D '{}' -m immediate -s stop; rm -rf '{}'",
            program("pg_ctl").display(),
            data.display(),
            folder.display()
        );
        let mut watchdog = Command::new("sh");
        if let Some((user, group)) = owner() {
            watchdog.uid(user).gid(group);
        }
        let watchdog = watchdog.args(["-c", &script]).current_dir("/").process_group(0).stdin(Stdio::piped());
        let watchdog = watchdog.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        let server = Server { folder, options, watchdog };
        server.start_again();
        server
    }

    /// Starts it after [`stop`](Server::stop).
    pub fn start_again(&self) {
        let mut options = format!(
            "-c listen_addresses= -c unix_socket_directories={} -c fsync=off -c full_page_writes=off",
            self.folder.display()
        );
        for option in &self.options {
            options.push_str(&format!(" -c {option}"));
        }
        let log = self.folder.join("log");
        let mut start = command("pg_ctl");
        start
            .arg("-D")
            .arg(self.folder.join("data"))
            .arg("-l")
            .arg(&log)
            .args(["-w", "-s", "-t", "60", "-o"]);
        // With a pipe, the server would keep the output open.
        start.arg(options).arg("start").stdout(Stdio::null()).stderr(Stdio::null());
        let done = start.status().unwrap();
        assert!(done.success(), "{}", fs::read_to_string(log).unwrap_or_default());
    }

    /// `how`: `fast` ends all connections, `immediate` is a crash.
    pub fn stop(&self, how: &str) {
        run(command("pg_ctl").arg("-D").arg(self.folder.join("data")).args(["-w", "-s", "-m", how, "stop"]));
    }

    /// Has it read pg_hba.conf and its settings again.
    pub fn reload(&self) {
        run(command("pg_ctl").arg("-D").arg(self.folder.join("data")).args(["-s", "reload"]));
    }

    /// The folder of its data, its log and its socket.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes a file into the folder of its data, which only the server may read.
    pub fn write(&self, name: &str, text: &str) {
        use std::os::unix::fs::PermissionsExt;
        let path = self.folder.join("data").join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        if let Some((user, group)) = owner() {
            chown(&path, Some(user), Some(group)).unwrap();
        }
    }

    /// The URL of a schema in it.
    pub fn url(&self, schema: &str) -> String {
        self.url_as("postgres", schema)
    }

    /// Like `url`, for another role; `role` may contain `:password`.
    pub fn url_as(&self, role: &str, schema: &str) -> String {
        format!("postgresql://{role}@/postgres?host={}&port={PORT}&schema={schema}", self.folder.display())
    }

    /// Runs SQL as the superuser. Returns a line per row, with `|` between columns.
    pub fn sql(&self, sql: &str) -> String {
        let mut psql = Command::new(program("psql"));
        psql.args([
            "-X",
            "-q",
            "-A",
            "-t",
            "-v",
            "ON_ERROR_STOP=1",
            "-U",
            "postgres",
            "-d",
            "postgres",
            "-p",
        ]);
        psql.arg(PORT.to_string()).arg("-h").arg(&self.folder).env_remove("PGOPTIONS").stdin(Stdio::piped());
        let mut running = psql.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        running.stdin.take().unwrap().write_all(sql.as_bytes()).unwrap();
        let out = running.wait_with_output().unwrap();
        assert!(out.status.success(), "{sql}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap().trim_end().to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.watchdog.stdin.take());
        let _ = self.watchdog.wait();
    }
}
