"""Class Store for asyncio, and its open(): it chooses a worker thread, waits for it, and handles
cancellation.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import weakref
from collections.abc import Generator
from concurrent.futures import Future, wait
from dataclasses import fields
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Optional, TypeVar, Union, overload

import kvstore
from kvstore import BusyError, Error, InvalidError, MisuseError
from kvstore._native import K, V
from kvstore._options import Settings
from kvstore._path import Path, absolute, encoded_path, is_remote, path_bytes, redacted
from kvstore._store_maintenance import check_progress
from kvstore._time import ClockFunction, duration_ms
from kvstore.aio._family import A, Families, T, reads, writes
from kvstore.aio._transaction import Transaction, wait_to_end
from kvstore.aio._workers import Job, TransactionJob, Worker, WorkerSettings, Workers

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from kvstore._codec import Codec

R = TypeVar("R")

#: Values of the file and not of a handle: not summed.
_OF_THE_FILE = {"db_pages", "wal_frames", "size_bytes"}


class Store(Families[K, V]):
    """An open store for asyncio. Its methods on keys work on the default family; :class:`Family`
    describes them.

    Created by :func:`open`.

    ``async with`` or ``await`` opens the file; otherwise the first call does. A store is not bound
    to an event loop: several loops may use it, one after the other or at the same time in different
    threads. After a fork the child opens the file again; a store in memory raises MisuseError
    there. A transaction belongs to the process that began it.

    A forgotten store is closed when it is collected.
    """

    __slots__ = ("_closed", "_closing", "_converting", "_path", "_readers", "_settings", "_workers")

    def __init__(self, path: Optional[Path], readers: int, options: dict[str, Any]) -> None:
        """Create a store object whose file is not open yet. Use :func:`open`."""
        if isinstance(readers, bool) or not isinstance(readers, int):
            raise TypeError(f"readers must be an int, not {type(readers).__name__}")
        if readers < 1:
            raise ValueError(f"readers must be 1 or more, not {readers}")
        self._has_codec = options.get("codec") is not None
        super().__init__(self, "default")
        self._path = None if path is None else os.fsdecode(path)
        self._settings = WorkerSettings(path_bytes(path) or b":memory:", options)
        self._readers = 0 if self._settings.in_memory or options.get("exclusive") else readers
        self._workers: Optional[Workers] = Workers(self._settings, self._readers)
        self._closing: list[Future[None]] = []
        self._closed = False
        #: Done when the running encryption or decryption has ended; None: none is running.
        self._converting: Optional[Future[None]] = None

    def __repr__(self) -> str:
        path = None if self._path is None else redacted(self._path)
        return f"<kvstore.aio.Store {path!r}{', closed' if self._closed else ''}>"

    @property
    def path(self) -> Optional[str]:
        """The path that was given to :func:`open`."""
        return self._path

    @property
    def closed(self) -> bool:
        """Whether the store is closed or is being closed."""
        return self._closed

    # Opening and closing

    async def _open(self) -> Store[K, V]:
        try:
            await self._work(True, lambda worker: worker.store)
        except BaseException:
            self._begin_to_close()
            raise
        return self

    def __await__(self) -> Generator[Any, None, Store[K, V]]:
        return self._open().__await__()

    async def __aenter__(self) -> Store[K, V]:
        return await self._open()

    async def __aexit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the store, after all calls and transactions that began before have ended.

        Later calls raise MisuseError. A store may be closed twice. If this coroutine is cancelled,
        the store is closed in the background.

        Raises:
            Error: If this task has a transaction of the store open. The store stays open.
        """
        workers = self._workers
        if not self._closed and workers is not None and workers.pid == os.getpid():
            task = asyncio.current_task()
            if any(pool.transactions_of(task) for pool in workers.pools()):
                raise Error("close() would wait for a transaction of this task: end the transaction first")
        self._begin_to_close()
        for closed in self._closing:
            await asyncio.shield(asyncio.wrap_future(closed))

    def _begin_to_close(self) -> None:
        workers, self._workers = self._workers, None
        self._closed = True
        if workers is not None and workers.pid == os.getpid():
            self._closing = workers.close()
            if self._converting is not None:
                self._closing.append(self._converting)

    def __del__(self) -> None:
        workers = getattr(self, "_workers", None)
        if workers is not None and workers.pid == os.getpid():
            workers.close_without_lock()

    # Doing the work

    def _current_workers(self) -> Workers:
        """Return the worker threads of this process."""
        workers = self._workers
        if workers is None:
            raise MisuseError("the store is closed: open it again")
        if workers.pid != os.getpid():
            if self._settings.in_memory:
                raise MisuseError(
                    "a store in memory belongs to the process that opened it: open a new one in the child of "
                    "a fork"
                )
            _inherited.append(workers)
            self._converting = None  # the parent process converts it
            workers = self._workers = Workers(self._settings, self._readers)
        return workers

    def _submit(self, write: bool, call: Callable[[Worker], object]) -> Job:
        pool = self._current_workers().pool(write)
        if pool.transactions_of(asyncio.current_task()) >= pool.max_workers:
            raise Error(
                "the call would wait for a transaction of this task: call the method of the transaction "
                "instead of the store"
            )
        job = Job(call)
        pool.submit(job)
        return job

    async def _work(self, write: bool, call: Callable[[Worker], R]) -> R:
        result: R = await asyncio.wrap_future(self._submit(write, call).future)
        return result

    def _begin(self, write: bool) -> TransactionJob:
        pool = self._current_workers().pool(write)
        task = asyncio.current_task()
        if pool.transactions_of(task) >= pool.max_transactions:
            raise Error("a transaction is already open in this task, and transactions do not nest: end it first")
        tx_job = TransactionJob(write, None if task is None else weakref.ref(task))
        pool.submit(tx_job)
        return tx_job

    # Families

    families = reads(kvstore.Store.families)

    async def drop_family(self, name: str) -> None:
        """Delete a family with all its keys. Raises NotFoundError if it does not exist."""

        def drop(worker: Worker) -> None:
            worker.forget_families()
            worker.store.drop_family(name)
            self._settings.drop_count += 1

        await self._work(True, drop)

    # Transactions

    def transaction(self, write: bool = True) -> Transaction[K, V]:
        """Return a transaction for an ``async with`` block. It covers all families of the store.

        See :class:`Transaction`.

        ``write=False`` makes it read-only, as :meth:`snapshot` does.
        """
        return Transaction(self, bool(write))

    def snapshot(self) -> Transaction[K, V]:
        """Return a read-only transaction, in which all reads see the state of one moment."""
        return Transaction(self, False)

    # Time

    async def set_clock(self, clock: Optional[ClockFunction]) -> None:
        """Replace the clock of this store, for tests. See :meth:`kvstore.Store.set_clock`.

        The function is called in worker threads, and must not use the store.
        """
        settings = self._settings
        before = settings.clock

        def set_it(worker: Worker) -> None:
            settings.clock, settings.clock_version = clock, settings.clock_version + 1
            try:
                worker.store  # noqa: B018 # sets the clock
            except BaseException:
                settings.clock, settings.clock_version = before, settings.clock_version + 1
                raise

        await self._work(True, set_it)

    async def next_expiry(self, *, all_families: bool = False) -> Optional[float]:
        """Return the earliest expiry time in the default family, in seconds since the Unix epoch.

        With ``all_families``, the earliest of all families. None if no key has a TTL.
        """
        return await self._work(False, lambda worker: worker.store.next_expiry(all_families=all_families))

    purge_step = writes(kvstore.Store.purge_step)
    start_cleaner = writes(kvstore.Store.start_cleaner)
    stop_cleaner = writes(kvstore.Store.stop_cleaner)

    # Encryption

    async def is_encrypted(self) -> bool:
        """Return whether the file is encrypted."""
        return await self._work(False, lambda worker: worker.store.is_encrypted)

    async def encrypt(self, *, password: Union[str, bytes, None] = None, raw_key: Optional[bytes] = None) -> None:
        """Encrypt an unencrypted store in place, with a password or a raw key.

        See :meth:`kvstore.Store.encrypt`.

        Calls and transactions of other tasks are waited for, up to ``busy_timeout``. Later calls
        wait, and then continue. Cancelling this coroutine does not stop the encryption.
        """
        await self._convert(lambda store: store.encrypt(password=password, raw_key=raw_key), password, raw_key)

    async def rekey(self, *, password: Union[str, bytes, None] = None, raw_key: Optional[bytes] = None) -> None:
        """Replace the password or key of an encrypted store, in place.

        See :meth:`kvstore.Store.rekey` and :meth:`encrypt`.
        """
        await self._convert(lambda store: store.rekey(password=password, raw_key=raw_key), password, raw_key)

    async def decrypt(self) -> None:
        """Remove the encryption of the store, in place.

        See :meth:`kvstore.Store.decrypt` and :meth:`encrypt`.
        """
        await self._convert(lambda store: store.decrypt(), None, None)

    async def _convert(
        self, convert: Callable[[Any], None], password: Union[str, bytes, None], raw_key: Optional[bytes]
    ) -> None:
        """Encrypt, rekey or decrypt the file, while all workers have their stores closed.

        New workers open the file again. They take the calls from now on.
        """
        settings = self._settings
        if settings.in_memory:
            raise InvalidError("a store in memory cannot be encrypted: open one with a path")
        if is_remote(settings.path):
            raise InvalidError("a store on a server cannot be encrypted: only a store in a file can")
        task = asyncio.current_task()
        if any(pool.transactions_of(task) for pool in self._current_workers().pools()):
            raise BusyError("a transaction is open in this task: end it before this call")
        if any([await asyncio.wrap_future(found) for found in self._current_workers().writing.call_all(Worker.runs_cleaner)]):
            raise BusyError("the cleaner is running: call stop_cleaner() first")
        workers = self._current_workers()
        if self._converting is not None:
            raise BusyError("another task is encrypting or decrypting the store: call again when it is done")
        gate = threading.Event()
        done: Future[None] = Future()
        done.set_running_or_notify_cancel()  # a cancelled caller does not stop it
        self._converting, self._workers = done, Workers(settings, self._readers, gate)
        patience = duration_ms(settings.options.get("busy_timeout", 5.0), "busy_timeout") / 1000

        def work() -> None:
            error: Optional[BaseException] = None
            try:
                _, open_still = wait(workers.close(), timeout=patience)
                if open_still:
                    raise BusyError(
                        "another task is still using the store, in a transaction or a call: end it, then call "
                        "again"
                    )
                with kvstore.open(settings.path, **settings.options) as store:
                    convert(store)
                rest = {name: value for name, value in settings.options.items() if name not in ("password", "raw_key", "encrypt")}
                settings.options = {**rest, "password": password, "raw_key": raw_key}
            except BaseException as e:
                error = e
            self._converting = None
            gate.set()
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        threading.Thread(target=work, name="kvstore-aio-converter", daemon=True).start()
        await asyncio.shield(asyncio.wrap_future(done))

    # Maintenance

    async def backup(self, path: Path, progress: Optional[Callable[[int, int], Any]] = None) -> None:
        """Copy all committed data to a new file, as a consistent snapshot.

        See :meth:`kvstore.Store.backup`.

        ``progress`` is called in a worker thread. A cancelled backup stops at its next step and
        leaves no file, even if the file was complete already.
        """
        name = absolute(encoded_path(path))
        check_progress(progress)
        stopped: list[bool] = []

        def step(remaining: int, total: int) -> None:
            if stopped:
                raise Error("the backup was cancelled")
            if progress is not None:
                progress(remaining, total)

        def stop() -> None:
            stopped.append(True)
            job.future.cancel()

        job = self._submit(False, lambda worker: worker.store.backup(name, step))
        try:
            await wait_to_end(job.future, stop)
        except asyncio.CancelledError:
            if not job.future.cancelled() and job.future.exception() is None:
                with contextlib.suppress(OSError):
                    os.unlink(name)
            raise

    async def copy_to(self, other: Store[Any, Any], progress: Optional[Callable[[int, int], Any]] = None) -> None:
        """Copy all live keys of all families to another store. See :meth:`kvstore.Store.copy_to`.

        ``progress`` is called in a worker thread. A cancelled copy stops, and nothing was copied.
        """
        if not isinstance(other, Store):
            raise TypeError(f"other must be a kvstore.aio.Store, not {type(other).__name__}")
        check_progress(progress)
        task = asyncio.current_task()
        pools = [self._current_workers().pool(False), other._current_workers().pool(True)]
        if any(pool.transactions_of(task) >= pool.max_workers for pool in pools):
            raise Error("copy_to() would wait for a transaction of this task: end the transaction first")
        stopped: list[bool] = []

        def step(done: int, total: int) -> None:
            if stopped:
                raise Error("the copy was cancelled")
            if progress is not None:
                progress(done, total)

        # One worker of each store, always in the same order, so that two copies cannot deadlock.
        first, second = sorted(pools, key=id)

        def outer(worker: Worker) -> None:
            def inner(another: Worker) -> None:
                here, there = (worker, another) if first is pools[0] else (another, worker)
                here.store.copy_to(there.store, step)

            if first is second:
                inner(worker)
                return
            job = Job(inner)
            second.submit(job)
            job.future.result()

        job = Job(outer)
        first.submit(job)
        try:
            await asyncio.wrap_future(job.future)
        except asyncio.CancelledError:
            stopped.append(True)
            raise

    checkpoint = writes(kvstore.Store.checkpoint)
    vacuum = writes(kvstore.Store.vacuum)
    integrity_check = reads(kvstore.Store.integrity_check)
    repair = writes(kvstore.Store.repair)
    limit = writes(kvstore.Store.limit)
    get_limit = reads(kvstore.Store.get_limit)
    sync = writes(kvstore.Store.sync)

    async def stats(self) -> kvstore.Stats:
        """Return the counters of this store, summed over its handles, since it was opened or
        :meth:`stats_reset` was called.
        """
        found = await self._on_all_workers(lambda worker: worker.store.stats())
        sums = {}
        for field in fields(found[0]):
            numbers = [getattr(stats, field.name) for stats in found]
            sums[field.name] = max(numbers) if field.name in _OF_THE_FILE else sum(numbers)
        return kvstore.Stats(**sums)

    async def stats_reset(self) -> None:
        """Set the counters of this store to zero."""
        await self._on_all_workers(lambda worker: worker.store.stats_reset())

    async def _on_all_workers(self, call: Callable[[Worker], R]) -> list[R]:
        """Run a call in each existing worker, and return the results. If there is no worker, start
        one.
        """
        workers = self._current_workers()
        futures = [future for pool in workers.pools() for future in pool.call_all(call)]
        if not futures:
            return [await self._work(True, call)]
        return list(await asyncio.gather(*map(asyncio.wrap_future, futures)))


