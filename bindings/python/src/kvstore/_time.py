"""Times of Python as milliseconds of the library: durations, moments, clocks.

Durations are rounded up, so that no key dies before its time; moments as well. Must not know the store.
"""

from __future__ import annotations

import _thread
import math
from datetime import datetime, timedelta, timezone
from numbers import Real
from typing import Any, Callable, Final, Union

from kvstore._native import ffi, lib

#: As a TTL: never expires, also in a family with a default TTL. As a moment: the end of time.
FOREVER: Final[float] = math.inf

#: A duration: seconds, or a timedelta.
Duration = Union[float, timedelta]
#: A moment: seconds since the Unix epoch, or an aware datetime. One in milliseconds by mistake is a moment, too, in some
#: 50 000 years: it is not refused, for a TTL can lead there, and what expire_time gives must be taken back.
Moment = Union[float, datetime]
#: What says the time: a function that returns seconds since the Unix epoch.
ClockFunction = Callable[[], float]

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MILLISECOND = timedelta(milliseconds=1)
#: Leaves room for a sum of two in 64 bits; some hundred million years.
_MAX_MS: Final[int] = 1 << 61


def _milliseconds(seconds: Any, what: str, digits: int) -> int:
    """Seconds as milliseconds, rounded to ``digits`` decimals and then up: what is beyond these is the
    inexactness of binary fractions (0.07 * 1000 is 70.00000000000001)."""
    if isinstance(seconds, bool) or not isinstance(seconds, Real):
        kind = type(seconds).__name__
        other = "a datetime" if what == "a moment" else "a timedelta"
        raise TypeError(f"{what} is a number of seconds or {other}, not {kind}")
    if isinstance(seconds, int):
        ms = seconds * 1000
    else:
        as_float = float(seconds)
        if not math.isfinite(as_float):
            raise ValueError(f"{what} of {as_float} seconds makes no sense here")
        ms = math.ceil(round(as_float * 1000, digits))
    if abs(ms) > _MAX_MS:
        raise ValueError(f"{what} is too far off, in the future or the past; for what never ends there is FOREVER")
    return ms


def rounded_ms(duration: Duration, what: str) -> int:
    """A duration in milliseconds: at least 1 if it is positive."""
    if isinstance(duration, timedelta):
        whole, rest = divmod(duration, _MILLISECOND)
        return whole + bool(rest)
    ms = _milliseconds(duration, what, 6)
    return 1 if ms == 0 and duration > 0 else ms


def duration_ms(duration: Duration, what: str = "a duration") -> int:
    """A duration of zero or more in milliseconds, rounded up."""
    ms = rounded_ms(duration, what)
    if ms < 0:
        raise ValueError(f"{what} cannot be negative: {duration!r}")
    return ms


def ttl_ms(ttl: Duration) -> int:
    """A TTL in milliseconds, at least 1; 0 for FOREVER."""
    if isinstance(ttl, float) and ttl == FOREVER:
        return 0
    ms = rounded_ms(ttl, "a TTL")
    if ms <= 0:
        raise ValueError(
            f"a TTL must be positive, not {ttl!r}: to remove a key, delete it; for no TTL, give FOREVER"
        )
    return ms


def moment_ms(moment: Moment) -> int:
    """A moment in milliseconds since the epoch, rounded up; may be negative."""
    if isinstance(moment, datetime):
        if moment.tzinfo is None or moment.utcoffset() is None:
            raise ValueError(
                f"a datetime needs a time zone here, and {moment!r} has none: "
                "say datetime.now(timezone.utc), or add .astimezone()"
            )
        whole, rest = divmod(moment - _EPOCH, _MILLISECOND)
        return whole + bool(rest)
    return _milliseconds(moment, "a moment", 2)


def expires_at_ms(moment: Moment) -> int:
    """A moment as the library's expire_ms: at least 1, for 0 means never; 0 for FOREVER."""
    if isinstance(moment, float) and moment == FOREVER:
        return 0
    return max(1, moment_ms(moment))


class Clock:
    """A clock made of a Python function. As in the library, it never runs backwards; and it stands still
    for a store that its own function uses."""

    __slots__ = ("_asked", "_function", "_latest")

    def __init__(self, function: ClockFunction) -> None:
        self._function = function
        self._latest = 0
        self._asked: set[int] = set()  # threads that are inside the function

    def is_asked(self) -> bool:
        """Whether this thread is inside the function."""
        return _thread.get_ident() in self._asked

    def after_fork(self) -> None:
        """Forgets, in the child, the threads that it has not: a new one may get the number of one of them."""
        self._asked &= {_thread.get_ident()}

    def now_ms(self) -> int:
        """Asks the function. Raises what it raises; ValueError or TypeError for no proper time."""
        thread = _thread.get_ident()
        if thread in self._asked:
            return self._latest
        self._asked.add(thread)
        try:
            seconds = self._function()
        finally:
            self._asked.discard(thread)
        if isinstance(seconds, bool) or not isinstance(seconds, Real):
            raise TypeError(f"a clock returns seconds as a number, not {type(seconds).__name__}")
        as_float = float(seconds)
        if not abs(as_float) < _MAX_MS / 1000:
            raise ValueError(f"a clock cannot say {as_float}")
        self._latest = max(self._latest, round(as_float * 1000))
        return self._latest


#: The clocks that the library may call, by the number it knows them by. Not by address: a thread may
#: still be about to call a clock that was replaced just now.
_clocks: dict[int, Clock] = {}
_next_number = 1


class _ClockOfAStore:
    """Raises where nobody can catch it, and Python gives it to sys.unraisablehook."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __del__(self) -> None:
        raise self.error


def _clock_failed(kind: type[BaseException], error: BaseException, traceback: Any) -> None:
    """The clock raised in a call of the library, which cannot raise: tell, and stand still."""
    if isinstance(error, KeyboardInterrupt):
        _thread.interrupt_main()  # it was not meant for the clock
    else:
        _ClockOfAStore(error.with_traceback(traceback))


@ffi.def_extern(error=0, onerror=_clock_failed)  # type: ignore[untyped-decorator, unused-ignore]
def kvpy_clock(context: Any) -> int:
    # The 0 of a failure counts as the latest time so far.
    clock = _clocks.get(int(ffi.cast("intptr_t", context)))
    return clock.now_ms() if clock is not None else int(lib.kvstore_now_ms())


def register(clock: Clock) -> Any:
    """Makes a clock callable by the library; returns the context it is called with."""
    global _next_number
    number, _next_number = _next_number, _next_number + 1
    _clocks[number] = clock
    return ffi.cast("void *", number)


def unregister(context: Any, _clocks: Any = _clocks, _cast: Any = ffi.cast) -> None:  # bound: for the exit
    """Forgets a clock. A call that comes late gets the system's time."""
    _clocks.pop(int(_cast("intptr_t", context)), None)
