"""Lock, RLock, Semaphore: holds that end by themselves, each with a fencing token.

A hold is a key with a TTL, whose value (16 random bytes and the fencing token) says whose it is. All locks of a
family draw their fencing tokens from one counter.
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
#: A hold is renewed after this part of its TTL.
_RENEWALS = 3
_MOST_SLOTS = 1_000_000


class _Hold:
    """What this process knows of a hold of its own."""

    __slots__ = ("__weakref__", "depth", "key", "released", "value")

    def __init__(self, key: bytes, value: bytes) -> None:
        self.key = key
        self.value = value
        self.depth = 1
        #: What is put into it ends the renewal. Not an Event: an interrupt (Ctrl-C) in its set() leaves that locked.
        self.released: queue.SimpleQueue[Any] = queue.SimpleQueue()


#: A hold that was taken, and how often it was held before.
_Step = tuple[_Hold, int]


class _Mine:
    """The holds of an object, latest last."""

    pid: int
    holds: list[_Hold]


class _MineOfThread(threading.local, _Mine):
    pass


class _Holder(ContextDecorator):
    """What Lock, RLock and Semaphore have in common."""

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
        finite_ttl(ttl, "the ttl of a lock")
        Patience(blocking_timeout)  # a bad one is told here
        self._store = store
        self._name = to_name(name, "a lock's name")
        self._ttl = ttl
        self._blocking_timeout = blocking_timeout
        self._renew = bool(renew)
        self._thread_local = bool(thread_local)
        self._family = family_of(store, family)
        self._mine: _Mine = _MineOfThread() if thread_local else _Mine()

    def _free_key(self) -> Optional[bytes]:
        """The key of a hold that nobody has; None if all are taken."""
        raise NotImplementedError

    def _holds(self) -> list[_Hold]:
        mine, pid = self._mine, os.getpid()
        if getattr(mine, "pid", None) != pid:  # the first use, or that in the child of a fork
            mine.holds, mine.pid = [], pid
        return mine.holds

    def _last(self) -> _Hold:
        last = self._holds()[-1:]  # one look: another thread may change the list
        if not last:
            raise NotOwnedError(f"this {'thread' if self._thread_local else 'object'} holds no {self._kind()} here")
        return last[0]

    def _lasts(self, hold: _Hold) -> bool:
        return bool(self._family.get(hold.key) == hold.value)

    def _kind(self) -> str:
        return type(self).__name__

    def _lost(self) -> NotOwnedError:
        return NotOwnedError(f"the {self._kind()} is no longer held: its ttl was over before it was released or extended")

    # Acquiring

    def acquire(self, blocking: bool = True, timeout: Optional[Duration] = None) -> bool:
        """Takes it; says whether it did.

        If it is not free: False at once without ``blocking``; otherwise waits for at most ``timeout``
        seconds (default: ``blocking_timeout``; None: for ever) by the monotonic clock, and looks again at
        least every 50 ms. Who waits longest is not served first.

        Error inside a transaction of the store: nobody would see the hold. BusyError if the store is still
        busy when the time is over, which can take up to ``busy_timeout`` longer.
        """
        got: list[_Step] = []
        try:
            return self._acquire(blocking, timeout, got)
        except BaseException:
            surely(self._give_up, got)
            raise

    def _acquire(self, blocking: bool, timeout: Optional[Duration], got: list[_Step]) -> bool:
        """The same, for who undoes what was ``got`` if an exception comes out."""
        if not blocking and timeout is not None:
            raise ValueError("a timeout makes no sense without blocking")
        patience = Patience(self._blocking_timeout if timeout is None else timeout)
        if in_transaction(self._store):
            raise Error(f"a {self._kind()} cannot be acquired inside a transaction: acquire it before")
        holds = self._holds()
        while True:
            try:
                # A look first, for which nobody has to wait.
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
        got.clear()  # it may be run again
        key = self._free_key()
        if key is None:
            return None
        value = uuid.uuid4().bytes + _TOKEN.pack(self._next_token())
        self._family.put(key, value, self._ttl)
        hold = _Hold(key, value)
        got.append((hold, 0))  # before the commit, after which an interrupt may come
        return hold

    def _give_up(self, got: list[_Step]) -> None:
        """Undoes what an interrupt (Ctrl-C) has come after. May be called again after another one in it: a hold is
        forgotten when the store was told, which does no harm twice. If the store refuses, the TTL ends the hold."""
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
        """Nobody releases it any more: if it is in the store, it ends by its TTL."""
        hold.released.put(None)
        try:
            self._holds().remove(hold)
        except ValueError:
            pass  # another thread of this object has found that it ended

    def _next_token(self) -> int:
        """A number above all that were given before. At least the time in milliseconds: so it also is if the
        counter was lost (a power cut with sync="normal", an older backup, a family that was cleared)."""
        last = self._family.get(_LAST_TOKEN)
        token = max(int(last or 0) + 1, now_ms(self._family))
        self._family.put(_LAST_TOKEN, str(token), FOREVER)
        return token

    # Holding

    @property
    def fencing_token(self) -> int:
        """The number of this hold: greater than those of all earlier holds of any lock of the family. Whoever
        is written to under the lock refuses a number below the greatest it has seen. NotOwnedError if this
        thread has not acquired it; whether the hold has ended since is not looked at."""
        number: int = _TOKEN.unpack(self._last().value[16:])[0]
        return number

    @property
    def token(self) -> bytes:
        """What proves this hold, for :meth:`adopt`. NotOwnedError as for :attr:`fencing_token`."""
        return self._last().value

    def adopt(self, token: bytes) -> bool:
        """Takes over a hold that another thread, process or object acquired and gave the ``token`` of; says
        whether it still lasts. Who gave it away must not release it (nor acquire it in a ``with`` block)."""
        if not isinstance(token, bytes):
            raise TypeError(f"a token is bytes, not {type(token).__name__}")
        if len(token) != _VALUE_BYTES:
            raise ValueError("this is not the token of a hold")
        for key in self._keys():
            if self._family.get(key) == token:
                hold = _Hold(key, token)
                self._holds().append(hold)
                if self._renew:
                    self._start_renewal(hold)
                return True
        return False

    def _keys(self) -> list[bytes]:
        """The keys of all holds, whoever has them."""
        raise NotImplementedError

    def owned(self) -> bool:
        """Whether this thread's hold (of several the latest) lasts. Inside a transaction that writes, the
        answer stays true until the transaction ends."""
        last = self._holds()[-1:]
        return bool(last) and self._lasts(last[0])

    def remaining(self) -> Optional[float]:
        """How many seconds this thread's hold still lasts, if it is not extended; None if it has none."""
        last = self._holds()[-1:]
        found = self._family.get_with_ttl(last[0].key) if last else None
        return found[1] if found is not None and found[0] == last[0].value else None

    def locked(self) -> bool:
        """Whether it is taken (a Semaphore: entirely), by whomever."""
        return self._free_key() is None

    def extend(self, ttl: Optional[Duration] = None) -> None:
        """Lets this thread's hold last ``ttl`` seconds from now (default: those it was made with).
        NotOwnedError if it has ended. Joins an open transaction."""
        if ttl is not None:
            finite_ttl(ttl, "the ttl of a lock")
        self._extend(self._last(), self._ttl if ttl is None else ttl)

    def _extend(self, hold: _Hold, ttl: Duration) -> None:
        if not self._family.compare_and_swap(hold.key, hold.value, hold.value, ttl):
            raise self._lost()

    def release(self) -> None:
        """Gives back what this thread acquired last. NotOwnedError if it has acquired nothing, or the hold
        has ended. Error inside a transaction. After a BusyError it is still held."""
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
                raise TimeoutError(f"the {self._kind()} was not free within its blocking_timeout")
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
        """What the end of the block undoes."""
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
            # The caller must see what went wrong in the block.

    def _abandon(self, ending: Optional[_Step]) -> None:
        if ending is not None and ending[0] in self._holds():
            self._give_up([ending])

    # Renewal

    def _start_renewal(self, hold: _Hold) -> None:
        interval = finite_ttl(self._ttl, "the ttl of a lock") / 1000 / _RENEWALS
        # When the hold is gone, its renewal ends: a __del__ in Python would lose an interrupt that comes inside it.
        here = weakref.ref(hold, hold.released.put)
        # Not a threading.Thread, whose start() waits for an Event: see _Hold.released.
        _thread.start_new_thread(_keep, (self._family, here, hold.released, interval, self._ttl))

    # Carrying it about

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
    """Renews a hold until it is released or lost, or nobody has the object any more."""
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
            pass  # there is time for another try or two; a server may be back then
        except Error:
            return  # the store is closed, say: the TTL ends the hold
        finally:
            del here


