"""memoize for ``async def`` functions: the calls of one event loop share a computation, and all
reads and writes of the store are done in worker threads.

A call that needs a result first looks for a flight: another call of the same event loop that
already looks for the same result, or computes it. It then waits for the end of the flight instead
of the store. A call that begins a flight asks the store, and waits for leases of other event loops,
threads and processes.

Imported only for such functions, because importing asyncio takes time.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import threading
import time
import uuid
import weakref
from concurrent.futures import Future
from contextvars import ContextVar
from typing import Any, Callable, Optional, Protocol, TypeVar, Union

from kvstore._errors import Error
from kvstore._family import Family
from kvstore._memoize_results import FIRST_WAIT, LONGEST_WAIT, CacheInfo, Found, Results
from kvstore._time import duration_ms
from kvstore.aio._workers import Job, Workers, WorkerSettings

R = TypeVar("R")

#: The most seconds that a caller waits for a worker that writes, beyond its waits for a lock.
_LONGEST_WRITE = 1.0
#: The number of threads that read from a store of the synchronous package.
_READERS = 4


class Jobs(Protocol):
    """Runs functions on the family of the results in worker threads. Calls with ``write`` run one
    after the other, in the order in which they were submitted.
    """

    @property
    def closed(self) -> bool:
        """Whether the store is closed."""
        ...

    @property
    def busy_timeout(self) -> float:
        """How many seconds a call waits for a lock."""
        ...

    def submit(self, write: bool, call: Callable[[Family[Any, Any]], R]) -> Future[R]:
        """Run a function, and return the future of its result.

        Raises:
            Error: If the store is closed, or the call would wait for a transaction of this task.
        """
        ...

    def submit_later(self, call: Callable[[Family[Any, Any]], object]) -> None:
        """Run a function that writes, without a result, also outside an event loop. Does nothing if
        the store is closed.
        """
        ...


class _StoreJobs:
    """The jobs on a family of the synchronous package."""

    def __init__(self, family: Family[Any, Any]) -> None:
        self._family = family

    @property
    def closed(self) -> bool:
        return self._family.closed

    @property
    def busy_timeout(self) -> float:
        return _busy_timeout(self._family._state)

    def submit(self, write: bool, call: Callable[[Family[Any, Any]], R]) -> Future[R]:
        family = self._family
        job = Job(lambda worker: call(family))
        _workers_of(family._state).pool(write).submit(job)
        return job.future

    def submit_later(self, call: Callable[[Family[Any, Any]], object]) -> None:
        self.submit(True, call)


#: The worker threads of each store, by its state. They only run jobs, and open no store.
_workers: weakref.WeakKeyDictionary[Any, Workers] = weakref.WeakKeyDictionary()
_workers_lock = threading.Lock()
#: Workers inherited from parent processes, which are not collected here.
_inherited: list[Workers] = []


def _busy_timeout(state: Any) -> float:
    """Return how many seconds the calls of a store of the synchronous package wait for a lock."""
    return max(int(state.pool.config.busyTimeout), 0) / 1000


def _workers_of(state: Any) -> Workers:
    with _workers_lock:
        workers = _workers.get(state)
        if workers is not None and workers.pid != os.getpid():
            _inherited.append(workers)
            workers = None
        if workers is None:
            workers = _workers[state] = Workers(
                WorkerSettings(b":memory:", {"busy_timeout": _busy_timeout(state)}), _READERS
            )
            weakref.finalize(state, _end, workers).atexit = False
        return workers


def _end(workers: Workers) -> None:
    if workers.pid == os.getpid():
        workers.close_without_lock()


def _after_fork() -> None:
    global _workers_lock
    _workers_lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def jobs_of(family: Family[Any, Any]) -> Jobs:
    """Return the jobs on a family of the synchronous package."""
    return _StoreJobs(family._plain())


class _Computation:
    """A computation of a result, which calls inside it must not wait for."""

    __slots__ = ("arguments", "is_running", "results")

    def __init__(self, results: Results, arguments: bytes) -> None:
        self.results = results
        self.arguments = arguments
        self.is_running = True


#: The computations that the current task is part of.
_computations: ContextVar[tuple[_Computation, ...]] = ContextVar("kvstore.memoize", default=())


def memoized_async(function: Any, results: Results, jobs: Jobs) -> tuple[Any, Any, Any]:
    """Return the coroutine functions that replace a function, its ``cache_clear`` and its
    ``cache_info``.
    """
    #: The flights of all event loops. A flight yields the encoded result, because each call returns
    #: an object of its own; None if there is no result to share.
    flights: dict[tuple[asyncio.AbstractEventLoop, bytes], asyncio.Future[Optional[bytes]]] = {}
    #: The tasks that recompute results.
    refreshes: dict[tuple[int, bytes], asyncio.Task[None]] = {}
    lease_s = duration_ms(results.times.lease, "lease") / 1000

    def submit(write: bool, call: Callable[[Family[Any, Any]], R]) -> asyncio.Future[R]:
        try:
            return asyncio.wrap_future(jobs.submit(write, call))
        except RuntimeError as error:
            if isinstance(error, Error):
                raise
            raise Error(f"the store cannot be used: {error}") from error  # no thread can be started

    async def run(write: bool, call: Callable[[Family[Any, Any]], R]) -> R:
        return await submit(write, call)

    async def call(*args: Any, **kwargs: Any) -> Any:
        arguments = results.digest(args, kwargs)
        if any(one.is_running and one.results is results and one.arguments == arguments for one in _computations.get()):
            return await call_inside(arguments, args, kwargs)
        loop = asyncio.get_running_loop()
        this = loop, arguments
        while True:
            flight = flights.get(this)
            if flight is None:
                break
            await asyncio.wait((flight,), timeout=lease_s)
            if not flight.done():
                if flights.get(this) is flight:
                    break  # it takes longer than a lease
                continue
            data = flight.result()
            if data is not None:
                with contextlib.suppress(Exception):  # unreadable: ask the store, and compute again
                    result = results.decode(data)
                    results.count("hits")
                    return result
        flight = flights[this] = loop.create_future()
        data = None
        try:
            result, data = await find_or_compute(arguments, args, kwargs)
            return result
        finally:
            if flights.get(this) is flight:
                del flights[this]
            with contextlib.suppress(RuntimeError):  # the loop is closed, so no call waits
                flight.set_result(data)

    async def call_inside(arguments: bytes, args: Any, kwargs: Any) -> Any:
        """Return the result for a call inside the computation of the same result."""
        found = await look(arguments)
        if isinstance(found, Found):
            results.count("hits")
            return found.result
        return await function(*args, **kwargs)

    async def look(arguments: bytes) -> Union[Found, bool]:
        """Return the result in the store, or whether another caller computes it."""
        try:
            return await run(
                False, lambda family: results.find(family, arguments) or results.is_leased(family, arguments)
            )
        except Error as error:
            results.failed(error, jobs.closed)
            return False

    async def find_or_compute(arguments: bytes, args: Any, kwargs: Any) -> tuple[Any, Optional[bytes]]:
        """Return the result for a call, and the encoded result unless there is none."""
        wait = FIRST_WAIT
        token = uuid.uuid4().bytes
        asked = False
        try:
            while True:
                found: Union[Found, bool, None] = await look(arguments)
                if found is False:
                    asked = True
                    found = await take(arguments, token)
                    if found is None:  # the store fails
                        results.count("misses")
                        return await compute(arguments, args, kwargs), None
                    if found is True:
                        results.count("misses")
                        return await compute_and_keep(arguments, token, args, kwargs)
                if isinstance(found, Found):
                    results.count("hits")
                    if found.due:
                        begin_refresh(arguments, args, kwargs)
                    return found.result, found.data
                await asyncio.sleep(wait)
                wait = min(wait * 2, LONGEST_WAIT)
        except BaseException:  # also if the task was cancelled, or its event loop was closed
            if asked:
                submit_later(lambda family: results.release(family, arguments, token))
            raise

    async def take(arguments: bytes, token: bytes) -> Union[Found, bool, None]:
        """Take the lease, and return whether it was free. Return a result that another caller has
        stored meanwhile, and None if the store fails.
        """

        def take_or_find(family: Family[Any, Any]) -> Union[Found, bool]:
            if not results.take(family, arguments, token):
                return False
            found = results.find(family, arguments)
            if found is not None:
                results.release(family, arguments, token)
            return found or True

        try:
            taken = submit(True, take_or_find)
            try:
                # A transaction of another task can occupy the worker for any time.
                await asyncio.wait((taken,), timeout=_LONGEST_WRITE + 2 * jobs.busy_timeout)
            except BaseException:
                taken.cancel()
                raise
            if taken.done():
                return taken.result()
        except Error as error:
            results.failed(error, jobs.closed)
            return None
        taken.cancel()
        submit_later(lambda family: results.release(family, arguments, token))
        results.count("errors")
        return None

    async def compute(arguments: bytes, args: Any, kwargs: Any) -> Any:
        computation = _Computation(results, arguments)
        reset = _computations.set((*_computations.get(), computation))
        try:
            return await function(*args, **kwargs)
        finally:
            computation.is_running = False
            with contextlib.suppress(ValueError):  # the garbage collector ends the coroutine, in another context
                _computations.reset(reset)

    async def compute_and_keep(arguments: bytes, token: bytes, args: Any, kwargs: Any) -> tuple[Any, Optional[bytes]]:
        """Compute a result, store it and release the lease. If this fails, the caller releases the
        lease.
        """
        began = time.perf_counter()
        result = await compute(arguments, args, kwargs)
        seconds = time.perf_counter() - began

        def keep(family: Family[Any, Any]) -> bytes:
            data = results.encode(result)
            results.keep(family, arguments, token, data, seconds)
            results.release(family, arguments, token)
            return data

        try:
            kept = submit(True, keep)
        except Error:  # the store was closed, or this task has a transaction open
            results.count("errors")
            submit_later(lambda family: results.release(family, arguments, token))
            return result, None
        # Not cancelled with this task. If the store is busy, the worker goes on without the caller.
        await asyncio.wait((kept,), timeout=_LONGEST_WRITE + jobs.busy_timeout)
        if kept.done():
            return result, kept.result()
        kept.add_done_callback(lambda kept: kept.cancelled() or kept.exception())  # so that it is not reported
        return result, None

    def submit_later(call: Callable[[Family[Any, Any]], object]) -> None:
        with contextlib.suppress(Error, RuntimeError):  # the store was closed, or no thread can be started
            jobs.submit_later(call)

    def begin_refresh(arguments: bytes, args: Any, kwargs: Any) -> None:
        """Recompute a result in a task, unless this process does so already."""
        this = os.getpid(), arguments
        running = refreshes.get(this)
        if running is not None and not running.done() and not running.get_loop().is_closed():
            return
        task = asyncio.get_running_loop().create_task(refresh(arguments, args, kwargs), name="kvstore-memoize")
        refreshes[this] = task

        def end(task: asyncio.Task[None]) -> None:
            if refreshes.get(this) is task:
                del refreshes[this]

        task.add_done_callback(end)

    async def refresh(arguments: bytes, args: Any, kwargs: Any) -> None:
        token = uuid.uuid4().bytes
        try:
            try:
                if not await run(True, lambda family: results.take_to_refresh(family, arguments, token)):
                    return
            except Error:
                results.count("errors")  # the next hit tries again
                return
            results.count("misses")
            try:
                await compute_and_keep(arguments, token, args, kwargs)
            except Exception as error:
                submit_later(lambda family: results.postpone_refresh(family, arguments, token))
                # Without the task: Python 3.12 would enter its context, in which this code runs.
                asyncio.get_running_loop().call_exception_handler(
                    {"message": f"memoize could not recompute a result of {function!r}", "exception": error}
                )
        except BaseException:  # the task was cancelled, or its event loop was closed
            submit_later(lambda family: results.release(family, arguments, token))
            raise

    async def cache_clear() -> int:
        """Remove all cached results of the function, including those being computed, and return how
        many there were.
        """
        cleared = await run(True, results.clear)
        flights.clear()  # later calls do not wait for computations that began before
        return cleared

    async def cache_info() -> CacheInfo:
        return results.info(await run(False, results.size))

    return call, cache_clear, cache_info


def mark(function: Any) -> Any:
    """Let ``inspect`` and ``asyncio`` recognize an object as a coroutine function, and return it."""
    if hasattr(inspect, "markcoroutinefunction"):  # Python 3.12
        inspect.markcoroutinefunction(function)
    else:
        function._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined, unused-ignore]
    return function
