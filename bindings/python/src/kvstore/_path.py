"""Paths of stores: a file, a store in memory, or the URL of a server. Must open none of them."""

from __future__ import annotations

import os
import re
from typing import Optional, Union

#: The type of paths that callers give.
Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]


def path_bytes(path: Optional[Path]) -> bytes:
    """Return a path as bytes; empty bytes for None.

    Raises:
        ValueError: For an empty path or one with a NUL.
    """
    if path is None:
        return b""
    name = encoded_path(path)
    if not name:
        raise ValueError("path is empty: give a file name, or None or ':memory:' for a store in memory")
    return name


def encoded_path(path: Path) -> bytes:
    """Return a path as bytes.

    Raises:
        ValueError: For a path with a NUL, or with surrogates that are not those of a file name.
    """
    try:
        name = os.fsencode(path)
    except UnicodeEncodeError:
        raise ValueError("path contains surrogates and cannot be encoded: give bytes, or a path without them") from None
    if b"\0" in name:
        raise ValueError("path contains a NUL character: give a path without one")
    return name


def is_in_memory(path: bytes) -> bool:
    return path in (b"", b":memory:")


def is_remote(path: bytes) -> bool:
    """Return whether a path is the URL of a store on a server."""
    return path.startswith((b"postgresql://", b"postgres://"))


def has_scheme(path: bytes) -> bool:
    """Return whether a path begins like a URL or a URI. The library refuses those of no server."""
    return re.match(rb"file:|[A-Za-z][A-Za-z0-9+.-]+://", path) is not None


#: The parts of a URL that messages may show: where it leads. Anything else may be a secret, even a
#: mistyped part.
_SHOWN = re.compile(
    r"(?P<scheme>postgres(?:ql)?://)(?:(?P<user>[^:/?#@\s]*)(?::[^/?#@]*)?@)?(?P<host>(?:[\w.,-]|\[[0-9A-Fa-f:.]*\]|%[0-9A-Fa-f]{2}|:\d+(?=[,/?]|$))*)"
    r"(?P<name>/[^/?#@:]*)?(?:\?(?P<query>[^?#@]*))?"
)
_SHOWN_PARAMETERS = ("host", "port", "user", "dbname", "schema")


def redacted(path: str) -> str:
    """Return a path as text for messages. In a URL, the password is left out, and whatever may be
    one.
    """
    if not is_remote(path.encode("utf-8", "surrogateescape")):
        return path
    found = _SHOWN.fullmatch(path)
    if found is None:
        return path[: path.index("//") + 2] + "..."
    user = f"{found['user']}@" if found["user"] else ""
    given = (found["query"] or "").split("&")
    query = "&".join(one for one in given if one.partition("=")[0] in _SHOWN_PARAMETERS)
    return f"{found['scheme']}{user}{found['host']}{found['name'] or ''}{'?' if query else ''}{query}"


def absolute(path: bytes) -> bytes:
    """Return an absolute path, which a later chdir does not affect. Paths that are not files are
    returned unchanged.
    """
    if is_in_memory(path) or has_scheme(path):
        return path
    if os.name == "nt":  # "C:name" is relative to that drive's folder, and "\\name" to the current drive
        return os.path.abspath(path)
    if os.path.isabs(path):
        return path
    try:
        return os.path.join(os.getcwdb(), path)
    except OSError:
        return path


def file_id(path: bytes) -> Optional[tuple[int, int]]:
    """Return the device and inode of the file at a path; None for a URL, or if no file exists."""
    if is_remote(path):
        return None
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino
