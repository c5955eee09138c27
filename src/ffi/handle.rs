//! Handles: the objects that pointers of the C API refer to.
//!
//! The memory of a handle, its slot, is allocated once and never returned to the allocator. Its
//! first bytes, the mark, show whether the handle is open, and its type, so that a call with a
//! wrong pointer is detected. Closing changes the mark at once, whatever other threads are doing.
//! The value of the handle is dropped when no call uses it any more ([`hazard`](super::hazard)).
//! The slot is reused only after many other handles of its type were closed.

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::ops::Deref;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::call::CallState;
use super::hazard::{Header, InUse, Stay, is_mine, is_mine_alone};
use super::types::{KVBatch, KVColumnFamily, KVIterator, KVStore};
use crate::{Cursor, Family, Store, WriteBatch};

/// Rust value behind a C handle of the type `KVStore *`: an open store.
pub(super) struct StoreHandle {
    pub(super) store: Store,
    pub(super) call_state: Arc<CallState>,
}

/// Rust value behind a C handle of the type `KVColumnFamily *`: a family of an open store.
pub(super) struct FamilyHandle {
    pub(super) family: Family,
    pub(super) name: std::ffi::CString,
    pub(super) call_state: Arc<CallState>,
}

/// Rust value behind a C handle that one thread at a time uses: an iterator (`KVIterator *`) or a
/// batch (`KVBatch *`).
pub(super) struct Single<V> {
    value: UnsafeCell<V>,
    pub(super) call_state: Arc<CallState>,
}

impl<V> Single<V> {
    pub(super) fn new(value: V, call_state: &Arc<CallState>) -> Single<V> {
        Single { value: UnsafeCell::new(value), call_state: Arc::clone(call_state) }
    }
}

/// Opaque C type of a handle, such as `KVStore`, with the Rust type of the handle's value.
pub(super) trait Opaque: Sized {
    type Value: 'static;
    /// Type mark, which the header of each open handle of this type contains: four ASCII letters,
    /// recognisable in a memory dump.
    const MARK: u32;
    const NAME: &'static str;
    /// Minimum number of free slots of this type before a new handle reuses one of them. The delay
    /// makes a late call with a closed handle find the slot closed, instead of another handle in
    /// the same slot.
    const WAITING: usize;
    /// Number of closes after which unused closed handles are freed together, because determining
    /// the handles in use takes a heavy memory barrier.
    const CLOSED_TOGETHER: usize = 64;
    fn slots() -> &'static Slots<Self::Value>;
}

#[repr(C)] // the header comes first in every type
pub(super) struct Slot<V> {
    header: Header,
    /// Value of the handle; `None` if the slot is free. Only the exclusive owner of the slot may
    /// change it.
    value: UnsafeCell<Option<V>>,
}

/// Slots of the closed handles of one C type, such as `KVIterator`, for reuse by new handles.
pub(super) struct Slots<V>(AtomicPtr<ProcessSlots<V>>);

/// Slots of the closed handles of one C type in one process. A forked child begins with empty lists
/// and an unlocked mutex; the lists of its parent stay unchanged and are never freed.
struct ProcessSlots<V> {
    generation: u32,
    lists: Mutex<Lists<V>>,
    _parent: *mut ProcessSlots<V>,
}

/// Slots of the closed handles of one C type: those whose values may still be in use, and free
/// ones.
struct Lists<V> {
    /// Slots of closed handles whose value has not been dropped yet: calls may still be using it.
    closed: Vec<SlotPointer<V>>,
    /// Number of handles closed since the values of unused closed handles were last freed.
    closes: usize,
    /// Free slots, in the order in which they became free.
    free: VecDeque<SlotPointer<V>>,
}

/// Pointer to a slot that the list containing it owns.
struct SlotPointer<V>(*mut Slot<V>);

// SAFETY: the list owns its slots, except for calls in progress, which the value must allow.
unsafe impl<V: Send> Send for SlotPointer<V> {}

impl<V> Slots<V> {
    const fn new() -> Slots<V> {
        Slots(AtomicPtr::new(null_mut()))
    }

    fn lists(&self) -> MutexGuard<'_, Lists<V>> {
        self.of_this_process().lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of_this_process(&self) -> &ProcessSlots<V> {
        let generation = crate::fork_generation();
        let mut known = self.0.load(Ordering::Acquire);
        loop {
            // SAFETY: NULL, or made below and never freed.
            if let Some(slots) = unsafe { known.as_ref() }
                && slots.generation == generation
            {
                return slots;
            }
            let lists = Lists { closed: Vec::new(), closes: 0, free: VecDeque::new() };
            let made = Box::into_raw(Box::new(ProcessSlots {
                generation,
                lists: Mutex::new(lists),
                _parent: known,
            }));
            match self.0.compare_exchange(known, made, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => known = made,
                Err(other) => {
                    // SAFETY: just created and not shared.
                    drop(unsafe { Box::from_raw(made) });
                    known = other;
                }
            }
        }
    }
}

