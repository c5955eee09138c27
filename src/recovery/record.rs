//! Decodes records (SQLite's fileformat2.html, chapter 2.1). Accepts only records whose length is
//! exactly that of their header and columns.

use super::page::varint;

/// Value of one column of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Column<'r> {
    Null,
    Integer(i64),
    Real,
    Text(&'r [u8]),
    Blob(&'r [u8]),
}

impl<'r> Column<'r> {
    pub(super) fn integer(self) -> Option<i64> {
        match self {
            Column::Integer(number) => Some(number),
            _ => None,
        }
    }

    /// Returns the integer, or `Some(None)` for NULL. The outer `None` means that the column is
    /// neither an integer nor NULL.
    fn optional_integer(self) -> Option<Option<i64>> {
        match self {
            Column::Integer(number) => Some(Some(number)),
            Column::Null => Some(None),
            _ => None,
        }
    }

    pub(super) fn text(self) -> Option<&'r str> {
        match self {
            Column::Text(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }
}

/// Maximum number of columns of a table of a store.
const MOST_COLUMNS: usize = 5;

/// Returns the columns of a record and their number; `None` if the record is malformed or has too
/// many columns. Missing columns at the end are NULL.
pub(super) fn columns(record: &[u8]) -> Option<([Column<'_>; MOST_COLUMNS], usize)> {
    let (header, first) = varint(record)?;
    let header = usize::try_from(header).ok()?;
    let mut types = record.get(first..header)?;
    let mut body = record.get(header..)?;
    let mut columns = [Column::Null; MOST_COLUMNS];
    let mut count = 0;
    while !types.is_empty() {
        let (kind, length) = varint(types)?;
        types = types.get(length..)?;
        let size = size_of(kind)?;
        let (content, rest) = body.split_at_checked(size)?;
        body = rest;
        *columns.get_mut(count)? = column(kind, content)?;
        count += 1;
    }
    body.is_empty().then_some((columns, count))
}

/// Returns the first column of a record of which only the beginning is available; `None` if the
/// column is not a blob or is not available as a whole.
pub(super) fn first_blob(record: &[u8]) -> Option<&[u8]> {
    let (header, first) = varint(record)?;
    let (kind, _) = varint(record.get(first..)?)?;
    if kind < 12 || !kind.is_multiple_of(2) {
        return None;
    }
    record.get(usize::try_from(header).ok()?..)?.get(..size_of(kind)?)
}

fn size_of(kind: u64) -> Option<usize> {
    match kind {
        0 | 8 | 9 => Some(0),
        1..=4 => Some(kind as usize),
        5 => Some(6),
        6 | 7 => Some(8),
        10 | 11 => None,
        _ => usize::try_from((kind - 12) / 2).ok(),
    }
}

fn column(kind: u64, content: &[u8]) -> Option<Column<'_>> {
    Some(match kind {
        0 => Column::Null,
        1..=6 => {
            let sign = if content.first()? & 0x80 == 0 { 0 } else { -1 };
            Column::Integer(content.iter().fold(sign, |number, byte| number << 8 | i64::from(*byte)))
        }
        7 => Column::Real,
        8 => Column::Integer(0),
        9 => Column::Integer(1),
        _ if kind.is_multiple_of(2) => Column::Blob(content),
        _ => Column::Text(content),
    })
}

/// Row of the data table of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DataRow<'r> {
    pub(super) key: &'r [u8],
    pub(super) value: Where<'r>,
    pub(super) expire_ms: Option<i64>,
    pub(super) written_ms: Option<i64>,
}

/// Location of the value of a row: inline, or in the row of the table of large values with this id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Where<'r> {
    Here(&'r [u8]),
    OutOfLine(i64),
}

/// Decodes a row of a data table. Returns `None` if the record does not have exactly the form that
/// docs/reference/file-format.md describes.
pub(super) fn data_row(record: &[u8]) -> Option<DataRow<'_>> {
    let ([Column::Blob(key), value, expire, blob, written], 2..) = columns(record)? else { return None };
    let value = match (value, blob) {
        (Column::Blob(value), Column::Null) => Where::Here(value),
        (Column::Null, Column::Integer(id)) => Where::OutOfLine(id),
        _ => return None,
    };
    let (expire_ms, written_ms) = (expire.optional_integer()?, written.optional_integer()?);
    let sound = (1..=crate::config::MAX_KEY_SIZE).contains(&key.len()) && expire_ms.is_none_or(|ms| ms > 0);
    sound.then_some(DataRow { key, value, expire_ms, written_ms })
}

/// Returns the value in a row of a table of large values; `None` if the record is not such a row.
pub(super) fn large_value(record: &[u8]) -> Option<&[u8]> {
    match columns(record)? {
        ([Column::Null, Column::Blob(value), ..], 2) => Some(value),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_is_decoded_only_if_sizes_match() {
        let record = [5, 14, 16, 1, 0, b'k', b'v', b'w', 7];
        let row = data_row(&record).unwrap();
        assert_eq!((row.key, row.value, row.expire_ms), (&b"k"[..], Where::Here(b"vw"), Some(7)));
        assert_eq!(data_row(&record[..8]), None);
        assert_eq!(data_row(&[&record[..], &[0]].concat()), None);
        for (at, byte) in
            [(0, 4), (1, 12), (1, 13), (1, 0), (2, 0), (2, 17), (3, 7), (4, 9), (8, 0), (8, 0x80)]
        {
            let mut wrong = record;
            wrong[at] = byte;
            assert_eq!(data_row(&wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn trailing_nulls_may_be_absent_and_integers_are_signed() {
        assert_eq!(data_row(&[3, 14, 12, b'k']).unwrap().value, Where::Here(b""));
        assert_eq!(columns(&[3, 1, 2, 0xff, 0x80, 0]).unwrap().0[1], Column::Integer(-32768));
        assert_eq!(columns(&[2, 1, 0xff]).unwrap().0[0], Column::Integer(-1));
        assert_eq!(columns(&[]), None);
        assert_eq!(columns(&[0xff; 20]), None);
        assert_eq!(first_blob(&[3, 16, 0x80, b'a', b'b', b'c']), Some(&b"ab"[..]));
    }
}
