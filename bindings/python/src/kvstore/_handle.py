"""What all objects of a store share, and what all families have: handles for each thread, clock, failing.

Handles and their memory. The library uses a closed handle's memory again after 64 further closes of its
type, so a thread that has taken a pointer, but is not inside the library yet, while others close that
handle and many more, would reach another store. What keeps it from that:

- Family handles, which every call on keys takes, are closed by the last reference to their cdata. A call
  has one (its argument), so no handle is closed under a call, and the hot path pays nothing for it.
- Iterators and batches are closed by the thread that uses them: a generator runs in one thread at a time,
  and a batch has a lock.
- A store handle is its thread's, and is closed when the thread has ended and nothing is left that was begun
  on it. Only close() and what concerns all threads (set_clock, stats) touch those of others. They are closed
  at once by close(), since its caller counts on it. Only calls on the store as a whole (transactions, backup,
  stats...) take them. A thread would have to stand between two steps of one while another closes this store,
  opens and closes 64 more, and opens yet another: milliseconds of files being made, against nanoseconds. And a
  program that closes a store on which other threads begin transactions has lost the race anyway. A lock or
  counter around these calls would make close() wait for a backup, or not be interruptible; it is not worth
  that.
- What changes the whole file (encrypt, rekey, decrypt) closes the handles of other threads, which go on. It closes
  one only while nobody uses it: see Connections.alone.

Methods that users call belong to _expiry, _family and _store.
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
from kvstore._errors import BusyError, InvalidError, MisuseError, NotFoundError, error_text, exception_for
from kvstore._native import NULL, Handles, ffi, lib, to_bytes
from kvstore._time import Duration, Moment, expires_at_ms, ttl_ms, unregister

_ERROR: int = lib.KVSTORE_ERROR
_NOTFOUND: int = lib.KVSTORE_NOTFOUND
_BUSY: int = lib.KVSTORE_BUSY
#: How many seconds a thread waits before it looks again whether it has its connection back.
_PATIENCE = 0.001


class Shared:
    """What a store, its families and its iterators share, in all threads."""

    __slots__ = ("__weakref__", "changes", "cleaner", "connections", "families", "guard", "local", "scans")

    def __init__(self, connections: Connections) -> None:
        self.connections = connections
        #: `lease`: that of each thread.
        self.local = threading.local()
        #: [0] is another object after each write through this store: iterations look at it.
        self.changes: list[object] = [object()]
        #: As many elements as iterations are going on: without one, a write need not tell.
        self.scans: list[None] = []
        #: The lease on which the cleaner runs.
        self.cleaner: Optional[Lease] = None
        #: For the list of families.
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
        """To be called after each write: an iteration that is going on reads anew. (Where it matters for
        speed, only if there is one.)"""
        self.changes[0] = object()

    def lease(self) -> Lease:
        """This thread's. Raises MisuseError if the store is closed, and for a task that must not meet the
        transaction of another one."""
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
        """A lease for a thread that has none, or one whose connection was closed, or may be just now."""
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
        """This thread's connection, for what goes on on it after a call. Raises as lease() does."""
        while True:
            hold = Hold(self.lease())
            if hold.connection.kv:
                return hold

    def handle(self) -> Any:
        """This thread's store handle. Raises as lease() does."""
        while True:
            kv = self.lease().connection.kv
            if kv:
                return kv

    def connection_here(self) -> Optional[Connection]:
        """This thread's, if it has one."""
        lease = getattr(self.local, "lease", None)
        return None if lease is None else lease.connection

    def in_transaction(self) -> bool:
        """Whether this thread has one open. One that was forgotten is ended."""
        connection = self.connection_here()
        if connection is None or connection.transaction_thread != threading.get_ident():
            return False
        if not connection.end_forgotten(connection.lock):
            return True
        self.changed()
        return False

    @contextmanager
    def alone(self, keep: bool) -> Iterator[Connection]:
        """For a block that changes the whole file: no connection is open then, but with ``keep`` this one, which is this
        thread's, or that of the cleaner. BusyError if others are in use for longer than busy_timeout."""
        lease = self.lease()
        if self.in_transaction():
            raise BusyError("a transaction is open in this thread: end it first")
        self.connections.end_forgotten()
        if self.cleaner is not None and (not keep or self.cleaner.connection is not lease.connection):
            raise BusyError("a cleaner runs: stop_cleaner() first")
        try:
            with self.connections.alone(lease.connection if keep else None, self._let_go):
                yield lease.connection
        finally:
            self.changed()

    def _let_go(self) -> None:
        """Gives back the handles on families that no call is using; each thread opens others."""
        with self.guard:
            families = list(self.families)
        for family in families:
            if not family._closed:
                family._forget()

    def use_slow_paths(self) -> None:
        """Lets all calls of this thread look which task they are made by, until its handles are kept anew."""
        with self.guard:
            families = list(self.families)
        for family in families:
            family._handles.drop(None)

    def error_text(self) -> str:
        """The text of this thread's last failure."""
        connection = self.connection_here()
        return error_text(NULL) if connection is None else connection.error_text()

    def check(self, rc: int) -> None:
        """As _native.check, for calls on the store."""
        if rc:
            self.handle()
            text = self.error_text()
            self.after_failure(rc)
            raise exception_for(rc, text)

    def after_failure(self, rc: int) -> None:
        """A lock may be that of a transaction that another thread has forgotten: the next try finds it free."""
        if rc == _BUSY:
            self.connections.end_forgotten()

    def now_ms(self) -> int:
        """The time by the store's clock; on a server, by that one's."""
        connections = self.connections
        if connections.remote:
            out = ffi.new("int64_t *")
            self.check(lib.kvstore_time_ms(self.handle(), out))
            return int(out[0])
        clock = connections.clock
        now: int = lib.kvstore_now_ms() if clock is None else clock.now_ms()
        return now

    def clock(self) -> Optional[Callable[[], int]]:
        """What says the time in milliseconds, if it is not the system's clock."""
        connections = self.connections
        if connections.remote:
            return self.now_ms
        return None if connections.clock is None else connections.clock.now_ms

    def after_fork(self) -> None:
        """In the child: everything is opened anew when it is used. A lock may have been copied while a thread
        held it that this process does not have."""
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
    # Stores stay open: other exit handlers, and threads, may use them. But when the interpreter ends
    # the library's threads must not call it any more.
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
    """A thread's handle on a family. The connection stays the thread's as long as the look-up has it."""

    __slots__ = ("cf", "handles", "lease", "thread")

    def __init__(self, cf: Any, lease: Lease, handles: Any) -> None:
        self.cf = cf
        self.lease = lease
        self.handles = handles
        #: As the look-up counts threads; None: it does not have it.
        self.thread: Optional[int] = None

    def use(self) -> None:
        """Puts it into the look-up; not where others than threads have locals of their own (greenlets)."""
        if threading.local.__module__ == "_thread":
            self.thread = self.handles.keep(self.cf)

    def __del__(self) -> None:
        if getattr(self, "thread", None) is not None:
            self.handles.drop(self.thread)


