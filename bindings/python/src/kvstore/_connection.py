"""The native handles of one store object: a connection for each thread, or one for all of them.

A thread's connection is opened when it first uses the store, and given back when the thread ends. Iterators,
batches and transactions keep the connection they were begun on, so what another thread goes on with, or what is
left after its thread, still has one. A child of a fork gives up what it inherited, and opens connections of its
own.

Must not know families, nor methods that users call.
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

from kvstore._errors import BusyError, InvalidError, MisuseError, StoreIOError, error_text
from kvstore._native import NULL, check, ffi, lib
from kvstore._time import Clock, register, unregister

#: As many connections of threads that have ended are kept open for the next ones: opening one takes
#: as long as a hundred reads.
_IDLE = 4

#: How many seconds pass before it is looked again whether a connection is still used.
_PAUSE = 0.001

_COUNTERS = tuple(name for name, _ in ffi.typeof("KVStoreStats").fields if name != "reserved")
#: Where a transaction is open that is in the way of a thread without one.
_IN_ANOTHER_THREAD = (
    "open in another thread, and all threads of this store have one connection (it is in memory, or exclusive=True)"
)
#: Not counted, but as they are now.
GAUGES = ("nDbPages", "nWalFrames", "nSizeBytes")


class Connection:
    """A store handle of the library's, and the transaction that is open on it."""

    __slots__ = ("families", "guard", "holds", "inherited", "kv", "lock", "out", "task", "transaction", "transaction_thread")

    def __init__(self) -> None:
        #: Where the library puts the handle: an interrupt (Ctrl-C) just after it has done so loses none.
        self.out = ffi.new("KVStore **")
        #: The handle; NULL once closed, and while Connections.alone closes it. Always the same object, which whoever
        #: is in a call with it, or about to, has a reference to.
        self.kv: Any = NULL
        #: Weak references to the handles on families that are open on it.
        self.families: set[weakref.ref[Any]] = set()
        #: Weak references to the Holds of it.
        self.holds: set[weakref.ref[Hold]] = set()
        #: This process is a child of the one that opened it.
        self.inherited = False
        self.renew()

    def opened(self) -> None:
        """To be called when the handle is there."""
        self.kv = self.out[0]

    def keep_family(self, cf: Any) -> None:
        """A handle on a family was opened on it."""
        self.families.add(weakref.ref(cf, self.families.discard))

    def is_used(self) -> bool:
        """Whether a transaction, batch or iteration is going on here, or a call. Only when :attr:`kv` was taken away,
        so that none can begin."""
        return bool(self.holds or self.families) or self.transaction_thread is not None

    def close(self, _close: Any = lib.kvstore_close, _null: Any = NULL) -> int:  # bound: at exit, globals may be gone
        """Closes the handle, which is NULL from before that on. Returns the result code."""
        kv = self.out[0]
        self.out[0] = self.kv = _null
        rc: int = _close(kv)
        return rc

    def __del__(self, at_exit: Any = sys.is_finalizing) -> None:
        if not getattr(self, "inherited", True) and not at_exit() and self.out[0]:
            self.close()

    def renew(self) -> None:
        """Forgets who had a transaction open."""
        #: For transactions, in turn.
        self.lock: Any = threading.RLock()
        #: For who ends a forgotten one.
        self.guard = threading.RLock()  # the garbage collector may come to leave a block meanwhile
        #: The thread that has one open.
        self.transaction_thread: Optional[int] = None
        #: A weak reference to that one; it is dead if the transaction was forgotten.
        self.transaction: Any = None
        #: The asyncio task that has begun it, if it was one.
        self.task: Any = None

    def error_text(self) -> str:
        """The text of this thread's last failure."""
        other = self.transaction_thread not in (None, threading.get_ident())
        return error_text(self.kv).replace("open on this connection", _IN_ANOTHER_THREAD if other else "open")

    def end_forgotten(self, lock: Any, left: Any = None) -> bool:
        """Rolls back the transaction that holds ``lock`` if its object is gone, or is the one that was ``left`` in
        another thread; says whether it was. Whoever waits for the lock goes over to the new one."""
        with self.guard:
            transaction = self.transaction
            if transaction is None or transaction() is not left or self.transaction is not transaction or self.lock is not lock:
                return False
            lib.kvstore_rollback(self.kv)
            self.transaction = self.transaction_thread = self.task = None
            self.lock = threading.RLock()
            return True

    def check_task(self) -> None:
        """Refuses a task that is not the one whose transaction is open in this thread."""
        task = self.task
        if task is None or self.transaction_thread != threading.get_ident() or current_task() is task:
            return
        if not self.end_forgotten(self.lock):
            raise MisuseError(
                "another asyncio task of this thread has a transaction open on this store, and this call would become "
                "part of it: await nothing inside a transaction, or use kvstore.aio, whose transactions are the task's"
            )


