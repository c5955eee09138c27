"""The results of a memoized function: their keys, and what is read and written in the store.

A result is stored under ``module.qualname:=digest``, where the digest is that of the arguments. A
caller that computes a result holds a lease: the key ``module.qualname:~digest``, with a TTL. Other
callers wait until that key is removed. For early recomputation, ``module.qualname:+digest`` stores
how long the computation took. The value of ``module.qualname:!`` changes when the results are
cleared; it has a TTL, too.

The methods take the family as an argument, because worker threads of asyncio each have their own.
Only public methods of families are used, without a codec.
"""

from __future__ import annotations

import inspect
import math
import os
import random
import threading
from typing import Any, Callable, NamedTuple, Optional

from kvstore._arguments import digest as digest_of
from kvstore._errors import Error, MisuseError
from kvstore._family import Family
from kvstore._native import text_bytes
from kvstore._time import FOREVER, Duration, duration_ms, ttl_ms
from kvstore._transaction import in_one_transaction
from kvstore._write_purge import purge_after_write

#: Seconds until a caller that waits for a result checks again: at first, and at most.
FIRST_WAIT, LONGEST_WAIT = 0.001, 0.05
#: Seconds until a background recomputation is tried again after it failed.
_NEXT_TRY = 1.0
#: Seconds for which a computation that began before the results were cleared is recognized.
_CLEARED_TTL = 7 * 86_400.0

#: The lock for the counters. A signal handler that calls a memoized function may run while its
#: thread holds it.
_counting = threading.RLock()
#: The results that this process recomputes in the background.
_refreshing: set[tuple[int, bytes]] = set()


def _after_fork() -> None:
    global _counting
    _counting = threading.RLock()  # it may be held by a thread that does not exist in the child
    _refreshing.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class CacheInfo(NamedTuple):
    """Statistics of the cache of one memoized function."""

    #: Calls in this process that found a result.
    hits: int
    #: Calls in this process that computed a result.
    misses: int
    #: Results in the store, of all processes.
    currsize: int
    #: Reads and writes of the store in this process that failed. The calls returned their results.
    errors: int


class Found(NamedTuple):
    """A result that was found in the store."""

    result: Any
    #: The encoded result.
    data: bytes
    #: Whether the caller should recompute the result in the background.
    due: bool


class Times:
    """The times of a memoized function: how long results are stored, when they are recomputed, and
    how long a computation may take.
    """

    __slots__ = ("early", "kept", "lease", "stale")

    def __init__(self, early: float, stale: Duration, ttl: Optional[Duration], lease: Duration) -> None:
        if duration_ms(lease, "lease") == 0:
            raise ValueError("lease must be positive: give the longest time a computation may take")
        if ttl is not None:
            ttl_ms(ttl)  # checks it now and not at the first result
        if isinstance(early, bool) or not isinstance(early, (int, float)):
            raise TypeError(f"early must be a number, not {type(early).__name__}")
        if not 0 <= early < math.inf:
            raise ValueError(f"early must be 0 or more and finite, not {early}: 0 turns it off, 1.0 is the optimum")
        self.lease = lease
        self.early = float(early)
        self.stale = duration_ms(stale, "stale") / 1000
        #: The TTL in the store.
        self.kept = ttl
        if self.refreshes:
            if ttl is None or ttl == FOREVER:
                raise ValueError("early= and stale= need ttl=: results without a TTL are never recomputed")
            self.kept = ttl_ms(ttl) / 1000 + self.stale

    @property
    def refreshes(self) -> bool:
        return self.early > 0 or self.stale > 0

    def is_due(self, left: Optional[float], took: Callable[[], float]) -> bool:
        """Return whether a cache hit should recompute its result, which expires in ``left``
        seconds.
        """
        if left is None:
            return False
        fresh = left - self.stale
        if fresh <= 0 or not self.early:
            return fresh <= 0
        return took() * self.early * -math.log(1.0 - random.random()) >= fresh


