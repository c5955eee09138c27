//! Access to the catalogue of a store, which lists the families with their settings, and to the
//! settings of the store itself.

use super::connection::Db;
use super::error::{damaged, translate};
use super::os;
use super::quota::Quota;
use super::schema::{self, Settings, Tables};
use super::settings_cache::Known;
use crate::error::{Error, Result};
use crate::hint::Hint;

impl Db {
    /// Fails if SQLite's list of tables is damaged. Otherwise a write could create a second table
    /// in place of one whose name is damaged.
    ///
    /// The `btree` engine examines the list without SQL, which takes a tenth of the time if there
    /// are thousands of families. If it finds anything unusual, and with the `sql` engine, SQLite
    /// reads the list, and returns an error if the list is damaged.
    pub(super) fn check_list_of_tables(&self) -> Result<()> {
        if let Some(btree) = &self.btree
            && btree.list_is_plain(self)?
        {
            return Ok(());
        }
        self.read_schema()?;
        // SQLite itself does not notice this.
        let sharing = "SELECT count(*) - count(DISTINCT rootpage) + count(CASE rootpage WHEN 1 THEN 1 END) \
                       FROM sqlite_schema WHERE rootpage > 0";
        match self.read_number(sharing)? {
            0 => Ok(()),
            _ => Err(damaged("two tables have the same root page in the list of tables")),
        }
    }

    /// Creates a family, inside a write transaction. Returns `false` if the family exists already.
    pub(crate) fn create_family(&self, tables: &Tables, now_ms: i64) -> Result<bool> {
        if self.family_exists(tables.family())? {
            return Ok(false);
        }
        self.note_growth();
        self.settings.borrow_mut().of.remove(tables.family());
        self.family_changed(tables, true);
        self.make_family(tables, now_ms)?;
        if self.limit()?.is_some_and(|bound| bound.limit.eviction.needs_write_times()) {
            self.set_write_tracking(tables, true, now_ms)?;
        }
        Ok(true)
    }

    fn make_family(&self, tables: &Tables, now_ms: i64) -> Result<()> {
        if let Some(btree) = &self.btree
            && btree.create_family(self, tables, now_ms)?
        {
            return Ok(());
        }
        schema::create_family(self.switch_to_sql()?, tables, now_ms)?;
        Ok(())
    }

    /// Drops a family, inside a write transaction. Returns `false` if it does not exist.
    pub(crate) fn drop_family(&self, tables: &Tables) -> Result<bool> {
        self.settings.borrow_mut().of.remove(tables.family());
        self.family_changed(tables, false);
        schema::drop_family(self.switch_to_sql()?, tables)
    }

    pub(crate) fn family_exists(&self, family: &str) -> Result<bool> {
        if let Some(btree) = &self.btree
            && let Some(catalogue) = btree.catalogue(self)?
        {
            return catalogue.find(family).map(|settings| settings.is_some());
        }
        schema::family_exists(self.switch_to_sql()?, family)
    }

    /// Returns the names of all families, including the default one.
    pub(crate) fn families(&self) -> Result<Vec<String>> {
        if let Some(btree) = &self.btree
            && let Some(catalogue) = btree.catalogue(self)?
        {
            return catalogue.names();
        }
        schema::families(self.switch_to_sql()?)
    }

    /// Reads the settings of a family from the file; `None` if there is no family of that name.
    ///
    /// It runs SQL only with the `sql` engine, or if the catalogue of families does not have the
    /// form that this library creates.
    fn find_family(&self, family: &str) -> Result<Option<Settings>> {
        if let Some(btree) = &self.btree
            && let Some(catalogue) = btree.catalogue(self)?
        {
            return catalogue.find(family);
        }
        schema::settings(self.switch_to_sql()?, family)
    }

    /// Returns the settings of a family, as the open transaction sees them, from the cache or from
    /// the file. A change by another connection is seen after that connection's commit.
    ///
    /// It runs no SQL if the catalogue of families has the form that this library creates.
    pub(crate) fn settings(&self, tables: &Tables) -> Result<Settings> {
        let version = self.data_version()?;
        let mut cache = self.settings.borrow_mut();
        cache.renew(version);
        if let Some(settings) = cache.of.get(tables.family()) {
            return Ok(*settings);
        }
        let settings = self.read_settings(tables)?;
        cache.of.insert(tables.family().to_owned(), settings);
        Ok(settings)
    }

    /// Returns the size limit of the store, as the open transaction sees it, from the cache or from
    /// the file; `None` if it has none.
    #[inline]
    pub(super) fn limit(&self) -> Result<Option<Quota>> {
        let version = self.data_version()?;
        let known = {
            let mut cache = self.settings.borrow_mut();
            cache.renew(version);
            cache.limit
        };
        match known {
            Known::Unlimited => Ok(None),
            Known::Limited(bound) => Ok(Some(bound)),
            Known::Nothing => self.look_up_limit(),
        }
    }

    /// Returns `true` if the cache shows that the store has no size limit. After `false`,
    /// [`limit`](Db::limit) determines whether it has one.
    #[inline]
    pub(super) fn is_known_unlimited(&self) -> bool {
        if let Some(btree) = &self.btree {
            let cache = self.settings.borrow();
            return matches!(cache.limit, Known::Unlimited) && cache.version == btree.commits_of_others();
        }
        false
    }

    #[cold]
    fn look_up_limit(&self) -> Result<Option<Quota>> {
        let limit = self.read_limit()?;
        self.settings.borrow_mut().limit = limit.map_or(Known::Unlimited, Known::Limited);
        Ok(limit)
    }

