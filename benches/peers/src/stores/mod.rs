//! The stores. Each file is one of them as its documentation says it should be used, with the durability
//! of kvstore's default: a commit survives the process, not a power cut.

pub mod c_api;
#[cfg(feature = "fjall")]
mod fjall;
mod lmdb;
#[cfg(feature = "redb")]
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
mod sqlite;

use crate::store::Kind;

pub const KVSTORE: &str = "kvstore";
pub const LMDB: &str = "LMDB";
pub const SQLITE: &str = "SQLite";
pub const SNKV: &str = "SNKV";
pub const SNKV_CHECKPOINTED: &str = "SNKV+ck";

/// All that were built in and, for the two of SNKV, loaded.
pub fn all() -> Vec<Kind> {
    let mut all = vec![
        Kind { name: KVSTORE, ttl: true, processes: true, writes_only: false, open: c_api::kvstore },
        Kind { name: LMDB, ttl: false, processes: true, writes_only: false, open: lmdb::open },
        Kind { name: SQLITE, ttl: true, processes: true, writes_only: false, open: sqlite::open },
        #[cfg(feature = "redb")]
        Kind { name: "redb", ttl: false, processes: false, writes_only: false, open: redb::open },
        #[cfg(feature = "fjall")]
        Kind { name: "fjall", ttl: false, processes: false, writes_only: false, open: fjall::open },
        #[cfg(feature = "rocksdb")]
        Kind { name: "RocksDB", ttl: false, processes: false, writes_only: false, open: rocksdb::open },
    ];
    if c_api::SNKV.get().is_some() {
        all.push(Kind { name: SNKV, ttl: true, processes: true, writes_only: false, open: c_api::snkv });
        let open = c_api::snkv_checkpointed;
        all.push(Kind { name: SNKV_CHECKPOINTED, ttl: false, processes: false, writes_only: true, open });
    }
    all
}

/// The first key after all with a prefix (of digits).
fn after(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    *end.last_mut().expect("a prefix") += 1;
    end
}
