"""Waits for locks under gevent: they let the other greenlets run.

All greenlets run in one thread, so a call of the library that waits for the lock of another
greenlet's transaction would stop the greenlet that must end it. If gevent has replaced ``threading``
and ``time`` before this package is imported, calls that write do not wait inside the library. They
sleep in Python, where gevent switches to another greenlet, and are then made again.

Only for the thread in which the package was imported. Must not import the native module.
"""

from __future__ import annotations

import sys
import time
import warnings
from typing import Any

from kvstore._hints import Hint, hint_of

#: Functions that wait for the lock of a writer. A call that fails with KVSTORE_BUSY has changed
#: nothing, and can be made again.
_WAITING = frozenset(
    f"kvstore_{name}"
    for name in (
        "batch_commit", "begin", "cf_clear", "cf_compare_and_delete", "cf_compare_and_swap", "cf_create", "cf_delete",
        "cf_delete_range", "cf_drop", "cf_expire", "cf_get_and_expire", "cf_increment", "cf_open", "cf_persist",
        "cf_purge_before", "cf_purge_expired", "cf_put", "cf_put_for", "cf_put_ttl", "cf_put_with",
        "cf_set_default_ttl", "cf_set_write_tracking", "cf_sweep", "checkpoint", "commit", "open_encrypted", "open_v2",
        "purge_step", "set_limit",
    )
)  # fmt: skip
#: Functions with a configuration as last and the new handle as next to last argument.
_OPENING = frozenset(("kvstore_open_encrypted", "kvstore_open_v2"))
#: Functions whose last argument receives a handle that belongs to the handle in the first one.
_DERIVING = frozenset(("kvstore_batch_new", "kvstore_cf_create", "kvstore_cf_get_default", "kvstore_cf_open"))

_DEFAULT_TIMEOUT_S = 5.0
#: The shortest time that opening a file waits, in seconds.
_LEAST_OPENING_S = 2.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.001, 0.05
#: The advice of failures that a retry can cure.
_CURABLE = (Hint.RETRY, Hint.RAISE_BUSY_TIMEOUT, Hint.CLOSE_OTHER_HANDLES)


def is_patched() -> bool:
    """Return whether gevent has replaced the modules on which cooperative waits depend."""
    monkey = sys.modules.get("gevent.monkey")
    return monkey is not None and all(monkey.is_module_patched(name) for name in ("threading", "time"))


def warn_if_patched_late(lib: Any) -> None:
    """Issue a RuntimeWarning if gevent has patched the modules after ``lib`` was chosen."""
    if is_patched() and not isinstance(lib, CooperativeLibrary):
        warnings.warn(
            "kvstore was imported before gevent.monkey.patch_all(), so a write that waits stops all greenlets: patch "
            "first, then import kvstore",
            RuntimeWarning,
            stacklevel=5,
        )


class CooperativeLibrary:
    """The native library, with the same attributes. Functions that wait for a lock let other
    greenlets run.
    """

    def __init__(self, lib: Any, ffi: Any) -> None:
        monkey = sys.modules["gevent.monkey"]
        self._lib = lib
        self._ffi = ffi
        self._thread_id = monkey.get_original("_thread", "get_ident")
        self._thread = self._thread_id()
        #: While it is 1, calls of this thread do not wait inside the library.
        self._flag = ffi.new("int *")
        lib.kvpy_watch_flag(self._flag)
        #: The store handle and the busy timeout, in seconds, of each handle, by its address. Closed
        #: handles remain until their address is used again.
        self._handles: dict[int, tuple[Any, float]] = {}

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._lib, name)
        if name in _WAITING or name in _DERIVING:
            found = self._cooperative(found, name)
        setattr(self, name, found)
        return found

    def _cooperative(self, function: Any, name: str) -> Any:
        def call(*args: Any) -> int:
            if self._thread_id() != self._thread:
                rc: int = function(*args)
            else:
                rc = self._without_waiting(function, args)
                if rc == self._lib.KVSTORE_BUSY:
                    rc = self._retry(function, name, args)
            if rc == 0 and name in _OPENING:
                self._handles[self._address(args[-2][0])] = args[-2][0], _timeout_s(args[-1])
            elif rc == 0 and name in _DERIVING:
                self._handles[self._address(args[-1][0])] = self._of(args[0])
            return rc

        return call

    def _without_waiting(self, function: Any, args: tuple[Any, ...]) -> int:
        self._flag[0] = 1
        try:
            rc: int = function(*args)
        finally:
            self._flag[0] = 0
        return rc

    def _retry(self, function: Any, name: str, args: tuple[Any, ...]) -> int:
        """Make a call again until it succeeds or the busy timeout is over, and return the result
        code.
        """
        if name in _OPENING:
            store, timeout = self._ffi.NULL, max(_timeout_s(args[-1]), _LEAST_OPENING_S)
        else:
            store, timeout = self._of(args[0])
        end = time.monotonic() + timeout
        pause = _FIRST_PAUSE_S
        rc: int = self._lib.KVSTORE_BUSY
        while rc == self._lib.KVSTORE_BUSY and self._is_curable(store):
            left = end - time.monotonic()
            if left <= 0:
                break
            time.sleep(min(pause, left))
            pause = min(pause * 2, _LONGEST_PAUSE_S)
            rc = self._without_waiting(function, args)
        return rc

    def _is_curable(self, store: Any) -> bool:
        buffer = self._ffi.new("char[]", 1)
        return hint_of(self._lib.kvpy_failure(store, buffer, 1)) in _CURABLE

    def _of(self, handle: Any) -> tuple[Any, float]:
        """Return the store handle of a handle, and its busy timeout."""
        return self._handles.get(self._address(handle), (self._ffi.NULL, _DEFAULT_TIMEOUT_S))

    def _address(self, handle: Any) -> int:
        return int(self._ffi.cast("intptr_t", handle))


def _timeout_s(config: Any) -> float:
    """Return the busy timeout of a KVStoreConfig: negative means no wait, and 0 the default."""
    ms: int = config.busyTimeout if config else 0
    return max(ms / 1000, 0.0) if ms else _DEFAULT_TIMEOUT_S
