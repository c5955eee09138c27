//! Clocks of stores. Only this module reads the wall clock.
//!
//! Time is `i64` milliseconds since the Unix epoch. If the system clock is set back by at most
//! [`STANDSTILL_MS`], time stands still until the system clock has caught up, so that an expired
//! key stays expired. If the system clock is set back by more, it was wrong before, and time
//! follows it at once (ADR 30). An injected clock never runs backwards until it is replaced. A
//! store on a server uses the clock of the server instead.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::atomic::AtomicI64;

#[cfg(all(target_os = "linux", target_pointer_width = "32"))]
mod beyond_2038;
#[cfg(all(target_os = "linux", target_pointer_width = "32"))]
use beyond_2038::now as system_time;

#[cfg(not(all(target_os = "linux", target_pointer_width = "32")))]
fn system_time() -> SystemTime {
    SystemTime::now()
}

type Source = Arc<dyn Fn() -> i64 + Send + Sync>;

/// Latest time that any store of this process has read from the system clock since that clock was
/// last set back.
static LATEST: AtomicI64 = AtomicI64::new(0);

/// Maximum number of milliseconds by which the system clock can be set back so that the time of the
/// stores stands still until the clock has caught up. If it is set back by more, the time follows
/// it. A leap second and the small corrections of a time service are shorter.
const STANDSTILL_MS: i64 = 1_000;

/// Returns the time of the system clock; or the latest time that was read, if the system clock was
/// set back by at most [`STANDSTILL_MS`].
pub(crate) fn system_now_ms() -> i64 {
    following(&LATEST, || unix_ms(system_time()))
}

/// Reads a clock, which may have been set back, by calling `read`, and returns its time in
/// milliseconds. `latest` is the latest time that was read since the clock was last set back.
///
/// If the clock was set back by at most [`STANDSTILL_MS`], returns the time in `latest` instead.
fn following(latest: &AtomicI64, read: impl Fn() -> i64) -> i64 {
    let now = read();
    if latest.load(Ordering::Relaxed).saturating_sub(now) > STANDSTILL_MS {
        return followed_back(latest, read);
    }
    never_back(latest, now)
}

/// Reads a clock again that seems to have been set back by more than [`STANDSTILL_MS`] since the
/// time in `latest`. If it was, stores the new time in `latest` and returns it. Otherwise returns
/// the later one of the two times.
#[cold]
fn followed_back(latest: &AtomicI64, read: impl Fn() -> i64) -> i64 {
    let seen = latest.load(Ordering::SeqCst);
    // Read again, after `latest`: the first reading may be older than `latest` only because this
    // thread was stopped between reading the clock and reading `latest`.
    let now = read();
    if seen.saturating_sub(now) <= STANDSTILL_MS {
        return never_back(latest, now);
    }
    // If this fails, another thread has replaced the latest time for the same reason.
    let _ = latest.compare_exchange(seen, now, Ordering::SeqCst, Ordering::SeqCst);
    now
}

/// Converts a system time to whole milliseconds since the Unix epoch; 0 for a time before 1970.
pub(crate) fn unix_ms(time: SystemTime) -> i64 {
    let Ok(since) = time.duration_since(UNIX_EPOCH) else { return 0 };
    let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    seconds.saturating_mul(1000).saturating_add(i64::from(since.subsec_millis()))
}

/// Maximum lag of the coarse clock of the system behind its exact clock, in milliseconds.
///
/// The kernel sets the coarse clock at each timer tick, some milliseconds apart. A tick is late if
/// a virtual machine is not scheduled; a minute is allowed for that. When the system time is set,
/// both clocks change at once.
const COARSE_LAG_MS: i64 = 60_000;

/// Returns `true` if `time_ms` is certainly in the future, given the current time `coarse_ms` of
/// the coarse clock, which may lag. After `false`, the caller must compare `time_ms` with the exact
/// time.
#[inline]
pub(crate) fn is_far_off(time_ms: i64, coarse_ms: i64) -> bool {
    time_ms > LATEST.load(Ordering::Relaxed).max(coarse_ms).saturating_add(COARSE_LAG_MS)
}

