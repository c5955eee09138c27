//! SQLite's record format (fileformat2.html, chapter 2.1), as far as the tables of a store need it:
//! encoding and decoding of rows. No byte that is read is trusted.

use std::ops::Range;

use crate::backend::file::engine::Head;

/// Serial type of a 6-byte integer in a record (the code in the record header that states type and
/// size of a column).
pub(super) const SIX_BYTES: u8 = 5;

/// Maximum number of bytes that a record takes in addition to its key and value, or to its names
/// and SQL text: for its header and its other columns.
pub(super) const MOST_BESIDE: usize = 64;

/// Decoded value of one column of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Null,
    Integer(i64),
    Blob(&'a [u8]),
    Text(&'a [u8]),
    /// Floating-point number, which no table of a store contains.
    Real,
}

/// Error: the bytes are not a valid record.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// Decoder that returns the columns of a record in order. Missing columns at the end are NULL.
pub(super) struct Columns<'a> {
    types: &'a [u8],
    body: &'a [u8],
}

impl<'a> Columns<'a> {
    #[inline(always)]
    pub(super) fn of(record: &'a [u8]) -> Result<Columns<'a>, Malformed> {
        let (header_size, used) = match *record {
            [first, ..] if first < 0x80 => (usize::from(first), 1),
            _ => {
                let (size, used) = varint(record).ok_or(Malformed)?;
                (usize::try_from(size).map_err(|_| Malformed)?, used)
            }
        };
        let types = record.get(used..header_size).ok_or(Malformed)?;
        let body = record.get(header_size..).ok_or(Malformed)?;
        Ok(Columns { types, body })
    }

    /// Fails if all columns have been read and the record still has bytes. Call this after the last
    /// column that the caller needs.
    pub(super) fn end(&self) -> Result<(), Malformed> {
        if self.types.is_empty() && !self.body.is_empty() { Err(Malformed) } else { Ok(()) }
    }

    fn integer(&mut self, name: &'static str) -> Result<Option<i64>, NoDataRow> {
        match self.next()? {
            Value::Null => Ok(None),
            Value::Integer(number) => Ok(Some(number)),
            Value::Blob(_) | Value::Text(_) | Value::Real => Err(NoDataRow::WrongType(name)),
        }
    }

    /// Returns the serial type of the next column; that of NULL if there is none.
    #[inline(always)]
    fn serial(&mut self) -> Result<u64, Malformed> {
        Ok(match *self.types {
            [] => 0,
            [first, ref rest @ ..] if first < 0x80 => {
                self.types = rest;
                u64::from(first)
            }
            [first, second, ref rest @ ..] if second < 0x80 => {
                self.types = rest;
                u64::from(first & 0x7f) << 7 | u64::from(second)
            }
            _ => {
                let (serial, used) = varint(self.types).ok_or(Malformed)?;
                self.types = self.types.get(used..).ok_or(Malformed)?;
                serial
            }
        })
    }

    /// Returns the next column; NULL if there is none.
    #[inline(always)] // for a column at a known position, the compiler removes most of this
    pub(super) fn next(&mut self) -> Result<Value<'a>, Malformed> {
        let serial = self.serial()?;
        if serial >= 12 {
            let size = usize::try_from((serial - 12) / 2).map_err(|_| Malformed)?;
            let (bytes, rest) = self.body.split_at_checked(size).ok_or(Malformed)?;
            self.body = rest;
            return Ok(if serial.is_multiple_of(2) { Value::Blob(bytes) } else { Value::Text(bytes) });
        }
        let size = match serial {
            0 | 8 | 9 => 0,
            1..=4 => serial as usize,
            5 => 6,
            6 | 7 => 8,
            _ => return Err(Malformed),
        };
        let (bytes, rest) = self.body.split_at_checked(size).ok_or(Malformed)?;
        self.body = rest;
        Ok(match serial {
            0 => Value::Null,
            8 => Value::Integer(0),
            9 => Value::Integer(1),
            7 => Value::Real,
            _ => Value::Integer(big_endian(bytes)),
        })
    }
}

/// Decoded row of a data table.
pub(super) struct DataRow<'a> {
    pub(super) key: &'a [u8],
    pub(super) value: Option<&'a [u8]>,
    /// Key and value as one slice; `None` if the row has no inline value.
    pub(super) joined: Option<&'a [u8]>,
    pub(super) head: Head,
}

