"""The methods of a store on the time of all families: the clock, the purge and the cleaner.

Mixed into Store. The methods of one family are in _family_expiry.
"""

from __future__ import annotations

from typing import NamedTuple, Optional

from kvstore._connection_pool import store_closed_error
from kvstore._errors import InvalidError, exception_for, last_failure
from kvstore._family_expiry import ExpiryMethods
from kvstore._native import K, V, ffi, lib
from kvstore._options import count
from kvstore._time import Clock, ClockFunction, Duration, duration_ms

_NOTFOUND: int = lib.KVSTORE_NOTFOUND


class PurgeStep(NamedTuple):
    """The result of :meth:`Store.purge_step`: how many keys were removed, and whether expired keys
    remain.
    """

    #: The number of keys that were removed.
    deleted: int
    #: Whether expired keys remain.
    more: bool


class StoreExpiryMethods(ExpiryMethods[K, V]):
    """Base class of :class:`kvstore.Store` with its methods on expiry."""

    __slots__ = ()

    def set_clock(self, clock: Optional[ClockFunction]) -> None:
        """Replace the clock of this store, for tests. The clock decides when keys expire.

        A time before one that it returned earlier counts as the earlier one. If the function
        raises, the exception is raised where this package calls it (for example to compute an
        expiry time). Where the library calls it, the exception goes to ``sys.unraisablehook`` and
        the clock stands still.

        Args:
            clock: A function that returns seconds since the Unix epoch; None: the system clock. It
                is called in any thread that uses the store, and once here. It must not use the
                store.

        Raises:
            InvalidError: If the store is on a server, whose time applies.
            MisuseError: If called inside the clock function.
        """
        state = self._state
        state.handle()
        if state.pool.remote:
            if clock is None:
                return
            raise InvalidError(
                "the clock of a store on a server cannot be replaced: the server's clock applies to all "
                "clients"
            )
        made = None
        if clock is not None:
            if not callable(clock):
                raise TypeError(f"clock must be a function that returns seconds, or None, not {type(clock).__name__}")
            made = Clock(clock)
            made.now_ms()
        state.handle()
        state.pool.set_clock(made)
        state.changed()

    def next_expiry(self, *, all_families: bool = False) -> Optional[float]:
        """Return the earliest expiry time in the default family, or in all families, in seconds
        since the Unix epoch.

        A timer can call :meth:`purge_step` at that time. See :meth:`Family.next_expiry`.

        Args:
            all_families: Consider all families.

        Returns:
            Seconds since the Unix epoch, or None if no key has a TTL.
        """
        if not all_families:
            return super().next_expiry()
        out = ffi.new("int64_t *")
        rc = lib.kvstore_next_expiry(self._state.handle(), out)
        if rc == _NOTFOUND:
            return None
        self._state.check(rc)
        return int(out[0]) / 1000

    def purge_step(self, max_keys: int = 0, max_time: Duration = 0) -> PurgeStep:
        """Remove expired keys of all families from the file, earliest expiry first.

        Args:
            max_keys: The maximum number of keys; 0: no limit.
            max_time: Seconds or a ``timedelta`` after which to stop; 0: no limit.

        Returns:
            How many keys were removed, and whether expired keys remain.
        """
        deleted, more = ffi.new("int64_t *"), ffi.new("int *")
        most, budget = count(max_keys, "max_keys"), duration_ms(max_time, "max_time")
        self._state.check(lib.kvstore_purge_step(self._state.handle(), most, budget, deleted, more))
        return PurgeStep(int(deleted[0]), bool(more[0]))

    def start_cleaner(self, interval: Duration = 1.0, max_keys: int = 0) -> None:
        """Start a background thread of the library that removes expired keys of all families at
        intervals.

        Args:
            interval: Seconds or a ``timedelta`` between two runs.
            max_keys: The maximum number of keys per run; 0: no limit.

        Raises:
            Error: If a cleaner is already running, or the store is in memory.
        """
        every, most = duration_ms(interval, "interval"), count(max_keys, "max_keys")
        if every == 0:
            raise ValueError("interval must be positive: give the seconds between two runs")
        state = self._state
        here = state.pin()
        with state.guard:  # one cleaner for all threads
            checkout = state.cleaner or here.checkout
            rc = lib.kvstore_cleaner_start(checkout.connection.out[0], every, most)
            if rc == 0:
                state.cleaner = checkout
        if rc:
            state.handle()
            raise exception_for(rc, last_failure(checkout.connection.kv))

    def stop_cleaner(self) -> None:
        """Stop the cleaner and wait until its thread has ended.

        Does nothing if no cleaner is running. The child of a fork has none; the parent's continues.
        """
        state = self._state
        if state.closed:
            raise store_closed_error()
        with state.guard:
            checkout, state.cleaner = state.cleaner, None
        if checkout is not None:
            lib.kvstore_cleaner_stop(checkout.connection.out[0])
