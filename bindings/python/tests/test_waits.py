"""A signal handler runs while a call waits for a lock, and its exception ends the wait."""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Callable

import pytest

import kvstore
from kvstore import aio
from kvstore.recipes import Lock

pytestmark = pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="no signals between threads in this system")

#: Seconds that calls wait for a lock; a test that waits for so long fails by its time limit.
PATIENCE = 200.0


class Alarm(BaseException):
    """The exception of the signal handler, which no code of the package expects."""


@pytest.fixture
def handler() -> Iterator[None]:
    """A signal handler that raises Alarm."""

    def raises(number: int, frame: Any) -> None:
        raise Alarm

    before = signal.signal(signal.SIGUSR1, raises)
    yield
    signal.signal(signal.SIGUSR1, before)


@contextmanager
def interrupted(start: bool = True) -> Iterator[threading.Timer]:
    """A block that a signal interrupts while it waits for a lock; with ``start`` false, after the block starts the
    timer.
    """
    kill: Any = signal.pthread_kill
    timer = threading.Timer(0.1, kill, (threading.get_ident(), signal.SIGUSR1))
    ended = False
    with pytest.raises(Alarm):
        if start:
            timer.start()
        yield timer
        ended = True
        time.sleep(PATIENCE)  # until the signal
    timer.join()
    assert not ended, "the call did not wait"


@pytest.fixture
def busy(path: Path) -> Iterator[kvstore.Store]:
    """A store whose write lock another store object holds."""
    with kvstore.open(path, busy_timeout=PATIENCE) as store, kvstore.open(path) as other:
        store["k"] = b"1"
        with other.transaction():
            other["k"] = b"2"
            yield store


def begins(store: kvstore.Store) -> None:
    with store.transaction():
        pass


def batches(store: kvstore.Store) -> None:
    with store.batch() as batch:
        batch.put("k", b"3")


def memoizes(store: kvstore.Store) -> None:
    @kvstore.memoize(store, ttl=60)
    def square(n: int) -> int:
        return n * n

    square(3)


def locks(store: kvstore.Store) -> None:
    with Lock(store, "l", ttl=60):
        pass


WORK: list[Callable[[kvstore.Store], Any]] = [
    lambda store: store.put("k", b"3"),
    lambda store: store.put_many({"k": b"3"}),
    lambda store: store.delete("k"),
    lambda store: store.pop("k"),
    lambda store: store.incr("n"),
    lambda store: store.compare_and_swap("k", b"1", b"3"),
    lambda store: store.clear(),
    lambda store: store.family("new", create=True),
    begins,
    batches,
    memoizes,
    locks,
]


@pytest.mark.timeout(170)
@pytest.mark.parametrize("work", WORK)
def test_exception_of_signal_handler_ends_the_wait(
    busy: kvstore.Store, handler: None, work: Callable[[kvstore.Store], Any]
) -> None:
    with interrupted():
        work(busy)
    assert busy["k"] == b"1"
    assert not busy._state.in_transaction()


@pytest.mark.timeout(170)
def test_exception_of_signal_handler_ends_wait_of_a_reader(path: Path, handler: None) -> None:
    options: Any = {"journal_mode": "delete", "busy_timeout": PATIENCE, "cache_size": 10}
    with kvstore.open(path, **options) as store, kvstore.open(path, **options) as other:
        store["k"] = b"1"
        with other.transaction() as tx:
            other.put_many({b"%d" % n: bytes(100_000) for n in range(200)})
            for work in (lambda: store["k"], lambda: list(store), lambda: store.get_many(["k"])):
                with interrupted():
                    work()
            tx.rollback()
        assert list(store) == [b"k"]


def test_signal_handler_without_exception_does_not_end_the_wait(path: Path) -> None:
    runs: list[None] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: runs.append(None))
    main: Any = threading.get_ident()
    try:
        with kvstore.open(path, busy_timeout=PATIENCE) as store, kvstore.open(path) as other:
            begun, pause = threading.Event(), threading.Event()

            def hold() -> None:
                with other.transaction():
                    begun.set()
                    while len(runs) < 3:
                        signal.pthread_kill(main, signal.SIGUSR1)
                        pause.wait(0.01)
                    other["k"] = b"2"

            holder = threading.Thread(target=hold)
            holder.start()
            begun.wait()
            store.put("k", b"3")  # ends only if the handler runs three times during the wait
            holder.join()
            assert store["k"] == b"3"
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.timeout(170)
def test_keyboard_interrupt_ends_wait_in_the_child_of_a_fork(busy: kvstore.Store, path: Path) -> None:
    if sys.platform == "win32" or "fork" not in multiprocessing.get_all_start_methods():
        pytest.skip("no fork in this system")
    context: Any = multiprocessing.get_context("fork")

    def child() -> None:
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        try:
            busy["k"] = b"3"
        except KeyboardInterrupt:
            sys.exit(7)

    process = context.Process(target=child)
    process.start()
    process.join()
    assert process.exitcode == 7


@pytest.mark.timeout(170)
def test_second_interrupt_ends_the_release_of_a_lease(path: Path, handler: None) -> None:
    """The lease cannot be released, because the store is busy: it ends by its TTL."""
    with kvstore.open(path, busy_timeout=PATIENCE) as store, kvstore.open(path) as other:
        for with_block in (True, False):
            transaction = other.transaction()

            def computes(timer: threading.Timer, transaction: kvstore.Transaction = transaction) -> int:
                transaction.__enter__()
                other["k"] = b"2"
                timer.start()
                raise KeyboardInterrupt

            with interrupted(start=False) as timer:
                if with_block:
                    with Lock(store, "l", ttl=60):
                        computes(timer)
                else:
                    kvstore.memoize(store, ttl=60, ignore=["timer", "transaction"])(computes)(timer)
            transaction.rollback()


@pytest.mark.timeout(170)
def test_cancelled_task_ends_its_wait(busy: kvstore.Store, path: Path) -> None:
    async def main() -> None:
        async with aio.open(path, busy_timeout=PATIENCE) as store:
            works: list[Callable[[], Any]] = [lambda: store.put("k", b"3"), lambda: begins(), lambda: store.incr("n")]

            async def begins() -> None:
                async with store.transaction():
                    pass

            for work in works:
                await store.get("k")
                task = asyncio.ensure_future(work())
                await asyncio.sleep(0.05)
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            assert await store.get("k") == b"1"
        # Closing the store waits for the calls that were cancelled.

    asyncio.run(main())


PROGRAM = """
import signal, sys, time
import kvstore

signal.signal(signal.SIGALRM, signal.default_int_handler)
store = kvstore.open(sys.argv[1], busy_timeout=200)
signal.setitimer(signal.ITIMER_REAL, 0.1)
try:
    {call}
except KeyboardInterrupt:
    print("interrupted", end="")
"""


@pytest.mark.timeout(170)
@pytest.mark.parametrize("call", ["store['k'] = b'3'", "store.transaction().__enter__(); store['k'] = b'3'", "store.incr('k')"])
def test_program_gets_keyboard_interrupt_while_server_row_is_locked(url: str, call: str) -> None:
    with kvstore.open(url) as holder:
        holder["k"] = b"1"
        with holder.transaction():
            holder["k"] = b"2"
            program = [sys.executable, "-c", PROGRAM.format(call=call), url]
            assert subprocess.run(program, capture_output=True, text=True, timeout=160).stdout == "interrupted"
        holder["k"] = b"5"  # no statement of the interrupted program holds a lock
        assert holder["k"] == b"5"