impl Opaque for KVStore {
    type Value = StoreHandle;
    const MARK: u32 = u32::from_be_bytes(*b"KVst");
    const NAME: &'static str = "KVStore";
    const WAITING: usize = 256;
    const CLOSED_TOGETHER: usize = 1; // freeing a store costs more than a barrier
    fn slots() -> &'static Slots<StoreHandle> {
        static SLOTS: Slots<StoreHandle> = Slots::new();
        &SLOTS
    }
}

impl Opaque for KVColumnFamily {
    type Value = FamilyHandle;
    const MARK: u32 = u32::from_be_bytes(*b"KVcf");
    const NAME: &'static str = "KVColumnFamily";
    const WAITING: usize = 1024;
    fn slots() -> &'static Slots<FamilyHandle> {
        static SLOTS: Slots<FamilyHandle> = Slots::new();
        &SLOTS
    }
}

impl Opaque for KVIterator {
    type Value = Single<Cursor>;
    const MARK: u32 = u32::from_be_bytes(*b"KVit");
    const NAME: &'static str = "KVIterator";
    const WAITING: usize = 256;
    fn slots() -> &'static Slots<Single<Cursor>> {
        static SLOTS: Slots<Single<Cursor>> = Slots::new();
        &SLOTS
    }
}

impl Opaque for KVBatch {
    type Value = Single<WriteBatch>;
    const MARK: u32 = u32::from_be_bytes(*b"KVba");
    const NAME: &'static str = "KVBatch";
    const WAITING: usize = 256;
    fn slots() -> &'static Slots<Single<WriteBatch>> {
        static SLOTS: Slots<Single<WriteBatch>> = Slots::new();
        &SLOTS
    }
}

/// Reason why a call cannot use the pointer that it was given as a handle: it is NULL, it is no
/// open handle of the expected type, or another call is using the handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotOpen {
    Null,
    Closed,
    InUse,
}

/// Creates an open handle with this value, in a free slot or in a new one.
pub(super) fn open<T: Opaque>(value: T::Value) -> *mut T {
    let mut lists = T::slots().lists();
    let reused = if lists.free.len() >= T::WAITING { lists.free.pop_front() } else { None };
    drop(lists);
    match reused {
        Some(SlotPointer(slot)) => {
            // SAFETY: the list owned the slot, and no call is using it: a late call finds it
            // closed until the mark is set, and then open with this value.
            unsafe {
                *(*slot).value.get() = Some(value);
                (*slot).header.open_as(T::MARK);
            }
            slot.cast()
        }
        None => {
            let slot = Slot { header: Header::new(T::MARK), value: UnsafeCell::new(Some(value)) };
            Box::into_raw(Box::new(slot)).cast()
        }
    }
}

/// Open handle with a call in progress on it. Its value stays in memory until this is dropped, also
/// if another thread closes the handle.
pub(super) struct Entered<'a, V> {
    value: &'a V,
    stay: Stay<'a>,
}

impl<V> Deref for Entered<'_, V> {
    type Target = V;

    #[inline(always)]
    fn deref(&self) -> &V {
        self.value
    }
}

/// Begins a call on a handle that threads may share. Fails if `handle` is NULL or is no open handle
/// of the type `T`.
///
/// # Safety
/// `handle` is NULL, or was returned by [`open`] for any type.
#[inline(always)]
pub(super) unsafe fn enter<'a, T: Opaque>(handle: *const T) -> Result<Entered<'a, T::Value>, NotOpen> {
    // SAFETY: passed on.
    unsafe { entered(handle, Stay::with(header(handle)?)) }
}

/// Begins a call on a handle that one thread at a time uses. Fails if `handle` is NULL or is no
/// open handle of the type `T`.
///
/// # Safety
/// As [`enter`].
#[inline]
pub(super) unsafe fn enter_single<'a, T: Opaque>(handle: *const T) -> Result<Entered<'a, T::Value>, NotOpen> {
    // SAFETY: passed on.
    unsafe {
        let header = header(handle)?;
        entered(handle, Stay::with_mine(header).unwrap_or_else(|| Stay::with_single(header)))
    }
}

