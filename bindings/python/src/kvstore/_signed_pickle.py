"""A codec for any object: pickles with a signature, so that only those who know a secret can write
values that are unpickled.
"""

from __future__ import annotations

import hashlib
import hmac
import pickle
from typing import Any, Union

from kvstore._native import to_bytes

#: The first byte of a value. The signature and the pickle follow.
_MARK = b"\x03"
_SIGNATURE_SIZE = hashlib.sha256().digest_size


class SignedPickle:
    """A codec that pickles values and signs them with HMAC-SHA256.

    Values without a valid signature are refused with a :exc:`ValueError` and never unpickled. The
    signature does not contain the key: whoever can write to the file can still delete values, or
    copy a value from one key to another.

    Args:
        secret: str or bytes, not empty: random, and the same in all processes, such as 32 bytes of
            ``secrets.token_bytes``.
        old_secrets: Secrets whose values are still accepted.

    >>> codec = kvstore.SignedPickle("a long random secret")
    >>> codec.loads(codec.dumps({1, 2})), kvstore.SignedPickle("another").loads(codec.dumps(1))
    Traceback (most recent call last):
    ...
    ValueError: the value has no valid signature, so it was not unpickled: it was written with another secret, or without one
    """

    def __init__(self, secret: Union[str, bytes], *old_secrets: Union[str, bytes]) -> None:
        self._keys = [_key(given) for given in (secret, *old_secrets)]

    def __repr__(self) -> str:
        return "kvstore.SignedPickle(...)"

    def dumps(self, value: Any, /) -> bytes:
        """Return the value as a signed pickle."""
        data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        return b"".join((_MARK, hmac.digest(self._keys[0], data, "sha256"), data))

    def loads(self, data: bytes, /) -> Any:
        """Return the value. Raises ValueError if the signature is not valid."""
        signature, pickled = data[1 : 1 + _SIGNATURE_SIZE], data[1 + _SIGNATURE_SIZE :]
        if data[:1] != _MARK or not any(
            hmac.compare_digest(hmac.digest(key, pickled, "sha256"), signature) for key in self._keys
        ):
            raise ValueError(
                "the value has no valid signature, so it was not unpickled: it was written with another secret, or "
                "without one"
            )
        return pickle.loads(pickled)


def _key(secret: Union[str, bytes]) -> bytes:
    if not isinstance(secret, (str, bytes)):
        raise TypeError(f"secret must be str or bytes, not {type(secret).__name__}")
    data = to_bytes(secret, "secret")
    if not data:
        raise ValueError("secret is empty: give a long random one")
    return hashlib.sha256(b"kvstore.SignedPickle\0" + data).digest()
