"""kvstore.aio: coroutines over a pool of handles; transactions of tasks, cancellation, closing, forks, loops."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Optional

import pytest
from helpers import Clock, assert_clean, run_python

import kvstore
import kvstore.aio

Work = Callable[[kvstore.aio.Store], Awaitable[Any]]


def run(path: Optional[Path], work: Work, **options: Any) -> Any:
    """Return the result of ``work`` on a store that is opened before and closed afterwards."""

    async def main() -> Any:
        async with kvstore.aio.open(path, **{"sync": "off", **options}) as db:
            return await asyncio.wait_for(work(db), 60)

    return asyncio.run(main())


@pytest.fixture(params=["file", "memory"])
def where(request: pytest.FixtureRequest, path: Path) -> Optional[Path]:
    return path if request.param == "file" else None


def threads_end() -> None:
    """Wait until no worker thread is left."""
    until = time.monotonic() + 30
    while any(thread.name.startswith("kvstore-aio") for thread in threading.enumerate()):
        assert time.monotonic() < until
        time.sleep(0.001)


@contextlib.contextmanager
def lock_of_another_process(path: Path) -> Iterator[Callable[[], None]]:
    """Run a process that holds the write lock until the yielded function is called or the block ends."""
    code = """
import sys, kvstore
with kvstore.open(sys.argv[1]) as store, store.transaction():
    store["theirs"] = b"1"
    print("ready", flush=True)
    sys.stdin.readline()
