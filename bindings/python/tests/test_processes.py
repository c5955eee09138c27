"""Several processes on one file, including processes that are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from helpers import increment, run_python

import kvstore


def test_spawned_processes_with_own_handles_share_one_file(path: Path) -> None:
    with kvstore.open(path) as store:
        store["n"] = b"0"
        context = get_context("spawn")
        children = [context.Process(target=increment, args=(str(path), 50)) for _ in range(3)]
        for child in children:
            child.start()
        for child in children:
            child.join(60)
        assert [child.exitcode for child in children] == [0, 0, 0]
        assert store["n"] == b"150"


CRASH = """
import os, sys, kvstore
store = kvstore.open(sys.argv[1])
store.put("committed", b"1", ttl=1000)
family = store.family("f", create=True)
family["committed"] = b"1"
{middle}
print("ready", flush=True)
{end}
"""

MIDDLES = {
    "in a transaction": "transaction = store.transaction().__enter__()\nstore['lost'] = b'1'\nfamily['lost'] = b'1'",
    "in a batch": "batch = store.batch()\nbatch.put('lost', b'1')",
    "in an iteration": "iterator = iter(store.items())\nnext(iterator)",
    "in a snapshot": "snapshot = store.snapshot()\nsnapshot.__enter__()",
    "with a cleaner": "store.start_cleaner(0.001)",
    "idle": "",
}


@pytest.mark.parametrize("middle", MIDDLES)
@pytest.mark.parametrize("way", ["_exit", "kill", "abort"])
def test_crash_keeps_exactly_committed_data(path: Path, middle: str, way: str) -> None:
    end = {"_exit": "os._exit(3)", "kill": "os.kill(os.getpid(), 9)", "abort": "os.abort()"}[way]
    code = CRASH.format(middle=MIDDLES[middle], end=end)
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=60)
    assert done.stdout == "ready\n", done.stderr
    if os.name == "posix":
        assert done.returncode == {"_exit": 3, "kill": -signal.SIGKILL, "abort": -signal.SIGABRT}[way]
    else:  # what abort() leaves is the C library's affair
        assert done.returncode in {"_exit": (3,), "kill": (9,), "abort": (3, 0xC0000409)}[way]
    with kvstore.open(path) as store:
        store.integrity_check()
        assert dict(store.items()) == {b"committed": b"1"}
        assert dict(store.family("f").items()) == {b"committed": b"1"}
        with store.transaction():
            store["next"] = b"1"


def test_process_killed_while_writing_leaves_whole_transactions(path: Path) -> None:
    code = """
import sys, kvstore
store = kvstore.open(sys.argv[1])
for number in range(10**9):
    with store.transaction():
        store["a"] = str(number)
        store["b"] = str(number)
    if number == 200:
        print("ready", flush=True)
"""
    for _ in range(3):
        child = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.kill()
        child.wait()
        child.stdout.close()
        with kvstore.open(path) as store:
            store.integrity_check()
            assert store["a"] == store["b"]
            assert int(store["a"]) >= 200


def test_write_lock_of_other_process_raises_busy_error(path: Path) -> None:
    code = """
import sys, kvstore
with kvstore.open(sys.argv[1]) as store:
    with store.transaction():
        store["k"] = b"theirs"
        print("ready", flush=True)
        sys.stdin.readline()
"""
    with kvstore.open(path) as store:
        child = subprocess.Popen(
            [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        with kvstore.open(path, busy_timeout=0) as impatient:
            with pytest.raises(kvstore.BusyError):
                impatient["k"] = b"mine"
        child.communicate("\n", timeout=60)
        assert child.returncode == 0
        assert store["k"] == b"theirs"


def test_expiry_set_by_other_process_applies_here(path: Path) -> None:
    with kvstore.open(path) as store:
        code = f"import kvstore; s = kvstore.open({str(path)!r}); s.put('k', b'v', expires_at=0)"
        store["k"] = b"old"
        done = run_python(code)
        assert done.returncode == 0, done.stderr
        assert "k" not in store


ASKS: dict[str, Callable[[Any], Any]] = {"get": lambda s: s["k"], "put": lambda s: s.put("k", b"")}
