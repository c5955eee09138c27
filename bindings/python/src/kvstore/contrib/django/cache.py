"""A Django cache in a file, for all threads and processes of a machine.

In the settings::

    CACHES = {
        "default": {
            "BACKEND": "kvstore.contrib.django.cache.KVStoreCache",
            "LOCATION": "/var/tmp/site/cache.db",
            "TIMEOUT": 300,                       # KEY_PREFIX, VERSION and KEY_FUNCTION work as in Django
            "OPTIONS": {"MAX_BYTES": 100_000_000},
        }
    }

OPTIONS:

- ``MAX_BYTES``: the size limit of the whole file, and ``POLICY``, which keys are evicted: "oldest"
  (by write time) by default; see ``kvstore.Store.limit``. Without a limit the file grows with its
  live data.
- ``MAX_ENTRIES`` and ``CULL_FREQUENCY``: as in Django's backends, but without a default maximum.
  Keys are culled earliest expiry first. Keys must be counted for it, so ``MAX_BYTES`` is faster.
- ``FAMILY``: the family of the file; by default ``django_cache``. Caches with the same LOCATION and
  family share their keys, except for KEY_PREFIX and VERSION, and ``clear`` empties the family.
- ``SERIALIZER``: an object with ``dumps`` and ``loads``, or its dotted name (``"kvstore.JSON"``).
  By default values are pickled and signed with ``SECRET_KEY``, and values without a valid signature
  are not unpickled but count as missing. ``SECRET_KEY_FALLBACKS`` are accepted, too.
- ``SECRET``: a secret to use in place of ``SECRET_KEY``, or a list of it and older ones.
- ``IGNORE_ERRORS``: whether a read, ``delete``, ``touch`` or ``incr`` that fails counts as that of a
  missing key; by default it raises :exc:`kvstore.Error`. A ``set`` or ``add`` that fails is always
  ignored and logged: the page is not broken, and the key has no value. ``clear`` and ``lock`` always
  raise.
- Settings of :func:`kvstore.open` in upper case, such as ``"SYNC": "off"``, ``"BUSY_TIMEOUT": 10``
  or ``MAX_VALUE_SIZE`` (10 MiB); a larger value is not stored.

The cache also has the methods that django-redis adds to Django's interface: ``keys``, ``iter_keys``,
``delete_pattern``, ``ttl``, ``pttl``, ``expire``, ``pexpire``, ``expire_at``, ``pexpire_at``,
``persist`` and ``lock``; and ``nx`` and ``xx`` of ``set``, and ``ignore_key_check`` of ``incr``.
REVERSE_KEY_FUNCTION, an option next to KEY_FUNCTION, is the dotted name of a function from a stored key to the
key of Django; ``keys`` and ``iter_keys`` need it if KEY_FUNCTION does more than add a prefix.

``incr`` and ``decr`` are atomic and keep the TTL of the key. ``add``, and the methods on many keys,
are atomic too. The async methods run in threads. ``close``, which Django
calls after each request, leaves the file open.

The file is created on first use, with missing directories. Invalid values in LOCATION and OPTIONS
raise ImproperlyConfigured.
"""

from __future__ import annotations

import importlib
from collections.abc import Awaitable
from typing import Any, Callable, Optional, TypeVar

from asgiref.sync import sync_to_async
from django.conf import settings
from django.core.cache.backends.base import DEFAULT_TIMEOUT
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

import kvstore
from kvstore.contrib._culling import cull
from kvstore.contrib._many import put_many, put_rows
from kvstore.contrib._names import StoredName
from kvstore.contrib._storage import STORAGE_OPTIONS, Storage
from kvstore.contrib._timeouts import ttl_of
from kvstore.contrib._values import Values, change_in
from kvstore.contrib.django._redis_methods import RedisMethods

T = TypeVar("T")

_storages: dict[tuple[str, str, str], Storage] = {}

_MISSING = object()

_OWN_OPTIONS = frozenset({"MAX_ENTRIES", "CULL_FREQUENCY", "FAMILY", "SERIALIZER", "SECRET"})


def storage_of(location: Any, options: dict[str, Any], family: str) -> Storage:
    """Return the Storage (file and family) for the settings LOCATION and OPTIONS of a Django cache.

    It is shared by all threads, each of which has its own cache objects, and lives as long as the
    process.

    Raises:
        ImproperlyConfigured: If a value is invalid.
    """
    if not location:
        raise ImproperlyConfigured("LOCATION is not set: give the path of a file, or \":memory:\"")
    chosen = {}
    for name, value in options.items():
        setting = name.lower() if isinstance(name, str) and name.isupper() else name
        if setting not in STORAGE_OPTIONS or setting == name:
            raise ImproperlyConfigured(
                f"{name!r} is not an option of the kvstore backend: see help(kvstore.contrib.django.cache)"
            )
        chosen[setting] = value
    try:
        made = _DjangoStorage(location, family, chosen)
    except (TypeError, ValueError) as error:
        raise ImproperlyConfigured(f"kvstore: {error}") from error
    return _storages.setdefault((made.path, family, repr(sorted(chosen.items()))), made)


