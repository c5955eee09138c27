//! Location of a store: the path of a file, or the URL of a server.
//!
//! This module must not know what a URL means to the server (`backend/postgres/url.rs`).

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Returns the path of a file that SQLite keeps next to a database, such as its WAL: the path of
/// the database with `suffix` (such as `-wal`) appended.
pub(crate) fn sibling(database: &Path, suffix: &str) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// URL schemes of a store on a PostgreSQL server: those that libpq accepts.
pub(crate) const SCHEMES: [&str; 2] = ["postgresql://", "postgres://"];

/// Returns `true` if a path is the URL of a store on a server. The result does not depend on
/// whether this build supports servers.
#[must_use]
pub fn is_url(path: impl AsRef<Path>) -> bool {
    let path = path.as_ref().as_os_str().as_encoded_bytes();
    SCHEMES.iter().any(|scheme| path.starts_with(scheme.as_bytes()))
}

/// Fails with `Error` if a path has the form of a URL or URI, but does not begin with
/// `postgresql://` or `postgres://`: an open would create a file of that name. A drive letter
/// (`C:`) is no scheme.
pub fn check_scheme(path: impl AsRef<Path>) -> Result<()> {
    match unknown_scheme(path.as_ref()) {
        None => Ok(()),
        Some(scheme) => Err(Error::invalid(format!(
            "the path begins with \"{scheme}\": give the path of a file, without a scheme, or a URL that begins with \
             {} or {}; a file of that name is \"./{scheme}…\"",
            SCHEMES[0], SCHEMES[1]
        ))),
    }
}

/// Returns the scheme of a path including "://" (`file:` without slashes); `None` if the path has
/// no scheme, or one of [`SCHEMES`].
fn unknown_scheme(path: &Path) -> Option<&str> {
    const FILE: &str = "file:";
    let bytes = path.as_os_str().as_encoded_bytes();
    if is_url(path) {
        return None;
    }
    if bytes.starts_with(FILE.as_bytes()) {
        return Some(FILE);
    }
    let is_of_scheme = |byte: &u8| byte.is_ascii_alphanumeric() || b"+.-".contains(byte);
    let length = bytes.iter().position(|byte| !is_of_scheme(byte))?;
    let is_scheme = length > 1 && bytes.first()?.is_ascii_alphabetic();
    let end = "://";
    (is_scheme && bytes.get(length..)?.starts_with(end.as_bytes()))
        .then(|| bytes.get(..length + end.len()).and_then(|scheme| std::str::from_utf8(scheme).ok()))
        .flatten()
}

/// Converts a path from C: any bytes on Unix, UTF-8 on Windows.
///
/// # Errors
/// `Error` if the bytes are not UTF-8, on a system other than Unix.
pub(crate) fn path_of(bytes: &[u8]) -> Result<&Path> {
    #[cfg(unix)]
    let path = Ok(<OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(bytes).as_ref());
    #[cfg(not(unix))]
    let path = std::str::from_utf8(bytes)
        .map(Path::new)
        .map_err(|_| crate::error::Error::invalid("the path is not UTF-8, which this system requires"));
    path
}

/// Returns a file name without its suffix; `None` if the name does not end in `suffix`.
pub(crate) fn without_suffix(name: &OsStr, suffix: &str) -> Option<OsString> {
    let before = name.as_encoded_bytes().strip_suffix(suffix.as_bytes())?;
    // An ASCII suffix is cut off between two characters, so the rest is UTF-8 if the name was.
    path_of(before).ok().map(|path| path.as_os_str().to_owned())
}

