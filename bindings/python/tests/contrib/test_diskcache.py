"""``kvstore.contrib.diskcache``: what diskcache's own tests (run-contrib-tests) do not cover."""

from __future__ import annotations

import collections
import decimal
import enum
import io
import math
import os
import pickle
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from helpers import BOMBS, Bomb
from hypothesis import given, settings
from hypothesis import strategies as st

import kvstore
from kvstore.contrib import diskcache
from kvstore.contrib.diskcache import Cache, Deque, Disk, FanoutCache, Index, JSONDisk
from kvstore.contrib.diskcache._keys import decode, encode, shortened
from kvstore.contrib.diskcache._tables import Tables

@pytest.fixture
def cache(tmp_path: Path) -> Any:
    with Cache(tmp_path / "cache") as cache:
        yield cache
        assert cache.check() == []


# Keys

KEYS = st.one_of(
    st.integers(), st.floats(allow_nan=False), st.text(max_size=5), st.binary(max_size=5), st.booleans(), st.none(),
    st.tuples(st.integers(0, 3), st.text(max_size=2)),
)  # fmt: skip


def _sorts_like(key: Any) -> tuple[int, Any]:
    """Return a sort key for diskcache's order of the keys that are stored as they are."""
    return (0, key) if isinstance(key, (int, float)) else (1, key.encode()) if isinstance(key, str) else (2, key)


@given(st.lists(st.one_of(st.integers(-(1 << 63), (1 << 63) - 1), st.floats(allow_nan=False), st.text(), st.binary())))
def test_encoded_keys_sort_like_keys_and_come_back(keys: list[Any]) -> None:
    by_key = sorted(keys, key=_sorts_like)
    by_code = sorted(keys, key=lambda key: encode(key, True))
    assert [_sorts_like(key) for key in by_code] == [_sorts_like(key) for key in by_key]
    for key in keys:
        found, is_raw = decode(encode(key, True))
        assert is_raw and found == key and isinstance(found, (int, float)) == isinstance(key, (int, float))


def test_nan_infinite_and_surrogate_keys_come_back() -> None:
    assert math.isnan(decode(encode(math.nan, True))[0])
    for key in (math.inf, -math.inf, 1e300, -1e300, -0.5, "\ud800"):
        assert decode(encode(key, True))[0] == key


def test_equal_numbers_are_one_key_and_true_is_another(cache: Cache) -> None:
    cache[1] = "int"
    cache[1.0] = "float"
    cache[True] = "bool"
    assert cache[1] == "float" and cache[True] == "bool" and len(cache) == 2


def test_keys_longer_than_a_key_of_the_store(cache: Cache) -> None:
    keys = ["x" * 200_000, b"y" * 65_536, ("z" * 100_000, 1)]
    for number, key in enumerate(keys):
        cache.set(key, number, tag="long")
    assert list(cache) == keys and [cache[key] for key in keys] == [0, 1, 2]
    assert cache.incr(keys[0]) == 1 and list(cache.iterkeys()) != [] and cache.peekitem() == (keys[2], 2)
    assert cache.evict("long") == 3 and len(cache) == 0
    assert shortened(encode(keys[0], True)) != encode(keys[0], True)


# A model

VALUES = st.one_of(st.integers(), st.text(max_size=3), st.binary(max_size=3), st.lists(st.none(), max_size=2))
CALLS = st.one_of(
    st.tuples(st.just("set"), KEYS, VALUES, st.sampled_from([None, "a", "b", 3, 2.5, b"x"])),
    st.tuples(st.just("add"), KEYS, VALUES),
    st.tuples(st.just("delete"), KEYS),
    st.tuples(st.just("pop"), KEYS),
    st.tuples(st.just("incr"), KEYS, st.integers(-5, 5)),
    st.tuples(st.just("touch"), KEYS),
    st.tuples(st.just("evict"), st.sampled_from(["a", "b", 3])),
    st.tuples(st.just("push"), VALUES, st.sampled_from([None, "q"]), st.sampled_from(["back", "front"])),
    st.tuples(st.just("pull"), st.sampled_from([None, "q"]), st.sampled_from(["back", "front"])),
    st.tuples(st.just("clear")),
    st.tuples(st.just("reopen")),
)


class Model:
    """A dict with tags and queues, which behaves as a cache should."""

    def __init__(self) -> None:
        self.items: dict[Any, tuple[Any, Any]] = {}

    @staticmethod
    def name(key: Any) -> Any:
        return ("bool", key) if isinstance(key, bool) else ("tuple", key) if isinstance(key, tuple) else key

    def set(self, key: Any, value: Any, tag: Any = None) -> bool:
        self.items[self.name(key)] = (value, tag)
        return True

    def add(self, key: Any, value: Any) -> bool:
        return self.name(key) not in self.items and self.set(key, value)

    def delete(self, key: Any) -> bool:
        return self.items.pop(self.name(key), None) is not None

    def pop(self, key: Any) -> Any:
        return self.items.pop(self.name(key), (None, None))[0]

    def incr(self, key: Any, delta: int) -> Any:
        value, tag = self.items.get(self.name(key), (0, None))
        if not isinstance(value, int):
            return TypeError
        self.items[self.name(key)] = (value + delta, tag)
        return value + delta

    def touch(self, key: Any) -> bool:
        return self.name(key) in self.items

    def evict(self, tag: Any) -> int:
        names = [name for name, (_, found) in self.items.items() if found == tag and type(found) is type(tag)]
        for name in names:
            del self.items[name]
        return len(names)

    def queue(self, prefix: Any) -> list[Any]:
        keys = [key for key in self.items if isinstance(key, int if prefix is None else str)]
        if prefix is None:
            return sorted(key for key in keys if 0 < key < 999_999_999_999_999)
        return sorted(key for key in keys if key.startswith("q-") and key[2:].isdigit())

    def push(self, value: Any, prefix: Any, side: str) -> Any:
        keys = self.queue(prefix)
        number = 500_000_000_000_000
        if keys:
            last = keys[-1 if side == "back" else 0]
            number = (last if prefix is None else int(last[2:])) + (1 if side == "back" else -1)
        key = number if prefix is None else f"q-{number:015d}"
        self.set(key, value)
        return key

    def pull(self, prefix: Any, side: str) -> Any:
        keys = self.queue(prefix)
        if not keys:
            return None, None
        key = keys[-1 if side == "back" else 0]
        return key, self.items.pop(key)[0]

    def clear(self) -> int:
        count = len(self.items)
        self.items.clear()
        return count


