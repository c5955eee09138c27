"""memoize: early recomputation and stale-while-revalidate."""

from __future__ import annotations

import math
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers import Clock

import kvstore
from kvstore import _memoize, _memoize_results
from kvstore.recipes import memoize


@pytest.fixture
def store(path: Path, clock: Clock) -> Iterator[kvstore.Store]:
    with kvstore.open(path, busy_timeout=30, sync="off") as opened:
        opened.set_clock(clock)
        yield opened
        settled()


def settled() -> None:
    """Wait until no thread recomputes any more."""
    for thread in threading.enumerate():
        if thread.name == "kvstore-memoize":
            thread.join(60)
            assert not thread.is_alive()


def results_in(store: kvstore.Store) -> list[bytes]:
    """Return the keys of memoized functions, except those that record when results were cleared."""
    return [key for key in store if not key.endswith(b":!")]


def counting(store: kvstore.Family, **settings: Any) -> tuple[Any, list[int]]:
    calls: list[int] = []

    @memoize(store, **settings)
    def f() -> int:
        calls.append(1)
        return len(calls)

    return f, calls


def test_recipes_memoize_is_kvstore_memoize() -> None:
    assert memoize is kvstore.memoize


def test_stale_result_is_returned_and_recomputed_in_background(store: kvstore.Store, clock: Clock) -> None:
    f, calls = counting(store, ttl=10, stale=5)
    assert f() == 1
    clock.advance(9.999)
    assert f() == 1
    settled()
    assert len(calls) == 1
    clock.advance(0.001)
    assert f() == 1  # stale
    settled()
    assert (f(), len(calls)) == (2, 2)
    clock.advance(9.999)
    assert f() == 2
    settled()
    assert len(calls) == 2


def test_result_expires_after_ttl_and_stale_time(store: kvstore.Store, clock: Clock) -> None:
    f, _ = counting(store, ttl=10, stale=5)
    f()
    assert store.ttl(f.cache_key()) == 15
    clock.advance(15)
    assert f() == 2


def test_callers_never_wait_for_recomputation(store: kvstore.Store, clock: Clock) -> None:
    go = threading.Event()
    calls: list[int] = []

    @memoize(store, ttl=10, stale=100)
    def f() -> int:
        calls.append(1)
        if len(calls) > 1:
            go.wait(60)
        return len(calls)

    f()
    clock.advance(11)
    assert [f() for _ in range(50)] == [1] * 50
    assert len(calls) <= 2
    go.set()
    settled()
    assert (f(), len(calls)) == (2, 2)


def test_nothing_is_recomputed_early_without_early_or_stale(store: kvstore.Store, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "Thread", None)
    f, calls = counting(store, ttl=10)
    f()
    clock.advance(9.999)
    assert (f(), len(calls), list(store)) == (1, 1, [f.cache_key()])


