"""The class Cache."""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Iterator
from typing import Any, Callable, Optional, TypeVar

from kvstore._transaction import Transaction
from kvstore.contrib.diskcache._base import FREQUENT, USED, encode_tag, result
from kvstore.contrib.diskcache._disk import ENOVAL
from kvstore.contrib.diskcache._maintenance import MaintenanceMethods
from kvstore.contrib.diskcache._memoize import memoized
from kvstore.contrib.diskcache._queues import QueueMethods
from kvstore.contrib.diskcache._tables import Tables

R = TypeVar("R")

#: Keys that an iterator reads at once: first, and later.
_FIRST_PAGE, _LARGEST_PAGE = 16, 1000
#: In microseconds: a counter that is incremented again within this time keeps its score.
_SAME_TIME = 1_000_000


class Cache(QueueMethods, MaintenanceMethods):
    """A cache with the interface of ``diskcache.Cache``, stored in one file of a directory.

    Values are data types of Python by default, and reading them runs no code: see
    :class:`~kvstore.contrib.diskcache.Disk`. All threads and processes may use a cache, also after a
    fork.

    Args:
        directory: The directory, created with the mode 0700 if it does not exist; None: a new
            temporary directory.
        timeout: Seconds that a call waits for other writers before it raises :exc:`Timeout`. Calls
            with ``retry=True`` wait without a limit.
        disk: The class that converts keys and values: :class:`Disk` or a subclass.
        settings: ``eviction_policy`` ("none", "least-recently-stored", "least-recently-used" or
            "least-frequently-used"), ``size_limit`` in bytes, ``cull_limit``, ``statistics``, and
            arguments of the disk after ``disk_``, such as ``disk_min_file_size``. They are stored in
            the file, and apply to everyone who opens it later without them. Settings that begin
            with ``sqlite_`` and ``tag_index`` are accepted and have no effect, except that
            ``sqlite_mmap_size=0`` reads the file without a memory map. ``serializer`` is
            short for ``disk_serializer``, and is not stored.

    Raises:
        ValueError: If ``disk`` or ``eviction_policy`` is not one of these.
        TypeError: If a setting is unknown.
        kvstore.Error: If the store cannot be opened.

    Expired entries are neither counted nor listed. (diskcache counts and lists them until they are
    removed.)
    """

    # Writing

    def set(
        self,
        key: Any,
        value: Any,
        expire: Optional[float] = None,
        read: bool = False,
        tag: Any = None,
        retry: bool = False,
    ) -> bool:
        """Store a value.

        Args:
            key: The key.
            value: The value; with ``read`` a file that is open for reading in binary mode.
            expire: Seconds until the entry expires; None: never.
            read: Whether ``value`` is a file, whose content is stored as bytes.
            tag: A str, int, float or bytes with which :meth:`evict` finds the entry.
            retry: Wait without a limit if the store is locked.

        Returns:
            True.

        Raises:
            Timeout: If the store stays locked and ``retry`` is False.
            TypeError: If the disk cannot convert the key or the value.
        """
        name, long_key = self._name(key)
        data, encoded_tag = self._stored(key, value, read), encode_tag(tag)
        self._write(lambda tables: self._put(tables, name, long_key, data, expire, encoded_tag), retry)
        return True

    def __setitem__(self, key: Any, value: Any) -> None:
        self.set(key, value, retry=True)

    def add(
        self,
        key: Any,
        value: Any,
        expire: Optional[float] = None,
        read: bool = False,
        tag: Any = None,
        retry: bool = False,
    ) -> bool:
        """Store a value only if the key does not exist. Return whether it was stored.

        Arguments and errors are those of :meth:`set`. Test and write are one atomic step. A value
        that cannot be read counts as missing, and is replaced.
        """
        name, long_key = self._name(key)
        data, encoded_tag = self._stored(key, value, read), encode_tag(tag)

        def exists(tables: Tables) -> bool:
            return self._value(tables.values.get(name)) is not ENOVAL

        def add(tables: Tables) -> bool:
            if exists(tables):
                return False
            self._put(tables, name, long_key, data, expire, encoded_tag)
            return True

        return not self._read(exists, retry) and self._write(add, retry)

    def touch(self, key: Any, expire: Optional[float] = None, retry: bool = False) -> bool:
        """Set when an entry expires: in ``expire`` seconds; None: never. Return whether it exists."""
        name, _ = self._name(key)

        def touch(tables: Tables) -> bool:
            entry = tables.entry(name)
            if entry is None:
                return False
            return tables.set_expiry(name, entry, self._moment(tables, expire))

        return self._write(touch, retry)

    def incr(self, key: Any, delta: Any = 1, default: Any = 0, retry: bool = False) -> Any:
        """Add ``delta`` to the number stored under a key, and return the sum.

        The entry keeps its expiry time and tag. A missing key counts as ``default``.

        Raises:
            KeyError: If the key does not exist and ``default`` is None.
            TypeError: If the value is not a number.
            Timeout: If the store stays locked and ``retry`` is False.
        """
        name, long_key = self._name(key)

        def add(tables: Tables) -> Any:
            value, described = self._value(tables.values.get(name)), tables.described(name)
            if value is ENOVAL or described is None:
                if default is None:
                    raise KeyError(key)
                total = default + delta
                self._put(tables, name, long_key, self._stored(key, total, False), None, b"")
                return total
            total = value + delta
            stored, (entry, expires_at) = self._stored(key, total, False), described
            if self.eviction_policy == FREQUENT:
                score = entry.score + 1
            else:
                score = self._score_of_new(self._now(tables))
                if abs(score - entry.score) < _SAME_TIME:
                    score = entry.score
            if score == entry.score and expires_at is None:
                tables.values.put(name, stored)
            else:
                tables.forget(entry)
                tables.write(name, entry._replace(score=score), stored, expires_at)
            return total

        return self._write(add, retry)

    def decr(self, key: Any, delta: Any = 1, default: Any = 0, retry: bool = False) -> Any:
        """Subtract ``delta`` from the number stored under a key. See :meth:`incr`."""
        if not isinstance(delta, numbers.Number):
            raise TypeError(f"delta must be a number, not {type(delta).__name__}")
        return self.incr(key, -delta, default, retry)  # type: ignore[operator]

    # Reading

    def get(
        self,
        key: Any,
        default: Any = None,
        read: bool = False,
        expire_time: bool = False,
        tag: bool = False,
        retry: bool = False,
    ) -> Any:
        """Return the value of a key; ``default`` if it does not exist.

        Args:
            key: The key.
            default: What to return if the key does not exist.
            read: Return a large value that is bytes as a file.
            expire_time: Return a tuple with the expiry time, in seconds since the Unix epoch, or None.
            tag: Return a tuple with the tag, after the expiry time if that is asked for, too.
            retry: Wait without a limit if the store is locked.
        """
        name, _ = self._name(key)
        if expire_time or tag:

            def look(tables: Tables) -> tuple[Optional[bytes], Optional[float], Any]:
                with Transaction(tables.values._state, False, joins=True):
                    return self._look(tables, name)

            data, moment, label = self._read(look, retry)
        else:
            data, moment, label = self._read(lambda tables: tables.values.get(name), retry), None, None
        value = self._value(data, read)
        if value is not ENOVAL and self.eviction_policy in (USED, FREQUENT):
            self._note_use(name)
        if self.statistics:
            self._count(value is not ENOVAL)
        return result(default if value is ENOVAL else value, moment, label, expire_time, tag)

    def __getitem__(self, key: Any) -> Any:
        value = self.get(key, default=ENOVAL, retry=True)
        if value is ENOVAL:
            raise KeyError(key)
        return value

    def read(self, key: Any, retry: bool = False) -> Any:
        """Return a large value that is bytes as a file, and any other value as it is.

        Raises:
            KeyError: If the key does not exist.
        """
        value = self.get(key, default=ENOVAL, read=True, retry=retry)
        if value is ENOVAL:
            raise KeyError(key)
        return value

    def __contains__(self, key: Any) -> bool:
        name, _ = self._name(key)
        return self._read(lambda tables: name in tables.values, retry=True)

    def __len__(self) -> int:
        return self._read(lambda tables: len(tables.values), retry=True)

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the keys in the order in which they were added."""
        return self._in_order(reverse=False)

    def __reversed__(self) -> Iterator[Any]:
        return self._in_order(reverse=True)

    def _in_order(self, reverse: bool) -> Iterator[Any]:
        end = self._read(Tables.next_position, retry=True)  # keys that are added meanwhile are left out
        return self._keys(lambda tables, place, limit: tables.names(place, end, reverse, limit))

    def iterkeys(self, reverse: bool = False) -> Iterator[Any]:
        """Iterate over the keys in sorted order: numbers, then str, then bytes, then others."""
        return self._keys(lambda tables, place, limit: [(name, name) for name in tables.sorted(place, reverse, limit)])

    def _key_at(self, place: int, reverse: bool) -> Any:
        """Return the key at a place in sorted order. Raises IndexError if there are fewer keys, and
        KeyError if the key cannot be read.
        """

        def look(tables: Tables) -> Any:
            return self._key(tables, tables.sorted(None, reverse, place + 1)[place])

        key = self._read(look, retry=True)
        if key is ENOVAL:
            raise KeyError(place)
        return key

    def _keys(self, page: Callable[[Tables, Optional[bytes], int], list[tuple[bytes, bytes]]]) -> Iterator[Any]:
        """Iterate over the keys of entries, and over those that are added meanwhile behind the current one.

        Args:
            page: Returns the next rows after a place, at most a number of them: pairs of their place
                and the name of the entry. Other calls may close the store between two pages.
        """
        place: Optional[bytes] = None
        limit = _FIRST_PAGE
        while True:
            rows, keys = self._read(lambda tables: self._page(tables, page(tables, place, limit)), retry=True)
            if not rows:  # a page that is not full is not the last: entries may be added before the next one is read
                return
            yield from keys
            place, limit = rows[-1][0], min(4 * limit, _LARGEST_PAGE)

    def _page(self, tables: Tables, rows: list[tuple[bytes, bytes]]) -> tuple[list[tuple[bytes, bytes]], list[Any]]:
        keys = (self._key(tables, name) for _, name in rows)
        return rows, [key for key in keys if key is not ENOVAL]

    # Removing

    def pop(
        self, key: Any, default: Any = None, expire_time: bool = False, tag: bool = False, retry: bool = False
    ) -> Any:
        """Remove an entry and return its value, as :meth:`get` does; ``default`` if it does not exist."""
        name, _ = self._name(key)
        data, moment, label = self._write(lambda tables: self._take(tables, name), retry)
        value = self._value(data)
        return result(default if value is ENOVAL else value, moment, label, expire_time, tag)

    def __delitem__(self, key: Any, retry: bool = True) -> None:
        if not self.delete(key, retry):
            raise KeyError(key)

    def delete(self, key: Any, retry: bool = False) -> bool:
        """Remove an entry. Return whether it existed."""
        name, _ = self._name(key)
        return self._write(lambda tables: self._remove(tables, [name]) > 0, retry)

    # The rest

    def memoize(
        self,
        name: Optional[str] = None,
        typed: bool = False,
        expire: Optional[float] = None,
        tag: Any = None,
        ignore: Iterable[Any] = (),
    ) -> Callable[[Callable[..., R]], Callable[..., R]]:
        """Return a decorator that stores the results of a function.

        Args:
            name: The first part of the keys; None: the module and name of the function.
            typed: Whether arguments of different types, such as 1 and 1.0, are different calls.
            expire: Seconds until a result expires; None: never; 0: results are not stored.
            tag: The tag of the entries.
            ignore: Positions and names of arguments that are not part of the key.

        The function ``__cache_key__`` of the decorated function returns the key of a call.
        """
        return memoized(self, name, typed, expire, tag, ignore)
