//! What a store on a server says of itself: its families. What they take there, the server's own tools tell.

use std::path::PathBuf;
use std::time::Duration;

use super::Db;
use super::plan::strange;
use super::schema::FORMAT;
use super::session::Again;
use super::url;
use crate::error::Result;
use crate::info::{FamilyInfo, StoreInfo};

const FAMILIES: &str = "SELECT f.name, f.created_ms, f.default_ttl_ms, f.track_writes, \
    (SELECT r.expire_ms FROM kvstore_row r WHERE r.family = f.id AND r.expire_ms IS NOT NULL \
    ORDER BY r.expire_ms, r.key LIMIT 1), (SELECT created_by FROM kvstore_meta) FROM kvstore_family f ORDER BY f.name";

impl Db {
    /// What the store is, at one moment.
    pub(crate) fn info(&self) -> Result<StoreInfo> {
        let mut created_by = None;
        let mut families = Vec::new();
        for row in self.query(Again::Yes, FAMILIES, &[])? {
            let name: Vec<u8> = row.try_get(0).map_err(|_| strange())?;
            let ttl_ms: i64 = row.try_get(2).map_err(|_| strange())?;
            created_by = row.try_get(5).map_err(|_| strange())?;
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
            path: Some(PathBuf::from(url::without_password(&self.url.to_string_lossy()))),
            format_version: FORMAT.into(),
            created_by,
            journal_mode: None,
            page_size: 0,
            file_bytes: 0,
            free_bytes: 0,
            other_bytes: None,
            wal_bytes: 0,
            wal_pending_bytes: 0,
            limit: None,
            families,
        })
    }
}
