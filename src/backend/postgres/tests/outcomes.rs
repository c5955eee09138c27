//! Tests of the outcome that is reported for a write whose connection broke.

use super::proxy::{Proxy, Rule};
use super::*;
use crate::backend::postgres::connection::{Backend, END_WAIT};

#[test]
fn unanswered_commit_found_on_server_succeeds() {
    let server = Server::shared();
    let proxy = Proxy::before(server);
    let mut db = open(&proxy.url("done_unanswered"));
    db.begin_write().unwrap();
    put(&db, "k").unwrap();
    proxy.rule(Rule::SwallowAnswerToCommit);
    db.commit().unwrap();
    assert_eq!(db.transaction(), &TransactionState::None);
    assert_eq!(puts(server, "done_unanswered", "k"), 1);
    put(&db, "l").unwrap();
}

#[test]
fn undelivered_commit_is_reported_as_not_committed() {
    let server = Server::shared();
    let proxy = Proxy::before(server);
    let mut db = open(&proxy.url("never_arrived"));
    db.begin_write().unwrap();
    put(&db, "k").unwrap();
    proxy.rule(Rule::SwallowCommit);
    let e = db.commit().unwrap_err();
    assert!(e.kind() == ErrorKind::Io && e.to_string().contains("was not committed"), "{e}");
    assert!(matches!(db.transaction(), TransactionState::Doomed(_)));
    db.rollback().unwrap();
    assert_eq!(puts(server, "never_arrived", "k"), 0);
    put(&db, "k").unwrap();
}

#[test]
fn unresolvable_commit_is_reported_as_unknown() {
    let server = Server::shared();
    let proxy = Proxy::before(server);
    let mut db = open(&proxy.url("nothing_known"));
    db.begin_write().unwrap();
    put(&db, "k").unwrap();
    proxy.rule(Rule::SwallowAllAnswers);
    let e = db.commit().unwrap_err();
    assert!(e.kind() == ErrorKind::Io && e.to_string().contains("unknown"), "{e}");
    db.rollback().unwrap();
    put(&db, "l").unwrap();
}

