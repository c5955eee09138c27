"""The methods that django-redis has beyond Django's interface of caches. Mixed into KVStoreCache.

Names, arguments and results are those of django-redis. Where a Redis command would fail or lose
data without need, the method does what its documentation says instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, Callable, Optional, Union

from django.core.cache.backends.base import DEFAULT_TIMEOUT, BaseCache, get_key_func
from django.core.exceptions import ImproperlyConfigured

import kvstore
from kvstore.contrib._globs import Glob, escape
from kvstore.contrib._locks import CacheLock
from kvstore.contrib._names import StoredName, is_replaced, name_of, prefix_of
from kvstore.contrib._storage import Storage
from kvstore.contrib._timeouts import LONGEST, Timeout

#: The number of keys that a walk reads, and delete_pattern deletes, at once.
_KEYS_AT_ONCE = 1000
#: Moments from the year 318,857 on, in seconds, never come.
_NEVER = 10_000_000_000_000

#: A moment: seconds or milliseconds since the Unix epoch, or a datetime. A naive one is local time.
When = Union[float, datetime]


class RedisMethods(BaseCache):
    """Base class of KVStoreCache with the methods that django-redis adds."""

    _storage: Storage

    def __init__(self, params: dict[str, Any]) -> None:
        super().__init__(params)
        reverse = params.get("REVERSE_KEY_FUNCTION")
        self._reverse: Optional[Callable[[str], str]] = get_key_func(reverse) if reverse else None

    def _name(self, key: Any, version: Optional[int]) -> StoredName:
        """Return the name in the store of a key."""
        return name_of(self.make_and_validate_key(key, version=version))

    # Keys

    def keys(self, search: str, version: Optional[int] = None) -> list[str]:
        """Return the keys that match a glob pattern of Redis, in the order of their bytes.

        Args:
            search: ``*`` stands for any characters, ``?`` for one, ``[abc]`` and ``[a-c]`` for one
                of a set, ``[^abc]`` for one outside of it; a backslash removes the special meaning
                of the next character. Only the keys that begin with the characters before the first
                special one are read.
            version: The version of the keys; None: VERSION of the settings.

        Raises:
            kvstore.Error: If the store fails; with IGNORE_ERRORS, the keys found so far are returned.
            ImproperlyConfigured: If KEY_FUNCTION cannot be reversed: set REVERSE_KEY_FUNCTION.
        """
        return list(self.iter_keys(search, version=version))

    def iter_keys(self, search: str, itersize: Optional[int] = None, *, version: Optional[int] = None) -> Iterator[str]:
        """Iterate over the keys that match a glob pattern. See :meth:`keys`.

        The cache may be changed meanwhile. A key that exists all the time is returned exactly once.

        Args:
            search: The pattern.
            itersize: The number of keys that are read at once; None: 1000.
            version: The version of the keys; None: VERSION of the settings.

        Raises:
            ValueError: If ``itersize`` is less than 1.
        """
        at_once = _itersize(itersize)
        glob = self._glob(search, version)
        return (self._original_key(name, version) for names in self._walk(glob, at_once) for name in names)

    def delete_pattern(
        self,
        pattern: str,
        version: Optional[int] = None,
        prefix: Optional[str] = None,
        itersize: Optional[int] = None,
    ) -> int:
        """Delete the keys that match a glob pattern, and return how many were deleted.

        A pattern that ends with its only special character, a ``*``, is one transaction. Otherwise
        up to ``itersize`` keys are read and deleted at a time.

        Args:
            pattern: See :meth:`keys`.
            version: The version of the keys; None: VERSION of the settings.
            prefix: Used in place of KEY_PREFIX.
            itersize: The number of keys that are read and deleted at once; None: 1000.

        Raises:
            kvstore.Error: If the store fails; with IGNORE_ERRORS, the number of keys deleted so far
                is returned.
            ValueError: If ``itersize`` is less than 1.
        """
        at_once = _itersize(itersize)
        glob = self._glob(pattern, version, prefix)
        start = prefix_of(glob.prefix)
        if glob.is_prefix and glob.prefix and start == glob.prefix.encode():
            return self._storage.read(lambda family: family.delete_range(prefix=start), 0)
        if glob.is_exact:
            return self._delete([name_of(glob.prefix)])
        return sum(map(self._delete, self._walk(glob, at_once, True)))

    def _delete(self, names: list[Any]) -> int:
        return self._storage.read(lambda family: family.delete_many(names), 0)

    def _glob(self, pattern: str, version: Optional[int], prefix: Optional[str] = None) -> Glob:
        """Return the pattern of the names in the store, for a pattern of keys."""
        if version is None:
            version = self.version
        text = str(version)
        escaped = escape(text)
        return Glob(
            self.key_func(
                pattern, escape(self.key_prefix if prefix is None else prefix), version if escaped == text else escaped
            )
        )

    def _walk(self, glob: Glob, at_once: int, with_replaced: bool = False) -> Iterator[list[Any]]:
        """Iterate over the matching names in the store, in lists.

        ``with_replaced``: with all names of keys that the store cannot hold and that may match. Only their first
        bytes are known.
        """
        if glob.is_exact:
            if self._storage.read(lambda family: family.has_key(name_of(glob.prefix)), False):
                yield [glob.prefix]
            return
        start: Optional[bytes] = None
        while True:
            found = self._names(prefix_of(glob.prefix), start, at_once)
            names: list[StoredName] = [
                name for name in map(_decoded, found) if name is not None and glob.matches(name)
            ]
            if with_replaced:
                names += [name for name in found if is_replaced(name)]
            if names:
                yield names
            if len(found) < at_once:
                return
            start = found[-1] + b"\0"

    def _names(self, prefix: bytes, start: Optional[bytes], limit: int) -> list[bytes]:
        none: list[bytes] = []
        return self._storage.read(lambda family: list(family.keys(prefix=prefix, start=start, limit=limit)), none)

    def _original_key(self, name: str, version: Optional[int]) -> str:
        """Return the key of Django that has a name in the store."""
        if self._reverse is not None:
            return self._reverse(name)
        before = self.make_key("", version=version)
        key = name[len(before) :]
        if self.make_key(key, version=version) != name:
            raise ImproperlyConfigured(
                "keys() and iter_keys() cannot convert keys back that KEY_FUNCTION made: set REVERSE_KEY_FUNCTION to "
                "the dotted name of a function that takes such a key and returns the original one"
            )
        return key

    # Expiry

    def ttl(self, key: Any, version: Optional[int] = None) -> Optional[int]:
        """Return the remaining seconds of a key, rounded to a whole number of at least 1.

        Returns:
            None if the key does not expire; 0 if it does not exist.
        """
        left = self.pttl(key, version)
        return max(1, (left + 500) // 1000) if left else left

    def pttl(self, key: Any, version: Optional[int] = None) -> Optional[int]:
        """Return the remaining milliseconds of a key.

        Returns:
            None if the key does not expire; 0 if it does not exist.
        """
        name = self._name(key, version)

        def left(family: kvstore.Family) -> Optional[int]:
            try:
                seconds = family.ttl(name)
            except kvstore.NotFoundError:
                return 0
            return None if seconds is None else round(seconds * 1000)

        missing: Optional[int] = 0
        return self._storage.read(left, missing)

    def expire(self, key: Any, timeout: Any, version: Optional[int] = None) -> bool:
        """Set the timeout of a key, and return whether the key exists. Its value stays the same.

        Args:
            key: The key.
            timeout: Seconds or a ``timedelta`` from now. None: the key does not expire. 0 and less:
                the key is deleted. DEFAULT_TIMEOUT: TIMEOUT of the settings.
            version: The version of the key; None: VERSION of the settings.
        """
        return bool(self.touch(key, timeout, version))

    def pexpire(self, key: Any, timeout: Any, version: Optional[int] = None) -> bool:
        """Set the timeout of a key in milliseconds. See :meth:`expire`."""
        if timeout is not None and timeout != DEFAULT_TIMEOUT and not isinstance(timeout, timedelta):
            timeout = None if timeout >= LONGEST * 1000 else timeout / 1000
        return self.expire(key, timeout, version)

    def expire_at(self, key: Any, when: When, version: Optional[int] = None) -> bool:
        """Set the moment when a key expires, and return whether the key exists.

        Args:
            key: The key.
            when: Seconds since the Unix epoch, or a ``datetime``; a naive one is local time. If it
                is in the past, the key is deleted.
            version: The version of the key; None: VERSION of the settings.

        Raises:
            ValueError: If ``when`` is a positive number before 1973, which is a duration, or looks
                like milliseconds.
        """
        return self._expire_at(key, when, 1, version)

    def pexpire_at(self, key: Any, when: When, version: Optional[int] = None) -> bool:
        """Set the moment when a key expires, in milliseconds since the Unix epoch. See
        :meth:`expire_at`.
        """
        return self._expire_at(key, when, 1000, version)

    def _expire_at(self, key: Any, when: When, units: int, version: Optional[int]) -> bool:
        """Set the moment when a key expires. A number ``when`` counts ``units`` a second."""
        name = self._name(key, version)
        if not isinstance(when, (datetime, int, float)):
            raise TypeError(f"when must be a number or a datetime, not {type(when).__name__}")
        try:
            if isinstance(when, datetime):
                moment = when.timestamp()
            else:
                moment = kvstore.FOREVER if when >= _NEVER * units else when / units
            return self._storage.read(lambda family: family.expire(name, expires_at=moment), False)
        except (ValueError, OverflowError):
            own, other = "seconds", "milliseconds pexpire_at()"
            if units > 1:
                own, other = "milliseconds", "seconds expire_at()"
            raise ValueError(
                f"when must be a moment in {own} since the Unix epoch, or a datetime, not {when!r}: for a duration "
                f"use expire() or pexpire(), for a moment in {other}"
            ) from None

    def persist(self, key: Any, version: Optional[int] = None) -> bool:
        """Remove the timeout of a key, so that it does not expire.

        Returns:
            True if the key had a timeout; False if it had none or does not exist.
        """
        name = self._name(key, version)
        return self._storage.read(lambda family: family.persist(name), False)

    # Locks

    def lock(
        self,
        key: Any,
        version: Optional[int] = None,
        timeout: Optional[Timeout] = None,
        sleep: float = 0.1,
        blocking: bool = True,
        blocking_timeout: Optional[Timeout] = None,
        *,
        thread_local: bool = True,
    ) -> CacheLock:
        """Return a lock, which one thread of one process holds at a time. Use it with ``with``, as a
        decorator, or with ``acquire`` and ``release``.

        Locks of the same key are the same lock. The lock is the key: ``delete``, ``clear`` and the
        limits MAX_ENTRIES and MAX_BYTES can remove it, and another holder can acquire it then. Give
        locks a cache of their own, or use :class:`kvstore.recipes.Lock`, if that must not happen.

        Args:
            key: The key. While the lock is held, the key exists.
            version: The version of the key; None: VERSION of the settings.
            timeout: Seconds after which the lock is free, even if it was not released. None: it is
                held until it is released. If its process dies, or the lock object or the holding
                thread ends, it is free within 60 seconds; a thread in the background renews it.
            sleep: Accepted for compatibility. The lock is tried at least every 50 ms.
            blocking: Wait until the lock is free. ``with`` raises TimeoutError otherwise.
            blocking_timeout: The longest wait in seconds; None: no limit.
            thread_local: The lock belongs to the thread that acquired it. If False, it belongs to
                the object, and any thread may release it.

        Raises:
            ValueError: If ``timeout`` is not positive, or ``blocking_timeout`` is negative.
            kvstore.Error: If the store fails, whatever IGNORE_ERRORS is.
        """
        name = self._name(key, version)
        return CacheLock(self._storage, name, timeout, blocking, blocking_timeout, thread_local)


def _itersize(itersize: Optional[int]) -> int:
    if itersize is None:
        return _KEYS_AT_ONCE
    if isinstance(itersize, bool) or not isinstance(itersize, int) or itersize < 1:
        raise ValueError(f"itersize must be an int of 1 or more, not {itersize!r}")
    return itersize


def _decoded(name: bytes) -> Optional[str]:
    """Return the name of a key in the store as a str; None if another program wrote it, not as UTF-8."""
    try:
        return name.decode()
    except UnicodeDecodeError:
        return None
