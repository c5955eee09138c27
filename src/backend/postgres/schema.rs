//! Creates the tables of a store, in a schema of their own, and checks their format version.
//!
//! The creation is a list of steps. Each step does nothing if it was done before, and the last one
//! records the version. This allows many clients to create the tables at once. If one crashes
//! midway, the next client does the remaining steps.

use std::time::Duration;

use super::backoff::Pauses;
use super::error::{Failure, Sort, shown, strange};
use super::session::Session;
use super::sql_text::{NOW_MS, quoted, search_path};
use crate::backend::DEFAULT_FAMILY;
use crate::error::{Error, ErrorKind, Result};
use crate::hint::Hint;

/// Version of the tables that this library creates and reads.
pub(crate) const FORMAT: i32 = 1;

const TABLES: [&str; 6] = [
    "CREATE TABLE IF NOT EXISTS kvstore_meta (one integer PRIMARY KEY CHECK (one = 1), format integer NOT NULL, \
     created_by text NOT NULL, created_ms bigint NOT NULL)",
    "CREATE TABLE IF NOT EXISTS kvstore_family (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name bytea NOT NULL \
     UNIQUE, default_ttl_ms bigint NOT NULL DEFAULT 0, track_writes boolean NOT NULL DEFAULT false, created_ms bigint \
     NOT NULL)",
    "CREATE TABLE IF NOT EXISTS kvstore_row (family bigint NOT NULL, key bytea NOT NULL, value bytea NOT NULL, expire_ms \
     bigint, written_ms bigint, PRIMARY KEY (family, key))",
    // Families that a transaction dropped, or whose write tracking it switched, possibly without
    // seeing all their rows (`catalogue.rs`).
    "CREATE TABLE IF NOT EXISTS kvstore_unsettled (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, family bigint NOT \
     NULL)",
    "CREATE INDEX IF NOT EXISTS kvstore_row_expiry ON kvstore_row (family, expire_ms, key) WHERE expire_ms IS NOT NULL",
    "CREATE INDEX IF NOT EXISTS kvstore_row_written ON kvstore_row (family, written_ms, key) WHERE written_ms IS NOT NULL",
];

/// Time limit for retries when several clients create the tables of a store at the same time.
const MAX_TRYING: Duration = Duration::from_secs(30);

/// Maximum number of times that [`ensure`] creates the tables again because they are still missing
/// after their creation.
const MAX_MADE: usize = 10;

/// Creates the tables of the store if they do not exist. Returns `true` if the store contains
/// families with rows that a change of the family has missed. The caller must then
/// [correct](super::Db::settle) these rows.
pub(super) fn ensure(session: &mut Session, read_only: bool) -> Result<bool> {
    let mut pauses = Pauses::within(MAX_TRYING);
    let mut made = 0;
    loop {
        if let Some(is_unsettled) = is_there(session)? {
            return Ok(is_unsettled);
        }
        if is_closed_to_us(session) {
            return Err(Error::cant_open(format!(
                "schema {} exists, but this role may not use it: let its owner run {}",
                quoted(session.schema()),
                grants(session)
            )));
        }
        if read_only {
            return Err(Error::cant_open(format!(
                "schema {} contains no store, and a read-only open cannot create one",
                quoted(session.schema())
            ))
            .with_hint(Hint::OpenForWriting));
        }
        let why = match make(session) {
            Ok(()) if made == MAX_MADE => return Err(strange()),
            Ok(()) => {
                made += 1;
                strange() // the error if the tables are still missing
            }
            Err(failure) if is_another_at_it(&failure) => failure.error,
            Err(failure) if failure.code == "42501" => {
                return Err(Error::cant_open(format!(
                    "schema {} contains no store, and this role may not create one ({}): open it once \
                    as a role with the CREATE privilege, or GRANT that",
                    quoted(session.schema()),
                    failure.error.message()
                )));
            }
            Err(failure) if failure.sort == Sort::Unreachable && session.is_late() => {
                let text = format!(
                    "{}; the tables of a new store could not be committed: if synchronous_standby_names names a \
                     standby that is down, each commit waits for it",
                    failure.error.message()
                );
                return Err(Error::cant_open(text).of_a_server());
            }
            Err(failure) => return Err(failure.at_open()),
        };
        if session.is_late() || !pauses.pause() {
            return Err(why);
        }
    }
}

