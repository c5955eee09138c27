"""Iterators: as Python iterators, and moved manually."""

from __future__ import annotations

import time
from typing import Callable

import pytest

from kvstore.snkv import Error, Iterator, KVStore, _iterator, _session

KEYS = [b"a", b"b1", b"b2", b"b3", b"c"]


@pytest.fixture
def full(db: KVStore) -> KVStore:
    for key in KEYS:
        db[key] = key.upper()
    return db


def now_ms() -> int:
    return int(time.time() * 1000)


def keys(iterator: Iterator) -> list[bytes]:
    return [key for key, _ in iterator]


def test_all_four_iterators_cover_range_in_their_direction(full: KVStore) -> None:
    assert keys(full.iterator()) == KEYS
    assert keys(full.iterator(reverse=True)) == keys(full.reverse_iterator()) == KEYS[::-1]
    assert keys(full.iterator(prefix="b")) == keys(full.prefix_iterator(b"b")) == KEYS[1:4]
    assert keys(full.iterator(prefix="b", reverse=True)) == keys(full.reverse_prefix_iterator("b")) == KEYS[3:0:-1]


def test_family_iterators_return_only_its_keys(full: KVStore) -> None:
    with full.create_column_family("other") as other:
        other["b9"] = "x"
        for iterator in (
            other.iterator(),
            other.prefix_iterator("b"),
            other.reverse_iterator(),
            other.reverse_prefix_iterator("b"),
        ):
            assert list(iterator) == [(b"b9", b"x")]


def test_iterator_moved_manually_reads_forward(full: KVStore) -> None:
    it = full.iterator()
    assert it.eof
    assert it.first() is it
    seen: list[bytes] = []
    while not it.eof:
        assert it.item() == (it.key, it.value)
        seen.append(it.key)
        it.next()
    assert seen == KEYS
    it.next()
    assert it.eof


def test_iterator_moved_manually_reads_backward(full: KVStore) -> None:
    it = full.reverse_iterator()
    assert it.last() is it
    seen: list[bytes] = []
    while not it.eof:
        seen.append(it.key)
        it.prev()
    assert seen == KEYS[::-1]


def test_prefix_iterators_start_at_first_entry(full: KVStore) -> None:
    it = full.prefix_iterator("b")
    assert it.item() == (b"b1", b"B1")
    assert next(it) == (b"b1", b"B1")
    assert next(it) == (b"b2", b"B2")
    back = full.reverse_prefix_iterator("b")
    assert back.key == b"b3"
    assert keys(back) == KEYS[3:0:-1]


def test_seek_finds_nearest_key_in_direction(full: KVStore) -> None:
    it = full.iterator()
    assert it.seek("b2") is it
    assert it.key == b"b2"
    assert it.seek("b22").key == b"b3"
    assert it.seek("z").eof
    back = full.reverse_iterator()
    assert back.seek("b22").key == b"b2"
    assert back.seek("0").eof
    within = full.prefix_iterator("b")
    assert within.seek("b2").key == b"b2"
    assert within.seek("c").eof


def test_next_after_manual_move_returns_following_entry(full: KVStore) -> None:
    it = full.iterator()
    it.first()
    assert next(it) == (b"b1", b"B1")
    it.next()
    assert it.key == b"b2"
    assert next(it) == (b"b3", b"B3")
    assert it.key == b"b3"
    assert it.value == b"B3"
    it.seek("a")
    assert keys(it) == KEYS[1:]


def test_ended_iterator_stays_ended(full: KVStore) -> None:
    it = full.iterator()
    assert len(list(it)) == len(KEYS)
    assert list(it) == []
    assert it.eof
    with pytest.raises(Error):
        _ = it.key


def test_first_restarts_ended_iterator(full: KVStore) -> None:
    it = full.iterator()
    list(it)
    assert it.first().key == b"a"
    assert keys(it) == KEYS[1:]


def test_last_and_prev_of_forward_iterator_fail(full: KVStore) -> None:
    it = full.iterator().first()
    with pytest.raises(Error, match="reverse"):
        it.last()
    with pytest.raises(Error, match="reverse"):
        it.prev()
    assert it.key == b"a"