#[test]
fn idle_transaction_ended_by_server_names_idle_timeout() {
    let server = Server::start(&["idle_in_transaction_session_timeout=50"]);
    let mut db = open(&server.url("idle"));
    let pid = pid(&db);
    let is_gone = || server.sql(&format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid}")) == "0";
    db.begin_write().unwrap();
    put(&db, "k").unwrap();
    until(is_gone);
    let e = db.commit().unwrap_err();
    let text = e.to_string();
    assert!(e.kind() == ErrorKind::Io && !text.contains("unknown"), "{text}");
    assert!(text.contains("idle-in-transaction timeout") && text.contains("run it again"), "{text}");
    db.rollback().unwrap();
    assert_eq!(puts(&server, "idle", "k"), 0);
    db.begin_write().unwrap();
    let pid = self::pid(&db);
    until(|| server.sql(&format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid}")) == "0");
    let text = put(&db, "k").unwrap_err().to_string();
    assert!(text.contains("idle-in-transaction timeout"), "{text}");
    db.rollback().unwrap();
    put(&db, "k").unwrap();
}

/// Ends the server processes of the connections with the application name `name`, until `stop` is
/// set, at moments that look random. Adds their number to `ended`.
fn end_backends(server: &Server, name: &str, stop: &AtomicBool, ended: &AtomicU32) {
    let sql = format!(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = '{name}'"
    );
    while !stop.load(Ordering::Relaxed) {
        ended.fetch_add(server.sql(&sql).parse::<u32>().unwrap(), Ordering::Relaxed);
    }
}

#[test]
fn acknowledged_writes_survive_random_disconnects_exactly_once() {
    let server = Server::shared();
    let db = &mut open(&format!("{}&application_name=victim", server.url("victim")));
    let (stop, ended) = (AtomicBool::new(false), AtomicU32::new(0));
    let insert = "INSERT INTO kvstore_row (family, key, value) VALUES (1, $1, '') RETURNING 1";
    // Keys whose writes were acknowledged, have failed, and have an unknown outcome.
    let mut sorts: [Vec<String>; 3] = Default::default();
    thread::scope(|scope| {
        scope.spawn(|| end_backends(server, "victim", &stop, &ended));
        // On a busy machine, it takes more rounds until some connections are ended.
        for n in (0..20_000).take_while(|n| *n < 600 || ended.load(Ordering::Relaxed) < 10) {
            let key = format!("{n:05}");
            let row = |db: &Db| db.query(Again::No, insert, &[&key.as_bytes()]).map(drop);
            let done = match n % 3 {
                0 => row(db),
                1 => db.in_savepoint(|db| row(db)),
                _ => db.begin_write().and_then(|()| {
                    let done = row(db);
                    if let Err(e) = &done {
                        db.note_failure(e);
                    }
                    let done = done.and_then(|()| db.commit());
                    if done.is_err() {
                        db.rollback().unwrap();
                    }
                    done
                }),
            };
            sorts[match done {
                Ok(()) => 0,
                Err(e) if e.to_string().contains("unknown") => 2,
                Err(_) => 1,
            }]
            .push(key);
        }
        stop.store(true, Ordering::Relaxed);
    });
    let ended = ended.into_inner();
    let there = server.sql("SELECT string_agg(convert_from(key, 'UTF8'), ' ') FROM victim.kvstore_row");
    let there: std::collections::HashSet<_> = there.split(' ').collect();
    let [acknowledged, failed, _] = &sorts;
    assert!(ended > 3 && acknowledged.len() > 300, "{ended} {}", acknowledged.len());
    let lost: Vec<_> = acknowledged.iter().filter(|key| !there.contains(key.as_str())).collect();
    let applied: Vec<_> = failed.iter().filter(|key| there.contains(key.as_str())).collect();
    assert!(lost.is_empty() && applied.is_empty(), "lost {lost:?}, applied {applied:?}");
}

#[test]
fn unanswered_write_is_retried_if_idempotent_else_unknown() {
    let server = Server::shared();
    let proxy = Proxy::before(server);
    let db = open(&proxy.url("single"));
    put(&db, "k").unwrap();
    proxy.rule(Rule::SwallowAllAnswers);
    put(&db, "k").unwrap();
    assert_eq!(puts(server, "single", "k"), 3);
    assert!(number(&db, Again::No, "SELECT 2::bigint").is_ok());
    proxy.rule(Rule::SwallowAllAnswers);
    let e = number(&db, Again::No, "SELECT 2::bigint").unwrap_err();
    assert!(e.kind() == ErrorKind::Io && e.to_string().contains("unknown"), "{e}");
    assert!(number(&db, Again::No, "SELECT 2::bigint").is_ok());
}

/// A second attempt may find the key expired because of the first one, and does not know the expiry
/// time that the key had before.
#[test]
fn unanswered_expire_is_not_retried() {
    let server = Server::shared();
    let proxy = Proxy::before(server);
    let db = open(&proxy.url("ends"));
    let family = db.contents("default");
    family.put(b"k", b"v", &PutOptions::new()).unwrap();
    let far = Expiry::At(4_000_000_000_000);
    let give = |key: &[u8], end| match end {
        Some(end) => family.expire(key, end, ExpiryCondition::Always).map(|_| ()),
        None => family.get_and_expire(key, far, |_| Ok(())).map(|_| ()),
    };
    for end in [Some(far), None] {
        give(b"none", end).unwrap(); // prepares the statement
        proxy.rule(Rule::SwallowAllAnswers);
        let e = give(b"k", end).unwrap_err();
        assert!(e.kind() == ErrorKind::Io && e.to_string().contains("unknown"), "{end:?}: {e}");
    }
    // The key has no expiry time afterwards, however often it is removed, so the call is run again.
    give(b"none", Some(Expiry::Never)).unwrap();
    proxy.rule(Rule::SwallowAllAnswers);
    give(b"k", Some(Expiry::Never)).unwrap();
    assert_eq!(family.times(b"k").unwrap().live().unwrap().expiry, Expiry::Never);
}

/// Another client locks the row as soon as the first attempt is done. A trigger simulates that.
#[test]
fn possibly_done_write_stays_unknown_if_retry_is_locked() {
    let server = Server::shared();
    let proxy = Proxy::before(server);
    let config = Config::new().busy_timeout(Duration::from_millis(200));
    let db = Db::open(&proxy.url("unknown_then_locked"), &config, Arc::default()).unwrap();
    db.contents("default").put(b"other", b"", &PutOptions::new()).unwrap(); // prepares the statement
    server.sql(
        "SET search_path = unknown_then_locked; CREATE SEQUENCE tries; CREATE FUNCTION locked_later() RETURNS trigger \
         LANGUAGE plpgsql AS $$BEGIN IF nextval('unknown_then_locked.tries') > 1 THEN RAISE 'locked' USING ERRCODE = '55P03'; \
         END IF; RETURN NEW; END$$; CREATE TRIGGER locked_later BEFORE INSERT ON kvstore_row FOR EACH ROW \
         EXECUTE FUNCTION locked_later()",
    );
    proxy.rule(Rule::SwallowAllAnswers);
    let e = db.contents("default").put(b"k", b"", &PutOptions::new()).unwrap_err();
    assert!(e.kind() == ErrorKind::Io && e.to_string().contains("unknown"), "{:?} {e}", e.kind());
    assert_eq!(puts(server, "unknown_then_locked", "k"), 1);
    assert!(server.sql("SELECT last_value > 1 FROM unknown_then_locked.tries") == "t", "it was not locked");
}

#[test]
fn retry_starts_after_first_attempt_has_ended() {
    let server = Server::shared();
    let proxy = Proxy::before(server);
    // No wait for a lock times out in this test.
    let config = Config::new().busy_timeout(Duration::from_secs(60));
    let db = Db::open(&proxy.url("left_behind"), &config, Arc::default()).unwrap();
    let mut other = open(&server.url("left_behind"));
    put(&db, "k").unwrap();
    let first = pid(&db);
    let write =
        "UPDATE kvstore_row SET value = value || '/* left behind */' WHERE key = 'k' RETURNING 1::bigint";
    number(&db, Again::Yes, write).unwrap(); // prepares the statement
    other.begin_write().unwrap();
    put(&other, "k").unwrap();
    let blocked =
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%left behind%'";
    proxy.rule(Rule::SwallowAllAnswers);
    thread::scope(|scope| {
        let running = scope.spawn(|| {
            let db = db;
            number(&db, Again::Yes, write)
        });
        until(|| server.sql(blocked) == "1");
        proxy.cut(); // the server does not notice: its process waits for the lock
        until(|| proxy.connections() == 2);
        // The new connection ends the first server process before it waits for the same lock.
        let pids = "SELECT string_agg(pid::text, ' ') FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE \
                    '%left behind%'";
        until(|| server.sql(pids).parse::<i64>().is_ok_and(|pid| pid != first));
        other.commit().unwrap();
        running.join().unwrap().unwrap();
    });
    let written = server.sql("SELECT length(value) FROM left_behind.kvstore_row");
    assert_eq!(written, (1 + 2 * "/* left behind */".len()).to_string());
}

/// Returns the identity of the server process of a handle.
fn backend(db: &Db) -> Backend {
    let found = db.session.borrow_mut().run_alone(Again::Read, |link| Ok(link.backend.clone()));
    found.unwrap().unwrap()
}

fn end(db: &Db, old: &Backend, wait: Duration) -> Result<bool> {
    let ended = db.session.borrow_mut().run_alone(Again::Read, |link| link.end(old, wait));
    ended.map_err(|failure| failure.error)
}

#[test]
fn backend_reassigned_by_pooler_is_not_terminated() {
    let server = Server::shared();
    let (db, other) = (open(&server.url("pooled")), open(&server.url("pooled")));
    let (own, others, old) = (pid(&db), pid(&other), backend(&other));
    // As pgbouncer does before it gives a session to another client.
    other.query(Again::No, "DISCARD ALL", &[]).unwrap();
    assert!(end(&db, &backend(&db), END_WAIT).unwrap());
    assert!(end(&db, &old, END_WAIT).unwrap());
    assert_eq!((pid(&db), pid(&other)), (own, others));
}

#[test]
fn backend_of_broken_connection_is_terminated() {
    let server = Server::shared();
    let (db, other) = (open(&server.url("not pooled")), open(&server.url("not pooled")));
    let old = pid(&other);
    assert!(end(&db, &backend(&other), END_WAIT).unwrap());
    assert_ne!(pid(&other), old);
}

#[test]
fn role_without_server_identity_still_locks_its_family() {
    let server = &Server::start(&[]);
    open(&server.url("s"));
    server.sql(
        "CREATE ROLE clerk LOGIN; GRANT USAGE ON SCHEMA s TO clerk; \
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA s TO clerk; \
         REVOKE EXECUTE ON FUNCTION pg_control_system FROM public",
    );
    let url = server.url_as("clerk", "s");
    let config = Config::new().busy_timeout(Duration::ZERO);
    let (mut db, other) = (open(&url), Db::open(&url, &config, Arc::default()).unwrap());
    other.create_family("f").unwrap();
    db.begin_write().unwrap();
    assert!(db.family_exists("f").unwrap());
    assert_eq!(other.drop_family("f").unwrap_err().kind(), ErrorKind::Busy);
    db.contents("f").put(b"k", b"", &PutOptions::new()).unwrap();
    db.commit().unwrap();
    other.integrity_check().unwrap();
    assert!(db.place_on_its_server().unwrap().is_none());
    // The server process of a broken connection is ended, too.
    let (own, old) = (backend(&db), backend(&other));
    assert!(own.history.is_none() && old.history.is_none());
    let before = pid(&other);
    assert!(end(&db, &old, END_WAIT).unwrap());
    assert_ne!(pid(&other), before);
}

/// Sets a server up such that ordinary roles may not end server processes. Returns a URL with such
/// a role, through the proxy.
fn without_right_to_end(server: &Server, proxy: &Proxy) -> String {
    open(&server.url("s"));
    server.sql(
        "CREATE ROLE bereft LOGIN; GRANT USAGE ON SCHEMA s TO bereft; \
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA s TO bereft; \
         REVOKE EXECUTE ON FUNCTION pg_terminate_backend FROM public",
    );
    proxy.url("s").replace("postgres@", "bereft@")
}

#[test]
fn role_without_terminate_right_waits_for_old_backend() {
    let server = &Server::start(&[]);
    let proxy = Proxy::before(server);
    let db = open(&without_right_to_end(server, &proxy));
    put(&db, "k").unwrap();
    let (old, before) = (pid(&db), proxy.connections());
    proxy.rule(Rule::SwallowAllAnswers);
    thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let db = db;
            let read = number(&db, Again::Read, "SELECT count(*) FROM kvstore_row");
            (read, db)
        });
        until(|| proxy.connections() > before);
        terminate(server, old); // as if it had noticed that its client is disconnected
        let (read, db) = reading.join().unwrap();
        assert_eq!(read.unwrap(), 1);
        put(&db, "k").unwrap();
    });
}

