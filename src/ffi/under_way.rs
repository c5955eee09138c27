//! Which handles calls are under way with, so that none is taken from under its call.
//!
//! A handle may be closed by any thread at any time. A call says which handle it uses before it looks whether
//! the handle is open; whoever wants a closed handle's memory asks afterwards which handles are in use:
//!
//! |    | a call                                   | who wants the memory         |
//! |----|------------------------------------------|------------------------------|
//! | 1. | writes the handle to its thread's record | marks the handle as closed   |
//! | 2. | light barrier                            | heavy barrier                |
//! | 3. | reads the mark                           | reads all threads' records   |
//!
//! The barriers keep 1 before 3 on both sides, so at least one of the two sees the other: the call finds the
//! handle closed, or the memory is found in use. When a call is done it takes the handle from its record, with
//! a store that releases what it did.
//!
//! The heavy barrier is membarrier(2), which makes every running thread of the process pass a full barrier; so
//! the light one has to hold the compiler only, and a call pays for two stores. Where the system has no
//! membarrier, both are full barriers.

use std::cell::Cell;
use std::ptr::{from_ref, null, null_mut};
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
    compiler_fence, fence,
};

const CLOSED: u32 = 0;

/// What every handle begins with, whatever its type.
#[repr(C)]
pub(super) struct Header {
    /// The letters of its type, or 0 if it is closed.
    mark: AtomicU32,
    /// Calls under way that are in no record.
    counted: AtomicU32,
    /// A call that needs the value for itself is running. The contract gives such a handle to one thread at a
    /// time; this tells when a callback, or a second thread, does not keep to it.
    in_use: AtomicBool,
    /// Of a handle for one thread at a time: the record of the thread that used it last, which sets this itself,
    /// before its call. Of one that threads share: the record of the first, to save that one a search.
    user: AtomicPtr<Record>,
}

impl Header {
    pub(super) fn new(mark: u32) -> Header {
        Header {
            mark: AtomicU32::new(mark),
            counted: AtomicU32::new(0),
            in_use: AtomicBool::new(false),
            user: AtomicPtr::new(null_mut()),
        }
    }

    #[inline(always)]
    pub(super) fn is_open_as(&self, mark: u32) -> bool {
        self.mark.load(Acquire) == mark
    }

    /// Opens a closed handle again, whose value has been set.
    pub(super) fn open_as(&self, mark: u32) {
        self.user.store(null_mut(), Relaxed);
        self.mark.store(mark, Release);
    }

    /// Says whether it was open, and is closed by this very call.
    pub(super) fn close(&self, mark: u32) -> bool {
        self.mark.compare_exchange(mark, CLOSED, SeqCst, Relaxed).is_ok()
    }

    #[inline(always)]
    pub(super) fn is_in_use(&self) -> bool {
        self.in_use.load(Relaxed)
    }

    pub(super) fn set_in_use(&self, in_use: bool) {
        self.in_use.store(in_use, Relaxed);
    }

    fn pointer(&self) -> *mut Header {
        from_ref(self).cast_mut()
    }
}

/// What a thread is doing. Only that thread writes to it. Never freed; a thread that ends leaves it to the next.
#[repr(align(128))] // no other thread's record in the same cache line, nor in the one that is fetched with it
pub(super) struct Record {
    /// The number of its thread; 0 if it has none.
    thread: AtomicUsize,
    /// The handle for many threads that a call is under way with.
    shared: AtomicPtr<Header>,
    /// The handle for one thread at a time.
    single: AtomicPtr<Header>,
    next: AtomicPtr<Record>,
}

/// All records. The list only grows, to as many as there were threads at once.
static RECORDS: AtomicPtr<Record> = AtomicPtr::new(null_mut());

/// Stands for a thread that has no record, as it is ending.
static ENDING: Record = Record::of(0);

thread_local! {
    /// This thread's record, or NULL.
    static MINE: Cell<*const Record> = const { Cell::new(null()) };
    static LEASE: Lease = const { Lease(Cell::new(null())) };
}

/// Gives the record back when the thread ends.
struct Lease(Cell<*const Record>);

