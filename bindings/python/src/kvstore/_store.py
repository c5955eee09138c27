"""Class Store and kvstore.open: opening, closing, families and transactions.

The other methods of a store are in _store_expiry, _store_maintenance and _store_encryption.
"""

from __future__ import annotations

import os
from types import TracebackType
from typing import TYPE_CHECKING, Any, Optional, TypeVar, Union, overload

from kvstore._codec import Codec, Coding, coding
from kvstore._connection_pool import ConnectionPool, Pin
from kvstore._errors import NotFoundError, exception_for, last_failure
from kvstore._family import Family
from kvstore._family_codec import CodedFamily
from kvstore._family_expiry import default_ttl_ms
from kvstore._family_handle import family_pointer, own_family, set_public_class
from kvstore._native import NULL, K, V, ffi, lib, text_bytes
from kvstore._options import Settings, configuration, encryption_of
from kvstore._path import Path, path_bytes, redacted
from kvstore._pickling import reduce_store
from kvstore._store_encryption import EncryptionMethods
from kvstore._store_expiry import StoreExpiryMethods
from kvstore._store_maintenance import MaintenanceMethods
from kvstore._store_state import StoreState
from kvstore._time import Duration
from kvstore._transaction import Transaction, in_one_transaction

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")
G = TypeVar("G", bound=Union[str, bytes])

_NOTFOUND: int = lib.KVSTORE_NOTFOUND


class _Inherited:
    def __repr__(self) -> str:
        return "the store's"


_INHERITED: Any = _Inherited()


