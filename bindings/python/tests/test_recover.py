"""Recovery saves the readable part of a damaged file into a new one."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

import pytest

import kvstore


def fill(path: Path) -> None:
    with kvstore.open(path) as store:
        for n in range(2000):
            store.put(f"key {n:05}", b"x" * 50)
        store.put("mortal", b"1", ttl=1000)


def test_intact_file_is_recovered_completely(tmp_path: Path) -> None:
    fill(tmp_path / "a.db")
    assert kvstore.recover(tmp_path / "a.db", tmp_path / "b.db") == (2001, 0)
    with kvstore.open(tmp_path / "b.db") as store:
        assert store.get("key 00007") == b"x" * 50
        assert 900 < (store.ttl("mortal") or 0) <= 1000


def test_losses_are_reported(tmp_path: Path) -> None:
    fill(tmp_path / "a.db")
    data = bytearray((tmp_path / "a.db").read_bytes())
    page = 4096 * 20
    data[page : page + 4096] = bytes(4096)
    (tmp_path / "a.db").write_bytes(data)
    told: list[Optional[str]] = []
    done = kvstore.recover(tmp_path / "a.db", tmp_path / "b.db", lambda text, done, total: told.append(text))
    assert done.lost >= 1 and 1800 < done.saved <= 2001
    assert any(text is not None and "page 21" in text for text in told)


def test_exception_in_report_stops_and_leaves_no_file(tmp_path: Path) -> None:
    fill(tmp_path / "a.db")
    with open(tmp_path / "a.db", "r+b") as file:
        file.truncate(4096 * 9)

    def report(text: Optional[str], done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        kvstore.recover(tmp_path / "a.db", tmp_path / "b.db", report)
    assert [path.name for path in tmp_path.iterdir()] == ["a.db"]


def test_invalid_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(kvstore.Error):
        kvstore.recover(tmp_path / "no.db", tmp_path / "b.db")
    fill(tmp_path / "a.db")
    with pytest.raises(kvstore.InvalidError, match="exists"):
        kvstore.recover(tmp_path / "a.db", tmp_path / "a.db")
    with pytest.raises(ValueError, match="NUL"):
        kvstore.recover("a\0b", tmp_path / "b.db")
