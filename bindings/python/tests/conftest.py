"""Fixtures for all tests: a path, a clock that stands still, a store that uses it. No helpers: see helpers.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import Clock

import kvstore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "test.db"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def db(path: Path, clock: Clock) -> Iterator[kvstore.Store]:
    with kvstore.open(path, busy_timeout=0, sync="off") as store:
        store.set_clock(clock)
        yield store
