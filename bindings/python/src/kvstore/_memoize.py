"""The decorator memoize, which caches the results of a function in a store.

A result is stored under ``module.qualname:=digest``, where the digest is that of the arguments. A
caller that computes a result holds a lease: the key ``module.qualname:~digest``, with a TTL. Other
callers wait until that key is removed. For early recomputation, ``module.qualname:+digest`` stores
how long the computation took. Only public methods of families are used, without a codec.
"""

from __future__ import annotations

import functools
import inspect
import math
import os
import random
import sys
import threading
import time
import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Optional, TypeVar, overload

from kvstore._arguments import digest as digest_of
from kvstore._data_codec import DATA
from kvstore._errors import Error, MisuseError
from kvstore._family import Family
from kvstore._native import leave
from kvstore._time import FOREVER, Duration, duration_ms, ttl_ms
from kvstore._transaction import in_one_transaction
from kvstore._wait_queue import WaitQueue
from kvstore._write_purge import purge_after_write

if TYPE_CHECKING:
    from typing import Protocol

    from typing_extensions import Concatenate, ParamSpec

    P = ParamSpec("P")
    Q = ParamSpec("Q")
    R = TypeVar("R", covariant=True)

    class Memoized(Protocol[P, R]):
        """The type of a function that :func:`memoize` decorates: its results are cached."""

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
#: Seconds until a background recomputation is tried again after it failed.
_NEXT_TRY = 1.0

#: Threads that wait for a result. Woken whenever a computation of this process ends.
_ended = WaitQueue()
#: The lock for the counters. A signal handler that calls a memoized function may run while its
#: thread holds it.
_counting = threading.RLock()
#: The leases that this thread holds.
_mine = threading.local()
#: The results that this process recomputes in the background.
_refreshing: set[tuple[int, bytes]] = set()


def _after_fork() -> None:
    global _counting
    _counting = threading.RLock()  # it may be held by a thread that does not exist in the child
    _refreshing.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class CacheInfo(NamedTuple):
    """Statistics of the cache of one memoized function."""

    #: Calls in this process that found a result.
    hits: int
    #: Calls in this process that computed a result.
    misses: int
    #: Results in the store, of all processes.
    currsize: int
    #: Reads and writes of the store in this process that failed. The calls returned their results.
    errors: int


