//! `import`: imports CSV and JSON, and the data of other packages.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Slot;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use data_encoding::BASE64;
use kvstore::{Expiry, Family, MAX_KEY_SIZE, PutOptions, Store};

use super::has_keys;
use super::python::{self, Line, Reader};
use super::sources::{Columns, ENDS, Entry, Given, read_csv, read_json, read_json_lines};
use crate::context::Context;
use crate::failure::{Answer, Failure, Result, refused, usage};
use crate::json::Object;
use crate::output::{Output, count};
use crate::progress::{Interrupt, Progress};
use crate::secret::Secrets;
use crate::store_arg::{self, MakeArgs, StoreFirst};
use crate::times::{self, Moment};

/// Maximum number of entries that `import` writes in one transaction.
const BATCH_ENTRIES: u64 = 1000;
/// Total length of keys and values, in bytes, from which `import` commits a transaction that has
/// fewer than [`BATCH_ENTRIES`].
const BATCH_BYTES: usize = 4 << 20;

const STOPPED: &str = "stopped";

const EXPIRED: &str = "expired in the source";
const PRESENT: &str = "already in the target";
const AGAIN: &str = "the source has its key again: the last value is used";
const INCOMPLETE: &str = "the Python package ended before it had read the whole source";

/// The format of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    /// Comma-separated values
    Csv,
    /// Tab-separated values
    Tsv,
    /// An array of objects, or one object of keys and values
    Json,
    /// One object per line
    Jsonl,
    /// An SNKV file
    Snkv,
    /// A diskcache directory
    Diskcache,
    /// An sqlitedict file
    Sqlitedict,
    /// A Python shelve file
    Shelve,
    /// A Python dbm file
    Dbm,
}

impl Kind {
    /// Returns the format for the extension of a file name; `None` if the extension is unknown.
    fn of(source: &Path) -> Option<Kind> {
        match source.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "csv" => Some(Kind::Csv),
            "tsv" => Some(Kind::Tsv),
            "json" => Some(Kind::Json),
            "jsonl" | "ndjson" => Some(Kind::Jsonl),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Kind::Csv => "csv",
            Kind::Tsv => "tsv",
            Kind::Json => "json",
            Kind::Jsonl => "jsonl",
            Kind::Snkv => "snkv",
            Kind::Diskcache => "diskcache",
            Kind::Sqlitedict => "sqlitedict",
            Kind::Shelve => "shelve",
            Kind::Dbm => "dbm",
        }
    }

    /// Returns `true` for formats that the Python package kvstore-ttl reads, not this command
    /// itself.
    fn is_pythons(self) -> bool {
        matches!(self, Kind::Snkv | Kind::Diskcache | Kind::Sqlitedict | Kind::Shelve | Kind::Dbm)
    }
}

/// Import CSV, JSON, or the data of another store
///
/// Reads CSV and JSON itself. SNKV, diskcache, sqlitedict, shelve and dbm are read by the Python
/// package kvstore-ttl, run by $KVSTORE_PYTHON, or by python3 (on Windows python) in the directory
/// of this command or in the PATH. The source is not changed. Entries are written in batches: after
/// an error or Ctrl-C, earlier batches stay, and --skip-existing continues.
#[derive(Debug, Args)]
#[command(
    after_help = "JSON: an array of objects, [{\"key\":\"a\",\"value\":\"1\"}, ...], or an object {\"a\":\"1\", ...}; \
with --from jsonl, one object per line. A value that is not a string is stored as JSON text. Without a field \"key\" or \
\"value\", \"key_base64\" and \"value_base64\" are used, as written by \"kvstore scan --json\". Expiry is imported only from \
a column named by --ttl-column or --expire-column.

Exit status: 0 all live entries were imported; 1 some were skipped; 2 usage error; 3 the source cannot be read, or store \
error.

