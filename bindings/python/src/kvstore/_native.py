"""The native library as the rest of the package sees it. No other module imports ``_kvstore``
(but ``_errors``, which this one is built on).

Pointers of handles never leave the object that owns them, which sets its own to :data:`NULL` when it
closes the handle: the library uses the memory of closed handles again some day.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Union

from kvstore import _kvstore  # type: ignore[attr-defined]
from kvstore._errors import error_text, exception_for

if TYPE_CHECKING:
    from typing_extensions import Buffer, TypeVar

    #: What keys and values may be: text (kept as UTF-8) or anything bytes-like.
    Data = Union[str, Buffer]
    #: What a family gives back as keys, and what its values are.
    K = TypeVar("K", bound=Union[str, bytes], default=bytes)
    V = TypeVar("V", default=bytes)
else:  # what has a name in every Python, for tools that look at annotations
    from typing import TypeVar

    Data = Union[str, bytes, bytearray, memoryview]
    K, V = TypeVar("K"), TypeVar("V")

__all__ = [
    "MAX_LENGTH", "NULL", "Data", "Handles", "K", "Rows", "V",
    "check", "ffi", "leave", "lib", "refuse_long", "surely", "taken", "to_bytes",
]  # fmt: skip

ffi: Any = _kvstore.ffi
lib: Any = _kvstore.lib
NULL: Any = ffi.NULL

_kvstore.complete(_kvstore)  # in each interpreter
#: The iterator of rows.c.
Rows: Any = _kvstore.Rows
#: The look-up of handles.c.
Handles: Any = _kvstore.Handles
#: The ``__exit__`` of blocks.c, for classes with ``_ending``, ``_leave`` and ``_abandon``.
leave: Any = _kvstore.leave
#: ``surely(function, *args)``: calls it, and again after an interrupt (Ctrl-C) in it, until it comes to its end. To be
#: the first thing in an ``except``: no interrupt can come before it.
surely: Any = _kvstore.surely

_NOTFOUND: int = lib.KVSTORE_NOTFOUND
MAX_LENGTH = 0x7FFFFFFF  # lengths are C ints


def check(rc: int, kv: Any = NULL) -> None:
    """Returns if a call succeeded, else raises the exception of its code.

    ``kv`` is the store handle the call was made on, or on a family or iterator of which; NULL if there
    is none (yet).
    """
    if rc:
        # What is not found needs no more text than its code's: another thread may have failed meanwhile.
        raise exception_for(rc, None if rc == _NOTFOUND else error_text(kv))


def to_bytes(data: Data, what: str = "a key") -> bytes:
    """A key or value as bytes: text as UTF-8, bytes as they are, other bytes-like objects copied.

    The result is exactly a bytes, whose length is true: C is told it. ``what`` is what the error texts
    call it. Raises TypeError for other types and for memory that is
    not contiguous, ValueError for more than 2 GiB and for text that has no UTF-8 form.
    """
    if type(data) is bytes:
        result = data
    elif isinstance(data, str):
        try:
            result = str.encode(data)  # not data.encode, which a subclass may have made: of what length?
        except UnicodeEncodeError:  # its text has the data in it
            raise ValueError(f"{what} has surrogates in it, which UTF-8 has not") from None
    else:
        try:
            view = memoryview(data)
        except TypeError:
            hint = "; or open the store with a codec, such as kvstore.JSON" if what == "a value" else ""
            raise TypeError(f"{what} must be str or bytes-like, not {type(data).__name__}{hint}") from None
        if not view.c_contiguous:
            raise TypeError(f"{what} must be contiguous in memory; this {type(data).__name__} is not")
        result = view.tobytes()
    if len(result) > MAX_LENGTH:
        raise ValueError(f"{what} of {len(result)} bytes is too long") from None
    return result


def refuse_long(key: bytes, value: bytes = b"") -> None:
    """Raises what to_bytes does of more than 2 GiB: after an OverflowError of a call that was made, for speed, with bytes
    that it has not looked at."""
    to_bytes(key)
    to_bytes(value, "a value")


def taken(data: Any, length: int) -> bytes:
    """The bytes of memory that the library handed out, which is freed."""
    try:
        return bytes(ffi.buffer(data, length))
    finally:
        lib.kvstore_free(data)
