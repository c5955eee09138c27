"""Where a backend keeps its data: a family of a file, opened once in each process.

Must not know any framework.
"""

from __future__ import annotations

import inspect
import os
import threading
from collections.abc import Mapping
from typing import Any, Optional

import kvstore
from kvstore import Family, Store

#: The settings of a place: those of kvstore.open (but not how values look, which backends decide), and a bound.
PLACE_OPTIONS = (frozenset(inspect.signature(kvstore.open).parameters) - {"path", "codec", "keys"}) | {
    "max_bytes",
    "policy",
}

MEMORY = ":memory:"

#: What tells stores apart: path and settings.
_StoreKey = tuple[str, str]

_places: dict[tuple[str, str, str], Place] = {}
_stores: dict[_StoreKey, _Opened] = {}
_process = os.getpid()
_lock = threading.RLock()


class _Opened:
    """An open store, and which places use it."""

    __slots__ = ("places", "store")

    def __init__(self, store: Store) -> None:
        self.store = store
        self.places: set[Place] = set()


class Place:
    """A family of a file. Threads share it; after a fork the file is opened anew. Made by :func:`place`."""

    def __init__(self, path: str, name: str, options: Mapping[str, Any]) -> None:
        self.path = path
        self.name = name
        self._options = dict(options)
        self._store_key: _StoreKey = (path, _text(options))
        self._opened: Optional[tuple[int, Store, Family]] = None
        #: How many keys may be added before they are counted again, and for which limit: see _culling.
        self.room: tuple[int, int] = (0, 0)

    def family(self) -> Family:
        """The family, open in this process."""
        return self._open()[2]

    def store(self) -> Store:
        """The store of :meth:`family`."""
        return self._open()[1]

    def _open(self) -> tuple[int, Store, Family]:
        opened = self._opened
        if opened is not None and opened[0] == os.getpid() and not opened[2].closed:
            return opened
        _begin_in_this_process()
        with _lock:
            shared = _stores.get(self._store_key)
            if shared is None or shared.store.closed:
                shared = _stores[self._store_key] = _Opened(self._open_store())
            shared.places.add(self)
            opened = self._opened = (os.getpid(), shared.store, shared.store.family(self.name, create=True))
            return opened

    def _open_store(self) -> Store:
        options = dict(self._options)
        max_bytes, policy = options.pop("max_bytes", None), options.pop("policy", None)
        folder = os.path.dirname(self.path)
        if self.path != MEMORY and folder and not options.get("read_only"):
            os.makedirs(folder, exist_ok=True)
        store = kvstore.open(None if self.path == MEMORY else self.path, **options)
        if max_bytes is not None:
            try:
                _limit(store, max_bytes, policy)
            except BaseException:
                store.close()
                raise
        return store

    def close(self) -> None:
        """Closes the family; and the file, if no other place uses it. The next use opens it again."""
        _begin_in_this_process()
        with _lock:
            opened, self._opened = self._opened, None
            shared = _stores.get(self._store_key)
            if shared is None:
                return
            shared.places.discard(self)
            if opened is not None and opened[1] is shared.store and self.name != "default":
                opened[2].close()
            if not shared.places:
                del _stores[self._store_key]
                shared.store.close()


def place(path: Any, name: str, options: Mapping[str, Any]) -> Place:
    """The place of a path, a family and settings: the same object for the same arguments.

    ``options`` are those of :func:`kvstore.open`; and ``max_bytes`` for a bound of the file, which is kept in it,
    with a ``policy``: see ``Store.limit``. Without one, those keys make room that were written longest ago.
    """
    text = os.fsdecode(path)
    if not text:
        raise ValueError("a backend needs the path of a file")
    if text != MEMORY:
        text = os.path.abspath(os.path.expanduser(text))
    unknown = sorted(set(options) - PLACE_OPTIONS)
    if unknown:
        raise TypeError(f"no such setting of a store: {', '.join(map(str, unknown))}; see help(kvstore.open)")
    if options.get("max_bytes") is None and options.get("policy") is not None:
        raise TypeError("a policy is for a bounded store: give max_bytes, too")
    if options.get("max_bytes") is not None and not hasattr(Store, "limit"):
        raise TypeError("this version of kvstore cannot bound a file: leave max_bytes away")
    with _lock:
        return _places.setdefault((text, name, _text(options)), Place(text, name, options))


def _limit(store: Store, max_bytes: int, policy: Optional[str]) -> None:
    """Bounds the file, if it is not bounded so already."""
    bounded: Any = store
    limit = (max_bytes, policy or "oldest")
    if tuple(bounded.get_limit()) != limit:
        bounded.limit(*limit)


def _text(options: Mapping[str, Any]) -> str:
    return repr(sorted(options.items()))


def _begin_in_this_process() -> None:
    """Forgets stores that were inherited through a fork, and a lock that a thread of the parent may hold."""
    global _lock, _process
    if _process != os.getpid():
        _lock = threading.RLock()
        _stores.clear()
        _process = os.getpid()
