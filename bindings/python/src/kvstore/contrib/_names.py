"""The names in the store of the keys of a cache. A key that the store cannot hold gets a hash as its name.

Must not depend on a framework.

Caches have keys of any length, and a store has keys of 1 to 65,536 bytes. So that a cache holds all of them, these
keys are replaced: longer ones than 65,000 bytes, empty ones, and text that cannot be encoded as UTF-8. The name of
such a key is::

    its first 32,768 bytes, the byte ff, the SHA-256 of the key

The byte ff is not part of UTF-8, so no other key has this name. The first bytes are kept for operations on all
keys with a prefix. The key itself is not stored, so it is not listed.
"""

from __future__ import annotations

import hashlib
from typing import Union

#: A key in the store.
StoredName = Union[str, bytes]

#: The longest key that is its own name, in bytes. The rest up to 65,536 is for what locks add to it.
_LONGEST = 65_000
_KEPT = 32_768
_END = b"\xff"
_HASH_SIZE = 32


def name_of(key: StoredName) -> StoredName:
    """Return the name in the store of a key of a cache: the key itself, unless the store cannot hold it."""
    if isinstance(key, str) and key.isascii() and 0 < len(key) <= _LONGEST:
        return key
    if not isinstance(key, (str, bytes)):
        return key  # the store says that its type is wrong
    encoded = key if isinstance(key, bytes) else key.encode("utf-8", "surrogatepass")
    if 0 < len(encoded) <= _LONGEST and (isinstance(key, bytes) or _is_utf8(encoded)):
        return key
    return replacement_of(encoded)


def replacement_of(encoded: bytes) -> bytes:
    """Return the name of a key that the store cannot hold."""
    return encoded[:_KEPT] + _END + hashlib.sha256(encoded).digest()


def _is_utf8(encoded: bytes) -> bool:
    try:
        encoded.decode()
    except UnicodeDecodeError:
        return False
    return True


def prefix_of(prefix: str) -> bytes:
    """Return the first bytes of a prefix, or all of them. The names of all keys with the prefix begin with them."""
    return prefix.encode("utf-8", "surrogatepass")[:_KEPT]


def is_replaced(name: bytes) -> bool:
    """Return whether a name in the store is that of a key that the store cannot hold."""
    return name[-_HASH_SIZE - 1 : -_HASH_SIZE] == _END
