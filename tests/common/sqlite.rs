//! The SQLite of this process without the library. (Apart from the other things that tests share: fuzz/ has no rusqlite.)

use std::path::Path;

/// A database as this process's SQLite has it without the library.
pub fn open(path: &Path) -> rusqlite::Connection {
    let conn = rusqlite::Connection::open(path).unwrap();
    #[cfg(feature = "encryption")]
    if super::common::decrypted::is_encrypted(path) {
        super::common::decrypted::unlock(&conn);
    }
    conn
}
