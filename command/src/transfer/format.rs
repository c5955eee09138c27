//! Reading and writing the lines of a dump (docs/reference/dump-format.md). Version 1 must stay
//! readable for ever.

use std::borrow::Cow;
use std::io::{BufRead, Read as _};

use data_encoding::BASE64;
use kvstore::{Eviction, MAX_KEY_SIZE, MAX_VALUE_SIZE, SizeLimit};
use serde::Deserialize;

use crate::failure::{Result, refused};
use crate::json::Object;
use crate::output::eviction_name;

/// Version of the dump format that is written and read, in the header line of a dump.
pub const VERSION: u64 = 1;

/// Maximum length of a line of a dump, in bytes. The JSON escape of one byte of a key or value can
/// take six bytes.
const MAX_LINE: u64 = 6 * (MAX_VALUE_SIZE + MAX_KEY_SIZE) as u64 + 4096;

/// The first bytes of every dump.
pub const BEGIN: &[u8] = b"{\"kvstore_dump\":";

pub fn write_header(object: &mut Object, limit: Option<SizeLimit>, now_ms: i64) -> &mut Object {
    object
        .clear()
        .number("kvstore_dump", VERSION)
        .text("kvstore", kvstore::VERSION)
        .number("dumped_ms", now_ms);
    if let Some(SizeLimit { max_bytes, eviction }) = limit {
        let mut inner = Object::new();
        inner.number("max_bytes", max_bytes).text("eviction", eviction_name(eviction));
        object.object("limit", &mut inner);
    }
    object
}

pub fn write_family<'o>(
    object: &'o mut Object,
    name: &str,
    default_ttl_ms: Option<u64>,
    track_writes: bool,
    created_ms: i64,
) -> &'o mut Object {
    object
        .clear()
        .text("family", name)
        .optional("default_ttl_ms", default_ttl_ms)
        .bool("track_writes", track_writes)
        .number("created_ms", created_ms)
}

pub fn write_row<'o>(
    object: &'o mut Object,
    key: &[u8],
    value: &[u8],
    expire_ms: Option<i64>,
    written_ms: Option<i64>,
) -> &'o mut Object {
    object.clear().bytes("key", key).bytes("value", value);
    if let Some(expire_ms) = expire_ms {
        object.number("expire_ms", expire_ms);
    }
    if let Some(written_ms) = written_ms {
        object.number("written_ms", written_ms);
    }
    object
}

pub fn write_end(object: &mut Object, families: u64, keys: u64) -> &mut Object {
    object.clear().bool("end", true).number("families", families).number("keys", keys)
}

/// A parsed line of a dump.
#[derive(Debug)]
pub enum Line<'a> {
    Header { limit: Option<SizeLimit> },
    Family { name: Cow<'a, str>, default_ttl_ms: Option<u64>, track_writes: bool },
    Row { key: Cow<'a, [u8]>, value: Cow<'a, [u8]>, expire_ms: Option<i64>, written_ms: Option<i64> },
    End { families: u64, keys: u64 },
}

/// A JSON string in a line of a dump. It borrows from the line if it has no escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// All fields that the lines of a dump can have, whatever their kind. [`parse`] then checks that
/// the fields belong to one kind of line.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields<'a> {
    #[serde(borrow)]
    key: Option<Text<'a>>,
    #[serde(borrow)]
    key_base64: Option<Text<'a>>,
    #[serde(borrow)]
    value: Option<Text<'a>>,
    #[serde(borrow)]
    value_base64: Option<Text<'a>>,
    expire_ms: Option<i64>,
    written_ms: Option<i64>,
    #[serde(borrow)]
    family: Option<Text<'a>>,
    default_ttl_ms: Option<u64>,
    track_writes: Option<bool>,
    created_ms: Option<i64>,
    kvstore_dump: Option<u64>,
    #[serde(borrow)]
    kvstore: Option<Text<'a>>,
    dumped_ms: Option<i64>,
    limit: Option<Limits>,
    end: Option<bool>,
    families: Option<u64>,
    keys: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Limits {
    max_bytes: u64,
    eviction: String,
}

/// The version field in the header line of a dump. It is parsed alone if the line has unknown
/// fields, to report a version that this command cannot read.
#[derive(Deserialize)]
struct AnyHeader {
    kvstore_dump: u64,
}

