"""Iteration over keys, values and items, and the views that ``keys()``, ``values()`` and
``items()`` return.

The library reads rows in chunks, and callers get them one by one.

An iteration visits each live key once, in order, and continues while the store is written to.
Before each row it checks whether its own store has written since the chunk was read; if so it
continues reading after the last row. It does the same when another thread continues it, on that
thread's connection. rows.c produces the rows of keys, values and items. If two threads use one
iterator at the same moment, the second gets a ValueError, as with a generator.
"""

from __future__ import annotations

import sys
from collections.abc import ItemsView, Iterator, KeysView, ValuesView
from itertools import islice
from threading import get_ident
from typing import TYPE_CHECKING, Any, Callable, Optional, TypeVar

from kvstore._native import NULL, Data, Rows, ffi, lib, to_bytes
from kvstore._options import integer

if TYPE_CHECKING:
    from kvstore._connection_pool import Pin
    from kvstore._family_handle import FamilyHandle

T = TypeVar("T")
#: Creates a native iterator in the given KVIterator**, after a key (None: from the start).
Source = Callable[[Any, Optional[bytes]], int]

_REVERSE: int = lib.KVSTORE_RANGE_REVERSE
_OPEN: int = lib.KVSTORE_RANGE_OPEN
_KEYS_ONLY: int = lib.KVSTORE_RANGE_KEYS_ONLY
_FIRST_ROWS = 16

_MISSING: Any = object()
#: Numbers as in rows.c.
KEYS, VALUES, ITEMS = range(3)


def scan(family: FamilyHandle, source: Source, kind: int, limit: Optional[int] = None) -> Iterator[Any]:
    """Return an iterator over the rows that ``source`` reads, as keys, values or items."""
    state = family._state
    pin: Optional[Pin] = None

    def begin(address: int, after: Optional[bytes]) -> Optional[Callable[[], int]]:
        nonlocal pin
        pin = state.pin()  # keeps the connection as long as the native iterator, beyond its thread
        rc = source(ffi.cast("KVIterator **", address), after)
        if rc:
            family._fail(rc)
        return state.clock()

    size = _FIRST_ROWS if limit is None else min(limit, _FIRST_ROWS)
    rows: Iterator[Any] = Rows(begin, family._fail, state.changes, state.scans, kind, size)
    return rows if limit is None else islice(rows, limit)


def expiring(family: FamilyHandle, start_ms: int, stop_ms: int) -> Iterator[tuple[bytes, int]]:
    """Iterate over keys with their expiry times in milliseconds, earliest expiry first.

    Calls the library for each row.
    """
    out = ffi.new("KVIterator **")
    state = family._state
    changes, scans = state.changes, state.scans
    data, length, expire_ms = ffi.new("void **"), ffi.new("int *"), ffi.new("int64_t *")
    last = (start_ms, b"")
    pin: Optional[Pin] = None
    scans.append(None)
    try:
        while True:
            seen = changes[0]
            if out[0]:
                lib.kvstore_iterator_close(out[0])
                out[0] = NULL
            pin, thread = state.pin(), get_ident()
            rc = lib.kvstore_cf_expiring_iterator_create(family._cf, last[0], stop_ms, out)
            if rc:
                family._fail(rc)
            while changes[0] is seen and get_ident() == thread:
                if lib.kvstore_iterator_eof(out[0]):
                    family._must_be_open()
                    return
                rc = lib.kvstore_iterator_key(out[0], data, length)
                rc = rc or lib.kvstore_iterator_expire_ms(out[0], expire_ms)
                if rc:
                    family._fail(rc)
                here = (int(expire_ms[0]), bytes(ffi.buffer(data[0], length[0])))
                rc = lib.kvstore_iterator_next(out[0])
                if rc:
                    family._fail(rc)
                if here > last:  # else it was yielded before the iterator was recreated
                    last = here
                    yield here[1], here[0]
    finally:
        scans.pop()
        if out[0]:
            lib.kvstore_iterator_close(out[0])
        pin = None  # keep the connection until here


class Range:
    """A range of keys, given by its bounds, its direction and a maximum number of keys."""

    __slots__ = ("limit", "reverse", "start", "stop")

    def __init__(
        self,
        prefix: Optional[Data],
        start: Optional[Data],
        stop: Optional[Data],
        reverse: bool,
        limit: Optional[int],
    ) -> None:
        if limit is not None:
            limit = integer(limit, "limit", "an int or None")
            if limit < 0:
                raise ValueError(f"limit must be 0 or more, or None, not {limit}")
            limit = min(limit, sys.maxsize)  # islice takes no more
        self.start, self.stop = bounds(prefix, start, stop)
        self.reverse = bool(reverse)
        self.limit = limit

    def contains(self, key: bytes) -> bool:
        return (self.start is None or key >= self.start) and (self.stop is None or key < self.stop)

    def source(self, family: FamilyHandle, keys_only: bool) -> Source:
        """Return a function that creates native iterators over this range of a family."""
        fixed = (_REVERSE if self.reverse else 0) | (_KEYS_ONLY if keys_only else 0)

        def create(out: Any, after: Optional[bytes]) -> int:
            start, stop, flags = self.start, self.stop, fixed
            if after is not None:
                if self.reverse:
                    stop = after
                else:
                    start, flags = after, flags | _OPEN
            rc: int = lib.kvstore_cf_range_iterator_create(
                family._cf,
                start or NULL,
                len(start or b""),
                NULL if stop is None else stop,
                len(stop or b""),
                flags,
                out,
            )
            return rc

        return create


