"""requests-cache's backend tests, run with our backend. Copied into its tests as integration/test_kvstore.py.
"""

from kvstore.contrib.requests_cache import KVStoreCache, KVStoreDict
from tests.integration.base_cache_test import BaseCacheTest
from tests.integration.base_storage_test import BaseStorageTest


class TestKVStoreDict(BaseStorageTest):
    storage_class = KVStoreDict
    init_kwargs = {"sync": "off"}


class TestKVStoreCache(BaseCacheTest):
    backend_class = KVStoreCache
    init_kwargs = {"sync": "off"}
