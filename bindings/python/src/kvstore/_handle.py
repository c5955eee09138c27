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
  open new ones. A handle is closed only while it is not in use: see Connections.alone.

The methods that users call are in _expiry, _family and _store.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any, Callable, NoReturn, Optional

from kvstore._codec import Coding
from kvstore._connection import Connection, Connections, Hold, Lease, store_is_closed
from kvstore._errors import BusyError, Failure, MisuseError, NotFoundError, exception_for, last_failure
from kvstore._native import NULL, Handles, ffi, lib, to_bytes
from kvstore._time import Duration, Moment, expires_at_ms, ttl_ms, unregister

_ERROR: int = lib.KVSTORE_ERROR
_NOTFOUND: int = lib.KVSTORE_NOTFOUND
_BUSY: int = lib.KVSTORE_BUSY
#: Interval in seconds between checks whether a thread's connection is usable again.
_PATIENCE = 0.001


class Shared:
    """The state that a store, its families and its iterators share, in all threads."""

    __slots__ = ("__weakref__", "changes", "cleaner", "connections", "families", "guard", "local", "scans")

    def __init__(self, connections: Connections) -> None:
        self.connections = connections
        #: Its attribute `lease` is the lease of each thread.
        self.local = threading.local()
        #: [0] is replaced after each write through this store; iterations compare it.
        self.changes: list[object] = [object()]
        #: One element for each running iteration: while it is empty, writes need not signal a
        #: change.
        self.scans: list[None] = []
        #: The lease on which the cleaner runs, or None.
        self.cleaner: Optional[Lease] = None
        #: Held to use the list of families.
        self.guard: Any = threading.RLock()
        self.families: weakref.WeakSet[Handle] = weakref.WeakSet()
        _open_stores.add(self)

    def __del__(self, _unregister: Any = unregister) -> None:  # bound: at exit, globals may be gone
        connections = getattr(self, "connections", None)
        if connections is None or connections.closed:
            return
        connections.closed = True
        for connection in connections.all:
            if not connection.inherited:
                connection.close()
        if connections.clock_context:
            _unregister(connections.clock_context)

    @property
    def closed(self) -> bool:
        return self.connections.closed

    def changed(self) -> None:
        """Make running iterations read again, because the store was written to.

        Must be called after each write; hot paths skip it if nothing iterates.
        """
        self.changes[0] = object()

    def lease(self) -> Lease:
        """Return the lease of this thread's connection.

        Raises:
            MisuseError: If the store is closed, or another asyncio task has a transaction open in
                this thread.
        """
        if self.connections.closed:
            raise store_is_closed()
        local = self.local
        lease: Optional[Lease] = getattr(local, "lease", None)
        if lease is None or not lease.connection.kv:
            lease = local.lease = self._leased(lease)
        if lease.connection.task is not None:
            lease.connection.check_task()
        return lease

    def _leased(self, before: Optional[Lease]) -> Lease:
        """Return a usable lease for this thread.

        ``before`` is its current lease, whose connection was closed or is being closed; or None.
        """
        connections = self.connections
        while before is not None:  # see Connections.alone
            if connections.guard.acquire(timeout=_PATIENCE):
                connections.guard.release()
                break
            if before.connection.kv:
                return before
        if before is not None and before.connection.kv:
            return before
        if connections.closed:
            raise store_is_closed()
        return connections.lease()

    def hold(self) -> Hold:
        """Return a Hold of this thread's connection, for an operation that lasts longer than one
        call.

        Raises as :meth:`lease` does.
        """
        while True:
            hold = Hold(self.lease())
            if hold.connection.kv:
                return hold

    def handle(self) -> Any:
        """Return this thread's native store handle.

        Raises as :meth:`lease` does.
        """
        while True:
            kv = self.lease().connection.kv
            if kv:
                return kv

    def connection_here(self) -> Optional[Connection]:
        """Return the connection that this thread has leased, or None."""
        lease = getattr(self.local, "lease", None)
        return None if lease is None else lease.connection

    def in_transaction(self) -> bool:
        """Return whether this thread has a transaction open.

        A transaction whose object was collected is rolled back first.
        """
        connection = self.connection_here()
        if connection is None or connection.transaction_thread != threading.get_ident():
            return False
        if not connection.end_forgotten(connection.lock):
            return True
        self.changed()
        return False

    @contextmanager
    def alone(self, keep: bool) -> Iterator[Connection]:
        """A ``with`` block in which no other connection is open, so that it can change the whole
        file.

        With ``keep``, this thread's connection (or the cleaner's) stays open.

        Raises:
            BusyError: If a transaction is open in this thread, a cleaner runs, or other threads are
                not done within ``busy_timeout``.
        """
        lease = self.lease()
        if self.in_transaction():
            raise BusyError("a transaction is open in this thread: end it before this call")
        self.connections.end_forgotten()
        if self.cleaner is not None and (not keep or self.cleaner.connection is not lease.connection):
            raise BusyError("the cleaner is running: call stop_cleaner() first")
        try:
            with self.connections.alone(lease.connection if keep else None, self._let_go):
                yield lease.connection
        finally:
            self.changed()

    def _let_go(self) -> None:
        """Drop the cached family handles of all threads. Those that no call is using are closed.

        Threads open new ones when they need them.
        """
        with self.guard:
            families = list(self.families)
        for family in families:
            if not family._closed:
                family._forget()

    def use_slow_paths(self) -> None:
        """Make all calls of this thread check which asyncio task they belong to, until its handles
        are cached again.
        """
        with self.guard:
            families = list(self.families)
        for family in families:
            family._handles.drop(None)

    def failure(self) -> Failure:
        """Return the last failure of this thread on the store."""
        connection = self.connection_here()
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
        """Roll back forgotten transactions if ``rc`` is a busy error, so that a retry can succeed.
        """
        if rc == _BUSY:
            self.connections.end_forgotten()

    def now_ms(self) -> int:
        """Return the current time of the store's clock in milliseconds. On a server it is the
        server's time.
        """
        connections = self.connections
        if connections.remote:
            out = ffi.new("int64_t *")
            self.check(lib.kvstore_time_ms(self.handle(), out))
            return int(out[0])
        clock = connections.clock
        now: int = lib.kvstore_now_ms() if clock is None else clock.now_ms()
        return now

    def clock(self) -> Optional[Callable[[], int]]:
        """Return a function that gives the store's time in milliseconds, or None for the system
        clock.
        """
        connections = self.connections
        if connections.remote:
            return self.now_ms
        return None if connections.clock is None else connections.clock.now_ms

    def after_fork(self) -> None:
        """Reset the state in the child of a fork. The child opens everything again on first use.

        Locks are replaced: they may have been copied while a thread held them that does not exist
        in the child.
        """
        self.connections.after_fork()
        self.guard = threading.RLock()
        self.cleaner = None
        if not self.connections.in_memory:
            self.local = threading.local()
            for family in list(self.families):
                family._forget()
        self.changed()