Examples:
  kvstore import app.db users.csv --key-column id --value-column email
  kvstore import app.db sessions.json -f sessions --ttl 2h
  kvstore import app.db tokens.jsonl --expire-column expires_at --overwrite
  kvstore scan old.db --json | kvstore import app.db - --from jsonl --expire-column expire_ms
  kvstore import app.db --from diskcache /var/cache/app --dry-run"
)]
pub struct ImportArgs {
    #[command(flatten)]
    store: StoreFirst,
    /// File or directory to import; "-" for standard input
    #[arg(value_name = "SOURCE", value_hint = clap::ValueHint::AnyPath)]
    source: PathBuf,
    /// Format of SOURCE [default: by its extension]
    #[arg(long, value_enum, value_name = "FORMAT")]
    from: Option<Kind>,
    /// Family to import into [default: default]
    #[arg(short, long, value_name = "NAME")]
    family: Option<String>,
    /// TTL of entries without an expiry in the source
    #[arg(long, value_name = "DURATION", value_parser = times::parse_ttl)]
    ttl: Option<Duration>,
    /// Print what would be imported, and write nothing
    #[arg(long)]
    dry_run: bool,
    /// Keep existing keys
    #[arg(long, alias = "if-absent", conflicts_with = "overwrite")]
    skip_existing: bool,
    /// Overwrite existing keys
    #[arg(long, alias = "replace")]
    overwrite: bool,
    #[command(flatten)]
    make: MakeArgs,
    #[command(flatten)]
    columns: Columns,
    #[command(flatten)]
    python: PythonArgs,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Input from other packages")]
struct PythonArgs {
    /// Table of an sqlitedict file that has several
    #[arg(long, value_name = "NAME")]
    table: Option<String>,
    /// How values are stored
    #[arg(long, value_name = "ENCODING", value_parser = ["raw", "pickle", "json", "data"])]
    values: Option<String>,
    /// Read pickles. A pickle can run any code: use this only for trusted sources
    #[arg(long)]
    unpickle: bool,
}

impl ImportArgs {
    pub fn run(&self, context: &mut Context) -> Result {
        let from_stdin = self.source.as_os_str() == "-";
        let kind = self.from.or_else(|| Kind::of(&self.source));
        match kind {
            Some(kind) if !kind.is_pythons() => {}
            _ if from_stdin => {
                return usage(
                    "the format of standard input is not known: give --from csv, tsv, json or jsonl",
                );
            }
            _ => return self.read_by_python(context),
        }
        if self.python.table.is_some() || self.python.values.is_some() || self.python.unpickle {
            return usage("--table, --values and --unpickle do not apply to CSV and JSON: leave them out");
        }
        let kind = kind.unwrap_or(Kind::Csv);
        if from_stdin {
            context.take_stdin("the source")?;
            return self.read(kind, io::stdin().lock(), context);
        }
        let said = |e: io::Error| match e.kind() {
            io::ErrorKind::NotFound => self.not_there(),
            _ => Failure::Refused(format!("{}: {e}", self.source.display())),
        };
        let file = File::open(&self.source).map_err(said)?;
        if file.metadata().map_err(said)?.is_dir() {
            return refused(format!("{} is a directory: name a file, or give --from", self.source.display()));
        }
        self.read(kind, BufReader::with_capacity(1 << 16, file), context)
    }

    fn not_there(&self) -> Failure {
        Failure::Refused(format!("there is no file {}: check the path", store_arg::shown(&self.source)))
    }

    /// Returns `true` if the source does not exist, and no file has the name of the source with an
    /// extension. (Python's dbm modules add an extension to the name.)
    fn is_missing(&self) -> bool {
        let Some(name) = self.source.file_name() else { return false };
        let is_missing = std::fs::metadata(&self.source).is_err_and(|e| e.kind() == io::ErrorKind::NotFound);
        let folder = self.source.parent().filter(|folder| !folder.as_os_str().is_empty());
        let with_ending = [name.as_encoded_bytes(), b"."].concat();
        let is_of_it =
            |found: std::fs::DirEntry| found.file_name().as_encoded_bytes().starts_with(&with_ending);
        let found = std::fs::read_dir(folder.unwrap_or(Path::new(".")));
        is_missing && !found.is_ok_and(|found| found.flatten().any(is_of_it))
    }

