"""Behaviour of snkv 0.8 that this module must not copy, because it loses data or returns wrong data."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kvstore.snkv import JOURNAL_DELETE, Error, KVStore, ReadOnlyError


def test_write_in_read_transaction_is_refused(db: KVStore) -> None:
    db.begin()
    for call in (
        lambda: db.put("k", "v"),
        lambda: db.put("k", "v", ttl=1),
        lambda: db.put_if_absent("k", "v"),
        lambda: db.clear(),
    ):
        with pytest.raises(ReadOnlyError):
            call()
    db.rollback()
    assert db.count() == 0


def test_nested_transaction_is_refused_and_first_continues(db: KVStore) -> None:
    db.begin(write=True)
    db["k"] = "v"
    with pytest.raises(Error, match="already open"):
        db.begin()
    db.rollback()
    assert "k" not in db


def test_sync_stats_and_purge_do_not_commit_transaction(db: KVStore) -> None:
    db.begin(write=True)
    db["k"] = "v"
    db.sync()
    db.stats()
    db.purge_expired()
    db.rollback()
    assert "k" not in db


@pytest.mark.parametrize("read", ["get", "exists", "ttl", "__contains__", "put_if_absent"])
def test_reading_expired_key_does_not_commit_transaction(db: KVStore, read: str) -> None:
    db._db.put_ttl(b"dead", b"v", 1)
    db.begin(write=True)
    db["k"] = "v"
    getattr(db, read)(*(("dead", "v") if read == "put_if_absent" else ("dead",)))
    db.rollback()
    assert "k" not in db


@pytest.mark.parametrize("ttl", [0, -1, -1e-9, -1e9, -1.7e9, -1e12, -1e300])
def test_zero_or_negative_ttl_never_makes_key_permanent(db: KVStore, ttl: float) -> None:
    db.put("k", "v", ttl=ttl)
    assert db.get("k") is None
    db["k", ttl] = "v"
    assert "k" not in db
    assert db.put_if_absent("k", "v", ttl=ttl)
    assert list(db) == []


def test_negative_expiry_time_is_refused(db: KVStore) -> None:
    with pytest.raises(Error, match="the expiry time -5 is negative"):
        db._db.put_ttl(b"k", b"v", -5)
    assert db.count() == 0


def test_deleting_an_expired_key_finds_nothing(db: KVStore) -> None:
    db._db.put_ttl(b"k", b"v", 1)
    with pytest.raises(KeyError):
        db.delete("k")


@pytest.mark.parametrize(
    "config",
    [{"journal_mode": 7}, {"journal_mode": 2}, {"sync_level": 3}, {"page_size": 1000}, {"cache_size": -1}],
)
@pytest.mark.files
def test_invalid_option_number_is_refused(file: str, config: dict[str, int]) -> None:
    with pytest.raises(Error):
        KVStore(file, **config)


SYNCING = """
import sys
from kvstore.snkv import KVStore
with KVStore(sys.argv[1], cache_size=100) as db:
    for i in range(3):
        db[str(i)] = "v"
    db.checkpoint()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="counts system calls with strace")
@pytest.mark.files
def test_omitted_options_do_not_disable_sync(file: str, tmp_path: Path) -> None:
    strace = shutil.which("strace")
    if strace is None:
        assert "CI" not in os.environ, "strace is missing: .ci/setup installs it"
        pytest.skip("strace is not installed")
    log = tmp_path / "log"
    command = [strace, "-f", "-e", "trace=fsync,fdatasync", "-o", str(log), sys.executable, "-c", SYNCING, file]
    subprocess.run(command, check=True, timeout=60)
    assert "sync(" in log.read_text()


def test_reverse_iterator_first_and_next_act_as_last_and_prev(db: KVStore) -> None:
    for key in "abc":
        db[key] = key
    it = db.reverse_iterator()
    assert it.first().key == b"c"
    it.next()
    assert it.key == b"b"
    assert it.last().key == b"c"


def test_error_text_belongs_to_latest_error(db: KVStore) -> None:
    with pytest.raises(Error):
        db.vacuum(-1)
    with pytest.raises(KeyError, match="no such key"):
        db.delete("k")
    with pytest.raises(Error, match="eof"):
        _ = db.iterator().key


def test_families_are_sorted_and_kvstore_names_reserved(db: KVStore) -> None:
    for name in ("b", "a"):
        db.create_column_family(name).close()
    assert db.list_column_families() == ["a", "b"]
    with pytest.raises(Error, match="reserved"):
        db.create_column_family("kvstore_x")


def test_sync_does_not_commit_transaction_in_delete_mode(file: str) -> None:
    with KVStore(file, journal_mode=JOURNAL_DELETE) as db:
        db.begin(write=True)
        db["k"] = "v"
        db.sync()
        db.rollback()
        assert "k" not in db
