"""The exceptions of the package, and the functions that create them from failures of the library.

Must not import anything of the package but the native module and the hints.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Optional

from kvstore._hints import OPEN_IN_ANOTHER_THREAD, Hint, hint_of
from kvstore._kvstore import ffi as _ffi
from kvstore._kvstore import lib as _lib


class Error(Exception):
    """Base class of the exceptions of this package. They are raised when a call on a store fails.

    The message says what failed and what to do. :attr:`code` is the result code of the library, and
    :attr:`hint` is what to do, for programs; never parse the message.

    All exceptions of the package derive from this class, except: ``TypeError`` for an argument of a
    wrong type, ``ValueError`` for an invalid argument, and ``MemoryError``.
    """

    #: The result code of the library, a ``KVSTORE_*`` constant of kvstore.h.
    code: int = _lib.KVSTORE_ERROR
    #: What to do about the error; None if the library has no advice.
    hint: Optional[Hint] = None

    def __init__(self, message: str = "", code: Optional[int] = None, hint: Optional[Hint] = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code
        self.hint = hint

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""  # not KeyError's, which quotes

    def __reduce__(self) -> Any:
        return (type(self), (str(self), self.code, self.hint))


class InvalidError(Error, ValueError):
    """The library rejected an argument or a setting. This exception is also a :exc:`ValueError`."""


class NotFoundError(Error, KeyError):
    """The key does not exist or has expired, or the family does not exist. This exception is also a
    :exc:`KeyError`.
    """

    code: int = _lib.KVSTORE_NOTFOUND


class BusyError(Error):
    """Another thread, another process or another client of the server holds a lock.

    Retry, or open the store with a longer ``busy_timeout``.
    """

    code: int = _lib.KVSTORE_BUSY


class LockedError(Error):
    """A lock inside this process is held, or a transaction on a server conflicts with another one.

    In the first case, retry the call.

    On a server: concurrent writes conflict with this transaction, and nothing of it was done. Run
    the whole block again, with its reads::

        while True:
            try:
                with db.transaction():
                    ...
                break
            except kvstore.LockedError:
                time.sleep(random.uniform(0, 0.02))
    """

    code: int = _lib.KVSTORE_LOCKED


class ReadOnlyError(Error):
    """A write was attempted on a read-only store or in a snapshot."""

    code: int = _lib.KVSTORE_READONLY


class CorruptError(Error):
    """The file, or the data on the server, is damaged or is not a store."""

    code: int = _lib.KVSTORE_CORRUPT


class AuthError(Error):
    """The password is wrong or missing, the data was tampered with, or the server rejected the
    login.
    """

    code: int = _lib.KVSTORE_AUTH_FAILED


class FullError(Error):
    """The disk is full, or the store has reached its size limit."""

    code: int = _lib.KVSTORE_FULL


class StoreIOError(Error):
    """The operating system could not open, read, write or sync the file, or the connection to the
    server failed.
    """

    code: int = _lib.KVSTORE_IOERR


class MisuseError(Error):
    """The object is closed, or belongs to another process or asyncio task.

    Examples: a closed store, family, batch or iterator; a batch, a transaction or a store in memory
    of the parent process after a fork.
    """

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


class Failure(NamedTuple):
    """Text and hint of the last failure on a store handle."""

    #: What failed, and what to do.
    text: str
    hint: Optional[Hint]

    def rejected(self) -> InvalidError:
        """Return the exception to raise when the library rejected the arguments of a call
        (KVSTORE_ERROR).
        """
        return InvalidError(self.text, hint=self.hint)


def last_failure(kv: Any, in_another_thread: bool = False) -> Failure:
    """Return the last failure on a store handle. With NULL, return this thread's last failure of a
    call without a handle.

    ``in_another_thread``: an open transaction on the handle is another thread's.
    """
    buf = _ffi.new("char[]", _TEXT_BYTES)
    hint = hint_of(_lib.kvpy_failure(kv, buf, _TEXT_BYTES))
    reason: bytes = _ffi.string(buf)
    text = reason.decode("utf-8", "replace")
    if hint is None:
        return Failure(text, None)
    is_elsewhere = in_another_thread and hint in (Hint.END_TRANSACTION, Hint.USE_WRITE_TRANSACTION)
    return Failure(f"{text}: {OPEN_IN_ANOTHER_THREAD if is_elsewhere else hint.advice}", hint)


def exception_for(code: int, failure: Optional[Failure] = None) -> Exception:
    """Return the exception for a result code of the library.

    Without ``failure``, its message is the general meaning of the code.
    """
    if failure is None:
        failure = Failure(_ffi.string(_lib.kvstore_strerror(code)).decode("utf-8", "replace"), None)
    if code == _lib.KVSTORE_NOMEM:
        return MemoryError(failure.text)
    return _CLASSES.get(code, Error)(failure.text, code, failure.hint)
