"""Building blocks on top of a store: locks, rate limits, queues, tags, and caching of function
results.

>>> import kvstore
>>> from kvstore.recipes import Lock
>>> db = kvstore.open(":memory:")
>>> with Lock(db, "nightly report", ttl=60):
...     print("only one process at a time comes here")
only one process at a time comes here

All state is in families of the store whose names begin with "recipes.". Each step is one
transaction, so recipes work across threads and processes. What a dying process leaves behind
expires by its TTL. ``Queue``, ``Message``, ``RateLimiter`` and ``Tags`` join a transaction that
their thread has open; acquiring or releasing a lock inside a transaction is an error.
"""

from kvstore._memoize import memoize
from kvstore._memoize_results import CacheInfo
from kvstore.recipes._base import NotOwnedError
from kvstore.recipes._locks import Lock, RLock, Semaphore
from kvstore.recipes._queue import Message, Queue, QueueSizes
from kvstore.recipes._rates import Decision, RateLimiter
from kvstore.recipes._tags import Tags

__all__ = [
    "CacheInfo",
    "Decision",
    "Lock",
    "Message",
    "NotOwnedError",
    "Queue",
    "QueueSizes",
    "RLock",
    "RateLimiter",
    "Semaphore",
    "Tags",
    "memoize",
]

NotOwnedError.__module__ = __name__  # the public module, shown in tracebacks and pickles
