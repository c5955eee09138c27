//! Wrappers of all C calls: panic guard, result code and error text.

use std::any::Any;
use std::cell::Cell;
use std::ffi::{c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use super::args::{Failure, Outcome};
use super::codes::{KVSTORE_ERROR, KVSTORE_MISUSE, KVSTORE_NOTFOUND, KVSTORE_OK, code_of};
use super::errmsg::{LastError, Part, set_thread_error};
use super::handle::{
    self, Closing, Entered, Exclusive, FamilyHandle, NotOpen, Opaque, Single, StoreHandle, enter, enter_mine,
    enter_single,
};
use super::hint::KVSTORE_HINT_NONE;
use crate::{Error, Hint, INHERITED};

/// State that a store handle shares with its families, iterators and batches in C.
pub(super) struct CallState {
    /// Fork generation in which the store was opened.
    generation: u32,
    last_error: LastError,
    /// Number of calls that failed before they reached the store, such as those with a NULL
    /// pointer.
    pub(super) bad_calls: AtomicUsize,
    /// Whether a call panicked, so that the state it left cannot be trusted. All later calls fail
    /// with KVSTORE_MISUSE.
    poisoned: AtomicBool,
}

impl CallState {
    pub(super) fn new() -> Arc<CallState> {
        Arc::new(CallState {
            generation: crate::fork_generation(),
            last_error: LastError::default(),
            bad_calls: AtomicUsize::new(0),
            poisoned: AtomicBool::new(false),
        })
    }

    /// Returns `true` if this process inherited the store through a fork. The store's locks may
    /// have been copied in the locked state, so a call must not use them.
    fn is_inherited(&self) -> bool {
        self.generation != crate::fork_generation()
    }

    /// Returns one part of the text of the store's last error. The pointer is valid until the
    /// calling thread has been given 64 other texts (`GIVEN_TEXTS` in `errmsg`) or ends.
    pub(super) fn error_text(&self, part: Part) -> *const c_char {
        if self.is_inherited() { INHERITED.as_ptr() } else { self.last_error.text(part) }
    }

    /// Returns the hint of the store's last error, as a `KVSTORE_HINT_*` number.
    pub(super) fn error_hint(&self) -> c_int {
        if self.is_inherited() { KVSTORE_HINT_NONE } else { self.last_error.hint() }
    }
}

/// Rust value of a C handle, which gives access to the [`CallState`] of its store handle.
pub(super) trait HasSession {
    fn call_state(&self) -> &Arc<CallState>;
}

impl HasSession for StoreHandle {
    fn call_state(&self) -> &Arc<CallState> {
        &self.call_state
    }
}

impl HasSession for FamilyHandle {
    fn call_state(&self) -> &Arc<CallState> {
        &self.call_state
    }
}

impl<V> HasSession for Single<V> {
    fn call_state(&self) -> &Arc<CallState> {
        &self.call_state
    }
}

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Runs a C call on a handle that threads may share, and returns its result code.
///
/// # Safety
/// `handle` is NULL or came from `handle::open`.
pub(super) unsafe fn call<T: Opaque>(handle: *const T, f: impl FnOnce(&T::Value) -> Outcome<c_int>) -> c_int
where
    T::Value: HasSession,
{
    // SAFETY: passed on.
    match unsafe { enter(handle) } {
        Ok(value) => run(value.call_state(), || f(&value)),
        Err(why) => not_open::<T>(why),
    }
}

/// Runs a C call on a single-thread handle (iterator or batch), with mutable access to its value.
///
/// # Safety
/// As [`call`]. During the call, other threads do not use the handle, except to close it.
pub(super) unsafe fn call_single<T, V: 'static>(
    handle: *mut T,
    f: impl FnOnce(&mut V) -> Outcome<c_int>,
) -> c_int
where
    T: Opaque<Value = Single<V>>,
{
    // SAFETY: passed on.
    let single = match unsafe { enter_single(handle) } {
        Ok(single) => single,
        Err(why) => return not_open::<T>(why),
    };
    // SAFETY: passed on.
    match unsafe { Exclusive::of(&single) } {
        Ok(mut alone) => run(&single.call_state, || f(alone.value())),
        Err(why) => not_open::<T>(why),
    }
}

