//! The caller's transaction on a connection, wherever that leads: its states, and what may be done in each.

use crate::error::{Error, Result};
use crate::hint::Hint;

/// The caller's transaction on a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TransactionState {
    None,
    Read,
    Write,
    /// A write transaction in which a write failed half-way, or that its home has ended: all it can do is roll back.
    Doomed(Error),
    /// A read transaction whose snapshot is gone, because its home has ended it (SQLite does so itself when it runs out of
    /// memory or cannot read): nothing may be read until it is ended.
    Lost(Error),
}

impl TransactionState {
    /// Fails if it has no snapshot any more.
    #[inline]
    pub(crate) fn check_snapshot(&self) -> Result<()> {
        match self {
            TransactionState::Lost(why) => Err(lost(why)),
            _ => Ok(()),
        }
    }

    /// Fails if there is nothing that could be committed.
    pub(super) fn check_commit(&self) -> Result<()> {
        match self {
            TransactionState::None => Err(no_transaction("commit")),
            TransactionState::Doomed(why) => Err(why
                .with_message(format!(
                    "the transaction cannot be committed, because a call in it failed ({})",
                    why.message()
                ))
                .with_hint(Hint::RollBack)),
            TransactionState::Lost(why) => Err(lost(why)),
            TransactionState::Read | TransactionState::Write => Ok(()),
        }
    }
}

pub(super) fn no_transaction(what: &str) -> Error {
    Error::invalid(format!("there is no transaction to {what}")).with_hint(Hint::BeginTransaction)
}

#[cold]
fn lost(why: &Error) -> Error {
    why.with_message(format!(
        "the read transaction has lost its snapshot, because a call in it failed ({})",
        why.message()
    ))
    .with_hint(Hint::RollBack)
}
