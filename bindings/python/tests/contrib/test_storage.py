"""The common part of all backends: one store for a path in a process, reopened after a fork; culling; values.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import kvstore
from kvstore.contrib._culling import cull
from kvstore.contrib._file_lock import file_lock
from kvstore.contrib._storage import Storage
from kvstore.contrib._values import Values, change


@pytest.fixture
def here(tmp_path: Path) -> Storage:
    return Storage(tmp_path / "place.db", "things", {"sync": "off"})


def test_places_with_equal_path_and_settings_share_store(tmp_path: Path, here: Storage) -> None:
    same = Storage(str(tmp_path / "." / "place.db"), "things", {"sync": "off"})
    other = Storage(tmp_path / "place.db", "others", {"sync": "off"})
    assert same.store() is other.store() is here.store()
    assert Storage(tmp_path / "place.db", "things", {}).store() is not here.store()


def test_store_closes_with_its_last_place(tmp_path: Path) -> None:
    one, two = Storage(tmp_path / "x.db", "one", {}), Storage(tmp_path / "x.db", "two", {})
    one.family()["a"] = two.family()["a"] = b"1"
    del one
    gc.collect()
    with pytest.raises(kvstore.BusyError):
        kvstore.open(tmp_path / "x.db", exclusive=True, busy_timeout=0)
    del two
    gc.collect()
    kvstore.open(tmp_path / "x.db", exclusive=True, busy_timeout=0).close()


def test_relative_path_is_resolved_at_creation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = Storage("relative.db", "things", {})
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    made.family()["a"] = b"1"
    assert (tmp_path / "relative.db").exists()
    made.close()


def test_folder_that_cannot_be_created_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()  # also for root, who may write everywhere
    path = tmp_path / "file" / "folder" / "x.db"
    made, lenient = Storage(path, "things", {}), Storage(path, "things", {"ignore_errors": True})
    with pytest.raises(kvstore.StoreIOError, match="file: the directory of the store cannot be created"):
        made.read(lambda family: family.get("a"), None)
    assert made.keep(lambda family: family.put("a", b"1"), ["a"], False) is False
    assert lenient.read(lambda family: family.get("a", b"x"), b"missing") == b"missing"
    assert (made.ignored_errors, lenient.ignored_errors) == (1, 1)
    (tmp_path / "file").unlink()
    assert made.keep(lambda family: family.put("a", b"1"), ["a"], False) is True
    made.close()


def test_missing_folder_is_created(tmp_path: Path) -> None:
    deep = Storage(tmp_path / "a" / "b" / "c.db", "things", {})
    deep.family()["a"] = b"1"
    assert (tmp_path / "a" / "b" / "c.db").exists()
    deep.close()


def test_store_is_opened_at_first_use(tmp_path: Path, here: Storage) -> None:
    assert not (tmp_path / "place.db").exists()
    here.family()
    assert (tmp_path / "place.db").exists()


def test_closing_one_place_keeps_store_of_others_open(tmp_path: Path, here: Storage) -> None:
    other = Storage(tmp_path / "place.db", "others", {"sync": "off"})
    store = other.store()
    assert here.store() is store
    here.close()
    here.close()
    assert not store.closed
    other.close()
    assert store.closed
    here.family()["a"] = b"1"  # opened again
    assert here.family()["a"] == b"1"
    here.close()
    here.close()


@pytest.mark.parametrize(
    "options, error",
    [
        ({"colour": "red"}, "unknown settings: colour"),
        ({"codec": None}, "unknown settings: codec"),
        ({"policy": "oldest"}, "give max_bytes="),
    ],
)
def test_unknown_settings_are_refused_before_opening(tmp_path: Path, options: dict[str, object], error: str) -> None:
    with pytest.raises(TypeError, match=error):
        Storage(tmp_path / "x.db", "things", options)
    with pytest.raises(ValueError, match="path"):
        Storage("", "things", {})


def test_max_bytes_bounds_file(tmp_path: Path) -> None:
    bounded = Storage(tmp_path / "bounded.db", "things", {"max_bytes": 1 << 20})
    for number in range(4000):
        bounded.family().put(str(number), os.urandom(1000))
    bounded.close()
    assert (tmp_path / "bounded.db").stat().st_size < 2 << 20


def test_max_bytes_is_stored_in_file_and_set_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bounded = Storage(tmp_path / "bounded.db", "things", {"max_bytes": 1 << 20})
    assert tuple(bounded.store().get_limit()) == (1 << 20, "oldest")
    bounded.close()
    monkeypatch.setattr(kvstore.Store, "limit", None)  # not called: a second process would write for nothing
    assert bounded.family() == bounded.family()
    bounded.close()
    with kvstore.open(tmp_path / "bounded.db") as store:
        assert tuple(store.get_limit()) == (1 << 20, "oldest")


def test_invalid_max_bytes_leaves_no_open_store(tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        Storage(tmp_path / "bounded.db", "things", {"max_bytes": 10}).family()
    with pytest.raises(ValueError, match="policy"):
        Storage(tmp_path / "bounded.db", "things", {"max_bytes": 1 << 20, "policy": "random"}).family()
    kvstore.open(tmp_path / "bounded.db", exclusive=True).close()


def test_forked_child_reopens_file(here: Storage) -> None:
    here.family()["parent"] = b"1"
    child = os.fork()
    if child == 0:
        try:
            family = here.family()
            family["child"] = family["parent"]
            os._exit(0)
        except BaseException:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert here.family()["child"] == b"1"
    here.close()


def test_child_forked_during_open_does_not_deadlock(tmp_path: Path, here: Storage) -> None:
    from kvstore.contrib import _storage

    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with _storage._lock:
            held.set()
            done.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(60)
    child = os.fork()
    if child == 0:
        try:
            here.family()["child"] = b"1"
            os._exit(0)
        except BaseException:
            os._exit(1)
    done.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0
    assert here.family()["child"] == b"1"
    here.close()


# Values


@pytest.mark.parametrize("value", [0, -5, 1 << 62, 1 << 70, True, None, 1.5, "5", "", b"5", b"", [1], {"a": (1, 2)}])
def test_values_round_trip_with_type(value: object) -> None:
    values = Values()
    data = values.dumps(value)
    assert isinstance(data, bytes)
    back = values.loads(data)
    assert back == value
    assert type(back) is type(value)


def test_integers_are_stored_as_text() -> None:
    assert Values().dumps(-42) == b"-42"


def test_serializer_is_used_for_all_values() -> None:
    import json

    values = Values(json)
    assert values.dumps([1]) == "[1]"
    assert values.loads(b'"5"') == "5"
    with pytest.raises(TypeError, match="dumps and loads"):
        Values(object())


def test_change_keeps_remaining_ttl(here: Storage) -> None:
    here.family().put("n", b"1", ttl=1000)
    assert change(here, "n", Values(), lambda n: n + 1) == 2
    left = here.family().ttl("n")
    assert left is not None and 990 < left <= 1000
    with pytest.raises(KeyError):
        change(here, "missing", Values(), lambda n: n + 1)
    here.close()


def test_concurrent_changes_lose_no_update(here: Storage) -> None:
    here.family()["n"] = b"0"

    def count() -> None:
        for _ in range(100):
            change(here, "n", Values(), lambda n: n + 1)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert here.family()["n"] == b"400"
    here.close()


def test_failed_change_has_no_effect_and_ends_transaction(here: Storage) -> None:
    here.family()["text"] = Values().dumps("x")
    with pytest.raises(TypeError):
        change(here, "text", Values(), lambda value: value + 1)
    assert Values().loads(here.family()["text"]) == "x"
    with here.store().transaction():
        pass
    here.close()


# Culling


def test_signed_object_of_removed_class_counts_as_missing(here: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("removed_later")
    module.Old = type("Old", (), {"__module__": "removed_later"})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "removed_later", module)
    values = Values(None, "secret")
    data = values.dumps(module.Old())
    del module.Old
    assert values.loads(data, "missing") == "missing"
    here.family()["n"] = data
    with pytest.raises(KeyError):
        change(here, "n", values, lambda value: value)
    assert "n" not in here.family()


def test_one_process_never_exceeds_max_entries(here: Storage) -> None:
    for number in range(200):
        cull(here, here.family(), 30, 3)
        here.family().put(f"{number:03}", b"", ttl=1000 + number)
        assert len(here.family()) <= 30
    here.close()


def test_culling_removes_soonest_expiry_first(here: Storage) -> None:
    family = here.family()
    for number in range(5):
        family.put(f"late {number}", b"", ttl=2000 + number)
        family.put(f"soon {number}", b"", ttl=1000 + number)
        family.put(f"never {number}", b"")
    cull(here, here.family(), 15, 2)  # 7 of 15
    assert sorted(key.decode() for key in family) == ["late 2", "late 3", "late 4", *(f"never {n}" for n in range(5))]
    cull(here, here.family(), 8, 1)
    assert len(family) == 0
    here.close()


def test_keys_without_ttl_are_culled_if_no_others_exist(here: Storage) -> None:
    here.family().update({f"{n:02}": b"" for n in range(10)})
    cull(here, here.family(), 10, 5)
    assert list(here.family()) == [f"{n:02}".encode() for n in range(2, 10)]
    here.close()


def test_cull_frequency_zero_empties_family(here: Storage) -> None:
    here.family().update({f"{n:02}": b"" for n in range(10)})
    cull(here, here.family(), 10, 0)
    assert not here.family()
    here.close()


def test_keys_of_other_processes_count_when_limit_is_reached(here: Storage, tmp_path: Path) -> None:
    with kvstore.open(tmp_path / "place.db") as other:
        theirs = other.family("things", create=True)
        for number in range(300):
            cull(here, here.family(), 100, 3)
            here.family().put(f"mine {number}", b"", ttl=1000)
            theirs.put(f"theirs {number}", b"", ttl=2000)
        assert len(theirs) <= 150
    here.close()


@pytest.mark.skipif(os.name == "nt", reason="files have no mode there")
@pytest.mark.parametrize("umask", [0o022, 0o000, 0o277])
@pytest.mark.parametrize("options", [{}, {"journal_mode": "delete"}, {"max_bytes": 10_000_000}])
def test_new_files_and_directories_are_private(tmp_path: Path, umask: int, options: dict[str, Any]) -> None:
    before = os.umask(umask)
    try:
        made = Storage(tmp_path / "a" / "b" / "c.db", "things", options)
        made.family()["a"] = b"1"
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o7777 for path in (tmp_path / "a").rglob("*")}
    assert modes.pop("b") == 0o700 and (tmp_path / "a").stat().st_mode & 0o7777 == 0o700
    assert len(modes) == (1 if "journal_mode" in options else 3)
    assert set(modes.values()) == {0o600}, modes
    made.close()


@pytest.mark.skipif(os.name == "nt", reason="files have no mode there")
def test_existing_file_and_directory_keep_their_modes(tmp_path: Path) -> None:
    directory = tmp_path / "a"
    directory.mkdir()
    directory.chmod(0o750)
    file = directory / "c.db"
    with kvstore.open(file) as store:
        store["old"] = b"1"
    file.chmod(0o640)
    made = Storage(file, "things", {})
    made.family()["a"] = b"1"
    assert directory.stat().st_mode & 0o7777 == 0o750
    assert {path.stat().st_mode & 0o7777 for path in directory.iterdir()} == {0o640}
    assert made.store()["old"] == b"1"
    made.close()


@pytest.mark.skipif(not kvstore.encryption_available, reason="this build has no encryption")
def test_private_file_can_be_encrypted(tmp_path: Path) -> None:
    made = Storage(tmp_path / "c.db", "things", {"password": "p"})
    made.family()["a"] = b"1"
    assert made.store().is_encrypted
    made.close()


def put(storage: Storage, value: bytes) -> bool:
    return storage.keep(lambda family: family.put("a", value), ["a"], False)


def get(storage: Storage) -> Any:
    return storage.read(lambda family: family.get("a"), None)


def test_removed_folder_is_created_again(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    one, two = Storage(folder / "x.db", "one", {}), Storage(folder / "x.db", "two", {})
    for round in range(3):
        assert put(one, b"1") and put(two, b"2")
        shutil.rmtree(folder)
        time.sleep(0.05)  # a handle looks for its file every 10 ms
        readers = [one, two] if round % 2 else [two, one]
        assert [get(storage) for storage in readers] == [None, None]
        assert put(one, b"3") and (get(one), get(two)) == (b"3", None)
        assert (folder / "x.db").exists() and one.store() is two.store()
    assert one.ignored_errors == two.ignored_errors == 0


@pytest.mark.skipif(os.name == "nt", reason="the directory of an open file cannot be renamed there")
@pytest.mark.parametrize("replaced", [False, True])
def test_renamed_folder_is_created_again(tmp_path: Path, replaced: bool) -> None:
    folder = tmp_path / "cache"
    one, two = Storage(folder / "x.db", "one", {}), Storage(folder / "x.db", "two", {"sync": "off"})
    assert put(one, b"1") and put(two, b"1")
    folder.rename(tmp_path / "old")
    if replaced:
        folder.mkdir()
        with kvstore.open(folder / "x.db") as new:
            new.family("one", create=True)["a"] = b"new"
    time.sleep(0.05)  # a storage looks for its file every 10 ms
    assert get(one) == (b"new" if replaced else None) and get(two) is None
    assert put(one, b"2") and put(two, b"2")
    with kvstore.open(folder / "x.db") as new:
        assert (new.family("one")["a"], new.family("two")["a"]) == (b"2", b"2")
    assert one.ignored_errors == two.ignored_errors == 0
    one.close()
    two.close()


@pytest.mark.skipif(os.name == "nt", reason="the directory of an open file cannot be renamed there")
def test_transaction_ends_in_renamed_folder(tmp_path: Path) -> None:
    storage = Storage(tmp_path / "cache" / "x.db", "things", {})
    with storage.store().transaction():
        assert put(storage, b"1")
        (tmp_path / "cache").rename(tmp_path / "old")
        time.sleep(0.05)
        assert put(storage, b"2") and get(storage) == b"2"
    assert get(storage) is None
    with kvstore.open(tmp_path / "old" / "x.db") as old:
        assert old.family("things")["a"] == b"2"
    storage.close()


def test_store_whose_path_cannot_be_looked_up_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = Storage(tmp_path / "x.db", "things", {})
    assert put(storage, b"1")
    store, real = storage.store(), os.stat

    def refuse(path: Any, *arguments: Any, **options: Any) -> Any:
        if path == storage.path:
            raise PermissionError(path)
        return real(path, *arguments, **options)

    monkeypatch.setattr(os, "stat", refuse)
    time.sleep(0.05)
    assert get(storage) == b"1" and storage.store() is store
    storage.close()


#: Errors of calls during which another process removed the directory.
REMOVED = [
    kvstore.CorruptError("database disk image is malformed"),
    kvstore.StoreIOError("disk I/O error"),
    kvstore.Error("there is no transaction to roll back"),
    kvstore.ReadOnlyError("attempt to write a readonly database"),
]


@pytest.mark.skipif(os.name == "nt", reason="an open file cannot be removed there")
@pytest.mark.parametrize("recreated", [False, True])
@pytest.mark.parametrize("error", REMOVED, ids=lambda error: type(error).__name__)
def test_call_is_repeated_if_file_was_removed_meanwhile(tmp_path: Path, error: Exception, recreated: bool) -> None:
    storage = Storage(tmp_path / "cache" / "x.db", "things", {})
    assert put(storage, b"old")
    calls: list[int] = []

    def work(family: kvstore.Family) -> None:
        calls.append(1)
        if len(calls) == 1:
            shutil.rmtree(tmp_path / "cache")
            if recreated:
                (tmp_path / "cache").mkdir()
                kvstore.open(tmp_path / "cache" / "x.db").close()
            raise error
        family["a"] = b"new"

    storage.call(work)
    assert len(calls) == 2 and get(storage) == b"new"
    with pytest.raises(type(error)):  # the file is there: the error is about this file
        storage.call(lambda family: throw(error))
    storage.close()


def throw(error: Exception) -> None:
    raise error


@pytest.mark.skipif(os.name == "nt", reason="an open file cannot be removed there")
@pytest.mark.parametrize("error", REMOVED, ids=lambda error: type(error).__name__)
def test_open_is_repeated_if_file_was_removed_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    (tmp_path / "cache").mkdir()
    kvstore.open(tmp_path / "cache" / "x.db").close()
    real = kvstore.open
    opens: list[object] = []

    def fail_once(path: Any, **settings: Any) -> Any:
        opens.append(path)
        if len(opens) == 1:
            shutil.rmtree(tmp_path / "cache")
            raise error
        return real(path, **settings)

    monkeypatch.setattr(kvstore, "open", fail_once)
    storage = Storage(tmp_path / "cache" / "x.db", "things", {})
    assert put(storage, b"1") and len(opens) == 2
    storage.close()


def test_error_that_advises_reopening_is_retried(tmp_path: Path) -> None:
    storage = Storage(tmp_path / "x.db", "things", {})
    first = storage.store()
    errors = [kvstore.BusyError("the file was deleted", hint=kvstore.Hint.OPEN_AGAIN)]
    assert storage.call(lambda family: throw(errors.pop()) if errors else family.put("a", b"1")) is True
    assert first.closed and storage.store() is not first
    with pytest.raises(kvstore.BusyError):
        storage.call(lambda family: throw(kvstore.BusyError("locked", hint=kvstore.Hint.RETRY)))
    storage.close()


@pytest.mark.skipif(os.name == "nt", reason="an open file cannot be removed there")
def test_transaction_does_not_continue_in_another_file(tmp_path: Path) -> None:
    storage = Storage(tmp_path / "x.db", "things", {})
    with pytest.raises(kvstore.StoreIOError), storage.store().transaction():
        assert put(storage, b"1")
        (tmp_path / "x.db").unlink()
        time.sleep(0.05)  # a handle looks for its file every 10 ms
        storage.call(lambda family: family.put("b", b"2"))
    assert get(storage) is None and storage.family().get("b") is None
    storage.close()


def test_store_that_cannot_be_opened_is_tried_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opens: list[object] = []

    def refuse(path: object, **settings: object) -> None:
        opens.append(path)
        raise kvstore.StoreIOError("refused")

    (tmp_path / "x.db").touch()
    monkeypatch.setattr(kvstore, "open", refuse)
    for path in (tmp_path / "x.db", "postgresql://user@127.0.0.1:1/nowhere"):
        with pytest.raises(kvstore.StoreIOError, match="refused"):
            get(Storage(path, "things", {}))
    assert len(opens) == 2


def test_value_that_cannot_be_kept_is_removed_and_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    storage = Storage(tmp_path / "x.db", "things", {"max_value_size": 1000})
    assert put(storage, b"old")
    with caplog.at_level(logging.WARNING, "kvstore.contrib"):
        assert not put(storage, bytes(1001)) and not put(storage, bytes(1001))
    assert get(storage) is None and storage.ignored_errors == 2
    assert len(caplog.records) == 1 and "x.db: " in caplog.text and "1 failures so far" in caplog.text
    assert put(storage, bytes(1000))


def test_busy_store_keeps_nothing_and_breaks_nothing(tmp_path: Path) -> None:
    storage = Storage(tmp_path / "x.db", "things", {"busy_timeout": 0})
    assert put(storage, b"old")
    with kvstore.open(tmp_path / "x.db") as other, other.transaction():
        other.put("b", "1")
        assert not put(storage, b"new") and get(storage) == b"old"
    assert put(storage, b"new") and storage.ignored_errors == 1


@pytest.mark.parametrize("ignore", [False, True])
def test_damaged_file_is_moved_aside_by_clear(tmp_path: Path, ignore: bool) -> None:
    path = tmp_path / "x.db"
    storage = Storage(path, "things", {"ignore_errors": ignore})
    assert put(storage, b"1")
    storage.close()
    data = path.read_bytes()
    path.write_bytes(data[:100] + bytes(len(data) - 100))
    assert not put(storage, b"1")
    if ignore:
        assert get(storage) is None and storage.ignored_errors == 2
    else:
        with pytest.raises(kvstore.CorruptError):
            get(storage)
    storage.clear()
    assert get(storage) is None and put(storage, b"2") and get(storage) == b"2"
    (aside,) = tmp_path.glob("x.db.damaged-*")
    assert aside.read_bytes()[:100] == data[:100]


def damage(path: Path) -> None:
    """Create a store that is damaged: only its first page is left."""
    with kvstore.open(path) as store:
        store.family("things", create=True).put_many({str(number): bytes(300) for number in range(100)})
    data = path.read_bytes()
    path.write_bytes(data[:4096] + b"\xff" * (len(data) - 4096))


#: Clears a damaged store and puts a key into another family of it. Exit status 75: the store was busy.
CLEAR_AND_PUT = """
import sys, kvstore
from kvstore.contrib._storage import Storage
path, options = sys.argv[1], {"busy_timeout": float(sys.argv[2])}
try:
    Storage(path, "things", options).clear()
