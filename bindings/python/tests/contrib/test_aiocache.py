"""The cache for aiocache: beyond aiocache's own tests."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiocache")
pytestmark = pytest.mark.filterwarnings("default")

from aiocache import Cache, cached, caches  # noqa: E402
from aiocache.lock import OptimisticLock, OptimisticLockError, RedLock  # noqa: E402
from aiocache.serializers import JsonSerializer, NullSerializer, StringSerializer  # noqa: E402
from helpers import make_damaged_store  # noqa: E402

import kvstore  # noqa: E402
from kvstore.contrib.aiocache import DataSerializer, KVStoreCache  # noqa: E402


class Anything:
    """A class that kvstore.DATA does not store."""


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(main)


def test_values_keep_their_types(tmp_path: Path) -> None:
    async def main() -> None:
        values = ["text", b"\xff", 7, -7, 1.5, (1, [2]), {"a": {3}}, True, ""]
        for number, serializer in enumerate((None, DataSerializer("secret"))):
            async with KVStoreCache(tmp_path / f"{number}.db", serializer=serializer) as cache:
                for value in values:
                    assert await cache.set("key", value) is True
                    assert await cache.get("key") == value
                await cache.multi_set([(str(n), value) for n, value in enumerate(values)])
                keys = [str(n) for n in range(10)]
                assert await cache.multi_get(keys) == [*values, None]
                assert await cache.get("missing", default=3) == 3
        async with KVStoreCache(tmp_path / "secret.db", secret="secret") as cache:
            await cache.set("key", Anything)
            assert await cache.get("key") is Anything
        async with KVStoreCache(tmp_path / "secret.db") as cache:
            assert await cache.get("key") is None
            with pytest.raises(TypeError, match="cannot be stored"):
                await cache.set("key", Anything())
        async with KVStoreCache(tmp_path / "json.db", serializer=JsonSerializer()) as cache:
            await cache.set("key", {"a": "\u20ac"})
            assert await cache.get("key") == {"a": "\u20ac"}
        async with KVStoreCache(tmp_path / "null.db", serializer=NullSerializer()) as cache:
            with pytest.raises(TypeError, match="returned a value of the type list"):
                await cache.set("key", [1])
        with pytest.raises(TypeError, match="serializer= and secret="):
            KVStoreCache(tmp_path / "c.db", serializer=JsonSerializer(), secret="s")

    run(main())


def test_cache_is_created_by_decorator_configuration_and_factory(tmp_path: Path) -> None:
    calls: list[int] = []

    async def main() -> None:
        @cached(cache=KVStoreCache, path=tmp_path / "c.db", ttl=100, key_builder=lambda function, n: f"call:{n}")
        async def call(n: int) -> dict[str, int]:
            calls.append(n)
            return {"n": n}

        assert [await call(1), await call(2), await call(1)] == [{"n": 1}, {"n": 2}, {"n": 1}]
        assert calls == [1, 2]
        before = caches.get_config()
        name = "kvstore.contrib.aiocache.KVStoreCache"
        caches.set_config({"default": {"cache": name, "path": str(tmp_path / "c.db")}})
        found: Any = caches.get("default")
        assert await found.get("call:1") == {"n": 1}
        made = Cache(KVStoreCache, path=tmp_path / "c.db", namespace="call:")
        assert await made.get("2") == {"n": 2}
        assert repr(made) == f"KVStoreCache ({tmp_path / 'c.db'})"
        caches.set_config(before)
        for cache in (found, made, call.cache):  # type: ignore[attr-defined]
            await cache.close()

    run(main())


def test_ttl_is_that_of_the_file(tmp_path: Path) -> None:
    async def main() -> None:
        async with KVStoreCache(tmp_path / "c.db", ttl=50) as cache:
            now = [1_700_000_000.0]
            cache._storage.store().set_clock(lambda: now[0])
            await cache.set("default", 1)
            await cache.set("none", 1, ttl=None)
            await cache.set("zero", 1, ttl=0)
            await cache.multi_set([("a", 1), ("b", 2)], ttl=10)
            await cache.add("add", 1, ttl=0.5)
            assert await cache.increment("a", 5) == 6
            ttl = cache._storage.family().ttl
            assert [ttl(key) for key in ("a", "default", "none", "zero")] == [10, 50, None, None]
            now[0] += 10
            assert await cache.multi_get(["a", "b", "add", "default"]) == [None, None, None, 1]
            assert await cache.expire("default", 0) is await cache.expire("none", 0) is True
            assert await cache.expire("missing", 0) is await cache.expire("missing", 5) is False
            assert await cache.expire("none", -1) is True
            now[0] += 1000
            assert await cache.multi_get(["default", "none"]) == [1, None]
            await cache.set("default", 2, ttl=-1)
            await cache.multi_set([("zero", 2)], ttl=-1)
            await cache.add("new", 2, ttl=-1)
            assert await cache.multi_get(["default", "zero", "new"]) == [None, None, None]

    run(main())


def test_clear_removes_keys_of_namespace_only(tmp_path: Path) -> None:
    async def main() -> None:
        one, two, all_keys = (KVStoreCache(tmp_path / "c.db", namespace=name) for name in ("one:", "two:", None))
        for cache in (one, two, all_keys):
            await cache.set("key", 1)
        assert await one.clear() is True
        assert [await cache.exists("key") for cache in (one, two, all_keys)] == [False, True, True]
        await one.clear(namespace="two:")
        assert [await cache.exists("key") for cache in (one, two, all_keys)] == [False, False, True]
        await all_keys.clear()
        assert await all_keys.exists("key") is False
        for cache in (one, two, all_keys):
            await cache.close()

    run(main())


def test_locks_hold_between_caches(tmp_path: Path) -> None:
    async def main() -> None:
        one, two = (KVStoreCache(tmp_path / "c.db", busy_timeout=60 + number) for number in range(2))
        await asyncio.gather(*(cache.increment("n") for cache in (one, two) for _ in range(20)))
        assert await one.get("n") == 40
        async with RedLock(one, "key", lease=10):
            with pytest.raises(ValueError, match="already exists"):
                await two.add("key-lock", "other")
            assert await two._redlock_release("key-lock", "other") == 0
        assert await two.exists("key-lock") is False
        for value in ({"x": 1}, b"\xff"):
            await one.set("key", value)
            async with OptimisticLock(one, "key") as lock:
                await two.set("key", 7)
                with pytest.raises(OptimisticLockError):
                    await lock.cas(8)
            assert await one.get("key") == 7
        async with OptimisticLock(one, "key") as lock:
            await lock.cas([8], ttl=100)
        assert await two.get("key") == [8]
        await one.close()
        await two.close()

    run(main())


def test_raw_calls_a_method_of_the_family(tmp_path: Path) -> None:
    async def main() -> None:
        async with KVStoreCache(tmp_path / "c.db", serializer=StringSerializer()) as cache:
            assert await cache.raw("put", "key", "value", ttl=10) is True
            assert await cache.raw("get", "key") == "value"
            assert 9 < await cache.raw("ttl", "key") <= 10
            with pytest.raises(ValueError, match="calls a method of kvstore.Family"):
                await cache.raw("_detach")

    run(main())


def test_cache_does_not_break_what_it_caches(tmp_path: Path) -> None:
    async def main() -> None:
        async with KVStoreCache(tmp_path / "c.db", max_value_size=1000) as cache:
            await cache.set("key", "old")
            assert await cache.set("key", "x" * 2000) is True
            assert await cache.get("key") is None
        make_damaged_store(tmp_path / "bad.db")
        async with KVStoreCache(tmp_path / "bad.db") as cache:
            assert await cache.set("key", 1) is True and await cache.add("key", 1) is True
            assert await cache.multi_set([("key", 1)]) is True
            async with RedLock(cache, "key", lease=10):
                pass
            for call in (cache.get("key"), cache.multi_get(["key"]), cache.increment("n"), cache.delete("key")):
                with pytest.raises(kvstore.Error):
                    await call
        async with KVStoreCache(tmp_path / "bad.db", ignore_errors=True) as cache:
            assert await cache.get("key") is None and await cache.multi_get(["key"]) == [None]
            assert await cache.increment("n", 3) == 3 and await cache.expire("n", 3) is False
            assert await cache.delete("key") == 0 and await cache.exists("key") is False
            await cache.clear()  # a new file
            await cache.set("key", 1)
            assert await cache.get("key") == 1

    run(main())


def test_value_that_is_no_number_is_not_incremented(tmp_path: Path) -> None:
    async def main() -> None:
        async with KVStoreCache(tmp_path / "c.db") as cache:
            await cache.set("key", "text")
            with pytest.raises(TypeError, match="not an integer"):
                await cache.increment("key")
            assert await cache.get("key") == "text"

    run(main())


def test_set_on_busy_store_returns_before_the_timeout(tmp_path: Path) -> None:
    async def main() -> None:
        async with KVStoreCache(tmp_path / "c.db", timeout=3) as cache:
            await cache.set("key", 1)
            with kvstore.open(tmp_path / "c.db") as other, other.transaction():
                other["a"] = b""
                results = await asyncio.gather(*(cache.set(f"key {n}", n) for n in range(20)))
            assert results == [True] * 20
            assert await cache.get("key 1") is None

    run(main())
