"""Conversion of Python durations, times and clocks to the milliseconds of the library.

Durations and moments are rounded up, so that no key expires early. Must not depend on the store.
"""

from __future__ import annotations

import _thread
import math
from datetime import datetime, timedelta, timezone
from numbers import Real
from typing import Any, Callable, Final, Union

from kvstore._native import ffi, lib

#: Stands for no expiry. As a TTL: the key never expires, even in a family with a default TTL. As a
#: moment: later than every expiry time.
FOREVER: Final[float] = math.inf

#: The type of durations: seconds, or a timedelta.
Duration = Union[float, timedelta]
#: The type of moments: seconds since the Unix epoch, or an aware datetime.
Moment = Union[float, datetime]
#: The type of clocks: a function that returns seconds since the Unix epoch.
ClockFunction = Callable[[], float]

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MILLISECOND = timedelta(milliseconds=1)
#: The sum of two such times fits in 64 bits. Some hundred million years.
_MAX_MS: Final[int] = 1 << 61

#: 2001-01-01. A clock that is later is set; devices without a battery start in 1970.
_CLOCK_IS_SET_MS: Final[int] = 978_307_200_000
#: 1973-01-01. An expiry time between 1970 and this one is a duration given by mistake.
FIRST_MOMENT_MS: Final[int] = 94_694_400_000
#: Numbers of seconds in this range are milliseconds given by mistake: those of 1973 to 2286. As
#: seconds they are the years 5138 to 318857.
_MILLISECONDS: Final[range] = range(100_000_000_000, 10_000_000_000_000)


def _milliseconds(seconds: Any, what: str, digits: int, moment: bool = False) -> int:
    """Convert seconds to milliseconds: round to ``digits`` decimals, and then up to a whole number.

    The first rounding removes the error of binary fractions (0.07 * 1000 is 70.00000000000001).
    """
    if isinstance(seconds, bool) or not isinstance(seconds, Real):
        other = "an aware datetime" if moment else "a timedelta"
        raise TypeError(f"{what} must be a number of seconds or {other}, not {type(seconds).__name__}")
    if isinstance(seconds, int):
        ms = seconds * 1000
    else:
        as_float = float(seconds)
        if not math.isfinite(as_float):
            raise ValueError(f"{what} must be finite, not {as_float}")
        ms = math.ceil(round(as_float * 1000, digits))
    if abs(ms) > _MAX_MS:
        raise ValueError(f"{what} is out of range, {seconds!r} seconds: for no expiry, use kvstore.FOREVER")
    return ms


def rounded_ms(duration: Duration, what: str) -> int:
    """Return a duration in whole milliseconds, rounded up: at least 1 if it is positive."""
    if isinstance(duration, timedelta):
        whole, rest = divmod(duration, _MILLISECOND)
        return whole + bool(rest)
    ms = _milliseconds(duration, what, 6)
    return 1 if ms == 0 and duration > 0 else ms


def duration_ms(duration: Duration, what: str) -> int:
    """Return a duration of zero or more in milliseconds, rounded up."""
    ms = rounded_ms(duration, what)
    if ms < 0:
        raise ValueError(f"{what} must be 0 or more, not {duration!r}")
    return ms


def ttl_ms(ttl: Duration, what: str = "ttl") -> int:
    """Return a TTL in milliseconds, at least 1; 0 for FOREVER."""
    if isinstance(ttl, float) and ttl == FOREVER:
        return 0
    ms = rounded_ms(ttl, what)
    if ms <= 0:
        advice = ": for no TTL, use kvstore.FOREVER; to remove a key, call delete()" if what == "ttl" else ""
        raise ValueError(f"{what} must be positive, not {ttl!r}{advice}")
    return ms


def moment_ms(moment: Moment, what: str = "expires_at") -> int:
    """Return a moment in milliseconds since the Unix epoch, rounded up. The result may be negative.
    """
    if isinstance(moment, datetime):
        if moment.tzinfo is None or moment.utcoffset() is None:
            raise ValueError(
                f"{what} must be a datetime with a time zone, not {moment!r}: use datetime.now(timezone.utc), or add "
                ".astimezone()"
            )
        whole, rest = divmod(moment - _EPOCH, _MILLISECOND)
        return whole + bool(rest)
    return _milliseconds(moment, what, 2, moment=True)


def expires_at_ms(moment: Moment) -> int:
    """Convert an expiry time to milliseconds since the Unix epoch, at least 1; FOREVER becomes 0.

    The library takes 0 as never.
    """
    if isinstance(moment, float) and moment == FOREVER:
        return 0
    return max(1, moment_ms(moment))


