"""Pickling of stores and families. A pickle contains a path and settings, from which a process
opens the store again.

In one process, unpickled stores of the same path, settings and codec are one Store object, while it
is in use and open. Must not import stores or families: a pickle names the class of its store.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any, Union

from kvstore._codec import pickled, unpickled

#: Describes a codec and the type of keys: the codec as _codec.pickled returns it.
Spec = tuple[Union[None, str, bytes], type]

_stores: weakref.WeakValueDictionary[Any, Any] = weakref.WeakValueDictionary()
_lock: Any = threading.RLock()


def reduce_store(store: Any) -> tuple[Any, ...]:
    """Return the value of ``Store.__reduce__``: how to open the store again in another process.

    Raises:
        TypeError: If the store cannot be opened in another process.
    """
    kind = type(store)
    if not kind.__module__.startswith("kvstore."):
        raise TypeError(f"cannot pickle {kind.__name__}, a subclass of Store: define __reduce__ in it")
    store._must_be_open()
    pool = store._state.pool
    if pool.in_memory:
        raise TypeError("cannot pickle a store in memory, which no other process can open: use a store in a file")
    if pool.clock is not None:
        raise TypeError("cannot pickle a store with a clock function: call set_clock(None) first")
    secret = {} if pool.secret is None else {"password": pool.secret}  # a raw key is passed the same way
    settings = tuple(sorted({**store._settings, **secret}.items()))
    return open_pickled_store, (kind, pool.path, settings, _spec(store))


def reduce_family(family: Any) -> tuple[Any, ...]:
    """Return the value of ``Family.__reduce__``: how to open the family again in another process.
    """
    family._must_be_open()
    return open_pickled_family, (*reduce_store(family._store)[1], family._name, _spec(family))


def _spec(family: Any) -> Spec:
    own = family._coding
    return (None, bytes) if own is None else (pickled(own.codec), own.keys)


def open_pickled_store(kind: Any, path: bytes, settings: tuple[tuple[str, Any], ...], spec: Spec) -> Any:
    """Open the store that a pickle describes, and return it.

    Further calls in this process return the same object, while it is open.
    """
    with _lock:
        secret = dict(settings).get("password")
        key = path, tuple(item for item in settings if item[0] != "password"), spec  # rekey() changes the password
        store = _stores.get(key)
        if store is None or store.closed or store._state.pool.secret != secret:
            codec, keys = spec
            store = kind(os.fsdecode(path), codec=unpickled(codec), keys=keys, **dict(settings))
            _stores[key] = store
        return store


def open_pickled_family(
    kind: Any, path: bytes, settings: tuple[tuple[str, Any], ...], store_spec: Spec, name: str, spec: Spec
) -> Any:
    """Open the family that a pickle describes, in the unpickled store of this process."""
    codec, keys = spec
    return open_pickled_store(kind, path, settings, store_spec).family(name, codec=unpickled(codec), keys=keys)


def _after_fork() -> None:
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
