//! Open handles of this process by file.
//!
//! A checkpoint can only write and reset the WAL up to the oldest snapshot in use, and idle handles
//! keep theirs (see `backend/file/engine/btree/session.rs`). So a handle that is about to checkpoint
//! asks the other handles on its file to release theirs.

use std::sync::{Arc, Mutex, Weak};

use crate::backend::FileIdentity;
use crate::fork::with_list;
use crate::shared::{Seat, Shared};

static HANDLES: Mutex<Vec<(FileIdentity, Weak<Seat>)>> = Mutex::new(Vec::new());

/// Adds a handle to the list of open handles of this process.
pub(crate) fn register(shared: &Shared) {
    let Some(file) = shared.file else { return };
    with_list(&HANDLES, |handles| {
        handles.retain(|(_, seat)| seat.strong_count() > 0);
        handles.push((file, Arc::downgrade(shared.seat())));
    });
}

/// Makes the other handles on the same file release the snapshots that they keep.
pub(crate) fn let_go(asking: &Shared) {
    others(asking).iter().for_each(|other| other.let_reads_go());
}

/// Returns `true` if no other handle on the same file is open.
#[cfg(feature = "encryption")]
pub(crate) fn has_none(asking: &Shared) -> bool {
    others(asking).iter().all(|other| other.is_closed())
}

/// Returns the connections of the other handles on the same file.
fn others(asking: &Shared) -> Vec<Arc<Seat>> {
    let Some(file) = asking.file else { return Vec::new() };
    let mut same_file = with_list(&HANDLES, |handles| -> Vec<_> {
        let same_file = handles.iter().filter(|(other, _)| *other == file);
        same_file.filter_map(|(_, seat)| seat.upgrade()).collect()
    });
    same_file.retain(|seat| !Arc::ptr_eq(seat, asking.seat()) && seat.is_of_this_process());
    same_file
}
