"""TTLs and expiry times in Python: docs/reference/ttl.md, in seconds."""

from __future__ import annotations

import datetime
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import START_S, Clock

import kvstore
from kvstore import _time
from kvstore._native import NULL, ffi, lib

UTC = datetime.timezone.utc


def test_key_is_live_until_its_ttl_ends(db: kvstore.Store, clock: Clock) -> None:
    db.put("k", b"v", ttl=10)
    clock.advance(9.999)
    assert db["k"] == b"v"
    clock.advance(0.001)
    assert "k" not in db


def test_ttl_returns_remaining_seconds(db: kvstore.Store, clock: Clock) -> None:
    db.put("k", b"v", ttl=10)
    clock.advance(2.5)
    assert db.ttl("k") == 7.5
    assert type(db.ttl("k")) is float


def test_ttl_is_none_for_key_without_ttl(db: kvstore.Store) -> None:
    db["k"] = b"v"
    assert db.ttl("k") is None


def test_ttl_of_a_missing_or_expired_key_raises_key_error(db: kvstore.Store, clock: Clock) -> None:
    with pytest.raises(KeyError):
        db.ttl("missing")
    db.put("k", b"v", ttl=1)
    clock.advance(1)
    for _ in range(2):
        with pytest.raises(KeyError):
            db.ttl("k")


@pytest.mark.parametrize(
    "ttl, seconds",
    [
        (1, 1.0),
        (0.25, 0.25),
        (datetime.timedelta(seconds=90), 90.0),
        (datetime.timedelta(milliseconds=1), 0.001),
        (datetime.timedelta(days=365), 365 * 86400.0),
    ],
)
def test_ttl_is_a_number_of_seconds_or_a_timedelta(db: kvstore.Store, ttl: Any, seconds: float) -> None:
    db.put("k", b"v", ttl=ttl)
    assert db.ttl("k") == seconds


def test_fractions_of_millisecond_are_rounded_up(db: kvstore.Store) -> None:
    db.put("k", b"v", ttl=0.0001)
    assert db.ttl("k") == 0.001
    db.put("k", b"v", ttl=datetime.timedelta(microseconds=1001))
    assert db.ttl("k") == 0.002


@pytest.mark.parametrize("tenth", range(1, 100, 7))
def test_decimal_ttl_is_exact_to_millisecond(db: kvstore.Store, tenth: int) -> None:
    """Errors of binary fractions must not turn 4.35 s into 4351 ms."""
    db.put("k", b"v", ttl=tenth / 100)
    assert db.ttl("k") == tenth / 100


@pytest.mark.parametrize("ttl", [0, 0.0, -1, -0.5, datetime.timedelta(0), datetime.timedelta(seconds=-1)])
def test_ttl_of_zero_or_less_raises_value_error(db: kvstore.Store, ttl: Any) -> None:
    for call in (
        lambda: db.put("k", b"v", ttl=ttl),
        lambda: db.add("k", b"v", ttl=ttl),
        lambda: db.incr("k", ttl=ttl),
        lambda: db.setdefault("k", b"v", ttl=ttl),
        lambda: db.put_many({"k": b"v"}, ttl=ttl),
        lambda: db.batch().put("k", b"v", ttl=ttl),
    ):
        with pytest.raises(ValueError, match="(?i)ttl"):
            call()
    assert "k" not in db
    db["k"] = b"v"
    for call in (lambda: db.expire("k", ttl), lambda: db.touch("k", ttl), lambda: db.get_and_touch("k", ttl)):
        with pytest.raises(ValueError, match="(?i)ttl"):
            call()
    assert db.ttl("k") is None


NO_TIMES = [float("nan"), float("-inf"), 1e300, 10**30, datetime.timedelta.min]


@pytest.mark.parametrize("ttl", NO_TIMES)
def test_invalid_ttl_raises_value_error(db: kvstore.Store, ttl: Any) -> None:
    for call in (
        lambda: db.put("k", b"v", ttl=ttl),
        lambda: db.put("k", b"v", ttl, if_absent=True),
        lambda: db.put_many({"k": b"v"}, ttl=ttl),
        lambda: db.add("k", b"v", ttl=ttl),
    ):
        with pytest.raises(ValueError, match="(?i)ttl"):
            call()
    assert "k" not in db


