"""Waiting for other threads of this process, which no interrupt (Ctrl-C) can leave locked.

An interrupt in a Condition or an Event of ``threading``, whose methods are Python, can leave its lock held, or released
where it is to be released once more. Here each step is one call of C.
"""

from __future__ import annotations

import os
import threading
from typing import Any


class Waiters:
    """Threads that wait for what others of them do, and look again now and then: to be told late is no harm. There is
    one in a module: it stays."""

    def __init__(self) -> None:
        #: A lock that is held, of each thread that waits. Who takes it out releases it.
        self._locks: list[Any] = []
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._locks.clear)  # the threads that waited are not there

    def wait(self, seconds: float) -> None:
        """Waits until :meth:`wake`, or that long."""
        lock = threading.Lock()
        lock.acquire()
        self._locks.append(lock)
        try:
            lock.acquire(timeout=seconds)
        finally:
            try:
                self._locks.remove(lock)
            except ValueError:
                pass  # woken

    def wake(self) -> None:
        """Lets those that wait now look again. May be called again after an interrupt in it."""
        for _ in range(len(self._locks)):
            try:
                self._locks.pop().release()
            except IndexError:
                return  # another thread has woken them
