//! What a fork leaves behind: which handles and open files belong to a parent process.
//!
//! SQLite keeps its locks per process, and its memory says "this process holds them" also in a
//! forked child, where it is no longer true. So a child may neither use an inherited handle nor
//! open a file that its parent had open when it forked.

use std::fs::Metadata;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, TryLockError};

use crate::error::{Error, Result};

static GENERATION: AtomicU32 = AtomicU32::new(0);
static OPEN_FILES: Mutex<Vec<Entry>> = Mutex::new(Vec::new());

/// Tells this process's handles from inherited ones.
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Tells the library that this process is the child of a fork: handles from before answer
/// [`Misuse`](crate::ErrorKind::Misuse) from now on. Only adds to an atomic, as is allowed in a
/// handler of `pthread_atfork`, where the C API calls it.
pub fn note_fork() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

#[derive(PartialEq, Eq, Clone, Copy)]
struct Entry {
    identity: (u64, u64),
    generation: u32,
}

/// An open store file, on the list while this lives.
pub(crate) struct OpenFile(Entry);

impl OpenFile {
    /// Puts the file at `path` on the list.
    ///
    /// # Errors
    /// [`Error::Misuse`] if this process inherited the open file through a fork.
    pub(crate) fn register(path: &Path) -> Result<Option<OpenFile>> {
        let Ok(metadata) = std::fs::metadata(path) else {
            return Ok(None); // nothing there to be told apart; SQLite will say why
        };
        let file = Entry { identity: identity(&metadata), generation: generation() };
        with_open_files(|files| {
            if files.iter().any(|f| f.identity == file.identity && f.generation != file.generation) {
                return Err(Error::Misuse(
                    "this process was forked while its parent had the file open; open the store only after the \
                     fork, or close it before, or start the child with exec or spawn"
                        .into(),
                ));
            }
            files.push(file);
            Ok(Some(OpenFile(file)))
        })?
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        // A failure would only leave the entry, which forbids more than it must.
        let _ = with_open_files(|files| {
            if let Some(at) = files.iter().position(|f| *f == self.0) {
                files.swap_remove(at);
            }
        });
    }
}

/// The list's lock is held for nanoseconds only, but a fork may copy it locked into the child: so
/// wait for a while, not for ever.
fn with_open_files<T>(f: impl FnOnce(&mut Vec<Entry>) -> T) -> Result<T> {
    for _ in 0..100_000 {
        match OPEN_FILES.try_lock() {
            Ok(mut files) => return Ok(f(&mut files)),
            Err(TryLockError::Poisoned(poisoned)) => return Ok(f(&mut poisoned.into_inner())),
            Err(TryLockError::WouldBlock) => std::thread::yield_now(),
        }
    }
    Err(Error::Misuse(
        "this process was forked while its parent was opening a store; start the child with exec or spawn"
            .into(),
    ))
}

#[cfg(unix)]
fn identity(metadata: &Metadata) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt;
    (metadata.dev(), metadata.ino())
}

#[cfg(not(unix))]
fn identity(_: &Metadata) -> (u64, u64) {
    (0, 0) // no fork here
}
