"""Calls on many keys: in one transaction, all or nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kvstore


def test_set_many_is_alias_of_put_many(db: kvstore.Store) -> None:
    assert db.set_many({"a": b"1", "b": "2"}, ttl=5) == 2
    assert db.set_many([("c", b"3")], expires_at=2e9) == 1
    assert (db["b"], db.ttl("b"), db.expires_at("c")) == (b"2", 5.0, 2e9)


def test_delete_many_counts_existing_keys(db: kvstore.Store) -> None:
    db.update(a=b"1", b=b"2", c=b"3")
    assert db.delete_many(["a", b"b", bytearray(b"c"), "missing", "a"]) == 3
    assert db.delete_many(iter(["a"])) == db.delete_many([]) == 0
    assert len(db) == 0


def test_pop_many_returns_existing_values_by_given_keys(db: kvstore.Store) -> None:
    db.update(a=b"1", b=b"2", c=b"3")
    assert db.pop_many(["a", b"b", "missing", "a"]) == {"a": b"1", b"b": b"2"}
    assert list(db) == [b"c"]
    assert db.pop_many([]) == {}


@pytest.mark.parametrize("name", ["get_many", "delete_many", "pop_many"])
def test_single_key_is_refused_as_iterable_of_keys(db: kvstore.Store, name: str) -> None:
    db.update(a=b"1", b=b"2")
    for one in ("ab", b"ab"):
        with pytest.raises(TypeError, match=rf"keys of {name}\(\) must be an iterable of keys"):
            getattr(db, name)(one)
    assert len(db) == 2


@pytest.mark.parametrize("name", ["delete_many", "pop_many"])
def test_invalid_key_in_list_changes_nothing(db: kvstore.Store, name: str) -> None:
    db.update(a=b"1", b=b"2")
    for wrong, error in ((5, TypeError), ("", ValueError), (b"x" * 70_000, ValueError)):
        with pytest.raises(error):
            getattr(db, name)(["a", wrong, "b"])
    assert len(db) == 2


@pytest.mark.parametrize("name", ["delete_many", "pop_many"])
def test_many_key_calls_are_part_of_transaction(db: kvstore.Store, name: str) -> None:
    db.update(a=b"1", b=b"2")
    with pytest.raises(ZeroDivisionError):
        with db.transaction():
            assert len(db) == 2
            getattr(db, name)(["a", "b"])
            assert len(db) == 0
            1 / 0
    assert len(db) == 2


@pytest.mark.parametrize("name", ["delete_many", "pop_many"])
def test_many_key_calls_are_one_commit(path: Path, name: str) -> None:
    with kvstore.open(path) as db:
        db.put_many({f"{n}": b"v" for n in range(100)})
        before = db.stats().wal_commits
        getattr(db, name)([f"{n}" for n in range(100)])
        assert db.stats().wal_commits == before + 1
        assert len(db) == 0


def test_has_key_equals_in(db: kvstore.Store) -> None:
    db["a"] = b"1"
    assert db.has_key("a") and not db.has_key("b")
    wrong: Any = 5
    with pytest.raises(TypeError):
        db.has_key(wrong)


def test_stats_count_hits_and_misses(db: kvstore.Store) -> None:
    db["a"] = b"1"
    for key in ("a", "a", "a", "b"):
        db.get(key)
    db.get_many(["a", "c", "d"])
    stats = db.stats()
    assert (stats.hits, stats.misses) == (4, 3)


@pytest.mark.parametrize(
    "wrong, error, message",
    [
        (["abc"], TypeError, "item 0 must be .* not str"),
        (["ab"], TypeError, "item 0 must be .* not str"),
        ([("a", "1"), b"ab"], TypeError, "item 1 must be .* not bytes"),
        ([("a", "1"), ("b",)], ValueError, "item 1 must be .* has 1 elements"),
        ([("a", "1", "2")], ValueError, "item 0 must be .* has 3 elements"),
        ([5], TypeError, "item 0 must be .* not int"),
        ("ab", TypeError, "not str"),
        (5, TypeError, "not int"),
    ],
)
def test_invalid_pairs_are_reported(db: kvstore.Store, wrong: Any, error: type[Exception], message: str) -> None:
    for write in (db.put_many, db.update):
        with pytest.raises(error, match=rf"\(key, value\) pair.* {message}$|^{message}$"):
            write(wrong)
    assert len(db) == 0


def test_pairs_may_be_lists(db: kvstore.Store) -> None:
    assert db.put_many([["a", "1"], ("b", "2")]) == 2  # type: ignore[list-item]
