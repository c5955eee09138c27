"""Where a backend keeps its data: a family of a file, opened once in each process.

Must not know any framework.
"""

from __future__ import annotations

import inspect
import os
import threading
import weakref
from collections.abc import Mapping
from typing import Any, NamedTuple, Optional

import kvstore
from kvstore import Family, Store
from kvstore._connection import is_remote
from kvstore._maintenance import POLICIES
from kvstore._options import choice, configuration, count, secret_of

#: The settings of a place: those of kvstore.open (but not how values look, which backends decide), and a bound.
PLACE_OPTIONS = (frozenset(inspect.signature(kvstore.open).parameters) - {"path", "codec", "keys"}) | {
    "max_bytes",
    "policy",
}

MEMORY = ":memory:"

#: What tells stores apart: path and settings.
_StoreKey = tuple[str, str]


class _Opened:
    """An open store, and the places that use it: with the last of them it is closed."""

    __slots__ = ("__weakref__", "places", "store")

    def __init__(self, store: Store) -> None:
        self.store = store
        self.places: weakref.WeakSet[Place] = weakref.WeakSet()


class _InUse(NamedTuple):
    """What a place has open."""

    process: int
    opened: _Opened
    family: Family


#: The stores that are open in this process.
_stores: weakref.WeakValueDictionary[_StoreKey, _Opened] = weakref.WeakValueDictionary()
_lock = threading.RLock()


def _after_fork() -> None:
    """Stores of the parent are none of the child's, and another thread may have had the lock."""
    global _lock, _stores
    _lock = threading.RLock()
    _stores = weakref.WeakValueDictionary()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Place:
    """A family of a file, for one backend. Opened when it is first used, and after a fork anew; all places of a
    process with the same path and settings share a store. Threads may share a place.

    ``options`` are settings of :func:`kvstore.open`; and ``max_bytes`` for a bound of the file, which is kept in it,
    with a ``policy``: see ``Store.limit``. Without one, those keys make room that were written longest ago. Directories
    of the path that are missing are made with the file. The path may be the URL of a store on a server.
    """

    def __init__(self, path: Any, name: str, options: Mapping[str, Any]) -> None:
        text = os.fsdecode(path)
        if not text:
            raise ValueError("a backend needs the path of a file")
        if text != MEMORY and not is_remote(os.fsencode(text)):
            text = os.path.abspath(os.path.expanduser(text))  # the working directory may change before it is used
        if not isinstance(name, str) or not name:
            raise TypeError(f"the name of a family is a str, not {name!r}")
        unknown = sorted(set(options) - PLACE_OPTIONS)
        if unknown:
            raise TypeError(f"no such setting of a store: {', '.join(map(str, unknown))}; see help(kvstore.open)")
        if options.get("max_bytes") is None and options.get("policy") is not None:
            raise TypeError("a policy is for a bounded store: give max_bytes, too")
        settings = {setting: value for setting, value in options.items() if setting not in ("max_bytes", "policy")}
        without_secret = dict(settings)  # what is wrong is told here, not at the first use
        secret_of(without_secret.pop("password", None), without_secret.pop("raw_key", None))
        configuration(**without_secret)
        if options.get("max_bytes") is not None:
            count(options["max_bytes"], "max_bytes")
            choice(options.get("policy") or "oldest", POLICIES, "policy")
        self.path = text
        self.name = name
        self._options = dict(options)
        self._store_key: _StoreKey = (text, repr(sorted(options.items())))
        self._in_use: Optional[_InUse] = None
        #: How many keys may be added before they are counted again, and for which limit: see _culling.
        self.room: tuple[int, int] = (0, 0)

    def family(self) -> Family:
        """The family, open in this process."""
        return self._open().family

    def store(self) -> Store:
        """The store of :meth:`family`."""
        return self._open().opened.store

    def _open(self) -> _InUse:
        in_use = self._in_use
        if in_use is not None and in_use.process == os.getpid() and not in_use.family.closed:
            return in_use
        with _lock:
            opened = _stores.get(self._store_key)
            if opened is None or opened.store.closed:
                opened = _stores[self._store_key] = _Opened(self._open_store())
            opened.places.add(self)
            in_use = _InUse(os.getpid(), opened, opened.store.family(self.name, create=True))
            self._in_use = in_use
            return in_use

    def _open_store(self) -> Store:
        options = dict(self._options)
        max_bytes, policy = options.pop("max_bytes", None), options.pop("policy", None)
        if self.path != MEMORY and not is_remote(os.fsencode(self.path)) and not options.get("read_only"):
            os.makedirs(os.path.dirname(self.path), exist_ok=True)
        store = kvstore.open(None if self.path == MEMORY else self.path, **options)
        if max_bytes is not None:
            try:
                _limit(store, max_bytes, policy)
            except BaseException:
                store.close()
                raise
        return store

    def close(self) -> None:
        """Closes the file, if no other place uses it. The next use opens it again."""
        with _lock:
            in_use, self._in_use = self._in_use, None
            if in_use is None or in_use.process != os.getpid():
                return
            in_use.opened.places.discard(self)
            if not in_use.opened.places:
                in_use.opened.store.close()


def _limit(store: Store, max_bytes: int, policy: Optional[str]) -> None:
    """Bounds the file, if it is not bounded so already."""
    limit = (max_bytes, policy or "oldest")
    if tuple(store.get_limit()) != limit:
        store.limit(*limit)
