"""Conversion of the values of a framework backend to bytes, and atomic changes of a value.

Must not depend on a framework.
"""

from __future__ import annotations

import pickle
from typing import Any, Callable, Optional, TypeVar, Union

from kvstore import Family
from kvstore._transaction import in_one_transaction
from kvstore.contrib._storage import Storage

T = TypeVar("T")

_NUMBER = frozenset(b"-0123456789")


class Values:
    """Converts the values of a framework backend to bytes and back.

    An int is stored as decimal text, which other programs can read and increment; other values are
    pickled. With a ``serializer`` (an object with ``dumps`` and ``loads``), it encodes all values.
    """

    __slots__ = ("_serializer",)

    def __init__(self, serializer: Optional[Any] = None) -> None:
        if serializer is not None and not (hasattr(serializer, "dumps") and hasattr(serializer, "loads")):
            raise TypeError(
                f"serializer must have the methods dumps and loads, and {type(serializer).__name__} does not"
            )
        self._serializer = serializer

    def dumps(self, value: Any) -> Union[bytes, str]:
        """Convert a value to bytes for the store."""
        if self._serializer is not None:
            data: Union[bytes, str] = self._serializer.dumps(value)
            return data
        if type(value) is int and -(1 << 63) <= value < 1 << 63:
            return b"%d" % value
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)

    def loads(self, data: bytes) -> Any:
        """Convert bytes from the store back to the value."""
        if self._serializer is not None:
            return self._serializer.loads(data)
        if data and data[0] in _NUMBER:
            return int(data)
        return pickle.loads(data)


def change(storage: Storage, key: str, values: Values, function: Callable[[Any], T]) -> T:
    """Replace the value of a key by ``function(value)``, atomically for all threads and processes.

    The key keeps its TTL. The function may be called several times, outside of any transaction.

    Returns:
        The new value.

    Raises:
        KeyError: If the key does not exist.
    """
    return storage.call(lambda family: _change(family, key, values, function))


def _change(family: Family, key: str, values: Values, function: Callable[[Any], T]) -> T:
    while True:
        before = family.get(key)
        if before is None:
            raise KeyError(key)
        new = function(values.loads(before))
        data = values.dumps(new)
        if in_one_transaction(family._state, lambda: _replace(family, key, before, data), joins=False):
            return new


def _replace(family: Family, key: str, before: bytes, data: Union[bytes, str]) -> bool:
    """Replace the value of a key only if it still equals ``before``, and return whether it was
    replaced.
    """
    return family.get(key) == before and family.put(key, data, keep_ttl=True)
