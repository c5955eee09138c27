"""Families: one key, conditional writes, the life of a handle.

Many keys at once are in _many, ranges in _ranges, TTLs without the values in _expiry, codecs in _coded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping
from types import TracebackType
from typing import Any, Generic, Optional, TypeVar, Union, overload

from kvstore._expiry import ExpiryMethods
from kvstore._handle import not_found, show_as
from kvstore._iteration import ITEMS, Range, scan
from kvstore._many import ManyMethods
from kvstore._native import Data, K, V, ffi, lib, refuse_long, taken, to_bytes
from kvstore._ranges import RangeMethods
from kvstore._reopen import reduced_family
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

#: Buffers for values that no call is using just now, each with a view, whose slices are bytes. A call takes
#: one out, so that no two threads have the same.
_buffers: list[tuple[Any, Any]] = []


def _new_buffer() -> tuple[Any, Any]:
    buffer = ffi.new("char[]", lib.KVPY_SHORT_BYTES)
    return buffer, ffi.buffer(buffer)


#: No default was given.
_RAISE: Any = object()


class Family(
    RangeMethods[K, V], ManyMethods[K, V], ExpiryMethods[K, V], MutableMapping[Union[str, bytes], V], Generic[K, V]
):
    """A family of keys: a mutable mapping of live keys to values, in the order of the keys.

    Keys and values are str (kept as UTF-8) or bytes-like; what comes back is bytes, unless the family has a
    codec for its values, or ``keys=str`` (where keys that are not UTF-8 raise an InvalidError when they come
    up). A key has 1 to 65 536 bytes, a value up to ``max_value_size`` (10 MiB). Only live keys are seen: a key
    whose time is over is missing, for every method (see ``count`` and ``expiring`` for two exceptions).

    TTLs are seconds (int or float) or a timedelta, rounded up to milliseconds, and must be positive;
    ``FOREVER`` is no TTL. Moments (``expires_at``) are seconds since the Unix epoch or an aware
    datetime, and may be past: the key is gone at once. (Not milliseconds: ``time.time() * 1000`` is a moment in
    50 000 years, which is taken.) With neither, a write gives the family's
    ``default_ttl`` if there is one. Each write of a value replaces the TTL the key had, unless
    ``keep_ttl`` says otherwise.

    All methods may be called from several threads, each of which has a connection of its own; and raise
    MisuseError when the store is closed, BusyError when another thread or process is writing longer than
    ``busy_timeout``, ReadOnlyError for a write to what is read only, and other classes of :class:`Error` for what
    happens to files and disks. A write that fails changes nothing.

    A family, and a store, is equal only to itself: to compare what is in it, say ``dict(family) == {...}``.

    Families are made by :meth:`Store.family`. A family keeps its store open. It can be pickled if its store can.

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

    def __reduce__(self) -> tuple[Any, ...]:
        return reduced_family(self)

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

    def _plain(self) -> Family[Any, Any]:
        """The same family with bytes."""
        if self._coding is None:
            return self
        plain: Family[Any, Any] = Family.__new__(Family)
        plain._attach(self._shared, self._name, None, None, None, self._store)
        return plain

    # One key

    @overload
    def get(self, key: Data) -> Optional[V]: ...
    @overload
    def get(self, key: Data, default: T) -> Union[V, T]: ...
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
        cf = self._handles.cf
        if cf is None:
            cf = self._here()
        try:
            n = _get(cf, key, len(key), buffer)
        except OverflowError:
            refuse_long(key)
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
            cf = self._here()
        try:
            n = _get(cf, key, len(key), buffer)
        except OverflowError:
            refuse_long(key)
            raise
        if n >= 0:
            value: V = view[:n]
            _buffers.append(pair)
            return value
        _buffers.append(pair)
        long: Any = None if n == _MISSING else self._get_long(key, n)
        if long is None:
            raise not_found()
        return long  # type: ignore[no-any-return]

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

    # A family of bytes takes all of Data as values, one with a codec what the codec takes.

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
            value = to_bytes(value, "a value")
        if keep_ttl or if_absent or if_present:
            refuse_long(key, value)
            return self._put_with(key, value, ttl, expires_at, keep_ttl, if_absent, if_present)
        cf = self._handles.cf
        if cf is None:
            cf = self._here()
        try:
            if ttl is None and expires_at is None:
                rc = _put(cf, key, len(key), value, len(value))
            else:
                rc = self._put_until(cf, key, value, ttl, expires_at)
        except OverflowError:
            refuse_long(key, value)
            raise
        if rc:
            self._fail(rc)
        if self._scans:
            self._shared.changed()
        return True

    def _put_until(
        self, cf: Any, key: bytes, value: bytes, ttl: Optional[Duration], expires_at: Optional[Moment]
    ) -> int:
        if expires_at is None and ttl is not None and self._shared.connections.clock is None:
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
            raise ValueError("if_absent and if_present exclude each other")
        options = ffi.new("KVWriteOptions *")
        if ttl is None and expires_at is None:
            options.flags = lib.KVSTORE_PUT_DEFAULT_TTL
        elif ttl is not None and expires_at is None and self._shared.connections.clock is None:
            options.expireMs = ttl_ms(ttl)
            options.flags = lib.KVSTORE_PUT_TTL if options.expireMs else 0
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
        self._shared.changed()
        return bool(written[0])

    @overload
    def __setitem__(
        self: Family[Any, bytes], key: Union[Data, tuple[Data, Optional[Duration]]], value: Data
    ) -> None: ...
    @overload
    def __setitem__(self, key: Union[Data, tuple[Data, Optional[Duration]]], value: V) -> None: ...
    def __setitem__(self, key: Union[Data, tuple[Data, Optional[Duration]]], value: Any) -> None:
        if type(key) is tuple:
            if len(key) != 2:
                raise TypeError("a key must be str or bytes-like, or a pair of that and a TTL")
            key, ttl = key
            self.put(key, value, ttl)
            return
        if type(key) is not bytes:
            key = to_bytes(key)  # type: ignore[arg-type]
        if type(value) is not bytes:
            value = to_bytes(value, "a value")
        cf = self._handles.cf
        if cf is None:
            cf = self._here()
        try:
            rc = _put(cf, key, len(key), value, len(value))
        except OverflowError:
            refuse_long(key, value)
            raise
        if rc:
            self._fail(rc)
        if self._scans:
            self._shared.changed()

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
        """Writes a value only if the key is missing; says whether it did."""
        return self._put_with(to_bytes(key), self._encode(value), ttl, expires_at, False, True, False)

    def delete(self, key: Data) -> bool:
        """Deletes a key; says whether it was there."""
        if type(key) is not bytes:
            key = to_bytes(key)
        cf = self._handles.cf
        if cf is None:
            cf = self._here()
        try:
            rc = _delete(cf, key, len(key))
        except OverflowError:
            refuse_long(key)
            raise
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
        cf = self._handles.cf
        if cf is None:
            cf = self._here()
        try:
            found: int = _exists(cf, key, len(key))
        except OverflowError:
            refuse_long(key)
            raise
        if found < 0:
            self._fail(-found)
        return found == 1

    def has_key(self, key: Data) -> bool:
        """The same as ``key in family``."""
        return key in self

    @overload
    def pop(self, key: Data) -> V: ...
    @overload
    def pop(self, key: Data, default: T) -> Union[V, T]: ...
    def pop(self, key: Data, default: Any = _RAISE) -> Any:
        """Deletes a key and returns its value; or ``default`` if there is none, or raises NotFoundError.

        Of several threads and processes that pop a key, one gets the value.
        """
        key = to_bytes(key)
        while True:
            value: Any = Family.get(self, key)
            if value is None:
                if default is not _RAISE:
                    return default
                raise not_found()
            if self._delete_if(key, value):
                return value

    def popitem(self) -> tuple[K, V]:
        """Deletes the least key and returns it with its value; NotFoundError if there is none."""
        while True:
            first: Any = self._first()
            if first is None:
                raise not_found()
            if self._delete_if(*first):
                return first  # type: ignore[no-any-return]

    def _first(self) -> Optional[tuple[bytes, bytes]]:
        """The least key with its value, as they are kept."""
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
    def setdefault(  # there is no value None
        self, key: Data, default: Any, ttl: Optional[Duration] = None, expires_at: Optional[Moment] = None
    ) -> Any:
        """The value of a key; if there is none, ``default``, which is written first."""
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
        if ttl is not None or expires_at is not None:
            expire_ms = self._expire_ms(ttl, expires_at)
            if expire_ms == 0:
                raise ValueError("incr cannot give FOREVER: without a ttl it gives the family's default TTL")
        total = ffi.new("int64_t *")
        rc = lib.kvstore_cf_increment(self._cf, key, len(key), delta, expire_ms, total)
        if rc:
            self._fail(rc)
        self._shared.changed()
        return int(total[0])

    def decr(
        self, key: Data, delta: int = 1, ttl: Optional[Duration] = None, expires_at: Optional[Moment] = None
    ) -> int:
        """:meth:`incr` by ``-delta``."""
        return self.incr(key, -delta, ttl, expires_at)

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
        """Writes a value only if the key is there with the value ``expected``; says whether it did.

        The TTL the key had is replaced, as by put.
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
        self._shared.changed()
        return bool(swapped[0])

    @overload
    def compare_and_delete(self: Family[Any, bytes], key: Data, expected: Data) -> bool: ...
    @overload
    def compare_and_delete(self, key: Data, expected: V) -> bool: ...
    def compare_and_delete(self, key: Data, expected: Any) -> bool:
        """Deletes a key only if it is there with the value ``expected``; says whether it did."""
        return self._delete_if(key, self._encode(expected))

    def _delete_if(self, key: Data, expected: bytes) -> bool:
        key = to_bytes(key)
        deleted = ffi.new("int *")
        rc = lib.kvstore_cf_compare_and_delete(self._cf, key, len(key), expected, len(expected), deleted)
        if rc:
            self._fail(rc)
        self._shared.changed()
        return bool(deleted[0])

    def clear(self) -> None:
        """Deletes every key of the family."""
        rc = lib.kvstore_cf_clear(self._cf)
        if rc:
            self._fail(rc)
        self._shared.changed()

    def update(  # type: ignore[override] # keys of keyword arguments are text
        self, other: Union[Mapping[Any, Any], Iterable[tuple[Any, Any]]] = (), /, **values: Union[V, Data]
    ) -> None:
        """Writes all pairs, as :meth:`put_many` does, and all keyword arguments, in one transaction."""
        pairs: Any = other
        if not isinstance(other, Mapping) and hasattr(other, "keys"):
            pairs = [(key, pairs[key]) for key in pairs.keys()]
        if values:
            pairs = [*(pairs.items() if isinstance(pairs, Mapping) else pairs), *values.items()]
        self.put_many(pairs)


show_as("Family", RangeMethods, ManyMethods, ExpiryMethods)