/// Begins a call on a handle that one thread at a time uses, faster than [`enter_single`]. Returns
/// `None` if the handle is not open, if another thread was the last to use it, or if this thread is
/// in another call on a single-thread handle.
///
/// # Safety
/// As [`enter`].
#[inline(always)]
pub(super) unsafe fn enter_mine<'a, T: Opaque>(handle: *const T) -> Option<Entered<'a, T::Value>> {
    // SAFETY: passed on.
    unsafe { entered(handle, Stay::with_mine(header(handle).ok()?)?).ok() }
}

/// Returns the open handle `handle` for the call that `stay` guards. Fails with `Closed` if the
/// handle is closed or has another type than `T`.
///
/// # Safety
/// As [`enter`]. `stay` guards a call on this handle.
#[inline(always)]
unsafe fn entered<'a, T: Opaque>(handle: *const T, stay: Stay<'a>) -> Result<Entered<'a, T::Value>, NotOpen> {
    // SAFETY: a handle of any type begins with a header. The mark shows the type, and that the handle was open when
    // the call had already been recorded, so its value stays.
    unsafe {
        if !header(handle)?.is_open_as(T::MARK) {
            return Err(NotOpen::Closed);
        }
        match &*(*handle.cast::<Slot<T::Value>>()).value.get() {
            Some(value) => Ok(Entered { value, stay }),
            None => Err(NotOpen::Closed),
        }
    }
}

/// Returns the header of a handle, which may be closed. Fails with `Null` if the pointer is NULL or
/// misaligned.
///
/// # Safety
/// As [`enter`].
#[inline(always)]
unsafe fn header<'a, T: Opaque>(handle: *const T) -> Result<&'a Header, NotOpen> {
    let header = handle.cast::<Header>();
    if header.is_null() || !header.is_aligned() {
        return Err(NotOpen::Null);
    }
    // SAFETY: a pointer from `open` always points to a slot, and every type of slot begins with a header.
    Ok(unsafe { &*header })
}

/// Exclusive access to the value of a single-thread handle, for one call.
pub(super) struct Exclusive<'a, V>(&'a Entered<'a, Single<V>>);

impl<'a, V> Exclusive<'a, V> {
    /// Obtains exclusive access to the value of the handle. Fails with `InUse` if another call has
    /// it.
    ///
    /// # Safety
    /// While the returned value exists, other threads do not use the handle, except to close it.
    pub(super) unsafe fn of(entered: &'a Entered<'a, Single<V>>) -> Result<Exclusive<'a, V>, NotOpen> {
        let handle = entered.stay.handle();
        if handle.is_in_use() {
            return Err(NotOpen::InUse);
        }
        handle.set_in_use(true);
        Ok(Exclusive(entered))
    }

    /// Returns the value, for reading and writing.
    pub(super) fn value(&mut self) -> &mut V {
        // SAFETY: `in_use` was not set before and stays set until this is dropped. There is no other reference,
        // because one thread at a time uses the handle.
        unsafe { &mut *self.0.value.value.get() }
    }
}

impl<V> Drop for Exclusive<'_, V> {
    fn drop(&mut self) {
        self.0.stay.handle().set_in_use(false);
    }
}

impl<V> Entered<'_, Single<V>> {
    /// Returns the value for reading. Fails with `InUse` if a call has exclusive access to it.
    ///
    /// # Safety
    /// While the returned reference exists, other threads do not use the handle, except to close
    /// it.
    #[inline(always)]
    pub(super) unsafe fn look(&self) -> Result<&V, NotOpen> {
        if self.stay.handle().is_in_use() {
            return Err(NotOpen::InUse);
        }
        // SAFETY: there is no exclusive reference unless `in_use` is set.
        Ok(unsafe { &*self.value.value.get() })
    }

    /// Returns the value for reading, in a call that [`enter_mine`] began. It need not check that
    /// no call has exclusive access, because this thread is in no other call on a single-thread
    /// handle.
    ///
    /// # Safety
    /// As [`look`](Entered::look).
    #[inline(always)]
    pub(super) unsafe fn glance(&self) -> &V {
        // SAFETY: an exclusive reference could only exist in another thread, or in another such call of this thread.
        unsafe { &*self.value.value.get() }
    }

    /// Returns the value for writing, in a call that [`enter_mine`] began.
    ///
    /// # Safety
    /// As [`look`](Entered::look). While the returned reference exists, the caller makes no other
    /// call on a single-thread handle.
    #[inline(always)]
    pub(super) unsafe fn glance_mut(&mut self) -> &mut V {
        // SAFETY: another reference could only exist in another thread, or in another such call of this thread.
        unsafe { &mut *self.value.value.get() }
    }
}

