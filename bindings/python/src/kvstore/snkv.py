"""The interface of the package ``snkv`` 0.8 on top of kvstore, for programs that were written for
``snkv``.

A program changes only its import.

>>> from kvstore.snkv import KVStore, NotFoundError
>>> with KVStore() as db:  # in memory; a path opens or creates a file
...     db["hello"] = "world"
...     db["otp", 30] = b"123456"  # key, TTL in seconds
...     print(db["hello"], db.get("missing"), 29 < db.ttl("otp") <= 30)
...     try:
...         db["missing"]
...     except NotFoundError:
...         print("not found")
...     for key, value in db:
...         print(key, value)
b'world' None True
not found
b'hello' b'world'
b'otp' b'123456'

Keys and values are ``str`` (stored as UTF-8) or bytes, and come back as bytes. Files written by
``snkv`` cannot be opened: copy the data with ``python -m kvstore import``. Vectors and the command
line tool are not included. An encrypted store has the format of this library, in which the whole
file is encrypted; ``snkv`` leaves keys and times unencrypted.

Where this module differs from ``snkv``, ``snkv`` loses data or returns wrong data:

- Options that are not given have their defaults. In ``snkv``, giving any option without
  ``sync_level`` turns syncing off.
- A read transaction is a snapshot: writing in it raises :exc:`ReadOnlyError`, and only one can be
  open. In ``snkv``, each write in it is committed at once, and a rollback does not undo it.
- ``sync``, and reading an expired key, do not commit the open transaction.
- A negative TTL of any length expires the key at once. In ``snkv``, one longer than the time since
  1970 makes the key permanent; so does a negative ``expire_ms``, which is an error here.
- Deleting an expired key raises :exc:`NotFoundError`.
- Numbers that are not a value of an option (a journal mode of 7, a page size of 1000) are rejected.
- A reverse iterator moves in one direction only: ``first`` acts as ``last``, and ``next`` as
  ``prev``.
- Using an object after its store was closed raises :exc:`Error`; ``snkv`` reads freed memory.
- Family names that begin with "kvstore" are reserved too, and the list of families is sorted.
- Threads may share all objects. ``full_mutex`` is accepted and has no effect.

New code should use :mod:`kvstore` itself. No other module of the package depends on this one.
"""

from __future__ import annotations

import operator
import os
import threading
import weakref
from collections.abc import Iterator as TypingIterator
from typing import TYPE_CHECKING, Any, Literal, Optional, Union

from kvstore import _errors
from kvstore._native import MAX_LENGTH, NULL, check_lengths, ffi, lib

if TYPE_CHECKING:
    from typing_extensions import Self

_Encodable = Union[str, bytes, bytearray, memoryview]

# ---------------------------------------------------------------------------------------------------------
# Constants: the names and numbers of snkv, which programs may have in their settings
# ---------------------------------------------------------------------------------------------------------

JOURNAL_DELETE: int = 0
JOURNAL_WAL: int = 1

SYNC_OFF: int = 0
SYNC_NORMAL: int = 1
SYNC_FULL: int = 2

CHECKPOINT_PASSIVE: int = lib.KVSTORE_CHECKPOINT_PASSIVE
CHECKPOINT_FULL: int = lib.KVSTORE_CHECKPOINT_FULL
CHECKPOINT_RESTART: int = lib.KVSTORE_CHECKPOINT_RESTART
CHECKPOINT_TRUNCATE: int = lib.KVSTORE_CHECKPOINT_TRUNCATE

NO_TTL: int = lib.KVSTORE_NO_TTL

_JOURNAL_MODES = {JOURNAL_DELETE: lib.KVSTORE_JOURNAL_DELETE, JOURNAL_WAL: lib.KVSTORE_JOURNAL_WAL}
_SYNC_LEVELS = {
    SYNC_OFF: lib.KVSTORE_SYNC_OFF,
    SYNC_NORMAL: lib.KVSTORE_SYNC_NORMAL,
    SYNC_FULL: lib.KVSTORE_SYNC_FULL,
}
_OPTIONS = {
    "cache_size": "cacheSize",
    "page_size": "pageSize",
    "read_only": "readOnly",
    "busy_timeout": "busyTimeout",
    "wal_size_limit": "walSizeLimit",
    "full_mutex": "fullMutex",
}
_STATS = {
    "puts": "nPuts",
    "gets": "nGets",
    "deletes": "nDeletes",
    "iterations": "nIterations",
    "errors": "nErrors",
    "bytes_read": "nBytesRead",
    "bytes_written": "nBytesWritten",
    "wal_commits": "nWalCommits",
    "checkpoints": "nCheckpoints",
    "ttl_expired": "nTtlExpired",
    "ttl_purged": "nTtlPurged",
    "db_pages": "nDbPages",
}

_ERROR: int = lib.KVSTORE_ERROR
_NOTFOUND: int = lib.KVSTORE_NOTFOUND

# ---------------------------------------------------------------------------------------------------------
# Exceptions
# ---------------------------------------------------------------------------------------------------------


class Error(_errors.Error):
    """Base class of all exceptions of this module. It derives from :exc:`kvstore.Error`."""


