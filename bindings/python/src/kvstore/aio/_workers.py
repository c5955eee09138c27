"""Worker threads for asyncio stores, each with its own store object, and the jobs that they run.

Must not depend on event loops, nor on the public modules ``kvstore`` and ``kvstore.aio``.

There are two pools of workers: one writes, with a single worker, because only one writer can run at
a time anyway; the other reads. A transaction has a worker, and so a handle, to itself from
beginning to end: it is a job that runs further jobs. Workers refer to their pool, but pools do not
refer to the store that uses them, so that an abandoned store can be closed.
"""

from __future__ import annotations

import math
import os
import queue
import threading
import time
from collections import deque
from concurrent.futures import Future
from typing import Any, Callable, Optional, TypeVar

from kvstore._errors import BusyError, Error, MisuseError, StoreIOError
from kvstore._family import Family
from kvstore._hints import Hint
from kvstore._native import WaitFlag
from kvstore._path import absolute, file_id, is_in_memory
from kvstore._store import Store
from kvstore._store import open as open_store
from kvstore._time import duration_ms
from kvstore._transaction import Transaction

R = TypeVar("R")
#: The function of a job, called in the worker thread.
Call = Callable[["Worker"], Any]


class WorkerSettings:
    """The arguments with which all workers of a store open their store objects."""

    def __init__(self, path: bytes, options: dict[str, Any]) -> None:
        self.path = absolute(path)
        self.options = options
        self.in_memory = is_in_memory(path)
        #: How many seconds a call waits for a lock.
        self.busy_timeout = duration_ms(options.get("busy_timeout", 5.0), "busy_timeout") / 1000
        #: The identity of the file.
        self.file_id: Optional[tuple[int, int]] = None
        #: The clock given to set_clock, and how often set_clock was called.
        self.clock: Optional[Callable[[], float]] = None
        self.clock_version = 0
        #: How often families were dropped: workers then reopen their family handles.
        self.drop_count = 0
        #: When the last failed open gave up on a locked file, and its message.
        self._last_busy: tuple[float, str, Optional[Hint]] = (0.0, "", None)

    def open_store(self, submitted: float, cancelled: WaitFlag) -> Store[Any, Any]:
        """Open a store in the calling thread. All calls open the same file.

        ``submitted`` is the monotonic time since which the caller waits. A call that waited through
        another open that found the file locked does not wait again, unless that wait was
        ``cancelled``.
        """
        if self.file_id is not None and self.file_id != file_id(self.path):
            raise StoreIOError(
                "the store file was deleted, moved or replaced while the store was open: close this store and "
                "open it at its new path",
                hint=Hint.OPEN_AGAIN,
            )
        gave_up, text, hint = self._last_busy
        if submitted < gave_up:
            raise BusyError(text, hint=hint)
        try:
            store: Store[Any, Any] = open_store(self.path, **self.options)
        except BusyError as error:
            if not cancelled.is_set():
                self._last_busy = time.monotonic(), str(error), error.hint
            raise
        if self.file_id is None and not self.in_memory:
            self.file_id = file_id(self.path)
        return store


class Job:
    """A call for a worker thread, with a future for its result.

    A job that is cancelled before it starts never runs; a job that has started runs to its end.
    """

    __slots__ = ("call", "future", "submitted")

    def __init__(self, call: Call) -> None:
        self.call = call
        self.submitted = time.monotonic()
        self.future = JobFuture()

    def run(self, worker: Worker) -> None:
        if not self.future.set_running_or_notify_cancel():
            return
        worker.submitted = self.submitted
        worker.begins(self.future)
        try:
            result = self.call(worker)
        except BaseException as error:
            worker.ends(self.future, isinstance(error, BusyError))
            self.future.set_exception(error)
            self = None  # type: ignore[assignment] # avoid a reference cycle through the traceback
        else:
            worker.ends(self.future)
            self.future.set_result(result)


class JobFuture(Future[Any]):
    """The future of a job. Cancelling it ends the wait for a lock in a job that is running."""

    #: The worker that runs the job.
    worker: Optional[Worker] = None

    def cancel(self) -> bool:
        if super().cancel():
            return True
        worker = self.worker
        if worker is not None:
            worker.end_wait(self)
        return False


