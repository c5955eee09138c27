//! Maintenance of the file of a connection, except for transactions and checkpoints: sync, vacuum,
//! check and repair.

use super::connection::Db;
use super::error::{hint_for_damage, translate};
use super::os::{self, Opened};
use super::{integrity, repair};
use crate::config::SyncLevel;
use crate::error::{Error, Result};
use crate::hint::Hint;

impl Db {
    pub(crate) fn page_count(&self) -> Result<u64> {
        self.read_number("PRAGMA page_count").map(i64::unsigned_abs)
    }

    /// Makes all commits so far survive a power failure.
    pub(crate) fn sync(&mut self) -> Result<()> {
        let Some(watched) = &self.watched else { return Ok(()) };
        if self.immutable.is_some() {
            return Ok(()); // this handle cannot write, so it has nothing to sync
        }
        // In WAL mode the commits are in the WAL, and checkpoints sync by themselves. In DELETE
        // mode each commit has synced the file; only the removal of its journal is not yet durable.
        let heard = self.checkpoints.take_failure();
        os::sync(&self.conn, Opened::Journal)?;
        if self.sync == SyncLevel::Off {
            os::sync(&self.conn, Opened::Main)?;
        }
        // The operating system reports a failed write only once, and an automatic checkpoint may
        // have received that report.
        if let Some(e) = heard {
            return Err(e);
        }
        // The WAL may be new, or a rollback journal removed.
        watched.place.sync_directory().map_err(|e| {
            Error::io(format!(
                "cannot sync the directory of the store, which needs permission to read it: {e}"
            ))
        })
    }

    /// Returns the number of free pages of the file.
    pub(crate) fn free_pages(&self) -> Result<u64> {
        self.read_number("PRAGMA freelist_count").map(i64::unsigned_abs)
    }

    /// Removes up to `pages` free pages from the file, which becomes shorter.
    pub(crate) fn incremental_vacuum(&self, pages: u64) -> Result<()> {
        let mut statement = self
            .switch_to_sql()?
            .prepare(&format!("PRAGMA incremental_vacuum({pages})"))
            .map_err(translate)?;
        let mut rows = statement.raw_query();
        while rows.next().map_err(translate)?.is_some() {} // each step frees one page
        Ok(())
    }

    /// Checks the structure of the file and the consistency of all tables. Fails with the first
    /// inconsistency as the error.
    pub(crate) fn integrity_check(&self) -> Result<()> {
        self.in_snapshot(|db| {
            let conn = db.switch_to_sql()?;
            integrity::check_sqlite(conn).map_err(|e| hint_for_damage(e, Hint::Recover))?;
            integrity::check_tables(conn).map_err(|e| hint_for_damage(e, Hint::Repair))
        })
    }

    /// Checks the structure of the file and the consistency of all tables, and passes each
    /// inconsistency to `report`. SQLite's own check of the file reports at most `most`
    /// inconsistencies. Returns the error that ended the check early; `None` if the check was
    /// completed.
    pub(crate) fn report_disagreements(
        &self,
        most: u32,
        report: &mut dyn integrity::Report,
    ) -> Result<Option<Error>> {
        let stopped = self.in_snapshot(|db| Ok(integrity::report(db.switch_to_sql()?, most, report)))?;
        // The check has continued after pages that SQLCipher could not decrypt, and has reported
        // them. So they must not replace the whole result.
        #[cfg(feature = "encryption")]
        let stopped = match self.check_decrypted() {
            Ok(()) => stopped,
            Err(lost) => stopped.or(Some(lost)),
        };
        Ok(stopped)
    }

    /// Makes all tables consistent with the data rows, inside a write transaction. Returns the
    /// number of rows, index entries and tables that were added, removed or changed. Passes a
    /// description of each loss of data to `tell`.
    pub(crate) fn repair(&self, now_ms: i64, tell: &mut dyn FnMut(integrity::Found<'_>)) -> Result<u64> {
        self.forget_settings();
        self.forget_all_bounds(); // the repair sets times by SQL, which `time_set` does not see
        let fixed = repair::repair(self.switch_to_sql()?, now_ms, tell)?;
        self.track_all_if_needed(now_ms)?; // for families that are new in the catalogue
        Ok(fixed)
    }
}
