"""kvstore.memoize of async def functions, on stores of kvstore and of kvstore.aio."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import Clock

import kvstore
import kvstore.aio

Work = Callable[[Any], Awaitable[Any]]


@pytest.fixture(params=["sync", "aio", "sync-memory", "aio-memory"])
def run(request: pytest.FixtureRequest, path: Path) -> Callable[..., Any]:
    """A function that runs ``work(store)`` in an event loop, for each kind of store."""
    kind, _, memory = request.param.partition("-")
    where: Any = ":memory:" if memory else path

    def run(work: Work, clock: Any = None) -> Any:
        async def main() -> Any:
            async with contextlib.AsyncExitStack() as stack:
                db: Any
                if kind == "aio":
                    db = await stack.enter_async_context(kvstore.aio.open(where, sync="off"))
                    await db.set_clock(clock)
                else:
                    db = stack.enter_context(kvstore.open(where, sync="off"))
                    db.set_clock(clock)
                return await asyncio.wait_for(work(db), 60)

        return asyncio.run(main())

    return run


async def get(db: Any, key: bytes) -> Any:
    return await db.get(key) if isinstance(db, kvstore.aio.Store) else db.get(key)


def test_async_result_is_computed_once(run: Any) -> None:
    async def work(db: Any) -> None:
        calls = []

        @kvstore.memoize(db, ttl=60)
        async def square(x: int) -> int:
            """Square."""
            calls.append(x)
            await asyncio.sleep(0)
            return x * x

        assert [await square(3), await square(x=3), await square(4)] == [9, 9, 16]
        assert calls == [3, 4]
        assert await square.cache_info() == (1, 2, 2, 0)
        assert await get(db, square.cache_key(3)) is not None
        assert await square.cache_clear() == 2
        assert (await square.cache_info()).currsize == 0
        assert await square(3) == 9 and calls == [3, 4, 3]
        assert square.__name__ == "square" and square.__doc__ == "Square."
        assert await square.__wrapped__(5) == 25

    run(work)


def test_memoized_function_is_recognized_as_coroutine_function(path: Path) -> None:
    with kvstore.open(path) as db:

        @kvstore.memoize(db)
        async def function(x: int) -> int:
            return x

        class Thing:
            @kvstore.memoize(db, ignore="self")
            async def method(self, x: int) -> int:
                return x + 1

        @kvstore.memoize(db)
        def plain(x: int) -> int:
            return x

        thing = Thing()
        for found in (function, thing.method):
            if sys.version_info >= (3, 12):
                assert inspect.iscoroutinefunction(found)
            else:
                assert asyncio.iscoroutinefunction(found)
        assert not inspect.iscoroutinefunction(plain)
        assert asyncio.run(thing.method(1)) == 2
        assert thing.method.cache_key(1) in db
        assert asyncio.run(thing.method.cache_info()).hits == 0


def test_callable_object_with_async_call_is_awaited(path: Path) -> None:
    class Fetch:
        async def __call__(self, x: int) -> int:
            return x

    with kvstore.open(path) as db:
        memoized: Any = kvstore.memoize(db, name="fetch")(Fetch())
        assert asyncio.run(memoized(3)) == 3
        assert len(db) == 1


def test_concurrent_calls_compute_once_and_get_own_objects(run: Any) -> None:
    async def work(db: Any) -> None:
        calls = []

        @kvstore.memoize(db)
        async def function(x: int) -> list[int]:
            calls.append(x)
            await asyncio.sleep(0.01)
            return [x]

        found = await asyncio.gather(*(function(x) for x in (1, 2) for _ in range(20)))
        assert found == [[1]] * 20 + [[2]] * 20 and sorted(calls) == [1, 2]
        assert len({id(one) for one in found}) == 40
        assert (await function.cache_info())[:2] == (38, 2)

    run(work)


def test_exception_goes_to_its_call_and_is_not_cached(run: Any) -> None:
    async def work(db: Any) -> None:
        calls = []

        @kvstore.memoize(db)
        async def function() -> int:
            calls.append(None)
            await asyncio.sleep(0.001)
            if len(calls) < 3:
                raise LookupError(len(calls))
            return 7

        found = await asyncio.gather(*(function() for _ in range(5)), return_exceptions=True)
        assert [type(one) for one in found[:2]] == [LookupError, LookupError]
        assert found[2:] == [7, 7, 7] and len(calls) == 3

    run(work)


def test_another_call_computes_after_cancellation(run: Any) -> None:
    async def work(db: Any) -> None:
        calls = []
        began = asyncio.Event()

        @kvstore.memoize(db)
        async def function() -> int:
            calls.append(None)
            began.set()
            if len(calls) == 1:
                await asyncio.sleep(3600)
            return len(calls)

        first = asyncio.create_task(function())
        await began.wait()
        others = [asyncio.create_task(function()) for _ in range(3)]
        await asyncio.sleep(0.01)
        others[2].cancel()  # a waiting call ends alone
        with pytest.raises(asyncio.CancelledError):
            await others[2]
        assert not first.done() and not others[0].done()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert [await other for other in others[:2]] == [2, 2]
        assert (await function.cache_info())[:3] == (1, 2, 1)

    run(work)


@pytest.mark.parametrize("delay", [0, 0.0001, 0.0003, 0.001])
def test_cancelled_call_leaves_no_lease(run: Any, delay: float) -> None:
    async def work(db: Any) -> None:
        @kvstore.memoize(db)
        async def function() -> int:
            await asyncio.sleep(0.0001)
            return 1

        for _ in range(10):
            task = asyncio.create_task(function())
            await asyncio.sleep(delay)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            assert await asyncio.wait_for(function(), 10) == 1  # a lease lasts 60 s
            await function.cache_clear()

    run(work)


def test_event_loop_closed_during_computation_leaves_no_lease(path: Path) -> None:
    with kvstore.open(path) as db:
        calls = []

        @kvstore.memoize(db)
        async def function() -> int:
            calls.append(None)
            if len(calls) == 1:
                await asyncio.get_running_loop().create_future()
            return len(calls)

        async def begin() -> None:
            asyncio.get_running_loop().create_task(function())
            while not calls:
                await asyncio.sleep(0.001)

        loop = asyncio.new_event_loop()
        loop.set_exception_handler(lambda loop, context: None)  # "task was destroyed but it is pending"
        loop.run_until_complete(begin())
        loop.close()
        del loop
        gc.collect()
        assert asyncio.run(asyncio.wait_for(function(), 30)) == 2


def test_recursive_call_and_its_tasks_compute_directly(run: Any) -> None:
    async def work(db: Any) -> None:
        depths = []

        @kvstore.memoize(db, ignore="depth")
        async def function(x: int, depth: int = 0) -> int:
            depths.append(depth)
            if depth == 0:
                return sum(await asyncio.gather(function(x, 1), function(x, 2)))
            return await function(x + 1, 2) if depth == 1 else 5

        assert await function(1) == 10
        assert sorted(depths) == [0, 1, 2, 2]

    run(work)


def test_task_that_outlives_its_computation_uses_the_cache(run: Any) -> None:
    async def work(db: Any) -> None:
        calls: list[Any] = []

        @kvstore.memoize(db)
        async def function() -> int:
            async def later() -> int:
                await done.wait()
                return await function()

            calls.append(asyncio.create_task(later()))
            return 3

        done = asyncio.Event()
        assert await function() == 3
        done.set()
        assert await calls[0] == 3 and len(calls) == 1

    run(work)


def test_event_loops_of_threads_compute_once_without_blocking(path: Path) -> None:
    calls: list[int] = []
    found: list[int] = []
    ticks: list[int] = []
    with kvstore.open(path, sync="off") as db:

        @kvstore.memoize(db)
        async def function() -> int:
            calls.append(1)
            await asyncio.sleep(0.2)
            return 5

        async def main() -> None:
            task = asyncio.create_task(function())
            count = 0
            while not task.done():
                await asyncio.sleep(0.001)
                count += 1
            found.append(await task)
            ticks.append(count)

        threads = [threading.Thread(target=lambda: asyncio.run(main())) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert (calls, found) == ([1], [5] * 4)
    assert min(ticks) > 10  # the loops ran while they waited


def test_processes_compute_one_at_a_time(path: Path) -> None:
    code = """
