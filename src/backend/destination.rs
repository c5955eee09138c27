//! Memory into which a read copies a value.

use std::mem::MaybeUninit;

use crate::error::Result;

/// Memory into which a read copies a value, without another copy in between. If the read fails, any
/// of the memory may have been written.
pub(crate) trait Destination {
    /// Returns the memory for a value of `length` bytes. If it is shorter, only the beginning of
    /// the value is copied. A read that finds a value calls this once, before it copies anything.
    fn room(&mut self, length: usize) -> Result<&mut [MaybeUninit<u8>]>;

    /// Copies `value` and returns its length.
    fn copy(&mut self, value: &[u8]) -> Result<usize> {
        for (to, byte) in self.room(value.len())?.iter_mut().zip(value) {
            to.write(*byte);
        }
        Ok(value.len())
    }
}
