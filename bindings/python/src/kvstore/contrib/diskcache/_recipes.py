"""Recipes on a cache: an average, locks, and decorators that limit or serialize calls.

``kvstore.recipes`` has locks, semaphores and rate limits that survive a crash of their holder and
wake waiting threads at once. Prefer those in new programs.
"""

from __future__ import annotations

import functools
import os
import threading
import time
from typing import Any, Callable, Optional, TypeVar

from kvstore.contrib.diskcache._memoize import full_name

R = TypeVar("R")

#: Seconds between two attempts to get a lock.
_PAUSE = 0.001


class _OnKey:
    """Base class of the recipes that store their state under one key.

    Args:
        cache: The cache.
        key: The key.
        expire: Seconds until the state expires, such as a lock whose holder has died; None: never.
        tag: The tag of the entry.
    """

    def __init__(self, cache: Any, key: Any, expire: Optional[float] = None, tag: Any = None) -> None:
        self._cache = cache
        self._key = key
        self._expire = expire
        self._tag = tag

    def _set(self, value: Any) -> None:
        self._cache.set(self._key, value, expire=self._expire, tag=self._tag, retry=True)


class Averager(_OnKey):
    """The average of numbers, stored under one key."""

    def add(self, value: float) -> None:
        """Add a number."""
        with self._cache.transact(retry=True):
            total, count = self._cache.get(self._key, default=(0.0, 0))
            self._set((total + value, count + 1))

    def get(self) -> Optional[float]:
        """Return the average; None if there are no numbers."""
        return _average(self._cache.get(self._key, default=(0.0, 0), retry=True))

    def pop(self) -> Optional[float]:
        """Return the average, and forget the numbers."""
        return _average(self._cache.pop(self._key, default=(0.0, 0), retry=True))


def _average(state: tuple[float, int]) -> Optional[float]:
    total, count = state
    return total / count if count else None


class Lock(_OnKey):
    """A lock for threads and processes. A thread must not acquire it twice."""

    def acquire(self) -> None:
        """Wait until the lock is free, and take it."""
        while not self._cache.add(self._key, None, expire=self._expire, tag=self._tag, retry=True):
            time.sleep(_PAUSE)

    def release(self) -> None:
        """Free the lock."""
        self._cache.delete(self._key, retry=True)

    def locked(self) -> bool:
        """Return whether the lock is taken."""
        return self._key in self._cache

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *exception: object) -> None:
        self.release()


class RLock(_OnKey):
    """A lock for threads and processes that its holder may acquire again."""

    def acquire(self) -> None:
        """Wait until no other thread has the lock, and take it."""
        me = _thread_name()
        while True:
            with self._cache.transact(retry=True):
                holder, count = self._cache.get(self._key, default=(None, 0))
                if holder == me or count == 0:
                    self._set((me, count + 1))
                    return
            time.sleep(_PAUSE)

    def release(self) -> None:
        """Free the lock once. Raises AssertionError if this thread does not hold it."""
        with self._cache.transact(retry=True):
            holder, count = self._cache.get(self._key, default=(None, 0))
            if holder != _thread_name() or count <= 0:
                raise AssertionError("cannot release un-acquired lock: this thread does not hold it")
            self._set((holder, count - 1))

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *exception: object) -> None:
        self.release()


def _thread_name() -> str:
    return f"{os.getpid()}-{threading.get_ident()}"


class BoundedSemaphore(_OnKey):
    """A semaphore for threads and processes.

    Args:
        value: How many may hold it at the same time.
    """

    def __init__(self, cache: Any, key: Any, value: int = 1, expire: Optional[float] = None, tag: Any = None) -> None:
        super().__init__(cache, key, expire, tag)
        self._value = value

    def acquire(self) -> None:
        """Wait until fewer than ``value`` hold the semaphore, and take it."""
        while True:
            with self._cache.transact(retry=True):
                left = self._cache.get(self._key, default=self._value)
                if left > 0:
                    self._set(left - 1)
                    return
            time.sleep(_PAUSE)

    def release(self) -> None:
        """Give the semaphore back. Raises AssertionError if nobody holds it."""
        with self._cache.transact(retry=True):
            left = self._cache.get(self._key, default=self._value)
            if left >= self._value:
                raise AssertionError("cannot release un-acquired semaphore: nobody holds it")
            self._set(left + 1)

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *exception: object) -> None:
        self.release()


def throttle(
    cache: Any,
    count: int,
    seconds: float,
    name: Optional[str] = None,
    expire: Optional[float] = None,
    tag: Any = None,
    time_func: Callable[[], float] = time.time,
    sleep_func: Callable[[float], Any] = time.sleep,
) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Return a decorator that lets a function run at most ``count`` times in ``seconds``, over all
    threads and processes. Other calls wait.

    Args:
        name: The key; None: the module and name of the function.
        expire, tag: Of the entry.
        time_func, sleep_func: The clock in seconds, and the function that waits.
    """

    def decorator(function: Callable[..., R]) -> Callable[..., R]:
        rate = count / seconds
        key = full_name(function) if name is None else name
        cache.set(key, (time_func(), count), expire=expire, tag=tag, retry=True)

        def take() -> float:
            """Take one call. Return 0, or the seconds to wait before the next attempt."""
            with cache.transact(retry=True):
                now = time_func()
                last, left = cache.get(key, default=(now, count))
                left = min(count, left + (now - last) * rate)
                if left < 1:
                    return (1 - left) / rate  # type: ignore[no-any-return]
                cache.set(key, (now, left - 1), expire=expire, tag=tag)
                return 0.0

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> R:
            delay = take()
            while delay > 0:
                sleep_func(delay)
                delay = take()
            return function(*args, **kwargs)

        return wrapper

    return decorator


def barrier(
    cache: Any,
    lock_factory: Callable[..., Any],
    name: Optional[str] = None,
    expire: Optional[float] = None,
    tag: Any = None,
) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Return a decorator that runs a function while a lock is held.

    Args:
        lock_factory: :class:`Lock`, :class:`RLock` or :class:`BoundedSemaphore`.
        name: The key; None: the module and name of the function.
        expire, tag: Of the lock.
    """

    def decorator(function: Callable[..., R]) -> Callable[..., R]:
        lock = lock_factory(cache, full_name(function) if name is None else name, expire=expire, tag=tag)

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> R:
            with lock:
                return function(*args, **kwargs)

        return wrapper

    return decorator
