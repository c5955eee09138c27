//! Creates the new store, and contains the visitor of the second walk, which saves the rows in it.

use std::cell::RefCell;
use std::path::Path;
use std::time::Duration;

use super::find::{Contents, Found, Tell};
use super::page::Kind;
use super::record::{Where, data_row, large_value};
use super::walk::{Entry, Visitor};
use super::work::{Family, Work};
use crate::clock::system_now_ms;
use crate::config::{Config, MAX_VALUE_SIZE, SyncLevel};
use crate::error::Result;
use crate::expiry::{self, Expiry};
use crate::memory;
use crate::options::{Eviction, PutOptions, SizeLimit};
use crate::store::Store;

/// Number of collected rows of a family at which they are written to the new store, in one
/// transaction. `BYTES` is the same limit for the total size of their keys and values.
const ROWS: usize = 1000;
const BYTES: usize = 4 << 20;

/// Store under construction. No process reads it before it is complete and synced.
pub(super) struct Saving {
    store: Store,
}

impl Saving {
    pub(super) fn begin(path: &Path, page_size: usize) -> Result<Saving> {
        let config = Config::new()
            .page_size(page_size as u32)
            .sync(SyncLevel::Off)
            .max_value_size(MAX_VALUE_SIZE)
            .exclusive(true);
        Ok(Saving { store: Store::open_with(path, &config)? })
    }

    /// Returns the number of families of the new store, including the default one.
    pub(super) fn families(&self) -> Result<u64> {
        Ok(self.store.family_names()?.len() as u64 + 1)
    }

    /// Creates a family with its former settings. Write tracking is also enabled if
    /// `has_write_times`, which means that rows of the family have a write time.
    pub(super) fn family(&self, found: &Found, has_write_times: bool) -> Result<Batch<'_>> {
        let family = match found.name.as_str() {
            crate::backend::DEFAULT_FAMILY => self.store.default_family().unregistered(),
            name => self.store.get_or_create_family(name)?,
        };
        let settings = found.settings.unwrap_or_default();
        if settings.track_writes || has_write_times {
            family.set_write_tracking(true)?;
        }
        if settings.default_ttl_ms > 0 {
            // A value above the maximum default TTL is not a TTL.
            let ttl = Duration::from_millis(settings.default_ttl_ms.unsigned_abs());
            if expiry::default_ttl_ms(Some(ttl)).is_ok() {
                family.set_default_ttl(Some(ttl))?;
            }
        }
        Ok(Batch { saving: self, family, pending: RefCell::default() })
    }

    /// Sets the size limit of the damaged store on the new store, and closes the new store.
    pub(super) fn finish(self, contents: &Contents, tell: Tell<'_>) -> Result<()> {
        if let Some(max_bytes @ 1..) = contents.max_bytes {
            let eviction = Eviction::from_stored(contents.eviction);
            let limit = SizeLimit::new(max_bytes.unsigned_abs(), eviction);
            // Setting a limit may evict rows, but no saved row may be evicted. `take_limit` fails
            // if rows would have to be evicted.
            if self.store.transaction(|store| store.take_limit(limit)).is_err() {
                let why =
                    format!("its limit of {max_bytes} bytes was not set again: the new store takes more");
                tell("the settings of the store", 0, &why)?;
            }
        }
        self.store.close()
    }
}

struct Row {
    key: Vec<u8>,
    value: Vec<u8>,
    expire_ms: Option<i64>,
    written_ms: Option<i64>,
}

#[derive(Default)]
struct Pending {
    rows: Vec<Row>,
    bytes: usize,
    saved: u64,
}

/// Collected rows of a family that are to be written to the new store.
pub(super) struct Batch<'s> {
    saving: &'s Saving,
    family: crate::family::Family,
    pending: RefCell<Pending>,
}

