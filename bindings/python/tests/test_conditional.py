"""Conditional writes: insert-if-absent, compare-and-swap, counters. Each is atomic."""

from __future__ import annotations

from typing import Any

import pytest
from helpers import START_S, Clock

import kvstore

INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)


def test_if_absent_writes_only_a_missing_key(db: kvstore.Store) -> None:
    assert db.put("k", b"1", if_absent=True) is True
    assert db.put("k", b"2", if_absent=True) is False
    assert db["k"] == b"1"


def test_if_absent_counts_an_expired_key_as_absent(db: kvstore.Store, clock: Clock) -> None:
    db.put("k", b"1", ttl=1)
    clock.advance(1)
    assert db.put("k", b"2", if_absent=True, ttl=5) is True
    assert (db["k"], db.ttl("k")) == (b"2", 5.0)


def test_unmet_if_absent_keeps_ttl(db: kvstore.Store) -> None:
    db.put("k", b"1", ttl=9)
    assert db.put("k", b"2", ttl=1, if_absent=True) is False
    assert db.ttl("k") == 9.0


def test_if_present_writes_only_a_live_key(db: kvstore.Store, clock: Clock) -> None:
    assert db.put("k", b"1", if_present=True) is False
    assert "k" not in db
    db.put("k", b"1", ttl=1)
    assert db.put("k", b"2", if_present=True) is True
    assert (db["k"], db.ttl("k")) == (b"2", None)
    db.put("k", b"3", ttl=1)
    clock.advance(1)
    assert db.put("k", b"4", if_present=True) is False


def test_if_present_with_keep_ttl_changes_the_value_alone(db: kvstore.Store) -> None:
    db.put("k", b"1", ttl=7)
    assert db.put("k", b"2", if_present=True, keep_ttl=True) is True
    assert (db["k"], db.ttl("k")) == (b"2", 7.0)


def test_if_absent_and_if_present_exclude_each_other(db: kvstore.Store) -> None:
    with pytest.raises((ValueError, TypeError), match="if_absent"):
        db.put("k", b"1", if_absent=True, if_present=True)
    assert "k" not in db


def test_plain_put_returns_true(db: kvstore.Store) -> None:
    assert db.put("k", b"1") is True
    assert db.put("k", b"2", ttl=1) is True


def test_conditional_put_uses_the_default_ttl_of_its_family(db: kvstore.Store) -> None:
    cache = db.family("cache", create=True, default_ttl=60)
    cache.put("new", b"", if_absent=True)
    cache["old"] = b""
    cache.put("old", b"", if_present=True)
    assert {cache.ttl("new"), cache.ttl("old")} <= {60.0, None}
    assert cache.ttl("new") == cache.ttl("old") == 60.0


def test_add_is_put_if_absent(db: kvstore.Store) -> None:
    assert db.add("k", b"1", ttl=5) is True
    assert db.add("k", b"2") is False
    assert (db["k"], db.ttl("k")) == (b"1", 5.0)


def test_compare_and_swap_writes_if_value_matches(db: kvstore.Store) -> None:
    db["k"] = b"1"
    assert db.compare_and_swap("k", b"0", b"2") is False
    assert db["k"] == b"1"
    assert db.compare_and_swap("k", b"1", b"2") is True
    assert db["k"] == b"2"


def test_compare_and_swap_never_creates_key(db: kvstore.Store, clock: Clock) -> None:
    assert db.compare_and_swap("k", b"", b"1") is False
    db.put("k", b"1", ttl=1)
    clock.advance(1)
    assert db.compare_and_swap("k", b"1", b"2") is False
    assert "k" not in db


def test_compare_and_swap_sets_given_ttl(db: kvstore.Store) -> None:
    db.put("k", b"1", ttl=9)
    db.compare_and_swap("k", b"1", b"2", ttl=5)
    assert db.ttl("k") == 5.0


def test_compare_and_swap_compares_text_as_utf_8(db: kvstore.Store) -> None:
    db["k"] = "é"
    assert db.compare_and_swap("k", "é".encode(), "ü") is True
    assert db.compare_and_swap("k", "ü", b"x") is True


def test_compare_and_delete_deletes_if_value_matches(db: kvstore.Store) -> None:
    db["k"] = b"1"
    assert db.compare_and_delete("k", b"2") is False
    assert db.compare_and_delete("k", b"1") is True
    assert db.compare_and_delete("k", b"1") is False
    assert "k" not in db


def test_incr_counts_from_zero(db: kvstore.Store) -> None:
    assert db.incr("n") == 1
    assert db.incr("n", 41) == 42
    assert db["n"] == b"42"


def test_decr_counts_down(db: kvstore.Store) -> None:
    assert db.decr("n") == -1
    assert db.decr("n", 9) == -10


@pytest.mark.parametrize("delta", ["x", 1.5, None, True])
def test_decr_by_no_int_is_a_type_error(db: kvstore.Store, delta: Any) -> None:
    with pytest.raises(TypeError, match=f"delta must be an int, not {type(delta).__name__}"):
        db.decr("n", delta)
    assert "n" not in db


def test_incr_keeps_the_ttl_of_a_live_key(db: kvstore.Store, clock: Clock) -> None:
    db.incr("n", ttl=10)
    clock.advance(4)
    db.incr("n", ttl=100)
    assert db.ttl("n") == 6.0
    clock.advance(6)
    assert db.incr("n") == 1


def test_incr_of_non_number_fails_without_effect(db: kvstore.Store) -> None:
    db["n"] = b"secret-value"
    with pytest.raises(ValueError) as caught:
        db.incr("n")
    assert "secret" not in str(caught.value)
    assert db["n"] == b"secret-value"


def test_incr_beyond_64_bits_fails_without_effect(db: kvstore.Store) -> None:
    assert db.incr("n", INT64_MAX) == INT64_MAX
    with pytest.raises((kvstore.Error, ValueError, OverflowError)):
        db.incr("n")
    assert db["n"] == str(INT64_MAX).encode()
    assert db.incr("m", INT64_MIN) == INT64_MIN
    with pytest.raises((kvstore.Error, ValueError, OverflowError)):
        db.decr("m")


def test_decr_by_int64_min_does_not_wrap(db: kvstore.Store) -> None:
    db["n"] = b"-1"
    try:
        assert db.decr("n", INT64_MIN) == INT64_MAX
    except (ValueError, OverflowError, kvstore.Error):
        assert db["n"] == b"-1"


@pytest.mark.parametrize("by", [2**63, -(2**63) - 1, 10**40])
def test_step_beyond_64_bits_raises_value_error(db: kvstore.Store, by: int) -> None:
    with pytest.raises((ValueError, OverflowError)):
        db.incr("n", by)
    with pytest.raises((ValueError, OverflowError)):
        db.decr("n", -by)
    assert "n" not in db


@pytest.mark.parametrize("by", [1.0, "1", b"1", None, object()])
def test_step_of_wrong_type_raises_type_error(db: kvstore.Store, by: Any) -> None:
    for call in (db.incr, db.decr):
        with pytest.raises(TypeError):
            call("n", by)
    assert "n" not in db


def test_conditions_see_the_state_inside_the_transaction(db: kvstore.Store) -> None:
    with db.transaction():
        assert db.add("k", b"1")
        assert not db.add("k", b"2")
        assert db.compare_and_swap("k", b"1", b"3")
    assert db["k"] == b"3"


def test_expiry_times_are_exact_to_millisecond(db: kvstore.Store) -> None:
    db.put("k", b"", expires_at=START_S + 0.001)
    assert db.expires_at("k") == START_S + 0.001
