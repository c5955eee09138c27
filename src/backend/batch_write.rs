//! A write of a batch, as a backend gets it.

use super::Tables;
use crate::options::PutOptions;

/// One write or deletion of a batch, which is committed as a whole.
#[derive(Clone, Copy)]
pub(crate) struct BatchWrite<'w> {
    pub(crate) family: &'w Tables,
    pub(crate) key: &'w [u8],
    /// Value to write, with its options; `None` deletes the key.
    ///
    /// The options are limited to expiry time and write time. Conditions, and keeping an expiry
    /// time, are for single puts.
    pub(crate) put: Option<(&'w [u8], &'w PutOptions)>,
}
