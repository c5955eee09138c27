//! Tests of the backend with a real server: broken connections, stopped servers and concurrent
//! clients.

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use std::{fs, thread};

use super::*;
use crate::backend::postgres::session::Again;
use crate::error::{Error, ErrorKind};
use crate::expiry::{Expiry, ExpiryCondition};
use crate::family::{Cursor, Direction, KeyRange};
use crate::options::PutOptions;

#[path = "../../../tests/common/proxy.rs"]
#[allow(unreachable_pub)]
mod message_proxy;
#[path = "../../../tests/common/server.rs"]
#[allow(unreachable_pub)]
pub(super) mod server;

mod hostile;
mod log_in;
mod outcomes;
mod proxy;

use server::Server;

/// Returns a configuration with a busy timeout that is long enough for every wait in these tests.
fn config() -> Config {
    Config::new().busy_timeout(Duration::from_secs(10))
}

pub(super) fn open(url: &str) -> Db {
    Db::open(url, &config(), Arc::default()).unwrap_or_else(|e| panic!("{url}: {e}"))
}

fn try_open(url: &str) -> Result<Db> {
    Db::open(url, &config(), Arc::default())
}

/// Returns the error of an open that must fail.
fn refusal(url: &str) -> Error {
    match try_open(url) {
        Ok(_) => panic!("{url} was opened"),
        Err(e) => e,
    }
}

/// Runs a query and returns the number that it selects.
fn number(db: &Db, again: Again, sql: &str) -> Result<i64> {
    db.query(again, sql, &[]).map(|rows| rows[0].get(0))
}

fn pid(db: &Db) -> i64 {
    number(db, Again::Yes, "SELECT pg_backend_pid()::bigint").unwrap()
}

fn put(db: &Db, key: &str) -> Result<()> {
    let sql = "INSERT INTO kvstore_row (family, key, value) VALUES (1, $1, '') ON CONFLICT (family, key) DO UPDATE \
               SET value = kvstore_row.value || 'x'";
    db.query(Again::Yes, sql, &[&key.as_bytes()]).map(drop)
}

/// Returns how often the row was put; 0 if it does not exist.
fn puts(server: &Server, schema: &str, key: &str) -> u32 {
    let found =
        server.sql(&format!("SELECT length(value) + 1 FROM {schema}.kvstore_row WHERE key = '{key}'"));
    if found.is_empty() { 0 } else { found.parse().unwrap() }
}

fn terminate(server: &Server, pid: i64) {
    server.sql(&format!("SELECT pg_terminate_backend({pid}, 10000)"));
}

/// Waits until `is_so` returns `true`. Fails after 30 seconds.
fn until(mut is_so: impl FnMut() -> bool) {
    let end = std::time::Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(std::time::Instant::now() < end, "it did not come to that");
        thread::yield_now();
    }
}

#[test]
fn store_is_created_once_and_reopened() {
    for url in ["made once", "made once", "%22q%27\\%c3%bc;--"].map(|schema| Server::shared().url(schema)) {
        let db = open(&url);
        assert_eq!(db.families().unwrap(), ["default"]);
        assert_eq!(
            number(&db, Again::Yes, "SELECT (current_setting('jit') = 'off')::int::bigint").unwrap(),
            1
        );
        assert!(db.clock.now_ms() > 1_600_000_000_000);
        db.integrity_check().unwrap();
        db.close().unwrap();
    }
}

#[test]
fn ten_clients_create_one_schema_concurrently() {
    let url = Server::shared().url("ten_clients");
    thread::scope(|scope| {
        let opened: Vec<_> = (0..10).map(|_| scope.spawn(|| try_open(&url).map(drop))).collect();
        for opening in opened {
            opening.join().unwrap().unwrap();
        }
    });
    assert_eq!(Server::shared().sql("SELECT count(*) FROM ten_clients.kvstore_family"), "1");
}

/// A server shows a schema that another client has created before tables can be created in it. That
/// moment is too short to be hit by a test, so an event trigger simulates it.
#[test]
fn schema_not_yet_visible_is_retried_and_set_up() {
    let server = Server::shared();
    server.sql(
        "CREATE SCHEMA a_moment_ago; CREATE SEQUENCE tries; CREATE FUNCTION not_yet() RETURNS event_trigger LANGUAGE plpgsql \
         AS $$BEGIN IF current_setting('search_path') = 'a_moment_ago' AND nextval('public.tries') <= 2 THEN \
         RAISE 'no schema has been selected to create in' USING ERRCODE = '3F000'; END IF; END$$; \
         CREATE EVENT TRIGGER not_yet ON ddl_command_start WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION not_yet()",
    );
    let opened = try_open(&server.url("a_moment_ago"));
    server.sql("DROP EVENT TRIGGER not_yet");
    assert_eq!(opened.unwrap().families().unwrap(), ["default"]);
    assert!(server.sql("SELECT last_value > 2 FROM tries") == "t", "it was not said");
}

