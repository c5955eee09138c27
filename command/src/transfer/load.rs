//! `load`: loads a dump.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal as _};

use clap::Args;
use kvstore::{Config, ErrorKind, Expiry, Family, PutOptions, SizeLimit, Store};

use super::format::{Line, Lines, Read, parse};
use super::resume::{self, Counts, Record, Way};
use super::{all_families, has_keys, report};
use crate::context::Context;
use crate::failure::{Answer, Failure, Result, refused, usage};
use crate::output::{count, keys};
use crate::progress::{Interrupt, Progress};
use crate::store_arg::{MakeArgs, Purpose, StoreFirst, is_url, open_with, shown};

/// Number of lines of the dump between updates of the progress display of `load`.
const LINES: u64 = 1024;

/// Load a dump written by "kvstore dump"
///
/// Loads everything in one transaction: if the dump is invalid or the command is stopped, nothing
/// is loaded. Other processes can read meanwhile, and the log (-wal) grows to the size of the data.
/// With --batch, it does not, and other processes can write between batches.
///
/// Missing families are created with the settings in the dump. A family that has keys is an error,
/// unless --if-absent or --replace is given; it keeps its settings. A family without keys in the
/// dump leaves an existing family unchanged. Expired keys are not loaded, unless --expired is given. The size limit is loaded
/// only if the store is empty and has none.
#[derive(Debug, Args)]
#[command(
    after_help = "With --batch N, every N lines are a transaction. The position is stored in a family \"load in progress\", \
which the last batch drops. To continue an interrupted load, use --resume with the same dump.

Exit status 3: the dump is invalid or truncated, or a store error; the message says how much was loaded.

Examples:
  kvstore load app.db app.jsonl
  zcat app.jsonl.gz | kvstore load app.db
  kvstore load app.db sessions.jsonl --family sessions2 --replace
  kvstore load app.db huge.jsonl --batch 100000 --resume"
)]
pub struct LoadArgs {
    #[command(flatten)]
    store: StoreFirst,
    /// Dump to load; "-" or nothing for standard input
    #[arg(value_name = "FILE", default_value = "-", hide_default_value = true, value_hint = clap::ValueHint::FilePath)]
    file: String,
    /// Load into this family; the dump must have keys of one family only
    #[arg(short, long, value_name = "NAME")]
    family: Option<String>,
    /// Keep existing keys
    #[arg(long, alias = "skip-existing", conflicts_with = "replace")]
    if_absent: bool,
    /// Overwrite existing keys
    #[arg(long, alias = "overwrite")]
    replace: bool,
    /// Commit after every N lines
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    batch: Option<u64>,
    /// Continue an interrupted load in batches
    #[arg(long, requires = "batch")]
    resume: bool,
    /// Load keys that have expired, too: they use space until they are purged
    #[arg(long)]
    expired: bool,
    #[command(flatten)]
    make: MakeArgs,
}

impl LoadArgs {
    pub fn run(&self, context: &mut Context) -> Result {
        if self.file != "-" {
            let file = File::open(&self.file)
                .map_err(|e| Failure::Refused(format!("cannot open {}: {e}: check the path", self.file)))?;
            let total = file.metadata().ok().filter(std::fs::Metadata::is_file).map(|of| of.len());
            return self.load(BufReader::with_capacity(1 << 16, file), total, context);
        }
        context.take_stdin("the dump")?;
        if io::stdin().is_terminal() {
            return usage(
                "no dump is given: name its file, as in \"kvstore load STORE FILE\", or pipe one in",
            );
        }
        self.load(io::stdin().lock(), None, context)
    }

