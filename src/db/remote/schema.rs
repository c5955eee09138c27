//! The tables of a store, in a schema of their own: making them, and which version of them is there.
//!
//! Making them is a list of steps that each do nothing where they were done, with the version as the last: many clients may do
//! it at once, and one that dies on the way leaves the rest to the next.

use std::time::Duration;

use super::failure::{Failure, Sort, shown};
use super::pauses::Pauses;
use super::plan::strange;
use super::session::{Session, quoted};
use crate::db::DEFAULT_FAMILY;
use crate::error::{Error, ErrorKind, Result};

/// The version of the tables that this library makes and reads.
pub(crate) const FORMAT: i32 = 1;

/// The server's time, in milliseconds.
pub(super) const NOW_MS: &str = "(floor(extract(epoch from clock_timestamp()) * 1000))::bigint";

const TABLES: [&str; 6] = [
    "CREATE TABLE IF NOT EXISTS kvstore_meta (one integer PRIMARY KEY CHECK (one = 1), format integer NOT NULL, \
     created_by text NOT NULL, created_ms bigint NOT NULL)",
    "CREATE TABLE IF NOT EXISTS kvstore_family (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name bytea NOT NULL \
     UNIQUE, default_ttl_ms bigint NOT NULL DEFAULT 0, track_writes boolean NOT NULL DEFAULT false, created_ms bigint \
     NOT NULL)",
    "CREATE TABLE IF NOT EXISTS kvstore_row (family bigint NOT NULL, key bytea NOT NULL, value bytea NOT NULL, expire_ms \
     bigint, written_ms bigint, PRIMARY KEY (family, key))",
    // Families with rows that the transaction which changed the family may not have seen (`catalogue.rs`).
    "CREATE TABLE IF NOT EXISTS kvstore_unsettled (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, family bigint NOT \
     NULL)",
    "CREATE INDEX IF NOT EXISTS kvstore_row_expiry ON kvstore_row (family, expire_ms, key) WHERE expire_ms IS NOT NULL",
    "CREATE INDEX IF NOT EXISTS kvstore_row_written ON kvstore_row (family, written_ms, key) WHERE written_ms IS NOT NULL",
];

/// For how long clients that make the same tables try it again, at most.
const MAX_TRYING: Duration = Duration::from_secs(30);

/// How often they are made and gone again.
const MAX_MADE: usize = 10;

/// Sees to it that the store is there. Returns whether families are to be [settled](super::Db::settle).
pub(super) fn ensure(session: &mut Session, read_only: bool) -> Result<bool> {
    let mut pauses = Pauses::within(MAX_TRYING);
    let mut made = 0;
    loop {
        if let Some(is_unsettled) = is_there(session)? {
            return Ok(is_unsettled);
        }
        if is_closed_to_us(session) {
            return Err(Error::cant_open(format!(
                "schema {} is there, but this role may not use it: let its owner say {}",
                quoted(session.schema()),
                grants(session)
            )));
        }
        if read_only {
            return Err(Error::cant_open(format!(
                "schema {} has no store, and a read-only handle makes none",
                quoted(session.schema())
            )));
        }
        let why = match make(session) {
            Ok(()) if made == MAX_MADE => return Err(strange()),
            Ok(()) => {
                made += 1;
                strange() // if they are still not there
            }
            Err(failure) if is_another_at_it(&failure) => failure.error,
            Err(failure) if failure.code == "42501" => {
                return Err(Error::cant_open(format!(
                    "schema {} has no store, and this role may not make one ({}): let a role with CREATE open it once, or \
                     GRANT that",
                    quoted(session.schema()),
                    failure.error
                )));
            }
            Err(failure) if failure.sort == Sort::Unreachable && session.is_late() => {
                let text = format!(
                    "{}: it was to make the tables of a new store; if synchronous_standby_names names a standby that is \
                     not there, each commit waits for it",
                    failure.error
                );
                return Err(Error::cant_open(text).of_server());
            }
            Err(failure) => return Err(failure.at_open()),
        };
        if session.is_late() || !pauses.pause() {
            return Err(why);
        }
    }
}

