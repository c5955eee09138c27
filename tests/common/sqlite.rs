//! Access to this process's SQLite without the library. A separate file, because fuzz/ uses the
//! other helpers without rusqlite.

use std::path::Path;

/// Opens a database directly with this process's SQLite.
pub fn open(path: &Path) -> rusqlite::Connection {
    let conn = rusqlite::Connection::open(path).unwrap();
    #[cfg(feature = "encryption")]
    if super::common::decrypted::is_encrypted(path) {
        super::common::decrypted::unlock(&conn);
    }
    conn
}
