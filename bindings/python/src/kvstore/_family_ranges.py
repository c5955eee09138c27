"""The methods of a family on ranges of keys: views, iteration, counting, deletion; and row keys.

Mixed into Family. The behaviour of iterations is in _iteration.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, KeysView, ValuesView
from typing import Generic, Optional

from kvstore._family_handle import FamilyHandle
from kvstore._iteration import ITEMS, Items, Keys, Range, Values, bounds, row_source, scan
from kvstore._native import NULL, Data, K, V, check, ffi, lib, to_bytes


class RangeMethods(FamilyHandle, Iterable[K], Generic[K, V]):
    """Base class of :class:`kvstore.Family` with its methods on ranges of keys."""

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
        """Return a view of the live keys in a range, in byte order. A loop that writes new keys ahead
        of its position visits them, too, and may never end: loop over ``list(db.keys())`` then.

        Nothing is read until the view is used, and each iteration reads again. An iteration yields
        each live key once and may be abandoned at any time. The store may be written to meanwhile.
        Writes of other processes are seen from chunk to chunk (some hundred rows), and not at all
        inside a transaction.

        Args:
            prefix: Only keys that begin with it.
            start: The first key, inclusive.
            stop: The last key, exclusive.
            reverse: Descending order.
            limit: The maximum number of keys; None: all.

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
        """Return a view of the values in a range, in key order. See :meth:`keys`."""
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
        """Return a view of the ``(key, value)`` pairs in a range, in key order. See :meth:`keys`."""
        return Items(self, Range(prefix, start, stop, reverse, limit))

    def __iter__(self) -> Iterator[K]:
        return iter(self.keys())

    def __reversed__(self) -> Iterator[K]:
        return iter(self.keys(reverse=True))

    def __len__(self) -> int:
        return self.count()

    def __bool__(self) -> bool:
        return next(iter(self.keys(limit=1)), None) is not None  # not len(), which counts all keys

    def count(self, expired: bool = False) -> int:
        """Return the number of live keys.

        Reads the whole key index: slow for large families.

        Args:
            expired: Count all rows, including expired ones that no purge has removed yet.
        """
        out = ffi.new("int64_t *")
        rc = (lib.kvstore_cf_count if expired else lib.kvstore_cf_count_live)(self._cf, out)
        if rc:
            self._fail(rc)
        return int(out[0])

    def delete_range(
        self, *, prefix: Optional[Data] = None, start: Optional[Data] = None, stop: Optional[Data] = None
    ) -> int:
        """Delete all keys of a range in one transaction.

        :meth:`keys` shows them with the same arguments.

        Returns:
            The number of live keys that were deleted.

        Raises:
            TypeError: Without any bound. Use ``clear()`` to delete all keys.
            ValueError: If the only bound is an empty ``prefix`` or ``start``.
        """
        if prefix is None and start is None and stop is None:
            raise TypeError(
                "delete_range() needs prefix=, start= or stop=: to delete all keys of the family, call clear()"
            )
        low, high = bounds(prefix, start, stop)
        if not low and high is None:
            raise ValueError(
                "delete_range() got an empty prefix= or start=, which selects all keys: to delete them all, "
                "call clear()"
            )
        deleted = ffi.new("int64_t *")
        rc = lib.kvstore_cf_delete_range(
            self._cf, low or NULL, len(low or b""), NULL if high is None else high, len(high or b""), deleted
        )
        if rc:
            self._fail(rc)
        self._state.changed()
        return int(deleted[0])

    def rows(
        self,
        partition: Data,
        start: Optional[Data] = None,
        stop: Optional[Data] = None,
        reverse: bool = False,
        limit: Optional[int] = None,
    ) -> Iterator[tuple[K, V]]:
        """Iterate over the rows of a partition, as ``(clustering, value)`` pairs.

        Their keys are those that :func:`kvstore.row_key` returns.

        Args:
            partition: The partition key.
            start: The first clustering part, inclusive.
            stop: The last clustering part, exclusive.
            reverse: Descending order.
            limit: The maximum number of rows; None: all.
        """
        chosen = Range(None, start, stop, reverse, limit)
        source = row_source(self, to_bytes(partition), chosen.start, chosen.stop, chosen.reverse)
        return self._decoded(scan(self, source, ITEMS, chosen.limit), ITEMS)


def row_key(partition: Data, clustering: Data = b"") -> bytes:
    """Build one key from a partition key and a clustering part. Iteration visits the keys of a
    partition together, sorted by clustering part.

    The order is that of the bytes of the clustering parts. No key of another partition is between
    them. The key works with every method; :meth:`Family.rows` iterates
    over a partition. Both parts may be empty.

    Raises:
        ValueError: If the key would have more than 65,536 bytes.

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
        raise ValueError(
            f"partition of {len(first)} bytes and clustering of {len(second)} bytes make a key that is longer "
            "than 65536 bytes"
        )
    check(rc)
    return bytes(ffi.buffer(buffer, length[0]))