#[test]
fn interrupted_schema_setup_is_completed() {
    let server = Server::shared();
    open(&server.url("interrupted"));
    server.sql(
        "DELETE FROM interrupted.kvstore_meta; DELETE FROM interrupted.kvstore_family; DROP INDEX interrupted.kvstore_row_expiry",
    );
    let db = open(&server.url("interrupted"));
    assert_eq!(db.families().unwrap(), ["default"]);
    assert_eq!(server.sql("SELECT to_regclass('interrupted.kvstore_row_expiry') IS NOT NULL"), "t");
}

#[test]
fn store_of_another_version_is_refused() {
    let server = Server::shared();
    open(&server.url("newer"));
    server.sql("UPDATE newer.kvstore_meta SET format = 2");
    let e = refusal(&server.url("newer"));
    assert!(e.kind() == ErrorKind::CantOpen && e.to_string().contains("version 2"), "{e}");
}

#[test]
fn role_without_create_uses_existing_store_only() {
    let server = Server::shared();
    open(&server.url("shared_store"));
    server.sql(
        "CREATE ROLE clerk LOGIN; GRANT USAGE ON SCHEMA shared_store TO clerk; \
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA shared_store TO clerk",
    );
    let db = open(&server.url_as("clerk", "shared_store"));
    put(&db, "k").unwrap();
    let e = refusal(&server.url_as("clerk", "not_there"));
    assert!(e.kind() == ErrorKind::CantOpen && e.to_string().contains("GRANT"), "{e}");
    server.sql("CREATE SCHEMA given AUTHORIZATION clerk");
    open(&server.url_as("clerk", "given")); // may create tables, but no schemas
    server.sql("REVOKE INSERT ON ALL TABLES IN SCHEMA shared_store FROM clerk");
    assert_eq!(put(&db, "k").unwrap_err().kind(), ErrorKind::ReadOnly);
}

#[test]
fn error_for_role_without_privilege_names_missing_grant() {
    let server = Server::shared();
    open(&server.url("closed store"));
    server.sql("CREATE ROLE outsider LOGIN");
    let read_only = config().read_only(true);
    let refused = |config: &Config| {
        let e = Db::open(&server.url_as("outsider", "closed store"), config, Arc::default())
            .map(drop)
            .unwrap_err();
        assert_eq!(e.kind(), ErrorKind::CantOpen, "{e}");
        e.to_string()
    };
    for (given, wanted) in [
        ("", "may not use it: let its owner run GRANT USAGE ON SCHEMA \"closed store\" TO \"outsider\""),
        (
            "GRANT USAGE ON SCHEMA \"closed store\" TO outsider",
            "ON ALL TABLES IN SCHEMA \"closed store\" TO \"outsider\"",
        ),
    ] {
        server.sql(given);
        for (config, rights) in
            [(&config(), "GRANT SELECT, INSERT, UPDATE, DELETE ON"), (&read_only, "GRANT SELECT ON")]
        {
            let text = refused(config);
            assert!(text.contains(wanted) && text.contains(rights), "{text}");
        }
    }
    // The GRANT statements that the error recommends are sufficient.
    let text = refused(&config());
    server.sql(text.split_once("Required: ").unwrap().1);
    put(&open(&server.url_as("outsider", "closed store")), "k").unwrap();
}

#[test]
fn read_only_handle_neither_writes_nor_creates_store() {
    let server = Server::shared();
    let config = config().read_only(true);
    let e = Db::open(&server.url("none_here"), &config, Arc::default()).map(drop).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::CantOpen);
    open(&server.url("read_only"));
    let db = Db::open(&server.url("read_only"), &config, Arc::default()).unwrap();
    assert_eq!(db.families().unwrap(), ["default"]);
    let e = put(&db, "k").unwrap_err();
    assert!(e.kind() == ErrorKind::ReadOnly && e.to_string().contains("opened read-only"), "{e}");
    assert_eq!(server.sql("SELECT count(*) FROM pg_namespace WHERE nspname = 'none_here'"), "0");
}

