//! Argument type for the writes of a batch, which the layers above pass to a backend.

use super::Tables;
use crate::options::PutOptions;

/// One put or deletion in a batch. A batch is committed as a whole or not at all.
#[derive(Clone, Copy)]
pub(crate) struct BatchWrite<'w> {
    pub(crate) family: &'w Tables,
    pub(crate) key: &'w [u8],
    /// Value to write, with its options; `None` deletes the key.
    ///
    /// The options may set only the expiry time and the write time. Conditions (`only`) and keeping
    /// the current expiry time (`keep_ttl`) are supported for single puts only.
    pub(crate) put: Option<(&'w [u8], &'w PutOptions)>,
}
