"""cashews' tests, run with our backend. The conftest.py of its tests, which its sdist lacks.

Without a secret, our backend does not store exceptions; the tests that do run with one.
"""

import contextlib
from unittest.mock import Mock, PropertyMock

import pytest
from cashews.backends.transaction import TransactionBackend
from cashews.serialize import get_serializer
from cashews.wrapper import Cache

from kvstore.contrib.cashews import KVStoreBackend


STORE_EXCEPTIONS = {
    "test_cache_with_exceptions",
    "test_cache_only_exceptions",
    "test_cache_early_exceptions",
    "test_cache_hit_exceptions",
    "test_iterator_error_with_cond",
}


def pytest_collection_modifyitems(config, items):
    """Leave out the tests that store an exception without a secret."""
    left_out = [item for item in items if item.name.endswith("[data]") and item.originalname in STORE_EXCEPTIONS]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


@pytest.fixture
async def backend_factory():
    """As in cashews' own: creates backends of its own classes."""

    def make(backend_class, *args, **kwargs):
        return backend_class(*args, **kwargs)

    return make


@pytest.fixture(params=["data", "signed", "transaction"])
async def raw_backend(request, tmp_path):
    serializer = None if request.param == "data" else get_serializer(secret="of a test")
    backend = made = KVStoreBackend(path=tmp_path / "cache.db", sync="off", serializer=serializer)
    await backend.init()
    if request.param == "transaction":
        made = TransactionBackend(backend)
    yield made, None
    await backend.close()


@pytest.fixture
async def backend(raw_backend):
    yield raw_backend[0]


@pytest.fixture
def target(backend):
    made = Mock(wraps=backend)
    type(made).is_init = PropertyMock(side_effect=lambda *_: backend.is_init)
    type(made).is_full_disable = PropertyMock(side_effect=lambda *_: backend.is_full_disable)
    return made


@pytest.fixture
async def cache(target):
    made = Cache()
    made._add_backend(target)
    yield made
    with contextlib.suppress(Exception):
        await made.close()
