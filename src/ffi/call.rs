//! What happens around every call: the panic guard, the result code, the error text.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Once, PoisonError};

use super::args::{Failure, Outcome};
use super::codes::{KVSTORE_ERROR, KVSTORE_MISUSE, KVSTORE_OK, code_of};
use super::handle::{
    FamilyHandle, NotOpen, Opaque, Single, StoreHandle, close, exclusive, lay_fallow, shared, shared_mut,
    value,
};
use crate::{Error, INHERITED};

/// How many error texts of a handle stay readable: the contract promises the last one, but another
/// thread may fail between this thread's failure and its kvstore_errmsg.
const KEPT_TEXTS: usize = 16;

/// What a store's handle shares with its families, iterators and batches.
pub(super) struct Session {
    /// The fork generation the store was opened in.
    generation: u32,
    texts: Mutex<Texts>,
    /// Calls that failed before they reached the store, such as those with a NULL pointer.
    pub(super) bad_calls: AtomicU64,
    /// A call panicked: what it left behind is not to be trusted.
    poisoned: AtomicBool,
}

#[derive(Default)]
struct Texts {
    ring: [CString; KEPT_TEXTS],
    last: Option<usize>,
}

impl Session {
    pub(super) fn new() -> Arc<Session> {
        Arc::new(Session {
            generation: crate::fork_generation(),
            texts: Mutex::default(),
            bad_calls: AtomicU64::new(0),
            poisoned: AtomicBool::new(false),
        })
    }

    /// Whether the store was opened before a fork. Its locks may have been copied locked then: no call
    /// may touch one.
    fn is_inherited(&self) -> bool {
        self.generation != crate::fork_generation()
    }

    fn set_error(&self, text: &str) {
        let mut texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        let next = texts.last.map_or(0, |last| (last + 1) % KEPT_TEXTS);
        if let Some(place) = texts.ring.get_mut(next) {
            *place = c_string(text);
        }
        texts.last = Some(next);
    }

    /// Valid until this store has failed as often as texts are kept.
    pub(super) fn error_text(&self) -> *const c_char {
        if self.is_inherited() {
            return INHERITED.as_ptr();
        }
        let texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        let last = texts.last.and_then(|last| texts.ring.get(last));
        last.map_or(NO_ERROR.as_ptr(), |text| text.as_ptr())
    }
}

/// A value behind a handle.
pub(super) trait HasSession {
    fn session(&self) -> &Arc<Session>;
}

impl HasSession for StoreHandle {
    fn session(&self) -> &Arc<Session> {
        &self.session
    }
}

impl HasSession for FamilyHandle {
    fn session(&self) -> &Arc<Session> {
        &self.session
    }
}

impl<V> HasSession for Single<V> {
    fn session(&self) -> &Arc<Session> {
        &self.session
    }
}

const NO_ERROR: &CStr = c"no error";

thread_local! {
    static THREAD_ERROR: RefCell<CString> = RefCell::new(CString::from(NO_ERROR));
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// The text of this thread's last failure without a handle.
pub(super) fn thread_error() -> *const c_char {
    THREAD_ERROR.with_borrow(|text| text.as_ptr())
}

fn set_thread_error(text: &str) {
    THREAD_ERROR.with_borrow_mut(|kept| *kept = c_string(text));
}

fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', "?")).unwrap_or_default()
}

/// Runs a call on a handle.
///
/// # Safety
/// `handle` is NULL or came from `handle::open`.
pub(super) unsafe fn call<T: Opaque>(handle: *const T, f: impl FnOnce(&T::Value) -> Outcome<c_int>) -> c_int
where
    T::Value: HasSession,
{
    // SAFETY: passed on.
    match unsafe { value(handle) } {
        Ok(value) => run(value.session(), || f(value)),
        Err(why) => not_open::<T>(why),
    }
}

