//! A copy of a store in another file, made while it is in use.

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::Store;
use crate::db;
use crate::error::{Error, Result};
use crate::fork;

impl Store {
    /// Copies everything that is committed to a new file, with all TTLs. Others read and write meanwhile;
    /// the copy is the state of one moment. `progress` is called now and then with the pages that remain
    /// and their total; `false` from it stops the backup.
    ///
    /// The copy is made under a temporary name beside `path`, synced, and only then gets its name: a file
    /// called `path` is always whole. A process that dies in between leaves a file `path.….partial`.
    ///
    /// # Errors
    /// `Error` if `path` exists, if a log of another store is beside it, if it is the name of the log or journal of a
    /// file beside it, if it is no name of a file (`""`, `":memory:"`, `"file:…"`, a directory), or if `progress` said stop (no file is left then);
    /// [`Misuse`](crate::ErrorKind::Misuse) if the store is closed, also meanwhile; `Io`, `Full`, `CantOpen`.
    pub fn backup(&self, path: impl AsRef<Path>, mut progress: impl FnMut(u32, u32) -> bool) -> Result<()> {
        let shared = self.shared();
        let path = &shared.count_failure(file_name(path.as_ref()))?;
        shared.count_failure(refuse_existing(path))?;
        let partial = shared.count_failure(partial_name(path))?;
        let source = shared.with(|db| Ok(db.path()))?;
        if let Some(source) = &source {
            shared.count_failure(shared.check_path(source))?;
        }
        shared.count_failure(create_like(source.as_deref(), &partial))?;
        let cleanup = RemoveOnDrop { partial: &partial, generation: fork::generation() };
        // Who closes this store may be waiting for this call.
        let mut progress = |remaining, total| {
            progress(remaining, total) && shared.is_of_this_process() && !shared.is_closed()
        };
        // A connection of its own, so that the callback may use this store, and this store goes on.
        let copied = match source {
            Some(source) if !shared.config.file.exclusive => {
                Store::open_beside(shared, &source, &shared.config.clone().read_only(true))
                    .and_then(|source| source.shared().with(|db| db::copy(db, &partial, &mut progress)))
            }
            // Nobody else can read it: the handle itself must, and is busy meanwhile.
            _ => shared.with(|db| match db.transaction() {
                db::TransactionState::None => db::copy(db, &partial, &mut progress),
                _ => Err(Error::busy("a transaction is open on this handle: end it, then back up")),
            }),
        };
        let finished = copied.and_then(|whole| {
            if !whole {
                shared.check_open()?;
                return Err(Error::invalid(
                    "the backup was stopped by its progress callback; no file is left",
                ));
            }
            let failed = |e: std::io::Error| Error::io(format!("cannot finish the backup: {e}"));
            fs::File::open(&partial).and_then(|file| file.sync_all()).map_err(failed)?;
            give_name(&partial, path)?;
            if let Some(Ok(directory)) = path.parent().map(fs::File::open) {
                directory.sync_all().map_err(failed)?;
            }
            Ok(())
        });
        drop(cleanup);
        shared.count_failure(finished)
    }
}

/// The path, made absolute, of what can only be a file.
fn file_name(path: &Path) -> Result<PathBuf> {
    let bytes = path.as_os_str().as_encoded_bytes();
    if bytes.is_empty() || bytes == b":memory:" {
        return Err(Error::invalid(
            "a backup needs the name of a file: an empty one, or \":memory:\", is none (\"./:memory:\" is)",
        ));
    }
    if bytes.starts_with(b"file:") {
        return Err(Error::invalid(
            "a backup needs the name of a file, not a URI: write \"./file:…\" if the file is called so",
        ));
    }
    // Both are names of directories, and are taken off by `Path` silently.
    if bytes.ends_with(b"/") || bytes.ends_with(b"/.") || path.file_name().is_none() {
        return Err(Error::invalid("a backup needs the name of a file, and this is one of a directory"));
    }
    std::path::absolute(path).map_err(|e| Error::cant_open(format!("cannot find the current directory: {e}")))
}

