"""Stores and transactions for asyncio: which thread does what, waiting for it, and its cancellation."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import weakref
from collections.abc import Awaitable, Generator
from concurrent.futures import Future, wait
from dataclasses import fields
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Optional, TypeVar, Union, overload

import kvstore
from kvstore import BusyError, Error, InvalidError, MisuseError
from kvstore._connection import absolute, encoded, is_remote, shown
from kvstore._native import K, V
from kvstore._options import Settings as OpenSettings
from kvstore._time import ClockFunction, Duration, duration_ms
from kvstore.aio._family import A, Families, T
from kvstore.aio._pool import Job, Pool, Session, Settings, Worker

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from kvstore._codec import Codec

R = TypeVar("R")
Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]

#: Numbers of the file, not of a handle: not added up.
_OF_THE_FILE = {"db_pages", "wal_frames", "size_bytes"}


async def _whole(future: Future[R], cancelled_first: Callable[[], None]) -> R:
    """Waits for what cannot be stopped any more. A cancellation of the task counts when it has ended."""
    waiting = asyncio.wrap_future(future)
    cancelled = None
    while not waiting.done():
        try:
            await asyncio.wait([waiting])
        except asyncio.CancelledError as error:
            cancelled_first()
            cancelled = error
    if cancelled is not None:
        if not waiting.cancelled():
            waiting.exception()  # it was looked at
        raise cancelled
    return waiting.result()


class Store(Families[K, V]):
    """A store for asyncio: see :func:`open`. It is also its own default family: see :class:`Family`.

    Used by ``async with``, or ``await``, which open the file; otherwise it is opened by the first call. Not bound
    to a loop: several may use it, one after the other or at the same time, each in its thread. After a fork the
    child opens it anew (a store in memory is a MisuseError there); a transaction is that of the process which
    began it.

    One that is forgotten is closed when it is collected.
    """

    __slots__ = ("_closed", "_closing", "_converting", "_path", "_pool", "_readers", "_settings")

    def __init__(self, path: Optional[Path], readers: int, options: dict[str, Any]) -> None:
        """See :func:`open`."""
        if isinstance(readers, bool) or not isinstance(readers, int):
            raise TypeError(f"readers must be an int, not {type(readers).__name__}")
        if readers < 1:
            raise ValueError(f"readers must be positive, not {readers}")
        self._coded = options.get("codec") is not None
        super().__init__(self, "default")
        self._path = None if path is None else os.fsdecode(path)
        self._settings = Settings(encoded(path) or b":memory:", options)
        self._readers = 0 if self._settings.in_memory or options.get("exclusive") else readers
        self._pool: Optional[Pool] = Pool(self._settings, self._readers)
        self._closing: list[Future[None]] = []
        self._closed = False
        #: Done when the file is as it should be; None: nobody converts it.
        self._converting: Optional[Future[None]] = None

    def __repr__(self) -> str:
        path = None if self._path is None else shown(self._path)
        return f"<kvstore.aio.Store {path!r}{', closed' if self._closed else ''}>"

    @property
    def path(self) -> Optional[str]:
        """The path as it was given to open."""
        return self._path

    @property
    def closed(self) -> bool:
        """Whether it is closed, or being closed."""
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
        """Closes the store: takes no more calls (MisuseError from now on), and returns when all that were called
        before are done, transactions included, and the file is closed. To close it again is allowed.

        If it is cancelled the store is closed in the background. Error, and it stays open, in a task that has a
        transaction of it open: it would wait for itself.
        """
        pool = self._pool
        if not self._closed and pool is not None and pool.pid == os.getpid():
            task = asyncio.current_task()
            if any(lane.sessions_of(task) for lane in pool.lanes()):
                raise Error("this task has a transaction of the store open, and would wait for itself: end it first")
        self._begin_to_close()
        for closed in self._closing:
            await asyncio.shield(asyncio.wrap_future(closed))

    def _begin_to_close(self) -> None:
        pool, self._pool = self._pool, None
        self._closed = True
        if pool is not None and pool.pid == os.getpid():
            self._closing = pool.close()
            if self._converting is not None:
                self._closing.append(self._converting)

    def __del__(self) -> None:
        pool = getattr(self, "_pool", None)
        if pool is not None and pool.pid == os.getpid():
            pool.forget()

    # Doing the work

    def _here(self) -> Pool:
        """The pool of this process."""
        pool = self._pool
        if pool is None:
            raise MisuseError("the store is closed: open it again")
        if pool.pid != os.getpid():
            if self._settings.in_memory:
                raise MisuseError("a store in memory is its process's alone: this is a child of a fork")
            _inherited.append(pool)
            self._converting = None  # the parent does
            pool = self._pool = Pool(self._settings, self._readers)
        return pool

    def _submit(self, write: bool, call: Callable[[Worker], object]) -> Job:
        lane = self._here().lane(write)
        if lane.sessions_of(asyncio.current_task()) >= lane.most:
            raise Error("this task has a transaction open, and would wait for itself: use the transaction's methods")
        job = Job(call)
        lane.submit(job)
        return job

    async def _work(self, write: bool, call: Callable[[Worker], R]) -> R:
        result: R = await asyncio.wrap_future(self._submit(write, call).future)
        return result

    def _begin(self, write: bool) -> Session:
        lane = self._here().lane(write)
        task = asyncio.current_task()
        if lane.sessions_of(task) >= lane.most_sessions:
            raise Error("a transaction is open in this task already; transactions do not nest")
        session = Session(write, None if task is None else weakref.ref(task))
        lane.submit(session)
        return session

    # Families

    async def families(self) -> list[str]:
        """The names of all families but the default one, in byte order."""
        return await self._work(False, lambda worker: worker.store.families())

    async def drop_family(self, name: str) -> None:
        """Drops a family with everything in it. NotFoundError if there is none."""

        def drop(worker: Worker) -> None:
            worker.forget_families()
            worker.store.drop_family(name)
            self._settings.drops += 1

        await self._work(True, drop)

    # Transactions

    def transaction(self, write: bool = True) -> Transaction[K, V]:
        """A transaction over all families, for an ``async with`` block: see :class:`Transaction`. Without ``write``
        it is a stable snapshot that only reads."""
        return Transaction(self, bool(write))

    def snapshot(self) -> Transaction[K, V]:
        """A transaction that only reads, and sees the state of one moment."""
        return Transaction(self, False)

    # Time

    async def set_clock(self, clock: Optional[ClockFunction]) -> None:
        """Uses a function that returns seconds since the Unix epoch as the clock, for tests; None goes back to the
        system's. It is called from the threads, and must not use the store."""
        settings = self._settings
        before = settings.clock

        def set_it(worker: Worker) -> None:
            settings.clock, settings.clocks = clock, settings.clocks + 1
            try:
                worker.store  # noqa: B018 # sets it
            except BaseException:
                settings.clock, settings.clocks = before, settings.clocks + 1
                raise

        await self._work(True, set_it)

    async def next_expiry(self, *, all_families: bool = False) -> Optional[float]:
        """As :meth:`Family.next_expiry`, of the default family; with ``all_families``, of all of them."""
        return await self._work(False, lambda worker: worker.store.next_expiry(all_families=all_families))

    async def purge_step(self, max_keys: int = 0, max_time: Duration = 0) -> kvstore.PurgeStep:
        """Removes expired keys of all families: as :meth:`kvstore.Store.purge_step`."""
        return await self._work(True, lambda worker: worker.store.purge_step(max_keys, max_time))

    async def start_cleaner(self, interval: Duration = 1.0, max_keys: int = 0) -> None:
        """Starts a thread of the library's that removes expired keys: as :meth:`kvstore.Store.start_cleaner`."""
        await self._work(True, lambda worker: worker.store.start_cleaner(interval, max_keys))

    async def stop_cleaner(self) -> None:
        """Stops the cleaner."""
        await self._work(True, lambda worker: worker.store.stop_cleaner())

    # Encryption

    async def is_encrypted(self) -> bool:
        """Whether the file is encrypted."""
        return await self._work(False, lambda worker: worker.store.is_encrypted)

    async def encrypt(self, *, password: Union[str, bytes, None] = None, raw_key: Optional[bytes] = None) -> None:
        """Encrypts the store where it is: as :meth:`kvstore.Store.encrypt`. It waits for what other tasks have begun, for
        ``busy_timeout``; their calls meanwhile wait, and go on then. One that is cancelled goes on."""
        await self._convert(lambda store: store.encrypt(password=password, raw_key=raw_key), password, raw_key)

    async def rekey(self, *, password: Union[str, bytes, None] = None, raw_key: Optional[bytes] = None) -> None:
        """Gives an encrypted store another password or key, where it is: as :meth:`kvstore.Store.rekey`, and
        :meth:`encrypt`."""
        await self._convert(lambda store: store.rekey(password=password, raw_key=raw_key), password, raw_key)

    async def decrypt(self) -> None:
        """Takes the encryption off the store, where it is: as :meth:`kvstore.Store.decrypt`, and :meth:`encrypt`."""
        await self._convert(lambda store: store.decrypt(), None, None)

    async def _convert(
        self, convert: Callable[[Any], None], password: Union[str, bytes, None], raw_key: Optional[bytes]
    ) -> None:
        """The workers of all threads close their stores, one store converts, and the workers of another pool, which
        takes the calls from now on, open theirs."""
        settings = self._settings
        if settings.in_memory:
            raise InvalidError("a store in memory has no file that could be encrypted")
        if is_remote(settings.path):
            raise InvalidError("only a store in a file can be encrypted, and this one is on a server")
        task = asyncio.current_task()
        if any(lane.sessions_of(task) for lane in self._here().lanes()):
            raise BusyError("this task has a transaction of the store open: end it first")
        if any([await asyncio.wrap_future(found) for found in self._here().writing.control(Worker.runs_a_cleaner)]):
            raise BusyError("a cleaner runs: stop_cleaner() first")
        pool = self._here()
        if self._converting is not None:
            raise BusyError("another task is encrypting or decrypting the store")
        gate = threading.Event()
        done: Future[None] = Future()
        done.set_running_or_notify_cancel()  # who is cancelled does not stop it
        self._converting, self._pool = done, Pool(settings, self._readers, gate)
        patience = duration_ms(settings.options.get("busy_timeout", 5.0), "a busy_timeout") / 1000

        def work() -> None:
            error: Optional[BaseException] = None
            try:
                _, open_still = wait(pool.close(), timeout=patience)
                if open_still:
                    raise BusyError("another task has a transaction or a call open on this store: end it first")
                with kvstore.open(settings.path, **settings.options) as store:
                    convert(store)
                rest = {name: value for name, value in settings.options.items() if name not in ("password", "raw_key")}
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
        """Copies everything that is committed to a new file: as :meth:`kvstore.Store.backup`. ``progress`` is called
        in a thread. A backup that is cancelled stops at its next step; the task is cancelled then, and there is no
        file, also if it was whole already."""
        name = absolute(os.fsencode(path))
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
            await _whole(job.future, stop)
        except asyncio.CancelledError:
            if not job.future.cancelled() and job.future.exception() is None:
                with contextlib.suppress(OSError):
                    os.unlink(name)
            raise

    async def copy_to(self, other: Store[Any, Any], progress: Optional[Callable[[int, int], Any]] = None) -> None:
        """Copies everything into another store: as :meth:`kvstore.Store.copy_to`. ``progress`` is called in a thread.
        A copy that is cancelled stops, and nothing was copied."""
        if not isinstance(other, Store):
            raise TypeError(f"a store is copied to a kvstore.aio.Store, not to {type(other).__name__}")
        task = asyncio.current_task()
        lanes = [self._here().lane(False), other._here().lane(True)]
        if any(lane.sessions_of(task) >= lane.most for lane in lanes):
            raise Error("this task has a transaction open, and would wait for itself: end it, then copy")
        stopped: list[bool] = []

        def step(done: int, total: int) -> None:
            if stopped:
                raise Error("the copy was cancelled")
            if progress is not None:
                progress(done, total)

        # A worker of each store, always in the same order, so that two copies do not wait for each other.
        first, second = sorted(lanes, key=id)

        def outer(worker: Worker) -> None:
            def inner(another: Worker) -> None:
                here, there = (worker, another) if first is lanes[0] else (another, worker)
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

    async def checkpoint(self, mode: str = "passive") -> kvstore.Checkpoint:
        """Writes the write-ahead log into the file: as :meth:`kvstore.Store.checkpoint`."""
        return await self._work(True, lambda worker: worker.store.checkpoint(mode))

    async def vacuum(self, pages: int = 0) -> None:
        """Gives free pages back to the file system."""
        await self._work(True, lambda worker: worker.store.vacuum(pages))

    async def integrity_check(self) -> None:
        """Checks the whole file, on one snapshot. CorruptError names the first disagreement."""
        await self._work(False, lambda worker: worker.store.integrity_check())

    async def repair(self) -> int:
        """Makes indexes agree with the data again: as :meth:`kvstore.Store.repair`."""
        return await self._work(True, lambda worker: worker.store.repair())

    async def limit(self, max_bytes: Optional[int], policy: Optional[str] = None) -> None:
        """Sets how much the data may take in the file, and which keys make room: as :meth:`kvstore.Store.limit`."""
        await self._work(True, lambda worker: worker.store.limit(max_bytes, policy))

    async def get_limit(self) -> kvstore.Limit:
        """What the data may take in the file, and what makes room."""
        return await self._work(False, lambda worker: worker.store.get_limit())

    async def sync(self) -> None:
        """Makes every commit so far survive a power cut."""
        await self._work(True, lambda worker: worker.store.sync())

    async def stats(self) -> kvstore.Stats:
        """What all handles of this store have done since they were opened, or since stats_reset."""
        found = await self._by_all(lambda worker: worker.store.stats())
        sums = {}
        for field in fields(found[0]):
            numbers = [getattr(stats, field.name) for stats in found]
            sums[field.name] = max(numbers) if field.name in _OF_THE_FILE else sum(numbers)
        return kvstore.Stats(**sums)

    async def stats_reset(self) -> None:
        """Sets the counters to zero."""
        await self._by_all(lambda worker: worker.store.stats_reset())

    async def _by_all(self, call: Callable[[Worker], R]) -> list[R]:
        """What each worker answers that there is; of none, what a first one does."""
        pool = self._here()
        futures = [future for lane in pool.lanes() for future in lane.control(call)]
        if not futures:
            return [await self._work(True, call)]
        return list(await asyncio.gather(*map(asyncio.wrap_future, futures)))


