"""Values that somebody else wrote into the file: a backend never unpickles them, and they count as missing."""

from __future__ import annotations

import asyncio
import datetime
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers import BOMBS, Bomb

import kvstore


@pytest.fixture(autouse=True)
def _nothing_explodes() -> Iterator[None]:
    pickle.loads(BOMBS[0])
    before = Bomb.exploded
    assert before > 0  # it can explode
    yield
    assert Bomb.exploded == before


def plant(path: Path, payload: bytes) -> int:
    """Replace all values of a file, and return how many there were."""
    count = 0
    with kvstore.open(path) as db:
        for name in db.families():
            family = db.family(name)
            for key in list(family.keys()):
                family.put(key, payload, keep_ttl=True)
                count += 1
    return count


@pytest.mark.parametrize("payload", [*BOMBS, b"\x01", b"\xff\xfe", b"{", b"-", b"--5", b'{"$enum":["os","system","x"]}'])
@pytest.mark.parametrize("secret", [None, "secret", ["new", "old"]])
def test_cachelib_refuses_planted_values(tmp_path: Path, payload: bytes, secret: Any) -> None:
    pytest.importorskip("cachelib")
    from kvstore.contrib.cachelib import KVStoreCache

    cache = KVStoreCache(tmp_path / "c.db", secret=secret)
    cache.set("a", {"x": 1})
    cache.set("n", 5)
    assert plant(tmp_path / "c.db", payload) == 2
    planted = b"" if secret is None and payload == b"\x01" else None
    assert cache.get("a") == planted and cache.get_many("a", "b") == [planted, None]
    if planted is None:
        assert cache.inc("n") == 1 and cache.inc("n") == 2  # as if it was missing
    cache.set("a", {"x": 2})
    assert cache.get("a") == {"x": 2}
    cache.close()


@pytest.mark.parametrize("payload", BOMBS)
def test_flask_caching_refuses_planted_values(tmp_path: Path, payload: bytes, caplog: Any) -> None:
    flask = pytest.importorskip("flask")
    flask_caching = pytest.importorskip("flask_caching")
    for secret in (None, "secret"):
        app = flask.Flask(__name__)
        app.secret_key = secret
        path = tmp_path / f"{secret}.db"
        cache = flask_caching.Cache(
            app, config={"CACHE_TYPE": "kvstore.contrib.flask_caching.KVStoreCache", "CACHE_KVSTORE_PATH": str(path)}
        )
        with app.app_context():
            cache.set("a", {"x": 1})
            assert plant(path, payload) == 1
            assert cache.get("a") is None
            cache.set("a", [1])
            assert cache.get("a") == [1]
            if secret is None:
                assert "the app has no SECRET_KEY" in caplog.text
                with pytest.raises(TypeError, match="serializer=pickle"):
                    cache.set("object", object())
            else:
                cache.set("class", Bomb)
                assert cache.get("class") is Bomb
        cache.cache.close()


@pytest.mark.parametrize("payload", BOMBS)
def test_django_refuses_planted_values(tmp_path: Path, payload: bytes) -> None:
    pytest.importorskip("django")
    from django.conf import settings
    from django.test.utils import override_settings

    if not settings.configured:
        settings.configure(SECRET_KEY="of a test")
    from kvstore.contrib.django.cache import KVStoreCache

    path = tmp_path / "c.db"
    with override_settings(SECRET_KEY="one", SECRET_KEY_FALLBACKS=[]):
        cache = KVStoreCache(str(path), {})
        cache.set("a", Bomb)  # a class, which is pickled by name
        assert cache.get("a") is Bomb
        cache.set_many({"b": 1, "c": datetime.date(2024, 1, 1)})
    with override_settings(SECRET_KEY="two", SECRET_KEY_FALLBACKS=["one"]):
        rotated = KVStoreCache(str(path), {})
        assert rotated.get("a") is Bomb
        rotated.set("d", [1])
    with override_settings(SECRET_KEY="three", SECRET_KEY_FALLBACKS=[]):
        other = KVStoreCache(str(path), {})
        assert other.get("a", "default") == "default" and other.get_many(["a", "b", "c"]) == {"b": 1}
    assert plant(path, payload) == 4
    assert cache.get("a", 7) == 7 and cache.get_many(["a", "b"]) == {}
    with pytest.raises(ValueError, match="not found"):
        cache.incr("b")
    assert cache.add("b", 1) is True
    cache._storage.close()