class Store(StoreExpiryMethods[K, V], MaintenanceMethods, EncryptionMethods, Family[K, V]):
    """An open store. Its methods on keys work on the default family; :class:`Family` describes
    them.

    Created by :func:`kvstore.open`. The most important methods:

    - ``db[key] = value``, ``db[key]``, ``del db[key]``, ``key in db``,
      ``for key in db``
    - ``get(key, default)``, ``put(key, value, ttl=...)``, ``add`` (if missing), ``delete``,
      ``pop``, ``incr``
    - ``ttl(key)``, ``expires_at(key)``, ``expire(key, ttl)``, ``touch``, ``persist``,
      ``purge_expired()``
    - ``keys``, ``values``, ``items`` with ``prefix=``, ``start=``, ``stop=``, ``reverse=``,
      ``limit=``
    - ``get_many``, ``put_many``, ``delete_many``, ``pop_many``, ``delete_range``, ``clear``
    - ``with db.transaction():``, ``with db.snapshot():``, ``with db.batch() as batch:``
    - ``family(name, create=True)``, ``families()``, ``drop_family(name)``
    - ``backup(path)``, ``stats()``, ``close()``

    Where a store object can be used:

    - **Threads** share it. Each has its own connection, opened when the thread first uses the store
      and closed with the thread. Reads run in parallel; writes wait for each other, up to
      ``busy_timeout``. A transaction belongs to its thread.
    - **After a fork** the child opens the file again on first use. An open transaction stays the
      parent's.
    - **Pickled**, it is its path and settings, so multiprocessing can pass it to any process.
    - **asyncio**: a transaction belongs to its task, and calls block on the disk: use
      :mod:`kvstore.aio`.

    A store in memory has one connection for all threads and belongs to its process: a child cannot
    use it, and it cannot be pickled. With ``exclusive=True`` all threads share one connection too.

    On a PostgreSQL server (a path that is a URL) each thread has a connection to the server, and
    times are the server's. A transaction there can raise :exc:`LockedError`; see
    :class:`Transaction`.

    As a context manager it is closed at the end of the block. Otherwise it is closed when it and
    its families are collected, or at the exit of the program.
    """

    __slots__ = ("_path", "_settings")

    def __new__(cls, path: Optional[Path], *, codec: Any = None, keys: Any = bytes, **settings: Any) -> Any:
        if cls is Store and (codec is not None or keys is not bytes):
            return super().__new__(CodedStore)
        return super().__new__(cls)

    def __init__(
        self,
        path: Optional[Path],
        *,
        codec: Optional[Codec[V]] = None,
        keys: type[K] = bytes,  # type: ignore[assignment]
        **settings: Any,  # Settings
    ) -> None:
        """Open a store. Use :func:`kvstore.open`, which has the same arguments."""
        name = path_bytes(path)
        secret, encrypts = encryption_of(settings)
        config, coded = configuration(**settings), coding(codec, keys)
        if coded is not None and not isinstance(self, CodedFamily):
            raise TypeError(
                f"{type(self).__name__} does not support codec= and keys=: derive the class from "
                "type(kvstore.open(..., codec=...))"
            )
        pool = ConnectionPool(name, config, single=bool(settings.get("exclusive")), secret=secret, encrypts=encrypts)
        state = StoreState(pool)  # collected, and so closed, if anything below fails
        cf, pin = family_pointer(), state.pin()
        state.check(lib.kvstore_cf_get_default(pin.connection.kv, cf))
        self._attach(state, "default", own_family(cf), pin, coded)
        self._path = None if path is None else os.fsdecode(path)
        self._settings = settings

    def __repr__(self) -> str:
        path = None if self._path is None else redacted(self._path)
        return f"<kvstore.Store {path!r}{', closed' if self.closed else ''}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return reduce_store(self)

    @property
    def path(self) -> Optional[str]:
        """The path that was given to :func:`open`; None for a store in memory opened without a
        path.

        A URL is returned unchanged, with its password.
        """
        return self._path

    @property
    def closed(self) -> bool:
        """Whether the store is closed."""
        return self._state.closed

    def close(self) -> None:
        """Close the store, for all threads.

        Open transactions are rolled back and the cleaner is stopped. Families, batches and
        iterators raise MisuseError from now on. Calls of other threads end first, or fail with
        MisuseError. A store may be closed twice. In the child of a fork the parent's store stays
        open.

        Raises:
            MisuseError: If called inside a clock or progress function of the store, which then
                stays open.
        """
        state = self._state
        if state.closed:
            return
        rc = state.pool.close(state.thread_connection())
        failure = last_failure(NULL) if rc else None
        state.changed()
        with state.guard:
            families = list(state.families)
        for family in families:
            family._detach()
        if rc:
            raise exception_for(rc, failure)

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.close()

    # Families

    @overload
    def family(
        self, name: str, create: bool = False, *,
        default_ttl: Optional[Duration] = None, write_tracking: Optional[bool] = None,
    ) -> Family[K, V]: ...  # fmt: skip
    @overload
    def family(
        self, name: str, create: bool = False, *, codec: None,
        default_ttl: Optional[Duration] = None, write_tracking: Optional[bool] = None,
    ) -> Family[K, bytes]: ...  # fmt: skip
    @overload
    def family(
        self, name: str, create: bool = False, *, codec: Codec[T],
        default_ttl: Optional[Duration] = None, write_tracking: Optional[bool] = None,
    ) -> Family[K, T]: ...  # fmt: skip
    @overload
    def family(
        self, name: str, create: bool = False, *, keys: type[G],
        default_ttl: Optional[Duration] = None, write_tracking: Optional[bool] = None,
    ) -> Family[G, V]: ...  # fmt: skip
    @overload
    def family(
        self, name: str, create: bool = False, *, codec: None, keys: type[G],
        default_ttl: Optional[Duration] = None, write_tracking: Optional[bool] = None,
    ) -> Family[G, bytes]: ...  # fmt: skip
    @overload
    def family(
        self, name: str, create: bool = False, *, codec: Codec[T], keys: type[G],
        default_ttl: Optional[Duration] = None, write_tracking: Optional[bool] = None,
    ) -> Family[G, T]: ...  # fmt: skip
    def family(
        self,
        name: str,
        create: bool = False,
        *,
        codec: Any = _INHERITED,
        keys: Any = _INHERITED,
        default_ttl: Optional[Duration] = None,
        write_tracking: Optional[bool] = None,
    ) -> Any:
        """Open the family ``name`` and return a handle on it. ``"default"`` is the family of the
        store itself.

        Each call returns a handle of its own.

        Args:
            name: 1 to 255 bytes of UTF-8. Names that begin with "__", "_snkv_" or "kvstore" are
                reserved.
            create: Create the family if it does not exist.
            codec: As for :func:`kvstore.open`; by default that of the store. None: values are
                bytes.
            keys: As for :func:`kvstore.open`; by default that of the store.
            default_ttl: If given, set :attr:`Family.default_ttl`: seconds or a ``timedelta``;
                ``FOREVER`` for none.
            write_tracking: If given, set :attr:`Family.write_tracking`.

        Raises:
            NotFoundError: If the family does not exist and ``create`` is False.
            ValueError: For an invalid or reserved name.

        >>> db = kvstore.open(":memory:")
        >>> people = db.family("people", create=True, codec=kvstore.JSON, keys=str)
        >>> people["ada"] = {"born": 1815}
        >>> list(people.items())
        [('ada', {'born': 1815})]
        """
        encoded = _name(name)
        pin = self._state.pin()
        own = self._coding
        coded = coding(
            (own and own.codec) if codec is _INHERITED else codec,
            (own.keys if own else bytes) if keys is _INHERITED else keys,
        )
        ttl_ms = None if default_ttl is None else default_ttl_ms(default_ttl)
        family = self._open_family(encoded, coded, pin)
        if family is None and create:
            if ttl_ms is None and write_tracking is None:
                return self._make_family(encoded, coded, pin)
            # In one transaction, so that no reader sees the family without its settings.
            return in_one_transaction(
                self._state, lambda: self._make_family_with(encoded, coded, ttl_ms, write_tracking, pin)
            )
        if family is None:
            raise NotFoundError(f"family {name!r} does not exist: give create=True to create it")
        family._set_up(ttl_ms, write_tracking)
        return family

    def _open_family(self, name: bytes, coded: Optional[Coding], pin: Pin) -> Optional[Family[Any, Any]]:
        out = family_pointer()
        rc = lib.kvstore_cf_open(pin.connection.kv, name, out)
        return None if rc == _NOTFOUND else self._family_of(rc, name, coded, out, pin)

    def _make_family(self, name: bytes, coded: Optional[Coding], pin: Pin) -> Family[Any, Any]:
        state = self._state
        out = family_pointer()
        rc = _NOTFOUND
        while rc == _NOTFOUND:
            rc = lib.kvstore_cf_create(pin.connection.kv, name, out)
            if rc == lib.KVSTORE_ERROR:  # a bad name, or another thread has just created it and may drop it again
                failure = state.failure()
                rc = lib.kvstore_cf_open(pin.connection.kv, name, out)
                if rc and rc != _NOTFOUND:
                    raise failure.rejected()
        return self._family_of(rc, name, coded, out, pin)

    def _make_family_with(
        self, name: bytes, coded: Optional[Coding], ttl_ms: Optional[int], write_tracking: Optional[bool], pin: Pin
    ) -> Family[Any, Any]:
        before = self._open_family(name, coded, pin)
        family = self._make_family(name, coded, pin) if before is None else before
        try:
            family._set_up(ttl_ms, write_tracking)
        except BaseException:
            if before is None:
                family.close()
                lib.kvstore_cf_drop(self._state.handle(), name)
            raise
        return family

    def _family_of(self, rc: int, name: bytes, coded: Optional[Coding], out: Any, pin: Pin) -> Family[Any, Any]:
        state = self._state
        if rc == lib.KVSTORE_ERROR:
            state.handle()
            raise state.failure().rejected()
        state.check(rc)
        kind: Any = Family if coded is None else CodedFamily
        family: Family[Any, Any] = kind.__new__(kind)
        family._attach(state, name.decode(), own_family(out), pin, coded, self)
        return family

    def families(self) -> list[str]:
        """Return the names of all families except the default one, in byte order."""
        state = self._state
        names, count = ffi.new("char ***"), ffi.new("int *")
        state.check(lib.kvstore_cf_list(state.handle(), names, count))
        try:
            return [ffi.string(names[0][i]).decode() for i in range(count[0])]
        finally:
            for i in range(count[0]):
                lib.kvstore_free(names[0][i])
            lib.kvstore_free(names[0])

    def drop_family(self, name: str) -> None:
        """Delete a family with all its keys.

        Handles that this store has given out for the family are closed.

        Raises:
            NotFoundError: If the family does not exist.
            ValueError: For the default family; use ``clear()``.
            BusyError: If another thread is in a call on the family.
        """
        encoded = _name(name)
        state = self._state
        kv = state.handle()
        closed = []
        if name != "default":
            with state.guard:
                families = list(state.families)
            for family in families:
                if family._name == name and not family._closed:
                    family._detach()
                    closed.append(family)
        rc = lib.kvstore_cf_drop(kv, encoded)
        state.changed()
        if not rc:
            return
        failure = state.failure()
        for family in closed:  # the family still exists
            family._closed = False
        if rc == _NOTFOUND:
            raise NotFoundError(f"family {name!r} does not exist: families() lists the names")
        if rc == lib.KVSTORE_ERROR:
            raise failure.rejected()
        state.check(rc)

    # Transactions

    def transaction(self, write: bool = True) -> Transaction:
        """Return a transaction for a ``with`` block. It covers all families of the store.

        See :class:`Transaction`.

        Args:
            write: False for a read-only transaction, which sees the state of one moment; see
                :meth:`snapshot`.

        Raises:
            BusyError: If another thread or process keeps writing for longer than ``busy_timeout``.
            Error: If this thread already has a transaction open.

        >>> db = kvstore.open(":memory:")
        >>> with db.transaction():
        ...     db["from"] = b"90"
        ...     db["to"] = b"110"
        """
        return Transaction(self._state, bool(write))

    def snapshot(self) -> Transaction:
        """Return a read-only transaction for a ``with`` block, in which all reads see the state of
        one moment.

        See :class:`Transaction`.
        """
        return Transaction(self._state, False)


