"""Transactions on a store."""

from __future__ import annotations

import random
import threading
import time
import weakref
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Optional, TypeVar

from kvstore._connection import Hold, current_task
from kvstore._errors import Error, LockedError, MisuseError
from kvstore._handle import Shared
from kvstore._native import leave, lib, surely

#: How many seconds a thread waits for its turn before it looks whether the transaction before it was forgotten.
_PATIENCE = 0.5
#: How many seconds pass, at most, before a transaction that others made impossible is run again: at first, and later.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.002, 0.1
#: How long it is run again at least, in seconds, as the library waits for a row.
_LEAST_TIME = 0.1

R = TypeVar("R")


class Transaction:
    """A ``with`` block in which everything that this thread does with a store and its families is committed
    together at the end, or rolled back on an exception. Made by :meth:`Store.transaction`.

    It is the thread's: others read the state before it, and their writes and transactions wait for its end, at
    most ``busy_timeout``. (A store in memory, or one that is opened with ``exclusive=True``, has one connection for
    all threads: there, transactions take turns, and what other threads do meanwhile is part of the open one.)
    In asyncio it is the task's: calls of other tasks are a MisuseError while it is open; see ``kvstore.aio``.

    A transaction is committed by the thread that began it. A block that is left in another one (a generator that goes
    on there) rolls it back, and is an Error; until then, and if nobody leaves it, what the first thread does is part of
    it. A second one inside the block is an Error. The child of a fork that leaves the block ends nothing: the
    transaction is its parent's.

    On a server nobody waits for it. What others write may make it impossible: a :exc:`LockedError` at a call in the block,
    or at its end. Nothing of it was done then, and the whole block may be run again, with its reads.
    """

    __slots__ = ("__weakref__", "_begun", "_joins", "_hold", "_owner", "_shared", "_write")

    def __init__(self, shared: Shared, write: bool, joins: bool = False) -> None:
        self._shared = shared
        self._write = write
        #: Becomes part of the transaction that this thread has open, if there is one, and ends nothing then.
        self._joins = joins
        #: The library may have it open.
        self._begun = False
        #: The thread that is inside the block, or about to be.
        self._owner: Optional[int] = None
        #: Of its connection, while it is open.
        self._hold: Optional[Hold] = None

    @property
    def active(self) -> bool:
        """Whether it has begun, and not ended."""
        return self._owner is not None

    # An interrupt (Ctrl-C) can come at the first step of each Python function that follows, after each call in it,
    # and again in what mends that. __enter__ is in Python: between its return and the block none can come. __exit__
    # is in C for the same reason (see blocks.c). What nobody has left (an __enter__ by hand) is ended by the
    # next transaction, of this thread or of one that waits for its turn, when its object is gone. (Not by a __del__:
    # an interrupt that comes inside one is lost.)

    def __enter__(self) -> Transaction:
        if self._owner is not None:
            raise _nested()
        try:
            self._enter()
        except BaseException:
            surely(self._abandon)
            raise
        return self

    def _enter(self) -> None:
        shared = self._shared
        hold = shared.hold()
        connection = hold.connection
        if shared.in_transaction():
            if self._joins:
                return
            raise _nested()
        while connection.lock._is_owned():  # an interrupt came before the release
            connection.lock.release()
        thread = threading.get_ident()
        self._hold = hold
        self._owner = thread
        lock = connection.lock
        while not lock.acquire(timeout=_PATIENCE):
            connection.end_forgotten(lock)
            lock = connection.lock
        connection.transaction = weakref.ref(self)
        connection.transaction_thread = thread
        connection.task = current_task()
        if connection.task is not None:
            shared.use_slow_paths()
        self._begun = True
        self._begin()
        shared.changed()

    def _begin(self) -> None:
        shared, write = self._shared, 1 if self._write else 0
        rc = lib.kvstore_begin(shared.handle(), write)
        if rc == lib.KVSTORE_BUSY and shared.connections.end_forgotten():  # another thread's, by an interrupt
            rc = lib.kvstore_begin(shared.handle(), write)
        shared.check(rc)

    if TYPE_CHECKING:

        def __exit__(
            self,
            kind: Optional[type[BaseException]],
            error: Optional[BaseException],
            traceback: Optional[TracebackType],
        ) -> None: ...

    else:
        __exit__ = leave

    def _ending(self) -> bool:
        """What tells _abandon that the block is left."""
        return True

    def _leave(
        self,
        ending: bool,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        try:
            if self._hold is not None and not self._hold.connection.inherited:
                if self._owner != threading.get_ident():
                    raise Error(
                        "the transaction is rolled back, for its block was left in another thread than that which began "
                        "it: begin and end it in one"
                    )
                if kind is None:
                    self.commit()
                else:
                    self.rollback()
        except Error:
            if kind is None:
                raise
            # The store is closed, say: the caller must see what went wrong in the block.
        finally:
            self._abandon(ending)

    def commit(self) -> None:
        """Commits now. The rest of the block is outside the transaction. If it fails, all is rolled
        back."""
        kv = self._must_be_open()
        try:
            self._shared.check(lib.kvstore_commit(kv))
            self._begun = False
        finally:
            self._abandon()

    def rollback(self) -> None:
        """Undoes everything now. The rest of the block is outside the transaction."""
        kv = self._must_be_open()
        try:
            self._begun = False  # also if it fails
            self._shared.check(lib.kvstore_rollback(kv))
        finally:
            self._abandon()

    def _must_be_open(self) -> Any:
        """The store handle it is open on."""
        if self._owner is None or self._hold is None:
            raise Error("the transaction is not open: it has ended, or is used outside a with block")
        if self._hold.connection.inherited:
            raise MisuseError("the transaction was begun before a fork: it is the parent's")
        if self._owner != threading.get_ident():
            raise Error("a transaction is ended by the thread that began it")
        return self._shared.handle()

    def _abandon(self, left: bool = False) -> None:
        """Rolls back what is left of it, if anything is, and lets the next thread go on. Only in the thread that has
        begun it, or if the block is left. May be called again after an interrupt in it, and calls little: the stack may
        be almost full."""
        hold = self._hold
        if self._owner != threading.get_ident():
            if not left:
                return
            if hold is not None and hold.connection.end_forgotten(hold.connection.lock, self):
                self._shared.changes[0] = object()
        elif hold is not None and hold.connection.lock._is_owned():
            connection = hold.connection
            if self._begun and not connection.inherited:
                lib.kvstore_rollback(connection.out[0])
            self._shared.changes[0] = object()
            connection.transaction = connection.transaction_thread = connection.task = None
            connection.lock.release()
        self._hold = self._owner = None
        self._begun = False


def _nested() -> Error:
    return Error("a transaction is open in this thread already; transactions do not nest")


def in_one_transaction(shared: Shared, function: Callable[[], R], joins: bool = True) -> R:
    """What ``function`` returns, which is called in a transaction that writes: with ``joins`` in that which this thread has
    open, if there is one. One of its own is run again if others have made it impossible, as happens on a server, for as
    long as ``busy_timeout`` says."""
    began = time.monotonic()
    pause = _FIRST_PAUSE
    while True:
        joined = joins and shared.in_transaction()
        try:
            with Transaction(shared, True, joins):
                return function()
        except LockedError:
            patience = max(shared.connections.config.busyTimeout / 1000, _LEAST_TIME)
            if joined or time.monotonic() - began >= patience:
                raise
        time.sleep(random.uniform(0, pause))  # not in step with the others
        pause = min(pause * 2, _LONGEST_PAUSE)
