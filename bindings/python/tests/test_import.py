"""``python -m kvstore import``: shelve and dbm files, and everything that does not depend on another package.

Sources written by diskcache, sqlitedict and snkv: contrib/test_import_packages.py.
"""

from __future__ import annotations

import dbm.dumb
import importlib
import json
import os
import pickle
import shelve
import sqlite3
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
from helpers import content, run_import as run, run_python

import kvstore
from kvstore.__main__ import find_program, main
from kvstore._import_sources import SourceError, find


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    path = tmp_path / "shelf"
    with shelve.Shelf(dbm.dumb.open(str(path), "n")) as made:  # type: ignore[arg-type, unused-ignore]
        made["text"] = "Ada"
        made["number"] = 5
        made["list"] = [1, {"a": None}]
        made["ä"] = b"\xff"
    return path


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "target.db"


def fake_diskcache(folder: Path, rows: list[tuple[Any, ...]]) -> Path:
    """A cache.db as diskcache makes it: for what the package itself does not write."""
    folder.mkdir()
    connection = sqlite3.connect(folder / "cache.db")
    connection.execute(
        "CREATE TABLE Cache (rowid INTEGER PRIMARY KEY, key BLOB, raw INTEGER, store_time REAL, expire_time REAL,"
        " access_time REAL, access_count INTEGER DEFAULT 0, tag BLOB, size INTEGER DEFAULT 0, mode INTEGER DEFAULT 0,"
        " filename TEXT, value BLOB)"
    )
    connection.executemany(
        "INSERT INTO Cache(key, raw, expire_time, mode, filename, value) VALUES (?, ?, ?, ?, ?, ?)", rows
    )
    connection.commit()
    connection.close()
    return folder


def test_shelf_is_recognised_and_pickles_are_kept(shelf: Path, target: Path, capsys: Any) -> None:
    assert run(shelf, target) == 0
    found = content(target)
    assert {key.decode(): pickle.loads(value) for key, value in found.items()} == {
        "text": "Ada",
        "number": 5,
        "list": [1, {"a": None}],
        "ä": b"\xff",
    }
    assert capsys.readouterr().out == '4\timported from shelve into family "default"\n0\tof them with a TTL\n'


@pytest.mark.skipif(os.name == "nt", reason="no pseudo-terminals there")
def test_on_a_terminal_the_report_is_in_columns(target: Path, tmp_path: Path) -> None:
    cache = fake_diskcache(tmp_path / "cache", [(f"k{n}", 1, None, 1, None, "v") for n in range(1234)])
    screen, terminal = os.openpty()
    command = [sys.executable, "-m", "kvstore", "import", str(target), str(cache), "--family", "ä\n"]
    assert subprocess.run(command, stdout=terminal, timeout=60).returncode == 0
    assert os.read(screen, 1000).decode().replace("\r", "") == (
        '       1 234  imported from diskcache into family "ä\\n"\n           0  of them with a TTL\n'
    )
    os.close(terminal)
    os.close(screen)


