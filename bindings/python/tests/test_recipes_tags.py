"""Tags: all keys of a tag are deleted at once, in one transaction."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers import Clock

import kvstore
from kvstore.recipes import Tags, memoize


@pytest.fixture
def store(path: Path, clock: Clock) -> Iterator[kvstore.Store]:
    with kvstore.open(path, busy_timeout=30, sync="off") as opened:
        opened.set_clock(clock)
        yield opened


def index(store: kvstore.Store) -> list[bytes]:
    """Return the rows of the index, without the cursor of the last check."""
    return [key for key in store.family("recipes.tags") if not key.startswith(b"c")]


def test_invalidate_deletes_exactly_keys_of_tag(store: kvstore.Store) -> None:
    tags = Tags(store)
    store["plain"] = b"0"
    tags.put("a", b"1", ["x"])
    tags.put("b", b"2", ["x", "y"])
    tags.put("c", b"3", ["y"])
    tags.put("d", b"4", [])
    assert (tags.keys("x"), tags.keys("y"), tags.keys("z")) == ([b"a", b"b"], [b"b", b"c"], [])
    assert tags.invalidate("x") == 2
    assert list(store) == [b"c", b"d", b"plain"]
    assert (tags.keys("x"), tags.keys("y"), tags.of("b"), tags.of("c")) == ([], [b"c"], [], ["y"])
    assert tags.invalidate("y", "z") == 1
    assert index(store) == []


def test_invalidate_counts_key_with_several_tags_once(store: kvstore.Store) -> None:
    tags = Tags(store)
    tags.put("a", b"1", ["x", "y"])
    assert tags.invalidate("x", "y") == 1


def test_tags_can_be_changed_without_rewriting_value(store: kvstore.Store) -> None:
    tags = Tags(store)
    assert not tags.add("a", "x") and not tags.set("a", ["x"])
    assert index(store) == []
    store.put("a", b"1", ttl=50)
    assert tags.add("a", "x", "y") and tags.of("a") == ["x", "y"]
    assert tags.add("a", "z") and tags.of("a") == ["x", "y", "z"]
    tags.remove("a", "x", "none")
    assert tags.set("a", ["z", "w"]) and tags.of("a") == ["w", "z"]
    assert (store["a"], store.ttl("a")) == (b"1", 50)
    assert (tags.invalidate("x"), tags.invalidate("w")) == (0, 1)


def test_put_replaces_tags(store: kvstore.Store) -> None:
    tags = Tags(store)
    tags.put("a", b"1", ["x"], ttl=50)
    tags.put("a", b"2", ["y"])
    assert (tags.of("a"), store["a"], store.ttl("a")) == (["y"], b"2", None)
    assert (tags.invalidate("x"), store["a"]) == (0, b"2")


def test_deleted_or_expired_key_has_no_tags(store: kvstore.Store, clock: Clock) -> None:
    tags = Tags(store)
    tags.put("a", b"1", ["x"], ttl=10)
    tags.put("b", b"1", ["x"])
    clock.advance(10)
    del store["b"]
    assert (tags.keys("x"), tags.of("a"), tags.of("b"), tags.invalidate("x")) == ([], [], [], 0)
    assert index(store) == []


def test_longer_ttl_keeps_tags(store: kvstore.Store, clock: Clock) -> None:
    tags = Tags(store)
    tags.put("a", b"1", ["x"], ttl=10)
    store.expire("a", 1000)
    clock.advance(500)
    store["a"] = b"by other means"
    assert tags.invalidate("x") == 1


def test_index_does_not_grow_with_removed_keys(store: kvstore.Store, clock: Clock) -> None:
    tags = Tags(store)
    longest = 0
    for number in range(600):
        tags.put(f"{number}", b"1", ["x", f"t{number}"], ttl=20)  # 20 are live at a time
        clock.advance(1)
        longest = max(longest, len(index(store)))
    assert longest <= 3 * 40
    clock.advance(20)
    assert tags.purge() == len(index(store)) // 3 or index(store) == []
    assert index(store) == []


def test_purge_keeps_index_of_live_keys(store: kvstore.Store, clock: Clock) -> None:
    tags = Tags(store)
    for number in range(50):
        tags.put(f"{number}", b"1", ["x"], ttl=10 if number % 2 else None)
    clock.advance(10)
    assert tags.purge() <= 25
    assert len(tags.keys("x")) == 25
    assert len(index(store)) == 50


def test_families_and_indexes_have_separate_tags(store: kvstore.Store) -> None:
    other = store.family("other", create=True)
    here, there, apart = Tags(store), Tags(store, "other"), Tags(store, index="apart")
    for tags in (here, there):
        tags.put("a", b"1", ["x"])
    assert apart.keys("x") == []
    assert there.invalidate("x") == 1
    assert (list(store), list(other), here.keys("x")) == ([b"a"], [], [b"a"])
    with pytest.raises(kvstore.NotFoundError):
        Tags(store, "missing")


def test_similar_tag_names_are_independent(store: kvstore.Store) -> None:
    tags = Tags(store)
    pairs = [("a", "bc"), ("ab", "c"), ("a\0", "b"), ("b", "\0a"), ("c", "a\0"), ("\xff", "\x01"), ("a\x01", "d")]
    for key, tag in pairs:
        tags.put(key, b"1", [tag])
    for key, tag in pairs:
        assert tags.of(key) == [tag]
    for key, tag in pairs:
        assert tags.keys(tag) == [key.encode()]
        assert tags.invalidate(tag) == 1


def test_random_calls_match_model(store: kvstore.Store, clock: Clock) -> None:
    chance = random.Random(7)
    tags = Tags(store)
    model: dict[bytes, set[str]] = {}
    names = ["r", "s", "t", "u"]
    for _ in range(600):
        key = chance.choice([b"a", b"b", b"c", b"d", b"e"])
        some = chance.sample(names, chance.randint(0, 3))
        act = chance.choice(["put", "put", "set", "add", "remove", "invalidate", "delete", "purge"])
        if act == "put":
            tags.put(key, b"1", some)
            model[key] = set(some)
        elif act == "set":
            assert tags.set(key, some) == (key in model)
            if key in model:
                model[key] = set(some)
        elif act == "add":
            assert tags.add(key, *some) == (key in model)
            if key in model:
                model[key] |= set(some)
        elif act == "remove":
            tags.remove(key, *some)
            if key in model:
                model[key] -= set(some)
        elif act == "invalidate":
            hit = [k for k in model if model[k] & set(some)]
            assert tags.invalidate(*some) == len(hit)
            for k in hit:
                del model[k]
        elif act == "delete":
            tags.set(key, [])  # else a key that is written again would still have them
            assert store.delete(key) == (model.pop(key, None) is not None)
        else:
            tags.purge()
        assert set(store) == set(model)
        for tag in names:
            assert set(tags.keys(tag)) == {k for k in model if tag in model[k]}
        for k in model:
            assert tags.of(k) == sorted(model[k])


def test_all_calls_join_transaction(store: kvstore.Store) -> None:
    tags = Tags(store)
    tags.put("a", b"1", ["x"])
    with pytest.raises(LookupError):
        with store.transaction():
            tags.put("b", b"1", ["x"])
            assert tags.keys("x") == [b"a", b"b"]
            assert tags.invalidate("x") == 2
            raise LookupError
    assert (list(store), tags.keys("x")) == ([b"a"], [b"a"])


def test_results_of_functions_can_have_tags(store: kvstore.Store) -> None:
    tags = Tags(store)
    calls = []

    @memoize(store, ttl=600)
    def page(user: str) -> str:
        calls.append(user)
        return f"page of {user}"

    page("ada")
    tags.add(page.cache_key("ada"), "user:ada")
    page("bob")
    assert tags.invalidate("user:ada") == 1
    page("ada"), page("bob")
    assert calls == ["ada", "bob", "ada"]


@pytest.mark.parametrize(
    "call",
    [
        lambda tags: tags.put("a", b"1", "one"), lambda tags: tags.put("a", b"1", [5]), lambda tags: tags.put("a", b"1", [""]),
        lambda tags: tags.put("", b"1", ["x"]), lambda tags: tags.put(5, b"1", ["x"]), lambda tags: tags.put("a", 5, ["x"]),
        lambda tags: tags.put("a", b"1", ["x"], ttl=0), lambda tags: tags.put("a", b"1", ["x" * 70_000]),
    ],
)  # fmt: skip
def test_invalid_argument_changes_nothing(store: kvstore.Store, call: Any) -> None:
    tags = Tags(store)
    with pytest.raises((TypeError, ValueError)):
        call(tags)
    assert len(store) == 0 and index(store) == []


def test_invalidate_is_atomic_across_processes_even_if_killed(path: Path) -> None:
    code = """
