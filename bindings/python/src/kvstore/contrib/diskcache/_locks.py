"""Locks between the threads of a process."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, Optional

import kvstore
from kvstore._native import WithBlock, surely

#: Interval in seconds at which a waiting thread checks whether the block before it was forgotten.
_PATIENCE = 0.5


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
        self._counters = threading.Lock()
        #: The lock of the thread that writes.
        self.writers: Any = threading.RLock()
        #: A weak reference to the block that holds it, or None. It yields None if the block was
        #: collected before its end.
        self.holder: Optional[weakref.ref[Writing]] = None
        self._process = os.getpid()

    def counters(self) -> threading.Lock:
        self.renew_after_fork()
        return self._counters

    def renew_after_fork(self) -> None:
        if self._process != os.getpid():
            self._renew()

    def writing(self, timeout: float) -> Writing:
        """Return a ``with`` block of one thread at a time. Raises BusyError after ``timeout`` seconds."""
        return Writing(self, timeout)


class Writing(WithBlock):
    """The block of :meth:`Locks.writing`. Blocks may be nested: the outermost holds the lock.

    A KeyboardInterrupt at any moment leaves the lock free: see Transaction, which works alike.
    """

    __slots__ = ("__weakref__", "_lock", "_locks", "_thread", "_timeout")

    def __init__(self, locks: Locks, timeout: float) -> None:
        self._locks = locks
        self._timeout = timeout
        #: The lock that this block holds or is about to acquire.
        self._lock: Any = None
        self._thread = 0

    def __enter__(self) -> Writing:
        try:
            self._enter()
        except BaseException:
            surely(self._abandon)
            raise
        return self

    def _enter(self) -> None:
        locks = self._locks
        locks.renew_after_fork()
        lock = locks.writers
        if lock._is_owned() and locks.holder is not None and locks.holder() is not None:
            return  # nested
        while lock._is_owned():  # the block that acquired it was never left
            lock.release()
        self._thread = threading.get_ident()
        self._lock = lock
        end = time.monotonic() + self._timeout
        while not lock.acquire(timeout=max(0.0, min(end - time.monotonic(), _PATIENCE))):
            if time.monotonic() >= end:
                raise kvstore.BusyError(f"other threads have written to the cache for {self._timeout} seconds")
            if locks.holder is not None and locks.holder() is None and locks.writers is lock:
                locks.holder, locks.writers = None, threading.RLock()
            lock = self._lock = locks.writers
        locks.holder = weakref.ref(self)

    def _ending(self) -> bool:
        return True

    def _leave(self, ending: bool, *exception: object) -> None:
        self._abandon(ending)

    def _abandon(self, left: bool = False) -> None:
        """Release the lock if this block holds it. May be called again after an interrupt.

        ``left``: the block was left, possibly in another thread than the one that entered it, which
        cannot release the lock. It is replaced then.
        """
        locks, lock = self._locks, self._lock
        if lock is None:
            return
        if lock._is_owned():
            locks.holder = None
            lock.release()
        elif left and self._thread != threading.get_ident() and locks.writers is lock:
            locks.holder, locks.writers = None, threading.RLock()
        self._lock = None
