//! Zeros to be written to files.

use std::cell::UnsafeCell;

/// Zeros to write. They are in a cell, because otherwise the library's binary would contain them.
struct Zeros(UnsafeCell<[u8; 16 * 1024]>);
static ZEROS: Zeros = Zeros(UnsafeCell::new([0; 16 * 1024]));

// SAFETY: no code writes to the zeros.
unsafe impl Sync for Zeros {}

/// Returns a slice of zeros, of the wanted length or of the maximum length.
pub(in crate::backend::file::os) fn zeros(wanted: i64) -> &'static [u8] {
    // SAFETY: no code writes to the zeros.
    let zeros = unsafe { &*ZEROS.0.get() };
    let length = usize::try_from(wanted).unwrap_or(0).min(zeros.len());
    zeros.get(..length).unwrap_or_default()
}