def given_expiry_ms(moment: Moment, now_ms: Callable[[], int]) -> int:
    """Like :func:`expires_at_ms`, for the argument of a caller: rejects a duration given as a
    moment, and milliseconds given as seconds.

    A clock that is not set, which ``now_ms`` returns, allows every moment.

    Raises:
        ValueError: For such a moment.
    """
    ms = expires_at_ms(moment)
    if ms == 0 or FIRST_MOMENT_MS <= ms < _MILLISECONDS.start * 1000:
        return ms
    if now_ms() < _CLOCK_IS_SET_MS:
        return ms
    if ms < FIRST_MOMENT_MS:
        if moment_ms(moment) <= 0:
            return FIRST_MOMENT_MS  # expired at once, as the caller wants
        raise ValueError(f"expires_at is a moment, and {moment!r} is before 1973: for a duration, use ttl=")
    if not isinstance(moment, datetime) and ms // 1000 in _MILLISECONDS:
        raise ValueError(
            f"expires_at must be seconds since the Unix epoch, or a datetime, and {moment!r} looks like "
            "milliseconds: divide it by 1000"
        )
    return ms


class Clock:
    """The clock of a store, made from a Python function.

    Like an injected clock of the library, it never runs backwards. Inside its own function it stands still.
    """

    __slots__ = ("_asked", "_function", "_latest")

    def __init__(self, function: ClockFunction) -> None:
        self._function = function
        self._latest = 0
        self._asked: set[int] = set()  # threads that are inside the function

    def is_asked(self) -> bool:
        """Return whether this thread is inside a call of the clock function."""
        return _thread.get_ident() in self._asked

    def after_fork(self) -> None:
        """Forget which threads of the parent are inside the clock function. Called in the child of
        a fork.

        A new thread may get the number of one of them.
        """
        self._asked &= {_thread.get_ident()}

    def now_ms(self) -> int:
        """Call the clock function and return the time in milliseconds.

        Raises what the function raises; TypeError or ValueError if it returns no valid time.
        """
        thread = _thread.get_ident()
        if thread in self._asked:
            return self._latest
        self._asked.add(thread)
        try:
            seconds = self._function()
        finally:
            self._asked.discard(thread)
        if isinstance(seconds, bool) or not isinstance(seconds, Real):
            raise TypeError(f"the clock function must return seconds as a number, not {type(seconds).__name__}")
        as_float = float(seconds)
        if not abs(as_float) < _MAX_MS / 1000:
            raise ValueError(f"the clock function returned {as_float}, which is out of range")
        self._latest = max(self._latest, round(as_float * 1000))
        return self._latest


#: The clocks that the library may call, by the number that identifies each to the library. A number
#: and not an address, because a thread may be about to call a clock that has just been replaced.
_clocks: dict[int, Clock] = {}
_next_number = 1


class _ClockOfAStore:
    """Passes an exception of a clock function to ``sys.unraisablehook``, by raising it in
    ``__del__``.
    """

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __del__(self) -> None:
        raise self.error


def _clock_failed(kind: type[BaseException], error: BaseException, traceback: Any) -> None:
    """Report an exception of a clock function that the library called, because the library cannot
    raise it.
    """
    if isinstance(error, KeyboardInterrupt):
        _thread.interrupt_main()  # the interrupt is for the main thread
    else:
        _ClockOfAStore(error.with_traceback(traceback))


@ffi.def_extern(error=0, onerror=_clock_failed)  # type: ignore[untyped-decorator, unused-ignore]
def kvpy_clock(context: Any) -> int:
    # After a failure, 0 is returned, which the library replaces by the latest time.
    clock = _clocks.get(int(ffi.cast("intptr_t", context)))
    return clock.now_ms() if clock is not None else int(lib.kvstore_now_ms())


def register(clock: Clock) -> Any:
    """Make a clock callable by the library, and return the context pointer that identifies it."""
    global _next_number
    number, _next_number = _next_number, _next_number + 1
    _clocks[number] = clock
    return ffi.cast("void *", number)


def unregister(context: Any, _clocks: Any = _clocks, _cast: Any = ffi.cast) -> None:  # bound: needed at exit
    """Remove a clock that :func:`register` added. If the library still calls it, it gets the system
    time.
    """
    _clocks.pop(int(_cast("intptr_t", context)), None)
