"""Threads: each has its own connection, or its own store. No test here depends on timing to pass."""

from __future__ import annotations

import _threading_local
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from helpers import Clock, open_files_of

import kvstore
from kvstore._native import Handles


@pytest.fixture
def db(path: Path, clock: Clock) -> Iterator[kvstore.Store]:
    """A store with a busy timeout, so that writing threads wait for each other."""
    with kvstore.open(path, busy_timeout=60, sync="off") as store:
        store.set_clock(clock)
        yield store


def together(*works: Callable[[], Any]) -> list[Any]:
    """Run all functions concurrently, and raise the first exception."""
    barrier = threading.Barrier(len(works))

    def run(work: Callable[[], Any]) -> Any:
        barrier.wait()
        return work()

    with ThreadPoolExecutor(len(works)) as pool:
        return [future.result() for future in [pool.submit(run, work) for work in works]]


def test_many_threads_write_through_one_store(db: kvstore.Store) -> None:
    def work(thread: int) -> None:
        for number in range(200):
            db[f"{thread}-{number}"] = f"{thread * number}"

    together(*[lambda t=t: work(t) for t in range(8)])
    assert len(db) == 1600
    assert db["7-199"] == b"1393"


def test_concurrent_increments_add_up(db: kvstore.Store) -> None:
    together(*[lambda: [db.incr("n") for _ in range(200)] for _ in range(6)])
    assert db["n"] == b"1200"


def test_counter_returns_each_number_once(db: kvstore.Store) -> None:
    given = together(*[lambda: [db.incr("n") for _ in range(100)] for _ in range(6)])
    assert sorted(n for numbers in given for n in numbers) == list(range(1, 601))


def test_concurrent_add_succeeds_in_one_thread(db: kvstore.Store) -> None:
    for number in range(30):
        assert sum(together(*[lambda: db.add(f"{number}", b"") for _ in range(6)])) == 1


def test_threads_with_own_handles_read_during_writes(path: Path) -> None:
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


@pytest.mark.files
def test_writers_with_own_handles_wait_for_each_other(path: Path) -> None:
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


def test_close_during_reads_of_threads_gives_misuse_error(path: Path) -> None:
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


def test_concurrent_close_is_safe(path: Path) -> None:
    for _ in range(30):
        store = kvstore.open(path)
        together(*[store.close for _ in range(4)])


def test_iterator_shared_by_threads_returns_each_key_once(db: kvstore.Store) -> None:
    """It may report that it is in use; but no key is repeated or damaged, and it never ends early."""
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


@pytest.mark.files
def test_transactions_of_threads_are_isolated(db: kvstore.Store) -> None:
    db["n"] = b"0"

    def work() -> None:
        for _ in range(50):
            with db.transaction():
                db["n"] = str(int(db["n"]) + 1)

    together(work, work, work)
    assert db["n"] == b"150"


