//! Opening a connection: is the file ours, making it if it is new, and applying the configuration.
//!
//! A file that is not a store is left exactly as it was found.

use std::cell::RefCell;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::connection::{Db, Transaction, beside, translate};
#[cfg(kvstore_btree)]
use super::engine::btree::Direct;
use super::schema;
use crate::config::{AUTO_CHECKPOINT_PAGES, Config, INLINE_PAGE_FRACTION, JournalMode, SyncLevel};
use crate::error::{Error, Result};
use crate::fork::{OpenFile, lock};

/// The first bytes of every SQLite file.
const MAGIC: &[u8] = b"SQLite format 3\0";
/// How much of a file tells what it is: SQLite's header, and that of its first page.
const HEADER: u64 = 108;
/// The type of a page that is a table's only page.
const LEAF_TABLE: u32 = 0x0D;

/// Making a file or converting its journal needs a lock that others hold only for moments while
/// they open it: wait at least this long for it, also where the configuration says not to wait.
const OPEN_WAIT: Duration = Duration::from_secs(2);

/// SQLite sets itself up when it is used first, and looks without a lock whether that is done.
static WAS_USED: Mutex<bool> = Mutex::new(false);

pub(super) fn open(path: Option<&Path>, config: &Config, now_ms: i64) -> Result<Db> {
    config.check()?;
    if let Some(mut was_used) = lock(&WAS_USED)
        && !*was_used
    {
        *was_used = Connection::open_in_memory().is_ok();
    }
    let base = OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let Some(path) = path else {
        if config.read_only {
            return Err(Error::Invalid("an in-memory store cannot be read-only: it would stay empty".into()));
        }
        let flags = base | OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        let conn = Connection::open_in_memory_with_flags(flags).map_err(translate)?;
        return set_up(conn, None, None, config, now_ms);
    };

    // Absolute, so that SQLite gives no meaning to names like "file:x" or ":memory:".
    let path = std::path::absolute(path)
        .map_err(|e| Error::CantOpen(format!("cannot find the current directory: {e}")))?;
    check_kind(&path, config.read_only)?;
    // SQLite follows symbolic links, and looks for its other files where they lead.
    let real = std::fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
    check_files_beside(&real)?;
    let file =
        OpenFile::register(&path, !config.read_only, |file| check_header(file, &real, config.read_only))?;
    let flags = if config.read_only {
        OpenFlags::SQLITE_OPEN_READ_ONLY
    } else {
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE
    };
    let conn = Connection::open_with_flags(&path, base | flags).map_err(translate)?;
    // The name SQLite uses, with symbolic links followed: the WAL is beside that one.
    let path = conn.path().map_or(path, PathBuf::from);
    set_up(conn, Some(path), Some(file), config, now_ms).map_err(|e| match &e {
        Error::Busy(text) => Error::Busy(format!(
            "another handle or process has the file open exclusively, in the other journal mode, or is writing \
             just now: close it there, or try again ({text})"
        )),
        _ => e,
    })
}

/// Refuses what is no regular file before anybody opens it: opening a FIFO would wait for ever.
fn check_kind(path: &Path, read_only: bool) -> Result<()> {
    match std::fs::metadata(path) {
        Ok(found) if found.is_file() => {
            if read_only && found.len() == 0 {
                return Err(Error::CantOpen(
                    "the file is empty, and a read-only open cannot make a store".into(),
                ));
            }
            Ok(())
        }
        Ok(found) if found.is_dir() => Err(Error::CantOpen("the path is a directory, not a file".into())),
        Ok(_) => Err(Error::CantOpen("the path is not a regular file".into())),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            if read_only {
                return Err(Error::CantOpen(
                    "the file does not exist, and a read-only open cannot make it".into(),
                ));
            }
            Ok(())
        }
        Err(e) => Err(Error::CantOpen(format!("cannot look at the file: {e}"))),
    }
}

/// The same for the files that SQLite opens by itself.
fn check_files_beside(path: &Path) -> Result<()> {
    for suffix in ["-journal", "-wal", "-shm"] {
        if std::fs::metadata(beside(path, suffix)).is_ok_and(|found| !found.is_file()) {
            return Err(Error::CantOpen(format!(
                "what has the name of the store with \"{suffix}\" behind it is not a regular file: remove it"
            )));
        }
    }
    Ok(())
}

