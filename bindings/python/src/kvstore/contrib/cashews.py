"""A backend for cashews: a cache in a file.

::

    import kvstore.contrib.cashews  # registers the URL scheme
    from cashews import cache

    cache.setup("kvstore:///var/tmp/site/cache.db?max_bytes=100000000")

The URL is ``kvstore://`` and the path of the file, absolute or relative; ``kvstore://:memory:`` for
a cache in memory. Arguments of :class:`KVStoreBackend` may be in its query or in the call of
``setup``.

Values are encoded with ``kvstore.DATA``: data types of Python, and other values are a TypeError.
With ``secret=`` any object can be stored, as a pickle that is signed with the secret (HMAC with
SHA-256, whatever ``digestmod`` says); values with another signature count as missing. With
``pickle_type="default"`` and no secret, anyone who can write to the file can run code in this
process.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
import hmac
import logging
import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, Callable, Optional, TypeVar
from urllib.parse import unquote

from cashews import register_backend
from cashews.backends.interface import NOT_EXIST, UNLIMITED, Backend
from cashews.exceptions import SignIsMissingError
from cashews.picklers import NonPickler
from cashews.serialize import NullSigner, Signer, get_serializer
from cashews.utils import Bitarray

import kvstore
from kvstore import DATA, Family
from kvstore._transaction import in_one_transaction
from kvstore.contrib._many import put_many
from kvstore.contrib._names import StoredName, is_replaced, name_of, prefix_of
from kvstore.contrib._storage import Storage
from kvstore.contrib._threads import Threads

T = TypeVar("T")

_log = logging.getLogger("kvstore.contrib")

#: A number, which is stored without a signature.
_INT = re.compile(rb"-?\d{1,19}")
#: The beginning of a value of ``incr_bits``; hexadecimal digits follow.
_BITS = b"bits:"
_SIGNATURE_SIZE = 32


class KVStoreBackend(Backend):
    """A cashews backend in a family of a file. All event loops, threads and processes may use it.

    ``set`` with ``exist``, ``set_many``, ``incr``, ``incr_bits``, ``slice_incr``, locks and the
    methods on sets are atomic for all processes. ``incr``, ``incr_bits`` and changes of a set keep
    the TTL of the key; ``set`` without ``expire`` removes it. In patterns, "*" stands for any text.

    Args:
        address: The URL, if ``path`` is not given.
        path: The file, created with missing directories; ":memory:" for a cache in memory.
        family: The family of the file.
        serializer: A serializer of cashews, which ``cache.setup`` creates.
        options: Settings of :func:`kvstore.open`; ``max_bytes`` and ``policy`` of ``Store.limit``;
            ``ignore_errors``: whether a failed read counts as a miss, and a failed change of a
            number, bits or a set is only logged. By default they raise :exc:`kvstore.Error`.

    A failed ``set`` is logged and returns False. A lock that cannot be stored counts as acquired.
    """

    def __init__(
        self,
        address: Optional[str] = None,
        *,
        path: Any = None,
        family: str = "cashews",
        serializer: Optional[Any] = None,
        **options: Any,
    ) -> None:
        if path is None:
            if not address:
                raise ValueError("the cache has no path: give a URL such as kvstore:///var/tmp/cache.db")
            path = unquote(address.partition("://")[2])
        super().__init__(serializer=_safe_serializer(get_serializer() if serializer is None else serializer))
        self._storage = Storage(path, family, options)
        self._threads = Threads(self._storage)
        self._is_ready = False

    @property
    def is_init(self) -> bool:
        return self._is_ready

    async def init(self) -> None:
        self._is_ready = True

    async def close(self) -> None:
        """Close the file, unless another backend of this process uses it. The next use opens it
        again.
        """
        await self._threads.close(self._storage.close)
        self._is_ready = False

    async def _read(self, work: Callable[[Family], T], missing: T) -> T:
        return await self._threads.read(lambda: self._storage.read(work, missing))

    async def _encode(self, key: str, value: Any, expire: Optional[float] = None) -> bytes:
        return _bytes(await self.serializer.encode(self, key=key, value=value, expire=expire))

    async def _decode(self, key: str, data: Optional[bytes], default: Any) -> Any:
        if data is None:
            return default
        if _INT.fullmatch(data):
            return int(data)
        try:
            return await self.serializer.decode(self, key=key, value=data, default=default)
        except ValueError as error:
            _log.warning("a value counts as missing: %s", error)
            return default

    # Values

    async def set(
        self, key: str, value: Any, expire: Optional[float] = None, exist: Optional[bool] = None
    ) -> bool:
        name, data = name_of(key), await self._encode(key, value, expire)
        return await self._threads.write(
            lambda: self._storage.keep(
                lambda family: _put(family, name, data, expire, exist), [name] if exist is None else (), False
            )
        )

    async def set_many(self, pairs: Mapping[str, Any], expire: Optional[float] = None) -> None:
        items = {name_of(key): await self._encode(key, value, expire) for key, value in pairs.items()}

        def put(family: Family) -> None:
            if expire is not None and expire < 0:
                family.delete_many(items)
            else:
                put_many(self._storage, family, items, expire or kvstore.FOREVER)

        await self._threads.write(lambda: self._storage.keep(put, items, None))

    async def set_raw(self, key: str, value: Any, expire: Optional[float] = None, **_: Any) -> None:
        name, data = name_of(key), _bytes(value)
        await self._threads.write(
            lambda: self._storage.keep(lambda family: _put(family, name, data, expire, None), [name], False)
        )

    async def get(self, key: str, default: Any = None) -> Any:
        return await self._decode(key, await self.get_raw(key), default)

    async def get_raw(self, key: str) -> Optional[bytes]:
        name = name_of(key)
        return await self._read(lambda family: family.get(name), None)

    async def get_many(self, *keys: str, default: Any = None) -> tuple[Any, ...]:
        none: dict[StoredName, bytes] = {}
        names = [name_of(key) for key in keys]
        found = await self._read(lambda family: family.get_many(names), none)
        return tuple([await self._decode(key, found.get(name), default) for key, name in zip(keys, names)])

    async def get_match(self, pattern: str, batch_size: int = 100) -> AsyncIterator[tuple[str, Any]]:
        """Iterate over the keys that match a pattern, with their values."""
        keys = await self._matching(pattern)
        none: dict[str, bytes] = {}
        for at in range(0, len(keys), batch_size):
            part = keys[at : at + batch_size]
            found = await self._read(lambda family, part=part: family.get_many(part), none)  # type: ignore[misc]
            for key, data in found.items():
                if not data.startswith(_BITS):
                    yield key, await self._decode(key, data, None)

    async def scan(self, pattern: str, batch_size: int = 100) -> AsyncIterator[str]:
        """Iterate over the keys that match a pattern."""
        for key in await self._matching(pattern):
            yield key

    async def _matching(self, pattern: str) -> list[str]:
        return (await self._scan(pattern))[0]

    async def _scan(self, pattern: str) -> tuple[list[str], list[bytes]]:
        """Return the keys that match a pattern, and the names of keys that the store cannot hold and that may match."""
        prefix, *others = pattern.split("*")
        matches = re.compile(".*".join(map(re.escape, (prefix, *others))), re.DOTALL).fullmatch

        def scan(family: Family) -> tuple[list[str], list[bytes]]:
            names = list(family.keys(prefix=prefix_of(prefix)))
            keys = (name.decode(errors="replace") for name in names if not is_replaced(name))
            return [key for key in keys if matches(key)], list(filter(is_replaced, names))

        none: tuple[list[str], list[bytes]] = ([], [])
        return await self._read(scan, none)

    async def exists(self, key: str) -> bool:
        name = name_of(key)
        return await self._read(lambda family: family.has_key(name), False)

    async def delete(self, key: str) -> bool:
        try:
            return await self._delete([key]) > 0
        finally:
            await self._call_on_remove_callbacks(key)

    async def delete_many(self, *keys: str) -> None:
        try:
            await self._delete(keys)
        finally:
            await self._call_on_remove_callbacks(*keys)

    async def delete_match(self, pattern: str) -> None:
        if "*" not in pattern:
            await self.delete(pattern)
            return
        keys, replaced = await self._scan(pattern)
        await self._delete_names(replaced)
        await self.delete_many(*keys)

    async def _delete(self, keys: Iterable[str]) -> int:
        return await self._delete_names([name_of(key) for key in keys])

    async def _delete_names(self, names: Sequence[StoredName]) -> int:
        if not names:
            return 0
        return await self._threads.write(lambda: self._storage.read(lambda family: family.delete_many(names), 0))

    async def clear(self) -> None:
        await self._threads.write(self._storage.clear)

    async def get_size(self, key: str) -> int:
        data = await self.get_raw(key)
        return 0 if data is None else len(data)

    async def get_keys_count(self) -> int:
        return await self._read(len, 0)

    async def ping(self, message: Optional[bytes] = None) -> bytes:
        return b"PONG" if message is None or message == b"PING" else message

    # TTLs

    async def expire(self, key: str, timeout: float) -> bool:
        name = name_of(key)

        def expire(family: Family) -> bool:
            return family.expire(name, timeout) if timeout > 0 else family.delete(name)

        return await self._threads.write(lambda: self._storage.write(expire, (), False))

    async def get_expire(self, key: str) -> int:
        name = name_of(key)
        found = await self._read(lambda family: family.get_with_ttl(name), None)
        left: int = NOT_EXIST
        if found is not None:
            left = UNLIMITED if found[1] is None else round(found[1])
        return left

    # Numbers, bits and sets

    async def incr(self, key: str, value: int = 1, expire: Optional[float] = None) -> int:
        """Add to a number, and return the sum. A missing key counts as 0 and gets the TTL.

        Raises:
            ValueError: If the value of the key is not an integer.
        """
        name = name_of(key)
        return await self._threads.write(
            lambda: self._storage.write(lambda family: family.incr(name, value, expire or kvstore.FOREVER), (), value)
        )

    async def _change(
        self, key: str, change: Callable[[Optional[bytes]], tuple[bytes, T]], expire: Optional[float] = None
    ) -> T:
        """Replace the value of a key by the first result of ``change(value)``, and return the second.

        Test and write are one transaction. A key keeps its TTL, unless ``expire`` is given.
        """

        name = name_of(key)

        def put(family: Family) -> T:
            data, result = change(family.get(name))
            if expire:
                family.put(name, data, ttl=expire)
            else:
                family.put(name, data, ttl=kvstore.FOREVER, keep_ttl=True)
            return result

        def write(family: Family) -> T:
            return in_one_transaction(family._state, lambda: put(family), joins=False)

        return await self._threads.write(lambda: self._storage.write(write, (), change(None)[1]))

    async def get_bits(self, key: str, *indexes: int, size: int = 1) -> tuple[int, ...]:
        bits = _bits(await self.get_raw(key))
        return tuple(bits.get(index, size) for index in indexes)

    async def incr_bits(self, key: str, *indexes: int, size: int = 1, by: int = 1) -> tuple[int, ...]:
        def change(data: Optional[bytes]) -> tuple[bytes, tuple[int, ...]]:
            bits = _bits(data)
            result = []
            for index in indexes:
                bits.incr(index, size, by)
                result.append(int(bits.get(index, size)))
            return _BITS + b"%x" % bits.to_int(), tuple(result)

        return await self._change(key, change)

    async def slice_incr(
        self, key: str, start: float, end: float, maxvalue: int, expire: Optional[float] = None
    ) -> int:
        def change(data: Optional[bytes]) -> tuple[bytes, int]:
            moments = [moment for moment in _collection(data, list) if start <= moment <= end]
            if len(moments) < maxvalue:
                moments.append(end)
            return DATA.dumps(moments), len(moments)

        return await self._change(key, change, expire)

    async def set_add(self, key: str, *values: str, expire: Optional[float] = None) -> None:
        def change(data: Optional[bytes]) -> tuple[bytes, None]:
            return DATA.dumps(_collection(data, set) | set(values)), None

        await self._change(key, change, expire)

    async def set_remove(self, key: str, *values: str) -> None:
        def change(data: Optional[bytes]) -> tuple[bytes, None]:
            return DATA.dumps(_collection(data, set) - set(values)), None

        await self._change(key, change)

    async def set_pop(self, key: str, count: int = 100) -> Iterable[str]:
        def change(data: Optional[bytes]) -> tuple[bytes, list[str]]:
            values = list(_collection(data, set))
            return DATA.dumps(set(values[count:])), values[:count]

        return await self._change(key, change)

    # Locks

    async def set_lock(self, key: str, value: Any, expire: float) -> bool:
        name, data = name_of(key), await self._encode(key, value, expire)
        return await self._threads.write(
            lambda: self._storage.keep(lambda family: _put(family, name, data, expire, False), (), True)
        )

    async def is_locked(self, key: str, wait: Optional[float] = None, step: float = 0.1) -> bool:
        while wait is not None and wait > 0:
            if not await self.exists(key):
                return False
            wait -= step
            await asyncio.sleep(step)
        return await self.exists(key)

    async def unlock(self, key: str, value: Any) -> bool:
        name, data = name_of(key), await self._encode(key, value)
        return await self._threads.write(
            lambda: self._storage.keep(lambda family: family.compare_and_delete(name, data), (), False)
        )


class _DataPickler:
    """A pickler of cashews that encodes values with ``kvstore.DATA``."""

    #: The exception that cashews expects for bytes that are not a value of the pickler.
    UnpicklingError = ValueError
    dumps = staticmethod(DATA.dumps)
    loads = staticmethod(DATA.loads)


class _Hmac(Signer):
    """A signer of cashews that accepts only HMACs with SHA-256. A value with another one counts as
    missing.

    The signer of cashews accepts the weakest of its methods, whichever is configured.
    """

    def __init__(self, secret: bytes) -> None:
        self._key = secret

    def sign(self, key: str, value: bytes) -> bytes:
        return self._signature(key, value) + value

    def check_sign(self, key: str, value: bytes) -> bytes:
        signature, signed = value[:_SIGNATURE_SIZE], value[_SIGNATURE_SIZE:]
        if not hmac.compare_digest(signature, self._signature(key, signed)):
            raise SignIsMissingError(f"key: {key}")
        return signed

    def _signature(self, key: str, value: bytes) -> bytes:
        name = key.encode("utf-8", "surrogatepass")
        return hmac.digest(self._key, b"%d:%s%s" % (len(name), name, value), hashlib.sha256)


def _safe_serializer(given: Any) -> Any:
    """Return a copy of a serializer that does not unpickle unsigned values, unless it was told to."""
    serializer = copy.copy(given)
    signer = given._signer
    if isinstance(given._pickler, NonPickler):
        serializer.set_pickler(_DataPickler())
    if type(signer) is not NullSigner:
        serializer.set_signer(_Hmac(signer._secret))
    return serializer


def _bytes(value: Any) -> bytes:
    """Return what a serializer has returned as bytes: an int becomes decimal text."""
    if isinstance(value, int) and not isinstance(value, bool):
        return b"%d" % value
    return value.encode() if isinstance(value, str) else bytes(value)


def _put(family: Family, key: StoredName, data: bytes, expire: Optional[float], exist: Optional[bool]) -> bool:
    if expire is not None and expire < 0:
        return exist is None and not family.delete(key)
    return family.put(
        key, data, ttl=expire or kvstore.FOREVER, if_absent=exist is False, if_present=exist is True
    )


def _bits(data: Optional[bytes]) -> Any:
    if data is None:
        return Bitarray("0")
    if not data.startswith(_BITS):
        raise TypeError("the value of the key is not an array of bits, which incr_bits makes")
    return Bitarray(data[len(_BITS) :].decode(), 16)


def _collection(data: Optional[bytes], kind: type) -> Any:
    """Return the set or list of a key; an empty one if the key is missing."""
    if data is None:
        return kind()
    try:
        value = DATA.loads(data)
    except ValueError:
        value = None
    if type(value) is not kind:
        raise TypeError(f"the value of the key is not a {kind.__name__}")
    return value


register_backend("kvstore", KVStoreBackend, pass_uri=True)
