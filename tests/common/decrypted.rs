//! An encrypted store as other programs get it to see: as a plain copy, whose changes come back. By SQLCipher's SQL alone,
//! without the library.

use std::fs;
use std::path::Path;

use rusqlite::Connection;

/// What the stores of a run with `KVSTORE_TEST_ENCRYPTED` are encrypted with.
pub const KEY: [u8; 32] = [0xa5; 32];

/// Gives a connection to such a store the key.
pub fn unlock(conn: &Connection) {
    conn.execute_batch(&format!("PRAGMA key = {}", quoted())).unwrap();
}

fn quoted() -> String {
    format!("\"x'{}'\"", KEY.map(|byte| format!("{byte:02x}")).concat())
}

/// Whether there is a store of such a run at a path, and it is closed, or not in use at this moment.
pub fn is_encrypted(path: &Path) -> bool {
    fs::read(path).is_ok_and(|bytes| !bytes.is_empty() && !bytes.starts_with(b"SQLite format 3\0"))
}

/// Copies all there is from one file to another. The one of the two that is encrypted is so with [`KEY`].
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

/// Runs `f` on a plain copy of the store at a path, and takes what it has made of it.
pub fn on_a_plain_copy<R>(path: &Path, f: impl FnOnce(&Path) -> R) -> R {
    let (plain, encrypted) = (path.with_extension("plain"), path.with_extension("encrypted"));
    export(path, true, &plain);
    let done = f(&plain);
    export(&plain, false, &encrypted);
    fs::remove_file(&plain).unwrap();
    fs::rename(&encrypted, path).unwrap();
    done
}
