"""Backends whose path is the URL of a store on a server, whose clock is an hour ahead."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from postgres import Server

import kvstore
from kvstore.contrib._culling import cull
from kvstore.contrib._storage import Storage
from kvstore.contrib._values import Values, change

pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture
def location(server: Server, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL; no file or directory is created meanwhile."""
    kvstore.open(url).close()
    server.set_clock(url, "+3600000")
    monkeypatch.chdir(tmp_path)
    yield url
    assert os.listdir(tmp_path) == []


def test_place_keeps_url_unchanged(location: str) -> None:
    place, same = Storage(location, "things", {}), Storage(location, "others", {})
    assert place.path == location and place.store() is same.store()
    place.family()["n"] = b"1"
    assert change(place, "n", Values(), lambda n: n + 1) == 2
    same.close()
    place.close()


def test_keys_expiring_first_are_culled_first(location: str) -> None:
    place = Storage(location, "things", {})
    family = place.family()
    for n in range(10):
        cull(place, place.family(), 10, 2)
        family.put(f"{n}", b"", ttl=1000 - n)
    cull(place, place.family(), 10, 2)
    assert list(family) == [b"0", b"1", b"2", b"3", b"4"]
    place.close()


def test_cachelib(location: str) -> None:
    pytest.importorskip("cachelib")
    from kvstore.contrib.cachelib import KVStoreCache

    cache = KVStoreCache(location, default_timeout=60)
    assert cache.set("a", {"x": 1}) and cache.get("a") == {"x": 1} and cache.inc("n") == 1 and cache.inc("n") == 2
    assert cache.add("b", 1) and not cache.add("b", 2) and cache.get_many("a", "b", "c") == [{"x": 1}, 1, None]
    left = cache._storage.family().ttl("b")
    assert left is not None and 40 < left <= 60
    assert cache.clear()
    cache._storage.close()


def test_django(location: str) -> None:
    django = pytest.importorskip("django")
    from django.conf import settings

    if not settings.configured:
        settings.configure(SECRET_KEY="x", USE_TZ=True)
        django.setup()
    from django.test.utils import override_settings

    from kvstore.contrib.django.cache import KVStoreCache
    from kvstore.contrib.django.sessions import SessionStore

    cache = KVStoreCache(location, {"OPTIONS": {"BUSY_TIMEOUT": 10}})
    cache.set("a", {"x": 1}, 60)
    cache.set_many({"b": 1, "c": 2}, 60)
    assert cache.get("a") == {"x": 1} and cache.incr("b") == 2 and cache.get_many(["b", "c"]) == {"b": 2, "c": 2}
    assert cache.add("d", 1) and not cache.add("d", 2) and cache.touch("d", 5)
    cache.delete_many(["b", "c"])
    assert not cache.has_key("b") and cache.has_key("a")
    assert cache.keys("?") == list(cache.iter_keys("*", itersize=1)) == ["a", "d"] and cache.keys("a") == ["a"]
    assert cache.expire("a", 50) and cache.ttl("a") in (49, 50) and cache.persist("a") and cache.ttl("a") is None
    assert not cache.set("a", 2, nx=True) and cache.set("a", 2, xx=True)
    assert cache.delete_pattern("[a]") == 1 and cache.delete_pattern("d*") == 1 and cache.keys("*") == []
    with cache.lock("l", timeout=30) as lock:
        assert cache.has_key("l") and not cache.lock("l").acquire(blocking=False) and lock.extend(10)
        left = cache.ttl("l")
        assert left is not None and 30 < left <= 40
    assert not cache.has_key("l")
    cache._storage.close()
    with override_settings(SESSION_KVSTORE_PATH=location, SESSION_KVSTORE_OPTIONS={}, SESSION_COOKIE_AGE=60):
        session: Any = SessionStore()
        session["user"] = "ada"
        session.create()
        again: Any = SessionStore(session.session_key)
        assert again["user"] == "ada"
        left = SessionStore._storage().family().ttl(session.session_key)
        assert left is not None and 40 < left <= 60
        again.set_expiry(-1)
        again.save()
        assert SessionStore(session.session_key).load() == {}
        SessionStore.clear_expired()
        SessionStore._storage().close()


def test_dogpile(location: str) -> None:
    dogpile = pytest.importorskip("dogpile.cache")
    arguments = {"path": location, "distributed_lock": True}
    region = dogpile.make_region().configure("kvstore", expiration_time=3600, arguments=arguments)
    calls: list[int] = []

    def make() -> int:
        calls.append(1)
        return 7

    assert region.get_or_create("k", make) == region.get_or_create("k", make) == 7 and len(calls) == 1
    region.backend._storage.close()
    region.backend._locks.close()
