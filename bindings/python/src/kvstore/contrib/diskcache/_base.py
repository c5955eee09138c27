"""The base class of Cache: its settings, access to the store, and the steps that calls consist of."""

from __future__ import annotations

import importlib
import inspect
import json
import logging
import numbers
import os
import struct
import tempfile
import zlib
from collections.abc import Iterable
from contextlib import AbstractContextManager, ContextDecorator
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Callable, Optional, TypeVar, Union

import kvstore
from kvstore._native import WithBlock, surely
from kvstore._transaction import Transaction, in_one_transaction
from kvstore.contrib._storage import Storage
from kvstore.contrib._timeouts import LONGEST
from kvstore.contrib.diskcache._disk import ENOVAL, Disk
from kvstore.contrib.diskcache._keys import decode, encode, is_shortened, readable, shortened
from kvstore.contrib.diskcache._locks import Locks, Writing
from kvstore.contrib.diskcache._tables import Entry, Tables, pack, unpack

R = TypeVar("R")
C = TypeVar("C", bound="CacheBase")

_log = logging.getLogger("kvstore.contrib")

#: The exceptions of reading a value that another program has written.
_UNREADABLE = (ValueError, TypeError, IndexError, RecursionError, struct.error, zlib.error)

#: Names that :meth:`CacheBase.reset` reads in addition to the settings.
METADATA = ("count", "size", "hits", "misses")

#: The file of a cache in its directory.
FILE_NAME = "kvstore.db"

DEFAULT_SETTINGS: dict[str, Any] = {
    "statistics": 0,
    "tag_index": 0,
    "eviction_policy": "least-recently-stored",
    "size_limit": 1 << 30,
    "cull_limit": 10,
    "disk_min_file_size": 1 << 15,
    "disk_pickle_protocol": 5,
    "sqlite_auto_vacuum": 1,
    "sqlite_cache_size": 1 << 13,
    "sqlite_journal_mode": "wal",
    "sqlite_mmap_size": 1 << 26,
    "sqlite_synchronous": 1,
}

#: How the eviction policies score an entry: by a time, by the number of uses, or not at all.
EVICTION_POLICY = ("none", "least-recently-stored", "least-recently-used", "least-frequently-used")
USED, FREQUENT = EVICTION_POLICY[2:]
#: The settings that must be numbers.
_NUMBERS = ("statistics", "tag_index", "size_limit", "cull_limit")

#: Uses of entries that a process keeps in memory until its next write.
_MAX_USES = 1000
#: The size of the store is read again after this number of writes at the latest.
_WRITES_PER_CHECK = 64
#: Timeouts in seconds are at most three years.
_LONGEST_TIMEOUT = 1e8
_MAX_VALUE_SIZE = 1 << 29
#: Tags that are int are from -_LIMIT to _LIMIT - 1.
_LIMIT = 1 << 63


class Timeout(Exception):
    """Other threads or processes have kept the store locked for longer than the timeout.

    The first argument is the number of entries that the call removed before, if it removes entries.
    """


class _CacheStorage(Storage):
    """The file of a cache."""

    advice = {
        kvstore.Hint.RAISE_BUSY_TIMEOUT: "retry, or give a longer timeout=",
        kvstore.Hint.RAISE_MAX_VALUE_SIZE: "split the value",
        kvstore.Hint.CHECK_PERMISSIONS: "change the owner or the permissions, or give another directory",
        kvstore.Hint.GIVE_PASSWORD: "give another directory",
    }


