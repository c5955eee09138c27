//! Encryption of a store that is there: in place, or taken off it. What it does to the file is in `db/file/convert.rs`.

use super::Store;
use crate::error::Result;
#[cfg(feature = "encryption")]
use {
    super::cleaner,
    crate::config::Config,
    crate::db::TransactionState,
    crate::error::{Error, ErrorKind},
    crate::secret::Secret,
    crate::shared::{neighbours, read_only},
    std::path::Path,
    std::time::{Duration, Instant},
};

/// Between two tries of who finds another at it.
#[cfg(feature = "encryption")]
const PAUSE: Duration = Duration::from_millis(10);

impl Store {
    /// Whether the file is encrypted.
    ///
    /// # Errors
    /// Only those of a closed handle.
    pub fn is_encrypted(&self) -> Result<bool> {
        #[cfg(feature = "encryption")]
        return self.shared().with(|db| Ok(db.is_encrypted()));
        #[cfg(not(feature = "encryption"))]
        self.shared().count_failure(self.shared().check_open()).map(|()| false)
    }
}

#[cfg(feature = "encryption")]
impl Store {
    /// Opens the store at `path` with the secret of `config`, as [`open_with`](Store::open_with) does; a store there that
    /// is not encrypted is [encrypted](Store::encrypt) with it first.
    ///
    /// # Errors
    /// As [`open_with`](Store::open_with) and [`encrypt`](Store::encrypt); `Error` if `config` has no secret.
    pub fn open_encrypted(path: impl AsRef<Path>, config: &Config) -> Result<Store> {
        let path = path.as_ref();
        let Some(secret) = config.file.secret.clone() else {
            return Err(Error::invalid("there is no password and no key to open an encrypted store with"));
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
                    // Another process may be doing the same.
                    Err(e) if has_time(&e) => {}
                    done => return done.map(|()| plain),
                },
                Err(e) if has_time(&e) => {}
                // Another one may have done so just now.
                Err(e) if e.kind() == ErrorKind::AuthFailed && !tried => tried = true,
                Err(e) if e.kind() == ErrorKind::AuthFailed => return Err(error),
                Err(e) => return Err(e),
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Encrypts the store in place: all families with their keys, times and settings, and whatever else is in the file.
    /// This handle, its families and iterators go on; others need the secret from now on.
    ///
    /// If it fails, or the process dies or the power is cut on the way, the file is the old one or the new one, never
    /// anything else. The file stays the same one (its owner, its mode), and what it had in it is overwritten: in the
    /// file, its WAL and its journal. (Not what a file system that copies on write, a flash memory, or a backup keeps.)
    /// It takes twice the size of the store on the disk meanwhile.
    ///
    /// # Errors
    /// `Error` if it is encrypted, lives in memory, or the secret is an empty password; [`Busy`](ErrorKind::Busy) while
    /// it is open elsewhere, in this process or another (one of another program that has it open idly, with a rollback
    /// journal, is not seen: it finds no database there afterwards), or while a transaction is open on this handle;
    /// [`CantOpen`](ErrorKind::CantOpen) if its path leads to another file by now, or it has a second name;
    /// [`ReadOnly`](ErrorKind::ReadOnly), [`Full`](ErrorKind::Full), [`Io`](ErrorKind::Io),
    /// [`Corrupt`](ErrorKind::Corrupt). Nothing is changed then (but that the cleaner, which has a connection of its own and
    /// is started anew afterwards, may not find what it needs for that, and has ended, also after a success); but if the disk fails at the very end, with `Io`, only an
    /// open with the one secret or the other tells which the file has.
    pub fn encrypt(&self, with: &Secret) -> Result<()> {
        self.convert(
            false,
            Some(with),
            "the store is encrypted already: give it another password by rekey (in C, kvstore_reencrypt)",
        )
    }

    /// Encrypts an encrypted store with another secret, in place; as [`encrypt`](Store::encrypt). With the old one it
    /// cannot be opened any more.
    ///
    /// # Errors
    /// As [`encrypt`](Store::encrypt); `Error` if it is not encrypted.
    pub fn rekey(&self, with: &Secret) -> Result<()> {
        self.convert(
            true,
            Some(with),
            "the store is not encrypted: encrypt it (in C, kvstore_open_encrypted)",
        )
    }

    /// Takes the encryption off a store, in place; as [`encrypt`](Store::encrypt).
    ///
    /// # Errors
    /// As [`encrypt`](Store::encrypt); `Error` if it is not encrypted.
    pub fn decrypt(&self) -> Result<()> {
        self.convert(true, None, "the store is not encrypted")
    }

    fn convert(&self, is_encrypted: bool, to: Option<&Secret>, otherwise: &str) -> Result<()> {
        let shared = self.shared();
        shared.count_failure(shared.check_open())?;
        // The cleaner has a connection of its own. None starts meanwhile, nor does this handle close.
        let mut cleaner = shared.cleaner();
        let paused = cleaner.take().map(|running| {
            running.worker.stop();
            (running.interval, running.max_keys)
        });
        let converted = shared.with(|db| {
            if db.is_encrypted() != is_encrypted {
                return Err(Error::invalid(otherwise));
            }
            if db.is_read_only() {
                return Err(read_only());
            }
            if *db.transaction() != TransactionState::None {
                return Err(Error::busy("a transaction is open on this handle: commit or roll back first"));
            }
            if !neighbours::has_none(shared) {
                return Err(Error::busy(
                    "another handle of this process has the store open: close it first, or convert the store where \
                     it is open once",
                ));
            }
            shared.note_change();
            let before = db.with_its_secret(&shared.config);
            let after = match to {
                Some(secret) => before.clone().for_encryption().secret(secret),
                None => before.clone().without_secret(),
            };
            db.convert(&before, &after)
        });
        if let Some((interval, max_keys)) = paused {
            // The file is what `converted` says, whether or not it can be started again.
            *cleaner = cleaner::start(shared, interval, max_keys).ok();
        }
        converted
    }
}
