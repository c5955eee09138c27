"""kvstore: an embedded, ordered key-value store with native per-key expiry, in one file.

>>> import kvstore
>>> with kvstore.open(":memory:") as db:
...     db["user:1"] = "Ada"
...     db["otp", 30] = b"123456"  # key, TTL in seconds
...     db["user:1"], db.ttl("user:1")
(b'Ada', None)

Start with :func:`open`, and with :class:`Family` for what can be done with keys.
"""

from kvstore._batch import Batch
from kvstore._errors import (
    AuthError,
    BusyError,
    CorruptError,
    Error,
    FullError,
    InvalidError,
    LockedError,
    MisuseError,
    NotFoundError,
    ReadOnlyError,
    StoreIOError,
)
from kvstore._family import Family, row_key
from kvstore._memoize import memoize
from kvstore._native import ffi as _ffi
from kvstore._native import lib as _lib
from kvstore._store import Checkpoint, Limit, PurgeStep, Stats, Store, open
from kvstore._time import FOREVER
from kvstore._transaction import Transaction

__all__ = [
    "FOREVER",
    "AuthError",
    "Batch",
    "BusyError",
    "Checkpoint",
    "CorruptError",
    "Error",
    "Family",
    "FullError",
    "InvalidError",
    "Limit",
    "LockedError",
    "MisuseError",
    "NotFoundError",
    "PurgeStep",
    "ReadOnlyError",
    "Stats",
    "Store",
    "StoreIOError",
    "Transaction",
    "engine",
    "memoize",
    "open",
    "row_key",
    "sqlite_version",
]

#: The version of the library, and of this package.
__version__: str = _ffi.string(_lib.kvstore_version()).decode()
#: The version of the SQLite inside.
sqlite_version: str = _ffi.string(_lib.kvstore_sqlite_version()).decode()
#: The engine of this build.
engine: str = _ffi.string(_lib.kvstore_engine()).decode()

for _error in (
    AuthError, BusyError, CorruptError, Error, FullError, InvalidError, LockedError, MisuseError, NotFoundError,
    ReadOnlyError, StoreIOError,
):  # fmt: skip # where users find them, in tracebacks and pickles
    _error.__module__ = __name__
del _error
