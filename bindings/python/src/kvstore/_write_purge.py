"""Removal of expired keys after writes, for callers that write into a store whose settings they do
not choose.
"""

from __future__ import annotations

from typing import Any

from kvstore._errors import Error
from kvstore._native import ffi, lib

#: The number of expired keys that each write may remove.
PURGE_PER_WRITE = 2
#: The number of keys that are removed at once.
_AT_ONCE = 64


def purge_after_write(state: Any) -> None:
    """Count a write of a recipe or of memoize. If there were enough, remove expired keys of the
    store, of any family: 64 at once, and not inside a transaction. Does nothing for a store that was
    opened with ``purge_per_write``, which does this itself.

    A failure is ignored, because the write before it has succeeded.

    Args:
        state: The StoreState of the store.
    """
    if state.pool.config.purgePerWrite > 0:
        return
    state.recipe_writes += 1  # threads may lose a count, which does not matter
    if state.recipe_writes * PURGE_PER_WRITE < _AT_ONCE or state.in_transaction():
        return
    state.recipe_writes = 0
    try:
        state.check(lib.kvstore_purge_step(state.handle(), _AT_ONCE, 0, ffi.NULL, ffi.NULL))
    except Error:
        pass