@pytest.mark.skipif(os.name == "nt", reason="a pipe that nobody reads is another error there")
def test_exit_status_does_not_depend_on_closed_output_pipe(shelf: Path, target: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    for options, answer in (["--overwrite"], 0), (["--overwrite", "--values", "json"], 1):
        command = [sys.executable, "-m", "kvstore", "import", *options, str(target), str(shelf)]
        done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (answer, "")
    os.close(write)


@pytest.mark.parametrize("ending", [".dat", ".dir"])
def test_shelf_is_found_by_its_file_name(shelf: Path, target: Path, ending: str) -> None:
    assert run(shelf.with_name(shelf.name + ending), target) == 0
    assert len(content(target)) == 4


@pytest.mark.parametrize("name", ["dumb", "gnu", "ndbm", "sqlite3"])
def test_shelves_of_every_available_dbm_are_imported(tmp_path: Path, target: Path, name: str) -> None:
    try:
        module = importlib.import_module(f"dbm.{name}")
    except ImportError:
        return  # and so it has no files of it either
    with shelve.Shelf(module.open(str(tmp_path / "shelf"), "n")) as made:
        made["a"] = [1]
    assert run(tmp_path / "shelf", target) == 0
    assert pickle.loads(content(target)[b"a"]) == [1]


def test_shelf_of_newer_python_is_readable(tmp_path: Path, target: Path) -> None:
    connection = sqlite3.connect(tmp_path / "shelf")
    connection.execute("CREATE TABLE Dict (key BLOB UNIQUE NOT NULL, value BLOB NOT NULL)")
    connection.execute("INSERT INTO Dict VALUES (?, ?)", (b"a", pickle.dumps([1])))
    connection.commit()
    connection.close()
    assert run(tmp_path / "shelf", target) == 0
    assert pickle.loads(content(target)[b"a"]) == [1]


def test_unpickle_option_can_store_json(shelf: Path, target: Path, capsys: Any) -> None:
    assert run(shelf, target, "--values", "json", "--unpickle") == 1
    assert content(target) == {b"text": b'"Ada"', b"number": b"5", b"list": b'[1, {"a": null}]'}
    assert "skipped: the value is of type bytes, which cannot be written as JSON" in capsys.readouterr().out


def test_unpickle_option_can_store_data_types(shelf: Path, target: Path, capsys: Any) -> None:
    assert run(shelf, target, "--values", "data", "--unpickle") == 0
    with kvstore.open(target, codec=kvstore.DATA, keys=str) as db:
        assert dict(db) == {"text": "Ada", "number": 5, "list": [1, {"a": None}], "ä": b"\xff"}
    assert run(shelf, target, "--values", "data", "--overwrite") == 1
    assert "the value is a pickle: use --unpickle to read it" in capsys.readouterr().out


def test_unpickle_option_stores_plain_values(shelf: Path, target: Path) -> None:
    assert run(shelf, target, "--unpickle") == 0
    found = content(target)
    assert (found[b"text"], found[b"number"], found["ä".encode()]) == (b"Ada", b"5", b"\xff")
    assert pickle.loads(found[b"list"]) == [1, {"a": None}]


def test_nothing_is_unpickled_without_option(tmp_path: Path, target: Path, capsys: Any) -> None:
    bomb = b"\x80\x04cos\nsystem\n(S'touch " + os.fsencode(tmp_path / "exploded") + b"'\ntR."
    with dbm.dumb.open(str(tmp_path / "shelf"), "n") as made:
        made["a"] = bomb
    assert run(tmp_path / "shelf", target) == 0
    assert run(tmp_path / "shelf", target, "--values", "pickle", "--overwrite") == 0
    assert content(target) == {b"a": bomb}
    assert run(tmp_path / "shelf", target, "--values", "json", "--overwrite") == 1
    assert "the value is a pickle: use --unpickle to read it" in capsys.readouterr().out
    assert not (tmp_path / "exploded").exists()


def test_unreadable_pickle_is_skipped_with_reason(tmp_path: Path, target: Path, capsys: Any) -> None:
    with dbm.dumb.open(str(tmp_path / "shelf"), "n") as made:
        made["a"] = b"\x80\x04cno.such.module\nThing\n."
        made["b"] = pickle.dumps("fine")
    assert run(tmp_path / "shelf", target, "--unpickle") == 1
    assert content(target) == {b"b": b"fine"}
    assert "the pickle cannot be loaded: ModuleNotFoundError" in capsys.readouterr().out


def test_dbm_import_keeps_bytes_unchanged(shelf: Path, target: Path) -> None:
    assert run(shelf, target, "--from", "dbm", "--values", "pickle") == 0
    assert pickle.loads(pickle.loads(content(target)[b"text"])) == "Ada"


def test_non_empty_family_is_refused_without_option(shelf: Path, target: Path, capsys: Any) -> None:
    with kvstore.open(target) as store:
        store["text"] = b"mine"
    assert run(shelf, target) == 3
    assert "family \"default\" has keys already: use --skip-existing" in capsys.readouterr().err
    assert content(target) == {b"text": b"mine"}
    assert run(shelf, target, "--family", "other") == 0
    assert len(content(target, "other")) == 4
    assert run(shelf, target, "--skip-existing") == 0
    assert "1\tskipped: already in the target" in capsys.readouterr().out
    assert content(target)[b"text"] == b"mine"
    assert run(shelf, target, "--overwrite") == 0
    assert pickle.loads(content(target)[b"text"]) == "Ada"
    assert run(shelf, target, "--overwrite", "--skip-existing") == 2


def patched_python(folder: Path, patch: str) -> Path:
    """Return an interpreter that runs the import with ``patched``, a function of the patch, as ``_import._ready``."""
    program = folder / "patched.py"
    program.write_text(
        f"from kvstore import _import\nready = _import._ready\n{textwrap.dedent(patch)}\n_import._ready = patched\n_import.main()\n"
    )
    script = folder / "python"
    script.write_text(f'#!/bin/sh\n[ "$1" = -c ] && exit 0\nshift 2\nexec "{sys.executable}" "{program}" "$@"\n')
    script.chmod(0o755)
    return script


@pytest.mark.skipif(os.name == "nt", reason="needs a script of sh")
def test_interrupted_import_can_be_continued(tmp_path: Path, target: Path, capsys: Any) -> None:
    source = tmp_path / "shelf"
    with dbm.dumb.open(str(source), "n") as made:
        for number in range(2500):
            made[str(number)] = b"x"
    python = patched_python(
        tmp_path,
        f"""
            import os, signal, time, kvstore
            count = 0
            def entries():
                try:
                    with kvstore.open({str(target)!r}, read_only=True) as store:
                        return len(store)
                except kvstore.Error:
                    return 0
            def patched(*arguments):
                global count
                count += 1
                if count == 1500:
                    while entries() < 1000:
                        time.sleep(0.01)
                    os.kill(os.getppid(), signal.SIGINT)
                return ready(*arguments)
        """,
    )
    assert run(source, target, python=python) == 3
    assert "stopped\n  1 000 entries were imported: use --skip-existing to continue" in capsys.readouterr().err
    assert len(content(target)) == 1000  # whole transactions
    assert run(source, target, "--skip-existing") == 0
    assert len(content(target)) == 2500


def test_dry_run_creates_no_store(shelf: Path, target: Path, capsys: Any) -> None:
    assert run(shelf, target, "--dry-run", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "kind": "shelve",
        "imported": {"default": 4},
        "with_ttl": 0,
        "skipped": {},
        "complete": True,
    }
    assert run(shelf, target, "--dry-run") == 0
    assert capsys.readouterr().out.splitlines()[0] == '4\twould be imported from shelve into family "default"'
    assert not target.exists()


def test_expiry_times_are_kept_and_expired_rows_skipped(tmp_path: Path, target: Path, capsys: Any) -> None:
    moment = time.time() + 1000.5
    cache = fake_diskcache(
        tmp_path / "cache",
        [("a", 1, moment, 1, None, "1"), ("b", 1, None, 1, None, "2"), ("c", 1, 1.0, 1, None, "3")],
    )
    with kvstore.open(target) as store:
        store.family("default").default_ttl = 5
    assert run(cache, target) == 0
    with kvstore.open(target) as store:
        assert dict(store.items()) == {b"a": b"1", b"b": b"2"}
        found = store.expires_at("a")
        assert found is not None and abs(found - moment) < 0.002
        assert store.expires_at("b") is None
    out = capsys.readouterr().out
    assert "1\tof them with a TTL" in out
    assert "1\tskipped: expired in the source" in out


def test_equal_bytes_and_text_keys_are_reported(tmp_path: Path, target: Path, capsys: Any) -> None:
    rows = [("abc", 1), (b"abc", 1), (b"other", 1)]
    cache = fake_diskcache(tmp_path / "cache", [(key, raw, None, 1, None, str(n)) for n, (key, raw) in enumerate(rows)])
    assert run(cache, target) == 1
    assert list(content(target)) == [b"abc", b"other"]
    assert "1\tskipped: the key equals that of another entry once it is converted to bytes" in capsys.readouterr().out


def test_keys_of_all_types_are_imported(tmp_path: Path, target: Path, capsys: Any) -> None:
    rows = [
        ("text", 1), (b"\x00bytes", 1), (7, 1), (1.5, 1), ("7", 1), (pickle.dumps(("user", 7)), 0),
        (pickle.dumps(2**70), 0), (pickle.dumps(object), 0), ("", 1), ("x" * 65_537, 1),
    ]  # fmt: skip
    cache = fake_diskcache(tmp_path / "cache", [(key, raw, None, 1, None, "v") for key, raw in rows])
    assert run(cache, target) == 1
    assert list(content(target)) == [b"\x00bytes", b"1.5", b"7", b"text"]
    out = capsys.readouterr().out
    assert "3\tskipped: the key is a pickle: use --unpickle to read it" in out
    assert "1\tskipped: the key equals that of another entry once it is converted to bytes" in out
    assert "2\tskipped: a key is empty or longer than 65536 bytes" in out
    assert run(cache, target, "--unpickle", "--skip-existing") == 1
    assert b'["user", 7]' in content(target)
    assert b"%d" % 2**70 in content(target)
    assert "the key is of type type, which cannot be written as JSON" in capsys.readouterr().out


def test_invalid_cache_rows_are_skipped_without_reading_outside(tmp_path: Path, target: Path, capsys: Any) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "cache-2").mkdir()
    (tmp_path / "cache-2" / "x").write_text("secret")
    cache = fake_diskcache(
        tmp_path / "cache",
        [
            ("a", 1, None, 2, "../secret", None),
            ("b", 1, None, 2, str(tmp_path / "secret"), None),
            ("c", 1, None, 2, "../cache-2/x", None),
            ("d", 1, None, 2, "gone.val", None),
            ("e", 1, None, 9, None, b"?"),
            ("f", 1, None, 1, None, None),
            (None, 1, None, 1, None, "no key"),
            (None, 0, None, 1, None, "no key"),
            ("g", 1, None, 4, None, 5),
            ("h", 1, None, 2, 7, None),
            ("i", 1, "soon", 1, None, "1"),
            ("j", 1, 1e300, 1, None, "1"),
        ],
    )
    assert run(cache, target) == 1
    assert not target.exists()  # no entry can be imported
    out = capsys.readouterr().out
    assert "3\tskipped: the file of the value is outside the cache directory" in out
    assert "2\tskipped: the file of the value cannot be read: No such file or directory" in out
    assert "2\tskipped: the value has a storage mode that diskcache does not define" in out
    assert "2\tskipped: the key or value is NULL" in out
    assert "2\tskipped: the expiry time is not a valid time" in out
    for values in ("pickle", "json"):
        assert run(cache, target, "--values", values, "--unpickle") == 1
        assert not target.exists()
        assert "2\tskipped: the key or value is NULL" in capsys.readouterr().out


