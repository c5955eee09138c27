"""The lock of a cache: a key of the cache, with the interface of the locks of redis-py.

Must not depend on a framework.
"""

from __future__ import annotations

from typing import Any, Optional

from kvstore import Family
from kvstore._time import Duration
from kvstore._transaction import in_one_transaction
from kvstore.contrib._names import StoredName
from kvstore.contrib._storage import Storage
from kvstore.contrib._timeouts import Timeout, bounded, finite_ttl_of
from kvstore.recipes import Lock, NotOwnedError
from kvstore.recipes._base import family_of
from kvstore.recipes._leases import FAMILY, Step

#: Seconds after which a lock without a timeout is free, if the process that holds it has died.
_TTL_WITHOUT_TIMEOUT = 60.0


class CacheLock(Lock):
    """A lock of a cache, which one thread of one process holds at a time.

    It is a :class:`kvstore.recipes.Lock` whose key is a key of the cache, with the methods that the
    locks of redis-py have. It raises :exc:`kvstore.recipes.NotOwnedError` if it is released or
    extended and no longer held, and TimeoutError if a ``with`` statement does not get it.

    If the file is deleted, moved or replaced, the lock is free, and can be acquired in the new file.
    """

    def __init__(
        self,
        storage: Storage,
        name: StoredName,
        timeout: Optional[Timeout],
        blocking: bool,
        blocking_timeout: Optional[Timeout],
        thread_local: bool,
    ) -> None:
        ttl = _TTL_WITHOUT_TIMEOUT if timeout is None else finite_ttl_of(timeout)
        if not ttl > 0:
            raise ValueError(f"timeout must be positive, not {timeout!r}: for no timeout, use None")
        self._storage = storage
        self._blocking = bool(blocking)

        def create(_: Family) -> None:
            Lock.__init__(
                self,
                storage.store(),
                name,
                ttl,
                blocking_timeout=_wait(blocking_timeout) if blocking else 0,
                renew=timeout is None,
                thread_local=thread_local,
                family=storage.name,
            )
            self._tokens = family_of(self._store, FAMILY)

        storage.call(create)
        self._key = self._name

    def _bind(self) -> None:
        """Use the store that is open now: another one after a fork, or if the file was replaced."""
        store = self._storage.store()
        if store is not self._store:
            self._family, self._tokens = family_of(store, self._storage.name), family_of(store, FAMILY)
            self._store = store

    def acquire(
        self,
        blocking: Optional[bool] = None,
        timeout: Optional[Timeout] = None,
        *,
        sleep: Optional[float] = None,
        blocking_timeout: Optional[Timeout] = None,
    ) -> bool:
        """Acquire the lock, and return True if it was acquired.

        Args:
            blocking: Wait until the lock is free. If False, return at once. None: as the lock was
                created.
            timeout: The longest wait in seconds; None: as the lock was created.
            sleep: Accepted for compatibility. The lock is tried at least every 50 ms.
            blocking_timeout: Another name of ``timeout``.

        Raises:
            kvstore.Error: If the store fails; inside a transaction of the store; or if this thread
                holds the lock already and would wait for itself.
            ValueError: If a timeout is given, and ``blocking`` is False.
        """
        waits = self._blocking if blocking is None else blocking
        return super().acquire(waits, _wait(blocking_timeout if timeout is None else timeout))

    def _acquire(self, blocking: bool, timeout: Optional[Duration], got: list[Step]) -> bool:
        def acquire(_: Family) -> bool:
            self._bind()
            return Lock._acquire(self, blocking, timeout, got)

        return self._storage.call(acquire)

    def release(self) -> None:
        """Release the lock.

        Raises:
            NotOwnedError: If this thread has not acquired the lock, its timeout has ended, or its
                key was deleted.
            kvstore.Error: If the store fails, or inside a transaction of the store. The lock is
                still held.
        """

        def release(_: Family) -> None:
            self._bind()
            Lock.release(self)

        self._storage.call(release)

    def extend(self, additional_time: Timeout, replace_ttl: bool = False) -> bool:  # type: ignore[override]
        """Add seconds to the time after which the lock is free, and return True.

        Args:
            additional_time: Seconds.
            replace_ttl: Count the seconds from now.

        Raises:
            NotOwnedError: If this thread does not hold the lock any more.
            ValueError: If the lock would be free at once.
        """
        lease, more = self._latest(), finite_ttl_of(additional_time)

        def extend() -> None:
            left = 0.0 if replace_ttl else self.remaining() or 0.0
            self._extend(lease, left + more)

        in_one_transaction(self._store._state, extend)
        return True

    def reacquire(self) -> bool:
        """Restart the timeout of the lock, and return True. Raises NotOwnedError if this thread does
        not hold the lock any more.
        """
        self._extend(self._latest(), self._ttl)
        return True

    def _lost(self) -> NotOwnedError:
        return NotOwnedError(
            "the lock is no longer held: its timeout ended, or its key was deleted or replaced. Use a longer timeout="
        )

    def __reduce__(self) -> Any:
        raise TypeError("a lock of a cache cannot be pickled: call lock() in the other process")


def _wait(timeout: Optional[Timeout]) -> Optional[float]:
    return None if timeout is None else bounded(timeout)