class CacheBase:
    """Base class of :class:`Cache`."""

    def __init__(
        self,
        directory: Union[str, Path, None] = None,
        timeout: float = 60,
        disk: type[Disk] = Disk,
        *,
        serializer: Optional[Any] = None,
        **settings: Any,
    ) -> None:
        if not isinstance(disk, type) or not issubclass(disk, Disk):
            raise ValueError(f"disk must be kvstore.contrib.diskcache.Disk or a subclass of it, not {disk!r}")
        for name, value in settings.items():
            self._check_setting(name, value)
        if not _is_real(timeout):
            raise TypeError(
                f"timeout must be a number of seconds, not {timeout!r}: to wait without a limit, give retry=True "
                "to calls"
            )
        if directory is None:
            directory = tempfile.mkdtemp(prefix="kvstore-diskcache-")
        self._directory = os.path.expandvars(os.path.expanduser(str(directory)))
        self._timeout = timeout
        self._serializer = serializer
        #: Seconds that a call waits, within the bounds of the store.
        self._patience = max(0, min(timeout, _LONGEST_TIMEOUT))
        options = {"busy_timeout": self._patience, "max_value_size": _MAX_VALUE_SIZE, "purge_per_write": 10}
        if settings.get("sqlite_mmap_size") == 0:
            options["mmap_size"] = -1
        self._storage = _CacheStorage(os.path.join(self._directory, FILE_NAME), "diskcache values", options)
        self._opened: Optional[tuple[kvstore.Family, Tables]] = None
        self._locks = Locks(self._forget_counts)
        #: How many bytes may be written before the size of the store is read again.
        self._room = 0
        self._writes = 0
        self._apply(settings)
        self._disk = self._new_disk(disk, settings)

    def _new_disk(self, disk: type[Disk], given: dict[str, Any]) -> Disk:
        """Return a disk with the settings. Settings of the file that it does not know are left out."""
        arguments: dict[str, Any] = {name[5:]: value for name, value in vars(self).items() if name.startswith("disk_")}
        if self._serializer is not None:
            arguments["serializer"] = self._serializer
        try:
            return disk(self._directory, **arguments)
        except TypeError:
            unknown = [
                name
                for name in arguments
                if f"disk_{name}" not in {**given, **DEFAULT_SETTINGS, "disk_serializer": None}
                and not _has_argument(disk, name)
            ]
            if not unknown:
                raise
        for name in unknown:
            del arguments[name]
        return disk(self._directory, **arguments)

    def _forget_counts(self) -> None:
        """Start counting. The child of a fork starts again: its parent stores the counts until then."""
        self._hits = self._misses = 0
        #: Uses since the last write, by the name of the entry: how many.
        self._uses: dict[bytes, int] = {}

    def _apply(self, settings: dict[str, Any]) -> None:
        """Set the settings: the given ones, then those that the file has, then the defaults."""
        given = {name: value for name, value in settings.items() if name != "disk_serializer"}
        stored = self._storage.call(lambda _: self._stored_settings(self._tables()))
        known = {**DEFAULT_SETTINGS, **stored}
        for name, value in {**known, **settings}.items():
            setattr(self, name, value)
        changed = {name: value for name, value in given.items() if name not in stored or known[name] != value}
        if changed:
            self._write(lambda tables: self._store_settings(tables, changed), retry=True)

    @staticmethod
    def _check_setting(name: str, value: Any) -> None:
        if name not in DEFAULT_SETTINGS and not name.startswith(("disk_", "sqlite_")):
            raise TypeError(f"unknown setting {name}: the settings are {', '.join(sorted(DEFAULT_SETTINGS))}")
        if name == "eviction_policy" and value not in EVICTION_POLICY:
            raise ValueError(f"unknown eviction_policy {value!r}: use one of {', '.join(EVICTION_POLICY)}")
        if name in _NUMBERS and not isinstance(value, (int, float)):
            raise TypeError(f"{name} must be a number, not {value!r}")

    @classmethod
    def _stored_settings(cls, tables: Tables) -> dict[str, Any]:
        """Return the settings of the file. Those that cannot be used are left out."""
        found = {}
        for key, data in tables.settings.items():
            try:
                name, value = key.decode(), json.loads(data)
                cls._check_setting(name, value)
            except (ValueError, TypeError, RecursionError):  # also "hits" and "misses"
                continue
            if name != "disk_serializer":
                found[name] = value
        return found

    @staticmethod
    def _store_settings(tables: Tables, settings: dict[str, Any]) -> None:
        for name, value in settings.items():
            tables.settings.put(name, json.dumps(value))

    @property
    def directory(self) -> str:
        """The directory of the cache."""
        return self._directory

    @property
    def timeout(self) -> float:
        """Seconds that a call waits for other writers."""
        return self._timeout

    @property
    def disk(self) -> Disk:
        """The object that converts keys and values."""
        return self._disk

    # Access to the store

    def _tables(self) -> Tables:
        family = self._storage.family()
        opened = self._opened
        if opened is None or opened[0] is not family:
            opened = self._opened = (family, Tables.of(self._storage.store()))
        return opened[1]

    def _call(self, work: Callable[[], R]) -> R:
        """Return ``work()``. If the file was deleted, it is called again with a new one, except in a
        transaction, which must not continue in another file.
        """
        return work() if self._in_transaction() else self._storage.call(lambda _: work())

    def _in_transaction(self) -> bool:
        """Return whether this thread has a transaction open in the store."""
        opened = self._opened
        return opened is not None and not opened[0].closed and opened[0]._state.in_transaction()

    def _read(self, work: Callable[[Tables], R], retry: bool) -> R:
        while True:
            try:
                return self._call(lambda: work(self._tables()))
            except (kvstore.BusyError, kvstore.LockedError) as error:
                if not retry:
                    raise Timeout(str(error)) from error

    def _write(self, work: Callable[[Tables], R], retry: bool) -> R:
        """Return ``work(tables)``, in a transaction of its own or in the one that this thread has open."""

        if self._in_transaction():
            return self._noting_uses(self._tables(), work)

        def write() -> R:
            tables = self._tables()
            return in_one_transaction(tables.values._state, lambda: self._noting_uses(tables, work))

        while True:
            try:
                with self._locks.writing(self._patience):
                    return self._storage.call(lambda _: write())
            except (kvstore.BusyError, kvstore.LockedError) as error:
                if not retry:
                    raise Timeout(str(error)) from error

    def transact(self, retry: bool = False) -> AbstractContextManager[None]:
        """Return a ``with`` block whose writes are committed together. Blocks may be nested.

        While it is open, all other writers wait, so it should be short. A block must not be shared
        between threads, and an asyncio task must not ``await`` in it: calls of other tasks would
        become part of it, and raise ``kvstore.MisuseError``.

        Raises:
            Timeout: If the store stays locked and ``retry`` is False.
        """
        return _Block(self, retry)

    def _transaction(self) -> Transaction:
        state = self._tables().values._state
        if not os.path.exists(self._storage.path) and not state.in_transaction():
            # The library would report it at the first write, when the block cannot be run again.
            raise kvstore.StoreIOError(f"{self._storage.path} was deleted while it was open")
        return Transaction(state, True, joins=True)

    # Keys and scores

    def _name(self, key: Any) -> tuple[bytes, bytes]:
        """Return the name of the entry for a key, and the encoded key if the name is a hash of it."""
        encoded = encode(*self._disk.put(key))
        name = shortened(encoded)
        return name, (encoded if name is not encoded else b"")

    def _key(self, tables: Tables, name: bytes) -> Any:
        """Return the key of an entry; ENOVAL if the entry has been removed or its key cannot be read."""
        try:
            if not is_shortened(name):
                return self._disk.get(*decode(name))
            entry = tables.entry(name)
            return ENOVAL if entry is None else self._disk.get(*decode(entry.key))
        except _UNREADABLE as error:
            _log.warning("%s: a key is left out: %s", self._directory, error)
            return ENOVAL

    def _score_of_new(self, now: float) -> int:
        return 0 if self.eviction_policy == FREQUENT else max(0, int(now * 1e6))

    def _now(self, tables: Tables) -> float:
        return tables.values._state.now_ms() / 1000

    def _moment(self, tables: Tables, expire: Optional[float]) -> Optional[float]:
        """Return the expiry time for ``expire`` seconds from now; None: never."""
        if expire is None:
            return None
        if not _is_real(expire):
            raise TypeError(f"expire must be a number of seconds, or None for no expiry, not {expire!r}")
        return None if expire >= LONGEST else self._now(tables) + expire

    def _note_use(self, name: bytes) -> None:
        """Note that an entry was read. The next write stores it as the entry's score."""
        with self._locks.counters():
            self._uses[name] = self._uses.get(name, 0) + 1
            is_full = len(self._uses) >= _MAX_USES
        if is_full:
            try:
                self._write(lambda tables: None, retry=False)
            except (Timeout, kvstore.Error):
                with self._locks.counters():
                    self._uses.clear()  # the order of evictions becomes less exact

    def _noting_uses(self, tables: Tables, work: Callable[[Tables], R]) -> R:
        if not self._uses:
            return work(tables)
        with self._locks.counters():
            uses, self._uses = self._uses, {}
        now = self._now(tables)
        for name, count in uses.items():
            described = tables.described(name)
            if described is not None:
                entry, expires_at = described
                score = entry.score + count if self.eviction_policy == FREQUENT else self._score_of_new(now)
                tables.forget(entry)
                tables.describe(name, entry._replace(score=score), expires_at)
        return work(tables)

    def volume(self) -> int:
        """Return the size of the store in bytes, without free pages."""
        return self._read(lambda tables: tables.values._state.size_bytes(), retry=True)

    # Steps of calls, in a transaction

    def _stored(self, key: Any, value: Any, read: bool) -> bytes:
        _, mode, _, data = self._disk.store(value, read, key=key)
        return pack(mode, data)

    def _put(
        self, tables: Tables, name: bytes, long_key: bytes, data: bytes, expire: Optional[float], tag: bytes
    ) -> None:
        old = tables.entry(name)
        if old is not None:
            tables.forget(old)
        score = self._score_of_new(self._now(tables))
        entry = Entry(old.position if old else tables.next_position(), score, tag, long_key)
        tables.write(name, entry, data, self._moment(tables, expire))
        self._cull_after_write(tables, len(name) + len(data))

    def _take(self, tables: Tables, name: bytes) -> tuple[Optional[bytes], Optional[float], Any]:
        data, described = tables.values.get(name), tables.described(name)
        if described is None:
            return None, None, None
        entry, expires_at = described
        tables.remove(name, entry)
        return data, expires_at, _decode_tag(entry.tag)

    @staticmethod
    def _remove(tables: Tables, names: Iterable[bytes]) -> int:
        count = 0
        for name in names:
            entry = tables.entry(name)
            if entry is not None:
                tables.remove(name, entry)
                count += 1
        return count

    def _remove_in_steps(self, step: Callable[[Tables], int], retry: bool, count: int = 0) -> int:
        """Call ``step``, which removes some entries, until it returns 0. Return how many were removed."""
        try:
            while True:
                removed = self._write(step, retry)
                if not removed:
                    return count
                count += removed
        except Timeout:
            raise Timeout(count) from None

    def _cull_after_write(self, tables: Tables, written: int) -> None:
        """Remove up to ``cull_limit`` entries if the cache has reached its size limit."""
        if self.eviction_policy == "none" or self.cull_limit <= 0:
            return
        self._room -= written
        self._writes += 1
        if self._room > 0 and self._writes < _WRITES_PER_CHECK:
            return
        self._writes = 0
        room = self.size_limit - self.volume()
        if room <= 0:
            self._remove(tables, tables.lowest(self.cull_limit))
        self._room = room // 8  # other processes write, too, and rows need more space than their data

    # Results

    def _value(self, data: Optional[bytes], read: bool = False) -> Any:
        """Convert a stored value; ENOVAL if there is none, or if it cannot be read."""
        if data is None:
            return ENOVAL
        try:
            mode, value = unpack(data)
            return self._disk.fetch(mode, None, value, read)
        except _UNREADABLE as error:
            _log.warning("%s: a value counts as missing: %s", self._directory, error)
            return ENOVAL

    @staticmethod
    def _look(tables: Tables, name: bytes) -> tuple[Optional[bytes], Optional[float], Any]:
        """Return value, expiry time and tag of an entry."""
        data, described = tables.values.get(name), tables.described(name)
        if data is None or described is None:
            return None, None, None
        entry, expires_at = described
        return data, expires_at, _decode_tag(entry.tag)

    def _count(self, is_hit: bool) -> None:
        with self._locks.counters():
            if is_hit:
                self._hits += 1
            else:
                self._misses += 1

    def _store_counts(self) -> tuple[int, int]:
        with self._locks.counters():
            (hits, misses), self._hits, self._misses = (self._hits, self._misses), 0, 0

        def add(tables: Tables) -> tuple[int, int]:
            return tables.settings.incr("hits", hits), tables.settings.incr("misses", misses)

        return self._write(add, retry=True)

    # Settings and state of the object

    def reset(self, key: str, value: Any = ENOVAL, update: bool = True) -> Any:
        """Change a setting, in this object and unless ``update`` is False in the file. Without
        ``value``, read it from the file. Return its value.

        Without ``value``, ``key`` may also be "count" (of entries), "hits", "misses", or "size" (bytes
        in other files: 0).

        Raises:
            KeyError: If ``key`` is read and is no setting.
            ValueError, TypeError: If the value is not one of this setting, or there is no such setting.
        """
        if value is ENOVAL:
            if key in METADATA:
                return self._metadata(key)
            stored = self._read(self._stored_settings, retry=True)
            value = stored[key] if key in stored else DEFAULT_SETTINGS[key]
        else:
            self._check_setting(key, value)
            if update:
                self._write(lambda tables: self._store_settings(tables, {key: value}), retry=True)
        if key.startswith("disk_"):
            setattr(self._disk, key[5:], value)
        setattr(self, key, value)
        self._room = 0
        return value

    def _metadata(self, name: str) -> int:
        if name == "count":
            return self._read(lambda tables: len(tables.values), retry=True)
        return 0 if name == "size" else self._store_counts()[name == "misses"]

    @property
    def count(self) -> int:
        """The number of entries."""
        return self._metadata("count")

    def close(self) -> None:
        """Close the file, unless another cache of this process uses it, or another thread has a
        transaction open for another second. The next call opens it again.
        """
        if self._hits or self._misses or self._uses:
            try:
                self._store_counts()
            except (Timeout, kvstore.Error):
                pass  # the counts and uses since the last write are lost
        try:
            with self._locks.writing(min(self._patience, 1)):
                self._opened = None
                self._storage.close()
        except kvstore.BusyError:
            pass  # closed with the last reference to it, or with the next call of close()

    def __enter__(self: C) -> C:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        serializer = self._serializer
        if isinstance(serializer, ModuleType):  # such as pickle, which cannot be pickled itself
            serializer = serializer.__name__
        return _unpickled, (type(self), serializer), self.__getstate__()

    def __getstate__(self) -> tuple[Any, ...]:
        """Return the arguments with which :meth:`__setstate__` calls ``__init__``. Subclasses whose
        ``__init__`` takes more may add to them.
        """
        return self._directory, self._timeout, type(self._disk)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        options = {} if self._serializer is None else {"serializer": self._serializer}
        type(self).__init__(self, *state, **options)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._directory!r})"

    # The settings are attributes, which _apply sets.
    statistics: int
    tag_index: int
    eviction_policy: str
    size_limit: int
    cull_limit: int