class Hold:
    """Keeps a connection open for what is begun on it: see :meth:`Connections.alone`."""

    __slots__ = ("__weakref__", "connection", "lease")

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self.connection = lease.connection
        # No __del__ takes it away: an interrupt that comes inside one is lost.
        self.connection.holds.add(weakref.ref(self, self.connection.holds.discard))

    def release(self) -> None:
        """It is no longer needed."""
        self.connection.holds.discard(weakref.ref(self))


class Lease:
    """A thread's connection, which is given back with the last reference to it."""

    __slots__ = ("connection", "connections")

    def __init__(self, connection: Connection, connections: Connections) -> None:
        self.connection = connection
        self.connections = connections

    def __del__(self) -> None:
        connections = getattr(self, "connections", None)
        if connections is not None:
            connections.give_back(self.connection)


class Connections:
    """All connections of a store object. What a thread's lease refers to: must not refer to the store."""

    __slots__ = (
        "all", "clock", "clock_context", "closed", "config", "ended", "endings", "file", "for_all", "guard", "idle",
        "in_memory", "locked", "opening", "path", "pid", "remote", "secret",
    )  # fmt: skip

    def __init__(self, path: bytes, config: Any, for_all: bool, secret: Optional[bytes] = None) -> None:
        """``for_all``: one connection is for all threads."""
        self.in_memory = is_in_memory(path)
        #: The store is on a server: the path is its URL, and time is the server's.
        self.remote = is_remote(path)
        if self.in_memory and secret is not None:
            raise ValueError("a store in memory is not encrypted: give a path, or no password")
        if self.remote and secret is not None:
            raise ValueError("a store on a server is not encrypted by this package, and the server's password is in the URL")
        self.path = absolute(path)
        self.config = config
        #: What the file is encrypted with, if it is.
        self.secret = secret
        #: The lease of that one, once there is one.
        self.for_all: Any = self.in_memory or (for_all and not self.remote)
        self.closed = False
        #: As many as are just being opened.
        self.opening: dict[object, None] = {}
        #: The open ones. Who takes one out closes it.
        self.all: list[Connection] = []
        #: Those of them that no thread has.
        self.idle: list[Connection] = []
        #: What connections have counted that are closed; and how many were closed.
        self.ended = dict.fromkeys(_COUNTERS, 0)
        self.endings = 0
        self.clock: Optional[Clock] = None
        self.clock_context: Any = NULL
        #: For opening and for what concerns all. Not for giving back, which the garbage collector does anywhere.
        self.guard: Any = threading.RLock()
        self.pid = os.getpid()
        #: When an open for all threads that found the file locked gave up, and its text: threads that have waited
        #: through it do not wait once more.
        self.locked = (0.0, "")
        #: Which file it is: another one under the same name is another store.
        self.file: Optional[tuple[int, int]] = None

    def lease(self) -> Lease:
        """A connection for a thread that has none. Raises MisuseError if the store is closed."""
        if not self.for_all:
            try:
                connection = self.idle.pop()
            except IndexError:
                connection = None
            return Lease(connection or self._open(), self)
        asked = time.monotonic()
        with self.guard:
            if not isinstance(self.for_all, Lease):
                gave_up, text = self.locked
                if asked < gave_up:
                    raise BusyError(text)
                try:
                    self.for_all = _LeaseForAll(self._open())
                except BusyError as error:
                    self.locked = time.monotonic(), str(error)
                    raise
            lease: Lease = self.for_all
            return lease

    def _open(self) -> Connection:
        if self.closed:
            raise store_is_closed()
        if self.file is not None and self.file != file_at(self.path):
            raise StoreIOError("the store is no longer at its path: it was deleted, moved or replaced while it was open")
        connection = Connection()
        with self.guard:  # nobody is changing the secret then, and nobody does before this is open
            self.opening[connection] = None
        try:
            secret = self.secret
            if secret is None:
                rc = lib.kvstore_open_v2(self.path, connection.out, self.config)
            else:
                rc = lib.kvstore_open_encrypted(self.path, secret, len(secret), connection.out, self.config)
            if rc == lib.KVSTORE_ERROR:
                raise InvalidError(error_text(NULL))
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
        """For the next thread. Called by finalizers: takes no lock."""
        if self.closed or connection.inherited or getpid() != self.pid or at_exit() or not connection.out[0]:
            return  # who closes the store closes it; what was inherited is left alone
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
        """Closes one of the connections."""
        try:
            self.all.remove(connection)
        except ValueError:
            return  # by somebody else
        self.add_up(connection.out[0], self.ended)
        self.endings += 1
        connection.close()

    def add_up(self, kv: Any, sums: dict[str, int]) -> int:
        """Adds what a connection has counted. Returns the result code."""
        out = ffi.new("KVStoreStats *")
        rc: int = lib.kvstore_stats(kv, out)
        if rc == 0:
            for name in _COUNTERS:
                if name not in GAUGES:
                    sums[name] += int(getattr(out, name))
        return rc

    def close(self, first: Optional[Connection]) -> int:
        """Closes all, that of the calling thread first; returns the code of the first failure, after which they
        are closed all the same. MisuseError, and they stay open, inside a function that one of them is calling."""
        with self.guard:
            if self.closed:
                return 0
            if self.clock is not None and self.clock.is_asked():
                raise MisuseError("the store cannot be closed by its own clock function")
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
                    raise MisuseError(error_text(NULL))
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
        """Gives a clock to all connections, also to those to come; None is the system's."""
        if self.clock is not None and self.clock.is_asked():
            raise MisuseError("a clock cannot be replaced by its own function")
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
        """What all have counted, the closed ones as well, by the names in C; the rest as ``kv`` knows it."""
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
        """Sets to zero what all have counted."""
        self.ended = dict.fromkeys(_COUNTERS, 0)
        for connection in list(self.all):
            kv = connection.kv
            rc = lib.kvstore_stats_reset(kv) if kv else 0
            if connection.kv:
                check(rc, connection.kv)

    @contextmanager
    def alone(self, but: Optional[Connection], let_go: Callable[[], None]) -> Iterator[None]:
        """Closes all connections but one, for a block in which none is opened: a change of the whole file needs that.
        Threads that have none then wait. What others are doing is waited for, for busy_timeout; BusyError then.
        ``let_go`` gives back the handles on families that are only kept.

        Who uses a connection has a Hold of it, or a reference to its handle or to one on a family, or a transaction
        on it; and looks, when he has that, whether the handle is there. Here that is taken away before it is asked
        who uses it. So one of the two sees the other.
        """
        end = time.monotonic() + self.config.busyTimeout / 1000
        with self.guard:
            if self.clock is not None and self.clock.is_asked():
                raise MisuseError("a store cannot be encrypted or decrypted by its own clock function")
            while True:
                let_go()
                opening = bool(self.opening)  # first: what is opened meanwhile is in the list
                used = [one for one in list(self.all) if one is not but and not self._end_unused(one)]
                if not used and not opening:
                    break
                if time.monotonic() >= end:
                    raise BusyError(
                        "another thread is using this store, or a transaction, a batch or an iteration is open on it: end "
                        "it first"
                    )
                time.sleep(_PAUSE)
            yield

    def _end_unused(self, connection: Connection) -> bool:
        """Closes a connection, unless it is in use."""
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
            pass  # a thread's, which takes another one
        self._end(connection)
        return True

    def end_forgotten(self) -> bool:
        """Rolls back the transactions of all threads whose objects are gone; says whether there were any."""
        ended = [connection.end_forgotten(connection.lock) for connection in list(self.all)]
        return any(ended)

    def after_fork(self) -> None:
        """In the child: what was inherited is given up as it is, for the parent goes on with it. A store in
        memory is nowhere else, so all calls say what they are told: that it is the parent's."""
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
    """The one lease of all threads: its connection is closed with the store."""

    __slots__ = ()

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def __del__(self) -> None:
        pass


