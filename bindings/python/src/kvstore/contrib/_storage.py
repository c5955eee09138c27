"""The storage of a framework backend: a family of a file that is opened once in each process.

Must not depend on a framework.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import math
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Optional, TypeVar, Union

import kvstore
from kvstore import Family, Store
from kvstore._options import choice, configuration, count, encryption_of
from kvstore._path import has_scheme
from kvstore._store_maintenance import POLICIES
from kvstore._time import duration_ms
from kvstore._write_purge import PURGE_PER_WRITE
from kvstore.contrib._file_lock import FileLockedError, file_lock

T = TypeVar("T")

#: The settings of a storage that are not settings of kvstore.open.
_OWN_OPTIONS = frozenset({"ignore_errors", "max_bytes", "policy"})
#: The settings of a storage: those of kvstore.open, except for the encoding, which backends decide,
#: a size limit, and what a failure does.
STORAGE_OPTIONS = (frozenset(inspect.signature(kvstore.open).parameters) - {"path", "codec", "keys"}) | _OWN_OPTIONS

#: How often a call opens a file again that was deleted, moved or replaced.
_REOPENS = 10
#: Seconds for which a call relies on the last check that the path leads to the open file. The library notices by
#: itself that a file was deleted or renamed, but not that a directory of its path was.
_CHECK_INTERVAL = 0.01
#: Seconds between two messages of a storage in the log.
_LOG_INTERVAL = 60.0
_log = logging.getLogger("kvstore.contrib")

MEMORY = ":memory:"

#: The code of an error of a damaged store. A file that is no store has another one, KVSTORE_NOTADB.
_DAMAGED = kvstore.CorruptError.code
#: The size of the smallest page of a store, in bytes.
_SMALLEST_PAGE = 512
#: The suffix of the file that is locked while a damaged store is replaced.
_LOCK_SUFFIX = ".replace-lock"
#: The suffixes of the files that SQLite keeps next to a database.
_SIDE_FILES = ("-wal", "-shm", "-journal")

#: The type that identifies an open store: path and settings.
_StoreKey = tuple[str, str]


class _SharedStore:
    """An open store and the storages that use it. The store is closed with the last of them."""

    __slots__ = ("__weakref__", "checked_until", "identity", "storages", "store")

    def __init__(self, store: Store, identity: Optional[tuple[int, int]]) -> None:
        self.store = store
        #: The identity of the file; None for a store that is no file.
        self.identity = identity
        #: When the path is compared with the identity again, by the monotonic clock.
        self.checked_until = 0.0
        self.storages: weakref.WeakSet[Storage] = weakref.WeakSet()


class _InUse(NamedTuple):
    """The open store and family of a Storage, and the process that opened them."""

    process: int
    opened: _SharedStore
    family: Family


#: The stores that are open in this process.
_stores: weakref.WeakValueDictionary[_StoreKey, _SharedStore] = weakref.WeakValueDictionary()
_lock = threading.RLock()


def _after_fork() -> None:
    """Forget the open stores of the parent, in the child of a fork, and replace the lock.

    Another thread of the parent may have held the lock.
    """
    global _lock, _stores
    _lock = threading.RLock()
    _stores = weakref.WeakValueDictionary()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Storage:
    """The storage of one framework backend: a family of a file.

    It is opened on first use, and again after a fork. All storages of a process with the same path
    and settings share a store. Threads may share a storage.

    Args:
        path: The path of the file, ":memory:", or the URL of a store on a server. A missing file is
            created with the mode 0600 and missing directories with 0700, whatever the umask. Existing
            ones keep their modes.
        name: The name of the family.
        options: Settings of :func:`kvstore.open`; ``max_bytes`` and ``policy`` for the size
            limit of the file (see ``Store.limit``), where the default policy is "oldest"; and
            ``ignore_errors``, with which a failed read counts as a miss. ``purge_per_write`` is 2
            by default.
    """

    #: What to do about an error, in words of the settings of the backend. Replaces the advice of the hint.
    advice: Mapping[kvstore.Hint, str] = {}

    def __init__(self, path: Any, name: str, options: Mapping[str, Any]) -> None:
        text = os.fsdecode(path)
        if not text:
            raise ValueError("the path is empty: give the path of a file, or ':memory:'")
        #: Whether the store is a file, and not in memory or on a server.
        self._is_file = text != MEMORY and not has_scheme(os.fsencode(text))
        if self._is_file:
            text = os.path.abspath(os.path.expanduser(text))  # the working directory may change before the first use
        if not isinstance(name, str) or not name:
            raise TypeError(f"family must be a str that is not empty, not {name!r}")
        unknown = sorted(set(options) - STORAGE_OPTIONS)
        if unknown:
            raise TypeError(f"unknown settings: {', '.join(map(str, unknown))}: see help(kvstore.open)")
        if options.get("max_bytes") is None and options.get("policy") is not None:
            raise TypeError("policy= needs a size limit: give max_bytes= too")
        settings = {setting: value for setting, value in options.items() if setting not in _OWN_OPTIONS}
        without_secret = dict(settings)  # check the settings now, not on first use
        encryption_of(without_secret)
        configuration(**without_secret)
        if options.get("max_bytes") is not None:
            count(options["max_bytes"], "max_bytes")
            choice(options.get("policy") or "oldest", POLICIES, "policy")
        self.path = text
        self.name = name
        self._options = {setting: value for setting, value in options.items() if setting != "ignore_errors"}
        self._store_key: _StoreKey = (text, repr(sorted(self._options.items())))
        self._ignores_errors = bool(options.get("ignore_errors"))
        #: Number of failures in this process that the callers did not notice.
        self.ignored_errors = 0
        self._next_message = 0.0
        #: How many seconds a call waits for a lock.
        self.busy_timeout = duration_ms(options.get("busy_timeout", 5.0), "busy_timeout") / 1000
        #: When the last call that found the store busy ended, by the monotonic clock.
        self.busy_time = -math.inf
        self._in_use: Optional[_InUse] = None
        #: The maximum number of keys, and how many keys may be added before they are counted again:
        #: see _culling.
        self.add_budget: tuple[int, int] = (0, 0)

    def family(self) -> Family:
        """Return the family of this storage, which is opened on first use in this process."""
        return self._open().family

    def store(self) -> Store:
        """Return the store that contains the family of this storage."""
        return self._open().opened.store

    def call(self, work: Callable[[Family], T]) -> T:
        """Return ``work(family)``.

        If the file was deleted, moved or replaced while it was open, opens it again, and creates it
        if it is missing. Nothing was written then, so ``work`` is called again.
        """
        try:
            return self._call(work)
        except kvstore.Error as error:
            self._set_advice(error)
            raise

    def _call(self, work: Callable[[Family], T]) -> T:
        for _ in range(_REOPENS):
            in_use = self._open()
            try:
                return work(in_use.family)
            except kvstore.Error as error:
                if isinstance(error, kvstore.BusyError):
                    self.busy_time = time.monotonic()
                if isinstance(error, kvstore.MisuseError) and in_use.family.closed:
                    continue  # another thread has closed it
                opened = in_use.opened
                if _in_transaction(opened.store) or not self._is_gone(error, opened.identity):
                    raise
                self._forget(opened)
        return work(self.family())

    def _is_gone(self, error: kvstore.Error, file: Optional[tuple[int, int]]) -> bool:
        """Return whether a call has failed because its file was deleted, moved or replaced.

        Such a call can fail with almost any error, for example if it opens the file while another
        process deletes it. ``file`` is the identity of the file, None if it did not exist.
        """
        if not self._is_file:
            return False
        if error.hint is kvstore.Hint.OPEN_AGAIN:
            return True
        if isinstance(error, (kvstore.BusyError, kvstore.InvalidError, kvstore.NotFoundError)):
            return False  # a busy store was waited for already
        return file is None or self._identity() != file

    def read(self, work: Callable[[Family], T], missing: T) -> T:
        """Return ``work(family)``; with ``ignore_errors``, ``missing`` if the store fails."""
        try:
            return self.call(work)
        except kvstore.Error as error:
            if not self._ignores_errors:
                raise
            self.ignore(error)
            return missing

    def keep(self, work: Callable[[Family], T], names: Iterable[Union[str, bytes]], not_kept: T) -> T:
        """Return ``work(family)``, which stores values; ``not_kept`` if the store fails.

        A cache must not break what it caches: the caller has the values and can go on. ``names``
        are the keys that must not keep their old values.
        """
        try:
            return self.call(work)
        except kvstore.Error as error:
            self.ignore(error)
            if not isinstance(error, (kvstore.BusyError, kvstore.LockedError)):  # not to wait twice
                try:
                    self.call(lambda family: family.delete_many(list(names)))
                except kvstore.Error:
                    pass
            return not_kept

    def write(self, work: Callable[[Family], T], names: Iterable[Union[str, bytes]], not_written: T) -> T:
        """Return ``work(family)``, which stores values; with ``ignore_errors``, as :meth:`keep` does.
        """
        return self.keep(work, names, not_written) if self._ignores_errors else self.call(work)

    def clear(self) -> None:
        """Remove all keys of the family. If the file is a damaged store, move it aside and create another.

        Raises:
            CorruptError: If the file is not recognizably a store of this library. It is not changed.
            BusyError: If another process replaces the damaged store and has not ended within ``busy_timeout``.
        """
        file = self._identity()
        try:
            self.call(_clear)
        except kvstore.CorruptError as error:
            if not self._is_damaged_store(error, file):
                raise
            with contextlib.ExitStack() as held:
                try:
                    held.enter_context(file_lock(self.path + _LOCK_SUFFIX, self.busy_timeout))
                except FileLockedError:
                    raise kvstore.BusyError(
                        f"another process is replacing the damaged store: {kvstore.Hint.RETRY.advice}",
                        hint=kvstore.Hint.RETRY,
                    ) from error
                except OSError:
                    raise error from None  # such as in a directory that must not be changed
                self._replace_damaged()

    def _replace_damaged(self) -> None:
        """Clear the family. If the store is still damaged, move it aside and create another.

        Another thread or process may have replaced it before this one got the lock. So it is moved only
        if it has been opened again and is still damaged. Call this with the lock held.
        """
        damaged = None
        for _ in range(_REOPENS):
            file = self._identity()
            try:
                return self.call(_clear)
            except kvstore.CorruptError as error:
                if not self._is_damaged_store(error, file):
                    raise
                with _lock:
                    opened = _stores.get(self._store_key)
                    if opened is not None:
                        _close_quietly(opened.store)
                    if file is not None and file == damaged == self._identity():
                        self._move_aside(error)
                damaged = file
        return self.call(_clear)

    def _is_damaged_store(self, error: kvstore.CorruptError, file: Optional[tuple[int, int]]) -> bool:
        """Return whether the error says that the file is a store and damaged, and not that it is another file.

        Also true if the path no longer leads to ``file``, so that the error may be about a file that was
        replaced. The file must not be opened here: closing it would release the locks of SQLite on it.
        """
        if not self._is_file or error.code != _DAMAGED:
            return False
        try:
            size = os.path.getsize(self.path)
        except OSError:
            size = 0
        return size >= _SMALLEST_PAGE or self._identity() != file  # a shorter file has no header to recognize

    def _move_aside(self, why: kvstore.Error) -> None:
        """Rename the file, and the files of SQLite that belong to it.

        If another process creates a new store at once, the new files next to it stay there.
        """
        side_files = [(suffix, _version_of(self.path + suffix)) for suffix in _SIDE_FILES]
        try:
            aside = _reserve_name(f"{self.path}.damaged-{time.strftime('%Y%m%d-%H%M%S')}")
            try:
                os.replace(self.path, aside)
            except BaseException:
                os.unlink(aside)
                raise
            for suffix, version in side_files:
                if version is not None and version == _version_of(self.path + suffix):
                    with contextlib.suppress(FileNotFoundError):
                        os.replace(self.path + suffix, aside + suffix)
        except FileNotFoundError:
            return  # removed by another process
        except OSError:
            raise why from None  # such as in a directory that must not be changed
        _log.error("%s. The file was renamed to %s", self._with_path(why), aside)

    def ignore(self, error: kvstore.Error) -> None:
        """Count a failure that the caller does not notice, and log the first of each minute."""
        self.ignored_errors += 1
        now = time.monotonic()
        if now >= self._next_message:
            self._next_message = now + _LOG_INTERVAL
            _log.warning("%s (%d failures so far)", self._with_path(error), self.ignored_errors)

    def _set_advice(self, error: kvstore.Error) -> None:
        """Replace the advice in the message of an error by that of the backend."""
        own = None if error.hint is None else self.advice.get(error.hint)
        if own is not None and error.hint is not None:
            text, usual = str(error), f": {error.hint.advice}"
            if text.endswith(usual):
                error.args = (f"{text[: -len(usual)]}: {own}",)

    def _with_path(self, error: kvstore.Error) -> str:
        """Return the message of an error, after the path of the store."""
        self._set_advice(error)
        text = str(error)
        return text if text.startswith(self.path) else f"{self.path}: {text}"

    def _open(self) -> _InUse:
        in_use = self._in_use
        if in_use is not None and in_use.process == os.getpid() and not in_use.family.closed:
            opened, now = in_use.opened, time.monotonic()
            if now < opened.checked_until:
                return in_use
            if self._is_at_path(opened):
                opened.checked_until = now + _CHECK_INTERVAL
                return in_use
            if _in_transaction(opened.store):
                return in_use  # a transaction must not continue in another file
        with _lock:
            opened, family = self._open_family()
            opened.storages.add(self)
            in_use = _InUse(os.getpid(), opened, family)
            self._in_use = in_use
            return in_use

    def _open_family(self) -> tuple[_SharedStore, Family]:
        """Open the store, unless it is open, and the family. Call this with ``_lock`` held."""
        attempts = 0
        while True:
            attempts += 1
            file = self._identity()
            try:
                opened = self._shared_store()
                return opened, opened.store.family(self.name, create=True)
            except kvstore.Error as error:
                if attempts > _REOPENS or not self._is_gone(error, file):
                    raise
                self._forget(_stores.get(self._store_key))

    def _shared_store(self) -> _SharedStore:
        """Return the open store of the path, and open it if it is not open or no longer that file."""
        opened = _stores.get(self._store_key)
        if opened is not None and not self._is_at_path(opened):
            self._forget(opened)
            opened = None
        if opened is None or opened.store.closed:
            store = self._open_store()
            opened = _stores[self._store_key] = _SharedStore(store, self._identity())
        return opened

    def _forget(self, opened: Optional[_SharedStore]) -> None:
        """Close a store whose file was deleted, moved or replaced. The storages that use it open another one.

        It stays open during a transaction, which must fail and not continue in another file.
        """
        if opened is None:
            return
        with _lock:
            if _stores.get(self._store_key) is opened:
                del _stores[self._store_key]
            if not _in_transaction(opened.store):
                _close_quietly(opened.store)

    def _is_at_path(self, opened: _SharedStore) -> bool:
        """Return whether the path still leads to the file of an open store. True if that cannot be determined."""
        if not self._is_file:
            return True
        try:
            found = os.stat(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return opened.identity is None
        except OSError:
            return True
        return opened.identity == (found.st_dev, found.st_ino)

    def _identity(self) -> Optional[tuple[int, int]]:
        """Return the identity of the file that the path names now; None if there is none, or the store is no file."""
        if not self._is_file:
            return None
        try:
            found = os.stat(self.path)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _open_store(self) -> Store:
        options = {"purge_per_write": PURGE_PER_WRITE, **self._options}
        max_bytes, policy = options.pop("max_bytes", None), options.pop("policy", None)
        if self._is_file and not options.get("read_only"):
            _make_private_directories(os.path.dirname(self.path))
            options.setdefault("mode", 0o600)
        try:
            store = kvstore.open(None if self.path == MEMORY else self.path, **options)
        except kvstore.Error as error:
            self._set_advice(error)
            raise
        if max_bytes is not None:
            try:
                _limit(store, max_bytes, policy)
            except BaseException:
                store.close()
                raise
        return store

    def close(self) -> None:
        """Close the file, unless another storage of this process uses it. The next use opens it
        again.
        """
        with _lock:
            in_use, self._in_use = self._in_use, None
            if in_use is None or in_use.process != os.getpid():
                return
            in_use.opened.storages.discard(self)
            if not in_use.opened.storages:
                in_use.opened.store.close()


def _in_transaction(store: Store) -> bool:
    """Return whether this thread has a transaction open in the store."""
    return not store.closed and store._state.in_transaction()


def _close_quietly(store: Store) -> None:
    try:
        store.close()
    except kvstore.Error:
        pass  # the file is gone or damaged, and that was reported


def _clear(family: Family) -> None:
    family.clear()


def _version_of(path: str) -> Optional[tuple[int, ...]]:
    """Return what changes if a file is written to or replaced; None if there is no file."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    if path.endswith("-shm"):  # it is written to by readers, and not replaced while another process has it open
        return found.st_dev, found.st_ino
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns


def _reserve_name(path: str) -> str:
    """Create an empty file and return its path: ``path``, or with a number if such a file exists already."""
    name, number = path, 1
    while True:
        if not any(os.path.lexists(name + suffix) for suffix in _SIDE_FILES):
            try:
                os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
                return name
            except FileExistsError:
                pass
        number += 1
        name = f"{path}-{number}"


def _limit(store: Store, max_bytes: int, policy: Optional[str]) -> None:
    """Set the size limit of a store, unless it is set already."""
    limit = (max_bytes, policy or "oldest")
    if tuple(store.get_limit()) != limit:
        store.limit(*limit)


def _make_private_directories(path: str) -> None:
    """Create a directory and its missing parents, for this user only.

    Raises StoreIOError if one cannot be created.
    """
    missing = []
    while not os.path.isdir(path) and os.path.dirname(path) != path:
        missing.append(path)
        path = os.path.dirname(path)
    for directory in reversed(missing):
        try:
            os.mkdir(directory, 0o700)
            os.chmod(directory, 0o700)  # the umask may have removed more
        except OSError as error:
            if isinstance(error, FileExistsError) and os.path.isdir(directory):
                continue  # another process has just created it
            raise kvstore.StoreIOError(
                f"{directory}: the directory of the store cannot be created ({error.strerror}): create it, or give "
                "another path"
            ) from error
