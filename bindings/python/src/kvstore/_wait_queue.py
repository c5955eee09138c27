"""A way to wait for other threads of this process that is safe against KeyboardInterrupt.

An interrupt inside a Condition or Event of ``threading``, whose methods are Python code, can leave
its lock held, or released so that it is released a second time. Here each step is a single call
into C.
"""

from __future__ import annotations

import os
import threading
from typing import Any


class WaitQueue:
    """A set of threads that wait until another thread of this process wakes them.

    They also check regularly by themselves, so a late wake-up does no harm. Instances live as long
    as their module.
    """

    def __init__(self) -> None:
        #: A held lock for each waiting thread. The thread that removes one releases it.
        self._locks: list[Any] = []
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._locks.clear)  # the waiting threads do not exist in the child

    def wait(self, seconds: float) -> None:
        """Wait until another thread calls :meth:`wake`, but at most for ``seconds``."""
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
        """Wake all threads that are in :meth:`wait`. May be called again after an interrupt."""
        for _ in range(len(self._locks)):
            try:
                self._locks.pop().release()
            except IndexError:
                return  # another thread has woken the rest
