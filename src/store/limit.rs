//! Size limit of a store.

use super::Store;
use crate::error::{Error, ErrorKind, Result};
use crate::options::SizeLimit;

impl Store {
    /// Sets the size limit of this store, and the policy that selects which keys are evicted when
    /// it is reached. `None` removes the limit.
    ///
    /// The limit is stored in the file. Every handle and process obeys it from its next write on.
    ///
    /// **Size.** The limit counts the pages of the file without the free ones
    /// ([`Stats::size_bytes`](crate::Stats::size_bytes)). The file itself is at most as long, with
    /// the exceptions in `docs/how-to/limit-size.md`. Unless
    /// [`Config::wal_pages`](crate::Config::wal_pages) is set, the target length of the WAL is one
    /// eighth of the limit: at least 16 pages, at most 4000, or 64 with
    /// [`Config::small`](crate::Config::small). With one writer and no reader that stays, file and
    /// WAL together take at most `max_bytes`, twice that target length and the pages of one
    /// transaction.
    ///
    /// **Eviction.** A write that needs space removes expired keys, then evicts live ones, in its
    /// own transaction, in the order of the [`Eviction`](crate::Eviction) policy over all families.
    /// It never evicts a key that it wrote itself. Up to 1/32 of the pages (at most 256) are kept
    /// free, so that most writes evict few keys or none. If no key may be evicted, a write that
    /// needs more pages than are available fails with [`Full`](crate::ErrorKind::Full), and a
    /// transaction of the caller stays open. Deletions and purges never fail for the limit.
    ///
    /// **Write tracking.** [`Eviction::Oldest`](crate::Eviction::Oldest) and
    /// [`Eviction::LeastUsed`](crate::Eviction::LeastUsed) switch write tracking on for existing
    /// families, whose keys count as written now, and for families created later. Changing to
    /// another policy does not switch it off.
    ///
    /// The call itself is a write: it removes keys if the data exceeds the new limit. Outside a
    /// transaction, a call that changes the limit also runs a checkpoint, which shortens the file
    /// and the WAL. If other connections block it, the next checkpoint shortens them.
    ///
    /// # Errors
    /// [`Error`](crate::ErrorKind::Error) if the limit is less than 32 pages, or if the store is on
    /// a server; [`Full`](crate::ErrorKind::Full) if the data exceeds the limit and must not be
    /// evicted; otherwise a [write error](crate#errors). Nothing is changed then.
    pub fn set_size_limit(&self, limit: Option<SizeLimit>) -> Result<()> {
        let session = self.session();
        let before = session.write(|db| db.change_limit(limit))?;
        if limit.is_some() && limit != before {
            // This fails only if the handle was closed just now; then the files need no shortening.
            let _ = session.with_uncounted(|db| {
                db.cut_files();
                Ok(())
            });
        }
        Ok(())
    }

    /// Sets the size limit of this store, the target of a copy, to that of the source, inside the
    /// caller's write transaction. For a store on a server, which has no size limit, this does
    /// nothing.
    ///
    /// # Errors
    /// [`Full`](ErrorKind::Full) if keys had to be evicted for the limit; otherwise as
    /// [`set_size_limit`](Store::set_size_limit). The message is about the copy. The caller must
    /// roll the transaction back.
    pub(crate) fn take_limit(&self, limit: SizeLimit) -> Result<()> {
        if !self.session().with(|db| Ok(db.can_have_limit()))? {
            return Ok(());
        }
        let evicted = self.stats()?.evicted;
        let why = |why: &dyn std::fmt::Display| {
            format!(
                "the size limit of {} bytes cannot be copied to the new store ({why}): set a limit in the new store first, or \
                 a larger one in the old store",
                limit.max_bytes
            )
        };
        match self.set_size_limit(Some(limit)) {
            Ok(()) if self.stats()?.evicted == evicted => Ok(()),
            Ok(()) => Err(Error::over_limit(why(&"the copied data takes more space there"))),
            Err(e) if e.dooms_transaction() => Err(e),
            Err(e) if e.kind() == ErrorKind::Full => Err(Error::over_limit(why(&e.message()))),
            Err(e) if e.kind() == ErrorKind::Error => Err(Error::invalid(why(&e.message()))),
            Err(e) => Err(e),
        }
    }

    /// Returns the size limit of this store; `None` if it has none.
    ///
    /// # Errors
    /// A [read error](crate#errors).
    pub fn size_limit(&self) -> Result<Option<SizeLimit>> {
        self.session().with(|db| db.size_limit())
    }
}
