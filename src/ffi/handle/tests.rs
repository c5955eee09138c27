//! Handles that are closed under a call: by a type of the tests with handles of its own. The C API's own, in
//! `tests/c/abuse_reuse.c`.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use super::*;
use crate::ffi::call::CallState;
use crate::ffi::hazard::prepare;

/// How many handles are opened and closed at least until every slot that is free has been used again.
const MANY: usize = WAITING + 2 * TOGETHER;
const WAITING: usize = 100;
const TOGETHER: usize = 40;

/// Tells when it is dropped.
struct Value(Sender<()>);

impl Drop for Value {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

fn value() -> (Value, Receiver<()>) {
    let (dropped, is_dropped) = channel();
    (Value(dropped), is_dropped)
}

fn single(value: Value) -> Single<Value> {
    Single::new(value, &CallState::new())
}

/// A type of handles for a test alone, as slots are kept by type.
macro_rules! handles {
    ($name:ident, $value:ty) => {
        struct $name;

        impl Opaque for $name {
            type Value = $value;
            const MARK: u32 = u32::from_be_bytes(*b"test");
            const NAME: &'static str = "a test's";
            const WAITING: usize = WAITING;
            const CLOSED_TOGETHER: usize = TOGETHER;
            fn slots() -> &'static Slots<$value> {
                static SLOTS: Slots<$value> = Slots::new();
                prepare();
                &SLOTS
            }
        }
    };
}

/// A handle on its way to another thread.
struct Sent<T>(*mut T);

// SAFETY: handles are for any thread.
unsafe impl<T> Send for Sent<T> {}

impl<T> Sent<T> {
    fn handle(&self) -> *mut T {
        self.0
    }
}

fn close_it<T: Opaque>(handle: *mut T) {
    // SAFETY: a handle.
    unsafe { close(handle) }.expect("was open").finish();
}

fn close_single_of<T: Opaque<Value = Single<Value>>>(handle: *mut T) {
    // SAFETY: a handle.
    unsafe { close_single(handle) }.expect("was open").finish_single();
}

/// The slots that come when so many handles are opened and closed.
fn slots_that_come<T: Opaque<Value = Value>>(times: usize) -> BTreeSet<usize> {
    let next = || {
        let handle = open::<T>(value().0);
        close_it(handle);
        handle.addr()
    };
    (0..times).map(|_| next()).collect()
}

fn singles_that_come<T: Opaque<Value = Single<Value>>>(times: usize) -> BTreeSet<usize> {
    let next = || {
        let handle = open::<T>(single(value().0));
        close_single_of(handle);
        handle.addr()
    };
    (0..times).map(|_| next()).collect()
}

#[test]
fn closed_slot_is_reused_only_after_waiting_slots() {
    handles!(Handle, Value);
    let handle = open::<Handle>(value().0);
    close_it(handle);
    assert!(!slots_that_come::<Handle>(WAITING).contains(&handle.addr()));
    assert!(slots_that_come::<Handle>(2 * TOGETHER).contains(&handle.addr()));
    assert!(slots_that_come::<Handle>(50 * MANY).len() <= MANY);
}

#[test]
fn running_call_keeps_object_and_slot_until_return() {
    handles!(Handle, Value);
    let (value, is_dropped) = value();
    let handle = open::<Handle>(value);
    // SAFETY: a handle.
    let call = unsafe { enter(handle) }.expect("open");
    let sent = Sent(handle);
    thread::spawn(move || close_it(sent.handle())).join().expect("no panic");
    assert!(!slots_that_come::<Handle>(3 * MANY).contains(&handle.addr()));
    assert!(is_dropped.try_recv().is_err());
    // SAFETY: a handle.
    assert_eq!(unsafe { enter(handle) }.err(), Some(NotOpen::Closed));

    drop(call);
    assert!(slots_that_come::<Handle>(3 * MANY).contains(&handle.addr()));
    assert!(is_dropped.try_recv().is_ok());
}

#[test]
fn nested_call_keeps_its_handle() {
    handles!(Handle, Value);
    let (outer, inner) = (open::<Handle>(value().0), open::<Handle>(value().0));
    // SAFETY: handles.
    let (outside, inside) = unsafe { (enter(outer).expect("open"), enter(inner).expect("open")) };
    close_it(inner);
    close_it(outer);
    let come = slots_that_come::<Handle>(3 * MANY);
    assert!(!come.contains(&outer.addr()) && !come.contains(&inner.addr()));
    drop(inside);
    let come = slots_that_come::<Handle>(3 * MANY);
    assert!(!come.contains(&outer.addr()) && come.contains(&inner.addr()));
    drop(outside);
    assert!(slots_that_come::<Handle>(3 * MANY).contains(&outer.addr()));
}

