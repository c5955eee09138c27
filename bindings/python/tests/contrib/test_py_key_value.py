"""The store for py-key-value: beyond py-key-value's own tests."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("key_value.aio")
pytestmark = pytest.mark.filterwarnings("default")

from helpers import make_damaged_store  # noqa: E402
from key_value.aio.errors import DeserializationError, InvalidKeyError, InvalidTTLError  # noqa: E402
from key_value.aio.stores.base import BaseStore  # noqa: E402

import kvstore  # noqa: E402
from kvstore.contrib.py_key_value import KVStoreStore  # noqa: E402


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(main)


def at(path: Path, **options: Any) -> Any:
    return KVStoreStore(path / "store.db", sync="off", **options)


def test_key_expires_by_ttl_in_file(tmp_path: Path) -> None:
    async def main() -> None:
        async with at(tmp_path) as store:
            now = [1_700_000_000.0]
            store._storage.store().set_clock(lambda: now[0])
            await store.put("a", {"n": 1}, ttl=10)
            await store.put_many(["b", "c"], [{"n": 2}, {"n": 3}], ttl=20)
            await store.put("d", {"n": 4})
            now[0] += 9.5
            value, left = await store.ttl("a")
            assert value == {"n": 1} and 0 < left <= 0.5
            now[0] += 0.5
            assert await store.get("a") is None and await store.ttl("a") == (None, None)
            assert await store.keys() == ["b", "c", "d"]
            now[0] += 10
            assert await store.get_many(["b", "c", "d"]) == [None, None, {"n": 4}]
            assert await store.ttl("d") == ({"n": 4}, None)

    run(main())


def test_changed_ttl_of_another_program_counts(tmp_path: Path) -> None:
    async def main() -> None:
        async with at(tmp_path) as store:
            await store.put("a", {"n": 1}, ttl=10, collection="c")
            await store.put("b", {"n": 2}, collection="c")
            with kvstore.open(tmp_path / "store.db") as db:
                family = db.family("py_key_value")
                family.persist(kvstore.row_key("c", "a"))
                family.expire(kvstore.row_key("c", "b"), 1000)
            assert await store.ttl("a", collection="c") == ({"n": 1}, None)
            _, left = await store.ttl("b", collection="c")
            assert 990 < left <= 1000

    run(main())


def test_very_short_ttl_expires(tmp_path: Path) -> None:
    async def main() -> None:
        async with at(tmp_path) as store:
            await store.put("a", {"n": 1})
            await store.put("a", {"n": 2}, ttl=1e-9)
            await asyncio.sleep(0.002)
            assert await store.get("a") is None
            with pytest.raises(InvalidTTLError):
                await store.put("a", {"n": 3}, ttl=0)

    run(main())


def test_collections_of_any_name_are_separate(tmp_path: Path) -> None:
    names = ["a", "ab", "a\0", "a\0\x01", "__reserved", "\xe4\u20ac", "x" * 2000, "a/../b", "A"]

    async def main() -> None:
        async with at(tmp_path) as store:
            for name in names:
                await store.put("key", {"collection": name}, collection=name)
            for name in names:
                assert await store.get("key", collection=name) == {"collection": name}
                assert await store.keys(name) == ["key"]
            assert await store.collections() == sorted(names, key=lambda name: name.encode())
            assert await store.collections(limit=2) == (await store.collections())[:2]
            assert await store.destroy_collection("a") is True
            assert await store.destroy_collection("a") is False
            assert sorted(await store.collections()) == sorted(set(names) - {"a"})
            assert await store.destroy() is True
            assert await store.collections() == []
            await store.put("key", {"n": 1}, collection="a")
            assert await store.collections() == ["a"]

    run(main())


def test_keys_have_byte_order_and_limit(tmp_path: Path) -> None:
    async def main() -> None:
        async with at(tmp_path, default_collection="mine") as store:
            await store.put_many(["b", "\xe4", "a", ""], [{"n": n} for n in range(4)])
            assert await store.keys() == await store.keys("mine") == ["", "a", "b", "\xe4"]
            assert await store.keys(limit=2) == ["", "a"]
            assert await store.keys("other") == []

    run(main())


@pytest.mark.parametrize("key", ["k" * 65536, "\ud800"])
def test_invalid_key_is_refused(tmp_path: Path, key: str) -> None:
    async def main() -> None:
        async with at(tmp_path) as store:
            for call in (store.get(key), store.put(key, {"n": 1}), store.delete(key), store.ttl_many([key])):
                with pytest.raises(InvalidKeyError):
                    await call
            with pytest.raises(InvalidKeyError):
                await store.put_many(["a", key], [{"n": 1}, {"n": 2}])
            assert await store.collections() == []

    run(main())


def test_put_many_is_atomic(tmp_path: Path) -> None:
    async def main() -> None:
        async with at(tmp_path, max_value_size=1000) as store:
            await store.put("a", {"n": "old"})
            with pytest.raises(kvstore.Error):
                await store.put_many(["a", "b"], [{"n": "new"}, {"n": "x" * 2000}])
            assert await store.get_many(["a", "b"]) == [{"n": "old"}, None]

    run(main())


def test_ignored_errors_count_as_misses(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with at(tmp_path, max_value_size=1000, ignore_errors=True) as store:
            await store.put("a", {"n": "old"})
            await store.put("a", {"n": "x" * 2000})
            assert await store.get("a") is None
        make_damaged_store(tmp_path / "store.db")
        strict = at(tmp_path)
        with pytest.raises(kvstore.Error):
            await strict.get("a")
        async with at(tmp_path, ignore_errors=True) as store:
            assert await store.get("a") is None and await store.keys() == [] and await store.collections() == []
            assert await store.delete("a") is False
            await store.put("a", {"n": 1})
            assert await store.destroy() is True  # a new file
            await store.put("a", {"n": 1})
            assert await store.get("a") == {"n": 1}

    with caplog.at_level(logging.WARNING, "kvstore.contrib"):
        run(main())
    assert "failures so far" in caplog.text


def test_value_of_another_program_is_reported(tmp_path: Path) -> None:
    async def main() -> None:
        async with at(tmp_path) as store:
            await store.put("a", {"n": 1}, collection="c")
            family = store._storage.family()
            row = json.loads(family[kvstore.row_key("c", "a")])
            assert {name: row[name] for name in ("version", "key", "collection", "value")} == {
                "version": 1, "key": "a", "collection": "c", "value": {"n": 1},
            }  # fmt: skip
            for planted in (b"\x80\x04K\x01.", b"[1]", b"{}", b"\xff"):
                family[kvstore.row_key("c", "a")] = planted
                with pytest.raises(DeserializationError):
                    await store.get("a", collection="c")

    run(main())


def test_deleted_folder_is_created_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with KVStoreStore(tmp_path / "new" / "store.db") as store:
            await store.put("a", {"n": 1})
            assert os.stat(tmp_path / "new" / "store.db").st_mode & 0o777 == 0o600
            shutil.rmtree(tmp_path / "new")
            time.sleep(0.05)  # a handle looks for its file every 10 ms
            assert await store.get("a") is None
            await store.put("a", {"n": 2})
            assert await store.get("a") == {"n": 2}

    run(main())


def test_store_is_used_by_several_loops_and_after_close(tmp_path: Path) -> None:
    store = at(tmp_path, seed={"c": {"seeded": {"n": 0}}})

    async def use(number: int) -> None:
        assert await store.get("seeded", collection="c") == {"n": 0}
        await store.put(f"k{number}", {"n": number})
        await store.close()
        assert await store.get(f"k{number}") == {"n": number}

    for number in range(3):
        run(use(number))
    run(store.close())
    kvstore.open(tmp_path / "store.db", exclusive=True, busy_timeout=0).close()


def test_cull_removes_expired_keys_from_file(tmp_path: Path) -> None:
    async def main() -> None:
        async with at(tmp_path, purge_per_write=0) as store:
            await store.put_many(["a", "b", "c"], [{"n": 1}] * 3, ttl=0.001)
            await store.put("d", {"n": 1})
            await asyncio.sleep(0.005)
            family = store._storage.family()
            assert family.count(expired=True) == 4
            await store.cull()
            assert family.count(expired=True) == 1

    run(main())


def test_unknown_option_is_reported(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="unknown settings: max_size"):
        at(tmp_path, max_size=7)
    assert issubclass(KVStoreStore, BaseStore)