def test_infinite_expiry_of_diskcache_becomes_no_ttl(tmp_path: Path, target: Path) -> None:
    cache = fake_diskcache(tmp_path / "cache", [("a", 1, float("inf"), 1, None, "1")])
    assert run(cache, target) == 0
    with kvstore.open(target) as store:
        assert store.ttl("a") is None


def test_damaged_dbm_file_fails(tmp_path: Path, target: Path, capsys: Any) -> None:
    (tmp_path / "shelf.dat").write_bytes(b"")
    (tmp_path / "shelf.dir").write_bytes(b"'a', (0, 5)\n'b', (here\n")
    assert run(tmp_path / "shelf", target) == 3
    assert "cannot read " in capsys.readouterr().err


def test_value_above_default_maximum_is_imported(tmp_path: Path, target: Path) -> None:
    long = b"x" * (11 << 20)
    cache = fake_diskcache(tmp_path / "cache", [("a", 1, None, 1, None, long), ("b", 1, None, 1, None, "1")])
    assert run(cache, target) == 0
    assert content(target) == {b"a": long, b"b": b"1"}


def test_text_that_is_not_utf_8_is_kept_unchanged(tmp_path: Path, target: Path) -> None:
    cache = fake_diskcache(tmp_path / "cache", [("a", 1, None, 1, None, "1")])
    connection = sqlite3.connect(cache / "cache.db")
    connection.execute("UPDATE Cache SET value = CAST(x'ff61' AS TEXT)")
    connection.commit()
    connection.close()
    assert run(cache, target) == 0
    assert content(target) == {b"a": b"\xffa"}


