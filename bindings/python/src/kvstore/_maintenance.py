"""The methods of a store on its file: its limit, copies, checks, checkpoints; and its statistics.

Mixed into Store. Must not read or write keys.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Callable, NamedTuple, Optional, Union

from kvstore._errors import CorruptError, InvalidError
from kvstore._handle import Handle
from kvstore._native import NULL, ffi, lib
from kvstore._options import choice, count

Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]
#: Called with how much there remains to be copied, or was, and with the total.
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


@dataclass(frozen=True)
class Stats:
    """What a store has done, in all threads of this process, since it was opened or ``stats_reset`` was called.

    ``hits / (hits + misses)`` says how well a cache does.
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
    #: Frames in the write-ahead log after this thread's last commit or checkpoint; not reset.
    wal_frames: int
    #: Gets (of several keys, each) and ``in`` that found no live key.
    misses: int
    #: Keys that were removed alive to make room (:meth:`Store.limit`).
    evicted: int
    #: What the data takes in the file now, in bytes: its pages less the free ones; not reset.
    size_bytes: int

    @property
    def hits(self) -> int:
        """Gets (of several keys, each) that found a live key: the same as ``gets``."""
        return self.gets


def _python_name(field: str) -> str:
    """nTtlExpired: ttl_expired."""
    return "".join("_" + c.lower() if c.isupper() else c for c in field[1:]).lstrip("_")


class MaintenanceMethods(Handle):
    """See Store."""

    __slots__ = ()

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
        call = _ProgressCall(progress)
        context = ffi.new_handle(call)
        rc = lib.kvstore_backup(kv, name, lib.kvpy_progress, context)
        call.reraise()
        shared.check(rc)

    def copy_to(self, other: MaintenanceMethods, progress: Optional[Progress] = None) -> None:
        """Copies all live keys of all families into another store, with their TTLs and write times, and the
        families' settings; others go on reading and writing here meanwhile. It is the state of one moment, in one
        transaction of the other store: after a failure nothing was copied, and it may be run again.

        Families that the other store does not have are made; one that it has must have no keys. The limit
        (:meth:`limit`) is copied if the other store has none and no key at all.

        ``progress(done, total)`` is called now and then with numbers of keys. An exception in it stops the copy and
        comes out here. A store in memory that is copied, or copied to, must not be used in it.

        >>> db, other = kvstore.open(":memory:"), kvstore.open(":memory:")
        >>> db["a", 60] = b"1"
        >>> db.copy_to(other)
        >>> other["a"]
        b'1'
        """
        if not isinstance(other, MaintenanceMethods):
            raise TypeError(f"a store is copied to a Store, not to {type(other).__name__}")
        shared = self._shared
        kv, to = shared.handle(), other._shared.handle()
        if progress is None:
            rc = lib.kvstore_copy(kv, to, NULL, NULL)
        else:
            call = _ProgressCall(progress)
            context = ffi.new_handle(call)
            rc = lib.kvstore_copy(kv, to, lib.kvpy_copied, context)
            call.reraise()
        shared.check(rc)
        other._shared.changed()

    def checkpoint(self, mode: str = "passive") -> Checkpoint:
        """Writes the write-ahead log into the file. ``mode``: "passive" as much as is possible without
        waiting, "full" waits for writers, "restart" for readers, too, "truncate" cuts the log to zero
        bytes. BusyError if others stand in the way, or a transaction is open."""
        frames, done = ffi.new("int *"), ffi.new("int *")
        number = choice(mode, _CHECKPOINTS, "mode")
        self._shared.check(lib.kvstore_checkpoint(self._shared.handle(), number, frames, done))
        return Checkpoint(int(frames[0]), int(done[0]))

    def vacuum(self, pages: int = 0) -> None:
        """Gives free pages back to the file system: at most ``pages``, or all with 0."""
        number = min(count(pages, "pages"), _MAX_INT)
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

        Every key that could be read is kept as it was; one whose value is lost is removed. (``kvstore repair`` names
        what it removes, and opens a store whose catalogue is gone, too.) CorruptError if
        SQLite's own check fails, BusyError while a transaction is open: nothing is changed then.
        """
        fixed = ffi.new("int64_t *")
        self._shared.check(lib.kvstore_repair(self._shared.handle(), fixed))
        self._shared.changed()
        return int(fixed[0])

    def limit(self, max_bytes: Optional[int], policy: Optional[str] = None) -> None:
        """Sets how much the data may take in the file, in bytes, and which keys make room; None or 0: no limit.
        It is kept in the file, and every store and process obeys it. :meth:`get_limit` tells it.

        ``policy``: None leaves it as it is ("none" in a store without a limit). "none": no key makes room; a write
        that would pass the limit raises FullError. "soonest": expired keys, then those that would expire soonest;
        keys without a TTL stay. "oldest": expired keys, then those that were written longest ago; it switches write
        tracking on for every family. Keys that a write itself has put never make room for it, and what only removes
        is never refused.

        ValueError for a limit of less than 32 pages (131072 bytes with pages of 4096), FullError if the data takes
        more and may not be removed: nothing is changed then.

        >>> db = kvstore.open(":memory:")
        >>> db.limit(4_000_000, "soonest")
        >>> db.get_limit()
        Limit(max_bytes=4000000, policy='soonest')
        """
        most = 0 if max_bytes is None else count(max_bytes, "max_bytes")
        number = choice(self.get_limit().policy if policy is None else policy, POLICIES, "policy")
        shared = self._shared
        rc = lib.kvstore_set_limit(shared.handle(), most, number)
        if rc == lib.KVSTORE_ERROR:
            raise InvalidError(shared.error_text())
        shared.check(rc)
        shared.changed()

    def get_limit(self) -> Limit:
        """What the data may take in the file (``max_bytes``; 0: as much as it wants), and what makes room."""
        max_bytes, policy = ffi.new("int64_t *"), ffi.new("int *")
        self._shared.check(lib.kvstore_get_limit(self._shared.handle(), max_bytes, policy))
        names = {number: name for name, number in POLICIES.items()}
        return Limit(int(max_bytes[0]), names[int(policy[0])])

    def stats(self) -> Stats:
        """What this store has done since it was opened or :meth:`stats_reset` was called.

        >>> db = kvstore.open(":memory:")
        >>> db["a"] = b"1"
        >>> db.stats().puts
        1
        """
        shared = self._shared
        shared.handle()
        return Stats(**{_python_name(name): number for name, number in shared.connections.stats(shared.handle()).items()})

    def stats_reset(self) -> None:
        """Sets the counters to zero."""
        shared = self._shared
        shared.handle()
        shared.connections.stats_reset()

    def sync(self) -> None:
        """Makes every commit so far survive a power cut. Never ends an open transaction."""
        self._shared.check(lib.kvstore_sync(self._shared.handle()))


class _ProgressCall:
    """The progress function of a backup or copy, and what it raised."""

    __slots__ = ("error", "progress")

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.error: Optional[BaseException] = None

    def reraise(self) -> None:
        if self.error is not None:
            try:
                raise self.error
            finally:
                self.error = None  # no cycle through the traceback

    def __call__(self, part: int, total: int) -> int:
        try:
            self.progress(part, total)
        except BaseException as e:  # it goes on in reraise()
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
