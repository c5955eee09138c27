//! What a connection does for its file beside transactions and checkpoints: syncs, the vacuum, the check, the repair.

use super::connection::Db;
use super::failure::{hint_for_damage, translate};
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
        if self.frozen.is_some() {
            return Ok(()); // nobody has committed anything
        }
        // Commits are in the WAL, and checkpoints sync by themselves. In DELETE mode each commit has synced the file,
        // and what is left is that its journal is gone.
        let heard = self.checkpoints.take_failure();
        os::sync(&self.conn, Opened::Journal)?;
        if self.sync == SyncLevel::Off {
            os::sync(&self.conn, Opened::Main)?;
        }
        // The system says once what it could not write, and a checkpoint that nobody has asked for has heard it.
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

    /// Returns up to `pages` free pages to the file system.
    pub(crate) fn incremental_vacuum(&self, pages: u64) -> Result<()> {
        let mut statement = self
            .switch_to_sql()?
            .prepare(&format!("PRAGMA incremental_vacuum({pages})"))
            .map_err(translate)?;
        let mut rows = statement.raw_query();
        while rows.next().map_err(translate)?.is_some() {} // one page a step
        Ok(())
    }

    /// Checks the file and the consistency of all tables. The first inconsistency is returned as
    /// the error.
    pub(crate) fn integrity_check(&self) -> Result<()> {
        self.in_snapshot(|db| {
            let conn = db.switch_to_sql()?;
            integrity::check_sqlite(conn).map_err(|e| hint_for_damage(e, Hint::Recover))?;
            integrity::check_tables(conn).map_err(|e| hint_for_damage(e, Hint::Repair))
        })
    }

    /// Like [`integrity_check`](Db::integrity_check), but reports each inconsistency, at most
    /// `most` of them from SQLite's own check. Returns the error that ended the check early, if
    /// any.
    pub(crate) fn report_disagreements(
        &self,
        most: u32,
        report: &mut dyn integrity::Report,
    ) -> Result<Option<Error>> {
        let stopped = self.in_snapshot(|db| Ok(integrity::report(db.switch_to_sql()?, most, report)))?;
        // It has read on past what SQLCipher could not decrypt; that was told, and is not to be said instead of it all.
        #[cfg(feature = "encryption")]
        let stopped = match self.check_decrypted() {
            Ok(()) => stopped,
            Err(lost) => stopped.or(Some(lost)),
        };
        Ok(stopped)
    }

    /// Makes all tables consistent with the data rows, inside a write transaction. Returns the
    /// number of changes, and reports losses to `tell`.
    pub(crate) fn repair(&self, now_ms: i64, tell: &mut dyn FnMut(integrity::Found<'_>)) -> Result<u64> {
        self.forget_settings();
        self.forget_all_bounds(); // it sets times by SQL
        let fixed = repair::repair(self.switch_to_sql()?, now_ms, tell)?;
        self.track_all_if_needed(now_ms)?; // also what it has entered in the catalogue
        Ok(fixed)
    }
}
