"""Opening of native handles: plain stores, encrypted stores, and plain stores that get a secret.

Must not depend on the connection pool, which keeps the handles.
"""

from __future__ import annotations

from typing import Any, Optional

from kvstore._errors import last_failure
from kvstore._native import NULL, check, ffi, lib


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
        config = ffi.new("KVStoreConfig *", config[0])
        config.onlyEncrypted = not encrypts
        rc = lib.kvstore_open_encrypted(path, secret, len(secret), out, config)
    if rc == lib.KVSTORE_ERROR:
        raise last_failure(NULL).rejected()
    check(rc)
