"""Access to the native library for the rest of the package, with conversion of arguments and
errors.

Only this module, and ``_errors`` and ``_hints``, on which it builds, import ``_kvstore``.

Pointers to handles never leave the object that owns them. It sets its own to :data:`NULL` when it
closes the handle, because the library eventually reuses the memory of closed handles.
"""

from __future__ import annotations

import atexit
import os
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Any, Optional, Union

import kvstore._kvstore as _kvstore
from kvstore._errors import exception_for, last_failure
from kvstore._gevent import CooperativeLibrary, is_patched
from kvstore._kvstore import ffi
from kvstore._kvstore import lib as _lib

if TYPE_CHECKING:
    from typing_extensions import Buffer, TypeVar

    #: Types of keys and values: str (stored as UTF-8) or any bytes-like object.
    Data = Union[str, Buffer]
    #: The types of keys and values that a family returns.
    K = TypeVar("K", bound=Union[str, bytes], default=bytes)
    V = TypeVar("V", default=bytes)
else:  # types that exist in every supported Python, for tools that read annotations
    from typing import TypeVar

    Data = Union[str, bytes, bytearray, memoryview]
    K, V = TypeVar("K"), TypeVar("V")

__all__ = [
    "ENCRYPTION_AVAILABLE", "MAX_LENGTH", "NULL", "REMOTE_AVAILABLE", "Data", "Handles", "K", "Rows", "V", "WaitFlag",
    "WithBlock", "check", "check_lengths", "copy_and_free", "ffi", "lib", "long_value", "surely", "to_bytes",
]  # fmt: skip

lib: Any = CooperativeLibrary(_lib, ffi) if is_patched() else _lib
NULL: Any = ffi.NULL
#: Whether this build supports encrypted stores.
ENCRYPTION_AVAILABLE: bool = b"sqlcipher" in ffi.string(lib.kvstore_engine())
#: Whether this build supports stores on a PostgreSQL server.
REMOTE_AVAILABLE: bool = ffi.string(lib.kvstore_version()).endswith(b"+remote")

_kvstore.complete(_kvstore)  # in each interpreter


def _watch_signals_after_fork() -> None:
    _kvstore.watch_signals(threading.get_ident())


# Signal handlers run while a call waits for a lock in the main thread.
_kvstore.watch_signals(threading.main_thread().ident)
atexit.register(_kvstore.watch_signals, 0)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_watch_signals_after_fork)

#: The iterator type of rows.c.
Rows: Any = _kvstore.Rows
#: The handle lookup of handles.c.
Handles: Any = _kvstore.Handles
#: ``long_value(cf, key, length)`` of values.c: read a value into a new bytes object. ``cf`` is the
#: address of the handle. Returns the result code instead if the read fails.
long_value: Any = _kvstore.long_value
#: ``surely(function, *args)``: call a function, and again after a KeyboardInterrupt, until it
#: completes. It must be the first statement of an ``except`` block: no interrupt can be raised
#: before it.
surely: Any = _kvstore.surely


class WithBlock:
    """Base of the classes whose ``with`` blocks end in C (see blocks.c). They define ``_ending``,
    ``_leave`` and ``_abandon``.
    """

    __slots__ = ()

    if TYPE_CHECKING:

        def __exit__(
            self,
            kind: Optional[type[BaseException]],
            error: Optional[BaseException],
            traceback: Optional[TracebackType],
        ) -> None: ...

    else:
        __exit__ = _kvstore.leave


class WaitFlag:
    """A flag that any thread can set to end the waits for locks of one thread. Their calls then
    raise BusyError.
    """

    __slots__ = ("_flag",)

    def __init__(self) -> None:
        self._flag = ffi.new("int *")

    def watch(self) -> None:
        """Make the calling thread watch the flag until it ends. The caller keeps the object."""
        lib.kvpy_watch_flag(self._flag)

    def is_set(self) -> bool:
        return bool(self._flag[0])

    def set(self, value: bool) -> None:
        self._flag[0] = value


_NOTFOUND: int = lib.KVSTORE_NOTFOUND
MAX_LENGTH = 0x7FFFFFFF  # lengths are C ints


def check(rc: int, kv: Any = NULL) -> None:
    """Raise the exception for a result code of the library. Does nothing on success.

    ``kv`` is the store handle of the call (also for calls on its families and iterators), or NULL
    if there is none.
    """
    if rc:
        # NOTFOUND needs no message of its own: another thread may have failed meanwhile.
        raise exception_for(rc, None if rc == _NOTFOUND else last_failure(kv))


#: What to do about a value, or a key that is a tuple, of the wrong type.
_TYPE_HINTS = dict.fromkeys(
    ("value", "value of tuple"), ": open the store or family with a codec, such as kvstore.JSON"
)
_TYPE_HINTS["key of tuple"] = (
    ": give a TTL by put(key, value, ttl=...), and make a key of several parts by kvstore.row_key(...)"
)


def text_bytes(text: str, what: str) -> bytes:
    """Return text that cannot be given as bytes, such as the name of a family, in UTF-8.

    Raises ValueError for str that cannot be encoded as UTF-8.
    """
    try:
        return str.encode(text)
    except UnicodeEncodeError:  # the original message contains the text
        raise ValueError(f"{what} contains surrogates and cannot be encoded as UTF-8: leave them out") from None


def to_bytes(data: Data, what: str = "key") -> bytes:
    """Return a key or value as bytes. Encodes str as UTF-8, returns bytes unchanged, and copies
    other bytes-like objects.

    The result is exactly of type bytes, so that its length, which C relies on, is correct.

    Args:
        data: str or bytes-like.
        what: The name of the argument, for messages.

    Raises:
        TypeError: For another type, or for memory that is not contiguous.
        ValueError: For more than 2 GiB, or for str that cannot be encoded as UTF-8.
    """
    if type(data) is bytes:
        result = data
    elif isinstance(data, str):
        try:
            result = str.encode(data)  # not data.encode, which a subclass may override
        except UnicodeEncodeError:  # the original message contains the data
            raise ValueError(f"{what} contains surrogates and cannot be encoded as UTF-8: give bytes") from None
    else:
        try:
            view = memoryview(data)
        except TypeError:
            hint = _TYPE_HINTS.get(f"{what} of tuple" if isinstance(data, tuple) else what, "")
            raise TypeError(f"{what} must be str or bytes-like, not {type(data).__name__}{hint}") from None
        if not view.c_contiguous:
            raise TypeError(
                f"{what} must be contiguous in memory, and this {type(data).__name__} is not: give bytes(...) "
                "of it"
            )
        result = view.tobytes()
    if len(result) > MAX_LENGTH:
        raise ValueError(f"{what} has {len(result)} bytes, more than 2 GiB") from None
    return result


def check_lengths(key: bytes, value: bytes = b"") -> None:
    """Raise ValueError if the key or the value has more than 2 GiB.

    Called after an OverflowError of a call that passed bytes unchecked, for speed.
    """
    to_bytes(key)
    to_bytes(value, "value")


def copy_and_free(data: Any, length: int) -> bytes:
    """Return a copy of memory that the library allocated, and free that memory."""
    try:
        return bytes(ffi.buffer(data, length))
    finally:
        lib.kvstore_free(data)
