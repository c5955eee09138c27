"""A first program of a user; run-tests runs it where only the package is installed. Argument: a directory."""

import sys
from pathlib import Path

import kvstore

path = Path(sys.argv[1]) / "first.db"
with kvstore.open(path) as db:
    db["user:1"] = b"Ada"
    db.put("session", b"tok", ttl=60)
    sessions = db.family("sessions", create=True, default_ttl=3600)
    with db.transaction():
        sessions.put("a", b"1")
        db["user:2"] = "Bob"
    assert list(db.items(prefix="user:")) == [(b"user:1", b"Ada"), (b"user:2", b"Bob")]
    assert 0 < (db.ttl("session") or 0) <= 60
    db.integrity_check()
    db.clear()
    db.checkpoint()
assert "tests" not in kvstore.__file__
print(f"kvstore {kvstore.__version__} works")