/// Refuses a file that is not ours by its first bytes. SQLite itself would roll a stranger's journal
/// back, or checkpoint its WAL, just by looking; and ours may be in the middle of a checkpoint.
fn check_header(file: &mut File, path: &Path, read_only: bool) -> Result<()> {
    let mut header = Vec::new();
    file.take(HEADER)
        .read_to_end(&mut header)
        .map_err(|e| Error::Io(format!("cannot read the file: {e}")))?;
    if header.is_empty() {
        return Ok(());
    }
    let has = |suffix: &str| std::fs::metadata(beside(path, suffix)).is_ok_and(|file| file.len() > 0);
    // Where these are is the first chapter of SQLite's fileformat2.html, and its chapter 1.6.
    let number = |at: std::ops::Range<usize>| {
        header.get(at).map(|bytes| bytes.iter().fold(0u32, |number, byte| number << 8 | u32::from(*byte)))
    };
    let (Some(application_id), Some(page_type), Some(tables), true) =
        (number(68..72), number(100..101), number(103..105), header.starts_with(MAGIC))
    else {
        if has("-journal") {
            return Ok(()); // a store whose making was cut off: SQLite rolls it back
        }
        return Err(Error::NotADatabase("the file is not a SQLite database, so it is no store".into()));
    };
    if application_id == schema::APPLICATION_ID.unsigned_abs() {
        return Ok(());
    }
    // A stranger may have everything in its WAL still; a store's mark is in the main file from the start.
    if application_id != 0 || page_type != LEAF_TABLE || tables != 0 || has("-wal") {
        return Err(not_ours());
    }
    if read_only {
        return Err(Error::CantOpen(
            "the file has no store in it, and a read-only open cannot make one".into(),
        ));
    }
    Ok(())
}

fn not_ours() -> Error {
    Error::NotADatabase(
        "the file is a SQLite database of another application, not a store; it was left as it is".into(),
    )
}

fn set_up(
    mut conn: Connection,
    path: Option<PathBuf>,
    file: Option<OpenFile>,
    config: &Config,
    now_ms: i64,
) -> Result<Db> {
    let wal_frames = Arc::new(AtomicU32::new(0));
    let frames = Arc::clone(&wal_frames);
    // Also keeps SQLite from checkpointing by itself: when to do that is `Db`'s decision.
    conn.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages: std::ffi::c_int| {
        frames.store(pages.max(0).unsigned_abs(), Ordering::Relaxed);
        Ok(())
    }))
    .map_err(translate)?;
    // Triggers, functions and views somebody put into the file must not run in this process. A view in the
    // place of a table can have rows without end.
    for option in [
        DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER,
        DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW,
        DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA,
    ] {
        conn.set_db_config(option, false).map_err(translate)?;
    }
    conn.set_prepared_statement_cache_capacity(256);

    let mut db = Db {
        #[cfg(kvstore_btree)]
        direct: None,
        #[cfg(kvstore_btree)]
        writes_directly: false,
        conn,
        transaction: Transaction::None,
        path,
        sync: config.sync,
        busy_timeout: config.busy_timeout,
        read_only: config.read_only,
        max_inline: 0,
        wal_frames,
        checkpoint_at: AUTO_CHECKPOINT_PAGES,
        checkpointed_to: 0,
        checkpoint_every: config.checkpoint_every,
        commits_since_checkpoint: 0,
        settings: RefCell::default(),
        file,
    };
    db.set_busy_timeout(config.busy_timeout.max(OPEN_WAIT))?;
    apply_before_first_read(&db, config)?;
    if !config.read_only {
        until_free(config, || create_if_new(&db, config, now_ms))?;
    }
    check_format(&db)?;
    if !config.read_only {
        until_free(config, || convert_journal(&db, config.journal_mode))?;
        if config.exclusive {
            // In DELETE mode nothing but a write takes the lock that keeps others out.
            until_free(config, || db.execute("BEGIN EXCLUSIVE").and_then(|()| db.execute("COMMIT")))?;
        }
        db.read_first()?; // so that the WAL is there
    }
    let page_size = u64::try_from(db.read_number("PRAGMA page_size")?).unwrap_or(0);
    db.max_inline = usize::try_from(page_size).unwrap_or(0) / INLINE_PAGE_FRACTION;
    db.execute(&format!("PRAGMA journal_size_limit = {}", u64::from(AUTO_CHECKPOINT_PAGES) * page_size))?;
    db.set_busy_timeout(config.busy_timeout)?;
    // Prepared now, so that they need no memory when there is none.
    for sql in ["BEGIN", "COMMIT", "ROLLBACK"] {
        drop(db.sql()?.prepare_cached(sql).map_err(translate)?);
    }
    #[cfg(kvstore_btree)]
    if !config.sql_engine {
        go_direct(&mut db, config, page_size)?;
    }
    Ok(db)
}

/// Switches the `btree` engine on.
#[cfg(kvstore_btree)]
fn go_direct(db: &mut Db, config: &Config, page_size: u64) -> Result<()> {
    let mut direct = Direct::new(&db.conn)?;
    let alone = db.path.is_none() || config.exclusive;
    // In DELETE mode a commit waits for readers, and nothing tells that others have committed.
    db.writes_directly = alone || journal_mode(db)? == "wal";
    if db.writes_directly {
        direct.watch(&db.conn, alone, config.hold_reads);
        if let Some(path) = &db.path
            && db.sync == SyncLevel::Normal
            && !config.read_only
        {
            direct.write_back(&beside(path, "-wal"), page_size);
        }
    }
    db.direct = Some(direct);
    Ok(())
}