def test_source_is_not_changed(tmp_path: Path, target: Path) -> None:
    cache = fake_diskcache(tmp_path / "cache", [("a", 1, None, 1, None, "1")])
    connection = sqlite3.connect(cache / "cache.db")
    connection.execute("PRAGMA journal_mode = wal")
    connection.close()
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in cache.iterdir()}
    cache.chmod(0o500)
    try:
        assert run(cache, target) == 0
    finally:
        cache.chmod(0o700)
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in cache.iterdir()} == before


@pytest.mark.skipif(os.name == "nt", reason="needs a script of sh")
def test_rows_in_wal_of_running_writer_are_imported(tmp_path: Path, target: Path) -> None:
    cache = fake_diskcache(tmp_path / "cache", [("a", 1, None, 1, None, "1")])
    connection = sqlite3.connect(cache / "cache.db")
    connection.execute("PRAGMA journal_mode = wal")
    connection.execute("INSERT INTO Cache(key, raw, mode, value) VALUES ('b', 1, 1, '2')")
    connection.commit()  # in the write-ahead log
    python = patched_python(
        tmp_path,
        f"""
            import sqlite3
            connection = sqlite3.connect({str(cache / "cache.db")!r})
            def patched(*arguments):
                connection.execute("INSERT INTO Cache(key, raw, mode, value) VALUES ('c', 1, 1, '3')")
                connection.commit()
                connection.execute("PRAGMA wal_checkpoint")
                return ready(*arguments)
        """,
    )
    assert run(cache, target, python=python) == 0
    assert connection.execute("SELECT count(*) FROM Cache WHERE key = 'c'").fetchone()[0] > 0
    connection.close()
    assert content(target) == {b"a": b"1", b"b": b"2"}


