"""Whether this build supports stores on a PostgreSQL server. Must not open any."""

from __future__ import annotations

from kvstore._native import ffi, lib

#: Whether this build supports stores on a PostgreSQL server.
AVAILABLE: bool = ffi.string(lib.kvstore_version()).endswith(b"+remote")