def bounds(
    prefix: Optional[Data], start: Optional[Data], stop: Optional[Data]
) -> tuple[Optional[bytes], Optional[bytes]]:
    """Combine ``prefix``, ``start`` and ``stop`` into one lower bound (inclusive) and one upper
    bound (exclusive).
    """
    low = None if start is None else to_bytes(start, "start")
    high = None if stop is None else to_bytes(stop, "stop")
    if prefix is not None:
        first = to_bytes(prefix, "prefix")
        low = first if low is None else max(low, first)
        after = successor(first)
        if after is not None:
            high = after if high is None else min(high, after)
    return low, high


def successor(prefix: bytes) -> Optional[bytes]:
    """Return the smallest bytes that are greater than everything that begins with ``prefix``; None
    if none exist.
    """
    cut = prefix.rstrip(b"\xff")
    return cut[:-1] + bytes([cut[-1] + 1]) if cut else None


def row_source(
    family: FamilyHandle, partition: bytes, start: Optional[bytes], stop: Optional[bytes], reverse: bool
) -> Source:
    """Return a function that creates native iterators over the rows of a partition of a family."""

    def create(out: Any, after: Optional[bytes]) -> int:
        low, high, flags = start, stop, _REVERSE if reverse else 0
        if after is not None:
            if reverse:
                high = after
            else:
                low, flags = after, flags | _OPEN
        rc: int = lib.kvstore_cf_row_iterator_create(
            family._cf,
            partition,
            len(partition),
            NULL if low is None else low,
            len(low or b""),
            NULL if high is None else high,
            len(high or b""),
            flags,
            out,
        )
        return rc

    return create


class _View:
    """Base class of the views on a range of a family. Each iteration over a view starts from the
    beginning.
    """

    __slots__ = ()

    if TYPE_CHECKING:
        _mapping: Any
        _range: Range
        _kind: int

    def __len__(self) -> int:
        chosen = self._range
        if chosen.start is None and chosen.stop is None:
            count: int = self._mapping.count()
            return count if chosen.limit is None else min(count, chosen.limit)
        return sum(1 for _ in scan(self._mapping, chosen.source(self._mapping, True), KEYS, chosen.limit))

    def __iter__(self) -> Iterator[Any]:
        source = self._range.source(self._mapping, self._kind == KEYS)
        rows = scan(self._mapping, source, self._kind, self._range.limit)
        decoded: Iterator[Any] = self._mapping._decoded(rows, self._kind)
        return decoded

    def __reversed__(self) -> Iterator[Any]:
        if self._range.limit is not None:
            return iter(list(self)[::-1])
        chosen = Range(None, self._range.start, self._range.stop, not self._range.reverse, None)
        rows = scan(self._mapping, chosen.source(self._mapping, self._kind == KEYS), self._kind)
        decoded: Iterator[Any] = self._mapping._decoded(rows, self._kind)
        return decoded

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._mapping!r}>"

    def _has(self, key: object) -> bool:
        """Return whether the range contains a live key. With a limit, return whether an iteration
        would yield it.
        """
        if not isinstance(key, (str, bytes, bytearray, memoryview)):
            return False
        wanted = to_bytes(key)
        if not self._range.contains(wanted):
            return False
        if self._range.limit is None:
            return wanted in self._mapping
        source = self._range.source(self._mapping, True)
        return any(key == wanted for key in scan(self._mapping, source, KEYS, self._range.limit))


class Keys(_View, KeysView[Any]):
    """A view of the live keys of a range, in order. It works like a set, but reads from the store
    on each use.
    """

    __slots__ = ("_range",)
    _kind = KEYS

    def __init__(self, family: Any, chosen: Range) -> None:
        self._mapping = family
        self._range = chosen

    def __contains__(self, key: object) -> bool:
        return self._has(key)


class Values(_View, ValuesView[Any]):
    """A view of the values of a range, in the order of their keys."""

    __slots__ = ("_range",)
    _kind = VALUES

    def __init__(self, family: Any, chosen: Range) -> None:
        self._mapping = family
        self._range = chosen

    def __contains__(self, value: object) -> bool:
        return any(value == here for here in self)


class Items(_View, ItemsView[Any, Any]):
    """A view of the live ``(key, value)`` pairs of a range, in key order."""

    __slots__ = ("_range",)
    _kind = ITEMS

    def __init__(self, family: Any, chosen: Range) -> None:
        self._mapping = family
        self._range = chosen

    def __contains__(self, item: object) -> bool:
        if not isinstance(item, tuple) or len(item) != 2 or not self._has(item[0]):
            return False
        return bool(self._mapping.get(item[0], _MISSING) == item[1])