#[test]
fn every_call_reconnects_after_connection_ended() {
    let server = Server::shared();
    let mut db = open(&server.url("ended"));
    for round in 0..5 {
        let old = pid(&db);
        terminate(server, old);
        match round {
            0 => drop(number(&db, Again::Yes, "SELECT 1::bigint").unwrap()),
            // Nothing was sent on the old connection, so the statement is known not to have been
            // done.
            1 => drop(number(&db, Again::No, "SELECT 1::bigint").unwrap()),
            2 => db.begin_write().and_then(|()| db.commit()).unwrap(),
            3 => db.begin_read().and_then(|()| db.commit()).unwrap(),
            _ => assert!(db.create_family("f").unwrap()),
        }
        assert_ne!(pid(&db), old);
    }
}

#[test]
fn unencodable_statement_is_refused_and_connection_is_kept() {
    let db = open(&Server::shared().url("unsendable"));
    let first = pid(&db);
    let e = db.query(Again::Read, "SELECT '\0'", &[]).unwrap_err();
    assert!(e.kind() == ErrorKind::Error && !e.to_string().contains("broke"), "{:?} {e}", e.kind());
    assert_eq!(pid(&db), first);
}

#[test]
fn transaction_of_ended_connection_fails_until_rollback() {
    let server = Server::shared();
    let mut db = open(&server.url("ended_inside"));
    db.begin_write().unwrap();
    put(&db, "k").unwrap();
    let old = pid(&db);
    terminate(server, old);
    for _ in 0..2 {
        let e = put(&db, "l").unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Io, "{e}");
        db.note_failure(&e);
        assert!(matches!(db.transaction(), TransactionState::Doomed(_)));
    }
    assert_eq!(db.commit().unwrap_err().kind(), ErrorKind::Io);
    db.rollback().unwrap();
    put(&db, "m").unwrap();
    assert_eq!(server.sql("SELECT key FROM ended_inside.kvstore_row"), "\\x6d");

    db.begin_read().unwrap();
    let old = pid(&db);
    terminate(server, old);
    let e = number(&db, Again::Yes, "SELECT 1::bigint").unwrap_err();
    db.note_failure(&e);
    assert_eq!(db.transaction().check_snapshot().unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(db.commit().unwrap_err().kind(), ErrorKind::Io);
    db.rollback().unwrap();
    assert!(db.transaction().check_snapshot().is_ok() && db.families().is_ok());
}

/// Simulates a pooler that does not keep sessions: each statement may run on a connection that
/// another client has set up.
#[test]
fn calls_use_own_schema_under_any_search_path() {
    let server = Server::shared();
    let others = open(&server.url("others store"));
    let mut db = open(&server.url("it's my store"));
    put(&others, "k").unwrap();
    for path in ["\"others store\"", "nowhere"] {
        db.query(Again::No, "SELECT set_config('search_path', $1, false)", &[&path]).unwrap();
        let default = db.contents("default");
        assert!(!default.delete(b"k").unwrap());
        db.begin_write().unwrap();
        put(&db, "k").unwrap();
        let locked = "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND mode = 'RowExclusiveLock' AND relation = \
                      '\"others store\".kvstore_row'::regclass";
        assert_eq!(number(&db, Again::No, locked).unwrap(), 0);
        db.commit().unwrap();
        db.create_family("f").unwrap();
        db.set_write_tracking("f", true).unwrap();
        assert!(db.drop_family("f").unwrap());
        db.integrity_check().unwrap();
        assert_eq!((puts(server, "\"it's my store\"", "k"), puts(server, "\"others store\"", "k")), (1, 1));
        assert!(db.contents("default").delete(b"k").unwrap());
    }
    assert_eq!(puts(server, "\"others store\"", "k"), 1);
}

#[test]
fn store_is_created_in_own_schema_under_any_search_path() {
    let server = Server::shared();
    open(&server.url("others store too"));
    let db = open(&server.url("made here"));
    server.sql("DROP SCHEMA \"made here\" CASCADE");
    db.query(Again::No, "SELECT set_config('search_path', '\"others store too\"', false)", &[]).unwrap();
    schema::ensure(&mut db.session.borrow_mut(), false).unwrap();
    assert_eq!(server.sql("SELECT count(*) FROM \"made here\".kvstore_family"), "1");
    put(&db, "k").unwrap();
}

