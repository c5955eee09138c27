"""The names that programs import from ``diskcache.core``."""

from kvstore.contrib.diskcache._base import DEFAULT_SETTINGS, EVICTION_POLICY, METADATA, Timeout
from kvstore.contrib.diskcache._cache import Cache
from kvstore.contrib.diskcache._disk import (
    ENOVAL,
    MODE_BINARY,
    MODE_NONE,
    MODE_PICKLE,
    MODE_RAW,
    MODE_TEXT,
    UNKNOWN,
    Constant,
    Disk,
    JSONDisk,
)
from kvstore.contrib.diskcache._memoize import args_to_key, full_name

__all__ = [
    "DEFAULT_SETTINGS",
    "ENOVAL",
    "EVICTION_POLICY",
    "METADATA",
    "MODE_BINARY",
    "MODE_NONE",
    "MODE_PICKLE",
    "MODE_RAW",
    "MODE_TEXT",
    "UNKNOWN",
    "Cache",
    "Constant",
    "Disk",
    "JSONDisk",
    "Timeout",
    "args_to_key",
    "full_name",
]
