"""Class Batch for asyncio: writes that are committed together."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Optional

import kvstore
from kvstore._native import Data
from kvstore._time import Duration, Moment

if TYPE_CHECKING:
    from kvstore.aio._family import Family
    from kvstore.aio._workers import Worker

#: A write, applied to the real batch and family in the worker thread.
Write = Callable[["kvstore.Batch", "kvstore.Family[Any, Any]"], Any]


class Batch:
    """Writes that are collected in memory and committed together at the end of an ``async with``
    block.

    They can go to all families of one store.

    An exception in the block discards all of them. A batch made from a transaction, or from a
    family of one, is part of that transaction.

    ``put`` and ``delete`` only record the write and are not coroutines. TTLs count from the commit.
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
        """Add a write of a key and its value to the batch.

        The arguments are those of :meth:`kvstore.Batch.put`, but a TTL counts from the commit.
        """
        where = self._family if family is None else family
        name, data = frozen(key), where._frozen(value)
        self._add(family, lambda batch, where: batch.put(name, data, ttl, expires_at, family=where))

    def delete(self, key: Data, *, family: Optional[Family[Any, Any]] = None) -> None:
        """Add the deletion of a key to the batch. A key that does not exist at the commit is
        ignored.
        """
        name = frozen(key)
        self._add(family, lambda batch, where: batch.delete(name, family=where))

    def _add(self, family: Optional[Family[Any, Any]], write: Write) -> None:
        where = self._family if family is None else family
        if where._runner is not self._family._runner:
            raise ValueError(
                "family= belongs to another store or transaction: give a family of the one that the batch was "
                "made from"
            )
        self._writes.append((where, write))

    def __len__(self) -> int:
        """Return the number of writes and deletions that are not committed yet."""
        return len(self._writes)

    def __bool__(self) -> bool:
        return True

    def clear(self) -> None:
        """Discard all writes and deletions that are not committed yet."""
        self._writes.clear()

    async def commit(self) -> None:
        """Commit the writes now. The batch is then empty and can be filled again.

        If the commit fails or is cancelled, the batch keeps its writes.
        """
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
    """Return a copy of a mutable buffer, so that the caller may change the buffer. Return other
    values unchanged.
    """
    return bytes(value) if isinstance(value, (bytearray, memoryview)) else value
