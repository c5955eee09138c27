//! Conversion of the pointer arguments of C calls, input and output. Each conversion is defined
//! here only.
//!
//! The safety condition of all `unsafe fn`s here is that of the C documentation. A pointer is NULL,
//! or valid for the number of bytes given by the length argument after it; an output pointer is
//! NULL or valid for one value of its type.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::time::Duration;

use super::codes::NO_TTL;
use super::errmsg::NO_SUCH_KEY;
use crate::{Destination, Error, Expiry, Family, Hint, MAX_KEY_SIZE, MAX_VALUE_SIZE};

/// Reason why a C call failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// An argument is invalid. The store was not called, so it does not count the failure.
    Argument(Error),
    /// The store returned this error.
    Store(Error),
    /// The key or family does not exist: KVSTORE_NOTFOUND, with this text.
    Missing(&'static CStr),
}

pub(super) type Outcome<T> = Result<T, Failure>;

pub(super) fn bad_argument<T>(text: &str) -> Outcome<T> {
    Err(Failure::Argument(Error::invalid(text.to_owned())))
}

/// Returns the value of a lookup result. For `None`, a missing key, returns the failure that
/// becomes KVSTORE_NOTFOUND.
pub(super) fn present<T>(found: Option<T>) -> Outcome<T> {
    found.ok_or(Failure::Missing(NO_SUCH_KEY))
}

/// Converts pointer and length of a C argument to the bytes of a key. The length is checked before
/// the memory is read.
pub(super) unsafe fn key<'a>(pointer: *const c_void, length: c_int) -> Outcome<&'a [u8]> {
    // SAFETY: the condition of this function is that of `key_called`.
    unsafe { key_called("key", pointer, length) }
}

/// Converts pointer and length of a C argument that has the length limits of a key, such as a
/// prefix, to its bytes. Error messages call the argument `what`.
pub(super) unsafe fn key_called<'a>(what: &str, pointer: *const c_void, length: c_int) -> Outcome<&'a [u8]> {
    if pointer.is_null() {
        return bad_argument(&format!("the {what} is NULL: it needs 1 to {MAX_KEY_SIZE} bytes"));
    }
    match usize::try_from(length) {
        // SAFETY: not NULL, so valid for `length` bytes.
        Ok(length @ 1..=MAX_KEY_SIZE) => Ok(unsafe { std::slice::from_raw_parts(pointer.cast(), length) }),
        _ => bad_argument(&format!("the {what} has {length} bytes: it needs 1 to {MAX_KEY_SIZE}")),
    }
}

/// Converts pointer and length of a C argument to the bytes of a value. `(NULL, 0)` is an empty
/// value.
///
/// The length is checked against [`MAX_VALUE_SIZE`]. A store with a lower limit checks it again
/// before it reads the bytes.
pub(super) unsafe fn value<'a>(pointer: *const c_void, length: c_int) -> Outcome<&'a [u8]> {
    match usize::try_from(length) {
        Ok(0) => Ok(&[]),
        _ if pointer.is_null() => bad_argument(&format!("the value is NULL, but its length is {length}")),
        Ok(length @ ..=MAX_VALUE_SIZE) => {
            // SAFETY: not NULL, so valid for `length` bytes.
            Ok(unsafe { std::slice::from_raw_parts(pointer.cast(), length) })
        }
        _ => bad_argument(&format!(
            "the value has {length} bytes: it can have 0 to KVStoreConfig.maxValueSize, at most {MAX_VALUE_SIZE}"
        )),
    }
}

/// Converts pointer and length of a C argument to a bound of a range. A bound has 0 bytes up to the
/// maximum length of a key. Returns `None` (unbounded) for `(NULL, 0)`. Error messages call the
/// argument `what`.
pub(super) unsafe fn bound<'a>(
    pointer: *const c_void,
    length: c_int,
    what: &str,
) -> Outcome<Option<&'a [u8]>> {
    // SAFETY: the condition of this function is that of `part`.
    let bytes = unsafe { part(pointer, length, what)? };
    Ok((!pointer.is_null()).then_some(bytes))
}

