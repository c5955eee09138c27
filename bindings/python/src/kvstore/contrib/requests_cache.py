"""A backend for requests-cache: cached responses in a file.

::

    from requests_cache import CachedSession
    from kvstore.contrib.requests_cache import KVStoreCache

    session = CachedSession(backend=KVStoreCache("http_cache.db"), expire_after=3600)

A response is stored for ``ttl_offset`` seconds (an hour) beyond its expiration. Until then
requests-cache can still use it, for example with ``stale_if_error``, or revalidate it. A response
that has expired when it is saved is stored as long.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Optional

from requests_cache.backends import BaseCache, BaseStorage
from requests_cache.serializers import SerializerPipeline, Stage
from requests_cache.serializers.preconf import base_stage

import kvstore
from kvstore.contrib._names import is_replaced, name_of
from kvstore.contrib._storage import STORAGE_OPTIONS, Storage
from kvstore.contrib._timeouts import ttl_of


#: Encodes responses with ``kvstore.DATA``.
data_serializer = SerializerPipeline([base_stage, Stage(kvstore.DATA)], name="data", is_binary=True)


class KVStoreCache(BaseCache):
    """A requests-cache backend that stores responses and redirects in two families of a file.

    The families are ``responses`` and ``redirects``.

    Args:
        cache_name: The path of the file, used as it is; ":memory:" for a cache in memory.
        serializer: A serializer of requests-cache, or its name. By default ``kvstore.DATA`` encodes
            the responses, and reading them runs no code from the file. With "pickle", anyone who
            can write to the file can run code in this process.
        ttl: Whether expired responses are removed.
        ttl_offset: How many seconds after the expiration they are removed; 10,000 years or more:
            never.
        **kwargs: Settings of :func:`kvstore.open`, ``max_bytes`` and ``policy`` of ``Store.limit``;
            ``ignore_errors``: whether a read or deletion that fails counts as that of a missing key (by
            default it raises :exc:`kvstore.Error`); and arguments of requests-cache, such as
            ``decode_content``. A response that cannot be stored is logged.
    """

    def __init__(
        self,
        cache_name: Any = "http_cache.db",
        serializer: Optional[Any] = None,
        ttl: bool = True,
        ttl_offset: float = 3600,
        **kwargs: Any,
    ) -> None:
        super().__init__(cache_name=str(cache_name), **kwargs)
        chosen = data_serializer if serializer is None else serializer
        self.responses = KVStoreDict(cache_name, "responses", chosen, ttl=ttl, ttl_offset=ttl_offset, **kwargs)
        self.redirects = KVStoreDict(cache_name, "redirects", None, ttl=False, **kwargs)


class KVStoreDict(BaseStorage):
    """A mapping with str keys, stored in a family of a file. Without a serializer, values are str
    too.
    """

    def __init__(
        self,
        cache_name: Any,
        family: str = "responses",
        serializer: Optional[Any] = data_serializer,
        ttl: bool = True,
        ttl_offset: float = 3600,
        **kwargs: Any,
    ) -> None:
        super().__init__(serializer=serializer, **kwargs)
        self.ttl = ttl
        self.ttl_offset = ttl_offset
        self._storage = Storage(cache_name, family, {k: v for k, v in kwargs.items() if k in STORAGE_OPTIONS})

    def __getitem__(self, key: Any) -> Any:
        data = self._storage.read(lambda family: family.get(name_of(str(key))), None)
        if data is None:
            raise KeyError(key)
        return self._value(key, data)

    def _value(self, key: Any, data: bytes) -> Any:
        if self.serializer is None:
            return data.decode(errors="replace")
        return self.deserialize(key, data)

    def __setitem__(self, key: Any, value: Any) -> None:
        data = self.serialize(value)
        left = getattr(value, "expires_delta", None) if self.ttl else None
        ttl = kvstore.FOREVER if left is None else ttl_of(max(left, 0) + self.ttl_offset)

        name = name_of(str(key))

        def put(family: kvstore.Family) -> None:
            if ttl is None:
                family.delete(name)
            else:
                family.put(name, data, ttl=ttl)

        self._storage.keep(put, [name], None)

    def __delitem__(self, key: Any) -> None:
        name = name_of(str(key))
        if not self._storage.read(lambda family: family.delete(name), False):
            raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        return self._storage.read(lambda family: family.has_key(name_of(str(key))), False)

    def __iter__(self) -> Iterator[str]:
        none: Iterable[bytes] = ()
        for key in self._storage.read(lambda family: family.keys(), none):
            if not is_replaced(key):
                yield key.decode()

    def __len__(self) -> int:
        return self._storage.read(len, 0)

    def bulk_delete(self, keys: Iterable[Any]) -> None:
        """Delete several keys in one transaction. Missing keys are ignored."""
        names = [name_of(str(key)) for key in keys]
        self._storage.read(lambda family: family.delete_many(names), 0)

    def clear(self) -> None:
        """Delete all keys of this mapping."""
        self._storage.clear()

    def close(self) -> None:
        """Close the file, unless another backend of this process uses it. The next use opens it
        again.
        """
        self._storage.close()
