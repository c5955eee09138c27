//! Backup of a store into a new file while it is in use.

use std::path::Path;

use super::{NewFile, Store};
use crate::backend::TransactionState;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::hint::Hint;

impl Store {
    /// Copies all committed data into a new file, as a consistent snapshot with all expiry times.
    ///
    /// During the call, other connections can read and write. `progress` is called at intervals
    /// with the number of remaining pages and the total number of pages; if it returns `false`, the
    /// backup is cancelled.
    ///
    /// The copy is written under a temporary name in the directory of `path`, synced, and then
    /// renamed. A file named `path` is therefore always complete. A process that is killed leaves a
    /// file `path.….partial`.
    ///
    /// # Errors
    /// No file is left then.
    /// - [`Error`](crate::ErrorKind::Error): `path` exists or is not a file name (`""`,
    ///   `":memory:"`, `"file:…"`, a directory, a URL); `path` has a `-wal`, `-shm` or `-journal`
    ///   file of another store, or is the name of such a file; or `progress` cancelled the backup.
    /// - [`Busy`](crate::ErrorKind::Busy): a transaction is open on this handle of a store in
    ///   memory or of an exclusive store; or another handle has a lock.
    /// - [`Misuse`](crate::ErrorKind::Misuse): the store was closed, before or during the call.
    /// - [`Io`](crate::ErrorKind::Io), also if the store is no longer at the path it was opened by.
    /// - `CantOpen`, `Full`, `NoMemory`, `Corrupt`.
    pub fn backup(&self, path: impl AsRef<Path>, mut progress: impl FnMut(u32, u32) -> bool) -> Result<()> {
        let session = self.session();
        let source = session.with(|db| Ok(db.path()))?;
        let is_there = || source.as_deref().map_or(Ok(()), |source| session.check_path(source));
        let original = source.as_deref().filter(|_| session.file.is_some());
        let (new, ()) = session.count_failure(NewFile::begin(
            path.as_ref(),
            original,
            session.config.file.mode,
            "backup",
            is_there,
        ))?;
        // Ends the copy if the store was closed, because the closing thread may be waiting for this
        // call.
        let mut progress = |remaining, total| {
            progress(remaining, total) && session.is_of_this_process() && !session.is_closed()
        };
        // The copy uses another connection, so that the callback and other threads can use this
        // handle during the call.
        let copied = match source {
            Some(source) if !session.config.file.exclusive => {
                let config = session.config_now().map(|config| config.read_only(true));
                config
                    .and_then(|config| Store::open_beside(session, &source, &config))
                    .and_then(|source| source.session().with(|db| db.copy(new.partial(), &mut progress)))
            }
            // No other connection can read the store, so the copy occupies the handle itself.
            _ => session.with(|db| match db.transaction() {
                TransactionState::None => db.copy(new.partial(), &mut progress),
                _ => Err(Error::busy("a transaction is open on this handle, so no backup can be made")
                    .with_hint(Hint::EndTransaction)),
            }),
        };
        let copied = copied.and_then(|whole| match whole {
            Some(whole) => Ok(whole),
            None => self.copy_rows(new.partial(), &mut progress),
        });
        let finished = copied.and_then(|whole| {
            if !whole {
                session.check_open()?;
                return Err(Error::invalid(
                    "the backup was stopped by its progress callback; the new file was removed",
                ));
            }
            new.finish()
        });
        session.count_failure(finished)
    }
    /// Copies all families with their live keys, row by row, into a new store in the existing empty
    /// file `to`. `progress` gets the number of remaining rows and the number of all rows. Returns
    /// `false` if `progress` cancelled the copy.
    fn copy_rows(&self, to: &Path, progress: &mut impl FnMut(u32, u32) -> bool) -> Result<bool> {
        let to = Store::open_with(to, &Config::new())?;
        let mut goes_on = true;
        let copied = self.copy_to(&to, |done, total| {
            let left = total.saturating_sub(done);
            let number = |rows: u64| u32::try_from(rows).unwrap_or(u32::MAX);
            goes_on = progress(number(left), number(total));
            goes_on
        });
        match copied {
            Err(_) if !goes_on => return Ok(false),
            copied => drop(copied?),
        }
        to.close().map(|()| true)
    }
}