/// Converts pointer and length of a C argument to a part of a key: 0 bytes up to the maximum length
/// of a key. `(NULL, 0)` is an empty part. Error messages call the argument `what`.
pub(super) unsafe fn part<'a>(pointer: *const c_void, length: c_int, what: &str) -> Outcome<&'a [u8]> {
    match usize::try_from(length) {
        Ok(0) => Ok(&[]),
        _ if pointer.is_null() => bad_argument(&format!("the {what} is NULL, but its length is {length}")),
        // SAFETY: not NULL, so valid for `length` bytes.
        Ok(length @ 1..=MAX_KEY_SIZE) => Ok(unsafe { std::slice::from_raw_parts(pointer.cast(), length) }),
        _ => bad_argument(&format!("the {what} has {length} bytes: it can have 0 to {MAX_KEY_SIZE}")),
    }
}

/// Buffer of the C caller into which a call copies bytes.
pub(super) struct Buffer {
    pointer: *mut u8,
    capacity: usize,
}

impl Buffer {
    pub(super) unsafe fn new(pointer: *mut c_void, capacity: c_int) -> Outcome<Buffer> {
        match usize::try_from(capacity) {
            Ok(1..) if pointer.is_null() => {
                bad_argument(&format!("the buffer is NULL, but its size is {capacity}"))
            }
            Ok(capacity) => Ok(Buffer { pointer: pointer.cast(), capacity }),
            Err(_) => bad_argument(&format!("a buffer of {capacity} bytes: the size cannot be negative")),
        }
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Copies `bytes` into the buffer; if the buffer is too small, only as many bytes as fit.
    pub(super) fn fill(&mut self, bytes: &[u8]) {
        let length = bytes.len().min(self.capacity);
        if length > 0 {
            // SAFETY: the caller of `new` guarantees that the pointer is valid for `capacity`
            // bytes. The capacity is not 0 here, so the pointer is not NULL.
            unsafe { std::ptr::copy(bytes.as_ptr(), self.pointer, length) };
        }
    }
}

/// Receives as much of a value as fits into the buffer.
impl Destination for Buffer {
    #[inline]
    fn room(&mut self, length: usize) -> crate::Result<&mut [MaybeUninit<u8>]> {
        let length = length.min(self.capacity);
        if length == 0 {
            return Ok(&mut []);
        }
        // SAFETY: as in `fill`. The borrow keeps the buffer from being used otherwise.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.pointer.cast(), length) })
    }
}

/// Converts a C argument to the name of a family: UTF-8, terminated by NUL.
pub(super) unsafe fn name<'a>(pointer: *const c_char) -> Outcome<&'a str> {
    if pointer.is_null() {
        return bad_argument("the family name is NULL: pass 1 to 255 bytes of UTF-8");
    }
    // SAFETY: not NULL, so a NUL-terminated string.
    match unsafe { CStr::from_ptr(pointer) }.to_str() {
        Ok(name) => Ok(name),
        Err(_) => bad_argument("the family name is not UTF-8: pass 1 to 255 bytes of it"),
    }
}

/// Earliest expiry time that is accepted while the clock of the store is past [`CLOCK_IS_SET_MS`]:
/// 1 January 1973, in milliseconds since the Unix epoch. An earlier one is nearly always a duration
/// of up to three years, passed by mistake.
const FIRST_MOMENT_MS: i64 = 94_694_400_000;
/// Time after which the clock of a store counts as set: 1 January 2001, in milliseconds since the
/// Unix epoch.
const CLOCK_IS_SET_MS: i64 = 978_307_200_000;

/// Converts an `expire_ms` of the C API to an expiry time for a key of the family; 0 and
/// KVSTORE_NO_TTL mean never.
pub(super) fn expiry(family: &Family, expire_ms: i64) -> Outcome<Expiry> {
    if expire_ms == NO_TTL {
        return Ok(Expiry::Never);
    }
    // The clock of a closed store is not read; the call fails because the store is closed.
    if (1..FIRST_MOMENT_MS).contains(&expire_ms)
        && !family.session().is_closed()
        && family.session().told_now_ms() > CLOCK_IS_SET_MS
    {
        let message = format!(
            "the expiry time {expire_ms} lies before 1973: it is a time in milliseconds since 1970, not a \
            duration"
        );
        return Err(Failure::Argument(Error::invalid(message).with_hint(Hint::GiveTtl)));
    }
    Expiry::from_millis(expire_ms).map_err(Failure::Argument)
}

/// Converts the `expire_ms` of a write to an expiry time. `None`, for 0, stands for the default TTL
/// of the family; KVSTORE_NO_TTL means never.
pub(super) fn write_expiry(family: &Family, expire_ms: i64) -> Outcome<Option<Expiry>> {
    if expire_ms == 0 { Ok(None) } else { expiry(family, expire_ms).map(Some) }
}

/// Converts a required output argument. Fails if it is NULL; the error message calls it `what`.
pub(super) unsafe fn output<'a, T>(pointer: *mut T, what: &str) -> Outcome<&'a mut Output<T>> {
    if pointer.is_null() {
        return bad_argument(&format!("{what} is NULL: there is nowhere to put the result"));
    }
    // SAFETY: not NULL, so valid for one T, and Output<T> has the layout of T.
    Ok(unsafe { &mut *pointer.cast::<Output<T>>() })
}

/// Converts an optional output argument; returns `None` if it is NULL.
pub(super) unsafe fn optional_output<'a, T>(pointer: *mut T) -> Option<&'a mut Output<T>> {
    // SAFETY: NULL, or valid for one T; Output<T> has the layout of T.
    unsafe { pointer.cast::<Output<T>>().as_mut() }
}

/// Memory of the C caller for an output argument of the type `T`. It may be uninitialised until the
/// call writes it.
#[repr(transparent)]
pub(super) struct Output<T>(std::mem::MaybeUninit<T>);

impl<T: Copy> Output<T> {
    pub(super) fn set(&mut self, value: T) {
        self.0.write(value);
    }
}

/// Returns a copy of bytes in memory of malloc(), with a NUL byte after them; NULL if memory is
/// exhausted.
pub(super) fn malloc_copy(bytes: &[u8]) -> *mut c_void {
    // SAFETY: `malloc` returned NULL or `bytes.len() + 1` bytes. The copy and the NUL byte after it
    // take exactly that many.
    unsafe {
        let copy = libc::malloc(bytes.len() + 1).cast::<u8>();
        if !copy.is_null() {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), copy, bytes.len());
            copy.add(bytes.len()).write(0);
        }
        copy.cast()
    }
}

