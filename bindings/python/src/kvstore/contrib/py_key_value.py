"""A store for py-key-value (``py-key-value-aio``), which FastMCP uses: keys in a file.

::

    from kvstore.contrib.py_key_value import KVStoreStore

    store = KVStoreStore("/var/lib/server/state.db")
    await store.put("ada", {"born": 1815}, collection="people", ttl=3600)

With FastMCP::

    mcp = FastMCP("server", auth=GitHubProvider(..., client_storage=KVStoreStore("oauth.db")))

Collections are created when they are used and end with their last key. Values are JSON with the
fields that other stores of py-key-value write. The TTL is that of the key in the file: ``ttl`` and
``get`` follow a change of it that another program makes.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from types import TracebackType
from typing import Any, Optional

from key_value.aio.errors import InvalidKeyError
from key_value.aio.stores.base import (
    BaseContextManagerStore,
    BaseCullStore,
    BaseDestroyCollectionStore,
    BaseDestroyStore,
    BaseEnumerateCollectionsStore,
    BaseEnumerateKeysStore,
    ManagedEntry,
)

import kvstore
from kvstore import Family, row_key
from kvstore.contrib._rows import partitions
from kvstore.contrib._storage import Storage
from kvstore.contrib._threads import Threads

#: The shortest TTL in seconds.
_SHORTEST = 0.001

#: A value from the file, and its remaining TTL in seconds; None: no TTL.
_Row = tuple[bytes, Optional[float]]


class KVStoreStore(
    BaseContextManagerStore,
    BaseEnumerateKeysStore,
    BaseEnumerateCollectionsStore,
    BaseDestroyCollectionStore,
    BaseDestroyStore,
    BaseCullStore,
):
    """A py-key-value store in a family of a file. All event loops, threads and processes may use it.

    It has the optional protocols: enumerating keys and collections, destroying a collection or the
    store, and ``cull``, which removes expired keys from the file. ``put_many`` and ``delete_many``
    are atomic. ``keys`` and ``collections`` are in byte order, all of them without a ``limit``. A
    destroyed store can be used again: only its family is emptied.

    Calls run in threads of the store, so the event loop is not blocked. ``async with`` or ``close``
    closes the file; the next use opens it again.

    Args:
        path: The file, created with missing directories; ":memory:" for a store in memory.
        family: The family of the file.
        default_collection: The collection of calls that name none.
        seed: Entries that are written at the first use: a dict of collections, each a dict from
            keys to values.
        options: Settings of :func:`kvstore.open`; ``max_bytes`` and ``policy`` of ``Store.limit``;
            ``ignore_errors``: whether a failed read counts as a miss and a failed write is only
            logged. By default both raise :exc:`kvstore.Error`, as a store is no cache.

    Raises:
        InvalidKeyError: By each call, if collection and key have more than 65,534 bytes of UTF-8
            together (zero bytes of the collection count twice), or cannot be encoded.
        SerializationError: By ``put`` and ``put_many``, if a value is not JSON.
        DeserializationError: By reads, if another program has written a value that is not of
            py-key-value.
    """

    def __init__(
        self,
        path: Any,
        *,
        family: str = "py_key_value",
        default_collection: Optional[str] = None,
        seed: Optional[Any] = None,
        **options: Any,
    ) -> None:
        self._storage = Storage(path, family, options)
        self._threads = Threads(self._storage)
        super().__init__(default_collection=default_collection, seed=seed, stable_api=True)

    async def _get_managed_entry(self, *, collection: str, key: str) -> Optional[ManagedEntry]:
        [entry] = await self._get_managed_entries(collection=collection, keys=[key])
        return entry

    async def _get_managed_entries(self, *, collection: str, keys: Sequence[str]) -> list[Optional[ManagedEntry]]:
        names = [_name(collection, key) for key in keys]
        none: list[Optional[_Row]] = [None] * len(names)

        def get(family: Family) -> list[Optional[_Row]]:
            return [family.get_with_ttl(name) for name in names]

        found = await self._threads.read(lambda: self._storage.read(get, none))
        return [None if row is None else self._entry(row) for row in found]

    def _entry(self, row: _Row) -> ManagedEntry:
        data, left = row
        entry = self._serialization_adapter.load_json(json_str=data.decode(errors="replace"))
        entry.expires_at = None if left is None else datetime.now(tz=timezone.utc) + timedelta(seconds=left)
        return entry

    async def _put_managed_entry(self, *, collection: str, key: str, managed_entry: ManagedEntry) -> None:
        await self._put(collection, [key], [managed_entry], managed_entry.ttl)

    async def _put_managed_entries(
        self,
        *,
        collection: str,
        keys: Sequence[str],
        managed_entries: Sequence[ManagedEntry],
        ttl: Optional[float],
        created_at: datetime,
        expires_at: Optional[datetime],
    ) -> None:
        await self._put(collection, keys, managed_entries, ttl)

    async def _put(
        self, collection: str, keys: Sequence[str], entries: Sequence[ManagedEntry], ttl: Optional[float]
    ) -> None:
        items = [
            (_name(collection, key), self._serialization_adapter.dump_json(entry=entry, key=key, collection=collection))
            for key, entry in zip(keys, entries)
        ]
        # A TTL and not an expiry time: a server has its own clock.
        seconds = kvstore.FOREVER if ttl is None else max(ttl, _SHORTEST)

        def put(family: Family) -> int:
            return family.put_many(items, ttl=seconds)

        await self._threads.write(lambda: self._storage.write(put, [name for name, _ in items], 0))

    async def _delete_managed_entry(self, *, key: str, collection: str) -> bool:
        return await self._delete_managed_entries(keys=[key], collection=collection) > 0

    async def _delete_managed_entries(self, *, keys: Sequence[str], collection: str) -> int:
        names = [_name(collection, key) for key in keys]
        return await self._threads.write(lambda: self._storage.read(lambda family: family.delete_many(names), 0))

    async def _get_collection_keys(self, *, collection: str, limit: Optional[int] = None) -> list[str]:
        prefix = _name(collection, "")
        none: list[bytes] = []
        found = await self._threads.read(
            lambda: self._storage.read(lambda family: list(family.keys(prefix=prefix, limit=limit)), none)
        )
        return [key[len(prefix) :].decode(errors="replace") for key in found]

    async def _get_collection_names(self, *, limit: Optional[int] = None) -> list[str]:
        none: list[bytes] = []
        found = await self._threads.read(
            lambda: self._storage.read(lambda family: list(partitions(family, limit)), none)
        )
        return [name.decode(errors="replace") for name in found]

    async def _delete_collection(self, *, collection: str) -> bool:
        prefix = _name(collection, "")
        return await self._threads.write(
            lambda: self._storage.call(lambda family: family.delete_range(prefix=prefix)) > 0
        )

    async def _delete_store(self) -> bool:
        await self._threads.write(self._storage.clear)
        return True

    async def _cull(self) -> None:
        await self._threads.write(lambda: self._storage.call(lambda family: family.purge_expired()))

    async def __aexit__(
        self,
        exc_type: Optional[type[BaseException]],
        exc_value: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> Optional[bool]:
        try:
            suppressed: Optional[bool] = await super().__aexit__(exc_type, exc_value, traceback)
        finally:
            await self._threads.close(self._storage.close)
        return suppressed

    async def close(self) -> None:
        """Close the file, unless another backend of this process uses it. The next use opens it
        again.
        """
        await super().close()
        await self._threads.close(self._storage.close)


def _name(collection: str, key: str) -> bytes:
    """Return the key of the file for a key of a collection."""
    try:
        return row_key(collection, key)
    except ValueError as error:
        raise InvalidKeyError(message=f"The key is invalid: {error}") from error
