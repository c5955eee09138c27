//! Encrypts a store, decrypts it, or gives it another secret, in place (ADR 21).
//!
//! 1. SQLCipher's `sqlcipher_export` writes the new content to a file next to the store. It copies
//!    everything in the file, including tables of other programs.
//! 2. The old content is written to a rollback journal ([`Undo`]).
//! 3. The file is overwritten with the new content.
//!
//! So the store stays the same file, with its owner and its mode, and nothing of the old content is
//! left in it. A connection that has the file open without a lock (in DELETE mode an idle handle
//! has none) does not continue to use a file that no path leads to.
//!
//! After a crash before step 3 is complete, the journal restores the old content. After a later
//! crash, the file has the new content.

use std::fmt::LowerHex;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use rusqlite::types::ValueRef;

use super::cipher;
use super::connection::Db;
use super::error::{moved_away, translate};
use super::os::{self, FileIdentity, Opened};
use super::pragmas;
use super::rollback_journal::{CHUNK, Undo};
use crate::config::{Config, DEFAULT_PAGE_SIZE};
use crate::error::{Error, ErrorKind, Result};
use crate::hint::Hint;
use crate::location::sibling;
use crate::secret::Secret;

/// Returns the path of the file to which a conversion of the store at `path` writes the new
/// content. The name contains the inode of the store, so that no other store uses it.
fn made_beside(path: &Path, inode: impl LowerHex) -> PathBuf {
    sibling(path, &format!("-convert-{inode:x}"))
}

/// Name under which a conversion attaches the database with the new content to the connection.
const CONVERTED: &str = "converted";

impl Db {
    /// Encrypts the file with the secret of `after`, or decrypts it if `after` has none. The file
    /// is open with the configuration `before`.
    ///
    /// The file is opened again in every case, also after a failure.
    ///
    /// # Errors
    /// `Busy` if another handle or process has the file open; `Io`, `Full`, `Corrupt`. The file
    /// then has its old content.
    pub(crate) fn convert(&mut self, before: &Config, after: &Config) -> Result<()> {
        let Some(path) = self.path.clone() else {
            return Err(Error::invalid("a store in memory has no file to encrypt"));
        };
        after.check()?;
        self.check_place()?;
        self.check_alone()?;
        let file = self.file_identity().unwrap_or_default();
        check_it_can_be_opened(&path, file)?; // before the connection is closed
        // Replaces the connection until the file is opened again.
        let nothing = Connection::open_in_memory().map_err(translate)?;
        let made = made_beside(&path, file.1);
        let mut logs = vec![log_of(&path)];
        self.leave(nothing, before);
        logs.push(log_of(&path)); // a crash or another process may have left one
        let mut done = lock_alone(&path, before).and_then(|conn| {
            check_is_it(&conn, &path, file)?;
            self.check_alone()?;
            for log in logs.into_iter().flatten() {
                wipe_what_is_gone(&log)?;
            }
            replace_content(&conn, &path, file, &made, after.file.secret.as_deref())
        });
        // If the file cannot be opened now, the next call tries again and returns the error.
        let is_refused = |opened: Result<()>| opened.is_err_and(|e| e.kind() == ErrorKind::AuthFailed);
        let opened = self.open_with(if done.is_ok() { after } else { before });
        if done.is_err() && is_refused(opened) {
            // The secret of `before` is refused. The file may have kept the new content, because
            // the old one could not be restored.
            let opened = self.open_with(after);
            if opened.is_ok() {
                done = Ok(());
            } else if is_refused(opened) {
                let _ = self.open_with(before);
            }
        }
        done
    }

    /// Fails with `Busy` if another process has the file open through this library. Succeeds if
    /// that cannot be detected.
    fn check_alone(&self) -> Result<()> {
        if self.presence.as_ref().is_none_or(|presence| presence.is_alone()) { Ok(()) } else { Err(in_use()) }
    }
}