    fn read(&self, kind: Kind, input: impl BufRead, context: &mut Context) -> Result {
        let name = self.family.as_deref().unwrap_or(store_arg::DEFAULT);
        let mut importing = Importing::new(self, name, &context.secrets)?;
        let (columns, form) = (&self.columns, context.form);
        let mut sink = |given| importing.add(given);
        let read = match kind {
            Kind::Json => read_json(input, columns, form, &mut sink),
            Kind::Jsonl => read_json_lines(input, columns, form, &mut sink),
            Kind::Tsv => read_csv(input, columns, '\t', form, &mut sink),
            _ => read_csv(input, columns, columns.delimiter, form, &mut sink),
        };
        let report = importing.finish(read, kind.name(), &mut context.out)?;
        report.warn(kind);
        Ok(Answer::from_bool(report.is_complete()))
    }

    /// Imports a source that the Python package reads.
    fn read_by_python(&self, context: &mut Context) -> Result {
        if self.columns.are_given() {
            return usage(
                "the column options apply to CSV and JSON only: give --from csv, tsv, json or jsonl if it is one",
            );
        }
        let python = match python::find() {
            Ok(python) => python,
            Err(_) if self.is_missing() => return Err(self.not_there()),
            Err(without) => return python::refuse(without),
        };
        let target = self.store.path()?;
        let is_on_server = store_arg::is_url(&target);
        let mut reader = Reader::start(&python, &self.python_arguments(&target))?;
        let mut lines = reader.lines();
        let kind = match lines.next() {
            Some(Ok(Line::Source(kind))) => kind,
            Some(Ok(Line::Failed(why))) => return refused(why),
            _ => return refused(INCOMPLETE),
        };
        if kind == "snkv" && self.family.is_some() {
            return usage("families of a snkv file keep their names: leave out --family");
        }
        let name = self.family.as_deref().unwrap_or(store_arg::DEFAULT);
        let mut importing = Importing::new(self, name, &context.secrets)?;
        let (read, advice) = match importing.read_lines(lines, is_on_server) {
            Ok(advice) => (Ok(()), advice),
            Err(failure) => (Err(failure), None),
        };
        let report = importing.finish(read, &kind, &mut context.out)?;
        if let Some(advice) = advice.filter(|_| !context.out.json) {
            say!("kvstore: {advice}");
        }
        Ok(Answer::from_bool(report.is_complete()))
    }

    /// Returns the arguments of the Python module that reads the source.
    fn python_arguments(&self, target: &Path) -> Vec<OsString> {
        let PythonArgs { table, values, unpickle } = &self.python;
        let kind = self.from.map(|kind| kind.name().to_owned());
        let mut arguments: Vec<OsString> = Vec::new();
        for (name, value) in [("--from", &kind), ("--table", table), ("--values", values)] {
            if let Some(value) = value {
                arguments.extend([name.into(), value.into()]);
            }
        }
        if *unpickle {
            arguments.push("--unpickle".into());
        }
        if !store_arg::is_url(target) {
            arguments.extend(["--target".into(), target.into()]);
        }
        arguments.extend(["--".into(), self.source.clone().into_os_string()]);
        arguments
    }
}

/// The state of a running `import`.
struct Importing<'a> {
    args: &'a ImportArgs,
    name: &'a str,
    secrets: &'a Secrets,
    /// The store to write to; `None` until the first entry is written, and with `--dry-run`.
    target: Option<Target>,
    report: Report,
    /// Number of entries written in the open transaction.
    waiting: u64,
    /// Total length of the keys and values of these entries, in bytes.
    bytes: usize,
    /// Number of imported entries in committed transactions.
    committed: u64,
    /// The watch for Ctrl-C; `None` if the source is typed on a terminal, where Ctrl-C ends the
    /// process.
    interrupt: Option<Interrupt>,
    progress: Progress,
}

