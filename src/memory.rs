//! Room for what may be long, values above all: who has none left is told so, where Rust's own growth ends the process.

use crate::error::{Error, Result};

/// What is said where no error of the library's can be.
pub(crate) const NONE_LEFT: &str = "there is no memory for it: try where there is more";

/// Makes room for so many bytes more.
///
/// # Errors
/// `NoMemory`; nothing is changed then.
#[inline]
pub(crate) fn reserve(bytes: &mut Vec<u8>, more: usize) -> Result<()> {
    // Twice the room, as a rule, so that many small pieces are not copied again and again; if that is too much, what is needed.
    let made = bytes.try_reserve(more).or_else(|_| bytes.try_reserve_exact(more));
    made.map_err(|_| Error::no_memory(format!("out of memory for {more} bytes")))
}

/// Adds bytes.
///
/// # Errors
/// As [`reserve`].
#[inline]
pub(crate) fn extend(bytes: &mut Vec<u8>, with: &[u8]) -> Result<()> {
    reserve(bytes, with.len())?;
    bytes.extend_from_slice(with);
    Ok(())
}

/// A copy.
///
/// # Errors
/// As [`reserve`].
#[inline]
pub(crate) fn copy_of(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(bytes.len())
        .map_err(|_| Error::no_memory(format!("out of memory for {} bytes", bytes.len())))?;
    copy.extend_from_slice(bytes);
    Ok(copy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn room_that_cannot_be_had_is_an_error_and_changes_nothing() {
        let mut bytes = b"abc".to_vec();
        let too_much = isize::MAX as usize;
        assert_eq!(reserve(&mut bytes, too_much).unwrap_err().kind(), ErrorKind::NoMemory);
        extend(&mut bytes, b"de").unwrap();
        assert_eq!(bytes, b"abcde");
        assert_eq!(copy_of(&bytes).unwrap(), bytes);
    }
}
