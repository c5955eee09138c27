"""Tests the optional features of a released wheel: encrypted stores and stores on a server. Argument: a folder."""

import sys
from pathlib import Path

import kvstore

folder = Path(sys.argv[1])
assert kvstore.encryption_available
(folder / "password").write_text("secret")
(folder / "password").chmod(0o600)
with kvstore.open(folder / "wheel.db", password="secret") as db:
    db["k"] = "v"
assert b"SQLite" not in (folder / "wheel.db").read_bytes()
try:
    kvstore.open(folder / "wheel.db", password="another")
    raise SystemExit("another password opens it")
except kvstore.AuthError:
    pass
try:
    kvstore.open(f"postgresql://user@/database?host={folder}")
    raise SystemExit("a server that is not there has answered")
except kvstore.Error as error:
    assert "cannot reach the server" in str(error), error
print("encrypts, and knows servers")