/// Checks whether the schema contains a store. Returns `None` if it does not. Otherwise, returns
/// whether the store contains families with rows that a change of the family has missed
/// (`kvstore_unsettled`, see `catalogue.rs`). Fails if this library does not support the format
/// version of the store.
fn is_there(session: &mut Session) -> Result<Option<bool>> {
    let sql = format!(
        "{}; SELECT format, EXISTS (SELECT FROM kvstore_unsettled) FROM kvstore_meta WHERE one = 1",
        search_path(session.schema())
    );
    let found = session.run_at_open(|line| line.ask_row(&sql));
    match found.map(|row| row.map(|row| row.into_iter().flatten().collect::<Vec<_>>())) {
        Ok(None) => Ok(None),
        Ok(Some(row)) if row.first().is_some_and(|format| *format == FORMAT.to_string()) => {
            Ok(Some(row.get(1).is_some_and(|is_unsettled| is_unsettled == "t")))
        }
        Ok(Some(row)) => Err(Error::cant_open(format!(
            "the store has format version {}, and this library supports version {FORMAT}: use a newer \
            version of the library",
            shown(row.first().map_or("?", String::as_str))
        ))),
        Err(failure) if failure.error.kind() == ErrorKind::NotADatabase => Ok(None),
        Err(failure) if failure.code == "42501" => {
            Err(Error::cant_open(format!("{}. Required: {}", failure.error.message(), grants(session))))
        }
        Err(failure) => Err(failure.at_open()),
    }
}

/// Returns `true` if the schema exists, but the role of this session may not use it. In that case,
/// the server reports the tables as missing.
fn is_closed_to_us(session: &mut Session) -> bool {
    let sql = format!(
        "SELECT has_schema_privilege(nspname, 'USAGE') FROM pg_namespace WHERE nspname = '{}'",
        session.schema().replace('\'', "''")
    );
    let found = session.run_at_open(|line| line.ask_row(&sql));
    found.is_ok_and(|row| row.is_some_and(|row| row.into_iter().flatten().eq(["f"])))
}

/// Returns the GRANT statements that a role needs to use a store.
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
    // CREATE SCHEMA IF NOT EXISTS checks for the CREATE privilege before it checks whether the
    // schema exists.
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
        let step = format!("{}; {step}", search_path(&schema));
        session.run_at_open(|line| line.execute(&step))?;
    }
    Ok(())
}

/// Returns `true` if a step of the creation failed only because another client ran the same step at
/// the same time. There are two causes:
/// - `IF NOT EXISTS` first checks and then creates. Another client can create the object in
///   between.
/// - A server that has committed a schema shows it before it invalidates the name caches of its
///   other processes (PostgreSQL's `CommitTransaction`: `ProcArrayEndTransaction` comes before
///   `AtEOXact_Inval`). So for a short time, a statement can find the schema, but cannot create a
///   table in it.
fn is_another_at_it(failure: &Failure) -> bool {
    failure.sort == Sort::Conflict && !failure.is_of_wait()
        || matches!(&*failure.code, "23505" | "3F000" | "42P01" | "42P06" | "42P07" | "42710" | "XX000")
}

#[cfg(test)]
mod tests {
    use super::super::sql_text::NAMES;
    use super::*;

    #[test]
    fn each_table_is_among_the_names_that_get_the_schema() {
        for table in TABLES {
            let is_known = |name: &str| {
                table.contains(&format!("EXISTS {name} (")) || table.contains(&format!("ON {name} ("))
            };
            assert!(NAMES.iter().any(|name| is_known(name)), "{table}");
        }
    }
}
