"""cachelib's cache tests, run with our caches. Copied into cachelib's tests as test_kvstore.py."""

import pytest
from clear import ClearTests
from common import CommonTests
from delete_many_with_prefix import DeleteManyWithPrefixTests
from has import HasTests
from serializer import SerializerTests

from kvstore.contrib.cachelib import KVStoreCache


class SillySerializer:
    """As the tests of the other caches have it."""

    def dumps(self, value):
        return repr(value).encode()

    def loads(self, data):
        return eval(data.decode())


class CustomCache(KVStoreCache):
    serializer = SillySerializer()


@pytest.fixture(autouse=True, params=[KVStoreCache, CustomCache])
def cache_factory(request, tmp_path, key_prefix):
    made = []

    def _factory(self, *args, **kwargs):
        kwargs.setdefault("key_prefix", key_prefix or "")
        made.append(request.param(tmp_path / "cache.db", *args, **kwargs))
        return made[-1]

    request.cls.cache_factory = _factory
    yield
    for cache in made:
        cache.close()


class TestKVStoreCache(CommonTests, HasTests, ClearTests, SerializerTests, DeleteManyWithPrefixTests):
    pass