impl Drop for Lease {
    fn drop(&mut self) {
        MINE.set(null());
        // SAFETY: NULL, or a record, which are never freed.
        if let Some(record) = unsafe { self.0.get().as_ref() } {
            record.thread.store(0, Release);
        }
    }
}

impl Record {
    const fn of(thread: usize) -> Record {
        Record {
            thread: AtomicUsize::new(thread),
            shared: AtomicPtr::new(null_mut()),
            single: AtomicPtr::new(null_mut()),
            next: AtomicPtr::new(null_mut()),
        }
    }

    fn all() -> impl Iterator<Item = &'static Record> {
        // SAFETY: NULL, or a record, which are never freed.
        let follow = |next: &AtomicPtr<Record>| unsafe { next.load(Acquire).as_ref() };
        std::iter::successors(follow(&RECORDS), move |record| follow(&record.next))
    }

    /// The one of this thread; `None` if the thread is ending and has given it back.
    #[inline(always)]
    fn mine() -> Option<&'static Record> {
        // SAFETY: NULL, or a record, which are never freed.
        unsafe { MINE.get().as_ref() }.or_else(Record::lease)
    }

    #[inline(always)]
    fn is_mine(&self) -> bool {
        self.thread.load(Relaxed) == this_thread()
    }

    /// This thread's, to be found quickly by its next calls with the same handle if it is the first to use it.
    #[inline(never)]
    fn of_user(handle: &Header, is_first: bool) -> Option<&'static Record> {
        let record = Record::mine()?;
        if is_first {
            handle.user.store(from_ref(record).cast_mut(), Release);
        }
        Some(record)
    }

    #[cold]
    #[inline(never)]
    fn lease() -> Option<&'static Record> {
        LEASE
            .try_with(|lease| {
                let thread = this_thread();
                let free = |record: &&Record| {
                    record.thread.load(Relaxed) == 0
                        && record.thread.compare_exchange(0, thread, Acquire, Relaxed).is_ok()
                };
                let record = Record::all().find(free).unwrap_or_else(|| Record::add(thread));
                lease.0.set(record);
                MINE.set(record);
                record
            })
            .ok()
    }

    fn add(thread: usize) -> &'static Record {
        let record = Box::leak(Box::new(Record::of(thread)));
        let mut first = RECORDS.load(Relaxed);
        loop {
            record.next.store(first, Relaxed);
            match RECORDS.compare_exchange_weak(first, record, Release, Relaxed) {
                Ok(_) => return record,
                Err(other) => first = other,
            }
        }
    }
}

/// A number that no other living thread has; never 0. Asked for with each step of an iterator, so without a call
/// where there is a way: it is the thread pointer, to which thread-local memory is relative.
#[inline(always)]
fn this_thread() -> usize {
    let thread: usize;
    #[cfg(all(target_os = "linux", target_arch = "x86_64", target_pointer_width = "64"))]
    // SAFETY: the ABI of thread-local storage puts the thread pointer at its own first word; only read.
    unsafe {
        std::arch::asm!("mov {}, fs:0", out(reg) thread, options(nostack, preserves_flags, readonly, pure));
    }
    #[cfg(all(target_os = "linux", target_arch = "aarch64", target_pointer_width = "64"))]
    // SAFETY: the register has the thread pointer; only read.
    unsafe {
        std::arch::asm!("mrs {}, tpidr_el0", out(reg) thread, options(nostack, preserves_flags, nomem, pure));
    }
    #[cfg(not(all(
        target_os = "linux",
        any(target_arch = "x86_64", target_arch = "aarch64"),
        target_pointer_width = "64"
    )))]
    {
        // Elsewhere, where something of the thread's own is.
        thread_local!(static OWN: Cell<u8> = const { Cell::new(0) });
        thread = OWN.with(|own| from_ref(own).addr());
    }
    thread
}

/// A call that is under way with a handle, as long as this lives.
pub(super) struct Stay<'a> {
    handle: &'a Header,
    /// Where the thread's record says so; `None` if the handle counts it.
    place: Option<&'static AtomicPtr<Header>>,
}