class Transaction(Families[K, V]):
    """An ``async with`` block whose reads and writes, made through it, are committed together at the end, or rolled
    back on an exception, or when the task is cancelled. Made by :meth:`Store.transaction`.

    It has a handle to itself: the calls of other tasks on the store never land in it, and do not see it before its
    commit. It has the methods of the default family; ``family`` gives the others. Tasks may share it; their
    calls are done one after the other.

    Transactions that write take turns, in the order in which they were begun, and so do they with writes outside
    of any; those wait however long the transaction takes. A task that writes to the *store* inside its own
    transaction would wait for itself, and gets an Error; one that waits for another task which does so waits for
    ever.
    """

    __slots__ = ("_session", "_store", "_write")

    def __init__(self, store: Store[K, V], write: bool) -> None:
        self._coded = store._coded
        super().__init__(self, "default")
        self._store = store
        self._write = write
        self._session: Optional[Session] = None

    def __repr__(self) -> str:
        path = None if self._store._path is None else shown(self._store._path)
        return f"<kvstore.aio.Transaction of {path!r}{'' if self.active else ', not open'}>"

    @property
    def active(self) -> bool:
        """Whether it has begun, and not ended."""
        return self._session is not None and not self._session.ended and self._session.future.done()

    async def __aenter__(self) -> Transaction[K, V]:
        if self._session is not None and not self._session.ended:
            raise Error("the transaction is open already: each block needs one of its own")
        session = self._session = self._store._begin(self._write)
        try:
            await asyncio.wrap_future(session.future)
        except BaseException:
            self._session = None
            session.abandon()
            raise
        return self

    async def __aexit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        session = self._session
        if session is None or session.ended or session.pid != os.getpid():
            return
        try:
            await self._end(session, kind is None)
        except Error:
            if kind is None:
                raise
            # The caller must see what went wrong in the block.

    async def commit(self) -> None:
        """Commits now; the transaction has ended then. If it fails, all is rolled back. One that is cancelled
        before it has begun is a rollback."""
        await self._end(self._open(), True)

    async def rollback(self) -> None:
        """Undoes everything now; the transaction has ended then."""
        await self._end(self._open(), False)

    async def _end(self, session: Session, commit: bool) -> None:
        job = session.end(commit)
        if job is not None:
            await _whole(job.future, session.turn_back)

    def _open(self) -> Session:
        session = self._session
        if session is None or session.ended:
            raise Error("the transaction is not open: it has ended, or is used outside its block")
        if session.pid != os.getpid():
            raise MisuseError("the transaction is that of the parent of this process")
        return session

    async def _work(self, write: bool, call: Callable[[Worker], R]) -> R:
        session = self._open()
        job = Job(call)
        session.submit(job)
        result: R = await asyncio.wrap_future(job.future)
        return result

    def __del__(self) -> None:
        session = getattr(self, "_session", None)
        if session is not None and not session.ended and session.pid == os.getpid():
            session.abandon()  # its task was destroyed


