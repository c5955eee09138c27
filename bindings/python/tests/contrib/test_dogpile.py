"""The backend for dogpile.cache: beyond dogpile's own tests."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("dogpile.cache")
pytestmark = pytest.mark.filterwarnings("default")

from dogpile.cache import make_region  # noqa: E402

import kvstore  # noqa: E402
from kvstore.contrib.dogpile import KVStoreBackend  # noqa: E402


def region_at(path: Path, **arguments: Any) -> Any:
    region = make_region()
    region.configure("kvstore", expiration_time=100, arguments={"path": str(path), "sync": "off", **arguments})
    return region


def test_backend_name_is_registered_without_import(tmp_path: Path) -> None:
    from helpers import assert_clean, run_python

    program = (
        "from dogpile.cache import make_region\n"
        "region = make_region().configure('kvstore', arguments={'path': 'r.db'})\n"
        "print(region.get_or_create('k', lambda: [1]), region.get('k'))"
    )
    assert_clean(run_python(program, cwd=tmp_path), "[1] [1]")


def test_ttl_argument_applies_to_every_key(tmp_path: Path) -> None:
    region = region_at(tmp_path / "r.db", ttl=500)
    region.set("a", 1)
    region.set_multi({"b": 2})
    family = region.backend._storage.family()
    assert [490 < (family.ttl(key) or 0) <= 500 for key in family] == [True, True]
    region.backend._storage.close()


@pytest.mark.parametrize("ttl", [None, 0, sys.maxsize, 1e300, float("inf")])
def test_keys_without_ttl_argument_do_not_expire(tmp_path: Path, ttl: Any) -> None:
    region = region_at(tmp_path / "r.db", ttl=ttl)
    region.set("a", 1)
    assert region.backend._storage.family().ttl("a") is None
    region.backend._storage.close()


@pytest.mark.parametrize("timeout", [sys.maxsize, 1e300, float("inf")])
def test_huge_lock_timeout_is_accepted(tmp_path: Path, timeout: Any) -> None:
    region = region_at(tmp_path / "r.db", lock_timeout=timeout, distributed_lock=True)
    assert region.get_or_create("k", lambda: 1) == 1
    mutex = region.backend.get_mutex("k")
    assert mutex.acquire(wait=False) and mutex.locked()
    mutex.release()
    region.backend._storage.close()


def test_invalid_arguments_are_reported(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="path"):
        KVStoreBackend({})
    with pytest.raises(TypeError, match="max_bytes"):
        KVStoreBackend({"path": tmp_path / "r.db", "policy": "oldest"})


def test_lock_has_one_holder_who_alone_releases_it(tmp_path: Path) -> None:
    backend = KVStoreBackend({"path": tmp_path / "r.db", "distributed_lock": True})
    one, two = backend.get_mutex("k"), backend.get_mutex("k")
    assert one is not None and two is not None
    assert one.acquire() is True
    assert two.acquire(wait=False) is False
    assert two.locked()
    two.release()  # it does not have it
    assert one.locked()
    one.release()
    assert not one.locked()
    assert two.acquire(wait=False) is True
    two.release()
    backend._storage.close()
    backend._locks.close()


def test_lock_of_dead_process_expires(tmp_path: Path) -> None:
    backend = KVStoreBackend({"path": tmp_path / "r.db", "distributed_lock": True, "lock_timeout": 0.1})
    next_one = backend.get_mutex("k")
    assert next_one is not None
    child = os.fork()
    if child == 0:
        made = backend.get_mutex("k")
        os._exit(0 if made is not None and made.acquire(wait=False) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert next_one.acquire()
    next_one.release()
    backend._locks.close()


def test_late_release_keeps_lock_of_next_holder(tmp_path: Path) -> None:
    backend = KVStoreBackend({"path": tmp_path / "r.db", "distributed_lock": True})
    late, other = backend.get_mutex("k"), backend.get_mutex("k")
    assert late is not None and other is not None
    assert late.acquire()
    backend._locks.family().clear()  # as if its time were over
    assert other.acquire(wait=False)
    late.release()
    assert other.locked()
    other.release()
    backend._locks.close()


def test_busy_store_breaks_no_creation(tmp_path: Path) -> None:
    region = region_at(tmp_path / "r.db", distributed_lock=True, busy_timeout=0.05)
    assert region.get_or_create("k", lambda: 1) == 1
    with kvstore.open(tmp_path / "r.db") as db, db.transaction():
        db["writing"] = b""
        assert region.get_or_create("k2", lambda: 2) == 2
        mutex = region.backend.get_mutex("k3")
        assert mutex.acquire(wait=False)
        mutex.release()
    assert not mutex.locked()
    region.backend._storage.close()


def test_full_store_breaks_no_creation(tmp_path: Path) -> None:
    region = region_at(tmp_path / "r.db", distributed_lock=True, max_bytes=32 * 4096, policy="none")
    family = region.backend._storage.family()
    for length in (3000, 1):
        with pytest.raises(kvstore.FullError):
            for number in range(10_000):
                family[f"{length}-{number}"] = bytes(length)
    assert region.get_or_create("k", lambda: 1) == 1
    region.backend._storage.close()


def test_file_deleted_during_creation_is_made_again(tmp_path: Path) -> None:
    region = region_at(tmp_path / "cache" / "r.db", distributed_lock=True)

    def create() -> int:
        shutil.rmtree(tmp_path / "cache")
        return 1

    assert region.get_or_create("k", create) == 1
    assert region.get_or_create("k2", lambda: 2) == 2
    assert region.get_or_create("k2", lambda: 3) == 2
    region.backend._storage.close()


def test_damaged_file_breaks_no_creation(tmp_path: Path) -> None:
    (tmp_path / "r.db").write_bytes(bytes(range(256)) * 64)
    region = region_at(tmp_path / "r.db", distributed_lock=True, ignore_errors=True)
    assert region.get_or_create("k", lambda: 1) == 1


def test_hold_whose_release_fails_is_not_renewed(tmp_path: Path) -> None:
    backend = KVStoreBackend(
        {"path": tmp_path / "r.db", "distributed_lock": True, "lock_timeout": 0.3, "busy_timeout": 0.05}
    )
    mutex = backend.get_mutex("k")
    assert mutex is not None and mutex.acquire()
    with kvstore.open(tmp_path / "r.db") as db, db.transaction():
        db["writing"] = b""
        mutex.release()
    time.sleep(0.4)
    other = backend.get_mutex("k")
    assert other is not None and other.acquire(wait=False)
    other.release()
    backend._locks.close()


def make(path: str, made: Any, started: Any) -> None:
    region = region_at(Path(path), distributed_lock=True)

    def create() -> str:
        with made.get_lock():
            made.value += 1
        return "value"

    started.wait()
    assert region.get_or_create("k", create) == "value"


def test_concurrent_processes_create_value_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    made, started = context.Value("i", 0), context.Barrier(4)
    workers = [context.Process(target=make, args=(str(tmp_path / "r.db"), made, started)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0, 0, 0]
    assert made.value == 1


def test_concurrent_threads_create_value_once(tmp_path: Path) -> None:
    region = region_at(tmp_path / "r.db", distributed_lock=True)
    made: list[int] = []
    results: list[Any] = []

    def create() -> int:
        made.append(1)
        return 7

    threads = [threading.Thread(target=lambda: results.append(region.get_or_create("k", create))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(made), results) == (1, [7] * 8)
    region.backend._storage.close()
    region.backend._locks.close()
    assert kvstore.open(tmp_path / "r.db").families() == ["dogpile", "dogpile_locks"]


def test_computed_value_is_returned_if_it_cannot_be_stored(tmp_path: Path) -> None:
    region = make_region().configure(
        "kvstore", arguments={"path": str(tmp_path / "cache.db"), "max_value_size": 1000}
    )
    assert region.get_or_create("k", lambda: "x" * 2000) == "x" * 2000
    assert region.get_or_create("k", lambda: "small") == "small" == region.get("k")
