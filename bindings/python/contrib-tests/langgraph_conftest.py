"""LangGraph's tests of graphs, run with our checkpointer and cache. Replaces the conftest.py of its tests.

Strict deserialization (LANGGRAPH_STRICT_MSGPACK=true) must be on: LangGraph then adds the classes of the graph's state
to the types that our checkpointer may read.
"""

import os
from uuid import UUID

import pytest
from langgraph.store.memory import InMemoryStore

from kvstore.contrib.langgraph import KVStoreCache, KVStoreSaver

assert os.environ["LANGGRAPH_STRICT_MSGPACK"] == "true"


FIXTURES = {"cache", "sync_checkpointer", "async_checkpointer"}


def pytest_collection_modifyitems(config, items):
    """Leave out the tests that use no checkpointer and no cache of a fixture."""
    left_out = [item for item in items if not FIXTURES & set(item.fixturenames)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if FIXTURES & set(item.fixturenames)]


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
def deterministic_uuids(mocker):
    made = (UUID(f"00000000-0000-4000-8000-{number:012}", version=4) for number in range(10000))  # as the tests expect
    return mocker.patch("uuid.uuid4", side_effect=made)


@pytest.fixture(params=["sync", "async", "exit"])
def durability(request):
    return request.param


@pytest.fixture
def cache(tmp_path):
    made = KVStoreCache(tmp_path / "cache.db", sync="off")
    yield made
    made.close()


@pytest.fixture
def sync_store():
    return InMemoryStore()


@pytest.fixture
def async_store():
    return InMemoryStore()


@pytest.fixture
def sync_checkpointer(tmp_path):
    with KVStoreSaver(tmp_path / "checkpoints.db", sync="off") as made:
        yield made


@pytest.fixture
async def async_checkpointer(tmp_path):
    async with KVStoreSaver(tmp_path / "checkpoints.db", sync="off") as made:
        yield made
