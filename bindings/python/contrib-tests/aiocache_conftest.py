"""aiocache's acceptance tests, run with our cache. Replaces the conftest.py of these tests.

Its tests of a serializer that leaves objects as they are, and those that use the dict in its cache in memory, are left
out.
"""

import pytest
from aiocache import caches
from aiocache.serializers import StringSerializer

from kvstore.contrib.aiocache import KVStoreCache

LEFT_OUT = (
    "TestNullSerializer::",
    "TestMemoryCache::test_raw",
    "TestHitMissRatioPlugin::test_get_hit_miss_ratio",
    "TestHitMissRatioPlugin::test_multi_get_hit_miss_ratio",
)


@pytest.fixture(autouse=True)
def reset_caches(tmp_path):
    caches._caches = {}
    caches.set_config(
        {"default": {"cache": "kvstore.contrib.aiocache.KVStoreCache", "path": tmp_path / "default.db"}}
    )


@pytest.fixture
async def cache(tmp_path):
    async with KVStoreCache(tmp_path / "cache.db", namespace="test") as made:
        yield made


@pytest.fixture
async def memory_cache(request, tmp_path):
    # The tests of locks compare the value of a lock with what get() returns.
    serializer = StringSerializer() if request.module.__name__.endswith("test_lock") else None
    async with KVStoreCache(tmp_path / "memory.db", namespace="test", serializer=serializer) as made:
        yield made


def pytest_collection_modifyitems(config, items):
    left_out = [item for item in items if any(name in item.nodeid for name in LEFT_OUT)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]
