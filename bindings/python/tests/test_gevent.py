"""Greenlets of gevent: a greenlet that waits for the lock of a writer lets the others run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from helpers import assert_clean, run_python

pytest.importorskip("gevent")

HEAD = """
from gevent import monkey
monkey.patch_all()
import gevent, gevent.event, sys, threading, time
import kvstore
path = sys.argv[1]
"""


def run(code: str, *args: object) -> str:
    """Run code in a process that gevent has patched, and return its output."""
    done = run_python(HEAD + code, *map(str, args))
    assert_clean(done)
    return done.stdout


@pytest.mark.parametrize("second", ["db", "kvstore.open(path)"])
@pytest.mark.parametrize("journal_mode", ["wal", "delete"])
@pytest.mark.parametrize(
    "write",
    [
        "db.put('b', '2')",
        "db.put('b', '2', ttl=60)",
        "db.incr('b', 2)",
        "db.put_many({'b': b'2'})",
        "db.setdefault('b', b'2')",
        "db.update(b=b'2')",
        "db.family('f', create=True).put('b', '2'); db['b'] = '2'",
    ],
)
def test_write_waits_for_transaction_of_another_greenlet(path: Path, second: str, journal_mode: str, write: str) -> None:
    code = f"""
first = kvstore.open(path, busy_timeout=10, journal_mode={journal_mode!r})
path_and_mode = dict(busy_timeout=10, journal_mode={journal_mode!r})
db = first if {second!r} == "db" else kvstore.open(path, **path_and_mode)
begun, go = gevent.event.Event(), gevent.event.Event()
order = []

def holds():
    with first.transaction():
        first["a"] = "1"
        begun.set()
        go.wait()
        order.append("commit")

def writes():
    begun.wait()
    order.append("wait")
    {write}
    order.append("written")

def runs():
    begun.wait()
    for _ in range(20):
        gevent.sleep(0.001)
    go.set()

gevent.joinall([gevent.spawn(f) for f in (holds, writes, runs)], raise_error=True)
print(order, first["a"], first["b"])
"""
    assert run(code, path) == "['wait', 'commit', 'written'] b'1' b'2'\n"


def test_write_fails_after_busy_timeout_while_others_run(path: Path) -> None:
    code = """
db = kvstore.open(path, busy_timeout=0.3)
go, ticks = gevent.event.Event(), []

def holds():
    with db.transaction():
        db["a"] = "1"
        go.wait()

def writes():
    began = time.monotonic()
    for call in (lambda: db.put("b", "2"), lambda: db.transaction().__enter__()):
        try:
            call()
        except kvstore.BusyError as error:
            assert "300 ms" in str(error) and error.hint is kvstore.Hint.RAISE_BUSY_TIMEOUT, error
    assert 0.6 <= time.monotonic() - began < 10
    go.set()

def runs():
    while not go.is_set():
        ticks.append(1)
        gevent.sleep(0.001)

gevent.joinall([gevent.spawn(f) for f in (holds, writes, runs)], raise_error=True)
assert len(ticks) > 20, len(ticks)
print(list(db))
"""
    assert run(code, path) == "[b'a']\n"


def test_greenlet_killed_while_it_waits_leaves_no_lock(path: Path) -> None:
    code = """
db = kvstore.open(path, busy_timeout=10)
go = gevent.event.Event()

def holds():
    with db.transaction():
        db["a"] = "1"
        go.wait()

def begins():
    with db.transaction():
        db["b"] = "2"

def times_out():
    with gevent.Timeout(0.02, False):
        db["c"] = "3"
        print("not reached")

holder = gevent.spawn(holds)
gevent.sleep(0)
killed = gevent.spawn(begins)
gevent.sleep(0.02)
killed.kill()
gevent.spawn(times_out).join()
go.set()
holder.join()
db["d"] = "4"
print(sorted(db))
"""
    assert run(code, path) == "[b'a', b'd']\n"


@pytest.mark.parametrize("exclusive", [False, True], ids=["write", "open"])
def test_greenlets_wait_for_another_process(path: Path, exclusive: bool) -> None:
    code = f"""
