"""The names and numbers of snkv, which programs may have in their settings."""

from __future__ import annotations

from kvstore._native import lib

JOURNAL_DELETE: int = 0
JOURNAL_WAL: int = 1

SYNC_OFF: int = 0
SYNC_NORMAL: int = 1
SYNC_FULL: int = 2

CHECKPOINT_PASSIVE: int = lib.KVSTORE_CHECKPOINT_PASSIVE
CHECKPOINT_FULL: int = lib.KVSTORE_CHECKPOINT_FULL
CHECKPOINT_RESTART: int = lib.KVSTORE_CHECKPOINT_RESTART
CHECKPOINT_TRUNCATE: int = lib.KVSTORE_CHECKPOINT_TRUNCATE

NO_TTL: int = lib.KVSTORE_NO_TTL