class TransactionJob(Job):
    """A transaction that has a worker thread to itself, and the jobs inside the transaction."""

    __slots__ = ("_commit_cancelled", "_ended", "_jobs", "_lock", "_write", "owner", "pid")

    def __init__(self, write: bool, owner: Optional[Callable[[], object]]) -> None:
        super().__init__(self._begin)
        self._write = write
        #: A weak reference to the task that began the transaction, to detect a task that would wait
        #: for itself.
        self.owner = owner
        self.pid = os.getpid()
        self._jobs: queue.SimpleQueue[tuple[Job, bool]] = queue.SimpleQueue()
        self._lock = threading.RLock()  # a transaction may be collected, and so ended, at any time
        self._ended = False
        self._commit_cancelled = False

    @property
    def ended(self) -> bool:
        """Whether the transaction accepts no more calls: its end was requested, or it never began.
        """
        return self._ended

    def submit(self, job: Job) -> None:
        """Add a job to the transaction. Raises Error if the transaction has ended."""
        if not self.offer(job):
            raise Error(
                "the transaction is not open: use it inside its async with block, before commit() or "
                "rollback()"
            )

    def offer(self, job: Job, *, last: bool = False) -> bool:
        """Add a job to the transaction unless it has ended, and return whether the job was added.

        If ``last`` is true, the transaction ends with the job.
        """
        with self._lock:
            if self._ended:
                return False
            self._ended = last
            self._jobs.put((job, last))
            return True

    def end(self, commit: bool) -> Optional[Job]:
        """Commit or roll back the transaction after all submitted jobs, and return the job that
        does it.

        Returns None if the transaction has ended already.
        """
        self.owner = None
        job = Job(lambda worker: self._end(worker, commit))
        return job if self.offer(job, last=True) else None

    def cancel_commit(self) -> None:
        """Turn a requested commit into a rollback, if the commit has not started."""
        self._commit_cancelled = True

    def abandon(self) -> None:
        """Roll back the transaction without waiting, even if it has not begun yet."""
        self.owner = None
        if not self.future.cancel():
            self.end(False)

    # In the worker's thread

    def run(self, worker: Worker) -> None:
        worker.transaction = None
        super().run(worker)
        while worker.transaction is not None:
            job, last = self._jobs.get()
            job.run(worker)
            if last:
                worker.transaction = None  # even if the end failed: everything is rolled back then
            del job
        with self._lock:
            self._ended = True
        while True:  # jobs that were added after the beginning failed
            try:
                job, _ = self._jobs.get_nowait()
            except queue.Empty:
                return
            job.run(worker)

    def _begin(self, worker: Worker) -> None:
        transaction = worker.store.transaction(self._write)
        transaction.__enter__()
        worker.transaction = transaction

    def _end(self, worker: Worker, commit: bool) -> None:
        transaction = worker.transaction
        if transaction is None:
            return
        if commit and not self._commit_cancelled:
            transaction.__exit__(None, None, None)
            return
        worker.forget_families()  # families created inside no longer exist
        error = Error("rolled back")
        transaction.__exit__(Error, error, None)


