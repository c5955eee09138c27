"""kvstore: an embedded, ordered key-value store with per-key TTL, in one SQLite file.

A store is a mutable mapping whose keys are sorted by their bytes:

>>> import kvstore
>>> db = kvstore.open(":memory:")  # a path creates or opens a file
>>> db["user:1"] = "Ada"  # str or bytes-like; bytes come back
>>> db["user:1"], db.get("user:2"), "user:1" in db
(b'Ada', None, True)

A key may have a TTL, in seconds or as a ``timedelta``. An expired key is never returned:

>>> db.put("otp", b"123456", ttl=30)
True
>>> db.put("session", b"token", ttl=60), db.add("lock", b"me", ttl=10)  # add: only if the key is missing
(True, True)
>>> 59 < db.ttl("session") <= 60
True

Ranges, and calls on many keys at once:

>>> list(db.keys(prefix="user:")), list(db.items(start="s", limit=1))
([b'user:1'], [(b'session', b'token')])
>>> db.get_many(["user:1", "user:2"]), db.incr("visits")
({'user:1': b'Ada'}, 1)

With a codec, values are Python objects; with ``keys=str``, keys come back as str:

>>> people = db.family("people", create=True, codec=kvstore.JSON, keys=str)
>>> people["ada"] = {"born": 1815}
>>> dict(people)
{'ada': {'born': 1815}}

A family is a named key space of the store. A transaction covers all families:

>>> with db.transaction():  # commits; rolls back on an exception
...     people["grace"] = {"born": 1906}
...     del db["user:1"]
>>> db.close()  # or: with kvstore.open(path) as db

Where to look:

- :func:`open`: open a store, and all its settings.
- :class:`Family`: methods on keys. A :class:`Store` has them too: it is its own default family.
- :class:`Store`: methods on the file, and what holds for threads, forks, pickles and asyncio.
- :func:`memoize`: cache the results of a function.
- ``help(kvstore.DATA)``: the types of values that :func:`memoize` and ``codec=kvstore.DATA`` store.
- :mod:`kvstore.recipes`: locks, queues, rate limits and tags; :mod:`kvstore.aio`: the same API for
  asyncio.
- :class:`Error`: the base class of all exceptions; :class:`Hint`: what to do about one. A missing
  key raises :class:`NotFoundError`, which is also a ``KeyError``.
"""

from kvstore._batch import Batch
from kvstore._codec import JSON, PICKLE, TEXT, Codec
from kvstore._data_codec import DATA
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
from kvstore._family_ranges import row_key
from kvstore._hints import Hint
from kvstore._memoize import memoize
from kvstore._native import ENCRYPTION_AVAILABLE as encryption_available
from kvstore._native import REMOTE_AVAILABLE as remote_available
from kvstore._native import ffi as _ffi
from kvstore._native import lib as _lib
from kvstore._recover import Recovered, recover
from kvstore._signed_pickle import SignedPickle
from kvstore._store import Store, open
from kvstore._store_expiry import PurgeStep
from kvstore._store_maintenance import Checkpoint, Limit, Stats
from kvstore._time import FOREVER
from kvstore._transaction import Transaction

__all__ = [
    "DATA",
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
    "Hint",
    "InvalidError",
    "Limit",
    "LockedError",
    "MisuseError",
    "NotFoundError",
    "PurgeStep",
    "ReadOnlyError",
    "Recovered",
    "SignedPickle",
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

#: The version of this package and of the library in it.
__version__: str = _ffi.string(_lib.kvstore_version()).decode().split("+")[0]
#: The version of the bundled SQLite.
sqlite_version: str = _ffi.string(_lib.kvstore_sqlite_version()).decode()
#: A description of the storage engine of this build.
engine: str = _ffi.string(_lib.kvstore_engine()).decode()

for _error in (
    AuthError, BusyError, CorruptError, Error, FullError, Hint, InvalidError, LockedError, MisuseError, NotFoundError,
    ReadOnlyError, StoreIOError,
):  # the public module, shown in tracebacks and pickles
    _error.__module__ = __name__
del _error
