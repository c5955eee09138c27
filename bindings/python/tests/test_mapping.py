"""Store and Family as mappings over live keys: everything collections.abc.MutableMapping promises."""

from __future__ import annotations

import collections.abc
import threading
import time
from array import array
from pathlib import Path
from typing import Any

import pytest
from helpers import Clock

import kvstore


@pytest.fixture(params=["store", "default family", "other family"])
def data(request: pytest.FixtureRequest, db: kvstore.Store) -> Any:
    """The three kinds of objects that share the data methods."""
    if request.param == "store":
        return db
    if request.param == "default family":
        return db.family("default")
    return db.family("other", create=True)


def test_store_and_a_family_are_mutable_mappings(data: Any) -> None:
    assert isinstance(data, collections.abc.MutableMapping)


def test_stored_value_is_returned_as_bytes(data: Any) -> None:
    data["key"] = b"value"
    assert data["key"] == b"value"
    assert type(data["key"]) is bytes


#: Lengths next to that of the buffer for short values, and one of many pages.
LENGTHS = (16_383, 16_384, 16_385, 1_000_003)


@pytest.mark.parametrize("length", LENGTHS)
def test_long_value_is_returned_whole(data: Any, length: int) -> None:
    value = bytes(n * 31 % 251 for n in range(length))
    data["key"] = value
    assert data["key"] == value and data.get("key") == value
    del data["key"]
    assert data.get("key") is None


def test_long_value_is_one_value_while_a_thread_replaces_it(path: Path) -> None:
    values = [bytes([n]) * length for n, length in enumerate((*LENGTHS, 100, 400_000))]
    with kvstore.open(path) as db:
        db["key"] = values[0]
        stop = threading.Event()

        def replace() -> None:
            while not stop.is_set():
                for value in values:
                    db["key"] = value

        writer = threading.Thread(target=replace)
        writer.start()
        found = set()
        deadline = time.monotonic() + 30
        try:
            while len(found) < len(values) and time.monotonic() < deadline:
                found.add(db["key"])
        finally:
            stop.set()
            writer.join()
    assert found == set(values)


def test_text_is_stored_as_utf_8(data: Any) -> None:
    data["clé"] = "valeur é €"
    assert data["clé".encode()] == "valeur é €".encode()


@pytest.mark.parametrize(
    "buffer",
    [b"ab", bytearray(b"ab"), memoryview(b"ab"), memoryview(b"xabx")[1:3], memoryview(bytearray(b"ab")), array("B", b"ab")],
    ids=["bytes", "bytearray", "memoryview", "slice", "writable memoryview", "array"],
)
def test_every_bytes_like_object_may_be_key_and_value(data: Any, buffer: Any) -> None:
    data[buffer] = buffer
    assert data[b"ab"] == b"ab"
    assert data[buffer] == b"ab"
    assert buffer in data
    assert data.delete(buffer)


def test_memoryview_of_wide_items_is_stored_as_bytes(data: Any) -> None:
    view = memoryview(array("H", [0x4142, 0x4344]))
    data["wide"] = view
    assert data["wide"] == view.tobytes()


def test_strided_memoryview_is_copied_or_refused(data: Any) -> None:
    view = memoryview(b"a1b2c3")[::2]
    try:
        data["gaps"] = view
    except (BufferError, ValueError, TypeError):
        assert "gaps" not in data
    else:
        assert data["gaps"] == b"abc"


def test_all_byte_values_round_trip(data: Any) -> None:
    everything = bytes(range(256))
    data[everything] = everything
    assert data[everything] == everything
    assert list(data) == [everything]


def test_key_containing_nul_is_not_truncated(data: Any) -> None:
    data["a\0b"] = b"1\x002"
    assert "a" not in data
    assert data["a\0b"] == b"1\x002"


def test_empty_value_is_stored(data: Any) -> None:
    data["empty"] = b""
    assert data["empty"] == b""
    assert data.get("empty", b"x") == b""
    assert "empty" in data


def test_missing_key_raises_key_error(data: Any) -> None:
    with pytest.raises(KeyError):
        data["missing"]
    with pytest.raises(kvstore.NotFoundError):
        data["missing"]


def test_del_of_missing_key_raises_key_error(data: Any) -> None:
    with pytest.raises(KeyError):
        del data["missing"]


def test_del_removes_a_key(data: Any) -> None:
    data["k"] = b"v"
    del data["k"]
    assert "k" not in data


def test_delete_returns_whether_key_existed(data: Any) -> None:
    data["k"] = b"v"
    assert data.delete("k") is True
    assert data.delete("k") is False


def test_get_returns_default_for_missing_key(data: Any) -> None:
    marker = object()
    assert data.get("missing") is None
    assert data.get("missing", marker) is marker
    assert data.get("missing", default=marker) is marker


def test_in_is_false_for_a_missing_key(data: Any) -> None:
    assert "missing" not in data
    data["missing"] = b""
    assert "missing" in data


def test_len_counts_live_keys(data: Any, clock: Clock) -> None:
    assert len(data) == 0
    data["a"] = b"1"
    data.put("b", b"2", ttl=10)
    assert len(data) == 2
    clock.advance(10)
    assert len(data) == 1


def test_store_with_keys_is_truthy(data: Any) -> None:
    data["a"] = b"1"
    assert data


def test_iteration_returns_keys_in_byte_order(data: Any) -> None:
    for key in (b"b", b"a", b"\xff", b"aa", b"B"):
        data[key] = b""
    assert list(data) == [b"B", b"a", b"aa", b"b", b"\xff"]


def test_keys_values_and_items_agree(data: Any) -> None:
    data.update({"a": b"1", "b": b"2"})
    assert list(data.keys()) == [b"a", b"b"]
    assert list(data.values()) == [b"1", b"2"]
    assert list(data.items()) == [(b"a", b"1"), (b"b", b"2")]


def test_pop_returns_value_and_removes_key(data: Any) -> None:
    data["k"] = b"v"
    assert data.pop("k") == b"v"
    assert "k" not in data


def test_pop_of_a_missing_key_raises_key_error_without_a_default(data: Any) -> None:
    with pytest.raises(KeyError):
        data.pop("missing")
    assert data.pop("missing", None) is None
    assert data.pop("missing", b"d") == b"d"


def test_popitem_removes_one_entry_until_empty(data: Any) -> None:
    data.update({"a": b"1", "b": b"2"})
    assert {data.popitem(), data.popitem()} == {(b"a", b"1"), (b"b", b"2")}
    with pytest.raises(KeyError):
        data.popitem()


def test_setdefault_writes_only_if_the_key_is_missing(data: Any) -> None:
    assert data.setdefault("k", b"1") == b"1"
    assert data.setdefault("k", b"2") == b"1"
    assert data["k"] == b"1"


def test_setdefault_replaces_an_expired_key(data: Any, clock: Clock) -> None:
    data.put("k", b"old", ttl=1)
    clock.advance(1)
    assert data.setdefault("k", b"new") == b"new"


def test_setdefault_returns_stored_bytes_even_for_text(data: Any) -> None:
    assert data.setdefault("k", "é") == "é".encode()


def test_update_takes_mappings_pairs_and_names(data: Any) -> None:
    data.update({"a": b"1"})
    data.update([("b", b"2"), (b"c", "3")])
    data.update(d=b"4")
    assert dict(data.items()) == {b"a": b"1", b"b": b"2", b"c": b"3", b"d": b"4"}


def test_failed_update_changes_nothing(data: Any) -> None:
    with pytest.raises(TypeError):
        data.update([("a", b"1"), ("b", object())])
    assert len(data) == 0


def test_clear_empties_only_its_family(db: kvstore.Store) -> None:
    other = db.family("other", create=True)
    db["k"] = b"1"
    other["k"] = b"2"
    db.clear()
    assert len(db) == 0
    assert dict(other.items()) == {b"k": b"2"}


def test_clear_removes_expired_rows_too(data: Any, clock: Clock) -> None:
    data.put("k", b"v", ttl=1)
    clock.advance(2)
    data.clear()
    assert data.count(expired=True) == 0


