//! What a fork leaves behind: which handles and open files belong to a parent process.
//!
//! SQLite keeps its locks per process, and its memory says "this process holds them" also in a
//! forked child, where it is no longer true. So a child may neither use an inherited handle nor
//! open a file that its parent had open when it forked.

use std::ffi::CStr;
use std::fs::{File, Metadata, OpenOptions};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

static GENERATION: AtomicU32 = AtomicU32::new(0);
static OPEN_FILES: Mutex<Vec<Entry>> = Mutex::new(Vec::new());

/// What a call on an inherited handle answers.
pub const INHERITED: &CStr = c"the handle was opened before a fork: open a new one in the child process";

/// Tells this process's handles from inherited ones.
pub fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Tells the library that this process is the child of a fork: handles from before answer
/// [`Misuse`](crate::ErrorKind::Misuse) from now on. Only adds to an atomic, as is allowed in a
/// handler of `pthread_atfork`, where the C API calls it.
pub fn note_fork() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// Device and inode.
pub(crate) type FileIdentity = (u64, u64);

#[derive(PartialEq, Eq, Clone, Copy)]
struct Entry {
    identity: FileIdentity,
    generation: u32,
}

/// An open store file, on the list while this lives.
pub(crate) struct OpenFile(Entry);

impl OpenFile {
    /// Puts the file at `path` on the list; makes it, empty, if it is not there and `create` says so.
    /// `check` looks at the file before anybody opens it; it is not called if this process has the
    /// file open already.
    ///
    /// Opening and closing a file by other means than SQLite's drops the locks this process has on it.
    /// So the list is locked meanwhile, and whoever wants to open the file through SQLite waits.
    ///
    /// # Errors
    /// [`Error::Misuse`] if this process inherited the open file through a fork; what `check` says.
    pub(crate) fn register(
        path: &Path,
        create: bool,
        check: impl FnOnce(&mut File) -> Result<()>,
    ) -> Result<OpenFile> {
        let failed = |e: std::io::Error| Error::CantOpen(format!("cannot open the file: {e}"));
        with_open_files(|files| {
            if create && std::fs::metadata(path).is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound) {
                new_file().open(path).map_err(failed)?;
            }
            let identity = identity(&std::fs::metadata(path).map_err(failed)?);
            let entry = Entry { identity, generation: generation() };
            if files.iter().any(|f| f.identity == identity && f.generation != entry.generation) {
                return Err(Error::Misuse(
                    "this process was forked while its parent had the file open; open the store only after the \
                     fork, or close it before, or start the child with exec or spawn"
                        .into(),
                ));
            }
            if !files.contains(&entry) {
                check(&mut File::open(path).map_err(failed)?)?;
            }
            files.push(entry);
            Ok(OpenFile(entry))
        })?
    }
}

impl OpenFile {
    pub(crate) fn identity(&self) -> FileIdentity {
        self.0.identity
    }
}

/// With the rights SQLite gives its files: at most 0644, less the umask.
pub(crate) fn new_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o644);
    options
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

fn with_open_files<T>(f: impl FnOnce(&mut Vec<Entry>) -> T) -> Result<T> {
    lock(&OPEN_FILES).map(|mut files| f(&mut files)).ok_or_else(|| {
        Error::Misuse(
            "this process was forked while its parent was opening a store; start the child with exec or spawn"
                .into(),
        )
    })
}

/// Locks one of the library's lists. `None`: a fork has copied it locked into this process, or so it seems, as
/// nobody has unlocked it for longer than a file can take to open.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    let is_child = generation() > 0;
    lock_within(mutex, Duration::from_secs(if is_child { 3 } else { 60 }))
}

fn lock_within<T>(mutex: &Mutex<T>, patience: Duration) -> Option<MutexGuard<'_, T>> {
    let mut since = None;
    for turn in 0_u64.. {
        match mutex.try_lock() {
            Ok(locked) => return Some(locked),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            // Nearly always it is held for less than a microsecond.
            Err(TryLockError::WouldBlock) if turn < 1000 => std::thread::yield_now(),
            Err(TryLockError::WouldBlock) => {
                if since.get_or_insert_with(Instant::now).elapsed() >= patience {
                    break;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
    None
}

#[cfg(unix)]
fn identity(metadata: &Metadata) -> FileIdentity {
    use std::os::unix::fs::MetadataExt;
    (metadata.dev(), metadata.ino())
}

#[cfg(not(unix))]
fn identity(_: &Metadata) -> FileIdentity {
    (0, 0) // no fork here
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    #[test]
    fn a_lock_that_is_held_while_a_slow_disk_opens_a_file_is_waited_for() {
        let mutex = Mutex::new(7);
        let (locked, is_locked) = channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                let _held = mutex.lock().unwrap();
                locked.send(()).unwrap();
                thread::sleep(Duration::from_millis(400));
            });
            is_locked.recv().unwrap();
            assert_eq!(lock_within(&mutex, Duration::from_secs(60)).map(|number| *number), Some(7));
        });
    }

    #[test]
    fn a_lock_that_nobody_will_ever_unlock_is_waited_for_only_so_long() {
        let mutex = Mutex::new(());
        let _held = mutex.lock().unwrap();
        assert!(lock_within(&mutex, Duration::from_millis(50)).is_none());
    }
}
