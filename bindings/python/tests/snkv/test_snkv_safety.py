"""Attempts to crash the interpreter: use after close, in every order, from threads, after a fork, at exit."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from typing import Any, Callable, Optional

import pytest

from kvstore.snkv import ColumnFamily, Error, Iterator, KVStore


def data_calls(data: Any) -> list[Callable[[], Any]]:
    return [
        lambda: data.put("k", "v"),
        lambda: data.put("k", "v", ttl=1),
        lambda: data.get("k"),
        lambda: data.delete("k"),
        lambda: data.exists("k"),
        lambda: data.ttl("k"),
        lambda: data.put_if_absent("k", "v"),
        lambda: data.purge_expired(),
        lambda: data.clear(),
        lambda: data.count(),
        lambda: data["k"],
        lambda: data.__setitem__("k", "v"),
        lambda: data.__setitem__(("k", 1), "v"),
        lambda: data.__delitem__("k"),
        lambda: "k" in data,
        lambda: list(data),
        lambda: data.iterator(),
        lambda: data.iterator(reverse=True, prefix="p"),
        lambda: data.prefix_iterator("p"),
        lambda: data.reverse_iterator(),
        lambda: data.reverse_prefix_iterator("p"),
    ]


def iterator_calls(it: Iterator) -> list[Callable[[], Any]]:
    return [
        lambda: it.first(),
        lambda: it.next(),
        lambda: it.seek("a"),
        lambda: it.key,
        lambda: it.value,
        lambda: it.item(),
        lambda: next(it),
        lambda: list(it),
    ]


def store_calls(db: KVStore) -> list[Callable[[], Any]]:
    return [
        *data_calls(db),
        lambda: db._db.put_ttl(b"k", b"v", 1),
        lambda: db.begin(),
        lambda: db.begin(write=True),
        lambda: db.commit(),
        lambda: db.rollback(),
        lambda: db.create_column_family("f"),
        lambda: db.create_column_family("default"),
        lambda: db.open_column_family("f"),
        lambda: db.default_column_family(),
        lambda: db.list_column_families(),
        lambda: db.drop_column_family("f"),
        lambda: db.sync(),
        lambda: db.vacuum(),
        lambda: db.integrity_check(),
        lambda: db.checkpoint(),
        lambda: db.stats(),
        lambda: db.stats_reset(),
        lambda: db.errmsg,
        lambda: db.is_encrypted(),
        lambda: db.reencrypt("p"),
        lambda: db.remove_encryption(),
    ]


def recycle_native_handles() -> None:
    """Close so many handles that the memory of earlier ones is reused."""
    for _ in range(150):
        with KVStore() as db, db.default_column_family() as family, family.iterator() as it:
            db["other"] = "store"
            it.first()


def assert_all_raise(calls: list[Callable[[], Any]], text: str) -> None:
    for number, call in enumerate(calls):
        try:
            result = call()
        except Error as error:
            assert text in str(error), (number, error)
        else:
            pytest.fail(f"call {number} gave {result!r}")


def test_closed_store_raises_even_if_memory_is_reused(db: KVStore) -> None:
    db.close()
    db.close()
    assert_all_raise(store_calls(db), "KVStore is closed")
    recycle_native_handles()
    assert_all_raise(store_calls(db), "KVStore is closed")
    db.close()


def test_closed_family_raises_even_if_memory_is_reused(db: KVStore) -> None:
    family = db.create_column_family("f")
    family.close()
    family.close()
    assert_all_raise(data_calls(family), "ColumnFamily is closed")
    recycle_native_handles()
    assert_all_raise(data_calls(family), "ColumnFamily is closed")


def test_families_and_iterators_of_closed_store_raise(db: KVStore) -> None:
    for key in "abc":
        db[key] = key
    family = db.create_column_family("f")
    started, fresh, prefix = db.iterator(), db.iterator(), db.prefix_iterator("a")
    assert next(started) == (b"a", b"a")
    db.close()
    for _ in range(2):
        assert_all_raise(data_calls(family), "KVStore is closed")
        for it in (started, fresh, prefix):
            assert_all_raise(iterator_calls(it), "KVStore is closed")
            assert it.eof
        recycle_native_handles()
    for closable in (started, fresh, prefix, family):
        closable.close()
        closable.close()


def test_family_or_iterator_keeps_unreferenced_store_open(file: str) -> None:
    family = KVStore(file).create_column_family("f")
    gc.collect()
    family["k"] = "v"
    it = family.iterator()
    del family
    gc.collect()
    assert list(it) == [(b"k", b"v")]


def test_unreferenced_store_is_closed(file: str) -> None:
    db = KVStore(file)
    db.begin(write=True)
    db["k"] = "v"
    del db
    gc.collect()
    with KVStore(file) as again:
        again["k"] = "w"


def test_cycles_are_collected_in_any_order(file: str) -> None:
    for _ in range(20):
        db = KVStore(file)
        family = db.default_column_family()
        it = db.iterator()
        db.all = [db, family, it]  # type: ignore[attr-defined]
        del db, family, it
    gc.collect()
    with KVStore(file) as last:
        last.begin(write=True)
        last.rollback()


def test_iteration_raises_after_store_is_closed(db: KVStore) -> None:
    for i in range(10):
        db[str(i)] = "v"
    seen = []
    with pytest.raises(Error, match="closed"):
        for key, _ in db:
            seen.append(key)
            db.close()
    assert seen == [b"0"]


def test_closing_iterator_ends_its_iteration(db: KVStore) -> None:
    for i in range(10):
        db[str(i)] = "v"
    it = db.iterator()
    seen = []
    for key, _ in it:
        seen.append(key)
        it.close()
    assert seen == [b"0"]


def test_dropping_family_during_iteration_does_not_crash(db: KVStore) -> None:
    family = db.create_column_family("f")
    for i in range(10):
        family[str(i)] = "v"
    it = family.iterator()
    next(it)
    family.close()
    try:
        db.drop_column_family("f")
        recycle_native_handles()
        list(it)
    except Error:
        pass


def run_in_threads(*targets: Callable[[], Any]) -> None:
    failures: list[BaseException] = []

    def guarded(target: Callable[[], Any]) -> None:
        try:
            target()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=guarded, args=(target,)) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    if failures:
        raise failures[0]


def test_threads_sharing_store_read_their_own_values(db: KVStore) -> None:
    def work(name: str) -> Callable[[], None]:
        def run() -> None:
            for i in range(300):
                key, value = f"{name}{i}", (name * (i + 1)).encode() * 10
                db.put(key, value, ttl=3600 if i % 2 else None)
                assert db.get(key) == value
                assert key in db
                assert db.get(f"no{i}") is None
                with pytest.raises(KeyError):
                    db.delete(f"no{i}")

        return run

    run_in_threads(*(work(name) for name in "abcd"))
    assert db.count() == 1200
    db.integrity_check()


def test_threads_sharing_iterator_get_each_entry_once(db: KVStore) -> None:
    db.begin(write=True)
    for i in range(2000):
        db[f"{i:05}"] = f"{i}" * 20
    db.commit()
    it = db.iterator()
    got: list[list[tuple[bytes, bytes]]] = [[], [], []]
    run_in_threads(*(lambda part=part: part.extend(it) for part in got))
    entries = sorted(entry for part in got for entry in part)
    assert [int(key) for key, _ in entries] == list(range(2000))
    assert all(value == str(int(key)).encode() * 20 for key, value in entries)


def test_concurrent_iterator_reads_get_whole_entries(db: KVStore) -> None:
    for i in range(100):
        db[f"{i:03}"] = f"{i:03}" * (i + 1)
    it: Iterator = db.iterator()

    def move() -> None:
        for _ in range(30):
            it.first()
            while not it.eof:
                it.next()

    def read() -> None:
        for _ in range(2000):
            try:
                key, value = it.item()
            except Error:
                continue
            assert value == key * (int(key) + 1)

    run_in_threads(move, read, read)


def test_close_during_calls_of_threads_gives_them_errors(file: str) -> None:
    for _ in range(15):
        db = KVStore(file)
        db["k"] = "v"
        family: ColumnFamily = db.default_column_family()
        it = db.iterator()
        begun = threading.Barrier(4)

        def use(call: Callable[[], Any], begun: threading.Barrier = begun) -> Callable[[], None]:
            def run() -> None:
                begun.wait()
                with pytest.raises(Error, match="closed"):
                    while True:
                        call()

            return run

        def close(db: KVStore = db, begun: threading.Barrier = begun) -> None:
            begun.wait()
            for _ in range(50):
                db.exists("k")
            db.close()

        run_in_threads(
            use(lambda: db.get("k")),  # noqa: B023
            use(lambda: family.put("k", "v")),  # noqa: B023
            use(lambda: it.first().item()),  # noqa: B023
            close,
        )
        recycle_native_handles()


def test_thread_may_close_store_opened_by_other_thread(file: str) -> None:
    db = KVStore(file)
    db["k"] = "v"
    run_in_threads(db.close)
    with pytest.raises(Error, match="closed"):
        db.get("k")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_forked_child_gets_errors_and_parent_continues(file: str) -> None:
    db = KVStore(file)
    db["k"] = "v"
    family, it = db.default_column_family(), db.iterator()
    next(it)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            failed = 0
            for call in (
                lambda: db.get("k"),
                lambda: db.put("k", "child"),
                lambda: family.get("k"),
                lambda: next(it),
                lambda: db.begin(),
            ):
                try:
                    call()
                except Error:
                    failed += 1
            family.close()
            it.close()
            db.close()
            status = 0 if failed == 5 else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert db.get("k") == b"v"
    db.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_forked_child_does_not_wait_for_lock_of_parent_thread(file: str) -> None:
    db = KVStore(file)
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with db._session.lock:
            held.set()
            done.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(60)
    pid = os.fork()
    if pid == 0:
        try:
            db.get("k")
        except Error:
            os._exit(0)
        os._exit(1)
    try:
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    finally:
        done.set()
        thread.join()
        db.close()


def run_python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-X", "dev", "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("order", ["db, family, it", "it, family, db", "family, db, it"])
def test_interpreter_exits_cleanly_with_open_objects(file: str, order: str) -> None:
    done = run_python(
        "import sys\n"
        "from kvstore.snkv import KVStore\n"
        "db = KVStore(sys.argv[1]); db['k'] = 'v'\n"
        "family = db.create_column_family('f'); it = db.iterator(); next(it)\n"
        f"db.begin(write=True)\nkept = [{order}, lambda: kept]\n",
        file,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("cls", [KVStore, ColumnFamily, Iterator])
def test_uninitialised_object_raises_and_does_not_crash(cls: type) -> None:
    thing: Any = object.__new__(cls)
    with pytest.raises(AttributeError):
        thing.close()
    del thing
    gc.collect()


def test_unopenable_store_raises_each_time(tmp_path: Any) -> None:
    for _ in range(100):
        with pytest.raises(Error):
            KVStore(str(tmp_path / "no" / "such"))


@pytest.mark.parametrize("length", [65536, 65537, 1 << 20])
@pytest.mark.files
def test_keys_up_to_limit_work_and_longer_ones_fail(db: KVStore, length: int) -> None:
    key = b"k" * length
    if length == 65536:
        db[key] = "v"
        assert next(iter(db)) == (key, b"v")
        return
    for call in (
        lambda: db.put(key, "v"),
        lambda: db.get(key),
        lambda: db.prefix_iterator(key),
        lambda: db.iterator().seek(key),
    ):
        with pytest.raises(Error, match="65536"):
            call()


def test_signal_handler_may_use_and_close_store(file: str) -> None:
    if not hasattr(os, "kill"):
        pytest.skip("there are no signals here")
    import signal

    db = KVStore(file)
    seen: list[Optional[bytes]] = []

    def handler(number: int, frame: object) -> None:
        seen.append(db.get("k"))
        db.close()

    db["k"] = "v"
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        threading.Timer(0.0, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        with pytest.raises(Error, match="closed"):
            while True:
                db.get("k")
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert seen == [b"v"]
