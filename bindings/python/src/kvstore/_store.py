"""Stores: opening, families, transactions, time. What concerns the file is in _maintenance."""

from __future__ import annotations

import os
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Optional, TypeVar, Union, overload

from kvstore._codec import Codec, Coding, coding
from kvstore._coded import CodedFamily
from kvstore._connection import Connections, Hold, encoded, shown, store_is_closed
from kvstore._encryption import EncryptionMethods
from kvstore._errors import InvalidError, NotFoundError, error_text, exception_for
from kvstore._expiry import default_ttl_ms
from kvstore._family import Family
from kvstore._handle import Shared, owned, place_for_family, show_as
from kvstore._maintenance import MaintenanceMethods, Path
from kvstore._native import NULL, K, V, ffi, lib
from kvstore._options import Settings, configuration, count, secret_of
from kvstore._reopen import reduced_store
from kvstore._time import Clock, ClockFunction, Duration, duration_ms
from kvstore._transaction import Transaction, in_one_transaction

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")
G = TypeVar("G", bound=Union[str, bytes])

_NOTFOUND: int = lib.KVSTORE_NOTFOUND


class _AsTheStore:
    def __repr__(self) -> str:
        return "the store's"


_AS_THE_STORE: Any = _AsTheStore()


class PurgeStep(NamedTuple):
    """What a step of purging did."""

    #: How many keys it removed.
    deleted: int
    #: Whether expired keys are left.
    more: bool