/// Fails if a conversion could not open the file again by its path, because the file was moved or
/// has several hard links.
fn check_it_can_be_opened(path: &Path, file: FileIdentity) -> Result<()> {
    if !os::is_at(path, file) {
        return Err(Error::cant_open(
            "the store, or a directory in its path, was moved or replaced while it was open; it can \
            only be encrypted, decrypted or rekeyed under its current path",
        )
        .with_hint(Hint::OpenAgain));
    }
    match os::names_at(path) {
        Ok(names) if names > 1 => Err(Error::cant_open(
            "the file has several hard links, so it cannot be reopened after the conversion: remove \
            all links but one",
        )),
        found => found.map(drop).map_err(failed),
    }
}

/// Fails if the file at `path` or the file of the connection is not `file`, because the store was
/// moved or replaced.
fn check_is_it(conn: &Connection, path: &Path, file: FileIdentity) -> Result<()> {
    if os::is_at(path, file) && !os::has_moved(conn) { Ok(()) } else { Err(moved_away()) }
}

/// Opens a connection in DELETE mode that excludes all other connections from its first read on.
///
/// If this connection left WAL mode without excluding other connections first, they could open the
/// file while it is still marked as having a WAL. They would start another WAL, and their commits
/// to it would be lost.
fn lock_alone(path: &Path, config: &Config) -> Result<Connection> {
    let conn = super::open::reopened(path)?;
    if let Some(secret) = &config.file.secret {
        cipher::set_secret(&conn, "main", secret)?;
    }
    let locked = (|| {
        run(&conn, "PRAGMA locking_mode = EXCLUSIVE")?;
        run(&conn, "SELECT count(*) FROM sqlite_schema")?;
        let mode: String =
            conn.query_row("PRAGMA journal_mode = DELETE", [], |row| row.get(0)).map_err(translate)?;
        // In DELETE mode the lock of a read does not exclude other readers; this one does.
        run(&conn, "BEGIN EXCLUSIVE")?;
        run(&conn, "COMMIT")?;
        // In exclusive mode SQLite keeps its journal open, and at the close removes any file that
        // has the name of the journal by then, such as that of `Undo`.
        run(&conn, "PRAGMA journal_mode = MEMORY")?;
        if mode != "delete" {
            return Err(in_use());
        }
        empty_log(path)
    })();
    locked.map_err(|e: Error| match config.file.is_encrypted() {
        _ if e.is_retryable() => in_use(),
        true => cipher::as_wrong_secret(&conn, e),
        false => e,
    })?;
    // A journal that is left now is that of SQLite's change of the mode, or that of a conversion
    // that has ended.
    remove_wiped(&sibling(path, "-journal")).map_err(failed)?;
    Ok(conn)
}

/// Empties a WAL that still exists because this process may not remove it.
///
/// SQLite ignores that it could not remove the WAL. The next process to open the file would apply
/// the frames of the WAL to the new content. Nothing is lost: the database already has all frames.
fn empty_log(path: &Path) -> Result<()> {
    let emptied = match os::open_what_is_there(&sibling(path, "-wal")) {
        Ok(log) => wipe(&log).and_then(|()| log.set_len(0)).and_then(|()| log.sync_all()),
        Err(e) => Err(e),
    };
    match emptied {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(match failed(e) {
            e if e.kind() == ErrorKind::Full => e,
            e => e.with_message(format!(
                "the write-ahead log of the store (its name ends in \"-wal\") can be neither removed \
                nor emptied: {}",
                e.message()
            )),
        }),
        _ => Ok(()),
    }
}

/// Opens the WAL of a file, so that its content can be overwritten after SQLite has removed it.
/// Returns `None` if there is no WAL or it cannot be opened.
fn log_of(path: &Path) -> Option<File> {
    os::open_to_outlive_its_name(&sibling(path, "-wal"))
}

/// Overwrites an open file with zeros if it has been removed from its directory. No other process
/// may have the file open.
fn wipe_what_is_gone(file: &File) -> Result<()> {
    match os::names_of(file) {
        Ok(0) => wipe(file).map_err(failed),
        _ => Ok(()),
    }
}