impl Drop for Stay<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        match self.place {
            Some(place) => place.store(null_mut(), Release),
            None => {
                self.handle.counted.fetch_sub(1, Release);
            }
        }
    }
}

impl<'a> Stay<'a> {
    #[inline(always)]
    pub(super) fn handle(&self) -> &'a Header {
        self.handle
    }

    /// With a handle for many threads. The mark is to be read after this.
    #[inline(always)]
    pub(super) fn with(handle: &'a Header) -> Stay<'a> {
        // SAFETY: NULL, or a record, which are never freed.
        let record = match unsafe { handle.user.load(Acquire).as_ref() } {
            Some(record) if record.is_mine() => Some(record),
            first => Record::of_user(handle, first.is_none()),
        };
        Stay::at(record.map(|record| &record.shared), handle)
    }

    /// With a handle for one thread at a time. The mark is to be read after this.
    #[cold]
    #[inline(never)]
    pub(super) fn with_single(handle: &'a Header) -> Stay<'a> {
        let record = Record::mine();
        let user = from_ref(record.unwrap_or(&ENDING)).cast_mut();
        if handle.user.load(Relaxed) != user {
            handle.user.store(user, Release);
            // Who closes the handle marks it, and then looks who has used it: see `is_mine_alone`.
            fence(SeqCst);
        }
        Stay::at(record.map(|record| &record.single), handle)
    }

    /// The same, if this thread was the last to use the handle and is in no other such call.
    #[inline(always)]
    pub(super) fn with_mine(handle: &'a Header) -> Option<Stay<'a>> {
        // SAFETY: NULL, or a record, which are never freed.
        let record = unsafe { handle.user.load(Acquire).as_ref()? };
        if !record.is_mine() || !record.single.load(Relaxed).is_null() {
            return None;
        }
        Some(Stay::written(&record.single, handle))
    }

    #[inline(always)]
    fn at(place: Option<&'static AtomicPtr<Header>>, handle: &'a Header) -> Stay<'a> {
        match place {
            Some(place) if place.load(Relaxed).is_null() => Stay::written(place, handle),
            _ => Stay::counted(handle),
        }
    }

    /// `place` is in this thread's record, and empty.
    #[inline(always)]
    fn written(place: &'static AtomicPtr<Header>, handle: &'a Header) -> Stay<'a> {
        // Releases what earlier calls did: whoever reads this knows that they are over.
        place.store(handle.pointer(), Release);
        light_barrier();
        Stay { handle, place: Some(place) }
    }

    /// For a call inside a call, from a callback, and for threads without a record.
    #[cold]
    #[inline(never)]
    fn counted(handle: &'a Header) -> Stay<'a> {
        handle.counted.fetch_add(1, Relaxed);
        fence(SeqCst);
        Stay { handle, place: None }
    }
}

/// Whether this thread was the last to use a handle that is for one thread at a time.
pub(super) fn is_mine(handle: &Header) -> bool {
    let mine = Record::mine().map_or(null(), from_ref);
    !mine.is_null() && std::ptr::eq(handle.user.load(Relaxed), mine)
}

/// Whether no other thread can be in a call with a handle that is for one thread at a time, and that this thread
/// has just marked as closed: nobody else used it last, and who comes now sees the mark.
pub(super) fn is_mine_alone(closed: &Header) -> bool {
    fence(SeqCst);
    closed.user.load(Relaxed).is_null() || is_mine(closed)
}

/// The handles that calls are under way with, of those that were marked as closed before.
pub(super) struct InUse(Vec<*mut Header>);

impl InUse {
    /// `None`: there is no telling.
    pub(super) fn now() -> Option<InUse> {
        heavy_barrier().then(|| {
            let places = Record::all().flat_map(|record| [&record.shared, &record.single]);
            let handles = places.map(|place| place.load(Acquire));
            InUse(handles.filter(|handle| !handle.is_null()).collect())
        })
    }

    pub(super) fn has(&self, closed: &Header) -> bool {
        closed.counted.load(Acquire) > 0 || self.0.contains(&closed.pointer())
    }
}

/// Which barriers are used. Decided before the first handle is given out, and never again.
static BARRIERS: AtomicU8 = AtomicU8::new(UNDECIDED);
const UNDECIDED: u8 = 0;
/// Both are full ones.
const EVEN: u8 = 1;
/// The heavy one is membarrier(2), the light one for the compiler only.
const UNEVEN: u8 = 2;

/// Finds out which barriers there are. To be called before a handle is given out.
pub(super) fn prepare() {
    if BARRIERS.load(Relaxed) == UNDECIDED {
        let barriers = if membarrier(REGISTER) { UNEVEN } else { EVEN };
        // Of two threads that are here at once, one decides.
        let _ = BARRIERS.compare_exchange(UNDECIDED, barriers, SeqCst, SeqCst);
    }
}

#[inline(always)]
fn light_barrier() {
    if BARRIERS.load(Relaxed) == UNEVEN {
        compiler_fence(SeqCst);
    } else {
        fence(SeqCst);
    }
}

/// Says whether it could.
fn heavy_barrier() -> bool {
    fence(SeqCst);
    if BARRIERS.load(Relaxed) != UNEVEN {
        return true;
    }
    // A forked child may have to register anew.
    let done = membarrier(EXPEDITED) || (membarrier(REGISTER) && membarrier(EXPEDITED));
    fence(SeqCst);
    done
}

/// `MEMBARRIER_CMD_PRIVATE_EXPEDITED`: no other process is disturbed.
const EXPEDITED: libc::c_int = 1 << 3;
/// `MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED`
const REGISTER: libc::c_int = 1 << 4;

#[cfg(target_os = "linux")]
#[allow(clippy::disallowed_methods, reason = "not on Android")]
fn membarrier(command: libc::c_int) -> bool {
    let none: libc::c_int = 0;
    // SAFETY: the call takes no memory.
    unsafe { libc::syscall(libc::SYS_membarrier, command, none, none) == 0 }
}

/// Android has the call, and ends an application that makes it, before Android 10.
#[cfg(not(target_os = "linux"))]
fn membarrier(_: libc::c_int) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    use super::*;

    /// A processor keeps what it writes to itself for a while, the longer the further away the memory is that it
    /// has written to before, and reads on meanwhile. The heavy barrier must drive that out.
    #[test]
    fn of_two_that_write_and_then_read_what_the_other_writes_one_sees_the_other() {
        const ROUNDS: usize = 20_000;
        const LINES: usize = 512 * 1024;
        prepare();
        let far: Vec<[AtomicUsize; 8]> = (0..LINES).map(|_| Default::default()).collect();
        let (light, heavy) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let (round, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let reach = |counter: &AtomicUsize, number| {
            for turn in 0_usize.. {
                if counter.load(Acquire) >= number {
                    break;
                } else if turn > 2000 {
                    thread::yield_now();
                }
            }
        };
        let mut blind = 0;
        thread::scope(|scope| {
            let light_side = scope.spawn(|| {
                let mut line = 1_usize;
                let seen = |n| {
                    reach(&round, n);
                    for _ in 0..30 {
                        line = line.wrapping_mul(1_103_515_245).wrapping_add(12_345) % LINES;
                        far[line][0].store(n, Relaxed);
                    }
                    light.store(n, Release);
                    light_barrier();
                    let seen = heavy.load(Relaxed) >= n;
                    ended.store(n, Release);
                    seen
                };
                (1..=ROUNDS).map(seen).collect::<Vec<bool>>()
            });
            let seen_by_heavy: Vec<bool> = (1..=ROUNDS)
                .map(|n| {
                    round.store(n, Release);
                    for _ in 0..n % 300 {
                        std::hint::spin_loop();
                    }
                    heavy.store(n, Relaxed);
                    assert!(heavy_barrier());
                    let seen = light.load(Relaxed) >= n;
                    reach(&ended, n);
                    seen
                })
                .collect();
            let seen_by_light = light_side.join().expect("no panic");
            blind = seen_by_light.iter().zip(&seen_by_heavy).filter(|&(a, b)| !a && !b).count();
        });
        assert_eq!(blind, 0);
    }
}
