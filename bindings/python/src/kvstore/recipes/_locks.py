"""Classes Lock, RLock and Semaphore: locks between processes that end by a TTL and have fencing
tokens.

A hold is a key with a TTL. Its value identifies the holder: 16 random bytes and the fencing token.
All locks of a family take their fencing tokens from one counter.
"""

from __future__ import annotations

import _thread
import os
import queue
import struct
import threading
import uuid
import weakref
from contextlib import ContextDecorator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Optional, TypeVar

from kvstore import FOREVER, BusyError, Error, LockedError, Store, StoreIOError, row_key
from kvstore._native import leave, surely
from kvstore._time import Duration
from kvstore._transaction import in_one_transaction
from kvstore.recipes._base import (
    Name, NotOwnedError, Patience, alone, family_of, finite_ttl, in_transaction, now_ms, positive_int, to_name, wake,
)  # fmt: skip

Self = TypeVar("Self", bound="_Holder")

_FAMILY = "recipes.locks"
_LAST_TOKEN = b"f"
_TOKEN = struct.Struct(">Q")
_VALUE_BYTES = 16 + _TOKEN.size
#: A hold is renewed after one third of its TTL.
_RENEWALS = 3
_MOST_SLOTS = 1_000_000


class _Hold:
    """One acquisition of a lock by this process."""

    __slots__ = ("__weakref__", "depth", "key", "released", "value")

    def __init__(self, key: bytes, value: bytes) -> None:
        self.key = key
        self.value = value
        self.depth = 1
        #: A queue that ends the renewal when anything is put into it. Not an Event: a
        #: KeyboardInterrupt inside set() leaves that locked.
        self.released: queue.SimpleQueue[Any] = queue.SimpleQueue()


#: One step of an acquisition: a hold, and its depth before the step.
_Step = tuple[_Hold, int]


class _Mine:
    """The holds of a lock object that have not been released, latest last."""

    pid: int
    holds: list[_Hold]


class _MineOfThread(threading.local, _Mine):
    pass