def test_longest_timedelta_is_accepted_or_raises_value_error(db: kvstore.Store) -> None:
    try:
        db.put("k", b"v", ttl=datetime.timedelta.max)
    except ValueError:
        assert "k" not in db
    else:
        left = db.ttl("k")
        assert left is not None and left > 80_000_000_000


def test_forever_means_no_ttl_even_with_default_ttl(db: kvstore.Store) -> None:
    cache = db.family("cache", create=True, default_ttl=60)
    cache.put("a", b"", ttl=kvstore.FOREVER)
    cache.put("b", b"", expires_at=kvstore.FOREVER)
    cache.add("c", b"", ttl=kvstore.FOREVER)
    cache.put("d", b"", ttl=kvstore.FOREVER)
    with cache.batch() as batch:
        batch.put("e", b"", ttl=kvstore.FOREVER)
    cache.put_many({"f": b""}, ttl=kvstore.FOREVER)
    assert [cache.ttl(key) for key in "abcdef"] == [None] * 6
    assert cache.expire("a", 5) and cache.expire("a", kvstore.FOREVER)
    assert cache.ttl("a") is None


@pytest.mark.parametrize("ttl", ["1", b"1", [1], object(), 1j, datetime.datetime.now(UTC)])
def test_ttl_of_wrong_type_raises_type_error(db: kvstore.Store, ttl: Any) -> None:
    with pytest.raises(TypeError, match="(?i)ttl"):
        db.put("k", b"v", ttl=ttl)
    assert "k" not in db


def test_put_without_a_ttl_clears_the_old_one(db: kvstore.Store) -> None:
    db.put("k", b"1", ttl=5)
    db.put("k", b"2")
    assert db.ttl("k") is None


def test_keep_ttl_writes_value_and_keeps_ttl(db: kvstore.Store, clock: Clock) -> None:
    db.put("k", b"1", ttl=5)
    clock.advance(1)
    assert db.put("k", b"2", keep_ttl=True) is True
    assert (db["k"], db.ttl("k")) == (b"2", 4.0)


def test_keep_ttl_gives_new_key_the_given_ttl(db: kvstore.Store) -> None:
    db.put("k", b"1", ttl=5, keep_ttl=True)
    assert db.ttl("k") == 5.0


def test_expires_at_is_expiry_time(db: kvstore.Store, clock: Clock) -> None:
    db.put("k", b"v", expires_at=START_S + 30)
    assert db.ttl("k") == 30.0
    clock.advance(30)
    assert "k" not in db


def test_expires_at_accepts_aware_datetime(db: kvstore.Store) -> None:
    moment = datetime.datetime.fromtimestamp(START_S + 60, UTC)
    db.put("k", b"v", expires_at=moment)
    with pytest.raises(ValueError, match="time zone"):
        db.put("k", b"v", expires_at=datetime.datetime(2030, 1, 1))
    assert db.ttl("k") == 60.0


def test_expires_at_in_past_hides_key_at_once(db: kvstore.Store) -> None:
    db["k"] = b"old"
    db.put("k", b"v", expires_at=START_S - 1)
    assert "k" not in db


def test_ttl_and_expires_at_exclude_each_other(db: kvstore.Store) -> None:
    with pytest.raises((TypeError, ValueError), match="ttl"):
        db.put("k", b"v", ttl=1, expires_at=START_S + 1)
    assert "k" not in db


def test_expires_at_returns_expiry_time(db: kvstore.Store) -> None:
    db.put("k", b"v", ttl=1.5)
    assert db.expires_at("k") == START_S + 1.5
    db["k"] = b"v"
    assert db.expires_at("k") is None
    with pytest.raises(KeyError):
        db.expires_at("missing")


def test_result_of_expires_at_can_be_passed_to_put(db: kvstore.Store) -> None:
    db.put("a", b"", ttl=0.123)
    db.put("b", b"", expires_at=db.expires_at("a"))
    assert db.expires_at("a") == db.expires_at("b")