except kvstore.BusyError:
    sys.exit(75)
Storage(path, "sessions", options).family()["session"] = b"live"
"""


@pytest.mark.parametrize("pause", ["before the lock", "with the lock"])
def test_clear_spares_store_that_other_process_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pause: str
) -> None:
    from kvstore.contrib import _storage

    path = tmp_path / "x.db"
    damage(path)
    name = "file_lock" if pause == "before the lock" else "_reserve_name"
    real = getattr(_storage, name)
    statuses: list[int] = []

    def run_other(*arguments: Any) -> Any:
        """Let another process clear the store at this moment."""
        command = [sys.executable, "-c", CLEAR_AND_PUT, str(path), "5" if pause == "before the lock" else "0.1"]
        statuses.append(subprocess.run(command, timeout=60).returncode)
        return real(*arguments)

    monkeypatch.setattr(_storage, name, run_other)
    storage = Storage(path, "things", {})
    storage.clear()
    assert get(storage) is None
    sessions = Storage(path, "sessions", {})
    if pause == "before the lock":
        assert statuses == [0] and sessions.family()["session"] == b"live"
    else:
        assert statuses == [75] and put(sessions, b"1")
    assert len(list(tmp_path.glob("x.db.damaged-*"))) == 1 and not list(tmp_path.glob("*lock*"))
    storage.close()
    sessions.close()


def test_new_side_files_stay_when_store_is_moved_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.db"
    for suffix in ("", "-wal", "-journal"):
        (tmp_path / f"x.db{suffix}").write_bytes(b"old")
    real = os.replace

    def replace(source: str, target: str) -> None:
        real(source, target)
        if source == str(path):  # another process creates a store at this moment
            time.sleep(0.05)  # the times of files have steps of several milliseconds
            (tmp_path / "x.db-wal").write_bytes(b"new")

    monkeypatch.setattr(os, "replace", replace)
    Storage(path, "things", {})._move_aside(kvstore.CorruptError("damaged"))
    assert (tmp_path / "x.db-wal").read_bytes() == b"new" and not (tmp_path / "x.db-journal").exists()
    (aside,) = tmp_path.glob("x.db.damaged-*-journal")
    assert aside.read_bytes() == b"old" and not list(tmp_path.glob("x.db.damaged-*-wal"))


def test_threads_that_clear_damaged_store_lose_nothing(tmp_path: Path) -> None:
    for round in range(15):
        path = tmp_path / f"{round}.db"
        damage(path)
        storage, sessions = Storage(path, "things", {}), Storage(path, "sessions", {})
        start = threading.Barrier(4)

        def work(number: int, barrier: threading.Barrier, storage: Storage, sessions: Storage) -> None:
            barrier.wait()
            storage.clear()
            sessions.call(lambda family: family.put(str(number), b"1"))

        with ThreadPoolExecutor(4) as threads:
            running = [threads.submit(work, number, start, storage, sessions) for number in range(4)]
        assert [future.result() for future in running] == [None] * 4
        assert len(sessions.family()) == 4 and len(list(tmp_path.glob(f"{path.name}.damaged-*"))) == 1
        storage.close()
        sessions.close()


def test_damaged_store_busy_in_other_clear_is_retried(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    damage(path)
    storage = Storage(path, "things", {"busy_timeout": 0})
    with file_lock(f"{path}.replace-lock", 0):
        with pytest.raises(kvstore.BusyError, match="another process is replacing the damaged store"):
            storage.clear()
    storage.clear()
    assert get(storage) is None


def test_file_lock_is_held_by_one_thread_at_a_time(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    held: list[int] = []

    def work(number: int) -> None:
        for _ in range(20):
            with file_lock(path, 60):
                held.append(number)
                time.sleep(0)
                assert held == [number]
                held.clear()

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(work, range(4))) == [None] * 4
    assert not os.listdir(tmp_path)


def test_new_storage_notices_that_file_was_removed(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    old = Storage(folder / "x.db", "things", {})
    assert put(old, b"1")
    for remove in (lambda: shutil.rmtree(folder), lambda: replace_with_empty_store(folder / "x.db")):
        remove()
        new = Storage(folder / "x.db", "things", {})
        assert new.family().get("a") is None and put(new, b"2")
        assert get(old) == b"2" and old.store() is new.store()
    assert old.ignored_errors == new.ignored_errors == 0
    old.close()
    new.close()


def replace_with_empty_store(path: Path) -> None:
    kvstore.open(path.with_suffix(".new")).close()
    os.replace(path.with_suffix(".new"), path)


@pytest.mark.skipif(os.name == "nt", reason="an open file cannot be removed there")
def test_open_transaction_survives_new_storage_of_removed_file(tmp_path: Path) -> None:
    old = Storage(tmp_path / "x.db", "things", {})
    assert put(old, b"1")
    began, ended = threading.Event(), threading.Event()
    errors: list[BaseException] = []

    def hold() -> None:
        try:
            with old.store().transaction():
                began.set()
                ended.wait(60)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=hold)
    thread.start()
    began.wait(60)
    (tmp_path / "x.db").unlink()
    new = Storage(tmp_path / "x.db", "things", {})
    assert put(new, b"2") and get(new) == b"2"
    ended.set()
    thread.join()
    assert get(old) == b"2" and all(isinstance(error, kvstore.Error) for error in errors)


def other_file(path: Path, kind: str) -> None:
    """Create a file that is no store, of the size of one."""
    if kind == "database of another application":
        with contextlib.closing(sqlite3.connect(path)) as database:
            database.execute("CREATE TABLE users (name TEXT)")
            database.execute("INSERT INTO users VALUES ('Ada')")
            database.commit()
    elif kind == "damaged database of another application":
        other_file(path, "database of another application")
        path.write_bytes(path.read_bytes()[:100] + bytes(9000))
    elif kind == "store without its header":
        kvstore.open(path).close()
        path.write_bytes(bytes(100) + path.read_bytes()[100:])
    else:
        path.write_bytes({"text": b"hello " * 1000, "zeros": bytes(9000), "short text": b"hello"}[kind])


@pytest.mark.parametrize(
    "kind",
    [
        "database of another application", "damaged database of another application", "store without its header",
        "text", "zeros", "short text",
    ],
)  # fmt: skip
@pytest.mark.parametrize("ignore", [False, True])
def test_clear_leaves_file_that_is_no_store(tmp_path: Path, kind: str, ignore: bool) -> None:
    path = tmp_path / "x.db"
    other_file(path, kind)
    before = path.read_bytes()
    with pytest.raises(kvstore.CorruptError):
        Storage(path, "things", {"ignore_errors": ignore}).clear()
    assert [file.name for file in tmp_path.iterdir()] == ["x.db"] and path.read_bytes() == before


@pytest.mark.skipif(not kvstore.encryption_available, reason="this build has no encryption")
def test_clear_leaves_short_file_that_is_no_encrypted_store(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    path.write_text("hello")
    with pytest.raises(kvstore.CorruptError):
        Storage(path, "things", {"password": "p"}).clear()
    assert [file.name for file in tmp_path.iterdir()] == ["x.db"] and path.read_text() == "hello"


def test_damaged_files_get_different_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.db"
    monkeypatch.setattr(time, "strftime", lambda form: "20260102-030405")
    storage = Storage(path, "things", {})
    (tmp_path / "x.db.damaged-20260102-030405-2-wal").touch()
    for number in range(3):
        assert put(storage, b"%d" % number)
        storage.close()
        path.write_bytes(path.read_bytes()[:100] + b"%d" % number * 9000)
        storage.clear()
        assert get(storage) is None
    moved = [file for file in tmp_path.glob("*.damaged-*") if "-wal" not in file.name]
    contents = {file.name: file.read_bytes()[100:101] for file in moved}
    name = "x.db.damaged-20260102-030405"
    assert contents == {name: b"0", f"{name}-3": b"1", f"{name}-4": b"2"}
    storage.close()


def test_log_names_path_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    other_file(tmp_path / "x.db", "text")
    with caplog.at_level(logging.WARNING, "kvstore.contrib"):
        assert not put(Storage(tmp_path / "x.db", "things", {}), b"1")
    assert caplog.text.count("x.db: ") == 1


def test_cache_with_expiring_keys_does_not_grow(tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    storage = Storage(path, "cache", {"sync": "off"})
    rows = 0
    for number in range(2000):
        storage.call(lambda family, n=number: family.put(f"key {n}", b"v", ttl=0.001))  # type: ignore[misc]
        rows = max(rows, storage.family().count(expired=True)) if number % 100 == 99 else rows
    assert rows <= 300
    storage.close()


def test_advice_of_backend_replaces_that_of_open(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Own(Storage):
        advice = {kvstore.Hint.RAISE_MAX_VALUE_SIZE: "set MOST", kvstore.Hint.CHECK_PERMISSIONS: "give another PLACE"}

    storage = Own(tmp_path / "x.db", "things", {"max_value_size": 1000})
    with pytest.raises(kvstore.InvalidError, match="is 1000: set MOST$"):
        storage.call(lambda family: family.put("a", bytes(1001)))
    with caplog.at_level(logging.WARNING, "kvstore.contrib"):
        assert not put(storage, bytes(1001))
    assert "is 1000: set MOST (1 failures so far)" in caplog.text
    storage.close()


def test_advice_names_settings_of_django_and_diskcache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kvstore.contrib.diskcache import Cache

    def refuse(path: object, **settings: object) -> None:
        hint = kvstore.Hint.CHECK_PERMISSIONS
        raise kvstore.StoreIOError(f"the file is read-only: {hint.advice}", hint=hint)

    monkeypatch.setattr(kvstore, "open", refuse)
    (tmp_path / "kvstore.db").touch()
    with pytest.raises(kvstore.StoreIOError, match="or the permissions, or give another directory$"):
        Cache(tmp_path)
    pytest.importorskip("django")
    from kvstore.contrib.django.cache import storage_of

    with pytest.raises(kvstore.StoreIOError, match="or the permissions, or give another LOCATION$"):
        storage_of(str(tmp_path / "kvstore.db"), {}, "things").family()