/// Reason why a record is not a row of a data table.
pub(super) enum NoDataRow {
    Malformed,
    /// The column with this name has a value of a type that it must not have.
    WrongType(&'static str),
}

impl From<Malformed> for NoDataRow {
    fn from(_: Malformed) -> NoDataRow {
        NoDataRow::Malformed
    }
}

/// Decodes the serial type of the value column of a data row. The argument is the three bytes of
/// the record header that follow the type of the key.
///
/// Returns the type, the length of the record header up to and including that type, and the byte
/// after it. The length assumes one byte for the size of the header and one for the type of the
/// key. Returns `None` if the type of the value has more than two bytes.
#[inline(always)]
pub(super) fn type_of_value([first, second, third]: [u8; 3]) -> Option<(usize, u8, u8)> {
    if first < 0x80 {
        Some((usize::from(first), 3, second))
    } else if second < 0x80 {
        Some((usize::from(first & 0x7f) << 7 | usize::from(second), 4, third))
    } else {
        None
    }
}

impl<'a> DataRow<'a> {
    #[inline(always)]
    pub(super) fn of(record: &'a [u8]) -> Result<DataRow<'a>, NoDataRow> {
        match DataRow::plainly(record) {
            Some(row) => Ok(row),
            None => DataRow::closely(record),
        }
    }

    /// Decodes a row of one of the two most frequent shapes: a short key and a value, without or
    /// with an expiry time of 6 bytes. (SQLite stores a time from 1970-01-26 to the year 6429, in
    /// milliseconds since the Unix epoch, in 6 bytes.) Returns `None` for any other row.
    #[inline(always)]
    fn plainly(record: &'a [u8]) -> Option<DataRow<'a>> {
        let [header, key, first, second, third] = *record.first_chunk()?;
        let (value, types, next) = type_of_value([first, second, third])?;
        let key = usize::from(key);
        if key >= 0x80 || (key | value) % 2 != 0 {
            return None;
        }
        let (key, value) = (key.checked_sub(12)? / 2, value.checked_sub(12)? / 2);
        let body = record.get(usize::from(header)..)?;
        let (joined, rest) = body.split_at_checked(key + value)?;
        let (key, value) = joined.split_at_checked(key)?;
        let mut head = Head::PLAIN;
        if header == types + 1 && next == SIX_BYTES {
            let [a, b, c, d, e, f] = rest.try_into().ok()?;
            // The sign is in the first byte.
            head.expire_ms = Some(i64::from_be_bytes([a, b, c, d, e, f, 0, 0]) >> 16);
        } else if header != types || !rest.is_empty() {
            return None;
        }
        Some(DataRow { key, value: Some(value), joined: Some(joined), head })
    }

    fn closely(record: &'a [u8]) -> Result<DataRow<'a>, NoDataRow> {
        let mut columns = Columns::of(record)?;
        let body = columns.body;
        let Value::Blob(key) = columns.next()? else { return Err(NoDataRow::WrongType("key")) };
        let value = match columns.next()? {
            Value::Blob(value) => Some(value),
            Value::Null => None,
            Value::Integer(_) | Value::Text(_) | Value::Real => return Err(NoDataRow::WrongType("value")),
        };
        let mut head = Head::PLAIN;
        if !columns.types.is_empty() {
            head.expire_ms = columns.integer("expire_ms")?;
            head.blob_id = columns.integer("blob_id")?;
            head.written_ms = columns.integer("written_ms")?;
        }
        columns.end()?;
        let joined = value.and_then(|value| body.get(..key.len() + value.len()));
        Ok(DataRow { key, value, joined, head })
    }
}

/// Returns where the value is in a row of the table of large values: a range of bytes of its
/// record. `start` is the beginning of the record, with at least its header; `size` is the length
/// of the record.
pub(super) fn large_value(start: &[u8], size: usize) -> Result<Range<usize>, NoDataRow> {
    let mut columns = Columns::of(start)?;
    if columns.next()? != Value::Null {
        return Err(NoDataRow::WrongType("rowid")); // SQLite stores it as the key of the row
    }
    let serial = columns.serial()?;
    if serial < 12 || !serial.is_multiple_of(2) {
        return Err(NoDataRow::WrongType("large value"));
    }
    let from = start.len() - columns.body.len();
    let length = usize::try_from((serial - 12) / 2).map_err(|_| Malformed)?;
    let to = from.checked_add(length).filter(|to| *to <= size).ok_or(Malformed)?;
    if columns.types.is_empty() && to < size {
        return Err(NoDataRow::Malformed);
    }
    Ok(from..to)
}

fn big_endian(bytes: &[u8]) -> i64 {
    if let Ok(all) = bytes.try_into() {
        return i64::from_be_bytes(all);
    }
    let negative = bytes.first().is_some_and(|first| first & 0x80 != 0);
    bytes.iter().fold(if negative { -1 } else { 0 }, |number, byte| number << 8 | i64::from(*byte))
}

/// Decodes the varint at the beginning of `bytes`. Returns its value and its length, 1 to 9 bytes;
/// `None` if `bytes` ends within the varint.
fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut number = 0;
    for (at, &byte) in bytes.iter().enumerate().take(8) {
        number = number << 7 | u64::from(byte & 0x7f);
        if byte < 0x80 {
            return Some((number, at + 1));
        }
    }
    bytes.get(8).map(|&byte| (number << 8 | u64::from(byte), 9))
}

#[inline]
fn push_varint(out: &mut Vec<u8>, number: u64) {
    if number < 0x80 {
        return out.push(number as u8);
    }
    // Only lengths are encoded. They are far below 2^56, from which on the ninth byte has eight
    // bits.
    let groups = (64 - number.leading_zeros()).div_ceil(7);
    for group in (0..groups).rev() {
        let more = if group > 0 { 0x80 } else { 0 };
        out.push((number >> (7 * group) & 0x7f) as u8 | more);
    }
}

fn blob_type(length: usize) -> u64 {
    length as u64 * 2 + 12
}

fn text_type(length: usize) -> u64 {
    length as u64 * 2 + 13
}

/// Returns the serial type of an integer, and the number of bytes in which a record stores it.
fn integer_type(number: i64) -> (u8, usize) {
    match number {
        0 => (8, 0),
        1 => (9, 0),
        -0x80..=0x7f => (1, 1),
        -0x8000..=0x7fff => (2, 2),
        -0x80_0000..=0x7f_ffff => (3, 3),
        -0x8000_0000..=0x7fff_ffff => (4, 4),
        -0x8000_0000_0000..=0x7fff_ffff_ffff => (5, 6),
        _ => (6, 8),
    }
}

fn push_integer(out: &mut Vec<u8>, number: i64) {
    let (_, size) = integer_type(number);
    out.extend_from_slice(number.to_be_bytes().get(8 - size..).unwrap_or_default());
}

/// Replaces the content of `out` by a record header: the size of the whole header, in one byte, and
/// the serial types that `types` appends.
fn header(out: &mut Vec<u8>, types: impl FnOnce(&mut Vec<u8>)) {
    out.clear();
    out.push(0);
    types(out);
    // At most 4 lengths of 5 bytes and 3 types of 1: one byte always suffices.
    let size = out.len() as u8;
    if let Some(first) = out.first_mut() {
        *first = size;
    }
}

/// Writes the record of a row of a data table. Omits the NULLs at its end, as SQLite does.
pub(super) fn data_row(out: &mut Vec<u8>, key: &[u8], value: Option<&[u8]>, head: Head) {
    let integers = [head.expire_ms, head.blob_id, head.written_ms];
    let stored = integers.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
    header(out, |out| {
        push_varint(out, blob_type(key.len()));
        push_varint(out, value.map_or(0, |value| blob_type(value.len())));
        for integer in integers.iter().take(stored) {
            out.push(integer.map_or(0, |number| integer_type(number).0));
        }
    });
    out.extend_from_slice(key);
    out.extend_from_slice(value.unwrap_or_default());
    for number in integers.into_iter().flatten() {
        push_integer(out, number);
    }
}

/// Writes the record of a row of a key index. If `time_ms` is `None`, writes a search key for a
/// data table or a key index.
pub(super) fn key_row(out: &mut Vec<u8>, key: &[u8], time_ms: Option<i64>) {
    header(out, |out| {
        push_varint(out, blob_type(key.len()));
        out.extend(time_ms.map(|time_ms| integer_type(time_ms).0));
    });
    out.extend_from_slice(key);
    if let Some(time_ms) = time_ms {
        push_integer(out, time_ms);
    }
}

/// Writes the record of a row of a time index. The same record is the search key for that row.
pub(super) fn time_row(out: &mut Vec<u8>, time_ms: i64, key: &[u8]) {
    header(out, |out| {
        out.push(integer_type(time_ms).0);
        push_varint(out, blob_type(key.len()));
    });
    push_integer(out, time_ms);
    out.extend_from_slice(key);
}

/// Writes the record of a row of a table of large values. The first column is the rowid, stored as
/// NULL.
pub(super) fn blob_row(out: &mut Vec<u8>, value: &[u8]) {
    header(out, |out| {
        out.push(0);
        push_varint(out, blob_type(value.len()));
    });
    out.extend_from_slice(value);
}

/// Writes the search key for a table whose primary key is a text: the catalogue of families, or
/// kvstore_meta.
pub(super) fn name_row(out: &mut Vec<u8>, name: &str) {
    header(out, |out| push_varint(out, text_type(name.len())));
    out.extend_from_slice(name.as_bytes());
}

/// Writes the record of a row of the catalogue of families, with the default settings.
pub(super) fn family_row(out: &mut Vec<u8>, name: &str, created_ms: i64) {
    header(out, |out| {
        push_varint(out, text_type(name.len()));
        out.extend([created_ms, 0, 0].map(|number| integer_type(number).0));
    });
    out.extend_from_slice(name.as_bytes());
    push_integer(out, created_ms);
}

/// Writes the record of a row of sqlite_schema for a table or a view. `kind` is its first column; a
/// view has `root` 0.
pub(super) fn schema_row(out: &mut Vec<u8>, kind: &str, name: &str, root: u32, sql: &str) {
    let root = i64::from(root);
    header(out, |out| {
        for text in [kind, name, name] {
            push_varint(out, text_type(text.len()));
        }
        out.push(integer_type(root).0);
        push_varint(out, text_type(sql.len()));
    });
    for text in [kind, name, name] {
        out.extend_from_slice(text.as_bytes());
    }
    push_integer(out, root);
    out.extend_from_slice(sql.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBERS: [i64; 17] = [
        0,
        1,
        2,
        -1,
        127,
        -128,
        128,
        32_767,
        -32_769,
        8_388_607,
        -8_388_609,
        2_147_483_648,
        1_800_000_000_000,
        140_737_488_355_328,
        -140_737_488_355_329,
        i64::MAX,
        i64::MIN,
    ];

    fn columns(record: &[u8]) -> Vec<Value<'_>> {
        let mut columns = Columns::of(record).unwrap();
        (0..5).map(|_| columns.next().unwrap()).collect()
    }

    #[test]
    fn written_records_decode_to_same_columns() {
        let mut out = Vec::new();
        for number in NUMBERS {
            for size in [0, 1, 57, 58, 100, 8186, 70_000] {
                let (key, value) = (vec![7; size], vec![9; size / 2]);
                let head = Head { expire_ms: Some(number), blob_id: None, written_ms: Some(3) };
                data_row(&mut out, &key, Some(&value), head);
                assert_eq!(
                    columns(&out),
                    [
                        Value::Blob(&key),
                        Value::Blob(&value),
                        Value::Integer(number),
                        Value::Null,
                        Value::Integer(3)
                    ]
                );
                time_row(&mut out, number, &key);
                assert_eq!(columns(&out)[..3], [Value::Integer(number), Value::Blob(&key), Value::Null]);
                key_row(&mut out, &key, Some(number));
                assert_eq!(columns(&out)[..3], [Value::Blob(&key), Value::Integer(number), Value::Null]);
            }
        }
    }

    #[test]
    fn fast_and_full_row_decoders_agree() {
        let mut out = Vec::new();
        for number in NUMBERS {
            for key in [1, 16, 57, 58, 300] {
                for value in [0, 1, 57, 58, 100, 8185, 8186] {
                    for (expire_ms, written_ms) in
                        [(None, None), (Some(number), None), (Some(number), Some(1))]
                    {
                        let (key, value) = (vec![7; key], vec![9; value]);
                        let head = Head { expire_ms, blob_id: None, written_ms };
                        data_row(&mut out, &key, Some(&value), head);
                        for row in [DataRow::plainly(&out), DataRow::closely(&out).ok()] {
                            let Some(row) = row else { continue };
                            assert_eq!((row.key, row.value, row.head), (&key[..], Some(&value[..]), head));
                            assert_eq!(row.joined, Some(&[&key[..], &value[..]].concat()[..]));
                        }
                        assert!(DataRow::closely(&out).is_ok());
                    }
                }
            }
        }
        data_row(
            &mut out,
            &[7; 16],
            Some(&[9; 100]),
            Head { expire_ms: Some(1_800_000_000_000), ..Head::PLAIN },
        );
        assert!(DataRow::plainly(&out).is_some(), "the quick way is not taken at all");
    }

    #[test]
    fn record_longer_than_its_columns_is_rejected() {
        let mut out = Vec::new();
        for expire_ms in [None, Some(1_800_000_000_000), Some(7)] {
            data_row(&mut out, &[7; 16], Some(&[9; 100]), Head { expire_ms, ..Head::PLAIN });
            assert!(DataRow::of(&out).is_ok());
            out.push(0);
            assert!(DataRow::of(&out).is_err());
        }
        // Columns that a later version of the format may add are ignored.
        let more = [7, 14, 14, 8, 8, 8, 1, b'k', b'v', 5];
        assert_eq!(DataRow::of(&more).map(|row| row.head.written_ms).ok(), Some(Some(0)));
    }

    #[test]
    fn large_value_is_found_from_the_beginning_of_its_record() {
        let mut out = Vec::new();
        for size in [0, 1, 57, 58, 300, 70_000] {
            let value: Vec<u8> = (0..size).map(|i| i as u8).collect();
            blob_row(&mut out, &value);
            for start in [20.min(out.len()), out.len()] {
                let range = large_value(&out[..start], out.len()).ok().expect("a row with a value");
                assert_eq!(out[range], value);
            }
            assert!(large_value(&out, out.len() - 1).is_err());
            assert!(large_value(&out, out.len() + 1).is_err());
            assert!((0..3).all(|cut| large_value(&out[..cut], out.len()).is_err()));
        }
        for other in [&[3, 0, 13, b'x'][..], &[3, 0, 1, 5], &[3, 0, 0], &[3, 1, 12, 5], &[2, 0]] {
            assert!(large_value(other, other.len()).is_err());
        }
    }

    #[test]
    fn trailing_nulls_are_omitted() {
        let mut out = Vec::new();
        data_row(&mut out, b"k", Some(b"v"), Head { expire_ms: None, blob_id: None, written_ms: None });
        assert_eq!(out, [3, 14, 14, b'k', b'v']);
        data_row(&mut out, b"k", None, Head { expire_ms: None, blob_id: Some(5), written_ms: None });
        assert_eq!(out, [5, 14, 0, 0, 1, b'k', 5]);
    }

    #[test]
    fn decoder_never_panics_on_arbitrary_records() {
        let mut good = Vec::new();
        data_row(
            &mut good,
            b"key",
            Some(&[1; 300]),
            Head { expire_ms: Some(1 << 40), blob_id: None, written_ms: Some(-1) },
        );
        let read = |record: &[u8]| {
            if let Ok(mut columns) = Columns::of(record) {
                for _ in 0..6 {
                    let _ = columns.next();
                }
            }
            let _ = DataRow::of(record);
            let _ = large_value(record, record.len()).map(|range| record.get(range).unwrap());
        };
        for cut in 0..good.len() {
            read(&good[..cut]);
        }
        for at in 0..good.len().min(16) {
            for byte in 0..=255 {
                let mut bad = good.clone();
                bad[at] = byte;
                read(&bad);
            }
        }
        read(&[0xff; 32]);
        read(&[9, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(Columns::of(&[]).err(), Some(Malformed));
    }

    #[test]
    fn varints_round_trip_with_correct_length() {
        let mut out = Vec::new();
        for number in [0, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152, 1 << 31, 1 << 40] {
            out.clear();
            push_varint(&mut out, number);
            assert_eq!(varint(&out), Some((number, out.len())));
        }
        assert_eq!(varint(&[0xff; 9]), Some((u64::MAX, 9)));
        assert_eq!(varint(&[0x80; 8]), None);
    }
}
