"""The threads in which an asyncio backend calls its storage, so that the event loop runs meanwhile.

Must not depend on a framework.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import NamedTuple, Optional, TypeVar

from kvstore._native import WaitFlag
from kvstore.contrib._storage import Storage

T = TypeVar("T")

#: The number of threads that read. A connection of an ended thread is kept for the next one.
_READERS = 4


class _Pools(NamedTuple):
    """The threads of a backend, and the process that they belong to."""

    process: int
    readers: ThreadPoolExecutor
    writer: ThreadPoolExecutor


class Threads:
    """The threads of one asyncio backend: one that writes, and up to four that read.

    Writes are done in the order of the calls, and reads do not wait for a write that waits for
    another process. A call whose task is cancelled runs to its end if it has begun. Threads start
    on first use, also in the child of a fork, and end when this object is closed or collected.

    A write that has waited for ``busy_timeout`` behind writes that found the store busy does not wait
    for it again. Otherwise the waits of many calls would add up.
    """

    __slots__ = ("__weakref__", "_pools", "_storage", "_wait_flag")

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._pools: Optional[_Pools] = None
        #: Ends the waits of the thread that writes.
        self._wait_flag = WaitFlag()

    async def read(self, work: Callable[[], T]) -> T:
        """Return ``work()``, which runs in a thread that reads."""
        return await _run(self._open().readers, work)

    async def write(self, work: Callable[[], T]) -> T:
        """Return ``work()``, which runs in the thread that writes."""
        submitted = time.monotonic()

        def write() -> T:
            self._wait_flag.set(self._storage.busy_time - submitted >= self._storage.busy_timeout)
            try:
                return work()
            finally:
                self._wait_flag.set(False)

        return await _run(self._open().writer, write)

    def _open(self) -> _Pools:
        pools = self._pools
        if pools is None or pools.process != os.getpid():
            readers = ThreadPoolExecutor(_READERS, "kvstore-reader")
            writer = ThreadPoolExecutor(1, "kvstore-writer", self._wait_flag.watch)
            pools = self._pools = _Pools(os.getpid(), readers, writer)
        return pools

    async def close(self, work: Callable[[], None]) -> None:
        """Call ``work()`` after the writes before it, and end the threads. The next use starts new
        ones.
        """
        await self.write(work)
        pools, self._pools = self._pools, None
        if pools is not None and pools.process == os.getpid():
            pools.writer.shutdown(wait=False)
            pools.readers.shutdown(wait=False)


async def _run(pool: Executor, work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(pool, work)