#[test]
fn stopped_server_is_io_error_and_calls_resume_after_restart() {
    let server = Server::start(&[]);
    let short = Config::new().busy_timeout(Duration::ZERO);
    let db = Db::open(&server.url("s"), &short, Arc::default()).unwrap();
    let patient = open(&server.url("s"));
    for how in ["fast", "immediate"] {
        put(&db, "k").unwrap();
        server.stop(how);
        for again in [Again::Yes, Again::No] {
            let e = number(&db, again, "SELECT 1::bigint").unwrap_err();
            assert!(e.kind() == ErrorKind::Io && !e.to_string().contains("unknown"), "{how}: {e}");
        }
        thread::scope(|scope| {
            let (started, waiting) = (scope.spawn(|| server.start_again()), put(&patient, "patient"));
            started.join().unwrap();
            waiting.unwrap();
        });
        put(&db, "k").unwrap();
    }
    server.stop("fast");
    let e = Db::open(&server.url("s"), &short, Arc::default()).map(drop).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::CantOpen, "{e}");
}

#[test]
fn conflicting_transaction_is_locked_and_retry_succeeds() {
    let server = Server::shared();
    let (mut one, mut two) = (open(&server.url("conflict")), open(&server.url("conflict")));
    let count = "SELECT count(*) FROM kvstore_row";
    for db in [&mut one, &mut two] {
        db.begin_write().unwrap();
        number(db, Again::Yes, count).unwrap();
    }
    put(&one, "a").unwrap();
    put(&two, "b").unwrap();
    one.commit().unwrap();
    let e = two.commit().unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Locked, "{e}");
    two.rollback().unwrap();
    two.begin_write().unwrap();
    put(&two, "b").unwrap();
    two.commit().unwrap();
    assert_eq!(number(&one, Again::Yes, count).unwrap(), 2);
}

#[test]
fn transaction_beyond_lock_memory_is_locked_and_retryable() {
    let server = &Server::start(&["max_connections=5", "max_pred_locks_per_transaction=10"]);
    let (mut old, mut db) = (open(&server.url("s")), open(&server.url("s")));
    server.sql("INSERT INTO s.kvstore_row SELECT 1, int4send(n), repeat('x', 500)::bytea FROM generate_series(1, 20000) n");
    // While this transaction is open, the server remembers what the other transactions have read.
    old.begin_write().unwrap();
    number(&old, Again::Yes, "SELECT count(*) FROM kvstore_family").unwrap();
    let read = |db: &mut Db, n: i32| {
        db.begin_write()?;
        let keys: Vec<_> = (0..4_i32).map(|m| (4999 * m + n).to_be_bytes().to_vec()).collect();
        db.query(
            Again::Yes,
            "SELECT r.value FROM unnest($1::bytea[]) k CROSS JOIN LATERAL (SELECT value FROM \
            kvstore_row WHERE family = 1 AND key = k) r",
            &[&keys],
        )?;
        db.commit()
    };
    let e = (1..4000).find_map(|n| read(&mut db, n).err()).unwrap();
    assert!(
        e.kind() == ErrorKind::Locked && e.to_string().contains("lock table of the server is full"),
        "{e}"
    );
    db.rollback().unwrap();
    old.rollback().unwrap();
    read(&mut db, 1).unwrap();
}

#[test]
fn full_server_is_busy_until_connection_closes() {
    let server = &Server::start(&["max_connections=3", "superuser_reserved_connections=0"]);
    let mut opened = vec![open(&server.url("s"))];
    let short = Config::new().busy_timeout(Duration::ZERO);
    let e = loop {
        match Db::open(&server.url("s"), &short, Arc::default()) {
            Ok(db) => opened.push(db),
            Err(e) => break e,
        }
    };
    assert!(e.kind() == ErrorKind::Busy && e.to_string().contains("accepts no connection now"), "{e}");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| open(&server.url("s")));
        // It is refused some times first. This cannot be observed otherwise.
        thread::sleep(Duration::from_millis(50));
        assert!(!waiting.is_finished());
        opened.pop().unwrap().close().unwrap();
        waiting.join().unwrap();
    });
}

#[test]
fn failed_savepoint_is_undone_and_transaction_continues() {
    let server = Server::shared();
    let mut db = open(&server.url("savepoint"));
    db.begin_write().unwrap();
    put(&db, "kept").unwrap();
    let failed = db.in_savepoint(|db| {
        put(db, "undone")?;
        number(db, Again::No, "SELECT 1::bigint / 0")
    });
    assert_eq!(failed.unwrap_err().kind(), ErrorKind::Error);
    put(&db, "kept too").unwrap();
    db.in_savepoint(|db| put(db, "kept as well")).unwrap();
    db.commit().unwrap();
    let keys = server
        .sql("SELECT string_agg(convert_from(key, 'UTF8'), ',' ORDER BY key) FROM savepoint.kvstore_row");
    assert_eq!(keys, "kept,kept as well,kept too");
    // Without a transaction, everything is done or nothing.
    let failed = db.in_savepoint(|db| put(db, "no").and_then(|()| Err::<(), _>(Error::invalid("x"))));
    assert!(failed.is_err() && puts(server, "savepoint", "no") == 0);
    db.in_savepoint(|db| put(db, "yes")).unwrap();
    assert_eq!(puts(server, "savepoint", "yes"), 1);
}

