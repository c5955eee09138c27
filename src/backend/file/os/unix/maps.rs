//! List of the memory ranges to which SQLite has mapped files.
//!
//! A mapping refers to its open file description, and keeps the locks of that description in
//! existence. In a forked child it does so even after the parent was killed. So a child replaces
//! each mapping with memory of its own.

use std::ffi::{c_int, c_void};
use std::sync::Mutex;

use crate::fork::with_list;

/// Start and length of each range, in bytes.
static MAPS: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());

/// Runs a call that maps a file, and adds the mapping to the list.
pub(super) fn mapped(length: usize, map: impl FnOnce() -> *mut c_void) -> *mut c_void {
    with_list(&MAPS, |maps| {
        let address = map();
        if address != libc::MAP_FAILED {
            maps.push((address.addr(), length));
        }
        address
    })
}

/// Runs a call that ends mappings, and removes them from the list.
pub(super) fn unmapped(address: *mut c_void, length: usize, unmap: impl FnOnce() -> c_int) -> c_int {
    with_list(&MAPS, |maps| {
        let code = unmap();
        if code == 0 {
            remove(maps, address.addr(), length);
        }
        code
    })
}

/// Runs a call that moves a mapping or changes its length, and updates the list.
pub(super) fn remapped(
    address: *mut c_void,
    old: usize,
    new: usize,
    remap: impl FnOnce() -> *mut c_void,
) -> *mut c_void {
    with_list(&MAPS, |maps| {
        let moved = remap();
        if moved != libc::MAP_FAILED {
            remove(maps, address.addr(), old);
            maps.push((moved.addr(), new));
        }
        moved
    })
}

/// Removes a range from the list. Parts of mappings outside the range stay in it.
fn remove(maps: &mut Vec<(usize, usize)>, start: usize, length: usize) {
    let end = start.saturating_add(length);
    let mut left = Vec::new();
    maps.retain(|&(first, length)| {
        let last = first.saturating_add(length);
        if last <= start || first >= end {
            return true;
        }
        left.extend([(first, start.saturating_sub(first)), (end, last.saturating_sub(end))]);
        false
    });
    maps.extend(left.into_iter().filter(|(_, length)| *length > 0));
}

/// Replaces each mapping with readable and writable memory that belongs to no file. Call this only
/// in a forked child, in which no thread is inside the gate of the lists.
pub(super) fn let_go_after_fork() {
    let maps = MAPS.try_lock().map(|mut maps| std::mem::take(&mut *maps)).unwrap_or_default();
    for (start, length) in maps {
        // SAFETY: SQLite has mapped a file here. The copy of SQLite in this process no longer uses
        // it, because inherited handles are refused. Code that still reads there finds zeros.
        unsafe {
            libc::mmap(
                std::ptr::without_provenance_mut(start),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANON | libc::MAP_FIXED,
                -1,
                0,
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unmapped_ranges_are_removed_fully_or_partially_from_list() {
        let maps = |parts: &[(usize, usize)], start, length| {
            let mut maps = parts.to_vec();
            remove(&mut maps, start, length);
            maps.sort_unstable();
            maps
        };
        assert_eq!(maps(&[(10, 10)], 10, 10), []);
        assert_eq!(maps(&[(10, 10)], 0, 10), [(10, 10)]);
        assert_eq!(maps(&[(10, 10)], 20, 10), [(10, 10)]);
        assert_eq!(maps(&[(10, 10)], 12, 3), [(10, 2), (15, 5)]);
        assert_eq!(maps(&[(10, 10)], 5, 10), [(15, 5)]);
        assert_eq!(maps(&[(10, 10)], 15, 10), [(10, 5)]);
        assert_eq!(maps(&[(10, 10), (20, 10), (40, 10)], 15, 30), [(10, 5), (45, 5)]);
    }
}