class Worker(threading.Thread):
    """A thread that runs jobs one after another, with a store object of its own."""

    def __init__(self, pool: WorkerPool, first: Job) -> None:
        super().__init__(name=f"kvstore-aio-{pool.name}", daemon=True)
        self._pool = pool
        self._store: Optional[Store[Any, Any]] = None
        #: Open families by name and options. The options are kept so that their ids stay valid.
        self._families: dict[Any, tuple[Family[Any, Any], dict[str, Any]]] = {}
        self._clock_version = self._drop_count = 0
        #: When the current job was submitted.
        self.submitted = 0.0
        #: When the last job that found the store busy ended.
        self._busy = -math.inf
        #: The future of the current job, and the flag that ends its wait for a lock.
        self._running: Optional[JobFuture] = None
        self._wait_flag = WaitFlag()
        self._wait_lock = threading.Lock()
        #: Jobs for this worker, and whether they come from the queue of the pool: those arrive one
        #: at a time, those of call_all at any time.
        self.inbox: queue.SimpleQueue[Optional[tuple[Job, bool]]] = queue.SimpleQueue()
        self.inbox.put((first, True))
        #: The current transaction job, and its transaction once that has begun.
        self.tx_job: Optional[TransactionJob] = None
        self.transaction: Optional[Transaction] = None

    @property
    def store(self) -> Store[Any, Any]:
        """The store object of this worker, opened on first use. Only the worker's thread may use
        it.
        """
        settings = self._pool.settings
        if self._store is None:
            if self._pool.gate is not None:
                self._pool.gate.wait()
            self._store = settings.open_store(self.submitted, self._wait_flag)
        if self._clock_version != settings.clock_version:
            clock_version = settings.clock_version
            self._store.set_clock(settings.clock)
            self._clock_version = clock_version
        return self._store

    def begins(self, future: JobFuture) -> None:
        """Record that this worker runs the job of ``future``.

        If the job has waited for ``busy_timeout`` behind jobs that found the store busy, it does not
        wait again for the lock. Otherwise the waits of many calls would add up.
        """
        with self._wait_lock:
            self._running = future
            self._wait_flag.set(self._busy - self.submitted >= self._pool.settings.busy_timeout)
        future.worker = self

    def ends(self, future: JobFuture, is_busy: bool = False) -> None:
        """Record that the job of ``future`` has ended, and whether it found the store busy."""
        future.worker = None
        with self._wait_lock:
            self._running = None
            self._wait_flag.set(False)
        if is_busy:
            self._busy = time.monotonic()

    def end_wait(self, future: JobFuture) -> None:
        """End the wait for a lock of the job of ``future``, if it is running. It fails with
        BusyError.
        """
        with self._wait_lock:
            if self._running is future:
                self._wait_flag.set(True)

    def runs_cleaner(self) -> bool:
        """Return whether the cleaner was started through this worker's store object."""
        return self._store is not None and self._store._state.cleaner is not None

    def family(self, name: str, options: dict[str, Any]) -> Family[Any, Any]:
        """Return a family of the worker's store. Raises NotFoundError if the family does not exist.
        """
        if name == "default" and not options:
            return self.store
        if self._drop_count != self._pool.settings.drop_count:
            self.forget_families()
        key = (name, *((option, id(value)) for option, value in options.items()))
        found = self._families.get(key)
        if found is None:
            found = self._families[key] = self.store.family(name, **options), options
        return found[0]

    def with_families(self, call: Callable[[], R]) -> R:
        """Run a call that uses families, and return its result.

        If one of the families was dropped meanwhile, it is opened again by name; NotFoundError is
        raised if it no longer exists.
        """
        try:
            return call()
        except Error as error:
            if error.code != Error.code or not self._forget_dropped():
                raise
        return call()  # opens the family by name; the failed call changed nothing

    def _forget_dropped(self) -> bool:
        """Close this worker's handles on families that were dropped. Return whether there were any.
        """
        dropped = [key for key, (family, _) in self._families.items() if not _exists(family)]
        for key in dropped:
            self._families.pop(key)[0].close()
        return bool(dropped)

    def forget_families(self) -> None:
        """Close all family handles of this worker."""
        self._drop_count = self._pool.settings.drop_count
        while self._families:
            self._families.popitem()[1][0].close()

    def run(self) -> None:
        pool, error = self._pool, None
        self._wait_flag.watch()
        try:
            while True:
                item = self.inbox.get()
                if item is None:
                    break
                job, counted = item
                del item
                job.run(self)
                stop = False
                while counted:
                    self._run_control_calls()
                    stop, following = pool.job_done(self, job)
                    if following is None:
                        break
                    job = following
                    job.run(self)
                del job
                if stop:
                    break
        finally:
            try:
                if self._store is not None:
                    self.forget_families()
                    self._store.close()
            except BaseException as e:
                error = e
            finally:
                pool.worker_ended(self, error)


    def _run_control_calls(self) -> None:
        """Run the calls of :meth:`WorkerPool.call_all` that arrived while the worker was busy.

        No other job can arrive before the pool marks the worker as idle.
        """
        while True:
            try:
                item = self.inbox.get_nowait()
            except queue.Empty:
                return
            if item is not None:
                item[0].run(self)


def _exists(family: Family[Any, Any]) -> bool:
    try:
        family.default_ttl  # noqa: B018 # reads from the file
    except Error:
        return False
    return True


