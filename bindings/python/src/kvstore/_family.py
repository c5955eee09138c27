"""Class Family: methods on single keys, conditional writes, opening and closing a handle.

Methods on many keys are in _family_bulk, ranges in _family_ranges, TTLs in _family_expiry, codecs
in _family_codec, the native handles in _family_handle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping
from types import TracebackType
from typing import Any, Generic, Optional, TypeVar, Union, overload

from kvstore._family_bulk import BulkMethods
from kvstore._family_expiry import ExpiryMethods
from kvstore._family_handle import no_such_key, set_public_class
from kvstore._family_ranges import RangeMethods
from kvstore._iteration import ITEMS, Range, scan
from kvstore._native import Data, K, V, check_lengths, ffi, lib, long_value, to_bytes
from kvstore._options import integer
from kvstore._pickling import reduce_family
from kvstore._time import Duration, Moment, ttl_ms

T = TypeVar("T")
Self = TypeVar("Self", bound="Family[Any, Any]")

_get = lib.kvpy_get_short
_put = lib.kvstore_cf_put
_put_in = lib.kvstore_cf_put_for
_put_at = lib.kvstore_cf_put_ttl
_delete = lib.kvstore_cf_delete
_exists = lib.kvpy_exists
_NOTFOUND: int = lib.KVSTORE_NOTFOUND
_MISSING: int = -_NOTFOUND

#: Idle read buffers, each with a memory view whose slices are bytes. A call removes the one it
#: uses, so two threads never share a buffer.
_buffers: list[tuple[Any, Any]] = []


def _new_buffer() -> tuple[Any, Any]:
    buffer = ffi.new("char[]", lib.KVPY_SHORT_BYTES)
    return buffer, ffi.buffer(buffer)


#: The value that marks an omitted ``default`` argument.
_RAISE: Any = object()


class Family(
    RangeMethods[K, V], BulkMethods[K, V], ExpiryMethods[K, V], MutableMapping[Union[str, bytes], V], Generic[K, V]
):
    """A named set of keys in a store, with the interface of a mutable mapping sorted by key bytes.

    Every store has a default family, which is the store object itself, and any number of named
    ones, made by :meth:`Store.family`. Each has its own keys, default TTL and settings; one
    transaction can write to several. SNKV, RocksDB and the C API (``KVColumnFamily``,
    ``kvstore_cf_*``) call a family a column family.

    **Keys and values** are str (stored as UTF-8) or bytes-like, and come back as bytes, unless the
    family has a codec (for values) or ``keys=str``. A key has 1 to 65,536 bytes (on a server
    2,500), a value up to ``max_value_size`` (10 MiB). Expired keys do not exist for any method;
    only ``count(expired=True)``, ``expiring`` and ``next_expiry`` consider them.

    **Times.** A TTL is a duration: seconds (int or float) or a ``timedelta``, positive, rounded up
    to milliseconds. ``FOREVER`` means no TTL. An expiry time (``expires_at``) is a moment: seconds
    since the Unix epoch or an aware ``datetime``; one in the past removes the key at once. A moment
    between 1970 and 1973, which is a duration given by mistake, and a number that looks like
    milliseconds are rejected, unless the clock of the store is before 2001. A write with neither
    uses the :attr:`default_ttl`. A write replaces the TTL the key had, unless ``keep_ttl`` is set.

    **Errors.** Every method can raise :exc:`MisuseError` if the store or family is closed,
    :exc:`BusyError` if another thread or process keeps writing for longer than ``busy_timeout``,
    :exc:`ReadOnlyError` for a write to a read-only store or in a snapshot, and :exc:`StoreIOError`,
    :exc:`CorruptError` or :exc:`FullError` for what happens to the file. Invalid arguments raise
    ``TypeError`` or ``ValueError``. A call that fails changes nothing.

    **Threads.** All methods may be called from any thread; each thread has its own connection.

    A family or store is equal only to itself; compare contents with ``dict(family) == {...}``. A
    family keeps its store open, and can be pickled if its store can.

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
        return self is other  # identity: comparing contents would read two stores

    def __repr__(self) -> str:
        return f"<kvstore.Family {self._name!r}{', closed' if self.closed else ''}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return reduce_family(self)

    @property
    def name(self) -> str:
        """The name of the family; ``"default"`` for a store."""
        return self._name

    @property
    def closed(self) -> bool:
        """Whether this handle or its store is closed."""
        return self._closed or self._state.closed

    def close(self) -> None:
        """Close this handle of the family. The store stays open. A handle may be closed twice."""
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

    def _plain(self) -> Family[Any, Any]:
        """Return this family without its codec: keys and values are bytes."""
        if self._coding is None:
            return self
        plain: Family[Any, Any] = Family.__new__(Family)
        plain._attach(self._state, self._name, None, None, None, self._store)
        return plain

    # One key

    @overload
    def get(self, key: Data) -> Optional[V]: ...
    @overload
    def get(self, key: Data, default: T) -> Union[V, T]: ...
    def get(self, key: Data, default: Any = None) -> Any:
        """Return the value of a key, or ``default`` if the key does not exist.

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
        cf = self._handles.cf
        if cf is None:
            cf = self._open_here()
        try:
            n = _get(cf, key, len(key), buffer)
        except OverflowError:
            check_lengths(key)
            raise
        if n >= 0:
            value = view[:n]
            _buffers.append(pair)
            return value
        _buffers.append(pair)
        if n == _MISSING:
            return default
        long = self._get_long(key, n)
        return default if long is None else long

    def __getitem__(self, key: Data) -> V:
        if type(key) is not bytes:
            key = to_bytes(key)
        try:
            pair = _buffers.pop()
        except IndexError:
            pair = _new_buffer()
        buffer, view = pair
        cf = self._handles.cf
        if cf is None:
            cf = self._open_here()
        try:
            n = _get(cf, key, len(key), buffer)
        except OverflowError:
            check_lengths(key)
            raise
        if n >= 0:
            value: V = view[:n]
            _buffers.append(pair)
            return value
        _buffers.append(pair)
        long: Any = None if n == _MISSING else self._get_long(key, n)
        if long is None:
            raise no_such_key()
        return long  # type: ignore[no-any-return]

    def _get_long(self, key: bytes, n: int) -> Optional[bytes]:
        """Return a value that was too long for the read buffer; None if the key does not exist.

        ``n`` is the result of the read into the buffer: KVPY_TOO_LONG minus the length of the
        value, or the negative code of a failure, which is raised.
        """
        if n > lib.KVPY_TOO_LONG:
            self._fail(-n)
        cf = self._cf
        value: Union[bytes, int] = long_value(int(ffi.cast("uintptr_t", cf)), key, lib.KVPY_TOO_LONG - n)
        if isinstance(value, bytes):
            return value
        if value == _NOTFOUND:
            return None
        self._fail(value)

    # A family without a codec accepts all of Data as values; one with a codec accepts what the
    # codec accepts.

    @overload
    def put(
        self: Family[Any, bytes], key: Data, value: Data,
        ttl: Optional[Duration] = None, expires_at: Optional[Moment] = None, *,
        keep_ttl: bool = False, if_absent: bool = False, if_present: bool = False,
    ) -> bool: ...  # fmt: skip
    @overload
    def put(
        self, key: Data, value: V,
        ttl: Optional[Duration] = None, expires_at: Optional[Moment] = None, *,
        keep_ttl: bool = False, if_absent: bool = False, if_present: bool = False,
    ) -> bool: ...  # fmt: skip
    def put(
        self,
        key: Data,
        value: Any,
        ttl: Optional[Duration] = None,
        expires_at: Optional[Moment] = None,
        *,
        keep_ttl: bool = False,
        if_absent: bool = False,
        if_present: bool = False,
    ) -> bool:
        """Write the value of a key. With a condition, write only if the condition holds.

        Test and write are one atomic step for all threads and processes.

        Args:
            key: str or bytes-like, 1 to 65,536 bytes.
            value: str or bytes-like, or what the codec accepts.
            ttl: Seconds or a ``timedelta``; None: the default TTL of the family; ``FOREVER``: no
                TTL.
            expires_at: The expiry time, instead of ``ttl``.
            keep_ttl: Keep the TTL of a live key (or its lack of one). A new key gets ``ttl`` or
                ``expires_at``.
            if_absent: Write only if the key does not exist.
            if_present: Write only if the key exists.

        Returns:
            True if the value was written; False if a condition did not hold.

        >>> db = kvstore.open(":memory:")
        >>> db.put("session", b"token", ttl=60)
        True
        >>> db.put("session", b"other", if_absent=True)
        False
        """
        if type(key) is not bytes:
            key = to_bytes(key)
        if type(value) is not bytes:
            value = to_bytes(value, "value")
        if keep_ttl or if_absent or if_present:
            check_lengths(key, value)
            return self._put_with(key, value, ttl, expires_at, keep_ttl, if_absent, if_present)
        cf = self._handles.cf
        if cf is None:
            cf = self._open_here()
        try:
            if ttl is None and expires_at is None:
                rc = _put(cf, key, len(key), value, len(value))
            else:
                rc = self._put_until(cf, key, value, ttl, expires_at)
        except OverflowError:
            check_lengths(key, value)
            raise
        if rc:
            self._fail(rc)
        if self._scans:
            self._state.changed()
        return True

    def _put_until(
        self, cf: Any, key: bytes, value: bytes, ttl: Optional[Duration], expires_at: Optional[Moment]
    ) -> int:
        if expires_at is None and ttl is not None and self._state.pool.clock is None:
            ms = ttl_ms(ttl)
            if ms:
                rc: int = _put_in(cf, key, len(key), value, len(value), ms)
                return rc
        rc = _put_at(cf, key, len(key), value, len(value), self._expire_ms(ttl, expires_at))
        return rc

    def _put_with(
        self,
        key: bytes,
        value: bytes,
        ttl: Optional[Duration],
        expires_at: Optional[Moment],
        keep_ttl: bool,
        if_absent: bool,
        if_present: bool,
    ) -> bool:
        if if_absent and if_present:
            raise ValueError("if_absent= and if_present= cannot both be set: give one of them")
        options = ffi.new("KVWriteOptions *")
        if ttl is not None and expires_at is None and self._state.pool.clock is None:
            options.expireMs = ttl_ms(ttl) or lib.KVSTORE_NO_TTL
            options.flags = lib.KVSTORE_PUT_TTL if options.expireMs > 0 else 0
        else:
            options.expireMs = self._expire_ms(ttl, expires_at)
        options.flags |= (
            (lib.KVSTORE_PUT_KEEP_TTL if keep_ttl else 0)
            | (lib.KVSTORE_PUT_IF_ABSENT if if_absent else 0)
            | (lib.KVSTORE_PUT_IF_PRESENT if if_present else 0)
        )
        written = ffi.new("int *")
        rc = lib.kvstore_cf_put_with(self._cf, key, len(key), value, len(value), options, written)
        if rc:
            self._fail(rc)
        self._state.changed()
        return bool(written[0])

    @overload
    def __setitem__(self: Family[Any, bytes], key: Data, value: Data) -> None: ...
    @overload
    def __setitem__(self, key: Data, value: V) -> None: ...
    def __setitem__(self, key: Data, value: Any) -> None:
        if type(key) is not bytes:
            key = to_bytes(key)
        if type(value) is not bytes:
            value = to_bytes(value, "value")
        cf = self._handles.cf
        if cf is None:
            cf = self._open_here()
        try:
            rc = _put(cf, key, len(key), value, len(value))
        except OverflowError:
            check_lengths(key, value)
            raise
        if rc:
            self._fail(rc)
        if self._scans:
            self._state.changed()

    @overload
    def add(
        self: Family[Any, bytes], key: Data, value: Data,
        ttl: Optional[Duration] = None, expires_at: Optional[Moment] = None,
    ) -> bool: ...  # fmt: skip
    @overload
    def add(
        self, key: Data, value: V, ttl: Optional[Duration] = None, expires_at: Optional[Moment] = None
    ) -> bool: ...
    def add(
        self, key: Data, value: Any, ttl: Optional[Duration] = None, expires_at: Optional[Moment] = None
    ) -> bool:
        """Write a value only if the key does not exist, and return whether it was written.

        The arguments are those of :meth:`put`.
        """
        return self._put_with(to_bytes(key), self._encode(value), ttl, expires_at, False, True, False)

    def delete(self, key: Data) -> bool:
        """Delete a key, and return whether the key existed."""
        if type(key) is not bytes:
            key = to_bytes(key)
        cf = self._handles.cf
        if cf is None:
            cf = self._open_here()
        try:
            rc = _delete(cf, key, len(key))
        except OverflowError:
            check_lengths(key)
            raise
        self._state.changed()
        if rc:
            if rc == _NOTFOUND:
                return False
            self._fail(rc)
        return True

    def __delitem__(self, key: Data) -> None:
        if not self.delete(key):
            raise no_such_key()

    def __contains__(self, key: object) -> bool:
        if type(key) is not bytes:
            key = to_bytes(key)  # type: ignore[arg-type]
        cf = self._handles.cf
        if cf is None:
            cf = self._open_here()
        try:
            found: int = _exists(cf, key, len(key))
        except OverflowError:
            check_lengths(key)
            raise
        if found < 0:
            self._fail(-found)
        return found == 1

    def has_key(self, key: Data) -> bool:
        """Return whether the key exists, like ``key in family``."""
        return key in self

    @overload
    def pop(self, key: Data) -> V: ...
    @overload
    def pop(self, key: Data, default: T) -> Union[V, T]: ...
    def pop(self, key: Data, default: Any = _RAISE) -> Any:
        """Delete a key and return the value it had.

        If several threads or processes pop the same key, only one gets the value.

        Args:
            key: str or bytes-like.
            default: Returned if the key does not exist.

        Raises:
            NotFoundError: If the key does not exist and no ``default`` is given.
        """
        key = to_bytes(key)
        while True:
            value: Any = Family.get(self, key)
            if value is None:
                if default is not _RAISE:
                    return default
                raise no_such_key()
            if self._delete_if(key, value):
                return value

    def popitem(self) -> tuple[K, V]:
        """Delete the smallest key, and return its ``(key, value)``.

        Raises:
            NotFoundError: If the family has no live key.
        """
        while True:
            first: Any = self._first()
            if first is None:
                raise no_such_key()
            if self._delete_if(*first):
                return first  # type: ignore[no-any-return]

    def _first(self) -> Optional[tuple[bytes, bytes]]:
        """Return the smallest live key and its value as stored, without decoding; None if there is
        no key.
        """
        return next(scan(self, Range(None, None, None, False, 1).source(self, False), ITEMS, 1), None)

    @overload
    def setdefault(
        self: Family[Any, bytes], key: Data, default: Data,
        ttl: Optional[Duration] = None, expires_at: Optional[Moment] = None,
    ) -> bytes: ...  # fmt: skip
    @overload
    def setdefault(
        self, key: Data, default: V, ttl: Optional[Duration] = None, expires_at: Optional[Moment] = None
    ) -> V: ...
    def setdefault(  # no default None: None is not a value
        self, key: Data, default: Any, ttl: Optional[Duration] = None, expires_at: Optional[Moment] = None
    ) -> Any:
        """Return the value of a key. If the key does not exist, write ``default`` and return it.

        Args:
            key: str or bytes-like.
            default: The value to write.
            ttl: The TTL of a new key; see :meth:`put`.
            expires_at: The expiry time of a new key, instead of ``ttl``.
        """
        key, new = to_bytes(key), self._encode(default)
        while True:
            value: Any = Family.get(self, key)
            if value is not None:
                return value
            if self._put_with(key, new, ttl, expires_at, False, True, False):
                return new

    # Numbers and comparisons

    def incr(
        self, key: Data, delta: int = 1, ttl: Optional[Duration] = None, expires_at: Optional[Moment] = None
    ) -> int:
        """Add ``delta`` to the number that a key stores as decimal text, and return the sum.

        A missing key counts as 0 and gets the TTL. A live key keeps the TTL it has.

        Args:
            key: str or bytes-like.
            delta: A 64-bit signed int.
            ttl: The TTL of a new key; None: the default TTL of the family.
            expires_at: The expiry time of a new key, instead of ``ttl``.

        Raises:
            ValueError: If the value or the sum is not a 64-bit signed integer.
            TypeError: If the codec of the family cannot read decimal text.

        >>> db = kvstore.open(":memory:")
        >>> db.incr("hits"), db.incr("hits", 10), db["hits"]
        (1, 11, b'11')
        """
        key = to_bytes(key)
        delta = integer(delta, "delta")
        if not -(1 << 63) <= delta < 1 << 63:
            raise ValueError(f"delta must fit in a signed 64-bit integer, not {delta}")
        expire_ms = self._expire_ms(ttl, expires_at)
        total = ffi.new("int64_t *")
        rc = lib.kvstore_cf_increment(self._cf, key, len(key), delta, expire_ms, total)
        if rc:
            self._fail(rc)
        self._state.changed()
        return int(total[0])

    def decr(
        self, key: Data, delta: int = 1, ttl: Optional[Duration] = None, expires_at: Optional[Moment] = None
    ) -> int:
        """Subtract ``delta`` from the number that a key stores as decimal text, and return the
        result.

        See :meth:`incr`.
        """
        return self.incr(key, -integer(delta, "delta"), ttl, expires_at)

    @overload
    def compare_and_swap(
        self: Family[Any, bytes], key: Data, expected: Data, value: Data,
        ttl: Optional[Duration] = None, expires_at: Optional[Moment] = None,
    ) -> bool: ...  # fmt: skip
    @overload
    def compare_and_swap(
        self, key: Data, expected: V, value: V,
        ttl: Optional[Duration] = None, expires_at: Optional[Moment] = None,
    ) -> bool: ...  # fmt: skip
    def compare_and_swap(
        self,
        key: Data,
        expected: Any,
        value: Any,
        ttl: Optional[Duration] = None,
        expires_at: Optional[Moment] = None,
    ) -> bool:
        """Write a value only if the current value equals ``expected``, and return whether it was
        written.

        With a codec, decoded values are compared. The TTL is replaced, as by :meth:`put`.
        """
        return self._swap(key, self._encode(expected), self._encode(value), ttl, expires_at)

    def _swap(
        self, key: Data, expected: bytes, value: bytes, ttl: Optional[Duration], expires_at: Optional[Moment]
    ) -> bool:
        key = to_bytes(key)
        swapped = ffi.new("int *")
        expire_ms = self._expire_ms(ttl, expires_at)
        rc = lib.kvstore_cf_compare_and_swap(
            self._cf, key, len(key), expected, len(expected), value, len(value), expire_ms, swapped
        )
        if rc:
            self._fail(rc)
        self._state.changed()
        return bool(swapped[0])

    @overload
    def compare_and_delete(self: Family[Any, bytes], key: Data, expected: Data) -> bool: ...
    @overload
    def compare_and_delete(self, key: Data, expected: V) -> bool: ...
    def compare_and_delete(self, key: Data, expected: Any) -> bool:
        """Delete a key only if its value equals ``expected``, and return whether it was deleted."""
        return self._delete_if(key, self._encode(expected))

    def _delete_if(self, key: Data, expected: bytes) -> bool:
        key = to_bytes(key)
        deleted = ffi.new("int *")
        rc = lib.kvstore_cf_compare_and_delete(self._cf, key, len(key), expected, len(expected), deleted)
        if rc:
            self._fail(rc)
        self._state.changed()
        return bool(deleted[0])

    def clear(self) -> None:
        """Delete all keys of the family, in one transaction."""
        rc = lib.kvstore_cf_clear(self._cf)
        if rc:
            self._fail(rc)
        self._state.changed()

    def update(  # type: ignore[override] # keyword arguments are str keys
        self, other: Union[Mapping[Any, Any], Iterable[tuple[Any, Any]]] = (), /, **values: Union[V, Data]
    ) -> None:
        """Write all pairs of a mapping or iterable, and all keyword arguments, in one transaction.

        See :meth:`put_many`.
        """
        pairs: Any = other
        if not isinstance(other, Mapping) and hasattr(other, "keys"):
            pairs = [(key, pairs[key]) for key in pairs.keys()]
        if values:
            pairs = [*(pairs.items() if isinstance(pairs, Mapping) else pairs), *values.items()]
        self.put_many(pairs)


set_public_class("Family", RangeMethods, BulkMethods, ExpiryMethods)
