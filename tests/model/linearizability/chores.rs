//! Maintenance work between reads and writes: purges, checkpoints, creating and dropping families,
//! backups, reopening.

use std::path::Path;

use kvstore::{CheckpointMode, Expiry, Result, Store};

use super::{Worker, now_ms};
use crate::linearizability::values::FAMILIES;

impl Worker<'_> {
    pub(super) fn chore(&mut self) {
        match self.random(24) {
            0..6 => {
                let number = usize::try_from(self.random(FAMILIES.len() as i64)).unwrap();
                let Some(family) = self.family(number) else { return };
                let done = family.purge_expired();
                self.unless_busy(done);
            }
            6..10 => {
                let done = self.store().purge_step(Some(1 + self.random(20).unsigned_abs()), None);
                self.unless_busy(done);
            }
            10..14 => {
                let modes = [
                    CheckpointMode::Passive,
                    CheckpointMode::Full,
                    CheckpointMode::Restart,
                    CheckpointMode::Truncate,
                ];
                let mode = modes[usize::try_from(self.random(4)).unwrap()];
                let done = self.store().checkpoint(mode);
                self.unless_busy(done);
            }
            14 | 15 => {
                let done = self.store().incremental_vacuum(Some(4));
                self.unless_busy(done);
            }
            16..20 => self.come_and_go(),
            20 => {
                let done = self.store().sync();
                self.unless_busy(done);
            }
            21 if self.one_in(3) => self.back_up(),
            22 if self.one_in(3) => {
                let done = self.store().integrity_check();
                self.read(done);
            }
            23 if self.is_alone && self.run.path.is_some() => self.reopen(),
            _ => {}
        }
    }

    /// Creates, uses and drops a family. Root pages move and the schema changes while other workers
    /// use the store.
    fn come_and_go(&mut self) {
        let name = format!("passing {}", self.number);
        let store = self.own.as_ref().unwrap_or(self.shared);
        let done = (|| -> Result<()> {
            let family = store.get_or_create_family(&name)?;
            let value = vec![7; 3_000];
            family.put("a", &value)?;
            family.put_with_expiry("b", "2", Expiry::At(now_ms() + 1_000_000))?;
            assert_eq!(family.get("a")?.as_ref(), Some(&value));
            assert_eq!(family.get("b")?.as_deref(), Some(&b"2"[..]));
            assert_eq!(family.count()?, 2);
            drop(family);
            store.drop_family(&name)
        })();
        self.unless_busy(done);
    }

    fn back_up(&mut self) {
        if self.run.path.is_none() {
            return;
        }
        self.files += 1;
        let copy = self.run.folder.join(format!("copy {} {}", self.number, self.files));
        let done = self.store().backup(&copy, |_, _| true);
        if self.unless_busy(done).is_some() {
            check_copy(&copy);
        }
    }

    /// The last close checkpoints and removes the WAL, and an open creates it again, while other
    /// workers open the store.
    fn reopen(&mut self) {
        self.families = [const { None }; FAMILIES.len()];
        if let Some(store) = self.own.take() {
            store.close().unwrap();
        } else {
            // The idle handle releases its snapshot at its next SQL statement. If it kept the
            // snapshot, checkpoints of other processes would wait for their whole timeout, and
            // block other workers.
            let idle = self.shared.family_names();
            self.read(idle);
            let opened = self.run.open(self.handle);
            self.own = self.unless_busy(opened);
        }
    }
}

fn check_copy(copy: &Path) {
    let store = Store::open(copy).unwrap();
    store.integrity_check().unwrap();
    store.close().unwrap();
    std::fs::remove_file(copy).unwrap();
}
