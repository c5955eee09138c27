"""Missing close(): collected stores, reference cycles, and interpreters that end with everything open."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import assert_clean, open_files_of, run_python

import kvstore


@pytest.mark.files
def test_unreferenced_store_is_closed(path: Path) -> None:
    store = kvstore.open(path)
    store["k"] = b"v"
    assert open_files_of(path) > 0
    del store
    gc.collect()
    assert open_files_of(path) == 0


def test_store_in_reference_cycle_is_closed_when_collected(path: Path) -> None:
    cycle: list[object] = [kvstore.open(path)]
    cycle.append(cycle)
    del cycle
    gc.collect()
    assert open_files_of(path) == 0


def test_unreferenced_transaction_is_rolled_back(path: Path) -> None:
    store = kvstore.open(path)
    transaction = store.transaction().__enter__()
    store["k"] = b"v"
    del store, transaction
    gc.collect()
    with kvstore.open(path) as again:
        assert len(again) == 0
        again["k"] = b"w"


def test_next_transaction_rolls_back_unreferenced_one(path: Path) -> None:
    with kvstore.open(path) as store:
        cycle: list[object] = [store.transaction().__enter__()]
        cycle.append(cycle)
        store["k"] = b"v"
        del cycle
        gc.collect()
        with store.transaction():
            store["next"] = b"w"
        assert list(store) == [b"next"]


def test_families_and_iterators_keep_their_store_open(path: Path) -> None:
    store = kvstore.open(path)
    store.put_many({f"{n:04}": b"v" for n in range(1000)})
    family, keys = store.family("f", create=True), iter(store.keys())
    del store
    gc.collect()
    family["k"] = b"v"
    assert len(list(keys)) == 1000
    del family, keys
    gc.collect()
    assert open_files_of(path) == 0


def test_clock_does_not_keep_unreferenced_store_open(path: Path) -> None:
    store = kvstore.open(path)
    store.set_clock(lambda: 1.7e9 + 0 * id(store))
    del store
    gc.collect()
    gc.collect()
    assert open_files_of(path) in (0, 1, 2, 3)  # a closure over the store: it may need close()


def test_close_refused_in_callback_can_be_repeated_later(path: Path) -> None:
    store = kvstore.open(path)
    store.put("k", b"v", expires_at=9e9)
    armed: list[bool] = []
    refused: list[BaseException] = []

    def clock() -> float:
        if armed:
            armed.clear()
            try:
                store.close()
            except kvstore.MisuseError as error:
                refused.append(error)
        return 1.7e9

    store.set_clock(clock)
    armed.append(True)
    store.get("k")
    assert len(refused) == (0 if store.closed else 1)
    store.close()
    assert open_files_of(path) == 0


def test_close_refused_in_progress_can_be_repeated_later(path: Path, tmp_path: Path) -> None:
    store = kvstore.open(path)

    def progress(remaining: int, total: int) -> None:
        try:
            store.close()
        except kvstore.MisuseError:
            pass

    try:
        store.backup(tmp_path / "copy.db", progress)
    except kvstore.MisuseError:
        pass
    store.close()
    assert open_files_of(path) == 0


def test_clock_is_released_with_its_store(path: Path) -> None:
    class Clock:
        def __call__(self) -> float:
            return 1.7e9

    clock = Clock()
    reference = weakref.ref(clock)
    store = kvstore.open(path)
    store.set_clock(clock)
    del clock
    assert reference() is not None
    store.close()
    del store
    gc.collect()
    assert reference() is None


class Interrupt(BaseException):
    pass


def interrupted_at(step: int, work: Callable[[], Any], *functions: str) -> bool:
    """Run ``work``, and raise before line number ``step`` of the package's functions with these names.

    Return whether that line was reached.
    """
    left = [step]

    def trace(frame: Any, event: str, argument: Any) -> Any:
        if frame.f_code.co_name not in functions or "kvstore" not in frame.f_code.co_filename:
            return None
        if event == "line":
            left[0] -= 1
            if left[0] == 0:
                raise Interrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except Interrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def test_open_interrupted_anywhere_leaves_no_open_file(path: Path) -> None:
    kvstore.open(path).close()
    step = 1
    while interrupted_at(step, lambda: kvstore.open(path), "_open", "lease", "handle", "__init__", "_attach"):
        gc.collect()
        assert open_files_of(path) == 0, f"interrupted before line {step}"
        step += 1
    assert step > 20


def test_family_open_interrupted_anywhere_does_not_block_drop(path: Path) -> None:
    with kvstore.open(path, busy_timeout=0) as store:
        store.family("f", create=True)
        step = 1
        while interrupted_at(step, lambda: store.family("f"), "_open_family", "_family_of", "owned", "_attach"):
            gc.collect()
            store.drop_family("f")
            store.family("f", create=True)
            step += 1
        assert step > 10


def test_opening_and_closing_many_times_does_not_leak(path: Path) -> None:
    resource = pytest.importorskip("resource")

    def rounds(count: int) -> None:
        for _ in range(count):
            with kvstore.open(path) as store:
                store["k"] = b"v" * 1000
                list(store.items())
                with store.batch() as batch:
                    batch.put("a", b"b")
                with store.transaction():
                    store.get_many(["k", "a", "missing"])
        gc.collect()

    rounds(150)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rounds(300)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < (4096 if sys.platform != "darwin" else 4096 * 1024), f"{grown} KiB"


def test_reading_and_writing_many_times_does_not_leak(db: kvstore.Store) -> None:
    import tracemalloc

    value = b"v" * 10_000

    def rounds(count: int) -> None:
        for number in range(count):
            db["k"] = value
            db["k"]
            db.get_many(["k", "missing"])
            db.get("missing")
            list(db.items(limit=3))
            db.incr("n")
            try:
                db["missing"]
            except KeyError:
                pass
        gc.collect()

    rounds(100)
    tracemalloc.start()
    try:
        rounds(100)
        before = tracemalloc.get_traced_memory()[0]
        rounds(500)
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 50_000, f"{grown} bytes"


EXITS = {
    "open store": "s = kvstore.open('a.db'); s['k'] = b'v'",
    "open iterator": "s = kvstore.open('a.db'); s.put_many({str(n): b'' for n in range(999)}); i = iter(s.items()); next(i)",
    "iterator alone": "i = iter(kvstore.open('a.db').items()); next(i, None)",
    "open transaction": "s = kvstore.open('a.db'); t = s.transaction(); t.__enter__(); s['k'] = b'v'",
    "open snapshot": "s = kvstore.open('a.db'); t = s.snapshot(); t.__enter__()",
    "unfinished batch": "s = kvstore.open('a.db'); b = s.batch(); b.put('k', b'v')",
    "cleaner running": "s = kvstore.open('a.db'); s.put('k', b'', ttl=0.001); s.start_cleaner(0.001)",
    "cleaner with a python clock": "import time; s = kvstore.open('a.db'); s.set_clock(time.time)\n"
    "s.put('k', b'', ttl=0.001); s.start_cleaner(0.001)",
    "python clock": "import time; s = kvstore.open('a.db'); s.set_clock(lambda: time.time()); s.put('k', b'', ttl=9)",
    "many handles": "ss = [kvstore.open('a.db') for _ in range(30)]; fs = [s.family('f', create=True) for s in ss]",
    "in a cycle": "a = [kvstore.open('a.db')]; a.append(a); a.append(iter(a[0].items()))",
    "in a module": "import sys, types; m = types.ModuleType('m'); sys.modules['m'] = m; m.s = kvstore.open('a.db')\n"
    "m.i = iter(m.s.items()); m.f = m.s.family('f', create=True)",
    "in builtins": "import builtins; builtins.s = kvstore.open('a.db'); builtins.i = iter(builtins.s.items())",
    "used by atexit": "import atexit; s = kvstore.open('a.db'); atexit.register(lambda: s.put('k', b'v'))",
    "used by __del__": "class A:\n"
    "    def __init__(self): self.s = kvstore.open('a.db')\n"
    "    def __del__(self):\n"
    "        try: self.s['k'] = b'v'\n"
    "        except kvstore.Error: pass\n"
    "import builtins; builtins.a = A(); b = A(); b.me = b",
    "a daemon thread at work": "import threading; s = kvstore.open('a.db'); e = threading.Event()\n"
    "def work():\n"
    "    try:\n"
    "        while True: s['k'] = b'v'; list(s.items()); e.set()\n"
    "    except kvstore.MisuseError: pass\n"
    "threading.Thread(target=work, daemon=True).start(); e.wait()",
    "a thread that ends later": "import threading; s = kvstore.open('a.db')\n"
    "def work():\n"
    "    for n in range(300): s[str(n)] = b'v'\n"
    "threading.Thread(target=work).start()",
    "a pool of threads that have used it": "from concurrent.futures import ThreadPoolExecutor\n"
    "s = kvstore.open('a.db'); p = ThreadPoolExecutor(3); f = s.family('f', create=True)\n"
    "[p.submit(lambda: (s.get('k'), f.get('k'), next(iter(s.items()), None))).result() for _ in range(9)]",
    "daemon threads that have used it": "import threading; s = kvstore.open('a.db'); e = threading.Event()\n"
    "def work(): s.get('k'); b.wait(); e.wait()\n"
    "b = threading.Barrier(4); [threading.Thread(target=work, daemon=True).start() for _ in range(3)]; b.wait()",
    "an iterator and a batch of ended threads": "import threading; s = kvstore.open('a.db'); left = []\n"
    "def work(): s['a'] = b'1'; i = iter(s.items()); next(i); left.extend([i, s.batch(), s.transaction()])\n"
    "t = threading.Thread(target=work); t.start(); t.join()",
    "a transaction of an ended thread": "import threading; s = kvstore.open('a.db'); left = []\n"
    "def work(): left.append(s.transaction().__enter__()); s['lost'] = b'1'\n"
    "t = threading.Thread(target=work); t.start(); t.join()",
    "a pickled store": "import pickle; s = pickle.loads(pickle.dumps(kvstore.open('a.db'))); s['x'] = b'v'\n"
    "f = pickle.loads(pickle.dumps(s.family('f', create=True)))",
    "a codec": "s = kvstore.open('a.db', codec=kvstore.PICKLE, keys=str); s['x'] = {1}; i = iter(s.items()); next(i)",
    "memoize": "s = kvstore.open('a.db')\n@kvstore.memoize(s, ttl=60)\ndef f(x): return x\nf(1); f(1)",
    "exception": "s = kvstore.open('a.db'); i = iter(s.items()); raise SystemExit(0)",
    "family first": "s = kvstore.open('a.db'); f = s.family('f', create=True); del s; i = iter(f.items()); next(i, None)",
    "closed before": "s = kvstore.open('a.db'); f = s.family('f', create=True); i = iter(f.items()); s.close()",
    "gc disabled": "import gc; gc.disable(); a = [kvstore.open('a.db')]; a.append(a); del a",
    "import only": "",
}


@pytest.mark.parametrize("name", EXITS)
def test_interpreter_ends_silently_with(name: str, tmp_path: Path) -> None:
    assert_clean(run_python("import kvstore\n" + EXITS[name] + "\nprint('end')", cwd=tmp_path) if name != "exception"
                 else run_python("import kvstore\nprint('end')\n" + EXITS[name], cwd=tmp_path), "end")  # fmt: skip
    if (tmp_path / "a.db").exists():
        with kvstore.open(tmp_path / "a.db") as store:
            store.integrity_check()
            assert ("k" in store) <= (name not in ("open transaction", "unfinished batch"))


def test_write_in_atexit_handler_is_kept(tmp_path: Path) -> None:
    assert_clean(run_python("import kvstore\n" + EXITS["used by atexit"], cwd=tmp_path))
    with kvstore.open(tmp_path / "a.db") as store:
        assert store["k"] == b"v"


def test_package_can_be_unloaded_and_imported_again(tmp_path: Path) -> None:
    code = """
import sys, gc
stores = []
for n in range(5):
    import kvstore
    stores.append(kvstore.open(f"{n}.db"))
    stores[-1]["k"] = b"v"
    for name in [m for m in sys.modules if m.startswith("kvstore")]:
        del sys.modules[name]
    del kvstore
    gc.collect()
for s in stores:
    assert s["k"] == b"v"
stores.clear()
gc.collect()
"""
    assert_clean(run_python(code, cwd=tmp_path))
