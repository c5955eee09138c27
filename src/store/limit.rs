//! Bounded stores: how much the data may take, and what makes room.

use super::Store;
use crate::error::{Error, ErrorKind, Result};
use crate::options::SizeLimit;

impl Store {
    /// Sets how much the data of this store may take in its file, and which keys make room; `None`: as much as it
    /// wants. It is kept in the file, and every handle and process obeys it from its next write on.
    ///
    /// Counted are the pages of the file less the free ones ([`Stats::size_bytes`](crate::Stats::size_bytes)). The
    /// file itself is kept as short, but for what `docs/how-to/limit-size.md` names, and unless
    /// [`Config::wal_pages`](crate::Config::wal_pages) says otherwise, its WAL is one for an eighth of that (at least
    /// 16 pages, at most 4000, or 64 with [`Config::small`](crate::Config::small)): with one writer, and no reader that
    /// stays, both together have at most `max_bytes`, twice as many pages as the WAL is for, and those of one
    /// transaction.
    ///
    /// Keys go inside the write that needs the room, in its transaction, in the order that
    /// [`Eviction`](crate::Eviction) says, over all families; those that the write itself has put never do. Up to a
    /// thirty-second part of the pages (at most 256) is kept free, so that a write removes few keys as a rule. When
    /// nothing is left that may go, a write that needs more pages than there are fails with
    /// [`Full`](crate::ErrorKind::Full); nothing of it has happened then, and a transaction of the caller's goes on.
    /// What only removes is never refused.
    ///
    /// With [`Eviction::Oldest`](crate::Eviction::Oldest) every family tracks write times: it is switched on for
    /// those that are there, whose keys count as written now, and for those that are made later. Another policy
    /// leaves it on.
    ///
    /// This is a write itself, and makes room if the data takes more than the new limit. Outside a transaction a new
    /// limit also makes a checkpoint, which cuts the file and the WAL, unless others stand in the way; then the next
    /// one does.
    ///
    /// # Errors
    /// `Error` for a limit of less than 32 pages; `Full` if the data takes more and may not be removed; otherwise as
    /// for a write. Nothing is changed then.
    pub fn set_size_limit(&self, limit: Option<SizeLimit>) -> Result<()> {
        let shared = self.shared();
        let before = shared.write(|db| {
            let before = db.limit_now()?;
            db.set_limit(limit, &shared.clock)?;
            Ok(before)
        })?;
        if limit.is_some() && limit != before {
            shared.cut_files();
        }
        Ok(())
    }

    /// Sets the limit that another store has, in a transaction of the caller's, if nothing that is here has to go for it. A
    /// store on a server has none.
    ///
    /// # Errors
    /// As [`set_limit`](Store::set_size_limit), with a text for who copies a store; the transaction is to be rolled back then.
    pub(crate) fn take_limit(&self, limit: SizeLimit) -> Result<()> {
        if !self.shared().with(|db| Ok(db.view().can_have_limit()))? {
            return Ok(());
        }
        let evicted = self.stats()?.evicted;
        let why = |why: &dyn std::fmt::Display| {
            format!(
                "the limit of {} bytes cannot be taken over: {why}: give the new store a limit first, which is kept, or the \
                 old one a greater one",
                limit.max_bytes
            )
        };
        match self.set_size_limit(Some(limit)) {
            Ok(()) if self.stats()?.evicted == evicted => Ok(()),
            Ok(()) => Err(Error::over_limit(why(&"what was copied takes more here"))),
            Err(e) if e.dooms_transaction() => Err(e),
            Err(e) if e.kind() == ErrorKind::Full => Err(Error::over_limit(why(&e))),
            Err(e) if e.kind() == ErrorKind::Error => Err(Error::invalid(why(&e))),
            Err(e) => Err(e),
        }
    }

    /// The limit of this store; `None`: there is none.
    ///
    /// # Errors
    /// Failures to read.
    pub fn size_limit(&self) -> Result<Option<SizeLimit>> {
        self.shared().with(|db| db.view().limit_now())
    }
}
