"""LangGraph's conformance tests of checkpointers, and its tests of a cache, run with ours. Copied into the tests of
langgraph-checkpoint as test_kvstore.py.
"""

import asyncio
import importlib

import pytest
import test_redis_cache
from langgraph.checkpoint.conformance.capabilities import ALL_CAPABILITIES

from kvstore.contrib.langgraph import KVStoreCache, KVStoreSaver

SPEC = "langgraph.checkpoint.conformance.spec.test_"
CONFORMANCE = [
    test
    for capability in sorted(ALL_CAPABILITIES)
    for test in getattr(importlib.import_module(SPEC + capability.value), f"ALL_{capability.name}_TESTS")
]


@pytest.mark.parametrize("test", CONFORMANCE, ids=lambda test: test.__name__)
@pytest.mark.parametrize("path", ["checkpoints.db", ":memory:"])
def test_conformance(test, path, tmp_path):
    async def main():
        async with KVStoreSaver(path if path == ":memory:" else tmp_path / path) as saver:
            await test(saver)

    asyncio.run(main())


class TestKVStoreCache(test_redis_cache.TestRedisCache):
    @pytest.fixture(autouse=True)
    def setup(self, tmp_path):
        self.cache = KVStoreCache(tmp_path / "cache.db")
        yield
        self.cache.close()

    def teardown_method(self):
        pass

    # Those that connect to a Redis server, or write into it.
    test_async_operations = test_async_clear = None
    test_redis_unavailable_get = test_redis_unavailable_set = test_redis_unavailable_async = None
    test_corrupted_data_handling = None
