//! Copy of a store into another store, row by row. The two may differ in page size, journal mode
//! and backend, and the target may have other families.

mod batch;
mod record;
mod resumable;
mod rows;

use super::Store;
use crate::backend::{DEFAULT_FAMILY, TransactionState};
use crate::error::{Error, ErrorKind, Result};
use crate::family::{Direction, Family, KeyRange};
use crate::hint::Hint;
use crate::options::PutOptions;
pub use resumable::CopyReport;

/// Number of rows that a copy reads and writes at a time. The progress callback is called after
/// each such chunk of rows.
const ROWS: usize = 512;

impl Store {
    /// Copies all live keys of all families into another store. Returns the number of keys copied.
    ///
    /// The copy is a consistent snapshot of this store, written in one transaction of `to`. After a
    /// failure nothing was copied. `progress` is called at intervals with the number of keys copied
    /// and the number of keys to copy; if it returns `false`, the copy is cancelled. If keys expire
    /// during the copy, fewer keys are copied.
    ///
    /// - Families that `to` does not have are created with the default TTL and write tracking of
    ///   this store. A family of `to` with the same name must have no live keys. It gets the
    ///   default TTL of the family in this store, and write tracking if that family has it.
    /// - The [size limit](Store::set_size_limit) is copied only if `to` has no size limit and no
    ///   live key. It applies after the copy.
    /// - During the copy, other connections can read and write this store. Other writes to `to` are
    ///   blocked, and its WAL grows by the size of the copy.
    /// - The copy opens a connection of its own to each store, so `progress` may use both handles.
    ///   A store in memory and an exclusive store have no second connection: there the copy is a
    ///   transaction of the handle, which `progress` must not end.
    ///
    /// Expiry times, write times and the settings of the families are copied too.
    ///
    /// # Errors
    /// Nothing was copied then.
    /// - [`Error`](ErrorKind::Error): a family of `to` has live keys, both are the same store, a
    ///   value is longer than `to` allows, `to` belongs to an unfinished [resumable
    ///   copy](Store::copy_resumable), or `progress` cancelled the copy.
    /// - [`Full`](ErrorKind::Full): the disk is full, or the data exceeds the size limit of `to`.
    /// - [`Busy`](ErrorKind::Busy): another handle is writing to `to`; a transaction is open on the
    ///   handle of `to`; or one is open on this handle of a store in memory or an exclusive store.
    /// - [`Misuse`](ErrorKind::Misuse): one of the stores was closed, before or during the call.
    /// - Otherwise a [read error](crate#errors) of this store or a [write error](crate#errors) of
    ///   `to`.
    pub fn copy_to(&self, to: &Store, mut progress: impl FnMut(u64, u64) -> bool) -> Result<u64> {
        let mut go_on = |done, total| match goes_on(self, to, &mut progress, done, total)? {
            true => Ok(()),
            false => Err(Error::invalid("the copy was stopped by its progress callback; nothing was copied")),
        };
        let copied = between(self, to, |from, to| {
            // The transaction of the target begins first, because that may have to wait for a lock.
            // During the wait, a snapshot of the source would keep its WAL from being reset.
            to.transaction(|to| from.snapshot(|from| copy_all(from, to, &mut go_on)))
        });
        self.session().count_failure(copied)
    }
}

/// Calls the progress callback with the number of keys copied and the number of keys to copy.
/// Returns its result; `false` cancels the copy. Fails if one of the stores was closed, because the
/// thread that closes it may be waiting for the copy.
fn goes_on(
    from: &Store,
    to: &Store,
    progress: &mut impl FnMut(u64, u64) -> bool,
    done: u64,
    total: u64,
) -> Result<bool> {
    let goes_on = progress(done, total);
    from.session().check_open().and_then(|()| to.session().check_open())?;
    Ok(goes_on)
}

/// Runs `copy` on a connection to the store of `from` and a connection to the store of `to` (see
/// [`Side`]). Fails with `Error` if both handles are on the same store.
fn between<R>(from: &Store, to: &Store, copy: impl FnOnce(&Store, &Store) -> Result<R>) -> Result<R> {
    let itself = || Error::invalid("a store cannot be copied into itself: give another target");
    let (from_shared, to_shared) = (from.session(), to.session());
    let is_same_file = from_shared.file.is_some() && from_shared.file == to_shared.file;
    if is_same_file || std::ptr::eq(&raw const **from_shared, &raw const **to_shared) {
        return Err(itself());
    }
    let (from, to) = (Side::of(from, false)?, Side::of(to, true)?);
    let (from, to) = (from.store(), to.store());
    let place = |store: &Store| store.session().with(|db| db.place_on_its_server());
    let from_place = place(from)?;
    if from_place.is_some() && from_place == place(to)? {
        return Err(itself());
    }
    // `Locked` advises the caller to roll back, but the transactions are those of the copy.
    copy(from, to).map_err(|e| match e.kind() {
        ErrorKind::Locked => e
            .with_kind(ErrorKind::Busy, format!("{}; nothing was copied", e.message()))
            .with_hint(Hint::Retry),
        _ => e,
    })
}

/// One of the two stores of a copy, source or target, with the connection that the copy uses for
/// it: a connection of its own, or the handle of the caller if the store allows no second
/// connection (in memory, exclusive).
struct Side<'s> {
    given: &'s Store,
    own: Option<Store>,
}

