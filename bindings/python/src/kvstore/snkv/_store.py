"""Classes KVStore and ColumnFamily."""

from __future__ import annotations

import operator
from collections.abc import Iterator as TypingIterator
from typing import TYPE_CHECKING, Any, Literal, Optional, Union

from kvstore._errors import last_failure
from kvstore._native import NULL, check_lengths, ffi, lib
from kvstore._time import FIRST_MOMENT_MS
from kvstore.snkv._constants import (
    CHECKPOINT_PASSIVE, JOURNAL_DELETE, JOURNAL_WAL, NO_TTL, SYNC_FULL, SYNC_NORMAL, SYNC_OFF,
)  # fmt: skip
from kvstore.snkv._errors import NOTFOUND, Error, closed_error, failure
from kvstore.snkv._iterator import Iterator
from kvstore.snkv._session import LARGEST_BUFFER_BYTES, Encodable, Session, c_string, encoded, password_bytes, ttl_ms

if TYPE_CHECKING:
    from typing_extensions import Self

_ERROR: int = lib.KVSTORE_ERROR
_kvpy_get = lib.kvpy_get
_kvstore_cf_put_for = lib.kvstore_cf_put_for
_kvstore_cf_put = lib.kvstore_cf_put

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


class _Entries:
    """Base class of stores and families with the methods on keys. Those of a store work on its
    default family.
    """

    __slots__ = ()

    _session: Session
    _family: Any
    """The native family handle; NULL once closed, so that the library rejects every call."""

    def _failure(self, code: int) -> Error:
        return closed_error(type(self)._what()) if self._family is NULL else self._session.failure(code)

    @classmethod
    def _what(cls) -> str:
        return "ColumnFamily"

    # --- Core operations ---

    def put(self, key: Encodable, value: Encodable, ttl: Optional[float] = None) -> None:
        """Write the value of a key, with a TTL if given.

        ``ttl`` is in seconds. None: the key never expires, whatever TTL it had before.
        """
        if key.__class__ is not bytes:
            key = encoded(key)
        if value.__class__ is not bytes:
            value = encoded(value, "value")
        ms = None if ttl is None else ttl_ms(ttl)
        session = self._session
        lock = session.lock
        lock.acquire()  # half the cost of a with statement; also in get
        try:
            session.changes += 1
            if ms is None:
                code = _kvstore_cf_put(self._family, key, len(key), value, len(value))
            elif ms:
                code = _kvstore_cf_put_for(self._family, key, len(key), value, len(value), ms)
            else:  # expires at once
                code = lib.kvstore_cf_put_ttl(self._family, key, len(key), value, len(value), FIRST_MOMENT_MS)
            if code:
                raise self._failure(code)
        except OverflowError:
            check_lengths(key, value)
            raise
        finally:
            lock.release()

    def get(self, key: Encodable, default: Optional[bytes] = None) -> Optional[bytes]:
        """Return the value of a key, or ``default`` if the key does not exist or has expired."""
        if key.__class__ is not bytes:
            key = encoded(key)
        session = self._session
        lock = session.lock
        lock.acquire()
        try:
            length = _kvpy_get(self._family, key, len(key), session.buffer, session.buffer_bytes)
            if length < 0:
                if length == -NOTFOUND:
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
        if session.buffer_bytes < length <= LARGEST_BUFFER_BYTES:
            session.allocate(1 << (length - 1).bit_length())
        code = lib.kvstore_cf_get(self._family, key, len(key), session.data_out, session.length)
        if code == NOTFOUND:
            return default
        if code:
            raise self._failure(code)
        try:
            data: bytes = ffi.unpack(session.data[0], session.length[0])
            return data
        finally:
            lib.kvstore_free(session.data[0])

    def delete(self, key: Encodable) -> None:
        """Delete a key. Raises NotFoundError (a KeyError) if it does not exist or has expired."""
        raw = encoded(key)
        with self._session.lock:
            self._session.changes += 1
            code = lib.kvstore_cf_delete(self._family, raw, len(raw))
            if code:
                raise self._failure(code)

    def exists(self, key: Encodable) -> bool:
        """Return whether a key exists and has not expired."""
        raw = encoded(key)
        with self._session.lock:
            found: int = lib.kvpy_exists(self._family, raw, len(raw))
            if found < 0:
                raise self._failure(-found)
        return found != 0

    def ttl(self, key: Encodable) -> Optional[float]:
        """Return the remaining TTL of a key in seconds, or None if the key never expires.

        The result is rounded down to milliseconds.

        0.0 if it has expired and no earlier call has found that. Raises NotFoundError if the key
        does not exist.
        """
        raw = encoded(key)
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

    def put_if_absent(self, key: Encodable, value: Encodable, ttl: Optional[float] = None) -> bool:
        """Write a value only if the key does not exist or has expired, and return whether it was
        written.

        ``ttl`` is in seconds; None: the key never expires.
        """
        raw_key, raw_value = encoded(key), encoded(value, "value")
        session = self._session
        with session.lock:
            session.changes += 1
            expire_ms = 0 if ttl is None else session.now_ms() + ttl_ms(ttl)
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

    def iterator(self, *, reverse: bool = False, prefix: Optional[Encodable] = None) -> Iterator:
        """Return an iterator over all keys, or over those that start with ``prefix``.

        With ``reverse`` the order is descending.
        """
        session = self._session
        if prefix is None:
            make = lib.kvstore_cf_reverse_iterator_create if reverse else lib.kvstore_cf_iterator_create
            arguments: tuple[Any, ...] = ()
        else:
            make = lib.kvstore_cf_reverse_prefix_iterator_create if reverse else lib.kvstore_cf_prefix_iterator_create
            raw = encoded(prefix)
            arguments = (raw, len(raw))
        out = ffi.new("KVIterator **")
        with session.lock:
            code = make(self._family, *arguments, out)
            if code:
                raise self._failure(code)
            return Iterator(out[0], session, False if prefix is None else None)

    def prefix_iterator(self, prefix: Encodable) -> Iterator:
        """Return an iterator over the keys that start with ``prefix``."""
        return self.iterator(prefix=encoded(prefix))

    def reverse_iterator(self) -> Iterator:
        """Return an iterator over all keys in descending order."""
        return self.iterator(reverse=True)

    def reverse_prefix_iterator(self, prefix: Encodable) -> Iterator:
        """Return an iterator over the keys that start with ``prefix``, in descending order."""
        return self.iterator(reverse=True, prefix=encoded(prefix))

    # --- dict-like interface ---

    def __getitem__(self, key: Encodable) -> bytes:
        value = self.get(key)
        if value is None:
            raise failure(NOTFOUND, NULL)
        return value

    def __setitem__(self, key: Union[Encodable, tuple[Encodable, float]], value: Encodable) -> None:
        if isinstance(key, tuple):
            key, ttl = key
            self.put(key, value, 0.0 + ttl)  # requires a number here; put() also accepts a numeric str
        else:
            self.put(key, value)

    def __delitem__(self, key: Encodable) -> None:
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

    def __init__(self, raw: Any, session: Session) -> None:
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