    /// Returns the integers that the table kvstore_meta contains under `names`; `None` for a name
    /// without an integer.
    pub(super) fn read_meta<const N: usize>(&self, names: [&str; N]) -> Result<[Option<i64>; N]> {
        if let Some(btree) = &self.btree
            && let Some(found) = btree.meta(self, names)?
        {
            return Ok(found);
        }
        schema::meta(self.switch_to_sql()?, names)
    }

    /// Returns a number that changes when the open transaction sees new commits of other
    /// connections. Runs no SQL statement.
    fn data_version(&self) -> Result<u32> {
        if let Some(btree) = &self.btree {
            return Ok(btree.commits_of_others());
        }
        os::data_version(&self.conn).map_err(translate) // it also changes with commits of this connection
    }

    /// Returns a number that changes with commits of other connections, but not with those of this
    /// one. Call this in a transaction.
    pub(super) fn commits_of_others(&self) -> Result<u32> {
        if let Some(btree) = &self.btree {
            return btree.version_now(self);
        }
        self.read_number("PRAGMA data_version").map(|version| version.cast_unsigned() as u32)
    }

    /// Reads the settings of a family from the file, not from the cache. Fails if the family does
    /// not exist.
    pub(crate) fn read_settings(&self, tables: &Tables) -> Result<Settings> {
        self.find_family(tables.family())?.ok_or_else(|| schema::no_longer_exists(tables))
    }

    /// Reads the creation time of a family from the file, in milliseconds since the Unix epoch.
    /// Fails if the family does not exist.
    pub(crate) fn created_ms(&self, tables: &Tables) -> Result<i64> {
        schema::created_ms(self.switch_to_sql()?, tables.family())?
            .ok_or_else(|| schema::no_longer_exists(tables))
    }

    /// Sets the default TTL of a family, in milliseconds, inside a write transaction; 0 removes it.
    pub(crate) fn set_default_ttl(&self, tables: &Tables, ttl_ms: i64) -> Result<()> {
        self.settings(tables)?; // fails if the family is no longer there
        self.forget_settings();
        schema::set_default_ttl(self.switch_to_sql()?, tables.family(), ttl_ms)
    }

    /// Turns write tracking of a family on or off, inside a write transaction. When it is turned
    /// on, existing rows get the write time `now_ms`.
    pub(crate) fn set_write_tracking(&self, tables: &Tables, on: bool, now_ms: i64) -> Result<()> {
        if self.settings(tables)?.track_writes == on {
            return Ok(());
        }
        if !on && self.limit()?.is_some_and(|bound| bound.limit.eviction.needs_write_times()) {
            return Err(Error::invalid(
                "write tracking cannot be turned off, because the eviction policy of this store needs the \
                write times",
            )
            .with_hint(Hint::ChangeEviction));
        }
        if on {
            self.note_growth();
        }
        self.forget_settings();
        self.forget_all_bounds(); // SQL sets write times, which `time_set` does not see
        match on {
            true => schema::track_writes(self.switch_to_sql()?, tables, now_ms),
            false => schema::forget_writes(self.switch_to_sql()?, tables),
        }
    }

    /// Discards the cached settings of all families, and the cached size limit of the store.
    pub(super) fn forget_settings(&self) {
        self.settings.borrow_mut().forget();
    }

    /// Creates the key index and the expiry index of a family if they do not exist.
    pub(crate) fn create_ttl_tables(&self, tables: &Tables) -> Result<()> {
        if let Some(btree) = &self.btree
            && btree.create_ttl_tables(self, tables)?
        {
            return Ok(());
        }
        schema::create_ttl_tables(self.switch_to_sql()?, tables)
    }

    /// Creates the table of large values of a family if it does not exist.
    pub(crate) fn create_blob_table(&self, tables: &Tables) -> Result<()> {
        if let Some(btree) = &self.btree
            && btree.create_blob_table(self, tables)?
        {
            return Ok(());
        }
        schema::create_blob_table(self.switch_to_sql()?, tables)
    }
}

#[cfg(test)]
#[cfg(kvstore_btree)]
mod tests {
    use super::*;
    use crate::backend::file::engine::Engine;
    use crate::backend::file::engine::btree::BtreeConnection;
    use crate::config::Config;

    /// Makes `puts` single puts. Returns the number of those that used no SQL before their commit.
    fn direct_puts(db: &mut Db, tables: &Tables, puts: u8) -> u32 {
        let mut btree = 0;
        for n in 0..puts {
            db.in_own_transaction(true, |db| {
                db.settings(tables)?;
                db.rows().put_plain(tables, b"key", &[n])?;
                btree += u32::from(db.btree.as_ref().is_some_and(BtreeConnection::is_writing));
                Ok(())
            })
            .unwrap();
        }
        btree
    }

    #[test]
    fn puts_into_shared_file_skip_sql_once_settings_are_cached() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store.db");
        let mut one = Db::open(Some(&path), &Config::new(), 1).unwrap();
        let mut other = Db::open(Some(&path), &Config::new(), 1).unwrap();
        let tables = Tables::of("default");
        direct_puts(&mut one, &tables, 1);
        assert_eq!(direct_puts(&mut one, &tables, 10), 10);
        // A commit of another connection may have changed the settings: they are read again, once.
        direct_puts(&mut other, &tables, 1);
        direct_puts(&mut one, &tables, 1);
        assert_eq!(direct_puts(&mut one, &tables, 10), 10);
    }
}
