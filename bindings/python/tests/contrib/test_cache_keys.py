"""Keys that the store cannot hold, and values of which some cannot be stored, in all backends for caches."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvstore
from kvstore.contrib._names import is_replaced, name_of, prefix_of

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.filterwarnings("ignore:Cache key will cause errors")]

LONG = "k" * 70_000
#: Keys that a store cannot hold, or not as they are.
KEYS = [LONG, "", "\ud800", LONG + "2", "\u20ac" * 30_000, "k" * 65_000, "k" * 65_536, "k" * 65_537]


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(main)


# Names


def test_every_key_has_a_name_of_its_own() -> None:
    names = [name_of(key) for key in KEYS]
    encoded = [name.encode() if isinstance(name, str) else name for name in names]
    assert len(set(encoded)) == len(KEYS)
    assert all(0 < len(name) <= 65_000 for name in encoded)
    assert [is_replaced(name) for name in encoded] == [True] * 5 + [False] + [True] * 2
    assert [name_of(name) for name in encoded] == encoded  # the name of a name is the name


@given(st.text())
def test_key_that_store_can_hold_is_its_name(key: str) -> None:
    if key:
        assert name_of(key) is key and not is_replaced(key.encode())


@given(st.text(st.characters()), st.text(st.characters()))
def test_names_begin_with_prefix_of_their_keys(prefix: str, rest: str) -> None:
    for key in (prefix + rest, prefix + rest + LONG):
        name = name_of(key)
        assert (name if isinstance(name, bytes) else name.encode()).startswith(prefix_of(prefix))


def test_key_equal_to_name_of_other_key_is_another_entry() -> None:
    name = name_of(LONG)
    assert isinstance(name, bytes)
    assert name_of(name.decode("utf-8", "replace")) != name
    assert name_of(name.decode("utf-8", "surrogateescape")) != name
    assert name_of(name.decode("latin-1")) != name


# Backends


def test_cachelib_cache_holds_every_key(tmp_path: Path) -> None:
    pytest.importorskip("cachelib")
    from kvstore.contrib.cachelib import KVStoreCache

    for prefix in ("", "p:"):
        cache = KVStoreCache(tmp_path / "c.db", key_prefix=prefix)
        for key in KEYS:
            assert cache.get(key) is None and not cache.has(key) and cache.get_many(key, "a") == [None, None]
            assert cache.set(key, 1) and cache.get(key) == 1 and cache.has(key) and not cache.add(key, 2)
            assert cache.inc(key) == 2 and cache.delete(key) and not cache.has(key)
        assert cache.set_many({key: n for n, key in enumerate(KEYS)}) == KEYS
        assert cache.get_many(*KEYS) == list(range(len(KEYS)))
        assert cache.delete_many(*KEYS[1:]) == KEYS[1:] and cache.get_many(*KEYS[:2]) == [0, None]
        cache.set("a", 1)
        assert cache.clear() and not cache.has(LONG) and not cache.has("a")
        cache.close()


def test_cachelib_clear_removes_long_keys_of_its_prefix_only(tmp_path: Path) -> None:
    pytest.importorskip("cachelib")
    from kvstore.contrib.cachelib import KVStoreCache

    mine, other = (KVStoreCache(tmp_path / "c.db", key_prefix=prefix) for prefix in ("a:", "b:"))
    mine.set(LONG, 1)
    other.set(LONG, 2)
    mine.clear()
    assert (mine.get(LONG), other.get(LONG)) == (None, 2)
    mine.close()
    other.close()


def django_cache(path: Path, **options: Any) -> Any:
    django = pytest.importorskip("django")
    from django.conf import settings

    if not settings.configured:
        settings.configure(SECRET_KEY="x", USE_TZ=True)
        django.setup()
    from kvstore.contrib.django.cache import KVStoreCache

    return KVStoreCache(str(path), {"OPTIONS": options})


def test_django_cache_holds_every_key(tmp_path: Path) -> None:
    cache = django_cache(tmp_path / "c.db")
    for key in KEYS:
        assert cache.get(key) is None and key not in cache and cache.get_many([key, "a"]) == {} and not cache.touch(key)
        assert cache.get_or_set(key, lambda: 1) == 1 == cache.get(key) and key in cache and not cache.add(key, 2)
        assert cache.incr(key) == 2 and cache.ttl(key) == 300 and cache.persist(key) and cache.expire(key, 5)
        with cache.lock("lock" + key, timeout=10):
            assert not cache.lock("lock" + key, blocking=False).acquire()
        assert cache.delete(key) and cache.set(key, 1, xx=True) is False
    assert cache.set_many({key: n for n, key in enumerate(KEYS)}) == []
    assert cache.get_many(KEYS) == {key: n for n, key in enumerate(KEYS)}
    cache.delete_many(KEYS[1:])
    assert cache.get_many(KEYS) == {LONG: 0}
    cache._storage.close()


def test_django_patterns_find_long_keys(tmp_path: Path) -> None:
    cache = django_cache(tmp_path / "c.db")
    long, exact = "user:" + LONG, LONG * 2

    def fill() -> None:
        cache.set_many({long: 1, "user:7": 2, "other:7": 3, exact: 4})

    fill()
    assert cache.keys("user:*") == ["user:7"]  # the store does not have the long one
    assert cache.keys(exact) == [exact] and cache.keys(exact + "x") == cache.keys("missing") == []
    assert cache.keys(exact + "*") == [] == cache.keys("*" + exact)
    assert cache.delete_pattern("user:*") == 2 and cache.get(long) is None
    fill()
    assert cache.delete_pattern("user:*7") == 2 and cache.get(long) is None  # it may match
    assert cache.delete_pattern("other:?") == 1 and cache.get(exact) == 4
    fill()
    assert cache.delete_pattern(exact) == 1 and cache.delete_pattern(long + "*") == 1
    assert cache.get_many(["user:7", "other:7", long, exact]) == {"user:7": 2, "other:7": 3}
    cache._storage.close()


def test_dogpile_region_holds_every_key(tmp_path: Path) -> None:
    cache = pytest.importorskip("dogpile.cache")
    for locked in (False, True):
        region = cache.make_region().configure(
            "kvstore", arguments={"path": str(tmp_path / f"{locked}.db"), "distributed_lock": locked}
        )
        calls: list[str] = []

        @region.cache_on_arguments()  # type: ignore[untyped-decorator]
        def up(text: str) -> str:
            calls.append(text)
            return text.upper()

        texts = [key for key in KEYS if key != "\ud800"]
        assert [up(text) for text in texts] == [up(text) for text in texts] == [text.upper() for text in texts]
        assert calls == texts
        up.invalidate(LONG)
        assert up(LONG) == LONG.upper() and len(calls) == len(texts) + 1
        region.set_multi({key: n for n, key in enumerate(KEYS)})
        assert region.get_multi(KEYS) == list(range(len(KEYS)))
        region.delete_multi(KEYS[1:])
        assert region.get_multi(KEYS)[1:] == [cache.api.NO_VALUE] * (len(KEYS) - 1) and region.get(LONG) == 0
        region.delete(LONG)
        assert region.get(LONG) is cache.api.NO_VALUE


def test_requests_cache_mapping_holds_every_key(tmp_path: Path) -> None:
    pytest.importorskip("requests_cache")
    from kvstore.contrib.requests_cache import KVStoreDict

    made = KVStoreDict(tmp_path / "c.db", serializer=None)
    for key in KEYS:
        assert key not in made
        with pytest.raises(KeyError):
            made[key]
        with pytest.raises(KeyError):
            del made[key]
        made[key] = "value"
        assert made[key] == "value" and key in made
    assert list(made) == ["k" * 65_000]  # those that the store can hold
    made.bulk_delete(KEYS)
    assert len(made) == 0
    made.close()


@pytest.mark.parametrize("secret", ["", "&secret=s"])
def test_cashews_cache_holds_every_key(tmp_path: Path, secret: str) -> None:
    cashews = pytest.importorskip("cashews")
    import kvstore.contrib.cashews  # noqa: F401

    async def main() -> None:
        cache = cashews.Cache()
        cache.setup(f"kvstore://{tmp_path}/c.db?sync=off{secret}")
        for key in KEYS:
            assert await cache.get(key) is None and not await cache.exists(key) and not await cache.delete(key)
            assert await cache.set(key, "v", expire=100) and await cache.get(key) == "v" and await cache.exists(key)
            assert await cache.get_expire(key) == 100 and await cache.get_many(key, "a") == ("v", None)
            assert await cache.set_lock("l" + key, "me", 10) and not await cache.set_lock("l" + key, "you", 10)
            assert await cache.is_locked("l" + key) and await cache.unlock("l" + key, "me")
            assert await cache.incr("n" + key) == 1 and await cache.incr_bits("b" + key, 0) == (1,)
        await cache.clear()
        await cache.set_many({key: n for n, key in enumerate(KEYS)})
        assert await cache.get_many(*KEYS) == tuple(range(len(KEYS)))
        await cache.delete_many(*KEYS[1:])
        assert await cache.get_many(*KEYS[:2]) == (0, None)
        await cache.close()

    run(main())


def test_cashews_patterns_and_tags_find_long_keys(tmp_path: Path) -> None:
    cashews = pytest.importorskip("cashews")
    import kvstore.contrib.cashews  # noqa: F401

    async def main() -> None:
        cache = cashews.Cache()
        cache.setup(f"kvstore://{tmp_path}/c.db?sync=off")
        long = "user:" + LONG
        calls: list[str] = []

        @cache(ttl="1m", key="up:{text}", tags=["all"])  # type: ignore[untyped-decorator]
        async def up(text: str) -> str:
            calls.append(text)
            return text.upper()

        for _ in range(2):
            assert await up(LONG) == LONG.upper()
        assert len(calls) == 1
        await cache.delete_tags("all")
        assert await up(LONG) == LONG.upper() and len(calls) == 2
        for pattern in ("user:*", "user:*k", long, long + "*"):
            await cache.set_many({long: 1, "user:7k": 2, "other": 3})
            assert [key async for key in cache.scan(pattern)] == (["user:7k"] if len(pattern) < 10 else [])
            await cache.delete_match(pattern)
            assert await cache.get_many(long, "other") == (None, 3)
        await cache.close()

    run(main())


def test_aiocache_cache_holds_every_key(tmp_path: Path) -> None:
    pytest.importorskip("aiocache")
    from aiocache.lock import OptimisticLock, RedLock

    from kvstore.contrib.aiocache import KVStoreCache

    async def main() -> None:
        async with KVStoreCache(tmp_path / "c.db", namespace="n:") as cache:
            for key in KEYS:
                assert await cache.get(key) is None and not await cache.exists(key) and not await cache.delete(key)
                assert await cache.add(key, 1) and await cache.get(key) == 1 and await cache.increment(key) == 2
                with pytest.raises(ValueError):
                    await cache.add(key, 1)
                assert await cache.expire(key, 10) and await cache.delete(key) == 1
                async with RedLock(cache, key, 10):
                    assert await cache.set(key, 5)
                async with OptimisticLock(cache, key) as lock:
                    await lock.cas(6)
                assert await cache.get(key) == 6
            await cache.multi_set([(key, n) for n, key in enumerate(KEYS)])
            assert await cache.multi_get(KEYS) == list(range(len(KEYS)))
            await cache.set(LONG, 1, namespace="other:")
            await cache.clear(namespace="n:")
            assert await cache.multi_get(KEYS) == [None] * len(KEYS)
            assert await cache.get(LONG, namespace="other:") == 1

    run(main())


def test_langgraph_cache_holds_every_key(tmp_path: Path) -> None:
    pytest.importorskip("langgraph.cache.base")
    from kvstore.contrib.langgraph import KVStoreCache

    cache = KVStoreCache(tmp_path / "c.db")
    keys = [*KEYS, "k" * 64_990, "j" * 64_990]
    cache.set({(("a",), key): (n, None) for n, key in enumerate(keys)})
    cache.set({(("b",), LONG): ("b", None)})
    assert cache.get([(("a",), key) for key in keys]) == {(("a",), key): n for n, key in enumerate(keys)}
    cache.clear([("a",)])
    assert cache.get([(("a",), key) for key in keys]) == {}
    assert cache.get([(("b",), LONG)]) == {(("b",), LONG): "b"}
    cache.close()


# Values that cannot be stored

BIG = b"x" * 2000


def assert_only_big_fails(set_many: Any, get_many: Any) -> None:
    """Values of two keys, one of which is too large: the other one is written, and no old value remains."""
    set_many({"a": b"old", "b": b"old"})
    set_many({"a": b"new", "b": BIG, LONG: b"new"})
    assert get_many(["a", "b", LONG]) == [b"new", None, b"new"]


@pytest.mark.parametrize("threshold", [0, 100])
def test_cachelib_set_many_writes_all_but_large_values(tmp_path: Path, threshold: int) -> None:
    pytest.importorskip("cachelib")
    from kvstore.contrib.cachelib import KVStoreCache

    cache = KVStoreCache(tmp_path / "c.db", max_value_size=1000, threshold=threshold)
    assert_only_big_fails(cache.set_many, lambda keys: cache.get_many(*keys))
    assert cache.set_many({"c": BIG, "a": b"1", "": b"2"}) == ["a", ""] and cache._storage.ignored_errors == 2
    assert cache.set_many({"a": BIG}) == [] and cache.get("a") is None
    cache.close()


def test_cachelib_set_many_into_full_store_writes_what_fits(tmp_path: Path) -> None:
    pytest.importorskip("cachelib")
    from kvstore.contrib.cachelib import KVStoreCache

    cache = KVStoreCache(tmp_path / "c.db", max_bytes=1 << 20)
    cache.set_many({"a": b"old", "b": b"old"})
    assert cache.set_many({"a": b"new", "b": bytes(3 << 20)}) == ["a"]
    assert cache.get_many("a", "b") == [b"new", None]
    cache.close()


@pytest.mark.parametrize("options", [{}, {"MAX_ENTRIES": 100}])
def test_django_set_many_writes_all_but_large_values(tmp_path: Path, options: dict[str, Any]) -> None:
    cache = django_cache(tmp_path / "c.db", MAX_VALUE_SIZE=1000, **options)
    assert_only_big_fails(cache.set_many, lambda keys: [cache.get(key) for key in keys])
    assert cache.set_many({"c": BIG, "a": b"1"}) == ["c"] and cache.get_many(["a", "c"]) == {"a": b"1"}
    cache._storage.close()


def assert_fails_as_a_whole(cache: Any, set_many: Any, result: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Test a write of 20 keys into a full cache of 30, during which the store becomes busy."""
    old = {f"old{number}": b"old" for number in range(30)}
    set_many(old)
    real, calls = cache._make_room, []

    def busy(family: kvstore.Family) -> None:
        calls.append(1)
        if len(calls) == 10:
            raise kvstore.BusyError("locked")
        real(family)

    with monkeypatch.context() as patch:
        patch.setattr(cache, "_make_room", busy)
        assert set_many({f"new{number}": b"new" for number in range(20)}) == result and len(calls) == 10
    assert [cache.get(key) for key in old] == [b"old"] * 30
    assert [cache.get(f"new{number}") for number in range(20)] == [None] * 20
    assert cache.set("another", b"1")
    assert len(cache._storage.family()) <= 30
    cache.close()


