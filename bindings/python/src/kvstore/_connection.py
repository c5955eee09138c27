"""The native handles of a store object: one connection for each thread, or one for all threads.

A thread's connection is opened when the thread first uses the store, and returned when the thread
ends. Iterators, batches and transactions keep the connection they began on, so another thread can
continue them, and they outlive their thread. The child of a fork abandons the inherited connections
and opens its own.

Must not depend on families, nor on the methods that users call.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Callable, Optional, Union

from kvstore._errors import BusyError, Failure, MisuseError, StoreIOError, exception_for, last_failure
from kvstore._native import NULL, check, ffi, lib
from kvstore._time import Clock, register, unregister

#: The number of connections of ended threads that are kept open for new threads. Opening a
#: connection takes as long as a hundred reads.
_IDLE = 4

#: Interval in seconds between checks whether a connection is still in use.
_PAUSE = 0.001

_COUNTERS = tuple(name for name, _ in ffi.typeof("KVStoreStats").fields if name != "reserved")
#: Names of statistics that are current values, not counters. They are not summed over connections.
GAUGES = ("nDbPages", "nWalFrames", "nSizeBytes")


class Connection:
    """A native store handle, and the transaction that is open on it, if any."""

    __slots__ = ("families", "guard", "holds", "inherited", "kv", "lock", "out", "task", "transaction", "transaction_thread")

    def __init__(self) -> None:
        #: Where the library writes the handle, so that a KeyboardInterrupt right after opening does
        #: not lose it.
        self.out = ffi.new("KVStore **")
        #: The handle; NULL once closed, and while Connections.alone closes it. Always the same
        #: cdata object: every call that uses it, or is about to, holds a reference to it.
        self.kv: Any = NULL
        #: Weak references to the family handles that are open on this connection.
        self.families: set[weakref.ref[Any]] = set()
        #: Weak references to the Holds of this connection.
        self.holds: set[weakref.ref[Hold]] = set()
        #: Whether a parent process opened this connection, before a fork.
        self.inherited = False
        self.renew()

    def opened(self) -> None:
        """Set :attr:`kv`, so that threads can use the handle. Called after the library has opened
        it.
        """
        self.kv = self.out[0]

    def keep_family(self, cf: Any) -> None:
        """Record that a family handle was opened on this connection."""
        self.families.add(weakref.ref(cf, self.families.discard))

    def is_used(self) -> bool:
        """Return whether a transaction, batch, iteration or call uses this connection.

        Only valid while :attr:`kv` is NULL, so that none can begin.
        """
        return bool(self.holds or self.families) or self.transaction_thread is not None

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

    def renew(self) -> None:
        """Replace the locks of the connection by new ones, and forget the transaction that is open
        on it.
        """
        #: The lock that the open transaction holds.
        self.lock: Any = threading.RLock()
        #: The lock that is held while a forgotten transaction is rolled back.
        self.guard = threading.RLock()  # reentrant: the garbage collector may leave another block meanwhile
        #: The thread that has a transaction open.
        self.transaction_thread: Optional[int] = None
        #: A weak reference to that Transaction; it yields None once the transaction was forgotten.
        self.transaction: Any = None
        #: The asyncio task that began the transaction, if any.
        self.task: Any = None

    def failure(self) -> Failure:
        """Return the last failure of this thread on the connection."""
        return last_failure(self.kv, self.transaction_thread not in (None, threading.get_ident()))

    def end_forgotten(self, lock: Any, left: Any = None) -> bool:
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
        if not self.end_forgotten(self.lock):
            raise MisuseError(
                "another asyncio task of this thread has a transaction open on this store, and this call "
                "would become part "
                "of it: do not await inside a transaction, or use kvstore.aio, where a transaction belongs to a task"
            )


class Hold:
    """Keeps a connection open for an operation that lasts longer than one call, such as an
    iteration.

    See :meth:`Connections.alone`.
    """

    __slots__ = ("__weakref__", "connection", "lease")

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self.connection = lease.connection
        # A weak reference and not __del__: a KeyboardInterrupt raised inside __del__ is lost.
        self.connection.holds.add(weakref.ref(self, self.connection.holds.discard))

    def release(self) -> None:
        """Let the connection be closed or given to another thread."""
        self.connection.holds.discard(weakref.ref(self))


class Lease:
    """Assigns a connection to a thread. The connection is returned when the last reference to the
    lease is dropped.
    """

    __slots__ = ("connection", "connections")

    def __init__(self, connection: Connection, connections: Connections) -> None:
        self.connection = connection
        self.connections = connections

    def __del__(self) -> None:
        connections = getattr(self, "connections", None)
        if connections is not None:
            connections.give_back(self.connection)


class Connections:
    """All connections of a store object.

    Leases refer to it, so it must not refer to the store.
    """

    __slots__ = (
        "all", "clock", "clock_context", "closed", "config", "ended", "endings", "file", "for_all", "guard", "idle",
        "in_memory", "locked", "opening", "path", "pid", "remote", "secret",
    )  # fmt: skip

    def __init__(self, path: bytes, config: Any, for_all: bool, secret: Optional[bytes] = None) -> None:
        """Store the path and the settings with which connections are opened later.

        ``for_all``: all threads share one connection.
        """
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
        #: False: one connection per thread. True: one connection for all threads, replaced by its
        #: lease once it is open.
        self.for_all: Any = self.in_memory or (for_all and not self.remote)
        self.closed = False
        #: The connections that are being opened.
        self.opening: dict[object, None] = {}
        #: The open connections. The thread that removes one from the list closes it.
        self.all: list[Connection] = []
        #: Open connections that no thread uses.
        self.idle: list[Connection] = []
        #: The summed counters of closed connections, and how many were closed.
        self.ended = dict.fromkeys(_COUNTERS, 0)
        self.endings = 0
        self.clock: Optional[Clock] = None
        self.clock_context: Any = NULL
        #: The lock for opening a connection and for changing all of them. It is not held to return
        #: one: finalizers do that in any thread.
        self.guard: Any = threading.RLock()
        self.pid = os.getpid()
        #: When the last failed open of the shared connection gave up on a locked file, and its
        #: failure. Threads that waited through that attempt do not wait again.
        self.locked = (0.0, Failure("", None))
        #: The identity of the file. Another file under the same name is another store.
        self.file: Optional[tuple[int, int]] = None

    def lease(self) -> Lease:
        """Assign a connection to this thread, which has none, and return the lease.

        Raises:
            MisuseError: If the store is closed.
        """
        if not self.for_all:
            try:
                connection = self.idle.pop()
            except IndexError:
                connection = None
            return Lease(connection or self._open(), self)
        asked = time.monotonic()
        with self.guard:
            if not isinstance(self.for_all, Lease):
                gave_up, failure = self.locked
                if asked < gave_up:
                    raise BusyError(failure.text, hint=failure.hint)
                try:
                    self.for_all = _LeaseForAll(self._open())
                except BusyError as error:
                    self.locked = time.monotonic(), Failure(str(error), error.hint)
                    raise
            lease: Lease = self.for_all
            return lease

    def _open(self) -> Connection:
        if self.closed:
            raise store_is_closed()
        if self.file is not None and self.file != file_at(self.path):
            raise StoreIOError(
                "the store file was deleted, moved or replaced while the store was open: close this store and "
                "open it at its new path"
            )
        connection = Connection()
        with self.guard:  # a change of the secret waits until this connection is open
            self.opening[connection] = None
        try:
            secret = self.secret
            if secret is None:
                rc = lib.kvstore_open_v2(self.path, connection.out, self.config)
            else:
                rc = lib.kvstore_open_encrypted(self.path, secret, len(secret), connection.out, self.config)
            if rc == lib.KVSTORE_ERROR:
                raise last_failure(NULL).rejected()
            check(rc)
            connection.opened()
            self.all.append(connection)
        finally:
            del self.opening[connection]
        with self.guard:
            if self.clock_context and connection.kv:
                lib.kvstore_set_clock(connection.kv, lib.kvpy_clock, self.clock_context)
        if self.closed:
            self._end(connection)
            raise store_is_closed()
        if self.file is None:
            self.file = file_at(self.path)
        return connection

    def give_back(
        self,
        connection: Connection,
        getpid: Any = os.getpid,
        rollback: Any = lib.kvstore_rollback,
        at_exit: Any = sys.is_finalizing,
    ) -> None:
        """Take back the connection of a thread that has ended, for use by another thread.

        Called by finalizers, so it takes no lock.
        """
        if self.closed or connection.inherited or getpid() != self.pid or at_exit() or not connection.out[0]:
            return  # closing the store closes it; an inherited connection is left alone
        if connection.transaction_thread is not None:
            rollback(connection.kv)
        connection.renew()
        self.idle.append(connection)
        if len(self.idle) > _IDLE:
            try:
                connection = self.idle.pop(0)
            except IndexError:
                return
            self._end(connection)

    def _end(self, connection: Connection) -> None:
        """Close one connection, and add its counters to those of the store."""
        try:
            self.all.remove(connection)
        except ValueError:
            return  # another thread closes it
        self.add_up(connection.out[0], self.ended)
        self.endings += 1
        connection.close()

    def add_up(self, kv: Any, sums: dict[str, int]) -> int:
        """Add the counters of a connection to ``sums``, and return the result code."""
        out = ffi.new("KVStoreStats *")
        rc: int = lib.kvstore_stats(kv, out)
        if rc == 0:
            for name in _COUNTERS:
                if name not in GAUGES:
                    sums[name] += int(getattr(out, name))
        return rc

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
                connection = self._take(first)
                if connection is None:
                    break
                kv = connection.out[0]
                rc = connection.close()
                if rc == lib.KVSTORE_MISUSE and not connection.inherited:
                    connection.out[0] = connection.kv = kv
                    self.all.append(connection)
                    self.closed = False
                    raise exception_for(rc, last_failure(NULL))
                if not connection.inherited:
                    failure = failure or rc
        finally:
            if self.closed and self.clock_context:
                unregister(self.clock_context)
        return failure

    def _take(self, first: Optional[Connection]) -> Optional[Connection]:
        if first is not None:
            try:
                self.all.remove(first)
                return first
            except ValueError:
                pass
        try:
            return self.all.pop()
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
            for number, connection in enumerate(list(self.all)):
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

        Current values, such as the size, are those of ``kv``.
        """
        own = ffi.new("KVStoreStats *")
        check(lib.kvstore_stats(kv, own), kv)
        while True:
            endings = self.endings
            sums = dict(self.ended)
            for connection in list(self.all):
                kv_there = connection.kv
                rc = self.add_up(kv_there, sums) if kv_there else 0
                if connection.kv:
                    check(rc, connection.kv)
            if endings == self.endings:
                break
        sums.update((name, int(getattr(own, name))) for name in GAUGES)
        return sums

    def stats_reset(self) -> None:
        """Set the counters of all connections to zero."""
        self.ended = dict.fromkeys(_COUNTERS, 0)
        for connection in list(self.all):
            kv = connection.kv
            rc = lib.kvstore_stats_reset(kv) if kv else 0
            if connection.kv:
                check(rc, connection.kv)

    @contextmanager
    def alone(self, but: Optional[Connection], let_go: Callable[[], None]) -> Iterator[None]:
        """A ``with`` block in which no other connection is open, so that it can change the whole file.

        ``but`` stays open if it is not None. Threads without a connection wait. Operations of other
        threads are waited for, up to ``busy_timeout``; then BusyError. ``let_go`` releases idle
        family handles.

        A user of a connection holds a Hold, a reference to its handle or to a family handle, or a
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
                let_go()
                opening = bool(self.opening)  # read first: a connection that opens meanwhile is in the list
                used = [one for one in list(self.all) if one is not but and not self._end_unused(one)]
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

    def _end_unused(self, connection: Connection) -> bool:
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
        self._end(connection)
        return True

    def end_forgotten(self) -> bool:
        """Roll back all transactions whose objects were collected before they ended.

        Return whether there were any.
        """
        ended = [connection.end_forgotten(connection.lock) for connection in list(self.all)]
        return any(ended)

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
        for connection in self.all:
            connection.inherited = True
            connection.renew()
        if not self.in_memory:
            self.all, self.idle = [], []
            self.for_all = bool(self.for_all)
            self.ended = dict.fromkeys(_COUNTERS, 0)


class _LeaseForAll(Lease):
    """The lease of a connection that all threads share. The connection is closed with the store."""

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


def store_is_closed() -> MisuseError:
    return MisuseError("the store is closed: open it again")


def encoded(path: Union[None, str, bytes, os.PathLike[str], os.PathLike[bytes]]) -> bytes:
    """Return a path as bytes; empty bytes for None.

    Raises:
        ValueError: For an empty path or one with a NUL.
    """
    if path is None:
        return b""
    name = os.fsencode(path)
    if not name:
        raise ValueError("path is empty: give a file name, or None or ':memory:' for a store in memory")
    if b"\0" in name:
        raise ValueError("path contains a NUL character: give a path without one")
    return name


def is_in_memory(path: bytes) -> bool:
    return path in (b"", b":memory:")


def is_remote(path: bytes) -> bool:
    """Return whether a path is the URL of a store on a server."""
    return path.startswith((b"postgresql://", b"postgres://"))


#: The parts of a URL that messages may show: where it leads. Anything else may be a secret, even a
#: mistyped part.
_SHOWN = re.compile(
    r"(?P<scheme>postgres(?:ql)?://)(?:(?P<user>[^:/?#@\s]*)(?::[^/?#@]*)?@)?(?P<host>(?:[\w.,-]|\[[0-9A-Fa-f:.]*\]|%[0-9A-Fa-f]{2}|:\d+(?=[,/?]|$))*)"
    r"(?P<name>/[^/?#@:]*)?(?:\?(?P<query>[^?#@]*))?"
)
_SHOWN_PARAMETERS = ("host", "port", "user", "dbname", "schema")


def shown(path: str) -> str:
    """Return a path as text for messages. In a URL, the password is left out, and whatever may be
    one.
    """
    if not is_remote(path.encode("utf-8", "surrogateescape")):
        return path
    found = _SHOWN.fullmatch(path)
    if found is None:
        return path[: path.index("//") + 2] + "..."
    user = f"{found['user']}@" if found["user"] else ""
    given = (found["query"] or "").split("&")
    query = "&".join(one for one in given if one.partition("=")[0] in _SHOWN_PARAMETERS)
    return f"{found['scheme']}{user}{found['host']}{found['name'] or ''}{'?' if query else ''}{query}"


def absolute(path: bytes) -> bytes:
    """Return an absolute path, which a later chdir does not affect. Paths that are not files are
    returned unchanged.
    """
    if is_in_memory(path) or re.match(rb"[A-Za-z][A-Za-z0-9+.-]*://", path):
        return path
    if os.name == "nt":  # "C:name" is relative to that drive's folder, and "\\name" to the current drive
        return os.path.abspath(path)
    if os.path.isabs(path):
        return path
    try:
        return os.path.join(os.getcwdb(), path)
    except OSError:
        return path


def file_at(path: bytes) -> Optional[tuple[int, int]]:
    """Return the device and inode of the file at a path; None for a URL, or if no file exists."""
    if is_remote(path):
        return None
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino
