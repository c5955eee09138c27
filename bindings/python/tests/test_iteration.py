"""Keys, values and items in order: ranges, prefixes, limits, and writing during an iteration."""

from __future__ import annotations

import collections
import copy
import gc
import inspect
import itertools
import pickle
import signal
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers import START_S, Clock

import kvstore
from kvstore import _native

KEYS = [b"\x00", b"a", b"a\x00", b"aa", b"ab", b"b", b"b\xff", b"c", b"\xff", b"\xff\xff"]


@pytest.fixture
def full(db: kvstore.Store) -> kvstore.Store:
    db.put_many({key: b"v" + key for key in KEYS})
    return db


def expected(
    prefix: bytes | None, start: bytes | None, stop: bytes | None, reverse: bool, limit: int | None
) -> list[bytes]:
    keys = [
        k
        for k in KEYS
        if (prefix is None or k.startswith(prefix)) and (start is None or k >= start) and (stop is None or k < stop)
    ]
    if reverse:
        keys.reverse()
    return keys[:limit]


BOUNDS = [None, b"\x00", b"a", b"aa", b"b", b"bb", b"\xff", b"\xff\xff\xff"]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("limit", [None, 0, 1, 3, 100])
def test_start_and_stop_bound_the_keys(full: kvstore.Store, reverse: bool, limit: int | None) -> None:
    for start, stop in itertools.product(BOUNDS, BOUNDS):
        keys = expected(None, start, stop, reverse, limit)
        asked: dict[str, Any] = {"start": start, "stop": stop, "reverse": reverse, "limit": limit}
        assert list(full.keys(**asked)) == keys, asked
        assert list(full.items(**asked)) == [(k, b"v" + k) for k in keys], asked
        assert list(full.values(**asked)) == [b"v" + k for k in keys], asked


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("limit", [None, 1, 3])
@pytest.mark.parametrize("prefix", [b"a", b"aa", b"b", b"\xff", b"\xff\xff", b"zz", b"\x00"])
def test_prefix_selects_matching_keys(full: kvstore.Store, prefix: bytes, reverse: bool, limit: int | None) -> None:
    keys = expected(prefix, None, None, reverse, limit)
    assert list(full.keys(prefix=prefix, reverse=reverse, limit=limit)) == keys
    assert list(full.items(prefix=prefix, reverse=reverse, limit=limit)) == [(k, b"v" + k) for k in keys]


@pytest.mark.parametrize("reverse", [False, True])
def test_prefix_with_bounds_is_intersected_or_refused(full: kvstore.Store, reverse: bool) -> None:
    for start, stop in itertools.product(BOUNDS, BOUNDS):
        try:
            got = list(full.keys(prefix=b"a", start=start, stop=stop, reverse=reverse))
        except (TypeError, ValueError) as error:
            assert "prefix" in str(error)
            assert start is not None or stop is not None
        else:
            assert got == expected(b"a", start, stop, reverse, None)


def test_text_bounds_are_utf_8(db: kvstore.Store) -> None:
    db.put_many({"é1": b"", "é2": b"", "z": b""})
    assert list(db.keys(prefix="é")) == ["é1".encode(), "é2".encode()]
    assert list(db.keys(start="é2")) == ["é2".encode()]
    assert list(db.keys(stop="é2")) == [b"z", "é1".encode()]


def test_empty_prefix_selects_all_or_is_refused(full: kvstore.Store) -> None:
    try:
        assert list(full.keys(prefix=b"")) == KEYS
        assert list(full.keys(prefix="", reverse=True)) == KEYS[::-1]
    except ValueError as error:
        assert "prefix" in str(error)


@pytest.mark.parametrize("limit", [-1, -(2**70)])
def test_negative_limit_raises_value_error(full: kvstore.Store, limit: int) -> None:
    with pytest.raises(ValueError, match="limit"):
        list(full.keys(limit=limit))


