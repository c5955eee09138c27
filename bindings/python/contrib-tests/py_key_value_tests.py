"""py-key-value's store tests, run with our store. Copied into its tests as stores/test_kvstore.py."""

import pytest
from key_value.aio.protocols.key_value import (
    AsyncCullProtocol,
    AsyncDestroyCollectionProtocol,
    AsyncDestroyStoreProtocol,
    AsyncEnumerateCollectionsProtocol,
    AsyncEnumerateKeysProtocol,
)
from tests.stores.base import BaseStoreTests, ContextManagerStoreTestMixin

from kvstore.contrib.py_key_value import KVStoreStore


class TestKVStoreStore(ContextManagerStoreTestMixin, BaseStoreTests):
    @pytest.fixture
    async def store(self, per_test_temp_dir):
        return KVStoreStore(per_test_temp_dir / "store.db")

    @pytest.mark.skip(reason="the store has no maximum number of keys")
    async def test_not_unbounded(self, store): ...

    @pytest.mark.parametrize(
        "protocol",
        [
            AsyncCullProtocol,
            AsyncDestroyCollectionProtocol,
            AsyncDestroyStoreProtocol,
            AsyncEnumerateCollectionsProtocol,
            AsyncEnumerateKeysProtocol,
        ],
    )
    async def test_optional_protocols(self, store, protocol):
        assert isinstance(store, protocol)


class TestKVStoreStoreInMemory(TestKVStoreStore):
    @pytest.fixture
    async def store(self):
        return KVStoreStore(":memory:")
