"""Class Family for asyncio. Each method passes its work to a thread; none uses a store itself.

The methods have one source, :class:`kvstore.Family`: at run time :func:`reads` and :func:`writes`
make each coroutine from the method of the same name, with its signature and its documentation. Only
what differs is written here: iterations, properties, and the signatures for type checkers whose
types depend on the types of the keys and values, which a decorator cannot pass on.
"""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import AsyncIterator, Awaitable, Coroutine, Iterable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Callable, Generic, NoReturn, Optional, Protocol, TypeVar, Union, cast, overload

import kvstore
from kvstore._native import Data, K, V
from kvstore._time import Duration, Moment
from kvstore.aio._batch import Batch, frozen
from kvstore.aio._workers import Job, Worker

if TYPE_CHECKING:
    from typing_extensions import Concatenate, ParamSpec

    from kvstore._codec import Codec

    P = ParamSpec("P")

R = TypeVar("R")
T = TypeVar("T")
#: The type of keys as the caller passed them.
G = TypeVar("G", bound="Data")
#: The type given as ``keys=``.
A = TypeVar("A", str, bytes)

#: The number of rows an iteration reads first, the largest number of rows, and of bytes, of one
#: chunk.
_FIRST_ROWS, _MOST_ROWS, _MOST_BYTES = 16, 512, 1 << 20


class Runner(Protocol):
    """Base class of Store and Transaction: runs the calls of families in worker threads."""

    _has_codec: bool

    def _work(self, write: bool, call: Callable[[Worker], R]) -> Awaitable[R]: ...


