"""Ready parts on top of a store: locks, rate limits, queues, tags, and results of functions.

>>> import kvstore
>>> from kvstore.recipes import Lock
>>> db = kvstore.open(":memory:")
>>> with Lock(db, "nightly report", ttl=60):
...     print("only one process at a time comes here")
only one process at a time comes here

All state is in families of the store, whose names begin with "recipes."; every step is one transaction, so
the parts work over threads and processes, and what a process that dies leaves behind ends by its TTL. Those
that only touch keys (``Queue.put``, ``Message.ack``, ``RateLimiter.hit``, ``Tags``) join a transaction that
their thread has open; locks do not.
"""

from kvstore._memoize import CacheInfo, memoize
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

NotOwnedError.__module__ = __name__  # where users find it, in tracebacks and pickles
