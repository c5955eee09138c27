"""django-redis' tests of its cache, run with our cache for Django. Replaces the conftest.py of its tests.

Its tests of connections, sharding, sentinels, serializers and sorted sets are other files, which are not run.
"""

import os
import sys
from types import SimpleNamespace

import pytest
from django.conf import settings as django_settings
from django.core.cache import cache as default_cache

from kvstore.contrib.django.cache import KVStoreCache

from .settings_wrapper import SettingsWrapper

sys.path.insert(0, os.path.dirname(__file__))  # settings of its tests name functions of them
django_settings.configure(SECRET_KEY="of a test", INSTALLED_APPS=["django.contrib.sessions"], USE_TZ=False)

from django.test import override_settings  # noqa: E402

HASHES_AND_SETS = "hashes and sets are Redis' data types"
CLIENT = "uses the client of Redis in the cache"
RESULT = "delete_many returns None, as Django specifies"
NO_SERVER = "settings for a server that does not answer; IGNORE_ERRORS has tests of its own"

LEFT_OUT = {
    "test_hset": HASHES_AND_SETS,
    "test_hdel": HASHES_AND_SETS,
    "test_hlen": HASHES_AND_SETS,
    "test_hkeys": HASHES_AND_SETS,
    "test_hexists": HASHES_AND_SETS,
    "test_hash_version_support": HASHES_AND_SETS,
    "test_hash_key_structure_in_redis": HASHES_AND_SETS,
    "test_sadd": HASHES_AND_SETS,
    "test_scard": HASHES_AND_SETS,
    "test_sdiff": HASHES_AND_SETS,
    "test_sdiffstore": HASHES_AND_SETS,
    "test_sdiffstore_with_keys_version": HASHES_AND_SETS,
    "test_sdiffstore_with_different_keys_versions_without_initial_set_in_version": HASHES_AND_SETS,
    "test_sdiffstore_with_different_keys_versions_with_initial_set_in_version": HASHES_AND_SETS,
    "test_sinter": HASHES_AND_SETS,
    "test_interstore": HASHES_AND_SETS,
    "test_sismember": HASHES_AND_SETS,
    "test_smove": HASHES_AND_SETS,
    "test_spop_default_count": HASHES_AND_SETS,
    "test_spop": HASHES_AND_SETS,
    "test_srandmember_default_count": HASHES_AND_SETS,
    "test_srandmember": HASHES_AND_SETS,
    "test_srem": HASHES_AND_SETS,
    "test_sscan": HASHES_AND_SETS,
    "test_sscan_with_match": HASHES_AND_SETS,
    "test_sscan_iter": HASHES_AND_SETS,
    "test_sscan_iter_with_match": HASHES_AND_SETS,
    "test_smismember": HASHES_AND_SETS,
    "test_sunion": HASHES_AND_SETS,
    "test_sunionstore": HASHES_AND_SETS,
    "test_set_call_empty_pipeline": CLIENT,
    "test_delete_pattern_with_custom_count": CLIENT,
    "test_delete_pattern_with_settings_default_scan_count": CLIENT,
    "test_close_uninitialized_client": CLIENT,
    "test_close_client": CLIENT,
    "test_close_with_signal_parameter": CLIENT,
    "test_primary_replica_switching": CLIENT,
    "test_primary_replica_switching_with_index": CLIENT,
    "test_delete_many": RESULT,
    "test_delete_many_generator": RESULT,
    "test_get_django_omit_exceptions_many_returns_default_arg": NO_SERVER,
    "test_get_django_omit_exceptions": NO_SERVER,
    "test_get_django_omit_exceptions_priority_1": NO_SERVER,
    "test_get_django_omit_exceptions_priority_2": NO_SERVER,
}


class CacheWithClient(KVStoreCache):
    """Our cache, with what the tests ask a client for: its kind, its serializer, and all keys as they are stored."""

    @property
    def client(self):
        stored = SimpleNamespace(keys=lambda pattern: list(self._storage.family()))
        return SimpleNamespace(_serializer=None, get_client=lambda write: stored)


def pytest_collection_modifyitems(config, items):
    unknown = set(LEFT_OUT) - {item.originalname for item in items}
    if unknown:
        raise pytest.UsageError(f"django-redis has no such tests: {sorted(unknown)}")
    config.hook.pytest_deselected(items=[item for item in items if item.originalname in LEFT_OUT])
    items[:] = [item for item in items if item.originalname not in LEFT_OUT]


@pytest.fixture
def settings():
    wrapper = SettingsWrapper()
    yield wrapper
    wrapper.finalize()


@pytest.fixture(params=["file", "memory"])
def cache(request, tmp_path):
    place = {
        "BACKEND": f"{__name__}.CacheWithClient",
        "LOCATION": str(tmp_path / "cache.db") if request.param == "file" else ":memory:",
        "OPTIONS": {},
    }
    with override_settings(CACHES={"default": place, "with_prefix": {**place, "KEY_PREFIX": "test-prefix"}}):
        yield default_cache
        default_cache.clear()
        default_cache._storage.close()