def _forward(
    method: Callable[Concatenate[Any, P], R], write: bool, values: tuple[str, ...]
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    name = method.__name__
    _, *parameters = inspect.signature(method).parameters

    @functools.wraps(method)
    async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        names = itertools.chain(parameters, itertools.repeat(""))
        given = [self._copied(arg, parameter, values) for parameter, arg in zip(names, args)]
        named = {parameter: self._copied(arg, parameter, values) for parameter, arg in kwargs.items()}
        result: R = await self._do(write, lambda family: getattr(family, name)(*given, **named))
        return result

    public_class = method.__qualname__.split(".")[0]
    call.__qualname__ = f"{public_class}.{name}"
    call.__module__ = "kvstore.aio"
    first = inspect.cleandoc(method.__doc__ or "").split("\n\n")[0]
    call.__doc__ = f"{first}\n\nA coroutine with the arguments and the result of :meth:`kvstore.{public_class}.{name}`."
    return call


#: The parameters of methods that take values, which a codec encodes.
_VALUES = ("value", "expected")


def reads(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    """Return a coroutine function that calls a method of a family or store in a reading worker."""
    return _forward(method, False, _VALUES)


def writes(
    method: Callable[Concatenate[Any, P], R], values: tuple[str, ...] = _VALUES
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    """Like :func:`reads`, in the writing worker. ``values`` names the parameters that take values."""
    return _forward(method, True, values)


class Family(Generic[K, V]):
    """A family of a store for asyncio: the methods of :class:`kvstore.Family` as coroutines.

    Use ``await db.get(key)`` for ``db[key]``, ``await db.put(key, value)`` for ``db[key] = value``,
    ``contains`` for ``in`` and ``count`` for ``len``. ``async for`` iterates over keys,
    ``values()``, ``items()``, ``rows()`` and ``expiring()``.

    **Cancellation.** A call that is cancelled before it starts does nothing; a started call runs to
    its end. So a cancelled write happened completely or not at all. Writes happen in the order in
    which they were called, including cancelled ones.

    **Errors** are those of the methods of the same names. A codec runs in the worker thread: do not
    change a value until the call returns.

    Created by :meth:`Store.family`. It has no handle of its own, so there is nothing to close.
    """

    __slots__ = ("__weakref__", "_has_codec", "_name", "_options", "_other")

    def __init__(self, runner: Runner, name: str, options: Optional[dict[str, Any]] = None) -> None:
        #: None: this object itself, without a reference cycle.
        self._other: Optional[Runner] = None if runner is cast(object, self) else runner
        self._name = name
        self._options = options or {}
        self._has_codec: bool = self._options["codec"] is not None if "codec" in self._options else runner._has_codec

    @property
    def _runner(self) -> Runner:
        return self if self._other is None else self._other  # type: ignore[return-value] # of a subclass

    def _copied(self, argument: Any, parameter: str, values: tuple[str, ...]) -> Any:
        """Return a copy of an argument of a method, so that the caller may change the argument
        while the call waits.
        """
        if parameter in values:
            return self._frozen(argument)
        if parameter == "keys":
            return _key_list(argument)
        if parameter == "items":
            return self._pairs(argument) if _is_iterable(argument) else argument
        return argument if parameter == "default" else frozen(argument)

    def _pairs(self, items: Union[Mapping[Any, Any], Iterable[tuple[Any, Any]]]) -> list[Any]:
        """Return a copy of an iterable of pairs as a list. The store rejects elements that are not pairs.

        No Python code runs for each pair, unless some are mutable: many pairs would block the event loop.
        """
        pairs: list[Any] = list(items.items() if isinstance(items, Mapping) else items)
        if set(map(type, pairs)) <= {tuple} and not _has_buffers(itertools.chain.from_iterable(pairs)):
            return pairs
        return [self._pair(pair) for pair in pairs]

    def _pair(self, pair: Any) -> Any:
        if isinstance(pair, (str, bytes)) or not hasattr(pair, "__iter__"):
            return pair
        both = tuple(pair)
        return (frozen(both[0]), self._frozen(both[1])) if len(both) == 2 else both

    def _frozen(self, value: Any) -> Any:
        """Return a copy of a mutable buffer, so that the caller may change the buffer.

        With a codec, which may distinguish types, the value is returned unchanged.
        """
        return value if self._has_codec else frozen(value)

    def _do(self, write: bool, call: Callable[[kvstore.Family[Any, Any]], R]) -> Awaitable[R]:
        name, options = self._name, self._options
        return self._runner._work(
            write, lambda worker: worker.with_families(lambda: call(worker.family(name, options)))
        )

    def _memoize_jobs(self) -> FamilyJobs:
        """Return the jobs of :func:`kvstore.memoize` on this family."""
        store: Any = self._runner
        if not hasattr(store, "_current_workers"):
            raise TypeError("memoize needs a store or a family of one, not a transaction: give it the store")
        return FamilyJobs(store, self._name)

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"cannot pickle kvstore.aio.{type(self).__name__}: open the store in each process")

    def __repr__(self) -> str:
        return f"<kvstore.aio.Family {self._name!r}>"

    @property
    def name(self) -> str:
        """The name of the family; ``"default"`` for a store."""
        return self._name

    # One key, and many keys

    if TYPE_CHECKING:

        @overload
        async def get(self, key: Data) -> Optional[V]: ...
        @overload
        async def get(self, key: Data, default: T) -> Union[V, T]: ...
        async def get(self, key: Data, default: Any = None) -> Any: ...

        @overload
        async def pop(self, key: Data) -> V: ...
        @overload
        async def pop(self, key: Data, default: T) -> Union[V, T]: ...
        async def pop(self, key: Data, default: Any = None) -> Any: ...

        @overload
        async def get_and_touch(self, key: Data, ttl: Optional[Duration] = None) -> Optional[V]: ...
        @overload
        async def get_and_touch(self, key: Data, ttl: Optional[Duration], default: T) -> Union[V, T]: ...
        async def get_and_touch(self, key: Data, ttl: Optional[Duration] = None, default: Any = None) -> Any: ...

        async def get_with_ttl(self, key: Data) -> Optional[tuple[V, Optional[float]]]: ...

        # A family without a codec accepts all of Data as values; one with a codec accepts what the
        # codec accepts.

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
        async def put(self, key: Data, value: Any, *args: Any, **options: Any) -> bool: ...

        @overload
        async def add(
            self: Family[Any, bytes], key: Data, value: Data,
            ttl: Optional[Duration] = None, expires_at: Optional[Moment] = None,
        ) -> bool: ...  # fmt: skip
        @overload
        async def add(
            self, key: Data, value: V, ttl: Optional[Duration] = None, expires_at: Optional[Moment] = None
        ) -> bool: ...
        async def add(self, key: Data, value: Any, *args: Any, **options: Any) -> bool: ...

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
        async def compare_and_swap(self, key: Data, expected: Any, value: Any, *args: Any, **options: Any) -> bool: ...

        @overload
        async def compare_and_delete(self: Family[Any, bytes], key: Data, expected: Data) -> bool: ...
        @overload
        async def compare_and_delete(self, key: Data, expected: V) -> bool: ...
        async def compare_and_delete(self, key: Data, expected: Any) -> bool: ...

        async def popitem(self) -> tuple[K, V]: ...
        async def setdefault(
            self, key: Data, default: Union[V, Data],
            ttl: Optional[Duration] = None, expires_at: Optional[Moment] = None,
        ) -> V: ...  # fmt: skip
        async def get_many(self, keys: Iterable[G]) -> dict[G, V]: ...
        async def pop_many(self, keys: Iterable[G]) -> dict[G, V]: ...

    else:
        get = reads(kvstore.Family.get)
        pop = writes(kvstore.Family.pop)
        get_and_touch = writes(kvstore.Family.get_and_touch)
        get_with_ttl = reads(kvstore.Family.get_with_ttl)
        put = writes(kvstore.Family.put)
        add = writes(kvstore.Family.add)
        compare_and_swap = writes(kvstore.Family.compare_and_swap)
        compare_and_delete = writes(kvstore.Family.compare_and_delete)
        popitem = writes(kvstore.Family.popitem)
        setdefault = writes(kvstore.Family.setdefault, values=("default",))
        get_many = reads(kvstore.Family.get_many)
        pop_many = writes(kvstore.Family.pop_many)

    has_key = reads(kvstore.Family.has_key)
    delete = writes(kvstore.Family.delete)
    incr = writes(kvstore.Family.incr)
    decr = writes(kvstore.Family.decr)
    put_many = writes(kvstore.Family.put_many)
    set_many = writes(kvstore.Family.set_many)
    delete_many = writes(kvstore.Family.delete_many)
    delete_range = writes(kvstore.Family.delete_range)
    clear = writes(kvstore.Family.clear)

    async def contains(self, key: Data) -> bool:
        """Return whether the key exists, like ``in`` for :class:`kvstore.Family`."""
        return await self.has_key(key)

    async def update(
        self, other: Union[Mapping[Any, Any], Iterable[tuple[Any, Any]]] = (), /, **values: Union[V, Data]
    ) -> None:
        """Write all pairs of a mapping or iterable, and all keyword arguments, in one transaction.
        """
        given: Any = other
        if not isinstance(other, Mapping) and hasattr(other, "keys"):
            given = {key: given[key] for key in given.keys()}
        await self.put_many(self._pairs(given) + self._pairs(values))

    def batch(self) -> Batch:
        """Return a new batch: it collects writes, which are committed together. See :class:`Batch`.
        """
        return Batch(self)

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
        """Iterate over the live keys of a range, in byte order.

        Some hundred rows are read at a time, each chunk from one snapshot (inside a transaction,
        all from the same). The iteration may be abandoned at any time, and the store may be written
        to meanwhile.

        Args:
            prefix: Only keys that begin with it.
            start: The first key, inclusive.
            stop: The last key, exclusive.
            reverse: Descending order.
            limit: The maximum number of keys; None: all.
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
        """Iterate over the values of a range, in key order. See :meth:`keys`."""
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
        """Iterate over the ``(key, value)`` pairs of a range, in key order. See :meth:`keys`."""
        return self._over(_items, prefix, start, stop, reverse, limit)

    def rows(
        self,
        partition: Data,
        start: Optional[Data] = None,
        stop: Optional[Data] = None,
        reverse: bool = False,
        limit: Optional[int] = None,
    ) -> AsyncIterator[tuple[K, V]]:
        """Iterate over the rows of a partition, as ``(clustering, value)`` pairs.

        See :meth:`kvstore.Family.rows`.
        """
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
                # The last key is read again, because its successor may be too long to be a start
                # key.
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

    count = reads(kvstore.Family.count)

    # Expiry

    ttl = reads(kvstore.Family.ttl)
    expires_at = reads(kvstore.Family.expires_at)
    expire = writes(kvstore.Family.expire)
    touch = writes(kvstore.Family.touch)
    persist = writes(kvstore.Family.persist)
    next_expiry = reads(kvstore.Family.next_expiry)
    purge_expired = writes(kvstore.Family.purge_expired)
    purge_before = writes(kvstore.Family.purge_before)
    write_time = reads(kvstore.Family.write_time)
    sweep = writes(kvstore.Family.sweep)

    async def expiring(
        self, start: Optional[Moment] = None, stop: Optional[Moment] = None
    ) -> AsyncIterator[tuple[K, float]]:
        """Iterate over the keys that have a TTL, with their expiry times, earliest expiry first.

        See :meth:`kvstore.Family.expiring`.

        Some hundred keys are read at a time.
        """
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
        """Return the default TTL of the family in seconds, or None if there is none.

        See :attr:`kvstore.Family.default_ttl`.
        """
        return await self._do(False, lambda family: family.default_ttl)

    async def set_default_ttl(self, ttl: Optional[Duration]) -> None:
        """Set the default TTL of the family: seconds, a ``timedelta``, or None for no default TTL.

        The setting applies to every handle and process.
        """
        await self._do(True, lambda family: setattr(family, "default_ttl", ttl))

    async def write_tracking(self) -> bool:
        """Return whether the family records when each value was written.

        See :attr:`kvstore.Family.write_tracking`.
        """
        return await self._do(False, lambda family: family.write_tracking)

    async def set_write_tracking(self, on: bool) -> None:
        """Turn the recording of write times in the family on or off."""
        await self._do(True, lambda family: setattr(family, "write_tracking", on))


class Families(Family[K, V]):
    """Base class of Store and Transaction: opens families."""

    __slots__ = ()

    async def _work(self, write: bool, call: Callable[[Worker], R]) -> R:
        """Run a call in a worker thread."""
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
        """Open the family ``name`` and return it.

        See :meth:`kvstore.Store.family`. ``codec`` and ``keys`` are those of the store if not
        given.

        A family of a transaction must be used inside it.
        """

        def open_it(worker: Worker) -> None:
            settings: Any = {"default_ttl": default_ttl, "write_tracking": write_tracking, **coding}
            worker.store.family(name, create, **settings).close()

        await self._work(bool(create) or default_ttl is not None or write_tracking is not None, open_it)
        made: Family[Any, Any] = Family(self, name, coding)
        return made


class FamilyJobs:
    """Runs functions on a family, without its codec, in the workers of its store. It is the
    ``Jobs`` of ``_memoize_async``.
    """

    def __init__(self, store: Any, name: str) -> None:
        self._store = store
        self._name = name
        self._options: dict[str, Any] = {"codec": None, "keys": bytes}

    @property
    def closed(self) -> bool:
        return bool(self._store.closed)

    @property
    def busy_timeout(self) -> float:
        return float(self._store._current_workers().settings.busy_timeout)

    def submit(self, write: bool, call: Callable[[kvstore.Family[Any, Any]], R]) -> Future[R]:
        job: Job = self._store._submit(write, self._on_family(call))
        return job.future

    def submit_later(self, call: Callable[[kvstore.Family[Any, Any]], object]) -> None:
        self._store._current_workers().pool(True).submit(Job(self._on_family(call)))

    def _on_family(self, call: Callable[[kvstore.Family[Any, Any]], R]) -> Callable[[Worker], R]:
        name, options = self._name, self._options
        return lambda worker: worker.with_families(lambda: call(worker.family(name, options)))


def _key_list(keys: Iterable[Any]) -> Any:
    """Return a copy of an iterable of keys as a list.

    A single str or bytes, and what is not iterable, is returned unchanged, and rejected by the store.
    """
    if not _is_iterable(keys):
        return keys
    copied = list(keys)
    return [frozen(key) for key in copied] if _has_buffers(copied) else copied


def _is_iterable(argument: Any) -> bool:
    """Return whether an argument is iterable, and no single str or bytes."""
    if isinstance(argument, (str, bytes)):
        return False
    try:
        iter(argument)
    except TypeError:
        return False
    return True


def _has_buffers(values: Iterable[Any]) -> bool:
    """Return whether :func:`frozen` would copy one of the values."""
    return any(issubclass(kind, (bytearray, memoryview)) for kind in set(map(type, values)))


def _keys(family: kvstore.Family[Any, Any], prefix: Optional[Data], **given: Any) -> Iterable[Any]:
    return family.keys(prefix=prefix, **given)


def _items(family: kvstore.Family[Any, Any], prefix: Optional[Data], **given: Any) -> Iterable[Any]:
    return family.items(prefix=prefix, **given)


def _chunk(rows: Iterable[Any], shown: Any, wanted: int) -> tuple[list[Any], bool]:
    """Return the next chunk of up to ``wanted`` rows, and whether more rows may follow.

    The row ``shown``, which was returned already, is left out.
    """
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
