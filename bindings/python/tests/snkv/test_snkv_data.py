"""Keys, values and TTLs, in a store and in a family: both have the same methods."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Union

import pytest
from helpers import assert_clean, run_python

from kvstore.snkv import ColumnFamily, Error, KVStore, NotFoundError

Data = Union[KVStore, ColumnFamily]
PAST = 1  # milliseconds since 1970


@pytest.fixture(params=["store", "family"])
def data(request: pytest.FixtureRequest, db: KVStore) -> Iterator[Data]:
    if request.param == "store":
        yield db
    else:
        with db.create_column_family("other") as family:
            yield family


def test_str_is_stored_as_utf_8_and_returned_as_bytes(data: Data) -> None:
    data.put("schlüssel", "wért")
    assert data.get("schlüssel".encode()) == "wért".encode()
    assert data["schlüssel"] == "wért".encode()


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_keys_and_values_may_be_any_bytes_like_type(data: Data, kind: Any) -> None:
    data.put(kind(b"k\0\xff"), kind(b"v\0\xff"))
    value = data.get(kind(b"k\0\xff"))
    assert type(value) is bytes
    assert value == b"v\0\xff"
    assert kind(b"k\0\xff") in data


@pytest.mark.parametrize("wrong", [1, None, 1.5, ["k"], object()])
def test_other_types_raise_type_error_naming_them(data: Data, wrong: Any) -> None:
    for call in (
        lambda: data.put(wrong, b"v"),
        lambda: data.put(b"k", wrong),
        lambda: data.get(wrong),
        lambda: data.delete(wrong),
        lambda: data.exists(wrong),
        lambda: data.ttl(wrong),
        lambda: data.put_if_absent(wrong, b"v"),
        lambda: data[wrong],
        lambda: data.prefix_iterator(wrong),
        lambda: data.iterator().seek(wrong),
    ):
        with pytest.raises(TypeError, match=type(wrong).__name__):
            call()
    assert wrong not in data


def test_tuple_of_key_and_seconds_sets_ttl(data: Data) -> None:
    data["k", 60] = "v"
    assert data["k"] == b"v"
    remaining = data.ttl("k")
    assert remaining is not None and 59 < remaining <= 60
    data["k"] = "v"
    assert data.ttl("k") is None


@pytest.mark.parametrize("ttl", ["5", None, b"5"])
def test_tuple_accepts_only_numbers_as_seconds(data: Data, ttl: Any) -> None:
    with pytest.raises(TypeError):
        data["k", ttl] = b"v"
    with pytest.raises(ValueError):
        data["k", 1, 2] = b"v"  # type: ignore[index]
    assert data.count() == 0


def test_missing_key_gives_default_or_not_found_error(data: Data) -> None:
    assert data.get("k") is None
    assert data.get("k", b"d") == b"d"
    assert data.get("k", default=b"d") == b"d"
    assert not data.exists("k")
    assert "k" not in data
    for call in (lambda: data["k"], lambda: data.delete("k"), lambda: data.ttl("k"), lambda: data.__delitem__("k")):
        with pytest.raises(NotFoundError):
            call()
        with pytest.raises(KeyError):
            call()


def test_empty_value_is_stored(data: Data) -> None:
    data["k"] = b""
    assert data.get("k", b"default") == b""
    assert data["k"] == b""


def test_empty_key_is_refused(data: Data) -> None:
    for call in (lambda: data.put("", "v"), lambda: data.get(""), lambda: data.exists(b""), lambda: data.delete("")):
        with pytest.raises(Error, match="0 bytes"):
            call()


@pytest.mark.parametrize("size", [16383, 16384, 16385, 100_000, 1 << 20, (1 << 20) + 1, 5 << 20])
def test_values_longer_than_buffer_are_read_completely(data: Data, size: int) -> None:
    value = bytes(range(256)) * (size // 256) + b"\xff" * (size % 256)
    data["long"] = value
    data["short"] = b"s"
    for _ in range(2):
        assert data["long"] == value
        assert data["short"] == b"s"


def test_delete_removes_a_key_with_its_ttl(data: Data) -> None:
    data.put("k", "v", ttl=60)
    data.delete("k")
    data.put("k", "v")
    assert data.ttl("k") is None
    del data["k"]
    assert "k" not in data


def test_put_if_absent_writes_once(data: Data) -> None:
    assert data.put_if_absent("k", "1", ttl=60) is True
    assert data.put_if_absent("k", "2") is False
    assert data["k"] == b"1"
    assert data.ttl("k") is not None


def test_count_includes_expired_keys_until_a_purge(db: KVStore) -> None:
    db._db.put_ttl(b"a", b"v", PAST)
    db["b"] = "v"
    assert db.count() == 2
    assert db.purge_expired() == 1
    assert db.count() == 1
    assert db.purge_expired() == 0


def test_clear_empties_only_its_family(db: KVStore) -> None:
    with db.create_column_family("other") as other:
        db.put("a", "1", ttl=60)
        other.put("a", "1")
        db.clear()
        assert db.count() == 0
        assert other.count() == 1
        other.clear()
        assert other.count() == 0


def test_ttl_is_rounded_down_to_milliseconds(data: Data) -> None:
    data.put("k", "v", ttl=60.0009)
    remaining = data.ttl("k")
    assert remaining is not None and remaining <= 60.0
    assert remaining == round(remaining, 3)


def test_ttl_accepts_any_argument_of_float(data: Data) -> None:
    data.put("k", "v", ttl="60")  # type: ignore[arg-type]
    assert data.ttl("k") is not None


@pytest.mark.parametrize(
    ("ttl", "error"), [(float("nan"), ValueError), (float("inf"), OverflowError), (1e300, OverflowError)]
)
def test_invalid_ttl_is_refused(data: Data, ttl: float, error: type[Exception]) -> None:
    with pytest.raises(error):
        data.put("k", "v", ttl=ttl)
    with pytest.raises(error):
        data.put_if_absent("k", "v", ttl=ttl)
    assert data.count() == 0


TWO_GIB = """
from kvstore.snkv import KVStore
try:
    long = bytes(2**31)  # the system allocates its memory only on access
