//! What the pointers of the C API point to.
//!
//! A handle's memory is made once and never given back to the allocator: closing marks it, and only
//! after many more closes it is used for a new handle of the same type. So a call with a handle that
//! was closed, or that is of another type, is told apart by the mark in its first bytes, and no
//! thread that is still in a call sees its value go away.

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::call::Session;
use super::types::{KVBatch, KVColumnFamily, KVIterator, KVStore};
use crate::{Cursor, Family, Store, WriteBatch};

/// How many closed handles of a type lie fallow before the first is used again. They keep a few
/// kilobytes each.
const FALLOW: usize = 64;
const CLOSED: u32 = 0;

/// Behind `KVStore *`.
pub(super) struct StoreHandle {
    pub(super) store: Store,
    pub(super) session: Arc<Session>,
}

/// Behind `KVColumnFamily *`.
pub(super) struct FamilyHandle {
    pub(super) family: Family,
    pub(super) name: std::ffi::CString,
    pub(super) session: Arc<Session>,
}

/// Behind the handles that one thread at a time uses, `KVIterator *` and `KVBatch *`.
pub(super) struct Single<V> {
    /// `None` once closed: its buffers are not kept.
    pub(super) value: Option<V>,
    pub(super) session: Arc<Session>,
}

/// A C type with the Rust value behind it.
pub(super) trait Opaque: Sized {
    type Value: 'static;
    /// The mark of an open handle: letters that a memory dump shows.
    const MARK: u32;
    const NAME: &'static str;
    fn fallow() -> &'static Fallow<Self::Value>;
}

#[repr(C)] // the mark comes first in every type
pub(super) struct Slot<V> {
    mark: AtomicU32,
    /// A call that needs the value for itself is running. The contract gives such a handle to one thread
    /// at a time; this tells when a callback, or a second thread, does not keep to it.
    in_use: AtomicBool,
    value: UnsafeCell<V>,
}

/// Closed handles, the longest closed first.
pub(super) struct Fallow<V>(Mutex<VecDeque<SlotPointer<V>>>);

struct SlotPointer<V>(*mut Slot<V>);

// SAFETY: a slot in the queue is owned by the queue alone: its handle was closed.
unsafe impl<V: Send> Send for SlotPointer<V> {}

impl Opaque for KVStore {
    type Value = StoreHandle;
    const MARK: u32 = u32::from_be_bytes(*b"KVst");
    const NAME: &'static str = "KVStore";
    fn fallow() -> &'static Fallow<StoreHandle> {
        static FALLOW: Fallow<StoreHandle> = Fallow(Mutex::new(VecDeque::new()));
        &FALLOW
    }
}

impl Opaque for KVColumnFamily {
    type Value = FamilyHandle;
    const MARK: u32 = u32::from_be_bytes(*b"KVcf");
    const NAME: &'static str = "KVColumnFamily";
    fn fallow() -> &'static Fallow<FamilyHandle> {
        static FALLOW: Fallow<FamilyHandle> = Fallow(Mutex::new(VecDeque::new()));
        &FALLOW
    }
}

impl Opaque for KVIterator {
    type Value = Single<Cursor>;
    const MARK: u32 = u32::from_be_bytes(*b"KVit");
    const NAME: &'static str = "KVIterator";
    fn fallow() -> &'static Fallow<Single<Cursor>> {
        static FALLOW: Fallow<Single<Cursor>> = Fallow(Mutex::new(VecDeque::new()));
        &FALLOW
    }
}

impl Opaque for KVBatch {
    type Value = Single<WriteBatch>;
    const MARK: u32 = u32::from_be_bytes(*b"KVba");
    const NAME: &'static str = "KVBatch";
    fn fallow() -> &'static Fallow<Single<WriteBatch>> {
        static FALLOW: Fallow<Single<WriteBatch>> = Fallow(Mutex::new(VecDeque::new()));
        &FALLOW
    }
}

/// Why a pointer is not an open handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotOpen {
    Null,
    Closed,
    InUse,
}

/// Makes an open handle.
pub(super) fn open<T: Opaque>(value: T::Value) -> *mut T {
    // Never waits: a fork may have copied the lock while another thread held it.
    let reused = match T::fallow().0.try_lock() {
        Ok(mut fallow) if fallow.len() >= FALLOW => fallow.pop_front(),
        _ => None,
    };
    match reused {
        Some(SlotPointer(slot)) => {
            // SAFETY: the queue owned the slot, and closing handed it over exactly once.
            unsafe {
                *(*slot).value.get() = value;
                (*slot).in_use.store(false, Ordering::Relaxed);
                (*slot).mark.store(T::MARK, Ordering::Release);
            }
            slot.cast()
        }
        None => {
            let slot = Slot {
                mark: AtomicU32::new(T::MARK),
                in_use: AtomicBool::new(false),
                value: UnsafeCell::new(value),
            };
            Box::into_raw(Box::new(slot)).cast()
        }
    }
}

