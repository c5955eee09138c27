//! What `import` reads by itself: CSV, and JSON in three shapes. Each entry is given on when it is read.

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

/// Which column, or field of an object, is what.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "CSV and JSON")]
pub struct Columns {
    /// The column of the key, by name or number [default: key, or 1]
    #[arg(long, value_name = "COLUMN")]
    pub key_column: Option<String>,
    /// The column of the value [default: value, or 2]
    #[arg(long, value_name = "COLUMN")]
    pub value_column: Option<String>,
    /// The column of the TTL: seconds, or 15m; milliseconds if its name ends with _ms
    #[arg(long, value_name = "COLUMN")]
    pub ttl_column: Option<String>,
    /// The column of the end: ISO 8601, or seconds since 1970; milliseconds if its name ends with _ms
    #[arg(long, value_name = "COLUMN", conflicts_with = "ttl_column")]
    pub expire_column: Option<String>,
    /// The first line of the CSV is no header
    #[arg(long)]
    pub no_header: bool,
    /// What is between columns of a CSV
    #[arg(long, value_name = "CHARACTER", default_value = ",", hide_default_value = true)]
    pub delimiter: char,
}

impl Columns {
    /// The column that has the end of a life, to judge by its name, if none was named.
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

/// An entry of a source.
#[derive(Debug)]
pub struct Entry {
    pub key: Vec<u8>,
    pub value: Vec<u8>,
    /// Its end, if the source gives it one.
    pub end: Option<Moment>,
}

/// An entry, or why it is none.
type Read = std::result::Result<Entry, &'static str>;

/// What a source gives.
#[derive(Debug)]
pub struct Given {
    pub entry: Read,
    /// Which line of the source it is, or which entry; the first is 1.
    pub at: u64,
    /// A field that looks as if it had the end of its life, and is not used.
    pub unused: Option<&'static str>,
}

/// How others call what has the end of a life, and which option uses it.
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

const NO_TTL: &str = "its TTL is no duration";
const NO_MOMENT: &str = "its expiry is no moment";
const NOTHING: &str = "null for a key or value";
const NO_TEXT: &str = "its key or value has half a surrogate pair (\\ud800 to \\udfff), which is no text";
const NOT_BASE64: &str = "its key or value is not base64";
const NOT_IN_FORM: &str = "its key or value is not in the form that --hex or --base64 says";
/// The year 9999, about, in milliseconds: what is later is a mistake, or was meant to be never.
const LAST_MS: f64 = 253_402_300_800_000.0;

/// A key or value as the source has it.
fn bytes(text: &[u8], form: Form) -> std::result::Result<Vec<u8>, &'static str> {
    match form {
        Form::Text => Ok(text.to_vec()), // as it is: sources know no escapes of ours
        _ => {
            let text = std::str::from_utf8(text).map_err(|_| NOT_IN_FORM)?;
            form.parse(text, "entry").map_err(|_| NOT_IN_FORM)
        }
    }
}

/// A number of milliseconds that may be one of a moment.
fn whole(ms: f64) -> Option<i64> {
    #[allow(clippy::cast_possible_truncation)] // bounded
    (ms.is_finite() && ms.abs() <= LAST_MS).then_some(ms.ceil() as i64)
}

/// The end of life that a TTL gives. A number is of seconds, or of milliseconds if the column says so.
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

/// The end of life that a moment gives.
fn end_at(column: &str, text: &str) -> std::result::Result<Option<Moment>, &'static str> {
    let unit = if column.ends_with("_ms") { 1.0 } else { 1000.0 };
    match (text.trim(), text.trim().parse::<f64>()) {
        ("", _) => Ok(None),
        (_, Ok(number)) => whole(number * unit).map(|ms| Some(Moment::At(ms))).ok_or(NO_MOMENT),
        (words, Err(_)) => times::parse_moment(words).map(Some).map_err(|_| NO_MOMENT),
    }
}

/// The end of life of an entry: `text` gives what a column has.
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