/// Parses a line of a dump. `Err` is a message to which the caller adds the number of the line, as
/// in "line 17: ...".
pub fn parse(line: &[u8]) -> std::result::Result<Line<'_>, String> {
    let mut fields: Fields<'_> = match serde_json::from_slice(line) {
        Ok(fields) => fields,
        Err(e) => match serde_json::from_slice(line) {
            Ok(AnyHeader { kvstore_dump }) if kvstore_dump != VERSION => {
                return Err(other_version(kvstore_dump));
            }
            _ => return Err(why(&e)),
        },
    };
    let f = &fields;
    let of_row =
        f.value.is_some() || f.value_base64.is_some() || f.expire_ms.is_some() || f.written_ms.is_some();
    let of_row = of_row || f.key.is_some() || f.key_base64.is_some();
    let of_family = f.family.is_some()
        || f.default_ttl_ms.is_some()
        || f.track_writes.is_some()
        || f.created_ms.is_some();
    let of_header =
        f.kvstore_dump.is_some() || f.kvstore.is_some() || f.dumped_ms.is_some() || f.limit.is_some();
    let of_end = f.end.is_some() || f.families.is_some() || f.keys.is_some();
    if u8::from(of_row) + u8::from(of_family) + u8::from(of_header) + u8::from(of_end) != 1 {
        return Err("it is not a header, family, key or end line: its fields do not belong together".into());
    }
    if of_row {
        return Ok(Line::Row {
            key: bytes("key", fields.key.take(), fields.key_base64.take())?,
            value: bytes("value", fields.value.take(), fields.value_base64.take())?,
            expire_ms: fields.expire_ms,
            written_ms: fields.written_ms,
        });
    }
    if of_family {
        let Some(Text(name)) = fields.family.take() else { return Err("\"family\" is missing".into()) };
        let track_writes = fields.track_writes.unwrap_or(false);
        return Ok(Line::Family { name, default_ttl_ms: fields.default_ttl_ms, track_writes });
    }
    if of_header {
        return match fields.kvstore_dump {
            Some(VERSION) => Ok(Line::Header { limit: fields.limit.map(limit).transpose()? }),
            Some(version) => Err(other_version(version)),
            None => Err("\"kvstore_dump\" is missing".into()),
        };
    }
    match (fields.end, fields.families, fields.keys) {
        (Some(true), Some(families), Some(keys)) => Ok(Line::End { families, keys }),
        _ => Err("an end line needs \"end\":true, \"families\" and \"keys\"".into()),
    }
}

fn bytes<'a>(
    name: &str,
    text: Option<Text<'a>>,
    base64: Option<Text<'a>>,
) -> std::result::Result<Cow<'a, [u8]>, String> {
    match (text, base64) {
        (Some(Text(Cow::Borrowed(text))), None) => Ok(Cow::Borrowed(text.as_bytes())),
        (Some(Text(Cow::Owned(text))), None) => Ok(Cow::Owned(text.into_bytes())),
        (None, Some(Text(base64))) => {
            let decoded = BASE64.decode(base64.as_bytes());
            decoded.map(Cow::Owned).map_err(|e| format!("\"{name}_base64\" is not base64: {e}"))
        }
        (None, None) => Err(format!("it has neither \"{name}\" nor \"{name}_base64\"")),
        (Some(_), Some(_)) => Err(format!("it has both \"{name}\" and \"{name}_base64\"")),
    }
}

fn limit(limits: Limits) -> std::result::Result<SizeLimit, String> {
    let eviction = match limits.eviction.as_str() {
        "none" => Eviction::None,
        "soonest" => Eviction::Soonest,
        "oldest" => Eviction::Oldest,
        "least-used" => Eviction::LeastUsed,
        other => return Err(format!("the eviction \"{other}\" is not none, soonest, oldest or least-used")),
    };
    Ok(SizeLimit::new(limits.max_bytes, eviction))
}

fn other_version(version: u64) -> String {
    format!("the dump has version {version}, and this kvstore reads version {VERSION}: use a newer kvstore")
}

/// Formats an error of serde_json with the column, but without its line number: serde_json parses
/// one line of a dump at a time, so that number would always be 1.
fn why(e: &serde_json::Error) -> String {
    let text = e.to_string();
    let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(text, _)| text);
    format!("{text} (column {})", e.column())
}

/// Reader of the lines of a dump. It counts lines and bytes.
pub struct Lines<R> {
    input: R,
    line: Vec<u8>,
    /// The number of the line that was read last; the first line is 1. It is 0 before the first
    /// line.
    pub number: u64,
    /// Number of bytes of the dump read so far.
    pub bytes: u64,
    /// FNV-1a hash of the bytes read so far, by which `load --resume` recognizes the dump; `None`
    /// if `new` was called without `hashed`.
    hash: Option<u64>,
}