def current_task() -> Any:
    """The asyncio task this is called in; None outside of any."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return None
    try:
        return asyncio.current_task()
    except (RuntimeError, AttributeError):  # no loop is running; it is being imported
        return None


def store_is_closed() -> MisuseError:
    return MisuseError("the store is closed: open it again")


def encoded(path: Union[None, str, bytes, os.PathLike[str], os.PathLike[bytes]]) -> bytes:
    """A path as bytes; of None, none. ValueError for what is no path."""
    if path is None:
        return b""
    name = os.fsencode(path)
    if not name:
        raise ValueError("the path is empty: None or ':memory:' is a store in memory")
    if b"\0" in name:
        raise ValueError("a path cannot have a NUL in it")
    return name


def is_in_memory(path: bytes) -> bool:
    return path in (b"", b":memory:")


def is_remote(path: bytes) -> bool:
    """Whether it is the URL of a store on a server."""
    return path.startswith((b"postgresql://", b"postgres://"))


#: What of a URL may be seen in texts: where it leads. All else may be a secret, also by a mistake in its writing.
_SHOWN = re.compile(
    r"(?P<scheme>postgres(?:ql)?://)(?:(?P<user>[^:/?#@\s]*)(?::[^/?#@]*)?@)?(?P<host>(?:[\w.,-]|\[[0-9A-Fa-f:.]*\]|%[0-9A-Fa-f]{2}|:\d+(?=[,/?]|$))*)"
    r"(?P<name>/[^/?#@:]*)?(?:\?(?P<query>[^?#@]*))?"
)
_SHOWN_PARAMETERS = ("host", "port", "user", "dbname", "schema")


def shown(path: str) -> str:
    """A path, as texts may have it: a URL without password, or what could be one."""
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
    """A path that a later chdir does not change; what is not a file's is left as it is."""
    if is_in_memory(path) or re.match(rb"[A-Za-z][A-Za-z0-9+.-]*://", path):
        return path
    if os.name == "nt":  # where "C:name" is in that drive's current folder, and "\\name" on the current drive
        return os.path.abspath(path)
    if os.path.isabs(path):
        return path
    try:
        return os.path.join(os.getcwdb(), path)
    except OSError:
        return path


def file_at(path: bytes) -> Optional[tuple[int, int]]:
    """Which file has the name; none has that of a store on a server."""
    if is_remote(path):
        return None
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino
