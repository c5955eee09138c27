//! A copy of a store in another file, made while it is in use.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::db;
use crate::error::{Error, Result};
use crate::fork;
use crate::store::Store;

impl Store {
    /// Copies everything that is committed to a new file, with all TTLs. Others read and write meanwhile;
    /// the copy is the state of one moment. `progress` is called now and then with the pages that remain
    /// and their total; `false` from it stops the backup.
    ///
    /// The copy is made under a temporary name beside `path`, synced, and only then gets its name: a file
    /// called `path` is always whole. A process that dies in between leaves a file `path.….partial`.
    ///
    /// # Errors
    /// `Error` if `path` exists or `progress` said stop (no file is left then); `Io`, `Full`, `CantOpen`.
    pub fn backup(&self, path: impl AsRef<Path>, mut progress: impl FnMut(u32, u32) -> bool) -> Result<()> {
        let inner = self.shared();
        let path = path.as_ref();
        inner.count_failure(refuse_existing(path))?;
        let partial = inner.count_failure(partial_name(path))?;
        let source = inner.with(|db| Ok(db.path()))?;
        inner.count_failure(create_like(source.as_deref(), &partial))?;
        let cleanup = RemoveOnDrop(&partial);
        // A connection of its own, so that the callback may use this store, and this store goes on.
        let copied = match source {
            Some(source) if !inner.config.exclusive => {
                Store::open_beside(inner, &source, &inner.config.clone().read_only(true))
                    .and_then(|source| source.shared().with(|db| db::copy(db, &partial, &mut progress)))
            }
            // Nobody else can read it: the handle itself must, and is busy meanwhile.
            _ => inner.with(|db| match db.transaction() {
                db::Transaction::None => db::copy(db, &partial, &mut progress),
                _ => Err(Error::Busy("a transaction is open on this handle: end it, then back up".into())),
            }),
        };
        let finished = copied.and_then(|whole| {
            if !whole {
                return Err(Error::Invalid(
                    "the backup was stopped by its progress callback; no file is left".into(),
                ));
            }
            let failed = |e: std::io::Error| Error::Io(format!("cannot finish the backup: {e}"));
            fs::File::open(&partial).and_then(|file| file.sync_all()).map_err(failed)?;
            give_name(&partial, path)?;
            if let Some(Ok(directory)) = path.parent().map(fs::File::open) {
                directory.sync_all().map_err(failed)?;
            }
            Ok(())
        });
        drop(cleanup);
        inner.count_failure(finished)
    }
}

fn refuse_existing(path: &Path) -> Result<()> {
    match fs::symlink_metadata(path) {
        Ok(_) => {
            Err(Error::Invalid("the backup's file exists already: name a new one, or remove it first".into()))
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(Error::CantOpen(format!("cannot look at the backup's path: {e}"))),
    }
}

/// Makes an empty file that nobody may read who may not read `original`.
fn create_like(original: Option<&Path>, path: &Path) -> Result<()> {
    let failed = |e: std::io::Error| Error::CantOpen(format!("cannot make the backup's file: {e}"));
    let mut options = fork::new_file();
    options.create_new(true);
    #[cfg(unix)]
    if let Some(original) = original {
        use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
        options.mode(fs::metadata(original).map_err(failed)?.permissions().mode() & 0o777);
    }
    options.open(path).map(drop).map_err(failed)
}

/// Gives the whole backup its name, without replacing a file that has come meanwhile.
fn give_name(partial: &Path, path: &Path) -> Result<()> {
    match fs::hard_link(partial, path) {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => refuse_existing(path),
        // A file system without hard links: the rename would replace a file that came just now.
        Err(_) => refuse_existing(path).and_then(|()| {
            fs::rename(partial, path).map_err(|e| Error::Io(format!("cannot name the backup: {e}")))
        }),
    }
}

/// The name the backup has until it is whole: no other backup's, be it to the same path.
fn partial_name(path: &Path) -> Result<PathBuf> {
    static BACKUPS: AtomicU64 = AtomicU64::new(0);
    let name =
        path.file_name().ok_or_else(|| Error::Invalid("the backup's path does not name a file".into()))?;
    let mut name = name.to_owned();
    name.push(format!(".{}-{}.partial", std::process::id(), BACKUPS.fetch_add(1, Ordering::Relaxed)));
    Ok(path.with_file_name(name))
}

struct RemoveOnDrop<'a>(&'a Path);

impl Drop for RemoveOnDrop<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.0);
    }
}
