"""The settings of kvstore.open: check them, and convert them for the library."""

from __future__ import annotations

import operator
from typing import Any, Optional, TypedDict, Union

from kvstore._native import ffi, lib, to_bytes
from kvstore._time import Duration, duration_ms

_MAX_INT = 0x7FFFFFFF
_JOURNAL_MODES = {"wal": lib.KVSTORE_JOURNAL_WAL, "delete": lib.KVSTORE_JOURNAL_DELETE}
_SYNC_LEVELS = {"normal": lib.KVSTORE_SYNC_NORMAL, "full": lib.KVSTORE_SYNC_FULL, "off": lib.KVSTORE_SYNC_OFF}


class Settings(TypedDict, total=False):
    """The types of the keyword arguments of :func:`kvstore.open`."""

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
    purge_per_write: int
    mode: int
    small: bool
    password: Union[str, bytes, None]
    raw_key: Optional[bytes]
    encrypt: bool


#: The required length of a raw_key, in bytes.
_RAW_KEY = 32


def secret_of(password: Union[str, bytes, None], raw_key: Optional[bytes]) -> Optional[bytes]:
    """Return a password or raw key in the form that the library takes; None if neither is given.

    A raw key becomes its hex digits.

    Messages never contain any part of a secret.
    """
    if raw_key is not None:
        if password is not None:
            raise ValueError("password= and raw_key= cannot both be set: give one of them")
        if not isinstance(raw_key, (bytes, bytearray, memoryview)):
            raise TypeError(f"raw_key must be bytes, not {type(raw_key).__name__}")
        key = bytes(raw_key)
        if len(key) != _RAW_KEY:
            raise ValueError(f"raw_key must have {_RAW_KEY} bytes, not {len(key)}")
        return b"x'" + key.hex().encode() + b"'"
    if password is None:
        return None
    if not isinstance(password, (str, bytes, bytearray, memoryview)):
        raise TypeError(f"password must be str or bytes, not {type(password).__name__}")
    secret = to_bytes(password, "password")
    if not secret:
        raise ValueError("password is empty: give one, or None for a store that is not encrypted")
    return secret


def encryption_of(settings: dict[str, Any]) -> tuple[Optional[bytes], bool]:
    """Remove ``password``, ``raw_key`` and ``encrypt`` from the settings of :func:`kvstore.open`.
    Return the secret, as :func:`secret_of` does, and whether an unencrypted store is to be
    encrypted.
    """
    secret = secret_of(settings.pop("password", None), settings.pop("raw_key", None))
    encrypts = bool(settings.pop("encrypt", False))
    if encrypts and secret is None:
        raise ValueError("encrypt=True needs password= or raw_key=: give one of them")
    return secret, encrypts


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
    purge_per_write: int = 0,
    mode: int = 0,
    small: bool = False,
) -> Any:
    """Convert the settings of :func:`kvstore.open` to a KVStoreConfig, the struct that the library
    takes.

    Raises:
        TypeError, ValueError: For an invalid setting.
    """
    config = ffi.new("KVStoreConfig *")
    config.journalMode = choice(journal_mode, _JOURNAL_MODES, "journal_mode")
    config.syncLevel = choice(sync, _SYNC_LEVELS, "sync")
    config.readOnly = 1 if read_only else 0
    config.exclusive = 1 if exclusive else 0
    config.secureDelete = 1 if secure_delete else 0
    config.profile = lib.KVSTORE_SMALL if small else 0
    # For the library 0 is its default, and a negative number means not to wait.
    config.busyTimeout = min(duration_ms(busy_timeout, "busy_timeout"), _MAX_INT) or -1
    config.holdReads = 0 if hold_reads is None else 1 if hold_reads else -1
    for field, name, value in (
        ("cacheSize", "cache_size", cache_size),
        ("pageSize", "page_size", page_size),
        ("walSizeLimit", "wal_size_limit", wal_size_limit),
        ("maxValueSize", "max_value_size", max_value_size),
        ("mmapSize", "mmap_size", mmap_size),
        ("walPages", "wal_pages", wal_pages),
        ("purgePerWrite", "purge_per_write", purge_per_write),
        ("mode", "mode", mode),
    ):
        number = integer(int(value) if isinstance(value, bool) else value, name)
        if number < 0 and name != "mmap_size":
            raise ValueError(f"{name} must be 0 or more, not {value}")
        try:
            setattr(config, field, number)
        except OverflowError:
            raise ValueError(f"{name}={value} is out of range") from None
    return config


def choice(given: str, choices: dict[str, int], what: str) -> int:
    if not isinstance(given, str):
        raise TypeError(f"{what} must be a str, not {type(given).__name__}")
    number = choices.get(given.lower())
    if number is None:
        raise ValueError(f"{what} must be one of {', '.join(choices)}, not {given!r}")
    return number


def integer(number: Any, what: str, type_name: str = "an int") -> int:
    """Return an argument as an int. Raise TypeError for another type, also for a bool."""
    if not isinstance(number, bool):
        try:
            return operator.index(number)
        except TypeError:
            pass
    raise TypeError(f"{what} must be {type_name}, not {_described(number)}")


def _described(value: Any) -> str:
    """Describe an argument of a wrong type, without its content."""
    return f"the type {value.__name__}" if isinstance(value, type) else type(value).__name__


def count(number: int, what: str) -> int:
    number = integer(number, what)
    if not 0 <= number < 1 << 63:
        raise ValueError(f"{what} must be between 0 and 2**63 - 1, not {number}")
    return number
