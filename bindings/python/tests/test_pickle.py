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
from helpers import Clock, Prefixed, name_of, open_files_of, use_store

import kvstore


def again(thing: Any) -> Any:
    return pickle.loads(pickle.dumps(thing))


def test_unpickled_store_uses_same_file(path: Path) -> None:
    with kvstore.open(path) as store, again(store) as other:
        assert other is not store
        store["k"] = b"v"
        assert other["k"] == b"v"
        other.close()
        assert store["k"] == b"v"


@pytest.mark.files
def test_unpickled_stores_are_one_shared_object_while_in_use(path: Path) -> None:
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


def test_unpickled_family_keeps_its_store_open(path: Path) -> None:
    with kvstore.open(path) as store:
        family = again(store.family("f", create=True))
    gc.collect()
    family["k"] = b"v"
    assert again(family)._store is family._store


def test_unpickling_after_close_reopens_store(path: Path) -> None:
    with kvstore.open(path) as store:
        pickled = pickle.dumps(store)
        for _ in range(3):
            with pickle.loads(pickled) as other:
                other.incr("n")
        assert store["n"] == b"3"


def test_different_settings_give_different_store(path: Path) -> None:
    with kvstore.open(path, busy_timeout=1) as one, kvstore.open(path, busy_timeout=2) as two:
        first, second, same = again(one), again(two), again(one)
        assert first is not second and first is same
        coded = again(kvstore.open(path, busy_timeout=1, codec=kvstore.TEXT))
        assert coded is not first
        coded["k"] = "text"
        assert first["k"] == b"text"


def test_pickle_keeps_settings(path: Path) -> None:
    kvstore.open(path).close()
    with kvstore.open(path, read_only=True) as store, pytest.raises(kvstore.ReadOnlyError):
        again(store)["k"] = b"v"
    with kvstore.open(path, max_value_size=5) as store, pytest.raises(ValueError):
        again(store)["k"] = b"123456"


def test_relative_path_stays_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with kvstore.open("a.db") as store:
        store["k"] = b"v"
        pickled = pickle.dumps(store)
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir("elsewhere")
        assert pickle.loads(pickled)["k"] == b"v"
        assert list((tmp_path / "elsewhere").iterdir()) == []


def test_pickle_keeps_non_utf_8_path(tmp_path: Path) -> None:
    name = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.db")
    try:
        store = kvstore.open(name)
    except (ValueError, kvstore.Error):
        pytest.skip("no such names here")
    with store:
        store["k"] = b"v"
        assert again(store)["k"] == b"v"


CODECS = [None, kvstore.TEXT, kvstore.JSON, kvstore.PICKLE, json, pickle, Prefixed("<")]


@pytest.mark.parametrize("codec", CODECS, ids=name_of)
@pytest.mark.parametrize("keys", [bytes, str])
def test_pickle_keeps_codec(path: Path, codec: Any, keys: Any) -> None:
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
def test_unpicklable_store_raises_type_error_with_reason(path: Path, clock: Clock) -> None:
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


def test_store_subclass_is_not_pickled_as_base_class(path: Path) -> None:
    with Mine(path) as store:
        for thing in (store, store.family("f", create=True)):
            with pytest.raises(TypeError, match="__reduce__"):
                pickle.dumps(thing)


def test_copy_and_deepcopy_use_same_file(path: Path) -> None:
    with kvstore.open(path) as store:
        store["k"] = b"v"
        assert copy.copy(store)["k"] == copy.deepcopy({"db": store})["db"]["k"] == b"v"


@pytest.mark.parametrize("way", ["spawn", "forkserver", "fork"])
def test_pool_accepts_stores_and_families_as_arguments(path: Path, way: str) -> None:
    with kvstore.open(path, busy_timeout=60, codec=kvstore.JSON, keys=str) as store:
        family = store.family("f", create=True)
        store["shared"] = {"a": [1, None]}
        with get_context(way).Pool(2) as pool:
            answers = pool.starmap(use_store, [(store, family, n) for n in range(20)], chunksize=5)
        assert answers == [{"a": [1, None]}] * 20
        assert store["n"] == 20
        assert dict(family) == {f"{n}": n for n in range(20)}
        store.integrity_check()


def test_spawned_executor_accepts_store_as_argument(path: Path) -> None:
    with kvstore.open(path, busy_timeout=60, codec=kvstore.JSON, keys=str) as store:
        store["shared"] = 1
        with ProcessPoolExecutor(2, get_context("spawn")) as executor:
            futures = [executor.submit(use_store, store, store.family("f", create=True), n) for n in range(6)]
            assert [future.result(60) for future in futures] == [1] * 6
        assert store["n"] == 6