/// Runs a call on a handle that one thread at a time uses.
///
/// # Safety
/// As [`call`]; and no other thread uses the handle meanwhile.
pub(super) unsafe fn call_single<T, V: 'static>(
    handle: *mut T,
    f: impl FnOnce(&mut V) -> Outcome<c_int>,
) -> c_int
where
    T: Opaque<Value = Single<V>>,
{
    // SAFETY: passed on.
    match unsafe { exclusive(handle) } {
        Ok(mut single) => match single.value() {
            Single { value: Some(value), session } => run(session, || f(value)),
            _ => not_open::<T>(NotOpen::Closed),
        },
        Err(why) => not_open::<T>(why),
    }
}

/// Runs a call that only looks at such a handle.
///
/// # Safety
/// As [`call_single`].
pub(super) unsafe fn look_single<T, V: 'static>(handle: *mut T, f: impl FnOnce(&V) -> Outcome<c_int>) -> c_int
where
    T: Opaque<Value = Single<V>>,
{
    // SAFETY: passed on.
    match unsafe { shared(handle) } {
        Ok(Single { value: Some(value), session }) => run(session, || f(value)),
        Ok(_) => not_open::<T>(NotOpen::Closed),
        Err(why) => not_open::<T>(why),
    }
}

/// What is behind such a handle if nothing at all is wrong with it; for the few calls that are made for every
/// row, before they go the way of all others. What they do must not panic, and must itself refuse a store from
/// before a fork.
///
/// # Safety
/// As [`call_single`].
#[inline(always)]
pub(super) unsafe fn glance<'a, T, V: 'static>(handle: *mut T) -> Option<&'a V>
where
    T: Opaque<Value = Single<V>>,
{
    // SAFETY: passed on.
    match unsafe { shared(handle) } {
        Ok(Single { value: Some(value), session }) if !session.poisoned.load(Relaxed) => Some(value),
        _ => None,
    }
}

/// [`glance`], to change what is there.
///
/// # Safety
/// As [`call_single`]; and what is given out is not used any more when the handle is used again.
#[inline(always)]
pub(super) unsafe fn glance_single<'a, T, V: 'static>(handle: *mut T) -> Option<&'a mut V>
where
    T: Opaque<Value = Single<V>>,
{
    // SAFETY: passed on.
    match unsafe { shared_mut(handle) } {
        Ok(Single { value: Some(value), session }) if !session.poisoned.load(Relaxed) => Some(value),
        _ => None,
    }
}

/// Closes a handle that one thread at a time uses, and frees what is behind it.
///
/// # Safety
/// As [`call_single`].
pub(super) unsafe fn close_single<T, V: 'static>(handle: *mut T)
where
    T: Opaque<Value = Single<V>>,
{
    // SAFETY: passed on.
    unsafe {
        match exclusive(handle) {
            Ok(mut single) => {
                if !single.value().session.is_inherited() {
                    single.value().value = None;
                }
            }
            Err(why) => {
                if why != NotOpen::Null {
                    not_open::<T>(why);
                }
                return;
            }
        }
        call_close(handle, |_| Ok(KVSTORE_OK));
    }
}

/// The value behind a handle that is an argument beside another.
///
/// # Safety
/// As [`call`].
pub(super) unsafe fn argument<'a, T: Opaque>(handle: *const T) -> Outcome<&'a T::Value> {
    // SAFETY: passed on.
    unsafe { value(handle) }.map_err(|why| {
        let text = why_not_open::<T>(why);
        Failure::Argument(match why {
            NotOpen::Null => Error::Invalid(text),
            NotOpen::Closed | NotOpen::InUse => Error::Misuse(text),
        })
    })
}

/// Runs a call that has no handle yet.
pub(super) fn call_without_handle(f: impl FnOnce() -> Outcome<c_int>) -> c_int {
    let (code, text) = match guarded(f) {
        Ok(Ok(code)) => return code,
        Ok(Err(failure)) => failure_code(&failure),
        Err(_) => (KVSTORE_ERROR, INTERNAL.to_owned()),
    };
    set_thread_error(&text);
    code
}