class CodedStore(CodedFamily[K, V], Store[K, V]):
    """A store whose values are encoded by a codec, or whose keys are str."""

    __slots__ = ()


def _name(name: str) -> bytes:
    if not isinstance(name, str):
        raise TypeError(f"name must be str, not {type(name).__name__}")
    encoded = text_bytes(name, "name")
    if b"\0" in encoded:
        raise ValueError("name contains a NUL character: give a family name without one")
    return encoded


set_public_class("Store", StoreExpiryMethods, MaintenanceMethods, EncryptionMethods)


@overload
def open(path: Optional[Path], **settings: Unpack[Settings]) -> Store: ...
@overload
def open(path: Optional[Path], *, codec: None, **settings: Unpack[Settings]) -> Store: ...
@overload
def open(path: Optional[Path], *, codec: Codec[T], **settings: Unpack[Settings]) -> Store[bytes, T]: ...
@overload
def open(
    path: Optional[Path], *, keys: type[G], codec: None = None, **settings: Unpack[Settings]
) -> Store[G, bytes]: ...
@overload
def open(path: Optional[Path], *, codec: Codec[T], keys: type[G], **settings: Unpack[Settings]) -> Store[G, T]: ...
def open(  # the same name as in dbm, shelve and the builtin
    path: Optional[Path],
    *,
    codec: Any = None,
    keys: Any = bytes,
    journal_mode: str = "wal",
    sync: str = "normal",
    read_only: bool = False,
    exclusive: bool = False,
    busy_timeout: Duration = 5.0,
    cache_size: int = 0,
    page_size: int = 0,
    wal_size_limit: int = 0,
    max_value_size: int = 0,
    mmap_size: int = 0,
    hold_reads: Optional[bool] = None,
    wal_pages: int = 0,
    secure_delete: bool = False,
    purge_per_write: int = 0,
    mode: int = 0,
    small: bool = False,
    password: Union[str, bytes, None] = None,
    raw_key: Optional[bytes] = None,
    encrypt: bool = False,
) -> Any:
    """Open the store at ``path`` and return it. The file is created if it does not exist.

    The returned :class:`Store` can be used in all threads and in the children of a fork, and it can
    be pickled.

    Args:
        path: A file; None or ":memory:" for a new store in memory; or a URL,
            ``"postgresql://user@host/database?schema=app"``, for a store on a PostgreSQL server (if
            ``kvstore.remote_available``). Of the settings, only ``codec``, ``keys``, ``read_only``,
            ``busy_timeout``, ``max_value_size``, ``purge_per_write`` and ``sync="off"`` apply to a
            server.
        codec: How values are encoded: ``kvstore.TEXT`` (str), ``kvstore.JSON``,
            ``kvstore.DATA`` (data types of Python: see ``help(kvstore.DATA)``), ``kvstore.PICKLE``,
            or any object with ``dumps`` and ``loads``. None: values are str or bytes-like, and come
            back as bytes. The file does not record it.
        keys: ``str`` to get keys as str, ``bytes`` to get them as bytes. The file does not record
            it.
        journal_mode: "wal", or "delete" for a rollback journal (a single file; readers and writers
            take turns).
        sync: What a power cut can do. "normal": the last commits may be lost, the file stays
            intact. "full": a commit is on disk when the call returns. "off": the file may be
            destroyed.
        read_only: Only read. The file must exist. A file that was closed properly can be read on a
            read-only medium.
        exclusive: No other process or store object may open the file. Fastest for one thread. Not
            with ``read_only``.
        busy_timeout: Seconds or a ``timedelta`` to wait for a write of another thread or process
            before BusyError; 0: do not wait. Opening, and the first call in a thread or after a
            fork, waits at least 2 seconds.
        cache_size: The page cache of each connection, in pages; 0: 2,000.
        page_size: The page size of a new file, in bytes; 0: 4,096.
        wal_size_limit: The number of commits between two checkpoints; 0: checkpoints depend on
            ``wal_pages`` only. With a size limit, both apply.
        max_value_size: The maximum size of a value in bytes, up to 512 MiB; 0: 10 MiB.
        mmap_size: How many bytes of the file are mapped into memory; 0: chosen by the library;
            negative: none.
        hold_reads: Whether to keep a read snapshot between calls. Reads get faster, but while this
            process is idle, the WAL grows with the writes of other processes. None: only while no
            other process has the file open, and never with ``small``.
        wal_pages: The target size of the WAL, in pages; 0: 4,000. With one writer the WAL stays
            below twice this size plus the pages of one transaction.
        secure_delete: Overwrite deleted, replaced, expired and evicted data with zeros, in the
            ``-wal`` file at the next checkpoint. The file does not record it: every process that
            writes must set it.
        purge_per_write: How many expired keys are removed for each key that is written, 0 to
            1,000. With 2 or more, a store whose keys expire as fast as they are written does not
            grow, without a cleaner and without purges. About 64 keys are removed at once, after the
            write that reaches this number.
        mode: Permissions of a new file on Unix, such as 0o660 for a store that a group shares,
            whatever the umask is; 0: 0o644 without the bits of the umask. An existing file keeps
            its permissions.
        small: Defaults for little memory and flash: ``cache_size`` 32, no memory map, ``wal_pages``
            64, no held reads.
        password: The password of an encrypted store; a new file is encrypted with it. Deriving the
            key takes about a tenth of a second or more for each connection. A pickle of the store
            contains the password.
        raw_key: A key of 32 bytes instead of a password; nothing is derived.
        encrypt: Encrypt an existing store that is not encrypted in place, as :meth:`Store.encrypt`
            does. Without it, ``password`` or ``raw_key`` for such a store is an AuthError.

    Raises:
        AuthError: If the password or key is wrong, or missing for an encrypted file, or given for a
            store that is not encrypted. Nothing is changed.
        StoreIOError: If the file cannot be opened or the server cannot be reached.
        CorruptError: If the file is damaged or is not a store.
        BusyError: If another process or store object has the file open exclusively.
        InvalidError: If this build has no encryption (``kvstore.encryption_available``), or for a
            rejected setting.
        ValueError, TypeError: For an invalid setting. InvalidError is a ValueError.

    >>> with kvstore.open(":memory:") as db:
    ...     db["user:1"] = "Ada"
    ...     db.put("session", b"token", ttl=60)
    ...     list(db)
    True
    [b'session', b'user:1']
    >>> with kvstore.open(":memory:", codec=kvstore.JSON, keys=str) as db:
    ...     db["user:1"] = {"name": "Ada"}
    ...     dict(db)
    {'user:1': {'name': 'Ada'}}
    """
    return Store(
        path,
        codec=codec,
        keys=keys,
        journal_mode=journal_mode,
        sync=sync,
        read_only=read_only,
        exclusive=exclusive,
        busy_timeout=busy_timeout,
        cache_size=cache_size,
        page_size=page_size,
        wal_size_limit=wal_size_limit,
        max_value_size=max_value_size,
        mmap_size=mmap_size,
        hold_reads=hold_reads,
        wal_pages=wal_pages,
        secure_delete=secure_delete,
        purge_per_write=purge_per_write,
        mode=mode,
        small=small,
        password=password,
        raw_key=raw_key,
        encrypt=encrypt,
    )
