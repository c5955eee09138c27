"""Families for asyncio. Each method gives its work to a thread; none of them touches a store itself."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Callable, Generic, NoReturn, Optional, Protocol, TypeVar, Union, cast, overload

import kvstore
from kvstore._native import Data, K, V
from kvstore._time import Duration, Moment
from kvstore.aio._batch import Batch, frozen
from kvstore.aio._pool import Worker

if TYPE_CHECKING:
    from typing_extensions import Concatenate, ParamSpec

    from kvstore._codec import Codec

    P = ParamSpec("P")

R = TypeVar("R")
T = TypeVar("T")
#: Keys as they were given.
G = TypeVar("G", bound="Data")
#: The type of keys that is asked for.
A = TypeVar("A", str, bytes)

#: No default was given.
_RAISE: Any = object()
#: An iteration reads so many rows at first, then more, up to the last number or so many bytes.
_FIRST_ROWS, _MOST_ROWS, _MOST_BYTES = 16, 512, 1 << 20


class Runner(Protocol):
    """Where the calls of a family go: a store, or a transaction."""

    _coded: bool

    def _work(self, write: bool, call: Callable[[Worker], R]) -> Awaitable[R]: ...


def _method(
    method: Callable[Concatenate[Any, P], R], write: bool
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    name = method.__name__

    @functools.wraps(method)
    async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        given = [self._frozen(arg) for arg in args]
        named = {key: self._frozen(arg) for key, arg in kwargs.items()}
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


class Family(Generic[K, V]):
    """A family of keys: the methods of :class:`kvstore.Family` as coroutines.

    ``await db.get(key)`` and ``await db.put(key, value)`` stand for ``db[key]``, ``contains`` for ``in``, ``count``
    for ``len``; ``async for`` goes over keys, ``items`` and the like.

    A call that is cancelled before its turn has come does nothing; one that has begun goes on to its end. So a
    write that is cancelled has happened as a whole or not at all. Writes happen in the order in which
    they were called, cancelled ones, too. Errors are those of the methods of the same names. Values that go through
    a codec do so in the thread: leave them as they are until the call returns.

    Made by :meth:`Store.family`. It has no handle of its own, so there is nothing to close.
    """

    __slots__ = ("__weakref__", "_coded", "_name", "_options", "_other")

    def __init__(self, runner: Runner, name: str, options: Optional[dict[str, Any]] = None) -> None:
        #: None: this one itself, without a cycle.
        self._other: Optional[Runner] = None if runner is cast(object, self) else runner
        self._name = name
        self._options = options or {}
        self._coded: bool = self._options["codec"] is not None if "codec" in self._options else runner._coded

    @property
    def _runner(self) -> Runner:
        return self if self._other is None else self._other  # type: ignore[return-value] # of a subclass

    def _frozen(self, value: Any) -> Any:
        """A value as it is now, if the caller may change it; not that of a codec, which makes a difference of types."""
        return value if self._coded else frozen(value)

    def _do(self, write: bool, call: Callable[[kvstore.Family[Any, Any]], R]) -> Awaitable[R]:
        name, options = self._name, self._options
        return self._runner._work(
            write, lambda worker: worker.with_families(lambda: call(worker.family(name, options)))
        )

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a kvstore.aio.{type(self).__name__} cannot be pickled: open the store in each process")

    def __repr__(self) -> str:
        return f"<kvstore.aio.Family {self._name!r}>"

    @property
    def name(self) -> str:
        """The name of the family; of a store, ``"default"``."""
        return self._name

    # One key

    @overload
    async def get(self, key: Data) -> Optional[V]: ...
    @overload
    async def get(self, key: Data, default: T) -> Union[V, T]: ...
    async def get(self, key: Data, default: Any = None) -> Any:
        """The value of a key, or ``default`` if there is none."""
        key = frozen(key)
        return await self._do(False, lambda family: family.get(key, default))

    async def contains(self, key: Data) -> bool:
        """Whether a key is there (and alive): the ``in`` of :class:`kvstore.Family`."""
        key = frozen(key)
        return await self._do(False, lambda family: key in family)

    async def has_key(self, key: Data) -> bool:
        """The same as :meth:`contains`."""
        return await self.contains(key)

    @overload
    async def pop(self, key: Data) -> V: ...
    @overload
    async def pop(self, key: Data, default: T) -> Union[V, T]: ...
    async def pop(self, key: Data, default: Any = _RAISE) -> Any:
        """Deletes a key and returns its value; or ``default`` if there is none, or raises NotFoundError."""
        key = frozen(key)
        given = () if default is _RAISE else (default,)
        return await self._do(True, lambda family: family.pop(key, *given))

    @overload
    async def get_and_touch(self, key: Data, ttl: Optional[Duration] = None) -> Optional[V]: ...
    @overload
    async def get_and_touch(self, key: Data, ttl: Optional[Duration], default: T) -> Union[V, T]: ...
    async def get_and_touch(self, key: Data, ttl: Optional[Duration] = None, default: Any = None) -> Any:
        """The value of a key (or ``default``), which lives ``ttl`` from now on, in one step."""
        key = frozen(key)
        return await self._do(True, lambda family: family.get_and_touch(key, ttl, default))

    # A family of bytes takes all of Data as values, one with a codec what the codec takes.

    @overload
    async def put(
        self: Family[Any, bytes], key: Data, value: Data,
        ttl: Optional[Duration] = None, expires_at: Optional[Moment] = None, *,
        keep_ttl: bool = False, if_absent: bool = False, if_present: bool = False,
    ) -> bool: ...  # fmt: skip
    @overload
    async def put(
        self, key: Data, value: V,
        ttl: Optional[Duration] = None, expires_at: Optional[Moment] = None, *,
        keep_ttl: bool = False, if_absent: bool = False, if_present: bool = False,
    ) -> bool: ...  # fmt: skip
    async def put(
        self,
        key: Data,
        value: Any,
        ttl: Optional[Duration] = None,
        expires_at: Optional[Moment] = None,
        *,
        keep_ttl: bool = False,
        if_absent: bool = False,
        if_present: bool = False,
    ) -> bool:
        """Writes a value; says whether it did (False only if a condition did not hold): as
        :meth:`kvstore.Family.put`."""
        name, new = frozen(key), self._frozen(value)
        conditions = {"keep_ttl": keep_ttl, "if_absent": if_absent, "if_present": if_present}
        return await self._do(True, lambda family: family.put(name, new, ttl, expires_at, **conditions))

    @overload
    async def add(
        self: Family[Any, bytes], key: Data, value: Data,
        ttl: Optional[Duration] = None, expires_at: Optional[Moment] = None,
    ) -> bool: ...  # fmt: skip
    @overload
    async def add(
        self, key: Data, value: V, ttl: Optional[Duration] = None, expires_at: Optional[Moment] = None
    ) -> bool: ...
    async def add(
        self, key: Data, value: Any, ttl: Optional[Duration] = None, expires_at: Optional[Moment] = None
    ) -> bool:
        """Writes a value only if the key is missing; says whether it did."""
        name, new = frozen(key), self._frozen(value)
        return await self._do(True, lambda family: family.add(name, new, ttl, expires_at))

    delete = _writes(kvstore.Family.delete)
    incr = _writes(kvstore.Family.incr)
    decr = _writes(kvstore.Family.decr)

    @overload
    async def compare_and_swap(
        self: Family[Any, bytes], key: Data, expected: Data, value: Data,
        ttl: Optional[Duration] = None, expires_at: Optional[Moment] = None,
    ) -> bool: ...  # fmt: skip
    @overload
    async def compare_and_swap(
        self, key: Data, expected: V, value: V,
        ttl: Optional[Duration] = None, expires_at: Optional[Moment] = None,
    ) -> bool: ...  # fmt: skip
    async def compare_and_swap(
        self,
        key: Data,
        expected: Any,
        value: Any,
        ttl: Optional[Duration] = None,
        expires_at: Optional[Moment] = None,
    ) -> bool:
        """Writes a value only if the key is there with the value ``expected``; says whether it did. The TTL the key
        had is replaced, as by put."""
        name, old, new = frozen(key), self._frozen(expected), self._frozen(value)
        return await self._do(True, lambda family: family.compare_and_swap(name, old, new, ttl, expires_at))

    @overload
    async def compare_and_delete(self: Family[Any, bytes], key: Data, expected: Data) -> bool: ...
    @overload
    async def compare_and_delete(self, key: Data, expected: V) -> bool: ...
    async def compare_and_delete(self, key: Data, expected: Any) -> bool:
        """Deletes a key only if its value is ``expected``; says whether it did."""
        name, old = frozen(key), self._frozen(expected)
        return await self._do(True, lambda family: family.compare_and_delete(name, old))

    async def popitem(self) -> tuple[K, V]:
        """Deletes the least key and returns it with its value; NotFoundError if there is none."""
        return await self._do(True, lambda family: family.popitem())

    async def setdefault(
        self, key: Data, default: Union[V, Data], ttl: Optional[Duration] = None, expires_at: Optional[Moment] = None
    ) -> V:
        """The value of a key; if there is none, ``default``, which is written first."""
        name, new = frozen(key), self._frozen(default)
        return await self._do(True, lambda family: family.setdefault(name, new, ttl, expires_at))

    # Many keys. What is given is read before the call waits: it may change afterwards.

    async def get_many(self, keys: Iterable[G]) -> dict[G, V]:
        """The values of those of ``keys`` that are there: as :meth:`kvstore.Family.get_many`."""
        wanted = _several(keys)
        return await self._do(False, lambda family: family.get_many(wanted))

    async def delete_many(self, keys: Iterable[Data]) -> int:
        """Deletes keys in one transaction. Returns how many were there."""
        wanted = _several(keys)
        return await self._do(True, lambda family: family.delete_many(wanted))

    async def pop_many(self, keys: Iterable[G]) -> dict[G, V]:
        """Deletes keys in one transaction and returns the values of those that were there, as get_many does."""
        wanted = _several(keys)
        return await self._do(True, lambda family: family.pop_many(wanted))

    async def put_many(
        self,
        items: Union[Mapping[Any, Any], Iterable[tuple[Any, Any]]],
        ttl: Optional[Duration] = None,
        expires_at: Optional[Moment] = None,
    ) -> int:
        """Writes all pairs of key and value (or of a mapping) in one transaction; returns how many."""
        pairs = self._pairs(items)
        return await self._do(True, lambda family: family.put_many(pairs, ttl, expires_at))

    async def set_many(
        self,
        items: Union[Mapping[Any, Any], Iterable[tuple[Any, Any]]],
        ttl: Optional[Duration] = None,
        expires_at: Optional[Moment] = None,
    ) -> int:
        """The same as :meth:`put_many`."""
        return await self.put_many(items, ttl, expires_at)

    def _pairs(self, items: Union[Mapping[Any, Any], Iterable[tuple[Any, Any]]]) -> list[tuple[Any, Any]]:
        pairs = items.items() if isinstance(items, Mapping) else items
        return [(frozen(key), self._frozen(value)) for key, value in pairs]

    async def update(
        self, other: Union[Mapping[Any, Any], Iterable[tuple[Any, Any]]] = (), /, **values: Union[V, Data]
    ) -> None:
        """Writes all pairs and all keyword arguments, in one transaction."""
        given: Any = other
        if not isinstance(other, Mapping) and hasattr(other, "keys"):
            given = {key: given[key] for key in given.keys()}
        pairs = self._pairs(given) + self._pairs(values)
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
    ) -> AsyncIterator[K]:
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
    ) -> AsyncIterator[V]:
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
    ) -> AsyncIterator[tuple[K, V]]:
        """Pairs of key and value; otherwise as :meth:`keys`."""
        return self._over(_items, prefix, start, stop, reverse, limit)

    def rows(
        self,
        partition: Data,
        start: Optional[Data] = None,
        stop: Optional[Data] = None,
        reverse: bool = False,
        limit: Optional[int] = None,
    ) -> AsyncIterator[tuple[K, V]]:
        """The rows of a partition (see :func:`kvstore.row_key`), as pairs of clustering part and value; otherwise
        as :meth:`items`."""
        part = frozen(partition)

        def rows(family: kvstore.Family[Any, Any], prefix: Any, **given: Any) -> Iterable[Any]:
            return family.rows(part, **given)

        return self._over(rows, None, start, stop, reverse, limit)

    def __aiter__(self) -> AsyncIterator[K]:
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
        prefix, start, stop = frozen(prefix), frozen(start), frozen(stop)
        last: Any = None
        size, left, more = _FIRST_ROWS, limit, True
        while more:
            wanted = size if left is None else min(size, left)

            def read(family: kvstore.Family[Any, Any], wanted: int = wanted) -> tuple[list[Any], bool]:
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

    async def get_with_ttl(self, key: Data) -> Optional[tuple[V, Optional[float]]]:
        """The value of a key and how many seconds it has left (None: it never expires), in one read; None if the
        key is missing."""
        name = frozen(key)
        return await self._do(False, lambda family: family.get_with_ttl(name))

    expires_at = _reads(kvstore.Family.expires_at)
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
    ) -> AsyncIterator[tuple[K, float]]:
        """The keys that expire from ``start`` to before ``stop``, in the order of their expiry, as pairs of key and
        moment: as :meth:`kvstore.Family.expiring`, read some hundred at a time."""
        last: Optional[tuple[float, Any]] = None
        more = True
        while more:

            def read(family: kvstore.Family[Any, Any]) -> tuple[list[Any], bool]:
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


class Families(Family[K, V]):
    """What gives families: a store, or a transaction."""

    __slots__ = ()

    async def _work(self, write: bool, call: Callable[[Worker], R]) -> R:
        """Has something done by a thread."""
        raise NotImplementedError

    @overload
    async def family(
        self, name: str, create: bool = False, *,
        default_ttl: Optional[Duration] = None, write_tracking: Optional[bool] = None,
    ) -> Family[K, V]: ...  # fmt: skip
    @overload
    async def family(
        self, name: str, create: bool = False, *, codec: None,
        default_ttl: Optional[Duration] = None, write_tracking: Optional[bool] = None,
    ) -> Family[K, bytes]: ...  # fmt: skip
    @overload
    async def family(
        self, name: str, create: bool = False, *, codec: Codec[T],
        default_ttl: Optional[Duration] = None, write_tracking: Optional[bool] = None,
    ) -> Family[K, T]: ...  # fmt: skip
    @overload
    async def family(
        self, name: str, create: bool = False, *, keys: type[A],
        default_ttl: Optional[Duration] = None, write_tracking: Optional[bool] = None,
    ) -> Family[A, V]: ...  # fmt: skip
    @overload
    async def family(
        self, name: str, create: bool = False, *, codec: None, keys: type[A],
        default_ttl: Optional[Duration] = None, write_tracking: Optional[bool] = None,
    ) -> Family[A, bytes]: ...  # fmt: skip
    @overload
    async def family(
        self, name: str, create: bool = False, *, codec: Codec[T], keys: type[A],
        default_ttl: Optional[Duration] = None, write_tracking: Optional[bool] = None,
    ) -> Family[A, T]: ...  # fmt: skip
    async def family(
        self,
        name: str,
        create: bool = False,
        *,
        default_ttl: Optional[Duration] = None,
        write_tracking: Optional[bool] = None,
        **coding: Any,
    ) -> Any:
        """A family by its name, with ``codec`` and ``keys`` of its own, if they are given: as
        :meth:`kvstore.Store.family`. One of a transaction is to be used inside it."""

        def open_it(worker: Worker) -> None:
            settings: Any = {"default_ttl": default_ttl, "write_tracking": write_tracking, **coding}
            worker.store.family(name, create, **settings).close()

        await self._work(bool(create) or default_ttl is not None or write_tracking is not None, open_it)
        made: Family[Any, Any] = Family(self, name, coding)
        return made


def _several(keys: Iterable[Any]) -> Any:
    """Keys as they are now; what is no iterable of keys is refused where the store is."""
    return keys if isinstance(keys, (str, bytes)) else [frozen(key) for key in keys]


def _keys(family: kvstore.Family[Any, Any], prefix: Optional[Data], **given: Any) -> Iterable[Any]:
    return family.keys(prefix=prefix, **given)


def _items(family: kvstore.Family[Any, Any], prefix: Optional[Data], **given: Any) -> Iterable[Any]:
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
