"""A lock between processes: a file that exists while a thread of a process holds the lock.

The system releases the lock when the process ends. Must not depend on a store.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import time
from collections.abc import Iterator
from typing import IO, Any, Optional

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

#: Interval in seconds between two attempts to get the lock.
_PAUSE = 0.005
#: The errors of an attempt while another thread or process holds the lock.
_HELD = (errno.EAGAIN, errno.EWOULDBLOCK, errno.EACCES, errno.EDEADLK)


class FileLockedError(Exception):
    """Another thread or process has kept a file locked for longer than the timeout."""


@contextlib.contextmanager
def file_lock(path: str, timeout: float) -> Iterator[None]:
    """Return a ``with`` block that is open in one thread of all processes at a time.

    Raises:
        FileLockedError: If another thread or process holds the lock for ``timeout`` seconds.
        OSError: If the file cannot be created or locked.
    """
    until = time.monotonic() + timeout
    file = _acquire(path)
    while file is None:
        if time.monotonic() >= until:
            raise FileLockedError
        time.sleep(_PAUSE)
        file = _acquire(path)
    try:
        yield
    finally:
        _release(path, file)


def _acquire(path: str) -> Optional[IO[Any]]:
    """Create and lock the file. Return None if it is locked, or was removed before it was locked."""
    try:
        file = open(path, "ab", opener=lambda name, flags: os.open(name, flags, 0o600))
    except PermissionError:
        if sys.platform == "win32":
            return None  # the file is being removed
        raise
    try:
        if sys.platform == "win32":
            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_at(path, file):
            return file
    except OSError as error:
        if error.errno not in _HELD:
            file.close()
            raise
    file.close()
    return None


def _release(path: str, file: IO[Any]) -> None:
    if sys.platform == "win32":
        file.close()
        with contextlib.suppress(OSError):  # fails while another thread or process has the file open
            os.unlink(path)
    else:
        with contextlib.suppress(FileNotFoundError):
            if _is_at(path, file):
                os.unlink(path)
        fcntl.flock(file, fcntl.LOCK_UN)  # a child of a fork may have the file open, too
        file.close()


def _is_at(path: str, file: IO[Any]) -> bool:
    """Return whether the file is still at its path."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False
