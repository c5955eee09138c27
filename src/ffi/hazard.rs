//! Tracks the handles that calls are using (hazard pointers), so that no handle is freed during a call.
//!
//! Any thread may close a handle at any time. A call records the handle it uses before it checks that the handle is
//! open. The thread that frees closed handles marks them first, and then reads the records:
//!
//! |    | a call                                          | the thread that frees        |
//! |----|-------------------------------------------------|------------------------------|
//! | 1. | writes the handle to the record of its thread   | marks the handle as closed   |
//! | 2. | light barrier                                   | heavy barrier                |
//! | 3. | reads the mark                                  | reads the records            |
//!
//! The barriers keep step 1 before step 3 on both sides, so at least one side sees the other: either the call finds
//! the handle closed, or the handle is found in use. At its end a call removes the handle from its record with a
//! release store.
//!
//! The heavy barrier is membarrier(2), which executes a full barrier in every running thread of the process. The light
//! barrier therefore only restrains the compiler, and a call costs two stores. On systems without membarrier, both are
//! full barriers.

use std::cell::Cell;
use std::ptr::{from_ref, null, null_mut};
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
    compiler_fence, fence,
};

const CLOSED: u32 = 0;

/// Header of a C handle, the first field of its memory: whether the handle is open, its type, and
/// which calls are using it.
#[repr(C)]
pub(super) struct Header {
    /// ASCII letters of the handle's type (`Opaque::MARK`) while the handle is open; `CLOSED` (0)
    /// otherwise.
    mark: AtomicU32,
    /// Number of calls in progress on this handle that are listed in no [`Record`]: calls nested in
    /// a call (from a callback), and calls of threads without a record.
    counted: AtomicU32,
    /// Whether a call with exclusive access to the value is in progress. Only single-thread handles
    /// use this flag: it detects a callback or a second thread that uses the handle during the
    /// call.
    in_use: AtomicBool,
    /// Single-thread handle: record of the thread that used the handle last, stored by that thread
    /// when its call begins. Shared handle: record of the first thread that used the handle, so
    /// that this thread finds its own record without a search.
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

    /// Marks the handle in a reused slot as open. `mark` is the mark of its type (`Opaque::MARK`).
    /// Call this after the value of the handle was set.
    pub(super) fn open_as(&self, mark: u32) {
        self.user.store(null_mut(), Relaxed);
        self.mark.store(mark, Release);
    }

    /// Marks the handle as closed if it is open with the type mark `mark`. Returns `false`, and
    /// changes nothing, if it is not.
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

/// Hazard record of one thread: the handles that its calls are using. Only this thread stores
/// handles in it. Records are never freed; a new thread reuses the record of a thread that has
/// ended.
#[repr(align(128))] // its own cache line, and its own pair of prefetched lines
pub(super) struct Record {
    /// Number of the thread that owns the record ([`this_thread`]); 0 if the record is free.
    thread: AtomicUsize,
    /// Shared handle that a call of the thread is using; NULL if none.
    shared: AtomicPtr<Header>,
    /// Single-thread handle that a call of the thread is using; NULL if none.
    single: AtomicPtr<Header>,
    next: AtomicPtr<Record>,
}

/// First element of the linked list of the hazard records of all threads. The list only grows, up
/// to the largest number of threads that used handles at the same time.
static RECORDS: AtomicPtr<Record> = AtomicPtr::new(null_mut());

/// Record to which [`Header::user`] points if a thread that is ending, and has released its own
/// record, was the last to use the handle.
static ENDING: Record = Record::of(0);

thread_local! {
    /// Hazard record of this thread; NULL if it has none.
    static MINE: Cell<*const Record> = const { Cell::new(null()) };
    static LEASE: Lease = const { Lease(Cell::new(null())) };
}

/// Guard in a thread-local variable that releases the hazard record of its thread when the thread
/// ends, so that another thread can reuse the record.
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

