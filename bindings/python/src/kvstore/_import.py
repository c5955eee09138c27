"""The part of the command ``kvstore import`` that reads files of other packages: it prints their
entries, which the command writes into a store.

The command runs ``python -m kvstore._import``. This module converts the entries; finding and
reading sources is in _import_sources. Must not open a store.

Each line of the output is a JSON object with one member, a part of an externally tagged enum:

- ``{"source": KIND}``: first.
- ``{"entry": {"key": BASE64, "value": BASE64, "family": NAME or null, "expire_ms": NUMBER or null}}``
- ``{"skipped": REASON}``: an entry that cannot be imported.
- ``{"end": ADVICE or null}``: last, if the whole source was read.
- ``{"failed": MESSAGE}``: last, if it was not.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import pickle
import sys
import time
from binascii import b2a_base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Optional, Union

from kvstore._data_codec import DATA
from kvstore._import_sources import (
    BYTES,
    KINDS,
    NOTHING,
    NUMBER,
    PICKLE,
    TEXT,
    Entry,
    EntryError,
    Piece,
    Source,
    SourceError,
    find,
    has_log,
)
from kvstore._time import expires_at_ms

#: The pickle protocol of imported values. Every Python that this package supports can read it.
_PICKLE_PROTOCOL = 4

#: About the year 9999. A later expiry time is a mistake in the source.
_LAST_MOMENT = 253_402_300_800.0

_EXPIRED = "expired in the source"


class Options(NamedTuple):
    """How keys and values are converted."""

    values: str = "raw"
    unpickle: bool = False


class _Ready(NamedTuple):
    """An entry of the source, converted to the form in which it is written."""

    family: Optional[str]
    key: bytes
    value: bytes
    expires_at: Optional[float]
    #: Whether the value is a pickle that was imported unchanged.
    raw_pickle: bool


def lines(source: Source, options: Options) -> Iterator[dict[str, Any]]:
    """Yield the lines for a source, as objects.

    Raises:
        SourceError: If the source cannot be read, or changed meanwhile.
    """
    yield {"source": source.kind}
    before = {file: _state(file) for file in source.files if not has_log(file)}
    raw_pickles = False
    # If a source has keys of several types, two of them can map to the same bytes: b"1" and "1", or
    # a number and its digits. To find out, each key is kept in memory.
    alike: Optional[set[bytes]] = set() if source.kind in ("diskcache", "sqlitedict") else None
    for entry in source.entries():
        try:
            ready = _ready(entry, options)
            if ready is None:
                yield {"skipped": _EXPIRED}
                continue
            if alike is not None:
                if ready.key in alike:
                    raise EntryError("the key equals that of another entry once it is converted to bytes")
                alike.add(ready.key)
        except EntryError as error:
            yield {"skipped": str(error)}
            continue
        raw_pickles = raw_pickles or ready.raw_pickle
        yield {
            "entry": {
                "key": b2a_base64(ready.key, newline=False).decode(),
                "value": b2a_base64(ready.value, newline=False).decode(),
                "family": ready.family,
                "expire_ms": None if ready.expires_at is None else expires_at_ms(ready.expires_at),
            }
        }
    if any(has_log(file) or _state(file) != state for file, state in before.items()):
        raise SourceError(
            f"{source.path} changed while it was read, so entries may be missing: import it again while no "
            "program uses it, with --skip-existing or --overwrite"
        )
    yield {"end": _ADVICE if raw_pickles and source.kind == "diskcache" else None}


_ADVICE = (
    "some values were imported as pickles and others not: use --values pickle to pickle all of them, for "
    "codec=kvstore.PICKLE"
)


def _state(file: Path) -> tuple[int, int, int]:
    stat = file.stat()
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def _ready(entry: Entry, options: Options) -> Optional[_Ready]:
    """Convert an entry. Return None if it has expired."""
    moment = _moment(entry.expires_at)
    if moment is not None and moment <= time.time():
        return None
    key, piece = _key(entry.key, options), entry.value()
    return _Ready(entry.family, key, _value(piece, options), moment, piece.kind == PICKLE and options.values == "raw")


def _moment(expires_at: Any) -> Optional[float]:
    if expires_at is None or expires_at == math.inf:
        return None
    if not _is_plain_number(expires_at) or expires_at > _LAST_MOMENT:
        raise EntryError("the expiry time is not a valid time")
    return float(expires_at)


def _key(piece: Piece, options: Options) -> bytes:
    if piece.kind != PICKLE:
        return _raw(piece)
    if not options.unpickle:
        raise EntryError("the key is a pickle: use --unpickle to read it")
    key = _unpickled(piece)
    if isinstance(key, (bytes, str)) or _is_plain_number(key):
        return _raw(_piece(key))
    return _json(key, "the key").encode()


def _value(piece: Piece, options: Options) -> bytes:
    if piece.kind == NOTHING:
        return _raw(piece)
    if options.values == "pickle":
        return _bytes_of(piece) if piece.kind == PICKLE else pickle.dumps(piece.data, _PICKLE_PROTOCOL)
    if piece.kind != PICKLE and options.values == "raw":
        return _raw(piece)
    if options.values in ("json", "data"):
        if piece.kind == PICKLE and not options.unpickle:
            raise EntryError("the value is a pickle: use --unpickle to read it")
        value = _unpickled(piece) if piece.kind == PICKLE else piece.data
        return _data(value) if options.values == "data" else _json(value, "the value").encode()
    if options.unpickle:
        value = _unpickled(piece)
        if isinstance(value, (bytes, str)) or _is_plain_number(value):
            return _raw(_piece(value))
    return _bytes_of(piece)


def _bytes_of(piece: Piece) -> bytes:
    if not isinstance(piece.data, bytes):
        raise EntryError("the pickle is not stored as bytes")
    return piece.data


def _raw(piece: Piece) -> bytes:
    data = piece.data
    if piece.kind == NOTHING:
        raise EntryError("the key or value is NULL")
    if isinstance(data, bytes):
        return data
    if isinstance(data, str):
        return data.encode("utf-8", "surrogateescape")
    return repr(data).encode()


def _piece(data: Union[bytes, str, int, float]) -> Piece:
    return Piece(BYTES if isinstance(data, bytes) else TEXT if isinstance(data, str) else NUMBER, data)


def _is_plain_number(data: Any) -> bool:
    return type(data) is int or (type(data) is float and math.isfinite(data))


def _json(data: Any, what: str) -> str:
    try:
        text = json.dumps(data, ensure_ascii=False, allow_nan=False)
        text.encode()
    except (TypeError, ValueError, RecursionError):
        raise EntryError(f"{what} is of type {type(data).__name__}, which cannot be written as JSON") from None
    return text


def _data(value: Any) -> bytes:
    try:
        return DATA.dumps(value)
    except (TypeError, ValueError) as error:
        raise EntryError(str(error).partition(":")[0]) from None


def _unpickled(piece: Piece) -> Any:
    try:
        return pickle.loads(_bytes_of(piece))
    except EntryError:
        raise
    except Exception as error:  # unpickled classes may raise anything
        raise EntryError(f"the pickle cannot be loaded: {type(error).__name__}") from error


def main(arguments: Optional[list[str]] = None) -> None:
    """Print the lines for the source that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m kvstore._import", description=__doc__.split("\n\n")[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("--from", dest="kind", choices=KINDS)
    parser.add_argument("--table")
    parser.add_argument("--values", choices=("raw", "pickle", "json", "data"), default="raw")
    parser.add_argument("--unpickle", action="store_true")
    parser.add_argument("--target", type=Path, help="the file to import into, which must not be the source")
    given = parser.parse_args(arguments)
    output = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="ascii", newline="\n")
    sys.stdout = sys.stderr  # unpickled classes may print
    try:
        try:
            source = find(given.source, given.kind, given.table)
            if given.target is not None and _is_one_of(given.target, source.files):
                raise SourceError("the target is the source itself: give the path of another file as STORE")
            for line in lines(source, Options(given.values, given.unpickle)):
                print(json.dumps(line), file=output)
        except (SourceError, OSError, ValueError) as error:
            if isinstance(error, BrokenPipeError):
                raise
            message = str(error).encode("utf-8", "backslashreplace").decode()
            print(json.dumps({"failed": message}), file=output)
        output.flush()
    except (BrokenPipeError, KeyboardInterrupt):  # the command has ended, or ends for the same reason
        os._exit(1)


def _is_one_of(target: Path, files: list[Path]) -> bool:
    return target.exists() and any(file.exists() and file.samefile(target) for file in files)


if __name__ == "__main__":
    main()
