//! Workloads that need a separate process, which is this program with the option `--child`.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::measure::{each, key, mix};
use crate::store::{Kind, Mode, Store};

/// How often reader and writer take turns.
pub const TURNS: u64 = 200;
const VALUE: usize = 100;

fn command(kind: &Kind, what: &str, path: &Path, n: u64, operations: u64) -> Command {
    let mut command = Command::new("/proc/self/exe");
    // The child gets the same options for the libraries.
    let mut given = std::env::args_os().skip(1);
    while let Some(argument) = given.next() {
        if argument == "--lib" || argument == "--snkv" {
            command.arg(argument).args(given.next());
        }
    }
    command.args(["--child", what, kind.name]).arg(path).args([n.to_string(), operations.to_string()]);
    command
}

/// Returns the peak anonymous memory, in bytes, of a process that only gets random keys.
pub fn memory(kind: &Kind, path: &Path, n: u64, gets: u64) -> u64 {
    let output = command(kind, "memory", path, n, gets).stderr(Stdio::inherit()).output().expect("a child");
    assert!(output.status.success(), "the child failed");
    String::from_utf8_lossy(&output.stdout).trim().parse().expect("a number of bytes")
}

/// Times of single writes, in nanoseconds.
pub struct Latencies {
    pub mean: f64,
    pub percentiles: [f64; 4],
}

/// A child process that writes.
pub struct Writer {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Writer {
    /// Starts a process that first takes turns with this one.
    pub fn start(kind: &Kind, path: &Path, n: u64) -> Writer {
        Writer::start_as(kind, "write", path, n)
    }

    /// Starts a process that writes at full speed, in a store with TTLs. Returns when it has begun.
    pub fn start_at_full_speed(kind: &Kind, path: &Path, n: u64) -> Writer {
        let mut writer = Writer::start_as(kind, "write with TTLs", path, n);
        writer.wait_for_turn(0);
        writer
    }

    fn start_as(kind: &Kind, what: &str, path: &Path, n: u64) -> Writer {
        let mut command = command(kind, what, path, n, 0);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a child");
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        Writer { child, input, output }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        line.trim().to_string()
    }

    pub fn wait_for_turn(&mut self, turn: u64) {
        assert_eq!(self.line(), turn.to_string(), "the writer failed");
    }

    pub fn go_on(&mut self) {
        self.input.as_mut().expect("a pipe").write_all(b"\n").expect("a pipe");
    }

    /// Stops the writer, and returns its rate in writes per second.
    pub fn stop(self) -> f64 {
        let Latencies { mean, .. } = self.stop_and_report();
        1e9 / mean
    }

    /// Stops the writer, and returns the times of its writes since it began to write at full speed.
    pub fn stop_and_report(mut self) -> Latencies {
        drop(self.input.take());
        let numbers: Vec<f64> =
            self.line().split(' ').map(|number| number.parse().expect("a number")).collect();
        assert!(self.child.wait().expect("a child").success());
        let [mean, p50, p99, p999, max] = numbers[..] else { panic!("not a mean and four percentiles") };
        Latencies { mean, percentiles: [p50, p99, p999, max] }
    }
}

/// Returns the number of the turn in which the writer wrote this value; 0 for a value from before.
pub fn turn_of(value: &[u8]) -> u64 {
    // Values from before the first turn are random.
    let written = value[8..].iter().all(|byte| *byte == 0);
    if written { u64::from_le_bytes(value[..8].try_into().expect("8 bytes")) } else { 0 }
}

/// Main function of the child process.
pub fn run(what: &str, kind: &Kind, path: &Path, n: u64, operations: u64) {
    match what {
        "memory" => {
            let mut store = (kind.open)(path, Mode::default());
            let mut largest = 0;
            for i in 0..operations {
                assert_eq!(store.get(&key(mix(i) % n)), Some(VALUE));
                if i % 10_000 == 0 || i == operations - 1 {
                    largest = largest.max(anonymous());
                }
            }
            println!("{largest}");
        }
        "write" => {
            let mut store = (kind.open)(path, Mode::default());
            take_turns(&mut *store);
            write(&mut *store, n);
        }
        "write with TTLs" => {
            let mut store = (kind.open)(path, Mode { ttl: true, ..Mode::default() });
            store.put(&key(0), &[0; VALUE]);
            println!("0");
            write(&mut *store, n);
        }
        other => panic!("unknown child {other}"),
    }
}

/// The anonymous memory of this process, in bytes.
fn anonymous() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("the process's status");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("RssAnon");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}

fn take_turns(store: &mut dyn Store) {
    let mut line = String::new();
    for turn in 1..=TURNS {
        let mut value = [0; VALUE];
        value[..8].copy_from_slice(&turn.to_le_bytes());
        store.put(&key(0), &value);
        println!("{turn}");
        std::io::stdin().read_line(&mut line).expect("a line");
    }
}

/// Overwrites random keys of the first `n` until the parent process closes the pipe, and prints the
/// times.
fn write(store: &mut dyn Store, n: u64) {
    static STOP: AtomicBool = AtomicBool::new(false);
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        STOP.store(true, Ordering::Relaxed);
    });
    let mut count = 0u64;
    let (_, mean, percentiles) = each(usize::MAX, Duration::MAX, |_| {
        store.put(&key(mix(count) % n), &[count as u8; VALUE]);
        count += 1;
        !STOP.load(Ordering::Relaxed)
    });
    println!("{mean} {}", percentiles.map(|time| time.to_string()).join(" "));
}
