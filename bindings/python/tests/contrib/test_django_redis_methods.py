"""The methods of the cache for Django that django-redis has beyond Django's interface."""

from __future__ import annotations

import os
import pickle
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Callable

import pytest

django = pytest.importorskip("django")
pytestmark = pytest.mark.filterwarnings("default")

from django.conf import settings  # noqa: E402

if not settings.configured:
    settings.configure(SECRET_KEY="x", USE_TZ=True)
    django.setup()

from django.core.cache.backends.base import DEFAULT_TIMEOUT  # noqa: E402
from django.core.exceptions import ImproperlyConfigured  # noqa: E402
from helpers import Clock, run_python  # noqa: E402

import kvstore  # noqa: E402
from kvstore.contrib.django.cache import KVStoreCache  # noqa: E402
from kvstore.recipes import NotOwnedError  # noqa: E402


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "cache" / "cache.db")


@pytest.fixture
def cache(path: str) -> Iterator[KVStoreCache]:
    made = KVStoreCache(path, {"OPTIONS": {"SYNC": "off"}})
    yield made
    made._storage.close()


@pytest.fixture
def now(cache: KVStoreCache, clock: Clock) -> Clock:
    cache._storage.store().set_clock(clock)
    return clock


def fill(cache: KVStoreCache, *keys: str) -> None:
    cache.set_many({key: 1 for key in keys})


# Keys


def test_keys_returns_matching_keys_in_order(cache: KVStoreCache) -> None:
    fill(cache, "foo-bb", "foo-aa", "foo-ab", "bar", "foo*", "ключ", "a:b:c")
    assert cache.keys("foo*") == ["foo*", "foo-aa", "foo-ab", "foo-bb"]
    assert cache.keys("*foo-a?") == ["foo-aa", "foo-ab"]
    assert cache.keys("foo-[^a]*") == cache.keys("foo-[b-c]b") == ["foo-bb"]
    assert cache.keys(r"foo\*") == cache.keys("foo[*]") == ["foo*"]
    assert cache.keys("bar") == ["bar"] and cache.keys("ba") == cache.keys("FOO*") == []
    assert cache.keys("клю?") == ["ключ"] and cache.keys("a:*") == ["a:b:c"]
    assert len(cache.keys("*")) == 7


def test_expired_and_foreign_keys_are_not_returned(cache: KVStoreCache, now: Clock) -> None:
    cache.set("a", 1, timeout=5)
    fill(cache, "b")
    cache._storage.family()[b":1:\xff"] = b"no UTF-8"
    now.advance(5)
    assert cache.keys("*") == ["b"]


def test_keys_are_those_of_version_and_prefix(path: str, cache: KVStoreCache) -> None:
    fill(cache, "a")
    cache.set("b", 1, version=2)
    other = KVStoreCache(path, {"KEY_PREFIX": "*", "OPTIONS": {"SYNC": "off"}})
    odd = KVStoreCache(path, {"KEY_PREFIX": r"x:[y]\?", "OPTIONS": {"SYNC": "off"}})
    fill(other, "c")
    fill(odd, "d")
    assert (cache.keys("*"), cache.keys("*", version=2), cache.keys("*", 3)) == (["a"], ["b"], [])
    assert (other.keys("*"), odd.keys("*")) == (["c"], ["d"])
    assert cache.delete_pattern("*", prefix="*") == 1 and other.keys("*") == []
    assert odd.delete_pattern("*") == 1 and cache.delete_pattern("*", version=2) == 1
    assert cache.keys("*") == ["a"]


def make_key(key: str, prefix: str, version: Any) -> str:
    return f"{prefix}#{version}#{key}#end"


def reverse_key(key: str) -> str:
    return key.split("#")[2]


