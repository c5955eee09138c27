"""Stores: opening, families, transactions, maintenance."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Callable, NamedTuple, Optional, Union

from kvstore._errors import CorruptError, InvalidError, MisuseError, NotFoundError, error_text
from kvstore._family import Family
from kvstore._handle import Shared
from kvstore._expiry import default_ttl_ms
from kvstore._native import NULL, check, ffi, lib
from kvstore._time import Clock, ClockFunction, Duration, duration_ms, register, unregister
from kvstore._transaction import Transaction

Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]
#: Called with the pages that remain to be copied, and with their total.
Progress = Callable[[int, int], Any]

_NOTFOUND: int = lib.KVSTORE_NOTFOUND
_MAX_INT = 0x7FFFFFFF
_JOURNAL_MODES = {"wal": lib.KVSTORE_JOURNAL_WAL, "delete": lib.KVSTORE_JOURNAL_DELETE}
_SYNC_LEVELS = {"normal": lib.KVSTORE_SYNC_NORMAL, "full": lib.KVSTORE_SYNC_FULL, "off": lib.KVSTORE_SYNC_OFF}
_CHECKPOINTS = {
    "passive": lib.KVSTORE_CHECKPOINT_PASSIVE,
    "full": lib.KVSTORE_CHECKPOINT_FULL,
    "restart": lib.KVSTORE_CHECKPOINT_RESTART,
    "truncate": lib.KVSTORE_CHECKPOINT_TRUNCATE,
}


_POLICIES = {
    "none": lib.KVSTORE_EVICT_NONE,
    "soonest": lib.KVSTORE_EVICT_SOONEST,
    "oldest": lib.KVSTORE_EVICT_OLDEST,
}


class Limit(NamedTuple):
    """How much a store may take."""

    #: What the data may take in the file, in bytes; 0: as much as it wants.
    max_bytes: int
    #: What makes room: "none", "soonest" or "oldest".
    policy: str


class Checkpoint(NamedTuple):
    """What a checkpoint did."""

    #: Frames in the write-ahead log.
    frames: int
    #: How many of them are in the file now.
    checkpointed: int


class PurgeStep(NamedTuple):
    """What a step of purging did."""

    #: How many keys it removed.
    deleted: int
    #: Whether expired keys are left.
    more: bool


@dataclass(frozen=True)
class Stats:
    """What a store has done since it was opened or ``stats_reset`` was called.

    The names are those of the fields of KVStoreStats in kvstore.h: ``nTtlExpired`` there is
    ``ttl_expired`` here. :meth:`Store.stats` fills in all that the C structure has, so it fails if this
    list has not all of them, or more.
    """

    #: Keys written.
    puts: int
    #: Values read.
    gets: int
    #: Keys deleted.
    deletes: int
    #: Iterators made.
    iterations: int
    #: Calls that failed. A missing key is not a failure.
    errors: int
    #: Bytes of values read.
    bytes_read: int
    #: Bytes of keys and values written.
    bytes_written: int
    #: Write transactions committed.
    wal_commits: int
    #: Checkpoints run, automatic ones included.
    checkpoints: int
    #: Gets, ``in`` and ttl calls that met an expired key.
    ttl_expired: int
    #: Keys removed by purges.
    ttl_purged: int
    #: Pages of the database now; not reset.
    db_pages: int
    #: Frames in the write-ahead log after this store's last commit or checkpoint; not reset.
    wal_frames: int
    #: Gets (of several keys, each) and ``in`` that found no live key.
    misses: int
    #: Keys that were removed alive to make room (:meth:`Store.limit`).
    evicted: int
    #: What the data takes in the file now, in bytes: its pages less the free ones; not reset.
    size_bytes: int


def _python_name(field: str) -> str:
    """nTtlExpired: ttl_expired."""
    return "".join("_" + c.lower() if c.isupper() else c for c in field[1:]).lstrip("_")


#: The names of the fields in C, and here.
_STATS: list[tuple[str, str]] = [
    (field, _python_name(field)) for field, _ in ffi.typeof("KVStoreStats").fields if field != "reserved"
]


class Store(Family):
    """An open store. It is also its own default family: see :class:`Family` for what to do with keys.

    Made by :func:`kvstore.open`. A store is one connection, on which threads take turns; for reads in
    parallel, open one for each thread. In the child of a fork it cannot be used: open another there.

    Used as a context manager it is closed at the end; a store that is forgotten is closed when it and
    its families are collected, or at the exit of the program.
    """

    __slots__ = ("_path",)

    def __init__(
        self,
        path: Optional[Path],
        *,
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
    ) -> None:
        """See :func:`kvstore.open`."""
        name = b"" if path is None else os.fsencode(path)
        if b"\0" in name:
            raise ValueError("a path cannot have a NUL in it")
        config = ffi.new("KVStoreConfig *")
        config.journalMode = _choice(journal_mode, _JOURNAL_MODES, "journal_mode")
        config.syncLevel = _choice(sync, _SYNC_LEVELS, "sync")
        config.readOnly = 1 if read_only else 0
        config.exclusive = 1 if exclusive else 0
        config.busyTimeout = min(duration_ms(busy_timeout, "a busy_timeout"), _MAX_INT)
        config.holdReads = 0 if hold_reads is None else 1 if hold_reads else -1
        try:
            config.cacheSize = cache_size
            config.pageSize = page_size
            config.walSizeLimit = wal_size_limit
            config.maxValueSize = max_value_size
            config.mmapSize = mmap_size
            config.walPages = wal_pages
        except OverflowError as e:
            raise ValueError(f"a setting is out of bounds: {e}") from None
        kv, cf = ffi.new("KVStore **"), ffi.new("KVColumnFamily **")
        rc = lib.kvstore_open_v2(name, kv, config)
        if rc == lib.KVSTORE_ERROR:
            raise InvalidError(error_text(NULL))
        check(rc)
        shared = Shared(kv[0])  # from here on it is closed if anything fails
        check(lib.kvstore_cf_get_default(shared.kv, cf), shared.kv)
        self._attach(shared, cf[0])
        self._path = None if path is None else os.fsdecode(path)

    def __repr__(self) -> str:
        return f"<kvstore.Store {self._path!r}{'' if self._shared.kv else ', closed'}>"

    @property
    def path(self) -> Optional[str]:
        """The path as it was given to open; None for a store in memory opened without one."""
        return self._path

    @property
    def closed(self) -> bool:
        """Whether the store is closed."""
        return not self._shared.kv

    def close(self) -> None:
        """Closes the store and the file: an open transaction is rolled back, the cleaner is stopped, and
        families, batches and iterators raise MisuseError from now on. To close it again is allowed.
        MisuseError, and it stays open, inside a clock or progress function that the store is calling. In
        the child of a fork this only gives up what was inherited: the parent's store stays open.

        Other threads may be using the store: their calls end first, or fail with MisuseError.
        """
        shared = self._shared
        try:
            kv = shared.native.pop()  # of several threads, one gets it
        except IndexError:
            return
        shared.kv = NULL
        shared.changed()
        rc = lib.kvstore_close(kv)
        if rc == lib.KVSTORE_MISUSE and not shared.inherited:  # a callback of the store closes it: it is open
            shared.kv = kv
            shared.native.append(kv)
            raise MisuseError(error_text(NULL))
        for family in list(shared.families):
            family._detach()
        if shared.clock_context:
            unregister(shared.clock_context)
        if not shared.inherited:
            check(rc)

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.close()

    # Families

    def family(
        self,
        name: str,
        create: bool = False,
        *,
        default_ttl: Optional[Duration] = None,
        write_tracking: Optional[bool] = None,
    ) -> Family:
        """A family by its name; ``"default"`` is the store's own.

        If there is none of the name it is made if ``create`` says so, or else this is a NotFoundError.
        ``default_ttl`` and ``write_tracking``, if given, are set if they are different: see the
        attributes of the same names. A name has 1 to 255 bytes of UTF-8; those that begin with "__",
        "_snkv_" or "kvstore" are reserved.

        Each call gives a handle of its own.
        """
        encoded = _name(name)
        ttl_ms = None if default_ttl is None else default_ttl_ms(default_ttl)
        family = self._open_family(encoded)
        if family is None and create:
            if ttl_ms is None and write_tracking is None:
                return self._make_family(encoded)
            if self._shared.transaction_thread == threading.get_ident():
                return self._make_family_with(encoded, ttl_ms, write_tracking)
            with self.transaction():  # nobody sees it without what it is to have
                return self._make_family_with(encoded, ttl_ms, write_tracking)
        if family is None:
            raise NotFoundError(f"no such family: {name!r}; create=True makes it")
        family._set_up(ttl_ms, write_tracking)
        return family

    def _open_family(self, name: bytes) -> Optional[Family]:
        shared = self._shared
        out = ffi.new("KVColumnFamily **")
        rc = lib.kvstore_cf_open(shared.handle(), name, out)
        return None if rc == _NOTFOUND else self._family_of(rc, out)

    def _make_family(self, name: bytes) -> Family:
        shared = self._shared
        out = ffi.new("KVColumnFamily **")
        rc = lib.kvstore_cf_create(shared.handle(), name, out)
        if rc == lib.KVSTORE_ERROR:  # a bad name; or somebody else has just made it
            text = error_text(shared.kv)
            rc = lib.kvstore_cf_open(shared.handle(), name, out)
            if rc:
                raise InvalidError(text)
        return self._family_of(rc, out)

    def _make_family_with(self, name: bytes, ttl_ms: Optional[int], write_tracking: Optional[bool]) -> Family:
        before = self._open_family(name)
        family = self._make_family(name) if before is None else before
        try:
            family._set_up(ttl_ms, write_tracking)
        except BaseException:
            if before is None:
                family.close()
                lib.kvstore_cf_drop(self._shared.kv, name)
            raise
        return family

    def _family_of(self, rc: int, out: Any) -> Family:
        shared = self._shared
        if rc == lib.KVSTORE_ERROR:
            shared.handle()
            raise InvalidError(error_text(shared.kv))
        shared.check(rc)
        family = Family.__new__(Family)
        family._attach(shared, out[0])
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
            for family in list(shared.families):
                if family._name == name and family._cf:
                    family._detach()
                    closed.append(family)
        rc = lib.kvstore_cf_drop(kv, encoded)
        shared.changed()
        if not rc:
            return
        text = error_text(shared.kv)
        for family in closed:  # it is still there
            out = ffi.new("KVColumnFamily **")
            if lib.kvstore_cf_open(shared.kv, encoded, out) == 0:
                family._cf = ffi.gc(out[0], lib.kvstore_cf_close)
        if rc == _NOTFOUND:
            raise NotFoundError(f"no such family: {name!r}")
        if rc == lib.KVSTORE_ERROR:
            raise InvalidError(text)
        shared.check(rc)

    # Transactions

    def transaction(self, write: bool = True) -> Transaction:
        """A transaction over all families, for a ``with`` block: see :class:`Transaction`. Without
        ``write`` it is a stable snapshot that only reads. BusyError if another process goes on writing
        for longer than ``busy_timeout``.

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
        """
        shared = self._shared
        shared.handle()
        made, context = None, NULL
        if clock is not None:
            if not callable(clock):
                raise TypeError(f"a clock is a function that returns seconds, not {type(clock).__name__}")
            made = Clock(clock)
            made.now_ms()
        kv = shared.handle()
        if made is not None:
            context = register(made)
        rc = lib.kvstore_set_clock(kv, NULL if made is None else lib.kvpy_clock, context)
        if rc:
            if context:
                unregister(context)
            shared.check(rc)
        before, shared.clock, shared.clock_context = shared.clock_context, made, context
        shared.changed()
        if before:
            unregister(before)

    def next_expiry(self, *, all_families: bool = False) -> Optional[float]:
        """As :meth:`Family.next_expiry`; with ``all_families``, of all of them: the moment at which a
        timer should call :meth:`purge_step`."""
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
        most, budget = _count(max_keys, "max_keys"), duration_ms(max_time, "max_time")
        self._shared.check(lib.kvstore_purge_step(self._shared.handle(), most, budget, deleted, more))
        return PurgeStep(int(deleted[0]), bool(more[0]))

    def start_cleaner(self, interval: Duration = 1.0, max_keys: int = 0) -> None:
        """Starts a thread of the library's that removes expired keys of all families every ``interval``,
        at most ``max_keys`` each time (0: all). Error if it runs already, or for a store in memory."""
        every, most = duration_ms(interval, "an interval"), _count(max_keys, "max_keys")
        if every == 0:
            raise ValueError("an interval must be positive")
        self._shared.check(lib.kvstore_cleaner_start(self._shared.handle(), every, most))

    def stop_cleaner(self) -> None:
        """Stops the cleaner, and returns when its thread has ended. No error if none is running, and in the
        child of a fork none is: the parent's goes on."""
        shared = self._shared
        kv = shared.handle()
        if not shared.inherited:
            shared.check(lib.kvstore_cleaner_stop(kv))

    # Maintenance

    def backup(self, path: Path, progress: Optional[Progress] = None) -> None:
        """Copies everything that is committed to a new file, while others go on reading and writing; the
        copy is the state of one moment. ``path`` must not exist, and appears when the copy is whole.

        ``progress(remaining, total)`` is called now and then with numbers of pages. An exception in it
        stops the backup and comes out here; no file is left then.
        """
        name = os.fsencode(path)
        if b"\0" in name:
            raise ValueError("a path cannot have a NUL in it")
        shared = self._shared
        kv = shared.handle()
        if progress is None:
            shared.check(lib.kvstore_backup(kv, name, NULL, NULL))
            return
        call = _BackupCall(progress)
        context = ffi.new_handle(call)
        rc = lib.kvstore_backup(kv, name, lib.kvpy_progress, context)
        if call.error is not None:
            try:
                raise call.error
            finally:
                call.error = None  # no cycle through the traceback
        shared.check(rc)

    def checkpoint(self, mode: str = "passive") -> Checkpoint:
        """Writes the write-ahead log into the file. ``mode``: "passive" as much as is possible without
        waiting, "full" waits for writers, "restart" for readers, too, "truncate" cuts the log to zero
        bytes. BusyError if others stand in the way, or a transaction is open."""
        frames, done = ffi.new("int *"), ffi.new("int *")
        number = _choice(mode, _CHECKPOINTS, "mode")
        self._shared.check(lib.kvstore_checkpoint(self._shared.handle(), number, frames, done))
        return Checkpoint(int(frames[0]), int(done[0]))

    def vacuum(self, pages: int = 0) -> None:
        """Gives free pages back to the file system: at most ``pages``, or all with 0."""
        number = min(_count(pages, "pages"), _MAX_INT)
        self._shared.check(lib.kvstore_incremental_vacuum(self._shared.handle(), number))

    def integrity_check(self) -> None:
        """Checks the whole file, on one snapshot. CorruptError names the first disagreement."""
        shared = self._shared
        message = ffi.new("char **")
        rc = lib.kvstore_integrity_check(shared.handle(), message)
        if message[0]:
            try:
                raise CorruptError(ffi.string(message[0]).decode("utf-8", "replace"), rc)
            finally:
                lib.kvstore_free(message[0])
        shared.check(rc)

    def repair(self) -> int:
        """Makes the indexes, the large values, the views and the catalogue agree with the data rows again, in
        one transaction, after which :meth:`integrity_check` finds nothing. Returns how many rows, entries and
        tables were added, removed or changed.

        Every key that could be read is kept as it was; one whose value is lost is removed. CorruptError if
        SQLite's own check fails, BusyError while a transaction is open: nothing is changed then.
        """
        fixed = ffi.new("int64_t *")
        self._shared.check(lib.kvstore_repair(self._shared.handle(), fixed))
        self._shared.changed()
        return int(fixed[0])

    def limit(self, max_bytes: Optional[int], policy: str = "none") -> None:
        """Sets how much the data may take in the file, in bytes, and which keys make room; None or 0: no limit.
        It is kept in the file, and every store and process obeys it. :meth:`get_limit` tells it.

        ``policy``: "none": none; a write that would pass the limit raises FullError. "soonest": expired keys,
        then those that would expire soonest; keys without a TTL stay. "oldest": expired keys, then those that
        were written longest ago; it switches write tracking on for every family. Keys that a write itself has
        put never make room for it, and what only removes is never refused.

        ValueError for a limit of less than 32 pages (131072 bytes with pages of 4096), FullError if the data takes
        more and may not be removed: nothing is changed then.

        >>> db = kvstore.open(":memory:")
        >>> db.limit(4_000_000, "soonest")
        >>> db.get_limit()
        Limit(max_bytes=4000000, policy='soonest')
        """
        number = _choice(policy, _POLICIES, "policy")
        most = 0 if max_bytes is None else _count(max_bytes, "max_bytes")
        shared = self._shared
        rc = lib.kvstore_set_limit(shared.handle(), most, number)
        if rc == lib.KVSTORE_ERROR:
            raise InvalidError(error_text(shared.kv))
        shared.check(rc)
        shared.changed()

    def get_limit(self) -> Limit:
        """What the data may take in the file (``max_bytes``; 0: as much as it wants), and what makes room."""
        max_bytes, policy = ffi.new("int64_t *"), ffi.new("int *")
        self._shared.check(lib.kvstore_get_limit(self._shared.handle(), max_bytes, policy))
        names = {number: name for name, number in _POLICIES.items()}
        return Limit(int(max_bytes[0]), names[int(policy[0])])

    def stats(self) -> Stats:
        """What this store has done since it was opened or :meth:`stats_reset` was called.

        >>> db = kvstore.open(":memory:")
        >>> db["a"] = b"1"
        >>> db.stats().puts
        1
        """
        out = ffi.new("KVStoreStats *")
        self._shared.check(lib.kvstore_stats(self._shared.handle(), out))
        return Stats(**{name: int(getattr(out, field)) for field, name in _STATS})

    def stats_reset(self) -> None:
        """Sets the counters to zero."""
        self._shared.check(lib.kvstore_stats_reset(self._shared.handle()))

    def sync(self) -> None:
        """Makes every commit so far survive a power cut. Never ends an open transaction."""
        self._shared.check(lib.kvstore_sync(self._shared.handle()))