@pytest.mark.parametrize("payload", BOMBS)
@pytest.mark.parametrize("arguments", [{}, {"secret": "secret"}])
def test_dogpile_refuses_planted_values(tmp_path: Path, payload: bytes, arguments: dict[str, Any]) -> None:
    dogpile = pytest.importorskip("dogpile.cache")
    import kvstore.contrib.dogpile

    path = tmp_path / "c.db"
    region = dogpile.make_region().configure("kvstore", arguments={"path": str(path), **arguments})
    assert region.get_or_create("a", lambda: {"x": (1,)}) == {"x": (1,)}
    with kvstore.open(path) as db:
        family = db.family("dogpile")
        metadata, _, _ = family["a"].partition(b"|")
    for value in (payload, metadata + b"|" + payload):
        with kvstore.open(path) as db:
            db.family("dogpile")["a"] = value
        if value != payload:
            assert region.get("a") is dogpile.api.NO_VALUE
        else:
            try:
                region.get("a")
            except ValueError:
                pass  # dogpile's own part of the value is not JSON
    assert region.get_or_create("a", lambda: 5) == 5
    region.backend._storage.close()


@pytest.mark.parametrize("payload", BOMBS)
def test_requests_cache_refuses_planted_values(tmp_path: Path, payload: bytes) -> None:
    requests_cache = pytest.importorskip("requests_cache")
    from requests_cache import CachedResponse

    from kvstore.contrib.requests_cache import KVStoreCache

    path = tmp_path / "c.db"
    cache = KVStoreCache(path)
    response = CachedResponse(url="http://x/", status_code=200)
    response._content = bytes(range(256))
    response.headers["A"] = "\xe9"
    cache.save_response(response, "key")
    got = cache.get_response("key")
    assert got.content == bytes(range(256)) and got.headers["A"] == "\xe9" and got.status_code == 200
    cache.redirects["redirect"] = "key"
    assert plant(path, payload) >= 2
    assert cache.get_response("key") is None and cache.get_response("redirect") is None
    assert requests_cache is not None
    cache.close()


def test_chosen_pickle_still_reads_pickles(tmp_path: Path) -> None:
    pytest.importorskip("cachelib")
    from kvstore.contrib.cachelib import KVStoreCache

    cache = KVStoreCache(tmp_path / "c.db", serializer=pickle)
    cache.set("a", Bomb)
    assert cache.get("a") is Bomb
    with pytest.raises(TypeError, match="serializer= and secret= cannot both be set"):
        KVStoreCache(tmp_path / "c.db", serializer=pickle, secret="s")
    cache.close()


@pytest.mark.parametrize("payload", BOMBS)
def test_py_key_value_refuses_planted_values(tmp_path: Path, payload: bytes) -> None:
    errors = pytest.importorskip("key_value.aio.errors")
    from kvstore.contrib.py_key_value import KVStoreStore

    async def main() -> None:
        async with KVStoreStore(tmp_path / "c.db") as store:
            await store.put("a", {"x": 1})
            assert plant(tmp_path / "c.db", payload) == 1
            with pytest.raises(errors.DeserializationError):
                await store.get("a")

    asyncio.run(main())


@pytest.mark.parametrize("payload", BOMBS)
@pytest.mark.parametrize("arguments", [{}, {"secret": "secret"}, {"secret": "secret", "digestmod": "sum"}])
def test_cashews_refuses_planted_values(tmp_path: Path, payload: bytes, arguments: dict[str, Any]) -> None:
    cashews = pytest.importorskip("cashews")
    import kvstore.contrib.cashews  # noqa: F401

    async def main() -> None:
        cache = cashews.Cache()
        cache.setup(f"kvstore://{tmp_path}/c.db", **arguments)
        await cache.set("key", {"x": (1,)})
        assert await cache.get("key") == {"x": (1,)}
        # The signer of cashews accepts this, which needs no more than a sum of the secret's bytes.
        weak = b"sum:%x_" % (sum(b"secret") + sum(b"key" + payload))
        for planted in (payload, weak + payload, b"bytes", b"\xff", b"{", b"bits:xyz", b"7" * 5000):
            assert plant(tmp_path / "c.db", planted) == 1
            assert await cache.get("key", default=7) == 7
            assert await cache.get_many("key") == (None,)
        await cache.set("key", 5)
        assert await cache.get("key") == 5
        await cache.close()

    asyncio.run(main())


@pytest.mark.parametrize("payload", BOMBS)
@pytest.mark.parametrize("secret", [None, "secret"])
def test_aiocache_refuses_planted_values(tmp_path: Path, payload: bytes, secret: Any) -> None:
    pytest.importorskip("aiocache")
    from kvstore.contrib.aiocache import KVStoreCache

    async def main() -> None:
        async with KVStoreCache(tmp_path / "c.db", secret=secret) as cache:
            await cache.set("a", {"x": (1,)})
            await cache.set("n", 5)
            assert await cache.multi_get(["a", "n"]) == [{"x": (1,)}, 5]
            assert plant(tmp_path / "c.db", payload) == 2
            assert await cache.get("a", default=7) == 7 and await cache.multi_get(["a", "n"]) == [None, None]
            with pytest.raises(TypeError, match="not an integer"):
                await cache.increment("n")

    asyncio.run(main())