#[cfg(kvstore_btree)]
fn journal_mode(db: &Db) -> Result<String> {
    db.conn.query_row("PRAGMA journal_mode", [], |row| row.get(0)).map_err(translate)
}

fn apply_before_first_read(db: &Db, config: &Config) -> Result<()> {
    let sync = match config.sync {
        SyncLevel::Normal => "NORMAL",
        // FULL does not sync the directory after a rollback journal was removed from it: a power cut could bring
        // the journal back, and undo the commit. In WAL mode both are the same.
        SyncLevel::Full => "EXTRA",
        SyncLevel::Off => "OFF",
    };
    if config.exclusive {
        db.execute("PRAGMA locking_mode = EXCLUSIVE")?;
    }
    for (name, value) in [
        ("cache_size", config.cache_pages.to_string()),
        ("mmap_size", config.mmap_size.to_string()),
        ("synchronous", sync.to_owned()),
        ("temp_store", "MEMORY".to_owned()), // no files but those beside the store
        ("foreign_keys", "OFF".to_owned()),
    ] {
        db.execute(&format!("PRAGMA {name} = {value}"))?;
    }
    Ok(())
}

/// Tries again while others hold a lock: SQLite waits for most locks by itself, but not when two that
/// read both want to write.
fn until_free(config: &Config, mut f: impl FnMut() -> Result<()>) -> Result<()> {
    let started = Instant::now();
    loop {
        match f() {
            Err(e) if e.is_retryable() && started.elapsed() < config.busy_timeout.max(OPEN_WAIT) => {
                std::thread::sleep(Duration::from_millis(2));
            }
            done => return done,
        }
    }
}

/// Makes the store in one transaction of the rollback journal, so that the mark of the format is in
/// the main file from the start, never only in a WAL.
fn create_if_new(db: &Db, config: &Config, now_ms: i64) -> Result<()> {
    if is_ours(db)? {
        return Ok(());
    }
    // Only here: on a file that has something in it the second of them writes.
    db.execute(&format!("PRAGMA page_size = {}", config.page_size))?;
    db.execute("PRAGMA auto_vacuum = INCREMENTAL")?;
    if db.read_number("PRAGMA page_count")? > 0 && db.read_number("SELECT count(*) FROM sqlite_schema")? == 0
    {
        // An empty database somebody made: it takes our page size and auto-vacuum only this way.
        db.execute("VACUUM")?;
    }
    db.execute("BEGIN IMMEDIATE")?;
    let made = (|| {
        if is_ours(db)? {
            return Ok(()); // somebody else was faster
        }
        if db.read_number("SELECT count(*) FROM sqlite_schema")? != 0 {
            return Err(not_ours());
        }
        schema::create_store(db.sql()?, now_ms)
    })()
    .and_then(|()| db.execute("COMMIT"));
    if made.is_err() && !db.is_idle() {
        let _ = db.execute("ROLLBACK"); // the first error is the one to report
    }
    made
}

fn is_ours(db: &Db) -> Result<bool> {
    Ok(db.read_number("PRAGMA application_id")? == i64::from(schema::APPLICATION_ID))
}

fn convert_journal(db: &Db, wanted: JournalMode) -> Result<()> {
    if db.path.is_none() {
        return Ok(());
    }
    let wanted = match wanted {
        JournalMode::Wal => "wal",
        JournalMode::Delete => "delete",
    };
    let is: String = db
        .conn
        .query_row(&format!("PRAGMA journal_mode = {wanted}"), [], |row| row.get(0))
        .map_err(translate)?;
    if is == wanted {
        return Ok(());
    }
    Err(Error::Busy(format!("the journal mode is \"{is}\", and cannot become \"{wanted}\" now")))
}

fn check_format(db: &Db) -> Result<()> {
    if !is_ours(db)? {
        return Err(not_ours());
    }
    let version = db.read_number("PRAGMA user_version")?;
    if version > i64::from(schema::FORMAT_VERSION) {
        return Err(Error::CantOpen(format!(
            "the file has format version {version}, and this library knows versions up to {}: use a newer library",
            schema::FORMAT_VERSION
        )));
    }
    let damaged = |what: &str| Error::Corrupt(format!("the file is marked as a store, but {what}"));
    if version < i64::from(schema::FORMAT_VERSION) {
        return Err(damaged(&format!("has format version {version}, which never was")));
    }
    match schema::family_exists(db.sql()?, schema::DEFAULT_FAMILY) {
        Ok(true) => Ok(()),
        Ok(false) => Err(damaged("its catalogue has no default family")),
        Err(Error::Failed(_)) => Err(damaged("it has no catalogue of families")),
        Err(e) => Err(e),
    }
}
