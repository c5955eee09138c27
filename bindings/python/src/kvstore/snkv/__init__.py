"""The interface of the package ``snkv`` 0.8 on top of kvstore, for programs that were written for
``snkv``.

A program changes only its import.

>>> from kvstore.snkv import KVStore, NotFoundError
>>> with KVStore() as db:  # in memory; a path opens or creates a file
...     db["hello"] = "world"
...     db["otp", 30] = b"123456"  # key, TTL in seconds
...     print(db["hello"], db.get("missing"), 29 < db.ttl("otp") <= 30)
...     try:
...         db["missing"]
...     except NotFoundError:
...         print("not found")
...     for key, value in db:
...         print(key, value)
b'world' None True
not found
b'hello' b'world'
b'otp' b'123456'

Keys and values are ``str`` (stored as UTF-8) or bytes, and come back as bytes. Files written by
``snkv`` cannot be opened: copy the data with ``python -m kvstore import``. Vectors and the command
line tool are not included. An encrypted store has the format of this library, in which the whole
file is encrypted; ``snkv`` leaves keys and times unencrypted.

Where this module differs from ``snkv``, ``snkv`` loses data or returns wrong data:

- Options that are not given have their defaults. In ``snkv``, giving any option without
  ``sync_level`` turns syncing off.
- A read transaction is a snapshot: writing in it raises :exc:`ReadOnlyError`, and only one can be
  open. In ``snkv``, each write in it is committed at once, and a rollback does not undo it.
- ``sync``, and reading an expired key, do not commit the open transaction.
- A negative TTL of any length expires the key at once. In ``snkv``, one longer than the time since
  1970 makes the key permanent; so does a negative ``expire_ms``, which is an error here.
- Deleting an expired key raises :exc:`NotFoundError`.
- Numbers that are not a value of an option (a journal mode of 7, a page size of 1000) are rejected.
- A reverse iterator moves in one direction only: ``first`` acts as ``last``, and ``next`` as
  ``prev``.
- Using an object after its store was closed raises :exc:`Error`; ``snkv`` reads freed memory.
- Family names that begin with "kvstore" are reserved too, and the list of families is sorted.
- Threads may share all objects. ``full_mutex`` is accepted and has no effect.

New code should use :mod:`kvstore` itself. No other module of the package depends on this one.
"""

from kvstore.snkv._constants import (
    CHECKPOINT_FULL,
    CHECKPOINT_PASSIVE,
    CHECKPOINT_RESTART,
    CHECKPOINT_TRUNCATE,
    JOURNAL_DELETE,
    JOURNAL_WAL,
    NO_TTL,
    SYNC_FULL,
    SYNC_NORMAL,
    SYNC_OFF,
)
from kvstore.snkv._errors import (
    AuthError,
    BusyError,
    CorruptError,
    Error,
    LockedError,
    NotFoundError,
    ReadOnlyError,
)
from kvstore.snkv._iterator import Iterator
from kvstore.snkv._store import ColumnFamily, KVStore

__all__ = [
    "CHECKPOINT_FULL",
    "CHECKPOINT_PASSIVE",
    "CHECKPOINT_RESTART",
    "CHECKPOINT_TRUNCATE",
    "JOURNAL_DELETE",
    "JOURNAL_WAL",
    "NO_TTL",
    "SYNC_FULL",
    "SYNC_NORMAL",
    "SYNC_OFF",
    "AuthError",
    "BusyError",
    "ColumnFamily",
    "CorruptError",
    "Error",
    "Iterator",
    "KVStore",
    "LockedError",
    "NotFoundError",
    "ReadOnlyError",
]

for _class in (
    AuthError, BusyError, ColumnFamily, CorruptError, Error, Iterator, KVStore, LockedError, NotFoundError, ReadOnlyError,
):  # the public module, shown in tracebacks and pickles
    _class.__module__ = __name__
del _class
