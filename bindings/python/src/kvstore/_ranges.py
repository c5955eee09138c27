"""The methods of a family on ranges of keys: views, iteration, counting; and keys of two parts.

Mixed into Family. What an iteration does is in _iteration.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, KeysView, ValuesView
from typing import Generic, Optional

from kvstore._handle import Handle
from kvstore._iteration import ITEMS, Items, Keys, Range, Values, bounds, row_source, scan
from kvstore._native import NULL, Data, K, V, check, ffi, lib, to_bytes


class RangeMethods(Handle, Iterable[K], Generic[K, V]):
    """See Family."""

    __slots__ = ()

    def keys(
        self,
        *,
        prefix: Optional[Data] = None,
        start: Optional[Data] = None,
        stop: Optional[Data] = None,
        reverse: bool = False,
        limit: Optional[int] = None,
    ) -> KeysView[K]:
        """A view of the live keys from ``start`` to before ``stop`` that begin with ``prefix``, in byte
        order or in ``reverse``, at most ``limit``.

        Nothing is read until the view is used; each iteration over it reads anew. An iteration sees
        each live key once, and may be left at any time; the store may be written to meanwhile, and what
        this store writes ahead of it is seen. What other processes write, it sees from chunk to chunk
        (some hundred rows), or inside a transaction not at all.

        >>> db = kvstore.open(":memory:")
        >>> db.update(a="1", b="2", c="3")
        >>> list(db.keys(start="b")), list(db.keys(reverse=True, limit=1))
        ([b'b', b'c'], [b'c'])
        """
        return Keys(self, Range(prefix, start, stop, reverse, limit))

    def values(
        self,
        *,
        prefix: Optional[Data] = None,
        start: Optional[Data] = None,
        stop: Optional[Data] = None,
        reverse: bool = False,
        limit: Optional[int] = None,
    ) -> ValuesView[V]:
        """A view of the values in the order of their keys; otherwise as :meth:`keys`."""
        return Values(self, Range(prefix, start, stop, reverse, limit))

    def items(
        self,
        *,
        prefix: Optional[Data] = None,
        start: Optional[Data] = None,
        stop: Optional[Data] = None,
        reverse: bool = False,
        limit: Optional[int] = None,
    ) -> ItemsView[K, V]:
        """A view of pairs of key and value; otherwise as :meth:`keys`."""
        return Items(self, Range(prefix, start, stop, reverse, limit))

    def __iter__(self) -> Iterator[K]:
        return iter(self.keys())

    def __reversed__(self) -> Iterator[K]:
        return iter(self.keys(reverse=True))

    def __len__(self) -> int:
        return self.count()

    def __bool__(self) -> bool:
        return next(iter(self.keys(limit=1)), None) is not None  # len counts all

    def count(self, expired: bool = False) -> int:
        """How many live keys there are; with ``expired``, how many rows, those included that have
        expired but that nothing has removed yet. Reads the tree of keys: slow for large families."""
        out = ffi.new("int64_t *")
        rc = (lib.kvstore_cf_count if expired else lib.kvstore_cf_count_live)(self._cf, out)
        if rc:
            self._fail(rc)
        return int(out[0])

    def delete_range(
        self, *, prefix: Optional[Data] = None, start: Optional[Data] = None, stop: Optional[Data] = None
    ) -> int:
        """Deletes the keys that :meth:`keys` shows with the same arguments, in one transaction. Returns how many
        were alive. It needs a bound, and an empty ``prefix`` or ``start`` is none (ValueError): ``clear()`` deletes
        them all."""
        if prefix is None and start is None and stop is None:
            raise TypeError("delete_range needs a prefix, start or stop; clear() deletes every key of the family")
        low, high = bounds(prefix, start, stop)
        if not low and high is None:
            raise ValueError("an empty prefix or start is no bound for delete_range; clear() deletes every key of the family")
        deleted = ffi.new("int64_t *")
        rc = lib.kvstore_cf_delete_range(
            self._cf, low or NULL, len(low or b""), NULL if high is None else high, len(high or b""), deleted
        )
        if rc:
            self._fail(rc)
        self._shared.changed()
        return int(deleted[0])

    def rows(
        self,
        partition: Data,
        start: Optional[Data] = None,
        stop: Optional[Data] = None,
        reverse: bool = False,
        limit: Optional[int] = None,
    ) -> Iterator[tuple[K, V]]:
        """The rows of a partition (see :func:`kvstore.row_key`), from the clustering part ``start`` to
        before ``stop``, as pairs of clustering part and value; otherwise as an iteration over
        :meth:`items`."""
        chosen = Range(None, start, stop, reverse, limit)
        source = row_source(self, to_bytes(partition), chosen.start, chosen.stop, chosen.reverse)
        return self._decoded(scan(self, source, ITEMS, chosen.limit), ITEMS)


def row_key(partition: Data, clustering: Data = b"") -> bytes:
    """Builds one ordered key from a partition key and a clustering part; either may be empty.

    All rows of a partition are together, in the byte order of their clustering parts, and no other
    partition's are between them. The key works with every method; :meth:`Family.rows` iterates over
    a partition. ValueError if it would have more than 65 536 bytes.

    >>> db = kvstore.open(":memory:")
    >>> db[kvstore.row_key("ada", "2024")] = b"x"
    >>> list(db.rows("ada"))
    [(b'2024', b'x')]
    """
    first, second = to_bytes(partition), to_bytes(clustering)
    size = 2 * len(first) + 2 + len(second)
    buffer, length = ffi.new("char[]", size), ffi.new("int *")
    rc = lib.kvstore_row_key(first, len(first), second, len(second), buffer, size, length)
    if rc == lib.KVSTORE_ERROR:
        raise ValueError(f"a partition of {len(first)} bytes and {len(second)} more do not fit into a key")
    check(rc)
    return bytes(ffi.buffer(buffer, length[0]))
