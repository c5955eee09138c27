"""``python -m kvstore import`` of data written by diskcache, sqlitedict and snkv themselves."""

from __future__ import annotations

import json
import pickle
import time
from pathlib import Path
from typing import Any

import pytest
from helpers import content, run_import as run

import kvstore

pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "target.db"


# diskcache

#: Each way in which diskcache keeps a value: in the row and in files.
LONG = 40_000
VALUES: dict[Any, Any] = {
    "text": "Ada",
    "long text": "ä" * LONG,
    "bytes": b"\x00\xff",
    "long bytes": b"\xff" * LONG,
    "int": -7,
    "float": 1.5,
    "list": [1, None],
    "long list": list(range(LONG)),
    b"bytes key": "b",
    17: "int key",
}


def test_diskcache(tmp_path: Path, target: Path, capsys: Any) -> None:
    diskcache = pytest.importorskip("diskcache")
    with diskcache.Cache(str(tmp_path / "cache"), cull_limit=0) as cache:
        for key, value in VALUES.items():
            cache.set(key, value)
        cache.set("session", "tok", expire=1000)
        cache.set("dead", "x", expire=-1)
        cache.set(("user", 7), "tuple key", tag="t")
        before = time.time()
        assert run(tmp_path / "cache", target) == 1  # while it is open
    found = content(target)
    assert found[b"text"] == b"Ada"
    assert found[b"long text"] == ("ä" * LONG).encode()
    assert found[b"bytes"] == b"\x00\xff"
    assert found[b"long bytes"] == b"\xff" * LONG
    assert (found[b"int"], found[b"float"]) == (b"-7", b"1.5")
    assert pickle.loads(found[b"list"]) == [1, None]
    assert pickle.loads(found[b"long list"]) == list(range(LONG))
    assert (found[b"bytes key"], found[b"17"]) == (b"b", b"int key")
    assert len(found) == len(VALUES) + 1
    with kvstore.open(target) as store:
        moment = store.expires_at("session")
        assert moment is not None and abs(moment - before - 1000) < 30
    out = capsys.readouterr().out
    assert "1\tskipped: expired in the source" in out
    assert "1\tskipped: the key is a pickle: use --unpickle to read it" in out
    assert run(tmp_path / "cache", target, "--skip-existing", "--unpickle") == 0
    assert content(target)[b'["user", 7]'] == b"tuple key"


@pytest.mark.parametrize("path", ["cache", "cache/cache.db"])
def test_diskcache_as_pickles_and_as_json(tmp_path: Path, target: Path, path: str) -> None:
    diskcache = pytest.importorskip("diskcache")
    with diskcache.Cache(str(tmp_path / "cache")) as cache:
        for key, value in VALUES.items():
            cache[key] = value
    assert run(tmp_path / path, target, "--values", "pickle") == 0
    assert {key: pickle.loads(value) for key, value in content(target).items()} == {
        (key if isinstance(key, bytes) else str(key).encode()): value for key, value in VALUES.items()
    }
    assert run(tmp_path / path, target, "--values", "json", "--unpickle", "--family", "json") == 1  # bytes
    assert {key: json.loads(value) for key, value in content(target, "json").items()} == {
        (key if isinstance(key, bytes) else str(key).encode()): value
        for key, value in VALUES.items()
        if not isinstance(value, bytes)
    }


def test_fanout_cache_and_django_cache_are_imported(tmp_path: Path, target: Path) -> None:
    diskcache = pytest.importorskip("diskcache")
    with diskcache.FanoutCache(str(tmp_path / "cache"), shards=4) as cache:
        for number in range(200):
            cache.set(f":1:{number}", {"n": number}, expire=1000)
        cache.set(":1:count", 5)
    assert run(tmp_path / "cache", target, "--values", "pickle", "--family", "django_cache") == 0
    pytest.importorskip("django")
    from django.conf import settings

    if not settings.configured:
        settings.configure(SECRET_KEY="of a test")
    from kvstore.contrib.django.cache import KVStoreCache

    ours = KVStoreCache(str(target), {"OPTIONS": {"SERIALIZER": "pickle"}})
    assert ours.get("7") == {"n": 7}
    assert ours.incr("count") == 6
    assert len(ours.get_many(map(str, range(200)))) == 200
    ours._storage.close()


# sqlitedict


@pytest.mark.parametrize("journal_mode", ["DELETE", "WAL"])
def test_sqlitedict(tmp_path: Path, target: Path, journal_mode: str) -> None:
    sqlitedict = pytest.importorskip("sqlitedict")
    path = tmp_path / "dict.sqlite"
    with sqlitedict.SqliteDict(str(path), autocommit=True, journal_mode=journal_mode) as made:
        made["list"] = [1, None]
        made["text"] = "Ada"
    assert run(path, target) == 0
    assert {key: pickle.loads(value) for key, value in content(target).items()} == {b"list": [1, None], b"text": "Ada"}
    assert run(path, target, "--values", "json", "--unpickle", "--family", "json") == 0
    assert content(target, "json") == {b"list": b"[1, null]", b"text": b'"Ada"'}


def test_sqlitedict_tables_with_json_values(tmp_path: Path, target: Path) -> None:
    sqlitedict = pytest.importorskip("sqlitedict")
    path = tmp_path / "dict.sqlite"
    for table in ("one", "two"):
        with sqlitedict.SqliteDict(str(path), tablename=table, encode=json.dumps, decode=json.loads) as made:
            made["a"] = {"table": table}
            made.commit()
    assert run(path, target) == 3
    assert run(path, target, "--table", "two") == 0
    assert content(target) == {b"a": b'{"table": "two"}'}


# snkv


def test_snkv(tmp_path: Path, target: Path, capsys: Any) -> None:
    snkv = pytest.importorskip("snkv")
    if not hasattr(snkv, "KVStore"):
        pytest.skip("the package snkv is not installed: this is the folder of tests")
    path = tmp_path / "old.db"
    with snkv.KVStore(str(path)) as store:
        store["a"] = b"1"
        store["bytes\xff"] = b"\x00"
        store.put(b"session", b"tok", ttl=1000)
        with store.create_column_family("codes") as codes:
            codes.put(b"otp", b"123456", ttl=60)
            codes[b"plain"] = b"x"
    before, moment = path.read_bytes(), time.time()
    assert run(path, target) == 0
    assert path.read_bytes() == before
    assert content(target) == {b"a": b"1", "bytes\xff".encode(): b"\x00", b"session": b"tok"}
    assert content(target, "codes") == {b"otp": b"123456", b"plain": b"x"}
    with kvstore.open(target) as store:
        for family, key, ttl in ((store, "session", 1000), (store.family("codes"), "otp", 60)):
            found = family.expires_at(key)
            assert found is not None and moment + ttl - 10 < found <= moment + ttl + 0.1
        assert store.expires_at("a") is None
    assert "2\tof them with a TTL" in capsys.readouterr().out
    assert run(path, target, "--family", "other", "--skip-existing") == 2
