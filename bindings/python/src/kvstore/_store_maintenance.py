"""The methods of a store on its file: size limit, copies, checks, checkpoints and statistics.

Mixed into Store. Must not read or write keys.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Callable, NamedTuple, Optional

from kvstore._family_handle import FamilyHandle
from kvstore._native import NULL, ffi, lib
from kvstore._options import choice, count
from kvstore._path import Path, encoded_path

#: Called with the remaining (backup) or finished (copy) amount, and the total.
Progress = Callable[[int, int], Any]

_MAX_INT = 0x7FFFFFFF
_CHECKPOINTS = {
    "passive": lib.KVSTORE_CHECKPOINT_PASSIVE,
    "full": lib.KVSTORE_CHECKPOINT_FULL,
    "restart": lib.KVSTORE_CHECKPOINT_RESTART,
    "truncate": lib.KVSTORE_CHECKPOINT_TRUNCATE,
}


POLICIES = {
    "none": lib.KVSTORE_EVICT_NONE,
    "soonest": lib.KVSTORE_EVICT_SOONEST,
    "oldest": lib.KVSTORE_EVICT_OLDEST,
    "least-used": lib.KVSTORE_EVICT_LEAST_USED,
}


class Limit(NamedTuple):
    """The size limit of a store in bytes, and its eviction policy."""

    #: The maximum size of the data in the file, in bytes; 0: no limit.
    max_bytes: int
    #: Which keys are evicted when the limit is reached: "none", "soonest", "oldest" or
    #: "least-used". See
    #: :meth:`Store.limit`.
    policy: str


class Checkpoint(NamedTuple):
    """The result of a checkpoint, in frames of the WAL."""

    #: The number of frames in the WAL.
    frames: int
    #: How many of these frames are copied into the database file.
    checkpointed: int


@dataclass(frozen=True)
class Stats:
    """Counters of a store since it was opened or ``stats_reset`` was called, over all threads of
    this process.

    ``hits / (hits + misses)`` is the hit rate of a cache. ``db_pages``, ``wal_frames`` and
    ``size_bytes`` are current values: ``stats_reset`` does not change them.
    """

    #: Keys written.
    puts: int
    #: Values read.
    gets: int
    #: Keys deleted.
    deletes: int
    #: Iterators created.
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
    #: ``get``, ``in`` and ``ttl`` calls that found an expired key.
    ttl_expired: int
    #: Keys removed by purges.
    ttl_purged: int
    #: Pages of the database file.
    db_pages: int
    #: Frames in the WAL after this thread's last commit or checkpoint.
    wal_frames: int
    #: Keys that ``get``, ``get_many`` or ``in`` did not find.
    misses: int
    #: Live keys evicted to stay below the size limit (:meth:`Store.limit`).
    evicted: int
    #: The size of the data in the file, in bytes: its pages without the free ones.
    size_bytes: int

    @property
    def hits(self) -> int:
        """The number of keys that ``get`` and ``get_many`` found; the same as ``gets``."""
        return self.gets


def _python_name(field: str) -> str:
    """Return the Python name of a field of the C statistics: nTtlExpired becomes ttl_expired."""
    return "".join("_" + c.lower() if c.isupper() else c for c in field[1:]).lstrip("_")


class MaintenanceMethods(FamilyHandle):
    """Base class of :class:`kvstore.Store` with its methods on the file."""

    __slots__ = ()

    def backup(self, path: Path, progress: Optional[Progress] = None) -> None:
        """Copy all committed data to a new file, as a consistent snapshot.

        Other threads and processes go on reading and writing.

        Args:
            path: The new file. It must not exist, and appears when the copy is complete.
            progress: Called repeatedly as ``progress(remaining, total)``, in pages. It must not use
                the store. An exception it raises stops the backup and is raised here; no file is
                left.

        Raises:
            Error: If ``path`` exists.
            StoreIOError: If the file cannot be created or written.
            FullError: If the disk is full.
        """
        name = encoded_path(path)
        check_progress(progress)
        state = self._state
        kv = state.handle()
        if progress is None:
            state.check(lib.kvstore_backup(kv, name, NULL, NULL))
            return
        call = _ProgressCall(progress)
        context = ffi.new_handle(call)
        rc = lib.kvstore_backup(kv, name, lib.kvpy_progress, context)
        call.reraise()
        state.check(rc)

    def copy_to(self, other: MaintenanceMethods, progress: Optional[Progress] = None) -> None:
        """Copy all live keys of all families to another store.

        TTLs, write times and the settings of families are copied too. The copy is the state of one
        moment, written in one transaction of the other store: after a failure nothing was copied,
        and the call can be repeated. This store can be read and written meanwhile.

        Args:
            other: The target. Missing families are created; existing ones must have no keys. The
                size limit (:meth:`limit`) is copied if ``other`` has none and no keys.
            progress: Called repeatedly as ``progress(done, total)``, in keys. An exception it
                raises stops the copy and is raised here. It must not use a store in memory that
                takes part in the copy.

        >>> db, other = kvstore.open(":memory:"), kvstore.open(":memory:")
        >>> db.put("a", b"1", ttl=60)
        True
        >>> db.copy_to(other)
        >>> other["a"]
        b'1'
        """
        if not isinstance(other, MaintenanceMethods):
            raise TypeError(f"other must be a kvstore.Store, not {type(other).__name__}")
        check_progress(progress)
        state = self._state
        kv, to = state.handle(), other._state.handle()
        if progress is None:
            rc = lib.kvstore_copy(kv, to, NULL, NULL)
        else:
            call = _ProgressCall(progress)
            context = ffi.new_handle(call)
            rc = lib.kvstore_copy(kv, to, lib.kvpy_copied, context)
            call.reraise()
        state.check(rc)
        other._state.changed()

    def checkpoint(self, mode: str = "passive") -> Checkpoint:
        """Copy the commits in the write-ahead log (WAL) into the database file.

        Args:
            mode: "passive": as much as possible without waiting. "full": waits for writers.
                "restart": also waits for readers, so that the WAL starts over. "truncate": as
                "restart", and truncates the WAL to zero bytes.

        Raises:
            BusyError: If another connection prevents it for longer than ``busy_timeout``, or a
                transaction is open.
            ValueError: For another mode.
        """
        frames, done = ffi.new("int *"), ffi.new("int *")
        number = choice(mode, _CHECKPOINTS, "mode")
        self._state.check(lib.kvstore_checkpoint(self._state.handle(), number, frames, done))
        return Checkpoint(int(frames[0]), int(done[0]))

    def vacuum(self, pages: int = 0) -> None:
        """Return free pages of the file to the file system.

        Args:
            pages: The maximum number of pages; 0: all.
        """
        number = min(count(pages, "pages"), _MAX_INT)
        self._state.check(lib.kvstore_incremental_vacuum(self._state.handle(), number))

    def integrity_check(self) -> None:
        """Check the whole file for damage, on one snapshot.

        Raises:
            CorruptError: If the file is damaged; the message names the first problem.
        """
        self._state.check(lib.kvstore_integrity_check(self._state.handle(), NULL))

    def repair(self) -> int:
        """Rebuild the indexes, large values, views and catalogue from the data rows, in one
        transaction.

        Afterwards :meth:`integrity_check` succeeds. Every readable key is kept; a key whose value
        is lost is removed. The command ``kvstore repair`` lists what it removes, and also opens a
        store whose catalogue is missing.

        Returns:
            The number of rows, index entries and tables that were added, removed or changed.

        Raises:
            CorruptError: If SQLite's own check fails. Nothing is changed; use
                :func:`kvstore.recover`.
            BusyError: If a transaction is open. Nothing is changed.
        """
        fixed = ffi.new("int64_t *")
        self._state.check(lib.kvstore_repair(self._state.handle(), fixed))
        self._state.changed()
        return int(fixed[0])

    def limit(self, max_bytes: Optional[int], policy: Optional[str] = None) -> None:
        """Set the size limit of the store, and the policy that selects the keys to evict.

        The limit is stored in the file and applies to every process. A write never evicts the keys
        it has itself written, and calls that only remove keys are never refused. Read the limit
        with :meth:`get_limit`.

        Args:
            max_bytes: The maximum size of the data in the file; at least 32 pages (131,072 bytes
                with pages of 4,096). None or 0: no limit.
            policy: "none": evict nothing; a write that would exceed the limit raises FullError.
                "soonest": evict expired keys, then keys by expiry time, earliest first; keys
                without a TTL stay. "oldest": evict expired keys, then keys by write time, oldest
                first; this turns on write tracking in every family. "least-used": as "oldest", and
                reads of single keys count as writes; they are noted in memory, and stored by the
                next writes of the same thread, at most once a minute for each key. None: keep the
                current policy ("none" if there was no limit).

        Raises:
            ValueError: For a limit below 32 pages or another policy.
            FullError: If the data is larger than the limit and may not be evicted. Nothing is
                changed.

        >>> db = kvstore.open(":memory:")
        >>> db.limit(4_000_000, "soonest")
        >>> db.get_limit()
        Limit(max_bytes=4000000, policy='soonest')
        """
        most = 0 if max_bytes is None else count(max_bytes, "max_bytes")
        number = choice(self.get_limit().policy if policy is None else policy, POLICIES, "policy")
        state = self._state
        rc = lib.kvstore_set_limit(state.handle(), most, number)
        if rc == lib.KVSTORE_ERROR:
            raise state.failure().rejected()
        state.check(rc)
        state.changed()

    def get_limit(self) -> Limit:
        """Return the size limit in bytes and the eviction policy. A limit of 0 means none."""
        max_bytes, policy = ffi.new("int64_t *"), ffi.new("int *")
        self._state.check(lib.kvstore_get_limit(self._state.handle(), max_bytes, policy))
        names = {number: name for name, number in POLICIES.items()}
        return Limit(int(max_bytes[0]), names[int(policy[0])])

    def stats(self) -> Stats:
        """Return the counters of this store, over all threads of this process.

        A call of another thread that waits for a lock is not waited for. The counters of its
        connection are then those of the call of this method before.

        >>> db = kvstore.open(":memory:")
        >>> db["a"] = b"1"
        >>> db.stats().puts
        1
        """
        state = self._state
        state.handle()
        return Stats(**{_python_name(name): number for name, number in state.pool.stats(state.handle()).items()})

    def stats_reset(self) -> None:
        """Set the counters of this store to zero."""
        state = self._state
        state.handle()
        state.pool.stats_reset(state.handle())

    def sync(self) -> None:
        """Make every commit so far durable, so that it survives a power cut.

        Does not end an open transaction.
        """
        self._state.check(lib.kvstore_sync(self._state.handle()))


def check_progress(progress: Optional[Progress]) -> None:
    """Raise TypeError for a progress argument that is not a function."""
    if progress is not None and not callable(progress):
        raise TypeError(f"progress must be a function of two numbers, or None, not {type(progress).__name__}")


class _ProgressCall:
    """Passes a progress function to the library, and keeps the exception that the function raises.
    """

    __slots__ = ("error", "progress")

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.error: Optional[BaseException] = None

    def reraise(self) -> None:
        if self.error is not None:
            try:
                raise self.error
            finally:
                self.error = None  # avoid a reference cycle through the traceback

    def __call__(self, part: int, total: int) -> int:
        try:
            self.progress(part, total)
        except BaseException as e:  # raised again in reraise()
            self.error = e
            return 1
        return 0


@ffi.def_extern(error=1)  # type: ignore[untyped-decorator, unused-ignore]
def kvpy_progress(context: Any, remaining: int, total: int) -> int:
    call: _ProgressCall = ffi.from_handle(context)
    return call(remaining, total)


@ffi.def_extern(error=1)  # type: ignore[untyped-decorator, unused-ignore]
def kvpy_copied(context: Any, done: int, total: int) -> int:
    call: _ProgressCall = ffi.from_handle(context)
    return call(done, total)
