"""Batches: writes that are committed together."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any, Optional

from kvstore._errors import BusyError, InvalidError, MisuseError, exception_for
from kvstore._handle import Handle
from kvstore._native import NULL, Data, ffi, lib, to_bytes
from kvstore._time import Duration, Moment


class Batch:
    """Writes to the families of one store, committed together at the end of the ``with`` block: all of
    them, or on an exception none.

    Unlike a transaction, a batch holds no lock while it is filled, and reads do not see it. Everything is in
    memory until the commit. Inside an open transaction of the thread the commit makes it part of that one.
    Another thread may go on with it. The child of a fork that leaves the block commits nothing: the batch is its
    parent's.
    """

    __slots__ = ("_batch", "_default_ttls", "_elsewhere", "_family", "_hold", "_lock")

    def __init__(self, family: Handle) -> None:
        self._batch = NULL
        self._family = family
        self._default_ttls: dict[Any, int] = {}
        #: Families' handles on the connection of the thread that began it, for another thread.
        self._elsewhere: dict[Handle, Any] = {}
        self._lock = threading.Lock()  # the library wants one thread at a time
        out = ffi.new("KVBatch **")
        shared = family._shared
        self._hold = shared.hold()
        shared.check(lib.kvstore_batch_new(self._hold.connection.kv, out))
        self._batch = ffi.gc(out[0], lib.kvstore_batch_free)  # no __del__: an interrupt that comes inside one is lost

    def __enter__(self) -> Batch:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        try:
            if kind is None and self._batch and not self._hold.connection.inherited:
                self.commit()
        finally:
            self.close()

    def put(
        self,
        key: Data,
        value: Any,
        ttl: Optional[Duration] = None,
        expires_at: Optional[Moment] = None,
        *,
        family: Optional[Handle] = None,
    ) -> None:
        """Adds a write, to the family the batch was made from or to another one of the store. TTLs count
        from now, not from the commit; the default TTL is the one at the first write to the family."""
        where = family if family is not None else self._family
        if ttl is None and expires_at is None:
            known = self._default_ttls.get(where)
            if known is None:
                known = self._default_ttls[where] = where._default_ttl_ms()
            expire_ms = known and where._shared.now_ms() + known
        else:
            expire_ms = where._expire_ms(ttl, expires_at)
        self._put(where, to_bytes(key), where._encode(value), expire_ms)

    def _put(self, family: Handle, key: bytes, value: bytes, expire_ms: int) -> None:
        cf = self._handle_of(family)
        with self._lock:
            rc = lib.kvstore_batch_put(self._batch, cf, key, len(key), value, len(value), expire_ms)
        if rc:
            self._fail(rc, family)

    def delete(self, key: Data, *, family: Optional[Handle] = None) -> None:
        """Adds a deletion. A key that is missing at the commit is no error."""
        where = family if family is not None else self._family
        name = to_bytes(key)
        cf = self._handle_of(where)
        with self._lock:
            rc = lib.kvstore_batch_delete(self._batch, cf, name, len(name))
        if rc:
            self._fail(rc, where)

    def _is_here(self) -> bool:
        """Whether this thread's connection is the batch's."""
        if self._hold.connection.inherited:
            raise MisuseError("the batch was begun before a fork: it is the parent's; make a new one")
        shared = self._family._shared
        here = shared.connection_here() is self._hold.connection
        if here:
            self._hold.connection.check_task()
        return here

    def _handle_of(self, family: Handle) -> Any:
        if self._is_here() or family._shared is not self._family._shared:
            return family._cf
        family._must_be_open()
        cf = self._elsewhere.get(family)
        if cf is None:
            cf = self._elsewhere[family] = family._open_on(self._hold.connection)
        return cf

    def __len__(self) -> int:
        """How many writes and deletions wait for the commit."""
        self._is_here()
        out = ffi.new("int64_t *")
        with self._lock:
            rc = lib.kvstore_batch_count(self._batch, out)
        if rc:
            self._fail(rc, self._family)
        return int(out[0])

    def __bool__(self) -> bool:
        return True

    def clear(self) -> None:
        """Forgets what was added."""
        self._is_here()
        with self._lock:
            rc = lib.kvstore_batch_clear(self._batch)
        if rc:
            self._fail(rc, self._family)

    def commit(self) -> None:
        """Commits now; the batch is empty afterwards and can be filled again. If it fails, the batch is
        as it was."""
        turn = None
        try:
            if not self._is_here():  # it must not become part of a transaction of the thread that began it
                turn = self._hold.connection.lock
                if not turn.acquire(blocking=False):
                    raise BusyError("the thread that began the batch has a transaction open: commit the batch later")
            with self._lock:
                rc = lib.kvstore_batch_commit(self._batch)
            if rc:
                self._fail(rc, self._family)
        finally:
            if turn is not None and turn._is_owned():
                turn.release()
        self._family._shared.changed()

    def close(self) -> None:
        """Forgets what was not committed. To close a batch again is allowed."""
        if self._hold.connection.inherited:
            return  # a thread that this process does not have may have held the lock; it is freed with this object
        with self._lock:
            batch, self._batch = self._batch, NULL
        if batch:
            ffi.release(batch)
        self._elsewhere.clear()
        self._hold.release()

    def _fail(self, rc: int, family: Handle) -> None:
        if not self._batch:
            raise MisuseError("the batch is closed: make a new one")
        family._must_be_open()
        text = self._hold.connection.error_text()
        if rc == lib.KVSTORE_ERROR:
            raise InvalidError(text)
        raise exception_for(rc, text)
