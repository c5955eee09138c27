"""The methods of a family on many keys at once.

Mixed into Family. Ranges of keys are in _ranges.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Generic, Optional, TypeVar, Union

from kvstore._batch import Batch
from kvstore._handle import Handle
from kvstore._native import Data, K, V, ffi, lib, to_bytes
from kvstore._time import Duration, Moment
from kvstore._transaction import Transaction

#: Keys as they were given.
G = TypeVar("G", bound="Data")

_unpack = ffi.unpack
#: As many keys are read at once by get_many.
_MANY = 4096


class ManyMethods(Handle, Generic[K, V]):
    """See Family."""

    __slots__ = ()

    if TYPE_CHECKING:

        def delete(self, key: Data) -> bool: ...

    def get_many(self, keys: Iterable[G]) -> dict[G, V]:
        """The values of those of ``keys`` that are there, by the keys as they were given (bytes-like ones as
        bytes).

        All are read from one snapshot, as long as there are at most 4096 of them.
        """
        wanted = several(keys, "get_many")
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
        expire_at: Optional[Moment] = None,
    ) -> int:
        """Writes all pairs of key and value (or of a mapping) in one transaction: all, or on a failure
        nothing. Returns how many. Inside an open transaction they are part of it."""
        with Batch(self) as batch:
            expire_ms = self._expire_ms(ttl, expire_at)
            pairs = items.items() if isinstance(items, Mapping) else items
            for key, value in pairs:
                batch._put(self, to_bytes(key), self._encode(value), expire_ms)
            return len(batch)

    def set_many(
        self,
        items: Union[Mapping[Any, Any], Iterable[tuple[Any, Any]]],
        ttl: Optional[Duration] = None,
        expire_at: Optional[Moment] = None,
    ) -> int:
        """The same as :meth:`put_many`."""
        return self.put_many(items, ttl, expire_at)

    def delete_many(self, keys: Iterable[Data]) -> int:
        """Deletes keys in one transaction. Returns how many were there."""
        wanted = several(keys, "delete_many")
        with self._one_transaction():
            return sum(self.delete(key) for key in wanted)

    def pop_many(self, keys: Iterable[G]) -> dict[G, V]:
        """Deletes keys in one transaction and returns the values of those that were there, as get_many does."""
        wanted = several(keys, "pop_many")
        with self._one_transaction():
            found: dict[Any, V] = self.get_many(wanted)
            for key in found:
                self.delete(key)
            return found

    def _one_transaction(self) -> AbstractContextManager[Any]:
        """That which this thread has open, or one of its own."""
        return nullcontext() if self._shared.in_transaction() else Transaction(self._shared, True)

    def batch(self) -> Batch:
        """Writes to be committed together: see :class:`Batch`.

        >>> db = kvstore.open(":memory:")
        >>> with db.batch() as batch:
        ...     batch.put("a", b"1", ttl=60)
        ...     batch.delete("b")
        """
        return Batch(self)


def several(keys: Iterable[Any], what: str) -> list[Any]:
    """Keys as they were given, but bytes-like ones as bytes; text alone is no iterable of keys."""
    if isinstance(keys, (str, bytes)):
        raise TypeError(f"{what} takes an iterable of keys, not one key")
    return [key if isinstance(key, (str, bytes)) else to_bytes(key) for key in keys]
