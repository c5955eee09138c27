"""Batches: writes that are collected in memory and committed together."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any, Optional

from kvstore._errors import BusyError, MisuseError, exception_for
from kvstore._family_handle import FamilyHandle
from kvstore._native import NULL, Data, ffi, lib, to_bytes
from kvstore._time import Duration, Moment


class Batch:
    """Writes that are collected in memory and committed together at the end of a ``with`` block.

    They can go to all families of one store.

    An exception in the block discards all of them. Created by :meth:`Family.batch`.

    Unlike a transaction, a batch takes no lock until it commits, and reads do not see its writes.
    All writes are kept in memory. If the thread has a transaction open at the commit, the writes
    become part of that transaction.

    Another thread may continue filling and commit a batch. In the child of a fork the block commits
    nothing: the batch belongs to the parent process.
    """

    __slots__ = ("_batch", "_elsewhere", "_family", "_lock", "_pin")

    def __init__(self, family: FamilyHandle) -> None:
        self._batch = NULL
        self._family = family
        #: Family handles on the connection of the thread that began the batch, used by other
        #: threads.
        self._elsewhere: dict[FamilyHandle, Any] = {}
        self._lock = threading.Lock()  # the library allows one thread at a time in a batch
        out = ffi.new("KVBatch **")
        state = family._state
        self._pin = state.pin()
        state.check(lib.kvstore_batch_new(self._pin.connection.kv, out))
        self._batch = ffi.gc(out[0], lib.kvstore_batch_free)  # not __del__: a KeyboardInterrupt raised there is lost

    def __enter__(self) -> Batch:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        try:
            if kind is None and self._batch and not self._pin.connection.inherited:
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
        family: Optional[FamilyHandle] = None,
    ) -> None:
        """Add a write of a key and its value to the batch.

        Args:
            key: str or bytes-like, 1 to 65,536 bytes.
            value: The value, as the family takes it.
            ttl: Seconds or a ``timedelta``, counted from this call and not from the commit. None:
                the default TTL of the family, counted from the commit.
            expires_at: The expiry time, instead of ``ttl``.
            family: Another family of the same store; by default the one the batch was made from.

        Raises:
            MisuseError: If the batch or the family is closed.
            ValueError, TypeError: For an invalid key, value or time.
        """
        where = family if family is not None else self._family
        self._put(where, to_bytes(key), where._encode(value), where._expire_ms(ttl, expires_at))

    def _put(self, family: FamilyHandle, key: bytes, value: bytes, expire_ms: int) -> None:
        cf = self._handle_of(family)
        with self._lock:
            rc = lib.kvstore_batch_put(self._batch, cf, key, len(key), value, len(value), expire_ms)
        if rc:
            self._fail(rc, family)

    def delete(self, key: Data, *, family: Optional[FamilyHandle] = None) -> None:
        """Add the deletion of a key to the batch. A key that does not exist at the commit is
        ignored.

        Args:
            key: str or bytes-like.
            family: Another family of the same store; by default the one the batch was made from.
        """
        where = family if family is not None else self._family
        name = to_bytes(key)
        cf = self._handle_of(where)
        with self._lock:
            rc = lib.kvstore_batch_delete(self._batch, cf, name, len(name))
        if rc:
            self._fail(rc, where)

    def _is_here(self) -> bool:
        """Return whether this thread uses the connection on which the batch was created."""
        if self._pin.connection.inherited:
            raise MisuseError(
                "the batch belongs to the parent process, which made it before the fork: make a new batch in "
                "the child"
            )
        state = self._family._state
        here = state.thread_connection() is self._pin.connection
        if here:
            self._pin.connection.check_task()
        return here

    def _handle_of(self, family: FamilyHandle) -> Any:
        if self._is_here() or family._state is not self._family._state:
            return family._cf
        family._must_be_open()
        cf = self._elsewhere.get(family)
        if cf is None:
            cf = self._elsewhere[family] = family._open_on(self._pin.connection)
        return cf

    def __len__(self) -> int:
        """Return the number of writes and deletions that are not committed yet."""
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
        """Discard all writes and deletions that are not committed yet."""
        self._is_here()
        with self._lock:
            rc = lib.kvstore_batch_clear(self._batch)
        if rc:
            self._fail(rc, self._family)

    def commit(self) -> None:
        """Commit the writes now. The batch is then empty and can be filled again.

        If the commit fails, the batch keeps its writes and nothing was written.

        Raises:
            BusyError: If another thread or process keeps writing for longer than ``busy_timeout``,
                or if the batch is committed by another thread than the one that began it while that
                thread has a transaction open.
        """
        turn = None
        try:
            if not self._is_here():  # must not join a transaction of the thread that began the batch
                turn = self._pin.connection.lock
                if not turn.acquire(blocking=False):
                    raise BusyError(
                        "the thread that began the batch has a transaction open: commit the batch after that "
                        "transaction ends"
                    )
            with self._lock:
                rc = lib.kvstore_batch_commit(self._batch)
            if rc:
                self._fail(rc, self._family)
        finally:
            if turn is not None and turn._is_owned():
                turn.release()
        self._family._state.changed()

    def close(self) -> None:
        """Close the batch and discard the writes that are not committed. A batch may be closed
        twice.
        """
        if self._pin.connection.inherited:
            return  # the lock may be held by a thread that does not exist here; this object frees the batch
        with self._lock:
            batch, self._batch = self._batch, NULL
        if batch:
            ffi.release(batch)
        self._elsewhere.clear()
        self._pin.release()

    def _fail(self, rc: int, family: FamilyHandle) -> None:
        if not self._batch:
            raise MisuseError("the batch is closed: make a new one")
        family._must_be_open()
        failure = self._pin.connection.failure()
        raise failure.rejected() if rc == lib.KVSTORE_ERROR else exception_for(rc, failure)
