//! `dump`: writes a store as JSON lines.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, IsTerminal as _, Read as _, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use kvstore::{Config, Direction, KeyRange, Store};

use super::{all_families, format, report, resume};
use crate::context::Context;
use crate::failure::{Answer, Failure, Result, refused, usage};
use crate::json::Object;
use crate::output::{count, keys, size};
use crate::progress::{Interrupt, Progress};
use crate::store_arg::{
    Purpose, StoreArgs, family, is_url, must_be_creatable, must_name_a_file, open_with, shown,
};
use crate::system;

/// Maximum number of rows that `dump` fetches from the store at once.
const ROWS: usize = 512;

/// Write everything as JSON lines, for "kvstore load"
///
/// Writes one snapshot, while other processes read and write. Expired keys are left out, unless --expired is given. The format
/// is stable: every later version loads it. The last line has the number of keys, so that "kvstore
/// load" detects a truncated dump.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kvstore dump app.db > app.jsonl
  kvstore dump app.db -o app.jsonl             creates the file when the dump is complete
  kvstore dump app.db -f sessions --prefix eu: | gzip > sessions.gz
  kvstore dump old.db | kvstore load new.db")]
pub struct DumpArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// Only this family; can be repeated [default: all]
    #[arg(short, long = "family", value_name = "NAME")]
    families: Vec<String>,
    /// Only keys that start with PREFIX
    #[arg(long, value_name = "PREFIX")]
    prefix: Option<String>,
    /// File to write; only an existing dump is replaced; "-" is standard output
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    output: Option<PathBuf>,
    /// Also keys that have expired and are not purged yet; "kvstore load --expired" loads them
    #[arg(long)]
    expired: bool,
}

/// The numbers of families and keys in a dump, and its length in bytes.
struct Dumped {
    families: u64,
    keys: u64,
    bytes: u64,
}

impl DumpArgs {
    pub fn run(&self, context: &mut Context) -> Result {
        let prefix = self.prefix.as_deref().map(|prefix| context.form.parse(prefix, "prefix")).transpose()?;
        let range = prefix.as_deref().map_or_else(KeyRange::all, KeyRange::prefix);
        let path = self.store.path()?;
        let output = self.output.as_ref().filter(|output| output.as_os_str() != "-");
        if let Some(output) = output {
            let copy = format!("\"kvstore copy {} URL\" copies to a server", shown(&path));
            must_name_a_file(output, "a dump", &copy)?;
            must_be_creatable(output)?;
        }
        if self.expired && is_url(&path) {
            return usage("--expired is for files: a server uses its own clock");
        }
        // No memory map: its pages would count as memory of the process, up to the size of the
        // store.
        let store =
            open_with(&path, Purpose::Read, &self.store.open, &context.secrets, Config::new().mmap_size(0))?;
        if let Some(what) = resume::unfinished(&store)? {
            say!(
                "kvstore: warning: the store is incomplete, because a {what} to it was not finished; dumping what it has"
            );
        }
        let Some(to) = output else {
            let out = &mut context.out;
            let quiet = out.is_terminal;
            self.dump(&store, &range, quiet, &mut |line| out.bytes(line).map_err(Failure::from))?;
            return Ok(Answer::Yes);
        };
        let interrupt = Interrupt::watch()?;
        let mut file = Target::create(to, &path)?;
        let dumped = self.dump(&store, &range, false, &mut |line| {
            if interrupt.came() {
                return refused("stopped: no dump was written");
            }
            file.to.write_all(line).map_err(|e| failed_to_write(to, e))
        })?;
        file.finish().map_err(|e| failed_to_write(to, e))?;
        let Dumped { families, keys: dumped_keys, bytes } = dumped;
        let text = format!(
            "{} in {} families dumped to {} ({})",
            keys(dumped_keys),
            count(families),
            to.display(),
            size(bytes)
        );
        let text = if families == 1 { text.replace("1 families", "1 family") } else { text };
        report(&mut context.out, &text, &[("keys", dumped_keys), ("families", families), ("bytes", bytes)])?;
        Ok(Answer::Yes)
    }

