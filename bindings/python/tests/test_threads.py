"""Threads: one handle shared, one handle each, closing meanwhile. No test here depends on timing to pass."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import kvstore


def together(*works: Callable[[], Any]) -> list[Any]:
    """Runs all at once; the first exception comes out."""
    barrier = threading.Barrier(len(works))

    def run(work: Callable[[], Any]) -> Any:
        barrier.wait()
        return work()

    with ThreadPoolExecutor(len(works)) as pool:
        return [future.result() for future in [pool.submit(run, work) for work in works]]


def test_many_threads_write_through_one_handle(db: kvstore.Store) -> None:
    def work(thread: int) -> None:
        for number in range(200):
            db[f"{thread}-{number}"] = f"{thread * number}"

    together(*[lambda t=t: work(t) for t in range(8)])
    assert len(db) == 1600
    assert db["7-199"] == b"1393"


def test_increments_of_many_threads_add_up(db: kvstore.Store) -> None:
    together(*[lambda: [db.incr("n") for _ in range(200)] for _ in range(6)])
    assert db["n"] == b"1200"


def test_every_number_of_a_counter_is_given_once(db: kvstore.Store) -> None:
    given = together(*[lambda: [db.incr("n") for _ in range(100)] for _ in range(6)])
    assert sorted(n for numbers in given for n in numbers) == list(range(1, 601))


def test_only_one_of_many_threads_adds_a_key(db: kvstore.Store) -> None:
    for number in range(30):
        assert sum(together(*[lambda: db.add(f"{number}", b"") for _ in range(6)])) == 1


def test_a_handle_in_each_thread_reads_while_one_writes(path: Path) -> None:
    with kvstore.open(path) as writer:
        with writer.transaction():
            writer["a"], writer["b"] = b"0", b"0"
        done = threading.Event()

        def write() -> None:
            try:
                for number in range(300):
                    with writer.transaction():
                        writer["a"] = writer["b"] = str(number)
            finally:
                done.set()

        def read() -> None:
            with kvstore.open(path, busy_timeout=10) as reader:
                while not done.is_set():
                    with reader.transaction(write=False):
                        assert reader["a"] == reader["b"]
                    both = reader.get_many(["a", "b"])
                    assert both["a"] == both["b"]

        together(write, read, read, read)


def test_writers_with_handles_of_their_own_wait_for_each_other(path: Path) -> None:
    kvstore.open(path).close()

    def work() -> None:
        with kvstore.open(path, busy_timeout=60) as store:
            for _ in range(50):
                store.incr("n")
                with store.transaction():
                    store["m"] = str(int(store.get("m", b"0")) + 1)

    together(work, work, work, work)
    with kvstore.open(path) as store:
        assert (store["n"], store["m"]) == (b"200", b"200")


def test_close_while_others_read_is_a_misuse_error_for_them(path: Path) -> None:
    for _ in range(20):
        store = kvstore.open(path)
        store.put_many({f"{n}": b"v" for n in range(100)})
        started = threading.Barrier(4)

        def read(ask: Callable[[], Any]) -> str:
            started.wait()
            try:
                while True:
                    ask()
            except kvstore.MisuseError:
                return "misuse"

        def close() -> str:
            started.wait()
            store.close()
            return "closed"

        with ThreadPoolExecutor(4) as pool:
            futures = [
                pool.submit(read, lambda: store["5"]),
                pool.submit(read, lambda: list(store.items())),
                pool.submit(read, lambda: store.get_many(["1", "2"])),
                pool.submit(close),
            ]
            assert [future.result() for future in futures] == ["misuse"] * 3 + ["closed"]


def test_many_threads_may_close_at_once(path: Path) -> None:
    for _ in range(30):
        store = kvstore.open(path)
        together(*[store.close for _ in range(4)])


def test_an_iterator_that_threads_share_gives_every_key_once(db: kvstore.Store) -> None:
    """Or says that it is in use; but no key twice, none mangled, and never an end that is none."""
    db.put_many({f"{n:05}": f"{n:05}" for n in range(5000)})
    for view in (db.keys, db.items):
        iterator = iter(view())

        def drain() -> list[Any]:
            got = []
            while True:
                try:
                    got.append(next(iterator))
                except StopIteration:
                    return got
                except (ValueError, kvstore.Error):
                    pass

        keys = [row if isinstance(row, bytes) else row[0] for rows in together(*[drain] * 4) for row in rows]
        assert sorted(keys) == [b"%05d" % n for n in range(5000)]


def test_transactions_of_several_threads_on_one_handle_never_mix(db: kvstore.Store) -> None:
    """A transaction belongs to the handle: while one is open, another thread's begin is refused or waits."""
    db["n"] = b"0"

    def work() -> int:
        done = 0
        while done < 50:
            try:
                with db.transaction():
                    db["n"] = str(int(db["n"]) + 1)
            except kvstore.Error as error:
                assert "transaction" in str(error), error
            else:
                done += 1
        return done

    assert sum(together(work, work, work)) == 150
    assert db["n"] == b"150"


def test_error_texts_are_whole_when_many_threads_fail_at_once(db: kvstore.Store) -> None:
    db["text"] = b"x"
    texts: dict[str, set[str]] = {"a": set(), "b": set()}

    def fail(name: str, call: Callable[[], Any]) -> None:
        for _ in range(500):
            try:
                call()
            except Exception as error:
                texts[name].add(str(error))

    together(
        lambda: fail("a", lambda: db.incr("text")),
        lambda: fail("a", lambda: db.incr("text")),
        lambda: fail("b", lambda: db.family("__reserved", create=True)),
        lambda: fail("b", lambda: db.family("__reserved", create=True)),
    )
    assert len(texts["a"] | texts["b"]) == 2, texts


def test_families_are_made_and_dropped_while_others_use_them(db: kvstore.Store) -> None:
    def make() -> None:
        for number in range(40):
            name = f"f{number % 4}"
            try:
                family = db.family(name, create=True)
                family["k"] = b"v"
                del family
                db.drop_family(name)
            except kvstore.Error:
                pass

    together(make, make, make)
    db.integrity_check()


def test_the_cleaner_runs_beside_readers_and_writers(path: Path) -> None:
    with kvstore.open(path, busy_timeout=10) as store:
        store.start_cleaner(0.001)

        def work() -> None:
            for number in range(300):
                store.put(f"{threading.get_ident()}-{number}", b"v", ttl=0.001)
                list(store.items(limit=10))

        together(work, work)
        store.stop_cleaner()
        store.integrity_check()


def test_the_clock_may_be_read_from_any_thread(db: kvstore.Store) -> None:
    db.put("k", b"v", ttl=1000)
    assert together(*[lambda: [db.ttl("k") for _ in range(100)][0]] * 4) == [1000.0] * 4


@pytest.mark.parametrize("method", ["get", "items", "purge_expired"])
def test_other_threads_run_while_the_library_works(db: kvstore.Store, method: str) -> None:
    """The GIL is released: a thread that only counts moves on while another is inside calls."""
    db.put_many({f"{n:05}": b"v" * 100 for n in range(3000)})
    calls = {"get": lambda: db["00001"], "items": lambda: list(db.items()), "purge_expired": db.purge_expired}
    counted = [0]
    stop = threading.Event()

    def count() -> None:
        while not stop.is_set():
            counted[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    try:
        while counted[0] < 3:
            calls[method]()
    finally:
        stop.set()
        thread.join()
