"""Encoding of keys: the keys of diskcache as bytes whose order is diskcache's "database sort order".

Numbers come first, in numeric order, then str, then bytes, then all other types. The first byte of
an encoded key is its type:

===========  ==========================================================================
``10 i``     int of 64 bits, or float with an integral value: ``i`` is the number plus
             2**63, 8 bytes, big-endian. Equal numbers are one key, as in a dict.
``10 i d``   other float from -2**63 to 2**63: its floor ``i``, then the number ``d``
``0f d``     smaller float, ``11 d``: larger float, ``12``: NaN. ``d`` is an IEEE 754
             double, 8 bytes, big-endian, with the sign bit set, or with all bits
             inverted if it is negative: so the bytes sort like the numbers
``20 s``     str, UTF-8
``30 b``     bytes
``40 v``     any other value, as bytes of the serializer
``50 h``     a key that would exceed the maximum size of keys: its SHA-256. The whole
             encoded key is kept with the entry.
===========  ==========================================================================
"""

from __future__ import annotations

import hashlib
import math
import struct
from typing import Any, Optional

_INT, _DOUBLE, _BITS = struct.Struct(">BQ"), struct.Struct(">d"), struct.Struct(">Q")
_NUMBER, _BELOW, _ABOVE, _NAN, _TEXT, _BYTES, _OTHER, _HASH = 0x10, 0x0F, 0x11, b"\x12", b" ", b"0", b"@", b"P"
_OFFSET = 1 << 63
_ALL = (1 << 64) - 1

#: The longest encoded key that is stored as it is, in bytes. A key of a store may have 65,536.
_LONGEST = 32_768


def encode(key: Any, is_raw: bool) -> bytes:
    """Encode a key that :meth:`Disk.put` has converted to bytes, str, int or float."""
    kind = type(key)
    if not is_raw:
        return _OTHER + bytes(key)
    if kind is str:
        return b"".join((_TEXT, key.encode("utf-8", "surrogatepass")))
    if kind is int:
        return _INT.pack(_NUMBER, key + _OFFSET)
    if kind is float:
        return _encode_float(key)
    return _BYTES + bytes(key)


def _encode_float(key: float) -> bytes:
    if math.isnan(key):
        return _NAN
    if not -_OFFSET <= key < _OFFSET:
        return bytes([_ABOVE if key > 0 else _BELOW]) + _sortable(key)
    floor = math.floor(key)
    encoded = _INT.pack(_NUMBER, floor + _OFFSET)
    return encoded if floor == key else encoded + _sortable(key)


def _sortable(number: float) -> bytes:
    (bits,) = _BITS.unpack(_DOUBLE.pack(number))
    return _BITS.pack(bits ^ _ALL if bits >> 63 else bits | _OFFSET)


def _from_sortable(data: bytes) -> float:
    (bits,) = _BITS.unpack(data)
    number: float = _DOUBLE.unpack(_BITS.pack(bits ^ _OFFSET if bits >> 63 else bits ^ _ALL))[0]
    return number


def decode(data: bytes) -> tuple[Any, bool]:
    """Return the key that :func:`encode` has encoded, and whether it is raw."""
    first = data[0]
    if first == _TEXT[0]:
        return data[1:].decode("utf-8", "surrogatepass"), True
    if first == _NUMBER and len(data) == _INT.size:
        return _INT.unpack(data)[1] - _OFFSET, True
    if first == _BYTES[0]:
        return data[1:], True
    if first == _OTHER[0]:
        return data[1:], False
    if first == _NAN[0]:
        return math.nan, True
    return _from_sortable(data[-8:]), True


def readable(data: bytes) -> Optional[tuple[Any, bool]]:
    """Return ``decode(data)``, or None if the data is damaged."""
    try:
        return decode(data)
    except (ValueError, IndexError, struct.error):
        return None


def shortened(encoded: bytes) -> bytes:
    """Return the key of the store for an encoded key: the encoded key, or its hash if it is too long."""
    return encoded if len(encoded) <= _LONGEST else _HASH + hashlib.sha256(encoded).digest()


def is_shortened(stored: bytes) -> bool:
    return stored[:1] == _HASH
