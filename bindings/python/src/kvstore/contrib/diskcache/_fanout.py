"""The class FanoutCache."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any, Callable, Optional, TypeVar, Union, cast

from kvstore.contrib.diskcache._base import Timeout
from kvstore.contrib.diskcache._cache import Cache
from kvstore.contrib.diskcache._disk import Disk
from kvstore.contrib.diskcache._persistent import Deque, Index

F = TypeVar("F", bound=Callable[..., Any])


def _returning(result: Any, method: F) -> F:
    """Return a method that returns ``result`` where ``method`` raises :exc:`Timeout`."""

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return method(*args, **kwargs)
        except Timeout:
            return result

    return cast(F, call)


def _returning_default(method: F) -> F:
    """Return a method that returns its argument ``default`` where ``method`` raises :exc:`Timeout`."""

    @functools.wraps(method)
    def call(self: Any, key: Any, default: Any = None, *args: Any, **kwargs: Any) -> Any:
        return _returning(default, method)(self, key, default, *args, **kwargs)

    return cast(F, call)


class FanoutCache(Cache):
    """A cache whose methods on single keys return a failure instead of raising :exc:`Timeout`.

    diskcache distributes the keys of this class over several databases, so that writers do not wait
    for each other. Here the cache is one file.

    Args:
        directory: As for :class:`Cache`.
        shards: Accepted and not used.
        timeout: Seconds that a call waits for other writers before it gives up.
        disk: As for :class:`Cache`.
        settings: As for :class:`Cache`. ``size_limit`` is the limit of the whole cache.

    With ``retry=False``, the default of most methods: ``set``, ``add``, ``touch`` and ``delete``
    return False, ``get`` and ``pop`` their default, and ``incr`` and ``decr`` None, if the store
    stays locked. ``clear``, ``evict``, ``expire``, ``cull``, ``read`` and ``transact`` wait until
    other writers are done. ``push``, ``pull``, ``peek``, ``peekitem`` and ``check`` raise
    :exc:`Timeout`.
    """

    def __init__(
        self,
        directory: Union[str, Path, None] = None,
        shards: int = 8,
        timeout: float = 1.0,
        disk: type[Disk] = Disk,
        **settings: Any,
    ) -> None:
        self._shards = shards
        self._caches: dict[str, Cache] = {}
        self._deques: dict[str, Deque] = {}
        self._indexes: dict[str, Index] = {}
        super().__init__(directory, timeout, disk, **settings)

    def transact(self, retry: bool = True) -> Any:
        """Return a ``with`` block whose writes are committed together: see :meth:`Cache.transact`."""
        return super().transact(retry)

    set = _returning(False, Cache.set)
    add = _returning(False, Cache.add)
    touch = _returning(False, Cache.touch)
    delete = _returning(False, Cache.delete)
    incr = _returning(None, Cache.incr)
    get = _returning_default(Cache.get)
    pop = _returning_default(Cache.pop)

    def read(self, key: Any, retry: bool = True) -> Any:
        """Return a large value that is bytes as a file, and any other value as it is. Always waits."""
        return super().read(key, True)

    # The methods that remove many entries wait for other writers, whatever `retry` is.

    def evict(self, tag: Any, retry: bool = False) -> int:
        """Remove all entries with a tag, and return how many there were. Always waits."""
        return super().evict(tag, True)

    def expire(self, now: Optional[float] = None, retry: bool = False) -> int:
        """Remove expired entries from the file, as :meth:`Cache.expire` does. Always waits."""
        return super().expire(now, True)

    def cull(self, retry: bool = False) -> int:
        """Remove entries by the eviction policy, as :meth:`Cache.cull` does. Always waits."""
        return super().cull(True)

    def clear(self, retry: bool = False) -> int:
        """Remove all entries, and return how many there were. Always waits."""
        return super().clear(True)

    def cache(self, name: str, timeout: float = 60, disk: Optional[type[Disk]] = None, **settings: Any) -> Cache:
        """Return the cache ``name``, which is stored in a directory below this one.

        Args:
            name: Its name. Parts that are separated by "/" become directories.
            timeout, disk, settings: As for :class:`Cache`; ``disk`` None: that of this cache.
        """
        found = self._caches.get(name)
        if found is None:
            directory = self._directory_of("cache", name)
            disk = type(self._disk) if disk is None else disk
            settings.setdefault("serializer", self._serializer)
            found = self._caches[name] = Cache(directory, timeout, disk, **settings)
        return found

    def deque(self, name: str, maxlen: Optional[float] = None) -> Deque:
        """Return the deque ``name``, which is stored in a directory below this one."""
        found = self._deques.get(name)
        if found is None:
            cache = self._persistent("deque", name)
            found = self._deques[name] = Deque.fromcache(cache, maxlen=maxlen)
        return found

    def index(self, name: str) -> Index:
        """Return the index ``name``, which is stored in a directory below this one."""
        found = self._indexes.get(name)
        if found is None:
            found = self._indexes[name] = Index.fromcache(self._persistent("index", name))
        return found

    def _persistent(self, kind: str, name: str) -> Cache:
        return Cache(
            self._directory_of(kind, name),
            disk=type(self._disk),
            serializer=self._serializer,
            eviction_policy="none",
        )

    def _directory_of(self, kind: str, name: str) -> str:
        if not isinstance(name, str):
            raise TypeError(f"name must be str, not {name!r}: give a name, or names separated by '/'")
        parts = name.split("/")
        if not all(parts) or any(part in (".", "..") for part in parts):
            raise ValueError(f"invalid name {name!r}: give a name, or names separated by '/'")
        return os.path.join(self._directory, kind, *parts)

    def __getstate__(self) -> tuple[Any, ...]:
        return self._directory, self._shards, self._timeout, type(self._disk)

    def close(self) -> None:
        """Close this cache and those below it. The next call opens them again."""
        for below in self._caches.values():
            below.close()
        for persistent in (*self._deques.values(), *self._indexes.values()):
            persistent.cache.close()
        super().close()
