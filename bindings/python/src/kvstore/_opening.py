"""Opening of native handles: plain stores, encrypted stores, and plain stores that get a secret.

Must not depend on the connection pool, which keeps the handles.
"""

from __future__ import annotations

import os
from typing import Any, Optional

from kvstore._errors import AuthError, last_failure
from kvstore._hints import Hint
from kvstore._native import ENCRYPTION_AVAILABLE, NULL, check, ffi, lib


def open_handle(path: bytes, secret: Optional[bytes], encrypts: bool, out: Any, config: Any) -> None:
    """Open a store with a new native handle, which the library writes to ``out``.

    A file that does not exist or has no content becomes a store, an encrypted one if ``secret`` is
    not None.

    Args:
        path: The path or URL.
        secret: The password or raw key; None: open the store without one.
        encrypts: Whether a store that is not encrypted is encrypted with ``secret`` in place. If
            False, opening one with a secret is an AuthError, and nothing is changed.
        out: A pointer to a handle.
        config: A KVStoreConfig.
    """
    if secret is None:
        rc = lib.kvstore_open_v2(path, out, config)
    else:
        if ENCRYPTION_AVAILABLE and not encrypts:
            _check_not_plain(path, config)
        rc = lib.kvstore_open_encrypted(path, secret, len(secret), out, config)  # encrypts a plain store
    if rc == lib.KVSTORE_ERROR:
        raise last_failure(NULL).rejected()
    check(rc)


def _check_not_plain(path: bytes, config: Any) -> None:
    """Raise AuthError if the file is a store that is not encrypted.

    Opens the file read-only without a secret, which fails for an encrypted file before the file is
    read beyond its first bytes. Reading the file in Python is not possible: closing the file would
    end all POSIX locks that this process has on it.
    """
    probe = ffi.new("KVStoreConfig *", config[0])
    probe.readOnly, probe.exclusive = 1, 0
    out = ffi.new("KVStore **")
    rc = lib.kvstore_open_v2(path, out, probe)
    if rc == 0:
        lib.kvstore_close(out[0])
    elif rc in (lib.KVSTORE_AUTH_FAILED, lib.KVSTORE_NOTADB):
        return  # encrypted, or not a store
    else:
        hint = last_failure(NULL).hint
        if rc == lib.KVSTORE_CANTOPEN and hint is Hint.OPEN_FOR_WRITING:
            return  # there is no file, or it has no content
        if rc != lib.KVSTORE_READONLY or hint is not Hint.OPEN_FOR_WRITING:
            check(rc)
        # Only a store that is not encrypted shows that its last transaction must be rolled back.
    raise AuthError(
        f"{os.fsdecode(path)}: a password was given, but the file is not encrypted: {Hint.OMIT_PASSWORD.advice}",
        hint=Hint.OMIT_PASSWORD,
    )
