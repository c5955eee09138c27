//! 64-bit atomic integers, also for 32-bit architectures without 64-bit atomics (MIPS, ARMv5).
//!
//! On those architectures an integer is two 32-bit halves, and one lock protects all integers. A
//! fork does not wait for this lock, because that could be a deadlock: the thread that has the lock
//! can also have a lock of the program, for which a fork handler of the program waits. Instead, the
//! child of a fork opens the lock.
//!
//! A child can therefore inherit an integer of which only one half was changed. The integers that
//! the child continues to use must do no harm in that state (a new handle of the child uses none of
//! the parent's):
//!
//! - The counters of a process (identities of files, reads) only grow. A half-changed counter is
//!   never greater than its new value, and less than it by at most 2^32, until it is changed the
//!   next time (see `update`).
//! - The latest time (`clock.rs`) grows, too, unless the system clock was set back (ADR 30).
//! - The names of partial files (`new_file.rs`) contain a counter, and the process id as well.
//! - The entries of descriptors (`os/unix/descriptors.rs`) are written inside the gate
//!   [`LISTS`](crate::fork::LISTS), which a fork shuts, or get their kind only when they are
//!   complete.

// `make test` checks with the setting that the crate compiles with the halves.
#[cfg(any(kvstore_split_atomics, not(target_has_atomic = "64")))]
pub(crate) use halves::{AtomicI64, AtomicU64};
#[cfg(not(any(kvstore_split_atomics, not(target_has_atomic = "64"))))]
pub(crate) use std::sync::atomic::{AtomicI64, AtomicU64};

/// Releases the lock of the split integers in the child of a fork, because a thread of the parent
/// may have held it at the fork. Call this before the child uses an integer of this module.
#[cfg(unix)]
pub(crate) fn let_go_after_fork() {
    #[cfg(any(test, kvstore_split_atomics, not(target_has_atomic = "64")))]
    halves::LOCK.open();
}

#[cfg(any(test, kvstore_split_atomics, not(target_has_atomic = "64")))]
pub(crate) mod halves {
    use std::sync::atomic::{AtomicU32, Ordering};

    use crate::fork::Gate;

    /// Lock that protects all integers of this module. It is held for a few instructions that call
    /// nothing else. It is a [`Gate`] and not a `Mutex`, because the child of a fork can release a
    /// gate.
    pub(super) static LOCK: Gate = Gate::new();

    #[derive(Debug, Default)]
    struct Halves(AtomicU32, AtomicU32);

    impl Halves {
        const fn new(value: u64) -> Halves {
            Halves(AtomicU32::new((value >> 32) as u32), AtomicU32::new(value as u32))
        }

        /// Replaces the value by the result of `change`. Returns the old value.
        ///
        /// The lock orders all changes, more strictly than any `Ordering` requires. The low half is
        /// stored first: a value that grows is, half-changed, less than its new value.
        fn update(&self, change: impl FnOnce(u64) -> u64) -> u64 {
            LOCK.shut();
            let halves = [&self.0, &self.1].map(|half| u64::from(half.load(Ordering::Relaxed)));
            let was = halves[0] << 32 | halves[1];
            let new = change(was);
            self.1.store(new as u32, Ordering::Relaxed);
            self.0.store((new >> 32) as u32, Ordering::Release);
            LOCK.open();
            was
        }
    }

    /// Replacement for `std::sync::atomic::AtomicU64` on architectures without 64-bit atomics, with
    /// the methods that this crate uses.
    #[derive(Debug, Default)]
    pub(crate) struct AtomicU64(Halves);

    #[cfg_attr(target_has_atomic = "64", allow(dead_code, reason = "used on other processors"))]
    impl AtomicU64 {
        pub(crate) const fn new(value: u64) -> AtomicU64 {
            AtomicU64(Halves::new(value))
        }

        pub(crate) fn load(&self, _: Ordering) -> u64 {
            self.0.update(|value| value)
        }

