"""Functions that all recipes use: opening their families, atomic steps, time, and waiting.

Only this module of the recipes uses private parts of the package: the store's clock and
transactions.
"""

from __future__ import annotations

import functools
import time
from typing import Any, Callable, Optional, TypeVar, Union

from kvstore import FOREVER, Error, Family, Store, Transaction
from kvstore._codec import coding
from kvstore._native import to_bytes
from kvstore._time import Duration, duration_ms, rounded_ms
from kvstore._transaction import in_one_transaction
from kvstore._wait_queue import WaitQueue
from kvstore._write_purge import purge_after_write

#: The type of names and keys: str (stored as UTF-8) or bytes.
Name = Union[str, bytes]

F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R")

_FIRST_WAIT, _LONGEST_WAIT = 0.001, 0.05

#: The longest sleep in seconds before the state is checked again.
_LONGEST_SLEEP = 10.0


class NotOwnedError(Error, RuntimeError):
    """A lock or message is no longer held, because its TTL or visibility timeout ended.

    Another holder may have it. Raised by releasing, extending or acknowledging. This exception is
    also a :exc:`RuntimeError`, which ``threading.Lock`` raises.
    """


def family_of(store: Store[Any, Any], name: str) -> Family:
    """Return the family in which a recipe stores its state. The family is created if it does not
    exist.
    """
    if isinstance(store, Family) and not isinstance(store, Store):
        raise TypeError(
            "store must be a kvstore.Store, not a family: pass the store, and family='name' to choose the "
            "family"
        )
    if not isinstance(store, Store):
        kind = type(store)
        raise TypeError(f"store must be a kvstore.Store, not {kind.__module__}.{kind.__qualname__}")
    return store.family(name, create=True, codec=None, keys=bytes)


#: The default of ``codec=`` in recipes: the codec of the store.
OF_STORE: Any = object()


def codec_of(store: Store[Any, Any], codec: Any) -> Any:
    """Return the codec for the values of a recipe: that of the store for OF_STORE; None for bytes.

    Raises TypeError for an object without ``dumps`` and ``loads``.
    """
    own = store._coding if codec is OF_STORE else coding(codec, bytes)
    return None if own is None else own.codec


def wrote(store: Store[Any, Any]) -> None:
    """Remove expired keys of the store, if recipes have written enough since the last time."""
    purge_after_write(store._state)


def to_name(name: Name, what: str) -> bytes:
    """Return the name of a recipe's object as bytes. An empty name is rejected."""
    if isinstance(name, str):
        name = to_bytes(name, what)
    elif not isinstance(name, bytes):
        raise TypeError(f"{what} must be str or bytes, not {type(name).__name__}")
    if not name:
        raise ValueError(f"{what} is empty: give at least one character")
    return name


def finite_ttl(ttl: Duration, what: str) -> int:
    """Return a TTL in milliseconds. FOREVER is rejected."""
    if ttl == FOREVER:
        raise ValueError(f"{what} must be finite: it frees what a process holds after the process has died")
    ms = rounded_ms(ttl, what)
    if ms <= 0:
        raise ValueError(f"{what} must be positive, not {ttl!r}")
    return ms


def positive_int(number: int, what: str) -> int:
    if isinstance(number, bool) or not isinstance(number, int):
        raise TypeError(f"{what} must be an int, not {type(number).__name__}")
    if number <= 0:
        raise ValueError(f"{what} must be 1 or more, not {number}")
    return number


def now_ms(family: Family) -> int:
    """Return the current time of the store's clock in milliseconds."""
    now: int = family._state.now_ms()
    return now


def atomic(method: F) -> F:
    """Decorator: run a method as one transaction of its ``_store``.

    If this thread has a transaction open, the method becomes part of it. On a server the method may
    run several times because of conflicts; only the last run takes effect.
    """

    @functools.wraps(method)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        return in_one_transaction(self._store._state, lambda: method(self, *args, **kwargs))

    return run  # type: ignore[return-value]


def in_new_transaction(store: Store[Any, Any], function: Callable[[], R]) -> R:
    """Call a function in a new transaction, and return its result. Raises Error inside a
    transaction.
    """
    return in_one_transaction(store._state, function, joins=False)


def reading(store: Store[Any, Any]) -> Transaction:
    """Return a ``with`` block in which all reads see one snapshot.

    It is a read-only transaction, or the transaction that this thread has open.
    """
    return Transaction(store._state, False, joins=True)


def in_transaction(store: Store[Any, Any]) -> bool:
    """Return whether this thread has a transaction open on the store.

    Raises MisuseError if the transaction belongs to another asyncio task.
    """
    state = store._state
    if not state.in_transaction():
        return False
    state.checkout()  # checks the task
    return True


#: Threads of this process that wait for a lock, a message or a hit. Woken when one may be
#: available.
_wait_queue = WaitQueue()


def wake() -> None:
    """Make all waiting threads of this process check again whether they can continue.

    Other processes notice at their next check.
    """
    _wait_queue.wake()


class Backoff:
    """Waits in steps of 1 to 50 ms, until ``timeout`` seconds are over.

    Time is that of the monotonic clock.

    A timeout of None is unlimited.
    """

    def __init__(self, timeout: Optional[Duration]) -> None:
        self._step = _FIRST_WAIT
        self._end: Optional[float] = None
        if timeout is not None and timeout != FOREVER:
            self._end = time.monotonic() + duration_ms(timeout, "timeout") / 1000

    def over(self) -> bool:
        return self._end is not None and time.monotonic() >= self._end

    def wait(self) -> bool:
        """Wait for one step and return True. If the timeout is over, return False at once."""
        step = self._step
        if self._end is not None:
            left = self._end - time.monotonic()
            if left <= 0:
                return False
            step = min(step, left)
        _wait_queue.wait(step)
        self._step = min(self._step * 2, _LONGEST_WAIT)
        return True

    def sleep(self, seconds: float) -> bool:
        """Sleep for ``seconds``, or for a shorter time, after which the caller must check again.

        The shorter time is needed because the machine may be suspended, and the monotonic clock
        stops meanwhile. Return False at once if the time would be over before.
        """
        if self._end is not None and time.monotonic() + seconds > self._end:
            return False
        time.sleep(min(seconds, _LONGEST_SLEEP))
        return True
