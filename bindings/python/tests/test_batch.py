"""Batches: collected writes, committed together or not at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import START_S

import kvstore


def test_batch_is_committed_at_end_of_block(db: kvstore.Store) -> None:
    with db.batch() as batch:
        batch.put("a", b"1")
        batch.put("b", b"2", ttl=5)
        assert len(db) == 0
    assert dict(db.items()) == {b"a": b"1", b"b": b"2"}
    assert (db.ttl("a"), db.ttl("b")) == (None, 5.0)


def test_batch_deletes_and_a_missing_key_is_no_error(db: kvstore.Store) -> None:
    db["a"] = b"1"
    with db.batch() as batch:
        batch.delete("a")
        batch.delete("missing")
    assert len(db) == 0


def test_last_write_of_a_key_in_a_batch_wins(db: kvstore.Store) -> None:
    with db.batch() as batch:
        batch.put("a", b"1")
        batch.delete("a")
        batch.put("a", b"2")
    assert db["a"] == b"2"


def test_exception_in_block_discards_batch(db: kvstore.Store) -> None:
    with pytest.raises(ZeroDivisionError):
        with db.batch() as batch:
            batch.put("a", b"1")
            1 / 0
    assert len(db) == 0


def test_batch_length_counts_its_writes(db: kvstore.Store) -> None:
    with db.batch() as batch:
        assert len(batch) == 0
        batch.put("a", b"1")
        batch.delete("b")
        assert len(batch) == 2
        batch.clear()
        assert len(batch) == 0
    assert len(db) == 0


def test_batch_copies_its_arguments(db: kvstore.Store) -> None:
    key, value = bytearray(b"key"), bytearray(b"value")
    with db.batch() as batch:
        batch.put(key, value)
        key[:] = b"xxx"
        value[:] = b"yyyyy"
    assert dict(db.items()) == {b"key": b"value"}


def test_batch_of_a_family_writes_to_it(db: kvstore.Store) -> None:
    other = db.family("other", create=True)
    with other.batch() as batch:
        batch.put("a", b"1")
    assert dict(other.items()) == {b"a": b"1"}
    assert len(db) == 0


def test_batch_in_a_transaction_is_rolled_back_with_it(db: kvstore.Store) -> None:
    with pytest.raises(RuntimeError):
        with db.transaction():
            with db.batch() as batch:
                batch.put("a", b"1")
            assert db["a"] == b"1"
            raise RuntimeError
    assert len(db) == 0


def test_batch_put_accepts_expiry_time(db: kvstore.Store) -> None:
    with db.batch() as batch:
        batch.put("a", b"1", expires_at=START_S + 9)
    assert db.ttl("a") == 9.0


@pytest.mark.parametrize(
    "call, error",
    [
        (lambda b: b.put(1, b""), TypeError),
        (lambda b: b.put("a", 1), TypeError),
        (lambda b: b.put("", b""), ValueError),
        (lambda b: b.put("a", b"", ttl="x"), TypeError),
        (lambda b: b.put("a", b"", ttl=float("nan")), ValueError),
        (lambda b: b.delete(None), TypeError),
        (lambda b: b.delete(b""), ValueError),
        (lambda b: b.put("a" * 65537, b""), ValueError),
    ],
)
def test_invalid_argument_adds_nothing(db: kvstore.Store, call: Callable[[Any], Any], error: type[Exception]) -> None:
    with db.batch() as batch:
        batch.put("good", b"1")
        with pytest.raises(error):
            call(batch)
        assert len(batch) == 1
    assert list(db) == [b"good"]


def test_batch_of_a_closed_store_raises_misuse_error(path: Path) -> None:
    store = kvstore.open(path)
    batch = store.batch()
    batch.put("a", b"1")
    store.close()
    with pytest.raises(kvstore.MisuseError):
        batch.put("b", b"1")
    with pytest.raises(kvstore.MisuseError):
        batch.commit()


@pytest.mark.files
def test_batch_blocked_by_lock_can_be_committed_later(db: kvstore.Store, path: Path) -> None:
    batch = db.batch()
    batch.put("a", b"1")
    with kvstore.open(path, busy_timeout=0) as other:
        with other.transaction():
            with pytest.raises(kvstore.BusyError):
                batch.commit()
    batch.commit()
    assert db["a"] == b"1"


def test_unreferenced_batch_writes_nothing(db: kvstore.Store) -> None:
    batch = db.batch()
    batch.put("a", b"1")
    del batch
    assert len(db) == 0


def test_batch_may_write_to_several_families(db: kvstore.Store) -> None:
    other = db.family("other", create=True, default_ttl=60)
    other["gone"] = b""
    with db.batch() as batch:
        batch.put("a", b"1")
        batch.put("b", b"2", family=other)
        batch.put("c", b"3", ttl=5, family=other)
        batch.delete("gone", family=other)
    assert list(db.items()) == [(b"a", b"1")]
    assert list(other.items()) == [(b"b", b"2"), (b"c", b"3")]
    assert (other.ttl("b"), other.ttl("c")) == (60.0, 5.0)


def test_family_of_another_store_is_refused(db: kvstore.Store, tmp_path: Path) -> None:
    with kvstore.open(tmp_path / "other.db") as stranger:
        with db.batch() as batch:
            with pytest.raises((ValueError, kvstore.Error)):
                batch.put("a", b"1", ttl=5, family=stranger)
            with pytest.raises((TypeError, ValueError, AttributeError)):
                batch.put("a", b"1", family="default")  # type: ignore[arg-type, unused-ignore]
    assert len(db) == 0


def test_batch_with_dropped_family_writes_nothing(db: kvstore.Store) -> None:
    other = db.family("other", create=True)
    batch = db.batch()
    batch.put("a", b"1")
    batch.put("b", b"1", family=other)
    db.drop_family("other")
    with pytest.raises((kvstore.Error, ValueError)):
        batch.commit()
    assert len(db) == 0


def test_closed_batch_raises_misuse_error_and_closes_again(db: kvstore.Store) -> None:
    batch = db.batch()
    batch.put("a", b"1")
    batch.close()
    batch.close()
    for call in (lambda: batch.put("a", b""), lambda: batch.delete("a"), lambda: len(batch), batch.clear, batch.commit):
        with pytest.raises(kvstore.MisuseError):
            call()
    assert len(db) == 0


def test_batch_is_reusable_after_commit(db: kvstore.Store) -> None:
    batch = db.batch()
    for number in range(3):
        batch.put(f"{number}", b"")
        batch.commit()
        assert len(batch) == 0
    assert len(db) == 3
