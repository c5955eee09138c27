//! Access for other programs to an encrypted store: they get a plain copy, and their changes are
//! copied back. Uses only SQLCipher's SQL, not the library.

use std::fs;
use std::path::Path;

use rusqlite::Connection;

/// Encryption key of all stores in a run with `KVSTORE_TEST_ENCRYPTED`.
pub const KEY: [u8; 32] = [0xa5; 32];

/// Sets the key of a connection to such a store.
pub fn unlock(conn: &Connection) {
    conn.execute_batch(&format!("PRAGMA key = {}", quoted())).unwrap();
}

fn quoted() -> String {
    format!("\"x'{}'\"", KEY.map(|byte| format!("{byte:02x}")).concat())
}

/// Returns `true` if there is such a store at the path, and it is closed or not in use now.
pub fn is_encrypted(path: &Path) -> bool {
    fs::read(path).is_ok_and(|bytes| !bytes.is_empty() && !bytes.starts_with(b"SQLite format 3\0"))
}

/// Copies the content of one file to another. One of them is encrypted with [`KEY`].
fn export(from: &Path, from_key: bool, to: &Path) {
    let conn = Connection::open(from).unwrap();
    if from_key {
        unlock(&conn);
    }
    let number = |pragma: &str| -> i64 {
        conn.query_row(&format!("PRAGMA main.{pragma}"), [], |row| row.get(0)).unwrap()
    };
    let other = if from_key { "''".to_owned() } else { quoted() };
    let to = to.to_str().unwrap();
    conn.execute_batch(&format!(
        "ATTACH '{to}' AS copy KEY {other}; PRAGMA copy.auto_vacuum = {}",
        number("auto_vacuum")
    ))
    .unwrap();
    conn.query_row("SELECT sqlcipher_export('copy')", [], |_| Ok(())).unwrap();
    for pragma in ["user_version", "application_id"] {
        conn.execute_batch(&format!("PRAGMA copy.{pragma} = {}", number(pragma))).unwrap();
    }
    conn.execute_batch("DETACH copy").unwrap();
}

/// Runs `f` on a plain copy of the store, and copies its changes back.
pub fn on_a_plain_copy<R>(path: &Path, f: impl FnOnce(&Path) -> R) -> R {
    let (plain, encrypted) = (path.with_extension("plain"), path.with_extension("encrypted"));
    export(path, true, &plain);
    let done = f(&plain);
    export(&plain, false, &encrypted);
    fs::remove_file(&plain).unwrap();
    fs::rename(&encrypted, path).unwrap();
    done
}
