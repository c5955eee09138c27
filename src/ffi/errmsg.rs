//! Last errors of stores and threads, which kvstore_errmsg, kvstore_errreason and kvstore_errhint
//! return. `call` sets them when a call fails.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use super::hint::{KVSTORE_HINT_NONE, number_of, text_of};
use crate::Error;

/// Number of different error texts, of those returned to one thread, that stay valid. A further
/// text frees the oldest one. A thread can thus read the error texts of 64 stores together.
const GIVEN_TEXTS: usize = 64;

const NO_ERROR: &CStr = c"no error";

/// Error text of a lookup that found no key (KVSTORE_NOTFOUND). It is a constant, because such
/// lookups are common and their error must cost nothing.
pub(super) const NO_SUCH_KEY: &CStr = c"no such key";
/// Error text of a call that asks for the next expiry time, if no key has one (KVSTORE_NOTFOUND).
pub(super) const NO_TTLS: &CStr = c"no key has a TTL";

/// Texts and hint number of an error, as the C API returns them.
struct Kept {
    /// Message of the error, followed by its hint.
    whole: CString,
    /// Message of the error, without the hint.
    reason: CString,
    hint: c_int,
}

impl Kept {
    fn of(error: &Error) -> Kept {
        let reason = c_string(error.message());
        let hint = error.hint().map_or(KVSTORE_HINT_NONE, number_of);
        Kept { whole: c_string(&text_for_c(error)), reason, hint }
    }
}

/// Returns the message and the hint of an error in the words of the C API.
pub(super) fn text_for_c(error: &Error) -> String {
    match error.hint() {
        Some(hint) => format!("{}: {}", error.message(), text_of(hint).to_string_lossy()),
        None => error.message().to_owned(),
    }
}

/// Part of the text of an error that a C call asks for: the message with the hint (`Whole`), or the
/// message alone (`Reason`).
#[derive(Clone, Copy)]
pub(super) enum Part {
    Whole,
    Reason,
}

impl Part {
    fn of(self, kept: &Kept) -> &CStr {
        match self {
            Part::Whole => &kept.whole,
            Part::Reason => &kept.reason,
        }
    }
}

/// Last error of the calls on one store handle.
#[derive(Default)]
pub(super) struct LastError {
    last: Mutex<Option<Kept>>,
    /// Constant error text of the last failure if that was a lookup that found nothing. NULL if the
    /// last failure was another one, which `last` contains.
    miss: AtomicPtr<c_char>,
}

impl LastError {
    /// Stores `error` as the last error of the calls on this store handle.
    pub(super) fn set(&self, error: &Error) {
        let kept = Kept::of(error);
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(kept);
        self.miss.store(null_mut(), Relaxed);
    }

    /// Records a lookup that found nothing as the last failure. This costs one atomic store: the
    /// text is a constant, so neither a lock nor a memory ordering is needed.
    #[inline]
    pub(super) fn set_miss(&self, text: &'static CStr) {
        self.miss.store(text.as_ptr().cast_mut(), Relaxed);
    }

    /// Returns one part of the text of the last error. The pointer is to a copy owned by the
    /// calling thread or to a constant, because calls of other threads may replace the last error
    /// at any time.
    pub(super) fn text(&self, part: Part) -> *const c_char {
        let miss = self.miss.load(Relaxed);
        if !miss.is_null() {
            return miss;
        }
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().map_or(NO_ERROR.as_ptr(), |kept| given(part.of(kept)))
    }

    /// Returns the hint of the last error of the calls on this store handle, as a `KVSTORE_HINT_*`
    /// number.
    pub(super) fn hint(&self) -> c_int {
        if !self.miss.load(Relaxed).is_null() {
            return KVSTORE_HINT_NONE;
        }
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().map_or(KVSTORE_HINT_NONE, |kept| kept.hint)
    }
}

