"""A quick test of the whole package, for a first check after a build. Every part has its own test file."""

from __future__ import annotations

from pathlib import Path

import pytest

import kvstore


def test_first_program_works(tmp_path: Path) -> None:
    with kvstore.open(tmp_path / "app.db") as db:
        db["user:1"] = b"Ada"
        db.put("session", b"tok", ttl=60)
        db.put("otp", b"123456", ttl=30)
        sessions = db.family("sessions", create=True, default_ttl=3600)
        with db.transaction():
            sessions.put("a", b"1")
            db.delete("user:1")
        assert list(db.items()) == [(b"otp", b"123456"), (b"session", b"tok")]
        left = sessions.ttl("a")
        assert left is not None and 3590 < left <= 3600
        assert db.purge_expired() == 0
    with pytest.raises(kvstore.MisuseError):
        db["otp"]
    with pytest.raises(kvstore.MisuseError):
        sessions["a"]
