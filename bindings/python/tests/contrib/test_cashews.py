"""The backend for cashews: beyond cashews' own tests."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cashews")
pytestmark = pytest.mark.filterwarnings("default")

from cashews import Cache  # noqa: E402
from cashews.backends.interface import NOT_EXIST, UNLIMITED  # noqa: E402
from helpers import make_damaged_store  # noqa: E402

import kvstore  # noqa: E402
from kvstore.contrib.cashews import KVStoreBackend  # noqa: E402

class Anything:
    """A class that kvstore.DATA does not store."""


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(main)


def cache_at(path: Path, **arguments: Any) -> Any:
    cache = Cache()
    cache.setup(f"kvstore://{path}", **arguments)
    return cache


@pytest.mark.parametrize("arguments", [{}, {"secret": "secret"}, {"compress_type": "zlib"}])
def test_url_and_its_arguments_are_used(tmp_path: Path, arguments: dict[str, Any]) -> None:
    async def main() -> None:
        path = tmp_path / "a b" / "cache.db"
        cache = Cache()
        cache.setup(f"kvstore://{tmp_path}/a%20b/cache.db?family=mine&sync=off&max_value_size=5000", **arguments)
        for value in ("text", b"bytes", 7, -7, 1.5, [1, {"a": None}], True, ""):
            assert await cache.set("key", value, expire=100)
            assert await cache.get("key") == value
        assert await cache.set("key", os.urandom(6000)) is False
        assert await cache.get("key") is None
        await cache.close()
        with kvstore.open(path) as db:
            assert db.families() == ["mine"]

    run(main())


def test_relative_and_memory_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    async def main() -> None:
        for url in ("kvstore://cache.db", "kvstore://:memory:"):
            cache = Cache()
            cache.setup(url)
            await cache.set("key", (1, {2}))
            assert await cache.get("key") == (1, {2})
            await cache.close()

    run(main())
    assert [path.name for path in tmp_path.iterdir()] == ["cache.db"]
    with pytest.raises(ValueError, match="the cache has no path"):
        KVStoreBackend()
    with pytest.raises(TypeError, match="unknown settings: shards"):
        Cache().setup("kvstore://cache.db?shards=8")


def test_ttl_is_that_of_the_file(tmp_path: Path) -> None:
    async def main() -> None:
        backend = KVStoreBackend(path=tmp_path / "c.db")
        now = [1_700_000_000.0]
        backend._storage.store().set_clock(lambda: now[0])
        assert await backend.get_expire("key") == NOT_EXIST
        await backend.set("key", 1, expire=10)
        assert await backend.incr("key", expire=99) == 2
        assert await backend.get_expire("key") == 10
        await backend.set_add("set", "a", "b", expire=20)
        await backend.set_remove("set", "a")
        assert await backend.get("set") == {"b"} and await backend.get_expire("set") == 20
        await backend.set_many({"m": 1, "n": 2}, expire=30)
        now[0] += 10
        assert await backend.get("key") is None and await backend.exists("key") is False
        assert await backend.incr("key", 5, expire=7) == 5
        assert await backend.get_expire("key") == 7
        await backend.set("key", 1)
        assert await backend.get_expire("key") == UNLIMITED
        assert await backend.expire("key", 3) and not await backend.expire("missing", 3)
        assert await backend.get_expire("key") == 3
        await backend.expire("key", 0)
        assert await backend.get_expire("key") == NOT_EXIST
        await backend.set("m", 1, expire=-1)
        assert await backend.get_many("m", "n", default=0) == (0, 2)
        await backend.close()

    run(main())


def test_patterns_match_only_by_star(tmp_path: Path) -> None:
    async def main() -> None:
        backend = KVStoreBackend(path=tmp_path / "c.db")
        await backend.set_many(dict.fromkeys(["a.b", "axb", "a+b", "a.\nb", "b", "a.b.c"], 1))
        for pattern, expected in (
            ("a.b", {"a.b"}), ("a*b", {"a.b", "axb", "a+b", "a.\nb"}),
            ("*", {"a.b", "axb", "a+b", "a.\nb", "b", "a.b.c"}),
            ("*.*", {"a.b", "a.\nb", "a.b.c"}), ("[ab]", set()), ("", set()),
        ):  # fmt: skip
            assert {key async for key in backend.scan(pattern)} == expected
            assert {key async for key, value in backend.get_match(pattern, batch_size=2) if value == 1} == expected
        removed: list[str] = []

        async def note(keys: Any, backend: Any) -> None:
            removed.extend(keys)

        backend.on_remove_callback(note)
        await backend.delete_match("a.*")
        assert sorted(removed) == ["a.\nb", "a.b", "a.b.c"] and await backend.get_keys_count() == 3
        await backend.close()

    run(main())


def test_changes_are_atomic_for_concurrent_tasks_and_backends(tmp_path: Path) -> None:
    async def main() -> None:
        backends = [KVStoreBackend(path=tmp_path / "c.db", sync="off", busy_timeout=60 + n) for n in range(3)]
        await asyncio.gather(
            *(backend.incr("n") for backend in backends for _ in range(20)),
            *(backend.incr_bits("bits", 3, size=8) for backend in backends for _ in range(20)),
            *(backend.set_add("set", f"{n} {i}") for n, backend in enumerate(backends) for i in range(20)),
        )
        assert await backends[0].get("n") == 60
        assert await backends[1].get_bits("bits", 2, 3, 4, size=8) == (0, 60, 0)
        assert len(await backends[2].get("set")) == 60
        popped = await asyncio.gather(*(backend.set_pop("set", 15) for backend in backends))
        assert len({value for values in popped for value in values}) == 45
        locks = await asyncio.gather(*(backend.set_lock("lock", str(n), 10) for n, backend in enumerate(backends)))
        assert locks.count(True) == 1
        holder = locks.index(True)
        assert [await backends[0].unlock("lock", str(n)) for n in range(3)] == [n == holder for n in range(3)]
        for backend in backends:
            await backend.close()

    run(main())


def test_value_of_another_kind_is_reported(tmp_path: Path) -> None:
    async def main() -> None:
        backend = KVStoreBackend(path=tmp_path / "c.db")
        await backend.set("text", "text")
        for call in (
            backend.incr_bits("text", 1), backend.get_bits("text", 1), backend.set_add("text", "a"),
            backend.set_pop("text"), backend.slice_incr("text", 1, 2, 3),
        ):  # fmt: skip
            with pytest.raises(TypeError, match="is not a"):
                await call
        with pytest.raises(ValueError):
            await backend.incr("text")
        with pytest.raises(TypeError, match="cannot be stored"):
            await backend.set("text", object())
        assert await backend.get("text") == "text"
        await backend.close()

    run(main())


def test_function_is_called_if_the_store_fails(tmp_path: Path) -> None:
    make_damaged_store(tmp_path / "c.db")

    async def main() -> None:
        cache = cache_at(tmp_path / "c.db", ignore_errors=True)

        @cache(ttl=100)
        async def call() -> str:
            return "result"

        @cache.locked(ttl=100)
        async def locked() -> str:
            return "result"

        assert await call() == await locked() == "result"
        assert await cache.incr("n", 3) == 3 and await cache.exists("n") is False
        strict = cache_at(tmp_path / "c.db")
        with pytest.raises(kvstore.Error):
            await strict.get("key")
        assert await strict.set("key", 1) is False
        await strict.clear()  # a new file
        assert await call() == "result"
        await cache.close()
        await strict.close()

    run(main())


def test_any_object_is_stored_with_a_secret(tmp_path: Path) -> None:
    async def main() -> None:
        cache = cache_at(tmp_path / "c.db", secret="secret", compress_type="gzip")
        await cache.set("key", Anything)
        assert await cache.get("key") is Anything
        assert await cache_at(tmp_path / "c.db", secret="other", compress_type="gzip").get("key") is None
        await cache.close()

    run(main())