db = None if {exclusive} else kvstore.open(path, busy_timeout=60)

def writes():
    (db or kvstore.open(path, busy_timeout=60))["b"] = "2"

def runs():
    for _ in range(20):
        gevent.sleep(0.001)
    print("ran", flush=True)

gevent.joinall([gevent.spawn(writes), gevent.spawn(runs)], raise_error=True)
print(kvstore.open(path)["b"])
"""
    holder = f"""
import sys, kvstore
with kvstore.open(sys.argv[1], exclusive={exclusive}) as db, db.transaction():
    db["a"] = "1"
    print("ready", flush=True)
    sys.stdin.readline()
"""
    with subprocess.Popen(
        [sys.executable, "-c", holder, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None and other.stdin is not None
        other.stdout.readline()
        with subprocess.Popen(
            [sys.executable, "-c", HEAD + code, str(path)], stdout=subprocess.PIPE, text=True
        ) as waiting:
            assert waiting.stdout is not None
            assert waiting.stdout.readline() == "ran\n"  # while the other process holds the lock
            other.stdin.write("\n")
            other.stdin.flush()
            assert waiting.stdout.read() == "b'2'\n"


def test_recipes_and_memoize_work_in_greenlets(path: Path) -> None:
    code = """
from kvstore.recipes import Lock, Queue
db = kvstore.open(path, busy_timeout=30)
calls, held, got = [], [], []

@kvstore.memoize(db)
def slow(x):
    calls.append(x)
    gevent.sleep(0.02)
    return x

def locks(n):
    with Lock(db, "lock", ttl=60):
        held.append(n)
        gevent.sleep(0.001)
        assert held[-1] == n
        held.append(n)

def takes():
    with Queue(db, "jobs").get(timeout=30) as message:
        got.append(message.value)

greenlets = [gevent.spawn(slow, 5) for _ in range(10)] + [gevent.spawn(locks, n) for n in range(5)]
greenlets += [gevent.spawn(takes), gevent.spawn_later(0.05, Queue(db, "jobs").put, "job")]
gevent.joinall(greenlets, raise_error=True)
print([g.value for g in greenlets[:10]] == [5] * 10, calls, held[::2] == held[1::2], got)
"""
    assert run(code, path) == "True [5] True [b'job']\n"


def test_threads_of_the_gevent_thread_pool_wait_as_threads(path: Path) -> None:
    code = """
db = kvstore.open(path, busy_timeout=10)
begun, go = gevent.event.Event(), gevent.event.Event()

def holds():
    with db.transaction():
        db["a"] = "1"
        begun.set()
        go.wait()

def writes():
    begun.wait()
    return gevent.get_hub().threadpool.apply(db.put, ("b", "2"))

greenlets = [gevent.spawn(holds), gevent.spawn(writes)]
gevent.sleep(0.05)
go.set()
gevent.joinall(greenlets, raise_error=True)
print(db["b"])
"""
    assert run(code, path) == "b'2'\n"


def test_late_patching_is_warned_about(path: Path) -> None:
    code = """
import sys, warnings, kvstore
from gevent import monkey
with warnings.catch_warnings(record=True) as before:
    kvstore.open(sys.argv[1]).close()
monkey.patch_all()
with warnings.catch_warnings(record=True) as after:
    warnings.simplefilter("always")
    kvstore.open(sys.argv[1]).close()
print(before, [(one.category.__name__, one.filename, "patch first" in str(one.message)) for one in after])
"""
    assert_clean(run_python(code, str(path)), "[] [('RuntimeWarning', '<string>', True)]")


def test_library_is_replaced_only_if_gevent_has_patched(path: Path) -> None:
    code = """
import gevent, sys, kvstore
from kvstore import _kvstore, _native
print(_native.lib is _kvstore.lib)
"""
    done = run_python(code)
    assert_clean(done, "True")
    assert run("from kvstore import _kvstore, _native\nprint(_native.lib is _kvstore.lib)", path) == "False\n"
