"""Opening, families, maintenance: the methods of a whole store."""

from __future__ import annotations

import contextlib
import inspect
import os
import sqlite3
import stat
from pathlib import Path
from typing import Any

import pytest
from helpers import START_S, Clock

import kvstore
from kvstore._options import Settings, configuration


def test_open_accepts_str_and_path(tmp_path: Path) -> None:
    for number, name in enumerate([str(tmp_path / "a.db"), tmp_path / "b.db"]):
        with kvstore.open(name) as store:
            store["k"] = str(number)
        with kvstore.open(name) as store:
            assert store["k"] == str(number).encode()


def test_non_utf_8_path_works_or_raises_value_error(tmp_path: Path) -> None:
    name = os.fsencode(tmp_path) + b"/\xff.db"
    try:
        store = kvstore.open(os.fsdecode(name))
    except (ValueError, kvstore.Error):
        return
    store.close()
    assert os.path.exists(name)


def test_path_with_a_nul_raises_value_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        kvstore.open(str(tmp_path / "a\0b.db"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("bad", [1, 1.5, object(), ["a.db"]])
def test_path_of_wrong_type_raises_type_error(bad: Any) -> None:
    with pytest.raises(TypeError):
        kvstore.open(bad)


def test_memory_store_is_discarded_at_close() -> None:
    with kvstore.open(":memory:") as store:
        store["k"] = b"v"
        assert store["k"] == b"v"
    with kvstore.open(":memory:") as store:
        assert len(store) == 0
    assert not os.path.exists(":memory:")


def test_written_data_survives_reopening(path: Path, clock: Clock) -> None:
    with kvstore.open(path) as store:
        store.set_clock(clock)
        store.put("k", b"v", ttl=100)
        store.family("f", create=True)["a"] = b"b"
    with kvstore.open(path) as store:
        store.set_clock(clock)
        assert (store["k"], store.ttl("k")) == (b"v", 100.0)
        assert store.families() == ["f"] or set(store.families()) == {"default", "f"}
        assert store.family("f")["a"] == b"b"


def test_second_close_does_not_raise(path: Path) -> None:
    store = kvstore.open(path)
    store.close()
    store.close()
    with store_or_misuse(store):
        pass


class store_or_misuse:
    def __init__(self, store: kvstore.Store) -> None:
        self.store = store

    def __enter__(self) -> None:
        pass

    def __exit__(self, *args: object) -> None:
        with pytest.raises(kvstore.MisuseError):
            self.store["k"]


# --- families


def test_family_must_be_created_before_open(db: kvstore.Store) -> None:
    with pytest.raises(kvstore.NotFoundError) as caught:
        db.family("missing")
    assert isinstance(caught.value, KeyError)
    db.family("missing", create=True)
    db.family("missing")


def test_create_opens_existing_family(db: kvstore.Store) -> None:
    db.family("f", create=True)["k"] = b"v"
    assert db.family("f", create=True)["k"] == b"v"


def test_families_returns_names(db: kvstore.Store) -> None:
    for name in ("b", "a", "é"):
        db.family(name, create=True)
    names = [name for name in db.families() if name != "default"]
    assert names == ["a", "b", "é"]


def test_family_returns_its_name(db: kvstore.Store) -> None:
    assert db.family("f", create=True).name == "f"
    assert db.family("default").name == "default"


def test_drop_family_removes_family_and_data(db: kvstore.Store) -> None:
    family = db.family("f", create=True)
    family["k"] = b"v"
    db.drop_family("f")
    assert "f" not in db.families()
    with pytest.raises(kvstore.Error):
        family["k"]
    assert len(db.family("f", create=True)) == 0


def test_dropping_missing_family_raises_not_found(db: kvstore.Store) -> None:
    with pytest.raises(kvstore.NotFoundError):
        db.drop_family("missing")


def test_default_family_cannot_be_dropped(db: kvstore.Store) -> None:
    with pytest.raises((ValueError, kvstore.Error)):
        db.drop_family("default")


@pytest.mark.parametrize("name", ["", "__x", "_snkv_x", "kvstore_x", "x" * 256, "a\0b", "\ud800"])
def test_invalid_family_name_raises_value_error(db: kvstore.Store, name: str) -> None:
    with pytest.raises((ValueError, kvstore.Error)) as caught:
        db.family(name, create=True)
    assert not isinstance(caught.value, kvstore.NotFoundError)
    assert [n for n in db.families() if n != "default"] == []


@pytest.mark.parametrize("name", [1, None, b"bytes", object(), ["f"]])
def test_family_name_of_wrong_type_raises_type_error(db: kvstore.Store, name: Any) -> None:
    with pytest.raises(TypeError):
        db.family(name, create=True)
    with pytest.raises(TypeError):
        db.drop_family(name)


@pytest.mark.parametrize("bad", ["60", -1, float("nan"), b"", 0, 21 * 366 * 86400])
def test_family_with_invalid_default_ttl_is_not_created(db: kvstore.Store, bad: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        db.family("f", create=True, default_ttl=bad)
    assert db.families() == []


def test_family_settings_can_be_set_at_creation_and_later(db: kvstore.Store) -> None:
    family = db.family("f", create=True, default_ttl=60, write_tracking=True)
    assert (family.default_ttl, family.write_tracking) == (60.0, True)
    again = db.family("f")
    assert (again.default_ttl, again.write_tracking) == (60.0, True)
    db.family("f", default_ttl=kvstore.FOREVER, write_tracking=False)
    assert (again.default_ttl, again.write_tracking) == (None, False)


def test_family_handle_can_be_closed_separately(db: kvstore.Store) -> None:
    with db.family("f", create=True) as family:
        family["k"] = b"v"
    assert family.closed and not db.closed
    with pytest.raises(kvstore.MisuseError, match="closed"):
        family["k"]
    family.close()
    assert db.family("f")["k"] == b"v"
    assert "closed" in repr(family)


def test_purge_step_respects_budget_over_all_families(db: kvstore.Store, clock: Clock) -> None:
    other = db.family("other", create=True)
    for number in range(5):
        db.put(f"{number}", b"", ttl=1)
        other.put(f"{number}", b"", ttl=2)
    clock.advance(3)
    assert db.next_expiry(all_families=True) == START_S + 1
    assert db.purge_step(max_keys=7) == (7, True)
    assert db.purge_step(max_time=60) == (3, False)
    assert db.purge_step() == (0, False)
    assert db.next_expiry(all_families=True) is None
    for bad in ({"max_keys": -1}, {"max_time": -1}, {"max_keys": 2**64}):
        with pytest.raises(ValueError):
            db.purge_step(**bad)


def test_family_keeps_its_store_open(path: Path) -> None:
    family = kvstore.open(path).family("f", create=True)
    family["k"] = b"v"
    assert family["k"] == b"v"
    family.store.close() if hasattr(family, "store") else None


def test_many_families_work_together(db: kvstore.Store) -> None:
    families = [db.family(f"f{n}", create=True) for n in range(100)]
    with db.transaction():
        for number, family in enumerate(families):
            family["k"] = str(number)
    assert [family["k"] for family in families] == [str(n).encode() for n in range(100)]


# --- settings


def test_read_only_store_reads_and_refuses_to_write(path: Path) -> None:
    with kvstore.open(path) as store:
        store["k"] = b"v"
    with kvstore.open(path, read_only=True) as store:
        assert store["k"] == b"v"
        for write in (
            lambda: store.put("k", b"w"),
            lambda: store.delete("k"),
            lambda: store.clear(),
            lambda: store.family("f", create=True),
            lambda: store.incr("n"),
        ):
            with pytest.raises(kvstore.ReadOnlyError):
                write()
        assert dict(store.items()) == {b"k": b"v"}


@pytest.mark.files
def test_read_only_store_must_exist(path: Path) -> None:
    with pytest.raises(kvstore.StoreIOError):
        kvstore.open(path, read_only=True)
    assert not path.exists()


def test_busy_timeout_limits_wait_of_writes(path: Path) -> None:
    with kvstore.open(path, busy_timeout=0) as one, kvstore.open(path, busy_timeout=0) as two:
        with one.transaction():
            one["k"] = b"v"
            with pytest.raises(kvstore.BusyError):
                two["k"] = b"w"


@pytest.mark.files
def test_unknown_setting_raises_type_error_naming_it(path: Path) -> None:
    with pytest.raises(TypeError, match="no_such_setting"):
        kvstore.open(path, no_such_setting=1)  # type: ignore[call-arg, unused-ignore]
    assert not path.exists()


@pytest.mark.files
def test_non_store_file_is_refused_and_unchanged(path: Path) -> None:
    path.write_bytes(b"something else, quite long " * 500)
    before = path.read_bytes()
    with pytest.raises(kvstore.CorruptError):
        kvstore.open(path)
    assert path.read_bytes() == before


def test_missing_folder_raises_store_io_error(tmp_path: Path) -> None:
    with pytest.raises(kvstore.StoreIOError):
        kvstore.open(tmp_path / "no" / "such" / "folder.db")
    with pytest.raises(kvstore.StoreIOError):
        kvstore.open(tmp_path)


# --- backup, checkpoint, vacuum, integrity


def test_backup_contains_all_data_with_ttls(db: kvstore.Store, tmp_path: Path, clock: Clock) -> None:
    db.put("a", b"1", ttl=50)
    db.family("f", create=True)["k"] = b"v"
    db.backup(tmp_path / "copy.db")
    with kvstore.open(tmp_path / "copy.db") as copy:
        copy.set_clock(clock)
        assert (copy["a"], copy.ttl("a")) == (b"1", 50.0)
        assert copy.family("f")["k"] == b"v"


def test_backup_refuses_existing_target(db: kvstore.Store, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    target.write_bytes(b"precious")
    with pytest.raises(kvstore.Error):
        db.backup(target)
    assert target.read_bytes() == b"precious"


def test_backup_reports_progress(db: kvstore.Store, tmp_path: Path) -> None:
    db.put_many({f"{n}": os.urandom(4000) for n in range(500)})
    calls: list[tuple[int, int]] = []
    db.backup(tmp_path / "copy.db", lambda remaining, total: calls.append((remaining, total)))
    assert calls
    assert all(0 <= remaining <= total for remaining, total in calls)
    assert calls[-1][0] == 0


def test_exception_in_progress_stops_backup_and_is_raised(db: kvstore.Store, tmp_path: Path) -> None:
    db.put_many({f"{n}": os.urandom(4000) for n in range(500)})

    def progress(remaining: int, total: int) -> None:
        raise LookupError("stop")

    with pytest.raises(LookupError, match="stop"):
        db.backup(tmp_path / "copy.db", progress)
    assert not (tmp_path / "copy.db").exists()
    assert len(db) == 500


def test_non_callable_progress_raises_type_error(db: kvstore.Store, tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        db.backup(tmp_path / "copy.db", 5)  # type: ignore[arg-type, unused-ignore]
    assert not (tmp_path / "copy.db").exists()


def test_copy_contains_all_data_with_times(db: kvstore.Store, tmp_path: Path, clock: Clock) -> None:
    db.put("a", b"1", ttl=50)
    family = db.family("f", create=True)
    family.write_tracking = True
    family["k"] = b"v"
    calls: list[tuple[int, int]] = []
    for target in (":memory:", tmp_path / "copy.db"):
        with kvstore.open(target) as other:
            other.set_clock(clock)
            db.copy_to(other, progress=lambda done, total: calls.append((done, total)))
            assert (other["a"], other.ttl("a")) == (b"1", 50.0)
            assert other.family("f")["k"] == b"v"
            assert other.family("f").write_time("k") == family.write_time("k")
            assert (calls[0], calls[-1]) == ((0, 2), (2, 2))
            with pytest.raises(kvstore.Error, match="has keys"):
                db.copy_to(other)


def test_exception_in_progress_stops_copy_and_is_raised(db: kvstore.Store) -> None:
    db.put_many({f"{n}": b"v" for n in range(2000)})

    def progress(done: int, total: int) -> None:
        if done > 600:
            raise LookupError("stop")

    with kvstore.open(":memory:") as other:
        with pytest.raises(LookupError, match="stop"):
            db.copy_to(other, progress)
        assert len(other) == 0
        with pytest.raises(TypeError):
            db.copy_to(other, 5)  # type: ignore[arg-type, unused-ignore]
        with pytest.raises(TypeError):
            db.copy_to("other.db")  # type: ignore[arg-type, unused-ignore]
        with pytest.raises(kvstore.Error, match="into itself"):
            db.copy_to(db)
        db.copy_to(other)
        assert len(other) == 2000


@pytest.mark.files
def test_checkpoint_empties_the_wal(db: kvstore.Store, path: Path) -> None:
    db.put_many({f"{n}": b"x" * 1000 for n in range(100)})
    wal = Path(f"{path}-wal")
    assert wal.stat().st_size > 0
    db.checkpoint("truncate")
    assert wal.stat().st_size == 0


def test_checkpoint_returns_frame_counts(db: kvstore.Store) -> None:
    db["k"] = b"v"
    log, done = db.checkpoint()
    assert log >= done >= 0


@pytest.mark.parametrize("mode", ["no such mode", 99, -1, object(), 1.5])
def test_unknown_checkpoint_mode_is_refused(db: kvstore.Store, mode: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        db.checkpoint(mode)


@pytest.mark.files
def test_vacuum_frees_space(db: kvstore.Store, path: Path) -> None:
    db.put_many({f"{n}": b"x" * 4000 for n in range(500)})
    db.checkpoint("truncate")
    before = path.stat().st_size
    db.clear()
    db.vacuum()
    db.checkpoint("truncate")
    assert path.stat().st_size < before / 10


def test_integrity_check_passes_on_intact_store(db: kvstore.Store) -> None:
    db.put("k", b"v", ttl=5)
    assert db.integrity_check() is None


@pytest.mark.files
def test_integrity_check_names_damage(path: Path) -> None:
    with kvstore.open(path) as store:
        store.put_many({f"{n:05}": os.urandom(500) for n in range(2000)})
    with path.open("r+b") as file:
        for page in range(20, 60):
            file.seek(page * 4096)
            file.write(b"\xa5" * 4096)
    with pytest.raises(kvstore.CorruptError) as caught:
        with kvstore.open(path) as store:
            store.integrity_check()
    assert str(caught.value)


@pytest.mark.files
def test_repair_counts_changes_and_keeps_readable_rows(path: Path) -> None:
    with kvstore.open(path) as store:
        store.put("k", b"v", ttl=3600)
        assert store.repair() == 0
    with contextlib.closing(sqlite3.connect(path)) as con:
        con.execute('DELETE FROM "ttl_key:default"')
        con.commit()
    with kvstore.open(path) as store:
        with pytest.raises(kvstore.CorruptError):
            store.integrity_check()
        with store.transaction(), pytest.raises(kvstore.BusyError):
            store.repair()
        assert store.repair() == 1
        store.integrity_check()
        assert list(store.items()) == [(b"k", b"v")]


@pytest.mark.parametrize("level", ["normal", "full"])
def test_sync_works_within_transaction(path: Path, level: str) -> None:
    with kvstore.open(path, sync=level) as store:
        store.sync()
        with store.transaction():
            store["k"] = b"v"
            store.sync()
        assert store["k"] == b"v"


@pytest.mark.files
def test_every_setting_is_accepted(path: Path) -> None:
    with kvstore.open(
        path,
        journal_mode="delete",
        sync="full",
        exclusive=True,
        cache_size=100,
        page_size=8192,
        wal_size_limit=10,
        max_value_size=100,
        mmap_size=-1,
        hold_reads=False,
        wal_pages=100,
        secure_delete=True,
        purge_per_write=2,
        small=True,
    ) as store:
        store["k"] = b"v" * 100
        with pytest.raises(ValueError, match="value"):
            store["k"] = b"v" * 101
        with pytest.raises(kvstore.BusyError):
            kvstore.open(path, busy_timeout=0)


@pytest.mark.files
def test_small_setting_keeps_wal_short(path: Path) -> None:
    with kvstore.open(path, small=True) as store:
        longest = 0
        for n in range(400):
            store[f"{n % 50}"] = bytes([n % 256]) * 2000
            longest = max(longest, store.stats().wal_frames)
        assert 32 <= longest <= 128


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.files
def test_secure_delete_setting_overwrites_deleted_data(path: Path, secure: bool) -> None:
    def left() -> bool:
        return any(b"Sentinel" in file.read_bytes() for file in path.parent.glob(f"{path.name}*"))

    with kvstore.open(path, secure_delete=secure) as store:
        for n in range(50):
            store.put(f"Sentinel {n}", b"Sentinel" * n * n, ttl=3600)
        assert left()
        store.delete_range(prefix="Sentinel")
        store.checkpoint("truncate")
        assert left() is not secure
    assert left() is not secure


@pytest.mark.parametrize(
    "setting",
    [
        {"journal_mode": "no such mode"},
        {"sync": "sometimes"},
        {"busy_timeout": -1},
        {"cache_size": -1},
        {"cache_size": 2**31},
        {"page_size": 1000},
        {"page_size": 2**40},
        {"wal_size_limit": -1},
        {"wal_pages": 15},
        {"max_value_size": -1},
        {"max_value_size": 2**30},
        {"mmap_size": 2**64},
    ],
)
@pytest.mark.files
def test_out_of_range_setting_raises_value_error(path: Path, setting: Any) -> None:
    with pytest.raises(ValueError):
        kvstore.open(path, **setting)
    assert not path.exists()


@pytest.mark.parametrize(
    "setting", [{"journal_mode": 1}, {"sync": None}, {"busy_timeout": "1"}, {"cache_size": "1"}, {"page_size": 1.5}]
)
@pytest.mark.files
def test_setting_of_wrong_type_raises_type_error(path: Path, setting: Any) -> None:
    with pytest.raises(TypeError):
        kvstore.open(path, **setting)
    assert not path.exists()

# --- stats


def test_stats_count_calls_and_bytes(db: kvstore.Store) -> None:
    db["k"] = b"12345"
    db["k"]
    db.delete("k")
    assert db.get("k") is None and "k" not in db
    stats = db.stats()
    assert type(stats) is kvstore.Stats
    assert (stats.puts, stats.gets, stats.deletes) == (1, 1, 1)
    assert (stats.bytes_read, stats.bytes_written) == (5, 6)
    assert (stats.errors, stats.misses) == (0, 2)


def test_stats_are_read_only_integers(db: kvstore.Store) -> None:
    stats = db.stats()
    assert all(type(value) is int for value in vars(stats).values())
    with pytest.raises(AttributeError):
        stats.puts = 5
    with pytest.raises(AttributeError):
        stats.no_such_number
    assert stats == db.stats()
    assert "puts=0" in repr(stats)


def test_stats_reset_sets_the_counters_to_zero(db: kvstore.Store) -> None:
    db["k"] = b"v"
    db.stats_reset()
    assert db.stats().puts == 0


def test_stats_have_every_field_of_the_header(db: kvstore.Store) -> None:
    import re

    header = Path(__file__).resolve().parents[3] / "include" / "kvstore.h"
    body = re.search(r"typedef struct \{([^}]*)\} KVStoreStats;", header.read_text())
    assert body
    fields = re.findall(r"uint64_t n(\w+);", body[1])
    names = {re.sub("(?<!^)(?=[A-Z])", "_", field).lower() for field in fields}
    assert set(vars(db.stats())) == names


# --- the cleaner


def test_cleaner_starts_once_and_stops_any_number_of_times(db: kvstore.Store) -> None:
    db.start_cleaner(3600)
    with pytest.raises(kvstore.Error):
        db.start_cleaner(3600)
    db.stop_cleaner()
    db.stop_cleaner()
    db.start_cleaner(3600)


@pytest.mark.parametrize("interval", [0, -1, float("nan"), float("inf"), 1e300])
def test_invalid_cleaner_interval_raises_value_error(db: kvstore.Store, interval: float) -> None:
    with pytest.raises((ValueError, OverflowError)):
        db.start_cleaner(interval)
    db.start_cleaner(3600)


def test_close_stops_the_cleaner(path: Path) -> None:
    store = kvstore.open(path)
    store.start_cleaner(0.001)
    store.close()
    with kvstore.open(path) as again:
        assert len(again) == 0


def test_memory_store_refuses_cleaner() -> None:
    with kvstore.open(":memory:") as store:
        with pytest.raises((ValueError, kvstore.Error)):
            store.start_cleaner(1)


# --- sweeping by age


def test_sweep_requires_write_tracking(db: kvstore.Store) -> None:
    with pytest.raises((ValueError, kvstore.Error)):
        db.sweep(1)


@pytest.mark.files
def test_file_mode_follows_umask(path: Path) -> None:
    old = os.umask(0o077)
    try:
        kvstore.open(path).close()
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0


def test_versions_are_defined() -> None:
    assert kvstore.__version__.count(".") == 2


def test_next_expiry_value_fits_timer(db: kvstore.Store, clock: Clock) -> None:
    db.put("k", b"", ttl=5)
    moment = db.next_expiry()
    assert moment is not None
    clock.now_s = moment
    assert db.purge_expired() == 1
    assert db.next_expiry() is None
    assert clock.now_s == START_S + 5


def test_settings_match_in_all_signatures() -> None:
    named = inspect.signature(kvstore.open).parameters
    settings = {name: given.default for name, given in named.items() if name not in ("path", "codec", "keys")}
    taken = {name: given.default for name, given in inspect.signature(configuration).parameters.items()}
    secrets = {"password": None, "raw_key": None, "encrypt": False}  # no settings of the library's: they go their own way
    assert settings == {**taken, **secrets}
    assert set(settings) == set(Settings.__annotations__)
