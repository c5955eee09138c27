"""A child made by fork cannot use what it inherited: an exception there, and no harm to the parent."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import assert_clean, run_python

import kvstore

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")


def in_child(work: Callable[[], Any]) -> str:
    """What the work answers (or raises) in a forked child, as text."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of 3.12: fork with threads
        child = os.fork()
    if child == 0:
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


USES: dict[str, Callable[[Any], Any]] = {
    "read": lambda s: s["k"],
    "get": lambda s: s.get("k"),
    "in": lambda s: "k" in s,
    "len": lambda s: len(s),
    "write": lambda s: s.put("k", b"child"),
    "write with ttl": lambda s: s.put("k", b"child", ttl=5),
    "delete": lambda s: s.delete("k"),
    "iterate": lambda s: list(s.items()),
    "get_many": lambda s: s.get_many(["k"]),
    "purge": lambda s: s.purge_expired(),
    "transaction": lambda s: s.transaction().__enter__(),
    "snapshot": lambda s: s.snapshot().__enter__(),
    "families": lambda s: s.families(),
    "family": lambda s: s.family("f"),
    "sync": lambda s: s.sync(),
    "stats": lambda s: s.stats(),
    "integrity_check": lambda s: s.integrity_check(),
    "set_clock": lambda s: s.set_clock(None),
    "cleaner": lambda s: s.start_cleaner(1),
}


@pytest.mark.parametrize("use", USES)
def test_an_inherited_store_is_a_misuse_error_in_the_child(path: Path, use: str) -> None:
    with kvstore.open(path) as store:
        store["k"] = b"v"
        store.family("f", create=True)
        assert in_child(lambda: USES[use](store)) == "MisuseError"
        assert store["k"] == b"v"
        store["after"] = b"fork"
        store.integrity_check()


def test_inherited_families_iterators_batches_and_transactions_are_misuse_errors(path: Path) -> None:
    with kvstore.open(path) as store:
        store.put_many({f"{n:04}": b"v" for n in range(1000)})
        family = store.family("f", create=True)
        keys = iter(store.keys())
        next(keys)
        batch = store.batch()
        batch.put("b", b"v")
        assert in_child(lambda: family.get("k")) == "MisuseError"
        assert in_child(lambda: list(keys)) == "MisuseError"
        assert in_child(lambda: batch.commit()) == "MisuseError"
        with store.transaction():
            store["t"] = b"v"
            assert in_child(lambda: store.put("t", b"child")) == "MisuseError"
        assert store["t"] == b"v"
        assert len(list(keys)) >= 999
        batch.commit()
        assert store["b"] == b"v"


def test_closing_an_inherited_store_harms_nobody(path: Path) -> None:
    with kvstore.open(path) as store:
        store["k"] = b"v"
        assert in_child(store.close) in ("None", "MisuseError")
        assert store["k"] == b"v"
        store["k"] = b"w"


def test_an_inherited_store_may_be_forgotten(path: Path) -> None:
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


def test_a_child_may_open_other_files(path: Path, tmp_path: Path) -> None:
    def work() -> bytes:
        with kvstore.open(tmp_path / "child.db") as own:
            own["k"] = b"child"
            return own["k"]

    with kvstore.open(path) as store:
        assert in_child(work) == "b'child'"
        assert "k" not in store


def test_a_child_cannot_open_a_file_its_parent_had_open(path: Path) -> None:
    with kvstore.open(path) as store:
        assert in_child(lambda: kvstore.open(path)) == "MisuseError"
        store["k"] = b"v"


def test_a_fork_while_threads_use_the_store_does_not_hang_the_child(path: Path) -> None:
    import threading

    with kvstore.open(path) as store:
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
                assert in_child(lambda: store["k"]) == "MisuseError"
                assert in_child(lambda: store.transaction().__enter__()) == "MisuseError"
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        store.integrity_check()


def test_a_forked_child_that_ends_normally_is_silent(path: Path) -> None:
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
