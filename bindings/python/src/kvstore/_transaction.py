"""Transactions on a store."""

from __future__ import annotations

import threading
import weakref
from types import TracebackType
from typing import Optional

from kvstore._errors import Error
from kvstore._handle import Shared
from kvstore._native import lib

#: How many seconds a thread waits for its turn before it looks whether the transaction before it was forgotten.
_PATIENCE = 0.5


class Transaction:
    """A ``with`` block in which everything that is done with a store and its families is committed
    together at the end, or rolled back on an exception. Made by :meth:`Store.transaction`.

    Transactions of several threads on one store take turns: the second waits until the first has ended.
    But what another thread does outside a transaction while one is open is part of the open one, and is
    rolled back with it; let threads that must not meet open a store each. A transaction ends in
    the thread that began it. A second one inside the block is an Error. The child of a fork that leaves the
    block ends nothing: the transaction is its parent's.
    """

    __slots__ = ("__weakref__", "_owner", "_shared", "_write")

    def __init__(self, shared: Shared, write: bool) -> None:
        self._shared = shared
        self._write = write
        #: The thread that is inside the block, or about to be.
        self._owner: Optional[int] = None

    @property
    def active(self) -> bool:
        """Whether it has begun, and not ended."""
        return self._owner is not None

    # An interrupt (Ctrl-C) can come between any two steps of what follows, also before the first step of
    # __exit__. Then this object is gone soon, and the next transaction, of this thread or of one that waits
    # for its turn, ends what was left open. (Not __del__: an interrupt that comes inside one is lost.)

    def __enter__(self) -> Transaction:
        shared = self._shared
        shared.handle()
        thread = threading.get_ident()
        if self._owner is not None:
            raise Error("a transaction is open in this thread already; transactions do not nest")
        if shared.transaction_thread == thread:
            shared.end_forgotten(shared.lock)
            if shared.transaction_thread == thread:
                raise Error("a transaction is open in this thread already; transactions do not nest")
        while shared.lock._is_owned():  # an interrupt came before the release
            shared.lock.release()
        self._owner = thread
        try:
            lock = shared.lock
            while not lock.acquire(timeout=_PATIENCE):
                shared.end_forgotten(lock)
                lock = shared.lock
            shared.transaction = weakref.ref(self)
            shared.transaction_thread = thread
            shared.check(lib.kvstore_begin(shared.handle(), 1 if self._write else 0))
            shared.changed()
        except BaseException as e:
            self._end(rollback=not isinstance(e, Error))
            raise
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        try:
            if self._owner is not None and not self._shared.inherited:
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
        self._must_be_open()
        shared = self._shared
        committed = False
        try:
            shared.check(lib.kvstore_commit(shared.handle()))
            committed = True
        finally:
            self._end(rollback=not committed)

    def rollback(self) -> None:
        """Undoes everything now. The rest of the block is outside the transaction."""
        self._must_be_open()
        shared = self._shared
        try:
            shared.check(lib.kvstore_rollback(shared.handle()))
        finally:
            self._end(rollback=False)

    def _must_be_open(self) -> None:
        if self._owner is None:
            raise Error("the transaction is not open: it has ended, or is used outside a with block")
        if self._owner != threading.get_ident():
            raise Error("a transaction is ended by the thread that began it")

    def _end(self, rollback: bool) -> None:
        """Lets the next thread go on, if this one has its turn; ``rollback``: the library may still have
        the transaction open."""
        shared = self._shared
        self._owner = None
        if shared.lock._is_owned():
            if rollback:
                lib.kvstore_rollback(shared.kv)
            shared.changed()
            shared.transaction = shared.transaction_thread = None
            shared.lock.release()