impl<'s> Side<'s> {
    fn of(given: &'s Store, to_write: bool) -> Result<Side<'s>> {
        let session = given.session();
        let (path, idle) = session.with(|db| Ok((db.path(), *db.transaction() == TransactionState::None)))?;
        let path = path.filter(|_| !session.config.file.exclusive);
        if !idle && (to_write || path.is_none()) {
            let which = if to_write { "the target store" } else { "the source store" };
            return Err(
                Error::busy(format!("a transaction is open on {which}")).with_hint(Hint::EndTransaction)
            );
        }
        let own = path.map(|path| {
            let read_only = session.config.read_only || !to_write;
            Store::open_beside(session, &path, &session.config_now()?.read_only(read_only))
        });
        Ok(Side { given, own: own.transpose()? })
    }

    fn store(&self) -> &Store {
        self.own.as_ref().unwrap_or(self.given)
    }
}

/// Copies all families and live rows of `from`, in its open snapshot, to `to`, in its open write
/// transaction. Calls `go_on` with the number of rows copied and the number of all rows; its error
/// ends the copy. Returns the number of rows copied.
fn copy_all(from: &Store, to: &Store, go_on: &mut dyn FnMut(u64, u64) -> Result<()>) -> Result<u64> {
    let names = from.session().with(|db| db.families())?;
    if to.session().with(|db| db.family_exists(record::FAMILY))? {
        return Err(Error::invalid(format!(
            "the target store holds an unfinished copy (its progress is in the family \"{}\")",
            record::FAMILY
        ))
        .with_hint(Hint::ResumeCopy));
    }
    let is_new = to.size_limit()?.is_none() && is_empty(to)?;
    let mut total = 0;
    for name in &names {
        total += from.unregistered_family(name).count_live()?;
        if to.session().with(|db| db.family_exists(name))? && to.unregistered_family(name).count_live()? > 0 {
            return Err(has_keys(name));
        }
    }
    go_on(0, total)?;
    let evicted = to.stats()?.evicted;
    let mut done = 0;
    for name in &names {
        let from_family = from.unregistered_family(name);
        let to_family = prepared(&from_family, to, name)?;
        copy_rows(&from_family, &to_family, |rows| {
            done += rows;
            go_on(done, total)?;
            is_in_transaction(from, TransactionState::Read)?;
            is_in_transaction(to, TransactionState::Write)
        })?;
    }
    if to.stats()?.evicted > evicted {
        return Err(does_not_fit());
    }
    if let Some(limit) = from.size_limit()?.filter(|_| is_new) {
        to.take_limit(limit)?;
    }
    Ok(done)
}

fn has_keys(name: &str) -> Error {
    Error::invalid(format!(
        "family \"{name}\" of the target store has keys: clear it, or copy to another store"
    ))
}

fn does_not_fit() -> Error {
    Error::over_limit("the copied data does not fit into the size limit of the target store")
        .with_hint(Hint::RaiseSizeLimit)
}

fn is_empty(store: &Store) -> Result<bool> {
    for name in store.session().with(|db| db.families())? {
        if store.unregistered_family(&name).count_live()? > 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns the family of the target named `name`: creates it if it does not exist, and gives it the
/// settings of the source family.
fn prepared(from: &Family, to: &Store, name: &str) -> Result<Family> {
    if name != DEFAULT_FAMILY && !to.session().with(|db| db.family_exists(name))? {
        to.create_family(name)?;
    }
    let family = to.unregistered_family(name);
    let default_ttl = from.default_ttl()?;
    if family.default_ttl()? != default_ttl {
        family.set_default_ttl(default_ttl)?;
    }
    if from.tracks_writes()? {
        family.set_write_tracking(true)?;
    }
    Ok(family)
}

/// Copies the live rows of the family `from` to the family `to`, in chunks of up to [`ROWS`]. After
/// each chunk, calls `copied` with the number of rows in the chunk.
fn copy_rows(from: &Family, to: &Family, mut copied: impl FnMut(u64) -> Result<()>) -> Result<()> {
    let tracks = from.tracks_writes()?;
    let mut cursor = from.cursor(KeyRange::all(), Direction::Forward);
    cursor.first()?;
    loop {
        let entries = cursor.fetch(ROWS)?;
        if entries.len() == 0 {
            return Ok(());
        }
        let entries: Vec<_> = entries.collect();
        let mut written = Vec::new();
        if tracks {
            let keys: Vec<_> = entries.iter().map(|entry| entry.key).collect();
            written = from.write_times(&keys)?;
        }
        let rows = entries.iter().enumerate().filter_map(|(at, entry)| {
            let options = PutOptions::new().expiry(entry.expiry);
            match written.get(at) {
                Some(None) => None, // expired just now
                Some(Some(written_ms)) => Some((entry, options.written_at(*written_ms))),
                None => Some((entry, options)),
            }
        });
        let rows: Vec<_> = rows.collect();
        to.put_all(
            rows.iter().map(|(entry, options)| (entry.key, entry.value.unwrap_or_default(), options)),
        )?;
        copied(rows.len() as u64)?;
    }
}

/// Fails with `Misuse` if `store` is not in a transaction of the kind `state`: then the progress
/// callback has ended the transaction of the copy. It can do that if the copy uses the handle of
/// the caller instead of a connection of its own.
fn is_in_transaction(store: &Store, state: TransactionState) -> Result<()> {
    store.session().with_uncounted(|db| match *db.transaction() == state {
        true => Ok(()),
        false => Err(Error::misuse(
            "the progress callback ended the transaction of the copy: it may not use a store in \
            memory, or an exclusive one, while that is being copied",
        )),
    })
}
