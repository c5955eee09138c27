"""A store works in the child of a fork, which opens the file again, whatever its parent is doing. The parent's transactions
and batches stay untouched.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Optional

import pytest
from helpers import assert_clean, increment, run_python

import kvstore
from kvstore import _memoize, _memoize_results

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")


#: Seconds after which a child counts as stuck.
PATIENCE = 30


def in_child(work: Callable[[], Any]) -> str:
    """Return the result or exception of ``work`` in a forked child, as text."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of 3.12: fork with threads
        child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(PATIENCE)  # a stuck child ends by a signal
        try:
            try:
                answer = repr(work())
            except BaseException as error:
                answer = type(error).__name__
            os.write(writer, answer.encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    assert status == 0, f"the child ended with {status} after {answer!r}"
    return answer


USES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "read": (lambda s: s["k"], "b'v'"),
    "get": (lambda s: s.get("k"), "b'v'"),
    "in": (lambda s: "k" in s, "True"),
    "len": (lambda s: len(s), "1"),
    "write": (lambda s: s.put("k", b"child") and s["k"], "b'child'"),
    "write with ttl": (lambda s: s.put("k", b"child", ttl=5) and s.ttl("k") <= 5, "True"),
    "delete": (lambda s: s.delete("k"), "True"),
    "iterate": (lambda s: list(s.items()), "[(b'k', b'v')]"),
    "get_many": (lambda s: s.get_many(["k"]), "{'k': b'v'}"),
    "purge": (lambda s: s.purge_expired(), "0"),
    "transaction": (lambda s: s.transaction().__enter__().active, "True"),
    "snapshot": (lambda s: s.snapshot().__enter__().active, "True"),
    "families": (lambda s: s.families(), "['f']"),
    "family": (lambda s: s.family("f").name, "'f'"),
    "sync": (lambda s: s.sync(), "None"),
    "stats": (lambda s: s.get("k") and s.stats().gets, "1"),
    "integrity_check": (lambda s: s.integrity_check(), "None"),
    "repair": (lambda s: s.repair(), "0"),
    "set_clock": (lambda s: s.set_clock(None), "None"),
    "cleaner": (lambda s: s.start_cleaner(1), "None"),
}


@pytest.mark.parametrize("use", [pytest.param(use, marks=[pytest.mark.files] if use == "repair" else []) for use in USES])
def test_inherited_store_works_in_forked_child(path: Path, use: str) -> None:
    work, answer = USES[use]
    with kvstore.open(path) as store:
        store["k"] = b"v"
        store.family("f", create=True)
        assert in_child(lambda: work(store)) == answer
        store["after"] = b"fork"
        store.integrity_check()


@pytest.mark.parametrize("use", USES)
def test_memory_store_is_usable_only_in_parent(use: str) -> None:
    with kvstore.open(":memory:") as store:
        store["k"] = b"v"
        store.family("f", create=True)
        assert in_child(lambda: USES[use][0](store)) == "MisuseError"
        assert in_child(store.close) == "None"
        assert store["k"] == b"v"


@pytest.mark.files
def test_exclusive_store_is_busy_in_forked_child(path: Path) -> None:
    with kvstore.open(path, exclusive=True, busy_timeout=0) as store:
        store["k"] = b"v"
        assert in_child(lambda: store["k"]) == "BusyError"
        assert store["k"] == b"v"


def test_inherited_families_and_iterators_work_in_child(path: Path) -> None:
    with kvstore.open(path) as store:
        store.put_many({f"{n:04}": b"v" for n in range(1000)})
        family = store.family("f", create=True)
        family["k"] = b"family"
        keys = iter(store.keys())
        assert [next(keys) for _ in range(3)] == [b"0000", b"0001", b"0002"]
        assert in_child(lambda: family.get("k")) == "b'family'"
        assert in_child(lambda: len(list(keys))) == "997"
        assert len(list(keys)) == 997


def test_parent_transaction_is_not_used_in_child(path: Path) -> None:
    with kvstore.open(path, busy_timeout=0) as store:
        store["k"] = b"before"
        with store.transaction() as transaction:
            store["k"] = b"uncommitted"
            assert in_child(lambda: store["k"]) == "b'before'"
            assert in_child(lambda: store.put("k", b"child")) == "BusyError"
            assert in_child(transaction.commit) == "MisuseError"
            assert in_child(transaction.rollback) == "MisuseError"
            assert in_child(lambda: transaction.__exit__(None, None, None)) == "None"
            assert store["k"] == b"uncommitted"
        assert store["k"] == b"uncommitted"
        assert in_child(lambda: store.put("k", b"child")) == "True"
        assert store["k"] == b"child"


