//! Encrypted files: SQLCipher encrypts each page by itself, below the pager, so that nothing above knows of it. (Format
//! and key derivation: zetetic.net/sqlcipher/design.)

use rusqlite::{Connection, ffi};

use super::failure::translate;
use crate::error::{Error, ErrorKind, Result};
use crate::secret::Secret;

// In no header: SQLCipher adds it to SQLite's.
#[allow(unsafe_code)]
unsafe extern "C" {
    fn sqlite3_key_v2(
        db: *mut ffi::sqlite3,
        name: *const std::ffi::c_char,
        key: *const std::ffi::c_void,
        size: std::ffi::c_int,
    ) -> std::ffi::c_int;
}

/// Gives a connection what its file is encrypted with, before anything is read.
///
/// # Errors
/// What SQLite says. That the secret is another one shows when the file is read.
#[allow(unsafe_code)]
pub(super) fn set_secret(conn: &Connection, secret: &Secret) -> Result<()> {
    let bytes = secret.as_bytes();
    let size =
        std::ffi::c_int::try_from(bytes.len()).map_err(|_| Error::invalid("the password is too long"))?;
    // SAFETY: an open connection, which this thread uses alone; a name that ends with NUL; so many bytes, which are
    // copied.
    let code = unsafe { sqlite3_key_v2(conn.handle(), c"main".as_ptr(), bytes.as_ptr().cast(), size) };
    if code == ffi::SQLITE_OK {
        return Ok(());
    }
    Err(translate(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)))
}

/// What the first read of a file says that is encrypted with something else.
pub(super) fn as_wrong_secret(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Corrupt | ErrorKind::NotADatabase => Error::auth_failed(
            "the password (or key) is not that of this file, or its first page was changed or is damaged",
        ),
        _ => error,
    }
}
