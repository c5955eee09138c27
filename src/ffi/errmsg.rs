//! The texts that kvstore_errmsg gives: those of a store, and those of a thread. Which call failed with which
//! text is the knowledge of `call`.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// How many error texts of a handle stay readable: the contract promises the last one, but another
/// thread may fail between this thread's failure and its kvstore_errmsg.
const KEPT_TEXTS: usize = 16;

const NO_ERROR: &CStr = c"no error";

/// What calls say that answer KVSTORE_NOTFOUND: constants, because a miss is nothing unusual, and must cost nothing.
pub(super) const NO_SUCH_KEY: &CStr = c"no such key";
pub(super) const NO_SUCH_FAMILY: &CStr = c"no such family";
pub(super) const NO_TTLS: &CStr = c"no key has a TTL";

/// The texts of the failures on one store.
#[derive(Default)]
pub(super) struct Texts {
    kept: Mutex<Kept>,
    /// The constant text of the last failure if that was a miss; NULL: the last one kept counts.
    miss: AtomicPtr<c_char>,
}

#[derive(Default)]
struct Kept {
    ring: [CString; KEPT_TEXTS],
    last: Option<usize>,
}

impl Texts {
    /// Keeps the text of a failure.
    pub(super) fn set(&self, text: &str) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let next = kept.last.map_or(0, |last| (last + 1) % KEPT_TEXTS);
        if let Some(place) = kept.ring.get_mut(next) {
            *place = c_string(text);
        }
        kept.last = Some(next);
        self.miss.store(null_mut(), Relaxed);
    }

    /// Says that a call has not found what it looked for. A miss is nothing unusual, so this costs one store:
    /// the text is never freed, and so needs neither a lock nor an order.
    #[inline]
    pub(super) fn set_miss(&self, text: &'static CStr) {
        self.miss.store(text.as_ptr().cast_mut(), Relaxed);
    }

    /// The text of the last failure. Valid until as many have followed as texts are kept.
    pub(super) fn last(&self) -> *const c_char {
        let miss = self.miss.load(Relaxed);
        if !miss.is_null() {
            return miss;
        }
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let last = kept.last.and_then(|last| kept.ring.get(last));
        last.map_or(NO_ERROR.as_ptr(), |text| text.as_ptr())
    }
}

thread_local! {
    static THREAD_ERROR: RefCell<CString> = RefCell::new(CString::from(NO_ERROR));
}

/// The text of this thread's last failure without a handle. A thread that is ending keeps none any more.
pub(super) fn thread_error() -> *const c_char {
    THREAD_ERROR.try_with(|text| text.borrow().as_ptr()).unwrap_or(NO_ERROR.as_ptr())
}

pub(super) fn set_thread_error(text: &str) {
    let _ = THREAD_ERROR.try_with(|kept| *kept.borrow_mut() = c_string(text));
}

fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', "?")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_text_stays_readable_while_a_few_more_calls_fail() {
        let texts = Texts::default();
        texts.set("first");
        let first = texts.last();
        for _ in 1..KEPT_TEXTS {
            texts.set("later");
        }
        // SAFETY: fewer failures followed than texts are kept.
        assert_eq!(unsafe { CStr::from_ptr(first) }, c"first");
    }

    #[test]
    fn of_a_miss_and_a_failure_the_later_one_counts() {
        let texts = Texts::default();
        // SAFETY: constant, or the last text, which nothing follows before it is read.
        let last = || unsafe { CStr::from_ptr(texts.last()) }.to_owned();
        assert_eq!(last().as_c_str(), NO_ERROR);
        texts.set_miss(NO_SUCH_KEY);
        assert_eq!(last().as_c_str(), NO_SUCH_KEY);
        texts.set("failed");
        assert_eq!(last().as_c_str(), c"failed");
        texts.set_miss(NO_SUCH_KEY);
        assert_eq!(last().as_c_str(), NO_SUCH_KEY);
    }
}
