//! The only reader of the wall clock.
//!
//! Time is `i64` milliseconds since the Unix epoch. Within a process it never runs backwards: what
//! was expired once stays expired, also when someone sets the computer's clock back. (On a server, its clock decides.)

use std::cell::RefCell;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
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

/// The latest time any store of this process has seen on the system clock.
static LATEST: AtomicI64 = AtomicI64::new(0);

/// The system's time, never less than what it was before in this process.
pub(crate) fn system_now_ms() -> i64 {
    never_back(&LATEST, unix_ms(system_time()))
}

/// Whole milliseconds since 1970; 0 for a clock before that.
pub(crate) fn unix_ms(time: SystemTime) -> i64 {
    let Ok(since) = time.duration_since(UNIX_EPOCH) else { return 0 };
    let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    seconds.saturating_mul(1000).saturating_add(i64::from(since.subsec_millis()))
}

/// How far the coarse clock of the system may be behind, at most: it is set at each tick of the kernel's timer, some
/// milliseconds apart. The tick is late when a virtual machine is not scheduled, so it is given a minute. When
/// somebody sets the clock, both are another one at once.
const COARSE_LAG_MS: i64 = 60_000;

/// Whether `time_ms` is still to come by the system's time, however far that is ahead of the coarse clock, which says
/// `coarse_ms`.
#[inline]
pub(crate) fn is_far_off(time_ms: i64, coarse_ms: i64) -> bool {
    time_ms > LATEST.load(Ordering::Relaxed).max(coarse_ms).saturating_add(COARSE_LAG_MS)
}

fn never_back(latest: &AtomicI64, now: i64) -> i64 {
    let seen = latest.load(Ordering::Relaxed);
    if now > seen { latest.fetch_max(now, Ordering::Relaxed).max(now) } else { seen }
}

