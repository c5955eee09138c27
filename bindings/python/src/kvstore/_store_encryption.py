"""The encryption methods of a store: encrypt, rekey, decrypt.

Mixed into Store. Must not read or write keys.
"""

from __future__ import annotations

from typing import Any, Callable, Optional, Union

from kvstore._errors import InvalidError
from kvstore._family_handle import FamilyHandle
from kvstore._native import ENCRYPTION_AVAILABLE, lib
from kvstore._options import secret_of


class EncryptionMethods(FamilyHandle):
    """Base class of :class:`kvstore.Store` with its methods on encryption."""

    __slots__ = ()

    @property
    def is_encrypted(self) -> bool:
        """Whether the file of the store is encrypted."""
        return bool(lib.kvstore_is_encrypted(self._state.handle()))

    def encrypt(self, *, password: Union[str, bytes, None] = None, raw_key: Optional[bytes] = None) -> None:
        """Encrypt an unencrypted store in place, with a password or a raw key.

        The whole file is encrypted: keys, values, expiry times, families and settings. Afterwards
        the store can only be opened with that password or key. If the call fails or the power is
        cut, the file is either the old one or the new one. The unencrypted content is overwritten.

        Calls, transactions, iterations and batches that other threads have begun are waited for, up
        to ``busy_timeout``. Calls that other threads begin meanwhile wait, and then continue.

        Args:
            password: str or bytes, not empty.
            raw_key: 32 bytes, instead of a password.

        Raises:
            InvalidError: If the store is encrypted already, in memory or on a server, or if this
                build has no encryption.
            BusyError: If another store object or process has the file open, a transaction is open
                in this thread, a cleaner runs, or other threads are not done after
                ``busy_timeout``.
            TypeError, ValueError: If neither or both of ``password`` and ``raw_key`` are given, or
                one is invalid.
        """
        secret = _needed(password, raw_key)
        state = self._state
        pool = state.pool
        if self.is_encrypted:
            raise InvalidError("the store is already encrypted: call rekey() to change its password")
        if pool.remote:
            raise InvalidError("a store on a server cannot be encrypted: only a store in a file can")
        if not ENCRYPTION_AVAILABLE:
            raise InvalidError(
                "this build of kvstore has no encryption: install a build for which "
                "kvstore.encryption_available is True"
            )
        if pool.in_memory:
            raise InvalidError("a store in memory cannot be encrypted: open one with a path")
        with state.exclusive(keep=False):
            pool.single = bool(pool.single)
            encrypts = pool.encrypts
            pool.secret, pool.encrypts = secret, True
            try:
                state.checkout()  # opening with the secret encrypts the file
            except BaseException:
                pool.secret = None
                raise
            finally:
                pool.encrypts = encrypts

    def rekey(self, *, password: Union[str, bytes, None] = None, raw_key: Optional[bytes] = None) -> None:
        """Replace the password or key of an encrypted store, in place.

        The old password no longer opens it. Waits for other threads as :meth:`encrypt` does.

        Args:
            password: The new password: str or bytes, not empty.
            raw_key: 32 bytes, instead of a password.

        Raises:
            InvalidError: If the store is not encrypted.
            BusyError: As for :meth:`encrypt`.
        """
        secret = _needed(password, raw_key)
        self._convert(lambda kv: lib.kvstore_reencrypt(kv, secret, len(secret)), secret)

    def decrypt(self) -> None:
        """Remove the encryption of the store, in place.

        Waits for other threads as :meth:`encrypt` does.

        Raises:
            InvalidError: If the store is not encrypted.
            BusyError: As for :meth:`encrypt`.
        """
        self._convert(lib.kvstore_remove_encryption, None)

    def _convert(self, call: Callable[[Any], int], secret: Optional[bytes]) -> None:
        state = self._state
        with state.exclusive(keep=True) as connection:
            rc = call(connection.kv)
            if rc == lib.KVSTORE_ERROR:
                raise state.failure().rejected()
            state.check(rc)
            state.pool.secret = secret


def _needed(password: Union[str, bytes, None], raw_key: Optional[bytes]) -> bytes:
    secret = secret_of(password, raw_key)
    if secret is None:
        raise TypeError("encryption needs a secret: give password= or raw_key=")
    return secret
