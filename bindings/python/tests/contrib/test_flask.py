"""The caches for cachelib and Flask-Caching, and Flask-Session with the first."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cachelib")
pytestmark = pytest.mark.filterwarnings("default")

import kvstore  # noqa: E402
from kvstore.contrib.cachelib import KVStoreCache  # noqa: E402


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[KVStoreCache]:
    made = KVStoreCache(tmp_path / "cache.db", sync="off")
    yield made
    made.close()


def left(cache: KVStoreCache, key: str) -> Any:
    return cache._storage.family().ttl(key)


def test_timeout_none_is_default_zero_is_no_ttl_negative_expires(cache: KVStoreCache) -> None:
    cache.set("default", 1)
    assert 290 < left(cache, "default") <= 300
    for write in (cache.set, cache.add):
        write("for ever", 1, timeout=0)
        assert left(cache, "for ever") is None
        cache.delete("for ever")
    assert cache.set("default", 1, timeout=-1)
    assert not cache.has("default")
    assert cache.add("default", 1, timeout=-1)
    assert not cache.has("default")
    assert cache.set_many({"a": 1, "b": 2}, timeout=-1) == ["a", "b"]
    assert cache.get_many("a", "b") == [None, None]


@pytest.mark.parametrize("timeout", [sys.maxsize, 1e300, float("inf"), timedelta.max])
def test_huge_timeout_means_no_ttl(cache: KVStoreCache, tmp_path: Path, timeout: Any) -> None:
    by_default = KVStoreCache(tmp_path / "cache.db", default_timeout=timeout, family="other")
    assert by_default.set("k", 1) and cache.set("k", 1, timeout) and cache.add("l", 1, timeout)
    assert cache.set_many({"m": 1}, timeout) == ["m"] and by_default.inc("n") == 1
    assert [left(by_default, "k"), left(by_default, "n"), *(left(cache, key) for key in "klm")] == [None] * 5
    by_default.close()


def test_zero_default_timeout_means_no_ttl(tmp_path: Path) -> None:
    cache = KVStoreCache(tmp_path / "cache.db", default_timeout=0, family="other")
    cache.set("k", None)
    assert left(cache, "k") is None
    assert cache.has("k")
    cache.close()


def test_inc_starts_at_delta_and_keeps_ttl_of_existing_key(cache: KVStoreCache) -> None:
    assert cache.inc("n", 5) == 5
    assert 290 < left(cache, "n") <= 300
    cache.set("m", 10, timeout=1000)
    assert cache.dec("m", 3) == 7
    assert 990 < left(cache, "m") <= 1000
    cache.set("none", None)
    assert cache.inc("none") == 1
    cache.set("text", "x")
    with pytest.raises(TypeError):
        cache.inc("text")


def test_concurrent_inc_loses_no_update(cache: KVStoreCache) -> None:
    threads = [threading.Thread(target=lambda: [cache.inc("n") for _ in range(50)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cache.get("n") == 200


def test_clear_removes_only_keys_with_prefix(tmp_path: Path) -> None:
    one = KVStoreCache(tmp_path / "cache.db", key_prefix="one:")
    two = KVStoreCache(tmp_path / "cache.db", key_prefix="two:")
    one.set("k", 1)
    two.set("k", 2)
    assert (one.get("k"), two.get("k")) == (1, 2)
    assert one.clear()
    assert (one.get("k"), two.get("k")) == (None, 2)
    one.close()


def test_delete_many_returns_missing_keys_too(cache: KVStoreCache) -> None:
    cache.set("a", 1)
    assert cache.delete_many("a", "b") == ["a", "b"]
    assert (cache.delete("a"), cache.has("a")) == (False, False)


def test_threshold_limits_number_of_keys(tmp_path: Path) -> None:
    cache = KVStoreCache(tmp_path / "cache.db", threshold=20, family="small")
    for number in range(100):
        cache.set(str(number), number)
        assert len(cache._storage.family()) <= 20
    assert cache.get("99") == 99
    assert cache.set_many({f"k{n}": n for n in range(50)}) == [f"k{n}" for n in range(50)]
    assert len(cache._storage.family()) <= 20
    cache.close()


def test_flask_session_stores_sessions_with_lifetime(tmp_path: Path) -> None:
    flask = pytest.importorskip("flask")
    flask_session = pytest.importorskip("flask_session")
    cache = KVStoreCache(tmp_path / "sessions.db", family="sessions")
    app = flask.Flask("test")
    app.config.update(SESSION_TYPE="cachelib", SESSION_CACHELIB=cache, PERMANENT_SESSION_LIFETIME=1000)
    flask_session.Session(app)

    @app.get("/")
    def visits() -> str:
        flask.session["visits"] = flask.session.get("visits", 0) + 1
        return str(flask.session["visits"])

    ada, bob = app.test_client(), app.test_client()
    assert [ada.get("/").text, ada.get("/").text, bob.get("/").text] == ["1", "2", "1"]
    family = cache._storage.family()
    assert len(family) == 2
    assert all(990 < (family.ttl(key) or 0) <= 1000 for key in family)
    family.clear()
    assert ada.get("/").text == "1"
    cache.close()


def flask_caching_app(**config: Any) -> tuple[Any, Any]:
    flask = pytest.importorskip("flask")
    flask_caching = pytest.importorskip("flask_caching")
    app = flask.Flask("test")
    app.config.update(CACHE_TYPE="kvstore.contrib.flask_caching.KVStoreCache", **config)
    return app, flask_caching.Cache(app)


def test_flask_caching_finds_backend_by_name(tmp_path: Path) -> None:
    app, cache = flask_caching_app(CACHE_KVSTORE_PATH=str(tmp_path / "cache.db"), CACHE_DEFAULT_TIMEOUT=50)
    calls: list[int] = []

    with app.app_context():

        @cache.memoize()
        def square(number: int) -> int:
            calls.append(number)
            return number * number

        assert [square(3), square(3), square(4)] == [9, 9, 16]
        assert calls == [3, 4]
        cache.delete_memoized(square, 3)
        square(3)
        assert calls == [3, 4, 3]
        cache.set("k", {"a": 1})
        cache.cache.close()
        with kvstore.open(tmp_path / "cache.db") as store:
            ttl = store.family("flask_caching").ttl("flask_cache_k")
            assert ttl is not None and 40 < ttl <= 50
        cache.clear()
        assert cache.get("k") is None
    cache.cache.close()


def test_flask_caching_accepts_folder_and_options(tmp_path: Path) -> None:
    app, cache = flask_caching_app(
        CACHE_DIR=str(tmp_path), CACHE_KEY_PREFIX="mine:", CACHE_OPTIONS={"sync": "off", "family": "other"}
    )
    with app.app_context():
        cache.set("k", 1)
        cache.cache.close()
    with kvstore.open(tmp_path / "cache.db") as store:
        assert list(store.family("other")) == [b"mine:k"]


def test_flask_caching_without_path_fails() -> None:
    with pytest.raises(ValueError, match="CACHE_KVSTORE_PATH"):
        flask_caching_app()


@pytest.mark.parametrize("ignore_errors", [False, True])
def test_inc_of_busy_store_is_that_of_missing_key_if_errors_are_ignored(tmp_path: Path, ignore_errors: bool) -> None:
    cache = KVStoreCache(tmp_path / "c.db", busy_timeout=0, ignore_errors=ignore_errors)
    cache.set("n", 5)
    with kvstore.open(tmp_path / "c.db") as other, other.transaction():
        other["a"] = b""
        if ignore_errors:
            assert (cache.inc("n"), cache.dec("n", 2)) == (1, -2)
        else:
            with pytest.raises(kvstore.BusyError):
                cache.inc("n")
    assert cache.inc("n") == 6
    cache.close()
