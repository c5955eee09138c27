//! Zeros for overwriting and extending files.

use std::cell::UnsafeCell;

/// Buffer of zeros, with which files are overwritten or extended. The `UnsafeCell` puts it into
/// zero-initialised memory; otherwise the library's binary would contain 16 KiB of zeros.
struct Zeros(UnsafeCell<[u8; 16 * 1024]>);
static ZEROS: Zeros = Zeros(UnsafeCell::new([0; 16 * 1024]));

// SAFETY: no code writes to the zeros.
unsafe impl Sync for Zeros {}

/// Returns a slice of `wanted` zeros, or of 16 KiB if `wanted` is greater.
pub(in crate::backend::file::os) fn zeros(wanted: i64) -> &'static [u8] {
    // SAFETY: no code writes to the zeros.
    let zeros = unsafe { &*ZEROS.0.get() };
    let length = usize::try_from(wanted).unwrap_or(0).min(zeros.len());
    zeros.get(..length).unwrap_or_default()
}
