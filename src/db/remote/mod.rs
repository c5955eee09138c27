//! A store on a PostgreSQL server: everything that knows tokio-postgres. See `docs/how-to/postgresql.md`.
//!
//! [`plan`] has what each operation on a family does to its rows, [`look_up`] what is read of them, [`agenda`] when something is
//! due in them; [`session`] is the connection, with its transactions, [`link`] what there is of it at a time, [`line`] and [`wire`] the socket below it, [`tls`] what is around
//! that; [`url`] says where the server is and [`password`] where the password may stand, [`schema`] makes the tables,
//! [`catalogue`] knows the families, [`integrity`] checks it all, [`failure`] says what went wrong.
//!
//! Each operation is one statement, and one round trip. Time is the server's: a statement asks its clock.

mod agenda;
mod catalogue;
mod failure;
mod info;
mod integrity;
mod line;
mod link;
mod look_up;
mod password;
mod pauses;
mod plan;
mod schema;
mod session;
#[cfg(test)]
mod tests;
mod tls;
mod transaction;
mod url;
mod wire;

use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use plan::Contents;
use session::Session;

use crate::clock::Clock;
use crate::config::Config;
pub(crate) use crate::config::MAX_SERVER_KEY_SIZE as MAX_KEY_SIZE;
use crate::db::TransactionState;
use crate::error::Result;

/// Connection of a handle to a store on a server.
pub(crate) struct Db {
    session: RefCell<Session>,
    transaction: TransactionState,
    clock: Arc<Clock>,
    read_only: bool,
    /// The URL it was opened with, for a second connection. It may have the password, and is not to be shown.
    url: PathBuf,
}

impl Db {
    pub(crate) fn busy_timeout(&self) -> Duration {
        self.session.borrow().busy_timeout
    }

    /// Opens the store at a URL, and creates it if it does not exist.
    pub(crate) fn open(url: &str, config: &Config, clock: Arc<Clock>) -> Result<Db> {
        crate::db::watch_forks()?;
        let settings = url::Settings::of(url, &url::Environment::of_process())?;
        let mut session = Session::open(settings, config)?;
        clock.note_server(session.opened_ms()); // before anything else takes time
        session.limit_opening();
        let is_unsettled = schema::ensure(&mut session, config.read_only)?;
        let db = Db {
            session: RefCell::new(session),
            transaction: TransactionState::None,
            clock,
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

    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only
    }
}
