//! Backend for a store on a PostgreSQL server. Only this module uses tokio-postgres.
//!
//! `docs/explanation/postgresql.md` explains the design, `docs/how-to/postgresql.md` the use. The
//! modules:
//! - [`write`] writes the rows of a family, [`read`] reads them, and [`expiry_schedule`] finds and
//!   removes expired rows of all families;
//! - [`catalogue`] manages the families, [`schema`] creates the tables, [`integrity`] checks them,
//!   and [`info`] describes the store;
//! - [`session`] runs statements, and connects again when a connection breaks; [`transaction`] runs
//!   transactions;
//! - [`connection`] keeps a connection and its prepared statements; [`client`] logs in, sends
//!   requests and receives answers; [`tls`] encrypts the connection, and [`socket`] reads and
//!   writes its bytes; [`backoff`] computes the pauses between attempts;
//! - [`url`] parses the URL of the server, and [`password`] reads the password file;
//! - [`sql_text`] has fragments of SQL; [`error`] translates errors.
//!
//! An operation on rows is one statement and one round trip, unless a write must lock rows first
//! (`write/late.rs`). Whether a row is expired is decided by the server's clock.

mod backoff;
mod catalogue;
mod client;
mod connection;
mod error;
mod expiry_schedule;
mod info;
mod integrity;
mod password;
mod read;
mod schema;
mod session;
mod socket;
mod sql_text;
mod store;
#[cfg(test)]
mod tests;
mod tls;
mod transaction;
mod url;
mod write;

use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use session::Session;

use crate::backend::TransactionState;
use crate::clock::Clock;
use crate::config::Config;
pub(crate) use crate::config::MAX_SERVER_KEY_SIZE as MAX_KEY_SIZE;
use crate::error::Result;
use crate::stats::Counters;

/// Store on a PostgreSQL server, as seen through the connection of one handle, with the state of
/// the caller's transaction.
pub(crate) struct Db {
    session: RefCell<Session>,
    transaction: TransactionState,
    clock: Arc<Clock>,
    counters: Arc<Counters>,
    read_only: bool,
    /// URL with which the store was opened, for a second connection. It may contain the password,
    /// so it must not be displayed.
    url: PathBuf,
}

impl Db {
    pub(crate) fn busy_timeout(&self) -> Duration {
        self.session.borrow().busy_timeout
    }

    /// Opens the store at a URL, and creates it if it does not exist.
    pub(crate) fn open(url: &str, config: &Config, clock: Arc<Clock>) -> Result<Db> {
        crate::backend::watch_forks()?;
        let settings = url::Settings::of(url, &url::Environment::of_process())?;
        let mut session = Session::open(settings, config)?;
        clock.note_server(session.opened_ms()); // at once: a delay here would make the clock late
        session.limit_opening();
        let is_unsettled = schema::ensure(&mut session, config.read_only)?;
        let db = Db {
            session: RefCell::new(session),
            transaction: TransactionState::None,
            clock,
            counters: Arc::default(),
            read_only: config.read_only,
            url: PathBuf::from(url),
        };
        if is_unsettled && !config.read_only {
            db.settle();
        }
        db.session.borrow_mut().limit = None;
        Ok(db)
    }

    /// Returns the URL for a second connection.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        Some(self.url.clone())
    }
}