class NotFoundError(Error, _errors.NotFoundError):
    """The key does not exist or has expired, or the family does not exist. This exception is also a
    :exc:`KeyError`.
    """


class BusyError(Error, _errors.BusyError):
    """Another handle or process holds a lock, or a family to be dropped is still open."""


class LockedError(Error, _errors.LockedError):
    """A lock inside this process is held."""


class ReadOnlyError(Error, _errors.ReadOnlyError):
    """A write was attempted on a read-only store or in a read transaction."""


class CorruptError(Error, _errors.CorruptError):
    """The file is damaged."""


class AuthError(Error, _errors.AuthError):
    """The password is wrong, or missing for an encrypted store."""


_CLASSES: dict[int, type[Error]] = {
    kind.code: kind for kind in (NotFoundError, BusyError, LockedError, ReadOnlyError, CorruptError, AuthError)
}


def _failure(code: int, kv: Any) -> Error:
    """Return the exception for a result code of a call on a store handle, or on a family or
    iterator of it.
    """
    if code == _NOTFOUND:  # not a failure for the library, which has no message for it
        return NotFoundError("no such key or column family")
    failure = _errors.last_failure(kv)
    return _CLASSES.get(code, Error)(failure.text, code, failure.hint)


def _closed(what: str) -> Error:
    return Error(f"the {what} is closed: open a new one", lib.KVSTORE_MISUSE)


# ---------------------------------------------------------------------------------------------------------
# Arguments
# ---------------------------------------------------------------------------------------------------------


def _enc(v: object, what: str = "key") -> bytes:
    """Return a key or value as bytes; str is encoded as UTF-8.

    ``what`` names the argument in messages.
    """
    if isinstance(v, str):
        data = v.encode("utf-8")
    elif isinstance(v, (bytes, bytearray, memoryview)):
        data = bytes(v)
    else:
        raise TypeError(f"{what} must be str or bytes, not {type(v).__name__!r}")
    if len(data) > MAX_LENGTH:
        raise ValueError(f"{what} has {len(data)} bytes, more than 2 GiB")
    return data


def _c_string(text: object, what: str) -> bytes:
    if not isinstance(text, str):
        raise TypeError(f"{what} must be str, not {type(text).__name__}")
    if "\0" in text:
        raise ValueError(f"{what} has an embedded null character: give one without")
    return text.encode("utf-8")


def _password(password: object) -> bytes:
    if not isinstance(password, (str, bytes, bytearray, memoryview)):
        raise TypeError(f"password must be str or bytes, not {type(password).__name__}")
    return password.encode("utf-8") if isinstance(password, str) else bytes(password)


_LONGEST_TTL_MS = 1 << 62  # so that the sum with the current time fits in 64 bits


def _ttl_ms(ttl: float) -> int:
    """Convert a TTL in seconds to milliseconds, rounded down. A TTL of 0 or less becomes 0: expired
    at once.
    """
    ms = int(float(ttl) * 1000)
    if ms > _LONGEST_TTL_MS:
        raise OverflowError(f"ttl of {ttl} seconds is out of range: use None for no TTL")
    return ms if ms > 0 else 0


# ---------------------------------------------------------------------------------------------------------
# One open store
# ---------------------------------------------------------------------------------------------------------

_BUFFER_BYTES = 16 * 1024
_LARGEST_BUFFER_BYTES = 1024 * 1024
_FIRST_ROWS = 8
_MOST_ROWS: int = lib.KVPY_CHUNK_ROWS
_NEVER_MS = (1 << 63) - 1

_kvpy_get = lib.kvpy_get
_kvstore_cf_put_for = lib.kvstore_cf_put_for
_kvstore_cf_put = lib.kvstore_cf_put


class _Session:
    """The native store handle, and the state that all objects of that store share.

    Each native call is made, and its results are copied, under ``lock``. So no handle is closed
    while a call with it is about to start (its memory would be reused), no iterator moves while its
    key is copied, and the buffers below can be shared by all threads. The library serializes the
    threads of one handle anyway.
    """

    __slots__ = (
        "__weakref__", "begun", "buffer", "buffer_bytes", "changes", "data", "data_out", "inherited", "kv", "length", "lock",
        "rows", "time_ms", "view",
    )  # fmt: skip

    def __init__(self, kv: Any) -> None:
        self.kv: Any = ffi.gc(kv, lib.kvstore_close)
        self.lock = threading.RLock()  # reentrant: a signal handler may use the store
        self.changes = 0  # counts changes that may affect rows read ahead by iterators
        self.begun = False  # whether a transaction may be open
        self.inherited = False  # whether a parent process opened the store, before a fork
        self.rows: Any = None
        self.allocate(_BUFFER_BYTES)
        self.data: Any = ffi.new("char **")
        self.data_out: Any = ffi.cast("void **", self.data)
        self.length: Any = ffi.new("int *")
        self.time_ms: Any = ffi.new("int64_t *")
        _sessions.add(self)

    def allocate(self, size: int) -> None:
        """Allocate the buffer into which values are read."""
        self.buffer: Any = ffi.new("char[]", size)
        self.buffer_bytes = size
        self.view: Any = ffi.buffer(self.buffer, size)  # slices to bytes faster than ffi.unpack

    def now_ms(self) -> int:
        """Return the time that decides about expiry, in milliseconds. On a server it is the
        server's time.
        """
        self.check(lib.kvstore_time_ms(self.kv, self.time_ms))
        now: int = self.time_ms[0]
        return now

    def chunk(self) -> Any:
        """Return the buffer into which iterators read rows ahead."""
        if self.rows is None:
            self.rows = ffi.gc(ffi.new("kvpy_chunk *"), lib.kvpy_free_chunk)
        return self.rows

    def check(self, code: int) -> None:
        """Raise the exception for the result code of a call on the store or on one of its open
        handles.

        Does nothing if the code is success.
        """
        if code:
            raise self.failure(code)

    def failure(self, code: int) -> Error:
        if self.kv is NULL:
            return _closed("KVStore")
        return _failure(code, self.kv)

    def close(self) -> None:
        with self.lock:
            if self.kv is NULL:
                return
            self.changes += 1
            kv, self.kv = self.kv, NULL
            ffi.gc(kv, None)  # detach the finalizer, which would drop the result code
            code = lib.kvstore_close(kv)
            if code and not self.inherited:
                raise _failure(code, NULL)


