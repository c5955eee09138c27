//! Copying a store to another file, page by page, through SQLite's online backup.

use std::path::Path;

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};

use super::connection::Db;
use super::error::translate;
use super::os;
use super::set_up::wipe_what_goes;
use crate::config::SyncLevel;
use crate::error::{Error, Result};
use crate::hint::Hint;

/// Number of pages that one step of a backup copies, which is 1 MiB with pages of 4096 bytes. After
/// each step, the progress callback of the backup is called.
const PAGES_PER_STEP: i32 = 256;

/// Copies the committed content of `source` into a new file, from one snapshot. Returns `false` if
/// `progress` cancelled the copy.
///
/// Commits during the copy are not copied, and do not delay it. `progress` gets the number of
/// remaining pages and the total number of pages, and returns whether to continue.
pub(crate) fn copy(source: &Db, to: &Path, mut progress: impl FnMut(u32, u32) -> bool) -> Result<bool> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut target = if source.secure_delete {
        Connection::open_with_flags_and_vfs(to, flags, os::vfs::name_as_str()?)
    } else {
        Connection::open_with_flags(to, flags)
    }
    .map_err(translate)?;
    #[cfg(feature = "encryption")]
    if let Some(secret) = source.encrypted.as_ref().and_then(|config| config.file.secret.as_ref()) {
        super::cipher::set_secret(&target, "main", secret)?;
    }
    if source.secure_delete {
        // The unused parts of the source's pages may contain deleted rows.
        wipe_what_goes(&target, SyncLevel::Off)?;
        os::vfs::wipe_pages(&target, source.pages_to_wipe()?)?;
    }
    // The file is used only after it is complete and synced, so it needs no journal before.
    target
        .execute_batch(
            "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA locking_mode = EXCLUSIVE; \
             PRAGMA cache_size = 32;",
        )
        .map_err(translate)?;
    // Inside a transaction every step reads the same snapshot, and nothing restarts the copy.
    source.in_snapshot(|source| {
        source.read_first()?;
        let backup = Backup::new(source.switch_to_sql()?, &mut target).map_err(translate)?;
        loop {
            let step = backup.step(PAGES_PER_STEP).map_err(translate)?;
            let pages = backup.progress();
            let go_on = progress(pages.remaining.unsigned_abs(), pages.pagecount.unsigned_abs());
            match step {
                _ if !go_on => return Ok(false),
                StepResult::Done => return Ok(true),
                StepResult::More => {}
                StepResult::Busy => {
                    return Err(Error::busy("another handle or process holds the lock")
                        .with_hint(Hint::RaiseBusyTimeout));
                }
                _ => {
                    return Err(Error::locked("this process itself holds the lock of the file")
                        .with_hint(Hint::Retry));
                }
            }
        }
    })
}