/// Overwrites the database file of a connection with its current content, encrypted with another
/// secret, or with none. The connection must have locked the file exclusively. `path` and `file`
/// are the path and the identity of the database; `made` is the path of the temporary file for the
/// new content.
fn replace_content(
    conn: &Connection,
    path: &Path,
    file: FileIdentity,
    made: &Path,
    secret: Option<&Secret>,
) -> Result<()> {
    remove_wiped(made).map_err(failed)?; // left by a crash
    let export = export(conn, made, secret)?;
    let page_size = usize::try_from(pragmas::page_size(conn)?).unwrap_or(0);
    let mut undo = Undo::of(conn, path, page_size).inspect_err(|_| export.remove())?;
    // The journal can restore the file only if it is still next to it.
    if let Err(e) = check_is_it(conn, path, file) {
        export.remove();
        undo.commit()?; // the file has its old content
        let _ = undo.wipe();
        return Err(e);
    }
    let written = overwrite(conn, &export).and_then(|()| undo.commit());
    export.remove();
    written?;
    // The journal is no longer valid. If this fails, the next open of the store removes it.
    let _ = undo.wipe();
    Ok(())
}

/// Temporary file with the whole content of the store, encrypted with the new secret or not
/// encrypted.
struct Export {
    path: PathBuf,
    file: File,
}

impl Export {
    /// Overwrites and removes the file. If this fails, the next open of the store removes it.
    fn remove(&self) {
        let _ = remove_wiped(&self.path);
    }
}

/// Creates a file with the content of the database, encrypted with another secret, or with none.
/// The file is synced when this returns.
fn export(conn: &Connection, path: &Path, secret: Option<&Secret>) -> Result<Export> {
    let file = os::make_private(path).map_err(failed)?;
    let export = Export { path: path.to_owned(), file };
    let filled = fill(conn, path, secret).and_then(|()| export.file.sync_all().map_err(failed));
    // `sqlcipher_export` reports every failure as a failed statement.
    let filled = filled.map_err(|e| match e.kind() == ErrorKind::Error && cipher::is_spoilt(conn) {
        true => cipher::not_decrypted(),
        false => e,
    });
    match filled {
        Ok(()) => Ok(export),
        Err(e) => {
            export.remove();
            Err(e)
        }
    }
}

fn fill(conn: &Connection, path: &Path, secret: Option<&Secret>) -> Result<()> {
    let number = |sql: &str| conn.query_row(sql, [], |row| row.get::<_, i64>(0)).map_err(translate);
    let count = |schema: &str| number(&format!("SELECT count(*) FROM {schema}.sqlite_schema"));
    // This also reads the schema, which may have changed; the statements of the export do not.
    let tables = count("main")?;
    let name = ValueRef::Text(path.as_os_str().as_encoded_bytes());
    // The secret is set below, because a secret in SQL text would be copied in memory.
    let attach = format!("ATTACH ?1 AS {CONVERTED} KEY ''");
    conn.execute(&attach, [rusqlite::types::ToSqlOutput::Borrowed(name)]).map_err(translate)?;
    let filled = (|| {
        match secret {
            Some(secret) => cipher::set_secret(conn, CONVERTED, secret)?,
            None => run(conn, &format!("PRAGMA {CONVERTED}.page_size = {DEFAULT_PAGE_SIZE}"))?,
        }
        // The file is used only after it is complete and synced, so it needs no journal before.
        run(conn, &format!("PRAGMA {CONVERTED}.journal_mode = OFF"))?;
        run(conn, &format!("PRAGMA {CONVERTED}.synchronous = OFF"))?;
        let copied = |pragma: &str| {
            let value = number(&format!("PRAGMA main.{pragma}"))?;
            run(conn, &format!("PRAGMA {CONVERTED}.{pragma} = {value}"))
        };
        copied("auto_vacuum")?; // before the first table
        run(conn, "BEGIN")?; // otherwise each table is created in a transaction of its own
        run(conn, &format!("SELECT sqlcipher_export('{CONVERTED}')"))?;
        copied("application_id")?;
        copied("user_version")?;
        run(conn, "COMMIT")?;
        if cipher::is_spoilt(conn) {
            return Err(cipher::not_decrypted()); // zeros were copied instead of pages
        }
        if count(CONVERTED)? == tables {
            return Ok(());
        }
        Err(Error::corrupt("not all tables of the file could be copied, so nothing was changed")
            .with_hint(Hint::CheckIntegrity))
    })();
    if filled.is_err() && !conn.is_autocommit() {
        let _ = run(conn, "ROLLBACK"); // the first error is the one to report
    }
    // This closes the file, which is read afterwards.
    filled.and(run(conn, &format!("DETACH {CONVERTED}")))
}