"""
    child = subprocess.Popen([sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None and child.stdin is not None
    assert child.stdout.readline() == "ready\n"
    ended: list[bool] = []

    def end() -> None:
        if not ended:
            ended.append(True)
            child.communicate("\n", timeout=60)

    try:
        yield end
    finally:
        end()


# Names as in kvstore

ASYNC = kvstore.aio.Store
#: Names without an asynchronous counterpart, each with its replacement or the reason.
OTHER = {
    "close": "a family has no handle of its own",
    "closed": "a family has no handle of its own",
}


@pytest.mark.parametrize("name", [name for name in dir(kvstore.Family) if not name.startswith("_")])
def test_family_has_every_method_of_sync_family(name: str) -> None:
    assert hasattr(kvstore.aio.Family, name) or name in OTHER


@pytest.mark.parametrize("name", [name for name in dir(kvstore.Store) if not name.startswith("_")])
def test_store_has_every_method_of_sync_store(name: str) -> None:
    assert hasattr(kvstore.aio.Store, name)


@pytest.mark.parametrize("cls", [kvstore.aio.Store, kvstore.aio.Family, kvstore.aio.Transaction, kvstore.aio.Batch])
def test_every_public_method_is_documented(cls: type) -> None:
    assert cls.__doc__ and cls.__module__ == "kvstore.aio"
    for name in dir(cls):
        if not name.startswith("_"):
            assert getattr(cls, name).__doc__, f"{cls.__name__}.{name}"


def test_parameters_match_sync_methods() -> None:
    for name in ("put", "add", "delete", "incr", "get", "pop", "get_many", "put_many", "delete_range", "expire", "ttl", "sweep"):
        ours, theirs = (inspect.signature(getattr(cls, name)) for cls in (kvstore.aio.Family, kvstore.Family))
        assert list(ours.parameters) == list(theirs.parameters), name
        assert inspect.iscoroutinefunction(getattr(kvstore.aio.Family, name)), name


@pytest.mark.files  # its clock jumps, as no server's does
def test_every_call_works_once(where: Optional[Path]) -> None:
    async def work(db: kvstore.aio.Store) -> None:
        clock = Clock()
        await db.set_clock(clock)
        assert await db.put("a", b"1", ttl=60) and not await db.put("a", b"2", if_absent=True)
        assert (await db.get("a"), await db.get("b"), await db.get("b", 5), await db.contains("a")) == (b"1", None, 5, True)
        assert (await db.ttl("a"), await db.get_with_ttl("a")) == (60, (b"1", 60))
        assert await db.expire("a", 30) and await db.expires_at("a") == clock.now_s + 30
        assert await db.get_and_touch("a", 40) == b"1" and await db.get_and_touch("x", 40, "no") == "no"
        assert await db.next_expiry() == await db.next_expiry(all_families=True) == clock.now_s + 40
        assert [row async for row in db.expiring()] == [(b"a", clock.now_s + 40)]
        assert await db.touch("a", 20) and await db.persist("a") and await db.ttl("a") is None
        assert (await db.incr("n"), await db.incr("n", 5), await db.decr("n", 2)) == (1, 6, 4)
        assert await db.compare_and_swap("a", b"1", b"2") and not await db.compare_and_delete("a", b"1")
        assert await db.add("c", b"3") and not await db.add("c", b"4")
        assert await db.setdefault("c", b"5") == b"3" and await db.setdefault("d", b"5") == b"5"
        assert await db.put_many({"e": b"1", "f": b"2"}) == 2
        await db.update({"g": b"1"}, h=b"2")
        assert await db.get_many(["e", "h", "z"]) == {"e": b"1", "h": b"2"}
        assert (await db.pop("e"), await db.pop("e", None), await db.popitem()) == (b"1", None, (b"a", b"2"))
        with pytest.raises(kvstore.NotFoundError):
            await db.pop("e")
        assert await db.delete("f") and not await db.delete("f")
        assert [key async for key in db] == [key async for key in db.keys()] == [b"c", b"d", b"g", b"h", b"n"]
        assert [value async for value in db.values(limit=2)] == [b"3", b"5"]
        assert [pair async for pair in db.items(start="g", stop="n", reverse=True)] == [(b"h", b"2"), (b"g", b"1")]
        assert (await db.count(), await db.count(expired=True)) == (5, 5)
        assert await db.delete_range(prefix="c") == 1
        await db.put("x", b"1", ttl=1)
        await db.put("y", b"1", ttl=2)
        clock.advance(5)
        assert (await db.purge_step(1)).deleted == 1 and await db.purge_expired() == 1 and await db.purge_before(0) == 0
        family = await db.family("f", create=True, default_ttl=9, write_tracking=True)
        assert (family.name, await family.default_ttl(), await family.write_tracking()) == ("f", 9, True)
        await family.set_default_ttl(None)
        await family.put("k", b"v")
        assert await family.ttl("k") is None and await family.write_time("k") == clock.now_s
        clock.advance(10)
        assert await family.sweep(10) == 0 and await family.sweep(9) == 1
        await family.set_write_tracking(False)
        await family.put(kvstore.row_key("p", "1"), b"x")
        assert [row async for row in family.rows("p")] == [(b"1", b"x")]
        assert await db.families() == ["f"]
        await db.drop_family("f")
        with pytest.raises(kvstore.NotFoundError):
            await db.family("f")
        async with db.batch() as batch:
            batch.put("b1", b"1", ttl=5)
            batch.delete("d")
            assert len(batch) == 2
        assert (await db.ttl("b1"), await db.contains("d")) == (5, False)
        await db.clear()
        assert await db.count() == 0
        await db.integrity_check()
        assert await db.repair() == 0
        assert (await db.stats()).puts > 10
        await db.stats_reset()
        assert (await db.stats()).puts == 0
        await db.limit(10_000_000, "soonest")
        await db.limit(20_000_000)
        assert await db.get_limit() == (20_000_000, "soonest")
        await db.sync()
        await db.vacuum()
        await db.checkpoint()

    run(where, work)


def test_calls_on_many_keys_work(where: Optional[Path]) -> None:
    async def work(db: kvstore.aio.Store) -> None:
        assert await db.set_many([("a", b"1"), ("b", b"2"), ("c", b"3")]) == 3
        assert await db.pop_many(["a", "x"]) == {"a": b"1"} and not await db.has_key("a")
        assert await db.delete_many(iter(["b", "c", "x"])) == 2
        pairs: Any = ["ab"]
        for call in (
            db.get_many("ab"), db.delete_many("ab"), db.pop_many(b"ab"), db.delete_range(), db.put_many(pairs),
            db.put_many(pairs[0]),
        ):  # fmt: skip
            with pytest.raises(TypeError):
                await call
        for pairs in ([("a", "b", "c")], [["a"]], [("a", bytearray(b"b")), ()]):
            with pytest.raises(ValueError, match="must be a .key, value. pair"):
                await db.put_many(pairs)
        await db.put("a", b"1")
        with pytest.raises(ValueError, match="selects all keys"):
            await db.delete_range(prefix="")
        assert await db.count() == 1

    run(where, work)


def test_codecs_and_text_keys_work(where: Optional[Path]) -> None:
    async def work(db: Any) -> None:
        value = {"born": 1815}
        await db.put("ada", value)
        await db.update({"bob": [1]}, eve=None)
        assert (await db.get("ada"), await db.get("eve", 5), await db.setdefault("bob", 0)) == (value, None, [1])
        assert [pair async for pair in db.items()] == [("ada", value), ("bob", [1]), ("eve", None)]
        assert [key async for key in db.keys(reverse=True)] == ["eve", "bob", "ada"]
        await db.put_many({f"{n:05}": n for n in range(700)}, expires_at=2_000_000_000)
        assert [value async for value in db.values(prefix="0")] == list(range(700))
        assert [key async for key, _ in db.expiring()] == [f"{n:05}" for n in range(700)]
        plain = await db.family("f", create=True, codec=None, keys=bytes)
        same = await db.family("f")
        async with db.transaction() as tx:
            await (await tx.family("f")).put("k", [1])
            await tx.put("t", {"in": "tx"})
            async with tx.batch() as batch:
                batch.put("b", {"in": "batch"})
                batch.put("c", b"bytes", family=await tx.family("f", codec=None))
        assert (await plain.get("k"), await same.get("k"), await plain.get("c")) == (b"[1]", [1], b"bytes")
        assert (await db.get("t"), await db.get("b")) == ({"in": "tx"}, {"in": "batch"})
        assert [key async for key in plain] == [b"c", b"k"]

    run(where, work, codec=kvstore.JSON, keys=str)


def test_codec_receives_original_object(where: Optional[Path]) -> None:
    async def work(db: Any) -> None:
        await db.put("k", bytearray(b"mutable"))
        async with db.batch() as batch:
            batch.put("b", bytearray(b"mutable"))
        assert (await db.get("k"), await db.get("b")) == (bytearray(b"mutable"), bytearray(b"mutable"))
        assert type(await db.get("k")) is bytearray

    run(where, work, codec=kvstore.PICKLE)


def test_relative_path_is_resolved_at_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    async def main() -> None:
        db = await kvstore.aio.open("relative.db")
        await db.put("k", b"v")
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        assert await db.get("k") == b"v"  # a reader is opened only now
        await db.close()
        assert list(Path().iterdir()) == []

    asyncio.run(main())


def test_renamed_file_raises_store_io_error(tmp_path: Path) -> None:
    async def main() -> None:
        db = await kvstore.aio.open(tmp_path / "other.db")
        await db.put("k", b"v")
        (tmp_path / "other.db").rename(tmp_path / "moved.db")
        kvstore.open(tmp_path / "other.db").close()
        with pytest.raises(kvstore.StoreIOError, match="moved or replaced"):
            await db.get("k")
        await db.close()

    asyncio.run(main())


def test_backup_and_cleaner_work(path: Path, tmp_path: Path) -> None:
    async def work(db: kvstore.aio.Store) -> None:
        await db.put("a", b"1")
        steps: list[int] = []
        await db.backup(tmp_path / "copy.db", lambda remaining, total: steps.append(total))
        assert steps
        with kvstore.open(tmp_path / "copy.db") as copy:
            assert copy["a"] == b"1"
        await db.start_cleaner(0.001)
        await db.put("b", b"1", ttl=0.001)
        while await db.count(expired=True) > 1:
            await asyncio.sleep(0.001)
        await db.stop_cleaner()

    run(path, work)


def test_errors_match_sync_methods(where: Optional[Path]) -> None:
    async def work(db: kvstore.aio.Store) -> None:
        with pytest.raises(TypeError):
            await db.put(5, b"v")  # type: ignore[arg-type, unused-ignore]
        with pytest.raises(ValueError):
            await db.put("k", b"v", ttl=0)
        with pytest.raises(kvstore.NotFoundError):
            await db.ttl("k")
        with pytest.raises(TypeError):
            [key async for key in db.keys(limit="x")]  # type: ignore[arg-type, unused-ignore]
        with pytest.raises(kvstore.NotFoundError):
            await db.family("missing")
        assert (await db.stats()).puts == 0

    run(where, work)


def test_failed_open_raises_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        for bad in ({"path": tmp_path / "no" / "folder"}, {"path": tmp_path / "missing.db", "read_only": True}):
            with pytest.raises(kvstore.StoreIOError):
                await kvstore.aio.open(**bad)
        with pytest.raises(TypeError):
            await kvstore.aio.open(tmp_path / "x.db", no_such_option=1)

    asyncio.run(main())
    for readers in (0, -1):
        with pytest.raises(ValueError):
            kvstore.aio.open(None, readers=readers)
    with pytest.raises(TypeError):
        kvstore.aio.open(None, readers="4")  # type: ignore[arg-type, unused-ignore]


# Ranges


def test_iteration_returns_each_of_many_keys_once(where: Optional[Path]) -> None:
    async def work(db: kvstore.aio.Store) -> None:
        keys = [b"%05d" % n for n in range(3000)]
        await db.put_many({key: key * 2 for key in keys})
        assert [key async for key in db.keys()] == keys
        assert [key async for key in db.keys(reverse=True)] == keys[::-1]
        assert [pair async for pair in db.items(prefix="01", start="015")] == [(k, k * 2) for k in keys[1500:2000]]
        assert [pair async for pair in db.items(stop="01500", reverse=True, limit=700)] == [(k, k * 2) for k in keys[1499:799:-1]]
        for limit in (0, 1, 16, 17, 80, 81, 2999, 5000):
            assert [key async for key in db.keys(limit=limit)] == keys[:limit]
        async with db.batch() as batch:
            for n in range(700):
                batch.put(kvstore.row_key("p", b"%04d" % n), b"x")
        assert [part async for part, _ in db.rows("p")] == [b"%04d" % n for n in range(700)]
        assert [part async for part, _ in db.rows("p", start="0600", reverse=True)] == [b"%04d" % n for n in range(699, 599, -1)]

    run(where, work)


@pytest.mark.files
def test_iteration_continues_after_longest_key(path: Path) -> None:
    async def work(db: kvstore.aio.Store) -> None:
        keys = [bytes([97 + n]) * 65536 for n in range(20)]
        for key in keys:
            await db.put(key, b"v")
        assert [key async for key in db.keys()] == keys
        assert [key async for key in db.keys(reverse=True)] == keys[::-1]

    run(path, work)


def test_keys_with_equal_expiry_are_each_returned_once(path: Path) -> None:
    async def work(db: kvstore.aio.Store) -> None:
        await db.put_many({b"%05d" % n: b"v" for n in range(1500)}, expires_at=2_000_000_000.5)
        await db.put("later", b"v", expires_at=2_000_000_001)
        shown = [key async for key, _ in db.expiring()]
        assert shown == [*(b"%05d" % n for n in range(1500)), b"later"]

    run(path, work)


def test_writes_during_iteration_and_unfinished_iterations_work(where: Optional[Path]) -> None:
    async def work(db: kvstore.aio.Store) -> None:
        await db.put_many({b"%04d" % n: b"v" for n in range(1000)})
        shown = []
        async for key in db.keys():
            shown.append(key)
            await db.delete(key)
        assert len(shown) == 1000 and await db.count() == 0
        await db.put("a", b"1")
        async for key in db.keys():
            break
        assert await db.count() == 1

    run(where, work)


# Tasks


def test_many_concurrent_tasks_lose_no_update(where: Optional[Path]) -> None:
    async def work(db: kvstore.aio.Store) -> None:
        numbers = await asyncio.gather(*(db.incr("n") for _ in range(300)))
        assert sorted(numbers) == list(range(1, 301))
        await asyncio.gather(*(db.put(str(n), str(n)) for n in range(300)))
        assert await asyncio.gather(*(db.get(str(n)) for n in range(300))) == [str(n).encode() for n in range(300)]

    run(where, work)


def test_task_reads_its_own_writes(path: Path) -> None:
    async def work(db: kvstore.aio.Store) -> None:
        async def one(name: str) -> None:
            for number in range(100):
                await db.put(name, str(number))
                assert await db.get(name) == str(number).encode()

        await asyncio.gather(*(one(f"k{n}") for n in range(6)))

    run(path, work)


def test_thread_count_is_bounded_by_readers(path: Path) -> None:
    threads_end()  # those of tests before

    async def work(db: kvstore.aio.Store) -> None:
        def threads() -> int:
            return sum(thread.name.startswith("kvstore-aio") for thread in threading.enumerate())

        for _ in range(50):
            await db.put("k", b"v")
            await db.get("k")
        assert threads() <= 4  # the one that writes and the readers; two would do, but who has ended may not be back yet
        await asyncio.gather(*(db.get("k") for _ in range(200)))
        assert threads() <= 4

    run(path, work, readers=3)
    threads_end()


@pytest.mark.files
def test_event_loop_runs_while_other_process_holds_lock(path: Path) -> None:
    async def work(db: kvstore.aio.Store) -> None:
        await db.put("k", b"v")
        with lock_of_another_process(path) as end:
            writes = [asyncio.ensure_future(db.put(f"w{n}", b"1")) for n in range(20)]
            transaction = asyncio.ensure_future(in_transaction(db))
            longest, reads = 0.0, 0
            until = time.monotonic() + 1.0
            while time.monotonic() < until:
                before = time.monotonic()
                await asyncio.sleep(0)
                longest = max(longest, time.monotonic() - before)
                assert await db.get("k") == b"v"  # nor are reads
                reads += 1
            assert not any(write.done() for write in writes) and not transaction.done()
            end()
            await asyncio.gather(*writes, transaction)
        assert longest < 0.5 and reads > 10  # the lock was held for twice that

    async def in_transaction(db: kvstore.aio.Store) -> None:
        async with db.transaction() as tx:
            await tx.put("t", b"1")

    run(path, work, busy_timeout=60)


@pytest.mark.files
def test_lock_held_beyond_timeout_raises_busy_error(path: Path) -> None:
    async def work(db: kvstore.aio.Store) -> None:
        with lock_of_another_process(path):
            with pytest.raises(kvstore.BusyError):
                await db.put("k", b"v")
            with pytest.raises(kvstore.BusyError):
                async with db.transaction():
                    raise AssertionError
        await db.put("k", b"v")

    run(path, work, busy_timeout=0.05)


def test_waits_of_many_calls_for_a_lock_do_not_add_up(path: Path) -> None:
    async def work(db: kvstore.aio.Store) -> None:
        await db.put("k", b"v")
        with lock_of_another_process(path):
            began = time.monotonic()
            results = await asyncio.gather(*(db.put("k", b"w") for _ in range(50)), return_exceptions=True)
            assert all(isinstance(result, kvstore.BusyError) for result in results)
            assert time.monotonic() - began < 5  # 50 waits would take 10 seconds
        await db.put("k", b"v")

    run(path, work, busy_timeout=0.2)


# Transactions


def test_transaction_is_committed_or_rolled_back(where: Optional[Path]) -> None:
    async def work(db: kvstore.aio.Store) -> None:
        family = await db.family("f", create=True)
        async with db.transaction() as tx:
            assert tx.active
            await tx.put("a", b"1")
            await (await tx.family("f")).put("b", b"2")
            assert await tx.get("a") == b"1" and [key async for key in tx.keys()] == [b"a"]
        assert not tx.active and (await db.get("a"), await family.get("b")) == (b"1", b"2")
        with pytest.raises(LookupError):
            async with db.transaction() as tx:
                await tx.put("a", b"3")
                async with tx.batch() as batch:
                    batch.put("c", b"3")
                raise LookupError
        assert (await db.get("a"), await db.get("c")) == (b"1", None)

    run(where, work)


def test_transaction_can_be_ended_inside_its_block(where: Optional[Path]) -> None:
    async def work(db: kvstore.aio.Store) -> None:
        async with db.transaction() as tx:
            await tx.put("a", b"1")
            await tx.commit()
            for call in (tx.put("b", b"1"), tx.get("a"), tx.commit(), tx.rollback()):
                with pytest.raises(kvstore.Error, match="not open"):
                    await call
            await db.put("c", b"1")
        async with db.transaction() as tx:
            await tx.put("d", b"1")
            await tx.rollback()
        assert [key async for key in db.keys()] == [b"a", b"c"]
        with pytest.raises(kvstore.Error, match="not open"):
            await db.transaction().get("a")

    run(where, work)


def test_transaction_is_isolated_from_other_tasks(path: Path) -> None:
    async def work(db: kvstore.aio.Store) -> None:
        inside, go = asyncio.Event(), asyncio.Event()

        async def one() -> None:
            async with db.transaction() as tx:
                await tx.put("theirs", b"1")
                inside.set()
                await go.wait()
                raise LookupError

        task = asyncio.ensure_future(one())
        await inside.wait()
        write = asyncio.ensure_future(db.put("mine", b"1"))
        assert [await db.get("theirs") for _ in range(10)] == [None] * 10
        await asyncio.sleep(0.02)
        assert not write.done()
        go.set()
        with pytest.raises(LookupError):
            await task
        await write
        assert [key async for key in db.keys()] == [b"mine"]

    run(path, work)


def test_transactions_of_tasks_take_turns(where: Optional[Path]) -> None:
    async def work(db: kvstore.aio.Store) -> None:
        async def one(number: int) -> None:
            for _ in range(10):
                async with db.transaction() as tx:
                    n = int(await tx.get("n") or b"0")
                    await asyncio.sleep(0)
                    await tx.put("n", str(n + 1))
                    if number == 0:
                        await tx.put("m", b"x")
                if number == 1:
                    await db.incr("single")

        await asyncio.gather(*(one(number) for number in range(8)))
        assert (await db.get("n"), await db.get("single")) == (b"80", b"10")

    run(where, work, busy_timeout=0)


def test_snapshot_is_consistent_and_refuses_writes(path: Path) -> None:
    async def work(db: kvstore.aio.Store) -> None:
        await db.put_many({b"%04d" % n: b"old" for n in range(900)})
        async with db.snapshot() as snapshot:
            assert await snapshot.get("0000") == b"old"
            await db.put_many({b"%04d" % n: b"new" for n in range(0, 900, 2)})
            await db.delete("0899")
            assert {value async for value in snapshot.values()} == {b"old"} and await snapshot.count() == 900
            assert await db.count() == 899
            with pytest.raises(kvstore.ReadOnlyError):
                await snapshot.put("x", b"1")

    run(path, work)


def test_snapshots_leave_one_reader_free(path: Path) -> None:
    async def work(db: kvstore.aio.Store) -> None:
        await db.put("k", b"v")
        open_ = 0
        enough = asyncio.Event()

        async def look() -> None:
            nonlocal open_
            async with db.snapshot() as snapshot:
                open_ += 1
                if open_ == 2:
                    enough.set()
                await asyncio.sleep(0.02)
                assert (await db.get("k"), await snapshot.get("k")) == (b"v", b"v")

        tasks = [asyncio.ensure_future(look()) for _ in range(9)]
        await enough.wait()
        assert open_ == 2 and await db.get("k") == b"v"
        await asyncio.gather(*tasks)

    run(path, work, readers=3)


def test_task_waiting_for_itself_gets_error(where: Optional[Path]) -> None:
    async def work(db: kvstore.aio.Store) -> None:
        async with db.transaction() as tx:
            with pytest.raises(kvstore.Error, match="would wait for a transaction of this task"):
                await db.put("k", b"v")
            with pytest.raises(kvstore.Error, match="do not nest"):
                async with db.transaction():
                    raise AssertionError
            with pytest.raises(kvstore.Error, match="would wait for a transaction of this task"):
                await db.close()
            if where is None:
                with pytest.raises(kvstore.Error, match="would wait for a transaction of this task"):
                    await db.get("k")
            else:
                assert await db.get("k") is None
            later = asyncio.ensure_future(db.put("k", b"v"))  # another task, which waits for its turn
            await tx.put("t", b"1")
        await later
        assert await db.count() == 2

    run(where, work)


def test_tasks_may_share_transaction(where: Optional[Path]) -> None:
    async def work(db: kvstore.aio.Store) -> None:
        async with db.transaction() as tx:
            await asyncio.gather(*(tx.incr("n") for _ in range(50)))
        assert await db.get("n") == b"50"

    run(where, work)


def test_stats_do_not_wait_for_own_transaction(where: Optional[Path]) -> None:
    async def work(db: kvstore.aio.Store) -> None:
        async with db.transaction() as tx:
            await tx.put("a", b"1")
            assert (await db.stats()).puts == 1

    run(where, work)


def test_rollback_undoes_family_creation(where: Optional[Path]) -> None:
    async def work(db: kvstore.aio.Store) -> None:
        for _ in range(2):
            with pytest.raises(LookupError):
                async with db.transaction() as tx:
                    await (await tx.family("f", create=True)).put("k", b"v")
                    raise LookupError
            assert await db.families() == []
        async with db.transaction() as tx:
            await (await tx.family("f", create=True)).put("k", b"v")
        assert await (await db.family("f")).get("k") == b"v"

    run(where, work)


def test_recreated_family_is_used_by_old_handle(where: Optional[Path]) -> None:
    async def work(db: kvstore.aio.Store) -> None:
        family = await db.family("f", create=True)
        await family.put("k", b"old")
        await asyncio.gather(*(family.get("k") for _ in range(50)))
        await db.drop_family("f")
        with pytest.raises(kvstore.NotFoundError):
            await family.get("k")
        await db.family("f", create=True)
        assert await asyncio.gather(*(family.get("k") for _ in range(50))) == [None] * 50

    run(where, work)


# Cancellation


def test_cancelled_write_is_atomic(where: Optional[Path]) -> None:
    async def work(db: kvstore.aio.Store) -> None:
        done = 0
        for number in range(120):
            task = asyncio.ensure_future(db.put_many({f"{number}-{part}": b"v" for part in range(5)}))
            for _ in range(number % 4):
                await asyncio.sleep(0)
            if number % 3 == 0:
                await asyncio.sleep(0.0003)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            count = sum([1 async for _ in db.keys(prefix=f"{number}-")])
            await db.sync()  # writes are done in order: what was cancelled has ended before
            later = sum([1 async for _ in db.keys(prefix=f"{number}-")])
            assert count in (0, 5) and later in (count, 5)
            done += later == 5
        await db.integrity_check()

    run(where, work)


@pytest.mark.files
def test_write_cancelled_in_queue_never_happens(path: Path) -> None:
    async def work(db: kvstore.aio.Store) -> None:
        with lock_of_another_process(path) as end:
            tasks = [asyncio.ensure_future(db.put(f"{n}", b"1")) for n in range(5)]
            await asyncio.sleep(0.05)
            for task in tasks[1:]:
                task.cancel()
            before = time.monotonic()
            results = await asyncio.gather(*tasks[1:], return_exceptions=True)
            assert all(isinstance(result, asyncio.CancelledError) for result in results)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(db.put("late", b"1"), 0.05)
            assert time.monotonic() - before < 20  # not the busy_timeout
            end()
            await tasks[0]
        assert [key async for key in db.keys()] == [b"0", b"theirs"]

    run(path, work, busy_timeout=60)


@pytest.mark.parametrize("wait", [0, 0.001, 0.01])
def test_cancelled_transaction_is_rolled_back(where: Optional[Path], wait: float) -> None:
    async def work(db: kvstore.aio.Store) -> None:
        for number in range(30):

            async def one() -> None:
                async with db.transaction() as tx:
                    for part in range(100):
                        await tx.put(f"{part}", b"v")
                    await asyncio.sleep(60)

            task = asyncio.ensure_future(one())
            await asyncio.sleep(wait * number / 10)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await db.count() == 0
            await db.put("k", b"v")  # the handle is free again
            await db.delete("k")

    run(where, work)


def test_cancelled_transaction_is_atomic_and_pool_stays_usable(where: Optional[Path]) -> None:
    async def work(db: kvstore.aio.Store) -> None:
        async def one(number: int) -> None:
            async with db.transaction() as tx:
                for part in range(5):
                    await tx.put(f"{number:03}-{part}", b"v")

        whole = 0
        for number in range(90):
            task = asyncio.ensure_future(one(number))
            for _ in range(number % 30):
                await asyncio.sleep(0.00005)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            count = sum([1 async for _ in db.keys(prefix=f"{number:03}-")])
            assert count in (0, 5)
            if not task.cancelled():
                assert count == 5
            whole += count == 5
        async with db.transaction() as tx:
            await tx.put("end", b"1")
        assert await db.count() == whole * 5 + 1

    run(where, work)


@pytest.mark.files
def test_transaction_cancelled_before_begin_never_begins(path: Path) -> None:
    async def work(db: kvstore.aio.Store) -> None:
        async def one(name: str) -> None:
            async with db.transaction() as tx:
                await tx.put(name, b"1")

        with lock_of_another_process(path) as end:
            first = asyncio.ensure_future(one("first"))  # is beginning, in its thread
            await asyncio.sleep(0.05)
            second = asyncio.ensure_future(one("second"))  # waits for the thread
            await asyncio.sleep(0.01)
            for task in (first, second):
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            end()
        await db.put("k", b"v")
        assert [key async for key in db.keys()] == [b"k", b"theirs"]

    run(path, work, busy_timeout=60)


def test_commit_cancelled_before_start_rolls_back(where: Optional[Path]) -> None:
    async def work(db: kvstore.aio.Store) -> None:
        go = threading.Event()

        async def one() -> None:
            async with db.transaction() as tx:
                await tx.put("k", b"v")
                asyncio.ensure_future(tx._work(True, lambda worker: go.wait(60)))  # the thread is busy
                await asyncio.sleep(0.01)

        task = asyncio.ensure_future(one())
        await asyncio.sleep(0.1)
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0.01)
        assert not task.done()  # it ends when the transaction has
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await db.count() == 0

    run(where, work)


def test_cancelled_backup_stops_and_leaves_no_file(path: Path, tmp_path: Path) -> None:
    async def work(db: kvstore.aio.Store) -> None:
        await db.put_many({str(n): b"v" * 1000 for n in range(3000)})
        begun, go = threading.Event(), threading.Event()

        def progress(remaining: int, total: int) -> None:
            begun.set()
            go.wait(60)

        task = asyncio.ensure_future(db.backup(tmp_path / "copy.db", progress))
        while not begun.is_set():
            await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.sleep(0.01)
        assert not task.done()  # it ends when the thread has
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert list(tmp_path.glob("copy*")) == []

    run(path, work)


@pytest.mark.files
def test_copy_is_complete_and_two_copies_do_not_deadlock(path: Path, tmp_path: Path) -> None:
    async def work(db: kvstore.aio.Store) -> None:
        await db.put_many({str(n): b"v" * 100 for n in range(3000)})
        steps: list[int] = []
        for target in (None, tmp_path / "copy.db"):
            async with kvstore.aio.open(target) as other:
                await db.copy_to(other, lambda done, total: steps.append(done))
                assert await other.count() == 3000
                assert steps[-1] == 3000
                with pytest.raises(kvstore.Error, match="has keys"):
                    await db.copy_to(other)
        with pytest.raises(kvstore.Error, match="into itself"):
            await db.copy_to(db)
        with pytest.raises(TypeError):
            await db.copy_to("x.db")  # type: ignore[arg-type, unused-ignore]
        async with kvstore.aio.open(None) as one, kvstore.aio.open(None) as two:
            for _ in range(20):
                await asyncio.gather(one.copy_to(two), two.copy_to(one))
            async with two.transaction():
                with pytest.raises(kvstore.Error, match="transaction of this task"):
                    await one.copy_to(two)

    run(path, work)


def test_cancelled_copy_stops_and_copies_nothing(path: Path, tmp_path: Path) -> None:
    async def work(db: kvstore.aio.Store) -> None:
        await db.put_many({str(n): b"v" * 1000 for n in range(3000)})
        begun, go = threading.Event(), threading.Event()

        def progress(done: int, total: int) -> None:
            begun.set()
            go.wait(60)

        async with kvstore.aio.open(tmp_path / "copy.db") as other:
            task = asyncio.ensure_future(db.copy_to(other, progress))
            while not begun.is_set():
                await asyncio.sleep(0.001)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            go.set()
            assert await other.count() == 0

    run(path, work)


# Closing


def test_close_waits_for_running_calls(path: Path) -> None:
    async def main() -> None:
        db = await kvstore.aio.open(path, sync="off")
        inside = asyncio.Event()

        async def one() -> None:
            async with db.transaction() as tx:
                inside.set()
                await asyncio.sleep(0.05)
                await tx.put("in transaction", b"1")

        task = asyncio.ensure_future(one())
        await inside.wait()
        writes = [asyncio.ensure_future(db.put(str(n), b"1")) for n in range(50)]
        await asyncio.sleep(0)
        await asyncio.gather(db.close(), db.close())
        assert task.done() and all(write.done() and not write.exception() for write in writes)
        assert db.closed
        await db.close()
        for call in (db.get("k"), db.put("k", b"v"), db.stats(), db.families()):
            with pytest.raises(kvstore.MisuseError, match="closed"):
                await call
        with pytest.raises(kvstore.MisuseError):
            async with db.transaction():
                raise AssertionError

    asyncio.run(main())
    with kvstore.open(path, exclusive=True) as store:  # no process has it open any more
        assert len(store) == 51


@pytest.mark.files
def test_cancelled_close_continues(path: Path) -> None:
    async def main() -> None:
        db = await kvstore.aio.open(path, busy_timeout=60)
        with lock_of_another_process(path) as end:
            write = asyncio.ensure_future(db.put("k", b"v"))
            await asyncio.sleep(0.02)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(db.close(), 0.02)
            end()
            await db.close()
            await write

    asyncio.run(main())
    with kvstore.open(path, exclusive=True) as store:
        assert store["k"] == b"v"


def test_unreferenced_store_is_closed(path: Path) -> None:
    async def main() -> None:
        db = await kvstore.aio.open(path)
        await db.put("k", b"v")
        await asyncio.gather(*(db.get("k") for _ in range(20)))

    asyncio.run(main())
    gc.collect()
    threads_end()
    with kvstore.open(path, exclusive=True) as store:
        assert store["k"] == b"v"


def test_transaction_of_destroyed_task_is_rolled_back(path: Path) -> None:
    async def main() -> None:
        db = await kvstore.aio.open(path)
        coroutine = one(db)
        with contextlib.suppress(StopIteration):
            while True:  # until it waits for what never comes
                future = coroutine.send(None)
                if future is None:
                    break
                await asyncio.wait([future])
        del coroutine
        gc.collect()
        await db.put("k", b"v")
        assert [key async for key in db.keys()] == [b"k"]
        await db.close()

    async def one(db: kvstore.aio.Store) -> None:
        tx = await db.transaction().__aenter__()
        await tx.put("lost", b"1")
        await asyncio.sleep(0)

    asyncio.run(main())


# Loops, threads, forks


def test_store_works_in_successive_event_loops(where: Optional[Path]) -> None:
    db = kvstore.aio.open(where)

    async def count() -> int:
        async with db.transaction() as tx:
            await tx.incr("n")
        return int(await db.get("n") or b"0")

    assert [asyncio.run(count()) for _ in range(3)] == [1, 2, 3]
    asyncio.run(db.close())


def test_store_works_in_concurrent_event_loops(path: Path) -> None:
    db = kvstore.aio.open(path, sync="off")
    failures: list[BaseException] = []

    async def count() -> None:
        for _ in range(30):
            async with db.transaction() as tx:
                await tx.put("n", str(int(await tx.get("n") or b"0") + 1))
            await db.incr("m")

    def loop() -> None:
        try:
            asyncio.run(count())
        except BaseException as e:
            failures.append(e)

    threads = [threading.Thread(target=loop) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []

    async def end() -> None:
        assert (await db.get("n"), await db.get("m")) == (b"90", b"90")
        await db.close()

    asyncio.run(end())


def test_store_stays_usable_after_loop_ends_mid_transaction(path: Path) -> None:
    db = kvstore.aio.open(path)

    async def leave() -> None:
        async def one() -> None:
            async with db.transaction() as tx:
                await tx.put("lost", b"1")
                await asyncio.sleep(60)

        tasks = [asyncio.ensure_future(one()), *(asyncio.ensure_future(db.put(str(n), b"1")) for n in range(20))]
        await asyncio.sleep(0.01)
        assert tasks  # and asyncio.run cancels them

    async def look() -> None:
        await db.put("k", b"v")
        assert not await db.contains("lost")
        await db.close()

    asyncio.run(leave())
    asyncio.run(look())


FORK = """
import asyncio, os, sys
import kvstore.aio
db = kvstore.aio.open(sys.argv[1])

