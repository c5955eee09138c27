//! Description of a store: [`Store::info`].

use super::Store;
use crate::backend::Db;
use crate::error::Result;
use crate::info::StoreInfo;

impl Store {
    /// Returns a description of this store in one snapshot: its file, its size and its families.
    ///
    /// It reads no keys and values, but about a thousandth of the file, and uses 4 bytes of memory
    /// for each page. For the number of keys use [`count`](crate::Family::count).
    ///
    /// # Errors
    /// A [read error](crate#errors).
    pub fn info(&self) -> Result<StoreInfo> {
        self.session().with(Db::info)
    }
}
