"""Leases, of which locks and semaphores are made: acquiring, renewing, handing over and releasing.

A lease is a key with a TTL. Its value identifies the holder: 16 random bytes and the fencing token.
All locks of a family take their fencing tokens from one counter.
"""

from __future__ import annotations

import _thread
import os
import queue
import re
import struct
import threading
import uuid
import weakref
from contextlib import ContextDecorator
from types import TracebackType
from typing import Any, Optional, TypeVar

from kvstore import FOREVER, BusyError, Error, LockedError, Store, StoreIOError
from kvstore._native import WithBlock, surely
from kvstore._time import Duration
from kvstore._transaction import in_one_transaction
from kvstore.recipes._base import (
    Backoff, Name, NotOwnedError, family_of, finite_ttl, in_new_transaction, in_transaction, now_ms, to_name, wake,
    wrote,
)  # fmt: skip

Self = TypeVar("Self", bound="LeaseHolder")

FAMILY = "recipes.locks"
_LAST_TOKEN = b"f"
_TOKEN = struct.Struct(">Q")
#: A counter of fencing tokens that this module has written.
_NUMBER = re.compile(rb"\d{1,18}")
_VALUE_BYTES = 16 + _TOKEN.size
#: A lease is renewed after one third of its TTL.
_RENEWALS = 3
#: The longest time between two renewals, in seconds. Python cannot wait for some centuries.
_LONGEST_INTERVAL = 86_400.0


class Lease:
    """One acquisition of a lock by this process."""

    __slots__ = ("__weakref__", "depth", "key", "released", "value")

    def __init__(self, key: bytes, value: bytes) -> None:
        self.key = key
        self.value = value
        self.depth = 1
        #: A queue that ends the renewal when anything is put into it. Not an Event: a
        #: KeyboardInterrupt inside set() leaves that locked.
        self.released: queue.SimpleQueue[Any] = queue.SimpleQueue()


#: One step of an acquisition: a lease, and its depth before the step.
Step = tuple[Lease, int]


class _Leases:
    """The leases of a lock object that have not been released, latest last."""

    pid: int
    leases: list[Lease]


class _LeasesOfThread(threading.local, _Leases):
    pass