class _DjangoStorage(Storage):
    """The Storage (file and family) of a Django cache. It reports rejected settings as
    ImproperlyConfigured.

    These include settings that the library rejects on opening.
    """

    advice = {
        kvstore.Hint.RAISE_BUSY_TIMEOUT: "retry, or set a longer BUSY_TIMEOUT in OPTIONS",
        kvstore.Hint.RAISE_MAX_VALUE_SIZE: "set a larger MAX_VALUE_SIZE in OPTIONS, or split the value",
        kvstore.Hint.RAISE_SIZE_LIMIT: "delete keys, or set a larger MAX_BYTES in OPTIONS",
        kvstore.Hint.CHECK_PERMISSIONS: "change the owner or the permissions, or give another LOCATION",
        kvstore.Hint.OPEN_FOR_WRITING: "remove READ_ONLY from OPTIONS",
        kvstore.Hint.GIVE_PASSWORD: "set PASSWORD or RAW_KEY in OPTIONS",
        kvstore.Hint.OMIT_PASSWORD: "remove PASSWORD and RAW_KEY from OPTIONS",
    }

    def _open_store(self) -> kvstore.Store:
        try:
            return super()._open_store()
        except kvstore.InvalidError as error:
            raise ImproperlyConfigured(f"kvstore: {error}") from error


