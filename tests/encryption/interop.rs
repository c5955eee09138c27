//! Compatibility with SQLCipher: its shell reads an encrypted store with the password, and a
//! database that it creates opens as a store. Debian 12 has SQLCipher 3, which cannot read the
//! format of SQLCipher 4; then these tests do nothing. The Python package's tests check the package
//! `sqlcipher3`. `KVSTORE_SQLCIPHER` names another shell.

use std::path::Path;
use std::process::{Command, Stdio};

use kvstore::{Config, ErrorKind, Secret, Store};

use super::in_place::filled;
use super::sentinels::contents;
use super::{PASSWORD, fill, with_key, with_password};
use crate::common::{Scratch, kind};

fn run(path: &Path, sql: &str) -> Option<String> {
    let shell = std::env::var("KVSTORE_SQLCIPHER").unwrap_or_else(|_| "sqlcipher".into());
    let done = Command::new(shell).arg(path).arg(sql).stdin(Stdio::null()).output().ok()?;
    assert!(done.status.success(), "{sql}: {}", String::from_utf8_lossy(&done.stderr));
    Some(String::from_utf8(done.stdout).unwrap())
}

/// Returns the shell's output for some SQL; `None` without SQLCipher 4.
fn sqlcipher(path: &Path, sql: &str) -> Option<String> {
    let version = run(Path::new(":memory:"), "PRAGMA cipher_version");
    if version.as_deref().is_none_or(|version| !version.starts_with("4.")) {
        println!("skipped: no sqlcipher of version 4, but {version:?}");
        return None;
    }
    run(path, sql)
}

#[test]
fn sqlcipher_opens_store_with_password_or_raw_key() {
    for (config, key) in
        [(with_password(), format!("'{PASSWORD}'")), (with_key(), format!("\"x'{}'\"", "07".repeat(32)))]
    {
        let scratch = Scratch::new();
        let store = scratch.open_with(&config);
        fill(&store);
        store.put("a", "1").unwrap();
        // The store is open at the same time.
        let Some(said) = sqlcipher(
            &scratch.path(),
            &format!(
                "PRAGMA key = {key}; SELECT CAST(value AS TEXT) FROM \"live:default\" WHERE key = CAST('a' AS BLOB);
                 SELECT count(*) FROM \"live:sentinel-family\"; PRAGMA integrity_check; PRAGMA cipher_integrity_check"
            ),
        ) else {
            return;
        };
        assert_eq!(said, "ok\n1\n601\nok\n");
        // The shell writes, too.
        sqlcipher(
            &scratch.path(),
            &format!(
                "PRAGMA key = {key}; INSERT INTO \"data:default\"(key, value) VALUES (CAST('b' AS BLOB), CAST('2' AS BLOB))"
            ),
        );
        assert_eq!(store.get("b").unwrap().as_deref(), Some(&b"2"[..]));
        store.integrity_check().unwrap();
    }
}

#[test]
fn stores_encrypted_or_decrypted_by_sqlcipher_open() {
    let scratch = Scratch::new();
    let store = filled(&scratch.path(), &Config::new());
    let expected = contents(&store);
    store.close().unwrap();
    let (made, plain) = (scratch.dir().join("made.db"), scratch.dir().join("plain.db"));
    let export = |to: &Path, key: &str| {
        format!(
            "ATTACH '{}' AS other KEY '{key}'; SELECT sqlcipher_export('other');
             PRAGMA other.application_id = 0x4B565331; PRAGMA other.user_version = 1;",
            to.display()
        )
    };
    if sqlcipher(&scratch.path(), &export(&made, PASSWORD)).is_none() {
        return;
    }
    assert_eq!(kind(Store::open(&made)), ErrorKind::AuthFailed);
    let store = Store::open_with(&made, &with_password()).unwrap();
    store.integrity_check().unwrap();
    assert!(contents(&store) == expected);
    store.put("afterwards", "1").unwrap();
    store.delete("afterwards").unwrap();
    store.rekey(&Secret::password("another")).unwrap();
    store.close().unwrap();
    sqlcipher(&made, &format!("PRAGMA key = 'another'; {}", export(&plain, "")));
    let store = Store::open(&plain).unwrap();
    store.integrity_check().unwrap();
    assert!(contents(&store) == expected);
}