#[test]
fn role_without_pg_locks_recovers_after_disconnect() {
    let server = &Server::start(&[]);
    open(&server.url("s"));
    server.sql(
        "REVOKE SELECT ON pg_locks FROM public; CREATE ROLE blind LOGIN; GRANT USAGE ON SCHEMA s TO blind; \
                GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA s TO blind",
    );
    let proxy = Proxy::before(server);
    let db = open(&proxy.url("s").replace("postgres@", "blind@"));
    put(&db, "k").unwrap();
    for _ in 0..2 {
        proxy.rule(Rule::SwallowAllAnswers);
        assert_eq!(number(&db, Again::Read, "SELECT count(*) FROM kvstore_row").unwrap(), 1);
    }
}

#[test]
fn backend_keeps_one_advisory_lock_across_connections() {
    let server = Server::shared();
    let db = open(&server.url("marked"));
    let count = format!("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = {}", pid(&db));
    for _ in 0..3 {
        db.session.borrow_mut().run_alone(Again::Read, |link| link.set_planner()).unwrap();
        assert_eq!(server.sql(&count), "1");
    }
}

#[test]
fn idle_backend_that_cannot_be_ended_blocks_only_briefly() {
    let server = &Server::start(&[]);
    let proxy = Proxy::before(server);
    let url = without_right_to_end(server, &proxy);
    let (db, mut other) = (open(&url), open(&url));
    let (old, wait) = (backend(&other), Duration::from_millis(20));
    assert!(end(&db, &old, wait).unwrap());
    other.begin_write().unwrap();
    put(&other, "k").unwrap();
    let e = end(&db, &old, wait).unwrap_err();
    assert!(e.kind() == ErrorKind::Busy && e.to_string().contains("still running"), "{e}");
    other.commit().unwrap();
}

