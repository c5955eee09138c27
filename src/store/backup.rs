//! A copy of a store in another file, made while it is in use.

use std::path::Path;

use super::{NewFile, Store};
use crate::config::Config;
use crate::db::TransactionState;
use crate::error::{Error, Result};

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
        let source = shared.with(|db| Ok(db.path()))?;
        let is_there = || source.as_deref().map_or(Ok(()), |source| shared.check_path(source));
        let original = source.as_deref().filter(|_| shared.file.is_some());
        let (new, ()) = shared.count_failure(NewFile::begin(path.as_ref(), original, "backup", is_there))?;
        // Who closes this store may be waiting for this call.
        let mut progress = |remaining, total| {
            progress(remaining, total) && shared.is_of_this_process() && !shared.is_closed()
        };
        // A connection of its own, so that the callback may use this store, and this store goes on.
        let copied = match source {
            Some(source) if !shared.config.file.exclusive => {
                let config = shared.config_now().map(|config| config.read_only(true));
                config
                    .and_then(|config| Store::open_beside(shared, &source, &config))
                    .and_then(|source| source.shared().with(|db| db.copy(new.partial(), &mut progress)))
            }
            // Nobody else can read it: the handle itself must, and is busy meanwhile.
            _ => shared.with(|db| match db.transaction() {
                TransactionState::None => db.copy(new.partial(), &mut progress),
                _ => Err(Error::busy("a transaction is open on this handle: end it, then back up")),
            }),
        };
        let copied = copied.and_then(|whole| match whole {
            Some(whole) => Ok(whole),
            None => self.copy_rows(new.partial(), &mut progress),
        });
        let finished = copied.and_then(|whole| {
            if !whole {
                shared.check_open()?;
                return Err(Error::invalid(
                    "the backup was stopped by its progress callback; no file is left",
                ));
            }
            new.finish()
        });
        shared.count_failure(finished)
    }
    /// Copies everything, row by row, into a store in a file, which is there, empty; says whether it is whole, or
    /// `progress` has said stop.
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
