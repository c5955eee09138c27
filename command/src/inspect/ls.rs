//! `ls` and `scan`.

use std::io::Write as _;

use clap::Args;
use kvstore::{Direction, Entry, Expiry, Family, KeyRange, Store};

use crate::bytes::Form;
use crate::context::Context;
use crate::failure::{Answer, Result};
use crate::json::Object;
use crate::output::{BOLD, DIM, note, size};
use crate::range::ListedArgs;
use crate::store_arg::{FamilyArgs, Purpose, StoreArgs};
use crate::times;

/// Maximum number of bytes of a value that `scan` shows on a terminal.
const SHOWN: usize = 160;

#[derive(Debug, Args)]
struct RowsArgs {
    #[command(flatten)]
    range: ListedArgs,
    /// Only expired keys that have not been purged, in order of expiry
    #[arg(long, help_heading = "Key selection")]
    expired: bool,
    /// Only keys without a TTL
    #[arg(long, conflicts_with = "expired", help_heading = "Key selection")]
    no_ttl: bool,
    /// In descending order
    #[arg(short, long, conflicts_with = "expired", help_heading = "Key selection")]
    reverse: bool,
    /// At most N keys
    #[arg(short = 'n', long, value_name = "N", help_heading = "Key selection")]
    limit: Option<u64>,
    #[command(flatten)]
    family: FamilyArgs,
}

/// List keys in order
///
/// With --long, also the size of the value, the time left, and the age in a family that tracks
/// write times. In a pipe, --long prints tab-separated fields: key, bytes, milliseconds left (or
/// "never"), milliseconds since the write.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kvstore ls app.db user: -l                  keys that start with \"user:\"
  kvstore ls app.db --from 2026-07 --to 2026-08 -f log
  kvstore ls app.db --reverse --limit 10      the last ten keys
  kvstore ls app.db --no-ttl                  keys that never expire
  kvstore ls app.db --expired                 keys that a purge would remove")]
pub struct LsArgs {
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    rows: RowsArgs,
    /// Also print size, time left and age
    #[arg(short, long)]
    long: bool,
}

impl LsArgs {
    pub fn run(&self, context: &mut Context) -> Result {
        let store = self.store.open(Purpose::Read, &context.secrets)?;
        let family = self.rows.family.of(&store)?;
        let shape = match self.long {
            true => Shape::Long { tracked: family.tracks_writes()? },
            false => Shape::Keys,
        };
        list(context, &store, &family, &self.rows, shape)
    }
}

/// Print keys and values in key order
///
/// One entry per line, key and value separated by a tab, special characters escaped (or in hex or
/// base64). On a terminal, long values are truncated. Values of expired keys are not printed.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kvstore scan app.db user:
  kvstore scan app.db --json | jq -r .value
  kvstore scan app.db --base64 | while IFS=$'\\t' read -r key value; do ...; done")]
pub struct ScanArgs {
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    rows: RowsArgs,
    /// Print keys only
    #[arg(short, long)]
    keys: bool,
}

impl ScanArgs {
    pub fn run(&self, context: &mut Context) -> Result {
        let store = self.store.open(Purpose::Read, &context.secrets)?;
        let family = self.rows.family.of(&store)?;
        let shape = if self.keys || self.rows.expired { Shape::Keys } else { Shape::Values };
        list(context, &store, &family, &self.rows, shape)
    }
}

/// The columns that `ls` and `scan` print: keys; keys and values; or keys with size, time left and,
/// if the family tracks write times (`tracked`), age.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    Keys,
    Values,
    Long { tracked: bool },
}

fn list(context: &mut Context, store: &Store, family: &Family, rows: &RowsArgs, shape: Shape) -> Result {
    let range = rows.range.range(context.form)?;
    let mut cursor = match (rows.expired, rows.reverse) {
        (true, _) => family.expiry_cursor(i64::MIN, store.now_ms().saturating_add(1)),
        (_, true) => family.cursor(range.clone(), Direction::Reverse),
        _ => family.cursor(range.clone(), Direction::Forward),
    };
    if shape == Shape::Keys {
        cursor = cursor.keys_only();
    }
    // A scan in order of expiry also visits keys outside the range.
    let wanted: Option<&KeyRange> = Some(&range).filter(|_| rows.expired && rows.range.is_given());
    let mut left = rows.limit.unwrap_or(u64::MAX);
    let mut shown = false;
    let mut lines = Lines::new(context, family, shape);
    if left > 0 {
        cursor.first()?;
    }
    while left > 0 {
        // With a filter, more keys must be read than are printed.
        let most = if rows.no_ttl { usize::MAX } else { usize::try_from(left).unwrap_or(usize::MAX) };
        let fetched = cursor.fetch(most)?;
        if fetched.len() == 0 {
            break;
        }
        lines.now_ms = store.now_ms();
        for entry in fetched {
            let is_wanted = wanted.is_none_or(|range| range.contains(entry.key));
            if is_wanted && left > 0 && (!rows.no_ttl || entry.expiry == Expiry::Never) {
                lines.add(entry)?;
                left -= 1;
            }
        }
        if !shown
            && !lines.text.is_empty()
            && let Some(head) = Lines::head(context, shape)
        {
            context.out.line(head)?;
        }
        shown |= !lines.text.is_empty();
        context.out.bytes(&lines.text)?;
        lines.text.clear();
    }
    if !shown && context.out.is_for_people() {
        hint_if_empty(store, family)?;
        if let Some(pattern) = rows.range.prefix().filter(|prefix| prefix.ends_with('*')) {
            note(&format!("\"{pattern}\" is a prefix, not a pattern: leave out the '*'"));
        }
    }
    Ok(Answer::Yes)
}