#: Pools of parents of this process. Their stores are theirs: they are not closed here, nor collected.
_inherited: list[Pool] = []


@overload
def open(path: Optional[Path], *, readers: int = 4, **settings: Unpack[OpenSettings]) -> Store: ...
@overload
def open(path: Optional[Path], *, codec: None, readers: int = 4, **settings: Unpack[OpenSettings]) -> Store: ...
@overload
def open(
    path: Optional[Path], *, codec: Codec[T], readers: int = 4, **settings: Unpack[OpenSettings]
) -> Store[bytes, T]: ...
@overload
def open(
    path: Optional[Path], *, keys: type[A], codec: None = None, readers: int = 4, **settings: Unpack[OpenSettings]
) -> Store[A, bytes]: ...
@overload
def open(
    path: Optional[Path], *, codec: Codec[T], keys: type[A], readers: int = 4, **settings: Unpack[OpenSettings]
) -> Store[A, T]: ...
def open(path: Optional[Path], *, readers: int = 4, **options: Any) -> Any:
    """Opens the store at ``path``, for use by ``async with`` or ``await``; makes it if it is not there. None or
    ":memory:" is a new one in memory.

    ``readers``: how many handles, each with a thread, are opened at most for reading, as they are needed. One more
    writes. A store in memory, or one that is ``exclusive``, has one handle for both. Each snapshot that is open has
    one for itself; but the last, so of four readers three can be in snapshots.

    All other arguments are those of :func:`kvstore.open`. ``busy_timeout`` is about other processes: inside this
    one, writes take turns and wait without end (``asyncio.wait_for`` ends it earlier).

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
