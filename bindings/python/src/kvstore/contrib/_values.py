"""Conversion of the values of a framework backend to bytes, and atomic changes of a value.

Must not depend on a framework.
"""

from __future__ import annotations

import logging
import re
from typing import Any, Callable, Optional, TypeVar, Union

from kvstore import DATA, Family, SignedPickle
from kvstore._codec import checked_serializer
from kvstore._transaction import in_one_transaction
from kvstore.contrib._names import StoredName
from kvstore.contrib._storage import Storage

T = TypeVar("T")

_INT = re.compile(rb"-?\d{1,19}")
_log = logging.getLogger("kvstore.contrib")

_UNREADABLE = object()


class Values:
    """Converts the values of a framework backend to bytes and back.

    Args:
        serializer: An object with ``dumps`` and ``loads``; None for the default of the backend.
        secret: A secret for :class:`kvstore.SignedPickle`, or a list of the current secret and old
            ones. None: without a ``serializer``, values are encoded with ``kvstore.DATA``.

    By default an int is stored as decimal text, which other programs can read and increment.
    """

    __slots__ = ("_is_own", "_serializer")

    def __init__(self, serializer: Optional[Any] = None, secret: Any = None) -> None:
        if serializer is not None:
            checked_serializer(serializer)
        if serializer is not None and secret is not None:
            raise TypeError("serializer= and secret= cannot both be set: give one of them")
        #: Whether the serializer is one of this package.
        self._is_own = serializer is None or serializer is DATA or isinstance(serializer, SignedPickle)
        if serializer is None:
            secrets = secret if isinstance(secret, (list, tuple)) else [secret]
            serializer = DATA if secret is None else SignedPickle(*secrets)
        self._serializer = serializer

    def dumps(self, value: Any) -> Union[bytes, str]:
        """Convert a value to bytes for the store."""
        if self._is_own and type(value) is int and -(1 << 63) <= value < 1 << 63:
            return b"%d" % value
        data: Union[bytes, str] = self._serializer.dumps(value)
        return data

    def loads(self, data: bytes, missing: Any = None) -> Any:
        """Convert bytes from the store back to the value.

        A value that was written in another way, such as by an older version that pickled values, is
        logged and counts as missing. So is an object whose class was renamed or removed since.
        """
        if self._is_own and _INT.fullmatch(data):
            return int(data)
        try:
            return self._serializer.loads(data)
        except Exception as error:  # of the classes of a signed pickle
            if not self._is_own:
                raise
            _log.warning("a value counts as missing: %s", error)
            return missing


def change(storage: Storage, key: StoredName, values: Values, function: Callable[[Any], T]) -> T:
    """Replace the value of a key by ``function(value)``, atomically for all threads and processes.

    The key keeps its TTL. The function may be called several times, outside of any transaction.

    Returns:
        The new value.

    Raises:
        KeyError: If the key does not exist.
    """
    return storage.call(lambda family: change_in(family, key, values, function))


def change_in(family: Family, key: StoredName, values: Values, function: Callable[[Any], T]) -> T:
    """Like :func:`change`, with the family of the key."""
    while True:
        before = family.get(key)
        if before is None:
            raise KeyError(key)
        old = values.loads(before, _UNREADABLE)
        if old is _UNREADABLE:
            family.compare_and_delete(key, before)
            raise KeyError(key)
        new = function(old)
        data = values.dumps(new)
        if in_one_transaction(family._state, lambda: _replace(family, key, before, data), joins=False):
            return new


def _replace(family: Family, key: StoredName, before: bytes, data: Union[bytes, str]) -> bool:
    """Replace the value of a key only if it still equals ``before``, and return whether it was
    replaced.
    """
    return family.get(key) == before and family.put(key, data, keep_ttl=True)