/// Starts a primary and its standby, which has everything that was committed. Returns them, and a
/// URL that names both.
fn pair() -> (Server, Server, String) {
    let primary = Server::start(&["wal_level=replica", "hot_standby=on"]);
    let standby = primary.standby();
    let slow = "synchronous_standby_names = '*'\nsynchronous_commit = remote_apply\n";
    primary.write("postgresql.auto.conf", slow);
    primary.reload();
    let (one, two) = (standby.folder().display(), primary.folder().display());
    let url = format!("postgresql://postgres@/postgres?host={one},{two}&schema=s");
    (primary, standby, url)
}

#[test]
fn primary_is_found_before_and_after_a_failover() {
    let (primary, standby, url) = pair();
    let mut db = open(&url);
    put(&db, "k").unwrap();
    let reader = Db::open(&url, &config().read_only(true), Arc::default()).unwrap();
    assert_eq!(number(&reader, Again::Yes, "SELECT pg_is_in_recovery()::int::bigint").unwrap(), 1);
    let only = format!("postgresql://postgres@/postgres?host={}&schema=s", standby.folder().display());
    let e = put(&open(&only), "k").unwrap_err();
    assert_eq!(e.kind(), ErrorKind::ReadOnly, "{e}");
    assert!(e.to_string().contains("name all servers in the URL"), "{e}");
    let e = open(&only).begin_write().unwrap_err();
    assert_eq!(e.kind(), ErrorKind::ReadOnly, "{e}");
    assert!(e.to_string().contains("name all servers in the URL"), "{e}");
    db.begin_write().unwrap();
    put(&db, "lost").unwrap();
    primary.stop("immediate");
    standby.promote();
    assert_eq!(put(&db, "lost").unwrap_err().kind(), ErrorKind::Io);
    db.rollback().unwrap();
    put(&db, "k").unwrap();
    assert_eq!((puts(&standby, "s", "k"), puts(&standby, "s", "lost")), (2, 0));
}

