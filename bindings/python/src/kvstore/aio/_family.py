"""Families for asyncio. Each method gives its work to a thread; none of them touches a store itself."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Callable, Optional, Protocol, TypeVar, Union, cast, overload

import kvstore
from kvstore._native import Data
from kvstore._time import Duration, Moment
from kvstore.aio._batch import Batch
from kvstore.aio._pool import Worker

if TYPE_CHECKING:
    from typing_extensions import Concatenate, ParamSpec

    P = ParamSpec("P")

R = TypeVar("R")
T = TypeVar("T")
K = TypeVar("K", bound="Data")

#: No default was given.
_RAISE: Any = object()
#: An iteration reads so many rows at first, then more, up to the last number or so many bytes.
_FIRST_ROWS, _MOST_ROWS, _MOST_BYTES = 16, 512, 1 << 20


class Runner(Protocol):
    """Where the calls of a family go: a store, or a transaction."""

    def _work(self, write: bool, call: Callable[[Worker], R]) -> Awaitable[R]: ...


def _frozen(value: Any) -> Any:
    """What the caller may change while a thread reads it, as it is now."""
    return bytes(value) if isinstance(value, (bytearray, memoryview)) else value


def _method(
    method: Callable[Concatenate[Any, P], R], write: bool
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    name = method.__name__

    @functools.wraps(method)
    async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        given = [_frozen(arg) for arg in args]
        named = {key: _frozen(arg) for key, arg in kwargs.items()}
        result: R = await self._do(write, lambda family: getattr(family, name)(*given, **named))
        return result

    call.__qualname__ = f"Family.{name}"
    call.__module__ = "kvstore.aio"
    first = inspect.cleandoc(method.__doc__ or "").split("\n\n")[0]
    call.__doc__ = f"{first}\n\nA coroutine; otherwise as :meth:`kvstore.Family.{name}`."
    return call


def _reads(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    return _method(method, False)


def _writes(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    return _method(method, True)


class Family:
    """A family of keys: the methods of :class:`kvstore.Family` as coroutines.

    ``await db.get(key)`` and ``await db.put(key, value)`` stand for ``db[key]``, ``contains`` for ``in``, ``count``
    for ``len``; ``async for`` goes over keys, ``items`` and the like.

    A call that is cancelled before its turn has come does nothing; one that has begun goes on to its end. So a
    write that is cancelled has happened as a whole or not at all. Writes happen in the order in which
    they were called, cancelled ones, too. Errors are those of the methods of the same names.

    Made by :meth:`Store.family`. It has no handle of its own, so there is nothing to close.
    """

    __slots__ = ("__weakref__", "_name", "_options", "_other")

    def __init__(self, runner: Runner, name: str, options: Optional[dict[str, Any]] = None) -> None:
        #: None: this one itself, without a cycle.
        self._other: Optional[Runner] = None if runner is cast(object, self) else runner
        self._name = name
        self._options = options or {}

    @property
    def _runner(self) -> Runner:
        return self if self._other is None else self._other  # type: ignore[return-value] # of a subclass

    def _do(self, write: bool, call: Callable[[kvstore.Family], R]) -> Awaitable[R]:
        name, options = self._name, self._options
        return self._runner._work(write, lambda worker: call(worker.family(name, options)))

    def __repr__(self) -> str:
        return f"<kvstore.aio.Family {self._name!r}>"

    @property
    def name(self) -> str:
        """The name of the family; of a store, ``"default"``."""
        return self._name

    # One key

    @overload
    async def get(self, key: Data) -> Optional[bytes]: ...
    @overload
    async def get(self, key: Data, default: T) -> Union[bytes, T]: ...
    async def get(self, key: Data, default: Any = None) -> Any:
        """The value of a key, or ``default`` if there is none."""
        key = _frozen(key)
        return await self._do(False, lambda family: family.get(key, default))

    async def contains(self, key: Data) -> bool:
        """Whether a key is there (and alive): the ``in`` of :class:`kvstore.Family`."""
        key = _frozen(key)
        return await self._do(False, lambda family: key in family)

    @overload
    async def pop(self, key: Data) -> bytes: ...
    @overload
    async def pop(self, key: Data, default: T) -> Union[bytes, T]: ...
    async def pop(self, key: Data, default: Any = _RAISE) -> Any:
        """Deletes a key and returns its value; or ``default`` if there is none, or raises NotFoundError."""
        key = _frozen(key)
        given = () if default is _RAISE else (default,)
        return await self._do(True, lambda family: family.pop(key, *given))

    @overload
    async def get_and_touch(self, key: Data, ttl: Optional[Duration] = None) -> Optional[bytes]: ...
    @overload
    async def get_and_touch(self, key: Data, ttl: Optional[Duration], default: T) -> Union[bytes, T]: ...
    async def get_and_touch(self, key: Data, ttl: Optional[Duration] = None, default: Any = None) -> Any:
        """The value of a key (or ``default``), which lives ``ttl`` from now on, in one step."""
        key = _frozen(key)
        return await self._do(True, lambda family: family.get_and_touch(key, ttl, default))

    put = _writes(kvstore.Family.put)
    add = _writes(kvstore.Family.add)
    delete = _writes(kvstore.Family.delete)
    popitem = _writes(kvstore.Family.popitem)
    setdefault = _writes(kvstore.Family.setdefault)
    incr = _writes(kvstore.Family.incr)
    decr = _writes(kvstore.Family.decr)
    compare_and_swap = _writes(kvstore.Family.compare_and_swap)
    compare_and_delete = _writes(kvstore.Family.compare_and_delete)

    # Many keys. What is given is read before the call waits: it may change afterwards.

    async def get_many(self, keys: Iterable[K]) -> dict[K, bytes]:
        """The values of those of ``keys`` that are there: as :meth:`kvstore.Family.get_many`."""
        wanted: Any = keys if isinstance(keys, (str, bytes)) else [_frozen(key) for key in keys]
        return await self._do(False, lambda family: family.get_many(wanted))

    async def put_many(
        self,
        items: Union[Mapping[Any, Any], Iterable[tuple[Any, Any]]],
        ttl: Optional[Duration] = None,
        expire_at: Optional[Moment] = None,
    ) -> int:
        """Writes all pairs of key and value (or of a mapping) in one transaction; returns how many."""
        pairs = [tuple(map(_frozen, pair)) for pair in (items.items() if isinstance(items, Mapping) else items)]
        return await self._do(True, lambda family: family.put_many(pairs, ttl, expire_at))

    async def update(
        self, other: Union[Mapping[Any, Any], Iterable[tuple[Any, Any]]] = (), /, **values: Data
    ) -> None:
        """Writes all pairs and all keyword arguments, in one transaction."""
        given: Any = other
        if not isinstance(other, Mapping) and hasattr(other, "keys"):
            given = {key: given[key] for key in given.keys()}
        pairs = [tuple(map(_frozen, pair)) for pair in (given.items() if isinstance(given, Mapping) else given)]
        pairs += [(key, _frozen(value)) for key, value in values.items()]
        await self._do(True, lambda family: family.put_many(pairs))

    def batch(self) -> Batch:
        """Writes to be committed together, at the end of an ``async with`` block: see :class:`Batch`."""
        return Batch(self)

    clear = _writes(kvstore.Family.clear)
    delete_range = _writes(kvstore.Family.delete_range)

    # Ranges

    def keys(
        self,
        *,
        prefix: Optional[Data] = None,
        start: Optional[Data] = None,
        stop: Optional[Data] = None,
        reverse: bool = False,
        limit: Optional[int] = None,
    ) -> AsyncIterator[bytes]:
        """The live keys from ``start`` to before ``stop`` that begin with ``prefix``, in byte order or in
        ``reverse``, at most ``limit``: for ``async for``.

        It reads some hundred rows at a time, each such chunk a state of one moment (inside a transaction, all of
        them the same); it may be left at any time, and the store may be written to meanwhile.
        """
        return self._over(_keys, prefix, start, stop, reverse, limit)

    async def values(
        self,
        *,
        prefix: Optional[Data] = None,
        start: Optional[Data] = None,
        stop: Optional[Data] = None,
        reverse: bool = False,
        limit: Optional[int] = None,
    ) -> AsyncIterator[bytes]:
        """The values in the order of their keys; otherwise as :meth:`keys`."""
        async for _, value in self._over(_items, prefix, start, stop, reverse, limit):
            yield value

    def items(
        self,
        *,
        prefix: Optional[Data] = None,
        start: Optional[Data] = None,
        stop: Optional[Data] = None,
        reverse: bool = False,
        limit: Optional[int] = None,
    ) -> AsyncIterator[tuple[bytes, bytes]]:
        """Pairs of key and value; otherwise as :meth:`keys`."""
        return self._over(_items, prefix, start, stop, reverse, limit)

    def rows(
        self,
        partition: Data,
        start: Optional[Data] = None,
        stop: Optional[Data] = None,
        reverse: bool = False,
        limit: Optional[int] = None,
    ) -> AsyncIterator[tuple[bytes, bytes]]:
        """The rows of a partition (see :func:`kvstore.row_key`), as pairs of clustering part and value; otherwise
        as :meth:`items`."""
        part = _frozen(partition)

        def rows(family: kvstore.Family, prefix: Any, **given: Any) -> Iterable[tuple[bytes, bytes]]:
            return family.rows(part, **given)

        return self._over(rows, None, start, stop, reverse, limit)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self.keys()

    async def _over(
        self,
        view: Callable[..., Iterable[Any]],
        prefix: Optional[Data],
        start: Optional[Data],
        stop: Optional[Data],
        reverse: bool,
        limit: Optional[int],
    ) -> AsyncIterator[Any]:
        prefix, start, stop = _frozen(prefix), _frozen(start), _frozen(stop)
        last: Any = None
        size, left, more = _FIRST_ROWS, limit, True
        while more:
            wanted = size if left is None else min(size, left)

            def read(family: kvstore.Family, wanted: int = wanted) -> tuple[list[Any], bool]:
                low, high = (start, last) if reverse else (last, stop)
                if last is None:
                    low, high = start, stop
                # A key that was shown is read again where its successor may be too long to be asked for.
                again = last is not None and not reverse
                rows = view(family, prefix, start=low, stop=high, reverse=reverse, limit=wanted + again)
                return _chunk(rows, last if again else None, wanted)

            rows, more = await self._do(False, read)
            for row in rows:
                yield row
            if rows:
                last = rows[-1][0] if isinstance(rows[-1], tuple) else rows[-1]
            if left is not None:
                left -= len(rows)
                more = more and left > 0
            size = min(size * 4, _MOST_ROWS)

    async def count(self, expired: bool = False) -> int:
        """How many live keys there are; with ``expired``, how many rows, expired ones included."""
        return await self._do(False, lambda family: family.count(expired))

    # Expiry

    ttl = _reads(kvstore.Family.ttl)
    get_with_ttl = _reads(kvstore.Family.get_with_ttl)
    expire_time = _reads(kvstore.Family.expire_time)
    expire = _writes(kvstore.Family.expire)
    touch = _writes(kvstore.Family.touch)
    persist = _writes(kvstore.Family.persist)
    purge_expired = _writes(kvstore.Family.purge_expired)
    purge_before = _writes(kvstore.Family.purge_before)
    write_time = _reads(kvstore.Family.write_time)
    sweep = _writes(kvstore.Family.sweep)

    async def next_expiry(self) -> Optional[float]:
        """The earliest moment at which a key of the family expires, in seconds since the Unix epoch; None if no
        key has a TTL."""
        return await self._do(False, lambda family: family.next_expiry())

    async def expiring(
        self, start: Optional[Moment] = None, stop: Optional[Moment] = None
    ) -> AsyncIterator[tuple[bytes, float]]:
        """The keys that expire from ``start`` to before ``stop``, in the order of their expiry, as pairs of key and
        moment: as :meth:`kvstore.Family.expiring`, read some hundred at a time."""
        last: Optional[tuple[float, bytes]] = None
        more = True
        while more:

            def read(family: kvstore.Family) -> tuple[list[Any], bool]:
                rows: list[Any] = []
                for key, moment in family.expiring(start if last is None else last[0], stop):
                    if last is not None and (moment, key) <= last:
                        continue
                    if len(rows) == _MOST_ROWS:
                        return rows, True
                    rows.append((key, moment))
                return rows, False

            rows, more = await self._do(False, read)
            for row in rows:
                yield row
            if rows:
                last = (rows[-1][1], rows[-1][0])

    async def default_ttl(self) -> Optional[float]:
        """The TTL in seconds that writes give which name none; None if there is none."""
        return await self._do(False, lambda family: family.default_ttl)

    async def set_default_ttl(self, ttl: Optional[Duration]) -> None:
        """Sets :meth:`default_ttl`, for every handle and process."""
        await self._do(True, lambda family: setattr(family, "default_ttl", ttl))

    async def write_tracking(self) -> bool:
        """Whether the family remembers when values were written, for write_time and sweep."""
        return await self._do(False, lambda family: family.write_tracking)

    async def set_write_tracking(self, on: bool) -> None:
        """Switches :meth:`write_tracking` on or off."""
        await self._do(True, lambda family: setattr(family, "write_tracking", on))


def _keys(family: kvstore.Family, prefix: Optional[Data], **given: Any) -> Iterable[bytes]:
    return family.keys(prefix=prefix, **given)


def _items(family: kvstore.Family, prefix: Optional[Data], **given: Any) -> Iterable[tuple[bytes, bytes]]:
    return family.items(prefix=prefix, **given)


def _chunk(rows: Iterable[Any], shown: Any, wanted: int) -> tuple[list[Any], bool]:
    """Up to so many rows but the one that was shown; and whether there may be more."""
    chunk: list[Any] = []
    size = 0
    for row in rows:
        pair = isinstance(row, tuple)
        if shown is not None and (row[0] if pair else row) == shown:
            continue
        chunk.append(row)
        if pair and isinstance(row[1], bytes):
            size += len(row[1])
        if len(chunk) == wanted or size > _MOST_BYTES:
            return chunk, True
    return chunk, False