#: Workers inherited from parent processes. They belong to the parents: neither closed nor collected
#: here.
_inherited: list[Workers] = []


@overload
def open(path: Optional[Path], *, readers: int = 4, **settings: Unpack[Settings]) -> Store: ...
@overload
def open(path: Optional[Path], *, codec: None, readers: int = 4, **settings: Unpack[Settings]) -> Store: ...
@overload
def open(
    path: Optional[Path], *, codec: Codec[T], readers: int = 4, **settings: Unpack[Settings]
) -> Store[bytes, T]: ...
@overload
def open(
    path: Optional[Path], *, keys: type[A], codec: None = None, readers: int = 4, **settings: Unpack[Settings]
) -> Store[A, bytes]: ...
@overload
def open(
    path: Optional[Path], *, codec: Codec[T], keys: type[A], readers: int = 4, **settings: Unpack[Settings]
) -> Store[A, T]: ...
def open(path: Optional[Path], *, readers: int = 4, **options: Any) -> Any:
    """Open the store at ``path`` for asyncio. The file is created if it does not exist.

    Use the result with ``async with`` or ``await``.

    Args:
        path: As for :func:`kvstore.open`.
        readers: The maximum number of reading handles, each with a thread, opened on demand. One
            more handle writes. A store in memory, or opened with ``exclusive=True``, has a single
            handle. Each open snapshot occupies a reader, except the last one: with four readers,
            three snapshots can be open.
        **options: The settings of :func:`kvstore.open`. ``busy_timeout`` concerns other processes:
            inside this process writes take turns and wait without limit (``asyncio.wait_for``
            limits it).

    >>> import asyncio, kvstore.aio
    >>> async def main():
    ...     db = await kvstore.aio.open(":memory:")
    ...     await db.put("session", b"token", ttl=60)
    ...     print(await db.get("session"))
    ...     await db.close()
    >>> asyncio.run(main())
    b'token'
    """
    made: Store[Any, Any] = Store(path, readers, options)
    return made