/// Copy of a value in memory of malloc(), which is freed on drop unless it is released to the
/// caller.
pub(super) struct Copied(*mut c_void);

impl Copied {
    pub(super) fn none() -> Copied {
        Copied(std::ptr::null_mut())
    }

    /// Returns the copy and transfers its ownership to the caller, who frees it with free().
    /// Returns NULL if there is no copy.
    #[inline]
    pub(super) fn release(&mut self) -> *mut c_void {
        std::mem::replace(&mut self.0, std::ptr::null_mut())
    }
}

/// Receives a value, with a NUL byte after it.
impl Destination for Copied {
    #[inline]
    fn room(&mut self, length: usize) -> crate::Result<&mut [MaybeUninit<u8>]> {
        // SAFETY: NULL, or from malloc and not released to the caller. `malloc` returned NULL or
        // `length + 1` bytes; the slice and the NUL byte after it take exactly that many.
        unsafe {
            libc::free(self.0);
            self.0 = libc::malloc(length + 1);
            if self.0.is_null() {
                return Err(no_memory());
            }
            let bytes = self.0.cast::<MaybeUninit<u8>>();
            bytes.add(length).write(MaybeUninit::new(0));
            Ok(std::slice::from_raw_parts_mut(bytes, length))
        }
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        // SAFETY: NULL, or from malloc and not released to the caller.
        unsafe { libc::free(self.0) };
    }
}

pub(super) fn no_memory() -> Error {
    Error::no_memory("out of memory for the result")
}

/// Converts a length to `int`. Every length that a store returns fits.
pub(super) fn c_length(length: usize) -> c_int {
    c_int::try_from(length).unwrap_or(c_int::MAX)
}

/// Converts a duration in milliseconds. Fails if it is negative; `what` names the argument in the
/// error.
pub(super) fn duration(ms: i64, what: &str) -> Outcome<Duration> {
    match u64::try_from(ms) {
        Ok(ms) => Ok(Duration::from_millis(ms)),
        Err(_) => bad_argument(&format!("{what} of {ms} ms: it cannot be negative")),
    }
}