@pytest.mark.parametrize("limit", ["1", 1.0, b"", object()])
def test_limit_of_wrong_type_raises_type_error(full: kvstore.Store, limit: Any) -> None:
    with pytest.raises(TypeError, match="limit"):
        list(full.keys(limit=limit))


@pytest.mark.parametrize("name", ["prefix", "start", "stop"])
def test_bound_of_wrong_type_raises_type_error_naming_it(full: kvstore.Store, name: str) -> None:
    for bad in (1, 1.0, object(), ["a"]):
        with pytest.raises(TypeError, match=name):
            list(full.items(**{name: bad}))


def test_huge_limit_is_no_limit(full: kvstore.Store) -> None:
    assert list(full.keys(limit=2**62)) == KEYS


def test_empty_stop_is_before_every_key(full: kvstore.Store) -> None:
    assert list(full.keys(stop=b"")) == []
    assert list(full.keys(start=b"", stop=b"", reverse=True)) == []
    assert list(full.keys(start=b"")) == KEYS


def test_delete_range_deletes_from_start_to_before_stop(full: kvstore.Store) -> None:
    assert full.delete_range(start="a", stop="b") == 4
    assert list(full) == [b"\x00", b"b", b"b\xff", b"c", b"\xff", b"\xff\xff"]
    assert full.delete_range(prefix=b"\xff") == 2
    assert full.delete_range(start="c", stop="a") == 0
    assert full.delete_range(prefix=b"b", start=b"b\x00") == 1
    assert list(full) == [b"\x00", b"b", b"c"]
    assert full.delete_range(start="", stop="b") == 1
    assert list(full) == [b"b", b"c"]


def test_delete_range_without_bounds_is_refused(full: kvstore.Store) -> None:
    for arguments in ({}, {"prefix": None}, {"prefix": None, "start": None, "stop": None}):
        with pytest.raises(TypeError, match=r"clear\(\)"):
            full.delete_range(**arguments)
    for arguments in ({"prefix": ""}, {"start": b""}, {"prefix": b"", "start": ""}):
        with pytest.raises(ValueError, match=r"selects all keys: .* clear\(\)"):
            full.delete_range(**arguments)  # type: ignore[arg-type]
    assert list(full) == KEYS


@pytest.mark.parametrize("method", ["keys", "values", "items", "delete_range"])
def test_bounds_are_equal_keyword_arguments_everywhere(full: kvstore.Store, method: str) -> None:
    call = getattr(full, method)
    with pytest.raises(TypeError):
        call("a")
    with pytest.raises(TypeError):
        call("a", "b")
    names = list(inspect.signature(call).parameters)
    assert names[:3] == ["prefix", "start", "stop"]
    assert method == "delete_range" or names[3:] == ["reverse", "limit"]


def test_delete_range_with_an_empty_stop_deletes_nothing(full: kvstore.Store) -> None:
    try:
        assert full.delete_range(stop=b"") == 0
        assert full.delete_range(start=b"", stop=b"") == 0
    except ValueError:
        pass
    assert list(full) == KEYS


def test_rows_of_partition_are_returned_in_clustering_order(db: kvstore.Store) -> None:
    for partition in (b"a", b"a\x00", b"ab", b"", b"\xff"):
        for clustering in (b"", b"1", b"1\x00", b"2", b"\xff"):
            db[kvstore.row_key(partition, clustering)] = partition + b"|" + clustering
    expected = [(c, b"a|" + c) for c in (b"", b"1", b"1\x00", b"2", b"\xff")]
    assert list(db.rows("a")) == expected
    assert list(db.rows(b"a", reverse=True)) == expected[::-1]
    assert list(db.rows("a", start="1", stop="2")) == expected[1:3]
    assert list(db.rows("a", start="1", stop="2", reverse=True)) == expected[1:3][::-1]
    assert list(db.rows("a", limit=2)) == expected[:2]
    assert list(db.rows("missing")) == []
    assert len(list(db.rows(b""))) == len(list(db.rows(b"a\x00"))) == 5


