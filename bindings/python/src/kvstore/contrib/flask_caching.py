"""A Flask-Caching cache that is stored in a file.

In the configuration::

    CACHE_TYPE = "kvstore.contrib.flask_caching.KVStoreCache"
    CACHE_KVSTORE_PATH = "/var/tmp/site/cache.db"      # or CACHE_DIR: cache.db in that directory
    CACHE_DEFAULT_TIMEOUT = 300
    CACHE_OPTIONS = {"max_bytes": 100_000_000}         # arguments of kvstore.contrib.cachelib.KVStoreCache

CACHE_KEY_PREFIX is added before each key, and ``cache.clear()`` removes the keys with that prefix.
CACHE_THRESHOLD, which Flask-Caching sets to 500 by default, is ignored: use ``"threshold"`` or
``"max_bytes"`` in CACHE_OPTIONS. CACHE_IGNORE_ERRORS has no effect: use ``"ignore_errors"`` in
CACHE_OPTIONS.

Any object can be cached, such as a response. Values are pickled and signed with the ``SECRET_KEY`` of
the app (and its ``SECRET_KEY_FALLBACKS``), and unsigned values are not unpickled. An app without a
``SECRET_KEY`` can cache the data types of ``kvstore.DATA`` only, unless CACHE_OPTIONS has a
``"secret"`` or a ``"serializer"``.
"""

from __future__ import annotations

import logging
import os
from typing import Any

from flask_caching.backends.base import BaseCache

from kvstore.contrib import cachelib

_log = logging.getLogger("kvstore.contrib")


class KVStoreCache(cachelib.KVStoreCache, BaseCache):
    """A Flask-Caching backend that stores the cache in a file. The module describes its
    configuration.

    See also :class:`kvstore.contrib.cachelib.KVStoreCache`.
    """

    @classmethod
    def factory(cls, app: Any, config: Any, args: list[Any], kwargs: dict[str, Any]) -> KVStoreCache:
        """Create the cache from the configuration of the app. Called by Flask-Caching."""
        path, folder = config.get("CACHE_KVSTORE_PATH"), config.get("CACHE_DIR")
        if not path and folder:
            path = os.path.join(folder, "cache.db")
        if not path and not args and "path" not in kwargs:
            raise ValueError("CACHE_KVSTORE_PATH is not set: give the path of the cache file")
        settings = {"key_prefix": config.get("CACHE_KEY_PREFIX") or "", "family": "flask_caching", **kwargs}
        if not {"secret", "serializer"} & set(settings) and cls.serializer is None:
            if app.secret_key:
                settings["secret"] = [app.secret_key, *(app.config.get("SECRET_KEY_FALLBACKS") or ())]
            else:
                _log.warning(
                    "the app has no SECRET_KEY, so only data types of Python are cached, and no responses: set it, or "
                    "give a \"secret\" in CACHE_OPTIONS"
                )
        if path:
            settings.setdefault("path", path)
        return cls(*args, **settings)
