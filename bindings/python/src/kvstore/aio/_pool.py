"""Threads with a store each, and what they are given to do. Knows nothing of event loops.

A lane is some workers that do the same kind of job: one lane writes, with one worker, since there is one writer at a
time anyway; one reads. A session is a transaction: from its beginning to its end it has a worker, and so a handle,
to itself. Workers know lanes, lanes know nothing of who uses them: so a pool that is forgotten can be closed.
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
#: What a job does, in the worker's thread.
Call = Callable[["Worker"], Any]


class Settings:
    """What all workers of a pool open and set up their stores with."""

    def __init__(self, path: bytes, options: dict[str, Any]) -> None:
        self.path = absolute(path)
        self.options = options
        self.in_memory = is_in_memory(path)
        #: Which file it is.
        self.file: Optional[tuple[int, int]] = None
        #: The clock, if set_clock was called; and how often it was.
        self.clock: Optional[Callable[[], float]] = None
        self.clocks = 0
        #: How often families were dropped: handles on families are asked for anew then.
        self.drops = 0
        #: When the last open that found the file locked gave up, and its text.
        self._locked = (0.0, "")

    def open_store(self, asked: float) -> kvstore.Store[Any, Any]:
        """Opens a store, in the thread that is to use it: always the same file. ``asked``: since when the call waits
        that needs it; one that has waited through an open that found the file locked does not wait once more."""
        if self.file is not None and self.file != file_at(self.path):
            raise StoreIOError("the store is no longer at its path: it was deleted, moved or replaced while it was open")
        gave_up, text = self._locked
        if asked < gave_up:
            raise BusyError(text)
        try:
            store: kvstore.Store[Any, Any] = kvstore.open(self.path, **self.options)
        except BusyError as error:
            self._locked = time.monotonic(), str(error)
            raise
        if self.file is None and not self.in_memory:
            self.file = file_at(self.path)
        return store


class Job:
    """A call, and what comes of it. Cancelled before it has begun, it never begins; later, it goes on."""

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
            self = None  # type: ignore[assignment] # no cycle through the traceback
        else:
            self.future.set_result(result)


class Session(Job):
    """A transaction, and the jobs inside it."""

    __slots__ = ("_ended", "_guard", "_jobs", "_turned_back", "_write", "owner", "pid")

    def __init__(self, write: bool, owner: Optional[Callable[[], object]]) -> None:
        super().__init__(self._begin)
        self._write = write
        #: A weak reference to who began it, to tell who would wait for himself.
        self.owner = owner
        self.pid = os.getpid()
        self._jobs: queue.SimpleQueue[tuple[Job, bool]] = queue.SimpleQueue()
        self._guard = threading.RLock()  # a transaction may be collected at any time, and then ends
        self._ended = False
        self._turned_back = False

    @property
    def ended(self) -> bool:
        """Whether its end was asked for, or it never began."""
        return self._ended

    def submit(self, job: Job) -> None:
        """Adds a job. Error if the session has ended."""
        if not self.offer(job):
            raise Error("the transaction is not open: it has ended, or is used outside its block")

    def offer(self, job: Job, *, last: bool = False) -> bool:
        """Adds a job, if the session has not ended; with ``last``, it has then."""
        with self._guard:
            if self._ended:
                return False
            self._ended = last
            self._jobs.put((job, last))
            return True

    def end(self, commit: bool) -> Optional[Job]:
        """Ends the transaction after the jobs that were submitted; None if it has ended."""
        self.owner = None
        job = Job(lambda worker: self._end(worker, commit))
        return job if self.offer(job, last=True) else None

    def turn_back(self) -> None:
        """Rolls back where a commit was asked for, if that has not begun."""
        self._turned_back = True

    def abandon(self) -> None:
        """Ends it without waiting, whether it has begun or not: nothing of it stays."""
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
                worker.transaction = None  # also if the end has failed: all is rolled back then
            del job
        with self._guard:
            self._ended = True
        while True:  # what came between a beginning that failed and now
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
        worker.forget_families()  # one that was made inside is no more
        error = Error("rolled back")
        transaction.__exit__(Error, error, None)


class Worker(threading.Thread):
    """A thread with a store of its own."""

    def __init__(self, lane: Lane, first: Job) -> None:
        super().__init__(name=f"kvstore-aio-{lane.name}", daemon=True)
        self._lane = lane
        self._store: Optional[kvstore.Store[Any, Any]] = None
        #: By name and options; with the options, so that these stay what they are.
        self._families: dict[Any, tuple[kvstore.Family[Any, Any], dict[str, Any]]] = {}
        self._clocks = self._drops = 0
        #: Since when the job waits that is being done.
        self.asked = 0.0
        #: Jobs for this worker: one at a time by the lane, whose number is given back then; controls at any time.
        self.inbox: queue.SimpleQueue[Optional[tuple[Job, bool]]] = queue.SimpleQueue()
        self.inbox.put((first, True))
        #: The session it is in; and its transaction, once it has begun.
        self.session: Optional[Session] = None
        self.transaction: Optional[kvstore.Transaction] = None

    @property
    def store(self) -> kvstore.Store[Any, Any]:
        """The store, opened when it is first needed. For this thread only."""
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
        """Whether a cleaner was started here."""
        return self._store is not None and self._store._shared.cleaner is not None

    def family(self, name: str, options: dict[str, Any]) -> kvstore.Family[Any, Any]:
        """A family of the store. NotFoundError if there is none of the name."""
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
        """What a call on families answers; NotFoundError, as by its name, if one was dropped, by whomever."""
        try:
            return call()
        except Error as error:
            if error.code != Error.code or not self._forget_dropped():
                raise
        return call()  # asks for the family by its name; what has failed has done nothing

    def _forget_dropped(self) -> bool:
        """Gives back the handles on families that were dropped by others; says whether there were any."""
        dropped = [key for key, (family, _) in self._families.items() if not _is_there(family)]
        for key in dropped:
            self._families.pop(key)[0].close()
        return bool(dropped)

    def forget_families(self) -> None:
        """Gives back all handles on families."""
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
        """What came meanwhile: nothing else can, before the lane knows that the worker is free."""
        while True:
            try:
                item = self.inbox.get_nowait()
            except queue.Empty:
                return
            if item is not None:
                item[0].run(self)


def _is_there(family: kvstore.Family[Any, Any]) -> bool:
    try:
        family.default_ttl  # noqa: B018 # asks the file
    except Error:
        return False
    return True


class Lane:
    """Workers that do the same kind of job, each the next one that waits. They are started when needed."""

    def __init__(
        self, name: str, settings: Settings, most: int, gate: Optional[threading.Event], sessions: Optional[int] = None
    ) -> None:
        self.name = name
        self.settings = settings
        #: Until it is set no worker opens a store.
        self.gate = gate
        #: How many workers there are at most.
        self.most = most
        #: How many of them may be in sessions, so that the others can do what is left.
        self.most_sessions = most if sessions is None else sessions
        self._guard = threading.Lock()
        self._workers: set[Worker] = set()
        self._idle: list[Worker] = []
        self._jobs: deque[Job] = deque()
        self._waiting: deque[Session] = deque()
        #: The sessions that have, or will soon have, a worker.
        self._sessions: set[Session] = set()
        self._closing = False
        #: What went wrong in closing.
        self._error: Optional[BaseException] = None
        #: Done when the last worker has closed its store and ended.
        self.closed: Future[None] = Future()
        self.closed.set_running_or_notify_cancel()  # nobody can cancel it

    def submit(self, job: Job) -> None:
        """Has a job done by the next worker that is free. MisuseError if the lane is closed."""
        with self._guard:
            self._must_be_open()
            if isinstance(job, Session):
                if len(self._sessions) >= self.most_sessions:
                    self._waiting.append(job)
                    return
                self._sessions.add(job)
            try:
                self._dispatch(job)
            except BaseException:  # no thread can be started
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
        """A worker has done a job: whether it is to stop, or else its next one, if there is one now."""
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
        """How many sessions somebody has open here."""
        if not self._sessions or owner is None:
            return 0
        with self._guard:
            return sum(1 for session in self._sessions if session.owner is not None and session.owner() is owner)

    def control(self, call: Call) -> list[Future[Any]]:
        """Has something done once by each worker that there is, between its jobs, or inside its session."""
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
        """Takes no more jobs; workers end when all are done. See ``closed``."""
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
        """Has the workers close the lane, those that there are. Takes no lock."""
        for worker in list(self._workers):
            worker.inbox.put((Job(lambda _: self.close()), False))

    def left(self, worker: Worker, error: Optional[BaseException]) -> None:
        """A worker has ended."""
        while True:  # controls that came too late
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
    """The lanes of a store, in one process."""

    def __init__(self, settings: Settings, readers: int, gate: Optional[threading.Event] = None) -> None:
        """``readers``: how many workers read; 0: one does everything. ``gate``: until it is set all calls wait."""
        self.pid = os.getpid()
        self.settings = settings
        if readers:
            self.writing = Lane("writer", settings, 1, gate)
            # One stays for those that are in no session.
            self.reading = Lane("reader", settings, readers, gate, max(1, readers - 1))
        else:
            self.writing = self.reading = Lane("worker", settings, 1, gate)

    def lane(self, write: bool) -> Lane:
        return self.writing if write else self.reading

    def lanes(self) -> list[Lane]:
        return [self.writing] if self.writing is self.reading else [self.writing, self.reading]

    def close(self) -> list[Future[None]]:
        """Begins to close; what is returned is done when all is."""
        for lane in self.lanes():
            lane.close()
        return [lane.closed for lane in self.lanes()]

    def forget(self) -> None:
        """As close, for a finalizer, which may come while this thread has a lane's lock: the workers close."""
        for lane in self.lanes():
            lane.forget()
