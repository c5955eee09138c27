//! Encrypted stores. Only in a build with the feature `encryption`.
#![cfg(feature = "encryption")]

#[path = "../common/mod.rs"]
mod common;
mod in_place;
mod interop;
#[path = "../common/sentinels.rs"]
mod sentinels;

use std::fs;
use std::time::{Duration, Instant};

use common::other::{heard, role, say};
use common::{Scratch, kind};
use kvstore::{Config, ErrorKind, Expiry, JournalMode, KeyRange, Secret, Store, SyncLevel};
use sentinels::{FAMILY, KEY, VALUE, leaked};

const PASSWORD: &str = "correct horse";

fn with_password() -> Config {
    Config::new().password(PASSWORD)
}

/// A configuration with a raw key, so that no key has to be derived. Few tests are about the
/// derivation.
fn with_key() -> Config {
    Config::new().raw_key(&[7; 32])
}

fn fill(store: &Store) {
    let family = store.create_family(FAMILY).unwrap();
    for n in 0..300 {
        family.put(format!("{KEY} {n}"), format!("{VALUE} {n}").repeat(1 + n % 7 * 40)).unwrap();
        family
            .put_with_expiry(format!("{KEY} {n} ends"), VALUE, Expiry::At(4_000_000_000_000 + n as i64))
            .unwrap();
        store.put(format!("{KEY} {n}"), VALUE).unwrap();
    }
    family.put(KEY, VALUE.repeat(20_000)).unwrap();
}

/// Returns the files of the store that contain one of the words in plain text.
fn leaks(scratch: &Scratch) -> Vec<String> {
    leaked(scratch.dir())
}

#[test]
fn data_is_in_no_file_as_plain_text_and_readable_with_key() {
    for config in [
        with_password(),
        with_key(),
        with_key().journal_mode(JournalMode::Delete),
        with_key().sql_engine(true),
    ] {
        let scratch = Scratch::new();
        let store = scratch.open_with(&config);
        fill(&store);
        assert_eq!(leaks(&scratch), Vec::<String>::new());
        store.checkpoint(kvstore::CheckpointMode::Truncate).unwrap();
        store.integrity_check().unwrap();
        assert_eq!(leaks(&scratch), Vec::<String>::new());
        store.close().unwrap();
        assert_eq!(leaks(&scratch), Vec::<String>::new());
        let store = scratch.open_with(&config);
        let family = store.family(FAMILY).unwrap();
        assert_eq!((store.count().unwrap(), family.count().unwrap()), (300, 601));
        assert_eq!(family.expiry(format!("{KEY} 7 ends")).unwrap(), Some(Expiry::At(4_000_000_000_007)));
        assert_eq!(family.get(KEY).unwrap().map(|value| value.len()), Some(VALUE.len() * 20_000));
        assert_eq!(family.prefix(KEY).count(), 601);
        store.integrity_check().unwrap();
    }
}

#[test]
fn wrong_password_is_refused_and_file_unchanged() {
    let scratch = Scratch::new();
    fill(&scratch.open_with(&with_password()));
    let before = scratch.bytes();
    for config in [
        Config::new(),
        Config::new().read_only(true),
        Config::new().password("correct hors"),
        with_key(),
        with_key().read_only(true),
        with_key().sync(SyncLevel::Full),
        with_key().sync(SyncLevel::Full).cache_pages(500).sql_engine(true).read_only(true),
    ] {
        let error = Store::open_with(scratch.path(), &config).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AuthFailed, "{error}");
        assert!(!error.to_string().contains("hors"), "{error}");
    }
    assert!(scratch.bytes() == before);
    assert_eq!(scratch.open_with(&with_password()).count().unwrap(), 300);
}

#[test]
fn wrong_password_keeps_wal_left_by_crash() {
    let crashed = Scratch::new();
    {
        let scratch = Scratch::new();
        let store = scratch.open_with(&with_key());
        fill(&store);
        scratch.bytes().iter().for_each(|(name, bytes)| fs::write(crashed.file(name), bytes).unwrap());
    }
    let files = || ["store.db", "store.db-wal"].map(|name| fs::read(crashed.file(name)).unwrap());
    let before = files();
    assert!(before[1].len() > 100_000);
    for wrong in [Config::new().raw_key(&[8; 32]), Config::new().raw_key(&[8; 32]).read_only(true)] {
        assert_eq!(kind(Store::open_with(crashed.path(), &wrong)), ErrorKind::AuthFailed);
        assert!(files() == before);
    }
    assert_eq!(crashed.open_with(&with_key()).count().unwrap(), 300);
}