class Handle:
    """A family, and the native handle on it that each thread has of its own."""

    __slots__ = ("__weakref__", "_closed", "_coding", "_handles", "_local", "_name", "_scans", "_shared", "_store")

    #: Its `cf` is this thread's handle, for the fast path; None before the first call, and while each must be looked at.
    _handles: Any
    #: `kept`: the same, for as long as the thread lives.
    _local: Any
    _shared: Shared
    _scans: list[None]
    _name: str
    _closed: bool
    #: None: keys and values are bytes.
    _coding: Optional[Coding]
    #: The store it was got from, if it is not that itself.
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
        """``cf``: this thread's handle, on the connection that is held, if there is one already."""
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
        """Closes the handles of all threads: a call that has one keeps it to its end."""
        self._closed = True
        self._forget()

    def _forget(self) -> None:
        """Each thread gets another handle when it asks for one."""
        self._handles = Handles()
        self._local = threading.local()

    @property
    def _cf(self) -> Any:
        """This thread's handle: closed with its last reference, so to be passed to the library from here, and
        not to be kept."""
        cf = self._handles.cf
        return self._here() if cf is None else cf

    def _here(self) -> Any:
        """The same where there is none yet, or a transaction of a task is open."""
        hold = self._shared.hold()  # first: who waits in there must not keep what all threads have
        local, handles = self._local, self._handles  # then: who closes the family replaces them
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
        """A handle on a connection."""
        out = place_for_family()
        rc = lib.kvstore_cf_open(connection.kv, self._name.encode(), out)
        if rc:
            self._must_be_open()
            if rc == _NOTFOUND:
                raise NotFoundError(
                    f"family {self._name!r} is not there for this thread: it was dropped, or the transaction that "
                    "makes it has not been committed"
                )
            raise exception_for(rc, error_text(connection.kv))
        cf = owned(out)
        connection.keep_family(cf)
        return cf

    # What families of bytes do with keys and values; _coded has others.

    def _encode(self, value: Any) -> bytes:
        return to_bytes(value, "a value")

    def _key(self, data: bytes) -> Any:
        return data

    def _decoded(self, rows: Iterator[Any], kind: int) -> Iterator[Any]:
        """Rows as keys, values or items."""
        return rows

    def _fail(self, rc: int) -> NoReturn:
        """Raises for a failed call on the family; a refusal is an InvalidError."""
        self._must_be_open()
        if rc == _NOTFOUND:
            raise not_found()
        text = self._shared.error_text()
        if rc == _ERROR:
            raise InvalidError(text)
        self._shared.after_failure(rc)
        raise exception_for(rc, text)

    def _check(self, rc: int) -> None:
        """Raises for a failed call whose arguments are not to blame."""
        if rc:
            self._must_be_open()
            self._shared.check(rc)

    def _must_be_open(self) -> None:
        if self._shared.closed:
            raise store_is_closed()
        if self._closed:
            raise self._is_closed()

    def _is_closed(self) -> MisuseError:
        return MisuseError(f"the handle of family {self._name!r} is closed: get another one from the store")

    def _default_ttl_ms(self) -> int:
        out = ffi.new("int64_t *")
        rc = lib.kvstore_cf_get_default_ttl(self._cf, out)
        if rc:
            self._fail(rc)
        return int(out[0])

    def _expire_ms(self, ttl: Optional[Duration], expires_at: Optional[Moment]) -> int:
        """When a key with these arguments expires, for calls that do not know the default TTL: 0 is never."""
        if ttl is not None:
            if expires_at is not None:
                raise ValueError("give a ttl or an expires_at, not both")
            ms = ttl_ms(ttl)
        elif expires_at is not None:
            return expires_at_ms(expires_at)
        else:
            ms = self._default_ttl_ms()
        return ms and self._shared.now_ms() + ms


def show_as(name: str, *mixins: type) -> None:
    """Has Python's own messages call the methods of mixins those of the class that users know."""
    for mixin in mixins:
        for method in vars(mixin).values():
            if isinstance(method, FunctionType):
                method.__qualname__ = f"{name}.{method.__name__}"


def not_found() -> NotFoundError:
    """A key is missing. The text does not name it: keys may be secrets, and texts end in logs."""
    return NotFoundError("no such key")


def place_for_family() -> Any:
    """Where the library puts a family's handle. If an interrupt keeps it from being :func:`owned`, it is closed."""
    return ffi.gc(ffi.new("KVColumnFamily **"), _close_family_in)


def _close_family_in(place: Any, close: Any = lib.kvstore_cf_close) -> None:
    close(place[0])


def owned(place: Any) -> Any:
    """The handle that is there, closed with the last reference to it."""
    cf = ffi.gc(place[0], lib.kvstore_cf_close)
    place[0] = NULL
    return cf
