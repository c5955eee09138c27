"""The settings of a store: what kvstore.open takes, checked, as the library takes them."""

from __future__ import annotations

from typing import Any, Optional, TypedDict, Union

from kvstore._native import ffi, lib, to_bytes
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
    secure_delete: bool
    small: bool
    password: Union[str, bytes, None]
    raw_key: Optional[bytes]


#: Bytes of a key that is none derived from a password.
_RAW_KEY = 32


def secret_of(password: Union[str, bytes, None], raw_key: Optional[bytes]) -> Optional[bytes]:
    """What a store is encrypted with, as the library takes it: a key is a text of its digits. None: nothing. No text of
    what is refused shows any of it."""
    if raw_key is not None:
        if password is not None:
            raise ValueError("give a password or a raw_key, not both")
        if not isinstance(raw_key, (bytes, bytearray, memoryview)):
            raise TypeError(f"raw_key must be bytes, not {type(raw_key).__name__}")
        key = bytes(raw_key)
        if len(key) != _RAW_KEY:
            raise ValueError(f"a raw_key has {_RAW_KEY} bytes, not {len(key)}")
        return b"x'" + key.hex().encode() + b"'"
    if password is None:
        return None
    if not isinstance(password, (str, bytes, bytearray, memoryview)):
        raise TypeError(f"a password must be a str or bytes, not {type(password).__name__}")
    secret = to_bytes(password, "a password")
    if not secret:
        raise ValueError("the password is empty")
    return secret


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
    secure_delete: bool = False,
    small: bool = False,
) -> Any:
    """The settings as a KVStoreConfig. TypeError or ValueError for what no setting can be."""
    config = ffi.new("KVStoreConfig *")
    config.journalMode = choice(journal_mode, _JOURNAL_MODES, "journal_mode")
    config.syncLevel = choice(sync, _SYNC_LEVELS, "sync")
    config.readOnly = 1 if read_only else 0
    config.exclusive = 1 if exclusive else 0
    config.secureDelete = 1 if secure_delete else 0
    config.profile = lib.KVSTORE_SMALL if small else 0
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
