"""Digests of the arguments of a call, by which memoize finds a result.

Equal arguments have equal digests, in every process. A value that several others contain is
examined once, so the time grows with the number of objects.
"""

from __future__ import annotations

import copyreg
import hashlib
import pickle
import struct
import types
from collections.abc import Iterable, Mapping
from typing import Any

#: Types whose values pickle stores as the name by which they are imported.
_IMPORTED_BY_NAME = (type, types.FunctionType, types.BuiltinFunctionType)

#: The errors of pickle, and of objects that do not support it. Other exceptions, such as those of a signal handler, are
#: not about the argument.
_NOT_PICKLED = (TypeError, AttributeError, ValueError, NotImplementedError, pickle.PickleError)


def digest(arguments: Mapping[str, Any], typed: bool) -> bytes:
    """Return a digest of 32 bytes of arguments, given by the names of their parameters.

    ``typed``: whether equal values of different types (1, 1.0 and True) have different digests.

    Raises:
        TypeError: If an argument is or contains an object that cannot be pickled.
        ValueError: If an argument contains itself.
    """
    canonical = _Canonical(typed)
    parts = []
    for name, value in arguments.items():
        try:
            parts.append(_tagged(b"n", name.encode()) + canonical.of(value))
        except _ContainsItselfError as error:
            raise ValueError(
                f"memoize: the argument {name!r} contains itself, so it has no digest: name it in ignore=, or "
                "pass a value without cycles"
            ) from error
        except _NOT_PICKLED as error:
            raise TypeError(
                f"memoize: the argument {name!r} cannot be pickled ({error}): name it in ignore=, or pass a value "
                "that can be"
            ) from error
    return hashlib.sha256(b"".join(sorted(parts))).digest()


class _ContainsItselfError(Exception):
    """A value contains itself."""


class _Canonical:
    """Converts values to bytes: equal values to equal bytes, in every process."""

    def __init__(self, typed: bool) -> None:
        self._typed = typed
        #: The bytes of the containers and objects that were converted, by their id; None while they
        #: are being converted.
        self._known: dict[int, Any] = {}
        #: These containers and objects. While they live, no other object gets their ids.
        self._alive: list[Any] = []

    def of(self, value: Any) -> bytes:
        kind = type(value)
        if value is None or value is Ellipsis:
            return _tagged(b"c", repr(value).encode())
        if kind in (bool, int, float):
            return self._number(value)
        if kind is str:
            return _tagged(b"s", value.encode("utf-8", "surrogatepass"))
        if kind in (bytes, bytearray):
            return _tagged(b"y" if kind is bytes else b"Y", bytes(value))
        if isinstance(value, _IMPORTED_BY_NAME):
            return _tagged(b"p", pickle.dumps(value, 4))
        identity = id(value)
        if identity in self._known:
            known: Any = self._known[identity]
            if known is None:
                raise _ContainsItselfError
            return bytes(known)
        self._known[identity] = None
        self._alive.append(value)
        made = self._known[identity] = self._container(kind, value)
        return made

    def _number(self, value: Any) -> bytes:
        kind = type(value)
        if not self._typed and (kind is bool or (kind is float and value.is_integer())):
            value = int(value)
        if type(value) is float:
            return _tagged(b"f", struct.pack("<d", value))
        return _tagged(b"b" if type(value) is bool else b"i", f"{int(value):x}".encode())

    def _container(self, kind: type, value: Any) -> bytes:
        if kind in (tuple, list):
            return _hashed(b"t" if kind is tuple else b"l", map(self.of, value))
        if kind in (set, frozenset):
            return _hashed(b"S", sorted(map(self.of, value)))
        if kind is dict:
            return _hashed(b"d", sorted(self.of(key) + self.of(part) for key, part in value.items()))
        return self._object(kind, value)

    def _object(self, kind: type, value: Any) -> bytes:
        """Convert an object by the parts from which pickle would create it (PEP 307)."""
        reducer = copyreg.dispatch_table.get(kind)
        parts = value.__reduce_ex__(4) if reducer is None else reducer(value)
        if isinstance(parts, str):  # the object is a global
            return _tagged(b"p", pickle.dumps(value, 4))
        function, arguments, state, items, pairs = (tuple(parts) + (None,) * 5)[:5]
        return _hashed(b"o", map(self.of, (function, arguments, state, _listed(items), _listed(pairs))))


def _listed(parts: Any) -> Any:
    return None if parts is None else list(parts)


def _hashed(tag: bytes, parts: Iterable[bytes]) -> bytes:
    return tag + hashlib.sha256(b"".join(parts)).digest()


def _tagged(tag: bytes, data: bytes) -> bytes:
    return tag + struct.pack("<Q", len(data)) + data