_sessions: weakref.WeakSet[_Session] = weakref.WeakSet()


def _renew_locks() -> None:
    """Replace the locks of all stores in the child of a fork.

    A thread that does not exist in the child may have held one.
    """
    for session in list(_sessions):
        session.lock = threading.RLock()
        session.inherited = True
        session.changes += 1  # iterators call the library again, which reports that the store is the parent's


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)


# ---------------------------------------------------------------------------------------------------------
# Iterators
# ---------------------------------------------------------------------------------------------------------


class Iterator:
    """An iterator over the live entries of a family in key order, ascending or descending.

    Three ways to use it::

        for key, value in db.iterator(): ...
        with db.iterator() as it: ...
        it.first()                              # for a reverse iterator: it.last() and it.prev()
        while not it.eof:
            print(it.key, it.value)
            it.next()

    It holds no lock: writing, committing and closing are possible while it is open. It sees what
    this store writes ahead of its position.
    """

    # As a Python iterator it reads ahead many rows in one native call. `_row` is the last returned
    # row while the native iterator is after the rows in `_ahead`; None while the native iterator is
    # at the current row. The rows ahead are discarded when this store writes and when one of them
    # expires. They exist without `_row` only if the clock could not be read.
    __slots__ = (
        "_ahead", "_changes", "_failed", "_first_expire_ms", "_native", "_row", "_session", "_size", "_started",
    )  # fmt: skip

    def __init__(self, raw: Any, session: _Session, started: Optional[bool]) -> None:
        """Create an iterator for the native iterator ``raw``. For internal use.

        ``started`` is None if ``raw`` is already at its first entry.
        """
        self._native: Any = ffi.gc(raw, lib.kvstore_iterator_close)
        self._session = session
        self._started = started
        self._row: Optional[tuple[bytes, bytes]] = None
        self._ahead: list[tuple[bytes, bytes]] = []  # reversed: the next row is the last element
        self._first_expire_ms = _NEVER_MS  # the earliest expiry time of the rows ahead
        self._changes = 0  # session.changes when the rows ahead were read
        self._failed = 0  # the result code of a failed read after the rows ahead
        self._size = _FIRST_ROWS

    def _check(self, code: int) -> None:
        if code:
            raise _closed("Iterator") if self._native is NULL else self._session.failure(code)

    # --- Manual control ---

    def first(self) -> Iterator:
        """Move to the first entry, and return this iterator."""
        with self._session.lock:
            self._check(lib.kvstore_iterator_first(self._native))
            self._moved()
        return self

    def last(self) -> Iterator:
        """Move a reverse iterator to the last entry, and return this iterator.

        Raises Error for a forward iterator.
        """
        with self._session.lock:
            self._check(lib.kvstore_iterator_last(self._native))
            self._moved()
        return self

    def seek(self, key: _Encodable) -> Iterator:
        """Move to the first key that is equal to ``key`` or greater, and return this iterator.

        A reverse iterator moves to the first key that is equal or less.
        """
        raw = _enc(key)
        with self._session.lock:
            self._check(lib.kvstore_iterator_seek(self._native, raw, len(raw)))
            self._moved()
        return self

    def next(self) -> None:
        """Move to the next entry."""
        with self._session.lock:
            if self._row is not None:
                self._go_behind(self._row[0])
            elif self._ahead:
                self._go_back()
            else:
                self._check(lib.kvstore_iterator_next(self._native))

    def prev(self) -> None:
        """Move a reverse iterator to the previous entry. Raises Error for a forward iterator."""
        with self._session.lock:
            self._check(lib.kvstore_iterator_prev(self._native))
            if self._row is not None:
                self._go_behind(self._row[0])
            elif self._ahead:
                self._go_back()

    @property
    def eof(self) -> bool:
        """Whether the iterator has no current entry.

        It has none before the first move, after the last entry, and when it is closed.
        """
        with self._session.lock:
            if self._ahead and self._session.kv is not NULL:
                return False
            return self._current() is None and self._at_eof()

    @property
    def key(self) -> bytes:
        """The key of the current entry. Raises Error at the end."""
        with self._session.lock:
            row = self._here()
            return self._key() if row is None else row[0]

    @property
    def value(self) -> bytes:
        """The value of the current entry. Raises Error at the end."""
        with self._session.lock:
            row = self._here()
            return self._value() if row is None else row[1]

    def item(self) -> tuple[bytes, bytes]:
        """Return the ``(key, value)`` of the current entry. Raises Error at the end."""
        with self._session.lock:
            return self._here() or (self._key(), self._value())

    def _moved(self) -> None:
        """Record that the native iterator is at the current entry, and discard the rows read ahead.
        """
        self._started = True
        self._row = None
        self._ahead.clear()

    def _go_behind(self, key: bytes) -> None:
        """Move the native iterator to the entry after ``key``, which may no longer exist."""
        self._check(lib.kvstore_iterator_seek(self._native, key, len(key)))
        self._moved()
        if not self._at_eof() and self._key() == key:
            self._check(lib.kvstore_iterator_next(self._native))

    def _go_back(self) -> None:
        """Move the native iterator back to the first of the rows that were read ahead."""
        key = self._ahead[-1][0]
        self._check(lib.kvstore_iterator_seek(self._native, key, len(key)))
        self._moved()

    def _stay(self) -> None:
        """Record that :meth:`__next__` must return the entry at which the native iterator is."""
        self._started = None

    def _here(self) -> Optional[tuple[bytes, bytes]]:
        """Return the current row if it was read ahead; None if it must be read from the native
        iterator.
        """
        if self._row is None and self._ahead:
            self._go_back()
            self._stay()
        return self._current()

    def _current(self) -> Optional[tuple[bytes, bytes]]:
        return None if self._session.kv is NULL else self._row

    def _at_eof(self) -> bool:
        return bool(lib.kvstore_iterator_eof(self._native))

    def _key(self) -> bytes:
        session = self._session
        self._check(lib.kvstore_iterator_key(self._native, session.data_out, session.length))
        data: bytes = ffi.unpack(session.data[0], session.length[0])
        return data

    def _value(self) -> bytes:
        session = self._session
        self._check(lib.kvstore_iterator_value(self._native, session.data_out, session.length))
        data: bytes = ffi.unpack(session.data[0], session.length[0])
        return data

    # --- Python iterator protocol ---

    def __iter__(self) -> TypingIterator[tuple[bytes, bytes]]:
        return self

    def __next__(self) -> tuple[bytes, bytes]:
        session = self._session
        lock = session.lock
        lock.acquire()
        try:
            if self._ahead and self._changes == session.changes and self._none_expired():
                self._row = row = self._ahead.pop()
                return row
            return self._read()
        finally:
            lock.release()

    def _none_expired(self) -> bool:
        return self._first_expire_ms == _NEVER_MS or self._session.now_ms() < self._first_expire_ms

    def _read(self) -> tuple[bytes, bytes]:
        """Return the next row from the native iterator, and read further rows ahead."""
        session = self._session
        native = self._native
        if native is NULL:
            raise StopIteration
        if self._row is not None:
            if self._ahead or self._failed or self._changes != session.changes or not self._none_expired():
                self._go_behind(self._row[0])
                self._size = 1  # rows that changed once are likely to change again
        elif self._ahead:
            self._go_back()
        elif self._started:
            self._check(lib.kvstore_iterator_next(native))
        elif self._started is not None:
            self._check(lib.kvstore_iterator_first(native))
        self._moved()
        self._changes = session.changes
        while True:
            chunk = session.chunk()
            count: int = lib.kvpy_fill(native, self._size, chunk)
            self._size = min(self._size * 2, _MOST_ROWS)
            self._failed = chunk.failed
            if count == 0:
                if self._failed:
                    self._stay()
                self._check(self._failed)
                if session.kv is NULL:
                    raise _closed("KVStore")
                raise StopIteration
            ends: list[int] = ffi.unpack(chunk.ends, 2 * count)
            data: bytes = ffi.unpack(chunk.bytes, ends[-1])
            keys_from, keys_to = [0, *ends[1:-1:2]], ends[::2]
            rows = [(data[a:b], data[b:c]) for a, b, c in zip(keys_from, keys_to, ends[1::2])]
            rows.reverse()
            self._ahead = rows  # set before the clock is read: if that fails, these rows are still ahead
            self._first_expire_ms = chunk.first_expire_ms
            now_ms = 0 if self._first_expire_ms == _NEVER_MS else session.now_ms()
            if now_ms >= self._first_expire_ms:
                live = [ms == NO_TTL or ms > now_ms for ms in ffi.unpack(chunk.expire_ms, count)]
                live_rows = [row for row, is_live in zip(reversed(rows), live) if is_live]
                self._ahead = []
                if not live_rows:
                    if self._failed:
                        self._stay()
                    self._check(self._failed)
                    continue
                self._row = row = live_rows[0]  # the other rows are read again
                return row
            self._row = row = rows.pop()
            return row

    # --- Lifecycle ---

    def close(self) -> None:
        """Close the iterator. It may be closed twice."""
        with self._session.lock:
            if self._native is not NULL:
                self._moved()
                native, self._native = self._native, NULL
                ffi.release(native)

    def __enter__(self) -> Iterator:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()