    /// Returns the hazard record of this thread; obtains one if it has none. Returns `None` if the
    /// thread is ending and has released its record.
    #[inline(always)]
    fn mine() -> Option<&'static Record> {
        // SAFETY: NULL, or a record, which are never freed.
        unsafe { MINE.get().as_ref() }.or_else(Record::lease)
    }

    #[inline(always)]
    fn is_mine(&self) -> bool {
        self.thread.load(Relaxed) == this_thread()
    }

    /// Returns the record of this thread; `None` if the thread is ending. `is_first` means that no
    /// thread has used `handle` before: then the record is also stored in `handle.user`, so that
    /// the next calls of this thread find it without a search.
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

/// Returns a number that is unique among the running threads, and never 0.
///
/// Each step of an iterator needs it. On 64-bit Linux on x86-64 and AArch64 it is therefore the
/// thread pointer, which is read without a function call.
#[inline(always)]
fn this_thread() -> usize {
    let thread: usize;
    #[cfg(all(target_os = "linux", target_arch = "x86_64", target_pointer_width = "64"))]
    // SAFETY: by the ABI of thread-local storage, fs:0 contains the thread pointer; it is only read.
    unsafe {
        std::arch::asm!("mov {}, fs:0", out(reg) thread, options(nostack, preserves_flags, readonly, pure));
    }
    #[cfg(all(target_os = "linux", target_arch = "aarch64", target_pointer_width = "64"))]
    // SAFETY: the register contains the thread pointer; it is only read.
    unsafe {
        std::arch::asm!("mrs {}, tpidr_el0", out(reg) thread, options(nostack, preserves_flags, nomem, pure));
    }
    #[cfg(not(all(
        target_os = "linux",
        any(target_arch = "x86_64", target_arch = "aarch64"),
        target_pointer_width = "64"
    )))]
    {
        // Elsewhere: the address of a thread-local variable.
        thread_local!(static OWN: Cell<u8> = const { Cell::new(0) });
        thread = OWN.with(|own| from_ref(own).addr());
    }
    thread
}

