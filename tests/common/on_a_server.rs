//! Stores of the tests on a server (`KVSTORE_TEST_REMOTE=1`, in a build with the feature `remote`).
//! Each store has its own schema. All tests of a process share a server, whose clock a test can
//! set.
//!
//! A store on a server uses the server's time, so a [`TestClock`](super::TestClock) keeps its time
//! there. On this server, `clock_timestamp`, `statement_timestamp` and `now` are replaced by
//! functions that read the time from a file of the schema, if it exists. The file has 8 bytes in
//! memory order, because C programs map it (`tests/c/stores.h`). The library is unaware of this.

#![allow(dead_code)] // each crate of tests uses its part

use std::cell::RefCell;
use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use kvstore::Store;

use super::server::Server;

thread_local! {
    /// Schema of the store that this thread opened last.
    static LATEST: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Whether the tests are to use a server.
pub fn is_wanted() -> bool {
    std::env::var_os("KVSTORE_TEST_REMOTE").is_some()
}

/// The server of the tests of this process.
pub fn server() -> &'static Server {
    static WITH_CLOCK: OnceLock<Server> = OnceLock::new();
    WITH_CLOCK.get_or_init(|| {
        let server = Server::start(&["allow_system_table_mods=on", "max_connections=300", "fsync=off"]);
        let functions = [("clock_timestamp", "VOLATILE"), ("statement_timestamp", "STABLE"), ("now", "STABLE")];
        for (name, volatility) in functions {
            server.sql(&format!(
                "ALTER FUNCTION pg_catalog.{name}() RENAME TO real_{name};
                 CREATE FUNCTION pg_catalog.{name}() RETURNS timestamptz LANGUAGE plpgsql {volatility} PARALLEL SAFE COST 1 AS $$
                 DECLARE said bytea := pg_catalog.pg_read_binary_file('{}/clock_' || (SELECT s FROM unnest(pg_catalog.current_schemas(false)) AS s WHERE s <> 'pg_catalog' LIMIT 1), 0, 8, true);
                 now_ms bigint := 0;
                 BEGIN IF said IS NULL THEN RETURN pg_catalog.real_{name}(); END IF;
                 FOR i IN 0..7 LOOP now_ms := now_ms | (get_byte(said, i)::bigint << 8 * {}); END LOOP;
                 RETURN timestamptz 'epoch' + now_ms * interval '1 millisecond'; END $$",
                server.folder().display(),
                if cfg!(target_endian = "little") { "i" } else { "(7 - i)" }
            ));
        }
        server
    })
}

/// Returns a URL for a new store.
pub fn new_url() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    server().url(&format!("s{}", COUNT.fetch_add(1, Ordering::Relaxed)))
}

/// Returns the common beginning of the URLs for a C program's stores, and the folder of the files
/// that keep their time.
pub fn new_stores() -> (String, PathBuf) {
    (new_url() + "_", server().folder().to_owned())
}

/// Records that this thread has opened the store with this URL, to which its clock then applies.
pub fn opened(url: &str) {
    let schema = url.rsplit_once("schema=").map_or("", |(_, schema)| schema);
    LATEST.with(|latest| latest.replace(schema.to_owned()));
}

/// Returns `true` if the store is on this server.
pub fn has(store: &Store) -> bool {
    let info = store.info().ok(); // that of a damaged file may fail
    info.and_then(|info| info.path).is_some_and(|path| path.to_string_lossy().starts_with("postgresql://"))
}

/// Returns the file that keeps the time of the store that this thread opened last.
pub fn clock_of_the_latest() -> PathBuf {
    LATEST.with(|latest| server().folder().join(format!("clock_{}", latest.borrow())))
}

/// Sets the time that a file keeps.
pub fn set_clock(file: &PathBuf, now_ms: i64) {
    let new = file.with_extension("new");
    fs::write(&new, now_ms.to_ne_bytes()).unwrap();
    fs::rename(new, file).unwrap();
}