#[test]
fn commit_status_is_not_read_from_other_timeline() {
    let (primary, standby, url) = pair();
    drop(open(&url)); // creates the store
    let proxy = Proxy::before(&primary);
    let (one, two) = (proxy.folder().display(), standby.folder().display());
    let mut db = open(&format!("postgresql://postgres@/postgres?host={one},{two}&schema=s"));
    db.begin_write().unwrap();
    put(&db, "k").unwrap();
    proxy.rule(Rule::HoldCommit);
    let e = thread::scope(|scope| {
        let committing = scope.spawn(|| {
            let mut db = db;
            db.commit().unwrap_err()
        });
        until(|| proxy.holds());
        primary.stop("immediate");
        standby.promote();
        // On the standby, the same number may be that of another transaction, which was committed.
        standby.sql("CREATE TABLE public.t (i int); INSERT INTO t VALUES (1); INSERT INTO t VALUES (2)");
        proxy.cut();
        committing.join().unwrap()
    });
    assert!(e.kind() == ErrorKind::Io && e.to_string().contains("unknown"), "{e}");
    assert_eq!(puts(&standby, "s", "k"), 0);
}

/// A transaction number that was not written to disk is assigned again after a crash: to the first
/// transaction that writes. That may be a transaction of the client that looks up the commit.
#[test]
fn commit_lost_in_crash_is_not_confused_with_reused_xid() {
    // With this delay, only the commit would write the number to disk.
    let server = &Server::start(&["wal_writer_delay=10s"]);
    let mut db = open(&server.url("s"));
    put(&db, "warm").unwrap();
    server.sql(
        "CREATE FUNCTION s.hold() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN PERFORM pg_sleep(60); RETURN NULL; END$$; \
         CREATE CONSTRAINT TRIGGER hold AFTER INSERT ON s.kvstore_row DEFERRABLE INITIALLY DEFERRED FOR EACH ROW \
         EXECUTE FUNCTION s.hold()",
    );
    db.begin_write().unwrap();
    let pid = pid(&db);
    put(&db, "k").unwrap();
    let e = thread::scope(|scope| {
        let committing = scope.spawn(|| db.commit().unwrap_err());
        let holds =
            format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid} AND wait_event = 'PgSleep'");
        until(|| server.sql(&holds) == "1");
        let killed = std::process::Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
        assert!(killed.success());
        committing.join().unwrap()
    });
    assert!(e.kind() == ErrorKind::Io && e.to_string().contains("unknown"), "{e}");
    db.rollback().unwrap();
    assert_eq!(puts(server, "s", "k"), 0);
    server.sql("DROP TRIGGER hold ON s.kvstore_row");
    put(&db, "k").unwrap();
}

