//! The text form of keys and values: UTF-8 with escapes such as `\n` and `\xff`, or hex or base64
//! (`--hex`, `--base64`). Printed keys and values are accepted as arguments in the same form.

use std::borrow::Cow;
use std::io::Write as _;

use data_encoding::{BASE64, HEXLOWER, HEXLOWER_PERMISSIVE};

use crate::failure::{Result, usage};

/// Encoding of keys and values in arguments and output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Form {
    /// UTF-8, with the escapes `\n \r \t \\` and `\x..`.
    #[default]
    Text,
    Hex,
    Base64,
}

impl Form {
    /// Decodes an argument to bytes. `what` names the argument in error messages, such as "key".
    pub fn parse(self, word: &str, what: &str) -> Result<Vec<u8>> {
        match self {
            Form::Hex => match HEXLOWER_PERMISSIVE.decode(word.as_bytes()) {
                Ok(bytes) => Ok(bytes),
                Err(e) => usage(format!("the {what} is not hex, as --hex requires: {e}")),
            },
            Form::Base64 => match BASE64.decode(word.as_bytes()) {
                Ok(bytes) => Ok(bytes),
                Err(e) => usage(format!("the {what} is not base64, as --base64 requires: {e}")),
            },
            Form::Text => unescape(word, what),
        }
    }

    /// Appends the encoded form of `bytes` to the buffer `to`. Long listings use this to avoid an
    /// allocation per entry.
    pub fn write(self, bytes: &[u8], to: &mut Vec<u8>) {
        let mut encode = |encoding: &data_encoding::Encoding| {
            let start = to.len();
            to.resize(start + encoding.encode_len(bytes.len()), 0);
            encoding.encode_mut(bytes, to.get_mut(start..).unwrap_or_default());
        };
        match self {
            Form::Hex => encode(&HEXLOWER),
            Form::Base64 => encode(&BASE64),
            Form::Text if is_plain_ascii(bytes) => to.extend_from_slice(bytes),
            Form::Text => write_escaped(bytes, to),
        }
    }

    /// Returns the bytes as text in this encoding. The text has no newline, because control
    /// characters are escaped.
    pub fn show(self, bytes: &[u8]) -> Cow<'_, str> {
        match self {
            Form::Hex => HEXLOWER.encode(bytes).into(),
            Form::Base64 => BASE64.encode(bytes).into(),
            Form::Text => escape(bytes),
        }
    }
}

/// Returns `true` for a character that the text form shows unchanged, without an escape.
fn is_plain(c: char) -> bool {
    c != '\\' && !c.is_control()
}

/// Returns `true` if all bytes are printable ASCII other than the backslash, so that the text form
/// consists of the same bytes. This is a fast path: most keys are plain ASCII.
fn is_plain_ascii(bytes: &[u8]) -> bool {
    bytes.iter().all(|b| matches!(b, b' '..=b'~') && *b != b'\\')
}

fn escape(bytes: &[u8]) -> Cow<'_, str> {
    if is_plain_ascii(bytes) {
        return String::from_utf8_lossy(bytes);
    }
    let mut shown = Vec::with_capacity(bytes.len() + 8);
    write_escaped(bytes, &mut shown);
    String::from_utf8(shown).unwrap_or_default().into()
}

fn write_escaped(bytes: &[u8], to: &mut Vec<u8>) {
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\n' => to.extend_from_slice(b"\\n"),
                '\r' => to.extend_from_slice(b"\\r"),
                '\t' => to.extend_from_slice(b"\\t"),
                '\\' => to.extend_from_slice(b"\\\\"),
                c if is_plain(c) => to.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
                c => c.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| hex(to, byte)),
            }
        }
        chunk.invalid().iter().for_each(|byte| hex(to, *byte));
    }
}

fn hex(to: &mut Vec<u8>, byte: u8) {
    let _ = write!(to, "\\x{byte:02x}"); // to a Vec: cannot fail
}

fn unescape(word: &str, what: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some(at) = rest.find('\\') {
        let (plain, escape) = rest.split_at(at);
        bytes.extend_from_slice(plain.as_bytes());
        let (byte, length) = match escape.as_bytes().get(1) {
            Some(b'n') => (b'\n', 2),
            Some(b'r') => (b'\r', 2),
            Some(b't') => (b'\t', 2),
            Some(b'\\') => (b'\\', 2),
            Some(b'x') => match escape.get(2..4).map(two_digits) {
                Some(Some(byte)) => (byte, 4),
                _ => {
                    return usage(format!(
                        "the {what} has a \\x without two hex digits: write a backslash as \\\\"
                    ));
                }
            },
            _ => {
                return usage(format!(
                    "the {what} has a backslash that starts no escape (\\n \\r \\t \\xff \\\\): write a backslash as \\\\, or use \
                     --hex or --base64"
                ));
            }
        };
        bytes.push(byte);
        rest = escape.get(length..).unwrap_or_default();
    }
    bytes.extend_from_slice(rest.as_bytes());
    Ok(bytes)
}

/// Parses the two hex digits of an escape such as `\xff`; `None` if they are not hex digits.
/// (`from_str_radix` alone would accept a sign.)
fn two_digits(digits: &str) -> Option<u8> {
    digits.bytes().all(|digit| digit.is_ascii_hexdigit()).then(|| u8::from_str_radix(digits, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_text_parses_to_the_same_bytes() {
        let mut all: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
        all.extend([
            b"user:1".to_vec(),
            "käse\u{85}\u{7f}".into(),
            b"a\\x41\xff\xfe\n\0".to_vec(),
            Vec::new(),
        ]);
        for bytes in all {
            for form in [Form::Text, Form::Hex, Form::Base64] {
                let shown = form.show(&bytes);
                assert!(!shown.contains(char::is_control), "{shown:?}");
                assert_eq!(form.parse(&shown, "key").unwrap(), bytes, "{shown}");
                let mut written = b"before".to_vec();
                form.write(&bytes, &mut written);
                assert_eq!(written, ["before", &shown].concat().into_bytes());
            }
        }
    }

    #[test]
    fn invalid_escape_is_refused() {
        for word in ["\\", "a\\", "\\q", "\\x", "\\x1", "\\xzz", "\\x+1", "\\x1ä"] {
            assert!(Form::Text.parse(word, "key").is_err(), "{word}");
        }
        assert!(Form::Hex.parse("abc", "key").is_err());
        assert!(Form::Base64.parse("ab", "key").is_err());
    }
}
