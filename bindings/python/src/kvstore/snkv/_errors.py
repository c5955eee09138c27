"""The exceptions of snkv, which are exceptions of kvstore, too."""

from __future__ import annotations

from typing import Any

from kvstore import _errors
from kvstore._native import lib

NOTFOUND: int = lib.KVSTORE_NOTFOUND


class Error(_errors.Error):
    """Base class of all exceptions of this module. It derives from :exc:`kvstore.Error`."""


class NotFoundError(Error, _errors.NotFoundError):
    """The key does not exist or has expired, or the family does not exist. This exception is also a
    :exc:`KeyError`.
    """


class BusyError(Error, _errors.BusyError):
    """Another handle or process holds a lock, or a family to be dropped is still open."""


class LockedError(Error, _errors.LockedError):
    """A lock inside this process is held."""


class ReadOnlyError(Error, _errors.ReadOnlyError):
    """A write was attempted on a read-only store or in a read transaction."""


class CorruptError(Error, _errors.CorruptError):
    """The file is damaged."""


class AuthError(Error, _errors.AuthError):
    """The password is wrong, or missing for an encrypted store."""


_CLASSES: dict[int, type[Error]] = {
    kind.code: kind for kind in (NotFoundError, BusyError, LockedError, ReadOnlyError, CorruptError, AuthError)
}


def failure(code: int, kv: Any) -> Error:
    """Return the exception for a result code of a call on a store handle, or on a family or
    iterator of it.
    """
    if code == NOTFOUND:  # not a failure for the library, which has no message for it
        return NotFoundError("no such key or column family")
    last = _errors.last_failure(kv)
    return _CLASSES.get(code, Error)(last.text, code, last.hint)


def closed_error(what: str) -> Error:
    return Error(f"the {what} is closed: open a new one", lib.KVSTORE_MISUSE)
