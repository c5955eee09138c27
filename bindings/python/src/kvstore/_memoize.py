"""memoize: results of a function, kept in a store.

A result is under ``module.qualname:=digest``, where the digest is of the arguments. Whoever computes one
holds a lease, the key ``module.qualname:~digest``, with a TTL; others wait for it to go. Uses public
methods of families only (and no codec).
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import inspect
import io
import os
import pickle
import struct
import threading
import time
import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Optional, TypeVar

from kvstore._family import Family
from kvstore._time import Duration, duration_ms, ttl_ms

if TYPE_CHECKING:
    from typing import Protocol

    from typing_extensions import ParamSpec

    P = ParamSpec("P")
    R = TypeVar("R", covariant=True)

    class Memoized(Protocol[P, R]):
        """A function whose results are kept."""

        __wrapped__: Callable[..., Any]

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...
        def cache_key(self, *args: P.args, **kwargs: P.kwargs) -> bytes: ...
        def cache_clear(self) -> int: ...
        def cache_info(self) -> CacheInfo: ...


_FIRST_WAIT, _LONGEST_WAIT = 0.001, 0.05

#: Told whenever a computation of this process has ended.
_ended = threading.Condition()
#: For the counts of hits and misses.
_counting = threading.Lock()
#: What this thread is computing.
_mine = threading.local()


def _after_fork() -> None:
    global _ended, _counting
    _ended, _counting = threading.Condition(), threading.Lock()  # threads that the child has not may have had them


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class CacheInfo(NamedTuple):
    """How a memoized function fared."""

    #: Calls of this process that found a result.
    hits: int
    #: Calls of this process that computed one.
    misses: int
    #: Results in the store, of all processes.
    currsize: int


def memoize(
    store: Family[Any, Any],
    ttl: Optional[Duration] = None,
    *,
    name: Optional[str] = None,
    typed: bool = False,
    ignore: Iterable[str] = (),
    serializer: Any = pickle,
    lease: Duration = 60.0,
) -> Callable[[Callable[P, R]], Memoized[P, R]]:
    """A decorator that keeps the results of a function in a store or family, by its arguments.

    A result is computed by one caller at a time, over all threads and processes that use the file:
    the others wait for it. If the one that computes dies, another begins when its ``lease`` is over, so
    a lease must be longer than a computation takes: a result that comes later is returned but not
    kept. An exception is not kept. A call that the function makes of itself with the same arguments
    is computed.

    - ``ttl``: how long results live; None: the family's default TTL, or for ever.
    - ``name``: what the keys begin with; by default the module and qualified name of the function.
    - ``typed``: whether equal arguments of different types (1, 1.0 and True) have results of their own.
    - ``ignore``: names of parameters that make no difference, such as "self".
    - ``serializer``: an object with ``dumps`` and ``loads``, such as pickle, json or marshal. With
      pickle, whoever can write to the file can run code in this process.

    How arguments are passed, by place, name or default, makes no difference. Numbers, text, bytes, None
    and containers of them are told apart by value; other objects by their pickle, so they must have
    one, and the same one in each process.

    The decorated function has ``cache_clear()`` (forgets all results, and returns how many there
    were), ``cache_info()``, ``cache_key(*args)`` (where the result is kept) and ``__wrapped__``.

    >>> db = kvstore.open(":memory:")
    >>> @kvstore.memoize(db, ttl=60)
    ... def square(x):
    ...     print("computing")
    ...     return x * x
    >>> square(3), square(x=3)
    computing
    (9, 9)
    """
    if not isinstance(store, Family):
        raise TypeError(f"memoize needs a store or a family, not {type(store).__name__}")
    if duration_ms(lease, "a lease") == 0:
        raise ValueError("a lease must be positive")
    if ttl is not None:
        ttl_ms(ttl)  # a bad one is told here, not at the first result
    ignored = frozenset((ignore,) if isinstance(ignore, str) else ignore)
    plain = store._plain()  # results are the serializer's, and not the codec's

    def decorate(function: Callable[P, R]) -> Memoized[P, R]:
        if asyncio.iscoroutinefunction(function):
            raise TypeError("memoize keeps results, and the result of a coroutine function is no value")
        made: Memoized[P, R] = _memoized(function, plain, ttl, name, typed, ignored, serializer, lease)
        return made

    return decorate


def _memoized(
    function: Any,
    store: Family[Any, Any],
    ttl: Optional[Duration],
    name: Optional[str],
    typed: bool,
    ignored: frozenset[str],
    serializer: Any,
    lease: Duration,
) -> Any:
    prefix = (name if name is not None else f"{function.__module__}.{function.__qualname__}").encode() + b":"
    signature = inspect.signature(function)
    unknown = ignored - set(signature.parameters)
    if unknown:
        raise ValueError(f"{function!r} has no parameter {', '.join(sorted(unknown))}")
    counts = {"hits": 0, "misses": 0}

    def count(what: str) -> None:
        with _counting:
            counts[what] += 1

    def digest(args: Any, kwargs: Any) -> bytes:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = {key: value for key, value in bound.arguments.items() if key not in ignored}
        return hashlib.sha256(_canonical(given, typed)).digest()

    def cache_key(*args: Any, **kwargs: Any) -> bytes:
        return prefix + b"=" + digest(args, kwargs)

    def find(key: bytes) -> Any:
        """A list of the result, or an empty one."""
        kept = store.get(key)
        if kept is not None:
            try:
                return [serializer.loads(kept)]
            except Exception:  # noqa: BLE001 # another version's, or damaged: compute it anew
                store.compare_and_delete(key, kept)
        return []

    def compute(key: bytes, lease_key: bytes, token: bytes, args: Any, kwargs: Any) -> Any:
        mine = _mine.__dict__.setdefault("leases", set())
        mine.add((id(store), lease_key))
        try:
            found = find(key)  # it may have come while the lease was taken
            if found:
                count("hits")
                return found[0]
            count("misses")
            result = function(*args, **kwargs)
            # Whoever has lost the lease (it took too long, or the results were cleared) keeps nothing.
            if store.get(lease_key) == token:
                store.put(key, serializer.dumps(result), ttl)
            return result
        finally:
            mine.discard((id(store), lease_key))
            try:
                store.compare_and_delete(lease_key, token)
            finally:
                with _ended:
                    _ended.notify_all()

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        arguments = digest(args, kwargs)
        key, lease_key = prefix + b"=" + arguments, prefix + b"~" + arguments
        wait = _FIRST_WAIT
        token = uuid.uuid4().bytes
        while True:
            found = find(key)
            if found:
                count("hits")
                return found[0]
            if (id(store), lease_key) in getattr(_mine, "leases", ()):
                return function(*args, **kwargs)
            if store.add(lease_key, token, lease):
                return compute(key, lease_key, token, args, kwargs)
            with _ended:
                _ended.wait(wait)
            wait = min(wait * 2, _LONGEST_WAIT)

    def cache_clear() -> int:
        """Forgets all results of the function, also those that are being computed."""
        cleared = store.delete_range(prefix=prefix + b"=")
        store.delete_range(prefix=prefix + b"~")
        return cleared

    def cache_info() -> CacheInfo:
        with _counting:
            return CacheInfo(counts["hits"], counts["misses"], len(store.keys(prefix=prefix + b"=")))

    wrapper.cache_key = cache_key  # type: ignore[attr-defined]
    wrapper.cache_clear = cache_clear  # type: ignore[attr-defined]
    wrapper.cache_info = cache_info  # type: ignore[attr-defined]
    return wrapper


def _canonical(value: Any, typed: bool) -> bytes:
    """Bytes that are equal for equal values, in every process."""
    kind = type(value)
    if value is None or value is Ellipsis:
        return _tagged(b"c", repr(value).encode())
    if kind in (bool, int, float):
        if not typed and (kind is bool or (kind is float and value.is_integer())):
            value = int(value)
        if type(value) is float:
            return _tagged(b"f", struct.pack("<d", value))
        return _tagged(b"b" if type(value) is bool else b"i", f"{int(value):x}".encode())
    if kind is str:
        return _tagged(b"s", value.encode("utf-8", "surrogatepass"))
    if kind in (bytes, bytearray):
        return _tagged(b"y" if kind is bytes else b"Y", bytes(value))
    if kind in (tuple, list):
        return _tagged(b"t" if kind is tuple else b"l", b"".join(_canonical(part, typed) for part in value))
    if kind in (set, frozenset):
        return _tagged(b"S", b"".join(sorted(_canonical(part, typed) for part in value)))
    if kind is dict:
        pairs = sorted(_canonical(key, typed) + _canonical(part, typed) for key, part in value.items())
        return _tagged(b"d", b"".join(pairs))
    # Without the memo, which tells equal parts from identical ones.
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer, 4)
    pickler.fast = True
    pickler.dump(value)
    return _tagged(b"p", buffer.getvalue())


def _tagged(tag: bytes, data: bytes) -> bytes:
    return tag + struct.pack("<Q", len(data)) + data