def test_child_has_own_transactions_during_parent_snapshot(path: Path) -> None:
    def work() -> bytes:
        with store.transaction():
            store["c"] = b"child"
        return store["c"]

    with kvstore.open(path) as store:
        store["k"] = b"v"
        with store.snapshot():
            assert in_child(work) == "b'child'"
            assert "c" not in store
        assert store["c"] == b"child"


def test_inherited_batch_is_refused_in_child(path: Path) -> None:
    with kvstore.open(path) as store, store.batch() as batch:
        batch.put("b", b"v")
        uses: list[Callable[[], Any]] = [
            batch.commit, batch.clear, lambda: len(batch), lambda: batch.put("c", b"v"), lambda: batch.delete("c")
        ]  # fmt: skip
        with batch._lock:  # as if another thread were in it
            for use in uses:
                assert in_child(use) == "MisuseError"
        assert "b" not in store
        batch.commit()
        assert store["b"] == b"v"


def test_child_has_own_stats_and_inherits_clock(path: Path) -> None:
    with kvstore.open(path) as store:
        store.set_clock(lambda: 1.7e9)
        store.put("k", b"v", ttl=5)
        assert in_child(lambda: (store.ttl("k"), store.stats().puts)) == "(5.0, 0)"


@pytest.mark.files
def test_child_does_not_open_file_replaced_since_fork(path: Path) -> None:
    store = kvstore.open(path)
    store["k"] = b"v"
    os.rename(path, path.with_suffix(".moved"))
    assert in_child(lambda: store["k"]) == "StoreIOError"
    assert not path.exists()
    os.rename(path.with_suffix(".moved"), path)
    assert in_child(lambda: store["k"]) == "b'v'"


