"""Writes that remove expired keys: ``purge_per_write``, and recipes and memoize, which do it unasked."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

import pytest

import kvstore
from helpers import Clock
from kvstore._write_purge import purge_after_write
from kvstore.recipes import Lock, RateLimiter, Tags


def _memoize(store: kvstore.Store) -> Callable[[int], Any]:
    @kvstore.memoize(store, ttl=60)
    def double(number: int) -> int:
        return 2 * number

    return double


WRITERS: dict[str, Callable[[kvstore.Store], Callable[[int], Any]]] = {
    "memoize": _memoize,
    "RateLimiter": lambda store: lambda n, limiter=RateLimiter(store, "r", 5): limiter.hit(f"user {n}"),
    "Lock": lambda store: lambda n: Lock(store, f"lock {n}", ttl=60).acquire(),
    "Tags": lambda store: lambda n, tags=Tags(store): tags.put(f"page {n}", b"v", ["news"], ttl=60),
}


@pytest.mark.parametrize("name", WRITERS)
def test_recipes_remove_expired_keys_after_writes(path: Path, name: str, clock: Clock) -> None:
    with kvstore.open(path) as store:
        store.set_clock(clock)
        write = WRITERS[name](store)
        store.put_many({f"old {n:04}": b"v" for n in range(1000)}, ttl=1)
        clock.now_s += 5
        for number in range(320):
            write(number)
        left = sum(1 for key, _ in store.expiring() if key.startswith(b"old"))
        assert 1000 - 2 * 320 <= left <= 1000 - 2 * 256


@pytest.mark.parametrize("per_write", [0, 1, 3])
def test_purge_per_write_removes_that_many_keys(path: Path, clock: Clock, per_write: int) -> None:
    with kvstore.open(path, purge_per_write=per_write) as store:
        store.set_clock(clock)
        store.put_many({f"old {n:04}": b"v" for n in range(1000)}, ttl=1)
        clock.now_s += 5
        for _ in range(256):
            store["key"] = b"value"
        assert 0 <= store.count(expired=True) - (1001 - 256 * per_write) < 64


def test_failing_removal_does_not_fail_the_write(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with kvstore.open(path) as store:
        store._state.recipe_writes = 100

        def fail(*_: Any) -> None:
            raise kvstore.BusyError("busy")

        monkeypatch.setattr(type(store._state), "check", fail)
        purge_after_write(store._state)
        assert store._state.recipe_writes == 0


def test_recipes_leave_removal_to_store_with_purge_per_write(path: Path) -> None:
    with kvstore.open(path, purge_per_write=1) as store:
        limiter = RateLimiter(store, "r", 5)
        for number in range(100):
            limiter.hit(f"user {number}")
        assert store._state.recipe_writes == 0


def test_purge_per_write_out_of_bounds_is_refused(path: Path) -> None:
    with pytest.raises(ValueError, match="0 to 1000"):
        kvstore.open(path, purge_per_write=1001)
    with pytest.raises(ValueError, match="purge_per_write must be 0 or more, not -1"):
        kvstore.open(path, purge_per_write=-1)
