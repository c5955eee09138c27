"""What a store's objects share, and what all families have: pointers, clock, failing.

Handles and their memory. The library uses a closed handle's memory again after 64 further closes of its
type, so a thread that has taken a pointer, but is not inside the library yet, while others close that
handle and many more, would reach another store. What keeps it from that:

- Family handles, which every call on keys takes, are closed by the last reference to their cdata. A call
  has one (its argument), so no handle is closed under a call, and the hot path pays nothing for it.
- Iterators and batches are closed by the thread that uses them: a generator runs in one thread at a time,
  and a batch has a lock.
- Store handles are closed at once, since the caller of close() counts on it. Only calls on the store as a
  whole (transactions, backup, stats...) take them. A thread would have to stand between two steps of one
  while the others close this store, open and close 64 more, and open yet another: milliseconds of files
  being made, against nanoseconds. And a program that closes a store on which other threads begin
  transactions has lost the race anyway. A lock or counter around these calls would make close() wait for
  a backup, or not be interruptible; it is not worth that.

Methods that users call belong to _expiry, _family and _store.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from typing import Any, NoReturn, Optional

from kvstore._errors import InvalidError, MisuseError, NotFoundError, error_text, exception_for
from kvstore._native import NULL, ffi, lib
from kvstore._time import Clock, Duration, Moment, expire_at_ms, ttl_ms

_ERROR: int = lib.KVSTORE_ERROR
_NOTFOUND: int = lib.KVSTORE_NOTFOUND


class Shared:
    """The native store, as its default family, its other families and its iterators share it."""

    __slots__ = ("__weakref__", "changes", "clock", "clock_context", "families", "guard", "inherited", "kv", "lock", "native", "scans", "transaction", "transaction_thread")

    def __init__(self, kv: Any) -> None:
        #: The store's handle; NULL once closed.
        self.kv = kv
        #: The same in a list, which who closes it empties: so one does.
        self.native: list[Any] = [kv]
        #: This process is a child of the one that opened the store.
        self.inherited = False
        #: [0] is another object after each write through this store: iterations look at it.
        self.changes: list[object] = [object()]
        #: As many elements as iterations are going on: without one, a write need not tell.
        self.scans: list[None] = []
        self.clock: Optional[Clock] = None
        self.clock_context: Any = NULL
        #: For transactions, in turn.
        self.lock: Any = threading.RLock()
        #: For who ends a forgotten one.
        self.guard = threading.Lock()
        #: The thread that has one open.
        self.transaction_thread: Optional[int] = None
        #: A weak reference to that one; it is dead if the transaction was forgotten.
        self.transaction: Any = None
        self.families: weakref.WeakSet[Handle] = weakref.WeakSet()
        _open_stores.add(self)

    def __del__(self, _close: Any = lib.kvstore_close) -> None:  # bound: at exit, globals may be gone
        if getattr(self, "native", None):
            self.kv = NULL
            _close(self.native.pop())

    def changed(self) -> None:
        """To be called after each write: an iteration that is going on reads anew. (Where it matters for
        speed, only if there is one.)"""
        self.changes[0] = object()

    def end_forgotten(self, lock: Any) -> None:
        """Rolls back the transaction that holds ``lock`` if its object is gone. Whoever waits for the lock
        goes over to the new one."""
        with self.guard:
            if self.lock is lock and self.transaction is not None and self.transaction() is None:
                lib.kvstore_rollback(self.kv)
                self.changed()
                self.transaction = self.transaction_thread = None
                self.lock = threading.RLock()

    def handle(self) -> Any:
        """The store's handle. Raises MisuseError if the store is closed."""
        if not self.kv:
            raise MisuseError("the store is closed: open it again")
        return self.kv

    def check(self, rc: int) -> None:
        """As _native.check, for calls on the store."""
        if rc:
            self.handle()
            raise exception_for(rc, error_text(self.kv))

    def now_ms(self) -> int:
        """The time by the store's clock."""
        clock = self.clock
        now: int = lib.kvstore_now_ms() if clock is None else clock.now_ms()
        return now


_open_stores: weakref.WeakSet[Shared] = weakref.WeakSet()


def _at_exit() -> None:
    # Stores stay open: other exit handlers, and threads, may use them. But when the interpreter ends
    # the library's threads must not call it any more.
    for shared in list(_open_stores):
        if shared.kv and shared.clock is not None:
            lib.kvstore_cleaner_stop(shared.kv)
            lib.kvstore_set_clock(shared.kv, NULL, NULL)


atexit.register(_at_exit)


def _after_fork() -> None:
    # A lock may have been copied while a thread held it that this process does not have; and iterators
    # must ask the library again, which knows that the store is the parent's.
    for shared in list(_open_stores):
        shared.lock = threading.RLock()
        shared.guard = threading.Lock()
        shared.transaction = shared.transaction_thread = None
        shared.inherited = True
        shared.changed()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Handle:
    """The native handle of a family."""

    __slots__ = ("__weakref__", "_cf", "_name", "_scans", "_shared")

    #: Closed with its last reference: to be passed to the library from here, and not to be kept.
    _cf: Any
    _shared: Shared
    _scans: list[None]
    _name: str

    def _attach(self, shared: Shared, cf: Any) -> None:
        self._cf = ffi.gc(cf, lib.kvstore_cf_close)
        self._shared = shared
        self._scans = shared.scans
        self._name = ffi.string(lib.kvstore_cf_name(cf)).decode()
        shared.families.add(self)

    def _detach(self) -> None:
        self._cf = NULL

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} cannot be pickled: open the store in each process")

    def _fail(self, rc: int) -> NoReturn:
        """Raises for a failed call on the family; a refusal is an InvalidError."""
        self._must_be_open()
        if rc == _NOTFOUND:
            raise not_found()
        text = error_text(self._shared.kv)
        if rc == _ERROR:
            raise InvalidError(text)
        raise exception_for(rc, text)

    def _check(self, rc: int) -> None:
        """Raises for a failed call whose arguments are not to blame."""
        if rc:
            self._must_be_open()
            raise exception_for(rc, error_text(self._shared.kv))

    def _must_be_open(self) -> None:
        self._shared.handle()
        if not self._cf:
            raise MisuseError(f"the handle of family {self._name!r} is closed: get another one from the store")

    def _default_ttl_ms(self) -> int:
        out = ffi.new("int64_t *")
        rc = lib.kvstore_cf_get_default_ttl(self._cf, out)
        if rc:
            self._fail(rc)
        return int(out[0])

    def _expire_ms(self, ttl: Optional[Duration], expire_at: Optional[Moment]) -> int:
        """When a key with these arguments expires, for calls that do not know the default TTL: 0 is never."""
        if ttl is not None:
            if expire_at is not None:
                raise ValueError("give a ttl or an expire_at, not both")
            ms = ttl_ms(ttl)
        elif expire_at is not None:
            return expire_at_ms(expire_at)
        else:
            ms = self._default_ttl_ms()
        return ms and self._shared.now_ms() + ms


def not_found() -> NotFoundError:
    """A key is missing. The text does not name it: keys may be secrets, and texts end in logs."""
    return NotFoundError("no such key")
