"""Worker threads for asyncio stores, each with its own store object, and the jobs that they run.

Must not depend on event loops.

A lane is a group of workers for one kind of job: one lane writes, with a single worker, because
only one writer can run at a time anyway; the other reads. A session is a transaction: it has a
worker, and so a handle, to itself from beginning to end. Workers refer to lanes, but lanes do not
refer to their users, so that a forgotten pool can be closed.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections import deque
from concurrent.futures import Future
from typing import Any, Callable, Optional, TypeVar

import kvstore
from kvstore import BusyError, Error, MisuseError, StoreIOError
from kvstore._connection import absolute, file_at, is_in_memory

R = TypeVar("R")
#: The function of a job, called in the worker thread.
Call = Callable[["Worker"], Any]


class Settings:
    """The arguments with which all workers of a pool open their stores."""

    def __init__(self, path: bytes, options: dict[str, Any]) -> None:
        self.path = absolute(path)
        self.options = options
        self.in_memory = is_in_memory(path)
        #: The identity of the file.
        self.file: Optional[tuple[int, int]] = None
        #: The clock given to set_clock, and how often set_clock was called.
        self.clock: Optional[Callable[[], float]] = None
        self.clocks = 0
        #: How often families were dropped: workers then reopen their family handles.
        self.drops = 0
        #: When the last failed open gave up on a locked file, and its message.
        self._locked: tuple[float, str, Optional[kvstore.Hint]] = (0.0, "", None)

    def open_store(self, asked: float) -> kvstore.Store[Any, Any]:
        """Open a store in the calling thread. All calls open the same file.

        ``asked`` is the monotonic time since which the caller waits. A call that waited through
        another open that found the file locked does not wait again.
        """
        if self.file is not None and self.file != file_at(self.path):
            raise StoreIOError(
                "the store file was deleted, moved or replaced while the store was open: close this store and "
                "open it at its new path"
            )
        gave_up, text, hint = self._locked
        if asked < gave_up:
            raise BusyError(text, hint=hint)
        try:
            store: kvstore.Store[Any, Any] = kvstore.open(self.path, **self.options)
        except BusyError as error:
            self._locked = time.monotonic(), str(error), error.hint
            raise
        if self.file is None and not self.in_memory:
            self.file = file_at(self.path)
        return store


class Job:
    """A call for a worker thread, with a future for its result.

    A job that is cancelled before it starts never runs; a job that has started runs to its end.
    """

    __slots__ = ("asked", "call", "future")

    def __init__(self, call: Call) -> None:
        self.call = call
        self.asked = time.monotonic()
        self.future: Future[Any] = Future()

    def run(self, worker: Worker) -> None:
        if not self.future.set_running_or_notify_cancel():
            return
        worker.asked = self.asked
        try:
            result = self.call(worker)
        except BaseException as error:
            self.future.set_exception(error)
            self = None  # type: ignore[assignment] # avoid a reference cycle through the traceback
        else:
            self.future.set_result(result)


class Session(Job):
    """A transaction that has a worker thread to itself, and the jobs inside the transaction."""

    __slots__ = ("_ended", "_guard", "_jobs", "_turned_back", "_write", "owner", "pid")

    def __init__(self, write: bool, owner: Optional[Callable[[], object]]) -> None:
        super().__init__(self._begin)
        self._write = write
        #: A weak reference to the task that began the transaction, to detect a task that would wait
        #: for itself.
        self.owner = owner
        self.pid = os.getpid()
        self._jobs: queue.SimpleQueue[tuple[Job, bool]] = queue.SimpleQueue()
        self._guard = threading.RLock()  # a transaction may be collected, and so ended, at any time
        self._ended = False
        self._turned_back = False

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
        with self._guard:
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

    def turn_back(self) -> None:
        """Turn a requested commit into a rollback, if the commit has not started."""
        self._turned_back = True

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
        with self._guard:
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
        if commit and not self._turned_back:
            transaction.__exit__(None, None, None)
            return
        worker.forget_families()  # families created inside no longer exist
        error = Error("rolled back")
        transaction.__exit__(Error, error, None)


class Worker(threading.Thread):
    """A thread that runs jobs one after another, with a store object of its own."""

    def __init__(self, lane: Lane, first: Job) -> None:
        super().__init__(name=f"kvstore-aio-{lane.name}", daemon=True)
        self._lane = lane
        self._store: Optional[kvstore.Store[Any, Any]] = None
        #: Open families by name and options. The options are kept so that their ids stay valid.
        self._families: dict[Any, tuple[kvstore.Family[Any, Any], dict[str, Any]]] = {}
        self._clocks = self._drops = 0
        #: When the current job was submitted.
        self.asked = 0.0
        #: Jobs for this worker, and whether they come from the lane: those one at a time, controls
        #: at any time.
        self.inbox: queue.SimpleQueue[Optional[tuple[Job, bool]]] = queue.SimpleQueue()
        self.inbox.put((first, True))
        #: The current session, and its transaction once that has begun.
        self.session: Optional[Session] = None
        self.transaction: Optional[kvstore.Transaction] = None

    @property
    def store(self) -> kvstore.Store[Any, Any]:
        """The store object of this worker, opened on first use. Only the worker's thread may use
        it.
        """
        settings = self._lane.settings
        if self._store is None:
            if self._lane.gate is not None:
                self._lane.gate.wait()
            self._store = settings.open_store(self.asked)
        if self._clocks != settings.clocks:
            clocks = settings.clocks
            self._store.set_clock(settings.clock)
            self._clocks = clocks
        return self._store

    def runs_a_cleaner(self) -> bool:
        """Return whether the cleaner was started through this worker's store object."""
        return self._store is not None and self._store._shared.cleaner is not None

    def family(self, name: str, options: dict[str, Any]) -> kvstore.Family[Any, Any]:
        """Return a family of the worker's store. Raises NotFoundError if the family does not exist.
        """
        if name == "default" and not options:
            return self.store
        if self._drops != self._lane.settings.drops:
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
        dropped = [key for key, (family, _) in self._families.items() if not _is_there(family)]
        for key in dropped:
            self._families.pop(key)[0].close()
        return bool(dropped)

    def forget_families(self) -> None:
        """Close all family handles of this worker."""
        self._drops = self._lane.settings.drops
        while self._families:
            self._families.popitem()[1][0].close()

    def run(self) -> None:
        lane, error = self._lane, None
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
                    self._do_controls()
                    stop, following = lane.done(self, job)
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
                lane.left(self, error)


    def _do_controls(self) -> None:
        """Run the control calls that arrived while the worker was busy (see :meth:`Lane.control`).

        No other job can arrive before the lane marks the worker as idle.
        """
        while True:
            try:
                item = self.inbox.get_nowait()
            except queue.Empty:
                return
            if item is not None:
                item[0].run(self)


