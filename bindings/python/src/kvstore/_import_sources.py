"""Sources of an import: recognise the files of other packages, and read their entries one by one.

Sources are only read, and nothing is unpickled. None of the packages is needed except snkv, whose
files no other program can read. _import converts the entries.
"""

from __future__ import annotations

import dbm
import importlib
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable, NamedTuple, Optional, Union
from urllib.parse import quote

#: The kinds of sources that can be imported.
KINDS = ("diskcache", "sqlitedict", "shelve", "dbm", "snkv")

#: How a key or value is stored: as itself (bytes, str, int, float), as a pickle, which is not
#: loaded, or missing.
BYTES, TEXT, NUMBER, PICKLE, NOTHING = "bytes", "text", "number", "pickle", "nothing"


class SourceError(Exception):
    """The source of an import cannot be read. The message says why and what to do."""


class EntryError(Exception):
    """An entry of a source cannot be read. The message is the reason that the report shows."""


class Piece(NamedTuple):
    """A key or value as a source stores it, before conversion."""

    kind: str
    data: Union[bytes, str, int, float]


class Entry(NamedTuple):
    """An entry of a source: its key, value and expiry time, before conversion."""

    #: The family of the entry; None if the source has no families.
    family: Optional[str]
    key: Piece
    #: A function that reads the value. Raises EntryError if that fails.
    value: Callable[[], Piece]
    #: The expiry time in seconds since the Unix epoch, as stored in the source; None: never.
    expires_at: Any
    #: The tag of the entry; None if it has none.
    tag: Any = None


class Source(NamedTuple):
    """A file or directory of another package, from which entries are imported."""

    kind: str
    path: Path
    #: The files that must not change while they are read, and must not be the target.
    files: list[Path]
    entries: Callable[[], Iterator[Entry]]


def find(path: Path, kind: Optional[str] = None, table: Optional[str] = None) -> Source:
    """Return the source of an import at a path.

    Args:
        path: A file or directory.
        kind: The kind of source, one of KINDS; None: recognise it.
        table: The table of a sqlitedict file, if it has several.

    Raises:
        SourceError: If the source is not recognised or cannot be read.
    """
    found = kind or recognise(path)
    if table is not None and found != "sqlitedict":
        raise SourceError(f"--table is only for sqlitedict files, and {path} is a {found} file: leave it out")
    if found == "diskcache":
        caches = _diskcaches(path)
        return Source(found, path, caches, lambda: _read_diskcaches(caches))
    if found == "sqlitedict":
        name = _sqlitedict_table(path, table)
        return Source(found, path, [path], lambda: _read_table(path, name))
    if found in ("shelve", "dbm"):
        base, files = _dbm_files(path)
        return Source(found, path, files, lambda: _read_dbm(base, pickles=found == "shelve"))
    if found == "snkv":
        return Source(found, path, [path], lambda: _read_snkv(path))
    raise SourceError(f"unknown kind {kind!r}: use one of {', '.join(KINDS)}")


def recognise(path: Path) -> str:
    """Return which kind of source is at a path: one of KINDS."""
    if path.is_dir():
        if _caches_in(path):
            return "diskcache"
        raise SourceError(
            f"{path} is a directory without a cache.db of diskcache: give the directory of a cache, or a file"
        )
    if not path.exists():
        if _whichdb(path):
            return "shelve"
        raise SourceError(f"{path} does not exist: check the path of the source")
    if path.name == "cache.db" and "Cache" in _tables(path):
        return "diskcache"
    if _is_sqlite(path):
        try:
            tables = _tables(path)
        except SourceError:
            return "snkv"  # an SQLite file without a schema table
        if "kvstore_family" in tables:
            raise SourceError(f"{path} is already a kvstore store: copy it with Store.backup() or Store.copy_to()")
        if not tables:
            return "snkv"
        return "shelve" if tables.get("Dict") == ["key", "value"] and len(tables) == 1 else "sqlitedict"
    if _whichdb(path):
        return "shelve"
    raise SourceError(f"cannot recognise {path}: give --from, one of {', '.join(KINDS)}")


# SQLite


#: The exceptions of reading a damaged file. Names and messages of SQLite may contain bytes of it.
_FAILED = (sqlite3.Error, UnicodeError)


