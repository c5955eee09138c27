//! Encrypts a store, decrypts it, or gives it another secret, in place.
//!
//! The new content is made in a file beside the store, by SQLCipher's `sqlcipher_export`, which takes along whatever is
//! in the file, other programs' tables included. Then the old content is written down as a rollback journal
//! ([`Undo`]), and the file overwritten: it stays the same file, with its owner and its mode, nothing of the old content
//! is left in it, and who has it open without a lock (with a rollback journal an idle handle has none) does not go on
//! with a file that has lost its name. A crash before the end leaves the old content, which the journal puts back; one after it the new
//! one.

use std::fmt::LowerHex;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use rusqlite::types::ValueRef;

use super::cipher;
use super::connection::{Db, beside};
use super::failure::translate;
use super::os::{self, FileIdentity, Opened};
use super::pragmas;
use super::undo::{CHUNK, Undo};
use super::watch::gone;
use crate::config::{Config, DEFAULT_PAGE_SIZE};
use crate::error::{Error, ErrorKind, Result};
use crate::hint::Hint;
use crate::secret::Secret;

/// The file that the new content is made in, beside a store with this inode: nobody else gives a file this name.
fn made_beside(path: &Path, inode: impl LowerHex) -> PathBuf {
    beside(path, &format!("-convert-{inode:x}"))
}

/// The name it has for SQL.
const CONVERTED: &str = "converted";

impl Db {
    /// Encrypts the file with the secret of `after`, or decrypts it if `after` has none. The file
    /// is open with the configuration `before`.
    ///
    /// The file is opened again in every case, also after a failure.
    ///
    /// # Errors
    /// `Busy` if others have the file open; `Io`, `Full`, `Corrupt`. The file has its old content then.
    pub(crate) fn convert(&mut self, before: &Config, after: &Config) -> Result<()> {
        let Some(path) = self.path.clone() else {
            return Err(Error::invalid("a store in memory has no file to encrypt"));
        };
        after.check()?;
        self.check_place()?;
        self.check_alone()?;
        let file = self.file_identity().unwrap_or_default();
        check_it_can_be_opened(&path, file)?; // before the connection is left
        // In the place of the one that is left, while there is none.
        let nothing = Connection::open_in_memory().map_err(translate)?;
        let made = made_beside(&path, file.1);
        let mut logs = vec![log_of(&path)];
        self.leave(nothing, before);
        logs.push(log_of(&path)); // a crash, or somebody else, may have left one
        let mut done = lock_alone(&path, before).and_then(|conn| {
            check_is_it(&conn, &path, file)?;
            self.check_alone()?;
            for log in logs.into_iter().flatten() {
                wipe_what_is_gone(&log)?;
            }
            replace_content(&conn, &path, file, &made, after.file.secret.as_deref())
        });
        // If it cannot be opened now, the next call tries again, and says why that fails.
        let is_refused = |opened: Result<()>| opened.is_err_and(|e| e.kind() == ErrorKind::AuthFailed);
        let opened = self.open_with(if done.is_ok() { after } else { before });
        if done.is_err() && is_refused(opened) {
            // The new content stays if the old one could no longer be put back.
            let opened = self.open_with(after);
            if opened.is_ok() {
                done = Ok(());
            } else if is_refused(opened) {
                let _ = self.open_with(before);
            }
        }
        done
    }

    /// Whether no other process of this library has the file open, as far as can be seen.
    fn check_alone(&self) -> Result<()> {
        if self.presence.as_ref().is_none_or(|presence| presence.is_alone()) { Ok(()) } else { Err(in_use()) }
    }
}

/// Fails if a file could not be opened by its path any more.
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

/// Fails if a connection has opened another file than it was to: one that was put in its place.
fn check_is_it(conn: &Connection, path: &Path, file: FileIdentity) -> Result<()> {
    if os::is_at(path, file) && !os::has_moved(conn) { Ok(()) } else { Err(gone()) }
}

/// A connection that keeps everybody out from its first read on, without a WAL. (Who leaves WAL mode without that lets
/// others in for a moment, who find the mark of a WAL still, and begin another one: what they commit to it would be lost.)
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
        // With a rollback journal a read keeps nobody from reading.
        run(&conn, "BEGIN EXCLUSIVE")?;
        run(&conn, "COMMIT")?;
        // Who keeps others out keeps the journal open, and removes at the close whatever has its name by then.
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
    // The journal that is left now is SQLite's, of the change of the mode, or one of a conversion that has ended.
    remove_wiped(&beside(path, "-journal")).map_err(failed)?;
    Ok(conn)
}