impl Batch<'_> {
    /// Adds a row. If the key already has a row in the new store, that row is kept.
    fn add(&self, row: Row) -> Result<()> {
        let is_full = {
            let mut pending = self.pending.borrow_mut();
            pending.bytes += row.key.len() + row.value.len();
            pending.rows.push(row);
            pending.rows.len() >= ROWS || pending.bytes >= BYTES
        };
        if is_full { self.write() } else { Ok(()) }
    }

    fn write(&self) -> Result<()> {
        let rows = {
            let mut pending = self.pending.borrow_mut();
            pending.bytes = 0;
            std::mem::take(&mut pending.rows)
        };
        let saved = self.saving.store.transaction(|_| {
            let mut saved = 0;
            for row in &rows {
                let expiry = row.expire_ms.map_or(Expiry::Never, Expiry::At);
                let options = PutOptions::new().expiry(expiry).if_absent();
                let written_ms = row.written_ms.filter(|ms| *ms >= 0);
                let options = written_ms.map_or(options, |ms| options.written_at(ms));
                saved += u64::from(self.family.put_with_options(&row.key, &row.value, &options)?);
            }
            Ok::<u64, crate::error::Error>(saved)
        })?;
        self.pending.borrow_mut().saved += saved;
        Ok(())
    }

    /// Writes the remaining rows. Returns the number of rows saved.
    pub(super) fn finish(self) -> Result<u64> {
        self.write()?;
        Ok(self.pending.into_inner().saved)
    }
}

/// Visitor that saves the rows of a family.
pub(super) struct Rows<'w, 'f> {
    pub(super) work: &'w Work<'f>,
    pub(super) family: &'w Family,
    pub(super) batch: &'w Batch<'w>,
}

impl Rows<'_, '_> {
    /// Returns the large value with this id, or the reason why it is lost.
    fn large(&self, id: i64) -> Result<Vec<u8>, &'static str> {
        let ids = &self.family.ids;
        let at = ids.partition_point(|other| *other < id);
        if ids.get(at + 1) == Some(&id) {
            return Err("another row has the same large value, and one of them is wrong");
        }
        let large = &self.family.large;
        let place = large.binary_search_by_key(&id, |(id, ..)| *id).map_err(|_| "its large value is lost")?;
        let (_, page, cell) = large.get(place).ok_or("its large value is lost")?;
        let record = self.work.forest.record_at(*page, *cell as usize, Kind::Table)?;
        let value = large_value(&record).ok_or("the record of its large value is damaged")?;
        if value.len() > MAX_VALUE_SIZE {
            return Err("its value is longer than one can be");
        }
        memory::copy_of(value).map_err(|_| memory::NONE_LEFT)
    }
}

impl Visitor for Rows<'_, '_> {
    fn entry(&mut self, entry: Entry<'_>) -> Result<()> {
        let Some(row) = data_row(entry.record) else { return Ok(()) };
        if row.expire_ms.is_some_and(|ms| expiry::is_expired(ms, system_now_ms())) {
            self.work.reporter.borrow_mut().counts.expired += 1;
            return Ok(());
        }
        let value = match row.value {
            Where::Here(value) => memory::copy_of(value).map_err(|_| memory::NONE_LEFT),
            Where::OutOfLine(id) => self.large(id),
        };
        match value {
            Ok(value) => self.batch.add(Row {
                key: row.key.to_vec(),
                value,
                expire_ms: row.expire_ms,
                written_ms: row.written_ms,
            }),
            Err(why) => self.lost_entry(entry.page, Some(row.key), why),
        }
    }

    fn lost_entry(&mut self, page: u32, key: Option<&[u8]>, why: &str) -> Result<()> {
        self.work.reporter.borrow_mut().row(&self.family.of, page, key, why)
    }

    fn lost_page(&mut self, page: u32, why: &str) -> Result<()> {
        self.work.reporter.borrow_mut().page(&self.family.of, page, why)
    }

    fn page(&mut self) -> Result<()> {
        self.work.progress.note_page()
    }

    fn key_of<'r>(&self, record: &'r [u8]) -> Option<&'r [u8]> {
        data_row(record).map(|row| row.key)
    }
}