fn run(conn: &Connection, sql: &str) -> Result<()> {
    let mut statement = conn.prepare(sql).map_err(translate)?;
    let mut rows = statement.raw_query();
    while rows.next().map_err(translate)?.is_some() {} // some pragmas return a row
    Ok(())
}

/// Overwrites the database of a connection with the exported file. The database is synced when this
/// returns.
fn overwrite(conn: &Connection, export: &Export) -> Result<()> {
    let before = os::length(conn, Opened::Main)?;
    let mut from = &export.file;
    from.seek(SeekFrom::Start(0)).map_err(failed)?;
    let mut bytes = vec![0; CHUNK];
    let mut at = 0;
    loop {
        let read = from.read(&mut bytes).map_err(failed)?;
        if read == 0 {
            break;
        }
        os::write(conn, Opened::Main, bytes.get(..read).unwrap_or_default(), at)?;
        at += read as u64;
    }
    // The part that is cut off is overwritten first.
    bytes.fill(0);
    let mut wiped = at;
    while wiped < before {
        let part = (before - wiped).min(CHUNK as u64);
        os::write(conn, Opened::Main, bytes.get(..part as usize).unwrap_or_default(), wiped)?;
        wiped += part;
    }
    if at < before {
        os::sync(conn, Opened::Main)?;
        os::truncate(conn, Opened::Main, at)?;
    }
    os::sync(conn, Opened::Main)
}

/// Overwrites a file with zeros and syncs it. Does not change its length.
fn wipe(mut file: &File) -> io::Result<()> {
    file.seek(SeekFrom::Start(0))?;
    let zeros = io::repeat(0).take(file.metadata()?.len());
    os::beyond_limit(|| io::copy(&mut io::BufReader::with_capacity(CHUNK, zeros), &mut file))?;
    file.sync_data()
}

/// Overwrites a file with zeros and removes it, if it exists.
fn remove_wiped(path: &Path) -> io::Result<()> {
    match os::open_what_is_there(path) {
        Ok(file) => wipe(&file).and_then(|()| fs::remove_file(path)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e),
    }
}

impl Db {
    /// Removes the files that a conversion has left next to the store because of a crash after its
    /// commit. No process needs them, and they contain the old content of the store. Another
    /// process may be removing them at the same time.
    pub(super) fn remove_remains_of_conversion(&self) -> Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let inode = self.file_identity().unwrap_or_default().1;
        let (journal, made) = (sibling(path, "-journal"), made_beside(path, inode));
        if !made.exists() && !Undo::is_ended(&journal) {
            return Ok(());
        }
        // With this lock, no other connection has a journal or converts the file.
        self.execute("BEGIN IMMEDIATE")?;
        let _ = remove_wiped(&made); // the next open tries again
        if Undo::is_ended(&journal) {
            let _ = remove_wiped(&journal);
        }
        self.execute("ROLLBACK")
    }
}

fn in_use() -> Error {
    Error::busy(
        "another handle or process has the store open; a store can only be encrypted, decrypted or \
        rekeyed by its only handle",
    )
    .with_hint(Hint::CloseOtherHandles)
}

fn failed(e: io::Error) -> Error {
    match e.kind() {
        io::ErrorKind::StorageFull => Error::full(
            "the disk has too little free space to convert the store, which temporarily takes twice \
            the size of the store; nothing was changed",
        )
        .with_hint(Hint::FreeDiskSpace),
        io::ErrorKind::FileTooLarge | io::ErrorKind::QuotaExceeded => {
            Error::full(format!("cannot convert the store: {e}; nothing was changed"))
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Error::read_only(format!(
            "cannot convert the store ({e}): this process needs permission to write the store, its \
            -wal and its -journal, and to create a file in its directory; nothing was changed"
        )),
        _ => Error::io(format!("cannot convert the store: {e}")),
    }
}