def test_expire_changes_the_ttl_and_not_the_value(db: kvstore.Store) -> None:
    db["k"] = b"v"
    assert db.expire("k", 10) is True
    assert (db["k"], db.ttl("k")) == (b"v", 10.0)


def test_persist_removes_ttl(db: kvstore.Store) -> None:
    db.put("k", b"v", ttl=10)
    assert db.persist("k") is True
    assert db.persist("k") is False
    assert db.ttl("k") is None


def test_touch_sets_new_ttl_of_live_key(db: kvstore.Store, clock: Clock) -> None:
    db.put("k", b"v", ttl=10)
    clock.advance(9)
    assert db.touch("k", 10)
    clock.advance(9)
    assert db["k"] == b"v"


def test_get_and_touch_reads_and_extends_in_one_step(db: kvstore.Store, clock: Clock) -> None:
    db.put("k", b"v", ttl=10)
    clock.advance(9)
    assert db.get_and_touch("k", 10) == b"v"
    assert db.ttl("k") == 10.0


def test_touch_without_ttl_uses_default_ttl(db: kvstore.Store) -> None:
    cache = db.family("cache", create=True, default_ttl=60)
    cache.put("k", b"v", ttl=1)
    assert cache.touch("k") is True
    assert cache.ttl("k") == 60.0
    db["k"] = b"v"
    with pytest.raises(ValueError, match="ttl"):
        db.touch("k")
    with pytest.raises(ValueError, match="ttl"):
        db.get_and_touch("k")


def test_ttl_changes_return_false_for_missing_or_expired_key(db: kvstore.Store, clock: Clock) -> None:
    db.put("expired", b"v", ttl=1)
    clock.advance(1)
    for key in ("missing", "expired"):
        assert db.expire(key, 1) is False
        assert db.touch(key, 1) is False
        assert db.persist(key) is False
        assert db.get_and_touch(key, 1) is None
        assert db.get_and_touch(key, 1, b"default") == b"default"


@pytest.mark.parametrize(
    "condition, before, ttl, changes",
    [
        ("nx", None, 5, True),
        ("nx", 9, 5, False),
        ("xx", None, 5, False),
        ("xx", 9, 5, True),
        ("gt", None, 5, False),
        ("gt", 9, 5, False),
        ("gt", 9, 10, True),
        ("gt", 9, 9, False),
        ("lt", None, 5, True),
        ("lt", 9, 5, True),
        ("lt", 9, 10, False),
        ("lt", 9, 9, False),
    ],
)
def test_expire_respects_its_condition(db: kvstore.Store, condition: str, before: Any, ttl: int, changes: bool) -> None:
    db.put("k", b"v", ttl=before)
    assert db.expire("k", ttl, **{condition: True}) is changes  # type: ignore[arg-type, unused-ignore]
    assert db.ttl("k") == (ttl if changes else before)
    assert db["k"] == b"v"


def test_expire_takes_one_condition_and_requires_time(db: kvstore.Store) -> None:
    db["k"] = b"v"
    with pytest.raises(ValueError, match="nx"):
        db.expire("k", 5, nx=True, gt=True)
    with pytest.raises(ValueError, match="ttl"):
        db.expire("k")
    with pytest.raises(ValueError, match="ttl"):
        db.expire("k", 5, START_S + 5)
    assert db.ttl("k") is None


def test_expire_with_past_time_removes_key(db: kvstore.Store) -> None:
    db["k"] = b"v"
    assert db.expire("k", expires_at=START_S - 1) is True
    assert "k" not in db
    db["k"] = b"v"
    assert db.expire("k", expires_at=-5) is True
    assert "k" not in db


def test_default_ttl_can_be_read_set_and_removed(db: kvstore.Store) -> None:
    assert db.default_ttl is None
    db.default_ttl = 60
    assert db.default_ttl == 60.0
    db["k"] = b"v"
    db.default_ttl = datetime.timedelta(minutes=2)
    assert db.default_ttl == 120.0
    assert db.ttl("k") == 60.0
    db.default_ttl = None
    assert db.default_ttl is None
    db["k"] = b"v"
    assert db.ttl("k") is None
    for bad in (0, -1, 21 * 366 * 86400, float("nan")):
        with pytest.raises(ValueError):
            db.default_ttl = bad
    with pytest.raises(TypeError):
        db.default_ttl = "60"  # type: ignore[assignment, unused-ignore]
    assert db.default_ttl is None


