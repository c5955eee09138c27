//! Limit on the size of a request, and a check that there is memory for it.
//!
//! PostgreSQL does not accept a message of 1 GiB. It closes the connection without an error, which
//! would look like a broken connection. The driver holds a request in memory twice, and ends the
//! process if there is no memory for that.

use crate::error::{Error, Result};

/// Maximum total size of the keys and values in a request, in bytes: 1 GiB, less some space for the
/// other fields of the message.
const MOST_BYTES: usize = (1 << 30) - (16 << 20);

/// Maximum size of a request, in bytes, that is sent without a check that there is enough memory.
const FEW_BYTES: usize = 4 << 20;

/// Estimated number of bytes that a list entry takes in a request, in addition to its key and
/// value.
pub(super) const BESIDE_KEY: usize = 64;

/// Fails if the keys and values of a request are together larger than a server accepts, or larger
/// than the available memory. `parts` are their sizes in bytes.
pub(in crate::backend::postgres) fn check_size(parts: impl IntoIterator<Item = usize>) -> Result<()> {
    let bytes = parts.into_iter().fold(0, usize::saturating_add);
    if bytes > MOST_BYTES {
        return Err(Error::invalid(format!(
            "the keys and values have {bytes} bytes together, and a server accepts {MOST_BYTES} in one \
            request; nothing was done: split the request"
        )));
    }
    if bytes > FEW_BYTES { check_memory(bytes) } else { Ok(()) }
}

/// Fails if a request with this list of keys is larger than a server accepts, or larger than the
/// available memory.
pub(in crate::backend::postgres) fn check_keys(keys: &[&[u8]]) -> Result<()> {
    check_size(keys.iter().map(|key| key.len().saturating_add(BESIDE_KEY)))
}

/// Allocates the memory that the driver will need for a request, and frees it: a buffer that grows
/// to twice the size of the request, and a copy.
fn check_memory(bytes: usize) -> Result<()> {
    let (mut buffer, mut copy) = (Vec::<u8>::new(), Vec::<u8>::new());
    buffer.try_reserve_exact(bytes.saturating_mul(2)).and_then(|()| copy.try_reserve_exact(bytes)).map_err(
        |_| Error::no_memory(format!("out of memory for a request of {bytes} bytes; nothing was done")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn requests_beyond_server_or_memory_limits_are_refused() {
        let kind = |parts: &[usize]| check_size(parts.iter().copied()).map_err(|e| e.kind());
        assert_eq!(kind(&[]), Ok(()));
        assert_eq!(kind(&[FEW_BYTES, 1]), Ok(()));
        assert_eq!(kind(&[MOST_BYTES, 1]), Err(ErrorKind::Error));
        assert_eq!(kind(&[usize::MAX, usize::MAX]), Err(ErrorKind::Error));
        let key: &[u8] = &[0; 1000];
        assert!(check_keys(&[key; 1000]).is_ok());
        let many = vec![key; MOST_BYTES / (key.len() + BESIDE_KEY) + 1];
        assert_eq!(check_keys(&many).unwrap_err().kind(), ErrorKind::Error);
        assert_eq!(check_memory(isize::MAX as usize).unwrap_err().kind(), ErrorKind::NoMemory);
    }
}