@settings(deadline=None, max_examples=60)
@given(st.lists(CALLS, max_size=25))
def test_random_calls_match_model(calls: list[Any]) -> None:
    cache, model = Cache(), Model()
    try:
        for name, *arguments in calls:
            if name == "reopen":
                cache.close()
                continue
            wanted = getattr(model, name)(*arguments)
            if name == "set":
                key, value, tag = arguments
                assert cache.set(key, value, tag=tag) == wanted
            elif wanted is TypeError:
                with pytest.raises(TypeError):
                    cache.incr(*arguments)
            elif name in ("push", "pull"):
                keywords = dict(zip(("prefix", "side"), arguments[-2:]))
                assert getattr(cache, name)(*arguments[:-2], **keywords) == wanted
            else:
                assert getattr(cache, name)(*arguments) == wanted, name
            assert [Model.name(key) for key in cache] == list(model.items)
        assert [cache.get(key, tag=True) for key in cache] == list(model.items.values())
        assert [Model.name(key) for key in reversed(cache)] == list(reversed(model.items))
        assert cache.check() == []
    finally:
        cache.close()
        shutil.rmtree(cache.directory)


def test_key_that_cannot_be_encoded_is_not_called_a_value(cache: Cache) -> None:
    with pytest.raises(TypeError, match="an object of the type builtins.object cannot be stored"):
        cache.get(object())


# Expiry, files, permissions, processes


def test_all_rows_of_an_entry_expire_and_are_removed(cache: Cache, tmp_path: Path) -> None:
    for number in range(20):
        cache.set(number, b"x", expire=0.05, tag="t")
    cache.set("stays", 1)
    time.sleep(0.1)
    assert len(cache) == 1 and list(cache) == ["stays"] and 3 not in cache and cache.evict("t") == 0
    assert cache.expire() == 20
    with kvstore.open(tmp_path / "cache" / "kvstore.db") as db:
        rows = {name: db.family(name).count(expired=True) for name in db.families()}
    assert {rows[f"diskcache {name}"] for name in ("values", "entries", "order", "scores")} == {1}, rows
    assert rows["diskcache tags"] == 0


def test_expired_rows_are_removed_by_writes(cache: Cache, tmp_path: Path) -> None:
    for number in range(50):
        cache.set(number, b"x", expire=0.01)
    time.sleep(0.05)
    for number in range(60):
        cache.set(("new", number), b"x")
    assert cache.expire() == 0


def test_expire_with_a_later_moment_removes_live_entries(cache: Cache) -> None:
    cache.set("soon", 1, expire=10)
    cache.set("late", 1, expire=1000)
    assert cache.expire(now=time.time() + 100) == 1 and list(cache) == ["late"]


def test_overwriting_an_expired_key_gives_it_a_new_position(cache: Cache) -> None:
    cache.set("a", 1, expire=0.01)
    cache.set("b", 2)
    time.sleep(0.03)
    cache.set("a", 3)
    assert list(cache) == ["b", "a"] and cache.peekitem() == ("a", 3)


def test_new_directories_and_files_are_private(tmp_path: Path) -> None:
    if os.name == "nt":
        pytest.skip("no modes")
    before = os.umask(0)
    try:
        cache = Cache(tmp_path / "a" / "b")
    finally:
        os.umask(before)
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "a" / "b" / "kvstore.db").stat().st_mode & 0o777 == 0o600
    cache.close()


def test_directory_removed_under_a_running_program(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "c")
    cache["a"] = 1
    shutil.rmtree(tmp_path / "c")
    assert cache.get("a") is None
    cache["a"] = 2
    assert cache["a"] == 2 and Cache(tmp_path / "c")["a"] == 2
    cache.close()


def test_transaction_begins_in_a_new_file_and_does_not_continue_in_one(tmp_path: Path) -> None:
    with Cache(tmp_path / "c") as cache:
        cache["a"] = 1
        shutil.rmtree(tmp_path / "c")
        with cache.transact():
            cache["b"] = 2
        assert list(cache) == ["b"]
        with pytest.raises(kvstore.StoreIOError), cache.transact():
            cache["c"] = 3
            shutil.rmtree(tmp_path / "c")
            cache["d"] = 4
        assert list(cache) == []
        cache["a"] = 1
        with pytest.raises(kvstore.StoreIOError), cache.transact():
            shutil.rmtree(tmp_path / "c")
            other = Cache(tmp_path / "c")  # opens a new file
            cache["d"] = 4
        assert list(cache) == list(other) == []
        other.close()


@pytest.mark.skipif(os.name == "nt", reason="an open file cannot be removed there")
@pytest.mark.parametrize("kind", [Cache, FanoutCache, Deque, Index])
def test_new_object_works_after_directory_was_removed(tmp_path: Path, kind: Any) -> None:
    folder = str(tmp_path / "cache")
    old = make_in(kind, folder)
    fill(old)
    shutil.rmtree(folder)
    new = make_in(kind, folder)
    assert len(new) == 0
    fill(new)
    assert len(new) == len(old) == 1


def make_in(kind: Any, folder: str) -> Any:
    return kind(directory=folder) if kind is Deque else kind(folder)


def fill(made: Any) -> None:
    if isinstance(made, Deque):
        made.append(1)
    else:
        made["x"] = 1


def test_iterators_continue_after_close_and_deletion_of_the_directory(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "c")
    for number in range(250):
        cache[number] = number
    iterators = [iter(cache), reversed(cache), cache.iterkeys(), cache.iterkeys(reverse=True)]
    first = [next(iterator) for iterator in iterators]
    cache.close()
    assert [[start, *rest] for start, rest in zip(first, iterators)] == [
        list(range(250)), list(range(249, -1, -1)), list(range(250)), list(range(249, -1, -1)),
    ]  # fmt: skip
    keys = iter(cache)
    next(keys)
    shutil.rmtree(tmp_path / "c")
    cache["new"] = 1
    assert len(list(keys)) == 15  # those that were read before
    cache.close()