except (MemoryError, OverflowError):
    raise SystemExit(0)
store = KVStore()
for db in store, store.create_column_family("other"):
    calls = {
        "key": [
            lambda: db.get(long), lambda: db[long], lambda: long in db, lambda: db.put(long, "v"), lambda: db.put(long, "v", 60),
            lambda: db.put(long, "v", -1), lambda: db.__setitem__(long, "v"), lambda: db.delete(long), lambda: db.ttl(long),
            lambda: db.exists(long), lambda: db.put_if_absent(long, "v"), lambda: db.iterator(prefix=long),
            lambda: db.iterator().seek(long), lambda: store._db.put_ttl(long, b"v", 0),
        ],
        "value": [
            lambda: db.put("k", long), lambda: db.put("k", long, 60), lambda: db.put("k", long, -1),
            lambda: db.__setitem__("k", long), lambda: db.__setitem__(("k", 60), long), lambda: db.put_if_absent("k", long),
            lambda: store._db.put_ttl(b"k", long, 0),
        ],
    }
    for what in calls:
        for number, call in enumerate(calls[what]):
            try:
                call()
                print(what, number, "nothing")
            except Exception as error:
                if type(error) is not ValueError or str(error) != what + " has 2147483648 bytes, more than 2 GiB":
                    print(what, number, type(error), str(error)[:200])
    assert db.count() == 0 and db.put("k", "v") is None and db.get("k") == b"v"
"""


@pytest.mark.files
def test_bytes_longer_than_c_length_raise_value_error(tmp_path: Path) -> None:
    # In a process of its own: a report of pytest's would show the bytes.
    assert_clean(run_python(TWO_GIB, cwd=tmp_path), "")


@pytest.mark.files
def test_ttl_of_a_just_expired_key_is_zero_once(db: KVStore) -> None:
    db._db.put_ttl(b"k", b"v", PAST)
    assert db.ttl("k") == 0.0
    with pytest.raises(NotFoundError):
        db.ttl("k")


def test_expired_key_is_hidden_from_every_read(db: KVStore) -> None:
    def dead() -> None:
        db._db.put_ttl(b"k", b"v", PAST)

    dead()
    assert db.get("k") is None
    dead()
    assert not db.exists("k")
    dead()
    assert list(db) == []
    dead()
    assert db.put_if_absent("k", "new")
    assert db["k"] == b"new"


def test_low_level_put_takes_expiry_time_and_zero_means_none(db: KVStore) -> None:
    db._db.put_ttl(b"k", b"v", int(time.time() * 1000) + 60_000)
    remaining = db.ttl("k")
    assert remaining is not None and 50 < remaining <= 61
    db._db.put_ttl(b"k", b"v", 0)
    assert db.ttl("k") is None
    with pytest.raises(TypeError):
        db._db.put_ttl(b"k", b"v", 1.5)  # type: ignore[arg-type]


def test_iteration_returns_pairs_in_byte_order(data: Data) -> None:
    for key in ("b", "a", "ä", "B"):
        data[key] = key
    assert list(data) == [(k, k) for k in (b"B", b"a", b"b", "ä".encode())]
    assert dict(iter(data))[b"a"] == b"a"