def test_key_function_needs_reverse_key_function(path: str) -> None:
    both = KVStoreCache(path, {"KEY_FUNCTION": make_key, "REVERSE_KEY_FUNCTION": reverse_key})
    one = KVStoreCache(path, {"KEY_FUNCTION": make_key})
    simple = KVStoreCache(path, {"KEY_FUNCTION": lambda key, prefix, version: f"{version}/{prefix}/{key}"})
    fill(both, "foo-a", "bar")
    fill(simple, "x", "y")
    assert both.keys("foo*") == ["foo-a"] and simple.keys("*") == ["x", "y"]
    with pytest.raises(ImproperlyConfigured, match="REVERSE_KEY_FUNCTION"):
        one.keys("foo*")
    assert one.delete_pattern("*o-a") == 1 and both.keys("*") == ["bar"]


@pytest.mark.parametrize(
    "pattern, read",
    [
        ("user:1", []),  # looked up
        ("user:[1]", []),
        ("user:?", [f":1:user:{n}" for n in range(10)] + [f":1:user:{n}" for n in range(10, 20)]),
        ("user:1?", [":1:user:1"] + [f":1:user:{n}" for n in range(10, 20)]),
        ("zzz*", []),
    ],
)
def test_only_keys_with_literal_prefix_are_read(
    cache: KVStoreCache, monkeypatch: pytest.MonkeyPatch, pattern: str, read: list[str]
) -> None:
    fill(cache, *(f"user:{n}" for n in range(20)), "a", "z")
    seen: list[str] = []
    names = cache._names

    def count(*arguments: Any) -> list[bytes]:
        found = names(*arguments)
        seen.extend(name.decode() for name in found)
        return found

    monkeypatch.setattr(cache, "_names", count)
    cache.keys(pattern)
    assert sorted(seen) == sorted(read)


def test_iter_keys_returns_each_key_once_while_cache_changes(cache: KVStoreCache) -> None:
    fill(cache, *(f"k{n:02}" for n in range(50)))
    found = []
    for key in cache.iter_keys("k*", itersize=7):
        found.append(key)
        cache.delete(key)
        cache.set("k00", 2)
    assert found == [f"k{n:02}" for n in range(50)]


@pytest.mark.parametrize("itersize", [0, -1, 1.5, True])
def test_invalid_itersize_is_reported_at_once(cache: KVStoreCache, itersize: Any) -> None:
    fill(cache, "a")
    for call in (cache.iter_keys, cache.delete_pattern):
        with pytest.raises(ValueError, match="itersize must be an int of 1 or more"):
            call("a*", itersize=itersize)
    assert cache.keys("*") == ["a"]


@pytest.mark.parametrize("pattern", ["foo-*", "*oo-*", "f??-[0-9]*"])
def test_delete_pattern_deletes_matching_keys(cache: KVStoreCache, pattern: str) -> None:
    fill(cache, *(f"foo-{n}" for n in range(25)), "bar", "fo")
    cache.set("foo-1", 1, version=2)
    assert cache.delete_pattern(pattern, itersize=10) == 25
    assert cache.delete_pattern(pattern) == 0
    assert cache.keys("*") == ["bar", "fo"] and cache.keys("*", version=2) == ["foo-1"]


def test_failing_store_has_no_keys_on_request(path: str) -> None:
    os.mkdir(os.path.dirname(path))
    with open(path, "wb") as file:
        file.write(b"no store" * 1000)
    strict, lenient = KVStoreCache(path, {}), KVStoreCache(path, {"OPTIONS": {"IGNORE_ERRORS": True}})
    calls: list[tuple[Callable[[KVStoreCache], Any], Any]] = [
        (lambda cache: cache.keys("*"), []),
        (lambda cache: list(cache.iter_keys("*")), []),
        (lambda cache: cache.delete_pattern("*"), 0),
        (lambda cache: cache.delete_pattern("*a"), 0),
        (lambda cache: cache.ttl("k"), 0),
        (lambda cache: cache.pttl("k"), 0),
        (lambda cache: cache.expire("k", 1), False),
        (lambda cache: cache.expire_at("k", 2_000_000_000), False),
        (lambda cache: cache.persist("k"), False),
    ]
    for call, missing in calls:
        with pytest.raises(kvstore.CorruptError):
            call(strict)
        assert call(lenient) == missing
    with pytest.raises(kvstore.CorruptError):
        lenient.lock("k")


# Expiry


