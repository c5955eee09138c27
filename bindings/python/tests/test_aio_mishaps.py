"""kvstore.aio in error cases: dropped families, cancelled backups, locked files."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Optional

import pytest
from helpers import assert_clean, run_python

import kvstore
import kvstore.aio


def run(path: Optional[Path], work: Callable[[kvstore.aio.Store], Awaitable[Any]], **options: Any) -> Any:
    """Return the result of ``work`` on a store that is opened before and closed afterwards."""

    async def main() -> Any:
        async with kvstore.aio.open(path, **{"sync": "off", **options}) as db:
            return await asyncio.wait_for(work(db), 60)

    return asyncio.run(main())


def calls_of(db: kvstore.aio.Store, family: kvstore.aio.Family) -> dict[str, Callable[[], Awaitable[Any]]]:
    """A call of each kind on a family."""

    async def keys() -> list[bytes]:
        return [key async for key in family.keys()]

    async def expiring() -> list[Any]:
        return [row async for row in family.expiring()]

    async def batch(of: kvstore.aio.Family) -> None:
        async with of.batch() as batch:
            batch.put("k", b"v", family=family)

    return {
        "get": lambda: family.get("k"),
        "get_many": lambda: family.get_many(["k"]),
        "contains": lambda: family.contains("k"),
        "count": family.count,
        "put": lambda: family.put("k", b"v", ttl=60),
        "put_many": lambda: family.put_many({"k": b"v"}),
        "incr": lambda: family.incr("n"),
        "delete_range": lambda: family.delete_range(prefix="a"),
        "keys": keys,
        "expiring": expiring,
        "batch of the family": lambda: batch(family),
        "batch of the store": lambda: batch(db),
        "default_ttl": family.default_ttl,
        "set_default_ttl": lambda: family.set_default_ttl(None),
        "write_tracking": family.write_tracking,
        "set_write_tracking": lambda: family.set_write_tracking(False),
        "purge_expired": family.purge_expired,
        "next_expiry": family.next_expiry,
    }


def drop_by(who: str, db: kvstore.aio.Store, path: Path) -> Awaitable[None]:
    if who == "itself":
        return db.drop_family("f")

    async def drop() -> None:
        with kvstore.open(path) as other:
            other.drop_family("f")

    return drop()


@pytest.mark.parametrize("who", ["itself", "another"])
def test_dropped_family_raises_same_error_in_all_calls(path: Path, who: str) -> None:
    async def work(db: kvstore.aio.Store) -> None:
        for name in calls_of(db, await db.family("f", create=True)):
            family = await db.family("f", create=True)
            call = calls_of(db, family)[name]
            await call()  # there is a handle
            await drop_by(who, db, path)
            with pytest.raises(kvstore.NotFoundError, match="^family 'f' does not exist: give create=True to create it$"):
                await call()

    run(path, work)


def test_family_recreated_elsewhere_is_used_by_all_calls(path: Path) -> None:
    async def work(db: kvstore.aio.Store) -> None:
        family = await db.family("f", create=True)
        for name, call in calls_of(db, family).items():
            await call()
            with kvstore.open(path) as other:
                other.drop_family("f")
                other.family("f", create=True)["new"] = b"1"
            await call()
            assert await family.get("new") == b"1", name

    run(path, work)


def test_other_refusals_keep_their_own_error(path: Path) -> None:
    async def work(db: kvstore.aio.Store) -> None:
        family = await db.family("f", create=True)
        await family.put("text", b"no number")
        with pytest.raises(kvstore.InvalidError, match="decimal integer"):
            await family.incr("text")
        with pytest.raises(kvstore.Error, match="track"):
            await family.sweep(1)

    run(path, work)


def test_memoize_refuses_plain_function_and_transaction_in_asyncio(path: Path) -> None:
    async def function() -> int:
        return 1

    async def work(db: Any) -> None:
        with pytest.raises(TypeError, match="async def functions only"):
            kvstore.memoize(db, ttl=5)(len)
        async with db.transaction() as tx:
            with pytest.raises(TypeError, match="not a transaction"):
                kvstore.memoize(tx, ttl=5)(function)

    run(path, work)


# Backups


def test_backup_cancelled_at_any_time_leaves_no_file(path: Path, tmp_path: Path) -> None:
    async def work(db: kvstore.aio.Store) -> None:
        await db.put("k", b"v")
        copy, whole = tmp_path / "copy.db", 0
        for number in range(60):
            task = asyncio.ensure_future(db.backup(copy))
            await asyncio.sleep(0.0003 * number)
            if number % 2:
                while not copy.exists() and not task.done():  # noqa: ASYNC110 # it has just become whole
                    await asyncio.sleep(0)
            task.cancel()
            try:
                await task
                whole += 1
                copy.unlink()
            except asyncio.CancelledError:
                assert not copy.exists()  # and the path is free
        await db.backup(copy)

    run(path, work)


def test_backup_cancelled_after_completion_leaves_no_file(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    async def work(db: kvstore.aio.Store) -> None:
        await db.put("k", b"v")
        task = asyncio.ensure_future(db.backup("copy.db"))
        await asyncio.sleep(0)
        while not Path("copy.db").exists():
            time.sleep(0.001)  # the loop does not learn of its end
        time.sleep(0.05)
        task.cancel()
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        with pytest.raises(asyncio.CancelledError):
            await task

    run(path, work)
    assert not (tmp_path / "copy.db").exists()


def test_backup_cancelled_while_waiting_for_reader_never_begins(tmp_path: Path) -> None:
    async def work(db: kvstore.aio.Store) -> None:
        begun, go = threading.Event(), threading.Event()

        def progress(remaining: int, total: int) -> None:
            begun.set()
            go.wait(60)

        first = asyncio.ensure_future(db.backup(tmp_path / "first.db", progress))
        while not begun.is_set():
            await asyncio.sleep(0.001)
        second = asyncio.ensure_future(db.backup(tmp_path / "second.db"))
        await asyncio.sleep(0.01)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second  # does not wait for the first one
        go.set()
        await first

    run(None, work)
    assert (tmp_path / "first.db").exists() and not (tmp_path / "second.db").exists()


# Transactions


@pytest.mark.parametrize("write", [False, True])
def test_transaction_object_is_used_by_one_block_at_a_time(path: Path, write: bool) -> None:
    async def work(db: kvstore.aio.Store) -> None:
        tx = db.transaction(write)

        async def use() -> None:
            async with tx:
                await asyncio.sleep(0)
                assert await tx.get("k") is None

        results = await asyncio.gather(use(), use(), return_exceptions=True)
        assert results[0] is None and isinstance(results[1], kvstore.Error), results
        assert str(results[1]) == "the transaction is already open: create one for each async with block"
        await use()  # and one after the other
        await asyncio.gather(*(asyncio.wait_for(db.get("k"), 10) for _ in range(20)))

    run(path, work)


@pytest.mark.files
def test_transaction_that_failed_to_begin_can_be_retried(path: Path) -> None:
    async def work(db: kvstore.aio.Store) -> None:
        tx = db.transaction()
        with kvstore.open(path) as other:
            await asyncio.to_thread(begin_in, other)
            with pytest.raises(kvstore.BusyError):
                async with tx:
                    raise AssertionError
            assert not tx.active
        async with tx:
            await tx.put("k", b"v")
        assert await db.get("k") == b"v"

    def begin_in(store: kvstore.Store) -> None:
        kept.append(store.transaction())
        kept[0].__enter__()

    kept: list[kvstore.Transaction] = []
    run(path, work, busy_timeout=0.05)


# Files locked by another process


@pytest.mark.parametrize("options", ["", ", exclusive=True"])
@pytest.mark.files
def test_concurrent_calls_wait_once_for_locked_file(path: Path, options: str) -> None:
    code = f"""