/// Runs a C call on a single-thread handle (iterator or batch), with read access to its value.
///
/// # Safety
/// As [`call_single`].
pub(super) unsafe fn look_single<T, V: 'static>(handle: *mut T, f: impl FnOnce(&V) -> Outcome<c_int>) -> c_int
where
    T: Opaque<Value = Single<V>>,
{
    // SAFETY: passed on.
    let single = match unsafe { enter_single(handle) } {
        Ok(single) => single,
        Err(why) => return not_open::<T>(why),
    };
    // SAFETY: passed on.
    match unsafe { single.look() } {
        Ok(value) => run(&single.call_state, || f(value)),
        Err(why) => not_open::<T>(why),
    }
}

/// Fast path for calls that are made once per row: runs `f` on the value of a single-thread handle.
/// Returns the result of `f`. Returns `None` if `f` returned it or did not run: then the call must
/// take the normal path.
///
/// `f` must not panic and must not call a callback of the program. It must itself reject a store
/// that was opened before a fork.
///
/// # Safety
/// As [`call_single`].
#[inline(always)]
pub(super) unsafe fn glance<T, V: 'static, R>(handle: *mut T, f: impl FnOnce(&V) -> Option<R>) -> Option<R>
where
    T: Opaque<Value = Single<V>>,
{
    // SAFETY: passed on; this thread is in no other call of this kind.
    unsafe {
        let single = enter_mine(handle)?;
        if single.call_state.poisoned.load(Relaxed) { None } else { f(single.glance()) }
    }
}

/// Fast path for calls that are made once per row and move the iterator: runs `f` with mutable
/// access to the value of a single-thread handle. Returns the result of `f`. Returns `false` if `f`
/// returned it or did not run: then the call must take the normal path. The conditions on `f` are
/// those of [`glance`].
///
/// # Safety
/// As [`call_single`].
#[inline(always)]
pub(super) unsafe fn glance_mut<T, V: 'static>(handle: *mut T, f: impl FnOnce(&mut V) -> bool) -> bool
where
    T: Opaque<Value = Single<V>>,
{
    // SAFETY: passed on; this thread is in no other call of this kind, and `f` makes none.
    unsafe {
        let Some(mut single) = enter_mine(handle) else { return false };
        !single.call_state.poisoned.load(Relaxed) && f(single.glance_mut())
    }
}

/// Closes a single-thread handle and frees its value: at once, or when a call of another thread
/// that uses the handle has returned.
///
/// # Safety
/// As [`call`].
pub(super) unsafe fn close_single<T, V: 'static>(handle: *mut T)
where
    T: Opaque<Value = Single<V>>,
{
    if handle.is_null() {
        return;
    }
    // SAFETY: passed on.
    match unsafe { handle::close_single(handle) } {
        Ok(closing) if closing.is_inherited() => refuse_inherited(),
        Ok(closing) => call_without_handle(|| {
            closing.finish_single();
            Ok(KVSTORE_OK)
        }),
        Err(why) => not_open::<T>(why),
    };
}

/// Returns the value of a handle that is an argument, in addition to the handle on which the call
/// is made. Fails with `Failure::Argument` if it is not an open handle of type `T`.
///
/// # Safety
/// As [`call`].
pub(super) unsafe fn argument<'a, T: Opaque>(handle: *const T) -> Outcome<Entered<'a, T::Value>> {
    // SAFETY: passed on.
    unsafe { enter(handle) }.map_err(|why| Failure::Argument(why_not_open::<T>(why)))
}

/// Runs a C call that has no handle yet, such as an open, and returns its result code. An error
/// becomes the last error of the calling thread.
pub(super) fn call_without_handle(f: impl FnOnce() -> Outcome<c_int>) -> c_int {
    let error = match guarded(f) {
        Ok(Ok(code)) => return code,
        Ok(Err(Failure::Argument(error) | Failure::Store(error))) => error,
        Ok(Err(Failure::Missing(text))) => Error::not_found(text.to_string_lossy()),
        Err(_) => internal(),
    };
    set_thread_error(&error);
    code_of(error.kind())
}

/// Closes a handle: runs `f` on its value, and frees the value when no call is using it. Returns
/// the result code. An error becomes the last error of the calling thread, because the error text
/// of a closed handle cannot be read.
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
    let closing = match unsafe { handle::close(handle) } {
        Ok(closing) => closing,
        Err(why) => return not_open::<T>(why),
    };
    if closing.is_inherited() {
        return refuse_inherited();
    }
    call_without_handle(|| {
        let done = closing.value().map_or(Ok(KVSTORE_OK), f);
        closing.finish();
        done
    })
}