class _Holder(ContextDecorator):
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
        Patience(blocking_timeout)  # checks the timeout now
        self._store = store
        self._name = to_name(name, "name")
        self._ttl = ttl
        self._blocking_timeout = blocking_timeout
        self._renew = bool(renew)
        self._thread_local = bool(thread_local)
        self._family = family_of(store, family)
        self._mine: _Mine = _MineOfThread() if thread_local else _Mine()

    def _free_key(self) -> Optional[bytes]:
        """Return the key under which a new hold can be stored, or None if all are taken."""
        raise NotImplementedError

    def _holds(self) -> list[_Hold]:
        mine, pid = self._mine, os.getpid()
        if getattr(mine, "pid", None) != pid:  # first use, also in the child of a fork
            mine.holds, mine.pid = [], pid
        return mine.holds

    def _last(self) -> _Hold:
        last = self._holds()[-1:]  # read once: another thread may change the list
        if not last:
            raise NotOwnedError(
                f"this {'thread' if self._thread_local else 'object'} does not hold the {self._kind()}: "
                "acquire it first"
            )
        return last[0]

    def _lasts(self, hold: _Hold) -> bool:
        return bool(self._family.get(hold.key) == hold.value)

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
            Error: Inside a transaction of the store, where no other process would see the hold.
            BusyError: If the store is still busy after the timeout. This can take up to
                ``busy_timeout`` longer.
            ValueError: If ``timeout`` is given and ``blocking`` is False.
        """
        got: list[_Step] = []
        try:
            return self._acquire(blocking, timeout, got)
        except BaseException:
            surely(self._give_up, got)
            raise

    def _acquire(self, blocking: bool, timeout: Optional[Duration], got: list[_Step]) -> bool:
        """Acquire the lock, and add each step taken to ``got``.

        The caller undoes these steps if an exception is raised.
        """
        if not blocking and timeout is not None:
            raise ValueError("timeout= needs blocking=True: leave it out, or wait")
        patience = Patience(self._blocking_timeout if timeout is None else timeout)
        if in_transaction(self._store):
            raise Error(
                f"a {self._kind()} cannot be acquired inside a transaction: acquire it before the transaction "
                "begins"
            )
        holds = self._holds()
        while True:
            try:
                # Read first: reading blocks no other process.
                hold = None if self._free_key() is None else self._take(got)
            except (BusyError, LockedError):
                got.clear()
                if not blocking or patience.over():
                    raise
                hold = None
            if hold is not None:
                holds.append(hold)
                if self._renew:
                    self._start_renewal(hold)
                return True
            if not blocking or not patience.wait():
                return False

    def _take(self, got: list[_Step]) -> Optional[_Hold]:
        return alone(self._store, lambda: self._take_free(got))

    def _take_free(self, got: list[_Step]) -> Optional[_Hold]:
        got.clear()  # the transaction may run again
        key = self._free_key()
        if key is None:
            return None
        value = uuid.uuid4().bytes + _TOKEN.pack(self._next_token())
        self._family.put(key, value, self._ttl)
        hold = _Hold(key, value)
        got.append((hold, 0))  # before the commit, which an interrupt may follow
        return hold

    def _give_up(self, got: list[_Step]) -> None:
        """Undo the acquisitions in ``got`` after an interrupt. May be called again after another
        interrupt.

        A hold is forgotten only after it was deleted in the store, and deleting it twice does no
        harm. If deleting fails, the TTL ends the hold.
        """
        for hold, depth in got:
            hold.depth = depth
            if depth == 0:
                try:
                    self._family.compare_and_delete(hold.key, hold.value)
                except Error:
                    pass
                wake()
                self._forget(hold)

    def _forget(self, hold: _Hold) -> None:
        """Remove a hold from this object without releasing the lock. In the store the hold ends by
        its TTL.
        """
        hold.released.put(None)
        try:
            self._holds().remove(hold)
        except ValueError:
            pass  # another thread has removed it already

    def _next_token(self) -> int:
        """Return the next fencing token: a number greater than all earlier ones.

        It is at least the time in milliseconds, so that it also grows if the counter was lost: by a
        power cut with sync="normal", by restoring an older backup, or by clearing the family.
        """
        last = self._family.get(_LAST_TOKEN)
        token = max(int(last or 0) + 1, now_ms(self._family))
        self._family.put(_LAST_TOKEN, str(token), FOREVER)
        return token

    # Holding

    @property
    def fencing_token(self) -> int:
        """The fencing token of this thread's hold: a number greater than those of all earlier
        holds.

        That includes the holds of all locks of the family.

        A service that is used under the lock can refuse a token below the greatest it has seen.

        Raises:
            NotOwnedError: If this thread has not acquired the lock. Whether the hold has ended
                since is not checked.
        """
        number: int = _TOKEN.unpack(self._last().value[16:])[0]
        return number

    @property
    def token(self) -> bytes:
        """The secret that identifies this thread's hold. Pass it to :meth:`adopt` to hand the lock
        over.

        Raises NotOwnedError as :attr:`fencing_token` does.
        """
        return self._last().value

    def adopt(self, token: bytes) -> bool:
        """Take over the hold that has the secret ``token``, acquired by another thread, process or
        object.

        The previous holder must not release it, and must not have acquired it in a ``with`` block.

        Returns:
            True if the hold has not ended.
        """
        if not isinstance(token, bytes):
            raise TypeError(f"token must be bytes, not {type(token).__name__}")
        if len(token) != _VALUE_BYTES:
            raise ValueError(
                f"token must have {_VALUE_BYTES} bytes, not {len(token)}: give the token attribute of a lock"
            )
        for key in self._keys():
            if self._family.get(key) == token:
                hold = _Hold(key, token)
                self._holds().append(hold)
                if self._renew:
                    self._start_renewal(hold)
                return True
        return False

    def _keys(self) -> list[bytes]:
        """Return the keys under which the current holds of this lock are stored, of all processes.
        """
        raise NotImplementedError

    def owned(self) -> bool:
        """Return whether this thread still holds the lock: its latest hold has not ended.

        Inside a write transaction the answer stays valid until the transaction ends.
        """
        last = self._holds()[-1:]
        return bool(last) and self._lasts(last[0])

    def remaining(self) -> Optional[float]:
        """Return the remaining seconds of this thread's latest hold, or None if the hold has ended.
        """
        last = self._holds()[-1:]
        found = self._family.get_with_ttl(last[0].key) if last else None
        return found[1] if found is not None and found[0] == last[0].value else None

    def locked(self) -> bool:
        """Return whether any holder has the lock. For a Semaphore, return whether all slots are
        taken.
        """
        return self._free_key() is None

    def extend(self, ttl: Optional[Duration] = None) -> None:
        """Restart the TTL of this thread's latest hold.

        Joins an open transaction.

        Args:
            ttl: Seconds or a ``timedelta`` from now; None: the ``ttl`` of the lock.

        Raises:
            NotOwnedError: If the hold has ended.
        """
        if ttl is not None:
            finite_ttl(ttl, "ttl")
        self._extend(self._last(), self._ttl if ttl is None else ttl)

    def _extend(self, hold: _Hold, ttl: Duration) -> None:
        if not self._family.compare_and_swap(hold.key, hold.value, hold.value, ttl):
            raise self._lost()

    def release(self) -> None:
        """Release the lock: end the hold that this thread acquired last.

        Raises:
            NotOwnedError: If this thread has acquired nothing, or the hold has ended.
            Error: Inside a transaction of the store.
            BusyError: If the store is busy. The lock is still held.
        """
        hold = self._last()
        if hold.depth > 1:
            hold.depth -= 1
            return
        there = alone(self._store, lambda: self._family.compare_and_delete(hold.key, hold.value))
        self._forget(hold)
        wake()
        if not there:
            raise self._lost()

    def __enter__(self: Self) -> Self:
        got: list[_Step] = []
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

    if TYPE_CHECKING:

        def __exit__(
            self,
            kind: Optional[type[BaseException]],
            error: Optional[BaseException],
            traceback: Optional[TracebackType],
        ) -> None: ...

    else:
        __exit__ = leave

    def _ending(self) -> Optional[_Step]:
        """Return the hold that the end of the ``with`` block releases, and its depth afterwards.

        The depth is the number of times that it is still acquired.
        """
        last = self._holds()[-1:]
        return (last[0], last[0].depth - 1) if last else None

    def _leave(
        self,
        ending: Optional[_Step],
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

    def _abandon(self, ending: Optional[_Step]) -> None:
        if ending is not None and ending[0] in self._holds():
            self._give_up([ending])

    # Renewal

    def _start_renewal(self, hold: _Hold) -> None:
        interval = finite_ttl(self._ttl, "ttl") / 1000 / _RENEWALS
        # Ends the renewal when the hold is collected. Not by __del__: a KeyboardInterrupt raised
        # there is lost.
        here = weakref.ref(hold, hold.released.put)
        # Not a threading.Thread, whose start() waits for an Event: see _Hold.released.
        _thread.start_new_thread(_keep, (self._family, here, hold.released, interval, self._ttl))

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
        return _made_anew, (type(self), self._store, self._name, self._arguments())

    def __repr__(self) -> str:
        return f"<kvstore.recipes.{self._kind()} in family {self._family.name!r}>"


def _made_anew(kind: Any, store: Store[Any, Any], name: Name, arguments: dict[str, Any]) -> Any:
    return kind(store, name, **arguments)


def _keep(
    family: Any, hold: weakref.ref[_Hold], released: queue.SimpleQueue[Any], interval: float, ttl: Duration
) -> None:
    """Extend a hold at intervals until it is released or lost, or its object is collected."""
    while True:
        try:
            released.get(timeout=interval)
            return
        except queue.Empty:
            here = hold()
        if here is None:
            return
        try:
            if not _kept(family, here, ttl):
                return
        except (BusyError, LockedError, StoreIOError):
            pass  # there is time for further tries; a server may recover
        except Error:
            return  # for example, the store is closed: the TTL ends the hold
        finally:
            del here


def _kept(family: Any, hold: _Hold, ttl: Duration) -> bool:
    """Extend a hold so that it lasts at least ``ttl`` from now, and return whether it still exists.

    Joins an open transaction.
    """

    def keep() -> bool:
        found = family.get_with_ttl(hold.key)
        if found is None or found[0] != hold.value:
            return False
        if found[1] is None or found[1] * 1000 < finite_ttl(ttl, "ttl"):
            family.put(hold.key, hold.value, ttl)
        return True

    return in_one_transaction(family._state, keep)


class Lock(_Holder):
    """A lock, named within a store, that one thread of one process holds at a time.

    Locks of the same name in the same family are the same lock. Use it with ``with``, as a
    decorator (``@lock``, held during each call), or with ``acquire`` and ``release``.

    The lock excludes other holders for as long as its TTL lasts by the store's clock, and not
    longer. A process that is suspended for longer continues without the lock. If something must not
    happen twice even then, use the :attr:`fencing_token`, or check :meth:`owned` in the transaction
    that writes. docs/reference/recipes.md describes the effects of clock changes and power cuts.

    The child of a fork holds nothing of its parent. Threads may share the object; it is pickled
    without its holds.

    Args:
        store: A :class:`kvstore.Store`.
        name: str or bytes, not empty.
        ttl: Seconds or a ``timedelta`` after which a hold ends by itself, so that a dead or hanging
            process does not block the others forever. It must be longer than the work; or use
            ``extend()`` or ``renew``.
        blocking_timeout: The longest wait of ``acquire`` and ``with``, in seconds or as a
            ``timedelta``; None: no limit. A ``with`` statement that times out raises TimeoutError.
        renew: Extend the hold in a background thread, every third of the TTL, until it is released,
            the process dies, or the lock object or the holding thread ends.
        thread_local: A hold belongs to the thread that acquired it. If False, it belongs to the
            object, and any thread may release it.
        family: The family in which locks are stored.

    >>> db = kvstore.open(":memory:")
    >>> lock = kvstore.recipes.Lock(db, "report", ttl=30)
    >>> with lock:
    ...     lock.locked(), lock.owned(), lock.fencing_token > 0
    (True, True, True)
    >>> lock.acquire(blocking=False), lock.release(), lock.locked()
    (True, None, False)
    """

    def __init__(
        self,
        store: Store[Any, Any],
        name: Name,
        ttl: Duration = 30.0,
        *,
        blocking_timeout: Optional[Duration] = None,
        renew: bool = False,
        thread_local: bool = True,
        family: str = _FAMILY,
    ) -> None:
        super().__init__(store, name, ttl, blocking_timeout, renew, thread_local, family)
        self._key = b"l" + self._name

    def _acquire(self, blocking: bool, timeout: Optional[Duration], got: list[_Step]) -> bool:
        last = self._holds()[-1:]
        if last and not self._lasts(last[0]):
            self._forget(last[0])  # it has ended
        elif last and blocking and self._thread_local:
            raise Error(
                "this thread already holds the Lock and would wait for itself: use an RLock to acquire it "
                "again"
            )
        return super()._acquire(blocking, timeout, got)

    def _free_key(self) -> Optional[bytes]:
        return None if self._key in self._family else self._key

    def _keys(self) -> list[bytes]:
        return [self._key]


class RLock(Lock):
    """A reentrant :class:`Lock`: the thread that holds it can acquire it again.

    It is free after as many releases. Acquiring it again extends the hold, unless it lasts longer
    anyway. A Lock and an RLock of the same name are the same lock.

    >>> db = kvstore.open(":memory:")
    >>> lock = kvstore.recipes.RLock(db, "report")
    >>> with lock, lock:
    ...     lock.locked()
    True
    >>> lock.locked()
    False
    """

    _reentrant = True

    def acquire(self, blocking: bool = True, timeout: Optional[Duration] = None) -> bool:
        """Acquire the lock, or acquire it once more if this thread holds it. See
        :meth:`Lock.acquire`.

        Raises:
            NotOwnedError: If the outer hold has ended. It is not acquired anew, because the outer
                block relies on an uninterrupted hold.
        """
        return super().acquire(blocking, timeout)

    def _acquire(self, blocking: bool, timeout: Optional[Duration], got: list[_Step]) -> bool:
        holds = self._holds()
        if not holds:
            return super()._acquire(blocking, timeout, got)
        hold = holds[-1]
        if not _kept(self._family, hold, self._ttl):
            raise self._lost()
        got.append((hold, hold.depth))
        hold.depth += 1
        return True


class Semaphore(_Holder):
    """A lock that up to ``value`` holders can have at the same time.

    Each has one of the slots 0 to ``value - 1``.

    All users of a name must give the same ``value``. One thread may hold several slots, and
    releases the latest first. Otherwise it works like a :class:`Lock`.

    >>> db = kvstore.open(":memory:")
    >>> downloads = kvstore.recipes.Semaphore(db, "downloads", 2, ttl=60)
    >>> with downloads:
    ...     downloads.slot, downloads.available()
    (0, 1)
    """

    def __init__(
        self,
        store: Store[Any, Any],
        name: Name,
        value: int = 1,
        ttl: Duration = 30.0,
        *,
        blocking_timeout: Optional[Duration] = None,
        renew: bool = False,
        thread_local: bool = True,
        family: str = _FAMILY,
    ) -> None:
        self._value = positive_int(value, "value")
        if value > _MOST_SLOTS:
            raise ValueError(f"value must be at most {_MOST_SLOTS}, not {value}")
        super().__init__(store, name, ttl, blocking_timeout, renew, thread_local, family)
        self._partition = b"s" + self._name

    @property
    def slot(self) -> int:
        """The number of the slot that this thread acquired last. Raises NotOwnedError if it holds
        none.
        """
        return int.from_bytes(self._last().key[-4:], "big")

    def available(self) -> int:
        """Return the number of slots that are free."""
        return self._value - sum(1 for slot in self._taken() if slot < self._value)

    def _taken(self) -> list[int]:
        return [int.from_bytes(slot, "big") for slot, _ in self._family.rows(self._partition)]

    def _free_key(self) -> Optional[bytes]:
        taken = set(self._taken())
        for slot in range(self._value):
            if slot not in taken:
                return self._key_of(slot)
        return None

    def _key_of(self, slot: int) -> bytes:
        return row_key(self._partition, slot.to_bytes(4, "big"))

    def _keys(self) -> list[bytes]:
        return [self._key_of(slot) for slot in self._taken()]

    def _arguments(self) -> dict[str, Any]:
        return {"value": self._value, **super()._arguments()}
