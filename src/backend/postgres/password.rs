//! Password of a log-in, and the parser of the password file. The password is never displayed.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Password, which `Debug` does not show.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Password(Vec<u8>);

impl Password {
    pub(super) fn new(bytes: Vec<u8>) -> Password {
        Password(bytes)
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password")
    }
}

/// Connection parameters that select a line of a password file.
pub(super) struct LogIn<'a> {
    pub(super) host: &'a str,
    pub(super) port: u16,
    pub(super) database: &'a str,
    pub(super) user: &'a str,
}

/// Returns the password from a file in the format of libpq; `None` if no line matches. Like libpq,
/// it ignores a file that other users may read.
pub(super) fn of_file(path: &Path, log_in: &LogIn<'_>) -> Option<Password> {
    if !fs::metadata(path).ok()?.is_file() || is_for_others(path) {
        return None;
    }
    of_lines(&fs::read(path).ok()?, log_in)
}

/// Returns `true` if the file exists and users other than its owner may read or write it.
pub(super) fn is_for_others(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.mode() & 0o077 != 0)
}

/// Returns the password of the first line that matches `log_in`.
///
/// Lines are `host:port:database:user:password`. A field `*` matches every value, and `\` quotes
/// the character after it.
fn of_lines(lines: &[u8], log_in: &LogIn<'_>) -> Option<Password> {
    let port = log_in.port.to_string();
    let wanted = [log_in.host, &port, log_in.database, log_in.user];
    lines.split(|byte| *byte == b'\n').find_map(|line| {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.starts_with(b"#") {
            return None;
        }
        let mut rest = line;
        for wanted in wanted {
            let (field, after) = field(rest)?;
            let is_any = rest.starts_with(b"*:");
            if !is_any && field != wanted.as_bytes() {
                return None;
            }
            rest = after;
        }
        Some(Password(unquoted(rest)))
    })
}

/// Returns the first field of a line without its quoting, and the rest of the line after the colon
/// of the field; `None` if there is no colon.
fn field(line: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut is_quoted = false;
    let end = line.iter().position(|byte| {
        let is_end = *byte == b':' && !is_quoted;
        is_quoted = *byte == b'\\' && !is_quoted;
        is_end
    })?;
    let (field, rest) = line.split_at_checked(end)?;
    Some((unquoted(field), rest.get(1..)?))
}

fn unquoted(field: &[u8]) -> Vec<u8> {
    let mut bytes = field.iter();
    let mut plain = Vec::with_capacity(field.len());
    while let Some(byte) = bytes.next() {
        plain.push(match byte {
            b'\\' => *bytes.next().unwrap_or(byte),
            _ => *byte,
        });
    }
    plain
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const AT: LogIn<'_> = LogIn { host: "db.example", port: 5432, database: "app", user: "ada" };

    fn found(lines: &str) -> Option<String> {
        of_lines(lines.as_bytes(), &AT).map(|password| String::from_utf8(password.0).unwrap())
    }

    #[test]
    fn first_matching_password_file_line_is_used() {
        assert_eq!(
            found("# db.example:5432:app:ada:no\n*:*:other:*:no\n*:5432:app:ada:yes\n*:*:*:*:late"),
            some("yes")
        );
        assert_eq!(found("db.example:5433:app:ada:no"), None);
        assert_eq!(found("db.example:5432:app:ada"), None);
        assert_eq!(found(""), None);
    }

    #[test]
    fn password_file_backslash_escapes_colon_and_backslash() {
        assert_eq!(found(r"db.example:5432:app:ada:a\:b\\c:d"), some(r"a:b\c:d"));
        assert_eq!(found(r"db\.example:5432:app:ada:x"), some("x"));
        assert_eq!(found(r"\*:5432:app:ada:x"), None);
    }

    #[test]
    fn password_file_readable_by_others_is_ignored() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "*:*:*:*:geheim\n").unwrap();
        for (mode, is_used) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false)] {
            fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(of_file(file.path(), &AT).is_some(), is_used, "{mode:o}");
        }
    }

    #[test]
    fn debug_output_hides_password() {
        assert_eq!(format!("{:?}", Password::new(b"geheim".to_vec())), "Password");
    }

    fn some(text: &str) -> Option<String> {
        Some(text.to_owned())
    }
}