@pytest.mark.files
def test_child_opens_same_file_after_chdir(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    with kvstore.open(path.name) as store:
        store["k"] = b"v"
        assert in_child(lambda: os.chdir("elsewhere") or store["k"]) == "b'v'"
        assert os.listdir("elsewhere") == []


def test_closing_inherited_objects_is_silent_and_harmless(path: Path) -> None:
    with kvstore.open(path) as store, store.family("f", create=True) as family, store.batch() as batch:
        store["k"] = b"v"
        store.start_cleaner(3600)
        items = store.items()
        entries = iter(items)
        next(entries)
        batch.put("b", b"v")
        transaction = store.transaction()
        closing: list[Callable[[], Any]] = [
            family.close, batch.close, store.stop_cleaner, store.close,
            lambda: transaction.__exit__(None, None, None), lambda: family.__exit__(None, None, None),
            lambda: batch.__exit__(None, None, None), lambda: store.__exit__(None, None, None),
            lambda: (store.close(), store.close()) and None, lambda: (store.close(), family.close()) and None,
        ]  # fmt: skip
        for close in closing:
            assert in_child(close) == "None"
        with transaction:
            store["t"] = b"v"
            for close in closing:
                assert in_child(close) == "None"
        assert store["t"] == b"v"
        assert in_child(lambda: store.close() or store["k"]) == "MisuseError"
        store["k"] = b"w"
        store.stop_cleaner()
        store.integrity_check()
    with kvstore.open(path) as store:
        assert store["b"] == b"v"


def test_batch_locked_by_parent_thread_can_be_closed_in_child(path: Path) -> None:
    with kvstore.open(path) as store:
        batch = store.batch()
        with batch._lock:
            assert in_child(batch.close) == "None"


@pytest.mark.parametrize("leave", ["sys.exit(0)", "pass"])
def test_child_forked_inside_with_blocks_exits_silently(path: Path, leave: str) -> None:
    code = f"""
import os, sys, kvstore, kvstore.snkv
with kvstore.snkv.KVStore(sys.argv[1] + ".snkv") as old, old.iterator() as rows:
    old[b"k"] = b"v"
    with kvstore.open(sys.argv[1]) as store, store.batch() as batch, store.family("f", create=True) as family:
        batch.put("b", b"v")
        with store.transaction():
            store["k"] = b"v"
            child = os.fork()
            if child == 0:
                {leave}
            else:
                assert os.waitpid(child, 0)[1] == 0
                store["k2"] = b"v"
if child:
    with kvstore.open(sys.argv[1]) as store:
        assert sorted(store) == [b"b", b"k", b"k2"]
        store.integrity_check()
    print("ok")
"""
    assert_clean(run_python(code, str(path)), "ok")



def test_inherited_store_may_be_garbage_collected(path: Path) -> None:
    import gc

    stores = [kvstore.open(path)]
    stores[0]["k"] = b"v"
    iterators = [iter(stores[0].items())]
    next(iterators[0])

    def forget() -> str:
        stores.clear()
        iterators.clear()
        gc.collect()
        return "forgotten"

    assert in_child(forget) == "'forgotten'"
    assert stores[0]["k"] == b"v"
    stores[0]["k"] = b"w"
    stores[0].close()


def test_error_in_child_says_what_to_do(path: Path) -> None:
    def message(use: Callable[[], Any]) -> str:
        try:
            use()
        except kvstore.MisuseError as error:
            return str(error)
        return "no error"

    with kvstore.open(":memory:") as store:
        text = in_child(lambda: message(lambda: store["k"]))
        assert "fork" in text and "open a new one" in text
    with kvstore.open(path) as store, store.batch() as batch, store.transaction() as transaction:
        assert "make a new batch" in in_child(lambda: message(batch.commit))
        assert "belongs to the parent process" in in_child(lambda: message(transaction.commit))


def test_child_may_open_other_files(path: Path, tmp_path: Path) -> None:
    def work() -> bytes:
        with kvstore.open(tmp_path / "child.db") as own:
            own["k"] = b"child"
            return own["k"]

    with kvstore.open(path) as store:
        assert in_child(work) == "b'child'"
        assert "k" not in store


# ---- opening again ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def in_threads(*works: Callable[[], Any]) -> Iterator[None]:
    """Run by other threads in a loop."""
    stop = threading.Event()

    def again_and_again(work: Callable[[], Any]) -> None:
        while not stop.is_set():
            with contextlib.suppress(kvstore.BusyError):
                work()

    threads = [threading.Thread(target=again_and_again, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


@contextlib.contextmanager
def iterating(store: kvstore.Store) -> Iterator[None]:
    entries = iter(store.items())
    next(entries)
    yield
    assert len(list(entries)) > 0


@contextlib.contextmanager
def cleaning(store: kvstore.Store) -> Iterator[None]:
    store.start_cleaner(0.001)
    with in_threads(lambda: store.put("dying", b"v", ttl=0.001)):
        yield
    store.stop_cleaner()


def busy_threads(store: kvstore.Store, path: Path, mode: str) -> Any:
    def transaction() -> None:
        with store.transaction():
            store["t"] = b"v"
            list(store.items())

    def opening() -> None:
        with kvstore.open(path, journal_mode=mode, sync="off") as other:
            other.get("k")

    return in_threads(transaction, opening, lambda: store.get_many(["k", "t"]))


def backing_up(store: kvstore.Store, path: Path, mode: str) -> Any:
    def work() -> None:
        copy = path.with_suffix(".copy")
        store.backup(copy)
        copy.unlink()

    return in_threads(work, lambda: store.checkpoint("truncate"))


STATES: dict[str, Callable[[Any, Path, str], Any]] = {
    "idle": lambda store, path, mode: contextlib.nullcontext(),
    "in a snapshot": lambda store, path, mode: store.snapshot(),
    "in a transaction": lambda store, path, mode: store.transaction(),
    "iterating": lambda store, path, mode: iterating(store),
    "with a cleaner": lambda store, path, mode: cleaning(store),
    "with busy threads": busy_threads,
    "backing up": backing_up,
}


@pytest.mark.parametrize("mode", ["wal", "delete"])
@pytest.mark.parametrize("state", STATES)
@pytest.mark.files
def test_child_reopens_store_in_any_state_of_parent(path: Path, state: str, mode: str) -> None:
    def read_and_write() -> Optional[bytes]:
        with kvstore.open(path, journal_mode=mode, sync="off", busy_timeout=20) as own:
            found = own["k"]
            own["from a child"] = found
            return own["from a child"]

    def read() -> Optional[bytes]:
        with kvstore.open(path, journal_mode=mode, sync="off") as own:
            assert "uncommitted" not in own
            with pytest.raises(kvstore.BusyError):
                kvstore.open(path, journal_mode=mode, busy_timeout=0).put("k", b"child")
            return own["k"]

    writing = state == "in a transaction"
    if state == "in a snapshot" and mode == "delete":
        work: Callable[[], Any] = lambda: kvstore.open(path, journal_mode=mode)["k"]  # its readers keep writers out
    else:
        work = read if writing else read_and_write
    with kvstore.open(path, journal_mode=mode, sync="off", busy_timeout=20) as store:
        store.put_many({f"{n:04}": b"v" for n in range(500)})
        store["k"] = b"v"
        with STATES[state](store, path, mode):
            if writing:
                store["uncommitted"] = b"v"
            for _ in range(10):
                assert in_child(work) == "b'v'"
        assert ("from a child" in store) == (work is read_and_write)
        store["k"] = b"w"
        store.integrity_check()


def test_child_opens_store_closed_by_parent(path: Path) -> None:
    with kvstore.open(path) as store:
        store["k"] = b"v"
    assert in_child(lambda: kvstore.open(path)["k"]) == "b'v'"
    with kvstore.open(path) as store:
        assert store["k"] == b"v"


@pytest.mark.files
def test_killed_parent_leaves_no_lock_while_child_runs(path: Path) -> None:
    with kvstore.open(path) as store:
        store["k"] = b"v"
    ready, child_is_there = os.pipe()
    wait, go_on = os.pipe()
    answer, said = os.pipe()

    def grandchild() -> None:
        os.write(child_is_there, b"!")
        os.read(wait, 1)
        with kvstore.open(path) as own:
            own["k"] += b" of a child"
            os.write(said, own["k"])

    parent = os.fork()
    if parent == 0:
        store = kvstore.open(path)
        store.transaction().__enter__()
        store["k"] = b"never"
        if os.fork() == 0:
            signal.alarm(PATIENCE)
            try:
                grandchild()
            finally:
                os._exit(0)
        signal.pause()
        os._exit(0)
    os.close(said)
    os.close(child_is_there)
    os.read(ready, 1)
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    with kvstore.open(path, busy_timeout=0) as store:
        assert store["k"] == b"v"
        store["k"] = b"at once"
    os.write(go_on, b"!")
    assert os.read(answer, 100) == b"at once of a child"
    assert os.read(answer, 1) == b""
    for descriptor in ready, wait, go_on, answer:
        os.close(descriptor)


# ---- what programs do ------------------------------------------------------------------------------------

#: As a module has it that is imported before the workers are forked.
module_store: Optional[kvstore.Store] = None


def open_for_this_worker(path: str) -> None:
    global module_store
    module_store = kvstore.open(path, busy_timeout=60)


def add_one(_: int) -> int:
    assert module_store is not None
    return module_store.incr("n")


@pytest.fixture
def shared_store(path: Path) -> Iterator[kvstore.Store]:
    """A store at module level."""
    global module_store
    open_for_this_worker(str(path))
    assert module_store is not None
    yield module_store
    module_store.close()
    module_store = None


def test_forked_pool_uses_store_opened_before_fork(shared_store: kvstore.Store) -> None:
    shared_store["n"] = b"0"
    with get_context("fork").Pool(3) as pool:
        for n in range(20):
            shared_store[f"parent {n}"] = b"v"
        answers = pool.map(add_one, range(300), chunksize=10)
    assert sorted(answers) == list(range(1, 301))
    assert shared_store["n"] == b"300"
    shared_store.integrity_check()


def test_forked_pool_reopens_store_opened_before_fork(shared_store: kvstore.Store, path: Path) -> None:
    shared_store["n"] = b"0"
    with get_context("fork").Pool(3, open_for_this_worker, (str(path),)) as pool:
        for n in range(20):
            shared_store[f"parent {n}"] = b"v"
        answers = pool.map(add_one, range(300), chunksize=10)
    assert sorted(answers) == list(range(1, 301))
    assert shared_store["n"] == b"300"
    shared_store.integrity_check()


def test_spawned_pool_opens_store_open_in_parent(shared_store: kvstore.Store, path: Path) -> None:
    with get_context("spawn").Pool(2) as pool:
        pool.starmap(increment, [(str(path), 20)] * 4)
    assert shared_store["n"] == b"80"


@pytest.mark.parametrize("initializer", [None, open_for_this_worker])
def test_forked_executor_works_with_inherited_or_own_store(
    shared_store: kvstore.Store, path: Path, initializer: Any
) -> None:
    context = get_context("fork")
    arguments = (str(path),) if initializer else ()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of 3.12: the executor forks with a thread
        with ProcessPoolExecutor(2, context, initializer, arguments) as executor:
            assert sorted(executor.map(add_one, range(50))) == list(range(1, 51))
    assert shared_store["n"] == b"50"


REOPEN = """
def reopen():
    global db
    db = kvstore.open(sys.argv[1], busy_timeout=60)

os.register_at_fork(after_in_child=reopen)
"""


def test_memoized_function_works_in_child_forked_during_counting(path: Path) -> None:
    with kvstore.open(path, busy_timeout=20) as store:

        @kvstore.memoize(store, ttl=60)
        def square(x: int) -> int:
            return x * x

        held, release = threading.Event(), threading.Event()

        def hold() -> None:
            with _memoize_results._counting:
                held.set()
                release.wait(PATIENCE)

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait(PATIENCE)
        try:
            assert in_child(lambda: square(-7)) == "49"
        finally:
            release.set()
            thread.join()


@pytest.mark.parametrize("reopen", [REOPEN, ""], ids=["opened again", "as it is"])
def test_module_level_store_works_in_children_and_grandchildren(path: Path, tmp_path: Path, reopen: str) -> None:
    (tmp_path / "app.py").write_text(f"""
import os, sys, kvstore

db = kvstore.open(sys.argv[1], busy_timeout=60)
{reopen}
def handle(request):
    return db.incr("requests")
""")
    program = tmp_path / "server.py"
    program.write_text("""
import os, app

def serve(depth):
    for _ in range(25):
        app.handle("a request")
    if depth:
        serve_in_children(depth - 1)

def serve_in_children(depth):
    children = []
    for _ in range(3):
        child = os.fork()
        if child == 0:
            serve(depth)
            os._exit(0)
        children.append(child)
    for child in children:
        assert os.waitpid(child, 0)[1] == 0

serve_in_children(1)
app.handle("the last")
print(app.db["requests"].decode())
app.db.integrity_check()
""")
    assert_clean(run_python(program, str(path), cwd=tmp_path), str(3 * 25 + 9 * 25 + 1))


@pytest.mark.files
def test_python_sqlite3_may_use_file_of_open_store(path: Path) -> None:
    code = """
import sqlite3, sys
con = sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None)
try:
    con.execute("BEGIN IMMEDIATE")
    print("free")
except sqlite3.OperationalError as error:
    print(error)
con.close()
"""
    with kvstore.open(path) as store:
        store["k"] = b"v"
        with store.transaction():
            store["k"] = b"w"
            with contextlib.closing(sqlite3.connect(path)) as other:
                assert other.execute('SELECT count(*) FROM "data:default"').fetchone() == (1,)
            assert_clean(run_python(code, str(path)), "database is locked")
        with contextlib.closing(sqlite3.connect(path)) as other, other:
            other.execute("""INSERT INTO "data:default"(key, value) VALUES (CAST('s' AS BLOB), CAST('q' AS BLOB))""")
        assert store["s"] == b"q"
        assert_clean(run_python(code, str(path)), "free")
        assert path.with_name(path.name + "-wal").exists()
        store.integrity_check()


# ---- threads, and the end --------------------------------------------------------------------------------


@pytest.mark.files
def test_fork_during_use_by_threads_does_not_hang_child(path: Path) -> None:
    def write() -> bool:
        with store.transaction():
            store["from a child"] = b"v"
        return "from a child" in store

    with kvstore.open(path, busy_timeout=20) as store:
        store["k"] = b"v"
        stop = threading.Event()

        def work() -> None:
            while not stop.is_set():
                with store.transaction():
                    store["k"] = b"v"
                list(store.items())

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(15):
                assert in_child(lambda: store["k"]) == "b'v'"
                assert in_child(write) == "True"
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        store.integrity_check()


def test_forked_child_that_ends_normally_is_silent(path: Path) -> None:
    code = """
import os, sys, kvstore
store = kvstore.open(sys.argv[1])
store["k"] = b"v"
iterator = iter(store.items())
next(iterator)
child = os.fork()
if child == 0:
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
store["k"] = b"w"
store.integrity_check()
print("ok")
"""
    if sys.version_info >= (3, 12):
        code = "import warnings; warnings.simplefilter('ignore')\n" + code
    assert_clean(run_python(code, str(path)), "ok")
