//! Encrypted files. SQLCipher encrypts each page separately, below SQLite's pager, so that no code
//! above the pager depends on it. (Format and key derivation: zetetic.net/sqlcipher/design.)

use std::ffi::CString;

use rusqlite::{Connection, ffi};

use super::checkpoint_schedule::CheckpointSchedule;
use super::connection::Db;
use super::engine::btree::BtreeConnection;
use super::error::{damaged, translate};
use super::immutable_state::Immutable;
use super::os::{self, BusyHandler};
use crate::backend::TransactionState;
use crate::config::Config;
use crate::error::{Error, ErrorKind, Result};
use crate::hint::Hint;
use crate::secret::Secret;

// SQLCipher adds this function to SQLite.
#[allow(unsafe_code)]
unsafe extern "C" {
    fn sqlite3_key_v2(
        db: *mut ffi::sqlite3,
        name: *const std::ffi::c_char,
        key: *const std::ffi::c_void,
        size: std::ffi::c_int,
    ) -> std::ffi::c_int;
}

/// Sets the secret of the file that a connection has open under the SQL name `schema`. Call this
/// before anything is read from the file.
///
/// # Errors
/// Those of SQLite. A wrong secret is detected only when the file is read.
#[allow(unsafe_code)]
pub(super) fn set_secret(conn: &Connection, schema: &str, secret: &Secret) -> Result<()> {
    let bytes = secret.as_bytes();
    let size = std::ffi::c_int::try_from(bytes.len())
        .map_err(|_| Error::invalid("the password is too long: the maximum is 2147483647 bytes"))?;
    let schema = CString::new(schema).map_err(|_| Error::invalid("the name of a database contains a NUL"))?;
    // SAFETY: the connection is open, and only this thread uses it. The name ends with NUL. The key
    // has `size` bytes, which SQLCipher copies.
    let code = unsafe { sqlite3_key_v2(conn.handle(), schema.as_ptr(), bytes.as_ptr().cast(), size) };
    if code == ffi::SQLITE_OK {
        return Ok(());
    }
    Err(translate(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)))
}

/// Converts an error of the first read of an encrypted file. Damage, or a file that is no database,
/// becomes `AuthFailed`, because a wrong secret has this effect. A failed read of the disk is
/// returned as such.
pub(super) fn as_wrong_secret(conn: &Connection, error: Error) -> Error {
    if let Some(code) = os::vfs::take_failed_read(conn) {
        return translate(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None));
    }
    match error.kind() {
        ErrorKind::Corrupt | ErrorKind::NotADatabase => Error::auth_failed(
            "the password or key is wrong for this file, or the beginning or the end of the file is \
            damaged",
        )
        .with_hint(Hint::GivePassword),
        _ => error,
    }
}

/// Returns `true` if SQLCipher could not decrypt a page that this connection has read.
///
/// SQLCipher supplies zeros instead of such a page, without an error.
pub(super) fn is_spoilt(conn: &Connection) -> bool {
    let ask = |pragma: &str| conn.query_row(pragma, [], |row| row.get::<_, String>(0)).ok();
    // The status is also "0" for a connection without a key; that one has no `cipher_page_size`.
    ask("PRAGMA cipher_status").is_some_and(|status| status == "0")
        && ask("PRAGMA cipher_page_size").is_some()
}

/// Returns `true` if 1 MiB can be allocated, so that a call that has just failed did not lack memory.
fn has_memory() -> bool {
    let mut memory = Vec::<u8>::new();
    let has_some = memory.try_reserve(1 << 20).is_ok();
    std::hint::black_box(memory); // otherwise the compiler may leave out the allocation
    has_some
}

pub(super) fn not_decrypted() -> Error {
    damaged("a page of the file cannot be decrypted, because it was changed or is damaged")
}