@pytest.mark.skipif(os.name == "nt", reason="needs a script of sh")
def test_source_changing_during_import_fails(tmp_path: Path, target: Path, capsys: Any) -> None:
    cache = fake_diskcache(tmp_path / "cache", [("a", 1, None, 1, None, "1")])
    python = patched_python(
        tmp_path,
        f"""
            def patched(*arguments):
                with open({str(cache / "cache.db")!r}, "ab") as file:
                    file.write(b"\\0")
                return ready(*arguments)
        """,
    )
    assert run(cache, target, python=python) == 3
    assert "changed while it was read" in capsys.readouterr().err


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda path: None, "does not exist: check the path"),
        (lambda path: path.mkdir(), "a directory without a cache.db"),
        (lambda path: path.write_bytes(b""), "cannot recognise"),
        (lambda path: path.write_bytes(b"hello, world. this is text\n"), "cannot recognise"),
        (lambda path: kvstore.open(path).close(), "is already a kvstore store"),
    ],
)
def test_invalid_source_is_reported(tmp_path: Path, make: Any, message: str) -> None:
    path = tmp_path / "source"
    make(path)
    with pytest.raises(SourceError, match=message):
        find(path)


def test_table_option_is_required_for_several_tables(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "dict.sqlite")
    for table in ("one", "two"):
        connection.execute(f'CREATE TABLE "{table}" (key TEXT PRIMARY KEY, value BLOB)')
    connection.execute("CREATE TABLE three (a, b)")
    connection.commit()
    connection.close()
    with pytest.raises(SourceError, match="several tables: choose one with --table: one, two"):
        find(tmp_path / "dict.sqlite")
    assert find(tmp_path / "dict.sqlite", table="one").kind == "sqlitedict"
    for table in ("three", "four"):
        with pytest.raises(SourceError, match=f"has no table '{table}' with columns key and value: choose from one, two"):
            find(tmp_path / "dict.sqlite", table=table)


@pytest.mark.parametrize("kind", ["diskcache", "sqlitedict", "shelve", "dbm", "snkv"])
def test_wrong_kind_fails_without_creating_target(tmp_path: Path, target: Path, kind: str, capsys: Any) -> None:
    (tmp_path / "source").write_bytes(b"hello, world. this is text\n")
    assert run(tmp_path / "source", target, "--from", kind) == 3
    assert capsys.readouterr().err.startswith("kvstore: ")


def test_target_must_differ_from_source(shelf: Path, capsys: Any) -> None:
    assert run(shelf, shelf.with_name("shelf.dat")) == 3
    assert "the target is the source" in capsys.readouterr().err