#[test]
fn unreplicated_write_is_not_acknowledged_after_disconnect() {
    let server = Server::start(&[]);
    let proxy = Proxy::before(&server);
    let mut db = open(&proxy.url("unreplicated"));
    (0..20).for_each(|n| put(&db, &n.to_string()).unwrap());
    let standbys = |names: &str| {
        server.sql(&format!("ALTER SYSTEM SET synchronous_standby_names = '{names}'"));
        server.sql("SELECT pg_reload_conf()");
    };
    let waits = || server.sql("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'") != "0";
    // It takes some time until the server applies the setting.
    let mut tries = 0..20;
    for is_commit in [true, false] {
        standbys("nobody");
        let mut has_waited = false;
        while !has_waited {
            let key = tries.next().unwrap().to_string();
            let done = AtomicBool::new(false);
            thread::scope(|scope| {
                let (db, done) = (&mut db, &done);
                let writing = scope.spawn(move || {
                    let outcome = if is_commit {
                        db.begin_write().and_then(|()| put(db, &key)).and_then(|()| db.commit())
                    } else {
                        db.contents("default").delete(key.as_bytes()).map(drop)
                    };
                    done.store(true, Ordering::SeqCst);
                    outcome
                });
                let is_done = || done.load(Ordering::SeqCst);
                until(|| is_done() || waits());
                has_waited = !is_done();
                if has_waited {
                    proxy.cut();
                    thread::sleep(Duration::from_millis(1500));
                    assert!(!is_done(), "acknowledged, and no standby has it");
                    until(waits);
                    standbys("");
                }
                writing.join().unwrap().unwrap();
            });
        }
    }
}
