"""Classes Lock, RLock and Semaphore: locks between processes that end by a TTL and have fencing
tokens. _leases does the work.
"""

from __future__ import annotations

from typing import Any, Optional

from kvstore import Error, Store, row_key
from kvstore._time import Duration
from kvstore.recipes._base import Name, positive_int
from kvstore.recipes._leases import FAMILY, LeaseHolder, Step, extend

_MOST_SLOTS = 1_000_000


class Lock(LeaseHolder):
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
        family: str = FAMILY,
    ) -> None:
        super().__init__(store, name, ttl, blocking_timeout, renew, thread_local, family)
        self._key = b"l" + self._name

    def _acquire(self, blocking: bool, timeout: Optional[Duration], got: list[Step]) -> bool:
        last = self._leases()[-1:]
        if last and not self._is_held(last[0]):
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

    def _acquire(self, blocking: bool, timeout: Optional[Duration], got: list[Step]) -> bool:
        leases = self._leases()
        if not leases:
            return super()._acquire(blocking, timeout, got)
        lease = leases[-1]
        if not extend(self._family, lease, self._ttl):
            raise self._lost()
        got.append((lease, lease.depth))
        lease.depth += 1
        return True


class Semaphore(LeaseHolder):
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
        family: str = FAMILY,
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
        return int.from_bytes(self._latest().key[-4:], "big")

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