/// The store that an import writes to, with an open write transaction.
struct Target {
    families: BTreeMap<String, Family>,
    store: Store,
    /// Whether the import has created the store.
    is_made: bool,
}

impl Target {
    fn open(args: &ImportArgs, secrets: &Secrets) -> Result<Target> {
        let path = args.store.path()?;
        let is_made = !path.exists() && !store_arg::is_url(&path);
        let store = args.make.open(&path, &args.store.open, secrets)?;
        store.begin_write()?;
        Ok(Target { families: BTreeMap::new(), store, is_made })
    }

    /// Returns a family, which is opened or created on first use. Fails if it has keys already,
    /// unless `--skip-existing` or `--overwrite` is given.
    fn family(&mut self, name: &str, args: &ImportArgs) -> Result<&Family> {
        match self.families.entry(name.to_owned()) {
            Slot::Occupied(slot) => Ok(slot.into_mut()),
            Slot::Vacant(slot) => {
                let family = match name {
                    store_arg::DEFAULT => self.store.family(name),
                    _ => self.store.get_or_create_family(name),
                }?;
                if !(args.overwrite || args.skip_existing) && has_keys(&family)? {
                    return refused(format!(
                        "family \"{name}\" has keys already: use --skip-existing to keep them, --overwrite to overwrite \
                         them, or another --family"
                    ));
                }
                Ok(slot.insert(family))
            }
        }
    }
}