/// Returns the later one of the time `now` and the time in `latest`, and stores it in `latest`. So
/// the time of a clock never runs backwards.
fn never_back(latest: &AtomicI64, now: i64) -> i64 {
    let seen = latest.load(Ordering::Relaxed);
    if now > seen { latest.fetch_max(now, Ordering::Relaxed).max(now) } else { seen }
}

thread_local! {
    /// Addresses of the injected clocks that are running on this thread, outermost first. An
    /// injected clock may use another store, whose injected clock then runs inside the first one.
    static ASKED: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// Guard that keeps the address of an injected clock in [`ASKED`] while this clock is running on
/// this thread.
struct Asked;

impl Asked {
    fn by(clock: &Clock) -> Asked {
        // A thread that is ending has no list any more, but may still close its stores.
        let _ = ASKED.try_with(|asked| asked.borrow_mut().push(std::ptr::from_ref(clock).addr()));
        Asked
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let _ = ASKED.try_with(|asked| asked.borrow_mut().pop());
    }
}

/// Value of [`Clock::kind`] for the system clock.
const SYSTEM: u8 = 0;
/// Value of [`Clock::kind`] for an injected clock: a function that the program has set as the
/// store's clock.
const INJECTED: u8 = 1;
/// Value of [`Clock::kind`] for the clock of a server: it continues from the last time that the
/// server sent.
const SERVER: u8 = 2;

/// Returns the time of this machine's wall clock, in microseconds since the Unix epoch. It may be
/// wrong, but unlike the monotonic clock it continues while the machine is suspended.
fn wall_us() -> i64 {
    let since = system_time().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// Age of the last time that the server sent, in microseconds, up to which the clock of a store on
/// a server can be used. After that the clock is stale: the server must be asked for its time.
const FRESH_US: i64 = 60_000_000;

/// Maximum difference between the progress of the monotonic clock and that of the wall clock since
/// the server last sent its time, in microseconds. A greater difference means that the machine was
/// suspended, during which the monotonic clock stops, or that the wall clock was set.
const SUSPENDED_US: i64 = 500_000;

/// Clock of one store: the system clock, an injected clock (for tests and for devices without a
/// clock), or the clock of the server of the store.
pub(crate) struct Clock {
    kind: AtomicU8,
    source: RwLock<Option<Source>>,
    /// Creation time of this object, by the monotonic clock. [`Clock::elapsed_us`] counts from it.
    created: Instant,
    /// Time of the server at the creation of this clock, in microseconds since the Unix epoch,
    /// according to the last time that the server sent.
    server_start_us: AtomicI64,
    /// Reading of [`Clock::elapsed_us`], in microseconds, when the server last sent its time.
    told_us: AtomicI64,
    /// Reading of [`wall_us`], in microseconds since the Unix epoch, when the server last sent its
    /// time.
    told_wall_us: AtomicI64,
    /// Latest time that the injected clock returned, in milliseconds since the Unix epoch.
    latest: AtomicI64,
}

impl Default for Clock {
    fn default() -> Clock {
        Clock {
            kind: AtomicU8::new(SYSTEM),
            source: RwLock::default(),
            created: Instant::now(),
            server_start_us: AtomicI64::new(0),
            told_us: AtomicI64::new(0),
            told_wall_us: AtomicI64::new(0),
            latest: AtomicI64::new(0),
        }
    }
}

impl Clock {
    /// Returns the current time of this clock, in milliseconds since the Unix epoch.
    pub(crate) fn now_ms(&self) -> i64 {
        match self.kind.load(Ordering::Acquire) {
            INJECTED => {}
            SERVER => return self.server_at(|| self.elapsed_us()),
            _ => return system_now_ms(),
        }
        // Locked while the source runs: when `inject` returns, no thread is inside the replaced
        // source.
        let source = self.source.read().unwrap_or_else(PoisonError::into_inner);
        match &*source {
            Some(now) => {
                let _asked = Asked::by(self);
                never_back(&self.latest, now().max(0))
            }
            None => system_now_ms(),
        }
    }

    /// Returns the time since this object was created, by the monotonic clock, in microseconds.
    fn elapsed_us(&self) -> i64 {
        i64::try_from(self.created.elapsed().as_micros()).unwrap_or(i64::MAX)
    }

    /// Returns the latest time read from this injected clock; or, for another kind of clock, the
    /// latest time of the system clock. Runs no injected clock.
    pub(crate) fn latest_ms(&self) -> i64 {
        if self.is_injected() { &self.latest } else { &LATEST }.load(Ordering::Relaxed)
    }

    /// Returns `true` if this is the system clock, so that its time is available without this
    /// object.
    pub(crate) fn is_the_systems(&self) -> bool {
        self.kind.load(Ordering::Relaxed) == SYSTEM
    }

    /// Returns `true` if this is the clock of a server, which sends its time.
    #[inline]
    pub(crate) fn is_a_servers(&self) -> bool {
        cfg!(any(feature = "remote", test)) && self.kind.load(Ordering::Relaxed) == SERVER
    }

    pub(crate) fn is_injected(&self) -> bool {
        self.kind.load(Ordering::Relaxed) == INJECTED
    }

    /// Records the time that the server has just sent; the clock continues from there. It has no
    /// effect on an injected clock.
    #[cfg(feature = "remote")]
    pub(crate) fn note_server(&self, now_ms: i64) {
        self.note_server_at(now_ms, self.elapsed_us(), wall_us());
    }

    /// Returns `true` if this is the clock of a server, and the server must be asked for its time
    /// before the clock is used.
    ///
    /// That is the case if the server last sent its time more than [`FRESH_US`] ago, or if the
    /// machine was suspended since then, which stops the monotonic clock. A change of the wall
    /// clock counts as a suspension.
    #[inline]
    pub(crate) fn is_stale(&self) -> bool {
        self.is_a_servers() && self.is_stale_at(self.elapsed_us(), wall_us())
    }

    fn is_stale_at(&self, elapsed_us: i64, wall_us: i64) -> bool {
        let passed = elapsed_us.saturating_sub(self.told_us.load(Ordering::Relaxed));
        let by_wall = wall_us.saturating_sub(self.told_wall_us.load(Ordering::Relaxed));
        passed > FRESH_US || by_wall.saturating_sub(passed).saturating_abs() > SUSPENDED_US
    }

    /// Records the newest time that the server has sent, also if it is earlier than the previous
    /// one: it is usually compared with data that came in the same answer.
    ///
    /// `elapsed_us` and `wall_us` are the current readings of [`Clock::elapsed_us`] and
    /// [`wall_us`]. `now_ms` is late by the time of its transmission. All times come from one
    /// connection, because a second connection has a clock of its own.
    #[cfg(any(feature = "remote", test))]
    pub(crate) fn note_server_at(&self, now_ms: i64, elapsed_us: i64, wall_us: i64) {
        if !self.is_injected() {
            self.told_us.store(elapsed_us, Ordering::Relaxed);
            self.told_wall_us.store(wall_us, Ordering::Relaxed);
            self.server_start_us
                .store(now_ms.saturating_mul(1000).saturating_sub(elapsed_us), Ordering::Release);
            let _ = self.kind.compare_exchange(SYSTEM, SERVER, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// Returns the current time of the server, in milliseconds since the Unix epoch.
    ///
    /// `elapsed_us` is called after `server_start_us` was read. In the other order, another thread
    /// could record a slow answer between the two, which lowers the start. The sum with the older
    /// reading would then be too early.
    fn server_at(&self, elapsed_us: impl FnOnce() -> i64) -> i64 {
        let start_us = self.server_start_us.load(Ordering::Acquire);
        (start_us.saturating_add(elapsed_us()) / 1000).max(0)
    }

    /// Returns `true` if this thread is running the injected clock, so that the caller is the
    /// function that was injected.
    pub(crate) fn is_being_asked(&self) -> bool {
        let this = std::ptr::from_ref(self).addr();
        self.is_injected() && ASKED.try_with(|asked| asked.borrow().contains(&this)).unwrap_or(false)
    }

    /// Replaces this clock by the function `source`; `None` restores the system clock. Waits until
    /// no thread is running the replaced function.
    ///
    /// It has no effect if the caller is the replaced function itself.
    pub(crate) fn inject(&self, source: Option<Source>) {
        if self.is_being_asked() {
            return;
        }
        let mut slot = self.source.write().unwrap_or_else(PoisonError::into_inner);
        self.latest.store(0, Ordering::Relaxed);
        self.kind.store(if source.is_some() { INJECTED } else { SYSTEM }, Ordering::Release);
        *slot = source;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_never_runs_backwards() {
        let ticks = Arc::new(AtomicI64::new(100));
        let clock = Clock::default();
        let source = Arc::clone(&ticks);
        clock.inject(Some(Arc::new(move || source.load(Ordering::Relaxed))));
        assert_eq!(clock.now_ms(), 100);
        ticks.store(40, Ordering::Relaxed);
        assert_eq!(clock.now_ms(), 100);
        ticks.store(-7, Ordering::Relaxed);
        assert_eq!(clock.now_ms(), 100);
        ticks.store(101, Ordering::Relaxed);
        assert_eq!(clock.now_ms(), 101);
    }

    #[test]
    fn clock_set_back_is_followed_after_one_second() {
        let latest = AtomicI64::new(0);
        for (reading, time) in [
            (50_000, 50_000),
            (49_999, 50_000),
            (49_000, 50_000),
            (50_001, 50_001),
            (49_000, 49_000), // set back by more
            (49_500, 49_500),
            (0, 0),
            (i64::MAX, i64::MAX),
            (70_000, 70_000),
        ] {
            assert_eq!(following(&latest, || reading), time, "{reading}");
        }
    }

    #[test]
    fn old_reading_does_not_set_time_back() {
        let latest = AtomicI64::new(50_000);
        // The first reading was made before other threads read 50 000.
        let readings = RefCell::new(vec![50_010, 40_000]);
        assert_eq!(following(&latest, || readings.borrow_mut().pop().unwrap()), 50_010);
        assert_eq!(latest.load(Ordering::Relaxed), 50_010);
    }

    #[test]
    fn far_off_by_coarse_clock_is_future_by_exact_clock() {
        let now = system_now_ms();
        for (time, coarse, is_far) in [
            (now + 120_000, now, true),
            (now + 120_000, now - 1_000, true),
            // The coarse clock may lag by 60 seconds.
            (now + 50_000, now, false),
            (now + 50_000, now - 60_000, false),
            // The clock was set forward and back again, and no call has followed it yet.
            (now - 1, now - 3_600_000, false),
            (now + 120_000, now + 120_000, false),
            (i64::MAX, i64::MAX - 1, false),
            (i64::MIN, now, false),
        ] {
            assert_eq!(is_far_off(time, coarse), is_far, "{time} at {now}, by the coarse clock {coarse}");
        }
    }

    #[test]
    fn clock_replacement_waits_for_running_callback() {
        use std::sync::mpsc::channel;
        let clock = Arc::new(Clock::default());
        let ((entered, has_entered), (leave, may_leave)) = (channel(), channel::<()>());
        let may_leave = std::sync::Mutex::new(may_leave);
        clock.inject(Some(Arc::new(move || {
            entered.send(()).unwrap();
            may_leave.lock().unwrap().recv().unwrap();
            5
        })));
        let inside = Arc::clone(&clock);
        let asking = std::thread::spawn(move || inside.now_ms());
        has_entered.recv().unwrap();
        let replacing = Arc::clone(&clock);
        let (replaced, was_replaced) = channel();
        let replacer = std::thread::spawn(move || {
            replacing.inject(None);
            replaced.send(()).unwrap();
        });
        assert!(was_replaced.recv_timeout(std::time::Duration::from_millis(50)).is_err());
        leave.send(()).unwrap();
        was_replaced.recv().unwrap();
        assert_eq!(asking.join().unwrap(), 5);
        replacer.join().unwrap();
    }

    #[test]
    fn clock_callback_can_replace_its_own_clock() {
        let clock = Arc::new(Clock::default());
        let itself = Arc::downgrade(&clock);
        clock.inject(Some(Arc::new(move || {
            itself.upgrade().unwrap().inject(None);
            7
        })));
        assert_eq!(clock.now_ms(), 7);
        assert_eq!(clock.now_ms(), 7);
    }

    #[test]
    fn new_injected_clock_may_start_earlier_than_previous() {
        let clock = Clock::default();
        clock.inject(Some(Arc::new(|| 1_000)));
        assert_eq!(clock.now_ms(), 1_000);
        clock.inject(Some(Arc::new(|| 10)));
        assert_eq!(clock.now_ms(), 10);
        clock.inject(None);
        assert!(clock.now_ms() > 1_600_000_000_000);
    }

    #[test]
    fn server_clock_advances_from_last_reported_time() {
        let clock = Clock::default();
        clock.note_server_at(5_000, 100_000, 0);
        assert_eq!(clock.server_at(|| 100_000), 5_000);
        assert_eq!(clock.server_at(|| 100_999), 5_000);
        assert_eq!(clock.server_at(|| 350_000), 5_250);
        clock.note_server_at(5_200, 360_000, 0); // a slow answer
        assert_eq!(clock.server_at(|| 360_000), 5_200);
        assert!(!clock.is_the_systems());
    }

    #[test]
    fn server_time_ignores_report_newer_than_monotonic_reading() {
        let clock = Clock::default();
        clock.note_server_at(5_000, 100_000, 0);
        // This thread has just read the monotonic clock when another thread gets a slow answer of
        // the server.
        let now_ms = clock.server_at(|| {
            clock.note_server_at(5_001, 160_000, 0);
            100_001
        });
        assert_eq!(now_ms, 5_000);
    }

    #[test]
    fn server_clock_is_stale_after_one_minute_or_suspend() {
        let clock = Clock::default();
        assert!(!clock.is_stale()); // it is the system clock
        let (told, wall) = (5_000_000, 1_700_000_000_000_000);
        clock.note_server_at(5_000, told, wall);
        for (passed, by_wall, is_stale) in [
            (0, 0, false),
            (59_000_000, 59_000_000, false),
            (59_000_000, 59_400_000, false), // adjusted a little
            (60_000_001, 60_000_001, true),
            (1_000, 8_000_000_000, true),  // suspended
            (1_000, -8_000_000_000, true), // set back
        ] {
            assert_eq!(clock.is_stale_at(told + passed, wall + by_wall), is_stale, "{passed} {by_wall}");
        }
    }

    #[test]
    fn injected_clock_does_not_query_server() {
        let clock = Clock::default();
        clock.inject(Some(Arc::new(|| 7)));
        clock.note_server_at(1_000, 0, 0);
        assert_eq!(clock.now_ms(), 7);
    }

    #[test]
    fn nested_clock_callback_cannot_replace_outer_clock() {
        let (outer, inner) = (Arc::new(Clock::default()), Arc::new(Clock::default()));
        let replaced = Arc::downgrade(&outer);
        inner.inject(Some(Arc::new(move || {
            let outer = replaced.upgrade().unwrap();
            assert!(outer.is_being_asked()); // otherwise `inject` would wait for this callback
            outer.inject(None);
            5
        })));
        let asked = Arc::clone(&inner);
        outer.inject(Some(Arc::new(move || asked.now_ms())));
        assert_eq!(outer.now_ms(), 5);
        assert_eq!(outer.now_ms(), 5);
    }
}