#[test]
fn busy_timeout_limits_wait_for_other_transaction() {
    let server = Server::shared();
    let mut holder = open(&server.url("busy"));
    let impatient = Config::new().busy_timeout(Duration::ZERO);
    let db = Db::open(&server.url("busy"), &impatient, Arc::default()).unwrap();
    holder.begin_write().unwrap();
    put(&holder, "k").unwrap();
    assert_eq!(put(&db, "k").unwrap_err().kind(), ErrorKind::Busy);
    holder.commit().unwrap();
    put(&db, "k").unwrap();
}

#[test]
fn handle_can_move_to_another_thread() {
    fn moves<T: Send>() {}
    moves::<Db>();
}

#[test]
fn server_time_is_queried_only_if_stale() {
    let store = crate::Store::open(Server::shared().url("stale")).unwrap();
    for write in [None, Some(false), Some(true)] {
        if let Some(write) = write {
            if write { store.begin_write() } else { store.begin_read() }.unwrap();
        }
        store.session().clock.note_server_at(5_000, 0, 0); // the wall clock had another time then
        let Expiry::At(end) = store.expiry_after(Duration::from_secs(1)) else { panic!() };
        assert!(end > 1_600_000_000_000, "{end}");
        store.session().clock.note_server_at(5_000, 0, 0);
        assert!(store.now_ms() > 1_600_000_000_000);
        if write.is_some() {
            store.rollback().unwrap();
        }
    }
    // The server is not queried without need.
    let (before, at) = (store.now_ms(), std::time::Instant::now());
    store.session().clock.note_server(before - 50_000);
    assert!(store.now_ms() < before - 50_000 + at.elapsed().as_millis() as i64 + 1_000);
}

/// Starts a server that has the time of this machine until [`a_day_passes`].
fn server_of_two_days() -> Server {
    let server = Server::start(&["allow_system_table_mods=on"]);
    for (name, volatility) in
        [("clock_timestamp", "VOLATILE"), ("statement_timestamp", "STABLE"), ("now", "STABLE")]
    {
        server.sql(&format!(
            "ALTER FUNCTION pg_catalog.{name}() RENAME TO real_{name};
             CREATE FUNCTION pg_catalog.{name}() RETURNS timestamptz LANGUAGE plpgsql {volatility} AS $$
             BEGIN RETURN pg_catalog.real_{name}() + interval '1 day' * \
                 (SELECT count(size) FROM pg_catalog.pg_stat_file('a_day', true)); END $$"
        ));
    }
    server
}

/// Advances the server's time by a day, as if the machine of these stores was suspended meanwhile:
/// their clocks keep their time, but the wall clock of this machine differs.
fn a_day_passes(server: &Server, stores: &[&crate::Store]) {
    let was_ms = |store: &crate::Store| store.session().clock.now_ms();
    server.write("a_day", "");
    for store in stores {
        store.session().clock.note_server_at(was_ms(store), 0, 0);
    }
}

#[test]
fn cursor_hides_prefetched_rows_expired_during_suspend() {
    type Walk = fn(&mut Cursor) -> Vec<u8>;
    let next: Walk = |cursor| {
        assert!(cursor.next().unwrap());
        cursor.key().unwrap().to_vec()
    };
    let fetch: Walk = |cursor| cursor.fetch(100).unwrap().next().unwrap().key.to_vec();
    let server = &server_of_two_days();
    let mut walks = Vec::new();
    for (number, walk) in [next, fetch].into_iter().enumerate() {
        for direction in [Direction::Forward, Direction::Reverse] {
            for writes in [false, true] {
                let store =
                    crate::Store::open(server.url(&format!("walk_{number}_{direction:?}_{writes}"))).unwrap();
                for key in ["1", "2", "3", "7", "8", "9"] {
                    store.put_with_ttl(key, "", Duration::from_secs(3600)).unwrap();
                }
                store.put("5", "").unwrap();
                let mut cursor = store.cursor(KeyRange::all(), direction);
                assert!(cursor.first().unwrap());
                if writes {
                    store.delete("none").unwrap();
                }
                walks.push((store, cursor, walk));
            }
        }
    }
    a_day_passes(server, &walks.iter().map(|(store, ..)| store).collect::<Vec<_>>());
    let shown: Vec<_> = walks.iter_mut().map(|(_, cursor, walk)| walk(cursor)).collect();
    assert_eq!(shown, vec![b"5"; 8]);
}

