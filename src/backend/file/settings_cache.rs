//! Cache of the settings of families, and of the size limit.

use std::collections::BTreeMap;

use super::quota::Quota;
use super::schema::Settings;

/// Settings of families and the size limit, as they were read from the file at one data version.
#[derive(Default)]
pub(super) struct SettingsCache {
    /// Data version of the file at which the settings and the size limit were read.
    pub(super) version: u32,
    /// Settings by family name.
    pub(super) of: BTreeMap<String, Settings>,
    pub(super) limit: Known,
}

/// Size limit of the store, as far as the cache knows it: `Nothing` if it was not read, `Unlimited`
/// if the store has none.
#[derive(Default, Clone, Copy)]
pub(super) enum Known {
    #[default]
    Nothing,
    Unlimited,
    Limited(Quota),
}

impl SettingsCache {
    /// Discards the settings and the size limit if they were read at another data version than
    /// `version`.
    #[inline]
    pub(super) fn renew(&mut self, version: u32) {
        if self.version != version {
            self.version = version;
            self.forget();
        }
    }

    pub(super) fn forget(&mut self) {
        self.of.clear();
        self.limit = Known::Nothing;
    }
}
