"""Fixtures for the tests of kvstore.snkv. The package snkv is not needed here."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvstore.snkv import KVStore


@pytest.fixture
def file(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if os.environ.get("KVSTORE_TEST_REMOTE") == "1":
        url: str = request.getfixturevalue("url")
        return url
    return str(tmp_path / "test.db")


@pytest.fixture
def db(file: str) -> Iterator[KVStore]:
    with KVStore(file) as store:
        yield store