import asyncio, os, sys, time
import kvstore.aio
db = kvstore.aio.open(sys.argv[1], busy_timeout=2{options})
parent = kvstore.open(sys.argv[1], exclusive=True)
parent["k"] = b"v"
from_child, to_parent = os.pipe()
from_parent, to_child = os.pipe()

async def child():
    before = time.monotonic()
    calls = [call for _ in range(3) for call in (db.get("k"), db.put("k", b"v"))]
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert len(results) == 6 and all(isinstance(result, kvstore.BusyError) for result in results), results
    assert time.monotonic() - before < 3.5
    os.write(to_parent, b"x")
    os.read(from_parent, 1)  # now no process has it open
    assert await db.get("k") == b"v"
    await db.close()

pid = os.fork()
if pid == 0:
    try:
        asyncio.run(child())
        os._exit(7)
    finally:
        os._exit(1)
os.close(to_parent)
os.read(from_child, 1)
parent.close()
os.write(to_child, b"x")
assert os.waitpid(pid, 0)[1] == 7 << 8
print("done")
"""
    assert_clean(run_python(code, str(path)), "done")


@pytest.mark.files
def test_concurrent_threads_wait_once_for_locked_file(path: Path) -> None:
    code = """
import os, sys, threading, time
import kvstore
parent = kvstore.open(sys.argv[1], exclusive=True, busy_timeout=2)
parent["k"] = b"v"
pid = os.fork()
if pid == 0:
    busy = []

    def get():
        try:
            parent["k"]
        except kvstore.BusyError:
            busy.append(True)

    before = time.monotonic()
    threads = [threading.Thread(target=get) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os._exit(7 if len(busy) == 4 and time.monotonic() - before < 3.5 else 1)
assert os.waitpid(pid, 0)[1] == 7 << 8
print("done")
"""
    assert_clean(run_python(code, str(path)), "done")
