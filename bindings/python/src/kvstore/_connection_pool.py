"""The connection pool of a store object: one connection for each thread, or one for all threads.

A thread checks a connection out when it first uses the store, and checks it in when the thread
ends. Iterators, batches and transactions pin the connection they began on, so another thread can
continue them, and they outlive their thread. The child of a fork abandons the inherited connections
and opens its own.

Must not depend on families, nor on the methods that users call.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Callable, Optional

from kvstore._counters import COUNTERS, GAUGES, ConnectionCounters, refresh
from kvstore._errors import BusyError, Failure, MisuseError, StoreIOError, exception_for, last_failure
from kvstore._gevent import warn_if_patched_late
from kvstore._hints import Hint
from kvstore._native import NULL, check, ffi, lib
from kvstore._opening import open_handle
from kvstore._path import absolute, file_id, is_in_memory, is_remote
from kvstore._time import Clock, register, unregister

#: The number of connections of ended threads that are kept open for new threads. Opening a
#: connection takes as long as a hundred reads.
_IDLE = 4

#: Interval in seconds between checks whether a connection is still in use.
_PAUSE = 0.001


class Connection:
    """A native store handle, and the transaction that is open on it, if any."""

    __slots__ = (
        "counters", "families", "guard", "inherited", "kv", "lock", "out", "pins", "task", "transaction",
        "transaction_thread",
    )  # fmt: skip

    def __init__(self) -> None:
        #: Where the library writes the handle, so that a KeyboardInterrupt right after opening does
        #: not lose it.
        self.out = ffi.new("KVStore **")
        #: The handle; NULL once closed, and while ConnectionPool.exclusive closes it. It is the same
        #: cdata object always: every call that uses it, or is about to, holds a reference to it.
        self.kv: Any = NULL
        #: Weak references to the family handles that are open on this connection.
        self.families: set[weakref.ref[Any]] = set()
        #: Weak references to the Pins of this connection.
        self.pins: set[weakref.ref[Pin]] = set()
        self.counters = ConnectionCounters()
        #: Whether a parent process opened this connection, before a fork.
        self.inherited = False
        self.reset()

    def opened(self) -> None:
        """Set :attr:`kv`, so that threads can use the handle. Called after the library has opened
        it.
        """
        self.kv = self.out[0]

    def track_family(self, cf: Any) -> None:
        """Record that a family handle was opened on this connection."""
        self.families.add(weakref.ref(cf, self.families.discard))

    def is_used(self) -> bool:
        """Return whether a transaction, batch, iteration or call uses this connection.

        Only valid while :attr:`kv` is NULL, so that none can begin.
        """
        return bool(self.pins or self.families) or self.transaction_thread is not None

    def close(self, _close: Any = lib.kvstore_close, _null: Any = NULL) -> int:  # bound: at exit, globals may be gone
        """Close the native handle and return the result code.

        :attr:`kv` is NULL from before the close on.
        """
        kv = self.out[0]
        self.out[0] = self.kv = _null
        rc: int = _close(kv)
        return rc

    def __del__(self, at_exit: Any = sys.is_finalizing) -> None:
        if not getattr(self, "inherited", True) and not at_exit() and self.out[0]:
            self.close()

    def reset(self) -> None:
        """Replace the locks of the connection by new ones, and forget the transaction that is open
        on it.
        """
        #: The lock that the open transaction holds.
        self.lock: Any = threading.RLock()
        #: The lock that is held while an abandoned transaction is rolled back.
        self.guard = threading.RLock()  # reentrant: the garbage collector may leave another block meanwhile
        #: The thread that has a transaction open.
        self.transaction_thread: Optional[int] = None
        #: A weak reference to that Transaction; it yields None once the transaction was collected.
        self.transaction: Any = None
        #: The asyncio task that began the transaction, if any.
        self.task: Any = None

    def failure(self) -> Failure:
        """Return the last failure of this thread on the connection."""
        return last_failure(self.kv, self.transaction_thread not in (None, threading.get_ident()))

    def roll_back_abandoned(self, lock: Any, left: Any = None) -> bool:
        """Roll back a transaction that its program will never end, and return whether there was
        one.

        It is the transaction that holds ``lock``, if its object was collected, or if it is
        ``left``, whose block was left in another thread.

        The connection then has a new lock; threads that wait for the old one switch to it.
        """
        with self.guard:
            transaction = self.transaction
            if transaction is None or transaction() is not left or self.transaction is not transaction or self.lock is not lock:
                return False
            lib.kvstore_rollback(self.kv)
            self.transaction = self.transaction_thread = self.task = None
            self.lock = threading.RLock()
            return True

    def check_task(self) -> None:
        """Raise MisuseError if the open transaction of this thread belongs to another asyncio task."""
        task = self.task
        if task is None or self.transaction_thread != threading.get_ident() or current_task() is task:
            return
        if not self.roll_back_abandoned(self.lock):
            raise MisuseError(
                "another asyncio task of this thread has a transaction open on this store, and this call "
                "would become part "
                "of it: do not await inside a transaction, or use kvstore.aio, where a transaction belongs to a task"
            )


class Pin:
    """Keeps a connection open for an operation that lasts longer than one call, such as an
    iteration.

    See :meth:`ConnectionPool.exclusive`.
    """

    __slots__ = ("__weakref__", "checkout", "connection")

    def __init__(self, checkout: Checkout) -> None:
        self.checkout = checkout
        self.connection = checkout.connection
        # A weak reference and not __del__: a KeyboardInterrupt raised inside __del__ is lost.
        self.connection.pins.add(weakref.ref(self, self.connection.pins.discard))

    def release(self) -> None:
        """Let the connection be closed or given to another thread."""
        self.connection.pins.discard(weakref.ref(self))


class Checkout:
    """The assignment of a connection to a thread. The connection is checked in when the last
    reference to the checkout is dropped.
    """

    __slots__ = ("connection", "pool")

    def __init__(self, connection: Connection, pool: ConnectionPool) -> None:
        self.connection = connection
        self.pool = pool

    def __del__(self) -> None:
        pool = getattr(self, "pool", None)
        if pool is not None:
            pool.checkin(self.connection)


class ConnectionPool:
    """All connections of a store object.

    Checkouts refer to it, so it must not refer to the store.
    """

    __slots__ = (
        "clock", "clock_context", "closed", "closed_count", "closed_counters", "config", "connections", "encrypts", "file_id",
        "guard", "idle", "in_memory", "last_busy", "opening", "path", "pid", "remote", "secret", "single",
    )  # fmt: skip

    def __init__(
        self, path: bytes, config: Any, single: bool, secret: Optional[bytes] = None, encrypts: bool = False
    ) -> None:
        """Store the path and the settings with which connections are opened later.

        ``single``: all threads share one connection. ``encrypts``: a store that is not encrypted is
        encrypted with ``secret`` in place.
        """
        warn_if_patched_late(lib)
        self.in_memory = is_in_memory(path)
        #: Whether the store is on a server. The path is then its URL, and times are the server's.
        self.remote = is_remote(path)
        if self.in_memory and secret is not None:
            raise ValueError(
                "a store in memory cannot be encrypted: give a path, or leave out password= and raw_key="
            )
        if self.remote and secret is not None:
            raise ValueError(
                "a store on a server cannot be encrypted: leave out password= and raw_key=; the server's "
                "password belongs in the URL"
            )
        self.path = absolute(path)
        self.config = config
        #: The password or key of the file, or None.
        self.secret = secret
        #: Whether opening the file with the secret may encrypt it.
        self.encrypts = encrypts
        #: False: one connection per thread. True: one connection for all threads, replaced by its
        #: checkout once it is open.
        self.single: Any = self.in_memory or (single and not self.remote)
        self.closed = False
        #: The connections that are being opened.
        self.opening: dict[object, None] = {}
        #: The open connections. The thread that removes one from the list closes it.
        self.connections: list[Connection] = []
        #: Open connections that no thread uses.
        self.idle: list[Connection] = []
        #: The summed counters of closed connections, and how many were closed.
        self.closed_counters = dict.fromkeys(COUNTERS, 0)
        self.closed_count = 0
        self.clock: Optional[Clock] = None
        self.clock_context: Any = NULL
        #: The lock for opening a connection and for changing all of them. It is not held to return
        #: one: finalizers do that in any thread.
        self.guard: Any = threading.RLock()
        self.pid = os.getpid()
        #: When the single connection could last not be opened because the file was locked, and the
        #: failure. Threads that waited through that attempt do not wait again.
        self.last_busy = (0.0, Failure("", None))
        #: The identity of the file. Another file under the same name is another store.
        self.file_id: Optional[tuple[int, int]] = None

    def checkout(self) -> Checkout:
        """Assign a connection to this thread, which has none, and return the checkout.

        Raises:
            MisuseError: If the store is closed.
        """
        if not self.single:
            try:
                connection = self.idle.pop()
            except IndexError:
                connection = None
            return Checkout(connection or self._open(), self)
        asked = time.monotonic()
        with self.guard:
            if not isinstance(self.single, Checkout):
                gave_up, failure = self.last_busy
                if asked < gave_up:
                    raise BusyError(failure.text, hint=failure.hint)
                try:
                    self.single = _SharedCheckout(self._open())
                except BusyError as error:
                    self.last_busy = time.monotonic(), Failure(str(error), error.hint)
                    raise
            checkout: Checkout = self.single
            return checkout

    def _open(self) -> Connection:
        if self.closed:
            raise store_closed_error()
        if self.file_id is not None and self.file_id != file_id(self.path):
            raise StoreIOError(
                "the store file was deleted, moved or replaced while the store was open: close this store and "
                "open it at its new path",
                hint=Hint.OPEN_AGAIN,
            )
        connection = Connection()
        with self.guard:  # a change of the secret waits until this connection is open
            self.opening[connection] = None
        try:
            open_handle(self.path, self.secret, self.encrypts, connection.out, self.config)
            connection.opened()
            self.connections.append(connection)
        finally:
            del self.opening[connection]
        with self.guard:
            if self.clock_context and connection.kv:
                lib.kvstore_set_clock(connection.kv, lib.kvpy_clock, self.clock_context)
        if self.closed:
            self._close(connection)
            raise store_closed_error()
        if self.file_id is None:
            self.file_id = file_id(self.path)
        return connection

    def checkin(
        self,
        connection: Connection,
        getpid: Any = os.getpid,
        rollback: Any = lib.kvstore_rollback,
        at_exit: Any = sys.is_finalizing,
    ) -> None:
        """Make the connection of a thread that has ended available to another thread.

        Called by finalizers, so it takes no lock.
        """
        if self.closed or connection.inherited or getpid() != self.pid or at_exit() or not connection.out[0]:
            return  # closing the store closes it; an inherited connection is left alone
        if connection.transaction_thread is not None:
            rollback(connection.kv)
        connection.reset()
        self.idle.append(connection)
        if len(self.idle) > _IDLE:
            try:
                connection = self.idle.pop(0)
            except IndexError:
                return
            self._close(connection)

    def _close(self, connection: Connection) -> None:
        """Close one connection, and add its counters to those of the store."""
        try:
            self.connections.remove(connection)
        except ValueError:
            return  # another thread closes it
        connection.counters.read(connection.out[0])
        connection.counters.add_to(self.closed_counters)
        self.closed_count += 1
        connection.close()

    def close(self, first: Optional[Connection]) -> int:
        """Close all connections, ``first`` before the others. Return the result code of the first
        failure.

        All are closed even if one fails.

        Raises:
            MisuseError: If called inside a callback of one of them (a clock or progress function).
                They stay open.
        """
        with self.guard:
            if self.closed:
                return 0
            if self.clock is not None and self.clock.is_asked():
                raise MisuseError("the store cannot be closed inside its own clock function: close it elsewhere")
            self.closed = True
        failure = 0
        try:
            while True:
                connection = self._next_to_close(first)
                if connection is None:
                    break
                kv = connection.out[0]
                rc = connection.close()
                if rc == lib.KVSTORE_MISUSE and not connection.inherited:
                    connection.out[0] = connection.kv = kv
                    self.connections.append(connection)
                    self.closed = False
                    raise exception_for(rc, last_failure(NULL))
                if not connection.inherited:
                    failure = failure or rc
        finally:
            if self.closed and self.clock_context:
                unregister(self.clock_context)
        return failure

    def _next_to_close(self, first: Optional[Connection]) -> Optional[Connection]:
        if first is not None:
            try:
                self.connections.remove(first)
                return first
            except ValueError:
                pass
        try:
            return self.connections.pop()
        except IndexError:
            return None

    def set_clock(self, clock: Optional[Clock]) -> None:
        """Set the clock of all current and future connections; None is the system clock."""
        if self.clock is not None and self.clock.is_asked():
            raise MisuseError("the clock cannot be replaced inside its own function: call set_clock() elsewhere")
        context = NULL if clock is None else register(clock)
        function = NULL if clock is None else lib.kvpy_clock
        with self.guard:
            before = self.clock_context
            for number, connection in enumerate(list(self.connections)):
                rc = lib.kvstore_set_clock(connection.kv, function, context) if connection.kv else 0
                if rc and number == 0:
                    if context:
                        unregister(context)
                    check(rc, connection.kv)
            self.clock, self.clock_context = clock, context
        if before:
            unregister(before)

    def stats(self, kv: Any) -> dict[str, int]:
        """Return the counters of the store by their C names, summed over all connections, open and
        closed.

        Current values, such as the size, are those of ``kv``, the handle of this thread. The
        counters of a connection that another thread uses for long are those of the last call.
        """
        out = ffi.new("KVStoreStats *")
        check(lib.kvstore_stats(kv, out), kv)
        while True:
            closed_count = self.closed_count
            sums = dict(self.closed_counters)
            connections = list(self.connections)
            self._refresh(connections, kv)
            for connection in connections:
                if connection.kv:
                    connection.counters.add_to(sums)
            if closed_count == self.closed_count:
                break
        sums.update((name, int(getattr(out, name))) for name in GAUGES)
        return sums

    def stats_reset(self, kv: Any) -> None:
        """Set the counters of all connections to zero. ``kv`` is the handle of this thread."""
        self.closed_counters = dict.fromkeys(COUNTERS, 0)
        connections = list(self.connections)
        for connection in connections:
            connection.counters.reset()
        self._refresh(connections, kv)

    @staticmethod
    def _refresh(connections: list[Connection], own: Any) -> None:
        """Read the counters of connections. Raise the exception of the first that fails."""
        refresh([(connection.counters, connection.kv) for connection in connections if connection.kv], own)
        for connection in connections:
            if connection.kv:
                check(connection.counters.failed, connection.kv)

    @contextmanager
    def exclusive(self, but: Optional[Connection], release_handles: Callable[[], None]) -> Iterator[None]:
        """A ``with`` block in which no other connection is open, so that it can change the whole
        file.

        ``but`` stays open if it is not None. Threads without a connection wait. Operations of other
        threads are waited for, up to ``busy_timeout``; then BusyError. ``release_handles`` releases
        idle family handles.

        A user of a connection holds a Pin, a reference to its handle or to a family handle, or a
        transaction on it, and then checks that :attr:`Connection.kv` is not NULL. This method first
        sets ``kv`` to NULL and then looks for users. Therefore one of the two always notices the
        other.
        """
        end = time.monotonic() + self.config.busyTimeout / 1000
        with self.guard:
            if self.clock is not None and self.clock.is_asked():
                raise MisuseError(
                    "the store cannot be encrypted or decrypted inside its own clock function: call it "
                    "elsewhere"
                )
            while True:
                release_handles()
                opening = bool(self.opening)  # read first: a connection that opens meanwhile is in the list
                used = [one for one in list(self.connections) if one is not but and not self._close_unused(one)]
                if not used and not opening:
                    break
                if time.monotonic() >= end:
                    raise BusyError(
                        "the store is in use by another thread, or has an open transaction, batch or "
                        "iteration: end these, "
                        "then call again"
                    )
                time.sleep(_PAUSE)
            yield

    def _close_unused(self, connection: Connection) -> bool:
        """Close a connection unless it is in use, and return whether it was closed."""
        if connection.is_used():
            return False
        handle = weakref.ref(connection.kv)
        connection.kv = NULL
        if connection.is_used() or handle() is not None:
            connection.opened()
            return False
        try:
            self.idle.remove(connection)
        except ValueError:
            pass  # it belongs to a thread, which will open another one
        self._close(connection)
        return True

    def roll_back_abandoned(self) -> bool:
        """Roll back all transactions whose objects were collected before they ended.

        Return whether there were any.
        """
        rolled_back = [connection.roll_back_abandoned(connection.lock) for connection in list(self.connections)]
        return any(rolled_back)

    def after_fork(self) -> None:
        """Abandon the inherited connections in the child of a fork, because the parent still uses
        them.

        A store in memory cannot be opened again. Its connection is kept, so that each call reports
        that it belongs to the parent.
        """
        self.guard = threading.RLock()
        self.opening = {}
        self.pid = os.getpid()
        if self.clock is not None:
            self.clock.after_fork()
        for connection in self.connections:
            connection.inherited = True
            connection.reset()
        if not self.in_memory:
            self.connections, self.idle = [], []
            self.single = bool(self.single)
            self.closed_counters = dict.fromkeys(COUNTERS, 0)


class _SharedCheckout(Checkout):
    """The checkout of a connection that all threads share. The connection is closed with the store."""

    __slots__ = ()

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def __del__(self) -> None:
        pass


def current_task() -> Any:
    """Return the running asyncio task, or None."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return None
    try:
        return asyncio.current_task()
    except (RuntimeError, AttributeError):  # no running loop, or asyncio is being imported
        return None


def store_closed_error() -> MisuseError:
    return MisuseError("the store is closed: open it again")