def test_rows_can_be_deleted_during_iteration(db: kvstore.Store) -> None:
    db.put_many({kvstore.row_key("p", f"{n:04}"): b"" for n in range(300)})
    for clustering, _value in db.rows("p"):
        db.delete(kvstore.row_key("p", clustering))
    assert len(db) == 0


def test_row_key_has_a_greatest_length(db: kvstore.Store) -> None:
    with pytest.raises(ValueError):
        kvstore.row_key(b"p" * 65536, b"c")
    with pytest.raises(TypeError):
        kvstore.row_key(1, b"c")  # type: ignore[arg-type, unused-ignore]


def test_iteration_skips_expired_keys(db: kvstore.Store, clock: Clock) -> None:
    for number in range(10):
        db.put(f"{number}", b"", ttl=1 if number % 2 else None)
    clock.advance(1)
    assert list(db) == [b"0", b"2", b"4", b"6", b"8"]
    assert list(db.keys(limit=2)) == [b"0", b"2"]
    assert list(db.keys(reverse=True, limit=2)) == [b"8", b"6"]


def test_key_expiring_during_iteration_is_not_returned(db: kvstore.Store, clock: Clock) -> None:
    db.put("a", b"")
    db.put("b", b"", ttl=1)
    keys = iter(db.keys())
    assert next(keys) == b"a"
    clock.advance(1)
    assert list(keys) == []


def test_key_expired_by_system_clock_is_not_returned(path: Path) -> None:
    with kvstore.open(path) as db:
        db.put("a", b"", ttl=3600)
        db.put("b", b"", expires_at=0)
        db.put("c", b"")
        assert list(db.items()) == [(b"a", b""), (b"c", b"")]


def test_clock_set_during_iteration_is_used(path: Path) -> None:
    with kvstore.open(path) as db:
        db.put_many({f"{n:03}": b"" for n in range(100)}, ttl=3600)
        keys = iter(db.keys())
        assert next(keys) == b"000"
        db.set_clock(lambda: 1e10)
        assert list(keys) == []


def test_clock_may_use_store_during_iteration(path: Path) -> None:
    with kvstore.open(path) as db:
        db.put_many({f"{n:03}": b"" for n in range(100)}, ttl=3600)
        keys: Iterator[bytes] = iter(())
        texts = set()

        def clock() -> float:
            try:
                db.put("000", b"new")
                db.delete("050")
            except kvstore.MisuseError:
                return 1.0  # it is the library that asks
            try:
                next(keys, None)
            except ValueError as error:
                texts.add(str(error))
            return 1.0

        db.set_clock(clock)
        keys = iter(db.keys())
        got = list(keys)
        db.set_clock(None)
        assert texts == {"iterator already executing"}
        assert got == [b"%03d" % n for n in range(100) if n != 50]


def test_clock_exception_ends_iteration(path: Path) -> None:
    with kvstore.open(path) as db:
        db.put_many({"a": b"", "b": b"", "c": b""}, ttl=3600)
        broken = False

        def clock() -> float:
            if broken:
                raise LookupError
            return 1.0

        db.set_clock(clock)
        keys = iter(db.keys())
        assert next(keys) == b"a"
        broken = True
        with pytest.raises(LookupError):
            next(keys)
        broken = False
        assert list(keys) == []
        assert db._scans == []


@pytest.mark.parametrize("rows", [0, 1, 15, 16, 17, 255, 256, 257, 2000])
def test_writes_notify_only_running_iterations(db: kvstore.Store, rows: int) -> None:
    db.put_many({f"{n:05}": b"" for n in range(rows)})
    whole, left = iter(db.items()), iter(db.items())
    assert db._scans == []
    next(left, None)
    assert len(list(whole)) == rows
    assert len(db._scans) == min(rows, 1)
    del left
    assert db._scans == []