async def parent():
    await db.put("parent", b"1")
    await asyncio.gather(*(db.get("parent") for _ in range(20)))

async def child():
    await asyncio.gather(*(db.incr("n") for _ in range(20)))
    async with db.transaction() as tx:
        await tx.put("child", b"1")
    assert await db.get("parent") == b"1"
    await db.close()

asyncio.run(parent())
for _ in range(2):
    pid = os.fork()
    if pid == 0:
        asyncio.run(child())
        os._exit(7)
    assert os.waitpid(pid, 0)[1] == 7 << 8
asyncio.run(parent())

async def end():
    assert (await db.get("n"), await db.get("child")) == (b"40", b"1")
    await db.close()

asyncio.run(end())
print("done")
"""


def test_forked_child_reopens_store(path: Path) -> None:
    assert_clean(run_python(FORK, str(path)), "done")


def test_transaction_and_memory_store_stay_with_forking_parent(path: Path) -> None:
    code = """
import asyncio, os, sys
import kvstore, kvstore.aio

async def main():
    memory = await kvstore.aio.open(":memory:")
    db = await kvstore.aio.open(sys.argv[1])
    async with db.transaction() as tx:
        await tx.put("k", b"parent")
        pid = os.fork()
        if pid == 0:
            for call in (memory.get("k"), tx.get("k"), tx.commit()):
                try:
                    await call
                except kvstore.MisuseError:
                    continue
                os._exit(1)
            os._exit(7)
        assert os.waitpid(pid, 0)[1] == 7 << 8
    assert await db.get("k") == b"parent"
    await db.close()
    await memory.close()
    print("done")