class WorkerPool:
    """The workers for one kind of job. A free worker takes the job that has waited longest.

    Workers are started on demand.
    """

    def __init__(
        self,
        name: str,
        settings: WorkerSettings,
        max_workers: int,
        gate: Optional[threading.Event],
        max_transactions: Optional[int] = None,
    ) -> None:
        self.name = name
        self.settings = settings
        #: An event; workers open no store until it is set.
        self.gate = gate
        #: The maximum number of workers.
        self.max_workers = max_workers
        #: The maximum number of workers in transactions, so that some remain for other jobs.
        self.max_transactions = max_workers if max_transactions is None else max_transactions
        self._lock = threading.Lock()
        self._workers: set[Worker] = set()
        self._idle: list[Worker] = []
        self._jobs: deque[Job] = deque()
        self._waiting: deque[TransactionJob] = deque()
        #: The transactions that have a worker or are about to get one.
        self._transactions: set[TransactionJob] = set()
        self._closing = False
        #: The first error while closing.
        self._error: Optional[BaseException] = None
        #: Done when the last worker has closed its store and ended.
        self.closed: Future[None] = Future()
        self.closed.set_running_or_notify_cancel()  # cannot be cancelled any more

    def submit(self, job: Job) -> None:
        """Add a job, which the next free worker runs. Raises MisuseError if the pool is closed."""
        with self._lock:
            self._must_be_open()
            if isinstance(job, TransactionJob):
                if len(self._transactions) >= self.max_transactions:
                    self._waiting.append(job)
                    return
                self._transactions.add(job)
            try:
                self._dispatch(job)
            except BaseException:  # no thread could be started
                if isinstance(job, TransactionJob):
                    self._transactions.discard(job)
                raise

    def _dispatch(self, job: Job) -> None:
        if self._idle:
            self._assign(self._idle.pop(), job)
        elif len(self._workers) < self.max_workers:
            worker = Worker(self, job)
            if isinstance(job, TransactionJob):
                worker.tx_job = job
            worker.start()
            self._workers.add(worker)
        else:
            self._jobs.append(job)

    def _assign(self, worker: Worker, job: Job) -> None:
        worker.tx_job = job if isinstance(job, TransactionJob) else None
        worker.inbox.put((job, True))

    def job_done(self, worker: Worker, job: Job) -> tuple[bool, Optional[Job]]:
        """Record that a worker has finished a job. Return whether the worker must stop, and its
        next job or None.
        """
        with self._lock:
            worker.tx_job = None
            if isinstance(job, TransactionJob):
                self._transactions.discard(job)
                while self._waiting and len(self._transactions) < self.max_transactions:
                    tx_job = self._waiting.popleft()
                    if not tx_job.future.cancelled():
                        self._transactions.add(tx_job)
                        self._jobs.append(tx_job)
            if self._jobs:
                following = self._jobs.popleft()
                worker.tx_job = following if isinstance(following, TransactionJob) else None
                return False, following
            if self._closing:
                return True, None
            self._idle.append(worker)
            return False, None

    def transactions_of(self, owner: object) -> int:
        """Return how many transactions an asyncio task has open in this pool."""
        if not self._transactions or owner is None:
            return 0
        with self._lock:
            return sum(1 for tx_job in self._transactions if tx_job.owner is not None and tx_job.owner() is owner)

    def call_all(self, call: Call) -> list[Future[Any]]:
        """Run a call once in each existing worker, between its jobs or inside its transaction."""
        jobs: list[Future[Any]] = []
        with self._lock:
            self._must_be_open()
            for worker in self._workers:
                job = Job(call)
                if worker.tx_job is None or not worker.tx_job.offer(job):
                    worker.inbox.put((job, False))
                jobs.append(job.future)
        return jobs

    def close(self) -> None:
        """Accept no more jobs, and let each worker end when all jobs are done.

        The future ``closed`` is done when all workers have ended.
        """
        with self._lock:
            if self._closing:
                return
            self._closing = True
            for worker in self._idle:
                worker.inbox.put(None)
            self._idle.clear()
            if not self._workers:
                self.closed.set_result(None)

    def close_without_lock(self) -> None:
        """Close the pool from its own worker threads, so that the caller takes no lock."""
        for worker in list(self._workers):
            worker.inbox.put((Job(lambda _: self.close()), False))

    def worker_ended(self, worker: Worker, error: Optional[BaseException]) -> None:
        """Record that the thread of a worker is ending."""
        while True:  # calls of call_all that arrived too late
            try:
                item = worker.inbox.get_nowait()
            except queue.Empty:
                break
            if item is not None and item[0].future.set_running_or_notify_cancel():
                item[0].future.set_exception(_closed())
        with self._lock:
            self._workers.discard(worker)
            self._error = self._error or error
            last = self._closing and not self._workers
        if last and self._error is None:
            self.closed.set_result(None)
        elif last:
            self.closed.set_exception(self._error)

    def _must_be_open(self) -> None:
        if self._closing:
            raise _closed()


def _closed() -> MisuseError:
    return MisuseError("the store is closed: open it again")


class Workers:
    """The worker threads of a store in one process: a pool for writes and a pool for reads."""

    def __init__(self, settings: WorkerSettings, readers: int, gate: Optional[threading.Event] = None) -> None:
        """Create the pools, with up to ``readers`` workers that read. 0: one worker reads and
        writes.

        ``gate``: all calls wait until it is set.
        """
        self.pid = os.getpid()
        self.settings = settings
        if readers:
            self.writing = WorkerPool("writer", settings, 1, gate)
            # One worker remains for jobs outside transactions.
            self.reading = WorkerPool("reader", settings, readers, gate, max(1, readers - 1))
        else:
            self.writing = self.reading = WorkerPool("worker", settings, 1, gate)

    def pool(self, write: bool) -> WorkerPool:
        return self.writing if write else self.reading

    def pools(self) -> list[WorkerPool]:
        return [self.writing] if self.writing is self.reading else [self.writing, self.reading]

    def close(self) -> list[Future[None]]:
        """Start to close both pools, and return futures that are done when they are closed."""
        for pool in self.pools():
            pool.close()
        return [pool.closed for pool in self.pools()]

    def close_without_lock(self) -> None:
        """Close both pools without taking a lock.

        Finalizers call it, possibly while this thread holds the lock of a pool.
        """
        for pool in self.pools():
            pool.close_without_lock()