def in_another_thread(work: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


def test_other_threads_do_not_see_uncommitted_writes(db: kvstore.Store) -> None:
    db["k"] = b"before"
    family = db.family("f", create=True)
    with db.transaction():
        db["k"] = b"after"
        family["k"] = b"after"
        look = lambda: (db["k"], list(db.items()), family.get("k"), len(family))  # noqa: E731
        assert in_another_thread(look) == (b"before", [(b"k", b"before")], None, 0)
        assert look() == (b"after", [(b"k", b"after")], b"after", 1)
    assert in_another_thread(look) == (b"after", [(b"k", b"after")], b"after", 1)


@pytest.mark.files
def test_write_of_other_thread_is_busy_until_transaction_ends(path: Path) -> None:
    with kvstore.open(path, busy_timeout=0) as store, ThreadPoolExecutor(1) as pool:
        with pytest.raises(ZeroDivisionError):
            with store.transaction():
                store["k"] = b"rolled back"
                with pytest.raises(kvstore.BusyError):
                    pool.submit(store.put, "k", b"other").result()
                with pytest.raises(kvstore.BusyError):
                    pool.submit(store.transaction().__enter__).result()
                1 / 0
        assert "k" not in store
        pool.submit(store.put, "k", b"other").result()
        assert store["k"] == b"other"


@pytest.mark.parametrize("mode", ["wal", "delete"])
@pytest.mark.parametrize("write", [True, False])
def test_first_use_by_thread_during_transaction_can_read(path: Path, mode: str, write: bool) -> None:
    with kvstore.open(path, journal_mode=mode, busy_timeout=0) as store:
        store["k"] = b"before"
        with store.transaction(write):
            if write:
                store["k"] = b"after"
            assert store["k"] == (b"after" if write else b"before")
            assert in_another_thread(lambda: (store["k"], list(store), store.families())) == (b"before", [b"k"], [])


@pytest.mark.files
def test_unreferenced_store_used_by_threads_is_closed(path: Path) -> None:
    with ThreadPoolExecutor(3) as pool:
        stores = [kvstore.open(path)]
        family = stores[0].family("f", create=True)
        for _ in range(9):
            pool.submit(lambda: stores[0].get("k")).result()
        pool.submit(lambda: family.get("k")).result()
        assert open_files_of(path) > 0
        stores.clear()
        assert family.get("k") is None
        del family
        gc.collect()
        assert open_files_of(path) == 0


def test_snapshot_belongs_to_its_thread(db: kvstore.Store) -> None:
    db["k"] = b"1"
    with db.snapshot():
        assert db["k"] == b"1"
        in_another_thread(lambda: db.put("k", b"2"))
        assert db["k"] == b"1"
        assert in_another_thread(lambda: db["k"]) == b"2"
    assert db["k"] == b"2"


@pytest.mark.parametrize("settings", [{"exclusive": True}, {}], ids=["exclusive", "in memory"])
@pytest.mark.files
def test_threads_share_store_with_one_connection(path: Path, settings: Any) -> None:
    with kvstore.open(path if settings else ":memory:", **settings) as store:
        family = store.family("f", create=True)

        def work() -> None:
            for _ in range(30):
                with store.transaction():
                    store["n"] = str(int(store.get("n", b"0")) + 1)
                    family["n"] = store["n"]

        together(work, work, work, work)
        assert (store["n"], family["n"]) == (b"120", b"120")


@pytest.mark.files
def test_threads_read_concurrently(path: Path) -> None:
    """While one thread is inside a read (its progress function waits), another gets its result."""
    with kvstore.open(path) as store:
        store.put_many({f"{n}": b"v" * 1000 for n in range(3000)})
        inside, answered = threading.Event(), threading.Event()

        def progress(remaining: int, total: int) -> None:
            inside.set()
            assert answered.wait(60)

        def read() -> None:
            assert inside.wait(60)
            assert store["5"] == b"v" * 1000
            assert len(list(store.items())) == 3000
            answered.set()

        together(lambda: store.backup(path.with_suffix(".copy"), progress), read)


def test_connections_of_ended_threads_are_closed(path: Path) -> None:
    with kvstore.open(path) as store:
        store["k"] = b"v"
        of_one = open_files_of(path)
        barrier = threading.Barrier(41)

        def work() -> None:
            store.get("k")
            barrier.wait(60)

        threads = [threading.Thread(target=work) for _ in range(40)]
        for thread in threads:
            thread.start()
        while barrier.n_waiting < 40:
            pass
        assert open_files_of(path) == 41 * of_one
        barrier.wait(60)
        for thread in threads:
            thread.join()
        gc.collect()
        assert open_files_of(path) <= (1 + 4) * of_one
        assert store.stats().gets == 40
    assert open_files_of(path) == 0


def test_successive_threads_reuse_connections(path: Path) -> None:
    with kvstore.open(path) as store:
        store.get("k")
        of_one = open_files_of(path)
        store.stats_reset()
        for _ in range(50):
            in_another_thread(lambda: store.get("k"))
        assert open_files_of(path) <= 2 * of_one
        assert store.stats().misses == 50


def test_transaction_left_open_is_rolled_back_at_thread_end(path: Path) -> None:
    with kvstore.open(path, busy_timeout=0) as store:

        def work() -> None:
            store.transaction().__enter__()
            store["k"] = b"v"

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        gc.collect()
        store["other"] = b"v"
        assert list(store) == [b"other"]
        assert in_another_thread(lambda: store.put("third", b"v"))


@pytest.mark.files
def test_unreferenced_transaction_of_live_thread_yields(path: Path) -> None:
    with kvstore.open(path, busy_timeout=0) as store, ThreadPoolExecutor(1) as pool:

        def forget() -> None:
            store.transaction().__enter__()
            store["k"] = b"v"

        pool.submit(forget).result()
        gc.collect()
        with store.transaction():
            store["other"] = b"v"
        assert pool.submit(list, store).result() == [b"other"]


def test_stats_are_summed_over_threads(db: kvstore.Store) -> None:
    db["k"] = b"v"
    together(*[lambda: [db["k"] for _ in range(10)] for _ in range(7)])
    assert (db.stats().gets, db.stats().puts) == (70, 1)
    db.stats_reset()
    assert db.stats().gets == 0
    assert in_another_thread(lambda: db.stats().puts) == 0


def test_clock_applies_to_existing_and_new_threads(path: Path) -> None:
    clock = Clock()
    with kvstore.open(path) as store, ThreadPoolExecutor(1) as pool:
        store.put("k", b"v", expires_at=clock.now_s + 10)
        pool.submit(store.get, "k").result()
        store.set_clock(clock)
        assert pool.submit(store.ttl, "k").result() == 10.0
        clock.advance(10)
        assert pool.submit(store.get, "k").result() is None
        assert in_another_thread(lambda: store.get("k")) is None
        store.set_clock(None)


def test_cleaner_is_shared_and_outlives_starting_thread(path: Path) -> None:
    with kvstore.open(path) as store:
        in_another_thread(lambda: store.start_cleaner(3600))
        gc.collect()
        for start in (lambda: store.start_cleaner(1), lambda: in_another_thread(lambda: store.start_cleaner(1))):
            with pytest.raises(kvstore.Error, match="already running"):
                start()
        in_another_thread(store.stop_cleaner)
        store.start_cleaner(3600)
        store.stop_cleaner()


def test_close_closes_for_all_threads(path: Path) -> None:
    store = kvstore.open(path)
    family = store.family("f", create=True)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(store.get, "k").result()
        pool.submit(family.get, "k").result()
        store.close()
        assert open_files_of(path) == 0
        for use in (
            lambda: store.get("k"), lambda: store.put("k", b""), lambda: family.get("k"), lambda: list(store),
            store.stats, store.families, store.batch, lambda: store.transaction().__enter__(),
        ):  # fmt: skip
            with pytest.raises(kvstore.MisuseError, match="store is closed"):
                pool.submit(use).result()
            with pytest.raises(kvstore.MisuseError, match="store is closed"):
                use()


def test_misuse_error_has_no_exception_context(path: Path) -> None:
    store = kvstore.open(path)
    family = store.family("f", create=True)
    family.close()
    with pytest.raises(kvstore.MisuseError) as caught:
        family.get("k")
    assert caught.value.__context__ is None
    store.close()
    with pytest.raises(kvstore.MisuseError) as caught:
        in_another_thread(lambda: store.get("k"))
    assert caught.value.__context__ is None


def test_family_closed_in_one_thread_is_closed_in_all(db: kvstore.Store) -> None:
    family = db.family("f", create=True)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(family.put, "k", b"v").result()
        family.close()
        with pytest.raises(kvstore.MisuseError, match="closed"):
            pool.submit(family.get, "k").result()
        assert pool.submit(lambda: db.family("f")["k"]).result() == b"v"


def test_recreated_family_closes_old_handle_in_all_threads(db: kvstore.Store) -> None:
    family = db.family("f", create=True)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(family.put, "k", b"v").result()
        db.drop_family("f")
        again = db.family("f", create=True)
        with pytest.raises(kvstore.MisuseError, match="closed"):
            pool.submit(family.get, "k").result()
        assert pool.submit(again.get, "k").result() is None


def test_uncommitted_family_is_invisible_to_other_threads(db: kvstore.Store) -> None:
    with db.transaction():
        family = db.family("f", create=True)
        family["k"] = b"v"
        with pytest.raises(kvstore.NotFoundError, match="not committed yet"):
            in_another_thread(lambda: family.get("k"))
    assert in_another_thread(lambda: family.get("k")) == b"v"


def test_iterator_continues_in_other_thread(db: kvstore.Store) -> None:
    db.put_many({f"{n:04}": b"v" for n in range(1000)})
    db.put_many({f"{n:04}": b"v" for n in range(500)}, ttl=9)
    keys, expiring = iter(db.keys()), db.expiring()
    in_another_thread(lambda: [next(keys) for _ in range(100)] + [next(expiring) for _ in range(100)])
    gc.collect()
    assert next(keys) == b"0100"
    assert next(expiring)[0] == b"0100"
    assert in_another_thread(lambda: len(list(keys))) == 899
    assert in_another_thread(lambda: len(list(expiring))) == 399


def test_iterator_in_other_thread_hides_uncommitted_writes(db: kvstore.Store) -> None:
    db.put_many({f"{n:04}": b"committed" for n in range(100)})
    items = iter(db.items())
    next(items)
    with db.transaction():
        db.put_many({f"{n:04}": b"not yet" for n in range(100)})
        assert {value for _, value in in_another_thread(lambda: [next(items) for _ in range(50)])} == {b"committed"}
        assert next(items)[1] == b"not yet"
    assert next(items)[1] == b"not yet"


def test_batch_continues_in_other_thread(db: kvstore.Store) -> None:
    family = db.family("f", create=True)

    def begin() -> kvstore.Batch:
        batch = db.batch()
        batch.put("a", b"1")
        batch.put("a", b"1", family=family)
        return batch

    batch = in_another_thread(begin)
    gc.collect()
    batch.put("b", b"2")
    batch.put("b", b"2", family=family)
    batch.delete("a", family=family)
    assert "a" not in db
    in_another_thread(batch.commit)
    assert (list(db), list(family)) == ([b"a", b"b"], [b"b"])
    batch.close()


def test_batch_committed_by_other_thread_skips_own_transaction(db: kvstore.Store) -> None:
    batch = db.batch()
    batch.put("a", b"1")
    with pytest.raises(ZeroDivisionError):
        with db.transaction():
            db["b"] = b"rolled back"
            with pytest.raises(kvstore.BusyError, match="transaction"):
                in_another_thread(batch.commit)
            1 / 0
    in_another_thread(batch.commit)
    assert list(db) == [b"a"]


def test_transaction_in_one_thread_keeps_iteration_in_other(db: kvstore.Store) -> None:
    db.put_many({f"{n:04}": b"v" for n in range(1000)})

    def transactions() -> None:
        for n in range(50):
            with db.transaction():
                db["0000"] = str(n)

    def iterations() -> None:
        for _ in range(20):
            assert len(list(db)) == 1000

    together(transactions, iterations, iterations)


def test_error_texts_are_intact_under_concurrent_failures(db: kvstore.Store) -> None:
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


def test_families_can_be_created_and_dropped_during_use(db: kvstore.Store) -> None:
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


def test_cleaner_runs_with_concurrent_readers_and_writers(path: Path) -> None:
    with kvstore.open(path, busy_timeout=10) as store:
        store.start_cleaner(0.001)

        def work() -> None:
            for number in range(300):
                store.put(f"{threading.get_ident()}-{number}", b"v", ttl=0.001)
                list(store.items(limit=10))

        together(work, work)
        store.stop_cleaner()
        store.integrity_check()


def test_clock_may_be_read_from_any_thread(db: kvstore.Store) -> None:
    db.put("k", b"v", ttl=1000)
    assert together(*[lambda: [db.ttl("k") for _ in range(100)][0]] * 4) == [1000.0] * 4


@pytest.mark.parametrize("method", ["get", "items", "purge_expired"])
def test_gil_is_released_during_library_calls(db: kvstore.Store, method: str) -> None:
    """The GIL is released: a counting thread makes progress while another is inside calls."""
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


def test_each_thread_finds_only_its_own_handle(db: kvstore.Store) -> None:
    handles = Handles()
    assert handles.cf is None
    handles.keep("main")

    def look(own: str) -> tuple[bool, str]:
        before = handles.cf is not None
        handles.keep(own)
        return before, handles.cf

    assert together(*[lambda n=n: look(f"{n}") for n in range(20)]) == [(False, f"{n}") for n in range(20)]
    assert handles.cf == getattr(handles, "".join(["c", "f"])) == "main"  # also by a name that is another object
    handles.drop(None)
    assert handles.cf is None
    handles.drop(None)
    for wrong in (lambda: handles.drop("1"), lambda: handles.drop(-1), lambda: Handles(1), lambda: handles.no_such,
                  lambda: Handles.__getattribute__(handles, 1)):  # fmt: skip
        with pytest.raises((TypeError, OverflowError, AttributeError)):
            wrong()


def test_handle_lookup_is_bounded_and_releases_ended_threads() -> None:
    class Thing:
        pass

    handles = Handles()
    things: list[weakref.ref[Thing]] = []

    def keep() -> int:
        thing = Thing()
        things.append(weakref.ref(thing))
        number: int = handles.keep(thing)
        assert handles.cf is thing
        return number

    numbers = [in_another_thread(keep) for _ in range(1500)]
    assert len(set(numbers)) == 1500, "a thread's number is never given again"
    assert sum(thing() is not None for thing in things) == 1024
    handles.drop(numbers[-1])
    assert things[-1]() is None
    del handles
    assert all(thing() is None for thing in things)


def test_handles_are_looked_up_per_call_under_greenlets(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For example greenlets, which replace threads in the module threading."""
    monkeypatch.setattr(threading, "local", _threading_local.local)
    with kvstore.open(path) as store:
        store["k"] = b"v"
        assert store._handles.cf is None
        assert store["k"] == in_another_thread(lambda: store["k"]) == b"v"


@pytest.fixture
def waiting_write(path: Path) -> Iterator[kvstore.Store]:
    """A store in a transaction of this thread, for which another thread waits. Both write one key."""
    with kvstore.open(path, busy_timeout=3) as store:
        began, results = threading.Event(), list[object]()

        def write() -> None:
            store.get("b")  # opens the connection
            began.set()
            try:
                store["b"] = b"2"
            except kvstore.Error as error:
                results.append(error)

        thread = threading.Thread(target=write)
        with store.transaction():
            store["a"] = b"1"
            thread.start()
            began.wait()
            thread.join(0.2)  # if that is too short, the test shows less
            yield store
        thread.join()
        assert results == [] and store["b"] == b"2"


@pytest.mark.files
def test_stats_do_not_wait_for_a_waiting_write(waiting_write: kvstore.Store) -> None:
    assert [waiting_write.stats().puts for _ in range(2)] == [1, 1]


@pytest.mark.files
def test_stats_reset_does_not_wait_for_a_waiting_write(waiting_write: kvstore.Store) -> None:
    waiting_write.stats_reset()
    assert waiting_write.stats().puts == 0


@pytest.mark.files
def test_stats_of_idle_threads_are_exact(path: Path) -> None:
    with kvstore.open(path) as store:
        written, read = threading.Barrier(5), threading.Barrier(5)

        def work(number: int) -> None:
            store[f"{number}"] = b"1"
            written.wait()
            read.wait()
            store[f"{number}"] = b"2"

        with ThreadPoolExecutor(4) as pool:
            done = [pool.submit(work, number) for number in range(4)]
            written.wait()
            assert store.stats().puts == 4
            store.stats_reset()
            read.wait()
            for each in done:
                each.result()
        assert store.stats().puts == 4
