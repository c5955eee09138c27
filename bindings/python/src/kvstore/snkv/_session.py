"""One open store: its native handle, and the conversion of arguments."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any, Union

from kvstore._native import MAX_LENGTH, NULL, ffi, lib
from kvstore.snkv._errors import Error, closed_error, failure

Encodable = Union[str, bytes, bytearray, memoryview]

def encoded(v: object, what: str = "key") -> bytes:
    """Return a key or value as bytes; str is encoded as UTF-8.

    ``what`` names the argument in messages.
    """
    if isinstance(v, str):
        data = v.encode("utf-8")
    elif isinstance(v, (bytes, bytearray, memoryview)):
        data = bytes(v)
    else:
        raise TypeError(f"{what} must be str or bytes, not {type(v).__name__!r}")
    if len(data) > MAX_LENGTH:
        raise ValueError(f"{what} has {len(data)} bytes, more than 2 GiB")
    return data


def c_string(text: object, what: str) -> bytes:
    if not isinstance(text, str):
        raise TypeError(f"{what} must be str, not {type(text).__name__}")
    if "\0" in text:
        raise ValueError(f"{what} has an embedded null character: give one without")
    return text.encode("utf-8")


def password_bytes(password: object) -> bytes:
    if not isinstance(password, (str, bytes, bytearray, memoryview)):
        raise TypeError(f"password must be str or bytes, not {type(password).__name__}")
    return password.encode("utf-8") if isinstance(password, str) else bytes(password)


_LONGEST_TTL_MS = 1 << 62  # so that the sum with the current time fits in 64 bits


def ttl_ms(ttl: float) -> int:
    """Convert a TTL in seconds to milliseconds, rounded down. A TTL of 0 or less becomes 0: expired
    at once.
    """
    ms = int(float(ttl) * 1000)
    if ms > _LONGEST_TTL_MS:
        raise OverflowError(f"ttl of {ttl} seconds is out of range: use None for no TTL")
    return ms if ms > 0 else 0


_BUFFER_BYTES = 16 * 1024
LARGEST_BUFFER_BYTES = 1024 * 1024
NEVER_MS = (1 << 63) - 1


class Session:
    """The native store handle, and the state that all objects of that store share.

    Each native call is made, and its results are copied, under ``lock``. So no handle is closed
    while a call with it is about to start (its memory would be reused), no iterator moves while its
    key is copied, and the buffers below can be shared by all threads. The library serializes the
    threads of one handle anyway.
    """

    __slots__ = (
        "__weakref__", "begun", "buffer", "buffer_bytes", "changes", "data", "data_out", "inherited", "kv", "length", "lock",
        "rows", "time_ms", "view",
    )  # fmt: skip

    def __init__(self, kv: Any) -> None:
        self.kv: Any = ffi.gc(kv, lib.kvstore_close)
        self.lock = threading.RLock()  # reentrant: a signal handler may use the store
        self.changes = 0  # counts changes that may affect rows read ahead by iterators
        self.begun = False  # whether a transaction may be open
        self.inherited = False  # whether a parent process opened the store, before a fork
        self.rows: Any = None
        self.allocate(_BUFFER_BYTES)
        self.data: Any = ffi.new("char **")
        self.data_out: Any = ffi.cast("void **", self.data)
        self.length: Any = ffi.new("int *")
        self.time_ms: Any = ffi.new("int64_t *")
        _sessions.add(self)

    def allocate(self, size: int) -> None:
        """Allocate the buffer into which values are read."""
        self.buffer: Any = ffi.new("char[]", size)
        self.buffer_bytes = size
        self.view: Any = ffi.buffer(self.buffer, size)  # slices to bytes faster than ffi.unpack

    def now_ms(self) -> int:
        """Return the time that decides about expiry, in milliseconds. On a server it is the
        server's time.
        """
        self.check(lib.kvstore_time_ms(self.kv, self.time_ms))
        now: int = self.time_ms[0]
        return now

    def chunk(self) -> Any:
        """Return the buffer into which iterators read rows ahead."""
        if self.rows is None:
            self.rows = ffi.gc(ffi.new("kvpy_chunk *"), lib.kvpy_free_chunk)
        return self.rows

    def check(self, code: int) -> None:
        """Raise the exception for the result code of a call on the store or on one of its open
        handles.

        Does nothing if the code is success.
        """
        if code:
            raise self.failure(code)

    def failure(self, code: int) -> Error:
        if self.kv is NULL:
            return closed_error("KVStore")
        return failure(code, self.kv)

    def close(self) -> None:
        with self.lock:
            if self.kv is NULL:
                return
            self.changes += 1
            kv, self.kv = self.kv, NULL
            ffi.gc(kv, None)  # detach the finalizer, which would drop the result code
            code = lib.kvstore_close(kv)
            if code and not self.inherited:
                raise failure(code, NULL)


_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


def _renew_locks() -> None:
    """Replace the locks of all stores in the child of a fork.

    A thread that does not exist in the child may have held one.
    """
    for session in list(_sessions):
        session.lock = threading.RLock()
        session.inherited = True
        session.changes += 1  # iterators call the library again, which reports that the store is the parent's


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)
