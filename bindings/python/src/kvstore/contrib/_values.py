"""Values of Python as bytes, and changes of a value in one step. Must not know any framework."""

from __future__ import annotations

import pickle
from typing import Any, Callable, Optional, TypeVar, Union

from kvstore import Family
from kvstore._transaction import in_one_transaction
from kvstore.contrib._places import Place

T = TypeVar("T")

_NUMBER = frozenset(b"-0123456789")


class Values:
    """What a value is kept as: int as decimal text, which other programs can read and count with, all else
    pickled. Or, with a ``serializer`` (an object with ``dumps`` and ``loads``), as that has it."""

    __slots__ = ("_serializer",)

    def __init__(self, serializer: Optional[Any] = None) -> None:
        if serializer is not None and not (hasattr(serializer, "dumps") and hasattr(serializer, "loads")):
            raise TypeError("a serializer is an object with dumps and loads")
        self._serializer = serializer

    def dumps(self, value: Any) -> Union[bytes, str]:
        """The bytes of a value."""
        if self._serializer is not None:
            data: Union[bytes, str] = self._serializer.dumps(value)
            return data
        if type(value) is int and -(1 << 63) <= value < 1 << 63:
            return b"%d" % value
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)

    def loads(self, data: bytes) -> Any:
        """The value of bytes."""
        if self._serializer is not None:
            return self._serializer.loads(data)
        if data and data[0] in _NUMBER:
            return int(data)
        return pickle.loads(data)


def change(place: Place, key: str, values: Values, function: Callable[[Any], T]) -> T:
    """Replaces the value of a key by what a function makes of it, as one step for every thread and process;
    returns the new value. The key keeps the time it has left. KeyError if it is missing.

    The function may be called several times, and outside of any transaction.
    """
    while True:
        family = place.family()
        before = family.get(key)
        if before is None:
            raise KeyError(key)
        new = function(values.loads(before))
        data = values.dumps(new)
        if in_one_transaction(place.store()._shared, lambda: _replace(family, key, before, data), joins=False):
            return new


def _replace(family: Family, key: str, before: bytes, data: Union[bytes, str]) -> bool:
    """Replaces the value of a key, if it is still what it was before; says whether it was."""
    return family.get(key) == before and family.put(key, data, keep_ttl=True)
