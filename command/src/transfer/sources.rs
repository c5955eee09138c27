//! Readers of CSV, and of JSON in three shapes, for `import`. Each entry is passed to a callback as
//! soon as it is read.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, BufRead};

use clap::Args;
use data_encoding::BASE64;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::bytes::Form;
use crate::failure::{Failure, Result, refused, usage};
use crate::times::{self, Moment};

/// The columns of a CSV, or the fields of JSON objects, that are imported.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "CSV and JSON input")]
pub struct Columns {
    /// Column of the key, by name or number [default: key, or 1]
    #[arg(long, value_name = "COLUMN")]
    pub key_column: Option<String>,
    /// Column of the value [default: value, or 2]
    #[arg(long, value_name = "COLUMN")]
    pub value_column: Option<String>,
    /// Column of the TTL: seconds, or 15m; milliseconds if its name ends with _ms
    #[arg(long, value_name = "COLUMN")]
    pub ttl_column: Option<String>,
    /// Column of the expiry time: ISO 8601, or seconds since 1970; milliseconds if its name ends
    /// with _ms
    #[arg(long, value_name = "COLUMN", conflicts_with = "ttl_column")]
    pub expire_column: Option<String>,
    /// The CSV has no header line
    #[arg(long)]
    pub no_header: bool,
    /// Separator of the columns of a CSV [default: ,]
    #[arg(long, value_name = "CHARACTER", default_value = ",", hide_default_value = true)]
    pub delimiter: char,
}

impl Columns {
    /// Returns the name of a column that the source has and that is not imported, although its name
    /// is in [`ENDS`], a list of usual names of expiry columns. Returns `None` if there is none, or
    /// if `--ttl-column` or `--expire-column` is given. `has` returns whether the source has a
    /// column with a given name.
    fn unused(&self, has: impl Fn(&str) -> bool) -> Option<&'static str> {
        if self.ttl_column.is_some() || self.expire_column.is_some() {
            return None;
        }
        let is_used = |name: &str| {
            [&self.key_column, &self.value_column].into_iter().flatten().any(|column| column == name)
        };
        ENDS.iter().map(|(name, _)| *name).find(|name| has(name) && !is_used(name))
    }

    pub fn are_given(&self) -> bool {
        let names = [&self.key_column, &self.value_column, &self.ttl_column, &self.expire_column];
        self.no_header || self.delimiter != ',' || names.iter().any(|name| name.is_some())
    }
}

/// A key and its value, read from the source of an import.
#[derive(Debug)]
pub struct Entry {
    pub key: Vec<u8>,
    pub value: Vec<u8>,
    /// The expiry; `None` if the source has none for this entry.
    pub end: Option<Moment>,
    /// The family; `None` if the source has no families.
    pub family: Option<String>,
}

/// An entry of the source of an import, or the reason why it is skipped.
type Read = std::result::Result<Entry, Cow<'static, str>>;

/// Returns an entry of a source that has no families.
fn entry(key: Vec<u8>, value: Vec<u8>, end: Option<Moment>) -> Entry {
    Entry { key, value, end, family: None }
}

/// An entry of the source of an import, or the reason why it is skipped, with its position in the
/// source.
#[derive(Debug)]
pub struct Given {
    pub entry: Read,
    /// Line of the entry in a CSV, or its number in another source; the first is 1.
    pub at: u64,
    /// A field of the source that looks like an expiry by its name and is not imported.
    pub unused: Option<&'static str>,
}

/// Usual names of columns with a TTL or an expiry time, and the option that imports such a column.
pub const ENDS: [(&str, &str); 8] = [
    ("ttl", "--ttl-column"),
    ("ttl_ms", "--ttl-column"),
    ("ttl_seconds", "--ttl-column"),
    ("expire_ms", "--expire-column"),
    ("expire_at", "--expire-column"),
    ("expires_at", "--expire-column"),
    ("expires", "--expire-column"),
    ("expiry", "--expire-column"),
];
type Sink<'s> = &'s mut dyn FnMut(Given) -> Result<()>;

const NO_TTL: &str = "its TTL is not a duration";
const NO_MOMENT: &str = "its expiry is not a time";
const NOTHING: &str = "its key or value is null";
const NO_TEXT: &str = "its key or value has an unpaired surrogate (\\ud800 to \\udfff), which is not text";
const NOT_BASE64: &str = "its key or value is not base64";
const NOT_IN_FORM: &str = "its key or value is not in hex or base64, as --hex or --base64 requires";
/// The end of the year 9999 in milliseconds since 1970: a later time is a mistake, or stands for
/// "never".
const LAST_MS: f64 = 253_402_300_800_000.0;

