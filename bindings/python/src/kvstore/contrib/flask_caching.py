"""A cache of Flask-Caching's in a file.

In the configuration::

    CACHE_TYPE = "kvstore.contrib.flask_caching.KVStoreCache"
    CACHE_KVSTORE_PATH = "/var/tmp/site/cache.db"      # or CACHE_DIR: cache.db in that folder
    CACHE_DEFAULT_TIMEOUT = 300
    CACHE_OPTIONS = {"max_bytes": 100_000_000}         # as the arguments of kvstore.contrib.cachelib.KVStoreCache

CACHE_KEY_PREFIX is put before each key, and ``cache.clear()`` removes the keys that have it. CACHE_THRESHOLD, which
Flask-Caching sets to 500 by itself, is not looked at: say ``"threshold"`` in CACHE_OPTIONS, or bound the file.
"""

from __future__ import annotations

import os
from typing import Any

from flask_caching.backends.base import BaseCache

from kvstore.contrib import cachelib


class KVStoreCache(cachelib.KVStoreCache, BaseCache):
    """See the module, and :class:`kvstore.contrib.cachelib.KVStoreCache`."""

    @classmethod
    def factory(cls, app: Any, config: Any, args: list[Any], kwargs: dict[str, Any]) -> KVStoreCache:
        """What Flask-Caching calls."""
        path, folder = config.get("CACHE_KVSTORE_PATH"), config.get("CACHE_DIR")
        if not path and folder:
            path = os.path.join(folder, "cache.db")
        if not path and not args and "path" not in kwargs:
            raise ValueError("CACHE_KVSTORE_PATH is not set: the file that the cache is kept in")
        settings = {"key_prefix": config.get("CACHE_KEY_PREFIX") or "", "family": "flask_caching", **kwargs}
        if path:
            settings.setdefault("path", path)
        return cls(*args, **settings)