/// Closes a handle. Its own error text is out of reach afterwards, so the thread has it.
///
/// # Safety
/// As [`call`].
pub(super) unsafe fn call_close<T: Opaque>(
    handle: *mut T,
    f: impl FnOnce(&T::Value) -> Outcome<c_int>,
) -> c_int
where
    T::Value: HasSession,
{
    if handle.is_null() {
        return KVSTORE_OK;
    }
    // SAFETY: passed on.
    let value = match unsafe { close(handle) } {
        Ok(value) => value,
        Err(why) => return not_open::<T>(why),
    };
    if value.session().is_inherited() {
        // What is behind it is the parent's, and its memory is left alone.
        set_thread_error(&INHERITED.to_string_lossy());
        return KVSTORE_MISUSE;
    }
    let code = call_without_handle(|| f(value));
    // SAFETY: closed just now.
    unsafe { lay_fallow(handle) };
    code
}

const INTERNAL: &str = "internal failure: close this store and open it again; please report this";

fn run(session: &Session, f: impl FnOnce() -> Outcome<c_int>) -> c_int {
    if session.is_inherited() {
        set_thread_error(&INHERITED.to_string_lossy());
        return KVSTORE_MISUSE;
    }
    if session.poisoned.load(Relaxed) {
        session.set_error(INTERNAL);
        return KVSTORE_MISUSE;
    }
    match guarded(f) {
        Ok(Ok(code)) => code,
        Ok(Err(failure)) => {
            if let Failure::Argument(_) = failure {
                session.bad_calls.fetch_add(1, Relaxed);
            }
            let (code, text) = failure_code(&failure);
            session.set_error(&text);
            code
        }
        Err(_) => {
            session.poisoned.store(true, Relaxed);
            session.set_error(INTERNAL);
            KVSTORE_ERROR
        }
    }
}

fn failure_code(failure: &Failure) -> (c_int, String) {
    let (Failure::Argument(error) | Failure::Store(error)) = failure;
    (code_of(error.kind()), error.to_string())
}

fn not_open<T: Opaque>(why: NotOpen) -> c_int {
    set_thread_error(&why_not_open::<T>(why));
    match why {
        NotOpen::Null => KVSTORE_ERROR,
        NotOpen::Closed | NotOpen::InUse => KVSTORE_MISUSE,
    }
}

fn why_not_open<T: Opaque>(why: NotOpen) -> String {
    match why {
        NotOpen::Null => {
            format!("the {} handle is NULL: look at what the call returned that should make it", T::NAME)
        }
        NotOpen::InUse => {
            format!("the {} is in use: by the call whose callback calls it, or another thread", T::NAME)
        }
        NotOpen::Closed => format!("the {} handle is closed, or is no {0}", T::NAME),
    }
}

/// Lets no panic out, and none print: the library never prints.
fn guarded<R>(f: impl FnOnce() -> R) -> Result<R, Box<dyn Any + Send>> {
    GUARDED.with(|guarded| {
        let outer = guarded.replace(true);
        let done = catch_unwind(AssertUnwindSafe(f));
        guarded.set(outer);
        done
    })
}

/// Silences the panic hook for panics that [`guarded`] catches. Called at each open; works once.
pub(super) fn silence_guarded_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !GUARDED.try_with(Cell::get).unwrap_or(false) {
                before(panic);
            }
        }));
    });
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Store(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error_and_poisons_the_store() {
        silence_guarded_panics();
        let session = Session::new();
        assert_eq!(run(&session, || panic!("must not get out")), KVSTORE_ERROR);
        assert_eq!(run(&session, || Ok(KVSTORE_OK)), KVSTORE_MISUSE);
        // SAFETY: the text lives as long as the session.
        let text = unsafe { CStr::from_ptr(session.error_text()) };
        assert_eq!(text.to_str(), Ok(INTERNAL));
    }

    #[test]
    fn a_panic_without_a_handle_becomes_an_error() {
        silence_guarded_panics();
        assert_eq!(call_without_handle(|| panic!("must not get out")), KVSTORE_ERROR);
    }

    #[test]
    fn an_error_text_stays_readable_while_a_few_more_calls_fail() {
        let session = Session::new();
        session.set_error("first");
        let first = session.error_text();
        for _ in 1..KEPT_TEXTS {
            session.set_error("later");
        }
        // SAFETY: fewer failures followed than texts are kept.
        assert_eq!(unsafe { CStr::from_ptr(first) }, c"first");
    }
}
