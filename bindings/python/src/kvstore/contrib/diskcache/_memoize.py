"""Decorators that store the results of functions: ``Cache.memoize`` and ``memoize_stampede``."""

from __future__ import annotations

import functools
import logging
import math
import random
import threading
import time
from collections.abc import Iterable
from typing import Any, Callable, Optional, TypeVar

import kvstore
from kvstore.contrib.diskcache._disk import ENOVAL

R = TypeVar("R")

_log = logging.getLogger("kvstore.contrib")


def full_name(function: Callable[..., Any]) -> str:
    """Return the module and qualified name of a function."""
    return f"{function.__module__}.{function.__qualname__}"


def args_to_key(
    base: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any], typed: bool, ignore: Iterable[Any]
) -> tuple[Any, ...]:
    """Return the key for a call: ``base``, the arguments, and with ``typed`` the names of their types."""
    left_out = set(ignore)
    args = tuple(arg for place, arg in enumerate(args) if place not in left_out)
    named = sorted((name, value) for name, value in kwargs.items() if name not in left_out)
    key = (*base, *args, None)
    for item in named:
        key += item
    if typed:
        key += tuple(_type_name(value) for value in (*args, *(value for _, value in named)))
    return key


def _type_name(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _key_function(
    function: Callable[..., Any], name: Optional[str], typed: bool, ignored: frozenset[Any]
) -> Callable[..., tuple[Any, ...]]:
    """Return the function that returns the key for a call of ``function``."""
    base = (full_name(function) if name is None else name,)
    return lambda *args, **kwargs: args_to_key(base, args, kwargs, typed, ignored)


def memoized(
    cache: Any, name: Optional[str], typed: bool, expire: Optional[float], tag: Any, ignore: Iterable[Any]
) -> Callable[[Callable[..., R]], Callable[..., R]]:
    _must_not_be_a_function(name, "memoize")
    ignored = frozenset(ignore)

    def decorator(function: Callable[..., R]) -> Callable[..., R]:
        key_of = _key_function(function, name, typed, ignored)

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> R:
            key = key_of(*args, **kwargs)
            try:
                result = cache.get(key, default=ENOVAL, retry=True)
            except kvstore.Error as error:
                _ignore(error)
                return function(*args, **kwargs)
            if result is ENOVAL:
                result = function(*args, **kwargs)
                if expire is None or expire > 0:
                    _keep(cache, key, result, expire, tag)
            return result  # type: ignore[no-any-return]

        wrapper.__cache_key__ = key_of  # type: ignore[attr-defined]
        return wrapper

    return decorator


def memoize_stampede(
    cache: Any,
    expire: float,
    name: Optional[str] = None,
    typed: bool = False,
    tag: Any = None,
    beta: float = 1,
    ignore: Iterable[Any] = (),
) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Return a decorator that stores the results of a function, and computes a result again shortly
    before it expires, in a thread.

    So callers do not all compute it when it expires. How long before is random, and longer for
    functions that take longer. Source: Vattani, Chierichetti, Lowenstein, "Optimal Probabilistic
    Cache Stampede Prevention", VLDB 2015.

    Args:
        cache: The cache.
        expire: Seconds until a result expires.
        beta: A larger number computes results earlier.
        name, typed, tag, ignore: As for :meth:`Cache.memoize`.
    """
    _must_not_be_a_function(name, "memoize_stampede")
    ignored = frozenset(ignore)

    def decorator(function: Callable[..., R]) -> Callable[..., R]:
        key_of = _key_function(function, name, typed, ignored)

        def timed(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[R, float]:
            began = time.monotonic()
            result = function(*args, **kwargs)
            return result, time.monotonic() - began

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> R:
            key = key_of(*args, **kwargs)
            pair, moment = cache.get(key, default=ENOVAL, expire_time=True, retry=True)
            if pair is ENOVAL:
                pair = timed(args, kwargs)
                _keep(cache, key, pair, expire, tag)
                return pair[0]
            result, duration = pair
            if moment is not None and time.time() - duration * beta * math.log(1 - random.random()) >= moment:
                if cache.add((*key, ENOVAL[0]), None, expire=duration, retry=True):  # one thread is enough

                    def renew() -> None:
                        with cache:
                            _keep(cache, key, timed(args, kwargs), expire, tag)

                    threading.Thread(target=renew, daemon=True).start()
            return result  # type: ignore[no-any-return]

        wrapper.__cache_key__ = key_of  # type: ignore[attr-defined]
        return wrapper

    return decorator


def _keep(cache: Any, key: Any, value: Any, expire: Optional[float], tag: Any) -> None:
    """Store a result. A cache must not break what it caches: a store that fails is logged."""
    try:
        cache.set(key, value, expire, tag=tag, retry=True)
    except kvstore.Error as error:
        _ignore(error)


def _ignore(error: kvstore.Error) -> None:
    _log.warning("a result was not read from the cache, or not stored in it: %s", error)


def _must_not_be_a_function(name: Any, decorator: str) -> None:
    if callable(name):
        raise TypeError(f"write @cache.{decorator}() with parentheses, or give name= as a str")