class _LowLevel:
    """The object ``KVStore._db``, whose ``put_ttl`` takes an expiry time instead of a TTL."""

    __slots__ = ("_store",)

    def __init__(self, store: KVStore) -> None:
        self._store = store

    def put_ttl(self, key: bytes, value: bytes, expire_ms: int) -> None:
        """Write a value that expires ``expire_ms`` milliseconds after the Unix epoch; 0: never."""
        raw_key, raw_value, store = encoded(key), encoded(value, "value"), self._store
        expire_ms = operator.index(expire_ms)
        if 0 < expire_ms < FIRST_MOMENT_MS:
            expire_ms = FIRST_MOMENT_MS  # also in the past; the library takes less for a mistake
        with store._session.lock:
            store._session.changes += 1
            code = lib.kvstore_cf_put_ttl(
                store._family, raw_key, len(raw_key), raw_value, len(raw_value), expire_ms
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
        native.busyTimeout = native.busyTimeout or -1  # SNKV does not wait by default
        c_path = NULL if path is None else c_string(path, "path")
        out = ffi.new("KVStore **")
        if password is None:
            code = lib.kvstore_open_v2(c_path, out, native)
        else:
            code = lib.kvstore_open_encrypted(c_path, password, len(password), out, native)
        if code:
            raise failure(code, NULL)
        self._session = Session(out[0])
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
        return self._open_family(lib.kvstore_cf_create, c_string(name, "a column family's name"))

    def open_column_family(self, name: str) -> ColumnFamily:
        """Open a family and return a handle on it. Raises NotFoundError if it does not exist."""
        return self._open_family(lib.kvstore_cf_open, c_string(name, "a column family's name"))

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
        c_name = c_string(name, "a column family's name")
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
                raise closed_error("KVStore")
            return last_failure(session.kv).text

    # --- Encryption ---

    @classmethod
    def open_encrypted(cls, path: Optional[str], password: Union[str, bytes]) -> Self:
        """Open or create an encrypted store; a store that is not encrypted is encrypted in place, as
        in SNKV.

        Raises AuthError if the password is wrong.
        """
        store = cls.__new__(cls)
        store._open(path, JOURNAL_WAL, {}, password_bytes(password))
        return store

    def is_encrypted(self) -> bool:
        """Return whether the store is encrypted."""
        session = self._session
        with session.lock:
            if session.kv is NULL:
                raise closed_error("KVStore")
            return bool(lib.kvstore_is_encrypted(session.kv))

    def reencrypt(self, new_password: Union[str, bytes]) -> None:
        """Replace the password of an encrypted store, in place. Raises BusyError while it is open
        elsewhere.
        """
        password, session = password_bytes(new_password), self._session
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