def in_a_batch(db: kvstore.Store) -> None:
    with db.batch() as batch:
        batch.put("new", b"")


#: Writes without a TTL or expiry time to the key "old", which has no TTL, or to "new", which does not exist.
WRITES: dict[str, Callable[[kvstore.Store], Any]] = {
    "put": lambda db: db.put("old", b""),
    "[]": lambda db: db.__setitem__("old", b""),
    "put_many": lambda db: db.put_many({"old": b""}),
    "set_many": lambda db: db.set_many({"old": b""}),
    "update": lambda db: db.update(old=b""),
    "add": lambda db: db.add("new", b""),
    "put if_absent": lambda db: db.put("new", b"", if_absent=True),
    "setdefault": lambda db: db.setdefault("new", b""),
    "put if_present": lambda db: db.put("old", b"", if_present=True),
    "put keep_ttl": lambda db: db.put("new", b"", keep_ttl=True),
    "compare_and_swap": lambda db: db.compare_and_swap("old", b"1", b""),
    "batch.put": in_a_batch,
    "incr": lambda db: db.incr("new"),
    "decr": lambda db: db.decr("new"),
    "touch": lambda db: db.touch("old"),
    "get_and_touch": lambda db: db.get_and_touch("old"),
}


def test_writes_without_ttl_follow_documented_default_ttl_table(db: kvstore.Store) -> None:
    page = Path(__file__).resolve().parents[3] / "docs" / "reference" / "ttl.md"
    rows = page.read_text(encoding="utf-8").split("## Which writes use the default TTL")[1].split("\n| ")[2:]
    cells = [row.split(" | ")[3] for row in rows]
    assert sorted(re.findall(r"`(.*?)`", " ".join(c for c in cells if c.startswith("default: ")))) == sorted(WRITES)
    assert [c for c in cells if not c.startswith("default: ")] == ["none: `python -m kvstore import`"]
    db.default_ttl = 60
    for name, write in WRITES.items():
        db.clear()
        db.put("old", b"1", ttl=kvstore.FOREVER)
        write(db)
        assert db.ttl("new" if "new" in db else "old") == 60.0, name
    db.put("new", b"1", ttl=kvstore.FOREVER)
    for change in (lambda: db.incr("new"), lambda: db.put("new", b"", keep_ttl=True)):
        change()
        assert db.ttl("new") is None


def test_sweep_removes_keys_by_write_time(db: kvstore.Store, clock: Clock) -> None:
    family = db.family("f", create=True)
    assert family.write_tracking is False
    family["old"] = b""
    family.write_tracking = True
    assert family.write_tracking is True
    clock.advance(10)
    family["new"] = b""
    assert (family.write_time("old"), family.write_time("new")) == (START_S, START_S + 10)
    family.expire("old", 100)
    assert family.write_time("old") == START_S
    with pytest.raises(KeyError):
        family.write_time("missing")
    assert family.sweep(10) == 0
    assert family.sweep(9.999) == 1
    assert list(family) == [b"new"]
    with pytest.raises(ValueError):
        family.sweep(-1)
    family.write_tracking = False
    assert family.write_tracking is False


def test_write_tracking_is_readable_while_other_handle_writes(db: kvstore.Store, path: Path) -> None:
    with kvstore.open(path) as other:
        with other.transaction():
            other["k"] = b"v"
            assert db.write_tracking is False


def test_write_tracking_is_readable_in_read_only_store(db: kvstore.Store, path: Path) -> None:
    db.write_tracking = True
    with kvstore.open(path, read_only=True) as reader:
        assert reader.write_tracking is True


def test_reading_write_tracking_removes_no_key(db: kvstore.Store, clock: Clock) -> None:
    db.write_tracking = True
    db["k"] = b"v"
    clock.advance(1e9)
    assert db.write_tracking is True
    assert "k" in db


