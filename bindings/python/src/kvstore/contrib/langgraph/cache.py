"""LangGraph's cache of node results, in a file. See :mod:`kvstore.contrib.langgraph`."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Optional

from langgraph.cache.base import BaseCache

import kvstore
from kvstore import Family, row_key
from kvstore.contrib._many import is_of_value, put_rows
from kvstore.contrib._names import replacement_of
from kvstore.contrib._storage import Storage
from kvstore.contrib._threads import Threads
from kvstore.contrib.langgraph.serializer import pack, serializer_of, unpack

_log = logging.getLogger("kvstore.contrib")

#: A tuple of str.
Namespace = tuple[str, ...]
#: A namespace and a key in it.
FullKey = tuple[Namespace, str]


class KVStoreCache(BaseCache[Any]):
    """A LangGraph cache in a family of a file. All event loops, threads and processes may use it.

    ``set`` and ``get`` are atomic for all their keys, and ``clear`` for each namespace.

    Args:
        path: The file, created with missing directories; ":memory:" for a cache in memory.
        family: The family of the file.
        serde: A serializer of LangGraph, instead of
            :class:`~kvstore.contrib.langgraph.StrictSerializer`.
        allowed_types: Classes of which objects may be read; see :mod:`kvstore.contrib.langgraph`.
        options: Settings of :func:`kvstore.open`; ``max_bytes`` and ``policy`` of ``Store.limit``;
            ``ignore_errors``: whether a failed read counts as a miss. By default it raises
            :exc:`kvstore.Error`.

    A failed write is logged and ignored. A value that cannot be read counts as missing.
    """

    def __init__(
        self,
        path: Any,
        *,
        family: str = "langgraph_cache",
        serde: Optional[Any] = None,
        allowed_types: Iterable[Any] = (),
        **options: Any,
    ) -> None:
        super().__init__(serde=serializer_of(serde, allowed_types))
        self._storage = Storage(path, family, options)
        self._threads = Threads(self._storage)

    def get(self, keys: Sequence[FullKey]) -> dict[FullKey, Any]:
        names = {(tuple(namespace), key): _name(namespace, key) for namespace, key in keys}
        none: dict[bytes, bytes] = {}
        rows = self._storage.read(lambda family: family.get_many(list(names.values())), none)
        found: dict[FullKey, Any] = {}
        for full_key, name in names.items():
            if name in rows:
                try:
                    _, [value] = unpack(rows[name])
                    found[full_key] = self.serde.loads_typed(value)
                except Exception as error:  # of any serializer
                    _log.warning("a value counts as missing: %s", error)
        return found

    def set(self, pairs: Mapping[FullKey, tuple[Any, Optional[int]]]) -> None:
        rows: list[tuple[bytes, bytes, Optional[float]]] = []
        for (namespace, key), (value, seconds) in pairs.items():
            ttl = kvstore.FOREVER if seconds is None else seconds
            data = pack([], self.serde.dumps_typed(value))
            rows.append((_name(namespace, key), data, ttl if ttl > 0 else None))

        def put(family: Family) -> None:
            try:
                with family.batch() as batch:
                    for name, row, ttl in rows:
                        if ttl is None:
                            batch.delete(name)
                        else:
                            batch.put(name, row, ttl=ttl)
            except kvstore.Error as error:
                if not is_of_value(error):
                    raise
                put_rows(self._storage, family, rows)

        self._storage.keep(put, [name for name, _, _ in rows], None)

    def clear(self, namespaces: Optional[Sequence[Namespace]] = None) -> None:
        if namespaces is None:
            self._storage.clear()
            return
        prefixes = [_name(namespace, "") for namespace in namespaces]

        def delete(family: Family) -> None:
            for prefix in prefixes:
                family.delete_range(prefix=prefix)

        self._storage.call(delete)

    async def aget(self, keys: Sequence[FullKey]) -> dict[FullKey, Any]:
        return await self._threads.read(lambda: self.get(keys))

    async def aset(self, pairs: Mapping[FullKey, tuple[Any, Optional[int]]]) -> None:
        await self._threads.write(lambda: self.set(pairs))

    async def aclear(self, namespaces: Optional[Sequence[Namespace]] = None) -> None:
        await self._threads.write(lambda: self.clear(namespaces))

    def close(self) -> None:
        """Close the file, unless another backend of this process uses it. The next use opens it
        again.
        """
        self._storage.close()


def _name(namespace: Namespace, key: str) -> bytes:
    """Return the key of the file: a row key whose partition is the namespace as JSON."""
    partition = json.dumps(list(namespace))
    try:
        return row_key(partition, key)
    except ValueError:  # the key is too long, or no UTF-8
        return row_key(partition, replacement_of(key.encode("utf-8", "surrogatepass")))