def test_target_that_is_not_a_store_fails(shelf: Path, target: Path, capsys: Any) -> None:
    target.write_text("not a database, but a text that is long enough to be looked at " * 20)
    assert run(shelf, target) == 3
    assert capsys.readouterr().err.startswith("kvstore: ")


@pytest.mark.skipif(find_program() is None, reason="installed without the program kvstore")
def test_program_prints_help_and_version(tmp_path: Path) -> None:
    program = "import runpy, sys; sys.argv[0] = 'kvstore'; runpy.run_module('kvstore', run_name='__main__')"
    result = run_python(program, "import", "--help")
    assert result.returncode == 0
    assert "A pickle can run any code: use this only for trusted sources" in " ".join(result.stdout.split())
    version = run_python(program, "--version")
    assert version.returncode == 0 and version.stdout.startswith(f"kvstore {kvstore.__version__}"), version
    assert run_python(program).returncode == 2


def test_mixed_pickles_of_diskcache_give_one_hint(tmp_path: Path, target: Path, capsys: Any) -> None:
    rows = [("text", 1, None, 1, None, "Ada"), *((f"p{n}", 1, None, 4, None, pickle.dumps([n])) for n in range(2))]
    cache = fake_diskcache(tmp_path / "cache", rows)
    hint = "kvstore: some values were imported as pickles and others not: use --values pickle to pickle all of them"
    for options, times in (("--dry-run",), 1), ((), 1), (("--overwrite", "--values", "pickle"), 0):
        assert run(cache, target, *options) == 0
        assert capsys.readouterr().err.count(hint) == times
    with kvstore.open(target, codec=kvstore.PICKLE, keys=str) as store:
        assert dict(store) == {"text": "Ada", "p0": [0], "p1": [1]}


@pytest.mark.skipif(find_program() is None, reason="installed without the program kvstore")
def test_kvstore_command_imports_through_this_package(shelf: Path, target: Path) -> None:
    command = [find_program(), "import", target, shelf, "--from", "shelve", "--values", "json", "--unpickle", "--json"]
    environment = {**os.environ, "KVSTORE_PYTHON": sys.executable}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)  # type: ignore[arg-type, unused-ignore]
    assert (done.returncode, done.stderr) == (1, ""), done
    report = json.loads(done.stdout)
    assert (report["kind"], report["imported"], report["complete"]) == ("shelve", {"default": 3}, False)
    assert content(target) == {b"text": b'"Ada"', b"number": b"5", b"list": b'[1, {"a": null}]'}


def test_module_imports_csv_like_program(tmp_path: Path, target: Path) -> None:
    (tmp_path / "users.csv").write_text("key,value\na,1\n")
    command = [sys.executable, "-m", "kvstore", "import", str(target), str(tmp_path / "users.csv")]
    if find_program() is None:
        pytest.skip("installed without the program kvstore")
    assert subprocess.run(command, stdout=subprocess.DEVNULL, timeout=60).returncode == 0
    assert content(target) == {b"a": b"1"}


def test_module_without_program_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr("kvstore.__main__.find_program", lambda: None)
    assert main(["import", "a.db", "shelf"]) == 2
    assert "this installation of the Python package has no program kvstore" in capsys.readouterr().err


def test_ttl_option_and_encrypted_target_apply(tmp_path: Path, target: Path) -> None:
    moment = time.time() + 5000
    cache = fake_diskcache(tmp_path / "cache", [("a", 1, moment, 1, None, "1"), ("b", 1, None, 1, None, "2")])
    assert run(cache, target, "--ttl", "100s") == 0
    with kvstore.open(target) as store:
        assert abs((store.expires_at("a") or 0) - moment) < 0.002
        assert 0 < (store.ttl("b") or 0) <= 100
    if kvstore.encryption_available:
        (tmp_path / "password").write_text("secret")
        encrypted = tmp_path / "encrypted.db"
        assert run(cache, encrypted, "--password-file", tmp_path / "password") == 0
        with kvstore.open(encrypted, password="secret") as store:
            assert store.is_encrypted and dict(store) == {b"a": b"1", b"b": b"2"}