def _is_there(family: kvstore.Family[Any, Any]) -> bool:
    try:
        family.default_ttl  # noqa: B018 # reads from the file
    except Error:
        return False
    return True


class Lane:
    """A group of workers for one kind of job. A free worker takes the job that has waited longest.

    Workers are started on demand.
    """

    def __init__(
        self, name: str, settings: Settings, most: int, gate: Optional[threading.Event], sessions: Optional[int] = None
    ) -> None:
        self.name = name
        self.settings = settings
        #: An event; workers open no store until it is set.
        self.gate = gate
        #: The maximum number of workers.
        self.most = most
        #: The maximum number of workers in sessions, so that some remain for other jobs.
        self.most_sessions = most if sessions is None else sessions
        self._guard = threading.Lock()
        self._workers: set[Worker] = set()
        self._idle: list[Worker] = []
        self._jobs: deque[Job] = deque()
        self._waiting: deque[Session] = deque()
        #: The sessions that have a worker or are about to get one.
        self._sessions: set[Session] = set()
        self._closing = False
        #: The first error while closing.
        self._error: Optional[BaseException] = None
        #: Done when the last worker has closed its store and ended.
        self.closed: Future[None] = Future()
        self.closed.set_running_or_notify_cancel()  # cannot be cancelled any more

    def submit(self, job: Job) -> None:
        """Add a job, which the next free worker runs. Raises MisuseError if the lane is closed."""
        with self._guard:
            self._must_be_open()
            if isinstance(job, Session):
                if len(self._sessions) >= self.most_sessions:
                    self._waiting.append(job)
                    return
                self._sessions.add(job)
            try:
                self._dispatch(job)
            except BaseException:  # no thread could be started
                if isinstance(job, Session):
                    self._sessions.discard(job)
                raise

    def _dispatch(self, job: Job) -> None:
        if self._idle:
            self._give(self._idle.pop(), job)
        elif len(self._workers) < self.most:
            worker = Worker(self, job)
            if isinstance(job, Session):
                worker.session = job
            worker.start()
            self._workers.add(worker)
        else:
            self._jobs.append(job)

    def _give(self, worker: Worker, job: Job) -> None:
        worker.session = job if isinstance(job, Session) else None
        worker.inbox.put((job, True))

    def done(self, worker: Worker, job: Job) -> tuple[bool, Optional[Job]]:
        """Record that a worker has finished a job. Return whether the worker must stop, and its
        next job or None.
        """
        with self._guard:
            worker.session = None
            if isinstance(job, Session):
                self._sessions.discard(job)
                while self._waiting and len(self._sessions) < self.most_sessions:
                    session = self._waiting.popleft()
                    if not session.future.cancelled():
                        self._sessions.add(session)
                        self._jobs.append(session)
            if self._jobs:
                following = self._jobs.popleft()
                worker.session = following if isinstance(following, Session) else None
                return False, following
            if self._closing:
                return True, None
            self._idle.append(worker)
            return False, None

    def sessions_of(self, owner: object) -> int:
        """Return how many transactions an asyncio task has open in this lane."""
        if not self._sessions or owner is None:
            return 0
        with self._guard:
            return sum(1 for session in self._sessions if session.owner is not None and session.owner() is owner)

    def control(self, call: Call) -> list[Future[Any]]:
        """Run a call once in each existing worker, between its jobs or inside its transaction."""
        jobs = []
        with self._guard:
            self._must_be_open()
            for worker in self._workers:
                job = Job(call)
                if worker.session is None or not worker.session.offer(job):
                    worker.inbox.put((job, False))
                jobs.append(job.future)
        return jobs

    def close(self) -> None:
        """Accept no more jobs, and let each worker end when all jobs are done.

        The future ``closed`` is done when all workers have ended.
        """
        with self._guard:
            if self._closing:
                return
            self._closing = True
            for worker in self._idle:
                worker.inbox.put(None)
            self._idle.clear()
            if not self._workers:
                self.closed.set_result(None)

    def forget(self) -> None:
        """Close the lane from its own worker threads, so that the caller takes no lock."""
        for worker in list(self._workers):
            worker.inbox.put((Job(lambda _: self.close()), False))

    def left(self, worker: Worker, error: Optional[BaseException]) -> None:
        """Record that the thread of a worker is ending."""
        while True:  # controls that arrived too late
            try:
                item = worker.inbox.get_nowait()
            except queue.Empty:
                break
            if item is not None and item[0].future.set_running_or_notify_cancel():
                item[0].future.set_exception(_closed())
        with self._guard:
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


