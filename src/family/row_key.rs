//! Row keys: one ordered key for a partition and a clustering part.
//!
//! The format is that of the escaped, terminated strings of ordered key encodings, such as the
//! tuple layer of FoundationDB. `docs/reference/row-keys.md` proves the order.

use crate::config::MAX_KEY_SIZE;
use crate::error::{Error, Result};

/// Encoding of a zero byte of the partition in a row key.
const ESCAPED_ZERO: [u8; 2] = [0x00, 0xFF];
/// Bytes that end the partition in a row key. They are less than any bytes of an escaped partition
/// at the same position, which are [`ESCAPED_ZERO`] or begin with another byte than zero. So no
/// escaped partition with its terminator is a prefix of another one.
const TERMINATOR: [u8; 2] = [0x00, 0x01];

/// Builds a key from a partition and a clustering part.
///
/// The byte order of the keys is the order of `(partition, clustering)`: the rows of a partition
/// are contiguous, in the order of their clustering parts. Both parts may be empty. The key has the
/// length of both parts, plus 2, plus the number of zero bytes in the partition. Read the rows of a
/// partition with [`Family::row_cursor`](crate::Family::row_cursor).
///
/// ```
/// use kvstore::{Direction, KeyRange, row_key};
/// # let store = kvstore::Store::open_in_memory(&kvstore::Config::new())?;
/// store.put(row_key(b"sensor 7", b"2026-11-27")?, "21.5")?;
/// let mut rows = store.row_cursor(b"sensor 7", &KeyRange::all(), Direction::Forward)?;
/// assert!(rows.first()?);
/// assert_eq!(rows.key(), Some(&b"2026-11-27"[..]));
/// # Ok::<(), kvstore::Error>(())
/// ```
///
/// # Errors
/// [`Error`](crate::ErrorKind::Error) if the key would be longer than
/// [`MAX_KEY_SIZE`](crate::MAX_KEY_SIZE).
pub fn row_key(partition: &[u8], clustering: &[u8]) -> Result<Vec<u8>> {
    let zeros = partition.iter().filter(|&&byte| byte == 0).count();
    let length = partition.len() + zeros + TERMINATOR.len() + clustering.len();
    if length > MAX_KEY_SIZE {
        return Err(Error::invalid(format!(
            "the row key has {length} bytes (partition, escapes, terminator and clustering columns), \
            and the maximum is {MAX_KEY_SIZE}"
        )));
    }
    let mut key = Vec::with_capacity(length);
    for &byte in partition {
        match byte {
            0 => key.extend_from_slice(&ESCAPED_ZERO),
            _ => key.push(byte),
        }
    }
    key.extend_from_slice(&TERMINATOR);
    key.extend_from_slice(clustering);
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        // Few different bytes, around the escapes, so that prefixes and equal parts are common.
        prop::collection::vec(prop::sample::select(vec![0u8, 1, 2, 0x7F, 0xFE, 0xFF]), 0..6)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn row_keys_sort_by_partition_then_clustering(
            p in bytes(), q in bytes(), a in bytes(), b in bytes()
        ) {
            let (x, y) = (row_key(&p, &a).unwrap(), row_key(&q, &b).unwrap());
            prop_assert_eq!(x.cmp(&y), (&p, &a).cmp(&(&q, &b)));
            prop_assert_eq!(y.starts_with(&row_key(&p, &[]).unwrap()), p == q);
        }
    }

    #[test]
    fn row_key_may_be_as_long_as_a_key() {
        assert!(row_key(&[1; 100], &[2; MAX_KEY_SIZE - 102]).is_ok());
        assert!(row_key(&[1; 100], &[2; MAX_KEY_SIZE - 101]).is_err());
        assert!(row_key(&[0; MAX_KEY_SIZE / 2], &[]).is_err());
    }
}
