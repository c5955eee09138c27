"""The families of a cache in its store, and the rows that make up an entry.

============  =====================================  =======================================
family        key                                    value
============  =====================================  =======================================
``values``    name of the entry                      type of the value, value
``entries``   name of the entry                      position, score, tag; encoded key if the
                                                     name is a hash
``order``     position                               name of the entry
``scores``    score, position                        name of the entry
``tags``      tag with its length, position          name of the entry
``settings``  name of a setting                      JSON; ``hits`` and ``misses`` in decimal
============  =====================================  =======================================

The name of an entry is its encoded key, or a hash of it: see _keys. Positions number the entries
in the order in which they were added. The score is what the eviction policy compares: the entry
with the lowest score is evicted first. Numbers have 8 bytes, big-endian. All rows of an entry
expire at the same millisecond, and are written and removed in one transaction.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple, Optional

from kvstore import FOREVER, Family, NotFoundError, Store

_HEAD = struct.Struct(">QQH")
_PAIR = struct.Struct(">QQ")
_NUMBER = struct.Struct(">Q")
_DOUBLE = struct.Struct(">d")
_BYTES, _STR, _INT, _FLOAT = range(4)
#: Positions and scores are below this. Larger ones are damage.
_LIMIT = 1 << 63
#: The longest key of a store, in bytes.
_LONGEST_KEY = 65_536


class Entry(NamedTuple):
    """What the family ``entries`` stores about an entry."""

    position: int
    score: int
    #: The encoded tag; empty: none.
    tag: bytes
    #: The encoded key, if the name of the entry is a hash; otherwise empty.
    key: bytes


class Tables(NamedTuple):
    """The open families of a cache."""

    values: Family
    entries: Family
    order: Family
    scores: Family
    tags: Family
    settings: Family

    @staticmethod
    def of(store: Store) -> Tables:
        """Open the families in a store, and create those that do not exist."""
        return Tables(*(store.family(f"diskcache {name}", create=True, codec=None) for name in Tables._fields))

    def entry(self, name: bytes) -> Optional[Entry]:
        """Return what is stored about an entry; None if it does not exist, has expired, or cannot be
        read.
        """
        row = self.entries.get(name) if 0 < len(name) <= _LONGEST_KEY else None
        if row is None or len(row) < _HEAD.size:
            return None
        position, score, length = _HEAD.unpack_from(row)
        if position >= _LIMIT or score >= _LIMIT:
            return None
        tag_end = _HEAD.size + length
        return Entry(position, score, row[_HEAD.size : tag_end], row[tag_end:])

    def described(self, name: bytes) -> Optional[tuple[Entry, Optional[float]]]:
        """Return what is stored about an entry, and its expiry time; None as for :meth:`entry`."""
        entry = self.entry(name)
        if entry is None:
            return None
        try:
            return entry, self.entries.expires_at(name)
        except NotFoundError:  # it has just expired
            return None

    def next_position(self) -> int:
        for last in self.order.keys(stop=_NUMBER.pack(_LIMIT), reverse=True, limit=1):
            return int.from_bytes(last[: _NUMBER.size].ljust(_NUMBER.size, b"\0"), "big") + 1
        return 1

    def write(self, name: bytes, entry: Entry, value: bytes, expires_at: Optional[float]) -> None:
        """Write all rows of an entry. ``expires_at`` is in seconds since the Unix epoch; None: never."""
        _put(self.values, name, value, expires_at)
        self.describe(name, entry, expires_at)

    def describe(self, name: bytes, entry: Entry, expires_at: Optional[float]) -> None:
        """Write the rows of an entry that are not its value."""
        row = _HEAD.pack(entry.position, entry.score, len(entry.tag)) + entry.tag + entry.key
        _put(self.entries, name, row, expires_at)
        for family, key in self.references(entry):
            _put(family, key, name, expires_at)

    def forget(self, entry: Entry) -> None:
        """Remove the score and the tag of an entry, before others are written."""
        for family, key in self.references(entry)[1:]:
            family.delete(key)

    def references(self, entry: Entry) -> list[tuple[Family, bytes]]:
        """Return the rows whose value is the name of the entry: in ``order``, ``scores`` and ``tags``."""
        rows = [
            (self.order, _NUMBER.pack(entry.position)),
            (self.scores, _PAIR.pack(entry.score, entry.position)),
        ]
        if entry.tag:
            rows.append((self.tags, _tag_prefix(entry.tag) + _NUMBER.pack(entry.position)))
        return rows

    def remove(self, name: bytes, entry: Entry) -> None:
        """Remove all rows of an entry."""
        self.values.delete(name)
        self.entries.delete(name)
        for family, key in self.references(entry):
            family.delete(key)

    def set_expiry(self, name: bytes, entry: Entry, expires_at: Optional[float]) -> bool:
        """Change the expiry time of all rows of an entry. Return False, and remove the rows, if the
        entry expires while this is done.
        """
        for family, key in ((self.values, name), (self.entries, name), *self.references(entry)):
            if expires_at is None:
                is_live = family.expire(key, FOREVER)
            else:
                is_live = family.expire(key, expires_at=expires_at)
            if not is_live:
                self.remove(name, entry)
                return False
        return True

    def tagged(self, tag: bytes, limit: int) -> list[bytes]:
        """Return the names of entries with a tag, at most ``limit``. Rows without an entry, which only
        damage leaves, are removed.
        """
        return self._first(self.tags, _tag_prefix(tag), limit)

    def lowest(self, limit: int) -> list[bytes]:
        """Return the names of the entries that the eviction policy removes first, like :meth:`tagged`."""
        return self._first(self.scores, b"", limit)

    def _first(self, family: Family, prefix: bytes, limit: int) -> list[bytes]:
        while True:
            rows = list(family.items(prefix=prefix, limit=limit))
            stray = [key for key, name in rows if not self.refers(family, key, name)]
            if not stray:
                return [name for _, name in rows]
            family.delete_many(stray)

    def refers(self, family: Family, key: bytes, name: bytes) -> bool:
        """Return whether a row of ``order``, ``scores`` or ``tags`` is one of the entry that it names."""
        entry = self.entry(name)
        return entry is not None and any(family is other and key == place for other, place in self.references(entry))

    def names(self, place: Optional[bytes], end: int, reverse: bool, limit: int) -> list[tuple[bytes, bytes]]:
        """Return keys and values of ``order``, at most ``limit``: those after the key ``place``, or the
        first if it is None, up to the position ``end``. With ``reverse``, in the opposite order.
        """
        start, stop = _after(place, reverse)
        stop = _NUMBER.pack(end) if stop is None else stop
        return list(self.order.items(start=start, stop=stop, reverse=reverse, limit=limit))

    def sorted(self, place: Optional[bytes], reverse: bool, limit: int) -> list[bytes]:
        """Return names of entries in sorted order, at most ``limit``, as :meth:`names` does."""
        start, stop = _after(place, reverse)
        return list(self.entries.keys(start=start, stop=stop, reverse=reverse, limit=limit))

    def parts(self) -> tuple[Family, ...]:
        """Return the families that have rows of entries."""
        return self[:5]


def _put(family: Family, key: bytes, value: bytes, expires_at: Optional[float]) -> None:
    if expires_at is None:
        family.put(key, value)
    else:
        family.put(key, value, expires_at=expires_at)


def _after(place: Optional[bytes], reverse: bool) -> tuple[Optional[bytes], Optional[bytes]]:
    """Return the bounds of the keys after a place."""
    if place is None:
        return None, None
    return (None, place) if reverse else (place + b"\0", None)


def _tag_prefix(tag: bytes) -> bytes:
    return len(tag).to_bytes(2, "big") + tag


def pack(mode: int, value: Any) -> bytes:
    """Encode a value that :meth:`Disk.store` has converted, with its mode."""
    kind = type(value)
    if kind is str:
        return b"".join((bytes([mode << 4 | _STR]), value.encode("utf-8", "surrogatepass")))
    if kind is int:
        return bytes([mode << 4 | _INT]) + b"%d" % value
    if kind is float:
        return bytes([mode << 4 | _FLOAT]) + _DOUBLE.pack(value)
    return b"".join((bytes([mode << 4]), value))


def unpack(data: bytes) -> tuple[int, Any]:
    """Return mode and value as they were given to :func:`pack`."""
    mode, kind = data[0] >> 4, data[0] & 15
    if kind == _BYTES:
        return mode, data[1:]
    if kind == _STR:
        return mode, str(memoryview(data)[1:], "utf-8", "surrogatepass")
    return mode, int(data[1:]) if kind == _INT else _DOUBLE.unpack_from(data, 1)[0]
