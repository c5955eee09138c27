//! The measured stores, one per file. Each is used as its documentation recommends. The durability
//! is the one closest to kvstore's default: a commit survives the end of the process, but not a
//! power cut. `Kind::promise` describes the effect of a power cut.

pub mod c_api;
pub mod families;
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

const LOG_OF_PAGES: &str = "never damaged; may lose the commits since the last checkpoint";

/// Returns the stores that are compiled in, and those of SNKV if its library is loaded.
pub fn all() -> Vec<Kind> {
    let kind = Kind {
        name: KVSTORE,
        ttl: true,
        processes: true,
        writes_only: false,
        promise: LOG_OF_PAGES,
        keeps: true,
        open: c_api::kvstore,
    };
    let lmdb = Kind {
        name: LMDB,
        ttl: false,
        promise: "NOSYNC: may be damaged, unless the file system keeps the order of writes",
        keeps: false,
        open: lmdb::open,
        ..kind
    };
    let lmdb_synced = Kind {
        name: "LMDB+sync",
        writes_only: true,
        promise: "NOMETASYNC, mdb_env_sync every 1000 commits: never damaged; may lose the last commit",
        keeps: true,
        open: lmdb::open_synced,
        ..lmdb
    };
    let sqlite = Kind { name: SQLITE, open: sqlite::open, ..kind };
    let mut all = vec![kind, lmdb, sqlite];
    #[cfg(feature = "redb")]
    all.push(Kind {
        name: "redb",
        processes: false,
        promise: "never damaged; may lose the commits since the last durable one, which every 1000th is",
        keeps: true,
        open: redb::open,
        ..lmdb
    });
    #[cfg(feature = "fjall")]
    all.push(Kind {
        name: "fjall",
        processes: false,
        promise: "never damaged; may lose what the system has not yet written of the journal",
        keeps: true,
        open: fjall::open,
        ..lmdb
    });
    #[cfg(feature = "rocksdb")]
    all.push(Kind {
        name: "RocksDB",
        processes: false,
        promise: "never damaged; may lose what the system has not yet written of the log",
        keeps: true,
        open: rocksdb::open,
        ..lmdb
    });
    all.push(lmdb_synced);
    if c_api::SNKV.get().is_some() {
        all.push(Kind {
            name: SNKV,
            promise: "never damaged; may lose all commits since it was opened, as it never checkpoints",
            keeps: false,
            open: c_api::snkv,
            ..kind
        });
        all.push(Kind {
            name: SNKV_CHECKPOINTED,
            processes: false,
            writes_only: true,
            promise: "never damaged; may lose the commits since the last checkpoint, which comes every 1000",
            open: c_api::snkv_checkpointed,
            ..kind
        });
    }
    all
}

/// Returns the first key after all keys with this prefix of digits.
fn after(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    *end.last_mut().expect("a prefix") += 1;
    end
}
