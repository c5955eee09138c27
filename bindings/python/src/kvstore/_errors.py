"""The exceptions, and the one function that turns result codes of the library into them.

Must not import anything of the package but the native module.
"""

from __future__ import annotations

from typing import Any, Optional

from kvstore import _kvstore  # type: ignore[attr-defined]

_lib: Any = _kvstore.lib
_ffi: Any = _kvstore.ffi


class Error(Exception):
    """A call of the store failed. The text says why, :attr:`code` is the library's result code.

    All exceptions of the library derive from this class, but for these: an argument of a wrong type
    is a :exc:`TypeError`, one of a wrong value a :exc:`ValueError`, and lack of memory a
    :exc:`MemoryError`.
    """

    #: The result code of the library, a ``KVSTORE_*`` constant of kvstore.h.
    code: int = _lib.KVSTORE_ERROR

    def __init__(self, message: str = "", code: Optional[int] = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""  # not KeyError's, which quotes

    def __reduce__(self) -> Any:
        return (type(self), (str(self), self.code))


class InvalidError(Error, ValueError):
    """The library refused what it was given, or what it would have become. Also a :exc:`ValueError`."""


class NotFoundError(Error, KeyError):
    """There is no such key (or it has expired), or no such family. Also a :exc:`KeyError`."""

    code: int = _lib.KVSTORE_NOTFOUND


class BusyError(Error):
    """Another handle or process holds a lock: try again, or open with a longer ``busy_timeout``."""

    code: int = _lib.KVSTORE_BUSY


class LockedError(Error):
    """A lock inside this process stands in the way: try again."""

    code: int = _lib.KVSTORE_LOCKED


class ReadOnlyError(Error):
    """A write to a store, or in a transaction, that only reads."""

    code: int = _lib.KVSTORE_READONLY


class CorruptError(Error):
    """The file is damaged, or is not a store."""

    code: int = _lib.KVSTORE_CORRUPT


class AuthError(Error):
    """A wrong password, or a tampered value."""

    code: int = _lib.KVSTORE_AUTH_FAILED


class FullError(Error):
    """The disk is full, or the store has reached its limit."""

    code: int = _lib.KVSTORE_FULL


class StoreIOError(Error):
    """The file cannot be opened, or the operating system failed to read, write or sync it."""

    code: int = _lib.KVSTORE_IOERR


class MisuseError(Error):
    """The store, family, batch or iterator is closed, or was inherited through a fork."""

    code: int = _lib.KVSTORE_MISUSE


_CLASSES: dict[int, type[Error]] = {
    _lib.KVSTORE_ERROR: Error,
    _lib.KVSTORE_BUSY: BusyError,
    _lib.KVSTORE_LOCKED: LockedError,
    _lib.KVSTORE_READONLY: ReadOnlyError,
    _lib.KVSTORE_IOERR: StoreIOError,
    _lib.KVSTORE_CORRUPT: CorruptError,
    _lib.KVSTORE_NOTFOUND: NotFoundError,
    _lib.KVSTORE_AUTH_FAILED: AuthError,
    _lib.KVSTORE_CANTOPEN: StoreIOError,
    _lib.KVSTORE_PROTOCOL: BusyError,
    _lib.KVSTORE_MISUSE: MisuseError,
    _lib.KVSTORE_NOTADB: CorruptError,
    _lib.KVSTORE_FULL: FullError,
}

_TEXT_BYTES = 4096


def error_text(kv: Any) -> str:
    """The text of the last failure on a store handle; with NULL, of this thread's without a handle."""
    buf = _ffi.new("char[]", _TEXT_BYTES)
    _lib.kvpy_errmsg(kv, buf, _TEXT_BYTES)
    text: bytes = _ffi.string(buf)
    return text.decode("utf-8", "replace")


def exception_for(code: int, text: Optional[str] = None) -> Exception:
    """The exception of a result code, with ``text``, or else with what the code means in general."""
    if text is None:
        text = _ffi.string(_lib.kvstore_strerror(code)).decode("utf-8", "replace")
    if code == _lib.KVSTORE_NOMEM:
        return MemoryError(text)
    return _CLASSES.get(code, Error)(text, code)
