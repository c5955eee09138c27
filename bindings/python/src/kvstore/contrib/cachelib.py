"""A cachelib cache that is stored in a file. Flask-Session can use it too.

>>> from kvstore.contrib.cachelib import KVStoreCache
>>> cache = KVStoreCache(":memory:", default_timeout=300)
>>> cache.set("greeting", {"text": "hello"}), cache.get("greeting"), cache.inc("visits")
(True, {'text': 'hello'}, 1)

With Flask-Session::

    app.config["SESSION_TYPE"] = "cachelib"
    app.config["SESSION_CACHELIB"] = KVStoreCache("/var/lib/site/sessions.db", key_prefix="session:")

Timeouts follow cachelib: None is the default timeout, 0 means no TTL, and a negative value expires
at once. A timeout of 10,000 years or more means no TTL.
"""

from __future__ import annotations

from typing import Any, Optional

from cachelib.base import BaseCache

import kvstore
from kvstore.contrib._culling import cull
from kvstore.contrib._many import put_many, put_rows
from kvstore.contrib._names import StoredName, name_of, prefix_of
from kvstore.contrib._storage import Storage
from kvstore.contrib._timeouts import Timeout, bounded, ttl_of
from kvstore.contrib._values import Values, change_in


class KVStoreCache(BaseCache):
    """A cachelib cache that is stored in a family of a file. All threads and processes may use it.

    ``add``, ``inc`` and ``dec`` are atomic for all threads and processes, and so are ``set_many``
    and ``delete_many``. ``inc`` and ``dec`` keep the TTL of the key.

    Args:
        path: The file, created with missing directories; ":memory:" for a cache in memory.
        default_timeout: Seconds or a ``timedelta``; 0: keys never expire.
        threshold: The maximum number of keys; 0: no maximum. When it is reached, one key in three
            is removed, earliest expiry first. ``max_bytes`` limits the size of the file instead,
            and costs less.
        key_prefix: Added before each key; ``clear`` removes the keys with this prefix.
        family: The family of the file.
        serializer: An object with ``dumps`` and ``loads``; can also be a class attribute. By
            default ``kvstore.DATA``: values are data types of Python, and other values are a
            TypeError. With ``pickle`` any object can be stored, and anyone who can write to the
            file can run code in this process.
        secret: A long random str or bytes, or a list of it and older ones: any object can be
            stored, as a pickle that is signed with the secret. Unsigned values are not unpickled.
        options: Settings of :func:`kvstore.open`; ``max_bytes`` and ``policy`` of ``Store.limit``;
            ``ignore_errors``: whether a read, delete or ``inc`` that fails counts as that of a
            missing key (by default it raises :exc:`kvstore.Error`).

    A failed ``set`` or ``add`` is logged and returns False. ``set_many`` returns the keys that were
    written: without those whose values are too large, or an empty list if the store fails. A key may
    be any str: see the rules for all backends in the documentation.
    """

    serializer: Optional[Any] = None

    def __init__(
        self,
        path: Any,
        default_timeout: Timeout = 300,
        threshold: int = 0,
        key_prefix: str = "",
        family: str = "cachelib",
        serializer: Optional[Any] = None,
        secret: Any = None,
        ignore_delete_many_errors: bool = True,
        **options: Any,
    ) -> None:
        super().__init__()
        self.default_timeout = bounded(default_timeout)
        self.ignore_delete_many_errors = ignore_delete_many_errors  # not used: a failure raises
        self.threshold = threshold
        self.key_prefix = key_prefix
        if serializer is not None:
            self.serializer = serializer
        self._values = Values(self.serializer, secret)
        self._storage = Storage(path, family, options)

    def _ttl(self, timeout: Optional[Timeout]) -> Optional[float]:
        """Convert a timeout of cachelib to a TTL: seconds, FOREVER, or None for a value that
        expires at once.
        """
        seconds = self.default_timeout if timeout is None else bounded(timeout)
        return kvstore.FOREVER if seconds == 0 else ttl_of(seconds)

    def _name(self, key: str) -> StoredName:
        return name_of(self.key_prefix + key)

    def _make_room(self, family: kvstore.Family) -> None:
        if self.threshold > 0:
            cull(self._storage, family, self.threshold, 3)

    def get(self, key: str) -> Any:
        data = self._storage.read(lambda family: family.get(self._name(key)), None)
        return None if data is None else self._values.loads(data)

    def get_many(self, *keys: str) -> list[Any]:
        names = [self._name(key) for key in keys]
        none: dict[StoredName, bytes] = {}
        found = self._storage.read(lambda family: family.get_many(names), none)
        values = self._values
        return [values.loads(found[name]) if name in found else None for name in names]

    def set(self, key: str, value: Any, timeout: Optional[Timeout] = None) -> bool:
        name, data, ttl = self._name(key), self._values.dumps(value), self._ttl(timeout)

        def put(family: kvstore.Family) -> bool:
            if ttl is None:
                family.delete(name)
                return True
            self._make_room(family)
            return family.put(name, data, ttl=ttl)

        return self._storage.keep(put, [name], False)

    def add(self, key: str, value: Any, timeout: Optional[Timeout] = None) -> bool:
        name, data, ttl = self._name(key), self._values.dumps(value), self._ttl(timeout)

        def add(family: kvstore.Family) -> bool:
            if ttl is None:
                return not family.has_key(name)
            self._make_room(family)
            return family.add(name, data, ttl=ttl)

        return self._storage.keep(add, (), False)

    def set_many(self, mapping: dict[str, Any], timeout: Optional[Timeout] = None) -> list[Any]:
        """Write the values of several keys, given as a dict. Return the keys that were written: all
        but those whose values are too large, or none if the store fails.
        """
        values = self._values
        items = {self._name(key): values.dumps(value) for key, value in mapping.items()}
        ttl = self._ttl(timeout)

        def put(family: kvstore.Family) -> list[Any]:
            failed: set[StoredName] = set()
            if ttl is None:
                family.delete_many(list(items))
            elif self.threshold <= 0:
                failed = put_many(self._storage, family, items, ttl)
            else:
                rows = [(name, data, ttl) for name, data in items.items()]
                failed = put_rows(self._storage, family, rows, self._make_room)
            return [key for key in mapping if self._name(key) not in failed] if failed else list(mapping)

        return self._storage.keep(put, items, [])

    def delete(self, key: str) -> bool:
        return self._storage.read(lambda family: family.delete(self._name(key)), False)

    def delete_many(self, *keys: str) -> list[Any]:
        """Delete several keys, and return them all, because a missing key counts as deleted."""
        names = [self._name(key) for key in keys]
        self._storage.read(lambda family: family.delete_many(names), 0)
        return list(keys)

    def has(self, key: str) -> bool:
        return self._storage.read(lambda family: family.has_key(self._name(key)), False)

    def clear(self) -> bool:
        if self.key_prefix:
            self._storage.call(lambda family: family.delete_range(prefix=prefix_of(self.key_prefix)))
        else:
            self._storage.clear()
        return True

    def inc(self, key: str, delta: int = 1) -> Any:
        """Add ``delta`` to the number stored under a key, and return the sum.

        A missing key counts as 0 and gets the default timeout.

        Raises:
            TypeError: If the value is not a number.
            kvstore.Error: If the store fails, unless ``ignore_errors`` is set.
        """
        name = self._name(key)

        def add(family: kvstore.Family) -> Any:
            while True:
                try:
                    return change_in(family, name, self._values, lambda value: (value or 0) + delta)
                except KeyError:
                    ttl, data = self._ttl(None), self._values.dumps(delta)
                    if ttl is None or family.add(name, data, ttl=ttl):
                        return delta

        return self._storage.write(add, (), delta)

    def dec(self, key: str, delta: int = 1) -> Any:
        """Subtract ``delta`` from the number stored under a key. See :meth:`inc`."""
        return self.inc(key, -delta)

    def close(self) -> None:
        """Close the file, unless another backend of this process uses it. The next use opens it
        again.
        """
        self._storage.close()