def memoize(
    store: Family[Any, Any],
    ttl: Optional[Duration] = None,
    *,
    name: Optional[str] = None,
    typed: bool = False,
    ignore: Iterable[str] = (),
    serializer: Any = DATA,
    lease: Duration = 60.0,
    early: float = 0.0,
    stale: Duration = 0.0,
) -> Callable[[Callable[P, R]], Memoized[P, R]]:
    """Return a decorator that caches the results of a function in a store or family.

    One caller at a time computes a result, over all threads and processes that use the file; other
    callers wait for it. If the computing process dies, another caller starts when the ``lease`` is
    over. A lease must therefore be longer than a computation: a later result is returned but not
    stored. Exceptions are not stored. If the function calls itself with the same arguments, that
    call is computed directly.

    If the store fails (it is busy, full, damaged or read-only, or a result is larger than
    ``max_value_size``), the function is called and its result returned, but not stored.
    ``cache_info().errors`` counts these failures. Only a closed store raises :exc:`MisuseError`.

    Args:
        store: A :class:`Store` or :class:`Family`. Its codec is not used.
        ttl: How long a result is stored, in seconds or as a ``timedelta``; None: the default TTL of
            the family, or no TTL.
        name: The prefix of the keys; by default the module and qualified name of the function.
            Required for functions without a name of their own (a lambda, a partial). Also give one
            in scripts: the module of every script is ``__main__``, so functions of the same name
            would share results.
        typed: Whether equal arguments of different types (1, 1.0 and True) have separate results.
        ignore: Names of parameters that do not affect the result, such as "self".
        serializer: An object with ``dumps`` and ``loads``. By default ``kvstore.DATA``, for data
            types of Python; a result of another type is a :exc:`TypeError`. With ``pickle`` results
            can be any object, and anyone who can write to the file can run code in this process;
            :class:`SignedPickle` prevents that. Results of another serializer are computed again.
        lease: The longest time a computation may take, in seconds or as a ``timedelta``.
        early: Recompute a result before it expires, so that callers do not have to wait. Each hit
            does so with a probability that grows towards the expiry and with the duration of the
            computation. 1.0 is the optimum of the XFetch algorithm, larger values recompute
            earlier, 0 never. (Vattani, Chierichetti, Lowenstein: "Optimal Probabilistic Cache
            Stampede Prevention", PVLDB 8(8), 2015.)
        stale: How long after its ``ttl`` a result is still returned while it is recomputed, in
            seconds or as a ``timedelta`` (stale-while-revalidate, RFC 5861).

    ``early`` and ``stale`` need a ``ttl``. They recompute in a background thread while callers get
    the existing result; one thread per result, over all processes. An exception in that thread goes
    to ``threading.excepthook``; the existing result stays until it expires, and a hit at least a
    second later tries again.

    Passing an argument by position, by name or by default makes no difference. Numbers, str, bytes,
    None and containers of these are compared by value. Other objects are compared by the values that
    pickle would store for them; an object that cannot be pickled, or an argument that contains
    itself, is an error. Name such a parameter in ``ignore``.

    The decorated function has ``cache_clear()`` (removes all results and returns their number),
    ``cache_info()``, ``cache_key(*args)`` (the key of a result) and ``__wrapped__``. For a method,
    use them on the bound method: ``thing.method.cache_key(5)``.

    Raises:
        TypeError: If ``store`` or the function is not supported (async functions and generators are
            not).
        ValueError: For an invalid time, or ``early`` or ``stale`` without ``ttl``.

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
        raise TypeError(f"store must be a kvstore.Store or kvstore.Family, not {kind.__module__}.{kind.__qualname__}")
    if duration_ms(lease, "lease") == 0:
        raise ValueError("lease must be positive: give the longest time a computation may take")
    if ttl is not None:
        ttl_ms(ttl)  # checks it now and not at the first result
    if isinstance(early, bool) or not isinstance(early, (int, float)):
        raise TypeError(f"early must be a number, not {type(early).__name__}")
    if not 0 <= early < math.inf:
        raise ValueError(f"early must be 0 or more and finite, not {early}: 0 turns it off, 1.0 is the optimum")
    times = _Times(float(early), duration_ms(stale, "stale") / 1000, ttl)
    ignored = frozenset((ignore,) if isinstance(ignore, str) else ignore)
    plain = store._plain()  # results are encoded by the serializer

    def decorate(function: Callable[P, R]) -> Memoized[P, R]:
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(
                "memoize does not support async functions: memoize a plain function and call it with "
                "asyncio.to_thread(), or "
                "use get() and put() of kvstore.aio"
            )
        if inspect.isgeneratorfunction(function):
            raise TypeError("memoize does not support generators, which can be read only once: return a list")
        if not callable(function):
            raise TypeError(f"memoize decorates a callable, not {type(function).__name__}")
        if name is None and getattr(function, "__name__", "<lambda>") == "<lambda>":
            kind = "a lambda" if hasattr(function, "__name__") else f"a {type(function).__name__} object"
            raise TypeError(f"{kind} has no name of its own to store results under: give memoize a name='...'")
        made: Memoized[P, R] = _memoized(function, plain, times, name, typed, ignored, serializer, lease)
        return made

    return decorate


class _Times:
    """The times of a memoized function: how long results are stored, and when they are recomputed.
    """

    __slots__ = ("early", "kept", "stale")

    def __init__(self, early: float, stale: float, ttl: Optional[Duration]) -> None:
        self.early = early
        self.stale = stale
        #: The TTL in the store.
        self.kept = ttl
        if self.refreshes:
            if ttl is None or ttl == FOREVER:
                raise ValueError("early= and stale= need ttl=: results without a TTL are never recomputed")
            self.kept = ttl_ms(ttl) / 1000 + stale

    @property
    def refreshes(self) -> bool:
        return self.early > 0 or self.stale > 0

    def is_due(self, left: Optional[float], took: Callable[[], float]) -> bool:
        """Return whether a cache hit should recompute its result, which expires in ``left``
        seconds.
        """
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
        raise ValueError(f"ignore names parameters that {function!r} does not have: {', '.join(sorted(unknown))}")
    counts = {"hits": 0, "misses": 0, "errors": 0}
    #: The leases that could not be released because the store failed, with their tokens.
    unreleased: dict[bytes, bytes] = {}

    def count(what: str) -> None:
        with _counting:
            counts[what] += 1

    def digest(args: Any, kwargs: Any) -> bytes:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = {key: value for key, value in bound.arguments.items() if key not in ignored}
        return digest_of(given, typed)

    def cache_key(*args: Any, **kwargs: Any) -> bytes:
        return prefix + b"=" + digest(args, kwargs)

    def failed(error: Error) -> None:
        """Count a failure of the store. Raises the error if the store is closed."""
        if isinstance(error, MisuseError) and store.closed:
            raise error
        count("errors")

    def find(key: bytes) -> Any:
        """Return the cached result in a list, which is empty if there is none, and its remaining
        seconds.

        The seconds are read only if they matter.
        """
        left = None
        try:
            if times.refreshes:
                kept, left = store.get_with_ttl(key) or (None, None)
            else:
                kept = store.get(key)
        except Error as error:
            failed(error)
            return [], None
        if kept is not None:
            try:
                return [serializer.loads(kept)], left
            except Exception:  # noqa: BLE001 # unreadable, e.g. of another version: recompute
                try:
                    store.compare_and_delete(key, kept)
                except Error as error:
                    failed(error)
        return [], None

    def took(arguments: bytes) -> float:
        """Return how many seconds the last computation of a result took."""
        try:
            return float(store.get(prefix + b"+" + arguments, b"0"))
        except (Error, ValueError):
            return 0.0

    def keep(arguments: bytes, token: bytes, result: Any, seconds: float) -> None:
        """Store a result that took this many seconds to compute. If the lease was lost (the
        computation took too long, or the cache was cleared), store nothing.
        """
        key, lease_key = prefix + b"=" + arguments, prefix + b"~" + arguments
        data = serializer.dumps(result)

        def put() -> None:
            if store.get(lease_key) == token:
                if times.early:
                    store.put(prefix + b"+" + arguments, repr(seconds), times.kept)
                store.put(key, data, times.kept)

        try:
            in_one_transaction(store._state, put)
            purge_after_write(store._state)
        except Error:
            count("errors")  # also if the store was closed meanwhile: the result is there

    class Leased:
        """A ``with`` block that holds the lease to compute a result, and releases it at the end."""

        def __init__(self, lease_key: bytes, token: bytes) -> None:
            self.lease_key = lease_key
            self.token = token
            self.mine = _mine.__dict__.setdefault("leases", set())
            #: Whether this object holds the lease; None: unknown, because taking it was interrupted.
            self.taken: Optional[bool] = False

        def __enter__(self) -> Leased:
            return self

        def take(self) -> bool:
            """Try to take the lease, and return whether it was free."""
            left = unreleased.get(self.lease_key)
            if left is not None:
                store.compare_and_delete(self.lease_key, left)
                unreleased.pop(self.lease_key, None)
            self.taken = None  # set before add(): an interrupt may follow it
            try:
                self.taken = store.add(self.lease_key, self.token, lease)
            except Error:
                self.taken = False
                raise
            if self.taken:
                self.mine.add((id(store), self.lease_key))
            return bool(self.taken)

        if TYPE_CHECKING:

            def __exit__(self, kind: Any, error: Any, traceback: Any) -> None: ...

        else:
            __exit__ = leave

        def _ending(self) -> None:
            """Return None: nothing must be known in advance to leave the block."""

        def _leave(self, ending: None, kind: Any, error: Any, traceback: Any) -> None:
            if self.taken is False:
                return
            self.mine.discard((id(store), self.lease_key))
            try:
                # Read first if it is unknown: reading does not wait for the lock that add() waited for.
                if self.taken or store.get(self.lease_key) == self.token:
                    store.compare_and_delete(self.lease_key, self.token)
                self.taken = False
            except Error:
                unreleased[self.lease_key] = self.token  # released by the next call; other processes wait for its TTL
                self.taken = False
                count("errors")
            finally:
                _ended.wake()

        def _abandon(self, ending: None) -> None:
            self._leave(None, None, None, None)

    def refresh(arguments: bytes, args: Any, kwargs: Any) -> None:
        """Recompute a result in a background thread, unless another thread or process is doing that
        already.
        """
        key, lease_key, token = prefix + b"=" + arguments, prefix + b"~" + arguments, uuid.uuid4().bytes
        try:
            known = store.get_with_ttl(key)
            with Leased(lease_key, token) as leased:
                if known is None or not leased.take():
                    return
                now = store.get_with_ttl(key)
                if now is None or now[0] != known[0] or (now[1] or 0) > (known[1] or 0):
                    return  # another caller has just recomputed it
                count("misses")
                began = time.perf_counter()
                try:
                    result = function(*args, **kwargs)
                    keep(arguments, token, result, time.perf_counter() - began)
                except BaseException:
                    # Keep the lease for a moment, under a token that no caller has, so that not
                    # every hit tries again.
                    try:
                        store.compare_and_swap(lease_key, token, b"failed", _NEXT_TRY)
                    except Error:
                        count("errors")
                    threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
        except Error:
            count("errors")  # the next hit tries again
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
            try:
                is_leased = lease_key in store
            except Error as error:
                failed(error)
                is_leased = True
            if is_leased:
                _refreshing.discard(this)
            else:
                given = (arguments, args, kwargs)
                threading.Thread(target=refresh, args=given, name="kvstore-memoize", daemon=True).start()
        except BaseException as e:
            _refreshing.discard(this)
            if not isinstance(e, RuntimeError):  # no thread can be started: the existing result is returned
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
                try:
                    is_mine = leased.take()
                except Error as error:
                    failed(error)
                    count("misses")
                    break
                if is_mine:
                    found, left = find(key)  # it may have been stored while the lease was taken
                    if found:
                        count("hits")
                        return found[0]
                    count("misses")
                    began = time.perf_counter()
                    result = function(*args, **kwargs)
                    keep(arguments, token, result, time.perf_counter() - began)
                    return result
            _ended.wait(wait)
            wait = min(wait * 2, _LONGEST_WAIT)
        return function(*args, **kwargs)  # the store fails

    def cache_clear() -> int:
        """Remove all cached results of the function, including those being computed, and return how
        many there were.
        """
        store.delete_range(prefix=prefix + b"~")  # first: computations that began before this store nothing
        cleared = store.delete_range(prefix=prefix + b"=")
        store.delete_range(prefix=prefix + b"+")
        return cleared

    def cache_info() -> CacheInfo:
        results = len(store.keys(prefix=prefix + b"="))
        with _counting:
            return CacheInfo(counts["hits"], counts["misses"], results, counts["errors"])

    # A class for each function: a call then needs no frame of the interpreter besides that of `call`.
    made = type("_Function", (_Function,), {"__call__": staticmethod(call), "__module__": __name__})
    return made(function, cache_key, cache_clear, cache_info)


class _Function:
    """A memoized function as a callable object.

    It is a class, and not a function with attributes, so that ``cache_key`` works on bound methods.
    """

    def __init__(self, function: Any, cache_key: Any, cache_clear: Any, cache_info: Any) -> None:
        functools.update_wrapper(self, function)
        self.cache_key = cache_key
        self.cache_clear = cache_clear
        self.cache_info = cache_info

    if TYPE_CHECKING:

        def __call__(self, /, *args: Any, **kwargs: Any) -> Any: ...

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else _Method(self, instance)

    def __repr__(self) -> str:
        return f"<memoized {self.__wrapped__!r}>"  # type: ignore[attr-defined]

    def __reduce__(self) -> str:
        return self.__qualname__  # type: ignore[attr-defined, no-any-return] # pickled by name, like functions


class _Method:
    """A memoized function bound to an object, as a method. Other attributes are those of the
    function.
    """

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
        return getattr, (self.__self__, self.__func__.__name__)  # type: ignore[attr-defined] # pickled like methods