_open_stores: weakref.WeakSet[Shared] = weakref.WeakSet()


def _at_exit() -> None:
    # Stores stay open, because other exit handlers and threads may use them. But the library's
    # threads must not call a Python clock after the interpreter has ended.
    for shared in list(_open_stores):
        if shared.connections.clock is not None:
            for connection in list(shared.connections.all):
                lib.kvstore_cleaner_stop(connection.kv)
                lib.kvstore_set_clock(connection.kv, NULL, NULL)


atexit.register(_at_exit)


def _after_fork() -> None:
    for shared in list(_open_stores):
        shared.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class _Kept:
    """Owner of a thread's native handle on a family. It also keeps the connection of the thread
    open.

    The lease is kept as long as the lookup contains the handle.
    """

    __slots__ = ("cf", "handles", "lease", "thread")

    def __init__(self, cf: Any, lease: Lease, handles: Any) -> None:
        self.cf = cf
        self.lease = lease
        self.handles = handles
        #: The thread's number in the lookup; None: not in the lookup.
        self.thread: Optional[int] = None

    def use(self) -> None:
        """Put the handle into the lookup table, from which calls take the handle of their thread.

        Does nothing if ``threading.local`` was replaced, as greenlets do.
        """
        if threading.local.__module__ == "_thread":
            self.thread = self.handles.keep(self.cf)

    def __del__(self) -> None:
        if getattr(self, "thread", None) is not None:
            self.handles.drop(self.thread)


