//! How large a request may be, and whether there is memory for it.
//!
//! PostgreSQL takes no message of 1 GiB and closes the connection without a word, which would look like one that broke. And
//! the driver, which has the request in memory twice, ends the process where there is no memory for that.

use crate::error::{Error, Result};

/// Keys and values of a request, at most: 1 GiB without some room for what is around them.
const MOST_BYTES: usize = (1 << 30) - (16 << 20);

/// What is not asked for in advance.
const FEW_BYTES: usize = 4 << 20;

/// What there is in a list for each key, beside its bytes and those of its value.
pub(super) const BESIDE_KEY: usize = 64;

/// Refuses a request whose keys and values, of so many bytes each, are together more than a server takes, or more than there
/// is memory for.
pub(in crate::db::remote) fn check_size(parts: impl IntoIterator<Item = usize>) -> Result<()> {
    let bytes = parts.into_iter().fold(0, usize::saturating_add);
    if bytes > MOST_BYTES {
        return Err(Error::invalid(format!(
            "the keys and values have {bytes} bytes together, and a server accepts {MOST_BYTES} in one \
            request; nothing was done: split the request"
        )));
    }
    if bytes > FEW_BYTES { check_memory(bytes) } else { Ok(()) }
}

/// The same for a list of keys.
pub(in crate::db::remote) fn check_keys(keys: &[&[u8]]) -> Result<()> {
    check_size(keys.iter().map(|key| key.len().saturating_add(BESIDE_KEY)))
}

/// Takes the memory that the driver will want for a request, and gives it back: a buffer that grows to twice its size, and a
/// copy.
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