    /// Dumps the store, and passes each line with its newline to `write`. Shows no progress display
    /// if `quiet`.
    fn dump(
        &self,
        store: &Store,
        range: &KeyRange,
        quiet: bool,
        write: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<Dumped> {
        let dumped_ms = store.now_ms();
        if self.expired {
            store.set_clock(|| 0); // at time 0, no key has expired
        }
        store.snapshot(|store| {
            let mut names =
                if self.families.is_empty() { all_families(store)? } else { self.families.clone() };
            names.retain(|name| ![resume::FAMILY, resume::COPY].contains(&name.as_str()));
            let mut bytes = 0;
            let mut put = |object: &mut Object| {
                let line = object.line();
                bytes += line.len() as u64;
                write(line)
            };
            let mut object = Object::new();
            put(format::write_header(&mut object, store.size_limit()?, dumped_ms))?;
            let mut progress = (!quiet).then(|| self.progress(store, &names)).transpose()?;
            let mut seen = std::collections::HashSet::new();
            let (mut families, mut keys, mut total) = (0, 0, 0);
            for name in names.iter().filter(|name| seen.insert(name.as_str())) {
                let family = family(store, name)?;
                let tracks = family.tracks_writes()?;
                let default_ttl_ms = family.default_ttl()?.map(|ttl| ttl.as_millis() as u64);
                put(format::write_family(&mut object, name, default_ttl_ms, tracks, family.created_ms()?))?;
                families += 1;
                let mut cursor = family.cursor(range.clone(), Direction::Forward);
                cursor.first()?;
                loop {
                    let before = total;
                    for entry in cursor.fetch(ROWS)? {
                        let mut written_ms = None;
                        if tracks {
                            written_ms = family.write_time(entry.key)?;
                            if written_ms.is_none() {
                                total += 1; // has expired since
                                continue;
                            }
                        }
                        let (value, expire_ms) = (entry.value.unwrap_or_default(), entry.expiry.millis());
                        put(format::write_row(&mut object, entry.key, value, expire_ms, written_ms))?;
                        total += 1;
                        keys += 1;
                    }
                    if total == before {
                        break;
                    }
                    if let Some(progress) = &mut progress {
                        progress.add(total - before);
                    }
                }
            }
            put(format::write_end(&mut object, families, keys))?;
            Ok(Dumped { families, keys, bytes })
        })
    }

    fn progress(&self, store: &Store, names: &[String]) -> Result<Progress> {
        let mut total = None;
        if self.prefix.is_none() && io::stderr().is_terminal() {
            let counts = names.iter().map(|name| Ok(family(store, name)?.count()?));
            total = Some(counts.sum::<Result<u64>>()?);
        }
        Ok(Progress::new("dumping keys", total))
    }
}

/// Returns `true` if the file is empty or a dump, so that a new dump may replace it.
fn is_dump(path: &Path) -> io::Result<bool> {
    let mut begin = Vec::new();
    File::open(path)?.take(format::BEGIN.len() as u64).read_to_end(&mut begin)?;
    Ok(begin.is_empty() || begin == format::BEGIN)
}

fn failed_to_write(to: &Path, error: io::Error) -> Failure {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return error.into();
    }
    Failure::Refused(format!("{}: {error}", to.display()))
}

/// The output file of a dump. It is written under a temporary name and renamed when it is complete.
/// A pipe or device is written to directly.
struct Target<'p> {
    to: BufWriter<File>,
    /// The temporary path, and the path that the user has given; `None` for a pipe or device, and
    /// after the rename.
    names: Option<(PathBuf, &'p Path)>,
}

impl<'p> Target<'p> {
    fn create(path: &'p Path, store: &Path) -> Result<Target<'p>> {
        let said = |e: io::Error| failed_to_write(path, e);
        let there = fs::metadata(path).ok();
        for suffix in ["", "-wal", "-shm", "-journal"] {
            let mut name = fs::canonicalize(store).unwrap_or_else(|_| store.to_owned()).into_os_string();
            name.push(suffix);
            if system::is_one_file(path, Path::new(&name)) {
                return usage(format!(
                    "{} is a file of the store itself: dump to another file",
                    path.display()
                ));
            }
        }
        if system::is_device(path) || there.as_ref().is_some_and(fs::Metadata::is_dir) {
            let file = OpenOptions::new().write(true).open(path).map_err(said)?;
            return Ok(Target { to: BufWriter::with_capacity(1 << 16, file), names: None });
        }
        if there.is_some() && !is_dump(path).map_err(said)? {
            return usage(format!(
                "{} exists and is not a dump: dump to another file, or remove it first (to copy to another store, use \
                 \"kvstore copy\")",
                path.display()
            ));
        }
        // A symbolic link is kept, and its target replaced.
        let Some(name) = path.file_name() else {
            return usage(format!("{} is not a file name: give the name of a file", path.display()));
        };
        let whole = if there.is_some() { fs::canonicalize(path).map_err(said)? } else { path.to_owned() };
        let mut partial = whole.file_name().unwrap_or(name).to_owned();
        partial.push(OsStr::new(&format!(".{}.partial", std::process::id())));
        let partial = whole.with_file_name(partial);
        // The file gets the permissions of the store.
        let file = system::create_as_private_as(store, &partial).map_err(said)?;
        Ok(Target { to: BufWriter::with_capacity(1 << 16, file), names: Some((partial, path)) })
    }

    fn finish(mut self) -> io::Result<()> {
        self.to.flush()?;
        if let Some((partial, path)) = &self.names {
            self.to.get_ref().sync_all()?;
            let whole = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
            fs::rename(partial, &whole)?;
            let directory = whole.parent().filter(|directory| !directory.as_os_str().is_empty());
            system::sync_directory(directory.unwrap_or(Path::new(".")))?;
            self.names = None;
        }
        Ok(())
    }
}

impl Drop for Target<'_> {
    fn drop(&mut self) {
        if let Some((partial, _)) = &self.names {
            let _ = fs::remove_file(partial);
        }
    }
}
