"""All or nothing: transactions, snapshots, and two handles on one file."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from helpers import Clock

import kvstore


@pytest.fixture
def two(path: Path, clock: Clock, db: kvstore.Store) -> Iterator[kvstore.Store]:
    """A second handle on the same file."""
    with kvstore.open(path, busy_timeout=0, sync="off") as store:
        store.set_clock(clock)
        yield store


def test_transaction_commits_at_end_of_block(db: kvstore.Store, two: kvstore.Store) -> None:
    with db.transaction():
        db["a"] = b"1"
        assert "a" not in two
    assert two["a"] == b"1"


def test_exception_rolls_back_and_propagates(db: kvstore.Store) -> None:
    db["a"] = b"old"
    with pytest.raises(ZeroDivisionError):
        with db.transaction():
            db["a"] = b"new"
            db.put("b", b"", ttl=5)
            1 / 0
    assert dict(db.items()) == {b"a": b"old"}


@pytest.mark.parametrize("exception", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_base_exception_rolls_back_too(db: kvstore.Store, exception: type[BaseException]) -> None:
    with pytest.raises(exception):
        with db.transaction():
            db["a"] = b"1"
            raise exception
    assert len(db) == 0
    with db.transaction():
        db["b"] = b"1"


def test_transaction_covers_all_families(db: kvstore.Store) -> None:
    other = db.family("other", create=True)
    with pytest.raises(RuntimeError):
        with db.transaction():
            db["a"] = b"1"
            other["a"] = b"1"
            raise RuntimeError
    assert len(db) == len(other) == 0


def test_reads_in_a_transaction_see_its_own_writes(db: kvstore.Store) -> None:
    with db.transaction():
        db["a"] = b"1"
        assert db["a"] == b"1"
        assert list(db) == [b"a"]
        assert len(db) == 1


def test_second_transaction_is_refused_and_first_continues(db: kvstore.Store) -> None:
    with db.transaction():
        db["a"] = b"1"
        with pytest.raises(kvstore.Error):
            with db.transaction():
                pass
        db["b"] = b"1"
    assert len(db) == 2


@pytest.mark.files
def test_write_during_transaction_of_other_handle_is_busy(db: kvstore.Store, two: kvstore.Store) -> None:
    with db.transaction():
        db["a"] = b"1"
        with pytest.raises(kvstore.BusyError):
            two["b"] = b"1"
        with pytest.raises(kvstore.BusyError):
            with two.transaction():
                pass
    two["b"] = b"1"
    assert len(db) == 2


def test_read_transaction_is_a_stable_snapshot(db: kvstore.Store, two: kvstore.Store) -> None:
    db["a"] = b"1"
    with two.transaction(write=False):
        assert two["a"] == b"1"
        db["a"] = b"2"
        db["b"] = b"2"
        assert two["a"] == b"1"
        assert list(two) == [b"a"]
    assert two["a"] == b"2"


def test_write_in_a_read_transaction_is_refused(db: kvstore.Store) -> None:
    with db.transaction(write=False):
        with pytest.raises(kvstore.ReadOnlyError):
            db["a"] = b"1"
    assert len(db) == 0
    db["a"] = b"1"


def test_transaction_can_be_rolled_back_explicitly(db: kvstore.Store) -> None:
    with db.transaction() as tx:
        db["a"] = b"1"
        assert tx.active
        tx.rollback()
        assert not tx.active
        with pytest.raises(kvstore.Error):
            tx.commit()
        db["b"] = b"outside"
    assert list(db) == [b"b"]


def test_transaction_can_be_committed_explicitly(db: kvstore.Store, two: kvstore.Store) -> None:
    with pytest.raises(RuntimeError):
        with db.transaction() as tx:
            db["a"] = b"1"
            tx.commit()
            assert two["a"] == b"1"
            raise RuntimeError
    assert list(db) == [b"a"]


def test_transaction_outside_a_block_cannot_be_ended(db: kvstore.Store) -> None:
    for end in (db.transaction().commit, db.transaction().rollback):
        with pytest.raises(kvstore.Error):
            end()


def test_transaction_can_only_be_ended_by_its_thread(db: kvstore.Store) -> None:
    import threading

    caught: list[BaseException] = []
    with db.transaction() as tx:
        db["a"] = b"1"

        def end() -> None:
            try:
                tx.commit()
            except kvstore.Error as error:
                caught.append(error)

        thread = threading.Thread(target=end)
        thread.start()
        thread.join()
    assert len(caught) == 1
    assert db["a"] == b"1"

def test_ttl_changes_are_rolled_back(db: kvstore.Store) -> None:
    db.put("a", b"1", ttl=10)
    with pytest.raises(RuntimeError):
        with db.transaction():
            db.persist("a")
            db.put("b", b"2", ttl=5)
            raise RuntimeError
    assert db.ttl("a") == 10.0
    assert "b" not in db
    assert db.next_expiry() == db.expires_at("a")


def test_failed_call_does_not_end_transaction(db: kvstore.Store) -> None:
    with db.transaction():
        db["a"] = b"1"
        with pytest.raises(KeyError):
            db["missing"]
        with pytest.raises(ValueError):
            db[""] = b"1"
        db["b"] = b"1"
    assert len(db) == 2


def test_closing_the_store_rolls_back(path: Path) -> None:
    store = kvstore.open(path)
    transaction = store.transaction()
    transaction.__enter__()
    store["a"] = b"1"
    store.close()
    with pytest.raises(kvstore.MisuseError):
        transaction.__exit__(None, None, None)
    with kvstore.open(path) as again:
        assert len(again) == 0


def test_exception_in_block_is_raised_despite_closed_store(path: Path) -> None:
    store = kvstore.open(path)
    with pytest.raises(ZeroDivisionError):
        with store.transaction():
            store.close()
            1 / 0


def test_transaction_object_is_single_use_or_restarts(db: kvstore.Store) -> None:
    transaction = db.transaction()
    with transaction:
        db["a"] = b"1"
    try:
        with transaction:
            db["b"] = b"1"
    except (kvstore.Error, RuntimeError):
        assert "b" not in db
    else:
        assert "b" in db


def test_unentered_transaction_object_begins_nothing(db: kvstore.Store, two: kvstore.Store) -> None:
    transaction = db.transaction()
    two["a"] = b"1"
    del transaction
    with db.transaction():
        db["b"] = b"1"
    assert len(two) == 2


def test_iteration_in_transaction_sees_its_writes(db: kvstore.Store) -> None:
    db.put_many({f"{n}": b"" for n in range(9)})
    with db.transaction():
        for key in db:
            del db[key]
        assert list(db) == []


def test_iterator_survives_end_of_its_transaction(db: kvstore.Store) -> None:
    db.put_many({f"{n}": b"" for n in range(9)})
    with db.transaction():
        keys = iter(db)
        assert next(keys) == b"0"
    try:
        assert list(keys) == [b"%d" % n for n in range(1, 9)]
    except kvstore.Error:
        pass


def test_purge_in_a_transaction_is_rolled_back(db: kvstore.Store, clock: Clock) -> None:
    db.put("a", b"", ttl=1)
    clock.advance(1)
    with pytest.raises(RuntimeError):
        with db.transaction():
            assert db.purge_expired() == 1
            raise RuntimeError
    assert db.count(expired=True) == 1


def test_rollback_removes_families_created_in_transaction(db: kvstore.Store) -> None:
    with pytest.raises(RuntimeError):
        with db.transaction():
            family = db.family("new", create=True)
            family["a"] = b"1"
            raise RuntimeError
    assert "new" not in db.families()
    with pytest.raises(kvstore.Error):
        family["a"]


def test_snapshot_is_consistent(db: kvstore.Store, two: kvstore.Store) -> None:
    db["a"] = b"1"
    with db.snapshot() as snapshot:
        two["a"] = b"2"
        two["b"] = b"2"
        assert snapshot.active
        assert db["a"] == b"1"
        assert list(db) == [b"a"]
    assert db["a"] == b"2"


def test_snapshot_refuses_writes(db: kvstore.Store) -> None:
    with db.snapshot():
        with pytest.raises(kvstore.ReadOnlyError):
            db["a"] = b"1"
    assert len(db) == 0


def begun(db: kvstore.Store) -> Iterator[None]:
    with db.transaction():
        db["in"] = b"1"
        yield


@pytest.mark.parametrize("keep", [True, False], ids=["kept", "gone"])
def test_block_left_in_other_thread_raises_and_rolls_back(db: kvstore.Store, two: kvstore.Store, keep: bool) -> None:
    block = begun(db)
    next(block)
    with ThreadPoolExecutor(1) as another:
        with pytest.raises(kvstore.Error, match="was rolled back because its block was left in another thread"):
            another.submit(next, block, None).result()
        if not keep:
            del block
        two["two"] = b"1"
        assert "in" not in db and "in" not in another.submit(lambda: dict(db.items())).result()
        db["after"] = b"1"
        assert two["after"] == b"1"
        for write in (lambda: db.put("n", b"1"), lambda: another.submit(db.put, "n", b"2").result()):
            with db.transaction(write=False):  # a new one
                pass
            write()
    with db.transaction():
        db["in"] = b"2"
    assert two["in"] == b"2"


def test_exception_leaving_block_in_other_thread_is_raised(db: kvstore.Store, two: kvstore.Store) -> None:
    block = begun(db)
    next(block)

    def leave() -> None:
        with pytest.raises(ZeroDivisionError):
            block.throw(ZeroDivisionError)  # type: ignore[attr-defined]

    with ThreadPoolExecutor(1) as another:
        another.submit(leave).result()
    two["two"] = b"1"
    assert "in" not in db


def test_block_collected_in_other_thread_is_rolled_back(db: kvstore.Store, two: kvstore.Store) -> None:
    blocks = [begun(db)]
    next(blocks[0])
    with ThreadPoolExecutor(1) as another:
        another.submit(blocks.clear).result()
    db["after"] = b"1"
    assert dict(two.items()) == {b"after": b"1"}


def test_waiter_proceeds_after_block_left_in_other_thread() -> None:
    with kvstore.open(":memory:") as db, ThreadPoolExecutor(1) as first, ThreadPoolExecutor(1) as second:
        block = begun(db)
        first.submit(next, block).result()
        began = threading.Event()

        def wait() -> bool:
            began.set()
            with db.transaction():
                return "in" in db

        found = second.submit(wait)
        assert began.wait(60)
        with pytest.raises(kvstore.Error, match="rolled back"):
            next(block)
        assert found.result(60) is False
        with db.transaction():
            pass


def test_explicit_commit_in_other_thread_raises_without_effect(db: kvstore.Store, two: kvstore.Store) -> None:
    with db.transaction() as tx, ThreadPoolExecutor(1) as another:
        db["in"] = b"1"
        for end in (tx.commit, tx.rollback):
            with pytest.raises(kvstore.Error, match="end it in the thread that began it"):
                another.submit(end).result()
        assert tx.active
    assert two["in"] == b"1"
