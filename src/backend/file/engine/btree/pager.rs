//! Read access to the pages of the database file, through SQLite's pager.
//!
//! The methods are safe to call for the reasons that `tree.rs` gives. Like a cursor, a page is used
//! only in the transaction in which it was read, and is released before that transaction ends.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use super::page::{LEAST_CELL, Node};
use super::raw;
use super::tree::{Tree, check};
use crate::error::Result;

/// Read access to the pages of the database file, in the open transaction of the connection.
#[derive(Clone, Copy)]
pub(super) struct Pages<'t> {
    btree: NonNull<raw::Btree>,
    pager: *mut raw::Pager,
    size: usize,
    usable: usize,
    tree: PhantomData<&'t Tree>,
}

impl<'t> Pages<'t> {
    /// Returns access to the pages of the file of `btree`.
    ///
    /// # Safety
    /// `btree` must belong to an open connection, and must be valid for `'t`.
    #[inline]
    pub(super) unsafe fn of(btree: NonNull<raw::Btree>) -> Pages<'t> {
        // SAFETY: reads three fields of an open tree, which always has a pager.
        let (pager, size, reserve) = unsafe {
            (
                raw::sqlite3BtreePager(btree.as_ptr()),
                raw::sqlite3BtreeGetPageSize(btree.as_ptr()),
                raw::sqlite3BtreeGetReserveNoMutex(btree.as_ptr()),
            )
        };
        let size = usize::try_from(size).unwrap_or(0);
        let usable = size.saturating_sub(usize::try_from(reserve).unwrap_or(0));
        Pages { btree, pager, size, usable, tree: PhantomData }
    }

    /// Returns the number of pages of the database file, as the open transaction sees it.
    pub(super) fn count(&self) -> u32 {
        // SAFETY: the tree belongs to an open connection, is borrowed, and is in a transaction.
        unsafe { raw::sqlite3BtreeLastPage(self.btree.as_ptr()) }
    }

    /// Returns the size of a page, in bytes.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Returns the size of a page, in bytes, without the reserved bytes at its end.
    pub(super) fn usable(&self) -> usize {
        self.usable
    }

    /// Returns an upper bound on the number of entries of all tables of the file. A scan that
    /// returns more entries follows pages that refer to each other in a cycle.
    pub(super) fn room(&self) -> u64 {
        u64::from(self.count()) * (self.usable / LEAST_CELL) as u64
    }

    /// Returns the page with this number. Call this in a transaction. Returns `None` for a number
    /// that no page of a store's tables can have.
    #[inline]
    pub(super) fn page(&self, number: u32) -> Result<Option<Page>> {
        // No table of a store has its root on page 1. Page `u32::MAX` is above SQLite's maximum
        // page number; SQLite would report that the file is full.
        if number < 2 || number == u32::MAX {
            return Ok(None);
        }
        let mut page = ptr::null_mut();
        // SAFETY: the pager belongs to an open connection that is in a transaction, and `page` is a
        // valid place for the result.
        check(unsafe { raw::sqlite3PagerGet(self.pager, number, &raw mut page, raw::PAGER_GET_READONLY) })?;
        let (size, usable) = (self.size, self.usable);
        Ok(NonNull::new(page).map(|page| {
            // SAFETY: a referenced page has its bytes in memory, as many as the page size, and they
            // do not move while the page is referenced.
            let data = unsafe { raw::sqlite3PagerGetData(page.as_ptr()) };
            Page { page, data: data.cast(), size, usable }
        }))
    }
}

/// Size of a cache line of the processor, in bytes.
#[cfg(target_arch = "x86_64")]
const CACHE_LINE: usize = 64;
/// Maximum number of bytes of a page that [`Page::will_need`] prefetches. Prefetching more would
/// evict data that the scan is using from the processor's cache.
#[cfg(target_arch = "x86_64")]
const MOST_AHEAD: usize = 8192;

/// Reference to a page of the database file. SQLite keeps the page in memory until the reference is
/// dropped.
pub(super) struct Page {
    page: NonNull<raw::DbPage>,
    data: *const u8,
    size: usize,
    usable: usize,
}

// SAFETY: as for `Tree`.
unsafe impl Send for Page {}

impl Page {
    #[inline(always)]
    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: `size` bytes are in memory (`Pages::page`) while the page is referenced. Nothing
        // writes to the page while a visitor uses a row, a rule for visitors (`RowView` in
        // `row.rs`).
        unsafe { std::slice::from_raw_parts(self.data, self.size) }
    }

    /// Prefetches the page into the processor's cache (on x86-64 only). The processor's own
    /// prefetching stops at the end of a page. This reduces the time of a scan by 17 to 30 %.
    pub(super) fn will_need(&self) {
        #[cfg(target_arch = "x86_64")]
        for at in (0..self.size.min(MOST_AHEAD)).step_by(CACHE_LINE) {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: the address is on the page, which is in memory; and a prefetch hint accesses
            // no data.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(self.data.add(at).cast()) };
        }
    }

    /// Returns the parsed page; `None` if it is not a valid page of an index B-tree.
    #[inline]
    pub(super) fn node(&self) -> Option<Node<'_>> {
        Node::of(self.bytes(), self.usable)
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: releases, once, the reference that `sqlite3PagerGet` returned. It is not the last
        // reference to the first page.
        unsafe { raw::sqlite3PagerUnrefNotNull(self.page.as_ptr()) };
    }
}

/// Number of slots of [`KeptPages`], the cache of interior pages.
const KEPT: usize = 64;

/// Cache of interior pages of the current snapshot. Most lookups descend through a few interior
/// pages, which are then not requested from the pager each time.
#[derive(Default)]
pub(super) struct KeptPages {
    /// Slots of the cache: page `n` is stored at index `n % KEPT`. The vector is empty until the
    /// first page is stored.
    pages: Vec<Option<(u32, Page)>>,
    /// Whether a slot may contain a page.
    any: bool,
}

impl KeptPages {
    #[inline]
    pub(super) fn get(&self, number: u32) -> Option<&Page> {
        match self.pages.get(number as usize % KEPT)? {
            Some((kept, page)) if *kept == number => Some(page),
            _ => None,
        }
    }

    pub(super) fn keep(&mut self, number: u32, page: Page) {
        if self.pages.is_empty() {
            self.pages.resize_with(KEPT, || None);
        }
        if let Some(place) = self.pages.get_mut(number as usize % KEPT) {
            *place = Some((number, page));
            self.any = true;
        }
    }

    pub(super) fn clear(&mut self) {
        if std::mem::take(&mut self.any) {
            self.pages.iter_mut().for_each(|place| *place = None);
        }
    }
}