/// Decodes a key or value of the source of an import. `Err` is the reason why the entry is skipped.
fn bytes(text: &[u8], form: Form) -> std::result::Result<Vec<u8>, &'static str> {
    match form {
        Form::Text => Ok(text.to_vec()), // unchanged: sources do not use the escapes of this command
        _ => {
            let text = std::str::from_utf8(text).map_err(|_| NOT_IN_FORM)?;
            form.parse(text, "entry").map_err(|_| NOT_IN_FORM)
        }
    }
}

/// Rounds a number of milliseconds up; `None` if it is not finite or its absolute value exceeds
/// [`LAST_MS`].
fn whole(ms: f64) -> Option<i64> {
    #[allow(clippy::cast_possible_truncation)] // bounded
    (ms.is_finite() && ms.abs() <= LAST_MS).then_some(ms.ceil() as i64)
}

/// Parses the TTL of an entry from `text`, the content of `column`; `None` for an empty text. `Err`
/// is the reason why the entry is skipped. A number is in seconds, or in milliseconds if the name
/// of the column ends with `_ms`.
fn end_of_ttl(column: &str, text: &str) -> std::result::Result<Option<Moment>, &'static str> {
    let after = |ms| whole(ms).map(|ms| Some(Moment::FromNow(ms))).ok_or(NO_TTL);
    let unit = if column.ends_with("_ms") { 1.0 } else { 1000.0 };
    match (text.trim(), text.trim().parse::<f64>()) {
        ("", _) => Ok(None),
        (_, Ok(number)) => after(number * unit),
        (words, Err(_)) => {
            let ttl = times::parse_duration(words).map_err(|_| NO_TTL)?;
            after(ttl.as_secs_f64() * 1000.0)
        }
    }
}

/// Parses the expiry time of an entry from `text`, the content of `column`; `None` for an empty
/// text. `Err` is the reason why the entry is skipped. A number is in seconds since 1970, or in
/// milliseconds if the name of the column ends with `_ms`.
fn end_at(column: &str, text: &str) -> std::result::Result<Option<Moment>, &'static str> {
    let unit = if column.ends_with("_ms") { 1.0 } else { 1000.0 };
    match (text.trim(), text.trim().parse::<f64>()) {
        ("", _) => Ok(None),
        (_, Ok(number)) => whole(number * unit).map(|ms| Some(Moment::At(ms))).ok_or(NO_MOMENT),
        (words, Err(_)) => times::parse_moment(words).map(Some).map_err(|_| NO_MOMENT),
    }
}

/// Returns the expiry of an entry; `None` if it has none. `text` returns the content of a column of
/// the entry. `Err` is the reason why the entry is skipped.
fn end<'t>(
    columns: &Columns,
    text: impl Fn(&str) -> Option<&'t str>,
) -> std::result::Result<Option<Moment>, &'static str> {
    match (&columns.ttl_column, &columns.expire_column) {
        (Some(column), _) => text(column).map_or(Ok(None), |text| end_of_ttl(column, text)),
        (_, Some(column)) => text(column).map_or(Ok(None), |text| end_at(column, text)),
        _ => Ok(None),
    }
}

// ---- CSV -----------------------------------------------------------------------------------------

/// A reader that checks the quotes of a CSV. The csv crate accepts an unclosed quote, and takes the
/// following lines up to the next quote as part of the field. (Rules of csv-core: a quote opens
/// only at the start of a field, and a doubled quote stands for one.)
struct Quotes<R> {
    input: R,
    delimiter: u8,
    at: At,
    line: u64,
    /// Number of the line with the last opening quote; the first line is 1.
    begins: u64,
    is_at_end: bool,
    /// Number of the line with the opening quote of a field that spans lines and has text after its
    /// closing quote. In such a field, one of the quotes is probably part of the text. `None` if no
    /// such field has been read.
    strays: Option<u64>,
    /// Number of bytes of the byte order mark read so far; its full length if the input does not
    /// start with a byte order mark.
    mark: usize,
}

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// The position of [`Quotes`] relative to a field of the CSV.
#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    Beginning,
    Field,
    Quoted,
    /// After a quote in a quoted field: the quote closes the field, or is the first half of a
    /// doubled quote.
    Quote,
}

impl<R> Quotes<R> {
    fn new(input: R, delimiter: u8) -> Quotes<R> {
        Quotes {
            input,
            delimiter,
            at: At::Beginning,
            line: 1,
            begins: 1,
            is_at_end: false,
            strays: None,
            mark: 0,
        }
    }

