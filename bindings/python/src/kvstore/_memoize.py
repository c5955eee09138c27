"""The decorator memoize, which caches the results of a function in a store.

_memoize_results reads and writes the results; this module decides when. _memoize_async does so for
``async def`` functions.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
import time
import uuid
from collections.abc import Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Callable, Optional, TypeVar, Union, overload

from kvstore._codec import checked_serializer
from kvstore._data_codec import DATA
from kvstore._errors import Error
from kvstore._family import Family
from kvstore._memoize_results import FIRST_WAIT, LONGEST_WAIT, CacheInfo, Results, Times
from kvstore._native import WithBlock
from kvstore._time import Duration
from kvstore._wait_queue import WaitQueue

if TYPE_CHECKING:
    from typing import Protocol

    from typing_extensions import Concatenate, ParamSpec

    P = ParamSpec("P")
    Q = ParamSpec("Q")
    R = TypeVar("R", covariant=True)
    T = TypeVar("T")

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

    class AsyncMemoized(Protocol[P, R]):
        """The type of an ``async def`` function that :func:`memoize` decorates."""

        __wrapped__: Callable[..., Any]

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]: ...
        def cache_key(self, *args: P.args, **kwargs: P.kwargs) -> bytes: ...
        async def cache_clear(self) -> int: ...
        async def cache_info(self) -> CacheInfo: ...
        @overload
        def __get__(self, instance: None, owner: Any = None, /) -> AsyncMemoized[P, R]: ...
        @overload
        def __get__(
            self: AsyncMemoized[Concatenate[Any, Q], R], instance: object, owner: Any = None, /
        ) -> AsyncMemoized[Q, R]: ...

    class AsyncFamily(Protocol):
        """The type of a :class:`kvstore.aio.Store` or :class:`kvstore.aio.Family`."""

        def _memoize_jobs(self) -> Any: ...

    class Decorator(Protocol):
        """The type of what :func:`memoize` returns."""

        @overload
        def __call__(  # type: ignore[overload-overlap]
            self, function: Callable[P, Coroutine[Any, Any, T]], /
        ) -> AsyncMemoized[P, T]: ...
        @overload
        def __call__(self, function: Callable[P, T], /) -> Memoized[P, T]: ...


#: Threads that wait for a result. Woken whenever a computation of this process ends.
_ended = WaitQueue()
#: The leases that this thread holds.
_mine = threading.local()


def memoize(
    store: Union[Family[Any, Any], AsyncFamily],
    ttl: Optional[Duration] = None,
    *,
    name: Optional[str] = None,
    typed: bool = False,
    ignore: Iterable[str] = (),
    serializer: Any = DATA,
    lease: Duration = 60.0,
    early: float = 0.0,
    stale: Duration = 0.0,
) -> Decorator:
    """Return a decorator that caches the results of a function in a store or family.

    One caller at a time computes a result, over all threads and processes that use the file; other
    callers wait for it. If the computing process dies, another caller starts when the ``lease`` is
    over, so a computation that takes longer may run several times; the first of its results is
    stored. Exceptions are not stored. If the function calls itself with the same arguments, that
    call is computed directly.

    If the store fails (it is busy, full, damaged or read-only, or a result is larger than
    ``max_value_size``), the function is called and its result returned, but not stored.
    ``cache_info().errors`` counts these failures. Only a closed store raises :exc:`MisuseError`.

    Args:
        store: A :class:`Store` or :class:`Family`; for an ``async def`` function also one of
            :mod:`kvstore.aio`. Its codec is not used.
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
        lease: How long callers wait for a computation before one of them computes, too, in seconds
            or as a ``timedelta``.
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

    An ``async def`` function stays one. Concurrent calls of one event loop with equal arguments
    compute once, and each gets its own copy of the result. If the computing task is cancelled, or
    the function raises, another call computes. All reads and writes of the store, and the
    serializer, run in worker threads; waiting for another thread or process does not block the
    event loop. ``early`` and ``stale`` recompute in a task, whose exceptions go to the exception
    handler of the event loop. ``cache_clear`` and ``cache_info`` are coroutine functions. A call
    inside a transaction that its task has open on a :mod:`kvstore.aio` store computes, and its
    result is not stored.

    The decorated function has ``cache_clear()`` (removes all results and returns their number),
    ``cache_info()``, ``cache_key(*args)`` (the key of a result) and ``__wrapped__``. For a method,
    use them on the bound method: ``thing.method.cache_key(5)``.

    Raises:
        TypeError: If ``store`` or the function is not supported: generators are not, nor plain
            functions with a store of :mod:`kvstore.aio`.
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
    times = Times(early, stale, ttl, lease)
    checked_serializer(serializer)
    if name is not None and (not isinstance(name, str) or not name):
        raise TypeError(f"name must be a str that is not empty, not {name!r}")
    ignored = frozenset((ignore,) if isinstance(ignore, str) else ignore)
    if not isinstance(store, Family) and not hasattr(store, "_memoize_jobs"):
        kind = type(store)
        raise TypeError(
            "store must be a kvstore.Store, a kvstore.Family or one of kvstore.aio, not "
            f"{kind.__module__}.{kind.__qualname__}"
        )

    def decorate(function: Any) -> Any:
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError("memoize does not support generators, which can be read only once: return a list")
        if not callable(function):
            raise TypeError(f"memoize decorates a callable, not {type(function).__name__}")
        if name is None and getattr(function, "__name__", "<lambda>") == "<lambda>":
            kind = "a lambda" if hasattr(function, "__name__") else f"a {type(function).__name__} object"
            raise TypeError(f"{kind} has no name of its own to store results under: give memoize a name='...'")
        results = Results(function, name, times, typed, ignored, serializer)
        if _is_async(function):
            from kvstore._memoize_async import jobs_of, mark, memoized_async  # imports asyncio

            jobs = jobs_of(store) if isinstance(store, Family) else store._memoize_jobs()
            return mark(_made(function, results, *memoized_async(function, results, jobs)))
        if not isinstance(store, Family):
            raise TypeError(
                "a store of kvstore.aio memoizes async def functions only: make the function one, or give memoize a "
                "store of kvstore.open"
            )
        return _made(function, results, *_memoized(function, results, store._plain()))

    return decorate