def test_write_time_without_tracking_raises(db: kvstore.Store) -> None:
    db["k"] = b"v"
    with pytest.raises((kvstore.Error, ValueError)):
        db.write_time("k")


def test_purge_before_removes_only_keys_expired_before(db: kvstore.Store, clock: Clock) -> None:
    db.put("a", b"", ttl=1)
    db.put("b", b"", ttl=2)
    db.put("live", b"", ttl=100)
    clock.advance(5)
    assert db.purge_before(START_S + 2) == 1
    assert db.purge_before(START_S + 1000) == 1
    assert db.count(expired=True) == 1


def test_default_ttl_applies_to_plain_puts_only(db: kvstore.Store) -> None:
    cache = db.family("cache", create=True, default_ttl=60)
    cache["a"] = b"1"
    cache.put("b", b"1")
    cache.put("c", b"1", ttl=5)
    assert [cache.ttl(k) for k in "abc"] == [60.0, 60.0, 5.0]
    db["d"] = b"1"
    assert db.ttl("d") is None


def test_default_ttl_is_stored_in_file(path: Path, clock: Clock) -> None:
    with kvstore.open(path) as one:
        one.set_clock(clock)
        one.family("cache", create=True, default_ttl=60)
    with kvstore.open(path) as two:
        two.set_clock(clock)
        cache = two.family("cache")
        cache["k"] = b"v"
        assert cache.ttl("k") == 60.0


def test_incr_uses_the_default_ttl_for_a_new_key(db: kvstore.Store) -> None:
    cache = db.family("cache", create=True, default_ttl=60)
    cache.incr("n")
    assert cache.ttl("n") == 60.0
    cache.incr("ttl", ttl=kvstore.FOREVER)
    cache.incr("moment", expires_at=kvstore.FOREVER)
    assert cache.ttl("ttl") is None and cache.ttl("moment") is None


def test_purge_expired_removes_only_expired_keys(db: kvstore.Store, clock: Clock) -> None:
    for number in range(600):
        db.put(f"dead{number}", b"", ttl=1)
    db.put("later", b"", ttl=100)
    db["alive"] = b""
    clock.advance(1)
    assert db.count(expired=True) == 602
    assert db.count() == 2
    assert db.purge_expired() == 600
    assert db.purge_expired() == 0
    assert db.count(expired=True) == 2
    assert list(db) == [b"alive", b"later"]


def test_next_expiry_is_earliest_expiry_time_or_none(db: kvstore.Store) -> None:
    assert db.next_expiry() is None
    db.put("b", b"", ttl=20)
    db.put("a", b"", ttl=10)
    assert db.next_expiry() == START_S + 10
    other = db.family("other", create=True)
    assert other.next_expiry() is None
    other.put("k", b"", ttl=5)
    assert other.next_expiry() == START_S + 5


def test_set_clock_none_restores_system_clock(db: kvstore.Store, clock: Clock) -> None:
    db.set_clock(None)
    db.put("k", b"", ttl=100)
    moment = db.expires_at("k")
    assert moment is not None and abs(moment - time.time() - 100) < 60


@pytest.mark.files
def test_clock_going_back_does_not_revive_key(db: kvstore.Store, clock: Clock) -> None:
    db.put("k", b"v", ttl=1)
    clock.advance(1)
    assert "k" not in db
    clock.advance(-1)
    assert "k" not in db


def test_key_expires_by_wall_clock(path: Path) -> None:
    """The only test here that waits."""
    with kvstore.open(path) as store:
        store.put("k", b"v", ttl=0.2)
        assert store["k"] == b"v"
        deadline = time.monotonic() + 10
        while "k" in store:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_default_ttl_has_maximum(db: kvstore.Store) -> None:
    with pytest.raises((ValueError, kvstore.Error)):
        db.family("cache", create=True, default_ttl=21 * 366 * 86400)
    with pytest.raises(ValueError):
        db.family("cache", create=True, default_ttl=-1)


