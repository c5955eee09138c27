"""Stores with a size limit: ``Store.limit``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kvstore


@pytest.mark.parametrize("policy", ["soonest", "oldest", "least-used"])
def test_keys_are_evicted_in_policy_order(policy: str) -> None:
    with kvstore.open(":memory:") as db:
        db.limit(256 << 10, policy)
        assert db.get_limit() == kvstore.Limit(256 << 10, policy)
        for n in range(2000):
            db.put(f"key {n}", b"v" * 500, ttl=1000 + n)
        stats = db.stats()
        assert 0 < stats.size_bytes <= 256 << 10
        assert len(db) == 2000 - stats.evicted < 1000
        assert "key 0" not in db and "key 1999" in db


def test_full_store_raises_without_effect(tmp_path: Path) -> None:
    with kvstore.open(tmp_path / "app.db") as db:
        db["small"] = b"1"
        db.limit(256 << 10)
        with pytest.raises(kvstore.FullError, match=r"size limit of 262144 bytes.*limit\(\)$"):
            db["large"] = b"v" * 300_000
        with db.transaction():
            db["in it"] = b"2"
            with pytest.raises(kvstore.FullError):
                db["large"] = b"v" * 300_000
        assert sorted(db) == [b"in it", b"small"]
        db.limit(None)
        assert db.get_limit() == (0, "none")
        db["large"] = b"v" * 300_000
        with pytest.raises(kvstore.FullError):
            db.limit(256 << 10)
        assert db.get_limit().max_bytes == 0


def test_limit_is_stored_in_file(tmp_path: Path) -> None:
    with kvstore.open(tmp_path / "app.db") as db:
        db.limit(1_000_000, policy="OLDEST")
    with kvstore.open(tmp_path / "app.db", read_only=True) as db:
        assert db.get_limit() == (1_000_000, "oldest")
        with pytest.raises(kvstore.ReadOnlyError):
            db.limit(0)


def test_new_limit_keeps_policy_unless_given() -> None:
    with kvstore.open(":memory:") as db:
        db.limit(1_000_000)
        assert db.get_limit() == (1_000_000, "none")
        db.limit(1_000_000, "soonest")
        db.limit(2_000_000)
        assert db.get_limit() == (2_000_000, "soonest")
        db.limit(2_000_000, "none")
        assert db.get_limit() == (2_000_000, "none")
        db.limit(2_000_000, "oldest")
        db.limit(None)
        db.limit(2_000_000)
        assert db.get_limit() == (2_000_000, "none")


@pytest.mark.parametrize(
    ("max_bytes", "policy", "error"),
    [
        (1000, "none", ValueError),
        (-1, "none", ValueError),
        (1 << 63, "none", ValueError),
        (1 << 20, "newest", ValueError),
        (1.5, "none", TypeError),
        ("1", "none", TypeError),
        (1 << 20, 1, TypeError),
    ],
)
def test_invalid_limit_is_refused(max_bytes: Any, policy: Any, error: type[Exception]) -> None:
    with kvstore.open(":memory:") as db:
        with pytest.raises(error):
            db.limit(max_bytes, policy)
        assert db.get_limit() == (0, "none")