def _is_sqlite(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(16) == b"SQLite format 3\0"


def has_log(path: Path) -> bool:
    """Return whether an SQLite file has a non-empty write-ahead log (WAL).

    Then another program uses the file, or has left data in the log.
    """
    log = path.with_name(path.name + "-wal")
    return log.exists() and log.stat().st_size > 0


def connect(path: Path) -> sqlite3.Connection:
    """Open an SQLite file and return a connection that cannot write.

    With a WAL it reads one snapshot, whatever other programs write. Without one the file is opened
    as immutable, so that SQLite creates no files next to it; the file must then not change
    meanwhile.
    """
    mode = "mode=ro" if has_log(path) else "mode=ro&immutable=1"
    try:
        connection = sqlite3.connect(f"file:{quote(str(path.absolute()))}?{mode}", uri=True, timeout=10)
    except sqlite3.Error as error:
        raise SourceError(f"cannot open {path}: {error}") from error
    connection.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
    return connection


def _tables(path: Path) -> dict[str, list[str]]:
    """Return the tables of an SQLite file, with the columns of each."""
    connection = connect(path)
    try:
        names = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        return {
            name: [row[1] for row in connection.execute(f"PRAGMA table_info({_quoted(name)})")] for (name,) in names
        }
    except _FAILED as error:
        raise SourceError(f"cannot read {path} as an SQLite database: {error}") from error
    finally:
        connection.close()


def _rows(path: Path, query: str) -> Iterator[Any]:
    connection = connect(path)
    try:
        yield from connection.execute(query)
    except _FAILED as error:
        raise SourceError(f"cannot read {path}: {error}") from error
    finally:
        connection.close()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _plain(data: Any) -> Piece:
    """Return a value that SQLite stores as a Piece of the same type."""
    if isinstance(data, bytes):
        return Piece(BYTES, data)
    if isinstance(data, str):
        return Piece(TEXT, data)
    if isinstance(data, (int, float)):
        return Piece(NUMBER, data)
    return Piece(NOTHING, b"")


def _guessed(data: Any) -> Piece:
    """Return a value that SQLite stores as a Piece, like :func:`_plain`, but mark bytes that look
    like a pickle.

    Packages do not mark pickles themselves.
    """
    if isinstance(data, bytes) and len(data) > 2 and data[0] == 0x80 and 2 <= data[1] <= 5 and data[-1] == 0x2E:
        return Piece(PICKLE, data)
    return _plain(data)


# diskcache: a directory with cache.db, and a file for each large value. A FanoutCache is a
# directory of these.


def _caches_in(folder: Path) -> list[Path]:
    if (folder / "cache.db").is_file():
        return [folder / "cache.db"]
    return sorted(folder.glob("[0-9][0-9][0-9]/cache.db"))


def _diskcaches(path: Path) -> list[Path]:
    caches = _caches_in(path) if path.is_dir() else [path] if path.is_file() else []
    if not caches:
        raise SourceError(f"no diskcache cache at {path}: give the directory with its cache.db")
    for cache in caches:
        if "Cache" not in _tables(cache):
            raise SourceError(f"{cache} has no table Cache and is not a diskcache file: give another --from")
    return caches


def _read_diskcaches(caches: list[Path]) -> Iterator[Entry]:
    for cache in caches:
        query = "SELECT key, raw, expire_time, tag, mode, filename, value FROM Cache ORDER BY rowid"
        for key, raw, expire_time, tag, mode, filename, value in _rows(cache, query):
            name = _plain(key) if raw else Piece(PICKLE, key)
            yield Entry(None, name, _diskcache_value(cache.parent, mode, filename, value), expire_time, tag)


def _diskcache_value(folder: Path, mode: Any, filename: Any, value: Any) -> Callable[[], Piece]:
    def read() -> Piece:
        data = value if filename is None else _file_in(folder, filename)
        if mode == 1:
            return _plain(data)
        if mode == 3 and isinstance(data, bytes):
            return Piece(TEXT, data.decode("utf-8", "surrogateescape"))
        if mode in (2, 4) and isinstance(data, bytes):
            return Piece(BYTES if mode == 2 else PICKLE, data)
        raise EntryError("the value has a storage mode that diskcache does not define")

    return read


def _file_in(folder: Path, filename: Any) -> bytes:
    path = os.path.realpath(folder / str(filename))
    if not path.startswith(os.path.realpath(folder) + os.sep):
        raise EntryError("the file of the value is outside the cache directory")
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise EntryError(f"the file of the value cannot be read: {error.strerror}") from error


# sqlitedict: tables of key and value


def _sqlitedict_table(path: Path, table: Optional[str]) -> str:
    if not path.is_file():
        raise SourceError(f"no file at {path}: check the path of the source")
    names = [name for name, columns in _tables(path).items() if columns == ["key", "value"]]
    if table is not None:
        if table not in names:
            raise SourceError(
                f"{path} has no table {table!r} with columns key and value: choose from "
                f"{', '.join(names) or '(none)'}"
            )
        return table
    if len(names) != 1:
        known = f"several tables: choose one with --table: {', '.join(names)}" if names else "no table with columns key and value"
        raise SourceError(f"{path} has {known}")
    return names[0]


def _read_table(path: Path, table: str) -> Iterator[Entry]:
    for key, value in _rows(path, f"SELECT key, value FROM {_quoted(table)}"):  # noqa: S608 # quoted
        yield Entry(None, _plain(key), _given(value), None)


def _given(data: Any) -> Callable[[], Piece]:
    return lambda: _guessed(data)


# shelve and dbm


def _whichdb(path: Path) -> Optional[tuple[str, str]]:
    """Return the dbm module that can read a file, and the file name to open it with; None if no
    module can.

    Some dbm modules add an ending to the name.
    """
    names = [str(path)]
    if path.suffix in (".db", ".dat", ".dir", ".bak", ".pag"):
        names.append(str(path.with_suffix("")))
    for name in names:
        module = dbm.whichdb(name)
        if module:
            return module, name
    return None


def _dbm_files(path: Path) -> tuple[tuple[str, str], list[Path]]:
    if path.is_file() and _is_sqlite(path):
        return ("dbm.sqlite3", str(path)), [path]
    found = _whichdb(path)
    if found is None:
        raise SourceError(f"{path} is not a shelve or dbm file: give another --from")
    base = Path(found[1])
    endings = ("", ".db", ".dat", ".dir", ".pag")
    return found, [base.with_name(base.name + e) for e in endings if base.with_name(base.name + e).is_file()]


def _read_dbm(found: tuple[str, str], pickles: bool) -> Iterator[Entry]:
    module, name = found
    if module == "dbm.sqlite3":  # the format of Python 3.13, readable by older ones too
        items: Iterator[tuple[Any, Any]] = _rows(Path(name), "SELECT key, value FROM Dict")
    else:
        items = _dbm_items(module, name)
    for key, value in items:
        yield Entry(None, Piece(BYTES, bytes(key)), _given(value) if pickles else _bytes(value), None)


def _bytes(data: Any) -> Callable[[], Piece]:
    return lambda: Piece(BYTES, bytes(data))


def _dbm_items(module: str, name: str) -> Iterator[tuple[Any, Any]]:
    try:
        reader: Any = importlib.import_module(module)
    except ImportError as error:
        raise SourceError(f"{name} needs the Python module {module}, which cannot be imported: {error}") from error
    try:
        with reader.open(name, "r") as file:
            for key in file.keys():
                yield key, file[key]
    except Exception as error:  # dbm.dumb raises anything for a damaged file
        raise SourceError(f"cannot read {name}: {error}") from error


# snkv


def _read_snkv(path: Path) -> Iterator[Entry]:
    try:
        snkv: Any = importlib.import_module("snkv")
        failure = snkv.Error
    except (ImportError, AttributeError) as error:  # or a directory of that name
        raise SourceError("reading snkv files needs the package snkv: pip install snkv") from error
    if not path.is_file():
        raise SourceError(f"no file at {path}: check the path of the source")
    try:
        with snkv.KVStore(str(path), read_only=1) as store:
            yield from _snkv_family(store, "default")
            for name in store.list_column_families():
                with store.open_column_family(name) as family:
                    yield from _snkv_family(family, name)
    except failure as error:
        raise SourceError(f"snkv cannot read {path}: {error}") from error


def _snkv_family(family: Any, name: str) -> Iterator[Entry]:
    for key, value in family.iterator():
        left = family.ttl(key)  # seconds; None: no TTL
        expires_at = None if left is None else time.time() + left
        yield Entry(name, Piece(BYTES, key), _bytes(value), expires_at)