class _BackupCall:
    """A backup's progress function, and what it raised."""

    __slots__ = ("error", "progress")

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.error: Optional[BaseException] = None


@ffi.def_extern(error=1)  # type: ignore[untyped-decorator, unused-ignore]
def kvpy_progress(context: Any, remaining: int, total: int) -> int:
    call: _BackupCall = ffi.from_handle(context)
    try:
        call.progress(remaining, total)
    except BaseException as e:  # it goes on in backup()
        call.error = e
        return 1
    return 0


def _choice(given: str, choices: dict[str, int], what: str) -> int:
    if not isinstance(given, str):
        raise TypeError(f"{what} must be a str, not {type(given).__name__}")
    number = choices.get(given.lower())
    if number is None:
        raise ValueError(f"{what} is one of {', '.join(choices)}, not {given!r}")
    return number


def _name(name: str) -> bytes:
    if not isinstance(name, str):
        raise TypeError(f"a family's name must be a str, not {type(name).__name__}")
    encoded = name.encode()
    if b"\0" in encoded:
        raise ValueError("a family's name cannot have a NUL in it")
    return encoded


def _count(number: int, what: str) -> int:
    if isinstance(number, bool) or not hasattr(number, "__index__"):
        raise TypeError(f"{what} must be an int, not {type(number).__name__}")
    number = number.__index__()
    if not 0 <= number < 1 << 63:
        raise ValueError(f"{what} cannot be {number}")
    return number