class Store(MaintenanceMethods, EncryptionMethods, Family[K, V]):
    """An open store. It is also its own default family: see :class:`Family` for what to do with keys.

    Made by :func:`kvstore.open`. What one needs first:

    - ``db[key] = value``, ``db[key, ttl] = value``, ``db[key]``, ``del db[key]``, ``key in db``, ``for key in db``
    - ``get(key, default)``, ``put(key, value, ttl=...)``, ``add`` (if missing), ``delete``, ``pop``, ``incr``
    - ``ttl(key)``, ``expire(key, ttl)``, ``touch``, ``persist``, ``purge_expired()``
    - ``keys``, ``values``, ``items`` with ``prefix=``, ``start=``, ``stop=``, ``reverse=``, ``limit=``
    - ``get_many``, ``put_many``, ``delete_many``, ``pop_many``, ``delete_range``, ``clear``
    - ``with db.transaction():``, ``with db.batch() as batch:``
    - ``family(name, create=True)``, ``families()``, ``drop_family(name)``
    - ``backup(path)``, ``stats()``, ``close()``

    It can be carried anywhere:

    - Threads share it, and each has a connection of its own, opened when the thread first uses it and closed with the
      thread. They read in parallel; writes wait for each other, at most ``busy_timeout``; a transaction is its
      thread's.
    - In the child of a fork it opens the store anew. A transaction that was open is the parent's.
    - It can be pickled, as its path and settings: multiprocessing can pass it to a process that it spawns.
    - In asyncio, a transaction is its task's; calls wait for the disk, so see ``kvstore.aio``.

    A store in memory has one connection for all threads, and is its process's alone; with ``exclusive=True`` there is
    one for all threads, too.

    On a PostgreSQL server (a path that is a URL) each thread has a connection to the server, and times are the server's.
    A transaction does not wait for others: what they write meanwhile may make it impossible, which is a
    :exc:`LockedError` at any call of it or at its end; run it again.

    Used as a context manager it is closed at the end; a store that is forgotten is closed when it and
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
        """See :func:`kvstore.open`."""
        name = encoded(path)
        secret = secret_of(settings.pop("password", None), settings.pop("raw_key", None))
        config, coded = configuration(**settings), coding(codec, keys)
        if coded is not None and not isinstance(self, CodedFamily):
            raise TypeError(f"a {type(self).__name__} has no codec and no keys=str: derive it from type(kvstore.open(...))")
        connections = Connections(name, config, for_all=bool(settings.get("exclusive")), secret=secret)
        shared = Shared(connections)  # closed if anything fails
        cf, hold = place_for_family(), shared.hold()
        shared.check(lib.kvstore_cf_get_default(hold.connection.kv, cf))
        self._attach(shared, "default", owned(cf), hold, coded)
        self._path = None if path is None else os.fsdecode(path)
        self._settings = settings

    def __repr__(self) -> str:
        path = None if self._path is None else shown(self._path)
        return f"<kvstore.Store {path!r}{', closed' if self.closed else ''}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return reduced_store(self)

    @property
    def path(self) -> Optional[str]:
        """The path as it was given to open, also a URL with a password in it; None for a store in memory opened without
        one."""
        return self._path

    @property
    def closed(self) -> bool:
        """Whether the store is closed."""
        return self._shared.closed

    def close(self) -> None:
        """Closes the store and the file in all threads: open transactions are rolled back, the cleaner is stopped,
        and families, batches and iterators raise MisuseError from now on. To close it again is allowed.
        MisuseError, and it stays open, inside a clock or progress function that the store is calling. In
        the child of a fork the parent's store stays open.

        Other threads may be using the store: their calls end first, or fail with MisuseError.
        """
        shared = self._shared
        if shared.closed:
            return
        rc = shared.connections.close(shared.connection_here())
        text = error_text(NULL) if rc else ""
        shared.changed()
        with shared.guard:
            families = list(shared.families)
        for family in families:
            family._detach()
        if rc:
            raise exception_for(rc, text)

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
        codec: Any = _AS_THE_STORE,
        keys: Any = _AS_THE_STORE,
        default_ttl: Optional[Duration] = None,
        write_tracking: Optional[bool] = None,
    ) -> Any:
        """A family by its name; ``"default"`` is the store's own.

        If there is none of the name it is made if ``create`` says so, or else this is a NotFoundError.
        ``codec`` and ``keys`` say what values and keys are in Python, as for :func:`kvstore.open`; without
        them they are as the store's, and ``codec=None, keys=bytes`` is bytes in any case. ``default_ttl`` and
        ``write_tracking``, if given, are set if they are different: see the attributes of the same names. A
        name has 1 to 255 bytes of UTF-8; those that begin with "__", "_snkv_" or "kvstore" are reserved.

        Each call gives a handle of its own.

        >>> db = kvstore.open(":memory:")
        >>> people = db.family("people", create=True, codec=kvstore.JSON, keys=str)
        >>> people["ada"] = {"born": 1815}
        >>> list(people.items())
        [('ada', {'born': 1815})]
        """
        encoded = _name(name)
        hold = self._shared.hold()
        own = self._coding
        coded = coding(
            (own and own.codec) if codec is _AS_THE_STORE else codec,
            (own.keys if own else bytes) if keys is _AS_THE_STORE else keys,
        )
        ttl_ms = None if default_ttl is None else default_ttl_ms(default_ttl)
        family = self._open_family(encoded, coded, hold)
        if family is None and create:
            if ttl_ms is None and write_tracking is None:
                return self._make_family(encoded, coded, hold)
            # Nobody sees it without what it is to have.
            return in_one_transaction(
                self._shared, lambda: self._make_family_with(encoded, coded, ttl_ms, write_tracking, hold)
            )
        if family is None:
            raise NotFoundError(f"no such family: {name!r}; create=True makes it")
        family._set_up(ttl_ms, write_tracking)
        return family

    def _open_family(self, name: bytes, coded: Optional[Coding], hold: Hold) -> Optional[Family[Any, Any]]:
        out = place_for_family()
        rc = lib.kvstore_cf_open(hold.connection.kv, name, out)
        return None if rc == _NOTFOUND else self._family_of(rc, name, coded, out, hold)

    def _make_family(self, name: bytes, coded: Optional[Coding], hold: Hold) -> Family[Any, Any]:
        shared = self._shared
        out = place_for_family()
        rc = _NOTFOUND
        while rc == _NOTFOUND:
            rc = lib.kvstore_cf_create(hold.connection.kv, name, out)
            if rc == lib.KVSTORE_ERROR:  # a bad name; or somebody else has just made it, and may drop it again
                text = shared.error_text()
                rc = lib.kvstore_cf_open(hold.connection.kv, name, out)
                if rc and rc != _NOTFOUND:
                    raise InvalidError(text)
        return self._family_of(rc, name, coded, out, hold)

    def _make_family_with(
        self, name: bytes, coded: Optional[Coding], ttl_ms: Optional[int], write_tracking: Optional[bool], hold: Hold
    ) -> Family[Any, Any]:
        before = self._open_family(name, coded, hold)
        family = self._make_family(name, coded, hold) if before is None else before
        try:
            family._set_up(ttl_ms, write_tracking)
        except BaseException:
            if before is None:
                family.close()
                lib.kvstore_cf_drop(self._shared.handle(), name)
            raise
        return family

    def _family_of(self, rc: int, name: bytes, coded: Optional[Coding], out: Any, hold: Hold) -> Family[Any, Any]:
        shared = self._shared
        if rc == lib.KVSTORE_ERROR:
            shared.handle()
            raise InvalidError(shared.error_text())
        shared.check(rc)
        kind: Any = Family if coded is None else CodedFamily
        family: Family[Any, Any] = kind.__new__(kind)
        family._attach(shared, name.decode(), owned(out), hold, coded, self)
        return family

    def families(self) -> list[str]:
        """The names of all families but the default one, in byte order."""
        shared = self._shared
        names, count = ffi.new("char ***"), ffi.new("int *")
        shared.check(lib.kvstore_cf_list(shared.handle(), names, count))
        try:
            return [ffi.string(names[0][i]).decode() for i in range(count[0])]
        finally:
            for i in range(count[0]):
                lib.kvstore_free(names[0][i])
            lib.kvstore_free(names[0])

    def drop_family(self, name: str) -> None:
        """Drops a family with everything in it. NotFoundError if there is none.

        Handles on it that this store has given out are closed. ValueError for the default family, BusyError
        while another thread is in a call on this one.
        """
        encoded = _name(name)
        shared = self._shared
        kv = shared.handle()
        closed = []
        if name != "default":
            with shared.guard:
                families = list(shared.families)
            for family in families:
                if family._name == name and not family._closed:
                    family._detach()
                    closed.append(family)
        rc = lib.kvstore_cf_drop(kv, encoded)
        shared.changed()
        if not rc:
            return
        text = shared.error_text()
        for family in closed:  # it is still there
            family._closed = False
        if rc == _NOTFOUND:
            raise NotFoundError(f"no such family: {name!r}")
        if rc == lib.KVSTORE_ERROR:
            raise InvalidError(text)
        shared.check(rc)

    # Transactions

    def transaction(self, write: bool = True) -> Transaction:
        """A transaction over all families, for a ``with`` block: see :class:`Transaction`. Without
        ``write`` it is a stable snapshot that only reads. BusyError if another thread or process goes on
        writing for longer than ``busy_timeout``.

        >>> db = kvstore.open(":memory:")
        >>> with db.transaction():
        ...     db["from"] = b"90"
        ...     db["to"] = b"110"
        """
        return Transaction(self._shared, bool(write))

    def snapshot(self) -> Transaction:
        """A transaction that only reads, and sees the state of one moment."""
        return Transaction(self._shared, False)

    # Time

    def set_clock(self, clock: Optional[ClockFunction]) -> None:
        """Uses a function that returns seconds since the Unix epoch as the clock of this store, for
        tests; None goes back to the system's. All TTLs given to this store count from its time.

        It is called from any thread that uses the store, must not use the store itself, and is asked
        once here. A time before one it has returned counts as that one. An exception in it comes out
        where this package asks it (as for a ttl); where the library does, it goes to
        sys.unraisablehook, and the clock stands still.

        On a server time is the server's: InvalidError.
        """
        shared = self._shared
        shared.handle()
        if shared.connections.remote:
            if clock is None:
                return
            raise InvalidError("the store is on a server, whose clock decides for all clients: it cannot be replaced")
        made = None
        if clock is not None:
            if not callable(clock):
                raise TypeError(f"a clock is a function that returns seconds, not {type(clock).__name__}")
            made = Clock(clock)
            made.now_ms()
        shared.handle()
        shared.connections.set_clock(made)
        shared.changed()

    def next_expiry(self, *, all_families: bool = False) -> Optional[float]:
        """As :meth:`Family.next_expiry`, of the default family; with ``all_families``, of all of them: the moment at
        which a timer should call :meth:`purge_step`."""
        if not all_families:
            return super().next_expiry()
        out = ffi.new("int64_t *")
        rc = lib.kvstore_next_expiry(self._shared.handle(), out)
        if rc == _NOTFOUND:
            return None
        self._shared.check(rc)
        return int(out[0]) / 1000

    def purge_step(self, max_keys: int = 0, max_time: Duration = 0) -> PurgeStep:
        """Removes expired keys of all families, those first that expired first, until ``max_keys`` are
        removed or ``max_time`` is over (0: no limit)."""
        deleted, more = ffi.new("int64_t *"), ffi.new("int *")
        most, budget = count(max_keys, "max_keys"), duration_ms(max_time, "max_time")
        self._shared.check(lib.kvstore_purge_step(self._shared.handle(), most, budget, deleted, more))
        return PurgeStep(int(deleted[0]), bool(more[0]))

    def start_cleaner(self, interval: Duration = 1.0, max_keys: int = 0) -> None:
        """Starts a thread of the library's that removes expired keys of all families every ``interval``,
        at most ``max_keys`` each time (0: all). Error if it runs already, or for a store in memory."""
        every, most = duration_ms(interval, "an interval"), count(max_keys, "max_keys")
        if every == 0:
            raise ValueError("an interval must be positive")
        shared = self._shared
        here = shared.hold()
        with shared.guard:  # one for all threads
            lease = shared.cleaner or here.lease
            rc = lib.kvstore_cleaner_start(lease.connection.out[0], every, most)
            if rc == 0:
                shared.cleaner = lease
        if rc:
            shared.handle()
            raise exception_for(rc, error_text(lease.connection.kv))

    def stop_cleaner(self) -> None:
        """Stops the cleaner, and returns when its thread has ended. No error if none is running, and in the
        child of a fork none is: the parent's goes on."""
        shared = self._shared
        if shared.closed:
            raise store_is_closed()
        with shared.guard:
            lease, shared.cleaner = shared.cleaner, None
        if lease is not None:
            lib.kvstore_cleaner_stop(lease.connection.out[0])


