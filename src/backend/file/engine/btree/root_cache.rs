//! Cache of the root pages of the tables of a family.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::atomic::AtomicU64;

/// Cached root pages of the tables of one family. Used only while the lock of the store is held.
#[derive(Debug, Default)]
pub(in crate::backend) struct RootCache {
    /// Epoch (upper 32 bits) and schema cookie (lower 32 bits) for which the other fields are
    /// valid; 0 if they are not valid yet.
    stamp: AtomicU64,
    /// Root pages of the tables, in the order of the fields of [`Roots`]; 0 means that the table
    /// does not exist.
    pages: [AtomicU32; 5],
    /// [`Roots::foreign`] as a number: 1 for `true`.
    foreign: AtomicU32,
}

/// Root pages of the tables of one family; 0 means that the table does not exist.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Roots {
    pub(super) data: u32,
    pub(super) blob: u32,
    pub(super) ttl_key: u32,
    pub(super) ttl_expiry: u32,
    pub(super) written: u32,
    /// Whether a table does not have the form that this library creates, or has indexes that only
    /// SQL maintains.
    pub(super) foreign: bool,
}

impl RootCache {
    /// Returns the cached root pages; `None` if they are not valid for the epoch and schema cookie
    /// in `stamp`.
    pub(super) fn get(&self, stamp: u64) -> Option<Roots> {
        if self.stamp.load(Ordering::Relaxed) != stamp {
            return None;
        }
        let [data, blob, ttl_key, ttl_expiry, written] =
            std::array::from_fn(|at| self.pages.get(at).map_or(0, |page| page.load(Ordering::Relaxed)));
        let foreign = self.foreign.load(Ordering::Relaxed) != 0;
        Some(Roots { data, blob, ttl_key, ttl_expiry, written, foreign })
    }

    pub(super) fn set(&self, stamp: u64, pages: [u32; 5], foreign: bool) {
        for (cell, page) in self.pages.iter().zip(pages) {
            cell.store(page, Ordering::Relaxed);
        }
        self.foreign.store(u32::from(foreign), Ordering::Relaxed);
        self.stamp.store(stamp, Ordering::Relaxed);
    }
}
