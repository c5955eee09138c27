//! Ends of life without the values: looking at them, changing them, asking for the next.

use std::time::Duration;

use crate::db::{Db, Engine, Step, Tables, TimeIndex, from_time};
use crate::error::{Error, Result};
use crate::expiry::{self, Condition, Expiry};
use crate::family::Family;
use crate::store::Store;

impl Family {
    /// Changes the end of life of a live key, if `condition` holds; says whether it did, or `None` if
    /// the key is missing or expired. The value is neither read nor rewritten out of its place. If the
    /// new end is in the past, the key is gone at once.
    ///
    /// # Errors
    /// See [`Family`].
    pub fn expire(
        &self,
        key: impl AsRef<[u8]>,
        expiry: Expiry,
        condition: Condition,
    ) -> Result<Option<bool>> {
        let key = key.as_ref();
        self.check_entry(key, &[], expiry)?;
        self.inner().write(|db| {
            let Some(head) = self.live_head(db, key)? else { return Ok(None) };
            if !condition.holds(head.expire_ms, expiry.millis()) {
                return Ok(Some(false));
            }
            self.write_expiry(db, key, head, expiry.millis())?;
            Ok(Some(true))
        })
    }

    /// Makes a live key live for ever; says whether it had a TTL, or `None` if it is missing or expired.
    ///
    /// # Errors
    /// See [`Family`].
    pub fn persist(&self, key: impl AsRef<[u8]>) -> Result<Option<bool>> {
        self.expire(key, Expiry::Never, Condition::HasTtl)
    }

    /// The end of life of a key; `None` if it is missing or expired.
    ///
    /// # Errors
    /// See [`Family`].
    pub fn expire_time(&self, key: impl AsRef<[u8]>) -> Result<Option<Expiry>> {
        let head = self.look_up_head(key.as_ref())?;
        Ok(head.map(|head| Expiry::of_row(head.expire_ms)))
    }

    /// The value of a key, whose end of life becomes `expiry` in the same moment (sliding expiry);
    /// `None` if it is missing or expired.
    ///
    /// # Errors
    /// See [`Family`].
    pub fn get_and_expire(&self, key: impl AsRef<[u8]>, expiry: Expiry) -> Result<Option<Vec<u8>>> {
        self.get_and_expire_with(key, expiry, |value| Ok(value.to_vec()))
    }

    /// The same, showing the value to `visit` without a copy, before anything is changed. `visit` must
    /// not call this store.
    ///
    /// # Errors
    /// See [`Family`]; what `visit` returns, and nothing is changed then.
    pub fn get_and_expire_with<R>(
        &self,
        key: impl AsRef<[u8]>,
        expiry: Expiry,
        visit: impl FnOnce(&[u8]) -> Result<R>,
    ) -> Result<Option<R>> {
        let key = key.as_ref();
        self.check_entry(key, &[], expiry)?;
        let found = self.inner().write(|db| {
            let found = db.rows().get(self.tables(), key, |row| {
                let head = row.head();
                if self.is_expired(head) {
                    return Ok(None);
                }
                row.value(|value| Ok(Some((head, value.len(), visit(value)?))))?
            })?;
            let Some((head, bytes, shown)) = found.flatten() else { return Ok(None) };
            self.write_expiry(db, key, head, expiry.millis())?;
            Ok(Some((bytes, shown)))
        })?;
        Ok(found.map(|(bytes, shown)| {
            self.count_get(bytes);
            shown
        }))
    }

    /// Sets the TTL that plain puts give from now on, through whatever handle and process; `None`: no
    /// TTL. It is kept in the file. Keys that are there keep what they have.
    ///
    /// # Errors
    /// See [`Family`]; also `Error` for more than 20 years.
    pub fn set_default_ttl(&self, ttl: Option<Duration>) -> Result<()> {
        let ttl_ms = self.inner().count_failure(expiry::default_ttl_ms(ttl))?;
        self.inner().write(|db| db.set_default_ttl(self.tables(), ttl_ms))
    }

    /// The TTL that plain puts give; `None`: none.
    ///
    /// # Errors
    /// See [`Family`].
    pub fn default_ttl(&self) -> Result<Option<Duration>> {
        let settings = self.inner().with(|db| db.read_settings(self.tables()))?;
        let ms = settings.default_ttl_ms.unsigned_abs();
        Ok((ms > 0).then(|| Duration::from_millis(ms)))
    }

    /// The earliest end of life in the family, also of a key that has expired but is still there; `None`
    /// if no key has one. For timers.
    ///
    /// # Errors
    /// See [`Family`].
    pub fn next_expiry(&self) -> Result<Option<i64>> {
        self.inner().with(|db| next_expiry(db, self.tables()))
    }

    /// Number of live keys. Counts the rows and the entries that have expired; looks at no key else.
    ///
    /// # Errors
    /// See [`Family`].
    pub fn count_live(&self) -> Result<u64> {
        self.inner().with(|db| {
            db.in_snapshot(|db| {
                let all = db.rows().count(self.tables())?;
                let expired = db.rows().count_expired(self.tables(), self.inner().clock.now_ms())?;
                all.checked_sub(expired).ok_or_else(|| {
                    Error::Corrupt(format!(
                        "the expiry index of family \"{}\" has too many entries",
                        self.name()
                    ))
                })
            })
        })
    }
}

impl Store {
    /// The earliest end of life in all families; otherwise as [`Family::next_expiry`].
    ///
    /// # Errors
    /// Failures to read.
    pub fn next_expiry_of_all(&self) -> Result<Option<i64>> {
        self.shared().with(|db| {
            db.in_snapshot(|db| {
                let mut earliest = None;
                for family in db.families()? {
                    let next = next_expiry(db, &self.shared().tables(&family))?;
                    earliest = earliest.into_iter().chain(next).min();
                }
                Ok(earliest)
            })
        })
    }
}

pub(crate) fn next_expiry(db: &Db, tables: &Tables) -> Result<Option<i64>> {
    let mut next = None;
    db.rows().by_time(tables, TimeIndex::Expiry, from_time(i64::MIN), |expire_ms, _| {
        next = Some(expire_ms);
        Ok(Step::Stop)
    })?;
    Ok(next)
}
