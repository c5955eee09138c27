"""The interface of ``diskcache`` on a kvstore file, without pickle by default.

A program that uses diskcache runs with the import line changed:

>>> from kvstore.contrib.diskcache import Cache
>>> cache = Cache()
>>> cache.set("greeting", {"text": "hello"}, expire=60, tag="texts")
True
>>> cache["greeting"], cache.incr("visits"), cache.evict("texts")
({'text': 'hello'}, 1, 1)

Differences:

- Keys and values are of the types that ``help(kvstore.DATA)`` lists; other objects are a TypeError.
  ``Cache(directory, serializer=pickle)`` stores any object, and then anyone who can write to the
  file can run code in this process.
- A cache is one file, ``kvstore.db`` in its directory. Values are never stored in files of their
  own, so :class:`Disk` has no method ``filename``, and files of ``read=True`` have no name.
- Subclasses of :class:`Disk` that load pickles themselves need ``serializer=pickle``, too.
- Keys that are floats with an integral value are listed as int: equal numbers are one key.
- Expired entries are neither counted nor listed, and are removed by later writes.
- ``FanoutCache`` is one file, too: ``shards`` has no effect.
- Reads do not write. With the policies "least-recently-used" and "least-frequently-used", uses are
  stored with the next write of the process.
- New directories have the mode 0700, and files 0600.

``python -m kvstore.contrib.diskcache OLD NEW`` copies a cache of diskcache. The replacement of
``DjangoCache`` is ``kvstore.contrib.django.cache.KVStoreCache``.
"""

from kvstore.contrib.diskcache._base import DEFAULT_SETTINGS, EVICTION_POLICY, Timeout
from kvstore.contrib.diskcache._cache import Cache
from kvstore.contrib.diskcache._disk import ENOVAL, UNKNOWN, Disk, JSONDisk
from kvstore.contrib.diskcache._fanout import FanoutCache
from kvstore.contrib.diskcache._memoize import memoize_stampede
from kvstore.contrib.diskcache._persistent import Deque, Index
from kvstore.contrib.diskcache._recipes import Averager, BoundedSemaphore, Lock, RLock, barrier, throttle

#: The version of diskcache whose interface this is.
__version__ = "5.6.3"


class UnknownFileWarning(UserWarning):
    """Exists for programs that filter this warning of diskcache. It is never raised."""


class EmptyDirWarning(UserWarning):
    """Exists for programs that filter this warning of diskcache. It is never raised."""


__all__ = [
    "DEFAULT_SETTINGS",
    "ENOVAL",
    "EVICTION_POLICY",
    "UNKNOWN",
    "Averager",
    "BoundedSemaphore",
    "Cache",
    "Deque",
    "Disk",
    "EmptyDirWarning",
    "FanoutCache",
    "Index",
    "JSONDisk",
    "Lock",
    "RLock",
    "Timeout",
    "UnknownFileWarning",
    "barrier",
    "memoize_stampede",
    "throttle",
]
