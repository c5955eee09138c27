//! States of the caller's transaction on a connection, and what each state allows. All backends use
//! them.

use crate::error::{Error, Result};
use crate::hint::Hint;

/// State of the caller's transaction on a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TransactionState {
    None,
    Read,
    Write,
    /// A write transaction in which a write failed half-way, or that the backend has ended. It can
    /// only be rolled back.
    Doomed(Error),
    /// A read transaction that has lost its snapshot, because the backend has ended it. SQLite ends
    /// a transaction by itself when it runs out of memory or cannot read the file. No call may read
    /// until the caller ends the transaction.
    Lost(Error),
}

impl TransactionState {
    /// Fails if the state is `Lost`: the read transaction has lost its snapshot, so it must not
    /// read.
    #[inline]
    pub(crate) fn check_snapshot(&self) -> Result<()> {
        match self {
            TransactionState::Lost(why) => Err(lost(why)),
            _ => Ok(()),
        }
    }

    /// Fails if the state does not allow a write: in a read transaction, or after a failure that
    /// makes a rollback necessary.
    #[inline]
    pub(super) fn check_write(&self) -> Result<()> {
        match self {
            TransactionState::None | TransactionState::Write => Ok(()),
            _ => Err(self.no_write()),
        }
    }

    #[cold]
    fn no_write(&self) -> Error {
        match self {
            TransactionState::Doomed(why) => why
                .with_message(format!(
                    "the transaction accepts no more writes, because a call in it failed ({})",
                    why.message()
                ))
                .with_hint(Hint::RollBack),
            _ => Error::read_only("a read transaction is open on this handle, so nothing can be written")
                .with_hint(Hint::UseWriteTransaction),
        }
    }

    /// Fails if no transaction is open, or if a failure in the transaction makes a rollback
    /// necessary.
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