def test_close_in_another_thread_does_not_end_a_transaction(cache: Cache) -> None:
    cache["a"] = 1
    with pytest.raises(RuntimeError), cache.transact():
        cache["a"] = 2
        closing = threading.Thread(target=cache.close)
        closing.start()
        closing.join()
        cache["b"] = 3
        raise RuntimeError
    assert cache["a"] == 1 and "b" not in cache


CHILD = """
import sys
from kvstore.contrib.diskcache import Cache

cache = Cache(sys.argv[1])
print(sum(cache.add(number, sys.argv[2], retry=True) for number in range(100)))
for _ in range(50):
    cache.incr("total", retry=True)
    cache.push(sys.argv[2], prefix="q", retry=True)
cache.close()
"""


def test_processes_share_a_cache(cache: Cache) -> None:
    children = [
        subprocess.Popen([sys.executable, "-c", CHILD, cache.directory, str(n)], stdout=subprocess.PIPE)
        for n in range(3)
    ]
    assert sum(int(child.communicate(timeout=60)[0]) for child in children) == 100
    assert [child.returncode for child in children] == [0] * 3
    assert cache["total"] == 150
    assert [cache.pull(prefix="q")[1] is not None for _ in range(150)] == [True] * 150
    assert cache.pull(prefix="q") == (None, None)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # threads and fork
def test_child_of_a_fork_goes_on_while_another_thread_is_writing(cache: Cache) -> None:
    inside, leave = threading.Event(), threading.Event()

    def write() -> None:
        with cache.transact():
            inside.set()
            leave.wait(30)

    thread = threading.Thread(target=write)
    thread.start()
    inside.wait(30)
    child = os.fork()
    if child == 0:
        try:
            other = cache.get("a") is None  # reads go on
            os._exit(0 if other else 1)
        except BaseException:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    leave.set()
    thread.join()
    child = os.fork()
    if child == 0:
        try:
            cache["a"] = 1
            os._exit(0)
        except BaseException:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert cache["a"] == 1


def test_locked_store_is_a_timeout_or_a_failure(tmp_path: Path) -> None:
    holder, cache = Cache(tmp_path / "c"), Cache(tmp_path / "c", timeout=0.05)
    fanout = FanoutCache(tmp_path / "c", timeout=0.05)
    with holder.transact():
        holder["a"] = 1
        for call in (lambda: cache.set("a", 2), lambda: cache.delete("a"), cache.clear, lambda: cache.push(1)):
            with pytest.raises(diskcache.Timeout):
                call()
        with pytest.raises(diskcache.Timeout), cache.transact():
            pass
        assert fanout.set("a", 2) is False and fanout.add("b", 2) is False and fanout.touch("b") is False
        assert fanout.incr("b") is None and fanout.decr("b") is None and fanout.pop("b", "none") == "none"
        assert fanout.delete("b") is False and fanout.get("a", "none") == "none"
        waiting = threading.Thread(target=lambda: cache.set("w", 1, retry=True))
        waiting.start()
        time.sleep(0.2)
    waiting.join()
    assert cache["a"] == 1 and cache["w"] == 1 and len(cache) == 2
    for each in (holder, cache, fanout):
        each.close()


def test_transaction_is_undone_by_an_exception(cache: Cache) -> None:
    cache["a"] = 1
    with pytest.raises(RuntimeError), cache.transact():
        cache["a"] = 2
        with cache.transact():
            cache.set("b", 1, tag="t")
        raise RuntimeError
    assert cache["a"] == 1 and "b" not in cache and cache.evict("t") == 0