def test_iterator_in_reference_cycle_is_collected(path: Path) -> None:
    class Clock:
        iterator: Any = None

        def __call__(self) -> float:
            return START_S

    store, clock = kvstore.open(path), Clock()
    store.set_clock(clock)
    store.put_many({f"{n:05}": b"" for n in range(100)}, ttl=10)
    scans = store._scans
    clock.iterator = iter(store.items())
    next(clock.iterator)
    assert len(scans) == 1
    reference = weakref.ref(clock)
    store.set_clock(None)
    cycle = [clock.iterator, clock]
    clock.iterator = cycle
    del cycle, clock, store
    gc.collect()
    assert reference() is None
    assert scans == []


def test_signal_interrupts_list_of_many_rows(db: kvstore.Store) -> None:
    db.put_many({f"{n:05}": b"" for n in range(10_000)})
    rows = db.items()

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, stop)
    try:
        with pytest.raises(KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            collections.deque(itertools.chain.from_iterable(itertools.repeat(rows)), maxlen=0)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert db._scans == []


def test_iterator_cannot_be_copied(full: kvstore.Store) -> None:
    rows = iter(full.items())
    next(rows)
    for way in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError):
            way(rows)
    assert len(list(rows)) == len(KEYS) - 1


def test_keys_can_be_deleted_during_iteration(db: kvstore.Store) -> None:
    db.put_many({f"{n:04}": b"" for n in range(1000)})
    for key in db:
        del db[key]
    assert len(db) == 0


def test_values_can_be_changed_during_iteration(db: kvstore.Store) -> None:
    db.put_many({f"{n:04}": b"0" for n in range(1000)})
    seen = 0
    for key, value in db.items():
        seen += 1
        db[key] = value + b"1"
    assert seen == 1000
    assert set(db.values()) == {b"01"}


def test_nested_iterations_are_independent(full: kvstore.Store) -> None:
    assert [(a, b) for a in full for b in full] == [(a, b) for a in KEYS for b in KEYS]


def test_view_can_be_iterated_again_and_shows_current_keys(full: kvstore.Store) -> None:
    keys = full.keys()
    assert list(keys) == list(keys) == KEYS
    full["d"] = b""
    assert b"d" in list(keys)


def test_iteration_is_lazy(db: kvstore.Store) -> None:
    db.put_many({f"{n:05}": b"x" * 100 for n in range(20_000)})
    assert next(iter(db.items())) == (b"00000", b"x" * 100)
    assert list(itertools.islice(db.keys(start="19998"), 5)) == [b"19998", b"19999"]


def test_exhausted_iterator_stays_exhausted(full: kvstore.Store) -> None:
    keys = iter(full.keys())
    assert len(list(keys)) == len(KEYS)
    full["zz"] = b""
    assert list(keys) == []


def test_iter_of_iterator_returns_itself(full: kvstore.Store) -> None:
    keys = iter(full.keys())
    assert iter(keys) is keys


def test_iteration_returns_all_keys_present_throughout(db: kvstore.Store) -> None:
    db.put_many({f"{n:04}": b"" for n in range(500)})
    got = []
    for key in db:
        got.append(key)
        db[b"+" + key] = b""
        db.delete(b"+" + key)
    assert got == [b"%04d" % n for n in range(500)]


def test_reversed_returns_keys_in_reverse_order(full: kvstore.Store) -> None:
    assert list(reversed(full)) == KEYS[::-1]


def test_iteration_of_closed_store_raises_misuse_error(full: kvstore.Store) -> None:
    keys, items = iter(full.keys()), iter(full.items())
    next(items)
    full.close()
    for iterator in (keys, items):
        with pytest.raises((kvstore.MisuseError, StopIteration)):
            for _ in range(1 + len(KEYS)):
                next(iterator)
    with pytest.raises(kvstore.MisuseError):
        list(full.keys())


@pytest.mark.files
def test_large_keys_and_values_are_returned_whole(db: kvstore.Store) -> None:
    big = bytes(range(256)) * 8192
    db[b"k" * 65536] = big
    db[b"j"] = b""
    assert list(db.items()) == [(b"j", b""), (b"k" * 65536, big)]