    /// Fails if a quote is open at the end of input, or if text follows the closing quote of a
    /// field that spans lines, because one of its quotes is probably part of the text.
    fn check(&self) -> Result<()> {
        let open = (self.is_at_end && self.at == At::Quoted).then_some(self.begins);
        let Some(line) = self.strays.or(open) else { return Ok(()) };
        refused(format!(
            "invalid CSV: the quote in line {line} is not closed: the file is truncated, or the quote is part of the text, which \
             must then be quoted with doubled quotes, as in \"5\"\" wide\""
        ))
    }

    fn pass(&mut self, byte: u8) {
        match BYTE_ORDER_MARK.get(self.mark) {
            Some(of_mark) if *of_mark == byte => {
                self.mark += 1;
                return;
            }
            _ => self.mark = BYTE_ORDER_MARK.len(),
        }
        self.at = match (self.at, byte) {
            (At::Quoted, b'"') => At::Quote,
            (At::Quoted, _) => At::Quoted,
            (At::Beginning, b'"') => {
                self.begins = self.line;
                At::Quoted
            }
            (At::Quote, b'"') => At::Quoted,
            (_, b'\n' | b'\r') => At::Beginning,
            (_, other) if other == self.delimiter => At::Beginning,
            (At::Quote, _) => {
                self.strays = self.strays.or((self.begins < self.line).then_some(self.begins));
                At::Field
            }
            _ => At::Field,
        };
        self.line += u64::from(byte == b'\n');
    }
}

impl<R: io::Read> io::Read for Quotes<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        self.is_at_end = count == 0 && !buffer.is_empty();
        buffer.iter().take(count).for_each(|byte| self.pass(*byte));
        Ok(count)
    }
}

pub fn read_csv(
    input: impl BufRead,
    columns: &Columns,
    delimiter: char,
    form: Form,
    sink: Sink<'_>,
) -> Result<()> {
    let Ok(delimiter) = u8::try_from(delimiter) else {
        return usage("--delimiter must be an ASCII character");
    };
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(!columns.no_header)
        .delimiter(delimiter)
        .from_reader(Quotes::new(input, delimiter));
    let said = |e: csv::Error| {
        let text = e.to_string();
        let text = text.strip_prefix("CSV error: ").unwrap_or(&text);
        Failure::Refused(format!("invalid CSV: {text}"))
    };
    let names: Vec<String> = match columns.no_header {
        true => Vec::new(),
        false => {
            let names = reader.byte_headers().map_err(said)?.iter();
            names
                .map(|name| String::from_utf8_lossy(name).trim_start_matches('\u{feff}').trim().to_owned())
                .collect()
        }
    };
    reader.get_ref().check()?;
    if names.is_empty() && !columns.no_header {
        return refused("the CSV is empty: it needs a header line");
    }
    let find = |column: &str| {
        let by_name = names.iter().position(|name| name == column);
        by_name.or_else(|| {
            column.parse::<usize>().ok()?.checked_sub(1).filter(|at| names.is_empty() || *at < names.len())
        })
    };
    let must_find = |given: &Option<String>, name: &str, number: &str| {
        let column = given.as_deref().unwrap_or(if columns.no_header { number } else { name });
        find(column).ok_or_else(|| match columns.no_header {
            true => Failure::Usage(format!("\"{column}\" is not the number of a column: the first is 1")),
            false => Failure::Usage(format!(
                "the CSV has no column \"{column}\", but {}: name the columns with --key-column, --value-column, --ttl-column \
                 and --expire-column, or use --no-header if the first line is data",
                names.join(", ")
            )),
        })
    };
    let key = must_find(&columns.key_column, "key", "1")?;
    let value = must_find(&columns.value_column, "value", "2")?;
    let mut last = key.max(value);
    for column in [&columns.ttl_column, &columns.expire_column] {
        if column.is_some() {
            last = last.max(must_find(column, "", "")?);
        }
    }
    let unused = columns.unused(|name| names.iter().any(|column| column == name));
    let mut record = csv::ByteRecord::new();
    loop {
        let read = reader.read_byte_record(&mut record);
        reader.get_ref().check()?; // a stray quote also causes errors about the number of columns
        if !read.map_err(said)? {
            return Ok(());
        }
        let (Some(key), Some(value), Some(_)) = (record.get(key), record.get(value), record.get(last)) else {
            return refused(format!("the CSV has a line with {} columns only", record.len()));
        };
        // Text that is not UTF-8 becomes "?", which is not a valid duration or time.
        let text = |column: &str| Some(std::str::from_utf8(record.get(find(column)?)?).unwrap_or("?"));
        let read = || -> Read { Ok(entry(bytes(key, form)?, bytes(value, form)?, end(columns, text)?)) };
        let at = record.position().map_or(0, csv::Position::line);
        sink(Given { entry: read(), at, unused })?;
    }
}

// ---- JSON ----------------------------------------------------------------------------------------