/// The value behind a handle.
///
/// # Safety
/// `handle` is NULL, or came from [`open`] of some type.
pub(super) unsafe fn value<'a, T: Opaque>(handle: *const T) -> Result<&'a T::Value, NotOpen> {
    // SAFETY: passed on; the slot's memory is never freed, and its value is only replaced long
    // after it was closed.
    unsafe { slot(handle).map(|slot| &*slot.value.get()) }
}

/// The value behind a handle, for one call alone.
pub(super) struct Exclusive<'a, V> {
    slot: &'a Slot<V>,
}

impl<V> Exclusive<'_, V> {
    pub(super) fn value(&mut self) -> &mut V {
        // SAFETY: `in_use` was not set before and is until this is dropped, so there is no other
        // reference, if one thread at a time uses the handle, as it must.
        unsafe { &mut *self.slot.value.get() }
    }
}

impl<V> Drop for Exclusive<'_, V> {
    fn drop(&mut self) {
        self.slot.in_use.store(false, Ordering::Relaxed);
    }
}

/// Takes the value behind a handle that one thread at a time uses.
///
/// # Safety
/// As [`value`]; and no other thread uses this handle meanwhile.
pub(super) unsafe fn exclusive<'a, T: Opaque>(handle: *mut T) -> Result<Exclusive<'a, T::Value>, NotOpen> {
    // SAFETY: passed on.
    let slot = unsafe { slot(handle)? };
    if slot.in_use.load(Ordering::Relaxed) {
        return Err(NotOpen::InUse);
    }
    slot.in_use.store(true, Ordering::Relaxed);
    Ok(Exclusive { slot })
}

/// The value behind a handle that one thread at a time uses, to be looked at.
///
/// # Safety
/// As [`exclusive`].
#[inline(always)]
pub(super) unsafe fn shared<'a, T: Opaque>(handle: *const T) -> Result<&'a T::Value, NotOpen> {
    // SAFETY: passed on; there is no exclusive reference unless `in_use` is set.
    unsafe {
        let slot = slot(handle)?;
        if slot.in_use.load(Ordering::Relaxed) { Err(NotOpen::InUse) } else { Ok(&*slot.value.get()) }
    }
}

/// The value behind a handle that one thread at a time uses, for a moment in which nothing else is called.
///
/// # Safety
/// As [`exclusive`]; and what is given out is not used any more when the handle is used again.
#[inline(always)]
pub(super) unsafe fn shared_mut<'a, T: Opaque>(handle: *mut T) -> Result<&'a mut T::Value, NotOpen> {
    // SAFETY: passed on; there is no other reference unless `in_use` is set.
    unsafe {
        let slot = slot(handle)?;
        if slot.in_use.load(Ordering::Relaxed) { Err(NotOpen::InUse) } else { Ok(&mut *slot.value.get()) }
    }
}

/// Marks a handle as closed. Of several threads that close one handle, one succeeds, and gets the value;
/// others may still be in calls with it.
///
/// # Safety
/// As [`value`].
pub(super) unsafe fn close<'a, T: Opaque>(handle: *mut T) -> Result<&'a T::Value, NotOpen> {
    // SAFETY: passed on.
    let slot = unsafe { slot(handle)? };
    match slot.mark.compare_exchange(T::MARK, CLOSED, Ordering::AcqRel, Ordering::Relaxed) {
        // SAFETY: as in `value`.
        Ok(_) => Ok(unsafe { &*slot.value.get() }),
        Err(_) => Err(NotOpen::Closed),
    }
}

/// Lets a closed handle lie fallow, to be used again some day.
///
/// # Safety
/// `handle` is one that this thread has closed with [`close`], and is passed here once.
pub(super) unsafe fn lay_fallow<T: Opaque>(handle: *mut T) {
    let mut fallow = T::fallow().0.lock().unwrap_or_else(PoisonError::into_inner);
    fallow.push_back(SlotPointer(handle.cast()));
}

/// # Safety
/// As [`value`].
#[inline(always)]
unsafe fn slot<'a, T: Opaque>(handle: *const T) -> Result<&'a Slot<T::Value>, NotOpen> {
    let slot = handle.cast::<Slot<T::Value>>();
    if slot.is_null() || !slot.is_aligned() {
        return Err(NotOpen::Null);
    }
    // SAFETY: a pointer from `open` points to a slot for ever, and the mark, which every type of slot
    // begins with, says whether it is one of this type.
    unsafe {
        if (*std::ptr::addr_of!((*slot).mark)).load(Ordering::Acquire) != T::MARK {
            return Err(NotOpen::Closed);
        }
        Ok(&*slot)
    }
}
