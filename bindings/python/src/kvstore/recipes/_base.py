"""What the recipes have in common: their families, steps that are one for everybody, time, and waiting.

The only file of the recipes that looks behind the public interface: for the store's clock, and its transaction.
"""

from __future__ import annotations

import functools
import time
from typing import Any, Callable, Optional, TypeVar, Union

from kvstore import FOREVER, Error, Family, Store, Transaction
from kvstore._time import Duration, duration_ms, ttl_ms
from kvstore._transaction import in_one_transaction
from kvstore._waiters import Waiters

#: Names and keys: text, which is kept as UTF-8, or bytes.
Name = Union[str, bytes]

F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R")

_FIRST_WAIT, _LONGEST_WAIT = 0.001, 0.05

#: Seconds after which a sleep until something comes by itself asks again.
_LONGEST_SLEEP = 10.0


class NotOwnedError(Error, RuntimeError):
    """What was to be released, extended or acknowledged is not held, or no longer: its TTL was over, and
    somebody else may have it. Also a :exc:`RuntimeError`, as ``threading.Lock`` raises."""


def family_of(store: Store[Any, Any], name: str) -> Family:
    """The family of a recipe, which is made if it is not there."""
    if isinstance(store, Family) and not isinstance(store, Store):
        raise TypeError("a recipe has a family of its own: pass the store, and family='name'")
    if not isinstance(store, Store):
        kind = type(store)
        raise TypeError(f"a recipe needs a kvstore.Store, not {kind.__module__}.{kind.__qualname__}")
    return store.family(name, create=True, codec=None, keys=bytes)


def to_name(name: Name, what: str) -> bytes:
    """A name as bytes, of at least one."""
    if isinstance(name, str):
        name = name.encode()
    elif not isinstance(name, bytes):
        raise TypeError(f"{what} must be str or bytes, not {type(name).__name__}")
    if not name:
        raise ValueError(f"{what} cannot be empty")
    return name


def finite_ttl(ttl: Duration, what: str) -> int:
    """A TTL that ends, in milliseconds."""
    if ttl == FOREVER:
        raise ValueError(f"{what} must end some day: it is what frees the hold of a process that died")
    return ttl_ms(ttl)


def positive_int(number: int, what: str) -> int:
    if isinstance(number, bool) or not isinstance(number, int):
        raise TypeError(f"{what} must be an int, not {type(number).__name__}")
    if number <= 0:
        raise ValueError(f"{what} must be positive, not {number}")
    return number


def now_ms(family: Family) -> int:
    """The time by the store's clock."""
    now: int = family._shared.now_ms()
    return now


def atomic(method: F) -> F:
    """A method as one transaction of its ``_store``; or as part of the one that this thread has open. On a server it may be
    run several times, until others do not stand in the way, and only the last time counts."""

    @functools.wraps(method)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        return in_one_transaction(self._store._shared, lambda: method(self, *args, **kwargs))

    return run  # type: ignore[return-value]


def alone(store: Store[Any, Any], function: Callable[[], R]) -> R:
    """What a function returns, which is a transaction of its own. Error inside another one."""
    return in_one_transaction(store._shared, function, joins=False)


def reading(store: Store[Any, Any]) -> Transaction:
    """One transaction around a block that only reads, and sees one moment; or the one that this thread has open."""
    return Transaction(store._shared, False, joins=True)


def in_transaction(store: Store[Any, Any]) -> bool:
    """Whether this thread has a transaction open. MisuseError if it is another asyncio task's."""
    shared = store._shared
    if not shared.in_transaction():
        return False
    shared.lease()  # looks at the task
    return True


#: Told when a thread of this process has made something free that others may wait for.
_waiters = Waiters()


def wake() -> None:
    """Lets those that wait in this process look again. Other processes find out when they look next."""
    _waiters.wake()


class Patience:
    """Waiting for something that others do, in steps of 1 to 50 ms, for at most ``timeout`` seconds by the
    monotonic clock (None: for ever)."""

    def __init__(self, timeout: Optional[Duration]) -> None:
        self._step = _FIRST_WAIT
        self._end: Optional[float] = None
        if timeout is not None and timeout != FOREVER:
            self._end = time.monotonic() + duration_ms(timeout, "a timeout") / 1000

    def over(self) -> bool:
        return self._end is not None and time.monotonic() >= self._end

    def wait(self) -> bool:
        """Waits a little; False, at once, if the time is over."""
        step = self._step
        if self._end is not None:
            left = self._end - time.monotonic()
            if left <= 0:
                return False
            step = min(step, left)
        _waiters.wait(step)
        self._step = min(self._step * 2, _LONGEST_WAIT)
        return True

    def sleep(self, seconds: float) -> bool:
        """Waits for something that comes by itself in ``seconds``, or a while, after which to ask again: the machine may be
        suspended, and time goes on without this clock. False, at once, if the time is over before."""
        if self._end is not None and time.monotonic() + seconds > self._end:
            return False
        time.sleep(min(seconds, _LONGEST_SLEEP))
        return True
