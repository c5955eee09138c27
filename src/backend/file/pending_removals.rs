//! List of expired rows that reads have found, and that are still in the file.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::schema::Tables;

/// Number of noted rows at which they are removed without waiting for the next write.
pub(super) const ENOUGH_ROWS: usize = 64;
/// Total length of the keys of noted rows at which they are removed, in bytes.
const ENOUGH_BYTES: usize = 64 << 10;
/// Maximum number of rows that are noted. It is reached only if the noted rows cannot be removed.
pub(super) const MAX_ROWS: usize = 16 * ENOUGH_ROWS;
/// Maximum total length of the keys of noted rows, in bytes.
pub(super) const MAX_BYTES: usize = 4 * ENOUGH_BYTES;

/// Noted rows of one family: key and `expire_ms`. They are removed in the order of their keys, so
/// that each page is changed once.
pub(super) struct FamilyRemovals {
    pub(super) tables: Arc<Tables>,
    pub(super) rows: BTreeMap<Vec<u8>, i64>,
}

/// Expired rows that reads have found and a later write removes.
#[derive(Default)]
pub(super) struct PendingRemovals {
    pub(super) families: Vec<FamilyRemovals>,
    /// Number of noted rows of all families.
    pub(super) rows: usize,
    /// Total length of the keys of all noted rows, in bytes.
    pub(super) bytes: usize,
    /// Number of noted rows at the last attempt to remove them that failed.
    pub(super) stuck_at: usize,
    /// Whether an attempt to remove the noted rows failed for a reason other than a lock. Later
    /// writes then do not try to remove them.
    pub(super) failed: bool,
}

impl PendingRemovals {
    pub(super) fn of(&self, tables: &Tables) -> Option<&BTreeMap<Vec<u8>, i64>> {
        self.families
            .iter()
            .find(|family| family.tables.family() == tables.family())
            .map(|family| &family.rows)
    }

    pub(super) fn has(&self, tables: &Tables, key: &[u8], expire_ms: i64) -> bool {
        self.rows > 0 && self.of(tables).and_then(|rows| rows.get(key)) == Some(&expire_ms)
    }

    pub(super) fn is_full(&self, key: &[u8]) -> bool {
        self.rows >= MAX_ROWS || self.bytes + key.len() > MAX_BYTES
    }

    /// Returns `true` if so many rows are noted that they should be removed without waiting for the
    /// next write.
    pub(super) fn are_enough(&self) -> bool {
        self.rows >= self.stuck_at + ENOUGH_ROWS || self.bytes >= ENOUGH_BYTES
    }

    /// Records a failed attempt to remove the noted rows. `failed`: the reason was not a lock.
    pub(super) fn keep(&mut self, failed: bool) {
        self.stuck_at = self.rows;
        self.failed |= failed;
    }

    pub(super) fn add(&mut self, tables: &Arc<Tables>, key: &[u8], expire_ms: i64) {
        let at = self.families.iter().position(|family| family.tables.family() == tables.family());
        let at = at.unwrap_or_else(|| {
            self.families.push(FamilyRemovals { tables: Arc::clone(tables), rows: BTreeMap::new() });
            self.families.len() - 1
        });
        let Some(family) = self.families.get_mut(at) else { return };
        // The key may be noted with an earlier expiry time.
        if family.rows.insert(key.to_vec(), expire_ms).is_none() {
            self.rows += 1;
            self.bytes += key.len();
        }
    }
}
