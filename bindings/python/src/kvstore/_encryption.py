"""The methods of a store on its encryption. Mixed into Store. Must not read or write keys."""

from __future__ import annotations

from typing import Any, Callable, Optional, Union

from kvstore._errors import InvalidError
from kvstore._handle import Handle
from kvstore._native import ffi, lib
from kvstore._options import secret_of

#: Whether the library can encrypt.
AVAILABLE: bool = b"sqlcipher" in ffi.string(lib.kvstore_engine())


class EncryptionMethods(Handle):
    """See :class:`kvstore.Store`."""

    __slots__ = ()

    @property
    def is_encrypted(self) -> bool:
        """Whether the file is encrypted."""
        return bool(lib.kvstore_is_encrypted(self._shared.handle()))

    def encrypt(self, *, password: Union[str, bytes, None] = None, raw_key: Optional[bytes] = None) -> None:
        """Encrypts the store where it is, with a password or a key of 32 bytes: everything in the file, with all TTLs,
        families and settings. From now on it is opened with that.

        If it fails, or the power is cut on the way, the file is the old one or the new one. What it was is overwritten.
        BusyError while another object or process has it open, a transaction is open on it, or a cleaner runs. What other
        threads have begun (calls, transactions, iterations, batches) is waited for, for ``busy_timeout``; their calls
        meanwhile wait, and go on then.
        """
        secret = _needed(password, raw_key)
        shared = self._shared
        connections = shared.connections
        if self.is_encrypted:
            raise InvalidError("the store is encrypted already: rekey() gives it another password")
        if connections.remote:
            raise InvalidError("only a store in a file can be encrypted, and this one is on a server")
        if not AVAILABLE:
            raise InvalidError("this build of kvstore has no encryption: install one that has")
        if connections.in_memory:
            raise InvalidError("a store in memory has no file that could be encrypted")
        with shared.alone(keep=False):
            connections.for_all = bool(connections.for_all)
            connections.secret = secret
            try:
                shared.lease()  # an open with the secret encrypts
            except BaseException:
                connections.secret = None
                raise

    def rekey(self, *, password: Union[str, bytes, None] = None, raw_key: Optional[bytes] = None) -> None:
        """Encrypts an encrypted store with another password or key, where it is; as :meth:`encrypt`. With the old one it
        cannot be opened any more. InvalidError if it is not encrypted."""
        secret = _needed(password, raw_key)
        self._convert(lambda kv: lib.kvstore_reencrypt(kv, secret, len(secret)), secret)

    def decrypt(self) -> None:
        """Takes the encryption off the store, where it is; as :meth:`encrypt`. InvalidError if it is not encrypted."""
        self._convert(lib.kvstore_remove_encryption, None)

    def _convert(self, call: Callable[[Any], int], secret: Optional[bytes]) -> None:
        shared = self._shared
        with shared.alone(keep=True) as connection:
            rc = call(connection.kv)
            if rc == lib.KVSTORE_ERROR:
                raise InvalidError(shared.error_text())
            shared.check(rc)
            shared.connections.secret = secret


def _needed(password: Union[str, bytes, None], raw_key: Optional[bytes]) -> bytes:
    secret = secret_of(password, raw_key)
    if secret is None:
        raise TypeError("give a password or a raw_key")
    return secret