asyncio.run(main())
"""
    assert_clean(run_python(code, str(path)), "done")


def test_program_without_close_exits(path: Path) -> None:
    code = """
import asyncio, sys
import kvstore.aio
db = kvstore.aio.open(sys.argv[1])

async def main():
    await asyncio.gather(*(db.put(str(n), b"v") for n in range(20)))
    await db.transaction().__aenter__()

asyncio.run(main())
print("done")
"""
    assert_clean(run_python(code, str(path)), "done")
    with kvstore.open(path) as store:
        assert len(store) == 20


def test_killed_process_leaves_whole_transactions(path: Path) -> None:
    code = """
import asyncio, sys
import kvstore.aio

async def main():
    async with kvstore.aio.open(sys.argv[1]) as db:
        async def one(name):
            number = 0
            while True:
                number += 1
                async with db.transaction() as tx:
                    await tx.put(name + "1", str(number))
                    await tx.put(name + "2", str(number))
                if number == 20:
                    print("ready", flush=True)
        await asyncio.gather(one("a"), one("b"), one("c"))

asyncio.run(main())
"""
    child = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    child.kill()
    child.communicate()
    with kvstore.open(path) as store:
        store.integrity_check()
        for name in "abc":
            assert store[name + "1"] == store[name + "2"]


def test_arguments_may_change_while_call_waits(where: Optional[Path]) -> None:
    async def work(db: kvstore.aio.Store) -> None:
        value, many = bytearray(b"before"), {"b": b"1"}
        calls = [
            asyncio.ensure_future(call)
            for call in (db.put("a", value), db.put_many(many), db.update(many, c=value), db.get_many(iter(["x"])))
        ]
        await asyncio.sleep(0)
        value[:] = b"after."
        many["late"] = b"1"
        await asyncio.gather(*calls)
        assert (await db.get("a"), await db.get("c"), await db.contains("late")) == (b"before", b"before", False)

    run(where, work)


@pytest.mark.parametrize("kind", ["mapping", "pairs", "keys"])
def test_large_arguments_are_not_converted_in_event_loop(where: Optional[Path], kind: str) -> None:
    calls: list[str] = []
    items = {f"{n:04}": b"value" for n in range(2000)}

    def note(frame: Any, event: str, argument: Any) -> None:
        calls.append(event)

    async def work(db: kvstore.aio.Store) -> None:
        argument: Any = {"mapping": items, "pairs": list(items.items()), "keys": list(items)}[kind]
        await db.contains("k")  # starts the worker
        sys.setprofile(note)  # the calls of functions in this thread
        try:
            if kind == "keys":
                await db.get_many(argument)
            else:
                await db.put_many(argument)
        finally:
            sys.setprofile(None)
        assert await db.count() == (0 if kind == "keys" else len(items))

    run(where, work)
    assert len(calls) < len(items)


def test_mutable_pairs_and_buffers_may_change_while_call_waits(where: Optional[Path]) -> None:
    async def work(db: kvstore.aio.Store) -> None:
        key, value, pair = bytearray(b"key"), bytearray(b"before"), ["pair", b"before"]
        calls = [
            asyncio.ensure_future(call)
            for call in (db.put_many([("a", value)]), db.put_many([(key, b"1")]), db.put_many([pair]), db.get_many([key]))
        ]
        await asyncio.sleep(0)
        key[:], value[:], pair[1] = b"yek", b"after.", b"after"
        results = await asyncio.gather(*calls)
        assert results[3] in ({b"key": b"1"}, {})
        assert {key: value async for key, value in db.items()} == {b"a": b"before", b"key": b"1", b"pair": b"before"}

    run(where, work)


def test_batch_is_atomic(where: Optional[Path]) -> None:
    async def work(db: kvstore.aio.Store) -> None:
        family = await db.family("f", create=True)
        with pytest.raises(LookupError):
            async with db.batch() as batch:
                batch.put("a", b"1")
                raise LookupError
        batch = db.batch()
        batch.put("a", b"1")
        batch.put("b", b"1", family=family)
        batch.put("c", b"1", ttl=-1)
        with pytest.raises(ValueError):
            await batch.commit()
        assert (await db.count(), await family.count(), len(batch)) == (0, 0, 3)
        batch.clear()
        batch.put("a", b"1")
        batch.put("b", b"1", family=family)
        await batch.commit()
        assert (await db.count(), await family.count(), len(batch), bool(batch)) == (1, 1, 0, True)
        async with db.transaction() as tx:
            with pytest.raises(ValueError, match="another"):
                db.batch().put("a", b"1", family=tx)

    run(where, work)


def test_exclusive_and_read_only_stores_work(path: Path) -> None:
    async def write(db: kvstore.aio.Store) -> None:
        await asyncio.gather(*(db.put(str(n), b"v") for n in range(20)), *(db.get(str(n)) for n in range(20)))

    async def read(db: kvstore.aio.Store) -> None:
        assert await db.count() == 20
        with pytest.raises(kvstore.ReadOnlyError):
            await db.put("k", b"v")

    run(path, write, exclusive=True)
    run(path, read, read_only=True)


@pytest.mark.files
def test_secure_delete_option_overwrites_deleted_data(path: Path) -> None:
    async def work(db: kvstore.aio.Store) -> None:
        await db.put("Sentinel", b"Sentinel")
        await db.delete("Sentinel")
        await db.checkpoint("truncate")

    for secure in (False, True):
        where = path.with_name(f"{secure}.db")
        run(where, work, secure_delete=secure)
        assert (b"Sentinel" in where.read_bytes()) is not secure


def test_store_cannot_be_pickled(path: Path) -> None:
    async def work(db: kvstore.aio.Store) -> None:
        family = await db.family("f", create=True)
        async with db.transaction() as tx:
            for thing in (db, family, tx):
                with pytest.raises(TypeError, match="open the store in each process"):
                    pickle.dumps(thing)

    run(path, work)