def test_early_recomputation_follows_xfetch_probability(store: kvstore.Store, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """XFetch recomputes when delta * beta * -log(rand()) reaches the remaining time."""
    f, calls = counting(store, ttl=100, early=2.0)
    f()
    store[f.cache_key().replace(b":=", b":+")] = "3.0"  # it took three seconds
    for left, rand in ((50.0, 0.5), (7.0, math.exp(-7.01 / 6)), (6.0, 0.3)):
        clock.now_s = (store.expires_at(f.cache_key()) or 0) - left
        due = 3.0 * 2.0 * -math.log(rand) >= left
        monkeypatch.setattr(random, "random", lambda rand=rand: 1.0 - rand)
        before = len(calls)
        f()
        settled()
        assert (len(calls) - before == 1) == due, (left, rand)
        if due:
            store[f.cache_key().replace(b":=", b":+")] = "3.0"


def test_popular_result_with_early_is_never_missing(store: kvstore.Store, clock: Clock) -> None:
    inline = threading.get_ident()
    by: list[int] = []

    @memoize(store, ttl=10, early=1.0)
    def f() -> int:
        by.append(threading.get_ident())
        return 1

    f()
    for _ in range(300):
        store[f.cache_key().replace(b":=", b":+")] = "0.5"
        clock.advance(0.1)
        f()
        settled()
    assert by[0] == inline and inline not in by[1:]
    assert 3 <= len(by) <= 30


def test_computation_time_is_measured(store: kvstore.Store) -> None:
    @memoize(store, ttl=10, early=1.0)
    def f() -> None:
        time.sleep(0.02)

    f()
    assert 0.02 <= float(store[f.cache_key().replace(b":=", b":+")]) < 10
    assert f.cache_info().currsize == 1
    f.cache_clear()
    assert results_in(store) == []


def test_invalid_stored_duration_counts_as_none(store: kvstore.Store) -> None:
    f, calls = counting(store, ttl=10, early=1.0)
    f()
    store[f.cache_key().replace(b":=", b":+")] = "soon"
    f()
    settled()
    assert len(calls) == 1


def test_background_exception_is_reported_and_retried_later(store: kvstore.Store, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: told.append(args.exc_type))
    calls: list[int] = []

    @memoize(store, ttl=10, stale=100)
    def f() -> int:
        calls.append(1)
        if len(calls) == 2:
            raise LookupError
        return len(calls)

    f()
    clock.advance(10)
    for _ in range(5):
        assert f() == 1
        settled()
    assert (len(calls), told) == (2, [LookupError])
    clock.advance(1)
    f()
    settled()
    assert (f(), len(calls)) == (3, 3)


def test_results_cleared_during_recomputation_stay_cleared(store: kvstore.Store, clock: Clock) -> None:
    go, begun = threading.Event(), threading.Event()
    calls: list[int] = []

    @memoize(store, ttl=10, stale=100)
    def f() -> int:
        calls.append(1)
        if len(calls) == 2:
            begun.set()
            go.wait(60)
        return len(calls)

    f()
    clock.advance(10)
    f()
    begun.wait(60)
    f.cache_clear()
    go.set()
    settled()
    assert results_in(store) == []


def test_result_recomputed_by_other_process_is_reused(
    store: kvstore.Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    f, calls = counting(store, ttl=10, stale=100)
    f()
    clock.advance(11)
    add = kvstore.Family.add

    def after_somebody_else(self: Any, *args: Any) -> bool:
        store.put(f.cache_key(), kvstore.DATA.dumps("theirs"), 110)
        return add(self, *args)

    monkeypatch.setattr(kvstore.Family, "add", after_somebody_else)
    assert f() == 1
    settled()
    assert (f(), len(calls)) == ("theirs", 1)


def test_recursive_call_during_refresh_gets_stale_result(store: kvstore.Store, clock: Clock) -> None:
    calls: list[int] = []

    @memoize(store, ttl=10, stale=100)
    def f() -> int:
        calls.append(1)
        return 1 if len(calls) == 1 else f() + 1

    f()
    clock.advance(10)
    assert f() == 1
    settled()
    assert (f(), len(calls)) == (2, 2)


def test_stale_result_is_returned_if_no_thread_can_start(store: kvstore.Store, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_more(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("can't start new thread")

    f, calls = counting(store, ttl=10, stale=100)
    f()
    clock.advance(10)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_more)
        assert f() == 1
    assert f() == 1
    settled()
    assert (f(), len(calls)) == (2, 2)
    assert not _memoize_results._refreshing


@pytest.mark.parametrize(
    "bad, error",
    [
        ({"early": -1}, ValueError), ({"early": math.inf}, ValueError), ({"early": math.nan}, ValueError), ({"early": "1"}, TypeError),
        ({"early": True}, TypeError), ({"stale": -1}, ValueError), ({"stale": kvstore.FOREVER}, ValueError),
        ({"stale": 5, "ttl": None}, ValueError), ({"early": 1, "ttl": kvstore.FOREVER}, ValueError),
    ],
)  # fmt: skip
def test_invalid_setting_is_refused_at_decoration(store: kvstore.Store, bad: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        memoize(store, **{"ttl": 10, **bad})


PROCESS = """
import sys, time, kvstore
store = kvstore.open(sys.argv[1], busy_timeout=60)
@kvstore.memoize(store, ttl=0.05, name="f", lease={lease}, {settings})
def f():
    store.incr("inside")
    {middle}
    assert store["inside"] == b"1"
    store.incr("computed")
    store.decr("inside")
    return time.time()
"""


@pytest.mark.parametrize("settings", ["stale=1000", "early=5.0, stale=1000"])
def test_processes_recompute_one_at_a_time_without_waiting(path: Path, settings: str) -> None:
    code = PROCESS.format(lease=60, middle="time.sleep(0.02)", settings=settings) + """
f()
longest = 0.0
end = time.monotonic() + 0.7
while time.monotonic() < end:
    f()
time.sleep(0.1)
print(f.cache_info().hits > 20)
"""
    with kvstore.open(path, busy_timeout=60) as store:
        children = [subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)]
        for child in children:
            out, error = child.communicate(timeout=120)
            assert (child.returncode, out, error) == (0, "True\n", "")
        assert 2 <= int(store["computed"]) <= 60


def test_other_process_recomputes_after_lease_of_killed_one(path: Path) -> None:
    code = PROCESS.format(lease=0.3, middle="print('inside', flush=True) if store.get('computed') else None; time.sleep(60 if store.get('computed') else 0)", settings="stale=1000") + """
f()
while True:
    f()
    time.sleep(0.01)
"""
    with kvstore.open(path, busy_timeout=60) as store:
        child = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        assert child.stdout.readline() == "inside\n"
        f: Callable[[], float] = memoize(store, ttl=0.05, name="f", stale=1000)(lambda: -1.0)
        assert f() > 0
        child.kill()
        child.communicate()
        until = time.monotonic() + 60
        while f() > 0 and time.monotonic() < until:
            time.sleep(0.005)
        assert f() == -1.0
        settled()