/// Empties a WAL that is still there, because this process may not remove it: SQLite takes no notice of that, and whoever
/// opens the file next would put what is in the WAL over the new content. All of it is in the file.
fn empty_log(path: &Path) -> Result<()> {
    let emptied = match os::open_what_is_there(&beside(path, "-wal")) {
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

/// The WAL of a file, if there is one, to be overwritten when it is gone.
fn log_of(path: &Path) -> Option<File> {
    os::open_to_outlive_its_name(&beside(path, "-wal"))
}

/// Overwrites a file that has no name any more, and that nobody has open.
fn wipe_what_is_gone(file: &File) -> Result<()> {
    match os::names_of(file) {
        Ok(0) => wipe(file).map_err(failed),
        _ => Ok(()),
    }
}

/// Puts into the file of a connection that has locked it for itself what is in it now, with another secret.
fn replace_content(
    conn: &Connection,
    path: &Path,
    file: FileIdentity,
    made: &Path,
    secret: Option<&Secret>,
) -> Result<()> {
    remove_wiped(made).map_err(failed)?; // what a crash has left
    let export = export(conn, made, secret)?;
    let page_size = usize::try_from(pragmas::page_size(conn)?).unwrap_or(0);
    let mut undo = Undo::of(conn, path, page_size).inspect_err(|_| export.remove())?;
    // Only beside the file is the journal one that puts it back.
    if let Err(e) = check_is_it(conn, path, file) {
        export.remove();
        undo.commit()?; // with the content it has
        let _ = undo.wipe();
        return Err(e);
    }
    let written = overwrite(conn, &export).and_then(|()| undo.commit());
    export.remove();
    written?;
    // It counts no more. If this fails, the next open of the store removes it.
    let _ = undo.wipe();
    Ok(())
}

/// A new content in the making.
struct Export {
    path: PathBuf,
    file: File,
}

impl Export {
    /// What cannot be removed now, the next open removes.
    fn remove(&self) {
        let _ = remove_wiped(&self.path);
    }
}

/// Makes a file with what is in the database, encrypted with another secret or with none; on the disk when this returns.
fn export(conn: &Connection, path: &Path, secret: Option<&Secret>) -> Result<Export> {
    let file = os::make_private(path).map_err(failed)?;
    let export = Export { path: path.to_owned(), file };
    let filled = fill(conn, path, secret).and_then(|()| export.file.sync_all().map_err(failed));
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
    // Also reads the schema, which may have changed since: statements of the export's do not do that.
    let tables = count("main")?;
    let name = ValueRef::Text(path.as_os_str().as_encoded_bytes());
    let attach = format!("ATTACH ?1 AS {CONVERTED} KEY ''"); // the key comes where it is not copied about
    conn.execute(&attach, [rusqlite::types::ToSqlOutput::Borrowed(name)]).map_err(translate)?;
    let filled = (|| {
        match secret {
            Some(secret) => cipher::set_secret(conn, CONVERTED, secret)?,
            None => run(conn, &format!("PRAGMA {CONVERTED}.page_size = {DEFAULT_PAGE_SIZE}"))?,
        }
        // The file counts only once it is whole and synced, so it needs no journal on the way.
        run(conn, &format!("PRAGMA {CONVERTED}.journal_mode = OFF"))?;
        run(conn, &format!("PRAGMA {CONVERTED}.synchronous = OFF"))?;
        let copied = |pragma: &str| {
            let value = number(&format!("PRAGMA main.{pragma}"))?;
            run(conn, &format!("PRAGMA {CONVERTED}.{pragma} = {value}"))
        };
        copied("auto_vacuum")?; // before the first table
        run(conn, "BEGIN")?; // or each table is made by a transaction of its own
        run(conn, &format!("SELECT sqlcipher_export('{CONVERTED}')"))?;
        copied("application_id")?;
        copied("user_version")?;
        run(conn, "COMMIT")?;
        if cipher::is_spoilt(conn) {
            return Err(cipher::not_decrypted()); // zeros were copied in the place of pages
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
    // It closes the file, which is read afterwards.
    filled.and(run(conn, &format!("DETACH {CONVERTED}")))
}

fn run(conn: &Connection, sql: &str) -> Result<()> {
    let mut statement = conn.prepare(sql).map_err(translate)?;
    let mut rows = statement.raw_query();
    while rows.next().map_err(translate)?.is_some() {} // some pragmas answer with a row
    Ok(())
}

/// Overwrites the database of a connection with a file; on the disk when this returns.
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
    // What is cut off is overwritten, too.
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

/// Overwrites a file with zeros, durably.
fn wipe(mut file: &File) -> io::Result<()> {
    file.seek(SeekFrom::Start(0))?;
    let zeros = io::repeat(0).take(file.metadata()?.len());
    os::beyond_limit(|| io::copy(&mut io::BufReader::with_capacity(CHUNK, zeros), &mut file))?;
    file.sync_data()
}

/// Overwrites a file and removes it, if it is there.
fn remove_wiped(path: &Path) -> io::Result<()> {
    match os::open_what_is_there(path) {
        Ok(file) => wipe(&file).and_then(|()| fs::remove_file(path)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e),
    }
}

impl Db {
    /// Removes what a conversion has left that was cut off after its end, when nobody needs it any more: with what the
    /// file was before. Another process may be about to do so.
    pub(super) fn remove_remains_of_conversion(&self) -> Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let inode = self.file_identity().unwrap_or_default().1;
        let (journal, made) = (beside(path, "-journal"), made_beside(path, inode));
        if !made.exists() && !Undo::is_ended(&journal) {
            return Ok(());
        }
        // Nobody else has a journal then, nor converts the file.
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