    fn load(&self, input: impl BufRead, total: Option<u64>, context: &mut Context) -> Result {
        let mut lines = Lines::new(input, self.batch.is_some());
        // Checked before the store is created.
        let limit = match lines.next()? {
            Read::Nothing => {
                return refused("the dump is empty; nothing was loaded");
            }
            Read::Line(line) | Read::Unfinished(line) => match parse(line) {
                Ok(Line::Header { limit }) => limit,
                Ok(_) => {
                    return refused(
                        "line 1: not the header of a dump, {\"kvstore_dump\":1,...}: check the file; nothing was loaded",
                    );
                }
                Err(why) => {
                    return refused(format!(
                        "line 1: {why}: check that the file is a dump; nothing was loaded"
                    ));
                }
            },
        };
        // A long transaction needs no larger cache than this. No memory map: its pages would count
        // as memory.
        let config = Config::new().mmap_size(0).cache_pages(1500);
        let path = self.store.path()?;
        let is_made = !path.exists() && !is_url(&path);
        let store =
            open_with(&path, Purpose::Create, &self.store.open, &context.secrets, self.make.config(config))?;
        if self.expired && is_url(&path) {
            return usage("--expired is for files: a server uses its own clock, and removes expired keys");
        }
        let mut loading = Loading::begin(&store, self, limit)?;
        let progress = Progress::new("loading, bytes", total);
        let interrupt = Interrupt::watch()?;
        let done = loading.skip(&mut lines, &interrupt);
        let done = done.and_then(|()| loading.lines(&mut lines, progress, &interrupt));
        match done {
            Ok(()) => {}
            Err(Failure::Refused(why)) => {
                drop(loading.family.take());
                let committed = loading.committed.as_ref().map_or(0, |record| record.counts.keys());
                return refused(match committed {
                    0 if is_made => {
                        format!("{why}\n  nothing was loaded; {} was created and is empty", shown(&path))
                    }
                    0 => format!("{why}\n  nothing was loaded"),
                    done => format!(
                        "{why}\n  {} were loaded, in complete batches: --resume continues after them",
                        keys(done)
                    ),
                });
            }
            Err(other) => return Err(other),
        }
        let Counts { families, loaded, expired, present, evicted } = loading.counts;
        let mut text = format!("{} loaded, in {} families", keys(loaded), count(families));
        for (number, what) in
            [(expired, "had expired"), (present, "existed and were kept"), (evicted, "were evicted")]
        {
            if number > 0 {
                text.push_str(&format!("; {} {what}", count(number)));
            }
        }
        let numbers = [
            ("loaded", loaded),
            ("families", families),
            ("expired", expired),
            ("present", present),
            ("evicted", evicted),
        ];
        report(&mut context.out, &text.replace(" 1 families", " 1 family"), &numbers)?;
        Ok(Answer::Yes)
    }
}

/// A running `load` of a dump. A write transaction is open on the store.
struct Loading<'a> {
    store: &'a Store,
    way: Way,
    batch: Option<u64>,
    /// The family into which the current keys of the dump are loaded. It is opened at its first
    /// key; `None` before that.
    family: Option<Family>,
    /// The settings of the last family line, until the first key of that family is read. A family
    /// can have no keys.
    waiting: Option<Settings>,
    /// The names in all family lines so far, to refuse a name that occurs twice.
    seen: HashSet<String>,
    /// The position after the last committed batch; `None` before the first.
    committed: Option<Record>,
    /// Whether the store had no keys and no size limit before the load, so that it gets the size
    /// limit of the dump.
    into_new: bool,
    /// The size limit in the header of the dump.
    limit: Option<SizeLimit>,
    /// The name that the current family has in the dump.
    source: String,
    counts: Counts,
    /// The store's statistic of evicted keys when it was last read. Later evictions are not yet in
    /// `counts`.
    evicted_before: u64,
}

/// The settings in a family line of a dump.
#[derive(Clone, Copy)]
struct Settings {
    default_ttl_ms: Option<u64>,
    track_writes: bool,
    /// The number of the family line, for error messages.
    line: u64,
}

impl Settings {
    fn give(self, family: &Family) -> Result<()> {
        let ttl = self.default_ttl_ms.map(std::time::Duration::from_millis);
        if family.default_ttl()? != ttl {
            family.set_default_ttl(ttl).map_err(|e| at_line(self.line, e))?;
        }
        if self.track_writes {
            family.set_write_tracking(true)?;
        }
        Ok(())
    }
}

