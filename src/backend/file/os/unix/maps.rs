//! List of the memory ranges to which SQLite has mapped files.
//!
//! A mapping refers to an open file description, so the locks of that description exist as long as
//! the mapping. Mappings of a forked child would keep them even after the parent was killed. So a
//! child replaces each inherited mapping with memory of its own.

use std::ffi::{c_int, c_void};
use std::sync::Mutex;

use crate::fork::with_list;

/// Address and length, in bytes, of each memory range to which SQLite or this library has mapped a
/// file.
static MAPS: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());

/// Runs `map`, which maps a file into `length` bytes of memory, and adds the mapping to the list of
/// mappings. Returns the result of `map`.
pub(super) fn mapped(length: usize, map: impl FnOnce() -> *mut c_void) -> *mut c_void {
    with_list(&MAPS, |maps| {
        let address = map();
        if address != libc::MAP_FAILED {
            maps.push((address.addr(), length));
        }
        address
    })
}

/// Runs `unmap`, which unmaps `length` bytes of memory from `address`, and removes this range from
/// the list of mappings if `unmap` returns 0. Returns the result of `unmap`.
pub(super) fn unmapped(address: *mut c_void, length: usize, unmap: impl FnOnce() -> c_int) -> c_int {
    with_list(&MAPS, |maps| {
        let code = unmap();
        if code == 0 {
            remove(maps, address.addr(), length);
        }
        code
    })
}

/// Runs `remap`, which moves a mapping or changes its length, and updates the list of mappings.
/// `old` and `new` are the lengths of the mapping before and afterwards, in bytes. Returns the
/// result of `remap`.
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

/// Removes `length` bytes from the address `start` from a list of mappings. Parts of mappings
/// outside this range stay in the list.
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

/// Replaces each mapping that this forked child has inherited with readable and writable memory
/// that belongs to no file. Call this only in a forked child, while none of its threads is inside
/// the gate `fork::LISTS`.
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