/// Returns a path as text for messages and logs. In a URL, the password is removed.
///
/// A malformed URL, which can contain a part of the password anywhere, becomes `postgresql://…`. Of
/// a file name that looks like a mistyped URL with a login, only the scheme is returned.
#[must_use]
pub fn path_without_password(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    let text = path.display().to_string();
    if !is_url(path) {
        return match text.split_once(":/") {
            Some((scheme, rest)) if rest.contains('@') || rest.contains("password=") => {
                format!("{scheme}:/…")
            }
            _ => text,
        };
    }
    let Some((scheme, rest)) = text.split_once("://") else { return text };
    let (before_query, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, database) = before_query.split_once('/').unwrap_or((before_query, ""));
    // If the / or ? in a password is not encoded, the @ that ends the password comes after it.
    if database.contains('@') || query.contains('@') || rest.contains('#') {
        return format!("{scheme}://…");
    }
    let shown = match authority.rsplit_once('@') {
        Some((log_in, hosts)) => {
            format!("{}@{hosts}", log_in.split_once(':').map_or(log_in, |(user, _)| user))
        }
        None => authority.to_owned(),
    };
    let slash = if before_query.contains('/') { "/" } else { "" };
    let is_secret = |pair: &&str| pair.is_empty() || pair.starts_with("password=");
    let pairs: Vec<_> = query.split('&').filter(|pair| !is_secret(pair)).collect();
    let mark = if pairs.is_empty() { "" } else { "?" };
    format!("{scheme}://{shown}{slash}{database}{mark}{}", pairs.join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffix_is_removed_from_file_name() {
        let without = |name: &str| without_suffix(name.as_ref(), "-wal");
        assert_eq!(without("é.db-wal"), Some("é.db".into()));
        assert_eq!(without("-wal"), Some("".into()));
        assert_eq!(without("a.db-wa"), None);
    }

    #[test]
    fn unknown_scheme_is_recognised_in_path() {
        for (path, scheme) in [
            ("redis://h/0", "redis://"),
            ("postgresql+psycopg://u:secret@h/d", "postgresql+psycopg://"),
            ("POSTGRESQL://h/d", "POSTGRESQL://"),
            ("sqlite:///x.db", "sqlite://"),
            ("file:x.db?mode=ro", "file:"),
            ("file:///x.db", "file:"),
        ] {
            assert_eq!(unknown_scheme(path.as_ref()), Some(scheme), "{path}");
            let text = check_scheme(path).unwrap_err().to_string();
            assert!(text.contains("postgresql://") && !text.contains("secret"), "{text}");
        }
        for path in [
            "postgres://h/d",
            "postgresql://",
            "a.db",
            "./redis://h",
            "/a/file:x",
            "C:\\a.db",
            "C:/a.db",
            "C://a.db",
            "c:a.db",
            "dir:/a.db",
            "1a://b",
            "://",
            "",
            ":memory:",
            "files",
            "é://",
        ] {
            assert_eq!(unknown_scheme(path.as_ref()), None, "{path}");
        }
    }

    #[test]
    fn displayed_url_never_contains_password() {
        for (url, shown) in [
            ("postgresql://u:secret@h:5432/d?schema=s", "postgresql://u@h:5432/d?schema=s"),
            ("postgres://u@h/d?password=secret&schema=s", "postgres://u@h/d?schema=s"),
            ("postgresql://u:sec%40ret@/d?host=/run", "postgresql://u@/d?host=/run"),
            ("postgresql://u:sec@ret@h", "postgresql://u@h"),
            ("postgresql://h/d?password=secret", "postgresql://h/d"),
            ("postgresql:///d?password=secret&host=/run", "postgresql:///d?host=/run"),
            ("postgresql://u:sec/ret@h/d", "postgresql://…"),
            ("postgresql://u:sec?ret@h/d", "postgresql://…"),
            ("postgresql://u:sec?r=et@h/d", "postgresql://…"),
            ("postgresql://u:sec#ret@h/d", "postgresql://…"),
            ("postgresql://u@h/d?password=sec@ret", "postgresql://…"),
            ("dir/app.db", "dir/app.db"),
            ("dir:/app.db", "dir:/app.db"),
            ("mysql://u:p@h/d", "mysql:/…"),
            ("postgesql://u:p@h/d", "postgesql:/…"),
            ("POSTGRESQL:/u:p@h/d", "POSTGRESQL:/…"),
            ("postgresq://h/d?password=secret", "postgresq:/…"),
        ] {
            assert_eq!(path_without_password(url), shown);
        }
        assert!(is_url("postgres://") && !is_url("postgres:/") && !is_url("./postgres://h"));
    }
}