/// Returns a copy of `text` that is valid until the calling thread has been given [`GIVEN_TEXTS`]
/// other texts. In a thread that is ending, returns a constant text instead of the copy.
fn given(text: &CStr) -> *const c_char {
    GIVEN
        .try_with(|given| {
            let mut given = given.borrow_mut();
            // A text that was given before becomes the latest one; its address does not change.
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
    /// Error texts whose pointers were returned to this thread and are still valid, the latest one
    /// last.
    static GIVEN: RefCell<Vec<CString>> = const { RefCell::new(Vec::new()) };
    static THREAD_ERROR: RefCell<Option<Kept>> = const { RefCell::new(None) };
}

/// Returns one part of the text of this thread's last error, which is that of a call without an
/// open handle, such as an open. In a thread that is ending, returns "no error".
pub(super) fn thread_text(part: Part) -> *const c_char {
    let text = |kept: &Option<Kept>| kept.as_ref().map_or(NO_ERROR.as_ptr(), |kept| part.of(kept).as_ptr());
    THREAD_ERROR.try_with(|kept| text(&kept.borrow())).unwrap_or(NO_ERROR.as_ptr())
}

/// Returns the hint of this thread's last error, which is that of a call without an open handle, as
/// a `KVSTORE_HINT_*` number.
pub(super) fn thread_hint() -> c_int {
    let hint = |kept: &Option<Kept>| kept.as_ref().map_or(KVSTORE_HINT_NONE, |kept| kept.hint);
    THREAD_ERROR.try_with(|kept| hint(&kept.borrow())).unwrap_or(KVSTORE_HINT_NONE)
}

pub(super) fn set_thread_error(error: &Error) {
    let _ = THREAD_ERROR.try_with(|kept| *kept.borrow_mut() = Some(Kept::of(error)));
}

fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', "?")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Hint;

    fn failed(text: &str) -> Error {
        Error::invalid(text)
    }

    #[test]
    fn message_and_hint_are_available_jointly_and_separately() {
        let last = LastError::default();
        last.set(&Error::busy("locked").with_hint(Hint::Retry));
        // SAFETY: given to this thread, which asks for fewer texts than are kept.
        let text = |part| unsafe { CStr::from_ptr(last.text(part)) }.to_str();
        assert_eq!(text(Part::Whole), Ok("locked: retry later"));
        assert_eq!((text(Part::Reason), last.hint()), (Ok("locked"), number_of(Hint::Retry)));
        last.set_miss(NO_SUCH_KEY);
        assert_eq!((text(Part::Reason), last.hint()), (Ok("no such key"), KVSTORE_HINT_NONE));
        last.set(&failed("odd"));
        assert_eq!((text(Part::Whole), text(Part::Reason), last.hint()), (Ok("odd"), Ok("odd"), 0));
    }

    #[test]
    fn returned_text_stays_valid_while_other_threads_fail() {
        let texts = LastError::default();
        texts.set(&failed("first"));
        let first = texts.text(Part::Whole);
        std::thread::scope(|scope| {
            scope.spawn(|| (0..100).for_each(|n| texts.set(&failed(&n.to_string()))));
        });
        // SAFETY: given to this thread, which has asked for no other.
        assert_eq!(unsafe { CStr::from_ptr(first) }, c"first");
        // SAFETY: as above.
        assert_eq!(unsafe { CStr::from_ptr(texts.text(Part::Whole)) }, c"99");
        assert_eq!(texts.text(Part::Whole), texts.text(Part::Whole));
        for n in 2..GIVEN_TEXTS {
            texts.set(&failed(&n.to_string()));
            texts.text(Part::Whole);
        }
        // SAFETY: it has asked for as many as are kept.
        assert_eq!(unsafe { CStr::from_ptr(first) }, c"first");
        // Asked for once more, it is the latest.
        texts.set(&failed("first"));
        assert_eq!(texts.text(Part::Whole), first);
        let other = LastError::default();
        for n in 1..GIVEN_TEXTS {
            other.set(&failed(&format!("other {n}")));
            other.text(Part::Whole);
        }
        // SAFETY: fewer texts than are kept were given since.
        assert_eq!(unsafe { CStr::from_ptr(first) }, c"first");
    }

    #[test]
    fn last_error_is_latest_of_miss_and_failure() {
        let texts = LastError::default();
        // SAFETY: constant, or the last text, which nothing follows before it is read.
        let last = || unsafe { CStr::from_ptr(texts.text(Part::Whole)) }.to_owned();
        assert_eq!(last().as_c_str(), NO_ERROR);
        texts.set_miss(NO_SUCH_KEY);
        assert_eq!(last().as_c_str(), NO_SUCH_KEY);
        texts.set(&failed("failed"));
        assert_eq!(last().as_c_str(), c"failed");
        texts.set_miss(NO_SUCH_KEY);
        assert_eq!(last().as_c_str(), NO_SUCH_KEY);
    }
}