impl<'a> Loading<'a> {
    fn begin(store: &'a Store, args: &'a LoadArgs, limit: Option<SizeLimit>) -> Result<Loading<'a>> {
        store.begin_write()?;
        let record = Record::read(store)?;
        if let (Some(record), false) = (&record, args.resume) {
            return refused(format!(
                "a load into this store was interrupted after {}: continue it with --batch N --resume and the same dump, or \
                 drop the family \"{}\" to give it up; nothing was loaded",
                keys(record.counts.keys()),
                resume::FAMILY
            ));
        }
        let mut into_new = store.size_limit()?.is_none();
        if record.is_none() {
            for name in all_families(store)? {
                into_new = into_new && !has_keys(&store.family(&name)?)?;
            }
        }
        let asked = Way {
            family: args.family.clone(),
            if_absent: args.if_absent,
            replace: args.replace,
            expired: args.expired,
        };
        let way = record.as_ref().and_then(|record| record.way.clone()).unwrap_or_else(|| asked.clone());
        let is_another = |asked: bool, was: bool| asked && !was;
        if asked.family.is_some() && asked.family != way.family
            || is_another(asked.if_absent, way.if_absent)
            || is_another(asked.replace, way.replace)
            || is_another(asked.expired, way.expired)
        {
            return refused(format!(
                "the interrupted load was started {}, and must continue with the same options: change the options; nothing was \
                 loaded",
                way.said()
            ));
        }
        let mut loading = Loading {
            store,
            way,
            batch: args.batch,
            family: None,
            waiting: None,
            seen: HashSet::new(),
            committed: None,
            into_new,
            limit,
            source: String::new(),
            counts: Counts::default(),
            evicted_before: store.stats()?.evicted,
        };
        if let Some(record) = record {
            loading.into_new = record.into_new;
            loading.counts = record.counts.clone();
            loading.committed = Some(record);
        }
        Ok(loading)
    }

    /// Skips the lines of the dump that the interrupted load has loaded, if this load continues
    /// one. Fails if they differ from the lines that the interrupted load read.
    fn skip<R: BufRead>(&mut self, lines: &mut Lines<R>, interrupt: &Interrupt) -> Result<()> {
        let Some(record) = self.committed.clone() else { return Ok(()) };
        while lines.number < record.lines {
            if interrupt.came() {
                return refused("stopped");
            }
            if let Read::Nothing = lines.next()? {
                break;
            }
        }
        if (lines.number, lines.hash()) != (record.lines, record.hash) {
            return refused(format!(
                "this is not the dump of the interrupted load, because its first {} lines differ: give that dump",
                count(record.lines)
            ));
        }
        self.source = record.family;
        let name = self.way.family.as_deref().unwrap_or(&self.source);
        self.family = Some(self.store.family(name)?);
        Ok(())
    }

    fn lines<R: BufRead>(
        &mut self,
        lines: &mut Lines<R>,
        mut progress: Progress,
        interrupt: &Interrupt,
    ) -> Result<()> {
        let now_ms = self.store.now_ms();
        if self.way.expired {
            // At time 0 no key has expired. At the real time, a write of an expired key would store
            // nothing, and a read would remove it.
            self.store.set_clock(|| 0);
        }
        let mut of_batch = 0;
        loop {
            let number = lines.number + 1;
            let read = lines.next()?;
            // Checked at the end of input, too: Ctrl-C also stops the program that writes to a
            // pipe.
            if interrupt.came() {
                return refused("stopped");
            }
            let line = match read {
                Read::Nothing => return refused(cut_off(number)),
                Read::Unfinished(line) => match parse(line) {
                    Ok(line) => line,
                    Err(_) => return refused(cut_off(number)),
                },
                Read::Line(line) if line.iter().all(u8::is_ascii_whitespace) => continue,
                Read::Line(line) => {
                    parse(line).map_err(|why| Failure::Refused(format!("line {number}: {why}")))?
                }
            };
            match line {
                Line::Row { key, value, expire_ms, written_ms } => {
                    let is_expired = expire_ms.is_some_and(|end| end <= now_ms && end > 0);
                    if is_expired && !self.way.expired {
                        self.open_waiting(number)?;
                        self.counts.expired += 1;
                    } else {
                        let written_ms = written_ms.or(self.way.expired.then_some(now_ms));
                        self.row(&key, &value, expire_ms, written_ms, number)?;
                    }
                    of_batch += 1;
                }
                Line::Family { name, default_ttl_ms, track_writes } => {
                    let name = name.into_owned();
                    self.family_line(name, Settings { default_ttl_ms, track_writes, line: number })?;
                }
                Line::Header { .. } => {
                    return refused(format!("line {number}: a second header: load one dump at a time"));
                }
                Line::End { families, keys } => {
                    self.make_waiting()?;
                    self.end(families, keys, number)?;
                    return self.nothing_after(lines);
                }
            }
            if number.is_multiple_of(LINES) {
                progress.set(lines.bytes);
            }
            if self.batch == Some(of_batch) {
                of_batch = 0;
                self.commit(lines)?;
            }
        }
    }

    fn family_line(&mut self, name: String, settings: Settings) -> Result<()> {
        self.make_waiting()?;
        if !self.seen.insert(name.clone()) {
            return refused(format!("line {}: the family \"{name}\" occurs twice", settings.line));
        }
        self.source = name;
        self.waiting = Some(settings);
        if self.way.family.is_none() {
            self.counts.families += 1;
        }
        Ok(())
    }

    /// Handles the last family line if no key followed it: creates the family with the settings in
    /// the dump, or leaves an existing family unchanged. (In a store without keys and size limit,
    /// an existing family without a default TTL also gets the settings, because every store has the
    /// family "default".)
    fn make_waiting(&mut self) -> Result<()> {
        let Some(settings) = self.waiting.take() else { return Ok(()) };
        if self.way.family.is_some() {
            return Ok(());
        }
        let (family, is_made) = self.find(&self.source, settings.line)?;
        if is_made || self.into_new && family.default_ttl()?.is_none() {
            settings.give(&family)?;
        }
        Ok(())
    }

    /// Opens the family of the last family line, unless it is open. Called for each key of the
    /// dump; `number` is the line of the key. Fails if the family has keys already, unless
    /// `--if-absent` or `--replace` is given.
    fn open_waiting(&mut self, number: u64) -> Result<()> {
        let Some(settings) = self.waiting.take() else { return Ok(()) };
        if self.way.family.is_some() {
            if self.family.is_some() {
                return refused(format!(
                    "line {number}: the dump has keys of several families: load it without --family, or dump one family with \
                     \"kvstore dump -f NAME\""
                ));
            }
            self.counts.families += 1;
        }
        let name = self.way.family.as_deref().unwrap_or(&self.source);
        let (family, is_made) = self.find(name, settings.line)?;
        if is_made || !has_keys(&family)? {
            settings.give(&family)?;
        } else if !self.way.if_absent && !self.way.replace {
            return refused(format!(
                "the family \"{name}\" has keys already: use --if-absent to keep them, --replace to overwrite those in the \
                 dump, or another --family"
            ));
        }
        self.family = Some(family);
        Ok(())
    }

    /// Opens the family `name`, or creates it. The returned `bool` is `true` if it was created.
    /// `line` is the line of the dump that error messages name.
    fn find(&self, name: &str, line: u64) -> Result<(Family, bool)> {
        match self.store.family(name) {
            Err(e) if e.kind() == ErrorKind::NotFound => {
                Ok((self.store.get_or_create_family(name).map_err(|e| at_line(line, e))?, true))
            }
            family => Ok((family.map_err(|e| at_line(line, e))?, false)),
        }
    }

    fn row(
        &mut self,
        key: &[u8],
        value: &[u8],
        expire_ms: Option<i64>,
        written_ms: Option<i64>,
        number: u64,
    ) -> Result<()> {
        self.open_waiting(number)?;
        let Some(family) = &self.family else {
            return refused(format!("line {number}: a key before the first family line"));
        };
        let mut options = PutOptions::new().expiry(expire_ms.map_or(Expiry::Never, Expiry::At));
        if let Some(written_ms) = written_ms {
            options = options.written_at(written_ms);
        }
        if self.way.if_absent {
            options = options.if_absent();
        }
        match family.put_with_options(key, value, &options).map_err(|e| at_line(number, e))? {
            true => self.counts.loaded += 1,
            false => self.counts.present += 1,
        }
        Ok(())
    }

    /// Commits a batch together with the position after it, and begins the next transaction.
    fn commit<R: BufRead>(&mut self, lines: &Lines<R>) -> Result<()> {
        self.count_evicted()?;
        let record = Record {
            lines: lines.number,
            hash: lines.hash(),
            family: self.source.clone(),
            way: Some(self.way.clone()),
            into_new: self.into_new,
            counts: self.counts.clone(),
        };
        record.write(self.store)?;
        self.store.commit()?;
        self.committed = Some(record);
        Ok(self.store.begin_write()?)
    }

    fn end(&mut self, families: u64, keys: u64, number: u64) -> Result<()> {
        if self.way.family.is_none() && self.counts.families != families || self.counts.keys() != keys {
            return refused(format!(
                "line {number}: the dump should have {keys} keys in {families} families and has {} in {}: lines are missing or \
                 were added",
                self.counts.keys(),
                self.counts.families
            ));
        }
        self.count_evicted()?;
        Ok(())
    }

    /// Checks that only white space follows the end line, sets the size limit of the dump if the
    /// store was empty and had none, and commits.
    fn nothing_after<R: BufRead>(&mut self, lines: &mut Lines<R>) -> Result<()> {
        loop {
            match lines.next()? {
                Read::Nothing => break,
                Read::Line(line) | Read::Unfinished(line) if line.iter().all(u8::is_ascii_whitespace) => {}
                _ => {
                    return refused(format!("line {}: text after the end of the dump", lines.number));
                }
            }
        }
        Record::remove(self.store)?; // before the limit is set: the record takes space, too
        if let Some(limit) = self.limit.filter(|_| self.into_new)
            && self.store.size_limit()?.is_none()
        {
            kvstore::internal::take_size_limit(self.store, limit).map_err(|e| at_line(1, e))?;
        }
        Ok(self.store.commit()?)
    }

    fn count_evicted(&mut self) -> Result<()> {
        let evicted = self.store.stats()?.evicted;
        self.counts.evicted += evicted - self.evicted_before;
        self.evicted_before = evicted;
        Ok(())
    }
}

fn cut_off(line: u64) -> String {
    format!("the dump is truncated at line {line}: its last line, {{\"end\":true,...}}, is missing")
}

/// Converts a store error to a failure. If line `number` of the dump may have caused the error, its
/// message begins with that number.
fn at_line(number: u64, error: kvstore::Error) -> Failure {
    match error.kind() {
        ErrorKind::Error => Failure::in_context(&format!("line {number}: "), &error).into_refused(),
        _ => error.into(),
    }
}