class Handle:
    """Base class of families: opens and keeps one native handle per thread."""

    __slots__ = ("__weakref__", "_closed", "_coding", "_handles", "_local", "_name", "_scans", "_shared", "_store")

    #: Its attribute `cf` is this thread's handle, for the fast path. None before the first call,
    #: and while each call must check the asyncio task.
    _handles: Any
    #: Its attribute `kept` holds this thread's handle as long as the thread exists.
    _local: Any
    _shared: Shared
    _scans: list[None]
    _name: str
    _closed: bool
    #: None: keys and values are plain bytes.
    _coding: Optional[Coding]
    #: The store that opened this family; None for the store itself.
    _store: Any

    def _attach(
        self,
        shared: Shared,
        name: str,
        cf: Any,
        hold: Optional[Hold],
        coding: Optional[Coding] = None,
        store: Any = None,
    ) -> None:
        """Initialize the attributes of the family.

        ``cf`` is this thread's native handle on the connection of ``hold``, if it is open already.
        """
        self._shared = shared
        self._scans = shared.scans
        self._name = name
        self._closed = False
        self._coding = coding
        self._store = store
        self._forget()
        if hold is not None:
            hold.connection.keep_family(cf)
            self._local.kept = _Kept(cf, hold.lease, self._handles)
        with shared.guard:
            shared.families.add(self)

    def _detach(self) -> None:
        """Close the native handles of all threads. A running call keeps its handle until it
        returns.
        """
        self._closed = True
        self._forget()

    def _forget(self) -> None:
        """Drop the native handles of all threads. Each thread opens a new one when it needs it."""
        self._handles = Handles()
        self._local = threading.local()

    @property
    def _cf(self) -> Any:
        """The native handle of this family for the current thread. Pass it to the library at once.

        It is closed with its last reference, so do not keep it.
        """
        cf = self._handles.cf
        return self._here() if cf is None else cf

    def _here(self) -> Any:
        """Return this thread's native handle if the lookup table does not contain it.

        That is so on first use, and while an asyncio task has a transaction open.
        """
        hold = self._shared.hold()  # first: a thread that waits in hold() must not hold shared objects
        local, handles = self._local, self._handles  # after that: closing the family replaces them
        if self._closed:
            raise self._is_closed()
        kept = getattr(local, "kept", None)
        if kept is None or not kept.lease.connection.kv:
            kept = local.kept = _Kept(self._open_on(hold.connection), hold.lease, handles)
        connection = hold.connection
        if connection.task is None or connection.transaction_thread != threading.get_ident():
            kept.use()
        return kept.cf

    def _open_on(self, connection: Connection) -> Any:
        """Open a native handle of this family on a connection, and return it."""
        out = place_for_family()
        rc = lib.kvstore_cf_open(connection.kv, self._name.encode(), out)
        if rc:
            self._must_be_open()
            if rc == _NOTFOUND:
                raise NotFoundError(
                    f"family {self._name!r} does not exist for this thread: it was dropped, or the transaction "
                    "that creates "
                    "it is not committed yet"
                )
            raise exception_for(rc, last_failure(connection.kv))
        cf = owned(out)
        connection.keep_family(cf)
        return cf

    # Keys and values of families without a codec; _coded overrides these.

    def _encode(self, value: Any) -> bytes:
        return to_bytes(value, "value")

    def _key(self, data: bytes) -> Any:
        return data

    def _decoded(self, rows: Iterator[Any], kind: int) -> Iterator[Any]:
        """Convert rows from bytes to the keys, values or items that callers get."""
        return rows

    def _fail(self, rc: int) -> NoReturn:
        """Raise the exception for a failed call on the family.

        KVSTORE_ERROR, a rejected argument, becomes InvalidError.
        """
        self._must_be_open()
        if rc == _NOTFOUND:
            raise not_found()
        failure = self._shared.failure()
        if rc == _ERROR:
            raise failure.rejected()
        self._shared.after_failure(rc)
        raise exception_for(rc, failure)

    def _check(self, rc: int) -> None:
        """Raise the exception for the result code of a call on the family. Does nothing on success.

        For calls whose arguments cannot be the cause of a failure.
        """
        if rc:
            self._must_be_open()
            self._shared.check(rc)

    def _must_be_open(self) -> None:
        if self._shared.closed:
            raise store_is_closed()
        if self._closed:
            raise self._is_closed()

    def _is_closed(self) -> MisuseError:
        return MisuseError(f"family {self._name!r} is closed: open it again with store.family()")

    def _default_ttl_ms(self) -> int:
        out = ffi.new("int64_t *")
        rc = lib.kvstore_cf_get_default_ttl(self._cf, out)
        if rc:
            self._fail(rc)
        return int(out[0])

    def _expire_ms(self, ttl: Optional[Duration], expires_at: Optional[Moment]) -> int:
        """Convert ``ttl`` or ``expires_at`` to an expiry time in milliseconds since the Unix epoch.
        0 means never.

        For calls that do not apply the default TTL.
        """
        if ttl is not None:
            if expires_at is not None:
                raise ValueError("ttl= and expires_at= cannot both be set: give one of them")
            ms = ttl_ms(ttl)
        elif expires_at is not None:
            return expires_at_ms(expires_at)
        else:
            ms = self._default_ttl_ms()
        return ms and self._shared.now_ms() + ms


def show_as(name: str, *mixins: type) -> None:
    """Make error messages of Python show the methods of mixin classes under the name of the public
    class.
    """
    for mixin in mixins:
        for method in vars(mixin).values():
            if isinstance(method, FunctionType):
                method.__qualname__ = f"{name}.{method.__name__}"


def not_found() -> NotFoundError:
    """Return the exception for a missing key.

    The message omits the key: keys may be secrets, and messages end up in logs.
    """
    return NotFoundError("no such key")


def place_for_family() -> Any:
    """Return memory into which the library writes the pointer to a family handle that it opens.

    If an interrupt prevents :func:`owned`, the handle is closed with this place.
    """
    return ffi.gc(ffi.new("KVColumnFamily **"), _close_family_in)


def _close_family_in(place: Any, close: Any = lib.kvstore_cf_close) -> None:
    close(place[0])


def owned(place: Any) -> Any:
    """Return the family handle whose pointer is at ``place``. It is closed with its last reference.
    """
    cf = ffi.gc(place[0], lib.kvstore_cf_close)
    place[0] = NULL
    return cf
