//! Open handles of this process by file.
//!
//! A checkpoint can only write and reset the WAL up to the oldest snapshot in use, and idle handles
//! keep theirs (see `engine/btree/session.rs`). So a connection that is about to checkpoint asks the
//! other handles on its file to release theirs.

use std::sync::{Arc, Mutex, Weak};

use super::os::FileIdentity;
use crate::fork::{self, with_list};

/// A handle that other handles of the process can reach.
pub(crate) trait OpenHandle: Send + Sync {
    /// Releases the snapshot that the handle keeps between reads: now, or when the thread that uses
    /// the handle is done.
    fn release_snapshot(&self);

    /// Returns `true` if the connection was closed. A connection in use counts as open.
    #[cfg(feature = "encryption")]
    fn is_closed(&self) -> bool;
}

struct Entry {
    file: FileIdentity,
    /// Fork generation of the connection: the child of a fork has copies of the connections of its
    /// parent.
    generation: u32,
    handle: Weak<dyn OpenHandle>,
}

static HANDLES: Mutex<Vec<Entry>> = Mutex::new(Vec::new());

/// The place of one handle in the list of open handles of this process.
pub(super) struct Registration {
    file: FileIdentity,
    handle: Weak<dyn OpenHandle>,
}

impl Registration {
    /// Adds a handle on this file to the list.
    pub(super) fn new(file: FileIdentity, handle: Weak<dyn OpenHandle>) -> Registration {
        let registered = Weak::clone(&handle);
        with_list(&HANDLES, |handles| {
            handles.retain(|entry| entry.handle.strong_count() > 0);
            handles.push(Entry { file, generation: fork::generation(), handle: registered });
        });
        Registration { file, handle }
    }

    /// Makes the other handles on the same file release the snapshots that they keep.
    pub(super) fn release_other_snapshots(&self) {
        self.others().iter().for_each(|other| other.release_snapshot());
    }

    /// Returns `true` if no other handle on the same file is open.
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
