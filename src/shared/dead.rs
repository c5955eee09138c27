//! Dead rows that reads have met. To remove one costs a commit, a dozen of them not much more; so they are removed
//! together, when there are enough of them, and before a call whose answer would tell that they are still there.

use std::sync::{Arc, Mutex, PoisonError};

use super::Shared;
use crate::db::{Db, Tables};

/// How many are noted before they are removed.
const ENOUGH: usize = 32;

/// A dead row: its key in these tables, and its end. It may have been written anew since, with another end.
struct DeadRow {
    tables: Arc<Tables>,
    key: Vec<u8>,
    expire_ms: i64,
}

/// The dead rows that a handle has met, the first it met first.
#[derive(Default)]
pub(super) struct DeadRows(Mutex<Vec<DeadRow>>);

impl DeadRows {
    fn with<R>(&self, f: impl FnOnce(&mut Vec<DeadRow>) -> R) -> R {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Shared {
    /// Notes a dead row that a read has met, to be removed; says whether this handle meets it for the first time.
    #[cold]
    pub(crate) fn meets_dead(&self, db: &mut Db, tables: &Arc<Tables>, key: &[u8], expire_ms: i64) -> bool {
        if !Shared::may_write_unasked(db) {
            return true;
        }
        let (is_new, enough) = self.dead.with(|rows| {
            let known = |row: &DeadRow| {
                row.expire_ms == expire_ms && row.key == key && Arc::ptr_eq(&row.tables, tables)
            };
            let is_new = !rows.iter().any(known);
            if is_new {
                if rows.len() >= ENOUGH {
                    rows.remove(0); // others were writing whenever they were to be removed
                }
                rows.push(DeadRow { tables: Arc::clone(tables), key: key.to_vec(), expire_ms });
            }
            (is_new, rows.len() >= ENOUGH)
        });
        if is_new && enough {
            self.remove_dead(db);
        }
        is_new
    }

    /// Removes the rows that were noted, unless others are writing.
    #[inline]
    pub(crate) fn remove_dead(&self, db: &mut Db) {
        if !self.dead.with(|rows| rows.is_empty()) {
            self.remove_them(db);
        }
    }

    #[cold]
    fn remove_them(&self, db: &mut Db) {
        if !Shared::may_write_unasked(db) {
            return;
        }
        let rows = self.dead.with(std::mem::take);
        let removed = self.write_if_free(db, |db| {
            rows.iter().try_for_each(|row| {
                match db.contents(&row.tables, &self.clock).remove_if_expired(&row.key, row.expire_ms) {
                    Err(e) if !e.dooms_transaction() => Ok(()), // its family was dropped
                    done => done,
                }
            })
        });
        if removed.is_err_and(|e| e.is_retryable()) {
            self.dead.with(|noted| *noted = rows);
        }
    }
}
