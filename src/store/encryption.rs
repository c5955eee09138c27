//! Encryption, decryption and change of the secret of an existing store. `backend/file/rekey.rs`
//! changes the file.

use super::Store;
use crate::error::Result;
#[cfg(feature = "encryption")]
use {
    super::cleaner,
    crate::backend::TransactionState,
    crate::config::Config,
    crate::error::{Error, ErrorKind},
    crate::hint::Hint,
    crate::secret::Secret,
    crate::session::read_only,
    crate::wait,
    std::path::Path,
    std::time::{Duration, Instant},
};

/// Pause between two attempts of [`Store::open_encrypted`] while another process may be encrypting
/// the store.
#[cfg(feature = "encryption")]
const PAUSE: Duration = Duration::from_millis(10);

impl Store {
    /// Returns `true` if the store is encrypted.
    ///
    /// # Errors
    /// [`Misuse`](crate::ErrorKind::Misuse) if the handle is closed.
    pub fn is_encrypted(&self) -> Result<bool> {
        #[cfg(feature = "encryption")]
        return self.session().with(|db| Ok(db.is_encrypted()));
        #[cfg(not(feature = "encryption"))]
        self.session().count_failure(self.session().check_open()).map(|()| false)
    }
}

#[cfg(feature = "encryption")]
impl Store {
    /// Opens the store at `path` with the secret of `config`, and creates it if it does not exist.
    /// A store that is not encrypted is first [encrypted](Store::encrypt) in place.
    ///
    /// # Errors
    /// [`Error`](ErrorKind::Error) if `config` has no secret; otherwise as
    /// [`open_with`](Store::open_with) and [`encrypt`](Store::encrypt).
    pub fn open_encrypted(path: impl AsRef<Path>, config: &Config) -> Result<Store> {
        let path = path.as_ref();
        let Some(secret) = config.file.secret.clone() else {
            return Err(Error::invalid("neither a password nor a key was given for the encrypted store")
                .with_hint(Hint::GivePassword));
        };
        let started = Instant::now();
        let has_time = |e: &Error| e.is_retryable() && started.elapsed() < config.busy_timeout;
        let mut tried = false;
        loop {
            let error = match Store::open_with(path, config) {
                Err(e) if e.kind() == ErrorKind::AuthFailed => e,
                opened => return opened,
            };
            match Store::open_with(path, &config.clone().without_secret()) {
                Ok(plain) => match plain.encrypt(&secret) {
                    // Another process may be encrypting the store at the same time.
                    Err(e) if has_time(&e) && !wait::is_ended() => {}
                    done => return done.map(|()| plain),
                },
                Err(e) if has_time(&e) && !wait::is_ended() => {}
                // Another process may have encrypted it just now.
                Err(e) if e.kind() == ErrorKind::AuthFailed && !tried => tried = true,
                Err(e) if e.kind() == ErrorKind::AuthFailed => return Err(error),
                Err(e) => return Err(e),
            }
            wait::pause(PAUSE);
        }
    }

    /// Encrypts the store in place: everything in its file.
    ///
    /// This handle, its families and iterators stay usable. Later opens need the secret. The file
    /// keeps its owner and mode, and its old content is overwritten in the file, its WAL and its
    /// journal. Copies that a copy-on-write file system, flash memory or a backup keeps are not
    /// overwritten. The conversion needs twice the size of the store on the disk.
    ///
    /// If the call fails, or if the process is killed or the power fails during the call, the file
    /// is afterwards either completely unchanged or completely encrypted.
    ///
    /// The cleaner has a connection of its own. It is stopped and started again; if it cannot be
    /// started again, it stays stopped without an error.
    ///
    /// # Errors
    /// Nothing is changed then.
    /// - [`Error`](ErrorKind::Error): the store is encrypted already, in memory or on a server, or
    ///   the password is empty.
    /// - [`Busy`](ErrorKind::Busy): a transaction is open on this handle, or another handle has the
    ///   store open, in this process or another. An idle handle of another program in DELETE
    ///   journal mode is not detected, and fails afterwards.
    /// - [`CantOpen`](ErrorKind::CantOpen): the path now leads to another file, or the file has a
    ///   second hard link.
    /// - `ReadOnly`, `Full`, `Io`, `Corrupt`, `NoMemory`, `Misuse`. If the disk fails at the very
    ///   end, with `Io`, only an open shows which of the two secrets the file has.
    pub fn encrypt(&self, with: &Secret) -> Result<()> {
        self.convert(
            false,
            Some(with),
            Error::invalid("the store is already encrypted").with_hint(Hint::Rekey),
        )
    }

    /// Replaces the secret of an encrypted store in place: its content is encrypted with the new
    /// one.
    ///
    /// Guarantees, disk space and conditions are those of [`encrypt`](Store::encrypt).
    ///
    /// # Errors
    /// [`Error`](ErrorKind::Error) if the store is not encrypted; otherwise as
    /// [`encrypt`](Store::encrypt).
    pub fn rekey(&self, with: &Secret) -> Result<()> {
        self.convert(true, Some(with), Error::invalid("the store is not encrypted").with_hint(Hint::Encrypt))
    }

    /// Removes the encryption of a store, in place.
    ///
    /// Guarantees, disk space and conditions are those of [`encrypt`](Store::encrypt).
    ///
    /// # Errors
    /// [`Error`](ErrorKind::Error) if the store is not encrypted; otherwise as
    /// [`encrypt`](Store::encrypt).
    pub fn decrypt(&self) -> Result<()> {
        self.convert(true, None, Error::invalid("the store is not encrypted"))
    }

    fn convert(&self, is_encrypted: bool, to: Option<&Secret>, otherwise: Error) -> Result<()> {
        let session = self.session();
        session.count_failure(session.check_open())?;
        // Stop the cleaner, which has a connection of its own. While the guard `cleaner` exists, no
        // cleaner can be started and this handle cannot be closed.
        let mut cleaner = session.cleaner();
        let paused = cleaner.take().map(|running| {
            running.worker.stop();
            (running.interval, running.max_keys)
        });
        let converted = session.with(|db| {
            if db.is_encrypted() != is_encrypted {
                return Err(otherwise);
            }
            if session.config.read_only {
                return Err(read_only());
            }
            if *db.transaction() != TransactionState::None {
                return Err(
                    Error::busy("a transaction is open on this handle").with_hint(Hint::EndTransaction)
                );
            }
            if !db.is_only_handle() {
                return Err(Error::busy(
                    "another handle of this process has the store open; a store can only be encrypted, \
                    decrypted or rekeyed by its only handle",
                )
                .with_hint(Hint::CloseOtherHandles));
            }
            session.note_change();
            let before = db.with_its_secret(&session.config);
            let after = match to {
                Some(secret) => before.clone().for_encryption().secret(secret),
                None => before.clone().without_secret(),
            };
            db.convert(&before, &after)
        });
        if let Some((interval, max_keys)) = paused {
            // If the cleaner cannot be started again, the call does not fail for that.
            *cleaner = cleaner::start(session, interval, max_keys).ok();
        }
        converted
    }
}