#[test]
fn cursor_fails_without_server_time_and_resumes_later() {
    let server = Server::shared();
    let store = crate::Store::open(server.url("no_time") + "&application_name=no_time").unwrap();
    for key in ["1", "2", "3"] {
        store.put_with_ttl(key, "", Duration::from_secs(3600)).unwrap();
    }
    store.begin_read().unwrap();
    let [mut moved, mut fetched] = [(); 2].map(|()| store.cursor(KeyRange::all(), Direction::Forward));
    assert!(moved.first().unwrap() && fetched.first().unwrap());
    server.sql(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = 'no_time'",
    );
    store.session().clock.note_server_at(5_000, 0, 0);
    assert_eq!(moved.next().unwrap_err().kind(), ErrorKind::Io);
    assert!(!moved.is_valid());
    assert_eq!(fetched.fetch(9).unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(fetched.key(), Some(&b"1"[..]));
    store.rollback().unwrap();
    assert!(moved.next().unwrap());
    assert_eq!(moved.key(), Some(&b"2"[..]));
    for key in [b"1", b"2"] {
        assert_eq!(fetched.fetch(1).unwrap().next().unwrap().key, key);
    }
}

#[test]
fn second_connection_does_not_set_clock_of_first() {
    let store = crate::Store::open(Server::shared().url("beside")).unwrap();
    let session = store.session();
    let path = session.with(|db| Ok(db.path())).unwrap().unwrap();
    let beside = crate::Store::open_beside(session, &path, &Config::new()).unwrap();
    beside.session().clock.note_server(5_000);
    assert!(session.clock.now_ms() > 1_600_000_000_000);
}

#[test]
fn families_and_settings_can_be_created_changed_and_dropped() {
    let db = open(&Server::shared().url("families"));
    assert!(db.create_family("b \"ü").unwrap() && !db.create_family("b \"ü").unwrap());
    assert_eq!(db.families().unwrap(), ["b \"ü", "default"]);
    assert_eq!(db.read_settings("b \"ü").unwrap(), (0, false));
    db.set_default_ttl("b \"ü", 1500).unwrap();
    db.query(
        Again::Yes,
        "INSERT INTO kvstore_row SELECT id, 'k', 'v', NULL, NULL FROM kvstore_family WHERE name <> 'default'",
        &[],
    )
    .unwrap();
    let times = "SELECT count(*) FROM kvstore_row WHERE written_ms > 1600000000000";
    for on in [true, true, false] {
        db.set_write_tracking("b \"ü", on).unwrap();
        assert_eq!(db.read_settings("b \"ü").unwrap(), (1500, on));
        assert_eq!(number(&db, Again::Yes, times).unwrap(), i64::from(on));
        db.integrity_check().unwrap();
    }
    assert!(db.created_ms("b \"ü").unwrap() > 1_600_000_000_000);
    assert!(db.drop_family("b \"ü").unwrap() && !db.drop_family("b \"ü").unwrap());
    assert_eq!(number(&db, Again::Yes, "SELECT count(*) FROM kvstore_row").unwrap(), 0);
    for e in [
        db.read_settings("b \"ü").map(drop).unwrap_err(),
        db.created_ms("b \"ü").map(drop).unwrap_err(),
        db.set_default_ttl("b \"ü", 1).unwrap_err(),
        db.set_write_tracking("b \"ü", true).unwrap_err(),
    ] {
        assert!(e.to_string().contains("was dropped"), "{e}");
    }
}

#[test]
fn concurrent_writes_follow_family_drop_or_setting_change() {
    let server = Server::shared();
    let (mut db, other) = (open(&server.url("meanwhile")), open(&server.url("meanwhile")));
    let write = "INSERT INTO kvstore_row SELECT id, $1, '', NULL, NULL FROM kvstore_family WHERE name = 'f'";
    let rows = "SELECT count(*) FROM kvstore_row";
    for (n, dropped) in [false, true].into_iter().enumerate() {
        db.create_family("f").unwrap();
        db.begin_write().unwrap();
        number(&db, Again::Yes, rows).unwrap(); // takes the snapshot
        other.query(Again::Yes, write, &[&format!("{n}").as_bytes()]).unwrap();
        if dropped {
            assert!(db.drop_family("f").unwrap());
        } else {
            db.set_write_tracking("f", true).unwrap();
        }
        db.commit().unwrap();
        db.integrity_check().unwrap();
        assert_eq!(number(&db, Again::Yes, rows).unwrap(), i64::from(!dropped));
    }
}

#[test]
fn next_client_finishes_family_change_of_crashed_client() {
    let server = Server::shared();
    let (other, watching) = (open(&server.url("unsettled")), open(&server.url("unsettled")));
    let write = "INSERT INTO kvstore_row SELECT id, $1, '', NULL, NULL FROM kvstore_family WHERE name = $2";
    let rows = "SELECT count(*) FROM kvstore_row WHERE written_ms > 1600000000000 OR family <> $1";
    for family in ["dropped", "switched"] {
        other.create_family(family).unwrap();
    }
    let mut dying = open(&server.url("unsettled"));
    dying.begin_write().unwrap();
    number(&dying, Again::Yes, "SELECT count(*) FROM kvstore_row").unwrap(); // takes the snapshot
    for family in ["dropped", "switched"] {
        other.query(Again::Yes, write, &[&b"k".as_slice(), &family.as_bytes()]).unwrap();
    }
    assert!(dying.drop_family("dropped").unwrap());
    dying.set_write_tracking("switched", true).unwrap();
    let commit = dying.session.borrow_mut().execute(Again::No, "COMMIT");
    commit.unwrap();
    drop(dying);
    // The rows exist, and are not reported as damage.
    let found = server.sql("SELECT count(*) FROM unsettled.kvstore_row WHERE written_ms IS NULL");
    assert_eq!(found, "2");
    watching.integrity_check().unwrap();
    // A read-only handle does not correct them.
    drop(Db::open(&server.url("unsettled"), &config().read_only(true), Arc::default()).unwrap());
    assert_eq!(server.sql("SELECT count(*) FROM unsettled.kvstore_unsettled"), "2");
    // A family that another client is just creating is not taken for a dropped one.
    let mut making = open(&server.url("unsettled"));
    server.sql(
        "INSERT INTO unsettled.kvstore_unsettled (family) SELECT max(id) + 1 FROM unsettled.kvstore_family",
    );
    making.begin_write().unwrap();
    making.create_family("new").unwrap();
    making.query(Again::Yes, write, &[&b"k".as_slice(), &b"new".as_slice()]).unwrap();
    let next = open(&server.url("unsettled"));
    making.commit().unwrap();
    assert_eq!(server.sql("SELECT count(*) FROM unsettled.kvstore_unsettled"), "0");
    let id: i64 =
        server.sql("SELECT id FROM unsettled.kvstore_family WHERE name = 'switched'").parse().unwrap();
    assert_eq!(next.query(Again::Yes, rows, &[&id]).unwrap()[0].get::<_, i64>(0), 2);
    next.integrity_check().unwrap();
}

#[test]
fn next_commit_finishes_family_change_of_unanswered_commit() {
    let server = Server::shared();
    let proxy = proxy::Proxy::before(server);
    let (mut db, other) = (open(&proxy.url("left_unsettled")), open(&server.url("left_unsettled")));
    db.create_family("f").unwrap();
    db.begin_write().unwrap();
    number(&db, Again::Yes, "SELECT count(*) FROM kvstore_row").unwrap(); // takes the snapshot
    other.contents("f").put(b"k", b"", &PutOptions::new()).unwrap();
    assert!(db.drop_family("f").unwrap());
    proxy.rule(proxy::Rule::SwallowAllAnswers);
    assert!(db.commit().unwrap_err().to_string().contains("unknown"));
    db.rollback().unwrap();
    let counts = "SELECT (SELECT count(*) FROM left_unsettled.kvstore_row), (SELECT count(*) FROM left_unsettled.kvstore_unsettled)";
    assert_eq!(server.sql(counts), "1|1");
    db.begin_write().unwrap();
    put(&db, "k").unwrap();
    db.commit().unwrap();
    assert_eq!(server.sql(counts), "1|0");
    assert_eq!(puts(server, "left_unsettled", "k"), 1);
    db.integrity_check().unwrap();
}

#[test]
fn store_identity_can_be_first_query_on_connection() {
    let db = open(&Server::shared().url("asked_first"));
    let place = db.place_on_its_server().unwrap();
    db.session.borrow_mut().drop_link();
    assert!(place.is_some() && db.place_on_its_server().unwrap() == place);
}

#[test]
fn integrity_check_names_inconsistent_rows() {
    let server = Server::shared();
    let db = open(&server.url("damaged"));
    db.integrity_check().unwrap();
    server.sql("INSERT INTO damaged.kvstore_row VALUES (99, 'secret', '', NULL, NULL), (1, 'secret', '', NULL, 5), (1, '', '', NULL, NULL)");
    let e = db.integrity_check().unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Corrupt);
    let text = e.to_string();
    assert!(
        text.contains("1 rows of no family") && text.contains("1 rows whose key") && !text.contains("secret"),
        "{text}"
    );
}