@pytest.mark.parametrize("wrong", [0, -5, datetime.timedelta(0), datetime.timedelta(seconds=-1)])
def test_invalid_default_ttl_is_reported(db: kvstore.Store, wrong: Any) -> None:
    message = "default_ttl must be positive, not .*: for no default TTL, use None or kvstore.FOREVER"
    with pytest.raises(ValueError, match=message):
        db.family("f", create=True, default_ttl=wrong)
    with pytest.raises(ValueError, match=message):
        db.default_ttl = wrong


def test_far_future_expiry_time_round_trips(db: kvstore.Store) -> None:
    db.put("k", b"", ttl=1e14)
    there = db.expires_at("k")
    assert there is not None and there > 1e14
    db.put("again", b"", expires_at=there)
    assert db.expires_at("again") == there


WRITES_WITH_A_MOMENT: list[Callable[[kvstore.Store, Any], Any]] = [
    lambda db, at: db.put("k", b"v", expires_at=at),
    lambda db, at: db.put("k", b"v", expires_at=at, keep_ttl=True),
    lambda db, at: db.add("k", b"v", expires_at=at),
    lambda db, at: db.put_many({"k": b"v"}, expires_at=at),
    lambda db, at: db.set_many([("k", b"v")], expires_at=at),
    lambda db, at: db.compare_and_swap("old", b"v", b"w", expires_at=at),
    lambda db, at: db.incr("n", expires_at=at),
    lambda db, at: db.expire("old", expires_at=at),
    lambda db, at: db.batch().put("k", b"v", expires_at=at),
]


@pytest.mark.parametrize("write", WRITES_WITH_A_MOMENT)
def test_duration_or_milliseconds_as_moment_are_rejected(
    db: kvstore.Store, write: Callable[[kvstore.Store, Any], Any]
) -> None:
    db["old"] = b"v"
    early = datetime.datetime(1970, 1, 2, tzinfo=datetime.timezone.utc)
    for at in (60, 0.5, 94_694_399, early):
        with pytest.raises(ValueError, match="for a duration, use ttl="):
            write(db, at)
    for at in (1_785_000_000_000, 1_785_000_000_000.5, 100_000_000_000):
        with pytest.raises(ValueError, match="looks like milliseconds: divide it by 1000"):
            write(db, at)
    assert list(db) == [b"old"] and db.ttl("old") is None


def test_moments_at_the_limits_are_accepted(db: kvstore.Store) -> None:
    late = datetime.datetime(9999, 12, 31, tzinfo=datetime.timezone.utc)
    for at in (99_999_999_999, 10_000_000_000_000, late, kvstore.FOREVER):
        db.put("k", b"v", expires_at=at)
        assert "k" in db
    for at in (94_694_400, 0, -5):
        db.put("k", b"v", expires_at=at)
        assert "k" not in db


def test_clock_that_is_not_set_accepts_small_moments(db: kvstore.Store) -> None:
    db.set_clock(lambda: 50.0)
    db.put("k", b"v", expires_at=60)
    assert db.ttl("k") == 10
    db.put("k", b"v", expires_at=0)
    assert "k" not in db


def test_bounds_of_moments_are_those_of_the_library() -> None:
    out = ffi.new("KVStore **")
    assert lib.kvstore_open_v2(NULL, out, NULL) == 0
    now_ms = [_time._CLOCK_IS_SET_MS + 1]
    clock = ffi.callback("int64_t(void *)", lambda _context: now_ms[0])
    assert lib.kvstore_set_clock(out[0], clock, NULL) == 0
    first = _time.FIRST_MOMENT_MS
    codes = [lib.kvstore_put_ttl(out[0], b"k", 1, b"v", 1, ms) for ms in (first - 1, first)]
    assert codes == [lib.KVSTORE_ERROR, 0]
    assert lib.kvstore_set_clock(out[0], NULL, NULL) == 0  # another clock may be behind the one before it
    now_ms[0] -= 1
    assert lib.kvstore_set_clock(out[0], clock, NULL) == 0
    assert lib.kvstore_put_ttl(out[0], b"k", 1, b"v", 1, first - 1) == 0
    assert lib.kvstore_close(out[0]) == 0