impl<'a> Importing<'a> {
    fn new(args: &'a ImportArgs, name: &'a str, secrets: &'a Secrets) -> Result<Importing<'a>> {
        let is_typed = args.source.as_os_str() == "-" && io::stdin().is_terminal();
        Ok(Importing {
            args,
            name,
            secrets,
            target: None,
            report: Report::default(),
            waiting: 0,
            bytes: 0,
            committed: 0,
            interrupt: if is_typed { None } else { Some(Interrupt::watch()?) },
            progress: Progress::new("importing entries", None),
        })
    }

    /// Opens the store, unless it is open already or `--dry-run` is given.
    fn open(&mut self) -> Result<()> {
        if self.target.is_none() && !self.args.dry_run {
            self.target = Some(Target::open(self.args, self.secrets)?);
        }
        Ok(())
    }

    /// Imports the entries that the Python package has read, and returns its advice for the user,
    /// if any. `is_on_server` is whether the store is on a server.
    fn read_lines(
        &mut self,
        lines: impl Iterator<Item = serde_json::Result<Line>>,
        is_on_server: bool,
    ) -> Result<Option<String>> {
        let decoded = |text: String| BASE64.decode(text.as_bytes()).or_else(|_| refused(INCOMPLETE));
        for (line, at) in lines.zip(1..) {
            let entry = match line {
                Ok(Line::Entry { key, value, family, expire_ms }) => {
                    // Expiry times are by the clock of this machine, which can differ from the
                    // server's, so they are converted to relative times.
                    let end = expire_ms.map(|ms| match is_on_server {
                        true => Moment::FromNow(ms.saturating_sub(times::now_here_ms())),
                        false => Moment::At(ms),
                    });
                    Ok(Entry { key: decoded(key)?, value: decoded(value)?, end, family })
                }
                Ok(Line::Skipped(why)) => Err(why.into()),
                Ok(Line::End(advice)) => return Ok(advice),
                Ok(Line::Failed(why)) => return refused(why),
                Ok(Line::Source(_)) | Err(_) => break,
            };
            self.add(Given { entry, at, unused: None })?;
        }
        self.check_interrupt()?; // Ctrl-C has ended the Python package, too
        refused(INCOMPLETE)
    }

    /// Commits the last batch and prints the report. `read` is the result of reading the source.
    fn finish(mut self, read: Result<()>, kind: &str, out: &mut Output) -> Result<Report> {
        match read.and_then(|()| self.end()) {
            Err(Failure::Refused(why) | Failure::Busy(why)) => return self.refuse(why),
            read => read?,
        }
        out.ignore_broken_pipe(true);
        self.report.print(kind, self.name, self.args.dry_run, out)?;
        out.flush()?;
        Ok(self.report)
    }

    fn check_interrupt(&self) -> Result<()> {
        match self.interrupt.as_ref().is_some_and(Interrupt::came) {
            true => refused(STOPPED),
            false => Ok(()),
        }
    }

    fn add(&mut self, given: Given) -> Result<()> {
        self.check_interrupt()?;
        self.progress.add(1);
        self.report.at = given.at;
        self.report.unused = self.report.unused.or(given.unused);
        let entry = match given.entry {
            Ok(entry) => entry,
            Err(why) => return self.report.skip(why),
        };
        self.open()?;
        let now_ms = self.target.as_ref().map_or_else(times::now_here_ms, |target| target.store.now_ms());
        let end = entry.end.or(self.args.ttl.map(Moment::after));
        let expire_ms = end.map(|end| end.millis(now_ms));
        if expire_ms.is_some_and(|end| end <= now_ms) {
            return self.report.skip(EXPIRED);
        }
        if entry.key.is_empty() || entry.key.len() > MAX_KEY_SIZE {
            return self.report.skip("a key is empty or longer than 65536 bytes");
        }
        let name = entry.family.as_deref().unwrap_or(self.name);
        if let Some(target) = &mut self.target {
            let family = target.family(name, self.args)?;
            let expiry = expire_ms.map_or(Expiry::Never, Expiry::At);
            let options = PutOptions::new().expiry(expiry);
            let options = if self.args.overwrite { options } else { options.if_absent() };
            self.waiting += 1;
            self.bytes += entry.key.len() + entry.value.len();
            if !family.put_with_options(&entry.key, &entry.value, &options)? {
                if self.args.skip_existing {
                    return self.report.skip(PRESENT);
                }
                // The family was empty before, so an earlier entry of this source has the same key.
                let before = family.expiry(&entry.key)?;
                if let Some(imported) = self.report.imported.get_mut(name) {
                    *imported = imported.saturating_sub(1);
                }
                let had_ttl = before.is_some_and(|end| end.millis().is_some());
                self.report.with_ttl = self.report.with_ttl.saturating_sub(u64::from(had_ttl));
                family.put_with_expiry(&entry.key, &entry.value, expiry)?;
                self.report.skip(AGAIN)?;
            }
        }
        *self.report.imported.entry(name.to_owned()).or_default() += 1;
        self.report.with_ttl += u64::from(end.is_some());
        if self.waiting >= BATCH_ENTRIES || self.bytes >= BATCH_BYTES {
            self.commit()?;
            if let Some(Target { store, .. }) = &self.target {
                store.begin_write()?;
            }
        }
        Ok(())
    }

    fn commit(&mut self) -> Result<()> {
        if let Some(Target { store, .. }) = &self.target {
            store.commit()?;
            self.committed = self.report.imported.values().sum();
        }
        (self.waiting, self.bytes) = (0, 0);
        Ok(())
    }

    /// Commits the last batch. Fails if Ctrl-C was pressed, also at the end of input: Ctrl-C also
    /// stops the program that writes to a pipe, so the input may be incomplete.
    fn end(&mut self) -> Result<()> {
        self.check_interrupt()?;
        if self.report.is_complete() {
            self.open()?; // an empty source creates the store, too
            if let Some(target) = self.target.as_mut().filter(|target| target.families.is_empty()) {
                target.family(self.name, self.args)?;
            }
        }
        self.commit()
    }

    /// Returns the failure with the message `why`, the number of entries that were imported before
    /// it, and what to do.
    fn refuse<T>(self, why: String) -> Result<T> {
        let is_stopped = why == STOPPED;
        let Some(target) = &self.target else {
            return refused(if is_stopped { format!("{why}; nothing was imported") } else { why });
        };
        let path = store_arg::shown(&self.args.store.path()?);
        let again = match (is_stopped, self.args.overwrite) {
            (true, false) => "were imported: use --skip-existing to continue",
            (true, true) => "were imported: run the command again",
            (false, false) => {
                "before it were imported: fix the source, and run the command again with --skip-existing"
            }
            (false, true) => "before it were imported: fix the source, and run the command again",
        };
        refused(match self.committed {
            0 if target.is_made => format!("{why}\n  nothing was imported; {path} was created and is empty"),
            0 => format!("{why}\n  nothing was imported"),
            done => format!("{why}\n  {} entries {again}", count(done)),
        })
    }
}

/// The result of an import.
#[derive(Default)]
struct Report {
    /// Number of imported entries of each family.
    imported: BTreeMap<String, u64>,
    /// Number of imported entries that have an expiry.
    with_ttl: u64,
    /// Number of skipped entries by reason.
    skipped: BTreeMap<Cow<'static, str>, u64>,
    /// Position of the current entry in the source: its line in a CSV, or its number, from 1.
    at: u64,
    /// Position of the first entry skipped for each reason that the user can fix.
    first: BTreeMap<Cow<'static, str>, u64>,
    /// A field of the source that looks like an expiry by its name, but was not imported as one.
    unused: Option<&'static str>,
}

impl Report {
    fn skip(&mut self, why: impl Into<Cow<'static, str>>) -> Result<()> {
        let why = why.into();
        if ![EXPIRED, PRESENT].contains(&&*why) {
            self.first.entry(why.clone()).or_insert(self.at);
        }
        *self.skipped.entry(why).or_default() += 1;
        Ok(())
    }

