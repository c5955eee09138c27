"""Stores and families are pickled as a path with settings, and work in other processes."""

from __future__ import annotations

import copy
import gc
import json
import os
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from helpers import Clock, Prefixed, open_files_of, use_store

import kvstore


def again(thing: Any) -> Any:
    return pickle.loads(pickle.dumps(thing))


def test_a_store_that_was_pickled_is_the_same_file(path: Path) -> None:
    with kvstore.open(path) as store, again(store) as other:
        assert other is not store
        store["k"] = b"v"
        assert other["k"] == b"v"
        other.close()
        assert store["k"] == b"v"


@pytest.mark.files
def test_stores_that_were_pickled_are_one_object_in_one_process_as_long_as_it_is_used(path: Path) -> None:
    with kvstore.open(path, busy_timeout=1) as store:
        pickled = pickle.dumps(store)
        one, two = pickle.loads(pickled), pickle.loads(pickled)
        assert one is two
        family = again(store.family("f", create=True))
        family["k"] = b"v"
        assert again(store.family("f"))._store is one is family._store
        files = open_files_of(path)
        del one, two
        family.close()
        del family
        gc.collect()
        assert open_files_of(path) < files


def test_a_family_that_was_pickled_keeps_its_store_open(path: Path) -> None:
    with kvstore.open(path) as store:
        family = again(store.family("f", create=True))
    gc.collect()
    family["k"] = b"v"
    assert again(family)._store is family._store


def test_after_a_close_the_next_one_is_opened_anew(path: Path) -> None:
    with kvstore.open(path) as store:
        pickled = pickle.dumps(store)
        for _ in range(3):
            with pickle.loads(pickled) as other:
                other.incr("n")
        assert store["n"] == b"3"


def test_other_settings_are_another_store(path: Path) -> None:
    with kvstore.open(path, busy_timeout=1) as one, kvstore.open(path, busy_timeout=2) as two:
        first, second, same = again(one), again(two), again(one)
        assert first is not second and first is same
        coded = again(kvstore.open(path, busy_timeout=1, codec=kvstore.TEXT))
        assert coded is not first
        coded["k"] = "text"
        assert first["k"] == b"text"


def test_settings_travel_along(path: Path) -> None:
    kvstore.open(path).close()
    with kvstore.open(path, read_only=True) as store, pytest.raises(kvstore.ReadOnlyError):
        again(store)["k"] = b"v"
    with kvstore.open(path, max_value_size=5) as store, pytest.raises(ValueError):
        again(store)["k"] = b"123456"


def test_a_relative_path_stays_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with kvstore.open("a.db") as store:
        store["k"] = b"v"
        pickled = pickle.dumps(store)
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir("elsewhere")
        assert pickle.loads(pickled)["k"] == b"v"
        assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_path_that_is_no_utf_8_travels(tmp_path: Path) -> None:
    name = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.db")
    try:
        store = kvstore.open(name)
    except (ValueError, kvstore.Error):
        pytest.skip("no such names here")
    with store:
        store["k"] = b"v"
        assert again(store)["k"] == b"v"


CODECS = [None, kvstore.TEXT, kvstore.JSON, kvstore.PICKLE, json, pickle, Prefixed("<")]


@pytest.mark.parametrize("codec", CODECS, ids=repr)
@pytest.mark.parametrize("keys", [bytes, str])
def test_codecs_travel_along(path: Path, codec: Any, keys: Any) -> None:
    value = b"value" if codec is None else "value"
    with kvstore.open(path, codec=codec, keys=keys) as store:
        store["k"] = value
        other = again(store)
        assert type(other) is type(store)
        assert list(other.items()) == [(keys(b"k") if keys is bytes else "k", value)]
        assert other is again(store)
        family = store.family("f", create=True, codec=kvstore.JSON, keys=str)
        family["k"] = {"a": 1}
        assert list(again(family).items()) == [("k", {"a": 1})]
        plain = store.family("default", codec=None, keys=bytes)
        assert again(plain)["k"] == plain["k"]


@pytest.mark.files
def test_what_cannot_travel_is_a_type_error_that_says_why(path: Path, clock: Clock) -> None:
    class Local(Prefixed):
        pass

    with kvstore.open(":memory:") as store:
        for thing in (store, store.family("f", create=True)):
            with pytest.raises(TypeError, match="in memory"):
                pickle.dumps(thing)
            with pytest.raises(TypeError, match="in memory"):
                copy.copy(thing)
    with kvstore.open(path) as store:
        store.set_clock(clock)
        with pytest.raises(TypeError, match="clock"):
            pickle.dumps(store)
        store.set_clock(None)
        again(store).close()
    with kvstore.open(path, codec=Local("")) as store, pytest.raises(TypeError, match="codec"):
        pickle.dumps(store)
    with pytest.raises(kvstore.MisuseError):
        pickle.dumps(store)


class Mine(kvstore.Store):
    pass


def test_a_subclass_of_store_is_not_pickled_as_something_else(path: Path) -> None:
    with Mine(path) as store:
        for thing in (store, store.family("f", create=True)):
            with pytest.raises(TypeError, match="__reduce__"):
                pickle.dumps(thing)


def test_copies_are_stores_on_the_same_file(path: Path) -> None:
    with kvstore.open(path) as store:
        store["k"] = b"v"
        assert copy.copy(store)["k"] == copy.deepcopy({"db": store})["db"]["k"] == b"v"


@pytest.mark.parametrize("way", ["spawn", "forkserver", "fork"])
def test_a_pool_works_with_stores_and_families_that_it_is_passed(path: Path, way: str) -> None:
    with kvstore.open(path, busy_timeout=60, codec=kvstore.JSON, keys=str) as store:
        family = store.family("f", create=True)
        store["shared"] = {"a": [1, None]}
        with get_context(way).Pool(2) as pool:
            answers = pool.starmap(use_store, [(store, family, n) for n in range(20)], chunksize=5)
        assert answers == [{"a": [1, None]}] * 20
        assert store["n"] == 20
        assert dict(family) == {f"{n}": n for n in range(20)}
        store.integrity_check()


def test_an_executor_of_spawned_workers_works_with_a_store_that_it_is_passed(path: Path) -> None:
    with kvstore.open(path, busy_timeout=60, codec=kvstore.JSON, keys=str) as store:
        store["shared"] = 1
        with ProcessPoolExecutor(2, get_context("spawn")) as executor:
            futures = [executor.submit(use_store, store, store.family("f", create=True), n) for n in range(6)]
            assert [future.result(60) for future in futures] == [1] * 6
        assert store["n"] == 6
