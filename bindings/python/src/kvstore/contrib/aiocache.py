"""An aiocache cache that is stored in a file.

::

    from aiocache import cached
    from kvstore.contrib.aiocache import KVStoreCache

    @cached(cache=KVStoreCache, path="/var/tmp/site/cache.db", ttl=600)
    async def user(user_id): ...

In the configuration of aiocache::

    caches.set_config({"default": {"cache": "kvstore.contrib.aiocache.KVStoreCache", "path": "cache.db"}})

A TTL of None or 0 means that the key never expires, and a negative one that it expires at once.
"""

from __future__ import annotations

from typing import Any, Callable, Optional, TypeVar

from aiocache.base import BaseCache
from aiocache.serializers import BaseSerializer

import kvstore
from kvstore import Family
from kvstore._path import redacted
from kvstore.contrib._many import put_many
from kvstore.contrib._names import StoredName, name_of, prefix_of
from kvstore.contrib._storage import Storage
from kvstore.contrib._threads import Threads
from kvstore.contrib._values import Values

T = TypeVar("T")


class DataSerializer(BaseSerializer):
    """A serializer of aiocache that encodes values with ``kvstore.DATA``: data types of Python.

    Another value is a TypeError. An int is stored as decimal text.

    Args:
        secret: A long random str or bytes, or a list of it and older ones: any object can be
            stored, as a pickle that is signed with the secret. Unsigned values are not unpickled.
    """

    DEFAULT_ENCODING = None

    def __init__(self, secret: Any = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._values = Values(None, secret)

    def dumps(self, value: Any) -> Any:
        return self._values.dumps(value)

    def loads(self, value: Optional[bytes]) -> Any:
        return None if value is None else self._values.loads(value)


class KVStoreCache(BaseCache):
    """An aiocache cache in a family of a file. All event loops, threads and processes may use it.

    ``add``, ``increment``, ``multi_set``, ``multi_get``, and aiocache's locks, are atomic for all
    processes. ``increment`` keeps the TTL of the key. ``clear`` without a namespace clears that of
    the cache, or the family if it has none. ``raw`` calls a method of :class:`kvstore.Family`.

    Args:
        path: The file, created with missing directories; ":memory:" for a cache in memory.
        family: The family of the file.
        serializer: A serializer of aiocache; by default :class:`DataSerializer`. With aiocache's
            PickleSerializer, anyone who can write to the file can run code in this process.
        secret: The ``secret`` of the default serializer.
        plugins: As for every cache of aiocache.
        namespace: Added before each key.
        key_builder: As for every cache of aiocache.
        timeout: Seconds after which a call raises ``asyncio.TimeoutError``; None or 0: never. A
            write that has begun is completed all the same. The ``busy_timeout`` is a third of it by
            default, at most 5 seconds, so that a busy store fails before.
        ttl: The default TTL in seconds.
        options: Settings of :func:`kvstore.open`; ``max_bytes`` and ``policy`` of ``Store.limit``;
            ``ignore_errors``: whether a read that fails counts as a miss, and a failed
            ``increment`` or ``expire`` is only logged. By default they raise :exc:`kvstore.Error`.

    A failed ``set`` or ``multi_set`` is logged. A failed ``add`` is too, and returns True, so that a
    lock that cannot be stored counts as acquired.
    """

    NAME = "kvstore"

    def __init__(
        self,
        path: Any,
        *,
        family: str = "aiocache",
        serializer: Optional[Any] = None,
        secret: Any = None,
        plugins: Optional[Any] = None,
        namespace: Optional[str] = None,
        key_builder: Optional[Callable[..., Any]] = None,
        timeout: Optional[float] = 5,
        ttl: Optional[float] = None,
        **options: Any,
    ) -> None:
        if serializer is not None and secret is not None:
            raise TypeError("serializer= and secret= cannot both be set: give one of them")
        super().__init__(
            serializer=DataSerializer(secret) if serializer is None else serializer,
            plugins=plugins, namespace=namespace, key_builder=key_builder, timeout=timeout, ttl=ttl,
        )  # fmt: skip
        if timeout:
            options.setdefault("busy_timeout", min(timeout / 3, 5.0))  # a write may wait twice: see Threads
        self._storage = Storage(path, family, options)
        self._threads = Threads(self._storage)

    async def _read(self, work: Callable[[Family], T], missing: T) -> T:
        return await self._threads.read(lambda: self._storage.read(work, missing))

    async def _keep(self, work: Callable[[Family], T], names: list[Any], not_kept: T) -> T:
        return await self._threads.write(lambda: self._storage.keep(work, names, not_kept))

    async def _write(self, work: Callable[[Family], T], not_written: T) -> T:
        return await self._threads.write(lambda: self._storage.write(work, (), not_written))

    async def _get(self, key: Any, encoding: Optional[str] = "utf-8", _conn: Any = None) -> Any:
        name = name_of(key)
        return _decoded(await self._read(lambda family: family.get(name), None), encoding)

    async def _gets(self, key: Any, encoding: Optional[str] = "utf-8", _conn: Any = None) -> Any:
        return await self._get(key, self.serializer.encoding)

    async def _multi_get(self, keys: list[Any], encoding: Optional[str] = "utf-8", _conn: Any = None) -> list[Any]:
        none: dict[StoredName, bytes] = {}
        names = [name_of(key) for key in keys]
        found = await self._read(lambda family: family.get_many(names), none)
        return [_decoded(found.get(name), encoding) for name in names]

    async def _set(
        self, key: Any, value: Any, ttl: Optional[float] = None, _cas_token: Any = None, _conn: Any = None
    ) -> Any:
        name, data = name_of(key), _bytes(value)
        expired, seconds = ttl is not None and ttl < 0, ttl or kvstore.FOREVER
        if _cas_token is None:
            await self._keep(
                lambda family: family.delete(name) if expired else family.put(name, data, ttl=seconds), [name], False
            )
            return True
        before = _bytes(_cas_token)

        def swap(family: Family) -> bool:
            if expired:
                return family.compare_and_delete(name, before)
            return family.compare_and_swap(name, before, data, ttl=seconds)

        return await self._keep(swap, [], True)

    async def _multi_set(self, pairs: Any, ttl: Optional[float] = None, _conn: Any = None) -> bool:
        items = {name_of(key): _bytes(value) for key, value in pairs}

        def put(family: Family) -> None:
            if ttl is not None and ttl < 0:
                family.delete_many(items)
            else:
                put_many(self._storage, family, items, ttl or kvstore.FOREVER)

        await self._keep(put, list(items), None)
        return True

    async def _add(self, key: Any, value: Any, ttl: Optional[float] = None, _conn: Any = None) -> bool:
        name, data = name_of(key), _bytes(value)

        def add(family: Family) -> bool:
            if ttl is not None and ttl < 0:
                return not family.has_key(name)
            return family.add(name, data, ttl=ttl or kvstore.FOREVER)

        if not await self._keep(add, [], True):
            raise ValueError(f"Key {key} already exists, use .set to update the value")
        return True

    async def _exists(self, key: Any, _conn: Any = None) -> bool:
        name = name_of(key)
        return await self._read(lambda family: family.has_key(name), False)

    async def _increment(self, key: Any, delta: int, _conn: Any = None) -> int:
        name = name_of(key)

        def increment(family: Family) -> int:
            try:
                return family.incr(name, delta, kvstore.FOREVER)
            except ValueError:
                raise TypeError("Value is not an integer") from None

        return await self._write(increment, delta)

    async def _expire(self, key: Any, ttl: float, _conn: Any = None) -> bool:
        name = name_of(key)

        def expire(family: Family) -> bool:
            if ttl < 0:
                return family.delete(name)
            return family.expire(name, ttl) if ttl else family.persist(name) or family.has_key(name)

        return await self._write(expire, False)

    async def _delete(self, key: Any, _conn: Any = None) -> int:
        name = name_of(key)
        return int(await self._threads.write(lambda: self._storage.read(lambda family: family.delete(name), False)))

    async def _clear(self, namespace: Optional[str] = None, _conn: Any = None) -> bool:
        prefix = self.namespace if namespace is None else namespace
        if prefix:
            await self._threads.write(
                lambda: self._storage.call(lambda family: family.delete_range(prefix=prefix_of(prefix)))
            )
        else:
            await self._threads.write(self._storage.clear)
        return True

    async def _raw(
        self, command: str, *args: Any, encoding: Optional[str] = "utf-8", _conn: Any = None, **kwargs: Any
    ) -> Any:
        if command.startswith("_"):
            raise ValueError(f"raw() calls a method of kvstore.Family, and {command!r} is none")
        result = await self._threads.write(
            lambda: self._storage.call(lambda family: getattr(family, command)(*args, **kwargs))
        )
        return _decoded(result, encoding) if isinstance(result, bytes) else result

    async def _redlock_release(self, key: Any, value: Any) -> int:
        name, data = name_of(key), _bytes(value)
        return int(await self._keep(lambda family: family.compare_and_delete(name, data), [], False))

    async def _close(self, *args: Any, _conn: Any = None, **kwargs: Any) -> None:
        await self._threads.close(self._storage.close)

    def __repr__(self) -> str:
        return f"KVStoreCache ({redacted(self._storage.path)})"


def _bytes(value: Any) -> bytes:
    """Return what a serializer has returned as bytes: a number becomes decimal text."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, int) and not isinstance(value, bool):
        return b"%d" % value
    raise TypeError(
        f"the serializer returned a value of the type {type(value).__name__}, and a file contains str and bytes: give "
        "no serializer, or one that returns these"
    )


def _decoded(value: Optional[bytes], encoding: Optional[str]) -> Any:
    return value if value is None or encoding is None else value.decode(encoding, "replace")