def test_reading_iterator_before_first_move_fails(full: KVStore) -> None:
    it = full.iterator()
    reads: list[Callable[[], object]] = [lambda: it.key, lambda: it.value, it.item]
    for read in reads:
        with pytest.raises(Error, match="eof"):
            read()


def test_empty_prefix_or_seek_is_refused(full: KVStore) -> None:
    calls: list[Callable[[], object]] = [
        lambda: full.prefix_iterator(""),
        lambda: full.iterator(prefix=b""),
        lambda: full.iterator().seek(""),
    ]
    for call in calls:
        with pytest.raises(Error, match="0 bytes"):
            call()


def test_options_are_keywords_only(full: KVStore) -> None:
    with pytest.raises(TypeError):
        full.iterator(True)  # type: ignore[call-arg]


def test_closed_iterator_is_ended_and_cannot_be_moved(full: KVStore) -> None:
    with full.iterator() as it:
        it.first()
    it.close()
    assert it.eof
    assert list(it) == []
    calls: list[Callable[[], object]] = [
        it.first,
        it.next,
        it.last,
        it.prev,
        it.item,
        lambda: it.key,
        lambda: it.value,
        lambda: it.seek("a"),
    ]
    for call in calls:
        with pytest.raises(Error, match="Iterator is closed"):
            call()


def test_deleting_returned_keys_does_not_affect_iteration(full: KVStore) -> None:
    for key, _ in full:
        full.delete(key)
    assert full.count() == 0


def test_iteration_sees_writes_and_deletes_ahead(full: KVStore) -> None:
    seen = []
    for key, value in full:
        seen.append((key, value))
        if key == b"a":
            full["b0"] = "new"
            full["b2"] = "changed"
            full.delete("b3")
    assert seen == [(b"a", b"A"), (b"b0", b"new"), (b"b1", b"B1"), (b"b2", b"changed"), (b"c", b"C")]


def test_iterator_sees_writes_through_other_family_handle(full: KVStore) -> None:
    it = iter(full)
    assert next(it)[0] == b"a"
    with full.default_column_family() as same:
        same["a2"] = "new"
    assert next(it)[0] == b"a2"


def test_iterator_continues_across_commit_and_rollback(full: KVStore) -> None:
    it = full.iterator()
    full.begin(write=True)
    full["aa"] = "x"
    assert next(it)[0] == b"a"
    assert next(it)[0] == b"aa"
    full.rollback()
    assert next(it)[0] == b"b1"


def test_rows_of_all_sizes_are_returned_once_in_order(db: KVStore) -> None:
    expected = {}
    for i in range(1500):
        expected[b"%06d" % i] = b"v" * (i * 7 % 1000) if i % 300 else b"x" * 100_000
    db.begin(write=True)
    for key, value in expected.items():
        db.put(key, value, ttl=3600 if key[-1:] == b"7" else None)
    db.commit()
    assert list(db) == list(expected.items())
    assert list(db.reverse_iterator()) == list(expected.items())[::-1]
    it = db.iterator()
    for i, key in enumerate(expected):
        assert next(it) == (key, expected[key])
        if i % 13 == 0:
            assert it.key == key
            assert it.value == expected[key]
            assert not it.eof
        if i % 101 == 0:
            db.put(key, expected[key])
    with pytest.raises(StopIteration):
        next(it)


def test_manual_move_continues_from_last_iterated_entry(full: KVStore) -> None:
    it = full.iterator()
    assert next(it)[0] == b"a"
    full.delete("a")
    it.next()
    assert it.key == b"b1"
    back = full.reverse_iterator()
    assert next(back)[0] == b"c"
    assert back.key == b"c"
    back.prev()
    assert back.item() == (b"b3", b"B3")


def test_prev_of_forward_iterator_fails_during_iteration(full: KVStore) -> None:
    it = full.iterator()
    assert next(it)[0] == b"a"
    full.delete("a")
    with pytest.raises(Error, match="reverse"):
        it.prev()
    assert next(it)[0] == b"b1"


