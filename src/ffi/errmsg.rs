//! The texts that kvstore_errmsg gives: those of a store, and those of a thread. Which call failed with which
//! text is the knowledge of `call`.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// How many texts that kvstore_errmsg has given to a thread stay readable: enough for as many stores that each have
/// failed with another one.
const GIVEN_TEXTS: usize = 64;

const NO_ERROR: &CStr = c"no error";

/// What calls say that answer KVSTORE_NOTFOUND: constants, because a miss is nothing unusual, and must cost nothing.
pub(super) const NO_SUCH_KEY: &CStr = c"no such key";
pub(super) const NO_SUCH_FAMILY: &CStr = c"no such family";
pub(super) const NO_TTLS: &CStr = c"no key has a TTL";

/// The text of the last failure on one store.
#[derive(Default)]
pub(super) struct Texts {
    last: Mutex<Option<CString>>,
    /// The constant text of the last failure if that was a miss; NULL: the last one kept counts.
    miss: AtomicPtr<c_char>,
}

impl Texts {
    /// Keeps the text of a failure.
    pub(super) fn set(&self, text: &str) {
        let text = c_string(text);
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
        self.miss.store(null_mut(), Relaxed);
    }

    /// Says that a call has not found what it looked for. A miss is nothing unusual, so this costs one store:
    /// the text is never freed, and so needs neither a lock nor an order.
    #[inline]
    pub(super) fn set_miss(&self, text: &'static CStr) {
        self.miss.store(text.as_ptr().cast_mut(), Relaxed);
    }

    /// The text of the last failure. It is a copy that belongs to the calling thread, since other threads may fail with
    /// the same handle at any time.
    pub(super) fn last(&self) -> *const c_char {
        let miss = self.miss.load(Relaxed);
        if !miss.is_null() {
            return miss;
        }
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().map_or(NO_ERROR.as_ptr(), |text| given(text))
    }
}

/// The calling thread's copy of a text. A thread that is ending gets none.
fn given(text: &CStr) -> *const c_char {
    GIVEN
        .try_with(|given| {
            let mut given = given.borrow_mut();
            // What is given once more becomes the latest; its bytes stay where they are.
            let text = match given.iter().position(|known| known.as_c_str() == text) {
                Some(at) => given.remove(at),
                None => {
                    if given.len() >= GIVEN_TEXTS {
                        given.remove(0);
                    }
                    text.to_owned()
                }
            };
            let start = text.as_ptr();
            given.push(text);
            start
        })
        .unwrap_or(THREAD_IS_ENDING.as_ptr())
}

const THREAD_IS_ENDING: &CStr = c"the call failed; this thread is ending, and keeps no text of it";

thread_local! {
    /// What kvstore_errmsg has given to this thread, the latest last.
    static GIVEN: RefCell<Vec<CString>> = const { RefCell::new(Vec::new()) };
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
    fn a_text_that_was_given_stays_readable_though_other_threads_fail_meanwhile() {
        let texts = Texts::default();
        texts.set("first");
        let first = texts.last();
        std::thread::scope(|scope| {
            scope.spawn(|| (0..100).for_each(|n| texts.set(&n.to_string())));
        });
        // SAFETY: given to this thread, which has asked for no other.
        assert_eq!(unsafe { CStr::from_ptr(first) }, c"first");
        // SAFETY: as above.
        assert_eq!(unsafe { CStr::from_ptr(texts.last()) }, c"99");
        assert_eq!(texts.last(), texts.last());
        for n in 2..GIVEN_TEXTS {
            texts.set(&n.to_string());
            texts.last();
        }
        // SAFETY: it has asked for as many as are kept.
        assert_eq!(unsafe { CStr::from_ptr(first) }, c"first");
        // Asked for once more, it is the latest.
        texts.set("first");
        assert_eq!(texts.last(), first);
        let other = Texts::default();
        for n in 1..GIVEN_TEXTS {
            other.set(&format!("other {n}"));
            other.last();
        }
        // SAFETY: fewer texts than are kept were given since.
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
