"""The counters of the connections of a store, such as the number of puts.

The library reads them with the lock of the connection. A write of another thread holds that lock
while it waits for a transaction, which may be the one of the thread that asks for the counters. So
a connection of another thread is read in a thread of its own, and if that takes long, the counters
of the last time are used.
"""

from __future__ import annotations

import threading
import time
from typing import Any, Optional

from kvstore._native import ffi, lib

#: Names of statistics that are current values, not counters. They are not summed over connections.
GAUGES = ("nDbPages", "nWalFrames", "nSizeBytes")
#: Names of the counters.
COUNTERS = tuple(
    name for name, _ in ffi.typeof("KVStoreStats").fields if name != "reserved" and name not in GAUGES
)

#: Time in seconds within which connections of other threads are read.
_PATIENCE = 0.25


class ConnectionCounters:
    """The counters of a connection as they were last read."""

    __slots__ = ("_must_reset", "_reading", "_values", "failed")

    def __init__(self) -> None:
        #: Replaced as a whole, because threads read it without a lock.
        self._values = dict.fromkeys(COUNTERS, 0)
        #: Whether the library has to set the counters to zero before they are read.
        self._must_reset = False
        #: The last thread that was started to read the counters.
        self._reading: Optional[threading.Thread] = None
        #: The result code of the last read.
        self.failed = 0

    def read(self, kv: Any) -> None:
        """Read the counters of the connection. Waits until no other thread uses it."""
        out = ffi.new("KVStoreStats *")
        while True:
            rc = 0
            if self._must_reset:
                self._must_reset = False
                rc = lib.kvstore_stats_reset(kv)
            self.failed = rc = rc or lib.kvstore_stats(kv, out)
            if rc or not self._must_reset:
                break
        if rc == 0:
            self._values = {name: int(getattr(out, name)) for name in COUNTERS}

    def start_reading(self, kv: Any) -> bool:
        """Start a thread that reads the counters, and return True. Return False if the last one
        still waits for the connection, or if no thread can be started.
        """
        if self._reading is not None and self._reading.is_alive():
            return False
        reading = threading.Thread(target=self.read, args=(kv,), name="kvstore-stats", daemon=True)
        try:
            reading.start()
        except RuntimeError:  # too many threads, or the interpreter ends
            return False
        self._reading = reading
        return True

    def wait(self, end: float) -> None:
        """Wait for the last thread that was started, until ``end`` of the monotonic clock."""
        if self._reading is not None:
            self._reading.join(max(0.0, end - time.monotonic()))

    def reset(self) -> None:
        """Set the counters to zero. The library does so when they are read the next time."""
        self._must_reset = True
        self._values = dict.fromkeys(COUNTERS, 0)

    def add_to(self, sums: dict[str, int]) -> None:
        """Add the counters to ``sums``."""
        for name, value in self._values.items():
            sums[name] += value


def refresh(connections: list[tuple[ConnectionCounters, Any]], own: Any) -> None:
    """Read the counters of connections, given with their handles.

    Connections that other threads use for longer than a moment keep those of the last time. ``own``
    is the handle of this thread, which is read at once.
    """
    others = []
    for counters, kv in connections:
        if kv is own or threading.local.__module__ != "_thread":  # greenlets do not wait in the library
            counters.read(kv)
        else:
            others.append((counters, kv))
    end = time.monotonic() + _PATIENCE
    while others:
        late = [(counters, kv) for counters, kv in others if not counters.start_reading(kv)]
        for counters, _ in others:
            counters.wait(end)
        # A thread of an earlier call may have read before this call began: its connection is read again.
        others = late if time.monotonic() < end else []
