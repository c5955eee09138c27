"""Iteration: rows in chunks from the library, one by one to the caller; views on ranges.

An iteration sees each live key once, in order, and may go on while the store is written to: it looks
before each row whether its own store has written since the chunk was read, and if so reads on after
the last row. The iterators are generators: Python itself keeps two threads from running one of them.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Sequence, ValuesView
from functools import lru_cache
from itertools import islice
from operator import length_hint
from struct import Struct
from typing import TYPE_CHECKING, Any, Callable, Optional, TypeVar

from kvstore._native import NULL, Data, ffi, lib, to_bytes

if TYPE_CHECKING:
    from kvstore._handle import Handle

T = TypeVar("T")
#: Makes a native iterator into the given KVIterator**, after a key (None: from the start).
Source = Callable[[Any, Optional[bytes]], int]

_NO_TTL: int = lib.KVSTORE_NO_TTL
_NEVER: int = (1 << 63) - 1
_REVERSE: int = lib.KVSTORE_RANGE_REVERSE
_OPEN: int = lib.KVSTORE_RANGE_OPEN
_KEYS_ONLY: int = lib.KVSTORE_RANGE_KEYS_ONLY
_FIRST_ROWS = 16
_unpack = ffi.unpack
_MOST_ROWS: int = lib.KVPY_CHUNK_ROWS

#: Chunks that no iteration is filling just now.
_chunks: list[Any] = []

KEYS, VALUES, ITEMS = range(3)


def scan(family: Handle, source: Source, kind: int, limit: Optional[int] = None) -> Iterator[Any]:
    """The rows of ``source`` as keys, values or items."""
    rows = _scan(family, source, kind, _FIRST_ROWS if limit is None else min(limit, _FIRST_ROWS))
    return rows if limit is None else islice(rows, limit)


def _scan(family: Handle, source: Source, kind: int, size: int) -> Iterator[Any]:
    changes, scans = family._shared.changes, family._shared.scans
    out = ffi.new("KVIterator **")
    fill = lib.kvpy_fill
    with_values = kind != KEYS
    after: Optional[bytes] = None
    rows: Sequence[Any]
    scans.append(None)  # before the first read: writes tell from now on
    try:
        while True:
            seen = changes[0]  # before the read: what is written from now on is noticed
            if out[0]:
                lib.kvstore_iterator_close(out[0])
                out[0] = NULL
            rc = source(out, after)
            if rc:
                family._fail(rc)
            ended = False
            while not ended and changes[0] is seen:
                try:
                    chunk = _chunks.pop()
                except IndexError:
                    chunk = new_chunk()
                count = fill(out[0], with_values, size, chunk)
                failed, ended = chunk.failed, chunk.at_eof
                expires: Optional[list[int]] = None
                if chunk.first_expire_ms != _NEVER:
                    expires = _unpack(chunk.expire_ms, count)
                rows, key_of = _split(chunk, count, kind)
                _chunks.append(chunk)
                # The rows that are left say which one is the last shown: no key goes along with each.
                left = iter(rows)
                if expires is None:
                    for row in left:
                        yield row
                        if changes[0] is not seen:
                            break
                else:
                    now_ms = family._shared.now_ms
                    for row, expire_ms in zip(left, expires):
                        if expire_ms == _NO_TTL or expire_ms > now_ms():
                            yield row
                            if changes[0] is not seen:
                                break
                if count:
                    after = key_of(count - 1 - length_hint(left))
                if failed and changes[0] is seen:
                    family._fail(failed)
                size = min(size * 2, _MOST_ROWS)
            if ended and changes[0] is seen:
                return
            size = 1  # whoever writes between two rows is likely to do so again
    finally:
        scans.pop()
        if out[0]:
            lib.kvstore_iterator_close(out[0])


def new_chunk() -> Any:
    """Room for rows that are read in one step."""
    return ffi.gc(ffi.new("kvpy_chunk *"), lib.kvpy_free_chunk)


def _split(chunk: Any, count: int, kind: int) -> tuple[Sequence[Any], Callable[[int], bytes]]:
    """A chunk's rows as keys, values or items, and what gives the key of each by its number."""
    n_key, n_value = chunk.n_key, chunk.n_value  # of rows of a partition, keys may be empty
    if count >= _FIRST_ROWS and n_key > 0 and n_value >= 0:  # all rows have these lengths: no slice for each
        size = n_key + n_value
        data = _unpack(chunk.bytes, count * size)
        if kind == ITEMS:
            rows: Sequence[Any] = list(_layout(f"{n_key}s{n_value}s", 1).iter_unpack(data))
        else:
            form = f"{n_key}x{n_value}s" if kind == VALUES else f"{n_key}s"
            rows = _layout(form, count).unpack(data)
        return rows, lambda at: data[at * size : at * size + n_key]
    if not count:
        return (), lambda at: b""
    ends = _unpack(chunk.ends, count if kind == KEYS else 2 * count)
    data = _unpack(chunk.bytes, ends[-1])
    start = 0
    parts = [data[start : (start := end)] for end in ends]
    keys = parts if kind == KEYS else parts[::2]
    rows = keys if kind == KEYS else parts[1::2] if kind == VALUES else list(zip(keys, parts[1::2]))
    return rows, keys.__getitem__