def test_ttl_and_pttl_of_key(cache: KVStoreCache, now: Clock) -> None:
    cache.set("k", 1, timeout=10)
    assert (cache.ttl("k"), cache.pttl("k")) == (10, 10_000)
    now.advance(5.6)
    assert (cache.ttl("k"), cache.pttl("k")) == (4, 4_400)
    now.advance(4.3)
    assert (cache.ttl("k"), cache.pttl("k")) == (1, 100)
    now.advance(0.1)
    assert (cache.ttl("k"), cache.pttl("k")) == (0, 0)
    cache.set("k", 1, timeout=None)
    assert (cache.ttl("k"), cache.pttl("k"), cache.ttl("k", version=2)) == (None, None, 0)


def test_expire_and_pexpire_set_timeout(cache: KVStoreCache, now: Clock) -> None:
    cache.set("k", 1, timeout=None)
    for timeout, left in [(20, 20_000), (5.5, 5_500), (timedelta(minutes=1), 60_000), (DEFAULT_TIMEOUT, 300_000)]:
        assert cache.expire("k", timeout) is True
        assert cache.pttl("k") == left
    for timeout, left in [(20_500, 20_500), (timedelta(minutes=1), 60_000), (DEFAULT_TIMEOUT, 300_000)]:
        assert cache.pexpire("k", timeout) is True
        assert cache.pttl("k") == left
    for forever in (None, sys.maxsize, 10**400, float("inf")):
        cache.touch("k", 10)
        assert cache.expire("k", forever) and cache.ttl("k") is None
        cache.touch("k", 10)
        assert cache.pexpire("k", forever) and cache.ttl("k") is None
    assert not cache.expire("missing", 20) and not cache.pexpire("missing", 20) and not cache.expire("k", 20, version=2)
    assert cache.expire("k", 0) is True and not cache.has_key("k") and cache.expire("k", 0) is False
    cache.set("k", 1)
    assert cache.pexpire("k", -1) is True and not cache.has_key("k")


def test_expire_at_sets_moment(cache: KVStoreCache, now: Clock) -> None:
    cache.set("k", 1, timeout=None)
    moment = datetime.fromtimestamp(int(now.now_s) + 3600)
    left = 3600_000 - int(now.now_s * 1000) % 1000
    for when in (moment, moment.astimezone(timezone.utc), moment.timestamp(), int(moment.timestamp())):
        cache.touch("k", None)
        assert cache.expire_at("k", when) is True
        assert cache.pttl("k") == left
    for when in (moment, moment.timestamp() * 1000, int(moment.timestamp()) * 1000):
        cache.touch("k", None)
        assert cache.pexpire_at("k", when) is True
        assert cache.pttl("k") == left
    assert cache.pexpire_at("k", int(moment.timestamp()) * 1000 + 7) and cache.pttl("k") == left + 7
    for forever in (sys.maxsize, 10**400, float("inf")):
        assert cache.expire_at("k", forever) and cache.ttl("k") is None
        assert cache.pexpire_at("k", forever) and cache.ttl("k") is None
    assert cache.expire_at("missing", moment) is False
    for past in (now.now_s - 5, 0, -1):
        cache.set("k", 1)
        assert cache.expire_at("k", past) is True and not cache.has_key("k")
        cache.set("k", 1)
        assert cache.pexpire_at("k", past * 1000) is True and not cache.has_key("k")


def test_duration_or_wrong_unit_as_moment_is_reported(cache: KVStoreCache) -> None:
    cache.set("k", 1)
    now = datetime.now().timestamp()
    for call, when, message in [
        (cache.expire_at, 60, r"when must be a moment in seconds .* not 60: for a duration use expire\(\)"),
        (cache.expire_at, int(now * 1000), r"for a moment in milliseconds pexpire_at\(\)"),
        (cache.pexpire_at, int(now), r"when must be a moment in milliseconds .* in seconds expire_at\(\)"),
        (cache.expire_at, float("nan"), "not nan"),
    ]:
        with pytest.raises(ValueError, match=message):
            call("k", when)
    with pytest.raises(TypeError, match="when must be a number or a datetime, not str"):
        cache.expire_at("k", "tomorrow")  # type: ignore[arg-type, unused-ignore]
    assert cache.ttl("k") == 300


