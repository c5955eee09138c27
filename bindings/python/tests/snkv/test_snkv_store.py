"""Opening, families, transactions, maintenance, errors, encryption."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Callable

import pytest

import kvstore
import kvstore.snkv as snkv
from kvstore.snkv import BusyError, ColumnFamily, CorruptError, Error, KVStore, NotFoundError, ReadOnlyError


def test_file_keeps_written_data(file: str) -> None:
    with KVStore(file) as db:
        db["k"] = "v"
        db.put("t", "v", ttl=3600)
    with KVStore(file) as db:
        assert db["k"] == b"v"
        remaining = db.ttl("t")
        assert remaining is not None and 3500 < remaining <= 3600


@pytest.mark.parametrize("arguments", [(), (None,), (":memory:",)])
def test_store_without_path_is_in_memory(
    arguments: tuple[Any, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with KVStore(*arguments) as db:
        db["k"] = "v"
        assert db["k"] == b"v"
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "config",
    [
        {"journal_mode": snkv.JOURNAL_DELETE},
        {"journal_mode": snkv.JOURNAL_WAL, "sync_level": snkv.SYNC_FULL},
        {"sync_level": snkv.SYNC_OFF},
        {"sync_level": snkv.SYNC_NORMAL, "cache_size": 500, "page_size": 8192, "busy_timeout": 10, "wal_size_limit": 5},
        {"full_mutex": 1, "read_only": 0},
        {"read_only": False},
    ],
)
def test_every_option_opens_usable_store(file: str, config: dict[str, int]) -> None:
    with KVStore(file, **config) as db:
        db["k"] = "v"
        assert db["k"] == b"v"
        db.integrity_check()


def test_journal_mode_is_the_requested_one(tmp_path: Path) -> None:
    for mode, has_wal in ((snkv.JOURNAL_WAL, True), (snkv.JOURNAL_DELETE, False)):
        file = tmp_path / f"{mode}.db"
        with KVStore(str(file), journal_mode=mode) as db:
            db["k"] = "v"
            assert file.with_name(file.name + "-wal").exists() == has_wal


@pytest.mark.parametrize("name", ["cache", "filename", "encrypted", ""])
def test_unknown_option_raises_type_error(file: str, name: str) -> None:
    with pytest.raises(TypeError, match="keyword"):
        KVStore(file, **{name: 1})
    assert not os.path.exists(file)


@pytest.mark.parametrize("name", ["journal_mode", "sync_level", "cache_size", "page_size", "read_only", "busy_timeout"])
def test_option_must_be_integer(file: str, name: str) -> None:
    for wrong in ("1", 1.0, None):
        with pytest.raises(TypeError, match="integer"):
            KVStore(file, **{name: wrong})  # type: ignore[arg-type]


@pytest.mark.parametrize("path", [b"bytes", 1, Path("p")])
def test_path_must_be_str(path: Any) -> None:
    with pytest.raises(TypeError):
        KVStore(path)
    with pytest.raises(ValueError, match="null"):
        KVStore("a\0b")


def test_read_only_store_reads_and_refuses_writes(file: str) -> None:
    with pytest.raises(Error):
        KVStore(file, read_only=1)
    with KVStore(file) as db:
        db["k"] = "v"
    with KVStore(file, read_only=1) as db:
        assert db["k"] == b"v"
        for call in (lambda: db.put("k", "w"), lambda: db.delete("k"), db.clear, lambda: db.create_column_family("f")):
            with pytest.raises(ReadOnlyError):
                call()


def test_failed_open_says_why(tmp_path: Path) -> None:
    with pytest.raises(Error, match="the directory of the file does not exist"):
        KVStore(str(tmp_path / "no" / "dir.db"))
    foreign = tmp_path / "foreign"
    foreign.write_bytes(b"something else" * 1000)
    with pytest.raises(Error, match="not a SQLite database") as caught:
        KVStore(str(foreign))
    assert not isinstance(caught.value, CorruptError), "programs may delete what is corrupt"
    assert foreign.read_bytes() == b"something else" * 1000


def test_families_are_created_listed_opened_and_dropped(db: KVStore) -> None:
    with db.create_column_family("b") as b, db.create_column_family("a") as a:
        assert isinstance(a, ColumnFamily)
        a["k"] = "in a"
        b["k"] = "in b"
        assert "k" not in db
    assert db.list_column_families() == ["a", "b"]
    with db.open_column_family("a") as a:
        assert a["k"] == b"in a"
        with pytest.raises(BusyError):
            db.drop_column_family("a")
    db.drop_column_family("a")
    assert db.list_column_families() == ["b"]
    with pytest.raises(NotFoundError):
        db.open_column_family("a")
    with pytest.raises(NotFoundError):
        db.drop_column_family("a")


def test_default_family_is_the_store_under_all_its_names(db: KVStore) -> None:
    for family in (db.default_column_family(), db.open_column_family("default"), db.create_column_family("default")):
        with family:
            family["k"] = "v"
            assert db["k"] == b"v"
            del db["k"]
            assert "k" not in family
    assert db.list_column_families() == []
    with pytest.raises(Error):
        db.drop_column_family("default")


def test_creating_existing_family_fails(db: KVStore) -> None:
    db.create_column_family("f").close()
    with pytest.raises(Error, match="exists"):
        db.create_column_family("f")


@pytest.mark.parametrize("name", ["", "x" * 256, "__x", "_snkv_x"])
def test_invalid_family_names_are_refused(db: KVStore, name: str) -> None:
    with pytest.raises(Error):
        db.create_column_family(name)
    with pytest.raises(Error):
        db.open_column_family(name)


def test_family_names_must_be_str_without_nul(db: KVStore) -> None:
    calls: list[Callable[[Any], Any]] = [db.create_column_family, db.open_column_family, db.drop_column_family]
    for call in calls:
        for wrong in (b"f", 1, None):
            with pytest.raises(TypeError):
                call(wrong)
        with pytest.raises(ValueError, match="null"):
            call("a\0b")


def test_transaction_is_committed_or_rolled_back_atomically(db: KVStore) -> None:
    with db.create_column_family("f") as family:
        db.begin(write=True)
        db["a"] = "1"
        family.put("a", "1", ttl=60)
        db.rollback()
        assert db.count() == family.count() == 0
        db.begin(True)
        db["a"] = "1"
        family["a"] = "1"
        db.commit()
        assert db.count() == family.count() == 1


def test_commit_and_rollback_without_a_transaction_do_nothing(db: KVStore) -> None:
    db.commit()
    db.rollback()
    db.begin()
    db.rollback()
    db.rollback()


def test_close_discards_uncommitted_writes(file: str) -> None:
    with KVStore(file) as db:
        db.begin(write=True)
        db["k"] = "v"
    with KVStore(file) as db:
        assert "k" not in db


@pytest.mark.files
def test_second_writer_is_busy_with_advice_in_error(file: str) -> None:
    with KVStore(file) as first, KVStore(file) as second:
        first.begin(write=True)
        first["k"] = "v"
        with pytest.raises(BusyError, match="busy_timeout"):
            second.put("k", "w")
        assert "lock" in second.errmsg
        assert second.get("k") is None
        assert second.errmsg == "no such key"
        first.commit()
        assert second.get("k") == b"v"


@pytest.mark.files
def test_checkpoint_returns_two_numbers_in_every_mode(db: KVStore) -> None:
    db["k"] = "v"
    log, done = db.checkpoint()
    assert log == done > 0
    for mode in (snkv.CHECKPOINT_FULL, snkv.CHECKPOINT_RESTART, snkv.CHECKPOINT_TRUNCATE):
        assert isinstance(db.checkpoint(mode=mode), tuple)
    assert db.checkpoint(snkv.CHECKPOINT_TRUNCATE) == (0, 0)
    db.begin(write=True)
    with pytest.raises(BusyError):
        db.checkpoint()


@pytest.mark.files
def test_stats_count_until_they_are_reset(db: KVStore) -> None:
    db.stats_reset()
    db.put("key", "value")
    db.get("key")
    db.delete("key")
    list(db)
    stats = db.stats()
    assert (stats["puts"], stats["gets"], stats["deletes"], stats["iterations"]) == (1, 1, 1, 1)
    assert (stats["bytes_written"], stats["bytes_read"]) == (8, 5)
    assert stats["wal_commits"] == 2
    db.stats_reset()
    stats = db.stats()
    assert stats.pop("db_pages") > 0
    assert set(stats.values()) == {0}


@pytest.mark.files
def test_maintenance_works_on_intact_store(db: KVStore) -> None:
    db.begin(write=True)
    for i in range(500):
        db[f"{i}"] = b"x" * 1000
    db.commit()
    pages = db.stats()["db_pages"]
    db.clear()
    db.vacuum(n_pages=5)
    db.vacuum()
    db.sync()
    db.integrity_check()
    assert db.stats()["db_pages"] < pages


@pytest.mark.files
def test_damaged_file_raises_corrupt_error_with_text(file: str) -> None:
    with KVStore(file, journal_mode=snkv.JOURNAL_DELETE) as db:
        db.begin(write=True)
        for i in range(2000):
            db[f"{i:05}"] = b"x" * 100
        db.commit()
    with open(file, "r+b") as raw:
        size = raw.seek(0, os.SEEK_END)
        for offset in range(20 * 4096, size, 4096):
            raw.seek(offset)
            raw.write(b"\xa5" * 64)
    with KVStore(file) as db, pytest.raises(CorruptError) as caught:
        db.integrity_check()
    assert str(caught.value)


def test_errmsg_is_the_text_of_the_last_failure(db: KVStore) -> None:
    assert db.errmsg == "no error"
    with pytest.raises(Error) as caught:
        db.vacuum(-1)
    assert db.errmsg == str(caught.value)


def test_store_takes_attributes_and_can_be_subclassed(file: str) -> None:
    class Mine(KVStore):
        def get_text(self, key: str) -> str:
            return (self.get(key) or b"").decode()

    with Mine(file) as db:
        db.note = 1  # type: ignore[attr-defined]
        db["k"] = "v"
        assert db.get_text("k") == "v"
        assert repr(db) == "snkv.KVStore()"
        assert db


@pytest.mark.skipif(kvstore.encryption_available, reason="the library has encryption")
def test_build_without_encryption_refuses_and_creates_nothing(db: KVStore, file: str) -> None:
    for call in (lambda: KVStore.open_encrypted(file + ".enc", b"pw"), lambda: db.reencrypt("pw"), db.remove_encryption):
        with pytest.raises(Error, match="no encryption") as caught:
            call()
        assert not isinstance(caught.value, snkv.AuthError), "nobody shall think that the password was wrong"
    assert not os.path.exists(file + ".enc")
    assert db.is_encrypted() is False


@pytest.mark.files
@pytest.mark.skipif(not kvstore.encryption_available, reason="a library without encryption")
def test_encrypted_store_opens_only_with_password(file: str) -> None:
    with KVStore(file) as plain:
        plain["k", 1000] = "v"
    with KVStore.open_encrypted(file, "pass") as db:
        assert db.is_encrypted() and db["k"] == b"v"
        ttl = db.ttl("k")
        assert ttl is not None and 0 < ttl <= 1000
        db.reencrypt(b"word")
        assert db["k"] == b"v"
        with KVStore.open_encrypted(file, "word") as second:
            with pytest.raises(snkv.BusyError):
                db.remove_encryption()
            assert second["k"] == b"v"
    for opened in (lambda: KVStore(file), lambda: KVStore.open_encrypted(file, "pass")):
        with pytest.raises(snkv.AuthError):
            opened()
    with pytest.raises(Error):
        KVStore.open_encrypted(file, "")
    with pytest.raises(TypeError):
        KVStore.open_encrypted(file, 5)  # type: ignore[arg-type]
    with KVStore.open_encrypted(file, "word") as db:
        db.remove_encryption()
        assert not db.is_encrypted()
    with KVStore(file) as plain:
        assert plain["k"] == b"v"


def test_exceptions_have_the_code_of_the_library(db: KVStore) -> None:
    with pytest.raises(NotFoundError) as caught:
        _ = db["k"]
    assert caught.value.code == 12
    assert str(caught.value) == "no such key or column family"
