"""LangGraph's checkpoints, in a file. See :mod:`kvstore.contrib.langgraph`.

The keys of a checkpoint are row keys inside each other: thread, namespace, checkpoint, and empty for
the checkpoint itself, or task and index for a write that belongs to it::

    row_key(thread_id, row_key(checkpoint_ns, row_key(checkpoint_id, row_key(task_id, index))))

So the rows of a checkpoint are next to each other, the checkpoint first, and a thread is one range.
Checkpoint IDs ascend with time.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from itertools import islice
from typing import Any, NamedTuple, Optional

from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    CheckpointTuple,
    get_checkpoint_id,
    get_checkpoint_metadata,
)

from kvstore import Family, row_key
from kvstore._transaction import in_one_transaction
from kvstore.contrib._rows import partitions, split_row_key
from kvstore.contrib._storage import Storage
from kvstore.contrib._threads import Threads
from kvstore.contrib.langgraph.serializer import pack, serializer_of, unpack

#: LangGraph's RunnableConfig: a dict with "configurable".
Config = Any


class _Place(NamedTuple):
    """A namespace of a thread."""

    thread_id: str
    checkpoint_ns: str

    def prefix(self) -> bytes:
        return row_key(self.thread_id, row_key(self.checkpoint_ns))

    def config(self, checkpoint_id: str) -> Config:
        return {
            "configurable": {
                "thread_id": self.thread_id,
                "checkpoint_ns": self.checkpoint_ns,
                "checkpoint_id": checkpoint_id,
            }
        }


class KVStoreSaver(BaseCheckpointSaver[str], AbstractContextManager[Any], AbstractAsyncContextManager[Any]):
    """A LangGraph checkpointer in a family of a file. All event loops, threads and processes may use
    it.

    Each call is atomic. A checkpoint is stored whole, with all its channels, as in LangGraph's
    checkpointer for SQLite. ``delete_for_runs`` reads all checkpoints of the file. ``prune`` keeps,
    of each namespace, the latest checkpoint and those before it that a ``DeltaChannel`` needs.

    Asynchronous methods run in threads of the checkpointer, so the event loop is not blocked. It is
    a context manager, also for ``async with``, that closes the file at its end; the next use opens
    it again.

    Args:
        path: The file, created with missing directories; ":memory:" for checkpoints in memory.
        family: The family of the file.
        serde: A serializer of LangGraph, instead of
            :class:`~kvstore.contrib.langgraph.StrictSerializer`; such as LangGraph's
            EncryptedSerializer around one.
        allowed_types: Classes of which objects may be read; see :mod:`kvstore.contrib.langgraph`.
        options: Settings of :func:`kvstore.open`. ``max_value_size`` (10 MiB by default) is the
            largest checkpoint, and the largest value of a write.

    Raises:
        Error: By each call, if the store fails. Nothing is changed then.
        ValueError: By reads, if a row was written by another program; by each call, if thread,
            namespace, checkpoint and task IDs have more than about 65,000 bytes together.
    """

    def __init__(
        self,
        path: Any,
        *,
        family: str = "langgraph_checkpoints",
        serde: Optional[Any] = None,
        allowed_types: Iterable[Any] = (),
        **options: Any,
    ) -> None:
        super().__init__(serde=serializer_of(serde, allowed_types))
        for option in ("max_bytes", "ignore_errors"):
            if options.get(option):
                raise TypeError(f"{option} is for caches: a checkpointer must not lose checkpoints")
        self._storage = Storage(path, family, options)
        self._threads = Threads(self._storage)

    # Reading

    def get_tuple(self, config: Config) -> Optional[CheckpointTuple]:
        place, checkpoint_id = _place(config), get_checkpoint_id(config)
        if checkpoint_id:
            found = self._tuple(place, str(checkpoint_id))
            return found and found._replace(config=config)
        return next(self._tuples(place, None), None)

    def list(
        self,
        config: Optional[Config],
        *,
        filter: Optional[dict[str, Any]] = None,
        before: Optional[Config] = None,
        limit: Optional[int] = None,
    ) -> Iterator[CheckpointTuple]:
        """Iterate over the checkpoints that match, the latest first.

        Args:
            config: Its thread, and its namespace and checkpoint ID if it has them; None: all.
            filter: Values that the metadata must have.
            before: Only checkpoints with an ID before the one of this configuration.
            limit: The maximum number of checkpoints; None: all.
        """
        stop = get_checkpoint_id(before) if before else None
        wanted = get_checkpoint_id(config) if config else None
        found = heapq.merge(
            *(self._tuples(place, stop, wanted) for place in self._places(config)),
            key=lambda found: str(found.config["configurable"]["checkpoint_id"]),
            reverse=True,
        )
        matching = (each for each in found if not filter or _has(each.metadata, filter))
        return islice(matching, None if limit is None else max(limit, 0))

    def _places(self, config: Optional[Config]) -> Iterable[_Place]:
        if config is not None and config["configurable"].get("checkpoint_ns") is not None:
            return [_place(config)]
        thread_id = None if config is None else str(config["configurable"]["thread_id"])
        return self._storage.call(lambda family: _all_places(family, thread_id))

    def _tuples(self, place: _Place, stop: Optional[str], wanted: Optional[str] = None) -> Iterator[CheckpointTuple]:
        """Iterate over the checkpoints of a namespace, the latest first.

        Args:
            place: The namespace.
            stop: Only checkpoints with a smaller ID; None: all.
            wanted: Only the checkpoint with this ID; None: all.
        """
        while True:
            last = self._storage.call(lambda family: _last_id(family, place, stop)) if wanted is None else wanted
            if last is None or (wanted is not None and stop is not None and wanted >= stop):
                return
            found = self._tuple(place, last)
            if found is not None:  # otherwise there are only writes so far
                yield found
            if wanted is not None:
                return
            stop = last

    def _tuple(self, place: _Place, checkpoint_id: str) -> Optional[CheckpointTuple]:
        prefix = place.prefix() + row_key(checkpoint_id)
        rows = self._storage.call(lambda family: list(family.items(prefix=prefix)))
        if not rows or rows[0][0] != prefix:
            return None
        [parent], [checkpoint, metadata] = unpack(rows[0][1])
        writes = sorted((unpack(row) for _, row in rows[1:]), key=lambda write: _order(*write[0]))
        return CheckpointTuple(
            config=place.config(checkpoint_id),
            checkpoint=self.serde.loads_typed(checkpoint),
            metadata=self.serde.loads_typed(metadata),
            parent_config=place.config(parent) if parent else None,
            pending_writes=[
                (task_id, channel, self.serde.loads_typed(value)) for [_, task_id, _, channel], [value] in writes
            ],
        )

    # Writing

    def put(self, config: Config, checkpoint: Any, metadata: Any, new_versions: Any) -> Config:
        place, parent = _place(config), get_checkpoint_id(config)
        name = place.prefix() + row_key(checkpoint["id"])
        described = get_checkpoint_metadata(config, metadata)
        row = pack([parent], self.serde.dumps_typed(checkpoint), self.serde.dumps_typed(described))
        self._storage.call(lambda family: family.put(name, row))
        return place.config(checkpoint["id"])

    def put_writes(self, config: Config, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = "") -> None:
        prefix = _place(config).prefix()
        checkpoint_id = str(config["configurable"]["checkpoint_id"])
        rows = []
        for position, (channel, value) in enumerate(writes):
            index = WRITES_IDX_MAP.get(channel, position)
            name = prefix + row_key(checkpoint_id, row_key(task_id, str(index)))
            rows.append((name, pack([task_path, task_id, index, channel], self.serde.dumps_typed(value)), index >= 0))

        def put(family: Family) -> None:
            for name, row, once in rows:
                family.put(name, row, if_absent=once)

        self._write(put)

    def delete_thread(self, thread_id: str) -> None:
        prefix = row_key(str(thread_id))
        self._storage.call(lambda family: family.delete_range(prefix=prefix))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        doomed = set(run_ids)

        def delete(family: Family) -> None:
            for place in _all_places(family, None):
                for checkpoint in self._tuples(place, None):
                    if checkpoint.metadata.get("run_id") in doomed:
                        _delete(family, place, checkpoint.checkpoint["id"])

        if doomed:
            self._write(delete)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        source, target = row_key(str(source_thread_id)), row_key(str(target_thread_id))

        def copy(family: Family) -> None:
            for name, row in family.items(prefix=source):
                family.put(target + name[len(source) :], row)

        if source != target:
            self._write(copy)

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete the older checkpoints of threads.

        Args:
            thread_ids: The threads.
            strategy: "keep_latest", or "delete" for all checkpoints of the threads.
        """
        if strategy not in ("keep_latest", "delete"):
            raise ValueError(f"strategy must be 'keep_latest' or 'delete', not {strategy!r}")

        def prune(family: Family) -> None:
            for thread_id in map(str, thread_ids):
                if strategy == "delete":
                    family.delete_range(prefix=row_key(thread_id))
                    continue
                for place in _all_places(family, thread_id):
                    self._keep_latest(family, place)

        self._write(prune)

    def _keep_latest(self, family: Family, place: _Place) -> None:
        latest = next(self._tuples(place, None), None)
        if latest is None:
            return
        kept = {latest.checkpoint["id"]}
        # A DeltaChannel is rebuilt from the writes since the last checkpoint that has its value.
        missing = set(latest.metadata.get("counters_since_delta_snapshot") or ())
        missing -= set(latest.checkpoint["channel_values"])
        parent = latest.parent_config
        while missing and parent is not None and parent["configurable"]["checkpoint_id"] not in kept:
            ancestor = self._tuple(place, parent["configurable"]["checkpoint_id"])
            if ancestor is None:
                break
            kept.add(ancestor.checkpoint["id"])
            missing -= set(ancestor.checkpoint["channel_values"])
            parent = ancestor.parent_config
        stop = latest.checkpoint["id"]
        while True:
            found = _last_id(family, place, stop)
            if found is None:
                return
            if found not in kept:
                _delete(family, place, found)
            stop = found

    def _write(self, work: Any) -> None:
        self._storage.call(lambda family: in_one_transaction(family._state, lambda: work(family), joins=False))

    def get_next_version(self, current: Any, channel: None) -> str:
        """Return the version of a channel after ``current``: a number that sorts as text."""
        number = 0 if current is None else int(str(current).partition(".")[0])
        return f"{number + 1:032}.{random.random():016}"

    # asyncio

    async def aget_tuple(self, config: Config) -> Optional[CheckpointTuple]:
        return await self._threads.read(lambda: self.get_tuple(config))

    async def alist(
        self,
        config: Optional[Config],
        *,
        filter: Optional[dict[str, Any]] = None,
        before: Optional[Config] = None,
        limit: Optional[int] = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Iterate over checkpoints, as :meth:`list` does."""
        found = await self._threads.read(lambda: self.list(config, filter=filter, before=before, limit=limit))
        while True:
            each = await self._threads.read(lambda: next(found, None))
            if each is None:
                return
            yield each

    async def aput(self, config: Config, checkpoint: Any, metadata: Any, new_versions: Any) -> Config:
        return await self._threads.write(lambda: self.put(config, checkpoint, metadata, new_versions))

    async def aput_writes(
        self, config: Config, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        await self._threads.write(lambda: self.put_writes(config, writes, task_id, task_path))

    async def adelete_thread(self, thread_id: str) -> None:
        await self._threads.write(lambda: self.delete_thread(thread_id))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        await self._threads.write(lambda: self.delete_for_runs(run_ids))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await self._threads.write(lambda: self.copy_thread(source_thread_id, target_thread_id))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        await self._threads.write(lambda: self.prune(thread_ids, strategy=strategy))

    async def aget_delta_channel_history(self, *, config: Config, channels: Sequence[str]) -> Any:
        return await self._threads.read(lambda: self.get_delta_channel_history(config=config, channels=channels))

    # Closing

    def close(self) -> None:
        """Close the file, unless another backend of this process uses it. The next use opens it
        again.
        """
        self._storage.close()

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    async def __aexit__(self, *exc_info: object) -> None:
        await self._threads.close(self._storage.close)


def _place(config: Config) -> _Place:
    configurable = config["configurable"]
    return _Place(str(configurable["thread_id"]), str(configurable.get("checkpoint_ns") or ""))


def _all_places(family: Family, thread_id: Optional[str]) -> Iterable[_Place]:
    """Return the namespaces of a thread; None: of all threads."""
    threads = partitions(family) if thread_id is None else [thread_id.encode()]
    return [
        _Place(thread.decode(), namespace.decode())
        for thread in threads
        for namespace in partitions(family, prefix=row_key(thread))
    ]


def _last_id(family: Family, place: _Place, stop: Optional[str]) -> Optional[str]:
    """Return the largest checkpoint ID of a namespace that is smaller than ``stop``.

    The checkpoint may have only writes so far.
    """
    prefix = place.prefix()
    end = None if stop is None else prefix + row_key(stop)
    key = next(iter(family.keys(prefix=prefix, stop=end, reverse=True, limit=1)), None)
    return None if key is None else split_row_key(key[len(prefix) :])[0].decode()


def _delete(family: Family, place: _Place, checkpoint_id: str) -> None:
    """Delete a checkpoint and its writes."""
    family.delete_range(prefix=place.prefix() + row_key(checkpoint_id))


def _order(task_path: str, task_id: str, index: int, channel: str) -> tuple[str, str, int]:
    """Return the sort key of a write: the order in which LangGraph applies writes."""
    return task_path, task_id, index


def _has(metadata: Any, wanted: Mapping[str, Any]) -> bool:
    return all(metadata.get(name) == value for name, value in wanted.items())
