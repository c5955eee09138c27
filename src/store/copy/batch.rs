//! Changes that a copy makes in one transaction of its target.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::record::Place;
use super::rows::Row;
use crate::backend::{BatchWrite, Tables};
use crate::error::Result;
use crate::family::Family;
use crate::options::PutOptions;

/// Number of changed rows after which a copy commits its batch, which is the list of changes for
/// one transaction of the target. An interruption loses at most the work of one batch.
const BATCH_ROWS: usize = 16 * 1024;
/// Total length of the keys and values of changed rows, in bytes, after which a copy commits its
/// batch of changes.
const BATCH_BYTES: usize = 4 << 20;
/// Time after which a copy commits its batch of changes, however few changes it contains.
const BATCH_TIME: Duration = Duration::from_secs(1);

/// Changes that one transaction of a copy makes in the target store.
pub(super) struct Batch {
    pub(super) writes: Vec<Write>,
    pub(super) bytes: usize,
    pub(super) began: Instant,
    /// Number of source rows read for this batch.
    pub(super) met: u64,
    /// Position of the copy after this batch; `None`: no row was read for the batch.
    pub(super) at: Option<Place>,
}

pub(super) struct Write {
    pub(super) family: Arc<Tables>,
    pub(super) key: Vec<u8>,
    pub(super) put: Option<(Vec<u8>, PutOptions)>,
}

impl Write {
    pub(super) fn of_batch(&self) -> BatchWrite<'_> {
        let put = self.put.as_ref().map(|(value, options)| (value.as_slice(), options));
        BatchWrite { family: &self.family, key: &self.key, put }
    }
}

impl Batch {
    pub(super) fn new() -> Batch {
        Batch { writes: Vec::new(), bytes: 0, began: Instant::now(), met: 0, at: None }
    }

    pub(super) fn is_full(&self) -> bool {
        self.writes.len() >= BATCH_ROWS || self.bytes >= BATCH_BYTES || self.began.elapsed() >= BATCH_TIME
    }

    pub(super) fn put(&mut self, family: &Family, row: Row) -> Result<()> {
        family.check_entry(&row.key, &row.value, row.expiry)?;
        self.bytes += row.key.len() + row.value.len();
        let options = PutOptions::new().expiry(row.expiry);
        let options = row.written_ms.map_or(options, |written_ms| options.written_at(written_ms));
        self.writes.push(Write {
            family: family.shared_tables(),
            key: row.key,
            put: Some((row.value, options)),
        });
        Ok(())
    }

    pub(super) fn delete(&mut self, family: &Family, key: Vec<u8>) {
        self.bytes += key.len();
        self.writes.push(Write { family: family.shared_tables(), key, put: None });
    }
}
