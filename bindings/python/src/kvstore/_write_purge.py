"""Removal of expired keys after writes, for callers that write into a store whose settings they do
not choose.

A store that is opened with ``purge_per_write`` does this by itself.
"""

from __future__ import annotations

from typing import Any

from kvstore._errors import Error
from kvstore._native import ffi, lib

#: The number of expired keys that each write may remove.
PURGE_PER_WRITE = 2
#: The number of keys that are removed at once.
_AT_ONCE = 64


class WritePurge:
    """Removes expired keys of a store, of any family, after writes: at most two for each write.

    They are removed 64 at once, and not inside a transaction. A failure is ignored, because the
    write before it has succeeded.
    """

    __slots__ = ("_state", "_writes")

    def __init__(self, state: Any) -> None:
        self._state = state
        self._writes = 0  # threads may lose a count, which does not matter

    def wrote(self) -> None:
        """Count a write, and remove expired keys if there were enough writes."""
        self._writes += 1
        if self._writes * PURGE_PER_WRITE < _AT_ONCE or self._state.in_transaction():
            return
        self._writes = 0
        try:
            self._state.check(lib.kvstore_purge_step(self._state.handle(), _AT_ONCE, 0, ffi.NULL, ffi.NULL))
        except Error:
            pass
