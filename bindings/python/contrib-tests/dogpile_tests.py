"""dogpile.cache's backend tests, run with our backend. Copied into its tests as cache/test_kvstore.py."""

import os
import tempfile

from dogpile.cache.proxy import ProxyBackend
from dogpile.testing.fixtures import (
    _GenericBackendTestSuite,
    _GenericMutexTestSuite,
    _GenericSerializerTestSuite,
)

PATH = os.path.join(tempfile.mkdtemp(), "region.db")


class KVStoreTest(_GenericBackendTestSuite):
    backend = "kvstore"
    config_args = {"arguments": {"path": PATH}}


class KVStoreTTLTest(_GenericBackendTestSuite):
    backend = "kvstore"
    config_args = {"arguments": {"path": PATH, "ttl": 60, "family": "ttl"}}


class KVStoreDistributedLockTest(_GenericBackendTestSuite):
    backend = "kvstore"
    config_args = {"arguments": {"path": PATH, "distributed_lock": True, "family": "locked"}}


class KVStoreProxyTest(_GenericBackendTestSuite):
    backend = "kvstore"
    config_args = {"arguments": {"path": PATH}, "wrap": [ProxyBackend]}


class KVStoreSerializerTest(_GenericSerializerTestSuite, KVStoreTest):
    pass


class KVStoreMutexTest(_GenericMutexTestSuite):
    backend = "kvstore"
    config_args = {"arguments": {"path": PATH, "distributed_lock": True, "lock_timeout": 30}}
