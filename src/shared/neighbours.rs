//! The open handles of this process by file, for one purpose: a checkpoint can only write and reset the WAL
//! up to the oldest snapshot in use, and idle handles keep theirs (see `db/file/engine/btree/session.rs`). So a
//! handle that is about to checkpoint tells the others on its file to give theirs up.

use std::sync::{Arc, Mutex, Weak};

use crate::db::FileIdentity;
use crate::fork::with_list;
use crate::shared::{Seat, Shared};

static HANDLES: Mutex<Vec<(FileIdentity, Weak<Seat>)>> = Mutex::new(Vec::new());

/// Puts a handle on the list.
pub(crate) fn register(shared: &Shared) {
    let Some(file) = shared.file else { return };
    with_list(&HANDLES, |handles| {
        handles.retain(|(_, seat)| seat.strong_count() > 0);
        handles.push((file, Arc::downgrade(shared.seat())));
    });
}

/// Makes the other handles on the same file give up the snapshots they keep.
pub(crate) fn let_go(asking: &Shared) {
    let Some(file) = asking.file else { return };
    let others = with_list(&HANDLES, |handles| -> Vec<_> {
        let same_file = handles.iter().filter(|(other, _)| *other == file);
        same_file.filter_map(|(_, seat)| seat.upgrade()).collect()
    });
    for other in others.iter().filter(|seat| !Arc::ptr_eq(seat, asking.seat())) {
        other.let_reads_go();
    }
}
