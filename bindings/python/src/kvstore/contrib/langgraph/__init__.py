"""A checkpointer and a cache for LangGraph, in a file.

::

    from kvstore.contrib.langgraph import KVStoreCache, KVStoreSaver

    graph = builder.compile(checkpointer=KVStoreSaver("agent.db"), cache=KVStoreCache("cache.db"))

Both have the synchronous and the asynchronous methods, which run in threads of their own. Values are
encoded by LangGraph's serializer (msgpack, never pickle), in its strict mode: reading creates
objects of Python's and LangGraph's own data types and messages only. Objects of other classes are
read as the dicts or values they were made of, unless the class is in ``allowed_types``::

    KVStoreSaver("agent.db", allowed_types=[Invoice, ("shop.models", "Order")])

With the environment variable ``LANGGRAPH_STRICT_MSGPACK=true`` LangGraph itself adds the classes of
the graph's state. LangGraph's default without it is to call any function that the file names.
"""

from kvstore.contrib.langgraph.cache import KVStoreCache
from kvstore.contrib.langgraph.checkpoint import KVStoreSaver
from kvstore.contrib.langgraph.serializer import StrictSerializer

__all__ = ["KVStoreCache", "KVStoreSaver", "StrictSerializer"]