@lru_cache(maxsize=32)
def _layout(row: str, count: int) -> Struct:
    """Takes so many rows apart that all look like this one."""
    return Struct(row * count)


def expiring(family: Handle, start_ms: int, stop_ms: int) -> Iterator[tuple[bytes, int]]:
    """Keys with their expire_ms, in the order of expiry. Asks the library for each row."""
    out = ffi.new("KVIterator **")
    changes, scans = family._shared.changes, family._shared.scans
    data, length, expire_ms = ffi.new("void **"), ffi.new("int *"), ffi.new("int64_t *")
    last = (start_ms, b"")
    scans.append(None)
    try:
        while True:
            seen = changes[0]
            if out[0]:
                lib.kvstore_iterator_close(out[0])
                out[0] = NULL
            rc = lib.kvstore_cf_expiring_iterator_create(family._cf, last[0], stop_ms, out)
            if rc:
                family._fail(rc)
            while changes[0] is seen:
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
                if here > last:  # else it was shown before the iterator was made anew
                    last = here
                    yield here[1], here[0]
    finally:
        scans.pop()
        if out[0]:
            lib.kvstore_iterator_close(out[0])


class Range:
    """Which keys: bounds, direction, how many at most."""

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
            if isinstance(limit, bool) or not hasattr(limit, "__index__"):
                raise TypeError(f"limit must be an int or None, not {type(limit).__name__}")
            limit = limit.__index__()
            if limit < 0:
                raise ValueError(f"limit cannot be negative: {limit}")
        self.start, self.stop = bounds(prefix, start, stop)
        self.reverse = bool(reverse)
        self.limit = limit

    def contains(self, key: bytes) -> bool:
        return (self.start is None or key >= self.start) and (self.stop is None or key < self.stop)

    def source(self, family: Handle, keys_only: bool) -> Source:
        """Makes native iterators over the range."""
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
    """The first key, and the key after the last, of what is in a range and begins with a prefix."""
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
    """The least bytes after all that begin with a prefix; None if there are none."""
    cut = prefix.rstrip(b"\xff")
    return cut[:-1] + bytes([cut[-1] + 1]) if cut else None


def row_source(
    family: Handle, partition: bytes, start: Optional[bytes], stop: Optional[bytes], reverse: bool
) -> Source:
    """Makes native iterators over the rows of a partition."""

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
    """What the views on a range of a family have in common. Each iteration begins anew."""

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
        return scan(self._mapping, source, self._kind, self._range.limit)

    def __reversed__(self) -> Iterator[Any]:
        if self._range.limit is not None:
            return iter(list(self)[::-1])
        chosen = Range(None, self._range.start, self._range.stop, not self._range.reverse, None)
        return scan(self._mapping, chosen.source(self._mapping, self._kind == KEYS), self._kind)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._mapping!r}>"

    def _has(self, key: object) -> bool:
        """Whether the range has the key; for one with a limit, whether the iteration shows it."""
        if not isinstance(key, (str, bytes, bytearray, memoryview)):
            return False
        wanted = to_bytes(key)
        if not self._range.contains(wanted):
            return False
        if self._range.limit is None:
            return wanted in self._mapping
        source = self._range.source(self._mapping, True)
        return any(key == wanted for key in scan(self._mapping, source, KEYS, self._range.limit))


class Keys(_View, KeysView[bytes]):
    """The live keys of a range, in order. A set, except that it is read from the store each time."""

    __slots__ = ("_range",)
    _kind = KEYS

    def __init__(self, family: Any, chosen: Range) -> None:
        self._mapping = family
        self._range = chosen

    def __contains__(self, key: object) -> bool:
        return self._has(key)


class Values(_View, ValuesView[bytes]):
    """The values of the live keys of a range, in the order of the keys."""

    __slots__ = ("_range",)
    _kind = VALUES

    def __init__(self, family: Any, chosen: Range) -> None:
        self._mapping = family
        self._range = chosen

    def __contains__(self, value: object) -> bool:
        return any(value == here for here in self)


class Items(_View, ItemsView[bytes, bytes]):
    """Pairs of live keys and their values, in the order of the keys."""

    __slots__ = ("_range",)
    _kind = ITEMS

    def __init__(self, family: Any, chosen: Range) -> None:
        self._mapping = family
        self._range = chosen

    def __contains__(self, item: object) -> bool:
        if not isinstance(item, tuple) or len(item) != 2 or not self._has(item[0]):
            return False
        return bool(self._mapping.get(item[0]) == item[1])