class KVStoreCache(RedisMethods):
    """A Django cache backend that stores the cache in a file. The module describes its settings."""

    def __init__(self, location: Any, params: dict[str, Any]) -> None:
        super().__init__(params)
        options = dict(params.get("OPTIONS") or {})
        if "max_entries" not in params and "MAX_ENTRIES" not in options:
            self._max_entries: Optional[int] = None
        serializer = options.get("SERIALIZER")
        if isinstance(serializer, str):
            serializer = _imported(serializer)
        try:
            self._values = Values(serializer, options.get("SECRET") if serializer else _secret_of(options))
        except (TypeError, ValueError) as error:
            raise ImproperlyConfigured(f"SERIALIZER or SECRET: {error}") from error
        family = options.get("FAMILY", "django_cache")
        self._storage = storage_of(location, {k: v for k, v in options.items() if k not in _OWN_OPTIONS}, family)

    def get_backend_timeout(self, timeout: Any = DEFAULT_TIMEOUT) -> Optional[float]:
        """Convert a timeout of Django to a TTL: seconds, FOREVER, or None for a value that expires
        at once.
        """
        if timeout == DEFAULT_TIMEOUT:
            timeout = self.default_timeout
        return kvstore.FOREVER if timeout is None else ttl_of(timeout)

    def _make_room(self, family: kvstore.Family) -> None:
        if self._max_entries is not None:
            cull(self._storage, family, self._max_entries, self._cull_frequency)

    def add(self, key: Any, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: Any = None) -> bool:
        return self.set(key, value, timeout, version, nx=True)

    def get(self, key: Any, default: Any = None, version: Any = None) -> Any:
        name = self._name(key, version)
        data = self._storage.read(lambda family: family.get(name), None)
        return default if data is None else self._values.loads(data, default)

    def set(
        self,
        key: Any,
        value: Any,
        timeout: Any = DEFAULT_TIMEOUT,
        version: Any = None,
        *,
        nx: bool = False,
        xx: bool = False,
    ) -> bool:
        """Set the value of a key, and return whether it was set.

        Args:
            key: The key.
            value: The value.
            timeout: Seconds. None: the key does not expire. 0 and less: the key is deleted, except
                with ``nx``. By default, TIMEOUT of the settings.
            version: The version of the key; None: VERSION of the settings.
            nx: Only if the key does not exist.
            xx: Only if the key exists.

        Raises:
            ValueError: If both ``nx`` and ``xx`` are given.
        """
        if nx and xx:
            raise ValueError("nx=True and xx=True exclude each other: give one of them")
        name = self._name(key, version)
        data = self._values.dumps(value)
        ttl = self.get_backend_timeout(timeout)

        def put(family: kvstore.Family) -> bool:
            if ttl is None:
                return not family.has_key(name) if nx else family.delete(name)
            if not xx:
                self._make_room(family)
            return family.put(name, data, ttl=ttl, if_absent=nx, if_present=xx)

        return self._storage.keep(put, () if nx else [name], False)

    def touch(self, key: Any, timeout: Any = DEFAULT_TIMEOUT, version: Any = None) -> bool:
        name = self._name(key, version)
        ttl = self.get_backend_timeout(timeout)
        if ttl is None:
            return self._storage.read(lambda family: family.delete(name), False)
        return self._storage.read(lambda family: family.expire(name, ttl), False)

    def delete(self, key: Any, version: Any = None) -> bool:
        name = self._name(key, version)
        return self._storage.read(lambda family: family.delete(name), False)

    def has_key(self, key: Any, version: Any = None) -> bool:
        name = self._name(key, version)
        return self._storage.read(lambda family: family.has_key(name), False)

    def incr(self, key: Any, delta: Any = 1, version: Any = None, *, ignore_key_check: bool = False) -> Any:
        """Add ``delta`` to the value of a key, and return the sum. The key keeps its timeout.

        Raises:
            ValueError: If the key does not exist. With ``ignore_key_check``, it gets the value
                ``delta`` and no timeout then.
        """
        name = self._name(key, version)

        def add(family: kvstore.Family) -> Any:
            while True:
                try:
                    return change_in(family, name, self._values, lambda value: value + delta)
                except KeyError:
                    if not ignore_key_check:
                        return _MISSING
                data = self._values.dumps(delta)
                if family.add(name, data, ttl=kvstore.FOREVER):
                    return delta

        total = self._storage.write(add, (), delta if ignore_key_check else _MISSING)
        if total is _MISSING:
            raise ValueError(f"Key {key!r} not found")
        return total

    # Many keys

    def get_many(self, keys: Any, version: Any = None) -> dict[Any, Any]:
        names = {self._name(key, version): key for key in keys}
        none: dict[StoredName, bytes] = {}
        found = self._storage.read(lambda family: family.get_many(list(names)), none)
        values = ((names[name], self._values.loads(data, _MISSING)) for name, data in found.items())
        return {key: value for key, value in values if value is not _MISSING}

    def set_many(self, data: dict[Any, Any], timeout: Any = DEFAULT_TIMEOUT, version: Any = None) -> list[Any]:
        if not data:
            return []
        names = {self._name(key, version): key for key in data}
        items = {name: self._values.dumps(data[key]) for name, key in names.items()}
        ttl = self.get_backend_timeout(timeout)

        def put(family: kvstore.Family) -> list[Any]:
            failed: set[StoredName] = set()
            if ttl is None:
                family.delete_many(list(items))
            elif self._max_entries is None:
                failed = put_many(self._storage, family, items, ttl)
            else:
                rows = [(name, value, ttl) for name, value in items.items()]
                failed = put_rows(self._storage, family, rows, self._make_room)
            return [key for name, key in names.items() if name in failed]

        return self._storage.keep(put, items, list(data))

    def delete_many(self, keys: Any, version: Any = None) -> None:
        names = [self._name(key, version) for key in keys]
        self._storage.read(lambda family: family.delete_many(names), 0)

    def clear(self) -> None:
        self._storage.clear()

    def close(self, **kwargs: Any) -> None:
        """Do nothing: the file stays open for other threads and later requests."""

    # The base class would handle keys one by one, and increment in two steps. Any thread may run
    # these.

    async def aadd(self, key: Any, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: Any = None) -> bool:
        return await _in_thread(self.add)(key, value, timeout, version)

    async def aget(self, key: Any, default: Any = None, version: Any = None) -> Any:
        return await _in_thread(self.get)(key, default, version)

    async def aset(self, key: Any, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: Any = None) -> bool:
        return await _in_thread(self.set)(key, value, timeout, version)

    async def atouch(self, key: Any, timeout: Any = DEFAULT_TIMEOUT, version: Any = None) -> bool:
        return await _in_thread(self.touch)(key, timeout, version)

    async def adelete(self, key: Any, version: Any = None) -> bool:
        return await _in_thread(self.delete)(key, version)

    async def ahas_key(self, key: Any, version: Any = None) -> bool:
        return await _in_thread(self.has_key)(key, version)

    async def aincr(self, key: Any, delta: Any = 1, version: Any = None) -> Any:
        return await _in_thread(self.incr)(key, delta, version)

    async def aget_many(self, keys: Any, version: Any = None) -> dict[Any, Any]:
        return await _in_thread(self.get_many)(keys, version)

    async def aset_many(
        self, data: dict[Any, Any], timeout: Any = DEFAULT_TIMEOUT, version: Any = None
    ) -> list[Any]:
        return await _in_thread(self.set_many)(data, timeout, version)

    async def adelete_many(self, keys: Any, version: Any = None) -> None:
        await _in_thread(self.delete_many)(keys, version)

    async def aclear(self) -> None:
        await _in_thread(self.clear)()


def _secret_of(options: dict[str, Any]) -> Any:
    """Return the secrets that sign values: the current one, and old ones that are accepted."""
    if options.get("SECRET"):
        return options["SECRET"]
    return [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS]


def _in_thread(function: Callable[..., T]) -> Callable[..., Awaitable[T]]:
    made: Callable[..., Awaitable[T]] = sync_to_async(function, thread_sensitive=False)
    return made


def _imported(name: str) -> Any:
    """Import a module, or an attribute of a module, by its dotted name, and return it.

    For a class, an instance is returned.
    """
    try:
        found = importlib.import_module(name)
    except ImportError:
        try:
            found = import_string(name)
        except ImportError as error:
            raise ImproperlyConfigured(f"SERIALIZER: {error}") from error
    return found() if isinstance(found, type) else found