/// A CSV that is read, with a look at its quotes: the reader takes an open one at the end for closed, and all lines after it
/// for its text, up to the next quote there is. (The rules are those of csv-core: a quote begins at the beginning of a field only, and two are one.)
struct Quotes<R> {
    input: R,
    delimiter: u8,
    at: At,
    line: u64,
    /// Where the latest one begins.
    begins: u64,
    is_at_end: bool,
    /// Where one begins that has gone over a line, and has text after its end, as no program writes it.
    strays: Option<u64>,
    /// Bytes that are of a byte order mark so far.
    mark: usize,
}

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    Beginning,
    Field,
    Quoted,
    /// After a quote in quotes.
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

    /// Refuses what ends with an open quote, or has one that another line closes in the middle of its text.
    fn check(&self) -> Result<()> {
        let open = (self.is_at_end && self.at == At::Quoted).then_some(self.begins);
        let Some(line) = self.strays.or(open) else { return Ok(()) };
        refused(format!(
            "the CSV cannot be read: the quote that begins in line {line} is not closed. It is cut off; or the quote is a character \
             of the text, which is to be in quotes then, with two for one: \"5\"\" wide\""
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
        return usage("what is between columns of a CSV must be a character of ASCII");
    };
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(!columns.no_header)
        .delimiter(delimiter)
        .from_reader(Quotes::new(input, delimiter));
    let said = |e: csv::Error| {
        let text = e.to_string();
        let text = text.strip_prefix("CSV error: ").unwrap_or(&text);
        Failure::Refused(format!("the CSV cannot be read: {text}"))
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
        return refused("the CSV is empty: not even its first line is there");
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
                "the CSV has no column \"{column}\": it has {}. Say which with --key-column, --value-column, \
                 --ttl-column, --expire-column, or --no-header if the first line is none",
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
        reader.get_ref().check()?; // also of lines that have another number of columns for it
        if !read.map_err(said)? {
            return Ok(());
        }
        let (Some(key), Some(value), Some(_)) = (record.get(key), record.get(value), record.get(last)) else {
            return refused(format!("the CSV has only {} columns in a line", record.len()));
        };
        // What is no text is no duration or moment either.
        let text = |column: &str| Some(std::str::from_utf8(record.get(find(column)?)?).unwrap_or("?"));
        let entry =
            || Ok(Entry { key: bytes(key, form)?, value: bytes(value, form)?, end: end(columns, text)? });
        let at = record.position().map_or(0, csv::Position::line);
        sink(Given { entry: entry(), at, unused })?;
    }
}

// ---- JSON ----------------------------------------------------------------------------------------

type Object = BTreeMap<String, Box<RawValue>>;

/// The text of a string, or JSON as it is written.
fn text_of(json: &RawValue) -> std::result::Result<String, &'static str> {
    match json.get() {
        "null" => Err(NOTHING),
        string if string.starts_with('"') => serde_json::from_str(string).map_err(|_| NO_TEXT),
        other => Ok(other.to_owned()),
    }
}

/// An entry of an object that has it in fields.
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
            (None, None) => Err("it has no such field for its key or value"),
        }
    };
    let (column, wrong) = match &columns.ttl_column {
        Some(column) => (Some(column), NO_TTL),
        None => (columns.expire_column.as_ref(), NO_MOMENT),
    };
    let json = column.and_then(|column| object.get(column)).filter(|json| json.get() != "null");
    let text = json.map(|json| text_of(json)).transpose().map_err(|_| wrong)?;
    let end = end(columns, |_| text.as_deref())?;
    Ok(Entry { key: field(&columns.key_column, "key")?, value: field(&columns.value_column, "value")?, end })
}

/// One object a line, or one after the other.
pub fn read_json_lines(input: impl BufRead, columns: &Columns, form: Form, sink: Sink<'_>) -> Result<()> {
    let objects = serde_json::Deserializer::from_reader(input).into_iter::<Object>();
    for (object, at) in objects.zip(1..) {
        let object = object.map_err(|e| Failure::Refused(format!("the JSON cannot be read: {e}")))?;
        sink(given(&object, at, columns, form))?;
    }
    Ok(())
}

/// An array of objects, or one object of keys and values.
pub fn read_json(input: impl BufRead, columns: &Columns, form: Form, sink: Sink<'_>) -> Result<()> {
    let mut failure = None;
    let mut json = serde_json::Deserializer::from_reader(input);
    let read = Top { columns, form, sink, failure: &mut failure }.deserialize(&mut json);
    let read = read.and_then(|()| json.end());
    match (failure, read) {
        (Some(failure), _) => Err(failure),
        (None, Ok(())) => Ok(()),
        (None, Err(e)) => refused(format!(
            "the JSON cannot be read: {e}. It should be an array of objects, or an object of keys and values; one \
             object a line is --from jsonl"
        )),
    }
}

struct Top<'a, 's> {
    columns: &'a Columns,
    form: Form,
    sink: Sink<'s>,
    /// Why the sink takes no more.
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
            return Err(A::Error::custom("an object of keys and values has no columns"));
        }
        let mut at = 0;
        while let Some((key, value)) = entries.next_entry::<String, Box<RawValue>>()? {
            let entry = || {
                let value = text_of(&value)?;
                let (key, value) = (bytes(key.as_bytes(), self.form)?, bytes(value.as_bytes(), self.form)?);
                Ok(Entry { key, value, end: None })
            };
            at += 1;
            let given = Given { entry: entry(), at, unused: None };
            self.give(given)?;
        }
        Ok(())
    }
}
