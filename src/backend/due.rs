//! Result of a search for families with expired rows.

use std::sync::Arc;

use super::Tables;

/// Families that contain expired rows: the result of [`Db::due`](super::Db::due).
#[derive(Debug)]
pub(crate) struct Due {
    /// Earliest expiry time in each family, in milliseconds since the Unix epoch, and the tables of
    /// the family. The families are ordered by this time.
    pub(crate) families: Vec<(i64, Arc<Tables>)>,
    /// Number of families whose earliest expiry time the search read from the file. For a store on
    /// a server: the number of families found.
    pub(crate) looked_at: usize,
    /// Number of families in the store; 0 if the search found without examining families that no
    /// row is expired. For a store on a server: the number of families found.
    pub(crate) known: usize,
    /// `true` if the search has examined every family that may contain expired rows; `false` if its
    /// time limit ended it before.
    pub(crate) complete: bool,
}

impl Due {
    /// Returns `true` if `other` has the same families with the same earliest expiry times.
    pub(crate) fn is_as(&self, other: &Due) -> bool {
        let first_ends = |due: &Due| {
            due.families.iter().map(|(ms, tables)| (*ms, tables.family().to_owned())).collect::<Vec<_>>()
        };
        first_ends(self) == first_ends(other)
    }
}