#[test]
#[allow(unsafe_code)]
fn forked_child_opens_own_connection_and_spares_parents() {
    let server = Server::shared();
    let url = server.url("forked");
    let mut db = open(&url);
    let parents = pid(&db);
    db.begin_write().unwrap();
    put(&db, "k").unwrap();
    // SAFETY: the child calls what a program would, and ends by `_exit`, without the destructors of
    // the test harness.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            assert_eq!(put(&db, "child").unwrap_err().kind(), ErrorKind::Io);
            drop(db);
            let own = open(&url);
            assert_ne!(pid(&own), parents);
            own.close().unwrap();
        }));
        // SAFETY: ends the process.
        unsafe { libc::_exit(i32::from(done.is_err())) };
    }
    let mut status = 0;
    // SAFETY: waits for that child, and writes its status there.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    assert_eq!(pid(&db), parents);
    db.commit().unwrap();
    assert_eq!(puts(server, "forked", "k"), 1);
    assert_eq!(pid(&db), parents);
}

/// Acts as a process that never closes what it has inherited. Ends the process when the other end
/// of the stream is closed, or after a minute.
#[allow(unsafe_code)]
fn wait_until_closed(mut end: UnixStream) -> ! {
    // SAFETY: sets a timer.
    unsafe { libc::alarm(60) };
    let _ = end.read(&mut [0]);
    // SAFETY: ends the process.
    unsafe { libc::_exit(0) }
}

