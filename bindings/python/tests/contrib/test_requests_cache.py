"""The backend for requests-cache: beyond its own tests. No network: responses are created here."""

from __future__ import annotations

import pickle
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

requests_cache = pytest.importorskip("requests_cache")
pytestmark = pytest.mark.filterwarnings("default")

import requests  # noqa: E402
from requests.adapters import BaseAdapter  # noqa: E402

import kvstore  # noqa: E402
from kvstore.contrib.requests_cache import KVStoreCache, KVStoreDict  # noqa: E402


class Adapter(BaseAdapter):  # type: ignore[misc, unused-ignore]
    """Responds without a network, and counts requests."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def send(self, request: Any, **kwargs: Any) -> Any:
        from io import BytesIO

        from urllib3 import HTTPResponse

        self.calls += 1
        raw = HTTPResponse(BytesIO(b"hello %d" % self.calls), status=200, preload_content=False)
        response = requests.Response()
        response.status_code, response.url, response.request, response.raw = 200, request.url, request, raw
        return response

    def close(self) -> None:
        pass


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[KVStoreCache]:
    made = KVStoreCache(tmp_path / "http.db", sync="off")
    yield made
    made.close()


@pytest.mark.parametrize("offset", [sys.maxsize, 1e300, float("inf")])
def test_huge_ttl_offset_means_no_ttl(tmp_path: Path, offset: float) -> None:
    backend = KVStoreCache(tmp_path / "http.db", ttl_offset=offset)
    session = requests_cache.CachedSession(backend=backend, expire_after=60)
    session.mount("http://", Adapter())
    assert session.get("http://test/").text == "hello 1"
    family = backend.responses._storage.family()
    assert [family.ttl(key) for key in family] == [None]
    backend.close()


def session_with(backend: KVStoreCache, **settings: Any) -> tuple[Any, Adapter]:
    session = requests_cache.CachedSession(backend=backend, **settings)
    adapter = Adapter()
    session.mount("http://", adapter)
    return session, adapter


def test_second_request_is_served_from_file(backend: KVStoreCache) -> None:
    session, adapter = session_with(backend)
    first, second = session.get("http://a/"), session.get("http://a/")
    assert (first.from_cache, second.from_cache, adapter.calls) == (False, True, 1)
    assert first.text == second.text == "hello 1"


@pytest.mark.parametrize("expire_after, left", [(100, 3700), (None, None), (-1, None)])
def test_response_is_kept_one_hour_beyond_freshness(backend: KVStoreCache, expire_after: Any, left: Any) -> None:
    session, _ = session_with(backend, expire_after=expire_after)
    session.get("http://a/")
    family = backend.responses._storage.family()
    [key] = family
    ttl = family.ttl(key)
    assert ttl is None if left is None else ttl is not None and left - 10 < ttl <= left + 1


@pytest.mark.parametrize("offset, left", [(3600, 3600), (0, None)])
def test_response_expired_when_saved_is_kept_for_ttl_offset(tmp_path: Path, offset: int, left: Any) -> None:
    backend = KVStoreCache(tmp_path / "http.db", ttl_offset=offset)
    session, _ = session_with(backend, expire_after=100)
    session.get("http://a/")
    [key] = backend.responses
    response = backend.responses[key]
    response.expires = type(response.expires).fromtimestamp(time.time() - 4000, response.expires.tzinfo)
    backend.responses[key] = response
    assert (key in backend.responses) is (left is not None)
    if left is not None:
        assert left - 10 < (backend.responses._storage.family().ttl(key) or 0) <= left
    backend.close()


def test_responses_without_ttl_are_not_removed(tmp_path: Path) -> None:
    backend = KVStoreCache(tmp_path / "http.db", ttl=False)
    session, _ = session_with(backend, expire_after=1)
    session.get("http://a/")
    family = backend.responses._storage.family()
    assert [family.ttl(key) for key in family] == [None]
    backend.close()


def test_use_after_close_reopens_file(backend: KVStoreCache, tmp_path: Path) -> None:
    session, adapter = session_with(backend)
    session.get("http://a/")
    session.close()
    with kvstore.open(tmp_path / "http.db", exclusive=True) as store:  # no backend has it open
        assert store.families() == ["redirects", "responses"]
    session.mount("http://", adapter)
    assert session.get("http://a/").from_cache


def test_mapping_without_serializer_stores_text(tmp_path: Path) -> None:
    mapping = KVStoreDict(tmp_path / "http.db", "plain", serializer=None)
    mapping["a"] = "ä"
    assert dict(mapping) == {"a": "ä"}
    with pytest.raises(KeyError):
        mapping["b"]
    with pytest.raises(KeyError):
        del mapping["b"]
    mapping.bulk_delete(["a", "b"])
    assert len(mapping) == 0
    mapping.close()


def test_unreadable_response_is_fetched_again(backend: KVStoreCache) -> None:
    session, adapter = session_with(backend)
    session.get("http://a/")
    family = backend.responses._storage.family()
    for key in family:
        family[key] = pickle.dumps("not a response")[:-3]
    assert session.get("http://a/").from_cache is False
    assert adapter.calls == 2


def test_response_is_returned_if_it_cannot_be_stored(tmp_path: Path) -> None:
    storage = KVStoreDict(tmp_path / "cache.db", serializer=None, max_value_size=1000)
    storage["a"] = "small"
    storage["a"] = "x" * 2000
    assert "a" not in storage
    storage["a"] = "small"
    assert storage["a"] == "small"


def test_failed_reads_and_deletions_count_as_missing(tmp_path: Path) -> None:
    (tmp_path / "cache.db").write_text("not a store")
    storage = KVStoreDict(tmp_path / "cache.db", serializer=None, ignore_errors=True)
    storage["a"] = "1"
    assert "a" not in storage and len(storage) == 0 and list(storage) == []
    storage.bulk_delete(["a"])
    with pytest.raises(KeyError):
        del storage["a"]
    strict = KVStoreDict(tmp_path / "cache.db", serializer=None)
    for call in (lambda: strict.bulk_delete(["a"]), lambda: len(strict), lambda: list(strict), storage.clear):
        with pytest.raises(kvstore.CorruptError):
            call()
