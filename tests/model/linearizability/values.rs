//! Families, keys and values of the workers. Each key has a purpose, and each value identifies its
//! writer.

use super::checker::NONE;

/// The families of the keys, each key in one of them.
pub const FAMILIES: [&str; 3] = ["default", "second", "third"];
/// Lengths of values: in the row, around the border to the blob table, on overflow pages.
const LENGTHS: [usize; 6] = [8, 16, 240, 264, 5_000, 20_000];

pub fn family_of(key: i64) -> usize {
    usize::try_from(key).unwrap() % FAMILIES.len()
}

/// Keys of the same period are adjacent, for scans.
pub fn key_of(key: i64) -> Vec<u8> {
    format!("key {key:08}").into_bytes()
}

/// Purpose of a key.
#[derive(PartialEq, Eq)]
pub enum Class {
    Value,
    /// Its value is a decimal number.
    Counter,
    /// Two keys in two families that have the same value at any moment.
    Pair,
}

pub fn class_of(key: i64) -> Class {
    match key % 4 {
        0 => Class::Counter,
        1 => Class::Pair,
        _ => Class::Value,
    }
}

/// Bytes of a value: its number repeated, so that a mixture of two values is detected.
pub fn bytes_of(key: i64, number: i64) -> Vec<u8> {
    if class_of(key) == Class::Counter {
        return number.to_string().into_bytes();
    }
    let length = LENGTHS[usize::try_from(number).unwrap() % LENGTHS.len()];
    number.to_le_bytes().repeat(length / 8)
}

pub fn number_of(key: i64, value: Option<&[u8]>) -> i64 {
    let Some(value) = value else { return NONE };
    if class_of(key) == Class::Counter {
        return std::str::from_utf8(value).unwrap().parse().unwrap();
    }
    let number = i64::from_le_bytes(value[..8].try_into().unwrap());
    assert!(value == bytes_of(key, number), "a value of {} bytes is a mixture", value.len());
    number
}
