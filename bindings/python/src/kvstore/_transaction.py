"""Transactions on a store."""

from __future__ import annotations

import threading
import weakref
from types import TracebackType
from typing import Any, Optional

from kvstore._connection import Lease, current_task
from kvstore._errors import Error, MisuseError
from kvstore._handle import Shared
from kvstore._native import lib

#: How many seconds a thread waits for its turn before it looks whether the transaction before it was forgotten.
_PATIENCE = 0.5


class Transaction:
    """A ``with`` block in which everything that this thread does with a store and its families is committed
    together at the end, or rolled back on an exception. Made by :meth:`Store.transaction`.

    It is the thread's: others read the state before it, and their writes and transactions wait for its end, at
    most ``busy_timeout``. (A store in memory, or one that is opened with ``exclusive=True``, has one connection for
    all threads: there, transactions take turns, and what other threads do meanwhile is part of the open one.)
    In asyncio it is the task's: calls of other tasks are a MisuseError while it is open; see ``kvstore.aio``.

    A transaction ends in the thread that began it. A second one inside the block is an Error. The child of a fork
    that leaves the block ends nothing: the transaction is its parent's.
    """

    __slots__ = ("__weakref__", "_lease", "_owner", "_shared", "_write")

    def __init__(self, shared: Shared, write: bool) -> None:
        self._shared = shared
        self._write = write
        #: The thread that is inside the block, or about to be.
        self._owner: Optional[int] = None
        #: Of its connection, while it is open.
        self._lease: Optional[Lease] = None

    @property
    def active(self) -> bool:
        """Whether it has begun, and not ended."""
        return self._owner is not None

    # An interrupt (Ctrl-C) can come between any two steps of what follows, also before the first step of
    # __exit__. Then this object is gone soon, and the next transaction, of this thread or of one that waits
    # for its turn, ends what was left open. (Not __del__: an interrupt that comes inside one is lost.)

    def __enter__(self) -> Transaction:
        shared = self._shared
        lease = shared.lease()
        connection = lease.connection
        thread = threading.get_ident()
        if self._owner is not None:
            raise _nested()
        if connection.transaction_thread == thread:
            if not connection.end_forgotten(connection.lock):
                raise _nested()
            shared.changed()
        while connection.lock._is_owned():  # an interrupt came before the release
            connection.lock.release()
        self._owner = thread
        self._lease = lease
        try:
            lock = connection.lock
            while not lock.acquire(timeout=_PATIENCE):
                connection.end_forgotten(lock)
                lock = connection.lock
            connection.transaction = weakref.ref(self)
            connection.transaction_thread = thread
            connection.task = current_task()
            if connection.task is not None:
                shared.use_slow_paths()
            self._begin()
            shared.changed()
        except BaseException as e:
            self._end(rollback=not isinstance(e, Error))
            raise
        return self

    def _begin(self) -> None:
        shared, write = self._shared, 1 if self._write else 0
        rc = lib.kvstore_begin(shared.handle(), write)
        if rc == lib.KVSTORE_BUSY and shared.connections.end_forgotten():  # another thread's, by an interrupt
            rc = lib.kvstore_begin(shared.handle(), write)
        shared.check(rc)

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        try:
            if self._lease is not None and not self._lease.connection.inherited:
                if kind is None:
                    self.commit()
                else:
                    self.rollback()
        except Error:
            if kind is None:
                raise
            # The store is closed, say: the caller must see what went wrong in the block.
        finally:
            if self._owner == threading.get_ident():
                self._end(rollback=True)

    def commit(self) -> None:
        """Commits now. The rest of the block is outside the transaction. If it fails, all is rolled
        back."""
        kv = self._must_be_open()
        committed = False
        try:
            self._shared.check(lib.kvstore_commit(kv))
            committed = True
        finally:
            self._end(rollback=not committed)

    def rollback(self) -> None:
        """Undoes everything now. The rest of the block is outside the transaction."""
        kv = self._must_be_open()
        try:
            self._shared.check(lib.kvstore_rollback(kv))
        finally:
            self._end(rollback=False)

    def _must_be_open(self) -> Any:
        """The store handle it is open on."""
        if self._owner is None or self._lease is None:
            raise Error("the transaction is not open: it has ended, or is used outside a with block")
        if self._lease.connection.inherited:
            raise MisuseError("the transaction was begun before a fork: it is the parent's")
        if self._owner != threading.get_ident():
            raise Error("a transaction is ended by the thread that began it")
        return self._shared.handle()

    def _end(self, rollback: bool) -> None:
        """Lets the next thread go on, if this one has its turn; ``rollback``: the library may still have
        the transaction open."""
        lease, self._owner, self._lease = self._lease, None, None
        if lease is None:
            return
        connection = lease.connection
        if connection.lock._is_owned():
            if rollback and not connection.inherited:
                lib.kvstore_rollback(connection.kv)
            self._shared.changed()
            connection.transaction = connection.transaction_thread = connection.task = None
            connection.lock.release()


def _nested() -> Error:
    return Error("a transaction is open in this thread already; transactions do not nest")
