"""``kvstore.DATA`` and ``kvstore.SignedPickle``: values come back as they were, and reading runs no code."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import ipaddress
import json
import pickle
import re
import uuid
import zoneinfo
from pathlib import Path
from typing import Any

import pytest
from helpers import BOMBS, Bomb
from hypothesis import given
from hypothesis import strategies as st

import kvstore
from kvstore import DATA, SignedPickle
from kvstore._data_codec import _JSON_TYPES, _TO_TAG


class Color(enum.Enum):
    RED = 1
    ROT = 1  # an alias
    BLUE = "b"


class Level(enum.IntEnum):
    LOW = 1


class Bits(enum.Flag):
    A = 1
    B = 2


@DATA.register
@dataclasses.dataclass(frozen=True)
class Point:
    x: Any
    y: Any = 0
    norm: float = dataclasses.field(init=False, default=0.0)


Pair = DATA.register(collections.namedtuple("Pair", "first second"))

ZONES = st.sampled_from([None, datetime.timezone.utc, datetime.timezone(datetime.timedelta(hours=5, minutes=30))])
HASHABLE = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=1 << 990, max_value=1 << 1010)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=()))
    | st.binary()
    | st.dates()
    | st.times()
    | st.datetimes(timezones=ZONES)
    | st.timedeltas()
    | st.decimals(allow_nan=False)
    | st.uuids()
    | st.complex_numbers(allow_nan=False)
    | st.sampled_from([Color.RED, Color.BLUE, Level.LOW, Bits.A])
)
KEYS = HASHABLE | st.tuples(HASHABLE, HASHABLE) | st.frozensets(HASHABLE, max_size=3) | st.builds(Pair, HASHABLE, HASHABLE)
VALUES = st.recursive(
    HASHABLE | KEYS | st.sets(KEYS, max_size=3),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(KEYS, inner, max_size=4)
        | st.dictionaries(st.sampled_from(["a", "$a", "$dict", "$", ""]), inner, max_size=3)
        | st.builds(Point, inner, inner)
    ),
    max_leaves=20,
)


def same(one: Any, two: Any) -> bool:
    """Return whether two values are equal and of the same types."""
    if type(one) is not type(two):
        return False
    if isinstance(one, (list, tuple)):
        return len(one) == len(two) and all(map(same, one, two))
    if isinstance(one, dict):
        return list(one) == list(two) and all(map(same, one, two)) and all(same(one[key], two[key]) for key in one)
    if isinstance(one, Point):
        return same(one.x, two.x) and same(one.y, two.y)
    if isinstance(one, (datetime.datetime, datetime.time)):
        return bool(one == two and one.fold == two.fold and one.tzinfo == two.tzinfo)
    return bool(one == two)


@given(VALUES)
def test_values_come_back_with_their_types(value: Any) -> None:
    assert same(DATA.loads(DATA.dumps(value)), value)


@given(st.binary())
def test_random_bytes_are_a_value_error_or_a_value(data: bytes) -> None:
    for start in (b"", b"\x01", b"\x02", b"\x03", b'{"$', b'{"$enum":["'):
        try:
            DATA.loads(start + data)
        except ValueError:
            pass


@given(st.sampled_from(sorted(__import__("kvstore._data_codec")._data_codec._FROM_TAG)), VALUES)
def test_tags_with_any_content_are_a_value_error_or_a_value(tag: str, content: Any) -> None:
    data = b'{"' + tag.encode() + b'":' + DATA.dumps([content])[1:-1] + b"}"
    try:
        DATA.loads(data)
    except ValueError:
        pass


def test_time_zones_keep_their_names_and_fold() -> None:
    berlin = zoneinfo.ZoneInfo("Europe/Berlin")
    for fold in (0, 1):
        value = datetime.datetime(2024, 10, 27, 2, 30, fold=fold, tzinfo=berlin)
        got = DATA.loads(DATA.dumps(value))
        assert got == value and got.tzinfo.key == "Europe/Berlin" and got.utcoffset() == value.utcoffset()


def test_format_is_json_that_others_can_read() -> None:
    assert DATA.dumps({"name": "Ada", "langs": ["py", None, True, 1.5]}) == b'{"name":"Ada","langs":["py",null,true,1.5]}'
    assert DATA.dumps({"t": (1, b"\0")}) == b'{"t":{"$tuple":[1,{"$bytes":"AA=="}]}}'
    assert DATA.dumps(b"\0\x80") == b"\x01\0\x80"
    assert DATA.loads(b'{ "a": [1, 2] }') == {"a": [1, 2]}
    assert DATA.dumps(Color.ROT) == json.dumps({"$enum": [__name__, "Color", "RED"]}, separators=(",", ":")).encode()


class Plain:
    pass


@dataclasses.dataclass
class Unregistered:
    x: int = 1


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (Plain(), r"test_data_codec\.Plain cannot be stored.*help\(kvstore\.DATA\).*serializer=pickle"),
        ([{"a": Plain()}], r"test_data_codec\.Plain cannot be stored"),
        (collections.OrderedDict(), "OrderedDict cannot be stored"),
        (Bits.A | Bits.B, "Bits cannot be stored"),
        (lambda: 1, "function cannot be stored"),
        (Unregistered(), r"call kvstore\.DATA\.register\(Unregistered\)"),
        (type("Text", (str,), {})("a"), "Text cannot be stored"),
    ],
)
def test_other_types_are_a_type_error_that_says_what_to_do(value: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        DATA.dumps(value)


#: Values that docs/reference/python.md and ``help(kvstore.DATA)`` say to convert.
REFUSED: list[Any] = [
    bytearray(b"b"), memoryview(b"b"), collections.OrderedDict(), collections.defaultdict(int), collections.Counter(),
    range(3), collections.deque(), Path("a"), fractions.Fraction(1, 2), ipaddress.ip_address("127.0.0.1"), ValueError("x"),
]  # fmt: skip


@pytest.mark.parametrize("value", REFUSED, ids=lambda value: type(value).__name__)
def test_documented_types_are_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="cannot be stored"):
        DATA.dumps(value)


def test_supported_types_are_documented() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs/reference/python.md").read_text()
    help_text = type(DATA).__doc__ or ""
    for kind in (*_JSON_TYPES - {type(None)}, *_TO_TAG, int, list, dict, tuple, set, frozenset):
        assert f"`{kind.__name__}`" in page and re.search(rf"\b{kind.__name__}\b", help_text), kind
    for value in REFUSED:
        name = type(value).__name__.replace("PosixPath", "Path").replace("WindowsPath", "Path").replace("ValueError", "exceptions")
        assert re.search(rf"\b{name}\b", page) and re.search(rf"\b{name}\b", help_text), value


def test_value_that_contains_itself_is_refused() -> None:
    ring: list[Any] = []
    ring.append(ring)
    with pytest.raises(ValueError, match="contains itself"):
        DATA.dumps(ring)
    with pytest.raises(ValueError):
        DATA.loads(b"[" * 100_000)


def test_register_refuses_what_is_no_dataclass_and_taken_names() -> None:
    with pytest.raises(TypeError, match="needs a dataclass or a named tuple"):
        DATA.register(Plain)
    with pytest.raises(ValueError, match="already registered"):
        DATA.register(Unregistered, f"{__name__}.Point")
    assert DATA._names.get(Unregistered) is None


def test_class_is_written_under_its_first_name_and_read_under_all() -> None:
    @dataclasses.dataclass
    class Renamed:
        x: int

    DATA.register(Renamed, "now")
    DATA.register(Renamed, "before")
    data = DATA.dumps(Renamed(1))
    assert b'"now"' in data
    assert DATA.loads(data) == DATA.loads(data.replace(b'"now"', b'"before"')) == Renamed(1)


def test_enums_are_looked_up_without_importing_or_running_code() -> None:
    import sys

    loaded = set(sys.modules)
    for module, path, member in [
        ("antigravity", "X", "x"), ("os", "system", "x"), ("builtins", "eval", "x"), ("enum", "EnumMeta", "x"),
        (__name__, "Color.RED", "value"), (__name__, "Color.__class__", "x"), ("", "", ""),
    ]:  # fmt: skip
        with pytest.raises(ValueError):
            DATA.loads(DATA.dumps({"x": [module, path, member]}).replace(b'"x":', b'"$enum":', 1))
    assert "antigravity" not in set(sys.modules) - loaded


def test_enum_lookup_loads_no_lazy_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util
    import sys

    (tmp_path / "lazy_enums.py").write_text("raise SystemExit('loaded')")
    spec = importlib.util.spec_from_file_location("lazy_enums", tmp_path / "lazy_enums.py")
    assert spec is not None and spec.loader is not None
    loader = importlib.util.LazyLoader(spec.loader)
    spec.loader = loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "lazy_enums", module)
    loader.exec_module(module)
    with pytest.raises(ValueError, match="no enum that was imported here"):
        DATA.loads(b'{"$enum":["lazy_enums","Color","RED"]}')


def test_enum_lookup_reads_no_property_of_an_object(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys
    from types import ModuleType

    class Settings:  # like django.conf.settings, which is loaded when its __class__ is read
        @property
        def __class__(self) -> Any:
            raise SystemExit("loaded")

    module = ModuleType("lazy_settings")
    module.settings = Settings()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "lazy_settings", module)
    with pytest.raises(ValueError, match="no enum that was imported here"):
        DATA.loads(b'{"$enum":["lazy_settings","settings","RED"]}')


def test_numpy_arrays_come_back_and_object_arrays_do_not() -> None:
    numpy = pytest.importorskip("numpy")
    for array in (
        numpy.arange(6, dtype="<i4").reshape(2, 3), numpy.array([]), numpy.array(1.5), numpy.array(["a", "bcd"]),
        numpy.array(["2024-01-01"], dtype="M8[D]"), numpy.arange(6).reshape(2, 3).T, numpy.array([True]),
    ):  # fmt: skip
        for value in (array, {"in": [array]}):
            got = DATA.loads(DATA.dumps(value))
            got = got if value is array else got["in"][0]
            assert got.dtype == array.dtype and got.shape == array.shape and (got == array).all()
            assert got.flags.writeable
    scalar = DATA.loads(DATA.dumps(numpy.float32(1.5)))
    assert type(scalar) is numpy.float32 and scalar == 1.5
    with pytest.raises(TypeError, match="dtype object"):
        DATA.dumps(numpy.array([Plain()]))
    with pytest.raises(ValueError):
        DATA.loads(b'\x02["|O8",[1]]\0' + bytes(8))


def test_store_with_the_codec(path: Path) -> None:
    with kvstore.open(path, codec=DATA, keys=str) as db:
        value = {"when": datetime.datetime(2024, 1, 1), "price": decimal.Decimal("1.10"), "id": uuid.uuid4()}
        db["a"] = value
        assert db["a"] == value
        assert db.incr("n") == 1 and db["n"] == 1
        assert repr(DATA) == "kvstore.DATA" and pickle.loads(pickle.dumps(DATA)) is DATA


# ---- hostile values ----------------------------------------------------------------------------


def test_pickle_explodes_where_it_is_unpickled() -> None:
    for payload in BOMBS:
        before = Bomb.exploded
        pickle.loads(payload)
        assert Bomb.exploded == before + 1  # the test below can fail at all


@pytest.mark.parametrize("payload", BOMBS)
def test_planted_pickle_is_refused(payload: bytes) -> None:
    before = Bomb.exploded
    for codec in (DATA, SignedPickle("secret")):
        for data in (payload, b"\x01" + payload, b"\x02" + payload, b"\x03" + payload, b"\x03" + bytes(32) + payload):
            try:
                codec.loads(data)
            except ValueError:
                pass
    with pytest.raises(ValueError, match="with pickle" if payload[0] == 0x80 else "damaged"):
        DATA.loads(payload)
    assert Bomb.exploded == before


def test_memoize_computes_again_and_runs_no_planted_pickle(path: Path) -> None:
    before = Bomb.exploded
    with kvstore.open(path) as db:

        @kvstore.memoize(db)
        def double(number: int) -> int:
            return 2 * number

        for payload in BOMBS:
            db.put(double.cache_key(4), payload)
            assert double(4) == 8 and db[double.cache_key(4)] == b"8"
    assert Bomb.exploded == before


def test_memoize_with_another_type_says_what_to_do(path: Path) -> None:
    with kvstore.open(path) as db:

        @kvstore.memoize(db)
        def plain() -> Plain:
            return Plain()

        with pytest.raises(TypeError, match="serializer=pickle"):
            plain()


def test_recipes_run_no_planted_pickle(path: Path) -> None:
    from kvstore.recipes import Lock, Queue, RateLimiter, Tags

    before = Bomb.exploded
    with kvstore.open(path) as db:
        queue = Queue(db, "q")
        queue.put("job")
        tags = Tags(db)
        tags.put("k", b"v", ["t"])
        limiter = RateLimiter(db, "r", 5)
        limiter.hit("u")
        lock = Lock(db, "l", ttl=60)
        lock.acquire()
        for payload in BOMBS:
            for name in db.families():
                family = db.family(name)
                for key in list(family.keys()):
                    family.put(key, payload, keep_ttl=True)
            for call in (
                lambda: queue.get(timeout=0), lambda: queue.put("x"), lambda: tags.keys("t"), lambda: tags.of("k"),
                lambda: limiter.hit("u"), lock.locked, lock.owned, lock.release,
            ):  # fmt: skip
                try:
                    call()
                except Exception:  # noqa: BLE001, S110 # damaged state may be any error, but runs no code
                    pass
    assert Bomb.exploded == before


# ---- signed pickles ----------------------------------------------------------------------------


def test_signed_pickle_accepts_only_its_secrets() -> None:
    one, two = SignedPickle("one"), SignedPickle(b"two")
    both = SignedPickle("two", "one")
    value = {"a": Plain}
    assert one.loads(one.dumps(value)) == value
    assert both.loads(one.dumps(value)) == both.loads(two.dumps(value)) == value
    assert two.loads(both.dumps(value)) == value
    with pytest.raises(ValueError, match="no valid signature"):
        one.loads(two.dumps(value))
    assert "one" not in repr(one)


@given(st.integers(min_value=0), st.integers(min_value=1, max_value=255))
def test_signed_pickle_with_a_changed_byte_is_refused(at: int, change: int) -> None:
    codec = SignedPickle("secret")
    data = bytearray(codec.dumps(["value", 1]))
    data[at % len(data)] ^= change
    with pytest.raises(ValueError, match="no valid signature"):
        codec.loads(bytes(data))


def test_signed_pickle_needs_a_secret() -> None:
    with pytest.raises(ValueError, match="secret is empty"):
        SignedPickle("")
    with pytest.raises(TypeError, match="secret must be str or bytes, not int"):
        SignedPickle(5)  # type: ignore[arg-type]