def _kept(family: Any, hold: _Hold, ttl: Duration) -> bool:
    """Lets a hold last for at least so long from now, and not less than it does; says whether it is still there. Joins an
    open transaction."""

    def keep() -> bool:
        found = family.get_with_ttl(hold.key)
        if found is None or found[0] != hold.value:
            return False
        if found[1] is None or found[1] * 1000 < finite_ttl(ttl, "the ttl of a lock"):
            family.put(hold.key, hold.value, ttl)
        return True

    return in_one_transaction(family._shared, keep)


class Lock(_Holder):
    """A lock that one thread of one process holds at a time, by its ``name`` in the store.

    - ``ttl``: seconds (or a timedelta) after which a hold ends by itself, so that a process that dies, or
      hangs, does not lock out the others for ever. Longer than the work takes; or see ``extend`` and ``renew``.
    - ``blocking_timeout``: how long ``acquire`` and ``with`` wait at most; None: for ever. A ``with`` that
      waits in vain raises TimeoutError.
    - ``renew``: a thread of this process extends the hold at every third of the TTL, until it is released,
      the process dies, or the object or the thread that holds it is gone.
    - ``thread_local``: a hold belongs to the thread that acquired it. If False, to the object, and any
      thread that has the object may release it.
    - ``family``: where the locks are kept. Locks of one name in one family are the same lock.

    It excludes others for as long as the TTL lasts by the store's clock (the system's), and not longer: a
    process that stands still for longer than that goes on without the lock. What must not happen twice then
    needs the :attr:`fencing_token`, or :meth:`owned` in the transaction that writes. See
    docs/reference/recipes.md for what clocks and power cuts do.

    A child of a fork holds nothing of what its parent acquired. The object can be shared by threads; it is
    pickled without its holds. As a decorator (``@lock``) it is held during each call.

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
            self._forget(last[0])  # it has ended, and another one takes its place
        elif last and blocking and self._thread_local:
            raise Error("this thread holds the Lock already and would wait for itself; an RLock can be taken again")
        return super()._acquire(blocking, timeout, got)

    def _free_key(self) -> Optional[bytes]:
        return None if self._key in self._family else self._key

    def _keys(self) -> list[bytes]:
        return [self._key]


class RLock(Lock):
    """A :class:`Lock` that the thread which holds it can acquire again; it is free when it was released as
    often. To acquire it again extends the hold, unless it lasts longer anyway. With a Lock of the same name it is
    one lock.

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
        """As :meth:`Lock.acquire`; if this thread holds it, extends the hold and counts. NotOwnedError if
        the outer hold has ended: it is not taken anew under a block that believes it had it all along."""
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
    """A lock that ``value`` holders have at the same time; a holder has one of the slots 0 to ``value - 1``.

    All who use a name must give the same ``value``. One thread may hold several slots, and releases the
    latest first. Everything else is as for a :class:`Lock`.

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
        self._value = positive_int(value, "the value of a semaphore")
        if value > _MOST_SLOTS:
            raise ValueError(f"the value of a semaphore is at most {_MOST_SLOTS}, not {value}")
        super().__init__(store, name, ttl, blocking_timeout, renew, thread_local, family)
        self._partition = b"s" + self._name

    @property
    def slot(self) -> int:
        """The number of the slot this thread took last. NotOwnedError if it has none."""
        return int.from_bytes(self._last().key[-4:], "big")

    def available(self) -> int:
        """How many slots are free."""
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
