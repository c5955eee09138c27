"""A transaction begun in an asyncio task belongs to that task: no other task of the thread joins it."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kvstore


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, path: Path) -> Any:
    with kvstore.open(path if request.param == "file" else ":memory:") as store:
        yield store


USES: dict[str, Callable[[kvstore.Store], Any]] = {
    "get": lambda s: s.get("k"),
    "[]": lambda s: s["k"],
    "in": lambda s: "k" in s,
    "put": lambda s: s.put("k", b"other"),
    "[]=": lambda s: s.__setitem__("k", b"other"),
    "put with ttl": lambda s: s.put("k", b"other", ttl=5),
    "delete": lambda s: s.delete("k"),
    "incr": lambda s: s.incr("n"),
    "ttl": lambda s: s.ttl("k"),
    "get_many": lambda s: s.get_many(["k"]),
    "put_many": lambda s: s.put_many({"k": b"other"}),
    "items": lambda s: list(s.items()),
    "len": lambda s: len(s),
    "clear": lambda s: s.clear(),
    "family": lambda s: s.family("f"),
    "families": lambda s: s.families(),
    "batch": lambda s: s.batch(),
    "transaction": lambda s: s.transaction().__enter__(),
    "purge_step": lambda s: s.purge_step(),
}


def beside(store: kvstore.Store, work: Callable[[], Any]) -> Any:
    """Return the result, or the exception, of another task that works while one has a transaction open."""

    async def main() -> Any:
        begun, end = asyncio.Event(), asyncio.Event()

        async def transaction() -> None:
            with store.transaction():
                store["k"] = b"uncommitted"
                begun.set()
                await end.wait()
                assert store["k"] == b"uncommitted"
                assert [*store.items()] == [(b"k", b"uncommitted")]

        task = asyncio.ensure_future(transaction())
        await begun.wait()
        try:
            return work()
        except kvstore.Error as error:
            return error
        finally:
            end.set()
            await task

    return asyncio.run(main())


@pytest.mark.parametrize("use", USES)
def test_other_task_is_refused_during_open_transaction(store: kvstore.Store, use: str) -> None:
    store.family("f", create=True)
    store["k"] = b"before"
    answer = beside(store, lambda: USES[use](store))
    assert isinstance(answer, kvstore.MisuseError), answer
    assert "kvstore.aio" in str(answer)
    assert store["k"] == b"uncommitted"
    assert len(store) == 1


def test_family_iterator_and_batch_refuse_other_task(store: kvstore.Store) -> None:
    family = store.family("f", create=True)
    family["k"] = b"v"
    store["k"] = b"before"
    rows = iter(store.items())
    batch = store.batch()
    batch.put("b", b"v")
    for use in (lambda: family["k"], lambda: next(rows), batch.commit):
        assert isinstance(beside(store, use), kvstore.MisuseError)
    batch.commit()
    assert store["b"] == b"v"
    assert family["k"] == b"v"


def test_other_tasks_continue_after_transaction_ends(store: kvstore.Store) -> None:
    async def main() -> None:
        async def work(name: str) -> None:
            for _ in range(20):
                with store.transaction():
                    store[name] = str(int(store.get(name, b"0")) + 1)
                await asyncio.sleep(0)

        await asyncio.gather(work("a"), work("b"), work("c"))

    asyncio.run(main())
    assert dict(store.items()) == {b"a": b"20", b"b": b"20", b"c": b"20"}
    assert store.get("a") == b"20"


def test_call_in_executor_thread_is_not_refused(path: Path) -> None:
    with kvstore.open(path) as store:
        store["k"] = b"before"

        async def main() -> Any:
            with store.transaction():
                store["k"] = b"after"
                return await asyncio.get_running_loop().run_in_executor(None, lambda: store["k"])

        assert asyncio.run(main()) == b"before"
        assert store["k"] == b"after"


def test_task_cancelled_in_transaction_rolls_back(store: kvstore.Store) -> None:
    async def main() -> None:
        async def work() -> None:
            with store.transaction():
                store["k"] = b"v"
                await asyncio.sleep(60)

        task = asyncio.ensure_future(work())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert "k" not in store
        store["k"] = b"other"

    asyncio.run(main())
    assert store["k"] == b"other"


def test_unreferenced_transaction_of_task_ends_at_next_call(store: kvstore.Store) -> None:
    async def main() -> None:
        async def forget() -> None:
            store.transaction().__enter__()
            store["k"] = b"v"

        await asyncio.ensure_future(forget())
        gc.collect()
        assert "k" not in store
        store["other"] = b"v"

    asyncio.run(main())
    assert list(store) == [b"other"]


def test_transaction_outside_tasks_works_with_asyncio_imported(store: kvstore.Store) -> None:
    with store.transaction():
        store["k"] = b"v"
    assert store["k"] == b"v"