/// Handle that was just marked as closed, with its value, which calls of other threads may still be
/// using. The owner must call [`finish`](Closing::finish); otherwise slot and value are leaked.
pub(super) struct Closing<T: Opaque>(*mut Slot<T::Value>);

impl<T: Opaque> Closing<T> {
    pub(super) fn value(&self) -> Option<&T::Value> {
        // SAFETY: the value of a closed slot is dropped only through the lists, which this handle is not in yet.
        unsafe { (*(*self.0).value.get()).as_ref() }
    }

    /// Finishes the close: adds the slot to the list of closed slots, whose values are dropped when
    /// no call is using them. That is checked after every
    /// [`CLOSED_TOGETHER`](Opaque::CLOSED_TOGETHER) closes.
    pub(super) fn finish(self) {
        T::slots().lists().closed.push(SlotPointer(self.0));
        T::slots().note_close(T::CLOSED_TOGETHER);
    }
}

impl<T: Opaque<Value = Single<V>>, V: 'static> Closing<T> {
    /// Finishes the close of a single-thread handle: drops its value at once if no call is using
    /// it, because its buffers can be large. Otherwise does the same as
    /// [`finish`](Closing::finish).
    pub(super) fn finish_single(self) {
        // SAFETY: slots are never freed.
        let header = unsafe { &(*self.0).header };
        if !is_mine_alone(header) && InUse::now().is_none_or(|in_use| in_use.has(header)) {
            return self.finish();
        }
        // SAFETY: no call is using the slot, and none will: it is marked as closed.
        unsafe { *(*self.0).value.get() = None };
        T::slots().lists().free.push_back(SlotPointer(self.0));
        T::slots().note_close(T::CLOSED_TOGETHER);
    }
}

impl<V> Slots<V> {
    /// Counts one closed handle. After every `together` closed handles, drops the values of all
    /// closed handles that no running call uses.
    fn note_close(&self, together: usize) {
        let mut lists = self.lists();
        lists.closes += 1;
        let due = lists.closes >= together;
        drop(lists);
        if due {
            self.look();
        }
    }

    /// Drops the values of the closed handles that no call is using, and makes their slots free for
    /// reuse.
    fn look(&self) {
        let closed = {
            let mut lists = self.lists();
            lists.closes = 0;
            std::mem::take(&mut lists.closed)
        };
        if closed.is_empty() {
            return;
        }
        // This thread owns the slots now, and the lock is not held.
        let in_use = InUse::now();
        // SAFETY: slots are never freed.
        let is_free = |slot: &SlotPointer<_>| unsafe {
            in_use.as_ref().is_some_and(|in_use| !in_use.has(&(*slot.0).header))
        };
        let (free, used): (Vec<_>, Vec<_>) = closed.into_iter().partition(is_free);
        for slot in &free {
            // SAFETY: no call is using the slot, and none will: it is marked as closed.
            unsafe { *(*slot.0).value.get() = None };
        }
        let mut lists = self.lists();
        lists.free.extend(free);
        lists.closed.extend(used);
    }
}

/// Drops the values of all closed handles of the C type `T`, except those that calls are using.
pub(super) fn free_closed<T: Opaque>() {
    T::slots().look();
}

/// Marks a handle as closed. Of several threads that close one handle, one succeeds; the others get
/// `Closed`. Calls of other threads on the handle may still be in progress.
///
/// # Safety
/// As [`enter`].
pub(super) unsafe fn close<T: Opaque>(handle: *mut T) -> Result<Closing<T>, NotOpen> {
    // SAFETY: passed on.
    let header = unsafe { header(handle)? };
    if header.close(T::MARK) { Ok(Closing(handle.cast())) } else { Err(NotOpen::Closed) }
}

/// Marks a single-thread handle as closed. Fails with `Closed` if it is closed already, and with
/// `InUse` if the caller is a callback of a call on this handle.
///
/// # Safety
/// As [`enter`].
pub(super) unsafe fn close_single<T, V: 'static>(handle: *mut T) -> Result<Closing<T>, NotOpen>
where
    T: Opaque<Value = Single<V>>,
{
    // SAFETY: passed on.
    unsafe {
        // The value is not read, because another thread may be closing it.
        let header = header(handle)?;
        if header.is_open_as(T::MARK) && header.is_in_use() && is_mine(header) {
            return Err(NotOpen::InUse);
        }
        close(handle)
    }
}

#[cfg(test)]
mod tests;
