//! The open handles of this process by file, for one purpose: a checkpoint can only write and reset the WAL
//! up to the oldest snapshot in use, and idle handles keep theirs (see `db/engine/btree/session.rs`). So a
//! handle that is about to checkpoint tells the others on its file to give theirs up.

use std::sync::{Arc, Mutex, TryLockError, Weak};

use crate::inner::Inner;

static HANDLES: Mutex<Vec<Weak<Inner>>> = Mutex::new(Vec::new());

/// Puts a handle on the list.
pub(crate) fn register(inner: &Arc<Inner>) {
    // The lock is held for moments only, but a fork may have copied it locked: then there is no list.
    for _ in 0..100_000 {
        let mut handles = match HANDLES.try_lock() {
            Ok(handles) => handles,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                std::thread::yield_now();
                continue;
            }
        };
        handles.retain(|handle| handle.strong_count() > 0);
        handles.push(Arc::downgrade(inner));
        return;
    }
}

/// Makes the other handles on the same file give up the snapshots they keep.
pub(crate) fn let_go(asking: &Inner) {
    // Upgraded handles are dropped without the list's lock: the last one closes its connection.
    let others: Vec<_> = {
        // Not waited for: a fork may have copied it locked.
        let Ok(handles) = HANDLES.try_lock() else { return };
        handles
            .iter()
            .filter(|handle| !std::ptr::eq(handle.as_ptr(), asking))
            .filter_map(Weak::upgrade)
            .collect()
    };
    for other in others.iter().filter(|other| other.file.is_some() && other.file == asking.file) {
        other.let_reads_go();
    }
}
