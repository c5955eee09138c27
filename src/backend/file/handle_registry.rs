//! List of the open handles of this process, each with the file that it has open.
//!
//! A checkpoint copies the WAL only up to the oldest snapshot in use, and idle handles keep their
//! snapshots (see `engine/btree/connection.rs`). So before a checkpoint, a connection asks the other
//! handles on its file to release their snapshots.

use std::sync::{Arc, Mutex, Weak};

use super::os::FileIdentity;
use crate::fork::{self, with_list};

/// Open handle of this process: the methods that other handles on the same file call.
pub(crate) trait OpenHandle: Send + Sync {
    /// Releases the snapshot that the handle keeps between reads. If another thread is using the
    /// handle, that thread releases the snapshot when its call ends.
    fn release_snapshot(&self);

    /// Returns `true` if the connection of the handle was closed. A connection that another thread
    /// is using counts as open.
    #[cfg(feature = "encryption")]
    fn is_closed(&self) -> bool;
}

struct Entry {
    file: FileIdentity,
    /// Fork generation in which the handle was added. It distinguishes the handles of this process
    /// from the copies of its parent's handles that the child of a fork has.
    generation: u32,
    handle: Weak<dyn OpenHandle>,
}

static HANDLES: Mutex<Vec<Entry>> = Mutex::new(Vec::new());

/// Membership of a handle in the list of open handles of this process. It gives the handle access
/// to the other open handles on the same file.
pub(super) struct Registration {
    file: FileIdentity,
    handle: Weak<dyn OpenHandle>,
}

impl Registration {
    /// Adds a handle that has `file` open to the list.
    pub(super) fn new(file: FileIdentity, handle: Weak<dyn OpenHandle>) -> Registration {
        let registered = Weak::clone(&handle);
        with_list(&HANDLES, |handles| {
            handles.retain(|entry| entry.handle.strong_count() > 0);
            handles.push(Entry { file, generation: fork::generation(), handle: registered });
        });
        Registration { file, handle }
    }

    /// Makes the other handles of this process on the same file release the snapshots that they
    /// keep between reads.
    pub(super) fn release_other_snapshots(&self) {
        self.others().iter().for_each(|other| other.release_snapshot());
    }

    /// Returns `true` if no other handle of this process on the same file is open.
    #[cfg(feature = "encryption")]
    pub(super) fn is_only_one(&self) -> bool {
        self.others().iter().all(|other| other.is_closed())
    }

    fn others(&self) -> Vec<Arc<dyn OpenHandle>> {
        let generation = fork::generation();
        with_list(&HANDLES, |handles| {
            let others = handles.iter().filter(|entry| {
                entry.file == self.file
                    && entry.generation == generation
                    && !Weak::ptr_eq(&entry.handle, &self.handle)
            });
            others.filter_map(|entry| entry.handle.upgrade()).collect()
        })
    }
}