    /// Returns `true` if all live entries of the source were imported, except those whose key was
    /// already in the target.
    fn is_complete(&self) -> bool {
        self.skipped.keys().all(|why| [EXPIRED, PRESENT].contains(&&**why))
    }

    /// Warns on stderr about skipped entries and unused columns.
    fn warn(&self, kind: Kind) {
        let what = if matches!(kind, Kind::Csv | Kind::Tsv) { "line" } else { "entry" };
        for (why, at) in &self.first {
            say!("kvstore: warning: skipped, first at {what} {at}: {why}");
        }
        if let Some((name, option)) = ENDS.iter().find(|(name, _)| Some(*name) == self.unused) {
            say!(
                "kvstore: warning: the field \"{name}\" of the source was not used: import it with {option} {name}"
            );
        }
    }

    fn print(&self, kind: &str, family: &str, dry_run: bool, out: &mut Output) -> Result<()> {
        if out.json {
            let object_of = |pairs: &mut dyn Iterator<Item = (&str, u64)>| {
                let mut object = Object::new();
                for (name, number) in pairs.filter(|(_, number)| *number > 0) {
                    object.number(name, number);
                }
                String::from_utf8_lossy(object.line()).trim_end().to_owned()
            };
            let imported = object_of(&mut self.imported.iter().map(|(name, number)| (&**name, *number)));
            let skipped = object_of(&mut self.skipped.iter().map(|(why, number)| (&**why, *number)));
            let mut object = Object::new();
            object.text("kind", kind).raw("imported", &imported);
            object.number("with_ttl", self.with_ttl).raw("skipped", &skipped);
            out.object(object.bool("complete", self.is_complete()))?;
            return Ok(());
        }
        let verb = if dry_run { "would be imported" } else { "imported" };
        let into = |(name, number): (&str, u64)| {
            let name = serde_json::Value::from(name); // quoted, without control characters
            (number, format!("{verb} from {kind} into family {name}"))
        };
        let mut lines: Vec<_> = self.imported.iter().map(|(name, number)| into((name, *number))).collect();
        if lines.is_empty() {
            lines.push(into((family, 0)));
        }
        lines.push((self.with_ttl, "of them with a TTL".to_owned()));
        lines.extend(self.skipped.iter().map(|(why, number)| (*number, format!("skipped: {why}"))));
        for (number, what) in lines {
            match out.is_terminal {
                true => out.line(format!("{:>12}  {what}", count(number)))?,
                false => out.line(format!("{number}\t{what}"))?,
            }
        }
        Ok(())
    }
}
