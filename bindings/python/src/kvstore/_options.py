"""The settings of a store: what kvstore.open takes, checked, as the library takes them."""

from __future__ import annotations

from typing import Any, Optional, TypedDict

from kvstore._native import ffi, lib
from kvstore._time import Duration, duration_ms

_MAX_INT = 0x7FFFFFFF
_JOURNAL_MODES = {"wal": lib.KVSTORE_JOURNAL_WAL, "delete": lib.KVSTORE_JOURNAL_DELETE}
_SYNC_LEVELS = {"normal": lib.KVSTORE_SYNC_NORMAL, "full": lib.KVSTORE_SYNC_FULL, "off": lib.KVSTORE_SYNC_OFF}


class Settings(TypedDict, total=False):
    """See :func:`kvstore.open`."""

    journal_mode: str
    sync: str
    read_only: bool
    exclusive: bool
    busy_timeout: Duration
    cache_size: int
    page_size: int
    wal_size_limit: int
    max_value_size: int
    mmap_size: int
    hold_reads: Optional[bool]
    wal_pages: int


def configuration(
    *,
    journal_mode: str = "wal",
    sync: str = "normal",
    read_only: bool = False,
    exclusive: bool = False,
    busy_timeout: Duration = 5.0,
    cache_size: int = 0,
    page_size: int = 0,
    wal_size_limit: int = 0,
    max_value_size: int = 0,
    mmap_size: int = 0,
    hold_reads: Optional[bool] = None,
    wal_pages: int = 0,
) -> Any:
    """The settings as a KVStoreConfig. TypeError or ValueError for what no setting can be."""
    config = ffi.new("KVStoreConfig *")
    config.journalMode = choice(journal_mode, _JOURNAL_MODES, "journal_mode")
    config.syncLevel = choice(sync, _SYNC_LEVELS, "sync")
    config.readOnly = 1 if read_only else 0
    config.exclusive = 1 if exclusive else 0
    config.busyTimeout = min(duration_ms(busy_timeout, "a busy_timeout"), _MAX_INT)
    config.holdReads = 0 if hold_reads is None else 1 if hold_reads else -1
    for field, name, value in (
        ("cacheSize", "cache_size", cache_size),
        ("pageSize", "page_size", page_size),
        ("walSizeLimit", "wal_size_limit", wal_size_limit),
        ("maxValueSize", "max_value_size", max_value_size),
        ("mmapSize", "mmap_size", mmap_size),
        ("walPages", "wal_pages", wal_pages),
    ):
        try:
            setattr(config, field, value)
        except OverflowError:
            raise ValueError(f"{name}={value} is out of bounds") from None
    return config


def choice(given: str, choices: dict[str, int], what: str) -> int:
    if not isinstance(given, str):
        raise TypeError(f"{what} must be a str, not {type(given).__name__}")
    number = choices.get(given.lower())
    if number is None:
        raise ValueError(f"{what} is one of {', '.join(choices)}, not {given!r}")
    return number


def count(number: int, what: str) -> int:
    if isinstance(number, bool) or not hasattr(number, "__index__"):
        raise TypeError(f"{what} must be an int, not {type(number).__name__}")
    number = number.__index__()
    if not 0 <= number < 1 << 63:
        raise ValueError(f"{what} cannot be {number}")
    return number