thread_local! {
    /// The injected clocks this thread is inside, the outermost first: a clock may use another store, whose
    /// clock is then asked inside it.
    static ASKED: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// Says, as long as it lives, that this thread is inside an injected clock.
struct Asked;

impl Asked {
    fn by(clock: &Clock) -> Asked {
        // A thread that ends has no list any more, but may still close its stores.
        let _ = ASKED.try_with(|asked| asked.borrow_mut().push(std::ptr::from_ref(clock).addr()));
        Asked
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let _ = ASKED.try_with(|asked| asked.borrow_mut().pop());
    }
}

/// What [`Clock::kind`] says: the clock is the system's, was injected, or goes on from what a server has told.
const SYSTEM: u8 = 0;
const INJECTED: u8 = 1;
const SERVER: u8 = 2;

/// Microseconds of the monotonic clock since its first reading in this process.
fn elapsed_us() -> i64 {
    static START: OnceLock<Instant> = OnceLock::new();
    i64::try_from(START.get_or_init(Instant::now).elapsed().as_micros()).unwrap_or(i64::MAX)
}

/// Microseconds of this machine's wall clock, which may be any. It goes on while the machine is suspended.
fn wall_us() -> i64 {
    let since = system_time().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// When a server was asked for the time, by the monotonic clock and the wall clock of this machine: what it tells is from
/// then or later.
#[cfg(any(feature = "remote", test))]
#[derive(Clone, Copy)]
pub(crate) struct Sent {
    at_us: i64,
    wall_us: i64,
}

#[cfg(any(feature = "remote", test))]
impl Sent {
    #[cfg(feature = "remote")]
    pub(crate) fn now() -> Sent {
        Sent { at_us: elapsed_us(), wall_us: wall_us() }
    }

    #[cfg(test)]
    pub(crate) fn at(at_us: i64, wall_us: i64) -> Sent {
        Sent { at_us, wall_us }
    }
}

/// For how long a clock goes on from what a server has told.
const FRESH_US: i64 = 60_000_000;

/// Of how many microseconds of this machine's one may be too many, compared to the server's clock: of 2000 on each, where the
/// kernel keeps the frequency (`adjtimex`).
#[cfg(any(feature = "remote", test))]
const DRIFTS_ONE_OF: i64 = 1_000;

/// How far the monotonic clock and the wall clock may be apart, if the machine was not suspended in between.
const SUSPENDED_US: i64 = 500_000;

/// The clock of one store: the system's, one that was injected for tests and for devices without a clock of their own, or
/// that of the server the store is on.
#[derive(Default)]
pub(crate) struct Clock {
    kind: AtomicU8,
    source: RwLock<Option<Source>>,
    /// The server's time when [`elapsed_us`] was 0, in microseconds.
    server_start_us: AtomicI64,
    /// When the server was asked for what it has told last, by [`elapsed_us`] and by the wall clock of this machine.
    asked_us: AtomicI64,
    asked_wall_us: AtomicI64,
    /// When it has told that, by [`elapsed_us`].
    #[cfg(any(feature = "remote", test))]
    told_us: AtomicI64,
    latest: AtomicI64,
}

impl Clock {
    pub(crate) fn now_ms(&self) -> i64 {
        match self.kind.load(Ordering::Acquire) {
            INJECTED => {}
            SERVER => return self.server_at(elapsed_us),
            _ => return system_now_ms(),
        }
        // Locked while it is asked, so that nobody is inside a source that `inject` has replaced.
        let source = self.source.read().unwrap_or_else(PoisonError::into_inner);
        match &*source {
            Some(now) => {
                let _asked = Asked::by(self);
                never_back(&self.latest, now().max(0))
            }
            None => system_now_ms(),
        }
    }

    /// The latest time it has told, without asking anybody.
    pub(crate) fn latest_ms(&self) -> i64 {
        if self.is_injected() { &self.latest } else { &LATEST }.load(Ordering::Relaxed)
    }

    /// Whether it is the system's, and so its time is at hand without this clock.
    pub(crate) fn is_the_systems(&self) -> bool {
        self.kind.load(Ordering::Relaxed) == SYSTEM
    }

    /// Whether a server tells it the time.
    pub(crate) fn is_a_servers(&self) -> bool {
        self.kind.load(Ordering::Relaxed) == SERVER
    }

    pub(crate) fn is_injected(&self) -> bool {
        self.kind.load(Ordering::Relaxed) == INJECTED
    }

    /// The server has told the time, in an answer to what was `sent`: from here on this clock goes on from that. It does
    /// nothing where a clock was injected.
    #[cfg(feature = "remote")]
    pub(crate) fn note_server(&self, now_ms: i64, sent: Sent) {
        self.note_server_at(now_ms, sent, elapsed_us());
    }

    /// Whether the server is to be asked for the time before this clock is relied on: it has not told it for long, or the machine
    /// was suspended since, in which the monotonic clock stood still. (Somebody may also have set the machine's clock.)
    pub(crate) fn is_stale(&self) -> bool {
        self.is_a_servers() && self.is_stale_at(elapsed_us(), wall_us())
    }

    fn is_stale_at(&self, elapsed_us: i64, wall_us: i64) -> bool {
        let passed = elapsed_us.saturating_sub(self.asked_us.load(Ordering::Relaxed));
        let by_wall = wall_us.saturating_sub(self.asked_wall_us.load(Ordering::Relaxed));
        passed > FRESH_US || by_wall.saturating_sub(passed).saturating_abs() > SUSPENDED_US
    }

    /// The server's clock was at `now_ms` at some moment between the question and the answer, which was there at `elapsed_us`.
    /// In these bounds what was known stays, less what two clocks may drift apart: so this clock is not set back by an answer
    /// that was long on its way, to another thread or on another connection of the handle's; nor is it ahead of the server's.
    /// (Each reading is an interval: Marzullo and Owicki, "Maintaining the time in a distributed system", 1983.) What does not
    /// fit says that the server's clock was set back, and this one follows.
    #[cfg(any(feature = "remote", test))]
    pub(crate) fn note_server_at(&self, now_ms: i64, sent: Sent, elapsed_us: i64) {
        if self.is_injected() {
            return;
        }
        self.asked_us.store(sent.at_us, Ordering::Relaxed);
        self.asked_wall_us.store(sent.wall_us, Ordering::Relaxed);
        let passed = elapsed_us.saturating_sub(self.told_us.swap(elapsed_us, Ordering::Relaxed));
        let told_us = now_ms.saturating_mul(1000);
        let earliest = told_us.saturating_sub(elapsed_us);
        let latest = told_us.saturating_add(999).saturating_sub(sent.at_us);
        let drift = passed.max(0) / DRIFTS_ONE_OF + 1;
        let next = |start: i64| {
            let known = start.saturating_sub(drift);
            Some(if known > latest { earliest } else { known.max(earliest) })
        };
        if self.is_a_servers() {
            let _ = self.server_start_us.fetch_update(Ordering::Release, Ordering::Relaxed, next);
        } else {
            self.server_start_us.store(earliest, Ordering::Relaxed);
            let _ = self.kind.compare_exchange(SYSTEM, SERVER, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// The server's time when the monotonic clock is at what `elapsed_us` says, which is read after the start: the other way
    /// round, a start that another thread has lowered in between would be added to a time from before that.
    fn server_at(&self, elapsed_us: impl FnOnce() -> i64) -> i64 {
        let start_us = self.server_start_us.load(Ordering::Acquire);
        (start_us.saturating_add(elapsed_us()) / 1000).max(0)
    }

    /// Whether this thread is inside the injected clock: then whoever calls is that clock.
    pub(crate) fn is_being_asked(&self) -> bool {
        let this = std::ptr::from_ref(self).addr();
        self.is_injected() && ASKED.try_with(|asked| asked.borrow().contains(&this)).unwrap_or(false)
    }

    /// Uses `source` from now on; `None` goes back to the system clock. Waits until nobody is inside the
    /// old one any more; called from inside it, does nothing.
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
    fn what_is_far_off_by_the_coarse_clock_is_to_come_by_the_exact_one() {
        let now = system_now_ms();
        for (time, coarse, is_far) in [
            (now + 120_000, now, true),
            (now + 120_000, now - 1_000, true),
            // The coarse clock may be late by as much.
            (now + 50_000, now, false),
            (now + 50_000, now - 60_000, false),
            // The clock was set forward, and set back again: this process never goes back.
            (now - 1, now - 3_600_000, false),
            (now + 120_000, now + 120_000, false),
            (i64::MAX, i64::MAX - 1, false),
            (i64::MIN, now, false),
        ] {
            assert_eq!(is_far_off(time, coarse), is_far, "{time} at {now}, by the coarse clock {coarse}");
        }
    }

    #[test]
    fn a_clock_is_replaced_only_when_nobody_is_inside_the_old_one() {
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
    fn a_clock_that_replaces_itself_goes_on() {
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
    fn a_new_injected_clock_may_start_earlier_than_the_one_before() {
        let clock = Clock::default();
        clock.inject(Some(Arc::new(|| 1_000)));
        assert_eq!(clock.now_ms(), 1_000);
        clock.inject(Some(Arc::new(|| 10)));
        assert_eq!(clock.now_ms(), 10);
        clock.inject(None);
        assert!(clock.now_ms() > 1_600_000_000_000);
    }

    #[test]
    fn a_servers_clock_goes_on_from_what_it_has_told() {
        let clock = Clock::default();
        clock.note_server_at(5_000, Sent::at(90_000, 0), 100_000);
        assert_eq!(clock.server_at(|| 100_000), 5_000);
        assert_eq!(clock.server_at(|| 100_999), 5_000);
        assert_eq!(clock.server_at(|| 350_000), 5_250);
        assert!(!clock.is_the_systems());
        // An answer that was on its way for less says that it is later there.
        clock.note_server_at(5_258, Sent::at(349_000, 0), 351_000);
        assert_eq!(clock.server_at(|| 351_000), 5_258);
    }

    #[test]
    fn an_answer_that_was_long_on_its_way_does_not_set_a_servers_clock_back() {
        let clock = Clock::default();
        clock.note_server_at(5_000, Sent::at(99_000, 0), 100_000);
        clock.note_server_at(5_001, Sent::at(100_500, 0), 160_000); // another thread, which was not scheduled for 59 ms
        assert_eq!(clock.server_at(|| 160_100), 5_060);
        // Nor does one of another connection, right after one that was asked for 10 s ago and has come fast in the end.
        clock.note_server_at(15_150, Sent::at(200_000, 0), 10_200_000);
        clock.note_server_at(14_951, Sent::at(10_000_000, 0), 10_201_000);
        assert_eq!(clock.server_at(|| 10_201_000), 15_150);
    }

    #[test]
    fn what_another_thread_notes_while_a_clock_is_asked_is_not_reckoned_from_before() {
        let clock = Clock::default();
        clock.note_server_at(5_000, Sent::at(99_000, 0), 100_000);
        // This thread has just looked at the monotonic clock, and then another was told the time, slowly.
        let now_ms = clock.server_at(|| {
            clock.note_server_at(5_001, Sent::at(100_100, 0), 160_000);
            100_001
        });
        assert_eq!(now_ms, 5_000);
    }

    #[test]
    fn a_servers_clock_does_not_run_ahead_with_a_fast_one_here() {
        let clock = Clock::default();
        let (mut here, mut there) = (1_000_000, 5_000_000_000);
        for _ in 0..10_000 {
            // Each answer takes 100 ms, half of them back; the clock here gains 1 of 2000.
            clock.note_server_at((there + 50_000) / 1000, Sent::at(here, 0), here + 100_000);
            (here, there) = (here + 2_000_000, there + 1_999_000);
        }
        let now_ms = clock.server_at(|| here);
        assert!((there / 1000 - 55..=there / 1000).contains(&now_ms), "{now_ms} {there}");
    }

    #[test]
    fn a_servers_clock_that_was_set_back_is_followed() {
        let clock = Clock::default();
        clock.note_server_at(5_000, Sent::at(99_000, 0), 100_000);
        clock.note_server_at(3_000, Sent::at(199_000, 0), 200_000);
        assert_eq!(clock.server_at(|| 200_000), 3_000);
        clock.note_server_at(9_000, Sent::at(299_000, 0), 300_000);
        assert_eq!(clock.server_at(|| 300_000), 9_000);
        // Nonsense does no harm.
        for (now_ms, sent, elapsed) in
            [(i64::MAX, 0, 1), (i64::MIN, 0, 1), (0, 5, 1), (i64::MAX, i64::MIN, i64::MAX)]
        {
            clock.note_server_at(now_ms, Sent::at(sent, 0), elapsed);
            assert!(clock.server_at(|| elapsed) >= 0);
        }
    }

    #[test]
    fn a_servers_clock_is_stale_after_a_minute_and_after_the_machine_was_suspended() {
        let clock = Clock::default();
        assert!(!clock.is_stale()); // it is the system's
        let (told, wall) = (5_000_000, 1_700_000_000_000_000);
        clock.note_server_at(5_000, Sent::at(told, wall), told + 50_000_000); // it counts when it was asked
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
    fn an_injected_clock_does_not_ask_a_server() {
        let clock = Clock::default();
        clock.inject(Some(Arc::new(|| 7)));
        clock.note_server_at(1_000, Sent::at(0, 0), 0);
        assert_eq!(clock.now_ms(), 7);
    }

    #[test]
    fn a_clock_that_is_asked_inside_another_cannot_replace_that_one() {
        let (outer, inner) = (Arc::new(Clock::default()), Arc::new(Clock::default()));
        let replaced = Arc::downgrade(&outer);
        inner.inject(Some(Arc::new(move || {
            let outer = replaced.upgrade().unwrap();
            assert!(outer.is_being_asked()); // or else it would wait for itself
            outer.inject(None);
            5
        })));
        let asked = Arc::clone(&inner);
        outer.inject(Some(Arc::new(move || asked.now_ms())));
        assert_eq!(outer.now_ms(), 5);
        assert_eq!(outer.now_ms(), 5);
    }
}
