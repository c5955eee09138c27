//! Data for tests of encrypted stores, and the search for it in their files.

#![allow(dead_code)] // each program uses its part

use std::fs;
use std::path::Path;

use kvstore::Store;

/// Words that must not be readable in the files of a store.
pub const KEY: &str = "sentinel-key";
pub const VALUE: &str = "sentinel-value";
pub const FAMILY: &str = "sentinel-family";

/// Content of a store.
pub fn contents(store: &Store) -> Vec<String> {
    let mut all = vec![format!("{:?}", store.size_limit().unwrap())];
    for name in store.family_names().unwrap().iter().map(String::as_str).chain(["default"]) {
        let own = (name != "default").then(|| store.family(name).unwrap());
        let family = own.as_ref().unwrap_or(store.default_family());
        let tracks = family.tracks_writes().unwrap();
        all.push(format!("{name}: {:?} {tracks} {}", family.default_ttl().unwrap(), family.count().unwrap()));
        for entry in family.iter() {
            let (key, value) = entry.unwrap();
            let expiry = family.expiry(&key).unwrap();
            let written = tracks.then(|| family.write_time(&key).unwrap());
            all.push(format!("{key:?} {} {expiry:?} {written:?}", String::from_utf8_lossy(&value)));
        }
    }
    all
}

/// Returns `true` if the bytes contain the word.
pub fn has(bytes: &[u8], word: &[u8]) -> bool {
    // SAFETY: both pointers are valid for the lengths given.
    unsafe { !libc::memmem(bytes.as_ptr().cast(), bytes.len(), word.as_ptr().cast(), word.len()).is_null() }
}

/// Returns the files of a directory that contain one of the words in plain text.
pub fn leaked(dir: &Path) -> Vec<String> {
    let files = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let all =
        files.map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), fs::read(path).unwrap()));
    let words = [KEY, VALUE, FAMILY, "live:", "SQLite format", "CREATE TABLE"];
    let found = |bytes: &[u8]| words.iter().any(|word| has(bytes, word.as_bytes()));
    all.filter(|(_, bytes)| found(bytes)).map(|(name, _)| name).collect()
}
