//! What a store says of itself.

use super::Store;
use crate::error::Result;
use crate::info::StoreInfo;

impl Store {
    /// What this store is, what takes room in its file, and what its families are; all at one moment, whoever writes
    /// meanwhile. It reads no data: of the file little more than the thousandth part, and for that time it needs
    /// 4 bytes of memory for each page. How many keys there are, [`count`](crate::Family::count) tells.
    ///
    /// # Errors
    /// Failures to read.
    pub fn info(&self) -> Result<StoreInfo> {
        let shared = self.shared();
        shared.with(|db| db.info(&shared.clock))
    }
}