def test_tuple_as_key_raises_and_names_put_and_row_key(data: Any) -> None:
    for key in (("otp", 30), ("group", 1, 2), ()):
        for call in (
            lambda: data.__setitem__(key, b"1"),
            lambda: data.put(key, b"1"),
            lambda: data[key],
            lambda: data.get(key),
            lambda: key in data,
            lambda: data.put_many({key: b"1"}),
        ):
            with pytest.raises(TypeError, match=r"not tuple: give a TTL by put.*kvstore\.row_key"):
                call()
    assert data.count() == 0


def test_plain_subscript_clears_the_ttl(data: Any) -> None:
    data.put("k", b"1", ttl=30)
    data["k"] = b"2"
    assert data.ttl("k") is None


@pytest.mark.parametrize("bad", [None, 1, 1.5, object(), ["k"], {"k"}, True])
def test_key_of_wrong_type_raises_type_error(data: Any, bad: Any) -> None:
    for call in (
        lambda: data[bad],
        lambda: data.__setitem__(bad, b""),
        lambda: data.__delitem__(bad),
        lambda: data.get(bad),
        lambda: data.put(bad, b""),
        lambda: data.delete(bad),
        lambda: data.ttl(bad),
        lambda: data.pop(bad),
        lambda: data.setdefault(bad, b""),
    ):
        with pytest.raises(TypeError, match="key"):
            call()


@pytest.mark.parametrize("bad", [None, 1, 1.5, object(), [b"v"], True])
def test_value_of_wrong_type_raises_type_error(data: Any, bad: Any) -> None:
    for call in (
        lambda: data.__setitem__("k", bad),
        lambda: data.put("k", bad),
        lambda: data.add("k", bad),
        lambda: data.update({"k": bad}),
        lambda: data.setdefault("k", bad),
        lambda: data.put_many({"k": bad}),
    ):
        with pytest.raises(TypeError, match="value"):
            call()
    assert len(data) == 0


@pytest.mark.parametrize("bad", [(), ("a",), ("a", 1, 2)])
def test_malformed_subscript_raises_type_error(data: Any, bad: Any) -> None:
    with pytest.raises(TypeError, match="key"):
        data[bad] = b""
    with pytest.raises(TypeError, match="key"):
        data[bad]


def test_number_in_a_subscript_is_not_looked_up(data: Any) -> None:
    with pytest.raises(TypeError):
        data["k", 30]


def test_empty_key_raises_value_error(data: Any) -> None:
    for call in (lambda: data.put("", b""), lambda: data[""], lambda: data.get(b""), lambda: data.delete(b"")):
        with pytest.raises(ValueError, match="key"):
            call()


@pytest.mark.files
def test_key_has_at_most_65536_bytes(data: Any) -> None:
    data[b"k" * 65536] = b"v"
    assert data[b"k" * 65536] == b"v"
    with pytest.raises(ValueError, match="key"):
        data[b"k" * 65537] = b"v"
    with pytest.raises(ValueError, match="key"):
        data.get("é" * 32769)


def test_lone_surrogate_raises_value_error(data: Any) -> None:
    with pytest.raises(ValueError):
        data["\ud800"] = b""
    with pytest.raises(ValueError):
        data["k"] = "\ud800"


def test_value_size_limit_is_10_mib_by_default(data: Any) -> None:
    data["k"] = b"v" * (10 << 20)
    assert len(data["k"]) == 10 << 20
    with pytest.raises(ValueError, match="value"):
        data["k"] = b"v" * ((10 << 20) + 1)
    assert len(data["k"]) == 10 << 20


def test_expired_key_is_missing_for_every_lookup(data: Any, clock: Clock) -> None:
    def asks() -> list[Any]:
        return [
            "k" in data,
            data.get("k"),
            list(data),
            list(data.items()),
            list(data.values()),
            len(data),
            data.get_many(["k"]),
            data.pop("k", None),
            data.delete("k"),
        ]

    data.put("k", b"v", ttl=1)
    clock.advance(1)
    assert asks()[:6] == [False, None, [], [], [], 0]
    assert asks()[7:] == [None, False]
    with pytest.raises(KeyError):
        data["k"]


