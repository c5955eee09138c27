//! Removal of expired keys after writes ([`Config::purge_per_write`](crate::Config::purge_per_write)).
//!
//! A removal costs a commit, whether it removes one key or many. So it does not follow each write:
//! it waits until the writes since the last removal allow [`ENOUGH`] keys (ADR 34).

use std::sync::atomic::Ordering::Relaxed;

use super::Session;
use crate::backend::{Db, TransactionState};

/// Maximum number of keys that one transaction removes.
const KEYS_PER_STEP: usize = 256;
/// Number of removals that the writes since the last removal must allow before the next removal.
const ENOUGH: u64 = 64;

impl Session {
    /// Adds the keys that a call has written to the counters of the handle, then removes expired
    /// keys, if the setting and the number of keys written since the last removal ask for it.
    pub(crate) fn count_puts(&self, keys: u64, bytes: u64) {
        self.counters.puts.add(keys);
        self.counters.bytes_written.add(bytes);
        if self.config.purge_per_write > 0 {
            self.unmatched_writes.fetch_add(keys, Relaxed);
            self.purge_after_write();
        }
    }

    /// Removes expired keys if the keys written since the last removal allow enough of them and no
    /// transaction is open. A failure is ignored, because the write before it has succeeded.
    #[cold]
    pub(crate) fn purge_after_write(&self) {
        if self.removals_allowed() < ENOUGH {
            return;
        }
        let _ = self.with_uncounted(|db| {
            if *db.transaction() == TransactionState::None {
                self.note_change();
                self.purge_allowed(db, self.clock.now_ms());
            }
            Ok(())
        });
    }

    /// Removes the expired keys that the last writes allow, before the connection `db` is closed. An
    /// injected clock must not be called then: its latest time is used instead.
    pub(super) fn purge_before_close(&self, db: &mut Db) {
        if self.removals_allowed() > 0 {
            let clock = &self.clock;
            self.purge_allowed(db, if clock.is_injected() { clock.latest_ms() } else { clock.now_ms() });
        }
    }

    /// Removes as many of the keys that are expired at `now_ms` as the writes since the last removal
    /// allow.
    fn purge_allowed(&self, db: &mut Db, now_ms: i64) {
        let mut left = self.removals_allowed();
        self.unmatched_writes.store(0, Relaxed);
        while left > 0 {
            let max = usize::try_from(left).unwrap_or(KEYS_PER_STEP).min(KEYS_PER_STEP);
            let removed = db.purge_quietly(now_ms, max);
            self.counters.ttl_purged.add(removed.counted);
            if removed.entries < max as u64 {
                return;
            }
            left -= removed.entries;
        }
    }

    /// Returns the number of expired keys that the writes since the last removal allow to remove.
    fn removals_allowed(&self) -> u64 {
        self.unmatched_writes.load(Relaxed).saturating_mul(u64::from(self.config.purge_per_write))
    }
}
