"""kvstore for asyncio: the methods of stores and families as coroutines and async iterators.

>>> import asyncio, kvstore.aio
>>> async def main():
...     async with kvstore.aio.open(":memory:") as db:
...         await db.put("user:1", "Ada", ttl=60)
...         async with db.transaction() as tx:
...             await tx.put("user:2", "Grace")
...         return [key async for key in db.keys(prefix="user:")]
>>> asyncio.run(main())
[b'user:1', b'user:2']

The work is done in a few threads, each with a handle of its own, so the loop runs while a
call waits.
Start with :func:`open`.
"""

from kvstore.aio._batch import Batch
from kvstore.aio._family import Family
from kvstore.aio._store import Store, open
from kvstore.aio._transaction import Transaction

__all__ = ["Batch", "Family", "Store", "Transaction", "open"]

for _class in (Batch, Family, Store, Transaction):
    _class.__module__ = __name__  # the public module
del _class
