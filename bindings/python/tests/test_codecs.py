"""Codecs and keys=str: values and keys are Python objects in every method; without them, bytes."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from helpers import Clock, Prefixed, name_of

import kvstore


@dataclass(frozen=True)
class Person:
    name: str
    born: date


#: A codec, and two values it can encode.
CODECS: dict[str, tuple[Any, Any, Any]] = {
    "TEXT": (kvstore.TEXT, "Ada", ""),
    "JSON": (kvstore.JSON, {"name": "Ada", "tags": ["é", None, 1.5]}, None),
    "PICKLE": (kvstore.PICKLE, Person("Ada", date(1815, 12, 10)), None),
    "json": (json, [1, 2, 3], None),
    "pickle": (pickle, {1, 2}, b"bytes"),
    "one that makes text": (Prefixed("<"), "Ada", "Grace"),
    "none": (None, b"Ada", b"\xff"),
}


@pytest.fixture(params=CODECS)
def case(request: pytest.FixtureRequest, path: Path, clock: Clock) -> Iterator[tuple[Any, Any, Any]]:
    """A family whose keys are str, and two values for it."""
    codec, one, two = CODECS[request.param]
    with kvstore.open(path, sync="off", codec=codec, keys=str) as store:
        store.set_clock(clock)
        yield store, one, two


def test_values_round_trip_through_codec(case: Any) -> None:
    db, one, two = case
    db["a"] = one
    db.put("b", two, ttl=30)
    assert (db["a"], db["b"]) == (one, two)
    assert type(db["a"]) is type(one)
    assert (db.get("a"), db.get("b"), db.get("c"), db.get("c", 7)) == (one, two, None, 7)
    assert db.get("b", 7) == two
    assert "a" in db and db.has_key("a") and not db.has_key("c")
    with pytest.raises(KeyError):
        db["c"]


def test_conditional_writes_use_codec(case: Any) -> None:
    db, one, two = case
    assert db.put("a", one, ttl=30, if_absent=True)
    assert not db.put("a", two, if_absent=True)
    assert db.put("a", two, if_present=True, keep_ttl=True)
    assert (db["a"], db.ttl("a")) == (two, 30.0)
    assert not db.add("a", one) and db.add("b", one)
    assert db.setdefault("b", two) == one
    assert db.setdefault("c", two) == two == db["c"]
    assert not db.compare_and_swap("b", two, one)
    assert db.compare_and_swap("b", one, two) and db["b"] == two
    assert not db.compare_and_swap("missing", two, one)
    assert not db.compare_and_delete("b", one) and db.compare_and_delete("b", two)
    assert not db.compare_and_delete("b", two)
    assert "b" not in db


def test_removing_calls_return_decoded_value(case: Any) -> None:
    db, one, two = case
    db.update({"a": one, "b": two, "c": one, "d": two})
    assert db.pop("a") == one
    assert db.pop("a", 7) == 7
    assert db.pop("b", 7) == two
    with pytest.raises(KeyError):
        db.pop("b")
    assert db.popitem() == ("c", one)
    assert db.pop_many(["d", "missing"]) == {"d": two}
    with pytest.raises(KeyError):
        db.popitem()


def test_many_key_calls_and_batches_use_codec(case: Any) -> None:
    db, one, two = case
    assert db.put_many({"a": one}, ttl=5) == 1
    assert db.set_many([("b", two)]) == 1
    db.update({"c": one}, d=two)
    assert db.get_many(["a", b"b", "c", "missing"]) == {"a": one, b"b": two, "c": one}
    with db.batch() as batch:
        batch.put("e", two)
        batch.delete("a")
        batch.put("raw", b"v", family=db.family("raw", create=True, codec=None))
    assert db["e"] == two
    assert db.family("raw", codec=None)["raw"] == b"v"
    assert db.delete_many(["b", "c", "missing"]) == 2
    assert list(db) == ["d", "e"]


def test_iteration_in_all_directions_decodes_values(case: Any) -> None:
    db, one, two = case
    rows = [("a", one), ("b", two), ("c", one)]
    db.put_many(rows)
    assert list(db) == ["a", "b", "c"] == list(db.keys())
    assert list(reversed(db)) == ["c", "b", "a"]
    assert list(db.values()) == [one, two, one]
    assert list(db.items()) == rows == list(reversed(list(reversed(db.items()))))
    assert list(db.items(prefix="b")) == [("b", two)]
    assert list(db.items(start="b", reverse=True, limit=1)) == [("c", one)]
    assert list(reversed(db.values(limit=2))) == [two, one]
    assert ("a", one) in db.items() and ("a", two) not in db.items() and ("x", None) not in db.items()
    assert one in db.values() and "a" in db.keys() and "x" not in db.keys()
    assert db.keys() & {"a", "x"} == {"a"}
    assert dict(db) == dict(rows)
    for key in db:
        del db[key]
    assert len(db) == 0


def test_values_with_ttl_are_decoded(case: Any, clock: Clock) -> None:
    db, one, two = case
    db.put("a", one, ttl=10)
    db["b"] = two
    assert db.get_with_ttl("a") == (one, 10.0)
    assert db.get_with_ttl("b") == (two, None)
    assert db.get_with_ttl("c") is None
    assert db.get_and_touch("a", 20) == one
    assert db.get_and_touch("c", 20, 7) == 7
    assert list(db.expiring()) == [("a", clock.now_s + 20)]
    assert list(db.rows("missing")) == []


def test_row_keys_work_with_codec(case: Any) -> None:
    db, one, two = case
    db[kvstore.row_key("p", "1")] = one
    db[kvstore.row_key("p", "2")] = two
    assert list(db.rows("p")) == [("1", one), ("2", two)]
    assert list(db.rows("p", reverse=True, limit=1)) == [("2", two)]


def test_none_is_a_value_if_codec_supports_it(path: Path) -> None:
    with kvstore.open(path, codec=kvstore.JSON) as db:
        db["k"] = None
        assert "k" in db and db["k"] is None
        assert db.get("k", "default") is None
        assert db.setdefault("k", 1) is None
        assert db.get_and_touch("k", 5, "default") is None
        assert db.get_many(["k"]) == {"k": None}
        assert db.compare_and_swap("k", None, 1) and db["k"] == 1
        db["k"] = None
        assert db.pop("k", "default") is None
        assert "k" not in db


def test_file_contains_encoded_values_but_not_the_codec(path: Path) -> None:
    with kvstore.open(path, codec=kvstore.JSON, keys=str) as db:
        db["k"] = {"é": [1, 2]}
    with kvstore.open(path) as db:
        assert list(db.items()) == [(b"k", '{"é":[1,2]}'.encode())]
        db["k"] = "text"
    with kvstore.open(path, codec=kvstore.TEXT) as db:
        assert list(db.items()) == [(b"k", "text")]
    with kvstore.open(path, codec=kvstore.JSON) as db, pytest.raises(ValueError):
        db["k"]


def test_family_inherits_codec_of_store_unless_overridden(path: Path) -> None:
    with kvstore.open(path, codec=kvstore.JSON, keys=str) as db:
        same = db.family("f", create=True)
        same["k"] = [1]
        assert list(same.items()) == [("k", [1])]
        assert list(db.family("f", codec=None).items()) == [("k", b"[1]")]
        assert list(db.family("f", keys=bytes).items()) == [(b"k", [1])]
        assert list(db.family("f", codec=kvstore.TEXT, keys=bytes).items()) == [(b"k", "[1]")]
        assert type(db.family("f", codec=None, keys=bytes)) is kvstore.Family
    with kvstore.open(path) as db:
        assert type(db) is kvstore.Store
        assert list(db.family("f", keys=str).items()) == [("k", b"[1]")]
        assert db.family("f", codec=kvstore.JSON)["k"] == [1]


@pytest.mark.parametrize("codec", [kvstore.JSON, kvstore.TEXT, json, None], ids=name_of)
def test_incr_and_codec_read_values_of_each_other(path: Path, codec: Any) -> None:
    number = {kvstore.TEXT: "41", None: b"41"}.get(codec, 41) if codec is not json else 41
    with kvstore.open(path, codec=codec, keys=str) as db:
        db["n"] = number
        assert (db.incr("n"), db.decr("n", 2)) == (42, 40)
        assert db["n"] == {kvstore.TEXT: "40", None: b"40"}.get(codec, 40)


@pytest.mark.parametrize("codec", [kvstore.PICKLE, pickle, Prefixed("<")], ids=name_of)
def test_incr_with_codec_without_numbers_raises_type_error(path: Path, codec: Any) -> None:
    with kvstore.open(path, codec=codec) as db:
        for count in (db.incr, db.decr):
            with pytest.raises(TypeError, match="decimal text"):
                count("n")
        assert len(db) == 0


def test_compare_calls_compare_values_not_bytes(path: Path) -> None:
    with kvstore.open(path, codec=kvstore.JSON) as db:
        db["k"] = {"a": 1, "b": 2}
        assert db.compare_and_swap("k", {"b": 2, "a": 1}, 5)
        db["k"] = {"a": 1, "b": 2}
        assert db.compare_and_delete("k", {"b": 2, "a": 1})


@pytest.mark.parametrize("codec", [5, "json", object(), print, type("Half", (), {"dumps": str})()], ids=name_of)
@pytest.mark.files
def test_invalid_codec_raises_type_error_with_requirements(path: Path, codec: Any) -> None:
    with pytest.raises(TypeError, match="dumps and loads"):
        kvstore.open(path, codec=codec)
    assert not path.exists()
    with kvstore.open(path) as db, pytest.raises(TypeError, match="dumps and loads"):
        db.family("f", create=True, codec=codec)


@pytest.mark.parametrize("keys", [int, "str", None, object()])
def test_keys_option_must_be_str_or_bytes_type(path: Path, keys: Any) -> None:
    with pytest.raises(TypeError, match="the type str or the type bytes"):
        kvstore.open(path, keys=keys)


def test_value_refused_by_codec_is_not_written(path: Path) -> None:
    class Wrong:
        def dumps(self, value: Any) -> Any:
            return value

        def loads(self, data: bytes) -> Any:
            return data

    with kvstore.open(path, codec=kvstore.JSON) as db:
        writes = [
            lambda: db.put("k", object()), lambda: db.__setitem__("k", {1, 2}), lambda: db.add("k", object()),
            lambda: db.setdefault("k", object()), lambda: db.update(k=object()),
            lambda: db.put_many({"a": 1, "k": object()}), lambda: db.compare_and_swap("k", 1, object()),
        ]  # fmt: skip
        for write in writes:
            with pytest.raises(TypeError):
                write()
        assert len(db) == 0
        text = db.family("t", create=True, codec=kvstore.TEXT)
        for value in (b"bytes", 1, None):
            with pytest.raises(TypeError, match="TEXT"):
                text["k"] = value
        wrong = db.family("t", codec=Wrong())
        with pytest.raises(TypeError, match="dumps"):
            wrong["k"] = 5
        assert len(text) == 0


def test_value_unreadable_by_codec_is_not_removed(path: Path) -> None:
    with kvstore.open(path, codec=kvstore.JSON) as db:
        db.family("default", codec=None)["k"] = b"not json"
        for remove in (lambda: db.pop("k"), lambda: db.pop("k", 1), db.popitem, lambda: db.pop_many(["k"])):
            with pytest.raises(ValueError):
                remove()
        with db.transaction(), pytest.raises(ValueError):
            db.pop_many(["k"])
        assert list(db) == [b"k"]


def test_codec_exception_keeps_iteration_usable(path: Path) -> None:
    with kvstore.open(path) as db:
        db.put_many({b"a": b"1", b"b\xff": b"not json", b"c": b"3"}, ttl=60)
        coded = db.family("default", codec=kvstore.JSON, keys=str)
        for rows, first, last in (
            (coded.values(), 1, 3), (coded.keys(), "a", "c"), (coded.items(), ("a", 1), ("c", 3)),
            (map(lambda row: row[0], coded.expiring()), "a", "c"),
        ):  # fmt: skip
            iterator = iter(rows)
            assert next(iterator) == first
            with pytest.raises(ValueError):
                next(iterator)
            assert next(iterator) == last


def test_memoize_uses_own_serializer_despite_codec(path: Path) -> None:
    with kvstore.open(path, codec=kvstore.JSON, keys=str) as db:
        calls = []

        @kvstore.memoize(db, ttl=60)
        def square(x: int) -> set[int]:
            calls.append(x)
            return {x * x}

        assert square(3) == square(3) == {9}
        assert calls == [3]
        assert square.cache_clear() == 1


def test_store_with_codec_supports_all_other_features(path: Path, tmp_path: Path) -> None:
    with kvstore.open(path, codec=kvstore.JSON, keys=str) as db:
        with pytest.raises(ZeroDivisionError):
            with db.transaction():
                db["k"] = [1]
                1 / 0
        db["k"] = [1]
        db.backup(tmp_path / "copy.db")
        assert repr(db).startswith("<kvstore.Store")
        assert repr(db.family("f", create=True)) == "<kvstore.Family 'f'>"
        assert isinstance(db, kvstore.Store) and isinstance(db.family("f"), kvstore.Family)
    with kvstore.Store(tmp_path / "copy.db", codec=kvstore.JSON) as copy:
        assert copy["k"] == [1]


def test_store_subclass_refuses_codec_argument(path: Path) -> None:
    class Mine(kvstore.Store):
        pass

    with pytest.raises(TypeError, match="codec"):
        Mine(path, codec=kvstore.JSON)
    with Mine(path) as db:
        db["k"] = b"v"


def test_value_of_other_codec_raises_explaining_error(path: Path) -> None:
    with kvstore.open(path, codec=kvstore.PICKLE) as db:
        db["k"] = {1}
        for codec in (kvstore.JSON, kvstore.TEXT):
            with pytest.raises(kvstore.Error, match=f"the codec {codec!r} cannot decode a value of family 'default'") as e:
                db.family("default", codec=codec)["k"]
            assert isinstance(e.value, ValueError) and isinstance(e.value.__cause__, ValueError)
        db.family("default", codec=None)["k"] = b"text"
        with pytest.raises(kvstore.InvalidError, match="kvstore.PICKLE cannot decode .* open the family with the codec that wrote it") as e:
            list(db.values())
        assert type(e.value.__cause__).__name__ == "UnpicklingError"


def test_non_utf8_key_raises_explaining_error(path: Path) -> None:
    with kvstore.open(path, keys=str) as db:
        db.put(b"\xff", b"1", ttl=60)
        for show in (
            lambda: list(db), lambda: list(db.items()), db.popitem, lambda: list(db.expiring()),
            lambda: list(db.keys(reverse=True)),
        ):  # fmt: skip
            with pytest.raises(kvstore.InvalidError, match="a key of family 'default' is not valid UTF-8.*keys=bytes"):
                show()
        assert db[b"\xff"] == b"1" and list(db.family("default", keys=bytes)) == [b"\xff"]
