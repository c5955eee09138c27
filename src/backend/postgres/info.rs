//! Description of a store on a server: its families, the server, and the space of its tables.

use std::path::PathBuf;
use std::time::Duration;

use super::Db;
use super::connection::Link;
use super::error::shown;
use super::error::strange;
use super::schema::FORMAT;
use super::session::Again;
use crate::error::Result;
use crate::info::{FamilyInfo, ServerInfo, ServerSizes, StoreInfo};
use crate::location::path_without_password;

const FAMILIES: &str = "SELECT f.name, f.created_ms, f.default_ttl_ms, f.track_writes, \
    (SELECT r.expire_ms FROM kvstore_row r WHERE r.family = f.id AND r.expire_ms IS NOT NULL \
    ORDER BY r.expire_ms, r.key LIMIT 1), (SELECT created_by FROM kvstore_meta) FROM kvstore_family f ORDER BY f.name";

/// Query for the version of the server and the name of the database. Every server that uses the
/// PostgreSQL protocol supports it.
const SERVER: &str = "SELECT current_setting('server_version'), current_database()::text";

/// Query for: whether the server is a standby, the TLS version and cipher, and the bytes of the
/// rows, of their indexes, and of all tables with their indexes. Only PostgreSQL supports it. Any
/// role may run it for tables that it may read.
const POSTGRES: &str = "SELECT pg_is_in_recovery(), \
    (SELECT version || ', ' || cipher FROM pg_stat_ssl WHERE pid = pg_backend_pid() AND ssl), \
    pg_table_size('kvstore_row'::regclass), pg_indexes_size('kvstore_row'::regclass), \
    pg_total_relation_size('kvstore_row'::regclass) + pg_total_relation_size('kvstore_family'::regclass) \
    + pg_total_relation_size('kvstore_meta'::regclass) + pg_total_relation_size('kvstore_unsettled'::regclass)";

/// Query for a text that identifies the running server and the store on it. The system identifier
/// is not sufficient: a server that was copied file by file has the same one.
const PLACE: &str = "SELECT concat_ws(' ', (SELECT system_identifier FROM pg_control_system()), \
    extract(epoch FROM pg_postmaster_start_time()), \
    (SELECT oid FROM pg_database WHERE datname = current_database()), 'kvstore_meta'::regclass::oid)";

impl Db {
    /// Returns a text that identifies this store and its running server, to detect that two handles
    /// use the same store; `None` if the server cannot report it.
    pub(crate) fn place_on_its_server(&self) -> Result<Option<String>> {
        let may_ask =
            |link: &mut Link| Ok(link.backend.as_ref().is_some_and(|backend| backend.history.is_some()));
        if !self.session.borrow_mut().run(Again::Read, may_ask)? {
            return Ok(None);
        }
        let rows = self.query(Again::Read, PLACE, &[])?;
        rows.first().map(|row| row.try_get(0).map_err(|_| strange())).transpose()
    }

    fn server_info(&self) -> Result<ServerInfo> {
        let rows = self.query(Again::Read, SERVER, &[])?;
        let row = rows.first().ok_or_else(strange)?;
        let text = |at| row.try_get(at).map(shown).map_err(|_| strange());
        let mut info = ServerInfo {
            version: text(0)?,
            database: text(1)?,
            schema: self.session.borrow().schema().to_owned(),
            tls: None,
            is_standby: false,
            sizes: None,
        };
        if self.session.borrow().is_postgres() {
            let rows = self.query(Again::Read, POSTGRES, &[])?;
            let row = rows.first().ok_or_else(strange)?;
            let bytes = |at| row.try_get::<_, i64>(at).map(i64::unsigned_abs).map_err(|_| strange());
            info.is_standby = row.try_get(0).map_err(|_| strange())?;
            info.tls = row.try_get::<_, Option<_>>(1).map_err(|_| strange())?.map(shown);
            info.sizes = Some(ServerSizes { rows: bytes(2)?, indexes: bytes(3)?, total: bytes(4)? });
        }
        Ok(info)
    }

    /// Returns a description of the store. The data of all families come from one snapshot.
    pub(crate) fn info(&self) -> Result<StoreInfo> {
        let mut created_by = None;
        let mut families = Vec::new();
        for row in self.query(Again::Read, FAMILIES, &[])? {
            let name: Vec<u8> = row.try_get(0).map_err(|_| strange())?;
            let ttl_ms: i64 = row.try_get(2).map_err(|_| strange())?;
            created_by = row.try_get::<_, Option<_>>(5).map_err(|_| strange())?.map(shown);
            families.push(FamilyInfo {
                name: String::from_utf8_lossy(&name).into_owned(),
                created_ms: row.try_get(1).map_err(|_| strange())?,
                default_ttl: Some(Duration::from_millis(ttl_ms.unsigned_abs())).filter(|ttl| !ttl.is_zero()),
                tracks_writes: row.try_get(3).map_err(|_| strange())?,
                next_expiry_ms: row.try_get(4).map_err(|_| strange())?,
                sizes: None,
            });
        }
        Ok(StoreInfo {
            path: Some(PathBuf::from(path_without_password(&self.url))),
            format_version: FORMAT.into(),
            created_by,
            journal_mode: None,
            page_size: 0,
            file_bytes: 0,
            free_bytes: 0,
            other_bytes: None,
            wal_bytes: 0,
            wal_pending_bytes: 0,
            size_limit: None,
            families,
            server: Some(self.server_info()?),
        })
    }
}