#[test]
fn plain_and_memory_stores_refuse_password() {
    let scratch = Scratch::new();
    scratch.open().put("a", "1").unwrap();
    let before = scratch.bytes();
    assert_eq!(kind(Store::open_with(scratch.path(), &with_password())), ErrorKind::AuthFailed);
    assert!(scratch.bytes() == before);
    assert_eq!(kind(Store::open_in_memory(&with_password())), ErrorKind::Error);
    for config in [Config::new().password(""), with_key().page_size(8192)] {
        assert_eq!(kind(Store::open_with(scratch.dir().join("new"), &config)), ErrorKind::Error);
    }
    assert!(!scratch.dir().join("new").exists());
    assert_eq!(format!("{:?}", with_password()).matches(PASSWORD).count(), 0);
}

#[test]
fn text_file_is_not_mistaken_for_encrypted_store() {
    let scratch = Scratch::new();
    fs::write(scratch.path(), "just some text\n".repeat(200)).unwrap();
    assert_eq!(kind(Store::open(scratch.path())), ErrorKind::NotADatabase);
}

#[test]
fn flipped_bit_in_any_page_is_detected() {
    let scratch = Scratch::new();
    fill(&scratch.open_with(&with_key()));
    let sound = fs::read(scratch.path()).unwrap();
    let read = || -> kvstore::Result<u64> {
        let store = Store::open_with(scratch.path(), &with_key())?;
        for name in store.family_names()? {
            for entry in store.family(&name)?.iter() {
                let (key, value) = entry?;
                assert!(key.starts_with(KEY.as_bytes()) && value.starts_with(VALUE.as_bytes()));
            }
        }
        store.integrity_check()?;
        Ok(store.count()? + store.family(FAMILY)?.count()?)
    };
    assert_eq!(read().unwrap(), 901);
    for page in 0..sound.len() / 4096 {
        let mut damaged = sound.clone();
        damaged[page * 4096 + (page * 977 + 16) % 4096] ^= 1 << (page % 8);
        fs::write(scratch.path(), &damaged).unwrap();
        let error = read().expect_err(&format!("page {}", page + 1));
        assert!(
            matches!(error.kind(), ErrorKind::AuthFailed | ErrorKind::Corrupt),
            "page {}: {error:?}",
            page + 1
        );
    }
    // Writes say what is wrong, too. A page that cannot be decrypted reads as zeros, which SQLite
    // takes for a lack of memory or of permission.
    type Write = fn(&Store) -> kvstore::Result<()>;
    let writes: [(&str, Write); 9] = [
        ("put", |store| store.put(KEY, vec![1; 900])),
        ("delete", |store| store.delete(KEY).map(drop)),
        ("delete_range", |store| store.delete_range(&KeyRange::all()).map(drop)),
        ("clear", |store| store.clear()),
        ("vacuum", |store| store.incremental_vacuum(None)),
        ("track", |store| store.set_write_tracking(true)),
        ("repair", |store| store.repair().map(drop)),
        ("rekey", |store| store.rekey(&Secret::password("another"))),
        ("decrypt", Store::decrypt),
    ];
    for page in (2..sound.len() / 4096).step_by(9) {
        for (name, write) in writes {
            let mut damaged = sound.clone();
            damaged[page * 4096 + 1000] ^= 1;
            fs::write(scratch.path(), &damaged).unwrap();
            let done = Store::open_with(scratch.path(), &with_key()).and_then(|store| write(&store));
            let is_clear = |kind| matches!(kind, ErrorKind::AuthFailed | ErrorKind::Corrupt);
            assert!(
                done.as_ref().map_or_else(|e| is_clear(e.kind()), |()| true),
                "{name}, page {}: {done:?}",
                page + 1
            );
        }
    }
    // Two pages exchanged, and a page of another file with the same key.
    let other = Scratch::new();
    fill(&other.open_with(&with_key()));
    let other = fs::read(other.path()).unwrap();
    let page = |bytes: &[u8], number: usize| bytes[number * 4096..][..4096].to_vec();
    for (at, from) in [(5, page(&sound, 6)), (6, page(&sound, 5)), (5, page(&other, 5)), (0, page(&other, 0))]
    {
        let mut damaged = sound.clone();
        damaged[at * 4096..][..4096].copy_from_slice(&from);
        fs::write(scratch.path(), &damaged).unwrap();
        let error = read().expect_err(&format!("page {at}"));
        assert!(matches!(error.kind(), ErrorKind::AuthFailed | ErrorKind::Corrupt), "{error:?}");
    }
}

