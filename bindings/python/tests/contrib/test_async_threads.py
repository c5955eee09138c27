"""The threads of asyncio backends: order, waiting, cancelling, closing and forks."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from pathlib import Path

import pytest

import kvstore
from kvstore.contrib._rows import partitions, split_row_key
from kvstore.contrib._storage import Storage
from kvstore.contrib._threads import Threads


def test_writes_are_done_in_order_of_calls() -> None:
    done: list[int] = []

    async def main() -> None:
        threads = Threads(Storage(":memory:", "things", {}))
        await asyncio.gather(*(threads.write(lambda number=number: done.append(number)) for number in range(100)))
        await threads.close(lambda: done.append(100))

    asyncio.run(main())
    assert done == list(range(101))


def test_waits_of_many_writes_for_busy_store_do_not_add_up(tmp_path: Path) -> None:
    storage = Storage(tmp_path / "x.db", "things", {"busy_timeout": 0.2})
    threads = Threads(storage)
    storage.family()["a"] = b"1"

    def put() -> bool:
        return storage.keep(lambda family: family.put("a", b"2"), ["a"], False)

    async def main() -> None:
        with kvstore.open(tmp_path / "x.db") as other, other.transaction():
            other["b"] = b"2"
            began = time.monotonic()
            assert await asyncio.gather(*(threads.write(put) for _ in range(50))) == [False] * 50
            assert time.monotonic() - began < 5  # 50 waits would take 10 seconds
            following = asyncio.ensure_future(threads.write(put))  # waits, as it was called later
            await asyncio.sleep(0.05)
            assert not following.done()
        assert await following is True
        await threads.close(storage.close)

    asyncio.run(main())


def test_reads_and_event_loop_run_while_writer_waits_for_lock(tmp_path: Path) -> None:
    storage = Storage(tmp_path / "x.db", "things", {"busy_timeout": 30})
    threads = Threads(storage)
    storage.family()["a"] = b"1"

    async def main() -> None:
        with kvstore.open(tmp_path / "x.db") as other, other.transaction():
            other["b"] = b"2"
            write = asyncio.ensure_future(threads.write(lambda: storage.family().put("a", b"2")))
            await asyncio.sleep(0.05)
            assert await threads.read(lambda: storage.family().get("a")) == b"1"
            assert not write.done()
        assert await write
        assert await threads.read(lambda: storage.family().get("a")) == b"2"
        await threads.close(storage.close)

    asyncio.run(main())


def test_cancelled_write_comes_before_later_write() -> None:
    done: list[str] = []
    free = threading.Event()

    async def main() -> None:
        threads = Threads(Storage(":memory:", "things", {}))

        def first() -> None:
            free.wait()
            done.append("first")

        cancelled = asyncio.ensure_future(threads.write(first))
        await asyncio.sleep(0.05)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        later = asyncio.ensure_future(threads.write(lambda: done.append("later")))
        free.set()
        await later
        await threads.close(lambda: None)

    asyncio.run(main())
    assert done == ["first", "later"]


def test_closed_threads_end_and_next_use_starts_new_ones() -> None:
    threads = Threads(Storage(":memory:", "things", {}))

    async def main() -> None:
        used = {await threads.read(threading.current_thread), await threads.write(threading.current_thread)}
        await threads.close(lambda: None)
        for thread in used:
            thread.join(10)
        assert not any(thread.is_alive() for thread in used)
        assert await threads.write(lambda: 7) == 7
        await threads.close(lambda: None)

    asyncio.run(main())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_child_of_fork_starts_threads_of_its_own() -> None:
    threads = Threads(Storage(":memory:", "things", {}))
    assert asyncio.run(threads.write(os.getpid)) == os.getpid()
    child = os.fork()
    if child == 0:
        asyncio.set_event_loop(None)
        ok = asyncio.run(threads.write(os.getpid)) == asyncio.run(threads.read(os.getpid)) == os.getpid()
        os._exit(0 if ok else 1)
    assert os.waitpid(child, 0)[1] == 0
    asyncio.run(threads.close(lambda: None))


@pytest.mark.parametrize("partition", [b"", b"a", b"a\x00b", b"\x00", b"\x00\x01", b"\x00\xff\x01", b"\xff"])
@pytest.mark.parametrize("clustering", [b"", b"x", b"\x00\x01", b"\xff"])
def test_row_key_is_split_into_its_parts(partition: bytes, clustering: bytes) -> None:
    assert split_row_key(kvstore.row_key(partition, clustering)) == (partition, clustering)


def test_partitions_are_listed_once_without_other_keys() -> None:
    with kvstore.open(":memory:") as db:
        names = [b"", b"a", b"a\x00", b"ab", b"\xff", b"\xff\xff"]
        for name in names:
            for clustering in (b"", b"1", b"\xff"):
                db[kvstore.row_key(name, clustering)] = b"x"
        db["no row key"] = db["z"] = b"x"
        assert list(partitions(db)) == sorted(names)
        assert list(partitions(db, 2)) == [b"", b"a"]
        db.put(kvstore.row_key("expired"), b"x", expires_at=0)
        assert b"expired" not in list(partitions(db))
    with pytest.raises(ValueError, match="not a row key"):
        split_row_key(b"abc")
