//! Power cuts in whole scenarios: each journal mode, sync level and engine.

use super::{cut_after_each_sync, cut_everywhere, cut_everywhere_in, cut_twice, short_wal, with_journal};
use crate::shim::scenario::{bounded_steps, many_steps};
use kvstore::{Config, JournalMode, SyncLevel};

/// Pages that a transaction changes are written before it ends, because the cache is too small.
fn spilling() -> Config {
    Config::new().page_size(1024).cache_pages(8)
}

#[test]
fn power_cut_keeps_synced_commits_wal_normal() {
    cut_everywhere("wal normal btree", &Config::new(), SyncLevel::Normal);
}

#[test]
fn power_cut_keeps_synced_commits_wal_normal_sql() {
    cut_everywhere("wal normal sql", &Config::new().sql_engine(true).page_size(1024), SyncLevel::Normal);
}

#[test]
fn power_cut_keeps_acknowledged_commits_wal_full() {
    cut_everywhere("wal full btree", &spilling(), SyncLevel::Full);
}

#[test]
fn power_cut_keeps_acknowledged_commits_wal_full_sql() {
    cut_everywhere("wal full sql", &Config::new().sql_engine(true), SyncLevel::Full);
}

#[test]
fn power_cut_keeps_acknowledged_commits_wal_full_exclusive() {
    cut_everywhere("wal full exclusive", &Config::new().exclusive(true), SyncLevel::Full);
}

#[test]
fn power_cut_during_backfill_keeps_synced_commits() {
    cut_everywhere_in(&many_steps(), "written back normal btree", &short_wal(), SyncLevel::Normal);
}

#[test]
fn power_cut_during_backfill_keeps_acknowledged_commits() {
    cut_everywhere_in(&many_steps(), "written back full sql", &short_wal().sql_engine(true), SyncLevel::Full);
}

#[test]
fn power_cut_during_eviction_keeps_acknowledged_commits() {
    cut_everywhere_in(&bounded_steps(), "bounded, wal full", &spilling(), SyncLevel::Full);
}

#[test]
fn power_cut_during_eviction_keeps_synced_commits() {
    cut_everywhere_in(
        &bounded_steps(),
        "bounded, wal normal sql",
        &spilling().sql_engine(true),
        SyncLevel::Normal,
    );
}

/// As on a device with little flash memory.
#[test]
fn power_cut_keeps_commits_with_small_config() {
    cut_everywhere_in(&bounded_steps(), "small, wal full", &Config::small().page_size(1024), SyncLevel::Full);
    let sql = Config::small().page_size(1024).sql_engine(true);
    cut_everywhere_in(&many_steps(), "small, wal normal sql", &sql, SyncLevel::Normal);
}

#[test]
fn power_cut_during_eviction_keeps_commits_with_journal() {
    let config = spilling().journal_mode(JournalMode::Delete);
    cut_everywhere_in(&bounded_steps(), "bounded, journal full", &config, SyncLevel::Full);
}

#[test]
fn power_cut_keeps_acknowledged_commits_journal_full() {
    cut_everywhere("delete full btree", &with_journal(), SyncLevel::Full);
}

#[test]
fn power_cut_keeps_acknowledged_commits_journal_full_sql() {
    let config = spilling().journal_mode(JournalMode::Delete).sql_engine(true);
    cut_everywhere("delete full sql", &config, SyncLevel::Full);
}

#[test]
fn sync_makes_earlier_writes_survive_power_cut_wal() {
    for level in [SyncLevel::Normal, SyncLevel::Full, SyncLevel::Off] {
        cut_after_each_sync(&format!("wal {level:?}"), &Config::new(), level);
    }
}

#[test]
fn sync_makes_earlier_writes_survive_power_cut_journal() {
    for level in [SyncLevel::Normal, SyncLevel::Full, SyncLevel::Off] {
        cut_after_each_sync(&format!("delete {level:?}"), &with_journal(), level);
    }
}

#[test]
fn second_power_cut_during_recovery_loses_no_more() {
    cut_twice("wal normal btree, twice", &Config::new(), SyncLevel::Normal);
    cut_twice("wal full sql, twice", &Config::new().sql_engine(true), SyncLevel::Full);
}

#[test]
fn second_power_cut_during_recovery_loses_no_more_journal() {
    cut_twice("delete full btree, twice", &with_journal().page_size(1024), SyncLevel::Full);
}

/// Zeros in a WAL must not make its first frames look like the newest ones, or leave a partly
/// overwritten database.
#[test]
fn power_cut_during_secure_delete_keeps_synced_commits() {
    let config = short_wal().secure_delete(true);
    cut_everywhere_in(&many_steps(), "overwritten, wal normal btree", &config, SyncLevel::Normal);
    cut_everywhere(
        "overwritten, wal normal sql",
        &spilling().secure_delete(true).sql_engine(true),
        SyncLevel::Normal,
    );
}

#[test]
fn power_cut_during_secure_delete_keeps_acknowledged_commits() {
    cut_everywhere_in(
        &many_steps(),
        "overwritten, wal full",
        &short_wal().secure_delete(true),
        SyncLevel::Full,
    );
    let journal = spilling().journal_mode(JournalMode::Delete).secure_delete(true);
    cut_everywhere("overwritten, delete full", &journal, SyncLevel::Full);
    cut_everywhere("overwritten, delete full exclusive", &journal.exclusive(true), SyncLevel::Full);
}

#[cfg(feature = "encryption")]
mod encrypted {
    use super::*;

    fn with_key() -> Config {
        Config::new().raw_key(&[7; 32])
    }

    #[test]
    fn power_cut_keeps_commits_of_encrypted_store() {
        cut_everywhere("wal normal encrypted", &with_key(), SyncLevel::Normal);
        cut_everywhere("wal full encrypted", &with_key().cache_pages(10).sql_engine(true), SyncLevel::Full);
        cut_everywhere(
            "delete full encrypted",
            &with_key().journal_mode(JournalMode::Delete),
            SyncLevel::Full,
        );
    }

    #[test]
    fn second_power_cut_in_encrypted_recovery_loses_no_more() {
        cut_twice("wal full encrypted, twice", &with_key(), SyncLevel::Full);
    }
}
