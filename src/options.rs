//! Options of a single write, and the size limit of a store.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::expiry::{self, Expiry};

/// Options of [`Family::put_with_options`](crate::Family::put_with_options): expiry, condition and
/// write time.
///
/// The default writes unconditionally, and the key gets the [default
/// TTL](crate::Family::default_ttl) of the family. Of [`expiry`](PutOptions::expiry) and
/// [`ttl`](PutOptions::ttl), the last one that was called decides.
///
/// ```
/// use std::time::Duration;
/// use kvstore::PutOptions;
/// # let store = kvstore::Store::open_in_memory(&kvstore::Config::new())?;
/// let lease = PutOptions::new().ttl(Duration::from_secs(30)).if_absent();
/// assert!(store.put_with_options("lock", "worker 1", &lease)?);
/// assert!(!store.put_with_options("lock", "worker 2", &lease)?);
/// # Ok::<(), kvstore::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PutOptions {
    pub(crate) only: Option<Presence>,
    pub(crate) keep_ttl: bool,
    pub(crate) ttl_ms: Option<i64>,
    /// Expiry time that the write gives to the key. `None`: the key gets the TTL `ttl_ms`, or if
    /// that is not set, the default TTL of the family.
    pub(crate) expiry: Option<Expiry>,
    pub(crate) written_ms: Option<i64>,
}

/// Condition of a write: the key must be missing or expired (`Absent`), or live (`Present`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    Absent,
    Present,
}

impl PutOptions {
    /// Returns the default options: write unconditionally, with the [default
    /// TTL](crate::Family::default_ttl) of the family.
    #[must_use]
    pub fn new() -> PutOptions {
        PutOptions::default()
    }

    /// Sets the expiry time that the write gives to the key. [`Expiry::Never`] writes a key without
    /// TTL; `None` stands for the [default TTL](crate::Family::default_ttl) of the family.
    #[must_use]
    pub fn expiry(mut self, expiry: impl Into<Option<Expiry>>) -> PutOptions {
        self.expiry = expiry.into();
        self.ttl_ms = None;
        self
    }

    /// Sets the TTL that the write gives to the key, counted from the write by the clock of the
    /// store.
    ///
    /// Fractions of a millisecond are rounded up.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> PutOptions {
        self.ttl_ms = Some(expiry::millis_rounded_up(ttl));
        self.expiry = None;
        self
    }

    /// Makes the write keep the expiry time of a live key, including the absence of one. A new key
    /// gets the expiry time or TTL of these options.
    #[must_use]
    pub fn keep_ttl(mut self) -> PutOptions {
        self.keep_ttl = true;
        self
    }

    /// Sets the write time that is recorded for the value, in milliseconds since the Unix epoch,
    /// instead of the current time. For copies of data that was written elsewhere.
    ///
    /// It must not be negative; it may be in the future. Sweeps and the eviction policy
    /// [`Oldest`](Eviction::Oldest) use it. It has no effect in a family without [write
    /// tracking](crate::Family::set_write_tracking).
    #[must_use]
    pub fn written_at(mut self, written_ms: i64) -> PutOptions {
        self.written_ms = Some(written_ms);
        self
    }

    /// Makes the write conditional: it happens only if the key is missing or expired.
    #[must_use]
    pub fn if_absent(mut self) -> PutOptions {
        self.only = Some(Presence::Absent);
        self
    }

    /// Makes the write conditional: it happens only if the key is live.
    #[must_use]
    pub fn if_present(mut self) -> PutOptions {
        self.only = Some(Presence::Present);
        self
    }
}

impl PutOptions {
    /// Fails with `Error` if the write time is negative, or if the expiry time is 0 or negative.
    pub(crate) fn check(&self) -> Result<()> {
        if let Some(written_ms @ ..0) = self.written_ms {
            return Err(Error::invalid(format!(
                "the write time {written_ms} is negative: give milliseconds since 1970"
            )));
        }
        self.expiry.map_or(Ok(()), Expiry::check)
    }
}

/// Size limit of a store, and its eviction policy.
/// [`Store::set_size_limit`](crate::Store::set_size_limit) sets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizeLimit {
    /// Maximum size of the data in the file, in bytes.
    pub max_bytes: u64,
    /// Eviction policy: which keys are removed when the limit is reached.
    pub eviction: Eviction,
}

impl SizeLimit {
    /// Creates a size limit.
    #[must_use]
    pub fn new(max_bytes: u64, eviction: Eviction) -> SizeLimit {
        SizeLimit { max_bytes, eviction }
    }
}

/// Eviction policy: which keys a store with a [`SizeLimit`] removes when a write needs space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Eviction {
    /// Evicts no key: a write beyond the limit fails with [`Full`](crate::ErrorKind::Full).
    None,
    /// Removes expired keys, then evicts the keys with the earliest expiry time. Keys that never
    /// expire are not evicted.
    Soonest,
    /// Removes expired keys, then evicts the keys that were written longest ago.
    Oldest,
    /// Removes expired keys, then evicts the keys that were written or read longest ago.
    ///
    /// Reads of single keys (`get` and its relatives) count as uses, and scans do not. They are
    /// noted in memory, up to 4096 keys per handle, and the next writes of the handle store them:
    /// the [write time](crate::Family::write_time) of a key becomes the time of its last use, at
    /// most once a minute, or when the key would be evicted otherwise. So the order is exact to a
    /// minute, and uses by handles that never write do not count.
    LeastUsed,
}

impl Eviction {
    /// Returns the policy that the file stores as `number`; [`Eviction::None`] for an unknown one.
    pub(crate) fn from_stored(number: Option<i64>) -> Eviction {
        match number {
            Some(1) => Eviction::Soonest,
            Some(2) => Eviction::Oldest,
            Some(3) => Eviction::LeastUsed,
            _ => Eviction::None,
        }
    }

    /// Returns the number that the file stores for this policy.
    pub(crate) fn stored(self) -> Option<i64> {
        match self {
            Eviction::None => None,
            Eviction::Soonest => Some(1),
            Eviction::Oldest => Some(2),
            Eviction::LeastUsed => Some(3),
        }
    }

    /// Returns `true` if the policy compares write times, so that every family must have them.
    pub(crate) fn needs_write_times(self) -> bool {
        matches!(self, Eviction::Oldest | Eviction::LeastUsed)
    }
}