def _expire_after_read(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let time pass between the reads of the rows of an entry until the entry has expired."""
    entry = Tables.entry

    def slow(self: Tables, name: bytes) -> Any:
        found = entry(self, name)
        time.sleep(0.05)
        return found

    cache.set("a", 1, expire=0.04, tag="t")
    monkeypatch.setattr(Tables, "entry", slow)


@pytest.mark.parametrize("policy", ["none", "least-recently-used"])
@pytest.mark.parametrize("call", ["get", "incr", "touch", "use"])
def test_entry_that_expires_during_a_call_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, policy: str
) -> None:
    with Cache(tmp_path / "c", eviction_policy=policy) as cache:
        _expire_after_read(cache, monkeypatch)
        if call == "get":
            assert cache.get("a", expire_time=True, tag=True) == (None, None, None)
        elif call == "incr":
            assert cache.incr("a", default=7) == 8 and cache.get("a", expire_time=True) == (8, None)
        elif call == "touch":
            assert cache.touch("a") is False and "a" not in cache
        else:
            assert cache.get("a") == 1
            cache["b"] = 2
            assert list(cache) == ["b"]
        monkeypatch.undo()
        assert cache.check() == []


def test_long_times_mean_never_and_long_timeouts_are_accepted(tmp_path: Path) -> None:
    for timeout in (sys.maxsize, math.inf, 1e10, 0):
        with Cache(tmp_path / "c", timeout=timeout) as cache:
            assert cache.timeout == timeout and cache.set("a", 1, expire=sys.maxsize)
            assert cache.get("a", expire_time=True) == (1, None) and cache.touch("a", 1e300)


def test_push_does_not_overwrite_an_entry_outside_the_queue(cache: Cache) -> None:
    cache[0], cache[1] = "zero", "one"
    with pytest.raises(ValueError, match="the key 0 is in use"):
        cache.push("new", side="front")
    assert cache[0] == "zero" and len(cache) == 2
    cache["q-\u00b2"] = cache["q-x"] = 1  # not keys of a queue
    assert cache.push("a", prefix="q") == "q-500000000000000"


def test_tags_may_be_of_subclasses(cache: Cache) -> None:
    class Name(str, enum.Enum):
        ONE = "one"

    cache.set("a", 1, tag=True)
    cache.set("b", 1, tag=Name.ONE)
    assert cache.get("a", tag=True) == (1, 1) and cache.get("b", tag=True) == (1, "one")
    assert cache.evict(True) == 1 and cache.evict("one") == 1
    with pytest.raises(ValueError, match="out of range"):
        cache.set("a", 1, tag=1 << 63)


class Wider(Cache):
    """A subclass as dvc-data has it: with an argument more, which it adds to the state."""

    def __init__(
        self, directory: Any = None, timeout: float = 60, disk: Any = Disk, kind: str = "", **more: Any
    ) -> None:
        super().__init__(directory, timeout, disk, **more)
        self.kind = kind

    def __getstate__(self) -> Any:
        return (*super().__getstate__(), self.kind)


@pytest.mark.parametrize("serializer", [None, pickle])
def test_caches_can_be_pickled(tmp_path: Path, serializer: Any) -> None:
    with Wider(tmp_path / "c", timeout=5, kind="links", serializer=serializer) as cache:
        other = pickle.loads(pickle.dumps(cache))
        assert (type(other), other.directory, other.timeout, other.kind) == (Wider, cache.directory, 5, "links")
        assert other.disk.serializer is cache.disk.serializer
    with FanoutCache(tmp_path / "f", shards=3, timeout=2) as fanout:
        assert fanout.__getstate__() == (str(tmp_path / "f"), 3, 2, Disk)
        assert pickle.loads(pickle.dumps(fanout)).timeout == 2


# Values


def test_other_objects_are_a_type_error_that_says_what_to_do(cache: Cache) -> None:
    for call in (lambda: cache.set("a", object()), lambda: cache.set(object(), 1), lambda: cache.push(object())):
        with pytest.raises(TypeError, match="serializer=pickle"):
            call()
    assert len(cache) == 0
    with pytest.raises(TypeError, match="tag must be"):
        cache.set("a", 1, tag=(1, 2))
    with pytest.raises(ValueError, match="at most 999"):
        cache.set("a", 1, tag="t" * 2000)


def test_planted_values_run_no_code_and_count_as_missing(tmp_path: Path) -> None:
    exploded, payloads = Bomb.exploded, list(BOMBS)
    payloads += [b"\x40" + payload for payload in payloads] + [b"", b"\x40", b"\x13", b"\x12x", b"\xff", b"\x40{"]
    for payload in payloads:
        cache = Cache(tmp_path / "c")
        cache.clear()
        cache.set("a", {"x": 1}, tag="t")
        cache.set(("k", 1), 5)
        cache.push("value")
        with kvstore.open(tmp_path / "c" / "kvstore.db") as db:
            family = db.family("diskcache values")
            for key in list(family.keys()):
                family.put(key, payload)
        raw = not payload or payload[0] >> 4 != 4
        for key in ("a", ("k", 1)):
            value = cache.get(key)
            assert value is None or (raw and isinstance(value, (bytes, str, int, float))), payload
        cache.pull()
        cache.set("a", {"x": 2})
        assert cache["a"] == {"x": 2}
        with kvstore.open(tmp_path / "c" / "kvstore.db") as db:
            family = db.family("diskcache entries")
            for key in list(family.keys()):
                family.put(key, payload)
        cache.get("a", tag=True)
        cache.set("a", {"x": 3})
        assert cache["a"] == {"x": 3}
        cache.check(fix=True)
        assert cache.check() == []
        cache.close()
    assert Bomb.exploded == exploded


PLANTED = [
    b"", b"\0", b"\xff" * 8, b"\xff" * 40, b"\x10abc", b"P", b"@{", b" \xff", b"[" * 5000,
    b"x" * 70_000, pickle.dumps(Bomb())]  # fmt: skip


@pytest.mark.parametrize("family", [*Tables._fields])
def test_planted_rows_break_no_call_and_are_removed_by_check(tmp_path: Path, family: str) -> None:
    directory, exploded = tmp_path / "c", Bomb.exploded
    for planted in PLANTED:
        cache = Cache(directory, eviction_policy="least-frequently-used")
        cache.clear()
        cache.set("a", 1, tag="t")
        cache.push(2, prefix="q", tag="t")
        cache.push(2)
        cache.close()
        with kvstore.open(directory / "kvstore.db") as db:
            rows = db.family(f"diskcache {family}")
            for key in list(rows.keys()):
                rows.put(key, planted)
            if 0 < len(planted) < 65_536:
                rows.put(planted, planted)
            rows.put(b"\0" * 16, planted)
            rows.put(b"size_limit", b'"much"')
            rows.put(b"disk_serializer", b'"pickle"')
        cache = Cache(directory)
        for read in (cache.get, cache.__contains__):
            read("a")
        list(cache), list(reversed(cache)), list(cache.iterkeys()), cache.peek(), cache.peek("q"), len(cache)
        cache.get("a", expire_time=True, tag=True)
        cache.check(fix=True)
        assert cache.check() == [], planted[:50]
        cache.set("a", 5, tag="t")
        cache.set("b", 5, tag="t")
        cache.push(3), cache.push(3, side="front"), cache.push(3, "q"), cache.pull(), cache.pull("q")
        assert cache["a"] == 5 and cache.evict("t") >= 2 and cache.cull() == 0
        assert cache.stats(enable=False) == (0, 0) and cache.disk.serializer is kvstore.DATA
        cache.close()
    assert Bomb.exploded == exploded


def test_planted_rows_do_not_keep_entries_from_being_removed(cache: Cache, tmp_path: Path) -> None:
    for number in range(230):
        cache.set(number, b"x" * 1000, tag="t")
    for number in range(200):
        del cache[number]
    with kvstore.open(tmp_path / "cache" / "kvstore.db") as db:
        for number in range(1, 201):
            db.family("diskcache scores").put(number.to_bytes(16, "big"), b"none")
            db.family("diskcache tags").put(b"\0\2 t" + number.to_bytes(8, "big"), b"none")
    cache.reset("size_limit", 1)
    assert cache.evict("t") == 30
    for number in range(30):
        cache[number] = 1
    assert len(cache) < 30


def test_pickle_is_used_on_request_only(tmp_path: Path) -> None:
    with Cache(tmp_path / "c", serializer=pickle) as cache:
        cache["a"] = collections.OrderedDict(x=1)
        assert type(cache["a"]) is collections.OrderedDict
        assert type(pickle.loads(pickle.dumps(cache))["a"]) is collections.OrderedDict
    with Cache(tmp_path / "c") as cache:
        assert cache.get("a") is None
    with Cache(tmp_path / "s", disk_serializer=kvstore.SignedPickle("secret" * 6)) as cache:
        cache["a"] = collections.OrderedDict(x=1)
        assert type(cache["a"]) is collections.OrderedDict


class Doubling(Disk):
    """A disk as programs write them for diskcache: it changes what the base class gets."""

    def put(self, key: Any) -> Any:
        return super().put(key * 2)

    def get(self, key: Any, raw: bool) -> Any:
        whole = super().get(key, raw)
        return whole[: len(whole) // 2]

    def store(self, value: Any, read: bool, key: Any = diskcache.UNKNOWN) -> Any:
        return super().store([value, value], read, key=key)

    def fetch(self, mode: int, filename: None, value: Any, read: bool) -> Any:
        return super().fetch(mode, filename, value, read)[0]


@pytest.mark.parametrize("disk", [Doubling, JSONDisk])
def test_subclass_of_disk_converts_keys_and_values(tmp_path: Path, disk: Any) -> None:
    with Cache(tmp_path / "c", disk=disk) as cache:
        cache["key"] = {"a": 1}
        assert cache["key"] == {"a": 1} and list(cache) == ["key"] and cache.pop("key") == {"a": 1}


def test_large_values_can_be_files(cache: Cache) -> None:
    cache.set("file", io.BytesIO(b"x" * 100_000), read=True)
    cache.set("small", b"y")
    with cache.read("file") as file:
        assert file.read(3) == b"xxx"
    assert cache["file"] == b"x" * 100_000 and cache.get("small", read=True) == b"y"


# Settings and eviction


def test_settings_are_stored_in_the_file(tmp_path: Path) -> None:
    with Cache(tmp_path / "c", size_limit=1000, eviction_policy="least-recently-used", disk_min_file_size=5):
        pass
    with Cache(tmp_path / "c", cull_limit=3, sqlite_mmap_size=5) as cache:
        assert (cache.size_limit, cache.eviction_policy, cache.disk_min_file_size) == (1000, "least-recently-used", 5)
        assert cache.disk.min_file_size == 5 and cache.reset("cull_limit") == 3
        cache.reset("cull_limit", 4, update=False)
    with Cache(tmp_path / "c") as cache:
        assert cache.cull_limit == 3
    for wrong in ({"eviction_policy": "fifo"}, {"disk": object}):
        with pytest.raises(ValueError):
            Cache(tmp_path / "c", **wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="unknown setting size_limits"):
        Cache(tmp_path / "c", size_limits=1)


@pytest.mark.parametrize("policy", ["least-recently-stored", "least-recently-used", "least-frequently-used"])
def test_cache_stays_near_its_size_limit(tmp_path: Path, policy: str) -> None:
    with Cache(tmp_path / "c", size_limit=1_000_000, eviction_policy=policy) as cache:
        for number in range(3000):
            cache[number] = b"x" * 1000
            cache.get(0)
        assert cache.volume() < 1_200_000 and 300 < len(cache) < 1000
        assert (0 in cache) == (policy != "least-recently-stored") and 2999 in cache
        assert cache.check() == []


def test_uses_are_stored_by_the_next_write_of_any_kind(tmp_path: Path) -> None:
    with Cache(tmp_path / "c", eviction_policy="least-recently-used") as cache:
        for key in "abc":
            cache[key] = 1
            time.sleep(0.002)
        cache.get("a")
        cache.close()  # stores the use
        other = Cache(tmp_path / "c", size_limit=0, cull_limit=1)
        other["d"] = 1
        assert list(other) == ["a", "c", "d"]
        other.close()


def test_counts_are_added_over_processes(tmp_path: Path) -> None:
    with Cache(tmp_path / "c") as one, Cache(tmp_path / "c") as two:
        one.stats(enable=True)
        two.stats(enable=True)
        one["a"] = 1
        one.get("a"), two.get("a"), two.get("b")
        two.close()
        assert one.stats(reset=True) == (2, 1) and one.stats(enable=False) == (0, 0)


def test_reset_returns_counts_and_refuses_unusable_values(cache: Cache) -> None:
    cache["a"] = 1
    assert (cache.count, cache.reset("count"), cache.reset("size"), cache.reset("hits")) == (1, 1, 0, 0)
    with pytest.raises(TypeError, match="size_limit must be a number"):
        cache.reset("size_limit", "1 GB")
    with pytest.raises(TypeError, match="unknown setting limit"):
        cache.reset("limit", 5)
    with pytest.raises(KeyError):
        cache.reset("limit")
    assert cache.size_limit == diskcache.DEFAULT_SETTINGS["size_limit"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_fork_counts_hits_of_the_parent_once(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "c", statistics=1)
    cache["a"] = 1
    for _ in range(3):
        cache.get("a")
    child = os.fork()
    if child == 0:
        try:
            cache.get("a")
            cache.close()
            os._exit(0)
        except BaseException:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert cache.stats() == (4, 0)
    cache.close()


# The other classes


def test_caches_below_a_fanout_cache(tmp_path: Path) -> None:
    with FanoutCache(tmp_path / "f", shards=4) as cache:
        cache.cache("a/b", size_limit=5)["k"] = 1
        cache.deque("d", maxlen=2).extend([1, 2, 3])
        cache.index("i")["k"] = 2
        assert cache.cache("a/b") is cache.cache("a/b")
        assert os.path.isdir(tmp_path / "f" / "cache" / "a" / "b")
        for name in ("", "a/../..", "..", "/a"):
            with pytest.raises(ValueError):
                cache.cache(name)
    assert list(Deque(directory=tmp_path / "f" / "deque" / "d")) == [2, 3]
    assert Index(str(tmp_path / "f" / "index" / "i")) == {"k": 2}


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.sampled_from(
    ["append", "appendleft", "pop", "popleft", "rotate", "reverse", "remove", "set", "del", "extendleft"]),
    st.integers(-4, 4)), max_size=20), st.sampled_from([None, 3]))  # fmt: skip
def test_deque_matches_collections_deque(calls: list[tuple[str, int]], maxlen: Any) -> None:
    mine, model = Deque(maxlen=maxlen), collections.deque[int](maxlen=maxlen)
    try:
        for name, number in calls:
            results: list[Any] = []
            for deque in (mine, model):
                try:
                    if name in ("pop", "popleft", "reverse"):
                        results.append(getattr(deque, name)())
                    elif name == "set":
                        deque[number] = number  # type: ignore[index]
                    elif name == "del":
                        del deque[number]  # type: ignore[attr-defined]
                    elif name == "extendleft":
                        deque.extendleft([number, number + 1])
                    else:
                        results.append(getattr(deque, name)(number))
                except (IndexError, ValueError) as error:
                    results.append(type(error))
            assert len(results) < 2 or results[0] == results[1], name
            assert list(mine) == list(model) and mine == list(model), name
            for index in range(-len(model), len(model)):
                assert mine[index] == model[index]
    finally:
        mine.cache.close()
        shutil.rmtree(mine.directory)


def test_index_is_an_ordered_mapping() -> None:
    index, model = Index([("b", 1), ("a", 2)], c=3), collections.OrderedDict([("b", 1), ("a", 2), ("c", 3)])
    assert index == model and index == dict(model) and list(index.items()) == list(model.items())
    assert index != collections.OrderedDict([("a", 2), ("b", 1), ("c", 3)]) and index == {"a": 2, "b": 1, "c": 3}
    index["b"] = 5  # keeps its place
    assert index.popitem(last=False) == ("b", 5) and index.setdefault("n", 7) == 7 and index.peekitem() == ("n", 7)
    with pytest.raises(KeyError):
        index.pop("none")
    assert index.pop("none", 1) == 1 and index.push("value") == 500_000_000_000_000 and index.pull()[1] == "value"
    assert pickle.loads(pickle.dumps(index)) == index
    shutil.rmtree(index.directory)


def test_semaphore_and_locks_refuse_a_release_too_many(cache: Cache) -> None:
    for lock in (diskcache.RLock(cache, "r"), diskcache.BoundedSemaphore(cache, "s", value=2)):
        with lock:
            pass
        with pytest.raises(AssertionError, match="un-acquired"):
            lock.release()


def test_throttle_and_barrier(cache: Cache) -> None:
    clock = [0.0]
    calls = []

    @diskcache.throttle(
        cache, 2, 1, time_func=lambda: clock[0], sleep_func=lambda s: clock.__setitem__(0, clock[0] + s)
    )
    def limited() -> None:
        calls.append(clock[0])

    for _ in range(6):
        limited()
    assert calls == pytest.approx([0, 0, 0.5, 1, 1.5, 2])

    inside = []

    @diskcache.barrier(cache, diskcache.Lock)
    def alone() -> None:
        inside.append(1)
        assert len(inside) == 1
        time.sleep(0.01)
        inside.pop()

    threads = [threading.Thread(target=alone) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_memoized_function_goes_on_without_its_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache(tmp_path / "c")
    calls = []

    @cache.memoize(expire=60, tag="f", ignore={"verbose"})
    def double(number: int, verbose: bool = False) -> int:
        calls.append(number)
        return number * 2

    assert [double(2), double(2, verbose=True), double(3)] == [4, 4, 6] and calls == [2, 3]
    assert cache[double.__cache_key__(2)] == 4 and cache.evict("f") == 2  # type: ignore[attr-defined]

    def fail(*args: Any, **kwargs: Any) -> Any:
        raise kvstore.FullError("the disk is full")

    monkeypatch.setattr(cache, "set", fail)
    assert double(5) == 10
    monkeypatch.setattr(cache, "get", fail)
    assert double(5) == 10
    with pytest.raises(TypeError, match="parentheses"):
        cache.memoize(double)  # type: ignore[arg-type]
    cache.close()


# The copy of a cache of diskcache


def _old_cache(directory: Path) -> None:
    """Write a file as diskcache 5.6 does: its table, with the columns that a copy reads."""
    directory.mkdir()
    con = sqlite3.connect(directory / "cache.db")
    con.execute(
        "CREATE TABLE Cache(rowid INTEGER PRIMARY KEY, key BLOB, raw INTEGER, store_time REAL, expire_time REAL, "
        "access_time REAL, access_count INTEGER DEFAULT 0, tag BLOB, size INTEGER DEFAULT 0, mode INTEGER DEFAULT 0, "
        "filename TEXT, value BLOB)"
    )
    (directory / "big.val").write_bytes(b"z" * 70_000)
    rows = [
        ("text", 1, None, "t", 1, None, "value"),
        (7, 1, time.time() + 100, None, 1, None, 5),
        (b"bytes", 1, None, None, 2, "big.val", None),
        ("old", 1, 5.0, None, 1, None, "expired"),
        (pickle.dumps(("a", 1)), 0, None, None, 4, None, pickle.dumps({"x": [1]})),
        ("bomb", 1, None, None, 4, None, pickle.dumps(Bomb())),
    ]
    con.executemany(
        "INSERT INTO Cache(key, raw, expire_time, tag, mode, filename, value) VALUES(?, ?, ?, ?, ?, ?, ?)", rows
    )
    con.commit()
    con.close()


def test_copy_of_a_diskcache(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from kvstore.contrib.diskcache.__main__ import main

    _old_cache(tmp_path / "old")
    assert main([str(tmp_path / "old"), str(tmp_path / "new")]) == 1
    printed = capsys.readouterr().out
    assert "3 entries copied, 2 skipped" in printed and "--unpickle" in printed
    with Cache(tmp_path / "new") as cache:
        assert list(cache) == ["text", 7, b"bytes"] and cache.get("text", tag=True) == ("value", "t")
        assert 90 < cache.get(7, expire_time=True)[1] - time.time() < 101 and cache[b"bytes"] == b"z" * 70_000
        assert cache.eviction_policy == "least-recently-stored"
    before = Bomb.exploded
    assert main([str(tmp_path / "old"), str(tmp_path / "new"), "--unpickle"]) == 0
    assert Bomb.exploded == before + 1  # it was asked to
    with Cache(tmp_path / "new") as cache:
        assert cache[("a", 1)] == {"x": [1]} and len(cache) == 5
    assert main([str(tmp_path / "old"), str(tmp_path / "old")]) == 3 and not (tmp_path / "old" / "kvstore.db").exists()
    assert main([str(tmp_path / "none"), str(tmp_path / "new")]) == 3
    assert "python -m kvstore.contrib.diskcache: " in capsys.readouterr().err


@pytest.mark.parametrize("count", [1, 16, 80])
def test_deque_iteration_includes_items_added_meanwhile(tmp_path: Path, count: int) -> None:
    deque = Deque(range(count), tmp_path / "deque")
    found = []
    for item in deque:
        found.append(item)
        if item < count + 20 and item >= count - 1:
            deque.append(item + 1)
    assert found == list(range(count + 21))
    del found[:]
    for item in reversed(deque):
        found.append(item)
        if -20 < item <= 0:
            deque.appendleft(item - 1)
    assert found == list(range(count + 20, -21, -1))
    deque.cache.close()


def test_deque_can_be_extended_with_itself(tmp_path: Path) -> None:
    deque = Deque([1, 2], tmp_path / "deque")
    deque.extend(deque)
    deque += deque
    assert list(deque) == [1, 2] * 4
    deque.extendleft(deque)
    assert list(deque) == [2, 1] * 4 + [1, 2] * 4
    deque.cache.close()


@pytest.mark.skipif(sys.platform == "win32", reason="another program cannot truncate an open file")
def test_truncated_file_without_memory_map_kills_no_process(tmp_path: Path) -> None:
    code = """
import sys
from kvstore.contrib.diskcache import Cache
cache = Cache(sys.argv[1], sqlite_mmap_size=0)
for number in range(2000):
    cache[number] = b"x" * 1000
assert cache[5] == b"x" * 1000
open(sys.argv[1] + "/kvstore.db", "w").close()
for number in range(2000):
    try:
        cache.get(number)
    except Exception:
        pass
print("alive")
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert done.stdout == "alive\n", (done.returncode, done.stderr)


@pytest.mark.parametrize("name", ["core", "fanout", "persistent", "recipes"])
def test_modules_of_diskcache_can_be_imported(name: str) -> None:
    code = f"""
import sys
import kvstore.contrib.diskcache
sys.modules["diskcache"] = kvstore.contrib.diskcache
import diskcache, diskcache.{name} as module
assert diskcache.__version__ == "5.6.3"
for name in module.__all__:
    assert getattr(diskcache, name, None) in (None, getattr(module, name)), name
print(*module.__all__)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    expected = {"core": "Cache", "fanout": "FanoutCache", "persistent": "Deque", "recipes": "Averager"}
    assert expected[name] in done.stdout.split()


def test_names_of_diskcache_core_can_be_imported() -> None:
    from kvstore.contrib.diskcache.core import ENOVAL, MODE_PICKLE, UNKNOWN, args_to_key, full_name

    assert (ENOVAL, UNKNOWN, MODE_PICKLE) == (diskcache.ENOVAL, diskcache.UNKNOWN, 4)
    assert args_to_key((full_name(len),), (1,), {"a": 2}, False, ()) == ("builtins.len", 1, None, "a", 2)


def test_module_names_are_those_of_diskcache() -> None:
    real = pytest.importorskip("diskcache") if "diskcache" in sys.modules else None
    names = set(real.__all__) if real else {"Cache", "FanoutCache", "Deque", "Index", "Disk", "JSONDisk", "Timeout"}
    assert names - {"DjangoCache"} <= set(diskcache.__all__)


@pytest.mark.parametrize("change", ["name", "tbl_name", "sql"])
def test_copy_reports_a_source_with_a_damaged_schema(tmp_path: Path, capsys: Any, change: str) -> None:
    from kvstore.contrib.diskcache.__main__ import main

    (tmp_path / "old").mkdir()
    database = sqlite3.connect(tmp_path / "old" / "cache.db", isolation_level=None)
    database.execute("CREATE TABLE Other (a)")
    database.execute("CREATE TABLE Cache (a)")
    database.execute("PRAGMA writable_schema = ON")
    database.execute(f"UPDATE sqlite_schema SET {change} = CAST(x'43d0d0' AS TEXT) WHERE name = 'Other'")
    database.close()
    assert main([str(tmp_path / "old"), str(tmp_path / "new")]) == 3
    assert "cache.db" in capsys.readouterr().err


# Several objects in one process


@pytest.mark.files
@pytest.mark.parametrize("kind", [Cache, FanoutCache])
def test_two_caches_of_a_directory_do_not_deadlock(tmp_path: Path, kind: Any) -> None:
    done = list[int]()

    def write(number: int) -> None:
        cache = kind(tmp_path, timeout=3)
        for value in range(300):
            assert cache.set(number, value)
        done.append(number)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == [0, 1]


def _in_new_thread(work: Any) -> None:
    failures = list[BaseException]()

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]


def test_transact_left_in_another_thread_frees_the_lock(cache: Cache) -> None:
    block = cache.transact()
    block.__enter__()
    cache["a"] = 1
    with pytest.raises(kvstore.Error, match="left in another thread"):
        _in_new_thread(lambda: block.__exit__(None, None, None))
    _in_new_thread(lambda: cache.set("b", 1))
    cache["c"] = 1
    assert list(cache) == ["b", "c"]


def test_transact_that_is_never_left_frees_the_lock(tmp_path: Path) -> None:
    cache = Cache(tmp_path, timeout=0.6)
    cache.transact().__enter__()
    _in_new_thread(lambda: cache.set("b", 1))
    cache.transact().__enter__()
    cache["c"] = 1
    _in_new_thread(lambda: cache.set("d", 1))
    assert list(cache) == ["b", "c", "d"]


def test_transact_decorates_functions(cache: Cache) -> None:
    @cache.transact()
    def add(key: str) -> None:
        cache[key] = 1
        assert cache._in_transaction()

    for key in "ab":
        add(key)
    assert list(cache) == ["a", "b"] and not cache._in_transaction()


@pytest.mark.parametrize("maxlen", [0, 1, 2, -1])
def test_deque_stops_at_entries_that_are_no_items(cache: Cache, maxlen: int) -> None:
    cache["setting"] = 1
    deque = Deque.fromcache(cache, [1, 2])
    deque.maxlen = maxlen
    assert cache["setting"] == 1 and len(cache) == max(1, maxlen)
    deque.append(3)
    assert len(cache) == max(1, maxlen)


def test_deque_of_negative_length_stays_empty() -> None:
    with Deque([1, 2], maxlen=-1).cache as cache:
        assert len(cache) == 0


# Values and keys that cannot be read


def _set_row(cache: Cache, family: str, change: Any) -> None:
    """Change the only row of a family of the cache's file."""
    rows: Any = getattr(cache._tables(), family)
    ((key, value),) = rows.items()
    rows.put(key, change(value))


def test_add_and_setdefault_replace_values_that_cannot_be_read(tmp_path: Path) -> None:
    for call in (lambda index: index.cache.add("p", 5), lambda index: index.setdefault("p", 5)):
        index = Index(str(tmp_path), p=(1, 2))
        _set_row(index.cache, "values", lambda row: row[:-1])
        assert index.get("p") is None
        assert call(index) and index["p"] == 5 and len(index) == 1
        assert not index.cache.add("p", 6) and index.setdefault("p", 7) == 5
        assert index.cache.check() == []
        index.clear()


@pytest.mark.parametrize(
    "row",
    [
        bytes([4 << 4 | 3]) + b"12345678",  # a float with the mode of a pickle
        bytes([4 << 4]) + b"[" * 100_000,
    ],
)
def test_value_that_cannot_be_decoded_counts_as_missing(cache: Cache, row: bytes) -> None:
    cache["a"] = [1]
    _set_row(cache, "values", lambda _: row)
    assert cache.get("a") is None and cache.pop("a", default=1) == 1


def test_entries_of_another_disk_count_as_missing(tmp_path: Path) -> None:
    with Cache(tmp_path) as cache:
        cache.set("a", 1)
        cache.set(2, "b")
    with Cache(tmp_path, disk=JSONDisk) as cache:
        assert list(cache) == list(cache.iterkeys()) == [] and cache.get("a") is None
        with pytest.raises(KeyError):
            cache.peekitem()
        cache["c"] = 3
        assert cache.peekitem(last=False) == cache.peekitem() == ("c", 3)
        assert [str(warning) for warning in cache.check()] == ["a key cannot be read"] * 2
        assert len(cache.check(fix=True)) == 2
        assert cache.check() == [] and list(cache) == ["c"]


@pytest.mark.parametrize("disk", [Disk, JSONDisk])
def test_unknown_disk_setting_of_the_file_is_left_out(tmp_path: Path, disk: Any) -> None:
    with Cache(tmp_path, disk=JSONDisk, disk_compress_level=6) as cache:
        cache._tables().settings.put("disk_foo", b"1")
    with Cache(tmp_path, disk=disk) as cache:
        assert getattr(cache.disk, "compress_level", 6) == 6
        cache["a"] = 1
        assert cache["a"] == 1 and cache.disk_min_file_size == 1 << 15
    with pytest.raises(TypeError, match="foo"):
        Cache(tmp_path, disk=disk, disk_foo=1)


def test_check_repairs_an_entry_that_lost_its_row_to_another(cache: Cache) -> None:
    cache["a"], cache["b"] = 1, 2
    tables = cache._tables()
    (first, entry), second = [(name, tables.entry(name)) for name in tables.entries.keys()][0], encode("b", True)
    assert entry is not None
    tables.describe(second, entry, None)  # the position of "a"
    tables.order.put(tables.references(entry)[0][1], first)
    tables.values.delete(second)
    assert cache.check(fix=True) != []
    assert cache.check() == [] and list(cache) == ["a"]


@pytest.mark.parametrize(
    ("call", "result"),
    [
        (lambda cache: cache.clear(), 2),
        (lambda cache: cache.evict("t"), 1),
        (lambda cache: cache.expire(), 0),
        (lambda cache: cache.cull(), 0),
    ],
    ids=["clear", "evict", "expire", "cull"],
)
def test_fanout_removal_waits_for_other_writers(tmp_path: Path, call: Any, result: int) -> None:
    with FanoutCache(tmp_path, timeout=0.05) as cache:
        cache.set("a", 1, tag="t")
        cache.set("b", 2)
        with kvstore.open(tmp_path / "kvstore.db") as other:
            found = list[int]()
            thread = threading.Thread(target=lambda: found.append(call(cache)))
            with other.transaction():
                other["x"] = b"1"
                thread.start()
                thread.join(0.3)  # longer than the timeout
        thread.join()
        assert found == [result]


def test_fanout_queue_and_check_raise_timeout(tmp_path: Path) -> None:
    with FanoutCache(tmp_path, timeout=0.05) as cache, kvstore.open(tmp_path / "kvstore.db") as other:
        cache.push(1)
        with other.transaction():
            other["x"] = b"1"
            for call in (lambda: cache.push(2), cache.pull, cache.check):
                with pytest.raises(diskcache.Timeout):
                    call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda path: Cache(path, timeout=None), "timeout must be a number of seconds, not None: .*retry=True"),
        (lambda path: Cache(path, timeout="1"), "timeout must be a number of seconds, not '1'"),
        (lambda path: Cache(path).set("a", 1, expire="x"), "expire must be a number of seconds, .*not 'x'"),
        (lambda path: Cache(path).touch("k", expire="x"), "expire must be a number of seconds, .*not 'x'"),
        (lambda path: Cache(path).decr("k", "x"), "delta must be a number, not str"),
        (lambda path: FanoutCache(path).index(5), "name must be str, not 5: give a name"),
        (lambda path: FanoutCache(path).deque(None), "name must be str, not None"),
        (lambda path: FanoutCache(path).cache(b"c"), "name must be str, not b'c'"),
    ],
)
def test_wrong_argument_is_named_in_the_message(tmp_path: Path, call: Any, message: str) -> None:
    with Cache(tmp_path) as cache:
        cache["k"] = 1
    with pytest.raises(TypeError, match=message):
        call(tmp_path)
    with Cache(tmp_path) as cache:
        assert cache.decr("k", decimal.Decimal(0)) == 1 and cache.get("k", expire_time=True) == (1, None)