# ---------------------------------------------------------------------------------------------------------
# Families
# ---------------------------------------------------------------------------------------------------------


class _Entries:
    """Base class of stores and families with the methods on keys. Those of a store work on its
    default family.
    """

    __slots__ = ()

    _session: _Session
    _family: Any
    """The native family handle; NULL once closed, so that the library rejects every call."""

    def _failure(self, code: int) -> Error:
        return _closed(type(self)._what()) if self._family is NULL else self._session.failure(code)

    @classmethod
    def _what(cls) -> str:
        return "ColumnFamily"

    # --- Core operations ---

    def put(self, key: _Encodable, value: _Encodable, ttl: Optional[float] = None) -> None:
        """Write the value of a key, with a TTL if given.

        ``ttl`` is in seconds. None: the key never expires, whatever TTL it had before.
        """
        if key.__class__ is not bytes:
            key = _enc(key)
        if value.__class__ is not bytes:
            value = _enc(value, "value")
        ttl_ms = None if ttl is None else _ttl_ms(ttl)
        session = self._session
        lock = session.lock
        lock.acquire()  # half the cost of a with statement; also in get
        try:
            session.changes += 1
            if ttl_ms is None:
                code = _kvstore_cf_put(self._family, key, len(key), value, len(value))
            elif ttl_ms:
                code = _kvstore_cf_put_for(self._family, key, len(key), value, len(value), ttl_ms)
            else:  # expires at once: an expiry time long past
                code = lib.kvstore_cf_put_ttl(self._family, key, len(key), value, len(value), 1)
            if code:
                raise self._failure(code)
        except OverflowError:
            check_lengths(key, value)
            raise
        finally:
            lock.release()

    def get(self, key: _Encodable, default: Optional[bytes] = None) -> Optional[bytes]:
        """Return the value of a key, or ``default`` if the key does not exist or has expired."""
        if key.__class__ is not bytes:
            key = _enc(key)
        session = self._session
        lock = session.lock
        lock.acquire()
        try:
            length = _kvpy_get(self._family, key, len(key), session.buffer, session.buffer_bytes)
            if length < 0:
                if length == -_NOTFOUND:
                    return default
                raise self._failure(-length)
            if length <= session.buffer_bytes:
                value: bytes = session.view[:length]
                return value
            return self._get_long(key, length, default)
        except OverflowError:
            check_lengths(key)
            raise
        finally:
            lock.release()

    def _get_long(self, key: bytes, length: int, default: Optional[bytes]) -> Optional[bytes]:
        """Read a value that was too long for the buffer, and enlarge the buffer for later reads."""
        session = self._session
        if session.buffer_bytes < length <= _LARGEST_BUFFER_BYTES:
            session.allocate(1 << (length - 1).bit_length())
        code = lib.kvstore_cf_get(self._family, key, len(key), session.data_out, session.length)
        if code == _NOTFOUND:
            return default
        if code:
            raise self._failure(code)
        try:
            data: bytes = ffi.unpack(session.data[0], session.length[0])
            return data
        finally:
            lib.kvstore_free(session.data[0])

    def delete(self, key: _Encodable) -> None:
        """Delete a key. Raises NotFoundError (a KeyError) if it does not exist or has expired."""
        raw = _enc(key)
        with self._session.lock:
            self._session.changes += 1
            code = lib.kvstore_cf_delete(self._family, raw, len(raw))
            if code:
                raise self._failure(code)

    def exists(self, key: _Encodable) -> bool:
        """Return whether a key exists and has not expired."""
        raw = _enc(key)
        with self._session.lock:
            found: int = lib.kvpy_exists(self._family, raw, len(raw))
            if found < 0:
                raise self._failure(-found)
        return found != 0

    def ttl(self, key: _Encodable) -> Optional[float]:
        """Return the remaining TTL of a key in seconds, or None if the key never expires.

        The result is rounded down to milliseconds.

        0.0 if it has expired and no earlier call has found that. Raises NotFoundError if the key
        does not exist.
        """
        raw = _enc(key)
        session = self._session
        with session.lock:
            code = lib.kvstore_cf_ttl_remaining(self._family, raw, len(raw), session.time_ms)
            if code:
                raise self._failure(code)
            remaining_ms: int = session.time_ms[0]
        return None if remaining_ms == NO_TTL else remaining_ms / 1000.0

    def purge_expired(self) -> int:
        """Remove all expired keys of the family, and return how many were removed."""
        session = self._session
        with session.lock:
            session.changes += 1
            code = lib.kvstore_cf_purge_expired(self._family, session.length)
            if code:
                raise self._failure(code)
            return int(session.length[0])

    def put_if_absent(self, key: _Encodable, value: _Encodable, ttl: Optional[float] = None) -> bool:
        """Write a value only if the key does not exist or has expired, and return whether it was
        written.

        ``ttl`` is in seconds; None: the key never expires.
        """
        raw_key, raw_value = _enc(key), _enc(value, "value")
        session = self._session
        with session.lock:
            session.changes += 1
            expire_ms = 0 if ttl is None else session.now_ms() + _ttl_ms(ttl)
            code = lib.kvstore_cf_put_if_absent(
                self._family, raw_key, len(raw_key), raw_value, len(raw_value), expire_ms, session.length
            )
            if code:
                raise self._failure(code)
            return bool(session.length[0])

    def clear(self) -> None:
        """Delete all keys of the family."""
        with self._session.lock:
            self._session.changes += 1
            code = lib.kvstore_cf_clear(self._family)
            if code:
                raise self._failure(code)

    def count(self) -> int:
        """Return the number of keys in the family, including expired keys that have not been
        removed yet.

        Call :meth:`purge_expired` first to exclude them.
        """
        session = self._session
        with session.lock:
            code = lib.kvstore_cf_count(self._family, session.time_ms)
            if code:
                raise self._failure(code)
            return int(session.time_ms[0])

    # --- Iterators ---

    def iterator(self, *, reverse: bool = False, prefix: Optional[_Encodable] = None) -> Iterator:
        """Return an iterator over all keys, or over those that start with ``prefix``.

        With ``reverse`` the order is descending.
        """
        session = self._session
        if prefix is None:
            make = lib.kvstore_cf_reverse_iterator_create if reverse else lib.kvstore_cf_iterator_create
            arguments: tuple[Any, ...] = ()
        else:
            make = lib.kvstore_cf_reverse_prefix_iterator_create if reverse else lib.kvstore_cf_prefix_iterator_create
            raw = _enc(prefix)
            arguments = (raw, len(raw))
        out = ffi.new("KVIterator **")
        with session.lock:
            code = make(self._family, *arguments, out)
            if code:
                raise self._failure(code)
            return Iterator(out[0], session, False if prefix is None else None)

    def prefix_iterator(self, prefix: _Encodable) -> Iterator:
        """Return an iterator over the keys that start with ``prefix``."""
        return self.iterator(prefix=_enc(prefix))

    def reverse_iterator(self) -> Iterator:
        """Return an iterator over all keys in descending order."""
        return self.iterator(reverse=True)

    def reverse_prefix_iterator(self, prefix: _Encodable) -> Iterator:
        """Return an iterator over the keys that start with ``prefix``, in descending order."""
        return self.iterator(reverse=True, prefix=_enc(prefix))

    # --- dict-like interface ---

    def __getitem__(self, key: _Encodable) -> bytes:
        value = self.get(key)
        if value is None:
            raise _failure(_NOTFOUND, NULL)
        return value

    def __setitem__(self, key: Union[_Encodable, tuple[_Encodable, float]], value: _Encodable) -> None:
        if isinstance(key, tuple):
            key, ttl = key
            self.put(key, value, 0.0 + ttl)  # requires a number here; put() also accepts a numeric str
        else:
            self.put(key, value)

    def __delitem__(self, key: _Encodable) -> None:
        self.delete(key)

    def __contains__(self, key: object) -> bool:
        if not isinstance(key, (str, bytes, bytearray, memoryview)):
            return False
        return self.exists(key)

    def __iter__(self) -> TypingIterator[tuple[bytes, bytes]]:
        return self.iterator()