class Pool:
    """The worker threads of a store in one process: a lane for writes and a lane for reads."""

    def __init__(self, settings: Settings, readers: int, gate: Optional[threading.Event] = None) -> None:
        """Create the lanes, with up to ``readers`` workers that read. 0: one worker reads and
        writes.

        ``gate``: all calls wait until it is set.
        """
        self.pid = os.getpid()
        self.settings = settings
        if readers:
            self.writing = Lane("writer", settings, 1, gate)
            # One worker remains for jobs outside sessions.
            self.reading = Lane("reader", settings, readers, gate, max(1, readers - 1))
        else:
            self.writing = self.reading = Lane("worker", settings, 1, gate)

    def lane(self, write: bool) -> Lane:
        return self.writing if write else self.reading

    def lanes(self) -> list[Lane]:
        return [self.writing] if self.writing is self.reading else [self.writing, self.reading]

    def close(self) -> list[Future[None]]:
        """Start to close all lanes, and return futures that are done when they are closed."""
        for lane in self.lanes():
            lane.close()
        return [lane.closed for lane in self.lanes()]

    def forget(self) -> None:
        """Close all lanes without taking a lock.

        Finalizers call it, possibly while this thread holds a lane's lock.
        """
        for lane in self.lanes():
            lane.forget()
