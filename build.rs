//! Switches the `btree` engine on where SQLite is the one it was written for.

use std::path::Path;

/// The SQLites whose internal declarations are in src/backend/file/engine/btree/raw.rs: that of libsqlite3-sys, and that of
/// SQLCipher, which it has with the feature `encryption`.
const SQLITE_VERSIONS: [&str; 2] = ["3.54.1", "3.53.4"];
/// How it must be compiled: internal functions can be linked; there is no shared cache, whose locks the engine does
/// not know; and its defaults are those of src/backend/file/pragmas.rs. (.cargo/config.toml)
const SQLITE_FLAGS: [&str; 5] = [
    "-DSQLITE_PRIVATE=",
    "-DSQLITE_OMIT_SHARED_CACHE",
    "-DSQLITE_DEFAULT_CACHE_SIZE=2000",
    "-DSQLITE_DEFAULT_WAL_SYNCHRONOUS=1",
    "-DSQLITE_TEMP_STORE=3",
];

/// By this, libsqlite3-sys links an SQLite of the system's, though its feature `bundled` asks for another.
const SYSTEMS_SQLITE: &str = "LIBSQLITE3_SYS_USE_PKG_CONFIG";

/// What keeps the `btree` engine out, if anything does.
fn without_btree_engine() -> Option<Reason> {
    let variables = ["LIBSQLITE3_FLAGS", "KVSTORE_ENGINE", "DEP_SQLITE3_INCLUDE", SYSTEMS_SQLITE];
    for variable in variables {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    if std::env::var("KVSTORE_ENGINE").as_deref() == Ok("sql") {
        return Some(Reason::Asked);
    }
    if std::env::var_os(SYSTEMS_SQLITE).is_some_and(|value| value != "0") {
        return Some(Reason::System);
    }
    let flags = std::env::var("LIBSQLITE3_FLAGS").unwrap_or_default();
    let missing =
        SQLITE_FLAGS.iter().filter(|flag| !flags.split_whitespace().any(|given| given == **flag)).copied();
    let missing: Vec<&str> = missing.collect();
    if !missing.is_empty() {
        return Some(Reason::Flags(missing.join(" ")));
    }
    // Only of a bundled SQLite is there a folder, and only that is compiled with the flags.
    let folder = std::env::var("DEP_SQLITE3_INCLUDE").unwrap_or_default();
    let header = std::fs::read_to_string(Path::new(&folder).join("sqlite3.h")).unwrap_or_default();
    let is_known = |version: &&str| header.contains(&format!("#define SQLITE_VERSION        \"{version}\""));
    if SQLITE_VERSIONS.iter().any(is_known) { None } else { Some(Reason::Version) }
}

enum Reason {
    Asked,
    System,
    Flags(String),
    Version,
}

fn main() {
    println!("cargo::rustc-check-cfg=cfg(kvstore_btree, kvstore_openssl, kvstore_split_atomics)");
    let has = |variable: &str| std::env::var_os(variable).is_some();
    // Apple's own library encrypts there, if OpenSSL is not compiled in.
    let is_apple = std::env::var("CARGO_CFG_TARGET_VENDOR").as_deref() == Ok("apple");
    if has("CARGO_FEATURE_ENCRYPTION") && (!is_apple || has("CARGO_FEATURE_ENCRYPTION_VENDORED_OPENSSL")) {
        println!("cargo::rustc-cfg=kvstore_openssl");
    }
    let without = "the slower engine `sql` is built (KVSTORE_ENGINE=sql if that is wanted)";
    match without_btree_engine() {
        None => println!("cargo::rustc-cfg=kvstore_btree"),
        Some(Reason::Asked) => {}
        // A program that depends on this crate, and that is built without its .cargo/config.toml.
        Some(Reason::Flags(_)) if !has("LIBSQLITE3_FLAGS") => {}
        Some(Reason::System) => println!(
            "cargo::warning={without}: {SYSTEMS_SQLITE} is set, by which the SQLite of the system is linked; unset it, or \
             set it to 0"
        ),
        Some(Reason::Flags(missing)) => println!(
            "cargo::warning={without}: SQLite is compiled without {missing}. Flags of your own come beside those of \
             .cargo/config.toml by LIBSQLITE3_FLAGS=\"$(packaging/sqlite-flags -D...)\""
        ),
        Some(Reason::Version) => println!(
            "cargo::warning={without}: the SQLite that is linked is not the bundled {}",
            SQLITE_VERSIONS.join(" or SQLCipher's ")
        ),
    }
}