def test_persist_removes_timeout(cache: KVStoreCache) -> None:
    cache.set("k", 1, timeout=20)
    assert cache.persist("k") is True and cache.ttl("k") is None
    assert cache.persist("k") is False and cache.persist("missing") is False and cache.persist("k", version=2) is False


# Conditional writes


def test_set_with_condition(cache: KVStoreCache, now: Clock) -> None:
    assert cache.set("k", 1, xx=True) is False and not cache.has_key("k")
    assert cache.set("k", 1, timeout=2, nx=True) is True
    assert cache.set("k", 2, timeout=None, nx=True) is False
    assert (cache.get("k"), cache.ttl("k")) == (1, 2)
    assert cache.set("k", 3, timeout=None, xx=True) is True
    assert (cache.get("k"), cache.ttl("k")) == (3, None)
    assert cache.set("k", 4, timeout=0, nx=True) is False and cache.get("k") == 3
    assert cache.set("k", 4, timeout=0, xx=True) is True and not cache.has_key("k")
    assert cache.set("k", 4, timeout=0, nx=True) is True and not cache.has_key("k")
    with pytest.raises(ValueError, match="nx=True and xx=True exclude each other"):
        cache.set("k", 5, nx=True, xx=True)
    assert cache.set("k", 5) is True


def test_set_of_value_that_cannot_be_stored_returns_false(path: str) -> None:
    cache = KVStoreCache(path, {"OPTIONS": {"MAX_VALUE_SIZE": 1000}})
    cache.set("k", "old")
    assert cache.set("k", "x" * 2000, nx=True) is False and cache.get("k") == "old"
    assert cache.set("k", "x" * 2000, xx=True) is False and cache.get("k") is None
    cache._storage.close()