fn refuse_existing(path: &Path) -> Result<()> {
    // First: it may be the store itself, whose own log is beside it.
    match fs::symlink_metadata(path) {
        Ok(_) => {
            return Err(Error::invalid(
                "the backup's file exists already: name a new one, or remove it first",
            ));
        }
        Err(e) if e.kind() == ErrorKind::NotFound => {}
        Err(e) => return Err(Error::cant_open(format!("cannot look at the backup's path: {e}"))),
    }
    // It would be taken for the backup's own as soon as that is opened.
    for suffix in ["-wal", "-journal"] {
        let mut log = path.as_os_str().to_owned();
        log.push(suffix);
        if fs::symlink_metadata(&log).is_ok_and(|found| found.len() > 0) {
            return Err(Error::invalid(format!(
                "beside the backup's path is a log of another store, whose name ends in \"{suffix}\": remove it, \
                 or choose another name"
            )));
        }
    }
    // And it would be taken for theirs: removed, or read as changes that were not finished.
    for suffix in ["-wal", "-shm", "-journal"] {
        let of = path.file_name().and_then(|name| name.as_bytes().strip_suffix(suffix.as_bytes()));
        if of.is_some_and(|of| !of.is_empty() && is_there(&path.with_file_name(OsStr::from_bytes(of)))) {
            return Err(Error::invalid(format!(
                "the backup's name is that of the file beside it with \"{suffix}\" after it, which SQLite uses and \
                 removes: choose another name"
            )));
        }
    }
    Ok(())
}

/// Whether something that may be a database has this name.
fn is_there(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| !found.is_dir())
}

/// Makes an empty file that nobody may read who may not read `original`.
fn create_like(original: Option<&Path>, path: &Path) -> Result<()> {
    let failed = |e: std::io::Error| Error::cant_open(format!("cannot make the backup's file: {e}"));
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    if let Some(original) = original {
        use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
        options.mode(fs::metadata(original).map_err(failed)?.permissions().mode() & 0o777);
    }
    options.open(path).map(drop).map_err(failed)
}

/// Gives the whole backup its name, without replacing a file that has come meanwhile.
fn give_name(partial: &Path, path: &Path) -> Result<()> {
    match db::rename_new(partial, path).or_else(|e| rename_by_link(e, partial, path)) {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == ErrorKind::AlreadyExists => refuse_existing(path),
        Err(e) => Err(Error::io(format!("cannot name the backup: {e}"))),
    }
}

/// Where a rename may replace what is there: a second name, and then without the first one. A process that dies in
/// between leaves both, and opening the backup answers which to remove.
fn rename_by_link(why: std::io::Error, partial: &Path, path: &Path) -> std::io::Result<()> {
    if why.kind() != ErrorKind::Unsupported {
        return Err(why);
    }
    match fs::hard_link(partial, path) {
        Ok(()) => fs::remove_file(partial),
        Err(e) if e.kind() == ErrorKind::AlreadyExists => Err(e),
        // A file system without hard links: the rename would replace a file that came just now.
        Err(_) if fs::symlink_metadata(path).is_ok() => Err(ErrorKind::AlreadyExists.into()),
        Err(_) => fs::rename(partial, path),
    }
}

/// The name the backup has until it is whole: no other backup's, be it to the same path.
fn partial_name(path: &Path) -> Result<PathBuf> {
    static BACKUPS: AtomicU64 = AtomicU64::new(0);
    let name = path.file_name().ok_or_else(|| Error::invalid("the backup's path does not name a file"))?;
    let mut name = name.to_owned();
    name.push(format!(".{}-{}.partial", std::process::id(), BACKUPS.fetch_add(1, Ordering::Relaxed)));
    Ok(path.with_file_name(name))
}

/// Removes what is there of a backup that was not finished.
struct RemoveOnDrop<'a> {
    partial: &'a Path,
    /// If the caller's callback has forked, it is the parent's file.
    generation: u32,
}

impl Drop for RemoveOnDrop<'_> {
    fn drop(&mut self) {
        if self.generation == fork::generation() {
            let _ = fs::remove_file(self.partial);
        }
    }
}