        pub(crate) fn store(&self, value: u64, _: Ordering) {
            self.0.update(|_| value);
        }

        pub(crate) fn fetch_add(&self, more: u64, _: Ordering) -> u64 {
            self.0.update(|value| value.wrapping_add(more))
        }

        /// Runs `stay` while this thread holds the lock. For tests.
        #[cfg(all(test, unix))]
        pub(crate) fn stay_inside(&self, stay: impl FnOnce()) {
            self.0.update(|value| {
                stay();
                value
            });
        }
    }

    /// Replacement for `std::sync::atomic::AtomicI64` on architectures without 64-bit atomics, with
    /// the methods that this crate uses.
    #[derive(Debug, Default)]
    pub(crate) struct AtomicI64(Halves);

    #[cfg_attr(target_has_atomic = "64", allow(dead_code, reason = "used on other processors"))]
    impl AtomicI64 {
        pub(crate) const fn new(value: i64) -> AtomicI64 {
            AtomicI64(Halves::new(value as u64))
        }

        pub(crate) fn load(&self, _: Ordering) -> i64 {
            self.0.update(|value| value) as i64
        }

        pub(crate) fn store(&self, value: i64, _: Ordering) {
            self.0.update(|_| value as u64);
        }

        pub(crate) fn fetch_max(&self, other: i64, _: Ordering) -> i64 {
            self.0.update(|value| (value as i64).max(other) as u64) as i64
        }

        pub(crate) fn compare_exchange(
            &self,
            current: i64,
            new: i64,
            _: Ordering,
            _: Ordering,
        ) -> Result<i64, i64> {
            let is_current = |value| value == current as u64;
            let was = self.0.update(|value| if is_current(value) { new as u64 } else { value });
            if is_current(was) { Ok(was as i64) } else { Err(was as i64) }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::halves::{AtomicI64, AtomicU64};

    const ANY: Ordering = Ordering::Relaxed;

    #[test]
    fn split_64_bit_atomics_lose_no_update_between_threads() {
        let (sum, latest) = (AtomicU64::new(u64::from(u32::MAX) - 10), AtomicI64::new(-7));
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (sum, latest) = (&sum, &latest);
                scope.spawn(move || {
                    for n in 0..2_000_i64 {
                        sum.fetch_add(1 << 31, ANY);
                        assert!(latest.fetch_max(n << 30 | thread, ANY) <= (1_999 << 30 | 3));
                    }
                });
            }
        });
        assert_eq!(sum.load(ANY), u64::from(u32::MAX) - 10 + 8_000 * (1 << 31));
        assert_eq!(latest.load(ANY), 1_999 << 30 | 3);
    }

    #[test]
    fn split_64_bit_atomics_match_std_atomics() {
        for value in [i64::MIN, -1, 0, 1, i64::from(u32::MAX), 1 << 32, i64::MAX] {
            let (ours, theirs) = (AtomicI64::new(value), std::sync::atomic::AtomicI64::new(value));
            for other in [i64::MIN, -2, 0, 1 << 40, i64::MAX] {
                assert_eq!(ours.fetch_max(other, ANY), theirs.fetch_max(other, ANY));
                assert_eq!(ours.load(ANY), theirs.load(ANY));
                for new in [7, other] {
                    assert_eq!(
                        ours.compare_exchange(other, new, ANY, ANY),
                        theirs.compare_exchange(other, new, ANY, ANY)
                    );
                    assert_eq!(ours.load(ANY), theirs.load(ANY));
                }
            }
            let (ours, theirs) = (AtomicU64::default(), std::sync::atomic::AtomicU64::default());
            ours.store(value as u64, ANY);
            theirs.store(value as u64, ANY);
            assert_eq!(ours.fetch_add(u64::MAX - 3, ANY), theirs.fetch_add(u64::MAX - 3, ANY));
            assert_eq!(ours.load(ANY), theirs.load(ANY));
        }
    }
}