import sys, kvstore
from kvstore.recipes import Tags
store = kvstore.open(sys.argv[1], busy_timeout=60)
tags = Tags(store)
for number in range(10**9):
    with store.transaction():
        for key in "abcde":
            tags.put(key, str(number), ["x", key])
    tags.invalidate("x")
    store.incr("rounds")
"""
    with kvstore.open(path, busy_timeout=60) as store:
        tags = Tags(store)
        for _ in range(3):
            before = int(store.get("rounds", b"0"))
            child = subprocess.Popen([sys.executable, "-c", code, str(path)])
            while int(store.get("rounds", b"0")) < before + 10:
                with store.snapshot():
                    keys = [key for key in store if key != b"rounds"]
                    assert len(keys) in (0, 5)
                    assert tags.keys("x") == keys
                    assert len({store[key] for key in keys}) <= 1
                time.sleep(0.001)
            child.kill()
            child.wait()
            store.integrity_check()
            keys = [key for key in store if key != b"rounds"]
            assert len(keys) in (0, 5) and tags.keys("x") == keys
            assert tags.invalidate("a", "b", "c", "d", "e") == len(keys)
            assert index(store) == []


def test_keys_of_a_tag_that_is_no_str_is_a_type_error(store: kvstore.Store) -> None:
    for tag in (b"t", None, ["t"]):
        with pytest.raises(TypeError, match=f"tag must be str, not {type(tag).__name__}"):
            Tags(store).keys(tag)  # type: ignore[arg-type]