def test_incr_of_missing_key_without_check_loses_no_update(cache: KVStoreCache) -> None:
    threads = [
        threading.Thread(target=lambda: [cache.incr("n", ignore_key_check=True) for _ in range(25)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (cache.get("n"), cache.ttl("n")) == (100, None)
    with pytest.raises(ValueError, match="'missing' not found"):
        cache.incr("missing")


# Locks


def test_lock_is_key_of_cache_while_held(cache: KVStoreCache, now: Clock) -> None:
    with cache.lock("l", timeout=30) as lock:
        assert cache.has_key("l") and cache.keys("*") == ["l"] and cache.ttl("l") == 30
        assert lock.owned() and lock.locked()
        assert not cache.lock("l").acquire(blocking=False) and not cache.lock("l", blocking=False).acquire()
        assert cache.lock("l", version=2).acquire(blocking=False)
        for arguments in ({"blocking_timeout": 0}, {"blocking": False}):
            with pytest.raises(TimeoutError):
                with cache.lock("l", **arguments):
                    raise AssertionError("acquired twice")
        now.advance(29)
        assert lock.extend(10) and cache.ttl("l") == 11
        assert lock.extend(5, replace_ttl=True) and cache.ttl("l") == 5
        assert lock.reacquire() and cache.ttl("l") == 30
    assert not cache.has_key("l")


def test_lock_excludes_threads(cache: KVStoreCache) -> None:
    inside: list[int] = []
    most: list[int] = []

    def work() -> None:
        for _ in range(10):
            with cache.lock("l", timeout=60, sleep=0.01, blocking_timeout=60):
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 40


PROGRAM = """
from django.conf import settings
settings.configure(SECRET_KEY="x")
from kvstore.contrib.django.cache import KVStoreCache
cache = KVStoreCache({path!r}, {{}})
print(cache.lock("l").acquire(blocking=False), cache.lock("m").acquire(blocking=False), cache.has_key("l"))
"""


def test_lock_excludes_processes(cache: KVStoreCache, path: str) -> None:
    with cache.lock("l", timeout=600):
        assert run_python(PROGRAM.format(path=path)).stdout == "False True True\n"
    assert run_python(PROGRAM.format(path=path)).stdout.startswith("True")


def test_lock_without_timeout_is_free_if_its_process_died(cache: KVStoreCache) -> None:
    child = os.fork()
    if child == 0:
        os._exit(0 if cache.lock("l").acquire(blocking=False) else 1)
    assert os.waitpid(child, 0)[1] == 0
    left = cache.pttl("l")
    assert left is not None and 0 < left <= 60_000 and not cache.lock("l").acquire(blocking=False)
    cache._storage.store().set_clock(lambda: time.time() + 60)
    assert cache.lock("l").acquire(blocking=False)


def test_lock_without_timeout_is_renewed(cache: KVStoreCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvstore.contrib._locks._TTL_WITHOUT_TIMEOUT", 1.0)
    with cache.lock("l") as lock:
        time.sleep(2)
        assert lock.owned() and cache.has_key("l")


def test_child_of_fork_does_not_hold_lock_of_parent(cache: KVStoreCache) -> None:
    lock = cache.lock("l", timeout=600)
    assert lock.acquire()
    child = os.fork()
    if child == 0:
        try:
            assert not lock.owned() and not lock.acquire(blocking=False)
            with pytest.raises(NotOwnedError):
                lock.release()
            os._exit(0)
        except BaseException:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    lock.release()


@pytest.mark.parametrize("use", ["release", "reacquire", "extend"])
def test_lost_lock_is_reported(cache: KVStoreCache, now: Clock, use: str) -> None:
    lock = cache.lock("l", timeout=5)
    arguments = [10] if use == "extend" else []
    with pytest.raises(NotOwnedError, match="acquire it first"):
        getattr(lock, use)(*arguments)
    assert lock.acquire()
    now.advance(5)
    with pytest.raises(NotOwnedError, match="its timeout ended, or its key was deleted"):
        getattr(lock, use)(*arguments)
    with pytest.raises(NotOwnedError):
        with cache.lock("l"):
            cache.delete("l")
            assert cache.lock("l", timeout=5).acquire(blocking=False)
    assert cache.has_key("l")  # the other holder still has it


def test_lock_of_object_is_released_by_any_thread(cache: KVStoreCache) -> None:
    lock = cache.lock("l", timeout=60, thread_local=False)
    assert lock.acquire()
    thread = threading.Thread(target=lock.release)
    thread.start()
    thread.join()
    assert not cache.has_key("l")


def test_fencing_tokens_grow_although_cache_is_cleared(cache: KVStoreCache, now: Clock) -> None:
    tokens = []
    for _ in range(3):
        with cache.lock("l", timeout=5) as lock:
            tokens.append(lock.fencing_token)
        cache.clear()
    assert tokens == sorted(set(tokens))


def test_lock_works_after_file_was_deleted(cache: KVStoreCache, path: str) -> None:
    cache.set("k", 1)
    before, held = cache.lock("l", timeout=60), cache.lock("m", timeout=60)
    assert held.acquire()
    shutil.rmtree(os.path.dirname(path))
    with before:
        assert cache.has_key("l")
    with pytest.raises(NotOwnedError):
        held.release()
    shutil.rmtree(os.path.dirname(path))
    with cache.lock("l", timeout=60):
        assert cache.keys("*") == ["l"]


@pytest.mark.parametrize("timeout", [sys.maxsize, float("inf"), timedelta(hours=1), 0.5])
def test_timeouts_of_lock(cache: KVStoreCache, timeout: Any) -> None:
    lock = cache.lock("l", timeout=timeout, blocking_timeout=timeout)
    with lock:
        assert cache.has_key("l")
    assert lock.acquire(blocking_timeout=timeout) and lock.extend(timeout) and cache.has_key("l")


@pytest.mark.parametrize("timeout", [0, -1])
def test_invalid_arguments_of_lock_are_reported(cache: KVStoreCache, timeout: float) -> None:
    with pytest.raises(ValueError, match="timeout must be positive"):
        cache.lock("l", timeout=timeout)
    with pytest.raises(ValueError, match="timeout"):
        cache.lock("l", blocking_timeout=-1)
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(cache.lock("l"))