class Results:
    """The results of one memoized function in a store, its leases and its counters."""

    __slots__ = ("_begun", "_cleared_key", "_ignored", "_prefix", "_serializer", "_signature", "_typed", "counts", "times", "unreleased")

    def __init__(
        self, function: Any, name: Optional[str], times: Times, typed: bool, ignored: frozenset[str], serializer: Any
    ) -> None:
        if name is None:
            name = f"{function.__module__}.{function.__qualname__}"
        self._prefix = text_bytes(name, "name") + b":"
        self._signature = inspect.signature(function)
        unknown = ignored - set(self._signature.parameters)
        if unknown:
            raise ValueError(f"ignore names parameters that {function!r} does not have: {', '.join(sorted(unknown))}")
        self._typed = typed
        self._ignored = ignored
        self._serializer = serializer
        #: The key whose value changes with each clear().
        self._cleared_key = self._prefix + b"!"
        #: The tokens of the leases of this process, with the value of that key when they were taken.
        self._begun: dict[bytes, Optional[bytes]] = {}
        self.times = times
        self.counts = {"hits": 0, "misses": 0, "errors": 0}
        #: The leases that could not be released because the store failed, with their tokens.
        self.unreleased: dict[bytes, bytes] = {}

    # Keys and counters

    def digest(self, args: Any, kwargs: Any) -> bytes:
        """Return the digest of the arguments of a call. The other methods take it as
        ``arguments``.
        """
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = {key: value for key, value in bound.arguments.items() if key not in self._ignored}
        return digest_of(given, self._typed)

    def cache_key(self, /, *args: Any, **kwargs: Any) -> bytes:
        return self._key(self.digest(args, kwargs))

    def _key(self, arguments: bytes) -> bytes:
        return self._prefix + b"=" + arguments

    def lease_key(self, arguments: bytes) -> bytes:
        return self._prefix + b"~" + arguments

    def count(self, what: str) -> None:
        with _counting:
            self.counts[what] += 1

    def failed(self, error: Error, is_closed: bool) -> None:
        """Count a failure of the store. Raises the error if the store is closed."""
        if is_closed and isinstance(error, MisuseError):
            raise error
        self.count("errors")

    def info(self, size: int) -> CacheInfo:
        with _counting:
            return CacheInfo(self.counts["hits"], self.counts["misses"], size, self.counts["errors"])

    def size(self, store: Family[Any, Any]) -> int:
        """Return the number of results in the store."""
        return len(store.keys(prefix=self._prefix + b"="))

    # Reading

    def find(self, store: Family[Any, Any], arguments: bytes) -> Optional[Found]:
        """Return the result in the store, or None if there is none or the store fails.

        The remaining seconds of the result are read only if they matter.
        """
        key, left = self._key(arguments), None
        try:
            if self.times.refreshes:
                data, left = store.get_with_ttl(key) or (None, None)
            else:
                data = store.get(key)
        except Error as error:
            self.failed(error, store.closed)
            return None
        if data is None:
            return None
        try:
            result = self._serializer.loads(data)
        except Exception:  # noqa: BLE001 # unreadable, e.g. of another version: recompute
            try:
                store.compare_and_delete(key, data)
            except Error as error:
                self.failed(error, store.closed)
            return None
        return Found(result, data, left is not None and self._is_due(store, arguments, left))

    def _is_due(self, store: Family[Any, Any], arguments: bytes, left: float) -> bool:
        try:
            is_due = self.times.is_due(left, lambda: self._took(store, arguments))
            return is_due and not self.is_leased(store, arguments)
        except Error as error:
            self.failed(error, store.closed)
            return False

    def _took(self, store: Family[Any, Any], arguments: bytes) -> float:
        """Return how many seconds the last computation of a result took."""
        try:
            return float(store.get(self._prefix + b"+" + arguments, b"0"))
        except (Error, ValueError):
            return 0.0

    def is_leased(self, store: Family[Any, Any], arguments: bytes) -> bool:
        """Return whether a caller, of any process, computes the result."""
        key = self.lease_key(arguments)
        return key in store and key not in self.unreleased

    def decode(self, data: bytes) -> Any:
        return self._serializer.loads(data)

    # Writing

    def encode(self, result: Any) -> bytes:
        data: Any = self._serializer.dumps(result)
        return data.encode() if isinstance(data, str) else bytes(data)

    def keep(self, store: Family[Any, Any], arguments: bytes, token: bytes, data: bytes, seconds: float) -> None:
        """Store an encoded result that took this many seconds to compute.

        If the computation took longer than the lease, it is stored unless another caller computes
        the result now or has stored it. If the cache was cleared meanwhile, nothing is stored. A
        failure of the store is only counted.
        """

        def is_wanted() -> bool:
            holder = store.get(self.lease_key(arguments))
            if holder is not None:
                return bool(holder == token)
            is_uncleared = token in self._begun and store.get(self._cleared_key) == self._begun[token]
            return is_uncleared and self._key(arguments) not in store

        def put() -> None:
            if is_wanted():
                if self.times.early:
                    store.put(self._prefix + b"+" + arguments, repr(seconds), self.times.kept)
                store.put(self._key(arguments), data, self.times.kept)

        try:
            in_one_transaction(store._state, put)
            purge_after_write(store._state)
        except Error:
            self.count("errors")  # also if the store was closed meanwhile: the result is there

    def clear(self, store: Family[Any, Any]) -> int:
        """Remove all results, including those being computed, and return how many there were."""
        # First: computations that began before this store nothing.
        store.put(self._cleared_key, os.urandom(8), _CLEARED_TTL)
        store.delete_range(prefix=self._prefix + b"~")
        cleared = store.delete_range(prefix=self._prefix + b"=")
        store.delete_range(prefix=self._prefix + b"+")
        return cleared

    # Leases

    def take(self, store: Family[Any, Any], arguments: bytes, token: bytes) -> bool:
        """Try to take the lease for a computation, and return whether it was free."""
        key = self.lease_key(arguments)
        left = self.unreleased.get(key)
        if left is not None:
            store.compare_and_delete(key, left)
            self.unreleased.pop(key, None)
        self._begun[token] = store.get(self._cleared_key)
        is_mine = bool(store.add(key, token, self.times.lease))
        if not is_mine:
            self._begun.pop(token, None)
        return is_mine

    def release(self, store: Family[Any, Any], arguments: bytes, token: bytes) -> None:
        """End the lease with this token, if it is still held. If the store fails, the next call in
        this process ends it; other processes wait for its TTL.
        """
        key = self.lease_key(arguments)
        self._begun.pop(token, None)
        try:
            store.compare_and_delete(key, token)
        except Error:
            self.unreleased[key] = token
            self.count("errors")

    def take_to_refresh(self, store: Family[Any, Any], arguments: bytes, token: bytes) -> bool:
        """Take the lease to recompute a result, and return True. If another caller has the lease or
        has just recomputed the result, return False.
        """
        known = store.get_with_ttl(self._key(arguments))
        if known is None or not self.take(store, arguments, token):
            return False
        try:
            now = store.get_with_ttl(self._key(arguments))
            if now is not None and now[0] == known[0] and (now[1] or 0) <= (known[1] or 0):
                return True
        except BaseException:
            self.release(store, arguments, token)
            raise
        self.release(store, arguments, token)
        return False

    def postpone_refresh(self, store: Family[Any, Any], arguments: bytes, token: bytes) -> None:
        """Keep the lease for a moment after a recomputation failed, under a token that no caller
        has, so that not every hit tries again.
        """
        try:
            store.compare_and_swap(self.lease_key(arguments), token, b"failed", _NEXT_TRY)
        except Error:
            self.count("errors")

    def begin_refresh(self, arguments: bytes) -> bool:
        """Record that this process recomputes a result, and return True; False if it does so
        already.
        """
        this = (id(self), arguments)
        with _counting:
            if this in _refreshing:
                return False
            _refreshing.add(this)
            return True

    def end_refresh(self, arguments: bytes) -> None:
        _refreshing.discard((id(self), arguments))