#[test]
fn concurrent_close_of_one_handle_succeeds_once() {
    handles!(Handle, Value);
    for _ in 0..200 {
        let handle = open::<Handle>(value().0);
        let closed = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..3 {
                let sent = Sent(handle);
                scope.spawn(|| {
                    let sent = sent;
                    // SAFETY: a handle.
                    if let Ok(closing) = unsafe { close(sent.handle()) } {
                        closing.finish();
                        closed.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(closed.into_inner(), 1);
    }
}

#[test]
fn close_drops_unused_single_thread_object() {
    handles!(Handle, Single<Value>);
    // Never used; used by who closes it; used by another thread, which is alive or has ended.
    for used_by in 0..4 {
        let (value, is_dropped) = value();
        let handle = open::<Handle>(single(value));
        let sent = Sent(handle);
        // SAFETY: a handle.
        let uses = move || unsafe { drop(enter_single(sent.handle()).expect("open")) };
        let (go, may_end) = channel::<()>();
        let (used, was_used) = channel();
        let other = match used_by {
            0 => None,
            1 => {
                uses();
                None
            }
            _ => Some(thread::spawn(move || {
                uses();
                used.send(()).expect("waited for");
                let _ = may_end.recv();
            })),
        };
        if used_by > 1 {
            was_used.recv().expect("no panic");
        }
        if used_by == 3 {
            drop(go);
            other.expect("a thread").join().expect("no panic");
            close_single_of(handle);
        } else {
            close_single_of(handle);
            drop(go);
            if let Some(other) = other {
                other.join().expect("no panic");
            }
        }
        assert!(is_dropped.try_recv().is_ok(), "used by {used_by}");
    }
}

#[test]
fn single_thread_object_closed_during_call_lives_until_return() {
    handles!(Handle, Single<Value>);
    for quick in [false, true] {
        let (value, is_dropped) = value();
        let handle = open::<Handle>(single(value));
        // SAFETY: a handle.
        let call = unsafe {
            if quick {
                assert!(enter_mine(handle).is_none()); // nobody has used it
                drop(enter_single(handle).expect("open"));
                enter_mine(handle).expect("used by this thread")
            } else {
                enter_single(handle).expect("open")
            }
        };
        let sent = Sent(handle);
        let come = thread::spawn(move || {
            close_single_of(sent.handle());
            singles_that_come::<Handle>(3 * MANY)
        });
        assert!(!come.join().expect("no panic").contains(&handle.addr()));
        assert!(is_dropped.try_recv().is_err());
        drop(call);
        // SAFETY: a handle.
        unsafe {
            assert_eq!(enter_single(handle).err(), Some(NotOpen::Closed));
            assert!(enter_mine(handle).is_none());
        }
        assert!(singles_that_come::<Handle>(3 * MANY).contains(&handle.addr()));
        assert!(is_dropped.try_recv().is_ok());
    }
}

#[test]
fn callback_cannot_close_its_own_handle() {
    handles!(Handle, Single<Value>);
    let handle = open::<Handle>(single(value().0));
    // SAFETY: a handle.
    unsafe {
        let call = enter_single(handle).expect("open");
        let alone = Exclusive::of(&call).expect("not in use");
        assert_eq!(close_single(handle).err(), Some(NotOpen::InUse));
        assert!(Exclusive::of(&call).is_err());
        drop(alone);
        drop(call);
    }
    close_single_of(handle);
}

#[test]
fn handle_of_other_type_is_not_open() {
    handles!(Handle, Value);
    let family = open::<Handle>(value().0);
    // SAFETY: a handle, of another type.
    unsafe {
        assert_eq!(enter::<KVStore>(family.cast()).err(), Some(NotOpen::Closed));
        assert!(close::<KVStore>(family.cast()).is_err());
        assert!(close_single::<KVIterator, _>(family.cast()).is_err());
        assert_eq!(enter::<Handle>(null_mut()).err(), Some(NotOpen::Null));
        assert_eq!(enter::<Handle>(family.byte_add(1)).err(), Some(NotOpen::Null));
    }
    close_it(family);
}

/// Threads that use whatever handle is at a place, while others close it and open another there.
#[test]
fn concurrent_calls_never_see_value_change() {
    struct Numbered(AtomicUsize);
    impl Drop for Numbered {
        fn drop(&mut self) {
            self.0.store(0, Ordering::Relaxed); // what a call must never see
        }
    }
    handles!(Handle, Numbered);
    const PLACES: usize = 3;
    let places: [AtomicPtr<Handle>; PLACES] =
        std::array::from_fn(|n| AtomicPtr::new(open(Numbered(AtomicUsize::new(n + 1)))));
    let (stop, seen) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for thread in 0..3 {
            let (places, stop, seen) = (&places, &stop, &seen);
            scope.spawn(move || {
                for turn in thread.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let place = &places[turn % PLACES];
                    // SAFETY: a handle.
                    if let Ok(call) = unsafe { enter(place.load(Ordering::Acquire)) } {
                        let number = call.0.load(Ordering::Relaxed);
                        assert!(number > 0);
                        if turn % 64 == 0 {
                            thread::yield_now();
                        }
                        assert_eq!(call.0.load(Ordering::Relaxed), number);
                        seen.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        for turn in 0..60_000 {
            let next = open(Numbered(AtomicUsize::new(turn + 1)));
            close_it(places[turn % PLACES].swap(next, Ordering::AcqRel));
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(seen.into_inner() > 0);
}

/// A fork while another thread holds the lock of the slots: the child has a lock and lists of its own.
#[cfg(unix)]
#[test]
fn forked_child_uses_own_slots_without_waiting() {
    handles!(Handle, Value);
    let before = open::<Handle>(value().0);
    close_it(before);
    let slots = Handle::slots();
    let held = slots.lists();
    // SAFETY: the child only makes and closes handles of this type, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: has no preconditions.
        unsafe { libc::alarm(20) };
        crate::fork::begin_generation();
        let fine = std::panic::catch_unwind(|| slots_that_come::<Handle>(3 * MANY))
            .is_ok_and(|come| !come.contains(&before.addr()) && come.len() <= MANY);
        // SAFETY: ends this process, with no handlers of the test's.
        unsafe { libc::_exit(if fine { 0 } else { 1 }) };
    }
    drop(held);
    let mut status = -1;
    // SAFETY: the child made above, and a place for its status.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
}