type Object = BTreeMap<String, Box<RawValue>>;

/// Returns the content of a JSON string, or the JSON text of any other value. Fails for `null`.
/// `Err` is the reason why the entry is skipped.
fn text_of(json: &RawValue) -> std::result::Result<String, &'static str> {
    match json.get() {
        "null" => Err(NOTHING),
        string if string.starts_with('"') => serde_json::from_str(string).map_err(|_| NO_TEXT),
        other => Ok(other.to_owned()),
    }
}

/// Reads an entry from the fields of the JSON object with the number `at`; the first is 1.
fn given(object: &Object, at: u64, columns: &Columns, form: Form) -> Given {
    let unused = columns.unused(|name| object.contains_key(name));
    Given { entry: entry_of(object, columns, form), at, unused }
}

fn entry_of(object: &Object, columns: &Columns, form: Form) -> Read {
    let field = |given: &Option<String>, name: &str| {
        let column = given.as_deref().unwrap_or(name);
        match (object.get(column), object.get(&format!("{column}_base64"))) {
            (Some(json), _) => bytes(text_of(json)?.as_bytes(), form),
            (None, Some(json)) => BASE64.decode(text_of(json)?.as_bytes()).map_err(|_| NOT_BASE64),
            (None, None) => Err("it has no field for its key or value"),
        }
    };
    let (column, wrong) = match &columns.ttl_column {
        Some(column) => (Some(column), NO_TTL),
        None => (columns.expire_column.as_ref(), NO_MOMENT),
    };
    let json = column.and_then(|column| object.get(column)).filter(|json| json.get() != "null");
    let text = json.map(|json| text_of(json)).transpose().map_err(|_| wrong)?;
    let end = end(columns, |_| text.as_deref())?;
    Ok(entry(field(&columns.key_column, "key")?, field(&columns.value_column, "value")?, end))
}

/// Reads a sequence of JSON objects, such as one per line, and passes each entry to `sink`.
pub fn read_json_lines(input: impl BufRead, columns: &Columns, form: Form, sink: Sink<'_>) -> Result<()> {
    let objects = serde_json::Deserializer::from_reader(input).into_iter::<Object>();
    for (object, at) in objects.zip(1..) {
        let object = object.map_err(|e| Failure::Refused(format!("invalid JSON: {e}")))?;
        sink(given(&object, at, columns, form))?;
    }
    Ok(())
}

/// Reads a JSON array of objects, or one object of keys and values, and passes each entry to
/// `sink`.
pub fn read_json(input: impl BufRead, columns: &Columns, form: Form, sink: Sink<'_>) -> Result<()> {
    let mut failure = None;
    let mut json = serde_json::Deserializer::from_reader(input);
    let read = Top { columns, form, sink, failure: &mut failure }.deserialize(&mut json);
    let read = read.and_then(|()| json.end());
    match (failure, read) {
        (Some(failure), _) => Err(failure),
        (None, Ok(())) => Ok(()),
        (None, Err(e)) => refused(format!(
            "invalid JSON: {e}: it must be an array of objects, or an object of keys and values; for one object per line use \
             --from jsonl"
        )),
    }
}

/// Visitor of the whole JSON text, which passes each entry to `sink`.
struct Top<'a, 's> {
    columns: &'a Columns,
    form: Form,
    sink: Sink<'s>,
    /// The failure that `sink` has returned. It is kept here because an error of serde cannot
    /// contain it.
    failure: &'a mut Option<Failure>,
}

impl Top<'_, '_> {
    fn give<E: serde::de::Error>(&mut self, given: Given) -> std::result::Result<(), E> {
        (self.sink)(given).map_err(|failure| {
            *self.failure = Some(failure);
            E::custom("stopped")
        })
    }
}

impl<'de> DeserializeSeed<'de> for Top<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> std::result::Result<(), D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Top<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of objects, or an object")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut objects: A) -> std::result::Result<(), A::Error> {
        let mut at = 0;
        while let Some(object) = objects.next_element::<Object>()? {
            at += 1;
            self.give(given(&object, at, self.columns, self.form))?;
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut entries: A) -> std::result::Result<(), A::Error> {
        if self.columns.are_given() {
            return Err(A::Error::custom("the column options do not apply to an object of keys and values"));
        }
        let mut at = 0;
        while let Some((key, value)) = entries.next_entry::<String, Box<RawValue>>()? {
            let read = || -> Read {
                let value = text_of(&value)?;
                Ok(entry(bytes(key.as_bytes(), self.form)?, bytes(value.as_bytes(), self.form)?, None))
            };
            at += 1;
            let given = Given { entry: read(), at, unused: None };
            self.give(given)?;
        }
        Ok(())
    }
}