/// A truncated file is detected, at any length and whatever its first page states.
#[test]
fn truncated_file_is_never_opened_as_store() {
    for mode in [JournalMode::Wal, JournalMode::Delete] {
        let config = with_key().journal_mode(mode);
        let scratch = Scratch::new();
        fill(&scratch.open_with(&config));
        let sound = fs::read(scratch.path()).unwrap();
        let near = [1, 15, 16, 17, 99, 100, 511, 512, 513, 1024, 4095, 4096, 4097, 8192];
        // Truncation of a last byte that is zero (one store in 256) cannot be detected, since reads
        // beyond the end return zeros.
        let last = sound.iter().rposition(|&byte| byte != 0).unwrap();
        let lengths = near.into_iter().chain((10_000..last).step_by(20_001)).chain([last]);
        for length in lengths {
            let cut = &sound[..length];
            fs::write(scratch.path(), cut).unwrap();
            let error = Store::open_with(scratch.path(), &config)
                .and_then(|store| {
                    store.integrity_check()?;
                    Ok(store.close())
                })
                .expect_err(&format!("{mode:?}, {length} bytes"));
            assert!(
                matches!(error.kind(), ErrorKind::AuthFailed | ErrorKind::Corrupt),
                "{mode:?}, {length} bytes: {error:?}"
            );
            assert!(fs::read(scratch.path()).unwrap() == cut, "{mode:?}, {length} bytes: written to");
        }
    }
}

#[test]
fn backup_and_second_handle_use_same_password() {
    let scratch = Scratch::new();
    let store = scratch.open_with(&with_password());
    fill(&store);
    store.backup(scratch.dir().join("backup.db"), |_, _| true).unwrap();
    assert_eq!(leaks(&scratch), Vec::<String>::new());
    let backup = Store::open_with(scratch.dir().join("backup.db"), &with_password()).unwrap();
    assert_eq!(backup.family(FAMILY).unwrap().count().unwrap(), 601);
    let second = scratch.open_with(&with_password());
    store.put("a", "1").unwrap();
    assert_eq!(second.get("a").unwrap().as_deref(), Some(&b"1"[..]));
    store.start_cleaner(Duration::from_millis(1), None).unwrap();
    second.put_with_expiry("dead", "1", Expiry::At(1)).unwrap();
    let started = Instant::now();
    while store.count().unwrap() > 301 && started.elapsed() < Duration::from_secs(30) {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(store.count().unwrap(), 301);
}

#[test]
fn copy_with_other_password_has_same_data() {
    let (scratch, plain) = (Scratch::new(), Scratch::new());
    let store = scratch.open_with(&with_key());
    fill(&store);
    let target = plain.open();
    store.copy_to(&target, |_, _| true).unwrap();
    assert_eq!(target.family(FAMILY).unwrap().count().unwrap(), 601);
    let again = Scratch::new();
    target.copy_to(&again.open_with(&with_password()), |_, _| true).unwrap();
    assert_eq!(again.open_with(&with_password()).family(FAMILY).unwrap().count().unwrap(), 601);
}

/// The module of the test `child`.
const MODULE: &str = module_path!();

#[test]
#[ignore = "no test, but the other process of idle_handle_of_other_process_blocks_conversion"]
fn child() {
    let Some((role, path)) = role() else { return };
    if let Some(seed) = role.strip_prefix("mix ") {
        return in_place::mix(&path, seed.parse().unwrap());
    }
    let mode = if path.with_extension("delete").exists() { JournalMode::Delete } else { JournalMode::Wal };
    let store = Store::open_with(&path, &Config::new().journal_mode(mode)).unwrap();
    say("open");
    while let Some(asked) = heard() {
        match asked.as_str() {
            "put" => say(format!("{:?}", store.put("from the other", "1"))),
            _ => break,
        }
    }
}

#[test]
fn store_on_server_refuses_password() {
    let url = "postgresql://nobody@/none?host=/nowhere";
    let config = Config::new().password(b"pass");
    for opened in [Store::open_with(url, &config), Store::open_encrypted(url, &config)] {
        let e = opened.map(drop).unwrap_err();
        assert!(
            e.kind() == ErrorKind::Error && e.to_string().contains("is not encrypted by this library"),
            "{e}"
        );
    }
}
