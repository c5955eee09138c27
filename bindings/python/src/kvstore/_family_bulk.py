"""The methods of a family on many keys. Mixed into Family. Ranges of keys are in _family_ranges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, Optional, TypeVar, Union

from kvstore._batch import Batch
from kvstore._family_handle import FamilyHandle
from kvstore._native import Data, K, V, ffi, lib, to_bytes
from kvstore._time import Duration, Moment
from kvstore._transaction import in_one_transaction

#: The type of keys as the caller passed them.
G = TypeVar("G", bound="Data")

_unpack = ffi.unpack
#: The number of keys that get_many reads in one call.
_MANY = 4096


class BulkMethods(FamilyHandle, Generic[K, V]):
    """Base class of :class:`kvstore.Family` with its methods on many keys."""

    __slots__ = ()

    if TYPE_CHECKING:

        def delete(self, key: Data) -> bool: ...

    def get_many(self, keys: Iterable[G]) -> dict[G, V]:
        """Return a dict of the given keys that exist and their values.

        Up to 4,096 keys are read from one snapshot.

        Args:
            keys: An iterable of str or bytes-like keys.

        Returns:
            A dict from the keys as they were given (bytes-like ones as bytes) to the values.
        """
        wanted = key_list(keys, "get_many")
        found: dict[Any, Any] = {}
        for at in range(0, len(wanted), _MANY):
            part = wanted[at : at + _MANY]
            for key, value in zip(part, self._get_part([to_bytes(key) for key in part])):
                if value is not None:
                    found[key] = value
        return found

    def _get_part(self, keys: list[bytes]) -> list[Optional[bytes]]:
        count = len(keys)
        lengths = [len(key) for key in keys]
        values, value_lengths = ffi.new("char *[]", count), ffi.new("int[]", count)
        rc = lib.kvpy_get_many(self._cf, count, b"".join(keys), ffi.new("int[]", lengths), values, value_lengths)
        if rc:
            self._fail(rc)
        try:
            return [
                None if n < 0 else _unpack(value, n)
                for value, n in zip(_unpack(values, count), _unpack(value_lengths, count))
            ]
        finally:
            lib.kvpy_free_many(count, values)

    def put_many(
        self,
        items: Union[Mapping[Any, Any], Iterable[tuple[Any, Any]]],
        ttl: Optional[Duration] = None,
        expires_at: Optional[Moment] = None,
    ) -> int:
        """Write all ``(key, value)`` pairs in one transaction: all or none are written.

        In an open transaction, they become part of it.

        Args:
            items: A mapping, or an iterable of ``(key, value)`` pairs.
            ttl: The TTL of all keys; see :meth:`Family.put`.
            expires_at: The expiry time of all keys, instead of ``ttl``.

        Returns:
            The number of pairs.
        """
        with Batch(self) as batch:
            expire_ms = self._expire_ms(ttl, expires_at)
            for pair in _pairs(items):
                key, value = pair if pair.__class__ is tuple and len(pair) == 2 else _pair(pair, batch)
                batch._put(self, to_bytes(key), self._encode(value), expire_ms)
            return len(batch)

    def set_many(
        self,
        items: Union[Mapping[Any, Any], Iterable[tuple[Any, Any]]],
        ttl: Optional[Duration] = None,
        expires_at: Optional[Moment] = None,
    ) -> int:
        """Write all ``(key, value)`` pairs in one transaction. An alias of :meth:`put_many`."""
        return self.put_many(items, ttl, expires_at)

    def delete_many(self, keys: Iterable[Data]) -> int:
        """Delete several keys in one transaction, and return how many of them existed."""
        doomed = [to_bytes(key) for key in key_list(keys, "delete_many")]
        lengths, deleted = ffi.new("int[]", [len(key) for key in doomed]), ffi.new("int64_t *")
        rc = lib.kvpy_delete_many(self._cf, len(doomed), b"".join(doomed), lengths, deleted)
        self._state.changed()
        if rc:
            self._fail(rc)
        return int(deleted[0])

    def pop_many(self, keys: Iterable[G]) -> dict[G, V]:
        """Delete several keys in one transaction, and return a dict of those that existed and their
        values.

        The dict is like that of :meth:`get_many`.
        """
        wanted = key_list(keys, "pop_many")

        def pop() -> dict[Any, V]:
            found: dict[Any, V] = self.get_many(wanted)
            for key in found:
                self.delete(key)
            return found

        return in_one_transaction(self._state, pop)

    def batch(self) -> Batch:
        """Return a new batch: it collects writes, which are committed together. See :class:`Batch`.

        >>> db = kvstore.open(":memory:")
        >>> with db.batch() as batch:
        ...     batch.put("a", b"1", ttl=60)
        ...     batch.delete("b")
        """
        return Batch(self)


def _pairs(items: Any) -> Iterable[Any]:
    if isinstance(items, Mapping):
        return items.items()
    try:
        if not isinstance(items, (str, bytes)):
            found: Iterator[Any] = iter(items)
            return found
    except TypeError:
        pass
    raise TypeError(f"items must be a mapping or an iterable of (key, value) pairs, not {type(items).__name__}")


def _pair(pair: Any, before: Batch) -> Any:
    """Convert an argument that should be a ``(key, value)`` tuple to one, or raise.

    Messages omit its content: keys may be secrets.
    """
    if isinstance(pair, (str, bytes)) or not hasattr(pair, "__iter__"):
        raise TypeError(f"item {len(before)} must be a (key, value) pair, not {type(pair).__name__}")
    both = tuple(pair)
    if len(both) != 2:
        raise ValueError(f"item {len(before)} must be a (key, value) pair, but has {len(both)} elements")
    return both


def key_list(keys: Iterable[Any], what: str) -> list[Any]:
    """Return an iterable of keys as a list, with bytes-like keys as bytes. Reject a single str or
    bytes.
    """
    if isinstance(keys, (str, bytes)):
        raise TypeError(f"keys of {what}() must be an iterable of keys, not one key: give a list")
    try:
        given = iter(keys)
    except TypeError:
        kind = type(keys).__name__
        raise TypeError(f"keys of {what}() must be an iterable of keys, not {kind}: give a list") from None
    return [key if isinstance(key, (str, bytes)) else to_bytes(key) for key in given]
