"""Locks between the threads of a process."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

import kvstore


class Locks:
    """Locks between the threads of this process, replaced after a fork.

    Writers of one cache wait for each other here: a thread is woken as soon as it can go on, while
    the lock of a file is only tried from time to time.

    Args:
        renewed: Is called now, and in the child of a fork before its first use of a lock.
    """

    def __init__(self, renewed: Callable[[], None]) -> None:
        self._renewed = renewed
        self._renew()

    def _renew(self) -> None:
        self._renewed()
        self._counters, self._writers = threading.Lock(), threading.RLock()
        self._process = os.getpid()

    def counters(self) -> threading.Lock:
        if self._process != os.getpid():
            self._renew()
        return self._counters

    @contextmanager
    def writing(self, timeout: float) -> Generator[None, None, None]:
        """Return a ``with`` block of one thread at a time. Raises BusyError after ``timeout`` seconds."""
        if self._process != os.getpid():
            self._renew()
        lock = self._writers
        if not lock.acquire(timeout=timeout):
            raise kvstore.BusyError(f"other threads have written to the cache for {timeout} seconds")
        try:
            yield
        finally:
            lock.release()
