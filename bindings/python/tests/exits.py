"""Programs that end while a store is open; test_exits.py runs each in its own process.

Usage: python exits.py HOW STORE PASSWORD (an empty password: a plain store).
"""

from __future__ import annotations

import asyncio
import atexit
import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable

import kvstore
import kvstore.aio

HOW: dict[str, Callable[[], None]] = {}
ready = threading.Semaphore(0)
kept: list[Any] = []


def how(function: Callable[[], None]) -> Callable[[], None]:
    HOW[function.__name__] = function
    return function


def open_store() -> Any:
    path, password = sys.argv[2:]
    return kvstore.open(path, password=password) if password else kvstore.open(path)


def put_and_get(db: Any, name: str) -> None:
    for number in range(1_000_000_000):
        key = f"{name} {number % 500}"
        try:
            db[key] = key.encode()
            assert db[key] == key.encode()
        except kvstore.MisuseError:
            return  # a handler has closed the store
        if number == 10:
            ready.release()


def start_threads(db: Any) -> None:
    for name in ("one", "two"):
        threading.Thread(target=put_and_get, args=(db, name), daemon=True).start()
    for _ in range(2):
        ready.acquire()


def start_cleaner(db: Any) -> None:
    db.put_many([(f"expiring {number}", b"value") for number in range(200)], ttl=0.002)
    db.start_cleaner(interval=0.001)


@how
def left_open() -> None:
    """A store in a module variable."""
    kept.append(open_store())
    kept[0]["key"] = b"value"


@how
def cleaner() -> None:
    kept.append(open_store())
    start_cleaner(kept[0])


@how
def daemon_threads() -> None:
    """Threads that the interpreter stops inside puts and gets."""
    kept.append(open_store())
    start_threads(kept[0])


@how
def closed_by_handler() -> None:
    """A handler of atexit closes the store while threads use it."""
    db = open_store()
    atexit.register(db.close)
    start_cleaner(db)
    start_threads(db)


@how
def used_by_finalizer() -> None:
    """An object that writes to the store when the interpreter deletes it."""

    class Last:
        def __init__(self) -> None:
            self.db = open_store()

        def __del__(self) -> None:
            self.db["last"] = b"value"
            self.db.close()

    kept.append(Last())
    kept.append(kept)


@how
def open_iterator_and_transaction() -> None:
    db = open_store()
    db.put_many([(f"key {number}", b"value") for number in range(1000)])
    rows = iter(db.items())
    next(rows)
    transaction = db.transaction()
    transaction.__enter__()
    db["key 1"] = b"not committed"
    kept.extend((db, rows, transaction))


@how
def pool_with_waiting_calls() -> None:
    """A pool of threads, which Python joins at exit."""
    db = open_store()
    pool = ThreadPoolExecutor(4)
    for number in range(200):
        pool.submit(db.put, f"key {number}", b"value")
    kept.extend((db, pool))


@how
def event_loop_left() -> None:
    """An asynchronous store that is left open when the loop ends."""

    async def use() -> None:
        path, password = sys.argv[2:]
        db = await (kvstore.aio.open(path, password=password) if password else kvstore.aio.open(path))
        await db.put("key", b"value")
        kept.append(db)
        kept.append(asyncio.ensure_future(db.put("late", b"value")))

    asyncio.run(use())


@how
def os_exit() -> None:
    """No handler runs at all."""
    db = open_store()
    start_cleaner(db)
    start_threads(db)
    os._exit(0)


@how
def killed() -> None:
    db = open_store()
    start_cleaner(db)
    start_threads(db)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    HOW[sys.argv[1]]()