def open(  # the name that users of dbm, shelve and sqlite know
    path: Optional[Path],
    *,
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
) -> Store:
    """Opens the store at ``path``; makes it if it is not there. None or ":memory:" is a new one in memory.

    - ``journal_mode``: "wal", or "delete" for a rollback journal (one file; readers and writers take turns).
    - ``sync``: "normal" (a power cut may lose the last commits, never the file), "full" (a commit is
      on the disk when the call returns) or "off" (a power cut may destroy the file).
    - ``read_only``: the file must exist; one that was closed can also be read where nothing can be written.
    - ``exclusive``: no other handle may open the file; fastest. Not together with ``read_only``.
    - ``busy_timeout``: how long to wait for another handle's lock before a BusyError; 0: not at all.
    - ``cache_size`` in pages (0: 2000), ``page_size`` of new files in bytes (0: 4096).
    - ``wal_size_limit``: a checkpoint after so many commits; 0: automatic.
    - ``max_value_size``: the longest value in bytes, up to 512 MiB; 0: 10 MiB.
    - ``mmap_size``: bytes of the file that are mapped into memory; 0: as is best, negative: none.
    - ``hold_reads``: whether the library keeps a read snapshot between calls, which makes reads faster, but keeps
      the WAL of other processes growing while this one sits idle; None: while no other process has the file open.
    - ``wal_pages``: how long the WAL gets, in pages (0: 4000); with one writer never more than twice as long, and the
      pages of one transaction.

    StoreIOError if the file cannot be opened, CorruptError if it is no store, BusyError if another handle
    has it open exclusively, ValueError for a setting out of bounds.

    >>> with kvstore.open(":memory:") as db:
    ...     db["user:1"] = "Ada"
    ...     db.put("session", b"token", ttl=60)
    ...     list(db)
    True
    [b'session', b'user:1']
    """
    return Store(
        path,
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
    )