def _has_argument(disk: type[Disk], name: str) -> bool:
    """Return whether ``__init__`` of a class, or of a base class to which it passes on other arguments, has
    an argument.
    """
    for cls in disk.__mro__[:-1]:
        if "__init__" in vars(cls):
            parameters = inspect.signature(vars(cls)["__init__"]).parameters
            if name in parameters:
                return True
            if all(parameter.kind is not parameter.VAR_KEYWORD for parameter in parameters.values()):
                return False
    return False


class _Block(WithBlock, ContextDecorator, AbstractContextManager[None]):
    """The block of :meth:`CacheBase.transact`. A KeyboardInterrupt at any moment ends it completely."""

    def __init__(self, cache: CacheBase, retry: bool) -> None:
        self._cache = cache
        self._retry = retry
        self._writing: Optional[Writing] = None
        self._transaction: Optional[Transaction] = None

    def _recreate_cm(self) -> _Block:
        """Return the block of one call of a function that is decorated with this object."""
        return _Block(self._cache, self._retry)

    def __enter__(self) -> None:
        try:
            self._enter()
        except BaseException:
            surely(self._abandon)
            raise

    def _enter(self) -> None:
        cache = self._cache
        while True:
            try:
                self._writing = cache._locks.writing(cache._patience)
                self._writing.__enter__()
                cache._call(self._begin)
                return
            except (kvstore.BusyError, kvstore.LockedError) as error:
                self._abandon()
                if not self._retry:
                    raise Timeout(str(error)) from error

    def _begin(self) -> None:
        self._transaction = self._cache._transaction()
        self._transaction.__enter__()

    def _ending(self) -> bool:
        return True

    def _leave(
        self,
        ending: bool,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        if self._transaction is not None:
            self._transaction.__exit__(kind, error, traceback)
        self._abandon(ending)

    def _abandon(self, left: bool = False) -> None:
        """Roll back the transaction if it is still open, and let other threads write. May be called
        again after an interrupt.
        """
        if self._transaction is not None:
            self._transaction._abandon(left)
        if self._writing is not None:
            self._writing._abandon(left)
        self._transaction = self._writing = None


def _unpickled(cls: type[CacheBase], serializer: Any) -> CacheBase:
    """Return a cache that :meth:`CacheBase.__setstate__` completes."""
    cache = cls.__new__(cls)
    cache._serializer = importlib.import_module(serializer) if isinstance(serializer, str) else serializer
    return cache


def _is_real(number: Any) -> bool:
    return isinstance(number, numbers.Real)


def encode_tag(tag: Any) -> bytes:
    if tag is None:
        return b""
    kind: Any = next((kind for kind in (str, int, float, bytes) if isinstance(tag, kind)), None)
    if kind is None:
        raise TypeError(f"tag must be str, int, float or bytes, not {type(tag).__name__}")
    plain: Any = str.__str__(tag) if kind is str else kind(tag)  # of a subclass, such as bool
    if kind is int and not -_LIMIT <= plain < _LIMIT:
        raise ValueError(f"the tag {plain} is out of range: use an int of 64 bits")
    encoded = encode(plain, True)
    if len(encoded) > 1000:
        raise ValueError(f"the tag has {len(encoded) - 1} bytes: use at most 999")
    return encoded


def _decode_tag(tag: bytes) -> Any:
    return (readable(tag) or (None,))[0] if tag else None


def result(value: Any, moment: Optional[float], label: Any, expire_time: bool, tag: bool) -> Any:
    if expire_time and tag:
        return value, moment, label
    if expire_time:
        return value, moment
    return (value, label) if tag else value