/// Whether there is a store, of a version that this library reads, and then whether families are to be settled.
fn is_there(session: &mut Session) -> Result<Option<bool>> {
    let sql = "SELECT format, EXISTS (SELECT FROM kvstore_unsettled) FROM kvstore_meta WHERE one = 1";
    let found = session.run_at_open(|line| line.ask_row(sql));
    match found.map(|row| row.map(|row| row.into_iter().flatten().collect::<Vec<_>>())) {
        Ok(None) => Ok(None),
        Ok(Some(row)) if row.first().is_some_and(|format| *format == FORMAT.to_string()) => {
            Ok(Some(row.get(1).is_some_and(|is_unsettled| is_unsettled == "t")))
        }
        Ok(Some(row)) => Err(Error::cant_open(format!(
            "the store has version {}, and this library reads version {FORMAT}: use a newer one",
            shown(row.first().map_or("?", String::as_str))
        ))),
        Err(failure) if failure.error.kind() == ErrorKind::NotADatabase => Ok(None),
        Err(failure) if failure.code == "42501" => {
            Err(Error::cant_open(format!("{}. What it needs: {}", failure.error, grants(session))))
        }
        Err(failure) => Err(failure.at_open()),
    }
}

/// Whether the schema is there, and not for this role. Its tables look then as if they were not there.
fn is_closed_to_us(session: &mut Session) -> bool {
    let sql = format!(
        "SELECT has_schema_privilege(nspname, 'USAGE') FROM pg_namespace WHERE nspname = '{}'",
        session.schema().replace('\'', "''")
    );
    let found = session.run_at_open(|line| line.ask_row(&sql));
    found.is_ok_and(|row| row.is_some_and(|row| row.into_iter().flatten().eq(["f"])))
}

/// What a role is to be given that uses a store.
fn grants(session: &Session) -> String {
    let (schema, role) = (quoted(session.schema()), quoted(session.role()));
    let rights = if session.read_only { "SELECT" } else { "SELECT, INSERT, UPDATE, DELETE" };
    format!(
        "GRANT USAGE ON SCHEMA {schema} TO {role}; GRANT {rights} ON ALL TABLES IN SCHEMA {schema} TO {role}"
    )
}

fn make(session: &mut Session) -> Result<(), Failure> {
    let schema = session.schema().to_owned();
    let literal = schema.replace('\'', "''");
    // CREATE SCHEMA IF NOT EXISTS asks for the right to make one before it looks.
    let sql = format!("SELECT 1 FROM information_schema.schemata WHERE schema_name = '{literal}'");
    let found = session.run_at_open(|line| line.ask(&sql))?;
    let mut steps: Vec<String> = Vec::new();
    if found.is_none() {
        steps.push(format!("CREATE SCHEMA IF NOT EXISTS {}", quoted(&schema)));
    }
    steps.extend(TABLES.map(str::to_owned));
    let name: String = DEFAULT_FAMILY.bytes().map(|byte| format!("{byte:02x}")).collect();
    steps.push(format!(
        "INSERT INTO kvstore_family (name, created_ms) SELECT decode('{name}', 'hex'), {NOW_MS} \
         WHERE NOT EXISTS (SELECT 1 FROM kvstore_family WHERE name = decode('{name}', 'hex')) ON CONFLICT DO NOTHING"
    ));
    steps.push(format!(
        "INSERT INTO kvstore_meta (one, format, created_by, created_ms) VALUES (1, {FORMAT}, 'kvstore {}', {NOW_MS}) \
         ON CONFLICT DO NOTHING",
        env!("CARGO_PKG_VERSION")
    ));
    for step in steps {
        session.run_at_open(|line| line.execute(&step))?;
    }
    Ok(())
}

/// Whether a step has failed only because another client did the same at that moment: IF NOT EXISTS looks first and makes
/// then; and a server that has committed a schema shows it before it tells its other processes to forget what they know of
/// names (PostgreSQL's `CommitTransaction`: `ProcArrayEndTransaction` comes before `AtEOXact_Inval`), so that for a moment
/// nothing can be made in a schema that was found.
fn is_another_at_it(failure: &Failure) -> bool {
    failure.sort == Sort::Conflict && !failure.is_of_wait()
        || matches!(&*failure.code, "23505" | "3F000" | "42P01" | "42P06" | "42P07" | "42710" | "XX000")
}
