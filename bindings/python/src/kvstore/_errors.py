"""The exceptions, and the one function that turns result codes of the library into them.

Must not import anything of the package but the native module.
"""

from __future__ import annotations

import re
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
    """The library refused what it was given, or what it would have become. Also a
    :exc:`ValueError`.
    """


class NotFoundError(Error, KeyError):
    """There is no such key (or it has expired), or no such family. Also a :exc:`KeyError`."""

    code: int = _lib.KVSTORE_NOTFOUND


class BusyError(Error):
    """Another handle, process or client of the server holds a lock: try again, or open with a
    longer ``busy_timeout``.
    """

    code: int = _lib.KVSTORE_BUSY


class LockedError(Error):
    """A lock inside this process stands in the way: try again.

    On a server: what others have written makes this transaction impossible. Nothing of it was done;
    run the whole block again, with all its reads::

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
    """A write to a store, or in a transaction, that only reads."""

    code: int = _lib.KVSTORE_READONLY


class CorruptError(Error):
    """The file, or what the server has, is damaged or is not a store."""

    code: int = _lib.KVSTORE_CORRUPT


class AuthError(Error):
    """A wrong password, or a tampered value; a log-in that the server refuses."""

    code: int = _lib.KVSTORE_AUTH_FAILED


class FullError(Error):
    """The disk is full, or the store has reached its limit."""

    code: int = _lib.KVSTORE_FULL


class StoreIOError(Error):
    """The file cannot be opened, or the operating system failed to read, write or sync it; the
    server cannot be reached, or the connection broke.
    """

    code: int = _lib.KVSTORE_IOERR


class MisuseError(Error):
    """The store, family, batch or iterator is closed; or it is another process's (the parent's
    batch or transaction, a store in memory), or another asyncio task's.
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

#: What the library's texts say for C and Rust, and what it is in Python.
_WORDS = [
    (r"\(Config::(\w+)(?:, or|;) in C, KVStoreConfig\.\w+\)", r"(\1=)"),
    (r"\breadOnly\b", "read_only="),
    (r"\bcacheSize\b", "cache_size="),
    (r"\bpageSize\b", "page_size="),
    (r"\bbusyTimeout\b", "busy_timeout="),
    (r"\bwalSizeLimit\b|\bcheckpoint_every\b", "wal_size_limit="),
    (r"\b(?:KVStoreConfig\.)?maxValueSize\b", "max_value_size="),
    (r"\bmmapSize\b", "mmap_size="),
    (r"\bholdReads\b", "hold_reads="),
    (r"\bwalPages\b", "wal_pages="),
    (r"\bsecure_delete \(secureDelete\)", "secure_delete="),
    (r"\bjournalMode\b|^journal mode\b", "journal_mode="),
    (r"\bsyncLevel\b", "sync="),
    (r"\bexclusive: who\b", "exclusive=: who"),
    (r"^busy timeout ", "busy_timeout= "),
    (r"until the busy timeout was over: retry, or set a longer one", "until busy_timeout= was over: retry, or set a longer one"),
    (r"\bkvstore_set_limit\b", "limit()"),
    (r"\(Store::copy_to; in C, kvstore_copy; the command,", "(copy_to(); the command,"),
    (r"switch write tracking on first", "set write_tracking to True first"),
    (r"open it without that to write", "open it without read_only= to write"),
    (r"without read-only\b", "without read_only="),
    (r"run the integrity check\b", "call integrity_check()"),
    (r"call purge_step instead", "call purge_step() instead"),
    (r"\ba read transaction is open on this handle\b", "a snapshot is open on this handle"),
    (r"\bend it, or begin a write transaction\b", "end it, or use transaction() in its place"),
    (r"\bopen on this handle\b", "open on this connection"),
    (r"\banother handle or process\b", "another thread, store or process"),
    (r"\banother store handle\b", "another store"),
    (r"\banother handle\b", "another store"),
    (r"\bother handles\b", "others"),
    (r"\bthe handle was opened before a fork: open a new one\b", "the store was opened before a fork: open a new one"),
    (r"\b([Cc])lose this handle, and", r"\1lose this store, and"),
    (r"\ba read-only handle makes none", "one that is opened with read_only= is not made"),
    (r"\bthrough this handle\b", "through this store"),
    (r"^the handle is closed\b", "it is closed"),
    (r"create it first\b", "create=True makes it"),
]
_PYTHON_WORDS = [(re.compile(pattern), words) for pattern, words in _WORDS]


def in_python(text: str) -> str:
    """A text of the library in Python's words: the names of settings and calls as this package has
    them.
    """
    for pattern, words in _PYTHON_WORDS:
        text = pattern.sub(words, text)
    return text


def error_text(kv: Any) -> str:
    """The text of the last failure on a store handle; with NULL, of this thread's without a handle."""
    buf = _ffi.new("char[]", _TEXT_BYTES)
    _lib.kvpy_errmsg(kv, buf, _TEXT_BYTES)
    text: bytes = _ffi.string(buf)
    return in_python(text.decode("utf-8", "replace"))


def exception_for(code: int, text: Optional[str] = None) -> Exception:
    """The exception of a result code, with ``text``, or else with what the code means in general."""
    if text is None:
        text = in_python(_ffi.string(_lib.kvstore_strerror(code)).decode("utf-8", "replace"))
    if code == _lib.KVSTORE_NOMEM:
        return MemoryError(text)
    return _CLASSES.get(code, Error)(text, code)
