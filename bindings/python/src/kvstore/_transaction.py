"""Class Transaction: write transactions and snapshots on a store."""

from __future__ import annotations

import random
import threading
import time
import weakref
from types import TracebackType
from typing import Any, Callable, Optional, TypeVar

from kvstore._connection_pool import Pin, current_task
from kvstore._errors import Error, LockedError, MisuseError
from kvstore._native import WithBlock, lib, surely
from kvstore._store_state import StoreState

#: Interval in seconds at which a waiting thread checks whether the transaction before it was
#: forgotten.
_PATIENCE = 0.5
#: The longest pause in seconds before a transaction runs again after a conflict: first, and later.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.002, 0.1
#: The shortest time in seconds for which a transaction is retried after conflicts. The library
#: waits as long for a row.
_LEAST_TIME = 0.1

R = TypeVar("R")


class Transaction(WithBlock):
    """A ``with`` block that commits all writes of this thread on a store together.

    Reads in the block see those writes.

    An exception in the block rolls everything back. Created by :meth:`Store.transaction` and
    :meth:`Store.snapshot`. It covers the store and all its families.

    **Threads.** A transaction belongs to the thread that began it. Other threads see the state
    before it; their writes and transactions wait for its end, up to ``busy_timeout``. In a store in
    memory, or opened with ``exclusive=True``, all threads share one connection: transactions take
    turns, and calls of other threads become part of the open one. Leave the block in the thread
    that entered it: leaving it in another thread, for example in a generator that a pool continues,
    rolls back and raises Error. Transactions do not nest.

    **asyncio.** A transaction belongs to the task that began it; calls of other tasks in this
    thread raise MisuseError while it is open. See :mod:`kvstore.aio`.

    **Fork.** A child process that leaves the block neither commits nor rolls back: the transaction
    is the parent's.

    **Server.** On PostgreSQL a transaction blocks no other client. If concurrent writes conflict
    with it, a call in the block or its end raises :exc:`LockedError`, and nothing of it was done:
    run the whole block again, with its reads.
    """

    __slots__ = ("__weakref__", "_begun", "_joins", "_owner", "_pin", "_state", "_write")

    def __init__(self, state: StoreState, write: bool, joins: bool = False) -> None:
        self._state = state
        self._write = write
        #: Whether this object joins a transaction that the thread has open, and then ends nothing.
        self._joins = joins
        #: Whether the library may have the transaction open.
        self._begun = False
        #: The thread that is inside the block or about to enter it.
        self._owner: Optional[int] = None
        #: The pin of the connection while the transaction is open.
        self._pin: Optional[Pin] = None

    @property
    def active(self) -> bool:
        """Whether the transaction has begun and has not ended."""
        return self._owner is not None

    # A KeyboardInterrupt can be raised at the first step of each Python function below, after each
    # call in it, and again in the code that handles it. __enter__ is in Python: between its return
    # and the block no interrupt is raised. __exit__ is in C for the same reason (see blocks.c). A
    # transaction whose block was never left (an __enter__ called by hand) is ended by the next
    # transaction, of this thread or of a waiting one, once its object is collected. (Not by
    # __del__: an interrupt raised there is lost.)

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
        state = self._state
        pin = state.pin()
        connection = pin.connection
        if state.in_transaction():
            if self._joins:
                return
            raise _nested()
        while connection.lock._is_owned():  # an interrupt was raised before the release
            connection.lock.release()
        thread = threading.get_ident()
        self._pin = pin
        self._owner = thread
        lock = connection.lock
        while not lock.acquire(timeout=_PATIENCE):
            connection.roll_back_abandoned(lock)
            lock = connection.lock
        connection.transaction = weakref.ref(self)
        connection.transaction_thread = thread
        connection.task = current_task()
        if connection.task is not None:
            state.disable_fast_path()
        self._begun = True
        self._begin()
        state.changed()

    def _begin(self) -> None:
        state, write = self._state, 1 if self._write else 0
        rc = lib.kvstore_begin(state.handle(), write)
        if rc == lib.KVSTORE_BUSY and state.pool.roll_back_abandoned():  # left behind in another thread by an interrupt
            rc = lib.kvstore_begin(state.handle(), write)
        state.check(rc)

    def _ending(self) -> bool:
        """Return True, which tells :meth:`_abandon` that the block has been left."""
        return True

    def _leave(
        self,
        ending: bool,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        try:
            if self._pin is not None and not self._pin.connection.inherited:
                if self._owner != threading.get_ident():
                    raise Error(
                        "the transaction was rolled back because its block was left in another thread: enter "
                        "and leave the "
                        "block in the same thread"
                    )
                if kind is None:
                    self.commit()
                else:
                    self.rollback()
        except Error:
            if kind is None:
                raise
            # For example, the store is closed: the exception of the block is more important.
        finally:
            self._abandon(ending)

    def commit(self) -> None:
        """Commit the transaction now. The rest of the block runs outside of it.

        If the commit fails, everything is rolled back.

        Raises:
            LockedError: On a server, if concurrent writes conflict with it.
            Error: If it is not open, or belongs to another thread.
        """
        kv = self._must_be_open()
        try:
            self._state.check(lib.kvstore_commit(kv))
            self._begun = False
        finally:
            self._abandon()

    def rollback(self) -> None:
        """Roll back the transaction now. The rest of the block runs outside of it."""
        kv = self._must_be_open()
        try:
            self._begun = False  # even if the rollback fails
            self._state.check(lib.kvstore_rollback(kv))
        finally:
            self._abandon()

    def _must_be_open(self) -> Any:
        """Return the store handle on which the transaction is open. Raise Error if it is not open.
        """
        if self._owner is None or self._pin is None:
            raise Error("the transaction is not open: call this inside its with block, before commit() or rollback()")
        if self._pin.connection.inherited:
            raise MisuseError(
                "the transaction belongs to the parent process, which began it before the fork: end it there"
            )
        if self._owner != threading.get_ident():
            raise Error("the transaction belongs to another thread: end it in the thread that began it")
        return self._state.handle()

    def _abandon(self, left: bool = False) -> None:
        """Roll back the transaction if it is still open, and let other threads continue.

        Does nothing in another thread than the one that began it, unless the block is ``left``. May
        be called again after an interrupt. Makes few calls, because the stack may be almost full.
        """
        pin = self._pin
        if self._owner != threading.get_ident():
            if not left:
                return
            if pin is not None and pin.connection.roll_back_abandoned(pin.connection.lock, self):
                self._state.changes[0] = object()
        elif pin is not None and pin.connection.lock._is_owned():
            connection = pin.connection
            if self._begun and not connection.inherited:
                lib.kvstore_rollback(connection.out[0])
            self._state.changes[0] = object()
            connection.transaction = connection.transaction_thread = connection.task = None
            connection.lock.release()
        self._pin = self._owner = None
        self._begun = False


def _nested() -> Error:
    return Error("a transaction is already open in this thread, and transactions do not nest: end it first")


def in_one_transaction(state: StoreState, function: Callable[[], R], joins: bool = True) -> R:
    """Call ``function`` in a write transaction, and return the function's result.

    With ``joins``, the function becomes part of a transaction that this thread has open. A
    transaction of its own is run again after a conflict, as happens on a server, for up to
    ``busy_timeout``.
    """
    began = time.monotonic()
    pause = _FIRST_PAUSE
    while True:
        joined = joins and state.in_transaction()
        try:
            with Transaction(state, True, joins):
                return function()
        except LockedError:
            patience = max(state.pool.config.busyTimeout / 1000, _LEAST_TIME)
            if joined or time.monotonic() - began >= patience:
                raise
        time.sleep(random.uniform(0, pause))  # with jitter, so that conflicting writers do not meet again
        pause = min(pause * 2, _LONGEST_PAUSE)