class ColumnFamily(_Entries):
    """A family: a named set of keys in a store. Returned by the ``*_column_family`` methods.

    See :class:`kvstore.Family`.

    >>> with KVStore() as db, db.create_column_family("users") as users:
    ...     users["alice"] = "30"
    ...     print(users["alice"], "alice" in users, "alice" in db)
    b'30' True False
    """

    __slots__ = ("_family", "_session")

    def __init__(self, raw: Any, session: _Session) -> None:
        """Create a family for a native handle. For internal use."""
        self._family = ffi.gc(raw, lib.kvstore_cf_close)
        self._session = session

    def close(self) -> None:
        """Close this handle of the family; the data stays. It may be closed twice."""
        with self._session.lock:
            if self._family is not NULL:
                family, self._family = self._family, NULL
                ffi.release(family)

    def __enter__(self) -> ColumnFamily:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()


# ---------------------------------------------------------------------------------------------------------
# Stores
# ---------------------------------------------------------------------------------------------------------


class _LowLevel:
    """The object ``KVStore._db``, whose ``put_ttl`` takes an expiry time instead of a TTL."""

    __slots__ = ("_store",)

    def __init__(self, store: KVStore) -> None:
        self._store = store

    def put_ttl(self, key: bytes, value: bytes, expire_ms: int) -> None:
        """Write a value that expires ``expire_ms`` milliseconds after the Unix epoch; 0: never."""
        raw_key, raw_value, store = _enc(key), _enc(value, "value"), self._store
        with store._session.lock:
            store._session.changes += 1
            code = lib.kvstore_cf_put_ttl(
                store._family, raw_key, len(raw_key), raw_value, len(raw_value), operator.index(expire_ms)
            )
            if code:
                raise store._failure(code)