import asyncio, sys, kvstore, kvstore.aio
async def main():
    async with kvstore.aio.open(sys.argv[1], busy_timeout=60) as db:
        @kvstore.memoize(db, name="f")
        async def f(x):
            print("computing", flush=True)
            await asyncio.sleep(0.3)
            return x
        assert await asyncio.gather(*(f(1) for _ in range(5))) == [1] * 5
asyncio.run(main())
"""
    children = [
        subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    outputs = [child.communicate(timeout=100)[0] for child in children]
    assert [child.returncode for child in children] == [0, 0, 0]
    assert "".join(outputs).count("computing") == 1


def test_call_computes_after_lease_of_another_process_ends(run: Any, clock: Clock) -> None:
    async def work(db: Any) -> None:
        @kvstore.memoize(db, name="f", lease=5)
        async def function() -> int:
            return 1

        lease = function.cache_key().replace(b":=", b":~")
        if isinstance(db, kvstore.aio.Store):
            await db.put(lease, b"of another process", ttl=5)
        else:
            db.put(lease, b"of another process", ttl=5)
        task = asyncio.create_task(function())
        await asyncio.sleep(0.05)
        assert not task.done()
        clock.advance(5)
        assert await task == 1

    run(work, clock)


def test_waiting_call_computes_after_lease_of_its_own_loop_ends(run: Any) -> None:
    async def work(db: Any) -> None:
        calls: list[int] = []

        @kvstore.memoize(db, lease=1)
        async def function() -> int:
            calls.append(1)
            if len(calls) == 1:
                await asyncio.sleep(3600)
            return len(calls)

        first = asyncio.create_task(function())
        while not calls:
            await asyncio.sleep(0.001)
        assert await function() == 2 and await function() == 2
        first.cancel()

    run(work)


def test_call_after_cache_clear_does_not_get_earlier_result(run: Any) -> None:
    async def work(db: Any) -> None:
        go = asyncio.Event()
        calls: list[int] = []

        @kvstore.memoize(db)
        async def function() -> int:
            calls.append(1)
            number = len(calls)
            if number == 1:
                await go.wait()
            return number

        first = asyncio.create_task(function())
        while not calls:
            await asyncio.sleep(0.001)
        await function.cache_clear()
        assert await function() == 2
        go.set()
        assert await first == 1
        assert await function() == 2

    run(work)


def test_stale_result_is_returned_and_recomputed_by_one_task(run: Any, clock: Clock) -> None:
    async def work(db: Any) -> None:
        go = asyncio.Event()
        calls: list[int] = []

        @kvstore.memoize(db, ttl=10, stale=100)
        async def function() -> int:
            calls.append(1)
            number = len(calls)
            if number > 1:
                await go.wait()
            return number

        assert await function() == 1
        clock.advance(5)
        assert await function() == 1 and len(calls) == 1
        clock.advance(6)
        assert await asyncio.gather(*(function() for _ in range(10))) == [1] * 10
        while len(calls) < 2:
            await asyncio.sleep(0.001)
        assert await function() == 1 and len(calls) == 2
        go.set()
        while await function() == 1:
            await asyncio.sleep(0.001)
        assert await function() == 2 and len(calls) == 2
        clock.advance(111)
        assert await function() == 3

    run(work, clock)


def test_failed_recomputation_is_reported_and_tried_again(run: Any, clock: Clock) -> None:
    async def work(db: Any) -> None:
        calls: list[int] = []
        reports: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: reports.append(context))

        @kvstore.memoize(db, ttl=10, stale=100)
        async def function() -> int:
            calls.append(1)
            if len(calls) == 2:
                raise LookupError("twice")
            return len(calls)

        async def reported() -> None:
            while not reports:
                await asyncio.sleep(0.001)

        await function()
        clock.advance(11)
        assert await function() == 1
        await reported()
        assert isinstance(reports[0]["exception"], LookupError) and "function" in reports[0]["message"]
        await asyncio.sleep(0.05)
        for _ in range(5):
            assert await function() == 1
            await asyncio.sleep(0.001)
        assert len(calls) == 2  # not at each hit
        clock.advance(1)
        while await function() == 1:
            await asyncio.sleep(0.001)
        assert len(calls) == 3 and len(reports) == 1

    run(work, clock)


def test_recomputation_cancelled_with_its_loop_leaves_no_lease(path: Path, clock: Clock) -> None:
    with kvstore.open(path) as db:
        db.set_clock(clock)
        calls: list[int] = []

        @kvstore.memoize(db, ttl=10, stale=100)
        async def function() -> int:
            calls.append(1)
            if len(calls) == 2:
                await asyncio.sleep(3600)
            return len(calls)

        async def hit() -> int:
            found = await function()
            while len(calls) < 2:
                await asyncio.sleep(0.001)
            return found

        assert asyncio.run(function()) == 1
        clock.advance(11)
        assert asyncio.run(hit()) == 1

        async def again() -> None:
            while await function() == 1:
                await asyncio.sleep(0.001)

        asyncio.run(asyncio.wait_for(again(), 30))
        assert len(calls) == 3


def test_results_are_returned_from_busy_store_without_blocking_the_loop(path: Path) -> None:
    calls: list[int] = []
    db = kvstore.open(path, busy_timeout=0.3)
    other = kvstore.open(path)

    @kvstore.memoize(db)
    async def function() -> int:
        calls.append(1)
        return len(calls)

    async def work() -> None:
        task = asyncio.create_task(function())
        longest = 0.0
        while not task.done():
            began = time.perf_counter()
            await asyncio.sleep(0.001)
            longest = max(longest, time.perf_counter() - began)
        assert await task == 1
        assert longest < 0.2
        assert (await function.cache_info()).errors >= 1

    with other.transaction():
        other["a"] = "1"
        asyncio.run(work())
    assert asyncio.run(function()) == 2
    assert asyncio.run(function()) == 2
    db.close()
    other.close()


@pytest.fixture(params=["sync", "aio"])
def opened(request: pytest.FixtureRequest, path: Path) -> Callable[[float], Any]:
    """A function that opens a store with a busy_timeout."""
    return lambda busy: (kvstore if request.param == "sync" else kvstore.aio).open(path, busy_timeout=busy)


async def close(db: Any) -> None:
    if isinstance(db, kvstore.aio.Store):
        await db.close()
    else:
        db.close()


def test_waits_of_many_calls_for_busy_store_do_not_add_up(opened: Any, path: Path) -> None:
    async def main() -> None:
        db = opened(0.2)

        @kvstore.memoize(db)
        async def function(number: int) -> int:
            return number

        await function(-1)
        with kvstore.open(path) as other, other.transaction():
            other["a"] = "1"
            began = time.monotonic()
            assert await asyncio.gather(*(function(number) for number in range(50))) == list(range(50))
            assert time.monotonic() - began < 5  # 50 waits would take 10 seconds
        assert await function(1) == 1
        assert (await function.cache_info()).currsize == 2
        await close(db)

    asyncio.run(main())


def test_next_call_ends_lease_whose_release_failed(opened: Any, path: Path) -> None:
    async def main() -> None:
        db, other = opened(0.05), kvstore.open(path)
        writing = other.transaction()

        @kvstore.memoize(db, lease=60)
        async def function() -> int:
            if not calls:
                calls.append(1)
                writing.__enter__()
                other["a"] = "1"
                raise LookupError
            return 2

        calls: list[int] = []
        with pytest.raises(LookupError):
            await function()
        while not (await function.cache_info()).errors:
            await asyncio.sleep(0.01)
        writing.__exit__(None, None, None)
        other.close()
        assert await asyncio.wait_for(function(), 30) == 2
        await close(db)

    asyncio.run(main())


def test_call_in_task_that_a_transaction_waits_for_is_computed(path: Path) -> None:
    async def main() -> None:
        async with kvstore.aio.open(path, busy_timeout=0.05) as db:

            @kvstore.memoize(db)
            async def function(number: int) -> int:
                return number

            async with db.transaction() as tx:
                await tx.put("a", b"1")
                assert await asyncio.wait_for(asyncio.gather(function(1), function(2)), 30) == [1, 2]
            assert (await function.cache_info())[2:] == (0, 2)
            assert await function(1) == 1
            assert (await function.cache_info()).currsize == 1
            assert [key async for key in db.keys() if b":~" in key] == []

    asyncio.run(main())


def test_result_is_returned_if_no_thread_can_be_started(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def main() -> None:
        db = opened(5)

        @kvstore.memoize(db)
        async def function() -> int:
            return 1

        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", start)
            assert await function() == 1
        assert await function() == 1
        info = await function.cache_info()
        assert info.errors >= 1 and info.currsize == 1
        await close(db)

    asyncio.run(main())


def test_result_of_unsupported_type_raises_and_leaves_no_lease(run: Any) -> None:
    async def work(db: Any) -> None:
        results: list[Any] = [object(), 5]

        @kvstore.memoize(db)
        async def function() -> Any:
            return results.pop(0)

        with pytest.raises(TypeError, match="serializer"):
            await function()
        assert await asyncio.wait_for(function(), 10) == 5

    run(work)


def test_large_result_is_shared_though_it_cannot_be_kept(path: Path) -> None:
    calls: list[int] = []

    async def work() -> None:
        async with kvstore.aio.open(path, max_value_size=1000) as db:

            @kvstore.memoize(db)
            async def function() -> bytes:
                calls.append(1)
                await asyncio.sleep(0.01)
                return b"x" * 5000

            assert await asyncio.gather(*(function() for _ in range(5))) == [b"x" * 5000] * 5
            assert len(calls) == 1
            assert (await function.cache_info()).errors == 1

    asyncio.run(work())


def test_closed_store_raises_misuse_error(run: Any) -> None:
    async def work(db: Any) -> None:
        @kvstore.memoize(db)
        async def function() -> int:
            return 1

        await function()
        if isinstance(db, kvstore.aio.Store):
            await db.close()
        else:
            db.close()
        with pytest.raises(kvstore.MisuseError):
            await function()

    run(work)


def test_call_inside_transaction_of_its_task_is_computed(path: Path) -> None:
    async def work() -> None:
        async with kvstore.aio.open(path) as db:

            @kvstore.memoize(db)
            async def function() -> int:
                return 1

            async with db.transaction() as tx:
                await tx.put("a", "1")
                assert await function() == 1
            assert await function() == 1
            assert (await function.cache_info())[:3] == (0, 2, 1)

    asyncio.run(work())


def test_results_in_family_with_codec_are_kept(path: Path) -> None:
    async def work() -> None:
        async with kvstore.aio.open(path, codec=kvstore.JSON, keys=str) as db:
            family = await db.family("cache", create=True, default_ttl=60)

            @kvstore.memoize(family)
            async def function() -> tuple[int, ...]:
                return (1, 2)

            assert await function() == (1, 2) == await function()
            assert await family.count() == 1 and await db.count() == 0

    asyncio.run(work())


def test_worker_threads_end_with_their_store(path: Path) -> None:
    before = {thread.ident for thread in threading.enumerate()}

    def use() -> None:
        db = kvstore.open(path)

        @kvstore.memoize(db)
        async def function() -> int:
            return 1

        assert asyncio.run(function()) == 1

    use()
    gc.collect()
    until = time.monotonic() + 30
    while {thread.ident for thread in threading.enumerate()} - before:
        assert time.monotonic() < until
        time.sleep(0.001)
