//! Cleanup when a callback of the caller panics. This module depends on nothing else.

/// Runs `f` on `subject` and returns its result. If `f` panics, runs `undo` on `subject`, and the
/// panic continues.
#[inline(always)]
pub(crate) fn or_undo<S, R>(subject: S, f: impl FnOnce(&mut S) -> R, undo: impl FnOnce(&mut S)) -> R {
    struct Undo<S, F: FnOnce(&mut S)> {
        subject: S,
        undo: Option<F>,
    }

    impl<S, F: FnOnce(&mut S)> Drop for Undo<S, F> {
        fn drop(&mut self) {
            if let Some(undo) = self.undo.take() {
                undo(&mut self.subject);
            }
        }
    }

    let mut armed = Undo { subject, undo: Some(undo) };
    let done = f(&mut armed.subject);
    armed.undo = None;
    done
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

    use super::*;

    #[test]
    fn undo_runs_only_after_panic() {
        let mut undone = 0;
        assert_eq!(or_undo(&mut undone, |_| 7, |undone| **undone += 1), 7);
        assert_eq!(undone, 0);
        let panics = || or_undo(&mut undone, |_| resume_unwind(Box::new("on")), |undone| **undone += 1);
        let panic = catch_unwind(AssertUnwindSafe(panics)).unwrap_err();
        assert_eq!((undone, panic.downcast_ref::<&str>()), (1, Some(&"on")));
    }
}