class LeaseHolder(WithBlock, ContextDecorator):
    """Base class of Lock, RLock and Semaphore."""

    _reentrant = False

    def __init__(
        self,
        store: Store[Any, Any],
        name: Name,
        ttl: Duration,
        blocking_timeout: Optional[Duration],
        renew: bool,
        thread_local: bool,
        family: str,
    ) -> None:
        finite_ttl(ttl, "ttl")
        Backoff(blocking_timeout)  # checks the timeout now
        self._store = store
        self._name = to_name(name, "name")
        self._ttl = ttl
        self._blocking_timeout = blocking_timeout
        self._renew = bool(renew)
        self._thread_local = bool(thread_local)
        self._family = family_of(store, family)
        #: The family that contains the counter of the fencing tokens.
        self._tokens = self._family
        self._mine: _Leases = _LeasesOfThread() if thread_local else _Leases()

    def _free_key(self) -> Optional[bytes]:
        """Return the key under which a new lease can be stored, or None if all are taken."""
        raise NotImplementedError

    def _leases(self) -> list[Lease]:
        mine, pid = self._mine, os.getpid()
        if getattr(mine, "pid", None) != pid:  # first use, also in the child of a fork
            mine.leases, mine.pid = [], pid
        return mine.leases

    def _latest(self) -> Lease:
        last = self._leases()[-1:]  # read once: another thread may change the list
        if not last:
            raise NotOwnedError(
                f"this {'thread' if self._thread_local else 'object'} does not hold the {self._kind()}: "
                "acquire it first"
            )
        return last[0]

    def _is_held(self, lease: Lease) -> bool:
        return bool(self._family.get(lease.key) == lease.value)

    def _kind(self) -> str:
        return type(self).__name__

    def _lost(self) -> NotOwnedError:
        return NotOwnedError(
            f"the {self._kind()} is no longer held, because its ttl ended: use a longer ttl=, extend() or "
            "renew=True"
        )

    # Acquiring

    def acquire(self, blocking: bool = True, timeout: Optional[Duration] = None) -> bool:
        """Acquire the lock, and return True if it was acquired.

        While it waits, it checks at least every 50 ms. Waiting callers are not served in order.

        Args:
            blocking: Wait until the lock is free. If False, return at once.
            timeout: The longest wait in seconds (monotonic clock) or as a ``timedelta``; None:
                ``blocking_timeout``, and without one, no limit.

        Raises:
            Error: Inside a transaction of the store, where no other process would see the lease.
            BusyError: If the store is still busy after the timeout. This can take up to
                ``busy_timeout`` longer.
            ValueError: If ``timeout`` is given and ``blocking`` is False.
        """
        got: list[Step] = []
        try:
            return self._acquire(blocking, timeout, got)
        except BaseException:
            surely(self._give_up, got)
            raise

    def _acquire(self, blocking: bool, timeout: Optional[Duration], got: list[Step]) -> bool:
        """Acquire the lock, and add each step taken to ``got``.

        The caller undoes these steps if an exception is raised.
        """
        if not blocking and timeout is not None:
            raise ValueError("timeout= needs blocking=True: leave it out, or wait")
        backoff = Backoff(self._blocking_timeout if timeout is None else timeout)
        if in_transaction(self._store):
            raise Error(
                f"a {self._kind()} cannot be acquired inside a transaction: acquire it before the transaction "
                "begins"
            )
        leases = self._leases()
        while True:
            try:
                # Read first: reading blocks no other process.
                lease = None if self._free_key() is None else self._acquire_once(got)
            except (BusyError, LockedError):
                got.clear()
                if not blocking or backoff.over():
                    raise
                lease = None
            if lease is not None:
                leases.append(lease)
                wrote(self._store)
                if self._renew:
                    self._start_renewal(lease)
                return True
            if not blocking or not backoff.wait():
                return False

    def _acquire_once(self, got: list[Step]) -> Optional[Lease]:
        return in_new_transaction(self._store, lambda: self._acquire_free(got))

    def _acquire_free(self, got: list[Step]) -> Optional[Lease]:
        got.clear()  # the transaction may run again
        key = self._free_key()
        if key is None:
            return None
        value = uuid.uuid4().bytes + _TOKEN.pack(self._next_token())
        self._family.put(key, value, self._ttl)
        lease = Lease(key, value)
        got.append((lease, 0))  # before the commit, which an interrupt may follow
        return lease

    def _give_up(self, got: list[Step]) -> None:
        """Undo the acquisitions in ``got`` after an interrupt. May be called again after another
        interrupt.

        A lease is forgotten only after it was deleted in the store, and deleting it twice does no
        harm. If deleting fails, the TTL ends the lease.
        """
        for lease, depth in got:
            lease.depth = depth
            if depth == 0:
                try:
                    self._family.compare_and_delete(lease.key, lease.value)
                except Error:
                    pass
                wake()
                self._forget(lease)

    def _forget(self, lease: Lease) -> None:
        """Remove a lease from this object without releasing the lock. In the store the lease ends
        by its TTL.
        """
        lease.released.put(None)
        try:
            self._leases().remove(lease)
        except ValueError:
            pass  # another thread has removed it already

    def _next_token(self) -> int:
        """Return the next fencing token: a number greater than all earlier ones.

        It is at least the time in milliseconds, so that it also grows if the counter was lost: by a
        power cut with sync="normal", by restoring an older backup, or by clearing the family.
        """
        last = self._tokens.get(_LAST_TOKEN) or b""
        counted = int(last) if _NUMBER.fullmatch(last) else 0  # the counter may be lost, as above
        token = max(counted + 1, now_ms(self._tokens))
        self._tokens.put(_LAST_TOKEN, str(token), FOREVER)
        return token

    # Holding

    @property
    def fencing_token(self) -> int:
        """The fencing token of this thread's lease: a number greater than those of all earlier
        leases.

        That includes the leases of all locks of the family.

        A service that is used under the lock can refuse a token below the greatest it has seen.

        Raises:
            NotOwnedError: If this thread has not acquired the lock. Whether the lease has ended
                since is not checked.
        """
        number: int = _TOKEN.unpack(self._latest().value[16:])[0]
        return number

    @property
    def token(self) -> bytes:
        """The secret that identifies this thread's lease. Pass it to :meth:`adopt` to hand the lock
        over.

        Raises NotOwnedError as :attr:`fencing_token` does.
        """
        return self._latest().value

    def adopt(self, token: bytes) -> bool:
        """Take over the lease that has the secret ``token``, acquired by another thread, process or
        object.

        The previous holder must not release it, and must not have acquired it in a ``with`` block.

        Returns:
            True if the lease has not ended.
        """
        if not isinstance(token, bytes):
            raise TypeError(f"token must be bytes, not {type(token).__name__}")
        if len(token) != _VALUE_BYTES:
            raise ValueError(
                f"token must have {_VALUE_BYTES} bytes, not {len(token)}: give the token attribute of a lock"
            )
        for key in self._keys():
            if self._family.get(key) == token:
                lease = Lease(key, token)
                self._leases().append(lease)
                if self._renew:
                    self._start_renewal(lease)
                return True
        return False

    def _keys(self) -> list[bytes]:
        """Return the keys under which the current leases of this lock are stored, of all processes.
        """
        raise NotImplementedError

    def owned(self) -> bool:
        """Return whether this thread still holds the lock: its latest lease has not ended.

        Inside a write transaction the answer stays valid until the transaction ends.
        """
        last = self._leases()[-1:]
        return bool(last) and self._is_held(last[0])

    def remaining(self) -> Optional[float]:
        """Return the remaining seconds of this thread's latest lease, or None if the lease has
        ended.
        """
        last = self._leases()[-1:]
        found = self._family.get_with_ttl(last[0].key) if last else None
        return found[1] if found is not None and found[0] == last[0].value else None

    def locked(self) -> bool:
        """Return whether any holder has the lock. For a Semaphore, return whether all slots are
        taken.
        """
        return self._free_key() is None

    def extend(self, ttl: Optional[Duration] = None) -> None:
        """Restart the TTL of this thread's latest lease.

        Joins an open transaction.

        Args:
            ttl: Seconds or a ``timedelta`` from now; None: the ``ttl`` of the lock.

        Raises:
            NotOwnedError: If the lease has ended.
        """
        if ttl is not None:
            finite_ttl(ttl, "ttl")
        self._extend(self._latest(), self._ttl if ttl is None else ttl)

    def _extend(self, lease: Lease, ttl: Duration) -> None:
        if not self._family.compare_and_swap(lease.key, lease.value, lease.value, ttl):
            raise self._lost()

    def release(self) -> None:
        """Release the lock: end the lease that this thread acquired last.

        Raises:
            NotOwnedError: If this thread has acquired nothing, or the lease has ended.
            Error: Inside a transaction of the store.
            BusyError: If the store is busy. The lock is still held.
        """
        lease = self._latest()
        if lease.depth > 1:
            lease.depth -= 1
            return
        there = in_new_transaction(self._store, lambda: self._family.compare_and_delete(lease.key, lease.value))
        self._forget(lease)
        wake()
        if not there:
            raise self._lost()

    def __enter__(self: Self) -> Self:
        got: list[Step] = []
        try:
            if not self._acquire(True, None, got):
                raise TimeoutError(
                    f"the {self._kind()} was not free within blocking_timeout: try again later, or use a "
                    "longer one"
                )
        except BaseException:
            surely(self._give_up, got)
            raise
        return self

    def _ending(self) -> Optional[Step]:
        """Return the lease that the end of the ``with`` block releases, and its depth afterwards.

        The depth is the number of times that it is still acquired.
        """
        last = self._leases()[-1:]
        return (last[0], last[0].depth - 1) if last else None

    def _leave(
        self,
        ending: Optional[Step],
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        try:
            self.release()
        except Error:
            if ending is not None:
                self._forget(ending[0])
            if kind is None:
                raise
            # The exception of the block is more important.

    def _abandon(self, ending: Optional[Step]) -> None:
        if ending is not None and ending[0] in self._leases():
            self._give_up([ending])

    # Renewal

    def _start_renewal(self, lease: Lease) -> None:
        interval = min(finite_ttl(self._ttl, "ttl") / 1000 / _RENEWALS, _LONGEST_INTERVAL)
        # Ends the renewal when the lease is collected. Not by __del__: a KeyboardInterrupt raised
        # there is lost.
        here = weakref.ref(lease, lease.released.put)
        # Not a threading.Thread, whose start() waits for an Event: see Lease.released.
        _thread.start_new_thread(_renew_leases, (self._family, here, lease.released, interval, self._ttl))

    # Pickling

    def _arguments(self) -> dict[str, Any]:
        return {
            "ttl": self._ttl,
            "blocking_timeout": self._blocking_timeout,
            "renew": self._renew,
            "thread_local": self._thread_local,
            "family": self._family.name,
        }

    def __reduce__(self) -> Any:
        return _rebuild, (type(self), self._store, self._name, self._arguments())

    def __repr__(self) -> str:
        return f"<kvstore.recipes.{self._kind()} in family {self._family.name!r}>"


def _rebuild(kind: Any, store: Store[Any, Any], name: Name, arguments: dict[str, Any]) -> Any:
    return kind(store, name, **arguments)


def _renew_leases(
    family: Any, lease: weakref.ref[Lease], released: queue.SimpleQueue[Any], interval: float, ttl: Duration
) -> None:
    """Extend a lease at intervals until it is released or lost, or its object is collected."""
    while True:
        try:
            released.get(timeout=interval)
            return
        except queue.Empty:
            here = lease()
        if here is None:
            return
        try:
            if not extend(family, here, ttl):
                return
        except (BusyError, LockedError, StoreIOError):
            pass  # there is time for further tries; a server may recover
        except Error:
            return  # for example, the store is closed: the TTL ends the lease
        finally:
            del here


def extend(family: Any, lease: Lease, ttl: Duration) -> bool:
    """Extend a lease so that it lasts at least ``ttl`` from now, and return whether it still
    exists.

    Joins an open transaction.
    """

    def keep() -> bool:
        found = family.get_with_ttl(lease.key)
        if found is None or found[0] != lease.value:
            return False
        if found[1] is None or found[1] * 1000 < finite_ttl(ttl, "ttl"):
            family.put(lease.key, lease.value, ttl)
        return True

    return in_one_transaction(family._state, keep)