impl Db {
    /// Converts an error that a call on an encrypted file has returned to the error that caused it.
    ///
    /// SQLCipher reports a page that cannot be read as one that cannot be decrypted. After such a
    /// page, it reports for every call that the file is no database.
    #[cold]
    pub(super) fn as_lost_page(&self, why: Error) -> Error {
        if self.encrypted.is_none() || why.is_retryable() {
            return why;
        }
        if let Some(code) = os::vfs::take_failed_read(&self.conn) {
            return translate(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None));
        }
        // A page that cannot be decrypted comes as a lack of memory, or as zeros, which SQLite takes
        // for a file that may not be written, for example.
        let may_come_from_zeros = match why.kind() {
            ErrorKind::Error | ErrorKind::ReadOnly => true,
            ErrorKind::NoMemory => has_memory(),
            _ => false,
        };
        if may_come_from_zeros && is_spoilt(&self.conn) {
            return not_decrypted();
        }
        if why.kind() != ErrorKind::NotADatabase {
            return why;
        }
        self.spoilt.clone().unwrap_or_else(|| {
            Error::corrupt(
                "the first page of the file is damaged, or another process gave the file another \
                password while it was open here",
            )
            .with_hint(Hint::OpenAgain)
        })
    }

    /// Checks `ready`, the result of opening an encrypted file. If a read of the file has failed
    /// without an error from SQLCipher, returns the error of that read.
    pub(super) fn without_failed_reads(&self, ready: Result<()>) -> Result<()> {
        if self.encrypted.is_none() {
            return ready;
        }
        match (ready, os::vfs::take_failed_read(&self.conn)) {
            (_, Some(code)) => Err(translate(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None))),
            // Another process may have given the file another secret while it was opened.
            (Err(e), None) if e.kind() == ErrorKind::NotADatabase => Err(as_wrong_secret(&self.conn, e)),
            (ready, None) => ready,
        }
    }

    /// Fails if SQLCipher could not decrypt a page that the connection has read since the last
    /// check.
    #[inline]
    pub(crate) fn check_decrypted(&self) -> Result<()> {
        // Most calls find everything in the page cache, and need no check.
        let reads = os::vfs::reads();
        if self.encrypted.is_none() || self.reads_seen.replace(reads) == reads {
            return Ok(());
        }
        if os::vfs::take_reads(&self.conn) && is_spoilt(&self.conn) { Err(not_decrypted()) } else { Ok(()) }
    }

    /// Marks the connection as unusable if `why` means that a page could not be read or decrypted,
    /// because SQLCipher then decrypts no further page. A full disk does not always cause this, so
    /// after that error the function checks the state of SQLCipher.
    ///
    /// `leave_if_spoilt` replaces the connection (`sqlcipher_codec_ctx_set_error`: "a permanent
    /// error").
    #[cold]
    pub(super) fn note_spoilt(&mut self, why: &Error) {
        // A connection whose files were deleted or moved must stay open: it may be the only one that
        // still has the deleted WAL.
        let is_refused = why.kind() == ErrorKind::Io && why.hint() == Some(Hint::OpenAgain);
        let is_of_a_page = !is_refused && !matches!(why.kind(), ErrorKind::AuthFailed | ErrorKind::CantOpen);
        let may_be = why.dooms_transaction() && !why.is_retryable() && is_of_a_page;
        if self.encrypted.is_some()
            && self.immutable.is_none()
            && may_be
            && (why.kind() != ErrorKind::Full || is_spoilt(&self.conn))
        {
            self.spoilt.get_or_insert_with(|| why.clone());
        }
    }

    /// Closes a connection that is marked as unusable, unless a transaction is open. The next call
    /// opens the file again. Reads of a failed write transaction, which was rolled back already,
    /// then show the committed state.
    pub(super) fn leave_if_spoilt(&mut self) {
        let is_over = match self.transaction {
            TransactionState::None => true,
            TransactionState::Doomed(_) => self.is_idle(),
            TransactionState::Write | TransactionState::Read | TransactionState::Lost(_) => false,
        };
        if self.spoilt.is_none() || !is_over {
            return;
        }
        // If there is no memory for the replacement, the next failure tries again.
        if let (Some(config), Ok(memory)) = (self.encrypted.clone(), Connection::open_in_memory()) {
            self.leave(memory, &config);
        }
    }

    /// Closes this connection, and replaces it by `nothing`, an empty database in memory. The next
    /// call opens the file again with `config`.
    pub(super) fn leave(&mut self, nothing: Connection, config: &Config) {
        let Some(path) = self.path.clone() else { return };
        let epoch =
            self.btree.as_ref().map(BtreeConnection::epoch).or_else(|| self.immutable.as_ref()?.epoch());
        // Users of the wal-index must be dropped before closing the connection unmaps it.
        self.stop_writing_back();
        self.checkpoints = CheckpointSchedule::new(&config.file);
        self.pending.take();
        drop(self.btree.take());
        drop(std::mem::replace(&mut self.conn, nothing));
        self.busy = BusyHandler::default();
        self.immutable = Some(Immutable::to_be_opened(&path, config, epoch));
    }
}
