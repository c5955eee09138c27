//! Result of a search for families with expired rows.

use std::sync::Arc;

use super::Tables;

/// Families with expired rows, as found by a search.
#[derive(Debug)]
pub(crate) struct Due {
    /// Families with expired rows, with their earliest expiry time, which comes first.
    pub(crate) families: Vec<(i64, Arc<Tables>)>,
    /// Number of families examined.
    pub(crate) looked_at: usize,
    /// Number of families in the store.
    pub(crate) known: usize,
    /// Whether the search was complete: it examined all families, or found the maximum number.
    pub(crate) complete: bool,
}

impl Due {
    /// Returns `true` if another search found the same families.
    pub(crate) fn is_as(&self, other: &Due) -> bool {
        let first_ends = |due: &Due| {
            due.families.iter().map(|(ms, tables)| (*ms, tables.family().to_owned())).collect::<Vec<_>>()
        };
        first_ends(self) == first_ends(other)
    }
}
