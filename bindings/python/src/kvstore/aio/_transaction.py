"""Class Transaction for asyncio: an ``async with`` block that has a worker thread to itself."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Callable, Optional, TypeVar

from kvstore import Error, MisuseError
from kvstore._native import K, V
from kvstore._path import redacted
from kvstore.aio._family import Families
from kvstore.aio._workers import Job, TransactionJob, Worker

if TYPE_CHECKING:
    from kvstore.aio._store import Store

R = TypeVar("R")


async def wait_to_end(future: Future[R], cancelled_first: Callable[[], None]) -> R:
    """Wait until a running job ends, even if the task is cancelled. The cancellation is raised
    afterwards.
    """
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
            waiting.exception()  # mark the exception as retrieved
        raise cancelled
    return waiting.result()


class Transaction(Families[K, V]):
    """An ``async with`` block that commits all writes made through this object together.

    Its reads see those writes.

    Everything is rolled back on an exception in the block, or if the task is cancelled. Created by
    :meth:`Store.transaction`.

    A transaction has a handle to itself: calls of other tasks on the store never become part of it,
    and do not see it before its commit. It has the methods of the default family; ``family()``
    gives the others. Tasks may share it; their calls run one after the other.

    Write transactions, and writes outside of any, take turns in the order in which they began, and
    wait however long a transaction takes. A task that writes to the *store* inside its own
    transaction would wait for itself, and gets an Error. A task that waits for another task that
    does so waits forever.
    """

    __slots__ = ("_job", "_store", "_write")

    def __init__(self, store: Store[K, V], write: bool) -> None:
        self._has_codec = store._has_codec
        super().__init__(self, "default")
        self._store = store
        self._write = write
        self._job: Optional[TransactionJob] = None

    def __repr__(self) -> str:
        path = None if self._store._path is None else redacted(self._store._path)
        return f"<kvstore.aio.Transaction of {path!r}{'' if self.active else ', not open'}>"

    @property
    def active(self) -> bool:
        """Whether the transaction has begun and has not ended."""
        return self._job is not None and not self._job.ended and self._job.future.done()

    async def __aenter__(self) -> Transaction[K, V]:
        if self._job is not None and not self._job.ended:
            raise Error("the transaction is already open: create one for each async with block")
        tx_job = self._job = self._store._begin(self._write)
        try:
            await asyncio.wrap_future(tx_job.future)
        except BaseException:
            self._job = None
            tx_job.abandon()
            raise
        return self

    async def __aexit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        tx_job = self._job
        if tx_job is None or tx_job.ended or tx_job.pid != os.getpid():
            return
        try:
            await self._end(tx_job, kind is None)
        except Error:
            if kind is None:
                raise
            # The exception of the block is more important.

    async def commit(self) -> None:
        """Commit the transaction now, which ends it. If the commit fails, everything is rolled
        back.

        A commit that is cancelled before it starts is a rollback.
        """
        await self._end(self._open(), True)

    async def rollback(self) -> None:
        """Roll back the transaction now, which ends it."""
        await self._end(self._open(), False)

    async def _end(self, tx_job: TransactionJob, commit: bool) -> None:
        job = tx_job.end(commit)
        if job is not None:
            await wait_to_end(job.future, tx_job.cancel_commit)

    def _open(self) -> TransactionJob:
        tx_job = self._job
        if tx_job is None or tx_job.ended:
            raise Error(
                "the transaction is not open: use it inside its async with block, before commit() or "
                "rollback()"
            )
        if tx_job.pid != os.getpid():
            raise MisuseError(
                "the transaction belongs to the parent process, which began it before the fork: end it there"
            )
        return tx_job

    async def _work(self, write: bool, call: Callable[[Worker], R]) -> R:
        tx_job = self._open()
        job = Job(call)
        tx_job.submit(job)
        result: R = await asyncio.wrap_future(job.future)
        return result

    def __del__(self) -> None:
        tx_job = getattr(self, "_job", None)
        if tx_job is not None and not tx_job.ended and tx_job.pid == os.getpid():
            tx_job.abandon()  # its task was destroyed
