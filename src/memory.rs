//! Memory for data of any length, such as values. If memory is exhausted, the functions here return
//! an error, while the normal growth of Rust's collections would abort the process.

use std::mem::MaybeUninit;

use crate::error::{Error, Result};

/// Error text for exhausted memory, for code that cannot create an [`Error`].
pub(crate) const NONE_LEFT: &str = "there is no memory for it: try where there is more";

/// Reserves space for `more` additional items in `items`.
///
/// # Errors
/// `NoMemory`; nothing is changed then.
#[inline]
pub(crate) fn reserve<T>(items: &mut Vec<T>, more: usize) -> Result<()> {
    // The capacity usually doubles, so that many small pieces are not copied again and again. If
    // that is too much, only the needed space is reserved.
    let made = items.try_reserve(more).or_else(|_| items.try_reserve_exact(more));
    made.map_err(|_| {
        let bytes = more.saturating_mul(size_of::<T>());
        Error::no_memory(format!("out of memory: {bytes} bytes could not be allocated"))
    })
}

/// Appends the bytes `with` to `bytes`.
///
/// # Errors
/// As [`reserve`].
#[inline]
pub(crate) fn extend(bytes: &mut Vec<u8>, with: &[u8]) -> Result<()> {
    reserve(bytes, with.len())?;
    bytes.extend_from_slice(with);
    Ok(())
}

/// Returns a copy of `bytes`.
///
/// # Errors
/// As [`reserve`].
#[inline]
pub(crate) fn copy_of(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(bytes.len()).map_err(|_| {
        Error::no_memory(format!("out of memory: {} bytes could not be allocated", bytes.len()))
    })?;
    copy.extend_from_slice(bytes);
    Ok(copy)
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn failed_reservation_is_no_memory_and_keeps_bytes() {
        let mut bytes = b"abc".to_vec();
        let too_much = isize::MAX as usize;
        assert_eq!(reserve(&mut bytes, too_much).unwrap_err().kind(), ErrorKind::NoMemory);
        extend(&mut bytes, b"de").unwrap();
        assert_eq!(bytes, b"abcde");
        assert_eq!(copy_of(&bytes).unwrap(), bytes);
    }
}
