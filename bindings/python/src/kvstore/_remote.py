"""Stores on a server. Must not open any."""

from __future__ import annotations

from kvstore._native import ffi, lib

#: Whether a path may be the URL of a store on a server.
AVAILABLE: bool = ffi.string(lib.kvstore_version()).endswith(b"+remote")