/// Guard of a C call on a handle. While the guard exists, the handle's value is not freed. The call
/// ends when the guard is dropped.
pub(super) struct Stay<'a> {
    handle: &'a Header,
    /// Field of this thread's record that contains the handle; `None` if `Header::counted` counts
    /// the call instead.
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

    /// Begins a call on a shared handle. The caller must check the mark of the handle afterwards,
    /// because the handle may have been closed before.
    #[inline(always)]
    pub(super) fn with(handle: &'a Header) -> Stay<'a> {
        // SAFETY: NULL, or a record, which are never freed.
        let record = match unsafe { handle.user.load(Acquire).as_ref() } {
            Some(record) if record.is_mine() => Some(record),
            first => Record::of_user(handle, first.is_none()),
        };
        Stay::at(record.map(|record| &record.shared), handle)
    }

    /// Begins a call on a single-thread handle. The caller must check the mark of the handle
    /// afterwards, because the handle may have been closed before.
    #[cold]
    #[inline(never)]
    pub(super) fn with_single(handle: &'a Header) -> Stay<'a> {
        let record = Record::mine();
        let user = from_ref(record.unwrap_or(&ENDING)).cast_mut();
        if handle.user.load(Relaxed) != user {
            handle.user.store(user, Release);
            // A thread that closes the handle marks it, and then reads its last user: see `is_mine_alone`.
            fence(SeqCst);
        }
        Stay::at(record.map(|record| &record.single), handle)
    }

    /// Begins a call on a single-thread handle, like `with_single` but faster. Returns `None`,
    /// without beginning the call, unless this thread was the last to use the handle and is in no
    /// other call on a single-thread handle.
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

    /// Begins a call on `handle`, and stores the handle in `place`, an empty field of this thread's
    /// record.
    #[inline(always)]
    fn written(place: &'static AtomicPtr<Header>, handle: &'a Header) -> Stay<'a> {
        // Release: a thread that reads this pointer also sees that this thread's earlier calls have
        // ended, although it may have missed the NULL that each of them stored here.
        place.store(handle.pointer(), Release);
        light_barrier();
        Stay { handle, place: Some(place) }
    }

    /// Begins a call that cannot be stored in a record, and counts it in the handle instead: a call
    /// nested in another call (from a callback), or a call of a thread without a record.
    #[cold]
    #[inline(never)]
    fn counted(handle: &'a Header) -> Stay<'a> {
        handle.counted.fetch_add(1, Relaxed);
        fence(SeqCst);
        Stay { handle, place: None }
    }
}

/// Returns `true` if this thread was the last to use a single-thread handle; `false` also if this
/// thread is ending and has no record.
pub(super) fn is_mine(handle: &Header) -> bool {
    let mine = Record::mine().map_or(null(), from_ref);
    !mine.is_null() && std::ptr::eq(handle.user.load(Relaxed), mine)
}

/// Returns `true` if no other thread can be in a call with a single-thread handle that this thread
/// has just marked as closed: no other thread was the last to use it, and later calls find it
/// closed. After `false`, another thread may be in such a call.
pub(super) fn is_mine_alone(closed: &Header) -> bool {
    fence(SeqCst);
    closed.user.load(Relaxed).is_null() || is_mine(closed)
}

/// Snapshot of the handles that calls are using. It is conclusive only for handles that were marked
/// as closed before it was taken.
pub(super) struct InUse(Vec<*mut Header>);

impl InUse {
    /// Takes a snapshot of the handles that calls are using. Returns `None` if the heavy barrier
    /// failed, so that the handles in use cannot be determined.
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

/// Kind of memory barriers that calls and the freeing of handles use: `UNDECIDED`, `EVEN` or
/// `UNEVEN`. [`prepare`] decides it once, before the first handle is returned to the caller.
static BARRIERS: AtomicU8 = AtomicU8::new(UNDECIDED);
const UNDECIDED: u8 = 0;
/// Value of [`BARRIERS`]: both the light and the heavy barrier are full memory barriers.
const EVEN: u8 = 1;
/// Value of [`BARRIERS`]: the heavy barrier is membarrier(2), and the light barrier only prevents
/// the compiler from reordering.
const UNEVEN: u8 = 2;

/// Decides which kind of memory barriers this process uses. Must be called before the first handle
/// is returned to the caller.
pub(super) fn prepare() {
    if BARRIERS.load(Relaxed) == UNDECIDED {
        let barriers = if membarrier(REGISTER) { UNEVEN } else { EVEN };
        // If two threads are here at once, one of them decides.
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

/// Executes the heavy memory barrier, which the thread that frees closed handles needs before it
/// reads the hazard records. Returns `false` if that failed; then it must free none.
fn heavy_barrier() -> bool {
    fence(SeqCst);
    if BARRIERS.load(Relaxed) != UNEVEN {
        return true;
    }
    // A forked child may have to register again.
    let done = membarrier(EXPEDITED) || (membarrier(REGISTER) && membarrier(EXPEDITED));
    fence(SeqCst);
    done
}

/// Command `MEMBARRIER_CMD_PRIVATE_EXPEDITED` of membarrier(2): a full barrier in the running
/// threads of this process only.
const EXPEDITED: libc::c_int = 1 << 3;
/// Command `MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED` of membarrier(2), which a process must
/// execute before [`EXPEDITED`].
const REGISTER: libc::c_int = 1 << 4;

#[cfg(target_os = "linux")]
#[allow(clippy::disallowed_methods, reason = "not on Android")]
fn membarrier(command: libc::c_int) -> bool {
    let none: libc::c_int = 0;
    // SAFETY: the call accesses no memory.
    unsafe { libc::syscall(libc::SYS_membarrier, command, none, none) == 0 }
}

/// Returns `false`, for failure, because membarrier(2) exists on Linux only. It is not used on
/// Android: before version 10, Android kills an application that makes this system call.
#[cfg(not(target_os = "linux"))]
fn membarrier(_: libc::c_int) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    use super::*;

    /// A CPU delays its stores in a buffer while it continues to load. The delay is longer after
    /// stores to memory that is not in the cache, which this test therefore makes. The heavy
    /// barrier must flush that buffer.
    #[test]
    fn asymmetric_barrier_makes_one_store_visible() {
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