def test_prefetched_rows_that_expire_are_not_returned(full: KVStore) -> None:
    now = now_ms()
    for i in range(20):
        full._db.put_ttl(b"b1%02d" % i, b"soon", now + 60_000)
    it = full.iterator()
    assert next(it)[0] == b"a"
    assert it._ahead, "the point of this test"
    it._first_expire_ms = 1  # as if one of them had expired meanwhile
    assert keys(it) == [b"b1", *(b"b1%02d" % i for i in range(20)), b"b2", b"b3", b"c"]


def test_expired_rows_between_live_rows_are_skipped(db: KVStore) -> None:
    db.begin(write=True)
    for i in range(600):
        if i % 3:
            db._db.put_ttl(b"%04d" % i, b"dead", 1)
        else:
            db.put(b"%04d" % i, "live", ttl=3600)
    db.commit()
    assert [int(key) for key in keys(db.iterator())] == list(range(0, 600, 3))


@pytest.mark.parametrize("change", ["put", "ttl", "if_absent", "low_level", "delete", "clear", "family", "rollback"])
def test_every_kind_of_write_after_current_row_is_seen(full: KVStore, change: str) -> None:
    if change == "rollback":
        full.begin(write=True)
        full["a1"] = "gone"
    it = full.iterator()
    assert next(it)[0] == b"a"
    family = full.default_column_family()
    expected = b"a5"
    if change == "put":
        full["a5"] = "new"
    elif change == "ttl":
        full["a5", 60] = "new"
    elif change == "if_absent":
        full.put_if_absent("a5", "new")
    elif change == "low_level":
        full._db.put_ttl(b"a5", b"new", 0)
    elif change == "family":
        family["a5"] = "new"
    elif change == "delete":
        full.delete("b1")
        expected = b"b2"
    elif change == "rollback":
        full.rollback()
        expected = b"b1"
    else:
        full.clear()
        assert list(it) == []
        return
    assert next(it)[0] == expected
    assert it.key == expected


def test_read_ahead_failure_is_raised_after_prefetched_rows(full: KVStore) -> None:
    it = full.iterator()
    assert next(it)[0] == b"a"
    while it._ahead:
        next(it)
    it._failed = 5  # as if the library had been kept from reading on: it tries again
    assert keys(it) == []
    assert it.first().key == b"a"


class Failing:
    """The library, in which the nth call of one function fails: a read, or reading the time."""

    def __init__(self, function: str, nth: int) -> None:
        self.function, self.left = function, nth

    def __getattr__(self, name: str) -> object:
        real = getattr(LIBRARY, name)

        def call(*arguments: object) -> object:
            self.left -= 1
            if self.left:
                return real(*arguments)
            if name == "kvpy_fill":
                arguments[2].failed = LIBRARY.KVSTORE_IOERR  # type: ignore[attr-defined]
                return 0
            return LIBRARY.KVSTORE_IOERR

        return call if name == self.function else real


LIBRARY = _iterator.lib


@pytest.mark.parametrize("function", ["kvpy_fill", "kvstore_time_ms"])
@pytest.mark.parametrize("nth", range(1, 6))
@pytest.mark.parametrize("looks", [False, True])
def test_failed_step_loses_no_row(
    db: KVStore, monkeypatch: pytest.MonkeyPatch, function: str, nth: int, looks: bool
) -> None:
    there = [b"%02d" % n for n in range(40)]
    for key in there:
        db.put(key, key, ttl=3600)
    it = db.iterator()
    seen: list[bytes] = []
    failures = 0
    failing = Failing(function, nth)
    with monkeypatch.context() as patch:
        patch.setattr(_iterator, "lib", failing)
        patch.setattr(_session, "lib", failing)
        while True:
            try:
                seen.append(next(it)[0])
            except StopIteration:
                break
            except Error:
                failures += 1
                if looks and not seen and it._ahead:
                    assert not it.eof and (it.key, it.value) == it.item() == (there[0], there[0])
    assert (failures, seen) == (int(failing.left <= 0), there)
    assert failures or nth > 2
