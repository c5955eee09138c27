//! Cache of the settings of families, and of the size limit.

use std::collections::BTreeMap;

use super::quota::Quota;
use super::schema::Settings;

/// Settings of families as read from a certain state of the file.
#[derive(Default)]
pub(super) struct SettingsCache {
    /// Data version of that state.
    pub(super) version: u32,
    /// Settings by family name.
    pub(super) of: BTreeMap<String, Settings>,
    pub(super) limit: Known,
}

/// Knowledge about the size limit of the store.
#[derive(Default, Clone, Copy)]
pub(super) enum Known {
    #[default]
    Nothing,
    Unlimited,
    Limited(Quota),
}

impl SettingsCache {
    /// Discards settings that were read from another state of the file.
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
