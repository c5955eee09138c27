//! List of expired rows that reads have found, and that are still in the file.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::schema::Tables;

/// Number of noted rows (expired rows that reads have found) from which on they are removed without
/// waiting for the next write.
pub(super) const ENOUGH_ROWS: usize = 64;
/// Total length, in bytes, of the keys of the noted rows from which on these rows are removed
/// without waiting for the next write.
const ENOUGH_BYTES: usize = 64 << 10;
/// Maximum number of expired rows that a connection notes for removal. It is reached only if the
/// noted rows cannot be removed.
pub(super) const MAX_ROWS: usize = 16 * ENOUGH_ROWS;
/// Maximum total length, in bytes, of the keys of the expired rows that a connection notes for
/// removal.
pub(super) const MAX_BYTES: usize = 4 * ENOUGH_BYTES;

/// Expired rows of one family that wait for their removal: the key and the `expire_ms` of each.
/// They are removed in the order of their keys, so that each page is changed once.
pub(super) struct FamilyRemovals {
    pub(super) tables: Arc<Tables>,
    pub(super) rows: BTreeMap<Vec<u8>, i64>,
}

/// Expired rows that reads have found and a later write removes.
#[derive(Default)]
pub(super) struct PendingRemovals {
    pub(super) families: Vec<FamilyRemovals>,
    /// Number of rows in `families`, of all families together.
    pub(super) rows: usize,
    /// Total length, in bytes, of the keys of all rows in `families`.
    pub(super) bytes: usize,
    /// Number of noted rows when an attempt to remove them last failed. The next attempt waits for
    /// `ENOUGH_ROWS` further rows.
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

    /// Records a failed attempt to remove the noted rows. `failed` is `true` if the reason was not
    /// a lock of another connection.
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