def test_many_entries_of_mixed_sizes_are_returned_in_order(db: kvstore.Store) -> None:
    entries = {b"%06d" % n: b"x" * ((n * 7919) % 5000) for n in range(3000)}
    db.put_many(entries)
    assert list(db.items()) == sorted(entries.items())
    assert list(db.items(reverse=True)) == sorted(entries.items(), reverse=True)


def test_expiring_returns_keys_ordered_by_expiry(db: kvstore.Store) -> None:
    for key, ttl in (("c", 10), ("a", 30), ("b", 20)):
        db.put(key, b"v", ttl=ttl)
    db["never"] = b"v"
    assert list(db.expiring(START_S, START_S + 30)) == [(b"c", START_S + 10), (b"b", START_S + 20)]
    assert list(db.expiring(START_S + 20, START_S + 31)) == [(b"b", START_S + 20), (b"a", START_S + 30)]
    assert list(db.expiring(START_S + 20, START_S + 20)) == []
    assert [key for key, _ in db.expiring()] == [b"c", b"b", b"a"]
    assert [key for key, _ in db.expiring(stop=kvstore.FOREVER)] == [b"c", b"b", b"a"]


def test_expiring_without_stop_includes_greatest_expiry(db: kvstore.Store) -> None:
    # Later than any moment in Python; a C program can write it.
    assert _native.lib.kvstore_cf_put_ttl(db._cf, b"last", 4, b"", 0, (1 << 63) - 1) == 0
    assert [key for key, _ in db.expiring()] == [b"last"]


def test_expiring_includes_unpurged_expired_keys(db: kvstore.Store, clock: Clock) -> None:
    db.put("k", b"v", ttl=1)
    clock.advance(5)
    assert list(db.expiring()) == [(b"k", START_S + 1)]
    db.purge_expired()
    assert list(db.expiring()) == []


def test_expiring_continues_during_writes(db: kvstore.Store) -> None:
    for number in range(100):
        db.put(f"{number:03}", b"v", ttl=1 + number // 10)
    got = []
    for key, _moment in db.expiring():
        got.append(key)
        db.delete(key)
    assert got == [b"%03d" % n for n in range(100)]
    assert len(db) == 0


def test_views_support_len_and_in_for_live_keys(full: kvstore.Store) -> None:
    for view in (full.keys(), full.items(), full.values()):
        assert len(view) == len(KEYS)
    assert len(full.keys(prefix=b"a")) == 4
    assert len(full.keys(limit=3)) == 3
    assert len(full.keys(prefix=b"a", limit=9)) == 4
    assert b"a" in full.keys(prefix=b"a")
    assert "aa" in full.keys()
    assert b"b" not in full.keys(prefix=b"a")
    assert b"ab" not in full.keys(prefix=b"a", limit=2)
    assert 5 not in full.keys()
    assert (b"a", b"va") in full.items()
    assert (b"a", b"x") not in full.items()
    assert (b"b", b"vb") not in full.items(prefix=b"a")
    assert b"vb" in full.values()
    assert b"vb" not in full.values(prefix=b"a")


def test_key_views_are_sets(full: kvstore.Store) -> None:
    assert full.keys(prefix=b"a") & {b"a", b"b"} == {b"a"}
    assert full.keys(prefix=b"zz") == set()
    assert full.keys() == set(KEYS)
    assert full.keys() >= {b"a"}
    assert full.keys(prefix=b"a") - {b"a"} == {b"a\x00", b"aa", b"ab"}


def test_views_can_be_reversed(full: kvstore.Store) -> None:
    assert list(reversed(full.keys())) == KEYS[::-1]
    assert list(reversed(full.keys(limit=3))) == KEYS[:3][::-1]
    assert list(reversed(full.items(prefix=b"a", reverse=True))) == [
        (k, b"v" + k) for k in KEYS if k.startswith(b"a")
    ]
