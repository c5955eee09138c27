"""memoize: results of a function, kept in a store.

A result is under ``module.qualname:=digest``, where the digest is of the arguments. Whoever computes one
holds a lease, the key ``module.qualname:~digest``, with a TTL; others wait for it to go. How long the
computation took is under ``module.qualname:+digest``, if early recomputation needs it. Of families, it uses public methods
only (and no codec).
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import inspect
import io
import math
import os
import pickle
import random
import struct
import threading
import time
import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Optional, TypeVar, overload

from kvstore._errors import BusyError, Error, MisuseError
from kvstore._family import Family
from kvstore._native import leave
from kvstore._time import FOREVER, Duration, duration_ms, ttl_ms
from kvstore._transaction import in_one_transaction
from kvstore._waiters import Waiters

if TYPE_CHECKING:
    from typing import Protocol

    from typing_extensions import Concatenate, ParamSpec

    P = ParamSpec("P")
    Q = ParamSpec("Q")
    R = TypeVar("R", covariant=True)

    class Memoized(Protocol[P, R]):
        """A function whose results are kept."""

        __wrapped__: Callable[..., Any]

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...
        def cache_key(self, *args: P.args, **kwargs: P.kwargs) -> bytes: ...
        def cache_clear(self) -> int: ...
        def cache_info(self) -> CacheInfo: ...
        @overload
        def __get__(self, instance: None, owner: Any = None, /) -> Memoized[P, R]: ...
        @overload
        def __get__(
            self: Memoized[Concatenate[Any, Q], R], instance: object, owner: Any = None, /
        ) -> Memoized[Q, R]: ...


_FIRST_WAIT, _LONGEST_WAIT = 0.001, 0.05
#: After a recomputation in the background that failed, in seconds.
_NEXT_TRY = 1.0

#: Told whenever a computation of this process has ended.
_ended = Waiters()
#: For the counts of hits and misses.
_counting = threading.Lock()
#: What this thread is computing.
_mine = threading.local()
#: What threads of this process are recomputing in the background.
_refreshing: set[tuple[int, bytes]] = set()


def _after_fork() -> None:
    global _counting
    _counting = threading.Lock()  # a thread that the child does not have may have had it
    _refreshing.clear()


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
    early: float = 0.0,
    stale: Duration = 0.0,
) -> Callable[[Callable[P, R]], Memoized[P, R]]:
    """A decorator that keeps the results of a function in a store or family, by its arguments.

    A result is computed by one caller at a time, over all threads and processes that use the file:
    the others wait for it. If the one that computes dies, another begins when its ``lease`` is over, so
    a lease must be longer than a computation takes: a result that comes later is returned but not
    kept. An exception is not kept. A call that the function makes of itself with the same arguments
    is computed.

    - ``ttl``: how long results live; None: the family's default TTL, or for ever.
    - ``name``: what the keys begin with; by default the module and qualified name of the function. What has none
      of its own (a lambda, a partial) needs it: all lambdas of a module would share their results. So does a function of
      a script: the module of every script is ``__main__``, and two that each have an ``f`` share its results.
    - ``typed``: whether equal arguments of different types (1, 1.0 and True) have results of their own.
    - ``ignore``: names of parameters that make no difference, such as "self".
    - ``serializer``: an object with ``dumps`` and ``loads``, such as pickle, json or marshal. With
      pickle, whoever can write to the file can run code in this process.
    - ``early``: recompute now and then before a result ends, so that it is never missing: at each hit with a
      probability that grows towards the end, and with the time that the computation took. 1.0 is the optimum
      of the source, more is earlier; 0: never. (XFetch: Vattani, Chierichetti, Lowenstein, "Optimal
      Probabilistic Cache Stampede Prevention", PVLDB 8(8), 2015.)
    - ``stale``: for so long after its ``ttl`` a result is still returned, and recomputed meanwhile
      (stale-while-revalidate, as in RFC 5861).

    Both need a ``ttl``, and recompute in a thread, while callers go on with the result that is there; one
    thread at a time for a result, over all processes. An exception there goes to threading.excepthook; the
    result stays until it ends, and a second later another hit tries again.

    How arguments are passed, by place, name or default, makes no difference. Numbers, text, bytes, None
    and containers of them are told apart by value; other objects by their pickle, so they must have
    one, and the same one in each process.

    The decorated function has ``cache_clear()`` (forgets all results, and returns how many there
    were), ``cache_info()``, ``cache_key(*args)`` (where the result is kept) and ``__wrapped__``. Of a method
    they are got from the object: ``thing.method.cache_key(5)``.

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
        kind = type(store)
        raise TypeError(f"memoize needs a kvstore.Store or kvstore.Family, not {kind.__module__}.{kind.__qualname__}")
    if duration_ms(lease, "a lease") == 0:
        raise ValueError("a lease must be positive")
    if ttl is not None:
        ttl_ms(ttl)  # a bad one is told here, not at the first result
    if isinstance(early, bool) or not isinstance(early, (int, float)):
        raise TypeError(f"early must be a number, not {type(early).__name__}")
    if not 0 <= early < math.inf:
        raise ValueError(f"early cannot be {early}: 0 is never, 1 the optimum")
    times = _Times(float(early), duration_ms(stale, "stale") / 1000, ttl)
    ignored = frozenset((ignore,) if isinstance(ignore, str) else ignore)
    plain = store._plain()  # results are the serializer's, and not the codec's

    def decorate(function: Callable[P, R]) -> Memoized[P, R]:
        if asyncio.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(
                "memoize cannot keep what an async function gives: memoize a function without async, and call it by "
                "asyncio.to_thread; or use get and put of kvstore.aio"
            )
        if inspect.isgeneratorfunction(function):
            raise TypeError("memoize cannot keep what a generator gives, for it is gone when used: return a list")
        if not callable(function):
            raise TypeError(f"memoize decorates a function, not {type(function).__name__}")
        if name is None and getattr(function, "__name__", "<lambda>") == "<lambda>":
            kind = "a lambda" if hasattr(function, "__name__") else f"a {type(function).__name__} object"
            raise TypeError(f"{kind} has no name of its own, which its results are kept under: give memoize a name='...'")
        made: Memoized[P, R] = _memoized(function, plain, times, name, typed, ignored, serializer, lease)
        return made

    return decorate


class _Times:
    """How long results are kept, and when they are recomputed before they are gone."""

    __slots__ = ("early", "kept", "stale")

    def __init__(self, early: float, stale: float, ttl: Optional[Duration]) -> None:
        self.early = early
        self.stale = stale
        #: The TTL in the store.
        self.kept = ttl
        if self.refreshes:
            if ttl is None or ttl == FOREVER:
                raise ValueError("early and stale need a ttl: results that do not end are not recomputed")
            self.kept = ttl_ms(ttl) / 1000 + stale

    @property
    def refreshes(self) -> bool:
        return self.early > 0 or self.stale > 0

    def is_due(self, left: Optional[float], took: Callable[[], float]) -> bool:
        """Whether a hit on a result that is kept for ``left`` seconds more should recompute it."""
        if left is None:
            return False
        fresh = left - self.stale
        if fresh <= 0 or not self.early:
            return fresh <= 0
        return took() * self.early * -math.log(1.0 - random.random()) >= fresh


def _memoized(
    function: Any,
    store: Family[Any, Any],
    times: _Times,
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
        """A list of the result, or an empty one; and how many seconds it is kept, if that matters."""
        left = None
        if times.refreshes:
            kept, left = store.get_with_ttl(key) or (None, None)
        else:
            kept = store.get(key)
        if kept is not None:
            try:
                return [serializer.loads(kept)], left
            except Exception:  # noqa: BLE001 # another version's, or damaged: compute it anew
                store.compare_and_delete(key, kept)
        return [], None

    def took(arguments: bytes) -> float:
        """How many seconds it took to compute a result."""
        try:
            return float(store.get(prefix + b"+" + arguments, b"0"))
        except ValueError:
            return 0.0

    def compute(arguments: bytes, token: bytes, args: Any, kwargs: Any) -> Any:
        """To be called by who has the lease."""
        began = time.perf_counter()
        result = function(*args, **kwargs)
        seconds = time.perf_counter() - began
        key, lease_key = prefix + b"=" + arguments, prefix + b"~" + arguments
        data = serializer.dumps(result)

        def keep() -> None:
            # Whoever has lost the lease (it took too long, or the results were cleared) keeps nothing.
            if store.get(lease_key) == token:
                if times.early:
                    store.put(prefix + b"+" + arguments, repr(seconds), times.kept)
                store.put(key, data, times.kept)

        in_one_transaction(store._shared, keep)
        return result

    class Leased:
        """What is done under a lease, which ends with it."""

        def __init__(self, lease_key: bytes, token: bytes) -> None:
            self.lease_key = lease_key
            self.token = token
            self.mine = _mine.__dict__.setdefault("leases", set())
            #: The lease may be this one's.
            self.taken = False

        def __enter__(self) -> Leased:
            return self

        def take(self) -> bool:
            """Takes the lease; says whether nobody else has it."""
            self.taken = True  # before: an interrupt may come after it was taken
            try:
                self.taken = store.add(self.lease_key, self.token, lease)
            except Error:
                self.taken = False
                raise
            if self.taken:
                self.mine.add((id(store), self.lease_key))
            return self.taken

        if TYPE_CHECKING:

            def __exit__(self, kind: Any, error: Any, traceback: Any) -> None: ...

        else:
            __exit__ = leave

        def _ending(self) -> None:
            """Nothing that _leave and _abandon need to be told."""

        def _leave(self, ending: None, kind: Any, error: Any, traceback: Any) -> None:
            if not self.taken:
                return
            self.mine.discard((id(store), self.lease_key))
            try:
                store.compare_and_delete(self.lease_key, self.token)
                self.taken = False
            except Error:
                self.taken = False  # it is not tried again: it ends by its time
                raise
            finally:
                _ended.wake()

        def _abandon(self, ending: None) -> None:
            try:
                self._leave(None, None, None, None)
            except Error:
                pass  # another exception comes out

    def refresh(arguments: bytes, args: Any, kwargs: Any) -> None:
        """In a thread: computes a result anew, unless somebody else does."""
        key, lease_key, token = prefix + b"=" + arguments, prefix + b"~" + arguments, uuid.uuid4().bytes
        try:
            known = store.get_with_ttl(key)
            with Leased(lease_key, token) as leased:
                if known is None or not leased.take():
                    return
                now = store.get_with_ttl(key)
                if now is None or now[0] != known[0] or (now[1] or 0) > (known[1] or 0):
                    return  # somebody else has just done it
                count("misses")
                try:
                    compute(arguments, token, args, kwargs)
                except BaseException:
                    # The lease stays a little, under a token that nobody has: not each hit is to try.
                    store.compare_and_swap(lease_key, token, b"failed", _NEXT_TRY)
                    raise
        except BusyError:
            pass  # the next hit tries again
        except MisuseError:
            if not store.closed:
                raise
        finally:
            _refreshing.discard((id(store), lease_key))

    def begin_refresh(arguments: bytes, args: Any, kwargs: Any) -> None:
        lease_key = prefix + b"~" + arguments
        this = (id(store), lease_key)
        with _counting:
            if this in _refreshing:
                return
            _refreshing.add(this)
        try:
            if lease_key in store:
                _refreshing.discard(this)
            else:
                threading.Thread(target=refresh, args=(arguments, args, kwargs), name="kvstore-memoize", daemon=True).start()
        except BaseException as e:
            _refreshing.discard(this)
            if not isinstance(e, RuntimeError):  # no more threads: the result that is there is returned
                raise

    def call(*args: Any, **kwargs: Any) -> Any:
        arguments = digest(args, kwargs)
        key, lease_key = prefix + b"=" + arguments, prefix + b"~" + arguments
        wait = _FIRST_WAIT
        token = uuid.uuid4().bytes
        while True:
            found, left = find(key)
            if found:
                count("hits")
                if times.refreshes and times.is_due(left, lambda: took(arguments)):
                    begin_refresh(arguments, args, kwargs)
                return found[0]
            if (id(store), lease_key) in getattr(_mine, "leases", ()):
                return function(*args, **kwargs)
            with Leased(lease_key, token) as leased:
                if leased.take():
                    found, left = find(key)  # it may have come while the lease was taken
                    if found:
                        count("hits")
                        return found[0]
                    count("misses")
                    return compute(arguments, token, args, kwargs)
            _ended.wait(wait)
            wait = min(wait * 2, _LONGEST_WAIT)

    def cache_clear() -> int:
        """Forgets all results of the function, also those that are being computed."""
        store.delete_range(prefix=prefix + b"~")  # first: what is kept after this, has begun after it
        cleared = store.delete_range(prefix=prefix + b"=")
        store.delete_range(prefix=prefix + b"+")
        return cleared

    def cache_info() -> CacheInfo:
        with _counting:
            return CacheInfo(counts["hits"], counts["misses"], len(store.keys(prefix=prefix + b"=")))

    return _Function(function, call, cache_key, cache_clear, cache_info)


class _Function:
    """What memoize makes of a function. Unlike an attribute of a function, its cache_key can be a method's."""

    def __init__(self, function: Any, call: Any, cache_key: Any, cache_clear: Any, cache_info: Any) -> None:
        functools.update_wrapper(self, function)
        self._call = call
        self.cache_key = cache_key
        self.cache_clear = cache_clear
        self.cache_info = cache_info

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else _Method(self, instance)

    def __repr__(self) -> str:
        return f"<memoized {self.__wrapped__!r}>"  # type: ignore[attr-defined]

    def __reduce__(self) -> str:
        return self.__qualname__  # type: ignore[attr-defined, no-any-return] # as functions are pickled


class _Method:
    """The same, bound to its object; what is not here is the function's."""

    __slots__ = ("__func__", "__self__")

    def __init__(self, function: _Function, instance: Any) -> None:
        self.__func__ = function
        self.__self__ = instance

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self.__func__(self.__self__, *args, **kwargs)

    def cache_key(self, /, *args: Any, **kwargs: Any) -> Any:
        return self.__func__.cache_key(self.__self__, *args, **kwargs)

    @property
    def __wrapped__(self) -> Any:
        return self.__func__.__wrapped__.__get__(self.__self__)  # type: ignore[attr-defined]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__func__, name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Method) and self.__self__ is other.__self__ and self.__func__ is other.__func__

    def __hash__(self) -> int:
        return hash((id(self.__self__), id(self.__func__)))

    def __repr__(self) -> str:
        return f"<memoized {self.__wrapped__!r}>"

    def __reduce__(self) -> Any:
        return getattr, (self.__self__, self.__func__.__name__)  # type: ignore[attr-defined] # as methods are


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