/// The result of reading a line of a dump.
pub enum Read<'l> {
    /// A line without its newline.
    Line(&'l [u8]),
    /// The last line of the input, if it has no newline. It may be truncated.
    Unfinished(&'l [u8]),
    /// The end of the input.
    Nothing,
}

impl<R: BufRead> Lines<R> {
    pub fn new(input: R, hashed: bool) -> Lines<R> {
        let hash = hashed.then_some(0xcbf2_9ce4_8422_2325);
        Lines { input, line: Vec::new(), number: 0, bytes: 0, hash }
    }

    pub fn next(&mut self) -> Result<Read<'_>> {
        // Release the buffer after a large value.
        if self.line.capacity() > 4 << 20 {
            self.line = Vec::new();
        }
        self.line.clear();
        let bytes = (&mut self.input).take(MAX_LINE).read_until(b'\n', &mut self.line)?;
        if bytes == 0 {
            return Ok(Read::Nothing);
        }
        self.number += 1;
        self.bytes += bytes as u64;
        if let Some(hash) = &mut self.hash {
            *hash = self
                .line
                .iter()
                .fold(*hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
        }
        match self.line.strip_suffix(b"\n") {
            Some(line) => Ok(Read::Line(line)),
            None if bytes as u64 == MAX_LINE => {
                refused(format!("line {}: too long for a line of a dump", self.number))
            }
            None => Ok(Read::Unfinished(&self.line)),
        }
    }

    /// Returns the hash of all bytes read so far; 0 if they are not hashed.
    pub fn hash(&self) -> u64 {
        self.hash.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_lines_parse() {
        let mut object = Object::new();
        let limit = Some(SizeLimit::new(1 << 40, Eviction::LeastUsed));
        assert!(
            matches!(parse(write_header(&mut object, limit, 5).line()), Ok(Line::Header { limit: read }) if read == limit)
        );
        assert!(matches!(parse(write_header(&mut object, None, 5).line()), Ok(Line::Header { limit: None })));
        for name in ["default", "a \"b\"\n\u{1f}", "käse"] {
            let line = write_family(&mut object, name, Some(7), true, 5).line().to_vec();
            let Ok(Line::Family { name: read, default_ttl_ms: Some(7), track_writes: true }) = parse(&line)
            else {
                panic!()
            };
            assert_eq!(read, name);
        }
        for bytes in [&b""[..], b"text", b"\xff\xfe", b"a\"\\\n\0\x7f", "\u{2028}ä😀".as_bytes()] {
            let line = write_row(&mut object, bytes, bytes, Some(5), None).line().to_vec();
            let Ok(Line::Row { key, value, expire_ms: Some(5), written_ms: None }) = parse(&line) else {
                panic!()
            };
            assert_eq!((&*key, &*value), (bytes, bytes));
        }
        assert!(matches!(parse(write_end(&mut object, 2, 3).line()), Ok(Line::End { families: 2, keys: 3 })));
    }

    #[test]
    fn invalid_lines_are_refused_with_a_reason() {
        for (line, reason) in [
            ("", "EOF"),
            ("{", "EOF"),
            ("[]", "invalid"),
            ("{}", "not a header"),
            ("{\"key\":\"a\"}", "neither \"value\""),
            ("{\"value\":\"a\"}", "neither \"key\""),
            ("{\"key\":\"a\",\"key_base64\":\"YQ==\",\"value\":\"\"}", "both"),
            ("{\"key\":\"a\",\"value_base64\":\"Y\"}", "not base64"),
            ("{\"key\":\"a\",\"value\":\"\",\"vaule\":\"\"}", "unknown field `vaule`"),
            ("{\"key\":\"a\",\"key\":\"b\",\"value\":\"\"}", "duplicate field `key`"),
            ("{\"key\":\"a\",\"value\":5}", "invalid type"),
            ("{\"key\":\"a\",\"value\":\"\",\"expire_ms\":1.5}", "invalid type"),
            ("{\"key\":\"a\",\"value\":\"\",\"family\":\"b\"}", "do not belong together"),
            ("{\"track_writes\":true}", "\"family\" is missing"),
            ("{\"end\":true}", "an end line needs"),
            ("{\"end\":false,\"families\":1,\"keys\":1}", "an end line needs"),
            ("{\"kvstore_dump\":2,\"news\":1}", "version 2"),
            ("{\"kvstore_dump\":2}", "version 2"),
            ("{\"kvstore\":\"1\"}", "\"kvstore_dump\" is missing"),
            ("{\"kvstore_dump\":1,\"limit\":{\"max_bytes\":1,\"eviction\":\"x\"}}", "eviction \"x\""),
            ("{\"key\":\"\u{0}\",\"value\":\"\"}", "control character"),
        ] {
            let said = parse(line.as_bytes()).unwrap_err();
            assert!(said.contains(reason), "{line}: {said}");
        }
        assert!(parse(b"{\"key\":\"\xff\",\"value\":\"\"}").is_err());
    }
}
