"""The cache and the sessions for Django: beyond Django's own tests."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

django = pytest.importorskip("django")
pytestmark = pytest.mark.filterwarnings("default")

from django.conf import settings  # noqa: E402

if not settings.configured:
    settings.configure(SECRET_KEY="x", USE_TZ=True)
    django.setup()

from django.contrib.sessions.backends.base import UpdateError  # noqa: E402
from django.core.exceptions import ImproperlyConfigured  # noqa: E402
from django.test.utils import override_settings  # noqa: E402

import kvstore  # noqa: E402
from kvstore.contrib.django.cache import KVStoreCache  # noqa: E402
from kvstore.contrib.django.sessions import SessionStore  # noqa: E402


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "cache.db")


@pytest.fixture
def cache(path: str) -> Iterator[KVStoreCache]:
    made = KVStoreCache(path, {"OPTIONS": {"SYNC": "off"}})
    yield made
    made._storage.close()


def ttl(path: str, key: str) -> Any:
    with kvstore.open(path) as store:
        return store.family("django_cache").ttl(key)


@pytest.mark.parametrize(
    "timeout, left",
    [
        ({}, 300),
        ({"timeout": None}, None),
        ({"timeout": sys.maxsize}, None),
        ({"timeout": 1e300}, None),
        ({"timeout": float("inf")}, None),
        ({"timeout": 5.5}, 5.5),
        ({"timeout": 10**9}, 10**9),
    ],
)
def test_timeout_sets_ttl_of_key(cache: KVStoreCache, path: str, timeout: Any, left: Any) -> None:
    cache.set("k", "v", **timeout)
    found = ttl(path, ":1:k")
    assert found is None if left is None else left - 5 < found <= left


@pytest.mark.parametrize("timeout", [0, -1, -0.5])
def test_zero_or_negative_timeout_removes_key(cache: KVStoreCache, timeout: float) -> None:
    for write in (cache.set, lambda key, value, timeout: cache.set_many({key: value}, timeout)):
        cache.set("k", "v")
        write("k", "v", timeout=timeout)
        assert cache.get("k") is None
    assert cache.add("k", "v", timeout=timeout) is True
    assert cache.get("k") is None
    cache.set("k", "v")
    assert cache.add("k", "v", timeout=timeout) is False
    assert cache.touch("k", timeout=timeout) is True
    assert cache.touch("k", timeout=timeout) is False


def test_incr_keeps_remaining_ttl(cache: KVStoreCache, path: str) -> None:
    cache.set("n", 1, timeout=1000)
    assert cache.incr("n", 4) == 5
    assert cache.decr("n") == 4
    assert 990 < ttl(path, ":1:n") <= 1000
    cache.set("f", 1.5)
    assert cache.incr("f") == 2.5


def test_concurrent_incr_loses_no_update(cache: KVStoreCache) -> None:
    cache.set("n", 0)
    threads = [threading.Thread(target=lambda: [cache.incr("n") for _ in range(50)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cache.get("n") == 200


def test_concurrent_add_succeeds_once(cache: KVStoreCache) -> None:
    results: list[bool] = []
    threads = [threading.Thread(target=lambda: results.append(cache.add("k", "v"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [False] * 7 + [True]


def test_forked_worker_uses_cache_of_parent(cache: KVStoreCache) -> None:
    cache.set("parent", 1)
    child = os.fork()
    if child == 0:
        try:
            cache.set("child", cache.get("parent") + 1)
            os._exit(0)
        except BaseException:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert cache.get("child") == 2


def test_async_methods_match_sync_methods(cache: KVStoreCache) -> None:
    async def walk() -> None:
        await cache.aset("a", 1)
        assert await cache.aget("a") == 1
        assert await cache.aadd("a", 2) is False
        assert await cache.aincr("a", 5) == 6
        assert await cache.adecr("a") == 5
        assert await cache.ahas_key("a")
        assert await cache.atouch("a", 50)
        assert await cache.aset_many({"b": 2, "c": 3}) == []
        assert await cache.aget_many(["a", "b", "x"]) == {"a": 5, "b": 2}
        assert await cache.aget_or_set("d", lambda: 4) == 4
        await cache.adelete_many(["a", "b"])
        assert await cache.adelete("c") is True
        assert await cache.aincr_version("d") == 2
        await cache.aclear()
        assert await cache.aget("d", version=2) is None
        with pytest.raises(ValueError):
            await cache.aincr("missing")

    asyncio.run(walk())


def test_incr_by_many_tasks_loses_no_update(cache: KVStoreCache) -> None:
    async def all_of_them() -> None:
        await cache.aset("n", 0)
        await asyncio.gather(*(cache.aincr("n") for _ in range(100)))

    asyncio.run(all_of_them())
    assert cache.get("n") == 100


def test_cache_close_keeps_store_open(cache: KVStoreCache) -> None:
    cache.set("k", "v")
    store = cache._storage.store()
    cache.close()
    assert not store.closed
    assert cache.get("k") == "v"


def test_cache_objects_in_process_share_one_store(path: str, cache: KVStoreCache) -> None:
    assert KVStoreCache(path, {"OPTIONS": {"SYNC": "off"}, "VERSION": 2})._storage is cache._storage


def test_cache_without_max_entries_is_not_culled(cache: KVStoreCache) -> None:
    cache.set_many({f"k{n}": n for n in range(1000)})
    for n in range(20):
        cache.set(f"more{n}", n)
    assert len(cache.get_many([f"k{n}" for n in range(1000)])) == 1000


def test_cache_without_timeouts_respects_max_bytes(path: str) -> None:
    cache = KVStoreCache(path, {"OPTIONS": {"MAX_BYTES": 1 << 20, "FAMILY": "bounded"}, "TIMEOUT": None})
    for n in range(3000):
        cache.set(f"k{n}", os.urandom(1000))
    assert cache.get("k0") is None
    assert cache.get("k2999") is not None
    cache._storage.close()
    assert os.path.getsize(path) < 2 << 20


@pytest.mark.parametrize("serializer", ["json", "kvstore.JSON", "json.JSON"])
def test_serializer_is_selected_by_name(path: str, serializer: str) -> None:
    if serializer == "json.JSON":
        with pytest.raises(ImproperlyConfigured, match="SERIALIZER"):
            KVStoreCache(path, {"OPTIONS": {"SERIALIZER": serializer}})
        return
    cache = KVStoreCache(path, {"OPTIONS": {"SERIALIZER": serializer, "FAMILY": "json"}})
    cache.set("k", {"a": [1, None]})
    assert cache.get("k") == {"a": [1, None]}
    assert cache._storage.family()[":1:k"].replace(b" ", b"") == b'{"a":[1,null]}'
    cache.set("n", 1)
    assert cache.incr("n") == 2
    cache._storage.close()


@pytest.mark.parametrize(
    "location, options, message",
    [
        ("", {}, "LOCATION"),
        (None, {}, "LOCATION"),
        ("x.db", {"COLOUR": 1}, "'COLOUR' is not an option"),
        ("x.db", {"sync": "off"}, "'sync' is not an option"),
        ("x.db", {"POLICY": "oldest"}, "max_bytes"),
        ("x.db", {"MAX_BYTES": 10**8, "POLICY": "lru"}, "policy must be one of none, soonest, oldest"),
        ("x.db", {"MAX_BYTES": "100MB"}, "max_bytes must be an int"),
        ("x.db", {"SYNC": "sometimes"}, "sync must be one of"),
        ("x.db", {"BUSY_TIMEOUT": "5"}, "busy_timeout"),
        ("x.db", {"CACHE_SIZE": "5"}, "must be an int"),
        ("x.db", {"FAMILY": ""}, "family"),
        ("x.db", {"SERIALIZER": object()}, "SERIALIZER"),
    ],
)
def test_invalid_settings_are_reported(location: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=message):
        KVStoreCache(location, {"OPTIONS": options})


@pytest.mark.parametrize("options", [{"MAX_BYTES": 100}, {"PAGE_SIZE": 1000}])
def test_settings_refused_by_library_are_reported_at_first_use(tmp_path: Path, options: dict[str, Any]) -> None:
    cache = KVStoreCache(tmp_path / "x.db", {"OPTIONS": options})
    with pytest.raises(ImproperlyConfigured, match="kvstore: "):
        cache.get("key")


def test_incr_of_busy_store_is_that_of_missing_key_if_errors_are_ignored(tmp_path: Path) -> None:
    path = str(tmp_path / "c.db")
    strict, lenient = (
        KVStoreCache(path, {"OPTIONS": {"BUSY_TIMEOUT": 0, "IGNORE_ERRORS": ignored}}) for ignored in (False, True)
    )
    lenient.set("n", 5)
    with kvstore.open(path) as other, other.transaction():
        other["a"] = b""
        with pytest.raises(ValueError, match="Key 'n' not found"):
            lenient.incr("n")
        assert lenient.incr("n", 3, ignore_key_check=True) == 3
        with pytest.raises(kvstore.BusyError):
            strict.incr("n")
    assert strict.incr("n") == 6
    for cache in (strict, lenient):
        cache._storage.close()


# Sessions


@pytest.fixture
def sessions(tmp_path: Path) -> Iterator[str]:
    path = str(tmp_path / "sessions.db")
    with override_settings(SESSION_KVSTORE_PATH=path, SESSION_KVSTORE_OPTIONS={"SYNC": "off"}):
        yield path
        SessionStore._storage().close()


@pytest.mark.parametrize("planted", [b"", b"\xff\xfe", b"\x80\x05N."])
def test_damaged_session_is_empty(sessions: str, planted: bytes) -> None:
    session = SessionStore()
    session["user"] = "ada"
    session.save()
    key = session.session_key
    assert key is not None
    SessionStore._storage().family()[key] = planted
    assert SessionStore(key).load() == {}


def test_session_expires_and_clear_expired_frees_its_row(sessions: str) -> None:
    session = SessionStore()
    session["user"] = "ada"
    session.set_expiry(1000)
    session.save()
    key = session.session_key
    assert SessionStore(key)["user"] == "ada"
    with kvstore.open(sessions) as store:
        family = store.family("django_sessions")
        left = family.ttl(key)
        assert left is not None and 990 < left <= 1000.01
        family.expire(key, expires_at=0)
    assert SessionStore(key).get("user") is None
    assert not SessionStore().exists(key)
    SessionStore.clear_expired()
    assert SessionStore._storage().family().count(expired=True) == 0


def test_session_with_huge_expiry_does_not_expire(sessions: str) -> None:
    session = SessionStore()
    session.set_expiry(sys.maxsize)
    session.save()
    assert SessionStore._storage().family().ttl(session.session_key) is None


def test_late_request_does_not_restore_flushed_session(sessions: str) -> None:
    session = SessionStore()
    session["user"] = "ada"
    session.save()
    late = SessionStore(session.session_key)
    late["cart"] = 1
    session.flush()
    with pytest.raises(UpdateError):
        late.save()
    assert not SessionStore().exists(late.session_key)


@pytest.mark.parametrize("key", ["", "x" * 70_000])
def test_invalid_session_key_has_no_session(sessions: str, key: str) -> None:
    assert SessionStore().exists(key) is False
    session = SessionStore(key)
    assert session.get("user") is None
    assert session.session_key is None


def test_tampered_session_data_gives_empty_session(sessions: str) -> None:
    session = SessionStore()
    session["user"] = "ada"
    session.save()
    family = SessionStore._storage().family()
    family[session.session_key] = family[session.session_key][:-1] + b"?"
    assert SessionStore(session.session_key).get("user") is None


def test_async_session_methods_work(sessions: str) -> None:
    async def walk() -> None:
        session = SessionStore()
        session["user"] = "ada"
        await session.asave()
        assert await SessionStore().aexists(session.session_key)
        assert await SessionStore(session.session_key).aget("user") == "ada"
        await session.aflush()
        await SessionStore.aclear_expired()

    if hasattr(SessionStore, "asave"):
        asyncio.run(walk())


def test_missing_session_path_is_reported() -> None:
    with override_settings(SESSION_KVSTORE_PATH=None):
        with pytest.raises(ImproperlyConfigured, match="SESSION_KVSTORE_PATH"):
            SessionStore().exists("abcdefgh")


def test_value_that_cannot_be_stored_breaks_no_page(path: str) -> None:
    cache = KVStoreCache(path, {"OPTIONS": {"MAX_VALUE_SIZE": 1000, "BUSY_TIMEOUT": 0}})
    cache.set("k", "old")
    cache.set("k", "x" * 2000)
    assert cache.get("k") is None
    assert cache.set_many({"k": "x" * 2000, "l": "1"}) == ["k"] and cache.get_many(["k", "l"]) == {"l": "1"}
    assert cache.get_or_set("m", lambda: "x" * 2000) in (None, "x" * 2000)
    assert not cache.add("k", "x" * 2000)
    with kvstore.open(path) as other, other.transaction():
        other.put("b", "1")
        cache.set("k", "1")
        assert cache.get("k") is None
    cache.set("k", "1")
    assert cache.get("k") == "1"
    cache._storage.close()


def test_errors_of_reads_are_misses_on_request(path: str) -> None:
    with open(path, "wb") as file:
        file.write(b"no store" * 1000)
    strict, lenient = KVStoreCache(path, {}), KVStoreCache(path, {"OPTIONS": {"IGNORE_ERRORS": True}})
    with pytest.raises(kvstore.CorruptError):
        strict.get("k")
    strict.set("k", "1")
    assert lenient.get("k", "missing") == "missing" and lenient.get_many(["k"]) == {}
    assert not lenient.delete("k") and not lenient.has_key("k") and not lenient.touch("k")
