"""Recipe objects work where their store works: after forks, with running threads of the parent, and pickled."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest
from helpers import assert_clean, carried_recipes, run_python

import kvstore
from kvstore.recipes import Lock, Queue, RateLimiter, RLock, Semaphore, Tags

FORK = """
import os, sys, threading, time
import kvstore
from kvstore.recipes import Lock, Queue, RateLimiter, RLock, Semaphore, Tags, memoize

store = kvstore.open(sys.argv[1], busy_timeout=60)
lock, again, slots = Lock(store, "l", renew=True), RLock(store, "r"), Semaphore(store, "s", 2)
limiter, jobs, tags = RateLimiter(store, "n", 10**6, 3600), Queue(store, "q"), Tags(store)

@memoize(store, ttl=1000, early=1.0, stale=1000)
def f(x):
    return x

def use():
    with lock, again, again, slots:
        limiter.hit("k")
        jobs.put(b"x")
        jobs.get(block=False).ack()
        tags.put("key", b"v", ["t"])
        f(1)

stop = threading.Event()
def busy():
    while not stop.is_set():
        use()

threads = [threading.Thread(target=busy) for _ in range(2)]
for thread in threads:
    thread.start()
for _ in range(5):
    time.sleep(0.02)
    child = os.fork()
    if child == 0:
        for _ in range(3):
            use()
        os._exit(7)
    assert os.waitpid(child, 0)[1] == 7 << 8
stop.set()
for thread in threads:
    thread.join()
assert jobs.sizes() == (0, 0, 0, 0)
print("done")
"""


def test_recipes_work_in_child_forked_during_use_by_threads(path: Path) -> None:
    assert_clean(run_python(FORK, str(path)), "done")


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_recipes_work_in_spawned_process(path: Path, method: str) -> None:
    with kvstore.open(path, busy_timeout=60) as store:
        recipes = (
            Lock(store, "l"), RLock(store, "r"), Semaphore(store, "s", 2), RateLimiter(store, "n", 5, 3600),
            Queue(store, "q", visibility=60), Tags(store),
        )  # fmt: skip
        recipes[4].put(b"x")
        with recipes[0], recipes[2]:
            child = multiprocessing.get_context(method).Process(target=carried_recipes, args=recipes)
            child.start()
            child.join(60)
        assert child.exitcode == 0
        assert recipes[3].peek("k").remaining == 4
        assert recipes[4].sizes() == (0, 0, 0, 0)
        assert recipes[5].keys("t") == [b"key"]
