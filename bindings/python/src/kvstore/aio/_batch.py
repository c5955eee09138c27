"""Batches for asyncio."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Optional

import kvstore
from kvstore._native import Data
from kvstore._time import Duration, Moment

if TYPE_CHECKING:
    from kvstore.aio._family import Family
    from kvstore.aio._pool import Worker

#: What a batch is to do, given the real one, and the family.
Write = Callable[["kvstore.Batch", "kvstore.Family[Any, Any]"], Any]


class Batch:
    """Writes to the families of one store, committed together at the end of the ``async with`` block: all of them,
    or on an exception none. Inside a transaction, when made from it or a family of it.

    ``put`` and ``delete`` only remember, and are no coroutines. TTLs count from the commit.
    """

    __slots__ = ("_family", "_writes")

    def __init__(self, family: Family[Any, Any]) -> None:
        self._family = family
        self._writes: list[tuple[Family[Any, Any], Write]] = []

    def put(
        self,
        key: Data,
        value: Any,
        ttl: Optional[Duration] = None,
        expires_at: Optional[Moment] = None,
        *,
        family: Optional[Family[Any, Any]] = None,
    ) -> None:
        """Adds a write, to the family the batch was made from or to another one of the store."""
        where = self._family if family is None else family
        name, data = frozen(key), where._frozen(value)
        self._add(family, lambda batch, where: batch.put(name, data, ttl, expires_at, family=where))

    def delete(self, key: Data, *, family: Optional[Family[Any, Any]] = None) -> None:
        """Adds a deletion. A key that is missing at the commit is no error."""
        name = frozen(key)
        self._add(family, lambda batch, where: batch.delete(name, family=where))

    def _add(self, family: Optional[Family[Any, Any]], write: Write) -> None:
        where = self._family if family is None else family
        if where._runner is not self._family._runner:
            raise ValueError("a batch is of one store, or of one transaction: this family is of another")
        self._writes.append((where, write))

    def __len__(self) -> int:
        """How many writes and deletions wait for the commit."""
        return len(self._writes)

    def __bool__(self) -> bool:
        return True

    def clear(self) -> None:
        """Forgets what was added."""
        self._writes.clear()

    async def commit(self) -> None:
        """Commits now; the batch is empty afterwards and can be filled again. If it fails, or is cancelled, the
        batch is as it was."""
        writes = list(self._writes)
        if writes:
            await self._family._runner._work(True, lambda worker: worker.with_families(lambda: _commit(worker, writes)))
            del self._writes[: len(writes)]

    async def __aenter__(self) -> Batch:
        return self

    async def __aexit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        if kind is None:
            await self.commit()
        self._writes.clear()


def _commit(worker: Worker, writes: list[tuple[Family[Any, Any], Write]]) -> None:
    with worker.store.batch() as batch:
        for family, write in writes:
            write(batch, worker.family(family._name, family._options))


def frozen(value: Any) -> Any:
    """What the caller may change while a thread reads it, as it is now."""
    return bytes(value) if isinstance(value, (bytearray, memoryview)) else value