/// If the default family is empty and there are more families, suggests to select one.
fn hint_if_empty(store: &Store, family: &Family) -> Result<()> {
    let others = store.family_names()?.len();
    let is_default = family.name() == store.default_family().name();
    if is_default && others > 0 && !family.cursor(KeyRange::all(), Direction::Forward).keys_only().first()? {
        let others =
            if others == 1 { "one more family".to_owned() } else { format!("{others} more families") };
        say!(
            "kvstore: family \"default\" is empty, but the store has {others}: select one with -f; \"kvstore families\" \
             lists them"
        );
    }
    Ok(())
}

/// Formats the lines of a listing into one buffer, without an allocation per line.
struct Lines<'f> {
    family: &'f Family,
    shape: Shape,
    form: Form,
    json: bool,
    for_people: bool,
    /// Escape sequences that switch dimmed text on and off.
    dim: (String, String),
    now_ms: i64,
    text: Vec<u8>,
    object: Object,
}

impl<'f> Lines<'f> {
    fn new(context: &Context, family: &'f Family, shape: Shape) -> Lines<'f> {
        let painted = context.out.paint(DIM, "\n");
        let dim = painted.split_once('\n').unwrap_or_default();
        Lines {
            family,
            shape,
            form: context.form,
            json: context.out.json,
            for_people: context.out.is_for_people(),
            dim: (dim.0.to_owned(), dim.1.to_owned()),
            now_ms: 0,
            text: Vec::new(),
            object: Object::new(),
        }
    }

    /// Returns the header of a long listing on a terminal; `None` for other listings, and in a
    /// pipe.
    fn head(context: &Context, shape: Shape) -> Option<String> {
        let Shape::Long { tracked } = shape else { return None };
        let age = if tracked { format!("  {:>11}", "AGE") } else { String::new() };
        let line = context.out.paint(BOLD, format!("{:>9}  {:>11}{age}  KEY", "SIZE", "LEFT"));
        context.out.is_for_people().then_some(line)
    }

    fn add(&mut self, entry: Entry<'_>) -> Result<()> {
        let written_ms = match self.shape {
            Shape::Long { tracked: true } => self.family.write_time(entry.key)?,
            _ => None,
        };
        if self.json {
            self.add_object(entry, written_ms);
            return Ok(());
        }
        if let (true, Shape::Long { tracked }) = (self.for_people, self.shape) {
            self.add_columns(entry, tracked, written_ms);
        }
        self.form.write(entry.key, &mut self.text);
        match (self.shape, entry.value) {
            (Shape::Values, Some(value)) => self.add_value(value),
            (Shape::Long { tracked }, Some(value)) if !self.for_people => {
                let _ = write!(self.text, "\t{}\t", value.len()); // to a Vec: cannot fail
                let _ = match entry.expiry {
                    Expiry::Never => self.text.write_all(b"never"),
                    Expiry::At(end) => write!(self.text, "{}", end.saturating_sub(self.now_ms).max(0)),
                };
                let age = written_ms.map(|written| self.now_ms.saturating_sub(written).max(0));
                let _ = match age {
                    Some(age) => write!(self.text, "\t{age}"),
                    None if tracked => self.text.write_all(b"\t"),
                    None => Ok(()),
                };
            }
            _ => {}
        }
        self.text.push(b'\n');
        Ok(())
    }

    fn add_value(&mut self, value: &[u8]) {
        self.text.push(b'\t');
        match value.get(..SHOWN) {
            Some(start) if self.for_people && value.len() > SHOWN => {
                // Do not cut inside a UTF-8 sequence.
                let cut = start.utf8_chunks().last().map_or(0, |chunk| chunk.invalid().len());
                let kept = if cut < 4 { start.len() - cut } else { start.len() };
                self.form.write(start.get(..kept).unwrap_or(start), &mut self.text);
                let (on, off) = &self.dim;
                let _ = write!(self.text, "{on}… {}{off}", size(value.len() as u64));
            }
            _ => self.form.write(value, &mut self.text),
        }
    }

    /// Appends the columns before the key to the buffer: size, time left and, if `tracked`, age.
    fn add_columns(&mut self, entry: Entry<'_>, tracked: bool, written_ms: Option<i64>) {
        let left = match entry.expiry.millis() {
            None => "never".to_owned(),
            Some(end) if end <= self.now_ms => times::from_now(end, self.now_ms),
            Some(end) => times::duration(end.abs_diff(self.now_ms)),
        };
        let size = size(entry.value.map_or(0, |value| value.len() as u64));
        let (on, off) = &self.dim;
        let _ = write!(self.text, "{size:>9}  {on}{left:>11}");
        if tracked {
            let age = written_ms.map(|written| self.now_ms.saturating_sub(written).max(0).unsigned_abs());
            let _ = write!(self.text, "  {:>11}", age.map(times::duration).unwrap_or_default());
        }
        let _ = write!(self.text, "{off}  ");
    }

    fn add_object(&mut self, entry: Entry<'_>, written_ms: Option<i64>) {
        let object = self.object.clear().bytes("key", entry.key);
        let expires_ms = entry.expiry.millis();
        match (self.shape, entry.value) {
            (Shape::Values, Some(value)) => {
                object.bytes("value", value).optional("expire_ms", expires_ms);
            }
            (Shape::Long { tracked }, Some(value)) => {
                let ttl_ms = expires_ms.map(|end| end.saturating_sub(self.now_ms).max(0));
                object.number("size_bytes", value.len() as u64).optional("ttl_ms", ttl_ms);
                object.optional("expire_ms", expires_ms);
                if tracked {
                    object.optional("written_ms", written_ms);
                }
            }
            _ => {}
        }
        self.text.extend_from_slice(object.line());
    }
}