class CodedStore(CodedFamily[K, V], Store[K, V]):
    """A store with a codec, or with keys that are str."""

    __slots__ = ()


def _name(name: str) -> bytes:
    if not isinstance(name, str):
        raise TypeError(f"a family's name must be a str, not {type(name).__name__}")
    encoded = name.encode()
    if b"\0" in encoded:
        raise ValueError("a family's name cannot have a NUL in it")
    return encoded


show_as("Store", MaintenanceMethods, EncryptionMethods)


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
def open(  # the name that users of dbm, shelve and sqlite know
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
    small: bool = False,
    password: Union[str, bytes, None] = None,
    raw_key: Optional[bytes] = None,
) -> Any:
    """Opens the store at ``path``; makes it if it is not there. None or ":memory:" is a new one in memory. A URL,
    ``"postgresql://user@host/database?schema=app"``, is a store on a PostgreSQL server (where
    ``kvstore.remote_available`` is True; else this is a StoreIOError). Of the settings below, ``read_only``,
    ``busy_timeout``, ``max_value_size`` and ``sync="off"`` mean something there; a pickle of the store has the URL in it,
    with its password.

    - ``codec``: what values are in Python: ``kvstore.TEXT`` (str), ``kvstore.JSON``, ``kvstore.PICKLE``, or any object
      with ``dumps`` and ``loads``; without one, values are str or bytes-like, and come back as bytes.
    - ``keys``: ``str`` to get keys as str; without it they come back as bytes. The file remembers neither.
    - ``journal_mode``: "wal", or "delete" for a rollback journal (one file; readers and writers take turns).
    - ``sync``: "normal" (a power cut may lose the last commits, never the file), "full" (a commit is
      on the disk when the call returns) or "off" (a power cut may destroy the file).
    - ``read_only``: the file must exist; one that was closed can also be read where nothing can be written.
    - ``exclusive``: nobody else may open the file; fastest for one thread. Not together with ``read_only``.
    - ``busy_timeout``: how long to wait for a write of another thread or process before a BusyError; 0: not at all.
      Opening waits for 2 seconds at least; so does the first call in a thread, or in the child of a fork.
    - ``cache_size`` in pages (0: 2000), ``page_size`` of new files in bytes (0: 4096).
    - ``wal_size_limit``: a checkpoint after so many commits, in a store that has a limit also by ``wal_pages``; 0: automatic,
      by ``wal_pages``.
    - ``max_value_size``: the longest value in bytes, up to 512 MiB; 0: 10 MiB.
    - ``mmap_size``: bytes of the file that are mapped into memory; 0: as is best, negative: none.
    - ``hold_reads``: whether the library keeps a read snapshot between calls, which makes reads faster, but keeps
      the WAL of other processes growing while this one sits idle; None: while no other process has the file open, and
      with ``small`` never.
    - ``wal_pages``: how long the WAL gets, in pages (0: 4000); with one writer never more than twice as long, and the
      pages of one transaction.
    - ``secure_delete``: what is deleted, overwritten, expired and removed, or evicted is overwritten with zeros in the
      files of the store, in the ``-wal`` file by the next ``checkpoint``. The file does not remember it: every process
      that writes must ask for it.
    - ``small``: other defaults for what is 0, for little memory and little flash: a ``cache_size`` of 32, no memory map,
      ``wal_pages`` of 64, and no read snapshot between calls.
    - ``password``: what the file is encrypted with, all of it; a file that is there and is not encrypted is encrypted where
      it is. A key is derived from it at each open, also of a thread: a tenth of a second, or some. ``raw_key``: a key of
      32 bytes in its place, from which nothing is derived. A pickle of the store has it in it. Where
      ``kvstore.encryption_available`` is False this is an InvalidError.

    AuthError if the password is another one, or the file is encrypted and none is given;
    StoreIOError if the file cannot be opened, CorruptError if it is no store, BusyError if another handle
    has it open exclusively, ValueError for a setting out of bounds.

    The store may be used in all threads and in the children of a fork, and it can be pickled: see
    :class:`Store`.

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
        small=small,
        password=password,
        raw_key=raw_key,
    )
