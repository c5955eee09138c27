"""A backend for dogpile.cache: a region in a file, with locks shared by all processes.

::

    from dogpile.cache import make_region

    region = make_region().configure(
        "kvstore", expiration_time=3600, arguments={"path": "/var/tmp/site/cache.db", "distributed_lock": True}
    )

The name ``kvstore`` is an entry point of this package; ``import kvstore.contrib.dogpile`` is not
needed.

Arguments:

- ``path``: the file, created with missing directories; ":memory:" for a region in memory.
- ``family``: the family of the file; by default ``dogpile``.
- ``ttl``: seconds after which a key expires; None, 0, or 10,000 years or more: never. It should be longer than the
  region's ``expiration_time``, after which dogpile recomputes a value while it still returns the
  old one.
- ``distributed_lock``: whether only one process computes a value while the others wait, or one
  thread in each process.
- ``lock_timeout``: seconds until the lock of a dead process is free again; by default 60. A live
  process renews its lock.
- ``max_bytes``, ``policy``: the size limit of the file, see ``Store.limit``; and settings of
  :func:`kvstore.open`.
- ``serializer``: an object with ``dumps`` and ``loads`` for the values of the region; by default
  ``kvstore.DATA``: data types of Python, and other values are a TypeError. With ``pickle`` any object
  can be stored, and anyone who can write to the file can run code in this process.
- ``secret``: a long random str or bytes, or a list of it and older ones: any object can be stored, as
  a pickle that is signed with the secret. Unsigned values are not unpickled.
- ``ignore_errors``: whether a read that fails counts as a miss; by default it raises
  :exc:`kvstore.Error`. A write that fails is always ignored and logged.

Other arguments are ignored, as dogpile requires.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Optional

from dogpile.cache import register_backend
from dogpile.cache.api import NO_VALUE, BytesBackend, CacheMutex, CantDeserializeException

import kvstore
from kvstore.contrib._many import put_many
from kvstore.contrib._names import StoredName, name_of
from kvstore.contrib._storage import STORAGE_OPTIONS, Storage
from kvstore.contrib._timeouts import bounded, finite_ttl_of
from kvstore.contrib._values import Values
from kvstore.recipes import Lock, NotOwnedError
from kvstore.recipes._base import Backoff

_UNREADABLE = object()


class KVStoreBackend(BytesBackend):
    """A dogpile.cache backend that stores a region in a file. The module describes its arguments.
    """

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        path = arguments.get("path")
        if not path:
            raise ValueError("the region has no path: give arguments={\"path\": ...}, the path of a file")
        self.ttl = bounded(arguments.get("ttl") or kvstore.FOREVER)
        self.distributed_lock = bool(arguments.get("distributed_lock", False))
        self.lock_timeout = finite_ttl_of(arguments.get("lock_timeout", 60))
        family = arguments.get("family", "dogpile")
        self._values = Values(arguments.get("serializer"), arguments.get("secret"))
        settings = {k: v for k, v in arguments.items() if k in STORAGE_OPTIONS}
        self._storage = Storage(path, family, settings)
        self._locks = Storage(path, f"{family}_locks", settings)

    def serializer(self, value: Any) -> bytes:
        data = self._values.dumps(value)
        return data.encode() if isinstance(data, str) else data

    def deserializer(self, data: bytes) -> Any:
        value = self._values.loads(data, _UNREADABLE)
        if value is _UNREADABLE:
            raise CantDeserializeException  # dogpile computes the value again
        return value

    def get_mutex(self, key: str) -> Optional[Mutex]:
        if not self.distributed_lock:
            return None
        return Mutex(self._locks, name_of(key), self.lock_timeout)

    def get_serialized(self, key: str) -> Any:
        name = name_of(key)
        return self._storage.read(lambda family: family.get(name, NO_VALUE), NO_VALUE)

    def get_serialized_multi(self, keys: Sequence[str]) -> list[Any]:
        none: dict[StoredName, bytes] = {}
        names = [name_of(key) for key in keys]
        found = self._storage.read(lambda family: family.get_many(names), none)
        return [found.get(name, NO_VALUE) for name in names]

    def set_serialized(self, key: str, value: bytes) -> None:
        name = name_of(key)
        self._storage.keep(lambda family: family.put(name, value, ttl=self.ttl), [name], False)

    def set_serialized_multi(self, mapping: Mapping[str, bytes]) -> None:
        items = {name_of(key): value for key, value in mapping.items()}
        self._storage.keep(lambda family: put_many(self._storage, family, items, self.ttl), items, None)

    def delete(self, key: str) -> None:
        self._storage.read(lambda family: family.delete(name_of(key)), False)

    def delete_multi(self, keys: Sequence[str]) -> None:
        names = [name_of(key) for key in keys]
        self._storage.read(lambda family: family.delete_many(names), 0)


class Mutex(CacheMutex):
    """A lock on one key for all threads and processes, with the interface that dogpile expects.

    It is a :class:`kvstore.recipes.Lock`. If the store fails, the failure is logged, and the lock
    counts as acquired: the caller then computes the value, perhaps at the same time as another
    process.
    """

    def __init__(self, storage: Storage, key: StoredName, ttl: float) -> None:
        self._storage = storage
        self._key = key
        self._ttl = ttl
        #: The lock in the store that was open at its last use.
        self._lock: Optional[Lock] = None

    def _opened(self) -> Lock:
        """Return the lock in the store that is open now: another one after a fork, or if the file was
        replaced.
        """
        store, lock = self._storage.store(), self._lock
        if lock is None or lock._store is not store:
            lock = self._lock = Lock(
                store, self._key, ttl=self._ttl, renew=True, thread_local=False, family=self._storage.name
            )
        return lock

    def acquire(self, wait: bool = True) -> bool:
        """Acquire the lock, and return whether it was acquired. With ``wait``, wait until it is
        free.
        """
        backoff = Backoff(None)
        while not self._storage.keep(lambda _: self._opened().acquire(blocking=False), (), True):
            if not wait:
                return False
            backoff.wait()
        return True

    def release(self) -> None:
        """Release the lock, if this object still holds it.

        Its TTL can only have ended if the process was suspended for that long; another process may
        then hold the lock.
        """
        lock = self._lock
        if lock is None:
            return
        try:
            lock.release()
        except NotOwnedError:
            pass
        except kvstore.Error as error:
            for lease in lock._leases()[-1:]:
                lock._forget(lease)  # it is not renewed any more, so its TTL ends it
            self._storage.ignore(error)

    def locked(self) -> bool:
        """Return whether any thread or process holds the lock."""
        return self._storage.keep(lambda _: self._opened().locked(), (), False)


register_backend("kvstore", __name__, "KVStoreBackend")
