//! How a value is to be written: what `family` is told, and what a home of the data does.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::expiry::{self, Expiry};

/// How to write a value with [`Family::put_with_options`](crate::Family::put_with_options). The default writes always, a key
/// that never expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PutOptions {
    pub(crate) only: Option<Presence>,
    pub(crate) keep_ttl: bool,
    pub(crate) default_ttl: bool,
    pub(crate) ttl_ms: Option<i64>,
    pub(crate) expiry: Expiry,
    pub(crate) written_ms: Option<i64>,
}

/// What a conditional write asks of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    Absent,
    Present,
}

impl Default for PutOptions {
    fn default() -> PutOptions {
        PutOptions {
            only: None,
            keep_ttl: false,
            default_ttl: false,
            ttl_ms: None,
            expiry: Expiry::Never,
            written_ms: None,
        }
    }
}

impl PutOptions {
    /// Writes always, a key that never expires.
    #[must_use]
    pub fn new() -> PutOptions {
        PutOptions::default()
    }

    /// The end of life.
    #[must_use]
    pub fn expiry(mut self, expiry: Expiry) -> PutOptions {
        self.expiry = expiry;
        self.default_ttl = false;
        self.ttl_ms = None;
        self
    }

    /// The key lives for `ttl` from the write on, by the clock of the store; fractions of a millisecond count up.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> PutOptions {
        self.ttl_ms = Some(expiry::millis_rounded_up(ttl));
        self.default_ttl = false;
        self
    }

    /// The end of life is given by the family's default TTL; never, if it has none.
    #[must_use]
    pub fn use_default_ttl(mut self) -> PutOptions {
        self.default_ttl = true;
        self.ttl_ms = None;
        self
    }

    /// A live key keeps the end of life it has (also none); a new one gets the other settings'.
    #[must_use]
    pub fn keep_ttl(mut self) -> PutOptions {
        self.keep_ttl = true;
        self
    }

    /// The value counts as written at this moment, in milliseconds since the Unix epoch (not negative), instead of now:
    /// for copies of what was written elsewhere. It may be in the future, too; a sweep, and a store that removes what
    /// was written longest ago, go by it. A family that does not
    /// [track write times](crate::Family::set_write_tracking) keeps none, and this changes nothing there.
    #[must_use]
    pub fn written_at(mut self, written_ms: i64) -> PutOptions {
        self.written_ms = Some(written_ms);
        self
    }

    /// Write only if the key is missing or expired.
    #[must_use]
    pub fn if_absent(mut self) -> PutOptions {
        self.only = Some(Presence::Absent);
        self
    }

    /// Write only if the key is there and alive.
    #[must_use]
    pub fn if_present(mut self) -> PutOptions {
        self.only = Some(Presence::Present);
        self
    }
}

impl PutOptions {
    /// Refuses times that are none.
    pub(crate) fn check(&self) -> Result<()> {
        if let Some(written_ms @ ..0) = self.written_ms {
            return Err(Error::invalid(format!(
                "a write time of {written_ms} ms: times are milliseconds since 1970, and not negative"
            )));
        }
        self.expiry.check()
    }
}

/// How much a store may take, and what makes room when that is not enough: see
/// [`Store::set_size_limit`](crate::Store::set_size_limit).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizeLimit {
    /// What the data may take in the file, in bytes.
    pub max_bytes: u64,
    /// What goes first.
    pub eviction: Eviction,
}

impl SizeLimit {
    /// At most so many bytes, for which these keys make room.
    #[must_use]
    pub fn new(max_bytes: u64, eviction: Eviction) -> SizeLimit {
        SizeLimit { max_bytes, eviction }
    }
}

/// Which keys a store with a [`SizeLimit`] removes to make room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Eviction {
    /// None: a write that would pass the limit fails with [`Full`](crate::ErrorKind::Full).
    None,
    /// Those that have expired, then those that would expire soonest. Keys without a TTL stay.
    Soonest,
    /// Those that have expired, then those that were written longest ago.
    Oldest,
}