def _is_async(function: Any) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))


def _memoized(function: Any, results: Results, store: Family[Any, Any]) -> tuple[Any, Any, Any]:
    """Return the functions that replace a function, its ``cache_clear`` and its ``cache_info``."""

    class Leased(WithBlock):
        """A ``with`` block that holds the lease to compute a result, and releases it at the end."""

        def __init__(self, arguments: bytes, token: bytes) -> None:
            self.arguments = arguments
            self.token = token
            self.mine = _mine.__dict__.setdefault("leases", set())
            #: Whether this object holds the lease; None: unknown, because taking it was interrupted.
            self.taken: Optional[bool] = False

        def __enter__(self) -> Leased:
            return self

        def take(self) -> bool:
            """Try to take the lease, and return whether it was free."""
            self.taken = None  # set before take(): an interrupt may follow it
            try:
                self.taken = results.take(store, self.arguments, self.token)
            except Error:
                self.taken = False
                raise
            if self.taken:
                self.mine.add((id(results), self.arguments))
            return self.taken

        def _ending(self) -> None:
            """Return None: nothing must be known in advance to leave the block."""

        def _leave(self, ending: None, kind: Any, error: Any, traceback: Any) -> None:
            if self.taken is False:
                return
            self.mine.discard((id(results), self.arguments))
            try:
                # Read first if it is unknown: reading does not wait for the lock that take() waited for.
                if self.taken or store.get(results.lease_key(self.arguments)) == self.token:
                    results.release(store, self.arguments, self.token)
                self.taken = False
            except Error:  # of the read
                results.unreleased[results.lease_key(self.arguments)] = self.token
                self.taken = False
                results.count("errors")
            finally:
                _ended.wake()

        def _abandon(self, ending: None) -> None:
            self._leave(None, None, None, None)

    def refresh(arguments: bytes, args: Any, kwargs: Any) -> None:
        """Recompute a result in a background thread, unless another thread or process is doing that
        already.
        """
        token = uuid.uuid4().bytes
        try:
            if not results.take_to_refresh(store, arguments, token):
                return
            results.count("misses")
            began = time.perf_counter()
            try:
                result = function(*args, **kwargs)
                results.keep(store, arguments, token, results.encode(result), time.perf_counter() - began)
            except BaseException:
                results.postpone_refresh(store, arguments, token)
                threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
            finally:
                results.release(store, arguments, token)
                _ended.wake()
        except Error:
            results.count("errors")  # the next hit tries again
        finally:
            results.end_refresh(arguments)

    def begin_refresh(arguments: bytes, args: Any, kwargs: Any) -> None:
        if not results.begin_refresh(arguments):
            return
        try:
            given = (arguments, args, kwargs)
            threading.Thread(target=refresh, args=given, name="kvstore-memoize", daemon=True).start()
        except BaseException as e:
            results.end_refresh(arguments)
            if not isinstance(e, RuntimeError):  # no thread can be started: the existing result is returned
                raise

    def call(*args: Any, **kwargs: Any) -> Any:
        arguments = results.digest(args, kwargs)
        wait = FIRST_WAIT
        token = uuid.uuid4().bytes
        while True:
            found = results.find(store, arguments)
            if found is not None:
                results.count("hits")
                if found.due:
                    begin_refresh(arguments, args, kwargs)
                return found.result
            if (id(results), arguments) in getattr(_mine, "leases", ()):
                return function(*args, **kwargs)
            with Leased(arguments, token) as leased:
                try:
                    is_mine = leased.take()
                except Error as error:
                    results.failed(error, store.closed)
                    results.count("misses")
                    break
                if is_mine:
                    found = results.find(store, arguments)  # it may have been stored while the lease was taken
                    if found is not None:
                        results.count("hits")
                        return found.result
                    results.count("misses")
                    began = time.perf_counter()
                    result = function(*args, **kwargs)
                    seconds = time.perf_counter() - began
                    results.keep(store, arguments, token, results.encode(result), seconds)
                    return result
            _ended.wait(wait)
            wait = min(wait * 2, LONGEST_WAIT)
        return function(*args, **kwargs)  # the store fails

    def cache_clear() -> int:
        """Remove all cached results of the function, including those being computed, and return how
        many there were.
        """
        return results.clear(store)

    def cache_info() -> CacheInfo:
        return results.info(results.size(store))

    return call, cache_clear, cache_info


def _made(function: Any, results: Results, call: Any, cache_clear: Any, cache_info: Any) -> _Function:
    # A class for each function: a call then needs no frame of the interpreter besides that of `call`.
    made = type("_Function", (_Function,), {"__call__": staticmethod(call), "__module__": __name__})
    return made(function, results.cache_key, cache_clear, cache_info)  # type: ignore[no-any-return]


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