class KVStore(_Entries):
    """A store, with the interface of ``snkv.KVStore``. Its methods on keys work on the default
    family.

    ``path`` is a file, created if it does not exist, or the URL of a store on a PostgreSQL server;
    None: a store in memory. ``journal_mode`` is ``JOURNAL_WAL`` or ``JOURNAL_DELETE``. The options
    in ``config`` are int:

    - ``sync_level``: ``SYNC_NORMAL`` (default), ``SYNC_FULL`` or ``SYNC_OFF``
    - ``cache_size``: of the page cache, in pages (default 2000)
    - ``page_size``: of a new file, in bytes (default 4096)
    - ``read_only``: 1 to open an existing file only for reading
    - ``busy_timeout``: milliseconds to wait for a lock (default 0: fail with BusyError at once)
    - ``wal_size_limit``: the number of commits between two checkpoints (default 0: checkpoints
      depend on the size of the WAL only; with a size limit of the store, both apply)
    - ``full_mutex``: no effect; threads may always share a store

    Close it, or use it in a ``with`` statement, which closes it. An open transaction is rolled
    back.
    """

    def __init__(self, path: Optional[str] = None, *, journal_mode: int = JOURNAL_WAL, **config: int) -> None:
        self._open(path, journal_mode, config, None)

    def _open(self, path: Optional[str], journal_mode: int, config: dict[str, int], password: Optional[bytes]) -> None:
        native = ffi.new("KVStoreConfig *")
        native.journalMode = _choice("journal_mode", journal_mode, _JOURNAL_MODES)
        for name, value in config.items():
            if name == "sync_level":
                native.syncLevel = _choice(name, value, _SYNC_LEVELS)
            elif name in _OPTIONS:
                setattr(native, _OPTIONS[name], operator.index(value))
            else:
                raise TypeError(f"{name!r} is an invalid keyword argument for KVStore()")
        c_path = NULL if path is None else _c_string(path, "path")
        out = ffi.new("KVStore **")
        if password is None:
            code = lib.kvstore_open_v2(c_path, out, native)
        else:
            code = lib.kvstore_open_encrypted(c_path, password, len(password), out, native)
        if code:
            raise _failure(code, NULL)
        self._session = _Session(out[0])
        family = ffi.new("KVColumnFamily **")
        self._session.check(lib.kvstore_cf_get_default(out[0], family))
        self._family = ffi.gc(family[0], lib.kvstore_cf_close)

    @classmethod
    def _what(cls) -> str:
        return "KVStore"

    @property
    def _db(self) -> _LowLevel:
        return _LowLevel(self)

    # --- Transactions ---

    def begin(self, write: bool = False) -> None:
        """Begin a transaction: a write transaction if ``write`` is True, otherwise a read-only
        snapshot.
        """
        session = self._session
        with session.lock:
            session.changes += 1
            session.check(lib.kvstore_begin(session.kv, 1 if write else 0))
            session.begun = True

    def commit(self) -> None:
        """Commit the transaction. Does nothing if none is open."""
        session = self._session
        with session.lock:
            session.changes += 1
            code = lib.kvstore_commit(session.kv)
            if code != _ERROR or session.kv is NULL or session.begun:  # otherwise the code means that none is open
                session.check(code)
            session.begun = False

    def rollback(self) -> None:
        """Roll back the transaction. Does nothing if none is open."""
        session = self._session
        with session.lock:
            session.changes += 1
            begun, session.begun = session.begun, False
            code = lib.kvstore_rollback(session.kv)
            if code != _ERROR or session.kv is NULL or begun:
                session.check(code)

    # --- Column families ---

    def create_column_family(self, name: str) -> ColumnFamily:
        """Create a family and return a handle on it. Raises Error if the family exists already.

        "default" returns the default family.
        """
        if name == "default":
            return self.default_column_family()
        return self._open_family(lib.kvstore_cf_create, _c_string(name, "a column family's name"))

    def open_column_family(self, name: str) -> ColumnFamily:
        """Open a family and return a handle on it. Raises NotFoundError if it does not exist."""
        return self._open_family(lib.kvstore_cf_open, _c_string(name, "a column family's name"))

    def default_column_family(self) -> ColumnFamily:
        """Open the default family and return a handle on it."""
        return self._open_family(lib.kvstore_cf_get_default)

    def _open_family(self, function: Any, *arguments: bytes) -> ColumnFamily:
        session = self._session
        out = ffi.new("KVColumnFamily **")
        with session.lock:
            session.check(function(session.kv, *arguments, out))
            return ColumnFamily(out[0], session)

    def list_column_families(self) -> list[str]:
        """Return the names of all families except the default one, sorted."""
        session = self._session
        names, count = ffi.new("char ***"), ffi.new("int *")
        with session.lock:
            session.check(lib.kvstore_cf_list(session.kv, names, count))
        try:
            return [ffi.string(names[0][i]).decode("utf-8") for i in range(count[0])]
        finally:
            for i in range(count[0]):
                lib.kvstore_free(names[0][i])
            lib.kvstore_free(names[0])

    def drop_column_family(self, name: str) -> None:
        """Delete a family with all its keys. Raises BusyError while a handle to it is open."""
        session = self._session
        c_name = _c_string(name, "a column family's name")
        with session.lock:
            session.changes += 1
            session.check(lib.kvstore_cf_drop(session.kv, c_name))

    # --- Maintenance ---

    def sync(self) -> None:
        """Make every commit so far durable, so that it survives a power cut.

        Does not commit an open transaction.
        """
        session = self._session
        with session.lock:
            session.check(lib.kvstore_sync(session.kv))

    def vacuum(self, n_pages: int = 0) -> None:
        """Return up to ``n_pages`` free pages of the file to the file system. 0 means all."""
        session = self._session
        with session.lock:
            session.check(lib.kvstore_incremental_vacuum(session.kv, operator.index(n_pages)))

    def integrity_check(self) -> None:
        """Check the whole file for damage. Raises CorruptError, which names the first problem."""
        session = self._session
        with session.lock:
            session.check(lib.kvstore_integrity_check(session.kv, NULL))

    def checkpoint(self, mode: int = CHECKPOINT_PASSIVE) -> tuple[int, int]:
        """Copy the write-ahead log (WAL) into the database file. ``mode`` is one of
        ``CHECKPOINT_*``.

        Returns (nLog, nCkpt): the frames in the WAL, and how many of them are copied.
        """
        session = self._session
        log, done = ffi.new("int *"), ffi.new("int *")
        with session.lock:
            session.check(lib.kvstore_checkpoint(session.kv, operator.index(mode), log, done))
        return log[0], done[0]

    def stats(self) -> dict[str, int]:
        """Return counters of this store since it was opened or ``stats_reset`` was called.

        Keys: puts, gets, deletes, iterations, errors, bytes_read, bytes_written, wal_commits,
        checkpoints, ttl_expired, ttl_purged; and db_pages, the current size of the file in pages.
        """
        session = self._session
        native = ffi.new("KVStoreStats *")
        with session.lock:
            session.check(lib.kvstore_stats(session.kv, native))
        return {name: getattr(native, field) for name, field in _STATS.items()}

    def stats_reset(self) -> None:
        """Set all counters of this store to zero."""
        session = self._session
        with session.lock:
            session.check(lib.kvstore_stats_reset(session.kv))

    @property
    def errmsg(self) -> str:
        """The message of the last failed call on this store."""
        session = self._session
        with session.lock:
            if session.kv is NULL:
                raise _closed("KVStore")
            return _errors.last_failure(session.kv).text

    # --- Encryption ---

    @classmethod
    def open_encrypted(cls, path: Optional[str], password: Union[str, bytes]) -> Self:
        """Open or create an encrypted store; a store that is not encrypted is encrypted in place.

        Raises AuthError if the password is wrong.
        """
        store = cls.__new__(cls)
        store._open(path, JOURNAL_WAL, {}, _password(password))
        return store

    def is_encrypted(self) -> bool:
        """Return whether the store is encrypted."""
        session = self._session
        with session.lock:
            if session.kv is NULL:
                raise _closed("KVStore")
            return bool(lib.kvstore_is_encrypted(session.kv))

    def reencrypt(self, new_password: Union[str, bytes]) -> None:
        """Replace the password of an encrypted store, in place. Raises BusyError while it is open
        elsewhere.
        """
        password, session = _password(new_password), self._session
        with session.lock:
            session.changes += 1
            session.check(lib.kvstore_reencrypt(session.kv, password, len(password)))

    def remove_encryption(self) -> None:
        """Remove the encryption of the store, in place. Raises BusyError while it is open
        elsewhere.
        """
        session = self._session
        with session.lock:
            session.changes += 1
            session.check(lib.kvstore_remove_encryption(session.kv))

    # --- Lifecycle ---

    def close(self) -> None:
        """Close the store. An open transaction is rolled back. The store may be closed twice."""
        with self._session.lock:
            if self._family is not NULL:
                family, self._family = self._family, NULL
                ffi.release(family)
            self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exc_type: object, exc_val: object, exc_tb: object) -> Literal[False]:
        self.close()
        return False

    def __repr__(self) -> str:
        return "snkv.KVStore()"


def _choice(name: str, value: int, choices: dict[int, int]) -> int:
    """Convert a number that ``snkv`` uses for an option to the number of the library."""
    number = operator.index(value)
    if number not in choices:
        raise Error(f"{name} must be one of {sorted(choices)}, not {number}")
    return choices[number]


__all__ = [
    "CHECKPOINT_FULL",
    "CHECKPOINT_PASSIVE",
    "CHECKPOINT_RESTART",
    "CHECKPOINT_TRUNCATE",
    "JOURNAL_DELETE",
    "JOURNAL_WAL",
    "NO_TTL",
    "SYNC_FULL",
    "SYNC_NORMAL",
    "SYNC_OFF",
    "AuthError",
    "BusyError",
    "ColumnFamily",
    "CorruptError",
    "Error",
    "Iterator",
    "KVStore",
    "LockedError",
    "NotFoundError",
    "ReadOnlyError",
]