def test_cachelib_set_many_with_threshold_writes_all_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cachelib")
    from kvstore.contrib.cachelib import KVStoreCache

    cache = KVStoreCache(tmp_path / "c.db", threshold=30)
    assert_fails_as_a_whole(cache, cache.set_many, [], monkeypatch)


def test_django_set_many_with_maximum_writes_all_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = django_cache(tmp_path / "c.db", MAX_ENTRIES=30)
    assert_fails_as_a_whole(cache, cache.set_many, [f"new{number}" for number in range(20)], monkeypatch)


def test_dogpile_set_multi_writes_all_but_large_values(tmp_path: Path) -> None:
    cache = pytest.importorskip("dogpile.cache")
    region = cache.make_region().configure(
        "kvstore", arguments={"path": str(tmp_path / "c.db"), "max_value_size": 1000}
    )
    found = lambda keys: [value or None for value in region.get_multi(keys)]  # noqa: E731
    assert_only_big_fails(region.set_multi, found)


def test_asyncio_caches_write_all_but_large_values(tmp_path: Path) -> None:
    cashews = pytest.importorskip("cashews")
    pytest.importorskip("aiocache")
    import kvstore.contrib.cashews  # noqa: F401
    from kvstore.contrib.aiocache import KVStoreCache

    async def main() -> None:
        one = cashews.Cache()
        one.setup(f"kvstore://{tmp_path}/one.db?max_value_size=1000")
        await one.set_many({"a": b"old", "b": b"old"})
        await one.set_many({"a": b"new", "b": BIG, LONG: b"new"})
        assert await one.get_many("a", "b", LONG) == (b"new", None, b"new")
        await one.close()
        async with KVStoreCache(tmp_path / "two.db", max_value_size=1000) as two:
            await two.multi_set([("a", b"old"), ("b", b"old")])
            await two.multi_set([("a", b"new"), ("b", BIG), (LONG, b"new")])
            assert await two.multi_get(["a", "b", LONG]) == [b"new", None, b"new"]

    run(main())


def test_langgraph_cache_writes_all_but_large_values(tmp_path: Path) -> None:
    pytest.importorskip("langgraph.cache.base")
    from kvstore.contrib.langgraph import KVStoreCache

    cache = KVStoreCache(tmp_path / "c.db", max_value_size=1000)

    def get_many(keys: list[str]) -> list[Any]:
        found = cache.get([((), key) for key in keys])
        return [found.get(((), key)) for key in keys]

    assert_only_big_fails(lambda items: cache.set({((), key): (value, 60) for key, value in items.items()}), get_many)
    cache.close()
