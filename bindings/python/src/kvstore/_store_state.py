"""The state that a store and its families share: native handles of each thread, the clock, and
error handling.

**Handles and their memory.** The library reuses the memory of a closed handle after 64 further
closes of its type. A thread that has read a pointer but has not entered the library yet could
therefore reach another store, if other threads close that handle and many more meanwhile. This is
prevented as follows:

- Family handles, which every call on keys uses, are closed when the last reference to their cdata
  is dropped. A call holds a reference (its argument), so no handle is closed during a call, and the
  fast path pays nothing for it.
- Iterators and batches are closed by the thread that uses them: a generator runs in one thread at a
  time, and a batch has a lock.
- A store handle belongs to a thread. It is closed when the thread has ended and nothing that began
  on it remains. Other threads use it only in close(), set_clock() and stats(). close() closes it at
  once, because callers rely on that. Only calls on the whole store (transactions, backup, stats)
  use it. For a wrong access, a thread would have to pause between two steps of such a call while
  another thread closes this store, opens and closes 64 others, and opens one more: milliseconds of
  file creation against nanoseconds. A program that closes a store while other threads begin
  transactions on it is wrong anyway. A lock around these calls would make close() wait for a
  backup, or make it uninterruptible.
- Changes of the whole file (encrypt, rekey, decrypt) close the handles of other threads, which then
  open new ones. A handle is closed only while it is not in use: see ConnectionPool.exclusive.

_family_handle has the handles of families, _store and _family the methods that users call.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Callable, Optional

from kvstore._connection_pool import Checkout, Connection, ConnectionPool, Pin, store_closed_error
from kvstore._errors import BusyError, Failure, exception_for, last_failure
from kvstore._native import NULL, ffi, lib
from kvstore._time import unregister

_BUSY: int = lib.KVSTORE_BUSY
#: Interval in seconds between checks whether a thread's connection is usable again.
_PATIENCE = 0.001


class StoreState:
    """The state that a store, its families and its iterators share, in all threads."""

    __slots__ = ("__weakref__", "changes", "cleaner", "families", "guard", "local", "pool", "recipe_writes", "scans")

    def __init__(self, pool: ConnectionPool) -> None:
        self.pool = pool
        #: Its attribute `checkout` is the checkout of each thread.
        self.local = threading.local()
        #: [0] is replaced after each write through this store; iterations compare it.
        self.changes: list[object] = [object()]
        #: One element for each running iteration: while it is empty, writes need not signal a
        #: change.
        self.scans: list[None] = []
        #: Number of writes of recipes since they last removed expired keys.
        self.recipe_writes = 0
        #: The checkout on whose connection the cleaner runs, or None.
        self.cleaner: Optional[Checkout] = None
        #: Held to use the list of families.
        self.guard: Any = threading.RLock()
        #: The open FamilyHandles of the store.
        self.families: weakref.WeakSet[Any] = weakref.WeakSet()
        _open_stores.add(self)

    def __del__(self, _unregister: Any = unregister) -> None:  # bound: at exit, globals may be gone
        pool = getattr(self, "pool", None)
        if pool is None or pool.closed:
            return
        pool.closed = True
        for connection in pool.connections:
            if not connection.inherited:
                connection.close()
        if pool.clock_context:
            _unregister(pool.clock_context)

    @property
    def closed(self) -> bool:
        return self.pool.closed

    def changed(self) -> None:
        """Make running iterations read again, because the store was written to.

        Must be called after each write; hot paths skip it if nothing iterates.
        """
        self.changes[0] = object()

    def checkout(self) -> Checkout:
        """Return the checkout of this thread's connection.

        Raises:
            MisuseError: If the store is closed, or another asyncio task has a transaction open in
                this thread.
        """
        if self.pool.closed:
            raise store_closed_error()
        local = self.local
        checkout: Optional[Checkout] = getattr(local, "checkout", None)
        if checkout is None or not checkout.connection.kv:
            checkout = local.checkout = self._renewed_checkout(checkout)
        if checkout.connection.task is not None:
            checkout.connection.check_task()
        return checkout

    def _renewed_checkout(self, before: Optional[Checkout]) -> Checkout:
        """Return a usable checkout for this thread.

        ``before`` is its current checkout, whose connection was closed or is being closed; or None.
        """
        pool = self.pool
        while before is not None:  # see ConnectionPool.exclusive
            if pool.guard.acquire(timeout=_PATIENCE):
                pool.guard.release()
                break
            if before.connection.kv:
                return before
        if before is not None and before.connection.kv:
            return before
        if pool.closed:
            raise store_closed_error()
        return pool.checkout()

    def pin(self) -> Pin:
        """Pin this thread's connection, for an operation that lasts longer than one
        call.

        Raises as :meth:`checkout` does.
        """
        while True:
            pin = Pin(self.checkout())
            if pin.connection.kv:
                return pin

    def handle(self) -> Any:
        """Return this thread's native store handle.

        Raises as :meth:`checkout` does.
        """
        while True:
            kv = self.checkout().connection.kv
            if kv:
                return kv

    def thread_connection(self) -> Optional[Connection]:
        """Return the connection that this thread has checked out, or None."""
        checkout = getattr(self.local, "checkout", None)
        return None if checkout is None else checkout.connection

    def in_transaction(self) -> bool:
        """Return whether this thread has a transaction open.

        A transaction whose object was collected is rolled back first.
        """
        connection = self.thread_connection()
        if connection is None or connection.transaction_thread != threading.get_ident():
            return False
        if not connection.roll_back_abandoned(connection.lock):
            return True
        self.changed()
        return False

    @contextmanager
    def exclusive(self, keep: bool) -> Iterator[Connection]:
        """A ``with`` block in which no other connection is open, so that it can change the whole
        file.

        With ``keep``, this thread's connection (or the cleaner's) stays open.

        Raises:
            BusyError: If a transaction is open in this thread, a cleaner runs, or other threads are
                not done within ``busy_timeout``.
        """
        checkout = self.checkout()
        if self.in_transaction():
            raise BusyError("a transaction is open in this thread: end it before this call")
        self.pool.roll_back_abandoned()
        if self.cleaner is not None and (not keep or self.cleaner.connection is not checkout.connection):
            raise BusyError("the cleaner is running: call stop_cleaner() first")
        try:
            with self.pool.exclusive(checkout.connection if keep else None, self._release_handles):
                yield checkout.connection
        finally:
            self.changed()

    def _release_handles(self) -> None:
        """Drop the cached family handles of all threads. Those that no call is using are closed.

        Threads open new ones when they need them.
        """
        with self.guard:
            families = list(self.families)
        for family in families:
            if not family._closed:
                family._drop_handles()

    def disable_fast_path(self) -> None:
        """Make all calls of this thread check which asyncio task they belong to, until its handles
        are cached again.
        """
        with self.guard:
            families = list(self.families)
        for family in families:
            family._handles.drop(None)

    def failure(self) -> Failure:
        """Return the last failure of this thread on the store."""
        connection = self.thread_connection()
        return last_failure(NULL) if connection is None else connection.failure()

    def check(self, rc: int) -> None:
        """Raise the exception for the result code of a call on the store. Does nothing on success.

        Like :func:`kvstore._native.check`, for the store handle of this thread.
        """
        if rc:
            self.handle()
            failure = self.failure()
            self.after_failure(rc)
            raise exception_for(rc, failure)

    def after_failure(self, rc: int) -> None:
        """Roll back abandoned transactions if ``rc`` is a busy error, so that a retry can succeed.
        """
        if rc == _BUSY:
            self.pool.roll_back_abandoned()

    def now_ms(self) -> int:
        """Return the current time of the store's clock in milliseconds. On a server it is the
        server's time.
        """
        pool = self.pool
        if pool.remote:
            out = ffi.new("int64_t *")
            self.check(lib.kvstore_time_ms(self.handle(), out))
            return int(out[0])
        clock = pool.clock
        now: int = lib.kvstore_now_ms() if clock is None else clock.now_ms()
        return now

    def size_bytes(self) -> int:
        """Return the size of the store without free pages, in bytes, as this thread sees it."""
        out = ffi.new("KVStoreStats *")
        self.check(lib.kvstore_stats(self.handle(), out))
        return int(out.nSizeBytes)

    def clock(self) -> Optional[Callable[[], int]]:
        """Return a function that gives the store's time in milliseconds, or None for the system
        clock.
        """
        pool = self.pool
        if pool.remote:
            return self.now_ms
        return None if pool.clock is None else pool.clock.now_ms

    def after_fork(self) -> None:
        """Reset the state in the child of a fork. The child opens everything again on first use.

        Locks are replaced: they may have been copied while a thread held them that does not exist
        in the child.
        """
        self.pool.after_fork()
        self.guard = threading.RLock()
        self.cleaner = None
        if not self.pool.in_memory:
            self.local = threading.local()
            for family in list(self.families):
                family._drop_handles()
        self.changed()


_open_stores: weakref.WeakSet[StoreState] = weakref.WeakSet()


def _at_exit() -> None:
    # Stores stay open, because other exit handlers and threads may use them. But the library's
    # threads must not call a Python clock after the interpreter has ended.
    for state in list(_open_stores):
        if state.pool.clock is not None:
            for connection in list(state.pool.connections):
                lib.kvstore_cleaner_stop(connection.kv)
                lib.kvstore_set_clock(connection.kv, NULL, NULL)


atexit.register(_at_exit)


def _after_fork() -> None:
    for state in list(_open_stores):
        state.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
