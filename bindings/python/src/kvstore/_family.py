"""Families: the mapping, conditional writes, many keys at once, ranges.

What changes or tells TTLs without the values is in _expiry.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, MutableMapping, ValuesView
from types import TracebackType
from typing import Any, Optional, TypeVar, Union, overload

from kvstore._batch import Batch
from kvstore._expiry import ExpiryMethods
from kvstore._handle import Handle, not_found
from kvstore._iteration import ITEMS, Items, Keys, Range, Values, bounds, row_source, scan
from kvstore._native import NULL, Data, check, ffi, lib, taken, to_bytes
from kvstore._time import Duration, Moment, ttl_ms

T = TypeVar("T")
K = TypeVar("K", bound="Data")
Self = TypeVar("Self", bound="Family")

_get = lib.kvpy_get_short
_put = lib.kvstore_cf_put
_put_in = lib.kvstore_cf_put_for
_put_at = lib.kvstore_cf_put_ttl
_delete = lib.kvstore_cf_delete
_exists = lib.kvpy_exists
_unpack = ffi.unpack
_NOTFOUND: int = lib.KVSTORE_NOTFOUND
_MISSING: int = -_NOTFOUND

#: Buffers for values that no call is using just now, each with a view, whose slices are bytes. A call takes
#: one out, so that no two threads have the same.
_buffers: list[tuple[Any, Any]] = []


def _new_buffer() -> tuple[Any, Any]:
    buffer = ffi.new("char[]", lib.KVPY_SHORT_BYTES)
    return buffer, ffi.buffer(buffer)


#: No default was given.
_RAISE: Any = object()
#: As many keys are read at once by get_many.
_MANY = 4096


class Family(ExpiryMethods, Handle, MutableMapping[bytes, bytes]):
    """A family of keys: a mutable mapping of live keys to values, in the order of the keys.

    Keys and values are str (kept as UTF-8) or bytes-like; what comes back is bytes. A key has 1 to
    65 536 bytes, a value up to ``max_value_size`` (10 MiB). Only live keys are seen: a key whose time
    is over is missing, for every method (see ``count`` and ``expiring`` for two exceptions).

    TTLs are seconds (int or float) or a timedelta, rounded up to milliseconds, and must be positive;
    ``FOREVER`` is no TTL. Moments (``expire_at``) are seconds since the Unix epoch or an aware
    datetime, and may be past: the key is gone at once. With neither, a write gives the family's
    ``default_ttl`` if there is one. Each write of a value replaces the TTL the key had, unless
    ``keep_ttl`` says otherwise.

    All methods may be called from several threads, which take turns; and raise MisuseError when the
    store is closed, BusyError when another process is writing longer than ``busy_timeout``,
    ReadOnlyError for a write to what is read only, and other classes of :class:`Error` for what
    happens to files and disks. A write that fails changes nothing.

    Families are made by :meth:`Store.family`. A family keeps its store open.

    >>> import kvstore
    >>> db = kvstore.open(":memory:")
    >>> codes = db.family("codes", create=True, default_ttl=300)
    >>> codes["ada"] = "123456"
    >>> codes["ada"], "bob" in codes, len(codes)
    (b'123456', False, 1)
    """

    __slots__ = ()
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other  # not by what is in it: that would read two stores

    def __repr__(self) -> str:
        return f"<kvstore.Family {self._name!r}{', closed' if self.closed else ''}>"

    @property
    def name(self) -> str:
        """The name of the family; of a store, ``"default"``."""
        return self._name

    @property
    def closed(self) -> bool:
        """Whether the handle, or its store, is closed."""
        return self._closed or self._shared.closed

    def close(self) -> None:
        """Closes the handle; the store stays open. To close it again is allowed."""
        self._detach()

    def __enter__(self: Self) -> Self:
        self._must_be_open()
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.close()

    # One key

    @overload
    def get(self, key: Data) -> Optional[bytes]: ...
    @overload
    def get(self, key: Data, default: T) -> Union[bytes, T]: ...
    def get(self, key: Data, default: Any = None) -> Any:
        """The value of a key, or ``default`` if there is none.

        >>> db = kvstore.open(":memory:")
        >>> db.get("user:1", b"nobody")
        b'nobody'
        """
        if type(key) is not bytes:
            key = to_bytes(key)
        try:
            pair = _buffers.pop()
        except IndexError:
            pair = _new_buffer()
        buffer, view = pair
        try:
            cf = self._local.cf
        except AttributeError:
            cf = self._here()
        n = _get(cf, key, len(key), buffer)
        if n >= 0:
            value = view[:n]
            _buffers.append(pair)
            return value
        _buffers.append(pair)
        if n == _MISSING:
            return default
        long = self._get_long(key, n)
        return default if long is None else long

    def __getitem__(self, key: Data) -> bytes:
        if type(key) is not bytes:
            key = to_bytes(key)
        try:
            pair = _buffers.pop()
        except IndexError:
            pair = _new_buffer()
        buffer, view = pair
        try:
            cf = self._local.cf
        except AttributeError:
            cf = self._here()
        n = _get(cf, key, len(key), buffer)
        if n >= 0:
            value: bytes = view[:n]
            _buffers.append(pair)
            return value
        _buffers.append(pair)
        long = None if n == _MISSING else self._get_long(key, n)
        if long is None:
            raise not_found()
        return long

    def _get_long(self, key: bytes, n: int) -> Optional[bytes]:
        """A value that did not fit into a buffer, read anew as a whole; or the failure -n."""
        if n != lib.KVPY_TOO_LONG:
            self._fail(-n)
        data, length = ffi.new("void **"), ffi.new("int *")
        rc = lib.kvstore_cf_get(self._cf, key, len(key), data, length)
        if rc == _NOTFOUND:
            return None
        if rc:
            self._fail(rc)
        return taken(data[0], length[0])

    def put(
        self,
        key: Data,
        value: Data,
        ttl: Optional[Duration] = None,
        expire_at: Optional[Moment] = None,
        *,
        keep_ttl: bool = False,
        if_absent: bool = False,
        if_present: bool = False,
    ) -> bool:
        """Writes a value; says whether it did (False only if a condition did not hold).

        ``keep_ttl``: a live key keeps the TTL it has, also none; a new one gets what is given.
        ``if_absent``: only if the key is missing. ``if_present``: only if it is there. Condition and
        write are one step for every thread and process.

        >>> db = kvstore.open(":memory:")
        >>> db.put("session", b"token", ttl=60)
        True
        >>> db.put("session", b"other", if_absent=True)
        False
        """
        if type(key) is not bytes:
            key = to_bytes(key)
        if type(value) is not bytes:
            value = to_bytes(value)
        if keep_ttl or if_absent or if_present:
            return self._put_with(key, value, ttl, expire_at, keep_ttl, if_absent, if_present)
        try:
            cf = self._local.cf
        except AttributeError:
            cf = self._here()
        if ttl is None and expire_at is None:
            rc = _put(cf, key, len(key), value, len(value))
        else:
            rc = self._put_until(cf, key, value, ttl, expire_at)
        if rc:
            self._fail(rc)
        if self._scans:
            self._shared.changed()
        return True

    def _put_until(
        self, cf: Any, key: bytes, value: bytes, ttl: Optional[Duration], expire_at: Optional[Moment]
    ) -> int:
        if expire_at is None and ttl is not None and self._shared.connections.clock is None:
            ms = ttl_ms(ttl)
            if ms:
                rc: int = _put_in(cf, key, len(key), value, len(value), ms)
                return rc
        rc = _put_at(cf, key, len(key), value, len(value), self._expire_ms(ttl, expire_at))
        return rc

    def _put_with(
        self,
        key: bytes,
        value: bytes,
        ttl: Optional[Duration],
        expire_at: Optional[Moment],
        keep_ttl: bool,
        if_absent: bool,
        if_present: bool,
    ) -> bool:
        if if_absent and if_present:
            raise ValueError("if_absent and if_present exclude each other")
        options = ffi.new("KVWriteOptions *")
        if ttl is None and expire_at is None:
            options.flags = lib.KVSTORE_PUT_DEFAULT_TTL
        else:
            options.expireMs = self._expire_ms(ttl, expire_at)
        options.flags |= (
            (lib.KVSTORE_PUT_KEEP_TTL if keep_ttl else 0)
            | (lib.KVSTORE_PUT_IF_ABSENT if if_absent else 0)
            | (lib.KVSTORE_PUT_IF_PRESENT if if_present else 0)
        )
        written = ffi.new("int *")
        rc = lib.kvstore_cf_put_with(self._cf, key, len(key), value, len(value), options, written)
        if rc:
            self._fail(rc)
        self._shared.changed()
        return bool(written[0])

    def __setitem__(self, key: Union[Data, tuple[Data, Optional[Duration]]], value: Data) -> None:
        if type(key) is tuple:
            if len(key) != 2:
                raise TypeError("a key must be str or bytes-like, or a pair of that and a TTL")
            key, ttl = key
            self.put(key, value, ttl)
            return
        if type(key) is not bytes:
            key = to_bytes(key)  # type: ignore[arg-type]
        if type(value) is not bytes:
            value = to_bytes(value)
        try:
            cf = self._local.cf
        except AttributeError:
            cf = self._here()
        rc = _put(cf, key, len(key), value, len(value))
        if rc:
            self._fail(rc)
        if self._scans:
            self._shared.changed()

    def add(
        self, key: Data, value: Data, ttl: Optional[Duration] = None, expire_at: Optional[Moment] = None
    ) -> bool:
        """Writes a value only if the key is missing; says whether it did."""
        return self._put_with(to_bytes(key), to_bytes(value), ttl, expire_at, False, True, False)

    def delete(self, key: Data) -> bool:
        """Deletes a key; says whether it was there."""
        if type(key) is not bytes:
            key = to_bytes(key)
        try:
            cf = self._local.cf
        except AttributeError:
            cf = self._here()
        rc = _delete(cf, key, len(key))
        self._shared.changed()
        if rc:
            if rc == _NOTFOUND:
                return False
            self._fail(rc)
        return True

    def __delitem__(self, key: Data) -> None:
        if not self.delete(key):
            raise not_found()

    def __contains__(self, key: object) -> bool:
        if type(key) is not bytes:
            key = to_bytes(key)  # type: ignore[arg-type]
        try:
            cf = self._local.cf
        except AttributeError:
            cf = self._here()
        found: int = _exists(cf, key, len(key))
        if found < 0:
            self._fail(-found)
        return found == 1

    @overload
    def pop(self, key: Data) -> bytes: ...
    @overload
    def pop(self, key: Data, default: T) -> Union[bytes, T]: ...
    def pop(self, key: Data, default: Any = _RAISE) -> Any:
        """Deletes a key and returns its value; or ``default`` if there is none, or raises NotFoundError.

        Of several threads and processes that pop a key, one gets the value.
        """
        key = to_bytes(key)
        while True:
            value = self.get(key)
            if value is None:
                if default is not _RAISE:
                    return default
                raise not_found()
            if self.compare_and_delete(key, value):
                return value

    def popitem(self) -> tuple[bytes, bytes]:
        """Deletes the least key and returns it with its value; NotFoundError if there is none."""
        while True:
            for key, value in self.items(limit=1):
                if self.compare_and_delete(key, value):
                    return key, value
                break
            else:
                raise not_found()

    def setdefault(  # there is no value None
        self, key: Data, default: Data, ttl: Optional[Duration] = None, expire_at: Optional[Moment] = None
    ) -> bytes:
        """The value of a key; if there is none, ``default``, which is written first."""
        key, new = to_bytes(key), to_bytes(default)
        while True:
            value = self.get(key)
            if value is not None:
                return value
            if self.add(key, new, ttl, expire_at):
                return new

    # Numbers and comparisons

    def incr(
        self, key: Data, delta: int = 1, ttl: Optional[Duration] = None, expire_at: Optional[Moment] = None
    ) -> int:
        """Adds to the number under a key, kept as decimal text, and returns the sum.

        A missing key counts as 0 and gets the TTL; a live one keeps the TTL it has. ValueError if the
        value is no whole number of 64 bits, or the sum would be none; and for FOREVER.

        >>> db = kvstore.open(":memory:")
        >>> db.incr("hits"), db.incr("hits", 10), db["hits"]
        (1, 11, b'11')
        """
        key = to_bytes(key)
        if isinstance(delta, bool) or not hasattr(delta, "__index__"):
            raise TypeError(f"delta must be an int, not {type(delta).__name__}")
        delta = delta.__index__()
        if not -(1 << 63) <= delta < 1 << 63:
            raise ValueError(f"delta must have at most 64 bits: {delta}")
        expire_ms = 0  # the family's default
        if ttl is not None or expire_at is not None:
            expire_ms = self._expire_ms(ttl, expire_at)
            if expire_ms == 0:
                raise ValueError("incr cannot give FOREVER: without a ttl it gives the family's default TTL")
        total = ffi.new("int64_t *")
        rc = lib.kvstore_cf_increment(self._cf, key, len(key), delta, expire_ms, total)
        if rc:
            self._fail(rc)
        self._shared.changed()
        return int(total[0])

    def decr(
        self, key: Data, delta: int = 1, ttl: Optional[Duration] = None, expire_at: Optional[Moment] = None
    ) -> int:
        """:meth:`incr` by ``-delta``."""
        return self.incr(key, -delta, ttl, expire_at)

    def compare_and_swap(
        self,
        key: Data,
        expected: Data,
        value: Data,
        ttl: Optional[Duration] = None,
        expire_at: Optional[Moment] = None,
    ) -> bool:
        """Writes a value only if the key is there with the value ``expected``; says whether it did.

        The TTL the key had is replaced, as by put.
        """
        key, expected, value = to_bytes(key), to_bytes(expected), to_bytes(value)
        swapped = ffi.new("int *")
        expire_ms = self._expire_ms(ttl, expire_at)
        rc = lib.kvstore_cf_compare_and_swap(
            self._cf, key, len(key), expected, len(expected), value, len(value), expire_ms, swapped
        )
        if rc:
            self._fail(rc)
        self._shared.changed()
        return bool(swapped[0])

    def compare_and_delete(self, key: Data, expected: Data) -> bool:
        """Deletes a key only if it is there with the value ``expected``; says whether it did."""
        key, expected = to_bytes(key), to_bytes(expected)
        deleted = ffi.new("int *")
        rc = lib.kvstore_cf_compare_and_delete(self._cf, key, len(key), expected, len(expected), deleted)
        if rc:
            self._fail(rc)
        self._shared.changed()
        return bool(deleted[0])

    # Many keys

    def get_many(self, keys: Iterable[K]) -> dict[K, bytes]:
        """The values of those of ``keys`` that are there, by the keys as they were given (bytes-like ones as
        bytes).

        All are read from one snapshot, as long as there are at most 4096 of them.
        """
        if isinstance(keys, (str, bytes)):
            raise TypeError("get_many takes an iterable of keys, not one key")
        wanted: list[Any] = [key if isinstance(key, (str, bytes)) else to_bytes(key) for key in keys]
        found: dict[K, bytes] = {}
        for at in range(0, len(wanted), _MANY):
            part = wanted[at : at + _MANY]
            for key, value in zip(part, self._get_part([to_bytes(key) for key in part])):
                if value is not None:
                    found[key] = value
        return found

    def _get_part(self, keys: list[bytes]) -> list[Optional[bytes]]:
        count = len(keys)
        lengths = [len(key) for key in keys]
        values, value_lengths = ffi.new("char *[]", count), ffi.new("int[]", count)
        rc = lib.kvpy_get_many(self._cf, count, b"".join(keys), ffi.new("int[]", lengths), values, value_lengths)
        if rc:
            self._fail(rc)
        try:
            return [
                None if n < 0 else _unpack(value, n)
                for value, n in zip(_unpack(values, count), _unpack(value_lengths, count))
            ]
        finally:
            lib.kvpy_free_many(count, values)

    def put_many(
        self,
        items: Union[Mapping[Any, Any], Iterable[tuple[Any, Any]]],
        ttl: Optional[Duration] = None,
        expire_at: Optional[Moment] = None,
    ) -> int:
        """Writes all pairs of key and value (or of a mapping) in one transaction: all, or on a failure
        nothing. Returns how many. Inside an open transaction they are part of it."""
        with Batch(self) as batch:
            expire_ms = self._expire_ms(ttl, expire_at)
            pairs = items.items() if isinstance(items, Mapping) else items
            for key, value in pairs:
                batch._put(self, to_bytes(key), to_bytes(value), expire_ms)
            return len(batch)

    def update(  # type: ignore[override] # keys of keyword arguments are text
        self, other: Union[Mapping[Any, Any], Iterable[tuple[Any, Any]]] = (), /, **values: Data
    ) -> None:
        """Writes all pairs, as :meth:`put_many` does, and all keyword arguments, in one transaction."""
        pairs: Any = other
        if not isinstance(other, Mapping) and hasattr(other, "keys"):
            pairs = [(key, pairs[key]) for key in pairs.keys()]
        if values:
            pairs = [*(pairs.items() if isinstance(pairs, Mapping) else pairs), *values.items()]
        self.put_many(pairs)

    def batch(self) -> Batch:
        """Writes to be committed together: see :class:`Batch`.

        >>> db = kvstore.open(":memory:")
        >>> with db.batch() as batch:
        ...     batch.put("a", b"1", ttl=60)
        ...     batch.delete("b")
        """
        return Batch(self)

    def clear(self) -> None:
        """Deletes every key of the family."""
        rc = lib.kvstore_cf_clear(self._cf)
        if rc:
            self._fail(rc)
        self._shared.changed()

    def delete_range(
        self, start: Optional[Data] = None, stop: Optional[Data] = None, *, prefix: Optional[Data] = None
    ) -> int:
        """Deletes the keys that :meth:`keys` shows, in one transaction. Returns how many were alive."""
        low, high = bounds(prefix, start, stop)
        deleted = ffi.new("int64_t *")
        rc = lib.kvstore_cf_delete_range(
            self._cf, low or NULL, len(low or b""), NULL if high is None else high, len(high or b""), deleted
        )
        if rc:
            self._fail(rc)
        self._shared.changed()
        return int(deleted[0])

    # Ranges

    def keys(
        self,
        prefix: Optional[Data] = None,
        start: Optional[Data] = None,
        stop: Optional[Data] = None,
        reverse: bool = False,
        limit: Optional[int] = None,
    ) -> KeysView[bytes]:
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
        prefix: Optional[Data] = None,
        start: Optional[Data] = None,
        stop: Optional[Data] = None,
        reverse: bool = False,
        limit: Optional[int] = None,
    ) -> ValuesView[bytes]:
        """A view of the values in the order of their keys; otherwise as :meth:`keys`."""
        return Values(self, Range(prefix, start, stop, reverse, limit))

    def items(
        self,
        prefix: Optional[Data] = None,
        start: Optional[Data] = None,
        stop: Optional[Data] = None,
        reverse: bool = False,
        limit: Optional[int] = None,
    ) -> ItemsView[bytes, bytes]:
        """A view of pairs of key and value; otherwise as :meth:`keys`."""
        return Items(self, Range(prefix, start, stop, reverse, limit))

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.keys())

    def __reversed__(self) -> Iterator[bytes]:
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

    def rows(
        self,
        partition: Data,
        start: Optional[Data] = None,
        stop: Optional[Data] = None,
        reverse: bool = False,
        limit: Optional[int] = None,
    ) -> Iterator[tuple[bytes, bytes]]:
        """The rows of a partition (see :func:`kvstore.row_key`), from the clustering part ``start`` to
        before ``stop``, as pairs of clustering part and value; otherwise as an iteration over
        :meth:`items`."""
        chosen = Range(None, start, stop, reverse, limit)
        source = row_source(self, to_bytes(partition), chosen.start, chosen.stop, chosen.reverse)
        return scan(self, source, ITEMS, chosen.limit)


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
