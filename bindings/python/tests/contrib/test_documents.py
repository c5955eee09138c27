"""docs/how-to/migrate.md and docs/how-to/frameworks.md: the commands print what is shown, and code for frameworks runs.

(What needs no framework is run by test_docs.py.)
"""

from __future__ import annotations

import doctest
import importlib
import inspect
import json
import re
import shelve
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import kvstore

DOCS = Path(__file__).resolve().parents[4] / "docs"
pytestmark = pytest.mark.filterwarnings("default")


def blocks(document: str, kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", (DOCS / document).read_text(), flags=re.DOTALL | re.MULTILINE)


def make_sources(folder: Path) -> None:
    """The sources that the commands of the document import."""
    diskcache, sqlitedict = pytest.importorskip("diskcache"), pytest.importorskip("sqlitedict")
    snkv = pytest.importorskip("snkv")
    with diskcache.Cache(str(folder / "cache"), cull_limit=0) as cache:
        cache.set("user:7", json.dumps({"name": "Ada"}))
        cache.set("session", "token", expire=3600)
        cache.set("old session", "token", expire=-1)
        cache["hits"] = 2
        cache["photo"] = b"\xff" * 100_000
    with shelve.open(str(folder / "shelf")) as shelf:
        shelf["list"], shelf["text"] = [1, 2], "Ada"
    with sqlitedict.SqliteDict(str(folder / "dict.sqlite"), autocommit=True) as made:
        made["list"], made["text"] = [1, 2], "Ada"
    with snkv.KVStore(str(folder / "old.db")) as store:
        store["a"], store["b"] = b"1", b"2"
        with store.create_column_family("codes") as codes:
            codes.put(b"otp", b"123456", ttl=60)


def test_documented_commands_print_shown_output(tmp_path: Path) -> None:
    make_sources(tmp_path)
    number = 0
    for block in blocks("how-to/migrate.md", "console"):
        for command, shown in re.findall(r"^\$ python (.*)\n((?:(?!\$ ).*\n)*)", block, flags=re.MULTILINE):
            done = subprocess.run(
                [sys.executable, *command.split()], cwd=tmp_path, capture_output=True, text=True, timeout=120
            )
            piped = re.sub(r"^ *(\d+)  ", r"\1\t", shown, flags=re.MULTILINE)  # shown is what a terminal shows
            assert (done.returncode, done.stdout, done.stderr) == (0, piped, ""), command
            number += 1
    assert number == 4
    with kvstore.open(tmp_path / "app.db") as store:
        assert store.family("cache").incr("hits") == 3
        assert store.family("dict")["list"] == b"[1, 2]"


def test_redis_data_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fakeredis = pytest.importorskip("fakeredis")
    import redis

    server = fakeredis.FakeRedis()
    server.set("a", b"1")
    server.set("b", b"2", ex=1000)
    server.hset("h", "field", "value")
    monkeypatch.setattr(redis, "Redis", lambda: server)
    monkeypatch.chdir(tmp_path)
    [program] = blocks("how-to/migrate.md", "python redis")
    exec(compile(program, "migrate.md", "exec"), {})
    with kvstore.open(tmp_path / "app.db") as store:
        assert dict(store.items()) == {b"a": b"1", b"b": b"2"}
        left = store.ttl("b")
        assert store.ttl("a") is None
        assert left is not None and 990 < left <= 1000


def test_documented_django_settings_are_accepted(tmp_path: Path) -> None:
    pytest.importorskip("django")
    [settings] = blocks("how-to/frameworks.md", "python django")
    program = (
        settings.replace("/var/tmp/site", str(tmp_path)).replace("/var/lib/site", str(tmp_path))
        + "from django.conf import settings\n"
        "settings.configure(CACHES=CACHES, SESSION_ENGINE=SESSION_ENGINE, SECRET_KEY='x',\n"
        "    SESSION_KVSTORE_PATH=SESSION_KVSTORE_PATH)\n"
        "import importlib\n"
        "from django.core.cache import cache\n"
        "cache.set('k', [1])\n"
        "session = importlib.import_module(settings.SESSION_ENGINE).SessionStore()\n"
        "session['user'] = 'ada'\n"
        "session.save()\n"
        "print(cache.get('k'), session.exists(session.session_key))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("[1] True\n", "")


def test_documented_methods_of_django_redis_return_what_is_shown(tmp_path: Path) -> None:
    pytest.importorskip("django")
    [program] = blocks("how-to/frameworks.md", "python django-redis")
    shown = re.sub(r"^( *)(.*?)  # (.*)$", r"\1assert \2 == \3, \2", program, flags=re.MULTILINE)
    assert shown.count("assert") == 3
    before = (
        "from django.conf import settings\n"
        "backend = 'kvstore.contrib.django.cache.KVStoreCache'\n"
        "settings.configure(CACHES={'default': {'BACKEND': backend, 'LOCATION': 'cache.db'}}, SECRET_KEY='x')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", before + shown], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_table_of_django_redis_methods_has_their_signatures() -> None:
    pytest.importorskip("django")
    from kvstore.contrib.django.cache import KVStoreCache

    text = (DOCS / "how-to" / "frameworks.md").read_text().split("### Methods of django-redis")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`.*?\)`.*?) \|", text, flags=re.MULTILINE)
    assert len(rows) == 10
    for row in rows:
        calls = re.findall(r"`(\w+)(\(.*?\))?`", row)
        for name, arguments in calls:
            documented = inspect.signature(getattr(KVStoreCache, name))
            names = [argument.split("=")[0] for argument in (arguments or calls[0][1])[1:-1].split(", ")]
            if names[0] == "…":
                assert set(names[1:]) < set(documented.parameters)
            else:
                assert ["self", *(given for given in names if given != "*")] == list(documented.parameters)


@pytest.mark.parametrize(
    "kind, framework, before, after",
    [
        (
            "flask", "flask_caching", "import flask\napp = flask.Flask('test')\n",
            "import flask_caching, flask_session\nflask_session.Session(app)\ncache = flask_caching.Cache(app)\n"
            "cache.set('k', 1)\nassert cache.get('k') == 1\n",
        ),
        ("requests_cache", "requests_cache", "", "assert session.cache.responses == {}\n"),
        ("dogpile", "dogpile.cache", "", "assert region.get_or_create('k', lambda: 1) == 1\n"),
        ("py_key_value", "key_value.aio", "", "import asyncio\nasyncio.run(main())\n"),
        ("aiocache", "aiocache", "", "import asyncio\nassert asyncio.run(user(7)) == {'id': 7}\n"),
        ("cashews", "cashews", "", "import asyncio\nassert asyncio.run(user(7)) == {'id': 7}\n"),
        ("langgraph", "langgraph.graph", "", "assert [m.content for m in state['messages']] == ['Hi', 'Hello']\n"),
    ],
)  # fmt: skip
def test_documented_framework_code_runs(
    kind: str, framework: str, before: str, after: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(framework)
    monkeypatch.chdir(tmp_path)
    [program] = blocks("how-to/frameworks.md", f"python {kind}")
    names: dict[str, Any] = {}
    exec(compile(before + program + after, "frameworks.md", "exec"), names)


def test_docstring_examples_are_correct(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cachelib")
    monkeypatch.chdir(tmp_path)
    result = doctest.testmod(importlib.import_module("kvstore.contrib.cachelib"))
    assert (result.failed, result.attempted > 2) == (0, True)


def test_documented_versions_equal_tested_versions() -> None:
    pins = (DOCS.parent / "bindings" / "python" / "contrib-tests" / "requirements.txt").read_text().lower()
    table = (DOCS / "how-to" / "frameworks.md").read_text()
    names = (
        r"Django|django-redis|cachelib|Flask-Caching|Flask-Session|requests-cache|dogpile\.cache|py-key-value-aio"
        r"|langgraph-checkpoint|langgraph|cashews|aiocache"
    )
    named = re.findall(rf"\| ({names}) ([\d.]+) \|", table)
    assert len(named) == 13
    for name, version in named:
        assert f"{name.lower()}=={version}." in pins
