"""Django's cache backend tests, run with our cache. Copied into Django's tests as cache/test_kvstore.py."""

import os
import shutil
import tempfile

from django.core.cache import cache, caches
from django.test import TestCase, override_settings

from .tests import BaseCacheTests, caches_setting_for_tests

FOLDER = tempfile.mkdtemp()
BACKEND = "kvstore.contrib.django.cache.KVStoreCache"


def settings(location):
    return caches_setting_for_tests(BACKEND=BACKEND, LOCATION=location)


class _Tests(BaseCacheTests):
    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        shutil.rmtree(FOLDER, ignore_errors=True)
        os.makedirs(FOLDER)


@override_settings(CACHES=settings(os.path.join(FOLDER, "cache.db")))
class KVStoreCacheTests(_Tests, TestCase):
    def setUp(self):
        super().setUp()
        # As in LocMemCacheTests: values pickled in one cache are read in another.
        self.assertIs(cache._storage, caches["prefix"]._storage)

    def test_the_backend_is_ours(self):
        self.assertEqual(type(cache._connections["default"]).__module__, "kvstore.contrib.django.cache")


@override_settings(CACHES=settings(":memory:"))
class KVStoreCacheInMemoryTests(_Tests, TestCase):
    pass
