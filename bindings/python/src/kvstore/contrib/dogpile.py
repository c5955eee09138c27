"""A backend for dogpile.cache: a region in a file, with locks for all processes.

::

    from dogpile.cache import make_region

    region = make_region().configure(
        "kvstore", expiration_time=3600, arguments={"path": "/var/tmp/site/cache.db", "distributed_lock": True}
    )

The name ``kvstore`` is an entry point of this package; ``import kvstore.contrib.dogpile`` is not needed.

Arguments:

- ``path`` of the file, which is made with the directories that are missing; ":memory:" for one in memory. ``family``: the family of the file; ``dogpile``.
- ``ttl``: after how many seconds a key is removed. Let it be longer than the region's ``expiration_time``, after
  which dogpile makes the value anew and meanwhile gives out the old one; None (and 0): never.
- ``distributed_lock``: whether one process makes a value while the others wait, or only one thread of each does.
  ``lock_timeout``: after how many seconds the lock of a process that has died is open again (60). One that lives
  renews its lock as long as it needs.
- ``max_bytes``, ``policy``: a bound of the file: see ``Store.limit``; and settings of :func:`kvstore.open`.

Others are not looked at: dogpile's rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Optional

from dogpile.cache import register_backend
from dogpile.cache.api import NO_VALUE, BytesBackend, CacheMutex

import kvstore
from kvstore.contrib._places import PLACE_OPTIONS, Place
from kvstore.recipes import Lock, NotOwnedError


class KVStoreBackend(BytesBackend):
    """See the module."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        path = arguments.get("path")
        if not path:
            raise ValueError("the arguments of a region in kvstore need a path")
        self.ttl = arguments.get("ttl") or kvstore.FOREVER
        self.distributed_lock = bool(arguments.get("distributed_lock", False))
        self.lock_timeout = arguments.get("lock_timeout", 60)
        family = arguments.get("family", "dogpile")
        settings = {k: v for k, v in arguments.items() if k in PLACE_OPTIONS}
        self._place = Place(path, family, settings)
        self._locks = Place(path, f"{family}_locks", settings)

    def get_mutex(self, key: str) -> Optional[Mutex]:
        if not self.distributed_lock:
            return None
        ttl, family = self.lock_timeout, self._locks.name
        return Mutex(Lock(self._locks.store(), key, ttl=ttl, renew=True, thread_local=False, family=family))

    def get_serialized(self, key: str) -> Any:
        return self._place.family().get(key, NO_VALUE)

    def get_serialized_multi(self, keys: Sequence[str]) -> list[Any]:
        found = self._place.family().get_many(keys)
        return [found.get(key, NO_VALUE) for key in keys]

    def set_serialized(self, key: str, value: bytes) -> None:
        self._place.family().put(key, value, ttl=self.ttl)

    def set_serialized_multi(self, mapping: Mapping[str, bytes]) -> None:
        self._place.family().put_many(mapping, ttl=self.ttl)

    def delete(self, key: str) -> None:
        self._place.family().delete(key)

    def delete_multi(self, keys: Sequence[str]) -> None:
        self._place.family().delete_many(keys)


class Mutex(CacheMutex):
    """The lock of a key for all threads and processes: a :class:`kvstore.recipes.Lock`, as dogpile calls it."""

    def __init__(self, lock: Lock) -> None:
        self._lock = lock

    def acquire(self, wait: bool = True) -> bool:
        """Takes the lock, and waits for it if ``wait``; says whether it has it."""
        return self._lock.acquire(blocking=wait)

    def release(self) -> None:
        """Opens the lock, if this object still has it: after its time, which can only be over if the process stood
        still for so long, it may be another's."""
        try:
            self._lock.release()
        except NotOwnedError:
            pass

    def locked(self) -> bool:
        """Whether anybody has it."""
        return self._lock.locked()


register_backend("kvstore", __name__, "KVStoreBackend")