impl<T: Opaque> Closing<T>
where
    T::Value: HasSession,
{
    /// Returns `true` if this process inherited the handle through a fork. Its value must then be
    /// neither used nor freed.
    fn is_inherited(&self) -> bool {
        self.value().is_some_and(|value| value.call_state().is_inherited())
    }
}

fn refuse_inherited() -> c_int {
    set_thread_error(&Error::misuse(INHERITED.to_string_lossy()));
    KVSTORE_MISUSE
}

/// Returns the error with which a call fails after a panic in the library.
fn internal() -> Error {
    Error::failed("internal error in the library (please report it)").with_hint(Hint::OpenAgain)
}

fn run(call_state: &CallState, f: impl FnOnce() -> Outcome<c_int>) -> c_int {
    if call_state.is_inherited() {
        return refuse_inherited();
    }
    if call_state.poisoned.load(Relaxed) {
        call_state.last_error.set(&internal());
        return KVSTORE_MISUSE;
    }
    let done = guarded(f);
    if call_state.is_inherited() {
        return refuse_inherited(); // a callback has forked, and this is the child
    }
    match done {
        Ok(Ok(code)) => code,
        Ok(Err(Failure::Missing(text))) => {
            call_state.last_error.set_miss(text);
            KVSTORE_NOTFOUND
        }
        Ok(Err(Failure::Argument(error))) => {
            call_state.bad_calls.fetch_add(1, Relaxed);
            call_state.last_error.set(&error);
            code_of(error.kind())
        }
        Ok(Err(Failure::Store(error))) => {
            call_state.last_error.set(&error);
            code_of(error.kind())
        }
        Err(_) => {
            call_state.poisoned.store(true, Relaxed);
            call_state.last_error.set(&internal());
            KVSTORE_ERROR
        }
    }
}

fn not_open<T: Opaque>(why: NotOpen) -> c_int {
    let error = why_not_open::<T>(why);
    set_thread_error(&error);
    code_of(error.kind())
}

fn why_not_open<T: Opaque>(why: NotOpen) -> Error {
    let name = T::NAME;
    match why {
        NotOpen::Null => Error::invalid(format!(
            "the {name} handle is NULL: check the result of the call that should have created it"
        )),
        NotOpen::InUse => Error::misuse(format!(
            "the {name} is in use by another thread, or by the call whose callback calls it"
        )),
        NotOpen::Closed => {
            Error::misuse(format!("the {name} handle is closed, or the pointer is not a {name}"))
        }
    }
}

/// Runs `f` and returns its result. If `f` panics, returns the panic as an error, and the message
/// that Rust prints for a panic is suppressed.
fn guarded<R>(f: impl FnOnce() -> R) -> Result<R, Box<dyn Any + Send>> {
    GUARDED.with(|guarded| {
        let outer = guarded.replace(true);
        let done = catch_unwind(AssertUnwindSafe(f));
        guarded.set(outer);
        done
    })
}

/// Installs a panic hook that prints nothing for panics that [`guarded`] catches. Called at each
/// open; only the first call has an effect.
pub(super) fn silence_guarded_panics() {
    // Not a `Once`, for which a call in a forked child would wait forever if the thread that runs
    // it exists only in the parent.
    static DONE: AtomicBool = AtomicBool::new(false);
    if DONE.swap(true, Relaxed) {
        return;
    }
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !GUARDED.try_with(Cell::get).unwrap_or(false) {
            before(panic);
        }
    }));
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Store(error)
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    #[test]
    fn panic_becomes_an_error_and_poisons_the_store() {
        silence_guarded_panics();
        let call_state = CallState::new();
        assert_eq!(run(&call_state, || panic!("must not get out")), KVSTORE_ERROR);
        assert_eq!(run(&call_state, || Ok(KVSTORE_OK)), KVSTORE_MISUSE);
        // SAFETY: the text lives as long as the session.
        let text = unsafe { CStr::from_ptr(call_state.error_text(Part::Reason)) };
        assert_eq!(text.to_str(), Ok(internal().message()));
    }

    #[test]
    fn panic_without_a_handle_becomes_an_error() {
        silence_guarded_panics();
        assert_eq!(call_without_handle(|| panic!("must not get out")), KVSTORE_ERROR);
    }
}