#[test]
#[allow(unsafe_code)]
fn session_of_killed_parent_ends_while_child_runs() {
    let server = Server::shared();
    open(&server.url("killed"));
    let url = format!("{}&application_name=killed", server.url("killed"));
    let (near, far) = UnixStream::pair().unwrap();
    // SAFETY: the child calls what a program would, and ends by a signal or `_exit`, without the
    // destructors of the test harness.
    let parent = unsafe { libc::fork() };
    if parent == 0 {
        let _ = std::panic::catch_unwind(move || {
            drop(near); // the child's copy, which would keep the stream open
            let mut db = open(&url);
            db.begin_write().unwrap();
            put(&db, "k").unwrap();
            // SAFETY: as above.
            if unsafe { libc::fork() } == 0 {
                wait_until_closed(far);
            }
            // SAFETY: kills this process.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        });
        // SAFETY: ends the process.
        unsafe { libc::_exit(1) };
    }
    let mut status = 0;
    // SAFETY: waits for that child, and writes its status there.
    assert_eq!(unsafe { libc::waitpid(parent, &raw mut status, 0) }, parent);
    assert!(libc::WIFSIGNALED(status), "{status}");
    until(|| server.sql("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'killed'") == "0");
    put(&open(&server.url("killed")), "k").unwrap();
    assert_eq!(puts(server, "killed", "k"), 1);
    drop(near); // ends the grandchild
}

#[test]
fn closed_handle_leaves_no_server_session() {
    let server = &Server::start(&[]); // other tests break connections of the shared server
    let (closed, dropped) = (open(&server.url("closed")), open(&server.url("closed")));
    let pids =
        format!("SELECT count(*) FROM pg_stat_activity WHERE pid IN ({}, {})", pid(&closed), pid(&dropped));
    closed.close().unwrap();
    drop(dropped);
    let log = fs::read_to_string(server.folder().join("log")).unwrap();
    assert!(!log.contains("unexpected EOF on client connection"), "{log}");
    until(|| server.sql(&pids) == "0");
}

#[test]
fn recalled_socket_discards_unsent_bytes() {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::socket::{Socket, Stream};

    for is_called_back in [false, true] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        // The far end reads nothing until no more can be sent.
        near.set_nonblocking(true).unwrap();
        let mut sent = 0;
        while let Ok(part) = near.write(&[0; 1 << 16]) {
            sent += part;
        }
        let socket = Socket::new(Stream::Tcp(near)).unwrap();
        if is_called_back {
            socket.call_back();
        }
        drop(socket);
        let mut arrived = Vec::new();
        let end = far.read_to_end(&mut arrived);
        assert_eq!(
            end.is_ok() && arrived.len() == sent,
            !is_called_back,
            "{end:?}, {} of {sent}",
            arrived.len()
        );
    }
}