def test_store_is_its_default_family(db: kvstore.Store) -> None:
    db["k"] = b"v"
    assert db.family("default")["k"] == b"v"


def test_families_are_isolated(db: kvstore.Store) -> None:
    one, two = db.family("one", create=True), db.family("two", create=True)
    one["k"] = b"1"
    assert "k" not in two
    assert "k" not in db


def test_get_many_accepts_every_bytes_like_key(data: Any) -> None:
    data["a"] = b"1"
    assert list(data.get_many([bytearray(b"a")]).values()) == [b"1"]
    assert list(data.get_many([memoryview(b"a")]).values()) == [b"1"]


def test_get_many_returns_existing_keys(data: Any) -> None:
    data.update({"a": b"1", "b": b"2"})
    assert data.get_many(["b", "missing", "a", "b"]) == {"b": b"2", "a": b"1"}
    assert data.get_many([b"b", "a"]) == {b"b": b"2", "a": b"1"}
    assert data.get_many([f"{n}" for n in range(10_000)] + ["a"]) == {"a": b"1"}


def test_get_many_accepts_any_iterable_even_empty(data: Any) -> None:
    data["a"] = b"1"
    assert data.get_many(key for key in ["a"]) == data.get_many(("a",))
    assert not data.get_many([])


def test_get_many_refuses_str_instead_of_list_of_keys(data: Any) -> None:
    for wrong in ("abc", b"abc"):
        with pytest.raises(TypeError):
            data.get_many(wrong)


def test_get_many_with_one_invalid_key_fails(data: Any) -> None:
    with pytest.raises(TypeError, match="key"):
        data.get_many(["a", 1])
    with pytest.raises(ValueError, match="key"):
        data.get_many(["a", ""])


def test_put_many_writes_all_with_one_ttl(data: Any) -> None:
    data.put_many({"a": b"1", "b": b"2"}, ttl=5)
    data.put_many([("c", b"3")])
    assert [data.ttl(k) for k in "abc"] == [5, 5, None]


def test_put_many_is_all_or_nothing(data: Any) -> None:
    with pytest.raises(ValueError, match="key"):
        data.put_many([("a", b"1"), ("", b"2")])
    assert len(data) == 0


def test_put_many_with_failing_iterator_changes_nothing(data: Any) -> None:
    def pairs() -> Any:
        yield "a", b"1"
        raise RuntimeError("the caller's")

    with pytest.raises(RuntimeError, match="the caller's"):
        data.put_many(pairs())
    assert len(data) == 0
    data["still"] = b"works"


def test_equality_is_identity_and_hash_works_or_raises(db: kvstore.Store) -> None:
    assert db == db
    other = db.family("other", create=True)
    try:
        hash(other)
    except TypeError:
        pass


def test_repr_shows_neither_keys_nor_values(data: Any) -> None:
    data["secret-key"] = b"secret-value"
    assert "secret" not in repr(data)
    assert "secret" not in str(data)


@pytest.mark.parametrize("name", ["copy", "fromkeys", "__or__"])
def test_dict_methods_that_copy_are_absent(data: Any, name: str) -> None:
    assert not hasattr(data, name)


def test_subclass_of_str_or_bytes_cannot_fake_its_length(data: Any) -> None:
    """A wrong length from a caller's class must not reach C, which would read past the bytes."""

    class LongBytes(bytes):
        def __len__(self) -> int:
            return 60_000

    class Text(str):
        def encode(self, *args: Any, **kwargs: Any) -> Any:
            return LongBytes(b"abc")

    data["k"] = LongBytes(b"xyz")
    assert data["k"] == b"xyz"
    data[LongBytes(b"xyz")] = b"v"
    assert data["xyz"] == b"v"
    data["k"] = Text("abc")
    assert len(data["k"]) == 3
    data[Text("abc")] = b"v"
    data.put_many({Text("abc"): Text("abc")})
    assert max(map(len, data)) == max(map(len, data.values())) == 3
    assert data.get_many([Text("abc")]) == {"abc": b"abc"}
    assert list(data.keys(prefix=Text("abc"))) == [b"abc"]
