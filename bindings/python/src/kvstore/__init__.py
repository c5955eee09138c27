"""kvstore: an embedded, ordered key-value store with native per-key expiry, in one file.

A store is a mutable mapping, in the order of the keys:

>>> import kvstore
>>> db = kvstore.open(":memory:")  # a path makes or opens a file
>>> db["user:1"] = "Ada"  # str or bytes-like; bytes come back
>>> db["user:1"], db.get("user:2"), "user:1" in db
(b'Ada', None, True)

Each key may have a time to live (ttl), in seconds or as a timedelta:

>>> db["otp", 30] = b"123456"
>>> db.put("session", b"token", ttl=60), db.add("lock", b"me", ttl=10)  # add: only if the key is missing
(True, True)
>>> 59 < db.ttl("session") <= 60
True

Ranges, and many keys at once:

>>> list(db.keys(prefix="user:")), list(db.items(start="s", limit=1))
([b'user:1'], [(b'session', b'token')])
>>> db.get_many(["user:1", "user:2"]), db.incr("visits")
({'user:1': b'Ada'}, 1)

Values and keys as Python has them, by a codec:

>>> people = db.family("people", create=True, codec=kvstore.JSON, keys=str)
>>> people["ada"] = {"born": 1815}
>>> dict(people)
{'ada': {'born': 1815}}

Families are key spaces of one file. Transactions take all of them, and the calls of one thread:

>>> with db.transaction():  # commit, or roll back on an exception
...     people["grace"] = {"born": 1906}
...     del db["user:1"]
>>> db.close()  # or: with kvstore.open(path) as db

Threads, forks, process pools and pickles: a store object works everywhere it is carried; see :class:`Store`.

:func:`open` has the settings, :class:`Family` (and so :class:`Store`) all that can be done with keys,
:class:`Store` what concerns the file, :func:`memoize` keeps results of functions. Failures are classes of
:class:`Error`; a missing key is a :class:`NotFoundError`, which is a KeyError.
"""

from kvstore._batch import Batch
from kvstore._codec import JSON, PICKLE, TEXT, Codec
from kvstore._encryption import AVAILABLE as encryption_available
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
from kvstore._family import Family
from kvstore._maintenance import Checkpoint, Limit, Stats
from kvstore._memoize import memoize
from kvstore._native import ffi as _ffi
from kvstore._native import lib as _lib
from kvstore._ranges import row_key
from kvstore._recover import Recovered, recover
from kvstore._remote import AVAILABLE as remote_available
from kvstore._store import PurgeStep, Store, open
from kvstore._time import FOREVER
from kvstore._transaction import Transaction

__all__ = [
    "FOREVER",
    "JSON",
    "PICKLE",
    "TEXT",
    "AuthError",
    "Batch",
    "BusyError",
    "Checkpoint",
    "Codec",
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
    "Recovered",
    "Stats",
    "Store",
    "StoreIOError",
    "Transaction",
    "encryption_available",
    "engine",
    "memoize",
    "open",
    "recover",
    "remote_available",
    "row_key",
    "sqlite_version",
]

#: The version of the library, and of this package.
__version__: str = _ffi.string(_lib.kvstore_version()).decode().split("+")[0]
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
